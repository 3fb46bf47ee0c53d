"""Simulated rollouts of a change that takes a restart: pairs of equal hosts whose times drift apart by themselves.

The hosts are those of ``fleets``. Half of them are changed, one of each pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.counted import counted
from headrace.experiment.stats.audit import Rate
from headrace.rollout.fleets import EFFECT, HOSTS, LOOKS, POWER, World, count, series, window
from headrace.rollout.guards import Limits, Window, tripped
from headrace.rollout.judge import Judgement, Outcome, Question, judge
from headrace.rollout.paired import Moment, Paired

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Points of a block (10 minutes), blocks before the change, and blocks lost to the restart and the warm-up.
BLOCK, BEFORE, RESTART = 120, 12, 1
PAIRS = HOSTS // 2
#: A larger effect, which must be found as harm before it is promoted or the blocks are used up.
LARGE, LARGE_POWER = 0.5, 0.8


def simulate(fleets: int, *, alpha: float = 0.05, seed: int = 1) -> Iterator[Rate]:
    """False rollbacks and false promotions, and the power."""
    rng = np.random.default_rng(seed)
    question = Question(LOOKS, alpha, alpha)

    def ends(world: World) -> list[Judgement]:
        return [rollout(rng, world, question) for _ in range(fleets)]

    for world in (World("nothing changed"), World("nothing changed, one host fails", fails=True)):
        found = ends(world)
        yield Rate(f"restarts: {world.name}, rolled back", fleets, count(found, Outcome.FAIL), alpha)
        yield Rate(f"restarts: {world.name}, called better", fleets, sum(e.is_win for e in found), alpha)
    worse = World("worse by the margin", math.log1p(question.margin))
    yield Rate(f"restarts: {worse.name}, promoted", fleets, count(ends(worse), Outcome.PASS), alpha)
    found = ends(World("20% worse", math.log1p(EFFECT)))
    yield Rate(f"restarts: {EFFECT:.0%} worse, promoted", fleets, count(found, Outcome.PASS), alpha)
    # What harm is proven of in so few blocks is shown; what is not proven is not promoted, either.
    yield Rate(
        f"power: restarts: {EFFECT:.0%} worse is rolled back", fleets, count(found, Outcome.FAIL), alpha, 0.0
    )
    for what, effect, outcome, least in (
        (f"{LARGE:.0%} worse is rolled back", math.log1p(LARGE), Outcome.FAIL, LARGE_POWER),
        (f"{EFFECT:.0%} better is promoted", math.log1p(-EFFECT), Outcome.PASS, POWER),
    ):
        as_meant = count(ends(World(what, effect)), outcome)
        yield Rate(f"power: restarts: {what}", fleets, as_meant, alpha, least=least)


@dataclass
class _Fleet:
    """Hosts 0 and 1 are the first pair, 2 and 3 the second; the even ones are changed."""

    logs: NDArray[np.float64]
    effect: float
    usual: list[list[Window]]

    def block(self, host: int, place: int, *, is_changed: bool) -> Window:
        own = self.logs[host, place * BLOCK : (place + 1) * BLOCK]
        return window(own + (self.effect if is_changed else 0.0))

    def trips(self, host: int, now: Window) -> bool:
        return bool(self.usual[host] and tripped(now, self.usual[host], Limits()))


def rollout(rng: np.random.Generator, world: World, question: Question) -> Judgement:
    """One stage of PAIRS pairs, block after block, as the hands would run it."""
    blocks = BEFORE + RESTART + -(-question.looks[-1] // PAIRS)
    fleet = _Fleet(series(rng, (blocks + 1) * BLOCK, world), world.effect, [[] for _ in range(HOSTS)])
    moments: list[Moment] = []
    names = [str(pair) for pair in range(PAIRS)]
    aside: set[int] = set()
    for place in range(blocks):
        is_after = place >= BEFORE + RESTART
        for pair in range(PAIRS):
            if pair in aside or BEFORE <= place < BEFORE + RESTART:
                continue
            changed, partner = 2 * pair, 2 * pair + 1
            windows = [
                fleet.block(changed, place, is_changed=is_after),
                fleet.block(partner, place, is_changed=False),
            ]
            trips = [fleet.trips(host, own) for host, own in zip((changed, partner), windows, strict=True)]
            if is_after and trips[0] and not trips[1]:
                # It is taken back, and the same time without it decides.
                after = fleet.block(changed, place + 1, is_changed=False)
                if not fleet.trips(changed, after):
                    return Judgement(Outcome.FAIL, "a limit was passed", len(moments))
            if any(trips):
                aside.add(pair)
                moments = [each for each in moments if each.host != names[pair]]
                continue
            fleet.usual[partner].append(windows[1])
            if not is_after:
                fleet.usual[changed].append(windows[0])
            moments.append(Moment(names[pair], windows[0].block, windows[1].block, is_after))
            if is_after:
                judged = judge(question, Paired(moments), names)
                if judged.outcome is not Outcome.CONTINUE:
                    return judged
    return Judgement(Outcome.INCONCLUSIVE, "no host is left to try it on", len(moments))


def shifted(
    question: Question, moments: Sequence[Moment], before: int, *, shifts: int = 1000, seed: int = 1
) -> tuple[Rate, Rate]:
    """False rollbacks and false wins of the judge on pairs of a real fleet in which nothing was changed.

    Of each pair one host is called the changed one by lot, and the pair's blocks begin at one drawn by lot, the
    first after the last: neighbours stay neighbours. The first ``before`` are taken as before the change.
    """
    rng = np.random.default_rng(seed)
    pairs: dict[str, list[Moment]] = {}
    for moment in moments:
        pairs.setdefault(moment.host, []).append(moment)
    whole = [own for own in pairs.values() if len(own) > before]
    hosts = [own[0].host for own in whole]
    ends = [_judged(question, [_placebo(rng, own, before) for own in whole], hosts) for _ in range(shifts)]
    what = (
        f"{counted(sum(map(len, whole)), 'block')} of {counted(len(whole), 'pair')} of hosts, shifted "
        "and swapped"
    )
    return (
        Rate(f"{what}: rolled back", shifts, count(ends, Outcome.FAIL), question.harm_alpha),
        Rate(f"{what}: called better", shifts, sum(each.is_win for each in ends), question.alpha),
    )


def _placebo(rng: np.random.Generator, own: Sequence[Moment], before: int) -> list[Moment]:
    first, is_swapped = int(rng.integers(len(own))), rng.random() < 0.5
    turned = [*own[first:], *own[:first]]
    return [
        replace(
            each,
            changed=each.partner if is_swapped else each.changed,
            partner=each.changed if is_swapped else each.partner,
            is_after=place >= before,
        )
        for place, each in enumerate(turned)
    ]


def _judged(question: Question, pairs: Sequence[Sequence[Moment]], hosts: Sequence[str]) -> Judgement:
    """Looking at each block as it would have come."""
    so_far: list[Moment] = []
    judged = judge(question, Paired(so_far), hosts)
    for row in zip_longest(*pairs):
        for moment in (each for each in row if each is not None):
            so_far.append(moment)
            if moment.is_after:
                judged = judge(question, Paired(so_far), hosts)
                if judged.outcome is not Outcome.CONTINUE:
                    return judged
    return judged
