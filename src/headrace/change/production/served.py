"""The history of ``headrace serve``: calls by class and latency bucket, as clients timed them or from slow logs,
and counts where no more is known, such as the requests of memcached.

Minutes are kept for two days and hours for some weeks. A stretch counts only if all of it was watched: a minute
without the host is no minute without calls.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.base.buckets import BEYOND, bucket_bounds
from headrace.base.counted import counted
from headrace.base.errors import NothingMeasured
from headrace.change.production.series import ALL, ONLY_COUNTS, OTHERS, Gets, Observed, Series
from headrace.history import questions
from headrace.history.archive.files import DAY_S, HOUR_S, MINUTE_S, Archive
from headrace.history.archive.reader import Range, Reader
from headrace.history.archive.tables import CLIENTS, GETS, HITS, PERFORMANCE_SCHEMA, REQUESTS, SLOW_LOG

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.change.production.series import Floats

#: Classes of their own, the most frequent ones; all others are one class.
MOST_CLASSES = 40
#: Minutes are added up to so many: the shortest block that is ever compared.
TOGETHER = 5
#: How far from the change rows are read.
MINUTES_S, HOURS_S = 2 * DAY_S, 40 * DAY_S

#: Sources that have times.
TIMED = (CLIENTS.name, SLOW_LOG)

#: (class, start) -> bucket -> calls
_Calls = dict[tuple[str, float], dict[int, float]]


EVER = Range(-math.inf, math.inf)


@dataclass(frozen=True)
class Part:
    """Of a history: some hosts, from one source in place of the best one, within a range of time."""

    hosts: frozenset[str] | None = None
    source: str = ""
    span: Range = EVER


WHOLE = Part()


@dataclass(frozen=True, eq=False)
class _Watched:
    """Stretches of one length from ``starts`` on, each watched in whole, none of which contains the change."""

    starts: Floats
    width_s: float
    partly: int

    def start_of(self, t_s: float, at_s: float) -> float:
        return _aligned(t_s, at_s, self.width_s)


def ends(path: Path) -> tuple[float, float]:
    """When it begins and ends; of an empty one (inf, -inf)."""
    files = Archive(path).files("states")
    return min((f.t_s for f in files), default=math.inf), max((f.end_s for f in files), default=-math.inf)


def observe(
    paths: Iterable[Path],
    at_s: float,
    *,
    weeks: bool = False,
    part: Part = WHOLE,
) -> Observed:
    """The series of the hosts of these histories; ``at_s`` is when the change was made. Raises NothingMeasured.

    ``weeks``: earlier weeks are asked for as well, of which there are hours only. ``part``: of this alone.
    """
    paths = list(paths)
    hosts = [each for path in paths for each in _hosts(path, at_s, weeks, part)]
    if not hosts:
        raise NothingMeasured(
            "no call of any host is in this history around the change",
            place=", ".join(map(str, paths)),
            hint="serve counts calls from a slow log, performance_schema or memcached; is --at right, in UTC?",
        )
    timed = [each for each in hosts if each.is_timed]
    counts = [each for each in hosts if not each.is_timed]
    notes = [note for each in hosts for note in each.notes]
    if timed and counts:
        names = ", ".join(each.name for each in counts)
        notes.append(f"left out, because only their calls are counted and none is timed: {names}")
    # What a client waits for has more in it than the server's own time: a comparison is of one of them.
    clients = [each for each in timed if each.source == CLIENTS.name]
    if clients and len(clients) < len(timed):
        names = ", ".join(each.name for each in timed if each not in clients)
        notes.append(f"left out, because no client timed their calls as it did on the others: {names}")
    used = clients or timed or counts
    lattice = _lattice(used)
    return Observed(
        tuple(series for each in used for series in each.series(lattice)),
        tuple(dict.fromkeys(notes)),
        tuple(each.gets for each in used if each.gets is not None),
    )


@dataclass(frozen=True, eq=False)
class _Host:
    name: str
    watched: _Watched
    calls: _Calls
    source: str
    notes: tuple[str, ...]
    #: What its memcached servers were asked for, whoever timed the calls.
    gets: Gets | None = None

    @property
    def is_timed(self) -> bool:
        return self.source in TIMED

    def series(self, lattice: NDArray[np.int64]) -> Iterator[Series]:
        """``lattice``: the last bucket of each bin, of all slow logs. Of clients' times only the bounds that some
        call of the host fell to are known, so that a bin is as wide as its source's, or wider."""
        if self.source == CLIENTS.name:
            lattice = _buckets([self])
        edges = _edges(lattice) if self.is_timed else ONLY_COUNTS
        lines = {start: line for line, start in enumerate(self.watched.starts)}
        by_class: dict[str, Floats] = {}
        for (name, start), buckets in self.calls.items():
            if start in lines:
                counts = by_class.setdefault(name, np.zeros((len(lines), len(edges) - 1)))
                for bucket, count in buckets.items():
                    counts[lines[start], np.searchsorted(lattice, bucket) if self.is_timed else 0] += count
        starts = self.watched.starts
        for name, counts in by_class.items():
            yield Series(self.name, name, starts, starts + self.watched.width_s, edges, counts)


def _lattice(hosts: Sequence[_Host]) -> NDArray[np.int64]:
    """Every bucket from the first to the last that any host uses, so that all have the same edges."""
    filled = _buckets(hosts)
    return np.arange(filled[0], filled[-1] + 1) if len(filled) else filled


def _buckets(hosts: Sequence[_Host]) -> NDArray[np.int64]:
    found = {bucket for each in hosts if each.is_timed for own in each.calls.values() for bucket in own}
    return np.array(sorted(found), dtype=np.int64)


def _edges(buckets: NDArray[np.int64]) -> Floats:
    """Of bins that end with these buckets, and one of all that is longer."""
    _, upper = bucket_bounds(buckets[buckets < BEYOND].astype(np.int32))
    return np.concatenate(([0.0], upper.astype(np.float64) + 1, [np.inf]))


def _hosts(path: Path, at_s: float, weeks: bool, part: Part) -> Iterator[_Host]:
    archive = Archive(path)
    since_s, until_s = ends(path)
    is_fine = not weeks and until_s - at_s <= MINUTES_S / 2
    reach_s = MINUTES_S if is_fine else HOURS_S
    wanted = part.span
    span = Range(max(since_s, at_s - reach_s, wanted.since_s), min(until_s, at_s + reach_s, wanted.until_s))
    if span.seconds <= 0:
        return
    reader = Reader(archive)
    for name in archive.hosts():
        if part.hosts is not None and name not in part.hosts:
            continue
        past = _Past(reader, name, span, at_s, MINUTE_S if is_fine else HOUR_S, part.source)
        if host := past.host():
            yield host


@dataclass(frozen=True)
class _Past:
    """One host's rows around the change."""

    reader: Reader
    name: str
    span: Range
    at_s: float
    unit_s: int
    #: The only one that is asked; empty: the best one.
    source: str

    def rows(self, table: str, sql: str, **values: Any) -> list[dict[str, Any]]:
        return self.reader.rows(table, sql, self.name, self.span, width_s=self.unit_s, **values)

    def host(self) -> _Host | None:
        watched = self._watched()
        if not len(watched.starts):
            return None
        calls, source = self._calls(watched)
        if not calls:
            return None
        notes = []
        if source == SLOW_LOG:
            notes.append("from slow logs: calls below the server's long_query_time are in none of them")
        if watched.partly:
            notes.append(
                f"{self.name}: {counted(watched.partly, 'stretch', 'stretches')} of "
                f"{watched.width_s / MINUTE_S:.0f} minutes not watched in whole, left out"
            )
        return _Host(self.name, watched, calls, source, tuple(notes), self._gets(watched))

    def _watched(self) -> _Watched:
        """A row of more minutes than the unit has is of a whole day, whose hours were deleted. Where clients timed
        calls, it is their minutes that count."""
        units = self.unit_s // MINUTE_S
        width_s = float(self.unit_s * (TOGETHER if self.unit_s == MINUTE_S else 1))
        rows = self._of_clients("SELECT t_s, SUM(minutes) AS n FROM rows GROUP BY t_s")
        rows = rows or self.rows(
            "states", "SELECT t_s, SUM(minutes) AS n FROM rows WHERE state = 'ok' GROUP BY t_s"
        )
        minutes: Counter[float] = Counter()
        for row in rows:
            if row["n"] and row["n"] <= units:
                minutes[_aligned(row["t_s"], self.at_s, width_s)] += row["n"]
        # What contains the change is on neither side.
        aside = {start: count for start, count in minutes.items() if not start < self.at_s < start + width_s}
        whole = sorted(start for start, count in aside.items() if count * MINUTE_S >= width_s)
        return _Watched(np.array(whole, dtype=np.float64), width_s, len(aside) - len(whole))

    def _calls(self, watched: _Watched) -> tuple[_Calls, str]:
        """By class, stretch and bucket; of one source: clients, the slow log, or what counts all calls."""
        rows = self._of_clients("SELECT t_s, class, bucket, SUM(count) AS n FROM rows GROUP BY ALL")
        if rows:
            return self._kept([row for row in rows if row["n"]], watched, ""), CLIENTS.name
        if self.source == CLIENTS.name:
            return {}, ""
        known = questions.sources(self.reader, [self.name], self.span)
        if SLOW_LOG in known and (rows := self._of_slow_log()):
            return self._kept(rows, watched, SLOW_LOG), SLOW_LOG
        if self.source:
            return {}, ""
        if PERFORMANCE_SCHEMA in known:
            rows = self.rows(
                "classes",
                "SELECT t_s, class, 0 AS bucket, SUM(calls) AS n FROM rows "
                "WHERE source = $source AND calls > 0 GROUP BY ALL",
                source=PERFORMANCE_SCHEMA,
            )
            return self._kept(rows, watched, PERFORMANCE_SCHEMA), PERFORMANCE_SCHEMA
        rows = self.rows(
            "metrics",
            f"SELECT t_s, metric AS class, 0 AS bucket, {MINUTE_S} * SUM(sum) AS n FROM rows "
            "WHERE metric IN (SELECT unnest($names)) GROUP BY ALL",
            names=sorted(REQUESTS),
        )
        return self._kept([{**row, "class": REQUESTS[row["class"]]} for row in rows], watched, ""), ""

    def _gets(self, watched: _Watched) -> Gets | None:
        """Of hours the share of hits is the mean of its minutes' shares, each of which counts alike."""
        if self.source:
            return None
        rows = self.rows(
            "metrics",
            "SELECT t_s, label, metric, SUM(sum) AS total, SUM(n) AS n FROM rows "
            "WHERE metric IN ($gets, $hits) GROUP BY ALL",
            gets=GETS,
            hits=HITS,
        )
        known = {(row["t_s"], row["label"], row["metric"]): row for row in rows if row["n"]}
        lines = {start: line for line, start in enumerate(watched.starts)}
        gets, misses = np.zeros(len(lines)), np.zeros(len(lines))
        for (t_s, label, metric), row in known.items():
            line = lines.get(watched.start_of(t_s, self.at_s))
            hits = known.get((t_s, label, HITS))
            if metric == GETS and line is not None and hits is not None:
                count = MINUTE_S * row["total"]
                gets[line] += count
                misses[line] += count * max(1 - hits["total"] / hits["n"], 0.0)
        starts = watched.starts
        return Gets(self.name, starts, starts + watched.width_s, gets, misses) if gets.any() else None

    def _of_clients(self, sql: str) -> list[dict[str, Any]]:
        return self.rows("clients", sql) if self.source in ("", CLIENTS.name) else []

    def _of_slow_log(self) -> list[dict[str, Any]]:
        return self.rows(
            "buckets",
            "SELECT t_s, class, bucket, SUM(count) AS n FROM rows WHERE source = $source GROUP BY ALL",
            source=SLOW_LOG,
        )

    def _kept(self, rows: Sequence[Mapping[str, Any]], watched: _Watched, source: str) -> _Calls:
        totals: Counter[str] = Counter()
        for row in rows:
            totals[row["class"]] += row["n"] or 0
        kept = {name for name, _ in totals.most_common(MOST_CLASSES)}
        texts = questions.texts(self.reader, [self.name], self.span, source, kept) if source else {}
        # Two classes with one text would be one.
        written = Counter(str(row["text"]) for row in texts.values())
        calls: _Calls = {}
        for row in rows:
            name = row["class"] if row["class"] in kept else OTHERS
            text = str(texts[name]["text"]) if name in texts else ""
            label = text if text and written[text] == 1 else name or ALL
            own = calls.setdefault((label, watched.start_of(row["t_s"], self.at_s)), {})
            own[row["bucket"]] = own.get(row["bucket"], 0.0) + float(row["n"] or 0)
        return calls


def _aligned(t_s: float, at_s: float, width_s: float) -> float:
    """The start of the stretch of a row. Minutes are counted from the change on, to both sides: only the minute in
    which it was made is lost."""
    if width_s >= HOUR_S:
        return float(t_s // HOUR_S * HOUR_S)
    is_before = t_s + MINUTE_S <= at_s
    origin = (math.floor if is_before else math.ceil)(at_s / MINUTE_S) * MINUTE_S
    return origin + math.floor((t_s - origin) / width_s) * width_s
