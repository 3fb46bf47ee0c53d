"""``headrace ARGUMENTS`` as processes, forked from one that has imported the program.

To import it takes longer than most kills leave a command: a test that kills a thousand of them saves that.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.folders import ROOT

#: What a command imports only when it needs it.
LATE = ("duckdb", "numpy", "pyarrow.parquet", "scipy.stats")
#: The answer for a command that runs: no exit code.
RUNS = 1000


class Command:
    """A command that was started, in a process group of its own."""

    def __init__(self, starter: Starter, arguments: Sequence[str]) -> None:
        self._starter = starter
        self.pid = starter.ask([*arguments])
        self._code = RUNS

    def poll(self) -> int | None:
        if self._code == RUNS:
            self._code = self._starter.ask({"pid": self.pid, "flags": os.WNOHANG})
        return None if self._code == RUNS else self._code

    def wait(self) -> tuple[int, str]:
        """Its exit code, negative for a signal, and what it wrote to its standard error."""
        if self._code == RUNS:
            self._code = self._starter.ask({"pid": self.pid, "flags": 0})
        return self._code, self._starter.errors.read_text()

    def output(self) -> str:
        """What it has written to its standard output."""
        return self._starter.errors.with_name("output").read_text()


class Starter:
    """Starts one command at a time, with the environment and the namespaces of its own process."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process, self.errors = process, errors

    def ask(self, question: object) -> int:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextlib.contextmanager
def starter(folder: Path, env: Mapping[str, str], prefix: Sequence[str] = ()) -> Iterator[Starter]:
    """``prefix`` goes before the command of the process that starts the others."""
    argv = [*prefix, sys.executable, "-m", "tests.prestarted", str(folder / "errors")]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=env, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        yield Starter(process, folder / "errors")


def _import_all() -> None:
    import headrace

    for module in pkgutil.walk_packages(headrace.__path__, "headrace."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # of an extra
                importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    _shorten_leases()


def _shorten_leases() -> None:
    """A test cannot wait a quarter of an hour for what a killed command left."""
    leased = importlib.import_module("headrace.host.target.leased")
    leased.LEASE_S, leased.RENEW_S, leased.LOOK_S = 8, 0.5, 1  # type: ignore[attr-defined]


def _start(arguments: list[str], errors: Path) -> int:
    pid = os.fork()
    # On both sides, as shells do it: then it is the group's leader before anybody can kill its group.
    os.setpgid(pid, pid)
    if pid:
        return pid
    with errors.open("w") as file, errors.with_name("output").open("w") as out, open(os.devnull) as null:
        for source, number in ((null, 0), (out, 1), (file, 2)):
            os.dup2(source.fileno(), number)
    code: object = 1
    try:
        from headrace.cli import main

        sys.argv = ["headrace", *arguments]
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def _serve(errors: Path) -> None:
    _import_all()
    gc.freeze()
    for line in sys.stdin:
        question = json.loads(line)
        if isinstance(question, list):
            print(_start(question, errors), flush=True)
            continue
        pid, status = os.waitpid(question["pid"], question["flags"])
        print(os.waitstatus_to_exitcode(status) if pid else RUNS, flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
    os._exit(0)  # some of what was imported complains at an ordinary end
