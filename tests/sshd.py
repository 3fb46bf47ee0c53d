"""A real sshd on a loopback port, with keys and configuration of its own, for tests."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.host.target.ssh import SshTarget
from tests.servers import free_port


@dataclass(frozen=True)
class Sshd:
    """Where it listens, what a client needs to be let in, and the home folder that commands see."""

    port: int
    home: Path
    key: Path
    known_hosts: Path

    def target(
        self, *, key: Path | None = None, known_hosts: Path | None = None, **options: Any
    ) -> SshTarget:
        return SshTarget(
            "127.0.0.1",
            port=self.port,
            user=user(),
            keys=[key or self.key],
            known_hosts=known_hosts or self.known_hosts,
            **options,
        )


def user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def program() -> str | None:
    return shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def configured(folder: Path, at: str, authorized: Path, home: Path, *more: str) -> tuple[int, Path, str]:
    """A free port, the configuration of an sshd there, and its line of known_hosts."""
    host_key, port = make_key(folder / "host_key"), free_port()
    settings = [
        f"ListenAddress {at}",
        f"Port {port}",
        f"HostKey {host_key}",
        f"AuthorizedKeysFile {authorized}",
        "PidFile none",
        "StrictModes no",
        "UsePAM no",
        f'SetEnv "HOME={home}"',
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        *more,
    ]
    config = folder / "sshd_config"
    config.write_text("\n".join(settings) + "\n")
    kind, key = host_key.with_suffix(".pub").read_text().split()[:2]
    return port, config, f"[{at}]:{port} {kind} {key}\n"


@contextlib.contextmanager
def running_sshd(folder: Path, *more: str) -> Iterator[Sshd]:
    """Start sshd in ``folder``; ``more`` are further lines of its configuration."""
    # A home of its own: the start files of whoever runs the tests are slow, or print something.
    home = folder / "home"
    home.mkdir()
    user_key = make_key(folder / "user_key")
    shutil.copy(user_key.with_suffix(".pub"), folder / "authorized_keys")
    port, config, known = configured(folder, "127.0.0.1", folder / "authorized_keys", home, *more)
    (folder / "known_hosts").write_text(known)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists on its empty folder
    with (folder / "sshd.log").open("wb") as log:
        sshd = subprocess.Popen([str(program()), "-D", "-e", "-f", config], stderr=log)
    try:
        _wait_for(port, sshd, folder / "sshd.log")
        yield Sshd(port, home, user_key, folder / "known_hosts")
    finally:
        sshd.terminate()
        sshd.wait(10)


def _wait_for(port: int, sshd: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if sshd.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"sshd did not start: {log.read_text()}") from None
            time.sleep(0.02)
