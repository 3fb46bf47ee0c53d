"""Run an experiment: every planned trial that is not on disk yet, in order, each journaled and restored.

``kill -9`` at any moment loses at most the running trial: trials appear by one rename, changes to the host
stand in its journal before they are made, and the next run restores them before it continues.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headrace import plan as plans
from headrace import workloads
from headrace.analysis.disturbance import Disturbance, find_disturbance
from headrace.design import Design
from headrace.errors import Busy, NothingMeasured, PlanError, TargetError, TreatmentFailed
from headrace.experiment import again, labs
from headrace.experiment import design as designs
from headrace.experiment.laboratory import Laboratory
from headrace.model import Role, TrialSpec, TrialState
from headrace.store import RECONNECT, ExperimentFolder, TrialData, TrialDraft, TrialRecord, empty_data
from headrace.workloads import precondition

#: What a trial costs beside warm-up and measuring, before one has been timed: [s] for planning only.
OVERHEAD_WITH_SERVER_S = 3.0
OVERHEAD_S = 4.0
#: And a boot with the lab prepared again, of a machine that is not emulated.
BOOT_S = 30.0

#: So many trials in a row that kill their machine end the experiment: the next ones would do no better.
MOST_DEATHS = 3


@dataclass(frozen=True)
class Event:
    """Something a person watching wants to know."""


@dataclass(frozen=True)
class Note(Event):
    text: str


@dataclass(frozen=True)
class Step(Event):
    """What the current trial is doing now."""

    text: str


@dataclass(frozen=True)
class TrialStarted(Event):
    spec: TrialSpec
    done: int
    total: int
    left_s: float


@dataclass(frozen=True)
class TrialEnded(Event):
    record: TrialRecord
    throughput_ops_s: float
    done: int
    total: int
    left_s: float


Listener = Callable[[Event], None]


def trial_seconds(table: plans.WorkloadTable) -> float:
    """The wall time to expect of one trial, before one has been timed."""
    needs_server = workloads.make_workload(table.kind, table.options).needs_server
    overhead = OVERHEAD_WITH_SERVER_S if needs_server else OVERHEAD_S
    return precondition.least_seconds(table.options) + table.warmup_s + table.seconds + overhead


def boot_seconds(design: Design) -> float:
    """The wall time to expect of the boots between the trials, before one has been timed."""
    kernels = [design.kernel_of(design.treatment(spec.treatment)) for spec in design.trials]
    boots = sum(kernel is not None for kernel, _ in itertools.groupby(kernels))
    return BOOT_S * boots


async def run_experiment(
    plan_path: Path, folder_path: Path | None, listen: Listener, *, retry: bool = False
) -> ExperimentFolder:
    """Run or continue the experiment of a plan file; the folder with every trial in it.

    The folder is ``experiments/<plan's name>`` unless given. Raises a HeadraceError; when cancelled, the
    host is restored first.
    """
    plan, text = plans.load(plan_path)
    if plan.sweep is not None:
        raise PlanError(
            "a sweep finds its levels on the way", place=str(plan_path), hint="headrace sweep PLAN"
        )
    if plan.design.kind == "race":
        raise PlanError("a race decides on the way which trials to run", place=str(plan_path))

    def build(is_root: bool) -> Design:
        return designs.build(plan, place=str(plan_path), is_root=is_root)

    return await run_design(plan, text, build, Run, folder_path, listen, retry=retry)


async def run_design(
    plan: plans.Plan,
    text: str,
    build: Callable[[bool], Design],
    loop: type[Run],
    folder_path: Path | None,
    listen: Listener,
    *,
    retry: bool,
) -> ExperimentFolder:
    """What every kind of experiment does around its loop over the trials.

    ``text`` is the plan file's; ``build`` makes the design, told whether we are root on the target.
    """
    async with AsyncExitStack() as stack:
        design = build(await labs.is_root(plan))
        for left_out in design.skipped:
            listen(Note(f"skipped {left_out.treatment}: {left_out.reason}"))
        for note in design.notes:
            listen(Note(note))
        folder = open_folder(folder_path or Path("experiments") / plan.name, text, design)
        stack.enter_context(exclusive(folder.path))
        opened = labs.open_laboratory(design, folder, lambda text: listen(Note(text)))
        lab = await stack.enter_async_context(opened)
        await lab.begin()
        await loop(lab, design, folder, listen, retry).all_trials()
    return folder


def open_folder(path: Path, text: str, design: Design) -> ExperimentFolder:
    if not path.exists():
        return ExperimentFolder.create(path, text, design)
    folder = ExperimentFolder.open(path)
    if folder.design.hash != design.hash:
        raise Busy(
            "this folder holds an experiment with another design; a design is frozen once its folder exists",
            place=str(path),
            hint="give another folder with --output, or restore the plan file as it was",
        )
    return folder


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """One runner a folder: a second one is told who has it."""
    descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 100).decode() or "another process"
            raise Busy(f"this experiment is being run by process {holder}", place=str(path)) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)


class Run:
    """The loop over the trials, with its clock."""

    def __init__(
        self, lab: Laboratory, design: Design, folder: ExperimentFolder, listen: Listener, retry: bool
    ) -> None:
        self._lab = lab
        self._design = design
        self._folder = folder
        self._listen = listen
        self._retry = retry
        self._durations_s: list[float] = []
        self._deaths = 0

    def _again(self) -> set[int]:
        """The numbers of the trials on disk that shall be measured again."""
        return measured_again(self._folder.trials(), self._retry)

    async def all_trials(self) -> None:
        trials = self._design.trials
        gone = self._again()
        on_disk = {t.number: t for t in self._folder.trials() if t.number not in gone}
        if on_disk:
            self._listen(Note(f"continuing: {len(on_disk)} of {len(trials)} trials are done"))
        repeats = again.Again(on_disk.values(), len(trials), lambda text: self._listen(Note(text)))
        measured: list[TrialSpec] = []
        for spec, following in zip(trials, [*trials[1:], None], strict=True):
            if spec.number not in on_disk:
                on_disk[spec.number] = await self._one(spec, len(on_disk), len(trials))
                measured.append(spec)
            stop_when_hopeless(self._folder, on_disk[spec.number])
            # Within a whole plot of a hard factor at once: its levels are not set up for one trial more.
            is_over = following is None or following.block != spec.block
            if not is_over and not self._design.hard:
                continue
            for disturbed in measured:
                while repeats.wants(on_disk[disturbed.number]):
                    repeats.begin(on_disk[disturbed.number])
                    on_disk[disturbed.number] = await self._one(disturbed, len(on_disk) - 1, len(trials))
            measured.clear()
        require_complete(on_disk.values())

    async def _one(self, spec: TrialSpec, done: int, total: int) -> TrialRecord:
        self._listen(TrialStarted(spec, done, total, self._left_s(total - done)))
        began = time.monotonic()
        record, data = await self._measured(spec)
        self._durations_s.append(time.monotonic() - began)
        throughput = observed_ops_s(record, data)
        self._listen(TrialEnded(record, throughput, done + 1, total, self._left_s(total - done - 1)))
        return record

    async def _measured(self, spec: TrialSpec) -> tuple[TrialRecord, TrialData]:
        """Measure and store one trial; once more where its machine died under it."""
        kernel = self._design.kernel_of(self._design.treatment(spec.treatment))
        died: list[str] = []
        while True:
            try:
                await self._lab.prepare(kernel)
            except TreatmentFailed as error:
                return self._commit(unmeasured(spec, TrialState.FAILED, error.message), empty_data())
            draft = self._folder.begin_trial(spec.number)
            try:
                record, data = await self._lab.measure(
                    self._design, spec, draft, lambda text: self._listen(Step(text))
                )
                record = replace(record, warnings=[*record.warnings, *died])
                return self._commit(record, data, draft)
            except BaseException as error:
                draft.discard()
                reason = await self._lab.lost(error)
            self._deaths += 1
            if self._deaths >= MOST_DEATHS:
                raise TargetError(
                    f"the machine died in {MOST_DEATHS} trials in a row: {reason}",
                    place=f"trial {spec.number}",
                    hint="what it last said stands on its console",
                )
            if died:
                why = f"the machine died in it, and again when it was measured anew: {reason}"
                return self._commit(unmeasured(spec, TrialState.INVALID, why), empty_data())
            died.append(f"measured a second time: at first the machine died in it ({reason})")
            self._listen(Note(f"the machine died in trial {spec.number} ({reason}): once more"))

    def _commit(
        self, record: TrialRecord, data: TrialData, draft: TrialDraft | None = None
    ) -> tuple[TrialRecord, TrialData]:
        """Persisted after every trial, because a later one may fail and lose it."""
        if draft is not None:
            self._deaths = 0
        if record.state is not TrialState.FAILED and draft is not None:
            record = judge(record, find_disturbance(record, data, self._folder.design))
        record = as_repeated(record, self._folder.trial(record.number))
        (draft or self._folder.begin_trial(record.number)).commit(record, data)
        return record, data

    def _left_s(self, trials: int) -> float:
        durations = self._durations_s
        each = sum(durations) / len(durations) if durations else trial_seconds(self._design.workload)
        return each * trials


def measured_again(records: Iterable[TrialRecord], retry: bool) -> set[int]:
    """The numbers of those that ``--retry`` takes again: all that are not complete."""
    return {r.number for r in records if retry and r.state is not TrialState.COMPLETE}


def stop_when_hopeless(folder: ExperimentFolder, record: TrialRecord) -> None:
    """Without a baseline nothing can be compared: better to say so in the first block than after hours."""
    if record.block == 1 and record.role is Role.BASELINE and record.state is TrialState.FAILED:
        raise NothingMeasured(
            f"the baseline {record.treatment} failed: {record.reason}",
            place=str(folder.trial_path(record.number)),
            hint="mend the cause and run again with --retry; a changed plan needs another --output",
        )


def require_complete(records: Collection[TrialRecord], what: str = "trial") -> None:
    """Raise NothingMeasured, with every reason, where none of them is complete."""
    if not any(record.state is TrialState.COMPLETE for record in records):
        reasons = {f"{record.treatment}: {record.reason}" for record in records}
        raise NothingMeasured(f"no {what} is complete:\n" + "\n".join(sorted(reasons)))


def observed_ops_s(record: TrialRecord, data: TrialData) -> float:
    """The throughput, for whoever watches."""
    seconds = (record.window_end_ns - record.window_start_ns) / 1e9
    operations = sum(
        count or 0
        for t_s, operation, count in zip(
            *(data.intervals[name].to_pylist() for name in ("t_s", "operation", "count")), strict=True
        )
        if t_s >= 0 and operation != RECONNECT
    )
    return operations / seconds if seconds > 0 else 0.0


def as_repeated(record: TrialRecord, old: TrialRecord | None) -> TrialRecord:
    """The record, with what the measurement that it replaces has to tell."""
    earlier = again.replacing(record, old)
    before = [f"measured again; before: {reason}" for reason in earlier]
    return replace(record, earlier=earlier, warnings=[*record.warnings, *before])


def unmeasured(spec: TrialSpec, state: TrialState, reason: str) -> TrialRecord:
    """The record of a trial without a machine to measure it on."""
    return TrialRecord(
        number=spec.number,
        block=spec.block,
        position=spec.position,
        treatment=spec.treatment,
        role=spec.role,
        state=state,
        reason=reason,
        times_ns={"started": time.time_ns()},
    )


def judge(record: TrialRecord, disturbance: Disturbance) -> TrialRecord:
    """The record with what disturbed the trial, beside what its workload says itself."""
    reasons = [*([record.reason] if record.reason else []), *disturbance.invalid]
    return replace(
        record,
        state=TrialState.INVALID if reasons else record.state,
        reason="; ".join(reasons),
        warnings=[*record.warnings, *disturbance.warnings],
    )
