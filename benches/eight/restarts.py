"""The rollout of ``fleet8`` that takes a restart: equal replicas in pairs, drained and restarted by scripts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

import pymysql
from benches.eight import GROUPS, Fleet
from benches.eight.rollouts import Results, Rollout
from tests.database_fleet import Databases
from tests.service import Clients

SETTING, OLD, NEW = "innodb_autoinc_lock_mode", 1, 2
REPLICAS = [name for group in GROUPS for name in group[1:]]
ONCE = ["drain", "restart", "return"]
STAGES = """
[timing]
soak_s = 2
lease_s = 15
wash_s = 0.5
sample_s = 0.1
[judge]
alpha = 0.02
looks = [10, 20, 40, 80]
margin = 0.3
[limits]
times = 50
fewer = 50
[restart]
drain = "{disk}/drain"
return = "{disk}/return"
command = "{disk}/restart"
within_s = 30
start_s = 90
warm_s = 60
warm = 0.8
block_s = 1
before = 10
[[stage]]
name = "replicas"
take = "replicas"
"""


class Service:
    """How many hosts of each group are out of service, as their scripts have noted it."""

    def __init__(self, found: Databases) -> None:
        self.found = found
        self.most = 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.is_over.wait(0.02):
            for group in GROUPS:
                out = sum((self.found.hosts.own_disk(self.found.host(n)) / "drained").exists() for n in group)
                self.most = max(self.most, out)

    def close(self) -> None:
        self.is_over.set()
        self.thread.join(5)


@contextlib.contextmanager
def served(fleet: Fleet, names: Sequence[str]) -> Iterator[list[Clients]]:
    running = [Clients(fleet.found, name, threads=3, sleep_s=0.01) for name in names]
    try:
        yield running
    finally:
        for each in running:
            each.end()


def restarts(fleet: Fleet, results: Results) -> None:
    """Promoted by pairs, each server restarted once and out of service, and taken back by abort."""
    for name in REPLICAS:
        fleet.rest(name)
    path = fleet.folder / "restart.toml"
    path.write_text(STAGES.format(disk=fleet.found.hosts.disk))
    service = Service(fleet.found)
    with served(fleet, REPLICAS) as clients, contextlib.closing(service):
        rollout = Rollout(fleet, SETTING, (OLD, NEW), path)
        [stage] = rollout.plan()["stages"]
        pairs = [tuple(pair) for pair in stage["pairs"]]
        groups = [{name for group in GROUPS if one in group for name in group} for one, _ in pairs]
        results.add(
            "rollout with a restart: pairs",
            "one per group",
            ", ".join(" and ".join(pair) for pair in pairs),
            len(pairs) == len(GROUPS) and all(set(p) <= g for p, g in zip(pairs, groups, strict=True)),
        )
        began = time.monotonic()
        code = rollout.finish()
        seconds = time.monotonic() - began
        verdict = rollout.status["stages"]["replicas"]["verdict"] or {}
        steps = {name: _steps(fleet, name) for name in REPLICAS}
        more = {name: own for name, own in steps.items() if own != ONCE}
        modes = _modes(fleet)
        results.add(
            "rollout with a restart: promoted",
            "to 6 replicas, a win, each drained, restarted and returned once",
            f"to {sum(value == NEW for value in modes.values())}, exit code {code}, {seconds:.0f} s: "
            f"{verdict.get('reason')}; {len(steps) - len(more)} restarted once {more or ''}",
            code == 0 and set(modes.values()) == {NEW} and bool(verdict.get("is_win")) and not more,
        )
        fleet.run("rollout", "abort", rollout.id)
        modes = _modes(fleet)
        results.add("abort of it", "all as before", str(set(modes.values())), set(modes.values()) == {OLD})
        errors = [error for each in clients for error in each.errors]
        results.add(
            "its clients meanwhile",
            "no failed query, one host of a group out at a time",
            f"{len(errors)} failed {errors[:2] or ''}, at most {service.most} out",
            not errors and service.most == 1,
        )


def _steps(fleet: Fleet, name: str) -> list[str]:
    """What the host's scripts were called for since the last time."""
    path = fleet.found.hosts.own_disk(fleet.found.host(name)) / "service.log"
    words = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return words


def _modes(fleet: Fleet) -> dict[str, int]:
    found = {}
    for name in REPLICAS:
        with (
            contextlib.closing(pymysql.connect(unix_socket=fleet.socket(name), user="root")) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"SELECT @@global.{SETTING}")
            found[name] = int((cursor.fetchone() or (0,))[0])
    return found
