"""Parquet of others: bounded before it is read; numbers that cannot be are an error of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.base import parquet
from headrace.base.errors import PlanError, StoreError
from headrace.base.received import BadContent
from headrace.capacity import capacity
from headrace.capacity import table as demands
from headrace.experiment.kinds import search
from headrace.experiment.store import ExperimentFolder
from headrace.experiment.trial_tables import check_table
from headrace.host import arrow, snapshot
from headrace.traffic.digests import history
from tests import synthetic

NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])


def many_rows(path: Path, rows: int) -> None:
    zeros = pa.array(np.zeros(1 << 20, np.int64))
    with pq.ParquetWriter(path, pa.schema([("n", pa.int64())]), compression="zstd") as writer:
        for _ in range(rows >> 20):
            writer.write_table(pa.table({"n": zeros}))


def one_text(path: Path) -> None:
    """A text of 1 MB in each of a hundred thousand rows."""
    words = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), pa.array(["x" * 1_000_000]))
    pq.write_table(pa.table({"n": np.arange(100_000), "text": words}), path, compression="zstd")


def test_more_rows_than_there_may_be_are_counted_and_not_read(tmp_path: Path) -> None:
    many_rows(tmp_path / "f", 2 << 20)
    with pytest.raises(BadContent, match="2,097,152 rows"):
        parquet.read(tmp_path / "f", pa.schema([("n", pa.int64())]), most_rows=2_000_000)


def test_a_text_that_is_in_every_row_is_not_unpacked(tmp_path: Path) -> None:
    one_text(tmp_path / "f")
    assert (tmp_path / "f").stat().st_size < 4 << 20
    script = (
        "import sys; from pathlib import Path; import pyarrow as pa; from headrace.base import parquet\n"
        "schema = pa.schema([('n', pa.int64()), ('text', pa.string())])\n"
        "try: parquet.read(Path(sys.argv[1]), schema)\n"
        "except ValueError as error: print(error)\n"
        # Not by rusage, which begins with what the process that started this one had.
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "f")]
    said, most_kib = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "too large" in said
    assert int(most_kib) < 400 << 10


def test_honest_rows_are_read_whole(tmp_path: Path) -> None:
    rows = pa.table({"n": np.arange(200_000), "text": [f"t{n % 7}" for n in range(200_000)]}, NUMBERS)
    pq.write_table(rows, tmp_path / "f", row_group_size=50_000)
    assert parquet.read(tmp_path / "f", NUMBERS) == rows
    assert parquet.read(tmp_path / "f", NUMBERS, lambda _: [1]) == rows.slice(50_000, 50_000)
    assert parquet.read(tmp_path / "f", NUMBERS, lambda _: []).num_rows == 0
    with pytest.raises(BadContent, match="not the columns"):
        parquet.read(tmp_path / "f", pa.schema([("n", pa.int64())]))


def test_a_pipe_or_nested_columns_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a plain file"):
        parquet.read(tmp_path / "pipe", NUMBERS)
    pq.write_table(pa.table({"n": [[1], [2]], "text": ["a", "b"]}), tmp_path / "f")
    with pytest.raises(BadContent, match="nested"):
        parquet.read(tmp_path / "f", NUMBERS)


INTERVAL = {
    "t_s": 0.0, "duration_s": 1.0, "operation": "read", "count": 5, "errors": 0, "rows": 0, "bytes": 0,
    "min_ns": 1, "max_ns": 2, "p99_ns": None,
}  # fmt: skip
LATENCY = {"t_s": 0.0, "operation": "read", "kind": "response", "bucket": 3, "count": 5}


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("intervals", [{**INTERVAL, "t_s": float("nan")}]),
        ("intervals", [{**INTERVAL, "duration_s": float("inf")}]),
        ("intervals", [{**INTERVAL, "count": -1}]),
        ("intervals", [{**INTERVAL, "bytes": 2**63 - 1}]),
        ("intervals", [INTERVAL, INTERVAL]),
        ("latency", [{**LATENCY, "bucket": 2**31 - 1}]),
        ("latency", [{**LATENCY, "bucket": -1}]),
        ("latency", [{**LATENCY, "count": -5}]),
        ("latency", [{**LATENCY, "t_s": float("nan")}]),
    ],
)
def test_numbers_that_cannot_be_are_an_error(
    tmp_path: Path, name: str, rows: list[dict[str, object]]
) -> None:
    schema = {"intervals": arrow.INTERVALS, "latency": arrow.LATENCY}[name]
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "f")
    with pytest.raises(StoreError, match=r"cannot be|no number|twice"):
        check_table(name, tmp_path / "f")
    # As one that is right, read before, does not hide.
    pq.write_table(
        pa.Table.from_pylist([INTERVAL if name == "intervals" else LATENCY], schema), tmp_path / "f"
    )
    check_table(name, tmp_path / "f")


def read_all(path: Path) -> None:
    folder = ExperimentFolder.open(path)
    folder.trials()
    folder.database()


def test_any_file_of_a_trial_may_be_anything(tmp_path: Path) -> None:
    folder = synthetic.make(tmp_path / "e", synthetic.Shape(blocks=2))
    read_all(folder.path)
    for file in ("trial.json", "intervals.parquet", "latency.parquet", "samples.parquet"):
        place = folder.trial_path(1) / file
        place.rename(tmp_path / "aside")
        for plant in ("pipe", "deep", "zeros"):
            if plant == "pipe":
                os.mkfifo(place)
            elif plant == "deep":
                place.write_text("[" * 100_000)
            else:
                place.symlink_to("/dev/zero")
            with pytest.raises(StoreError):
                read_all(folder.path)
            place.unlink()
        (tmp_path / "aside").rename(place)
    read_all(folder.path)


def deep(path: Path) -> None:
    path.write_text('{"1": ' + "[" * 100_000)


def a_list(path: Path) -> None:
    path.write_text("[1]")


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def points(path: Path) -> object:
    return search.points_of(cast(ExperimentFolder, SimpleNamespace(path=path.parent)))


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a trial that is evaluated": ("samples.parquet", lambda path: snapshot.of_trial(path.parent)),
    "points of a search": (search.POINTS, points),
    "reviews of a history": ("review.json", lambda path: history.reviews(path.parent)),
    "a table of demands": ("demands.parquet", demands.read),
}
PLANTS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "zeros": zeros,
    "deep": deep,
    "rows": lambda path: many_rows(path, 13 << 20),
    "folder": Path.mkdir,
    "list": a_list,
}


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("reader", READERS)
def test_whatever_has_the_name_of_a_file_is_an_error(tmp_path: Path, reader: str, plant: str) -> None:
    name, read = READERS[reader]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "facts.json").write_text("{}")
    (tmp_path / "trial.json").write_text('{"window_start_ns": 1, "window_end_ns": 2}')
    PLANTS[plant](tmp_path / name)
    with pytest.raises((StoreError, PlanError)) as raised:
        read(tmp_path / name)
    assert name in str(raised.value) or str(tmp_path) in str(raised.value)


@pytest.mark.parametrize("content", ["[" * 100_000, "[1]", "NaN", '{"a": 1e999}', ""])
def test_a_report_of_others_is_read_or_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "report.json").write_text(content)
    with pytest.raises(StoreError):
        capacity.read_json(tmp_path / "report.json")
