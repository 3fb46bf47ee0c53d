"""A window of raw samples, read as rates: the only place where counters become rates.

The agent stores counters, never rates, so that a wrong formula can be fixed without sampling the host again. Here
every counter of a window is reduced once, vectorised over all of them, and then looked up by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.errors import HostUnknown
from headrace.host import paths
from headrace.host.samples import Samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The agent records for each sampler and tick whether it succeeded.
SUCCESS = "headrace_ok"

#: A counter that falls below this share of its value was reset: a new process or device. One that falls by less
#: has stepped back, as idle and iowait do by a tick when a CPU's sleep is shared out anew: proc_stat(5).
RESET_SHARE = 0.5

#: After it began anew it does not grow by more than so many times its most in other intervals. One that steps back
#: by more than this share of all that it grew has not stepped back.
NEW_TIMES, STEP_BACK = 10.0, 0.5
#: At most one interval of so many falls in a counter.
MOST_FALLS = 4

#: Samplers whose counters begin with the boot, so that none is ever reset.
NEVER_RESET = frozenset({"cpu"})

#: States of a CPU in /proc/stat whose times add up to the time that passed: proc_stat(5). Guests are in ``user``.
CPU_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
#: Ticks per second of /proc/stat on every architecture that runs MySQL (USER_HZ).
TICKS_S = 100.0
#: How much more than the time that passed a CPU's states may add up to: reading them takes time, and an idle CPU's
#: time is rounded.
CPU_SLACK, CPU_SLACK_TICKS = 1.25, 10.0
#: The share of the time that passed that a CPU's states without the stolen time reach if only that is wrong.
ALL_BUT_STEAL = 0.9
#: The kernel adds waits up every two seconds (kernel/sched/psi.c), and threads are read one after the other.
WAITS_SLACK_S = 2.0
#: An interval in which no CPU's time advanced, though it is many times as long as the others: the host stood
#: still.
PAUSE_TIMES, PAUSE_SHARE = 3.0, 0.5
#: Ticks of a CPU in a second, against the usual, from which on it is the clock that was set back.
STEP_TIMES = 1.5
#: No counter grows by more between two samples: beyond it a value below 0 was printed as an unsigned number.
MOST_GROWTH = 2.0**53

#: The agent's samplers that ask the server alone, wherever it runs; and the agent's own counts.
SERVER_SAMPLERS = (
    "mysql_status", "innodb_metrics", "innodb_cmp", "innodb_mutex", "innodb_status", "mysql_waits", "statements",
    "temptable", "processlist", "replication", "thread_pool", "agent",
)  # fmt: skip

#: A count below 0, printed as a number of 64 bits; and of 32 bits, where nothing has so many.
BELOW_0_OF_64, BELOW_0_OF_32 = 2.0**63, 2.0**31
COUNTS = frozenset(
    {
        *(("cpu", f"procs_{state}") for state in ("running", "blocked")),
        ("disk", "in_flight"),
        *(("mysql_status", f"threads_{state}") for state in ("running", "connected")),
        *(("mysql_status", f"innodb_{name}") for name in ("row_lock_current_waits", "history_list_length")),
    }
)

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
    ``server_pid`` is the process of the server that is asked about, None if that is not known. ``only_server``:
    why counters of a host are refused with HostUnknown, because it may not be the server's. ``jumps``: CPU ->
    intervals left out because its times grew by what cannot be: below 0, or more than the time that passed.
    """

    server_pid: int | None = None
    #: Why the host's counters may not be used; empty if they may.
    only_server: str = ""

    def __init__(self, samples: Samples, errors: Mapping[str, str] = MappingProxyType({})) -> None:
        samples = possible(paths.joined(samples))
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
        self.jumps: dict[str, int] = {}
        self.wrong_steal: dict[str, int] = {}
        self.paused_s = 0.0
        if len(self._t) == 0:
            self.start_s = self.seconds = 0.0
            self._grown = self._width = np.empty(0)
            self._growth = self._span = self._mean = self._low = self._high = np.empty(0)
            return
        self.start_s = float(self._t.min())
        self.seconds = float(self._t.max()) - self.start_s
        before = np.concatenate([self._value[:1], self._value[:-1]])
        # The first value of a series must not be compared with the last of the series before it.
        before[self._starts] = self._value[self._starts]
        lengths = self._ends - self._starts
        may_reset = np.ones(len(self._starts), dtype=bool)
        for (sampler, _), numbers in self._index.items():
            if sampler in NEVER_RESET:
                may_reset[list(numbers.values())] = False
        grown = _grown(before, self._value, np.repeat(may_reset, lengths))
        grown[self._starts] = 0.0
        width = np.diff(self._t, prepend=self._t[0])
        width[self._starts] = 0.0
        is_impossible = (np.abs(grown) > MOST_GROWTH) | (width < 0)
        self._leave_out_steps(grown, width)
        self._leave_out_pauses(grown, width)
        self._leave_out_jumps(grown, width)
        is_impossible |= self._is_more_than_time(grown, width)
        is_impossible |= self._is_a_fall(before, grown, np.repeat(may_reset, lengths))
        grown[is_impossible] = width[is_impossible] = 0.0
        self._grown, self._width = grown, width
        self._growth = np.maximum(np.add.reduceat(grown, self._starts), 0.0)
        self._span = np.add.reduceat(width, self._starts)
        self._mean = np.add.reduceat(self._value, self._starts) / (self._ends - self._starts)
        self._low = np.minimum.reduceat(self._value, self._starts)
        self._high = np.maximum.reduceat(self._value, self._starts)

    def _is_more_than_time(self, grown: NDArray[np.float64], width: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Where tasks are said to have waited for longer than what passed, or a thread or program to have used
        more CPUs than there are."""
        is_more = np.zeros(len(grown), dtype=bool)
        cpus = len({*self._index.get(("cpu", "user"), {})} - {"all"}) or np.inf
        kinds = [("threads", 1.0), ("process", cpus)]
        limits = {(name, f"{way}time_ticks"): most * TICKS_S for name, most in kinds for way in "us"}
        limits |= dict.fromkeys((key for key in self._index if key[0] == "psi"), 1e6)
        for key, most in limits.items():
            for part in map(self._part, self._index.get(key, {}).values()):
                is_more[part] = grown[part] > most * (CPU_SLACK * width[part] + WAITS_SLACK_S)
        for name, most in kinds:
            self._mark_both(name, most * TICKS_S, grown, width, is_more)
        return is_more

    def _mark_both(
        self,
        sampler: str,
        most: float,
        grown: NDArray[np.float64],
        width: NDArray[np.float64],
        is_more: NDArray[np.bool_],
    ) -> None:
        """Where the user's and the system's time of one label are each possible, and together are not."""
        user, system = (self._index.get((sampler, f"{way}time_ticks"), {}) for way in "us")
        for label in user.keys() & system.keys():
            parts = [self._part(labels[label]) for labels in (user, system)]
            if np.array_equal(self._t[parts[0]], self._t[parts[1]]):
                both = grown[parts[0]] + grown[parts[1]]
                is_both = both > most * (CPU_SLACK * width[parts[0]] + WAITS_SLACK_S)
                for part in parts:
                    is_more[part] |= is_both

    def _is_a_fall(
        self, before: NDArray[np.float64], grown: NDArray[np.float64], may_reset: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Where a sum lost one of its parts, as a bond that loses a card: by more than a step back, or to a value
        that no counter reaches in one interval after it began anew."""
        lengths = self._ends - self._starts
        is_down = may_reset & (self._value < before)
        rises = np.where(is_down, 0.0, np.maximum(grown, 0.0))
        most = np.repeat(np.maximum.reduceat(rises, self._starts), lengths)
        total = np.repeat(np.add.reduceat(rises, self._starts), lengths)
        is_new = is_down & (grown >= 0)
        # What falls again and again is no counter: space that is free, a length.
        falls = np.repeat(np.add.reduceat(is_down.astype(np.int64), self._starts), lengths)
        is_step = is_down & ((falls == 1) | (falls * MOST_FALLS <= np.repeat(lengths, lengths)))
        began_too_high: NDArray[np.bool_] = is_new & (total > 0) & (grown > NEW_TIMES * most)
        stepped_back: NDArray[np.bool_] = is_step & (grown < -STEP_BACK * total)
        return began_too_high | stepped_back

    def _leave_out_pauses(self, grown: NDArray[np.float64], width: NDArray[np.float64]) -> None:
        """Makes gaps of the time in which the host was suspended, or its guest paused.

        Its clock goes on then and its counters do not, so that every rate would be too low.
        """
        pauses = self._pauses(grown, width)
        if pauses is None or not len(pauses):
            return
        before = self._t - width
        for start, end in pauses.tolist():
            inside = np.minimum(self._t, end) - np.maximum(before, start)
            is_still = (inside > 0.5 * width) & (width > 0)
            grown[is_still] = width[is_still] = 0.0
            self.paused_s += end - start
        self.seconds -= self.paused_s

    def _leave_out_steps(self, grown: NDArray[np.float64], width: NDArray[np.float64]) -> None:
        """Makes gaps of the intervals in which the clock was set back: every CPU's time advanced by much more than
        the clock did, and every rate would be too high."""

        def is_step(length: NDArray[np.float64], pace: NDArray[np.float64]) -> NDArray[np.bool_]:
            is_short = STEP_TIMES * length < np.median(length[length > 0])
            return np.asarray(is_short & (pace > STEP_TIMES * np.median(pace[length > 0])))

        steps = self._intervals(grown, width, is_step)
        before = self._t - width
        for start, end in steps.tolist() if steps is not None else ():
            is_inside = (before >= start) & (self._t <= end) & (width > 0)
            grown[is_inside] = width[is_inside] = 0.0

    def _pauses(self, grown: NDArray[np.float64], width: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Start and end of each interval in which no CPU's time advanced as it does in the others."""

        def is_still(length: NDArray[np.float64], pace: NDArray[np.float64]) -> NDArray[np.bool_]:
            is_long = length > PAUSE_TIMES * np.median(length[length > 0])
            return np.asarray(is_long & (pace < PAUSE_SHARE * np.median(pace[length > 0])))

        return self._intervals(grown, width, is_still)

    def _intervals(
        self,
        grown: NDArray[np.float64],
        width: NDArray[np.float64],
        is_odd: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.bool_]],
    ) -> NDArray[np.float64] | None:
        """Start and end of each interval that ``is_odd`` for every CPU, by lengths and ticks per second."""
        found: set[tuple[float, float]] | None = None
        states = [self._index.get(("cpu", state), {}) for state in CPU_STATES]
        for name in {label for labels in states for label in labels}:
            parts = [self._part(labels[name]) for labels in states if name in labels]
            first = parts[0]
            length, times = width[first], self._t[first]
            known = length > 0
            if known.sum() < 3 or any(not np.array_equal(self._t[part], times) for part in parts[1:]):
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                pace = sum(grown[part] for part in parts) / length
            odd = known & is_odd(length, pace)
            spans = {(float(t - w), float(t)) for t, w in zip(times[odd], length[odd], strict=True)}
            found = spans if found is None else found & spans
        return np.array(sorted(found)) if found else None

    def _leave_out_jumps(self, grown: NDArray[np.float64], width: NDArray[np.float64]) -> None:
        """Makes gaps of intervals in which a CPU's times grew by what cannot be.

        A CPU that goes offline, a guest that is suspended or migrated, and kernels that count stolen time wrongly
        make these counters fall, wrap around or jump by hours.
        """
        states = [self._index.get(("cpu", state), {}) for state in CPU_STATES]
        others = {label for labels in states for label in labels} - {"all"}
        for name in sorted({label for labels in states for label in labels}):
            parts = [self._part(labels[name]) for labels in states if name in labels]
            first = parts[0]
            if any(not np.array_equal(self._t[part], self._t[first]) for part in parts[1:]):
                continue
            most = CPU_SLACK * TICKS_S * width[first] + CPU_SLACK_TICKS
            most *= max(len(others), 1) if name == "all" else 1
            each = np.array([grown[part] for part in parts])
            is_jump = (np.abs(each) > most).any(axis=0) | (each.sum(axis=0) > most)
            is_jump |= each.sum(axis=0) < -CPU_SLACK_TICKS
            is_jump &= ~self._leave_out_steal(name, is_jump, grown, width)
            if not is_jump.any():
                continue
            self.jumps[name] = int(is_jump.sum())
            for (sampler, _), labels in self._index.items():
                number = labels.get(name) if sampler == "cpu" else None
                if number is not None and self._ends[number] - self._starts[number] == len(is_jump):
                    grown[self._part(number)][is_jump] = 0.0
                    width[self._part(number)][is_jump] = 0.0

    def _leave_out_steal(
        self, name: str, is_jump: NDArray[np.bool_], grown: NDArray[np.float64], width: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Makes gaps of the stolen time alone where the other states are the time that passed without it, and
        returns where. Some hypervisors count it wrongly all the time, and the rest is right."""
        stolen = self._index.get(("cpu", "steal"), {}).get(name)
        others = [self._index.get(("cpu", state), {}).get(name) for state in CPU_STATES if state != "steal"]
        if stolen is None or not is_jump.any():
            return np.zeros_like(is_jump)
        part = self._part(stolen)
        each = np.array([grown[self._part(number)] for number in others if number is not None])
        if not len(each):
            return np.zeros_like(is_jump)
        count = max(len({*self._index["cpu", "steal"]} - {"all"}), 1) if name == "all" else 1
        passed = TICKS_S * width[part] * count
        total = each.sum(axis=0)
        is_right = (np.abs(each) <= CPU_SLACK * passed + CPU_SLACK_TICKS).all(axis=0)
        is_right &= (total <= CPU_SLACK * passed + CPU_SLACK_TICKS) & (total >= ALL_BUT_STEAL * passed)
        is_wrong: NDArray[np.bool_] = is_jump & is_right & (width[part] > 0)
        if is_wrong.any():
            self.wrong_steal[name] = int(is_wrong.sum())
            grown[part][is_wrong] = width[part][is_wrong] = 0.0
        return is_wrong

    def _part(self, number: int) -> slice:
        """Where a counter's values are."""
        return slice(int(self._starts[number]), int(self._ends[number]))

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

    def without(self, samplers: Collection[str], why: str) -> Window:
        """The same window without some samplers; ``why`` is their error."""
        kept = copy(self)
        kept._index = {key: labels for key, labels in self._index.items() if key[0] not in samplers}
        kept._samplers = self._samplers - frozenset(samplers)
        kept.errors = {**self.errors, **dict.fromkeys(samplers, why)}
        return kept

    def since(self, time_s: float) -> Window:
        """The window from a time on, in seconds since 1970."""
        found = self.samples
        is_in = found.t_ns >= round(time_s * 1e9)
        counts = np.add.reduceat(is_in.astype(np.int64), found.starts)
        names = [name for name, count in zip(found.names, counts.tolist(), strict=True) if count]
        counts = counts[counts > 0]
        starts = (np.cumsum(counts) - counts).astype(np.int64)
        part = Window(Samples(names, starts, found.t_ns[is_in], found.value[is_in]), self.errors)
        part.server_pid, part.only_server = self.server_pid, self.only_server
        return part

    def without_host(self, why: str) -> Window:
        """The same window, of the server's own samplers only; ``why`` is what whoever asks for others gets."""
        kept = copy(self)
        kept.only_server = why
        kept._samplers = self._samplers & frozenset(SERVER_SAMPLERS)
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
        part = self._part(number)
        width = self._width[part]
        keep = width > 0
        grown = np.maximum(self._grown[part][keep], 0.0)
        return Series(self._t[part][keep] - self.start_s, grown / width[keep])

    def times(self, sampler: str, metric: str, label: str = "") -> NDArray[np.float64]:
        """When each of ``values`` was sampled, in seconds since 1970."""
        number = self._of(sampler, metric).get(label)
        return self._t[self._part(number)] if number is not None else np.empty(0)

    def values(self, sampler: str, metric: str, label: str = "") -> NDArray[np.float64]:
        """A gauge's values, one per sample; empty if there are none."""
        number = self._of(sampler, metric).get(label)
        if number is None:
            return np.empty(0)
        return np.asarray(self._value[self._starts[number] : self._ends[number]], dtype=np.float64)

    def _of(self, sampler: str, metric: str) -> Mapping[str, int]:
        if self.only_server and sampler not in SERVER_SAMPLERS:
            raise HostUnknown(self.only_server)
        return self._index.get((sampler, metric), _NONE)


def possible(samples: Samples) -> Samples:
    """Without values that are counts below 0 printed as unsigned numbers: nobody knows what they were."""
    value = samples.value
    is_wrong = value >= BELOW_0_OF_64
    for number, (sampler, metric, _) in enumerate(samples.names):
        part = slice(samples.starts[number], samples.ends[number])
        if (sampler, metric) in COUNTS:
            is_wrong[part] |= value[part] >= BELOW_0_OF_32
        elif sampler in ("cpu", "replication"):
            is_wrong[part] = False  # what its times grow by tells, and the rules about lag
    if not is_wrong.any():
        return samples
    counts = np.add.reduceat((~is_wrong).astype(np.int64), samples.starts)
    names = [name for name, count in zip(samples.names, counts.tolist(), strict=True) if count]
    counts = counts[counts > 0]
    starts = (np.cumsum(counts) - counts).astype(np.int64)
    return Samples(names, starts, samples.t_ns[~is_wrong], value[~is_wrong])


def _grown(
    before: NDArray[np.float64], value: NDArray[np.float64], may_reset: NDArray[np.bool_] | np.bool_
) -> NDArray[np.float64]:
    """By how much counters grew between samples: from 0 if they were reset, and below 0 if they stepped back."""
    is_reset = may_reset & (value < RESET_SHARE * before)
    return np.where(is_reset, value, value - before)
