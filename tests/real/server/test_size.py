"""`headrace size` on samples of a real server: the calls that the driver made are the calls that are read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace.capacity import demand, history, pool_samples
from headrace.capacity.model import Resource
from tests.driver import driven
from tests.programs import agent_path
from tests.servers import Server, mariadb
from tests.waiting import until

#: How many in a second, for how long. Digests are sampled every 10 s: the first is over well before.
RATES = {"SELECT a FROM t WHERE a = ?": (150, 4), "SELECT SUM(a) FROM t WHERE a > ?": (40, 8)}


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with mariadb(folder / "m", "--performance-schema=ON") as found:
        found.sql(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (a INT PRIMARY KEY)",
            "INSERT INTO shop.t SELECT seq FROM shop.seq_1_to_1000",
        )
        yield found


def test_the_calls_of_two_classes_are_read_from_samples(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "db1.jsonl.zst"
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    argv = [agent_path(), "sample", "--output", str(path), *login]
    made = []
    with subprocess.Popen(argv, text=True) as sampler:
        try:
            until(lambda: path.exists() and path.stat().st_size > 0, sampler)
            for sql, (rate, seconds) in RATES.items():
                statement = {"sql": sql, "parameters": [{"kind": "int", "min": 1, "max": 1000}]}
                operation = {"name": "work", "statements": [statement]}
                spec = {
                    "workload": {"kind": "sql", "prepared": False, "operations": [operation]},
                    "connections": 4,
                    "seconds": seconds,
                    "pacing": {"kind": "open", "arrivals": "constant", "rate_ops_s": rate},
                }
                made.append(driven([*login, "--mysql-database", "shop"], spec).sum("count"))
        finally:
            sampler.terminate()
    [found] = history.read(path)
    assert found.source == "digests"
    assert found.limits[Resource.CPU] == os.cpu_count()
    read = sorted((float(np.nansum(rate)) for rate in found.calls.values()), reverse=True)
    # The first of the two is complete within the one step between two samples of digests.
    assert found.demand.step_s == 10
    assert read[0] * 10 == pytest.approx(made[0], rel=0.3)
    # Beside other tests' servers nobody knows which one the CPU was for: only the host's is sure.
    assert np.nanmax(found.demand.used[Resource.CPU]) > 0
    # So few steps allow no cost, and that is said.
    assert demand.costs(found).refusal


def test_reads_per_call_are_read_from_samples_of_two_pools(folder: Path, tmp_path: Path) -> None:
    """They are those that the server counted. The pool only shrinks: not every server lets it grow."""
    # As in a large pool: pages are old enough to be kept when they are hit again, and few are kept free.
    options = [f"--innodb-{name}" for name in (
        "buffer-pool-size=24M", "buffer-pool-chunk-size=1M", "lru-scan-depth=100", "old-blocks-time=0"
    )]  # fmt: skip
    with mariadb(folder / "p", *options) as server:
        server.sql(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (a INT PRIMARY KEY, pad VARCHAR(2000) NOT NULL)",
            "INSERT INTO shop.t SELECT seq, REPEAT('x', 2000) FROM shop.seq_1_to_16000",
            "ANALYZE TABLE shop.t",
        )
        paths, counted = [], []
        for seed, size in enumerate((24, 12), 1):
            server.sql(f"SET GLOBAL innodb_buffer_pool_size = {size} * 1048576")
            paths.append(tmp_path / f"{size}.jsonl.zst")
            counted.append(sampled(server, paths[-1], seed))
        [(data,)] = server.sql(
            "SELECT data_length FROM information_schema.tables WHERE table_schema = 'shop'"
        )
    pool = pool_samples.read(paths, float(str(data)))
    assert pool.size_bytes == pytest.approx(24 * 2**20, rel=0.15)
    small, large = pool.curve.points
    assert [large.reads.estimate, small.reads.estimate] == pytest.approx(counted, rel=0.1)
    between = pool.reads(18 * 2.0**20)
    assert large.reads.estimate < between.estimate < small.reads.estimate


def sampled(server: Server, path: Path, seed: int) -> float:
    """Five seconds while the pool is full and calls come: reads per call."""
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    keys = {"kind": "int", "min": 1, "max": 16_000, "distribution": {"kind": "uniform"}}
    statement = {"sql": "SELECT pad FROM t WHERE a = ?", "parameters": [keys]}
    spec = {
        "workload": {"kind": "sql", "operations": [{"name": "work", "statements": [statement]}]},
        "connections": 4,
        "seed": seed,
    }
    closed = {"pacing": {"kind": "closed"}, "seconds": 2}
    driven([*login, "--mysql-database", "shop"], spec | closed)
    argv = [agent_path(), "sample", "--output", str(path), *login]
    with subprocess.Popen(argv, text=True) as sampler:
        try:
            until(lambda: path.exists() and path.stat().st_size > 0, sampler)
            pacing = {"kind": "open", "arrivals": "constant", "rate_ops_s": 800}
            before = server.status("Innodb_buffer_pool_reads")
            done = driven(
                [*login, "--mysql-database", "shop"],
                spec | {"pacing": pacing, "seconds": 5, "seed": seed + 100},
            )
        finally:
            sampler.terminate()
    return (server.status("Innodb_buffer_pool_reads") - before) / done.sum("count")
