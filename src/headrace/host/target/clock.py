"""The offset of a target's clock from the controller's, and its uncertainty.

Clocks are not assumed to agree. Of several readings the fastest is the most accurate (Cristian, "Probabilistic
clock synchronization", 1989): the target read its clock between the controller's two readings, and no tighter
bound is available.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.errors import HeadraceError, NotReady
from headrace.host.target.interface import Process, Target, to_the_end

#: Minimum number of readings; more, up to the second number, until one is as good as GOOD_NS: on a busy machine
#: most are late.
READINGS, MOST_READINGS = 8, 64
GOOD_NS = 5_000_000
#: Or until this many took at most this many times as long as the fastest: then it is the distance.
ALIKE, HOW_MUCH_ALIKE = 8, 1.5
END_S = 10.0


@dataclass(frozen=True)
class Clock:
    """How far a target's clock is ahead of the controller's, and the uncertainty, in ns."""

    offset_ns: int
    error_ns: int

    def differs_from(self, other: Clock) -> bool:
        """Whether the two offsets differ by more than their uncertainty."""
        return abs(self.offset_ns - other.offset_ns) > self.error_ns + other.error_ns


#: This machine's own clock.
OURS = Clock(0, 0)


async def read_clock(target: Target) -> Clock:
    """Compare a target's clock with the controller's. Raises NotReady if it cannot be read."""
    process = await target.spawn(["sh", "-c", "while read -r _; do date +%s%N; done"])
    readings: list[Clock] = []
    try:
        lines = process.lines()
        while len(readings) < MOST_READINGS and not _are_enough(readings):
            before_ns = time.time_ns()
            await process.write(b"\n")
            line = await anext(lines, "")
            after_ns = time.time_ns()
            if not line.isdigit():
                raise NotReady(f"its clock cannot be read: {line!r}", place=target.name)
            middle_ns = (before_ns + after_ns) // 2
            readings.append(Clock(int(line) - middle_ns, (after_ns - before_ns) // 2))
    finally:
        await to_the_end(_end(process))
    return min(readings, key=lambda clock: clock.error_ns)


def _are_enough(readings: Sequence[Clock]) -> bool:
    """Whether more would hardly be more accurate."""
    if len(readings) < READINGS:
        return False
    best_ns = min(reading.error_ns for reading in readings)
    alike = sum(reading.error_ns <= best_ns * HOW_MUCH_ALIKE for reading in readings)
    return best_ns <= GOOD_NS or alike >= ALIKE


async def _end(process: Process) -> None:
    with contextlib.suppress(HeadraceError):
        await process.close_stdin()
        try:
            await process.wait(END_S)
        except TimeoutError:
            await process.signal("KILL")
