"""The drain and return commands of the how-to on rollouts, with a real HAProxy."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import free_port
from tests.waiting import until

pytestmark = pytest.mark.needs("haproxy", "socat")

HOW_TO = Path(__file__).parents[3] / "docs" / "howto" / "rollout-restart.md"
NAMES = ("db1", "db2")
CONFIG = """
global
  stats socket {socket} level admin
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
frontend clients
  bind 127.0.0.1:{port}
  default_backend mysql
backend mysql
  balance roundrobin
  {servers}
"""


class Server:
    """Says its name to whoever asks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listening.getsockname()[1])
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            connection, _ = self.listening.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            while connection.recv(1):
                connection.sendall(self.name.encode())


class Balancer:
    def __init__(self, port: int, script: Path) -> None:
        self.port = port
        self.script = script

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", self.script, *words], capture_output=True, text=True, check=False)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


def ask(connection: socket.socket) -> str:
    """The server behind it; empty if it is closed."""
    try:
        connection.sendall(b"?")
        return connection.recv(10).decode()
    except ConnectionError:
        return ""


@pytest.fixture
def balancer(tmp_path: Path) -> Iterator[Balancer]:
    port, admin = free_port(), tmp_path / "admin.sock"
    servers = [f"server {name} 127.0.0.1:{Server(name).port}" for name in NAMES]
    config = tmp_path / "haproxy.cfg"
    config.write_text(CONFIG.format(socket=admin, port=port, servers="\n  ".join(servers)))
    found = re.search(r"```sh\n(#!/bin/sh\n# lb .*?)```", HOW_TO.read_text(), re.DOTALL)
    assert found
    script = tmp_path / "lb"
    script.write_text(found[1].replace("/run/haproxy/admin.sock", str(admin)))
    with subprocess.Popen(["haproxy", "-db", "-f", str(config)], stderr=subprocess.DEVNULL) as process:
        try:
            until(admin.exists)
            yield Balancer(port, script)
        finally:
            process.kill()


def test_a_drained_server_loses_its_clients_and_gets_them_back(balancer: Balancer) -> None:
    old = [balancer.connect() for _ in range(4)]
    assert {ask(each) for each in old} == set(NAMES)
    # Both may be run again.
    for _ in range(2):
        assert balancer.run("drain", "db1").returncode == 0
        until(lambda: sorted(ask(each) for each in old) == ["", "", "db2", "db2"])
        assert {ask(balancer.connect()) for _ in range(4)} == {"db2"}
    for _ in range(2):
        assert balancer.run("enable", "db1").returncode == 0
        assert {ask(balancer.connect()) for _ in range(4)} == set(NAMES)


def test_what_it_does_not_know_is_a_failure(balancer: Balancer) -> None:
    done = balancer.run("drain", "nowhere")
    assert done.returncode == 1
    assert "No such server" in done.stderr
