"""A server in namespaces of its own, as a container's is, reached by ``exec:nsenter``."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.host.snapshot import load
from tests.commands import headrace
from tests.servers import Server, mariadb
from tests.waiting import until

#: As in many containers: the home takes no program, the usual folder for temporary files cannot be written, and
#: the name is the container's.
START = """
hostname container
ip link set lo up
mount -t sysfs none /sys
mount -t tmpfs -o noexec none /root
mount -t tmpfs -o ro none /tmp
mount -t tmpfs none /var/tmp/headrace-test-cache
touch /var/tmp/headrace-test-cache/ready
exec sleep infinity
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")


@pytest.fixture(scope="module")
def inside(folder: Path) -> Iterator[tuple[Server, str]]:
    """The server, and the address of its namespaces."""
    cache = Path("/var/tmp/headrace-test-cache")
    cache.mkdir(mode=0o700, exist_ok=True)
    apart = [
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--uts",
        "--ipc",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ]
    holder = subprocess.Popen([*apart, "sh", "-c", START], stdin=subprocess.DEVNULL)
    try:
        until(lambda: _child(holder.pid), holder)
        child = _child(holder.pid)
        until(lambda: Path(f"/proc/{child}/root{cache}/ready").exists(), holder)
        way = ["nsenter", "-t", str(child), "-m", "-n", "-p", "-u", "-i"]
        with mariadb(folder / "contained", "--skip-networking=0") as server:
            server.stop()
            server.prefix = way
            server.start()
            yield server, f"exec:{' '.join(way)} env -i PATH=/usr/bin:/bin HOME=/root"
            server.prefix = ()
    finally:
        if (child := _child(holder.pid)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        holder.kill()
        holder.wait()
        shutil.rmtree(cache, ignore_errors=True)


def _child(pid: int) -> int | None:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None


def test_a_hunt_through_a_command(inside: tuple[Server, str], tmp_path: Path) -> None:
    server, address = inside
    address = f"{address} XDG_CACHE_HOME=/var/tmp/headrace-test-cache"
    saved = tmp_path / "db.hunt"
    words = ("--duration", "3s", "--mysql-user", "root", "--save", str(saved))
    done = headrace("hunt", "--target", address, *words, env={"XDG_STATE_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    snapshot = load(saved)
    assert snapshot.facts.data["hostname"] == "container"
    settings = snapshot.facts.data["server_settings"]
    assert settings["variables"]["socket"] == server.socket
    # Its own number in its own namespace, where it is not what it is here.
    (process,) = snapshot.facts.data["servers"]
    assert process["pid"] == settings["pid"] != server.pid
    assert {nic["name"] for nic in snapshot.facts.data["network_interfaces"]} == {"lo"}
    assert not list(Path("/proc").glob("[0-9]*/root/var/tmp/headrace-test-cache/headrace-??????*"))


def test_a_fleet_has_hosts_by_command(inside: tuple[Server, str], tmp_path: Path) -> None:
    _, address = inside
    address = f"{address} XDG_CACHE_HOME=/var/tmp/headrace-test-cache"
    (tmp_path / "hosts.txt").write_text(f"# our containers\n{address}\n")
    (tmp_path / "fleet.toml").write_text(f"[fleet]\nhosts = [{json.dumps(address)}]\n")
    for name in ("hosts.txt", "fleet.toml"):
        done = headrace(
            "fleet", "facts", "--fleet", str(tmp_path / name), cwd=tmp_path, env={"HOME": str(tmp_path)}
        )
        assert done.returncode == 0, done.stderr
        assert "container" in done.stdout or "1 host" in done.stdout


def test_a_namespace_that_is_gone_is_a_clear_error(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    done = headrace(
        "hunt", "--target", f"exec:nsenter -t {ended.pid} -m -n", env={"XDG_STATE_HOME": str(tmp_path)}
    )
    assert done.returncode != 0
    assert "did not run sh there: nsenter" in done.stderr
