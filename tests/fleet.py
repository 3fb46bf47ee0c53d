"""Hosts for tests: an sshd each, in namespaces of their own, which die at once and come back. As root only.

A host has its own processes, its own name and its own disk (a folder, mounted where every host has one), so that
several of them live on this machine without seeing each other. They share its kernel: ``allow_shared`` in a plan.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import lab, sshd
from tests.networks import Namespace
from tests.traces import FORGET_MOUNTS

#: Programs that a host of it needs.
PROGRAMS = ("unshare", "ip", "fio")


@dataclass
class Host:
    """One sshd, and all that runs below it."""

    name: str
    port: int
    script: str
    config: Path
    prefix: Sequence[str]
    at: str = "127.0.0.1"
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{sshd.user()}@{self.at}:{self.port}"

    def start(self) -> None:
        unshare = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
        argv = [*self.prefix, *unshare, "sh", "-ec", self.script]
        with self.config.with_name("log").open("ab") as log:
            self.process = subprocess.Popen(argv, stderr=log, env={**os.environ, "PATH": lab.PATH})

    def die(self) -> None:
        """As when the power goes: every process of the host ends, and none is asked."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None


@dataclass
class Fleet:
    """``disk`` is where each host sees its own; ``key`` and ``known_hosts`` let a controller in."""

    folder: Path
    disk: Path
    key: Path
    known_hosts: Path
    prefix: Sequence[str]
    hosts: list[Host] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def target_table(self) -> str:
        addresses = ", ".join(f'"{host.address}"' for host in self.hosts)
        return (
            f"[target]\naddresses = [{addresses}]\nallow_shared = true\nequal = true\nreconnect_s = 2\n"
            f'scratch = "{self.disk}/scratch"\nidentity_file = "{self.key}"\nknown_hosts = "{self.known_hosts}"\n'
        )

    @property
    def env(self) -> dict[str, str]:
        """For who runs headrace, and more: the journal lies on each host's own disk."""
        own = {"HEADRACE_STATE": f"{self.disk}/state", "NO_COLOR": "1", "COLUMNS": "300", "PATH": lab.PATH}
        return {**os.environ, **own, **self.environment}

    def own_disk(self, host: Host) -> Path:
        """The same folder, seen from here."""
        return self.folder / host.name / "disk"

    def add(self, name: str, place: Namespace | None = None) -> Host:
        """In a network of its own, or in the one of all."""
        at = place.address if place else "127.0.0.1"
        folder = self.folder / name
        (folder / "disk" / "home").mkdir(parents=True)
        authorized = self.key.with_suffix(".pub")
        port, config, line = sshd.configured(folder, at, authorized, self.disk / "home")
        with self.known_hosts.open("a") as known:
            known.write(line)
        mount = f"mount --bind {folder}/disk {self.disk}"
        script = FORGET_MOUNTS + f"hostname {name}; {mount}; exec {sshd.program()} -D -e -f {config}"
        host = Host(name, port, script, config, place.prefix if place else self.prefix, at)
        self.hosts.append(host)
        return host


@contextlib.contextmanager
def fleet(folder: Path, names: Sequence[str], prefix: Sequence[str] = ()) -> Iterator[Fleet]:
    """Running hosts; ``prefix`` goes before their commands, such as ``ip netns exec NAME``."""
    folder.mkdir()
    # A short path, because sockets lie below it.
    disk = Path(tempfile.mkdtemp(prefix="hr-", dir="/var/tmp"))
    disk.chmod(0o755)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    found = Fleet(folder, disk, sshd.make_key(folder / "user_key"), folder / "known_hosts", prefix)
    try:
        for name in names:
            found.add(name).start()
        for host in found.hosts:
            wait_for(host)
        yield found
    finally:
        for host in found.hosts:
            if host.process is not None:
                host.die()
        shutil.rmtree(disk)


def wait_for(host: Host) -> None:
    """Until its sshd answers; another program that took its port meanwhile does not greet as one."""
    probe = f"exec 3<>/dev/tcp/{host.at}/{host.port}; read -t 5 -u 3 greeting; [[ $greeting = SSH-* ]]"
    deadline = time.monotonic() + 20
    while subprocess.run([*host.prefix, "bash", "-c", probe], capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline, host.config.with_name("log").read_text()
        time.sleep(0.05)
