"""The time that a history has seen pass: what deletions go by, instead of the clock of this machine.

A machine's clock may be ten years ahead until its time service has run. By such a clock everything is too old. So
the history has a time of its own, ``ROOT/elapsed.json``: it moves with the clock that counts since the boot, which
nobody sets. While the machine was off it moves with the clock, but at most ``MOST_OFF_S``. A clock that is ahead
of it is followed at double speed, so that a machine that really was off for a month needs nobody, and one whose
clock is wrong for an hour loses an hour's worth.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.base.clocks import Clocks
from headrace.base.errors import write_error
from headrace.base.whole import write_whole

DAY_S = 86400.0
#: A machine that was off is believed to have been off for so long.
MOST_OFF_S = 2 * DAY_S
#: A history that is younger than this follows its clock back: it was made while the clock was wrong.
YOUNG_S = DAY_S
#: From this difference on a clock that is ahead is said.
SAID_S = 3600.0
MOST_NOTE_BYTES = 4096


@dataclass(frozen=True)
class Seen:
    """``at_s``: the history's own time at ``moment``. ``for_s``: how long it was followed in all."""

    at_s: float
    moment: Clocks
    for_s: float = 0.0

    def later(self, now: Clocks) -> Seen:
        """The history's own time now."""
        passed_s = now.since(self.moment)
        if passed_s is None:
            passed_s = min(max(now.wall_s - self.moment.wall_s, 0.0), MOST_OFF_S)
        at_s = self.at_s + passed_s
        if at_s < now.wall_s:
            at_s = min(at_s + passed_s, now.wall_s)
        elif self.for_s < YOUNG_S:
            at_s = now.wall_s
        return Seen(at_s, now, self.for_s + passed_s)


class Elapsed:
    """The time of one history, kept on disk. Only its writer may use it."""

    def __init__(self, root: Path, newest_s: float, now: Clocks | None = None) -> None:
        """``newest_s``: of its newest data, from before this was kept; 0 without any."""
        self._note = root / "elapsed.json"
        now = now or Clocks.now()
        start_s = min(now.wall_s, newest_s + MOST_OFF_S) if newest_s else now.wall_s
        # A history with data is not young: its data say when it was.
        known = _read(self._note)
        self._seen = known.later(now) if known else Seen(start_s, now, YOUNG_S if newest_s else 0.0)

    def now_s(self, now: Clocks | None = None) -> float:
        """What an age is measured by: never later than the clock."""
        now = now or Clocks.now()
        self._seen = self._seen.later(now)
        return min(self._seen.at_s, now.wall_s)

    @property
    def at_s(self) -> float:
        """Its own time, which is later than the clock if that was set back."""
        return self._seen.at_s

    @property
    def ahead_s(self) -> float:
        """How far the clock is ahead of what is known to have passed; 0 if not worth a word."""
        ahead_s = self._seen.moment.wall_s - self._seen.at_s
        return ahead_s if ahead_s > SAID_S else 0.0

    @property
    def behind_s(self) -> float:
        """How far the clock is behind that; 0 if not worth a word."""
        behind_s = self._seen.at_s - self._seen.moment.wall_s
        return behind_s if behind_s > SAID_S else 0.0

    def trust_clock(self) -> None:
        """A person says that the clock is right."""
        self._seen = replace(self._seen, at_s=self._seen.moment.wall_s)

    def keep(self) -> None:
        """Raises DiskFull, StoreError."""
        moment = self._seen.moment
        content = {
            "at_s": self._seen.at_s, "for_s": self._seen.for_s, "wall_s": moment.wall_s,
            "boot_s": moment.boot_s, "boot": moment.boot,
        }  # fmt: skip
        try:
            write_whole(self._note, json.dumps(content), 0o600)
        except OSError as error:
            raise write_error(error, self._note) from error


def _read(note: Path) -> Seen | None:
    """None without one, and if it is damaged: then the newest data say when it is."""
    try:
        with note.open("rb") as file:
            found = json.loads(file.read(MOST_NOTE_BYTES))
        numbers = [float(found[key]) for key in ("at_s", "for_s", "wall_s", "boot_s")]
        if not all(0 <= number < 4e9 for number in numbers):
            return None
        at_s, for_s, wall_s, boot_s = numbers
        return Seen(at_s, Clocks(wall_s, boot_s, str(found["boot"])), for_s)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
