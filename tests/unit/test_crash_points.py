"""The store at every crash point: for every N, the N-th change of a file kills the command or finds the disk full.

As SQLite tests itself (sqlite.org/testing.html, "Crash testing"): afterwards the same command continues, nothing
that was committed is measured again, and the experiment ends as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.base.errors import DiskFull
from headrace.base.model import TrialState
from tests.changes import heard
from tests.fake_lab import Killed
from tests.unit.test_loops import Bench

#: Two rungs in two blocks: six trials.
SHORT = {
    "blocks = 3": "blocks = 2",
    'ALL = ["pool", "log"]\n': "",
    '[bundles.log]\n"server.innodb_log_file_size" = "512M"\n': "",
}


class Fault:
    """Counts the changes; the ``at``-th raises, and after a kill so does every later one."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self._at, self._error = at, error
        self.seen = 0

    def change(self, path: str) -> None:
        self.seen += 1
        if self._error is Killed and self.seen >= self._at > 0:
            # A process that is dead cleans nothing up.
            raise Killed
        if self.seen == self._at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


@contextlib.contextmanager
def fault(folder: Path, at: int, error: type[BaseException], patch: pytest.MonkeyPatch) -> Iterator[Fault]:
    found = Fault(at, error)
    with heard(folder, patch, found.change):
        yield found


def short(folder: Path, patch: pytest.MonkeyPatch) -> Bench:
    folder.mkdir(exist_ok=True)
    bench = Bench("ladder", folder, patch)
    text = bench.plan.read_text()
    for old, new in SHORT.items():
        assert old in text
        text = text.replace(old, new)
    bench.plan.write_text(text)
    return bench


def committed(bench: Bench) -> set[int]:
    return {r.number for r in bench.folder.trials()} if (bench.output / "design.json").exists() else set()


@pytest.mark.slow
@pytest.mark.parametrize("error", [Killed, OSError])
def test_at_every_change_of_a_file(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = short(tmp_path / "whole", monkeypatch)
    with fault(whole.output.parent, 0, error, monkeypatch) as counted:
        whole.sound("--json")
    trials = whole.trials()
    assert counted.seen > 50
    # All of them take two minutes; HEADRACE_TEST_ALL=1 tries each. Here chance says which sixth a run tries.
    step = 1 if os.environ.get("HEADRACE_TEST_ALL") else 6
    for at in range(random.randint(1, step), counted.seen + 1, step):
        bench = short(tmp_path / f"{at}", monkeypatch)
        with (
            contextlib.suppress(Killed, BaseExceptionGroup),
            fault(bench.output.parent, at, error, monkeypatch) as found,
        ):
            answer = bench.run("--json")
            assert error is OSError, "it was not killed"
            # What only tidies up may fail.
            full = (
                isinstance(answer.exception, DiskFull)
                or getattr(answer.exception, "errno", 0) == errno.ENOSPC
            )
            assert answer.exit_code == 0 or full, (at, answer.exception)
        assert found.seen >= at
        before, measured = committed(bench), list(bench.host.measured)
        bench.sound("--json")
        assert bench.trials() == trials, at
        assert all(r.state is TrialState.COMPLETE for r in bench.folder.trials())
        again = set(bench.host.measured[len(measured) :])
        assert not again & before, (at, "a trial that was committed is measured again")
        assert not [p.name for p in bench.output.rglob(".*") if p.name.endswith(".part")], at
