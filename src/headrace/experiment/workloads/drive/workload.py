"""The stages of a trial for every workload of headrace's driver."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from headrace.base.errors import HeadraceError
from headrace.base.model import ServerEndpoint, Tool, Value
from headrace.experiment.workloads import tool
from headrace.experiment.workloads.drive.check import Finding, read_findings
from headrace.experiment.workloads.drive.clients import Seat, drive
from headrace.experiment.workloads.drive.options import DriveOptions, ServerDriveOptions
from headrace.experiment.workloads.workload import Context, Measurement
from headrace.host.agent import Agent
from headrace.host.target import Completed, Target, scratch_folder

#: The driver's seeds are below.
SEEDS = 1 << 63

OptionsT = TypeVar("OptionsT", bound=DriveOptions)
ServerOptionsT = TypeVar("ServerOptionsT", bound=ServerDriveOptions)


def seed_of(seed: int, block: int) -> int:
    """The seed of a block's trials.

    With one for all trials, each would repeat the arrivals and keys of the others: what is peculiar to them would
    be in every difference, no interval would show it, and no further block would average it out.
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{block}".encode()).digest()[:8], "big") % SEEDS


class Driven(ABC, Generic[OptionsT]):
    """A workload of the driver; the subclass defines its operations and its server."""

    kind: ClassVar[str]
    needs_server = False
    tools: tuple[Tool, ...] = ()  # the agent comes with headrace

    def __init__(self, options: OptionsT) -> None:
        self.options = options

    @property
    def clients(self) -> tuple[str, ...]:
        """The machines to drive from, as addresses; none: the target."""
        return ()

    @property
    def server_address(self) -> str:
        """Where clients on other machines reach the server; empty: the target's host."""
        return ""

    @abstractmethod
    def load(self) -> dict[str, Any]:
        """The SPEC's ``workload``, without its kind."""

    @abstractmethod
    def dataset(self) -> Mapping[str, Value] | None: ...

    async def version(self, target: Target) -> str:
        agent = await Agent.install(target)
        return await agent.version()

    async def prepare(self, context: Context) -> None:
        """Fill the tables over several connections, a few per CPU; more only wait for each other."""
        cpus = int((await context.target.run(["nproc"])).text)
        # Without seed and pacing, so that a data set has the same rows for every load.
        await self._ask(context, "load", {**await self._subject(context), "connections": 2 * cpus})

    async def run(self, context: Context) -> Measurement:
        return await drive(context, await self._spec(context), self._seats(context))

    async def cleanup(self, context: Context) -> None:
        await self._ask(context, "clean", await self._subject(context))

    async def _subject(self, _context: Context) -> dict[str, Any]:
        """The part of the SPEC that describes the workload."""
        return {"workload": {"kind": self.kind, **self.load()}}

    async def _spec(self, context: Context) -> dict[str, Any]:
        o = self.options
        return {
            **await self._subject(context),
            "connections": o.connections,
            "threads": o.threads,
            "warmup_s": context.warmup_s,
            "seconds": context.seconds,
            "pacing": o.pacing(),
            "seed": seed_of(o.seed, context.block),
            "operation_timeout_s": o.operation_timeout_s,
        }

    def _seats(self, context: Context) -> list[Seat]:
        return [Seat(context.target, self._server_arguments(context))]

    def _server_arguments(self, context: Context) -> tuple[str, ...]:
        return ()

    async def _ask(
        self, context: Context, verb: str, spec: Mapping[str, Any], seat: Seat | None = None
    ) -> Completed:
        """Run another of the driver's commands to its end, on the target or on another seat."""
        seat = seat or Seat(context.target, self._server_arguments(context))
        context = context.on(seat.target)
        async with scratch_folder(context.target, context.aside) as scratch:
            return await tool.run_to_end(
                context,
                await seat.argv(verb, spec, f"{scratch}/drive"),
                name=f"drive-{verb}",
                cwd="/",
                what=f"headrace-agent drive {verb}",
                failed=tool.agent_failed,
            )


class ServerDriven(Driven[ServerOptionsT]):
    """A workload on the trial's server, driven from its own machine or from several others."""

    needs_server = True

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(self.options.clients)

    @property
    def server_address(self) -> str:
        return self.options.server_address

    async def _spec(self, context: Context) -> dict[str, Any]:
        return {**await super()._spec(context), "retries": self.options.retries}

    async def check(self, context: Context) -> list[Finding]:
        """The limits that this load would hit on an otherwise idle server."""
        spec = await self._spec(context)
        # Check the server for all clients together, because none is connected yet.
        answer = await self._ask(context, "check", spec)
        found = read_findings(answer.stdout, context.target.name, of_server=True, of_driver=False)
        seats = self._seats(context)
        for index, seat in enumerate(seats):
            own = {**spec, "share": {"index": index, "of": len(seats)}}
            answer = await self._ask(context, "check", own, seat)
            found += read_findings(answer.stdout, seat.target.name, of_server=False, of_driver=True)
        return list(dict.fromkeys(found))

    def _seats(self, context: Context) -> list[Seat]:
        return [self._seat(context, target) for target in context.clients or (context.target,)]

    def _seat(self, context: Context, target: Target) -> Seat:
        if target is context.target:
            return Seat(target, self._server_arguments(context))
        endpoint = self._endpoint(context)
        if endpoint.network is None:
            raise HeadraceError(f"{target.name} cannot drive a server without network access")
        login = endpoint.network
        arguments = ("--mysql-host", login.host, "--mysql-port", str(login.port), "--mysql-user", login.user)
        return Seat(target, (*arguments, "--mysql-database", endpoint.database), login.password)

    def _server_arguments(self, context: Context) -> tuple[str, ...]:
        endpoint = self._endpoint(context)
        arguments = ("--mysql-socket", endpoint.socket, "--mysql-user", endpoint.user)
        return (*arguments, "--mysql-database", endpoint.database)

    def _endpoint(self, context: Context) -> ServerEndpoint:
        if context.endpoint is None:
            raise HeadraceError(f"{self.kind} needs a server, and the trial has none")
        return context.endpoint
