"""Run an experiment: every planned trial that is not yet on disk, in order, each journaled and restored.

``kill -9`` loses at most the running trial: a trial appears by one rename, changes to the host are in its journal
before they are made, and the next run restores them before it continues.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.errors import Busy, NothingMeasured, Refused, TargetError, TreatmentFailed
from headrace.base.model import Role, TrialSpec, TrialState
from headrace.base.whole import lock_file
from headrace.experiment import labs, workloads
from headrace.experiment import pair as pairs
from headrace.experiment.frozen import Design
from headrace.experiment.kinds.kind import Ask, Kind, Moment
from headrace.experiment.laboratory import Laboratory, Measured
from headrace.experiment.plan import PlanFile, WorkloadTable
from headrace.experiment.retries import Retries, replacing
from headrace.experiment.settle import PIECE_S
from headrace.experiment.stats.disturbance import Disturbance, find_disturbance
from headrace.experiment.stats.sweep import SEARCH
from headrace.experiment.store import RECONNECT, ExperimentFolder, TrialDraft, TrialRecord
from headrace.experiment.workloads import precondition

if TYPE_CHECKING:
    from headrace.host.arrow import TrialData

#: Overhead of a trial in addition to warm-up and measuring [s], for planning before one has been timed.
OVERHEAD_WITH_SERVER_S = 3.0
OVERHEAD_S = 4.0
PIECE_OVERHEAD_S = 0.7
#: Duration of a boot with preparing the lab [s], on a machine that is not emulated.
BOOT_S = 30.0
#: A program starts within this time [s], on a busy machine, too.
STARTING_S = 10.0

#: This many consecutive trials that kill their machine end the experiment.
MOST_DEATHS = 3


@dataclass(frozen=True)
class Event:
    """A message for the user."""


@dataclass(frozen=True)
class Note(Event):
    text: str


@dataclass(frozen=True)
class Step(Event):
    """The current step of the running trial."""

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

#: How several trials are measured together, and what they say about each other.
Measure = Callable[
    [Design, Sequence[TrialSpec], Sequence[TrialDraft], Callable[[str], None]], Awaitable[list[Measured]]
]
JudgeAll = Callable[[list[TrialRecord]], list[TrialRecord]]


def trial_seconds(table: WorkloadTable) -> float:
    """The expected wall time of one trial, before one has been timed."""
    workload = workloads.make_workload(table.kind, table.options)
    overhead = OVERHEAD_WITH_SERVER_S if workload.needs_server else OVERHEAD_S
    overhead += workloads.seconds_after(workload)
    settling = 2 * (PIECE_S + PIECE_OVERHEAD_S) if table.steady_within_s else 0.0
    return precondition.least_seconds(table.options) + settling + table.warmup_s + table.seconds + overhead


def planned_seconds(design: Design) -> float:
    """The expected wall time of all trials one after the other, without boots, before one has been timed."""
    table = design.workload
    if not design.blocks_per_start:
        return trial_seconds(table) * len(design.trials) / design.at_once
    starts = len({design.start_of(trial.block) for trial in design.trials})
    turns = len(design.trials) * (design.washout_s + table.seconds)
    return turns + starts * (table.warmup_s + OVERHEAD_WITH_SERVER_S)


#: What a loader fills, and what starting an empty server takes, on a machine with two cores.
LOADED_ROWS_S, EMPTY_SERVER_S = 50_000, 15.0

#: Rows of one warehouse, with its items' share.
WAREHOUSE_ROWS = 500_000


def load_seconds(design: Design) -> float:
    """The expected wall time of building the data set, once for each session; later runs find it. 0 for what has
    none.
    """
    data = workloads.make_workload(design.workload.kind, design.workload.options).dataset()
    if data is None:
        return 0.0

    def number(name: str) -> int:
        value = data.get(name)
        return value if isinstance(value, int) else 0

    rows = number("tables") * number("table_size") + number("warehouses") * WAREHOUSE_ROWS
    sessions = design.session_of(max((trial.block for trial in design.trials), default=1))
    return sessions * (EMPTY_SERVER_S + rows / LOADED_ROWS_S)


def stretched(design: Design, times: int) -> Design:
    """A switchback with turns and wash-outs this many times as long."""
    workload = design.workload.model_copy(update={"seconds": design.workload.seconds * times})
    return replace(design, workload=workload, washout_s=design.washout_s * times)


def boot_seconds(design: Design) -> float:
    """The expected wall time of the boots between trials, before one has been timed."""
    wanted = [design.boot_of(design.treatment(spec.treatment)) for spec in design.trials]
    boots = sum(boot is not None for boot, _ in itertools.groupby(wanted))
    return BOOT_S * boots


async def run_here(
    kind: type[Kind], file: PlanFile, folder_path: Path | None, listen: Listener, *, retry: bool
) -> ExperimentFolder:
    """Run or continue a plan on its one machine; the folder with every trial in it.

    The folder defaults to ``experiments/<plan's name>``. Raises a HeadraceError; when cancelled, the host is
    restored first.
    """
    async with AsyncExitStack() as stack:
        design = kind.build(file.plan, place=file.place, is_root=await labs.is_root(file.plan))
        folder = stack.enter_context(opened(file, design, folder_path, listen))
        lab = await stack.enter_async_context(
            labs.open_laboratory(design, folder, lambda text: listen(Note(text)))
        )
        await lab.begin()
        await Run(kind(folder), lab, listen, retry).all_trials()
    return folder


@contextmanager
def opened(file: PlanFile, design: Design, path: Path | None, listen: Listener) -> Iterator[ExperimentFolder]:
    """The folder of an experiment that is about to run, locked by this process; ``listen`` hears which treatments
    are skipped. ``design`` replaces the one on disk: it may analyse the same trials differently.
    """
    for left_out in design.skipped:
        listen(Note(f"skipped {left_out.treatment}: {left_out.reason}"))
    for note in design.notes:
        listen(Note(note))
    where = open_folder(path or Path("experiments") / file.plan.name, file.text, design).path
    with exclusive(where):
        # Again: before the lock was taken, another process may have added blocks.
        folder = ExperimentFolder.open(where)
        if folder.design.extended:
            design = replace(
                design,
                blocks=folder.design.blocks,
                trials=folder.design.trials,
                extended=folder.design.extended,
            )
        if folder.design.target != design.target:
            # It continues with other machines than before.
            folder.renew(design)
        yield ExperimentFolder(folder.path, design)


def open_folder(path: Path, text: str, design: Design) -> ExperimentFolder:
    if not path.exists():
        return ExperimentFolder.create(path, text, design)
    folder = ExperimentFolder.open(path)
    if folder.design.hash != design.hash:
        raise Busy(
            "this directory holds an experiment with a different design; a design is frozen once its "
            "directory exists",
            place=str(path),
            hint="use another directory with --output, or restore the original plan file",
        )
    return folder


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """One runner per folder: a second one gets an error with the holder's process.

    Raises Refused if a folder of it is a link that another user made: trials are written and removed there.
    """
    for each in (path / name for name in ("trials", "facts", "set-aside")):
        if each.is_symlink() and each.lstat().st_uid not in (0, os.geteuid()):
            raise Refused("another user made this link", place=str(each))
    descriptor = lock_file(path / ".lock")
    try:
        _lock(descriptor, path)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    """A runner that was killed while it started a program leaves the lock to that child until the program runs."""
    end = time.monotonic() + STARTING_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            holder = os.pread(descriptor, 100, 0).decode()
            if time.monotonic() > end or not _has_ended(holder):
                holder = holder or "another process"
                raise Busy(f"this experiment is being run by process {holder}", place=str(path)) from error
        time.sleep(0.01)


def _has_ended(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return False


class Run:
    """The loop over the trials, with its clock: ask what is next, measure it, ask again."""

    def __init__(
        self,
        kind: Kind,
        lab: Laboratory,
        listen: Listener,
        retry: bool = False,
        most_repeats: int | None = None,
    ) -> None:
        """``most_repeats``: of these trials, if they are a part of an experiment."""
        self._kind = kind
        self._most_repeats = most_repeats
        self._lab = lab
        self._design = kind.design
        self._folder = kind.folder
        self._listen = listen
        self._retry = retry
        self._durations_s: list[float] = []
        self._deaths = 0

    async def all_trials(self) -> None:
        """Raises NothingMeasured if there is no result, and the errors that end the run."""
        done = self._kept()
        retries = Retries(done.values(), len(self._design.trials), self._say, self._most_repeats)
        #: Trials that this run measured and may repeat, and those of the block that an earlier one left.
        own = unfinished(self._design, done.values()) if self._kind.repeats else set()
        is_first = True
        while True:
            disturbed = {n: r for n, r in done.items() if n in own and retries.wants(r)}
            known = [record for number, record in sorted(done.items()) if number not in disturbed]
            ask = self._kind.next(known)
            if is_first and done:
                self._say(f"continuing: {len(done)} of {ask.total} trials are done")
            is_first = False
            for note in ask.notes:
                self._say(note)
            if not ask.moments:
                break
            moment = next((m for m in ask.moments if not _among(m, disturbed)), ask.moments[0])
            for record in _among(moment, disturbed)[:1]:
                retries.begin(record)
            records = await self._one(moment, ask, len(known))
            done |= {record.number: record for record in records}
            # A failed trial would fail again, and with it the other side of its pair.
            if self._kind.repeats and all(r.state is not TrialState.FAILED for r in records):
                own |= {record.number for record in records}
            for record in records:
                stop_when_hopeless(self._folder, record)
        self._kind.check(done.values())

    def _kept(self) -> dict[int, TrialRecord]:
        """The trials on disk that are not repeated, by number."""
        records = self._folder.trials()
        gone = measured_again(records, self._retry) - self._kind.settled(records)
        kept = {record.number: record for record in records if record.number not in gone}
        for record in kept.values():
            stop_when_hopeless(self._folder, record)
        return kept

    def _say(self, text: str) -> None:
        self._listen(Note(text))

    async def _one(self, moment: Moment, ask: Ask, done: int) -> list[TrialRecord]:
        """Measure and store the trials of one moment."""
        design = self._kind.design
        self._design = replace(design, treatments=(*design.treatments, *ask.treatments))
        if ask.stretch > 1:
            self._design = stretched(self._design, ask.stretch)
        is_duet = design.at_once > 1
        names = " | ".join(spec.treatment for spec in moment) if is_duet else moment[0].treatment
        if len(moment) > 1 and not is_duet:
            names = f"{len(moment)} turns in blocks {moment[0].block} to {moment[-1].block}"
        left_s = self._left_s(ask, done)
        self._listen(TrialStarted(replace(moment[0], treatment=names), done, ask.total, left_s))
        began = time.monotonic()
        if len(moment) == 1:
            measured = [await self._alone(moment[0])]
        elif is_duet:
            measured = await self._side_by_side(moment)
        else:
            measured = await self._together(moment, self._lab.measure_turns, lambda records: records)
        self._durations_s += [(time.monotonic() - began) / len(moment)] * len(moment)
        for count, (record, data) in enumerate(measured, start=done + 1):
            left_s = self._left_s(ask, count)
            self._listen(TrialEnded(record, observed_ops_s(record, data), count, ask.total, left_s))
        return [record for record, _ in measured]

    async def _side_by_side(self, moment: Moment) -> list[Measured]:
        """Measure and store the two trials of a pair, both or neither."""
        if not self._durations_s:
            first, second = await self._lab.halves()
            self._say(f"side by side, on CPUs {first} and {second}")
        return await self._together(moment, self._lab.measure_pair, pairs.as_pair)

    async def _together(self, moment: Moment, measure: Measure, judge_all: JudgeAll) -> list[Measured]:
        """Measure and store the trials of a moment, all or none."""
        drafts = [self._folder.begin_trial(spec.number) for spec in moment]
        try:
            measured = await measure(self._design, moment, drafts, lambda text: self._listen(Step(text)))
            judged = judge_all([self._judged(record, data) for record, data in measured])
            old = [self._folder.trial(spec.number) for spec in moment]
            for spec in moment:
                self._folder.remove_trial(spec.number)
            stored = [
                (as_repeated(record, before), data)
                for record, before, (_, data) in zip(judged, old, measured, strict=True)
            ]
            for (record, data), draft in zip(stored, drafts, strict=True):
                draft.commit(record, data)
        except BaseException:
            for draft in drafts:
                draft.discard()
            raise
        return stored

    async def _alone(self, spec: TrialSpec) -> Measured:
        """Measure and store one trial; repeat it once if its machine died."""
        from headrace.host.arrow import empty_data

        boot = self._design.boot_of(self._design.treatment(spec.treatment))
        died: list[str] = []
        while True:
            try:
                await self._lab.prepare(boot)
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
                    hint="see the last messages on its console",
                )
            if died:
                why = f"the machine died in it, and again when it was repeated: {reason}"
                return self._commit(unmeasured(spec, TrialState.INVALID, why), empty_data())
            died.append(f"repeated, because the machine died in it at first ({reason})")
            self._say(f"the machine died in trial {spec.number} ({reason}): trying again")

    def _commit(self, record: TrialRecord, data: TrialData, draft: TrialDraft | None = None) -> Measured:
        """Saved after every trial, because a later one may fail."""
        if draft is not None:
            self._deaths = 0
            record = self._judged(record, data)
        record = as_repeated(record, self._folder.trial(record.number))
        (draft or self._folder.begin_trial(record.number)).commit(record, data)
        return record, data

    def _judged(self, record: TrialRecord, data: TrialData) -> TrialRecord:
        if record.state is TrialState.FAILED or record.window_end_ns == 0:
            return record
        return judge(record, find_disturbance(record, data, self._design))

    def _left_s(self, ask: Ask, done: int) -> float:
        durations = self._durations_s
        design = self._design
        planned = planned_seconds(design) * design.at_once / max(len(design.trials), 1)
        each = sum(durations) / len(durations) if durations else planned
        return max(0.0, min(each * (ask.total - done), ask.until - time.monotonic()))


def _among(moment: Moment, records: Mapping[int, TrialRecord]) -> list[TrialRecord]:
    return [records[spec.number] for spec in moment if spec.number in records]


def measured_again(records: Iterable[TrialRecord], retry: bool) -> set[int]:
    """The numbers of trials that ``--retry`` repeats: all that are not complete."""
    return {r.number for r in records if retry and r.state is not TrialState.COMPLETE}


def unfinished(design: Design, records: Collection[TrialRecord]) -> set[int]:
    """The numbers of the trials on disk that belong to the block in which a killed run was: its disturbed ones may
    still be repeated, as they would have been. It may be whole, if the run was killed in a repeat.
    """
    last = max(records, key=lambda record: record.number, default=None)
    if last is None or last.block in design.extended:
        return set()
    if last.block == SEARCH:
        # There a repeat follows immediately.
        return {last.number}
    block = [record for record in records if record.block == last.block]
    if design.at_once > 1 and any(record.state is TrialState.FAILED for record in block):
        return set()
    return {record.number for record in block}


def stop_when_hopeless(folder: ExperimentFolder, record: TrialRecord) -> None:
    """Without a baseline nothing can be compared: fail in the first block rather than after hours."""
    if record.block == 1 and record.role is Role.BASELINE and record.state is TrialState.FAILED:
        raise NothingMeasured(
            f"the baseline {record.treatment} failed: {record.reason}",
            place=str(folder.trial_path(record.number)),
            hint="fix the cause and rerun with --retry; a changed plan needs another --output",
        )


def observed_ops_s(record: TrialRecord, data: TrialData) -> float:
    """The throughput, for the progress display."""
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
    """The record, with the history of the measurement that it replaces."""
    earlier = replacing(record, old)
    # Of attempts that it replaced before, it has the warnings.
    before = [f"repeated; before: {reason}" for reason in earlier[: len(earlier) - len(record.earlier)]]
    return replace(record, earlier=earlier, warnings=[*record.warnings, *before])


def unmeasured(spec: TrialSpec, state: TrialState, reason: str) -> TrialRecord:
    """The record of a trial whose machine could not be used."""
    return replace(TrialRecord.of(spec, state, reason), times_ns={"started": time.time_ns()})


def judge(record: TrialRecord, disturbance: Disturbance) -> TrialRecord:
    """The record with the disturbances of the trial, in addition to its workload's own warnings."""
    reasons = [*([record.reason] if record.reason else []), *disturbance.invalid]
    return replace(
        record,
        state=TrialState.INVALID if reasons else record.state,
        reason="; ".join(reasons),
        warnings=[*record.warnings, *disturbance.warnings],
        lost_share=round(disturbance.lost_share, 4),
        lost_device_share=round(disturbance.lost_device_share, 4),
    )
