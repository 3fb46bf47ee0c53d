"""When a warm-up ends: after the first piece that is no longer faster than the one before."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from headrace.experiment.settle import PIECE_S, Settled, settle
from headrace.experiment.workloads import Context, Measurement, Workload
from headrace.host.arrow import INTERVALS, LATENCY


class Warming:
    """A load whose pieces have these operations."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = list(counts)
        self.contexts: list[Context] = []

    async def run(self, context: Context) -> Measurement:
        self.contexts.append(context)
        rows: Mapping[str, Any] = {
            "t_s": [-1.0, 0.0],
            "duration_s": [1.0, context.seconds],
            "operation": ["x", "x"],
            "count": [10**6, self.counts[len(self.contexts) - 1]],
        }
        table = pa.table({n: rows.get(n, [None, None]) for n in INTERVALS.names}, schema=INTERVALS)
        return Measurement(table, LATENCY.empty_table(), 0, round(context.seconds * 1e9))


def settled(load: Warming, within_s: float) -> Settled:
    context = Context(cast("Any", None), "", "", None, 60.0, 30.0, Path("never"), block=3)
    return asyncio.run(settle(cast("Workload", load), context, within_s, lambda _: None))


@pytest.mark.parametrize(
    ("counts", "within_s", "seconds"),
    [
        ([100, 100], 20, 4),
        ([100, 104], 20, 4),
        ([100, 80], 20, 4),
        ([100, 150, 200, 205], 20, 8),
        ([0, 0], 20, 4),
    ],
)
def test_it_ends_when_throughput_no_longer_grows(counts: list[int], within_s: float, seconds: float) -> None:
    found = settled(Warming(counts), within_s)
    assert found.is_steady
    assert found.seconds == seconds
    assert found.warning is None


def test_at_the_limit_it_ends_and_says_so() -> None:
    load = Warming([100, 200, 300, 400, 500])
    found = settled(load, 6)
    assert not found.is_steady
    assert found.seconds == 6
    assert "+50%" in (found.warning or "")
    assert len(load.contexts) == 3


def test_pieces_ask_for_other_rows_than_the_window() -> None:
    load = Warming([100, 200, 200])
    settled(load, 20)
    blocks = [context.block for context in load.contexts]
    assert len({*blocks, 3}) == 4
    assert all(c.seconds == PIECE_S and c.warmup_s == 0 for c in load.contexts)
