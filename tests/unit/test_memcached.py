"""How memcached servers are found and asked: their options, their answers, and what becomes of both."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headrace.base.model import Facts
from headrace.base.received import parsed
from headrace.history.collect.minute import metric_rows
from headrace.host.facts import HostFacts
from headrace.host.memcached import ask, watching
from headrace.host.memcached.options import Started, started
from headrace.host.samples import Samples
from headrace.host.snapshot import Snapshot, load, save
from headrace.host.target import Completed
from headrace.host.window import Window
from headrace.hunt import hunt
from headrace.hunt.memcached import caches
from headrace.hunt.recent import Ring
from headrace.hunt.report.page import page_of
from headrace.show import html, jsonform, terminal
from tests.rules.caches import NAME, PID, cached

TLS = "it speaks TLS alone (-Z), which is not read"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", Started(("127.0.0.1:11211",))),
        ("-d -p 11300 -m 64", Started(("127.0.0.1:11300",))),
        ("-vvp11300 -l 10.0.0.5", Started(("10.0.0.5:11300",))),
        ("--port=11300 --listen ::1", Started(("[::1]:11300",))),
        ("-l 10.0.0.5:11300,[fd00::1]:11301", Started(("10.0.0.5:11300", "[fd00::1]:11301"))),
        ("-l 0.0.0.0 -l 10.0.0.5", Started(("127.0.0.1:11211", "10.0.0.5:11211"))),
        ("-s /run/m.sock -a 700", Started(("/run/m.sock",))),
        ("-p 0", Started(())),
        ("-p -1", Started(())),
        ("-Z -o ssl_key=/k", Started(("127.0.0.1:11211",), TLS)),
        ("-Z -l 10.0.0.5,notls:127.0.0.1:11300", Started(("127.0.0.1:11300",))),
        ("-S", Started(("127.0.0.1:11211",), "it demands a login by SASL (-S), which is not read")),
        ("-Y /auth", Started(("127.0.0.1:11211",), "it demands a login (-Y), which is not read")),
        (
            "-B binary",
            Started(
                ("127.0.0.1:11211",), "it speaks the binary protocol alone (-B binary), which is not read"
            ),
        ),
        ("-B ascii -o no_lru_crawler,hashpower=20 --memory-limit 64", Started(("127.0.0.1:11211",))),
        # A value that looks like an option.
        ("-D - -u nobody -P /p -k", Started(("127.0.0.1:11211",))),
    ],
)
def test_what_a_process_was_started_with(options: str, expected: Started) -> None:
    assert started(["/usr/bin/memcached", *options.split()]) == expected


@pytest.mark.parametrize(
    ("text", "family", "expected"),
    [
        ("0100007F:2BCB", socket.AF_INET, "127.0.0.1:11211"),
        ("00000000:2BCB", socket.AF_INET, "127.0.0.1:11211"),
        ("0500000A:0050", socket.AF_INET, "10.0.0.5:80"),
        ("00000000000000000000000000000000:2BCB", socket.AF_INET6, "[::1]:11211"),
        ("00000000000000000000000001000000:2BCB", socket.AF_INET6, "[::1]:11211"),
    ],
)
@pytest.mark.skipif(sys.byteorder == "big", reason="the kernel writes these as it holds them")
def test_an_address_as_the_kernel_writes_it(text: str, family: int, expected: str) -> None:
    assert ask.of_kernel(text, family) == expected


class Server:
    """Answers each command with what it is given, or hangs up."""

    def __init__(self, answers: Mapping[str, bytes | None]) -> None:
        self.answers = answers
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.asked: list[str] = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        with contextlib.suppress(ConnectionError), self.listener.accept()[0] as connection:
            for line in connection.makefile("r", newline="\r\n"):
                self.asked.append(line.strip())
                found = self.answers.get(line.strip(), b"END\r\n")
                if found is None:
                    return
                connection.sendall(found)


def stats(**values: object) -> bytes:
    rows = {"pid": os.getpid(), "version": "1.6.18", "curr_connections": 3, **values}
    return "".join(f"STAT {name} {value}\r\n" for name, value in rows.items()).encode() + b"END\r\n"


def answered(answers: Mapping[str, bytes | None], **more: Any) -> tuple[dict[str, Any], list[str]]:
    server = Server(answers)
    request = {
        "pid": os.getpid(),
        "addresses": [server.address],
        "is_known": True,
        "with_connections": False,
    } | more
    return ask.answer(request), server.asked


CONNECTIONS = (
    b"STAT 15:addr tcp:0.0.0.0:11211\r\nSTAT 15:state conn_listening\r\nSTAT 15:secs_since_last_cmd 9999\r\n"
    b"STAT 16:addr tcp:10.0.0.9:40000\r\nSTAT 16:state conn_read\r\nSTAT 16:secs_since_last_cmd 70\r\n"
    b"STAT 17:addr tcp6:[fd00::1]:40000\r\nSTAT 17:state conn_read\r\nSTAT 17:secs_since_last_cmd 5\r\nEND\r\n"
)


def test_a_server_is_asked_for_its_statistics_and_nothing_else() -> None:
    found, asked = answered({"stats": stats(), "stats conns": CONNECTIONS}, with_connections=True)
    assert asked == ["stats", "stats settings", "stats items", "stats slabs", "stats conns"]
    assert found["replies"]["stats"]["version"] == "1.6.18"
    assert found["replies"]["connections"] == {
        "states": {"conn_read": 2},
        "peers": {"10.0.0.9": 1, "[fd00::1]": 1},
        "longest_idle_s": 70,
    }


def test_many_connections_are_not_listed() -> None:
    _, asked = answered({"stats": stats(curr_connections=2001)}, with_connections=True)
    assert "stats conns" not in asked


def test_an_older_version_that_knows_no_such_statistics_is_read_without() -> None:
    found, _ = answered({"stats": stats(), "stats conns": b"ERROR\r\n"}, with_connections=True)
    assert found["replies"]["connections"] is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            None,
            "it hangs up without an answer (TLS, SASL or the binary protocol alone, or it has no buffer left)",
        ),
        (b"ERROR Too many open connections\r\n", "it refuses connections: too many are open"),
        (b"CLIENT_ERROR unauthenticated\r\n", "it answers 'CLIENT_ERROR unauthenticated'"),
        (b"ERROR\r\n", "it does not answer as memcached does"),
        (b"END\r\n", "it does not answer as memcached does"),
        (b"+OK\r\n", "no answer within 0 s"),
        (stats(pid=1), "process 1 answers at "),
        (b"STAT a " + b"x" * (1 << 17), "is larger than 0 MiB"),
    ],
)
def test_why_a_server_was_not_read(answer: bytes | None, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "LIMIT_S", 0.3)
    monkeypatch.setattr(ask, "MOST_BYTES", 1 << 16)
    assert why in answered({"stats": answer})[0]["error"]


def test_one_that_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        address = f"127.0.0.1:{one.getsockname()[1]}"
    request = {"pid": os.getpid(), "addresses": [address], "is_known": True, "with_connections": False}
    assert ask.answer(request)["error"] == "Connection refused"


def test_addresses_that_a_process_claims_are_not_believed() -> None:
    """Whoever names a process memcached could have us connect to anything."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        request = {
            "pid": child.pid,
            "addresses": [f"127.0.0.1:{one.getsockname()[1]}"],
            "is_known": False,
            "with_connections": False,
        }
        assert ask.answer(request)["error"] == "it listens on no TCP port and no Unix socket"
        child.communicate()


def test_the_script_runs_by_itself_and_waits_for_nobody(tmp_path: Path) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    fine = Server({"stats": stats(pid=os.getpid())})
    port = silent.getsockname()[1]
    asked = [
        {"pid": os.getpid(), "addresses": [each], "is_known": True, "with_connections": False}
        for each in (f"127.0.0.1:{port}", fine.address)
    ]
    script = Path(ask.__file__).read_text().replace("LIMIT_S = 3.0", "LIMIT_S = 0.2")
    done = subprocess.run(
        [sys.executable, "-I", "-c", script],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    slow, quick = json.loads(done.stdout)
    assert slow["error"].startswith("no answer within")
    assert quick["replies"]["stats"]["version"] == "1.6.18"
    silent.close()


class Host:
    """A target whose commands are answered by what is next in a list."""

    name = "db1"

    def __init__(self, *outputs: str | int) -> None:
        self.outputs = list(outputs)
        self.ran: list[Sequence[str]] = []

    async def run(self, argv: Sequence[str], **_: Any) -> Completed:
        self.ran.append(argv)
        found = self.outputs.pop(0)
        is_code = isinstance(found, int)
        text = b"nsenter: not permitted" if is_code else str(found).encode()
        return Completed(tuple(argv), int(found) if is_code else 0, b"" if is_code else text, text)


class Agent:
    def __init__(self, target: Host, servers: Sequence[Mapping[str, Any]]) -> None:
        self.target, self.servers = target, servers

    async def facts(self) -> Facts:
        return Facts("", {"servers": self.servers})


FOUND = "12/comm:memcached\n13/comm:redis-server\n"
ROW = {"pid": 12, "program": "memcached", "command_line": ["memcached"], "sockets": [], "namespaces": []}


def reply(uptime: int, gets: int, address: str = "127.0.0.1:11211") -> str:
    replies = {
        "t_ns": uptime * 10**9,
        "stats": {"pid": "12", "uptime": str(uptime), "cmd_get": str(gets), "version": "1.6.18"},
        "settings": {"maxconns": "1024"},
        "items": {"items:5:evicted": str(gets)},
        "slabs": {"5:chunk_size": "240", "active_slabs": "1"},
    }
    return json.dumps([{"pid": 12, "address": address, "replies": replies}])


def watched(host: Host, *servers: Mapping[str, Any]) -> watching.Seen:
    async def work() -> watching.Seen:
        begun = await watching.begin(Agent(host, servers or (ROW,)))  # type: ignore[arg-type]
        assert begun is not None
        return await begun.end()

    return asyncio.run(work())


def read(seen: watching.Seen) -> list[Any]:
    facts = HostFacts(Facts("", {"memcached": dict(seen.facts), "servers": [ROW]}))
    return list(caches(facts, Window(Samples.of_records(seen.records))))


def test_two_readings_are_rates() -> None:
    (cache,) = read(watched(Host(FOUND, reply(100, 1000), reply(110, 1500))))
    assert cache.name == "127.0.0.1:11211"
    assert cache.rate("cmd_get") == 50.0
    assert cache.last("cmd_get") == 1500
    (slab,) = cache.classes
    assert (slab.number, slab.rate("evicted"), slab.last("chunk_size")) == (5, 50.0, 240)


def test_one_that_was_restarted_has_no_rates() -> None:
    (cache,) = read(watched(Host(FOUND, reply(100, 1000), reply(3, 1500))))
    assert cache.is_restarted
    assert cache.rate("cmd_get") is None
    assert cache.last("cmd_get") == 1500


def test_one_that_stops_to_answer_keeps_what_it_said() -> None:
    late = json.dumps([{"pid": 12, "address": "127.0.0.1:11211", "error": "no answer within 3 s"}])
    (cache,) = read(watched(Host(FOUND, reply(100, 1000), late)))
    assert cache.is_read
    assert cache.why == "no answer within 3 s"
    assert cache.version == "1.6.18"
    assert cache.rate("cmd_get") is None


@pytest.mark.parametrize(
    ("output", "namespaces", "why"),
    [
        (127, [], "this host has no python3, by which it is read"),
        (1, ["net"], "it has a network of its own, which only root may enter: nsenter: not permitted"),
        ("[", [], "asking it failed: not JSON"),
        ("[{}]", [], "asking it failed"),
    ],
)
def test_a_host_that_cannot_ask(output: str | int, namespaces: list[str], why: str) -> None:
    seen = watched(Host(FOUND, output, output), {**ROW, "namespaces": namespaces})
    (row,) = seen.facts["instances"]
    assert row["why"].startswith(why)
    assert not seen.records


def test_a_network_of_its_own_is_entered() -> None:
    host = Host(FOUND, reply(1, 1), reply(2, 2))
    watched(host, {**ROW, "namespaces": ["net", "mnt"]})
    assert list(host.ran[1][:5]) == ["nsenter", "-t", "12", "-n", "--"]


def test_two_at_one_address_are_told_apart() -> None:
    """In networks of their own both listen on 11211."""
    other = {**ROW, "pid": 14, "namespaces": ["net"]}
    second = reply(1, 1).replace('"pid": 12', '"pid": 14')
    seen = watched(Host(FOUND, reply(1, 1), second, reply(2, 2), second), ROW, other)
    names = [row["name"] for row in seen.facts["instances"]]
    assert names == ["127.0.0.1:11211 (pid 12)", "127.0.0.1:11211 (pid 14)"]


def test_a_host_without_them_is_asked_nothing() -> None:
    host = Host("")
    assert asyncio.run(watching.begin(Agent(host, ()))) is None  # type: ignore[arg-type]
    assert len(host.ran) == 1


LATE = json.dumps([{"pid": 12, "address": "127.0.0.1:11211", "error": "no answer within 3 s"}])


def followed(*outputs: str | int) -> tuple[Host, list[watching.Seen]]:
    """As many looks as there are answers that are no list of processes."""
    host = Host(*outputs)
    rounds = watching.Rounds(Agent(host, (ROW,)))  # type: ignore[arg-type]
    return host, [asyncio.run(rounds.ask()) for each in outputs if not str(each).startswith("12/")]


def test_a_host_that_is_followed_is_searched_once_and_asked_again_and_again() -> None:
    host, seen = followed(FOUND, reply(100, 1000), reply(105, 1500))
    assert len(host.ran) == 3
    assert [len(each.records) for each in seen] == [2, 2]
    ring = Ring()
    for record in (record for each in seen for record in each.records):
        ring.add(record)
    facts = HostFacts(Facts("", {"memcached": dict(seen[-1].facts), "servers": [ROW]}))
    (cache,) = caches(facts, ring.window(10))
    assert cache.rate("cmd_get") == 100.0
    assert not cache.is_restarted


def test_one_that_stops_to_answer_is_said_and_looked_for_anew() -> None:
    host, seen = followed(FOUND, reply(100, 1000), LATE, FOUND, reply(3, 5))
    whys = [each.facts["instances"][0]["why"] for each in seen]
    assert whys == [None, "no answer within 3 s", None]
    assert [each.facts["instances"][0]["is_restarted"] for each in seen] == [False, False, True]
    assert sum("grep" in " ".join(argv) for argv in host.ran) == 2


def test_a_slow_one_does_not_move_the_times_of_the_others() -> None:
    other = {**ROW, "pid": 14}
    pair = json.loads(reply(100, 1)), json.loads(reply(103, 7, "127.0.0.1:11212").replace("12,", "14,"))
    rounds = watching.Rounds(Agent(Host(FOUND, json.dumps([*pair[0], *pair[1]])), (ROW, other)))  # type: ignore[arg-type]
    of_servers, _ = asyncio.run(rounds.ask()).records
    assert of_servers["t_ns"] == 100 * 10**9
    assert of_servers["values"]["cmd_get"] == {"127.0.0.1:11211": 1.0, "127.0.0.1:11212": 7.0}


def test_a_minute_of_the_history_has_them_and_no_hit_rate_without_gets() -> None:
    def kept(gets: int) -> dict[str, float]:
        _, seen = followed(FOUND, reply(100, 1000), reply(110, 1000 + gets))
        facts = HostFacts(Facts("", {"memcached": dict(seen[-1].facts), "servers": []}))
        window = Window(Samples.of_records([record for each in seen for record in each.records]))
        rows = metric_rows(window, facts)
        return {row["metric"]: row["sum"] for row in rows if row["label"] == "127.0.0.1:11211"}

    assert kept(500)["memcached gets"] == 50.0
    assert "memcached hits" not in kept(0)


def snapshot(**changes: Any) -> Snapshot:
    evidence = cached(**changes)()
    window = evidence.window
    return Snapshot(
        "db1", "2026-01-31T12:00:00+00:00", 60.0, Facts("", evidence.raw), window.samples, window.errors
    )


OTHERS = ({"program": "valkey-server", "pid": 99},)


def test_the_page_has_each_and_what_is_not_covered(tmp_path: Path) -> None:
    path = tmp_path / "a.hunt"
    save(snapshot(rates={"rejected_connections": 5.0}, others=OTHERS), path)
    page = page_of(hunt.examine(load(path)))
    found = jsonform.render(page)
    (server,) = found["memcached"]["servers"]
    assert (server["name"], server["pid"], server["hit_rate"]) == (NAME, PID, pytest.approx(0.96))
    assert server["requests_s"] == pytest.approx(5220)
    assert found["memcached"]["not_covered"] == list(OTHERS)
    assert found["causes"][0] == f"MEMC20@{NAME}"
    assert found["verdict"].startswith(f"{NAME} has 300 of 4,075 connections open; 300 were refused")
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(terminal.render(page))
    text = console.export_text()
    assert "1 other store not examined: headrace does not cover valkey-server (pid 99)." in text
    assert "614 MiB of 1 GiB" in text
    assert "memcached 1.6.18" in html.render(page)


def test_a_cost_is_in_the_sentence_though_nothing_is_saturated() -> None:
    found = hunt.examine(snapshot(rates={"cmd_flush": 0.1})).verdict
    assert (
        f"What memcached costs: {NAME} was flushed 6 times in the window (MEMC14@{NAME})." in found.sentence
    )


def test_a_healthy_one_has_no_findings() -> None:
    found = hunt.examine(snapshot()).judgement.findings
    assert [each.id for each in found if each.rule.area == "MEMC"] == []


def test_a_flood_of_one_server_leaves_the_others_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    flood = b"".join(b"STAT a%d b\r\n" % i for i in range(ask.MOST_ROWS + 1)) + b"END\r\n"
    found, _ = answered({"stats": stats(), "stats items": flood})
    assert "more than 20000 lines" in found["error"]
    digits = CONNECTIONS.replace(b"secs_since_last_cmd 70", b"secs_since_last_cmd " + b"9" * 4000)
    found, _ = answered({"stats": stats(), "stats conns": digits}, with_connections=True)
    assert parsed(json.dumps(found))["replies"]["connections"]["longest_idle_s"] < 1e12
    monkeypatch.setattr(ask, "MOST_TOTAL", 2000)
    own = {"pid": 1, "address": "a", "replies": {"stats": {"x": "y"}}}
    huge = {"pid": 2, "address": "b", "replies": {"stats": {"x": "y" * 5000}}}
    first, second = map(json.loads, ask.together([own, huge]))
    assert first == own
    assert second == {
        "pid": 2,
        "address": "b",
        "error": "its answer leaves no room for those of other servers",
    }


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999", "1e30", "x", ""])
def test_what_is_no_number_of_a_counter_is_none(value: str) -> None:
    replies = {"t_ns": 1, "stats": {"uptime": value, "cmd_get": value}}
    [of_server, _] = watching._records("a", replies)
    assert of_server["values"] == {}
    assert watching._uptime(replies) == 0.0
