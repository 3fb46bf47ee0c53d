"""Repeat disturbed trials automatically, so that an unattended run is complete at its end.

Only while their block is running: a trial measured a day later shares nothing with its block. The number of
repeats is limited, because a machine that is always disturbed does not get quieter.

A trial is invalid because of an independent observation (another program, an array resync), never because of its
result, so repeating it selects nothing. The new trial's record keeps the reasons of the earlier attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.base.model import TrialState
from headrace.experiment.stats.sweep import is_driver_saturated
from headrace.experiment.store import TrialRecord

#: Repeats of one trial ...
MAX_EACH = 2

#: ... and of all together: a fifth of the trials, with a minimum for short experiments.
MAX_SHARE = 5
LEAST = 4


class Retries:
    """How many trials may still be repeated; ``tell`` is called for each."""

    def __init__(
        self,
        records: Iterable[TrialRecord],
        planned: int,
        tell: Callable[[str], None],
        most: int | None = None,
    ) -> None:
        """``most``: of these trials, which are a part of an experiment; None: they are all of it."""
        allowed = max(LEAST, planned // MAX_SHARE) if most is None else most
        self.left = allowed - sum(len(r.earlier) for r in records)
        self._tell = tell

    def wants(self, record: TrialRecord) -> bool:
        """Whether it was disturbed and may be repeated. A saturated driver would be saturated again."""
        is_disturbed = record.state is TrialState.INVALID and not is_driver_saturated(record)
        return is_disturbed and len(record.earlier) < MAX_EACH and self.left > 0

    def begin(self, record: TrialRecord) -> None:
        """Report the repeat, and count it."""
        self.left -= 1
        attempt = len(record.earlier) + 1
        self._tell(
            f"trial {record.number} ({record.treatment}) is measured again, {attempt} of {MAX_EACH} times: "
            f"{record.reason}"
        )


def replacing(record: TrialRecord, old: TrialRecord | None) -> list[str]:
    """``earlier`` of a record that replaces an old one: why that one did not count."""
    if old is None or old.state is TrialState.COMPLETE:
        return list(record.earlier)
    return [*old.earlier, f"{old.state}: {old.reason}", *record.earlier]
