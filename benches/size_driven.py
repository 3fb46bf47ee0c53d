"""TPC-C beside read-only transactions and memcached on one host: predicted from each alone, and measured.

The driver plays each load alone at a constant rate, then every two at once, at three sizes: the two together take
about 40%, 70% and 130% of the CPUs. Before that, each of the two is played alone fast enough to take as much. The
last size does not fit, and `headrace size prove` predicts what is left of the throughput; of response times it
predicts only that they grow as long as it lasts. The peer is the plain sum, and what each did alone. Driver and
servers share the machine, so other work on it must be light. Targets where it fits: the median error of throughput
at most 15%, of p99 30%, and 90% of the intervals hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benches.size_together import Found, joint, tell
from tests.driver import drive
from tests.servers import Server, free_port, mariadb, open_folder
from tests.waiting import until

from headrace.base.model import ServerLogin
from headrace.capacity.model import Resource
from headrace.capacity.prove import Asked, Player
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.host.target.local import LocalTarget

MINUTES = 27
NEEDS = {"mariadbd": "mariadb-server", "memcached": "memcached"}

SECONDS = float(os.environ.get("HEADRACE_BENCH_SECONDS", "10"))
BLOCKS = int(os.environ.get("HEADRACE_BENCH_ROUNDS", "2"))
WARMUP_S, CONNECTIONS = 3.0, 16
SERVER = ("--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G", "--innodb-flush-log-at-trx-commit=2")
#: What one load takes of the CPUs alone, by the name of the size.
SIZES = {"small": 0.2, "medium": 0.35, "too large": 0.65}
TOO_LARGE = "too large"
#: Load -> its workload, and the rate (1/s) of the play that shows what one operation costs.
LOADS: dict[str, tuple[dict[str, Any], float]] = {
    "tpcc": ({"kind": "tpcc", "warehouses": 2}, 100.0),
    "readers": ({"kind": "oltp", "script": "read_only", "tables": 4, "table_size": 20_000}, 100.0),
    "cache": ({"kind": "memcached", "keys": 20_000}, 5000.0),
}


def main() -> None:
    with open_folder() as folder, mariadb(folder / "m", *SERVER) as server, memcached() as address:
        LOADS["cache"][0]["address"] = address
        for name in ("tpcc", "readers"):
            server.sql(f"CREATE DATABASE {name}")
        for name in LOADS:
            drive(login(server, name), spec(name, 1.0), verb="load")
        found = asyncio.run(_play(folder, server))
    for size in SIZES:
        print(f"{size}:")
        tell(found[size], with_targets=size != TOO_LARGE)


@contextlib.contextmanager
def memcached() -> Iterator[str]:
    """Its address."""
    port = free_port()
    # It refuses to be root.
    account = ["-u", "nobody"] if os.geteuid() == 0 else []
    argv = ["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m", "256", *account]
    with subprocess.Popen(argv) as process:
        try:
            until(lambda: f":{port:04X} " in Path("/proc/net/tcp").read_text())
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def login(server: Server, name: str) -> list[str]:
    if name == "cache":
        return []
    return ["--mysql-socket", server.socket, "--mysql-user", "root", "--mysql-database", name]


def spec(name: str, rate: float) -> dict[str, Any]:
    return {
        "workload": LOADS[name][0],
        "connections": CONNECTIONS,
        # One thread alone does not keep up with the largest rate of memcached.
        "threads": 2,
        "seconds": SECONDS,
        "warmup_s": WARMUP_S,
        "pacing": {"kind": "open", "arrivals": "poisson", "rate_ops_s": rate},
    }


@dataclass
class Driving(Player):
    """Plays the driver's loads, named "load, size", instead of recordings."""

    folder: Path = Path()
    server: Server | None = None
    #: Load, size -> operations/s.
    rates: dict[str, float] = field(default_factory=dict)

    async def one(self, name: str, copies: int, add: Callable[[Mapping[str, Any]], None]) -> None:
        assert self.server is not None
        load = name.split(",")[0]
        path = self.folder / f"{load}.json"
        path.write_text(json.dumps(spec(load, self.rates[name] * self.asked.speed)))
        async with self.agent.lines("drive", "run", str(path), *login(self.server, load)) as lines:
            async for line in lines:
                add(line)


async def _play(folder: Path, server: Server) -> dict[str, list[Found]]:
    target = LocalTarget()
    await target.connect()
    try:
        agent = await Agent.install(target)
        asked_of = ServerLogin(socket=server.socket, user="root")
        cores = float(HostFacts(await agent.facts(asked_of)).cpu_count)
        names = tuple(f"{load}, {size}" for size in SIZES for load in LOADS)
        player = Driving(
            target, agent, asked_of, Asked(names, BLOCKS, SECONDS, WARMUP_S), SECONDS, lambda what, left_s: None,
            folder=folder, server=server,
        )  # fmt: skip
        await _set_rates(player, cores)
        blocks = await player.alone()
        found: dict[str, list[Found]] = {}
        for size in SIZES:
            found[size] = []
            for pair in itertools.combinations(LOADS, 2):
                names_of_size = [f"{load}, {size}" for load in pair]
                found[size] += await joint(
                    player, blocks, dict(zip(names_of_size, names_of_size, strict=True)), cores
                )
        return found
    finally:
        await target.close()


async def _set_rates(player: Driving, cores: float) -> None:
    """The rate at which each load takes its share of the CPUs. An operation costs less the more there are of
    them, so the first guess is played once more."""
    idle = (await player.play([], 1)).used[Resource.CPU]
    for load, (_, rate) in LOADS.items():
        for size, share in SIZES.items():
            name = f"{load}, {size}"
            player.rates[name] = rate
            for _ in range(2):
                used = (await player.play([name], 1)).used[Resource.CPU] - idle
                player.rates[name] = round(player.rates[name] * share * cores / used, 1)
            rate = player.rates[name]
            print(f"{name}: {rate:,.0f} operations/s", flush=True)
    player.done = 0


if __name__ == "__main__":
    main()
