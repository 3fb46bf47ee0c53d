"""`headrace size` on a real server whose data do not fit in memory: predicted against measured.

1. A device: the largest throughput of 64 clients under other limits (requests or bytes per second) than the one
under which a call's reads and writes were measured. 2. Memory: the same at other sizes of the buffer pool, from
the reads per call at two sizes. Three kinds of calls: reads of even keys, reads of skewed keys, and reads with
updates. The peer is what people do: throughput in proportion to the limit, reads in proportion to what does not
fit.

What a limit brings is what lasts. So a play counts only after the first second (a throttle lets the first requests
pass, and pages in memory answer before the first read waits), and a server that writes is first brought into
balance: what filling its table left dirty is written, and a play warms up under its own limit, without a pause in
which pages could be written for nothing.

The device is a loop device that control groups (v1) limit; reads and writes pass the page cache by. The server has
a quota of CPU, so that other work on the machine takes little from it. Targets: median error at most 10%, and 90%
of the intervals hold what was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from benches.size import limited as cores_limited
from tests.driver import driven
from tests.lab import check, confined, loop_device
from tests.servers import Server, mariadb, open_folder
from tests.traces import cpu_s

from headrace.base.intervals import Interval
from headrace.capacity.buy import SAVED
from headrace.capacity.capacity import exactly
from headrace.capacity.device import Largest, carried, largest, multiplied
from headrace.capacity.model import Resource
from headrace.capacity.pool import Curve, Point, Pool
from headrace.capacity.used import Part

MINUTES = 18
NEEDS = {"mariadbd": "mariadb-server", "mkfs.ext4": "e2fsprogs"}
NEEDS_ROOT = True

SECONDS = float(os.environ.get("HEADRACE_BENCH_SECONDS", "5"))
ROUNDS = int(os.environ.get("HEADRACE_BENCH_ROUNDS", "3"))
CLIENTS, ROWS, CORES, FILL_S, WARMUP_S = 64, 240_000, 0.25, 3.0, 1.0
TARGET, GIVEN = 0.10, 0.9
#: A seed for each play: the keys of another one would still be in memory.
SEEDS = itertools.count(1)
RNG = np.random.default_rng(1)
PAGE, RESIZE_S, CLEAN_S, CLEAN_PAGES = 16_384, 30.0, 30.0, 100
#: Mix -> (share, statement) of its calls, and the distribution of keys.
MIXES: dict[str, tuple[list[tuple[int, str]], str]] = {
    "even": ([(1, "SELECT pad FROM t WHERE id = ?")], "uniform"),
    "skewed": ([(1, "SELECT pad FROM t WHERE id = ?")], "zipf"),
    "mixed": (
        [(4, "SELECT pad FROM t WHERE id = ?"), (1, "UPDATE t SET k = k + 1 WHERE id = ?")],
        "uniform",
    ),
}
#: What is measured first, and what is predicted from it.
REFERENCE: tuple[Resource, float] = (Resource.READS, 1000)
OTHERS: dict[str, list[tuple[Resource, float]]] = {
    "even": [*((Resource.READS, n) for n in (250, 500, 2000, 4000)), (Resource.READ_BYTES, 12e6)],
    "skewed": [*((Resource.READS, n) for n in (250, 500, 2000, 4000)), (Resource.READ_BYTES, 12e6)],
    "mixed": [
        *((Resource.READS, n) for n in (250, 500, 2000)),
        *((Resource.WRITES, n) for n in (150, 300)),
        (Resource.WRITE_BYTES, 3e6),
    ],
}
#: What limits while the pool changes: few reads, so that memory decides.
SCARCE: tuple[Resource, float] = (Resource.READS, 150)
#: Sizes of the buffer pool in MiB: the two that are measured first, and those that are predicted.
SEEN, UNSEEN = (48, 112), (32, 80, 144, 176)
COLUMNS = {
    Resource.READS: "read_iops", Resource.WRITES: "write_iops", Resource.READ_BYTES: "read_bps",
    Resource.WRITE_BYTES: "write_bps",
}  # fmt: skip


@dataclass(frozen=True)
class Play:
    """``call``: what one used; ``pages`` of data in the pool."""

    per_s: float
    call: Mapping[str, float]
    pages: float


@dataclass(frozen=True)
class Row:
    error: float
    holds: bool
    naive: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "rows", nargs="*", default=["*"], help="patterns, such as 'mixed write*' or '* pool 32'; all if none"
    )
    asked = parser.parse_args().rows
    rows: list[Row] = []
    # Not every server lets a pool grow beyond the size that it began with.
    with lab(max(UNSEEN)) as (server, device):
        [(pages,)] = server.sql(
            f"SELECT CEIL(data_length / {PAGE}) FROM information_schema.tables WHERE table_name = 't'"
        )
        for mix in MIXES:
            limits = [(r, n) for r, n in OTHERS[mix] if chosen(f"{mix} {r} {n:.0f}", asked)]
            if limits:
                rows += devices(server, device, mix, limits)
            sizes = [size for size in UNSEEN if chosen(f"{mix} pool {size}", asked)]
            if sizes:
                rows += pools(server, device, mix, float(str(pages)), sizes)
    if not rows:
        raise SystemExit(f"no row is called {' or '.join(asked)}")
    middle = statistics.median(abs(row.error) for row in rows)
    held = sum(row.holds for row in rows)
    naive = statistics.median(abs(row.naive) for row in rows)
    print(
        f"median error {middle:.1%} (target {TARGET:.0%}: {'met' if middle <= TARGET else 'MISSED'}; of the peer "
        f"{naive:.1%}), {held} of {len(rows)} intervals hold it (target 90%: "
        f"{'met' if held >= 0.9 * len(rows) else 'MISSED'})"
    )


def chosen(name: str, asked: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in asked)


def devices(server: Server, device: str, mix: str, limits: Sequence[tuple[Resource, float]]) -> Iterator[Row]:
    print(f"{mix}: largest throughput under other limits of the device, from {REFERENCE[1]:,} reads/s:")
    plays: dict[tuple[Resource, float], list[Play]] = {}
    resize(server, SEEN[0])
    clean(server)
    with cores_limited(server, CORES), limited(server, device, REFERENCE):
        play(server, device, mix, 3 * SECONDS)
    half = len(limits) // 2
    for _ in range(ROUNDS):
        for limit in (REFERENCE, *limits[:half], REFERENCE, *limits[half:]):
            with cores_limited(server, CORES), limited(server, device, limit):
                # Until as many pages are written as become dirty; and they are written in bursts.
                length = (2 * SECONDS, SECONDS) if mix == "mixed" else (SECONDS, WARMUP_S)
                plays.setdefault(limit, []).append(play(server, device, mix, *length))
    calls = [each.call for each in plays[REFERENCE]]
    seen = statistics.median(each.per_s for each in plays[REFERENCE])
    told("reference", plays[REFERENCE])
    for limit in limits:
        resource, most = limit
        found = largest(carried(calls, {resource: exactly(most), Resource.CPU: exactly(CORES)}, RNG))
        # Without a model: what it was, times how much more is allowed.
        used = statistics.median(call[resource] for call in calls) * seen
        yield from compared(f"{resource} {most:,.0f}/s", found, plays[limit], seen * most / used)


def pools(server: Server, device: str, mix: str, data_pages: float, unseen: Sequence[int]) -> Iterator[Row]:
    print(f"{mix}: largest throughput with other sizes of the buffer pool, from {SEEN} MiB:")
    plays: dict[int, list[Play]] = {}
    for _ in range(max(ROUNDS - 1, 2)):
        for size in sorted((*SEEN, *unseen)):
            resize(server, size)
            play(server, device, mix, FILL_S)
            with cores_limited(server, CORES), limited(server, device, SCARCE):
                plays.setdefault(size, []).append(play(server, device, mix))
    for size in SEEN:
        told(f"{size} MiB, {statistics.mean(p.pages for p in plays[size]):,.0f} pages", plays[size])
    points = []
    for size in SEEN:
        seen = [each.call[Resource.READS] for each in plays[size]]
        pages = statistics.mean(each.pages for each in plays[size])
        points.append(Point(pages, Interval(statistics.mean(seen), min(seen), max(seen))))
    sizes = [size * 2.0**20 for size in SEEN]
    pool = Pool(sizes[0], sizes, Curve(points, data_pages, 1.0))
    limits = {SCARCE[0]: exactly(SCARCE[1]), Resource.CPU: exactly(CORES)}
    now = carried([each.call for each in plays[SEEN[0]]], limits, RNG)
    for size in unseen:
        reads = pool.reads(size * 2.0**20)
        found = largest(multiplied(now, SAVED, pool.saves(size * 2.0**20), RNG))
        did = statistics.median(each.call[Resource.READS] for each in plays[size])
        ends = f"{reads.low or 0:.3f} to {reads.high or math.inf:.3f}"
        print(f"    reads per call {reads.estimate:.3f} ({ends}), measured {did:.3f}")
        # Without a model: reads in proportion to the data that do not fit.
        left = max(data_pages - size * 2**20 / PAGE, 1.0) / (data_pages - SEEN[0] * 2**20 / PAGE)
        naive = statistics.median(each.per_s for each in plays[SEEN[0]]) / left
        yield from compared(f"{size} MiB", found, plays[size], naive)


def told(what: str, plays: Sequence[Play]) -> None:
    uses = ", ".join(f"{r} {statistics.median(p.call[r] for p in plays):.3g}" for r in plays[0].call)
    print(
        f"  {what}: {statistics.median(p.per_s for p in plays):,.0f} calls/s; a call uses {uses}", flush=True
    )


def compared(what: str, found: Largest, plays: Sequence[Play], naive: float) -> Iterator[Row]:
    """Where the CPU is to limit, a play counts only if the machine gave the server its quota."""
    cores = statistics.median(each.call[Resource.CPU] * each.per_s for each in plays)
    if found.by is Resource.CPU:
        plays = [each for each in plays if each.call[Resource.CPU] * each.per_s >= GIVEN * CORES]
    if not plays:
        print(f"  {what:20} not measured, the machine is too busy: {cores:.2f} of {CORES} cores")
        return
    rounds = [each.per_s for each in plays]
    measured = statistics.median(rounds)
    low, high = found.per_s.low or 0.0, found.per_s.high or float("inf")
    row = Row(found.per_s.estimate / measured - 1, low <= measured <= high, naive / measured - 1)
    print(
        f"  {what:20} predicted {found.per_s.estimate:7,.0f} ({low:,.0f} to {high:,.0f}) by {found.by}, "
        f"measured {measured:7,.0f} ({min(rounds):,.0f} to {max(rounds):,.0f}): {row.error:+.1%}"
        f"{'' if row.holds else ', outside its interval'}; peer {row.naive:+.1%}; {_rate(plays, found.by)}",
        flush=True,
    )
    yield row


def _rate(plays: Sequence[Play], by: str) -> str:
    """Of what limits: a throttle may let more pass than it says."""
    return f"{statistics.median(each.call[by] * each.per_s for each in plays):,.3g} {by}/s"


def spec(mix: str, seconds: float, warmup_s: float) -> dict[str, Any]:
    statements, keys = MIXES[mix]
    key = {"kind": "int", "min": 1, "max": ROWS, "distribution": {"kind": keys}}
    operations = [
        {"name": f"op{n}", "weight": weight, "statements": [{"sql": sql, "parameters": [key]}]}
        for n, (weight, sql) in enumerate(statements)
    ]
    return {
        "workload": {"kind": "sql", "prepared": True, "operations": operations},
        "connections": CLIENTS,
        "warmup_s": warmup_s,
        "seconds": seconds,
        "pacing": {"kind": "closed"},
        "seed": next(SEEDS),
    }


def counters(server: Server, device: str) -> dict[str, float]:
    disk = [float(word) for word in Path(f"/sys/block/{Path(device).name}/stat").read_text().split()]
    # A page that became dirty is a write that was put off.
    status = {str(name): value for name, value in server.sql("SHOW GLOBAL STATUS LIKE 'Innodb%pages_%'")}
    pages, copies, dirty = (
        float(str(status[f"Innodb_{name}"]))
        for name in ("pages_written", "dblwr_pages_written", "buffer_pool_pages_dirty")
    )
    return {
        Resource.CPU: cpu_s(server.pid),
        Resource.READS: disk[0],
        Resource.READ_BYTES: disk[2] * 512,
        Resource.WRITES: disk[4] + dirty,
        Resource.WRITE_BYTES: disk[6] * 512 + 2 * PAGE * dirty,
        Part.PAGE_WRITES: pages + dirty,
        Part.PAGE_BYTES: PAGE * (pages + copies + 2 * dirty),
    }


def play(server: Server, device: str, mix: str, seconds: float = SECONDS, warmup_s: float = WARMUP_S) -> Play:
    login = ["--mysql-socket", server.socket, "--mysql-user", "root", "--mysql-database", "shop"]
    before, pages = counters(server, device), server.status("Innodb_buffer_pool_pages_data")
    done = driven(login, spec(mix, seconds, warmup_s))
    after = counters(server, device)
    pages += server.status("Innodb_buffer_pool_pages_data")
    inside = sum(row["count"] for row in done.rows() if row["kind"] == "interval" and row["t_s"] >= 0)
    calls = done.sum("count")
    return Play(inside / done.window_s, {r: (after[r] - before[r]) / calls for r in before}, pages / 2)


def clean(server: Server) -> None:
    """Until nearly all pages are written and purged, as without any load."""
    server.sql("SET GLOBAL innodb_max_dirty_pages_pct = 0")
    deadline = time.monotonic() + CLEAN_S
    while (
        server.status("Innodb_buffer_pool_pages_dirty") > CLEAN_PAGES
        or server.status("Innodb_history_list_length") > CLEAN_PAGES
    ):
        if time.monotonic() > deadline:
            raise RuntimeError("the server did not write its dirty pages")
        time.sleep(0.1)
    server.sql("SET GLOBAL innodb_max_dirty_pages_pct = DEFAULT")


def resize(server: Server, mebibytes: int) -> None:
    """It is done in the background; a page that is in use makes it wait."""
    server.sql(f"SET GLOBAL innodb_buffer_pool_size = {mebibytes * 2**20}")
    pages = mebibytes * 2**20 / PAGE
    deadline = time.monotonic() + RESIZE_S
    while not 0.9 * pages <= server.status("Innodb_buffer_pool_pages_total") <= pages:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the pool did not become {mebibytes} MiB")
        time.sleep(0.1)


def limited(
    server: Server, device: str, limit: tuple[Resource, float]
) -> contextlib.AbstractContextManager[None]:
    number = Path(f"/sys/block/{Path(device).name}/dev").read_text().strip()
    name = f"blkio.throttle.{COLUMNS[limit[0]]}_device"
    return confined(server.pid, "blkio", {name: f"{number} {round(limit[1])}"})


@contextlib.contextmanager
def lab(pool: int) -> Iterator[tuple[Server, str]]:
    """A server with its data on a device of its own. With the usual settings a pool this small would keep half of
    itself free, and drop pages before they are old enough to be kept. Pages are written alone, as on flash."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(open_folder())
        check("truncate", "-s", "3G", folder / "disk.img")
        device = stack.enter_context(loop_device(folder / "disk.img"))
        check("mkfs.ext4", "-q", device)
        mount = folder / "d"
        mount.mkdir()
        check("mount", device, mount)
        stack.callback(check, "umount", mount)
        server = stack.enter_context(
            mariadb(
                mount / "m", f"--innodb-buffer-pool-size={pool}M", "--innodb-buffer-pool-chunk-size=1M",
                "--innodb-flush-method=O_DIRECT", "--innodb-log-file-size=256M", "--innodb-lru-scan-depth=128",
                "--innodb-old-blocks-time=10", "--innodb-flush-neighbors=0",
            )
        )  # fmt: skip
        texts = ", ".join(f"{name} CHAR(233) NOT NULL" for name in ("pad", "more", "rest"))
        filled = ", ".join(["REPEAT('x', 233)"] * 3)
        server.sql(
            "CREATE DATABASE shop",
            f"CREATE TABLE shop.t (id INT PRIMARY KEY, k INT NOT NULL, {texts})",
            f"INSERT INTO shop.t SELECT seq, seq % 97, {filled} FROM shop.seq_1_to_{ROWS}",
            "ANALYZE TABLE shop.t",
        )
        yield server, device


if __name__ == "__main__":
    main()
