"""RPS: the limit it moves, predicted from what was measured without it, and shown next to what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.base.errors import PlanError
from headrace.cli import load
from headrace.cli.shell import app
from headrace.hunt.ladder import ladder as ladders
from headrace.hunt.ladder.packets import Core, Size, Step
from headrace.hunt.ladder.report.packets import page_of
from headrace.hunt.ladder.steering import Steered, Work, cpus_of, limit_s, steered
from headrace.show import html, jsonform, terminal
from tests.written import printed

SIZE: Size = (64, 100)
US = 1e-6


def step(number: int, rps: str, packets_s: float, cores: dict[str, tuple[float, float]], **more: Any) -> Step:
    """``cores``: name -> softirq and busy."""
    found = tuple(Core(name, softirq, busy) for name, (softirq, busy) in cores.items())
    return Step(
        number, rps, more.pop("size", SIZE), more.pop("share", None), None, packets_s / 2, packets_s, 1e5, 2e5,
        found, 0, 0, 0, **more,
    )  # fmt: skip


def rounds(
    softirq: float, without: float, steered_s: float, *, rps: str = "2", busy: float = 1.0, beside: float = 0.0,
    interrupt_ns: float | None = 1000.0, own: float | None = None, count: int = 5,
) -> list[Step]:  # fmt: skip
    """Rounds that differ by up to 2%: ``softirq`` of a full core0, then steered to core1."""
    found = []
    for number in range(count):
        wiggle = 1 + 0.01 * (number - count // 2)
        alone = {"cpu0": (softirq * busy, busy), "cpu1": (0.0, beside)}
        moved = {"cpu0": (0.02, 1.0), "cpu1": (0.5, 0.6)}
        found += [
            step(number, "", without * wiggle, alone, interrupt_ns=interrupt_ns, own=own),
            step(number, rps, steered_s * wiggle, moved, interrupt_ns=interrupt_ns),
        ]
    return found


def one(steps: list[Step]) -> Steered:
    (found,) = steered(steps)
    return found


def test_a_mask_names_cpus_as_the_kernel_does() -> None:
    assert cpus_of("2") == {1}
    assert cpus_of("f") == {0, 1, 2, 3}
    assert cpus_of("2,00000002") == {1, 33}
    assert cpus_of("") == frozenset()
    with pytest.raises(ValueError, match="invalid literal"):
        cpus_of("cpu1")


def test_the_limit_is_where_either_side_is_full() -> None:
    free = Work(2 * US, 1 * US, 0.0)
    assert limit_s(free, 0, keeps=True) == pytest.approx(1 / (3 * US))
    assert limit_s(free, 1, keeps=False) == pytest.approx(1 / (2 * US))
    # Both cores take half of it.
    assert limit_s(free, 1, keeps=True) == pytest.approx(1 / (2.5 * US))
    # What moves fills the other core first, unless two share it.
    much = Work(1 * US, 3 * US, 0.0)
    assert limit_s(much, 1, keeps=False) == pytest.approx(1 / (3 * US))
    assert limit_s(much, 2, keeps=False) == pytest.approx(1 / (1.5 * US))
    assert limit_s(much, 9, keeps=False) == pytest.approx(1 / (1 * US))


@pytest.mark.parametrize("interrupt_s", [0.1 * US, 1 * US, 4 * US])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize(("others", "keeps"), [(1, False), (1, True), (3, False)])
def test_interrupts_only_cost_and_the_estimate_is_between(
    interrupt_s: float, share: float, others: int, keeps: bool
) -> None:
    work = Work((1 - share) * 4 * US, share * 4 * US, interrupt_s)
    least, most = (limit_s(work, others, keeps, interrupts) for interrupts in (1.0, 0.0))
    middle = limit_s(work, others, keeps)
    assert least < most
    assert least * (1 - 1e-9) <= middle <= most * (1 + 1e-9)
    # At this rate a core is full: the first one, or those that receive.
    share = 1 / (others + keeps)
    there, way = middle * share * work.moves_s, middle * share * interrupt_s / 2
    needed = max(0.0, 1 - there) / (1 + way)
    own = work.stays_s + work.moves_s * share * keeps + others * share * needed * interrupt_s / 2
    assert max(middle * own, there) == pytest.approx(1)


def test_the_founding_case_is_predicted_from_the_run_without_rps() -> None:
    """60% of a full core is receiving: moved, that part is the next limit, 1.67 times as high."""
    found = one(rounds(0.6, 300_000, 480_000, interrupt_ns=200.0))
    assert found.core == "cpu0"
    assert found.softirq == pytest.approx(0.6)
    assert found.predicted is not None
    assert found.predicted.estimate == pytest.approx(500_000, rel=0.01)
    assert found.predicted.low is not None
    assert found.predicted.high is not None
    # 2 us of a packet move, and an interrupt takes 0.2 us.
    assert found.predicted.low == pytest.approx(1 / (2.2 * US), rel=0.04)
    assert found.predicted.high > 500_000
    assert found.is_inside is True
    assert found.measured.estimate == pytest.approx(480_000, rel=0.01)


def test_what_was_measured_with_rps_changes_no_prediction() -> None:
    slow, fast = (one(rounds(0.6, 300_000, rate)) for rate in (100_000, 900_000))
    assert slow.predicted == fast.predicted
    assert (slow.is_inside, fast.is_inside) == (False, False)


def test_a_prediction_covers_one_more_set_of_rounds() -> None:
    """Rounds that differ by chance, with a model that is exact: 95% of the predictions hold, and no more."""
    import numpy as np

    dice = np.random.default_rng(7)
    held = 0
    for _ in range(300):
        steps = []
        for number, noise in enumerate(dice.normal(0, 0.05, (5, 2))):
            alone = {"cpu0": (0.6, 1.0), "cpu1": (0.0, 0.0)}
            steps.append(step(number, "", 300_000 * np.exp(noise[0]), alone, interrupt_ns=1e-3))
            steps.append(step(number, "2", 500_000 * np.exp(noise[1]), alone))
        held += bool(one(steps).is_inside)
    assert 0.92 <= held / 300 <= 0.99


def test_a_core_that_was_not_full_predicts_nothing() -> None:
    found = one(rounds(0.6, 300_000, 480_000, busy=0.7))
    assert (found.predicted, found.is_inside) == (None, None)
    assert "cpu0 was busy for 70%" in found.why_not
    assert "received nothing" in one(rounds(0.0, 300_000, 480_000)).why_not


@pytest.mark.parametrize(("softirq", "own", "is_predicted"), [
    (0.6, 0.97, True),  # softirq is in the CPU time of the process that it interrupts
    (0.6, 0.38, True),  # or, with exact accounting, it is not
    (0.6, 0.7, False),
    (0.02, 0.1, False),
])  # fmt: skip
def test_a_core_full_of_other_work_predicts_nothing(softirq: float, own: float, is_predicted: bool) -> None:
    found = one(rounds(softirq, 300_000, 480_000, own=own))
    assert (found.predicted is not None) is is_predicted
    assert ("full of other work" in found.why_not) is not is_predicted


def test_without_the_time_of_an_interrupt_there_is_only_an_upper_end() -> None:
    found = one(rounds(0.6, 300_000, 480_000, interrupt_ns=None))
    assert found.predicted is not None
    assert found.predicted.low is None
    assert found.predicted.high is not None
    assert found.is_inside is True


def test_a_mask_of_the_same_core_moves_nothing() -> None:
    found = one(rounds(0.6, 300_000, 300_000, rps="1"))
    assert found.predicted is not None
    assert found.predicted.estimate == pytest.approx(found.without.estimate)


def test_rounds_without_their_pair_are_left_out() -> None:
    steps = rounds(0.6, 300_000, 480_000)
    assert steered([each for each in steps if not each.rps]) == []
    assert steered([each for each in steps if each.rps]) == []
    assert one([each for each in steps if each.rps or each.round != 4]).without.estimate < 300_000


def full_page(**more: Any) -> Any:
    steps = rounds(0.6, 300_000, 480_000, **more)
    steps += [replace(each, size=(64, 1000)) for each in steps]
    return page_of("db1", [*steps, *(replace(each, share=0.5, offered_s=1e5) for each in steps)])


def test_prediction_and_measurement_are_in_all_three_forms() -> None:
    page = full_page()
    content = json.loads(json.dumps(jsonform.render(page), allow_nan=False))
    assert [each["size"] for each in content["steering"]] == [[64, 100], [64, 1000]]
    first = content["steering"][0]
    assert first["predicted"]["low"] < first["predicted"]["estimate"] <= first["predicted"]["high"]
    assert first["measured"]["estimate"] == pytest.approx(480_000, rel=0.01)
    assert first["is_inside"] is True
    assert first["cores"][1]["steered_softirq"] == pytest.approx(0.5)
    said = printed(terminal.render(page), width=160)
    for words in ("predicted", "measured", "held", "cpu0 60%", "2 of 2 predictions held"):
        assert words in said, words
    text = html.render(page)
    assert 'id="rps"' in text
    assert "Does RPS move the limit?" in text
    assert "p99 [ms]" in text


def test_other_work_and_missing_predictions_are_said() -> None:
    assert any("cpu1 had other work" in line for line in full_page(beside=0.4).cautions)
    assert any("no core was full" in line for line in full_page(busy=0.7).cautions)
    assert not full_page().cautions
    busy = full_page(own=0.1, busy=1.0)
    assert any("both ends used 70% of it. Limits are too low" in line for line in busy.cautions)
    said = printed(terminal.render(busy), width=160)
    assert "Limits are too low" in said
    assert "no prediction, cpu0 was full of other work" in said


def test_the_command_prints_numbers_and_writes_a_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def measured(
        host: object, sizes: object, count: int, step_s: float, rps: str, listen: object
    ) -> Any:
        return rounds(0.6, 300_000, 480_000, rps=rps, count=count)

    load("latencies")
    monkeypatch.setattr(ladders, "packets", measured)
    words = [
        "latencies",
        "--packets",
        "--rps",
        "2",
        "--rounds",
        "3",
        "--json",
        "--html",
        str(tmp_path / "p.html"),
    ]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    [found] = json.loads(ran.stdout)["steering"]
    assert found["predicted"]["estimate"] > found["without"]["estimate"]
    assert "Does RPS move the limit?" in (tmp_path / "p.html").read_text()


def test_the_command_refuses_what_it_cannot_do() -> None:
    load("latencies")
    ran = CliRunner().invoke(app, ["latencies", "--html", "x.html"])
    assert ran.exit_code == 2
    assert "--packets" in ran.output
    ran = CliRunner().invoke(app, ["latencies", "--packets", "--rps", "cpu1"])
    assert isinstance(ran.exception, PlanError)
    assert "'cpu1' is not a mask" in str(ran.exception)
