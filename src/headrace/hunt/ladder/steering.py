"""How far RPS moves the limit of a full core: predicted from what was measured without RPS, then measured.

Without RPS the full core spends a share f of its time on receiving (softirq) and the rest on what cannot be moved:
the programs, sending, and on a real host the driver. If it answers r packets per second, (1 - f) / r of each
packet's time stays and f / r moves, spread evenly over the CPUs of the mask. Whichever side is full is the limit.

Assumed: moved work takes as long on the other core, cores do not slow each other down (two threads of one core
do), and packets are spread evenly (few flows are not). What moving itself costs is between two bounds, and they
are the interval: nothing, and one interrupt per packet, there and back, for each of the two cores.

The estimate is between them. While an interrupt is on its way, or the other core is still receiving, further
packets need none: of x packets per second to a core, a share (1 - x moves) / (1 + x way) needs one. Half of the
time there and back is taken as the way, and half as what sending it costs the first core.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.base.intervals import Interval, geometric, mean, scaled, t_quantile, variance
from headrace.hunt.ladder.packets import Core, Size, Step

#: A core that is busy for this share of a step is full.
FULL = 0.9
#: Less of it for the two ends, and something else filled it.
OURS = 0.85
#: Beyond this, something else uses a core that is to receive.
BESIDE = 0.25


@dataclass(frozen=True)
class Use:
    """A core while requests followed replies without a limit, without RPS and with it; means over rounds."""

    name: str
    softirq: float
    busy: float
    steered_softirq: float
    steered_busy: float


@dataclass(frozen=True)
class Steered:
    """One size, one mask. Without ``predicted``, ``why_not`` says why; without an interrupt it has no low end."""

    rps: str
    size: Size
    #: The core that received without RPS, and the share of its time that it spent on it.
    core: str
    softirq: float
    #: An interrupt of the other core, there and back; None if it could not be measured.
    interrupt_ns: float | None
    #: Packets per second.
    without: Interval
    predicted: Interval | None
    measured: Interval
    why_not: str
    cores: tuple[Use, ...]
    #: Cores that were to receive, but were not idle before.
    beside: tuple[str, ...] = ()

    @property
    def is_inside(self) -> bool | None:
        """Whether the prediction held; None without one."""
        if self.predicted is None:
            return None
        low, high = self.predicted.low, self.predicted.high
        return (low or 0.0) <= self.measured.estimate <= (math.inf if high is None else high)


@dataclass(frozen=True)
class Work:
    """Seconds of a packet on the full core, and of an interrupt."""

    stays_s: float
    moves_s: float
    interrupt_s: float


def limit_s(work: Work, others: int, keeps: bool, interrupts: float | None = None) -> float:
    """Packets per second with receiving spread over ``others`` cores, and the full one if it ``keeps`` its part.

    ``interrupts``: how many a steered packet needs, 0 to 1; None for as many as the model says.
    """
    if others == 0:
        return 1 / (work.stays_s + work.moves_s)
    share = 1 / (others + keeps)
    own_s, there_s = work.stays_s + work.moves_s * share * keeps, work.moves_s * share
    steered = others * share
    if interrupts is not None:
        cost_s = interrupts * work.interrupt_s
        return 1 / max(own_s + steered * cost_s, there_s + share * cost_s)
    # x (own + sent (1 - x there) / (1 + x way)) = 1: the lower root, where a rising load first fills the core.
    # Without one, or beyond 1 / there, the others are full first.
    sent_s, way_s = steered * work.interrupt_s / 2, share * work.interrupt_s / 2
    linear, square = own_s + sent_s - way_s, own_s * way_s - sent_s * there_s
    root = linear**2 + 4 * square
    reached = (linear + math.sqrt(root)) / 2 if root >= 0 else 0.0
    return 1 / max(reached, there_s)


def cpus_of(mask: str) -> frozenset[int]:
    """CPUs of a mask as the kernel writes it: hexadecimal, in groups of 32 bits. ``2,00000002`` -> 1 and 33."""
    bits = 0
    for group in mask.split(","):
        bits = bits << 32 | int(group or "0", 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def steered(steps: Sequence[Step], alpha: float = 0.05) -> list[Steered]:
    """Each mask and size that was also measured without RPS in the same rounds."""
    most = {(s.rps, s.size, s.round): s for s in steps if s.share is None and s.answered_s > 0}
    found = []
    for rps, size in dict.fromkeys((s.rps, s.size) for s in steps if s.rps):
        rounds = [n for (r, z, n) in most if (r, z) == (rps, size) and ("", size, n) in most]
        if rounds:
            pairs = {n: (most["", size, n], most[rps, size, n]) for n in rounds}
            found.append(_one(rps, size, pairs, alpha))
    return found


def _one(rps: str, size: Size, pairs: Mapping[int, tuple[Step, Step]], alpha: float) -> Steered:
    plain = {n: step for n, (step, _) in pairs.items()}
    uses = _uses(pairs.values())
    full = max(uses, key=lambda use: use.softirq, default=None)
    without, measured = (
        geometric({n: math.log(2 * both[i].answered_s) for n, both in pairs.items()}, alpha) for i in (0, 1)
    )
    known = [step.interrupt_ns for step in plain.values() if step.interrupt_ns]
    interrupt_ns = math.exp(math.fsum(map(math.log, known)) / len(known)) if known else None
    if full is None:
        return Steered(rps, size, "", 0.0, interrupt_ns, without, None, measured, "no core was counted", ())
    mask = {f"cpu{cpu}" for cpu in cpus_of(rps)} & {use.name for use in uses}
    beside = tuple(use.name for use in uses if use.name in mask - {full.name} and use.busy > BESIDE)
    why_not = _why_not(full, list(plain.values()))
    predicted = None
    if not why_not:
        works = {n: _work(step, full.name, interrupt_ns) for n, step in plain.items()}
        predicted = _predicted(
            works, len(mask - {full.name}), full.name in mask, interrupt_ns is not None, alpha
        )
    return Steered(
        rps, size, full.name, full.softirq / full.busy if full.busy else 0.0,
        interrupt_ns, without, predicted, measured, why_not, uses, beside,
    )  # fmt: skip


def _work(step: Step, name: str, interrupt_ns: float | None) -> Work:
    core = next(core for core in step.cores if core.name == name)
    share, packet_s = core.softirq / core.busy if core.busy else 0.0, 1 / (2 * step.answered_s)
    return Work((1 - share) * packet_s, share * packet_s, (interrupt_ns or 0.0) / 1e9)


def _predicted(
    works: Mapping[int, Work], others: int, keeps: bool, is_bounded: bool, alpha: float
) -> Interval:
    """For the mean of as many rounds to come: the spread between rounds counts twice."""
    least, middle, most = (
        {n: math.log(limit_s(work, others, keeps, interrupts)) for n, work in works.items()}
        for interrupts in (1.0, None, 0.0)
    )
    estimate, rounds = math.exp(mean(middle)), len(works)
    if rounds < 2:
        return Interval(estimate, None, None)
    low, high = (
        scaled(
            math.exp(mean(logs)),
            sign * t_quantile(rounds - 1, alpha) * math.sqrt(2 * variance(logs) / rounds),
        )
        for logs, sign in ((least, -1), (most, 1))
    )
    return Interval(estimate, low if is_bounded else None, high)


def _why_not(full: Use, steps: Sequence[Step]) -> str:
    if full.busy < FULL:
        return f"no core was full without RPS: {full.name} was busy for {full.busy:.0%}"
    ours = ours_of(steps)
    if ours < OURS:
        return f"{full.name} was full of other work: both ends used {ours:.0%} of it"
    return "" if full.softirq > 0 else f"{full.name} received nothing: the kernel counts no softirq"


def ours_of(steps: Sequence[Step]) -> float:
    """The mean share of their core that both ends used, with its softirq; 1 if the agent did not count it."""
    own = [step.own for step in steps if step.own is not None]
    # Where the kernel accounts interrupts exactly, the CPU time of a process is without the softirq in it. With
    # the softirq in it, both together exceed the core.
    ours = math.fsum(own) / len(own) if own else 1.0
    softirq = math.fsum(max((core.softirq for core in s.cores), default=0.0) for s in steps) / max(
        len(steps), 1
    )
    if ours + softirq <= 1.02:
        ours += softirq
    return ours


def _uses(pairs: Iterable[tuple[Step, Step]]) -> tuple[Use, ...]:
    """Cores that did something, in both."""
    sides: list[dict[str, list[Core]]] = [{}, {}]
    for both in pairs:
        for side, step in zip(sides, both, strict=True):
            for core in step.cores:
                side.setdefault(core.name, []).append(core)

    def of(cores: Sequence[Core]) -> tuple[float, float]:
        return sum(c.softirq for c in cores) / len(cores), sum(c.busy for c in cores) / len(cores)

    return tuple(Use(name, *of(sides[0][name]), *of(sides[1][name])) for name in sides[0] if name in sides[1])
