"""Text files are whole or absent, whoever is killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.whole import write_whole

#: Writes until it is told to stop; says so when the draft has been begun.
WRITER = """
import os, sys, time
from pathlib import Path
from headrace import whole

def stuck(_):
    print("begun", flush=True)
    time.sleep(60)

os.fsync = stuck
whole.write_whole(Path(sys.argv[1]), "new" * 100_000)
"""


def begun(path: Path) -> subprocess.Popen[str]:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "begun\n"
    return writer


def test_a_killed_writer_leaves_the_old_file_and_the_next_one_removes_its_draft(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    writer = begun(path)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    write_whole(path, "next")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "next"


def test_a_draft_that_is_being_written_is_left_to_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    writer = begun(path)
    try:
        write_whole(path, "mine")
        assert path.read_text() == "mine"
        assert len(list(tmp_path.iterdir())) == 2
    finally:
        writer.kill()
        writer.wait()


def test_a_link_or_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "page")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page").read_text() == "text"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o640), (0o644, 0o644), (0o600, 0o600)])
def test_the_umask_decides_unless_a_mode_is_asked_for(
    tmp_path: Path, mode: int | None, expected: int
) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", "text", mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == expected


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "file", "\udc80")
    assert list(tmp_path.iterdir()) == []
