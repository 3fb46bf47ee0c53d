"""How far apart equal machines are, by the baseline that every block runs twice.

A block runs on one machine, so the machine's speed is in both sides of every ratio and cancels. This changes no
verdict: it shows the lab's owner whether the machines are as equal as they should be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.experiment.stats.trials import THROUGHPUT, TrialResponse


@dataclass(frozen=True)
class MachineShare:
    """``ratio`` is its baseline's throughput relative to the mean (in log) of all machines, over all
    conditions.
    """

    machine: str
    blocks: int
    ratio: float


@dataclass(frozen=True)
class Spread:
    """``between`` is the largest ratio of two machines' baselines.

    ``within_sd_log`` is the spread of baseline trials of one machine (pooled standard deviation of logs), None if
    no machine has two.
    """

    machines: tuple[MachineShare, ...]
    between: float
    within_sd_log: float | None


def spread(baselines: Mapping[str, Sequence[TrialResponse]], machine_of: Mapping[int, str]) -> Spread | None:
    """``baselines`` maps each condition to its baseline's trials, ``machine_of`` a trial's number to its
    machine.

    None with fewer than two machines with results, or if they share no condition.
    """
    logs: dict[str, dict[str, list[float]]] = {}
    blocks: dict[str, set[int]] = {}
    for condition, trials in baselines.items():
        for trial in trials:
            value, machine = trial.value(THROUGHPUT), machine_of.get(trial.number, "")
            if value and machine:
                logs.setdefault(condition, {}).setdefault(machine, []).append(math.log(value))
                blocks.setdefault(machine, set()).add(trial.block)
    shared = [found for found in logs.values() if set(found) == set(blocks)]
    if len(blocks) < 2 or not shared:
        return None
    offsets: dict[str, list[float]] = {machine: [] for machine in blocks}
    squares, freedom = 0.0, 0
    for found in shared:
        means = {machine: math.fsum(values) / len(values) for machine, values in found.items()}
        middle = math.fsum(means.values()) / len(means)
        for machine, values in found.items():
            offsets[machine].append(means[machine] - middle)
            squares += math.fsum((value - means[machine]) ** 2 for value in values)
            freedom += len(values) - 1
    ratios = {machine: math.exp(math.fsum(own) / len(own)) for machine, own in sorted(offsets.items())}
    return Spread(
        tuple(MachineShare(machine, len(blocks[machine]), ratio) for machine, ratio in ratios.items()),
        max(ratios.values()) / min(ratios.values()),
        math.sqrt(squares / freedom) if freedom else None,
    )


def mixed_blocks(
    machine_of_trial: Mapping[int, str], block_of: Mapping[int, int]
) -> dict[int, tuple[str, ...]]:
    """Blocks with trials of several machines, which only happens if folders were moved by hand."""
    found: dict[int, set[str]] = {}
    for number, machine in machine_of_trial.items():
        found.setdefault(block_of[number], set()).add(machine)
    return {block: tuple(sorted(names)) for block, names in sorted(found.items()) if len(names) > 1}
