"""Rules about temporary tables: those on disk, and the memory that all of MySQL's TempTable share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.base.model import Vendor
from headrace.hunt.rules import at_work, sizes
from headrace.hunt.rules.evidence import MIB, Evidence, number, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs.knob import Versions

#: Temporary tables per second that go to InnoDB: few, because those that reach the limit are large, and one that
#: finds no room from the beginning is not counted: on 8.0.31, with memory for 2 of 8 sessions, 6% were.
TO_DISK_S = 0.1
#: Bytes per second in mapped files above which they are more than one odd statement.
MAPPED_BYTES_S = 4 * MIB
#: A share of the limit at which a block of up to 512 MiB may not fit; samples are seconds apart.
NEAR = 0.75
#: Temporary tables on disk: per second, and as a share of all.
DISK_TABLES_S, DISK_TABLES = 5.0, 0.25
#: So many cost something, however many others stay in memory.
MANY_DISK_TABLES_S = 50.0
#: CPU seconds per second above which they are a cost: a twentieth of a core.
DISK_TABLES_COST_S = 0.05
#: Before it a temporary table had no limit of its own, and all went to disk for the limit that they share.
OWN_LIMIT = sizes.BOUNDED_TEMPTABLE
TEMPTABLE: Mapping[Vendor, Versions] = {
    Vendor.MYSQL: Versions(since="8.0.13"),
    Vendor.PERCONA: Versions(since="8.0.13"),
}


#: CPU seconds of one temporary table on disk beside the same in memory, and of a row in it. Measured on MariaDB
#: 10.11 (Aria) and MySQL 8.0.31 (InnoDB): 0.25 and 0.15 ms a table, 3.5 to 4.4 and 1.7 us a row.
TABLE_S: Mapping[Vendor, float] = {Vendor.MARIADB: 250e-6, Vendor.MYSQL: 150e-6, Vendor.PERCONA: 150e-6}
ROW_S: Mapping[Vendor, float] = {Vendor.MARIADB: 3.5e-6, Vendor.MYSQL: 1.7e-6, Vendor.PERCONA: 1.7e-6}
#: Statements that insert rows of their own, which InnoDB counts together with those of its temporary tables.
INSERTING = ("com_insert", "com_insert_select", "com_replace", "com_replace_select", "com_load")


def rows_on_disk(evidence: Evidence) -> float | None:
    """Rows per second that go to temporary tables on disk, by the server's status; None where it does not tell.

    MariaDB's Aria counts one request for each, and has hardly any other tables; MySQL's InnoDB counts them among
    all its inserted rows, which are theirs only if nothing else inserts.
    """
    rate = evidence.window.rate
    if evidence.vendor is Vendor.MARIADB:
        return rate("mysql_status", "aria_pagecache_write_requests")
    if any((rate("mysql_status", name) or 0.0) > 0 for name in INSERTING):
        return None
    return rate("mysql_status", "innodb_rows_inserted")


def time_on_disk(evidence: Evidence) -> float:
    """CPU seconds per second, at least, that temporary tables on disk take more than in memory."""
    tables = evidence.window.rate("mysql_status", "created_tmp_disk_tables") or 0.0
    if not tables or evidence.vendor not in TABLE_S:
        return 0.0
    return TABLE_S[evidence.vendor] * tables + ROW_S[evidence.vendor] * (rows_on_disk(evidence) or 0.0)


def for_lack_of_shared_memory(evidence: Evidence) -> float:
    """Temporary tables per second that went to InnoDB because all together reached ``temptable_max_ram``.

    Newer versions count them. For others the memory in use has to be near the limit, and files not allowed.
    """
    if not sizes.is_temptable(evidence):
        return 0.0
    counted = evidence.window.rate("mysql_status", "temptable_count_hit_max_ram")
    if counted is not None:
        return counted
    on_disk = evidence.window.rate("mysql_status", "created_tmp_disk_tables") or 0.0
    if evidence.version not in OWN_LIMIT:
        return on_disk
    used = evidence.window.gauge("temptable", "bytes", "ram")
    is_full = used is not None and used.high >= NEAR * evidence.number("temptable_max_ram")
    return on_disk if is_full else 0.0


@rule(
    "SESS03",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Internal Temporary Table Use in MySQL (TempTable: temptable_max_ram, and "
    "tmp_table_size from 8.0.28); MariaDB, tmp_memory_table_size",
    refute="With the larger limit, fewer temporary tables are created on disk, but throughput and p99 are "
    "equivalent.",
)
def temporary_tables_on_disk(evidence: Evidence) -> Iterator[Match]:
    """Many temporary tables are created on disk.

    They outgrow their memory limit, or hold columns that in-memory tables cannot. The statement then waits for
    files that are never read again. That is a cost where sessions are seen at it, where the statements that do it
    take long, or where the tables and rows that the server's status counts take CPU time; else it may be one.
    """
    on_disk, made = (evidence.status_rate(name) for name in ("created_tmp_disk_tables", "created_tmp_tables"))
    counted = time_on_disk(evidence)
    # A few of many rows each cost as much as many small ones.
    is_seldom = on_disk < DISK_TABLES_S or on_disk < min(DISK_TABLES * made, MANY_DISK_TABLES_S)
    if is_seldom and counted < DISK_TABLES_COST_S:
        return
    if for_lack_of_shared_memory(evidence) > on_disk / 2:
        return  # SESS21 has them
    names = ("tmp_table_size", "max_heap_table_size")
    if sizes.is_temptable(evidence):
        names = ("tmp_table_size", "temptable_max_ram")
    limits = {name: evidence.number(name) for name in names}
    grown = sizes.temporary_tables(evidence)
    steps = Remedy(
        steps=(
            "Find the statements (performance_schema.events_statements_summary_by_digest, "
            "SUM_CREATED_TMP_DISK_TABLES).",
            "Give them an index for GROUP BY or DISTINCT, or avoid BLOB and TEXT columns there.",
        ),
        label="statements",
    )
    larger = (Remedy(grown, label="more memory"),) if grown else ()
    cost = at_work.cost_of(evidence, at_work.TABLES[0], at_work.TABLES, "tmp_disk_tables")
    rows = rows_on_disk(evidence)
    is_counted = counted >= DISK_TABLES_COST_S
    clause = cost.clause
    if is_counted and not cost.is_high:
        clause = (
            f"writing them takes about {counted:.2f} s of CPU time per second, by the tables and rows counted"
        )
    yield Match(
        "",
        f"{on_disk:,.{1 if on_disk < 5 else 0}f} of {made:,.0f} temporary tables/s are created on disk; the "
        f"limit is {size(min(limits.values()))}: {clause}.",
        (
            number("Created_tmp_disk_tables/s", on_disk, ",.1f"),
            number("Created_tmp_tables/s", made, ",.1f"),
            *(number(name, size(value)) for name, value in limits.items()),
            number("rows on disk/s", "unknown" if rows is None else rows, ",.0f"),
            number("CPU time more than in memory, s/s", counted, ",.3f"),
            *cost.shown(),
        ),
        (*larger, steps),
        Severity.COST
        if cost.is_high or is_counted or (cost.statements_s or 0.0) >= at_work.SESSIONS
        else None,
    )


@rule(
    "SESS21",
    severity=Severity.ADVICE,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Internal Temporary Table Use in MySQL: temptable_max_ram, temptable_max_mmap "
    "(0 from 8.4 on), Created_tmp_disk_tables does not count mapped files; TempTable_count_hit_max_ram; "
    "storage/temptable/include/temptable/allocator.h; sql/sql_tmp_table.cc, create_tmp_table_with_fallback (a "
    "table that finds no room from the beginning is not counted)",
    refute="With the larger limit, no bytes are taken from files and fewer tables go to InnoDB, but throughput "
    "and p99 are equivalent.",
    applies_to=TEMPTABLE,
)
def shared_memory_is_used_up(evidence: Evidence) -> Iterator[Match]:
    """Temporary tables of all sessions together reach temptable_max_ram.

    What does not fit goes to files in tmpdir that are mapped into memory, as far as temptable_max_mmap allows, and
    then to InnoDB, which copies the whole table and makes the statement wait for it. The status variable
    Created_tmp_disk_tables counts no mapped files, and only those InnoDB tables that started in memory.
    Whether mapped files cost time depends on how long they live: the kernel writes them out like any dirty pages,
    and on a tmpfs they are memory that no limit of the server counts as such.
    """
    if not sizes.is_temptable(evidence):
        return
    limit = evidence.number("temptable_max_ram")
    mapped = evidence.window.rate("temptable", "bytes_taken", "disk")
    to_innodb = for_lack_of_shared_memory(evidence)
    if mapped is None and not to_innodb:
        evidence.rate("temptable", "bytes_taken", "disk")  # raises NotEnough
    made = evidence.status_rate("created_tmp_tables")
    is_mapped = (mapped or 0.0) >= MAPPED_BYTES_S
    is_copied = to_innodb >= TO_DISK_S
    if not is_mapped and not is_copied:
        return
    where = [f"{to_innodb:,.1f} tables/s go to InnoDB"] if is_copied else []
    where += (
        [f"{size(mapped or 0.0)}/s go to mapped files in {evidence.variable('tmpdir')}"] if is_mapped else []
    )
    used = evidence.window.gauge("temptable", "bytes", "ram")
    on_disk = evidence.window.gauge("temptable", "bytes", "disk")
    larger = sizes.shared_temporary_memory(evidence)
    yield Match(
        "",
        f"temporary tables have used up temptable_max_ram ({size(limit)}): {' and '.join(where)}.",
        (
            number("temptable_max_ram", size(limit)),
            *((number("in memory, most", size(used.high)),) if used else ()),
            *((number("in mapped files, most", size(on_disk.high)),) if on_disk else ()),
            number("in mapped files, taken/s", "unknown" if mapped is None else size(mapped)),
            number("tables to InnoDB for it/s", to_innodb, ",.1f"),
            number("Created_tmp_tables/s", made, ",.1f"),
        ),
        (
            *((Remedy(larger, label="more memory"),) if larger else ()),
            Remedy(
                steps=(
                    "Find the statements: performance_schema.memory_summary_by_thread_by_event_name, "
                    "memory/temptable/physical_ram and physical_disk.",
                    "Give them an index for GROUP BY or DISTINCT, or fewer and shorter columns there.",
                ),
                label="statements",
            ),
        ),
        Severity.COST if is_copied else None,
    )
