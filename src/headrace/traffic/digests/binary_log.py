"""What a digest has of binary logs: transactions, the tables that they change, what is missing between logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import StoreError
from headrace.traffic.digests.classes import NO_BUCKETS, NOTHING, Buckets, Digest, Number
from headrace.traffic.digests.table import OTHERS, SQUARES

#: Fields of the agent's line (docs/reference/digest-format.md#transactions).
PARTS = ("transaction", "kind", "table", "largest", "gap")
COUNTS = (
    "count", "rolled_back", "prepared", "unfinished", "at_least", "log_bytes", "compressed_bytes",
    "expanded_bytes", "logs", "relay_logs", "gap_count",
)  # fmt: skip
SPREADS = ("rows", "bytes", "statements", "duration_ns", "lag_ns")
TABLE_COUNTS = ("uncounted", "with_key", "without_key", "key_not_told")


@dataclass(frozen=True)
class ChangedTable:
    """``kinds``: insert, update, delete -> (statements, rows). ``uncounted`` statements are without their rows."""

    name: str
    kinds: Mapping[str, tuple[int, int]]
    bytes: int
    uncounted: int
    #: None if the log does not tell.
    has_key: bool | None

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.kinds.values())

    @property
    def found_rows(self) -> int:
        """Rows that a replica has to find before it changes them."""
        return sum(self.kinds.get(kind, (0, 0))[1] for kind in ("update", "delete"))

    @property
    def is_scanned(self) -> bool:
        """No primary key, and rows are updated or deleted: a replica may read the table for each of them."""
        return self.has_key is False and any(self.kinds.get(kind, (0, 0))[0] for kind in ("update", "delete"))


@dataclass(frozen=True, eq=False)
class BinaryLog:
    counts: Mapping[str, int]
    #: Of SPREADS: transactions that have it, the sum, the extremes.
    numbers: Mapping[str, Number]
    histograms: Mapping[str, Buckets]
    #: Kind of event -> (events, bytes), the most bytes first.
    kinds: Mapping[str, tuple[int, int]]
    #: The most bytes first.
    tables: tuple[ChangedTable, ...]
    #: As the agent wrote them, the largest first.
    largest: tuple[Mapping[str, Any], ...]
    gaps: tuple[str, ...] = field(default_factory=tuple)

    def count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def number(self, name: str) -> Number:
        return self.numbers.get(name, NOTHING)

    def buckets(self, name: str) -> Buckets:
        return self.histograms.get(name, NO_BUCKETS)

    @property
    def scanned(self) -> list[ChangedTable]:
        """Tables without a primary key that are updated or deleted from, the most rows first."""
        return sorted((each for each in self.tables if each.is_scanned), key=lambda each: -each.found_rows)

    @property
    def untold(self) -> list[ChangedTable]:
        """Tables that are updated or deleted from, of which the log does not tell whether they have a key."""
        return [each for each in self.tables if each.has_key is None and each.found_rows]


def binary_log(digest: Digest) -> BinaryLog | None:
    """None if no source was a binary log. Raises StoreError if its rows are damaged."""
    rows = digest.table.filter(pc.is_in(digest.table["part"], pa.array(PARTS, digest.table["part"].type)))
    if not rows.num_rows:
        return None
    try:
        return _read(rows)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise StoreError(f"the digest is damaged: {type(error).__name__}: {error}") from error


def _read(rows: pa.Table) -> BinaryLog:
    counts: dict[str, int] = {}
    numbers: dict[str, Number] = {}
    buckets: dict[str, list[tuple[int, int]]] = {}
    kinds: dict[str, tuple[int, int]] = {}
    tables: dict[str, dict[str, tuple[int, int]]] = {}
    largest: list[dict[str, Any]] = []
    gaps: list[str] = []
    for row in rows.to_pylist():
        part, name, count, total = row["part"], row["name"], row["count"] or 0, int(row["sum"] or 0)
        if part == "kind":
            kinds[name] = (count, total)
        elif part == "table":
            tables.setdefault(row["class"], {})[name] = (count, total)
        elif part == "largest":
            largest.append(dict(json.loads(name)))
        elif part == "gap":
            gaps.append(name)
        elif row["bucket"] is not None:
            buckets.setdefault(name, []).append((row["bucket"], count))
        elif name in SPREADS:
            numbers[name] = Number(count, total, row["least"], row["most"])
        elif not name.endswith(SQUARES):
            counts[name] = count
    return BinaryLog(
        counts,
        numbers,
        {name: _buckets(pairs) for name, pairs in buckets.items()},
        dict(sorted(kinds.items(), key=lambda item: (-item[1][1], item[0]))),
        tuple(
            sorted((_table(name, cells) for name, cells in tables.items()), key=lambda t: (-t.bytes, t.name))
        ),
        tuple(sorted(largest, key=lambda each: (-each["bytes"], each["log"], each["position"]))),
        tuple(gaps),
    )


def _buckets(pairs: list[tuple[int, int]]) -> Buckets:
    found = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return Buckets(found[:, 0].astype(np.int32), found[:, 1])


def _table(name: str, cells: Mapping[str, tuple[int, int]]) -> ChangedTable:
    def of(key: str) -> tuple[int, int]:
        return cells.get(key, (0, 0))

    has_key = False if of("without_key")[0] else True if of("with_key")[0] else None
    kinds = {kind: of(kind) for kind in ("insert", "update", "delete")}
    shown = "(other tables)" if name == OTHERS else name or "(unknown table)"
    return ChangedTable(shown, kinds, of("bytes")[1], of("uncounted")[0], has_key)
