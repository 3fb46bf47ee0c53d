"""Statements that lack an index, and statements that must not get one: does `headrace indexes` tell them apart?

Each case is a statement (or a few) on tables of a shop, a multi-tenant application, and one whose types and
collations do not match, of up to 400,000 rows, with the index that it lacks, or none, written
before the bench was run. It runs alone, its slow log is read, and its candidates are screened on the same server;
with --prove they are proved, too. Counted are candidates and those that screening or the proof leaves.

    python benches/indexes.py                                   # all cases, screened, on MariaDB 10.11
    python benches/indexes.py mysql-8.0 --prove --only hot 'single: equality'

Needs MariaDB; other servers are fetched (see tests/servers.py). About 2 s a case, with --prove half a minute.

Targets: recall 95%, precision of what is proved 98%.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

sys.path.insert(0, str(Path(__file__).parent.parent))

from benches.plants import (
    index_cases,
    index_forms,
    index_frameworks,
    index_stores,
    index_tenants,
    index_types,
)
from benches.plants.index_case import Case, Plant
from tests.servers import KINDS, Server, find_server, open_folder, server

MINUTES = 5
NEEDS = {"mariadbd": "mariadb-server"}
PLANTS = (
    Plant("shop", index_cases.SCHEMA, index_cases.CASES, index_cases.REDUNDANT),
    Plant("tenants", index_tenants.SCHEMA, index_tenants.CASES, index_tenants.REDUNDANT),
    Plant("types", index_types.SCHEMA, index_types.CASES, index_types.REDUNDANT),
    Plant("forms", index_forms.SCHEMA, index_forms.CASES, index_forms.REDUNDANT),
    Plant("press", index_frameworks.SCHEMA, index_frameworks.CASES, index_frameworks.REDUNDANT),
    Plant("stores", index_stores.SCHEMA, index_stores.CASES, index_stores.REDUNDANT),
)
PROVING = ("--prove", "--blocks", "10", "--budget", "3m")


@dataclass(frozen=True)
class Answer:
    """(table, columns) of the candidates, and of those that were left."""

    offered: frozenset[tuple[str, tuple[str, ...]]]
    left: frozenset[tuple[str, tuple[str, ...]]]
    redundant: frozenset[str]
    seconds: float
    #: What it says of the statement beside candidates.
    words: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--plants", nargs="+", default=[each.database for each in PLANTS], help="databases")
    parser.add_argument("--only", nargs="+", default=[""], help="names of cases begin with one of these")
    options = parser.parse_args()
    plants = [each for each in PLANTS if each.database in options.plants]
    for kind in options.kinds or ["mariadb-10.11"]:
        program = find_server(kind)
        if isinstance(program, str):
            print(f"{kind}: skipped, {program}")
            continue
        with (
            open_folder() as folder,
            server(kind, program, folder / "s", "--innodb-buffer-pool-size=512M") as own,
        ):
            own.sql("SET GLOBAL long_query_time = 0")
            for plant in plants:
                own.sql(*plant.schema)
                cases = [
                    case
                    for case in plant.cases
                    if case.name.startswith(tuple(options.only)) and kind.startswith(case.on)
                ]
                answers = {case: ask(own, plant, case, options.prove) for case in cases}
                if answers:
                    report(f"{kind}, {plant.database}", plant, answers, options.prove)
    return 0


def ask(own: Server, plant: Plant, case: Case, prove: bool) -> Answer:
    log = own.folder / "data" / f"{time.monotonic_ns()}.log"
    own.sql(f"SET GLOBAL slow_query_log_file = '{log}'", "SET GLOBAL slow_query_log = 1")
    try:
        with pymysql.connect(
            unix_socket=own.socket, user="root", ssl_disabled=True, database=plant.database
        ) as client:
            for text, calls in case.statements:
                for _ in range(calls):
                    client.cursor().execute(text)
            client.commit()
    finally:
        own.sql("SET GLOBAL slow_query_log = 0")
    with tempfile.TemporaryDirectory() as state:
        started = time.monotonic()
        argv = [sys.executable, "-m", "headrace", "indexes", "--json", str(log), "--on-copy"]
        argv += ["--mysql-socket", str(own.socket), "--mysql-user", "root"]
        done = subprocess.run(
            [*argv, *(PROVING if prove else ("--screen",))],
            capture_output=True, text=True, env={**os.environ, "XDG_STATE_HOME": state}, check=False,
        )  # fmt: skip
        seconds = time.monotonic() - started
    if done.returncode:
        raise RuntimeError(f"{case.name}: {done.stderr}")
    return answer_of(json.loads(done.stdout), prove, seconds)


def answer_of(page: dict[str, Any], prove: bool, seconds: float) -> Answer:
    def named(rows: Sequence[dict[str, Any]]) -> frozenset[tuple[str, tuple[str, ...]]]:
        return frozenset((each["table"].partition(".")[2], tuple(each["columns"])) for each in rows)

    screened = page.get("screening", {}).get("candidates", [])
    left = [each for each in screened if each["outcome"] == "used"]
    if prove:
        left = [each for each in page.get("proof", {}).get("candidates", []) if each["is_proved"]]
    redundant = frozenset(each["index"] for each in page["redundant"])
    told = {key: page[key] for key in ("hindrances", "unread", "unknown", "content")}
    return Answer(named(page["candidates"]), named(left), redundant, seconds, json.dumps(told))


def report(kind: str, plant: Plant, answers: dict[Case, Answer], prove: bool) -> None:
    what = "proved" if prove else "left by screening"
    lacking = [case for case in answers if case.lacks]
    found = [case for case in lacking if answers[case].offered & case.right]
    kept = [case for case in lacking if answers[case].left & case.right]
    offered = [(case, each) for case in answers for each in answers[case].offered]
    left = [(case, each) for case in answers for each in answers[case].left]
    print(
        f"{kind}: {len(lacking)} cases that lack an index, {len(answers) - len(lacking)} that must not get one"
    )
    print(f"  candidates: recall {rate(len(found), len(lacking))}, precision {right(offered)}")
    print(f"  {what}: recall {rate(len(kept), len(lacking))}, precision {right(left)}")
    print(f"  longest case {max(answer.seconds for answer in answers.values()):.1f} s")
    silent = [case for case in answers if case.says and not re.search(case.says, answers[case].words)]
    spoken = [case for case in answers if case.says]
    print(f"  said: {rate(len(spoken) - len(silent), len(spoken))}")
    for case, answer in answers.items():
        wrong = answer.offered - case.right
        if case in silent:
            print(f"    {case.name}: does not say {case.says}: {answer.words}")
        if wrong or (case.lacks and not answer.left & case.right):
            words = ", ".join(f"{table}({', '.join(columns)})" for table, columns in sorted(answer.offered))
            stays = ", ".join(f"{table}({', '.join(columns)})" for table, columns in sorted(answer.left))
            print(f"    {case.name}: offered {words or 'nothing'}; {what} {stays or 'nothing'}")
    seen = frozenset[str]().union(*(answer.redundant for answer in answers.values()))
    print(f"  redundant: named {', '.join(sorted(seen))}; planted {', '.join(sorted(plant.redundant))}")


def right(pairs: Sequence[tuple[Case, tuple[str, tuple[str, ...]]]]) -> str:
    return rate(sum(each in case.right for case, each in pairs), len(pairs))


def rate(part: int, whole: int) -> str:
    return f"{part / whole:.0%} ({part} of {whole})" if whole else "none"


if __name__ == "__main__":
    raise SystemExit(main())
