"""The servers' own histograms beside the driver's exact percentiles, and what happens to them in between."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.change.panel import quantiles
from headrace.change.production import ALL, OTHERS, Observed
from headrace.change.production.histograms import load, observe
from headrace.experiment.workloads.tables import percentile_ns
from tests.commands import headrace
from tests.driver import driven
from tests.servers import Server, started

#: The server sleeps for most of it, so that what the client adds is small beside it.
SLEEPS = "SELECT SLEEP(0.01 + 0.09 * RAND())"
#: The driver's times have the way there and back, and the wait for a core of a busy machine.
MOST_MORE = 1.6


@pytest.fixture(scope="module")
def mysql(folder: Path) -> Iterator[Server]:
    with started("mysql-8.0", folder / "y") as server:
        server.sql("CREATE DATABASE shop")
        yield server


def login(server: Server) -> list[str]:
    return ["--mysql-socket", server.socket, "--mysql-user", "root"]


def taken(server: Server, path: Path, *options: str) -> None:
    done = headrace("record", "histograms", "--append", str(path), "--name", "db1", *login(server), *options)
    assert done.returncode == 0, done.stderr


def load_of(server: Server, seconds: float = 8.0, *, is_prepared: bool = False) -> Any:
    operation = {"name": "sleep", "statements": [{"sql": SLEEPS}]}
    spec = {
        "workload": {"kind": "sql", "prepared": is_prepared, "operations": [operation]},
        "connections": 16,
        "seconds": seconds,
    }
    return driven([*login(server), "--mysql-database", "shop"], spec)


def percentiles(found: Observed, name: str) -> list[tuple[float, float]]:
    """(value in ns, ratio of its bucket's bounds) of p50, p90 and p99 of one class."""
    [series] = [each for each in found.series if each.query_class == name]
    counts = series.counts.sum(axis=0)[None, :]
    result = []
    for share in (0.5, 0.9, 0.99):
        value, width = quantiles(counts, series.edges_ns, share)
        result.append((math.exp(value[0]), math.exp(width[0])))
    return result


@pytest.mark.parametrize("is_prepared", [False, True], ids=["text", "prepared"])
def test_percentiles_of_mysql_s_histograms_are_those_of_the_driver(
    mysql: Server, tmp_path: Path, is_prepared: bool
) -> None:
    """Executions of prepared statements have no digest: they are among the others."""
    path = tmp_path / "db1.histograms"
    load_of(mysql, 1.0, is_prepared=is_prepared)
    taken(mysql, path)
    run = load_of(mysql, is_prepared=is_prepared)
    taken(mysql, path)
    found = observe(load([path]))
    known = [each.query_class for each in found.series if "SLEEP" in each.query_class]
    sleeps = OTHERS if is_prepared else known[0]
    counted = sum(each.counts.sum() for each in found.series if each.query_class == sleeps)
    own = 50 if is_prepared else 0  # the statements that ask
    assert 0 <= counted - sum(run.histogram("service").values()) <= own
    assert any("prepared" in note for note in found.notes) == is_prepared
    for share, (value_ns, width) in zip((0.5, 0.9, 0.99), percentiles(found, sleeps), strict=True):
        exact = percentile_ns(run.histogram("service"), share)
        assert exact is not None
        assert 1 / width <= exact / value_ns <= MOST_MORE * width
        assert width < 1.05


def test_a_truncated_table_and_a_restart_are_gaps(mysql: Server, tmp_path: Path) -> None:
    path = tmp_path / "db1.histograms"
    load_of(mysql, 1.0)
    taken(mysql, path)
    mysql.sql("TRUNCATE performance_schema.events_statements_summary_by_digest")
    load_of(mysql, 1.0)
    taken(mysql, path)
    mysql.sql("TRUNCATE performance_schema.events_statements_histogram_global")
    taken(mysql, path)
    mysql.restart()
    taken(mysql, path)
    found = observe(load([path]))
    assert not found.series
    said = " ".join(found.notes)
    assert "truncated table: a gap on db1 (2x)" in said
    assert "a restart: a gap on db1 (1x)" in said


def test_a_full_table_of_digests_is_said_and_loses_no_statement(folder: Path, tmp_path: Path) -> None:
    with started("mysql-8.0", folder / "f", "--performance-schema-digests-size=5") as server:
        path = tmp_path / "db1.histograms"
        taken(server, path)
        for i in range(1, 21):
            server.sql(f"SELECT {'+'.join('1' for _ in range(i))}", f"SELECT {','.join(['1'] * i)}")
        taken(server, path, "--top", "2")
        found = observe(load([path]))
        assert any("have no digest of their own" in note for note in found.notes), found.notes
        assert any("full on db1" in note for note in found.notes)
        assert sum(each.counts.sum() for each in found.series) >= 40
        assert OTHERS in {each.query_class for each in found.series}


def test_mariadb_s_plugin_counts_in_decades(folder: Path, tmp_path: Path) -> None:
    with started("mariadb-10.11", folder / "m") as server:
        path = tmp_path / "db1.histograms"
        failed = headrace("record", "histograms", "--append", str(path), *login(server))
        assert (failed.returncode, "INSTALL SONAME" in failed.stderr) == (3, True), failed.stderr
        server.sql("CREATE DATABASE shop", "INSTALL SONAME 'query_response_time'")
        failed = headrace("record", "histograms", "--append", str(path), *login(server))
        assert "query_response_time_stats = ON" in failed.stderr
        server.sql("SET GLOBAL query_response_time_stats = ON")
        taken(server, path)
        run = load_of(server, 2.0)
        taken(server, path)
        found = observe(load([path]))
        [series] = found.series
        assert series.query_class == ALL
        at = int(np.flatnonzero(series.edges_ns == 1e8)[0])
        # 10 to 100 ms, and what a busy machine made longer.
        assert series.counts[0, at - 1 :].sum() >= sum(run.histogram("service").values())
        server.sql("SET GLOBAL query_response_time_flush = ON")
        taken(server, path)
        assert any("truncated" in note for note in observe(load([path])).notes)
