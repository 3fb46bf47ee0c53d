"""One experiment on several equal machines: each block runs on one of them, all trials are in one folder.

A machine is a block factor: treatments are compared only within a block, so differences between machines cancel in
every ratio. A ``Ledger`` assigns blocks to machines; ``block.run_block`` runs them, in this process (``Here``) or
on a Ray cluster (``cluster``).

A lost machine gives its block back. It may finish it when it returns; when nothing else is left to do, another
machine runs the whole block again, and the lost machine's trials of it are set aside: kept in the folder, but not
analysed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from headrace.base.counted import counted
from headrace.base.errors import HeadraceError, PlanError, Refused, TargetError
from headrace.base.model import TrialState
from headrace.base.whole import make_folder, remove_tree
from headrace.experiment import block as blocks
from headrace.experiment import kinds, lease, workloads
from headrace.experiment.block import Seen, Task
from headrace.experiment.kinds.kind import require_complete
from headrace.experiment.ledger import Assignment, Ledger
from headrace.experiment.plan import Plan, PlanFile
from headrace.experiment.retries import Retries
from headrace.experiment.runner import (
    Event,
    Listener,
    Note,
    TrialEnded,
    TrialStarted,
    as_repeated,
    measured_again,
    opened,
    stop_when_hopeless,
    trial_seconds,
    unmeasured,
)
from headrace.experiment.store import ExperimentFolder, TrialRecord
from headrace.host.facts import differences
from headrace.host.target import TargetSpec

#: Where each machine's controller writes, within the experiment's folder, so on the same file system.
WORK = ".work"


@dataclass(frozen=True)
class Patience:
    """How long to wait before retrying an unreachable machine, how long all may be unreachable, how often one may
    fail without a trial in between before it is dropped, and how long it is left to others after a block.
    """

    retry_s: float = 10.0
    all_away_s: float = 300.0
    failures: int = 3
    yield_s: float = lease.YIELD_S


@dataclass(frozen=True)
class On(Event):
    """An event on one of several machines."""

    machine: str
    event: Event


class ControllerLost(TargetError):
    """The machine's controller process is gone, not the machine."""


class Controllers(Protocol):
    """Runs blocks on machines. Raises TargetError when the machine or its controller is lost."""

    async def look(self, plan: Plan, address: str) -> Seen: ...

    async def run_block(self, task: Task, folder: Path, listen: Listener) -> None:
        """``block.run_block``; a trial is in ``folder`` before ``listen`` hears that it has ended."""

    async def close(self) -> None: ...


class Here:
    """This process works with every machine, one connection each."""

    async def look(self, plan: Plan, address: str) -> Seen:
        return await blocks.look(plan, address)

    async def run_block(self, task: Task, folder: Path, listen: Listener) -> None:
        await blocks.run_block(task, folder, listen)

    async def close(self) -> None:
        """Nothing to close."""


async def run_pool(
    file: PlanFile,
    folder_path: Path | None,
    listen: Listener,
    *,
    retry: bool = False,
    controllers: Controllers | None = None,
    patience: Patience | None = None,
) -> ExperimentFolder:
    """Run or continue a plan whose target has several addresses: as ``runner.run_here``."""
    plan = file.plan
    _refuse(plan, file.place)
    who = controllers or Here()
    try:
        seen, away = await _look_at_all(plan, who)
        first = next(iter(seen.values()))
        is_equal = _compare(plan, seen, listen)
        design = kinds.build(plan, place=file.place, is_root=first.is_root)
        with opened(file, design, folder_path, listen) as folder:
            pool = Pool(file, folder, who, listen, patience or Patience())
            await pool.run(seen, away, retry=retry, is_equal=is_equal)
    finally:
        await who.close()
    return folder


def reached_all(folder: ExperimentFolder) -> list[TargetSpec]:
    """How to reach the machines of an experiment on several; empty otherwise."""
    table = folder.design.target
    return [TargetSpec.parse(address, **table.login) for address in table.addresses]


def _refuse(plan: Plan, place: str) -> None:
    workload = workloads.make_workload(plan.workload.kind, plan.workload.options)
    if workloads.driven_from(workload)[0]:
        raise PlanError(
            "workload.clients: with several machines, each must drive its own load",
            place=place,
            hint="remove clients, or name one address",
        )


async def _look_at_all(plan: Plan, who: Controllers) -> tuple[dict[str, Seen], dict[str, TargetError]]:
    """Every machine that answers, and why the others do not. Raises the first error when none does."""
    addresses = plan.target.addresses
    answers = await asyncio.gather(*(who.look(plan, a) for a in addresses), return_exceptions=True)
    seen: dict[str, Seen] = {}
    away: dict[str, TargetError] = {}
    for address, answer in zip(addresses, answers, strict=True):
        if isinstance(answer, TargetError):
            away[address] = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            seen[address] = answer
    if not seen:
        raise next(iter(away.values()))
    return seen, away


def _compare(plan: Plan, seen: Mapping[str, Seen], listen: Listener) -> Callable[[str, Seen], list[str]]:
    """Report how the machines differ; returns a function that reports it for machines that join later."""
    (reference, first), *others = seen.items()
    boots = {first.boot_id: reference}

    def judge(address: str, one: Seen) -> list[str]:
        if not plan.target.allow_shared and boots.setdefault(one.boot_id, address) != address:
            raise Refused(
                f"{boots[one.boot_id]} and {address} are the same machine: their trials would disturb each other",
                hint="list each machine once; for a test without valid results: [target] allow_shared = true",
            )
        if one.is_root != first.is_root:
            raise Refused(
                f"{reference} is{'' if first.is_root else ' not'} reached as root, {address} is"
                f"{'' if one.is_root else ' not'}: they cannot run the same treatments",
                hint="log in as the same user on all machines",
            )
        unlike = differences(first.facts, one.facts)
        if unlike and plan.target.equal:
            raise Refused(
                f"{reference} and {address} differ: {'; '.join(unlike)}",
                hint="remove it, or set equal = false: differences between machines cancel within blocks",
            )
        return unlike

    for address, one in others:
        if unlike := judge(address, one):
            listen(Note(f"{reference} and {address} differ: {'; '.join(unlike)}"))
    return judge


@dataclass
class _Machine:
    """The pool's state of a machine."""

    address: str
    #: The trial running there.
    number: int | None = None
    failures: int = 0
    last_words: str = ""
    is_out: bool = False
    durations_s: list[float] = field(default_factory=list)
    #: The trials that it has measured of its block.
    measured: set[int] = field(default_factory=set)


class Pool:
    """The machines at work on one folder."""

    def __init__(
        self,
        file: PlanFile,
        folder: ExperimentFolder,
        who: Controllers,
        listen: Listener,
        patience: Patience,
    ) -> None:
        self._file = file
        self._plan = file.plan
        self._folder = folder
        self._design = folder.design
        self._who = who
        self._listen = listen
        self._patience = patience
        self._machines = {address: _Machine(address) for address in file.plan.target.addresses}
        self._changed = asyncio.Condition()
        self._changes = 0
        self._began: dict[str, float] = {}
        self._alone_since: float | None = None
        self._failure: BaseException | None = None
        self._ledger: Ledger
        self._judge: Callable[[str, Seen], list[str]]
        self._is_root = True
        #: How many trials of all blocks may still be repeated, and as many of them as each machine at work may.
        self._repeats_left = 0
        self._repeats: dict[str, int] = {}
        #: Trials on disk that will be replaced, by number.
        self._replaced: dict[int, TrialRecord] = {}
        #: Machine -> the hash of its facts, for machines that have answered.
        self._facts: dict[str, str] = {}

    async def run(
        self,
        seen: Mapping[str, Seen],
        away: Mapping[str, TargetError],
        *,
        retry: bool,
        is_equal: Callable[[str, Seen], list[str]],
    ) -> None:
        """Run every trial that is not on disk."""
        self._judge = is_equal
        self._is_root = next(iter(seen.values())).is_root
        self._ledger = self._open_ledger(retry)
        remove_tree(self._folder.path / WORK)
        for address, one in seen.items():
            self._joined(address, one)
        for address, error in away.items():
            self._machines[address].last_words = error.message
            self._listen(On(address, Note(f"unreachable: {error.message}; retrying while others work")))
        try:
            async with asyncio.TaskGroup() as group:
                for machine in self._machines.values():
                    group.create_task(self._serve(machine), name=machine.address)
        except BaseExceptionGroup as errors:
            raise self._failure or _first(errors) from None
        finally:
            remove_tree(self._folder.path / WORK)
        require_complete(self._folder.trials())

    def _open_ledger(self, retry: bool) -> Ledger:
        on_disk = self._folder.trials()
        lost = self._folder.discard_drafts()
        if lost:
            self._listen(Note(f"{lost} unfinished trial was discarded and will be repeated"))
        of_block: dict[int, list[int]] = {}
        for spec in self._design.trials:
            of_block.setdefault(spec.block, []).append(spec.number)
        there = {record.number for record in on_disk}
        retries = Retries(on_disk, len(self._design.trials), lambda text: self._listen(Note(text)))
        # In a block that goes on, disturbed trials are repeated, as they would have been.
        goes_on = {block for block, numbers in of_block.items() if not there.issuperset(numbers)}
        again = measured_again(on_disk, retry)
        for record in on_disk:
            if record.block in goes_on and record.number not in again and retries.wants(record):
                retries.begin(record)
                again.add(record.number)
        self._repeats_left = retries.left
        self._replaced = {record.number: record for record in on_disk if record.number in again}
        for record in on_disk:
            if record.number not in again:
                stop_when_hopeless(self._folder, record)
        if on_disk:
            self._listen(Note(f"continuing: {len(on_disk)} of {len(self._design.trials)} trials are done"))
        return Ledger(of_block, {r.number: r.machine for r in on_disk}, again)

    async def _serve(self, machine: _Machine) -> None:
        """Run blocks on one machine until nothing is left or the machine is dropped."""
        if machine.address not in self._facts and not await self._is_back(machine):
            return
        while not self._ledger.is_over:
            changes = self._changes
            assignment = self._ledger.take(machine.address)
            if assignment is None:
                await self._wait(changes)
                continue
            self._prepare(machine, assignment)
            try:
                await self._run(machine, assignment)
            except HeadraceError as error:
                if self._failure is not None:
                    raise
                if not await self._lost(machine, error):
                    return
            else:
                self._ledger.ended(machine.address)
                await self._tell_all()
                await self._pause(self._patience.yield_s)

    def _prepare(self, machine: _Machine, assignment: Assignment) -> None:
        """Before a block's first trial, move away its trials of other machines."""
        with self._ours():
            for number in assignment.aside:
                self._folder.set_aside(number)
            if assignment.aside:
                self._say(
                    machine,
                    f"runs block {assignment.block} again; "
                    f"{counted(len(assignment.aside), 'trial')} of the machine that "
                    "started it are set aside",
                )
            for number, words in assignment.hopeless.items():
                self._give_up_on(machine, number, words)

    def _give_up_on(self, machine: _Machine, number: int, words: tuple[str, ...]) -> None:
        from headrace.host.arrow import empty_data

        spec = next(trial for trial in self._design.trials if trial.number == number)
        reason = f"it ended without a result {len(words)} times: {'; '.join(words)}"
        record = replace(
            unmeasured(spec, TrialState.INVALID, reason),
            facts_hash=self._facts[machine.address],
            machine=machine.address,
        )
        self._folder.begin_trial(number).commit(record, empty_data())
        self._ledger.measured(machine.address, number)
        self._say(machine, f"trial {number} ({spec.treatment}) is not repeated: {record.reason}")

    async def _run(self, machine: _Machine, assignment: Assignment) -> None:
        if not assignment.numbers:
            return
        folder = self._folder.path / WORK / str(list(self._machines).index(machine.address))
        make_folder(folder.parent)
        task = Task(
            self._file.text,
            self._file.place,
            self._design.hash,
            self._is_root,
            machine.address,
            assignment.numbers,
            most_repeats=self._share_of_repeats(),
        )
        before, machine.measured = self._ledger.left, set()
        self._repeats[machine.address] = task.most_repeats
        try:
            await self._who.run_block(task, folder, lambda event: self._hear(machine, folder, event))
        finally:
            del self._repeats[machine.address]
        machine.number = None
        if self._ledger.left == before:
            raise HeadraceError("the block ended without a trial", place=machine.address)

    def _share_of_repeats(self) -> int:
        """An even share of those that no machine at work may need: what a block leaves is for later ones."""
        free = self._repeats_left - sum(self._repeats.values())
        return max(math.ceil(free / max(self._ledger.present - len(self._repeats), 1)), 0)

    def _hear(self, machine: _Machine, folder: Path, event: Event) -> None:
        match event:
            case TrialStarted(spec):
                machine.number = spec.number
                self._began[machine.address] = time.monotonic()
                self._listen(On(machine.address, TrialStarted(spec, self._done, self._total, self._left_s())))
            case TrialEnded(record, throughput_ops_s):
                with self._ours():
                    own = ExperimentFolder.open(folder)
                    told = partial(self._told, machine.address)
                    record = self._folder.adopt_trial(own, record.number, told)
                    self._ledger.measured(machine.address, record.number)
                    stop_when_hopeless(self._folder, record)
                if record.number in machine.measured:
                    self._repeats_left -= 1
                    self._repeats[machine.address] -= 1
                machine.measured.add(record.number)
                machine.number, machine.failures = None, 0
                machine.durations_s.append(time.monotonic() - self._began[machine.address])
                ended = TrialEnded(record, throughput_ops_s, self._done, self._total, self._left_s())
                self._listen(On(machine.address, ended))
            case _:
                self._listen(On(machine.address, event))

    def _told(self, machine: str, record: TrialRecord) -> TrialRecord:
        """A block's record as this experiment stores it."""
        return as_repeated(replace(record, machine=machine), self._replaced.get(record.number))

    async def _lost(self, machine: _Machine, error: HeadraceError) -> bool:
        """Give the machine's block back. True when it is reachable again, False when it is dropped."""
        # If only the controller died, do not blame the trial.
        number = None if isinstance(error, ControllerLost) else machine.number
        self._ledger.lost(machine.address, number, error.message)
        machine.number, machine.last_words = None, error.message
        machine.failures += 1
        if self._ledger.present == 0 and self._alone_since is None:
            self._alone_since = time.monotonic()
        if not isinstance(error, TargetError) or machine.failures >= self._patience.failures:
            await self._dismiss(machine, error)
            return False
        self._say(machine, f"lost: {error.message}; its unfinished trials are given back")
        await self._tell_all()
        return await self._is_back(machine, at_once=isinstance(error, ControllerLost))

    async def _is_back(self, machine: _Machine, *, at_once: bool = False) -> bool:
        """Retry an unreachable machine from time to time.

        False when all is measured without it, or it is refused.
        """
        while not self._ledger.is_over:
            if not at_once:
                await self._pause(self._patience.retry_s)
            at_once = False
            if self._ledger.is_over:
                break
            try:
                seen = await self._who.look(self._plan, machine.address)
                unlike = self._judge(machine.address, seen)
            except TargetError as error:
                machine.last_words = error.message
                self._stop_when_all_are_away()
                continue
            except HeadraceError as error:
                await self._dismiss(machine, error)
                return False
            self._say(machine, "is there" + (f"; it differs: {'; '.join(unlike)}" if unlike else ""))
            self._joined(machine.address, seen)
            await self._tell_all()
            return True
        return False

    def _joined(self, address: str, seen: Seen) -> None:
        with self._ours():
            self._folder.save_facts(seen.facts)
        self._facts[address] = seen.facts.hash
        self._ledger.back(address)
        self._alone_since = None

    async def _dismiss(self, machine: _Machine, error: HeadraceError) -> None:
        """Drop the machine. Raises the error when it was the last one."""
        machine.is_out = True
        if all(other.is_out for other in self._machines.values()):
            raise error
        self._say(machine, f"is no longer used: {error.message}{f' ({error.hint})' if error.hint else ''}")
        await self._tell_all()

    def _stop_when_all_are_away(self) -> None:
        since = self._alone_since
        if since is None or time.monotonic() - since < self._patience.all_away_s:
            return
        words = "; ".join(f"{m.address}: {m.last_words}" for m in self._machines.values())
        raise TargetError(
            f"all machines are lost: {words}",
            hint="run the same command again: it restores the machines and continues",
        )

    async def _wait(self, changes: int) -> None:
        """Wait until something changes after this change count, for a machine without work."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._changes > changes)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but wake up when nothing is left to run."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self._ledger.is_over)

    async def _tell_all(self) -> None:
        self._changes += 1
        async with self._changed:
            self._changed.notify_all()

    @contextlib.contextmanager
    def _ours(self) -> Iterator[None]:
        """Errors in here are not a machine's fault: they end the experiment."""
        try:
            yield
        except BaseException as error:
            self._failure = error
            raise

    def _say(self, machine: _Machine, text: str) -> None:
        self._listen(On(machine.address, Note(text)))

    @property
    def _total(self) -> int:
        return len(self._design.trials)

    @property
    def _done(self) -> int:
        return self._total - self._ledger.left

    def _left_s(self) -> float:
        durations = [s for machine in self._machines.values() for s in machine.durations_s]
        each = sum(durations) / len(durations) if durations else trial_seconds(self._plan.workload)
        return each * self._ledger.left / max(self._ledger.present, 1)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to report among concurrent ones: headrace's own errors first."""
    leaves: list[BaseException] = []
    for error in errors.exceptions:
        leaves += [_first(error)] if isinstance(error, BaseExceptionGroup) else [error]
    return next((error for error in leaves if isinstance(error, HeadraceError)), leaves[0])
