"""Facts of servers with so many tables that reading their sizes takes seconds and evicts others."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from tests.programs import agent_path
from tests.servers import Server, started

#: One more than the agent opens.
MANY = 10_001
AT_ONCE = 500
#: What a server counts when it opens a table, or reads how it is defined.
COUNTED = ("Opened_tables", "Opened_table_definitions", "Table_open_cache_misses")
#: Those of the server's own that a statement about tables opens.
OWN = 100
#: Nobody needs the tables to last.
FAST = ["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--performance-schema=OFF"]
TABLE = "(id INT) ENGINE = MEMORY"


def facts(server: Server) -> tuple[dict[str, Any], dict[str, int]]:
    """The facts, and how much each of ``COUNTED`` grew. The server has opened no table before."""
    server.restart()
    before = {name: server.status(name) for name in COUNTED}
    argv = [agent_path(), "facts", "--mysql-socket", server.socket, "--mysql-user", "root"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), {name: server.status(name) - count for name, count in before.items()}


def by_statements(server: Server) -> None:
    connection = pymysql.connect(
        unix_socket=server.socket, user="root", ssl_disabled=True, client_flag=CLIENT.MULTI_STATEMENTS
    )
    with contextlib.closing(connection), connection.cursor() as cursor:
        for first in range(1, MANY, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, MANY))
            cursor.execute(";".join(f"CREATE TABLE shop.t{number} LIKE shop.t0" for number in numbers))
            while cursor.nextset():
                pass


def by_copies(server: Server) -> None:
    """MariaDB finds a table of MEMORY by its definition's file."""
    definition = server.folder / "data/shop/t0.frm"
    for number in range(1, MANY):
        copy = definition.with_name(f"t{number}.frm")
        shutil.copyfile(definition, copy)
        copy.chmod(0o644)


@pytest.mark.parametrize(
    ("kind", "make"),
    [("mariadb", by_copies), pytest.param("mysql-8.0", by_statements, marks=pytest.mark.thorough)],
)
def test_none_of_many_tables_is_opened(folder: Path, kind: str, make: Callable[[Server], None]) -> None:
    with started(kind, folder / kind, *FAST) as server:
        server.sql("CREATE DATABASE shop", f"CREATE TABLE shop.t0 {TABLE}")
        few, _ = facts(server)
        [engine] = few["server_settings"]["engines"]
        assert (engine["engine"], engine["tables"]) == ("MEMORY", 1)
        make(server)
        many, opened = facts(server)
        assert any(f"{MANY} tables would have to be opened" in each["error"] for each in many["errors"])
        assert all(count < OWN for count in opened.values()), opened
        # Who opens them is counted.
        server.sql(*(f"SELECT * FROM shop.t{number}" for number in range(OWN, 2 * OWN)))
        assert server.status("Opened_tables") > OWN
