"""A proposal for a real server under load: its lines are what that server takes, and its plan is one that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import headrace
from tests.loads import load, spec
from tests.servers import Server, open_folder, started


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.thorough)])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with (
        open_folder() as folder,
        started(request.param, folder / "s", "--innodb-buffer-pool-size=16M") as running,
    ):
        running.sql(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY AUTO_INCREMENT, pad CHAR(250))"
        )
        running.sql("INSERT INTO shop.t (pad) VALUES ('a'), ('b')")
        for _ in range(16):
            running.sql("INSERT INTO shop.t (pad) SELECT REPEAT('x', 250) FROM shop.t")
        # Else the server knows its tables' size only seconds later.
        running.sql("ANALYZE TABLE shop.t")
        yield running


def test_a_small_pool_is_one_of_its_lines_and_the_server_takes_them(server: Server, tmp_path: Path) -> None:
    reads = spec(4, {"sql": "SELECT pad FROM t WHERE id = 1 + FLOOR(RAND() * 130000)"})
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    env = {"HEADRACE_STATE": str(tmp_path / "state")}
    plan = str(tmp_path / "new.toml")
    with load(server, reads):
        done = headrace("propose", "--duration", "4s", "-o", plan, "--json", *login, env=env)
    assert done.returncode == 0, done.stderr
    lines = {line["knob"]: line for line in json.loads(done.stdout)["lines"]}
    assert "server.innodb_buffer_pool_size" in lines, done.stdout
    pool = lines["server.innodb_buffer_pool_size"]
    assert int(pool["now"]) < int(pool["value"])
    assert pool["cost"] == "dynamic"
    shown = headrace("plan", "show", plan)
    assert shown.returncode == 0, shown.stderr
    assert "ALL-innodb_buffer_pool_size" in shown.stdout or "2 treatments" in shown.stdout
    wanted = [f"{knob}={line['value']}" for knob, line in lines.items() if knob.startswith("server.")]
    dry = headrace("apply", "--dry-run", *wanted, *login, env=env)
    assert dry.returncode == 0, dry.stderr
