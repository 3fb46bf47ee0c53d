"""An experiment that is judged after each block and ends when it is decided.

Looking again and again at 95% intervals finds a difference sooner or later even where none is. So alpha is spent
over the looks (``looks``): the first is after the plan's blocks, the next after each block. All looks together are
wrong with probability at most alpha, wherever the experiment ends.

An experiment of a fixed length that is extended after its result was seen has no such protection: its false-alarm
rate is stated instead (``rate_when_extended``).

Source: Jennison & Turnbull 2000, Group Sequential Methods, ch. 2, 7 and 9 (repeated confidence intervals).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace

from headrace.base.effect import Effect, Verdict
from headrace.base.looks import nominal_level
from headrace.base.model import TrialState
from headrace.experiment.frozen import Design
from headrace.experiment.store import TrialRecord


def whole_blocks(design: Design, records: Collection[TrialRecord]) -> int:
    """How many blocks, from the first on, have a record of each of their trials."""
    there = {record.number for record in records}
    blocks = itertools.groupby(design.trials, key=lambda trial: trial.block)
    whole = itertools.takewhile(lambda block: all(trial.number in there for trial in block[1]), blocks)
    return sum(1 for _ in whole)


def begun(design: Design, records: Collection[TrialRecord]) -> Design:
    """The design without the blocks that nobody has begun; itself if its length was fixed beforehand."""
    if not design.until_decided:
        return design
    last = max([design.blocks, *(record.block for record in records)])
    return replace(design, trials=tuple(trial for trial in design.trials if trial.block <= last))


def last_look(design: Design, records: Collection[TrialRecord]) -> int | None:
    """The last block that the latest look is about; 0 before the first look, None if the length is fixed.

    A report may be read at any time. Trials of a block that is not whole would make each reading another look, for
    which no alpha was set aside.
    """
    if not design.until_decided:
        return None
    whole = whole_blocks(design, records)
    return whole if whole >= design.blocks else 0


def level(design: Design, records: Collection[TrialRecord], comparisons: int) -> float:
    """The alpha of the look after these trials, which ``comparisons`` divide among themselves."""
    if not design.until_decided:
        return design.alpha
    look = max(whole_blocks(design, records), design.blocks)
    # Each has its own share of alpha to spend: a level of their sum would not be the sum of their levels.
    return 2 * comparisons * nominal_level(design.alpha / comparisons / 2, look, first=design.blocks)


def undecided(design: Design, effects: Sequence[Effect]) -> list[Effect]:
    """The comparisons that were asked for, of the design's response, without a verdict."""
    return [
        effect
        for effect in effects
        if effect.response == design.response
        and effect.verdict is Verdict.NOT_ENOUGH_DATA
        and (not design.asked or effect.treatment in design.asked)
    ]


def can_decide(records: Collection[TrialRecord], treatment: str) -> bool:
    """Whether more blocks can help: a treatment that only fails stays without a verdict."""
    own = [record.state for record in records if record.treatment == treatment]
    return any(state is not TrialState.FAILED for state in own)


def rate_when_extended(alpha: float, looks: Sequence[int]) -> float:
    """How often one or more of several looks at the level alpha, after these numbers of blocks, call a difference
    where none is: one comparison, normal noise.
    """
    import numpy as np
    from scipy.special import ndtri
    from scipy.stats import multivariate_normal

    sizes = np.asarray(looks, dtype=float)
    correlation = np.sqrt(np.minimum.outer(sizes, sizes) / np.maximum.outer(sizes, sizes))
    limit = np.full(len(looks), -float(ndtri(alpha / 2)))
    normal = multivariate_normal(cov=correlation, allow_singular=True, seed=1)
    return float(1 - normal.cdf(limit, lower_limit=-limit))
