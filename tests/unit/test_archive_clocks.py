"""Nothing is deleted by the clock alone, and collection goes on whatever the clock does."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.base.clocks import Clocks
from headrace.fleet.host import Host
from headrace.history.archive import rollup
from headrace.history.archive.elapsed import MOST_OFF_S, Elapsed
from headrace.history.archive.files import DAY_S, HOUR_S, MINUTE_S, Archive
from headrace.history.archive.mirror import FEWEST_DELETED, KEPT_ON_S, SHARE, Mirror
from headrace.history.archive.tables import TABLES
from headrace.history.collect.collector import Collector
from headrace.history.collect.minute import table_of
from headrace.host.target import TargetSpec
from tests.history import state, write
from tests.weeks import MONDAY, fill_days

pytestmark = pytest.mark.usefixtures("quick_disk")

YEARS = 3650 * DAY_S
START = Clocks(1.8e9, 1000.0, "boot")


def after(seconds: float, *, off_by: float = 0.0, boot: str = "boot", since: Clocks = START) -> Clocks:
    """``off_by``: how far the clock is from the right one."""
    return Clocks(since.wall_s + seconds + off_by, since.boot_s + seconds, boot)


@pytest.mark.parametrize("boot", ["boot", "another", ""])
def test_a_clock_that_is_ten_years_ahead_makes_nothing_ten_years_old(tmp_path: Path, boot: str) -> None:
    found = Elapsed(tmp_path, 0, START)
    assert found.now_s(after(3 * DAY_S)) == START.wall_s + 3 * DAY_S
    found.keep()
    again = Elapsed(tmp_path, 0, after(3 * DAY_S + 60, off_by=YEARS, boot=boot))
    for minutes in range(2, 60):
        now = after(3 * DAY_S + 60 * minutes, off_by=YEARS, boot=boot)
        assert again.now_s(now) <= START.wall_s + 3 * DAY_S + 2 * MOST_OFF_S + 2 * HOUR_S
        assert again.ahead_s > YEARS - 5 * DAY_S
    # The clock is set right: all is as before.
    assert again.now_s(after(3 * DAY_S + 2 * HOUR_S, boot=boot)) <= START.wall_s + 3 * DAY_S + 2 * HOUR_S
    assert again.ahead_s == 0


def test_without_a_note_the_newest_data_say_when_it_is(tmp_path: Path) -> None:
    found = Elapsed(tmp_path, START.wall_s, after(0, off_by=YEARS))
    assert found.now_s(after(60, off_by=YEARS)) <= START.wall_s + MOST_OFF_S + 2 * HOUR_S
    for damaged in (b"", b"{", b"[]", b'{"at_s": 1e999}', b"[" * 4000, b'{"at_s": "x"}', b"\xff"):
        (tmp_path / "elapsed.json").write_bytes(damaged)
        assert Elapsed(tmp_path, START.wall_s, START).now_s(START) == START.wall_s


def test_a_machine_that_was_off_for_long_needs_nobody(tmp_path: Path) -> None:
    Elapsed(tmp_path, START.wall_s, START).keep()
    found = Elapsed(tmp_path, 0, after(30 * DAY_S, boot="next"))
    assert found.ahead_s > 20 * DAY_S
    now = after(30 * DAY_S, boot="next")
    for _ in range(40 * 24):
        now = after(HOUR_S, boot="next", since=now)
        found.now_s(now)
    assert found.now_s(now) == now.wall_s


def test_a_new_history_follows_its_clock_back_and_an_old_one_waits(tmp_path: Path) -> None:
    found = Elapsed(tmp_path, 0, after(0, off_by=YEARS))
    found.now_s(after(300, off_by=YEARS))
    assert found.now_s(after(360)) == found.at_s == START.wall_s + 360
    old = Elapsed(tmp_path, START.wall_s, START)
    old.now_s(after(60, off_by=-YEARS))
    assert old.at_s == pytest.approx(START.wall_s + 60)
    # Back, and then as far ahead: nothing is gained.
    assert old.now_s(after(120)) == pytest.approx(START.wall_s + 120)


def test_a_person_may_say_that_the_clock_is_right(tmp_path: Path) -> None:
    found = Elapsed(tmp_path, START.wall_s, after(0, off_by=YEARS))
    found.trust_clock()
    assert found.ahead_s == 0
    assert found.now_s(after(60, off_by=YEARS)) == START.wall_s + YEARS + 60


def test_age_deletes_a_share_at_a_time(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "FEWEST_DELETED", 5)
    fill_days(archive, 9)
    count = len(archive.files("classes"))
    deleted = rollup.trim(archive, MONDAY + 900 * DAY_S, rollup.Keep(), 0.1)
    assert deleted == 5
    assert archive.files("classes")[0].t_s > MONDAY, "the oldest go first"
    assert len(archive.files("classes")) > count / 2


def collector(tmp_path: Path) -> Collector:
    archive = Archive(tmp_path / "history")
    archive.create()
    return Collector(archive, [Host("db1", TargetSpec("local"))])


class Clock:
    """Of this process, as it is set; since boot it goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed_s, self.off_by = 0.0, 0.0
        self.start = Clocks(float(int(time.time()) // HOUR_S * HOUR_S - DAY_S), 1000.0, "boot")
        monkeypatch.setattr(time, "time", lambda: self.start.wall_s + self.passed_s + self.off_by)
        monkeypatch.setattr(Clocks, "now", lambda: after(self.passed_s, off_by=self.off_by, since=self.start))

    @property
    def t_s(self) -> int:
        return (int(time.time()) // MINUTE_S - 1) * MINUTE_S

    async def minute(self, found: Collector) -> None:
        self.passed_s += 60
        await found.write(self.t_s)


@pytest.mark.parametrize("jump", [YEARS, 600, -600, -YEARS / 4])
@pytest.mark.parametrize("restarted", [False, True])
async def test_after_a_jump_there_and_back_every_minute_is_collected_or_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float, restarted: bool
) -> None:
    clock = Clock(monkeypatch)
    found = collector(tmp_path)
    for _ in range(5):
        await clock.minute(found)
    clock.off_by = jump
    for _ in range(2):
        await clock.minute(found)
        assert found.problem == ""
    if restarted:
        found = Collector(found.archive, [Host("db1", TargetSpec("local"))])
    clock.off_by = 0.0
    before = {file.t_s for file in found.archive.files("states")}
    for _ in range(14):
        known = found.archive.has_minute("db1", clock.t_s + MINUTE_S)
        await clock.minute(found)
        assert known == ("is not collected" in found.clock_problem)
    written = {file.t_s for file in found.archive.files("states") if file.kind in "m"} | before
    hour = range(int(clock.start.wall_s), int(clock.start.wall_s) + 20 * MINUTE_S, MINUTE_S)
    missing = [t_s for t_s in hour if t_s not in written and not found.archive.has_minute("db1", t_s)]
    assert len(missing) <= 2, "only the minutes that were written under another name"


async def test_what_is_of_a_time_that_cannot_be_is_set_aside_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    found = collector(tmp_path)
    for _ in range(3):
        await clock.minute(found)
    clock.off_by = YEARS
    await clock.minute(found)
    assert "days ahead of what passed" in found.attention
    assert max(file.t_s for file in found.archive.files("states")) > time.time() - HOUR_S
    clock.off_by = 0.0
    found._house_at = -1e9
    await clock.minute(found)
    assert "set aside as *.ahead: 1 file of times that cannot be yet" in found.attention
    assert max(file.t_s for file in found.archive.files("states")) < time.time()
    assert len(list(found.archive.root.rglob("*.ahead"))) == 1


async def test_a_clock_that_is_behind_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a machine without a battery, before its time service: the pages seemed to be well, and empty."""
    clock = Clock(monkeypatch)
    archive = Archive(tmp_path / "history")
    archive.create()
    write(archive, "states", "db1", int(clock.start.wall_s) - MINUTE_S, [state()])
    found = Collector(archive, [Host("db1", TargetSpec("local"))])
    await clock.minute(found)
    found.elapsed.keep()
    for off_by, said in ((-YEARS, "3,650.0 days behind"), (-2 * HOUR_S, "0.1 days behind"), (0.0, "")):
        clock.off_by = off_by
        again = Collector(archive, [Host("db1", TargetSpec("local"))])
        await clock.minute(again)
        assert (said in again.attention) if said else "behind" not in again.attention


async def test_serve_started_ten_years_ahead_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    archive = Archive(tmp_path / "history")
    archive.create()
    for n in range(200):
        write(archive, "states", "db1", int(clock.start.wall_s) - (n + 1) * HOUR_S, [state()])
    clock.off_by = YEARS
    found = Collector(archive, [Host("db1", TargetSpec("local"))])
    for _ in range(5):
        found._house_at = -1e9
        await clock.minute(found)
    rows = {file.t_s for file in archive.files("states") if file.kind in "hdD"}
    assert len(rows) >= 200 - 7 * 24, "hours, or the days that they became"
    assert "nothing is deleted for its age" in found.attention


def test_an_emptied_directory_does_not_empty_the_copy(archive: Archive, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    for day in range(60):
        t_s = MONDAY + day * int(DAY_S)
        archive.write(TABLES["states"], "db1", "d", t_s, table_of(TABLES["states"], [state()], t_s))
    copy = Mirror(archive, f"file://{store}")
    at_s = 1.8e9
    whole = copy.copy(at_s)
    for file in archive.files("states"):
        file.path.unlink()

    def left() -> int:
        return len(list(store.rglob("*.parquet")))

    copy.copy(at_s)
    assert left() == whole
    assert "have no file here any more" in copy.waiting
    copy.copy()
    assert left() == whole, "without the history's own time nothing that is lost goes"
    copy.copy(at_s + 10 * KEPT_ON_S)
    most = max(round(SHARE * whole), FEWEST_DELETED)
    assert left() == whole - most
    copy.copy(at_s + 10 * KEPT_ON_S + 60)
    assert left() == whole - most, "a share in a day, however often it is copied"
    copy.copy(at_s + 11 * KEPT_ON_S + 60)
    assert left() == whole - 2 * most


def test_the_clock_may_be_slower_than_a_sleep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At half speed a sleep ends before its minute does: that minute is not written twice."""
    written: list[Any] = []
    found, clock = collector(tmp_path), [1.8e9 + 30.0]

    async def sleep(seconds: float) -> None:
        clock[0] += seconds / 2
        if len(written) > 3:
            raise asyncio.CancelledError

    async def write_minute(t_s: int) -> None:
        written.append(t_s)

    monkeypatch.setattr(time, "time", lambda: clock[0])
    monkeypatch.setattr("headrace.history.collect.collector.asyncio.sleep", sleep)
    monkeypatch.setattr(found, "write", write_minute)
    found.hosts = {}
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(found.run())
    assert written == list(range(written[0], written[0] + 4 * MINUTE_S, MINUTE_S))
