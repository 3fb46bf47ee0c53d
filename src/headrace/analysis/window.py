"""A window of raw samples, read as rates: the only place where counters become rates.

The agent stores counters, never rates, so that a wrong formula can be fixed without sampling the host again. Here
every counter of a window is reduced once, vectorised over all of them, and then looked up by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from headrace.samples import Samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The agent records for each sampler and tick whether it succeeded.
SUCCESS = "headrace_ok"

#: A counter that falls below this share of its value was reset: a new process or device. One that falls by less
#: has stepped back, as idle and iowait do by a tick when a CPU's sleep is shared out anew: proc_stat(5).
RESET_SHARE = 0.5

#: Samplers whose counters begin with the boot, so that none is ever reset.
NEVER_RESET = frozenset({"cpu"})

_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Gauge:
    """A gauge's values during the window."""

    mean: float
    low: float
    high: float
    last: float


@dataclass(frozen=True)
class Series:
    """A counter's rate between successive samples. ``t_s``: the ends of the intervals, from the window's start."""

    t_s: NDArray[np.float64]
    rate: NDArray[np.float64]


class Window:
    """Counters and gauges of ``samples``.

    A value that was not sampled is None, never 0. ``errors`` maps a sampler to why it has no values.
    ``server_pid`` is the process of the server that is asked about, None if that is not known.
    """

    server_pid: int | None = None

    def __init__(self, samples: Samples, errors: Mapping[str, str] = MappingProxyType({})) -> None:
        self.samples = samples
        self.errors = dict(errors)
        self._t = samples.t_ns.astype(np.float64) / 1e9
        self._value = samples.value
        self._starts, self._ends = samples.starts, samples.ends
        self._index: dict[tuple[str, str], dict[str, int]] = {}
        for number, (sampler, metric, label) in enumerate(samples.names):
            self._index.setdefault((sampler, metric), {})[label] = number
        self._reduce()

    def _reduce(self) -> None:
        self._samplers = frozenset(name for name, metric in self._index if not metric.startswith("headrace_"))
        if len(self._t) == 0:
            self.start_s = self.seconds = 0.0
            self._growth = self._span = self._mean = self._low = self._high = np.empty(0)
            return
        self.start_s = float(self._t.min())
        self.seconds = float(self._t.max()) - self.start_s
        before = np.concatenate([self._value[:1], self._value[:-1]])
        lengths = self._ends - self._starts
        may_reset = np.ones(len(self._starts), dtype=bool)
        for (sampler, _), numbers in self._index.items():
            if sampler in NEVER_RESET:
                may_reset[list(numbers.values())] = False
        grown = _grown(before, self._value, np.repeat(may_reset, lengths))
        grown[self._starts] = 0.0
        self._growth = np.maximum(np.add.reduceat(grown, self._starts), 0.0)
        self._span = self._t[self._ends - 1] - self._t[self._starts]
        self._mean = np.add.reduceat(self._value, self._starts) / (self._ends - self._starts)
        self._low = np.minimum.reduceat(self._value, self._starts)
        self._high = np.maximum.reduceat(self._value, self._starts)

    def kept(self, sampler: str, is_kept: Callable[[str], bool]) -> Window:
        """The same window, of one sampler only with these labels."""
        kept = copy(self)
        kept._index = {
            (name, metric): {label: number for label, number in labels.items() if is_kept(label)}
            if name == sampler
            else labels
            for (name, metric), labels in self._index.items()
        }
        return kept

    def samplers(self) -> frozenset[str]:
        """The samplers with at least one value."""
        return self._samplers

    def labels(self, sampler: str, metric: str) -> list[str]:
        """In the samples' order, which is by name."""
        return list(self._of(sampler, metric))

    def metrics(self, sampler: str) -> list[str]:
        return [metric for name, metric in self._index if name == sampler]

    def rate(self, sampler: str, metric: str, label: str = "") -> float | None:
        """Growth per second over the window; None with fewer than two samples."""
        number = self._of(sampler, metric).get(label)
        if number is None or self._span[number] <= 0:
            return None
        return float(self._growth[number] / self._span[number])

    def rates(self, sampler: str, metric: str) -> dict[str, float]:
        """Label -> growth per second."""
        found = ((label, self.rate(sampler, metric, label)) for label in self._of(sampler, metric))
        return {label: rate for label, rate in found if rate is not None}

    def growth(self, sampler: str, metric: str, label: str = "") -> float | None:
        """How much a counter grew over the window."""
        number = self._of(sampler, metric).get(label)
        return None if number is None or self._span[number] <= 0 else float(self._growth[number])

    def total_growth(self, sampler: str, metric: str) -> float | None:
        """Over all labels."""
        found = [self.growth(sampler, metric, label) for label in self._of(sampler, metric)]
        known = [value for value in found if value is not None]
        return sum(known) if known else None

    def gauge(self, sampler: str, metric: str, label: str = "") -> Gauge | None:
        number = self._of(sampler, metric).get(label)
        if number is None:
            return None
        mean, low, high = (float(part[number]) for part in (self._mean, self._low, self._high))
        return Gauge(mean, low, high, float(self._value[self._ends[number] - 1]))

    def last(self, sampler: str, metric: str, label: str = "") -> float | None:
        """The newest value, of a counter or a gauge."""
        number = self._of(sampler, metric).get(label)
        return None if number is None else float(self._value[self._ends[number] - 1])

    def series(self, sampler: str, metric: str, label: str = "") -> Series | None:
        """The rate between samples; None with fewer than two samples."""
        number = self._of(sampler, metric).get(label)
        if number is None or self._ends[number] - self._starts[number] < 2:
            return None
        part = slice(self._starts[number], self._ends[number])
        t, value = self._t[part], self._value[part]
        grown = np.maximum(_grown(value[:-1], value[1:], np.bool_(sampler not in NEVER_RESET)), 0.0)
        width = np.diff(t)
        keep = width > 0
        return Series(t[1:][keep] - self.start_s, grown[keep] / width[keep])

    def values(self, sampler: str, metric: str, label: str = "") -> NDArray[np.float64]:
        """A gauge's values, one per sample; empty if there are none."""
        number = self._of(sampler, metric).get(label)
        if number is None:
            return np.empty(0)
        return np.asarray(self._value[self._starts[number] : self._ends[number]], dtype=np.float64)

    def _of(self, sampler: str, metric: str) -> Mapping[str, int]:
        return self._index.get((sampler, metric), _NONE)


def _grown(
    before: NDArray[np.float64], value: NDArray[np.float64], may_reset: NDArray[np.bool_] | np.bool_
) -> NDArray[np.float64]:
    """By how much counters grew between samples: from 0 if they were reset, and below 0 if they stepped back."""
    is_reset = may_reset & (value < RESET_SHARE * before)
    return np.where(is_reset, value, value - before)
