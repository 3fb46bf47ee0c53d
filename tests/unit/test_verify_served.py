"""The history of `headrace serve` as a source of `verify`: only stretches that were watched throughout count."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import headrace.change.commands.verify  # noqa: F401 - registers the command
from headrace.base.buckets import bucket_of
from headrace.base.errors import NothingMeasured
from headrace.change.production import served
from headrace.change.production.series import ONLY_COUNTS
from headrace.cli.shell import app
from headrace.history.archive.files import DAY_S, HOUR_S, MINUTE_S, Archive
from headrace.history.archive.tables import (
    BUCKETS,
    CLASSES,
    METRICS,
    PERFORMANCE_SCHEMA,
    SLOW_LOG,
    STATES,
    TEXTS,
    Table,
)

#: A minute's start. The change is made 20 seconds into it.
CHANGE_S = 20_500 * DAY_S + 10 * HOUR_S
AT_S = CHANGE_S + 20.0
TEXT = "select price from shop . sale where id = ?"

Rows = Iterable[dict[str, Any]]


def put(archive: Archive, table: Table, host: str, t_s: int, rows: Rows, kind: str = "m") -> None:
    path = archive.path(table.name, host, kind, t_s)
    path.parent.mkdir(parents=True, exist_ok=True)
    blank = dict.fromkeys(table.schema.names) | {"t_s": t_s}
    pq.write_table(pa.Table.from_pylist([blank | row for row in rows], table.schema), path)


def watched(archive: Archive, host: str, t_s: int, minutes: int = 1) -> None:
    kind = "m" if minutes == 1 else "h"
    put(archive, STATES, host, t_s, [{"state": "ok", "limiting": "", "minutes": minutes}], kind)


def calls(slow: float, seed: int) -> Callable[[Archive, str, int], None]:
    """500 calls a minute of a slow log, of about 2 ms times ``slow``."""
    rng = np.random.default_rng(seed)

    def write(archive: Archive, host: str, t_s: int) -> None:
        took = slow * 2e6 * np.exp(0.3 * rng.standard_normal(500))
        buckets, counts = np.unique(bucket_of(took.astype(np.int64)), return_counts=True)
        key = {"source": SLOW_LOG, "class": "a1"}
        rows = [
            {**key, "bucket": int(bucket), "count": int(count)}
            for bucket, count in zip(buckets, counts, strict=True)
        ]
        put(archive, BUCKETS, host, t_s, rows)
        put(archive, CLASSES, host, t_s, [{**key, "database": "shop", "calls": 500, "time_ns": 1e9}])
        put(archive, TEXTS, host, t_s, [{**key, "text": TEXT, "tables": "[]"}])

    return write


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Forty minutes on both sides; db1 is half as slow again after the change, ctl1 is as before."""
    made = Archive(tmp_path / "history")
    for seed, (host, slow) in enumerate({"db1": 1.5, "ctl1": 1.0}.items()):
        before, after = calls(1.0, seed), calls(slow, 10 + seed)
        for minute in range(-40, 41):
            t_s = CHANGE_S + MINUTE_S * minute
            watched(made, host, t_s)
            (before if minute < 0 else after)(made, host, t_s)
    return made


def verified(root: Path, *words: str) -> tuple[int, dict[str, Any]]:
    argv = ["verify", str(root), "--at", str(AT_S), "--settle", "0s", "--json", *words]
    ran = CliRunner().invoke(app, argv)
    assert ran.exit_code in (0, 13, 15), ran.output
    return ran.exit_code, json.loads(ran.stdout)


def test_a_slower_host_is_worse_and_the_minute_of_the_change_is_on_neither_side(archive: Archive) -> None:
    code, said = verified(archive.root, "--control", "ctl1", "--response", "p50")
    assert code == 13
    assert "worse" in json.dumps(said)
    assert "long_query_time" in json.dumps(said)
    for series in served.observe([archive.root], AT_S).series:
        assert series.query_class == TEXT
        assert series.counts.sum() == 500 * 80
        assert not ((series.start_s < AT_S) & (series.end_s > AT_S)).any()
        assert series.end_s[series.end_s <= AT_S].max() == CHANGE_S
        assert series.start_s[series.start_s >= AT_S].min() == CHANGE_S + MINUTE_S


def test_a_stretch_that_was_not_watched_in_whole_is_a_gap_and_an_idle_one_is_not(archive: Archive) -> None:
    for table in ("states", "buckets", "classes"):
        archive.path(table, "db1", "m", CHANGE_S - 7 * MINUTE_S).unlink()
    for minute in range(-15, -10):
        archive.path("buckets", "ctl1", "m", CHANGE_S + minute * MINUTE_S).unlink()
    observed = served.observe([archive.root], AT_S)
    db1, ctl1 = (next(each for each in observed.series if each.host == host) for host in ("db1", "ctl1"))
    assert CHANGE_S - 600 not in db1.start_s
    assert len(db1.start_s) == 15
    assert ctl1.counts[list(ctl1.start_s).index(CHANGE_S - 900)].sum() == 0
    assert any("1 stretch of 5 minutes not watched" in note for note in observed.notes)


def test_requests_of_memcached_are_counted_and_hosts_without_times_stay_apart(archive: Archive) -> None:
    key = {"source": PERFORMANCE_SCHEMA, "class": "b2", "database": "shop"}
    for minute in range(-20, 21):
        t_s = CHANGE_S + MINUTE_S * minute
        for host in ("cache1", "db9"):
            watched(archive, host, t_s)
        gets = {"metric": "memcached gets", "label": "a", "n": 1, "sum": 100.0, "least": 1.0, "most": 1.0}
        put(archive, METRICS, "cache1", t_s, [gets])
        put(archive, CLASSES, "db9", t_s, [{**key, "calls": 60, "time_ns": 5.0}])
    observed = served.observe([archive.root], AT_S)
    assert {each.host for each in observed.series} == {"db1", "ctl1"}
    assert any("none is timed: cache1, db9" in note for note in observed.notes)
    for host in ("db1", "ctl1"):
        for table in ("states", "buckets", "classes", "texts"):
            for path in (archive.root / table).rglob(f"host={host}/*"):
                path.unlink()
    observed = served.observe([archive.root], AT_S)
    rates = {(each.host, each.query_class): each.counts.sum(axis=1).tolist() for each in observed.series}
    assert rates == {("cache1", "get"): [30_000.0] * 8, ("db9", "b2"): [300.0] * 8}
    assert all(each.edges_ns is ONLY_COUNTS for each in observed.series)


def test_what_is_older_than_its_minutes_is_read_in_hours(tmp_path: Path) -> None:
    """The hour of the change, and one with a minute too few, count for nothing."""
    archive = Archive(tmp_path / "history")
    for hour in range(-6, 60):
        t_s = CHANGE_S + hour * HOUR_S
        watched(archive, "db1", t_s, 59 if hour == -3 else 60)
        put(
            archive,
            BUCKETS,
            "db1",
            t_s,
            [{"source": SLOW_LOG, "class": "a1", "bucket": 900, "count": 7}],
            "h",
        )
        key = {"source": SLOW_LOG, "class": "a1", "database": "shop"}
        put(archive, CLASSES, "db1", t_s, [{**key, "calls": 7, "time_ns": 1e9}], "h")
    [series] = served.observe([archive.root], AT_S, weeks=True).series
    assert len(series.start_s) == 64
    [series] = served.observe([archive.root], AT_S).series
    hours = [(int(start) - CHANGE_S) // HOUR_S for start in series.start_s]
    assert hours == [hour for hour in range(-6, 60) if hour not in (-3, 0)]
    assert series.counts.sum(axis=1).tolist() == [7.0] * len(hours)


def test_a_history_without_calls_is_told(archive: Archive) -> None:
    with pytest.raises(NothingMeasured, match="no call of any host"):
        served.observe([archive.root], AT_S + 300 * DAY_S)
