"""Temporary folders: private, gone at the end, and removed later if their command was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.base import temporary
from headrace.base.temporary import temporary_folder

HOLD = """
import sys
from pathlib import Path
from headrace.base.temporary import temporary_folder
with temporary_folder(Path(sys.argv[1])) as folder:
    (folder / "file").write_text("text")
    print(folder, flush=True)
    sys.stdin.read()
"""


def holder(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """A command that has a folder until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


def test_it_is_private_and_gone_at_the_end(tmp_path: Path) -> None:
    with contextlib.suppress(KeyError), temporary_folder(tmp_path) as folder:
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").write_text("text")
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_that_of_a_killed_command_is_removed_by_the_next_one_and_others_are_not(tmp_path: Path) -> None:
    killed, left = holder(tmp_path)
    living, used = holder(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    (tmp_path / "headrace-abcdefgh").mkdir()
    (tmp_path / ".headrace-local-file").touch()
    (tmp_path / ".headrace-local-link").symlink_to(tmp_path / "headrace-abcdefgh")
    assert (left / "file").exists()
    with temporary_folder(tmp_path):
        assert not left.exists()
        assert (used / "file").exists()
    living.communicate("")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".headrace-local-file",
        ".headrace-local-link",
        "headrace-abcdefgh",
    ]


def test_one_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, calls = temporary._lock, []

    def late(folder: Path) -> int | None:
        calls.append(folder)
        if len(calls) == 1:
            os.rmdir(folder)
        return lock(folder)

    monkeypatch.setattr(temporary, "_lock", late)
    with temporary_folder(tmp_path) as folder:
        assert folder.is_dir()
        assert folder == calls[-1] != calls[0]
