"""Recordings that could not be made to their end: nothing is left that looks like a whole one."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.programs import agent_path

#: Command -> what stands after the input.
EDITS = {"cut": [], "filter": ["text~SELECT"], "merge": [], "anonymise": []}
MOST_BYTES = 64 << 10


def statement(number: int) -> str:
    return (
        "# User@Host: app[app] @ localhost []  Id:     1\n"
        "# Query_time: 0.001000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1\n"
        f"SET timestamp={1767225600 + number // 50};\n"
        f"SELECT * FROM t WHERE v = '{os.urandom(400).hex()}';\n"
    )


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than the limit of the edits, whatever is compressed."""
    folder = tmp_path_factory.mktemp("recording")
    (folder / "slow.log").write_text("".join(map(statement, range(2_000))))
    command = [
        agent_path(),
        "record",
        str(folder / "slow.log"),
        "-o",
        str(folder / "a.rec"),
        "--with-literals",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "a.rec"


def words(command: str, recording: Path, output: Path, *more: str) -> list[str]:
    return [agent_path(), "recording", command, str(recording), *EDITS[command], "-o", str(output), *more]


def with_little_room() -> None:
    """A full disk, as far as one process can have it for itself."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def run(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **how)


@pytest.mark.parametrize("command", EDITS)
def test_without_room_nothing_is_left(recording: Path, tmp_path: Path, command: str) -> None:
    done = run(words(command, recording, tmp_path / "b.rec"), preexec_fn=with_little_room)
    assert done.returncode != 0
    assert "cannot write" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", EDITS)
def test_without_room_the_file_of_before_stays(recording: Path, tmp_path: Path, command: str) -> None:
    output = tmp_path / "b.rec"
    output.write_bytes(b"of before")
    done = run(words(command, recording, output, "--force"), preexec_fn=with_little_room)
    assert done.returncode != 0
    assert [path.name for path in tmp_path.iterdir()] == ["b.rec"]
    assert output.read_bytes() == b"of before"
    assert run(words(command, recording, output, "--force")).returncode == 0
    found = json.loads(run([agent_path(), "recording", "verify", str(output)]).stdout)
    assert (found["is_whole"], found["events"]) == (True, 2_000)


def halfway(command: str, recording: Path, folder: Path) -> subprocess.Popen[str]:
    """An edit that was stopped after it has begun to write."""
    many = folder / "many.rec"
    if not many.exists():
        run([agent_path(), "recording", "merge", *[str(recording)] * 60, "-o", str(many)])
    editing = subprocess.Popen(words(command, many, folder / "b.rec"), stderr=subprocess.PIPE, text=True)
    while not (parts := list(folder.glob(".b.rec.*.part"))) or not parts[0].stat().st_size:
        assert editing.poll() is None, "it was over before it was seen"
        time.sleep(0.001)
    editing.send_signal(signal.SIGSTOP)
    return editing


@pytest.mark.parametrize("command", EDITS)
def test_a_killed_edit_leaves_no_recording(recording: Path, tmp_path: Path, command: str) -> None:
    with halfway(command, recording, tmp_path) as editing:
        editing.kill()
    left = {path.name for path in tmp_path.iterdir()} - {"many.rec"}
    assert left == {f".b.rec.{editing.pid}.part"}
    # It is not in the way of the next one.
    assert run(words(command, recording, tmp_path / "b.rec")).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_edit_that_is_asked_to_stop_leaves_nothing(
    recording: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with halfway("cut", recording, tmp_path) as editing:
        editing.send_signal(number)
        editing.send_signal(signal.SIGCONT)
        said = editing.communicate(timeout=60)[1]
    assert editing.returncode == 130, said
    assert [path.name for path in tmp_path.iterdir()] == ["many.rec"]


def test_two_at_once_make_one_recording(recording: Path, tmp_path: Path) -> None:
    with halfway("merge", recording, tmp_path) as first:
        second = run(words("cut", recording, tmp_path / "b.rec"))
        assert second.returncode == 0, second.stderr
        content = (tmp_path / "b.rec").read_bytes()
        first.send_signal(signal.SIGCONT)
        said = first.communicate(timeout=60)[1]
    assert first.returncode == 5, said
    assert "exists already" in said
    assert (tmp_path / "b.rec").read_bytes() == content
    assert {path.name for path in tmp_path.iterdir()} == {"b.rec", "many.rec"}
