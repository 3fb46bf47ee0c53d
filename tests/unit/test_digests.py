"""Digests as tables: what merges exactly, what is refused, and what is read back."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as some

from headrace.base.errors import Refused, StoreError
from headrace.traffic.digests import files, history
from headrace.traffic.digests.classes import Digest, open_digest
from headrace.traffic.digests.lines import read_lines
from headrace.traffic.digests.merge import merge
from headrace.traffic.digests.table import OTHERS, read, write
from tests import digests
from tests.digests import SECOND_NS, START_NS, Event, Shape


def table(events: list[Event], shape: Shape | None = None) -> pa.Table:
    return read_lines(digests.lines(events, shape), "test")


def same_but_for_sources(merged: pa.Table, whole: pa.Table) -> bool:
    """The parts were read one after the other: only how often a source was read may differ."""
    different = [(a, b) for a, b in zip(merged.to_pylist(), whole.to_pylist(), strict=True) if a != b]
    return all(a["part"] == "source" and {**a, "count": 0} == {**b, "count": 0} for a, b in different)


@pytest.mark.parametrize("seed", range(5))
def test_parts_merge_to_exactly_the_digest_of_the_whole(seed: int, tmp_path: Path) -> None:
    events = digests.traffic(seed)
    parts: list[list[Event]] = [[] for _ in range(4)]
    for event in events:
        parts[random.Random(str(event)).randrange(4)].append(event)
    whole = table(events)
    paths = []
    for number, part in enumerate(parts):
        paths.append(tmp_path / f"{number}.parquet")
        write(table(part), paths[-1])
    read_back = [read(path) for path in paths]
    random.Random(seed).shuffle(read_back)
    merged = merge(read_back)
    assert merged.schema == whole.schema
    assert same_but_for_sources(merged, whole)
    # In any nesting, too.
    assert merge([merge(read_back[:2]), merge(read_back[2:])]) == merged


events_of_any_kind = some.lists(
    some.builds(
        Event,
        start_ns=some.integers(0, 900).map(lambda s: START_NS + s * SECOND_NS),
        klass=some.integers(0, 3),
        response_ns=some.none() | some.integers(0, 2**62),
        user=some.sampled_from(["", "app"]) | some.text(max_size=3),
        error=some.none() | some.integers(1000, 1200),
        rows_sent=some.none() | some.integers(0, 2**60),
        text=some.text(max_size=4),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=30)
@given(events=events_of_any_kind, cut=some.integers(0, 40), narrow=some.sampled_from([1, 2, 4]))
def test_any_two_parts_merge_to_the_whole(events: list[Event], cut: int, narrow: int) -> None:
    # Slices nest: a part with narrower ones adds up to the wider of the other.
    parts = [table(events[:cut], Shape(slice_s=narrow)), table(events[cut:], Shape(slice_s=4))]
    assert same_but_for_sources(merge(parts), table(events, Shape(slice_s=4)))


def test_names_beyond_the_bound_are_those_the_whole_would_have_dropped() -> None:
    events = [Event(START_NS + n, n % 2, host=f"10.0.{n % 97}.{n % 89}") for n in range(4_000)]
    merged = merge([table(events[0::3]), table(events[1::3]), table(events[2::3])])
    assert same_but_for_sources(merged, table(events))
    kept = open_digest(merged).classes[0].labels["host"]
    assert len(kept) == 32
    assert sum(label.count for label in kept) < 2_000


def test_more_than_64_errors_fold_into_others() -> None:
    events = [Event(START_NS + n, error=1000 + n % 70) for n in range(700)]
    found = open_digest(merge([table(events[:350]), table(events[350:])])).classes[0].labels["error"]
    by_text = {label.text: label.count for label in found}
    assert len(by_text) == 65
    assert by_text["other"] == 60
    assert sum(by_text.values()) == 700


def test_slices_get_wider_when_the_whole_is_longer_than_its_parts() -> None:
    long_apart = [table([Event(START_NS + n * SECOND_NS)]) for n in (0, 3_600)]
    found = open_digest(merge(long_apart))
    # 3,600 s in at most 512 slices of a power of two.
    assert found.slice_ns == found.heat_slice_ns == 8 * SECOND_NS
    assert found.all.count == 2
    assert [int(n) for n in found.classes[0].slices.count] == [1, 1]


def test_what_was_not_told_stays_unknown_and_sums_pass_64_bits() -> None:
    unknown = [Event(START_NS, 0, None, rows_sent=None), Event(START_NS, 1, 2**62), Event(START_NS, 1, 2**62)]
    found = open_digest(merge([table(unknown), table(unknown)]))
    by_fingerprint = {each.fingerprint: each for each in found.classes}
    silent = by_fingerprint["select * from t0 where id = ?"]
    assert silent.number("response_ns").count == 0
    assert silent.number("response_ns").least is None
    assert silent.number("rows_sent").count == 0
    assert silent.response.total == 0
    assert found.all.total_ns == 2**64
    assert found.all.number("response_ns_squares").sum == 2**126


def test_the_sample_is_that_of_the_slowest_call_of_all_parts() -> None:
    calls = [
        Event(START_NS, 0, 5, text="b"),
        Event(START_NS, 0, 9, text="c"),
        Event(START_NS, 0, 9, text="a"),
    ]
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        found = open_digest(merge([table([calls[n]]) for n in order]))
        assert found.classes[0].sample["text"] == "a"


def test_the_class_of_those_that_found_no_room_and_groups_have_names() -> None:
    said = [json.loads(line) for line in digests.lines([Event(START_NS)])]
    said[0]["group"] = ["class", "user"]
    said[3]["key"] = {"class": "00", "user": "app"}
    others = {**said[3], "id": None, "key": None, "fingerprint": None, "is_others": True, "sample": None}
    said[4:4] = [others]
    said[5]["classes"] = 2
    found = open_digest(read_lines([json.dumps(line) for line in said], "test"))
    assert found.group == ("class", "user")
    assert {each.fingerprint for each in found.classes} == {
        "select * from t0 where id = ? · user app",
        "(all classes beyond the limit)",
    }
    assert OTHERS in found.by_name


def test_several_digests_of_one_stream_merge() -> None:
    lines = digests.lines([Event(START_NS)]) + digests.lines([Event(START_NS, 1)])
    assert open_digest(read_lines(lines, "test")).all.count == 2


def broken(change: Callable[[list[dict[str, Any]]], object]) -> list[str]:
    said = [json.loads(line) for line in digests.lines([Event(START_NS)])]
    change(said)
    return [json.dumps(line) for line in said]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "ends before its last line"),
        (["{"], "line 1 is not a line of a digest"),
        (["[]"], "line 1 is not a line"),
        (digests.lines([Event(START_NS)])[:-1], "ends before its last line"),
        (digests.lines([Event(START_NS)])[1:], "outside a digest"),
        (broken(lambda said: said[-1].update(classes=7)), "1 classes of 7"),
        (broken(lambda said: said[0].update(version=2)), "this headrace reads 1"),
        (broken(lambda said: said[3].update(count="many")), "is not a line of a digest"),
        (broken(lambda said: said[3].update(buckets=[[1, 2**70]])), "is not a line of a digest"),
        (broken(lambda said: said[3].pop("errors")), "KeyError"),
    ],
)
def test_lines_that_are_no_whole_digest_are_refused(lines: list[str], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        read_lines(lines, "here")


def test_digests_of_other_modes_do_not_merge() -> None:
    parts = [table([Event(START_NS)]), table([Event(START_NS)], Shape(mode="pt"))]
    with pytest.raises(StoreError, match=r"b\.parquet: its mode is pt, that of a\.parquet is strict"):
        merge(parts, ["a.parquet", "b.parquet"])


def test_files_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    lines = "\n".join(digests.lines(digests.traffic(1, 100))).encode()
    whole = read_lines(lines.splitlines(), "test")
    (tmp_path / "a").write_bytes(lines)
    (tmp_path / "b").write_bytes(zstandard.compress(lines))
    write(whole, tmp_path / "c")
    (tmp_path / "slow.log").write_bytes(b"# Time: 2026-03-01\n")
    (tmp_path / "slow.zst").write_bytes(zstandard.compress(b"# Time: 2026-03-01\n"))
    (tmp_path / "empty").touch()
    for name in "abc":
        assert files.is_digest(tmp_path / name)
        assert files.load(tmp_path / name) == whole
    for name in ("slow.log", "slow.zst", "empty", "not-there"):
        assert not files.is_digest(tmp_path / name)


def test_a_line_that_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed, a file of some kilobytes would fill the memory."""
    monkeypatch.setattr(files, "MOST_LINE_BYTES", 1 << 20)
    path = tmp_path / "a.zst"
    path.write_bytes(zstandard.compress(b'{"type": "digest", "mode": "' + b"x" * (64 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(StoreError, match="a line is longer than 1 MiB"):
            files.load(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_many_files_merge_some_at_a_time(tmp_path: Path) -> None:
    events = digests.traffic(2, 600)
    paths = []
    for number in range(19):
        paths.append(tmp_path / f"{number}.parquet")
        write(table(events[number::19]), paths[-1])
    assert same_but_for_sources(files.load_all(paths), table(events))


def test_damaged_and_foreign_files_are_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(table([Event(START_NS)]), path)
    content = path.read_bytes()
    for cut in range(4, len(content), 97):
        path.write_bytes(content[:cut])
        with pytest.raises(StoreError):
            files.load(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(StoreError, match="not a digest that this headrace reads"):
        files.load(path)
    with pytest.raises(StoreError, match="cannot be written"):
        write(table([Event(START_NS)]), tmp_path / "a.parquet" / "b")


def test_a_file_with_samples_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(table([Event(START_NS)]), path)
    assert path.stat().st_mode & 0o777 == 0o600
    without = broken(lambda said: said[3].update(sample=None))
    write(read_lines(without, "test"), path)
    assert path.stat().st_mode & 0o777 == 0o644


def test_any_engine_merges_with_plain_sql(tmp_path: Path) -> None:
    import duckdb

    events = digests.traffic(3)
    for number in range(2):
        write(table(events[number::2]), tmp_path / f"{number}.parquet")
    sql = f"""SELECT bucket, SUM(count) FROM read_parquet('{tmp_path}/*.parquet')
              WHERE part = 'latency' AND class = '' AND name = 'response_ns' GROUP BY bucket ORDER BY bucket"""
    with duckdb.connect() as connection:
        found = connection.execute(sql).fetchall()
    whole = open_digest(table(events)).all.response
    assert found == list(zip(whole.buckets.tolist(), whole.counts.tolist(), strict=True))


# -- History ----------------------------------------------------------------------------------------------------

DAY_NS = 86_400 * SECOND_NS


def days(folder: Path) -> dict[str, Digest]:
    return {day: open_digest(found) for day, found in history.days(folder).items()}


def test_a_history_adds_up_by_day_and_takes_nothing_twice(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    first = table([Event(START_NS), Event(START_NS + 5, 1)])
    assert history.append(folder, first).name == "2026-03-01.parquet"
    history.append(folder, table([Event(START_NS + SECOND_NS)]))
    history.append(folder, table([Event(START_NS + DAY_NS, 2)]))
    with pytest.raises(Refused, match="already in the history"):
        history.append(folder, first)
    # Nor when it was merged into its day long ago.
    with pytest.raises(Refused):
        history.append(folder, replace_path(first, tmp_path))
    assert {day: digest.all.count for day, digest in days(folder).items()} == {
        "2026-03-01": 3,
        "2026-03-02": 1,
    }


def replace_path(digest: pa.Table, folder: Path) -> pa.Table:
    write(digest, folder / "elsewhere.parquet")
    return read(folder / "elsewhere.parquet")


def test_a_history_of_undated_events_or_of_nothing_is_refused(tmp_path: Path) -> None:
    undated = broken(lambda said: said[0].update(first_ns=None, last_ns=None))
    with pytest.raises(StoreError, match="belongs to no day"):
        history.append(tmp_path, read_lines(undated, "test"))
    with pytest.raises(StoreError, match="it has no digest yet"):
        history.days(tmp_path)


def test_reviews_are_kept_beside_the_days(tmp_path: Path) -> None:
    noted = history.Review("ann", "2026-03-02", "needs an index")
    history.review(tmp_path, "00", noted)
    history.review(tmp_path, "01", replace(noted, comment="fine"))
    assert history.reviews(tmp_path)["00"] == noted
    (tmp_path / "review.json").write_text("[")
    with pytest.raises(StoreError, match="cannot be read"):
        history.reviews(tmp_path)
