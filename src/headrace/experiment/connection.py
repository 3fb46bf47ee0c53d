"""The connections to a trial's machines: clock offsets, and interruptions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import asdict

from headrace.base.errors import ConnectionLost
from headrace.host.target import Target
from headrace.host.target.clock import OURS, Clock, read_clock
from headrace.host.target.local import LocalTarget

#: A clock that was set by more than this during a trial is reported.
MOST_DRIFT_NS = 50_000_000


class Clocks:
    """The clocks of a trial's machines, the target first, and interruptions of the connection since the trial
    started. The steps of a trial are timed by the controller's clock and recorded in the target's time, like its
    window and samples.
    """

    def __init__(self, targets: Iterable[Target]) -> None:
        self._targets = list(dict.fromkeys(targets))
        self._lost = [len(target.interruptions) for target in self._targets]
        self._marks_ns: dict[str, int] = {}
        self._began: dict[str, Clock] = {}
        self._ended: dict[str, Clock] = {}
        self._own_began_ns = self._own_ended_ns = _own_offset_ns()

    def mark(self, step: str) -> None:
        """Note when a step started, for the record and for finding slow steps."""
        self._marks_ns[step] = time.time_ns()

    async def read(self) -> None:
        """Read the clocks at the start of the trial."""
        self._own_began_ns = self._own_ended_ns = _own_offset_ns()
        self._began = await self._read()

    async def compare(self) -> None:
        """Read the clocks at the end: if one was set meanwhile, samples and the window may not match."""
        self._ended = await self._read()
        self._own_ended_ns = _own_offset_ns()

    async def _read(self) -> dict[str, Clock]:
        return {target.name: await _read(target) for target in self._targets}

    def times_ns(self) -> dict[str, int]:
        """The start of each step in the target's time."""
        offset_ns = self._began.get(self._targets[0].name, OURS).offset_ns
        return {step: at_ns + offset_ns for step, at_ns in self._marks_ns.items()}

    def offsets(self) -> dict[str, dict[str, int]]:
        """The clocks in the form of TrialRecord.clocks."""
        return {name: asdict(clock) for name, clock in self._began.items()}

    def warnings(self) -> list[str]:
        found = []
        own_ns = self._own_ended_ns - self._own_began_ns
        own_ns = own_ns if abs(own_ns) > MOST_DRIFT_NS else 0
        for target in self._targets:
            if target.name not in self._ended:
                continue
            before, after = self._began[target.name], self._ended[target.name]
            # Offsets count from our clock. If that was set, every other one appears to be set the other way.
            moved_ns = after.offset_ns - before.offset_ns + own_ns
            differs = bool(own_ns) if isinstance(target, LocalTarget) else after.differs_from(before)
            if abs(moved_ns) > MOST_DRIFT_NS and differs:
                found.append(
                    f"the clock of {target.name} was set by {moved_ns / 1e6:+,.0f} ms during the trial: samples "
                    "and the window may not match"
                )
        if own_ns and not any(isinstance(target, LocalTarget) for target in self._targets):
            found.append(
                f"the controller's clock was set by {own_ns / 1e6:+,.0f} ms during the trial: the times of its "
                "steps may be wrong"
            )
        for target, known in zip(self._targets, self._lost, strict=True):
            for lost_ns, back_ns in target.interruptions[known:]:
                found.append(
                    f"the connection to {target.name} was lost for {(back_ns - lost_ns) / 1e9:.0f} s; "
                    "processes there kept running"
                )
        return found


def _own_offset_ns() -> int:
    """How far the time of day here is ahead of a clock that nobody sets. Slewing moves both."""
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


async def _read(target: Target) -> Clock:
    if isinstance(target, LocalTarget):
        return OURS
    while True:
        # A trial does not fail because the time is unavailable: it is read again after reconnecting, or
        # reconnecting fails the run.
        with contextlib.suppress(ConnectionLost):
            return await read_clock(target)
