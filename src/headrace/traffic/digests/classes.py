"""A digest's table as objects: the whole, its classes, their histograms."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import StoreError
from headrace.traffic.digests.table import ALL, OTHERS, SECOND_NS, SQUARES, STATED, SUMMARISED, TABLE

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Number:
    """The number of events that have the value; their sum, and the extremes if known."""

    count: int = 0
    sum: int = 0
    least: int | None = None
    most: int | None = None


NOTHING = Number()

#: Numbers that every class has; others are measures named by the agent.
_OF_EVERY_CLASS = frozenset(
    (
        "events",
        "response_ns",
        "first_byte_ns",
        "start_ns",
        "failed",
        "unanswered",
        "unjudged",
        SUMMARISED,
        *(f"{SUMMARISED}_{name}_ns" for name in STATED),
    )
)


@dataclass(frozen=True)
class Label:
    """A user, host, database or error of a class: its events and the sum of their response times."""

    text: str
    count: int
    sum_ns: int


@dataclass(frozen=True, eq=False)
class Buckets:
    """Events by latency bucket (``buckets.bucket_of``), ascending, only buckets with events. Shapes (n,)."""

    buckets: NDArray[np.int32]
    counts: NDArray[np.int64]

    @cached_property
    def total(self) -> int:
        return int(self.counts.sum())


@dataclass(frozen=True, eq=False)
class Slices:
    """Slices by start time, ascending, only slices with events. Shapes (n,)."""

    start_ns: NDArray[np.int64]
    count: NDArray[np.int64]
    sum_ns: NDArray[np.float64]
    most_ns: NDArray[np.float64]


NO_BUCKETS = Buckets(np.empty(0, np.int32), np.empty(0, np.int64))
NO_SLICES = Slices(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))


@dataclass(frozen=True, eq=False)
class QueryClass:
    """One class, or all of them together (``name`` is ALL), or those beyond the limit (OTHERS)."""

    name: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    histograms: Mapping[str, Buckets] = field(default_factory=dict)
    slices: Slices = NO_SLICES

    def number(self, name: str) -> Number:
        return self.numbers.get(name, NOTHING)

    def buckets(self, name: str) -> Buckets:
        """The histogram of a number; of measures 16 buckets per power of two, and none from earlier agents.

        None if some of the calls are of a server's summary: those of the others are no histogram of the class.
        """
        return NO_BUCKETS if self.is_summarised else self.histograms.get(name, NO_BUCKETS)

    @property
    def is_summarised(self) -> bool:
        """Whether a server summed up some of the calls itself: of these only count, sum and extremes are known."""
        return self.number(SUMMARISED).count > 0

    def stated_ns(self, percentile: str) -> int | None:
        """A percentile that a server states for all calls of the class; percentiles of parts do not add up."""
        summed, stated = self.number(SUMMARISED), self.number(f"{SUMMARISED}_{percentile}_ns")
        is_of_all = summed.sum == 1 and summed.count == self.number("response_ns").count
        return stated.most if is_of_all else None

    @property
    def response(self) -> Buckets:
        return self.buckets("response_ns")

    @property
    def first_byte(self) -> Buckets:
        return self.buckets("first_byte_ns")

    @cached_property
    def measures(self) -> dict[str, Number]:
        """Rows, bytes, waits and so on by name, if any event has them.

        A name ends in its unit (``_ns``, ``_bytes``) or starts with ``is_``; then the sum is the number of events
        for which it holds.
        """
        known = {name: each for name, each in self.numbers.items() if each.count}
        return {
            name: known[name]
            for name in sorted(known)
            if name not in _OF_EVERY_CLASS and not name.endswith(SQUARES)
        }

    @property
    def count(self) -> int:
        return self.number("events").count

    @property
    def failed(self) -> int | None:
        """None if the source does not report of any event whether it failed."""
        failed = self.number("failed").count
        return None if self.count and not failed and self.number("unjudged").count >= self.count else failed

    @property
    def failed_share(self) -> float | None:
        """Of the events of which it is known; None for a source that reports failures only, as general logs do."""
        unjudged = self.number("unjudged").count
        judged = self.count - unjudged
        if self.failed is None or judged <= 0 or (unjudged and judged == self.failed):
            return None
        return self.failed / judged

    @property
    def total_ns(self) -> int:
        return self.number("response_ns").sum

    @cached_property
    def fingerprint(self) -> str:
        """Its name for people: the statement without its literals, or the values it was grouped by."""
        if self.name == OTHERS:
            return "(all classes beyond the limit)"
        others = [f"{name} {value}" for name, value in self.key.items() if name != "class"]
        return " · ".join([*([self.texts["fingerprint"]] if self.texts.get("fingerprint") else []), *others])

    @cached_property
    def key(self) -> dict[str, str]:
        found = json.loads(self.texts.get("key") or "{}")
        return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}

    @cached_property
    def tables(self) -> list[str]:
        return [str(name) for name in json.loads(self.texts.get("tables") or "[]")]

    @cached_property
    def sample(self) -> dict[str, Any]:
        """The slowest call as the agent reported it; empty if there is none."""
        return dict(json.loads(self.texts.get("sample") or "{}"))

    @property
    def _sample_ns(self) -> tuple[int, int] | None:
        """Start and response time of the slowest call (0 if the source has none); None without a time."""
        start_ns = self.sample.get("start_ns")
        return (int(start_ns), int(self.sample.get("response_ns") or 0)) if start_ns else None

    @property
    def stamp_ns(self) -> int | None:
        """When the source says that one of the calls ended (or started, without a response time), if known."""
        if known := self._sample_ns:
            return sum(known)
        start_ns = self.number("start_ns").least
        return start_ns + self.total_ns if self.count == 1 and start_ns is not None else None

    def end_ns(self, slice_ns: int) -> int | None:
        """When the last of the calls ended; None if none has a time. ``slice_ns`` is the width of the slices.

        Exact for the slowest call, and for the last one to start if it is alone in its slice. Any other call is
        only known by its slice, and counts as if it had started last there: the result may be too late by up to
        the width of a slice, but it is never too early.
        """
        last_ns, slices = self.number("start_ns").most, self.slices
        if last_ns is None:
            return None
        if not len(slices.start_ns):
            return last_ns
        starts = np.minimum(slices.start_ns + slice_ns - 1, last_ns)
        took = np.nan_to_num(slices.most_ns).astype(np.int64)
        found = last_ns
        if known := self._sample_ns:
            at = int(np.searchsorted(slices.start_ns, known[0], side="right")) - 1
            found = max(found, sum(known))
            if at >= 0 and took[at] == known[1]:
                # Of the others in its slice only the sum is known.
                took[at] = min(took[at], max(int(slices.sum_ns[at]) - known[1], 0))
        return max(found, int((starts + took).max()))


@dataclass(frozen=True, eq=False)
class Digest:
    """``classes`` are sorted by sum of response times, largest first; ties by frequency."""

    table: pa.Table
    mode: str
    group: tuple[str, ...]
    slice_ns: int
    heat_slice_ns: int
    #: First and last start of a call.
    first_ns: int | None
    last_ns: int | None
    coverage: Mapping[str, int]
    places: tuple[Mapping[str, Any], ...]
    #: (name of the input, host that read it)
    sources: tuple[tuple[str, str], ...]
    filters: tuple[Mapping[str, Any], ...]
    all: QueryClass
    classes: tuple[QueryClass, ...]

    @cached_property
    def by_name(self) -> dict[str, QueryClass]:
        return {each.name: each for each in self.classes}

    @cached_property
    def span_ns(self) -> tuple[int, int] | None:
        """Start and end of the time to which rates and loads refer, ns since 1970; None if no event has a time.

        It runs from the first start to the last end (see ``QueryClass.end_ns``). If the source's times are whole
        seconds, so are both, rounded outwards. With ``--since`` and ``--until`` it is the time between these, and
        what merged parts have outside of it.
        """
        if self.first_ns is None or self.last_ns is None:
            return None
        start, end = self.first_ns, self._end_ns
        if self.has_whole_seconds:
            # The end, which is never too early, can only be a whole second.
            start -= start % SECOND_NS
            end = max(end - end % SECOND_NS, start + SECOND_NS)
        if windows := self._windows:
            start = min(start, *(since for since, _ in windows))
            until = max(until for _, until in windows)
            # Calls that started before run past it; only another part can have started later.
            end = until if self.last_ns < until else end
        return start, end

    @property
    def is_binary_log(self) -> bool:
        """Whether all of it is from binary logs: it is then ranked by bytes, because row events have no time."""
        return 0 < self.all.count == self.all.number("event_bytes").count

    @property
    def span_s(self) -> float:
        """Length of ``span_ns``; 0 if no event has a time."""
        return (self.span_ns[1] - self.span_ns[0]) / 1e9 if self.span_ns else 0.0

    @cached_property
    def has_whole_seconds(self) -> bool:
        """Whether the source's times are whole seconds, as in slow logs of MariaDB and some general logs.

        Judged by the one call of each class whose time is known exactly.
        """
        is_any_known = False
        for each in self.classes:
            stamp = each.stamp_ns
            if stamp is not None and stamp % SECOND_NS:
                return False
            is_any_known = is_any_known or stamp is not None
        return is_any_known

    @property
    def _end_ns(self) -> int:
        end = self.last_ns or 0
        for each in self.classes:
            # Most classes of many cannot be the last, whatever their samples say.
            if (each.number("start_ns").most or 0) + (each.number("response_ns").most or 0) > end:
                end = max(end, each.end_ns(self.slice_ns) or 0)
        return end

    @property
    def _windows(self) -> list[tuple[int, int]]:
        """(since, until) of the filters that have both, ns since 1970."""
        bounds = [(each.get("since_ns"), each.get("until_ns")) for each in self.filters]
        return [
            (int(since), int(until)) for since, until in bounds if since is not None and until is not None
        ]

    @cached_property
    def alike_but_for_names(self) -> tuple[int, int]:
        """How many fingerprints differ from another only in digits or hashes of table names; and all of them."""
        folded = {
            each.texts["id"]: each.texts.get("folded_id") for each in self.classes if each.texts.get("id")
        }
        counts = Counter(folded_id or own for own, folded_id in folded.items())
        return sum(count for count in counts.values() if count > 1), len(folded)

    @cached_property
    def heat(self) -> dict[int, Buckets]:
        """Start of a slice in ns -> the response times of all classes in it."""
        rows = self.table.filter(pc.equal(self.table["part"], "heat"))
        found = {}
        for start, (low, high) in _runs(rows["slice_ns"].to_numpy()):
            part = rows.slice(low, high - low)
            found[int(start)] = Buckets(part["bucket"].to_numpy(), part["count"].to_numpy())
        return found


def open_digest(table: pa.Table) -> Digest:
    """A merged table (``merge.merge``) as objects. Raises StoreError if its rows are damaged."""
    try:
        return _opened(table)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise StoreError(f"the digest is damaged: {type(error).__name__}: {error}") from error


def _opened(table: pa.Table) -> Digest:
    parts = {name: table.slice(low, high - low) for name, (low, high) in _runs(_strings(table["part"]))}
    empty = TABLE.empty_table()
    header = {row["name"]: row for row in parts.get("header", empty).to_pylist()}
    classes = _classes(parts)
    whole = classes.pop(ALL, QueryClass(ALL))
    ordered = sorted(classes.values(), key=lambda each: (-each.total_ns, -each.count, each.name))
    span = header.get("start_ns", {})
    return Digest(
        table=table,
        mode=header["mode"]["text"],
        group=tuple(json.loads(header["group"]["text"])),
        slice_ns=header["slice_ns"]["most"],
        heat_slice_ns=header["heat_slice_ns"]["most"],
        first_ns=span.get("least"),
        last_ns=span.get("most"),
        coverage={row["name"]: row["count"] for row in parts.get("coverage", empty).to_pylist()},
        places=tuple(sorted(map(json.loads, _names(parts, "place")), key=_place_order)),
        sources=tuple((str(name), str(host)) for name, host in map(json.loads, _names(parts, "source"))),
        filters=tuple(map(json.loads, _names(parts, "filter"))),
        all=whole,
        classes=tuple(ordered),
    )


def _names(parts: Mapping[str, pa.Table], part: str) -> list[str]:
    return parts[part]["name"].to_pylist() if part in parts else []


def _place_order(place: Mapping[str, Any]) -> tuple[str, int]:
    return str(place.get("input")), int(place.get("offset") or 0)


def _strings(column: pa.ChunkedArray) -> NDArray[np.object_]:
    """Decoding a column with few values per row would create many duplicate strings."""
    encoded = column.combine_chunks().dictionary_encode()
    values: NDArray[np.object_] = np.array(encoded.dictionary.to_pylist(), dtype=object)
    found: NDArray[np.object_] = values[encoded.indices.to_numpy()]
    return found


def _runs(values: NDArray[Any]) -> Iterator[tuple[Any, tuple[int, int]]]:
    """Each value of a sorted column, with its start and end."""
    if not len(values):
        return
    starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
    for low, high in zip(starts, [*starts[1:], len(values)], strict=True):
        yield values[low], (int(low), int(high))


def _classes(parts: Mapping[str, pa.Table]) -> dict[str, QueryClass]:
    content: dict[str, dict[str, Any]] = {}
    empty = TABLE.empty_table()
    for row in parts.get("number", empty).to_pylist():
        number = Number(row["count"] or 0, int(row["sum"] or 0), row["least"], row["most"])
        content.setdefault(row["class"], {}).setdefault("numbers", {})[row["name"]] = number
    for row in parts.get("text", empty).to_pylist():
        if row["text"] is not None:
            content.setdefault(row["class"], {}).setdefault("texts", {})[row["name"]] = row["text"]
    for row in parts.get("label", empty).to_pylist():
        labels = content.setdefault(row["class"], {}).setdefault("labels", {})
        labels.setdefault(row["name"], []).append(Label(row["text"], row["count"], int(row["sum"] or 0)))
    for part, name, kind, piece in _pieces(parts):
        cells = content.setdefault(name, {})
        if part == "slice":
            if kind == "response_ns":
                cells["slices"] = Slices(
                    piece["slice_ns"].to_numpy(),
                    piece["count"].to_numpy(),
                    _floats(piece["sum"]),
                    _floats(piece["most"]),
                )
        else:
            buckets = Buckets(piece["bucket"].to_numpy(), piece["count"].to_numpy())
            cells.setdefault("histograms", {})[kind] = buckets
    for cells in content.values():
        ordered = {
            kind: tuple(sorted(found, key=lambda label: (-label.count, label.text)))
            for kind, found in cells.get("labels", {}).items()
        }
        cells["labels"] = ordered
    return {name: QueryClass(name, **cells) for name, cells in content.items()}


def _pieces(parts: Mapping[str, pa.Table]) -> Iterator[tuple[str, str, str, pa.Table]]:
    """(part, class, name, rows) of the parts with many rows per class."""
    for part in ("latency", "slice"):
        rows = parts.get(part)
        if rows is None:
            continue
        keys = rows.select(["name"]).append_column("class", rows["class"])
        if part == "slice":  # sorted by time before name
            rows = rows.sort_by([("class", "ascending"), ("name", "ascending"), ("slice_ns", "ascending")])
            keys = rows.select(["name", "class"])
        kinds = _strings(keys["name"])
        for name, (low, high) in _runs(_strings(keys["class"])):
            for kind, (first, last) in _runs(kinds[low:high]):
                yield part, str(name), str(kind), rows.slice(low + first, last - first)


def _floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    found: NDArray[np.float64] = pc.cast(column, pa.float64(), safe=False).to_numpy()
    return found
