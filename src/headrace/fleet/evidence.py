"""What an experiment measured about a difference between hosts: how much slower one value is than the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from headrace.base.effect import Verdict
from headrace.base.intervals import Interval, inverse
from headrace.base.model import Value
from headrace.experiment.frozen import Design
from headrace.experiment.store import ExperimentFolder
from headrace.fleet.drift import Area, Difference, Drift
from headrace.knobs.catalogue import CATALOGUE
from headrace.knobs.knob import value_text
from headrace.knobs.values import plain_value


@dataclass(frozen=True)
class Measured:
    """``value`` relative to ``usual`` in one experiment. The interval is that experiment's simultaneous one."""

    experiment: str
    day: str
    response: str
    value: str
    usual: str
    ratio: Interval
    verdict: Verdict

    @property
    def of_slower(self) -> Measured:
        """The same effect of the value that was measured to be slower, whichever of the two that is."""
        if self.verdict is not Verdict.BETTER:
            return self
        return replace(
            self, value=self.usual, usual=self.value, ratio=inverse(self.ratio), verdict=Verdict.WORSE
        )

    @property
    def loss(self) -> float:
        """The share that is lost with the slower of the two values; 0 unless one was shown to be slower."""
        if self.verdict not in (Verdict.BETTER, Verdict.WORSE):
            return 0.0
        return _lost_at(self.ratio.estimate)

    @property
    def least_loss(self) -> float:
        """The same at the end of the interval that is nearest to no loss: how much of it is certain."""
        ends = (self.ratio.low, self.ratio.high)
        return min((_lost_at(end) for end in ends if end is not None), default=0.0) if self.loss else 0.0

    @property
    def most_loss(self) -> float:
        """The same at the other end, whatever was shown: how much it may be."""
        ends = (self.ratio.low, self.ratio.high)
        return 1.0 if None in ends else max(_lost_at(end) for end in ends if end is not None)


def _lost_at(ratio: float) -> float:
    return 1 - min(ratio, 1 / ratio) if ratio > 0 else 1.0


@dataclass(frozen=True)
class _Tested:
    """One knob changed from ``before`` to ``after``, and nothing else."""

    knob: str
    before: str
    after: str
    response: str
    ratio: Interval
    verdict: Verdict
    experiment: str
    day: str


class Evidence:
    """The effects of single knobs that experiments measured."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._tested = [tested for folder in folders for tested in _single_knobs(folder)]

    def of(self, difference: Difference) -> tuple[Measured, ...]:
        """For each other value of a difference, what it does relative to the usual one, worst first."""
        if difference.usual is None:
            return ()
        usual = plain_value(difference.usual)
        found = []
        for value, _ in difference.groups[1:]:
            for tested in self._tested:
                pair = (tested.before, tested.after)
                if tested.knob != difference.knob or tested.response != "throughput":
                    continue
                if pair == (usual, plain_value(value)):
                    found.append(_measured(tested, value, difference.usual))
                elif pair == (plain_value(value), usual):
                    found.append(_measured(_turned(tested), value, difference.usual))
        # Of equal losses the one that is more certain; of those that show none the one that leaves least open.
        return tuple(sorted(found, key=lambda each: (-each.loss, -each.least_loss, each.most_loss)))


@dataclass(frozen=True)
class Ranked:
    """A difference with what is known about its cost. ``loss_hosts``: the measured share that is lost, summed over
    the hosts that lose it; None if it was not measured. ``certain_hosts``: as much of it is certain."""

    difference: Difference
    measured: tuple[Measured, ...]
    loss_hosts: float | None
    certain_hosts: float = 0.0


#: Differences whose cost was not measured: settings that can be changed, then what a host is.
_ORDER = (
    Area.VARIABLE,
    Area.MEMCACHED,
    Area.SYSCTL,
    Area.QUEUE,
    Area.MOUNT,
    Area.VERSION,
    Area.KERNEL,
    Area.HARDWARE,
)


def ranked(drift: Drift, evidence: Evidence | None) -> list[Ranked]:
    """What was measured to cost most first, what was measured to cost nothing last."""
    rows = []
    for difference in drift.differences:
        measured = evidence.of(difference) if evidence else ()
        lost, certain = (_lost(difference, measured, loss) for loss in (_estimated, _certain))
        rows.append(Ranked(difference, measured, lost if measured else None, certain))
    return sorted(rows, key=_place)


def _estimated(measured: Measured) -> float:
    return measured.loss


def _certain(measured: Measured) -> float:
    return measured.least_loss


def _lost(difference: Difference, measured: Sequence[Measured], loss: Callable[[Measured], float]) -> float:
    """Each host loses once: a value may be measured more than once, and several values may beat the usual one."""
    # The table shows the first, too.
    firsts = {each.value: each for each in reversed(measured)}.values()
    hosts = {value: len(found) for value, found in difference.groups}
    odd = sum(loss(each) * hosts[each.value] for each in firsts if each.verdict is Verdict.WORSE)
    beaten = max((loss(each) for each in firsts if each.verdict is Verdict.BETTER), default=0.0)
    return odd + beaten * len(difference.groups[0][1])


def _place(row: Ranked) -> tuple[int, float, float, float, int, int, str]:
    difference = row.difference
    known = 0 if difference.knob in CATALOGUE else 1
    group = 1 + known if row.loss_hosts is None else 0 if row.loss_hosts else 3
    # Losses that are a percent of a host apart are as good as equal: then what is more certain comes first.
    loss = round(row.loss_hosts or 0, 2)
    # What shows no loss may still hide one.
    hidden = max((each.most_loss for each in row.measured), default=0.0) if group == 3 else 0.0
    return (
        group, -loss, -row.certain_hosts, -hidden, _ORDER.index(difference.area), -len(difference.odd),
        difference.name,
    )  # fmt: skip


def _measured(tested: _Tested, value: str, usual: str) -> Measured:
    return Measured(
        tested.experiment, tested.day, tested.response, value, usual, tested.ratio, tested.verdict
    )


def _turned(tested: _Tested) -> _Tested:
    """The same effect, seen from the other value."""
    return replace(
        tested,
        before=tested.after,
        after=tested.before,
        ratio=inverse(tested.ratio),
        verdict=turned(tested.verdict),
    )


def turned(verdict: Verdict) -> Verdict:
    """The verdict of the same effect, seen from the other side."""
    return {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}.get(verdict, verdict)


def changed_by(design: Design, treatment: str) -> dict[str, tuple[str | None, str | None]]:
    """What a treatment sets otherwise than its baseline: knob -> before, after; None where one of them leaves it
    alone."""
    own = design.treatment(treatment)
    before, after = design.treatment(design.baselines[own.condition]).settings, own.settings
    return {
        knob: (_text(before.get(knob)), _text(after.get(knob)))
        for knob in {**before, **after}
        if before.get(knob) != after.get(knob)
    }


def _single_knobs(path: Path) -> Iterator[_Tested]:
    # Lazy, because it needs SciPy and DuckDB, which a comparison of hosts does not.
    from headrace.experiment.stats.study import analyse_experiment

    folder = ExperimentFolder.open(path)
    analysis = analyse_experiment(folder)
    day = day_of(folder)
    for effect in analysis.effects:
        changed = [*changed_by(folder.design, effect.treatment).items()]
        if len(changed) != 1 or effect.ratio.estimate <= 0:
            continue
        [(knob, (before, after))] = changed
        if before is not None and after is not None:
            yield _Tested(
                knob.partition("@")[0], before, after, effect.response, effect.ratio, effect.verdict,
                analysis.name, day,
            )  # fmt: skip


def _text(value: Value | None) -> str | None:
    if value is None:
        return None
    return plain_value(",".join(value) if isinstance(value, list) else value_text(value))


def day_of(folder: ExperimentFolder) -> str:
    """When the last of its trials ended: ``3 May 2026``."""
    ends = [record.window_end_ns for record in folder.trials() if record.window_end_ns]
    if not ends:
        return "an unknown day"
    when = datetime.fromtimestamp(max(ends) / 1e9, UTC)
    return f"{when.day} {when:%B %Y}"
