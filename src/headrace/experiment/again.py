"""Trials that something outside disturbed are measured again by themselves, so that an unattended run ends whole.

Only while their block is under way: a trial measured a day later shares nothing with its block. And a bounded
number of times, because a machine that is disturbed all the time does not become quiet by being asked again.

What is replaced is never told by its numbers: a trial is invalid for what was seen beside it (another program, an
array's resync), so measuring it again does not choose among results. The record of the new trial says how often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.analysis.sweep import is_driver_saturated
from headrace.model import TrialState
from headrace.store import TrialRecord

#: A trial is measured at most so many times more ...
MAX_EACH = 2

#: ... and all trials together at most a fifth more, but some in a short experiment, too.
MAX_SHARE = 5
LEAST = 4


class Again:
    """How many trials may still be measured again; ``tell`` hears of each."""

    def __init__(self, records: Iterable[TrialRecord], planned: int, tell: Callable[[str], None]) -> None:
        self._left = max(LEAST, planned // MAX_SHARE) - sum(len(r.earlier) for r in records)
        self._tell = tell

    def wants(self, record: TrialRecord) -> bool:
        """Whether it was disturbed, and may be measured again. A driver that is saturated would be so again."""
        is_disturbed = record.state is TrialState.INVALID and not is_driver_saturated(record)
        return is_disturbed and len(record.earlier) < MAX_EACH and self._left > 0

    def begin(self, record: TrialRecord) -> None:
        """Say that it is measured again, and count it."""
        self._left -= 1
        attempt = len(record.earlier) + 1
        self._tell(
            f"trial {record.number} ({record.treatment}) is measured again, {attempt} of {MAX_EACH} times: "
            f"{record.reason}"
        )


def replacing(record: TrialRecord, old: TrialRecord | None) -> list[str]:
    """``earlier`` of a record that takes the place of an old one: why that did not count."""
    if old is None or old.state is TrialState.COMPLETE:
        return list(record.earlier)
    return [*old.earlier, f"{old.state}: {old.reason}"]
