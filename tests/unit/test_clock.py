"""How often a target's clock is read."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence

import pytest

from headrace.host.target.clock import Clock, read_clock

MS = 1_000_000
AHEAD_NS = 3_000 * MS


class Host:
    """A host whose clock is ahead; each answer takes the next of ``ways_ms``, half there and half back."""

    name = "host"

    def __init__(self, ways_ms: Sequence[float]) -> None:
        self.now_ns, self.ways_ms, self.readings = 10**18, ways_ms, 0

    async def spawn(self, argv: Sequence[str]) -> Host:
        return self

    async def write(self, data: bytes) -> None:
        """A question."""

    async def lines(self) -> AsyncIterator[str]:
        for way_ms in self.ways_ms:
            self.readings += 1
            self.now_ns += int(way_ms / 2 * MS)
            theirs_ns = self.now_ns + AHEAD_NS
            self.now_ns += int(way_ms / 2 * MS)
            yield str(theirs_ns)

    async def close_stdin(self) -> None:
        """No more questions."""

    async def wait(self, timeout: float) -> int:
        return 0


async def read(ways_ms: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> tuple[Clock, int]:
    """The clock, and how many readings it took."""
    host = Host(ways_ms)
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: host.now_ns)
        found = await read_clock(host)  # type: ignore[arg-type]
    return found, host.readings


async def test_a_host_that_is_far_away_is_not_asked_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    found, readings = await read([104, 101, 100, 103, 102, 100, 130, 102] + [100] * 56, monkeypatch)
    assert readings == 8
    assert found == Clock(AHEAD_NS, 50 * MS)


async def test_of_a_busy_one_the_rare_quick_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [80.0 + 90 * number for number in range(20)]
    found, readings = await read([*busy, 6, *busy, *busy], monkeypatch)
    assert readings == 21
    assert found == Clock(AHEAD_NS, 3 * MS)
    found, readings = await read(
        [400, 90, 900, 300, 200, 600, 800, 500, 95, 96, 97, 92, 93, 94, 98, 80], monkeypatch
    )
    assert readings == 15
    assert found == Clock(AHEAD_NS, 45 * MS)


async def test_there_is_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    found, readings = await read([12 * 1.6**number for number in range(100)], monkeypatch)
    assert readings == 64
    assert found == Clock(AHEAD_NS, 6 * MS)
