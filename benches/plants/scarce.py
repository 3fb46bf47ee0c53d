"""Causes in what runs out: processors, memory, tasks, and room on a disk. All but the first two need root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benches.plants.beside import behind, instance, processes, python
from benches.plants.loads import MARIADB, READS, WRITES, Load, number, operation, statement
from benches.plants.plant import Plant
from tests.lab import confined, exported, loop_device
from tests.servers import Server

MIB = 1 << 20
LIMITS = ("dirty_background_bytes", "dirty_bytes", "dirty_background_ratio", "dirty_ratio")

GROWS = """
import pymysql, sys, time
c = pymysql.connect(unix_socket=sys.argv[1], user="root").cursor()
for n in range(10**9):
    c.execute(f"SET @leak{n} = REPEAT('x', 1048576)")
    time.sleep(0.05)
"""
#: They come when the load is connected.
STAYS = """
import contextlib, pymysql, sys, threading, time
def client():
    while True:
        with contextlib.suppress(pymysql.Error, OSError):
            connection = pymysql.connect(unix_socket=sys.argv[1], user="root")
            time.sleep(0.5)
            connection.close()
time.sleep(1)
for _ in range(int(sys.argv[2])): threading.Thread(target=client).start()
"""
WRITES_A_FILE = """
import os, sys, time
size, pause = int(sys.argv[2]), float(sys.argv[3])
with open(sys.argv[1], "wb") as out:
    while True:
        out.write(bytes(1 << 20))
        out.flush()
        if size and out.tell() > size: out.seek(0)
        time.sleep(pause)
"""


def memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _ranges(columns: str) -> dict[str, object]:
    """A search that examines some 500 rows for one: work, and none without an index."""
    return operation(
        statement(
            f"SELECT {columns} FROM items WHERE k BETWEEN ? AND ? + 20",
            number(high=4000),
            {"kind": "same", "as": 0},
        ),
        name=columns,
    )


ANALYSES = Load(
    tuple(
        _ranges(f"{function}({column})")
        for function in ("MIN", "MAX")
        for column in ("v", "MD5(v)", "SHA1(v)")
    ),
    connections=16,
)
SEARCH = Load(
    (operation(statement("SELECT SUM(id) FROM items WHERE k > ?", number(high=100))),), connections=4
)


@contextlib.contextmanager
def growing(server: Server) -> Iterator[None]:
    """A session that keeps 20 MB more each second."""
    with processes(python(GROWS, server.socket)):
        yield


@contextlib.contextmanager
def one_cpu(server: Server) -> Iterator[None]:
    cpus = sorted(os.sched_getaffinity(0))

    def bind(listed: str) -> None:
        subprocess.run(["taskset", "-apc", listed, str(server.pid)], check=True, capture_output=True)

    bind(str(cpus[0]))
    try:
        yield
    finally:
        bind(",".join(map(str, cpus)))


@contextlib.contextmanager
def few_tasks(server: Server) -> Iterator[None]:
    """A control group with room for twelve more threads, and twice as many clients that come and go."""
    room = len(os.listdir(f"/proc/{server.pid}/task")) + 12
    stays = python(STAYS, server.socket, 24)
    with confined(server.pid, "pids", {"pids.max": str(room)}), processes(stays):
        yield


@contextlib.contextmanager
def read_only(server: Server) -> Iterator[None]:
    """Its data directory; files that are open stay as they are."""
    data = str(server.folder / "data")
    subprocess.run(["mount", "--bind", data, data], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", data], check=True)
        yield
    finally:
        # The server may have opened files there.
        subprocess.run(["umount", "--lazy", data], check=True)


@contextlib.contextmanager
def filling(server: Server) -> Iterator[None]:
    """A small file system where temporary tables go, with few inodes left, that a program fills."""
    image, mount = server.folder / "small.img", server.folder / "tmp"
    subprocess.run(["truncate", "-s", "600M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-N", "2000", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        mount.chmod(0o777)
        (mount / "many").mkdir()
        for n in range(os.statvfs(mount).f_favail - 20):
            (mount / "many" / str(n)).touch()
        with processes(python(WRITES_A_FILE, mount / "log", 0, 0.3)):
            yield
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)
        image.unlink()


@contextlib.contextmanager
def little_dirty(server: Server) -> Iterator[None]:
    """16 MiB of the page cache may be dirty, and two programs copy files next to the data."""
    folder = Path("/proc/sys/vm")
    before = {name: (folder / name).read_text().strip() for name in LIMITS}
    files = [server.folder / f"copy.{n}" for n in range(2)]
    try:
        (folder / "dirty_background_bytes").write_text(str(8 * MIB))
        (folder / "dirty_bytes").write_text(str(16 * MIB))
        with processes(*(python(WRITES_A_FILE, path, 256 * MIB, 0) for path in files)):
            time.sleep(1)
            yield
    finally:
        # Of each pair the one that is not in force is 0, and writing it would undo the other.
        for name, value in before.items():
            if value != "0":
                (folder / name).write_text(value)
        for path in files:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def distant(server: Server) -> Iterator[None]:
    """Its redo log on a volume without a cache that does 250 writes a second."""
    data, here = server.folder / "data", server.folder.parent / "distant"
    image, slow, mount = here / "image", here / "slow", here / "log"
    mount.mkdir(parents=True)
    slow.touch()
    run = partial(subprocess.run, check=True, capture_output=True, text=True)
    run(["truncate", "-s", "1200M", image])
    run(["mkfs.ext4", "-q", image])
    argv, there = list(server.argv), f"--innodb-log-group-home-dir={mount}"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, here, ignore_errors=True)
        server.stop()
        # Copied before it is slow.
        run(["mount", "-o", "loop", image, mount])
        moved(data, mount)
        run(["umount", mount])
        blocks = ["--object", "throttle-group,id=g,x-iops-write=250"]
        blocks += ["--blockdev", f"driver=file,filename={image},node-name=file"]
        blocks += ["--blockdev", "driver=throttle,throttle-group=g,file=file,node-name=slow"]
        stack.enter_context(exported(blocks, "slow", slow))
        loop = stack.enter_context(loop_device(slow))
        (Path("/sys/block") / Path(loop).name / "queue/write_cache").write_text("write through")
        run(["mount", loop, mount])
        stack.callback(run, ["umount", mount])
        try:
            server.argv = [*argv, there]
            server.start()
            yield
        finally:
            server.stop()
            moved(mount, data)
            server.argv = argv
    server.start()


def moved(source: Path, target: Path) -> None:
    """The redo log of a server that is down."""
    subprocess.run(["cp", "-a", "--sparse=never", source / "ib_logfile0", target], check=True)
    (source / "ib_logfile0").unlink()
    shutil.chown(target, "mysql", "mysql")


PLANTS = (
    Plant(
        "a distant log",
        "a redo log on a volume whose writes take 4 ms and need no flush",
        ("REDO05",),
        "log is synced|takes",
        WRITES,
        beside=distant,
        servers=MARIADB,
        adviser="log_group_home|latency",
        also=("LOCK01", "BLK12", "BLK13"),
        has_remedy=False,
    ),
    Plant(
        "many statements",
        "six classes of statements that fill the CPUs together",
        ("CPU10",),
        "most of the time|statement",
        ANALYSES,
        has_remedy=False,
    ),
    Plant(
        "more than there is",
        "a pool, and buffers of sessions, that fit only without each other",
        ("MEM16", "POOL02", "SESS01"),
        "",
        READS,
        (
            f"--innodb-buffer-pool-size={int(0.8 * memory()) // MIB}M",
            "--sort-buffer-size=512M",
            "--join-buffer-size=512M",
        ),
        adviser="memory usage|buffer_pool_size|buffer_size",
        has_remedy=False,
    ),
    Plant(
        "a leak",
        "a session that keeps 20 MB more each second",
        ("MEM17",),
        "",
        beside=growing,
        adviser="memory",
        seconds=12,
        has_remedy=False,
    ),
    Plant(
        "one CPU",
        "a server that may use one CPU only",
        ("CPU12",),
        "may use 1 of",
        SEARCH,
        beside=one_cpu,
        also=("STMT02", "SESS12"),
        has_remedy=False,
    ),
    Plant(
        "another instance",
        "a second server on the host that computes",
        ("HOST01",),
        "other mariadbd",
        beside=instance,
        servers=MARIADB,
        has_remedy=False,
    ),
    Plant(
        "a low priority",
        "a server at nice 10 beside two programs that only compute",
        ("CPU13",),
        "nice 10",
        beside=behind,
        has_remedy=False,
    ),
    Plant(
        "few tasks",
        "a control group that allows twelve threads more",
        ("LIM08", "LIM03"),
        "task|thread",
        beside=few_tasks,
        servers=MARIADB,
        adviser="thread",
        also=("SESS05", "SESS09", "SESS14"),
        has_remedy=False,
    ),
    Plant(
        "read-only data",
        "a data directory that is mounted read-only",
        ("FS13",),
        "read-only",
        beside=read_only,
        adviser="read.only",
        has_remedy=False,
    ),
    Plant(
        "a disk that fills",
        "a file system for temporary tables that has minutes and inodes left",
        ("FS11", "FS12", "FS06"),
        "",
        beside=filling,
        adviser="disk|space",
        seconds=22,
        has_remedy=False,
    ),
    Plant(
        "little may be dirty",
        "16 MiB of dirty pages for all who write",
        ("MEM19",),
        "dirty|written",
        WRITES,
        beside=little_dirty,
        adviser="dirty",
        also=("HOST02", "BLK12", "BLK13", "FS08"),
        has_remedy=False,
    ),
)
