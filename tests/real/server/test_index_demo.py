"""`headrace demo indexes`, interrupted: its servers and its data go with it. Its whole run: test_tutorials.py."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import traces
from tests.waiting import until


def processes_below(place: str) -> list[str]:
    commands = (b" ".join(words).decode(errors="replace") for words in traces.commands().values())
    return [command for command in commands if place in command]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_demo_leaves_no_server(how: signal.Signals, tmp_path: Path) -> None:
    env = {**os.environ, "HEADRACE_STATE": str(tmp_path / "state"), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "demo", "indexes", "--rows", "20000"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env,
    )  # fmt: skip
    assert process.stdout is not None
    place = ""
    for line in process.stdout:
        if found := re.search(r"/var/tmp/\.headrace-local-\w+", line):
            place = found[0]
            break
    assert len(processes_below(place)) >= 2  # its servers
    process.send_signal(how)
    process.stdout.close()
    assert process.wait(60) == (-how if how is signal.SIGKILL else 130)
    # Killed, its servers end by the lease, and the next command that makes such a folder removes this one.
    until(lambda: not processes_below(place))
    assert how is signal.SIGKILL or not Path(place).exists()
