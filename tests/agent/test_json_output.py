"""What `--json` prints is valid JSON in which numbers, booleans and missing values are no text."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli import load
from headrace.cli.shell import app
from headrace.host.snapshot import save
from tests import synthetic
from tests.json_numbers import numbers_as_text
from tests.programs import agent_path
from tests.rules.hosts import saved
from tests.rules.network_cases import ONE_HOT_CORE

LOG = """# Time: 2026-01-01T00:00:00.000000Z
# User@Host: app[app] @ localhost []  Id:     1
# Query_time: 0.001000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1
use shop;
SET timestamp=1767225600;
SELECT a FROM t WHERE b = 1;
"""
#: Texts that are a version, an id or a statement's own value and look like a number.
TEXTS = ("version", "detail", ".id:", ".class:", "agent_version")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("json")
    (made / "slow.log").write_text(LOG)
    save(saved(rates=ONE_HOT_CORE, without=["psi"]), made / "db1.hunt")
    arguments = ["record", made / "slow.log", "--with-literals", "--output", made / "shop.rec"]
    subprocess.run([agent_path(), *map(str, arguments)], check=True, capture_output=True)
    synthetic.make(made / "experiment", synthetic.Shape(blocks=3, seconds=8))
    return made


@pytest.fixture
def printed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HEADRACE_AGENT", agent_path())

    def run(*words: str) -> Any:
        load(words[0])
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
        return json.loads(done.stdout, parse_constant=pytest.fail)

    return run


@pytest.mark.parametrize(
    "words",
    [
        ("report", "--self-check", "--studies", "100"),
        ("report", "--self-check", "--studies", "100", "--rollouts"),
        ("hunt", "--from", "db1.hunt"),
        ("digest", "slow.log"),
        ("recording", "info", "shop.rec"),
        ("plan", "show", "stock-to-all"),
        ("knobs", "vm.*"),
        ("rules",),
        ("rules", "show", "CPU01"),
        ("report", "experiment"),
        ("status", "experiment"),
        ("compare", "experiment", "experiment"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_numbers_are_numbers(printed: Callable[..., Any], words: tuple[str, ...]) -> None:
    found = [text for text in numbers_as_text(printed(*words)) if not any(name in text for name in TEXTS)]
    assert found == []


def test_numbers_are_where_programs_look_for_them(printed: Callable[..., Any]) -> None:
    [rate, *_] = printed("report", "--self-check", "--studies", "100")["rates"]
    assert rate["holds"] is True
    assert isinstance(rate["alarms"], int)
    [host] = printed("hunt", "--from", "db1.hunt")
    values = [value for finding in host["findings"] for value in finding["evidence"].values()]
    assert any(isinstance(value, int | float) for value in values)
    assert all(not isinstance(value, bool) for value in values)
