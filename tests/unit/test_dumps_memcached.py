"""What ``headrace collect`` writes of memcached servers becomes what a hunt on the host would have read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.host.facts import HostFacts
from headrace.hunt.dumps.kinds import memcached
from headrace.hunt.dumps.load import load
from headrace.hunt.dumps.piece import About, Numbered
from headrace.hunt.memcached import caches

START_S = 1_790_000_000


def answer(pid: int, gets: int, uptime: int = 900, ends: str = "END\n") -> str:
    rows = {
        "pid": pid, "uptime": uptime, "version": "1.6.18", "cmd_get": gets, "get_hits": gets // 2, "cmd_set": 0,
        "limit_maxbytes": 1 << 26, "max_connections": 1024,
    }  # fmt: skip
    stats = "".join(f"STAT {name} {value}\n" for name, value in rows.items())
    settings = "STAT maxconns 1024\nSTAT inter 127.0.0.1\n"
    return f"{stats}{ends}{settings}END\nSTAT items:3:number 5\nEND\nSTAT 3:chunk_size 152\nEND\n"


def reading(at_s: float, pid: int, said: str, address: str = "127.0.0.1:11211") -> str:
    return f"TS {START_S + at_s}\nmemcached {pid} {address}\n{said}"


def instances(text: str) -> list[dict[str, Any]]:
    [about] = [piece for piece in memcached.read(text) if isinstance(piece, About)]
    found: list[dict[str, Any]] = about.facts["memcached",]["instances"]
    return found


def test_two_readings_are_rates_of_the_server(tmp_path: Path) -> None:
    text = reading(0, 41, answer(41, 1000)) + reading(10.5, 41, answer(41, 22_000, 910))
    (tmp_path / "memcached.txt").write_text(text)
    snapshot = load(tmp_path)
    from headrace.host.window import Window

    [cache] = caches(HostFacts(snapshot.facts), Window(snapshot.samples))
    assert (cache.name, cache.version, cache.why) == ("127.0.0.1:11211", "1.6.18", "")
    assert cache.requests_s == pytest.approx(2000)
    assert cache.hit_rate == pytest.approx(0.5)
    assert cache.settings["maxconns"] == "1024"
    assert [each.number for each in cache.classes] == [3]


def test_servers_are_told_apart_by_their_address() -> None:
    text = "".join(
        reading(at_s, pid, answer(pid, 100 * at_s), address)
        for at_s in (1, 11)
        for pid, address in ((41, "127.0.0.1:11211"), (42, "/run/memcached/socket"))
    )
    assert [row["name"] for row in instances(text)] == ["127.0.0.1:11211", "/run/memcached/socket"]
    numbered = [piece for piece in memcached.read(text) if isinstance(piece, Numbered)]
    assert len([piece for piece in numbered if piece.sampler == "memcached"]) == 4


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("not asked: it has a network of its own\n", "it has a network of its own"),
        ("", "no answer within 3 s, or it hung up (TLS, SASL or the binary protocol alone)"),
        ("CLIENT_ERROR unauthenticated\n", "it answers 'CLIENT_ERROR unauthenticated'"),
        ("STAT pid 41\nSTAT uptime 9\n", "it answers 'STAT pid 41'"),
        (answer(77, 5), "process 77 answers at its address, another one"),
        (answer(41, 5, ends="ERROR\n"), "it answers 'STAT pid 41'"),
    ],
)
def test_one_that_was_not_read_says_why_and_has_no_number(said: str, why: str) -> None:
    text = reading(0, 41, said) + reading(5, 41, said)
    [row] = instances(text)
    assert row["why"] == why
    assert not [piece for piece in memcached.read(text) if isinstance(piece, Numbered)]


def test_one_that_was_restarted_has_no_rates() -> None:
    text = reading(0, 41, answer(41, 9000)) + reading(5, 41, answer(41, 10, uptime=2))
    [row] = instances(text)
    assert row["is_restarted"]
    assert len([p for p in memcached.read(text) if isinstance(p, Numbered) and p.sampler == "memcached"]) == 1


def test_one_that_ended_meanwhile_has_its_first_reading() -> None:
    [row] = instances(reading(0, 41, answer(41, 9000)))
    assert (row["version"], row["why"]) == ("1.6.18", None)


def test_other_texts_are_none_of_it() -> None:
    assert memcached.read("TS 1790000000\nethtool -S eth0\n") == []
    assert memcached.read(answer(41, 5)) == []
