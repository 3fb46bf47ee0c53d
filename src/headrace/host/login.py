"""Which server of a host is meant where the login names none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.base.model import ServerLogin
from headrace.host.facts import HostFacts

if TYPE_CHECKING:
    from headrace.host.agent import Agent

#: Sockets listed in a message.
MOST_NAMED = 8
#: Why a server among several is not queried.
SEVERAL = "servers run on this host: choose one"
#: Distributions' default sockets, tried if the server's own is unknown.
USUAL_SOCKETS = ("/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock", "/tmp/mysql.sock")


async def usual_login(agent: Agent, login: ServerLogin | None) -> tuple[ServerLogin | None, str]:
    """The login if it names a server, otherwise the socket of the host's only one; or why there is none."""
    if login is not None and login.is_named:
        return login, ""
    servers = [s for s in HostFacts(await agent.facts()).servers if s["program"] in ("mysqld", "mariadbd")]
    if not servers:
        return None, "no MySQL or MariaDB server runs on this host"
    if len(servers) > 1:
        return None, _choice(servers)
    words = [str(word) for word in servers[0].get("command_line") or ()]
    named = [word.partition("=")[2] for word in words if word.startswith("--socket=")]
    for path in [*_sockets(servers[0]), *named, *USUAL_SOCKETS]:
        if await agent.target.exists(path):
            return replace(login or ServerLogin(), socket=path), ""
    return None, "the server's socket was not found: set it with --mysql-socket"


def _sockets(server: Mapping[str, Any]) -> list[str]:
    """Where the server listens, without the sockets of MySQL's X protocol."""
    paths = [str(path) for path in server.get("sockets") or ()]
    return [path for path in paths if not path.rpartition("/")[2].startswith("mysqlx")]


def _choice(servers: Sequence[Mapping[str, Any]]) -> str:
    """A request to choose one of several servers, with their sockets."""
    each = [
        f"{path} ({server['program']}, pid {server['pid']})"
        for server in servers
        for path in _sockets(server)[:1]
    ]
    if len(each) > MOST_NAMED:
        each = [*each[:MOST_NAMED], "..."]
    where = f" {', '.join(each)}" if each else " or --mysql-host"
    return f"{len(servers)} {SEVERAL} with --mysql-socket{where}"
