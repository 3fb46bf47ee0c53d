"""The last seconds of a live host, as a window of rates that can be recomputed every second.

Building an Arrow table each second would cost more than everything else here, so the samples of a tick are one row
of numbers, and their names are stored once until they change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.analysis.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Names = tuple[tuple[str, str], ...]

#: Seconds kept: the longest window in use, and a little more.
KEPT_S = 75.0
#: Names of series that are gone are forgotten when there are this many, and as many again as there are others.
SPARE_NAMES = 1000
#: Two samples of a sampler that rests as long as the agent's samplers of every tick may: 15 s.
RESTING_S = 31.0


@dataclass
class _Sampler:
    ticks: deque[tuple[float, Names, NDArray[np.float64]]] = field(default_factory=deque)
    error: str = ""
    #: When it failed last: what came before is not joined to what came after.
    failed_s: float = 0.0
    _known: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    _room: int = SPARE_NAMES

    def shared(self, names: Names) -> Names:
        """The same names, of the objects that other ticks have; if equal, the last tick's own: see ``_matrix``.

        Names take several times the memory of their numbers, and processes come and go from tick to tick.
        """
        if self.ticks and self.ticks[-1][1] == names:
            return self.ticks[-1][1]
        if len(self._known) > self._room:
            self._known = {name: name for _, old, _ in self.ticks for name in old}
            self._room = 2 * len(self._known) + SPARE_NAMES
        return tuple(self._known.setdefault(name, name) for name in names)


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
        pairs = [
            (metric, label, value)
            for metric, labels in record["values"].items()
            for label, value in labels.items()
            if isinstance(value, int | float)
        ]
        names = tuple((metric, label) for metric, label, _ in pairs)
        names = sampler.shared(names)
        values = np.array([value for _, _, value in pairs], dtype=np.float64)
        sampler.ticks.append((t_s, names, values))
        self.newest_s = max(self.newest_s, t_s)
        while sampler.ticks[0][0] < t_s - self.kept_s:
            sampler.ticks.popleft()

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
            kept = sampler.ticks.copy()
            ticks = [tick for tick in kept if tick[0] >= since]
            if len(ticks) < 2 and not sampler.error:
                oldest = max(self.newest_s - RESTING_S, sampler.failed_s)
                ticks = [tick for tick in kept if tick[0] >= oldest][-2:]
            if name not in wanted or not ticks:
                continue
            names, values = _matrix([(tick[1], tick[2]) for tick in ticks])
            times = np.broadcast_to(np.array([tick[0] for tick in ticks]), values.shape)
            parts.append((times, values))
            for at, (metric, label) in enumerate(names):
                index.setdefault((name, metric), {})[label] = number + at
            number += len(names)
        return LiveWindow(parts, index, self.errors)


def _matrix(ticks: list[tuple[Names, NDArray[np.float64]]]) -> tuple[Names, NDArray[np.float64]]:
    """Series x ticks; NaN if a tick lacks a series."""
    first = ticks[0][0]
    if all(names is first for names, _ in ticks):
        return first, np.stack([values for _, values in ticks], axis=1)
    rows: dict[tuple[str, str], int] = {}
    for names, _ in ticks:
        for name in names:
            rows.setdefault(name, len(rows))
    matrix = np.full((len(rows), len(ticks)), np.nan)
    for column, (names, values) in enumerate(ticks):
        matrix[[rows[name] for name in names], column] = values
    return tuple(rows), matrix


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
