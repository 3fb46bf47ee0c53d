"""What ``apply`` refuses on real servers: what no rollback brings back, and what the machine cannot have."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import headrace
from tests.servers import Server, started

OLD_S = 40 * 86_400


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    # The fixture's own options switch the log off; the last word wins.
    with started(request.param, folder / request.param, "--log-bin=binlog", "--server-id=1") as running:
        yield running


def apply(server: Server, state: Path, *words: str) -> tuple[int, str]:
    login = ["--mysql-socket", server.socket, "--mysql-user", "root"]
    done = headrace("apply", *words, *login, env={"HEADRACE_STATE": str(state)})
    return done.returncode, done.stdout + done.stderr


def value(server: Server, name: str) -> str:
    return str(server.sql(f"SELECT @@GLOBAL.{name}")[0][0])


def test_purged_binary_logs_are_counted_before(server: Server, tmp_path: Path) -> None:
    server.sql(*["FLUSH BINARY LOGS"] * 4)
    logs = sorted((server.folder / "data").glob("binlog.[0-9]*"))
    assert len(logs) == 5
    for log in logs[:3]:
        os.utime(log, (time.time() - OLD_S, time.time() - OLD_S))
    before = value(server, "binlog_expire_logs_seconds")
    code, said = apply(server, tmp_path, "server.binlog_expire_logs_seconds=864000")
    assert code == 5, said
    assert "3 of 5 binary logs go" in said
    assert "no replica is connected" in said
    assert "--allow-loss server.binlog_expire_logs_seconds" in said
    assert value(server, "binlog_expire_logs_seconds") == before
    code, said = apply(
        server, tmp_path, "server.binlog_expire_logs_seconds=864000",
        "--allow-loss", "server.binlog_expire_logs_seconds",
    )  # fmt: skip
    assert code == 0, said
    assert value(server, "binlog_expire_logs_seconds") == "864000"
    code, said = apply(server, tmp_path, "server.binlog_expire_logs_seconds=900000", "--dry-run")
    assert code == 0, said  # to keep more destroys nothing


def test_more_memory_than_the_machine_has(server: Server, tmp_path: Path) -> None:
    code, said = apply(server, tmp_path, "server.innodb_buffer_pool_size=16T", "--dry-run")
    assert code == 5, said
    assert "innodb_buffer_pool_size 16384 GiB" in said
    assert "the machine has" in said
    together = ["server.innodb_buffer_pool_size=90%", "server.key_buffer_size=90%"]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    together = [word.replace("90%", f"{int(0.6 * memory) >> 20}M") for word in together]
    code, said = apply(server, tmp_path, *together, "--dry-run")
    assert code == 5, said
    assert "key_buffer_size" in said
    code, said = apply(server, tmp_path, "server.innodb_buffer_pool_size=1G", "--dry-run")
    assert code == 0, said


def test_a_value_beyond_the_range_is_refused_before_it_is_set(server: Server, tmp_path: Path) -> None:
    """MySQL would run with 2 for as long as it takes to read it back and to undo it."""
    beyond = 4 if "mariadb" in str(server.folder) else 3
    server.sql("SET GLOBAL general_log_file = 'general.log'", "SET GLOBAL general_log = ON")
    try:
        code, said = apply(server, tmp_path, f"server.innodb_flush_log_at_trx_commit={beyond}")
        assert code == 3, said
        assert "must be a whole number of at most" in said
        log = (server.folder / "data" / "general.log").read_text(errors="replace").lower()
        assert "set global innodb_flush" not in log
    finally:
        server.sql("SET GLOBAL general_log = OFF")
