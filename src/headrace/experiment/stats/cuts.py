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
    """By Student's t; nothing is lost below 0. Trials that are all alike show no spread, and give no interval."""
    mean = statistics.fmean(values)
    if len(set(values)) < 2:
        return Interval(mean, None, None)
    half = t_quantile(len(values) - 1, alpha) * statistics.stdev(values) / len(values) ** 0.5
    return Interval(mean, max(mean - half, 0.0), mean + half)


def sentence(taken: Sequence[Lost], treatments: Mapping[str, Treatment], alpha: float) -> str:
    """The worst first, then what lost nothing, with how sure that is; empty without cuts."""
    confidence = f"{100 * (1 - alpha):g}%"
    losing = sorted((each for each in taken if each.cuts_that_lost), key=lambda each: -each.per_cut.estimate)
    kept = [each for each in taken if not each.cuts_that_lost]
    parts = []
    if losing:
        parts.append(_loss(losing[0], treatments[losing[0].treatment].name, confidence))
    if others := [_short(each, treatments[each.treatment].name) for each in losing[1:]]:
        parts.append(f"Some are lost with {_listed(others)}, too.")
    if kept:
        listed = _listed([_kept(each, treatments[each.treatment].name, confidence) for each in kept])
        parts.append(f"{'None' if losing else 'No acknowledged transaction'} was lost with {listed}.")
    return " ".join(parts)


def _listed(names: Sequence[str]) -> str:
    shown, more = names[:MOST_NAMED], len(names) - MOST_NAMED
    ends = [*shown, f"{more} more"] if more > 0 else list(shown)
    return " and ".join(filter(None, [", ".join(ends[:-1]), ends[-1]]))


def _loss(each: Lost, name: str, confidence: str) -> str:
    low, high = each.per_cut.low, each.per_cut.high
    interval = "" if low is None or high is None else f"{confidence} interval {low:,.0f} to {high:,.0f}; "
    since = f" and {each.most_s:.2g} s of work" if each.most_s else ""
    return (
        f"With {name} a power cut takes {each.per_cut.estimate:,.0f} acknowledged transactions on average "
        f"({interval}some in {each.cuts_that_lost} of {counted(each.cuts, 'cut')}), {each.most:,} at most{since}"
        f"{_then(each)}."
    )


def _then(each: Lost) -> str:
    ended = ", ".join(f"after {counted(count, 'cut')} {state}" for state, count in each.after.items())
    return f"; {ended}" if ended else ""


def _short(each: Lost, name: str) -> str:
    return f"{name} ({each.per_cut.estimate:,.0f}{_then(each)})"


def _kept(each: Lost, name: str, confidence: str) -> str:
    assert each.at_most is not None
    return (
        f"{name} ({counted(each.cuts, 'cut')} of {counted(each.trials, 'trial')}: at {confidence}, fewer than "
        f"{100 * each.at_most:.2g}% of such trials lose any)"
    )
