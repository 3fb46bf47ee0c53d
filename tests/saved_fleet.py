"""Hosts that are SSH servers on loopback addresses and answer from a saved host: as many as a fleet has.

All run in one process; nothing of headrace itself is replaced. Some are broken, each in its own way.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from tests import programs, sshd
from tests.folders import ROOT, TESTS
from tests.waiting import until

READY_S = 120.0
#: What is wrong with a host -> the state that it must end in.
BROKEN = {
    "refuses": "unreachable",
    "hangs": "unreachable",
    "changed key": "unreachable",
    "dies in the middle": "unreachable",
    "full disk": "failed",
    "other processor": "failed",
    "talks nonsense": "failed",
}


def address(number: int) -> str:
    return f"127.77.{number // 250}.{number % 250 + 1}"


def name(number: int) -> str:
    return f"db{number + 1}"


@dataclass(frozen=True)
class Saved:
    """``fleet`` is a fleet's file; ``broken``: name -> what is wrong with it."""

    fleet: Path
    broken: dict[str, str]


def ways(count: int, broken_share: float) -> dict[int, str]:
    """Which hosts are broken how: every way in turn, spread over the fleet."""
    broken = max(round(count * broken_share), len(BROKEN)) if broken_share else 0
    kinds = list(BROKEN)
    return (
        {number * (count // broken): kinds[number % len(kinds)] for number in range(broken)} if broken else {}
    )


@contextlib.contextmanager
def saved_fleet(
    folder: Path, count: int, broken_share: float, planted: dict[str, dict[str, str]], timeout_s: float = 60
) -> Iterator[Saved]:
    """``planted``: host -> variables that only it has."""
    key, host_key, _ = (sshd.make_key(folder / name) for name in ("user_key", "host_key", "other_key"))
    kind, public = host_key.with_suffix(".pub").read_text().split()[:2]
    # All hosts have one port, so that two such fleets live beside each other.
    with socket.socket() as probe:
        probe.bind((address(0), 0))
        port = int(probe.getsockname()[1])
    (folder / "known_hosts").write_text(f"[127.77.*]:{port} {kind} {public}\n")
    broken = ways(count, broken_share)
    variables = {
        name(number): {
            "ansible_host": address(number), "ansible_port": port, "ansible_user": "root",
            "ansible_ssh_private_key_file": str(key),
        }
        for number in range(count)
    }  # fmt: skip
    groups = {"_meta": {"hostvars": variables}, "mysql": {"hosts": list(variables)}}
    (folder / "inventory.json").write_text(json.dumps(groups))
    fleet = folder / "fleet.toml"
    fleet.write_text(
        f'[fleet]\nfiles = ["inventory.json"]\nknown_hosts = "{folder}/known_hosts"\n'
        f'host_timeout_s = {timeout_s}\n[fleet.mysql]\nsocket = "/run/mysqld/mysqld.sock"\n'
    )
    (folder / "serve.json").write_text(
        json.dumps(
            {
                "count": count,
                "port": port,
                "broken": broken,
                "planted": planted,
                "agent": str(programs.agent_path()),
            }
        )
    )
    process = subprocess.Popen([sys.executable, "-m", "tests.saved_fleet", str(folder)], cwd=ROOT)
    try:
        until((folder / "ready").exists, process, limit_s=READY_S, what="the saved hosts did not start")
        yield Saved(fleet, {name(number): way for number, way in broken.items()})
    finally:
        process.terminate()
        process.wait(30)


class Hosts:
    """What every saved host answers; ``answers`` reads the command that headrace sent as the shell would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        options = json.loads((folder / "serve.json").read_text())
        self.count: int = options["count"]
        self.port: int = options["port"]
        self.broken = {int(number): str(way) for number, way in options["broken"].items()}
        self.planted: dict[str, dict[str, str]] = options["planted"]
        self.digest = hashlib.sha256(Path(options["agent"]).read_bytes()).hexdigest()
        self.facts: dict[str, Any] = json.loads((TESTS / "rules" / "host.json").read_text())
        self.variables = json.loads((TESTS / "rules" / "mysql-8.0.json").read_text())["variables"]

    async def serve(self) -> None:
        for number in range(self.count):
            way = self.broken.get(number, "")
            if way == "refuses":
                continue
            if way == "hangs":
                await asyncio.start_server(_say_nothing, address(number), self.port)
                continue
            key = "other_key" if way == "changed key" else "host_key"
            await asyncssh.listen(
                address(number),
                self.port,
                server_host_keys=[str(self.folder / key)],
                authorized_client_keys=str(self.folder / "user_key.pub"),
                process_factory=self._process(number, way),
                encoding=None,
                login_timeout=0,
            )
        (self.folder / "ready").write_text("")
        await asyncio.Event().wait()

    def _process(self, number: int, way: str) -> Any:
        async def handle(process: Any) -> None:
            words = shlex.split(process.command)
            script, argv = words[words.index("-c") + 1], words[words.index("-c") + 3 :]
            found = re.search(r"headrace-[0-9a-f]{16}", script)
            assert found
            process.stderr.write(f"{found[0]}\n".encode())
            process.stdout.write(f"{found[0]} 4711 4710\n".encode())
            output, error, code = self.answer(number, way, argv)
            process.stdout.write(output)
            process.stderr.write(error)
            if code is None:
                process.channel.get_connection().abort()
                return
            process.exit(code)

        return handle

    def answer(self, number: int, way: str, argv: list[str]) -> tuple[bytes, bytes, int | None]:
        """Standard output and error, and the exit code; None: the connection breaks."""
        text = " ".join(argv)
        if "SSH_AUTH_SOCK" in text:
            return b"0\nagent \nsafe\n", b"", 0
        if "sha256sum" in text:
            machine = "aarch64" if way == "other processor" else "x86_64"
            state = "missing" if way in ("full disk", "other processor") else self.digest
            return f"{machine}\n/root/.cache/headrace\n{state}\n".encode(), b"", 0
        if way == "full disk":
            return b"", b"dd: error writing '/root/x': No space left on device\n", 1
        if way == "dies in the middle":
            return b'{"format": 1, "hostn', b"", None
        if len(argv) > 1 and argv[1] == "facts":
            return (b"Killed\n" if way == "talks nonsense" else self._facts(number)), b"", 0
        return b"", b"", 0

    def _facts(self, number: int) -> bytes:
        own = {
            "server_id": str(number + 1),
            "server_uuid": f"{number:032x}",
            "hostname": name(number),
            "report_host": address(number),
            **self.planted.get(name(number), {}),
        }
        settings = {"vendor": "mysql", "version": "8.0.31", "version_text": "8.0.31", "pid": 1322,
                    "variables": self.variables | own}  # fmt: skip
        return json.dumps(self.facts | {"hostname": name(number), "server_settings": settings}).encode()


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        await reader.read()
    writer.close()


if __name__ == "__main__":
    asyncio.run(Hosts(Path(sys.argv[1])).serve())
