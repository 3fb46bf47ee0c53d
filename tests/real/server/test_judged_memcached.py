"""A setting of a host is judged by its memcached: receive packet steering, which here is worth 30 ms a get."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import commands
from tests.caches import Client
from tests.programs import agent_path
from tests.servers import free_port
from tests.traces import FORGET_MOUNTS
from tests.waiting import until

pytestmark = pytest.mark.needs("memcached", "root", "nsenter", "ip")

#: Its own network and /var/tmp; its memcached ends with it.
START = """
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /var/tmp
ip link set lo up
ip link add eth0 type veth peer name eth1
ip link set eth0 up
exec memcached -s {path} -m 16 -u root
"""
SLOW_S = 0.03
TURN = ("--duration", "2s", "--warmup", "0s", "--gets", "20")


@dataclass
class Host:
    """In namespaces. Whoever comes over the network is delayed as long as packets are not steered."""

    pid: int
    path: str
    port: int = field(default_factory=free_port)
    gets: int = 0
    #: With steering, clients ask for what is not there.
    misses_when_steered: bool = False

    @property
    def target(self) -> str:
        return f"exec:nsenter -t {self.pid} -n -m"

    @property
    def steers(self) -> bool:
        queue = Path(f"/proc/{self.pid}/root/sys/class/net/eth0/queues/rx-0/rps_cpus")
        return int(queue.read_text().replace(",", ""), 16) != 0

    async def serve(self) -> None:
        """The network before it."""

        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            behind_reader, behind = await asyncio.open_unix_connection(self.path)

            async def back() -> None:
                while content := await behind_reader.read(1 << 16):
                    writer.write(content)
                writer.close()

            answering = asyncio.create_task(back())
            while content := await reader.read(1 << 16):
                if content.startswith(b"get headrace"):
                    self.gets += 1
                await asyncio.sleep(0 if self.steers else SLOW_S)
                behind.write(content)
            behind.close()
            await answering

        await asyncio.start_server(one, "127.0.0.1", self.port)

    def drive(self, stop: threading.Event) -> None:
        """Its clients, who are on the host."""
        client = Client(self.path)
        client.store([f"k{number}" for number in range(100)], b"x" * 100)
        while not stop.wait(0.05):
            prefix = "other" if self.misses_when_steered and self.steers else "k"
            client.get([f"{prefix}{number}" for number in range(100)])
        client.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    path = str(tmp_path / "socket")
    # unshare has made them private.
    script = FORGET_MOUNTS + START.format(path=path)
    with subprocess.Popen(["unshare", "-n", "-m", "sh", "-ec", script]) as process:
        until(lambda: Path(path).exists(), process)
        found, stop = Host(process.pid, path), threading.Event()
        loop = asyncio.new_event_loop()
        network = threading.Thread(target=loop.run_forever)
        network.start()
        asyncio.run_coroutine_threadsafe(found.serve(), loop).result()
        clients = threading.Thread(target=found.drive, args=(stop,))
        clients.start()
        try:
            yield found
        finally:
            stop.set()
            clients.join()
            loop.call_soon_threadsafe(loop.stop)
            network.join()
            process.kill()


def judged(host: Host, verb: str, *words: str, folder: Path, blocks: int) -> tuple[int, dict[str, Any], str]:
    env = {**os.environ, "HEADRACE_STATE": str(folder / "state"), "HEADRACE_AGENT": agent_path()}
    where = ["--target", host.target, "--memcached", f"127.0.0.1:{host.port}", "-o", str(folder / verb)]
    with commands.started(verb, *words, *where, *TURN, "--blocks", str(blocks), "--json", env=env) as process:
        out, error = process.communicate()
    assert out, error
    return process.returncode, json.loads(out), error


def test_it_is_kept_if_clients_wait_less_and_nothing_else_is_lost(host: Host, tmp_path: Path) -> None:
    code, found, said = judged(host, "apply", "--judge", "host.rps_cpus@eth0=1", folder=tmp_path, blocks=3)
    assert code == 0, (found, said)
    [step] = found["steps"]
    assert step["effect"]["verdict"] == "better"
    assert step["effect"]["response"] == "p50"
    assert step["effect"]["low"] < step["effect"]["ratio"] < step["effect"]["high"] < 0.5
    assert {each["name"]: each["holds"] for each in step["guards"]} == dict.fromkeys(
        ("hit rate", "evictions", "refused connections", "failed gets"), "holds"
    )
    assert host.steers
    assert "requests/s; judged by the p50" in said
    # Nine turns of two seconds and what is around them: nobody else asked for the probe's key.
    assert 9 * 2 * 20 <= host.gets <= 9 * 4 * 20
    state = {**os.environ, "HEADRACE_STATE": str(tmp_path / "state"), "HEADRACE_AGENT": agent_path()}
    commands.headrace("rollback", "--last", "--target", host.target, env=state)
    assert not host.steers


@pytest.mark.thorough
def test_a_fall_of_the_hit_rate_is_no_price_for_latency(host: Host, tmp_path: Path) -> None:
    host.misses_when_steered = True
    code, found, said = judged(host, "prove", "--live", "host.rps_cpus@eth0=1", folder=tmp_path, blocks=2)
    assert code == 0, said
    [step] = found["steps"]
    assert not step["kept"]
    assert step["reason"] == "not proven within its limit: hit rate"
    holds = {each["name"]: each["holds"] for each in step["guards"]}
    assert holds["hit rate"] == "broken"
    assert not host.steers
