"""Every benchmark, one after the other: `make bench`, or `python benches drive sample` for some of them.

Each script declares in its own constants what it needs (``NEEDS``: program -> Debian package, ``NEEDS_ROOT``)
and about how long it takes (``MINUTES``). One whose peer is missing is skipped, with the package's name. One
that fails stops no other; Ctrl-C stops all. Neither leaves anything behind: processes are ended, the bench's
folder is removed, and what it had changed on this host is rolled back. The exit code is 1 if any bench failed,
130 after Ctrl-C.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: Debian keeps some of what root usually runs here.
SEARCH_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
#: How long a bench that was asked to stop may take to restore the host.
ENDING_S = 30.0
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Bench:
    path: Path
    minutes: float
    needs: dict[str, str]
    needs_root: bool

    @property
    def name(self) -> str:
        return self.path.stem

    def why_not(self) -> str:
        """What is missing here, with the package that brings it; empty if nothing is."""
        if self.needs_root and os.geteuid() != 0:
            return "needs root"
        absent = [program for program in self.needs if not shutil.which(program, path=SEARCH_PATH)]
        packages = " ".join(dict.fromkeys(self.needs[program] for program in absent))
        return f"needs {', '.join(absent)}: apt-get install {packages}" if absent else ""


def declared(path: Path) -> Bench | None:
    """Read from the source, so that no bench is imported only to learn that it cannot run. None for a script that
    declares no MINUTES: it is run by itself, with arguments."""
    constants: dict[str, Any] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with contextlib.suppress(ValueError):
                constants[node.targets[0].id] = ast.literal_eval(node.value)
    if "MINUTES" not in constants:
        return None
    return Bench(path, constants["MINUTES"], constants.get("NEEDS", {}), constants.get("NEEDS_ROOT", False))


def benches(names: list[str]) -> list[Bench]:
    """Those of ``names``, or all."""
    found = [bench for path in sorted(HERE.glob("*.py")) if (bench := declared(path))]
    known = {bench.name: bench for bench in found}
    for name in names:
        if name not in known:
            raise SystemExit(f"no bench {name!r}; there are {', '.join(known)}")
    return [known[name] for name in names or known]


def main() -> int:
    chosen = benches(sys.argv[1:])
    runnable = [bench for bench in chosen if not bench.why_not()]
    print(f"{len(runnable)} benches, about {sum(b.minutes for b in runnable):.0f} minutes in all", flush=True)
    # Whatever a bench starts is ours when the bench is gone, also in a session of its own.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # SIGINT, too: a shell has what it starts in the background ignore it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    outcome: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": [], "stopped": []}
    for bench in chosen:
        if outcome["stopped"]:
            break
        if reason := bench.why_not():
            print(f"== {bench.name}: skipped, {reason}", flush=True)
            outcome["skipped"].append(bench.name)
            continue
        print(f"== {bench.name} (about {bench.minutes:g} min)", flush=True)
        outcome[run(bench)].append(bench.name)
    for word, names in outcome.items():
        if names:
            print(f"{word}: {', '.join(names)}")
    return 130 if outcome["stopped"] else 1 if outcome["failed"] else 0


def run(bench: Bench) -> str:
    """``passed``, ``failed`` or ``stopped``; nothing of the bench is left in any case."""
    folder = Path(tempfile.mkdtemp(prefix=f"headrace-bench-{bench.name}-", dir="/var/tmp"))
    folder.chmod(0o1777)  # as /tmp: servers run under an account of their own
    environment = {**os.environ, "TMPDIR": str(folder)}
    # In a session of its own, so that a Ctrl-C reaches the bench through us, and all of it.
    process = subprocess.Popen([sys.executable, bench.path], env=environment, start_new_session=True)
    try:
        code = process.wait()
        outcome = "failed" if code else "passed"
    except KeyboardInterrupt:
        print(f"{bench.name}: stopping ...", flush=True)
        outcome = "stopped"
    with held_signals():
        if outcome == "stopped":
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_S)
        end_descendants()
        if outcome != "passed" and (error := roll_back()):
            print(f"{bench.name}: the host could not be restored: {error}; {folder} is kept", flush=True)
            return outcome
        shutil.rmtree(folder, ignore_errors=True)
    if outcome == "failed":
        print(f"{bench.name}: failed with exit code {code}", flush=True)
    return outcome


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Cleaning up is not interrupted: a second Ctrl-C waits for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_descendants() -> None:
    """Ends what a bench left: first asked, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + ENDING_S
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, number)
        while descendants() and time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            time.sleep(0.05)


def descendants() -> list[int]:
    """Processes that stand below this one, zombies too: those are ours to wait for."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})


def roll_back() -> str:
    """Undoes what a bench left changed on this host, as the next `headrace run` would; why not, or nothing."""
    usual = "/var/lib/headrace" if os.geteuid() == 0 else str(Path.home() / ".local/state/headrace")
    state = os.environ.get("HEADRACE_STATE") or usual
    if not Path(state).exists():
        return ""
    agent = os.environ.get("HEADRACE_AGENT") or str(Path(sys.executable).parent / "headrace-agent")
    argv = [agent, "journal", "rollback", "--state", state]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
