"""The last seconds of a live host, as a window of rates that can be recomputed every second.

Building an Arrow table each second would cost more than everything else here, so the samples of a tick are one row
of numbers, and their names are stored once until they change.

A host that was taken over, or is broken, may send anything: what is kept of one host is bounded, and what finds no
room is counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.host.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    #: Metric and label.
    Name = tuple[str, str]
    #: When, the numbers of its series, and their values.
    Tick = tuple[float, NDArray[np.int32], NDArray[np.float64]]
    Layout = tuple[list[str], list[int], list[str]]
    Times = NDArray[np.float64]
    Values = NDArray[np.float64]
    Counts = NDArray[np.int64]
    #: Metric, label and value.
    Triple = tuple[str, str, float]

#: Seconds kept: the longest window in use, and a little more.
KEPT_S = 75.0
#: Names of series that are gone are forgotten when there are this many, and as many again as there are others.
SPARE_NAMES = 1000
#: Two samples of a sampler that rests as long as the agent's samplers of every tick may: 15 s.
RESTING_S = 31.0
#: What is kept of one host: samplers, names of series and values in all ticks of all of them, ticks of a sampler.
#: An honest one has thirty samplers, some 10,000 series, and a tick a second. The values are 100 MB here, and
#: 600 MB for a moment in each window.
MOST_SAMPLERS, MOST_NAMES, MOST_VALUES, MOST_TICKS = 100, 400_000, 6_000_000, 600
#: Characters of a sampler, a metric, a label or an error.
MOST_TEXT = 500
#: Where names find no room, those that are gone are looked for this often.
SEARCH_EVERY_S = 10.0
#: A host's clock that goes back by more was set; what came before would be in the future.
SET_BACK_S = 300.0
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

    def fitting(self, triples: list[Triple], room: int) -> list[Triple]:
        """Those with a name that is known, or that is one of the ``room`` new ones."""
        found = []
        for triple in triples:
            if triple[:2] not in self._numbers:
                room -= 1
                if room < 0:
                    continue
            found.append(triple)
        return found

    def without_spare(self) -> _Series:
        """The same without names that no tick uses. A new object: a window may be made from this one meanwhile."""
        new = _Series()
        # Most ticks share their numbers, and still do so afterwards.
        shared = {id(numbers): numbers for _, numbers, _ in self.ticks}
        used = np.unique(np.concatenate([*shared.values(), np.empty(0, dtype=np.int32)]))
        new.numbers(self.names[number] for number in used.tolist())
        renumbered = {key: np.searchsorted(used, numbers).astype(np.int32) for key, numbers in shared.items()}
        new.ticks.extend((t_s, renumbered[id(numbers)], values) for t_s, numbers, values in self.ticks)
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
    _search_at: float = 0.0

    def add(self, t_s: float, values: dict[str, dict[str, Any]], room: int) -> int:
        """Take a tick. Most have the same names as the one before; those need no Python loop, since one process
        may follow many hosts. How many values were left out, because ``room`` is how many names may be new.
        """
        found = list(chain.from_iterable(map(dict.values, values.values())))
        # Flat lists: a small list per metric would cost more than all the rest.
        layout = list(values), list(map(len, values.values())), list(chain.from_iterable(values.values()))
        left_out = 0
        if layout == self._layout and self.series.ticks and NUMBERS.issuperset(map(type, found)):
            numbers = self.series.ticks[-1][1]
        else:
            triples = [
                (metric, label, value)
                for metric, labels in values.items()
                for label, value in labels.items()
                if isinstance(value, int | float) and len(label) <= MOST_TEXT and len(metric) <= MOST_TEXT
            ]
            room += self._forget(is_short=len(triples) > room)
            if len(triples) > room:
                wanted, triples = len(triples), self.series.fitting(triples, room)
                left_out = wanted - len(triples)
            # If a value is no number, the next tick cannot reuse the names of this one.
            self._layout = layout if len(triples) == len(found) else ([], [], [])
            numbers = self.series.numbers((metric, label) for metric, label, _ in triples)
            found = [value for _, _, value in triples]
            self._places = None
        self.series.ticks.append((t_s, numbers, np.array(found, dtype=np.float64)))
        return left_out

    def _forget(self, *, is_short: bool) -> int:
        """Forget names of series that are gone, if it is time to. How many."""
        before, now = len(self.series.names), time.monotonic()
        if before <= self._room and not (is_short and now >= self._search_at):
            return 0
        self.series, self._search_at = self.series.without_spare(), now + SEARCH_EVERY_S
        self._room = 2 * len(self.series.names) + SPARE_NAMES
        return before - len(self.series.names)

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
        #: Values that found no room since the last `taken_left_out`.
        self._left_out = 0
        #: Names and values of all samplers.
        self._named = self._held = 0
        self._samplers: dict[str, _Sampler] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Take one line of ``headrace-agent sample``. Lines that are not from a sampler are ignored."""
        name = record.get("sampler")
        if not isinstance(name, str) or "t_ns" not in record:
            return
        t_s = record["t_ns"] / 1e9
        if t_s < self.newest_s - SET_BACK_S:
            self._samplers, self._named, self._held, self.newest_s = {}, 0, 0, 0.0
        sampler = self._samplers.get(name)
        if sampler is None:
            if len(self._samplers) >= MOST_SAMPLERS:
                self._forget_silent()
            if len(self._samplers) >= MOST_SAMPLERS or len(name) > MOST_TEXT:
                self._left_out += 1
                return
            sampler = self._samplers[name] = _Sampler()
        if not record.get("ok"):
            sampler.error = str(record.get("error", "it failed"))[:MOST_TEXT]
            sampler.failed_s = t_s
            return
        sampler.error = ""
        if self._named >= MOST_NAMES:
            self._forget_silent()
        named, ticks = len(sampler.series.names), len(sampler.series.ticks)
        if (changed := record.get("changed")) is not None:
            sampler.change(t_s, changed)
        else:
            self._left_out += sampler.add(t_s, record["values"], MOST_NAMES - self._named)
        self.newest_s = max(self.newest_s, t_s)
        self._named += len(sampler.series.names) - named
        if len(sampler.series.ticks) > ticks:
            self._held += len(sampler.series.ticks[-1][2])
        self._drop_old(sampler.series.ticks, t_s)
        if self._held > MOST_VALUES:
            self._make_room(sampler.series.ticks)

    def _drop_old(self, ticks: deque[Tick], t_s: float) -> None:
        while ticks and (ticks[0][0] < t_s - self.kept_s or len(ticks) > MOST_TICKS):
            self._held -= len(ticks.popleft()[2])

    def _forget_silent(self) -> None:
        """Forget samplers of which nothing is in any window."""
        for name, sampler in list(self._samplers.items()):
            ticks = sampler.series.ticks
            if max(ticks[-1][0] if ticks else 0.0, sampler.failed_s) < self.newest_s - self.kept_s:
                self._named -= len(sampler.series.names)
                self._held -= sum(len(values) for *_, values in ticks)
                del self._samplers[name]

    def _make_room(self, ticks: deque[Tick]) -> None:
        """First of what is in no window, then of the sampler that needs it."""
        self._forget_silent()
        while ticks and self._held > MOST_VALUES:
            count = len(ticks.popleft()[2])
            self._held -= count
            self._left_out += count

    def taken_left_out(self) -> int:
        """Values that found no room since this was asked last."""
        left_out, self._left_out = self._left_out, 0
        return left_out

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
            numbers, times, values, counts = _by_series(ticks)
            parts.append((times, values, counts))
            for at, each in enumerate(numbers.tolist(), number):
                metric, label = series.names[each]
                index.setdefault((name, metric), {})[label] = at
            number += len(numbers)
        return LiveWindow(parts, index, self.errors)


def _by_series(ticks: list[Tick]) -> tuple[NDArray[np.int32], Times, Values, Counts]:
    """The series of all ticks, and of one after the other when and what its values are; how many each has.

    Never a matrix of series and ticks where they differ: of a host whose names are new in each tick it would have
    hundreds of times as many cells as there are values.
    """
    first, count = ticks[0][1], len(ticks)
    t_s = np.array([tick[0] for tick in ticks])
    if all(numbers is first for _, numbers, _ in ticks):
        values = np.stack([values for *_, values in ticks], axis=1).ravel()
        series, times, counts = first, np.tile(t_s, len(first)), np.full(len(first), count)
    else:
        numbers = np.concatenate([numbers for _, numbers, _ in ticks])
        order = np.argsort(numbers, kind="stable")
        series, counts = np.unique(numbers, return_counts=True)
        values = np.concatenate([values for *_, values in ticks])[order]
        times = np.repeat(t_s, [len(numbers) for _, numbers, _ in ticks])[order]
    there = ~np.isnan(values)
    if there.all():
        return series, times, values, counts
    ends = np.cumsum(counts)
    known = np.concatenate([[0], np.cumsum(there)])
    return series, times[there], values[there], known[ends] - known[ends - counts]


class LiveWindow(Window):
    """A window over values in the order of their series, instead of a table."""

    def __init__(
        self,
        parts: Sequence[tuple[Times, Values, Counts]],
        index: dict[tuple[str, str], dict[str, int]],
        errors: Mapping[str, str],
    ) -> None:
        self.errors = dict(errors)
        self._index = index
        parts = parts or [(np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))]
        self._t = np.concatenate([times for times, _, _ in parts])
        self._value = np.concatenate([values for _, values, _ in parts])
        counts = np.concatenate([counts for *_, counts in parts])
        self._ends = np.cumsum(counts).astype(np.int64)
        self._starts = self._ends - counts.astype(np.int64)
        self._reduce()
