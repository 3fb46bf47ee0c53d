"""Many machines for real: hosts that die in mid-trial and come back, from here and from a Ray cluster."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import started
from tests.fleet import PROGRAMS, Fleet, fleet
from tests.waiting import until

pytestmark = pytest.mark.needs("root", *PROGRAMS)

#: Levels that set nothing: what differs between them is noise, and they may run on hosts that share a kernel.
PLAN = """
name = "fleet"
{target}
[design]
kind = "factorial"
baseline = "one"
blocks = {blocks}
[workload]
kind = "fio"
seconds = 1
rw = "randwrite"
size = "8M"
ioengine = "psync"
iodepth = 1
[volume]
device = "directory"
[factors.twin]
levels.one = {{}}
levels.two = {{}}
"""

#: More blocks than machines, so that one that comes back finds work; and in each the baseline twice.
BLOCKS, IN_EACH = 5, 3
TRIALS = BLOCKS * IN_EACH


class Lab:
    """A fleet, a plan for it, and the experiment's folder."""

    def __init__(self, folder: Path, hosts: Fleet, blocks: int = BLOCKS, name: str = "fleet") -> None:
        self.hosts = hosts
        self.blocks = blocks
        self.output = folder / name
        self.plan = folder / f"{name}.toml"
        text = PLAN.format(target=hosts.target_table, blocks=blocks)
        self.plan.write_text(text.replace('"fleet"', f'"{name}"', 1))

    def start(self, *options: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        words = ("run", str(self.plan), "-o", str(self.output), *options)
        return started(*words, env=self.hosts.env, prefix=prefix)

    def trials(self) -> list[dict[str, object]]:
        found = sorted(self.output.glob("trials/[0-9]*/trial.json"))
        return [json.loads(path.read_text()) for path in found]

    def check_whole(self) -> None:
        """None lost, none twice, each block of one machine, nothing left anywhere."""
        trials = self.trials()
        assert [trial["number"] for trial in trials] == list(range(1, self.blocks * IN_EACH + 1))
        machines: dict[object, set[object]] = {}
        for trial in trials:
            machines.setdefault(trial["block"], set()).add(trial["machine"])
        assert all(len(found) == 1 for found in machines.values()), machines
        assert {name for found in machines.values() for name in found} <= {
            host.address for host in self.hosts.hosts
        }
        assert not list(self.output.glob("trials/.*"))
        assert not (self.output / ".work").exists()
        windows: dict[object, list[tuple[int, int]]] = {}
        for trial in trials:
            times = trial["times_ns"]
            assert isinstance(times, dict)
            windows.setdefault(trial["machine"], []).append((times["started"], times["finished"]))
        for found in windows.values():
            found.sort()
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(found)), "two at once on one host"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Lab]:
    with fleet(tmp_path / "hosts", ["lab1", "lab2", "lab3"]) as hosts:
        yield Lab(tmp_path, hosts)


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out, err


def test_a_host_that_dies_gives_its_block_back_and_the_experiment_ends_whole(here: Lab) -> None:
    process = here.start()
    lost = here.hosts.hosts[1]

    def has_measured() -> bool:
        return any(trial["machine"] == lost.address for trial in here.trials())

    until(has_measured, process)
    lost.die()
    _, err = finish(process)
    here.check_whole()
    assert f"{lost.address}: lost:" in err
    records = here.trials()
    aside = list(here.output.glob("set-aside/*/trial.json"))
    by_lost = {trial["block"] for trial in records if trial["machine"] == lost.address}
    # A block that it had finished stays its own; the one it died in is somebody else's, and what it had is kept.
    assert all(json.loads(path.read_text())["machine"] == lost.address for path in aside)
    assert not by_lost & {json.loads(path.read_text())["block"] for path in aside}


def test_a_host_that_comes_back_is_restored_and_works_again(here: Lab) -> None:
    lost = here.hosts.hosts[0]
    process = here.start()
    disk = here.hosts.own_disk(lost)
    until(lambda: any((disk / "scratch").glob("*/files/*")), process)
    lost.die()
    time.sleep(4)  # longer than a lost connection is tried for
    lost.start()
    _, err = finish(process)
    here.check_whole()
    assert f"{lost.address}: is there" in err
    assert [p for p in (disk / "scratch").glob("*") if p.name not in ("datasets", "run")] == []


def test_killed_controller_continues_with_the_same_blocks(here: Lab) -> None:
    process = here.start()
    until(lambda: len(here.trials()) >= 4, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = {trial["number"]: trial["machine"] for trial in here.trials()}
    _, err = finish(here.start())
    here.check_whole()
    assert f"continuing: {len(before)} of {TRIALS}" in err
    after = {trial["number"]: trial["machine"] for trial in here.trials()}
    assert {number: after[number] for number in before} == before
    assert not (here.output / "set-aside").exists()


def test_two_experiments_share_hosts_block_by_block(here: Lab, tmp_path: Path) -> None:
    one, other = (Lab(tmp_path, here.hosts, blocks=3, name=name) for name in ("one", "other"))
    first, second = one.start(), other.start()
    texts = [finish(first)[1], finish(second)[1]]
    one.check_whole()
    other.check_whole()
    assert any("waiting: process" in text and "holds this host for headrace-" in text for text in texts)
    spans = sorted(
        (str(t["machine"]), t["times_ns"]["started"], t["times_ns"]["finished"])  # type: ignore[index]
        for t in [*one.trials(), *other.trials()]
    )
    for (machine, _, end), (following, begin, _) in itertools.pairwise(spans):
        assert machine != following or end <= begin, "two trials at once on one host"
