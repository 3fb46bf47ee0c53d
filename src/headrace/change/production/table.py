"""CSV of buckets or of counts.

    time,seconds,host,class,le_ms,count
    2026-03-01T10:00:00Z,60,db1,checkout,0.5,9120

``time`` is the start of a stretch (ISO 8601, UTC without a zone, or Unix seconds), ``seconds`` its length.
``count`` is the number of events in the bucket that ends at ``le_s``, ``le_ms``, ``le_us`` or ``le_ns`` (``inf``
or ``+Inf`` for the last), not cumulative. Without a bound, it is that of all events. ``host`` and ``class`` may be
absent. Semicolons, tabs, decimal commas and other encodings are read as ``foreign`` reads them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from headrace.base.errors import PlanError
from headrace.change.production.series import ALL, Observed, Row, of_rows
from headrace.experiment.foreign import cells_of

UNITS_NS = {"le_s": 1e9, "le_ms": 1e6, "le_us": 1e3, "le_ns": 1.0}
EXAMPLE = "docs/reference/verify.md lists the columns"


def read(paths: Sequence[Path]) -> Observed:
    """The series of these files. Raises PlanError, with the line."""
    files = [opened(path) for path in paths]
    refuse_overlaps(files)
    return joined(files)


@dataclass(frozen=True)
class File:
    """A file's rows, and what its reader had to assume."""

    rows: Sequence[Row]
    notes: tuple[str, ...]
    name: str = ""


def joined(files: Sequence[File]) -> Observed:
    """The series of these files.

    Files that leave empty buckets out share the bounds of all of them: a bound that only one file names is an
    empty bucket of the others. A file that names each bound in each stretch has its own bounds, which may differ.
    """
    shared = {row[4] for file in files if not _is_whole(file.rows) for row in file.rows}
    return Observed(
        tuple(
            series
            for file in files
            for series in of_rows(
                file.rows, {row[4] for row in file.rows} if _is_whole(file.rows) else shared
            )
        ),
        tuple(dict.fromkeys(note for file in files for note in file.notes)),
    )


def _is_whole(rows: Sequence[Row]) -> bool:
    """Whether every stretch of every series has the same bounds."""
    groups: dict[tuple[str, str, float], set[float]] = {}
    for host, query_class, start, _, bound, _ in rows:
        groups.setdefault((host, query_class, start), set()).add(bound)
    return len({frozenset(bounds) for bounds in groups.values()}) == 1


def opened(path: Path) -> File:
    """Raises PlanError, with the line."""
    lines, notes = cells_of(path, ("time", "seconds", "count"), ("seconds", "count", *UNITS_NS))
    bounds = [name for name in lines[0][1] if name in UNITS_NS]
    if len(bounds) > 1:
        raise PlanError(f"two bounds: {', '.join(bounds)}", place=str(path), hint=EXAMPLE)
    rows = []
    for place, cells in lines:
        try:
            rows.append(row_of(cells, bounds[0] if bounds else ""))
        except ValueError as error:
            raise PlanError(str(error), place=place, hint=EXAMPLE) from error
    file = File(rows, tuple(f"{path.name}: {note}" for note in notes), str(path))
    refuse_overlaps([file])
    return file


def row_of(row: Mapping[str, str], bound: str) -> Row:
    """The cells of a line; ``bound``: its column of ``UNITS_NS``, or empty. Raises KeyError, ValueError."""
    start, length = seconds_of_time(row["time"]), float(row["seconds"])
    count = float(row["count"])
    if not (0 < length < math.inf):
        raise ValueError(f"seconds is {row['seconds']}, not a length of time")
    if not (0 <= count < math.inf):
        raise ValueError(f"count is {row['count']}, not a number of events")
    upper = float(row[bound]) * UNITS_NS[bound] if bound else math.inf
    if not upper > 0:
        raise ValueError(f"{bound} is {row[bound]}, not a latency")
    return (
        (row.get("host") or "").strip() or "all",
        (row.get("class") or ALL).strip(),
        start,
        start + length,
        upper,
        count,
    )


def refuse_overlaps(files: Sequence[File]) -> None:
    """Stretches of one host that overlap count their events twice, also those of two files. Raises PlanError."""
    times: dict[tuple[str, str], set[tuple[float, float, int]]] = {}
    for number, file in enumerate(files):
        for host, query_class, start, end, _, _ in file.rows:
            times.setdefault((host, query_class), set()).add((start, end, number))
    for (host, _), found in times.items():
        for (_, end, first), (start, _, second) in itertools.pairwise(sorted(found)):
            if start < end - 1e-6:
                names = dict.fromkeys((files[first].name, files[second].name))
                raise PlanError(
                    f"stretches of {host} overlap at {datetime.fromtimestamp(start, UTC):%Y-%m-%dT%H:%M:%SZ}",
                    place=" and ".join(names),
                    hint="each stretch of a host and class once: its events would count twice"
                    if len(names) > 1
                    else "",
                )


def seconds_of_time(text: str) -> float:
    """Unix time of ISO 8601 (UTC without a zone) or of Unix seconds. Raises ValueError."""
    text = text.strip()
    try:
        value = float(text)
    except ValueError:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(value) or not 0 <= value < 1e11:
        raise ValueError(f"{text} is not a time in Unix seconds")
    return value
