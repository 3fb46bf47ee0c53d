"""One clock for the pieces of a dump: texts with a time are at it, the others at the end, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.hunt.dumps.piece import Piece, Status

#: A time before 1989 is an uptime.
CALENDAR_S = 6e8
#: Path of a file -> its content.
Reading = dict[str, str]


@dataclass
class Clock:
    """``end_s``: the latest time known; a server's uptime plus ``boot_s`` is the time of its status."""

    end_s: float
    boot_s: float
    _turn: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        statuses: Sequence[Status],
        readings: Mapping[float, object],
        pieces: Iterable[Piece],
        newest_s: float,
    ) -> Clock:
        known = [at_s for piece in pieces if (at_s := getattr(piece, "at_s", None)) is not None]
        known += [at_s for at_s in readings if at_s > 0]
        end_s = max(known, default=newest_s)
        clocks = [status for status in statuses if "uptime" in status.values]
        timed = [status.at_s - status.values["uptime"] for status in clocks if status.at_s is not None]
        latest = max((status.values["uptime"] for status in clocks), default=0.0)
        return cls(end_s, timed[-1] if timed else end_s - latest)

    def of_status(self, status: Status) -> float | None:
        """None without a clock: its counters belong to no time."""
        if status.at_s is not None:
            return status.at_s
        uptime = status.values.get("uptime")
        return None if uptime is None else self.boot_s + uptime

    def ns(self, at_s: float | None, kind: str = "", of: int = 1) -> int:
        """The time of a piece; of the ``of`` pieces of a kind without one, a second each before the end."""
        if at_s is None:
            turn = self._turn[kind] = self._turn.get(kind, 0) + 1
            at_s = self.end_s - (of - turn)
        return round(at_s * 1e9)


def on_one_clock(readings: Mapping[float, Reading], pieces: Iterable[Piece]) -> dict[float, Reading]:
    """Readings whose only clock is the host's uptime, moved to where others end whose clock is a calendar's.

    A report is made at one moment: what it has of sar ends there, and so do its files of /proc.
    """
    known = [at_s for piece in pieces if (at_s := getattr(piece, "at_s", None)) is not None]
    dated = [at_s for at_s in (*known, *readings) if at_s >= CALENDAR_S]
    by_uptime = [at_s for at_s in readings if 0 < at_s < CALENDAR_S]
    if not dated or not by_uptime:
        return dict(readings)
    later_s = max(dated) - max(by_uptime)
    return {at_s + later_s if at_s in by_uptime else at_s: reading for at_s, reading in readings.items()}
