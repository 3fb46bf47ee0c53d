"""What a treatment of a switchback leaves behind for the next one.

A turn's first half is compared with its second: without carry-over their ratio does not depend on which
treatment came before. The model has the turn's own treatment (whose transient may outlast the wash-out) and the
one before it; the F test of the latter is at ``LEVEL``, fixed beforehand. It decides only how long turns are,
never which of them count.

Source: Cochran & Cox 1957, Experimental Designs, 2nd ed., sec. 4.6a (residual effects).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.base.counted import counted
from headrace.base.model import TrialState
from headrace.experiment.frozen import Design
from headrace.experiment.stats.trials import window_seconds
from headrace.experiment.store import RECONNECT, ExperimentFolder, TrialRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The level of the test. A false alarm costs time, not truth.
LEVEL = 0.02

#: Turns become at most this many times as long as planned.
MOST_STRETCH = 8

#: With fewer degrees of freedom for the noise there is no test.
MIN_DEGREES = 6


class Turn(NamedTuple):
    """One turn, the treatment before it after the same start, and the operations/s of its halves."""

    treatment: str
    before: str
    first: float
    second: float


@dataclass(frozen=True)
class Carryover:
    """``size`` is the largest difference in the ratio of the halves, as a log, that goes with the treatment
    before; ``p`` is its probability where nothing is left over.
    """

    turns: int
    p: float
    size: float
    stretch: int = 1

    @property
    def shows(self) -> bool:
        return self.p < LEVEL

    @property
    def text(self) -> str:
        if not self.shows:
            return (
                f"the previous setting does not visibly affect a turn (p = {self.p:.2g}, "
                f"{counted(self.turns, 'turn')})"
            )
        size = f"{100 * math.expm1(self.size):.2g}%"
        return (
            f"the previous setting still affects the first half of a turn, by up to {size} (p = {self.p:.2g})"
        )


def find(turns: Sequence[Turn]) -> Carryover | None:
    """None with too few turns, or treatments that never follow each other."""
    from scipy.special import fdtrc

    sound = [t for t in turns if t.first > 0 and t.second > 0]
    if not sound:
        return None
    y = np.array([math.log(t.first / t.second) for t in sound])
    own = _indicator([t.treatment for t in sound])
    before = _indicator([t.before for t in sound])
    whole = np.hstack([own, before])
    squares, rank = _left(own, y)
    rest, full_rank = _left(whole, y)
    degrees, more = len(y) - full_rank, full_rank - rank
    if more < 1 or degrees < MIN_DEGREES:
        return None
    if rest <= 1e-12 * max(float((y**2).sum()), 1e-12):
        return Carryover(len(y), 1.0, 0.0)
    ratio = max(squares - rest, 0.0) / more / (rest / degrees)
    found = np.linalg.lstsq(whole, y, rcond=None)[0][own.shape[1] :]
    return Carryover(len(y), float(fdtrc(more, degrees, ratio)), float(found.max() - found.min()))


def _indicator(names: Sequence[str]) -> NDArray[np.float64]:
    known = list(dict.fromkeys(names))
    return np.eye(len(known))[[known.index(name) for name in names]]


def _left(design: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, int]:
    found, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    return float(((y - design @ found) ** 2).sum()), int(rank)


def stretch_of(design: Design, record: TrialRecord) -> int:
    """How many times as long as planned a turn was; 0 if it was not measured."""
    if record.window_end_ns == 0:
        return 0
    return max(round(window_seconds(record) / design.workload.seconds), 1)


def stretch(folder: ExperimentFolder, records: Iterable[TrialRecord]) -> int:
    return max((stretch_of(folder.design, record) for record in records), default=1) or 1


def of_folder(folder: ExperimentFolder, records: Sequence[TrialRecord]) -> Carryover | None:
    """The test on the longest turns; None if the experiment is no switchback or has too few."""
    if not folder.design.blocks_per_start:
        return None
    longest = stretch(folder, records)
    own = {
        r.number: r
        for r in records
        if r.state is TrialState.COMPLETE and stretch_of(folder.design, r) == longest
    }
    halves = _halves(folder, own.values())
    turns = []
    for number, record in own.items():
        last = own.get(number - 1)
        if (
            last is None
            or number not in halves
            or folder.design.start_of(last.block) != folder.design.start_of(record.block)
        ):
            continue
        turns.append(Turn(record.treatment, last.treatment, *halves[number]))
    found = find(turns)
    return Carryover(found.turns, found.p, found.size, longest) if found else None


def _halves(folder: ExperimentFolder, records: Iterable[TrialRecord]) -> dict[int, tuple[float, float]]:
    """Operations in the first and in the second half of a turn's window; one in the middle is in none."""
    with folder.database() as connection:
        rows = connection.execute(
            "SELECT trial, t_s, sum(count) FROM intervals WHERE operation <> ? AND t_s >= 0 GROUP BY trial, t_s",
            [RECONNECT],
        ).fetchall()
    by_trial: dict[int, dict[int, float]] = {}
    for trial, t_s, count in rows:
        by_trial.setdefault(int(trial), {})[int(t_s + 0.5)] = float(count or 0)
    found = {}
    for record in records:
        length = round(window_seconds(record))
        own, half = by_trial.get(record.number, {}), length // 2
        first = sum(own.get(k, 0.0) for k in range(half))
        second = sum(own.get(k, 0.0) for k in range(length - half, length))
        found[record.number] = (first, second)
    return found
