"""What tests of faults ask of the driver, and what holds whatever goes wrong."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.driver import Driven, drive, driven
from tests.programs import agent_path

CANNOT_CONNECT, CONNECTION_LOST, MALFORMED, NO_ANSWER = 2002, 2013, 2027, 3024
#: Beyond what a test asks for: starting the agent, on a busy machine.
SLACK_S = 5.0


def asking(sql: str = "SELECT 1", *, is_prepared: bool = False, **changes: Any) -> dict[str, Any]:
    """A SPEC of one operation, `ask`, of one statement: 60 times in 0.3 s, whatever the server does."""
    operation = {"name": "ask", "statements": [{"sql": sql}]}
    return {
        "workload": {"kind": "sql", "prepared": is_prepared, "operations": [operation]},
        "connections": 4,
        "seconds": 0.3,
        "operation_timeout_s": 10,
        "pacing": {"kind": "open", "arrivals": "constant", "rate_ops_s": 200},
        **changes,
    }


def tcp(port: int, user: str = "driver") -> list[str]:
    return ["--mysql-host", "127.0.0.1", "--mysql-port", str(port), "--mysql-user", user]


def begun(run: Driven, operation: str = "ask") -> int:
    """Operations that began: each ended well, ended badly, or was at work when the driver was stopped."""
    return run.sum("count", operation) + failed(run, operation) + int(run.end["unfinished"])


def failed(run: Driven, operation: str) -> int:
    return sum(run.histogram("failed", operation).values())


def errors(run: Driven, operation: str = "ask") -> dict[int, int]:
    return {error["code"]: error["count"] for error in run.end["errors"] if error["operation"] == operation}


def assert_adds_up(run: Driven, spec: dict[str, Any]) -> None:
    """What holds for every run, whatever went wrong in it."""
    window_s = run.window_s
    # What was due just before the end waits for a connection, then for its answer.
    limit_s = 2 * float(spec.get("operation_timeout_s", 60)) + SLACK_S
    assert 0 <= window_s <= spec["seconds"]
    assert 0 <= run.end["drain_s"] < limit_s
    for row in run.intervals:
        for kind in ("response", "service"):
            assert sum(count for _, count in row[kind]["buckets"]) == row["count"], row
    for operation in {row["operation"] for row in run.intervals}:
        # An error ends an operation, or is mended by beginning it anew.
        assert run.sum("errors", operation) == failed(run, operation) + run.sum("retries", operation)
        assert run.sum("errors", operation) == sum(errors(run, operation).values())
        assert run.sum("timeouts", operation) == errors(run, operation).get(NO_ANSWER, 0)
    for operation in run.start["operations"]:
        at_s = 0.0
        for row in run.rows(operation):
            assert row["t_s"] == pytest.approx(at_s, abs=1e-6)
            assert row["duration_s"] > 0
            if row["kind"] == "drain":
                assert at_s == pytest.approx(window_s, abs=1e-6)
                assert row["duration_s"] == pytest.approx(run.end["drain_s"], abs=1e-6)
            else:
                at_s += row["duration_s"]
        assert at_s == pytest.approx(window_s, abs=1e-6)


def assert_refused(login: list[str], spec: dict[str, Any], *words: str, limit_s: float = SLACK_S) -> str:
    """It could not run at all: exit code 6, no line of results, and in these words why. Returns them all."""
    begin_s = time.monotonic()
    done = drive(login, spec, check=False)
    assert time.monotonic() - begin_s < limit_s
    assert done.returncode == 6, done
    assert done.stdout == ""
    assert done.stderr.startswith("headrace-agent: cannot connect to ")
    for word in words:
        assert word in done.stderr
    return done.stderr


@contextlib.contextmanager
def meanwhile(login: list[str], spec: dict[str, Any]) -> Iterator[Callable[[], Driven]]:
    """Drives while the block does something; within it, a call waits for the end."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(driven, login, spec).result


def interrupted(login: list[str], spec: dict[str, Any], wait: Callable[[], object]) -> Driven:
    """Drives, and sends SIGINT when ``wait`` is over."""
    argv = [agent_path(), "drive", "run", "-", *login]
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=output, text=True) as process,
    ):
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(spec))
            process.stdin.close()
            wait()
            process.send_signal(signal.SIGINT)
            assert process.wait(SLACK_S) == 0
        finally:
            process.kill()
        output.seek(0)
        run = Driven.parse(output.read())
    assert "stopped before its end" in run.end["invalid"]
    return run
