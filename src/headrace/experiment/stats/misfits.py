"""Runs that do not fit the others: far from what the rest of their own treatment shows.

One run of a table can be at half speed because of something that nobody wrote down. Its treatment's other runs
tell: it is compared with their mean, by a deviation that is theirs as far as they are many, else the common one.
So a treatment that varies more than the others has no misfits by that alone.

Of two runs, nothing says which one is off. Of three, two that were spoiled alike would outvote the good one: where
so many do not fit that this is likely somewhere in the table, those of three are left to the model of all.

Sources: Belsley, Kuh & Welsch 1980, Regression Diagnostics, ch. 2 (deleted residuals); Smyth 2004, Stat. Appl.
Genet. Mol. Biol. 3 (moderated variances); Tukey 1977, Exploratory Data Analysis, ch. 11 (median polish).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.experiment.stats.additive import MEDIAN, PRIOR
from headrace.experiment.stats.estimate import Seen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]

#: How often a table of normal noise has a run that is said not to fit. With more, a treatment five times as noisy
#: as the others loses runs of its own, and effects are claimed that are not there.
LEVEL = 0.0002

#: What is less away, as a log, decides nothing that matters.
LEAST = 0.03

#: Fewer runs of a treatment cannot tell which one is off. Nor can a block of fewer: then blocks are noise.
MIN_RUNS = 3

#: With a share f of N runs spoiled, two are in f * f * N treatments of three runs: at most this.
MOST_OUTVOTED = 0.1

#: Sweeps of the medians of blocks and treatments.
_SWEEPS = 4


def of_runs(runs: Sequence[Seen]) -> list[int]:
    """The places of the runs that do not fit."""
    from scipy.special import stdtrit

    logs = np.array([run.log for run in runs])
    treatments, blocks = _places([run.treatment for run in runs]), _places([run.block for run in runs])
    rest = _without_blocks(logs, treatments, blocks)
    common = _common(rest, treatments)
    if not common:
        return []
    found: list[int] = []
    of_three: list[int] = []
    for own in treatments:
        count = len(own)
        if count < MIN_RUNS:
            continue
        values = rest[own]
        sums, squares = values.sum() - values, (values**2).sum() - values**2
        means = sums / (count - 1)
        within = np.maximum(squares - (count - 1) * means**2, 0.0)
        degrees = PRIOR + count - 2
        variance = (PRIOR * common**2 + within) / degrees * (1 + 1 / (count - 1))
        far = stdtrit(degrees, 1 - LEVEL / 2 / len(logs)) * np.sqrt(variance)
        outside = own[np.abs(values - means) > np.maximum(far, LEAST)].tolist()
        (of_three if count == MIN_RUNS else found).extend(outside)
    if len(of_three) ** 2 <= MOST_OUTVOTED * len(logs):
        found += of_three
    return sorted(found)


def _places(keys: Sequence[object]) -> list[Codes]:
    """The places of each key."""
    own: dict[object, list[int]] = {}
    for place, key in enumerate(keys):
        own.setdefault(key, []).append(place)
    return [np.array(places) for places in own.values()]


def _without_blocks(logs: Floats, treatments: Sequence[Codes], blocks: Sequence[Codes]) -> Floats:
    """The logs without what their blocks have in common, by medians in turn."""
    rest = logs.copy()
    if min(len(own) for own in blocks) < MIN_RUNS:
        return rest
    of_blocks = np.zeros(len(logs))
    for _ in range(_SWEEPS):
        for own in treatments:
            rest[own] = logs[own] - of_blocks[own]
            rest[own] -= np.median(rest[own])
        for own in blocks:
            of_blocks[own] += np.median(rest[own])
    return logs - of_blocks


def _common(rest: Floats, treatments: Sequence[Codes]) -> float:
    """The deviation of a run, from the medians of treatments: each determines one of its own residuals."""
    away = np.concatenate([np.sort(np.abs(rest[own] - np.median(rest[own])))[1:] for own in treatments])
    return float(np.median(away)) / MEDIAN if len(away) else 0.0
