"""What databases will do together on one host, from what each did alone there. docs: explanation/sizing.md.

Use adds up above what the idle host uses. On a busier host a statement costs more CPU time and takes longer, so
each database is also played alone so fast that the host is as busy as with all of them, and what it shows there
counts. If all want more CPU than there is, that decides how much is served. Where it was not played so, statements
cost what they cost alone, and waiting follows a queue with as many servers as the host has cores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType

from headrace.base.intervals import Interval, arithmetic, t_quantile
from headrace.capacity.capacity import waiting
from headrace.capacity.model import Resource

#: Rates that add up.
ADDING = (
    Resource.CPU,
    Resource.SOFTIRQ,
    Resource.PACKETS,
    Resource.READS,
    Resource.WRITES,
    Resource.READ_BYTES,
    Resource.WRITE_BYTES,
    Resource.LOG_BYTES,
)
#: Below so much nobody plans with it: cores, and per second.
LEAST = {
    Resource.CPU: 0.02, Resource.SOFTIRQ: 0.02, Resource.PACKETS: 50.0, Resource.READS: 5.0, Resource.WRITES: 5.0,
    Resource.READ_BYTES: 1e5, Resource.WRITE_BYTES: 1e5, Resource.LOG_BYTES: 1e4,
}  # fmt: skip
P99, THROUGHPUT = "p99", "throughput"
HOST = ""
#: The model's own error, as a log, that a 95% interval allows for until there are enough outcomes: of use and
#: throughput, and of response times.
USE_ERROR, TIME_ERROR = 0.2, 0.6
#: What fits is served as it comes, but for the ends of a window.
OFFERED_ERROR = 0.02
#: So many outcomes tell more than that.
ENOUGH = 10
#: Above this the queue has no length that could be predicted.
FULL = 0.97
#: How much of the queue's wait really comes, as for assumed knees: half to twice.
SLACK = (0.5, 2.0)


@dataclass(frozen=True)
class Alone:
    """One block: ``idle`` is the host's use without any, the others with each database alone. ``p99_s`` lacks one
    with too few statements.
    """

    idle: Mapping[str, float]
    used: Mapping[str, Mapping[str, float]]
    p99_s: Mapping[str, float]
    per_s: Mapping[str, float]


@dataclass(frozen=True)
class Busy:
    """One database alone on a host that it keeps as busy as all of them will: ``cpu_s`` is what a statement costs
    there, ``share`` what is used of all CPUs, and ``p99_s`` is None with too few statements.
    """

    cpu_s: float
    share: float
    p99_s: float | None = None


@dataclass(frozen=True)
class Prediction:
    """``what``: a database, or HOST. ``quantity``: a Resource, P99 (s) or THROUGHPUT (statements/s). An end that
    is None is open. ``naive``: the plain sum, or for a database what it did alone.
    """

    what: str
    quantity: str
    interval: Interval
    naive: float

    @property
    def is_interval(self) -> bool:
        """Not only a lower bound, which nearly always holds."""
        return math.isfinite(self.interval.estimate)


@dataclass(frozen=True)
class Allowances:
    """The error of the model by quantity, from outcomes: log(measured / predicted)."""

    errors: Mapping[str, Sequence[float]]

    def of(self, quantity: str) -> float:
        """Half the width of a 95% interval, as a log."""
        errors = self.errors.get(quantity, ())
        if len(errors) < ENOUGH:
            return TIME_ERROR if quantity == P99 else USE_ERROR
        spread = math.sqrt(math.fsum(error**2 for error in errors) / len(errors))
        return t_quantile(len(errors), 0.05) * spread


def foresee(
    blocks: Sequence[Alone],
    copies: int,
    cores: float,
    allowances: Allowances = Allowances({}),
    busy: Mapping[str, Busy] = MappingProxyType({}),
) -> list[Prediction]:
    """The predictions for all databases at once, ``copies`` of the sessions of each."""
    wanted = [_wanted(block, copies, cores, busy) for block in blocks]
    # If either is more than the CPUs, the queue grows, and p99 has no estimate.
    cpu = [max(summed(block, Resource.CPU, copies), each) for block, each in zip(blocks, wanted, strict=True)]
    found = []
    for resource in ADDING:
        if not all(resource in used for block in blocks for used in (block.idle, *block.used.values())):
            continue
        sums = wanted if resource is Resource.CPU else [summed(block, resource, copies) for block in blocks]
        naive = fmean(
            [copies * math.fsum(used[resource] for used in block.used.values()) for block in blocks]
        )
        if max(fmean(sums), naive) < LEAST[resource]:
            continue
        most = cores if resource is Resource.CPU else math.inf
        found.append(Prediction(HOST, resource, _within(sums, allowances.of(resource), most), naive))
    # What does not fit is served later, or never.
    served = [min(1.0, FULL * cores / each) for each in wanted]
    for name in blocks[0].per_s:
        per_s = [copies * block.per_s[name] * share for block, share in zip(blocks, served, strict=True)]
        naive = copies * fmean([block.per_s[name] for block in blocks])
        offered = max(copies * block.per_s[name] for block in blocks)
        allowance = allowances.of(THROUGHPUT) if max(cpu) > FULL * cores else OFFERED_ERROR
        interval = _within(per_s, allowance, (1 + OFFERED_ERROR) * offered)
        found.append(Prediction(name, THROUGHPUT, interval, naive))
        if all(name in block.p99_s for block in blocks):
            found.append(_response(name, blocks, cpu, cores, allowances.of(P99), busy.get(name)))
    return found


def summed(block: Alone, resource: Resource, copies: int) -> float:
    idle = block.idle[resource]
    return idle + copies * math.fsum(max(used[resource] - idle, 0.0) for used in block.used.values())


def _wanted(block: Alone, copies: int, cores: float, busy: Mapping[str, Busy]) -> float:
    """The cores that all of them want. If they fill the host, they cost what they cost on a full host, and keep it
    full. If not, only a higher cost counts: a faster play makes calls cheaper just because they arrive faster.
    """
    idle = block.idle[Resource.CPU]
    is_full = summed(block, Resource.CPU, copies) > FULL * cores
    total = idle
    for name, used in block.used.items():
        own = max(used[Resource.CPU] - idle, 0.0)
        there = busy.get(name)
        if there and there.share > used[Resource.CPU] / cores:
            busier = block.per_s[name] * there.cpu_s
            own = busier if is_full else max(own, busier)
        total += copies * own
    return max(total, FULL * cores) if is_full else total


def _response(
    name: str,
    blocks: Sequence[Alone],
    cpu: Sequence[float],
    cores: float,
    allowance: float,
    there: Busy | None,
) -> Prediction:
    def at(slack: float) -> Interval | None:
        found = []
        for block, together in zip(blocks, cpu, strict=True):
            share, p99_s = block.used[name][Resource.CPU] / cores, block.p99_s[name]
            if there and there.p99_s is not None and share < there.share <= FULL:
                share, p99_s = there.share, there.p99_s
            if together / cores > FULL or share > FULL:
                return None
            grows = (1 + slack * waiting(together / cores, cores)) / (1 + slack * waiting(share, cores))
            found.append(max(p99_s * grows, block.p99_s[name]))
        return _within(found, allowance)

    naive = fmean([block.p99_s[name] for block in blocks])
    middle, low, high = at(1.0), at(SLACK[0]), at(SLACK[1])
    if middle is None or low is None or high is None:
        # It grows as long as it lasts.
        least = fmean([block.p99_s[name] for block in blocks])
        return Prediction(name, P99, Interval(math.inf, least, None), naive)
    ends = [each for one in (middle, low, high) for each in (one.low, one.high) if each is not None]
    return Prediction(name, P99, Interval(middle.estimate, min(ends), max(ends)), naive)


def _within(values: Sequence[float], allowance: float, most: float = math.inf) -> Interval:
    """The mean with its 95% interval: t over blocks, and the model's own error."""
    estimate = fmean(values)
    if estimate <= 0:
        return Interval(0.0, 0.0, 0.0)
    spread = 0.0
    if (high := arithmetic(values).high) is not None:
        spread = high / estimate - 1
    width = math.hypot(spread, allowance)
    ends = (min(estimate * math.exp(sign * width), most) for sign in (-1, 1))
    return Interval(min(estimate, most), *ends)


def is_inside(interval: Interval, measured: float) -> bool:
    low, high = interval.low, interval.high
    return (low is None or low <= measured) and (high is None or measured <= high)
