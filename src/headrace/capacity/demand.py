"""What one call of each query class costs, by regression of a host's use of its resources on the calls over
time.

In each step the use of a resource is a background plus, for every class, calls times the cost of one call. No
cost is negative, so least squares are solved with that bound (Lawson & Hanson 1974, Solving Least Squares
Problems, ch. 23). Steps are weighted by the inverse of their expected use, because counts and costs vary more
where there is more of them.

Intervals are by a moving block bootstrap (Kuensch 1989, The jackknife and the bootstrap for general
stationary observations, Ann. Statist. 17): neighbouring steps are alike (a checkpoint, a backup, a warm
cache), and drawing single steps would take them for independent. Steps are drawn with their calls, because
the calls are observed, too.

Classes whose calls rise and fall together cannot be told apart by any regression: their variance inflation
factor (Belsley, Kuh & Welsch 1980, Regression Diagnostics, ch. 3) is large. They are grouped, and only the
cost of the group, in the proportion in which its classes came, is stated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.intervals import Interval, t_quantile
from headrace.capacity.model import Resource
from headrace.capacity.used import Part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.capacity.history import History

    Floats = NDArray[np.float64]

ALPHA = 0.05
#: Classes that are looked at one by one, the most frequent; the others together are one.
MOST_CLASSES = 20
OTHERS = "all other classes"
#: Steps per unknown, at least.
STEPS_PER_CLASS = 5
#: Above this a class is the others' shadow: they explain 99% of its variation.
INFLATION = 100.0
#: Calls that vary by less than this, relative to their mean, cannot be told from the background.
VARIES = 0.03
RESAMPLES = 400
#: Rates that a call can cost something of.
COSTS = (
    Resource.CPU, Part.USER, Part.SYSTEM, Part.SOFTIRQ, Part.SERVER, Resource.READS, Resource.WRITES,
    Resource.READ_BYTES, Resource.WRITE_BYTES, Resource.LOG_BYTES, Resource.PACKETS,
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Classes whose costs can be stated together only; usually one. ``shares``: of the group's calls."""

    classes: tuple[str, ...]
    shares: tuple[float, ...]
    calls: float  # per second, the mean

    @property
    def name(self) -> str:
        return " + ".join(self.classes)


@dataclass(frozen=True)
class Fit:
    """One resource: ``costs[i]`` of a call of group ``i``, ``background`` per second without any call.

    ``explained`` is the share of the variation over time that the calls explain.
    """

    resource: str
    costs: tuple[Interval, ...]
    background: Interval
    explained: float
    steps: int


@dataclass(frozen=True)
class Costs:
    """What calls cost on one host. ``locks[i]``: seconds that a call of group ``i`` waited for locks, as the
    server counted it, or None. ``steady``: classes that always came at the same rate, so that their cost is in
    the background; ``refusal``: why there is nothing, or "".
    """

    host: str
    groups: tuple[Group, ...] = ()
    fits: Mapping[str, Fit] | None = None
    locks: tuple[Interval | None, ...] = ()
    steady: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: str = ""

    def cost(self, resource: str, name: str) -> Interval | None:
        """Of one call of a class that is its own group."""
        for number, group in enumerate(self.groups):
            if group.classes == (name,) and self.fits and resource in self.fits:
                return self.fits[resource].costs[number]
        return None


def costs(history: History, seed: int = 1) -> Costs:
    """The costs of a call on one host; a refusal if the history does not allow any."""
    host = history.host
    if not history.calls:
        why = (
            "no calls were counted: neither by performance_schema, nor in a slow log, nor as commands of a "
            "server or of memcached"
        )
        return Costs(host, refusal=why)
    usable = np.isfinite(np.array(list(history.calls.values()))).all(axis=0)
    names, design, more = _design(history.calls, usable)
    groups, columns, steady = _grouped(names, design)
    if not groups:
        why = "every class had a constant rate all the time: costs can only be estimated if rates vary"
        return Costs(host, steady=steady, refusal=why)
    unknowns = len(groups) + 1
    if len(columns) < STEPS_PER_CLASS * unknowns:
        why = f"{len(columns)} steps are too few for {unknowns} unknowns: {STEPS_PER_CLASS * unknowns} are needed"
        return Costs(host, groups, steady=steady, refusal=why)
    rng = np.random.default_rng(seed)
    fits = {}
    series: dict[str, Floats] = {str(r): values for r, values in history.demand.used.items()}
    series |= {str(part): values for part, values in history.parts.items()}
    for resource in COSTS:
        values = series.get(str(resource))
        if values is None:
            continue
        known = np.isfinite(values[usable])
        if known.sum() >= STEPS_PER_CLASS * unknowns and np.nansum(values[usable]) > 0:
            fits[str(resource)] = _fit(str(resource), columns[known], values[usable][known], rng)
    if not fits:
        return Costs(host, groups, steady=steady, refusal=_nothing(series, usable))
    notes = [*more, *_together(groups)]
    locks = tuple(_lock(history, group, rng) for group in groups)
    return Costs(host, groups, fits, locks, steady, tuple(notes))


def _nothing(series: Mapping[str, Floats], usable: NDArray[np.bool_]) -> str:
    """Why no resource has a cost."""
    known = [
        values[usable] for r, values in series.items() if r in COSTS and np.isfinite(values[usable]).any()
    ]
    if not known:
        return "no resource was sampled while calls were counted"
    if not any(np.nansum(values) > 0 for values in known):
        return "what was sampled while calls were counted was idle all the time"
    return "resources were sampled in too few of the steps in which calls were counted"


def _lock(history: History, group: Group, rng: np.random.Generator) -> Interval | None:
    """Lock time per call: a ratio of sums, so a step counts with its calls; of the classes that have any count."""
    known = [name for name in group.classes if name in history.lock_s and name in history.calls]
    if not known:
        return None
    waited, calls = (np.sum([rates[n] for n in known], axis=0) for rates in (history.lock_s, history.calls))
    is_known = np.isfinite(waited) & np.isfinite(calls)
    waited, calls = waited[is_known], calls[is_known]
    if calls.sum() <= 0:
        return None
    ratio = float(waited.sum() / calls.sum())
    n, length = len(calls), _block_length(waited - ratio * calls)
    count = max(round(n / length), 1)
    chosen = rng.integers(0, n, size=(RESAMPLES, count))
    sums = [_blocks(each, length)[chosen].sum(axis=1) for each in (waited, calls)]
    drawn = sums[0] / np.maximum(sums[1], 1e-300)
    return _interval(ratio, drawn[sums[1] > 0], max(float(count - 1), 1.0))


def _design(
    calls: Mapping[str, Floats], usable: NDArray[np.bool_]
) -> tuple[list[str], Floats, tuple[str, ...]]:
    """The most frequent classes as columns, the rest as one; as many as the steps allow."""
    rates = {name: rate[usable] for name, rate in calls.items() if rate[usable].sum() > 0}
    order = sorted(rates, key=lambda name: -float(rates[name].sum()))
    most = max(1, min(MOST_CLASSES, int(usable.sum()) // (2 * STEPS_PER_CLASS)))
    own, rest = order[:most], order[most:]
    columns = [rates[name] for name in own]
    if not rest:
        return own, np.column_stack(columns) if columns else np.empty((0, 0)), ()
    columns.append(np.sum([rates[name] for name in rest], axis=0))
    note = f"{len(rest)} rarer classes are one: the history has too few steps to tell more apart"
    return [*own, OTHERS], np.column_stack(columns), (note,)


def _grouped(names: Sequence[str], design: Floats) -> tuple[tuple[Group, ...], Floats, tuple[str, ...]]:
    """Groups with their columns (the sum of their calls), without those that never vary."""
    if not design.size:
        return (), design, ()
    mean = design.mean(axis=0)
    varies = design.std(axis=0) > VARIES * mean
    steady = tuple(name for name, moves in zip(names, varies, strict=True) if not moves)
    members = [[int(i)] for i in np.flatnonzero(varies)]
    while len(members) > 1:
        columns = np.column_stack([design[:, own].sum(axis=1) for own in members])
        inflation, alike = _inflation(columns)
        worst = int(np.argmax(inflation))
        if inflation[worst] < INFLATION:
            break
        # The one that it resembles most; the others follow, if they are its shadows as well.
        closest = int(np.argmax(np.where(np.arange(len(members)) == worst, -1, np.abs(alike[worst]))))
        first, second = sorted((worst, closest))
        members[first] += members.pop(second)
    groups = []
    for own in members:
        total = float(mean[own].sum())
        groups.append(Group(tuple(names[i] for i in own), tuple(float(mean[i]) / total for i in own), total))
    columns = np.column_stack([design[:, own].sum(axis=1) for own in members]) if members else design[:, :0]
    return tuple(groups), columns, steady


def _inflation(columns: Floats) -> tuple[Floats, Floats]:
    """Variance inflation factors, and correlations."""
    alike = np.atleast_2d(np.corrcoef(columns, rowvar=False))
    # A tiny ridge, so that exact copies have a large factor instead of none.
    inverse = np.linalg.inv(alike + 1e-9 * np.eye(len(alike)))
    return np.diag(inverse), alike


def _together(groups: Sequence[Group]) -> list[str]:
    return [
        f"{group.name} always come together, so only the cost of all of them per call is known; a time in "
        f"which their "
        "proportion differs, or one of them played alone, would tell them apart"
        for group in groups
        if len(group.classes) > 1
    ]


def _fit(resource: str, calls: Floats, use: Floats, rng: np.random.Generator) -> Fit:
    """``calls``: shape (steps, groups)."""
    rows = np.column_stack([np.ones(len(use)), calls])
    scale = np.sqrt((rows**2).mean(axis=0))
    rows = rows / scale
    found, weights = _weighted(rows, use)
    drawn, freedom = _bootstrap(rows, use, weights, rng)
    parts = [_interval(found[i] / scale[i], drawn[:, i] / scale[i], freedom) for i in range(len(scale))]
    total = float(np.sum((use - use.mean()) ** 2))
    left = float(np.sum((use - rows @ found) ** 2))
    explained = 1 - left / total if total > 0 else 0.0
    return Fit(resource, tuple(parts[1:]), parts[0], max(explained, 0.0), len(use))


def _weighted(rows: Floats, use: Floats) -> tuple[Floats, Floats]:
    """The costs, and each step's weight: two rounds are enough, because weights need not be exact."""
    from scipy.optimize import nnls

    weights = np.ones(len(use))
    found = np.zeros(rows.shape[1])
    for _ in range(3):
        root = np.sqrt(weights)
        found = nnls(rows * root[:, None], use * root)[0]
        fitted = rows @ found
        # A floor, so that an idle night does not decide everything.
        weights = 1 / np.maximum(fitted, 0.1 * max(float(fitted.mean()), 1e-300))
        weights /= weights.mean()
    return found, weights


def _bootstrap(rows: Floats, use: Floats, weights: Floats, rng: np.random.Generator) -> tuple[Floats, float]:
    """Costs of resampled histories, shape (RESAMPLES, columns), without the bound at 0, and degrees of
    freedom.

    Every block of steps is reduced to its normal equations once, so a resample is a sum and one small
    solution.
    """
    n, k = rows.shape
    length = _block_length(use - rows @ np.linalg.lstsq(rows, use, rcond=None)[0])
    weighted = rows * weights[:, None]
    squares = _blocks(weighted[:, :, None] * rows[:, None, :], length)
    products = _blocks(weighted * use[:, None], length)
    count = max(round(n / length), 1)
    chosen = rng.integers(0, n, size=(RESAMPLES, count))
    whole = squares[chosen].sum(axis=1) + 1e-9 * np.eye(k)
    drawn = np.linalg.solve(whole, products[chosen].sum(axis=1)[..., None])[..., 0]
    return drawn, max(float(count - k), 1.0)


def _blocks(values: Floats, length: int) -> Floats:
    """Sums over each block of steps; circular, so that no step is drawn less often than others."""
    ends = np.cumsum(np.concatenate([values, values[:length]]), axis=0)
    return np.asarray(ends[length:] - ends[:-length])


def _block_length(left: Floats) -> int:
    """Steps until residuals are no longer alike, at least n^(1/3) (Hall, Horowitz & Jing 1995, Biometrika
    82).
    """
    n = len(left)
    centred = left - left.mean()
    power = float(centred @ centred)
    longest = max(n // 8, 1)
    lag = 1
    while lag < longest and power > 0 and float(centred[lag:] @ centred[:-lag]) / power > 2 / math.sqrt(n):
        lag += 1
    return int(min(max(round(n ** (1 / 3)), 2 * (lag - 1)), longest)) or 1


def _interval(found: float, drawn: Floats, freedom: float) -> Interval:
    """By t with the bootstrap's error, cut at 0: few blocks make percentiles of a bootstrap too narrow."""
    error = float(np.std(drawn, ddof=1))
    half = t_quantile(freedom, ALPHA) * error
    # Around the unbounded centre: at the bound the estimate is 0, and the interval must still hold what is
    # possible.
    centre = float(np.median(drawn))
    low, high = min(centre - half, found), max(centre + half, found)
    return Interval(found, max(low, 0.0), max(high, 0.0))
