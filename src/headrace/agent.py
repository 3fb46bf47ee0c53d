"""The agent on a target, and its journal: how Python reads a host and changes it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import shutil
import sys
import sysconfig
import time
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from headrace import controller
from headrace.errors import (
    Busy,
    CommandFailed,
    ConnectionLost,
    DiskFull,
    HeadraceError,
    Held,
    NotReady,
    Refused,
    TargetError,
)
from headrace.model import OWNER_VARIABLE, Facts, ServerEndpoint, ServerLogin
from headrace.target import Process, Target
from headrace.target.fixture import FixtureTarget
from headrace.target.local import LocalTarget

PROGRAM = "headrace-agent"
#: The journal waits this long for another agent to finish, and an undo may wait for a file system to let go.
JOURNAL_TIMEOUT_S = 600.0
HOLD_TIMEOUT_S = 60.0
#: A host far away is free again when it has not heard of us for so long: longer than a lost connection is
#: tried for.
LEASE_S = 900
RENEW_S = 60.0
#: A holding process that was killed is gone by then.
DEATH_S = 10.0

#: e_machine of an ELF header -> what `uname -m` says there.
MACHINES = {3: "i686", 21: "ppc64le", 22: "s390x", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


class Agent:
    """The agent's binary on a target. Make one with ``install``."""

    def __init__(self, target: Target, path: str) -> None:
        self.target = target
        self.path = path

    @classmethod
    async def install(cls, target: Target) -> Agent:
        """Find the agent here, and copy it where the target is another machine and has not got this very one.

        Raises NotReady where there is none, or it is for another kind of processor.
        """
        binary = find_binary()
        if isinstance(target, LocalTarget | FixtureTarget):
            return cls(target, str(binary))
        return cls(target, await _copy_once(binary, target))

    async def facts(self, login: ServerLogin | None = None) -> Facts:
        """How the host is configured, and with ``login`` the server, too.

        The hash is equal for two readings between which nobody changed it.
        """
        argv = [self.path, "facts", *(login.argv if login else ())]
        completed = await self.target.run(argv, repeatable=True)
        data = json.loads(completed.stdout)
        stable = json.dumps(_without_what_changes_by_itself(data), sort_keys=True)
        return Facts(hashlib.sha256(stable.encode()).hexdigest()[:16], data)

    async def start_sampler(
        self,
        output: str,
        *,
        owner: str,
        interval_s: float = 1.0,
        endpoint: ServerEndpoint | None = None,
        cpus: str = "",
    ) -> Process:
        """Sample the host (and the server of ``endpoint``) into a file of the target until it gets TERM.

        Whole milliseconds; at least 10. A name that ends in ``.zst`` is compressed. ``cpus`` are those it may
        run on; empty: all.
        """
        argv = [self.path, "sample", "--interval", f"{round(interval_s * 1000)}ms", "--output", output]
        if endpoint is not None:
            if endpoint.socket:
                argv += ["--mysql-socket", endpoint.socket]
            else:
                argv += ["--mysql-host", "127.0.0.1", "--mysql-port", str(endpoint.port)]
            argv += ["--mysql-user", endpoint.user]
        argv = ["taskset", "-c", cpus, *argv] if cpus else argv
        return await self.target.spawn(argv, env={OWNER_VARIABLE: owner}, detached=True)

    async def explain(self, statement: str, database: str, login: ServerLogin) -> str:
        """The plan of a statement that only reads, as text; or why there is none. It is not executed."""
        argv = [self.path, "explain", "--text", *login.argv]
        if database:
            argv += ["--mysql-database", database]
        answer = await self.target.run(argv, stdin=statement.encode(), check=False)
        if answer.exit_code:
            return answer.error_text.strip().removeprefix(f"{PROGRAM}: ")
        plan = json.loads(answer.stdout)
        return json.dumps(plan.get("plan", plan.get("rows")), indent=2)


def find_binary() -> Path:
    """``HEADRACE_AGENT``, the one installed beside this Python, or the first on PATH. Raises NotReady."""
    named = os.environ.get("HEADRACE_AGENT")
    beside = [Path(sys.executable).parent / PROGRAM, Path(sysconfig.get_path("scripts")) / PROGRAM]
    on_path = shutil.which(PROGRAM)
    for path in [Path(named)] if named else [*beside, *([Path(on_path)] if on_path else [])]:
        if path.is_file() and os.access(path, os.X_OK):
            return path.absolute()
    if named:
        raise NotReady(
            "HEADRACE_AGENT names no program", place=named, hint="unset it, or name a headrace-agent"
        )
    raise NotReady(f"{PROGRAM} is not installed", place=str(beside[0]), hint="make setup")


#: The agents that were found whole on a target since it was made.
_verified: weakref.WeakKeyDictionary[Target, set[str]] = weakref.WeakKeyDictionary()


async def _copy_once(binary: Path, target: Target) -> str:
    """Its path on the target: there by its content's hash, and the first time we look checked to be whole."""
    status = binary.stat()
    digest, ours = await asyncio.to_thread(_identity, binary, status.st_mtime_ns, status.st_size)
    name = f"agent-{digest[:16]}"
    verified = _verified.setdefault(target, set())
    script = """
        folder=${XDG_CACHE_HOME:-$HOME/.cache}/headrace
        mkdir -p -- "$folder" && uname -m && printf '%s\\n' "$folder" || exit 1
        [ -x "$folder/$0" ] || { echo missing; exit 0; }
        [ "$1" ] && echo "$1" || sha256sum <"$folder/$0"
    """
    known = digest if name in verified else ""
    answer = (await target.run(["sh", "-c", script, name, known], repeatable=True)).text.splitlines()
    machine, folder, state = answer
    path = f"{folder}/{name}"
    if state.split()[0] == digest:
        verified.add(name)
        return path
    if machine != ours:
        raise NotReady(
            f"the agent at {binary} is for {ours}, the host is {machine}",
            place=target.name,
            hint=f"build it on a {machine} machine (make setup) and name it in HEADRACE_AGENT",
        )
    await target.put(binary, path, mode=0o755)
    try:
        await target.run([path, "--version"], repeatable=True)
    except CommandFailed as error:
        raise NotReady(
            f"the agent was copied but does not start: {error.message}",
            place=target.name,
            hint=f"is {folder} on a file system mounted noexec? Set XDG_CACHE_HOME there",
        ) from error
    verified.add(name)
    return path


@functools.lru_cache(maxsize=4)
def _identity(binary: Path, _mtime_ns: int, _size_bytes: int) -> tuple[str, str]:
    """The hash of the agent here, and which processors it is for: read again when the file is another."""
    content = binary.read_bytes()
    return hashlib.sha256(content).hexdigest(), _machine_of(content)


def _machine_of(content: bytes) -> str:
    """Which processors an ELF program is for, as ``uname -m`` names them."""
    if content[:4] != b"\x7fELF":
        return "no ELF program"
    number = int.from_bytes(content[18:20], "little" if content[5] == 1 else "big")
    return MACHINES.get(number, f"ELF machine {number}")


#: What differs between two readings of a host that nobody touched: clocks, fill levels, counters, process
#: numbers; what irqbalance, md and the kernel's balancing move; and the mounts that are made and go by
#: themselves (login sessions, containers). `*` is any element of a list.
CHANGES_BY_ITSELF = frozenset(
    {
        "agent_version",
        "read_at_ns",
        "uptime_s",
        "errors",
        "memory.free_bytes",
        "memory.available_bytes",
        "memory.cached_bytes",
        "memory.swap_free_bytes",
        "memory.swaps.*.used_bytes",
        "memory.huge_pages.*.free_pages",
        "memory.huge_pages.*.reserved_pages",
        "memory.huge_pages.*.surplus_pages",
        "numa_nodes.*.memory_free_bytes",
        "file_systems.*.free_bytes",
        "file_systems.*.available_bytes",
        "md_arrays.*.array_state",
        "md_arrays.*.sync_action",
        "md_arrays.*.sync_done_bytes",
        "md_arrays.*.sync_total_bytes",
        "md_arrays.*.members.*.errors",
        "irqs.lines.*.counts",
        "irqs.lines.*.effective_affinity_list",
        "irqbalance.pid",
        # Of the memory that was free when the host booted.
        "sysctls.fs.file-max",
        "sysctls.vm.user_reserve_kbytes",
        "cgroup.groups",
        "cgroup.io.*.path",
        "servers.*.pid",
        "servers.*.threads",
        "servers.*.rss_bytes",
        "servers.*.swap_bytes",
        "servers.*.huge_pages_bytes",
        "servers.*.cgroup.groups",
        "servers.*.cgroup.io.*.path",
        "server_settings.engines",
        "server_settings.tables_without_primary_key",
        "server_settings.replication",
        "server_settings.pid",
        "server_settings.variables.timestamp",
        "server_settings.variables.insert_id",
        "server_settings.variables.last_insert_id",
        "server_settings.variables.gtid_binlog_pos",
        "server_settings.variables.gtid_binlog_state",
        "server_settings.variables.gtid_current_pos",
        "server_settings.variables.gtid_executed",
        "server_settings.variables.gtid_purged",
        "server_settings.variables.gtid_slave_pos",
    }
)


def _without_what_changes_by_itself(data: dict[str, Any]) -> dict[str, Any]:
    left_out = CHANGES_BY_ITSELF
    if (data.get("irqbalance") or {}).get("pid"):
        left_out = left_out | {"irqs.lines.*.smp_affinity_list"}
    mounts = [fs for fs in data.get("file_systems") or [] if fs.get("block_device")]
    stable: dict[str, Any] = _without({**data, "file_systems": mounts}, left_out, "")
    kernel = stable.get("kernel") or {}
    if kernel.get("command_line"):
        # Which virtual machine of ours it is, which is another one after each start.
        words = [w for w in str(kernel["command_line"]).split() if not w.startswith("headrace_id=")]
        stable["kernel"] = {**kernel, "command_line": " ".join(words)}
    return stable


def _without(value: Any, left_out: frozenset[str], place: str) -> Any:
    if isinstance(value, dict):
        children = ((key, f"{place}.{key}" if place else key, child) for key, child in value.items())
        return {key: _without(child, left_out, at) for key, at, child in children if at not in left_out}
    if isinstance(value, list):
        return [_without(child, left_out, f"{place}.*") for child in value]
    return value


@dataclass(frozen=True)
class Applied:
    """A setting of the host; ``before`` and ``after`` are what the kernel said."""

    path: str
    before: str
    after: str


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
        self._state = state or os.environ.get("HEADRACE_STATE")

    @property
    def owner(self) -> str:
        """Whose changes these are; processes of the work carry it as ``HEADRACE_OWNER``."""
        return self._owner

    def part(self, name: str) -> Journal:
        """A journal within this one, under the same lock, that is rolled back by itself."""
        return Journal(self._agent, f"{self._owner}/{name}", self._state)

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Hold the host for the whole context. Raises Held, saying who holds it.

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
        except Held:
            if not await self._end_orphan():
                raise
        deadline = time.monotonic() + DEATH_S
        while True:
            try:
                return await self._take()
            except Held:
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
        process = await target.spawn(
            await self._argv("hold", "--owner", self._owner), env={controller.VARIABLE: name}
        )
        try:
            line = await asyncio.wait_for(anext(process.lines(), ""), HOLD_TIMEOUT_S)
            if line != "held":
                try:
                    _raise_for(await process.wait(10), await process.error_text(), target.name)
                except Busy as error:
                    raise Held(error.message, place=error.place, hint=error.hint) from None
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
                    f"while the connection was lost somebody else took this host: {_owner_in(lock)}",
                    place=target.name,
                    hint="they ended and undid what ran here; run the same command again when they are done",
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
            f"the process that held this host for us is gone: {how}",
            place=self._agent.target.name,
            hint="run the same command again: it restores the host and continues",
        )

    async def record(self, entries: Sequence[Mapping[str, str]]) -> None:
        """Journal how to undo what is about to be done. Returns when it is on disk."""
        # Undoing twice does no harm.
        entry_list = [dict(entry) for entry in entries]
        await self._ask("record", "--owner", self._owner, stdin=entry_list, repeatable=True)

    async def apply(self, settings: Mapping[str, str]) -> list[Applied]:
        """Set files of /sys and /proc/sys, path -> value, in order: all of them or none.

        Raises Refused, with the host as it was, where the kernel takes another value than was written.
        """
        return await self.change([{"path": path, "value": value} for path, value in settings.items()])

    async def change(
        self,
        changes: Sequence[Mapping[str, str | None]],
        login: ServerLogin | None = None,
        *,
        confirm_within_s: float | None = None,
    ) -> list[Applied]:
        """Make changes of every kind, all of them or none; ``before`` and ``after`` as the host said, in order.

        ``{"path", "value"}`` is a file of the kernel, ``{"variable", "value"}`` one of the server at ``login``,
        ``{"file", "content"}`` a whole file, ``{"mount", "options"}`` a remount. With ``confirm_within_s`` the
        host undoes them itself unless ``confirm`` comes before. Raises Refused, with everything as it was, where
        the kernel or the server takes another value.
        """
        if not changes:
            return []
        options = ["--owner", self._owner, *(login.argv if login else ())]
        if confirm_within_s is not None:
            options += ["--confirm-within", f"{round(confirm_within_s * 1000)}ms"]
        answer = await self._ask("apply", *options, stdin=[dict(change) for change in changes])
        return [Applied(**row) for row in json.loads(answer)]

    async def confirm(self) -> None:
        """Keep our open changes: only a rollback by name undoes them from now on.

        Raises Refused where there are none (any more): they were undone, or confirmed before.
        """
        await self._ask("confirm", "--owner", self._owner)

    async def history(self) -> list[dict[str, Any]]:
        """What was kept, oldest first: owner, when, and how to undo it."""
        kept: list[dict[str, Any]] = json.loads(await self._ask("history", repeatable=True))
        return kept

    async def rollback(self, *, everyone: bool = False, kept: str | None = None) -> list[Undone]:
        """Undo what is open, newest first: ours, or that of every owner. One that fails has its ``error``.

        ``kept`` names changes that were confirmed, by their owner; ``last`` are the latest.
        """
        target = self._agent.target
        options = ["--everyone"] if everyone else ["--kept", kept] if kept else []
        argv = await self._argv("rollback", "--owner", self._owner, *options)
        completed = await target.run(argv, timeout_s=JOURNAL_TIMEOUT_S, check=False, repeatable=True)
        try:
            rows = json.loads(completed.stdout)
        except json.JSONDecodeError:
            _raise_for(completed.exit_code, completed.error_text, target.name)
        return [Undone(**row) for row in rows]

    async def entries(self) -> list[dict[str, Any]]:
        """The open entries of every owner, oldest first."""
        entries: list[dict[str, Any]] = json.loads(await self._ask("show", repeatable=True))
        return entries

    async def _ask(self, verb: str, *options: str, stdin: Any = (), repeatable: bool = False) -> bytes:
        target = self._agent.target
        argv = await self._argv(verb, *options)
        content = json.dumps(stdin).encode()
        completed = await target.run(
            argv, stdin=content, timeout_s=JOURNAL_TIMEOUT_S, check=False, repeatable=repeatable
        )
        if completed.exit_code != 0:
            _raise_for(completed.exit_code, completed.error_text, target.name)
        return completed.stdout

    async def _argv(self, verb: str, *options: str) -> list[str]:
        if self._state is None:
            self._state = await _default_state(self._agent.target)
        return [self._agent.path, "journal", verb, "--state", self._state, *options]


async def _default_state(target: Target) -> str:
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
        return "nobody knows who"


async def _let_go(held: _Hold) -> None:
    """End the holding process the way it expects; it must not outlive the context in any case."""
    controller.end(held.name)
    if held.renewal:
        held.renewal.cancel()
    with contextlib.suppress(HeadraceError):
        await held.process.close_stdin()
        done, _ = await asyncio.wait([held.ending], timeout=10)
        if not done:
            await held.process.signal("KILL")
            await asyncio.wait([held.ending], timeout=10)
    if held.ending.done() and not held.ending.cancelled():
        held.ending.exception()  # a lost connection was told, or ended with the work


def _raise_for(exit_code: int, error_text: str, place: str) -> NoReturn:
    """The agent's exit codes are those of ``headrace`` itself: docs/reference/exit-codes.md."""
    message = error_text.strip().removeprefix(f"{PROGRAM}: ") or f"{PROGRAM} ended with exit code {exit_code}"
    if exit_code == Busy.exit_code:
        raise Busy(
            message.removeprefix("busy: "), place=place, hint="wait until it ends, or stop that process"
        )
    if exit_code == DiskFull.exit_code:
        raise DiskFull(message, place=place)
    if exit_code == Refused.exit_code:
        raise Refused(message.removeprefix("refused: "), place=place)
    raise CommandFailed(message, place=place)
