"""Factor effects of an experiment: its trials as observations, each condition separately."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.base.intervals import t_quantile
from headrace.base.model import Treatment
from headrace.experiment.stats import aliasing, whole
from headrace.experiment.stats.effects import Observation, Term
from headrace.experiment.stats.factors import Study, study
from headrace.experiment.stats.observed import seen_of
from headrace.experiment.stats.trials import THROUGHPUT, TrialResponse

#: Responses, by their name in a study (the p99 in milliseconds), and whether more is better.
TOLD: Mapping[str, bool] = {THROUGHPUT: True, "p99_ms": False}

_NS_PER_MS = 1e6


def studies(
    treatments: Sequence[Treatment],
    trials: Sequence[TrialResponse],
    *,
    kind: str,
    adaptive: bool = False,
    hard: Sequence[str] = (),
    interactions: Sequence[Sequence[str]] = (),
    alpha: float = 0.05,
    margin: float = 0.03,
) -> list[Study]:
    """A study for each condition and response, if at least two factors vary; none for an adaptive design.

    An observation is a treatment in a block: the baseline's two trials are averaged in log, so that it has no
    double weight and the design stays orthogonal. A response without a value in some trial (too few operations for
    a percentile) has no study, because the other trials would be a biased selection. A cumulative design that
    holds all combinations of its parts is analysed as the factorial that it is.
    """
    if adaptive:
        return []
    found = []
    conditions = dict.fromkeys(t.condition for t in treatments)
    for condition in conditions:
        own = [t for t in treatments if t.condition == condition]
        if kind == "cumulative" and len({name for t in own for name in t.levels}) == 1:
            own = whole.parts_of(own)
        planned = [t.levels for t in own]
        factors = aliasing.varying(planned)
        if len(factors) < 2:
            continue
        confounded = None
        pairs: list[Term] | None = None
        if kind in ("screening", "optimal"):
            cells = [{name: cell[name] for name in factors} for cell in planned]
            named = [(a, b) for a, b in interactions if a in factors and b in factors]
            confounded = aliasing.structure(cells, interactions=named if kind == "optimal" else None)
            pairs = [t for t in confounded.terms if len(t) == 2]
        for response, is_higher_better in TOLD.items():
            seen = _observations(response, own, trials, list(factors))
            try:
                one = study(
                    response,
                    seen,
                    is_higher_better=is_higher_better,
                    alpha=alpha,
                    margin=margin,
                    pairs=pairs,
                    hard=hard,
                    planned=planned,
                )
            except ValueError:
                continue  # nothing varies in the trials so far
            if len(one.factors) < 2:
                continue
            if pairs is None and not hard:
                one = _adjusted(one, response, own, trials, alpha, len(conditions))
            names = {tuple(t.levels[f] for f in one.factors): t.configuration for t in own}
            found.append(replace(one, condition=condition, names=names, aliasing=confounded))
    return found


def _adjusted(
    one: Study,
    response: str,
    treatments: Sequence[Treatment],
    trials: Sequence[TrialResponse],
    alpha: float,
    conditions: int,
) -> Study:
    """With robust intervals and what they prove of the factors (in all ``conditions`` together), if the treatments
    are a whole factorial.
    """
    cells = {t.name: t.levels for t in treatments}
    name = response if response == THROUGHPUT else "p99"
    seen = [s for t in cells for s in seen_of(name, [trial for trial in trials if trial.treatment == t])]
    if not whole.is_whole(one.effects, cells) or len({s.treatment for s in seen}) < len(cells):
        return one
    if len({s.block for s in seen}) < 2:
        return one
    found = whole.fitted(seen, one.effects.factors, cells)
    joint = alpha / conditions
    claims = whole.claimed(whole.with_own_variances(one.effects, found, joint), found, joint)
    return replace(one, effects=whole.with_own_variances(one.effects, found, alpha), claims=claims)


def _observations(
    response: str, treatments: Sequence[Treatment], trials: Sequence[TrialResponse], factors: Sequence[str]
) -> list[Observation]:
    levels = {t.name: {name: t.levels[name] for name in factors} for t in treatments}
    logs: dict[tuple[int, str], list[float]] = {}
    for trial in trials:
        if trial.treatment not in levels:
            continue
        value = trial.value(response) if response == THROUGHPUT else trial.value("p99")
        if not value:
            return []
        value = value if response == THROUGHPUT else value / _NS_PER_MS
        logs.setdefault((trial.block, trial.treatment), []).append(math.log(value))
    # In the plan's order, regardless of the order of trials, so that a factor's first level is the plan's.
    order = {name: i for i, name in enumerate(levels)}
    return [
        Observation(levels[name], math.fsum(own) / len(own), block)
        for (block, name), own in sorted(logs.items(), key=lambda item: (order[item[0][1]], item[0][0]))
    ]


def lenth_margin(logs: Sequence[float], alpha: float = 0.05) -> float | None:
    """How large one of ``logs`` (contrasts of equal variance, most of them zero) must be to be significant, for
    all of them jointly, in a design without repeats. None with fewer than 5 contrasts, which are too few for an
    estimate.

    Source: Lenth 1989, Quick and easy analysis of unreplicated factorials, Technometrics 31 (simultaneous margin).
    """
    error = lenth_error(logs)
    if error is None:
        return None
    each = 1 - (1 - alpha) ** (1 / len(logs))
    return t_quantile(len(logs) / 3, each) * error


def lenth_error(logs: Sequence[float]) -> float | None:
    """The standard error of contrasts, most of them zero, from the small ones (Lenth 1989); None with fewer than
    5, or if most are equal to the last digit: that shows no noise, not that there is none.
    """
    if len(logs) < 5:
        return None
    sizes = [abs(v) for v in logs]
    first = 1.5 * statistics.median(sizes)
    inner = [v for v in sizes if v < 2.5 * first]
    return 1.5 * statistics.median(inner) or None if inner else None
