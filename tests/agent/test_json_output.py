"""What `--json` prints is valid JSON in which numbers, booleans and missing values are no text: every command."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from headrace.cli import load
from headrace.cli.shell import app
from headrace.host.snapshot import save
from tests import synthetic
from tests.json_numbers import numbers_as_text
from tests.programs import agent_path
from tests.rules.hosts import saved
from tests.rules.network_cases import ONE_HOT_CORE
from tests.unit.test_digest_memcached import TALK, capture

LOG = """# Time: 2026-01-01T00:00:00.000000Z
# User@Host: app[app] @ localhost []  Id:     1
# Query_time: 0.001000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1
use shop;
SET timestamp=1767225600;
SELECT a FROM t WHERE b = 1;
"""
#: Commands that print JSON here, over real inputs.
HERE = [
    ("hunt", "--from", "db1.hunt"),
    ("propose", "--from", "db1.hunt"),
    ("digest", "slow.log"),
    ("digest", "compare", "slow.log", "slow.log"),
    ("digest", "both-ends", "slow.log", "slow.log"),
    ("digest", "memcached", "cache.pcap"),
    ("record", "slow.log", "-o", "again.rec"),
    ("recording", "info", "shop.rec"),
    ("recording", "verify", "shop.rec"),
    ("recording", "filter", "shop.rec", "user=app", "-o", "app.rec"),
    ("recording", "merge", "shop.rec", "shop.rec", "-o", "merged.rec"),
    ("recording", "anonymise", "shop.rec", "-o", "hidden.rec", "--key-file", "key"),
    ("plan", "show", "stock-to-all"),
    ("knobs", "vm.*"),
    ("rules",),
    ("rules", "show", "CPU01"),
    ("report", "experiment"),
    ("status", "experiment"),
    ("compare", "experiment", "experiment"),
    ("doctor",),
    ("rollback", "--list"),
    ("rollout", "history"),
    ("size", "predictions"),
    ("import", "rates.csv", "--factor", "when", "--response", "tps"),
    ("lab", "status"),
    ("lab", "images"),
    ("top", "--once"),
]
#: Those that need more than this folder has, and what: the tests of that run them.
ELSEWHERE = {
    "a server, or a host to change": (
        *("apply", "demo", "indexes", "prove", "replay", "run", "tune", "verify"),
        *("rollout abort", "rollout dry", "rollout give-up", "rollout go", "rollout plan", "rollout status"),
    ),
    "a fleet": tuple(f"fleet {name}" for name in ("doctor", "drift", "facts", "hunt", "latencies", "status")),
    "virtual machines": ("lab down", "lab reboot", "lab up"),
    "samples of a production": tuple(
        f"size {name}" for name in ("demand", "full", "measure", "merge", "prove", "replica")
    ),
    "the built documentation": ("docs",),
    "a recording of minutes, days of digests": ("recording cut", "digest history", "digest review"),
    "a table of versions": ("watch",),
    "seconds of measuring": ("latencies",),
    "texts as the kernel's files have them": ("facts",),
}
#: Texts that are a version, an id or a statement's own value and look like a number.
TEXTS = ("version", "detail", ".id:", ".class:", ".kernel:", "agent_version")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("json")
    (made / "slow.log").write_text(LOG)
    capture(made / "cache.pcap", TALK)
    save(saved(rates=ONE_HOT_CORE, without=["psi"]), made / "db1.hunt")
    arguments = ["record", made / "slow.log", "--with-literals", "--output", made / "shop.rec"]
    subprocess.run([agent_path(), *map(str, arguments)], check=True, capture_output=True)
    rows = "".join(f"{at},{'before' if at % 2 else 'after'},{100 + at % 7}\n" for at in range(30))
    (made / "rates.csv").write_text("block,when,tps\n" + rows)
    (made / "key").touch(mode=0o600)
    (made / "key").write_bytes(os.urandom(32))
    synthetic.make(made / "experiment", synthetic.Shape(blocks=3, seconds=8))
    return made


@pytest.fixture
def printed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HEADRACE_AGENT", agent_path())
    monkeypatch.setenv("HEADRACE_STATE", str(folder / "state"))

    def run(*words: str) -> Any:
        load(words[0])
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
        return json.loads(done.stdout, parse_constant=pytest.fail)

    return run


@pytest.mark.parametrize("words", HERE, ids=" ".join)
def test_numbers_are_numbers(printed: Callable[..., Any], words: tuple[str, ...]) -> None:
    found = [text for text in numbers_as_text(printed(*words)) if not any(name in text for name in TEXTS)]
    assert found == []


def test_numbers_are_where_programs_look_for_them(printed: Callable[..., Any]) -> None:
    [rate, *_] = printed("report", "--self-check", "--studies", "100", "--rollouts")["rates"]
    assert rate["holds"] is True
    assert isinstance(rate["alarms"], int)
    [host] = printed("hunt", "--from", "db1.hunt")
    values = [value for finding in host["findings"] for value in finding["evidence"].values()]
    assert any(isinstance(value, int | float) for value in values)
    assert all(not isinstance(value, bool) for value in values)


def with_json(command: Any, name: str) -> Iterator[str]:
    """The commands below this one that have the option."""
    context = command.context_class(command, info_name=name)
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    if not names or command.invoke_without_command:
        options = [option for parameter in command.get_params(context) for option in parameter.opts]
        if "--json" in options:
            yield name
    for below in names:
        yield from with_json(command.get_command(context, below), f"{name} {below}".strip())


def test_every_command_with_the_option_is_looked_at() -> None:
    load()
    found = set(with_json(typer.main.get_command(app), ""))
    assert len(found) > 50
    elsewhere = {name for names in ELSEWHERE.values() for name in names}
    here = {name for words in HERE for name in (words[0], " ".join(words[:2])) if name in found}
    assert found - here == elsewhere
