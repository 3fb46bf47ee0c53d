"""Controllers on a Ray cluster: each machine has an actor somewhere in the lab that runs its blocks over SSH.

Ray runs on the lab's controllers, never on a host under test: ``block.look`` refuses one. An actor hands over its
results trial by trial, as files; the process that the user started writes them into one folder. If an actor or its
node dies, the machine is unaffected: another actor continues the block and repeats only the trial that was
running.

``pip install headrace[cluster]`` brings Ray. Every node needs the same headrace and the keys that reach the hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.base import extras
from headrace.base.errors import HeadraceError, NotReady, PlanError
from headrace.experiment import block as blocks
from headrace.experiment import plan as plans
from headrace.experiment.block import Seen, Task, design_of
from headrace.experiment.pool import ControllerLost
from headrace.experiment.runner import Event, Listener, TrialEnded
from headrace.experiment.store import ExperimentFolder
from headrace.host.target import to_the_end

#: How long a call for news blocks if there is none.
NEWS_S = 5.0

#: How long connecting to a cluster may take.
PROBE_S = 10.0

#: Tries to get in as a client. The cluster starts a process for each client by a fork among threads of gRPC, which
#: it sometimes does not survive (ray-project/ray#63202).
CLIENT_TRIES = 4
CLIENT_LOST = "Starting Ray client server failed"

#: CPUs that an actor reserves: a controller mostly waits for the network.
CPUS = 0.1

#: What happened, with the files of a trial that ended.
News = tuple[Event, dict[str, bytes]]


class Controller:
    """The actor: the controller of one machine.

    It is polled for news, which works with every kind of connection to a cluster.
    """

    def __init__(self) -> None:
        self._news: asyncio.Queue[News | None] = asyncio.Queue()
        self._work: asyncio.Task[None] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-"))

    async def look(self, plan: plans.Plan, address: str) -> Seen | HeadraceError:
        try:
            return await blocks.look(plan, address, apart=True)
        except HeadraceError as error:
            return error

    async def start(self, task: Task) -> None:
        """Start a block; ``news`` returns its events."""
        await self.stop()
        self._news = asyncio.Queue()
        self._work = asyncio.ensure_future(self._run(task, self._news))

    async def _run(self, task: Task, news: asyncio.Queue[News | None]) -> None:
        work = self._folder / "block"

        def listen(event: Event) -> None:
            files: dict[str, bytes] = {}
            if isinstance(event, TrialEnded):
                files = ExperimentFolder.open(work).pack_trial(event.record.number)
            news.put_nowait((event, files))

        try:
            await blocks.run_block(task, work, listen)
        finally:
            news.put_nowait(None)

    async def news(self, wait_s: float) -> tuple[list[News], bool, HeadraceError | None]:
        """The events since the last call, empty after a timeout; whether the block has ended, and with which
        error.
        """
        try:
            items = [await asyncio.wait_for(self._news.get(), wait_s)]
        except TimeoutError:
            return [], False, None
        while items[-1] is not None and not self._news.empty():
            items.append(self._news.get_nowait())
        told = [item for item in items if item is not None]
        if items[-1] is not None:
            return told, False, None
        assert self._work is not None  # only the block itself can have ended it
        try:
            await self._work
        except HeadraceError as error:
            return told, True, error
        return told, True, None

    async def stop(self) -> None:
        """End the block, if one runs: its machine is restored when this returns."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])
            self._work = None

    async def leave(self) -> None:
        """The experiment is over."""
        await self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


class RayControllers:
    """``pool.Controllers`` on a cluster: ``ray`` for the one that this machine belongs to, or an address."""

    def __init__(self, on: str, tell: Callable[[str], None]) -> None:
        if on != "ray" and not on.startswith("ray://"):
            raise PlanError(f"--executor {on}: must be here, ray, or ray://HOST:PORT")
        self._ray = _connect(on)
        self._tell = tell
        remote = self._ray.remote(num_cpus=CPUS, max_restarts=0, scheduling_strategy="SPREAD")
        self._new_actor = remote(Controller).remote
        self._actors: dict[str, Any] = {}

    async def look(self, plan: plans.Plan, address: str) -> Seen:
        found = await self._ask(address, "look", plan, address)
        if isinstance(found, HeadraceError):
            raise found
        assert isinstance(found, Seen)
        return found

    async def run_block(self, task: Task, folder: Path, listen: Listener) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        own = ExperimentFolder.create(folder, task.plan_text, design_of(task))
        address = task.address
        try:
            await self._ask(address, "start", replace(task, apart=True))
            is_over = False
            while not is_over:
                news, is_over, error = await self._ask(address, "news", NEWS_S)
                for event, files in news:
                    if isinstance(event, TrialEnded):
                        own.unpack_trial(event.record.number, files)
                    listen(event)
                if error is not None:
                    raise error
        except ControllerLost:
            raise
        except BaseException:
            # Stopped, or writing the folder failed: restore the machine before the error is raised.
            await to_the_end(self._stop(address))
            raise

    async def _stop(self, address: str) -> None:
        with contextlib.suppress(ControllerLost):
            await self._ask(address, "stop")

    async def _ask(self, address: str, method: str, *arguments: Any) -> Any:
        """The answer of the machine's actor, which is created if there is none. Raises ControllerLost."""
        actor = self._actors.get(address)
        if actor is None:
            actor = self._actors[address] = self._new_actor()
        try:
            return await getattr(actor, method).remote(*arguments)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.RaySystemError) as error:
            del self._actors[address]
            raise ControllerLost(f"its Ray worker is gone ({type(error).__name__})", place=address) from None

    async def close(self) -> None:
        for address in list(self._actors):
            with contextlib.suppress(ControllerLost):
                await self._ask(address, "leave")
        self._ray.shutdown()


def _connect(on: str) -> Any:
    extras.require("ray")
    import ray
    import ray.exceptions

    # Ray replaces headrace's signal handlers, which restore hosts.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _probe(os.environ.get("RAY_ADDRESS", "") if on == "ray" else on)
        _init(ray, "auto" if on == "ray" else on)
    except (OSError, ImportError, RuntimeError, ValueError) as error:
        raise NotReady(
            f"no Ray cluster answers: {_said(error)}",
            place=f"--executor {on}",
            hint="`ray start --head` on one controller, `ray start --address=...` on the others",
        ) from error
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return ray


def _init(ray: Any, address: str) -> None:
    for left in reversed(range(CLIENT_TRIES)):
        try:
            ray.init(
                address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False
            )
            return
        except ConnectionAbortedError as error:
            if not left or CLIENT_LOST not in str(error):
                raise


def _said(error: Exception) -> str:
    """The first line; of a traceback on the cluster also the last, which says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]


def _probe(address: str) -> None:
    """Raises OSError if nothing listens there; Ray itself would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), PROBE_S).close()
