"""Servers in every kind of place, and ways to them: what a hunt is never to take for its own host's server.

A "bastion" is a host of its own as far as a hunt can see: processes, mounts, host name and network of its own. The
agent that runs there sees none of this machine's servers. As root only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from tests import lab
from tests.programs import agent_path
from tests.servers import Server, mariadb

#: Kinds of namespaces and what makes one of each.
NAMESPACES = {
    "mnt": ("unshare", "--mount", "--propagation=private"),
    "net": ("unshare", "--net"),
    "pid": ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
    "user": ("unshare", "--user"),
    "uts": ("unshare", "--uts"),
    "cgroup": ("unshare", "--cgroup"),
}
START_S = 30.0
#: What a verdict without a host may not speak of, but for "unknown".
OF_A_HOST = re.compile(
    r"\d% idle|iowait|CPUs? (is|are) \d|PSI|device \w+\d|/dev/|kernel \d|GiB of memory|No hardware|this host",
    re.I,
)
#: Accounts: what a hunt logs in as, and whether the server lets it in.
LOGINS = {
    "right": ("dba", "right", True),
    "wrong": ("dba", "wrong", False),
    "none": ("nobody", "right", True),
}
ACCOUNTS = (
    "CREATE USER dba@'%' IDENTIFIED BY 'right'",
    "GRANT ALL ON *.* TO dba@'%'",
    "CREATE USER nobody@'%' IDENTIFIED BY 'right'",
)


def claims_of_a_host(found: Mapping[str, Any]) -> str:
    """What a hunt by SQL alone, as JSON, says about a host beyond that it is unknown; empty if nothing."""
    said = found["verdict"].replace("How busy its CPUs, memory and disks are is unknown", "")
    said = " ".join((said, *(finding["summary"] for finding in found["findings"])))
    levels = [
        f"{use['name']} is {use['level']}"
        for use in found["resources"]
        if use["name"] in ("cpu", "block", "memory") and use["level"] != "unknown"
    ]
    claim = OF_A_HOST.search(said)
    return ", ".join([*([claim.group()] if claim else []), *levels])


@dataclass
class Namespaced:
    """A server whose process has namespaces of its own; ``pid`` as this machine numbers it."""

    pid: int
    socket: str
    port: int
    datadir: str


@dataclass
class Bastion:
    """``prefix`` is what goes before a command there; ``init`` its first process."""

    init: int
    prefix: Sequence[str]
    folder: Path
    decoys: list[int] = field(default_factory=list)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self.prefix, *command], stdin=subprocess.DEVNULL, env=_env())


def _env() -> dict[str, str]:
    return {**os.environ, "PATH": lab.PATH}


def facts(way: Sequence[str], login: str, folder: Path, prefix: Sequence[str] = ()) -> dict[str, Any]:
    """What the agent says about a server that it is asked for over a way: ``--mysql-host 127.0.0.1 ...``."""
    user, password, _ = LOGINS[login]
    file = folder / f"password-{password}"
    file.write_text(password)
    file.chmod(0o600)
    words = [
        *prefix,
        str(agent_path()),
        "facts",
        *way,
        "--mysql-user",
        user,
        "--mysql-password-file",
        str(file),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=_env(), timeout=60)
    return dict(json.loads(done.stdout))


@contextlib.contextmanager
def in_namespaces(
    server: Server, kinds: Sequence[str], script: str = "", network: Sequence[str] = ()
) -> Iterator[Namespaced]:
    """Restarts a server in namespaces of its own, after a shell's ``script`` in them.

    ``network``: the words that run a command in an existing network namespace.
    """
    server.stop()
    words = [*network, *(word for kind in kinds for word in (*NAMESPACES[kind], "--"))]
    name = f"{server.folder}/in.sh"
    run = shlex.join([*_as_mysql(), *server.argv])
    mapped = 'until [ "$(id -u)" = 0 ]; do sleep 0.02; done'
    Path(name).write_text(f"set -e\n{mapped}\nip link set lo up || true\n{script}\nexec {run}\n")
    log = (server.folder / "error.log").open("ab")
    process = subprocess.Popen(
        [*words, "sh", name], stdout=log, stderr=log, env={**server.env, "PATH": lab.PATH}
    )
    try:
        if "user" in kinds:
            _map_users(process.pid)
        pid = _started(server, process)
        yield Namespaced(pid, server.socket, server.port, f"{server.folder}/data")
    finally:
        with contextlib.suppress(ProcessLookupError, UnboundLocalError):
            os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(START_S)
        process.kill()
        process.wait()
        log.close()


def _map_users(pid: int) -> None:
    """Gives a user namespace our own numbers; unshare does it only for those in /etc/subuid."""
    own = os.readlink("/proc/self/ns/user")
    end = time.monotonic() + START_S
    while os.readlink(f"/proc/{pid}/ns/user") == own and time.monotonic() < end:
        time.sleep(0.02)
    for kind in ("uid", "gid"):
        Path(f"/proc/{pid}/{kind}_map").write_text("0 0 65536")


def _as_mysql() -> list[str]:
    return ["setpriv", "--reuid=mysql", "--regid=mysql", "--clear-groups", "--"]


def _started(server: Server, process: subprocess.Popen[bytes]) -> int:
    """Wait until the server accepts connections; return its process, found by its data directory."""
    end = time.monotonic() + START_S
    while True:
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError((server.folder / "error.log").read_text(errors="replace")[-2000:])
        for pid in _servers_below(process.pid):
            path = f"/proc/{pid}/root{server.socket}"
            with contextlib.suppress(pymysql.Error, OSError):
                pymysql.connect(unix_socket=path, user="root", ssl_disabled=True).close()
                return pid
        time.sleep(0.05)


def _servers_below(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/comm").read_text().strip() == "mariadbd":
            yield pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _servers_below(int(child))


@contextlib.contextmanager
def bastion(folder: Path, network: Sequence[str] = ()) -> Iterator[Bastion]:
    """``network`` is what goes before a command in its network: ``ip netns exec NAME``."""
    words = [*network, "unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
    script = "hostname bastion; ip link set lo up; echo ready; exec sleep infinity"
    process = subprocess.Popen([*words, "sh", "-c", script], stdout=subprocess.PIPE, env=_env())
    assert process.stdout is not None
    process.stdout.readline()
    # `ip netns exec` becomes the command.
    init = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    names = ("mount", "pid", "net", "uts")
    try:
        yield Bastion(init, ("nsenter", f"--target={init}", *(f"--{name}" for name in names), "--"), folder)
    finally:
        os.kill(init, signal.SIGKILL)
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def forwarder(listen: str, to: str, prefix: Sequence[str] = ()) -> Iterator[None]:
    """socat from one address to another, in its words: ``TCP-LISTEN:3307``, ``TCP:10.0.0.2:3306``."""
    words = [*prefix, "socat", f"{listen},fork,reuseaddr" if "TCP" in listen else f"{listen},fork", to]
    process = subprocess.Popen(words, env=_env(), start_new_session=True)
    try:
        time.sleep(0.3)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def asked_server(folder: Path, *options: str) -> Iterator[Server]:
    """A server with the accounts of ``LOGINS``."""
    with mariadb(folder, "--performance-schema=OFF", *options) as server:
        server.sql(*ACCOUNTS)
        yield server
