"""Histograms of servers, subtracted: what happened in between, and what makes it unknown."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.base.errors import StoreError
from headrace.change.production import OTHERS, Observed
from headrace.change.production.gather import gather
from headrace.change.production.histograms import append, is_histograms, line_of, load, observe

BOUNDS = [10_000.0, 20_000.0, 40_000.0, 80_000.0, None]
Buckets = dict[float | None, int]


def pairs(counts: Buckets) -> list[list[Any]]:
    return [[bound, count] for bound, count in counts.items() if count]


def digest(text: str, counts: Buckets, first_seen_s: float = 0.0, schema: str | None = "shop") -> Any:
    return {
        "schema": schema, "digest": f"d-{text}", "text": text, "count": sum(counts.values()),
        "first_seen_s": first_seen_s, "buckets": pairs(counts),
    }  # fmt: skip


def snapshot(t_s: float, all_: Buckets, *digests: Any, **more: Any) -> dict[str, Any]:
    return {
        "t_ns": int(t_s * 1e9), "source": "performance_schema", "version": "8.0.31", "uuid": "u1",
        "uptime_s": int(t_s), "bounds_ns": BOUNDS, "all": pairs(all_), "digests": list(digests),
        "digest_rows": 10, "digest_size": 100, "digests_lost": 0, **more,
    }  # fmt: skip


def observed(tmp_path: Path, *snapshots: dict[str, Any], host: str = "db1") -> Observed:
    path = tmp_path / "a.histograms"
    for each in snapshots:
        append(path, line_of(host, each))
    return observe(load([path]))


def counts(found: Observed) -> dict[str, list[float]]:
    """Class -> events by bound, of all stretches."""
    return {
        each.query_class: [float(each.counts[:, each.edges_ns[1:] == (b or np.inf)].sum()) for b in BOUNDS]
        for each in found.series
    }


def test_two_snapshots_are_one_stretch(tmp_path: Path) -> None:
    found = observed(
        tmp_path,
        snapshot(100, {10_000.0: 50, 40_000.0: 5}, digest("get", {10_000.0: 40})),
        snapshot(400, {10_000.0: 90, 40_000.0: 8, None: 1}, digest("get", {10_000.0: 70, 40_000.0: 2})),
    )
    assert counts(found) == {"get": [30, 0, 2, 0, 0], OTHERS: [10, 0, 1, 0, 1]}
    assert {(s.host, s.start_s[0], s.end_s[0]) for s in found.series} == {("db1", 100.0, 400.0)}
    assert [note.startswith("27% of the statements are of no class") for note in found.notes] == [True]


def test_a_class_without_a_schema_and_one_in_two_schemas(tmp_path: Path) -> None:
    """Rows without a schema are not lost; shards of one statement are one class."""
    found = observed(
        tmp_path,
        snapshot(0, {10_000.0: 1}, digest("get", {}, schema=None), digest("get", {}, schema="a'b")),
        snapshot(
            60, {10_000.0: 10}, digest("get", {10_000.0: 4}, schema=None),
            digest("get", {10_000.0: 5}, schema="a'b"),
        ),
    )  # fmt: skip
    assert counts(found) == {"get": [9, 0, 0, 0, 0], OTHERS: [0, 0, 0, 0, 0]}


def test_a_class_that_was_not_asked_for_before_is_among_the_others(tmp_path: Path) -> None:
    """It counted before, nobody knows how much; one that was first seen later did not."""
    found = observed(
        tmp_path,
        snapshot(100, {10_000.0: 50}),
        snapshot(
            400, {10_000.0: 90}, digest("old", {10_000.0: 60}, first_seen_s=50.0),
            digest("new", {10_000.0: 7}, first_seen_s=200.0),
        ),
    )  # fmt: skip
    assert counts(found) == {"new": [7, 0, 0, 0, 0], OTHERS: [33, 0, 0, 0, 0]}


@pytest.mark.parametrize(
    ("later", "said"),
    [
        (snapshot(400, {10_000.0: 9}, uptime_s=3), "a restart"),
        (snapshot(400, {10_000.0: 90}, uptime_s=150), "a clock was set"),
        (snapshot(400, {10_000.0: 90}, uuid="u2"), "another server"),
        (snapshot(400, {10_000.0: 90}, bounds_ns=[1e6, None]), "the buckets changed"),
        (snapshot(400, {10_000.0: 49}), "truncated"),
        (snapshot(400, {20_000.0: 99}), "truncated"),
        (snapshot(400, {10_000.0: 90}, digest("get", {10_000.0: 39})), "truncated"),
        (snapshot(400, {10_000.0: 90}, digest("get", {10_000.0: 41}, 300.0)), "truncated"),
        (snapshot(400, {10_000.0: 90}, digest_rows=9), "truncated"),
        (snapshot(400, {10_000.0: 90}, digest("get", {10_000.0: 400})), "truncated"),
    ],
    ids=["restart", "clock", "other server", "bounds", "fell", "vanished", "digest fell", "digest anew",
         "fewer digests", "more than all"],
)  # fmt: skip
def test_what_makes_a_stretch_unknown_is_a_gap_and_is_said(
    tmp_path: Path, later: dict[str, Any], said: str
) -> None:
    found = observed(tmp_path, snapshot(100, {10_000.0: 50}, digest("get", {10_000.0: 40})), later)
    assert not found.series
    assert any(said in note and "db1" in note for note in found.notes), found.notes


def test_the_stretch_after_a_gap_counts(tmp_path: Path) -> None:
    found = observed(
        tmp_path,
        snapshot(100, {10_000.0: 50}),
        snapshot(400, {10_000.0: 5}, uptime_s=10),
        snapshot(700, {10_000.0: 8}, uptime_s=310),
    )
    [series] = found.series
    assert (series.start_s.tolist(), series.counts.sum()) == ([400.0], 3)


def test_lost_digests_and_a_full_table_are_said(tmp_path: Path) -> None:
    found = observed(
        tmp_path,
        snapshot(100, {10_000.0: 50}, digest("get", {10_000.0: 40})),
        snapshot(
            400, {10_000.0: 150}, digest("get", {10_000.0: 50}), digest_rows=100, digests_lost=20
        ),
    )  # fmt: skip
    assert counts(found)[OTHERS] == [90, 0, 0, 0, 0]
    assert any("20 statements (20%) have no digest" in note for note in found.notes)
    assert any("full on db1" in note for note in found.notes)


def test_a_snapshot_that_both_sides_have_counts_once(tmp_path: Path) -> None:
    for n, (name, times) in enumerate({"a": (100, 400), "b": (400, 700)}.items()):
        for i, t in enumerate(times):
            append(tmp_path / name, line_of("db1", snapshot(t, {10_000.0: 10 + 100 * (n + i)})))
    found, at_s = gather([], [str(tmp_path / "a")], [str(tmp_path / "b")], None, None)
    assert at_s == 400
    [series] = found.series
    assert series.counts.sum(axis=1).tolist() == [100, 100]


def test_a_line_that_was_cut_off_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a"
    append(path, line_of("db1", snapshot(100, {10_000.0: 1})))
    with path.open("a") as file:
        file.write(line_of("db1", snapshot(200, {10_000.0: 2}))[:40])
    assert [each.t_s for each in load([path])] == [100]
    append(path, line_of("db1", snapshot(300, {10_000.0: 3})))
    assert [each.t_s for each in load([path])] == [100, 300]
    assert is_histograms(path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [{"all": [[1, -1]]}, {"all": [[0, 1]]}, {"all": 3}, {"bounds_ns": ["x"]}, {"t_ns": None}, {"digests": [{}]},
     {"headrace_histograms": 2}, {"all": [[1, 1e400]]},
     # A restart would not be one, and a single count would be the verdict.
     {"uptime_s": math.nan}, {"uptime_s": math.inf}, {"uptime_s": "7"}, {"t_ns": math.nan}, {"t_ns": True},
     {"all": [[1, 1e300]]}, {"all": [[1, 2**60]]}, {"all": [[1, True]]}, {"all": [["1", 1]]},
     {"bounds_ns": [math.nan]}, {"digests_lost": -1}, {"digest_rows": "7"}, {"digest_size": math.inf}],
    ids=str,
)  # fmt: skip
def test_bad_lines_are_named(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "a"
    content = json.loads(line_of("db1", snapshot(100, {10_000.0: 1})))
    path.write_text(f"{json.dumps({**content, **change})}\n")
    with pytest.raises(StoreError) as found:
        load([path])
    assert f"{path}:1" in str(found.value)
