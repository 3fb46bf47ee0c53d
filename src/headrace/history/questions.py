"""What the pages ask of the history."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.base.buckets import BEYOND, bucket_bounds, bucket_value
from headrace.history.archive.files import DAY_S, HOUR_S, WEEK_S
from headrace.history.archive.reader import Range, Reader, percentile
from headrace.history.archive.tables import SLOW_LOG, added

#: Points of one line: never more than a wide screen has pixels for.
MOST_POINTS = 600
#: Columns of a heat map, and its rows for each doubling of a latency.
HEAT_POINTS, HEAT_BANDS = 160, 4
#: How far back plans are looked for.
PLANS_S = 400 * DAY_S
#: Points of a sparkline.
SPARK_POINTS = 40

Row = dict[str, Any]


def unit_of(span: Range, most: int) -> int:
    """Seconds per point, a whole number of the rows that are read."""
    return span.rows_s * max(math.ceil(span.seconds / span.rows_s / most), 1)


@dataclass(frozen=True)
class Line:
    """One series: means, and the extremes of the minutes in each point. None is a gap."""

    label: str
    mean: list[float | None]
    least: list[float | None]
    most: list[float | None]


@dataclass(frozen=True)
class Chart:
    """``t_s`` are the starts of the points, ``unit_s`` apart."""

    t_s: list[int]
    unit_s: int
    lines: list[Line]


@dataclass(frozen=True)
class Heat:
    """``cells`` has a row per label: a number per point, None where nothing is known. The label of a
    band of latencies is where it starts, in ns."""

    t_s: list[int]
    unit_s: int
    labels: list[str] | list[float]
    cells: list[list[float | None]]


def _of_class(source: str, name: str) -> dict[str, Any]:
    """Values of a question: ``class`` is a word of Python's own."""
    return {"source": source, "class": name}


def heat(reader: Reader, host: str, metric: str, span: Range) -> Heat:
    """A metric of a host, a row per core or device."""
    found = chart(reader, host, metric, span, HEAT_POINTS)
    lines = sorted(found.lines, key=lambda line: (len(line.label), line.label))
    return Heat(found.t_s, found.unit_s, [line.label for line in lines], [line.mean for line in lines])


def chart(reader: Reader, host: str, metric: str, span: Range, most: int = MOST_POINTS) -> Chart:
    """A metric of a host, one line per label."""
    unit = unit_of(span, most)
    rows = reader.rows(
        "metrics",
        f"SELECT label, t_s - t_s % {unit} AS t, SUM(sum) / SUM(n) AS mean, "
        "MIN(least) AS least, MAX(most) AS most FROM rows WHERE metric = $metric GROUP BY ALL ORDER BY label, t",
        host,
        span,
        metric=metric,
    )
    times = _times(span, unit)
    at = {t: i for i, t in enumerate(times)}
    lines: dict[str, Line] = {}
    for row in rows:
        if row["t"] not in at:
            continue
        line = lines.setdefault(
            row["label"],
            Line(row["label"], [None] * len(times), [None] * len(times), [None] * len(times)),
        )
        i = at[row["t"]]
        line.mean[i], line.least[i], line.most[i] = row["mean"], row["least"], row["most"]
    return Chart(times, unit, list(lines.values()))


def has_client_times(reader: Reader, hosts: str | Sequence[str], span: Range) -> bool:
    """Whether clients timed any call."""
    return bool(reader.rows("clients", "SELECT 1 FROM rows WHERE count > 0 LIMIT 1", hosts, span))


def client_times(reader: Reader, host: str, span: Range) -> Chart:
    """Percentiles in s of the calls that clients timed, and the server's own p99 of its slow log beside them.

    What was slower than the last bound of its source has no value: only that it was slower is known.
    """
    unit = unit_of(span, MOST_POINTS)
    times = _times(span, unit)
    at = {t: i for i, t in enumerate(times)}
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
    lines = {f"clients {name}": share for name, share in shares.items()}
    found: dict[str, Line] = {}
    for table, where, named in (
        ("clients", "TRUE", lines),
        ("buckets", f"source = '{SLOW_LOG}'", {"server p99 (slow log)": 0.99}),
    ):
        rows = reader.rows(
            table,
            f"SELECT t, list(bucket ORDER BY bucket) AS buckets, list(n ORDER BY bucket) AS counts FROM ("
            f"SELECT t_s - t_s % {unit} AS t, bucket, {added('count')} AS n FROM rows WHERE {where} GROUP BY ALL) "
            "GROUP BY t",
            host,
            span,
        )
        for row in rows:
            if row["t"] not in at:
                continue
            buckets, counts = np.array(row["buckets"], np.int32), np.array(row["counts"], np.float64)
            for label, share in named.items():
                took = percentile(buckets, counts, share)
                if took is None or took >= bucket_value(BEYOND):
                    continue
                blank: list[float | None] = [None] * len(times)
                line = found.setdefault(label, Line(label, blank, list(blank), list(blank)))
                for values in (line.mean, line.least, line.most):
                    values[at[row["t"]]] = took / 1e9
        if not found:
            # The server's own alone is no chart of clients.
            break
    return Chart(times, unit, list(found.values()))


@dataclass(frozen=True)
class Stood:
    """When a finding stood. The chart is its share of the judged minutes, None where there is none; ``findings``
    is the JSON of the last minute in which it stood."""

    chart: Chart
    minutes: int
    judged: int
    first_s: int | None
    last_s: int | None
    findings: str


def stood(reader: Reader, host: str, identity: str, span: Range) -> Stood:
    """A finding of a host over the range. Of hours and days only their newest minute's findings are kept."""
    # As it stands in the rows: their JSON is our own, and a quote within a text has a backslash.
    needle = json.dumps({"id": identity})[1:-1]
    unit = unit_of(span, MOST_POINTS)
    rows = reader.rows(
        "states",
        f"SELECT t_s - t_s % {unit} AS t, SUM(minutes) AS judged, "
        "SUM(CASE WHEN contains(findings, $needle) THEN minutes ELSE 0 END) AS minutes, "
        "MIN(CASE WHEN contains(findings, $needle) THEN t_s END) AS first_s, "
        "MAX(CASE WHEN contains(findings, $needle) THEN t_s END) AS last_s, "
        "arg_max(findings, t_s) FILTER (contains(findings, $needle)) AS findings "
        "FROM rows WHERE state = 'ok' GROUP BY t ORDER BY t",
        host,
        span,
        needle=needle,
    )
    times = _times(span, unit)
    shares = {row["t"]: row["minutes"] / row["judged"] for row in rows if row["judged"]}
    mean = [shares.get(t) for t in times]
    seen = [row for row in rows if row["last_s"] is not None]
    return Stood(
        Chart(times, unit, [Line("", mean, mean, mean)]),
        sum(row["minutes"] for row in rows),
        sum(row["judged"] for row in rows),
        seen[0]["first_s"] if seen else None,
        seen[-1]["last_s"] if seen else None,
        seen[-1]["findings"] if seen else "[]",
    )


def _times(span: Range, unit: int) -> list[int]:
    first = int(span.since_s // unit * unit)
    return list(range(first, math.ceil(span.until_s), unit))


_STATES = (
    f"SELECT host, state, limiting, {added('minutes')} AS minutes, SUM(sampled_s) AS sampled_s FROM {{}} "
    "GROUP BY ALL ORDER BY host, minutes DESC"
)


def states(reader: Reader, hosts: Sequence[str], span: Range) -> list[Row]:
    """Per host: minutes watched, and what limited it for how many of them."""
    return reader.added(
        "states", _STATES.format("rows"), _STATES.format("lots"), hosts, span, width_s=span.sums_s
    )


def last_states(reader: Reader, hosts: Sequence[str], span: Range) -> dict[str, Row]:
    """The newest row of each host."""
    rows = reader.newest(
        "states",
        "SELECT * FROM rows QUALIFY row_number() OVER (PARTITION BY host ORDER BY t_s DESC) = 1",
        hosts,
        span,
    )
    return {row["host"]: row for row in rows}


def resources(reader: Reader, host: str, span: Range) -> list[Row]:
    """Each resource over the range, the most often saturated first."""
    return reader.rows(
        "resources",
        "SELECT resource, instance, SUM(minutes) AS minutes, SUM(saturated) AS saturated, SUM(busy) AS busy, "
        "SUM(unknown) AS unknown, SUM(erring) AS erring, SUM(used_sum) / SUM(used_minutes) AS used, "
        "MAX(used_most) AS used_most, arg_max(load, t_s) AS load, arg_max(saturation, t_s) AS saturation, "
        "arg_max(errors, t_s) AS errors FROM rows GROUP BY ALL "
        "ORDER BY saturated DESC, busy DESC, used DESC NULLS LAST",
        host,
        span,
        width_s=span.sums_s,
    )


_COUNTS = (
    "calls", "timed", "lock_ns", "errors", "rows_examined", "rows_sent", "tmp_disk_tables", "seen", "looks",
)  # fmt: skip
#: Of rows, and of sums of rows.
_CLASS_SUMS = (
    ", ".join(f"{added(name)} AS {name}" for name in _COUNTS)
    + ", SUM(time_ns) AS time_ns, MAX(most_ns) AS most_ns"
)
_CLASSES = (
    f"SELECT source, class, {_CLASS_SUMS}, list(DISTINCT database) AS databases, list(DISTINCT host) AS hosts "
    "FROM rows WHERE class <> '' GROUP BY source, class"
)


def class_totals(reader: Reader, hosts: Sequence[str], span: Range, source: str) -> list[Row]:
    """Every class of a source over the range."""
    return reader.added(
        "classes",
        _CLASSES,
        f"SELECT class, {_CLASS_SUMS}, list_distinct(flatten(list(databases))) AS databases, "
        "list_distinct(flatten(list(hosts))) AS hosts FROM lots WHERE source = $source "
        "GROUP BY class ORDER BY class",
        hosts,
        span,
        width_s=span.sums_s,
        source=source,
    )


def sources(reader: Reader, hosts: Sequence[str], span: Range) -> list[str]:
    """Where classes of the range come from, the one with most time first."""
    rows = reader.added(
        "classes",
        _CLASSES,
        "SELECT source FROM lots GROUP BY source ORDER BY SUM(time_ns) DESC NULLS LAST, source",
        hosts,
        span,
        width_s=span.sums_s,
    )
    return [row["source"] for row in rows]


def watched_s(reader: Reader, hosts: Sequence[str], span: Range) -> float:
    """Seconds of the range in which some of the hosts were watched."""
    return sum(watched_over_time(reader, hosts, span))


def watched_over_time(
    reader: Reader, hosts: Sequence[str], span: Range, most: int = SPARK_POINTS
) -> list[float]:
    """The same of each point. Hosts are watched at the same time: their calls add up, their seconds do not."""
    minutes = _over_time(reader, "states", "SUM(minutes)", "state = 'ok'", hosts, span, most)
    return [60.0 * each for each in minutes]


def looks_over_time(
    reader: Reader, hosts: Sequence[str], span: Range, source: str, most: int = SPARK_POINTS
) -> list[float]:
    """Looks at the process list in each point. Each class that was seen in a minute has all looks of that minute,
    and since there is a class without a name, so has a minute in which nothing was seen.
    """
    return _over_time(reader, "classes", "MAX(looks)", "source = $source", hosts, span, most, source=source)


def _over_time(
    reader: Reader,
    table: str,
    count: str,
    wanted: str,
    hosts: Sequence[str],
    span: Range,
    most: int,
    **values: Any,
) -> list[float]:
    """A count per point; at each moment, that of the host with the most."""
    unit = unit_of(span, most)
    of_host = f"SELECT host, t_s - t_s % {span.rows_s} AS row_s, SUM(n) AS n FROM lots GROUP BY ALL"
    rows = reader.added(
        table,
        f"SELECT host, t_s, {count} AS n FROM rows WHERE {wanted} GROUP BY ALL",
        f"SELECT row_s - row_s % {unit} AS t, {added('n')} AS n FROM "
        f"(SELECT row_s, MAX(n) AS n FROM ({of_host}) GROUP BY ALL) GROUP BY ALL",
        hosts,
        span,
        **values,
    )
    found = {row["t"]: float(row["n"] or 0) for row in rows}
    return [found.get(t, 0.0) for t in _times(span, unit)]


def percentiles(
    reader: Reader, hosts: Sequence[str], span: Range, source: str, classes: Sequence[str], share: float
) -> dict[str, float]:
    """A percentile in ns of each class that has buckets, exact to the width of a bucket."""
    if not classes:
        return {}
    rows = reader.added(
        "buckets",
        f"SELECT class, bucket, {added('count')} AS n FROM rows "
        "WHERE source = $source AND class IN (SELECT unnest($classes)) GROUP BY ALL",
        "SELECT class, list(bucket ORDER BY bucket) AS buckets, list(n ORDER BY bucket) AS counts FROM ("
        f"SELECT class, bucket, {added('n')} AS n FROM lots GROUP BY ALL) GROUP BY class",
        hosts,
        span,
        width_s=span.sums_s,
        source=source,
        # In one order, so that the sums of lots are found again.
        classes=sorted(classes),
    )
    found = {}
    for row in rows:
        value = percentile(np.array(row["buckets"], np.int32), np.array(row["counts"], np.float64), share)
        if value is not None:
            found[row["class"]] = value
    return found


def histogram(reader: Reader, hosts: Sequence[str], span: Range, source: str, name: str) -> list[Row]:
    """Calls of a class by bucket, with the bucket's bounds in ns."""
    rows = reader.rows(
        "buckets",
        f"SELECT bucket, {added('count')} AS count FROM rows WHERE source = $source AND class = $class "
        "GROUP BY bucket ORDER BY bucket",
        hosts,
        span,
        width_s=span.sums_s,
        **_of_class(source, name),
    )
    for row in rows:
        low, high = bucket_bounds(row["bucket"])
        row["low_ns"], row["high_ns"] = int(low), int(high)
    return rows


def latency_heat(reader: Reader, hosts: Sequence[str], span: Range, source: str, name: str) -> Heat:
    """Calls of a class by time and latency; each row is a band of latencies, the fastest first."""
    unit = unit_of(span, HEAT_POINTS)
    rows = reader.added(
        "buckets",
        f"SELECT t_s - t_s % {unit} AS t, bucket, {added('count')} AS n FROM rows "
        "WHERE source = $source AND class = $class GROUP BY ALL",
        f"SELECT t, bucket, {added('n')} AS n FROM lots GROUP BY ALL",
        hosts,
        span,
        **_of_class(source, name),
    )
    times = _times(span, unit)
    at = {t: i for i, t in enumerate(times)}
    bands: dict[int, list[float | None]] = {}
    for row in rows:
        band = math.floor(HEAT_BANDS * math.log2(float(bucket_bounds(row["bucket"])[1]) + 1))
        if row["t"] in at:
            cells = bands.setdefault(band, [None] * len(times))
            cells[at[row["t"]]] = (cells[at[row["t"]]] or 0) + row["n"]
    low, high = min(bands, default=0), max(bands, default=-1)
    empty: list[float | None] = [None] * len(times)
    return Heat(
        times,
        unit,
        [2 ** (band / HEAT_BANDS) for band in range(low, high + 1)],
        [bands.get(band, empty) for band in range(low, high + 1)],
    )


def class_series(
    reader: Reader,
    hosts: Sequence[str],
    span: Range,
    source: str,
    classes: Sequence[str],
    most: int = SPARK_POINTS,
) -> tuple[list[int], dict[str, list[Row | None]]]:
    """Each class over time: sums per point; None where nothing of it was seen."""
    unit = unit_of(span, most)
    times = _times(span, unit)
    at = {t: i for i, t in enumerate(times)}
    if not classes:
        return times, {}
    rows = reader.added(
        "classes",
        f"SELECT class, t_s - t_s % {unit} AS t, {_CLASS_SUMS} FROM rows "
        "WHERE source = $source AND class IN (SELECT unnest($classes)) GROUP BY ALL",
        f"SELECT class, t, {_CLASS_SUMS} FROM lots GROUP BY ALL",
        hosts,
        span,
        source=source,
        classes=sorted(classes),
    )
    found: dict[str, list[Row | None]] = {}
    for row in rows:
        if row["t"] in at:
            found.setdefault(row["class"], [None] * len(times))[at[row["t"]]] = row
    return times, found


#: What tells sessions at work apart.
SORTS = ("wait", "class", "state", "user", "client")


def session_classes(reader: Reader, hosts: Sequence[str], span: Range) -> list[str]:
    """Classes that sessions were seen to execute, the one of most of them first."""
    rows = reader.added(
        "sessions",
        "SELECT class, SUM(seen) AS seen FROM rows WHERE class <> '' GROUP BY class",
        "SELECT class FROM lots GROUP BY class ORDER BY SUM(seen) DESC, class",
        hosts,
        span,
        width_s=span.sums_s,
    )
    return [row["class"] for row in rows]


def sessions(
    reader: Reader,
    hosts: Sequence[str],
    span: Range,
    by: str,
    without: Collection[str] = (),
    most: int = MOST_POINTS,
) -> tuple[list[int], int, dict[str, list[float | None]]]:
    """Times, the seconds of a point, and average active sessions of each: over the looks of each host, added up.

    ``by`` is one of ``SORTS``; ``without`` these classes. None where nobody looked. A name's zeros are zeros.
    """
    unit = unit_of(span, most)
    times = _times(span, unit)
    rows = reader.added(
        "sessions",
        f"SELECT host, t_s - t_s % {unit} AS t, {by} AS name, SUM(looks) AS looks, "
        "SUM(CASE WHEN class NOT IN (SELECT unnest($without)) THEN seen ELSE 0 END) AS seen "
        "FROM rows GROUP BY ALL",
        "WITH each_host AS (SELECT host, t, SUM(looks) AS looks FROM lots GROUP BY ALL), "
        "each_name AS (SELECT host, t, name, SUM(seen) AS seen FROM lots GROUP BY ALL) "
        "SELECT t, name, SUM(seen / looks) AS mean FROM each_name JOIN each_host USING (host, t) "
        "WHERE looks > 0 GROUP BY ALL",
        hosts,
        span,
        without=["-", *sorted(without)],
    )
    at = {t: i for i, t in enumerate(times)}
    seen = {row["t"] for row in rows}
    empty = [0.0 if t in seen else None for t in times]
    found: dict[str, list[float | None]] = {}
    for row in rows:
        if row["t"] in at:
            found.setdefault(row["name"], list(empty))[at[row["t"]]] = row["mean"]
    return times, unit, found


_TEXTS = (
    "SELECT class, arg_max(text, t_s) AS text, arg_max(tables, t_s) AS tables, MAX(t_s) AS t_s FROM {} "
    "GROUP BY class"
)


def texts(
    reader: Reader, hosts: Sequence[str], span: Range, source: str, classes: Collection[str] | None = None
) -> dict[str, Row]:
    """Class -> its text and tables, of these classes or of all. They are written once a day."""
    found: dict[str, Row] = {}
    end = span.until_s + DAY_S
    # Nearly every class is in the newest files: yesterday's, and today's hours.
    for since in (span.until_s // DAY_S * DAY_S - DAY_S, span.since_s // DAY_S * DAY_S - DAY_S):
        left = None if classes is None else sorted(set(classes) - found.keys())
        if left is None:
            since = span.since_s // DAY_S * DAY_S - DAY_S
        elif not left:
            break
        wanted = "source = $source" + ("" if left is None else " AND class IN (SELECT unnest($classes))")
        rows = reader.added(
            "texts",
            _TEXTS.format(f"rows WHERE {wanted}"),
            _TEXTS.format("lots"),
            hosts,
            Range(since, end),
            width_s=WEEK_S,
            **({"source": source} if left is None else {"source": source, "classes": left}),
        )
        found |= {row["class"]: row for row in rows}
        if left is None:
            break
    return found


def example(reader: Reader, hosts: Sequence[str], span: Range, source: str, name: str) -> Row | None:
    """The newest call of a class with its values, if one was kept."""
    rows = reader.rows(
        "examples",
        "SELECT host, t_s, text, database, took_ns FROM rows WHERE source = $source AND class = $class "
        "ORDER BY t_s DESC LIMIT 1",
        hosts,
        Range(span.since_s // DAY_S * DAY_S, span.until_s),
        **_of_class(source, name),
    )
    return rows[0] if rows else None


def plans(reader: Reader, hosts: Sequence[str], source: str, name: str, until_s: float) -> list[Row]:
    """The plans of a class, newest first: each from when its shape was seen on."""
    return reader.rows(
        "plans",
        "SELECT host, at_s, plan, shape FROM rows WHERE source = $source AND class = $class AND at_s < $until "
        "QUALIFY shape IS DISTINCT FROM lag(shape) OVER (PARTITION BY host ORDER BY at_s) "
        "ORDER BY at_s DESC LIMIT 50",
        hosts,
        Range(until_s - PLANS_S, until_s),
        **_of_class(source, name),
        until=until_s,
    )


def changes(reader: Reader, hosts: Sequence[str], span: Range, most: int = 1000) -> list[Row]:
    """What changed, newest first."""
    # A change is in the minute that was written next: of the day before if it was seen at midnight, or if the
    # clock was set back.
    wider = Range((span.since_s - HOUR_S) // DAY_S * DAY_S, span.until_s)
    return reader.rows(
        "changes",
        "SELECT DISTINCT host, at_s, kind, what, before, after, who FROM rows "
        f"WHERE at_s >= $since AND at_s < $until ORDER BY at_s DESC LIMIT {most}",
        hosts,
        wider,
        since=span.since_s,
        until=span.until_s,
    )


def share_change(now: float | None, before: float | None) -> float | None:
    """A ratio, or None if one side is unknown or was nothing."""
    return now / before if now is not None and before else None
