"""The lines that ``headrace-agent digest`` writes (docs/reference/digest-format.md), as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.base.errors import StoreError
from headrace.traffic.digests.binary_log import COUNTS, SPREADS, TABLE_COUNTS
from headrace.traffic.digests.merge import merge
from headrace.traffic.digests.table import (
    ALL,
    OTHER_ERRORS,
    OTHERS,
    SECOND_NS,
    SQUARES,
    STATED,
    SUMMARISED,
    Rows,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: Later versions are refused.
VERSION = 1

#: Bounds stay below it, so that the sum of those of many parts fits its column.
MOST_EXACT = 2**53

_LABELS = {"users": "user", "hosts": "host", "databases": "database"}


def read_lines(lines: Iterable[str | bytes], place: str) -> pa.Table:
    """All digests of a stream, merged. Raises StoreError, with ``place``, if it was cut off or is not a digest."""
    return read_rows(map(json.loads, lines), place)


def read_rows(rows: Iterable[Mapping[str, Any]], place: str) -> pa.Table:
    """The same for parsed lines."""
    return merge(_digests(rows, place))


def read_each(lines: Iterable[str | bytes], place: str) -> list[pa.Table]:
    """The digests of a stream one by one: ``--every`` writes one per interval."""
    return [merge([each]) for each in _digests(map(json.loads, lines), place)]


def _digests(rows: Iterable[Mapping[str, Any]], place: str) -> list[pa.Table]:
    reader = _Reader()
    number = 1
    try:
        for row in rows:
            reader.take(row)
            number += 1
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise StoreError(
            f"line {number} is not a line of a digest: {type(error).__name__}: {error}", place=place
        ) from error
    if reader.is_open or not reader.finished:
        raise StoreError("it ends before its last line", place=place, hint="did the agent stop half-way?")
    return reader.finished


class _Reader:
    def __init__(self) -> None:
        self.finished: list[pa.Table] = []
        self.is_open = False
        self._rows = Rows()
        self._group: list[str] = []
        self._measures: list[str] = []
        self._classes = 0

    def take(self, line: Mapping[str, Any]) -> None:
        kind = line["type"]
        if kind == "digest":
            if self.is_open:
                raise ValueError("a digest starts inside another one")
            if line["version"] > VERSION:
                raise ValueError(f"version {line['version']}; this headrace reads {VERSION}")
            self._rows, self._classes, self.is_open = Rows(self._rows), 0, True
            self._group, self._measures = line["group"], line["measures"]
            _header(self._rows, line)
        elif not self.is_open:
            raise ValueError(f"{kind!r} is outside a digest")
        elif kind == "totals":
            _class(self._rows, ALL, line, self._measures)
        elif kind == "heat":
            for start_s, buckets in line["slices"]:
                cells = {"slice_ns": [start_s * SECOND_NS] * len(buckets), **_pairs(buckets)}
                self._rows.extend("heat", ALL, "response_ns", len(buckets), **cells)
        elif kind == "transactions":
            _transactions(self._rows, line)
        elif kind == "class":
            self._classes += 1
            _class(self._rows, self._name(line), line, self._measures)
        elif kind == "end":
            if line["classes"] != self._classes:
                raise ValueError(f"{self._classes} classes of {line['classes']}")
            self.finished.append(self._rows.table())
            self.is_open = False

    def _name(self, line: Mapping[str, Any]) -> str:
        if line.get("is_others"):
            return OTHERS
        if self._group == ["class"]:
            return str(line["id"])
        return json.dumps({name: line["key"].get(name) for name in self._group}, ensure_ascii=False)


def _header(rows: Rows, line: Mapping[str, Any]) -> None:
    rows.add("header", ALL, "mode", text=line["mode"])
    rows.add("header", ALL, "group", text=json.dumps(line["group"]))
    rows.add("header", ALL, "slice_ns", most=line["slice_ns"])
    rows.add("header", ALL, "heat_slice_ns", most=line["heat_slice_ns"])
    rows.add("header", ALL, "start_ns", least=line["first_ns"], most=line["last_ns"])
    for name in line["inputs"]:
        # Logs of different hosts may have the same name.
        rows.add("source", ALL, json.dumps([name, line.get("host") or ""], ensure_ascii=False), count=1)
    chosen = {key: value for key, value in (line.get("filter") or {}).items() if value not in (None, [], "")}
    if chosen:
        rows.add("filter", ALL, json.dumps(chosen, sort_keys=True), count=1)
    counts = {key: line[key] for key in ("filtered", "undated", "others")}
    # Earlier agents do not know it. As a bound it may be added up.
    if most_ns := line.get("unlisted_most_ns"):
        counts["unlisted_most_ns"] = min(most_ns, MOST_EXACT)
    coverage = _counters(line["coverage"])
    # The numbers read and counted differ by the filter.
    for key, value in (
        {"read_" + "events": coverage.pop("events", 0), "events": line["events"]} | counts | coverage
    ).items():
        rows.add("coverage", ALL, key, count=value)
    for at in line["coverage"].get("places", []):
        rows.add("place", ALL, json.dumps(at, sort_keys=True), count=1)


def _counters(coverage: Mapping[str, Any]) -> dict[str, int]:
    """Counters by name; of counts by name, such as those of tunnels, one each: ``tunnels.VXLAN (VNI 7)``."""
    found: dict[str, int] = {}
    for key, value in coverage.items():
        if isinstance(value, dict):
            found |= {f"{key}.{name}": count for name, count in value.items()}
        elif key != "places":
            found[key] = value
    return found


def _transactions(rows: Rows, line: Mapping[str, Any]) -> None:
    """Of binary logs: transactions, their largest, the tables that they change, what is missing between logs."""
    for name in COUNTS:
        rows.add("transaction", ALL, name, count=line[name])
    for name in SPREADS:
        if known := line[name]:
            n = known["known"]
            rows.add(
                "transaction", ALL, name, count=n, sum=known["sum"], least=known["min"], most=known["max"]
            )
            rows.add("transaction", ALL, name + SQUARES, count=n, sum=int(known["sum_squares"]))
            rows.extend("transaction", ALL, name, len(known["buckets"]), **_pairs(known["buckets"]))
    for name, count, size in line["kinds"]:
        rows.add("kind", ALL, name, count=count, sum=size)
    for table in line["tables"]:
        name = OTHERS if table["table"] is None else table["table"]
        counts = {kind: table[kind] for kind in ("insert", "update", "delete")}
        for kind, (statements, changed) in counts.items():
            rows.add("table", name, kind, count=statements, sum=changed)
        rows.add("table", name, "bytes", sum=table["bytes"])
        for key in TABLE_COUNTS:
            rows.add("table", name, key, count=table[key])
    for large in line["largest"]:
        rows.add("largest", ALL, json.dumps(large, sort_keys=True, ensure_ascii=False), sum=large["bytes"])
    for gap in line["gaps"]:
        rows.add("gap", ALL, gap, count=1)


def _class(rows: Rows, name: str, line: Mapping[str, Any], measures: Iterable[str]) -> None:
    rows.add("number", name, "events", count=line["count"])
    rows.add(
        "number", name, "response_ns",
        count=line["timed"], sum=line["response_sum_ns"],
        least=line["response_min_ns"], most=line["response_max_ns"],
    )  # fmt: skip
    rows.add(
        "number", name, "response_ns" + SQUARES, count=line["timed"], sum=int(line["response_sum_squares"])
    )
    rows.add("number", name, "start_ns", least=line["first_ns"], most=line["last_ns"])
    for key in ("failed", "unanswered"):
        rows.add("number", name, key, count=line[key])
    # Lines written before it was counted lack it.
    rows.add("number", name, "unjudged", count=line.get("unjudged", 0))
    if summed := line.get("summarised"):
        rows.add("number", name, SUMMARISED, count=summed["calls"], sum=summed["rows"])
        for key, ns in ((percentile, summed[f"{percentile}_ns"]) for percentile in STATED):
            if ns is not None:
                rows.add("number", name, f"{SUMMARISED}_{key}_ns", count=1, least=ns, most=ns)
    for key in measures:
        if known := line.get(key):
            _measure(rows, name, key, known)
    rows.extend("latency", name, "response_ns", len(line["buckets"]), **_pairs(line["buckets"]))
    if first := line.get("first_byte"):
        rows.add(
            "number", name, "first_byte_ns",
            count=first["count"], sum=first["sum_ns"], least=first["min_ns"], most=first["max_ns"],
        )  # fmt: skip
        rows.extend("latency", name, "first_byte_ns", len(first["buckets"]), **_pairs(first["buckets"]))
    for number, count in line["errors"].items():
        rank = None if number == OTHER_ERRORS else int(number)
        rows.add("label", name, "error", text=number, count=count, least=rank)
    for key, label in _LABELS.items():
        for text, count, sum_ns, *hashed in line[key]:
            # Signed as the column is, in the same order.
            rank = hashed[0] - 2**63 if hashed else None
            rows.add("label", name, label, text=text, count=count, sum=sum_ns, least=rank)
    if name != ALL:
        _described(rows, name, line)


def _measure(rows: Rows, name: str, key: str, known: Mapping[str, Any]) -> None:
    # Digests of earlier agents have only these three and no "min".
    n = known["known"]
    rows.add("number", name, key, count=n, sum=known["sum"], least=known.get("min"), most=known["max"])
    if (squares := known.get("sum_squares")) is not None:
        rows.add("number", name, key + SQUARES, count=n, sum=int(squares))
        rows.extend("latency", name, key, len(known["buckets"]), **_pairs(known["buckets"]))


def _described(rows: Rows, name: str, line: Mapping[str, Any]) -> None:
    for key in ("fingerprint", "verb", "folded_id"):
        rows.add("text", name, key, text=line.get(key))
    rows.add("text", name, "id", text=line.get("id"))
    rows.add("text", name, "tables", text=json.dumps(line.get("tables") or [], ensure_ascii=False))
    rows.add("text", name, "key", text=json.dumps(line.get("key") or {}, ensure_ascii=False))
    if sample := line.get("sample"):
        # The text is first: among ties, the smaller one is kept.
        text = json.dumps({"text": sample.get("text"), **sample}, ensure_ascii=False)
        took_ns = sample.get("response_ns")
        rows.add(
            "text",
            name,
            "sample",
            text=text,
            most=-1 if took_ns is None else took_ns,
            least=sample["start_ns"],
        )
    slices = line["slices"]
    if slices:
        starts, counts, sums, slowest, failed = zip(*slices, strict=True)
        at_ns = [start * SECOND_NS for start in starts]
        cells = {"slice_ns": at_ns, "count": counts, "sum": sums, "most": slowest}
        rows.extend("slice", name, "response_ns", len(slices), **cells)
        bad = [(at, n) for at, n in zip(at_ns, failed, strict=True) if n]
        if bad:
            rows.extend(
                "slice", name, "failed", len(bad), slice_ns=[at for at, _ in bad], count=[n for _, n in bad]
            )


def _pairs(buckets: list[list[int]]) -> dict[str, list[int]]:
    return {"bucket": [bucket for bucket, _ in buckets], "count": [count for _, count in buckets]}
