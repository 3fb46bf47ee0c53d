"""What clients of several hosts waited for, as if they had always asked for the same mix of classes.

A percentile over all calls moves when the mix moves: more calls of a slow class look like a slower server. Here
each class keeps the share of all calls that it had before a moment, on every host and at any time. What moves then
is the classes themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.base.buckets import BEYOND, bucket_value
from headrace.base.counted import counted
from headrace.history.archive.reader import Range, Reader
from headrace.history.archive.tables import SLOW_LOG
from headrace.history.questions import Chart, Line, unit_of

#: Points of a line: fewer than of a host's own chart, because each has the calls of a percentile's tail.
MOST_POINTS = 240
#: Classes of their own, by calls; all others are one class.
MOST_CLASSES = 40
#: A point stands for the mix only if the classes that have calls in it make up so much of it.
LEAST_OF_MIX = 0.95
#: A host that was timed in less of the range is left out: its coming and going would look like an effect.
LEAST_TIMED = 0.5
OTHERS = "others"
#: Shares are sums of quotients.
ROUNDING = 1e-9

#: Source -> its table, its rows, and its lines.
_CLIENTS = "clients", "TRUE", {"clients p90": 0.9, "clients p99": 0.99, "clients p99.9": 0.999}
_SERVER = "buckets", f"source = '{SLOW_LOG}'", {"server p99 (slow log)": 0.99}

#: Shares of the calls by bucket, of each point of each host in which nearly all of the mix has calls.
_SHAPES = """
SELECT * FROM (
  WITH mix AS (SELECT unnest($names) AS class, unnest($shares) AS share),
  calls AS (
    SELECT host, t_s - t_s % $unit AS t, bucket, CAST(SUM(count) AS DOUBLE) AS n,
      CASE WHEN class IN (SELECT class FROM mix) THEN class ELSE $others END AS class
    FROM rows WHERE {} GROUP BY ALL HAVING n > 0),
  totals AS (SELECT host, t, class, SUM(n) AS whole FROM calls GROUP BY ALL),
  covered AS (
    SELECT host, t, SUM(share) AS of_mix, SUM(whole) AS timed FROM totals JOIN mix USING (class) GROUP BY ALL)
  SELECT host, t, timed, bucket, SUM(share / of_mix * n / whole) AS share
  FROM calls JOIN totals USING (host, t, class) JOIN mix USING (class) JOIN covered USING (host, t)
  WHERE of_mix >= $least GROUP BY ALL ORDER BY bucket)
"""


@dataclass(frozen=True)
class FleetTimes:
    """Percentiles in s. ``worst``: at each time those of the host that was slowest then, for each line by itself;
    ``average``: those of all hosts' calls, each host with the same weight."""

    worst: Chart
    average: Chart
    hosts: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Shape:
    """Shares of calls by bucket, which add up to 1, and how many calls they are of."""

    shares: Mapping[int, float]
    calls: float


_Shapes = dict[str, dict[int, _Shape]]


def of_fleet(reader: Reader, hosts: Sequence[str], span: Range, mix_until_s: float) -> FleetTimes | None:
    """The mix is that of all hosts' calls before ``mix_until_s``; None if no client timed a call."""
    unit = unit_of(span, MOST_POINTS)
    times = list(range(int(span.since_s // unit * unit), math.ceil(span.until_s), unit))
    notes: list[str] = []
    shapes = _read(reader, hosts, span, unit, mix_until_s, _CLIENTS, notes)
    if not shapes:
        return None
    timed = sum(any(t in own for own in shapes.values()) for t in times)
    used = [name for name in hosts if name in shapes and len(shapes[name]) >= LEAST_TIMED * timed]
    for name in hosts:
        if name not in used:
            points = len(shapes.get(name, ()))
            notes.append(
                f"{name} is left out: clients timed its calls in {points} of {counted(timed, 'point')}"
            )
    lines = _lines({name: shapes[name] for name in used}, times, _CLIENTS[2])
    server = _read(reader, used, span, unit, mix_until_s, _SERVER, [])
    if len(server) == len(used):
        lines |= _lines(server, times, _SERVER[2])
    worst, average = (
        Chart(times, unit, [Line(label, pair[i], pair[i], pair[i]) for label, pair in lines.items()])
        for i in range(2)
    )
    return FleetTimes(worst, average, tuple(used), tuple(notes))


def _read(
    reader: Reader,
    hosts: Sequence[str],
    span: Range,
    unit: int,
    mix_until_s: float,
    source: tuple[str, str, Mapping[str, float]],
    notes: list[str],
) -> _Shapes:
    table, where, _ = source
    before = _mix(reader, hosts, Range(span.since_s, min(mix_until_s, span.until_s)), table, where)
    mix = before or _mix(reader, hosts, span, table, where)
    if not mix:
        return {}
    if not before:
        notes.append("the mix is that of the whole range: no call was timed before the change")
    elif len(mix) > 1:
        notes.append(
            f"{counted(len(mix), 'class', 'classes')}, each with its share of the calls before the change"
        )
    rows = reader.rows(
        table,
        _SHAPES.format(where),
        hosts,
        span,
        names=list(mix),
        shares=list(mix.values()),
        unit=unit,
        others=OTHERS,
        least=LEAST_OF_MIX,
    )
    shares: dict[tuple[str, int], dict[int, float]] = {}
    calls: dict[tuple[str, int], float] = {}
    for row in rows:
        at = str(row["host"]), int(row["t"])
        shares.setdefault(at, {})[int(row["bucket"])] = row["share"]
        calls[at] = row["timed"]
    shapes: _Shapes = {}
    for (host, t), own in shares.items():
        shapes.setdefault(host, {})[t] = _Shape(own, calls[host, t])
    return shapes


def _mix(reader: Reader, hosts: Sequence[str], span: Range, table: str, where: str) -> dict[str, float]:
    """Class -> its share of all calls."""
    if span.seconds <= 0:
        return {}
    rows = reader.rows(
        table,
        f"SELECT class, CAST(SUM(count) AS DOUBLE) AS n FROM rows WHERE {where} GROUP BY class HAVING n > 0 "
        "ORDER BY n DESC",
        hosts,
        span,
    )
    whole = sum(row["n"] for row in rows)
    kept = {str(row["class"]): row["n"] / whole for row in rows[:MOST_CLASSES]}
    if rows[MOST_CLASSES:]:
        kept[OTHERS] = sum(row["n"] for row in rows[MOST_CLASSES:]) / whole
    return kept


def _lines(
    shapes: _Shapes, times: Sequence[int], shares: Mapping[str, float]
) -> dict[str, tuple[list[float | None], list[float | None]]]:
    """Label -> (worst, average); a point only where every host has one."""
    lines = {}
    for label, share in shares.items():
        worst: list[float | None] = []
        average: list[float | None] = []
        for t in times:
            own = [each[t] for each in shapes.values() if t in each]
            is_whole = len(own) == len(shapes)
            took = [_took(shape, share) for shape in own]
            known = [value for value in took if value is not None]
            worst.append(max(known) if is_whole and len(known) == len(shapes) else None)
            average.append(_took(_together(own), share) if is_whole else None)
        if any(value is not None for value in [*worst, *average]):
            lines[label] = worst, average
    return lines


def _together(shapes: Sequence[_Shape]) -> _Shape:
    shares: dict[int, float] = {}
    for shape in shapes:
        for bucket, share in shape.shares.items():
            shares[bucket] = shares.get(bucket, 0.0) + share / len(shapes)
    return _Shape(shares, sum(shape.calls for shape in shapes))


def _took(shape: _Shape, share: float) -> float | None:
    """A percentile in s by nearest rank. None where fewer than one call is beyond it, or it was slower than the
    last bound."""
    if shape.calls * (1 - share) < 1:
        return None
    reached = 0.0
    for bucket in sorted(shape.shares):
        reached += shape.shares[bucket]
        if reached >= share - ROUNDING:
            return None if bucket >= BEYOND else float(bucket_value(bucket)) / 1e9
    return None
