"""One trial: set the treatment up, measure, and restore the host.

Every change is journaled before it is made; the context managers undo changes in reverse order, and if they cannot
(the runner was killed), the next ``headrace run`` finds them in the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace import __version__
from headrace.base.errors import (
    Busy,
    ConnectionLost,
    HeadraceError,
    NotAsAsked,
    Refused,
    ServerStartFailed,
    TreatmentFailed,
    WorkloadFailed,
)
from headrace.base.model import Facts, ServerEndpoint, ServerLogin, Treatment, TrialSpec, TrialState
from headrace.experiment import connection, cores, workloads
from headrace.experiment.frozen import Design
from headrace.experiment.settle import settle
from headrace.experiment.stats.disturbance import OOPSED, killed_for_memory
from headrace.experiment.store import TrialDraft, TrialRecord
from headrace.experiment.volume import spec_of
from headrace.host.agent import Agent, Journal, belongs_to
from headrace.host.facts import HostFacts
from headrace.host.samples import Samples
from headrace.host.target import Target, to_the_end
from headrace.knobs import catalogue as knobs
from headrace.knobs.change import Change, changes
from headrace.lab.server import PrivateServer, ServerSpec, restore_dataset
from headrace.lab.volumes import Volume, VolumeSpec, mounted

if TYPE_CHECKING:
    from headrace.host.arrow import TrialData

SAMPLES_FILE = "samples.jsonl.zst"
#: Longer than it takes to notice that the connection is lost.
SAMPLER_END_S = 45.0
#: The configuration of host, volume and server during the trial, which rules need in addition to samples.
FACTS_FILE = "facts.json"
#: In the trial's raw files, if the kernel has had an Oops since it booted.
KERNEL_LOG_FILE = "kernel.log"
#: Prints the kernel's log if it has.
LOG_OF_OOPS = f"flags=$(cat /proc/sys/kernel/tainted) && [ $((flags & {OOPSED})) -ne 0 ] || exit 0; dmesg"

#: Errors that are an observation of the treatment. Anything else stops the experiment.
OBSERVATIONS = (ServerStartFailed, WorkloadFailed, TreatmentFailed, Refused)


class ServerDied(WorkloadFailed):
    """The trial's own server ended by itself."""


class LeftAlone(HeadraceError):
    """The other side of a pair ended before both were measured."""


@dataclass(frozen=True)
class Side:
    """One of two concurrent trials on a machine: ``cpus`` are its own (as taskset lists them).

    ``meet`` waits for the other side, ``agree`` also for its proposed start; both raise LeftAlone. The caller
    applies shared settings: a side changes nothing on the host.
    """

    cpus: str
    meet: Callable[[], Awaitable[None]]
    agree: Callable[[int], Awaitable[int]]


class Course(Protocol):
    """What changes while one load runs: ``start`` has the settings that hold throughout, ``seconds`` is how long
    the load is measured. ``agree`` hears when the load starts; ``beside`` makes the changes while it runs.
    """

    @property
    def start(self) -> Treatment: ...

    @property
    def seconds(self) -> float: ...

    async def agree(self, at_ns: int) -> int: ...

    def beside(
        self, volume: Volume, server: PrivateServer | None
    ) -> contextlib.AbstractAsyncContextManager[None]: ...


@dataclass(frozen=True)
class Lab:
    """A target prepared for trials."""

    target: Target
    agent: Agent
    journal: Journal
    facts: Facts
    design: Design
    owner: str
    scratch: str
    dataset: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    #: The machines that drive the load, by their address in the plan; may include the target.
    clients: Mapping[str, Target] = field(default_factory=dict)
    #: Address where driver machines other than the target reach the server; empty without any.
    network_host: str = ""
    side: Side | None = None
    #: ``tcg`` if its CPUs are emulated, ``kvm`` if a hypervisor runs them; empty if unknown.
    accel: str = ""
    #: The facts with those of the live server whose own load is watched; None without one.
    live: Facts | None = None


def volume_spec(design: Design, treatment: Treatment) -> VolumeSpec:
    """The volume of a treatment, with defaults from the plan's ``[volume]``."""
    return spec_of(design.volume, treatment)


def server_spec(design: Design, treatment: Treatment) -> ServerSpec:
    """The private server of a treatment."""
    table = design.server
    own = {k.removeprefix("server."): v for k, v in treatment.settings.items() if k.startswith("server.")}
    allocator = str(own.pop("allocator", "system"))
    return ServerSpec(table.vendor, table.binary, own, allocator, table.port)


def live_changes(treatment: Treatment, facts: Facts, *, areas: tuple[str, ...] = ("host",)) -> list[Change]:
    """The treatment's changes on the host, as opposed to those on its own volume or server."""
    host = HostFacts(facts)
    found: list[Change] = []
    for setting, value in treatment.settings.items():
        name, _, instance = setting.partition("@")
        if name.partition(".")[0] in areas:
            found += changes(knobs.find(name), instance, value, host)
    return found


async def run_trial(
    lab: Lab,
    spec: TrialSpec,
    draft: TrialDraft,
    on_step: Callable[[str], None],
    course: Course | None = None,
) -> tuple[TrialRecord, TrialData]:
    """Run one trial; the host is restored when this returns or raises. With a ``course`` its changes are made
    while the load runs, and the result is that of all of it.

    A treatment that fails (the server does not start or dies, the kernel refuses an option) gives state
    ``failed``; a workload that did not run as requested (its driver was late, a client was lost), ``invalid``. So
    does one that ended when the kernel killed another process than the server for lack of memory.
    """
    treatment = course.start if course else lab.design.treatment(spec.treatment)
    clock = connection.Clocks([lab.target, *lab.clients.values()])
    steps = _Steps(lab, treatment, spec.block, draft, clock, on_step, course)
    clock.mark("started")
    state, reason = TrialState.COMPLETE, ""
    from headrace.host.arrow import empty_data

    data = empty_data()
    try:
        await clock.read()
        await lab.journal.record([{"kind": "process", "mark": lab.owner}])
        data = await steps.measure()
        await clock.compare()
        if steps.invalid:
            state, reason = TrialState.INVALID, "; ".join(steps.invalid)
    except OBSERVATIONS as error:
        state, reason = TrialState.FAILED, error.message
        if killed := await asyncio.to_thread(_killed, draft.raw):
            reason = f"{reason}; {killed}"
            state = TrialState.FAILED if isinstance(error, ServerDied) else TrialState.INVALID
    except (LeftAlone, ConnectionLost, NotAsAsked) as error:
        state, reason = TrialState.INVALID, error.message
    finally:
        # Restore the host first, even when cancelled.
        await to_the_end(restore(lab.journal, everyone=lab.side is None))
    clock.mark("finished")
    record = replace(
        TrialRecord.of(spec, state, reason),
        window_start_ns=steps.window_ns[0],
        window_end_ns=steps.window_ns[1],
        times_ns=clock.times_ns(),
        facts_hash=lab.facts.hash,
        knobs=steps.knobs,
        versions={"headrace": __version__, **lab.versions, **steps.versions},
        warnings=[*steps.warnings, *clock.warnings()],
        clocks=clock.offsets(),
        cpus=HostFacts(lab.facts).cpu_count,
        accel=lab.accel,
        settled_s=steps.settled_s,
        cuts=steps.cuts,
        machine=lab.target.name,
    )
    return record, data


async def restore(journal: Journal, *, everyone: bool = True) -> list[str]:
    """Undo our changes and, with ``everyone``, what killed ones left; returns what was undone, as text.

    Changes of others that await a confirmation are theirs: somebody alive watches them, and the host undoes them
    itself. Raises if something could not be undone.
    """
    undone = await journal.rollback()
    if everyone:
        # We hold the host: whoever made changes without a deadline is gone.
        entries = await journal.entries()
        waiting = {entry["owner"] for entry in entries if entry.get("deadline")}
        for owner in dict.fromkeys(entry["owner"] for entry in entries if entry["owner"] not in waiting):
            undone += await journal.rollback(kept=owner)
    failed = [u for u in undone if u.error]
    if failed:
        raise HeadraceError(
            "; ".join(f"{u.what}: {u.error}" for u in failed),
            place="restoring the host",
            hint="fix the cause, then `headrace run` retries; `headrace status` shows what is left",
        )
    return [u.what for u in undone]


#: The change of a rollout begins with its id; that of `apply` with a day.
_ROLLOUT = re.compile(r"([0-9a-f]{12})-\d{8}-")


async def must_meet_nobody(journal: Journal) -> None:
    """Raises Busy if changes of others wait for their confirmation.

    Those of another server on this host, too: nobody can put their deadline off while we hold its journal.
    """
    for entry in await journal.entries():
        owner = entry["owner"]
        if belongs_to(owner, journal.owner) or not entry.get("deadline"):
            continue
        own = owner.removeprefix("apply/")
        rows = entry.get("restore") or ()
        what = ", ".join(str(row.get("path") or row.get("name")) for row in rows) or entry["kind"]
        socket = (entry.get("login") or {}).get("mysql_socket")
        where = f" of the server at {socket}" if socket else ""
        rollout = _ROLLOUT.match(own)
        raise Busy(
            f"changes of {owner} are on trial on this host: {what}{where}",
            place=journal.owner,
            hint=f"wait for it, or: headrace rollout abort {rollout[1]} restores its hosts"
            if rollout
            else f"wait for it, or: headrace apply --confirm {own} keeps them, "
            f"headrace rollback --id {own} undoes them",
        )


class _Steps:
    """The stages of one trial, in order, with the shared state for the record."""

    def __init__(
        self,
        lab: Lab,
        treatment: Treatment,
        block: int,
        draft: TrialDraft,
        clock: connection.Clocks,
        on_step: Callable[[str], None],
        course: Course | None = None,
    ) -> None:
        self._lab = lab
        self._course = course
        self._treatment = treatment
        self._block = block
        self._draft = draft
        self._clock = clock
        self._on_step = on_step
        #: The CPUs of driver and server, as taskset takes them; empty: all.
        self._cpus = (lab.side.cpus, lab.side.cpus) if lab.side else ("", "")
        self.window_ns = (0, 0)
        self.settled_s = 0.0
        self.cuts: list[dict[str, Any]] = []
        self._running: PrivateServer | None = None
        self.knobs: dict[str, dict[str, Any]] = {}
        self.warnings: list[str] = []
        self.invalid: tuple[str, ...] = ()
        self.versions: dict[str, str] = {}

    def _step(self, name: str, text: str) -> None:
        self._clock.mark(name)
        self._on_step(text)

    async def measure(self) -> TrialData:
        lab, treatment = self._lab, self._treatment
        workload = workloads.make_workload(lab.design.workload.kind, lab.design.options_of(treatment))
        live = workloads.watches(workload)
        async with contextlib.AsyncExitStack() as stack:
            self._step("volume", "volume")
            # With the host's own load there is nothing to mount: only a folder for the tool's files.
            plain = Treatment(treatment.name, treatment.levels, {}) if live else treatment
            spec = volume_spec(lab.design, plain)
            volume = await stack.enter_async_context(
                mounted(lab.target, lab.journal, spec, lab.scratch, "volume")
            )
            self._note_volume(volume)
            areas = ("host", "volume", "server") if live else () if lab.side else ("host",)
            login = workloads.live_login(workload)
            for applied in await lab.journal.change(
                live_changes(treatment, lab.live or lab.facts, areas=areas), login
            ):
                self.knobs[applied.path] = {"before": applied.before, "after": applied.after}
            endpoint = None
            await self._separate(workload)
            if workload.needs_server:
                endpoint = await stack.enter_async_context(self._server(volume))
            context = workloads.Context(
                target=lab.target,
                owner=lab.owner,
                folder=f"{volume.path}/files",
                endpoint=endpoint,
                seconds=self._course.seconds if self._course else lab.design.workload.seconds,
                warmup_s=lab.design.workload.warmup_s,
                raw=self._draft.raw,
                clients=tuple(lab.clients[address] for address in workloads.driven_from(workload)[0]),
                cpus=self._cpus[0],
                block=self._block,
                agree=lab.side.agree if lab.side else self._course.agree if self._course else None,
                aside=volume.aside,
            )
            if not workload.needs_server and not live:
                self._step("prepare", "files")
                await workload.prepare(context)
                await drop_cached(lab.target, context.folder)
            if within_s := lab.design.workload.steady_within_s:
                self._step("settle", "warming up")
                settled = await settle(workload, context, within_s, self._on_step)
                self.settled_s = settled.seconds
                self.warnings += [settled.warning] if settled.warning else []
            if lab.side is not None:
                self._step("meet", "waiting for the other side")
                await lab.side.meet()
            async with self._sampled(volume.aside, endpoint):
                self._step("workload", "measuring")
                async with (
                    self._course.beside(volume, self._running) if self._course else contextlib.nullcontext()
                ):
                    measurement = await workload.run(context)
                if lab.side is not None:
                    # Taking one side down would disturb the other.
                    await lab.side.meet()
                self._step("collect", "collecting")
            await self._keep_facts(endpoint, login)
            self.window_ns = (measurement.window_start_ns, measurement.window_end_ns)
            self.invalid = measurement.invalid
            self.warnings.extend(measurement.warnings)
            self.cuts = [asdict(cut) for cut in measurement.cuts]
            if not workload.needs_server:
                await workload.cleanup(context)
        from headrace.host.arrow import SAMPLES, TrialData, read_samples

        sampled = self._draft.raw / SAMPLES_FILE
        samples = (
            await asyncio.to_thread(read_samples, sampled) if sampled.exists() else SAMPLES.empty_table()
        )
        return TrialData(measurement.intervals, measurement.latency, samples)

    async def _keep_facts(self, endpoint: ServerEndpoint | None, login: ServerLogin | None) -> None:
        if endpoint is not None:
            login = ServerLogin(socket=endpoint.socket, user=endpoint.user)
        facts = await self._lab.agent.facts(login)
        (self._draft.raw / FACTS_FILE).write_text(json.dumps(facts.data))

    def _note_volume(self, volume: Volume) -> None:
        for applied in volume.settings:
            self.knobs[applied.path] = {"before": applied.before, "after": applied.after}
        self.knobs["volume.mounted"] = {"before": None, "after": ",".join(volume.options)}
        self.knobs["volume.device"] = {"before": None, "after": volume.device}
        self.warnings.extend(volume.warnings)

    def _note_server(self, server: PrivateServer) -> None:
        for name, change in server.settings.items():
            self.knobs[f"server.{name}"] = {"before": change.before, "after": change.after}
            if not change.honoured:
                self.warnings.append(f"{name}: asked {change.asked}, the server has {change.after}")

    async def _separate(self, workload: workloads.Workload) -> None:
        """Give driver and server cores of their own if they run on one machine that has enough."""
        lab = self._lab
        if lab.side is not None or not workloads.has_own_cores(workload):
            return
        allowed = await cores.usable(lab.target, lab.facts)
        found = cores.of_driver_and_server(lab.facts.data.get("cpu") or {}, allowed)
        if found is not None:
            driver, server = self._cpus = (cores.as_text(found[0]), cores.as_text(found[1]))
            for name, cpus in (("driver", driver), ("server", server)):
                self.knobs[f"{name}.cpus"] = {"before": cores.as_text(allowed), "after": cpus}

    @contextlib.asynccontextmanager
    async def _server(self, volume: Volume) -> AsyncIterator[ServerEndpoint]:
        lab = self._lab
        assert lab.dataset is not None  # the runner builds one for every workload that needs a server
        datadir = f"{volume.path}/data"
        self._step("restore", "restoring the data")
        await restore_dataset(lab.target, lab.dataset, datadir, owner=lab.owner)
        await drop_cached(lab.target, datadir)
        self._step("server", "starting the server")
        spec = server_spec(lab.design, self._treatment)
        server = PrivateServer(
            lab.target,
            replace(spec, cpus=self._cpus[1]),
            datadir=datadir,
            rundir=f"{lab.scratch}/run",
            owner=lab.owner,
            network_host=lab.network_host,
        )
        endpoint = await server.start()
        try:
            self._note_server(server)
            self._running = server
            self.versions[str(endpoint.vendor)] = endpoint.version
            yield endpoint
        except (WorkloadFailed, NotAsAsked) as error:
            # A load without its server does not run as asked, either.
            if await server.alive():
                raise
            raise await _death_of(server) from error
        else:
            if not await server.alive():
                raise await _death_of(server)
        finally:
            self._step("stop", "stopping the server")
            await server.save_error_log(self._draft.raw / "server-error.log")
            # The data is discarded with the volume: flushing a large dirty buffer pool would only take time.
            await server.stop(discard=True)

    @contextlib.asynccontextmanager
    async def _sampled(self, aside: str, endpoint: ServerEndpoint | None) -> AsyncIterator[None]:
        """Sample the host during the workload; the samples are fetched after it has ended."""
        lab = self._lab
        output = f"{aside}/{SAMPLES_FILE}"
        await lab.target.run(["mkdir", "-p", "--", aside])
        cpus = lab.side.cpus if lab.side else ""
        process = await lab.agent.start_sampler(
            output, owner=lab.owner, interval_s=1.0, endpoint=endpoint, cpus=cpus
        )
        try:
            yield
        finally:
            try:
                await process.signal("TERM")
                exit_code = await process.wait(timeout_s=SAMPLER_END_S)
                if exit_code != 0:
                    self.warnings.append(f"the sampler ended with {exit_code}: {await process.error_text()}")
                await lab.target.get(output, self._draft.raw / SAMPLES_FILE)
                await lab.target.run(["rm", "-f", output])
                self.warnings.extend(await _keep_kernel_log(lab.target, self._draft.raw))
            except (TimeoutError, FileNotFoundError) as error:
                # The measurement is valid without them; the analysis reports that the host's state is unknown.
                self.warnings.append(f"the host's samples are lost: {error}")


async def _death_of(server: PrivateServer) -> ServerDied:
    return ServerDied(f"the server died during the trial: {await server.last_words()}")


async def _keep_kernel_log(target: Target, raw: Path) -> list[str]:
    """What the kernel has logged, if it has had an Oops: a reboot takes its log away. Returns what went wrong."""
    said = await target.run(["sh", "-c", LOG_OF_OOPS], check=False)
    if said.exit_code != 0:
        return [f"the log of the kernel's Oops could not be read: {said.error_text.strip()}"]
    if said.stdout:
        await asyncio.to_thread((raw / KERNEL_LOG_FILE).write_bytes, said.stdout)
    return []


def _killed(raw: Path) -> str:
    """What the kernel killed while a trial was sampled that ended without a result; empty if nothing."""
    path = raw / SAMPLES_FILE
    if not path.exists():
        return ""
    samples = Samples.read(path)
    kills = sum(
        float(samples.value[end - 1] - samples.value[start])
        for (sampler, metric, _), start, end in zip(samples.names, samples.starts, samples.ends, strict=True)
        if (sampler, metric) == ("vmstat", "oom_kill")
    )
    return killed_for_memory(kills) if kills > 0 else ""


async def drop_cached(target: Target, folder: str) -> None:
    """Flush the folder's data and drop its pages from the page cache, without touching other files.

    A trial must neither start with a warm page cache nor pay for writing back data copied before it.
    """
    await target.run(["sync", "-f", folder], timeout_s=600)
    drop = [
        "find",
        folder,
        "-type",
        "f",
        "-exec",
        "dd",
        "if={}",
        "iflag=nocache",
        "count=0",
        "status=none",
        ";",
    ]
    await target.run(drop, timeout_s=600)
