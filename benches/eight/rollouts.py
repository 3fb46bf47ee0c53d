"""A rollout of ``fleet8``, through the command line as a person runs it; and the rows of what must hold."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches.eight import PATIENCE_S, Fleet, interrupt


@dataclass
class Results:
    """A row for each thing that must hold."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def add(self, what: str, must: str, found: str, holds: bool, **more: Any) -> None:
        after_s = round(time.monotonic() - self.began)
        self.rows.append(
            {"what": what, "must": must, "found": found, "holds": holds, "after_s": after_s, **more}
        )
        print(
            f"{'ok   ' if holds else 'WRONG'} {what}: {found}" + ("" if holds else f" (must: {must})"),
            flush=True,
        )

    def table(self) -> str:
        widths = [max((len(row[key]) for row in self.rows), default=0) for key in ("what", "must")]
        what, must = widths
        lines = []
        for row in self.rows:
            start = f"{'' if row['holds'] else 'WRONG':5} {row['after_s']:5} s"
            lines.append(f"{start}  {row['what']:{what}}  {row['must']:{must}}  {row['found']}")
        return "\n".join(lines)


@dataclass
class Rollout:
    """One plan, with a state that only it is in."""

    fleet: Fleet
    setting: str
    values: tuple[int, int]
    stages: Path
    evidence: Path | None = None
    id: str = ""
    began: float = 0.0

    def plan(self) -> dict[str, Any]:
        words = ["plan", f"server.{self.setting}={self.values[1]}", "--stages", str(self.stages), "--json"]
        words += ["--fleet", self.fleet.found.toml]
        words += ["--evidence", str(self.evidence)] if self.evidence else []
        plan: dict[str, Any] = json.loads(self.fleet.run("rollout", *words))
        self.id, self.began = plan["id"], time.time()
        return plan

    @property
    def status(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.fleet.run("rollout", "status", self.id, "--json"))
        return content

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        path = self.fleet.folder / "state" / "headrace" / "rollouts" / self.id / "log.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [event for event in map(json.loads, lines) if kind in ("", event["kind"])]

    def go(self) -> subprocess.Popen[str]:
        return self.fleet.start("rollout", "go", self.id)

    def finish(self, patience_s: float = PATIENCE_S) -> int:
        """Until it is over, with an approval where it waits for one; the last exit code. A host that was cut off
        may be aside: then it is tried again."""
        end = time.monotonic() + patience_s
        while True:
            process = self.go()
            try:
                out, err = process.communicate(timeout=patience_s)
            finally:
                interrupt(process)
            if "Traceback" in err or process.returncode not in (0, 13, 15):
                raise RuntimeError(f"go: exit code {process.returncode}\n{out[-3000:]}\n{err[-3000:]}")
            code, status = process.returncode, self.status
            if status["is_finished"] or status["is_aborted"]:
                return code
            print(f"     go ended with {code}: {status['state']}", flush=True)
            if not self.approved(status) or time.monotonic() > end:
                return code

    def approved(self, status: Mapping[str, Any]) -> bool:
        """Approves what waits for a person. Whether ``go`` can continue."""
        if "needs an approval" in status["paused"] or "has expired" in status["paused"]:
            self.fleet.run("rollout", "approve", self.id, "--stage", "sources", "--by", "bench")
        return "inconclusive" not in status["paused"]

    def longest(self, name: str) -> float:
        """The longest time that the new value stood at one host before it was kept, s."""
        kept = {event["host"]: event["t"] for event in self.events("kept")}
        end = kept.get(name, time.time())
        found = self.fleet.watchers[name].stretches(self.setting, self.values[1], self.began, end)
        # The one that ends with being kept is the soak.
        return max(found[:-1] if name in kept else found, default=0.0)
