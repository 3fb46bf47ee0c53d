"""Cases of the rules about sessions."""

from __future__ import annotations

from dataclasses import replace

from headrace.host.activity import Activity, Digest, SessionGroup, StatementClass
from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.rules.rule import Severity
from headrace.hunt.rules.temporary import INSERTING
from tests.rules.case import Case
from tests.rules.hosts import unwell

MIB = 1 << 20
CACHE = {"query_cache_type": "ON", "query_cache_size": str(64 * MIB)}
OPENED = {"opened_tables": 40.0}
DEFINITIONS = {"opened_table_definitions": 9.0}
MANY_TABLES = [{"engine": "InnoDB", "tables": 300, "rows": 10**6, "data_bytes": 1 << 30, "index_bytes": 0}]


def without(status: str, evidence: Evidence) -> Evidence:
    """A host whose server is of a version without this status variable."""
    del evidence.window._index["mysql_status", status]
    return evidence


def sorting(state: str) -> Activity:
    """Three sessions in this state, on average, and one that executes something else."""
    each = SessionGroup("select a from t order by b", "Query", state, "app", "10.0.0.7", "", "", 0, 30)
    return Activity(10, sessions=(each, replace(each, text="select ?", state="executing", sightings=10)))


JOIN = Activity(
    10,
    digests=(
        Digest(
            "5e5511ffffff0000aaaa",
            "SELECT COUNT ( * ) FROM `orders` `a` JOIN `orders` `b` ON `a` . `customer` = `b` . `customer` + ? "
            "WHERE `a` . `id` < ? AND `b` . `total` > `b` . `paid`",
            "shop",
            ("shop.orders",),
        ),
    ),
)

SEEN_JOIN = Activity(
    10,
    (
        StatementClass(
            "select count(*) from orders a join orders b on a.customer = b.customer + ?",
            ("shop.orders",),
            ("app",),
            40,
            5.0,
            9e6,
        ),
    ),
)


def joins(kind: str, calls: float, each_ms: float) -> dict[str, float]:
    """A class of statements that joins, beside another one of 1 s per second."""
    found = {
        "count": calls,
        kind: calls,
        "time_ns": calls * each_ms * 1e6,
        "rows_examined": 40.0 * calls,
        "rows_sent": calls,
    }
    others = {"statements.time_ns.0000ffff0000ffff": 1e9}
    return {f"statements.{metric}.5e5511ffffff0000": rate for metric, rate in found.items()} | others


CASES = [
    Case(
        "SESS01",
        "256 MB for every sort",
        lambda: unwell(variables={"sort_buffer_size": str(256 * MIB)}),
        ("",),
        ("sort_buffer_size 256 MiB: 140 concurrent sessions could take 35.1 GiB for their buffers",),
        sets=({"server.sort_buffer_size": 2 * MIB},),
        severity=Severity.RISK,
    ),
    Case(
        "SESS01",
        "each fits, and all together do not",
        lambda: unwell(
            variables={f"{name}_buffer_size": str(32 * MIB) for name in ("sort", "join", "read", "read_rnd")}
        ),
        ("",),
        ("140 concurrent sessions could take 17.5 GiB",),
        severity=Severity.RISK,
    ),
    Case(
        "SESS01",
        "MySQL takes as much as a sort or a hash join needs",
        lambda: unwell(
            vendor="mysql", variables={"sort_buffer_size": str(4 * MIB), "join_buffer_size": str(8 * MIB)}
        ),
    ),
    Case(
        "SESS01",
        "MySQL 5.7 takes all of it",
        lambda: unwell(vendor="mysql", version="5.7.44", variables={"sort_buffer_size": str(4 * MIB)}),
        ("",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "SESS01",
        "all of them in MySQL",
        lambda: unwell(
            vendor="mysql",
            variables={
                "sort_buffer_size": str(4 * MIB),
                "join_buffer_size": str(8 * MIB),
                "read_buffer_size": str(2 * MIB),
                "read_rnd_buffer_size": str(8 * MIB),
            },
        ),
        ("",),
        sets=({"server.read_buffer_size": 128 << 10, "server.read_rnd_buffer_size": 256 << 10},),
    ),
    Case(
        "SESS01",
        "sorts need it",
        lambda: unwell(
            variables={"sort_buffer_size": str(32 * MIB)}, status_rates={"sort_merge_passes": 50.0}
        ),
    ),
    Case(
        "SESS01",
        "joins without an index need it",
        lambda: unwell(
            vendor="mysql",
            variables={"join_buffer_size": str(256 * MIB), "read_buffer_size": str(2 * MIB)},
            status_rates={"select_full_join": 40.0},
        ),
        ("",),
        # Less of it sends their hash joins to files.
        sets=({"server.read_buffer_size": 128 << 10},),
        severity=Severity.RISK,
    ),
    Case("SESS01", "the defaults", unwell),
    Case("SESS01", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "SESS02",
        "fifty passes",
        lambda: unwell(status_rates={"sort_merge_passes": 50.0}),
        ("",),
        ("50 merge passes/s with a buffer of 2 MiB",),
        # 8 MiB for each of 140 sessions would take too much of what is available.
        sets=({"server.sort_buffer_size": 4 * MIB},),
        severity=Severity.ADVICE,
    ),
    Case(
        "SESS02",
        "far below the default",
        lambda: unwell(
            variables={"sort_buffer_size": "1024"},
            status_rates={"sort_merge_passes": 4_000.0, "sort_scan": 200.0, "sort_rows": 8e5},
        ),
        ("",),
        sets=({"server.sort_buffer_size": 2 * MIB},),
        severity=Severity.COST,
    ),
    Case(
        "SESS02",
        "no memory for that many sessions",
        lambda: unwell(
            variables={"sort_buffer_size": "1024"},
            status_rates={"sort_merge_passes": 4_000.0},
            status={"max_used_connections": 40_000.0},
            vendor="mysql",
        ),
        ("",),
        # Not more than the default.
        sets=({"server.sort_buffer_size": 256 << 10},),
    ),
    Case(
        "SESS02",
        "sessions sort, and no more memory can be given",
        lambda: unwell(
            variables={"sort_buffer_size": str(2 * MIB)},
            status_rates={"sort_merge_passes": 50.0, "sort_scan": 5.0},
            status={"max_used_connections": 40_000.0},
            activity=sorting("Creating sort index"),
        ),
        ("",),
        ("50 merge passes/s with a buffer of 2 MiB: 3.0 of 4.0 active sessions sort on average",),
        severity=Severity.COST,
    ),
    Case(
        "SESS02",
        "sessions sort in memory, and few sorts merge",
        lambda: unwell(
            status_rates={"sort_merge_passes": 50.0, "sort_scan": 5_000.0},
            activity=sorting("Creating sort index"),
        ),
        ("",),
        severity=Severity.ADVICE,
    ),
    Case(
        "SESS02",
        "no state tells, but classes of statements do",
        lambda: unwell(
            status_rates={"sort_merge_passes": 50.0},
            rates={
                "statements.time_ns.0a1b2c3d4e5f6071": 2.5e9,
                "statements.time_ns.8899aabbccddeeff": 1e9,
                "statements.sort_merge_passes.0a1b2c3d4e5f6071": 50.0,
                "statements.sort_merge_passes.8899aabbccddeeff": 0.0,
            },
            activity=sorting("executing"),
        ),
        ("",),
        ("2 MiB: the statements that make them take 2.50 s per second in all",),
        severity=Severity.ADVICE,
    ),
    Case(
        "SESS02",
        "nothing tells the time",
        lambda: unwell(status_rates={"sort_merge_passes": 50.0}, activity=sorting("executing")),
        ("",),
        ("no state shows a session that would sort, so their time is unknown: performance_schema",),
        severity=Severity.ADVICE,
    ),
    Case("SESS02", "none", unwell),
    Case("SESS02", "not sampled", lambda: unwell(without=["mysql_status"]), missing="merge_passes was not"),
    Case(
        "SESS03",
        "half",
        lambda: unwell(status_rates={"created_tmp_disk_tables": 10.0}),
        ("",),
        ("10 of 20 temporary tables/s are created on disk; the limit is 16 MiB",),
        sets=({"server.tmp_table_size": 64 * MIB, "server.max_heap_table_size": 64 * MIB}, {}),
    ),
    Case(
        "SESS03",
        "none in memory at all",
        lambda: unwell(variables={"tmp_table_size": "0"}, status_rates={"created_tmp_disk_tables": 10.0}),
        ("",),
        ("the limit is 0 bytes",),
        sets=({"server.tmp_table_size": 16 * MIB}, {}),
    ),
    Case(
        "SESS03",
        "TempTable has limits of its own",
        lambda: unwell(
            vendor="mysql",
            variables={"temptable_max_ram": str(2 * MIB)},
            status_rates={"created_tmp_disk_tables": 10.0},
        ),
        ("",),
        ("the limit is 2 MiB",),
        sets=({"server.tmp_table_size": 64 * MIB, "server.temptable_max_ram": 1 << 30}, {}),
    ),
    Case(
        "SESS03",
        "many among very many",
        lambda: unwell(status_rates={"created_tmp_disk_tables": 90.0, "created_tmp_tables": 2_000.0}),
        ("",),
        ("90 of 2,000 temporary tables/s",),
    ),
    Case(
        "SESS03",
        "some among many",
        lambda: unwell(status_rates={"created_tmp_disk_tables": 20.0, "created_tmp_tables": 2_000.0}),
    ),
    Case(
        "SESS03",
        "sessions fill them",
        lambda: unwell(
            status_rates={"created_tmp_disk_tables": 10.0}, activity=sorting("Copying to tmp table on disk")
        ),
        ("",),
        ("the limit is 16 MiB: 3.0 of 4.0 active sessions fill temporary tables on average",),
    ),
    Case(
        "SESS03",
        "nothing shows that they cost",
        lambda: unwell(status_rates={"created_tmp_disk_tables": 10.0}),
        ("",),
        ("the limit is 16 MiB: the time that they take is unknown",),
        severity=Severity.ADVICE,
    ),
    Case(
        "SESS03",
        "many rows in few, as Aria counts them",
        lambda: unwell(
            status_rates={"created_tmp_disk_tables": 2.0, "aria_pagecache_write_requests": 80_000.0}
        ),
        ("",),
        (
            "2.0 of 20 temporary tables/s are created on disk; the limit is 16 MiB: writing them takes about "
            "0.28 s of CPU time per second",
        ),
        severity=Severity.COST,
    ),
    Case(
        "SESS03",
        "many small ones",
        lambda: unwell(status_rates={"created_tmp_disk_tables": 400.0, "created_tmp_tables": 900.0}),
        ("",),
        ("writing them takes about 0.10 s of CPU time per second",),
        severity=Severity.COST,
    ),
    Case(
        "SESS03",
        "rows that InnoDB inserts for nobody else",
        lambda: unwell(
            vendor="mysql",
            status_rates={
                "created_tmp_disk_tables": 2.0,
                "innodb_rows_inserted": 90_000.0,
                **dict.fromkeys(INSERTING, 0.0),
            },
        ),
        ("",),
        ("writing them takes about 0.15 s of CPU time per second",),
        severity=Severity.COST,
    ),
    Case(
        "SESS03",
        "rows that statements insert",
        lambda: unwell(
            vendor="mysql", status_rates={"created_tmp_disk_tables": 2.0, "innodb_rows_inserted": 90_000.0}
        ),
    ),
    Case("SESS03", "few", lambda: unwell(status_rates={"created_tmp_disk_tables": 1.0})),
    Case(
        "SESS03", "not sampled", lambda: unwell(without=["mysql_status"]), missing="tmp_disk_tables was not"
    ),
    Case(
        "SESS04",
        "on",
        lambda: unwell(variables=CACHE, status_rates={"qcache_hits": 200.0}),
        ("",),
        ("the query cache has 64 MiB and 200 hits/s, while 800 statements/s change tables",),
    ),
    Case("SESS04", "off", unwell),
    Case(
        "SESS04",
        "nothing changes",
        lambda: unwell(variables=CACHE, status_rates={"com_insert": 0.0, "com_update": 0.0}),
    ),
    Case("SESS04", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "SESS05",
        "five a second",
        lambda: unwell(variables={"thread_cache_size": "4"}, status_rates={"threads_created": 5.0}),
        ("",),
        ("5.0 threads/s are created for 0.5 connections/s; 4 are cached",),
    ),
    Case(
        "SESS05",
        "connections that come for the first time",
        lambda: unwell(status={"max_used_connections": 90.0}, status_rates={"threads_created": 5.0}),
    ),
    Case(
        "SESS05",
        "clients that connect and stay",
        lambda: unwell(
            variables={"thread_cache_size": "4"},
            status_rates={"threads_created": 5.0, "threads_connected": 5.0},
        ),
    ),
    Case(
        "SESS05",
        "a pool of threads",
        lambda: unwell(
            variables={"thread_handling": "pool-of-threads"}, status_rates={"threads_created": 5.0}
        ),
    ),
    Case("SESS05", "few", unwell),
    Case(
        "SESS05", "not sampled", lambda: unwell(without=["mysql_status"]), missing="threads_connected was not"
    ),
    Case(
        "SESS06",
        "full",
        lambda: unwell(status_rates=OPENED, status={"open_tables": 4_000.0}),
        ("",),
        ("40 tables/s are opened; 4,000 of 4,000 entries",),
        sets=({"server.table_open_cache": 16_384},),
    ),
    Case(
        "SESS06",
        "ten entries",
        lambda: unwell(
            status_rates={"opened_tables": 18_000.0},
            status={"open_tables": 10.0, "max_used_connections": 8.0},
            variables={"table_open_cache": "10"},
        ),
        ("",),
        # 120 tables for 8 sessions are fewer than the default has room for.
        sets=({"server.table_open_cache": 2_000},),
    ),
    Case(
        "SESS06",
        "few clients of MySQL, each of which fills its part only",
        lambda: unwell(
            vendor="mysql",
            status_rates={"opened_tables": 5_000.0, "table_open_cache_overflows": 5_000.0},
            status={"open_tables": 34.0, "max_used_connections": 4.0},
            variables={"table_open_cache": "64"},
            engines=MANY_TABLES,
        ),
        ("",),
        ("5,000 tables/s are opened; 34 of 64 entries",),
        # Each of the 16 parts needs room for all 300 tables.
        sets=({"server.table_open_cache": 4_800},),
    ),
    Case(
        "SESS06",
        "too few files",
        lambda: unwell(
            status_rates=OPENED, status={"open_tables": 4_000.0}, variables={"open_files_limit": "10000"}
        ),
        ("",),
    ),
    Case("SESS06", "being filled", lambda: unwell(status_rates=OPENED)),
    Case("SESS06", "not sampled", lambda: unwell(without=["mysql_status"]), missing="opened_tables was not"),
    Case(
        "SESS07",
        "full",
        lambda: unwell(status_rates=DEFINITIONS, status={"open_table_definitions": 2_000.0}),
        ("",),
        ("9.0 definitions/s are read; 2,000 of 2,000",),
        sets=({"server.table_definition_cache": 4_000},),
    ),
    Case(
        "SESS07",
        "no memory for more",
        lambda: unwell(
            status_rates=DEFINITIONS,
            status={"open_table_definitions": 2_000.0},
            gauges={"memory.MemAvailable.": 2.0 * (1 << 30)},
        ),
        ("",),
        sets=({},),
        steps=("Free memory",),
    ),
    Case("SESS07", "room", lambda: unwell(status_rates=DEFINITIONS)),
    Case("SESS07", "not sampled", lambda: unwell(without=["mysql_status"]), missing="definitions was not"),
    Case(
        "SESS08",
        "480 of 500",
        lambda: unwell(status={"max_used_connections": 480.0}),
        ("",),
        ("up to 480 of 500 connections were used since the server's start",),
        sets=({}, {"server.max_connections": 750}),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "SESS08",
        "480 of 500 now",
        lambda: unwell(status={"max_used_connections": 480.0, "threads_connected": 478.0}),
        ("",),
        ("up to 480 of 500 connections", "0 were refused"),
        severity=Severity.RISK,
    ),
    Case(
        "SESS08",
        "no memory for more sessions",
        lambda: unwell(
            status={"max_used_connections": 480.0}, gauges={"memory.MemAvailable.": 2.0 * (1 << 30)}
        ),
        ("",),
        sets=({},),
    ),
    Case(
        "SESS08",
        "refused",
        lambda: unwell(status_rates={"connection_errors_max_connections": 0.5}),
        ("",),
        ("30 were refused",),
    ),
    Case(
        "SESS08",
        "those who reach the administrator's connection are refused as failed logins",
        lambda: unwell(
            status={"max_used_connections": 501.0, "threads_connected": 500.0},
            status_rates={"connection_errors_max_connections": 0.05, "aborted_connects": 2.0},
        ),
        ("",),
        ("all 500 connections and the reserved one", "3 to 120 were refused"),
        severity=Severity.RISK,
        steps=("Who holds them: SELECT user",),
    ),
    Case(
        "SESS08",
        "all are taken, and the server does not count refusals",
        lambda: without(
            "connection_errors_max_connections",
            unwell(vendor="mysql", status={"max_used_connections": 501.0, "threads_connected": 500.0}),
        ),
        ("",),
        (
            "all 500 connections and the reserved one",
            "500 are now, and this version does not count how many are refused.",
        ),
        severity=Severity.RISK,
    ),
    Case("SESS08", "140", unwell),
    Case(
        "SESS08", "not sampled", lambda: unwell(without=["mysql_status"]), missing="max_used_connections was"
    ),
    Case(
        "SESS09",
        "three a second",
        lambda: unwell(status_rates={"aborted_connects": 3.0, "connections": 8.0}),
        ("",),
        ("3.0 of 8.0 connections/s fail",),
    ),
    Case(
        "SESS09",
        "wrong passwords",
        lambda: unwell(
            variables={"skip_name_resolve": "OFF", "max_connect_errors": "1"},
            status_rates={"aborted_connects": 3.0, "access_denied_errors": 2.9, "connections": 8.0},
        ),
        ("",),
        ("3.0 of 8.0 connections/s fail; 2.9 of them are denied access",),
        steps=("error 1129: FLUSH HOSTS, and raise max_connect_errors from 1", "Find the clients"),
    ),
    Case("SESS09", "none", unwell),
    Case(
        "SESS09",
        "failures that are no connections",
        lambda: unwell(status_rates={"aborted_connects": 1.9, "connections": 0.1}),
        ("",),
        ("1.9 attempts to connect fail per second",),
    ),
    Case("SESS09", "not sampled", lambda: unwell(without=["mysql_status"]), missing="aborted_connects was"),
    Case(
        "SESS10",
        "a third",
        lambda: unwell(status_rates={"binlog_cache_use": 30.0, "binlog_cache_disk_use": 10.0}),
        ("",),
        ("10.0 of 30.0 transactions/s do not fit into the binary log cache of 32 KiB",),
        sets=({"server.binlog_cache_size": 128 << 10},),
    ),
    Case(
        "SESS10",
        "one in ten seconds",
        lambda: unwell(status_rates={"binlog_cache_use": 0.3, "binlog_cache_disk_use": 0.1}),
    ),
    Case(
        "SESS10",
        "no memory for that many sessions",
        lambda: unwell(
            variables={"binlog_cache_size": str(4 * MIB)},
            status={"max_used_connections": 4_000.0},
            status_rates={"binlog_cache_use": 30.0, "binlog_cache_disk_use": 10.0},
        ),
        ("",),
        sets=({},),
    ),
    Case("SESS10", "none", unwell),
    Case(
        "SESS10", "not sampled", lambda: unwell(without=["mysql_status"]), missing="binlog_cache_use was not"
    ),
    Case(
        "SESS11",
        "many, not counted by class",
        lambda: unwell(status_rates={"select_full_join": 20.0, "handler_read_rnd_next": 200_000.0}),
        ("",),
        ("20 joins/s read a whole table",),
        severity=Severity.COST,
    ),
    Case(
        "SESS11",
        "many of a small table",
        lambda: unwell(status_rates={"select_full_join": 20.0}),
        ("",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "SESS11",
        "a whole table, by its statement",
        lambda: unwell(
            status_rates={"select_full_join": 20.0},
            rates=joins("full_joins", calls=20.0, each_ms=50.0),
            activity=JOIN,
        ),
        ("",),
        ("joins on a.customer = b.customer without an index 20 times per second, 50.0 ms each: 50% of",),
        steps=("add an index on one side of a.customer = b.customer",),
        severity=Severity.COST,
    ),
    Case(
        "SESS11",
        "a long range, by its statement",
        lambda: unwell(rates=joins("range_joins", calls=200.0, each_ms=15.0), activity=JOIN),
        ("",),
        ("without an index 200 times per second, 15.0 ms each: 75% of the time",),
        severity=Severity.COST,
    ),
    Case(
        "SESS11",
        "few that take seconds, by their statement",
        lambda: unwell(
            status_rates={"select_full_join": 0.8},
            rates=joins("full_joins", calls=0.8, each_ms=5_000.0),
            activity=JOIN,
        ),
        ("",),
        ("without an index 0.8 times per second, 5,000.0 ms each: 80% of the time",),
        severity=Severity.COST,
    ),
    Case(
        "SESS11",
        "few that take seconds, in the process list",
        lambda: unwell(
            status_rates={"select_full_join": 0.8, "handler_read_rnd_next": 4e6}, activity=SEEN_JOIN
        ),
        ("",),
        ("0.8 joins/s read a whole table; scans read 4,000,000 rows/s; seen most often: select",),
        severity=Severity.COST,
    ),
    Case(
        "SESS11",
        "few, beside scans of one table",
        lambda: unwell(status_rates={"select_full_join": 0.8, "handler_read_rnd_next": 4e6}),
    ),
    Case("SESS11", "short ranges", lambda: unwell(rates=joins("range_joins", calls=200.0, each_ms=0.3))),
    Case(
        "SESS11",
        "whole tables of ten rows, by their statement",
        lambda: unwell(
            status_rates={"select_full_join": 20.0, "handler_read_rnd_next": 200_000.0},
            rates=joins("full_joins", calls=20.0, each_ms=0.1),
        ),
        ("",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case("SESS11", "none", unwell),
    Case("SESS11", "not sampled", lambda: unwell(without=["mysql_status"]), missing="full_join was not"),
    Case(
        "SESS12",
        "two million rows",
        lambda: unwell(status_rates={"handler_read_rnd_next": 2e6}),
        ("",),
        ("2,000,000 rows/s are read by scans, 40,000 by an index",),
    ),
    Case("SESS12", "few", unwell),
    Case("SESS12", "not sampled", lambda: unwell(without=["mysql_status"]), missing="rnd_next was not"),
    Case(
        "SESS13",
        "16,000",
        lambda: unwell(status={"prepared_stmt_count": 16_000.0}),
        ("",),
        ("16,000 of 16,382 prepared statements",),
        # 267 for each of 60 sessions would be 133,333 for the 500 that may come: as many as memory has room for.
        sets=({}, {"server.max_prepared_stmt_count": 67_987}),
        steps=("Close them",),
    ),
    Case(
        "SESS13",
        "more and more for the same sessions",
        lambda: unwell(status={"prepared_stmt_count": 15_000.0}, status_rates={"prepared_stmt_count": 20.0}),
        ("",),
        # A higher limit would be reached as well.
        sets=({},),
    ),
    Case("SESS13", "none", unwell),
    Case("SESS13", "not sampled", lambda: unwell(without=["mysql_status"]), missing="stmt_count was not"),
]
