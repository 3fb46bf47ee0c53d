"""The driver on a real memcached: what it says it did against what the server counted, and when that fails."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.driver import Driven, drive, driven
from tests.faults import (
    CANNOT_CONNECT,
    CONNECTION_LOST,
    MALFORMED,
    NO_ANSWER,
    SLACK_S,
    assert_adds_up,
    begun,
    errors,
    interrupted,
    meanwhile,
)
from tests.programs import agent_path
from tests.servers import free_port
from tests.waiting import until

pytestmark = pytest.mark.needs("memcached")

#: What the driver calls memcached's errors, which have no numbers of their own.
TOO_LARGE, INVALID_ARGUMENTS, UNKNOWN_COMMAND, OUT_OF_MEMORY = 3, 4, 129, 130

#: memcached refuses to be root.
ACCOUNT = ["-u", "nobody"] if os.geteuid() == 0 else []

KEYS = 2000
OPEN = {"kind": "open", "arrivals": "constant", "rate_ops_s": 1000}


class Cache:
    """A memcached of a test's own on loopback."""

    def __init__(self, *options: str) -> None:
        self.port = free_port()
        self.argv = ["memcached", "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", *ACCOUNT, *options]
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(self.argv)
        until(self.listens)
        return self.process

    def listens(self) -> bool:
        assert self.process.poll() is None, "memcached did not start"
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except ConnectionRefusedError:
            return False
        return True

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(self, request: str, *last: str) -> list[str]:
        """The lines up to one of the last ones, without it."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(f"{request}\r\n".encode())
            lines: list[str] = []
            for line in connection.makefile("r", encoding="latin-1", newline="\n"):
                if line.strip() in last:
                    return lines
                lines.append(line.strip())
        raise AssertionError(f"memcached closed the connection after {lines}")

    def stats(self) -> dict[str, int]:
        words = [line.split() for line in self.ask("stats", "END")]
        return {name: int(value) for _, name, value in words if value.isdecimal()}

    def items(self) -> dict[str, int]:
        """The size of each item by its key; the size has the key and memcached's own bytes in it."""
        found = {}
        for line in self.ask("lru_crawler metadump all", "END"):
            fields = dict(field.split("=", 1) for field in line.split())
            found[unquote(fields["key"])] = int(fields["size"])
        return found


@pytest.fixture
def cache() -> Iterator[Cache]:
    cache = Cache("-m", "64")
    try:
        yield cache
    finally:
        cache.stop()


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    """One that memcached's account can use."""
    folder.chmod(0o777)
    return folder


@contextmanager
def another(*options: str) -> Iterator[Cache]:
    cache = Cache(*options)
    try:
        yield cache
    finally:
        cache.stop()


def spec(address: str, *, workload: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "workload": {"kind": "memcached", "address": address, "keys": KEYS, **(workload or {})},
        "connections": 3,
        "seconds": 0.5,
        "warmup_s": 0.5,
        **changes,
    }


def counted(cache: Cache, spec: dict[str, Any]) -> tuple[Driven, dict[str, int]]:
    """The run, and how much the server's counters grew."""
    before = cache.stats()
    run = driven([], spec)
    after = cache.stats()
    return run, {name: after[name] - before.get(name, 0) for name in after}


@pytest.mark.parametrize("net", ["uring", "epoll"])
@pytest.mark.parametrize("pacing", [{"kind": "closed"}, OPEN], ids=["closed", "open"])
def test_the_server_counts_what_the_driver_counts(
    cache: Cache, pacing: dict[str, Any], net: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_IO", net)
    drive([], spec(cache.address), verb="load")
    run, grown = counted(cache, spec(cache.address, pacing=pacing))
    assert run.start["operations"] == ["get", "set"]
    assert run.sum("errors") == run.end["unfinished"] == 0
    gets, sets = run.sum("count", "get"), run.sum("count", "set")
    assert (grown["cmd_get"], grown["cmd_set"]) == (gets, sets)
    assert grown["get_hits"] == run.sum("rows", "get") == gets
    assert run.sum("rows", "set") == 0
    if pacing["kind"] == "open":
        assert gets + sets == 1000
        assert run.start["pacing"] == "open"
    # get_share is 0.9 by default; five standard deviations.
    assert gets / (gets + sets) == pytest.approx(0.9, abs=5 * (0.09 / (gets + sets)) ** 0.5)
    for kind in ("response", "service"):
        assert sum(run.histogram(kind, "get").values()) == gets
        assert sum(run.histogram(kind, "set").values()) == sets
    # A value with its key and "VALUE <key> 0 100 END", and STORED.
    assert 100 + 16 + 20 < run.sum("bytes", "get") / gets < 100 + 32 + 30
    assert run.sum("bytes", "set") == len("STORED\r\n") * sets


@pytest.mark.parametrize(("share", "names"), [(1.0, ["get"]), (0.0, ["set"])])
def test_an_operation_that_never_comes_is_none(cache: Cache, share: float, names: list[str]) -> None:
    run, grown = counted(cache, spec(cache.address, workload={"get_share": share}))
    assert run.start["operations"] == names
    assert grown["cmd_get" if share else "cmd_set"] == run.sum("count") > 0
    assert grown["cmd_set" if share else "cmd_get"] == 0


def test_a_miss_has_ended_well_and_is_no_row(cache: Cache) -> None:
    wanted = spec(cache.address, workload={"get_share": 1.0, "distribution": {"kind": "hot", "keys": 0.5}})
    run, grown = counted(cache, wanted)
    assert run.sum("errors") == run.sum("rows") == 0
    assert grown["get_misses"] == run.sum("count") > 0
    drive([], spec(cache.address, workload={"keys": KEYS // 2}), verb="load")
    run, grown = counted(cache, wanted)
    assert grown["get_hits"] == run.sum("rows")
    assert grown["get_misses"] == run.sum("count") - run.sum("rows")
    # The hot half of the keys gets three quarters of the operations.
    assert run.sum("rows") / run.sum("count") == pytest.approx(0.75, abs=0.05)


def test_every_item_is_stored_once(cache: Cache) -> None:
    workload = {
        "keys": 30_000,
        "key_bytes": {"min": 20, "max": 40},
        "value_bytes": {"kind": "exponential", "mean": 300, "max": 2000},
    }
    done = drive([], spec(cache.address, workload=workload), verb="load")
    summary = json.loads(done.stdout.splitlines()[-1])
    items, stats = cache.items(), cache.stats()
    assert summary["rows"] == len(items) == stats["curr_items"] == stats["cmd_set"] == 30_000
    assert summary["bytes"] == stats["bytes_read"] - len("stats\r\nlru_crawler metadump all\r\n")
    assert {len(key) for key in items} == set(range(20, 41))
    # "set KEY 0 0 LENGTH", the value, two line ends.
    values = summary["bytes"] - sum(len(f"set {key} 0 0 \r\n\r\n") + 3 for key in items)
    assert values / 30_000 == pytest.approx(300, rel=0.05)
    # An item's size but for its key and its value is the same for all.
    assert max(items.values()) - min(items.values()) > 1500
    # Storing them anew in a run changes no size: values hang on their key.
    shape = {**workload, "get_share": 0.0}
    driven([], spec(cache.address, workload=shape, seed=7))
    assert cache.items() == items


def test_clean_deletes_these_items_only(cache: Cache) -> None:
    drive([], spec(cache.address), verb="load")
    for key in ("other", "hr:other", f"hr:{KEYS:020}"):
        assert cache.ask(f"set {key} 0 0 1\r\nx", "STORED") == []
    drive([], spec(cache.address), verb="clean")
    assert sorted(cache.items()) == sorted(["other", "hr:other", f"hr:{KEYS:020}"])
    drive([], spec(cache.address), verb="clean")


def test_large_values_over_a_socket(folder: Path) -> None:
    path = str(folder / "s.sock")
    workload = {"keys": 40, "value_bytes": {"kind": "uniform", "min": 500_000, "max": 1_000_000}}
    with subprocess.Popen(["memcached", "-s", path, "-m", "128", *ACCOUNT]) as process:
        try:
            until(lambda: Path(path).exists())
            time.sleep(0.1)
            drive([], spec(path, workload=workload), verb="load")
            run = driven([], spec(path, workload={**workload, "get_share": 0.5}))
            drive([], spec(path, workload=workload), verb="clean")
            after = driven([], spec(path, workload={**workload, "get_share": 1.0}))
        finally:
            process.kill()
    assert run.sum("errors") == 0
    assert run.sum("rows") == run.sum("count", "get") > 0
    assert run.sum("bytes", "get") / run.sum("count", "get") == pytest.approx(750_000, rel=0.2)
    assert after.sum("count") > after.sum("rows") == 0


def test_progress(cache: Cache) -> None:
    argv = [agent_path(), "drive", "load", "-", "--progress"]
    text = json.dumps(spec(cache.address))
    with cache.standing_still(), ThreadPoolExecutor(1) as pool:
        done = pool.submit(
            subprocess.run, argv, input=text, capture_output=True, text=True, check=True, timeout=60
        )
        time.sleep(1.5)
        cache.process.send_signal(signal.SIGCONT)
        said: subprocess.CompletedProcess[str] = done.result()
    assert "loaded 0.0%: 0 rows" in said.stderr
    assert json.loads(said.stdout)["rows"] == KEYS


# --- faults -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pacing", [{"kind": "closed"}, OPEN], ids=["closed", "open"])
def test_killed_and_back(cache: Cache, pacing: dict[str, Any]) -> None:
    wanted = spec(cache.address, pacing=pacing, seconds=3, warmup_s=0)
    drive([], wanted, verb="load")
    with meanwhile([], wanted) as end:
        until(lambda: cache.stats()["cmd_get"] > 200)
        cache.stop()
        gone_s = time.monotonic()
        time.sleep(0.5)
        cache.start()
        gone_s = time.monotonic() - gone_s
        run = end()
    assert_adds_up(run, wanted)
    lost: dict[int, int] = {}
    for operation in ("get", "set"):
        for code, count in errors(run, operation).items():
            lost[code] = lost.get(code, 0) + count
    assert set(lost) <= {CONNECTION_LOST}
    assert sum(lost.values()) <= run.end["connections_lost"] == run.sum("count", "connect") == 3
    assert set(errors(run, "connect")) <= {CANNOT_CONNECT, CONNECTION_LOST}
    assert run.rows("get")[-1]["count"] > 0, "it did not go on"
    # The new one is empty but for what was set since.
    assert 0 < run.sum("rows", "get") < run.sum("count", "get")
    slowest_s = max(row["response"]["max_ns"] or 0 for row in run.rows()) / 1e9
    if pacing["kind"] == "closed":
        assert lost[CONNECTION_LOST] >= 1
        assert slowest_s < gone_s, "a reconnect is a class of its own"
    else:
        assert begun(run, "get") + begun(run, "set") == 3000
        assert slowest_s > 0.9 * gone_s, "users waited"


def test_silence(cache: Cache) -> None:
    wanted = spec(cache.address, seconds=3, warmup_s=0, operation_timeout_s=0.3)
    with meanwhile([], wanted) as end:
        until(lambda: cache.stats()["cmd_get"] > 200)
        with cache.standing_still():
            time.sleep(1)
        run = end()
    assert_adds_up(run, wanted)
    codes = errors(run, "get") | errors(run, "set")
    assert set(codes) == {NO_ANSWER}
    # Each client loses its operation, and takes a connection for one only when the server has answered on it.
    assert run.sum("timeouts") == run.end["connections_lost"] == 3
    assert run.sum("count", "connect") == 3
    assert run.histogram("failed", "get") or run.histogram("failed", "set")
    assert run.rows("get")[-1]["count"] > 0, "it did not go on"


def test_a_server_that_stands_still_ends_a_load(cache: Cache) -> None:
    begin_s = time.monotonic()
    with cache.standing_still():
        argv = [agent_path(), "drive", "load", "-"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write(json.dumps(spec(cache.address)))
            process.stdin.close()
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            assert process.wait(SLACK_S) == 130
            said = process.stderr.read()
    assert time.monotonic() - begin_s < SLACK_S
    assert said == "headrace-agent: 0 of 2000 items are stored: asked to stop\n"


def test_interrupted(cache: Cache) -> None:
    wanted = spec(cache.address, seconds=30, warmup_s=0)
    run = interrupted([], wanted, lambda: until(lambda: cache.stats()["cmd_get"] > 1000))
    assert_adds_up(run, wanted)
    assert run.sum("count") > 1000
    assert run.end["unfinished"] <= 3


def test_values_that_the_server_does_not_take(cache: Cache) -> None:
    workload = {"value_bytes": {"kind": "fixed", "bytes": 1_100_000}, "get_share": 0.5}
    wanted = spec(cache.address, workload=workload, warmup_s=0, pacing={**OPEN, "rate_ops_s": 100})
    run = driven([], wanted)
    done = drive([], wanted, verb="load", check=False)
    stats = cache.stats()
    assert_adds_up(run, wanted)
    assert errors(run, "get") == {}
    assert errors(run, "set") == {TOO_LARGE: begun(run, "set")}
    assert run.end["errors"][0]["message"] == "SERVER_ERROR object too large for cache"
    # It went on on the same connection.
    assert run.end["connections_lost"] == 0
    assert stats["curr_items"] == 0
    assert done.returncode == 6
    assert "0 of 2000 items are stored: cannot store the items " in done.stderr
    assert "SERVER_ERROR object too large for cache" in done.stderr


def test_no_memory_left() -> None:
    workload = {"keys": 20_000, "value_bytes": {"kind": "fixed", "bytes": 2000}, "get_share": 0.0}
    with another("-m", "4", "-M") as cache:
        done = drive([], spec(cache.address, workload=workload), verb="load", check=False)
        run = driven([], spec(cache.address, workload=workload))
    assert done.returncode == 6
    assert "SERVER_ERROR out of memory storing object" in done.stderr
    assert set(errors(run, "set")) == {OUT_OF_MEMORY}
    assert run.end["connections_lost"] == 0


def refused(address: str, *words: str, connections: int = 3) -> None:
    begin_s = time.monotonic()
    done = drive([], spec(address, connections=connections), check=False)
    assert time.monotonic() - begin_s < SLACK_S
    assert (done.returncode, done.stdout) == (6, "")
    for word in (f"headrace-agent: cannot connect to {address}: ", *words):
        assert word in done.stderr


def test_nobody_is_there() -> None:
    address = f"127.0.0.1:{free_port()}"
    refused(address, "Connection refused", f"(error {CANNOT_CONNECT})")
    for verb in ("load", "clean"):
        done = drive([], spec(address), verb=verb, check=False)
        assert done.returncode == 6
        assert f"cannot connect to {address}: Connection refused" in done.stderr


def test_no_room() -> None:
    # It limits its open files to this, and has some 25 of its own.
    with another("-c", "60") as cache:
        said = ("ERROR Too many open connections", f"(error {UNKNOWN_COMMAND})")
        refused(cache.address, *said, connections=70)
        few = spec(cache.address, connections=10, seconds=0.1)
        until(lambda: drive([], few, check=False).returncode == 0)


def test_a_login_is_wanted(folder: Path) -> None:
    accounts = folder / "accounts"
    accounts.write_text("someone:rosebud-7731\n")
    accounts.chmod(0o644)
    with another("-Y", str(accounts)) as cache:
        refused(cache.address, "CLIENT_ERROR unauthenticated", f"(error {INVALID_ARGUMENTS})")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"x" * 5000, b"STORED\r\n"])
def test_no_memcached(answer: bytes) -> None:
    def serve() -> None:
        with listener:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                # The driver may close before it has read all of the answer.
                with connection, suppress(ConnectionResetError):
                    connection.recv(100)
                    connection.sendall(answer)
                    connection.recv(100)

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, daemon=True).start()
    try:
        refused(f"127.0.0.1:{listener.getsockname()[1]}", "memcached sent ", f"(error {MALFORMED})")
    finally:
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        ({"address": "localhost"}, "address"),
        ({"get_share": 1.5}, "get_share = 1.5"),
        ({"key_bytes": {"min": 6, "max": 40}}, "2000 keys need 7 bytes"),
        ({"value_bytes": {"kind": "fixed", "bytes": 0}}, "value_bytes"),
        ({"distribution": {"kind": "pareto", "h": 2}}, "h = 2"),
        ({"port": 11211}, "unknown field `port`"),
    ],
)
@pytest.mark.parametrize("verb", ["load", "run", "clean"])
def test_bad_input(workload: dict[str, Any], reason: str, verb: str) -> None:
    done = drive([], spec("127.0.0.1:1", workload=workload), verb=verb, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert reason in done.stderr
