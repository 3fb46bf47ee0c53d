"""Where a server runs that is asked through real tunnels and proxies of its own host: never another process, and
never one process for what two servers answer."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.base.model import Facts
from headrace.host.facts import HostFacts
from headrace.host.server_place import Answer, ServerPlace
from tests import lab
from tests.servers import free_port, open_folder
from tests.splitting_proxy import splitting_proxy
from tests.sshd import running_sshd
from tests.waiting import until
from tests.whereabouts import asked_server, facts

pytestmark = [pytest.mark.needs("root", "ssh", "sshd", "haproxy"), pytest.mark.slow]


@dataclass
class Tunnels:
    folder: Path
    ways: dict[str, list[str]] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)

    def add(
        self, name: str, pid: int, *, socket: object = "", port: int = 0, host: str = "127.0.0.1"
    ) -> None:
        tcp = ["--mysql-host", host, "--mysql-port", str(port)]
        self.ways[name] = ["--mysql-socket", str(socket)] if socket else tcp
        self.pids[name] = pid

    def place(self, way: str) -> ServerPlace:
        found = HostFacts(Facts("", facts(self.ways[way], "right", self.folder))).server_place
        assert found is not None
        return found


@contextlib.contextmanager
def running(*words: object) -> Iterator[None]:
    env = {**os.environ, "PATH": lab.PATH}
    process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, env=env)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def tunnels() -> Iterator[Tunnels]:
    with open_folder() as folder, contextlib.ExitStack() as stack:
        found = Tunnels(folder)
        options = ("--bind-address=*", "--proxy-protocol-networks=*")
        one = stack.enter_context(asked_server(folder / "one", *options))
        two = stack.enter_context(asked_server(folder / "two", *options))
        (folder / "sshd").mkdir()
        sshd = stack.enter_context(running_sshd(folder / "sshd"))
        port, path, to_port = free_port(), folder / "two.sock", folder / "one.sock"
        leads = (
            f"127.0.0.1:{port}:127.0.0.1:{one.port}",
            f"{path}:{two.socket}",
            f"{to_port}:127.0.0.1:{one.port}",
        )
        words = [
            "ssh",
            "-N",
            "-F",
            "none",
            "-o",
            f"UserKnownHostsFile={sshd.known_hosts}",
            "-i",
            sshd.key,
            "-p",
            sshd.port,
        ]
        words += [word for lead in leads for word in ("-L", lead)]
        stack.enter_context(running(*words, "root@127.0.0.1"))
        until(to_port.exists, what="the tunnels of ssh")
        found.add("ssh -L port", one.pid, port=port)
        found.add("ssh -L socket:socket", two.pid, socket=path)
        found.add("ssh -L socket:port", one.pid, socket=to_port)
        found.add("IPv4 in the form of IPv6", one.pid, port=one.port, host="::ffff:127.0.0.1")
        for send in ("send-proxy", "send-proxy-v2"):
            ours, file = free_port(), folder / f"{send}.cfg"
            file.write_text(
                "defaults\n mode tcp\n timeout connect 9s\n timeout client 60s\n timeout server 60s\n"
                f"listen db\n bind 127.0.0.1:{ours}\n server db 127.0.0.1:{two.port} {send}\n"
            )
            stack.enter_context(running("haproxy", "-db", "-f", file))
            found.add(send, two.pid, port=ours)
        ours = stack.enter_context(splitting_proxy([two.port], "dba", "right"))
        found.add("a proxy with its own connections", two.pid, port=ours)
        ours = stack.enter_context(splitting_proxy([one.port, two.port], "dba", "right"))
        found.add("a proxy that splits", 0, port=ours)
        yield found


@pytest.mark.parametrize(
    "way",
    ["ssh -L port", "ssh -L socket:socket", "ssh -L socket:port", "IPv4 in the form of IPv6", "send-proxy",
     "send-proxy-v2", "a proxy with its own connections"],
)  # fmt: skip
def test_a_server_of_this_host_behind_a_tunnel(tunnels: Tunnels, way: str) -> None:
    place = tunnels.place(way)
    assert (place.answer, place.pid) == (Answer.HERE, tunnels.pids[way]), place


def test_what_two_servers_answer_is_of_neither(tunnels: Tunnels) -> None:
    place = tunnels.place("a proxy that splits")
    assert (place.answer, place.pid) == (Answer.UNKNOWN, None)
    assert "a proxy sends the statements of one connection to several servers (port " in place.sentence
    assert "what would tell: the server's own address or socket, without the proxy" in place.sentence
