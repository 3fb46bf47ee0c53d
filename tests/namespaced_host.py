"""A host of its own on this machine: an sshd in namespaces, with a server, a mounted loop device and an interface.

As root only. Its processes, name, network, IPC, ``/etc``, ``/root``, ``/run``, ``/tmp``, ``/var/lib`` and ``/srv``
are its own. Settings of the kernel that belong to the whole machine can only be read there. All is gone when the
block ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from tests import lab, sshd
from tests.conformance import timed_as
from tests.guest import LOOK, VARIABLES
from tests.prestarted import Command, Starter, starter
from tests.programs import agent_path
from tests.servers import START_TIMEOUT_S
from tests.traces import FORGET_MOUNTS, read_each
from tests.waiting import until

PROGRAMS = ("unshare", "nsenter", "ip", "fio", "mkfs.ext4", "mariadbd", "mariadb-install-db")
#: The name of the host for the command, by its ~/.ssh/config.
NAME = "own"
TARGET = f"root@{NAME}"
SOCKET = "/srv/server/socket"
LOGIN = ("--mysql-socket", SOCKET, "--mysql-user", "root")
#: Other tests set these at the same time: nothing inside can.
READ_ONLY = (
    "/proc/irq",
    "/proc/sys/fs",
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/sys/devices/system/cpu",
    "/sys/kernel/mm",
)
#: Settings and devices of the machine, which are not this host's.
THEIRS = re.compile(
    r"/proc/irq/|/proc/sys/(?!net/|kernel/(sem|shm\w+|msg\w+|hostname|domainname)$|fs/mqueue/)|"
    r"/sys/devices/system/cpu|/sys/kernel/mm|/sys/block/"
)
START = """
mount -t tmpfs -o mode=755 headrace-test /srv
cp -a {folder}/. /srv
hostname {name}
mkdir /srv/sys
mount -t sysfs sysfs /srv/sys
mount --rbind /sys/fs/cgroup /srv/sys/fs/cgroup
mount --move /srv/sys /sys
rmdir /srv/sys
cp -a /etc /srv/etc
mount --bind /srv/etc /etc
for place in /root /run /var/lib; do mount -t tmpfs -o mode=755 headrace-test $place; done
for place in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o mode=1777 headrace-test $place; done
for place in {read_only}; do mount --bind $place $place; mount -o remount,bind,ro $place; done
mkdir -p /run/sshd /srv/data {own} /root/.cache/headrace /var/tmp/headrace {scratch}
mv /srv/headrace-agent /root/.cache/headrace/agent-{digest}
ip link set lo up
ip link add eth0 type veth peer name eth1
ip addr add 10.0.0.1/24 dev eth0
ip link set eth0 up
ip link set eth1 up
truncate -s 32M {own}/image
mkfs.ext4 -q {own}/image
mount -o loop {own}/image /srv/data
mkdir /srv/server
chown mysql /srv/server
mariadbd --no-defaults --user=mysql --datadir=/srv/server --skip-grant-tables --bind-address=127.0.0.1 \
    --socket={socket} --innodb-buffer-pool-size=16M --innodb-log-file-size=4M --performance-schema=ON \
    --back-log=8000 </dev/null >/srv/server.log 2>&1 &
exec {sshd} -D -f /srv/sshd_config -E /srv/sshd.log
"""
AGENT = re.compile(rb"[^\0]*/headrace/agent-[0-9a-f]{16}\0")
AT_WORK = re.compile(AGENT.pattern + rb"journal\0(apply|confirm|rollback|record)\0")
#: The agent's work on the journal takes about so long, in seconds.
WORK_S = 0.06
#: A watcher, an agent whose connection was closed, and what waits for a lease to end, do so within this time.
ENDS_S = 25.0


class Process:
    """A command as ``subprocess`` has it."""

    def __init__(self, command: Command) -> None:
        self._command, self.pid = command, command.pid

    def poll(self) -> int | None:
        return self._command.poll()

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (timeout if timeout is not None else float("inf"))
        while (code := self._command.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("headrace", timeout or 0.0)
            time.sleep(0.002)
        return code

    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        return self._command.output(), self._command.wait()[1]

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


@dataclass
class NamespacedHost:
    """``init`` is its first process, as this machine numbers it; ``folder`` is the controller's."""

    folder: Path
    init: int
    port: int
    #: A folder of its own whose name no other host has: loop devices are the machine's.
    own: str
    took_s: dict[str, float] = field(default_factory=dict)
    _starter: Starter | None = None
    _at_rest: list[bytes] = field(default_factory=list)

    @property
    def root(self) -> Path:
        """Its ``/``, as seen from here."""
        return Path(f"/proc/{self.init}/root")

    @property
    def scratch(self) -> str:
        """Where plans put their volumes. It is there already, because it would stay."""
        return scratch_of(self.own)

    @property
    def loop(self) -> str:
        """The device of its mounted disk."""
        found = subprocess.run(
            [*self.prefix, "losetup", "-n", "-O", "NAME", "-j", f"{self.own}/image"],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": lab.PATH},
        )
        return Path(found.stdout.strip()).name

    @property
    def prefix(self) -> list[str]:
        names = ("mount", "pid", "net", "ipc", "uts")
        return ["nsenter", f"--target={self.init}", *(f"--{name}" for name in names), "--"]

    @property
    def env(self) -> dict[str, str]:
        own = {
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "temporary"),
            "HEADRACE_AGENT": str(self.folder / "headrace-agent"),
            "HEADRACE_DISTURBED": "keep",
        }
        left_out = ("HEADRACE_STATE", "XDG_CACHE_HOME", "XDG_STATE_HOME")
        return {**{name: text for name, text in os.environ.items() if name not in left_out}, **own}

    def inside(self, *argv: str, stdin: str = "") -> str:
        env = {"PATH": lab.PATH, "PYTHONHASHSEED": "0", "HOME": "/root"}
        done = subprocess.run(
            [*self.prefix, *argv], input=stdin, capture_output=True, text=True, check=False, env=env, cwd="/"
        )
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout

    def look(self) -> dict[str, Any]:
        """As it is once what was started has ended, or a while after it should have."""
        end = time.monotonic() + ENDS_S
        while (processes := self._started()) != self._at_rest and time.monotonic() < end:
            time.sleep(0.002)
        seen = json.loads(self.inside("/usr/bin/python3", "-S", "-", stdin=LOOK.read_text()))
        loop = self.loop
        found = {name: value for name, value in seen.items() if self._is_ours(name, value, loop)}
        found["processes"] = [words.decode(errors="replace") for words in processes]
        for name, value in self.sql(VARIABLES):
            found[f"@@{str(name).lower()}"] = value
        return found | self._controller()

    def _controller(self) -> dict[str, Any]:
        """Temporary files and virtual machines of the commands."""
        machines = self.folder / "home/.cache/headrace/vm/machines"
        found: dict[str, Any] = {
            f"controller {path}": path.stat().st_mode
            for top in (self.folder / "temporary", machines)
            for path in sorted(top.rglob("*"))
        }
        for path, environment in read_each("proc/[0-9]*/environ"):
            if f"HEADRACE_VM={machines}".encode() in environment:
                found[f"controller process {path.parts[2]}"] = True
        mark = f"headrace-{hashlib.sha256(str(machines).encode()).hexdigest()[:6]}-"
        for path in Path("/run").glob(f"netns/{mark}*"):
            found[f"controller {path}"] = True
        return found

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def connect(self) -> pymysql.Connection[Any]:
        return pymysql.connect(unix_socket=f"{self.root}{SOCKET}", user="root")

    def start(self, *arguments: str) -> Process:
        """A plan, and a fleet's file, name their targets themselves; a virtual machine is this machine's."""
        assert self._starter
        target = () if arguments[0] in ("run", "rollout", "serve", "lab") else ("--target", TARGET)
        return Process(Command(self._starter, [*arguments, *target]))

    def answer(self, *arguments: str) -> tuple[int, str, str]:
        """A command's exit code, output and standard error."""
        begin = time.monotonic()
        process = self.start(*arguments)
        out, error = process.communicate(timeout=300)
        self.took_s[timed_as(arguments)] = time.monotonic() - begin
        return process.wait(), out, error

    def done(self, *arguments: str) -> str:
        code, out, error = self.answer(*arguments)
        assert code == 0, (arguments, out, error)
        return out + error

    def processes(self) -> dict[int, bytes]:
        """Its processes, by this machine's numbers, with their command lines."""
        found, waiting = {}, [self.init]
        while waiting:
            pid = waiting.pop()
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
                for children in Path(f"/proc/{pid}/task").glob("*/children"):
                    waiting += map(int, children.read_text().split())
        return found

    def running(self, what: re.Pattern[bytes]) -> list[int]:
        return [pid for pid, words in self.processes().items() if what.match(words)]

    def kill_agents(self, part: float, at_work: bool, over: threading.Event) -> None:
        while at_work and not self.running(AT_WORK) and not over.wait(0.001):
            pass
        if at_work:
            time.sleep(part * WORK_S)
        for pid in self.running(AGENT):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def is_open(self) -> bool:
        until(lambda: not self.running(AT_WORK), pause_s=0.002, what="an agent still works")
        return self._has("journal.jsonl")

    def is_kept(self) -> bool:
        return self._has("history.jsonl")

    def _started(self) -> list[bytes]:
        """Its programs, but the sshd that listens, whose title counts those who log in."""
        return sorted(words for words in self.processes().values() if b"[listener]" not in words)

    def _is_ours(self, name: str, value: object, loop: str) -> bool:
        if name.startswith(f"/sys/block/{loop}/"):
            return True
        if name.startswith("loop device "):
            return str(value).startswith((f"{self.own}/", f"{self.scratch}/"))
        return not THEIRS.match(name)

    def _has(self, name: str) -> bool:
        path = self.root / "var/lib/headrace" / name
        return path.exists() and path.stat().st_size > 0


@contextlib.contextmanager
def namespaced_host(folder: Path) -> Iterator[NamespacedHost]:
    inner = folder / "inner"
    for path in (inner, folder / "home" / ".ssh", folder / "temporary"):
        path.mkdir(parents=True, mode=0o700)
    inner.chmod(0o755)
    key = sshd.make_key(folder / "home" / ".ssh" / "id_ed25519")
    (inner / "authorized_keys").write_bytes(key.with_suffix(".pub").read_bytes())
    port, config, known = sshd.configured(
        inner, "127.0.0.1", Path("/srv/authorized_keys"), Path("/root"), "MaxStartups 100"
    )
    config.write_text(config.read_text().replace(str(inner), "/srv"))
    _share_images(folder / "home" / ".cache" / "headrace" / "vm")
    (folder / "home" / ".ssh" / "known_hosts").write_text(known)
    (folder / "home" / ".ssh" / "config").write_text(
        f"Host {NAME}\n HostName 127.0.0.1\n Port {port}\n User {sshd.user()}\n IdentityFile {key}\n"
        f" UserKnownHostsFile {folder}/home/.ssh/known_hosts\n"
    )
    own = f"/srv/{secrets.token_hex(4)}"
    # It is there already: to bring it takes longer than many kills leave a command.
    agent = Path(shutil.copy(agent_path(), folder / "headrace-agent"))
    shutil.copy(agent, inner)
    digest = hashlib.sha256(agent.read_bytes()).hexdigest()[:16]
    names = {
        "own": own,
        "scratch": scratch_of(own),
        "digest": digest,
        "folder": inner,
        "name": NAME,
        "socket": SOCKET,
        "sshd": sshd.program(),
    }
    script = "set -e\n" + FORGET_MOUNTS + START.format(read_only=" ".join(READ_ONLY), **names)
    unshare = [
        "unshare",
        "--mount",
        "--pid",
        "--net",
        "--ipc",
        "--uts",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    with (folder / "log").open("wb") as log:
        holder = subprocess.Popen(
            [*unshare, "sh", "-ec", script], stderr=log, env={**os.environ, "PATH": lab.PATH}
        )
    try:
        found = NamespacedHost(folder, _first(holder), port, own)
        _wait_for(found, holder, folder / "log")
        controller = ["nsenter", f"--target={found.init}", "--net", "--"]
        with starter(folder, found.env, controller) as found._starter:
            found._at_rest = found._started()
            yield found
    finally:
        holder.kill()
        holder.wait()


def scratch_of(own: str) -> str:
    return f"/var/tmp/{Path(own).name}"


def _share_images(cache: Path) -> None:
    """The images of virtual machines are this machine's; the machines are not."""
    from headrace.lab.vm.cache import folder

    cache.mkdir(parents=True)
    for name in ("kernels", "roots"):
        (cache / name).symlink_to(folder(name))


def _first(holder: subprocess.Popen[bytes]) -> int:
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
    until(children.read_text, pause_s=0.002, what="no process in the namespaces")
    return int(children.read_text().split()[0])


def _wait_for(host: NamespacedHost, holder: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while True:
        assert holder.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        probe = [
            "nsenter",
            f"--target={host.init}",
            "--net",
            "bash",
            "-c",
            f"exec 3<>/dev/tcp/127.0.0.1/{host.port}",
        ]
        with contextlib.suppress(pymysql.Error, OSError):
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                host.sql("SELECT 1")
                return
        time.sleep(0.05)
