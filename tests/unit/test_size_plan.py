"""Plans of merges: what coincides, what is sure, what it costs, and what bad input is told."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from headrace.base.encode import json_text
from headrace.base.errors import PlanError
from headrace.base.intervals import Interval
from headrace.capacity import catalogue, cost, table
from headrace.capacity.clock import Clock
from headrace.capacity.cost import Growth
from headrace.capacity.model import Capacity, Demand, Resource
from headrace.capacity.plan import Asked, Merged, plan
from headrace.capacity.report.merge import page_of
from headrace.capacity.together import DRAWS, Futures, Peak, daily_peaks, filled, peak, together
from tests.commands import headrace
from tests.demands import batch, written

#: One host carries eight averages, and one batch at a time: 0.8 * 18 CPUs.
HOSTS = "name,cpu,cpu_knee,price,currency,watts,count\nbig,18,0.8,500,USD,300,{count}\n"
FAST = Asked(seconds=1.0, exact=False, growth=Growth())


def hosts_file(folder: Path, count: str = "", text: str = HOSTS) -> Path:
    path = folder / "hosts.csv"
    path.write_text(text.replace("{count}", count))
    return path


def planned(folder: Path, *, together: bool, count: str = "", asked: Asked = FAST) -> Merged:
    demands = table.read(written(folder / "demands.csv", batch(8, together=together)))
    return plan(demands, catalogue.read(hosts_file(folder, count)), asked)


def test_peaks_that_coincide_say_no_where_averages_say_yes(tmp_path: Path) -> None:
    """The planted coincidence: eight nightly batches at 02:00 need 45 CPUs; their averages need 6.5."""
    found = planned(tmp_path, together=True, count="1")
    assert found.averages == 1
    assert not found.fits
    assert found.unplaced
    answer = headrace(
        "size",
        "merge",
        str(tmp_path / "demands.csv"),
        "-c",
        str(tmp_path / "hosts.csv"),
        "--budget",
        "2s",
        "--json",
    )
    assert answer.returncode == 13, answer.stderr
    content = json.loads(answer.stdout)
    assert content["fits"] is False
    assert content["averages_ask_for"] == 1
    assert content["headline"].startswith("No: ")


def test_the_same_averages_one_after_the_other_fit(tmp_path: Path) -> None:
    found = planned(tmp_path, together=False, count="1")
    assert found.fits
    assert len(found.hosts) == 1
    use = found.hosts[0].first
    assert use is not None
    assert use.share.low is not None
    assert use.share.low < use.share.estimate < 1
    # Eight single peaks would be 45 CPUs: what counts is what is there at one time.
    assert use.peak.estimate < 14


def test_without_a_limit_on_hosts_the_joint_peak_sets_their_number(tmp_path: Path) -> None:
    found = planned(tmp_path, together=True)
    assert found.fits
    assert len(found.hosts) == 4
    assert all(host.risk <= FAST.risk for host in found.hosts)
    assert found.price == 2000
    assert found.watts == 1200
    assert found.solution.bound <= len(found.hosts) * 500


def test_growth_needs_more_and_shrinking_not_less(tmp_path: Path) -> None:
    now = planned(tmp_path, together=True)
    more = planned(tmp_path, together=True, asked=Asked(seconds=1.0, exact=False, growth=Growth(1.4, 1.6)))
    less = planned(tmp_path, together=True, asked=Asked(seconds=1.0, exact=False, growth=Growth(0.5, 0.8)))
    assert len(more.hosts) > len(now.hosts) == len(less.hosts)
    assert any("may shrink" in note for note in less.notes)


def test_growth_is_that_of_the_history_unless_it_is_given(tmp_path: Path) -> None:
    """Two percent a day for four weeks: as much again in the next four, within the interval that is said."""
    steps = np.arange(28 * 48)
    random = np.random.default_rng(2)
    noise = np.repeat(random.lognormal(0, 0.02, 28), 48)
    cpu = {"db1": 2 * 1.02 ** (steps // 48) * noise * np.where(steps % 48 == 20, 1.0, 0.5)}
    demands = table.read(written(tmp_path / "d.csv", cpu))
    hosts = catalogue.read(hosts_file(tmp_path, text="name,cpu,cpu_knee,price\ns,6,1,10\nl,12,1,20\n"))
    found = plan(demands, hosts, Asked(seconds=1.0, exact=False, ahead_days=28))
    growth = found.asked.growth
    assert growth is not None
    assert growth.estimate is not None
    assert growth.low < 1.02**28 < growth.high < 2 * growth.estimate
    assert any("grow by" in note and "planned for" in note for note in found.notes)
    # 3.5 cores now, more than 6 after four weeks.
    assert [host.capacity.name for host in found.hosts] == ["l"]
    without = plan(demands, hosts, Asked(seconds=1.0, exact=False, ahead_days=28, growth=Growth()))
    assert [host.capacity.name for host in without.hosts] == ["s"]


def test_a_short_history_tells_no_growth(tmp_path: Path) -> None:
    demands = table.read(written(tmp_path / "d.csv", batch(2, together=True, days=8)))
    found = plan(demands, catalogue.read(hosts_file(tmp_path)), Asked(seconds=1.0, exact=False))
    assert found.asked.growth == Growth()
    assert any("fewer than 14 days" in note for note in found.notes)


def test_a_missing_week_counts_with_the_largest_value_of_its_time_of_day(tmp_path: Path) -> None:
    cpu = batch(2, together=True)
    whole = written(tmp_path / "whole.csv", {"db1": cpu["db1"]})
    text = (
        written(tmp_path / "part.csv", {"db2": cpu["db2"]}, without=range(7, 14)).read_text().splitlines()[1:]
    )
    (tmp_path / "demands.csv").write_text(whole.read_text() + "\n".join(text) + "\n")
    demands = table.read(tmp_path / "demands.csv")
    assert any("db2: days are missing" in note for note in demands.notes)
    found = together(demands.demands)
    assert np.isfinite(found.values).all()
    late = found.values[1, 0, 7 * 48 :]
    assert late.max() == pytest.approx(np.nanmax(demands.demands[1].used[Resource.CPU]))


def rows(path: Path, *series: tuple[str, int, int, list[float | None]], resource: str = "cpu") -> Path:
    """(host, seconds of its first value, seconds between two, values; None: no row)."""
    lines = [
        f"{host},{1_772_409_600 + first + n * every},{resource},{value}"
        for host, first, every, values in series
        for n, value in enumerate(values)
        if value is not None
    ]
    path.write_text("\n".join(["host,time,resource,value", *lines]) + "\n")
    return path


def test_hosts_that_are_sampled_at_other_seconds_share_the_steps(tmp_path: Path) -> None:
    """Every minute, 20 and 45 s apart: no gaps, no value lost or flattened, and a true gap stays one."""
    values: list[float | None] = [float(n) for n in range(1, 151)]
    late = [None if 20 <= n < 30 else value for n, value in enumerate(values)]
    path = rows(tmp_path / "d.csv", ("db1", 0, 60, values), ("db2", 20, 60, values), ("db3", 45, 60, late))
    found = table.read(path)
    assert {(d.start_s, d.step_s, d.steps) for d in found.demands} == {(1_772_409_600, 60, 151)}
    one, two, three = (d.used[Resource.CPU] for d in found.demands)
    np.testing.assert_array_equal(one[:150], values)
    np.testing.assert_array_equal(two[:150], values)
    # More than half of the first value's minute is in the second step.
    np.testing.assert_array_equal(three, [np.nan, *(np.nan if v is None else v for v in late)])
    assert found.notes == ("db3: more than 1% of the steps are missing; the largest value of the same time of "
                           "day counts",)  # fmt: skip


def test_a_timer_that_jitters_leaves_no_gap_and_hides_no_peak(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    path = tmp_path / "d.csv"
    at = [60 * n + random.integers(-25, 26) for n in range(1, 500)]
    lines = [f"db1,{1_772_409_600 + t},cpu,{9 if n % 50 == 7 else 1}" for n, t in enumerate(at)]
    steady = [f"db2,{1_772_409_600 + 60 * n},cpu,1" for n in range(500)]
    path.write_text("\n".join(["host,time,resource,value", *lines, *steady]) + "\n")
    used = table.read(path).demands[0].used[Resource.CPU]
    assert np.isfinite(used[2:-1]).all()
    assert (used == 9).sum() >= 10


def test_longer_steps_hold_and_shorter_ones_are_averaged(tmp_path: Path) -> None:
    hourly: list[float | None] = [4.0, 6.0, None, 8.0]
    minutes: list[float | None] = [1.0, 3.0] * 240
    seconds: list[float | None] = [2.0, 4.0] * 240
    path = rows(
        tmp_path / "d.csv", ("db1", 7, 3600, hourly), ("db2", 0, 60, minutes), ("db3", 0, 60, minutes),
        ("db4", 30, 30, seconds),
    )  # fmt: skip
    found = table.read(path)
    assert found.demands[0].step_s == 60
    coarse, _, _, fine = (d.used[Resource.CPU] for d in found.demands)
    assert coarse[:60].tolist() == [4] * 60
    assert np.isnan(coarse[120:180]).all()
    assert coarse[180:240].tolist() == [8] * 60
    assert set(fine[1:240]) == {3.0}
    assert any("db1: has longer steps than 60 s" in note for note in found.notes)


def test_a_resource_without_any_value_is_unknown_not_idle(tmp_path: Path) -> None:
    path = written(tmp_path / "d.csv", batch(2, together=True, days=2))
    text = path.read_text()
    memory = "".join(line.replace(",cpu,", ",memory,") + "\n" for line in text.splitlines()[1:]
                     if line.startswith("db1"))  # fmt: skip
    empty = "".join(f"db2,{n},memory,\n" for n in ("2026-03-02T00:00:00Z", "2026-03-02T00:30:00Z"))
    path.write_text(text + memory + empty)
    found = table.read(path)
    assert Resource.MEMORY not in found.demands[1].used
    assert any("no memory of db2" in note for note in found.notes)


def test_queries_that_were_not_counted_are_no_idle_time(tmp_path: Path) -> None:
    """A week without the counter of one host does not halve what a host is worth."""
    cpu = written(tmp_path / "d.csv", batch(2, together=False))
    step = [f"db{host},{1_772_409_600 + 1800 * n},queries,{1000 if host == 1 or n < 7 * 48 else ''}"
            for host in (1, 2) for n in range(14 * 48)]  # fmt: skip
    cpu.write_text(cpu.read_text() + "\n".join(step) + "\n")
    demands = table.read(cpu)
    assert any("db2: queries are missing" in note for note in demands.notes)
    found = plan(demands, catalogue.read(hosts_file(tmp_path)), FAST)
    assert found.worth is not None
    assert found.worth.queries.estimate == pytest.approx(2000)
    assert found.worth.queries.low == pytest.approx(2000)


def test_one_host_only_is_a_plan_too(tmp_path: Path) -> None:
    demands = table.read(written(tmp_path / "demands.csv", batch(1, together=True)))
    found = plan(demands, catalogue.read(hosts_file(tmp_path)), FAST)
    assert found.fits
    assert len(found.hosts) == 1
    assert found.solution.is_proven


def test_an_objective_that_is_already_broken_is_said(tmp_path: Path) -> None:
    path = written(tmp_path / "demands.csv", batch(2, together=True), type="old")
    text = HOSTS.replace("{count}", "") + "old,4,0.8,90,USD,200,0\n"
    found = plan(table.read(path), catalogue.read(hosts_file(tmp_path, text=text)), FAST)
    assert any("already broken" in note and "db1, db2" in note for note in found.notes)
    assert [host.capacity.name for host in found.before] == ["old", "old"]


def test_a_search_that_is_stopped_still_ends_with_a_plan(tmp_path: Path) -> None:
    demands = table.read(written(tmp_path / "demands.csv", batch(8, together=True)))
    clock = Clock(3600.0)
    clock.listen = lambda found: clock.stop()
    found = plan(demands, catalogue.read(hosts_file(tmp_path)), Asked(exact=False), clock)
    assert found.is_stopped
    assert found.hosts
    assert not found.solution.placement.violations()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("db1,2026-03-02T00:00Z,cpu,many", "demands.csv:3: column value: 'many'"),
        ("db1,2026-03-02T00:00Z,cpu,1_00", "demands.csv:3: column value: '1_00'"),
        ("db1,2026-03-02T00:00Z,cpu,-3", "demands.csv:3: column value: -3 is negative"),
        ("db1,2026-03-02T00:00Z,cpu,1e300", "demands.csv:3: column value: 1e+300 is more than any host has"),
        ("db1,2026-03-02T00:00Z,cpu,nan", "demands.csv:3: column value: nan"),
        ("db1,yesterday,cpu,3", "demands.csv:3: column time: 'yesterday'"),
        ("db1,2026-03-02T00:00Z,gpu,3", "demands.csv:3: column resource: 'gpu'"),
        (",2026-03-02T00:00Z,cpu,3", "demands.csv:3: column host: empty"),
        ("db1,2026-03-01T23:00Z,cpu,3", "demands.csv:3: db1 has two values of cpu"),
        ("db1,2026-03-02T00:00Z", "demands.csv:3: 4 columns in the header"),
    ],
)
def test_a_wrong_line_is_named_with_its_column(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "demands.csv"
    path.write_text(
        f"host,time,resource,value\ndb1,2026-03-01T23:00Z,cpu,1\n{line}\ndb1,2026-03-02T01:00Z,cpu,1\n"
        "db1,2026-03-02T02:00Z,cpu,1\n"
    )
    with pytest.raises(PlanError) as error:
        table.read(path)
    assert said in str(error.value)


def test_parquet_is_read_like_csv(tmp_path: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    path = written(tmp_path / "demands.csv", batch(2, together=True))
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(path), tmp_path / "demands.parquet")
    one, other = table.read(path), table.read(tmp_path / "demands.parquet")
    assert [d.host for d in one.demands] == [d.host for d in other.demands]
    for a, b in zip(one.demands, other.demands, strict=True):
        np.testing.assert_allclose(a.used[Resource.CPU], b.used[Resource.CPU])
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(PlanError, match="not a Parquet file"):
        table.read(tmp_path / "broken.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"time": [1], "value": [1]}), tmp_path / "other.parquet")
    with pytest.raises(PlanError, match="no column 'host'; there are: time, value"):
        table.read(tmp_path / "other.parquet")


@pytest.mark.parametrize("limit", ["MOST_ROWS", "MOST_TEXT_BYTES"])
def test_parquet_that_becomes_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Every row names one long text, which is in the file once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    many = {"host": ["h" * 10_000] * 5000, "time": ["2026-03-01T23:00Z"] * 5000, "resource": ["cpu"] * 5000}
    pq.write_table(pa.table(many | {"value": [1.0] * 5000}), tmp_path / "demands.parquet")
    assert (tmp_path / "demands.parquet").stat().st_size < 100_000
    monkeypatch.setattr(table, limit, 4000)
    with pytest.raises(PlanError, match="too large"):
        table.read(tmp_path / "demands.parquet")


def test_parquet_without_a_zone_is_utc_wherever_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the night in which a zone with summer time skips an hour."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    times = [datetime(2026, 3, 28, 22) + timedelta(hours=hour) for hour in range(8)]
    cells = {
        "host": ["db1"] * 8,
        "time": times,
        "resource": ["cpu"] * 8,
        "value": [float(i) for i in range(8)],
    }
    pq.write_table(pa.table(cells), tmp_path / "demands.parquet")
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        [demand] = table.read(tmp_path / "demands.parquet").demands
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (demand.start_s, demand.step_s) == (1_774_735_200, 3600)
    assert demand.used[Resource.CPU].tolist() == cells["value"]


def test_a_catalogue_in_two_currencies_is_refused(tmp_path: Path) -> None:
    path = hosts_file(tmp_path, text="name,cpu,price,currency\na,4,10,USD\nb,4,10,EUR\n")
    with pytest.raises(PlanError, match="2 currencies"):
        catalogue.read(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,cpu\na,0\n", "hosts.csv:2: column cpu: 0"),
        ("name,cpu,cpu_knee\na,4,1.5\n", "hosts.csv:2: column cpu_knee: 1.5 is a share"),
        ("name,cpu,cpu_low,cpu_high\na,4,5,6\n", "hosts.csv:2: column cpu: 4 is outside its interval"),
        ("name,memory\na,64GB!\n", "hosts.csv:2: column memory: '64GB!'"),
        ("name,cpu\na,4\na,5\n", "hosts.csv:3: column name: a a second time"),
        ("name,cpu,price\na,4,0\n", "hosts.csv:2: column price: 0"),
        ("name,cpu,count\na,4,1.5\n", "hosts.csv:2: column count: 1.5"),
        ("cpu\n4\n", "no column 'name'"),
    ],
)
def test_a_wrong_cell_of_a_catalogue_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PlanError) as error:
        catalogue.read(hosts_file(tmp_path, text=text))
    assert said in str(error.value)


def test_a_catalogue_of_a_spreadsheet_with_decimal_commas_is_read_as_demands_are(tmp_path: Path) -> None:
    path = hosts_file(tmp_path, text="name;cpu;cpu_knee;price;currency\nx;16;0,75;99,5;EUR\n")
    found = catalogue.read(path)
    capacity = found.offers[0].capacity
    assert capacity.knee[Resource.CPU].estimate == 0.75
    assert capacity.price == 99.5
    assert any("decimal" in note for note in found.notes)


def test_missing_fields_of_a_catalogue_are_said_and_never_guessed(tmp_path: Path) -> None:
    path = hosts_file(tmp_path, text="name,cpu,reads,price,watts\na,4,1000,10,\nb,4,,,200\n")
    found = catalogue.read(path)
    assert set(found.notes) == {
        "price unknown for b",
        "watts unknown for a",
        "reads unknown for b: it does not limit them",
    }
    demands = table.read(written(tmp_path / "demands.csv", batch(1, together=True, days=8)))
    merged = plan(demands, found, FAST)
    assert any("not every host has a price" in note for note in merged.notes)
    assert any("knee of cpu was not measured" in note for note in merged.notes)


def instance(name: str, **more: object) -> dict[str, object]:
    pricing = {"us-east-1": {"linux": {"ondemand": "0.100000", "reserved": {}}}}
    return {"instance_type": name, "vCPU": 8, "memory": 32.0, "pricing": pricing, **more}


#: Type, vCPUs, credits per hour, baseline of each vCPU: from AWS's table of burstable types.
BURSTABLE = [
    ("t2.micro", 1, 6, 0.10), ("t2.medium", 2, 24, 0.20), ("t2.2xlarge", 8, 81.6, 0.17),
    ("t3.nano", 2, 6, 0.05), ("t3.medium", 2, 24, 0.20), ("t3.large", 2, 36, 0.30),
    ("t3.2xlarge", 8, 192, 0.40), ("t4g.medium", 2, 24, 0.20), ("t4g.xlarge", 4, 96, 0.40),
]  # fmt: skip


@pytest.mark.parametrize(("name", "vcpus", "an_hour", "share"), BURSTABLE)
def test_a_burstable_type_has_its_baseline(
    tmp_path: Path, name: str, vcpus: int, an_hour: float, share: float
) -> None:
    """``base_performance`` is in vCPUs of the whole instance, below 1 for the small ones."""
    path = tmp_path / "instances.json"
    path.write_text(json.dumps([instance(name, vCPU=vcpus, base_performance=an_hour / 60)]))
    [offer] = catalogue.read(path).offers
    assert offer.capacity.limit[Resource.CPU].estimate == pytest.approx(vcpus * share)
    assert offer.capacity.burst[Resource.CPU] == vcpus


def test_instances_json_prices_months_and_keeps_bursts_apart(tmp_path: Path) -> None:
    content = [
        instance(
            "m.2x",
            ebs_baseline_iops=6000,
            ebs_iops=18750,
            ebs_baseline_throughput=287.5,
            ebs_throughput=593.75,
        ),
        instance("t.2x", base_performance=0.4, network_performance="Up to 5 Gigabit"),
        instance("odd.2x", pricing={"eu-west-1": {}}, memory="unknown"),
    ]
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(content))
    found = catalogue.read(path)
    m, t = found.offers
    assert found.currency == "USD"
    assert m.capacity.price == pytest.approx(73.05)
    assert m.capacity.limit[Resource.DEVICE_REQUESTS].estimate == 6000
    assert m.capacity.burst[Resource.DEVICE_REQUESTS] == 18750
    assert m.capacity.limit[Resource.DEVICE_BYTES].estimate == 287.5e6
    assert m.capacity.limit[Resource.MEMORY].estimate == 32 << 30
    assert t.capacity.limit[Resource.CPU].estimate == pytest.approx(0.4)
    assert t.capacity.burst[Resource.CPU] == 8
    assert Resource.PACKETS not in m.capacity.limit
    assert any("odd.2x left out" in note for note in found.notes)
    assert [o.capacity.name for o in catalogue.read(path, only=["t.*"]).offers] == ["t.2x"]
    (tmp_path / "watts.csv").write_text("name,watts\nm.2x,60\n")
    assert catalogue.with_watts(found, tmp_path / "watts.csv").offers[0].capacity.watts == 60


def test_the_fewest_watts_are_planned_with_hosts_whose_watts_are_known(tmp_path: Path) -> None:
    demands = table.read(written(tmp_path / "demands.csv", batch(2, together=False), type="silent"))
    text = "name,cpu,price,watts\nhungry,20,100,400\nfrugal,20,300,150\nsilent,20,1,\n"
    offered = catalogue.read(hosts_file(tmp_path, text=text))

    def chosen(by: str) -> Merged:
        return plan(demands, offered, Asked(seconds=1.0, exact=False, by=by))

    assert {host.capacity.name for host in chosen("price").hosts} == {"silent"}
    found = chosen("watts")
    assert [host.capacity.name for host in found.hosts] == ["frugal"]
    assert found.watts == found.solution.placement.price == 150
    assert "not planned with, because their watts are unknown: silent" in found.notes
    # A type that is left out is still what the hosts are today.
    assert [host.capacity.name for host in found.before] == ["silent", "silent"]
    with pytest.raises(PlanError, match="no host of the catalogue has watts"):
        plan(demands, catalogue.read(hosts_file(tmp_path, text="name,cpu\na,20\n")), Asked(by="watts"))


@pytest.mark.parametrize(
    "text", ["{", "{}", "[1]", '[{"vCPU": 1}]', "[]", '[{"instance_type": "a", "pricing": 3}]']
)
def test_another_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "instances.json"
    path.write_text(text)
    with pytest.raises(PlanError):
        catalogue.read(path)


def test_memory_adds_up_by_step_only_in_one_server() -> None:
    def demand(host: str, values: list[float]) -> Demand:
        return Demand(host, 0, 43_200, {Resource.MEMORY: np.array(values)})

    demands = [demand("a", [9, 1, 9, 1]), demand("b", [1, 9, 1, 9])]
    assert together(demands).values.sum(axis=0).max() == 18
    assert together(demands, is_one_server=True).values.sum(axis=0).max() == 10


def test_gaps_are_filled_from_the_same_time_of_day() -> None:
    values = np.array([1.0, 5.0, 2.0, np.nan, np.nan, 7.0])
    assert filled(values, 2).tolist() == [1, 5, 2, 7, 2, 7]
    assert filled(np.array([np.nan, 4.0]), 2).tolist() == [4, 4]


def test_the_interval_of_a_peak_covers_the_largest_of_the_next_days() -> None:
    """Days with Gumbel peaks, 14 of them: 88% of 1,000 such months stayed below the 95% point."""
    random = np.random.default_rng(5)
    below = 0
    for _ in range(200):
        found, draws = peak(random.gumbel(10, 1, 14), Futures.of(14))
        assert found.low is not None
        assert found.low <= found.estimate
        below += bool(random.gumbel(10, 1, 30).max() <= np.quantile(draws, 0.95))
    assert below >= 0.8 * 200
    steady, _ = peak(np.full(14, 3.0), Futures.of(14))
    assert steady == Interval(3.0, 3.0, 3.0)


def test_a_short_last_day_is_no_day_of_its_own() -> None:
    assert daily_peaks(np.array([1.0, 2, 3, 4, 9]), 2, 1.0).tolist() == [2, 9]


def test_least_regret_weighs_a_cheap_plan_that_may_fail_against_a_dear_one_that_does_not() -> None:
    small = Capacity(
        "small", {Resource.CPU: Interval(10, 8, 12)}, {Resource.CPU: Interval(1, None, None)}, 100.0
    )
    large = Capacity(
        "large", {Resource.CPU: Interval(20, 18, 22)}, {Resource.CPU: Interval(1, None, None)}, 120.0
    )

    def uses(capacity: Capacity, load: float) -> list[cost.Use]:
        found = Peak(Resource.CPU, Interval(load, None, None), np.full(DRAWS, load), np.full(DRAWS, load))
        use = cost.use_of(found, capacity, Growth().draws())
        assert use is not None
        return [use]

    def best(load: float) -> str:
        return cost.regrets({c.name: ([c], [uses(c, load)]) for c in (small, large)})[0].name

    assert best(10.0) == "large"
    assert best(5.0) == "small"


def test_a_price_is_paid_each_month_and_a_full_host_once() -> None:
    """Ten hosts, each too full with a chance of 4%, or eleven that never are. If that is the chance of one month,
    the eleventh pays; if it is that of a year, it does not."""
    host = Capacity("h", {Resource.CPU: Interval(10, None, None)}, price=100.0)

    def use(share: float) -> list[cost.Use]:
        draws = np.full(DRAWS, 0.5)
        draws[: round(share * DRAWS)] = 2.0
        five = Interval(5, None, None)
        return [cost.Use(Resource.CPU, five, Interval(0.5, None, None), share, draws, draws, five)]

    plans = {"ten": ([host] * 10, [use(0.04)] * 10), "eleven": ([host] * 11, [use(0.0)] * 11)}
    assert cost.regrets(plans, 30.4)[0].name == "eleven"
    assert cost.regrets(plans, 365)[0].name == "ten"


def test_hosts_whose_peaks_have_nothing_in_common_are_not_too_full_together() -> None:
    """Thirty hosts, each too full in 2.5% of the futures: any of them is in nearly half of them if their days are
    independent, and in 2.5% if they are the same."""
    random = np.random.default_rng(8)
    futures = Futures.of(14)
    days = random.gumbel(10, 1, (30, 14))
    days = (days - days.mean(axis=1, keepdims=True)) / days.std(axis=1, keepdims=True)

    def too_full(daily: np.ndarray) -> np.ndarray:
        draws = [peak(10 + each, futures)[1] for each in daily]
        return np.stack([each > np.quantile(each, 0.975) for each in draws])

    apart = too_full(days)
    assert apart.mean() == pytest.approx(0.025, abs=0.005)
    assert apart.any(axis=0).mean() > 0.35
    alike = too_full(np.tile(days[:1], (30, 1)))
    assert alike.any(axis=0).mean() == pytest.approx(0.025, abs=0.005)


def test_what_hosts_carry_does_not_shrink_with_the_demand_that_is_expected(tmp_path: Path) -> None:
    """The fleet's queries at its peak, and how many times that the fullest host carries."""
    cpu = written(tmp_path / "d.csv", {"db1": np.tile([4.0, 2.0], 14)})
    lines = [f"db1,{1_772_409_600 + 1800 * n},queries,{[1000, 600][n % 2]}" for n in range(28)]
    cpu.write_text(cpu.read_text() + "\n".join(lines) + "\n")
    hosts = catalogue.read(hosts_file(tmp_path, text="name,cpu,cpu_knee,price\nbig,20,0.8,100\n"))
    found = [
        plan(table.read(cpu), hosts, Asked(seconds=1.0, exact=False, growth=growth)).worth
        for growth in (Growth(), Growth(2.0, 2.0))
    ]
    for worth in found:
        assert worth is not None
        assert worth.queries.estimate == pytest.approx(1000)
        # 4 of 16 cores that it may use.
        assert worth.at_knee.estimate == pytest.approx(4000)
        assert worth.per_price is not None
        assert worth.per_price.estimate == pytest.approx(40)


def test_of_plans_without_room_for_all_the_one_that_places_most_is_taken(tmp_path: Path) -> None:
    """Hosts of 10 cores, one database that needs 30: with more room than the history asks the others fit nowhere,
    and no host at all would be the cheapest plan."""
    cpu = {f"db{i}": np.full(48 * 8, 7.9) for i in range(4)} | {"huge": np.full(48 * 8, 30.0)}
    demands = table.read(written(tmp_path / "d.csv", cpu))
    hosts = catalogue.read(hosts_file(tmp_path, text="name,cpu,cpu_knee,price\nh,10,0.8,100\n"))
    found = plan(demands, hosts, FAST)
    assert set(found.unplaced) == {"huge"}
    assert len(found.hosts) == 4


def test_the_knees_that_were_assumed_are_those_that_are_said(tmp_path: Path) -> None:
    path = hosts_file(tmp_path, text="name,cpu,cpu_knee,price\na,16,0.75,100\nb,32,,180\n")
    demands = table.read(written(tmp_path / "demands.csv", batch(1, together=True, days=8)))
    [said] = [note for note in plan(demands, catalogue.read(path), FAST).notes if "not measured" in note]
    assert "for b: assumed 0." in said


def test_a_limit_that_may_be_nothing_breaks_no_page(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, text="name,cpu,cpu_low,cpu_high,price\nbig,1,0,3,5\n")
    for value in (0.0, 1e17):
        demands = written(tmp_path / "d.csv", {"db1": np.full(96, value)}, type="big")
        page = tmp_path / "page.html"
        answer = headrace(
            "size", "merge", str(demands), "-c", str(hosts), "--budget", "1s", "--html", str(page)
        )
        assert answer.returncode == (0 if value == 0 else 13), answer.stderr
        assert "Warning" not in answer.stderr
        assert "nan" not in answer.stdout
        assert page.exists()


def test_a_plan_without_some_databases_is_not_said_to_be_nearly_the_best(tmp_path: Path) -> None:
    found = planned(tmp_path, together=True, count="1")
    assert found.unplaced
    assert found.solution.gap is None
    content = json.loads(json_text(page_of(found).data))
    assert content["gap"] is None
    assert content["bound"] is None
    assert "best plan" not in page_of(found).lead


def test_a_type_that_the_catalogue_has_not_is_said(tmp_path: Path) -> None:
    demands = table.read(written(tmp_path / "d.csv", batch(2, together=True), type="old"))
    notes = plan(demands, catalogue.read(hosts_file(tmp_path)), FAST).notes
    assert any("not in the catalogue" in note and "old" in note for note in notes)


def test_a_host_without_a_price_is_not_a_cheap_one() -> None:
    """Of two plans that are as safe, the one of hosts without a price does not win by being free."""

    def plans(price: float | None) -> dict[str, cost.Scored]:
        priced = Capacity("priced", {Resource.CPU: Interval(10, None, None)}, price=500.0)
        other = Capacity("other", {Resource.CPU: Interval(10, None, None)}, price=price)
        found = cost.regrets({"one": ([priced], [[]]), "two": ([other, other], [[], []])})
        return {each.name: each for each in found}

    unknown = plans(None)
    assert list(unknown) == ["one", "two"]
    assert (unknown["one"].price, unknown["two"].price) == (500.0, None)
    # One host more.
    assert unknown["two"].mean_regret == 1.0
    assert list(plans(100.0)) == ["two", "one"]


def test_the_page_and_the_terminal_say_the_same(tmp_path: Path) -> None:
    demands = written(tmp_path / "demands.csv", batch(8, together=True))
    page = tmp_path / "plan.html"
    answer = headrace(
        "size", "merge", str(demands), "-c", str(hosts_file(tmp_path)), "--budget", "1s", "--html", str(page)
    )
    assert answer.returncode == 0, answer.stderr
    assert "Yes: 8 databases fit onto 4 hosts. Averages alone would suggest 1." in answer.stdout
    assert "8 databases fit onto 4 hosts" in page.read_text()
    assert "2,000 USD" in page.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--growth", "ten"], "--growth 'ten'"),
        (["--by", "luck"], "--by luck"),
        (["--growth", "20..10"], "lower one"),
    ],
)
def test_a_wrong_option_is_said(tmp_path: Path, words: list[str], said: str) -> None:
    answer = headrace("size", "merge", "no.csv", "-c", "no.csv", *words)
    assert answer.returncode == 2
    assert said in answer.stderr


def test_a_page_that_cannot_be_written_is_said_before_the_search(tmp_path: Path) -> None:
    for page in (tmp_path / "absent" / "page.html", tmp_path):
        answer = headrace("size", "merge", "no.csv", "-c", "no.csv", "--html", str(page))
        assert answer.returncode == 2
        assert "--html" in answer.stderr
        assert ("no directory" if "absent" in str(page) else "is a directory") in " ".join(
            answer.stderr.split()
        )
