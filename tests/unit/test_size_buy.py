"""What another device or more memory brings: predictions against simulated truths, and the command."""

from __future__ import annotations

import heapq
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from numpy.typing import NDArray
from typer.testing import CliRunner

from headrace.base.errors import NothingMeasured, PlanError
from headrace.base.intervals import Interval
from headrace.capacity import capacity, catalogue, device, full, pool_samples
from headrace.capacity.commands import size_source
from headrace.capacity.commands.size import size_app
from headrace.capacity.model import Resource
from headrace.capacity.pool import Curve, Point, Pool, misses
from headrace.capacity.used import Part
from headrace.history.archive.files import DAY_S, HOUR_S
from tests.unit.test_size_full import DAY, EXACT, archive_of, one_host, rendered, write

CPU, READS, WRITES = Resource.CPU, Resource.READS, Resource.WRITES
CALL: dict[Resource, float] = {CPU: 1e-4, READS: 0.5}


def holds(found: Interval, value: float) -> bool:
    assert found.low is not None
    assert found.high is not None
    return found.low <= value <= found.high


# A device.


def largest(
    calls: Sequence[Mapping[Any, float]], limits: dict[Resource, Interval], seed: int = 1
) -> device.Largest:
    return device.largest(device.carried(calls, limits, np.random.default_rng(seed)))


def test_the_resource_that_is_full_first_limits() -> None:
    found = largest([CALL] * 3, {CPU: EXACT(1.0), READS: EXACT(1000.0), WRITES: EXACT(1.0)})
    assert found.per_s.estimate == pytest.approx(2000)
    assert found.by is READS
    assert holds(found.per_s, 2000)
    faster = largest([CALL] * 3, {CPU: EXACT(1.0), READS: EXACT(1e6)})
    assert faster.by is CPU
    assert faster.per_s.estimate == pytest.approx(10_000)


@pytest.mark.parametrize("limit", [1500.0, 4000.0, 5000.0, 7000.0, 20_000.0])
def test_a_simulated_server_does_what_was_predicted(limit: float) -> None:
    """Random CPU, a device that serves evenly, and many clients that go from one to the other."""
    found = largest([CALL] * 3, {CPU: EXACT(1.0), READS: EXACT(limit)})
    truth = simulated(64, CALL[CPU], CALL[READS] / limit)
    assert found.per_s.estimate == pytest.approx(truth, rel=0.05)
    assert holds(found.per_s, truth)


def simulated(clients: int, cpu_s: float, device_s: float, calls: int = 20_000) -> float:
    rng = np.random.default_rng(1)
    service = rng.exponential(cpu_s, 2 * calls)
    queue = [(0.0, client, 0) for client in range(clients)]  # (ready at, client, 0: CPU, 1: device)
    free = [0.0, 0.0]
    done = 0
    while done < calls:
        ready, client, at = heapq.heappop(queue)
        end = max(ready, free[at]) + (service[done] if at == 0 else device_s)
        free[at] = end
        done += at
        heapq.heappush(queue, (end, client, 1 - at))
    return done / max(free)


def test_intervals_of_throughput_cover() -> None:
    """Plays differ by 3%, and a call's use moves with the load as much as it is said to."""
    rng = np.random.default_rng(5)
    held = 0
    for seed in range(200):
        truth = {r: value * math.exp(rng.normal(0, device.MOVES[r][0] / 1.96)) for r, value in CALL.items()}
        plays = [{r: value * math.exp(rng.normal(0, 0.03)) for r, value in CALL.items()} for _ in range(3)]
        limits = {CPU: EXACT(1.0), READS: EXACT(float(rng.uniform(500, 20_000)))}
        found = largest(plays, limits, seed=seed)
        held += holds(found.per_s, min(limits[r].estimate / truth[r] for r in truth))
    # 95% of 200 with three standard errors.
    assert held >= 180


WRITING: device.Call = {WRITES: 0.306, Part.PAGE_WRITES: 0.22}


def test_commits_that_wait_share_their_writes_and_pages_are_written_as_before() -> None:
    """Of a call that writes pages and a log, a device without time for both loses only the log's."""
    found = largest([WRITING] * 3, {WRITES: EXACT(150.0)}).per_s
    assert found.estimate == pytest.approx(150 / (0.22 + 0.25 * 0.086))
    assert holds(found, 150 / 0.306)
    assert holds(found, 150 / 0.22)
    # Nothing is shared of a call that writes only pages: the estimate is sure.
    pages = largest([{WRITES: 0.22, Part.PAGE_WRITES: 0.22}] * 3, {WRITES: EXACT(150.0)}).per_s
    assert pages.estimate == pytest.approx(150 / 0.22)
    assert not holds(pages, 150 / 0.306)
    # A RAID that counts a request several times, or one that joins them, leaves nothing to be shared.
    joined = largest([{WRITES: 0.22, Part.PAGE_WRITES: 0.3}] * 3, {WRITES: EXACT(150.0)}).per_s
    assert joined.estimate == pytest.approx(150 / 0.22)
    # Where nobody counted pages, all are taken to remain, and the interval holds both.
    unknown = largest([{WRITES: 0.306}] * 3, {WRITES: EXACT(150.0)}).per_s
    assert unknown.estimate == pytest.approx(150 / 0.306)
    assert holds(unknown, 150 / 0.22)


def test_a_server_that_only_commits_shares_most_of_its_writes() -> None:
    found = largest([{WRITES: 1.0, Part.PAGE_WRITES: 0.0}] * 3, {WRITES: EXACT(100.0)}).per_s
    assert found.estimate == pytest.approx(400)
    assert holds(found, 100.0)


# Memory.


def zipf(exponent: float) -> Callable[[int], NDArray[np.float64]]:
    return lambda pages: np.arange(1, pages + 1, dtype=np.float64) ** np.float64(-exponent)


def hot(pages: int) -> NDArray[np.float64]:
    """No law of Zipf: a tenth of the pages gets seven hits of ten."""
    return np.where(np.arange(pages) < pages // 10, 7.0, 3.0 / 9)


def measured(popularity: NDArray[np.float64], size: int, seed: int = 3, accesses: int = 25_000) -> float:
    """Misses per access of a cache that drops the least recently used, once it is full."""
    rng = np.random.default_rng(seed)
    hits: OrderedDict[int, None] = OrderedDict()
    missed = 0
    for n, page in enumerate(rng.choice(len(popularity), accesses, p=popularity / popularity.sum()).tolist()):
        if page in hits:
            hits.move_to_end(page)
            continue
        missed += n >= accesses // 2
        hits[page] = None
        if len(hits) > size:
            hits.popitem(last=False)
    return missed / (accesses - accesses // 2)


PAGES = 2000
LAWS = {"even": zipf(0.0), "zipf 0.6": zipf(0.6), "zipf 1.0": zipf(1.0), "hot": hot}


def around(value: float) -> Interval:
    return Interval(value, 0.97 * value, 1.03 * value)


@pytest.mark.parametrize("law", LAWS)
def test_reads_at_other_sizes_are_those_of_a_real_cache(law: str) -> None:
    popularity = LAWS[law](PAGES)
    curve = Curve([Point(n, around(measured(popularity, n))) for n in (400, 1200)], float(PAGES), 1.0)
    for size in (250, 800, 1500):
        found, truth = curve.reads(size), measured(popularity, size, seed=9)
        assert holds(found, truth), (size, found, truth)
        # Two points cannot tell where a hot set ends: then the interval says so.
        assert law == "hot" or found.estimate == pytest.approx(truth, rel=0.12)


def test_the_misses_of_the_law_are_those_of_a_cache() -> None:
    for exponent in (0.0, 0.8, 1.2):
        truth = measured(zipf(exponent)(PAGES), 500)
        assert misses(exponent, PAGES, np.array([500.0]))[0] == pytest.approx(truth, abs=0.025)
    assert misses(0.8, PAGES, np.array([PAGES, 5.0 * PAGES])).tolist() == [1e-9, 1e-9]


def test_a_pool_that_holds_everything_reads_nothing() -> None:
    curve = Curve([Point(100, around(0.5)), Point(300, around(0.3))], 1000)
    assert curve.reads(1000) == Interval(0.0, 0.0, 0.0)
    assert curve.reads(300) == around(0.3)
    # Nobody knows how much there is: at least it does not read more.
    beyond = Curve([Point(100, around(0.5)), Point(300, around(0.3))]).reads(900)
    assert beyond.low == 0
    assert beyond.high is not None
    assert 0.3 < beyond.high < 0.35


def test_intervals_of_reads_cover() -> None:
    """Popularities of no law: some steps, each of its own height; points that are off by 3%."""
    rng = np.random.default_rng(7)
    held, errors = 0, []
    for seed in range(150):
        heights = rng.lognormal(0, 1.5, 6)
        share = np.repeat(heights, rng.integers(50, 800, 6))
        share /= share.sum()
        times = np.geomspace(0.01 / share.max(), 50 / share.min(), 300)[:, None]
        out = np.exp(-share * times)
        sizes, missed = (1 - out).sum(axis=1), (share * out).sum(axis=1)
        first, then, second = np.sort(rng.uniform(0.1, 0.9, 3)) * len(share)
        small, large, truth = (float(np.interp(n, sizes, missed)) for n in (first, second, then))
        points = [
            Point(n, Interval(value * off, value * off * 0.94, value * off * 1.06))
            for n, value, off in ((first, small, rng.normal(1, 0.03)), (second, large, rng.normal(1, 0.03)))
        ]
        found = Curve(points, float(len(share)), 1.0).reads(float(then), seed)
        held += holds(found, truth)
        errors.append(abs(found.estimate / truth - 1))
    # 95% of 150 with three standard errors.
    assert held >= 135
    assert np.median(errors) < 0.1


def test_below_the_smallest_size_only_the_accesses_bound() -> None:
    points = [Point(100, around(0.5)), Point(300, around(0.3))]
    below = Curve(points).reads(50)
    assert below.high is None
    assert below.estimate > 0.5
    bounded = Curve(points, accesses=0.9).reads(50)
    assert bounded.high is not None
    assert 0.7 < bounded.high < 0.8


def test_an_interval_is_wider_the_further_it_is_from_what_was_measured() -> None:
    curve = Curve([Point(100, around(0.5)), Point(300, around(0.3))], 1000)

    def width(pages: float) -> float:
        found = curve.reads(pages)
        assert found.low is not None
        assert found.high is not None
        return found.high - found.low

    assert width(320) < width(450) < width(700)


# What it buys.


def pool_of(reads: Sequence[tuple[float, float]], today: float) -> Pool:
    curve = Curve([Point(size * 64, around(value)) for size, value in reads])
    return Pool(today * 2**20, [size * 2**20 for size, _ in reads], curve)


def test_more_memory_helps_a_host_that_waits_for_its_device() -> None:
    pool = pool_of([(512, 0.8), (1024, 0.4)], today=512)
    known = capacity.known("db1", {CPU: 8.0}, given={READS: 3000.0})
    assert known.limit_from[READS] == "given"
    host = full.outlook(
        one_host({CPU: [1.0] * 24, READS: [1400.0] * 24}), known, pool, {Resource.MEMORY: 2**30}
    )
    bought = {each.resource: each for each in host.bought}
    memory = bought[Resource.MEMORY]
    assert memory.gain.estimate == pytest.approx(2.0, rel=0.01)
    assert holds(memory.gain, 2.0)
    assert memory.what == "a pool of 1 GiB"
    assert bought[READS].gain.estimate == pytest.approx(1.25)
    assert bought[CPU].gain.estimate == 1
    # The same for a host whose cores are full: nothing.
    busy = full.outlook(one_host({CPU: [6.0] * 24, READS: [300.0] * 24}), known, pool)
    memory = next(each for each in busy.bought if each.resource is Resource.MEMORY)
    assert memory.gain.estimate == 1
    assert memory.next is CPU
    assert "a pool of 0.625 GiB" in rendered([busy])


def test_a_faster_device_helps_until_the_cores_are_full() -> None:
    known = capacity.known("db1", {CPU: 8.0}, given={READS: 3000.0})
    host = one_host({CPU: [3.0] * 24, READS: [1400.0] * 24})
    rooms = {each.resource: each.room for each in full.outlook(host, known).outlooks}
    found = full.outlook(host, known, instead={READS: 30_000.0}).bought
    reads = next(each for each in found if each.resource is READS)
    assert reads.next is CPU
    assert reads.gain.estimate == pytest.approx(rooms[CPU] / rooms[READS])
    assert reads.gain.low is not None
    assert reads.gain.high is not None
    # The knees of both are assumed, so it is not known well.
    assert reads.gain.low < 0.9 * reads.gain.estimate
    assert reads.gain.high > 1.1 * reads.gain.estimate
    double = full.outlook(host, known, instead={READS: 4500.0}).bought
    reads = next(each for each in double if each.resource is READS)
    assert reads.gain.estimate == pytest.approx(1.5)
    # A call may use a little more or less of it then, even if nothing else limits.
    assert reads.gain.low == pytest.approx(1.5 * math.exp(-0.05 * math.log2(1.5)), rel=0.03)
    assert reads.gain.high == pytest.approx(1.5 * math.exp(0.05 * math.log2(1.5)), rel=0.03)


def test_a_tighter_limit_of_writes_costs_less_than_the_writes_of_today_say() -> None:
    known = capacity.known("db1", {CPU: 8.0}, given={WRITES: 3000.0})
    used = {CPU: [2.0] * 24, WRITES: [600.0] * 23 + [math.nan]}
    pages = {Part.PAGE_WRITES: np.array([400.0] * 23 + [500.0])}

    def writes(**more: Any) -> float:
        host = full.outlook(one_host(used, **more), known, instead={WRITES: 750.0})
        return next(each for each in host.bought if each.resource is WRITES).after

    assert writes(parts=pages) / writes() == pytest.approx(600 / (400 + 0.25 * 200))


# From samples.


def samples(path: Path, mebibytes: float, reads_per_call: float, *, fills: bool = False) -> Path:
    """A minute, in which the pool is full, or becomes so."""
    lines = []
    for t in range(61):
        wobble = 1 + 0.02 * math.sin(t)
        values = {
            "questions": 1000.0 * t, "innodb_buffer_pool_reads": 1000.0 * t * reads_per_call * wobble,
            "innodb_buffer_pool_read_requests": 5000.0 * t, "innodb_page_size": 16384.0,
            "innodb_buffer_pool_pages_total": mebibytes * 64,
            "innodb_buffer_pool_pages_data": mebibytes * (t if fills else 60),
        }  # fmt: skip
        labelled = {name: {"": value} for name, value in values.items()}
        record = {"t_ns": t * 10**9, "sampler": "mysql_status", "ok": True, "cost_ns": 1, "values": labelled}
        lines.append(json.dumps(record))
    path.write_bytes(zstandard.ZstdCompressor().compress("\n".join([*lines, ""]).encode()))
    return path


def test_the_curve_is_read_from_samples_of_each_size(tmp_path: Path) -> None:
    larger, smaller = samples(tmp_path / "b", 2048, 0.2), samples(tmp_path / "a", 1024, 0.5)
    pool = pool_samples.read([larger, smaller])
    assert pool.size_bytes == 2**31
    assert [point.reads.estimate for point in pool.curve.points] == pytest.approx([0.5, 0.2], rel=0.02)
    assert pool.curve.accesses == pytest.approx(5.0)
    assert pool.saves(2**30).estimate == pytest.approx(0.4, rel=0.03)
    with pytest.raises(PlanError, match="1,024 MiB"):
        pool_samples.read([smaller])
    with pytest.raises(PlanError, match="2,048 MiB, 2,048 MiB"):
        pool_samples.read([larger, samples(tmp_path / "c", 2048, 0.3)])
    with pytest.raises(NothingMeasured, match="no reads from the device"):
        pool_samples.read([larger, samples(tmp_path / "d", 4096, 0.0)])
    with pytest.raises(PlanError, match="more than 1,024 MiB"):
        pool_samples.read([larger, smaller], 2.0**30)
    known = pool_samples.read([larger, smaller], 4 * 2.0**30)
    assert known.curve.data_pages == 4 * 2**16
    assert holds(known.reads(4 * 2.0**30), 0.0)
    with pytest.raises(PlanError, match="read more per call"):
        pool_samples.read([larger, samples(tmp_path / "f", 4096, 0.4)])
    with pytest.raises(NothingMeasured, match="still filling"):
        pool_samples.read([larger, samples(tmp_path / "g", 4096, 0.1, fills=True)])
    (tmp_path / "e").write_bytes(b"not zstd")
    with pytest.raises(NothingMeasured):
        pool_samples.read([larger, tmp_path / "e"])


POOL_SIZES = (("a", 1024, 0.5), ("b", 2048, 0.2))


def pool_options(folder: Path) -> list[str]:
    return [f"--pool={samples(folder / name, size, reads)}" for name, size, reads in POOL_SIZES]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A history of three days of db0: it is read in hours."""
    return str(archive_of(tmp_path_factory.mktemp("history"), hosts=1, days=3).root)


def test_the_command_says_what_memory_and_another_device_bring(tmp_path: Path, root: str) -> None:
    files = pool_options(tmp_path)
    ran = CliRunner().invoke(
        size_app, ["full", root, "--json", "--limit", "packets=10k", "--what-if", "packets=20k", *files]
    )
    assert ran.exit_code == 0, ran.output
    [host] = json.loads(ran.stdout)["hosts"]
    bought = {each["resource"]: each for each in host["bought"]}
    assert bought["packets"]["what"] == "to 20,000"
    # This history has no reads.
    assert "memory" not in bought
    assert any("limit of reads" in note for note in host["notes"])
    packets = next(each for each in host["outlooks"] if each["resource"] == "packets")
    assert (packets["limit"]["estimate"], packets["limit_from"]) == (10_000, "given")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--what-if", "reads=5000"], "limit of reads"),
        (["--what-if", "memory=64G"], "larger pool"),
        (["--what-if", "memory=64G", "POOLS"], "limit of reads"),
        (["--limit", "reads=many"], "not an amount"),
        (["--limit", "speed=3"], "not a resource"),
        (["--limit", "db9=cpu=3"], "no host is named db9"),
        (["--what-if", "cpu=0"], "not an amount"),
        (["--what-if", "space=1T"], "space fills by itself"),
        (["--host", "db0", "--host", "typo"], "no host is named typo"),
        (["--host", "nobody"], "no host is named nobody"),
    ],
)
def test_what_cannot_be_answered_is_refused(tmp_path: Path, root: str, options: list[str], says: str) -> None:
    if options[-1] == "POOLS":
        options = [*options[:-1], *pool_options(tmp_path)]
    ran = CliRunner().invoke(size_app, ["full", root, *options])
    assert ran.exit_code != 0
    assert isinstance(ran.exception, PlanError)
    assert says in str(ran.exception)


@pytest.mark.parametrize("command", ["demand", "merge"])
def test_a_host_that_is_not_there_is_named(tmp_path: Path, root: str, command: str) -> None:
    (tmp_path / "hosts.csv").write_text("name,cpu\nbig,64\n")
    more = ["--catalogue", str(tmp_path / "hosts.csv")] if command == "merge" else []
    ran = CliRunner().invoke(size_app, [command, root, "--host", "db0", "--host", "typo", *more])
    assert isinstance(ran.exception, PlanError)
    assert "no host is named typo" in str(ran.exception)
    assert "the source has db0" in str(ran.exception.hint)


def test_a_limit_of_reads_and_writes_together_is_compared_with_their_sum(tmp_path: Path) -> None:
    """Of 16 days, which have a trend."""
    archive, rng = archive_of(tmp_path / "history", hosts=1, days=16), np.random.default_rng(1)
    for hour in range(16 * 24):
        reads, writes = 300 + 10 * rng.random(), 500 + 10 * rng.random()
        rows = [("demand", "cpu", 1.0, 1.2), ("limit", "cpu", 4.0, 4.0)]
        rows += [("demand", "reads", reads, 2 * reads), ("demand", "writes", writes, 2 * writes)]
        write(archive, "db0", DAY * DAY_S + hour * HOUR_S, rows)
    options = ["--limit", "device_requests=4000", "--what-if", "device_requests=8000"]
    ran = CliRunner().invoke(size_app, ["full", str(archive.root), "--json", *options])
    assert ran.exit_code == 0, ran.output
    [host] = json.loads(ran.stdout)["hosts"]
    both = next(each for each in host["outlooks"] if each["resource"] == "device_requests")
    assert both["peak"] == pytest.approx(1640, rel=0.02)
    assert both["mean"] == pytest.approx(810, rel=0.01)
    assert both["growth"]["days"] == 16
    bought = {each["resource"]: each for each in host["bought"]}
    assert bought["device_requests"]["what"] == "to 8,000"
    shown = CliRunner().invoke(size_app, ["full", str(archive.root), *options])
    assert "device requests" in shown.output


def test_what_was_measured_on_one_host_is_laid_over_what_is_of_all(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "history", days=3)
    for host in ("db0", "db1"):
        for hour in range(3 * 24):
            rows = [("demand", "cpu", 1.0, 1.2), ("demand", "reads", 90.0, 100.0), ("limit", "cpu", 4.0, 4.0)]
            rows.append(("demand", "packets", 90.0, 100.0))
            write(archive, host, DAY * DAY_S + hour * HOUR_S, rows)

    def rung(name: str, ns: float) -> dict[str, Any]:
        return {"rung": name, "median_ns": ns, "low_ns": ns, "high_ns": ns, "spoiled_by": []}

    files = {
        "all": {"rungs": [rung("device_read", 1e6), rung("device_read_32", 1e5)]},
        "packets": {
            "rungs": [],
            "packets": [
                {"rps": "", "size": [64, 64], "packets_s": {"estimate": 5000.0, "low": None, "high": None}}
            ],
        },
        "own": {"rungs": [rung("device_read", 5e5)]},
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))

    def limits(*given: str) -> list[dict[str, float]]:
        options = [
            f"--latencies={each}{tmp_path / name}" for each, name in (word.split("/") for word in given)
        ]
        ran = CliRunner().invoke(size_app, ["full", str(archive.root), "--json", *options])
        assert ran.exit_code == 0, ran.output
        hosts = sorted(json.loads(ran.stdout)["hosts"], key=lambda host: host["name"])
        return [{each["resource"]: each["limit"]["estimate"] for each in host["outlooks"]} for host in hosts]

    for given in (["/all", "db1=/packets"], ["db1=/packets", "/all"]):
        first, second = limits(*given)
        assert first == {"cpu": 4.0, "reads": 10_000}
        assert second == {"cpu": 4.0, "reads": 10_000, "packets": 5000}
    # Its own, though one at a time, and not the better rung of the others.
    assert [each["reads"] for each in limits("/all", "db1=/own")] == [10_000, 2000]


def test_the_data_of_one_host_counts_with_the_pool_of_all(tmp_path: Path) -> None:
    from headrace.capacity.commands.size_full import BuyOptions, _pools

    hosts = [one_host({CPU: [1.0]}, name) for name in ("db0", "db1")]
    words = [str(samples(tmp_path / name, size, reads)) for name, size, reads in POOL_SIZES]
    pools = _pools(hosts, BuyOptions(pool=words, data=["db1=40G"]))
    paths, larger = [Path(word) for word in words], 16 * 2**30
    assert pools["db0"].saves(larger) == pool_samples.read(paths, math.inf).saves(larger)
    assert pools["db1"].saves(larger) == pool_samples.read(paths, 40 * 2**30).saves(larger)
    assert pools["db1"].saves(larger) != pools["db0"].saves(larger)


@pytest.mark.parametrize("option", ["--need", "--limit", "--what-if"])
def test_what_is_said_of_a_host_replaces_what_is_said_of_all(option: str) -> None:
    for words in (["db1=reads=6000", "reads=3000"], ["reads=3000", "db1=reads=6000"]):
        found = size_source.amounts(words, ["db1", "db2"], option)
        assert found == {"db1": {READS: 6000}, "db2": {READS: 3000}}


@pytest.mark.parametrize(
    ("text", "resource", "value"),
    [
        ("64G", "memory", 64 * 2**30),
        ("64GiB", "memory", 64 * 2**30),
        ("64 GB", "memory", 64 * 2**30),
        ("2T", "space", 2 * 2**40),
        ("10k", "reads", 10_000),
        ("10K", "reads", 10_000),
        ("1.5e6", "packets", 1_500_000),
        ("200M", "read_bytes", 200e6),
        ("200MiB", "read_bytes", 200 * 2**20),
    ],
)
def test_an_amount_means_the_same_in_an_option_and_in_a_catalogue(
    tmp_path: Path, text: str, resource: str, value: float
) -> None:
    path = tmp_path / "hosts.csv"
    path.write_text(f"name,{resource},{resource}_burst\na,{text},{text}\n")
    [offer] = catalogue.read(path).offers
    assert offer.capacity.limit[Resource(resource)].estimate == value
    assert offer.capacity.burst[Resource(resource)] == value
    found = size_source.amounts([f"{resource}={text}"], ["db1"], "--need")
    assert found == {"db1": {Resource(resource): value}}
