"""The interface of a laboratory, as the loop over the trials needs it.

The real one is ``labs.Labs``; the tests' fake is ``tests/fake_lab.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from headrace.base.model import TrialSpec
from headrace.experiment.boot import Boot, Tell
from headrace.experiment.frozen import Design
from headrace.experiment.store import TrialDraft, TrialRecord

if TYPE_CHECKING:
    from headrace.host.arrow import TrialData

Measured: TypeAlias = "tuple[TrialRecord, TrialData]"


class Laboratory(Protocol):
    """A machine prepared for trials, and prepared again after each boot."""

    async def __aenter__(self) -> Laboratory: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the machine."""

    async def begin(self) -> None:
        """Prepare for the first remaining trial, so that missing requirements are reported before it."""

    async def prepare(self, boot: Boot | None) -> None:
        """Prepare on this kernel; None: the one that runs. Raises TreatmentFailed if it does not come up."""

    async def measure(self, design: Design, spec: TrialSpec, draft: TrialDraft, tell: Tell) -> Measured:
        """Measure one trial; the machine is restored when this returns or raises."""

    async def halves(self) -> tuple[str, str]:
        """The CPUs of the two halves of the machine, as taskset lists them. Raises NotReady without two."""

    async def measure_pair(
        self, design: Design, pair: Sequence[TrialSpec], drafts: Sequence[TrialDraft], tell: Tell
    ) -> list[Measured]:
        """Measure two trials concurrently, each on its half of the machine."""

    async def measure_turns(
        self, design: Design, turns: Sequence[TrialSpec], drafts: Sequence[TrialDraft], tell: Tell
    ) -> list[Measured]:
        """Measure the turns of a switchback one after the other, under one load on one server."""

    async def lost(self, error: BaseException) -> str:
        """Close the lab after a failed trial. Returns why, if the machine died; raises the error otherwise."""
