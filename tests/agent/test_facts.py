"""Look-ups in a host's facts, on whole saved hosts read by the real agent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import TargetError
from headrace.base.model import Facts
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.host.target.fixture import FixtureTarget
from tests import programs
from tests.folders import TESTS

HOSTS = TESTS / "hosts"


@pytest.fixture
async def xen(monkeypatch: pytest.MonkeyPatch) -> HostFacts:
    monkeypatch.setenv("HEADRACE_AGENT", programs.agent_path())
    target = FixtureTarget(HOSTS / "xen-16core-md")
    await target.connect()
    return HostFacts(await (await Agent.install(target)).facts())


def facts(**data: Any) -> HostFacts:
    return HostFacts(Facts("0" * 16, data))


def test_a_saved_host(xen: HostFacts) -> None:
    assert xen.cpu_count == 16
    assert xen.transparent_huge_pages == "always"
    assert [server["allocator"]["name"] for server in xen.servers] == ["jemalloc"]
    device = xen.block_device("/dev/md0")
    assert device
    assert device["slaves"] == ["xvdb", "xvdc", "xvdd", "xvde"]
    assert xen.block_device("md7") is None
    data = xen.file_system_of("/mnt/mysql/data/ibdata1")
    assert data
    assert data["block_device"] == "md0"


def test_the_digest_names_what_matters(xen: HostFacts) -> None:
    digest = dict(xen.digest())
    assert "16 x Intel(R) Xeon(R) CPU E5-2670 v2" in digest["processors"]
    assert digest["memory"].startswith("120.1 GiB")
    assert digest["array md0"].startswith("raid0, xvdb xvdc xvdd xvde, chunk 64 KiB")
    assert "allocator jemalloc" in digest["server mysqld"]
    assert all(value and "None" not in value for value in digest.values())


def test_a_device_by_its_stable_id() -> None:
    disk = {"name": "nvme0n1", "stable_ids": ["nvme-eui.0025"]}
    for name in ("nvme0n1", "/dev/nvme0n1", "nvme-eui.0025", "/dev/disk/by-id/nvme-eui.0025"):
        assert facts(block_devices=[disk]).block_device(name) == disk
    assert facts(block_devices=[disk]).block_device("nvme0") is None


def test_the_file_system_is_the_longest_and_latest_mount() -> None:
    mounts = [
        {"mount_point": "/", "kind": "ext4"},
        {"mount_point": "/data", "kind": "xfs"},
        {"mount_point": "/data", "kind": "btrfs"},
        {"mount_point": "/data/sub", "kind": "ext4"},
    ]
    found = facts(file_systems=mounts).file_system_of
    kinds = {
        path: (found(path) or {}).get("kind") for path in ("/database", "/data", "/data/x", "/data/sub/x")
    }
    assert kinds == {"/database": "ext4", "/data": "btrfs", "/data/x": "btrfs", "/data/sub/x": "ext4"}


def test_what_must_be_there_and_is_not() -> None:
    with pytest.raises(TargetError, match=r"cpu\.online_count"):
        _ = facts(hostname="db1").cpu_count
    assert facts().numa_node_count is None
    assert facts().sysctl("vm.swappiness") is None


#: A process named like a server that listens on sockets which no argument names.
LISTENING = """
import socket, sys
open("/proc/self/comm", "w").write("mysqld")
kept = []
for name in ("own.sock", "mysqlx.sock"):
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].bind(name)
    kept[-1].listen()
kept.append(socket.socket(socket.AF_UNIX))
kept[-1].bind("not-listening.sock")
print("up", flush=True)
sys.stdin.read()
"""


def test_the_sockets_on_which_a_server_listens(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", LISTENING]
    with subprocess.Popen(
        argv, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "up\n"
        done = subprocess.run([programs.agent_path(), "facts"], check=True, capture_output=True, text=True)
        process.stdin.close()
    [server] = [each for each in json.loads(done.stdout)["servers"] if each["pid"] == process.pid]
    assert server["sockets"] == [str(tmp_path / "mysqlx.sock"), str(tmp_path / "own.sock")]
