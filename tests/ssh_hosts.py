"""Hosts of our own behind real network interfaces: each an sshd in a network and a process namespace, with files
of its own below ``/var/tmp`` and ``/root``. As root only; all is gone when the block ends.

    controller (us) ── 10.214.80.0/24 ── near ── 10.214.82.0/24 ── far
                    ── 10.214.81.0/24 ──────────────────────────── far
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lab import check, running
from tests.sshd import make_key, program
from tests.traces import FORGET_MOUNTS

NEAR, FAR = "10.214.80.2", "10.214.81.2"
#: Where ``far`` is known only to ``near``.
FAR_BEHIND_NEAR = "10.214.82.2"
NEAR_BEHIND_FAR = "10.214.82.1"
READY_S = 15.0

SSHD = """
ListenAddress 0.0.0.0
HostKey {folder}/host_key
AuthorizedKeysFile /var/tmp/authorized_keys
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
"""

#: Users beside root. Only the first may sudo.
DBA, GUEST = "dba", "guest"
PASSWD = f"""\
root:x:0:0:root:/root:/bin/sh
sshd:x:104:65534::/run/sshd:/usr/sbin/nologin
{DBA}:x:4242:65534::/var/tmp/{DBA}:/bin/sh
{GUEST}:x:4243:65534::/var/tmp/{GUEST}:/bin/sh
"""

#: A mount namespace in which /var/tmp, /root, users and sudo's rules are the host's own.
START = """
set -e
hostname {name}
mount --make-rprivate /
mount --bind {folder}/tmp /var/tmp
mount --bind {folder}/root /root
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/shadow /etc/shadow
[ ! -d /etc/sudoers.d ] || mount --bind {folder}/sudoers.d /etc/sudoers.d
exec {sshd} -D -e -f {folder}/sshd_config
"""


@dataclass(frozen=True)
class Host:
    """``interface`` is our end of the way to it; ``folder`` holds ``tmp`` and ``root`` as the host sees them."""

    name: str
    address: str
    interface: str
    folder: Path

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"

    def cut(self) -> None:
        """No packet gets from us to it or back, and nobody is told."""
        check("ip", "link", "set", self.interface, "down")

    def join(self) -> None:
        check("ip", "link", "set", self.interface, "up")

    def inside(self, *argv: str) -> str:
        """Run in its network, but among our processes and files."""
        return check("ip", "netns", "exec", self.name, *argv)

    def pids(self) -> list[int]:
        return [int(pid) for pid in check("ip", "netns", "pids", self.name).split()]

    def break_connections(self) -> None:
        """End every connection to it at once: both ends know."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sshd: root"):
                    os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Hosts:
    """``home`` is the controller's, with the keys and known hosts of both in its ``.ssh``."""

    near: Host
    far: Host
    home: Path

    @property
    def key(self) -> Path:
        return self.home / ".ssh" / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh" / "known_hosts"


@contextlib.contextmanager
def two_hosts(folder: Path) -> Iterator[Hosts]:
    home = folder / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    key = make_key(home / ".ssh" / "id_ed25519")
    known = home / ".ssh" / "known_hosts"
    near = Host("hrnear", NEAR, "hrn0", folder / "near")
    far = Host("hrfar", FAR, "hrf0", folder / "far")
    with contextlib.ExitStack() as stack:
        # Their names and addresses are there once on a machine.
        turn = stack.enter_context(open("/tmp/headrace-test-hosts.lock", "w"))
        fcntl.flock(turn, fcntl.LOCK_EX)
        for host in (near, far):
            stack.enter_context(_namespace(host.name))
        for number, host in ((80, near), (81, far)):
            stack.callback(subprocess.run, ["ip", "link", "del", host.interface], capture_output=True)
            other = f"{host.interface}x"
            check("ip", "link", "add", host.interface, "type", "veth", "peer", "name", other)
            check("ip", "link", "set", other, "netns", host.name)
            _address(host.interface, f"10.214.{number}.1/24", "")
            _address(other, f"10.214.{number}.2/24", host.name)
        check("ip", "link", "add", "hrx0", "type", "veth", "peer", "name", "hrx1")
        for interface, host, end in (("hrx0", near, 1), ("hrx1", far, 2)):
            check("ip", "link", "set", interface, "netns", host.name)
            _address(interface, f"10.214.82.{end}/24", host.name)
        for host in (near, far):
            stack.enter_context(_sshd(host, key))
            kind, public = (host.folder / "host_key.pub").read_text().split()[:2]
            names = [host.address, FAR_BEHIND_NEAR if host is far else NEAR_BEHIND_FAR]
            with known.open("a") as file:
                file.writelines(f"{name} {kind} {public}\n" for name in names)
        yield Hosts(near, far, home)


@contextlib.contextmanager
def _namespace(name: str) -> Iterator[None]:
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    check("ip", "netns", "add", name)
    try:
        check("ip", "netns", "exec", name, "ip", "link", "set", "lo", "up")
        yield
    finally:
        check("ip", "netns", "del", name)


def _address(interface: str, address: str, namespace: str) -> None:
    where = ["ip", "netns", "exec", namespace] if namespace else []
    check(*where, "ip", "addr", "add", address, "dev", interface)
    check(*where, "ip", "link", "set", interface, "up")


@contextlib.contextmanager
def _sshd(host: Host, key: Path) -> Iterator[None]:
    folder = host.folder
    for name in ("tmp", "root", "sudoers.d"):
        (folder / name).mkdir(parents=True)
    (folder / "tmp").chmod(0o1777)
    make_key(folder / "host_key")
    # sshd reads it as the user who logs in.
    shutil.copy(key.with_suffix(".pub"), folder / "tmp" / "authorized_keys")
    (folder / "sshd_config").write_text(SSHD.format(folder=folder))
    _users(folder)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    script = FORGET_MOUNTS + START.format(name=host.name, folder=folder, sshd=program())
    inside = ["unshare", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    with running(["ip", "netns", "exec", host.name, *inside, "sh", "-c", script]):
        _wait_for(host.address)
        yield


def _users(folder: Path) -> None:
    # Those of the machine that programs need, and ours.
    lines = Path("/etc/passwd").read_text().splitlines(keepends=True)
    known = {line.partition(":")[0] for line in PASSWD.splitlines()}
    text = PASSWD + "".join(line for line in lines if line.partition(":")[0] not in known)
    (folder / "passwd").write_text(text)
    names = [line.partition(":")[0] for line in text.splitlines()]
    (folder / "shadow").write_text("".join(f"{name}:*:19000:0:99999:7:::\n" for name in names))
    rule = folder / "sudoers.d" / "dba"
    rule.write_text(f"{DBA} ALL=(ALL) NOPASSWD: ALL\n")
    rule.chmod(0o440)
    for name, user_id in ((DBA, 4242), (GUEST, 4243)):
        (folder / "tmp" / name).mkdir()
        os.chown(folder / "tmp" / name, user_id, 65534)


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            socket.create_connection((address, 22), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"no sshd at {address}"
            time.sleep(0.05)
