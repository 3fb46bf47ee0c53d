"""Causes planted in real servers: does a hunt name them, and does its remedy cure them? MySQLTuner and
pt-variable-advisor see the same servers.

For each plant the server is started with it and loaded, and hunted meanwhile; its response is the load's rate.
Then the remedy is applied, with a restart, and the rate measured again; and once more on a healthy server. Not
every plant has a remedy: statements and locks are for people to change, and risks cost nothing today.

Needs root, MariaDB, fio, and the Debian packages mysqltuner and percona-toolkit. About half a minute a plant.

    python benches/planted.py                    # all, on MariaDB and on MySQL if it can be had
    python benches/planted.py --noisy 'small pool' 'a hot row'

Targets: the finding is among the first two for 95%, in the sentence for 80%, cures 80% of those that have a remedy
to 80% of the healthy rate; false limits and costs: 0.1 a hunt.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pymysql

sys.path.insert(0, str(Path(__file__).parent.parent))

from benches.plants import PLANTS
from benches.plants.beside import compiler
from benches.plants.loads import HEALTHY, HEALTHY_OF, ITEMS, TABLES, WIDE_BYTES, WIDE_ROWS, Load
from benches.plants.plant import Plant
from tests.mysqld import find_mysqld
from tests.servers import Server, mariadb, mysql
from tests.waiting import until

HUNT_S = int(os.environ.get("HEADRACE_BENCH_SECONDS", "8"))
RATE_S = 5.0
WARM_S = 1.5
AGENT = os.environ.get("HEADRACE_AGENT") or str(Path(sys.executable).parent / "headrace-agent")
#: A plant that leaves more than this share of the healthy rate costs too little to be seen.
EFFECTIVE = 0.8
CURED = 0.8
#: True of the host whatever is planted: the driver needs CPU, its statement takes the time, the disk has a
#: volatile cache, other programs run, and a root mounted with discard discards what earlier plants left.
OF_THE_LOAD = ("CPU", "STMT01", "STMT05", "BLK06", "BLK10", "FS03", "HOST")
SEVERE = ("bottleneck", "cost")
#: Of MySQLTuner, over TCP and with a password: it finds its way to neither a socket nor an account without one.
#: It is made before the load, which may leave no connection for it.
ACCOUNT = (
    "CREATE USER IF NOT EXISTS adviser@'%' IDENTIFIED BY 'throwaway'", "GRANT ALL ON *.* TO adviser@'%'",
)  # fmt: skip


@dataclass
class Result:
    plant: str
    server: str
    is_noisy: bool
    rank: int | None
    is_said: bool | None
    verdict: str
    findings: list[str]
    false: list[str]
    planted_ops_s: float
    healthy_ops_s: float = 0.0
    treated_ops_s: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    advisers: dict[str, bool] = field(default_factory=dict)
    advice: dict[str, int] = field(default_factory=dict)


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plants", nargs="*", help="only these")
    parser.add_argument("--noisy", action="store_true", help="with programs beside that compute")
    parser.add_argument("--server", choices=["mariadb", "mysql"], action="append")
    parser.add_argument("--output", type=Path, help="all results, as JSON lines")
    options = parser.parse_args()
    chosen = [plant for plant in PLANTS if not options.plants or plant.name in options.plants]
    if unknown := set(options.plants) - {plant.name for plant in PLANTS}:
        raise SystemExit(
            f"no plant {', '.join(sorted(unknown))}; there are {', '.join(p.name for p in PLANTS)}"
        )
    require_advisers()
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="hr-plant-", dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        folder = Path(name)
        folder.chmod(0o755)
        for kind in options.server or ["mariadb", "mysql"]:
            with contextlib.ExitStack() as stack:
                server = started(stack, kind, folder)
                if server is None:
                    continue
                if options.noisy:
                    stack.enter_context(compiler(server))
                for plant in chosen:
                    if kind in plant.servers and version(server) in plant.versions:
                        result = tried(server, kind, plant, options.noisy)
                        results.append(result)
                        tell(result)
                        if options.output:
                            with options.output.open("a") as out:
                                out.write(json.dumps(asdict(result)) + "\n")
    return summary(results)


def started(stack: contextlib.ExitStack, kind: str, folder: Path) -> Server | None:
    options = (*HEALTHY, *HEALTHY_OF[kind])
    if kind == "mariadb":
        server = stack.enter_context(mariadb(folder / kind, *options))
    else:
        program = find_mysqld()
        if isinstance(program, str):
            print(f"mysql: skipped, {program}")
            return None
        server = stack.enter_context(mysql(program, folder / kind, *options))
    fill(server)
    return server


def fill(server: Server) -> None:
    def doubled(table: str, columns: str, rows: int) -> list[str]:
        names = columns.replace("id", "id + {n}")
        count = rows.bit_length() - 1
        return [
            f"INSERT INTO shop.{table} SELECT {names.format(n=1 << n)} FROM shop.{table}"
            for n in range(count)
        ]

    server.sql(
        "SET GLOBAL innodb_flush_log_at_trx_commit = 0",
        "CREATE DATABASE shop CHARACTER SET latin1",
        f"CREATE TABLE shop.wide (id INT PRIMARY KEY, v VARCHAR({WIDE_BYTES}))",
        f"INSERT INTO shop.wide VALUES (0, REPEAT('x', {WIDE_BYTES - 200}))",
        *doubled("wide", "id, v", WIDE_ROWS),
        "CREATE TABLE shop.items (id INT PRIMARY KEY, k INT, v VARCHAR(120), KEY (k))",
        "INSERT INTO shop.items VALUES (1, 1, REPEAT('i', 120))",
        *doubled("items", "id, k, v", ITEMS),
        # Not MD5, which MySQL 9.7 does not have.
        "UPDATE shop.items SET k = id % 5000, v = CONCAT(SHA2(id, 256), LEFT(SHA2(id + 1, 256), 32))",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer INT, total INT)",
        "INSERT INTO shop.orders SELECT id, id % 5000, id % 97 FROM shop.items",
        "CREATE TABLE shop.old (id INT PRIMARY KEY, k INT, v INT) ENGINE=MyISAM",
        "INSERT INTO shop.old SELECT id, id % 2000, id FROM shop.items WHERE id < 20000",
        "CREATE TABLE shop.journal (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(4100))",
        "CREATE TABLE shop.hot (id INT PRIMARY KEY, v INT)",
        "INSERT INTO shop.hot SELECT id, 0 FROM shop.items WHERE id <= 10",
        *(f"CREATE TABLE shop.t{n} (id INT PRIMARY KEY, v INT)" for n in range(TABLES)),
        "ANALYZE TABLE shop.items, shop.orders, shop.wide",
        *ACCOUNT,
        "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
    )


def restarted(server: Server, base: list[str], *options: str) -> None:
    server.argv = [*base, *options]
    server.restart()


def tried(server: Server, kind: str, plant: Plant, is_noisy: bool) -> Result:
    base = list(server.argv)
    try:
        restarted(server, base, *plant.given, *plant.options)
        result, remedy = hunted(server, kind, plant, is_noisy)
        if remedy:
            result.settings = remedy
            cure = [
                f"--loose-{name.removeprefix('server.').replace('_', '-')}={as_option(value)}"
                for name, value in remedy.items()
                if name.startswith("server.")
            ]
            restarted(server, base, *plant.given, *plant.options, *cure)
            with beside(server, plant):
                result.treated_ops_s = rate(server, plant)
        restarted(server, base, *plant.given)
        result.healthy_ops_s = rate_healthy(server, plant)
    finally:
        restarted(server, base)
        for text in plant.undo:
            with contextlib.suppress(Exception):
                server.sql("USE shop", text)
        server.sql("TRUNCATE shop.journal")
    return result


def version(server: Server) -> str:
    return str(server.sql("SELECT VERSION()")[0][0])


def as_option(value: object) -> str:
    return {True: "ON", False: "OFF"}.get(value, str(value)) if isinstance(value, bool) else str(value)


@contextlib.contextmanager
def beside(server: Server, plant: Plant) -> Iterator[None]:
    if plant.sql:
        server.sql("USE shop", *plant.sql)
    with plant.beside(server) if plant.beside else contextlib.nullcontext():
        yield


def hunted(server: Server, kind: str, plant: Plant, is_noisy: bool) -> tuple[Result, dict[str, Any]]:
    seconds = plant.seconds or HUNT_S
    with beside(server, plant), driving(server, plant.load, WARM_S + seconds + 60):
        time.sleep(WARM_S)
        begin, before = time.monotonic(), count(server, plant)
        argv = [sys.executable, "-m", "headrace", "hunt", "--json", "--duration", f"{seconds}s"]
        done = subprocess.run(
            [*argv, "--mysql-socket", server.socket, "--mysql-user", "root"],
            capture_output=True,
            text=True,
            check=False,
        )
        planted = (count(server, plant) - before) / (time.monotonic() - begin)
        texts = advised(server)
    if done.returncode:
        raise SystemExit(f"{plant.name}: {done.stderr}")
    hunt = json.loads(done.stdout)
    findings = hunt["findings"]
    codes = [finding["id"].partition("@")[0] for finding in findings]
    place = next((n for n, code in enumerate(codes) if code in plant.finds), None)
    # What is true whatever is planted, and what follows from the plant, takes no place from it.
    ahead = [code for code in codes[:place] if code not in plant.also and not code.startswith(OF_THE_LOAD)]
    false = [
        finding["id"]
        for finding, code in zip(findings, codes, strict=True)
        if finding["severity"] in SEVERE
        and code not in (*plant.finds, *plant.also)
        and not code.startswith(OF_THE_LOAD)
    ]
    remedies = findings[place]["remedies"] if place is not None and plant.has_remedy else []
    settings = next((remedy["settings"] for remedy in remedies if remedy["settings"]), {})
    result = Result(
        plant=plant.name,
        server=kind,
        is_noisy=is_noisy,
        rank=None if place is None else len(ahead) + 1,
        is_said=bool(re.search(plant.says, hunt["verdict"], re.IGNORECASE)) if plant.says else None,
        verdict=hunt["verdict"],
        findings=[f"{finding['severity']} {finding['id']}" for finding in findings],
        false=false,
        planted_ops_s=planted,
        advisers={
            name: bool(plant.adviser and re.search(plant.adviser, text, re.IGNORECASE))
            for name, text in texts.items()
        },
        advice={name: len(text.splitlines()) for name, text in texts.items()},
    )
    return result, settings


@contextlib.contextmanager
def driving(server: Server, load: Load, seconds: float) -> Iterator[None]:
    argv = [AGENT, "drive", "run", "-", "--mysql-socket", server.socket, "--mysql-user", "root"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*argv, "--mysql-database", "shop"], stdin=subprocess.PIPE, text=True, **quiet)
    try:
        assert process.stdin
        process.stdin.write(json.dumps(load.spec(seconds)))
        process.stdin.close()
        yield
    finally:
        process.kill()
        process.wait()


def count(server: Server, plant: Plant) -> float:
    """Operations so far."""
    if plant.counts_logins:
        return sum(path.stat().st_size for path in server.folder.glob("logins.*"))
    # A plant may leave no room for another connection: it is asked again.
    for _ in range(100):
        with contextlib.suppress(pymysql.OperationalError):
            return server.status("Questions")
        time.sleep(0.1)
    return server.status("Questions")


def rate(server: Server, plant: Plant) -> float:
    with driving(server, plant.load, WARM_S + RATE_S + 60):
        time.sleep(WARM_S)
        begin, before = time.monotonic(), count(server, plant)
        time.sleep(RATE_S)
        return (count(server, plant) - before) / (time.monotonic() - begin)


def rate_healthy(server: Server, plant: Plant) -> float:
    if plant.counts_logins:
        for path in server.folder.glob("logins.*"):
            path.unlink()  # of the planted phase
        with beside(server, plant):
            # Its programs start on a busy machine, and on MySQL they import what TLS needs.
            until(lambda: count(server, plant) > 0)
            return rate(server, plant)
    return rate(server, plant)


def require_advisers() -> None:
    """Before hours of work that need them at its end."""
    packages = {"mysqltuner": "mysqltuner", "pt-variable-advisor": "percona-toolkit"}
    if absent := [package for program, package in packages.items() if not shutil.which(program)]:
        raise SystemExit(f"needs {', '.join(absent)}: apt-get install {' '.join(absent)}")


def advised(server: Server) -> dict[str, str]:
    """What the advisers recommend, line by line."""
    address = ("--host", "127.0.0.1", "--port", str(server.port), "--forcemem", str(memory_mb()))
    # Skips its password guesses: 600 logins take a minute and say nothing about performance.
    login = ("--user", "adviser", "--pass", "throwaway", "--skippassword")
    tuner = output("perl", "-", *address, *login, "--nocolor", "--noinfo", program=mysqltuner())
    _, _, recommended = tuner.partition("-------- Recommendations")
    wrong = "\n".join(line for line in tuner.splitlines() if line.startswith("[!!]"))
    return {
        "MySQLTuner": f"{wrong}\n{recommended}",
        "pt-variable-advisor": output("pt-variable-advisor", f"S={server.socket},u=root"),
    }


def mysqltuner() -> str:
    """Debian 12's MySQLTuner with two divisions by zero mended, which end it before its recommendations.

    Newer versions of MariaDB 10.11 give innodb_buffer_pool_chunk_size as 0.
    """
    text = Path("/usr/bin/mysqltuner").read_text()
    for divisor, end in (
        ("int( $myvar{'innodb_buffer_pool_chunk_size'} )", ""),
        ("$mystat{'Innodb_log_writes'}", ";"),
    ):
        text = text.replace(f"{divisor}{end}", f"({divisor} || 1){end}")
    return text


def memory_mb() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def output(*argv: str, program: str = "") -> str:
    try:
        done = subprocess.run(argv, input=program, capture_output=True, text=True, check=False, timeout=300)
    except subprocess.TimeoutExpired:
        print(f"{argv[0]} took more than 5 minutes: its advice is missing", file=sys.stderr)
        return ""
    return done.stdout


def tell(result: Result) -> None:
    name = f"{result.server} {'noisy ' if result.is_noisy else ''}{result.plant}"
    said = {True: "said", False: "NOT said", None: "-"}[result.is_said]
    rates = f"{result.planted_ops_s:,.0f} -> healthy {result.healthy_ops_s:,.0f}"
    if result.treated_ops_s is not None:
        rates += f", treated {result.treated_ops_s:,.0f} by {result.settings}"
    others = ", ".join(name for name, is_named in result.advisers.items() if is_named) or "none"
    print(
        f"{name:45} rank {result.rank or 'NONE'}, {said}; {rates}; advisers: {others}; false: {result.false}"
    )
    print(f"{'':45} {result.verdict}", flush=True)


def share(hits: list[bool]) -> str:
    return f"{sum(hits)} of {len(hits)} ({100 * sum(hits) / len(hits):.0f}%)" if hits else "none tried"


def summary(results: list[Result]) -> int:
    if not results:
        return 1
    is_first = [result.rank is not None and result.rank <= 2 for result in results]
    costs = [r for r in results if r.is_said is not None and r.planted_ops_s < EFFECTIVE * r.healthy_ops_s]
    treated = [r for r in costs if r.treated_ops_s is not None]
    cured = [(r.treated_ops_s or 0.0) >= CURED * r.healthy_ops_s for r in treated]
    false = sum(len(result.false) for result in results) / len(results)
    print(f"found among the first two: {share(is_first)}")
    print(f"in the sentence, of those that cost 20% or more: {share([bool(r.is_said) for r in costs])}")
    print(f"cured, of those with a remedy: {share(cured)}")
    print(f"false limits and costs: {false:.2f} a hunt")
    for name in results[0].advisers:
        print(f"{name} names: {share([r.advisers[name] for r in results])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
