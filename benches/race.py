"""What a race saves and what it risks, in simulated studies whose truth is known: the published tables' effects.

Trials are an hour long, as those of the study: off by 2% by themselves, the mean of seconds with an
autocorrelation of 0.9, with a drift from trial to trial. Printed: the time of the races; how often the best left,
or the choice was worse than the best by more than the margin; the trials, beside those of

- all blocks: every configuration in as many blocks as the race may have at most (what a plan without a race runs);
- settled: a factorial in as many blocks as settle the best against every other (different, or within the margin),
  at the same alpha, each with a power of 80% (and 90%), with the true effects known. The honest full study;
- same decision: a factorial in as many blocks as tell with that power that its leader is within the margin;
- looked at: a factorial that looks after each block, as the race does, and stops when that is decided.

The peers make the same decision on the same kind of noise: Optuna's WilcoxonPruner, candidate by candidate as it
works, with its own threshold and with alpha / (K - 1), and successive halving.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests import published

from headrace.base.intervals import blocks_to_settle
from headrace.experiment.stats import race
from headrace.experiment.stats.audit import AUTOCORRELATION, trial_logs

MINUTES = 15

Floats = NDArray[np.float64]

ALPHA = 0.05
SECONDS = 3600
DRIFT = 0.01
MOST_BLOCKS = 30
TARGET_S, TARGET_SHARE = 300.0, 0.17


@dataclass(frozen=True)
class Ran:
    """One simulated study: the trials it took, its choice, and whether the best had left before."""

    trials: int
    choice: int
    has_dropped: bool
    is_decided: bool = True


class Machine:
    """Yields trials in the order in which they are asked for: drift goes on from one to the next."""

    def __init__(self, truth: Floats, rng: np.random.Generator) -> None:
        self._truth, self._rng = truth, rng
        self._drift = DRIFT * rng.standard_normal()
        self.trials = 0

    def trial(self, i: int) -> float:
        step = math.sqrt(1 - AUTOCORRELATION**2) * DRIFT
        self._drift = AUTOCORRELATION * self._drift + step * self._rng.standard_normal()
        self.trials += 1
        return float(self._truth[i] + self._drift + trial_logs(self._rng, (1,), SECONDS)[0])

    def block(self, members: Sequence[int]) -> dict[int, float]:
        return {int(i): self.trial(int(i)) for i in self._rng.permutation(members)}


def raced(machine: Machine, count: int, best: int, margin: float, *, drops: bool = True) -> Ran:
    """Without ``drops`` everything runs in every block, and only the end is the race's."""
    judge = race.Judge([str(i) for i in range(count)], alpha=ALPHA, margin=margin)
    alive = list(range(count))
    for _ in range(MOST_BLOCKS):
        judge.after({str(i): value for i, value in machine.block(alive).items()})
        found = judge.race()
        if drops:
            alive = [int(name) for name in found.survivors]
        if found.is_decided:
            break
    return Ran(machine.trials, int(found.leader), str(best) not in found.survivors, found.is_decided)


def halved(machine: Machine, count: int, best: int) -> Ran:
    """Successive halving (Jamieson & Talwalkar 2016): the better half runs on with twice the blocks."""
    alive, blocks = list(range(count)), 2
    values: dict[int, list[float]] = {i: [] for i in alive}
    while len(alive) > 1:
        for _ in range(blocks):
            for i, value in machine.block(alive).items():
                values[i].append(value)
        alive.sort(key=lambda i: -sum(values[i]) / len(values[i]))
        alive, blocks = alive[: math.ceil(len(alive) / 2)], 2 * blocks
    return Ran(machine.trials, alive[0], alive[0] != best)


def pruned(machine: Machine, count: int, best: int, threshold: float) -> Ran:
    """Optuna's WilcoxonPruner: each candidate runs block by block until it is worse than the best so far."""
    import optuna

    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.WilcoxonPruner(p_threshold=threshold)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    gone = set()
    for i in map(int, np.random.default_rng(machine.trials + best).permutation(count)):
        trial = study.ask()
        trial.set_user_attr("candidate", i)
        values = []
        for step in range(MOST_BLOCKS):
            values.append(machine.trial(i))
            trial.report(values[-1], step)
            if trial.should_prune():
                gone.add(i)
                break
        # What was seen of a pruned candidate stands as its value, as Optuna's own example does.
        study.tell(trial, sum(values) / len(values))
    kept = [t for t in study.trials if t.user_attrs["candidate"] not in gone]
    choice = max(kept, key=lambda t: t.value or -math.inf).user_attrs["candidate"]
    return Ran(machine.trials, choice, best in gone)


Method = Callable[[Machine, int, int], Ran]


def run_many(method: Method, truth: Floats, seeds: Sequence[int]) -> list[Ran]:
    best = int(truth.argmax())
    return [method(Machine(truth, np.random.default_rng(seed)), len(truth), best) for seed in seeds]


def simulated(pool: ProcessPoolExecutor, method: Method, truth: Floats, studies: int) -> list[Ran]:
    parts = [range(k, min(k + 20, studies)) for k in range(0, studies, 20)]
    found = pool.map(partial(run_many, method, truth), parts)
    return [ran for part in found for ran in part]


def children_s(pool: ProcessPoolExecutor) -> float:
    """The CPU time of the pool's two processes: what is left of the clock's where others use the machine."""
    return sum(dict(pool.map(_own_s, range(50))).values())


def _own_s(_: int) -> tuple[int, float]:
    time.sleep(0.005)  # so that each of the two gets some
    return os.getpid(), time.process_time()


def pair_deviation(truth: Floats) -> float:
    """Of the difference of two configurations within a block, drift included."""
    machine = Machine(np.zeros(len(truth)), np.random.default_rng(99))
    rows = np.array([[block[i] for i in range(len(truth))] for block in
                     (machine.block(range(len(truth))) for _ in range(300))])  # fmt: skip
    return float(np.std(rows[:, 1:] - rows[:, :1]))


def settled_blocks(truth: Floats, margin: float, power: float) -> int:
    """As many as the hardest of the others needs beside the best, two-sided at alpha / (K - 1)."""
    deviation, level = pair_deviation(truth), ALPHA / (len(truth) - 1)
    order = np.sort(truth)[::-1]
    needed = [
        blocks_to_settle(order[0] - own, deviation, math.log1p(margin), level, power=power)
        for own in order[1:]
    ]
    return max(n if n is not None else 10**6 for n in needed)


def deciding_blocks(truth: Floats, margin: float, powers: Sequence[float], studies: int = 100) -> list[int]:
    """The least, for each power, with which a factorial tells its leader to be within the margin: simulated."""
    count, level = len(truth), ALPHA / (len(truth) - 1)
    rng = np.random.default_rng(7)
    shares: list[float] = []
    tables = []
    for _ in range(studies):
        machine = Machine(truth, rng)
        blocks = (machine.block(range(count)) for _ in range(MOST_BLOCKS))
        tables.append(np.array([[block[i] for i in range(count)] for block in blocks]).T)
    for blocks in range(2, MOST_BLOCKS + 1):
        decided = 0
        for table in tables:
            own = table[:, :blocks]
            pairs = race.pairs(own, race.pool(own))
            leader = int(own.mean(axis=1).argmax())
            upper = np.delete((pairs.mean + pairs.half_width(level))[:, leader], leader)
            decided += bool(upper.max() <= math.log1p(margin))
        shares.append(decided / studies)
        if shares[-1] >= max(powers):
            break
    return [next((2 + i for i, s in enumerate(shares) if s >= power), MOST_BLOCKS) for power in powers]


def told(name: str, found: Sequence[Ran], truth: Floats, margin: float, settled: int) -> tuple[float, float]:
    """Print a line; (how often the best left, its part of the settled study's trials)."""
    gone = float(np.mean([r.has_dropped for r in found]))
    worse = float(np.mean([truth[r.choice] < truth.max() - math.log1p(margin) for r in found]))
    trials = float(np.mean([r.trials for r in found]))
    open_ = float(np.mean([not r.is_decided for r in found]))
    print(
        f"  {name:34} {len(found):6,} studies: best left {100 * gone:5.1f}%, choice worse by over "
        f"{100 * margin:g}% {100 * worse:5.1f}%, undecided {100 * open_:4.1f}%, {trials:6.0f} trials = "
        f"{100 * trials / settled:5.1f}% of settled",
        flush=True,
    )
    return gone, trials / settled


def show(pool: ProcessPoolExecutor, name: str, truth: Floats, arguments: argparse.Namespace) -> bool:
    margin, count = arguments.margin, len(truth)
    settled = {power: settled_blocks(truth, margin, power) for power in (0.8, 0.9)}
    same = dict(zip(settled, deciding_blocks(truth, margin, tuple(settled)), strict=True))
    full = settled[0.8] * count
    near = int((truth >= truth.max() - math.log1p(margin)).sum())
    print(f"{name}: {count} configurations, {near} within {100 * margin:g}% of the best")
    began, cpu_s = time.perf_counter(), children_s(pool)
    races = simulated(pool, partial(raced, margin=margin), truth, arguments.studies)
    took_s, cpu_s = time.perf_counter() - began, children_s(pool) - cpu_s
    gone, share = told("race", races, truth, margin, full)
    told("successive halving", simulated(pool, halved, truth, arguments.studies), truth, margin, full)
    if arguments.peers:
        looked = simulated(pool, partial(raced, margin=margin, drops=False), truth, arguments.peers)
        told("factorial, looked at", looked, truth, margin, full)
        for threshold in (0.1, ALPHA / (count - 1)):
            peers = simulated(pool, partial(pruned, threshold=threshold), truth, arguments.peers)
            told(f"WilcoxonPruner, p_threshold {threshold:.2g}", peers, truth, margin, full)
    trials = float(np.mean([r.trials for r in races]))
    for what, blocks in (
        ("all blocks", MOST_BLOCKS),
        ("settled, power 80%", settled[0.8]),
        ("settled, power 90%", settled[0.9]),
        ("same decision, power 80%", same[0.8]),
        ("same decision, power 90%", same[0.9]),
    ):
        part = 100 * trials / (blocks * count)
        print(
            f"  full study, {what:26} {blocks:4} blocks, {blocks * count:6,} trials: the race ran {part:.1f}%"
        )
    limit = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / len(races))
    print(
        f"  {len(races):,} races in {took_s:.0f} s, {cpu_s:.0f} s of CPU "
        f"({1e3 * cpu_s / len(races):.0f} ms each); time / target {took_s / TARGET_S:.2f}; "
        f"best left / allowed {gone / limit:.2f}; share / target {share / TARGET_SHARE:.2f}",
        flush=True,
    )
    return took_s <= TARGET_S and gone <= limit and share <= TARGET_SHARE


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--peers", type=int, default=100, help="studies of the slow ones [100]; 0: none")
    parser.add_argument("--margin", type=float, default=0.03)
    arguments = parser.parse_args()
    writes = np.log(list(published.random_writes().values()))
    reads = np.log(list(published.random_reads().values()))
    with ProcessPoolExecutor(max_workers=2) as pool:
        kept = [show(pool, "random writes", writes, arguments), show(pool, "random reads", reads, arguments)]
        equals = simulated(pool, partial(raced, margin=arguments.margin), np.zeros(12), arguments.studies)
        # Any of twelve equals that leaves is the best; counted is one that is named beforehand.
        gone = float(np.mean([r.has_dropped for r in equals]))
        print(
            f"twelve equals: one that is named beforehand left in {100 * gone:.1f}% of {len(equals):,} races"
        )
    return 0 if all(kept) and gone <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / len(equals)) else 1


if __name__ == "__main__":
    sys.exit(main())
