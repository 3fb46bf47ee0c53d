"""Packets between two namespaces, for real: one core is full while the other idles, and RPS moves the limit."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.hunt.ladder.packets import Step, steps_of
from headrace.hunt.ladder.steering import FULL, steered
from tests.programs import agent_path

pytestmark = pytest.mark.needs("root", "two CPUs")
ROUNDS = 3


def rows(rps: str, shares: tuple[float, ...] = ()) -> list[dict[str, Any]]:
    spec = {
        "token": "0" * 32, "address": "127.0.0.1", "most_s": 30, "sizes": [[64, 100]], "step_s": 0.4,
        "shares": shares, "flows": 8, "rps": rps, "server": {"cpus": [0]}, "client": {"cpus": [0]}, "interrupt": 1,
    }  # fmt: skip
    argv, text = [agent_path(), "packets", "pair"], json.dumps(spec)
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def processed(row: dict[str, Any], core: str) -> int:
    before, after = (each["softnet"]["processed"][core] for each in row["server"])
    return int(after - before)


def test_one_core_receives_and_rps_moves_it_and_its_limit() -> None:
    """The founding case: packets per second ran out on one core while the others idled."""
    before = Path("/proc/net/dev").read_text().count(":")
    steps: list[Step] = []
    for rps, receives, other in (("", "cpu0", "cpu1"), ("2", "cpu1", "cpu0")):
        found = rows(rps, (0.5,))
        most, half = steps_of(found, 0, rps)
        steps.append(most)
        assert half.answered_s < 0.9 * most.answered_s
        assert most.packets_s > 1.5 * most.answered_s
        step = next(row for row in found if row["kind"] == "step")
        # A request and its reply are both received; others on this machine receive, too.
        assert processed(step, receives) > 1.5 * step["answered"]
        assert processed(step, other) < 0.5 * step["answered"]
    steps += [step for n in range(1, ROUNDS) for rps in ("", "2") for step in steps_of(rows(rps), n, rps)]
    [moved] = steered(steps)
    cores = {use.name: use for use in moved.cores}
    assert Path("/proc/net/dev").read_text().count(":") == before
    if "other work" in moved.why_not or moved.beside:
        pytest.skip(f"this machine is not idle: {moved.why_not or moved.beside}")
    assert (moved.core, cores["cpu0"].busy > FULL, cores["cpu1"].softirq < 0.2) == ("cpu0", True, True)
    assert moved.interrupt_ns is not None
    assert moved.predicted is not None
    assert moved.predicted.low is not None
    assert moved.predicted.high is not None
    assert moved.predicted.low < moved.predicted.estimate < moved.predicted.high
