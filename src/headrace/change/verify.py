"""Did a change hold in production: before against after, from what was recorded there.

One verdict is given: worse if any response is. So the responses share alpha (Bonferroni; see ``compare.effects``
for why not Holm): the fleet's intervals hold jointly, and so do those of all hosts, and those of all classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.base import intervals
from headrace.base.counted import counted
from headrace.base.effect import Verdict
from headrace.base.intervals import Interval
from headrace.base.percentiles import MIN_BEYOND
from headrace.change.contrast import MIN_BLOCKS, Contrast, contrast
from headrace.change.panel import MISS_RATE, RESPONSES, THROUGHPUT, Panel, Window, classes_of, panel
from headrace.change.production import ALL, Gets, Series
from headrace.change.production.series import ONLY_COUNTS, common_edges
from headrace.experiment.stats.compare import verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MEDIAN = "p50"
#: The shortest block.
LEAST_BLOCK_S = 300.0
#: Neighbouring blocks that are more alike than this are joined, while this many remain on each side.
MOST_ALIKE = 0.5
KEEP_BLOCKS = 12
#: More blocks with too few calls, of all hosts' blocks, and a percentile is that of the busy times only.
MOST_TOO_FEW = 0.05
#: Classes with a verdict of their own.
MOST_CLASSES = 12


@dataclass(frozen=True)
class Change:
    """One response of the fleet, a host or a class. ``before`` and ``after`` are in ns, calls per second or, of
    misses, a share.

    ``controls`` is after / before of the control hosts (1 without any), ``ratio`` that of the changed ones
    relative to it. ``resolution`` is how far the
    buckets alone let the log of the ratio be off; ``over`` is what the interval is over: "hosts", "blocks",
    "controls" (what control hosts changed by themselves) or "weeks".
    ``missing`` says why there is no verdict.
    """

    response: str
    name: str
    before: float
    after: float
    controls: float
    ratio: Interval
    verdict: Verdict
    blocks: tuple[int, int]
    block_s: float
    resolution: float
    over: str
    missing: str = ""


@dataclass(frozen=True, eq=False)
class Band:
    """A percentile over time: ``values`` (hosts, blocks), of treated hosts, then of controls; NaN for gaps."""

    start_s: Floats
    block_s: float
    treated: Floats
    control: Floats


@dataclass(frozen=True, eq=False)
class Verified:
    window: Window
    treated: tuple[str, ...]
    control: tuple[str, ...]
    fleet: tuple[Change, ...]
    hosts: Mapping[str, tuple[Change, ...]]
    classes: Mapping[str, tuple[Change, ...]]
    bands: Mapping[str, Band] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    weeks: int = 0
    #: How many responses share alpha.
    claims: int = 1
    #: Those that may have a verdict at all.
    open_to: tuple[str, ...] = ()

    @property
    def worst(self) -> dict[str, Change]:
        """The host that fared worst in each response."""
        found = {}
        for response, changes in self.hosts.items():
            known = [each for each in changes if math.isfinite(each.ratio.estimate)]
            if known:
                pick = min if response == THROUGHPUT else max
                found[response] = pick(known, key=lambda each: each.ratio.estimate)
        return found

    @property
    def is_worse(self) -> bool:
        """Whether the fleet, or any host, is worse with confidence. Wrong at most alpha of the time: half of it is
        the worse side of the fleet's intervals, half that of the hosts'."""
        found = [*self.fleet, *(each for changes in self.hosts.values() for each in changes)]
        return any(each.verdict is Verdict.WORSE for each in found)


@dataclass(frozen=True)
class Question:
    treated: tuple[str, ...]
    control: tuple[str, ...]
    window: Window
    alpha: float = 0.05
    equivalence: float = 0.03
    #: ``control`` are the treated hosts in so many earlier weeks, week by week; 0: other hosts.
    weeks: int = 0
    #: What the verdict is about, declared before the data are seen; the others are not looked at.
    responses: tuple[str, ...] = RESPONSES


def verify(
    series: Sequence[Series], question: Question, gets: Sequence[Gets] = (), *, with_parts: bool = True
) -> Verified:
    """``gets``: of hosts with a cache; without any, nothing is said of misses. ``with_parts``: also each host
    and the most frequent classes."""
    hosts = (*question.treated, *question.control)
    used = _distinct([each for each in series if each.host in hosts])
    gets = [each for each in gets if each.host in hosts]
    has_times = len(common_edges(used)) > len(ONLY_COUNTS)
    question = replace(question, responses=_known(question.responses, bool(gets), has_times))
    open_to = tuple(each for each in question.responses if _can_be_judged(each, question, has_times))
    claims = max(len(open_to), 1)
    look = _Look(used, question, comparisons=claims, gets=gets)
    judged = {response: look.judge(response) for response in question.responses}
    fleet = tuple(change for change, _ in judged.values())
    parts: dict[str, tuple[Change, ...]] = {}
    classes: dict[str, tuple[Change, ...]] = {}
    if with_parts:
        if len(question.treated) > 1:
            for response, (_, own) in judged.items():
                parts[response] = tuple(look.host(response, own, i) for i in range(len(question.treated)))
        else:
            parts = {change.response: (change,) for change in fleet}
        named = classes_of(used)
        shown = named[:MOST_CLASSES] if len(named) > 1 else []
        for name in shown:
            only = _Look(
                [each for each in used if each.query_class == name], question, name, claims * len(shown)
            )
            classes[name] = tuple(only.judge(response)[0] for response in _of_calls(question.responses))
    mixed = (judged.get(MEDIAN) or next(iter(judged.values())))[1]
    bands = {response: _band(own, response, len(question.treated)) for response, (_, own) in judged.items()}
    return Verified(
        question.window, question.treated, question.control, fleet, parts, classes, bands,
        tuple(_notes(mixed, question, has_times)), question.weeks, claims, open_to,
    )  # fmt: skip


def _of_calls(responses: Sequence[str]) -> tuple[str, ...]:
    return tuple(each for each in responses if each != MISS_RATE)


def _known(responses: tuple[str, ...], has_gets: bool, has_times: bool) -> tuple[str, ...]:
    """Without those that these sources never have, unless nothing else was asked for."""
    never = {
        each for each in responses if not (has_gets if each == MISS_RATE else has_times or each == THROUGHPUT)
    }
    return tuple(each for each in responses if each not in never) or _of_calls(responses)


def _can_be_judged(response: str, question: Question, has_times: bool) -> bool:
    """By the kind of source and the controls, not by the data."""
    return {THROUGHPUT: bool(question.control), MISS_RATE: True}.get(response, has_times)


def _distinct(series: list[Series]) -> list[Series]:
    """Without the total of all classes where a host has classes: its events would count twice."""
    with_classes = {each.host for each in series if each.query_class != ALL}
    return [each for each in series if each.query_class != ALL or each.host not in with_classes]


def _notes(found: Panel, question: Question, has_times: bool) -> Iterator[str]:
    if not has_times:
        yield "response times are not compared: the sources only count calls"
    if not question.control:
        yield "no control hosts: whatever else changed at that time is part of every ratio"
    elif len(question.control) == 1 and not question.weeks:
        yield "one control host: what a host changes by itself is unknown, and part of the ratio of a single host"
    for share, what in (
        (found.gone, "of the calls before are of classes without calls after the change: left out"),
        (found.rare, "of the calls are of classes too rare to hold their mix fixed"),
        (found.new, "of the calls after are of classes that did not exist before: left out"),
    ):
        if share >= 0.001:
            yield f"{100 * share:.1f}% {what}"


class _Look:
    """The panels of some series, by the length of a block."""

    def __init__(
        self,
        series: Sequence[Series],
        question: Question,
        name: str = "",
        comparisons: int = 1,
        gets: Sequence[Gets] = (),
    ) -> None:
        self.series = series
        self.gets = gets
        self.question = question
        self.name = name
        self.alpha = question.alpha / comparisons
        self._panels: dict[float, Panel] = {}

    def panel(self, block_s: float) -> Panel:
        if block_s not in self._panels:
            hosts = (*self.question.treated, *self.question.control)
            self._panels[block_s] = panel(
                self.series, hosts, self.question.window, block_s, len(self.question.treated), self.gets
            )
        return self._panels[block_s]

    def judge(self, response: str) -> tuple[Change, Panel]:
        """The change of all treated hosts, and the panel with the length of block that it needs."""
        block_s = _least_block(self.series)
        n = len(self.question.treated)
        while True:
            own = self.panel(block_s)
            cells = own.cells[response]
            found = self._contrast(response, own, slice(0, n), self.alpha)
            joined = min(int((~own.is_after).sum()), int(own.is_after.sum())) // 2
            is_alike = found is not None and found.correlation > MOST_ALIKE and joined >= KEEP_BLOCKS
            # Blocks with too few calls would be left out: those that remain are not a fair sample of the time.
            is_short = cells.too_few > 0 and joined >= (MIN_BLOCKS if n < 2 else 1)
            if not (is_alike or is_short):
                if cells.too_few > MOST_TOO_FEW * cells.log.size:
                    found = None
                return self._change(response, self.name or "all hosts", own, found, self.alpha), own
            block_s *= 2

    def host(self, response: str, own: Panel, i: int) -> Change:
        """The change of one treated host, adjusted for their number."""
        alpha = self.alpha / len(self.question.treated)
        found = self._contrast(response, own, slice(i, i + 1), alpha)
        return self._change(response, self.question.treated[i], own, found, alpha, host=i)

    def _contrast(self, response: str, own: Panel, rows: slice, alpha: float) -> Contrast | None:
        """The noise of counting hides the waves of a high percentile; the median shows them."""
        least = 0.0
        if response not in (THROUGHPUT, MISS_RATE, MEDIAN):
            median = own.cells[MEDIAN].log
            known = self._compared(median, rows, own, alpha)
            least = known.correlation if known else 0.0
        y = own.cells[response].log
        return self._compared(y, rows, own, alpha, least)

    def _compared(
        self, y: Floats, rows: slice, own: Panel, alpha: float, least: float = 0.0
    ) -> Contrast | None:
        n, weeks = len(self.question.treated), self.question.weeks
        control = y[n:]
        if weeks:
            # Each week is one control: the mean of the same hosts then, if all of them have data.
            control = control.reshape(weeks, n, -1)[:, rows].mean(axis=1)
        return contrast(y[rows], control, own.is_after, alpha, correlation=least, is_weeks=bool(weeks))

    def _change(
        self,
        response: str,
        name: str,
        own: Panel,
        found: Contrast | None,
        alpha: float,
        host: int | None = None,
    ) -> Change:
        unknown = Interval(math.nan, None, None)
        sides = (int((~own.is_after).sum()), int(own.is_after.sum()))
        if found is None:
            return Change(
                response, name, math.nan, math.nan, math.nan, unknown, Verdict.NOT_ENOUGH_DATA, sides, own.block_s,
                math.nan, "", _why_nothing(response, own, self.question),
            )  # fmt: skip
        resolution = _resolution(own.cells[response].width, found, own.is_after, self.question, host)
        before, after = _values(response, own, found, is_fleet=host is None)
        used = own.is_after[found.blocks]
        sides = (int((~used).sum()), int(used.sum()))
        half = None if found.half is None or not math.isfinite(resolution) else found.half + resolution
        # In a bucket without an end there is no value to compare.
        ratio = intervals.around(found.log if math.isfinite(resolution) else math.nan, half)
        decided, missing = verdict(response, ratio, self.question.equivalence), ""
        if response == THROUGHPUT and not self.question.control:
            decided, missing = (
                Verdict.NOT_ENOUGH_DATA,
                "calls follow demand: without control hosts it proves nothing",
            )
        elif decided is Verdict.NOT_ENOUGH_DATA:
            missing = _why_open(found, resolution, sides, own, alpha, self.question)
        over = found.error.over if found.error else ""
        controls = math.exp(found.control_log)
        return Change(
            response,
            name,
            before,
            after,
            controls,
            ratio,
            decided,
            sides,
            own.block_s,
            resolution,
            over,
            missing,
        )


def _least_block(series: Sequence[Series]) -> float:
    longest = max((float((s.end_s - s.start_s).max()) for s in series if len(s.start_s)), default=0.0)
    # A stretch is whole in one block only if blocks are not shorter.
    return max(LEAST_BLOCK_S, longest)


def _resolution(
    width: Floats, found: Contrast, is_after: NDArray[np.bool_], question: Question, host: int | None
) -> float:
    """How far the log of the ratio can be off because a percentile may be anywhere in its bucket: half a bucket on
    each side, of the treated hosts and of the controls.
    """
    n = len(question.treated)
    rows = np.arange(len(width))[:n][found.treated] if host is None else np.array([host])
    controls = n + np.flatnonzero(found.control)
    if question.weeks:
        of_week = np.arange(n) if host is None else np.array([host])
        controls = (n + n * np.flatnonzero(found.control)[:, None] + of_week).ravel()
    total = 0.0
    for group in (rows, controls):
        for side in (found.blocks & ~is_after, found.blocks & is_after):
            own = width[group][:, side]
            if own.size:
                # inf, too: in a bucket without an end nothing is known.
                total += float(np.nanmean(own)) / 2
    return total


def _values(response: str, own: Panel, found: Contrast, *, is_fleet: bool) -> tuple[float, float]:
    if is_fleet and response in own.merged:
        return own.merged[response]
    levels = np.exp(found.levels[found.treated])
    # The calls of a fleet are the sum of its hosts'.
    before, after = levels.sum(axis=0)
    return float(before), float(after)


def _why_nothing(response: str, own: Panel, question: Question) -> str:
    cells = own.cells[response]
    if cells.too_few and response == THROUGHPUT:
        return (
            f"{counted(cells.too_few, 'block')} of {own.block_s / 60:.3g} minutes without any call, of "
            "all hosts' blocks"
        )
    if cells.too_few and response == MISS_RATE:
        return f"too few misses: it needs {MIN_BEYOND} per host and block"
    if cells.too_few:
        return f"too few calls for {response}: it needs 10 beyond it per host and block"
    n = len(question.treated)
    calls = cells.log if response == MISS_RATE else own.cells[THROUGHPUT].log
    for what, rows in (("treated", slice(0, n)), ("control", slice(n, None))):
        for side, is_side in (("before", ~own.is_after), ("after", own.is_after)):
            if not is_side.any():
                return f"less than one block of {own.block_s / 60:.3g} minutes {side} the change"
            if len(calls[rows]) and not np.isfinite(calls[rows][:, is_side]).any():
                return f"no data of the {what} hosts {side} the change"
    return "no host has data on both sides of the change"


def _why_open(
    found: Contrast, resolution: float, sides: tuple[int, int], own: Panel, alpha: float, question: Question
) -> str:
    if not math.isfinite(resolution):
        return "the percentile is in the source's first or last bucket, where it has no value"
    if question.weeks and int(found.control.sum()) < 2:
        return f"{int(found.control.sum())} earlier weeks have data: at least 2 are needed, 4 say much more"
    if found.error is None:
        minutes = own.block_s / 60
        if min(sides) >= MIN_BLOCKS:
            has = f"{sides[0] * minutes:.3g} minutes before the change and {sides[1] * minutes:.3g} after it"
            return (
                f"blocks of {minutes:.3g} minutes resemble the one before, so the {has} are worth too few "
                "independent ones: give more time on each side, or two hosts"
            )
        return (
            f"one host needs {MIN_BLOCKS * minutes:.3g} minutes of data on each side of the change ({MIN_BLOCKS} "
            f"independent blocks of {minutes:.3g}), and has {sides[0] * minutes:.3g} before it and "
            f"{sides[1] * minutes:.3g} after it; or give two hosts"
        )
    if resolution >= max(abs(found.log), math.log1p(question.equivalence)):
        return (
            f"below the source's resolution: its buckets alone leave {100 * math.expm1(resolution):.2g}% open"
        )
    error = found.error
    if error.over == "weeks":
        return f"earlier weeks changed at that time by themselves: by {100 * math.expm1(error.value):.2g}%"
    if error.over == "controls":
        count, moved = int(found.control.sum()), 100 * math.expm1(error.value)
        return f"{counted(count, 'control host')} changed at that time by themselves: by {moved:.2g}%"
    is_hosts = error.over == "hosts"
    count = int(found.treated.sum()) if is_hosts else sum(sides)
    needed = intervals.blocks_needed(
        found.log, error.value, max(error.degrees, 1.0), count, alpha, question.equivalence, resolution
    )
    if needed is None:
        return "the interval allows both, and more of the same would not settle it"
    if is_hosts:
        hosts = intervals.span(needed)
        return f"the interval allows both: about {hosts} treated hosts would settle it"
    hours = " to ".join(dict.fromkeys(f"{end * own.block_s / 3600:.2g}" for end in needed))
    return f"the interval allows both: about {hours} h of data in total would settle it"


def _band(own: Panel, response: str, treated: int) -> Band:
    cells = own.cells[response]
    values = np.exp(np.where(np.isfinite(cells.width), cells.log, np.nan))
    return Band(own.start_s, own.block_s, values[:treated], values[treated:])
