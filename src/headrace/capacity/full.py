"""When a host is full, and by what: its peaks against the knees of its capacity, and how they grow.

A peak is the highest minute of a day; of a history too short for a trend, the highest of all. Whether a host is
full now is told by what was seen in the last days, too: the trend hides what is odd. The trend is by
least squares with Huber's weights (Huber 1981, Robust Statistics, ch. 7), with an effect of each day of the week,
because a week has quiet days and a backup or a promotion is no trend. Growth is by the same amount a day, or by
the same share: a history of weeks often cannot tell them apart, and then the interval covers both. Days are alike
from one to the next, so the error is widened by their autocorrelation (Bayley & Hammersley 1946, The "effective"
number of independent observations, JRSS Suppl. 8).

The date is the day on which the busiest day of a week reaches the knee. Its interval is drawn from the errors
of the level and the slope, and from the knee's interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.intervals import Interval, t_quantile
from headrace.capacity.buy import Bought, in_vain, more, saves
from headrace.capacity.capacity import STOCKS, Known, exactly
from headrace.capacity.device import PAGES
from headrace.capacity.history import History, overall_of, peaks_of
from headrace.capacity.model import Capacity, Demand, Resource
from headrace.capacity.outlook import RECENT_DAYS, Growth, Outlook, Seen, State
from headrace.capacity.sums import added
from headrace.history.archive.files import DAY_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.capacity.history import Peaks
    from headrace.capacity.pool import Pool

    Floats = NDArray[np.float64]

ALPHA = 0.05
#: Whole days without which there is no date: less cannot tell a week's season from growth.
LEAST_DAYS = 14
#: A date further away than so many times the history is no date any more, nor one after three years.
FURTHEST, FURTHEST_DAYS = 10, 1096
DRAWS = 4000
#: A law is no longer believed if twice its log likelihood is worse by this (Burnham & Anderson 2002, Model
#: Selection, sec. 2.6: models that far off have essentially no support).
WORSE_LAW = 10.0
#: Peaks that differ by no more than this, relative to their size, are the same.
ROUNDING = 1e-9
#: Huber's constant: 95% efficient if nothing is odd.
HUBER = 1.345


@dataclass(frozen=True)
class Host:
    """``outlooks``: the fullest first, those whose limit is a lower bound last. ``unknown``: used, but with no
    capacity known.
    """

    name: str
    end_s: int
    outlooks: tuple[Outlook, ...]
    unknown: tuple[Resource, ...] = ()
    bought: tuple[Bought, ...] = ()
    in_vain: tuple[Resource, ...] = ()
    ops_s: Interval | None = None
    objective: str = ""
    notes: tuple[str, ...] = ()

    @property
    def first_full(self) -> Outlook | None:
        """What is full soonest: now, then by date, then by room. Of a limit that is a lower bound only if no other
        is known.
        """
        return min(self.outlooks, key=_urgency, default=None)


def _urgency(each: Outlook) -> tuple[bool, int, float]:
    if each.state in (State.NOW, State.MAYBE):
        return each.is_at_least, 0, each.room
    if each.state is State.DATED and each.day is not None:
        return each.is_at_least, 1, each.day.estimate
    return each.is_at_least, 2, each.room


def outlook(
    history: History,
    known: Known,
    pool: Pool | None = None,
    instead: Mapping[Resource, float] | None = None,
    seed: int = 1,
) -> Host:
    """What fills the host, and when; and what more of a resource brings: see ``buy.more``."""
    rng = np.random.default_rng(seed)
    demand = history.demand
    end_s = demand.start_s + demand.steps * demand.step_s
    found, unknown = [], []
    for resource, values in demand.used.items():
        if not np.isfinite(values).any():
            continue
        full_at = known.full_at(resource)
        if full_at is None or full_at.estimate <= 0:
            unknown.append(resource)
            continue
        one = _outlook(resource, history, full_at, known, end_s, rng)
        found.append(one)
    found.sort(key=lambda each: (each.is_at_least, each.room))
    # A lower bound that is reached first limits nothing yet.
    sure = [each for each in found if not each.is_at_least]
    notes = [*history.notes, *known.notes]
    if pool is not None and not saves(sure):
        notes.append("what a larger pool brings is unknown, because no limit of reads is: --limit reads=3000")
    bought = more(sure, known, pool, instead, _pages(history))
    return Host(
        history.host, end_s, tuple(found), tuple(unknown), bought, in_vain(sure), known.ops_s, known.objective,
        tuple(notes),
    )  # fmt: skip


def summed(history: History, known: Known) -> History:
    """With the use of sums (``model.SUMS``) that have a limit."""
    [demand], notes = added([history.demand], known.capacity.limit)
    peaks = {
        whole: peaks_of(demand.most.get(whole, values), demand.start_s, demand.step_s)
        for whole, values in demand.used.items()
        if whole not in history.demand.used
    }
    return replace(history, demand=demand, peaks={**peaks, **history.peaks}, notes=(*history.notes, *notes))


def _pages(history: History) -> dict[Resource, float]:
    """The share of a device's writes that are of data pages."""
    found = {}
    for resource, part in PAGES.items():
        if resource in history.demand.used and part in history.parts:
            both = np.stack([history.parts[part], history.demand.used[resource]])
            pages, whole = both[:, np.isfinite(both).all(axis=0)].sum(axis=1)
            if whole > 0:
                found[resource] = float(pages / whole)
    return found


def _outlook(
    resource: Resource,
    history: History,
    full_at: Interval,
    known: Known,
    end_s: int,
    rng: np.random.Generator,
) -> Outlook:
    values = history.demand.used[resource]
    highest = history.demand.most.get(resource, values)
    peaks = history.peaks.get(resource)
    overall = history.overall.get(resource) or overall_of(values)
    assert overall is not None
    laws = growth(peaks) if peaks is not None else ()
    if laws:
        peak = laws[0].peak
    else:
        # Too few days tell a rare peak from a wild one: a batch of once a week is in one of them.
        seen = peaks.most if peaks is not None else highest[:0]
        peak = max(float(np.nanmax(highest)), float(seen.max(initial=-math.inf)))
    one = Outlook(
        resource, peak, overall.mean, full_at, known.capacity.limit[resource], State.NO_DATE,
        _seen(resource, history, full_at.estimate, end_s),
        growth=laws[0] if laws else None, watched=overall.watched,
        limit_from=known.limit_from.get(resource, ""),
        knee_from=known.knee_from.get(resource, ""),
    )  # fmt: skip
    if one.now >= full_at.estimate:
        return replace(one, state=State.MAYBE if one.is_at_least else State.NOW)
    if not laws or peaks is None:
        return one
    furthest = min(FURTHEST * float(peaks.day[-1] - peaks.day[0] + 1), FURTHEST_DAYS)
    state, day = date(laws, full_at, furthest, rng)
    # The trend ends with the last whole day, which may be before the end of the history.
    return replace(one, state=state, day=_earlier(day, end_s / DAY_S - float(peaks.day[-1] + 1)))


def _seen(resource: Resource, history: History, full_at: float, end_s: int) -> Seen:
    demand = history.demand
    values = demand.used[resource]
    steps = peaks_of(np.fmax(values, demand.most.get(resource, values)), demand.start_s, demand.step_s, 0.0)
    # The steps also have days that are not whole, the peaks those that are older than the steps.
    both = [steps, *([history.peaks[resource]] if resource in history.peaks else [])]
    days, at = np.unique(np.concatenate([each.day for each in both]), return_inverse=True)
    most = np.full(len(days), -np.inf)
    np.maximum.at(most, at, np.concatenate([each.most for each in both]))
    beyond = days[most >= full_at]
    lately = days > (end_s - 1) // DAY_S - (1 if resource in STOCKS else RECENT_DAYS)
    return Seen(
        len(days), float(most.max()), int(days[most.argmax()]) * DAY_S, len(beyond),
        int(beyond[-1]) * DAY_S if len(beyond) else None, float(most[lately].max(initial=0.0)),
    )  # fmt: skip


def _earlier(day: Interval | None, days: float) -> Interval | None:
    if day is None or day.low is None or day.high is None:
        return day
    return Interval(*(max(each - days, 0.0) for each in (day.estimate, day.low, day.high)))


def growth(peaks: Peaks) -> tuple[Growth, ...]:
    """The trend of daily peaks by each law that the history allows, the one that fits best first; () if days
    are too few.

    The season of the week multiplies, in both laws: a busy day is busier by a share of what the others have.
    """
    days = peaks.day.astype(np.float64)
    values = np.maximum(peaks.most, 1e-3 * max(float(peaks.most.max(initial=0.0)), 1e-300))
    weekday = peaks.day % 7
    kinds = np.unique(weekday)
    if len(days) < max(LEAST_DAYS, len(kinds) + 5):
        return ()
    if float(np.ptp(peaks.most)) <= ROUNDING * float(np.abs(peaks.most).max()):
        # Fits would find a slope, and of nothing a level, in the rounding of their arithmetic.
        return (Growth(exactly(float(peaks.most[-1])), exactly(0.0), len(days), False),)
    t = days - days[-1]
    season = np.array([weekday == kind for kind in kinds], dtype=np.float64).T
    logs = _line(np.column_stack([t, season]), np.log(values), days, 0)
    busiest = int(np.argmax(logs.found[1:])) + 1
    effect = logs.found[1:][np.searchsorted(kinds, weekday)] - logs.found[busiest]
    # The season is in the logs' fit; its error is that of the busiest day relative to the average of all.
    apart = np.zeros(len(logs.found))
    apart[1:], apart[busiest] = -1 / len(kinds), 1 - 1 / len(kinds)
    off = float(apart @ logs.spread @ apart)
    plain = _line(np.column_stack([t, np.ones(len(t))]), values / np.exp(effect), days, len(kinds) - 1)
    share = Growth(_around(logs, busiest, 0.0), _around(logs, 0, 0.0), len(days), True)
    more = off * float(plain.found[1]) ** 2
    amount = Growth(_around(plain, 1, more), _around(plain, 0, 0.0), len(days), False)
    by_share = np.exp(season @ logs.found[1:] + t * logs.found[0])
    by_amount = (plain.found[1] + t * plain.found[0]) * np.exp(effect)
    ahead = _ahead(values, by_amount, by_share) / logs.widen
    best, other = (amount, share) if ahead >= 0 else (share, amount)
    return (best, other) if abs(ahead) < WORSE_LAW else (best,)


@dataclass(frozen=True)
class _Line:
    found: Floats
    spread: Floats
    freedom: float
    widen: float


def _line(rows: Floats, values: Floats, days: Floats, taken: int) -> _Line:
    """A robust fit with the covariance of its coefficients; ``taken``: parameters that were removed before."""
    found, weights = _huber(rows, values)
    k = rows.shape[1] + taken
    left = values - rows @ found
    freedom = max(float(weights.sum()) - k, 1.0)
    variance = float(np.sum(weights * left**2)) / freedom
    alike = _autocorrelation(days, np.clip(left, -4 * math.sqrt(variance), 4 * math.sqrt(variance)), k)
    widen = (1 + alike) / (1 - alike)
    spread = widen * variance * np.linalg.pinv(rows.T @ (rows * weights[:, None]))
    return _Line(found, spread, max(freedom / widen, 2.0), widen)


def _around(line: _Line, at: int, more: float) -> Interval:
    half = t_quantile(line.freedom, ALPHA) * math.sqrt(max(float(line.spread[at, at]), 0.0) + more)
    return Interval(float(line.found[at]), float(line.found[at]) - half, float(line.found[at]) + half)


def _ahead(values: Floats, first: Floats, second: Floats) -> float:
    """By how much the first law's log likelihood, twice, exceeds the second's; odd days count little."""
    left = [values / np.maximum(fitted, 1e-300) - 1 for fitted in (first, second)]
    scale = 1.4826 * min(float(np.median(np.abs(each))) for each in left)
    if scale <= 0:
        return math.copysign(math.inf, float(np.abs(left[1]).sum() - np.abs(left[0]).sum()))
    far = [np.abs(each) / scale for each in left]
    cost = [np.where(each < HUBER, each**2, 2 * HUBER * each - HUBER**2).sum() for each in far]
    return float(cost[1] - cost[0])


def _huber(rows: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Coefficients, and each day's weight: below 1 for odd ones."""
    weights = np.ones(len(values))
    found: Floats = np.zeros(rows.shape[1])
    for _ in range(30):
        root = np.sqrt(weights)
        found = np.asarray(np.linalg.lstsq(rows * root[:, None], values * root, rcond=None)[0])
        left = values - rows @ found
        scale = 1.4826 * float(np.median(np.abs(left)))
        if scale <= 1e-12 * max(float(np.abs(values).max()), 1e-300):
            break
        weights = np.minimum(1.0, HUBER * scale / np.maximum(np.abs(left), 1e-300))
    return found, weights


def _autocorrelation(days: Floats, left: Floats, k: int) -> float:
    """Of neighbouring days, without the bias towards 0 of a short series (Kendall 1954, Biometrika 41); 0 to
    0.9.
    """
    next_to = np.diff(days) == 1
    total = float(left @ left)
    if next_to.sum() < 5 or total <= 0:
        return 0.0
    pairs = float((left[1:] * left[:-1])[next_to].sum()) / int(next_to.sum())
    found = pairs / (total / len(left))
    return float(np.clip(found + (1 + 3 * found) / max(len(days) - k, 1), 0.0, 0.9))


def date(
    laws: Sequence[Growth], full_at: Interval, furthest_days: float, rng: np.random.Generator
) -> tuple[State, Interval | None]:
    """Days until the level reaches the knee, from the end of the history; the interval is of all laws."""
    knee = np.maximum(_drawn(full_at, rng), 1e-300)
    found = float(_days(laws[0], laws[0].level.estimate, laws[0].slope.estimate, full_at.estimate))
    low = high = found
    for law in laws:
        drawn = _days(law, _drawn(law.level, rng), _drawn(law.slope, rng), knee)
        low = min(low, float(np.quantile(drawn, ALPHA / 2, method="lower")))
        high = max(high, float(np.quantile(drawn, 1 - ALPHA / 2, method="higher")))
    day = Interval(found, low, high)
    if not math.isfinite(found):
        return State.NEVER, day if low <= furthest_days else None
    if found > furthest_days:
        return State.LATER, day if low <= furthest_days else None
    return State.DATED, day


def _drawn(interval: Interval, rng: np.random.Generator) -> Floats:
    """Normal draws with the interval as their 95%; its halves may differ."""
    draws = rng.standard_normal(DRAWS)
    low = interval.estimate if interval.low is None else interval.low
    high = interval.estimate if interval.high is None else interval.high
    half = np.where(draws < 0, interval.estimate - low, high - interval.estimate) / 1.96
    return np.asarray(interval.estimate + draws * half)


def _days(law: Growth, level: Floats | float, slope: Floats | float, knee: Floats | float) -> Floats:
    reached = np.log(knee) if law.is_share else np.asarray(knee)
    room = np.maximum(reached - np.asarray(level), 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        days = np.where(np.asarray(slope) > 0, room / np.asarray(slope), np.inf)
    return np.asarray(np.where(room <= 0, 0.0, days))


# All hosts together.


@dataclass(frozen=True)
class Together:
    """The hosts' use of a resource as one: ``peak`` of the sum over time, against the ``sum_of_peaks`` that
    it would be if all peaks coincided, and the ``mean`` that hides them. ``full_at``: the knees' sum, which
    ``is_at_least`` if the limit of any host is a lower bound; ``without_largest``: the same without the largest
    host. ``at_s``: when the peak was. ``outlook``: as of a host, from ``end_s`` on; None if the limit of any host
    is unknown or a lower bound.
    """

    resource: Resource
    hosts: int
    mean: float
    peak: float
    sum_of_peaks: float
    full_at: float
    without_largest: float
    at_s: int
    watched: float
    end_s: int
    is_at_least: bool = False
    outlook: Outlook | None = None

    @property
    def coincide(self) -> float:
        """1: all hosts have their peak at the same time; 0: never more than their means."""
        most = self.sum_of_peaks - self.mean
        return (self.peak - self.mean) / most if most > 0 else 1.0


def together(histories: Sequence[History], known: Mapping[str, Known], seed: int = 1) -> tuple[Together, ...]:
    """Those with a known limit first, the fullest in front."""
    found = []
    for resource in Resource:
        using = [h for h in histories if resource in h.demand.used]
        own = [h for h in using if known[h.host].full_at(resource)]
        if resource in STOCKS or len(own) < 2:
            continue
        joint = _joint(resource, own, known, np.random.default_rng(seed))
        if joint is not None:
            found.append(joint if len(own) == len(using) else replace(joint, outlook=None))
    return tuple(sorted(found, key=lambda each: (each.is_at_least, _room(each))))


def _room(each: Together) -> float:
    return each.full_at / each.peak if each.peak > 0 else math.inf


def _joint(
    resource: Resource, own: Sequence[History], known: Mapping[str, Known], rng: np.random.Generator
) -> Together | None:
    """Only steps in which every host was watched count: an unknown host is no idle one."""
    values = np.array([h.demand.used[resource] for h in own])
    whole = np.isfinite(values).all(axis=0)
    if not whole.any():
        return None
    total = np.where(whole, values.sum(axis=0), np.nan)
    at = int(np.nanargmax(total))
    first = own[0].demand
    end_s = first.start_s + first.steps * first.step_s
    full = [end for h in own if (end := known[h.host].full_at(resource)) is not None]
    full_at = _sum(full)
    is_at_least = any(known[h.host].is_at_least(resource) for h in own)
    outlook = None
    if not is_at_least:
        joint = History(
            Demand("", first.start_s, first.step_s, {resource: total}),
            peaks={resource: peaks_of(total, first.start_s, first.step_s)},
        )
        limit = _sum([known[h.host].capacity.limit[resource] for h in own])
        outlook = _outlook(resource, joint, full_at, Known(Capacity("", {resource: limit})), end_s, rng)
    return Together(
        resource, len(own), float(values[:, whole].mean(axis=1).sum()), float(total[at]),
        float(values[:, whole].max(axis=1).sum()), full_at.estimate,
        full_at.estimate - max(each.estimate for each in full),
        first.start_s + at * first.step_s, float(whole.mean()), end_s, is_at_least, outlook,
    )  # fmt: skip


def _sum(found: Sequence[Interval]) -> Interval:
    """The ends add up, too: knees that are assumed are wrong in the same direction."""
    ends = (
        math.fsum(each.estimate if end is None else end for each, end in zip(found, side, strict=True))
        for side in ([each.low for each in found], [each.high for each in found])
    )
    return Interval(math.fsum(each.estimate for each in found), *ends)
