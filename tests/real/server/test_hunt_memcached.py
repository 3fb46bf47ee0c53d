"""Faults planted in real memcached servers, all at once: one hunt names each, and nothing of the healthy one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import programs
from tests.caches import Cache, Client, cache
from tests.folders import ROOT
from tests.servers import free_port
from tests.waiting import until

pytestmark = pytest.mark.needs("memcached")

HEADRACE = [sys.executable, "-m", "headrace"]
HOWTO = ROOT / "docs" / "howto" / "memcached.md"
SECONDS = 6
PAUSE_S = 0.02
Step = Callable[[Client, int], None]


@dataclass
class Plant:
    """A memcached with a fault: ``begin`` once, then ``step`` again and again with a number that grows."""

    options: tuple[str, ...] = ()
    codes: frozenset[str] = frozenset()
    begin: Callable[[Client], None] = lambda client: None
    step: Step = lambda client, number: None
    listen: str = "127.0.0.1"


def keys(prefix: str, first: int, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(first, first + count)]


def fill_with_small_ones(client: Client) -> None:
    """Then it is empty, and its pages belong to the small items' class."""
    for first in range(0, 60_000, 5_000):
        client.store(keys("small", first, 5_000), b"x" * 100)
    for first in range(0, 60_000, 5_000):
        client.delete(keys("small", first, 5_000))


def ask_for_what_is_there(client: Client) -> None:
    client.store(keys("k", 0, 100), b"v")
    for _ in range(400):
        client.get(keys("k", 0, 100))


def expire(client: Client, number: int) -> None:
    """What was stored before has expired; the crawler takes it away when it is told to."""
    client.store(keys("e", 15 * number, 15), b"x", lifetime_s=1)
    client.socket.sendall(b"lru_crawler crawl all\r\n")
    client.socket.recv(100)  # OK, or BUSY


def large_and_small(client: Client) -> None:
    client.store(["large"], b"x" * 300_000)
    client.store(keys("k", 0, 100), b"v" * 10)


def mostly_small(client: Client, number: int) -> None:
    client.get(["large"])
    client.get(keys("k", 0, 100))


def misuse(client: Client, number: int) -> None:
    """Many connections of one request, values that are too large, a flush, and hundreds of requests at once."""
    client.store(["a"], b"x")
    client.store(["too-large"], b"x" * 2_000_000) if number % 20 == 0 else None
    client.send(b"get a\r\n" * 400 + b"mn\r\n", b"MN\r\n") if number % 4 == 0 else None
    client.send(b"flush_all\r\n", b"OK\r\n") if number % 50 == 0 else None


def connect(client: Client, number: int) -> None:
    host, port = client.socket.getpeername()[:2]
    for _ in range(10):
        other = Client(f"{host}:{port}")
        other.get(["a"])
        other.close()


def half_a_request(client: Client, number: int) -> None:
    """Each holds a buffer of 16 KiB for a moment, of 1 MiB for all; rarely, for whoever reads needs one, too."""
    if number % 200 != 100:
        return
    with contextlib.suppress(OSError), contextlib.ExitStack() as open_ones:
        for _ in range(90):
            one = socket.create_connection(client.socket.getpeername()[:2])
            open_ones.enter_context(one).sendall(b"get " + b"a" * 100)


def own_address() -> str:
    """By which others reach this machine; all of them where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))
        except OSError:
            return "0.0.0.0"
        return str(one.getsockname()[0])


PLANTS: dict[str, Plant] = {
    "healthy": Plant(
        begin=lambda client: client.store(keys("k", 0, 1000), b"x" * 200),
        step=lambda client, number: (client.get(keys("k", 100 * (number % 10), 100)), None)[1],
    ),
    "slabs": Plant(
        ("-m", "10", "-o", "slab_automove=0"),
        frozenset(("MEMC01", "MEMC02", "MEMC03")),
        fill_with_small_ones,
        lambda client, number: client.store(keys("large", 40 * number, 40), b"x" * 20_000),
    ),
    "expiry": Plant((), frozenset(("MEMC04",)), step=expire),
    "misses": Plant(
        (),
        frozenset(("MEMC05", "MEMC06")),
        ask_for_what_is_there,
        lambda client, number: (client.get(keys("other", 100 * number, 100)), None)[1],
    ),
    "misuse": Plant((), frozenset(("MEMC07", "MEMC14", "MEMC21")), step=misuse),
    "large": Plant((), frozenset(("MEMC08",)), large_and_small, mostly_small),
    "options": Plant(
        ("-m", "9000000", "-t", str((os.cpu_count() or 1) + 4), "-b", "1000000", "-o", "no_lru_crawler"),
        frozenset(("MEMC12", "MEMC24", "MEMC26")),
    ),
    "reached": Plant(("-U", str(free_port())), frozenset(("MEMC28",)), listen=f"127.0.0.1,{own_address()}"),
    "full": Plant(
        ("-M", "-m", "4"),
        frozenset(("MEMC11",)),
        step=lambda client, number: client.store(keys("k", 50 * number, 50), b"x" * 10_000),
    ),
    "chains": Plant(
        ("-o", "no_hashexpand,hashpower=13"),
        frozenset(("MEMC13",)),
        lambda client: client.store(keys("k", 0, 30_000), b"x"),
    ),
    "refusing": Plant(("-c", "100"), frozenset(("MEMC20",))),
    "nearly full": Plant(("-c", "200"), frozenset(("MEMC20",))),
    "connecting": Plant((), frozenset(("MEMC22",)), lambda client: client.store(["a"], b"x"), step=connect),
    "queue": Plant(("-b", "3"), frozenset(("MEMC27",))),
    # Limits of another user's process are not ours to change everywhere.
    "files": Plant(("-u", "root") if os.geteuid() == 0 else (), frozenset(("MEMC29",))),
    "buffers": Plant(("-o", "read_buf_mem_limit=1", "-t", "1"), frozenset(("MEMC30",)), step=half_a_request),
}
#: Of all of them together: nobody has that much memory.
OF_HOST = "MEMC09"


@contextlib.contextmanager
def driven(caches: Mapping[str, Cache]) -> Iterator[None]:
    """Under their loads, which go on until the end."""
    stop = threading.Event()

    def work(plant: Plant, client: Client) -> None:
        number = 0
        with contextlib.suppress(OSError):
            while not stop.wait(PAUSE_S):
                plant.step(client, number)
                number += 1

    clients = {name: each.client() for name, each in caches.items()}
    for name, client in clients.items():
        PLANTS[name].begin(client)
    threads = [threading.Thread(target=work, args=(PLANTS[name], client)) for name, client in clients.items()]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for client in clients.values():
            client.close()


def connected(each: Cache, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", each.port)) for _ in range(count)]


def overflow(each: Cache, client: Client) -> None:
    """It stands still for some samples, with more connections than its queue holds."""
    before = int(client.stats()["total_connections"])
    until(lambda: int(client.stats()["total_connections"]) > before, pause_s=0.1)
    time.sleep(0.5)
    each.process.send_signal(signal.SIGSTOP)
    waiting = []
    for _ in range(12):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", each.port))
        waiting.append(one)
    time.sleep(2.5)
    each.process.send_signal(signal.SIGCONT)
    for one in waiting:
        one.close()


def hunt(*words: str | Path) -> Any:
    environment = {**os.environ, "HEADRACE_AGENT": programs.agent_path()}
    done = subprocess.run(
        [*HEADRACE, "hunt", "--json", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def started() -> Iterator[dict[str, Cache]]:
    with contextlib.ExitStack() as all_of_them:
        found = {}
        for name, plant in PLANTS.items():
            options = ("-U", "0", *plant.options)
            found[name] = all_of_them.enter_context(
                cache(*options, listen=plant.listen, stderr=subprocess.DEVNULL)
            )
        resource.prlimit(found["files"].pid, resource.RLIMIT_NOFILE, (512, 1024))
        yield found


@pytest.fixture(scope="module")
def hunted(
    started: dict[str, Cache], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Path]:
    """One hunt of all of them, and its file."""
    path = tmp_path_factory.mktemp("memcached") / "caches.hunt"
    with driven(started):
        held = [*connected(started["refusing"], 100), *connected(started["nearly full"], 168)]
        client = started["queue"].client()
        overflowing = threading.Thread(target=overflow, args=(started["queue"], client))
        overflowing.start()
        try:
            return hunt("--host-only", "--duration", f"{SECONDS}s", "--save", path), path
        finally:
            overflowing.join()
            client.close()
            for each in held:
                each.close()


def of(found: Mapping[str, Any], each: Cache) -> set[str]:
    """Codes of the findings about one server."""
    ids = [finding["id"].partition("@") for finding in found["findings"]]
    return {code for code, _, subject in ids if subject == each.address}


@pytest.mark.parametrize("name", PLANTS)
def test_what_was_planted_is_found(
    name: str, started: dict[str, Cache], hunted: tuple[dict[str, Any], Path]
) -> None:
    assert of(hunted[0], started[name]) == PLANTS[name].codes


def test_what_is_refused_and_what_may_soon_be(
    started: dict[str, Cache], hunted: tuple[dict[str, Any], Path]
) -> None:
    found = {finding["id"]: finding["severity"] for finding in hunted[0]["findings"]}
    assert found[f"MEMC20@{started['refusing'].address}"] == "bottleneck"
    assert found[f"MEMC20@{started['nearly full'].address}"] == "risk"
    (row,) = [each for each in hunted[0]["memcached"]["servers"] if each["pid"] == started["refusing"].pid]
    assert row["not_read"] == "it refuses connections: too many are open"


def test_more_memory_is_promised_than_there_is(hunted: tuple[dict[str, Any], Path]) -> None:
    assert OF_HOST in {finding["id"] for finding in hunted[0]["findings"]}


def test_each_finding_has_a_next_command(hunted: tuple[dict[str, Any], Path]) -> None:
    own = [finding for finding in hunted[0]["findings"] if finding["id"].startswith("MEMC")]
    for finding in own:
        assert finding["evidence"], finding["id"]
        assert any(remedy["steps"] for remedy in finding["remedies"]), finding["id"]


def test_the_file_says_the_same(hunted: tuple[dict[str, Any], Path]) -> None:
    live, path = hunted
    again = hunt("--from", path)[0]
    assert again["memcached"] == live["memcached"]
    assert again["findings"] == live["findings"]
    assert again["verdict"] == live["verdict"]


def test_the_commands_of_the_how_to_run(started: dict[str, Cache], tmp_path: Path) -> None:
    """One of the servers stands still: it is named, and the others are read."""
    slow = started["files"]
    slow.process.send_signal(signal.SIGSTOP)
    environment = {**os.environ, "HEADRACE_AGENT": programs.agent_path(), "COLUMNS": "200"}
    printed = []
    try:
        for block in re.findall(r"```sh\n(.*?)```", HOWTO.read_text(), flags=re.DOTALL):
            for line in block.splitlines():
                words = shlex.split(line.partition(" #")[0])
                # A capture and its digest, and rollouts, run in tests of their own.
                if words[0] == "tcpdump" or words[1] in ("digest", "rollout"):
                    continue
                assert words[0] == "headrace"
                argv = [*HEADRACE, *words[1:]]
                done = subprocess.run(
                    argv,
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=300,
                    check=True,
                )
                printed.append(done.stdout)
    finally:
        slow.process.send_signal(signal.SIGCONT)
    live, again, as_json, rule = printed
    assert f"{slow.address} was not read: no answer within 3 s." in live
    assert started["healthy"].address in live
    assert f"{slow.address} was not read: no answer within 3 s." in again
    (judged,) = json.loads(as_json)
    servers = {each["name"]: each["not_read"] for each in judged["memcached"]["servers"]}
    assert servers[slow.address] == "no answer within 3 s"
    assert servers[started["healthy"].address] is None
    assert "MEMC01" in rule
