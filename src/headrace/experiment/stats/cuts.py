"""What power cuts took, by treatment. The trial is the unit: its cuts are of one run of one server."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.base.counted import counted
from headrace.base.intervals import Interval, t_quantile
from headrace.base.model import Treatment, TrialState
from headrace.experiment.store import TrialRecord

#: Treatments that the first sentence names.
MOST_NAMED = 3


@dataclass(frozen=True)
class Lost:
    """``per_cut``: acknowledged transactions lost in a cut, the mean over trials of each one's mean.

    ``most`` and ``most_s`` are the worst cut's. ``after`` counts what became of a server that did not come up, or
    not with whole tables. ``at_most`` bounds the share of trials that lose any, where none did.
    """

    treatment: str
    trials: int
    trials_that_lost: int
    cuts: int
    cuts_that_lost: int
    per_cut: Interval
    most: int
    most_s: float
    acknowledged: int
    recovery_s: float | None
    after: Mapping[str, int]
    at_most: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "treatment": self.treatment,
            "trials": self.trials,
            "trials_that_lost": self.trials_that_lost,
            "cuts": self.cuts,
            "cuts_that_lost": self.cuts_that_lost,
            "lost_per_cut": {
                "estimate": self.per_cut.estimate,
                "low": self.per_cut.low,
                "high": self.per_cut.high,
            },
            "most_lost": self.most,
            "most_lost_s": self.most_s,
            "acknowledged": self.acknowledged,
            "recovery_s": self.recovery_s,
            "after": dict(self.after),
            "at_most_of_trials": self.at_most,
        }


def lost(records: Sequence[TrialRecord], treatments: Collection[str], alpha: float) -> list[Lost]:
    """Of each treatment with cuts in a complete trial, in the order of ``treatments``."""
    own: dict[str, list[TrialRecord]] = {name: [] for name in treatments}
    for record in records:
        if record.cuts and record.state is TrialState.COMPLETE and record.treatment in own:
            own[record.treatment].append(record)
    return [_of(name, trials, alpha) for name, trials in own.items() if trials]


def _of(treatment: str, records: Sequence[TrialRecord], alpha: float) -> Lost:
    cuts = [cut for record in records for cut in record.cuts]
    losing = sum(any(cut["lost"] or cut["state"] for cut in record.cuts) for record in records)
    came_up = [cut["recovery_s"] for cut in cuts if cut["recovery_s"]]
    means = [statistics.fmean(cut["lost"] for cut in record.cuts) for record in records]
    return Lost(
        treatment,
        trials=len(records),
        trials_that_lost=losing,
        cuts=len(cuts),
        cuts_that_lost=sum(bool(cut["lost"] or cut["state"]) for cut in cuts),
        per_cut=_mean(means, alpha),
        most=max(cut["lost"] for cut in cuts),
        most_s=max(cut["lost_s"] for cut in cuts),
        acknowledged=sum(cut["acknowledged"] for cut in cuts),
        recovery_s=statistics.median(came_up) if came_up else None,
        after=Counter(cut["state"] for cut in cuts if cut["state"]),
        # So many trials without a loss would be rarer than alpha, if more of them lost any (Clopper and Pearson).
        at_most=None if losing else 1 - alpha ** (1 / len(records)),
    )


def _mean(values: Sequence[float], alpha: float) -> Interval:
    """By Student's t; nothing is lost below 0."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    half = t_quantile(len(values) - 1, alpha) * statistics.stdev(values) / len(values) ** 0.5
    return Interval(mean, max(mean - half, 0.0), mean + half)


def sentence(taken: Sequence[Lost], treatments: Mapping[str, Treatment], alpha: float) -> str:
    """The worst first, then what lost nothing, with how sure that is; empty without cuts."""
    confidence = f"{100 * (1 - alpha):g}%"
    names = {name: treatment.name for name, treatment in treatments.items()}
    losing = sorted((each for each in taken if each.cuts_that_lost), key=lambda each: -each.per_cut.estimate)
    parts = [_loss(each, names[each.treatment], confidence) for each in losing[:MOST_NAMED]]
    if more := len(losing) - MOST_NAMED:
        parts += [f"{more} more lose some, too."] if more > 0 else []
    kept = [each for each in taken if not each.cuts_that_lost]
    parts += [_kept(each, names[each.treatment], confidence) for each in kept[:MOST_NAMED]]
    if (more := len(kept) - MOST_NAMED) > 0:
        parts.append(f"{more} more lost none, either.")
    return " ".join(parts)


def _loss(each: Lost, name: str, confidence: str) -> str:
    failed = ", ".join(f"after {count} of them {state}" for state, count in each.after.items())
    low, high = each.per_cut.low, each.per_cut.high
    interval = "" if low is None or high is None else f" ({confidence} interval {low:,.0f} to {high:,.0f})"
    since = f" and {each.most_s:.2g} s of work" if each.most_s else ""
    return (
        f"With {name} a power cut takes acknowledged transactions: in {each.cuts_that_lost} of "
        f"{counted(each.cuts, 'cut')}, {each.per_cut.estimate:,.0f} a cut on average{interval}, "
        f"{each.most:,} at most{since}{'; ' if failed else ''}{failed}."
    )


def _kept(each: Lost, name: str, confidence: str) -> str:
    assert each.at_most is not None
    return (
        f"With {name} none was lost in {counted(each.cuts, 'cut')} of {counted(each.trials, 'trial')}: at "
        f"{confidence}, fewer than {100 * each.at_most:.2g}% of such trials lose any."
    )
