"""``headrace fleet`` on saved hosts: what is printed, and which error a wrong fleet is."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from headrace.fleet.report import facts
from headrace.fleet.runner import Outcome, State
from tests.commands import headrace
from tests.folders import ROOT
from tests.unit.test_fleet_drift import answer

HOSTS = ROOT / "tests" / "hosts"


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two saved hosts, one that is gone, and one that its inventory does not describe."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "160")
    places = {"nvme": HOSTS / "nvme-8core", "xen": HOSTS / "xen-16core-md", "gone": tmp_path / "gone"}
    (tmp_path / "gone").mkdir()
    variables = {name: {"ansible_host": str(place)} for name, place in places.items()}
    variables["odd"] = {"ansible_host": "{{ nowhere }}"}
    inventory = {"_meta": {"hostvars": variables}, "old": {"hosts": ["xen"]}}
    (tmp_path / "inventory.json").write_text(json.dumps(inventory))
    return str(tmp_path / "inventory.json")


def test_facts_are_folded_and_the_lost_are_named(fleet: str) -> None:
    answer = headrace("fleet", "facts", "--fleet", fleet)
    assert answer.returncode == 6, answer.stderr
    assert "4 hosts: 2 ok, 1 unreachable, 1 skipped" in answer.stdout
    lines = answer.stdout.splitlines()
    assert any(line.startswith("gone") and "not a saved host" in line for line in lines)
    assert any(line.startswith("odd") and "template that was not resolved" in line for line in lines)
    assert any("8 x " in line and line.rstrip().endswith("nvme") for line in lines)
    found = json.loads(headrace("fleet", "facts", "--fleet", fleet, "--json").stdout)["hosts"]
    assert {name: row["state"] for name, row in found.items()} == {
        "nvme": "ok", "xen": "ok", "gone": "unreachable", "odd": "skipped"
    }  # fmt: skip
    assert found["xen"]["answer"]["cpu"]["online_count"] == 16


def test_one_host_of_a_fleet(fleet: str) -> None:
    answer = headrace("fleet", "facts", "--fleet", fleet, "--tag", "old")
    assert answer.returncode == 0, answer.stderr
    assert "1 host: 1 ok" in answer.stdout
    assert headrace("fleet", "facts", "--fleet", fleet, "--tag", "older").returncode == 3
    assert headrace("fleet", "facts", "--fleet", fleet, "--only", "db9").returncode == 3
    assert headrace("fleet", "facts", "--fleet", "no-such.toml").returncode == 3


def test_a_run_is_continued_and_another_question_is_refused(fleet: str, tmp_path: Path) -> None:
    run = tmp_path / "run.jsonl"
    assert headrace("fleet", "facts", "--fleet", fleet, "--run", str(run)).returncode == 6
    before = run.read_text().splitlines()
    assert headrace("fleet", "facts", "--fleet", fleet, "--run", str(run)).returncode == 6
    assert {json.loads(line)["host"] for line in run.read_text().splitlines()[len(before) :]} == {
        "gone",
        "odd",
    }
    answer = headrace("fleet", "status", "--fleet", fleet, "--run", str(run))
    assert answer.returncode == 9
    assert "answers to another question (facts" in answer.stderr


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"os": None},
        {"memory": 7},
        {"cpu": []},
        {"servers": [1]},
        {"block_devices": {"a": 1}},
        [],
        "x",
        None,
    ],
)
def test_a_host_whose_facts_lack_a_field_costs_the_others_nothing(broken: object) -> None:
    good = answer(1)["facts"]
    outcomes = [
        Outcome("bad", State.OK, address="b", answer=broken),
        Outcome("good", State.OK, address="g", answer=good),
    ]
    written = io.StringIO()
    Console(width=200, file=written).print(facts.terminal(outcomes, {"bad": None, "good": None}))
    assert "good" in written.getvalue()
    assert "database" in written.getvalue()
