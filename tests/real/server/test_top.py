"""`headrace top` on a real host: in a terminal, over SSH, without either; what comes back after it went."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pymysql
import pytest

from headrace.base.model import ServerLogin
from headrace.host.target import TargetSpec
from headrace.hunt.commands.live import Live
from headrace.hunt.live import Feed, Link
from tests import sshd
from tests.caches import Client, cache
from tests.programs import agent_path
from tests.servers import Server, mariadb, started
from tests.waiting import until_async

PATIENCE_S = 120.0
HEADRACE = Path(sys.executable).parent / "headrace"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with mariadb(folder / "m") as running:
        yield running


@contextlib.asynccontextmanager
async def following(feed: Feed) -> AsyncIterator[Feed]:
    task = asyncio.ensure_future(feed.run())
    try:
        yield feed
    finally:
        task.cancel()
        await asyncio.wait([task])


def samplers_of(pid: int) -> list[int]:
    """Our agents below a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text().rpartition(")")
            if int(rest.split()[1]) == pid and "headrace-agent" in name:
                found.append(int(path.parent.name))
    return found


async def test_a_sampler_that_dies_is_said_and_started_again() -> None:
    async with following(Feed(TargetSpec("local"))) as feed:
        await until_async(lambda: feed.ticks >= 2, what="two samples")
        before = feed.ticks
        (pid,) = samplers_of(os.getpid())
        os.kill(pid, 9)
        # The loss is known before its cause is.
        await until_async(lambda: feed.link is Link.LOST and "SIGKILL" in feed.problem, what="the loss")
        await until_async(lambda: feed.link is Link.LIVE and feed.ticks > before, what="its return")
        assert feed.problem == ""
        assert feed.ring.window(60).rate("cpu", "idle", "all") is not None
    # The last one has ended by now; a loaded loop reaps it a moment later.
    await until_async(lambda: samplers_of(os.getpid()) == [], what="the end of its processes")


async def test_a_server_that_goes_away_and_comes_back(server: Server) -> None:
    app = Live(Feed(TargetSpec("local"), ServerLogin(server.socket, user="root")))
    async with app.run_test(size=(100, 30)) as pilot:

        def text() -> str:
            return "\n".join(line.plain for line in app.shown)

        def is_live() -> bool:
            """Not so while a busy machine keeps samples back."""
            return "live" in text().splitlines()[0]

        await until_async(lambda: "questions/s" in text(), what="the server")
        await until_async(is_live, what="the host's samples")
        server.stop()
        try:
            await until_async(lambda: "server unreachable: " in text(), what="its absence")
            await until_async(is_live, what="the host without its server")
        finally:
            server.start()
        await until_async(lambda: "questions/s" in text(), what="its return")
        await pilot.resize_terminal(60, 16)
        await until_async(lambda: len(app.shown) == 16, what="the new size")
        await pilot.press("5")
        assert text().startswith("interrupts")
        await pilot.press("6")
        await until_async(lambda: "rules" in text() or "finding" in text().splitlines()[1], what="the rules")
        await pilot.press("p")
        assert "PAUSED" in text()
        await pilot.press("q")


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_a_blocked_row_is_named_by_hunt_and_by_top(kind: str, folder: Path) -> None:
    with started(kind, folder / kind) as server:
        server.sql(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, n INT)",
            "INSERT INTO shop.orders VALUES (1, 0)",
        )
        with contextlib.ExitStack() as stack:
            opened = [
                stack.enter_context(
                    contextlib.closing(
                        pymysql.connect(unix_socket=server.socket, user="root", ssl_disabled=True)
                    )
                )
                for _ in range(4)
            ]
            holder, *waiters = opened
            holder.begin()
            holder.cursor().execute("UPDATE shop.orders SET n = 1 WHERE id = 1")
            work = [threading.Thread(target=wait_for_row, args=(each,)) for each in waiters]
            for thread in work:
                thread.start()
            try:
                login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
                for command in (["hunt", "--duration", "6s"], ["top", "--once"]):
                    said = " ".join(run(*command, *login).split())
                    assert "the lock on shop.orders is held by connection" in said
                    assert f"connection {holder.thread_id()} of root@localhost" in said
            finally:
                holder.rollback()
                for thread in work:
                    thread.join()


def wait_for_row(connection: pymysql.Connection[pymysql.cursors.Cursor]) -> None:
    with contextlib.suppress(pymysql.Error):
        connection.cursor().execute("UPDATE shop.orders SET n = n + 1 WHERE id = 1")
        connection.commit()


def run(*words: str) -> str:
    environment = {**os.environ, "HEADRACE_AGENT": agent_path()}
    done = subprocess.run(
        [HEADRACE, *words], capture_output=True, text=True, check=True, timeout=120, env=environment
    )
    return done.stdout


@pytest.mark.needs("sshd")
async def test_an_ssh_connection_that_is_cut_is_made_again(tmp_path: Path) -> None:
    with sshd.running_sshd(tmp_path) as there:
        async with cable(there.port) as (port, cut):
            known = tmp_path / "known_of_the_cable"
            known.write_text(there.known_hosts.read_text().replace(str(there.port), str(port)))
            spec = TargetSpec(
                "ssh", "127.0.0.1", port, sshd.user(), identity_file=str(there.key), known_hosts=str(known)
            )
            async with following(Feed(spec)) as feed:
                await until_async(lambda: feed.ticks >= 2, what="two samples")
                before = feed.ticks
                cut()
                await until_async(lambda: feed.link is Link.LOST, what="the loss")
                assert feed.problem
                await until_async(lambda: feed.link is Link.LIVE and feed.ticks > before, what="its return")


@contextlib.asynccontextmanager
async def cable(to_port: int) -> AsyncIterator[tuple[int, Callable[[], None]]]:
    """A port that leads to another one, and how to cut every connection through it."""
    writers: set[asyncio.StreamWriter] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while content := await reader.read(65536):
                writer.write(content)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection("127.0.0.1", to_port)
        writers.update((writer, onward))
        await asyncio.gather(copy(reader, onward), copy(there, writer))

    def cut() -> None:
        for writer in writers:
            writer.transport.abort()
        writers.clear()

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1], cut
    finally:
        listener.close()
        cut()


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [("user@127.0.0.1:1", 10, "127.0.0.1"), ("no-such-folder", 3, "must be local")],
)
def test_what_cannot_be_watched_is_one_message(target: str, code: int, said: str) -> None:
    done = subprocess.run(
        [HEADRACE, "top", "--once", "--target", target],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_terminal_one_snapshot_is_printed(server: Server) -> None:
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    done = subprocess.run([HEADRACE, "top", *login], capture_output=True, text=True, check=True, timeout=60)
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert "questions/s" in done.stdout
    assert re.search(r"^  0 ▕.*▏ *\d+%", done.stdout, re.MULTILINE)
    done = subprocess.run(
        [HEADRACE, "top", "--json", *login], capture_output=True, text=True, check=True, timeout=60
    )
    found = json.loads(done.stdout)
    assert found["server"]["threads_connected"] >= 1
    assert 0 <= found["cpus"][0]["busy"] <= 1.001
    # performance_schema is off on this server, as MariaDB has it, and temptable is MySQL's.
    off = {"mysql_waits", "statements", "temptable"}
    assert found["errors"].keys() <= {"thermal", "powercap", "innodb_metrics", "md", "thread_pool", *off}


@pytest.mark.parametrize("no_color", [False, True])
def test_in_a_terminal(server: Server, no_color: bool) -> None:
    environment = {**os.environ, "TERM": "xterm-256color", "HEADRACE_AGENT": agent_path()}
    environment.pop("NO_COLOR", None)
    if no_color:
        environment["NO_COLOR"] = "1"
    pid, terminal = pty.fork()
    if pid == 0:
        argv = [str(HEADRACE), "top", "--mysql-socket", server.socket, "--mysql-user", "root"]
        os.execve(argv[0], argv, environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    try:
        said = read_until(terminal, "questions/s")
        os.write(terminal, b"5")
        said += read_until(terminal, "softirqs a second")
        os.write(terminal, b"q")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError):
                if select.select([terminal], [], [], 0.1)[0]:
                    said += os.read(terminal, 65536).decode("utf-8", "replace")
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            assert time.monotonic() < deadline, "q does not end it"
    except BaseException:
        os.kill(pid, 9)
        raise
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    colours = re.findall(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7])(?:;\d+)*m", said)
    assert bool(colours) is not no_color
    assert "\x1b[?1049l" in said  # the screen that was there before is back


def read_until(terminal: int, wanted: str) -> str:
    said = ""
    deadline = time.monotonic() + PATIENCE_S
    while wanted not in said:
        assert time.monotonic() < deadline, said[-2000:]
        if select.select([terminal], [], [], 0.2)[0]:
            said += os.read(terminal, 65536).decode("utf-8", "replace")
    return said


@pytest.mark.needs("memcached")
def test_a_snapshot_has_rates_of_memcached() -> None:
    stop = threading.Event()

    def work(client: Client) -> None:
        while not stop.wait(0.02):
            client.store(["there"], b"v")
            client.get(["there", "not"])

    with cache("-U", "0") as running:
        loading = threading.Thread(target=work, args=(running.client(),))
        loading.start()
        try:
            argv = [str(HEADRACE), "top", "--json"]
            done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
        finally:
            stop.set()
            loading.join()
        found = json.loads(done.stdout)["memcached"]
    (row,) = [each for each in found if each["name"] == running.address]
    assert row["hit_rate"] == pytest.approx(0.5, abs=0.01)
    assert row["requests_s"] > 0
    assert row["answer_s"] > 0
