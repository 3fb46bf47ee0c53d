"""How long a lost connection is retried."""

from __future__ import annotations

import asyncio
import time

import pytest

from headrace.base.errors import ConnectionNotRestored, HeadraceError, TargetError
from headrace.host.target.link import Hop, Link


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Away(Link):
    """A link whose host does not answer; ``attempts_s`` are the moments at which it was tried."""

    def __init__(self, clock: Clock, patience_s: float) -> None:
        async def nothing() -> None:
            """Nothing is held there."""

        hop = Hop("host", 22, "root", {})
        super().__init__(
            hop, [], patience_s=patience_s, on_return=nothing, on_end=lambda _: None, tell=lambda _: None
        )
        self._clock, self.attempts_s = clock, list[float]()

    async def _attempt(self) -> HeadraceError | None:
        self.attempts_s.append(self._clock.now_s - 1000.0)
        return TargetError("no answer", place=self.name)


async def tried(patience_s: float, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = Clock()
    link = Away(clock, patience_s)
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: clock.now_s)
        patch.setattr(asyncio, "sleep", clock.sleep)
        problem = await link._try_until_it_stands(clock.now_s)
    assert isinstance(problem, ConnectionNotRestored)
    return link.attempts_s


async def test_it_is_retried_as_long_as_asked_and_not_a_pause_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await tried(10.0, monkeypatch) == [0, 0.5, 1.5, 3.5, 8.5, 10.0]
    assert await tried(2.0, monkeypatch) == [0, 0.5, 1.5, 2.0]
    assert await tried(0.0, monkeypatch) == [0]
    assert (await tried(600.0, monkeypatch))[-2:] == [598.5, 600.0]
