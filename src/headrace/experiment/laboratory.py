"""What the loop over the trials needs of a laboratory: little enough for one that measures nothing.

The real one is ``labs.Labs``; the tests' own is ``tests/fake_lab.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from headrace.design import Design
from headrace.experiment.boot import Tell
from headrace.model import TrialSpec
from headrace.store import TrialDraft, TrialRecord

if TYPE_CHECKING:
    from headrace.arrow import TrialData

Measured: TypeAlias = "tuple[TrialRecord, TrialData]"


class Laboratory(Protocol):
    """A machine made ready for trials, and made ready again whenever it was booted."""

    async def __aenter__(self) -> Laboratory: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the machine as it was found."""

    async def begin(self) -> None:
        """Prepare for the first trial that is left, so that what is missing is told before it."""

    async def prepare(self, kernel: str | None) -> None:
        """Be ready on this kernel; None is the one that runs. Raises TreatmentFailed where it does not come up."""

    async def measure(self, design: Design, spec: TrialSpec, draft: TrialDraft, tell: Tell) -> Measured:
        """Measure one trial; the machine is as before when this returns or raises."""

    async def halves(self) -> tuple[str, str]:
        """The CPUs of the two halves of the machine, as taskset lists them. Raises NotReady without two."""

    async def measure_pair(
        self, design: Design, pair: Sequence[TrialSpec], drafts: Sequence[TrialDraft], tell: Tell
    ) -> list[Measured]:
        """Measure two trials at the same moment, each on its half of the machine."""

    async def lost(self, error: BaseException) -> str:
        """Close what a trial ended in. Returns why, where the machine died; raises the error otherwise."""
