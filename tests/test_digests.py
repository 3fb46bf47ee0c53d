"""Digests as tables: what merges exactly, what is refused, and what is read back."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.digests.lines import read_lines
from headrace.digests.merge import merge
from headrace.digests.table import read, write
from tests import digests
from tests.digests import Event, Shape


def table(events: list[Event], shape: Shape | None = None) -> pa.Table:
    return read_lines(digests.lines(events, shape), "test")


@pytest.mark.parametrize("seed", range(5))
def test_parts_merge_to_exactly_the_digest_of_the_whole(seed: int, tmp_path: Path) -> None:
    events = digests.traffic(seed)
    parts: list[list[Event]] = [[] for _ in range(4)]
    for event in events:
        parts[random.Random(str(event)).randrange(4)].append(event)
    whole = table(events)
    files = []
    for number, part in enumerate(parts):
        files.append(tmp_path / f"{number}.parquet")
        write(table(part), files[-1])
    read_back = [read(path) for path in files]
    random.Random(seed).shuffle(read_back)
    merged = merge(read_back)
    assert merged.schema == whole.schema
    # One source was read four times.
    different = [(a, b) for a, b in zip(merged.to_pylist(), whole.to_pylist(), strict=True) if a != b]
    assert [(a["part"], a["count"], b["count"]) for a, b in different] == [("source", 4, 1)]
    # In any nesting, too.
    assert merge([merge(read_back[:2]), merge(read_back[2:])]) == merged
