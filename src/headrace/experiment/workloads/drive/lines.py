"""From the drivers' JSON lines to the tables of the store; several drivers are merged exactly.

Counts and histograms are added bucket by bucket, so the totals cover all operations of all clients. If a driver's
counts and histograms disagree, all of its output is rejected.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zstandard

from headrace.base.buckets import bucket_of
from headrace.base.errors import WorkloadFailed
from headrace.experiment.store import RECONNECT
from headrace.experiment.workloads.workload import Measurement

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

#: The kinds of latency, as in arrow.LATENCY.
KINDS = ("response", "service", "failed")

#: Number of distinct errors to list; the rest are in the raw lines.
NAMED_ERRORS = 5

_BUCKETS = int(bucket_of(2**63 - 1)) + 1
_NONE_NS = np.iinfo(np.int64).max
_COUNTED = ("count", "errors", "rows", "bytes")
_ENDING = ("window_start_ns", "invalid", "warnings", "errors", "connections_lost", "unfinished")


@dataclass(frozen=True)
class Source:
    """The lines of one driver. ``name`` identifies it in messages; ``shift_ns`` is added to its times."""

    path: Path
    name: str = ""
    shift_ns: int = 0


@dataclass(frozen=True, eq=False)
class _Run:
    """One driver's output in columns: one element per ``interval`` line, and one per bucket of its histograms.

    Times are as in its lines. ``bars`` has the columns: row, kind (an index of KINDS), bucket, count.
    """

    source: Source
    window_start_ns: int
    end: Mapping[str, Any]
    names: Sequence[str]
    operation: NDArray[np.int64]
    t_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    counted: Mapping[str, NDArray[np.int64]]
    min_ns: NDArray[np.int64]
    max_ns: NDArray[np.int64]
    bars: NDArray[np.int64]


def measurement(sources: Sequence[Source]) -> Measurement:
    """The tables of all drivers together. Raises WorkloadFailed if lines are cut or wrong, or have no work."""
    runs = [_read(source) for source in sources]
    names = list(dict.fromkeys(name for run in runs for name in run.names))
    grid = _common_starts(runs)
    window_start_ns = min(run.window_start_ns + run.source.shift_ns for run in runs)
    end_s = max(float(run.end_s.max()) for run in runs)
    sums = _Sums(len(grid), names)
    for run in runs:
        sums.add(run, np.searchsorted(grid, _micros(run.t_s), side="right") - 1)
    starts_s = grid / 1e6
    invalid, warnings = _verdicts(runs)
    inside = starts_s >= 0
    is_work = np.array([name != RECONNECT for name in names])
    if not sums.counted["count"][inside][:, is_work].any():
        words = f": {warnings[0]}" if warnings else ""
        raise WorkloadFailed(f"no operation succeeded in the measured window{words}")
    return Measurement(
        sums.intervals(starts_s, np.append(starts_s[1:], end_s) - starts_s),
        sums.latency(starts_s),
        window_start_ns,
        window_start_ns + round(end_s * 1e9),
        invalid,
        warnings,
    )


def _micros(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole microseconds, which compare equal despite rounded decimals."""
    return np.rint(seconds * 1e6).astype(np.int64)


def _common_starts(runs: Sequence[_Run]) -> NDArray[np.int64]:
    """Start times of the merged rows, in us: those of every driver's rows, so that none has to be split.

    Drivers differ only in their last rows, which end with the last operation.
    """
    own = [np.unique(_micros(run.t_s)) for run in runs]
    common = own[0]
    for starts in own[1:]:
        common = np.intersect1d(common, starts)
    if not len(common) or 0 not in common or any(starts[0] != common[0] for starts in own):
        raise WorkloadFailed("the drivers' seconds do not start together")
    return common


class _Sums:
    """Rows by start and operation, and histograms by both and kind, added up over drivers."""

    def __init__(self, rows: int, names: Sequence[str]) -> None:
        self._names = names
        shape = (rows, len(names))
        self.counted = {name: np.zeros(shape, dtype=np.int64) for name in _COUNTED}
        self._min_ns = np.full(shape, _NONE_NS, dtype=np.int64)
        self._max_ns = np.full(shape, -1, dtype=np.int64)
        self._bars: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    def add(self, run: _Run, row: NDArray[np.int64]) -> None:
        """``row`` maps the driver's rows to merged rows."""
        operation = np.array([self._names.index(name) for name in run.names], dtype=np.int64)[run.operation]
        for name, values in run.counted.items():
            np.add.at(self.counted[name], (row, operation), values)
        np.minimum.at(self._min_ns, (row, operation), run.min_ns)
        np.maximum.at(self._max_ns, (row, operation), run.max_ns)
        of, kind, bucket, count = run.bars
        self._bars.append((self._key(row[of], operation[of], kind, bucket), count))

    def _key(self, *parts: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.ravel_multi_index(parts, self._shape)

    @property
    def _shape(self) -> tuple[int, ...]:
        return (*self._min_ns.shape, len(KINDS), _BUCKETS)

    def intervals(self, starts_s: NDArray[np.float64], durations_s: NDArray[np.float64]) -> pa.Table:
        import pyarrow as pa

        from headrace.host.arrow import INTERVALS

        rows, operations = self._min_ns.shape
        known = self._max_ns.ravel() >= 0
        columns: dict[str, Any] = {
            "t_s": np.repeat(starts_s, operations),
            "duration_s": np.repeat(durations_s, operations),
            "operation": list(self._names) * rows,
            **{name: values.ravel() for name, values in self.counted.items()},
            "min_ns": pa.array(self._min_ns.ravel(), mask=~known),
            "max_ns": pa.array(self._max_ns.ravel(), mask=~known),
            "p99_ns": pa.nulls(rows * operations, pa.int64()),
        }
        return pa.table({name: columns[name] for name in INTERVALS.names}, schema=INTERVALS)

    def latency(self, starts_s: NDArray[np.float64]) -> pa.Table:
        import pyarrow as pa

        from headrace.host.arrow import LATENCY

        keys, where = np.unique(np.concatenate([key for key, _ in self._bars]), return_inverse=True)
        totals = np.zeros(len(keys), dtype=np.int64)
        np.add.at(totals, where, np.concatenate([count for _, count in self._bars]))
        row, operation, kind, bucket = np.unravel_index(keys, self._shape)
        inside = starts_s[row] >= 0
        columns = {
            "t_s": starts_s[row],
            "operation": np.array(self._names, dtype=object)[operation],
            "kind": np.array(KINDS, dtype=object)[kind],
            "bucket": bucket.astype(np.int32),
            "count": totals,
        }
        return pa.table({name: column[inside] for name, column in columns.items()}, schema=LATENCY)


def _verdicts(runs: Sequence[_Run]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Reasons why the numbers are invalid, and warnings, of all drivers."""
    found: dict[str, list[str]] = {"invalid": [], "warnings": []}
    errors: dict[tuple[str, int], tuple[int, str]] = {}
    for run in runs:
        prefix = f"{run.source.name}: " if run.source.name else ""
        for key, texts in found.items():
            texts += [prefix + text for text in run.end[key]]
        for error in run.end["errors"]:
            key_of = (error["operation"], error["code"])
            count, message = errors.get(key_of, (0, error["message"]))
            errors[key_of] = (count + error["count"], message)
    worst = sorted(errors.items(), key=lambda item: -item[1][0])
    told = [
        f"{operation}: {count:,} times error {code}: {message}"
        for (operation, code), (count, message) in worst
    ]
    if len(told) > NAMED_ERRORS:
        told[NAMED_ERRORS:] = [f"{len(told) - NAMED_ERRORS} more kinds of errors"]
    for key, words in (
        ("connections_lost", "connections lost and reopened"),
        ("unfinished", "operations given up at the end"),
    ):
        if number := sum(run.end[key] for run in runs):
            told.append(f"{words}: {number:,}")
    return tuple(found["invalid"]), (*told, *found["warnings"])


def _read(source: Source) -> _Run:
    place = str(source.path)
    try:
        return _run(source, json_lines(source.path))
    except (KeyError, TypeError, ValueError, OverflowError, zstandard.ZstdError) as error:
        raise WorkloadFailed(
            f"the driver's lines cannot be read: {type(error).__name__}: {error}", place=place
        ) from error


def json_lines(path: Path) -> Iterator[Any]:
    with path.open("rb") as compressed:
        reader = zstandard.ZstdDecompressor().stream_reader(compressed, read_across_frames=True)
        for line in io.TextIOWrapper(io.BufferedReader(reader), encoding="utf-8"):
            yield json.loads(line)


def _run(source: Source, lines: Iterator[Any]) -> _Run:
    start = next(lines, None)
    if start is None or start["kind"] != "start":
        raise ValueError("they do not start with `start`")
    end: Any = None
    rows: list[dict[str, Any]] = []
    bars = [np.zeros((4, 0), dtype=np.int64)]
    last: dict[str, int] = {}
    for line in lines:
        if line["kind"] == "end":
            end = {key: line[key] for key in _ENDING}
            break
        if line["kind"] == "drain":
            bars.append(_drained(rows, last, line))
            continue
        if line["kind"] != "interval":
            raise ValueError(f"a line of an unknown kind, {line['kind']!r}")
        # Bucket lists become arrays immediately, because an hour of them would fill the memory.
        bars.append(_bars(len(rows), line))
        last[line["operation"]] = len(rows)
        row = {key: line[key] for key in ("t_s", "duration_s", "operation", *_COUNTED)}
        rows.append(
            {
                **row,
                "min_ns": _extreme(line, "min_ns", min, _NONE_NS),
                "max_ns": _extreme(line, "max_ns", max, -1),
            }
        )
    if end is None:
        raise ValueError("they are cut short: there is no `end`")
    names = [*start["operations"]]
    names += [RECONNECT] if any(row["operation"] == RECONNECT for row in rows) else []
    index = {name: i for i, name in enumerate(names)}
    integers = {
        key: np.array([row[key] for row in rows], dtype=np.int64) for key in (*_COUNTED, "min_ns", "max_ns")
    }
    t_s = np.array([row["t_s"] for row in rows], dtype=np.float64)
    return _Run(
        source=source,
        window_start_ns=int(end["window_start_ns"]),
        end=end,
        names=names,
        operation=np.array([index[row["operation"]] for row in rows], dtype=np.int64),
        t_s=t_s,
        end_s=t_s + np.array([row["duration_s"] for row in rows], dtype=np.float64),
        counted={key: integers[key] for key in _COUNTED},
        min_ns=integers["min_ns"],
        max_ns=integers["max_ns"],
        bars=np.concatenate(bars, axis=1),
    )


def _drained(rows: list[dict[str, Any]], last: Mapping[str, int], line: Any) -> NDArray[np.int64]:
    """Operations that ended after the window: their latencies and errors belong to the operation's last row.

    They began in the window, so that its percentiles include them. They are not part of its throughput.
    """
    number = last.get(line["operation"])
    if number is None:
        # Only reconnects have no row in every second.
        return np.zeros((4, 0), dtype=np.int64)
    row = rows[number]
    row["errors"] += line["errors"]
    row["min_ns"] = min(row["min_ns"], _extreme(line, "min_ns", min, _NONE_NS))
    row["max_ns"] = max(row["max_ns"], _extreme(line, "max_ns", max, -1))
    return _bars(number, line)


def _extreme(row: Any, key: str, choose: Any, none: int) -> int:
    """Of all finished operations, successful or failed: percentiles cover both."""
    known = [row[kind][key] for kind in ("response", "failed") if row[kind][key] is not None]
    return int(choose(known, default=none))


def _bars(number: int, row: Any) -> NDArray[np.int64]:
    """The three histograms of a line, checked. Shape (4, buckets): row, kind, bucket, count."""
    parts = [np.array(row[kind]["buckets"], dtype=np.int64).reshape(-1, 2) for kind in KINDS]
    for kind, part in zip(KINDS, parts, strict=True):
        if len(part) and (part[:, 0].min() < 0 or part[:, 0].max() >= _BUCKETS or part[:, 1].min() < 1):
            raise ValueError(f"no histogram: {kind} at {row['t_s']} s")
        held = int(part[:, 1].sum())
        if kind != "failed" and held != row["count"]:
            raise ValueError(
                f"{row['count']} operations of {row['operation']} at {row['t_s']} s, but {kind} holds {held}"
            )
    both = np.concatenate(parts)
    kinds = np.repeat(np.arange(len(KINDS)), [len(part) for part in parts])
    return np.stack([np.full(len(both), number), kinds, both[:, 0], both[:, 1]])
