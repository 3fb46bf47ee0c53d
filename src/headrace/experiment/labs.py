"""The lab: a target prepared for trials, and prepared again after each boot of its machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType

from headrace.base.errors import HeadraceError, NotReady, PlanError, Refused, TargetError, TreatmentFailed
from headrace.base.model import ServerEndpoint, TrialSpec
from headrace.base.temporary import temporary_folder
from headrace.experiment import pair as pairs
from headrace.experiment import readiness, switch, workloads
from headrace.experiment.boot import Boot, Tell, boot_id, check_arguments_of, is_kernel
from headrace.experiment.frozen import Design
from headrace.experiment.laboratory import Laboratory, Measured
from headrace.experiment.machine import Machine, is_there, open_machine, target_spec
from headrace.experiment.plan import VM, Plan, ServerTable
from headrace.experiment.preflight import preflight
from headrace.experiment.store import ExperimentFolder, TrialDraft
from headrace.experiment.trial import Lab, must_meet_nobody, restore, run_trial, server_spec, volume_spec
from headrace.host.agent import Agent, Journal
from headrace.host.facts import HostFacts
from headrace.host.target import Target, TargetSpec, open_target, to_the_end
from headrace.lab.server import build_dataset, dataset_folder

#: How long a lost connection is retried if the machine can be booted again.
BOOTED_RECONNECT_S = 10.0


class Labs:
    """The lab on the current machine, prepared again after each boot. ``current`` is the one to work in."""

    def __init__(self, machine: Machine, folder: ExperimentFolder, design: Design, tell: Tell) -> None:
        self.design = design
        self._machine = machine
        self._folder = folder
        self._tell = tell
        self._stack = AsyncExitStack()
        self._lab: Lab | None = None
        self._spec: TargetSpec | None = None
        self._boot = ""
        #: Kernels that do not come up, and why, so that each is tried only once.
        self._broken: dict[Boot | None, TreatmentFailed] = {}

    @property
    def current(self) -> Lab:
        assert self._lab is not None  # created by ``begin`` and by each ``ready``
        return self._lab

    async def __aenter__(self) -> Labs:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the lab, then restore the machine. The first error is the one raised."""
        told = await self._close(error)
        try:
            await to_the_end(self._machine.release(self._tell))
        except HeadraceError as later:
            if told is None:
                raise
            self._tell(f"restoring the machine: {later.message}")
        if told is not None and told is not error:
            raise told

    async def prepare(self, boot: Boot | None) -> None:
        await self.ready(boot)

    async def measure(self, design: Design, spec: TrialSpec, draft: TrialDraft, tell: Tell) -> Measured:
        lab = replace(self.current, design=design)
        if lab.dataset and (session := design.session_of(spec.block)) > 1:
            workload = workloads.make_workload(design.workload.kind, design.workload.options)
            lab = replace(lab, dataset=await _dataset(lab, workload, tell, session))
        return await run_trial(lab, spec, draft, tell)

    async def halves(self) -> tuple[str, str]:
        return await pairs.cpu_halves(self.current)

    async def measure_pair(
        self, design: Design, pair: Sequence[TrialSpec], drafts: Sequence[TrialDraft], tell: Tell
    ) -> list[Measured]:
        lab = replace(self.current, design=design)
        return await pairs.measure_pair(lab, pair, drafts, await self.halves(), tell)

    async def measure_turns(
        self, design: Design, turns: Sequence[TrialSpec], drafts: Sequence[TrialDraft], tell: Tell
    ) -> list[Measured]:
        return await switch.measure_turns(replace(self.current, design=design), turns, drafts, tell)

    async def begin(self) -> None:
        """Prepare the lab for the first remaining trial, so that missing requirements are reported before it."""
        done = {record.number for record in self._folder.trials()}
        left = [spec.treatment for spec in self.design.trials if spec.number not in done]
        if not left and self._machine.boots and self.design.trials:
            return
        # A search finds its treatments during the run: until then its trials have a name that no treatment has.
        known = {treatment.name for treatment in self.design.treatments}
        first = next((name for name in left if name in known), self.design.reference.name)
        # A kernel that does not come up fails only its trial.
        with contextlib.suppress(TreatmentFailed):
            await self.ready(self.design.boot_of(self.design.treatment(first)))

    async def ready(self, boot: Boot | None) -> Lab:
        """The lab on this kernel; None: the one that runs. Raises TreatmentFailed if it does not come up."""
        if self._lab is not None and not self._machine.must_boot(boot):
            return self._lab
        if boot in self._broken:
            raise self._broken[boot]
        # Roll back and release the journal, because a boot would end the process that holds it.
        if told := await self._close(None):
            raise told
        for is_last in (False, True):
            self._boot = ""
            try:
                self._spec = await self._machine.ready(boot, self._tell)
            except TreatmentFailed as error:
                self._broken[boot] = error
                raise
            try:
                return await self._prepare(self._spec, boot)
            except TreatmentFailed as error:
                self._broken[boot] = error
                raise await self._close(error) or error from None
            except BaseException as error:
                told = await self._close(error) or error
                if is_last or not await self._died(told):
                    raise told from None
                self._tell(f"the machine died while being prepared ({told}): trying again")
        raise AssertionError("the last attempt returns or raises")

    async def _prepare(self, spec: TargetSpec, boot: Boot | None) -> Lab:
        # If the machine can be booted, ``lost`` finds out what happened to it; do not wait.
        reached = replace(spec, reconnect_s=BOOTED_RECONNECT_S) if self._machine.boots else spec
        target = open_target(reached, self._tell)
        await target.connect()
        self._stack.push_async_callback(target.close)
        # The port of a virtual machine may change with each boot.
        target.name = self._machine.name or target.name
        if self._machine.boots:
            self._boot = await boot_id(target)
        lab = await prepare_lab(target, self._folder, self.design, self._stack, self._tell, spec)
        if boot is not None and not is_kernel(boot.kernel, lab.versions["kernel"]):
            raise TargetError(
                f"asked for kernel {boot.kernel}, runs {lab.versions['kernel']}", place=target.name
            )
        if boot is not None:
            await check_arguments_of(target, boot, self._tell)
        self._lab = replace(lab, accel=self._machine.accel or HostFacts(lab.facts).accel)
        return self._lab

    async def lost(self, error: BaseException) -> str:
        """Close the lab after this error of a trial. Returns why, if the machine died; raises otherwise."""
        told = await self._close(error) or error
        if not await self._died(told):
            raise told
        return str(told.message) if isinstance(told, HeadraceError) else str(told)

    async def _died(self, told: BaseException) -> bool:
        """Whether this error, raised while closing a lab, is due to the machine's death."""
        task = asyncio.current_task()
        stopped = task is not None and task.cancelling() > 0
        if stopped or self._spec is None or not self._machine.boots or not isinstance(told, TargetError):
            return False
        if await is_there(self._spec, self._boot):
            return False
        self._machine.died()
        return True

    async def _close(self, error: BaseException | None) -> BaseException | None:
        """Close the lab with the error that ended the work; returns the error to raise, or None."""
        stack, self._stack, self._lab = self._stack, AsyncExitStack(), None
        try:
            await stack.__aexit__(
                type(error) if error else None, error, error.__traceback__ if error else None
            )
        except BaseException as other:
            return other
        return error


def open_laboratory(design: Design, folder: ExperimentFolder, tell: Tell) -> Laboratory:
    """The laboratory on a design's machine, not yet prepared."""
    return Labs(open_machine(design, folder.path), folder, design, tell)


async def is_root(plan: Plan) -> bool:
    """Properties of the target that a design needs.

    A virtual machine is not up yet, and headrace is root there.
    """
    if plan.target.address == VM:
        return True
    target = open_target(target_spec(plan.target))
    try:
        await target.connect()
        return target.is_root
    finally:
        await target.close()


async def prepare_lab(
    target: Target,
    folder: ExperimentFolder,
    design: Design,
    stack: AsyncExitStack,
    tell: Tell,
    spec: TargetSpec | None = None,
) -> Lab:
    """Prepare a target for trials; ``stack`` releases it.

    ``spec`` is how it was reached, if not by the plan's address.
    """
    agent = await Agent.install(target)
    owner = f"headrace-{design.name}-{design.hash[:12]}"
    journal = Journal(agent, owner)
    await stack.enter_async_context(journal.hold())
    # Undo the changes of a killed run, and of an `apply` whose time is over, before anything is read or measured.
    back = await to_the_end(restore(journal, everyone=False))
    await must_meet_nobody(journal)
    for what in [*back, *await to_the_end(restore(journal))]:
        tell(f"restored: {what}")
    lost = folder.discard_drafts()
    if lost:
        tell(f"{lost} unfinished trial was discarded and will be repeated")
    workload = workloads.make_workload(design.workload.kind, design.workload.options)
    login = workloads.live_login(workload)
    live = await agent.facts(login) if login else None
    specs = [volume_spec(design, treatment) for treatment in design.treatments]
    for treatment in design.treatments:
        server_spec(design, treatment)  # refuse before the first trial instead of during one
    vendor = design.server.vendor if workload.needs_server and design.server.binary is None else None
    versions = await readiness.require(target, workload, specs, vendor)
    clients, network_host = await _clients(target, spec or target_spec(design.target), design, stack, tell)
    await _make_scratch(target, design.target.scratch)
    await _load_file_systems(target, {spec.filesystem for spec in specs})
    facts = await agent.facts()
    folder.save_facts(facts)
    lab = Lab(
        target=target,
        agent=agent,
        journal=journal,
        facts=facts,
        design=design,
        owner=owner,
        scratch=design.target.scratch,
        versions={**versions, "kernel": HostFacts(facts).kernel_release},
        clients=clients,
        network_host=network_host,
        live=live,
    )
    if workloads.has_preflight(workload) and len(folder.trials()) < len(design.trials):
        await preflight(lab, tell)
    if workload.needs_server:
        lab = replace(lab, dataset=await _dataset(lab, workload, tell))
    return lab


async def _clients(
    target: Target, own: TargetSpec, design: Design, stack: AsyncExitStack, tell: Tell
) -> tuple[dict[str, Target], str]:
    """Connect to every driver machine before the first trial.

    Also returns the address where the others reach the target's server; empty without any.
    """
    table = design.target
    specs: dict[str, TargetSpec] = {}
    network_host = ""
    for treatment in design.treatments:
        options = design.options_of(treatment)
        workload = workloads.make_workload(design.workload.kind, options)
        addresses, server_address = workloads.driven_from(workload)
        specs |= {address: TargetSpec.parse(address, **table.login) for address in addresses}
        if any(specs[address] != own for address in addresses):
            network_host = server_address or own.host
            _require_network(design.server, network_host)
    clients: dict[str, Target] = {}
    for address, spec in specs.items():
        clients[address] = client = target if spec == own else open_target(spec, tell)
        if client is not target:
            await client.connect()
            stack.push_async_callback(client.close)
            await Agent.install(client)
    return clients, network_host


def _require_network(server: ServerTable, network_host: str) -> None:
    if not network_host:
        raise PlanError(
            "workload.server_address: clients on other machines need the server's address",
            hint="set an address of this machine that they can reach",
        )
    if not server.port:
        raise PlanError(
            "server.port = 0: clients on other machines need a port",
            hint="set a [server] port that they can reach",
        )


async def _load_file_systems(target: Target, kinds: set[str]) -> None:
    """Load the modules that a mount would load; otherwise the first trial after a boot would pay for it, and facts
    would change.
    """
    if target.is_root:
        for kind in sorted(kinds - {""}):
            await target.run(["modprobe", "-q", kind], check=False)


async def _make_scratch(target: Target, scratch: str) -> None:
    """The scratch directory; readable by the server's user, writable only by its owner."""
    script = 'mkdir -p -m 0755 "$0" && stat -L -c "%u %a" "$0" && id -u'
    made = await target.run(["sh", "-c", script, scratch], check=False)
    if made.exit_code != 0:
        raise NotReady(
            f"the scratch directory cannot be created: {made.error_text.strip()}",
            place=f"{target.name}:{scratch}",
            hint='set another with [target] scratch = "..." in the plan',
        )
    # The default is below a world-writable directory: another user could have created it first.
    owner, mode, user = made.text.split()
    if owner != user or int(mode, 8) & 0o022:
        raise Refused(
            f"the scratch directory belongs to user {owner}, mode {mode}: it must be owned and writable only "
            "by this user",
            place=f"{target.name}:{scratch}",
            hint='remove it, or set another with [target] scratch = "..." in the plan',
        )


async def _dataset(lab: Lab, workload: workloads.Workload, tell: Tell, session: int = 1) -> str:
    """The golden copy of the data, built once per server version and data set, and again for each session."""
    treated = server_spec(lab.design, lab.design.reference)
    spec = replace(treated, variables=dict(treated.layout), allocator="system")
    identity = {**(workload.dataset() or {}), **({"session": session} if session > 1 else {})}
    folder = await dataset_folder(lab.target, spec, f"{lab.scratch}/datasets", identity)
    if await lab.target.exists(f"{folder}/manifest.json"):
        return folder
    tell("building the data set (once)" if session == 1 else f"session {session}: loading the data anew")
    await lab.journal.record([{"kind": "process", "mark": lab.owner}])
    try:
        # The output of loading is only used in errors, which quote its last lines.
        with temporary_folder() as raw:

            async def load(endpoint: ServerEndpoint) -> None:
                await workload.prepare(
                    workloads.Context(lab.target, lab.owner, folder, endpoint, 0.0, 0.0, raw)
                )

            await build_dataset(lab.target, spec, folder, lab.owner, load)
    finally:
        await to_the_end(restore(lab.journal))
    return folder
