"""``report.json``: what the page says, for programs.

    format                1; a change that could break a reader raises it
    headrace              the version that wrote it
    experiment            name, description, kind, seed, blocks, alpha, equivalence, workload, target, hash
    headline              the verdict in one sentence
    treatments[]          treatment, configuration, condition, is_baseline, trials[], latency_kind, operations,
                          errors, throughput_ops_s, latency_ns {p50 ... max}, missing (why there are no
                          numbers, or ""), shares[] (each kind of operation, where there are several: operation,
                          operations, errors, throughput_ops_s, latency_ns; no kind of which in some trial none
                          ended well), per_minute (the figure by which the workload is known, or null: name,
                          operation, rate)
    effects[]             treatment, baseline, condition, response, ratio, verdict, blocks, blocks_needed,
                          comparisons, noise_floor (of the same condition and response)
    factors[]             what matters, for each condition and response: see docs/explanation/effects.md
    choice                which one to take, or null below three treatments: alpha, margin, sentences[], best[],
                          fronts[], robust[]; see docs/explanation/effects.md
    noise[]               condition, response, ratio, floor, blocks
    trials[]              number, block, position, treatment, role, state, reason, excluded (why it is not
                          analysed, or null), throughput_ops_s, p99_ns, started_ns, finished_ns, facts_hash,
                          warnings[]
    duet                  null, or of trials that ran side by side: cpus[] of the two halves, is_half_a_machine
                          (true: so are the absolute numbers), sides (pairs, bias of the second half over the
                          first, alone and together: how much a trial moved by itself and against the other of
                          its pair), notes[]
    machines              null, or of an experiment on several: between (largest ratio of two baselines),
                          within_sd_log (of baseline trials of one), set_aside (trials measured in vain),
                          machines[] (machine, blocks, ratio to the mean of all)
    cautions[]            what makes pairing by block doubtful: trials of a block far apart, or on a changed host
    planned_trials        how many the design has
    versions              program -> every version that trials ran

An estimate is ``{"estimate", "low", "high"}``; ``low`` and ``high`` are null where no interval is possible.
Numbers that do not exist are null, never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from headrace import __version__
from headrace.analysis.result import Analysis, Effect, Interval, TreatmentSummary
from headrace.analysis.trials import TrialResponse, trial_responses
from headrace.design import Design
from headrace.model import TrialState
from headrace.report import choices, duet, machines, matters, tables
from headrace.store import ExperimentFolder, TrialRecord

FORMAT_VERSION = 1


def to_json(
    folder: ExperimentFolder, analysis: Analysis, responses: Mapping[int, TrialResponse] | None = None
) -> dict[str, Any]:
    """The content of ``report.json``. ``responses`` are read from the folder unless the caller has them."""
    records = folder.trials()
    if responses is None:
        ran = [r for r in records if r.state is not TrialState.FAILED]
        responses = {r.number: r for r in trial_responses(folder, ran)}
    design = folder.design
    content = design.to_json()
    groups = tables.groups(design, analysis, records)
    kept = (
        "name",
        "description",
        "kind",
        "seed",
        "blocks",
        "alpha",
        "equivalence",
        "workload",
        "target",
        "hash",
    )
    return {
        "format": FORMAT_VERSION,
        "headrace": __version__,
        "experiment": {key: content[key] for key in kept},
        "headline": analysis.headline,
        "treatments": [_treatment(design, analysis, group, row) for group in groups for row in group.rows],
        "effects": [_effect(g, e) for g in groups for row in g.rows for e in row.effects.values()],
        "noise": [
            {
                "condition": n.condition,
                "response": n.response,
                "ratio": _interval(n.ratio),
                "floor": _finite(n.floor),
                "blocks": n.blocks,
            }
            for n in analysis.noise
        ],
        "factors": matters.to_json(analysis),
        "choice": choices.to_json(analysis.decision) if analysis.decision else None,
        "trials": [_trial(record, analysis, responses.get(record.number)) for record in records],
        "duet": duet.to_json(folder, records, responses),
        "machines": machines.to_json(folder, analysis),
        "cautions": tables.cautions(records),
        "planned_trials": len(design.trials),
        "versions": tables.versions(records),
    }


def _treatment(
    design: Design, analysis: Analysis, group: tables.Group, row: tables.ResultRow
) -> dict[str, Any]:
    summary = row.summary
    shares = tables.shares(analysis, row.treatment)
    found: dict[str, Any] = {
        "treatment": row.treatment,
        "configuration": row.configuration,
        "condition": group.condition,
        "is_baseline": row.is_baseline,
        "trials": list(summary.trials) if summary else [],
        "latency_kind": summary.latency_kind if summary else None,
        **_numbers(summary),
        "missing": row.missing,
        "shares": [{"operation": s.operation, **_numbers(s.summary)} for s in shares if s.summary],
        "per_minute": _per_minute(design, shares),
    }
    return found


def _per_minute(design: Design, shares: Sequence[tables.Share]) -> dict[str, Any] | None:
    rate = tables.per_minute(design, shares)
    if rate is None:
        return None
    figure = tables.FIGURES[design.workload.kind]
    return {"name": figure.name, "operation": figure.operation, "rate": _interval(rate)}


def _numbers(summary: TreatmentSummary | None) -> dict[str, Any]:
    return {
        "operations": summary.operations if summary else 0,
        "errors": summary.errors if summary else 0,
        "throughput_ops_s": _interval(summary.throughput_ops_s) if summary else None,
        "latency_ns": {p: _interval(i) for p, i in summary.latency_ns.items()} if summary else {},
    }


def _effect(group: tables.Group, effect: Effect) -> dict[str, Any]:
    return {
        "treatment": effect.treatment,
        "baseline": effect.baseline,
        "condition": effect.condition,
        "response": effect.response,
        "ratio": _interval(effect.ratio),
        "verdict": effect.verdict.value,
        "blocks": effect.blocks,
        "blocks_needed": effect.blocks_needed,
        "comparisons": effect.comparisons,
        "noise_floor": _finite(group.floor(effect.response)),
    }


def _trial(record: TrialRecord, analysis: Analysis, response: TrialResponse | None) -> dict[str, Any]:
    return {
        "number": record.number,
        "block": record.block,
        "position": record.position,
        "treatment": record.treatment,
        "role": record.role.value,
        "state": record.state.value,
        "reason": record.reason,
        "excluded": analysis.excluded.get(record.number),
        "throughput_ops_s": _finite(response.throughput_ops_s) if response else None,
        "p99_ns": _finite(response.value("p99")) if response else None,
        "started_ns": record.times_ns.get("started"),
        "finished_ns": record.times_ns.get("finished"),
        "facts_hash": record.facts_hash,
        "warnings": list(record.warnings),
    }


def _interval(interval: Interval) -> dict[str, float | None]:
    return {
        "estimate": _finite(interval.estimate),
        "low": _finite(interval.low),
        "high": _finite(interval.high),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
