"""Where a server that was asked runs: every kind of place, over every way to it, with every kind of login.

No cell may name a process that is not the server's, nor say "here" of a server that is not here.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.base.model import Facts
from headrace.host.facts import HostFacts
from headrace.host.server_place import Answer
from tests import lab
from tests.networks import Namespace, networks
from tests.programs import agent_path
from tests.servers import free_port, mariadb, open_folder
from tests.whereabouts import (
    LOGINS,
    NAMESPACES,
    asked_server,
    bastion,
    claims_of_a_host,
    facts,
    forwarder,
    in_namespaces,
)

pytestmark = [pytest.mark.needs("root", "socat", "unshare", "nsenter", "ip"), pytest.mark.slow]

OWN = (Answer.HERE, Answer.NAMESPACE)
AWAY = (Answer.ELSEWHERE, Answer.UNKNOWN)


@dataclass
class Place:
    """Ways to a server: name -> options; ``pid`` of each, None where the examiner sees no process of it."""

    folder: Path
    ways: dict[str, list[str]] = field(default_factory=dict)
    pids: dict[str, int | None] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()

    def add(
        self, name: str, pid: int | None, *, socket: object = "", port: int = 0, host: str = "127.0.0.1"
    ) -> None:
        tcp = ["--mysql-host", host, "--mysql-port", str(port)]
        self.ways[name] = ["--mysql-socket", str(socket)] if socket else tcp
        self.pids[name] = pid


def check(place: Place, way: str, login: str) -> None:
    found = facts(place.ways[way], login, place.folder, place.prefix)
    known = HostFacts(Facts("", found)).server_place
    assert known is not None, "it was asked"
    assert known.asked
    if not LOGINS[login][2]:
        assert (known.answer, known.pid) == (Answer.UNKNOWN, None), known
        assert HostFacts(Facts("", found)).server_process is None
        return
    pid = place.pids[way]
    assert known.pid == pid, known
    assert known.answer in (AWAY if pid is None else OWN), known
    process = HostFacts(Facts("", found)).server_process
    assert (process or {}).get("pid") == pid
    assert known.evidence or known.missing


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


@pytest.fixture(scope="module")
def local(folder: Path) -> Iterator[Place]:
    """Two servers of this host, over their own ways and over forwarders of this host."""
    place = Place(folder)
    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(asked_server(folder / name)) for name in ("one", "two"))
        port, path = free_port(), folder / "forward.sock"
        stack.enter_context(forwarder(f"TCP-LISTEN:{port},bind=127.0.0.1", f"TCP:127.0.0.1:{one.port}"))
        stack.enter_context(forwarder(f"UNIX-LISTEN:{path},mode=777", f"UNIX-CONNECT:{two.socket}"))
        place.add("socket", one.pid, socket=one.socket)
        place.add("port", two.pid, port=two.port)
        place.add("name", one.pid, port=one.port, host="localhost")
        place.add("forwarded port", one.pid, port=port)
        place.add("forwarded socket", two.pid, socket=path)
        yield place


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("way", ["socket", "port", "name", "forwarded port", "forwarded socket"])
def test_a_server_of_this_host(local: Place, way: str, login: str) -> None:
    check(local, way, login)


@pytest.fixture(scope="module", params=sorted(NAMESPACES))
def contained(folder: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A server in a namespace of its own, and one of this host beside it."""
    kind = request.param
    place = Place(folder)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mariadb(folder / f"beside-{kind}"))
        server = stack.enter_context(asked_server(folder / kind))
        # A tmpfs over its temporary directory: what this host has at that path is another file system.
        script = (
            f"mount -t tmpfs own {server.folder}/tmp && chmod 1777 {server.folder}/tmp"
            if kind == "mnt"
            else ""
        )
        own = stack.enter_context(in_namespaces(server, [kind], script))
        place.add("socket", own.pid, socket=f"/proc/{own.pid}/root{own.socket}")
        if kind == "net":
            port = free_port()
            enter = f"nsenter --target {own.pid} --net socat - TCP\\:127.0.0.1\\:{own.port}"
            stack.enter_context(forwarder(f"TCP-LISTEN:{port},bind=127.0.0.1", f"EXEC:{enter}"))
            place.add("port", own.pid, port=port)
        else:
            place.add("port", own.pid, port=own.port)
        place.folder = folder
        yield place


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("way", ["socket", "port"])
def test_a_server_in_its_own_namespace(
    contained: Place, way: str, login: str, request: pytest.FixtureRequest
) -> None:
    check(contained, way, login)
    if login == "right":
        kind = request.node.callspec.params["contained"]
        known = HostFacts(Facts("", facts(contained.ways[way], login, contained.folder)))
        assert known.server_place is not None
        assert kind in known.server_place.namespaces
        if kind == "mnt":
            tmpdir = known.variable("tmpdir") or ""
            mount = known.server_file_system_of(tmpdir)
            assert mount is not None
            assert (mount["kind"], mount["mount_point"]) == ("tmpfs", tmpdir)
            assert (known.file_system_of(tmpdir) or {})["mount_point"] != tmpdir
            assert Path(known.path_on_host(tmpdir)).is_dir()


@pytest.fixture(scope="module")
def nets() -> Iterator[Mapping[str, Namespace]]:
    with networks(["db", "left", "right"]) as found:
        yield found


@pytest.fixture(scope="module")
def remote(folder: Path, nets: Mapping[str, Namespace]) -> Iterator[Place]:
    """A server on another host, from a host that has a server with the very same paths."""
    place = Place(folder)
    with contextlib.ExitStack() as stack:
        there = nets["db"]
        server = stack.enter_context(asked_server(folder / "far", "--bind-address=*"))
        server.stop()
        server.prefix = there.prefix
        server.start()
        decoy = stack.enter_context(asked_server(folder / "decoy"))
        decoy.stop()
        own = stack.enter_context(bastion(folder))
        script = (
            f"mount --bind {decoy.folder} {server.folder} && "
            f"exec setpriv --reuid=mysql --regid=mysql --clear-groups -- {' '.join(server.argv)}"
        ).replace("--bind-address=*", "--bind-address=127.0.0.1")
        beside = own.start("sh", "-c", script)
        stack.callback(beside.wait)
        stack.callback(beside.kill)
        _wait_for(f"/proc/{own.init}/root{server.folder}/s.sock")
        tunnel, proxy, path = free_port(), free_port(), "/tmp/headrace-far.sock"
        to = f"TCP:{there.address}:{server.port}"
        stack.enter_context(forwarder(f"TCP-LISTEN:{tunnel},bind=127.0.0.1", to, own.prefix))
        stack.enter_context(forwarder(f"UNIX-LISTEN:{path},mode=777", to, own.prefix))
        stack.enter_context(_haproxy(folder, proxy, f"{there.address}:{server.port}", own.prefix))
        stack.callback(Path(path).unlink, missing_ok=True)
        place.prefix = tuple(own.prefix)
        place.add("address", None, port=server.port, host=there.address)
        place.add("tunnel", None, port=tunnel)
        place.add("tunnelled socket", None, socket=path)
        place.add("proxy", None, port=proxy)
        decoy_pid = _only_server(place)
        place.add("the one beside it", decoy_pid, socket=f"{server.folder}/s.sock")
        place.add("its port", decoy_pid, port=server.port)
        yield place


def _wait_for(path: str) -> None:
    subprocess.run(["timeout", "60", "sh", "-c", f"until [ -S {path} ]; do sleep 0.1; done"], check=True)


def _only_server(place: Place) -> int:
    """As the examiner numbers it."""
    done = subprocess.run([*place.prefix, agent_path(), "facts"], capture_output=True, check=True)
    [server] = json.loads(done.stdout)["servers"]
    return int(server["pid"])


@contextlib.contextmanager
def _haproxy(folder: Path, port: int, to: str, prefix: Any) -> Iterator[None]:
    file = folder / "haproxy.cfg"
    file.write_text(
        "defaults\n mode tcp\n timeout connect 9s\n timeout client 60s\n timeout server 60s\n"
        f"listen db\n bind 127.0.0.1:{port}\n server db {to}\n"
    )
    env = {**os.environ, "PATH": lab.PATH}
    process = subprocess.Popen([*prefix, "haproxy", "-db", "-f", str(file)], env=env)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.needs("haproxy")
@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize(
    "way", ["address", "tunnel", "tunnelled socket", "proxy", "the one beside it", "its port"]
)
def test_a_server_of_another_host(remote: Place, way: str, login: str) -> None:
    check(remote, way, login)


@pytest.fixture(scope="module")
def twins(folder: Path) -> Iterator[Place]:
    """Two servers with the same paths, each in a mount namespace of its own."""
    place = Place(folder)
    with contextlib.ExitStack() as stack:
        for name in ("left", "right"):
            server = stack.enter_context(asked_server(folder / name))
            script = f"mkdir -p {folder}/same && mount --bind {server.folder} {folder}/same"
            server.argv = [word.replace(str(server.folder), f"{folder}/same") for word in server.argv]
            server.socket = f"{folder}/same/s.sock"
            own = stack.enter_context(in_namespaces(server, ["mnt", "pid"], script))
            place.add(f"socket {name}", own.pid, socket=f"/proc/{own.pid}/root{own.socket}")
            place.add(f"port {name}", own.pid, port=own.port)
        yield place


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("way", ["socket left", "port left", "socket right", "port right"])
def test_two_servers_with_the_same_paths(twins: Place, way: str, login: str) -> None:
    check(twins, way, login)


@pytest.fixture(scope="module")
def addressed(folder: Path, nets: Mapping[str, Namespace]) -> Iterator[Place]:
    """Two containers with their own networks, the same port and paths: at their addresses, and at our ports that
    lead to them."""
    place = Place(folder)
    with contextlib.ExitStack() as stack:
        port = free_port()
        for name in ("left", "right"):
            network = nets[name]
            server = stack.enter_context(asked_server(folder / f"net-{name}", "--bind-address=*"))
            script = f"mkdir -p {folder}/shared && mount --bind {server.folder} {folder}/shared"
            server.argv = [word.replace(str(server.folder), f"{folder}/shared") for word in server.argv]
            server.argv.append(f"--port={port}")
            server.socket = f"{folder}/shared/s.sock"
            own = stack.enter_context(in_namespaces(server, ["mnt", "pid"], script, network.prefix))
            published = free_port()
            to = f"TCP:{network.address}:{port}"
            stack.enter_context(forwarder(f"TCP-LISTEN:{published},bind=127.0.0.1", to))
            place.add(f"address {name}", own.pid, host=network.address, port=port)
            place.add(f"published {name}", own.pid, port=published)
        yield place


@pytest.mark.thorough
@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("way", ["address left", "published left", "address right", "published right"])
def test_two_containers_with_their_own_networks(addressed: Place, way: str, login: str) -> None:
    check(addressed, way, login)


def hunted(place: Place, way: str, login: str, state: Path) -> tuple[int, dict[str, Any]]:
    """A hunt's exit code and what it says, as JSON."""
    user, password, _ = LOGINS[login]
    file = place.folder / f"password-{password}"
    file.write_text(password)
    words = ["hunt", "--duration", "2s", "--json", *place.ways[way], "--mysql-user", user]
    env = {**os.environ, "PATH": lab.PATH, "XDG_STATE_HOME": str(state)}
    argv = [*place.prefix, sys.executable, "-m", "headrace", *words, "--mysql-password-file", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.thorough
@pytest.mark.needs("haproxy")
@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("way", ["address", "tunnel", "tunnelled socket", "proxy"])
def test_a_hunt_of_a_server_elsewhere_claims_nothing_of_a_host(
    remote: Place, way: str, login: str, tmp_path: Path
) -> None:
    code, found = hunted(remote, way, login, tmp_path)
    if not LOGINS[login][2]:
        assert code == 6
        assert "the server was not examined: Access denied" in found["error"]["message"]
        return
    assert code == 0
    assert "does not run on this host" in found["verdict"]
    own = found["verdict"].replace("does not run on this host", "runs elsewhere")
    assert (
        claims_of_a_host({**found, "verdict": own.replace("run headrace on the server's own host", "")}) == ""
    )
    assert ("GRANT PROCESS ON *.*" in found["verdict"]) is (login == "none")


@pytest.mark.thorough
@pytest.mark.parametrize("login", ["right", "none"])
@pytest.mark.parametrize("way", ["address left", "published right"])
def test_a_hunt_of_a_container_uses_no_counters_of_the_host_s_network(
    addressed: Place, way: str, login: str, tmp_path: Path
) -> None:
    code, found = hunted(addressed, way, login, tmp_path)
    assert code == 0
    assert not [finding["id"] for finding in found["findings"] if finding["id"].startswith("TCP")]
    assert not [use["name"] for use in found["resources"] if use["name"] == "tcp"]
    unknown = {each["rule"]: each["missing"] for each in found["blind"]}
    assert f"nsenter --target {addressed.pids[way]} --net" in unknown["TCP01"]
    assert f"nsenter --target {addressed.pids[way]} --net" in unknown["TCP02"]


@pytest.mark.needs("haproxy")
def test_a_hunt_through_a_tunnel_claims_nothing_of_its_own_host(remote: Place, tmp_path: Path) -> None:
    """The host beside the tunnel has a server with the very same paths, and idle CPUs."""
    file = remote.folder / "password-right"
    file.write_text("right")
    words = ["hunt", "--duration", "3s", "--json", *remote.ways["tunnel"], "--mysql-user", "dba"]
    words += ["--mysql-password-file", str(file)]
    env = {**os.environ, "PATH": lab.PATH, "XDG_STATE_HOME": str(tmp_path)}
    argv = [*remote.prefix, sys.executable, "-m", "headrace", *words]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"].startswith(
        f"The server at 127.0.0.1:{remote.ways['tunnel'][3]} does not run on this host"
    )
    assert "socat" in found["verdict"]
    assert found["limiting"] is None
    host_areas = {"FS", "BLK", "RAID", "NET", "IRQ", "TCP", "CPU", "MEM", "HOST", "LIM", "ALLOC"}
    assert not [each["id"] for each in found["findings"] if each["id"].rstrip("0123456789@").split("@")[0].rstrip(
        "0123456789") in host_areas]  # fmt: skip


def test_what_is_mounted_over_a_server_s_data_is_not_where_its_files_are(local: Place) -> None:
    """It keeps the directory that it works in; the list of mounts names what hides it."""

    def asked() -> HostFacts:
        return HostFacts(Facts("", facts(local.ways["socket"], "right", local.folder)))

    found = asked()
    data = str(found.variable("datadir")).rstrip("/")
    subprocess.run(["mount", "-t", "tmpfs", "over", data], check=True)
    try:
        after = asked().server_file_system_of(data)
    finally:
        subprocess.run(["umount", data], check=True)
    before = found.server_file_system_of(data)
    assert before is not None
    assert after is not None
    assert (after["mount_point"], after["kind"]) == (before["mount_point"], before["kind"])
