"""Recordings made for tests, and `headrace-agent replay` from tests."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.programs import agent_path

BEGIN = datetime(2024, 3, 1, 12, 0, 0, tzinfo=UTC)
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Said:
    """A statement of a slow log: which session, when it began and how long it took, in s."""

    session: int
    at_s: float
    took_s: float
    sql: str
    database: str = "shop"


def slow_log(path: Path, said: Sequence[Said]) -> Path:
    """A log as MySQL 8 writes it, in the order of ends."""
    with path.open("w") as log:
        log.write("/usr/sbin/mysqld, Version: 8.0.31 (Source). started with:\n")
        log.write("Tcp port: 3306  Unix socket: /s\nTime                 Id Command    Argument\n")
        for each in sorted(said, key=lambda each: each.at_s + each.took_s):
            end = BEGIN + timedelta(seconds=each.at_s + each.took_s)
            log.write(f"# Time: {end:%Y-%m-%dT%H:%M:%S.%f}Z\n")
            log.write(f"# User@Host: app[app] @ localhost []  Id: {each.session}\n")
            log.write(
                f"# Query_time: {each.took_s:.6f}  Lock_time: 0.000000 Rows_sent: 0  Rows_examined: 0\n"
            )
            log.write(f"use {each.database};\nSET timestamp={int(end.timestamp())};\n{each.sql};\n")
    return path


def record(source: Path, to: Path, *options: str, literals: bool = True) -> Path:
    argv = [agent_path(), "record", str(source), "--output", str(to), "--force", *options]
    done = subprocess.run(
        [*argv, *(["--with-literals"] if literals else [])],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return to


#: The kernel hands its last, unfilled block of packets over only after tcpdump's read timeout, a second.
TCPDUMP_S = 1.5


@contextlib.contextmanager
def captured(port: int, to: Path) -> Iterator[None]:
    """What goes over loopback to and from this port meanwhile, as a capture."""
    argv = ["tcpdump", "-i", "lo", "-U", "-B", "32768", "-s", "0", "-w", str(to), "tcp", "port", str(port)]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "listening" in line:
                break
        yield
        time.sleep(TCPDUMP_S)
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
    assert re.search(r"^0 packets dropped by kernel", said, re.MULTILINE), said


@dataclass(frozen=True)
class Played:
    """What `replay` printed."""

    end: dict[str, Any]
    intervals: list[dict[str, Any]]
    classes: list[dict[str, Any]]

    @property
    def counts(self) -> dict[str, int]:
        """Operations that ended well, without connects."""
        found: dict[str, int] = {}
        for row in self.intervals:
            found[row["operation"]] = found.get(row["operation"], 0) + row["count"]
        return {name: number for name, number in found.items() if number and name != "connect"}

    @property
    def length_s(self) -> float:
        return float(self.end["window_end_ns"] - self.end["window_start_ns"]) / 1e9

    @property
    def different(self) -> set[str]:
        """Fingerprints of the classes that were answered otherwise."""
        return {line["fingerprint"] for line in self.classes if line["different"]}


def parse(text: str) -> Played:
    lines = [json.loads(line) for line in text.splitlines()]
    (end,) = (line for line in lines if line["kind"] == "end")
    return Played(
        end,
        [line for line in lines if line["kind"] == "interval"],
        [line for line in lines if line["kind"] == "class"],
    )


def start(login: Sequence[str], recording: Path, *options: str) -> subprocess.Popen[str]:
    argv = [agent_path(), "replay", str(recording), *login, *options]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def play(
    login: Sequence[str],
    recording: Path,
    *options: str,
    during: Callable[[subprocess.Popen[str]], None] | None = None,
) -> Played:
    """Replay to its end, with something that happens meanwhile."""
    process = start(login, recording, *options)
    try:
        if during:
            during(process)
        out, words = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0, words
    return parse(out)
