"""A server in a real container, seen from its host and through ``exec:podman exec``: its own disk and limits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.hunt import hunt as hunts
from tests import programs

NAME = f"hr-box-{os.getpid()}"
START_S = 30.0
#: Without the hierarchy of version 2 beside that of version 1: crun refuses a host with both.
PODMAN = """#!/bin/sh
exec unshare -m sh -c '
  umount /sys/fs/cgroup/unified 2>/dev/null
  exec podman --root {store} --runroot {run} --storage-driver vfs "$@"' podman "$@"
"""
SERVER = """
mkdir /box/data &&
mariadb-install-db --no-defaults --datadir=/box/data --auth-root-authentication-method=normal --user=root >&2 &&
exec mariadbd --no-defaults --datadir=/box/data --socket=/box/s --skip-networking --user=root --pid-file=/box/p
"""
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not shutil.which("podman"), reason="needs podman and crun: apt-get install podman crun"
    ),
    pytest.mark.skipif(not shutil.which("mariadbd", path="/usr/sbin"), reason="needs mariadb-server"),
]


@dataclass
class Box:
    podman: Path
    pid: int
    folder: Path

    def hunt(self, *words: str) -> dict[str, Any]:
        environment = {
            **os.environ,
            "XDG_STATE_HOME": str(self.folder),
            "HEADRACE_AGENT": programs.agent_path(),
        }
        argv = [
            sys.executable,
            "-m",
            "headrace",
            "hunt",
            "--json",
            "--duration",
            "3s",
            "--mysql-user",
            "root",
        ]
        done = subprocess.run([*argv, *words], capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    folder = tmp_path_factory.mktemp("podman")
    root = folder / "root"
    for name in ("proc", "sys", "dev", "run", "tmp", "etc", "usr", "root", "box", "var/tmp"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    podman = folder / "podman"
    podman.write_text(PODMAN.format(store=folder / "store", run=folder / "run"))
    podman.chmod(0o755)
    # Not above the host's own, which not every container engine may raise.
    limits = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=1024:1024", "--memory", "1g"]
    mounts = ["-v", "/usr:/usr:ro", "-v", "/etc:/etc:ro", "--tmpfs", "/box:rw,size=400m,mode=1777"]
    # Its memory and its process identifiers are its own; the network is the host's.
    start = [
        str(podman),
        "run",
        "-d",
        "--name",
        NAME,
        "--network",
        "host",
        *limits,
        *mounts,
        "--rootfs",
        str(root),
    ]
    done = subprocess.run([*start, "sh", "-c", SERVER], capture_output=True, text=True, check=False)
    try:
        if done.returncode:
            pytest.skip(f"no container runs here: {done.stderr.strip()[-200:]}")
        shown = subprocess.run(
            [podman, "inspect", "-f", "{{.State.Pid}}", NAME], capture_output=True, text=True, check=True
        )
        pid, end = int(shown.stdout), time.monotonic() + START_S
        while not Path(f"/proc/{pid}/root/box/s").is_socket() and time.monotonic() < end:
            time.sleep(0.1)
        yield Box(podman, pid, folder)
    finally:
        subprocess.run([podman, "rm", "-f", "-t", "1", NAME], capture_output=True, check=False)
        subprocess.run([podman, "unmount", "--all"], capture_output=True, check=False)


def finding(found: dict[str, Any], identifier: str) -> str:
    return next((str(each["summary"]) for each in found["findings"] if each["id"] == identifier), "")


def test_the_host_sees_the_containers_disk_and_limit(box: Box) -> None:
    found = box.hunt("--mysql-socket", f"/proc/{box.pid}/root/box/s", "--save", str(box.folder / "it.hunt"))
    said = finding(found, "FS10@/box")
    assert "/box/data is on tmpfs: nothing survives a restart of the host" in said
    assert f"in the mount namespace of process {box.pid}" in said
    facts = hunts.saved(box.folder / "it.hunt").facts.data
    own = next(each for each in facts["servers"] if each["pid"] == box.pid)
    assert own["cgroup"]["memory_max_bytes"] == 1 << 30


def test_a_command_into_the_container_is_a_way_in(box: Box) -> None:
    found = box.hunt("--target", f"exec:{box.podman} exec -i {NAME}", "--mysql-socket", "/box/s")
    assert finding(found, "FS10@/box") == "/box/data is on tmpfs: nothing survives a restart of the host."
