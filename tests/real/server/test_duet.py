"""Duets for real, on a private MariaDB each side: at the same moment, on their own CPUs, killed and continued."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench import SWAPPINESS, Bench
from tests.waiting import until

pytestmark = pytest.mark.needs("root", "two CPUs")

PLAN = """
name = "duet"
[target]
scratch = "{scratch}"
[design]
kind = "factorial"
duet = true
baseline = "6M"
blocks = 2
[workload]
kind = "oltp"
seconds = 1.5
warmup_s = 0.5
script = "point_select"
table_size = 80000
connections = 2
[base]
"host.vm.swappiness" = {swappiness}
[factors.pool]
knob = "server.innodb_buffer_pool_size"
levels = ["6M", "96M"]
"""


def cpus_of(trial: dict[str, object]) -> str:
    return str(trial["knobs"]["duet.cpus"]["after"])  # type: ignore[index]


def test_both_sides_run_at_the_same_moment_on_their_own_cpus(bench: Callable[[str], Bench]) -> None:
    lab = bench(PLAN)
    before = SWAPPINESS.read_text()
    process = lab.start("--json")
    pinned: dict[str, set[frozenset[int]]] = {}
    while process.poll() is None:
        for side in "ab":
            pinned.setdefault(side, set()).update(affinities(lab.scratch / side))
        time.sleep(0.1)
    out, err = process.communicate()
    assert process.returncode == 0, err

    trials = lab.trials()
    assert len(trials) == 8
    assert {t["state"] for t in trials.values()} == {"complete"}, err
    for first, second in pairs(trials):
        assert first["block"] == second["block"]
        # The driver begins at one instant, by its own clock.
        assert abs(first["window_start_ns"] - second["window_start_ns"]) < 50e6  # type: ignore[operator]
        assert cpus_of(first) != cpus_of(second)
        assert first["knobs"]["/proc/sys/vm/swappiness"]["after"] != before.strip()  # type: ignore[index]
    assert pinned["a"]
    assert pinned["b"]
    assert not frozenset.union(*pinned["a"]) & frozenset.union(*pinned["b"])

    found = json.loads(out)
    (effect,) = (e for e in found["effects"] if e["response"] == "throughput")
    # Two blocks make no narrow interval.
    assert effect["ratio"]["estimate"] > 1, "a pool that holds the data beats one that does not"
    assert effect["blocks"] == 2
    assert found["duet"]["sides"]["pairs"] == 4
    assert "half of the machine" in found["duet"]["notes"][0]
    assert "half of the machine" in (lab.output / "report.html").read_text()
    assert SWAPPINESS.read_text() == before
    assert not lab.traces()


def pairs(trials: dict[int, dict[str, object]]) -> list[tuple[dict[str, object], dict[str, object]]]:
    own = list(trials.values())
    return list(zip(own[::2], own[1::2], strict=True))


def affinities(folder: Path) -> set[frozenset[int]]:
    """Where the server of a side may run, and what drives it."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().split(b"\0")
            words = b" ".join(line).decode("utf-8", "replace")
            is_server = line[0].endswith(b"mariadbd") and f"{folder}/run/my.cnf" in words
            is_driver = b"drive" in line[1:3] and b"run" in line and f"{folder}/run/sock" in words
            if is_server or is_driver:
                found.add(frozenset(os.sched_getaffinity(int(process.name))))
        except OSError:
            continue
    return found


def test_a_killed_duet_goes_on_with_whole_pairs(bench: Callable[[str], Bench]) -> None:
    lab = bench(PLAN.replace("blocks = 2", "blocks = 1").replace("seconds = 1.5", "seconds = 1"))
    before = SWAPPINESS.read_text()
    process = lab.start()
    until(lambda: len(lab.trials()) >= 2 and bool(affinities(lab.scratch / "b")), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    kept = {n: t["window_start_ns"] for n, t in lab.trials().items()}
    # Half a pair is none: as if it had been killed between the two renames.
    last = max(kept)
    (lab.output / "trials" / f"{last:04d}").rename(lab.folder / "lost")

    code, _, err = lab.finish()
    assert code == 0, err
    trials = lab.trials()
    assert len(trials) == 4
    assert trials[last - 1]["window_start_ns"] != kept[last - 1]
    for first, second in pairs(trials):
        assert abs(first["window_start_ns"] - second["window_start_ns"]) < 50e6  # type: ignore[operator]
    assert SWAPPINESS.read_text() == before
    assert not lab.traces()


def test_a_side_that_does_not_start_leaves_the_other_without_a_measurement(
    bench: Callable[[str], Bench],
) -> None:
    plan = PLAN.partition("[factors.pool]")[0] + (
        '[factors.broken.levels]\nno = {}\nyes = { "server.innodb_no_such_thing" = 1 }\n'
    )
    plan = plan.replace('baseline = "6M"', 'baseline = "no"')
    lab = bench(plan.replace("blocks = 2", "blocks = 1").replace("seconds = 1.5", "seconds = 1"))
    code, _, err = lab.finish()
    assert code == 0, err
    states = sorted((t["state"], t["reason"]) for t in lab.trials().values())
    assert [state for state, _ in states] == ["complete", "complete", "failed", "invalid"]
    assert "the other side of its pair" in str(states[3][1])
    assert not lab.traces()
