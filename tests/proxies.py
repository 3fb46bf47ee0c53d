"""The capture proxy in front of a private server, and what it saw."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.programs import agent_path

STOP_TIMEOUT_S = 60.0


@dataclass
class Proxy:
    """A running proxy; ``events`` and ``summary`` are there once the block has ended."""

    port: int
    pid: int
    events: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    def of(self, command: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["command"] == command]

    def texts(self, prefix: str) -> list[dict[str, Any]]:
        """Text queries that begin so."""
        return [event for event in self.of("Query") if event["text"].startswith(prefix)]


@contextlib.contextmanager
def proxy(
    folder: Path, *options: str | Path, lines: bool = True, program: Path | None = None
) -> Iterator[Proxy]:
    """Run ``headrace-agent proxy`` on a free port; with ``lines`` its events are read back at the end.

    ``program`` is what to run in place of the agent.
    """
    path = folder / "events.jsonl"
    argv = [str(program or agent_path()), "proxy", "--listen", "127.0.0.1:0", *map(str, options)]
    if lines:
        argv += ["--events", str(path)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        listening = json.loads(process.stdout.readline())
        running = Proxy(int(listening["address"].rpartition(":")[2]), process.pid)
        yield running
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=STOP_TIMEOUT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode == 0
    running.summary = json.loads(rest)
    if lines:
        with path.open() as file:
            running.events = [json.loads(line) for line in file]
