"""Two treatments compared without a study around them."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.base.effect import Effect
from headrace.experiment.stats.compare import effects
from headrace.experiment.stats.trials import TrialResponse


def paired_effect(
    response: str,
    treated: Sequence[TrialResponse],
    baseline: Sequence[TrialResponse],
    *,
    comparisons: int = 1,
) -> Effect | None:
    """One treatment relative to its baseline, without the trials of others."""
    if not treated or not baseline:
        return None
    own, other = treated[0].treatment, baseline[0].treatment
    found, _ = effects(response, {other: baseline, own: treated}, other, comparisons=comparisons)
    return found[0] if found else None
