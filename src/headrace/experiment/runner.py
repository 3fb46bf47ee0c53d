"""Run an experiment: every planned trial that is not on disk yet, in order, each journaled and restored.

``kill -9`` at any moment loses at most the running trial: trials appear by one rename, changes to the host
stand in its journal before they are made, and the next run restores them before it continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace import workloads
from headrace.agent import Agent, Journal
from headrace.analysis.disturbance import Disturbance, find_disturbance
from headrace.errors import (
    Busy,
    HeadraceError,
    NothingMeasured,
    NotReady,
    PlanError,
    Refused,
    TargetError,
    TreatmentFailed,
)
from headrace.experiment import again, readiness
from headrace.experiment import design as designs
from headrace.experiment import plan as plans
from headrace.experiment.preflight import preflight
from headrace.experiment.trial import Lab, restore, run_trial, server_spec, volume_spec
from headrace.facts import HostFacts
from headrace.model import Role, ServerEndpoint, TrialSpec, TrialState
from headrace.server import build_dataset, dataset_folder
from headrace.store import RECONNECT, ExperimentFolder, TrialData, TrialDraft, TrialRecord, empty_data
from headrace.target import Target, TargetSpec, open_target, to_the_end
from headrace.workloads import precondition

#: What a trial costs beside warm-up and measuring, before one has been timed: [s] for planning only.
OVERHEAD_WITH_SERVER_S = 3.0
OVERHEAD_S = 4.0

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


def trial_seconds(plan: plans.Plan) -> float:
    """The wall time to expect of one trial, before one has been timed."""
    needs_server = workloads.make_workload(plan.workload.kind, plan.workload.options).needs_server
    overhead = OVERHEAD_WITH_SERVER_S if needs_server else OVERHEAD_S
    rounds_s = precondition.least_seconds(plan.workload.options)
    return rounds_s + plan.workload.warmup_s + plan.workload.seconds + overhead


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

    def build(is_root: bool) -> designs.Design:
        return designs.build(plan, place=str(plan_path), is_root=is_root)

    return await run_design(plan, text, build, Run, folder_path, listen, retry=retry)


async def run_design(
    plan: plans.Plan,
    text: str,
    build: Callable[[bool], designs.Design],
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
        design = build(await _is_root(plan))
        for name, reason in design.skipped:
            listen(Note(f"skipped {name}: {reason}"))
        for note in design.notes:
            listen(Note(note))
        folder = open_folder(folder_path or Path("experiments") / plan.name, text, design)
        stack.enter_context(exclusive(folder.path))
        machine = open_machine(design, folder.path)
        labs = await stack.enter_async_context(Labs(machine, folder, design, listen))
        await labs.begin()
        await loop(labs, folder, listen, retry).all_trials()
    return folder


async def _is_root(plan: plans.Plan) -> bool:
    """What the design must know of the target. A virtual machine of ours is not up yet, and we are root there."""
    if plan.target.address == designs.VM:
        return True
    target = open_target(target_spec(plan))
    try:
        await target.connect()
        return target.is_root
    finally:
        await target.close()


def open_folder(path: Path, text: str, design: designs.Design) -> ExperimentFolder:
    if not path.exists():
        return ExperimentFolder.create(path, text, design.to_json())
    folder = ExperimentFolder.open(path)
    if folder.design.get("hash") != design.hash:
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


class Labs:
    """The lab on the machine that is there: prepared again after each boot. ``current`` is the one to work in."""

    def __init__(
        self, machine: Machine, folder: ExperimentFolder, design: designs.Design, listen: Listener
    ) -> None:
        self.design = design
        self._machine = machine
        self._folder = folder
        self._listen = listen
        self._stack = AsyncExitStack()
        self._lab: Lab | None = None
        self._spec: TargetSpec | None = None
        self._boot = ""
        self._kernel: str | None = None
        #: Kernels that do not come up, and why: nobody waits twice for one.
        self._broken: dict[str | None, TreatmentFailed] = {}

    @property
    def current(self) -> Lab:
        assert self._lab is not None  # made by ``begin``, and again by each ``ready``
        return self._lab

    async def __aenter__(self) -> Labs:
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Close the lab, then leave the machine as it was found. What went wrong first is what is told."""
        told = await self._close(error)
        try:
            await to_the_end(self._machine.release(lambda text: self._listen(Note(text))))
        except HeadraceError as later:
            if told is None:
                raise
            self._listen(Note(f"leaving the machine: {later.message}"))
        if told is not None and told is not error:
            raise told

    async def begin(self) -> None:
        """Prepare the lab for the first trial that is left, so that what is missing is told before it."""
        done = {record.number for record in self._folder.trials()}
        left = [spec.treatment for spec in self.design.trials if spec.number not in done]
        if not left and self._machine.boots and self.design.trials:
            return
        first = left[0] if left else next(iter(self.design.baselines.values()))
        # A kernel that does not come up is the trial's own failure.
        with contextlib.suppress(TreatmentFailed):
            await self.ready(designs.kernel_of(self.design.plan, self.design.treatment(first)))

    async def ready(self, kernel: str | None) -> Lab:
        """The lab on this kernel; None is the one that runs. Raises TreatmentFailed where it does not come up."""
        if self._lab is not None and not self._machine.must_boot(kernel):
            return self._lab
        if kernel in self._broken:
            raise self._broken[kernel]
        # The journal is rolled back and let go: a boot would end the process that holds it.
        if told := await self._close(None):
            raise told
        try:
            self._spec = await self._machine.ready(kernel, lambda text: self._listen(Note(text)))
        except TreatmentFailed as error:
            self._broken[kernel] = error
            raise
        try:
            return await self._prepare(self._spec, kernel)
        except BaseException:
            if told := await self._close(sys.exc_info()[1]):
                raise told from None
            raise

    async def _prepare(self, spec: TargetSpec, kernel: str | None) -> Lab:
        target = open_target(spec)
        await target.connect()
        self._stack.push_async_callback(target.close)
        if self._machine.boots:
            self._boot = await boot_id(target)
        lab = await prepare_lab(target, self._folder, self.design, self._stack, self._listen, spec)
        if kernel is not None and not is_kernel(kernel, lab.versions["kernel"]):
            raise TargetError(f"asked for kernel {kernel}, runs {lab.versions['kernel']}", place=target.name)
        self._lab = replace(lab, accel=self._machine.accel or HostFacts(lab.facts).accel)
        return self._lab

    async def lost(self, error: BaseException) -> str:
        """Close the lab in which a trial ended so. Returns why, where the machine died; raises otherwise."""
        spec, boot = self._spec, self._boot
        told = await self._close(error) or error
        task = asyncio.current_task()
        stopped = task is not None and task.cancelling() > 0
        if stopped or spec is None or not self._machine.boots or not isinstance(told, TargetError):
            raise told
        if await is_there(spec, boot):
            raise told
        self._machine.died()
        return told.message

    async def _close(self, error: BaseException | None) -> BaseException | None:
        """Close the lab, telling it what ended the work in it; what is to be told now, None where all is well."""
        stack, self._stack, self._lab = self._stack, AsyncExitStack(), None
        try:
            await stack.__aexit__(type(error) if error else None, error, error and error.__traceback__)
        except BaseException as other:
            return other
        return error


async def prepare_lab(
    target: Target,
    folder: ExperimentFolder,
    design: designs.Design,
    stack: AsyncExitStack,
    listen: Listener,
    spec: TargetSpec | None = None,
) -> Lab:
    """Make a target ready for trials; ``stack`` lets go of it. ``spec`` is how it was reached, where the plan's
    address does not say that."""
    plan = design.plan
    agent = await Agent.install(target)
    owner = f"headrace-{plan.name}-{design.hash[:12]}"
    journal = Journal(agent, owner)
    await stack.enter_async_context(journal.hold())
    # Whatever a killed run left behind is undone before anything is looked at or measured.
    for what in await to_the_end(restore(journal)):
        listen(Note(f"restored: {what}"))
    lost = folder.discard_drafts()
    if lost:
        listen(Note(f"{lost} unfinished trial was discarded and will be measured again"))
    workload = workloads.make_workload(plan.workload.kind, plan.workload.options)
    specs = [volume_spec(design, treatment) for treatment in design.treatments]
    for treatment in design.treatments:
        server_spec(design, treatment)  # refuses before the first trial what it would refuse in one
    vendor = plan.server.vendor if workload.needs_server and plan.server.binary is None else None
    versions = await readiness.require(target, workload, specs, vendor)
    clients, network_host = await _clients(target, spec or target_spec(plan), design, stack)
    await _make_scratch(target, plan.target.scratch)
    facts = await agent.facts()
    folder.save_facts(facts)
    lab = Lab(
        target=target,
        agent=agent,
        journal=journal,
        facts=facts,
        design=design,
        owner=owner,
        scratch=plan.target.scratch,
        versions={**versions, "kernel": HostFacts(facts).kernel_release},
        clients=clients,
        network_host=network_host,
    )
    if workloads.has_preflight(workload) and len(folder.trials()) < len(design.trials):
        await preflight(lab, lambda text: listen(Note(text)))
    if workload.needs_server:
        lab = replace(lab, dataset=await _dataset(lab, workload, listen))
    return lab


async def _clients(
    target: Target, own: TargetSpec, design: designs.Design, stack: AsyncExitStack
) -> tuple[dict[str, Target], str]:
    """Reach every machine that any treatment drives from, before the first trial; and where those that are not the
    target reach its server, empty without any."""
    plan = design.plan
    keys = {"identity_file": plan.target.identity_file, "known_hosts": plan.target.known_hosts}
    specs: dict[str, TargetSpec] = {}
    network_host = ""
    for treatment in design.treatments:
        options = designs.workload_options(plan, treatment)
        workload = workloads.make_workload(plan.workload.kind, options)
        addresses, server_address = workloads.driven_from(workload)
        specs |= {address: TargetSpec.parse(address, **keys) for address in addresses}
        if any(specs[address] != own for address in addresses):
            network_host = server_address or own.host
            _require_network(plan, network_host)
    clients: dict[str, Target] = {}
    for address, spec in specs.items():
        clients[address] = client = target if spec == own else open_target(spec)
        if client is not target:
            await client.connect()
            stack.push_async_callback(client.close)
            await Agent.install(client)
    return clients, network_host


def _require_network(plan: plans.Plan, network_host: str) -> None:
    if not network_host:
        raise PlanError(
            "workload.server_address: clients on other machines must know where the server is",
            hint="give the address of this machine that they can reach",
        )
    if not plan.server.port:
        raise PlanError(
            "server.port = 0: clients on other machines need a port",
            hint="give a [server] port that they can reach",
        )


async def _make_scratch(target: Target, scratch: str) -> None:
    """The scratch folder; readable by the server's own user, writable by nobody else."""
    made = await target.run(["mkdir", "-p", "-m", "0755", scratch], check=False)
    if made.exit_code != 0:
        raise NotReady(
            f"the scratch folder cannot be made: {made.error_text.strip()}",
            place=f"{target.name}:{scratch}",
            hint='name another with [target] scratch = "..." in the plan',
        )
    # The default lies below a folder that everybody may write to: somebody could have made it before us.
    owner, mode = (await target.run(["stat", "-L", "-c", "%u %a", scratch])).text.split()
    user = (await target.run(["id", "-u"])).text.strip()
    if owner != user or int(mode, 8) & 0o022:
        raise Refused(
            f"the scratch folder belongs to user {owner}, mode {mode}: only we may own and write it",
            place=f"{target.name}:{scratch}",
            hint='remove it, or name another with [target] scratch = "..." in the plan',
        )


async def _dataset(lab: Lab, workload: workloads.Workload, listen: Listener) -> str:
    """The golden copy of the data, built once per server version and data set."""
    baseline = lab.design.treatment(next(iter(lab.design.baselines.values())))
    treated = server_spec(lab.design, baseline)
    spec = replace(treated, variables=dict(treated.layout), allocator="system")
    folder = await dataset_folder(lab.target, spec, f"{lab.scratch}/datasets", workload.dataset() or {})

    if await lab.target.exists(f"{folder}/manifest.json"):
        return folder
    listen(Note("building the data set (once)"))
    await lab.journal.record([{"kind": "process", "owner": lab.owner}])
    try:
        # What the loading prints is of no use once the data is there; an error quotes its last lines.
        with tempfile.TemporaryDirectory(prefix="headrace-") as raw:

            async def load(endpoint: ServerEndpoint) -> None:
                await workload.prepare(
                    workloads.Context(lab.target, lab.owner, folder, endpoint, 0.0, 0.0, Path(raw))
                )

            await build_dataset(lab.target, spec, folder, lab.owner, load)
    finally:
        await to_the_end(restore(lab.journal))
    return folder


class Run:
    """The loop over the trials, with its clock."""

    def __init__(self, labs: Labs, folder: ExperimentFolder, listen: Listener, retry: bool) -> None:
        self._labs = labs
        self._design = labs.design
        self._folder = folder
        self._listen = listen
        self._retry = retry
        self._durations_s: list[float] = []
        self._deaths = 0

    @property
    def _lab(self) -> Lab:
        return self._labs.current

    async def all_trials(self) -> None:
        trials = self._design.trials
        on_disk = {t.number: t for t in self._folder.trials()}
        if self._retry:
            on_disk = {n: t for n, t in on_disk.items() if t.state is TrialState.COMPLETE}
        if on_disk:
            self._listen(Note(f"continuing: {len(on_disk)} of {len(trials)} trials are done"))
        repeats = again.Again(on_disk.values(), len(trials), lambda text: self._listen(Note(text)))
        measured: list[TrialSpec] = []
        for spec, following in zip(trials, [*trials[1:], None], strict=True):
            if spec.number not in on_disk:
                on_disk[spec.number] = await self._one(spec, len(on_disk), len(trials))
                measured.append(spec)
            self._stop_when_hopeless(on_disk[spec.number])
            # Within a whole plot of a hard factor at once: its levels are not set up for one trial more.
            is_over = following is None or following.block != spec.block
            if not is_over and not self._lab.design.plan.design.hard:
                continue
            for disturbed in measured:
                while repeats.wants(on_disk[disturbed.number]):
                    repeats.begin(on_disk[disturbed.number])
                    on_disk[disturbed.number] = await self._one(disturbed, len(on_disk) - 1, len(trials))
            measured.clear()
        if not any(t.state is TrialState.COMPLETE for t in on_disk.values()):
            reasons = {f"{t.treatment}: {t.reason}" for t in on_disk.values()}
            raise NothingMeasured("no trial is complete:\n" + "\n".join(sorted(reasons)))

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
        kernel = designs.kernel_of(self._design.plan, self._design.treatment(spec.treatment))
        died: list[str] = []
        while True:
            try:
                lab = await self._labs.ready(kernel)
            except TreatmentFailed as error:
                return self._commit(_unmeasured(spec, TrialState.FAILED, error.message), empty_data())
            draft = self._folder.begin_trial(spec.number)
            try:
                record, data = await run_trial(
                    replace(lab, design=self._design), spec, draft, lambda text: self._listen(Step(text))
                )
                record = replace(record, warnings=[*record.warnings, *died])
                return self._commit(record, data, draft)
            except BaseException as error:
                draft.discard()
                reason = await self._labs.lost(error)
            self._deaths += 1
            if self._deaths >= MOST_DEATHS:
                raise TargetError(
                    f"the machine died in {MOST_DEATHS} trials in a row: {reason}",
                    place=f"trial {spec.number}",
                    hint="what it last said stands on its console",
                )
            if died:
                why = f"the machine died in it, and again when it was measured anew: {reason}"
                return self._commit(_unmeasured(spec, TrialState.INVALID, why), empty_data())
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
        (draft or self._folder.begin_trial(record.number)).commit(record, data)
        return record, data

    def _left_s(self, trials: int) -> float:
        durations = self._durations_s
        each = sum(durations) / len(durations) if durations else trial_seconds(self._design.plan)
        return each * trials

    def _stop_when_hopeless(self, record: TrialRecord) -> None:
        """Without a baseline nothing can be compared: better to say so in the first block than after hours."""
        if record.block == 1 and record.role is Role.BASELINE and record.state is TrialState.FAILED:
            raise NothingMeasured(
                f"the baseline {record.treatment} failed: {record.reason}",
                place=str(self._folder.trial_path(record.number)),
                hint="mend the cause and run again with --retry; a changed plan needs another --output",
            )


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


def _unmeasured(spec: TrialSpec, state: TrialState, reason: str) -> TrialRecord:
    """Of a trial without a machine to measure it on."""
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
