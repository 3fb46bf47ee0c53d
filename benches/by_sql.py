"""``hunt --sql-only`` after the whole hunt, on the same planted causes (``benches/plants``) under the same load.

One after the other: each would see the other's questions as the server's work.
A cause that lies in the host (another program, a device, a control group) cannot be known by SQL; of the others,
SQL alone is to name 85% among the first two findings. Whatever is planted, nothing may be claimed about a host.
Plants are restarts of one server, and some change the host for a while: needs root.

    python benches/by_sql.py                                    # every second plant, on MariaDB and on MySQL
    python benches/by_sql.py --all --server mysql 'a hot row'   # all, or those that are named
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pymysql

sys.path.insert(0, str(Path(__file__).parent.parent))

from benches.planted import OF_THE_LOAD, WARM_S, beside, driving, restarted, started, version
from benches.plants import PLANTS
from benches.plants.plant import Plant
from tests.servers import Server
from tests.whereabouts import claims_of_a_host

MINUTES = 60
NEEDS = {"mariadbd": "mariadb-server", "fio": "fio", "strace": "strace"}
NEEDS_ROOT = True

HUNT_S = int(os.environ.get("HEADRACE_BENCH_SECONDS", "8"))
TARGET, FIRST = 0.85, 2
#: Rules of a host: a cause that only these name is not to be known by SQL.
OF_HOSTS = (
    "HOST",
    "CPU",
    "TCP",
    "NET",
    "FS",
    "BLK",
    "MEM",
    "IRQ",
    "RAID",
    "LIM01",
    "LIM05",
    "LIM08",
    "NAME01",
    "STAT05",
)
#: Named by a rule of hosts, but sessions show it to SQL, too.
SEEN_BY_SQL = {
    "CPU10": ("WAIT02", "STMT05", "STMT01", "STMT02"),
    "POOL01": ("WAIT03",),
    "REDO05": ("WAIT01",),
}


@dataclass
class Compared:
    plant: str
    server: str
    is_of_host: bool
    rank_whole: int | None
    rank_sql: int | None
    claims: str
    verdict_whole: str
    verdict_sql: str
    findings_whole: list[str]
    findings_sql: list[str]


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plants", nargs="*", help="only these")
    parser.add_argument("--all", action="store_true", help="every plant, not every second one")
    parser.add_argument("--server", choices=["mariadb", "mysql"], action="append")
    parser.add_argument("--output", type=Path, help="all results, as JSON lines")
    options = parser.parse_args()
    if unknown := set(options.plants) - {plant.name for plant in PLANTS}:
        raise SystemExit(f"no plant {', '.join(sorted(unknown))}")
    results: list[Compared] = []
    with tempfile.TemporaryDirectory(prefix="hr-sql-", dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        folder = Path(name)
        folder.chmod(0o755)
        for number, kind in enumerate(options.server or ["mariadb", "mysql"]):
            with contextlib.ExitStack() as stack:
                server = started(stack, kind, folder)
                if server is None:
                    continue
                fit = [plant for plant in PLANTS if kind in plant.servers]
                fit = [plant for plant in fit if version(server) in plant.versions]
                # The other half on the other server: both together have tried nearly all.
                some = fit if options.all else fit[number % 2 :: 2]
                for plant in [p for p in fit if p.name in options.plants] if options.plants else some:
                    try:
                        results.append(tried(server, kind, plant))
                    except (RuntimeError, pymysql.Error) as error:
                        # A machine that is busy with other work takes longer than a start may.
                        print(f"{kind:8} {plant.name:32} not tried: {str(error).splitlines()[0]}", flush=True)
                        continue
                    tell(results[-1])
                    if options.output:
                        with options.output.open("a") as out:
                            out.write(json.dumps(asdict(results[-1])) + "\n")
    return summary(results)


def tried(server: Server, kind: str, plant: Plant) -> Compared:
    base = list(server.argv)
    socket = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    seconds = plant.seconds or HUNT_S
    try:
        restarted(server, base, *plant.given, *plant.options)
        with beside(server, plant), driving(server, plant.load, WARM_S + 2 * seconds + 900):
            time.sleep(WARM_S)
            whole, alone = (hunted(seconds, *socket, *more) for more in ((), ("--sql-only",)))
    finally:
        restarted(server, base)
        for text in plant.undo:
            with contextlib.suppress(Exception):
                server.sql("USE shop", text)
        server.sql("TRUNCATE shop.journal")
    wanted = [*plant.finds, *(code for find in plant.finds for code in SEEN_BY_SQL.get(find, ()))]
    return Compared(
        plant=plant.name,
        server=kind,
        is_of_host=all(code.startswith(OF_HOSTS) and not SEEN_BY_SQL.get(code) for code in plant.finds),
        rank_whole=rank(whole["findings"], plant, plant.finds),
        rank_sql=rank(alone["findings"], plant, wanted),
        claims=claims_of_a_host(alone),
        verdict_whole=whole["verdict"],
        verdict_sql=alone["verdict"],
        findings_whole=[f"{each['severity']} {each['id']}" for each in whole["findings"]],
        findings_sql=[f"{each['severity']} {each['id']}" for each in alone["findings"]],
    )


def hunted(seconds: int, *words: str) -> dict[str, Any]:
    argv = [sys.executable, "-m", "headrace", "hunt", "--json", "--duration", f"{seconds}s", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"verdict": done.stderr.strip(), "findings": [], "resources": []}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rank(findings: Sequence[dict[str, Any]], plant: Plant, wanted: Sequence[str]) -> int | None:
    """The place of the cause, without what is true of the load and what follows from the plant."""
    codes = [finding["id"].partition("@")[0] for finding in findings]
    place = next((n for n, code in enumerate(codes) if code in wanted), None)
    if place is None:
        return None
    return 1 + sum(code not in plant.also and not code.startswith(OF_THE_LOAD) for code in codes[:place])


def tell(result: Compared) -> None:
    kind = "of the host" if result.is_of_host else ""
    ranks = f"whole {result.rank_whole or 'NONE'}, by SQL {result.rank_sql or 'NONE'} {kind}"
    print(f"{result.server:8} {result.plant:32} {ranks}", flush=True)
    if result.claims:
        print(f"{'':9}CLAIMED: {result.claims}", flush=True)
    if not result.is_of_host and not (result.rank_sql and result.rank_sql <= FIRST):
        print(f"{'':9}{result.verdict_sql}\n{'':9}{result.findings_sql[:6]}", flush=True)


def summary(results: list[Compared]) -> int:
    known = [result for result in results if not result.is_of_host]
    if not known:
        return 1
    first = sum(result.rank_sql is not None and result.rank_sql <= FIRST for result in known)
    whole = sum(result.rank_whole is not None and result.rank_whole <= FIRST for result in results)
    claims = [result.plant for result in results if result.claims]
    print(f"{len(results)} plants, {len(known)} of which SQL can know")
    print(f"whole hunt: {whole} of {len(results)} among the first {FIRST} ({whole / len(results):.0%})")
    print(f"by SQL: {first} of {len(known)} among the first {FIRST} ({first / len(known):.0%})")
    print(f"claims about a host: {', '.join(claims) or 'none'}")
    is_met = first >= TARGET * len(known) and not claims
    print(f"target of {TARGET:.0%} without a claim: {'met' if is_met else 'MISSED'}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
