"""Things of which the kernel has too many, planted in namespaces of their own and found by a hunt from outside."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import programs

#: Says what it did, and then opens and closes connections until its input ends.
PLANT = """
import ctypes, os, socket, subprocess, sys, threading

libc = ctypes.CDLL(None, use_errno=True)

def mount(source, place, kind, flags):
    if libc.mount(source, place, kind, flags, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

mounts, buckets = map(int, sys.argv[1:])
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
if buckets:
    with open("/proc/sys/net/ipv4/tcp_max_tw_buckets", "w") as file:
        file.write(str(buckets))
mount(b"plant", b"/mnt", b"tmpfs", 0)
for number in range(mounts):
    os.mkdir(f"/mnt/{number}")
    mount(b"/mnt/0" if number else b"/tmp", f"/mnt/{number}".encode(), None, 4096)
listening = socket.create_server(("127.0.0.1", 0))
is_over = threading.Event()

def work():
    while not is_over.wait(0.02):
        client = socket.create_connection(listening.getsockname())
        # Whoever closes first holds the connection in TIME_WAIT.
        client.close()
        listening.accept()[0].close()

print("ready", flush=True)
worker = threading.Thread(target=work)
worker.start()
sys.stdin.read()
is_over.set()
worker.join()
"""


#: One for each datagram. The limit is the machine's, and is not touched; each network namespace counts for itself.
TRACKED = """
import socket, subprocess, sys

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
new = ["iptables", "-A", "INPUT", "-m", "conntrack", "--ctstate", "NEW", "-j", "ACCEPT"]
subprocess.run(new, check=True)
folder = "/proc/sys/net/netfilter/nf_conntrack_"
with open(folder + "udp_timeout", "w") as file:
    file.write("600")
most = int(open(folder + "max").read())
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(int(most * float(sys.argv[1]))):
    client.sendto(b"x", (f"127.0.{number // 60_000}.2", 1024 + number % 60_000))
print("ready", flush=True)
sys.stdin.read()
"""
TRACKS = Path("/proc/sys/net/netfilter/nf_conntrack_max")
#: More would take long, and much of the kernel's memory.
MOST_TRACKED = 300_000


#: Processes of their own, too: a server that another test runs is outside, and would be the one that is judged.
ALONE = [
    "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private",
]  # fmt: skip


def inside(process: subprocess.Popen[str]) -> int:
    """The pid of what ``unshare`` has started in the namespaces."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0])


@contextlib.contextmanager
def tracking(part: float) -> Iterator[int]:
    """The pid of a process in a network namespace that tracks this part of the connections that it may."""
    pipe = subprocess.PIPE
    command = [*ALONE, sys.executable, "-c", TRACKED, str(part)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield inside(process)
        finally:
            process.communicate(timeout=20)


@contextlib.contextmanager
def planted(mounts: int, buckets: int) -> Iterator[int]:
    """The pid of a process in a mount and a network namespace of its own, with these things in them."""
    command = [*ALONE, sys.executable, "-c", PLANT, str(mounts), str(buckets)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield inside(process)
    finally:
        process.communicate(timeout=20)


def found(pid: int, folder: Path) -> dict[str, dict[str, str]]:
    environment = {**os.environ, "XDG_STATE_HOME": str(folder), "HEADRACE_AGENT": programs.agent_path()}
    target = f"exec:nsenter -t {pid} -m -n -p"
    words = [
        "hunt",
        "--target",
        target,
        "--host-only",
        "--duration",
        "4s",
        "--save",
        str(folder / "it.hunt"),
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {row["id"].partition("@")[0]: row for row in json.loads(done.stdout)["findings"]}


def test_thousands_of_mounts_and_a_full_table_of_closed_connections_are_found(tmp_path: Path) -> None:
    with planted(mounts=2_500, buckets=20) as pid:
        codes = found(pid, tmp_path)
    assert "mounts" in codes["FS15"]["summary"]
    assert "closed connections are in TIME_WAIT, of 20 that may be" in codes["TCP08"]["summary"]


def test_a_few_of_each_are_not(tmp_path: Path) -> None:
    with planted(mounts=5, buckets=0) as pid:
        codes = found(pid, tmp_path)
    assert not {"FS15", "TCP08", "MEM23"} & set(codes)


@pytest.mark.needs("iptables")
@pytest.mark.parametrize(("part", "is_found"), [(0.92, True), (0.05, False)])
def test_a_table_of_tracked_connections_that_fills(tmp_path: Path, part: float, is_found: bool) -> None:
    if not TRACKS.exists() or int(TRACKS.read_text()) > MOST_TRACKED:
        pytest.skip("the kernel tracks no connections, or too many to fill its table")
    with tracking(part) as pid:
        codes = found(pid, tmp_path)
    assert ("NET09" in codes) == is_found
    if is_found:
        assert f"of {int(TRACKS.read_text()):,} connections are tracked" in codes["NET09"]["summary"]
