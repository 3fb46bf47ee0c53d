"""Conclusions of a saturation sweep: the knee, the law, and the largest load that holds an objective.

The trial is the unit, as everywhere: each level is measured once per pass, and every interval is over passes. The
search that chose the levels is shown but never analysed: see ``experiment.kinds.sweep``.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headrace.base import intervals
from headrace.base.errors import PlanError, StoreError
from headrace.base.intervals import Interval
from headrace.base.model import TrialState
from headrace.base.percentiles import PERCENTILES, jackknife
from headrace.experiment.stats import usl
from headrace.experiment.stats.compare import geometric_mean
from headrace.experiment.stats.result import TreatmentSummary
from headrace.experiment.stats.sweep_result import (
    NONE_FAILED,
    NOT_RUN,
    UNITS_NS,
    Answer,
    Knee,
    Level,
    Objective,
    Sweep,
    some,
)
from headrace.experiment.stats.sweep_words import headline
from headrace.experiment.stats.trials import (
    KINDS,
    NO_OPERATION,
    THROUGHPUT,
    TrialResponse,
    did_no_work,
    read_tables,
    trial_responses,
)
from headrace.experiment.store import ExperimentFolder, TrialRecord

#: The block of the search; the passes are blocks 1, 2, ...
SEARCH = 0

#: The driver's message when its own CPU was saturated: ``judge`` in crates/engine/src/lines.rs.
SATURATED = "the driver was saturated"


def parse_objective(text: str, place: str) -> Objective:
    """``p99=10ms`` -> Objective; ``place`` is the plan's name, for errors. Raises PlanError."""
    match = re.fullmatch(r"(p[\d.]+)\s*=\s*(\d+(?:\.\d+)?|\.\d+)\s*(ns|us|µs|ms|s)", text.strip())
    if not match or match[1] not in PERCENTILES or not float(match[2]) > 0:
        raise PlanError(
            f"objective = {text!r}: must be a percentile ({', '.join(PERCENTILES)}) and a time (ns, us, ms, s)",
            place=place,
            hint="such as p99=10ms",
        )
    return Objective(match[1], float(match[2]) * UNITS_NS[match[3]])


def is_driver_saturated(record: TrialRecord) -> bool:
    """Whether a trial is invalid because its driver used all of its CPU, so that it does not measure the server.

    A late driver does not count: on a busy host that happens at any load.
    """
    return record.state is TrialState.INVALID and SATURATED in record.reason


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
    return replace(found, headline=headline(found))


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
