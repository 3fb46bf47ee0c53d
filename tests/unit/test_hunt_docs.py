"""docs/reference/hunt.md says what the code does: its thresholds and its examples."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.base.model import Facts
from headrace.host import devices
from headrace.host.snapshot import save
from headrace.hunt import hot_cores, resources
from tests.folders import ROOT
from tests.golden_hosts import HOSTS

PAGE = (ROOT / "docs" / "reference" / "hunt.md").read_text()
EXAMPLES = re.findall(r"```console\n\$ headrace (.*)\n((?:.*\n)*?)```", PAGE)
#: The hosts of the examples.
SAVED = {"db1": "idle", "db7": "spindle-full"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("docs")
    for name, host in SAVED.items():
        snapshot = HOSTS[host](root / name)
        facts = Facts(snapshot.facts.hash, {**snapshot.facts.data, "hostname": name})
        save(replace(snapshot, facts=facts), root / "hosts" / f"{name}.hunt")
    return root


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_an_example_prints_what_the_page_shows(command: str, shown: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *command.split()],
        cwd=folder,
        env={"COLUMNS": "100", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    printed = iter([line.rstrip() for line in done.stdout.splitlines()])
    for line in shown.splitlines():
        # In this order; ``...`` stands for lines that are left out.
        assert line == "..." or line.rstrip() in printed, f"{line!r} is not in:\n{done.stdout}"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 2


def test_the_thresholds_are_those_of_the_code() -> None:
    table = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d.]+) \|$", PAGE, re.MULTILINE))
    assert len(table) > 10
    assert {name: float(value) for name, value in table.items()} == {
        name: next(
            getattr(module, name) for module in (resources, devices, hot_cores) if hasattr(module, name)
        )
        for name in table
    }
    named = set(re.findall(r"`([A-Z_]{4,})`", PAGE))
    assert named == set(table)
