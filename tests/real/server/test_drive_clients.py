"""Many clients as one: started at one instant, merged exactly, and never silently fewer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
import zstandard

from headrace.base.buckets import bucket_of
from headrace.base.errors import HeadraceError, NotReady, WorkloadFailed
from headrace.base.model import Option, ServerEndpoint, Vendor
from headrace.experiment.workloads import Context, Measurement, make_workload
from headrace.experiment.workloads.drive import clients
from headrace.experiment.workloads.drive.clients import Seat, drive
from headrace.host.target import Process, Target
from headrace.host.target.clock import read_clock
from headrace.host.target.local import LocalTarget
from headrace.lab.server import PrivateServer, ServerSpec
from tests import sshd
from tests.servers import free_port, open_folder
from tests.traces import processes_of
from tests.waiting import until_async

needs_sshd = pytest.mark.needs("sshd")

SECOND = 10**9
TABLE = (
    "CREATE TABLE headrace.sbtest1 (id INT PRIMARY KEY AUTO_INCREMENT, k INT NOT NULL DEFAULT 0, "
    "c CHAR(120) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', KEY k_1 (k)); "
    "INSERT INTO headrace.sbtest1 (k, c) SELECT seq, REPEAT('x', 119) FROM seq_1_to_1000"
)


@dataclass
class Bench:
    context: Context
    server: PrivateServer
    endpoint: ServerEndpoint
    rundir: Path

    async def run(self, targets: Sequence[Target], **options: Option) -> Measurement:
        plan: dict[str, Option] = {
            "script": "point_select",
            "table_size": 1000,
            "connections": 6,
            "rate": 300,
        }
        workload = make_workload("oltp", {**plan, **options})
        return await workload.run(replace(self.context, clients=tuple(targets)))

    def lines(self) -> list[list[dict[str, Any]]]:
        """What each driver wrote, read without the code under test."""
        found = []
        for path in sorted(self.context.raw.glob("*.jsonl.zst")):
            text = zstandard.ZstdDecompressor().stream_reader(path.open("rb")).read()
            found.append([json.loads(line) for line in text.splitlines()])
        return found


def make_context(raw: Path, endpoint: ServerEndpoint | None) -> Context:
    raw.mkdir()
    owner = f"test-{os.getpid()}-{time.monotonic_ns()}"
    return Context(LocalTarget(), owner, str(raw), endpoint, 2.0, 1.0, raw)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A private server that listens on loopback for clients on other machines, with a table."""
    with open_folder() as folder:
        spec = ServerSpec(Vendor.MARIADB, port=free_port())
        target, rundir = LocalTarget(), folder / "run"
        server = PrivateServer(target, spec, f"{folder}/data", str(rundir), "test", network_host="127.0.0.1")
        await server.initialise()
        endpoint = await server.start()
        try:
            await server.query("CREATE DATABASE headrace; USE headrace; " + TABLE)
            context = replace(make_context(tmp_path / "raw", endpoint), target=target)
            yield Bench(context, server, endpoint, rundir)
        finally:
            await server.stop(discard=True)


def counted(measured: Measurement, *, window: bool = False) -> int:
    rows = measured.intervals.to_pylist()
    return sum(row["count"] for row in rows if row["t_s"] >= 0 or not window)


def drivers_of(owner: str) -> list[int]:
    """The driver processes of this owner."""
    found = []
    for pid in processes_of(owner):
        with contextlib.suppress(OSError):
            if b"--output" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return sorted(found)


# --- for real -----------------------------------------------------------------------------------------


@needs_sshd
async def test_two_here_and_one_over_ssh(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "sshd").mkdir()
    with sshd.running_sshd(tmp_path / "sshd") as daemon:
        remote = daemon.target()
        await remote.connect()
        local = bench.context.target
        before = int((await bench.server.query("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'"))[0][1])
        measured = await bench.run([local, remote, local])
        after = int((await bench.server.query("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'"))[0][1])
        await remote.close()
    each = bench.lines()
    starts = [lines[0]["window_start_ns"] for lines in each]
    # All on one machine, so the instants can be compared: they differ by what it cost to read a clock.
    assert max(starts) - min(starts) < clients.MAX_CLOCK_ERROR_NS
    assert [lines[0]["connections"] for lines in each] == [2, 2, 2]
    own = [sum(line["count"] for line in lines if line["kind"] == "interval") for lines in each]
    late = sum(line["count"] for lines in each for line in lines if line["kind"] == "drain")
    assert counted(measured) == sum(own) == after - before - late
    assert min(own) > 0.2 * sum(own)
    # A rate of 300/s is that of all three together: Poisson, so within 4 standard deviations; and what a busy
    # machine left of the warm-up, which the measurement says.
    said = (re.search(r"(\d+) operations, .* still waiting when", text) for text in measured.warnings)
    left = sum(int(match[1]) for match in said if match)
    assert -4 * 600**0.5 < counted(measured, window=True) - 600 < 4 * 600**0.5 + left
    for kind in ("response", "service"):
        held = [r["count"] for r in measured.latency.to_pylist() if r["kind"] == kind]
        assert sum(held) == counted(measured, window=True) + late
    assert not [text for text in measured.invalid if "lost" in text]
    commands = [(bench.context.raw / f"drive-window-{i}.command").read_text() for i in (1, 2, 3)]
    assert ["--mysql-socket" in command for command in commands] == [True, False, True]
    assert f"--mysql-port {bench.endpoint.port}" in commands[1]
    scratch = [Path(shlex.split(command)[3]).parent for command in commands]
    assert len(set(scratch)) == 3
    assert not any(folder.exists() for folder in scratch)


async def test_the_password_is_in_no_argument_and_in_no_file_that_stays(bench: Bench) -> None:
    assert bench.endpoint.network is not None
    password = bench.endpoint.network.password
    assert len(password) >= 32
    assert password not in repr(bench.endpoint)
    await bench.server.query(
        "SET GLOBAL log_output = 'FILE', general_log = ON, slow_query_log = ON, long_query_time = 0"
    )
    await bench.server.restart()  # makes the account anew, in view of what is logged from the start
    elsewhere = LocalTarget()  # reached as another machine would be
    seen: set[bytes] = set()
    endpoint = await bench.server.restart()
    assert endpoint.network is not None
    password = endpoint.network.password
    bench.context = replace(bench.context, endpoint=endpoint)
    running = asyncio.create_task(bench.run([elsewhere]))
    while not running.done():
        for pid in processes_of(bench.context.owner):
            with contextlib.suppress(OSError):
                seen |= {Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")}
        await asyncio.sleep(0.05)
    measured = await running
    assert counted(measured) > 0
    assert any(b"--mysql-password-file" in text for text in seen)
    stored = [
        path for folder in (bench.context.raw, bench.rundir) for path in folder.rglob("*") if path.is_file()
    ]
    for text in [*seen, *(path.read_bytes() for path in stored)]:
        assert password.encode() not in text


async def test_the_network_lets_in_its_own_account_only(bench: Bench) -> None:
    login = bench.endpoint.network
    assert login is not None
    port = {"host": "127.0.0.1", "port": login.port, "ssl_disabled": True}
    with pytest.raises(pymysql.OperationalError):
        pymysql.connect(user="root", **port)
    with pytest.raises(pymysql.OperationalError):
        pymysql.connect(user=login.user, **port)
    with (
        pymysql.connect(user=login.user, password=login.password, **port) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT COUNT(*) FROM headrace.sbtest1")
        assert cursor.fetchone() == (1000,)
        with pytest.raises(pymysql.OperationalError):
            cursor.execute("SELECT * FROM mysql.user")
    listening = await bench.context.target.run(["ss", "-Hltn", f"sport = :{login.port}"])
    assert [line.split()[3] for line in listening.text.splitlines()] == [f"127.0.0.1:{login.port}"]


async def test_a_client_that_is_killed_makes_the_trial_invalid(bench: Bench) -> None:
    local = bench.context.target
    bench.context = replace(bench.context, seconds=30.0)
    began = time.monotonic()
    running = asyncio.create_task(bench.run([local, local]))
    await until_async(lambda: len(drivers_of(bench.context.owner)) == 2 or running.done(), what="two drivers")
    await asyncio.sleep(clients.LEAD_S + 3)
    os.kill(drivers_of(bench.context.owner)[0], signal.SIGKILL)
    measured = await running
    # Nothing is left to be measured, so the others need not go on.
    assert time.monotonic() - began < 20
    assert "a client was lost: client " in measured.invalid[0]
    assert "ended with -9" in measured.invalid[0]
    assert any("stopped before its end" in text for text in measured.invalid)
    assert counted(measured) > 0
    assert drivers_of(bench.context.owner) == []


async def broken(bench: Bench, folder: Path, *, comes_back: bool) -> Measurement:
    """Measure with a client on this machine and one over SSH, whose connection breaks in the window."""
    folder.mkdir()
    with sshd.running_sshd(folder) as daemon:
        remote = daemon.target(reconnect_s=0.5)
        await remote.connect()
        running = asyncio.create_task(bench.run([bench.context.target, remote]))
        await until_async(
            lambda: len(drivers_of(bench.context.owner)) == 2 or running.done(), what="two drivers"
        )
        await asyncio.sleep(clients.LEAD_S + 3)
        if not comes_back:
            daemon.known_hosts.write_text("")  # nobody is let in whom we do not know
        for pid in sessions_of(folder):
            os.kill(pid, signal.SIGKILL)
        measured = await running
        assert len(remote.interruptions) == int(comes_back)
        await remote.close()
    return measured


@needs_sshd
async def test_a_client_whose_connection_breaks_goes_on(bench: Bench, tmp_path: Path) -> None:
    bench.context = replace(bench.context, seconds=8.0)
    measured = await broken(bench, tmp_path / "sshd", comes_back=True)
    assert not any("was lost" in reason or "stopped" in reason for reason in measured.invalid)
    assert [lines[-1]["kind"] for lines in bench.lines()] == ["end", "end"]
    # 300 a second are asked for, of both together.
    assert abs(counted(measured, window=True) - 300 * 8) < 300
    assert drivers_of(bench.context.owner) == []


@needs_sshd
async def test_a_client_that_cannot_be_reached_any_more_makes_the_trial_invalid(
    bench: Bench, tmp_path: Path
) -> None:
    bench.context = replace(bench.context, seconds=30.0)
    measured = await broken(bench, tmp_path / "sshd", comes_back=False)
    assert "a client was lost: client 2 (" in measured.invalid[0]
    assert "the host's key is not in" in measured.invalid[0]
    assert counted(measured) > 0
    for pid in drivers_of(bench.context.owner):  # out of our reach, like on a machine that cannot be reached
        os.kill(pid, signal.SIGKILL)


def sessions_of(folder: Path) -> list[int]:
    """The processes that an sshd with its configuration in ``folder`` has for its connections."""
    parents: dict[int, int] = {}
    listeners = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid = int(stat.parent.name)
            parents[pid] = int(stat.read_text().rpartition(")")[2].split()[1])
            if str(folder / "sshd_config").encode() in (stat.parent / "cmdline").read_bytes():
                listeners.add(pid)
    return [pid for pid, parent in parents.items() if parent in listeners]


async def test_a_server_that_admits_nobody_is_quoted(bench: Bench) -> None:
    endpoint = replace(bench.endpoint, socket="/nowhere/sock")
    bench.context = replace(bench.context, endpoint=endpoint)
    local = bench.context.target
    with pytest.raises(
        WorkloadFailed,
        match=r"headrace-agent drive run ended with 6: cannot connect to /nowhere/sock: No such file",
    ):
        await bench.run([local, local])


# --- with a driver of our own making ------------------------------------------------------------------

FAKE = """#!{python}
import json, os, sys, time
spec, output = json.load(open(sys.argv[3])), sys.argv[sys.argv.index("--output") + 1]
def now():
    return time.time_ns() + int(os.environ.get("AHEAD_NS", 0))
{body}
"""
READY = 'print(json.dumps({"kind": "ready"}, separators=(",", ":")), flush=True)\n'
DRIVES = (
    READY
    + """
start = json.loads(sys.stdin.readline())["start_at_ns"]
assert start > now()
time.sleep((start - now()) / 1e9)
held = {"min_ns": 5, "max_ns": 5, "buckets": [[5, 1]]}
none = {"min_ns": None, "max_ns": None, "buckets": []}
zero = {key: 0 for key in ("errors", "retries", "timeouts", "rows", "bytes")}
lines = [
    {"kind": "start", "operations": ["x"]},
    {"kind": "interval", "t_s": 0.0, "duration_s": 1.0, "operation": "x", "count": 1, **zero,
     "response": held, "service": held, "failed": none},
    {"kind": "end", "window_start_ns": start, "window_end_ns": start + 10**9, "errors": [], "connections_lost": 0,
     "unfinished": 0, "invalid": [], "warnings": ["began at " + str(time.time_ns())]},
]
import zstandard
open(output, "wb").write(zstandard.compress("".join(json.dumps(l) + chr(10) for l in lines).encode()))
"""
)
SPEC: Mapping[str, Any] = {"workload": {}, "warmup_s": 0.0, "seconds": 1.0, "operation_timeout_s": 1.0}


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_context(tmp_path / "raw", None)


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    program = tmp_path / "headrace-agent"
    program.write_text(FAKE.format(python=sys.executable, body=body))
    program.chmod(0o755)
    monkeypatch.setenv("HEADRACE_AGENT", str(program))


class Elsewhere(LocalTarget):
    """A machine whose clock is ahead of ours, and which may be slow to tell the time."""

    def __init__(self, ahead_ns: int = 0, delay_s: float = 0.0) -> None:
        super().__init__()
        self.name = "elsewhere"
        self._ahead_ns = ahead_ns
        self._delay_s = delay_s

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdout_path: str | None = None,
        stderr_path: str | None = None,
        detached: bool = False,
    ) -> Process:
        clock = f"sleep {self._delay_s}; echo $(( $(date +%s%N) + {self._ahead_ns} ))"
        argv = [word.replace("date +%s%N", clock) for word in argv]
        env = {**(env or {}), "AHEAD_NS": str(self._ahead_ns)}
        return await super().spawn(
            argv, env=env, stdout_path=stdout_path, stderr_path=stderr_path, detached=detached
        )


async def test_clocks_that_differ_make_no_difference(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, monkeypatch, DRIVES)
    ahead = Elsewhere(ahead_ns=3600 * SECOND)
    measured = await drive(context, SPEC, [Seat(context.target, ()), Seat(ahead, ())])
    began = [int(text.rpartition(" ")[2]) for text in measured.warnings]
    assert max(began) - min(began) < 0.5 * SECOND  # in true time, whatever the clocks say
    # The window is dated by the target's clock.
    assert abs(measured.window_start_ns - min(began)) < 0.5 * SECOND
    assert counted(measured) == 2
    # And where only the other machine drives, too.
    measured = await drive(context, SPEC, [Seat(ahead, ())])
    assert abs(measured.window_start_ns - int(measured.warnings[0].rpartition(" ")[2])) < 0.5 * SECOND


async def test_a_clock_is_read_in_spite_of_a_slow_reading() -> None:
    clock = await read_clock(Elsewhere(ahead_ns=-5 * SECOND))
    assert abs(clock.offset_ns + 5 * SECOND) <= clock.error_ns + 1_000_000


async def test_a_clock_that_takes_long_to_read_is_refused(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, monkeypatch, DRIVES)
    with pytest.raises(NotReady, match=r"clock cannot be read more precisely than \d+ ms \(limit 20 ms\)"):
        await drive(context, SPEC, [Seat(Elsewhere(delay_s=0.1), ())])


async def test_a_machine_far_away_agrees_with_itself(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, monkeypatch, DRIVES)
    far = Elsewhere(ahead_ns=3600 * SECOND, delay_s=0.1)
    measured = await drive(replace(context, target=far), SPEC, [Seat(far, ())])
    assert counted(measured) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            'sys.stderr.write("headrace-agent: no such table\\n"); sys.exit(1)',
            "drive run ended with 1: no such table",
        ),
        ("os.kill(os.getpid(), 9)", "drive run ended with -9"),
        ('print("hello"); time.sleep(60)', "said 'hello' instead of `ready`"),
        (READY + "sys.stdin.readline(); sys.exit(3)", "drive run ended with 3"),
    ],
)
async def test_a_driver_that_fails_is_quoted(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    fake(tmp_path, monkeypatch, body)
    with pytest.raises(WorkloadFailed, match=message):
        await drive(context, SPEC, [Seat(context.target, ())])
    assert processes_of(context.owner) == []


async def test_a_driver_that_wrote_nothing_is_an_error(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, monkeypatch, READY + "sys.stdin.readline()")
    with pytest.raises((HeadraceError, FileNotFoundError)):
        await drive(context, SPEC, [Seat(context.target, ())])


async def test_a_driver_that_never_gets_ready_is_stopped(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, monkeypatch, "time.sleep(600)")
    monkeypatch.setattr(clients, "READY_LIMIT_S", 0.5)
    with pytest.raises(WorkloadFailed, match="had not established its connections"):
        await drive(context, SPEC, [Seat(context.target, ())])
    assert processes_of(context.owner) == []


async def test_a_driver_that_never_ends_is_stopped(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, monkeypatch, READY + "time.sleep(600)")
    monkeypatch.setattr(clients, "END_GRACE_S", -1.5)
    with pytest.raises(WorkloadFailed, match="did not end within"):
        await drive(context, SPEC, [Seat(context.target, ())])
    assert processes_of(context.owner) == []


def test_the_fakes_latency_is_a_bucket_of_its_own() -> None:
    assert int(bucket_of(5)) == 5
