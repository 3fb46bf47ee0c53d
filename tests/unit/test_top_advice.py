"""`headrace top`: causes, statement text, fixes in the words of hunt, EXPLAIN trees."""

from __future__ import annotations

from dataclasses import replace

from headrace.report.live import plan
from headrace.report.live.screen import Pages, Position, draw
from headrace.report.live.shot import take
from headrace.rules import all_rules, judge
from headrace.rules.evidence import Evidence
from tests.rules.hosts import unwell
from tests.rules.locks_cases import HELD, MDL
from tests.rules.neighbours_cases import COMPILER, FULL
from tests.rules.pool_cases import SMALL
from tests.rules.statements_cases import POINT, SCAN
from tests.unit.test_top_views import T0, feed_of, shot_of, text_of


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
    assert "Prove:" not in by_hand
    settable = page(unwell(**SMALL), "POOL01")
    assert "server.innodb_buffer_pool_size = " in settable
    assert "Prove: headrace prove POOL01" in settable


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
