"""Which server is examined where none was named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.base.model import Facts
from headrace.host.login import usual_login


def server(pid: int, *sockets: str, program: str = "mysqld", argument: str = "") -> dict[str, Any]:
    words = [program, f"--socket={argument}"] if argument else [program]
    return {"pid": pid, "program": program, "sockets": list(sockets), "command_line": words}


async def found(servers: list[dict[str, Any]], *paths: str) -> tuple[str, str]:
    """The socket and the reason on a host with these servers and files."""

    async def facts() -> Facts:
        return Facts("a", {"servers": servers})

    async def exists(path: str) -> bool:
        return path in paths

    agent: Any = SimpleNamespace(facts=facts, target=SimpleNamespace(exists=exists))
    login, why_not = await usual_login(agent, None)
    return (login.socket if login else None) or "", why_not


@pytest.mark.parametrize(
    ("servers", "paths", "socket"),
    [
        # In an option file only.
        ([server(1, "/srv/a/own.sock")], ["/srv/a/own.sock", "/tmp/mysql.sock"], "/srv/a/own.sock"),
        # MySQL's X protocol is a different one.
        ([server(1, "/run/mysqld/mysqlx.sock", "/run/s")], ["/run/mysqld/mysqlx.sock", "/run/s"], "/run/s"),
        # Without privileges the agent sees no socket.
        ([server(1, argument="/srv/b")], ["/srv/b"], "/srv/b"),
        ([server(1)], ["/var/lib/mysql/mysql.sock"], "/var/lib/mysql/mysql.sock"),
        # memcached does not speak SQL.
        ([server(1, "/m", program="memcached"), server(2, "/s")], ["/m", "/s"], "/s"),
    ],
)
async def test_the_only_server_over_its_socket(
    servers: list[dict[str, Any]], paths: list[str], socket: str
) -> None:
    assert await found(servers, *paths) == (socket, "")


async def test_several_servers_are_listed_to_choose_from() -> None:
    two = [server(7, "/a", "/mysqlx.sock"), server(8, "/b", program="mariadbd")]
    _, why = await found(two, "/a", "/b")
    assert why == (
        "2 servers run on this host: choose one with --mysql-socket /a (mysqld, pid 7), /b (mariadbd, pid 8)"
    )
    _, why = await found([server(n, f"/{n}") for n in range(20)])
    assert why.endswith("/7 (mysqld, pid 7), ...")
    _, why = await found([server(7), server(8)])
    assert why == "2 servers run on this host: choose one with --mysql-socket or --mysql-host"


async def test_why_there_is_none() -> None:
    assert await found([]) == ("", "no MySQL or MariaDB server runs on this host")
    assert await found([server(1)]) == ("", "the server's socket was not found: set it with --mysql-socket")
