"""What a person reads whose first plan has a mistake: the line, the key, and what to write instead."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from headrace.base.errors import PlanError
from headrace.experiment import cautions, kinds, runner
from headrace.experiment import plan as plans
from tests import first_plans
from tests.commands import headrace
from tests.folders import ROOT

#: Every error, to be read aloud. `HEADRACE_REWRITE=1 pytest FILE` writes it anew.
LIST = Path(__file__).parent.parent / "data" / "first-plans.txt"


def error_of(text: str, folder: Path) -> PlanError:
    path = folder / "pool.toml"
    path.write_text(text)
    with pytest.raises(PlanError) as caught:
        kinds.build(plans.load(path).plan, place=str(path))
    return caught.value


def listed(folder: Path) -> str:
    parts = []
    for name in first_plans.CHANGES:
        error = error_of(first_plans.plan(name), folder)
        place = (error.place or "").replace(f"{folder}/", "")
        hint = f"\n  try: {error.hint}" if error.hint else ""
        parts.append(f"# {name}\n{place}: {error.message}{hint}\n")
    return "\n".join(parts)


def test_the_errors_of_first_plans_read_as_listed(tmp_path: Path) -> None:
    found = listed(tmp_path)
    if os.environ.get("HEADRACE_REWRITE"):
        LIST.write_text(found)
    assert found == LIST.read_text()


@pytest.mark.parametrize("name", first_plans.CHANGES)
def test_every_first_plan_is_answered_with_its_line_and_a_fix(name: str, tmp_path: Path) -> None:
    error = error_of(first_plans.plan(name), tmp_path)
    assert re.fullmatch(r".*/pool\.toml:\d+", error.place or ""), error.place
    assert error.hint
    assert "pydantic" not in error.message
    assert "Input should" not in error.message


def test_the_plan_without_a_mistake_is_a_design(tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    path.write_text(first_plans.GOOD)
    assert kinds.build(plans.load(path).plan, place=str(path)).trials


def test_a_plan_that_cannot_work_is_shown_with_cautions(tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    text = first_plans.GOOD.replace('"1G"', '"10T"').replace("seconds = 30", "seconds = 0.1")
    path.write_text(text.replace("blocks = 5", "blocks = 1").replace("warmup_s = 5", "warmup_s = 0"))
    design = kinds.build(plans.load(path).plan, place=str(path))
    found = cautions.of(design, 16 << 30)
    for key in (
        "workload.seconds = 0.1",
        "workload.warmup_s = 0",
        "design.blocks = 1",
        "10T: this machine has 16G",
    ):
        assert any(key in text for text in found), (key, found)
    path.write_text(first_plans.GOOD)
    good = kinds.build(plans.load(path).plan, place=str(path))
    assert cautions.of(good, 16 << 30) == []
    # 400,000 rows, and the start of an empty server.
    assert runner.load_seconds(good) > runner.EMPTY_SERVER_S


def test_an_example_is_printed_as_its_file_is() -> None:
    printed = headrace("plan", "print", "duet")
    assert (printed.returncode, printed.stdout) == (0, (ROOT / "examples" / "duet.toml").read_text())


def test_a_plan_with_a_byte_order_mark_is_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    path.write_bytes(b"\xef\xbb\xbf" + first_plans.GOOD.replace("\n", "\r\n").encode())
    assert plans.load(path).plan.name == "pool"
