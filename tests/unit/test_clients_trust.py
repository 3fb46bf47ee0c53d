"""What a source of clients' response times may send costs no other source, no other host and no page anything."""

from __future__ import annotations

import base64
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import DiskFull, HeadraceError, TargetError
from headrace.change.production import prometheus
from headrace.change.production.prometheus import Question, read
from headrace.history.archive.files import Archive
from headrace.history.archive.tables import CLIENTS
from headrace.history.collect import clients as collecting
from headrace.history.collect import readers
from headrace.history.collect.clients import Clients
from headrace.history.collect.readers import MOST_METRIC, Statsd
from headrace.history.collect.sources import Source
from tests.unit.test_clients import FLEET, HEAD, T0, collected, kept
from tests.unit.test_clients import clients as of_fleet
from tests.unit.test_verify_sources import asked, buckets, matrix, server
from tests.waiting import until_async


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "history")


@contextmanager
def answering(*pieces: bytes, every_s: float = 0.0) -> Iterator[str]:
    """Raw bytes to whoever asks; after the last one they come again and again if ``every_s`` is given."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            try:
                own, _ = listening.accept()
            except OSError:
                return
            with own:
                try:
                    own.recv(65536)
                    for piece in pieces:
                        own.sendall(piece)
                    while every_s and not ended.wait(every_s):
                        own.sendall(pieces[-1])
                except OSError:
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@pytest.mark.parametrize("le", ["NaN", "x", "", "-1", "0"])
def test_a_series_that_cannot_be_costs_no_other_host(le: str) -> None:
    good = buckets("db1", [0, 10], [0, 15], [0, 16])
    bad = [({"instance": "db2", "le": le}, [0, 1]), ({"le": "1"}, [0, 1])]
    found = asked(matrix(*good, *bad), minutes=1)
    assert [each.host for each in found.series] == ["db1"]
    said = " ".join(found.notes)
    assert "1 series left out: no bound le" in said
    assert "1 series left out: no label instance" in said


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("scheme", ["http", "ftp", "file"])
def test_an_answer_chooses_no_other_address(code: int, scheme: str) -> None:
    reached: list[Any] = []

    def secrets(words: dict[str, str]) -> bytes:
        reached.append(words)
        return matrix(*buckets("db1", [0, 10], [0, 15], [0, 16]))

    with server(secrets) as elsewhere:
        where = elsewhere.replace("http", scheme, 1).encode()
        reply = b"HTTP/1.1 %d Moved\r\nLocation: %s/x\r\nContent-Length: 0\r\n\r\n" % (code, where)
        with answering(reply) as url, pytest.raises(TargetError, match="not followed"):
            read(Question(url, "x", T0, T0 + 60))
    assert not reached


def test_a_header_that_trickles_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MOST_WAITS", 1)
    with answering(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", every_s=0.02) as url:
        started = time.monotonic()
        with pytest.raises(TargetError):
            read(Question(url, "x", T0, T0 + 60, timeout_s=0.3))
        assert time.monotonic() - started < 1.5


def test_a_source_that_is_slow_costs_no_other_its_minute(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "WAITED_S", 0.3)
    path = tmp_path / "times.csv"
    path.write_text(HEAD)
    with answering(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", every_s=0.05) as url:
        found = of_fleet(archive, Source(prometheus=url, query="x"), Source(csv=path))
        collected(found, 0)
        with path.open("a") as file:
            file.write(f"{T0},60,db1,a,1,5\n")
        started = time.monotonic()
        assert "still waited for" in collected(found, 1)
        assert time.monotonic() - started < 2
    assert (0, "a", 1.0, 5) in kept(archive)


def test_what_a_source_says_at_length_hides_no_other(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text(HEAD)
    found = of_fleet(archive, Source(csv=path), Source(csv=tmp_path / "none"))
    collected(found, 0)
    with path.open("a") as file:
        file.writelines(f"{T0},60,{'n' * 900}{i},a,1,5\n" for i in range(50))
    assert "none: cannot be read" in collected(found, 1)


@pytest.mark.parametrize("jump_s", [3650 * 86400, 3600, -3600])
def test_after_a_jump_of_the_clock_there_and_back_timers_are_kept(jump_s: int) -> None:
    timers = Statsd(Source(statsd="127.0.0.1:0", pattern="{host}"), FLEET)
    given = []
    for off_by, minute in [(0, 0), (jump_s, 1), (0, 2), (0, 3), (0, 4)]:
        at = T0 + 60 * minute + off_by
        timers.line("db1:2|ms", at)
        given.append([t_s for _, t_s in timers.take(at + 60)])
    assert given == [[T0], [T0 + 60 + jump_s], [T0 + 120], [T0 + 180], [T0 + 240]]
    timers.line("db1:2|ms", T0 + 120)
    assert timers.take(T0 + 360) == {}
    assert "came twice" in timers.notes()[0]


def test_after_a_jump_of_the_clock_prometheus_is_asked_again(archive: Archive) -> None:
    asked_for: list[float] = []

    def answer(words: dict[str, str]) -> bytes:
        first = int(float(words["start"]))
        asked_for.append(first)
        return matrix(*buckets("db1", [0, 10], [0, 15], [0, 16]), first=first)

    with server(answer) as url:
        found = of_fleet(archive, Source(prometheus=url, query="x"))
        for minute in (1, 60 * 24 * 3650, 2, 3):
            assert "less than" not in collected(found, minute)
    assert asked_for[-2:] == [T0 + 60, T0 + 120]
    assert [minute for minute, *_ in kept(archive)].count(1) == 4
    assert {minute for minute, *_ in kept(archive)} >= {0, 1, 2}


def test_strangers_fill_neither_the_memory_nor_the_room_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MOST_WAITING", 10_000)
    timers = Statsd(Source(statsd="127.0.0.1:0", pattern="app.{host}.{class}"), FLEET)
    for i in range(3000):
        timers.line(f"app.stranger{i}.a:2|ms", T0)
    assert not timers._calls
    timers.line("app.db1.a:2|ms", T0)
    for i in range(3000):
        timers.line(f"app.db2.{'x' * 100}{i}:2|ms", T0)
    assert timers._size <= 10_000
    timers.line("app.db1.a:2|ms", T0)
    found = timers.take(T0 + 60)
    assert sum(found["db1", T0].values()) == 2
    assert timers._size == 0
    said = " ".join(timers.notes())
    assert "more than there is room for" in said
    assert "no host of this fleet: stranger0, stranger1, stranger2 and 997 more" in said


def test_a_name_takes_no_time_whatever_the_pattern() -> None:
    timers = Statsd(Source(statsd="127.0.0.1:0", pattern="*{host}*{class}*.x"), FLEET)
    started = time.perf_counter()
    timers.line(f"{'a' * 60_000}:2|ms", T0)
    assert time.perf_counter() - started < 0.5
    assert timers.notes() == [f"1 line left out: a name of more than {MOST_METRIC} characters"]


async def test_a_flood_leaves_others_their_turn_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MOST_IN_SLICE", 50)
    timers = Statsd(Source(statsd="127.0.0.1:0", pattern="{host}"), FLEET)
    await timers.listen()
    assert timers._socket is not None
    place = timers._socket.getsockname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(3000):
            sender.sendto(b"db1:2|ms", place)
        started = time.monotonic()
        await until_async(lambda: sum(sum(own.values()) for own in timers._calls.values()) >= 100)
        assert time.monotonic() - started >= 0.1
        sender.sendto(b"db1:2|ms\n" * 1000, place)
        await until_async(lambda: timers._dropped and "one datagram" in " ".join(timers.wrong))
    assert any("lost: more came than" in each for each in timers.notes())
    timers.close()


@pytest.mark.parametrize("place", ["127.0.0.1:99999", "no such host:1", ":x"])
async def test_a_port_that_cannot_be_ends_no_other_source(archive: Archive, place: str) -> None:
    try:
        source = Source(statsd=place, pattern="{host}")
    except ValueError:
        return
    with pytest.raises(HeadraceError):
        await Statsd(source, FLEET).listen()


def _times(tmp_path: Path, archive: Archive) -> Clients:
    path = tmp_path / "times.csv"
    path.write_text(HEAD)
    found = of_fleet(archive, Source(csv=path))
    collected(found, 0)
    with path.open("a") as file:
        file.write(f"{T0},60,db1,a,1,5\n{T0},60,db2,a,1,7\n")
    return found


def test_what_a_full_disk_kept_out_is_written_once_there_is_room(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _times(tmp_path, archive)
    write: Callable[..., Any] = archive.write

    def full(*_: Any) -> None:
        raise DiskFull("no space left", place="history")

    monkeypatch.setattr(archive, "write", full)
    assert "2 minutes of hosts not written yet" in collected(found, 1, 2)
    monkeypatch.setattr(archive, "write", write)
    assert collected(found, 3) == ""
    assert kept(archive) == [(0, "", 0, 0), (0, "a", 1.0, 5)]
    assert kept(archive, "db2") == [(0, "", 0, 0), (0, "a", 1.0, 7)]


def test_a_damaged_minute_of_a_host_costs_no_other_host(archive: Archive, tmp_path: Path) -> None:
    found = _times(tmp_path, archive)
    damaged = archive.path(CLIENTS.name, "db1", "m", T0)
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"PAR1")
    assert "not written yet" in collected(found, 1)
    assert kept(archive, "db2") == [(0, "", 0, 0), (0, "a", 1.0, 7)]


def test_lines_that_take_long_are_left_out_and_said(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of an interval log of a kilobyte may be a million buckets."""
    path = tmp_path / "app.hlog"
    path.write_text("")
    found = of_fleet(archive, Source(hdr=path, host="db1", unit="ns"))
    collected(found, 0)
    counts = b"\x02" * 300_000
    content = struct.pack(">iiiiqqd", 0x1C849303, len(counts), 0, 5, 1, 1 << 40, 1.0) + counts
    packed = zlib.compress(content, 9)
    line = base64.b64encode(struct.pack(">ii", 0x1C849304, len(packed)) + packed).decode()
    assert len(line) < 4096
    with path.open("a") as file:
        file.write(f"{T0 + 60},1.0,1,{line}\n")
    assert "more buckets than any has" in collected(found, 2)
    monkeypatch.setattr(readers, "MOST_READ_S", 0.0)
    with path.open("a") as file:
        file.write("x\n" * 1000)
    assert "lines left out: more than 0 s of reading" in collected(found, 3)
