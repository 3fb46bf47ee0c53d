"""What a script learns from the exit codes of the agent's traffic commands (docs/reference/exit-codes.md)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.programs import agent_path

LOG = """# Time: 2026-01-01T00:00:00.000000Z
# User@Host: app[app] @ localhost []  Id:     1
# Query_time: 0.001000  Lock_time: 0.000000 Rows_sent: 1  Rows_examined: 1
SET timestamp=1767225600;
SELECT 1;
"""
SPEC = {"workload": {"kind": "oltp", "script": "point_select"}, "connections": 2, "seconds": 0.2}
#: A server that is not there.
NO_SERVER = ["--mysql-host", "127.0.0.1", "--mysql-port", "1", "--mysql-user", "app"]
PROXIED = ["--server", "127.0.0.1:1"]
NOBODY = 65534
#: In the long log.
EVENTS = 3_000


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Files that any user may look for, and some that only root may read or write."""
    made = Path(tempfile.mkdtemp(prefix="headrace-"))
    made.chmod(0o755)
    for name, content in {
        "slow.log": LOG,
        "private.log": LOG,
        "junk": "\0\1\2" * 99,
        "spec": json.dumps(SPEC),
    }.items():
        (made / name).write_text(content)
    shutil.copy(agent_path(), made / "agent")
    for name, mode in {"slow.log": 0o644, "spec": 0o644, "private.log": 0o600, "agent": 0o755}.items():
        (made / name).chmod(mode)
    (made / "directory").mkdir()
    (made / "all").mkdir()
    (made / "all").chmod(0o777)
    assert agent("record", made / "slow.log", "-o", made / "a.rec", "--with-literals").returncode == 0
    (made / "a.rec").chmod(0o644)
    whole = (made / "a.rec").read_bytes()
    (made / "damaged.rec").write_bytes(whole[:-40] + bytes(40))
    (made / "long.log").write_text(
        "".join(LOG.replace("SELECT 1", f"SELECT 1 FROM t{n}") for n in range(EVENTS))
    )
    assert agent("record", made / "long.log", "-o", made / "long.rec").returncode == 0
    yield made
    shutil.rmtree(made)


def agent(*words: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
    how = {"stdin": subprocess.DEVNULL, "executable": agent_path(), **how}
    return subprocess.run(
        ["headrace-agent", *map(str, words)], capture_output=True, text=True, check=False, timeout=30, **how
    )


INPUTS = {"a file that is not there": "missing", "a directory": "directory", "no traffic": "junk"}
READERS: dict[str, list[str]] = {
    "digest": ["digest", "{}"],
    "record": ["record", "{}", "-o", "{folder}/all/out"],
    "events": ["events", "{}"],
    "recording info": ["recording", "info", "{}"],
    "recording cut": ["recording", "cut", "{}", "-o", "{folder}/all/out"],
    "recording merge": ["recording", "merge", "{}", "-o", "{folder}/all/out"],
    "replay": ["replay", "{}", *NO_SERVER],
    "replay --answers": ["replay", "{folder}/a.rec", "--answers", "{}", *NO_SERVER],
    "replay --user-map": ["replay", "{folder}/a.rec", "--user-map", "{}", *NO_SERVER],
    "anonymise": ["recording", "anonymise", "{folder}/a.rec", "-o", "{folder}/all/out", "--key-file", "{}"],
    "drive run": ["drive", "run", "{}", *NO_SERVER],
    "drive check": ["drive", "check", "{}", *NO_SERVER],
    "proxy": ["proxy", "--listen", "127.0.0.1:0", *PROXIED, "--tls-cert", "{}", "--tls-key", "{}"],
}  # fmt: skip


def filled(words: list[str], folder: Path, path: Path) -> list[str]:
    return [word.replace("{folder}", str(folder)).replace("{}", str(path)) for word in words]


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_cannot_be_read_is_a_wrong_file(folder: Path, reader: str, name: str) -> None:
    (folder / "junk").chmod(0o600)
    done = agent(*filled(READERS[reader], folder, folder / INPUTS[name]))
    assert done.returncode == 3, done.stderr
    assert not list((folder / "all").iterdir())


WRITERS: dict[str, list[str]] = {
    "digest": ["digest", "{folder}/slow.log", "-o", "{}"],
    "record": ["record", "{folder}/slow.log", "-o", "{}"],
    "recording cut": ["recording", "cut", "{folder}/a.rec", "-o", "{}"],
    "recording merge": ["recording", "merge", "{folder}/a.rec", "--force", "-o", "{}"],
    "recording anonymise": ["recording", "anonymise", "{folder}/a.rec", "-o", "{}"],
    "proxy": ["proxy", "--listen", "127.0.0.1:0", *PROXIED, "-o", "{}"],
    "proxy --events": ["proxy", "--listen", "127.0.0.1:0", *PROXIED, "--events", "{}"],
    "sample": ["sample", "--duration", "1s", "--output", "{}"],
}


@pytest.mark.parametrize("name", ["missing/out", "directory", "slow.log/out"])
@pytest.mark.parametrize("writer", WRITERS)
def test_an_output_that_cannot_be_made_is_a_wrong_file(folder: Path, writer: str, name: str) -> None:
    done = agent(*filled(WRITERS[writer], folder, folder / name))
    assert done.returncode == 3, done.stderr
    assert str(folder / name) in done.stderr


LOCKED: dict[str, tuple[list[str], str, int]] = {
    **{f"{name}: input": (READERS[name], "private.log", 3) for name in ("digest", "record", "drive run")},
    "recording info: input": (READERS["recording info"], "private.log", 3),
    **{f"{name}: output": (words, "out", 3) for name, words in WRITERS.items()},
    "record --append": (
        ["record", "{folder}/slow.log", "--append", "--with-literals", "-o", "{}"],
        "a.rec",
        3,
    ),
    "record --interface": (["record", "--interface", "lo", "-o", "{}"], "all/out", 4),
    "digest --interface": (["digest", "--interface", "lo"], "", 4),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files")
@pytest.mark.parametrize("locked", LOCKED)
def test_without_permission(folder: Path, locked: str) -> None:
    words, name, code = LOCKED[locked]
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "executable": folder / "agent"}
    done = agent(*filled(words, folder, folder / name), **user)
    assert done.returncode == code, done.stderr
    assert not list((folder / "all").iterdir())


@pytest.mark.parametrize("verb", ["check", "load", "run", "clean"])
def test_a_server_that_is_not_there_cannot_be_reached(folder: Path, verb: str) -> None:
    for server in (
        NO_SERVER,
        ["--mysql-socket", str(folder / "missing")],
        ["--mysql-host", "no.such.host.invalid"],
    ):
        done = agent("drive", verb, folder / "spec", *server)
        assert (done.returncode, done.stdout) == (6, ""), done.stderr


def test_a_replay_without_its_server_cannot_reach_it(folder: Path) -> None:
    assert agent("replay", folder / "a.rec", *NO_SERVER).returncode == 6


@pytest.mark.parametrize("verb", ["load", "run", "clean"])
def test_a_cache_that_is_not_there_cannot_be_reached(tmp_path: Path, verb: str) -> None:
    spec = {**SPEC, "workload": {"kind": "memcached", "address": "127.0.0.1:1"}}
    (tmp_path / "spec").write_text(json.dumps(spec))
    done = agent("drive", verb, tmp_path / "spec")
    assert (done.returncode, done.stdout) == (6, ""), done.stderr


def test_a_cache_that_dies_while_it_is_filled_is_no_success(tmp_path: Path) -> None:
    """Its broken pipe was taken for that of a reader who had seen enough."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        size = {"kind": "fixed", "bytes": 100_000}
        workload = {"kind": "memcached", "address": address, "keys": 400, "value_bytes": size}
        (tmp_path / "spec").write_text(json.dumps({**SPEC, "workload": workload}))
        command = [agent_path(), "drive", "load", str(tmp_path / "spec")]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as loading:
            client, _ = server.accept()
            client.recv(100)
            # What is unread is a reset for who sends more.
            client.close()
            server.close()
            said = loading.communicate(timeout=60)[1]
    assert loading.returncode == 6, said


@pytest.mark.parametrize(
    ("listen", "code"), [("taken", 7), ("192.0.2.1:4444", 3), ("nonsense", 3), ("127.0.0.1:99999", 3)]
)
def test_where_a_proxy_cannot_listen(listen: str, code: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        at = f"127.0.0.1:{other.getsockname()[1]}" if listen == "taken" else listen
        done = agent("proxy", "--listen", at, "--server", "127.0.0.1:1")
    assert done.returncode == code, done.stderr


def test_a_proxy_whose_server_has_no_address(folder: Path) -> None:
    for server in (["--server", "no.such.host.invalid:3306"], ["--server-socket", str(folder / "missing")]):
        assert agent("proxy", "--listen", "127.0.0.1:0", *server).returncode == 6


def test_a_damaged_recording_is_damaged(folder: Path) -> None:
    done = agent("recording", "verify", folder / "damaged.rec")
    assert done.returncode == 9, done.stderr
    assert json.loads(done.stdout)["is_whole"] is False


def test_what_a_cut_recording_lost_is_counted(folder: Path) -> None:
    """Its last block tells how many events it had; what came after is not known, and its end is missing."""
    cut = folder / "cut.rec"
    cut.write_bytes((folder / "long.rec").read_bytes()[:900])
    done = agent("recording", "verify", cut)
    found = json.loads(done.stdout)
    assert (done.returncode, found["is_whole"], found["unfinished_segments"]) == (9, False, 1)
    assert found["events"] + found["events_lost"] == EVENTS, found
    assert f"{found['events_lost']} events are lost" in found["damage"]["places"][0]["reason"]


@pytest.mark.parametrize("command", ["record", "digest", "cut"])
def test_the_limit_of_a_files_size_is_a_full_disk(folder: Path, command: str) -> None:
    """The kernel's signal would end the agent, and nobody would know why."""
    output = folder / "all" / "limited"
    words = {
        "record": ["record", "long.log", "--with-literals", "-o", str(output)],
        "digest": ["digest", "long.log"],
        "cut": ["recording", "cut", "long.rec", "-o", str(output)],
    }[command]
    with open(folder / "all" / "printed", "wb") as printed:
        done = subprocess.run(
            ["prlimit", "--fsize=512", agent_path(), *words],
            stdout=printed,
            stderr=subprocess.PIPE,
            cwd=folder,
            timeout=30,
            check=False,
        )
    assert done.returncode == 8, done.stderr
    assert b"too large" in done.stderr
    assert not output.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="devices need root")
@pytest.mark.parametrize("command", ["record", "cut", "merge", "anonymise"])
def test_a_device_is_not_replaced_by_a_recording(folder: Path, tmp_path: Path, command: str) -> None:
    """Root could turn /dev/null into a file."""
    device = tmp_path / "null"
    os.mknod(device, 0o666 | 0o020000, os.makedev(1, 3))
    words = ["record", "slow.log"] if command == "record" else ["recording", command, "a.rec"]
    done = agent(*words, "--force", "-o", device, cwd=folder)
    assert done.returncode == 3, done.stderr
    assert device.is_char_device()


@pytest.mark.parametrize("words", [["events"], ["digest"], ["digest", "--format", "table"]])
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path, words: list[str]) -> None:
    log = tmp_path / "slow.log"
    # More than a pipe holds.
    log.write_text("".join(LOG.replace("SELECT 1", f"SELECT 1 FROM t{n}") for n in range(EVENTS)))
    with subprocess.Popen(
        [agent_path(), *words, str(log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as writing:
        assert writing.stdout is not None
        assert writing.stderr is not None
        writing.stdout.read(10)
        writing.stdout.close()
        said = writing.stderr.read()
    assert (writing.returncode, said) == (0, b"")
