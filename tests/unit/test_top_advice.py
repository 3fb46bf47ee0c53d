"""`headrace top`: causes, statement text, fixes in the words of hunt, EXPLAIN trees."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.base.errors import TookTooLong
from headrace.host.agent import Agent
from headrace.host.samples import Samples
from headrace.host.snapshot import Snapshot
from headrace.host.target import TargetSpec
from headrace.hunt.hunt import examine
from headrace.hunt.live import Feed
from headrace.hunt.rules import all_rules, judge
from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.rules.rule import Finding, Match
from headrace.hunt.top import lists, locks, overview, plan, screen
from headrace.hunt.top.screen import Pages, Position, draw
from headrace.hunt.top.shot import VERDICT_S, judged, take
from tests.rules.hosts import unwell
from tests.rules.locks_cases import HELD, MDL
from tests.rules.neighbours_cases import COMPILER, FULL
from tests.rules.pool_cases import SMALL
from tests.rules.statements_cases import POINT, SCAN
from tests.unit.test_top_views import T0, TICKS, counters, feed_of, shot_of, text_of


def test_without_digests_the_statements_that_were_seen_are_listed() -> None:
    feed = feed_of()
    for _ in range(4):
        feed.looked([{**SCAN, "tables": ["orders"]}, {**SCAN, "id": 9, "tables": ["orders"]}, POINT])
    body = text_of(shot_of(feed), Position("statements"), width=120).splitlines()
    assert body[2].split()[0] == "2.0"
    assert "shop.orders" in body[2]
    assert SCAN["class"] in body[2]


def test_an_error_of_the_server_is_no_look() -> None:
    feed = feed_of()
    feed.looked("access denied")
    assert feed.activity is None


def test_a_running_statement_is_shown_without_its_values() -> None:
    shot = replace(shot_of(feed_of()), listed={"processlist": [{**SCAN, "text": None}]})
    assert SCAN["class"] in text_of(shot, Position("processlist"), width=120)


def test_the_verdict_names_the_cause_that_the_rules_found() -> None:
    feed = feed_of()
    evidence = unwell(gauges=MDL, activity=HELD)
    shot = take(feed, "12:00:00", 0.5, judge(evidence, all_rules()))
    assert shot is not None
    assert shot.verdict.sentence.startswith(
        "9.0 sessions wait for a metadata lock; the lock on shop.orders is held"
    )


def test_a_finding_has_its_fix_in_the_words_of_hunt() -> None:
    def page(evidence: Evidence, name: str) -> str:
        shot = replace(shot_of(feed_of()), judgement=judge(evidence, all_rules()))
        drawn = draw(shot, Position("findings", page=name), Pages(), 100, 60)
        return " ".join(" ".join(line.plain for line in drawn).split())

    by_hand = page(unwell(rates={**FULL, **COMPILER}), "HOST01@cc1plus")
    assert (
        "Move cc1plus to another host, or run it at another time. Or give it less CPU time: systemctl"
        in by_hand
    )
    assert by_hand.partition("Next: ")[2].startswith("headrace rules show HOST01")
    settable = page(unwell(**SMALL), "POOL01")
    assert "server.innodb_buffer_pool_size = " in settable
    assert "Next: headrace prove POOL01 --live" in settable
    # `headrace top` is where the reader is already.
    blocked = judge(unwell(), all_rules())
    finding = Finding(next(rule for rule in all_rules() if rule.code == "LOCK02"), Match("", "3 wait."))
    shot = replace(shot_of(feed_of()), judgement=replace(blocked, findings=(finding,)))
    text = " ".join(line.plain for line in lists.finding_page(shot, "LOCK02", 100))
    assert text.endswith("Next: key 7, who waits for whom")


def test_threads_at_work_are_listed_also_where_each_is_looked_at_rarely() -> None:
    feed = feed_of()
    for second, ticks in ((2, 100), (11, 550)):
        values = {
            "utime_ticks": {"71/connection": ticks, "72/idle": 3},
            "stime_ticks": {"71/connection": 0, "72/idle": 0},
        }
        feed.ring.add({"t_ns": T0 + second * 10**9, "sampler": "threads", "ok": True, "values": values})
    body = text_of(shot_of(feed), Position("threads"), width=100).splitlines()
    assert body[2].split()[:3] == ["71", "connection", "50"]
    assert not any("idle" in line for line in body[2:20])


def test_a_plan_is_a_tree() -> None:
    mariadb = {
        "query_block": {
            "select_id": 1,
            "filesort": {
                "sort_key": "a.k",
                "temporary_table": {
                    "nested_loop": [
                        {"table": {"table_name": "a", "access_type": "ALL", "rows": 900, "filtered": 100}},
                        {"table": {"table_name": "b", "access_type": "eq_ref", "key": "PRIMARY", "rows": 1}},
                    ]
                },
            },
        }
    }
    assert plan.tree({"format": "json", "plan": mariadb}) == [
        "query block",
        "  filesort",
        "    temporary table",
        "      nested loop",
        "        a ALL rows 900 filtered % 100",
        "        b eq_ref key PRIMARY rows 1",
    ]
    mysql = {
        "query_block": {
            "cost_info": {"query_cost": "12.5"},
            "table": {
                "table_name": "t",
                "access_type": "range",
                "rows_examined_per_scan": 3,
                "cost_info": {"prefix_cost": "9"},
                "attached_condition": "(`t`.`a` > 1)",
            },
        }
    }
    assert plan.tree({"format": "json", "plan": mysql}) == [
        "query block cost 12.5",
        "  t range rows 3 cost 9",
    ]
    rows = [{"id": "1", "table": "t", "type": "ALL", "key": None}]
    assert plan.tree({"format": "traditional", "rows": rows}) == ["id 1  table t  type ALL"]


def blocked(feed: Feed) -> None:
    """Connection 5 sleeps in its transaction; 7 waits for it, and 8 for 7."""
    wait = {"lock": "row", "table": "shop.t", "is_certain": True, "waiter_class": "update t set n = ?"}
    held = {"holder_user": "app", "holder_host": "10.0.0.7:51234", "holder_class": "update t set n = n + ?"}
    for _ in range(10):
        feed.took(
            {
                "statements": [
                    {"id": n, "user": "web", "host": "10.0.0.9:1", "command": "Query", "state": "Updating",
                     "class": "update t set n = ?", "time_s": 28}
                    for n in (7, 8)
                ]
                + [
                    {**wait, **held, "waiter": 7, "holder": 5, "holder_open_s": 30, "holder_idle_s": 28},
                    {**wait, "waiter": 8, "holder": 7, "holder_open_s": 28},
                ]
            }
        )  # fmt: skip


def test_the_verdict_is_that_of_a_hunt_of_what_is_blocked_now() -> None:
    feed = feed_of()
    blocked(feed)
    found = judged(feed, VERDICT_S)
    assert found is not None
    shot = take(feed, "12:00:00", 0.0, found)
    assert shot is not None
    assert "2.0 of 2.0 active sessions wait for row locks" in shot.verdict.sentence
    assert judged(Feed(TargetSpec("local")), VERDICT_S) is None


def test_locks_are_a_tree_with_who_is_to_blame_and_the_statement_that_ends_it() -> None:
    feed = feed_of()
    blocked(feed)
    shot = take(feed, "12:00:00", 0.0)
    assert shot is not None
    drawn = [line.plain for line in screen.draw(shot, Position("locks"), Pages(), 120, 12)]
    assert [line.split()[:5] for line in drawn[2:5]] == [
        ["5", "2", "30", "28", "app@10.0.0.7"],
        ["└", "7", "1", "28", "–"],
        ["└", "8", "0", "28", "–"],
    ]
    assert screen.names(shot, Position("locks")) == ["5", "7", "8"]
    page = "\n".join(line.plain for line in screen.draw(shot, Position("locks", page="5"), Pages(), 80, 24))
    assert "KILL 5;" in page
    assert "update t set n = n + ?" in page
    assert "2 connections wait" in page
    feed.took({"error": "access denied"})
    assert "access denied" in locks.empty(replace(shot, listed=dict(feed.listed)))


@pytest.mark.parametrize(
    "rows",
    [
        [1],
        {"id": 1},
        [{"id": 1, "time_s": "x", "command": "Query"}],
        [{"lock": "row", "waiter": [], "holder": {}, "holder_open_s": 1}],
        [{"lock": "row", "waiter": 1, "holder": 2, "holder_open_s": "long"}],
    ],
)
def test_an_answer_that_is_none_is_said_and_drawn_over(rows: Any) -> None:
    feed = feed_of()
    feed.took({"statements": rows})
    assert feed.listed["processlist"] == "the host's answer is none of headrace-agent"
    for name in ("locks", "processlist", "overview"):
        shot = take(feed, "12:00:00", 0.0)
        assert len(screen.draw(shot, Position(name), Pages(), 80, 24)) == 24


def test_statements_are_the_applications_and_prepared_ones_are_there() -> None:
    feed = feed_of()
    feed.listed["statements"] = [
        {"digest": "1", "digest_text": "SELECT * FROM performance_schema.threads", "calls": 9, "time_s": 9.0,
         "tables": ["performance_schema.threads"]},
        {"digest": "2", "digest_text": "SELECT ? FROM t", "calls": 1, "time_s": 0.5, "tables": ["shop.t"]},
    ]  # fmt: skip
    row = {"id": 9, "user": "web", "host": "h:1", "command": "Execute", "state": "Sending data"}
    for _ in range(4):
        feed.took({"statements": [{**row, "class": "select ? from u"}]})
    shot = take(feed, "12:00:00", 0.0)
    assert shot is not None
    for server in ("mariadb 10.11.6", "mysql 8.0.31"):
        _, rows = lists.statements(replace(shot, server=server), "time")
        assert [name for name, _ in rows] == ["select ? from u", "2"], server
        assert "prepared, as seen in the process list" in str(rows[0][1][-1])


OWN = {
    "class": "select command, state, count(*) from processlist",
    "tables": ["information_schema.PROCESSLIST"],
}


def test_looks_at_the_server_are_left_out_and_what_is_seldom_seen_is_said() -> None:
    feed = feed_of()
    look = {**OWN, "id": 4, "user": "root", "host": "localhost", "command": "Query", "time_s": 0}
    for _ in range(4):
        feed.took({"statements": [look, {**SCAN, "tables": ["orders"]}]})
    shot = shot_of(feed)
    text = " ".join(text_of(shot, Position("statements"), width=120).split())
    assert SCAN["class"] in text
    assert "processlist" not in text.partition(SCAN["class"])[2].partition("No digests")[0]
    assert "in the last 4 looks at the process list, where short statements are seldom seen" in text
    assert "The server gets 12,000 statements/s" in text
    text = " ".join(text_of(shot, Position("processlist"), width=120).split())
    assert "1 short look at the server left out" in text
    feed.took({"statements": [{**look, "time_s": 40}]})
    text = text_of(shot_of(feed), Position("processlist"), width=120)
    assert "left out" not in text
    assert "select command, state, count(*)" in text


def test_top_says_of_a_series_what_hunt_says_of_it() -> None:
    """Of the same samples and looks, word for word."""
    feed, records = Feed(TargetSpec("local"), facts=feed_of().facts), []
    for tick in range(TICKS):
        now = counters(4, None, tick, "mariadbd")
        waits = {"innodb_row_lock_current_waits": 2, "innodb_row_lock_time": 2000 * tick}
        now["mysql_status"] |= {name: {"": value} for name, value in waits.items()}
        for sampler, values in now.items():
            line = {"t_ns": T0 + tick * 10**9, "sampler": sampler, "ok": True, "cost_ns": 1, "values": values}
            feed.ring.add(line)
            if tick:
                records.append(line)
        feed.ticks += 1
    blocked(feed)
    assert feed.facts is not None
    saved = Snapshot(
        "local", "2026-01-01", 10.0, feed.facts, Samples.of_records(records), {}, activity=feed.activity
    )
    shot = take(feed, "12:00:00", 0.0, judged(feed, VERDICT_S))
    assert shot is not None
    said = examine(saved).verdict
    assert "connection 5 of app@10.0.0.7" in said.sentence
    assert shot.verdict.sentence == said.sentence
    assert shot.verdict.causes == said.causes


def test_a_verdict_ends_after_a_whole_sentence_where_there_is_no_room() -> None:
    long = " ".join(f"Sentence {n} says that something is slow because of something else." for n in range(9))
    found = [line.plain for line in overview.verdict_lines(long, 40, "", 6)]
    assert len(found) <= 6
    assert " ".join(found).endswith("something else. (6: all findings)")
    assert " ".join(line.plain for line in overview.verdict_lines(long, 40, "", 99)) == long


async def test_a_server_that_does_not_answer_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(*_: Any, **__: Any) -> Any:
        raise TookTooLong("`headrace-agent explain --thread 253` took longer than 10 s and was killed")

    agent = Agent(SimpleNamespace(name="db1", run=slow), "/a/headrace-agent")
    with pytest.raises(TookTooLong, match="the server did not answer within 10 s") as raised:
        await agent.answer("explain", "--thread", "253", timeout_s=10.0)
    assert "headrace-agent" not in str(raised.value)


def test_a_plan_that_is_not_to_be_had_is_told_in_words() -> None:
    ended = "Target is not executing an operation with a query plan (server error 1933, SQLSTATE HY000)"
    assert plan.why_not(ended).startswith("It executes nothing that has a plan now")
    assert (
        plan.why_not("Unknown thread id: 7 (server error 1094, SQLSTATE HY000)") == "The connection is gone."
    )
    assert plan.why_not("the host is not connected") == "the host is not connected"


def test_a_class_without_an_example_has_advice_for_the_screen() -> None:
    agents = "the server remembers no whole statement of digest 15: explain one that runs, with --thread"
    assert "press 4" in plan.why_not(agents)
    assert "--thread" not in plan.why_not(agents)
