"""Connection ids that come again in a log, from the file to the recording's sessions."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.programs import agent_path

BANNER = (
    "/usr/sbin/mysqld, Version: 8.0.36 (MySQL Community Server - GPL). started with:\n"
    "Tcp port: 3306  Unix socket: /tmp/mysql.sock\n"
    "Time                 Id Command    Argument\n"
)
TABLE = "create temporary table t (a int)"


def slow(*said: tuple[int, str] | str) -> str:
    """Statements by their ids, and banners."""
    log = BANNER
    for second, each in enumerate(said):
        if isinstance(each, str):
            log += BANNER
            continue
        log += (
            f"# Time: 2026-03-01T10:00:{second:02}.000000Z\n"
            f"# User@Host: app[app] @ localhost []  Id: {each[0]:5}\n"
            "# Query_time: 0.000100  Lock_time: 0.000000 Rows_sent: 0  Rows_examined: 0\n"
            f"use shop;\nSET timestamp={1772359200 + second};\n{each[1]};\n"
        )
    return log


def general(*said: tuple[int, str] | str) -> str:
    log = BANNER
    for second, each in enumerate(said):
        if isinstance(each, str):
            log += BANNER
            continue
        command, _, argument = each[1].partition(" ")
        log += f"2026-03-01T10:00:{second:02}.000000Z\t{each[0]:5} {command}\t{argument}\n"
    return log


def recorded(folder: Path, log: str | bytes, *, piped: bool = False) -> tuple[list[int], list[str]]:
    """The sessions of statements, numbered as they come, and what the recorder said."""
    source, to = folder / "some.log", folder / "some.rec"
    source.write_bytes(log.encode() if isinstance(log, str) else log)
    argv = [agent_path(), "record", "-" if piped else str(source), "--with-literals", "--output", str(to)]
    with source.open("rb") as file:
        done = subprocess.run(argv, stdin=file, capture_output=True, check=True)
    said = [place["reason"] for place in json.loads(done.stdout)["totals"]["coverage"]["places"]]
    lines = subprocess.run([agent_path(), "events", str(to)], capture_output=True, check=True).stdout
    events: Sequence[dict[str, Any]] = [json.loads(line) for line in lines.splitlines()]
    numbers: list[int] = []
    for event in events:
        if event.get("command") == "Query" and event["session"] not in numbers:
            numbers.append(event["session"])
    return [numbers.index(event["session"]) for event in events if event.get("command") == "Query"], said


RESTART = slow((8, TABLE), (9, "select 1"), "|", (8, TABLE), (8, "select 1 from t"))


@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_restart_ends_sessions(tmp_path: Path, piped: bool, packed: bool) -> None:
    sessions, said = recorded(tmp_path, gzip.compress(RESTART.encode()) if packed else RESTART, piped=piped)
    assert sessions == [0, 1, 2, 2]
    [sentence] = said
    assert "the server restarted once within the log" in sentence
    assert "cannot be told" not in sentence


@pytest.mark.parametrize(
    ("log", "sessions", "words"),
    [
        (slow((8, "a"), (9, "b"), "|", (9, "c"), (10, "d"), (8, "e")), [0, 1, 1, 2, 0], "opened again once"),
        (slow((8, "a"), "|", (8, "b")), [0, 1], "cannot be told"),
        (slow((700, "a"), "|", (700, "b")), [0, 0], "cannot be told"),
        (slow((8, TABLE), (8, TABLE)), [0, 1], "nothing says that the server restarted"),
        (
            general((8, "Connect a@h on s using Socket"), (8, "Query select 1"), "|",
                    (8, "Connect a@h on s using Socket"), (8, "Query select 2")),
            [0, 1],
            "restarted once",
        ),
        (
            general((8, "Connect a@h on s using Socket"), (8, "Query select 1"),
                    (8, "Connect b@h on s using Socket"), (8, "Query select 2")),
            [0, 1],
            "nothing says that the server restarted",
        ),
    ],
)  # fmt: skip
def test_what_a_banner_means_is_said(tmp_path: Path, log: str, sessions: list[int], words: str) -> None:
    found, said = recorded(tmp_path, log)
    assert found == sessions
    assert len(said) == 1, said
    assert words in said[0]
