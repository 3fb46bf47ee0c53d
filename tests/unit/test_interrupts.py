"""Ctrl-C before a command has handlers of its own."""

from __future__ import annotations

import subprocess
import sys

SWALLOWED = """
import asyncio, os, signal
from headrace.cli import interrupts, shell

# nohup starts the tests with it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
interrupts.remember()
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    pass  # as an extension module does that calls back into Python
shell.run_until_signal(lambda: asyncio.sleep(600))
"""


def test_one_that_a_module_swallowed_ends_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SWALLOWED], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stderr.startswith("\nstopping ...\nstopped\n"), done.stderr
    assert done.stderr.endswith("Exit: 130\n"), done.stderr


def test_an_ignored_one_stays_ignored() -> None:
    words = "from headrace.cli import interrupts; interrupts.remember(); "
    words += "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    argv = ["sh", "-c", 'trap \'\' INT; exec "$0" -c "$1"', sys.executable, words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
