"""Each treatment relative to the baseline of its condition, and the baseline to itself.

A block runs every treatment close together in time, so slow drift cancels in the ratio of two trials of a block.
The data are the trials' logs, nothing finer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.base import intervals
from headrace.base.effect import Effect, NoiseFloor, Verdict
from headrace.base.intervals import Interval
from headrace.base.model import Role
from headrace.experiment.frozen import Design
from headrace.experiment.stats.estimate import One, fit_one
from headrace.experiment.stats.observed import answered, blocks_of, is_unanswered, seen_of
from headrace.experiment.stats.trials import THROUGHPUT, TrialResponse


def effects(
    response: str,
    trials: Mapping[str, Sequence[TrialResponse]],
    baseline: str,
    *,
    condition: str = "",
    alpha: float = 0.05,
    equivalence: float = 0.03,
    comparisons: int = 1,
) -> tuple[list[Effect], One | None]:
    """Every treatment of one condition relative to its baseline, and the fit that says so: see ``estimate``.

    ``trials`` are by treatment. A treatment is missing if it shares no block with the baseline, or if a comparison
    would require selecting trials: one that did work but has no value for the response (too few operations for a
    percentile) is a slow one, so dropping it would be optimistic. With fewer than 2 common blocks there is an
    estimate, but neither interval nor verdict.

    The level is alpha / ``comparisons`` (Bonferroni; Dunn 1961): all intervals of one response jointly cover their
    true ratios with probability 1 - alpha, regardless of the dependence through the shared baseline. Holm's
    procedure would reject more, but as a sequence of tests it yields no simultaneous intervals of the usual form,
    and reports show intervals. Dunnett's intervals assume a common variance, but a treatment may be more or less
    variable than the baseline.
    """
    sound = answered(response, trials, baseline)
    if baseline not in sound or len(sound) < 2:
        return [], None
    seen = [one for own in sound.values() for one in seen_of(response, own)]
    found = fit_one(seen)
    contrasts = found.to(baseline)
    half = contrasts.half_width(alpha / comparisons / 2)
    own_resolution = {name: _resolution(own, response) for name, own in sound.items()}
    result = []
    for i, name in enumerate(found.names):
        blocks = len(blocks_of(sound[name]) & blocks_of(sound[baseline]))
        if name == baseline or not blocks:
            continue
        resolution = own_resolution[name] + own_resolution[baseline]
        error = float(contrasts.error[i])
        is_known = blocks > 1 and not math.isnan(error)
        log = float(contrasts.estimate[i])
        ratio = intervals.around(log, float(half[i]) + resolution if is_known else None)
        needed = None
        own_verdict = verdict(response, ratio, equivalence)
        if own_verdict is Verdict.NOT_ENOUGH_DATA and is_known:
            degrees = float(contrasts.degrees[i])
            needed = intervals.blocks_needed(
                log, error, degrees, blocks, alpha / comparisons, equivalence, resolution
            )
        result.append(
            Effect(
                response=response,
                treatment=name,
                baseline=baseline,
                condition=condition,
                ratio=ratio,
                verdict=own_verdict,
                blocks=blocks,
                blocks_needed=needed.most if needed else None,
                comparisons=comparisons,
                blocks_least=needed.least if needed else None,
            )
        )
    return result, found


def unpaired_effect(
    response: str,
    a: Sequence[TrialResponse],
    b: Sequence[TrialResponse],
    *,
    condition: str = "",
    alpha: float = 0.05,
    equivalence: float = 0.03,
    comparisons: int = 1,
) -> Effect | None:
    """One treatment in two experiments, as b / a with Welch's interval; None if a side or a trial lacks a value
    (see ``effects``). The unit is the block (its trials averaged in log), because trials of a block share
    conditions. Blocks must not share any, so those of a switchback are its starts: see ``of_starts``.
    """
    logs_a, logs_b = _logs(a, response), _logs(b, response)
    if not logs_a or not logs_b or _has_unanswered([*a, *b], response, blocks_of(a) | blocks_of(b)):
        return None
    resolution = _resolution(a, response) + _resolution(b, response)
    ratio = intervals.welch(logs_a, logs_b, alpha / comparisons, resolution)
    return Effect(
        response=response,
        treatment=b[0].treatment,
        baseline=a[0].treatment,
        condition=condition,
        ratio=ratio,
        verdict=verdict(response, ratio, equivalence),
        blocks=min(len(logs_a), len(logs_b)),
        blocks_needed=None,
        comparisons=comparisons,
    )


def noise_floor(
    response: str, baseline: Sequence[TrialResponse], *, condition: str = "", alpha: float = 0.05
) -> NoiseFloor | None:
    """The A/A comparison: the baseline's second trial of each block relative to its first, at level 1 - alpha.

    None without a block in which both were measured, or if one lacks a value (see ``effects``). The order of
    the two within their block is random, so a ratio other than 1 is noise (or, with probability alpha, bad luck),
    never an effect.
    """
    firsts = [t for t in baseline if t.role is Role.BASELINE]
    seconds = [t for t in baseline if t.role is Role.REPEAT]
    blocks = blocks_of(firsts) & blocks_of(seconds)
    if not blocks or _has_unanswered([*firsts, *seconds], response, blocks):
        return None
    first, second = _logs(firsts, response), _logs(seconds, response)
    ratios = {block: second[block] - first[block] for block in sorted(blocks)}
    ratio = intervals.geometric(ratios, alpha, 2 * _resolution(baseline, response))
    floor = None
    if ratio.low is not None and ratio.high is not None:
        floor = max(abs(ratio.high - 1), abs(1 - ratio.low))
    return NoiseFloor(condition, response, ratio, floor, len(ratios))


def of_starts(design: Design, trials: Iterable[TrialResponse]) -> list[TrialResponse]:
    """The trials for what is not paired within a block. Turns of a switchback also share their server's start
    (where its pages lie, what it cached). That cancels between treatments, but not between experiments, so each
    start is one block, with the number of its first.

    Source: Kalibera & Jones 2013, Rigorous benchmarking in reasonable time, ISMM (the highest level that varies is
    the one to repeat).
    """
    if design.blocks_per_session:
        return of_sessions(design, trials)
    if not design.blocks_per_start:
        return list(trials)
    return [replace(trial, block=design.start_of(trial.block)) for trial in trials]


def of_sessions(design: Design, trials: Iterable[TrialResponse]) -> list[TrialResponse]:
    """The trials with their sessions as blocks. Blocks of a session share how its data were loaded, so how far
    treatments differ there is one observation (``observed.seen_of``), and the interval has the variance between
    sessions. Source: Kalibera & Jones 2013, as in ``of_starts``.
    """
    if not design.blocks_per_session:
        return list(trials)
    return [replace(t, block=design.session_of(t.block), is_of_session=True) for t in trials]


def geometric_mean(response: str, trials: Sequence[TrialResponse], *, alpha: float = 0.05) -> Interval | None:
    """A treatment's response over blocks with its t interval; None if no trial has a value. Blocks are as in
    ``unpaired_effect``.
    """
    logs = _logs(trials, response)
    return intervals.geometric(logs, alpha, _resolution(trials, response)) if logs else None


def verdict(response: str, ratio: Interval, equivalence: float) -> Verdict:
    """The verdict of an interval of treatment / baseline.

    ``EQUIVALENT`` takes precedence: a real difference that is certainly smaller than the margin is not worth
    acting on. A latency is better when lower.
    """
    if ratio.low is None or ratio.high is None:
        return Verdict.NOT_ENOUGH_DATA
    if ratio.low >= 1 / (1 + equivalence) and ratio.high <= 1 + equivalence:
        return Verdict.EQUIVALENT
    higher_is_better = response == THROUGHPUT
    if ratio.low > 1:
        return Verdict.BETTER if higher_is_better else Verdict.WORSE
    if ratio.high < 1:
        return Verdict.WORSE if higher_is_better else Verdict.BETTER
    return Verdict.NOT_ENOUGH_DATA


def _has_unanswered(trials: Iterable[TrialResponse], response: str, blocks: set[int]) -> bool:
    """Whether a trial of these blocks did work but has no value for the response."""
    return any(t.block in blocks and is_unanswered(t, response) for t in trials)


def _logs(trials: Iterable[TrialResponse], response: str) -> dict[int, float]:
    """Block -> mean log of the response over the block's trials with a value."""
    by_block: dict[int, list[float]] = {}
    for seen in seen_of(response, trials):
        by_block.setdefault(seen.block, []).append(seen.log)
    return {block: math.fsum(logs) / len(logs) for block, logs in by_block.items()}


def _resolution(trials: Sequence[TrialResponse], response: str) -> float:
    """The mean over trials: the largest error of a mean of their logs."""
    found = [t.resolution_log(response) for t in trials if t.value(response) is not None]
    return math.fsum(found) / len(found) if found else 0.0
