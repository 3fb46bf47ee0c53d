"""The accounts of docs/howto/login.md: its GRANTs are enough for what it says, and no privilege is too many."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.host.agent import find_binary
from tests.folders import ROOT
from tests.servers import Server, started

PAGE = (ROOT / "docs" / "howto" / "login.md").read_text()
#: What an account needs, as the page's two blocks of SQL say: to watch, and to change variables.
WATCH, CHANGE = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
VENDORS = {"mariadb": "MariaDB", "mysql": "MySQL"}


def grants(block: str, vendor: str) -> list[str]:
    part = next(
        text for text in re.split(r"^-- ", block, flags=re.MULTILINE) if text.startswith(VENDORS[vendor])
    )
    return re.findall(r"GRANT (.*?) ON \*\.\*", part)


@pytest.fixture(scope="module", params=sorted(VENDORS))
def vendor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(vendor: str, folder: Path) -> Iterator[Server]:
    with started(vendor, folder / vendor, "--performance-schema=on") as running:
        yield running


def agent(server: Server, *arguments: str, user: str) -> subprocess.CompletedProcess[str]:
    password = server.folder.parent / "password"
    password.write_text("Abc-123-xyz")
    login = ("--mysql-socket", server.socket, "--mysql-user", user)
    return subprocess.run(
        [str(find_binary()), *arguments, *login, "--mysql-password-file", str(password)],
        capture_output=True,
        text=True,
        check=False,
    )


def account(server: Server, user: str, privileges: list[str]) -> None:
    server.sql(
        f"DROP USER IF EXISTS {user}@localhost", f"CREATE USER {user}@localhost IDENTIFIED BY 'Abc-123-xyz'"
    )
    for each in privileges:
        server.sql(f"GRANT {each} ON *.* TO {user}@localhost")


def missing(server: Server, user: str) -> list[str]:
    done = agent(server, "facts", user=user)
    assert done.returncode == 0, done.stderr
    settings: dict[str, Any] = json.loads(done.stdout)["server_settings"]
    return list(settings["privileges_missing"])


def failed_samplers(server: Server, user: str) -> dict[str, str]:
    """Samplers of the server that failed for this account, with what the server said."""
    done = agent(server, "sample", "--interval", "200ms", "--duration", "1s", user=user)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert any(line.get("sampler", "").startswith("mysql") and line["ok"] for line in lines)
    return {
        line["sampler"]: line["error"]
        for line in lines
        if line.get("ok") is False and "denied" in str(line["error"]).lower()
    }


def test_the_account_to_watch_sees_everything(server: Server, vendor: str) -> None:
    account(server, "watcher", grants(WATCH, vendor))
    assert missing(server, "watcher") == []
    assert failed_samplers(server, "watcher") == {}


def test_every_privilege_of_it_is_needed(server: Server, vendor: str) -> None:
    [listed] = grants(WATCH, vendor)
    privileges = listed.split(", ")
    assert len(privileges) == 3
    for left_out in privileges:
        account(server, "partial", [", ".join(each for each in privileges if each != left_out)])
        # Without SELECT two things are named: performance_schema, and all tables.
        assert {each.partition(" ON ")[0] for each in missing(server, "partial")} == {left_out}


def test_the_account_to_change_sets_a_variable_and_nothing_less_does(server: Server, vendor: str) -> None:
    import pymysql

    def change(user: str) -> None:
        with pymysql.connect(unix_socket=server.socket, user=user, password="Abc-123-xyz") as connection:
            connection.cursor().execute("SET GLOBAL innodb_io_capacity = 300")

    account(server, "watcher", grants(WATCH, vendor))
    with pytest.raises(pymysql.Error):
        change("watcher")
    account(server, "changer", grants(WATCH, vendor) + grants(CHANGE, vendor))
    change("changer")
    assert server.sql("SELECT @@innodb_io_capacity") == [(300,)]
