"""Two concurrent trials, each on its half of one machine.

Each side has its own CPUs, server, volume and driver, and both loads start at the same instant.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.base.errors import NotReady
from headrace.base.model import TrialSpec, TrialState
from headrace.experiment.boot import Tell
from headrace.experiment.cores import as_text, usable, whole_cores
from headrace.experiment.laboratory import Measured
from headrace.experiment.store import TrialDraft, TrialRecord
from headrace.experiment.trial import Lab, LeftAlone, Side, live_changes, restore, run_trial
from headrace.host.target import to_the_end

#: Two windows with less overlap than this are not a pair.
MIN_OVERLAP = 0.95


def halves(cpu: Mapping[str, Any], allowed: Sequence[int]) -> tuple[list[int], list[int]]:
    """The CPUs of either side: whole cores, the same number each, disjoint.

    ``cpu`` is from the host's facts. Raises NotReady with fewer than two CPUs.
    """
    ordered = whole_cores(cpu, allowed)
    if len(ordered) < 2:
        # Two threads of one core: not ideal, but equal for both sides.
        ordered = [[number] for number in sorted(allowed)]
    if len(ordered) < 2:
        raise NotReady(
            f"a duet needs two CPUs, one per side: headrace may use {len(allowed)} on this machine",
            hint="duet = false: run one after the other, in random order",
        )
    half = len(ordered) // 2
    first, second = ordered[:half], ordered[half : 2 * half]
    return [n for core in first for n in core], [n for core in second for n in core]


class Meeting:
    """Two sides wait for each other here.

    A side that ends early calls ``leave``, so that the other stops waiting.
    """

    def __init__(self) -> None:
        self._barrier = asyncio.Barrier(2)
        self._at_ns = 0

    async def meet(self) -> None:
        try:
            await self._barrier.wait()
        except asyncio.BrokenBarrierError:
            raise LeftAlone("the other side of its pair ended before both were measured") from None

    async def agree(self, at_ns: int) -> int:
        self._at_ns = max(self._at_ns, at_ns)
        await self.meet()
        return self._at_ns

    async def leave(self) -> None:
        await self._barrier.abort()


async def measure_pair(
    lab: Lab, pair: Sequence[TrialSpec], drafts: Sequence[TrialDraft], cpus: tuple[str, str], tell: Tell
) -> list[Measured]:
    """Run both trials, started and ended together; the host is always restored."""
    meeting = Meeting()
    try:
        shared = await _shared(lab, pair[0])
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(_side(lab, spec, draft, cpus[spec.position - 1], meeting, tell))
                    for spec, draft in zip(pair, drafts, strict=True)
                ]
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
    finally:
        await to_the_end(restore(lab.journal))
    results = [task.result() for task in tasks]
    return [(replace(r, knobs={**shared, **r.knobs}), data) for r, data in results]


async def _shared(lab: Lab, spec: TrialSpec) -> dict[str, dict[str, Any]]:
    """The base's settings on the host, applied once for both."""
    treatment = lab.design.treatment(spec.treatment)
    applied = await lab.journal.change(live_changes(treatment, lab.facts))
    return {one.path: {"before": one.before, "after": one.after} for one in applied}


async def _side(
    lab: Lab, spec: TrialSpec, draft: TrialDraft, cpus: str, meeting: Meeting, tell: Tell
) -> Measured:
    name = "ab"[spec.position - 1]
    journal = lab.journal.part(name)
    own = replace(
        lab,
        journal=journal,
        owner=journal.owner,
        scratch=f"{lab.scratch}/{name}",
        side=Side(cpus, meeting.meet, meeting.agree),
    )
    await lab.target.run(["mkdir", "-p", "-m", "0755", own.scratch])
    try:
        record, data = await run_trial(own, spec, draft, lambda text: tell(f"{spec.treatment}: {text}"))
    finally:
        with contextlib.suppress(RuntimeError):
            await meeting.leave()
    where = {"before": None, "after": cpus}
    return replace(record, knobs={**record.knobs, "duet.cpus": where}), data


async def cpu_halves(lab: Lab) -> tuple[str, str]:
    """The CPUs of either half, as taskset lists them. Raises NotReady with fewer than two CPUs."""
    allowed = await usable(lab.target, lab.facts)
    first, second = halves(lab.facts.data.get("cpu") or {}, allowed)
    return as_text(first), as_text(second)


def as_pair(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The final records of a pair: one valid side without the other is not a measurement."""
    first, second = records
    if not first.state is second.state is TrialState.COMPLETE:
        return [_beside(first, second), _beside(second, first)]
    start = max(first.window_start_ns, second.window_start_ns)
    end = min(first.window_end_ns, second.window_end_ns)
    longest = max(r.window_end_ns - r.window_start_ns for r in (first, second))
    share = (end - start) / longest if longest else 0.0
    if share >= MIN_OVERLAP:
        return [first, second]
    why = f"the two windows share only {max(share, 0):.0%} of their time"
    return [replace(r, state=TrialState.INVALID, reason=why) for r in (first, second)]


def _beside(record: TrialRecord, other: TrialRecord) -> TrialRecord:
    if record.state is not TrialState.COMPLETE:
        return record
    why = f"the other side of its pair ({other.treatment}) is {other.state}: {other.reason}"
    return replace(record, state=TrialState.INVALID, reason=why)
