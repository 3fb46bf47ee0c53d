"""The collector: minutes from samples, a lost host, a full disk, a clock that goes back, sums since the last look,
the journal."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import platform
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.base.errors import DiskFull
from headrace.base.model import Facts, ServerLogin
from headrace.capacity import used
from headrace.fleet.host import Host
from headrace.history import questions
from headrace.history.archive.files import HOUR_S, MINUTE_S, Archive
from headrace.history.archive.reader import Range, Reader
from headrace.history.archive.tables import PROCESS_LIST
from headrace.history.collect import bounds, minute, slow_log
from headrace.history.collect.collector import Collector, journal_changes, journal_rows
from headrace.host.activity import summed
from headrace.host.target import TargetSpec
from headrace.hunt.live import Link
from headrace.hunt.recent import LiveWindow, Ring
from headrace.hunt.rules import all_rules, judge
from headrace.hunt.sessions import of_activity
from headrace.web.lean import ARENAS
from tests.history import SLOW, query
from tests.rules.hosts import unwell
from tests.rules.network_cases import ONE_HOT_CORE

pytestmark = pytest.mark.usefixtures("quick_disk")

#: A day ago: what is older than `Keep` says is removed by the clock of this machine.
T_S = int(time.time()) // HOUR_S * HOUR_S - 24 * HOUR_S
CLASS: dict[str, Any] = {
    "type": "class", "id": "c1", "fingerprint": "select ?", "tables": ["t"], "count": 3, "timed": 3,
    "response_sum_ns": 30, "response_max_ns": 20, "failed": 1, "unjudged": 0, "buckets": [[5, 2], [9, 1]],
    "lock_ns": None, "rows_examined": {"known": 3, "sum": 12, "max": 6}, "databases": [["shop", 3, 30, 1]],
}  # fmt: skip
STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def collector(tmp_path: Path) -> Collector:
    archive = Archive(tmp_path / "history")
    archive.create()
    return Collector(archive, [Host("db1", TargetSpec("local"))])


def line(sampler: str, at_s: float, values: dict[str, dict[str, float]]) -> dict[str, Any]:
    return {"t_ns": round(at_s * 1e9), "sampler": sampler, "ok": True, "cost_ns": 1, "values": values}


def cpu(at_s: float, user: float, idle: float) -> dict[str, Any]:
    values = {state: dict.fromkeys(("all", "cpu0", "cpu1"), 0.0) for state in STATES}
    for name in ("all", "cpu0", "cpu1"):
        values["user"][name], values["idle"][name] = user, idle
    return line("cpu", at_s, values)


def sampled(found: Collector) -> None:
    """A minute in which the CPUs were busy three quarters of the time."""
    feed = found.hosts["db1"].feed
    for i in range(61):
        feed.ring.add(cpu(T_S + i, 75.0 * i, 25.0 * i))
    feed.facts, feed.link, feed.heard_at = Facts("a", {}), Link.LIVE, time.monotonic()


def span(t_s: int = T_S) -> Range:
    return Range(t_s, t_s + HOUR_S)


async def test_a_minute_is_written(tmp_path: Path) -> None:
    found = collector(tmp_path)
    sampled(found)
    await found.write(T_S)
    assert found.problem == ""
    reader = Reader(found.archive)
    [state] = questions.states(reader, ["db1"], span())
    assert (state["state"], state["minutes"], state["sampled_s"]) == ("ok", 1, 60.0)
    [chart] = [line for line in questions.chart(reader, "db1", "cpu", span()).lines if line.label == "busy"]
    assert chart.mean[0] == pytest.approx(0.75)
    [demand] = [
        line for line in questions.chart(reader, "db1", "demand", span()).lines if line.label == "cpu"
    ]
    [cores] = [line for line in questions.chart(reader, "db1", "limit", span()).lines if line.label == "cpu"]
    assert demand.mean[0] == pytest.approx(0.75 * (cores.mean[0] or 0))
    uses = {row["resource"]: row for row in questions.resources(reader, "db1", span())}
    assert uses["cpu"]["busy"] == 1
    assert uses["block"]["unknown"] == 1  # it was not sampled: unknown, not idle


async def test_a_lost_host_is_a_gap_with_its_reason(tmp_path: Path) -> None:
    found = collector(tmp_path)
    sampled(found)
    await found.write(T_S)
    feed = found.hosts["db1"].feed
    feed.link, feed.problem = Link.LOST, "connection refused"
    await found.write(T_S + MINUTE_S)
    reader = Reader(found.archive)
    states = {row["state"]: row["minutes"] for row in questions.states(reader, ["db1"], span())}
    assert states == {"ok": 1, "lost": 1}
    assert questions.last_states(reader, ["db1"], span())["db1"]["problem"] == "connection refused"
    [chart] = [line for line in questions.chart(reader, "db1", "cpu", span()).lines if line.label == "busy"]
    assert chart.mean[1] is None


async def test_a_stream_that_stalls_is_lost_though_its_connection_lives(tmp_path: Path) -> None:
    found = collector(tmp_path)
    sampled(found)
    found.hosts["db1"].feed.heard_at = time.monotonic() - 60
    await found.write(T_S)
    assert [row["state"] for row in questions.states(Reader(found.archive), ["db1"], span())] == ["lost"]


async def test_a_full_disk_is_said_and_the_next_minute_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = collector(tmp_path)
    sampled(found)

    def full(*_: object) -> None:
        raise DiskFull("no room for the history")

    with monkeypatch.context() as patch:
        patch.setattr(found.archive, "write", full)
        await found.write(T_S)
        sampled(found)
        await found.write(T_S + MINUTE_S)
    assert "no room" in found.problem
    # Whoever looks at the log alone sees it, and not each minute anew.
    assert [record.message for record in caplog.records] == ["nothing is collected: no room for the history"]
    await found.write(T_S + 2 * MINUTE_S)
    assert found.problem == ""
    assert len(found.archive.files("states")) == 1


async def test_a_host_that_cannot_be_written_costs_the_others_nothing(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "history")
    archive.create()
    found = Collector(archive, [Host(name, TargetSpec("local")) for name in ("db1", "db2")])
    in_the_way = archive.path("states", "db1", "m", T_S).parent
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file where the host's folder belongs")
    await found.write(T_S)
    assert "nothing is collected of db1: " in found.problem
    assert [file.path.parent.name for file in archive.files("states")] == ["host=db2"]
    in_the_way.unlink()
    await found.write(T_S + MINUTE_S)
    assert found.problem == ""
    assert len(archive.files("states", "db1")) == 1
    assert len(archive.files("states", "db2")) == 2


async def test_a_clock_that_goes_back_writes_no_minute_twice(tmp_path: Path) -> None:
    found = collector(tmp_path)
    sampled(found)
    for t_s in (T_S, T_S + MINUTE_S, T_S, T_S - HOUR_S, T_S + MINUTE_S):
        await found.write(t_s)
    # A minute that nobody wrote is written, whatever came before it.
    assert [file.t_s for file in found.archive.files("states")] == [T_S - HOUR_S, T_S, T_S + MINUTE_S]
    assert "is not collected: the history has it already" in found.attention
    # Nor after a restart.
    again = Collector(found.archive, [Host("db1", TargetSpec("local"))])
    sampled(again)
    await again.write(T_S)
    [state] = questions.states(Reader(found.archive), ["db1"], span())
    assert state["minutes"] == 2


async def test_what_a_clock_that_goes_back_leaves_out_is_not_in_the_next_minute(tmp_path: Path) -> None:
    found = collector(tmp_path)
    pending = found.hosts["db1"].pending
    for number, t_s in enumerate((T_S, T_S - HOUR_S, T_S + MINUTE_S)):
        pending.setdefault("classes", []).append(query("a", 10**number, 1e6))
        pending.setdefault("changes", []).extend(minute.change_rows([{"what": str(number), "at_s": T_S}]))
        await found.write(t_s)
    assert not pending
    [total] = questions.class_totals(Reader(found.archive), ["db1"], span(), SLOW)
    assert total["calls"] == 1 + 100
    assert {row["what"] for row in questions.changes(Reader(found.archive), ["db1"], span())} == set("012")


async def test_what_changed_is_kept(tmp_path: Path) -> None:
    found = collector(tmp_path)
    sampled(found)
    feed = found.hosts["db1"].feed
    feed.facts = Facts("a", {"sysctls": {"vm.swappiness": "60"}})
    await found.write(T_S)
    feed.facts = Facts("b", {"sysctls": {"vm.swappiness": "1"}})
    await found.write(T_S + MINUTE_S)
    now = Range(time.time() - HOUR_S, time.time() + 5)
    files = found.archive.files("changes")
    assert [file.t_s for file in files] == [T_S + MINUTE_S]
    rows = Reader(found.archive).rows("changes", "SELECT * FROM rows", "db1", span())
    assert "vm.swappiness" in rows[0]["what"]
    assert now.since_s <= rows[0]["at_s"] <= now.until_s


def test_the_journal_says_what_was_applied_confirmed_and_rolled_back() -> None:
    applied = {"kind": "applied", "what": "x", "before": "1", "after": "2", "who": "apply/7", "at_s": 5.0}
    confirmed = {**applied, "kind": "confirmed", "at_s": 9.0}
    assert journal_changes({}, {"open": applied}) == [applied]
    assert journal_changes({"open": applied}, {"open": applied}) == []
    assert journal_changes({"open": applied}, {"kept": confirmed}) == [confirmed]
    [back] = journal_changes({"open": applied}, {})
    assert (back["kind"], back["before"], back["after"]) == ("rolled back", "2", "1")


def test_arrow_does_not_import_pandas() -> None:
    """In a process of its own: Arrow asks once."""
    pytest.importorskip("pandas")
    script = (
        "import sys; from headrace.base.arrow import without_pandas; from headrace.history.collect import minute;"
        "from headrace.history.archive.tables import STATES; without_pandas();"
        "rows = minute.table_of(STATES, [minute.lost_row('gone')], 60);"
        "assert rows.to_pylist()[0]['problem'] == 'gone';"
        "assert 'pandas' not in sys.modules; import pandas; pandas.Series([1])"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


#: Eight threads that hold memory at the same time; then the C library tells its arenas as XML.
ARENAS_OF_THREADS = """
import ctypes, threading
from headrace.web.lean import few_arenas
few_arenas()
libc, together = ctypes.CDLL(None), threading.Barrier(8)

def work():
    for _ in range(100):
        libc.malloc(10_000)
    together.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
def test_threads_share_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ARENAS_OF_THREADS], check=True, capture_output=True, text=True
    )
    assert done.stdout.count("<heap nr=") == ARENAS


async def test_a_minutes_window_is_not_kept(tmp_path: Path) -> None:
    """With its numbers and times it is larger than the samples that it is made of, and there is one per host."""

    def windows() -> list[LiveWindow]:
        gc.collect()
        return [each for each in gc.get_objects() if isinstance(each, LiveWindow)]

    # Those of other tests, and the empty one of `top`.
    before = windows()
    found = collector(tmp_path)
    sampled(found)
    await found.write(T_S)
    assert found.hosts["db1"].verdict is not None
    assert [each for each in windows() if not any(each is other for other in before)] == []


async def test_a_host_without_a_server_says_why_and_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that starts later than `headrace serve` is found when facts are read again."""
    several = "2 servers run on this host: choose one with --mysql-socket or --mysql-host"
    answers = iter([(None, several), (None, several), (ServerLogin(socket="/s"), "")])
    asked: list[tuple[str, ...]] = []

    async def find(*_: Any) -> tuple[ServerLogin | None, str]:
        return next(answers)

    async def facts(*_: Any, **__: Any) -> Facts:
        return Facts("a", {})

    @contextlib.asynccontextmanager
    async def follow(*words: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        async def samples() -> AsyncIterator[dict[str, Any]]:
            asked.append(words)
            while True:
                yield line("agent", T_S, {})
                await asyncio.sleep(0.01)

        yield samples()

    async def nothing() -> None: ...

    async def install(_: Any) -> Any:
        return SimpleNamespace(facts=facts, samples=follow)

    target = SimpleNamespace(name="db1", connect=nothing, close=nothing)
    monkeypatch.setattr("headrace.hunt.live.open_target", lambda _: target)
    monkeypatch.setattr("headrace.hunt.live.Agent.install", install)
    monkeypatch.setattr("headrace.hunt.live.FACTS_EVERY_S", 0.3)
    monkeypatch.setattr("headrace.hunt.live.RETRY_S", (0.0,))
    found = collector(tmp_path)
    host = found.hosts["db1"]
    host.feed.find_login = find
    following = asyncio.create_task(host.feed.run())
    async with asyncio.timeout(20):
        while host.feed.agent is None:  # noqa: ASYNC110 - a feed has no event for it
            await asyncio.sleep(0.01)
        await found._look_for_a_minute(host)
        assert host.listed_problem == several
        while len(asked) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert "--mysql-socket" not in asked[0]
    assert "--mysql-socket" in asked[1]
    assert host.feed.no_login == ""


async def test_what_was_seen_in_one_minute_is_not_seen_again_in_the_next(tmp_path: Path) -> None:
    found = collector(tmp_path)
    sampled(found)
    row = {"id": 1, "user": "u", "db": "shop", "time_s": 4, "class": "select ?", "tables": ["t"]}
    found.hosts["db1"].activity = summed([{"statements": [row]}])
    for t_s in (T_S, T_S + MINUTE_S):
        await found.write(t_s)
    [seen] = questions.class_totals(Reader(found.archive), ["db1"], span(), PROCESS_LIST)
    assert (seen["seen"], seen["looks"]) == (1, 1)


def digests(at_s: float, counts: dict[str, float]) -> Ring:
    ring = Ring()
    ring.add(line("statements", at_s, {"count": counts, "time_ns": {d: 1e6 * n for d, n in counts.items()}}))
    return ring


class TestCounted:
    """Sums of performance_schema, as growth."""

    def grown(self, *looks: dict[str, float]) -> list[dict[str, int]]:
        counted = minute.Counted()
        return [
            {row["class"]: row["calls"] for row in counted.rows(digests(i, look).window(60), i * MINUTE_S)}
            for i, look in enumerate(looks)
        ]

    def test_the_first_look_counts_nothing(self) -> None:
        assert self.grown({"a": 100}, {"a": 130}, {"a": 130}) == [{}, {"a": 30}, {}]

    def test_a_new_class_counts_from_nothing_where_all_were_seen_before(self) -> None:
        assert self.grown({"a": 1}, {"a": 1, "b": 7}) == [{}, {"b": 7}]

    def test_a_class_that_was_not_among_the_busiest_starts_then(self) -> None:
        many = {f"{i:02}": 1.0 for i in range(used.MOST_DIGESTS)}
        assert self.grown(many, {**many, "late": 900}, {**many, "late": 905}) == [{}, {}, {"late": 5}]

    def test_a_class_that_fell_out_continues_where_it_was(self) -> None:
        assert self.grown({"a": 1, "b": 10}, {"a": 2}, {"a": 3, "b": 15}) == [{}, {"a": 1}, {"a": 1, "b": 5}]

    def test_a_restart_counts_from_nothing(self) -> None:
        assert self.grown({"a": 1000}, {"a": 4}) == [{}, {"a": 4}]

    def test_what_was_counted_in_a_gap_belongs_to_no_minute(self) -> None:
        """An hour without a connection: only what grew since the host is heard again counts."""
        counted, after = minute.Counted(), 61 * MINUTE_S
        assert not counted.rows(digests(0, {"a": 100}).window(60), 0)
        ring = Ring()
        for at_s, count in ((after + 30, 9_000), (after + 50, 9_020)):
            ring.add(line("statements", at_s, {"count": {"a": count}, "time_ns": {"a": 1e6 * count}}))
        [row] = counted.rows(ring.window(60), after)
        assert (row["calls"], row["time_ns"]) == (20, 20e6)
        later = digests(after + 110, {"a": 9_050}).window(60)
        assert [row["calls"] for row in counted.rows(later, after + MINUTE_S)] == [30]


def test_the_process_list_shows_classes_without_inventing_calls() -> None:
    row = {
        "id": 1,
        "user": "u",
        "db": "shop",
        "time_s": 4,
        "class": "select ?",
        "tables": ["t"],
        "command": "Query",
    }
    activity = summed([{"statements": [row]}, {"statements": []}])
    classes, texts = minute.seen_rows(activity)
    nobody, seen = classes
    assert (nobody["class"], nobody["seen"], nobody["looks"]) == ("", 0, 2)
    assert (seen["seen"], seen["looks"], seen.get("calls")) == (1, 2, None)
    assert texts[0]["text"] == "select ?"


async def test_the_slow_log_that_is_followed_is_the_one_that_the_server_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: asyncio.Queue[str] = asyncio.Queue()
    ended = []

    async def follow(agent: Any, path: str, pending: Any, *, with_examples: bool) -> None:
        followed.put_nowait(path)
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(path)

    def writes(name: str) -> Facts:
        variables = {"slow_query_log": "ON", "log_output": "FILE", "slow_query_log_file": name}
        return Facts(name, {"server_settings": {"variables": variables}})

    monkeypatch.setattr(slow_log, "follow", follow)
    monkeypatch.setattr("headrace.history.collect.collector.LOG_CHECKED_S", 0.01)
    monkeypatch.setattr("headrace.history.collect.collector.SETTINGS_EVERY_S", 0.01)
    found = collector(tmp_path)
    each = found.hosts["db1"]
    answers = [writes("/a.log")]

    async def facts(login: Any) -> Facts:
        return answers[-1]

    each.feed.agent = SimpleNamespace(facts=facts)  # type: ignore[assignment]
    each.feed.login, each.feed.facts = ServerLogin(socket="/s"), answers[0]
    tasks = [asyncio.create_task(loop(each)) for loop in (found._log, found._settings)]
    try:
        async with asyncio.timeout(30):
            assert await followed.get() == "/a.log"
            answers.append(writes("/b.log"))
            assert await followed.get() == "/b.log"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert ended == ["/a.log", "/b.log"]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"slow_query_log": "ON", "log_output": "FILE", "slow_query_log_file": "/a"}, ""),
        ({"slow_query_log": "OFF", "log_output": "FILE"}, "the slow log is off"),
        ({"slow_query_log": "ON", "log_output": "TABLE"}, "log_output is TABLE"),
    ],
)
def test_why_a_slow_log_is_not_read(variables: dict[str, str], said: str) -> None:
    why = slow_log.why_not(Facts("", {"server_settings": {"variables": variables}}))
    assert why.startswith(said) if said else not why
    assert slow_log.why_not(None) == ""


def test_no_session_is_lost_from_the_load_however_many_sorts_there_are() -> None:
    rows = [
        {
            "id": n,
            "class": f"select {n}",
            "command": "Query",
            "state": "Sending data",
            "user": f"u{n}",
            "host": "h:1",
        }
        for n in range(3 * minute.MOST_SORTS)
    ]
    load = of_activity(summed([{"statements": rows}, {"statements": rows[:1]}, {"statements": []}]))
    found = minute.session_rows(load)
    assert len(found) <= minute.MOST_SORTS + 2
    assert sum(row["seen"] for row in found) == pytest.approx(len(rows) + 1)
    assert [row["looks"] for row in found if row["looks"] is not None] == [3]
    [busiest] = [row for row in found if row["user"] == "u0"]
    assert busiest["seen"] == pytest.approx(2)
    assert busiest["class"] == minute.class_name("select 0")
    assert minute.session_rows(None) == []


def test_a_line_of_a_digest_becomes_rows() -> None:
    pending: dict[str, list[dict[str, Any]]] = {}
    text = "SELECT \ud800 'x'"  # half a character: JSON can say it
    record = {**CLASS, "sample": {"text": text, "response_ns": 20, "database": "shop"}}
    for each in ({"type": "digest"}, record, {"type": "end", "classes": 1}):
        slow_log.take(each, pending)
    [row] = pending["classes"]
    assert (row["calls"], row["errors"], row["rows_examined"], row["lock_ns"]) == (3, 1, 12, None)
    assert [(b["bucket"], b["count"]) for b in pending["buckets"]] == [(5, 2), (9, 1)]
    assert pending["examples"][0]["text"] == "SELECT ? 'x'"
    json.dumps(pending).encode()
    unjudged: dict[str, list[dict[str, Any]]] = {}
    slow_log.take({**record, "unjudged": 3, "sample": None}, unjudged)
    assert unjudged["classes"][0]["errors"] is None  # the log does not say
    assert "examples" not in unjudged


@pytest.mark.parametrize(
    ("variables", "path"),
    [
        ({}, ""),
        ({"slow_query_log": "OFF", "slow_query_log_file": "s.log", "datadir": "/d/"}, ""),
        ({"slow_query_log": "ON", "slow_query_log_file": "s.log", "datadir": "/d/"}, "/d/s.log"),
        ({"slow_query_log": "1", "slow_query_log_file": "/var/s.log", "datadir": "/d/"}, "/var/s.log"),
        ({"slow_query_log": "ON", "slow_query_log_file": "/s", "log_output": "TABLE"}, ""),
    ],
)
def test_the_slow_log_that_a_server_writes(variables: dict[str, str], path: str) -> None:
    assert slow_log.path_of(Facts("", {"server_settings": {"variables": variables}})) == path
    assert slow_log.path_of(None) == ""


async def test_a_flood_of_classes_and_labels_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_ROWS", 10)
    found = collector(tmp_path)
    sampled(found)
    db1 = found.hosts["db1"]
    for number in range(25):
        slow_log.take({**CLASS, "id": f"{number:04}" + "x" * 5000}, db1.pending)
    assert len(db1.pending["classes"]) == 10  # nor is it kept in memory
    values = {f"cpu{n}": 1.0 for n in range(100)}
    db1.feed.ring.add(line("cpu", T_S + 61, dict.fromkeys(STATES, values)))
    db1.feed.ring._left_out = 1234
    await found.write(T_S)
    assert "More rows a minute than a host can have are left out: db1 (15 of classes, " in found.attention
    assert "of metrics" in found.attention
    assert "1,234 of samples" in found.attention
    assert found.problem == ""
    reader = Reader(found.archive)
    totals = questions.class_totals(reader, ["db1"], span(), SLOW)
    assert len(totals) == 10
    assert all(len(row["class"]) == bounds.MOST_NAME for row in totals)
    db1.feed.link = Link.LOST
    await found.write(T_S + MINUTE_S)
    assert found.attention == ""


async def test_a_flood_of_changes_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_ROWS", 10)
    entry = {"kind": "kernel", "wrote": "x" * 5000, "restore": [{"value": "y" * 5000}], "t_ns": 10**9}

    class Flooding:
        def __init__(self, *_: object) -> None: ...

        async def entries(self) -> list[dict[str, Any]]:
            return [{**entry, "owner": "apply/1", "path": f"/sys/{n}"} for n in range(7)]

        async def history(self) -> list[dict[str, Any]]:
            kept = [{**entry, "path": f"/sys/{n}"} for n in range(7)]
            return [{"owner": f"apply/{n}", "t_ns": n, "entries": kept} for n in range(3)]

    monkeypatch.setattr("headrace.history.collect.collector.Journal", Flooding)
    found = await journal_rows(None)  # type: ignore[arg-type]
    assert len(found) == 10
    assert {len(row["after"]) for row in found.values()} == {bounds.MOST_NAME}


async def test_a_flood_of_findings_is_cut_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minute, "MOST_FINDINGS", 0)
    ill = judge(unwell(rates=ONE_HOT_CORE, without=["psi"]), all_rules())
    monkeypatch.setattr("headrace.history.collect.collector.judge", lambda *_: ill)
    found = collector(tmp_path)
    sampled(found)
    await found.write(T_S)
    judgement = found.hosts["db1"].judgement
    assert judgement is not None
    assert judgement.findings
    assert f"{len(judgement.findings)} of findings" in found.attention
    [state] = questions.last_states(Reader(found.archive), ["db1"], span()).values()
    assert json.loads(state["findings"]) == []
