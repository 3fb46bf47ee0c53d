"""Confidence intervals over blocks, on the log scale.

Every function takes a mapping from block to one log value. This is deliberate: seconds of a trial are
autocorrelated, and a type with one value per block prevents passing them as replicates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

#: Block number -> one natural-log value: of a response, or of a ratio of two.
ByBlock = Mapping[int, float]

#: The chance of settling the question that ``blocks_needed`` asks for. 0.8 is the usual convention
#: (Cohen 1988, Statistical Power Analysis, sec. 2.4).
POWER = 0.8

#: An interval whose ends differ by more than this factor is of no use, as with two blocks: these words replace it.
USELESS, TOO_WIDE = 100.0, "too wide to say"

#: A plan allows no more blocks than this; a question that needs more is reported as not estimable.
MAX_BLOCKS = 1000

#: More blocks than this are no advice: they take days, and the machine changes meanwhile.
MOST_ADVISED = 60

# Beyond this many standard errors on the right side of the critical value the power is 1 to 15 digits, and
# the noncentral t distribution need not be evaluated where its series become slow.
_CERTAIN = 8.0

# A variance of logs below this share is that of their last digits.
_ROUNDING = 1e-20


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval; ``low`` and ``high`` are None if none is possible."""

    estimate: float
    low: float | None
    high: float | None


def t_quantile(degrees: float, alpha: float) -> float:
    """The two-sided critical value of Student's t: |T| exceeds it with probability ``alpha``."""
    # Lazy: SciPy takes longer to load than most commands take to run. scipy.stats would take three times that.
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 1 - alpha / 2))


def scaled(value: float, log_factor: float) -> float:
    """``value * exp(log_factor)``, saturating: with 2 blocks and many comparisons a bound can exceed the range."""
    return value * math.exp(min(log_factor, 700.0)) if value else 0.0


def mean(logs: ByBlock) -> float:
    return math.fsum(logs.values()) / len(logs)


def variance(logs: ByBlock) -> float:
    """The sample variance between blocks; at least 2 blocks."""
    center = mean(logs)
    return math.fsum((v - center) ** 2 for v in logs.values()) / (len(logs) - 1)


def geometric(logs: ByBlock, alpha: float, resolution: float = 0.0) -> Interval:
    """The geometric mean over blocks with its t interval at level 1 - alpha.

    ``resolution`` (log units) is added to both half-widths: the precision of the measurement, which more blocks do
    not improve. With fewer than 2 blocks there is no interval.
    """
    center, n = mean(logs), len(logs)
    if n < 2:
        return Interval(math.exp(center), None, None)
    half = t_quantile(n - 1, alpha) * math.sqrt(variance(logs) / n) + resolution
    return Interval(math.exp(center), scaled(math.exp(center), -half), scaled(math.exp(center), half))


def arithmetic(values: Sequence[float], alpha: float = 0.05) -> Interval:
    """The mean of one value per block with its t interval at level 1 - alpha: for what may be 0 or less."""
    n = len(values)
    center = math.fsum(values) / n
    if n < 2:
        return Interval(center, None, None)
    spread = math.fsum((value - center) ** 2 for value in values) / (n - 1)
    half = t_quantile(n - 1, alpha) * math.sqrt(spread / n)
    return Interval(center, center - half, center + half)


def welch(a: ByBlock, b: ByBlock, alpha: float, resolution: float = 0.0) -> Interval:
    """The ratio b / a of two unpaired geometric means with Welch's interval; none if a side has 1 block, or if
    nothing varies and there is no ``resolution``: equal to the last digit are copies, or values too coarse to show
    any noise.

    Source: Welch 1947, The generalization of "Student's" problem when several different population variances
    are involved, Biometrika 34; degrees of freedom by Satterthwaite 1946.
    """
    ratio = math.exp(mean(b) - mean(a))
    if len(a) < 2 or len(b) < 2:
        return Interval(ratio, None, None)
    share_a, share_b = variance(a) / len(a), variance(b) / len(b)
    total = share_a + share_b
    # Rounding leaves a variance where there is none.
    if total + resolution <= _ROUNDING * max(abs(mean(a)), abs(mean(b)), 1.0):
        return Interval(ratio, None, None)
    half = resolution
    if total > 0:
        degrees = total**2 / (share_a**2 / (len(a) - 1) + share_b**2 / (len(b) - 1))
        half += t_quantile(degrees, alpha) * math.sqrt(total)
    return Interval(ratio, scaled(ratio, -half), scaled(ratio, half))


def around(log: float, half: float | None) -> Interval:
    """The ratio of a log with its half-width; without bounds if there is none."""
    ratio = math.exp(log)
    if half is None:
        return Interval(ratio, None, None)
    return Interval(ratio, scaled(ratio, -half), scaled(ratio, half))


def inverse(ratio: Interval) -> Interval:
    """The same effect seen from the other side; a bound of 0 has no inverse."""
    return Interval(
        1 / ratio.estimate,
        None if not ratio.high else 1 / ratio.high,
        None if not ratio.low else 1 / ratio.low,
    )


class Needed(NamedTuple):
    """How many blocks in total settle a question, at the lucky end of what may be true and at the other."""

    least: int
    most: int


def span(needed: Needed) -> str:
    """``8 to 20``."""
    return " to ".join(dict.fromkeys(map(str, needed)))


def blocks_needed(
    effect: float,
    error: float,
    degrees: float,
    blocks: int,
    alpha: float,
    equivalence: float,
    resolution: float = 0.0,
) -> Needed | None:
    """How many blocks in total settle the question with probability POWER, more than there are now: a range over
    what the true effect may be.

    ``effect`` has its standard ``error`` and ``degrees`` of freedom after ``blocks``. The question is settled when
    the interval excludes 1 or is within the equivalence margin. An effect that was observed is a poor guess of the
    true one, and a poor one to choose the largest of several by. So the range is that of a two-sided interval at 4
    ``alpha``: with ``alpha`` divided among comparisons, the truth is nearer 0 than all of these with 10% at most.
    None if that includes both a difference and none, if MOST_ADVISED is not enough at the unlucky end, with fewer
    than 2 blocks, and without any spread: then no number of blocks is a promise.
    """
    if blocks < 2 or not error > 0:
        return None
    margin = math.log1p(equivalence)
    reach = t_quantile(degrees, min(4 * alpha, 1.0)) * error
    near, far = abs(effect) - reach, abs(effect) + reach
    if near <= 0 and far >= margin:
        return None

    def settled_after(true: float) -> int | None:
        deviation = error * math.sqrt(blocks)
        return blocks_to_settle(
            true,
            deviation,
            margin,
            alpha,
            resolution=resolution,
            more_than=blocks,
            degrees=degrees / (blocks - 1),
        )

    ends = [settled_after(max(near, 0.0)), settled_after(far)]
    known = [end for end in ends if end is not None and end <= MOST_ADVISED]
    return Needed(min(known), max(known)) if len(known) == len(ends) else None


def blocks_to_settle(
    effect: float,
    deviation: float,
    margin: float,
    alpha: float,
    *,
    power: float = POWER,
    resolution: float = 0.0,
    more_than: int = 1,
    degrees: float = 1.0,
) -> int | None:
    """How many blocks a t interval at level 1 - ``alpha`` needs to exclude 0 or to be within ``margin``,
    with probability ``power``; None if MAX_BLOCKS is not enough. ``effect`` is the true effect, ``deviation`` the
    standard deviation of a block's log ratio, all in log units; each block beyond the first adds ``degrees`` of
    freedom (1 if a treatment is paired with its baseline and nothing else is known).
    """
    effect = abs(effect)

    def settled(n: int) -> bool:
        own = degrees * (n - 1)
        critical = t_quantile(own, alpha)

        def reach(distance: float) -> float:
            return chance_beyond(critical, own, (distance - resolution) * math.sqrt(n) / deviation)

        differs = reach(effect)
        # Both bounds must be inside: by Bonferroni's inequality at least this probability, and nearly exactly.
        equivalent = reach(margin - effect) + reach(margin + effect) - 1
        return max(differs, equivalent) >= power

    low, high = more_than, more_than + 1
    while not settled(high):
        if high == MAX_BLOCKS:
            return None
        low, high = high, min(2 * high, MAX_BLOCKS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settled(middle) else (middle, high)
    return high


def chance_beyond(critical: float, degrees: float, noncentrality: float) -> float:
    """P(T > critical) for a noncentral t."""
    from scipy.special import nctdtr

    if noncentrality <= 0:
        return 0.0  # at most alpha / 2, so it never settles a question
    if noncentrality > 2 * critical + _CERTAIN:
        return 1.0
    return 1.0 - float(nctdtr(degrees, noncentrality, critical))
