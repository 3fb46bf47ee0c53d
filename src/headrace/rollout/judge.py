"""Judges a stage of a rollout: by pairs of blocks on the same host, one with the change and one without, or by
another source of ``Evidence`` (``paired``: pairs of hosts).

Two questions are stated in advance. Harm is looked at after each pair: a confidence sequence, whose intervals hold
jointly at all times, so looking again and again costs nothing. Promotion is looked at only after the registered
numbers of pairs: non-inferiority within a margin, at levels that all looks spend together (``looks``).

The unit here is the pair of blocks: the log ratio of two neighbouring blocks whose order was drawn by lot.
Neighbours share what drifts (the hour, a slow trend), and the lot makes what is left symmetric about 0, however
correlated the seconds within a block are. No pooled seconds are accepted.

Sources: Lai 1976, On confidence sequences, Annals of Statistics 4, and Wang & Ramdas 2025, Anytime-valid t-tests
and confidence sequences for Gaussian means with unknown variance, Sequential Analysis 44 (a normal mixture over
effects in units of the spread); Jennison & Turnbull 2000, Group Sequential Methods (looks).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from typing import Protocol

import numpy as np

from headrace.base.intervals import TOO_WIDE, USELESS
from headrace.base.looks import FIRST, nominal_level
from headrace.base.watched import Watched

#: What is judged: server time per query decides a promotion, both may show harm.
TIME, THROUGHPUT = "time per query", "throughput"
METRICS = (TIME, THROUGHPUT)
#: Pairs after which the mixture expects an effect as large as the spread. 1 finds large harm earliest.
WEIGHT = 1.0
#: A stage ends inconclusive after this many times the pairs of its last look if they lack data.
MOST_WITHOUT_DATA = 2
#: Two blocks are never equal to the last digit: below this the counters are too coarse, not the server exact.
LEAST_SPREAD = 1e-3
#: A larger ratio is no percentage that anybody can read.
MANY_TIMES = 10.0


class Outcome(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    CONTINUE = "continue"


@dataclass(frozen=True)
class Block:
    """One block's server time per query (s), or another response, and queries per second; None where it could not
    be measured. ``watched``: what else the change must not cost, by name.
    """

    time_s: float | None
    per_s: float | None
    watched: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Pair:
    """Two neighbouring blocks of one host, in an order drawn by lot."""

    host: str
    on: Block
    off: Block

    @cached_property
    def costs(self) -> Mapping[str, float | None]:
        """Metric -> log of how much worse the block with the change was, and of what is watched the difference, in
        its unit; None without both values.

        Each look asks for all of them again.
        """
        logs = {TIME: _log(self.on.time_s, self.off.time_s), THROUGHPUT: _log(self.off.per_s, self.on.per_s)}
        off = self.off.watched
        return {**logs, **{name: _less(own, off.get(name)) for name, own in self.on.watched.items()}}


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _log(worse: float | None, better: float | None) -> float | None:
    if worse is None or better is None or not (worse > 0 and better > 0):
        return None
    cost = math.log(worse) - math.log(better)
    return cost if math.isfinite(cost) else None


@dataclass(frozen=True)
class Evidence:
    """A mean log cost of the change, more is worse. ``count`` units make it; its variance is ``spread`` squared
    over ``information``, known to so many ``degrees`` of freedom.
    """

    count: int
    estimate: float = 0.0
    spread: float = 0.0
    information: float = 0.0
    degrees: float = 0.0

    @classmethod
    def of(cls, costs: Sequence[float]) -> Evidence:
        """Of independent costs."""
        count = len(costs)
        if count < FIRST:
            return cls(count, math.fsum(costs) / max(count, 1))
        values = np.asarray(costs, dtype=float)
        spread = max(float(values.std(ddof=1)), LEAST_SPREAD)
        return cls(count, float(values.mean()), spread, count, count - 1.0)


class Trial(Protocol):
    """What was measured, in its order. ``unit`` is the plural of what is counted."""

    @property
    def unit(self) -> str: ...

    @property
    def tried(self) -> int:
        """Units, also those without data."""
        ...

    def evidence(self, metric: str, host: str = "", first: int | None = None) -> Evidence:
        """Of all hosts or one, by the first so many units with data."""
        ...


@dataclass(frozen=True)
class Switchback:
    pairs: Sequence[Pair]
    unit: str = "pairs"

    @property
    def tried(self) -> int:
        return len(self.pairs)

    def evidence(self, metric: str, host: str = "", first: int | None = None) -> Evidence:
        found = (pair.costs.get(metric) for pair in self.pairs if not host or pair.host == host)
        return Evidence.of([cost for cost in found if cost is not None][:first])


@dataclass(frozen=True)
class Question:
    """``looks``: numbers of usable pairs at which promotion is looked at, ascending; the last ends the stage.

    ``margin``: the share by which time per query may rise for the change still to count as no worse. ``harm``: the
    share beyond which a proven worsening rolls back. ``harm_alpha`` is this stage's share of false rollbacks.
    ``response``: what ``TIME`` is, for people. ``watched``: what must stay within its limit for a promotion, and
    what rolls back if it is proven not to.
    """

    looks: tuple[int, ...]
    alpha: float = 0.05
    harm_alpha: float = 0.05
    margin: float = 0.05
    harm: float = 0.0
    response: str = TIME
    watched: tuple[Watched, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        return (*METRICS, *(each.name for each in self.watched))

    def named(self, metric: str) -> str:
        return self.response if metric == TIME else metric

    def __post_init__(self) -> None:
        if not self.looks or self.looks[0] < FIRST or list(self.looks) != sorted(set(self.looks)):
            raise ValueError(f"looks must ascend from {FIRST} pairs: {self.looks}")


@dataclass(frozen=True)
class Bound:
    """Log cost of a change, more is worse; infinite where too few pairs can bound it."""

    pairs: int
    estimate: float
    low: float
    high: float

    def ratio(self, metric: str) -> tuple[float, float, float]:
        """With the change relative to without: estimate, low, high of the metric itself."""
        values = [_ratio(each) for each in (self.estimate, self.low, self.high)]
        if metric != THROUGHPUT:
            return values[0], values[1], values[2]
        inverse = [1 / each if each else math.inf for each in values]
        return inverse[0], inverse[2], inverse[1]


@dataclass(frozen=True)
class Judgement:
    """``is_win``: a pass that also proves the change better. ``bounds``: metric -> its interval at the last look,
    or of the confidence sequence before the first. ``reason`` has the numbers.
    """

    outcome: Outcome
    reason: str
    pairs: int
    is_win: bool = False
    bounds: Mapping[str, Bound] | None = None


def sequence(evidence: Evidence, alpha: float, weight: float = WEIGHT) -> Bound:
    """The confidence sequence at this time: all of them together cover the mean with probability 1 - alpha.

    Exact for normal units of unknown spread. Infinite until there are enough of them for any bound.
    """
    count, estimate, degrees = evidence.count, evidence.estimate, evidence.degrees
    if degrees <= 0:
        return Bound(count, estimate, -math.inf, math.inf)
    grown = 1 + evidence.information / weight
    limit = (math.sqrt(grown) / alpha) ** (2 / (degrees + 1))
    if limit >= grown:
        return Bound(count, estimate, -math.inf, math.inf)
    radius = evidence.spread * math.sqrt(degrees * (limit - 1) / (1 - limit / grown) / evidence.information)
    return Bound(count, estimate, estimate - radius, estimate + radius)


def look(evidence: Evidence, question: Question) -> Bound:
    """The one-sided interval of an interim look, both ways, at the level that this look may spend."""
    from scipy.special import stdtrit

    count, estimate, degrees = evidence.count, evidence.estimate, evidence.degrees
    if degrees <= 0:
        return Bound(count, estimate, -math.inf, math.inf)
    level = nominal_level(question.alpha, count, first=question.looks[0])
    radius = float(stdtrit(degrees, 1 - level)) * evidence.spread / math.sqrt(evidence.information)
    return Bound(count, estimate, estimate - radius, estimate + radius)


class _Remembered:
    """A trial that computes each piece of evidence once; it must not change meanwhile."""

    def __init__(self, trial: Trial) -> None:
        self.unit, self.tried = trial.unit, trial.tried
        self._known = cache(trial.evidence)

    def evidence(self, metric: str, host: str = "", first: int | None = None) -> Evidence:
        return self._known(metric, host, first)


def judge(question: Question, trial: Trial, hosts: Sequence[str]) -> Judgement:
    """What the trial says so far. ``hosts``: all that are tried in the stage, also those without data."""
    trial = _Remembered(trial)
    harmed = _harm(question, trial, hosts)
    if harmed:
        return harmed
    unit, count = trial.unit, trial.evidence(TIME).count
    is_out_of_tries = trial.tried >= MOST_WITHOUT_DATA * question.looks[-1] and count < question.looks[-1]
    # At this rate the first look would come after four times its pairs, or never.
    is_hopeless = trial.tried >= 4 * question.looks[0] and count < question.looks[0]
    if is_out_of_tries or is_hopeless:
        reason = f"only {count} of {trial.tried} {unit} had data: too few queries, or they cannot be measured"
        return Judgement(Outcome.INCONCLUSIVE, reason, count)
    done = [each for each in question.looks if each <= count]
    if not done:
        names = question.metrics
        so_far = {metric: sequence(trial.evidence(metric), question.harm_alpha) for metric in names}
        reason = f"{count} of {question.looks[0]} {unit} until the first look"
        return Judgement(Outcome.CONTINUE, reason, count, bounds=so_far)
    looked = look(trial.evidence(TIME, first=done[-1]), question)
    bounds = {TIME: looked}
    through = trial.evidence(THROUGHPUT)
    if through.degrees > 0:
        bounds[THROUGHPUT] = sequence(through, question.harm_alpha)
    # A later look must not take back what an earlier one has decided.
    for each in done:
        earlier = look(trial.evidence(TIME, first=each), question)
        if earlier.high < math.log1p(question.margin) and not _unproven(question, trial, each):
            is_win = earlier.high < 0
            words = "lower" if is_win else f"no more than {question.margin:.0%} higher"
            reason = f"{question.response} is {words}: {shown(earlier, TIME)}, {each} {unit}"
            return Judgement(Outcome.PASS, reason, count, is_win, {**bounds, TIME: earlier})
    unproven = _unproven(question, trial, done[-1])
    left = f"; not proven within its limit: {', '.join(unproven)}" if unproven else ""
    if count >= question.looks[-1]:
        reason = (
            f"after {count} {unit} it is neither proven harmful nor within {question.margin:.0%}: "
            f"{shown(looked, TIME)}{left}"
        )
        if looked.high < math.log1p(question.margin):
            reason = f"after {count} {unit} {question.response} is {shown(looked, TIME)}{left}"
        return Judgement(Outcome.INCONCLUSIVE, reason, count, bounds=bounds)
    following = next(each for each in question.looks if each > count)
    reason = (
        f"undecided after {done[-1]} {unit} ({shown(looked, TIME)}{left}); the next look is at {following}"
    )
    return Judgement(Outcome.CONTINUE, reason, count, bounds=bounds)


def _harm(question: Question, trial: Trial, hosts: Sequence[str]) -> Judgement | None:
    """Half of the alpha is for all hosts together, half for each by itself: one may suffer alone."""
    limits = dict.fromkeys(METRICS, math.log1p(question.harm))
    limits |= {each.name: each.limit for each in question.watched}
    units = {each.name: each for each in question.watched}
    families = [("", question.harm_alpha / 2 if len(hosts) > 1 else question.harm_alpha)]
    if len(hosts) > 1:
        families += [(host, question.harm_alpha / 2 / len(hosts)) for host in hosts]
    for host, alpha in families:
        for metric, limit in limits.items():
            bound = sequence(trial.evidence(metric, host), alpha / len(limits))
            if bound.low > limit:
                where = f" on {host}" if host else ""
                words = differs(bound, units[metric]) if metric in units else shown(bound, metric)
                reason = f"{question.named(metric)} is worse{where}: {words}, {bound.pairs} {trial.unit}"
                return Judgement(Outcome.FAIL, reason, trial.tried, bounds={metric: bound})
    return None


def _unproven(question: Question, trial: Trial, first: int) -> list[str]:
    """What is watched and is not within its limit, by as many units as the response has. Too few is no proof."""
    found = {each.name: (trial.evidence(each.name, first=first), each.limit) for each in question.watched}
    return [
        name
        for name, (evidence, limit) in found.items()
        # Of two equal rates rounding may make a difference.
        if evidence.count < first or look(evidence, question).high > limit + LEAST_SPREAD
    ]


def differs(bound: Bound, watched: Watched) -> str:
    """``-3.1 points (-3.4 to -2.8)``."""
    ends = sorted(watched.worse * each for each in (bound.low, bound.high))
    return f"{watched.worse * bound.estimate:+.3g} {watched.unit} ({ends[0]:+.3g} to {ends[1]:+.3g})"


def shown(bound: Bound, metric: str) -> str:
    """``+18% (+12% to +24%)``."""
    estimate, low, high = bound.ratio(metric)
    if not math.isfinite(bound.low) or not math.isfinite(bound.high):
        return f"{more(estimate)} (too few for an interval)"
    if bound.high - bound.low > math.log(USELESS):
        return f"{more(estimate)} (interval {TOO_WIDE})"
    return f"{more(estimate)} ({more(low)} to {more(high)})"


def more(ratio: float) -> str:
    """``+18.0%``, or ``12 times``."""
    return f"{ratio - 1:+.1%}" if ratio < MANY_TIMES else f"{ratio:,.0f} times"


def _ratio(log: float) -> float:
    return math.exp(max(min(log, 700.0), -700.0)) if math.isfinite(log) else (math.inf if log > 0 else 0.0)
