"""Clocks that are set during a trial."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from headrace.experiment import connection
from headrace.experiment.connection import Clocks
from headrace.host.target.clock import Clock
from headrace.host.target.local import LocalTarget

MS = 1_000_000


class Remote:
    name = "db1"
    interruptions = ()


REMOTE: Any = Remote()


def warnings(
    targets: list[Any], patch: pytest.MonkeyPatch, *, own_ms: int = 0, theirs_ms: int = 0
) -> list[str]:
    """What is said of a trial during which the controller's clock and a remote one were set."""
    own_ns = theirs_ns = 0
    true_ns = time.time_ns
    patch.setattr(time, "time_ns", lambda: true_ns() + own_ns)

    async def read_clock(_: object) -> Clock:
        return Clock(theirs_ns - own_ns, MS)

    patch.setattr(connection, "read_clock", read_clock)

    async def trial() -> list[str]:
        nonlocal own_ns, theirs_ns
        clocks = Clocks(targets)
        await clocks.read()
        own_ns, theirs_ns = own_ms * MS, theirs_ms * MS
        await clocks.compare()
        return clocks.warnings()

    return asyncio.run(trial())


def test_a_step_of_the_local_clock_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = warnings([LocalTarget()], monkeypatch, own_ms=-3000)
    assert "the clock of local was set by -3,000 ms" in found


def test_a_step_of_the_controller_is_not_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = warnings([REMOTE], monkeypatch, own_ms=3000)
    assert "the controller's clock was set by +3,000 ms" in found


def test_a_step_elsewhere_is_told_of_that_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = warnings([LocalTarget(), REMOTE], monkeypatch, theirs_ms=3000)
    assert "the clock of db1 was set by +3,000 ms" in found


def test_clocks_that_nobody_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warnings([LocalTarget(), REMOTE], monkeypatch) == []
