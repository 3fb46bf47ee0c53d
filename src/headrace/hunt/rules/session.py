"""Rules about sessions: their buffers, temporary tables, threads, open tables and limits."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.model import Vendor
from headrace.hunt.rules import at_work, sizes, statements
from headrace.hunt.rules.evidence import Evidence, number, share, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs.knob import Versions

#: This many times the default is no longer rounding. The manual: a larger one only in sessions that need it.
TIMES_DEFAULT = 8
#: MySQL takes memory for sorts from 8.0.12 on, and for hash joins from 8.0.18 on, as the rows come.
IN_STEPS = {"sort_buffer_size": Versions(since="8.0.12"), "join_buffer_size": Versions(since="8.0.18")}
#: Merge passes per second above which the sort buffer is in use and too small.
MERGES_S = 10.0
#: As many merge passes, and one per sort, cost more than a remark: each writes and reads the sort's rows again.
MERGES_COST_S = 200.0
#: Changes per second; each invalidates the query cache's entries for its table, under its one lock.
CHANGES_S = 10.0
#: Threads created per second above which their cost shows; the manual says "many".
CREATED_S = 1.0
#: Tables opened per second because others had to be closed.
OPENED_S = 10.0
#: Nearly at a limit.
NEAR = 0.85
#: Failed connections per second: more than typing errors.
ABORTED_S = 1.0
#: Counters of them by cause, as far as a vendor has them.
WHY_ABORTED = {
    "access_denied_errors": "are denied access",
    "aborted_connects_preauth": "end before the client sends its login",
    "connection_errors_max_connections": "find no free connection",
    "connection_errors_internal": "fail inside the server",
}
#: Connections one by one are not sampled: on a server that is short of them that would be thousands of rows.
HOLDERS = (
    "SELECT user, SUBSTRING_INDEX(host, ':', 1) AS client, COUNT(*), MAX(time) FROM "
    "information_schema.PROCESSLIST GROUP BY 1, 2 ORDER BY 3 DESC;"
)
#: Transactions too large for the binary log cache: as a share of all, and per second.
SPILLED, SPILLED_S = 0.05, 5.0
#: Joins per second that read a whole table for each row of another ...
FULL_JOINS_S = 5.0
#: ... and rows that each reads: fewer are compared in less time than an index takes to look up.
JOINED_ROWS = 500.0
#: The same by the time of a class of statements: of each, as a share of all, and in seconds per second, where
#: each is so slow that they are few.
JOINED_MS, JOINED_SHARE, JOINED_S = 1.0, 0.1, 0.5
#: Classes of the process list among which a join is looked for.
SEEN = 5

_VARIABLES = "MySQL Reference Manual, Server System Variables"
_STATUS = "MySQL Reference Manual, Server Status Variables"


@rule(
    "SESS01",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, sort_buffer_size (allocated as needed from 8.0.12), join_buffer_size; Hash "
    "Join Optimization (8.0.18: a hash join that does not fit goes to files)",
    refute="With the default, throughput is lower or p99 higher, or Sort_merge_passes rises.",
)
def buffers_of_every_session(evidence: Evidence) -> Iterator[Match]:
    """Per-session buffers are set high for all sessions.

    They are allocated for each sort, join or scan, and above 256 KiB and 2 MiB allocation itself gets slower;
    newer MySQL takes only what a sort or a hash join needs. If all sessions use their buffers at the same time,
    the sum counts.
    """
    merges = evidence.status_per_second("sort_merge_passes")
    connected = sizes.sessions(evidence)
    values = {name: evidence.number(name) for name in sizes.SESSION_BUFFERS}
    needed = {
        "sort_buffer_size": merges >= MERGES_S,
        # A hash join with less of it goes to files; before there were any, blocks of rows were scanned for.
        "join_buffer_size": evidence.status_per_second("select_full_join") >= FULL_JOINS_S,
    }
    high = [
        name
        for name, value in values.items()
        if value >= TIMES_DEFAULT * sizes.default(evidence, name) and not needed.get(name)
    ]
    total = sum(values.values()) * connected
    # Of a server alone, what was given of its host is not what is available there.
    available = evidence.available_bytes() if evidence.has_host else None
    is_risk = available is not None and total > available
    wasted = [name for name in high if evidence.version not in _taken_as_needed(evidence, name)]
    if not high or not (is_risk or wasted):
        return
    named = high if is_risk else wasted
    shown = ", ".join(f"{name} {size(values[name])}" for name in named)
    yield Match(
        "",
        f"{shown}: {connected:.0f} concurrent sessions could take {size(total)} for their buffers, and sorts make "
        f"{merges:,.1f} merge passes/s.",
        (
            *(number(name, size(value)) for name, value in values.items()),
            number("Max_used_connections", connected, ".0f"),
            number("all buffers of all sessions", size(total)),
            number("available, minimum", "unknown" if available is None else size(available)),
            number("Sort_merge_passes/s", merges, ",.2f"),
        ),
        (Remedy({f"server.{name}": sizes.default(evidence, name) for name in named}),),
        Severity.RISK if is_risk else None,
    )


def _taken_as_needed(evidence: Evidence, name: str) -> Versions:
    """The versions that allocate this buffer in steps, as far as a statement needs it."""
    nowhere = Versions(until="0")
    return nowhere if evidence.vendor is Vendor.MARIADB else IN_STEPS.get(name, nowhere)


@rule(
    "SESS02",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source=f"{_STATUS}, Sort_merge_passes; sort_buffer_size",
    refute="With the larger buffer, Sort_merge_passes falls, but throughput and p99 are equivalent.",
)
def sorts_in_parts(evidence: Evidence) -> Iterator[Match]:
    """Sorts do not fit into their buffer and are merged from files.

    An index in the requested order makes the sort itself unnecessary; that helps more than any buffer.
    """
    merges = evidence.status_rate("sort_merge_passes")
    buffer = evidence.number("sort_buffer_size")
    if merges < MERGES_S or buffer >= sizes.LARGEST_SORT:
        return
    larger = sizes.sort_buffer(evidence)
    sorts = evidence.status_rate("sort_scan") + evidence.status_rate("sort_range")
    cost = at_work.cost_of(evidence, "sort", ("sort",), "sort_merge_passes")
    is_cost = merges >= sorts and (cost.is_high or (bool(larger) and merges >= MERGES_COST_S))
    yield Match(
        "",
        f"sorts make {merges:,.0f} merge passes/s with a buffer of {size(buffer)}: {cost.clause}.",
        (
            number("Sort_merge_passes/s", merges, ",.1f"),
            number("sort_buffer_size", size(buffer)),
            number("rows sorted/s", evidence.status_rate("sort_rows"), ",.0f"),
            *cost.shown(),
        ),
        (Remedy(larger) if larger else Remedy(steps=("Add an index in the requested order.",)),),
        Severity.COST if is_cost else None,
    )


@rule(
    "SESS04",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MariaDB, Query Cache: does not scale well with high throughput on multi-core machines; off by default",
    refute="With the query cache off, throughput is lower or p99 higher.",
    applies_to={
        Vendor.MARIADB: Versions(),
        Vendor.MYSQL: Versions(until="8.0.3"),
        Vendor.PERCONA: Versions(until="8.0.3"),
    },
)
def query_cache_under_writes(evidence: Evidence) -> Iterator[Match]:
    """The query cache is on while tables change.

    One lock guards it. Every change to a table discards all its cached results, and every cacheable statement
    takes the lock at least twice.
    """
    if evidence.variable("query_cache_type") in ("OFF", "0") or evidence.number("query_cache_size") <= 0:
        return
    changes = sum(evidence.status_rate(f"com_{kind}") for kind in ("insert", "update", "delete"))
    hits, inserts = evidence.status_rate("qcache_hits"), evidence.status_rate("qcache_inserts")
    if changes < CHANGES_S:
        return
    yield Match(
        "",
        f"the query cache has {size(evidence.number('query_cache_size'))} and {hits:,.0f} hits/s, while "
        f"{changes:,.0f} statements/s change tables.",
        (
            number("Qcache_hits/s", hits, ",.1f"),
            number("Qcache_inserts/s", inserts, ",.1f"),
            number("INSERT, UPDATE and DELETE/s", changes, ",.0f"),
        ),
        (Remedy({"server.query_cache_type": "OFF", "server.query_cache_size": 0}),),
    )


@rule(
    "SESS05",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, thread_cache_size; Threads_created / Connections is the miss rate",
    refute="With the larger cache, Threads_created stops growing, but throughput and p99 are equivalent.",
)
def threads_created(evidence: Evidence) -> Iterator[Match]:
    """The server keeps creating threads for new connections.

    Keeping the threads of disconnected clients costs little memory. A connection pool in the application also
    saves the login.
    """
    # Threads for connections that stay are needed once, whatever is cached.
    connected = evidence.gauge("mysql_status", "threads_connected")
    staying = (connected.high - connected.low) / max(evidence.window.seconds, 1.0)
    created = evidence.status_rate("threads_created") - staying
    cache = evidence.number("thread_cache_size")
    if evidence.variable("thread_handling") != "one-thread-per-connection" or created < CREATED_S:
        return
    most = evidence.status("max_used_connections")
    if cache >= most:
        # There is room for every thread so far: these serve connections that came for the first time.
        return
    wanted = int(max(2 * cache, most, 16))
    yield Match(
        "",
        f"{created:,.1f} threads/s are created for {evidence.status_rate('connections'):,.1f} connections/s; "
        f"{cache:.0f} are cached.",
        (
            number("Threads_created/s", created, ",.1f"),
            number("Connections/s", evidence.status_rate("connections"), ",.1f"),
            number("thread_cache_size", cache, ".0f"),
        ),
        (Remedy({"server.thread_cache_size": min(wanted, 16_384)}),),
    )


@rule(
    "SESS06",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, How MySQL Opens and Closes Tables; Table_open_cache_overflows",
    refute="With the larger cache, no tables are opened, but throughput and p99 are equivalent.",
)
def tables_opened_again(evidence: Evidence) -> Iterator[Match]:
    """Tables are closed to make room for others, and opened again.

    Opening a table takes a lock that all sessions share. Each session needs its own entry for a table.
    """
    opened = evidence.status_rate("opened_tables")
    cache, is_open = evidence.number("table_open_cache"), evidence.status("open_tables")
    # MySQL divides the cache, and a connection uses one part only: few connections leave other parts empty.
    closed = evidence.window.rate("mysql_status", "table_open_cache_overflows") or 0.0
    if opened < OPENED_S or (is_open < NEAR * cache and closed < OPENED_S):
        return
    files = evidence.number("open_files_limit")
    wanted = sizes.table_cache(evidence)
    fits = files <= 0 or wanted * 2 < files
    steps = (
        ()
        if fits
        else (
            f"Raise LimitNOFILE= of the service to {sizes.open_files(evidence):,} first: it is {files:,.0f}.",
        )
    )
    yield Match(
        "",
        f"{opened:,.0f} tables/s are opened; {is_open:,.0f} of {cache:,.0f} entries are used.",
        (
            number("Opened_tables/s", opened, ",.1f"),
            number("Table_open_cache_overflows/s", closed, ",.1f"),
            number("Open_tables", is_open, ",.0f"),
            number("table_open_cache", cache, ",.0f"),
            number("open_files_limit", files, ",.0f"),
        ),
        (Remedy({"server.table_open_cache": wanted}, steps),),
    )


@rule(
    "SESS07",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, table_definition_cache; Opened_table_definitions",
    refute="With the larger cache, no definitions are read, but throughput and p99 are equivalent.",
)
def definitions_read_again(evidence: Evidence) -> Iterator[Match]:
    """Table definitions are evicted and read again.

    Reading one takes locks of the data dictionary, and all statements on that table wait for it.
    """
    opened = evidence.status_rate("opened_table_definitions")
    cache, is_open = evidence.number("table_definition_cache"), evidence.status("open_table_definitions")
    if opened < CREATED_S or is_open < NEAR * cache:
        return
    larger = sizes.definition_cache(evidence)
    yield Match(
        "",
        f"{opened:,.1f} definitions/s are read; {is_open:,.0f} of {cache:,.0f} entries are used.",
        (
            number("Opened_table_definitions/s", opened, ",.1f"),
            number("Open_table_definitions", is_open, ",.0f"),
            number("table_definition_cache", cache, ",.0f"),
        ),
        (
            Remedy(larger)
            if larger
            else Remedy(steps=("Free memory for a larger cache, or use fewer tables and partitions.",)),
        ),
    )


def _used(most: float, limit: float) -> str:
    """Of the connections the most that were used: one above the limit is reserved, more are of a higher limit."""
    if most <= limit:
        return f"up to {most:,.0f} of {limit:,.0f} connections were used"
    if most <= limit + 1:
        return f"all {limit:,.0f} connections and the reserved one were used"
    return (
        f"up to {most:,.0f} connections were used, when max_connections was more than its {limit:,.0f} of now"
    )


@rule(
    "SESS08",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Too many connections; Connection_errors_max_connections",
    refute="At the next peak Max_used_connections stays far below max_connections.",
)
def connections_near_limit(evidence: Evidence) -> Iterator[Match]:
    """The server is, or was, close to its connection limit.

    Further connections are refused. Connections beyond the number of threads that can run concurrently only move
    the queue into the server, so a connection pool in front of it is often the better fix.
    """
    limit, most = evidence.number("max_connections"), evidence.status("max_used_connections")
    counted = evidence.window.growth("mysql_status", "connection_errors_max_connections")
    refused = counted or 0.0
    if most < NEAR * limit and refused <= 0:
        if counted is None:
            evidence.growth("mysql_status", "connection_errors_max_connections")
        return
    now = evidence.gauge("mysql_status", "threads_connected").high
    is_past = refused <= 0 and now < NEAR * limit
    most_refused = max(refused, at_work.failed_where_all_are_taken(evidence))
    told = f"{refused:,.0f}" if most_refused <= refused else f"{refused:,.0f} to {most_refused:,.0f}"
    more = sizes.connections(evidence)
    yield Match(
        "",
        f"{_used(most, limit)} since the server's start, {now:,.0f} now."
        if is_past
        else f"{_used(most, limit)}; "
        + (
            f"{told} were refused during the window."
            if counted is not None
            else f"{now:,.0f} are now, and this version does not count how many are refused."
        ),
        (
            number("Max_used_connections", most, ",.0f"),
            number("max_connections", limit, ",.0f"),
            number("refused", "unknown" if counted is None else refused, ",.0f"),
            number("Threads_running, mean", evidence.running, ".1f"),
        ),
        (
            Remedy(
                steps=(
                    "Share connections: a pool in the application, or a proxy; end sleeping ones sooner "
                    "(wait_timeout).",
                    f"Who holds them: {HOLDERS}",
                ),
                label="fewer needed",
            ),
            *((Remedy(more, label="more connections"),) if more else ()),
        ),
        Severity.HOUSEKEEPING if is_past else None,
    )


@rule(
    "SESS09",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Communication Errors and Aborted Connections",
    refute="With the source of the failures stopped, connection time and throughput are equivalent.",
)
def connections_aborted(evidence: Evidence) -> Iterator[Match]:
    """Clients repeatedly fail to connect.

    Possible causes: wrong passwords, missing privileges, health checks that disconnect halfway, packets lost
    during the login. After max_connect_errors interrupted logins in a row, the server refuses all from that host
    until its host cache is flushed.
    """
    aborted, tried = evidence.status_rate("aborted_connects"), evidence.status_rate("connections")
    if aborted < ABORTED_S:
        return
    counted = {what: evidence.window.rate("mysql_status", name) or 0.0 for name, what in WHY_ABORTED.items()}
    why = max(counted, key=lambda what: counted[what])
    may_block = not evidence.is_on("skip_name_resolve") and evidence.number("host_cache_size") > 0
    unblock = (
        f"If clients are refused with error 1129: FLUSH HOSTS, and raise max_connect_errors from "
        f"{evidence.number('max_connect_errors'):.0f}."
    )
    yield Match(
        "",
        (
            f"{aborted:,.1f} of {tried:,.1f} connections/s fail"
            if tried >= aborted
            # Some failures are not counted as connections: those before the login, for example.
            else f"{aborted:,.1f} attempts to connect fail per second"
        )
        + (f"; {counted[why]:,.1f} of them {why}." if counted[why] >= aborted / 2 else "."),
        (
            number("Aborted_connects/s", aborted, ",.1f"),
            number("Connections/s", tried, ",.1f"),
            *(number(f"of them {what}", f"{rate:,.1f}/s") for what, rate in counted.items() if rate > 0),
            number("max_connect_errors", evidence.variable("max_connect_errors")),
        ),
        (
            Remedy(
                steps=(
                    *((unblock,) if may_block else ()),
                    "Find the clients: the server's error log (log_error_verbosity=3; MariaDB: "
                    "log_warnings=2), performance_schema.host_cache.",
                )
            ),
        ),
    )


@rule(
    "SESS10",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, binlog_cache_size; Binlog_cache_disk_use",
    refute="With the larger cache, Binlog_cache_disk_use stops growing, but throughput and p99 are "
    "equivalent.",
)
def transactions_spill(evidence: Evidence) -> Iterator[Match]:
    """Transactions do not fit into the binary log cache and spill to a temporary file.

    Each is written twice before its commit. The cache is allocated for every session that changes data.
    """
    used, spilled = (evidence.status_rate(name) for name in ("binlog_cache_use", "binlog_cache_disk_use"))
    if spilled < SPILLED_S or spilled < SPILLED * used:
        return
    cache = evidence.number("binlog_cache_size")
    larger = sizes.binlog_cache(evidence)
    yield Match(
        "",
        f"{spilled:,.1f} of {used:,.1f} transactions/s do not fit into the binary log cache of {size(cache)}.",
        (
            number("Binlog_cache_disk_use/s", spilled, ",.2f"),
            number("Binlog_cache_use/s", used, ",.1f"),
            number("binlog_cache_size", size(cache)),
        ),
        (
            Remedy(larger)
            if larger
            else Remedy(
                steps=(
                    "Make the large transactions smaller: with this many sessions, memory does not allow "
                    "a larger cache.",
                )
            ),
        ),
    )


@rule(
    "SESS11",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=f"{_STATUS}, Select_full_join: not 0, check the indexes; Select_full_range_join; "
    "SUM_SELECT_FULL_JOIN of Statement Summary Tables",
    refute="With an index for the join, throughput and p99 are equivalent.",
)
def joins_without_index(evidence: Evidence) -> Iterator[Match]:
    """Joins read a whole table, or a range of it, because no index fits their condition.

    Each row of one table is compared with each of the other. The work grows with the product of both: fast in the
    test, slow a year later.
    """
    joins, ranges = (evidence.status_rate(f"select_full_{name}") for name in ("join", "range_join"))
    scanned = evidence.status_rate("handler_read_rnd_next")
    seen = statements.joined(evidence)
    worst = next(
        (each for each in seen if each.each_ms >= JOINED_MS and each.time_share >= JOINED_SHARE), None
    )
    if worst is not None and worst.joins_s < FULL_JOINS_S and worst.joins_s * worst.each_ms < 1e3 * JOINED_S:
        worst = None
    listed = _seen_joining(evidence) if joins > 0 and not seen and scanned >= statements.SCANNED_S else ""
    # A range is what a join should read, unless it is long: only the time of the statement shows that.
    if worst is None and joins < FULL_JOINS_S and not listed:
        return
    is_felt = worst is not None or (not seen and scanned >= JOINED_ROWS * joins)
    on = f" on {worst.condition}" if worst and worst.condition else ""
    yield Match(
        "",
        f"{worst.text} joins{on} without an index {_often(worst.joins_s)} times per second, "
        f"{worst.each_ms:,.1f} ms each: {share(worst.time_share)} of the time of all statements."
        if worst
        else f"{_often(joins)} joins/s read a whole table; scans read {scanned:,.0f} rows/s"
        + (f"; seen most often: {listed}." if listed else "."),
        (
            number("Select_full_join/s", joins, ",.1f"),
            number("Select_full_range_join/s", ranges, ",.1f"),
            number("Handler_read_rnd_next/s", scanned, ",.0f"),
            *(worst.numbers if worst else ()),
        ),
        (
            Remedy(
                steps=(
                    f"EXPLAIN it; add an index on one side of {worst.condition or 'its condition'}."
                    if worst
                    else "Find them: sys.statements_with_full_table_scans; EXPLAIN; add the index.",
                )
            ),
        ),
        None if is_felt else Severity.HOUSEKEEPING,
        statements.candidates_command(evidence),
    )


def _often(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= FULL_JOINS_S else f"{rate:.1f}"


def _seen_joining(evidence: Evidence) -> str:
    """The class that joins tables and that the process list shows most often; empty if hardly any thread does."""
    activity = evidence.activity
    for each in evidence.executed(SEEN):
        if activity is not None and activity.threads(each) >= JOINED_S and statements.compared(each.text):
            return each.short
    return ""


def _find_scans(evidence: Evidence) -> str:
    """sys has no rows where performance_schema is off."""
    is_counted = bool(evidence.window.rates("statements", "count"))
    if not is_counted and (seen := evidence.executed(1)):
        return f"EXPLAIN the statement that is seen most often, and add the index: {seen[0].short}."
    return "Find them: sys.statements_with_full_table_scans; EXPLAIN; add the index."


@rule(
    "SESS12",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{_STATUS}, Handler_read_rnd_next: high if you do many table scans",
    refute="With an index for the statements that scan, throughput and p99 are equivalent.",
)
def most_rows_by_scans(evidence: Evidence) -> Iterator[Match]:
    """Nearly all rows are read by table scans, not through an index.

    Each scan costs CPU time for rows that the statement does not need, and pushes other pages out of the buffer
    pool.
    """
    found = statements.mostly_scanned(evidence)
    if found is None:
        return
    scanned, others = found
    seen = evidence.executed()
    yield Match(
        "",
        f"{scanned:,.0f} rows/s are read by scans, {others:,.0f} by an index"
        + (f"; seen most often: {seen[0].short}." if seen else "."),
        (
            number("Handler_read_rnd_next/s", scanned, ",.0f"),
            number("by an index/s", others, ",.0f"),
            number("Select_scan/s", evidence.status_rate("select_scan"), ",.1f"),
            *(number("often seen", each.short) for each in seen),
        ),
        (Remedy(steps=(_find_scans(evidence),)),),
        look=statements.candidates_command(evidence),
    )


@rule(
    "SESS13",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source=f"{_VARIABLES}, max_prepared_stmt_count",
    refute="At the next peak Prepared_stmt_count stays far below its limit.",
)
def prepared_statements_near_limit(evidence: Evidence) -> Iterator[Match]:
    """Prepared statements are close to their limit.

    At the limit PREPARE fails in every session. Clients that never close their statements are the usual cause: a
    higher limit then only uses more memory until it is reached too.
    """
    kept, limit = evidence.status("prepared_stmt_count"), evidence.number("max_prepared_stmt_count")
    if limit <= 0 or kept < NEAR * limit:
        return
    more = sizes.prepared_statements(evidence)
    close = Remedy(
        steps=(
            "Find the sessions that keep them: performance_schema.prepared_statements_instances by "
            "OWNER_THREAD_ID.",
            "Close them in the application, or lower the number that its pool or driver caches per "
            "connection.",
        ),
        label="close them",
        is_faster=False,
    )
    larger = (Remedy(more, label="a higher limit", is_faster=False),) if more else ()
    yield Match(
        "",
        f"{kept:,.0f} of {limit:,.0f} prepared statements are kept ({share(kept / limit)}).",
        (
            number("Prepared_stmt_count", kept, ",.0f"),
            number("max_prepared_stmt_count", limit, ",.0f"),
            number("per session", kept / max(evidence.status("threads_connected"), 1.0), ",.0f"),
        ),
        (close, *larger),
    )
