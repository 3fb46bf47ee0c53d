"""`headrace size prove` over pairs of workloads: use, throughput and p99 together, predicted from each alone.

Six recordings of different kinds are played alone on a real server. For each pair, both are also played alone fast
enough to use as much CPU as the two together; then they are played at once. The peer is the plain sum: of CPU what
each used alone, of p99 what each had alone. Driver and server share the machine, so keep other work on it light.
Targets: the median error of throughput at most 15%, of p99 30%, and 90% of the intervals hold.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import random
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.replays import Said, record, slow_log
from tests.servers import Server, mariadb, open_folder

from headrace.base.model import ServerLogin
from headrace.capacity.foresee import (
    HOST,
    P99,
    THROUGHPUT,
    Allowances,
    Prediction,
    foresee,
    is_inside,
)
from headrace.capacity.model import Resource
from headrace.capacity.prove import MAX_LAG, Asked, Played, Player, block_of, measured
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.host.target.local import LocalTarget

MINUTES = 22
NEEDS = {"mariadbd": "mariadb-server"}
NEEDS_ROOT = True

SECONDS = float(os.environ.get("HEADRACE_BENCH_SECONDS", "10"))
BLOCKS = int(os.environ.get("HEADRACE_BENCH_ROUNDS", "2"))
PAIRS = 12
WARMUP_S, SESSIONS, ROWS = 3.0, 16, 20_000
#: Enough for a play of 5 s at five times the speed.
LENGTH_S = 4 * SECONDS
#: The pair, what was predicted, and what was measured.
Found = tuple[str, Prediction, float]
TARGETS = {THROUGHPUT: 0.15, P99: 0.30}


def _range(dice: random.Random) -> str:
    first = dice.randint(1, ROWS - 400)
    return f"SELECT SUM(k), COUNT(*) FROM t WHERE id BETWEEN {first} AND {first + 400}"


def _sorted(dice: random.Random) -> str:
    first = dice.randint(1, ROWS - 2000)
    return f"SELECT k, COUNT(*) AS n FROM t WHERE id BETWEEN {first} AND {first + 2000} GROUP BY k ORDER BY n DESC"


#: Database -> statements/s, and a statement.
WORKLOADS: dict[str, tuple[int, Callable[[random.Random], str]]] = {
    "points": (7500, lambda dice: f"SELECT pad FROM t WHERE id = {dice.randint(1, ROWS)}"),
    "ranges": (2000, _range),
    "groups": (600, _sorted),
    "updates": (2000, lambda dice: f"UPDATE t SET k = {dice.randint(0, 96)} WHERE id = {dice.randint(1, ROWS)}"),
    "inserts": (2000, lambda dice: f"INSERT INTO grown (pad) VALUES ('{dice.random()}')"),
    "texts": (300, lambda dice: f"SELECT COUNT(*) FROM t WHERE id < 4000 AND pad LIKE '%{dice.random():.3f}%'"),
}  # fmt: skip


def main() -> None:
    with open_folder() as folder, mariadb(folder / "m", "--innodb-buffer-pool-size=256M") as server:
        paths = {name: _recorded(folder, server, name) for name in WORKLOADS}
        outcomes = asyncio.run(_play(server, {name: str(path) for name, path in paths.items()}))
    tell(outcomes)


def _recorded(folder: Path, server: Server, name: str) -> Path:
    server.sql(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.t (id INT PRIMARY KEY, k INT NOT NULL, pad CHAR(120) NOT NULL)",
        f"INSERT INTO {name}.t SELECT seq, seq % 97, REPEAT('x', 120) FROM {name}.seq_1_to_{ROWS}",
        f"CREATE TABLE {name}.grown (id INT PRIMARY KEY AUTO_INCREMENT, pad CHAR(120) NOT NULL)",
    )
    per_s, sql = WORKLOADS[name]
    dice = random.Random(name)
    times = sorted(dice.uniform(0, LENGTH_S) for _ in range(round(LENGTH_S * per_s)))
    said = [Said(n % SESSIONS, at_s, 1e-4, sql(dice), name) for n, at_s in enumerate([0.0, *times, LENGTH_S])]
    return record(slow_log(folder / f"{name}.log", said), folder / f"{name}.rec")


async def _play(server: Server, paths: dict[str, str]) -> list[Found]:
    target = LocalTarget()
    await target.connect()
    try:
        agent = await Agent.install(target)
        login = ServerLogin(socket=server.socket, user="root")
        cores = float(HostFacts(await agent.facts(login)).cpu_count)
        asked = Asked(tuple(paths.values()), BLOCKS, SECONDS, WARMUP_S, options=("--max-lag", MAX_LAG))
        player = Player(target, agent, login, asked, SECONDS, lambda what, left_s: None, lasts_s=LENGTH_S)
        blocks = await player.alone()
        pairs = random.Random(5).sample(list(itertools.combinations(paths, 2)), PAIRS)
        found = []
        for pair in pairs:
            found += await joint(player, blocks, {paths[name]: name for name in pair}, cores)
        return found
    finally:
        await target.close()


async def joint(
    player: Player, blocks: list[dict[str, Played]], pair: Mapping[str, str], cores: float
) -> list[Found]:
    """Predicted from the plays alone, then played at once. ``pair``: what is played -> its name."""
    alone = [block_of({name: plays[name] for name in (HOST, *pair)}) for plays in blocks]
    faster = replace(player, asked=replace(player.asked, recordings=tuple(pair)))
    busy, too_short_s = await faster.busy(alone, cores)
    for name in too_short_s:
        print(f"{' + '.join(pair.values()):36} {Path(name).stem} is too short to be played so fast")
    foreseen = foresee(alone, 1, cores, Allowances({}), busy)
    plays = [await player.settled(list(pair), 1) for _ in range(player.asked.blocks)]
    found = [(" + ".join(pair.values()), each, measured(each, plays).estimate) for each in foreseen]
    for each in found:
        tell_one(*each)
    return found


def tell_one(pair: str, prediction: Prediction, value: float) -> None:
    low, high = prediction.interval.low, prediction.interval.high
    what = Path(prediction.what).stem or "host"
    print(
        f"{pair:36} {what:16} {prediction.quantity:12} predicted {prediction.interval.estimate:10.4g} "
        f"({low or 0:.4g} to {high if high is not None else float('inf'):.4g}) "
        f"sum {prediction.naive:10.4g} measured {value:10.4g}",
        flush=True,
    )


def tell(outcomes: list[Found], *, with_targets: bool = True) -> None:
    for quantity in (Resource.CPU, THROUGHPUT, P99):
        of = [(each, value) for _, each, value in outcomes if each.quantity == quantity and value == value]
        finite = [(each, value) for each, value in of if math.isfinite(each.interval.estimate)]
        said = "no estimate"
        if finite:
            ours = statistics.median(abs(value / each.interval.estimate - 1) for each, value in finite)
            naive = statistics.median(abs(value / each.naive - 1) for each, value in finite)
            target = TARGETS.get(quantity) if with_targets else None
            met = "" if target is None else f" (target {target:.0%}: {'met' if ours <= target else 'MISSED'})"
            said = f"median error {ours:.1%}{met}, of the plain sum {naive:.1%}"
        inside = sum(is_inside(each.interval, value) for each, value in of)
        print(f"{quantity}: {said}; {inside} of {len(of)} intervals hold")


if __name__ == "__main__":
    main()
