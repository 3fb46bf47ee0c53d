"""A plan run by ``headrace`` in a process of its own, which a test may kill; what it must not leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import shared
from tests.commands import started
from tests.traces import commands, loops_below, read_each

SWAPPINESS = Path("/proc/sys/vm/swappiness")

FIO = """
name = "killed"
[target]
scratch = "{scratch}"
[design]
kind = "factorial"
baseline = "none"
blocks = 1
[workload]
kind = "fio"
seconds = 2
rw = "randwrite"
size = "32M"
ioengine = "psync"
iodepth = 1
[volume]
device = "loop"
size = "400M"
[base]
"volume.filesystem" = "ext4"
"host.vm.swappiness" = {swappiness}
[factors.scheduler]
knob = "volume.scheduler"
levels = ["none", "mq-deadline"]
"""


@dataclass
class Bench:
    """A scratch folder, a journal and a plan of their own for one test."""

    folder: Path
    plan: Path
    output: Path
    scratch: Path
    verb: str = "run"

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "HEADRACE_STATE": str(self.folder / "state"), "NO_COLOR": "1"}

    def start(self, *options: str) -> subprocess.Popen[str]:
        return started(self.verb, str(self.plan), "-o", str(self.output), *options, env=self.env)

    def finish(self, *options: str) -> tuple[int, str, str]:
        process = self.start(*options)
        out, err = process.communicate(timeout=240)
        return process.returncode, out, err

    def trials(self) -> dict[int, dict[str, object]]:
        return {
            int(p.parent.name): json.loads(p.read_text())
            for p in sorted(self.output.glob("trials/[0-9]*/trial.json"))
        }

    def traces(self) -> list[str]:
        """What an experiment must not leave on the host: mounts, loop devices, processes."""
        found = [
            line for line in Path("/proc/self/mounts").read_text().splitlines() if str(self.scratch) in line
        ]
        found += loops_below(self.scratch)
        for path, environment in read_each("proc/[0-9]*/environ"):
            if b"HEADRACE_OWNER=headrace-" in environment and bytes(self.scratch) in environment:
                found.append(f"{path.parts[2]}: {commands().get(int(path.parts[2]))}")
        return found


@contextlib.contextmanager
def benches(folder: Path) -> Iterator[Callable[[str], Bench]]:
    """Makes a bench of a plan's text; afterwards the host must be as it was."""
    with contextlib.ExitStack() as stack:
        made: list[Bench] = []
        # A short path: a server's socket lies below it.
        scratch = Path(tempfile.mkdtemp(prefix="hr-", dir="/var/tmp"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        scratch.chmod(0o755)

        def make(text: str) -> Bench:
            if "{swappiness}" in text:
                # A machine has one.
                stack.enter_context(shared.alone("swappiness"))
                stack.enter_context(unchanged(SWAPPINESS))
                other = 11 if SWAPPINESS.read_text().strip() != "11" else 12
                text = text.replace("{swappiness}", str(other))
            plan = folder / "plan.toml"
            plan.write_text(text.replace("{scratch}", str(scratch)))
            made.append(Bench(folder, plan, folder / "out", scratch))
            return made[-1]

        yield make
        for one in made:
            assert one.traces() == []


@contextlib.contextmanager
def unchanged(setting: Path) -> Iterator[None]:
    before = setting.read_text()
    yield
    assert setting.read_text() == before, f"{setting} was not restored"
