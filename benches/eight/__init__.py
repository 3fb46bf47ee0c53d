"""The eight servers of ``fleet8``: a network namespace with an sshd and a server each, load, what is planted, and
a watcher of each that does not go through headrace.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
from tests.commands import started
from tests.database_fleet import MARIADB, Databases, Vendor, databases
from tests.networks import Namespace, networks
from tests.programs import agent_path
from tests.service import TABLE, put_scripts
from tests.waiting import until

GROUPS = (("db1", "db2", "db3", "db4"), ("db5", "db6", "db7", "db8"))
NAMES = [name for group in GROUPS for name in group]
#: With more tables than the cache holds, each statement opens its tables again, with all of their partitions.
TABLES, PARTITIONS = 12, 8
SMALL, LARGE = 10, 400
CACHE, IDLE = "table_open_cache", "innodb_io_capacity"
#: What a statement sleeps with the large cache and with the small one. Opening tables costs CPU time, and eight
#: servers share the cores of one machine: how much of it shows depends on the rest. So an effect is planted.
SLEEP_S, SLEEP_SMALL_S = 0.004, 0.008
WATCH_S = 0.2
#: Of one command.
PATIENCE_S = 1800.0
#: Of one that was interrupted.
END_S = 60.0

OPTIONS = {
    "db3": {"sort_buffer_size": "64M"},
    "db6": {"innodb_buffer_pool_size": "32M"},
}
SYSCTLS = {"db4": "# planted\nvm/swappiness = 7\n"}
MOUNTS = {"db2": "noatime"}
#: Set while they run.
RUNNING = {"db7": "SET GLOBAL max_connections = 77", "db5": "SET GLOBAL long_query_time = 3"}
#: In a network of its own a host has its own value of it.
SOMAXCONN = ("db8", 512)


class Watcher:
    """One server as its own clients see it, five times a second: two variables, and the queries it answered."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self.seen: list[tuple[float, int, int]] = []
        self.queries: list[tuple[float, int]] = []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        connection = pymysql.connect(unix_socket=self.socket, user="root")
        with contextlib.closing(connection), connection.cursor() as cursor:
            while not self.is_over.wait(WATCH_S):
                cursor.execute(f"SELECT @@global.{CACHE}, @@global.{IDLE}")
                cache, idle = cursor.fetchone() or (0, 0)
                self.seen.append((time.time(), int(cache), int(idle)))
                if len(self.seen) % 5 == 0:
                    cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
                    self.queries.append((time.time(), int((cursor.fetchone() or ("", 0))[1])))

    def value(self, name: str) -> int:
        _, cache, idle = self.seen[-1]
        return cache if name == CACHE else idle

    def stretches(self, name: str, value: int, since: float, end: float = float("inf")) -> list[float]:
        """How long each time the value stood there, s."""
        column = 1 + (CACHE, IDLE).index(name)
        found, began, last = [], 0.0, 0.0
        for row in self.seen:
            if since <= row[0] <= end and row[column] == value:
                began, last = began or row[0], row[0]
            elif began:
                found.append(last - began)
                began = 0.0
        return [*found, last - began] if began else found

    def per_s(self, since: float, end: float) -> float:
        own = [each for each in self.queries if since <= each[0] <= end]
        return (own[-1][1] - own[0][1]) / (own[-1][0] - own[0][0]) if len(own) > 1 else 0.0

    def end(self) -> None:
        self.is_over.set()
        self.thread.join(5)


@dataclass
class Fleet:
    """All hosts, their load and their watchers; ``folder`` holds what the controller keeps."""

    found: Databases
    places: Mapping[str, Namespace]
    folder: Path
    vendor: Vendor
    watchers: dict[str, Watcher] = field(default_factory=dict)
    loads: dict[str, Path] = field(default_factory=dict)
    running: dict[str, contextlib.ExitStack] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return {**self.found.hosts.env, "XDG_STATE_HOME": str(self.folder / "state"), "COLUMNS": "160"}

    def socket(self, name: str) -> str:
        return str(self.found.hosts.own_disk(self.found.host(name)) / "s")

    def start(self, *words: str) -> subprocess.Popen[str]:
        return started(*words, env=self.env)

    def run(self, *words: str, codes: Sequence[int] = (0,)) -> str:
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            interrupt(process)
        if process.returncode not in codes or "Traceback" in err:
            raise RuntimeError(
                f"{' '.join(words)}: exit code {process.returncode}\n{out[-3000:]}\n{err[-3000:]}"
            )
        return out

    def fleet(self, verb: str, *words: str) -> dict[str, Any]:
        found = self.run("fleet", verb, "--fleet", self.found.toml, "--json", *words)
        answer: dict[str, Any] = json.loads(found)
        return answer

    def rest(self, name: str) -> None:
        """A host without its load and its watcher, which hold connections."""
        self.running[name].close()
        del self.watchers[name]

    def values(self, name: str) -> dict[str, int]:
        return {host: watcher.value(name) for host, watcher in self.watchers.items()}

    def errors(self) -> dict[str, int]:
        """What the clients of each host saw fail so far."""
        return {name: _errors(path) for name, path in self.loads.items()}


def interrupt(process: subprocess.Popen[str]) -> None:
    """Asked first: an experiment that is killed leaves its server."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=END_S)
        process.kill()


def _errors(path: Path) -> int:
    count = 0
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if row.get("kind") in ("interval", "drain"):
                count += sum((row.get("errors") or {}).values())
    return count


def operations() -> list[dict[str, Any]]:
    sleep = f"SLEEP(IF(@@global.{CACHE} = {SMALL}, {SLEEP_SMALL_S}, {SLEEP_S}))"
    statement = f"SELECT COUNT(*), {sleep} FROM year WHERE id = 1"
    return [{"name": "year", "statements": [{"sql": statement}]}]


def setup() -> list[str]:
    parts = f"PARTITION BY HASH (id) PARTITIONS {PARTITIONS}"
    tables = [f"CREATE TABLE m{n} (id INT PRIMARY KEY, c INT) {parts}" for n in range(TABLES)]
    union = " UNION ALL ".join(f"SELECT * FROM m{n}" for n in range(TABLES))
    return [*tables, f"CREATE VIEW year AS {union}"]


@contextlib.contextmanager
def servers(folder: Path, vendor: Vendor = MARIADB) -> Iterator[Fleet]:
    # MySQL cannot put partitions into the system tablespace.
    own = {"innodb_file_per_table": "0"} if vendor is MARIADB else {}
    own |= {
        CACHE: str(SMALL),
        "innodb_autoinc_lock_mode": "1",
        "innodb_flush_log_at_trx_commit": "0",
    }
    options = {name: {**own, **OPTIONS.get(name, {})} for name in NAMES}
    with (
        networks(NAMES) as places,
        databases(
            folder / "hosts",
            NAMES,
            options=options,
            sysctls=SYSCTLS,
            mounts=MOUNTS,
            drop_in=True,
            groups=GROUPS,
            places=places,
            vendor=vendor,
        ) as found,
    ):
        fleet = Fleet(found, places, folder, vendor)
        for group in GROUPS:
            found.sql(group[0], "CREATE DATABASE shop", "USE shop", TABLE, *setup())
        for name in NAMES:
            put_scripts(found, name)
            until(lambda name=name: has_all(found, name), pause_s=0.2)  # type: ignore[misc]
        for name, statement in RUNNING.items():
            found.sql(name, statement)
        host, value = SOMAXCONN
        subprocess.run([*places[host].prefix, "sysctl", "-q", f"net.core.somaxconn={value}"], check=True)
        with contextlib.ExitStack() as stack:
            for name in NAMES:
                fleet.running[name] = running = stack.enter_context(contextlib.ExitStack())
                running.enter_context(loaded(fleet, name))
                fleet.watchers[name] = Watcher(fleet.socket(name))
                running.callback(fleet.watchers[name].end)
            for place in places.values():
                stack.callback(place.join)
            until(lambda: all(watcher.queries for watcher in fleet.watchers.values()), pause_s=0.2)
            try:
                yield fleet
            except Exception:
                for name in NAMES:
                    log = (found.hosts.own_disk(found.host(name)) / "error.log").read_text()
                    if (crash := log.find("got signal")) >= 0:
                        print(f"the server of {name} crashed:\n{log[crash : crash + 9000]}", file=sys.stderr)
                raise


def has_all(found: Databases, name: str) -> bool:
    with contextlib.suppress(pymysql.Error):
        found.sql(name, "SELECT c FROM shop.year")
        return True
    return False


@contextlib.contextmanager
def loaded(fleet: Fleet, name: str) -> Iterator[None]:
    spec = {"workload": {"kind": "sql", "prepared": False, "operations": operations()}}
    argv = [agent_path(), "drive", "run", "-", "--mysql-socket", fleet.socket(name), "--mysql-user", "root"]
    fleet.loads[name] = path = fleet.folder / f"{name}.load"
    with (
        path.open("w") as out,
        subprocess.Popen(
            [*argv, "--mysql-database", "shop"],
            stdin=subprocess.PIPE,
            stdout=out,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps({**spec, "connections": 1, "seconds": 86_400.0}))
            process.stdin.close()
            yield
            if process.poll() is not None:
                raise RuntimeError(f"the load of {name} ended early")
        finally:
            process.kill()
