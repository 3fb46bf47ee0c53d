"""Analyses one experiment and compares two: the only functions in this package that open an experiment's
folder.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.base.effect import Effect, NoiseFloor, Verdict
from headrace.base.errors import NothingMeasured, PlanError
from headrace.base.intervals import Interval
from headrace.base.model import Treatment, TrialState
from headrace.base.percentiles import PERCENTILES, jackknife, merge
from headrace.experiment.frozen import Design
from headrace.experiment.stats import cuts, decision, headline, machines, matters, sequential
from headrace.experiment.stats.compare import effects as effects_of
from headrace.experiment.stats.compare import (
    geometric_mean,
    noise_floor,
    of_sessions,
    of_starts,
    unpaired_effect,
)
from headrace.experiment.stats.history import Point
from headrace.experiment.stats.result import Adjustment, Analysis, Comparison, TreatmentSummary, Uneven
from headrace.experiment.stats.sweep import SEARCH
from headrace.experiment.stats.trials import (
    EMULATED,
    NO_OPERATION,
    RESPONSES,
    THROUGHPUT,
    Tables,
    TrialResponse,
    did_no_work,
    is_emulated,
    trial_responses,
)
from headrace.experiment.store import ExperimentFolder, TrialRecord

#: Chance rarely makes the mean shares that two treatments lost differ by this much.
UNEVEN = 0.1


def analyse_experiment(folder: ExperimentFolder, tables: Tables | None = None) -> Analysis:
    """All conclusions about an experiment, finished or not.

    ``tables`` (of all trials that did not fail) are read from the folder unless given.

    Comparisons stay within a condition. The number of comparisons is the planned one, so that intervals do not
    shrink when treatments fail, nor grow while an experiment runs. Raises StoreError when the folder is damaged;
    an experiment without a complete trial gives an Analysis without summaries.
    """
    records = folder.trials()
    design = sequential.begun(folder.design, records)
    judged = replace(design, alpha=sequential.level(design, records, _comparisons(design)))
    responses, excluded = _usable_trials(folder, records, tables)
    by_treatment = _by_treatment(responses)
    summaries = tuple(
        _summary(treatment, of_starts(design, by_treatment[name]), design.alpha)
        for name, treatment in design.by_name.items()
        if name in by_treatment
    )
    last = sequential.last_look(design, records)
    looked = of_sessions(design, [trial for trial in responses if not last or trial.block <= last])
    found, adjustments = _effects(judged, _by_treatment(looked))
    found = [_in_blocks(e, design.blocks_per_session) for e in found]
    effects = tuple(found) if last != 0 else tuple(replace(e, verdict=Verdict.NOT_ENOUGH_DATA) for e in found)
    noise = tuple(_noise(design, by_treatment))
    analysis = Analysis(
        name=design.name,
        alpha=design.alpha,
        equivalence=design.equivalence,
        summaries=summaries,
        effects=effects,
        noise=noise,
        excluded=excluded,
        headline="",
        operations=_operations(design, by_treatment),
        studies=()
        if last == 0
        else tuple(
            matters.studies(
                design.treatments,
                looked,
                kind=design.kind,
                adaptive=design.adaptive,
                hard=design.hard,
                interactions=design.interactions,
                alpha=judged.alpha,
                margin=design.equivalence,
            )
        ),
        decision=None if last == 0 or design.cuts_power else _decision(judged, looked),
        machines=_machines(folder, design, by_treatment, records),
        adjustments=tuple(adjustments),
    )
    done = len(responses) + len(excluded)
    text = headline.of_experiment(
        analysis,
        design.by_name,
        design.baselines,
        done=done,
        planned=len(design.trials),
        failed=failures(records),
        invalid=[r.reason or "no reason was recorded" for r in records if r.state is TrialState.INVALID],
        again=shlex.join(["headrace", "run", f"{folder.path}/plan.toml", "-o", str(folder.path), "--retry"]),
        asked=design.asked,
        more=_more(folder, design, records),
        is_open_loop=design.is_open_loop,
        instead=cuts.sentence(cuts.lost(records, design.by_name, design.alpha), design.by_name, design.alpha),
    )
    early = f"No verdict yet: the first look is after block {design.blocks}. " if last == 0 else ""
    return replace(analysis, headline=f"{early}{_left_out(design, effects)} {text}".strip())


def _in_blocks(effect: Effect, blocks_per_session: int) -> Effect:
    """The blocks that would settle it, where sessions were counted."""
    if not blocks_per_session or not effect.needed:
        return effect
    least, most = (end * blocks_per_session for end in effect.needed)
    return replace(effect, blocks_least=least, blocks_needed=most)


def _more(folder: ExperimentFolder, design: Design, records: Sequence[TrialRecord]) -> headline.More:
    can_extend = not (
        design.until_decided or design.adaptive or design.sweep or design.tune or design.target.addresses
    )
    run = ["headrace", "run", f"{folder.path}/plan.toml", "-o", str(folder.path)]
    return headline.More(
        run=shlex.join(run) if can_extend else "",
        show=shlex.join(["headrace", "plan", "show", f"{folder.path}/plan.toml"]),
        done=blocks_of(design),
        block_s=block_seconds(design, records),
    )


def blocks_of(design: Design) -> int:
    """The plan's blocks; a duet numbers its pairs instead. Of one that runs until it is decided, those begun."""
    return design.trials[-1].block if design.until_decided else design.blocks


def block_seconds(design: Design, records: Sequence[TrialRecord]) -> float | None:
    """How long a block takes if its trials take as long as these; None before the first trial ends."""
    lengths = [r.duration_s for r in records if r.duration_s is not None]
    if not lengths or not design.trials:
        return None
    trials_a_block = len(design.trials) / blocks_of(design)
    return trials_a_block * sum(lengths) / len(lengths) / design.at_once


def _decision(design: Design, responses: Sequence[TrialResponse]) -> decision.Decision | None:
    if len(design.treatments) < 3 or design.adaptive:
        return None
    questions = decision.of_trials(design.treatments, responses, design.baselines)
    found = decision.decide(
        questions, alpha=design.alpha, margin=design.equivalence, comparisons=_comparisons(design)
    )
    return found if found.bests else None


def _left_out(design: Design, effects: Sequence[Effect]) -> str:
    """A leave-one-out's conclusions about its bundles, with ALL as the baseline."""
    if design.kind != "leave-one-out":
        return ""
    levels = {name: treatment.levels.get("configuration", "") for name, treatment in design.by_name.items()}
    if any(levels.get(name) != "ALL" for name in design.baselines.values()):
        return ""
    names = {name: level.removeprefix("ALL-") for name, level in levels.items() if level != "ALL"}
    return headline.of_left_out(effects, names, design.equivalence)


def baseline_trials(folder: ExperimentFolder) -> dict[str, list[TrialResponse]]:
    """Condition -> its baseline's valid trials, both of each block."""
    design = folder.design
    by_treatment = _by_treatment(_usable_trials(folder, folder.trials())[0])
    return {condition: by_treatment.get(name, []) for condition, name in design.baselines.items()}


def spread_of(folder: ExperimentFolder) -> float | None:
    """The standard deviation of the log throughput between trials of a treatment, beyond what their blocks share;
    None if too few trials are valid to know it.
    """
    design = folder.design
    responses, _ = _usable_trials(folder, folder.trials())
    squares, degrees = 0.0, 0
    for condition in design.baselines:
        own = [t for t in responses if design.treatment(t.treatment).condition == condition]
        if not own:
            continue
        logs = np.array([math.log(t.throughput_ops_s) for t in own])
        names, blocks = sorted({t.treatment for t in own}), sorted({t.block for t in own})
        columns = [[t.treatment == n for n in names] + [t.block == b for b in blocks] for t in own]
        matrix = np.array(columns, dtype=float)
        found, _, rank, _ = np.linalg.lstsq(matrix, logs, rcond=None)
        squares += float(((logs - matrix @ found) ** 2).sum())
        degrees += len(own) - int(rank)
    return math.sqrt(squares / degrees) if degrees > 0 and squares > 0 else None


def points_of(folder: ExperimentFolder, treatment: str, response: str) -> Point:
    """The experiment as one point of a series: all valid trials of a treatment ("" is the baseline).

    Raises PlanError for an unknown treatment or response, or several baselines, and NothingMeasured for a response
    without values.
    """
    design = folder.design
    if response not in RESPONSES:
        raise PlanError(f"response {response!r}: must be one of {', '.join(RESPONSES)}")
    if not treatment and len(design.baselines) > 1:
        names = ", ".join(design.baselines.values())
        raise PlanError("several conditions: name a --treatment", place=str(folder.path), hint=names)
    name = treatment or next(iter(design.baselines.values()), "")
    if name not in design.by_name:
        raise PlanError(
            f"no treatment {name!r}",
            place=str(folder.path),
            hint="there are: " + ", ".join(design.by_name),
        )
    records = [r for r in _compared(folder) if r.treatment == name]
    responses, excluded = _usable_trials(folder, records)
    values = [value for trial in responses if (value := trial.value(response))]
    slow = [r.reason or "failed" for r in records if did_no_work(r)]
    slow += [why for why in excluded.values() if why.startswith(NO_OPERATION)]
    slow += [f"too few operations for a {response}" for trial in responses if not trial.value(response)]
    if not values:
        raise NothingMeasured(
            f"no trial of {name} has a {response}",
            place=str(folder.path),
            hint="headrace status shows why; leave it out, or run its plan again with --retry",
        )
    disturbed = sum(r.state is TrialState.INVALID and not did_no_work(r) for r in records)
    return Point(folder.path.name, tuple(math.log(value) for value in values), tuple(slow), disturbed)


def compare_experiments(a: ExperimentFolder, b: ExperimentFolder) -> Comparison:
    """Each treatment of B relative to the one with the same name in A, unpaired: see ``Comparison``.

    ``alpha`` and ``equivalence`` are the stricter of the two plans. Raises PlanError when the workloads differ or
    no treatment is in both.
    """
    design_a, design_b = a.design, b.design
    treatments_a, treatments_b = design_a.by_name, design_b.by_name
    place = f"{a.path} and {b.path}"
    common = [name for name in treatments_b if name in treatments_a]
    _refuse_other_workload(design_a, design_b, common, place)
    if not common:
        raise PlanError(
            f"no treatment is in both: {', '.join(treatments_a)} / {', '.join(treatments_b)}",
            place=place,
        )
    (trials_a, _), (trials_b, _) = _usable_trials(a, _compared(a)), _usable_trials(b, _compared(b))
    by_a, by_b = _by_treatment(of_starts(design_a, trials_a)), _by_treatment(of_starts(design_b, trials_b))
    alpha, equivalence = min(design_a.alpha, design_b.alpha), min(design_a.equivalence, design_b.equivalence)
    same_kind = len({t.latency_kind for t in [*trials_a, *trials_b] if t.latency.total}) <= 1
    found = [
        unpaired_effect(
            response,
            by_a.get(name, []),
            by_b.get(name, []),
            condition=treatments_b[name].condition,
            alpha=alpha,
            equivalence=equivalence,
            comparisons=len(common),
        )
        for response in (RESPONSES if same_kind else (THROUGHPUT,))
        for name in common
    ]
    effects = tuple(effect for effect in found if effect is not None)
    notes = ["The two experiments ran at different times: other changes in between are part of every ratio."]
    if is_emulated([*a.trials(), *b.trials()]):
        notes.append(f"{EMULATED[0].upper()}{EMULATED[1:]}.")
    if not same_kind:
        notes.append("One has response times, the other service times, so latencies are not compared.")
    notes += _few_starts(design_a, by_a) + _few_starts(design_b, by_b)
    failed = failures(_compared(b))
    weaker = tuple(
        f"{name} failed in {failed[name][0]} of {failed[name][1]} trials of {design_b.name}"
        if name in failed
        else f"{name} has no valid trial in {design_b.name}"
        for name in common
        if name in failed or (name in by_a and name not in by_b)
    )
    changed = [n for n in common if treatments_a[n].settings != treatments_b[n].settings]
    if changed:
        notes.append(f"The same name has different settings: {', '.join(changed)}.")
    return Comparison(
        a=design_a.name,
        b=design_b.name,
        alpha=alpha,
        equivalence=equivalence,
        effects=effects,
        only_in_a=tuple(n for n in treatments_a if n not in treatments_b),
        only_in_b=tuple(n for n in treatments_b if n not in treatments_a),
        notes=tuple(notes),
        headline=headline.of_comparison(design_a.name, design_b.name, effects, equivalence)
        + "".join(f" {said}." for said in weaker),
        weaker=weaker,
    )


def _few_starts(design: Design, by_treatment: Mapping[str, Sequence[TrialResponse]]) -> list[str]:
    """What a switchback's number of starts means for a comparison; ``by_treatment`` has starts as blocks."""
    if not design.blocks_per_start:
        return []
    starts = len({trial.block for trials in by_treatment.values() for trial in trials})
    said = f"{design.name} is a switchback: each start of its server is one observation, not each block"
    if starts < 2:
        return [
            f"{said}. It has one start, so there is no interval: --blocks +{design.blocks_per_start} adds one."
        ]
    return [f"{said}. It has {starts}."]


def _compared(folder: ExperimentFolder) -> list[TrialRecord]:
    """The trials that stand for a treatment; those of a sweep's search only chose the levels."""
    is_sweep = folder.design.sweep is not None
    return [record for record in folder.trials() if not (is_sweep and record.block == SEARCH)]


def _usable_trials(
    folder: ExperimentFolder, records: Sequence[TrialRecord], tables: Tables | None = None
) -> tuple[list[TrialResponse], dict[int, str]]:
    """The complete trials that did any work, and why the others are excluded."""
    excluded = {
        r.number: f"{r.state.value}: {r.reason or 'no reason was recorded'}"
        for r in records
        if r.state is not TrialState.COMPLETE
    }
    usable = []
    mixed = _mixed(folder, records)
    excluded |= {
        r.number: (
            f"its block was measured on {' and '.join(mixed[r.block])}: differences between machines do not "
            "cancel"
        )
        for r in records
        if r.block in mixed
    }
    complete = [r for r in records if r.number not in excluded]
    for response in trial_responses(folder, complete, tables):
        if response.operations > 0 and response.throughput_ops_s > 0:
            usable.append(response)
        else:
            excluded[response.number] = f"{NO_OPERATION} in the measured window"
    return usable, dict(sorted(excluded.items()))


def _mixed(folder: ExperimentFolder, records: Sequence[TrialRecord]) -> dict[int, tuple[str, ...]]:
    """Blocks of several machines, which can only come from moving folders by hand."""
    if not folder.design.target.addresses:
        return {}
    named = [r for r in records if r.machine]
    return machines.mixed_blocks({r.number: r.machine for r in named}, {r.number: r.block for r in named})


def _machines(
    folder: ExperimentFolder,
    design: Design,
    by_treatment: Mapping[str, Sequence[TrialResponse]],
    records: Sequence[TrialRecord],
) -> machines.Spread | None:
    if not folder.design.target.addresses:
        return None
    baselines = {condition: by_treatment.get(name, ()) for condition, name in design.baselines.items()}
    return machines.spread(baselines, {r.number: r.machine for r in records})


def failures(records: Sequence[TrialRecord]) -> dict[str, tuple[int, int]]:
    """Treatment -> (failed trials, trials that ran), of those with any that failed."""
    failed = Counter(r.treatment for r in records if r.state is TrialState.FAILED)
    ran = Counter(r.treatment for r in records)
    return {name: (n, ran[name]) for name, n in failed.items()}


def _by_treatment(responses: Iterable[TrialResponse]) -> dict[str, list[TrialResponse]]:
    by_treatment: dict[str, list[TrialResponse]] = {}
    for response in responses:
        by_treatment.setdefault(response.treatment, []).append(response)
    return by_treatment


def _summary(treatment: Treatment, trials: Sequence[TrialResponse], alpha: float) -> TreatmentSummary:
    throughput = geometric_mean(THROUGHPUT, trials, alpha=alpha)
    assert throughput is not None  # only trials that did work are summarised
    blocks = [merge(t.latency for t in trials if t.block == b) for b in sorted({t.block for t in trials})]
    latency: dict[str, Interval] = {}
    for name in (*PERCENTILES, "max"):
        interval = jackknife(blocks, name, alpha)
        if interval is not None:
            latency[name] = interval
    return TreatmentSummary(
        treatment=treatment.name,
        configuration=treatment.configuration,
        condition=treatment.condition,
        trials=tuple(t.number for t in trials),
        throughput_ops_s=throughput,
        latency_ns=latency,
        latency_kind=trials[0].latency_kind,
        operations=sum(t.operations for t in trials),
        errors=sum(t.errors for t in trials),
    )


def _operations(
    design: Design, by_treatment: Mapping[str, Sequence[TrialResponse]]
) -> dict[str, tuple[TreatmentSummary, ...]]:
    names = sorted({name for trials in by_treatment.values() for trial in trials for name in trial.parts})
    if len(names) < 2:
        return {}
    found: dict[str, tuple[TreatmentSummary, ...]] = {}
    for name in names:
        parts = {
            treatment: [trial.parts[name] for trial in trials if name in trial.parts]
            for treatment, trials in by_treatment.items()
        }
        found[name] = tuple(
            _summary(treatment, of_starts(design, parts[key]), design.alpha)
            for key, treatment in design.by_name.items()
            if key in parts
            and len(parts[key]) == len(by_treatment[key])
            and all(part.operations for part in parts[key])
        )
    return dict(sorted(found.items(), key=lambda item: -sum(summary.operations for summary in item[1])))


def _comparisons(design: Design) -> int:
    return max(len(design.treatments) - len(design.baselines), 1)


def _effects(
    design: Design, by_treatment: Mapping[str, Sequence[TrialResponse]]
) -> tuple[list[Effect], list[Adjustment]]:
    found: list[Effect] = []
    adjustments: list[Adjustment] = []
    for condition, baseline in design.baselines.items():
        own = {
            t.name: by_treatment[t.name]
            for t in design.treatments
            if t.condition == condition and t.name in by_treatment
        }
        for response in RESPONSES:
            effects, one = effects_of(
                response,
                own,
                baseline,
                condition=condition,
                alpha=design.alpha,
                equivalence=design.equivalence,
                comparisons=_comparisons(design),
            )
            found += effects
            if one is None:
                continue
            adjustments += [
                Adjustment(
                    condition,
                    response,
                    taken.slope,
                    taken.adjusted,
                    taken.left_out,
                    taken.most,
                    taken.kind,
                    _uneven(one.names, baseline, taken.means),
                )
                for taken in one.taken
            ]
    order = {t.name: i for i, t in enumerate(design.treatments)}
    return sorted(found, key=lambda e: order[e.treatment]), adjustments


def _uneven(names: Sequence[str], baseline: str, means: Sequence[float]) -> Uneven | None:
    """The treatment whose loss differs most from the baseline's, if it differs by much."""
    own = dict(zip(names, means, strict=True))
    if baseline not in own:
        return None
    name = max(own, key=lambda each: abs(own[each] - own[baseline]))
    if abs(own[name] - own[baseline]) < UNEVEN:
        return None
    return Uneven(name, own[name], baseline, own[baseline])


def _noise(design: Design, by_treatment: Mapping[str, Sequence[TrialResponse]]) -> Iterable[NoiseFloor]:
    # Adjusted for the number of conditions, so that many conditions do not produce an odd A/A pair by chance.
    alpha = design.alpha / max(len(design.baselines), 1)
    for condition, baseline in design.baselines.items():
        for response in RESPONSES:
            floor = noise_floor(response, by_treatment.get(baseline, []), condition=condition, alpha=alpha)
            if floor is not None:
                yield floor


def _refuse_other_workload(a: Design, b: Design, common: Sequence[str], place: str) -> None:
    """A ratio between two different questions is meaningless."""
    differences = _differences("workload.", a.workload.model_dump(), b.workload.model_dump())
    for name in common:
        own_a, own_b = (
            {k: v for k, v in d.treatment(name).settings.items() if k.startswith("workload.")} for d in (a, b)
        )
        differences += [f"{name}: {text}" for text in _differences("", own_a, own_b)]
    if differences:
        raise PlanError(
            "the workloads differ, so their results cannot be compared: " + "; ".join(differences),
            place=place,
            hint="run both with the same [workload]",
        )


def _differences(prefix: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    keys = [*a, *(key for key in b if key not in a)]
    return [
        f"{prefix}{key} is {a.get(key, 'not set')!r} and {b.get(key, 'not set')!r}"
        for key in keys
        if a.get(key) != b.get(key)
    ]
