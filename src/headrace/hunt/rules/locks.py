"""Rules about waiting inside the server: latches, row locks, metadata locks, and what old transactions hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.base.counted import counted
from headrace.base.model import Vendor
from headrace.host.activity import cut
from headrace.hunt.resources import MANY_RUNNING, TIMES_CORES, Level
from headrace.hunt.rules import innodb
from headrace.hunt.rules.evidence import MIB, Evidence, NotEnough, Number, number, share, size
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.rules.waited import waited_for_io
from headrace.knobs.knob import Versions

#: One session waiting for a row all the time, in milliseconds of waiting per second: above it, row locks are a
#: problem.
ROW_WAIT_MS_S = 1_000.0
#: Deadlocks per second: each wastes a transaction.
DEADLOCKS_S = 0.2
#: Sessions that wait for a table's definition, on average over the window.
METADATA_WAITERS = 1.0
#: Waits for a table's lock that begin per second, and sessions in one on average.
TABLE_WAITS_S, TABLE_WAITERS = 1.0, 1.0
#: Data in non-transactional tables that is more than a leftover.
MYISAM_BYTES = 64 * MIB
#: Share of all latch waits above which sessions contend for the hash index.
HASH_SHARE = 0.10
#: ... and half a session that waits for it all the time.
HASH_WAIT_S = 0.5
#: OS waits per second above which SHOW ENGINE INNODB MUTEX shows more than a warm-up.
OS_WAITS_S = 100.0
#: Deadlocks per second, and as a share of commits, from which on they are what work waits for: each rolls a
#: transaction back after others have waited for its rows.
MANY_DEADLOCKS_S, MUCH_LOST = 10.0, 0.05
#: Old row versions, which reads walk over. Many advisers use this limit; the manual gives none.
HISTORY = 100_000.0
#: A transaction older than this keeps every row version since, and every lock that it took.
OLD_TRANSACTION_S = 600.0
#: Rows inserted per second above which the AUTO_INCREMENT lock can be contended.
INSERTED_S = 1_000.0
#: Transactions that wait for that lock, on average over the window, from which on it is what limits.
AUTOINC_WAITERS = 1.0
#: Threads that wait to enter InnoDB, on average, above which its limit is felt.
HELD_OUTSIDE = 1.0
#: Names of the adaptive hash index's latches, as instruments and in SHOW ENGINE INNODB MUTEX.
HASH_LATCHES = ("btr_search", "hash_table_locks", "ahi", "btr0sea")
TOP = 4
PURGERS = "innodb_purge_threads"
OLD_TRANSACTION = "the old transaction"

_LATCHES = "MySQL Reference Manual, Performance Schema Wait Event Summary Tables; SHOW ENGINE INNODB MUTEX"


def latch_waits(evidence: Evidence) -> dict[str, float]:
    """Seconds waited per second by event, for latches and table locks; empty if they are not counted."""
    kinds = ("wait/synch/", "wait/lock/")
    rates = evidence.window.rates("mysql_waits", "time_ns")
    waits = {
        name: rate / 1e9 for name, rate in rates.items() if name.startswith(kinds) and "/cond/" not in name
    }
    return dict(sorted(waits.items(), key=lambda pair: -pair[1]))


def latch_counts(evidence: Evidence) -> dict[str, float]:
    """Waits per second by latch, from SHOW ENGINE INNODB MUTEX."""
    counts: dict[str, float] = {}
    for metric in ("waits", "os_waits"):
        for name, rate in evidence.window.rates("innodb_mutex", metric).items():
            counts[name] = max(counts.get(name, 0.0), rate)
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))


def looks(evidence: Evidence) -> int:
    """How often the list of threads was sampled, at least 1. A mean is over all of them, because a state or a
    command without threads is not written; how many threads serve clients always is.
    """
    return max(len(evidence.window.values("processlist", "serving")), 1)


def states(evidence: Evidence) -> dict[str, float]:
    """Mean number of threads in each state over the window; sleeping threads have no state."""
    found: dict[str, float] = {}
    for state in evidence.window.labels("processlist", "states"):
        values = evidence.window.values("processlist", "states", state)
        found[state] = float(values.sum()) / looks(evidence)
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _numbers(evidence: Evidence) -> tuple[Number, ...]:
    """The worst waits by name, from every source that has them."""
    found = [
        number(f"waiting for {name}", f"{seconds:.2f} s per second")
        for name, seconds in list(latch_waits(evidence).items())[:TOP]
        if seconds > 0
    ]
    found += [
        number(f"waits for {name}", f"{rate:,.0f}/s")
        for name, rate in list(latch_counts(evidence).items())[:TOP]
        if rate > 0
    ]
    found += [
        number(f"threads: {state}", mean, ".1f")
        for state, mean in list(states(evidence).items())[:TOP]
        if mean > 0
    ]
    waiters = {
        name: evidence.gauge("innodb_status", "semaphore_waiters", name).mean
        for name in evidence.window.labels("innodb_status", "semaphore_waiters")
    }
    found += [number(f"waiters at {name}", mean, ".1f") for name, mean in waiters.items() if mean > 0]
    return tuple(found)


def _holders(evidence: Evidence, lock: str) -> tuple[str, tuple[Number, ...]]:
    """Who holds what sessions wait for: to end a sentence, and as numbers; nothing if nobody looked."""
    activity = evidence.activity
    waits = activity.waits_for(lock) if activity is not None else ()
    if activity is None or not waits:
        return "", ()
    worst = waits[0]
    table = f" on {worst.table}" if worst.table else ""
    likely = "" if worst.is_certain else "probably "
    if worst.holder_open_s >= 1 or not worst.is_certain:
        told = f"; the lock{table} is {likely}held by {worst.who}"
    else:
        told = f"; the lock{table} is held by transactions that last less than a second"
    if worst.holder_class:
        is_idle = worst.holder_idle_s is not None and "transactions that last" not in told
        told += f"{', whose last statement was' if is_idle else ', which executes'} {cut(worst.holder_class)}"
    numbers = [
        number(
            f"waiting{f' for {w.table}' if w.table else ''}",
            f"{cut(w.waiter_class)}: {activity.threads(w):.1f}",
        )
        for w in waits[:TOP]
    ]
    holder = number("holder", f"{'' if worst.is_certain else 'probably '}{worst.who}")
    return told, (holder, number("the holder's statement", worst.what), *numbers)


def deadlocks_s(evidence: Evidence) -> float:
    """Transactions per second that end in one. Raises NotEnough if nobody counts them."""
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    counted = evidence.window.rate("mysql_status", "innodb_deadlocks")  # MariaDB, and Percona Server
    return counted if counted is not None else evidence.rate("innodb_metrics", "lock_deadlocks")


def row_wait_ms_s(evidence: Evidence) -> float:
    """Innodb_row_lock_time grows when a wait ends; sessions that wait all the time show in current waits."""
    ended = evidence.status_rate("innodb_row_lock_time")
    current = evidence.window.gauge("mysql_status", "innodb_row_lock_current_waits")
    return max(ended, 1e3 * current.mean if current else 0.0)


@rule(
    "LOCK01",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source=f"B. Gregg, Thinking Methodically about Performance, ACM Queue 10.12 (2012); {_LATCHES}",
    refute="With half as many clients, throughput falls by half: the threads do not wait for each other.",
)
def software_is_the_limit(evidence: Evidence) -> Iterator[Match]:
    """No hardware is saturated, yet most server threads wait for each other.

    More cores, more memory or faster devices change nothing. The threads wait for a latch, a lock or a hot code
    path; the waits below, or the stacks of the server's threads, name it.
    """
    verdict = evidence.verdict
    cpu = evidence.use("cpu")
    if cpu is None or cpu.utilisation is None:
        raise NotEnough("the CPUs were not sampled")
    running = evidence.running
    used = cpu.utilisation * len(evidence.cores)
    if verdict.limiting is not None or running - 1 < max(MANY_RUNNING, TIMES_CORES * used):
        return
    # Threads that wait for a CPU or for reads do not wait for each other.
    waits_for_io = waited_for_io(evidence.window)
    blocked = evidence.window.gauge("cpu", "procs_blocked")
    if cpu.level is Level.BUSY or waits_for_io.is_high:
        return
    if waits_for_io.share is None and blocked is not None and blocked.mean >= running / 2:
        return
    row_waiters = row_wait_ms_s(evidence) / 1e3
    waits = latch_waits(evidence)
    worst = next(iter(waits), "") or next(iter(latch_counts(evidence)), "")
    if row_waiters >= running / 2:
        worst = "row locks"
    seen = next(iter(states(evidence)), "")
    named = f"; most wait for {worst}" if worst else f"; most are in state {seen}" if seen else ""
    blind = (
        ""
        if worst or seen
        else "; the cause is unknown: performance_schema and the process list were not read"
    )
    if blind and waits_for_io.share is None and blocked is None:
        blind += f", and {waits_for_io.said}"
    yield Match(
        "",
        f"{running:.0f} server threads are active, but all CPUs together are busy for only {used:.1f}; no "
        f"hardware is saturated{named}{blind}.",
        (
            number("threads running, mean", running, ".1f"),
            number("CPUs used", f"{used:.1f} of {len(evidence.cores)}"),
            number("waiting for rows, sessions", row_waiters, ".1f"),
            *_numbers(evidence),
        ),
        (
            Remedy(
                steps=(
                    "Find what they wait for: the waits above; SHOW ENGINE INNODB STATUS, SEMAPHORES; "
                    "stacks of the server's threads.",
                    "Row locks: shorten the transaction that holds the hot row, or split the row. Latches: "
                    "fewer concurrent threads (a thread pool, or a connection pool in front), or a newer "
                    "server version.",
                )
            ),
        ),
    )


@rule(
    "LOCK02",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Server Status Variables, Innodb_row_lock_time, Innodb_row_lock_current_waits",
    refute="With the hot rows spread over many, throughput and p99 are equivalent.",
)
def sessions_wait_for_rows(evidence: Evidence) -> Iterator[Match]:
    """Sessions wait for rows that others have locked.

    A hot row is a queue: it serves one transaction at a time, each for as long as its lock is held, including the
    commit's sync and the round trips to its client.
    """
    if innodb.is_all(evidence):
        yield from innodb.waits_for_rows(evidence)
        return
    waited = row_wait_ms_s(evidence)
    waits = evidence.status_rate("innodb_row_lock_waits")
    if waited < ROW_WAIT_MS_S:
        return
    mean = evidence.status_rate("innodb_row_lock_time") / waits if waits else 0.0
    held, holders = _holders(evidence, "row")
    yield Match(
        "",
        f"{waited / 1e3:.1f} sessions wait for a row lock at any time; {waits:,.1f} waits/s start"
        + (f", {mean:,.0f} ms each" if mean else "")
        + f"{held}.",
        (
            *holders,
            number("Innodb_row_lock_waits/s", waits, ",.1f"),
            number("waiting, seconds per second", waited / 1e3, ".2f"),
            number("mean wait", f"{mean:,.1f} ms"),
            number("commits/s", evidence.status_rate("com_commit"), ",.1f"),
        ),
        (
            Remedy(
                steps=(
                    "See which session blocks which: sys.innodb_lock_waits (MariaDB: "
                    "information_schema.INNODB_LOCK_WAITS).",
                    "Lock the hot row last in the transaction, commit immediately, and avoid round trips in "
                    "between.",
                    "Split a counter into several rows, or queue with SELECT ... FOR UPDATE SKIP LOCKED.",
                )
            ),
        ),
    )


@rule(
    "LOCK03",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, How to Minimize and Handle Deadlocks; INNODB_METRICS, lock_deadlocks; "
    "MariaDB, Innodb_deadlocks",
    refute="With rows locked in the same order everywhere, deadlocks stop, but throughput and p99 are "
    "equivalent.",
)
def deadlocks(evidence: Evidence) -> Iterator[Match]:
    """Transactions are repeatedly rolled back because of deadlocks.

    Their work is lost, and the client has to retry.
    """
    rate = deadlocks_s(evidence)
    if rate < DEADLOCKS_S:
        return
    is_much = rate >= max(MANY_DEADLOCKS_S, MUCH_LOST * evidence.status_rate("com_commit"))
    yield Match(
        "",
        f"{rate:,.1f} transactions/s end in a deadlock, against {evidence.status_rate('com_commit'):,.0f} "
        "commits/s.",
        (
            number("deadlocks/s", rate, ",.2f"),
            number("Com_commit/s", evidence.status_rate("com_commit"), ",.1f"),
        ),
        (
            Remedy(
                steps=(
                    "Find the statements involved: innodb_print_all_deadlocks=ON writes them to the error "
                    "log.",
                    "Lock rows in the same order everywhere; give UPDATE and DELETE a matching index.",
                )
            ),
        ),
        Severity.LIMIT if is_much else None,
    )


@rule(
    "LOCK04",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Metadata Locking",
    refute="After the oldest transaction on that table has ended, statements still wait.",
)
def sessions_wait_for_metadata(evidence: Evidence) -> Iterator[Match]:
    """Sessions wait for a table's metadata lock.

    ALTER, OPTIMIZE, TRUNCATE and LOCK TABLES wait for every transaction that touched the table, and later
    statements queue behind them: one forgotten transaction blocks the table.
    """
    if "processlist" not in evidence.window.samplers():
        raise NotEnough("the process list was not sampled")
    waiting = {state: mean for state, mean in states(evidence).items() if "metadata lock" in state.lower()}
    total = sum(waiting.values())
    if total < METADATA_WAITERS:
        return
    held, holders = _holders(evidence, "metadata")
    known = [
        w.holder for w in (evidence.activity.waits_for("metadata") if evidence.activity else ()) if w.holder
    ]
    end = f"End that transaction (KILL {known[0]})" if known else "End that transaction"
    yield Match(
        "",
        f"{total:.1f} sessions wait for a metadata lock{held}.",
        (*holders, *(number(f"threads: {state}", mean, ".1f") for state, mean in waiting.items())),
        (
            Remedy(
                steps=(
                    *(
                        ()
                        if known
                        else (
                            "Find the holder: performance_schema.metadata_locks, sys.schema_table_lock_waits "
                            "(MariaDB: plugin metadata_lock_info).",
                        )
                    ),
                    f"{end}; give ALTER a short lock_wait_timeout, so that it gives up instead of blocking "
                    "others.",
                )
            ),
        ),
    )


@rule(
    "LOCK05",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Internal Locking Methods; Table_locks_waited; General Thread States: "
    "Waiting for table level lock",
    refute="With the tables in InnoDB, throughput and p99 are equivalent.",
)
def sessions_wait_for_tables(evidence: Evidence) -> Iterator[Match]:
    """Statements wait for table locks.

    MyISAM, MEMORY and LOCK TABLES allow one writer at a time and no readers meanwhile. Only inserts at the end of
    a MyISAM table let them read. A writer that waits for one long SELECT also stops all later readers.
    """
    waits = evidence.status_rate("table_locks_waited")
    # Counted when a wait begins: behind one long statement nothing is counted any more.
    waiting = sum(mean for state, mean in states(evidence).items() if "table level lock" in state.lower())
    if waits < TABLE_WAITS_S and waiting < TABLE_WAITERS:
        return
    others = [e["engine"] for e in evidence.settings.get("engines") or () if e["engine"] != "InnoDB"]
    yield Match(
        "",
        (
            f"{waiting:.1f} sessions wait for a table lock at any time"
            if waiting >= TABLE_WAITERS
            else f"{waits:,.0f} statements/s wait for a table lock"
        )
        + f"; engines other than InnoDB: {', '.join(map(str, others)) or 'none'}.",
        (
            number("sessions waiting for a table lock, mean", waiting, ".1f"),
            number("Table_locks_waited/s", waits, ",.1f"),
            number("Table_locks_immediate/s", evidence.status_rate("table_locks_immediate"), ",.1f"),
        ),
        (
            Remedy(
                steps=(
                    "Find the statement that holds others up: the oldest in the process list on such a table.",
                    "ALTER TABLE ... ENGINE=InnoDB for the tables that are written to; avoid LOCK TABLES.",
                )
            ),
        ),
    )


@rule(
    "LOCK06",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, The MyISAM Storage Engine; InnoDB and the ACID Model",
    refute="The tables are read-only or can be rebuilt from another source.",
)
def tables_without_transactions(evidence: Evidence) -> Iterator[Match]:
    """Data is stored in an engine without transactions or crash recovery.

    After a crash such a table is locked while it is repaired, which may not recover all rows, and replicas can
    diverge.
    """
    engines = evidence.settings.get("engines")
    if engines is None:
        raise NotEnough("the server did not report the size of its tables")
    for engine in engines:
        bytes_ = (engine.get("data_bytes") or 0) + (engine.get("index_bytes") or 0)
        if engine["engine"] not in ("MyISAM", "MEMORY") or bytes_ < MYISAM_BYTES:
            continue
        tables = engine.get("tables")
        named = "Tables" if tables is None else counted(tables, "table")
        yield Match(
            str(engine["engine"]),
            f"{named} with {size(bytes_)} are {engine['engine']}.",
            (number("tables", tables), number("data and indexes", size(bytes_))),
            (Remedy(steps=("ALTER TABLE ... ENGINE=InnoDB, one table at a time.",)),),
        )


def _share_of_hash(waits: Mapping[str, float]) -> float:
    of_hash = sum(value for name, value in waits.items() if any(latch in name for latch in HASH_LATCHES))
    return of_hash / max(sum(waits.values()), 1e-12)


@rule(
    "LOCK07",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Adaptive Hash Index; MySQL 8.4 and MariaDB 10.5: off by default",
    refute="With the adaptive hash index off, throughput is lower or p99 higher.",
)
def hash_index_contended(evidence: Evidence) -> Iterator[Match]:
    """Sessions wait for the latches of the adaptive hash index.

    The index is built and torn down while statements run, and a few latches guard it. With many threads, waiting
    for them can cost more than the index saves.
    """
    if not evidence.is_on("innodb_adaptive_hash_index"):
        return
    waits, counts = latch_waits(evidence), latch_counts(evidence)
    if not waits and not counts:
        raise NotEnough("waits for latches were not sampled (mysql_waits, innodb_mutex)")
    by_time, by_count = _share_of_hash(waits), _share_of_hash(counts)
    # Instruments also count uncontended latches: a share of next to nothing means nothing.
    is_felt = by_time * sum(waits.values()) >= HASH_WAIT_S or by_count * sum(counts.values()) >= OS_WAITS_S
    if max(by_time, by_count) < HASH_SHARE or not is_felt:
        return
    remedies = [Remedy({"server.innodb_adaptive_hash_index": False}, label="off")]
    if evidence.has_variable("innodb_adaptive_hash_index_parts"):
        parts = int(evidence.number("innodb_adaptive_hash_index_parts"))
        if parts < 64:
            remedies.append(Remedy({"server.innodb_adaptive_hash_index_parts": 64}, label="more parts"))
    yield Match(
        "",
        f"{share(max(by_time, by_count))} of the latch waits are for the adaptive hash index.",
        _numbers(evidence) or (number("share of latch waits", share(max(by_time, by_count))),),
        tuple(remedies),
    )


@rule(
    "LOCK08",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="MySQL Reference Manual, Configuring Thread Concurrency for InnoDB: 0, no limit, is the default",
    refute="Without the limit, throughput is lower or p99 higher.",
    applies_to={Vendor.MYSQL: Versions(), Vendor.PERCONA: Versions(), Vendor.MARIADB: Versions(until="10.5")},
    disputed="The manual advises a limit if threads contend; most servers since 5.6 need none.",
)
def threads_held_outside(evidence: Evidence) -> Iterator[Match]:
    """Threads wait for permission to enter InnoDB.

    innodb_thread_concurrency was needed when InnoDB had few latches. A thread that is not let in sleeps before it
    checks again.
    """
    queue = evidence.window.gauge("innodb_status", "threads_queued")
    if innodb.is_all(evidence) and queue is not None:
        yield from innodb.held_outside(evidence, queue.mean if queue.mean >= HELD_OUTSIDE else 0.0)
        return
    limit = evidence.number("innodb_thread_concurrency")
    running = evidence.running
    queued = queue.mean if queue is not None else 0.0
    if limit <= 0 or (running <= limit and queued < HELD_OUTSIDE):
        return
    yield Match(
        "",
        f"innodb_thread_concurrency lets {counted(round(limit), 'thread')} in; {running:.0f} are running"
        + (f", and {queued:.0f} wait to enter." if queued else "."),
        (
            number("innodb_thread_concurrency", limit, ".0f"),
            number("threads running, mean", running, ".1f"),
            number("waiting to enter, mean", queued if queue is not None else "unknown", ".1f"),
        ),
        (Remedy({"server.innodb_thread_concurrency": 0}),),
        # A queue that is longer than what is let in is no protection any more.
        Severity.LIMIT if queued >= max(HELD_OUTSIDE, limit) else None,
    )


def _history(evidence: Evidence) -> float:
    told = evidence.window.last("mysql_status", "innodb_history_list_length")
    return told if told is not None else evidence.innodb("history_list_length").last


@rule(
    "LOCK09",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Purge Configuration; InnoDB Multi-Versioning",
    refute="After the history is purged, throughput and p99 are equivalent.",
)
def history_grows(evidence: Evidence) -> Iterator[Match]:
    """Purge is far behind: reads walk over obsolete row versions.

    Either an old transaction may still read them, or purge is slower than the writers. Tables and undo files grow
    meanwhile.
    """
    length = _history(evidence)
    if length < HISTORY:
        return
    oldest = evidence.window.gauge("innodb_status", "oldest_transaction_s")
    view = evidence.window.gauge("innodb_status", "oldest_read_view_s") or oldest
    threads = int(evidence.number(PURGERS)) if evidence.has_variable(PURGERS) else None
    is_held = view is not None and view.last >= OLD_TRANSACTION_S
    age = f"; the oldest transaction is {oldest.last:,.0f} s old" if oldest is not None else ""
    if oldest is not None and not is_held and oldest.last >= OLD_TRANSACTION_S:
        age += ", and keeps none of them: it has no read view"
    steps = Remedy(
        steps=(
            "Find the oldest transaction: information_schema.INNODB_TRX by trx_started; end or shorten it.",
        ),
        label=OLD_TRANSACTION,
    )
    more = Remedy(
        {"server.innodb_purge_threads": min(2 * threads, 32)} if threads else {},
        () if threads else ("Raise innodb_purge_threads, whose value is unknown here; 32 is the most.",),
        label="more purge threads",
    )
    yield Match(
        "",
        f"{length:,.0f} old row versions wait for purge{age}.",
        (
            number("history list", length, ",.0f"),
            number("oldest transaction", f"{oldest.last:,.0f} s" if oldest is not None else "unknown"),
            number("innodb_purge_threads", threads if threads is not None else "unknown"),
        ),
        (steps,) if is_held or (threads or 0) >= 32 else (more, steps),
    )


@rule(
    "LOCK10",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, InnoDB Multi-Versioning; innodb_max_undo_log_size",
    refute="The history list does not grow while the transaction is open.",
)
def old_transaction(evidence: Evidence) -> Iterator[Match]:
    """A transaction has been open for a long time.

    It keeps every lock that it took and every row version since it started. A forgotten connection or a dump is
    the usual cause.
    """
    oldest = evidence.innodb("oldest_transaction_s")
    if oldest.last < OLD_TRANSACTION_S:
        return
    yield Match(
        "",
        f"the oldest transaction is {oldest.last:,.0f} s old.",
        (number("oldest transaction", f"{oldest.last:,.0f} s"),),
        (
            Remedy(
                steps=(
                    "Find it: information_schema.INNODB_TRX by trx_started, with its trx_mysql_thread_id.",
                    "Make the application commit, or set a limit (MariaDB: idle_transaction_timeout).",
                )
            ),
        ),
    )


@rule(
    "LOCK11",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, AUTO_INCREMENT Handling in InnoDB: 2 is the default since 8.0",
    refute="With innodb_autoinc_lock_mode=2, throughput of concurrent bulk inserts is equivalent.",
)
def autoinc_lock(evidence: Evidence) -> Iterator[Match]:
    """Bulk inserts hold a table-wide lock for AUTO_INCREMENT.

    An INSERT ... SELECT holds it until its end, however long its SELECT takes, and every other insert into the
    table waits. Mode 2 needs none, and is safe with row-based binary logging.
    """
    seen = evidence.window.gauge("innodb_status", "autoinc_waiters")
    if innodb.is_all(evidence) and seen is not None:
        yield from innodb.waits_for_numbers(evidence, seen.mean if seen.mean >= AUTOINC_WAITERS else 0.0)
        return
    mode = evidence.variable("innodb_autoinc_lock_mode")
    inserted = evidence.status_rate("handler_write")
    running = evidence.running
    is_safe = not evidence.is_on("log_bin") or evidence.variable("binlog_format") == "ROW"
    bulk = evidence.status_rate("com_insert_select") + evidence.status_rate("com_load")
    # Older agents did not count them.
    waiting = seen.mean if seen else 0.0
    may_wait = is_safe and bulk >= 1 and inserted >= INSERTED_S and running >= MANY_RUNNING
    if mode == "2" or not (waiting >= AUTOINC_WAITERS or may_wait):
        return
    with_mode = (
        f"innodb_autoinc_lock_mode is {mode}, with {bulk:,.1f} bulk inserts/s and {inserted:,.0f} rows/s"
    )
    yield Match(
        "",
        f"{waiting:.1f} transactions wait for a table's AUTO_INCREMENT lock at any time; {with_mode}."
        if waiting >= AUTOINC_WAITERS
        else f"{with_mode}, and {running:.0f} threads running.",
        (
            number("waiting for an AUTO_INCREMENT lock", waiting if seen else "unknown", ".1f"),
            number("innodb_autoinc_lock_mode", mode),
            number("INSERT ... SELECT and LOAD DATA/s", bulk, ",.1f"),
            number("Handler_write/s", inserted, ",.0f"),
            number("binlog_format", evidence.variable("binlog_format")),
        ),
        (Remedy({"server.innodb_autoinc_lock_mode": 2}),)
        if is_safe
        else (Remedy(steps=("First log rows: binlog_format ROW. Then set innodb_autoinc_lock_mode 2.",)),),
        Severity.LIMIT if waiting >= AUTOINC_WAITERS else None,
    )
