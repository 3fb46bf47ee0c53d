"""``headrace serve`` killed with SIGKILL while it collects, as often as asked: is its history still whole?

    python benches/serve_killed.py [KILLS]

The samples are this host's. Minutes are written as fast as they can be, not one a minute, so that most kills fall
into a write or a rollup; the classes of a minute follow from its time, so that a lost or doubled row is seen. Each
start leaves out some minutes, which must stay a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headrace.base.clocks import Clocks
from headrace.fleet.host import Host
from headrace.history import questions
from headrace.history.archive.files import DAY_S, HOUR_S, MINUTE_S, Archive
from headrace.history.archive.reader import Range, Reader
from headrace.history.collect.collector import Collector
from headrace.host.target import TargetSpec

HOST, SOURCE = "here", "slow log"
GAP = 3
#: Long ago: minutes of a time to come are set aside. The collector's own minutes are left out.
START_S = int(time.time()) // DAY_S * DAY_S - 300 * DAY_S


def calls(t_s: int) -> int:
    """Of the minute's one class."""
    return 1 + t_s // MINUTE_S % 97


async def _nothing(_: int) -> None:
    """Of the minute that this machine's clock says."""


class Clock:
    """As fast as the minutes are written: what is old is rolled up, and what is to come is set aside."""

    def __init__(self, t_s: float) -> None:
        self.t_s = t_s
        time.time = lambda: self.t_s
        Clocks.now = lambda: Clocks(self.t_s, self.t_s, "boot")  # type: ignore[method-assign, misc]


async def collect(archive: Archive) -> None:
    """Until killed."""
    clock = Clock(max(archive.last_minute_s(HOST), START_S) + (1 + GAP) * MINUTE_S)
    collector = Collector(archive, [Host(HOST, TargetSpec("local"))], slow_log="off")
    [watched] = collector.hosts.values()
    write, collector.write = collector.write, _nothing  # type: ignore[method-assign]
    keep_house, collector._keep_house = collector._keep_house, lambda *_: None  # type: ignore[method-assign]
    task = asyncio.create_task(collector.run())
    while not (  # noqa: ASYNC110 - a feed has no event for it
        watched.is_fresh and watched.feed.facts and watched.feed.ticks > 2
    ):
        await asyncio.sleep(0.05)
    t_s = int(clock.t_s)
    while not task.done():
        clock.t_s = t_s + MINUTE_S + 1
        row = {"source": SOURCE, "class": "a", "database": "", "calls": calls(t_s), "timed": calls(t_s)}
        watched.pending["classes"] = [{**row, "time_ns": 1e6, "most_ns": 1}]
        watched.pending["buckets"] = [{"source": SOURCE, "class": "a", "bucket": 1000, "count": calls(t_s)}]
        await write(t_s)
        assert not collector.problem, collector.problem
        print(t_s, flush=True)
        t_s += MINUTE_S
        if t_s % HOUR_S == 0:
            await asyncio.to_thread(keep_house, t_s + HOUR_S)


def check(archive: Archive) -> tuple[int, int]:
    """Minutes that were watched, and gaps. Raises AssertionError if a row is lost, doubled or invented."""
    last = archive.last_minute_s(HOST)
    span = Range(START_S, last + MINUTE_S)
    reader = Reader(archive)
    read = Range(span.since_s, max(span.until_s, span.since_s + 1))
    watched = round(questions.watched_s(reader, [HOST], read) / MINUTE_S)
    damaged = [path.name for path in archive.root.rglob("*.damaged")]
    assert not damaged, damaged
    minutes: set[int] = set()
    for since in range(START_S, last + MINUTE_S, 6 * HOUR_S):
        part = Range(since, min(since + 6 * HOUR_S, last + MINUTE_S))
        t_s, found = questions.class_series(reader, [HOST], part, SOURCE, ["a"], 10_000)
        states = reader.rows("states", "SELECT t_s, SUM(minutes) AS n FROM rows GROUP BY t_s", [HOST], part)
        counted = dict(zip(t_s, found.get("a", []), strict=False))
        for row in states:
            assert row["n"] == 1, row
            minute = counted[row["t_s"]]
            assert minute is not None, row
            assert minute["calls"] == calls(row["t_s"]), row
            minutes.add(row["t_s"])
    assert len(minutes) == watched, (len(minutes), watched)
    ordered = sorted(minutes)
    gaps = sum(b - a > MINUTE_S for a, b in itertools.pairwise(ordered))
    return watched, gaps


def main() -> None:
    if sys.argv[1:2] == ["--collect"]:
        archive = Archive(Path(sys.argv[2]))
        with archive.held():
            asyncio.run(collect(archive))
        return
    kills = int(sys.argv[1]) if sys.argv[1:] else 100
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(Path(folder) / "history")
        archive.create()
        watched = gaps = drafts = 0
        for n in range(kills):
            argv = [sys.executable, __file__, "--collect", str(archive.root)]
            child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
            assert child.stdout
            assert child.stdout.readline()
            time.sleep(random.uniform(0.0, 1.5))
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            child.wait()
            child.stdout.close()
            drafts += len(list(archive.root.glob("*/*/*/.*.part")))
            before = watched
            watched, gaps = check(archive)
            assert watched >= before, (before, watched)
            print(
                f"\r{n + 1} kills, {drafts} within a write, {watched} minutes, {gaps} gaps",
                end="",
                flush=True,
            )
    print(f"\n{kills} kills with SIGKILL: every minute that was written is there once; {gaps} gaps are gaps")


if __name__ == "__main__":
    main()
