"""What blocks is no input: a pipe by its name, a device. Standard input and a shell's <(...) are read."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.base import toml
from headrace.base.errors import HeadraceError
from headrace.experiment.foreign.table import decoded
from headrace.fleet import inventory
from headrace.hunt.dumps import files
from headrace.traffic.commands.digest import _for_agent
from tests.programs import agent_path

LOG = """# Time: 2026-01-01T00:00:00.000000Z
# User@Host: a[a] @ h [1.2.3.4]  Id: 3
# Query_time: 0.1  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 1
SET timestamp=1767225600;
select 1;
"""
AGENT = {
    "digest": ["digest"],
    "recording": ["recording", "info"],
    "replay": ["replay", "--mysql-socket", "/nonexistent"],
    "record": ["record", "-o", "out"],
    "drive": ["drive", "check"],
}
READERS: dict[str, Callable[[Path], object]] = {
    "plan": toml.read,
    "hosts": lambda at: inventory.load(str(at)),
    "import": decoded,
    "hunt": lambda at: files.opened(at, at.parent / "scratch"),
}


@pytest.fixture(params=["pipe", "device", "link"])
def blocks(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "source"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "link":
        path.symlink_to("/dev/zero")
    return path if request.param != "device" else Path("/dev/zero")


@pytest.mark.parametrize("verb", AGENT)
def test_the_agent_refuses_what_blocks_at_once_as_what_it_is(blocks: Path, verb: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [agent_path(), *AGENT[verb], str(blocks)],
        capture_output=True, text=True, timeout=20, check=False, cwd=tmp_path, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "not a plain file" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("what", READERS)
def test_a_reader_refuses_what_blocks_at_once_as_what_it_is(blocks: Path, what: str) -> None:
    began = time.monotonic()
    with pytest.raises((OSError, HeadraceError), match="not a plain file"):
        READERS[what](blocks)
    assert time.monotonic() - began < 10


@pytest.fixture
def handed() -> Iterator[Callable[[str], Path]]:
    """A pipe as the shell's <(...) makes it: its writer has ended, and this process holds the other end."""
    ends: list[int] = []

    def make(text: str) -> Path:
        reader, writer = os.pipe()
        os.write(writer, text.encode())
        os.close(writer)
        ends.append(reader)
        return Path(f"/dev/fd/{reader}")

    yield make
    for each in ends:
        os.close(each)


def test_what_a_shell_hands_over_is_read(handed: Callable[[str], Path]) -> None:
    assert toml.read(handed("name = 'x'\n")) == "name = 'x'\n"
    assert list(inventory.load(str(handed("db1\ndb2\n"))).hosts) == ["db1", "db2"]
    assert decoded(handed("a,x\n1,2\n"))[0] == "a,x\n1,2\n"


def test_the_agent_reads_what_a_shell_hands_over_and_a_pipe_on_standard_input(
    handed: Callable[[str], Path], tmp_path: Path
) -> None:
    def events(source: str, stdin: int | None = None) -> str:
        done = subprocess.run(
            [agent_path(), "digest", source],
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert '"select' in events(_for_agent(str(handed(LOG)))).lower()
    assert _for_agent("/dev/stdin") == _for_agent("/dev/fd/0") == "-"
    os.mkfifo(tmp_path / "pipe")
    write = ["sh", "-c", 'printf %s "$0" > "$1"', LOG, str(tmp_path / "pipe")]
    with subprocess.Popen(write), (tmp_path / "pipe").open("rb") as source:
        assert '"select' in events("-", stdin=source.fileno()).lower()
