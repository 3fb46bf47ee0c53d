"""Each treatment against the baseline of its condition, and the baseline against itself.

A block runs every treatment close together in time, so what drifts from hour to hour cancels in the ratio of
two trials of one block. The ratios of the blocks, on the log scale, are the data; nothing finer is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.analysis import intervals
from headrace.analysis.result import Effect, Interval, NoiseFloor, UnpairedEffect, Verdict
from headrace.analysis.trials import THROUGHPUT, TrialResponse
from headrace.model import Role


def paired_effect(
    response: str,
    treated: Sequence[TrialResponse],
    baseline: Sequence[TrialResponse],
    *,
    condition: str = "",
    alpha: float = 0.05,
    equivalence: float = 0.03,
    comparisons: int = 1,
) -> Effect | None:
    """One treatment against its baseline; None when one side cannot answer the response at all.

    Both baseline trials of a block are averaged in log first. A block that lacks a side is dropped. With
    fewer than 2 whole blocks there is an estimate, but neither interval nor verdict.

    The level is alpha / ``comparisons`` (Bonferroni; Dunn 1961): all intervals of one response cover their
    true ratios together with probability 1 - alpha, whatever the dependence through the shared baseline.
    Holm's procedure would reject more, but it is a sequence of tests: it yields no simultaneous intervals
    of the usual form, and the interval is what we report. Dunnett's intervals suppose one common variance,
    while a treatment may well be steadier or wilder than the baseline; here each comparison has its own.
    """
    _refuse_repeats([*treated, *baseline])
    a, b = _logs(baseline, response), _logs(treated, response)
    if not a or not b:
        return None
    ratios = {block: b[block] - a[block] for block in sorted(a.keys() & b.keys())}
    level = alpha / comparisons
    needed = None
    if not ratios:
        ratio = Interval(intervals.geometric(b, level).estimate / intervals.geometric(a, level).estimate, None, None)
    else:
        resolution = _resolution(treated, response) + _resolution(baseline, response)
        ratio = intervals.geometric(ratios, level, resolution)
    found = verdict(response, ratio, equivalence)
    if ratios and found is Verdict.NOT_ENOUGH_DATA:
        needed = intervals.blocks_needed(ratios, level, equivalence, resolution)
    return Effect(
        response=response,
        treatment=treated[0].treatment,
        baseline=baseline[0].treatment,
        condition=condition,
        ratio=ratio,
        verdict=found,
        blocks=len(ratios),
        blocks_needed=needed,
        comparisons=comparisons,
    )
