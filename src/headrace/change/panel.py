"""Hosts by blocks of time: the log of each response, with the mix of query classes held fixed.

Each class has its share of the host's calls before the change, on both sides. So a workload whose mix shifted does
not look like a change of the latencies. (Direct standardisation: Keiding & Clayton 2014, Statistical Science 29.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.percentiles import MIN_BEYOND, PERCENTILES
from headrace.change.production import ALL, OTHERS, Gets, Series
from headrace.change.production.series import common_edges, rebinned

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

THROUGHPUT = "throughput"
#: Of a cache: gets that did not find their key / all gets.
MISS_RATE = "miss-rate"
RESPONSES = (THROUGHPUT, "p50", "p90", "p99", "p99.9", MISS_RATE)
_FRACTIONS = {name: PERCENTILES[name][0] / PERCENTILES[name][1] for name in RESPONSES if name in PERCENTILES}

#: A block needs data for this share of its time.
MIN_COVERED = 0.5
#: A class has a distribution of its own if each block has this many calls of it; rarer ones are one class.
MIN_CALLS = 20


@dataclass(frozen=True)
class Window:
    """When the change was made, and which times count: before until ``to_s``, after from ``from_s`` on.

    Sources of the two sides may be days apart.
    """

    at_s: float
    to_s: float
    from_s: float
    since_s: float
    until_s: float


@dataclass(frozen=True, eq=False)
class Cells:
    """Of one response: shape (hosts, blocks), NaN for a gap. ``width`` is that of the percentile's bucket, in
    logs.
    """

    log: Floats
    width: Floats
    #: Blocks with data, but too few calls for this percentile; for throughput, without any.
    too_few: int = 0


@dataclass(frozen=True, eq=False)
class Panel:
    """``start_s`` and ``is_after`` have shape (blocks,). ``merged_ns`` is (before, after) of everything merged."""

    hosts: tuple[str, ...]
    start_s: Floats
    is_after: Bools
    block_s: float
    cells: dict[str, Cells]
    merged: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: Share of the calls before of classes that are absent after, of those too rare, and of new ones after.
    gone: float = 0.0
    rare: float = 0.0
    new: float = 0.0


@dataclass(frozen=True, eq=False)
class _Host:
    """``counts`` has shape (classes, blocks, buckets); ``covered_s`` (blocks,)."""

    counts: Floats
    covered_s: Floats


@dataclass(frozen=True, eq=False)
class _Fixed:
    """A host's distributions, standardised: (blocks, buckets), and how many calls each is worth, (blocks,)."""

    shares: Floats
    worth: Floats
    sides: Floats
    calls: float
    gone: float
    rare: float
    new: float


def panel(
    series: Sequence[Series],
    hosts: Sequence[str],
    window: Window,
    block_s: float,
    treated: int,
    gets: Sequence[Gets] = (),
) -> Panel:
    """Blocks of this length, counted from the change in both directions; hosts of ``hosts``, in their order.

    The first ``treated`` hosts are the changed ones: only these are merged.
    """
    # The outermost block of a side may be shorter, as far as a block may have gaps.
    earlier = int((window.to_s - window.since_s) / block_s + MIN_COVERED)
    later = int((window.until_s - window.from_s) / block_s + MIN_COVERED)
    start = np.concatenate(
        (window.to_s - block_s * np.arange(earlier, 0, -1), window.from_s + block_s * np.arange(later))
    )
    is_after = np.arange(earlier + later) >= earlier
    edges = common_edges(series)
    names = [name for name in RESPONSES if name != MISS_RATE]
    log = {name: np.full((len(hosts), len(start)), np.nan) for name in names}
    width = {name: np.full((len(hosts), len(start)), np.nan) for name in names}
    few = dict.fromkeys(names, 0)
    sides, calls, lost = [], [], []
    for i, host in enumerate(hosts):
        own = _of_host([each for each in series if each.host == host], edges, window, block_s, earlier, later)
        good = own.covered_s >= MIN_COVERED * block_s
        total = own.counts.sum(axis=(0, 2))
        rate = np.where(good & (total > 0), total / np.maximum(own.covered_s, 1e-9), np.nan)
        if total[good].any():
            # A block without a call has no log of a rate, but it is no gap: it is joined with its neighbours.
            few[THROUGHPUT] += int((good & ~(total > 0)).sum())
        log[THROUGHPUT][i], width[THROUGHPUT][i] = np.log(rate), np.where(np.isfinite(rate), 0.0, np.nan)
        found = _fixed(own.counts, is_after, good)
        if found is None:
            continue
        if i < treated:
            sides.append(found.sides)
            calls.append(found.calls)
            lost.append((found.gone, found.rare, found.new))
        for name, fraction in _FRACTIONS.items():
            enough = good & (found.worth * (1 - fraction) >= MIN_BEYOND)
            few[name] += int((good & ~enough).sum())
            value, wide = quantiles(found.shares, edges, fraction)
            log[name][i], width[name][i] = np.where(enough, value, np.nan), np.where(enough, wide, np.nan)
    weights = np.array(calls) / max(sum(calls), 1.0)
    gone, rare, new = (weights @ np.array(lost)) if lost else (0.0, 0.0, 0.0)
    cells = {name: Cells(log[name], width[name], few[name]) for name in names}
    merged = _merged(sides, weights, edges)
    if gets:
        asked, missed = _gets(gets, hosts, window, block_s, earlier, later)
        cells[MISS_RATE] = _miss_rates(asked, missed)
        merged[MISS_RATE] = _miss_rate(asked[:treated], missed[:treated], is_after)
    return Panel(
        tuple(hosts), start, is_after, block_s, cells, merged, float(gone), float(rare), float(new)
    )  # fmt: skip


def _gets(
    gets: Sequence[Gets], hosts: Sequence[str], window: Window, block_s: float, earlier: int, later: int
) -> tuple[Floats, Floats]:
    """Gets and misses, (hosts, blocks)."""
    asked, missed = np.zeros((2, len(hosts), earlier + later))
    lines = {host: line for line, host in enumerate(hosts)}
    for each in gets:
        if each.host in lines:
            place = _places(each.start_s, each.end_s, window, block_s, earlier, later)
            keep = place >= 0
            np.add.at(asked[lines[each.host]], place[keep], each.gets[keep])
            np.add.at(missed[lines[each.host]], place[keep], each.misses[keep])
    return asked, missed


def _miss_rates(asked: Floats, missed: Floats) -> Cells:
    """As for a percentile: with few misses in a block their share is chance."""
    enough = missed >= MIN_BEYOND
    share = np.where(enough, missed / np.maximum(asked, 1.0), 1.0)
    log = np.where(enough, np.log(share), np.nan)
    return Cells(log, np.where(enough, 0.0, np.nan), int(((asked > 0) & ~enough).sum()))


def _miss_rate(asked: Floats, missed: Floats, is_after: Bools) -> tuple[float, float]:
    """Before and after, of all gets of these hosts together; NaN without any."""
    before, after = (
        float(missed[:, side].sum() / asked[:, side].sum()) if asked[:, side].any() else float("nan")
        for side in (~is_after, is_after)
    )
    return before, after


def _of_host(
    series: Sequence[Series], edges: Floats, window: Window, block_s: float, earlier: int, later: int
) -> _Host:
    names = list(dict.fromkeys(each.query_class for each in series))
    counts = np.zeros((len(names), earlier + later, len(edges) - 1))
    # Classes share the stretches: one that has no call in some stretch is not missing there.
    times: set[tuple[float, float]] = set()
    for each in series:
        place = _places(each.start_s, each.end_s, window, block_s, earlier, later)
        keep = place >= 0
        if not keep.any():
            continue
        own = rebinned(each.counts[keep], each.edges_ns, edges)
        np.add.at(counts[names.index(each.query_class)], place[keep], own)
        times.update(zip(each.start_s[keep].tolist(), each.end_s[keep].tolist(), strict=True))
    covered = np.zeros(earlier + later)
    if times:
        start, end = np.array(sorted(times)).T
        # Digests of classes overlap where a host has several logs: time counts once.
        start = np.maximum(start, np.concatenate(([-np.inf], np.maximum.accumulate(end)[:-1])))
        place = _places(start, end, window, block_s, earlier, later)
        keep = place >= 0
        np.add.at(covered, place[keep], np.maximum(end - start, 0.0)[keep])
    return _Host(counts, covered)


def _places(
    start: Floats, end: Floats, window: Window, block_s: float, earlier: int, later: int
) -> NDArray[np.int64]:
    """The block of each stretch, by its middle; -1 if it is in none, or on both sides of the change."""
    middle = (start + end) / 2
    before = earlier + np.floor((middle - window.to_s) / block_s)
    after = earlier + np.floor((middle - window.from_s) / block_s)
    is_before = (end <= window.to_s + 1e-3) & (before >= 0)
    is_after = (start >= window.from_s - 1e-3) & (after < earlier + later)
    found: NDArray[np.int64] = np.where(is_before, before, np.where(is_after, after, -1)).astype(np.int64)
    return found


def _fixed(counts: Floats, is_after: Bools, good: Bools) -> _Fixed | None:
    """None without calls on both sides."""
    calls = counts.sum(axis=2)
    before, after = calls[:, good & ~is_after], calls[:, good & is_after]
    whole_before, whole_after = before.sum(), after.sum()
    if not whole_before or not whole_after:
        return None
    is_both = (before.sum(axis=1) > 0) & (after.sum(axis=1) > 0)
    own = is_both & (calls[:, good] >= MIN_CALLS).all(axis=1)
    rare = is_both & ~own
    rest = counts[rare].sum(axis=0, keepdims=True)
    # Together they are one class if they are frequent enough for that; if no class is, the mix cannot be fixed.
    is_counted = rare.any() and (not own.any() or bool((rest.sum(axis=2)[:, good] >= MIN_CALLS).all()))
    strata = np.concatenate((counts[own], rest[: int(is_counted)]))
    if not len(strata):
        return None
    n = strata.sum(axis=2)
    weights = n[:, good & ~is_after].sum(axis=1)
    weights /= max(weights.sum(), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.einsum("c,cbk->bk", weights, np.where(n[:, :, None] > 0, strata / n[:, :, None], np.nan))
        worth = 1 / (weights[:, None] ** 2 / n).sum(axis=0)
    worth = np.where(np.isfinite(shares).all(axis=1), worth, 0.0)
    sides = np.stack(
        [
            np.einsum("c,ck->k", weights, part / np.maximum(part.sum(axis=1, keepdims=True), 1.0))
            for part in (strata[:, good & ~is_after].sum(axis=1), strata[:, good & is_after].sum(axis=1))
        ]
    )
    few = float(before[rare].sum() / whole_before) if own.any() else 0.0
    return _Fixed(
        np.nan_to_num(shares), worth, sides, float(whole_before),
        float(before[~is_both].sum() / whole_before), few,
        float(after[~is_both].sum() / whole_after),
    )  # fmt: skip


def quantiles(shares: Floats, edges: Floats, fraction: float) -> tuple[Floats, Floats]:
    """The log of a quantile of each row of ``shares`` (n, k), and the width of its bucket in logs.

    Within a bucket the value is interpolated on the log scale; the true one may be anywhere in the bucket. The
    width is infinite in a bucket that starts at 0 or has no end.
    """
    cumulative = np.cumsum(shares, axis=1)
    wanted = fraction * cumulative[:, -1]
    at = np.minimum((cumulative < wanted[:, None] - 1e-12).sum(axis=1), shares.shape[1] - 1)
    rows = np.arange(len(shares))
    inside = shares[rows, at]
    below = cumulative[rows, at] - inside
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.clip(np.where(inside > 0, (wanted - below) / inside, 0.5), 0.0, 1.0)
        low, high = edges[at], edges[at + 1]
        is_bounded = (low > 0) & np.isfinite(high)
        value = np.where(
            is_bounded,
            np.log(low) + part * (np.log(high) - np.log(low)),
            np.where(np.isfinite(high), np.log(np.maximum(part, 0.5) * high), np.log(np.maximum(low, 1.0))),
        )
        wide = np.where(is_bounded, np.log(high) - np.log(low), np.inf)
    return value, wide


def _merged(sides: Sequence[Floats], weights: Floats, edges: Floats) -> dict[str, tuple[float, float]]:
    """Percentiles in ns of all hosts' events together, each host with its share of the calls before."""
    if not sides:
        return {}
    shares = np.einsum("h,hsk->sk", weights, np.stack(list(sides)))
    found = {}
    for name, fraction in _FRACTIONS.items():
        value, wide = quantiles(shares, edges, fraction)
        known = np.where(np.isfinite(wide), np.exp(value), np.nan)
        found[name] = (float(known[0]), float(known[1]))
    return found


def classes_of(series: Sequence[Series]) -> list[str]:
    """Named classes, the most frequent first."""
    calls: dict[str, float] = {}
    for each in series:
        if each.query_class not in (ALL, OTHERS):
            calls[each.query_class] = calls.get(each.query_class, 0.0) + float(each.counts.sum())
    return sorted(calls, key=lambda name: (-calls[name], name))
