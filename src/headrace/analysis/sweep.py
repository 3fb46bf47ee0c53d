"""Conclusions of a saturation sweep: the knee, the law, and the largest load that holds an objective.

The trial is the unit, as everywhere: each level is measured once per pass, and every interval is over passes. The
search that chose the levels is shown but never analysed: see ``experiment.kinds.sweep``.
"""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace.analysis import intervals, usl
from headrace.analysis.compare import geometric_mean
from headrace.analysis.intervals import Interval
from headrace.analysis.percentiles import PERCENTILES, jackknife
from headrace.analysis.result import Analysis, TreatmentSummary
from headrace.analysis.trials import (
    KINDS,
    NO_OPERATION,
    THROUGHPUT,
    TrialResponse,
    did_no_work,
    read_tables,
    trial_responses,
)
from headrace.errors import PlanError, StoreError
from headrace.model import TrialState
from headrace.store import ExperimentFolder, TrialRecord

#: The block of the search; the passes are blocks 1, 2, ...
SEARCH = 0

#: Why a pending level has no numbers.
NOT_RUN = "not run yet"

#: An interval that spans more than this factor is useless and not printed.
WIDEST = 100.0

#: The driver's message when its own CPU was saturated: ``judge`` in crates/engine/src/lines.rs.
SATURATED = "the driver was saturated"

_UNITS_NS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}


@dataclass(frozen=True)
class Objective:
    """A percentile of latency that must not exceed a limit."""

    percentile: str
    limit_ns: float

    def __str__(self) -> str:
        return f"{self.percentile} within {self.limit}"

    @property
    def room(self) -> float:
        """The share of the operations that may take longer."""
        return 1 - float(self.percentile.removeprefix("p")) / 100

    @property
    def limit(self) -> str:
        unit = next((u for u in ("s", "ms", "us") if self.limit_ns >= _UNITS_NS[u]), "ns")
        return f"{self.limit_ns / _UNITS_NS[unit]:g} {unit}"


def parse_objective(text: str, place: str) -> Objective:
    """``p99=10ms`` -> Objective; ``place`` is the plan's name, for errors. Raises PlanError."""
    match = re.fullmatch(r"(p[\d.]+)\s*=\s*(\d+(?:\.\d+)?|\.\d+)\s*(ns|us|µs|ms|s)", text.strip())
    if not match or match[1] not in PERCENTILES or not float(match[2]) > 0:
        raise PlanError(
            f"objective = {text!r}: must be a percentile ({', '.join(PERCENTILES)}) and a time (ns, us, ms, s)",
            place=place,
            hint="such as p99=10ms",
        )
    return Objective(match[1], float(match[2]) * _UNITS_NS[match[3]])


def is_driver_saturated(record: TrialRecord) -> bool:
    """Whether a trial is invalid because its driver used all of its CPU, so that it does not measure the server.

    A late driver does not count: on a busy host that happens at any load.
    """
    return record.state is TrialState.INVALID and SATURATED in record.reason


#: The share of failed operations if none can: a workload that retries them or ends with the first.
NONE_FAILED = Interval(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Level:
    """One level of load.

    If no trial of a pass is valid, ``summary`` is None and ``missing`` says why. ``step`` is its throughput
    relative to the best smaller level, ``rise`` to the nearest one, paired by pass; None for the first, and if no
    pass has both. ``search_ops_s`` is the search's value, which no result uses. ``failed_share`` is the share of
    its operations that failed, ``failed_passes`` counts passes that failed or in which none completed.
    ``is_driver_saturated``: in a pass, or in the search if that ended it.
    """

    treatment: str
    load: float
    summary: TreatmentSummary | None
    step: Interval | None
    rise: Interval | None
    search_ops_s: float | None
    missing: str
    failed_share: Interval = NONE_FAILED
    failed_passes: int = 0
    is_driver_saturated: bool = False

    @property
    def trials(self) -> tuple[int, ...]:
        """The valid trials of the passes."""
        return self.summary.trials if self.summary else ()

    def meets(self, objective: Objective, end: str) -> bool | None:
        """Whether an ``end`` (low, estimate, high) of the percentile is within the limit; None if unknown.

        A failed operation counts with the time it took. If more operations fail than the percentile allows (by the
        same end of their share), the limit is missed regardless of their times: a fast error is not an answer. If
        a whole pass failed, the good ones are left, which cannot show that the limit is met.
        """
        share = getattr(self.failed_share, end)
        if share is not None and share > objective.room:
            return False
        found = self.summary.latency_ns.get(objective.percentile) if self.summary else None
        value = None if found is None else getattr(found, end)
        if value is None or share is None or (value <= objective.limit_ns and self.failed_passes):
            return None
        return bool(value <= objective.limit_ns)


@dataclass(frozen=True)
class Knee:
    """The last level that brought ``gain`` more throughput than any smaller one.

    ``low`` and ``high`` are also levels, the range that contains the knee with the sweep's confidence; None with
    one pass. ``is_top``: it is the highest level measured, so the true knee may be higher. ``may_be_top``: the
    range reaches that level.
    """

    load: float
    low: float | None
    high: float | None
    ops_s: Interval
    is_top: bool
    may_be_top: bool


@dataclass(frozen=True)
class Answer:
    """The result for one objective.

    ``holds`` is the largest level up to which all levels are shown to hold it; ``fails`` the smallest from which
    on all are shown to fail; ``open_levels`` the undecided ones in between, with ``why``. ``estimate`` is what
    ``holds`` would be if the estimates were certain.
    """

    objective: Objective
    holds: float | None
    ops_s: Interval | None
    fails: float | None
    open_levels: tuple[float, ...]
    estimate: float | None
    why: str


@dataclass(frozen=True)
class Sweep:
    """Everything concluded about one sweep, finished or not.

    If no fit is possible (or for a rate, which is not a number of clients), ``law`` is None and ``law_refusal``
    says why. ``latency_kind`` is ``response`` (from the intended start) or ``service`` (from the send).
    ``excluded`` maps a pass's trial to why it is not analysed.
    """

    name: str
    knob: str
    unit: str
    is_open: bool
    alpha: float
    gain: float
    passes: int
    levels: tuple[Level, ...]
    knee: Knee | None
    answers: tuple[Answer, ...]
    law: usl.Law | None
    law_refusal: str
    latency_kind: str
    excluded: Mapping[int, str]
    done: int
    planned: int
    headline: str = ""

    @property
    def measured(self) -> list[tuple[Level, TreatmentSummary]]:
        return [(level, level.summary) for level in self.levels if level.summary]

    def as_analysis(self) -> Analysis:
        """Each level as a treatment, without comparisons: for the parts of a report that show trials."""
        return Analysis(
            name=self.name,
            alpha=self.alpha,
            equivalence=self.gain,
            summaries=tuple(summary for _, summary in self.measured),
            effects=(),
            noise=(),
            excluded=self.excluded,
            headline=self.headline,
        )

    def at(self, *loads: float) -> str:
        """``1 connection``, ``32 and 64 connections``, ``2,000 operations/s offered``."""
        *first, last = some([f"{load:,.6g}" for load in loads])
        listed = f"{', '.join(first)} {'' if last.startswith('and') else 'and '}{last}" if first else last
        if self.is_open:
            return f"{listed} {self.unit} offered"
        word = self.unit if loads != (1,) else re.sub(r"s\b", "", self.unit, count=1)
        return f"{listed} {word}"

    @property
    def unreached(self) -> Level | None:
        """The first level above all measured ones that could not be measured."""
        top = max((level.load for level, _ in self.measured), default=0.0)
        above = (level for level in self.levels if level.load > top)
        return next((level for level in above if level.missing != NOT_RUN), None)

    @property
    def driver_saturated(self) -> list[float]:
        """The levels at which the driver used all of its CPU."""
        return [level.load for level in self.levels if level.is_driver_saturated]


def analyse_sweep(folder: ExperimentFolder) -> Sweep:
    """All conclusions; ``folder`` as ``experiment.kinds.as_decided`` gives it.

    Raises StoreError when the folder is damaged; without a usable trial there is a Sweep without a knee.
    """
    design = folder.design
    table, alpha = design.sweep, design.alpha
    if table is None:
        raise StoreError("this is not a sweep", place=str(folder.path))
    loads = dict(zip((t.name for t in design.treatments), map(float, table.loads()), strict=True))
    objectives = [parse_objective(text, str(folder.path)) for text in table.objective]
    planned = {t.treatment for t in design.trials}
    records = folder.trials()
    passed, searched, excluded, failed = _responses(folder, records)
    summaries = {name: _summary(name, trials, alpha) for name, trials in passed.items()}
    saturated = _saturated(records)
    below = {name: [passed[n] for n in loads if n in passed and loads[n] < loads[name]] for name in loads}
    levels = [
        Level(
            treatment=name,
            load=loads[name],
            summary=summaries.get(name),
            step=step_over(below[name], passed.get(name, ()), alpha),
            rise=rise_over(below[name], passed.get(name, ()), alpha),
            search_ops_s=searched[name].throughput_ops_s if name in searched else None,
            missing="" if name in summaries else _why_missing(records, name),
            failed_share=share_of_failed(
                [failed[t.number] for t in passed.get(name, ()) if t.number in failed], alpha
            ),
            failed_passes=sum(did_no_work(r) for r in records if r.treatment == name and r.block != SEARCH),
            is_driver_saturated=name in saturated,
        )
        for name in loads
        if name in planned
    ]
    points = [
        usl.Point(loads[t.treatment], t.block, t.throughput_ops_s)
        for trials in passed.values()
        for t in trials
    ]
    refusal = (
        "an offered rate is not a number of clients: the Universal Scalability Law does not apply"
        if table.is_open
        else usl.refusal(points)
    )
    found = Sweep(
        name=design.name,
        knob=table.knob,
        unit=table.unit,
        is_open=table.is_open,
        alpha=alpha,
        gain=table.gain,
        passes=table.passes,
        levels=tuple(levels),
        knee=knee_of(levels, table.gain),
        answers=tuple(answer_of(objective, levels) for objective in objectives),
        law=None if refusal else usl.fit(points, alpha),
        law_refusal=refusal,
        latency_kind=next((s.latency_kind for s in summaries.values()), "service"),
        excluded=excluded,
        done=len(records),
        planned=len(design.trials),
    )
    return replace(found, headline=_headline(found))


def _responses(
    folder: ExperimentFolder, records: Sequence[TrialRecord]
) -> tuple[
    dict[str, list[TrialResponse]], dict[str, TrialResponse], dict[int, str], dict[int, tuple[int, int]]
]:
    """Per level the trials of the passes and of the search; why other trials of a pass are excluded; and how many
    operations of a trial failed, of how many.
    """
    excluded = {
        r.number: f"{r.state.value}: {r.reason or 'no reason was recorded'}"
        for r in records
        if r.state is not TrialState.COMPLETE and r.block != SEARCH
    }
    passed: dict[str, list[TrialResponse]] = {}
    searched: dict[str, TrialResponse] = {}
    complete = [r for r in records if r.state is TrialState.COMPLETE]
    tables = read_tables(folder, complete)
    for trial in trial_responses(folder, complete, tables):
        if trial.block == SEARCH:
            searched[trial.treatment] = trial
        elif trial.operations > 0:
            passed.setdefault(trial.treatment, []).append(trial)
        else:
            excluded[trial.number] = f"{NO_OPERATION} in the measured window"
    # Not the trials' errors, because one that a retry resolved failed nothing; nor what throughput lacks, because
    # operations that end after the window are good. Only response times come with those that failed.
    failed = {
        number: (int(rows["count"][rows["kind"] == "failed"].sum()), total)
        for number, rows in tables.rows.items()
        if (total := int(rows["count"][np.isin(rows["kind"], KINDS["response"])].sum()))
    }
    return passed, searched, dict(sorted(excluded.items())), failed


def _saturated(records: Sequence[TrialRecord]) -> set[str]:
    """The levels whose driver was saturated in a pass, or in the search if they have no pass."""
    repeated = {r.treatment for r in records if r.block != SEARCH}
    return {
        r.treatment
        for r in records
        if is_driver_saturated(r) and (r.block != SEARCH or r.treatment not in repeated)
    }


def _why_missing(records: Sequence[TrialRecord], name: str) -> str:
    own = [r for r in records if r.treatment == name and r.state is not TrialState.COMPLETE]
    reasons = list(dict.fromkeys(f"{r.state}: {r.reason}" for r in own))
    return "; ".join(some(reasons)) if reasons else NOT_RUN


def share_of_failed(passes: Sequence[tuple[int, int]], alpha: float) -> Interval:
    """The share of failed operations with its interval over passes, each (failed, all).

    Widened by half an operation of a pass: with few, several passes often have the same number of failures.
    """
    if not passes:
        return NONE_FAILED
    found = intervals.arithmetic([failed / total for failed, total in passes], alpha)
    if found.low is None or found.high is None or not any(failed for failed, _ in passes):
        return found
    precision = 0.5 / min(total for _, total in passes)
    return Interval(found.estimate, max(0.0, found.low - precision), min(1.0, found.high + precision))


def _summary(name: str, trials: Sequence[TrialResponse], alpha: float) -> TreatmentSummary:
    throughput = geometric_mean(THROUGHPUT, trials, alpha=alpha)
    assert throughput is not None  # only trials that did work get here
    found = {p: jackknife([t.latency for t in trials], p, alpha) for p in (*PERCENTILES, "max")}
    return TreatmentSummary(
        treatment=name,
        configuration=name,
        condition="",
        trials=tuple(t.number for t in trials),
        throughput_ops_s=throughput,
        latency_ns={p: interval for p, interval in found.items() if interval is not None},
        latency_kind=trials[0].latency_kind,
        operations=sum(t.operations for t in trials),
        errors=sum(t.errors for t in trials),
    )


def step_over(
    lower: Sequence[Sequence[TrialResponse]], own: Sequence[TrialResponse], alpha: float
) -> Interval | None:
    """A level's throughput relative to the best of the ``lower`` ones; None if no pass has it and one of them.

    Each is compared over common passes, so the best is the one with the smallest ratio.
    """
    steps = [_step(trials, own, alpha) for trials in _comparable(lower, own)]
    return min(steps, key=lambda step: step.estimate, default=None)


def rise_over(
    lower: Sequence[Sequence[TrialResponse]], own: Sequence[TrialResponse], alpha: float
) -> Interval | None:
    """The same relative to the nearest of the ``lower`` ones, which are in ascending order.

    A level that was chosen because its passes went best looks better than it is, so the step over it seems smaller
    than it is. The nearest one is known before the passes.
    """
    near = _comparable(lower, own)
    return _step(near[-1], own, alpha) if near else None


def _comparable(
    lower: Sequence[Sequence[TrialResponse]], own: Sequence[TrialResponse]
) -> list[Sequence[TrialResponse]]:
    """If levels lost passes, those with two in common take precedence over those with one: with one pass a better
    level is indistinguishable from a better moment.
    """
    passes = {t.block for t in own}
    common = [len(passes & {t.block for t in trials}) for trials in lower]
    least = min(2, max(common, default=0))
    return [trials for trials, n in zip(lower, common, strict=True) if n >= least > 0]


def _step(below: Sequence[TrialResponse], above: Sequence[TrialResponse], alpha: float) -> Interval:
    first, second = ({t.block: math.log(t.throughput_ops_s) for t in side} for side in (below, above))
    return intervals.geometric({b: second[b] - first[b] for b in sorted(first.keys() & second.keys())}, alpha)


def knee_of(levels: Sequence[Level], gain: float) -> Knee | None:
    """The last level whose step brings the gain; its range by two walks along the levels.

    Upward from the first while each step certainly brings it, downward from the top while each level certainly
    does not over the nearest smaller one, and so not over all. A walk that stops at the first doubt needs no
    adjustment for the number of levels (fixed sequence: Maurer, Hothorn & Lehmacher 1995), and each uses one end
    of its intervals, so both err jointly with probability at most alpha.
    """
    measured = [level for level in levels if level.summary]
    measured = measured[:1] + [level for level in measured[1:] if level.step]
    if not measured:
        return None
    limit = 1 + gain
    steps = [level.step or Interval(math.inf, math.inf, math.inf) for level in measured]
    at = max(i for i, step in enumerate(steps) if step.estimate >= limit)
    low, high = 0, len(steps) - 1
    while low + 1 < len(steps) and (steps[low + 1].low or 0.0) >= limit:
        low += 1
    while high > 0 and (rise := measured[high].rise) and rise.high is not None and rise.high < limit:
        high -= 1
    top = len(measured) - 1
    summary = measured[at].summary
    assert summary is not None
    # A step with one pass stops the walks; if all steps have one pass, there is no range.
    is_known = any(step.low is not None for step in steps[1:])
    return Knee(
        load=measured[at].load,
        low=measured[low].load if is_known else None,
        high=measured[high].load if is_known else None,
        ops_s=summary.throughput_ops_s,
        is_top=at == top,
        may_be_top=high == top,
    )


def answer_of(objective: Objective, levels: Sequence[Level]) -> Answer:
    """A walk up from the first level while each one's upper bound meets the limit, and one down from the top while
    each one's lower bound misses it.

    As fixed sequences they err regardless of the number of levels: ``holds`` with probability at most alpha / 2,
    ``fails`` with alpha / 2, and as much again if operations failed, which is another way to miss the limit.
    """
    top = max((level.load for level in levels if level.summary), default=0.0)
    # One that could not be measured is not shown to hold, so no larger one is named.
    found = [level for level in levels if level.load <= top]
    holds = estimate = None
    for level in itertools.takewhile(lambda level: level.meets(objective, "high"), found):
        holds = level
    for level in itertools.takewhile(lambda level: level.meets(objective, "estimate"), found):
        estimate = level.load
    above = [level for level in found if holds is None or level.load > holds.load]
    fails = _fails(found, objective)
    unsure = [level for level in above if fails is None or level.load < fails]
    return Answer(
        objective=objective,
        holds=holds.load if holds else None,
        ops_s=holds.summary.throughput_ops_s if holds and holds.summary else None,
        fails=fails,
        open_levels=tuple(level.load for level in unsure),
        estimate=estimate,
        why=_why_unsure(unsure[0], objective) if unsure else "",
    )


def _fails(levels: Sequence[Level], objective: Objective) -> float | None:
    """The last of a walk down from the top. A level without an interval is not tested, and so passed over."""
    fails = None
    for level in reversed(levels):
        if level.meets(objective, "low") is False:
            fails = level.load
            continue
        found = level.summary.latency_ns.get(objective.percentile) if level.summary else None
        if found is not None and found.low is not None:
            break
    return fails


def _why_unsure(level: Level, objective: Objective) -> str:
    if level.summary is None:
        return "not measured"
    if level.failed_passes:
        return "a pass failed"
    if (most := level.failed_share.high) is not None and most > objective.room:
        return "too many may fail"
    return "too few operations" if level.meets(objective, "estimate") is None else "not enough passes"


def _headline(sweep: Sweep) -> str:
    if sweep.knee is None:
        return " ".join(
            ["Nothing can be concluded: there is no valid trial of a pass.", *_about_limits(sweep)]
        )
    parts = [_about_knee(sweep, sweep.knee)]
    parts += [_about_objective(sweep, answer) for answer in sweep.answers]
    if not sweep.is_open:
        parts.append(_about_law(sweep))
    parts += _about_limits(sweep)
    if sweep.done < sweep.planned:
        parts.append(f"So far {sweep.done} of {sweep.planned} trials are done.")
    return " ".join(parts)


def _about_knee(sweep: Sweep, knee: Knee) -> str:
    rate = f"{_count(knee.ops_s.estimate)} operations/s"
    if knee.ops_s.low is not None and knee.ops_s.high is not None and is_telling(knee.ops_s):
        rate += f" ({_count(knee.ops_s.low)} to {_count(knee.ops_s.high)})"
    if sweep.is_open:
        rate += f", {knee.ops_s.estimate / knee.load:.0%} of the offered load"
    if knee.is_top:
        return f"Throughput still grows at {sweep.at(knee.load)}, {_top(sweep)}: {rate}."
    text = (
        f"Throughput grows up to {sweep.at(knee.load)}: {rate}; no higher level brings {sweep.gain:.0%} more"
    )
    if knee.low is None or knee.high is None:
        return f"{text} (too few passes for a range)."
    if knee.low == knee.high:
        return f"{text}, with {1 - sweep.alpha:.0%} confidence."
    beyond = " or beyond" if knee.may_be_top else ""
    return f"{text} ({1 - sweep.alpha:.0%} range of the knee: {knee.low:,.6g} to {knee.high:,.6g}{beyond})."


def _about_objective(sweep: Sweep, answer: Answer) -> str:
    if answer.holds is not None and answer.ops_s is not None:
        rate = "" if sweep.is_open else f", {_count(answer.ops_s.estimate)} operations/s"
        text = f"{answer.objective} holds up to {sweep.at(answer.holds)}{rate}"
    else:
        text = f"{answer.objective} is not shown to hold at any level"
    if answer.fails is not None:
        text += f", and fails at {sweep.at(answer.fails)}"
    if answer.open_levels:
        first, last = answer.open_levels[0], answer.open_levels[-1]
        ends = f"{first:,.6g} to {last:,.6g}" if last > first else f"{first:,.6g}"
        text += f"; undecided at {ends} ({answer.why})"
    elif answer.fails is None:
        text += f", {_top(sweep)}"
    return text + "."


def _top(sweep: Sweep) -> str:
    return "the highest level" if sweep.unreached is None else "the highest level that could be measured"


def _about_limits(sweep: Sweep) -> list[str]:
    """Why levels could not be measured, other than the server's throughput."""
    said = []
    if sweep.driver_saturated:
        said.append(
            f"At {sweep.at(*sweep.driver_saturated)} the driver, not the server, was the bottleneck: "
            "those trials do not measure the server."
        )
    level = sweep.unreached
    if level is not None and not level.is_driver_saturated:
        why = (
            level.missing if level.missing.startswith("failed") else f"could not be measured: {level.missing}"
        )
        said.append(f"{sweep.at(level.load)} {textwrap.shorten(why.rstrip('.'), 160, placeholder=' ...')}.")
    return said


def _about_law(sweep: Sweep) -> str:
    law = sweep.law
    if law is None:
        return sweep.law_refusal[0].upper() + sweep.law_refusal[1:] + "."
    if law.doubt:
        return f"The Universal Scalability Law does not describe these levels: {law.doubt}."
    peak = law.peak_load
    if not math.isfinite(peak.estimate):
        end = "levels off" if math.isfinite(law.peak_ops_s) else "grows without limit"
        text = f"By the Universal Scalability Law there is no peak: throughput {end}"
        if peak.low is None:
            return f"{text} (too few passes to be certain)."
        return f"{text} (certainly no peak below {round_peak(peak.low):,.6g})."
    text = f"The Universal Scalability Law puts the peak at {sweep.at(round_peak(peak.estimate))}"
    if peak.low is None or peak.high is None:
        return f"{text} (too few passes for a range)."
    if math.isinf(peak.high):
        return f"{text}, or at any load from {round_peak(peak.low):,.6g}: crosstalk may be 0."
    return f"{text} ({round_peak(peak.low):,.6g} to {round_peak(peak.high):,.6g})."


def round_peak(load: float) -> float:
    """A whole number, with one decimal only if it is small."""
    return round(load, 1) if load < 10 else float(round(load))


def is_telling(found: Interval) -> bool:
    """Whether an interval is useful: with two or three dissimilar passes it spans orders of magnitude."""
    return found.low is not None and found.high is not None and found.high < WIDEST * found.low


def some(words: Sequence[str], most: int = 4) -> list[str]:
    """All, or the first with how many more there are."""
    return [*words] if len(words) <= most else [*words[: most - 1], f"and {len(words) - most + 1} more"]


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
