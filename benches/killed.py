"""Commands killed with SIGKILL at random: a minute later nothing of them is left on this machine.

    python benches/killed.py [KILLS] [COMMAND ...]

KILLS of each of run, record, hunt, digest and serve. Looked for are programs with our marks in their environment,
agents, directories, and changes in the journal. It prints how long the last of it stayed; the exit code is 1 if
anything is left after a minute.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_S = 60.0
SLOW_LOG = """# Time: 2026-01-01T00:00:00Z
# User@Host: a[a] @ h []
# Query_time: 1.0  Lock_time: 0 Rows_sent: 1  Rows_examined: 1
select 1;
"""
PLAN = """
name = "killed"
[target]
scratch = "{scratch}"
[design]
kind = "factorial"
baseline = "2001"
blocks = 9
[workload]
kind = "fio"
seconds = 2
rw = "randwrite"
size = "1M"
ioengine = "psync"
iodepth = 1
[factors.backlog]
knob = "host.net.core.somaxconn"
levels = [2001, 2002]
"""


class Machine:
    """What is ours on it; ``state`` is the journal's folder of these commands only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "temporary"
        self.env = {
            **os.environ,
            "HEADRACE_STATE": str(folder / "state"),
            "XDG_STATE_HOME": str(folder / "own"),
            "TMPDIR": str(self.temporary),
            "HEADRACE_KILLED": str(folder),
        }
        self.temporary.mkdir()
        (folder / "slow.log").write_text(SLOW_LOG)
        (folder / "plan.toml").write_text(PLAN.format(scratch=folder / "scratch"))

    def left(self) -> list[str]:
        mark = f"HEADRACE_KILLED={self.folder}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes().split(b"\0")
                if mark in environment:
                    found.append(
                        (process / "cmdline")
                        .read_bytes()
                        .replace(b"\0", b" ")[:60]
                        .decode("utf-8", "replace")
                    )
            except OSError:
                continue
        found += [str(path) for path in self.temporary.glob("headrace-*")]
        journal = self.folder / "state" / "journal.jsonl"
        if journal.exists() and journal.stat().st_size:
            found.append("an open entry of the journal")
        return found

    def words(self, command: str, number: int) -> list[str]:
        out = str(self.folder / f"{command}{number}")
        return {
            "run": ["run", str(self.folder / "plan.toml"), "-o", out],
            "record": [
                "record",
                "--duration",
                "300s",
                "--follow",
                str(self.folder / "slow.log"),
                "--output",
                out,
            ],
            "hunt": ["hunt", "--duration", "30s", "--host-only"],
            "digest": ["digest", "-", "--add-to", out],
            "serve": ["serve", "--data", out, "--listen", "127.0.0.1:0"],
        }[command]


def main() -> int:
    kills = int(sys.argv[1]) if sys.argv[1:] else 200
    wanted = sys.argv[2:] or ["run", "record", "hunt", "digest", "serve"]
    code = 0
    with tempfile.TemporaryDirectory(prefix="headrace-killed-") as folder:
        machine = Machine(Path(folder))
        for command in wanted:
            longest, within, early = 0.0, 0, 0
            for number in range(kills):
                # With sysctls of its own.
                argv = ["unshare", "--net", sys.executable, "-m", "headrace", *machine.words(command, number)]
                process = subprocess.Popen(
                    argv,
                    env=machine.env,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                assert process.stdin is not None
                # A digest of what never ends.
                process.stdin.write(SLOW_LOG.encode())
                process.stdin.flush()
                began = time.monotonic()
                # Until something besides the command itself is there, then at random.
                while (
                    process.poll() is None and len(machine.left()) < 2 and time.monotonic() - began < LIMIT_S
                ):
                    time.sleep(0.05)
                time.sleep(random.uniform(0, 3))
                early += process.poll() is not None
                seen = len(machine.left())
                process.send_signal(signal.SIGKILL)
                process.wait()
                process.stdin.close()
                within += seen > 1
                killed = time.monotonic()
                while (left := machine.left()) and time.monotonic() - killed < LIMIT_S:
                    time.sleep(0.1)
                longest = max(longest, time.monotonic() - killed)
                if left:
                    code = 1
                    print(f"  LEFT of {command} after {LIMIT_S:.0f} s: {left}", flush=True)
                shutil.rmtree(machine.folder / f"{command}{number}", ignore_errors=True)
            print(f"{command}: {kills} kills, {within} with something on the host, {early} had ended; "
                  f"the last of it was gone after {longest:.1f} s", flush=True)  # fmt: skip
    return code


if __name__ == "__main__":
    sys.exit(main())
