"""What a plan names, what blocks say, and when an index is worth its writes: without a server."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import PlanError
from headrace.base.intervals import Interval
from headrace.base.model import ServerLogin
from headrace.indexes import applied, judging, parsing, trials, verdicts, watching
from headrace.indexes.proving import _compared
from headrace.indexes.session import StatementFailed
from headrace.indexes.statement import Statement
from headrace.indexes.trials import Ran, Trial
from headrace.indexes.verdicts import Verdict, Worth


@pytest.mark.parametrize(
    ("document", "keys"),
    [
        ({"query_block": {"table": {"access_type": "ref", "key": "hr_a", "possible_keys": ["b"]}}}, {"hr_a"}),
        ({"query_block": {"nested_loop": [{"table": {"key": "a"}}, {"table": {"key": "b"}}]}}, {"a", "b"}),
        # As MySQL and MariaDB write an index merge.
        ({"query_block": {"table": {"key": "union(a,b)"}}}, {"a", "b"}),
        ({"table": {"index_merge": {"union": [{"range": {"key": "a"}}, {"range": {"key": "b"}}]}}},
         {"a", "b"}),
        ({"query_plan": {"inputs": [{"index_name": "hr_a"}]}}, {"hr_a"}),
        ({"query_block": {"table": {"access_type": "ALL", "possible_keys": ["hr_a"]}}}, set()),
    ],
)  # fmt: skip
def test_which_indexes_a_plan_uses(document: Any, keys: set[str]) -> None:
    assert set(trials._keys(document)) - {"union", "union(a,b)"} == keys


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([0.5, 0.52, 0.51, 0.49], Verdict.FASTER),
        ([2.0, 2.1, 1.9, 2.0], Verdict.SLOWER),
        ([1.0, 1.01, 0.99, 1.0], Verdict.SAME),
        ([0.98, 0.985, 0.98, 0.982], Verdict.SAME),  # faster by less than matters
        ([0.5, 1.5, 0.7, 1.2], Verdict.NOT_ENOUGH_DATA),
        ([0.5], Verdict.NOT_ENOUGH_DATA),
        ([], Verdict.NOT_ENOUGH_DATA),
    ],
)
def test_verdicts(ratios: list[float], verdict: Verdict) -> None:
    logs = {block: math.log(ratio) for block, ratio in enumerate(ratios)}
    found = verdicts.effect(logs, comparisons=2)
    assert (found.verdict, found.blocks) == (verdict, len(ratios))


def test_more_comparisons_widen_each_interval() -> None:
    logs = {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.15}
    one, many = (verdicts.effect(logs, count).ratio for count in (1, 20))
    assert one.low is not None
    assert many.low is not None
    assert many.low < one.low


def test_the_whole_weighs_classes_by_time_in_the_blocks_that_have_all() -> None:
    ratios = {"a": {0: math.log(0.1), 1: math.log(0.2)}, "b": {1: 0.0, 2: 0.0}}
    found = verdicts.weighted(ratios, {"a": 3.0, "b": 1.0})
    assert {block: round(math.exp(log), 6) for block, log in found.items()} == {1: 0.4}
    assert verdicts.weighted({}, {}) == {}


@pytest.mark.parametrize(
    ("saved", "cost", "pays"),
    [
        ((0.3, 0.25, 0.35), (0.02, 0.01, 0.03), True),
        ((0.3, 0.25, 0.35), (0.3, 0.2, 0.4), None),
        ((0.01, 0.0, 0.02), (0.3, 0.2, 0.4), False),
        ((-0.1, -0.2, -0.05), (0.0, 0.0, 0.0), False),
        ((0.3, 0.25, 0.35), (math.nan, None, None), None),
    ],
)
def test_what_pays(saved: Any, cost: Any, pays: bool | None) -> None:
    assert Worth(Interval(*saved), Interval(*cost)).pays is pays


def ran(answer: str, ordered: str = "") -> Ran:
    return Ran(0.1, 1, answer, ordered or answer)


@pytest.mark.parametrize(
    ("trial", "answers", "words", "is_wrong"),
    [
        ({}, ("a", "a", "a"), "same", False),
        ({}, ("a", "a", "b"), "DIFFERENT", True),
        ({}, ("a", "b", "b"), "it answers differently each time", False),
        ({"has_limit": True}, ("a", "a", "b"), "other rows: its LIMIT leaves open which", False),
        ({"changes_rows": True}, ("a", "a", "a"), "it changes rows, and has no answer", False),
    ],
)
def test_answers(trial: dict[str, bool], answers: tuple[str, str, str], words: str, is_wrong: bool) -> None:
    one = Trial(Statement("s", "s"), frozenset(), **trial)
    assert _compared(one, *map(ran, answers)) == (words, is_wrong)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELECT a FROM t WHERE b = 5 INTO OUTFILE '/tmp/x'", "OUTFILE"),
        ("SELECT a FROM t WHERE b = '#' INTO/* */DumpFile '/tmp/x'", "DumpFile"),
        ("SELECT a FROM t WHERE b = 5 /*!50000 AND c = 1 */", "/*!"),
        ("SELECT a FROM t WHERE b = 5 /*M!100000 AND c = 1 */", "/*M!"),
        ("SELECT sleep/**/(1) FROM t", "sleep"),
        ("SELECT LOAD_FILE(a) FROM t", "LOAD_FILE"),
        ("SELECT MASTER_GTID_WAIT('1-2-3', 9) FROM t", "MASTER_GTID_WAIT"),
        ("SELECT a FROM sleepers WHERE b = 5 /* asleep */", ""),
    ],
)
def test_what_waits_or_uses_files_of_the_server_is_not_run(text: str, word: str) -> None:
    assert trials._why_not(Statement(text, text), [], False) == (word and f"not run, for it has {word}")


def test_floats_that_differ_in_their_last_digits_are_the_same_answer() -> None:
    assert trials.shown((0.1 + 0.2, None, "a")) == trials.shown((0.3, None, "a"))
    assert trials.shown((0.31,)) != trials.shown((0.3,))


@pytest.mark.parametrize(
    ("written", "columns"),
    [
        ("shop.orders(customer)", ("customer",)),
        ("`shop`.`orders` ( `Customer` , created )", ("Customer", "created")),
    ],
)
def test_an_index_as_it_is_written(written: str, columns: tuple[str, ...]) -> None:
    index = applied.index_of(written)
    assert (index.database, index.table, index.columns) == ("shop", "orders", columns)
    assert index.name == "hr_" + "_".join(columns).lower()
    assert all("customer" in line.lower() for line in applied.elsewhere(index))


@pytest.mark.parametrize("written", ["orders(customer)", "shop.orders", "shop.orders()", "shop.orders(a,,b)"])
def test_what_is_no_index(written: str) -> None:
    with pytest.raises(PlanError, match="is not an index"):
        applied.index_of(written)


SHOWN_AND_HIDDEN = {
    # With the index a call takes a tenth; the other class runs as before.
    True: {"a": (100, 1_000_000), "b": (10, 500_000)},
    False: {"a": (10, 1_000_000), "b": (10, 500_000)},
}


@pytest.mark.parametrize(
    ("turns", "verdict"),
    [
        (SHOWN_AND_HIDDEN, Verdict.FASTER),
        ({True: SHOWN_AND_HIDDEN[False], False: SHOWN_AND_HIDDEN[True]}, Verdict.SLOWER),
        ({True: SHOWN_AND_HIDDEN[False], False: SHOWN_AND_HIDDEN[False]}, Verdict.SAME),
        # A class that ran in one of the turns alone says nothing.
        ({True: {"a": (1, 5)}, False: {"b": (1, 5)}}, Verdict.NOT_ENOUGH_DATA),
    ],
)
def test_a_live_index_is_judged_in_one_mix(turns: dict[bool, judging.Counts], verdict: Verdict) -> None:
    found = judging.judged([turns, turns, turns], {"a": "SELECT A"})
    assert found.whole.verdict is verdict
    if verdict is Verdict.FASTER:
        # 110 calls of a at 0.1 and 20 of b at 0.5, relative to 110 at 1 and 20 at 0.5.
        assert found.whole.ratio.estimate == pytest.approx((110 * 1 + 20 * 5) / (110 * 10 + 20 * 5))
        assert [(each.text, each.effect.verdict) for each in found.classes] == [
            ("SELECT A", Verdict.FASTER),
            ("b", Verdict.SAME),
        ]


def test_counts_that_were_reset_are_left_out() -> None:
    assert judging.grown({"a": (5, 50), "b": (9, 90)}, {"a": (6, 70), "b": (2, 3), "c": (1, 8)}) == {
        "a": (1, 20),
        "c": (1, 8),
    }


class Scripted:
    """A session that answers by what a statement begins with."""

    is_mariadb = True
    name = "here"

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def rows(self, statement: str) -> Any:
        return self._answers["rows"]

    def named(self, statement: str) -> Any:
        found = self._answers.get(statement.split()[1])
        if found is None:
            raise StatementFailed(1064, "syntax", "here")
        return found


@pytest.mark.parametrize(
    ("answers", "lag"),
    [
        ({"REPLICA": [{"Seconds_Behind_Source": 7}]}, 7.0),
        ({"SLAVE": [{"Seconds_Behind_Master": 3}, {"Seconds_Behind_Master": 9}]}, 9.0),
        ({"SLAVE": [{"Seconds_Behind_Master": None}]}, None),
        ({"SLAVE": []}, None),
        ({}, None),
    ],
)
def test_how_far_a_replica_is_behind(answers: dict[str, Any], lag: float | None) -> None:
    assert watching.lag_of(Scripted(**answers)) == lag  # type: ignore[arg-type]


def test_the_disk_where_a_server_sorts_counts_if_it_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    disks = {"/data": (100, 1), "/data/tmp": (100, 1), "/fast": (10, 2), "/slow": (7, 3)}

    def disk(session: object, folder: str) -> tuple[os.statvfs_result, int] | None:
        free, number = disks.get(folder, (0, 0))
        found = os.statvfs_result((1, 1, 100, free, free, 0, 0, 0, 0, 0))
        return (found, number) if number else None

    monkeypatch.setattr(watching, "_disk", disk)
    for own, usual, free in (
        (None, "tmp", None), (None, "/fast:/slow", 7), ("/fast", "/slow", 10), (None, "/unseen", None),
    ):  # fmt: skip
        space = watching.sort_space_of(Scripted(rows=((own, usual, "/data"),)))  # type: ignore[arg-type]
        assert (space.free_bytes if space else None) == free
        assert space is None or space.kept_bytes == 2


def test_a_full_disk_where_it_sorts_is_told_by_its_strange_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise StatementFailed(1034, "Index for table 'big' is corrupt; try to repair it", "here")

    class Watch:
        begin = end = begins_again = staticmethod(lambda: None)

    monkeypatch.setattr(applied, "patiently", fails)
    with pytest.raises(StatementFailed, match="innodb_tmpdir"):
        applied._built(Scripted(), Watch(), "", lambda _: None, 0)  # type: ignore[arg-type]


def test_a_replica_that_falls_behind_ends_the_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    lags = [0.0, 2.0, 31.0]
    replica = Scripted()

    monkeypatch.setattr(watching, "lag_of", lambda _: lags.pop(0))
    monkeypatch.setattr(judging, "must_count", lambda _: None)
    monkeypatch.setattr(judging, "counts", lambda *_: {})
    lag = watching.Lag(ServerLogin(), watching.Limits(("db2",), 30.0))
    lag.replicas = [replica]  # type: ignore[list-item]
    switched: list[bool] = []
    index = applied.index_of("shop.orders(total)")
    with pytest.raises(watching.Lagging, match="31 s behind, and 30 s are allowed"):
        judging.judge(
            replica, index, judging.Turns(0, 0, 4), switched.append, lambda _: None, lag.look  # type: ignore[arg-type]
        )  # fmt: skip
    assert len(switched) == 2
    assert lags == []


@pytest.mark.parametrize(
    ("row", "done"), [((1, 2, 50.0), 0.25), ((2, 2, 100.0), 1.0), ((0, 0, 0.0), None), (None, None)]
)
def test_how_far_a_build_is(row: tuple[float, ...] | None, done: float | None) -> None:
    session = Scripted(rows=(row,) if row else ())
    assert watching.progress_of(session, 5) == done  # type: ignore[arg-type]


def test_a_server_that_never_comes_back_is_not_asked_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    clock = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr("headrace.indexes.applied.time.sleep", sleep)
    monkeypatch.setattr("headrace.indexes.applied.time.monotonic", lambda: clock[0])
    login = ServerLogin(socket=str(tmp_path / "s.sock"), user="root")
    told: list[str] = []
    assert not applied.guard(login, "shop.orders(total)", 0.0, told.append)
    assert sum(slept) == pytest.approx(applied.MOST_AWAY_S, rel=0.01)
    assert "cannot take it back yet" in told[0]


def test_a_build_that_was_lost_waits_for_the_transactions_that_ended_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Held:
        """The first build is lost, and session 7 is in a transaction until it was asked for three times."""

        id, name = 1, "here"
        builds = asked = 0

        def rows(self, statement: str) -> list[tuple[int, int]]:
            if statement.startswith("ALTER"):
                self.builds += 1
                if self.builds == 1:
                    clock[0] += 312.0
                    raise StatementFailed(1205, "Lock wait timeout exceeded", "here")
                return []
            if "innodb_trx" not in statement:
                return []
            self.asked += 1
            # What the session began since does not count.
            return [(7, 340 + self.asked)] if self.asked < 4 else [(7, 0)]

    clock = [0.0]
    session, said, again = Held(), list[str](), list[int]()
    monkeypatch.setattr(applied, "LOCK_WAIT_S", 0)
    monkeypatch.setattr("headrace.indexes.applied.time.sleep", lambda _: None)
    monkeypatch.setattr("headrace.indexes.applied.time.monotonic", lambda: clock[0])
    applied.patiently(session, "ALTER TABLE t ADD INDEX k (a)", said.append, 5, lambda: again.append(1))  # type: ignore[arg-type]
    assert said[0].endswith("beginning again in 5 s; 312 s of work are lost")
    assert said[1] == "waiting for 1 open transaction to end: session 7 (for 341 s)"
    assert (session.builds, session.asked, again) == (2, 4, [1])


class _Told:
    """A session that notes what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def rows(self, text: str) -> list[Any]:
        self.said.append(text)
        return []

    def value(self, text: str) -> Any:
        self.said.append(text)
        return "{}"


@pytest.mark.parametrize(
    ("trial", "begun"),
    [
        (Trial(Statement("x", "SELECT f(a) FROM t"), frozenset()), "START TRANSACTION READ ONLY"),
        (Trial(Statement("x", "SELECT a FROM t FOR UPDATE"), frozenset(), locks_rows=True),
         "START TRANSACTION"),
        (Trial(Statement("x", "UPDATE t SET a = f(a)"), frozenset(), changes_rows=True), "START TRANSACTION"),
    ],
)  # fmt: skip
def test_whatever_a_statement_calls_is_undone_or_refused(trial: Trial, begun: str) -> None:
    told: Any = _Told()
    told.own_reads = 0
    trials.plan_of(told, trial)
    assert told.said == [begun, f"EXPLAIN FORMAT=JSON {trial.statement.text}", "ROLLBACK"]
    told.said.clear()
    trials.timed(told, trial, 1)
    trials.run(told, trial)
    asked = [each for each in told.said if not each.startswith("SHOW")]
    assert asked == [begun, trial.statement.text, "ROLLBACK"] * 2


def test_a_hint_hides_no_create() -> None:
    assert parsing.makes_table("/*+ x */ CREATE TABLE y AS SELECT 1")
    assert not parsing.makes_table("/*! x */ SELECT 1")
