"""The host's journal of changes, kept by the agent: how Python changes a host, and how that is undone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.base.errors import Busy, ConnectionLost, HeadraceError, HostBusy, TargetError
from headrace.base.model import ServerLogin
from headrace.host import controller
from headrace.host.agent.door import Agent
from headrace.host.agent.program import PROGRAM
from headrace.host.target import Process, Target
from headrace.host.target.local import LocalTarget

#: The journal waits this long for another agent to finish, and an undo may wait for a file system to let go.
JOURNAL_TIMEOUT_S = 600.0
HOLD_TIMEOUT_S = 60.0
#: A host far away is free again when it has not heard of us for so long: longer than a lost connection is
#: tried for.
LEASE_S = 900
RENEW_S = 60.0
#: The last word to the process that holds the host: nothing is left to end or undo.
FREE = b"free\n"
#: A holding process that was killed is gone by then.
DEATH_S = 10.0


@dataclass(frozen=True)
class Applied:
    """A setting of the host; ``before`` and ``after`` are what the kernel said, ``also`` is what it took along."""

    path: str
    before: str
    after: str
    also: tuple[Applied, ...] = ()

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Applied:
        also = tuple(cls.of(each) for each in row.get("also", ()))
        return cls(row["path"], row["before"], row["after"], also)


@dataclass(frozen=True)
class Undone:
    """What became of one change of the journal; with ``error`` it is still open."""

    kind: str
    what: str
    done: bool
    error: str | None


class Journal:
    """The host's journal of changes, kept by the agent: the undo is on disk before the change is made.

    ``state`` is its folder on the target. It belongs to the host, not to an experiment, so that the next
    run finds what any killed one left: ``/var/lib/headrace`` for root, ``~/.local/state/headrace`` otherwise.
    """

    def __init__(self, agent: Agent, owner: str, state: str | None = None) -> None:
        self._agent = agent
        self._owner = owner
        self._state = state or None

    @property
    def owner(self) -> str:
        """Whose changes these are; processes of the work carry it as ``HEADRACE_OWNER``."""
        return self._owner

    def part(self, name: str) -> Journal:
        """A journal within this one, under the same lock, that is rolled back by itself."""
        return Journal(self._agent, f"{self._owner}/{name}", self._state)

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Hold the host for the whole context. Raises HostBusy, saying who holds it.

        When the holding process dies under us, what runs in the context is cancelled and TargetError raised:
        another controller might change the host now. When only the way to the host was lost, the host is taken
        again, unless somebody else had it meanwhile.
        """
        held = await self._take_or_inherit()
        body = asyncio.current_task()
        assert body is not None
        cancelled_before = body.cancelling()
        lost = False

        def stop_body(_: object) -> None:
            nonlocal lost
            lost = True
            body.cancel()

        async def take_back() -> None:
            nonlocal held
            held.ending.remove_done_callback(stop_body)
            try:
                held = await self._take_back(held)
            finally:
                held.ending.add_done_callback(stop_body)

        held.ending.add_done_callback(stop_body)
        forget = self._agent.target.on_return(take_back)
        try:
            yield
        except asyncio.CancelledError:
            # Ours becomes the TargetError below; somebody else's goes on.
            if not lost or body.cancelling() > cancelled_before + 1:
                raise
        finally:
            forget()
            held.ending.remove_done_callback(stop_body)
            if lost:
                body.uncancel()
            await _let_go(held)
        if lost:
            raise self._lost(held.ending)

    async def _take_or_inherit(self) -> _Hold:
        """Take the host. What holds it for a controller of this machine that is dead does not hear of its death
        where the way there was lost before: it is ended first."""
        try:
            return await self._take()
        except HostBusy:
            if not await self._end_orphan():
                raise
        deadline = time.monotonic() + DEATH_S
        while True:
            try:
                return await self._take()
            except HostBusy:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    async def _end_orphan(self) -> bool:
        target = self._agent.target
        if isinstance(target, LocalTarget):
            return False
        try:
            pid = int(json.loads(await target.read(f"{self._state}/lock"))["pid"])
            environment = await target.read(f"/proc/{pid}/environ")
        except (HeadraceError, OSError, ValueError, KeyError, TypeError):
            return False
        prefix = f"{controller.VARIABLE}=".encode()
        names = [word.removeprefix(prefix) for word in environment.split(b"\0") if word.startswith(prefix)]
        if not names or not controller.is_dead(names[0].decode("utf-8", "replace")):
            return False
        await target.run(["kill", "-KILL", str(pid)], check=False)
        return True

    async def _take(self) -> _Hold:
        target = self._agent.target
        name = controller.begin()
        words = await self._words("hold", "--owner", self._owner)
        process = await self._agent.spawn(*words, env={controller.VARIABLE: name})
        try:
            line = await asyncio.wait_for(anext(process.lines(), ""), HOLD_TIMEOUT_S)
            if line != "held":
                try:
                    await self._agent.ended(process, await process.wait(10))
                except Busy as error:
                    raise HostBusy(error.message, place=error.place, hint=error.hint) from None
                raise TargetError(f"{PROGRAM} said {line[:200]!r} instead of `held`", place=target.name)
            if isinstance(target, LocalTarget):
                return _Hold(process, asyncio.ensure_future(process.wait()), name)
            lock = await target.read(f"{self._state}/lock")
            renewal = asyncio.create_task(_renew(process))
            return _Hold(process, asyncio.ensure_future(process.wait()), name, lock, renewal)
        except BaseException:
            controller.end(name)
            await process.signal("KILL")
            raise

    async def _take_back(self, held: _Hold) -> _Hold:
        """Take the host again over a new connection. The old process may live on: it cannot know better."""
        controller.end(held.name)
        if held.renewal:
            held.renewal.cancel()
        await held.process.signal("KILL")
        target = self._agent.target
        deadline = time.monotonic() + DEATH_S
        while True:
            # Whoever takes the host says so in this file.
            lock = await target.read(f"{self._state}/lock")
            if lock != held.lock:
                raise Busy(
                    f"while the connection was lost, another process took over this host: {_owner_in(lock)}",
                    place=target.name,
                    hint="it stopped and undid what ran here; run the same command again when it has "
                    "finished",
                )
            try:
                return await self._take()
            except Busy:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    def _lost(self, ending: asyncio.Future[int]) -> TargetError:
        error = ending.exception()
        how = str(error) if error else f"it ended with exit code {ending.result()}"
        return TargetError(
            f"the process that held this host for headrace is gone: {how}",
            place=self._agent.target.name,
            hint="run the same command again: it restores the host and continues",
        )

    async def record(self, entries: Sequence[Mapping[str, str]]) -> None:
        """Journal how to undo what is about to be done. Returns when it is on disk."""
        # Undoing twice does no harm.
        entry_list = [dict(entry) for entry in entries]
        await self._agent.text(
            *await self._words("record", "--owner", self._owner),
            stdin=json.dumps(entry_list).encode(),
            timeout_s=JOURNAL_TIMEOUT_S,
            repeatable=True,
        )

    async def apply(self, settings: Mapping[str, str]) -> list[Applied]:
        """Set files of /sys and /proc/sys, path -> value, in order: all of them or none.

        Raises Refused, with the host as it was, where the kernel takes another value than was written.
        """
        return await self.change([{"path": path, "value": value} for path, value in settings.items()])

    async def change(
        self,
        changes: Sequence[Mapping[str, Any]],
        login: ServerLogin | None = None,
        *,
        confirm_within_s: float | None = None,
        keep: bool = False,
    ) -> list[Applied]:
        """Make changes of every kind, all of them or none; ``before`` and ``after`` as the host said, in order.

        ``{"path", "value"}`` is a file of the kernel, ``{"variable", "value"}`` one of the server at ``login``,
        ``{"file", "content"}`` a whole file, ``{"mount", "options"}`` a remount. ``{"restart", "commands"}`` comes
        first: the caller restarts the server with these files, so they are written before ``confirm``.

        With ``confirm_within_s`` the host undoes them itself unless ``confirm`` comes before; with ``keep`` the
        same call confirms them, and the host undoes what it had made if it is killed. Raises Refused, with
        everything as it was, where the kernel or the server takes another value.
        """
        if not changes:
            return []
        options = ["--owner", self._owner, *(login.argv if login else ())]
        if confirm_within_s is not None:
            options += ["--confirm-within", f"{round(confirm_within_s * 1000)}ms"]
        options += ["--keep"] if keep else []
        answer = await self._ask("apply", *options, stdin=[dict(change) for change in changes])
        return [Applied.of(row) for row in answer]

    async def confirm(self) -> None:
        """Keep our open changes: only a rollback by name undoes them from now on.

        Raises Refused where there are none (any more): they were undone, or confirmed before.
        """
        words = await self._words("confirm", "--owner", self._owner)
        await self._agent.text(*words, stdin=b"[]", timeout_s=JOURNAL_TIMEOUT_S)

    async def extend(self, confirm_within_s: float) -> None:
        """Extend the deadline of our changes that await ``confirm`` to this long from now; never shorten it.

        Raises Refused where there are none (any more).
        """
        words = await self._words("extend", "--owner", self._owner)
        within = f"{round(confirm_within_s * 1000)}ms"
        await self._agent.text(*words, "--confirm-within", within, stdin=b"[]", repeatable=True)

    async def history(self) -> list[dict[str, Any]]:
        """What was kept, oldest first: owner, when, and how to undo it."""
        kept: list[dict[str, Any]] = await self._ask("history", repeatable=True)
        return kept

    async def rollback(
        self,
        *,
        everyone: bool = False,
        kept: str | None = None,
        accept_foreign: bool = False,
        restart_within_s: float | None = None,
    ) -> list[Undone]:
        """Undo what is open, newest first: ours, or that of every owner. One that fails has its ``error``.

        ``kept`` names changes that were confirmed, by their owner; ``last`` are the latest. A value that another
        program has set since is left, and its entry stays open unless ``accept_foreign``. With
        ``restart_within_s`` the caller restarts the server: that entry stays open, with this time as its deadline.
        """
        options = ["--everyone"] if everyone else ["--kept", kept] if kept else []
        options += ["--accept-foreign"] if accept_foreign else []
        if restart_within_s is not None:
            options += ["--restart-within", f"{round(restart_within_s * 1000)}ms"]
        rows = await self._ask(
            "rollback", "--owner", self._owner, *options, repeatable=True, even_if_it_failed=True
        )
        return [Undone(**row) for row in rows]

    async def undo_overdue(self) -> list[Undone]:
        """Undo what no confirmation can keep any more, of every owner: a killed call's, or past its deadline.

        The host does so by itself; this is for who must know now. One that fails has its ``error``.
        """
        rows = await self._ask(
            "rollback", "--owner", self._owner, "--overdue", repeatable=True, even_if_it_failed=True
        )
        return [Undone(**row) for row in rows]

    async def entries(self) -> list[dict[str, Any]]:
        """The open entries of every owner, oldest first."""
        entries: list[dict[str, Any]] = await self._ask("show", repeatable=True)
        return entries

    async def holder(self) -> str | None:
        """The owner of the work that holds the host now; None if it is free. Takes no lock."""
        await self._words("show")
        target = self._agent.target
        try:
            lock = json.loads(await target.read(f"{self._state}/lock"))
            owner = str(lock["owner"])
            argv = (await target.read(f"/proc/{int(lock['pid'])}/cmdline")).split(b"\0")
        except (HeadraceError, OSError, ValueError, KeyError, TypeError):
            return None
        # The file keeps the last holder, and its number may belong to another process by now.
        return owner if argv[1:3] == [b"journal", b"hold"] and owner.encode() in argv else None

    async def _ask(
        self,
        verb: str,
        *options: str,
        stdin: Any = (),
        repeatable: bool = False,
        even_if_it_failed: bool = False,
    ) -> Any:
        return await self._agent.answer(
            *await self._words(verb, *options),
            stdin=json.dumps(stdin).encode(),
            timeout_s=JOURNAL_TIMEOUT_S,
            repeatable=repeatable,
            even_if_it_failed=even_if_it_failed,
        )

    async def _words(self, verb: str, *options: str) -> list[str]:
        if self._state is None:
            self._state = await state_folder(self._agent.target)
        return ["journal", verb, "--state", self._state, *options]


def belongs_to(owner: str, holder: str) -> bool:
    """Whether changes of ``owner`` are the holder's own or those of a part of its work."""
    return owner == holder or owner.startswith(f"{holder}/")


def is_of_another_server(entry: Mapping[str, Any], identities: Collection[str]) -> bool:
    """Whether an entry is about a server, and surely not about the one with these names: see
    ``HostFacts.server_identities``. What is about the host concerns every server on it.
    """
    if entry.get("kind") not in ("variable", "restart"):
        return False
    server = (entry.get("start") or {}).get("server")
    return bool(server and identities) and server not in identities


async def state_folder(target: Target) -> str:
    """Where the journal of a host is kept: where ``HEADRACE_STATE`` of this process says, if it says so."""
    if own := os.environ.get("HEADRACE_STATE"):
        return own
    if target.is_root:
        return "/var/lib/headrace"
    script = 'printf %s "${XDG_STATE_HOME:-$HOME/.local/state}/headrace"'
    return (await target.run(["sh", "-c", script])).text


@dataclass(frozen=True)
class _Hold:
    """The process that holds a host for us; of one far away also what its lock says, and who renews it."""

    process: Process
    ending: asyncio.Future[int]
    name: str
    lock: bytes = b""
    renewal: asyncio.Task[None] | None = None


async def _renew(process: Process) -> None:
    """Be heard on the host, until the way to it is lost."""
    with contextlib.suppress(ConnectionLost):
        while True:
            await process.write(f"{LEASE_S}\n".encode())
            await asyncio.sleep(RENEW_S)


def _owner_in(lock: bytes) -> str:
    try:
        return str(json.loads(lock)["owner"])
    except (ValueError, KeyError, TypeError):
        return "an unknown process"


async def _let_go(held: _Hold) -> None:
    """End the holding process the way it expects; it must not outlive the context in any case."""
    controller.end(held.name)
    if held.renewal:
        held.renewal.cancel()
    with contextlib.suppress(HeadraceError):
        # Without this word it would end our processes and undo our changes: those of a controller that was killed.
        await held.process.write(FREE)
        await held.process.close_stdin()
        done, _ = await asyncio.wait([held.ending], timeout=10)
        if not done:
            await held.process.signal("KILL")
            await asyncio.wait([held.ending], timeout=10)
    if held.ending.done() and not held.ending.cancelled():
        held.ending.exception()  # a lost connection was told, or ended with the work
