"""Debian's Prometheus with mysqld_exporter and node_exporter: what it kept is what the server counted, and what it
scrapes of ours is what was told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.base.effect import Verdict
from headrace.base.errors import TargetError
from headrace.base.intervals import Interval
from headrace.change.production import Observed
from headrace.change.production.histograms import load, observe
from headrace.change.production.prometheus import Question, read
from headrace.history.archive.files import MINUTE_S, Archive
from headrace.history.archive.reader import Range, Reader
from headrace.history.collect.clients import Clients
from headrace.history.collect.readers import bucket_ending_at
from headrace.history.collect.sources import Source
from headrace.show.notice import Conclusion, Notice, Told
from headrace.tell.places import places_of, tell
from tests.commands import headrace
from tests.driver import driven
from tests.servers import Server, free_port, mariadb

pytestmark = pytest.mark.needs(
    "prometheus", "prometheus-node-exporter", "prometheus-mysqld-exporter", "mariadbd"
)
BUCKETS = "mysql_info_schema_query_response_time_seconds_bucket"
SLEEPS = "SELECT SLEEP(0.02 + 0.1 * RAND())"
PATIENCE_S = 60.0


def eventually(found: Callable[[], Any], what: str) -> Any:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with contextlib.suppress(TargetError, urllib.error.URLError, ConnectionError):
            if value := found():
                return value
        time.sleep(0.2)
    raise AssertionError(f"not within {PATIENCE_S:g} s: {what}")


@contextlib.contextmanager
def program(name: str, folder: Path, *options: str, **env: str) -> Iterator[None]:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [name, *options], env={**os.environ, **env}, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with mariadb(folder / "m") as server:
        server.sql(
            "CREATE DATABASE shop", "INSTALL SONAME 'query_response_time'",
            "SET GLOBAL query_response_time_range_base = 2",
            "SET GLOBAL query_response_time_flush = ON", "SET GLOBAL query_response_time_stats = ON",
        )  # fmt: skip
        yield server


@pytest.fixture(scope="module")
def prometheus(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Its address, and node_exporter's textfile folder."""
    folder = tmp_path_factory.mktemp("prometheus")
    texts = folder / "texts"
    texts.mkdir()
    own, mysqld, node = (f"127.0.0.1:{free_port()}" for _ in range(3))
    jobs = {"mysqld": mysqld, "node": node}
    (folder / "p.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                "scrape_configs": [
                    {
                        "job_name": job,
                        "static_configs": [{"targets": [at], "labels": {"instance": "db1:9104"}}],
                    }
                    for job, at in jobs.items()
                ],
            }
        )
    )
    with (
        program(
            "prometheus-mysqld-exporter", folder, f"--web.listen-address={mysqld}",
            "--collect.info_schema.query_response_time",
            DATA_SOURCE_NAME=f"root@unix({server.socket})/",
        ),
        program(
            "prometheus-node-exporter", folder, f"--web.listen-address={node}", "--collector.disable-defaults",
            "--collector.textfile", f"--collector.textfile.directory={texts}",
        ),
        program(
            "prometheus", folder, f"--config.file={folder / 'p.yml'}", f"--web.listen-address={own}",
            f"--storage.tsdb.path={folder / 'data'}",
        ),
    ):  # fmt: skip
        yield f"http://{own}", texts


def asked(url: str, since_s: float) -> Observed:
    return read(Question(url, BUCKETS, since_s, time.time() + 1, 1.0))


def slow(found: Observed) -> dict[float, float]:
    """Lower bound in ns -> events, of the buckets that nothing but the load fills."""
    sums: dict[float, float] = {}
    for each in found.series:
        for lower, count in zip(each.edges_ns[:-1], each.counts.sum(axis=0), strict=True):
            if lower >= 1.5e7 and count:
                sums[float(round(lower, -3))] = sums.get(float(round(lower, -3)), 0.0) + float(count)
    return sums


def test_its_history_is_what_the_server_counted(
    prometheus: tuple[str, Path], server: Server, tmp_path: Path
) -> None:
    url, _ = prometheus
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    path = tmp_path / "db1.histograms"

    def snapshot() -> None:
        done = headrace("record", "histograms", "--append", str(path), "--name", "db1", *login)
        assert done.returncode == 0, done.stderr

    since_s = time.time() - 1
    eventually(lambda: asked(url, since_s).series, "a stretch before the load")
    snapshot()
    operation = {"name": "sleep", "statements": [{"sql": SLEEPS}]}
    spec = {
        "workload": {"kind": "sql", "prepared": False, "operations": [operation]}, "connections": 8, "seconds": 4,
    }  # fmt: skip
    run = driven([*login, "--mysql-database", "shop"], spec)
    snapshot()
    calls = sum(run.histogram("service").values())
    own = slow(observe(load([path])))
    assert sum(own.values()) >= calls
    eventually(lambda: sum(slow(asked(url, since_s)).values()) >= calls, "all of the load in its history")
    kept = slow(asked(url, since_s))
    # The plugin has other digits than the exporter: bounds agree to a thousandth.
    assert np.allclose(sorted(kept), sorted(own), rtol=1e-3)
    more = [kept[a] - own[b] for a, b in zip(sorted(kept), sorted(own), strict=True)]
    # Its history is longer than ours by what the exporter asked; on a busy machine some of that is slow, too.
    assert min(more) >= 0
    assert sum(more) <= 0.1 * sum(own.values())


def test_what_was_told_is_scraped(prometheus: tuple[str, Path]) -> None:
    url, texts = prometheus
    effect = Told("all hosts", "p99", Interval(1.12, 1.08, 1.16), Verdict.WORSE)
    notice = Notice("verify", 'db[1-8] "x"', Conclusion.WORSE, "p99 is worse.", (effect,))
    assert not tell(notice, places_of([f"metrics:{texts}"]))

    def scraped() -> Any:
        words = urllib.parse.urlencode({"query": 'headrace_verdict{verdict="worse"} == 1'})
        with urllib.request.urlopen(f"{url}/api/v1/query?{words}", timeout=5) as reply:
            return json.load(reply)["data"]["result"]

    [series] = eventually(scraped, "the verdict in Prometheus")
    assert series["metric"]["subject"] == 'db[1-8] "x"'
    assert series["metric"]["kind"] == "verify"


@pytest.mark.thorough
async def test_a_minute_of_clients_has_what_was_called_in_it(
    server: Server, prometheus: tuple[str, Path], tmp_path: Path
) -> None:
    """What `serve --clients` keeps of a whole minute, of which Prometheus must have both ends."""
    archive = Archive(tmp_path / "history")
    clients = Clients(archive, [Source(prometheus=prometheus[0], query=BUCKETS)], ["db1"])
    start_s = int(time.time()) // MINUTE_S * MINUTE_S + MINUTE_S
    await asyncio.sleep(start_s + 5 - time.time())
    for _ in range(40):
        server.sql("SELECT SLEEP(0.04)")
    await asyncio.sleep(start_s + MINUTE_S + 10 - time.time())
    await clients.collect(start_s + MINUTE_S)
    assert clients.problem == ""
    [file] = archive.files("clients", "db1")
    assert file.t_s == start_s
    rows = Reader(archive).rows("clients", "SELECT * FROM rows", "db1", Range(start_s, start_s + MINUTE_S))
    # 40 ms and more are in the bucket up to 2^-4 s, or in one above it.
    slow = sum(row["count"] for row in rows if row["bucket"] >= bucket_ending_at(1e9 / 2**5 * 1.5))
    assert 40 <= slow < 60
    assert sum(row["minutes"] for row in rows) == 1
