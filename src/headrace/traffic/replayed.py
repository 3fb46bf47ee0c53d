"""The result of a replay, from the agent's lines one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.base.percentiles import Histogram, percentile_ns

#: Percentiles shown per operation.
SHOWN = ("p50", "p99", "max")
_KINDS = ("response", "service", "failed")


class Replayed:
    """A replay's state after the lines so far."""

    def __init__(self) -> None:
        self.end: Mapping[str, Any] = {}
        #: What the schedule needs of the cores; empty without a schedule.
        self.needs: Mapping[str, Any] = {}
        #: What will fail for lack of connections, or is too long for the server; in sentences.
        self.doubts: list[str] = []
        self.classes: list[Mapping[str, Any]] = []
        self.statements = 0
        self.errors = 0
        self.at_s = 0.0
        self._counts: dict[str, dict[str, int]] = {}
        self._buckets: dict[tuple[str, str], dict[int, int]] = {}
        self._extremes: dict[tuple[str, str], tuple[int, int]] = {}

    def add(self, line: Mapping[str, Any]) -> None:
        """Take the next line. Lines from before the window count only as progress."""
        if line["kind"] == "interval":
            self.at_s = max(self.at_s, line["t_s"] + line["duration_s"])
            if line["t_s"] >= 0 and line["operation"] != "connect":
                self._add_interval(line)
        elif line["kind"] == "class":
            self.classes.append(line)
        elif line["kind"] == "start":
            self.needs = line.get("needs") or {}
            self.doubts = line.get("doubts") or []
        elif line["kind"] == "end":
            self.end = line

    def _add_interval(self, line: Mapping[str, Any]) -> None:
        operation = line["operation"]
        self.statements += line["count"]
        self.errors += line["errors"]
        counts = self._counts.setdefault(operation, {"count": 0, "errors": 0, "rows": 0, "bytes": 0})
        for name in counts:
            counts[name] += line[name]
        for kind in _KINDS:
            found = line[kind]
            if not found["buckets"]:
                continue
            sums = self._buckets.setdefault((operation, kind), {})
            for bucket, number in found["buckets"]:
                sums[bucket] = sums.get(bucket, 0) + number
            low, high = self._extremes.get((operation, kind), (found["min_ns"], found["max_ns"]))
            self._extremes[operation, kind] = (min(low, found["min_ns"]), max(high, found["max_ns"]))

    @property
    def length_s(self) -> float:
        """Length of the measured window."""
        return float(self.end["window_end_ns"] - self.end["window_start_ns"]) / 1e9 if self.end else self.at_s

    def operations(self) -> dict[str, dict[str, Any]]:
        """Operation -> its counts, and percentiles in ns of its response time (from when it was due) and service
        time.
        """
        found: dict[str, dict[str, Any]] = {}
        for operation, counts in self._counts.items():
            if not counts["count"] + counts["errors"]:
                continue
            times = {
                f"{kind}_ns": {name: percentile_ns(self._histogram(operation, kind), name) for name in SHOWN}
                for kind in ("response", "service")
            }
            found[operation] = {**counts, **times}
        return found

    def percentile_ns(self, name: str) -> float | None:
        """Of the response times of all statements; None if there was none."""
        total: dict[int, int] = {}
        ends: list[tuple[int, int]] = []
        for (operation, kind), buckets in self._buckets.items():
            if kind != "response":
                continue
            ends.append(self._extremes[operation, kind])
            for bucket, number in buckets.items():
                total[bucket] = total.get(bucket, 0) + number
        if not total:
            return None
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        return percentile_ns(_histogram_of(total, low, high), name)

    def _histogram(self, operation: str, kind: str) -> Histogram:
        buckets = self._buckets.get((operation, kind), {})
        low, high = self._extremes.get((operation, kind), (None, None))
        return _histogram_of(buckets, low, high)


def _histogram_of(buckets: Mapping[int, int], low: int | None, high: int | None) -> Histogram:
    bounds = np.array(list(buckets), dtype=np.int32)
    return Histogram.of(bounds, np.array(list(buckets.values()), dtype=np.int64), low, high)
