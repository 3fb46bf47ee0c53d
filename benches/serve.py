"""Pages on a long history: first byte, time until a page is drawn, memory and CPU of the server.

    python benches/serve.py [DAYS HOSTS CLASSES]

The history is generated: days for the whole time, hours for the last week, minutes for the last hour; then weeks
are made of the days, as the product does. Each class has calls in every unit, and its latencies jump from unit to
unit, which is more than real classes do: so the sum of a week has as many buckets as its days.

First: a server that was just started, on a history of which nobody has asked this before; no content of its files
is in memory (their names may be). Restarted: the next server, likewise, but the page was shown before and its sums
are on disk. On a machine that others use, too, compare the CPU's time, not the wall's.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests import browser  # noqa: E402
from tests.below import within  # noqa: E402
from tests.traces import cpu_s  # noqa: E402

from headrace.history.archive.files import DAY_S, HOUR_S, MINUTE_S, Archive  # noqa: E402
from headrace.history.archive.rollup import weekly  # noqa: E402
from headrace.history.archive.sums import Sums  # noqa: E402
from headrace.history.archive.tables import TABLES, Table  # noqa: E402

MINUTES = 12
SOURCE = "slow log"
#: Latency buckets of a class in one unit.
BUCKETS = 12
TRIES = 7
PAGES = (
    "/",
    "/?range=90d",
    "/host?host=db01&range=1h",
    "/host?host=db01&range=90d",
    "/queries?host=db01&range=1h",
    "/queries?host=db01&range=7d",
    "/queries?host=db01&range=90d",
    "/queries?range=90d",
    "/query?host=db01&range=90d&source=slow+log&class=c00007",
    "/compare?host=db01&range=30d",
    "/api/chart.json?host=db01&range=90d&metric=cpu",
)


def main() -> None:
    days, hosts, classes = (int(word) for word in (sys.argv[1:] or ("90", "20", "2000")))
    names = [f"db{i + 1:02}" for i in range(hosts)]
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(Path(folder) / "history")
        archive.create()
        began = time.monotonic()
        generate(archive, names, days, classes)
        made, began_weeks, before = 0, time.monotonic(), time.process_time()
        while found := weekly(archive, time.time()):
            made += found
        print(
            f"{made:,} weeks made in {time.monotonic() - began_weeks:.0f} s, "
            f"CPU {time.process_time() - before:.0f} s"
        )
        files = sum(1 for _ in archive.root.rglob("*.parquet"))
        size_mb = archive.size_bytes() / 1e6
        print(
            f"{days} days x {hosts} hosts x {classes} classes: {files:,} files, {size_mb:,.0f} MB,", end=" "
        )
        print(f"made in {time.monotonic() - began:.0f} s", flush=True)
        measure(archive, Path(folder))


def generate(archive: Archive, hosts: list[str], days: int, classes: int) -> None:
    now = int(time.time())
    today = now // DAY_S * DAY_S
    random = np.random.default_rng(1)
    for host in hosts:
        for day in range(today - days * DAY_S, today, DAY_S):
            unit(archive, random, host, "d", day, DAY_S, classes)
        for hour in range(
            max(now // HOUR_S * HOUR_S - 8 * DAY_S, today - days * DAY_S), now // HOUR_S * HOUR_S, HOUR_S
        ):
            unit(archive, random, host, "h", hour, HOUR_S, classes // 4)
        for minute in range(now // MINUTE_S * MINUTE_S - HOUR_S, now // MINUTE_S * MINUTE_S, MINUTE_S):
            unit(archive, random, host, "m", minute, MINUTE_S, classes // 20)


def unit(archive: Archive, random: Any, host: str, kind: str, t_s: int, width_s: int, classes: int) -> None:
    minutes = width_s // MINUTE_S
    names = np.array([f"c{i:05}" for i in range(classes)])
    calls = random.integers(1, 50, classes) * minutes
    save(
        archive,
        "classes",
        host,
        kind,
        t_s,
        classes,
        {
            "source": [SOURCE] * classes,
            "class": names,
            "database": ["shop"] * classes,
            "calls": calls,
            "timed": calls,
            "time_ns": calls * random.uniform(1e5, 1e7, classes),
            "rows_examined": calls * 10,
            "errors": calls * 0,
            "most_ns": random.integers(1e6, 1e9, classes),
        },
    )
    buckets = (
        (random.integers(1200, 2400, classes)[:, None] + np.arange(BUCKETS) * 20).ravel().astype(np.int32)
    )
    save(
        archive,
        "buckets",
        host,
        kind,
        t_s,
        classes * BUCKETS,
        {
            "source": [SOURCE] * (classes * BUCKETS),
            "class": np.repeat(names, BUCKETS),
            "bucket": buckets,
            "count": random.integers(1, 9, classes * BUCKETS) * minutes,
        },
    )
    if kind != "m":
        texts = [f"select * from t{i} where id = ? and note like ?" for i in range(classes)]
        save(
            archive,
            "texts",
            host,
            kind,
            t_s,
            classes,
            {
                "source": [SOURCE] * classes,
                "class": names,
                "text": texts,
                "tables": ['["t"]'] * classes,
            },
        )
    busy = random.uniform(0, 1)
    save(
        archive,
        "metrics",
        host,
        kind,
        t_s,
        1,
        {
            "metric": ["cpu"],
            "label": ["busy"],
            "n": [minutes],
            "sum": [busy * minutes],
            "least": [0.0],
            "most": [1.0],
        },
    )
    save(
        archive,
        "resources",
        host,
        kind,
        t_s,
        1,
        {
            "resource": ["cpu"],
            "instance": [""],
            "minutes": [minutes],
            "used_minutes": [minutes],
            "used_sum": [busy * minutes],
            "used_most": [1.0],
            "saturated": [0],
            "busy": [0],
            "unknown": [0],
            "erring": [0],
            "load": [""],
            "saturation": [""],
            "errors": [""],
        },
    )
    save(
        archive,
        "states",
        host,
        kind,
        t_s,
        1,
        {
            "state": ["ok"],
            "limiting": [""],
            "minutes": [minutes],
            "sampled_s": [60.0 * minutes],
            "sentence": ["No bottleneck found."],
            "problem": [""],
            "findings": ["[]"],
        },
    )


def save(
    archive: Archive, name: str, host: str, kind: str, t_s: int, rows: int, columns: dict[str, Any]
) -> None:
    """Write without fsync: if the machine dies, the bench is run again."""
    table: Table = TABLES[name]
    arrays = [
        pa.array([t_s] * rows, pa.int64())
        if field.name == "t_s"
        else pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(rows, field.type)
        for field in table.schema
    ]
    path = archive.path(name, host, kind, t_s)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_arrays(arrays, schema=table.schema), path, compression="zstd")


class Server:
    """``headrace serve`` on a history, and a browser's session with it."""

    def __init__(self, archive: Archive, folder: Path) -> None:
        self.process = started(archive, folder)
        assert self.process.stdout
        self.link = self.process.stdout.readline().strip()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        with self._opener.open(self.link) as answer:
            self.url = answer.url.removesuffix("/")  # below which the session is

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    def answer_ms(self, page: str) -> tuple[float, float, float]:
        """Until the first byte, until the last, and CPU of the server."""
        before, began = cpu_s(self.process.pid), time.perf_counter()
        with self._opener.open(self.url + page) as answer:
            answer.read(1)
            first = time.perf_counter() - began
            answer.read()
        whole = time.perf_counter() - began
        return 1000 * first, 1000 * whole, 1000 * (cpu_s(self.process.pid) - before)


def started(archive: Archive, folder: Path) -> subprocess.Popen[str]:
    argv = [
        sys.executable,
        "-m",
        "headrace",
        "serve",
        "--data",
        str(archive.root),
        "--listen",
        "127.0.0.1:0",
        "--keep",
        "4000d",
        "--slow-log",
        "off",
        "--experiments",
        str(folder),
    ]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def measure(archive: Archive, folder: Path) -> None:
    print(f"{'page, ms: first byte, whole, CPU':60} {'first':>20} {'restarted':>20} {'warm, median':>20}")
    for page in PAGES:
        Sums(archive.root).clear()
        forget(archive)
        with Server(archive, folder) as server:
            first = server.answer_ms(page)
            warm = list(zip(*(server.answer_ms(page) for _ in range(TRIES)), strict=True))
        forget(archive)
        with Server(archive, folder) as server:
            numbers = [*first, *server.answer_ms(page), *map(statistics.median, warm)]
        print(f"{page:60} " + " ".join(f"{number:6.0f}" for number in numbers), flush=True)
    with Server(archive, folder) as server:
        for page in PAGES:
            server.answer_ms(page)
        now, most = (memory_mb(server.process.pid, name) for name in ("VmRSS", "VmHWM"))
        print(f"memory of a server that has shown each page: {now:.0f} MB, at most {most:.0f} MB")
        if browser.chromium_path():
            drawn(server.link)
        before, began = cpu_s(server.process.pid), time.monotonic()
        time.sleep(65)
        share = (cpu_s(server.process.pid) - before) / (time.monotonic() - began)
        print(
            f"CPU of the server in its first minutes while nobody looks: {100 * share:.1f}% of a core; "
            "as every 10 minutes, the history is rolled up and its long lists are read"
        )


def forget(archive: Archive) -> None:
    """Drop the files' content from memory: only these, as others may measure on this machine."""
    os.sync()
    for path in archive.root.rglob("*.parquet"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def drawn(link: str) -> None:
    """From the navigation to the page's scripts having run, in headless Chromium."""
    with browser.page() as tab:
        url = within(tab, link)
        for page in ("/queries?host=db01&range=90d", "/host?host=db01&range=90d"):
            took = []
            for _ in range(3):
                tab.open(url + page)
                took.append(
                    tab.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
                )
            print(f"{page:66} interactive after {statistics.median(took):.0f} ms")


def memory_mb(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1e3


if __name__ == "__main__":
    main()
