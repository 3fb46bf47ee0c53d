"""What happened is said, whatever the trend of the days tells: days beyond the knee, constant and idle hosts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from headrace.capacity import capacity, full
from headrace.capacity.history import History, of_archive, peaks_of
from headrace.capacity.model import Demand, Resource
from headrace.capacity.outlook import Outlook, State
from headrace.history.archive.files import DAY_S, HOUR_S
from tests.unit.test_size_full import DAY, archive_of, one_host, rendered, write

CPU, SPACE = Resource.CPU, Resource.SPACE
FOUR = {CPU: 4.0}  # cores, with the knee at 3.33
BROKEN = 3.9


def watched(odd: Mapping[int, float], days: int = 20, usual: float = 1.0, name: str = "db1") -> History:
    """Hours with the same use, but at noon of some days."""
    used = np.full(24 * days, usual)
    for day, value in odd.items():
        used[24 * day + 12] = value
    return one_host(
        {CPU: used.tolist()}, name, peaks={CPU: peaks_of(used, DAY * DAY_S, HOUR_S)}
    )  # fmt: skip


def cpu_of(history: History) -> tuple[full.Host, Outlook]:
    host = full.outlook(history, capacity.known(history.host, FOUR))
    [cpu] = host.outlooks
    return host, cpu


def date_of(day: int) -> str:
    return str(np.datetime64(DAY + day, "D"))


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        (range(16, 20), f"on 4 of 20 days, last on {date_of(19)}, highest 3.90 cores on {date_of(16)}"),
        ([19], f"on 1 of 20 days, highest 3.90 cores on {date_of(19)}"),
        ([6, 18], f"on 2 of 20 days, last on {date_of(18)}, highest 3.90 cores on {date_of(6)}"),
    ],
)
def test_a_knee_that_was_passed_lately_is_full_now(odd: list[int], says: str) -> None:
    """Whatever the trend has as a usual day."""
    host, cpu = cpu_of(watched(dict.fromkeys(odd, BROKEN)))
    assert (cpu.state, cpu.day) == (State.NOW, None)
    assert cpu.peak < cpu.full_at.estimate
    assert (cpu.seen.beyond, cpu.seen.days, cpu.seen.highest) == (len(odd), 20, BROKEN)
    assert cpu.room == pytest.approx(cpu.full_at.estimate / BROKEN)
    assert host.bought[0].before == pytest.approx(cpu.room)
    said = " ".join(rendered([host]).split())
    assert "db1 is full now: in the last 7 days it used up to 3.90 cores of CPU" in said
    assert says in said
    assert "117%" in said


def test_a_knee_that_was_passed_before_is_named_and_not_now() -> None:
    host, cpu = cpu_of(watched({6: BROKEN, 9: 3.6}))
    assert cpu.state in (State.NEVER, State.LATER)
    assert cpu.room > 1
    said = " ".join(rendered([host]).split())
    assert (
        f"beyond the knee on 2 of 20 days, last on {date_of(9)}, highest 3.90 cores on {date_of(6)}" in said
    )
    busy = [cpu_of(watched({}, name=f"db{n}", usual=3.0))[0] for n in range(3)]
    assert "Above a knee earlier, not recently: db1." in " ".join(rendered([*busy, host]).split())


def test_a_day_that_is_not_whole_is_seen_too() -> None:
    """The history ends at one in the afternoon."""
    whole = watched({20: BROKEN}, days=21)
    used = whole.demand.used[CPU][: 20 * 24 + 13]
    _, cpu = cpu_of(one_host({CPU: used.tolist()}, peaks={CPU: peaks_of(used, DAY * DAY_S, HOUR_S)}))
    assert cpu.growth is not None
    assert cpu.growth.days == 20
    assert (cpu.state, cpu.seen.days) == (State.NOW, 21)


def test_a_disk_that_was_cleaned_is_not_full() -> None:
    used = np.full(24 * 20, 30.0)
    used[17 * 24 : 18 * 24] = 95.0
    for ends, state in ((20, False), (18, True)):
        part = used[: ends * 24]
        peaks = {SPACE: peaks_of(part, DAY * DAY_S, HOUR_S)}
        host = full.outlook(
            one_host({SPACE: part.tolist()}, peaks=peaks), capacity.known("db1", {SPACE: 100.0})
        )
        assert (host.outlooks[0].state is State.NOW) is state
        assert host.outlooks[0].seen.beyond == 1


def test_what_all_hosts_used_together_is_seen() -> None:
    fleet = [watched({6: BROKEN}, name="db1"), watched({6: BROKEN}, name="db2")]
    known = {each.host: capacity.known(each.host, FOUR) for each in fleet}
    [found] = full.together(fleet, known)
    assert found.outlook is not None
    assert found.outlook.state is not State.NOW
    assert f"beyond them on 1 of 20 days, highest 7.80 cores on {date_of(6)}" in rendered([], [found])
    fleet = [watched({19: BROKEN}, name="db1"), watched({19: BROKEN}, name="db2")]
    [found] = full.together(fleet, known)
    assert found.outlook is not None
    assert found.outlook.state is State.NOW


def test_beyond_a_lower_bound_is_no_verdict() -> None:
    known = capacity.known("db1", {}, ladder={"rungs": [
        {"rung": "device_write", "median_ns": 1e8, "low_ns": 1e8, "high_ns": 1e8, "spoiled_by": []}
    ]})  # fmt: skip
    used = np.ones(24 * 20)
    used[-3] = 9.0
    writes = {Resource.WRITES: used}
    history = History(
        Demand("db1", DAY * DAY_S, HOUR_S, writes),
        peaks={Resource.WRITES: peaks_of(used, DAY * DAY_S, HOUR_S)},
    )
    host = full.outlook(history, known)
    assert host.outlooks[0].state is State.MAYBE
    said = " ".join(rendered([host]).split())
    assert "db1 may be full now: in the last 7 days it used up to 9/s of device writes" in said


@pytest.mark.parametrize("usual", [0.3, 1.0, 2.0])
def test_a_constant_load_never_fills_a_host(usual: float) -> None:
    host, cpu = cpu_of(watched({}, usual=usual))
    assert (cpu.state, cpu.day, cpu.peak) == (State.NEVER, None, usual)
    assert "+0.0% a month" in rendered([host])


def test_growth_that_is_rounded_to_nothing_has_no_sign() -> None:
    days = np.full(24 * 20, 1.0)
    days[:24] += 1e-6
    host, cpu = cpu_of(one_host({CPU: days.tolist()}, peaks={CPU: peaks_of(days, DAY * DAY_S, HOUR_S)}))
    assert cpu.growth is not None
    assert cpu.growth.a_month.estimate < 0
    assert "-0.0%" not in rendered([host])


def test_an_idle_host_has_no_numbers_of_nothing() -> None:
    host, cpu = cpu_of(watched({}, usual=0.0))
    assert (cpu.state, cpu.peak) == (State.NEVER, 0.0)
    assert host.bought == ()
    assert "unlimited" not in rendered([host])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -5.0])
def test_damaged_values_of_a_history_are_unknown(tmp_path: Path, value: float) -> None:
    archive = archive_of(tmp_path / "history", hosts=1, days=18)
    for day, most in ((9, value), (11, 1.2)):
        rows = [("demand", "cpu", value, most), ("limit", "cpu", value, value)]
        write(archive, "db0", (DAY + day) * DAY_S + 12 * HOUR_S, rows)
    [found] = of_archive(archive)
    assert np.isnan(found.demand.used[CPU]).sum() == 2
    assert found.limits == FOUR
    assert len(found.peaks[CPU].day) == 18
    assert found.peaks[CPU].most.max() < 2.5
    assert 1 < found.overall[CPU].mean < 2
    assert "2 of its values are not amounts (infinite or negative): they count as unknown" in found.notes
    _, cpu = cpu_of(found)
    assert cpu.state in (State.DATED, State.LATER)
