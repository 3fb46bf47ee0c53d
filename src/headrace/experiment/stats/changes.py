"""Did the level change inside a trial? Steady, warming up, shifting, or never steady.

Seconds of a trial are correlated, so a test on seconds finds changes everywhere. Here the unit is the mean of a
batch of seconds, long enough that neighbouring batches are nearly uncorrelated even if seconds have an
autocorrelation of 0.9. The chance variance of a batch's mean is estimated twice, from seconds and from batches,
and the larger estimate is used. A change is reported if it explains far more than that and is large enough to
matter.

Sources: Killick, Fearnhead & Eckley 2012, Optimal detection of changepoints with a linear computational cost, JASA
107 (PELT; library ruptures: Truong, Oudre & Vayatis 2020, Signal Processing 167); Law & Kelton 2000, Simulation
Modeling and Analysis, 3rd ed., 9.5.3 (batch means).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Minimum length of a batch in seconds. If seconds have an autocorrelation of 0.9, means of 20 s still have 0.31,
#: and means of 60 s 0.09.
MIN_BATCH_S = 20

#: No more batches than this: longer trials have longer batches.
MAX_BATCHES = 60

#: The fewest batches that can show a change: two levels of two batches, and one more to estimate the noise.
MIN_BATCHES = 6

#: A level has at least two batches; a single slow one is a stall, which percentiles show.
MIN_LEVEL = 2

#: Smaller shifts between levels are ignored.
MIN_SHIFT = 0.05

#: Upper limit of the seconds' estimated autocorrelation; above it, an hour would count as a handful of
#: observations.
MAX_AUTOCORRELATION = 0.9


class Kind(StrEnum):
    STEADY = "steady"
    WARMING_UP = "warming up"
    SHIFTS = "shifts"
    DRIFTING = "drifting"


@dataclass(frozen=True)
class Shift:
    """At ``at_s`` seconds into the window the level becomes ``ratio`` times what it was before."""

    at_s: int
    ratio: float


@dataclass(frozen=True)
class Steadiness:
    """The course of a trial's window. ``batch_s`` is the precision of a shift's time."""

    kind: Kind
    shifts: tuple[Shift, ...]
    batch_s: int
    seconds: int


def judge(per_second: Floats) -> Steadiness | None:
    """The verdict on a trial's series, one value per second; None for fewer than MIN_BATCHES * MIN_BATCH_S seconds
    and for a series of zeros. The last incomplete batch is ignored.
    """
    batch = max(MIN_BATCH_S, len(per_second) // MAX_BATCHES)
    n = len(per_second) // batch
    if n < MIN_BATCHES:
        return None
    series = np.asarray(per_second[: n * batch], dtype=np.float64)
    means = series.reshape(n, batch).mean(axis=1)
    if not np.isfinite(means).all() or means.mean() <= 0:
        return None
    edges = _edges(means, penalty(len(per_second)) * chance_variance(series, batch))
    levels = [float(means[a:b].mean()) for a, b in itertools.pairwise(edges)]
    shifts = tuple(
        Shift(at * batch, after / before if before > 0 else math.inf)
        for at, before, after in zip(edges[1:-1], levels, levels[1:], strict=False)
    )
    return Steadiness(_kind(means, edges, shifts), shifts, batch, len(per_second))


def is_change(per_second: Floats, at_s: int) -> bool:
    """Whether the level changes at ``at_s`` by more than chance, allowing for all places where a change could have
    been found.
    """
    batch = max(MIN_BATCH_S, len(per_second) // MAX_BATCHES)
    n = len(per_second) // batch
    series = np.asarray(per_second[: n * batch], dtype=np.float64)
    before, after = series[:at_s], series[at_s:]
    if n < MIN_BATCHES or not len(before) or not len(after):
        return False
    explained = (before.mean() - after.mean()) ** 2 * len(before) * len(after) / len(series) / batch
    return bool(explained > penalty(len(per_second)) * chance_variance(series, batch))


def sentence(found: Steadiness) -> str | None:
    """A warning for the report; None if the trial was steady."""
    shifts = found.shifts
    if found.kind is Kind.STEADY:
        return None
    if found.kind is Kind.WARMING_UP:
        total = math.prod(s.ratio for s in shifts)
        return (
            f"warming up: throughput settles only {shifts[-1].at_s} s into the measured {found.seconds} s, "
            f"{_size(total)} from its start; a longer warm-up would drop that part"
        )
    told = ", ".join(f"{_size(s.ratio)} at {s.at_s} s" for s in shifts[:MOST_TOLD])
    told += f" and {len(shifts) - MOST_TOLD} more" if len(shifts) > MOST_TOLD else ""
    if found.kind is Kind.DRIFTING:
        return (
            f"no steady state: throughput keeps changing ({told}), so its mean depends on the length of the "
            "measurement"
        )
    return f"throughput shifts inside the measured {found.seconds} s: {told}; its mean mixes several states"


def _size(ratio: float) -> str:
    return f"{ratio - 1:+.0%}" if math.isfinite(ratio) else "up from nothing"


#: Maximum shifts named in a sentence.
MOST_TOLD = 4

#: (seconds, penalty). Of 1,500 simulated series without a change, of each length, seconds autocorrelated by 0.9,
#: 95% have no set of levels that explains more than this for each change, in units of a batch's chance variance:
#: 13.8 at 120 s, 14.2 at 180, 19.2 at 240, 18.8 at 300, 19.9 at 400, 22.1 at 600, 25.0 at 900, 21.9 at 1,200, 19.9
#: at 1,800, 14.7 at 3,600. The points lie a little above.
#:
#: False alarms of ``steady.unsteady`` then, of 1,000 other series of each length, where seconds vary by 5% (20%):
#: 4.0% (4.6%) at 120 s, 4.2% (4.6%) at 240, 4.5% (3.5%) at 600, 1.9% (3.7%) at 900, 1.1% (2.7%) at 1,800, 1.0%
#: (3.1%) at 3,600; none to 0.3% where they are autocorrelated by 0.5 or not at all (300 series each).
#:
#: Power, the share of 200 series in which a drop of 20% (10%) after 70% of the window is seen, autocorrelated by
#: 0.9: seconds that vary by 5%: 80% (28%) at 120 s, 100% (67%) at 300, 100% (94%) at 600, 100% (100%) at 1,800;
#: by 10%: 29% (8%), 66% (22%), 99% (40%), 100% (88%); by 20%: 8% (3%), 20% (9%), 33% (12%), 96% (22%).
_PENALTIES = (
    (120, 16.0),
    (200, 19.0),
    (300, 21.5),
    (600, 25.0),
    (900, 26.5),
    (1200, 24.0),
    (1800, 21.0),
    (3600, 16.0),
)


def penalty(seconds: int) -> float:
    """The minimum that a change must explain, in units of a batch's chance variance."""
    at, least = np.transpose(_PENALTIES)
    return float(np.interp(seconds, at, least))


def chance_variance(series: Floats, batch: int) -> float:
    """The chance variance of a mean of ``batch`` seconds, estimated only from differences, which a shift barely
    affects: the larger of a first-order autoregression of the seconds and the differences of neighbouring batches.
    """
    one, two = np.diff(series), series[2:] - series[:-2]
    v1, v2 = float(np.mean(one**2)), float(np.mean(two**2))
    if v1 == 0:
        return 0.0
    rho = min(max(v2 / v1 - 1, 0.0), MAX_AUTOCORRELATION)
    inflation = (1 + rho) / (1 - rho) - 2 * rho * (1 - rho**batch) / (batch * (1 - rho) ** 2)
    by_seconds = v1 / (2 * (1 - rho)) / batch * inflation
    squares = np.sort(np.diff(series.reshape(-1, batch).mean(axis=1)) ** 2)
    # Ignore the largest fifth, which may be shifts.
    by_batches = float(np.mean(squares[: math.ceil(0.8 * len(squares))])) / 2
    return max(by_seconds, by_batches)


def _edges(means: Floats, least: float) -> list[int]:
    """The boundaries of levels: 0, the changes, the length."""
    import ruptures

    n = len(means)
    # Too little variation to explain: most trials end here, without a search.
    if float(((means - means.mean()) ** 2).sum()) <= least:
        return [0, n]
    search = ruptures.KernelCPD(kernel="linear", min_size=MIN_LEVEL, jump=1).fit(means.reshape(-1, 1))
    edges = [0, *map(int, search.predict(pen=max(least, 1e-12 * float(means.mean()) ** 2)))]
    while len(edges) > 2:
        levels = [float(means[a:b].mean()) for a, b in itertools.pairwise(edges)]
        sizes = [abs(math.log(max(b, 1e-300) / max(a, 1e-300))) for a, b in itertools.pairwise(levels)]
        smallest = int(np.argmin(sizes))
        if sizes[smallest] >= math.log1p(MIN_SHIFT):
            break
        del edges[smallest + 1]
    return edges


def _kind(means: Floats, edges: list[int], shifts: tuple[Shift, ...]) -> Kind:
    n = len(means)
    if not shifts:
        return Kind.STEADY
    is_one_way = len({s.ratio > 1 for s in shifts}) == 1
    if is_one_way and edges[-2] <= n / 2 and not _is_ramp(means[edges[-2] :]):
        return Kind.WARMING_UP
    if _is_straighter(means, edges) or (is_one_way and len(shifts) > 1) or len(shifts) > MOST_SHIFTS:
        return Kind.DRIFTING
    return Kind.SHIFTS


#: More levels than this are not distinct states of a trial.
MOST_SHIFTS = 3


def _is_straighter(means: Floats, edges: list[int]) -> bool:
    """A straight line explains the series better than its levels do, with fewer parameters."""
    at = np.arange(len(means), dtype=np.float64)
    line = np.polyval(np.polyfit(at, means, 1), at)
    levels = np.concatenate([np.full(b - a, means[a:b].mean()) for a, b in itertools.pairwise(edges)])
    return float(((means - line) ** 2).sum()) < float(((means - levels) ** 2).sum())


def _is_ramp(means: Floats) -> bool:
    """The last level itself still moves by more than MIN_SHIFT from end to end, beyond its scatter."""
    n = len(means)
    at = np.arange(n) - (n - 1) / 2
    slope = float((at * means).sum() / (at**2).sum())
    left = means - means.mean() - slope * at
    error = math.sqrt(float((left**2).sum()) / max(n - 2, 1) / float((at**2).sum()))
    return abs(slope) * n > MIN_SHIFT * float(means.mean()) and abs(slope) > 4 * error
