"""What a kind of experiment is: how a plan becomes its design, and which trial comes next.

The loop (``runner.Run``) asks what is next, measures it, and asks again with what is on disk by then. A kind
measures nothing itself, and its decisions depend only on the trials on disk, so a killed experiment continues with
the same decisions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from headrace.base.counted import counted
from headrace.base.errors import NothingMeasured
from headrace.base.model import Treatment, TrialSpec, TrialState
from headrace.experiment.frozen import Design
from headrace.experiment.plan import Plan
from headrace.experiment.store import ExperimentFolder, TrialRecord

#: The trials that are measured together: one, the two of a pair, or all turns after one start of a switchback.
Moment = tuple[TrialSpec, ...]


@dataclass(frozen=True)
class Ask:
    """What to measure next.

    ``moments`` may run now, in order; disturbed ones are repeated after the others of the list. None: the
    experiment is over. ``total`` is the number of trials as far as known. ``treatments`` are needed and not in the
    design. ``notes`` are messages for the user.
    """

    moments: Sequence[Moment]
    total: int
    notes: Sequence[str] = ()
    treatments: tuple[Treatment, ...] = ()
    #: End of the plan's time, by ``time.monotonic``.
    until: float = math.inf
    #: How many times as long as planned the turns of a switchback are.
    stretch: int = 1


class Kind(ABC):
    """A kind of experiment. The class handles plans and designs; an instance works on one folder."""

    #: ``experiment`` of its designs.
    name: ClassVar[str]
    #: The module in ``headrace.experiment.report`` that reports on a folder of this kind.
    page: ClassVar[str] = "page"
    #: No block depends on another's results, so several machines may share them.
    spreads: ClassVar[bool] = False
    #: Blocks may be added to its experiments later.
    extends: ClassVar[bool] = False
    #: A disturbed trial is repeated automatically.
    repeats: ClassVar[bool] = True

    def __init__(self, folder: ExperimentFolder) -> None:
        self.folder = folder
        self.design = folder.design

    @classmethod
    @abstractmethod
    def is_of(cls, plan: Plan) -> bool:
        """Whether this plan is of this kind."""

    @classmethod
    @abstractmethod
    def build(cls, plan: Plan, *, place: str, is_root: bool = True) -> Design:
        """The design of a plan; ``trials`` is the maximum. Raises PlanError with ``place``."""

    @classmethod
    def as_decided(cls, folder: ExperimentFolder) -> ExperimentFolder:
        """The folder with the trials still to run in its design, if that is decided during the run."""
        return folder

    @classmethod
    def why_no_longer(cls, folder: ExperimentFolder) -> str:
        """Why more blocks would bring nothing; empty if they would."""
        return ""

    @abstractmethod
    def next(self, records: Sequence[TrialRecord]) -> Ask:
        """The next step after these trials. Raises NothingMeasured if continuing makes no sense."""

    def settled(self, records: Sequence[TrialRecord]) -> set[int]:
        """The numbers of trials that are never repeated, not even with ``--retry``."""
        return set()

    def check(self, records: Collection[TrialRecord]) -> None:
        """At the end: raise NothingMeasured, with every reason, if there is no result."""
        require_complete(records)


def never_quiet(records: Iterable[TrialRecord]) -> str | None:
    """What to do if trials were disturbed and none is left."""
    if all(record.state is not TrialState.INVALID for record in records):
        return None
    return (
        'on a machine that is never quiet: [target] disturbed = "keep", or a duet '
        "(`headrace docs noisy-machines`)"
    )


def missing(trials: Sequence[TrialSpec], records: Sequence[TrialRecord]) -> list[TrialSpec]:
    """The trials without a record, in order."""
    done = {record.number for record in records}
    return [trial for trial in trials if trial.number not in done]


def require_complete(records: Collection[TrialRecord], what: str = "trial") -> None:
    """Raise NothingMeasured if none is complete, with a reason of each treatment and how many more it has."""
    if not any(record.state is TrialState.COMPLETE for record in records):
        reasons: dict[str, list[str]] = {}
        for record in records:
            if record.reason and record.reason not in reasons.setdefault(record.treatment, []):
                reasons[record.treatment].append(record.reason)
        lines = [
            f"{treatment}: {own[0]}" + (f" (and {counted(len(own) - 1, 'more reason')})" if own[1:] else "")
            for treatment, own in sorted(reasons.items())
            if own
        ]
        raise NothingMeasured(f"no {what} is complete:\n" + "\n".join(lines), hint=never_quiet(records))
