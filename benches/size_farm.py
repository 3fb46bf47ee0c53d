"""A farm of eight small databases, merged onto as few hosts as `headrace size merge` finds, and replayed there.

Each database has a busy part of its day, four of them in the morning and four in the evening. A second of a
recording stands for an hour. 1. Each database is played alone for three days: the server's CPU in each second is
its demand. 2. `headrace size merge` plans hosts of one size from these demands. 3. Each planned host is a server
with that quota of CPU: its databases are replayed on it together, as `headrace size prove` does, and compared with
its predictions. They must hold: every statement in time, and each p99 below the objective. 4. The counter-proof:
the averages ask for one host, and all databases on one must not hold.

Driver and server share the machine, so other work on it must be light. The exit code is 1 if the plan
did not hold, or if what it refuses did.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pymysql

sys.path.insert(0, str(Path(__file__).parent.parent))

from benches.size import limited
from tests.replays import Said, record, slow_log
from tests.servers import Server, mariadb, open_folder
from tests.traces import cpu_s

from headrace.base.model import ServerLogin
from headrace.capacity.foresee import HOST, P99, THROUGHPUT, Allowances, foresee, is_inside
from headrace.capacity.prove import Asked, Played, Player, block_of, measured
from headrace.host.agent import Agent
from headrace.host.target.local import LocalTarget

MINUTES = 20
NEEDS = {"mariadbd": "mariadb-server"}
NEEDS_ROOT = True

#: Hours of a day, each a second of a recording; days that are measured.
HOURS, DAYS = 24, int(os.environ.get("HEADRACE_BENCH_ROUNDS", "3"))
DAY_S = 86_400
WARMUP_S, SESSIONS, ROWS = 3.0, 16, 20_000
#: Cores that a quiet and a busy database would use if its statements ran back to back. With pauses in
#: between they use up to twice as much.
QUIET, BUSY = 0.03, 0.24
#: First busy hour, and how many there are.
MORNING, EVENING, BUSY_HOURS = 6, 16, 5
#: How full a planned host may get, and its cores as a share of the farm's measured peak. Two hosts are enough if
#: each takes half of the peak; one alone would be at 128%.
KNEE, OF_PEAK = 0.8, 0.78
OBJECTIVE_MS, MAX_LAG = 100.0, "500ms"


def _point(dice: random.Random) -> str:
    return f"SELECT pad FROM t WHERE id = {dice.randint(1, ROWS)}"


def _range(dice: random.Random) -> str:
    first = dice.randint(1, ROWS - 400)
    return f"SELECT SUM(k), COUNT(*) FROM t WHERE id BETWEEN {first} AND {first + 400}"


def _groups(dice: random.Random) -> str:
    first = dice.randint(1, ROWS - 1000)
    return f"SELECT k, COUNT(*) AS n FROM t WHERE id BETWEEN {first} AND {first + 1000} GROUP BY k ORDER BY n DESC"


def _update(dice: random.Random) -> str:
    return f"UPDATE t SET k = {dice.randint(0, 96)} WHERE id = {dice.randint(1, ROWS)}"


KINDS: dict[str, Callable[[random.Random], str]] = {
    "points": _point, "ranges": _range, "groups": _groups, "updates": _update,
}  # fmt: skip
#: Database -> its kind of statement, and when it is busy.
FARM = {f"{kind}{number}": (kind, first) for number, first in ((1, MORNING), (2, EVENING)) for kind in KINDS}


def main() -> None:
    with open_folder() as folder, mariadb(folder / "m", "--innodb-buffer-pool-size=256M") as server:
        costs = {kind: _cost_s(server, kind) for kind in KINDS}
        print("CPU of a statement, us:", {kind: round(1e6 * cost) for kind, cost in costs.items()})
        paths = {name: _recorded(folder, server, name, costs) for name in FARM}
        sys.exit(asyncio.run(_farm(folder, server, {name: str(path) for name, path in paths.items()})))


def _cost_s(server: Server, kind: str) -> float:
    """CPU of the server for one statement that comes alone."""
    _create(server, f"try_{kind}")
    dice, count = random.Random(kind), 1500
    with pymysql.connect(
        unix_socket=server.socket, user="root", database=f"try_{kind}", autocommit=True
    ) as session:
        cursor = session.cursor()
        before = cpu_s(server.pid)
        for _ in range(count):
            cursor.execute(KINDS[kind](dice))
            cursor.fetchall()
        return (cpu_s(server.pid) - before) / count


def _create(server: Server, name: str) -> None:
    server.sql(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.t (id INT PRIMARY KEY, k INT NOT NULL, pad CHAR(120) NOT NULL)",
        f"INSERT INTO {name}.t SELECT seq, seq % 97, REPEAT('x', 120) FROM {name}.seq_1_to_{ROWS}",
    )


def _recorded(folder: Path, server: Server, name: str, costs: dict[str, float]) -> Path:
    """A day, after a warm-up at its quiet rate."""
    _create(server, name)
    kind, busy_from = FARM[name]
    dice = random.Random(name)
    length_s = WARMUP_S + HOURS
    times = [0.0, length_s]
    for second in range(int(length_s)):
        hour = second - WARMUP_S
        cores = BUSY if busy_from <= hour < busy_from + BUSY_HOURS else QUIET
        times += [second + dice.random() for _ in range(round(cores / costs[kind]))]
    said = [Said(n % SESSIONS, at_s, 1e-4, KINDS[kind](dice), name) for n, at_s in enumerate(sorted(times))]
    return record(slow_log(folder / f"{name}.log", said), folder / f"{name}.rec")


async def _farm(folder: Path, server: Server, paths: dict[str, str]) -> int:
    target = LocalTarget()
    await target.connect()
    try:
        login = ServerLogin(socket=server.socket, user="root")
        asked = Asked(tuple(paths.values()), DAYS, float(HOURS), WARMUP_S, options=("--max-lag", MAX_LAG))
        player = Player(
            target,
            await Agent.install(target),
            login,
            asked,
            HOURS,
            lambda what, left_s: None,
            pid=server.pid,
        )
        blocks, demands = await _alone(player, server, paths)
        cores = round(OF_PEAK * max(map(sum, zip(*demands.values(), strict=True))), 2)
        plan = _plan(folder, demands, cores)
        is_right = _tell_plan(plan, demands, cores)
        with limited(server, cores):
            for host in plan["hosts"]:
                is_right &= await _together(player, server, paths, blocks, host["databases"], must_hold=True)
            is_right &= await _together(player, server, paths, blocks, list(FARM), must_hold=False)
        return 0 if is_right else 1
    finally:
        await target.close()


async def _alone(
    player: Player, server: Server, paths: dict[str, str]
) -> tuple[list[dict[str, Played]], dict[str, list[float]]]:
    """By day: what each used; and database -> cores in each hour of all days."""
    demands: dict[str, list[float]] = {name: [] for name in paths}
    blocks = []
    for _ in range(DAYS):
        plays = {HOST: await player.settled([], 1)}
        for name, path in paths.items():
            with _metered(server) as meter:
                plays[path] = await player.play([path], 1)
            demands[name] += _hours(meter)
        blocks.append(plays)
    return blocks, demands


@contextmanager
def _metered(server: Server) -> Iterator[list[tuple[float, float]]]:
    """(s, CPU s of the server so far), several times a second."""
    seen: list[tuple[float, float]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            seen.append((time.monotonic(), cpu_s(server.pid)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def _hours(meter: Sequence[tuple[float, float]]) -> list[float]:
    """Cores in each second of the day: the last ones before the server came to rest."""
    times, used = np.array(meter).T
    worked = np.flatnonzero(np.diff(used) > 0)
    end = times[worked[-1] + 1]
    edges = end - np.arange(HOURS, -1, -1)
    return [round(float(each), 4) for each in np.diff(np.interp(edges, times, used))]


def _plan(folder: Path, demands: dict[str, list[float]], host_cores: float) -> dict[str, Any]:
    """What `headrace size merge` says."""
    table, hosts = folder / "demands.csv", folder / "hosts.csv"
    rows = [
        f"{name},{hour * 3600 + DAY_S * 20_000},cpu,{cores}"
        for name, values in demands.items()
        for hour, cores in enumerate(values)
    ]
    table.write_text("\n".join(["host,time,resource,value", *rows]) + "\n")
    hosts.write_text(f"name,cpu,cpu_knee,price,currency\nsmall,{host_cores},{KNEE},100,USD\n")
    words = [
        "size",
        "merge",
        str(table),
        "-c",
        str(hosts),
        "--none-may-fail",
        "--ahead",
        "1d",
        "--budget",
        "20s",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words, "--json"], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(
            f"headrace size merge: exit code {done.returncode}: {done.stderr[-500:]}{done.stdout[-500:]}"
        )
    return dict(json.loads(done.stdout))


def _tell_plan(plan: dict[str, Any], demands: dict[str, list[float]], cores: float) -> bool:
    averages = sum(float(np.mean(values)) for values in demands.values())
    own_peaks = sum(max(values) for values in demands.values())
    print(f"{len(demands)} databases: {averages:.2f} cores on average, {own_peaks:.2f} if all peaked at once")
    print(f"hosts of {cores} cores, used up to {KNEE:.0%}")
    print(plan["notice"]["headline"])
    for host in plan["hosts"]:
        print(f"  {host['name']}: {', '.join(host['databases'])}")
    by_average = int(np.ceil(averages / (cores * KNEE)))
    print(f"averages ask for {by_average} host(s), the plan for {len(plan['hosts'])}")
    return by_average < len(plan["hosts"]) < len(demands)


async def _together(
    player: Player, server: Server, paths: dict[str, str], blocks: list[dict[str, Played]],
    names: Sequence[str], *, must_hold: bool,
) -> bool:  # fmt: skip
    """Whether it was as it must be."""
    chosen = [paths[name] for name in names]
    alone = [block_of({each: plays[each] for each in (HOST, *chosen)}) for plays in blocks]
    foreseen = foresee(alone, 1, 2.0, Allowances({}))
    plays = []
    for _ in range(DAYS):
        before = cpu_s(server.pid)
        plays.append(await player.settled(chosen, 1))
        print(f"  {', '.join(names)}: {cpu_s(server.pid) - before:.1f} s of CPU", flush=True)
    late = {Path(name).stem: why for play in plays for name, why in play.invalid.items()}
    p99_ms = {
        Path(name).stem: 1000 * float(np.mean([play.p99_s.get(name, np.inf) for play in plays]))
        for name in chosen
    }
    holds = not late and max(p99_ms.values()) <= OBJECTIVE_MS
    print(
        f"  {'holds' if holds else 'does not hold'}; p99, ms:",
        {name: round(value, 1) for name, value in p99_ms.items()}, *late.values(),
    )  # fmt: skip
    if must_hold:
        for quantity in ("cpu", THROUGHPUT, P99):
            own = [(each, measured(each, plays).estimate) for each in foreseen if each.quantity == quantity]
            inside = sum(is_inside(each.interval, value) for each, value in own)
            print(f"    {quantity}: {inside} of {len(own)} predictions hold")
    return holds == must_hold


if __name__ == "__main__":
    main()
