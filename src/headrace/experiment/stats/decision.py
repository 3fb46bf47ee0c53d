"""Which configuration to choose, and what that may cost: the best for each objective, those not beaten in
throughput and latency together, and the one that loses least in its worst condition. The best is not simply the
first in rank: it includes all that are indistinguishable from it. Of ``K`` configurations one is truly the best;
with probability 1 - alpha none of its ``K - 1`` differences to the others is off by more than its half-width at
alpha / (K - 1). Then it is among the unbeaten ones, and none loses more to it than the upper bounds. So the
adjustment is for ``K - 1`` comparisons, although the same data determine the leader. A loss is expressed as the
share that is kept: 0.96 of the best throughput, or a latency of which the best is 0.96.

Sources: Hsu 1984, Constrained simultaneous confidence intervals for multiple comparisons with the best, Annals of
Statistics 12 (with Gupta 1965, Technometrics 7, for the set that holds the best); Savage 1951, The theory of
statistical decision, JASA 46 (minimax regret); Smyth 2004, Stat. Appl. Genet. Mol. Biol. 3 (moderated variances).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from headrace.base import intervals
from headrace.base.intervals import Interval, Needed
from headrace.base.model import Treatment
from headrace.experiment.stats import observed
from headrace.experiment.stats.additive import PRIOR
from headrace.experiment.stats.estimate import Seen, fit_one
from headrace.experiment.stats.trials import THROUGHPUT, TrialResponse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: With more values of configurations in blocks than this, each pair is compared by its own differences.
MOST_FITTED = 1000

#: The latency weighed against throughput.
TAIL = "p99"

_NS_PER_MS = 1e6


class Certainty(StrEnum):
    """The certainty of a choice. ``WITHIN``: others may be better, but only within the margin."""

    SURE = "sure"
    WITHIN = "within the margin"
    NOT_ENOUGH_DATA = "not enough data"


@dataclass(frozen=True)
class Question:
    """One response in one condition.

    ``logs`` maps each configuration to its natural logs by block; ``is_paired`` is False if these are only
    repeats. ``trials`` are behind them, if there are several to a block, or some were disturbed. ``resolution``:
    the precision of the measurement, in log units. ``left_out`` lack data: they have no value in some trial (using
    the other trials would be optimistic), or only one block when others have several.
    """

    response: str
    condition: str
    is_higher_better: bool
    logs: Mapping[str, Mapping[int, float]]
    is_paired: bool = True
    resolution: Mapping[str, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    trials: Sequence[Seen] = ()

    @property
    def name(self) -> str:
        return f"{self.response} @ {self.condition}" if self.condition else self.response


@dataclass(frozen=True)
class Candidate:
    """``mean`` is geometric, in the response's unit.

    ``kept``: the share of the best's response (1 for the best) with its simultaneous interval, None if no block
    has both. ``may_be_best`` is None without intervals.
    """

    name: str
    mean: float
    kept: Interval | None
    may_be_best: bool | None


@dataclass(frozen=True)
class Best:
    """The answer to one question.

    ``candidates`` by rank, the leader first. ``blocks_needed`` would settle an open one: see
    ``intervals.blocks_needed``.
    """

    question: Question
    candidates: tuple[Candidate, ...]
    certainty: Certainty
    blocks: int
    blocks_needed: Needed | None = None

    @property
    def leader(self) -> Candidate:
        return self.candidates[0]

    @property
    def rivals(self) -> tuple[str, ...]:
        """The others that may be the best."""
        return tuple(c.name for c in self.candidates[1:] if c.may_be_best)


@dataclass(frozen=True)
class Front:
    """Two objectives at once.

    ``points`` are the geometric means of what was measured in both; ``members`` are those not beaten in both, in
    the order of the first. ``beaten`` are those that another one beats in both with confidence (None without
    intervals): a true member of the front is among them with probability at most alpha.
    """

    condition: str
    responses: tuple[str, str]
    is_higher_better: tuple[bool, bool]
    points: Mapping[str, tuple[float, float]]
    members: tuple[str, ...]
    beaten: tuple[str, ...] | None


@dataclass(frozen=True)
class Everywhere:
    """A configuration over several questions.

    ``worst`` is the smallest share of the best that it keeps, at ``where``; ``mean`` the geometric mean of what it
    keeps; ``kept`` each, by the question's name.
    """

    name: str
    worst: Interval
    where: str
    mean: float
    kept: Mapping[str, Interval]


@dataclass(frozen=True)
class Robust:
    """Least regret first.

    ``left_out`` were not measured for every question. ``rivals`` may lose less than the first.
    """

    questions: tuple[str, ...]
    is_higher_better: bool
    order: tuple[Everywhere, ...]
    certainty: Certainty
    rivals: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    alpha: float
    margin: float
    bests: tuple[Best, ...]
    fronts: tuple[Front, ...]
    robusts: tuple[Robust, ...]


def decide(
    questions: Sequence[Question], *, alpha: float = 0.05, margin: float = 0.03, comparisons: int = 0
) -> Decision:
    """The choices that the answers allow.

    Questions with fewer than two configurations offer no choice. Each best, and each robust choice, is a separate
    claim at ``alpha``, shared among at least ``comparisons``: with those of the verdicts, the best never
    contradicts them.
    """
    asked = [q for q in map(_sound, questions) if len(q.logs) > 1]
    robusts = []
    for way in (True, False):
        own = [q for q in asked if q.is_higher_better is way]
        if len(own) > 1 and (found := _robust(own, alpha, margin)):
            robusts.append(found)
    return Decision(
        alpha,
        margin,
        tuple(_best(q, alpha * (len(q.logs) - 1) / max(comparisons, len(q.logs) - 1), margin) for q in asked),
        tuple(_fronts(asked, alpha)),
        tuple(robusts),
    )


def _sound(question: Question) -> Question:
    """Drops configurations with one block if others have several: they would leave no configuration with an
    interval.
    """
    most = max((len(own) for own in question.logs.values()), default=0)
    short = [name for name, own in question.logs.items() if len(own) < 2 <= most]
    if not short or not question.is_paired:
        return question
    logs = {name: own for name, own in question.logs.items() if name not in short}
    return replace(question, logs=logs, left_out=(*question.left_out, *short))


def of_trials(
    treatments: Sequence[Treatment],
    trials: Sequence[TrialResponse],
    baselines: Mapping[str, str] | None = None,
) -> list[Question]:
    """An experiment's questions: throughput and p99 of each condition. With ``baselines`` (by condition) they rest
    on the trials of the verdicts: see ``observed.answered``.
    """
    found = []
    for condition in dict.fromkeys(t.condition for t in treatments):
        names = {t.name: t.configuration for t in treatments if t.condition == condition}
        own = {name: [t for t in trials if t.treatment == name] for name in names}
        own = {name: mine for name, mine in own.items() if mine}
        for response in (THROUGHPUT, TAIL):
            found.append(_question(response, condition, names, own, (baselines or {}).get(condition, "")))
    return found


def _question(
    response: str,
    condition: str,
    names: Mapping[str, str],
    own: Mapping[str, Sequence[TrialResponse]],
    baseline: str,
) -> Question:
    if baseline in own:
        sound: Mapping[str, Sequence[TrialResponse]] = observed.answered(response, own, baseline)
    else:
        sound = {n: ts for n, ts in own.items() if all(t.value(response) is not None for t in ts)}
    is_latency = response != THROUGHPUT
    unit = math.log(_NS_PER_MS) if is_latency else 0.0
    seen = [
        one._replace(treatment=names[name], log=one.log - unit)
        for name, mine in sound.items()
        for one in observed.seen_of(response, mine)
    ]
    logs: dict[str, dict[int, list[float]]] = {names[name]: {} for name in sound}
    for one in seen:
        logs[one.treatment].setdefault(one.block, []).append(one.log)
    resolution = {names[n]: [t.resolution_log(response) for t in ts] for n, ts in sound.items()}
    return Question(
        f"{response}_ms" if is_latency else response,
        condition,
        not is_latency,
        {name: {b: sum(v) / len(v) for b, v in blocks.items()} for name, blocks in logs.items()},
        resolution={name: sum(v) / len(v) for name, v in resolution.items()},
        left_out=tuple(names[name] for name in own if name not in sound),
        trials=seen,
    )


@dataclass(frozen=True, eq=False)
class _Pairs:
    """``mean[i, j]``: how much better i is than j, in log units (NaN: never in the same block).

    ``half(level)`` are one-sided half-widths, NaN if there is no interval.
    """

    mean: Floats
    error: Floats
    degrees: Floats
    resolution: Floats
    blocks: int

    def half(self, level: float) -> Floats:
        from scipy.special import stdtrit

        return np.asarray(stdtrit(self.degrees, 1 - level) * self.error + self.resolution)


def _pairs(question: Question) -> _Pairs:
    names = list(question.logs)
    sign = 1.0 if question.is_higher_better else -1.0
    own = np.array([question.resolution.get(name, 0.0) for name in names])
    resolution = own[:, None] + own[None, :]
    if not question.is_paired:
        return _unpaired(question, sign, resolution)
    if not question.trials and sum(len(own) for own in question.logs.values()) > MOST_FITTED:
        return _of_many_blocks(question, sign, resolution)
    seen = question.trials or [
        Seen(name, block, log) for name, logs in question.logs.items() for block, log in logs.items()
    ]
    found = fit_one(seen)
    places = [found.names.index(name) for name in names]
    first, second = np.triu_indices(len(names), 1)
    weights = np.zeros((len(first), len(found.names)))
    each = np.arange(len(first))
    weights[each, np.array(places)[first]] = 1
    weights[each, np.array(places)[second]] = -1
    ratios = found.ratios(weights)
    matrices = []
    for values, mirror in ((sign * ratios.estimate, -1), (ratios.error, 1), (ratios.degrees, 1)):
        matrix = np.zeros((len(names), len(names)))
        matrix[first, second], matrix[second, first] = values, mirror * values
        matrices.append(matrix)
    mean, error, degrees = matrices
    blocks = {block for logs in question.logs.values() for block in logs}
    # Blocks that are equal to the last digit show as little as one.
    if len(blocks) < 2 or not (error + resolution)[first, second].any():
        error[:] = np.nan
    np.fill_diagonal(degrees, 1.0)
    return _Pairs(mean, error, degrees, resolution, len(blocks))


def _of_many_blocks(question: Question, sign: float, resolution: Floats) -> _Pairs:
    """The mean difference over the blocks that two configurations share, and its own spread.

    A thousand trials need nothing lent between configurations, and the estimator's matrices would grow with the
    square of their number.
    """
    blocks = {block: i for i, block in enumerate(sorted({b for own in question.logs.values() for b in own}))}
    count = len(question.logs)
    values = np.full((count, len(blocks)), np.nan)
    for place, own in enumerate(question.logs.values()):
        values[place, [blocks[block] for block in own]] = list(own.values())
    mean, error = np.full((count, count), np.nan), np.full((count, count), np.nan)
    degrees = np.ones((count, count))
    for place in range(count):
        away = sign * (values[place] - values)
        shared = (~np.isnan(away)).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean[place] = np.nansum(away, axis=1) / shared
            squares = np.nansum((away - mean[place][:, None]) ** 2, axis=1)
            error[place] = np.sqrt(squares / (shared - 1) / shared)
        degrees[place] = np.maximum(shared - 1, 1)
    np.fill_diagonal(mean, 0.0)
    others = ~np.eye(count, dtype=bool)
    if not np.nan_to_num(error + resolution)[others].any():
        error[:] = np.nan
    np.fill_diagonal(error, 0.0)
    return _Pairs(mean, error, degrees, resolution, len(blocks))


def _unpaired(question: Question, sign: float, resolution: Floats) -> _Pairs:
    """Repeats without common blocks: each configuration's own spread, drawn towards the pooled one by ``PRIOR``
    degrees of freedom (Smyth 2004). Pooled alone, one that is five times as noisy as 26 others is called beaten in
    22% of studies in which it is the best; drawn, in 6%.
    """
    logs = [np.array(list(own.values())) for own in question.logs.values()]
    counts = np.array([len(own) for own in logs], dtype=float)
    means = sign * np.array([own.mean() for own in logs])
    mean = means[:, None] - means[None, :]
    squares = np.array([float(((own - own.mean()) ** 2).sum()) for own in logs])
    most = float(counts.sum() - len(logs))
    # As in ``effects``: repeats that are equal to the last digit are copies, or too coarse to show any noise.
    if not most or squares.sum() <= 1e-20 * sum(float((own**2).sum()) for own in logs):
        unknown = np.full_like(mean, np.nan)
        return _Pairs(mean, unknown, unknown, resolution, int(counts.min()))
    lent = min(PRIOR, most)
    degrees = lent + counts - 1
    own = (lent * squares.sum() / most + squares) / degrees / counts
    variance = own[:, None] + own[None, :]
    spread = own**2 / degrees
    # Satterthwaite's, and no more than there are: what is lent holds each own.
    joint = np.minimum(variance**2 / (spread[:, None] + spread[None, :]), most)
    return _Pairs(mean, np.sqrt(variance), joint, resolution, int(counts.min()))


@dataclass(frozen=True, eq=False)
class _Standing:
    """Losses to the best in log units, by configuration: estimate and ends; ``unbeaten`` may be the best."""

    pairs: _Pairs
    order: list[int]
    loss: Floats
    low: Floats
    high: Floats
    unbeaten: NDArray[np.bool_]

    @property
    def has_intervals(self) -> bool:
        return bool(np.isfinite(self.high).any())

    def kept(self, i: int) -> Interval | None:
        """The share of the best's response; no bounds if there is no interval."""
        if math.isnan(self.loss[i]):
            return None
        if math.isnan(self.high[i]):
            return Interval(math.exp(-self.loss[i]), None, None)
        return Interval(
            math.exp(-self.loss[i]), intervals.scaled(1.0, -float(self.high[i])), math.exp(-self.low[i])
        )


def _stand(question: Question, alpha: float) -> _Standing:
    pairs = _pairs(question)
    count = len(question.logs)
    half = pairs.half(alpha / (2 * (count - 1)))
    np.fill_diagonal(half, 0.0)
    loss = np.array([_most(pairs.mean[:, i]) for i in range(count)])
    means = [math.fsum(own.values()) / len(own) for own in question.logs.values()]
    sign = 1.0 if question.is_higher_better else -1.0
    order = sorted(
        range(count), key=lambda i: (math.inf if math.isnan(loss[i]) else loss[i], -sign * means[i])
    )
    others = ~np.eye(count, dtype=bool)
    beats = np.nan_to_num(pairs.mean - half, nan=-math.inf) > 0
    unbeaten = np.array([not row.any() for row in beats.T])
    low, high = np.full(count, math.nan), np.full(count, math.nan)
    for i in range(count):
        rivals = unbeaten & others[:, i]
        ends = pairs.mean[rivals, i] + half[rivals, i]
        if rivals.any() and np.isnan(ends).any():
            continue
        # It can only lose to those that may be the best.
        high[i] = max(float(ends.max(initial=0.0)), 0.0, 0.0 if math.isnan(loss[i]) else loss[i])
        floor = (pairs.mean - half)[rivals, i]
        low[i] = 0.0 if unbeaten[i] else max(float(floor.min()), 0.0)
    return _Standing(pairs, order, loss, low, high, unbeaten)


def _most(losses: Floats) -> float:
    return float(np.nanmax(losses)) if (~np.isnan(losses)).sum() > 1 else math.nan


def _best(question: Question, alpha: float, margin: float) -> Best:
    found = _stand(question, alpha)
    names = list(question.logs)
    first = found.order[0]
    certainty = Certainty.NOT_ENOUGH_DATA
    if found.has_intervals and not math.isnan(found.high[first]):
        if found.unbeaten.sum() == 1:
            certainty = Certainty.SURE
        elif found.high[first] <= math.log1p(margin):
            certainty = Certainty.WITHIN
    candidates = []
    for i in found.order:
        logs = question.logs[names[i]].values()
        mean = math.exp(math.fsum(logs) / len(logs))
        # One that is beaten is, even if another's noise is unknown.
        is_known = found.has_intervals or not found.unbeaten.all()
        may_be = bool(found.unbeaten[i]) if is_known else None
        candidates.append(Candidate(names[i], mean, found.kept(i), may_be))
    needed = None
    if certainty is Certainty.NOT_ENOUGH_DATA and found.has_intervals and question.is_paired:
        needed = _blocks_needed(question, found.pairs, candidates, alpha, margin)
    return Best(question, tuple(candidates), certainty, found.pairs.blocks, needed)


def _blocks_needed(
    question: Question, pairs: _Pairs, candidates: Sequence[Candidate], alpha: float, margin: float
) -> Needed | None:
    """As many as the rival that is hardest to distinguish from the leader needs."""
    names = list(question.logs)
    leader, *rest = candidates
    i, most = names.index(leader.name), Needed(0, 0)
    for rival in (c for c in rest if c.may_be_best):
        j = names.index(rival.name)
        needed = intervals.blocks_needed(
            float(pairs.mean[i, j]),
            float(pairs.error[i, j]),
            float(pairs.degrees[i, j]),
            min(len(question.logs[leader.name]), len(question.logs[rival.name])),
            alpha / len(rest),
            margin,
            float(pairs.resolution[i, j]),
        )
        if needed is None:
            return None
        most = Needed(max(most.least, needed.least), max(most.most, needed.most))
    return most if most.most else None


def _fronts(questions: Sequence[Question], alpha: float) -> list[Front]:
    """Throughput against latency in each condition: the first response where more is better and the first where
    less is better, else the first two.
    """
    found = []
    for condition in dict.fromkeys(q.condition for q in questions):
        own = [q for q in questions if q.condition == condition]
        up, down = ([q for q in own if q.is_higher_better is way] for way in (True, False))
        pair = (up[0], down[0]) if up and down else tuple(own[:2])
        if len(pair) == 2:
            found.append(_front(pair[0], pair[1], alpha))
    return [front for front in found if len(front.points) > 1]


def _front(a: Question, b: Question, alpha: float) -> Front:
    names = [name for name in a.logs if name in b.logs]
    points, merits = {}, {}
    for name in names:
        logs = [math.fsum(q.logs[name].values()) / len(q.logs[name]) for q in (a, b)]
        points[name] = (math.exp(logs[0]), math.exp(logs[1]))
        merits[name] = [v if q.is_higher_better else -v for v, q in zip(logs, (a, b), strict=True)]
    members = [
        name
        for name, own in merits.items()
        if not any(m != own and m[0] >= own[0] and m[1] >= own[1] for m in merits.values())
    ]
    beaten: tuple[str, ...] | None = None
    if len(names) > 1:
        lower = []
        for q in (a, b):
            pairs = _pairs(q)
            places = [list(q.logs).index(name) for name in names]
            half = pairs.half(alpha / (len(names) - 1))
            lower.append((pairs.mean - half)[np.ix_(places, places)])
        if np.isfinite(lower[0] + lower[1])[~np.eye(len(names), dtype=bool)].any():
            with np.errstate(invalid="ignore"):
                both = (lower[0] > 0) & (lower[1] > 0)
            beaten = tuple(name for name, by in zip(names, both.T, strict=True) if by.any())
    return Front(
        a.condition if a.condition == b.condition else "",
        (a.response, b.response),
        (a.is_higher_better, b.is_higher_better),
        points,
        tuple(sorted(members, key=lambda name: -merits[name][0])),
        beaten,
    )


def _robust(questions: Sequence[Question], alpha: float, margin: float) -> Robust | None:
    """The smallest worst-case loss to each question's best, with joint intervals at ``alpha``."""
    common = [name for name in questions[0].logs if all(name in q.logs for q in questions)]
    everyone = dict.fromkeys(name for q in questions for name in (*q.logs, *q.left_out))
    if len(common) < 2:
        return None
    kept: dict[str, dict[str, Interval]] = {name: {} for name in common}
    for question in questions:
        found = _stand(question, alpha / len(questions))
        for i, name in enumerate(question.logs):
            own = found.kept(i)
            if name in kept and own is not None:
                kept[name][question.name] = own
    order = [_everywhere(name, own) for name, own in kept.items() if len(own) == len(questions)]
    if len(order) < 2:
        return None
    order.sort(key=lambda e: (-e.worst.estimate, -e.mean))
    first, rest = order[0], order[1:]
    certainty, rivals = Certainty.NOT_ENOUGH_DATA, []
    low = first.worst.low
    if low is not None and all(e.worst.high is not None for e in rest):
        rivals = [e.name for e in rest if e.worst.high is not None and e.worst.high > low]
        if not rivals:
            certainty = Certainty.SURE
        elif low >= 1 / (1 + margin):
            certainty = Certainty.WITHIN
    return Robust(
        tuple(q.name for q in questions),
        questions[0].is_higher_better,
        tuple(order),
        certainty,
        tuple(rivals),
        tuple(name for name in everyone if name not in {e.name for e in order}),
    )


def _everywhere(name: str, kept: Mapping[str, Interval]) -> Everywhere:
    where = min(kept, key=lambda question: kept[question].estimate)
    lows = [i.low for i in kept.values() if i.low is not None]
    highs = [i.high for i in kept.values() if i.high is not None]
    is_known = len(lows) == len(kept)
    worst = Interval(kept[where].estimate, min(lows) if is_known else None, min(highs) if is_known else None)
    mean = math.exp(math.fsum(math.log(i.estimate) for i in kept.values()) / len(kept))
    return Everywhere(name, worst, where, mean, dict(kept))
