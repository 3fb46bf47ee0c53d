"""`headrace-agent drive` from tests: a SPEC in, its lines out."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.folders import ROOT
from tests.programs import agent_path

#: What a test waits for at most, beyond the time that it asked for.
PATIENCE_S = 60.0
_SOURCE = (ROOT / "crates/engine/src/needs.rs").read_text()
#: Connections on which it times pings before an open loop starts: as its source has it.
(_PING_CONNECTIONS,) = re.findall(r"PING_CONNECTIONS: usize = (\d+);", _SOURCE)
PING_CONNECTIONS = int(_PING_CONNECTIONS)


@dataclass(frozen=True)
class Driven:
    """What `drive run` printed."""

    start: dict[str, Any]
    intervals: list[dict[str, Any]]
    end: dict[str, Any]

    @staticmethod
    def parse(text: str) -> Driven:
        lines = [json.loads(line) for line in text.splitlines()]
        assert [line["kind"] for line in (lines[0], lines[-1])] == ["start", "end"]
        kinds = ("interval", "drain")
        return Driven(lines[0], [line for line in lines if line["kind"] in kinds], lines[-1])

    @property
    def window_s(self) -> float:
        return float(self.end["window_end_ns"] - self.end["window_start_ns"]) / 1e9

    def rows(self, operation: str | None = None) -> list[dict[str, Any]]:
        """Of one operation, or of all of the workload's; reconnects only when asked for."""
        wanted = [operation] if operation else self.start["operations"]
        return [row for row in self.intervals if row["operation"] in wanted]

    def sum(self, column: str, operation: str | None = None) -> int:
        """Over the whole run, the warm-up and what ended after the window included."""
        return sum(row[column] for row in self.rows(operation))

    def histogram(self, kind: str, operation: str | None = None) -> dict[int, int]:
        """Bucket -> count of ``response``, ``service`` or ``failed`` over the whole run."""
        counts: dict[int, int] = {}
        for row in self.rows(operation):
            for bucket, count in row[kind]["buckets"]:
                counts[bucket] = counts.get(bucket, 0) + count
        return counts


def drive(
    login: Sequence[str], spec: dict[str, Any], *, verb: str = "run", check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run one of the driver's verbs to its end."""
    done = subprocess.run(
        [agent_path(), "drive", verb, "-", *login],
        input=json.dumps(spec),
        capture_output=True,
        check=False,
        text=True,
        timeout=spec.get("seconds", 10) + spec.get("warmup_s", 0) + PATIENCE_S,
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done


def driven(login: Sequence[str], spec: dict[str, Any]) -> Driven:
    return Driven.parse(drive(login, spec).stdout)
