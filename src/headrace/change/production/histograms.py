"""Histograms that servers keep themselves: snapshots of ``headrace record histograms``, subtracted.

MySQL 8 has them for all statements and for each digest, MariaDB's plugin for all statements. A file has a snapshot
per line, of one host or of several. What happened between two snapshots of a host is one stretch; a restart, a
truncated table or a clock that was set in between makes it a gap.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from headrace.base.door import opened_to_write
from headrace.base.errors import StoreError, write_error
from headrace.base.received import number, parsed
from headrace.base.whole import plain_file
from headrace.change.production.series import ALL, OTHERS, Observed, Row, Series, of_rows

FORMAT = 1
#: How every line begins, so that a file is known by its first bytes.
MARK = '{"headrace_histograms":'
#: Classes with a histogram of their own, the most frequent ones; all others are one class.
MOST_CLASSES = 40
#: A start that moved by more between two snapshots is another start, or the clock was set.
SLACK_S = 5.0
#: All statements and single digests are not read at the same moment: so many events may be counted in one only.
MOST_APART, LEAST_APART = 0.01, 50
#: A larger share without a class is said: its mix is not held fixed.
MOST_OTHERS = 0.2

#: No counter has more: a larger one is no number of events.
MOST_EVENTS = 2.0**53

_Key = tuple[str | None, str]


@dataclass(frozen=True)
class Counts:
    """Of one digest: events by bound, in ns; the last bound is infinite."""

    text: str
    first_seen_s: float
    buckets: Mapping[float, int]


@dataclass(frozen=True)
class Taken:
    """One snapshot of a server."""

    host: str
    t_s: float
    source: str
    uuid: str
    uptime_s: float
    bounds: tuple[float, ...]
    all: Mapping[float, int]
    digests: Mapping[_Key, Counts]
    digest_rows: int
    digest_size: int
    digests_lost: int


def line_of(host: str, answer: Mapping[str, Any]) -> str:
    """The agent's answer as a line of a file. Raises StoreError if it is none."""
    content = f"{MARK}{FORMAT},{json.dumps({'host': host, **answer}, separators=(',', ':'))[1:]}"
    _taken(json.loads(content), host)
    return f"{content}\n"


def append(path: Path, line: str) -> None:
    """Add a line. Readable only by its user: classes name tables. Raises StoreError, or DiskFull."""
    try:
        with open(path, "a+b", opener=lambda name, flags: opened_to_write(Path(name), flags, 0o600)) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.truncate(_end_of_lines(file))
            file.write(line.encode())
    except OSError as error:
        raise write_error(error, path) from error


def _end_of_lines(file: BinaryIO) -> int:
    """Where the last whole line ends: one that was cut off by a full disk is written over."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(end - 65536, 0)
        file.seek(start)
        place = file.read(end - start).rfind(b"\n")
        if place >= 0:
            return start + place + 1
        end = start
    return 0


def is_histograms(path: Path) -> bool:
    try:
        with plain_file(path) as file:
            return file.read(len(MARK)) == MARK.encode()
    except OSError:
        return False


def load(paths: Iterable[Path]) -> list[Taken]:
    """The snapshots of these files. Raises StoreError, with the line; a last line that was cut off is left out."""
    found = []
    for path in paths:
        try:
            with plain_file(path) as file:
                for number, line in enumerate(io.TextIOWrapper(file, encoding="utf-8"), 1):
                    if not line.endswith("\n"):
                        break
                    found.append(_read(line, f"{path}:{number}"))
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"cannot be read: {error}", place=str(path)) from error
    return found


def _read(line: str, place: str) -> Taken:
    try:
        return _taken(parsed(line), place)
    except ValueError as error:
        raise StoreError("not a snapshot of histograms", place=place) from error


def _taken(content: Any, place: str) -> Taken:
    try:
        if content["headrace_histograms"] != FORMAT:
            raise StoreError(f"format {content['headrace_histograms']} is of another version", place=place)
        digests = {
            (each["schema"], str(each["digest"])): Counts(
                str(each["text"] or each["digest"]),
                number(each["first_seen_s"], least=0),
                _buckets(each["buckets"]),
            )
            for each in content["digests"]
        }
        return Taken(
            str(content["host"]), number(content["t_ns"], least=0) / 1e9, str(content["source"]),
            str(content["uuid"]), number(content["uptime_s"]), tuple(map(_bound, content["bounds_ns"])),
            _buckets(content["all"]), digests,
            _count(content["digest_rows"]), _count(content["digest_size"]), _count(content["digests_lost"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StoreError(f"not a snapshot of histograms: {error!r}"[:200], place=place) from error


def _bound(value: Any) -> float:
    found = np.inf if value is None else number(value)
    if not found > 0:
        raise ValueError(f"a bound is {value}")
    return found


def _count(value: Any) -> int:
    return int(number(value, least=0, most=MOST_EVENTS))


def _buckets(pairs: Any) -> dict[float, int]:
    return {_bound(bound): _count(count) for bound, count in pairs}


# -- Subtracting ------------------------------------------------------------------------------------------------


@dataclass
class _Notes:
    gaps: dict[str, Counter[str]] = field(default_factory=dict)
    lost: int = 0
    events: int = 0
    #: Of servers that count by digest.
    others: int = 0
    full: set[str] = field(default_factory=set)

    def gap(self, why: str, host: str) -> None:
        self.gaps.setdefault(why, Counter())[host] += 1

    def sentences(self) -> Iterator[str]:
        for why, hosts in self.gaps.items():
            where = ", ".join(f"{host} ({count}x)" for host, count in hosts.most_common(20))
            yield f"{why}: a gap on {where}"
        if self.full:
            yield (
                f"the table of digests is full on {', '.join(sorted(self.full))}: new classes are among the others"
            )
        if self.others > MOST_OTHERS * self.events:
            yield (
                f"{100 * self.others / self.events:.0f}% of the statements are of no class: executions of "
                "prepared ones have no digest, rarer ones were not asked for"
            )
        if self.lost:
            share = 100 * self.lost / max(self.events, 1)
            yield f"{self.lost:,} statements ({share:.2g}%) have no digest of their own: they are among the others"


def observe(taken: Sequence[Taken]) -> Observed:
    """The series between the snapshots of each host."""
    notes = _Notes()
    rows: dict[tuple[float, ...], list[Row]] = {}
    by_host: dict[str, dict[float, Taken]] = {}
    for each in taken:
        # The same snapshot may be in two files.
        by_host.setdefault(each.host, {})[each.t_s] = each
    for host, own in by_host.items():
        if len(own) < 2:
            notes.gap("only one snapshot", host)
        for before, after in pairwise(own[at] for at in sorted(own)):
            if why := _why_gap(before, after):
                notes.gap(why, host)
                continue
            found = _between(before, after)
            if found is None:
                notes.gap("counts fell: a truncated table", host)
                continue
            rows.setdefault(after.bounds, []).extend(
                (host, name, before.t_s, after.t_s, bound, float(count))
                for name, counts in found.items()
                for bound, count in counts.items()
            )
            notes.lost += max(after.digests_lost - before.digests_lost, 0)
            notes.others += sum(found.get(OTHERS, {}).values())
            notes.events += sum(sum(counts.values()) for counts in found.values())
            if after.digest_size and after.digest_rows >= after.digest_size:
                notes.full.add(host)
    rarer = _join_rare(rows)
    said = [*notes.sentences(), *([f"{rarer} rarer classes are one class"] if rarer else [])]
    series = (each for bounds, own in rows.items() for each in _series(own, bounds))
    return Observed(tuple(series), tuple(said))


def _why_gap(before: Taken, after: Taken) -> str:
    if (before.source, before.bounds) != (after.source, after.bounds):
        return "the buckets changed"
    if before.uuid != after.uuid:
        return "another server has the name"
    if after.uptime_s < before.uptime_s:
        return "a restart"
    moved = (after.t_s - after.uptime_s) - (before.t_s - before.uptime_s)
    return "a clock was set" if abs(moved) > SLACK_S else ""


def _between(before: Taken, after: Taken) -> dict[str, dict[float, int]] | None:
    """Class -> events by bound; None if something was truncated in between."""
    whole = _less(after.all, before.all)
    if whole is None or after.digest_rows < before.digest_rows:
        return None
    if not after.digests:
        return {ALL: whole}
    found: dict[str, dict[float, int]] = {}
    for key, own in after.digests.items():
        known = before.digests.get(key)
        if known is None and own.first_seen_s < before.t_s:
            # It was there, but not among those that were asked for: what it did in between is not known.
            continue
        if known is not None and abs(known.first_seen_s - own.first_seen_s) > 1e-3:
            return None
        counts = _less(own.buckets, known.buckets if known else {})
        if counts is None:
            return None
        of_class = found.setdefault(own.text, {})
        for bound, count in counts.items():
            of_class[bound] = of_class.get(bound, 0) + count
    others = dict(whole)
    for counts in found.values():
        for bound, count in counts.items():
            others[bound] = others.get(bound, 0) - count
    apart = -sum(count for count in others.values() if count < 0)
    if apart > max(MOST_APART * sum(whole.values()), LEAST_APART):
        return None
    return {**found, OTHERS: {bound: max(count, 0) for bound, count in others.items()}}


def _less(after: Mapping[float, int], before: Mapping[float, int]) -> dict[float, int] | None:
    """None if a count fell."""
    found = {bound: count - before.get(bound, 0) for bound, count in after.items()}
    if any(count < 0 for count in found.values()) or any(
        bound not in after for bound, count in before.items() if count
    ):
        return None
    return found


def _join_rare(rows: dict[tuple[float, ...], list[Row]]) -> int:
    """Make rarer classes one class, in place; how many they are."""
    calls: Counter[str] = Counter()
    for own in rows.values():
        for _, name, _, _, _, count in own:
            if name not in (OTHERS, ALL):
                calls[name] += int(count)
    kept = {name for name, _ in calls.most_common(MOST_CLASSES)} | {OTHERS, ALL}
    if len(calls) <= MOST_CLASSES:
        return 0
    for bounds, own in rows.items():
        rows[bounds] = [(h, n if n in kept else OTHERS, s, e, b, c) for h, n, s, e, b, c in own]
    return len(calls) - MOST_CLASSES


def _series(rows: list[Row], bounds: tuple[float, ...]) -> tuple[Series, ...]:
    """With the bounds from the first to the last that is used: most of 450 buckets are always empty."""
    used = [row[4] for row in rows if row[5]]
    low, high = min(used, default=np.inf), max(used, default=np.inf)
    below = [bound for bound in bounds if bound < low]
    kept = [*below[-1:], *(bound for bound in bounds if low <= bound <= high)]
    # A row of a bucket that is always empty has no place; its stretch does.
    inside = [row if row[5] else (*row[:4], kept[-1] if kept else np.inf, 0.0) for row in rows]
    return of_rows(inside, kept)
