"""Was the trial in a steady state when its measured window started, and did it stay there?

MSER-5 finds the cut that minimises the standard error of the mean of the rest, over means of 5 seconds: a
transient at the start inflates it, so the best cut is at the end of the transient.

Source: White 1997, An effective truncation heuristic for bias reduction in simulation output, Simulation 69(6);
batches of 5: White, Cobb & Spratt 2000; as a practical choice: Robinson 2014, Simulation, 2nd ed., ch. 9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.experiment.stats import changes

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Seconds in a batch: the 5 of MSER-5.
BATCH = 5

#: Two minutes. MSER cuts part of any noise, so a cut on its own is no reason to warn: of simulated series without
#: a transient (autocorrelation 0.9) it falls late enough for a warning in 19% at 2 minutes and 9% at 4. The part
#: that it cuts must also differ from the rest by more than chance, as in ``changes``.
MIN_BATCHES = 24

#: A cut beyond this share of the window means that the warm-up was too short.
LATE = 0.25

#: The cut only deserves a warning if it changes the mean by more than this, a third of the default equivalence
#: margin.
MIN_SHIFT = 0.01


def mser5(per_second: NDArray[np.float64]) -> int | None:
    """Where to cut a trial's series, one value per second: the number of seconds to drop.

    The cut is in the first half; if it is at its end, MSER found no steady state. None for a series under
    MIN_BATCHES * BATCH seconds. The last incomplete batch is ignored.
    """
    n = len(per_second) // BATCH
    if n < MIN_BATCHES:
        return None
    batches = np.asarray(per_second[: n * BATCH], dtype=np.float64).reshape(n, BATCH).mean(axis=1)
    # Sums over all tails, vectorised, so that an hour of seconds needs no loop. Centred, for precision.
    tail = np.cumsum((batches - batches.mean())[::-1])[::-1]
    squares = np.cumsum(((batches - batches.mean()) ** 2)[::-1])[::-1]
    left = np.arange(n, 0, -1)
    errors = (squares - tail**2 / left) / left**2
    return int(np.argmin(errors[: n // 2 + 1])) * BATCH


def unsteady(per_second: NDArray[np.float64]) -> str | None:
    """A sentence if a trial was not in one state throughout its window, else None."""
    found = changes.judge(per_second)
    warming = warm_up_too_short(per_second)
    if found is None or (warming and found.kind in (changes.Kind.STEADY, changes.Kind.WARMING_UP)):
        return warming
    return changes.sentence(found)


def warm_up_too_short(per_second: NDArray[np.float64]) -> str | None:
    """A sentence if a trial's measured window still contains warm-up, else None."""
    cut = mser5(per_second)
    if cut is None or cut <= LATE * len(per_second):
        return None
    whole, steady = float(np.mean(per_second)), float(np.mean(per_second[cut:]))
    if steady <= 0 or abs(whole / steady - 1) <= MIN_SHIFT or not changes.is_change(per_second, cut):
        return None
    return (
        f"not steady: throughput settles only {cut} s into the measured {len(per_second)} s, where it is "
        f"{steady / whole - 1:+.1%} relative to the whole; a longer warm-up would drop that part"
    )
