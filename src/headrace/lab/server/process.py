"""A private server: started from a treatment, verified, watched, stopped. It never meets another server."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import re
import secrets
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.base.errors import (
    Busy,
    CommandFailed,
    NotReady,
    PlanError,
    Refused,
    ServerStartFailed,
    TargetError,
)
from headrace.base.model import OWNER_VARIABLE, NetworkLogin, ServerEndpoint, Vendor
from headrace.base.whole import whole_file
from headrace.host.target import Process, Target, to_the_end
from headrace.lab.server.allocator import (
    AllocatorLibrary,
    find_allocator,
    linked_allocators,
    mapped_allocators,
)
from headrace.lab.server.error_log import excerpt, explanation
from headrace.lab.server.program import Program, locate
from headrace.lab.server.spec import Change, ServerSpec, render_options

#: The database that workloads use. ``build_dataset`` makes it.
DATABASE = "headrace"

#: The account of clients on other machines. It has the workloads' database, and nothing else.
CLIENT_ACCOUNT = "headrace"

#: A file of this name stands in every data folder that headrace made; it never replaces another's.
MARK = ".headrace"

START_LIMIT_S = 300.0
STOP_LIMIT_S = 300.0
POLL_S = 0.02
ANSWER_LIMIT_S = 10.0
EXIT_NOTICE_S = 5.0
# sun_path of unix(7) holds 108 bytes with the terminating zero.
MAX_SOCKET_BYTES = 107
LOG_BYTES = 64 * 1024
#: More of an error log is not kept with a trial.
MOST_LOG_BYTES = 64 << 20
#: Its own account opens what it writes to: root would follow a link that this account put in its folder.
_INTO_ITS_LOGS = 'exec >"$0/stdout.log" 2>"$0/stderr.log"; exec "$@"'
#: Those of its logs that are no files: it would wait for good for whoever reads from a pipe.
_NO_FILES = 'for file; do [ ! -e "$file" ] || [ -f "$file" ] || echo "${file##*/}"; done'
LOOK_AT_LOGS_S = 2.0
#: The ends of log files. Their account may have put a pipe in a file's place, which nobody writes to.
_LAST_OF = 'for file; do [ ! -f "$file" ] || tail -c "$0" "$file"; done 2>/dev/null'
RUN_FILES = ("my.cnf", "error.log", "stdout.log", "stderr.log", "sock", "sock.lock", "pid", "tmp")


class PrivateServer:
    """One server with its own data, option file, socket and log. All paths are the target's.

    ``rundir`` is emptied by every start and holds ``my.cnf``, ``error.log``, ``sock`` and the server's
    temporary files; only the server's account may enter it. The caller journals ``process`` for the owner
    before a start. ``settings`` maps each variable that was set, and ``allocator``, to its Change.

    With ``network_host``, the name or address at which other machines reach this one, the server listens there on
    the spec's port, and each start makes an account for them with a new password.
    """

    def __init__(
        self, target: Target, spec: ServerSpec, datadir: str, rundir: str, owner: str, network_host: str = ""
    ) -> None:
        self.settings: dict[str, Change] = {}
        self._target = target
        self._spec = spec
        self._datadir = datadir
        self._rundir = rundir
        self._owner = owner
        self._network_host = network_host
        self._socket = f"{rundir}/sock"
        self._process: Process | None = None
        self._exit: asyncio.Task[int] | None = None
        self._refusal = ""
        if len(self._socket.encode()) > MAX_SOCKET_BYTES:
            raise PlanError(
                f"the server's socket would have a path of {len(self._socket.encode())} bytes; "
                f"the kernel allows {MAX_SOCKET_BYTES}",
                place=self._socket,
                hint="give a shorter [target] scratch",
            )
        if network_host and not spec.port:
            raise PlanError(
                "server.port = 0: clients on other machines need a port",
                hint="give a [server] port that they can reach",
            )

    @property
    def error_log(self) -> str:
        """The path of the error log."""
        return f"{self._rundir}/error.log"

    @property
    def pid(self) -> int:
        """The server's process id; raises TargetError when it was not started."""
        if self._process is None:
            raise TargetError("the server is not started", place=self._rundir)
        return self._process.pid

    async def initialise(self) -> None:
        """Make a new data folder in ``datadir``, which must not exist or be empty. root has no password."""
        program = await locate(self._target, self._spec)
        await self._make_rundir(program)
        await self._own_folder(program, self._datadir, "the data directory", may_hold=())
        options = {
            **program.own_options,
            "tmpdir": f"{self._rundir}/tmp",
            "innodb_buffer_pool_dump_at_shutdown": "OFF",  # the first real start begins with an empty cache
            **self._spec.layout,
        }
        argv = program.family.install_argv(program.server, program.installer, self._datadir, options)
        made = await self._target.run(
            [*program.prefix, *argv], env={OWNER_VARIABLE: self._owner}, timeout_s=600, check=False
        )
        if made.exit_code != 0:
            lines = excerpt(made.text + made.error_text)
            raise ServerStartFailed(
                "\n".join(["no data directory could be created:", *lines]), place=self._datadir
            )
        await self._target.write(
            f"{self._datadir}/{MARK}", b"Made by headrace, which may replace this folder.\n"
        )

    async def start(self, *, timeout_s: float = START_LIMIT_S) -> ServerEndpoint:
        """Start, wait until a client's query is answered, verify allocator and variables.

        Raises ServerStartFailed with the last lines of the error log; Busy for a taken port; NotReady.
        """
        if await self.alive():
            raise Busy("the server is running already", place=self._rundir)
        program = await locate(self._target, self._spec)
        library = await find_allocator(self._target, self._spec.allocator)
        await self._make_rundir(program)
        await self._refuse_taken_port()
        content = render_options({**self._defaulted(program), **self._spec.options}, self._forced())
        await self._target.write(f"{self._rundir}/my.cnf", content.encode())
        # The allocator is given to the server alone, not to setpriv; one that we inherited is taken away.
        preload = [f"LD_PRELOAD={library.path}"] if library.path else ["-u", "LD_PRELOAD"]
        pinned = ["taskset", "-c", self._spec.cpus] if self._spec.cpus else []
        self._process = await self._target.spawn(
            [
                *pinned,
                *program.prefix,
                *("sh", "-c", _INTO_ITS_LOGS, self._rundir),
                *("env", *preload, program.server, f"--defaults-file={self._rundir}/my.cnf"),
            ],
            env={OWNER_VARIABLE: self._owner},
            detached=True,
        )
        self._exit = asyncio.create_task(self._process.wait())
        try:
            await self._wait_ready(program, timeout_s)
            await self._verify_allocator(program, library)
            await self._read_back(program)
            network = await self._admit_clients() if self._network_host else None
        except BaseException:
            await to_the_end(self._end("KILL", 10.0))
            raise
        return ServerEndpoint(
            vendor=self._spec.vendor,
            version=program.version,
            socket=self._socket,
            port=self._spec.port,
            user="root",
            database=DATABASE,
            network=network,
        )

    async def stop(self, *, timeout_s: float = STOP_LIMIT_S, discard: bool = False) -> int | None:
        """Shut down and return the exit code: 0 when clean, -9 when it had to be killed.

        None when it was never started. With ``discard`` the data will be thrown away: it is killed at once,
        which saves writing back a large buffer pool. Stopping a server that died returns how it died.
        """
        if self._exit is None:
            return None
        if not discard and await self._end("TERM", timeout_s):
            return self._exit.result()
        if not await self._end("KILL", 30.0):
            raise TargetError(
                f"process {self.pid} does not end, even after SIGKILL: it hangs in the kernel",
                place=self._rundir,
                hint="look at its stack in /proc/PID/stack and at dmesg",
            )
        return self._exit.result()

    async def restart(self) -> ServerEndpoint:
        """Stop cleanly and start again with the same options."""
        await self.stop()
        return await self.start()

    async def alive(self) -> bool:
        """Whether the server runs, answering or not."""
        if self._exit is None or self._exit.done():
            return False
        program = await locate(self._target, self._spec)
        with contextlib.suppress(CommandFailed):
            await self._target.run(self._client(program), stdin=b"SELECT 1", timeout_s=ANSWER_LIMIT_S)
            return not self._exit.done()
        # Connections of a dying process break well before the kernel has freed its memory and reports its exit.
        done, _ = await asyncio.wait({self._exit}, timeout=EXIT_NOTICE_S)
        return not done

    async def last_words(self) -> str:
        """How the server ended, and the lines of its log that say why."""
        return "\n".join([self._fate(), *await self._log_lines()])

    async def variables(self, names: Iterable[str]) -> dict[str, str]:
        """Global variables as the server has them now; names it does not know are left out."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        if wrong := [n for n in wanted if not re.fullmatch(r"[A-Za-z0-9_]+", n)]:
            raise PlanError(f"not a variable name: {wrong[0]!r}")
        listed = ", ".join(f"'{name}'" for name in wanted)
        rows = await self.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")
        return {row[0]: row[1] for row in rows}

    async def set_variables(self, values: Mapping[str, str]) -> dict[str, Change]:
        """Give the running server these global values. Raises Refused for one that it does not take."""
        before = await self.variables(values)
        for name, text in values.items():
            if name not in before:
                raise Refused("this server has no such variable", place=name)
            literal = text if re.fullmatch(r"-?\d+(\.\d+)?", text) else _quoted(text)
            try:
                await self.query(f"SET GLOBAL {name} = {literal}")
            except CommandFailed as error:
                raise Refused(f"the running server refuses {text}: {error.message}", place=name) from error
        after = await self.variables(values)
        found = {name: Change(before[name], text, after.get(name)) for name, text in values.items()}
        for name, change in found.items():
            if not change.honoured:
                raise Refused(f"asked {change.asked}, the running server has {change.after}", place=name)
        return found

    async def query(self, statement: str, *, timeout_s: float | None = 60.0) -> list[list[str]]:
        """Run statements as root; the rows as text. Raises CommandFailed with the server's own words."""
        program = await locate(self._target, self._spec)
        answer = await self._target.run(self._client(program), stdin=statement.encode(), timeout_s=timeout_s)
        lines = answer.text.split("\n")[:-1]
        return [[_unescape(cell) for cell in line.split("\t")] for line in lines]

    def _client(self, program: Program) -> list[str]:
        return [
            program.client,
            "--no-defaults",
            f"--socket={self._socket}",
            "--user=root",
            "--skip-password",
            "--default-character-set=utf8mb4",
            "--batch",
            "--skip-column-names",
        ]

    def _defaulted(self, program: Program) -> dict[str, str]:
        """Options that a treatment may set otherwise. They keep the server's files out of shared folders."""
        scratch = f"{self._rundir}/tmp"
        return {"tmpdir": scratch, "secure_file_priv": scratch, **program.own_options}

    def _forced(self) -> dict[str, str]:
        own = {
            "datadir": self._datadir,
            "socket": self._socket,
            "pid_file": f"{self._rundir}/pid",
            "log_error": self.error_log,
        }
        if not self._spec.port:
            return {**own, "skip_networking": "ON"}
        own["port"] = str(self._spec.port)
        if not self._network_host:
            return {**own, "bind_address": "127.0.0.1"}
        # Without names nobody who comes over TCP is root@localhost, which has no password.
        return {**own, "bind_address": _bind_address(self._network_host), "skip_name_resolve": "ON"}

    async def _admit_clients(self) -> NetworkLogin:
        """The one account that the network lets in; the server's logs get to see no password."""
        password = secrets.token_urlsafe(24)
        if self._spec.vendor is Vendor.MARIADB:
            # As PASSWORD() of mysql_native_password has it: MariaDB would log the password itself.
            stored = hashlib.sha1(hashlib.sha1(password.encode()).digest()).hexdigest().upper()
            identified = f"VIA mysql_native_password USING '*{stored}'"
        else:
            identified = f"BY '{password}'"  # MySQL writes <secret> to its logs
        # An installation comes with root@127.0.0.1 and the like, without a password. Only a socket is localhost.
        others = await self.query(
            "SELECT QUOTE(user), QUOTE(host) FROM mysql.user WHERE host NOT IN ('localhost', '')"
        )
        account = f"'{CLIENT_ACCOUNT}'@'%'"
        statements = [
            "SET sql_log_bin = 0",
            *(f"DROP USER {user}@{host}" for user, host in others),
            f"CREATE USER {account} IDENTIFIED {identified}",
            f"GRANT ALL ON {DATABASE}.* TO {account}",
        ]
        try:
            await self.query("; ".join(statements))
        except CommandFailed as error:
            # The client quotes the statement that failed, and with it the password; its last line does not.
            reason = error.message.splitlines()[-1].replace(password, "...")
            raise ServerStartFailed(
                f"cannot create an account for clients on other machines: {reason}"
            ) from None
        return NetworkLogin(self._network_host, self._spec.port, CLIENT_ACCOUNT, password)

    async def _make_rundir(self, program: Program) -> None:
        await self._own_folder(program, self._rundir, "the server's run directory", may_hold=RUN_FILES)
        # A leftover of a killed runner would be taken for news of this start.
        script = (
            'cd "$0" && if [ -s pid ] && kill -0 "$(cat pid)" 2>/dev/null '
            '&& tr "\\0" "\\n" < "/proc/$(cat pid)/cmdline" | grep -qxF -- "--defaults-file=$0/my.cnf"; '
            'then cat pid; exit 9; fi; rm -rf -- "$@" .my.cnf.* .headrace.??*'
        )
        # As the server's account, like all that is done in its folder: it may have planted a link or a pipe there.
        cleared = await self._target.run(
            [*program.prefix, "sh", "-c", script, self._rundir, *RUN_FILES], check=False
        )
        if cleared.exit_code == 9:
            raise Busy(
                f"a private server runs here already: process {cleared.text.strip()}",
                place=self._rundir,
                hint="`headrace run` of its experiment ends it first",
            )
        if cleared.exit_code != 0:
            raise NotReady(cleared.error_text.strip(), place=f"{self._target.name}:{self._rundir}")
        await self._target.run([*program.prefix, "mkdir", "-m", "0700", f"{self._rundir}/tmp"])

    async def _own_folder(self, program: Program, path: str, what: str, *, may_hold: tuple[str, ...]) -> None:
        """Make a folder of the server's account that nobody else may enter.

        One that holds anything else than ``may_hold`` is somebody's: it is refused.
        """
        content = await self._target.run(["ls", "-A", path], check=False)
        # A killed writer of my.cnf leaves its draft behind.
        drafts = (".my.cnf.", ".headrace.") if may_hold else ()
        names = content.text.splitlines()
        if strange := [n for n in names if n not in may_hold and not n.startswith(drafts)]:
            raise Refused(
                f"{what} contains something that headrace did not put there: {strange[0]}", place=path
            )
        owner = f'&& chown {program.account} "$0"' if program.account else ""
        made = await self._target.run(
            ["sh", "-c", f'mkdir -p "$0" {owner} && chmod 0700 "$0"', path], check=False
        )
        if made.exit_code == 0:
            made = await self._target.run([*program.prefix, "test", "-w", path], check=False)
            if made.exit_code == 0:
                return
            reason = "the server's account cannot reach it"
        else:
            reason = made.error_text.strip()
        raise NotReady(
            f"{what} is not usable: {reason}",
            place=f"{self._target.name}:{path}",
            hint="give a [target] scratch whose parent directories every user may enter",
        )

    async def _refuse_taken_port(self) -> None:
        port = self._spec.port
        if not port:
            return
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            try:
                sockets = (await self._target.read(table)).decode()
            except FileNotFoundError:  # a kernel without IPv6
                continue
            # Local address, remote address, state; 0A is LISTEN (net/tcp_states.h).
            if re.search(rf"^ *\d+: [0-9A-F]+:{port:04X} [0-9A-F]+:0000 0A ", sockets, re.MULTILINE):
                raise Busy(
                    f"port {port} is in use{await self._port_holder(port)}",
                    place=self._target.name,
                    hint="give another [server] port, or 0 for a server that is reached by its socket only",
                )

    async def _port_holder(self, port: int) -> str:
        listing = await self._target.run(["ss", "-Hltnp", f"sport = :{port}"], check=False)
        holder = re.search(r'users:\(\("([^"]+)",pid=(\d+)', listing.text)
        return f" by {holder[1]} (process {holder[2]})" if holder else ""

    async def _wait_ready(self, program: Program, timeout_s: float) -> None:
        assert self._exit is not None
        answer = asyncio.create_task(self._answered(program))
        blocked = asyncio.create_task(self._blocked(program))
        try:
            await asyncio.wait(
                {answer, blocked, self._exit}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if answer.done() and not self._exit.done():
                answer.result()
                return
            names = blocked.result() if blocked.done() else ""
        finally:
            answer.cancel()
            blocked.cancel()
        lines = await self._log_lines()
        if names:
            fate = f"instead of its log {names} there is a pipe, a device or a directory, which it waits for"
        elif self._exit.done():
            fate = explanation(lines) or self._fate()
        else:
            fate = f"no query was answered within {timeout_s:g} s. {self._refusal}".rstrip()
        raise ServerStartFailed(
            "\n".join([f"{self._spec.vendor.value} {program.version} did not start: {fate}", *lines]),
            place=self.error_log,
            hint="the whole log is kept there until the next start",
        )

    async def _blocked(self, program: Program) -> str:
        """Return the names of its logs that are a pipe or another thing that is no file, once there is one."""
        logs = [f"{self._rundir}/{name}" for name in ("stdout.log", "stderr.log", "error.log")]
        while True:
            await asyncio.sleep(LOOK_AT_LOGS_S)
            looked = await self._target.run(
                [*program.prefix, "sh", "-c", _NO_FILES, "sh", *logs], check=False, timeout_s=ANSWER_LIMIT_S
            )
            if names := looked.text.split():
                return " and ".join(names)

    async def _answered(self, program: Program) -> None:
        """Return when a query was answered. A refused one is tried again: the server may be half-way up."""
        while True:
            if await self._target.exists(self._socket):
                answer = await self._target.run(
                    self._client(program), stdin=b"SELECT 1", timeout_s=None, check=False
                )
                if answer.exit_code == 0:
                    return
                self._refusal = answer.error_text.strip()
            await asyncio.sleep(POLL_S)

    async def _verify_allocator(self, program: Program, library: AllocatorLibrary) -> None:
        maps = (await self._target.read(f"/proc/{self.pid}/maps")).decode("utf-8", "replace")
        mapped = mapped_allocators(maps)
        # A server linked with an allocator has it mapped anyway; what is preloaded stands before it.
        linked = await linked_allocators(self._target, [*program.prefix, program.server])
        asked = {library.kind} - {"system"}
        if set(mapped) - linked != asked - linked or not asked <= set(mapped):
            found = ", ".join(mapped.values()) or "only the C library's own"
            raise ServerStartFailed(
                f"asked for the allocator {library.kind}, but the process mapped {found}",
                place=f"/proc/{self.pid}/maps",
            )
        self.settings = {"allocator": Change("system", str(library), str(library))}

    async def _read_back(self, program: Program) -> None:
        asked = self._spec.options
        after = await self.variables(asked)
        for name, text in asked.items():
            self.settings[name] = Change(program.defaults.get(name), text, after.get(name))

    async def _end(self, signal_name: str, timeout_s: float) -> bool:
        """Whether the process ended within the limit."""
        assert self._process is not None
        assert self._exit is not None
        await self._process.signal(signal_name)
        done, _ = await asyncio.wait({self._exit}, timeout=timeout_s)
        return bool(done)

    def _fate(self) -> str:
        if self._exit is None:
            return "it was never started"
        if not self._exit.done():
            return "it is running"
        code = self._exit.result()
        return f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"its exit code was {code}"

    async def _log_lines(self) -> list[str]:
        program = await locate(self._target, self._spec)
        logs = [f"{self._rundir}/stderr.log", self.error_log]
        tail = await self._target.run(
            [*program.prefix, "sh", "-c", _LAST_OF, str(LOG_BYTES), *logs], check=False
        )
        return excerpt(tail.text)

    async def save_error_log(self, destination: Path) -> None:
        """Copy the end of the error log; nothing if there is none. It is read as the server's account."""
        program = await locate(self._target, self._spec)
        read = await self._target.run(
            [*program.prefix, "sh", "-c", _LAST_OF, str(MOST_LOG_BYTES), self.error_log], check=False
        )
        if read.stdout:
            with whole_file(destination) as file:
                file.write(read.stdout)


def _bind_address(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        # What a name means to others need not be what it means on the machine itself: Debian's hosts file gives
        # a machine's own name to its loopback.
        return "*"


_ESCAPES: Mapping[str, str] = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _unescape(cell: str) -> str:
    """Undo the escapes of the client's batch format."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), cell)
