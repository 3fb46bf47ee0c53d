"""Demands as people write them: CSV or Parquet, one row per host, resource and step.

    host,group,time,resource,value
    db1,orders,2026-03-01T10:00:00Z,cpu,3.4

``value`` is what the host's databases used on average from ``time`` on, in the unit of ``Resource``; an empty
one is a gap. ``resource`` may also be ``queries`` (per second), which nothing runs out of: it is the work that
is paid for. ``group`` (the replication group) and ``type`` (the host's type in the catalogue) may be absent.
The step is the most common distance of two times of one host, and all hosts share its grid, whichever second
each of them was sampled at. CSV is read as ``foreign`` reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.base.errors import PlanError
from headrace.capacity.model import Demand, Resource
from headrace.capacity.used import MISSED, WATCHED
from headrace.change.production.table import seconds_of_time
from headrace.experiment.foreign import cells_of
from headrace.history.archive.files import DAY_S

NEEDED = ("host", "time", "resource", "value")
QUERIES = "queries"
HINT = "docs/reference/merge.md lists the columns"
#: No host has that much of anything; sums of more would not be numbers any more.
LARGEST = 1e18
#: A step that is this small next to the whole is a mistake in a time.
MOST_STEPS = 1_000_000
#: Of a Parquet file: its rows, and what they take in memory before they are looked at.
MOST_ROWS, MOST_TEXT_BYTES = 4_000_000, 1 << 30

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """``queries``: per second, of hosts that have them. ``types``: the type of each host today, if it is known.
    ``watts``: of hosts that measure them, processors and memory."""

    demands: tuple[Demand, ...]
    queries: Mapping[str, Values]
    types: Mapping[str, str]
    notes: tuple[str, ...]
    watts: Mapping[str, Values] = field(default_factory=dict)


@dataclass(frozen=True)
class _Row:
    host: str
    group: str
    type: str
    at_s: float
    resource: str
    value: float
    place: str


def read(path: Path) -> Table:
    """The demands of a file. Raises PlanError with line and column."""
    rows, notes = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    series = _series(rows)
    start_s, step_s, steps = _steps(list(series.values()), path)
    # One without any value is unknown, like one without rows.
    used = {
        key: on_grid
        for key, each in series.items()
        if np.isfinite(on_grid := each.on_grid(start_s, step_s, steps)).any()
    }
    groups, types = _one(rows, "group"), _one(rows, "type")
    demands = []
    for host in groups:
        own = {r: values for r in Resource if (values := used.get((host, r.value))) is not None}
        if not own:
            raise PlanError(f"{host} has no value of any resource", place=str(path), hint=HINT)
        demands.append(Demand(host, start_s, step_s, own, groups[host]))
    queries = {host: values for (host, name), values in used.items() if name == QUERIES}
    notes = [*notes, *_coarser(series, step_s)]
    return of_demands(demands, queries, {h: t for h, t in types.items() if t}, notes)


def of_demands(
    demands: Sequence[Demand], queries: Mapping[str, Values], types: Mapping[str, str], notes: Sequence[str]
) -> Table:
    """Demands that share their steps, with what is missing in them added to the notes."""
    notes = [*notes, *_unequal(demands), *_gaps(demands), *_uncounted(queries)]
    return Table(tuple(demands), queries, types, tuple(notes))


def _csv(path: Path) -> tuple[list[_Row], list[str]]:
    lines, notes = cells_of(path, NEEDED, ("value",))
    rows = []
    for place, cells in lines:
        text = cells["value"].strip()
        try:
            # Python would take 1_000, which no other reader of tables does.
            value = float(text.replace("_", "?")) if text else math.nan
        except ValueError as error:
            raise PlanError(f"column value: {text!r} is not a number", place=place, hint=HINT) from error
        try:
            at_s = seconds_of_time(cells["time"])
        except ValueError as error:
            raise PlanError(
                f"column time: {cells['time']!r} is not a time", place=place, hint="2026-03-01T10:00Z"
            ) from error
        rows.append(_checked(cells, at_s, value, bool(text), place))
    return rows, notes


def _parquet(path: Path) -> tuple[list[_Row], list[str]]:
    rows = []
    for number, cells in enumerate(_parquet_rows(path), 1):
        place = f"{path}: row {number}"
        at, value = cells["time"], cells["value"]
        try:
            at_s = _seconds_of(at)
            number_of = math.nan if value is None else float(value)
        except (TypeError, ValueError) as error:
            raise PlanError(f"column time or value: {error}", place=place, hint=HINT) from error
        text = {name: "" if cells.get(name) is None else str(cells[name]) for name in ("host", "resource")}
        text |= {name: str(cells[name]) for name in ("group", "type") if cells.get(name) is not None}
        rows.append(_checked(text, at_s, number_of, value is not None, place))
    return rows, []


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Raises PlanError."""
    import pyarrow as pa

    from headrace.base import parquet

    texts = ("host", "resource", "group", "type")
    try:
        with parquet.opened(path, texts, MOST_ROWS) as file:
            there = file.schema_arrow.names
            if lacking := [name for name in NEEDED if name not in there]:
                raise PlanError(
                    f"no column {lacking[0]!r}; there are: {', '.join(there) or 'none'}",
                    place=str(path),
                    hint=HINT,
                )
            kept = [name for name in (*NEEDED, "group", "type") if name in there]
            yield from parquet.rows(file, kept, MOST_TEXT_BYTES)
    except FileNotFoundError as error:
        raise PlanError("no such file", place=str(path)) from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise PlanError(f"not a Parquet file that is read: {error}", place=str(path)) from error


def _seconds_of(at: Any) -> float:
    """Unix time of a cell. Without a zone it is UTC, as in a CSV: this machine's zone lacks an hour of spring."""
    if not isinstance(at, datetime):
        return seconds_of_time(str(at))
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _checked(cells: Mapping[str, str], at_s: float, value: float, is_given: bool, place: str) -> _Row:
    host, resource = cells["host"].strip(), cells["resource"].strip()
    if not host:
        raise PlanError("column host: empty", place=place, hint=HINT)
    if resource not in (*Resource, QUERIES):
        known = ", ".join([*Resource, QUERIES])
        raise PlanError(f"column resource: {resource!r} is none of {known}", place=place)
    if is_given and not math.isfinite(value):
        raise PlanError(f"column value: {value} is not a number", place=place, hint=HINT)
    if value > LARGEST:
        raise PlanError(f"column value: {value:g} is more than any host has", place=place, hint=HINT)
    if value < 0:
        raise PlanError(
            f"column value: {value:g} is negative",
            place=place,
            hint="write rates, not counters: a counter that was reset falls",
        )
    group, kind = (cells.get("group") or "").strip(), (cells.get("type") or "").strip()
    return _Row(host, group, kind, at_s, resource, value, place)


@dataclass(frozen=True)
class _Series:
    """One host's values of one resource, by time; each counts from its time on, for ``length_s`` (0: unknown) if
    none follows soon."""

    at_s: Values
    values: Values
    length_s: int

    def end_s(self, step_s: int) -> float:
        """The middle of the last step that it has a value for."""
        length_s = self.length_s or step_s
        return float(self.at_s[-1]) + length_s - min(length_s, step_s) / 2

    def on_grid(self, start_s: int, step_s: int, steps: int) -> Values:
        """Its values in the common steps; NaN where none is known.

        Each value is moved to the step that has most of its time, not spread over two: that would flatten peaks.
        Several in one step are averaged if they are shorter than it; otherwise a timer jittered, and the largest
        counts. A step that got none has the value that still counts then.
        """
        length_s = self.length_s or step_s
        at = np.floor((self.at_s + min(length_s, step_s) / 2 - start_s) / step_s).astype(np.int64)
        known = np.isfinite(self.values)
        found = np.full(steps, np.nan)
        if 2 * length_s <= step_s:
            counts = np.bincount(at[known], minlength=steps)
            sums = np.bincount(at[known], weights=self.values[known], minlength=steps)
            enough = counts * length_s >= WATCHED * step_s
            found[enough] = sums[enough] / counts[enough]
            return found
        np.fmax.at(found, at[known], self.values[known])
        middle = start_s + step_s * (np.arange(steps) + 0.5)
        last = np.searchsorted(self.at_s, middle, side="right") - 1
        until = np.diff(self.at_s, append=np.inf)
        until = self.at_s + np.where(until <= MISSED * length_s, until, length_s)
        holds = np.isnan(found) & (last >= 0) & (middle < until[last])
        found[holds] = self.values[last[holds]]
        return found


def _series(rows: Sequence[_Row]) -> dict[tuple[str, str], _Series]:
    by_time: dict[tuple[str, str], dict[float, float]] = {}
    for row in rows:
        own = by_time.setdefault((row.host, row.resource), {})
        if math.isfinite(own.get(row.at_s, math.nan)):
            raise PlanError(
                f"{row.host} has two values of {row.resource} at one time",
                place=row.place,
                hint="write one row per host, resource and step",
            )
        own[row.at_s] = row.value
    found = {}
    for key, own in by_time.items():
        at_s = np.array(sorted(own))
        found[key] = _Series(at_s, np.array([own[at] for at in at_s]), _usual(np.diff(at_s)))
    return found


def _usual(distances: Values) -> int:
    """The most common one in whole seconds, at least 1; 0 if there is none."""
    if not len(distances):
        return 0
    lengths, counts = np.unique(np.round(distances), return_counts=True)
    return max(int(lengths[np.argmax(counts)]), 1)


def _steps(series: Sequence[_Series], path: Path) -> tuple[int, int, int]:
    """(start, length of a step, number of steps)."""
    if not series:
        raise PlanError("the table has no rows", place=str(path))
    # Of each host by itself: two that are sampled every minute, 20 s apart, have no step of 20 s.
    step_s = _usual(np.concatenate([np.diff(each.at_s) for each in series]))
    if not step_s:
        raise PlanError("no host has two times: a demand is a history", place=str(path), hint=HINT)
    start_s = int(min(each.at_s[0] for each in series))
    steps = int((max(each.end_s(step_s) for each in series) - start_s) // step_s) + 1
    if steps > MOST_STEPS:
        raise PlanError(
            f"{steps:,} steps of {step_s} s", place=str(path), hint="is a time wrong? Use longer steps"
        )
    return start_s, step_s, steps


def _one(rows: Sequence[_Row], column: str) -> dict[str, str]:
    """Host -> its only value of a column."""
    found: dict[str, str] = {}
    for row in rows:
        value = getattr(row, column)
        if found.setdefault(row.host, value) != value:
            raise PlanError(
                f"column {column}: {row.host} has {value!r}, and {found[row.host]!r} before", place=row.place
            )
    return found


#: Most hosts named in a note.
MOST_NAMED = 5


def named(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - MOST_NAMED} more" if len(hosts) > MOST_NAMED else ""
    return f"{', '.join(hosts[:MOST_NAMED])}{more}"


def _unequal(demands: Sequence[Demand]) -> list[str]:
    """Resources that only some hosts have: for the others they count as 0."""
    found = []
    for resource in Resource:
        without = [each.host for each in demands if resource not in each.used]
        if 0 < len(without) < len(demands):
            found.append(f"no {resource} of {named(without)}: counted as none")
    return found


def _coarser(series: Mapping[tuple[str, str], _Series], step_s: int) -> list[str]:
    own = sorted({host for (host, _), each in series.items() if each.length_s > MISSED * step_s})
    words = (
        f"has longer steps than {step_s} s; each value counts for its whole step, shorter peaks are unknown"
    )
    return [f"{named(own)}: {words}"] if own else []


def _uncounted(queries: Mapping[str, Values]) -> list[str]:
    own = [host for host, values in queries.items() if np.isnan(values).mean() > 0.01]
    return (
        [f"{named(own)}: {QUERIES} are missing at times; the mean of the time of day counts"] if own else []
    )


def _gaps(demands: Sequence[Demand]) -> list[str]:
    notes = []
    for words, is_so in _GAPS:
        own = [each.host for each in demands if is_so(_missing(each))]
        if own:
            notes.append(f"{named(own)}: {words}")
    return notes


def _missing(demand: Demand) -> tuple[float, float]:
    """(share of steps without all values, longest such stretch in days)."""
    gap = np.any([~np.isfinite(values) for values in demand.used.values()], axis=0)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], gap.view(np.int8), [0]))))
    longest = int((edges[1::2] - edges[::2]).max(initial=0))
    return float(gap.mean()), longest * demand.step_s / DAY_S


_GAPS: tuple[tuple[str, Callable[[tuple[float, float]], bool]], ...] = (
    (
        "days are missing; at such times the largest value of the same time of day counts",
        lambda gap: gap[1] >= 1,
    ),
    (
        "more than 1% of the steps are missing; the largest value of the same time of day counts",
        lambda gap: gap[0] > 0.01 and gap[1] < 1,
    ),
)
