"""The verdict names the cause: a neighbour, statements, or work that waits elsewhere than in hardware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.base.model import Facts
from headrace.host.activity import Activity, summed
from headrace.host.window import Window
from headrace.hunt import users
from headrace.hunt.hunt import SqlOnly
from headrace.hunt.resources import Verdict
from headrace.hunt.rules import all_rules, judge
from headrace.hunt.rules.cause import ELSEWHERE, EXPLAINS, begun, causes_first, conclude, limited_by
from headrace.hunt.rules.evidence import Evidence
from tests.rules.binlog_cases import SLOW_COMMITS
from tests.rules.block_cases import FLUSHES, VOLATILE, WAITS
from tests.rules.flush_cases import BEHIND
from tests.rules.hardware_cases import BOUND, DIGESTS, TWO
from tests.rules.hardware_cases import FULL as OWN_WORK
from tests.rules.hosts import unwell
from tests.rules.locks_cases import BULK, FOR_NUMBERS, WAIT
from tests.rules.membership_cases import NEVER_STARTED, NODE
from tests.rules.neighbours_cases import (
    COMPILER,
    CROWD,
    FIO,
    FULL,
    OF_THE_CROWD,
    OWN_READS,
    SLOW_DISK,
)
from tests.rules.pool_cases import SMALL
from tests.rules.session_cases import JOIN, joins
from tests.rules.statements_cases import EVEN, HEAVY, SCAN, looked
from tests.rules.waits_cases import FORGOTTEN

METADATA = {
    "processlist.states.Waiting for table metadata lock": 8.0,
    "processlist.states.executing": 1.0,
    "processlist.threads.Query": 9.0,
}


def verdict(**changes: Any) -> Verdict:
    evidence = unwell(**changes)
    return conclude(evidence, judge(evidence, all_rules()))


def test_every_cause_is_a_rule() -> None:
    codes = {rule.code for rule in all_rules()}
    assert {*ELSEWHERE, *(code for each in EXPLAINS.values() for code in each)} <= codes


def test_a_healthy_host_has_no_cause() -> None:
    found = verdict()
    assert found.causes == ()
    assert found.sentence.startswith("Nothing limits this host")


def test_a_program_keeps_its_name_at_the_beginning_of_a_sentence() -> None:
    assert verdict(facts=TWO, rates=BOUND).sentence.startswith("mysqld may use 2 of 8 CPUs (0-1)")


def test_a_device_keeps_both_its_names_at_the_beginning_of_a_sentence() -> None:
    assert begun("data1 (dm-1), encryption, takes 7.0 ms", "dm-1").startswith("data1 (dm-1)")
    assert begun("tasks wait (a while)", "dm-1").startswith("Tasks wait")


def test_a_neighbour_is_the_cause_of_full_cpus() -> None:
    found = verdict(rates={**FULL, **COMPILER})
    assert found.sentence.startswith("CPU time limits this host: 99% of 8 CPUs")
    assert "Used by cc1plus (2 processes) 76%, mysqld (pid 1322) 16%." in found.sentence
    assert found.sentence.endswith(
        "Cause: cc1plus uses 76% of the busy CPU time, the server 16% (HOST01@cc1plus)."
    )
    assert found.causes == ("HOST01@cc1plus",)


def test_a_neighbour_that_uses_less_than_the_server_comes_behind_its_statements() -> None:
    own = {"process.utime_ticks.1322/mysqld": 450.0, "process.utime_ticks.501/cc1plus": 200.0}
    scans = {"handler_read_rnd_next": 9e6}
    found = verdict(rates={**FULL, **own}, status_rates=scans, activity=looked(SCAN))
    assert found.causes == ("SESS12", "HOST01@cc1plus")
    assert "seen most often: select count(*) from orders where note = ? (SESS12)" in found.sentence


def test_of_two_neighbours_the_larger_and_the_servers_own_statements_are_named() -> None:
    others = {"process.utime_ticks.501/aaa": 250.0, "process.utime_ticks.502/zzz": 300.0}
    found = verdict(
        rates={**FULL, **others}, status_rates={"handler_read_rnd_next": 9e6}, activity=looked(SCAN)
    )
    assert found.causes == ("HOST01@zzz", "SESS12")


def test_commits_that_wait_on_purpose_come_before_the_rows_that_they_keep_locked() -> None:
    rows = {"innodb_row_lock_time": 8_000.0, "innodb_row_lock_waits": 160.0}
    found = verdict(**{**SLOW_COMMITS, "status_rates": {**SLOW_COMMITS["status_rates"], **rows}})
    assert found.causes[:2] == ("BLOG04", "LOCK02")
    assert found.sentence.startswith("binlog_group_commit_sync_delay is 50,000 us: 160 commits/s wait")


def test_a_neighbour_is_the_cause_of_a_full_device() -> None:
    found = verdict(rates={**SLOW_DISK, **FIO, **OWN_READS})
    assert found.sentence.startswith("The device nvme1n1 limits this host: 18,000 reads/s")
    assert "Cause: fio reads and writes 1,100.0 MB/s, the server 100.0" in found.sentence


@pytest.mark.parametrize(
    ("pages_s", "rates", "begins"),
    [
        (4_000.0, {}, None),
        (4_000.0, FULL, None),
        (80_000.0, {}, "Statements wait: the buffer pool is 128 MiB for 2 GiB of data"),
        (80_000.0, FULL, "Cause: the buffer pool is 128 MiB for 2 GiB of data"),
    ],
)
def test_pages_read_again_and_again_are_a_cause_whether_or_not_the_cpus_are_full(
    pages_s: float, rates: dict[str, float], begins: str | None
) -> None:
    found = verdict(**{**SMALL, "rates": rates, "status_rates": {"innodb_buffer_pool_reads": pages_s}})
    assert ("POOL01" in found.causes) == (begins is not None)
    assert begins is None or begins in found.sentence


def test_sorts_in_many_parts_are_named_before_the_statement_that_sorts() -> None:
    sorts = {"sort_merge_passes": 4_000.0, "sort_scan": 200.0, "sort_rows": 8e5, "handler_read_rnd_next": 9e6}
    found = verdict(
        rates=FULL, variables={"sort_buffer_size": "1024"}, status_rates=sorts, activity=looked(SCAN)
    )
    assert found.causes == ("SESS02", "SESS12")


@pytest.mark.parametrize("rates", [{}, FULL], ids=["an idle host", "full CPUs"])
def test_sessions_that_wait_for_metadata_come_first(rates: dict[str, float]) -> None:
    found = verdict(rates=rates, gauges=METADATA)
    assert found.sentence.startswith("8.0 sessions wait for a metadata lock (LOCK04).")
    assert ("Also, CPU time limits this host" in found.sentence) == bool(rates)
    assert ("No hardware is saturated" in found.sentence) != bool(rates)
    assert found.causes[0] == "LOCK04"
    assert (found.limiting is not None) == bool(rates)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"gauges": METADATA}, "LOCK04"),
        ({"gauges": METADATA, "rates": FULL}, "cpu"),
        ({"rates": SLOW_DISK}, "block nvme1n1"),
    ],
    ids=["nothing", "a lock", "full CPUs and a lock", "a device"],
)
def test_a_host_is_limited_by_hardware_or_by_what_its_work_waits_for(
    changes: dict[str, Any], expected: str
) -> None:
    evidence = unwell(**changes)
    judgement = judge(evidence, all_rules())
    assert limited_by(conclude(evidence, judgement), judgement) == expected


def test_what_the_sentence_names_is_listed_first() -> None:
    evidence = unwell(rates={**FULL, **COMPILER}, gauges=METADATA)
    judgement = judge(evidence, all_rules())
    found = causes_first(judgement, conclude(evidence, judgement))
    assert [finding.id for finding in found.findings[:2]] == ["LOCK04", "HOST01@cc1plus"]
    assert sorted(f.id for f in found.findings) == sorted(f.id for f in judgement.findings)


def test_a_hot_row_and_refused_connections_are_both_named() -> None:
    found = verdict(
        rates=FULL,
        status_rates={
            "innodb_row_lock_time": 9_000.0,
            "innodb_row_lock_waits": 300.0,
            "connection_errors_max_connections": 40.0,
        },
    )
    assert found.causes[:2] == ("SESS08", "LOCK02")
    assert found.sentence.index("were refused") < found.sentence.index("9.0 sessions wait for a row")
    assert "Also, CPU time limits this host" in found.sentence


def test_connections_that_were_refused_long_ago_are_no_cause() -> None:
    assert verdict(status={"max_used_connections": 499.0}).causes == ()


def test_a_server_that_lets_nobody_in_is_said() -> None:
    evidence = unwell(has_server=False)
    evidence.window.errors["mysql_status"] = "error 1040: Too many connections; tried again in 2 s"
    found = conclude(evidence, judge(evidence, all_rules()))
    assert found.sentence.startswith("The server refuses connections: it has reached max_connections.")


def test_statements_that_fill_the_cpus_together_are_named_unless_nobody_counts_them() -> None:
    waited = {"psi.some_total_us.cpu": 400_000.0}
    found = verdict(rates={**OWN_WORK, **waited, **DIGESTS})
    assert found.causes == ("CPU10",)
    assert "most of the time goes to: digest 0bcdef0123456789 (25%)" in found.sentence
    assert verdict(rates={**OWN_WORK, **waited}).causes == ()


@pytest.mark.parametrize(
    ("rates", "is_cause"), [({**FLUSHES, **WAITS}, True), (FLUSHES, False)], ids=["waited for", "not"]
)
def test_flushes_of_a_volatile_cache_are_why_commits_wait(rates: dict[str, float], is_cause: bool) -> None:
    found = verdict(facts=VOLATILE, rates=rates)
    assert (found.causes == ("BLK06@nvme1n1",)) is is_cause
    assert ("Statements wait: nvme1n1 has a volatile cache" in found.sentence) is is_cause


def test_writes_in_the_background_that_fall_behind_are_said() -> None:
    found = verdict(**BEHIND, variables={"innodb_io_capacity": "200"})
    assert found.sentence.startswith("innodb_io_capacity is 200 on solid state")
    assert found.causes == ("FLUSH01",)


def test_transactions_that_spill_are_why_a_device_is_full() -> None:
    spills = {"binlog_cache_use": 300.0, "binlog_cache_disk_use": 200.0}
    assert verdict(rates=SLOW_DISK, status_rates=spills).causes == ("SESS10",)


def test_io_that_is_mostly_another_programs_is_said_also_where_the_device_has_room() -> None:
    waited = {"psi.some_total_us.io": 600_000.0}
    found = verdict(rates={**FIO, **OWN_READS, **waited})
    assert found.causes == ("HOST02@fio",)
    assert "Some of the I/O is not from the server: fio reads and writes 1,100.0 MB/s" in found.sentence
    assert verdict(rates={**FIO, **OWN_READS}).causes == ()


def test_that_nobody_counts_waits_is_said_where_nothing_else_explains_them() -> None:
    off = {"performance_schema": "OFF"}
    found = verdict(variables=off, status={"threads_running": 20.0})
    assert found.causes == ("STAT01",)
    assert found.sentence.endswith(
        "Statement waits are not recorded: performance_schema is off, with 20 threads running (STAT01)."
    )
    assert verdict(variables=off).causes == ()
    assert "STAT01" not in verdict(variables=off, status={"threads_running": 20.0}, gauges=METADATA).causes
    assert "STAT01" not in verdict(variables=off, status={"threads_running": 20.0}, rates=FULL).causes


def test_waiters_for_numbers_stand_before_what_their_inserts_fill() -> None:
    full = {"mysql_status.innodb_checkpoint_age.": 7e9, "mysql_status.innodb_checkpoint_max_age.": 7e9}
    found = verdict(
        vendor="mariadb",
        gauges={**FOR_NUMBERS, **full},
        **{key: value for key, value in BULK.items() if key != "gauges"},
    )
    assert found.causes[:2] == ("LOCK11", "REDO02")
    assert found.sentence.startswith("6.0 transactions wait for a table's AUTO_INCREMENT lock")


def test_many_programs_of_one_unit_are_one_neighbour() -> None:
    found = verdict(rates={**FULL, **CROWD}, gauges=OF_THE_CROWD)
    assert found.causes[0] == "HOST01@ci.service"


def test_processes_are_summed_by_control_group_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not again for each finding: of many processes that takes longer than most rules."""
    others = {"process.utime_ticks.501/aaa": 250.0, "process.utime_ticks.502/zzz": 300.0}
    evidence = unwell(rates={**FULL, **others})
    calls: list[Callable[[str, str], str]] = []
    count = users._by

    def counted(window: Window, key: Callable[[str, str], str]) -> list[users.Program]:
        calls.append(key)
        return count(window, key)

    monkeypatch.setattr(users, "_by", counted)
    conclude(evidence, judge(evidence, all_rules()))
    assert len([key for key in calls if "\n" in key("1", "name")]) == 1


def test_a_join_is_named_by_its_condition() -> None:
    found = verdict(
        rates={
            **OWN_WORK,
            "psi.some_total_us.cpu": 400_000.0,
            **joins("full_joins", calls=20.0, each_ms=50.0),
        },
        activity=JOIN,
    )
    assert "SESS11" in found.causes
    assert "joins on a.customer = b.customer without an index 20 times per second" in found.sentence


def test_a_transaction_whose_old_row_versions_cost_is_in_the_sentence() -> None:
    """It was the third finding, and SQL had to find whose it is."""
    oldest = {**WAIT, "lock": "open", "waiter": 0, "holder": 9, "holder_open_s": 95, "holder_user": "report"}
    piles = {"innodb_history_list_length": 2_500.0}
    known = summed([{"statements": [oldest]}])
    many = verdict(
        gauges=FORGOTTEN, status_rates=piles, status={"innodb_history_list_length": 150_000.0}, activity=known
    )
    assert many.causes[:1] == ("LOCK17",)
    assert "connection 9 of report@" in many.sentence
    assert "last statement:" in many.sentence
    few = verdict(gauges=FORGOTTEN, status_rates={"innodb_history_list_length": 1_100.0}, activity=known)
    assert "LOCK17" not in few.causes


def test_one_connection_that_others_wait_for_is_named_once() -> None:
    """What waits for a row, and whose transaction it is, were two sentences about one connection."""
    held = {
        **WAIT,
        "lock": "row",
        "holder": 7,
        "holder_open_s": 95,
        "holder_idle_s": 90,
        "holder_user": "report",
    }
    gauges = {**FORGOTTEN, "mysql_status.innodb_row_lock_current_waits.": 4.0}

    def found(**others: object) -> Verdict:
        rows = [held, {**held, "waiter": 12, **others}]
        return verdict(gauges=gauges, activity=summed([{"statements": rows} for _ in range(9)]))

    one = found()
    assert one.causes[:2] == ("LOCK02", "LOCK17")
    assert "(LOCK02, LOCK17)." in one.sentence
    assert one.sentence.count("connection 7 of report") == 1
    assert "whose last statement was select * from orders" in one.sentence


def ids(**changes: Any) -> list[str]:
    evidence = unwell(**changes)
    judgement = judge(evidence, all_rules())
    return [finding.id for finding in causes_first(judgement, conclude(evidence, judgement)).findings]


def test_one_statement_is_one_finding() -> None:
    """Its time, the rows that it examines, and the rows that scans read were three."""
    rows = {f"statements.rows_examined.{HEAVY}": 1e6, f"statements.rows_sent.{HEAVY}": 10.0}
    busy = {**EVEN, **rows, f"statements.time_ns.{HEAVY}": 5e9}
    scans = {"handler_read_rnd_next": 1e6, "select_scan": 50.0}
    found = ids(rates=busy, status_rates=scans)
    assert f"STMT02@{HEAVY}" in found
    assert not {f"STMT01@{HEAVY}", "SESS12"} & set(found)
    # Rows that others read are another matter.
    assert "SESS12" in ids(rates=busy, status_rates={**scans, "handler_read_rnd_next": 9e6})


def test_threads_that_wait_for_each_other_are_no_finding_beside_what_they_wait_for() -> None:
    stuck = {"threads_running": 64.0}
    assert "LOCK01" in ids(status=stuck)
    found = ids(status=stuck, gauges=METADATA)
    assert found[0] == "LOCK04"
    assert "LOCK01" not in found


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        (
            {"rates": {"threads.utime_ticks.1401/connection": 90.0, "threads.stime_ticks.1401/connection": 7.0}},
            "Thread 1401 (connection)",
        ),
        (
            {
                "facts": {"network_interfaces.enp1s0f0np0.duplex": "half",
                          "network_interfaces.enp1s0f0np0.speed_mbit_s": 100,
                          "virtualization": None},
                "rates": {"network.tx_bytes.enp1s0f0np0": 6e6, "network.rx_bytes.enp1s0f0np0": 6e6},
            },
            "enp1s0f0np0 runs at 100 Mbit/s, half duplex",
        ),
    ],
    ids=["a thread that many cores share", "half duplex"],
)  # fmt: skip
def test_that_nothing_limits_is_not_said_beside_a_finding_that_does(
    changes: dict[str, Any], begins: str
) -> None:
    found = verdict(**changes)
    assert found.sentence.startswith(begins)
    assert "Nothing limits" not in found.sentence


def test_deadlocks_come_before_the_waits_that_they_make() -> None:
    waits = {"innodb_row_lock_current_waits": 9.0}
    dead = {"innodb_deadlocks": 165.0, "innodb_row_lock_waits": 400.0, "innodb_row_lock_time": 9_000.0}
    found = verdict(status=waits, status_rates=dead)
    assert found.causes[0] == "LOCK03"


def alone(**more: Any) -> str:
    """By SQL alone, with nobody at work."""
    whole = unwell(**more)
    facts = SqlOnly().facts(Facts("0" * 16, dict(whole.raw)))
    evidence = Evidence(facts, whole.window, activity=Activity(9))
    return conclude(evidence, judge(evidence, all_rules())).sentence


def test_what_serves_nobody_is_said_before_what_its_sessions_do() -> None:
    node = {**NODE, "wsrep_reject_queries": "ALL"}
    said = alone(variables=node)
    assert said.startswith("This node refuses all queries (wsrep_reject_queries=ALL) (REPL15). Hardly any")
    told = alone(variables={**NODE, "wsrep_desync": "ON"}, status={"wsrep_local_state": 2.0})
    assert told.startswith("This node may fall behind its cluster: wsrep_desync is ON")
    assert alone().startswith("Hardly any session is active.")


def test_a_member_that_takes_writes_of_its_own_is_in_the_sentence_once() -> None:
    evidence = unwell(vendor="mysql", facts=NEVER_STARTED)
    judgement = judge(evidence, all_rules())
    assert "takes writes that the group does not have" in conclude(evidence, judgement).sentence


@pytest.mark.parametrize("user", [12.0, 94.0])
def test_a_desynchronised_node_comes_first_also_on_a_busy_host(user: float) -> None:
    busy = {
        f"cpu.{state}.cpu{n}": v for n in range(8) for state, v in (("user", user), ("idle", 94.0 - user))
    }
    evidence = unwell(
        rates={**busy, "psi.some_total_us.cpu": 6e5},
        variables={**NODE, "wsrep_desync": "ON"},
        status={"wsrep_local_state": 2.0},
    )
    said = conclude(evidence, judge(evidence, all_rules())).sentence
    assert said.startswith("This node may fall behind its cluster: wsrep_desync is ON")
    assert ("Also, CPU time limits this host" in said) is (user > 90)
