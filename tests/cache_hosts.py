"""Hosts in namespaces, with a memcached each, whose network is slow as long as their packets are not steered."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.caches import Client
from tests.servers import free_port
from tests.traces import FORGET_MOUNTS
from tests.waiting import until

PROGRAMS = ("memcached", "root", "nsenter", "ip")
#: A network, a name and a journal of its own; its memcached ends with it.
START = """
hostname {name}
mount -t sysfs sysfs /sys
for place in /var/tmp /var/lib; do mount -t tmpfs -o mode=1777 headrace-test $place; done
ip link set lo up
ip link add eth0 type veth peer name eth1
ip link set eth0 up
exec memcached -s {path} -m 16 -u root
"""
SLOW_S = 0.03


@dataclass
class CacheHost:
    """Whoever comes over the network is delayed as long as packets are not steered, or, ``slow_when_steered``, as
    long as they are.
    """

    name: str
    pid: int
    path: str
    port: int = field(default_factory=free_port)
    gets: int = 0
    #: With steering, clients ask for what is not there.
    misses_when_steered: bool = False
    slow_when_steered: bool = False

    @property
    def target(self) -> str:
        return f"exec:nsenter -t {self.pid} -n -m -u"

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
            while content := await _read(reader):
                if content.startswith(b"get headrace"):
                    self.gets += 1
                await asyncio.sleep(SLOW_S if self.steers is self.slow_when_steered else 0)
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


@contextlib.contextmanager
def cache_hosts(folder: Path, names: Sequence[str]) -> Iterator[list[CacheHost]]:
    """All of them, with clients."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_cache_host(folder, name)) for name in names]


@contextlib.contextmanager
def _cache_host(folder: Path, name: str) -> Iterator[CacheHost]:
    path = str(folder / name)
    # unshare has made them private.
    script = FORGET_MOUNTS + START.format(path=path, name=name)
    with subprocess.Popen(["unshare", "-n", "-m", "-u", "sh", "-ec", script]) as process:
        until(lambda: Path(path).exists(), process)
        found, stop = CacheHost(name, process.pid, path), threading.Event()
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
            asyncio.run_coroutine_threadsafe(_ended(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            network.join()
            process.kill()


async def _ended() -> None:
    """Whatever else runs in this loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Empty also if the client is gone."""
    try:
        return await reader.read(1 << 16)
    except ConnectionResetError:
        return b""
