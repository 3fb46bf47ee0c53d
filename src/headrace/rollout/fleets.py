"""Simulated fleets in a rollout: how often the judge is wrong where nothing changed, and what it finds.

Servers whose time per query drifts with the hour, is autocorrelated, and of which one may fail for good in the
middle. The same points are given to a test that pools them: the Mann-Whitney test that Kayenta uses, at its 98%.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.counted import counted
from headrace.experiment.stats.audit import Rate
from headrace.rollout.guards import Limits, Window, tripped
from headrace.rollout.judge import Judgement, Outcome, Pair, Question, Switchback, judge

if TYPE_CHECKING:
    from numpy.typing import NDArray

HOSTS = 4
LOOKS = (6, 12, 18, 24)
#: A point every 5 s; a block has 12, and 2 more to wash out.
POINT_S, BLOCK, WASH = 5, 12, 2
SEASON, CARRIED, DRIFT, NOISE = 0.5, 0.97, 0.15, 0.1
QUERIES_PER_S = 1000.0
#: Kayenta's Mann-Whitney test is at 98%.
POOLED_ALPHA = 0.02
#: What a fleet of these must find: 20% more or less time per query.
EFFECT, POWER = 0.2, 0.8


@dataclass(frozen=True)
class World:
    """``effect``: log of the factor on time per query. ``fails``: one host becomes three times slower for good."""

    name: str
    effect: float = 0.0
    fails: bool = False


@dataclass(frozen=True)
class Ended:
    """How one rollout ended. ``pooled``: whether the pooled points differ."""

    outcome: Outcome
    is_win: bool
    pairs: int
    pooled: bool


def simulate(fleets: int, *, alpha: float = 0.05, seed: int = 1) -> Iterator[Rate]:
    """False rollbacks and false promotions, coverage of the pooled test, and the power."""
    rng = np.random.default_rng(seed)
    question = Question(LOOKS, alpha, alpha)
    for world in (World("nothing changed"), World("nothing changed, one host fails", fails=True)):
        ends = [rollout(rng, world, question) for _ in range(fleets)]
        yield Rate(f"rollout: {world.name}, rolled back", fleets, count(ends, Outcome.FAIL), alpha)
        yield Rate(f"rollout: {world.name}, called better", fleets, sum(e.is_win for e in ends), alpha)
        pooled = sum(each.pooled for each in ends)
        # No verdict of headrace: shown for comparison, so nothing is expected of it.
        yield Rate(
            f"for comparison, pooled points differ (Mann-Whitney, 98%): {world.name}",
            fleets,
            pooled,
            alpha,
            0.0,
        )
    worse = World("worse by the margin", math.log1p(question.margin))
    ends = [rollout(rng, worse, question) for _ in range(fleets)]
    yield Rate(f"rollout: {worse.name}, promoted", fleets, count(ends, Outcome.PASS), alpha)
    for world, outcome in (
        (World(f"{EFFECT:.0%} worse is rolled back", math.log1p(EFFECT)), Outcome.FAIL),
        (World(f"{EFFECT:.0%} better is promoted", math.log1p(-EFFECT)), Outcome.PASS),
    ):
        ends = [rollout(rng, world, question) for _ in range(fleets)]
        yield Rate(f"power: {world.name}", fleets, count(ends, outcome), alpha, least=POWER)


def count(ends: Sequence[Ended | Judgement], outcome: Outcome) -> int:
    return sum(each.outcome is outcome for each in ends)


def rollout(
    rng: np.random.Generator, world: World, question: Question, limits: Limits | None = None
) -> Ended:
    """One stage over HOSTS servers, pair after pair, as the hands would run it."""
    rounds = -(-question.looks[-1] // HOSTS)
    logs = series(rng, rounds * 2 * (BLOCK + WASH), world)
    limits = limits or Limits()
    usual: list[list[Window]] = [[] for _ in range(HOSTS)]
    names = [str(number) for number in range(HOSTS)]
    pairs: list[Pair] = []
    points: dict[bool, list[float]] = {True: [], False: []}
    aside: set[int] = set()
    judged = judge(question, Switchback(pairs), names)
    for each in range(rounds):
        for host in range(HOSTS):
            if host in aside:
                continue
            order = (True, False) if rng.random() < 0.5 else (False, True)
            start = each * 2 * (BLOCK + WASH)
            found: dict[bool, Window] = {}
            for place, is_on in enumerate(order):
                first = start + place * (BLOCK + WASH) + WASH
                own = logs[host, first : first + BLOCK] + (world.effect if is_on else 0.0)
                found[is_on] = window(own)
                points[is_on] += own.tolist()
                if is_on and tripped(found[True], usual[host], limits):
                    # It is taken back, and the same time without it decides.
                    after = window(logs[host, first + BLOCK : first + 2 * BLOCK])
                    if tripped(after, usual[host], limits):
                        aside.add(host)
                        break
                    return Ended(Outcome.FAIL, False, len(pairs), _pooled(points))
                if not is_on:
                    usual[host].append(found[False])
            if host in aside:
                continue
            pairs.append(Pair(names[host], found[True].block, found[False].block))
            judged = judge(question, Switchback(pairs), names)
            if judged.outcome is not Outcome.CONTINUE:
                return Ended(judged.outcome, judged.is_win, len(pairs), _pooled(points))
    return Ended(Outcome.INCONCLUSIVE, False, len(pairs), _pooled(points))


def series(rng: np.random.Generator, length: int, world: World) -> NDArray[np.float64]:
    """Logs of time per query of HOSTS servers, point by point, and a few more than the length."""
    from scipy.signal import lfilter

    # One more block, for what comes after the last.
    count = length + 2 * BLOCK
    spread = DRIFT * math.sqrt(1 - CARRIED**2)
    drift = lfilter([1], [1, -CARRIED], rng.normal(0, spread, (HOSTS, count + 200)), axis=1)[:, 200:]
    hours = (np.arange(count) * POINT_S + rng.uniform(0, 86_400)) / 86_400
    season = SEASON * np.sin(2 * np.pi * hours)
    logs = drift + season + rng.normal(0, NOISE, (HOSTS, count))
    if world.fails:
        logs[rng.integers(HOSTS), rng.integers(length) :] += math.log(3)
    return np.asarray(logs)


def window(logs: NDArray[np.float64]) -> Window:
    """What a host did in these points."""
    seconds = len(logs) * POINT_S
    queries = seconds * QUERIES_PER_S
    return Window(seconds, queries, float(np.exp(logs).mean()) * 0.001 * queries)


def _pooled(points: dict[bool, list[float]]) -> bool:
    from scipy.stats import mannwhitneyu

    if not points[True] or not points[False]:
        return False
    return bool(mannwhitneyu(points[True], points[False], method="asymptotic").pvalue < POOLED_ALPHA)


def swapped(
    question: Question, pairs: Sequence[Pair], hosts: Sequence[str], *, swaps: int = 1000, seed: int = 1
) -> tuple[Rate, Rate]:
    """False rollbacks and false wins of the judge on pairs of a real fleet in which nothing was changed.

    The blocks of each pair are swapped by lot, and each time the judge looks at every pair as it would have come.
    """
    rng = np.random.default_rng(seed)
    ends: list[Judgement] = []
    for _ in range(swaps):
        flips = rng.random(len(pairs)) < 0.5
        own = [
            replace(pair, on=pair.off, off=pair.on) if flip else pair
            for pair, flip in zip(pairs, flips, strict=True)
        ]
        looked = (judge(question, Switchback(own[:count]), hosts) for count in range(1, len(own) + 1))
        ends.append(
            next(
                (each for each in looked if each.outcome is not Outcome.CONTINUE),
                judge(question, Switchback(own), hosts),
            )
        )
    failed = sum(each.outcome is Outcome.FAIL for each in ends)
    won = sum(each.is_win for each in ends)
    what = f"{counted(len(pairs), 'pair')} of this fleet, swapped"
    return (
        Rate(f"{what}: rolled back", swaps, failed, question.harm_alpha),
        Rate(f"{what}: called better", swaps, won, question.alpha),
    )
