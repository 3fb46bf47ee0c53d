"""Packets between two namespaces, for real: one core does all of the work, and RPS moves what receives."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.analysis.packets import steps_of
from tests.programs import agent_path

pytestmark = pytest.mark.needs("root", "two CPUs")


def rows(rps: str) -> list[dict[str, Any]]:
    spec = {
        "token": "0" * 32, "address": "127.0.0.1", "most_s": 30, "sizes": [[64, 100]], "step_s": 0.4,
        "shares": [0.5], "flows": 8, "rps": rps, "server": {"cpus": [0]}, "client": {"cpus": [0]},
    }  # fmt: skip
    argv, text = [agent_path(), "packets", "pair"], json.dumps(spec)
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def processed(row: dict[str, Any], core: str) -> int:
    before, after = (each["softnet"]["processed"][core] for each in row["server"])
    return int(after - before)


def test_one_core_receives_and_rps_moves_it() -> None:
    before = Path("/proc/net/dev").read_text().count(":")
    for rps, receives, other in (("", "cpu0", "cpu1"), ("2", "cpu1", "cpu0")):
        found = rows(rps)
        most, half = steps_of(found, 0, rps)
        assert half.answered_s < 0.9 * most.answered_s
        assert most.packets_s > 1.5 * most.answered_s
        step = next(row for row in found if row["kind"] == "step")
        # A request and its reply are both received; others on this machine receive, too.
        assert processed(step, receives) > 1.5 * step["answered"]
        assert processed(step, other) < 0.5 * step["answered"]
    assert Path("/proc/net/dev").read_text().count(":") == before
