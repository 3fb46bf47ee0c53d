"""The last seconds of a live host, as a window of rates that can be recomputed every second.

Building an Arrow table each second would cost more than everything else here, so the samples of a tick are one row
of numbers, and their names are stored once until they change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.analysis.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    #: Metric and label.
    Name = tuple[str, str]
    #: When, the numbers of its series, and their values.
    Tick = tuple[float, NDArray[np.int32], NDArray[np.float64]]
    Layout = tuple[list[str], list[int], list[str]]

#: Seconds kept: the longest window in use, and a little more.
KEPT_S = 75.0
#: Names of series that are gone are forgotten when there are this many, and as many again as there are others.
SPARE_NAMES = 1000
#: Two samples of a sampler that rests as long as the agent's samplers of every tick may: 15 s.
RESTING_S = 31.0
#: What JSON's numbers become.
NUMBERS = frozenset((int, float))


class _Series:
    """Ticks of a sampler, and the names of their series, each by its number.

    Names take several times the memory of their values, and processes come and go from tick to tick.
    """

    def __init__(self) -> None:
        self.ticks: deque[Tick] = deque()
        self.names: list[Name] = []
        self._numbers: dict[Name, int] = {}

    def numbers(self, names: Iterable[Name]) -> NDArray[np.int32]:
        """The numbers of these names. A new name gets the next number."""
        known, found = self._numbers, []
        for name in names:
            number = known.get(name)
            if number is None:
                number = known[name] = len(self.names)
                self.names.append(name)
            found.append(number)
        return np.array(found, dtype=np.int32)

    def without_spare(self) -> _Series:
        """The same without names that no tick uses. A new object: a window may be made from this one meanwhile."""
        new = _Series()
        for t_s, numbers, values in self.ticks:
            new.ticks.append((t_s, new.numbers(self.names[number] for number in numbers.tolist()), values))
        return new


@dataclass
class _Sampler:
    series: _Series = field(default_factory=_Series)
    error: str = ""
    #: When it failed last: what came before is not joined to what came after.
    failed_s: float = 0.0
    #: Of the last whole tick: its metrics, how many labels each has, and all labels, as they came.
    _layout: Layout = ([], [], [])
    #: Metric -> label -> its place in the last tick; made when a tick of changes needs it.
    _places: dict[str, dict[str, int]] | None = None
    _room: int = SPARE_NAMES

    def add(self, t_s: float, values: dict[str, dict[str, Any]]) -> None:
        """Take a tick. Most have the same names as the one before; those need no Python loop, since one process
        may follow many hosts.
        """
        found = list(chain.from_iterable(map(dict.values, values.values())))
        # Flat lists: a small list per metric would cost more than all the rest.
        layout = list(values), list(map(len, values.values())), list(chain.from_iterable(values.values()))
        if layout == self._layout and self.series.ticks and NUMBERS.issuperset(map(type, found)):
            numbers = self.series.ticks[-1][1]
        else:
            triples = [
                (metric, label, value)
                for metric, labels in values.items()
                for label, value in labels.items()
                if isinstance(value, int | float)
            ]
            # If a value is no number, the next tick cannot reuse the names of this one.
            self._layout = layout if len(triples) == len(found) else ([], [], [])
            if len(self.series.names) > self._room:
                self.series = self.series.without_spare()
                self._room = 2 * len(self.series.names) + SPARE_NAMES
            numbers = self.series.numbers((metric, label) for metric, label, _ in triples)
            found = [value for _, _, value in triples]
            self._places = None
        self.series.ticks.append((t_s, numbers, np.array(found, dtype=np.float64)))

    def change(self, t_s: float, changed: dict[str, dict[str, Any]]) -> None:
        """Take a tick that has only what differs from the last one."""
        if not self.series.ticks:
            return
        _, numbers, last = self.series.ticks[-1]
        if self._places is None:
            self._places = {}
            for place, number in enumerate(numbers.tolist()):
                metric, label = self.series.names[number]
                self._places.setdefault(metric, {})[label] = place
        places, found = [], []
        for metric, labels in changed.items():
            known = self._places.get(metric, {})
            for label, value in labels.items():
                if label in known and isinstance(value, int | float):
                    places.append(known[label])
                    found.append(value)
        values = last.copy()
        values[places] = found
        self.series.ticks.append((t_s, numbers, values))


class Ring:
    """The agent's samples of the last ``kept_s`` seconds. A missing sample is a gap, never a zero."""

    def __init__(self, kept_s: float = KEPT_S) -> None:
        self.kept_s = kept_s
        #: When the newest sample was taken, on the host's clock; 0 if there is none.
        self.newest_s = 0.0
        self._samplers: dict[str, _Sampler] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Take one line of ``headrace-agent sample``. Lines that are not from a sampler are ignored."""
        name = record.get("sampler")
        if not isinstance(name, str) or "t_ns" not in record:
            return
        sampler = self._samplers.setdefault(name, _Sampler())
        if not record.get("ok"):
            sampler.error = str(record.get("error", "it failed"))
            sampler.failed_s = record["t_ns"] / 1e9
            return
        sampler.error = ""
        t_s = record["t_ns"] / 1e9
        if (changed := record.get("changed")) is not None:
            sampler.change(t_s, changed)
        else:
            sampler.add(t_s, record["values"])
        self.newest_s = max(self.newest_s, t_s)
        ticks = sampler.series.ticks
        while ticks and ticks[0][0] < t_s - self.kept_s:
            ticks.popleft()

    @property
    def errors(self) -> dict[str, str]:
        """Sampler -> why its newest sample is missing."""
        return {name: sampler.error for name, sampler in self._samplers.items() if sampler.error}

    def window(self, seconds: float, samplers: Iterable[str] | None = None) -> Window:
        """The last seconds of all samplers, or of these: ``3.0`` at one sample a second has three or four.

        A sampler that the agent lets rest, because its answers cost a big server much, has its last two samples.
        """
        since = self.newest_s - seconds
        wanted = set(self._samplers if samplers is None else samplers)
        parts = []
        index: dict[tuple[str, str], dict[str, int]] = {}
        number = 0
        # Copies: samples arrive on another thread than a window is made on.
        for name, sampler in list(self._samplers.items()):
            series = sampler.series
            kept = series.ticks.copy()
            ticks = [tick for tick in kept if tick[0] >= since]
            if len(ticks) < 2 and not sampler.error:
                oldest = max(self.newest_s - RESTING_S, sampler.failed_s)
                ticks = [tick for tick in kept if tick[0] >= oldest][-2:]
            if name not in wanted or not ticks:
                continue
            numbers, values = _matrix(ticks)
            times = np.broadcast_to(np.array([tick[0] for tick in ticks]), values.shape)
            parts.append((times, values))
            for at, each in enumerate(numbers.tolist(), number):
                metric, label = series.names[each]
                index.setdefault((name, metric), {})[label] = at
            number += len(numbers)
        return LiveWindow(parts, index, self.errors)


def _matrix(ticks: list[Tick]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The series of all ticks, and their values: series x ticks; NaN if a tick lacks a series."""
    first = ticks[0][1]
    if all(numbers is first for _, numbers, _ in ticks):
        return first, np.stack([values for *_, values in ticks], axis=1)
    series, rows = np.unique(np.concatenate([numbers for _, numbers, _ in ticks]), return_inverse=True)
    matrix = np.full((len(series), len(ticks)), np.nan)
    columns = np.repeat(np.arange(len(ticks)), [len(numbers) for _, numbers, _ in ticks])
    matrix[rows, columns] = np.concatenate([values for *_, values in ticks])
    return series, matrix


class LiveWindow(Window):
    """A window over matrices (series x ticks, NaN is a gap) instead of a table."""

    def __init__(
        self,
        parts: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
        index: dict[tuple[str, str], dict[str, int]],
        errors: Mapping[str, str],
    ) -> None:
        self.errors = dict(errors)
        self._index = index
        there = [~np.isnan(values) for _, values in parts]
        none = np.empty(0)
        times, values = (
            [t[mask] for (t, _), mask in zip(parts, there, strict=True)],
            [v[mask] for (_, v), mask in zip(parts, there, strict=True)],
        )
        counts = np.concatenate([mask.sum(axis=1) for mask in there]) if parts else none
        self._t = np.concatenate(times) if parts else none
        self._value = np.concatenate(values) if parts else none
        self._ends = np.cumsum(counts).astype(np.int64)
        self._starts = self._ends - counts.astype(np.int64)
        self._reduce()
