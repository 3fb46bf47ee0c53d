"""A recorder's limits, whatever its source does."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import programs
from tests.waiting import until


@pytest.mark.parametrize("asked", [False, True])
def test_a_source_that_never_ends_keeps_no_limit_from_holding(tmp_path: Path, asked: bool) -> None:
    limits = [] if asked else ["--duration", "1s"]
    # Open for writing, and never says anything.
    source, writer = os.pipe()
    where = f"/proc/{os.getpid()}/fd/{source}"
    arguments = [programs.agent_path(), "record", where, "-o", str(tmp_path / "out"), *limits]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as recorder:
        try:
            if asked:
                until((tmp_path / "out").exists)
                recorder.send_signal(signal.SIGTERM)
            _, said = recorder.communicate(timeout=60)
        finally:
            os.close(writer)
            os.close(source)
            recorder.kill()
    assert recorder.returncode == 1
    assert "the decoder did not end" in said


def test_an_output_that_is_there_is_refused_before_a_server_is_asked(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("mine")
    nobody = ["--mysql-socket", str(tmp_path / "no.sock")]
    arguments = [programs.agent_path(), "record", "--interface", "lo", "-o", str(output), *nobody]
    refused = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert "exists already; --force writes over it" in refused.stderr
    assert output.read_text() == "mine"
