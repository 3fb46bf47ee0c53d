"""`headrace indexes --screen` and `--prove` on real servers: what is chosen, what it brings, what is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.base.model import ServerLogin
from headrace.indexes import session, trials
from headrace.indexes.session import StatementFailed
from headrace.indexes.statement import Statement
from headrace.indexes.trials import Trial
from tests.commands import headrace
from tests.servers import Server, started
from tests.vendors import OF_EACH_VENDOR

SLOW_LOG = ("--slow-query-log=1", "--long-query-time=0", "--slow-query-log-file=slow.log")
#: The index helps the first two; each value of `b` is that of most rows, so no optimiser takes an index for it.
STATEMENTS = (
    "SELECT * FROM orders WHERE customer = 17",
    "UPDATE orders SET total = 5 WHERE customer = 18",
    "SELECT SUM(total) FROM orders WHERE a_flag = 1",
    "INSERT INTO orders (customer, total, a_flag, note) VALUES (7, 7, 1, 'x')",
)


@pytest.fixture(scope="module", params=OF_EACH_VENDOR)
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    with started(request.param, folder / request.param, *SLOW_LOG) as server:
        server.sql(
            "SET GLOBAL slow_query_log = 0",
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, customer INT, total INT, a_flag INT,"
            " note VARCHAR(80))",
            "INSERT INTO orders (customer, total, a_flag, note) VALUES (1, 1, 1, REPEAT('x', 70))",
            *["INSERT INTO orders (customer, total, a_flag, note) SELECT id % 997, id, 1, note FROM orders"]
            * 15,
            "SET GLOBAL slow_query_log = 1",
        )
        for text in STATEMENTS:
            server.sql("USE shop", text)
        yield server


def words(server: Server, *options: str) -> list[str]:
    log = str(server.folder / "data" / "slow.log")
    return ["indexes", "--json", log, "--mysql-socket", str(server.socket), "--mysql-user", "root", *options]


def indexes(server: Server, tmp_path: Path, *options: str) -> dict[str, Any]:
    done = headrace(*words(server, *options), env={"XDG_STATE_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def names(server: Server) -> set[str]:
    return {
        str(row[0])
        for row in server.sql(
            "SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = 'shop'"
        )
    }


def test_without_the_word_that_it_is_a_copy_nothing_is_built(server: Server, tmp_path: Path) -> None:
    done = headrace(*words(server, "--screen"))
    assert done.returncode == 2
    assert "--on-copy" in done.stderr
    assert names(server) == {"PRIMARY"}


def test_what_is_chosen_is_proved_and_what_is_not_is_named(server: Server, tmp_path: Path) -> None:
    rows = server.sql("SELECT COUNT(*), SUM(total) FROM shop.orders")
    answer = indexes(server, tmp_path, "--prove", "--on-copy", "--blocks", "9", "--budget", "2m")
    found = {tuple(each["columns"]): each for each in answer["screening"]["candidates"]}
    assert found["customer",]["outcome"] == "used"
    assert found["a_flag",]["outcome"] != "used", found["a_flag",]
    by_name = {each["statement"]: each for each in found["customer",]["statements"]}
    (read,) = (each for name, each in by_name.items() if name.startswith("select *"))
    assert read["chosen"] is True
    assert read["rows_read_before"] > 30_000
    assert 0 < read["rows_read_with"] < 100
    proof = answer["proof"]
    (candidate,) = proof["candidates"]
    # How sure the whole is depends on what else this machine does; the statement itself is 20 times as fast.
    assert candidate["is_needed"] is not False, proof
    assert proof["pays"] is not False, proof
    effects = {each["statement"]: each["verdict"] for each in proof["reads"]}
    assert effects["select * from orders where customer = ?"] == "faster", proof
    assert candidate["size_bytes"] > 100_000
    assert {each["answers"] for each in proof["reads"]} <= {"same", "it changes rows, and has no answer"}
    assert {each["verb"] for each in proof["writes"]} == {"INSERT", "DELETE", "UPDATE"}
    assert names(server) == {"PRIMARY"}
    assert server.sql("SELECT COUNT(*), SUM(total) FROM shop.orders") == rows


def test_a_function_that_writes_writes_nothing(server: Server) -> None:
    """A server calls it for an EXPLAIN, too."""
    server.sql(
        "SET GLOBAL log_bin_trust_function_creators = 1",
        "CREATE DATABASE kept",
        "CREATE TABLE kept.log (a INT) ENGINE = MyISAM",
        "CREATE FUNCTION kept.noted(x INT) RETURNS INT DETERMINISTIC"
        " BEGIN INSERT INTO kept.log VALUES (x); RETURN x; END",
    )
    login = ServerLogin(socket=str(server.socket), user="root")
    try:
        with session.opened(login) as own:
            for text in (
                "SELECT * FROM orders WHERE id = kept.noted(1)",
                "SELECT * FROM (SELECT kept.noted(1) AS a) AS x",
            ):
                trial = Trial(Statement("x", text, "shop"), frozenset({"shop.orders"}))
                for attempt in (trials.plan_of, trials.run, partial(trials.timed, calls=1)):
                    with contextlib.suppress(StatementFailed):
                        attempt(own, trial)
            sound = replace(trial, statement=Statement("x", STATEMENTS[2], "shop"))
            assert trials.run(own, sound).rows_read > 1000
        assert server.sql("SELECT COUNT(*) FROM kept.log") == [(0,)]
    finally:
        server.sql("DROP DATABASE kept")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_was_built_is_dropped_however_it_ends(
    server: Server, tmp_path: Path, how: signal.Signals
) -> None:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", *words(server, "--prove", "--on-copy", "--blocks", "100")],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "switching" in line:
            break
    assert "hr_customer" in names(server)
    time.sleep(0.3)
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode != 0
    if how is signal.SIGKILL:
        assert "hr_customer" in names(server)
        answer = indexes(server, tmp_path, "--screen", "--on-copy")
        assert answer["screening"]["cleaned"] == [{"table": "shop.orders", "index": "hr_customer"}]
    assert names(server) == {"PRIMARY"}
