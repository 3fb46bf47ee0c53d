"""What stands beside a load: each a context manager of the server."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
from tests.lab import confined
from tests.servers import Server, mariadb

Beside = Callable[[Server], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def processes(*argvs: list[str], **options: Any) -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [
        subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        for argv in argvs
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


@contextlib.contextmanager
def compiler(_server: Server) -> Iterator[None]:
    """Two programs that only compute."""
    code = "x = 0\nwhile True: x = (x * 7 + 1) % 1000003"
    with processes(*2 * (python(code),)):
        yield


@contextlib.contextmanager
def instance(server: Server) -> Iterator[None]:
    """Another server of the same program, whose two clients compute."""
    code = (
        "import pymysql, sys\n"
        "c = pymysql.connect(unix_socket=sys.argv[1], user='root').cursor()\n"
        "while True: c.execute('SELECT BENCHMARK(5000000, MD5(1))')\n"
    )
    with mariadb(server.folder.parent / "instance") as other, processes(*2 * (python(code, other.socket),)):
        yield


@contextlib.contextmanager
def behind(server: Server) -> Iterator[None]:
    """The same, at a higher priority than the server's."""
    for thread in Path(f"/proc/{server.pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), 10)
    with compiler(server):
        yield


@contextlib.contextmanager
def backup(server: Server) -> Iterator[None]:
    """Reads and writes on the device of the data, past the page cache."""
    argv = ["fio", "--name=backup", f"--directory={server.folder}", "--size=256M", "--rw=randrw", "--bs=64k"]
    # Fast devices have room for one with 32 requests in flight.
    argv += ["--numjobs=2", "--iodepth=64"]
    # Its processes would outlive it when it is killed.
    argv += ["--thread"]
    argv += ["--ioengine=libaio", "--direct=1", "--time_based", "--runtime=600"]
    with processes(argv):
        try:
            time.sleep(1.5)
            yield
        finally:
            for path in server.folder.glob("backup.*"):
                path.unlink()


def quota(server: Server) -> contextlib.AbstractContextManager[None]:
    """A third of one core for the server."""
    return confined(server.pid, "cpu", {"cpu.cfs_quota_us": "33000"})


def slow_device(server: Server) -> contextlib.AbstractContextManager[None]:
    """150 writes a second for the server on the device of its data."""
    device = os.stat(server.folder).st_dev
    limit = f"{os.major(device)}:{os.minor(device)} 150"
    return confined(server.pid, "blkio", {"blkio.throttle.write_iops_device": limit})


@contextlib.contextmanager
def few_files(server: Server) -> Iterator[None]:
    """400 descriptors: a server that root starts raises the limit that its options name."""
    owner = Path(f"/proc/{server.pid}").stat()

    def limit(soft: int) -> None:
        argv = ["prlimit", f"--pid={server.pid}", f"--nofile={soft}:"]
        subprocess.run(argv, check=True, user=owner.st_uid, group=owner.st_gid, extra_groups=[])

    limits = Path(f"/proc/{server.pid}/limits").read_text()
    before = next(int(line.split()[3]) for line in limits.splitlines() if line.startswith("Max open files"))
    limit(400)
    try:
        yield
    finally:
        limit(before)


@contextlib.contextmanager
def session(server: Server, *statements: str, then: str = "") -> Iterator[None]:
    """A session that runs these and stays; ``then`` runs in a second one, which waits for the first."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(
            contextlib.closing(pymysql.connect(unix_socket=server.socket, user="root", database="shop"))
        )
        for text in statements:
            first.cursor().execute(text)
        if then:
            code = (
                "import pymysql, sys\n"
                "c = pymysql.connect(unix_socket=sys.argv[1], user='root', database='shop').cursor()\n"
                "c.execute(sys.argv[2])"
            )
            stack.enter_context(processes(python(code, server.socket, then)))
            time.sleep(0.5)
        yield


@contextlib.contextmanager
def global_lock(server: Server) -> Iterator[None]:
    """A backup that locks all tables, releases them for a moment, and locks them again."""
    code = (
        "import pymysql, sys, time\n"
        "c = pymysql.connect(unix_socket=sys.argv[1], user='root').cursor()\n"
        "while True:\n"
        "    c.execute('FLUSH TABLES WITH READ LOCK'); time.sleep(1.5)\n"
        "    c.execute('UNLOCK TABLES'); time.sleep(0.1)\n"
    )
    with processes(python(code, server.socket)):
        time.sleep(0.5)
        yield


def forgotten(server: Server) -> contextlib.AbstractContextManager[None]:
    """A transaction that read and is idle; a change of the table waits for it, and all others for the change."""
    statements = ("SET autocommit = 0", "BEGIN", "SELECT * FROM items WHERE id = 1")
    return session(server, *statements, then="ALTER TABLE items ADD COLUMN extra INT")


def old_view(server: Server) -> contextlib.AbstractContextManager[None]:
    return session(server, "SET autocommit = 0", "START TRANSACTION WITH CONSISTENT SNAPSHOT")


CONNECT = """
import pymysql, sys
user, password, count = sys.argv[2], sys.argv[3], 0
with open(sys.argv[4], "w") as out:
    while True:
        try:
            pymysql.connect(host="127.0.0.1", port=int(sys.argv[1]), user=user, password=password).close()
        except pymysql.Error:
            pass
        count += 1
        if count % 4 == 0:
            out.write("x" * 4)
            out.flush()
"""


@contextlib.contextmanager
def connecting(server: Server, password: str = "right", programs: int = 6) -> Iterator[None]:
    """Clients that log in, and leave. They count in files of the server's folder."""
    server.sql(
        "CREATE USER IF NOT EXISTS comes_and_goes@'%' IDENTIFIED BY 'right'",
        "FLUSH PRIVILEGES",
    )
    argvs = [
        python(CONNECT, server.port, "comes_and_goes", password, server.folder / f"logins.{n}")
        for n in range(programs)
    ]
    with processes(*argvs):
        yield


def refused(server: Server) -> contextlib.AbstractContextManager[None]:
    return connecting(server, "wrong", programs=3)


@contextlib.contextmanager
def idle(server: Server, count: int, user: str = "root", password: str = "") -> Iterator[None]:
    login = {"unix_socket": server.socket, "user": user, "password": password}
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            with contextlib.suppress(pymysql.Error):
                stack.enter_context(contextlib.closing(pymysql.connect(**login)))
        yield


@contextlib.contextmanager
def too_many(server: Server) -> Iterator[None]:
    """More clients than may connect: 22 of 25 stay, two are the load's, and others come. root has a place more."""
    with connecting(server, programs=4), idle(server, 22, "comes_and_goes", "right"):
        yield


@contextlib.contextmanager
def statements_kept(server: Server) -> Iterator[None]:
    """A program that never closes its prepared statements."""
    code = (
        "import pymysql, sys, time\n"
        "c = pymysql.connect(unix_socket=sys.argv[1], user='root', database='shop').cursor()\n"
        "for n in range(int(sys.argv[2])): c.execute(f\"PREPARE s{n} FROM 'SELECT {n}'\")\n"
        "time.sleep(900)\n"
    )
    with processes(*2 * (python(code, server.socket, 95),)):
        time.sleep(1)
        yield


@contextlib.contextmanager
def burst(server: Server) -> Iterator[None]:
    """Bursts of connections, more than the accept queue holds."""
    code = (
        "import socket, sys, time\n"
        "while True:\n"
        "    made = []\n"
        "    for _ in range(200):\n"
        "        s = socket.socket(); s.setblocking(False); made.append(s)\n"
        "        s.connect_ex(('127.0.0.1', int(sys.argv[1])))\n"
        "    time.sleep(0.05)\n"
        "    for s in made: s.close()\n"
    )
    with processes(*2 * (python(code, server.port),)):
        yield
