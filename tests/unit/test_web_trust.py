"""One host, one failure domain: whatever one host sends, or once sent, the others notice nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.base.errors import StoreError
from headrace.base.model import ServerLogin
from headrace.fleet.host import Host
from headrace.history import questions
from headrace.history.archive import rollup
from headrace.history.archive.files import HOUR_S, MINUTE_S, Archive
from headrace.history.archive.reader import Range, Reader
from headrace.history.archive.tables import MOST_COUNT, MOST_SUM, TABLES
from headrace.history.collect import bounds, minute, slow_log
from headrace.history.collect.collector import Collector
from headrace.host.target import TargetSpec
from tests.history import SLOW, query, state, write
from tests.unit.test_web_collector import CLASS

pytestmark = pytest.mark.usefixtures("quick_disk")

T_S = int(time.time()) // HOUR_S * HOUR_S - 24 * HOUR_S
HUGE = 2**63 - 1
#: What a digest's line may hold, and no class can have.
IMPOSSIBLE: list[dict[str, Any]] = [
    {"count": HUGE, "timed": HUGE},
    {"count": 2**64},
    {"count": 10**400},
    {"count": -1},
    {"count": "5"},
    {"count": 1.5},
    {"count": [1]},
    {"response_sum_ns": 1e308},
    {"response_sum_ns": float("nan")},
    {"response_sum_ns": float("-inf")},
    {"response_sum_ns": 10**400},
    {"lock_ns": {"sum": HUGE, "known": 1}},
    {"lock_ns": 7},
    {"failed": HUGE},
    {"rows_examined": {"sum": float("inf"), "known": 1}},
    {"response_max_ns": HUGE},
    {"buckets": [[1, HUGE], [2, HUGE]]},
    {"buckets": [[2**31, 1]]},
    {"buckets": [[-5, 1]]},
    {"buckets": 5},
    {"buckets": [[1]]},
    {"databases": 5},
    {"sample": {"text": "x", "response_ns": HUGE}},
    {"sample": "x"},
]


def collector(tmp_path: Path, *names: str) -> Collector:
    archive = Archive(tmp_path / "history")
    archive.create()
    return Collector(archive, [Host(name, TargetSpec("local")) for name in names])


def ask_all(archive: Archive, hosts: list[str], span: Range) -> dict[str, int]:
    """Every question of the pages about classes; calls by class."""
    reader = Reader(archive)
    found = questions.class_totals(reader, hosts, span, SLOW)
    names = [row["class"] for row in found]
    questions.sources(reader, hosts, span)
    questions.percentiles(reader, hosts, span, SLOW, names, 0.99)
    questions.class_series(reader, hosts, span, SLOW, names)
    questions.states(reader, hosts, span)
    questions.watched_s(reader, hosts, span)
    questions.changes(reader, hosts, span)
    for name in names:
        questions.histogram(reader, hosts, span, SLOW, name)
        questions.latency_heat(reader, hosts, span, SLOW, name)
        questions.example(reader, hosts, span, SLOW, name)
    return {row["class"]: row["calls"] for row in found}


async def test_a_host_that_sends_what_cannot_be_loses_that_row_and_is_named(tmp_path: Path) -> None:
    found = collector(tmp_path, "evil", "good")
    for number, wrong in enumerate(IMPOSSIBLE):
        slow_log.take({**CLASS, "id": f"{number}", **wrong}, found.hosts["evil"].pending)
    odd: list[Any] = [None, 7, [], "x", {"type": "class"}]
    for line in odd:
        slow_log.take(line, found.hosts["evil"].pending)
    slow_log.take({**CLASS, "id": "fine"}, found.hosts["evil"].pending)
    slow_log.take(CLASS, found.hosts["good"].pending)
    await found.write(T_S)
    assert found.problem == ""
    assert "Rows with numbers that cannot be are refused: evil (" in found.attention
    assert "good" not in found.attention
    span = Range(T_S, T_S + HOUR_S)
    calls = ask_all(found.archive, ["evil", "good"], span)
    assert calls["c1"] == calls["fine"] == 3
    # What is wrong elsewhere than in the class itself costs that: a bucket, an example.
    assert set(calls) == {"c1", "fine", "17", "18", "16", "22"} & set(calls)
    for kind in ("classes", "buckets"):
        for file in found.archive.files(kind):
            assert TABLES[kind].impossible(_rows(file.path), MOST_COUNT) is None


def _rows(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path).read()


@pytest.mark.parametrize("poison", [HUGE, MOST_SUM, -HUGE])
async def test_what_a_host_wrote_long_ago_fails_no_roll_up_no_limit_and_no_page(
    tmp_path: Path, poison: int
) -> None:
    """Files of a version that refused nothing."""
    found = collector(tmp_path)
    archive = found.archive
    for host, calls in (("evil", poison), ("good", 5)):
        for n in (0, 1, 59, 60):
            t_s = T_S + n * MINUTE_S
            write(archive, "classes", host, t_s, [{**query("a", 1, 1e6), "calls": calls, "most_ns": calls}])
            write(
                archive,
                "buckets",
                host,
                t_s,
                [{"source": SLOW, "class": "a", "bucket": 1000, "count": calls}],
            )
            write(
                archive,
                "metrics",
                host,
                t_s,
                [{"metric": "cpu", "label": "", "n": 1, "sum": float(calls) ** 9}],
            )
            write(archive, "states", host, t_s, [state()])
    old = T_S - 500 * 24 * HOUR_S
    write(archive, "states", "evil", old, [state()])
    span = Range(T_S, T_S + 3 * HOUR_S)
    before = ask_all(archive, ["good"], span)
    assert before == {"a": 20}
    assert ask_all(archive, ["evil", "good"], span)["a"] in (20, MOST_SUM)
    found._keep_house(T_S + 4 * HOUR_S)
    assert found.house_problem == ""
    assert not archive.files("states", until_s=old + HOUR_S), "age is kept whatever a host wrote"
    for host in ("evil", "good"):
        assert not [file for file in archive.files("classes", host) if file.kind == "m"]
    assert ask_all(archive, ["good"], span) == before
    assert ask_all(archive, ["evil", "good"], span)["a"] in (20, MOST_SUM)
    aside = list((archive.root / "classes").rglob("*.damaged"))
    assert bool(aside) == (poison != MOST_SUM)


async def test_a_host_whose_roll_up_fails_is_named_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = collector(tmp_path)
    for host in ("a", "b", "c"):
        write(found.archive, "states", host, T_S, [state()])
    done = []

    def roll_up(_: Archive, host: str, until_s: float) -> int:
        if host != "c":
            raise (StoreError("cannot be read") if host == "a" else ZeroDivisionError("anything"))
        done.append(host)
        return 1

    monkeypatch.setattr("headrace.history.collect.collector.roll_up", roll_up)
    found._keep_house(T_S + 2 * HOUR_S)
    assert done == ["c"]
    assert "a: cannot be read" in found.attention
    assert "b: ZeroDivisionError" in found.attention


def test_no_sum_overflows(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.create()
    rows = [{**query("a", 1, 1e6), "calls": MOST_SUM, "time_ns": 1e24} for _ in range(100)]
    found = rollup.grouped(archive, TABLES["classes"], minute.table_of(TABLES["classes"], rows, T_S), HOUR_S)
    [row] = found.to_pylist()
    assert (row["calls"], row["time_ns"]) == (MOST_SUM, pytest.approx(1e26))


def test_numbers_that_can_be_are_not_refused() -> None:
    most = {**query("a", MOST_COUNT, 1.0), "time_ns": 9e15, "rows_sent": None, "rows_examined": 0}
    found, refused = bounds.possible({"classes": [most], "changes": minute.change_rows([{"at_s": T_S}])}, T_S)
    assert refused == ""
    assert found["classes"].to_pylist()[0]["calls"] == MOST_COUNT
    _, refused = bounds.possible({"classes": [{**most, "calls": MOST_COUNT + 1}]}, T_S)
    assert refused == "1 of classes"
    _, refused = bounds.possible({"changes": minute.change_rows([{"at_s": 1e300}])}, T_S)
    assert refused == "1 of changes"


@pytest.mark.parametrize(
    "rows", [["id lock"], [{"id": 1, "time_s": "x"}], [{"id": [], "text": []}], {"id": 1}, 5]
)
async def test_a_look_that_is_none_is_said_and_not_drawn(tmp_path: Path, rows: Any) -> None:
    found = Collector(Archive(tmp_path), [Host("evil", TargetSpec("local"))])
    evil = found.hosts["evil"]

    @contextlib.asynccontextmanager
    async def lines(*_: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        async def looks() -> AsyncIterator[dict[str, Any]]:
            yield {"statements": [{"id": 7, "time_s": 1.5}]}
            yield {"statements": rows}

        yield looks()

    evil.feed.agent = SimpleNamespace(lines=lines)  # type: ignore[assignment]
    evil.feed.login = ServerLogin(socket="/s")
    await found._look_for_a_minute(evil)
    assert evil.listed == []
    assert evil.listed_problem == "the host's answer is none of headrace-agent"


def test_long_words_of_a_host_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pending: dict[str, list[minute.Row]] = {}
    long = "x" * 300_000
    for number in range(20):
        word = f"{number}{long}"
        slow_log.take({**CLASS, "id": word, "databases": [[word, 1]], "tables": [word] * 99}, pending)
    for table in ("classes", "buckets", "texts"):
        words = [word for row in pending[table] for word in row.values() if isinstance(word, str)]
        assert len(words) >= 20
        assert max(map(len, words)) < 100 * minute.MOST_TABLE
    rows, said = bounds.bounded(pending)
    assert said == ""
    assert len(rows["classes"]) == 20
    assert set(rows) <= set(TABLES)
    monkeypatch.setattr(bounds, "MOST_WAITING", 100_000)
    for number in range(100):
        slow_log.take({**CLASS, "id": f"{number}", "fingerprint": "y" * 10_000}, pending)
    assert sum(len(row["text"]) for row in pending["texts"]) < 110_000
    assert "of texts" in bounds.bounded(pending)[1]
