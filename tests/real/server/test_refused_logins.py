"""A login that was named and fails is told before anything is watched, whatever makes it fail."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import headrace
from tests.servers import Server, free_port, mariadb
from tests.waiting import until

#: Longer than any test waits: a command that watched first would be killed.
WATCH_S = 600
COMMANDS = {
    "hunt": ["hunt", "--duration", f"{WATCH_S}s"],
    "hunt brief": ["hunt", "--brief", "--duration", f"{WATCH_S}s"],
    "hunt json": ["hunt", "--json", "--duration", f"{WATCH_S}s"],
    "top": ["top", "--once"],
    "top json": ["top", "--json"],
}
SAYS = {
    "password": "Access denied",
    "port": "Connection refused",
    "name": "failed to lookup",
    "TLS": "TLS",
    "socket": "No such file",
    "over a socket": "Access denied",
}


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    (folder / "wrong").write_text("wrong\n")
    with mariadb(folder / "m", "--skip-ssl") as running:
        running.sql("CREATE USER dba@'%' IDENTIFIED BY 'right'")
        yield running


def login(server: Server, folder: Path, fault: str) -> list[str]:
    file = ["--mysql-user", "dba", "--mysql-password-file", str(folder / "wrong")]
    tcp = ["--mysql-host", "127.0.0.1", "--mysql-port"]
    return {
        "password": [*tcp, str(server.port), *file],
        "port": [*tcp, str(free_port()), *file],
        "name": ["--mysql-host", "no-such-host.invalid", *file],
        "TLS": [*tcp, str(server.port), *file, "--mysql-tls", "required"],
        "socket": ["--mysql-socket", f"{folder}/none.sock", *file],
        "over a socket": ["--mysql-socket", server.socket, *file],
    }[fault]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("fault", SAYS)
def test_it_is_told_at_once(server: Server, folder: Path, fault: str, command: str) -> None:
    began = time.monotonic()
    done = headrace(*COMMANDS[command], *login(server, folder, fault))
    assert time.monotonic() - began < 30
    assert done.returncode == 6, done.stderr
    said = json.loads(done.stdout)["error"]["message"] if "json" in command else done.stderr
    assert "the server was not examined: " in said
    assert SAYS[fault] in said
    if "json" not in command:
        assert done.stdout == ""


def until_ended(clients: list[subprocess.Popen[bytes]], count: int) -> None:
    until(lambda: sum(client.poll() is not None for client in clients) >= count)


def test_a_server_that_is_full_is_asked_again_while_it_is_watched(server: Server, folder: Path) -> None:
    (folder / "right").write_text("right\n")
    server.sql("SET GLOBAL max_connections = 10")
    words = ["--host=127.0.0.1", f"--port={server.port}", "--user=dba", "--password=right", "--skip-ssl"]
    held: list[subprocess.Popen[bytes]] = []
    try:
        # Four more than it lets in; then four for the place that root's session, not yet gone, may have held.
        for clients, refused in ((14, 4), (4, 8)):
            held += [
                subprocess.Popen(["mariadb", *words, "--execute=DO SLEEP(30)"], stderr=subprocess.DEVNULL)
                for _ in range(clients)
            ]
            until_ended(held, refused)
        named = login(server, folder, "password")[:-1]
        done = headrace("hunt", "--duration", "3s", *named, str(folder / "right"))
    finally:
        for each in held:
            each.kill()
            each.wait()
    assert done.returncode == 6, done.stderr
    assert "Too many connections" in done.stderr.splitlines()[0]
    assert "The server refuses connections: it has reached max_connections" in done.stdout
