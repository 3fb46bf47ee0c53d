"""When a host is full: peaks, trends and dates against a planted truth."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from headrace.base.errors import NothingMeasured, PlanError, StoreError
from headrace.base.intervals import Interval
from headrace.capacity import capacity, demand, full, history
from headrace.capacity import together as joined
from headrace.capacity.commands.size import size_app
from headrace.capacity.history import History, Peaks
from headrace.capacity.measured import table_of
from headrace.capacity.model import Demand, Resource
from headrace.capacity.outlook import State
from headrace.capacity.report import full as page
from headrace.capacity.report import words
from headrace.history.archive import rollup
from headrace.history.archive.files import DAY_S, HOUR_S, Archive
from headrace.history.archive.tables import CLASSES, METRICS, STATES, Table
from headrace.hunt.ladder.report.packets import page_of as packets_page
from headrace.show import html, jsonform, terminal
from tests.unit.test_ladder_steering import rounds
from tests.unit.test_size_demand import write as write_samples
from tests.unit.test_sweep_report import make
from tests.written import printed

DAY = 1_700_006_400 // DAY_S  # a whole number of days since 1970
WEEK = np.array([1.0, 1.02, 1.05, 1.0, 0.98, 0.8, 0.75])
EXACT = capacity.exactly


def peaks(days: int, a_day: float, noise: float = 0.03, seed: int = 1, start: float = 1.0) -> Peaks:
    """Daily peaks that grow by the same amount, ``start`` at the end, with a season of the week."""
    rng = np.random.default_rng(seed)
    t = np.arange(days) - (days - 1.0)
    values = (start + a_day * t) * WEEK[np.arange(days) % 7] * (1 + noise * rng.standard_normal(days))
    return Peaks(np.arange(days, dtype=np.int64) + DAY, values)


def one_host(used: Mapping[Resource, Sequence[float]], name: str = "db1", **more: Any) -> History:
    values = {r: np.asarray(v, dtype=np.float64) for r, v in used.items()}
    return History(Demand(name, DAY * DAY_S, HOUR_S, values), **more)


def dated(found: Peaks, knee: float) -> tuple[State, Interval | None]:
    laws = full.growth(found)
    assert laws
    return full.date(laws, EXACT(knee), 1000, np.random.default_rng(1))


def test_a_steady_growth_has_its_date() -> None:
    state, day = dated(peaks(60, 0.004), 1.05 * 1.4)
    assert state is State.DATED
    assert day is not None
    assert day.low is not None
    assert day.high is not None
    assert day.low <= 100 <= day.high
    assert 0 < day.low < day.estimate < day.high < 300


@pytest.mark.parametrize("days", [14, 28, 60, 120])
def test_intervals_of_dates_cover(days: int) -> None:
    held = 0
    for seed in range(60):
        _, day = dated(peaks(days, 0.003, 0.04, seed), 1.05 * 1.3)
        held += bool(day and day.low is not None and day.high is not None and day.low <= 100 <= day.high)
    # 95% of 60 with three standard errors.
    assert held >= 51


def test_a_single_wild_day_moves_no_date() -> None:
    found = peaks(60, 0.004)
    wild = found.most.copy()
    wild[-3] *= 8
    _, plain = dated(found, 1.5)
    _, other = dated(Peaks(found.day, wild), 1.5)
    assert plain is not None
    assert other is not None
    assert abs(other.estimate - plain.estimate) < 0.25 * plain.estimate


def test_what_shrinks_is_never_full() -> None:
    state, day = dated(peaks(60, -0.004), 2.0)
    assert state is State.NEVER
    assert day is None


def test_less_than_two_weeks_have_no_date() -> None:
    assert full.growth(peaks(13, 0.004)) == ()
    host = full.outlook(
        one_host({Resource.CPU: [1.0] * 240}, peaks={Resource.CPU: peaks(10, 0.004)}),
        capacity.known("db1", {Resource.CPU: 8.0}),
    )
    assert host.outlooks[0].state is State.NO_DATE
    assert host.outlooks[0].day is None
    assert "no date" in rendered([host])


def test_the_peak_of_a_short_history_is_the_highest_that_was_seen() -> None:
    """Ten days, with a batch on one of them: no median of days has it."""
    most = np.full(10, 3.0)
    most[4] = 7.8
    used = np.full(240, 1.0)
    used[4 * 24] = 2.5  # the mean of its hour
    found = Peaks(np.arange(10, dtype=np.int64) + DAY, most)
    host = full.outlook(
        one_host({Resource.CPU: used.tolist()}, peaks={Resource.CPU: found}),
        capacity.known("db1", {Resource.CPU: 8.0}),
    )
    [cpu] = host.outlooks
    assert (cpu.peak, cpu.state) == (7.8, State.NOW)
    assert "full now: at the highest peak that was seen it uses 7.80 cores" in " ".join(
        rendered([host]).split()
    )


def test_the_minute_of_a_burst_is_kept_in_samples(tmp_path: Path) -> None:
    """22 hours, every 10 s, two cores: steps of 5 minutes, and one minute that is full."""
    busy_s, lines = 0.0, []
    for t in range(0, 22 * HOUR_S + 10, 10):
        values = {"user": 100 * busy_s, "idle": 100 * (t - busy_s), "system": 0.0, "softirq": 0.0}
        cpu = {state: {"all": 2 * v, "cpu0": v, "cpu1": v} for state, v in values.items()}
        t_ns = (DAY * DAY_S + t) * 10**9
        lines.append({"t_ns": t_ns, "sampler": "cpu", "ok": True, "cost_ns": 1, "values": cpu})
        busy_s += 10 * (1.0 if 7260 <= t < 7320 else 0.1)
    [found] = history.read(write_samples(tmp_path / "db1.jsonl.zst", lines))
    assert found.demand.step_s == 300
    assert np.nanmax(found.demand.used[Resource.CPU]) == pytest.approx(2 * (0.2 + 0.8 * 0.1))
    assert np.nanmax(found.demand.most[Resource.CPU]) == pytest.approx(2.0)
    assert found.peaks[Resource.CPU].most.tolist() == [pytest.approx(2.0)]
    [planned] = table_of([found]).demands
    assert planned.used[Resource.CPU].max() == pytest.approx(2.0)


def test_a_week_that_is_missing_is_a_gap() -> None:
    found = peaks(60, 0.004)
    kept = np.r_[0:30, 37:60]
    state, day = dated(Peaks(found.day[kept], found.most[kept]), 1.05 * 1.4)
    assert state is State.DATED
    assert day is not None
    assert day.low is not None
    assert day.high is not None
    assert day.low <= 100 <= day.high


def test_what_is_over_its_knee_is_full_now() -> None:
    host = full.outlook(
        one_host({Resource.CPU: [1.9] * 24, Resource.MEMORY: [1.0] * 24}),
        capacity.known("db1", {Resource.CPU: 2.0, Resource.MEMORY: 100.0}),
    )
    first = host.first_full
    assert first is not None
    assert (first.resource, first.state) == (Resource.CPU, State.NOW)
    assert "full now" in rendered([host])


def test_a_date_counts_from_the_end_of_the_history() -> None:
    """The same peaks, and a history that goes on for ten days without a whole one."""
    found = peaks(60, 0.004)
    known = capacity.known("db1", {Resource.CPU: 8.0})
    known = replace(known, capacity=replace(known.capacity, limit={Resource.CPU: EXACT(1.5 / 0.91)}))
    ends = []
    for days in (60, 70):
        used = [0.5] * (24 * days)
        [one] = full.outlook(one_host({Resource.CPU: used}, peaks={Resource.CPU: found}), known).outlooks
        assert one.day is not None
        ends.append(one.day.estimate)
    assert ends[0] - ends[1] == pytest.approx(10)


def test_unchanging_peaks_are_no_error() -> None:
    flat = Peaks(np.arange(30, dtype=np.int64) + DAY, np.full(30, 0.5))
    state, day = dated(flat, 1.0)
    assert state in (State.NEVER, State.LATER)
    assert day is None or day.estimate > 1000
    assert dated(Peaks(flat.day, np.zeros(30)), 1.0)[0] is not State.NOW


def test_one_more_core_helps_only_what_waits_for_cores() -> None:
    """CPU is first; packets have far more room, and more of them brings nothing."""
    known = capacity.known("db1", {Resource.CPU: 4.0, Resource.PACKETS: 100_000.0})
    host = full.outlook(one_host({Resource.CPU: [3.0] * 24, Resource.PACKETS: [5_000.0] * 24}), known)
    bought = {each.resource: each for each in host.bought}
    assert bought[Resource.CPU].after > 1.2 * bought[Resource.CPU].before
    assert bought[Resource.PACKETS].after == bought[Resource.PACKETS].before
    assert host.in_vain == (Resource.PACKETS,)
    assert [each.resource for each in host.outlooks if not each.is_stock] == [Resource.CPU, Resource.PACKETS]


def test_averages_hide_what_the_peaks_together_show() -> None:
    """Four hosts with backups at the same hour, and four that take turns: equal means, other peaks."""
    hours = np.arange(24 * 14)

    def fleet(offset: int) -> list[History]:
        return [
            one_host(
                {Resource.CPU: np.where(hours % 24 == (2 + offset * n) % 24, 3.0, 0.5).tolist()}, f"db{n}"
            )
            for n in range(4)
        ]

    known = {f"db{n}": capacity.known(f"db{n}", {Resource.CPU: 4.0}) for n in range(4)}
    [same], [turns] = (full.together(fleet(offset), known) for offset in (0, 6))
    assert same.mean == pytest.approx(turns.mean)
    assert (same.peak, turns.peak) == (12.0, 4.5)
    assert same.coincide == pytest.approx(1.0)
    assert same.without_largest < same.full_at
    assert full.together(fleet(0)[:1], known) == ()


def growing(name: str, days: int = 60, **more: Sequence[float]) -> History:
    """Two cores at noon at the end, which reaches 2.8 a hundred days later; half of it at other times."""
    daily = 2 * peaks(days, 0.004, 0.02, seed=int(name[-1])).most
    used = {Resource.CPU: (daily[:, None] * np.where(np.arange(24) == 12, 1.0, 0.5)).ravel().tolist()}
    return one_host(used | {Resource(key): values for key, values in more.items()}, name)


def test_all_hosts_together_have_a_date() -> None:
    """The same growth as each of them, so the same date; and the interval holds it."""
    limit = {Resource.CPU: 2 * 1.05 * 1.4}
    known = {}
    for name in ("db1", "db2", "db3"):
        one = capacity.known(name, limit)
        known[name] = replace(one, capacity=replace(one.capacity, knee={Resource.CPU: EXACT(1.0)}))
    [found] = full.together([growing(name) for name in known], known)
    assert found.outlook is not None
    assert found.outlook.state is State.DATED
    assert found.outlook.full_at.estimate == pytest.approx(3 * limit[Resource.CPU])
    assert found.outlook.peak == pytest.approx(3 * 2 * 1.05, rel=0.05)
    assert found.outlook.day is not None
    assert found.outlook.day.low is not None
    assert found.outlook.day.high is not None
    assert found.outlook.day.low <= 100 <= found.outlook.day.high
    date = words.when(found.end_s, found.outlook)
    said = " ".join(rendered([], [found]).split())
    assert f"they run out of CPU on {date} ({words.dates(found.end_s, found.outlook)})" in said
    [short] = full.together([growing(name, days=8) for name in known], known)
    assert short.outlook is not None
    assert short.outlook.state is State.NO_DATE


def test_the_fleet_has_a_date_only_of_limits_that_are_known() -> None:
    writes = [100.0] * 24 * 60
    fleet = [growing(name, writes=writes) for name in ("db1", "db2")]
    bound = {each.host: capacity.known(each.host, {Resource.CPU: 8.0}, ladder=WRITES_ALONE) for each in fleet}
    cpu, lower = full.together(fleet, bound)
    assert (cpu.resource, lower.resource) == (Resource.CPU, Resource.WRITES)
    assert cpu.outlook is not None
    assert (lower.is_at_least, lower.outlook) == (True, None)
    assert "at most 2%" in " ".join(rendered([], [lower]).split())
    # One more host that uses CPU, of whose cores nobody knows.
    some = [*fleet, growing("db3")]
    [cpu, _] = full.together(some, {**bound, "db3": capacity.known("db3", {})})
    assert (cpu.hosts, cpu.outlook) == (2, None)


def test_a_gap_of_one_host_is_no_idle_host_of_the_fleet() -> None:
    first = one_host({Resource.CPU: [1.0, math.nan, 1.0]}, "db0")
    second = one_host({Resource.CPU: [1.0, 5.0, 1.0]}, "db1")
    known = {name: capacity.known(name, {Resource.CPU: 8.0}) for name in ("db0", "db1")}
    [found] = full.together([first, second], known)
    assert found.peak == 2.0
    assert found.watched == pytest.approx(2 / 3)


def rendered(hosts: Sequence[full.Host], together: Sequence[full.Together] = ()) -> str:
    content = page.page_of(hosts, together)
    assert "<html" in html.render(content)
    json.dumps(jsonform.render(content), allow_nan=False)
    return printed(terminal.render(content), width=200)


# The history of `headrace serve`.


def archive_of(root: Path, hosts: int = 2, days: int = 18, missing: range = range(0)) -> Archive:
    """Hours, as the rollup writes them: CPU that grows by 1% of its start a day, busier at noon."""
    archive = Archive(root)
    rng = np.random.default_rng(1)
    for number in range(hosts):
        for day in range(days):
            if day in missing:
                continue
            for hour in range(24):
                t_s = (DAY + day) * DAY_S + hour * HOUR_S
                busy = (
                    (1 + 0.01 * day) * (1 + 0.5 * math.sin(math.pi * hour / 24)) * (1 + 0.02 * rng.random())
                )
                rows = [("demand", "cpu", busy, 1.2 * busy), ("limit", "cpu", 4.0, 4.0)]
                rows += [("demand", "packets", 1000 * busy, 2000 * busy), ("cpu", "busy", busy / 4, busy / 3)]
                write(archive, f"db{number}", t_s, rows)
    return archive


def write(archive: Archive, host: str, t_s: int, rows: Sequence[tuple[str, str, float, float]]) -> None:
    content = [
        {"t_s": t_s, "metric": metric, "label": label, "n": 60, "sum": 60 * mean, "least": 0.0, "most": most}
        for metric, label, mean, most in rows
    ]
    put(archive, METRICS, host, t_s, content)
    state = {
        "t_s": t_s, "state": "ok", "limiting": "", "minutes": 60, "sampled_s": 3600.0, "sentence": "",
        "problem": "", "findings": "[]",
    }  # fmt: skip
    put(archive, STATES, host, t_s, [state])


def put(archive: Archive, table: Table, host: str, t_s: int, rows: Sequence[dict[str, Any]]) -> None:
    """Without the fsync of ``Archive.write``, which for a thousand files takes half a minute."""
    path = archive.path(table.name, host, "h", t_s)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), table.schema), path)


def test_a_history_is_read_in_hours_with_its_highest_minutes(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "history", days=16, missing=range(5, 7))
    first, second = history.read(archive.root)
    assert (first.host, second.host) == ("db0", "db1")
    assert (first.demand.start_s, first.demand.step_s) == (DAY * DAY_S, HOUR_S)
    cpu = first.demand.used[Resource.CPU]
    assert cpu.shape == (16 * 24,)
    assert np.flatnonzero(np.isnan(cpu)).tolist() == list(range(5 * 24, 7 * 24))
    most = first.demand.most[Resource.CPU]
    assert np.nanmax(np.abs(most / cpu - 1.2)) < 1e-9
    assert first.limits == {Resource.CPU: 4.0}
    days = first.peaks[Resource.CPU]
    assert days.day.tolist() == [DAY + day for day in range(16) if day not in (5, 6)]
    assert days.most[0] == pytest.approx(np.nanmax(most[:24]))
    assert any("not watched" in note for note in first.notes)


def test_what_is_older_than_its_hours_has_peaks_and_no_time_of_day(
    tmp_path: Path, quick_disk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hosts whose bursts are on different days. Of the older days only one row each is left."""
    monkeypatch.setattr(rollup, "KEEP_HOURS_S", 7 * DAY_S)
    archive, days = Archive(tmp_path / "history"), 21
    for number in range(2):
        for t_s in range(DAY * DAY_S, (DAY + days) * DAY_S, HOUR_S):
            bursts = t_s % DAY_S == 2 * HOUR_S and (t_s // DAY_S) % 5 == number
            busy = 3.0 if bursts else 0.5
            write(archive, f"db{number}", t_s, [("demand", "cpu", busy, busy), ("limit", "cpu", 4.0, 4.0)])
    end_s = (DAY + days) * DAY_S
    for name in archive.hosts():
        rollup.roll_up(archive, name, end_s)
    before = history.of_archive(archive)[0].demand.used[Resource.CPU]
    rollup.trim(archive, end_s, rollup.Keep())
    found = history.of_archive(archive)
    assert {each.demand.start_s for each in found} == {end_s - 7 * DAY_S - HOUR_S}
    assert all(np.isfinite(each.demand.used[Resource.CPU]).all() for each in found)
    # Bursts that never coincided do not, either, where gaps are filled by the time of day.
    joint = joined.together([each.demand for each in found])
    assert joint.values.sum(axis=0).max() == pytest.approx(3.5)
    known = capacity.known("db0", found[0].limits)
    [cpu] = full.outlook(found[0], known).outlooks
    assert len(found[0].peaks[Resource.CPU].day) == days
    assert cpu.mean == pytest.approx(float(before.mean()))
    assert cpu.watched == 1.0
    assert found[0].notes == ()


def test_calls_of_a_history_have_their_lock_time(tmp_path: Path) -> None:
    """A class of which the server tells none has none, not 0."""
    archive = archive_of(tmp_path / "history", hosts=1, days=9)
    for hour in range(9 * 24):
        t_s = DAY * DAY_S + hour * HOUR_S
        for_all = dict.fromkeys(CLASSES.schema.names) | {"t_s": t_s, "source": "slow log", "database": "shop"}
        put(archive, CLASSES, "db0", t_s, [
            for_all | {"class": "update", "calls": 3600 * (1 + hour % 5), "lock_ns": 36 * (1 + hour % 5) * 10**8},
            for_all | {"class": "select", "calls": 7200 * (1 + hour % 3)},
        ])  # fmt: skip
    [found] = history.read(archive.root)
    np.testing.assert_allclose(found.lock_s["update"], 0.001 * found.calls["update"])
    np.testing.assert_allclose(found.calls["update"][:3], [1, 2, 3])
    assert list(found.lock_s) == ["update"]


def test_requests_of_a_memcached_host_are_its_calls(tmp_path: Path) -> None:
    """A minute in which a server was not read is unknown, not idle; two servers are told apart."""
    archive = Archive(tmp_path / "history")
    for hour in range(48):
        rows = [("demand", "cpu", 0.1 + hour % 5 * 1e-2, 1.0)]
        if hour != 7:
            rows += [
                ("memcached gets", "a", 1000.0 * (hour % 5), 1.0),
                ("memcached sets", "a", 10.0 * (hour % 3), 1.0),
            ]
        if hour > 40:
            rows += [("memcached gets", "b", 5.0, 5.0)]
        write(archive, "cache1", DAY * DAY_S + hour * HOUR_S, rows)
    [found] = history.read(archive.root, HOUR_S)
    assert found.source == "memcached"
    assert sorted(found.calls) == ["get (a)", "get (b)", "set (a)"]
    np.testing.assert_allclose(found.calls["get (a)"][:8], [0, 1000, 2000, 3000, 4000, 0, 1000, np.nan])
    archive = Archive(tmp_path / "alone")
    for hour in range(480):
        gets = 1000.0 * (1 + hour % 5)
        rows = [("demand", "packets", 10 + 2 * gets, 1e9), ("memcached gets", "a", gets, gets)]
        write(archive, "cache1", DAY * DAY_S + hour * HOUR_S, rows)
    [found] = history.read(archive.root)
    cost = demand.costs(found).cost("packets", "get")
    assert cost is not None
    assert cost.estimate == pytest.approx(2, rel=0.01)


def test_the_command_says_when_and_of_what(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "history")
    out = tmp_path / "full.html"
    ran = CliRunner().invoke(size_app, ["full", str(archive.root), "--json", "--html", str(out)])
    assert ran.exit_code == 0, ran.output
    content = json.loads(ran.stdout)
    [first, _] = content["hosts"]
    [cpu] = first["outlooks"]
    assert (cpu["resource"], cpu["state"]) == ("cpu", "dated")
    assert cpu["day"]["low"] <= cpu["day"]["estimate"]
    assert first["unknown"] == ["packets"]
    assert content["together"][0]["hosts"] == 2
    assert "runs out of CPU on" in out.read_text()
    only = CliRunner().invoke(size_app, ["full", str(archive.root), "--json", "--host", "db1"])
    assert [host["name"] for host in json.loads(only.stdout)["hosts"]] == ["db1"]


def test_packets_beyond_a_lower_bound_are_found_and_no_verdict(tmp_path: Path) -> None:
    """With what `headrace latencies --packets --json` prints, which says in each row that it is a lower bound."""
    archive = archive_of(tmp_path / "history", hosts=1)
    content = packets_page("db0", rounds(0.6, 4200, 6000))
    path = tmp_path / "packets.json"
    path.write_text(json.dumps(jsonform.render(content), allow_nan=False))
    ran = CliRunner().invoke(size_app, ["full", str(archive.root), "--json", "--latencies", f"db0={path}"])
    assert ran.exit_code == 0, ran.output
    [host] = json.loads(ran.stdout)["hosts"]
    assert [each["resource"] for each in host["outlooks"]] == ["cpu", "packets"]
    _, packets = host["outlooks"]
    assert packets["limit_from"].startswith("at least, by ladder --packets: one core")
    # Without RPS: that it would move the limit is no reason to count on it.
    assert packets["limit"]["estimate"] == pytest.approx(4200, rel=0.01)
    assert packets["state"] == "may be full now"
    assert host["unknown"] == []
    ran = CliRunner().invoke(size_app, ["full", str(archive.root), "--latencies", f"db0={path}"])
    said = " ".join(ran.output.split())
    assert "may be out of packets as well, of which only a lower bound is known" in said
    assert "the limit of packets is at least 4,200/s, by ladder --packets" in said
    [steered] = [note for note in host["notes"] if "RPS" in note]
    assert steered.startswith("with RPS 2, ladder --packets measured 5,999 packets/s (")
    assert "lower bound" in steered


def test_a_source_without_anything_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such file"):
        history.read(tmp_path / "missing")
    with pytest.raises(NothingMeasured):
        history.read(tmp_path)
    (tmp_path / "db1.jsonl.zst").write_bytes(b"not zstd")
    with pytest.raises(NothingMeasured):
        history.read(tmp_path)
    with pytest.raises(NothingMeasured, match="no samples in this file"):
        history.read(tmp_path / "db1.jsonl.zst")
    (tmp_path / "demands.csv").write_text("host,start,cpu\ndb1,2024-01-01,1\n")
    with pytest.raises(NothingMeasured, match="no samples in this file") as found:
        history.read(tmp_path / "demands.csv")
    assert "size merge" in str(found.value.hint)
    with pytest.raises(NothingMeasured):
        history.read(archive_of(tmp_path / "history", hosts=1, days=1).root, hosts=["other"])


# Capacity.


def test_a_ladder_gives_the_device_and_how_parallel_it_is() -> None:
    def row(rung: str, ns: float) -> dict[str, Any]:
        return {"rung": rung, "median_ns": ns, "low_ns": 0.9 * ns, "high_ns": 1.1 * ns, "spoiled_by": []}

    found = capacity.known(
        "db1",
        {Resource.CPU: 4.0},
        ladder={"rungs": [row("device_read", 80_000), row("device_read_32", 5_000)]},
    )
    reads = found.capacity.limit[Resource.READS]
    assert reads.estimate == pytest.approx(200_000)
    assert reads.low == pytest.approx(1e9 / 5500)
    # Sixteen at a time: busier before it queues than one disk.
    assert found.capacity.knee[Resource.READS].estimate == pytest.approx(capacity.assumed_knee(16))
    assert found.knee_from[Resource.READS].startswith("assumed")
    with pytest.raises(StoreError):
        capacity.known("db1", {}, ladder={"rungs": "nothing"})


#: 10,000 writes per second, one after the other: with many at a time a device does more.
WRITES_ALONE = {
    "rungs": [
        {
            "rung": "device_write",
            "median_ns": 100_000,
            "low_ns": 100_000,
            "high_ns": 100_000,
            "spoiled_by": [],
        }
    ]
}


def lower_bound(writes: float, cpu: float = 1.0, found: Peaks | None = None) -> full.Host:
    """A host with 8 cores and 60 days, of whose writes only a lower bound is known."""
    used = {Resource.CPU: [cpu] * 24 * 60, Resource.WRITES: [writes] * 24 * 60}
    grown = {} if found is None else {Resource.WRITES: found}
    known = capacity.known("db1", {Resource.CPU: 8.0}, ladder=WRITES_ALONE)
    return full.outlook(one_host(used, peaks=grown), known)


def test_a_lower_bound_is_no_verdict() -> None:
    """More writes than a device does one at a time: it may be full of them, and nobody knows."""
    host = lower_bound(9000.0)
    [cpu, writes] = host.outlooks
    assert (cpu.resource, writes.state) == (Resource.CPU, State.MAYBE)
    assert host.first_full is cpu
    assert host.in_vain == ()
    assert [each.resource for each in host.bought] == [Resource.CPU]
    assert host.bought[0].gain.estimate > 1.1  # the bound does not limit what more cores bring
    said = " ".join(rendered([host]).split())
    assert "is full now" not in said
    assert "may be out of device writes as well, of which only a lower bound is known" in said
    assert "--limit db1=writes=N would tell" in said
    # One that is known to be full is more urgent.
    full_now = full.outlook(
        one_host({Resource.CPU: [1.9] * 24}, "db2"), capacity.known("db2", {Resource.CPU: 2.0})
    )
    assert [each.name for each in page.by_urgency([host, full_now])] == ["db2", "db1"]


def test_a_date_of_a_lower_bound_is_the_earliest() -> None:
    found = peaks(60, 0.004)
    host = lower_bound(0.0, found=Peaks(found.day, 3000 * found.most))
    writes = next(each for each in host.outlooks if each.resource is Resource.WRITES)
    assert writes.state is State.DATED
    assert writes.day is not None
    assert words.when(host.end_s, writes) == f"{words.day_of(host.end_s, writes.day.estimate)} or later"
    assert words.dates(host.end_s, writes) == f"{words.day_of(host.end_s, writes.day.low)} or later"
    assert host.first_full is not writes
    alone = replace(host, outlooks=(writes,))
    said = " ".join(rendered([alone]).split())
    assert (
        f"runs out of device writes on {words.when(alone.end_s, writes)}: its limit is a lower bound" in said
    )


def test_what_has_a_lower_bound_is_not_compared_with_another_device(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "history", hosts=1, days=8)
    for hour in range(8 * 24):
        rows = [("demand", "cpu", 1.0, 1.2), ("demand", "writes", 900.0, 1000.0), ("limit", "cpu", 4.0, 4.0)]
        write(archive, "db0", DAY * DAY_S + hour * HOUR_S, rows)
    path = tmp_path / "ladder.json"
    path.write_text(json.dumps(WRITES_ALONE))
    ran = CliRunner().invoke(
        size_app, ["full", str(archive.root), "--latencies", str(path), "--what-if", "writes=20000"]
    )
    assert isinstance(ran.exception, PlanError)
    assert "only a lower bound" in str(ran.exception)


def test_the_assumed_knee_is_that_of_a_queue() -> None:
    """M/M/1 waits as long as it serves at one half; M/M/2 at sqrt(1/2)."""
    assert capacity.assumed_knee(1) == pytest.approx(0.5)
    assert capacity.assumed_knee(2) == pytest.approx(math.sqrt(0.5), abs=0.01)
    assert capacity.assumed_knee(64) > 0.97


def test_a_report_of_a_sweep_tells_its_calls_only(tmp_path: Path) -> None:
    report = {
        "levels": [{"load": 8, "throughput_ops_s": {"estimate": 900.0, "low": 880.0, "high": 920.0}}],
        "objectives": [{"percentile": "p99", "limit_ns": 1e7, "holds": 8}],
        "knee": None,
    }
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    found = capacity.of_sweep(path)
    assert found.ops_s == Interval(900.0, 880.0, 920.0)
    assert found.objective == "p99 within 10 ms"
    path.write_text('{"levels": 3}')
    with pytest.raises(StoreError, match="of a sweep"):
        capacity.of_sweep(path)


def swept(path: Path) -> Path:
    """A finished sweep, whose trials have facts."""
    folder = make(path)
    for trial in folder.trials():
        raw = folder.trial_path(trial.number) / "raw"
        raw.mkdir(exist_ok=True)
        (raw / "facts.json").write_text(json.dumps(folder.facts(trial.facts_hash).data))
    return folder.path


def test_a_sweep_that_used_little_of_the_cpu_is_doubted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = swept(tmp_path / "sweep")
    assert not any("something else limits" in note for note in capacity.of_sweep(path).notes)
    # As if what it used were little.
    monkeypatch.setattr(capacity, "FAR", 2.0)
    found = capacity.of_sweep(path)
    assert any("something else limits" in note for note in found.notes)
    host = full.outlook(one_host({Resource.CPU: [1.0] * 24}), capacity.known("db1", {}, sweep=found))
    assert "something else limits" in rendered([host])


def test_a_sweep_gives_the_knee_of_what_limited_it(tmp_path: Path) -> None:
    """Use of the CPU at the last level that kept the objective; what had room left there has no knee of it."""
    found = capacity.of_sweep(swept(tmp_path / "sweep"))
    assert list(found.capacity.knee) == [Resource.CPU]
    knee = found.capacity.knee[Resource.CPU]
    assert knee.low is not None
    assert knee.high is not None
    assert 0.5 < knee.low <= knee.estimate <= knee.high < 1
    assert found.ops_s is not None
    known = capacity.known("db1", {Resource.CPU: 2.0, Resource.SOFTIRQ: 1.0}, sweep=found)
    assert known.capacity.knee[Resource.CPU] == knee
    assert known.knee_from[Resource.CPU].startswith("measured by sweep")
    assert known.knee_from[Resource.SOFTIRQ].startswith("assumed")
    host = full.outlook(one_host({Resource.CPU: [1.0] * 24}), known)
    assert "calls/s then" in rendered([host])
    assert "p99 within" in rendered([host])
