"""The lock of an experiment's directory after its runner was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.base.errors import Busy
from headrace.experiment import runner

#: A runner that is killed while it starts a program: the child has the lock for as long as it waits for a line.
KILLED = """
import os, signal, sys
from pathlib import Path
from headrace.experiment.runner import exclusive
with exclusive(Path(sys.argv[1])):
    if os.fork() == 0:
        print("ready", flush=True)
        sys.stdin.readline()
        os._exit(0)
    os.wait() if "alive" in sys.argv else os.kill(os.getpid(), signal.SIGKILL)
"""


def started(path: Path, *words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", KILLED, str(path), *words]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def test_the_next_runner_waits_for_what_a_killed_one_was_starting(tmp_path: Path) -> None:
    process = started(tmp_path)
    process.wait()
    waits = iter(range(3))

    def sleep(_: float) -> None:
        if next(waits, None) is None and process.stdin and not process.stdin.closed:
            process.stdin.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.experiment.runner.time.sleep", sleep)
        patch.setattr(runner, "STARTING_S", 600.0, raising=False)
        with runner.exclusive(tmp_path):
            assert (tmp_path / ".lock").read_text() == str(os.getpid())


def test_one_that_lives_is_named_without_a_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = started(tmp_path, "alive")
    monkeypatch.setattr("headrace.experiment.runner.time.sleep", lambda _: pytest.fail("it waited"))
    with pytest.raises(Busy, match=f"is being run by process {process.pid}$"), runner.exclusive(tmp_path):
        pass
    process.communicate("\n")
