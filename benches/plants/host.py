"""Causes in the host's own settings, under a server that has nothing wrong with it. All need root."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benches.plants.beside import compiler, processes, python
from benches.plants.loads import MARIADB, READS, WRITES, Load, operation, statement
from benches.plants.plant import Plant
from benches.plants.scarce import memory
from tests.lab import loop_device
from tests.servers import Server

#: Asks for 60 KB and reads them 5 ms later, as a client does that is a round trip away.
FAR_AWAY = """
import pymysql, sys, time
c = pymysql.connect(host="127.0.0.1", port=int(sys.argv[1]), user="far_away", password="right")
while True:
    c._execute_command(3, "SELECT REPEAT('x', 60000)")
    time.sleep(0.005)
    c._read_query_result()
"""
#: Next to no statements of its own, so that theirs are the mean.
SLEEPS = Load((operation(statement("DO SLEEP(0.2)")),), connections=2)


@contextlib.contextmanager
def setting(path: str, text: str) -> Iterator[None]:
    """A file of /proc/sys or of /sys with another content."""
    file = Path(path)
    before = file.read_text()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_text(before)


@contextlib.contextmanager
def synchronous(server: Server) -> Iterator[None]:
    """Its data on a file system that is mounted with sync; what is written meanwhile is lost."""
    data, image = server.folder / "data", server.folder / "sync.img"
    run = partial(subprocess.run, check=True, capture_output=True)
    run(["truncate", "-s", "4G", image])
    run(["mkfs.ext4", "-q", image])
    mount = server.folder / "sync"
    mount.mkdir()
    with contextlib.ExitStack() as stack:
        stack.callback(image.unlink)
        stack.callback(mount.rmdir)
        loop = stack.enter_context(loop_device(image))
        server.stop()
        # Copied before it is slow.
        run(["mount", loop, mount])
        run(["cp", "-a", "--sparse=always", f"{data}/.", mount])
        shutil.chown(mount, "mysql", "mysql")
        run(["umount", mount])
        run(["mount", "-o", "sync", loop, data])
        try:
            server.start()
            yield
        finally:
            server.stop()
            run(["umount", data])
            server.start()


@contextlib.contextmanager
def traced(server: Server) -> Iterator[None]:
    """strace on all its threads."""
    with processes(["strace", "-f", "-q", "-o", "/dev/null", "-p", str(server.pid)]):
        yield


@contextlib.contextmanager
def idle_policy(server: Server) -> Iterator[None]:
    """It runs when nobody else wants to, next to two programs that only compute."""
    argv = ["chrt", "--all-tasks", "--idle", "--pid", "0", str(server.pid)]
    subprocess.run(argv, check=True, capture_output=True)
    with compiler(server):
        yield


def unused_pages(_server: Server) -> contextlib.AbstractContextManager[None]:
    """A tenth of the memory as huge pages."""
    return setting("/proc/sys/vm/nr_hugepages", str(int(0.1 * memory()) >> 21))


@contextlib.contextmanager
def small_windows(server: Server) -> Iterator[None]:
    """16 KiB for what a connection sends. Run it in a network namespace (unshare -n): others have sockets, too."""
    server.sql("CREATE USER IF NOT EXISTS far_away@'%' IDENTIFIED BY 'right'", "FLUSH PRIVILEGES")
    clients = 8 * (python(FAR_AWAY, server.port),)
    with setting("/proc/sys/net/ipv4/tcp_wmem", "4096 16384 16384"), processes(*clients):
        yield


@contextlib.contextmanager
def shaped(server: Server) -> Iterator[None]:
    """100 Mbit/s for all that loopback sends. Run it in a network namespace (unshare -n): others send, too."""
    server.sql("CREATE USER IF NOT EXISTS far_away@'%' IDENTIFIED BY 'right'", "FLUSH PRIVILEGES")
    # A burst that is smaller than loopback's packets would let none of them pass.
    shaper = ["tbf", "rate", "100mbit", "burst", "128k", "limit", "10m"]
    subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", *shaper], check=True, capture_output=True)
    try:
        with processes(*(8 * (python(FAR_AWAY, server.port),))):
            yield
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True, capture_output=True)


PLANTS = (
    Plant(
        "mounted with sync",
        "a file system on which each write waits for the device",
        ("FS14",),
        "sync",
        WRITES,
        beside=synchronous,
        servers=MARIADB,
        also=("BLK12", "BLK13", "LOCK01", "REDO05", "FS08", "POOL01"),
        has_remedy=False,
    ),
    Plant(
        "a tracer",
        "strace on all threads of the server",
        ("HOST04",),
        "strace",
        READS,
        beside=traced,
        has_remedy=False,
    ),
    Plant(
        "the idle policy",
        "a server of SCHED_IDLE beside two programs that only compute",
        ("CPU13",),
        "SCHED_IDLE",
        beside=idle_policy,
        has_remedy=False,
    ),
    Plant(
        "huge pages for nobody",
        "a tenth of the memory is reserved as huge pages that no program uses",
        ("MEM21",),
        "",
        beside=unused_pages,
        has_remedy=False,
    ),
    Plant(
        "small windows",
        "16 KiB of send buffer for answers of 60 KB",
        ("TCP07",),
        "round trips",
        SLEEPS,
        beside=small_windows,
        also=("LOCK01",),
        has_remedy=False,
    ),
    Plant(
        "a shaper",
        "loopback sends 100 Mbit/s",
        ("NET12",),
        "tbf",
        SLEEPS,
        beside=shaped,
        has_remedy=False,
    ),
)
