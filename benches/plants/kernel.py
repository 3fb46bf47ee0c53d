"""Causes in the kernel's queues and priorities, and in programs that stop or trace the server. All need root."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benches.plants.beside import compiler, processes, python
from benches.plants.loads import MARIADB, READS, WIDE_READS, WRITES
from benches.plants.plant import Plant
from tests.lab import fuse, loop_device, mounted, running, veth
from tests.servers import Server
from tests.waiting import until

STOPS = """
import os, signal, sys, time
pid = int(sys.argv[1])
try:
    while True:
        os.kill(pid, signal.SIGSTOP); time.sleep(0.06)
        os.kill(pid, signal.SIGCONT); time.sleep(0.04)
finally:
    os.kill(pid, signal.SIGCONT)
"""
#: strace on the thread that uses most CPU time.
TRACES_ONE = """
import os, sys, time
from pathlib import Path
def ticks():
    found = {}
    for task in Path(f"/proc/{sys.argv[1]}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        found[task.name] = int(fields[11]) + int(fields[12])
    return found
before = ticks()
time.sleep(1)
busiest = max((used - before.get(name, used), name) for name, used in ticks().items())[1]
os.execvp("strace", ["strace", "-q", "-o", "/dev/null", "-p", busiest])
"""
DROPS = """
import time
while True:
    open("/proc/sys/vm/drop_caches", "w").write("1")
    time.sleep(0.3)
"""
SYNCS = """
import os, sys
with open(sys.argv[1], "wb", buffering=0) as out:
    while True:
        out.seek(0)
        out.write(bytes(4096))
        os.fsync(out.fileno())
"""

#: Segmentation and GRO of an interface, off: ETHTOOL_STSO, ETHTOOL_SGSO and ETHTOOL_SGRO.
OFFLOADS_OFF = """
import ctypes, fcntl, socket, struct, sys
for command in (0x1f, 0x24, 0x2c):
    value = ctypes.create_string_buffer(struct.pack("=II", command, 0))
    request = struct.pack("16sP16x", sys.argv[1].encode(), ctypes.addressof(value))
    fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8946, request)
"""
#: A client that reads a megabyte at a time.
READS_MUCH = """
import pymysql, sys
c = pymysql.connect(host=sys.argv[1], port=int(sys.argv[2]), user="far_away", password="right")
while True:
    c._execute_command(3, "SELECT REPEAT('x', 1000000)")
    c._read_query_result()
"""


@contextlib.contextmanager
def small_group(server: Server) -> Iterator[None]:
    """A group with a fiftieth of the usual shares, the server in a usual one within it, and two that compute."""
    top = Path("/sys/fs/cgroup/cpu")
    above = top / f"headrace-{server.pid}"
    own = above / "own"
    own.mkdir(parents=True)
    try:
        (above / "cpu.shares").write_text("20")
        (own / "cgroup.procs").write_text(str(server.pid))
        with compiler(server):
            yield
    finally:
        (top / "cgroup.procs").write_text(str(server.pid))
        own.rmdir()
        above.rmdir()


@contextlib.contextmanager
def data_on(
    server: Server, device: Callable[[Path], contextlib.AbstractContextManager[str]]
) -> Iterator[None]:
    """The server's data on a device of an image; then back where they were, without what was written meanwhile."""
    data, copy, image = server.folder / "data", server.folder / "copy", server.folder / "data.img"
    run = partial(subprocess.run, check=True, capture_output=True)
    run(["truncate", "-s", "4G", image])
    with contextlib.ExitStack() as stack:
        stack.callback(image.unlink)
        server.stop()
        # Copied before it is slow.
        with loop_device(image) as loop, mounted(loop, copy, "ext4"):
            run(["cp", "-a", "--sparse=always", f"{data}/.", copy])
            shutil.chown(copy, "mysql", "mysql")
        copy.rmdir()
        name = stack.enter_context(device(image))
        run(["mount", name, data])
        try:
            server.start()
            yield
        finally:
            server.stop()
            run(["umount", data])
            server.start()


@contextlib.contextmanager
def queue_of(device: str, name: str, text: str) -> Iterator[None]:
    """A loop device keeps its queue's settings when its file is taken away."""
    file = Path("/sys/block") / Path(device).name / "queue" / name
    before = file.read_text()
    chosen = re.search(r"\[(\S+)\]", before)
    file.write_text(text)
    try:
        yield
    finally:
        file.write_text(chosen[1] if chosen else before)


@contextlib.contextmanager
def fair(image: Path) -> Iterator[str]:
    """A device whose scheduler knows priorities."""
    with loop_device(image) as device, queue_of(device, "scheduler", "bfq"):
        yield device


@contextlib.contextmanager
def narrow(image: Path) -> Iterator[str]:
    """A device whose requests take 8 ms each, and that may have four of them in flight."""
    slow = image.with_suffix(".slow")
    slow.touch()
    program = Path(__file__).with_name("slow_file.py")
    argv: list[str | Path] = [sys.executable, program, image, slow, "0.008"]
    with fuse(slow), running(argv):
        until(lambda: slow.stat().st_size, limit_s=10, what="the slow file did not come up")
        with contextlib.ExitStack() as stack:
            device = stack.enter_context(loop_device(slow))
            stack.enter_context(queue_of(device, "scheduler", "none"))
            stack.enter_context(queue_of(device, "nr_requests", "4"))
            yield device
    slow.unlink()


def few_tags(server: Server) -> contextlib.AbstractContextManager[None]:
    return data_on(server, narrow)


@contextlib.contextmanager
def idle_io(server: Server) -> Iterator[None]:
    """A server of the I/O class idle on a device with bfq, and a program that reads and writes there."""
    data = server.folder / "data"
    argv = ["fio", "--name=backup", f"--directory={data}", "--size=256M", "--rw=randrw", "--bs=64k"]
    # Its processes would outlive it when it is killed.
    argv += ["--iodepth=32", "--thread", "--ioengine=libaio", "--direct=1", "--time_based", "--runtime=600"]
    with data_on(server, fair):
        tasks = [task.name for task in Path(f"/proc/{server.pid}/task").iterdir()]
        subprocess.run(["ionice", "-c", "3", "-p", *tasks], check=True)
        with processes(argv):
            time.sleep(3)
            yield


@contextlib.contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Stopped six tenths of the time, as cpulimit does it."""
    with processes(python(STOPS, server.pid)) as started:
        try:
            yield
        finally:
            started[0].kill()
            started[0].wait()
            subprocess.run(["kill", "-CONT", str(server.pid)], check=True)


@contextlib.contextmanager
def one_traced(server: Server) -> Iterator[None]:
    """strace on one thread, once it works."""
    with processes(python(TRACES_ONE, server.pid)):
        yield


@contextlib.contextmanager
def dropping(_server: Server) -> Iterator[None]:
    """The page cache is dropped three times per second."""
    with processes(python(DROPS)):
        yield


@contextlib.contextmanager
def recorded(_server: Server) -> Iterator[None]:
    """The kernel records system calls, switches of threads and its own allocations, in a buffer of its own."""
    folder = Path("/sys/kernel/tracing")
    is_mounted = (folder / "current_tracer").exists()
    if not is_mounted:
        subprocess.run(["mount", "-t", "tracefs", "tracefs", folder], check=True)
    buffer = folder / "instances/headrace"
    buffer.mkdir()
    try:
        for events in ("raw_syscalls", "sched", "kmem", "timer"):
            (buffer / "events" / events / "enable").write_text("1")
        yield
    finally:
        buffer.rmdir()
        if not is_mounted:
            subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def syncing(server: Server) -> Iterator[None]:
    """Four programs that write a page and sync it, next to the data."""
    files = [server.folder / f"synced.{n}" for n in range(4)]
    try:
        with processes(*(python(SYNCS, path) for path in files)):
            yield
    finally:
        for path in files:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def in_frames(server: Server, mtu: int = 1500) -> Iterator[None]:
    """Two clients in a namespace, whose answers the kernel cuts into frames by itself."""
    server.sql("CREATE USER IF NOT EXISTS far_away@'%' IDENTIFIED BY 'right'", "FLUSH PRIVILEGES")
    run = partial(subprocess.run, check=True, capture_output=True)
    with veth("hrp") as pair:
        for inside, name in ([], pair.interface), (["ip", "netns", "exec", pair.namespace], "hrp1"):
            run([*inside, "ip", "link", "set", "dev", name, "mtu", str(mtu)])
            run([*inside, *python(OFFLOADS_OFF, name)])
        client = ["ip", "netns", "exec", pair.namespace, *python(READS_MUCH, pair.address, server.port)]
        with processes(client, client):
            yield


def in_small_frames(server: Server) -> contextlib.AbstractContextManager[None]:
    return in_frames(server, 576)


PLANTS = (
    Plant(
        "a small weight above",
        "a control group with a fiftieth of the usual shares above the server's own, beside two that compute",
        ("CPU13",),
        "cpu.shares 20",
        beside=small_group,
        has_remedy=False,
    ),
    Plant(
        "idle I/O",
        "a server of the I/O class idle, and a backup that reads and writes on the same device",
        ("BLK15",),
        "priority idle",
        WRITES,
        beside=idle_io,
        servers=MARIADB,
        also=("BLK12", "BLK13", "LOCK01", "REDO05", "FS08", "BLK02"),
        has_remedy=False,
    ),
    Plant(
        "few tags",
        "a device whose requests take 8 ms and that may have four in flight",
        ("BLK16",),
        "may have 4 requests in flight",
        WIDE_READS,
        given=("--innodb-buffer-pool-size=16M",),
        beside=few_tags,
        servers=MARIADB,
        also=("POOL01", "POOL08", "STMT02", "BLK12", "BLK13", "LOCK01"),
        has_remedy=False,
    ),
    Plant(
        "stopped again and again",
        "a program that stops the server six tenths of the time",
        ("HOST05",),
        "stopped by a signal",
        beside=stopped,
        also=("LOCK01",),
        has_remedy=False,
    ),
    Plant(
        "one thread traced",
        "strace on the thread that works most",
        ("HOST04",),
        "strace",
        READS,
        beside=one_traced,
        has_remedy=False,
    ),
    Plant(
        "dropped caches",
        "a program that drops the page cache three times per second, under data that is read through it",
        ("HOST06",),
        "caches were dropped",
        WIDE_READS,
        given=("--innodb-flush-method=fsync", "--innodb-buffer-pool-size=16M"),
        beside=dropping,
        also=("POOL01", "POOL08", "FLUSH03", "STMT02", "BLK12", "BLK13"),
        has_remedy=False,
    ),
    Plant(
        "a tracer of the kernel",
        "the kernel records system calls, switches and allocations",
        ("HOST07",),
        "the kernel records",
        beside=recorded,
        has_remedy=False,
    ),
    Plant(
        "frames cut by the kernel",
        "an interface without segmentation and GRO, and clients that read much",
        ("NET13",),
        "tso",
        given=("--bind-address=0.0.0.0",),
        beside=in_frames,
        servers=MARIADB,
        has_remedy=False,
    ),
    Plant(
        "a small MTU",
        "an interface with an MTU of 576 bytes, and clients that read much",
        ("NET14",),
        "MTU",
        given=("--bind-address=0.0.0.0",),
        beside=in_small_frames,
        servers=MARIADB,
        also=("NET13",),
        has_remedy=False,
    ),
    Plant(
        "syncs beside",
        "four programs that sync a page again and again next to the data",
        ("HOST02", "HOST09"),
        "sync",
        WRITES,
        beside=syncing,
        also=("BLK12", "BLK13", "LOCK01", "FS08"),
        has_remedy=False,
    ),
)
