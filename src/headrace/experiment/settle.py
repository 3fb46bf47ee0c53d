"""A warm-up that is as long as it needs: the load runs piece by piece until its throughput no longer grows.

The rule is fixed: two pieces of ``PIECE_S``, of which the second has at most ``GROWTH`` more operations than the
first, or the plan's limit. It sees only what ran before the window, so it selects nothing within it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.base.temporary import temporary_folder
from headrace.experiment.store import RECONNECT
from headrace.experiment.workloads import Context, Measurement, Workload

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_S = 2.0
GROWTH = 0.05

#: The pieces' random numbers are those of blocks that no plan has, so that they do not warm up just the rows that
#: the window asks for.
APART = 1_000_000


@dataclass(frozen=True)
class Settled:
    """``seconds`` of load before the trial's own warm-up; ``growth`` of the last piece over the one before."""

    seconds: float
    growth: float
    is_steady: bool

    @property
    def warning(self) -> str | None:
        if self.is_steady:
            return None
        return (
            f"not steady after {self.seconds:g} s of warm-up, the plan's limit: the last {PIECE_S:g} s had "
            f"{self.growth:+.0%} operations (limit {GROWTH:+.0%})"
        )


async def settle(
    workload: Workload, context: Context, within_s: float, tell: Callable[[str], None]
) -> Settled:
    """Run the load until it is steady, at most for ``within_s``. Raises what the workload raises."""
    before, growth, spent = 0.0, 0.0, 0.0
    pieces = max(int(within_s / PIECE_S), 2)
    for piece in range(pieces):
        tell(f"warming up: {spent:g} s")
        with temporary_folder() as raw:
            own = replace(
                context,
                seconds=PIECE_S,
                warmup_s=0.0,
                raw=raw,
                block=APART * (context.block + 1) + piece,
                agree=None,
            )
            rate = _rate(await workload.run(own))
        spent += PIECE_S
        if piece:
            growth = rate / before - 1 if before else 0.0
            if growth <= GROWTH:
                return Settled(spent, growth, True)
        before = rate
    return Settled(spent, growth, False)


def _rate(measured: Measurement) -> float:
    table: pa.Table = measured.intervals
    rows = zip(*(table[name].to_pylist() for name in ("t_s", "operation", "count")), strict=True)
    done = sum(count or 0 for t_s, operation, count in rows if t_s >= 0 and operation != RECONNECT)
    return float(done) / ((measured.window_end_ns - measured.window_start_ns) / 1e9)
