"""What the capture proxy says before a client comes."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.programs import agent_path


@pytest.mark.parametrize(
    ("listen", "server", "is_told"),
    [
        ("0.0.0.0:0", "127.0.0.1:1", True),
        ("0.0.0.0:0", "192.0.2.1:3306", False),
        ("127.0.0.1:0", "127.0.0.1:1", False),
    ],
)
def test_a_proxy_that_makes_strangers_local_says_so(listen: str, server: str, is_told: bool) -> None:
    argv = [agent_path(), "proxy", "--listen", listen, "--server", server]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert ("accounts of localhost are open to the network" in said) is is_told
