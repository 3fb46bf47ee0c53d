"""A recorder's limits, whatever its source does."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import programs


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    """A source that is open for writing and never says anything."""
    path = tmp_path / "silent"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("asked", [False, True])
def test_a_source_that_never_ends_keeps_no_limit_from_holding(
    silent: Path, tmp_path: Path, asked: bool
) -> None:
    limits = [] if asked else ["--duration", "1s"]
    arguments = [programs.agent_path(), "record", str(silent), "-o", str(tmp_path / "out"), *limits]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as recorder:
        writer = os.open(silent, os.O_WRONLY)  # waits for the recorder
        try:
            if asked:
                recorder.send_signal(signal.SIGTERM)
            _, said = recorder.communicate(timeout=60)
        finally:
            os.close(writer)
            recorder.kill()
    assert recorder.returncode == 1
    assert "the decoder did not end" in said
