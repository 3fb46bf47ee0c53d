"""An effect as every page, verdict and message shows it: a ratio with its interval, and what that proves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headrace.base.intervals import Interval, Needed


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    NOT_ENOUGH_DATA = "not enough data"


@dataclass(frozen=True)
class Effect:
    """One treatment relative to its baseline in one response, as a ratio treatment / baseline: see ``estimate``.

    ``response`` is ``throughput`` or a percentile (``p99``). The interval is simultaneous: adjusted for
    ``comparisons``. ``blocks`` counts those in which both sides were measured. ``blocks_least`` to
    ``blocks_needed`` in total would settle a verdict of ``not enough data``; None where no number is a promise
    (see ``intervals.blocks_needed``).
    """

    response: str
    treatment: str
    baseline: str
    condition: str
    ratio: Interval
    verdict: Verdict
    blocks: int
    blocks_needed: int | None
    comparisons: int
    blocks_least: int | None = None

    @property
    def needed(self) -> Needed | None:
        """The range of blocks in total that would settle it."""
        if self.blocks_needed is None:
            return None
        return Needed(self.blocks_least or self.blocks_needed, self.blocks_needed)


@dataclass(frozen=True)
class NoiseFloor:
    """The A/A comparison of one condition: the baseline's second trial of a block relative to its first.

    ``ratio``'s interval should include 1; its level is adjusted for the number of conditions. ``floor`` is the
    larger distance of the interval's ends from 1: how far two identical runs differ on this machine. It is context
    and decides no verdict: a verdict is based on the treatment's own interval.
    """

    condition: str
    response: str
    ratio: Interval
    floor: float | None
    blocks: int
