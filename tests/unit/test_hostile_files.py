"""Files from anywhere: a plan or a digest that holds anything is read, or refused with an error for a person.

``HEADRACE_FUZZ`` is the number of examples per test; then they are other ones each time, and a failure says how to
repeat it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import time
import tomllib
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some

from headrace.base.errors import HeadraceError, PlanError, StoreError
from headrace.base.whole import read_plain
from headrace.experiment import plan as plans
from headrace.experiment.foreign.outputs import read_outputs
from headrace.experiment.foreign.table import read_csv
from headrace.experiment.workloads.fio import read_snapshots
from headrace.fleet import inventory
from headrace.host import stacks
from headrace.traffic.digests import files, table
from headrace.traffic.digests.classes import open_digest
from headrace.traffic.digests.lines import read_lines
from headrace.traffic.digests.merge import merge
from headrace.traffic.digests.table import write
from tests import digests, outputs
from tests.folders import ROOT

EXAMPLES = int(os.environ.get("HEADRACE_FUZZ", "0"))
#: What reading one of these small files may add to the most memory that this process ever had.
MOST_KIB = 1 << 20
#: Usually the same examples every time. No limit of time: a machine may be starved.
bounded = settings(
    max_examples=EXAMPLES or 60,
    deadline=None,
    derandomize=not EXAMPLES,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

PLANS = [path.read_text() for path in sorted((ROOT / "examples").glob("*.toml"))]


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + MOST_KIB


def is_read_or_refused(text: str) -> None:
    said = "hostile.toml"
    try:
        with little_memory():
            plans.parse(text, said)
    except PlanError as error:
        said = str(error)
    assert "hostile.toml" in said


@bounded
@example("a = " + "[" * 100_000)
@example("a = " + "{a=" * 100_000)
@example("blocks = " + "9" * 10_000)
@example("a = 2026-13-45")
@example("a = '\x00'")
@given(some.text())
def test_a_plan_of_any_text_is_a_plan_error(text: str) -> None:
    is_read_or_refused(text)


@bounded
@given(some.sampled_from(PLANS), some.data())
def test_a_plan_with_a_piece_exchanged_is_read_or_refused(text: str, data: some.DataObject) -> None:
    start = data.draw(some.integers(0, len(text)))
    end = data.draw(some.integers(start, min(len(text), start + 40)))
    pieces = ["", "=", "[", "]", '"', "\n", "{}", "nan", "-1", "1e400", "9" * 30, "true", "[[a]]\n", "\ud800"]
    is_read_or_refused(
        text[:start] + data.draw(some.sampled_from(pieces) | some.text(max_size=8)) + text[end:]
    )


values = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**70), 2**70)
    | some.floats()
    | some.text(max_size=8)
    | some.dates(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a plan has values: the keys and numbers that lead to each."""
    inside = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    return [path, *(place for key, value in inside for place in places(value, (*path, key)))]


@bounded
@given(some.sampled_from(PLANS), some.data())
def test_a_plan_with_any_value_in_any_place_is_read_or_refused(text: str, data: some.DataObject) -> None:
    content = tomllib.loads(text)
    *path, last = data.draw(some.sampled_from(places(content)[1:]))
    table = functools.reduce(lambda inner, key: inner[key], path, content)
    table[last] = data.draw(values.filter(lambda value: value is not None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tomllib, "loads", lambda _: content)
        is_read_or_refused("")


@functools.cache
def digest() -> bytes:
    """A digest's file."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digest.parquet"
        write(merge([read_lines(digests.lines(digests.traffic(1)), "test")]), path)
        return path.read_bytes()


def digest_is_read_or_refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with little_memory(), contextlib.suppress(StoreError):
        open_digest(merge([files.load(path)], [str(path)]))


@bounded
@example(b"")
@example(b"PAR1")
@example(b"PAR1" + b"\xff" * 8 + b"PAR1")
@example(b"\x28\xb5\x2f\xfd")
@example(b'{"type":"digest"')
@example(b'{"type":"digest","version":1}\n{"type":"end","classes":0}\n')
@example(b"[" * 100_000)
@given(some.binary(max_size=200) | some.binary(max_size=100).map(lambda inner: b"PAR1" + inner + b"PAR1"))
def test_a_digest_of_any_bytes_is_a_store_error(tmp_path: Path, content: bytes) -> None:
    digest_is_read_or_refused(content, tmp_path / "hostile.parquet")


@bounded
@given(some.data())
def test_a_damaged_digest_is_read_or_refused(tmp_path: Path, data: some.DataObject) -> None:
    content = bytearray(digest())
    for _ in range(data.draw(some.integers(1, 4))):
        # Most of a file's end says where everything is.
        at = data.draw(
            some.integers(0, len(content) - 1) | some.integers(max(0, len(content) - 3000), len(content) - 1)
        )
        content[at] = data.draw(some.integers(0, 255))
    cut = data.draw(some.integers(0, len(content))) if data.draw(some.booleans()) else len(content)
    digest_is_read_or_refused(bytes(content[:cut]), tmp_path / "hostile.parquet")


@bounded
@given(some.data())
def test_the_lines_of_a_digest_with_a_piece_exchanged_are_read_or_refused(
    tmp_path: Path, data: some.DataObject
) -> None:
    text = "\n".join(digests.lines(digests.traffic(1)[:60])) + "\n"
    start = data.draw(some.integers(0, len(text)))
    end = data.draw(some.integers(start, min(len(text), start + 40)))
    pieces = [
        "",
        "null",
        "[",
        "]",
        "{}",
        '"',
        "\n",
        "-1",
        "1e400",
        "9" * 30,
        "true",
        "[[]]",
        '{"type":"end"}',
    ]
    text = text[:start] + data.draw(some.sampled_from(pieces) | some.text(max_size=8)) + text[end:]
    content = text.encode("utf-8", "surrogatepass")
    packed = zstandard.ZstdCompressor().compress(content) if data.draw(some.booleans()) else content
    digest_is_read_or_refused(packed, tmp_path / "hostile.jsonl")


def cells(type_: pa.DataType) -> some.SearchStrategy[Any]:
    if type_ == pa.string():
        known = [
            "class",
            "number",
            "header",
            "text",
            "label",
            "latency",
            "events",
            "group",
            "key",
            "{}",
            "[]",
            "1",
        ]
        return some.sampled_from(known) | some.text(some.characters(exclude_categories=["Cs"]), max_size=8)
    widest = {pa.int32(): 31, pa.int64(): 63}.get(type_, 120)
    return some.sampled_from([0, 1, -1]) | some.integers(-(2**widest), 2**widest - 1)


@bounded
@given(some.data())
def test_a_digest_with_any_value_in_any_cell_is_read_or_refused(
    tmp_path: Path, data: some.DataObject
) -> None:
    rows = whole().to_pylist()
    for _ in range(data.draw(some.integers(1, 3))):
        field = table.TABLE.field(data.draw(some.integers(0, len(table.TABLE) - 1)))
        number = data.draw(some.integers(0, min(40, len(rows) - 1)) | some.integers(0, len(rows) - 1))
        rows[number][field.name] = data.draw(some.none() | cells(field.type))
        if data.draw(some.booleans()):
            del rows[data.draw(some.integers(0, len(rows) - 1))]
    path = tmp_path / "cells.parquet"
    write(pa.Table.from_pylist(rows, table.TABLE), path)
    digest_is_read_or_refused(path.read_bytes(), path)


@functools.cache
def whole() -> pa.Table:
    return merge([read_lines(digests.lines(digests.traffic(1)[:60]), "test")])


def test_a_small_file_of_many_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.parquet"
    write(pa.concat_tables([whole()] * 20), path)
    files.load(path)
    monkeypatch.setattr(table, "MOST_ROWS", 10 * len(whole()))
    with pytest.raises(StoreError, match=r"more than [0-9,]+ rows"):
        files.load(path)


def test_a_small_file_of_long_texts_is_refused_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, path = "x" * 10_000, tmp_path / "texts.parquet"
    rows = [{"part": "text", "class": "a", "name": "fingerprint", "text": text}] * 100_000
    write(pa.Table.from_pylist(rows, table.TABLE), path)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(table, "MOST_BYTES", 100 << 20)
    allocated = pa.total_allocated_bytes()
    with pytest.raises(StoreError, match="when it is unpacked"):
        files.load(path)
    assert pa.total_allocated_bytes() - allocated < 100 << 20


@pytest.mark.parametrize("limit", ["MOST_ROWS", "MOST_BYTES"])
def test_lines_that_never_end_are_refused(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, limit, 20_000)
    one = "\n".join(digests.lines(digests.traffic(1)[:60])) + "\n"
    read_lines(one.splitlines(), "test")
    path = tmp_path / "lines.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(one.encode() * 1000))
    with pytest.raises(StoreError, match=r"more than [0-9,]+ rows"):
        files.load(path)


#: Each was found by `benches/fuzz_readers.py`.
STUMBLES: dict[str, tuple[Callable[[Path], object], bytes]] = {
    "a line of pairs that never ends": (lambda at: read_csv(at, ["a"], ["tps"]), b"a=a" * 2000 + b" ?\n"),
    "a row of figures that never ends": (
        lambda at: read_outputs([at], "{a}"),
        b"The 'numbers' are in 1000s of bytes per second processed.\ntype  16 bytes\nmd5  "
        + b"9" * 4000
        + b"x\n",
    ),
    "a number with two points": (
        lambda at: read_outputs([at], "{a}"),
        outputs.SYSBENCH.replace("499.50 per", "4.9.9 per").encode(),
    ),
    "a bare end of line in a line of CSV": (
        lambda at: read_outputs([at], "{a}"),
        outputs.BONNIE.encode().replace(b"1.98,", b"1.98,\r", 1),
    ),
    "a plan with a number beyond 64 bits": (
        lambda at: plans.parse(at.read_text(), "x"),
        b"name = 'x'\nseed = " + b"9" * 400,
    ),
    "a list of hosts with an endless name": (lambda at: inventory.load(str(at)), b"a@" + b"h" * 400 + b"/\n"),
    "a report of fio that is deep": (
        lambda at: list(read_snapshots(at.read_text().splitlines(keepends=True), "x")),
        b'{\n"jobs": ' + b"[" * 100_000 + b"\n}\n",
    ),
    "stacks counted beyond 64 bits": (lambda at: stacks.parse(at.read_text()), b"a;b " + b"9" * 5000),
}


@pytest.mark.parametrize("name", STUMBLES)
def test_what_a_reader_once_stumbled_on_is_an_answer_or_an_error_of_ours(tmp_path: Path, name: str) -> None:
    read, content = STUMBLES[name]
    path = tmp_path / "x.txt"
    path.write_bytes(content)
    began = time.process_time()
    with contextlib.suppress(HeadraceError):
        read(path)
    assert time.process_time() - began < 20, "they took for ever"


def test_the_start_of_an_endless_file_takes_no_memory_for_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * 10)
    tracemalloc.start()
    try:
        assert read_plain(path) == b"x" * 10
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
