"""Rules about queues inside the server: global locks, timeouts, semaphores, purge, and who holds others up."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.model import Value, Vendor
from headrace.hunt.hot_cores import FULL
from headrace.hunt.rules import innodb
from headrace.hunt.rules.evidence import Evidence, NotEnough, number
from headrace.hunt.rules.locks import DEADLOCKS_S, HISTORY, ROW_WAIT_MS_S, deadlocks_s, row_wait_ms_s, states
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs.knob import Versions

#: Sessions that wait for a lock, on average over the window, above which it is more than a hand-over.
WAITERS = 1.0
#: Locks on the whole server, by the state of a thread that waits for one: part of the state -> what holds it.
GLOBAL_LOCKS = {
    "global read lock": "FLUSH TABLES WITH READ LOCK",
    "commit lock": "FLUSH TABLES WITH READ LOCK",
    # MariaDB 10.4 made FLUSH TABLES WITH READ LOCK one of its backup stages.
    "backup lock": "a backup: FLUSH TABLES WITH READ LOCK, BACKUP STAGE or LOCK INSTANCE FOR BACKUP",
    "table flush": "a statement that still uses a table that was flushed",
}
#: Lock waits that time out per second: each has kept a session waiting for innodb_lock_wait_timeout.
TIMEOUTS_S = 0.1
#: A latch held this long is a stall; at innodb_fatal_semaphore_wait_threshold (600 s) the server kills itself.
SEMAPHORE_S = 60.0
#: A statement that changes a row waits this long for purge before the delay counts as one.
DELAY_US = 1_000.0
#: A transaction that is older than this, while others wait, is older than what a client is doing.
HOLDER_S = 10.0
#: Ages of one transaction that two questions gave differ by less.
SAME_AGE_S = 2.0
#: What counts the old row versions, by vendor and version.
HISTORY_LENGTHS = (
    ("mysql_status", "innodb_history_list_length"),
    ("innodb_metrics", "trx_rseg_history_len"),
    ("innodb_status", "history_list_length"),
)
#: Old row versions per second that pile up behind it.
PILED_UP_S = 1_000.0
#: Queued requests of a thread pool as a share of those that run.
QUEUED = 0.25
#: Share of a session that waits for rows all the time, above which locks of readers are worth a word.
WAIT_SHARE = 0.1
#: The default of thread_pool_max_threads since MariaDB 10.2.4; that of thread_pool_size is the number of CPUs.
POOL_THREADS = 65_536
#: The default of thread_pool_stall_limit. So many times as long, and it is what queued requests wait for.
STALL_MS, LONG_STALL = 500, 4

_STATES = "MySQL Reference Manual, General Thread States; MariaDB, General Thread States"


def _waiting(evidence: Evidence, *parts: str) -> dict[str, float]:
    """Mean number of threads in each state that holds one of the parts."""
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    if "processlist" not in evidence.window.samplers():
        raise NotEnough("the process list was not sampled")
    found = states(evidence).items()
    return {state: mean for state, mean in found if any(part in state.lower() for part in parts)}


@rule(
    "LOCK12",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=f"{_STATES}; MySQL Reference Manual, FLUSH Statement; MariaDB, BACKUP STAGE",
    refute="After the session that holds the lock has ended, statements still wait for it.",
)
def global_lock_is_held(evidence: Evidence) -> Iterator[Match]:
    """A session holds a lock on the whole server, and other statements wait for it.

    FLUSH TABLES WITH READ LOCK blocks every change, and a backup lock every DDL statement. One long statement
    is enough to turn a flush into a full stop: the flush waits for the statement, and everything else for the
    flush.
    """
    waiting = _waiting(evidence, *GLOBAL_LOCKS)
    total = sum(waiting.values())
    if total < WAITERS:
        return
    worst = max(waiting, key=lambda state: waiting[state])
    holder = next(what for part, what in GLOBAL_LOCKS.items() if part in worst.lower())
    yield Match(
        "",
        f"{total:.1f} sessions wait for a lock on the whole server ({worst}); it is held by {holder}.",
        tuple(number(f"threads: {state}", mean, ".1f") for state, mean in waiting.items()),
        (
            Remedy(
                steps=(
                    "Find the holder: performance_schema.metadata_locks with OBJECT_TYPE GLOBAL, COMMIT or BACKUP "
                    "LOCK (MariaDB: plugin metadata_lock_info), or the backup that is running.",
                    "End its session; if the flush itself is waiting, kill the longest-running statement "
                    "that started before it.",
                    "Back up without a global lock: --single-transaction, mariadb-backup, the clone plugin.",
                )
            ),
        ),
    )


def _waiting_for_rows(evidence: Evidence) -> tuple[float, bool]:
    """Sessions that wait for rows on average, and whether the waits do not end; where they go on, the row is hot.

    The number of those that wait is the rate at which they begin to, times how long each waits (J. Little, A Proof
    for the Queuing Formula, Operations Research 9.3, 1961).
    """
    current = evidence.window.gauge("mysql_status", "innodb_row_lock_current_waits")
    begun = evidence.window.rate("mysql_status", "innodb_row_lock_waits") or 0.0
    waiting = current.mean if current is not None else 0.0
    return waiting, waiting >= max(WAITERS, HOLDER_S * begun)


@rule(
    "LOCK13",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, innodb_lock_wait_timeout, innodb_deadlock_detect; INNODB_METRICS, "
    "lock_timeouts",
    refute="With the transactions that hold the rows shortened, as many statements time out.",
)
def lock_waits_time_out(evidence: Evidence) -> Iterator[Match]:
    """Statements wait for a row lock until they give up.

    Each waits for innodb_lock_wait_timeout and then fails with error 1205. Only the statement is rolled back
    unless innodb_rollback_on_timeout is on: a transaction that continues after that is half done. Without deadlock
    detection, a deadlock lasts as long, and everybody who needs one of its rows waits behind it.
    """
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    rate = evidence.rate("innodb_metrics", "lock_timeouts")
    detects = not evidence.has_variable("innodb_deadlock_detect") or evidence.is_on("innodb_deadlock_detect")
    waiting, is_stuck = _waiting_for_rows(evidence)
    if rate < TIMEOUTS_S and (detects or not is_stuck):
        return
    timeout = evidence.number("innodb_lock_wait_timeout")
    says = f"{rate:,.1f} statements/s fail after waiting {timeout:,.0f} s for a row lock"
    if is_stuck and not detects:
        says = f"{waiting:,.1f} sessions wait for rows, and hardly any gets one"
    says += "." if detects else f"; innodb_deadlock_detect is off, so deadlocks last {timeout:,.0f} s too."
    steps = (
        "Find the holder while it happens: sys.innodb_lock_waits (MariaDB: information_schema."
        "INNODB_LOCK_WAITS).",
        "Shorten the transactions that hold the rows; lock rows in the same order everywhere.",
    )
    on = Remedy({"server.innodb_deadlock_detect": True}, label="detect deadlocks")
    yield Match(
        "",
        says,
        (
            number("lock_timeouts/s", rate, ",.2f"),
            number("sessions waiting for rows, mean", waiting, ",.1f"),
            number("innodb_lock_wait_timeout", f"{timeout:,.0f} s"),
            number("innodb_deadlock_detect", "ON" if detects else "OFF"),
        ),
        (Remedy(steps=steps, label="shorter transactions"),) if detects else (on, Remedy(steps=steps)),
        Severity.LIMIT if not detects and waiting >= WAITERS else None,
    )


@rule(
    "LOCK14",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, InnoDB Standard Monitor: SEMAPHORES; innodb_fatal_semaphore_wait_threshold",
    refute="The next minutes show no thread that has waited this long, and the error log has no long "
    "semaphore wait.",
    # MariaDB 10.6 has no such array any more, and prints none of these waits.
    applies_to={Vendor.MYSQL: Versions(), Vendor.PERCONA: Versions(), Vendor.MARIADB: Versions(until="10.6")},
)
def semaphore_waits(evidence: Evidence) -> Iterator[Match]:
    """A thread has waited more than a minute for a latch inside InnoDB.

    Latches are held for microseconds. A wait of minutes means that a device does not respond, or that the server
    has deadlocked internally: after 600 seconds InnoDB ends the process on purpose.
    """
    if "innodb_status" not in evidence.window.samplers():
        evidence.settings  # noqa: B018 - raises NotEnough without a server
        raise NotEnough("InnoDB's status was not sampled (sampler innodb_status)")
    longest = evidence.window.gauge("innodb_status", "semaphore_longest_wait_s")
    if longest is None or longest.high < SEMAPHORE_S:
        return
    latches = {
        name: evidence.gauge("innodb_status", "semaphore_waiters", name).high
        for name in evidence.window.labels("innodb_status", "semaphore_waiters")
    }
    worst = max(latches, key=lambda name: latches[name], default="unknown")
    yield Match(
        "",
        f"a thread has waited {longest.high:,.0f} s for an InnoDB latch; most threads wait at {worst}.",
        (
            number("longest wait", f"{longest.high:,.0f} s"),
            *(number(f"waiters at {name}", most, ".0f") for name, most in latches.items()),
        ),
        (
            Remedy(
                steps=(
                    "Look at the device first: requests that never return (dmesg, /proc/PID/stack of the "
                    "server's threads in state D).",
                    "Save SHOW ENGINE INNODB STATUS and the stacks of all threads (headrace stacks) before it "
                    "restarts: they name the thread that holds the latch.",
                )
            ),
        ),
    )


@rule(
    "LOCK15",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source=f"{_STATES}: User lock; MySQL Reference Manual, Locking Functions",
    refute="Without the named lock, the same statements take as long.",
)
def sessions_wait_for_user_locks(evidence: Evidence) -> Iterator[Match]:
    """Sessions wait for a lock that the application itself took with GET_LOCK().

    The server is idle meanwhile: the application serialises its own work. A lock that is held across requests,
    or by a pooled connection that never releases it, stops all others.
    """
    waiting = _waiting(evidence, "user lock")
    total = sum(waiting.values())
    if total < WAITERS:
        return
    yield Match(
        "",
        f"{total:.1f} sessions wait in GET_LOCK().",
        tuple(number(f"threads: {state}", mean, ".1f") for state, mean in waiting.items()),
        (
            Remedy(
                steps=(
                    "Find the holder: performance_schema.metadata_locks with OBJECT_TYPE USER LEVEL LOCK, or "
                    "SELECT IS_USED_LOCK('name'); MariaDB: plugin metadata_lock_info.",
                    "Use one lock name per object instead of one for all, hold the lock for a shorter time, "
                    "and give GET_LOCK a timeout.",
                )
            ),
        ),
    )


@rule(
    "LOCK16",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, innodb_max_purge_lag and innodb_max_purge_lag_delay; trx0purge.cc",
    refute="With innodb_max_purge_lag 0, changes per second and their p99 are equivalent.",
)
def changes_wait_for_purge(evidence: Evidence) -> Iterator[Match]:
    """Every row change is delayed on purpose, because purge is behind.

    innodb_max_purge_lag slows INSERT, UPDATE and DELETE while the history list is longer than that value. If an
    old transaction holds purge back, the delay only makes the server slow.
    """
    lag = evidence.number("innodb_max_purge_lag")
    if lag <= 0:
        return
    told = evidence.window.gauge("mysql_status", "innodb_history_list_length")
    length = told or evidence.gauge("innodb_status", "history_list_length")
    changes = sum(evidence.status_rate(f"com_{kind}") for kind in ("insert", "update", "delete"))
    most = evidence.number("innodb_max_purge_lag_delay")
    # MariaDB begins with 5 ms, MySQL 8.4 with 5 us: trx_purge() and trx_purge_dml_delay().
    free = 0.5 if evidence.vendor is Vendor.MARIADB else 1.0
    delay = min((length.mean / lag - free) * 10_000, most) if length.mean > lag else 0.0
    if delay < DELAY_US or changes <= 0:
        return
    yield Match(
        "",
        f"each changed row waits about {delay / 1e3:,.0f} ms: {length.mean:,.0f} old row versions are "
        f"{length.mean / lag:,.0f} times innodb_max_purge_lag.",
        (
            number("history list", length.mean, ",.0f"),
            number("innodb_max_purge_lag", lag, ",.0f"),
            number("innodb_max_purge_lag_delay", f"{most:,.0f} us"),
            number("INSERT, UPDATE and DELETE/s", changes, ",.1f"),
        ),
        (
            Remedy(
                {"server.innodb_max_purge_lag": 0},
                ("Find what holds purge back: information_schema.INNODB_TRX by trx_started.",),
            ),
        ),
    )


def _history_growth_s(evidence: Evidence) -> float:
    """Old row versions per second that were added and not purged."""
    window = evidence.window
    for sampler, metric in HISTORY_LENGTHS:
        values = window.values(sampler, metric)
        if len(values) >= 2 and window.seconds > 0:
            return max(float(values[-1] - values[0]), 0.0) / window.seconds
    return 0.0


@rule(
    "LOCK17",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, InnoDB Multi-Versioning; Locks Set by Different SQL Statements; "
    "Metadata Locking",
    refute="After the oldest transaction has ended, just as many sessions wait, and the history list grows as "
    "before.",
)
def open_transaction_holds_others_up(evidence: Evidence) -> Iterator[Match]:
    """A transaction stays open while others wait, or while old row versions pile up behind it.

    A client that starts a transaction and then does something else keeps all its locks, and all row versions since
    then. The waits behind it look like contention, but one COMMIT ends them.
    """
    oldest = evidence.innodb("oldest_transaction_s")
    if oldest.last < HOLDER_S:
        return
    current = evidence.window.gauge("mysql_status", "innodb_row_lock_current_waits")
    rows = current.mean if current else innodb.waiting(evidence)
    tables = 0.0
    if "processlist" in evidence.window.samplers():
        in_states = states(evidence).items()
        tables = sum(mean for state, mean in in_states if "metadata lock" in state.lower())
    view = evidence.window.gauge("innodb_status", "oldest_read_view_s")
    # A statement of READ COMMITTED has a read view only while it runs, so at some samples there is none.
    holds_versions = view is None or (view.low > 0 and view.last >= HOLDER_S)
    grows = _history_growth_s(evidence) if holds_versions else 0.0
    if rows + tables < WAITERS and grows < PILED_UP_S:
        return
    says = [f"{rows:.1f} sessions wait for rows"] if rows >= WAITERS else []
    says += [f"{tables:.1f} for a table's definition"] if tables >= WAITERS else []
    says += [f"{grows:,.0f} old row versions/s pile up"] if grows >= PILED_UP_S else []
    waits = evidence.activity.waits if evidence.activity is not None else ()
    known = next((wait for wait in waits if wait.holder and wait.holder_open_s >= HOLDER_S), None)
    is_oldest = rows + tables >= WAITERS or view is None or oldest.last - view.last <= SAME_AGE_S
    known = known or (evidence.activity.oldest if evidence.activity is not None and is_oldest else None)
    length = max(
        (evidence.window.last(*name) or 0.0 for name in HISTORY_LENGTHS),
        default=0.0,
    )
    severity = Severity.COST if grows >= PILED_UP_S and length >= HISTORY else Severity.RISK
    yield Match(
        "",
        f"a transaction has been open for {oldest.last:,.0f} s, and {' and '.join(says)} behind it"
        + (f": {known.who}, last statement: {known.what}." if known else "."),
        (
            number("holder", known.who if known else "unknown"),
            number("its last statement", known.what if known else "unknown"),
            number("oldest transaction", f"{oldest.last:,.0f} s"),
            number("sessions waiting for rows", rows, ".1f"),
            number("sessions waiting for metadata locks", tables, ".1f"),
            number("history list, growth/s", grows, ",.0f"),
        ),
        (
            Remedy(
                steps=(
                    "Find it: SELECT trx_mysql_thread_id, trx_started, trx_query FROM "
                    "information_schema.INNODB_TRX "
                    "ORDER BY trx_started LIMIT 1; the process list has its user and host.",
                    "Let the application commit before it waits for anything; KILL "
                    f"{known.holder if known else 'the connection'} if it is not needed. MariaDB can end "
                    "such sessions: idle_transaction_timeout.",
                )
            ),
        ),
        None if rows + tables >= WAITERS else severity,
    )


@rule(
    "LOCK18",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="MariaDB, Query Cache; Query Cache Thread States: Waiting for query cache lock",
    refute="With the query cache off, throughput and p99 are equivalent.",
    applies_to={
        Vendor.MARIADB: Versions(),
        Vendor.MYSQL: Versions(until="8.0.3"),
        Vendor.PERCONA: Versions(until="8.0.3"),
    },
)
def sessions_wait_for_the_query_cache(evidence: Evidence) -> Iterator[Match]:
    """Sessions wait for the query cache's single lock.

    Every SELECT takes it to look for its result and again to store it, so even a load that only reads queues
    for it.
    """
    waiting = sum(_waiting(evidence, "query cache").values())
    if waiting < WAITERS or evidence.variable("query_cache_type") in ("OFF", "0"):
        return
    yield Match(
        "",
        f"{waiting:.1f} sessions wait for the query cache at any time; it serves "
        f"{evidence.status_rate('qcache_hits'):,.0f} hits/s.",
        (
            number("sessions waiting", waiting, ".1f"),
            number("Qcache_hits/s", evidence.status_rate("qcache_hits"), ",.1f"),
            number("Qcache_inserts/s", evidence.status_rate("qcache_inserts"), ",.1f"),
        ),
        (Remedy({"server.query_cache_type": "OFF", "server.query_cache_size": 0}),),
    )


@rule(
    "LOCK19",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Transaction Isolation Levels: SERIALIZABLE; Locks Set by Different SQL "
    "Statements in InnoDB; MariaDB, SET TRANSACTION",
    refute="With REPEATABLE READ for the sessions that wait, as many wait for rows, and throughput and p99 are "
    "equivalent.",
)
def reads_lock_rows(evidence: Evidence) -> Iterator[Match]:
    """Plain reads lock rows: transactions are SERIALIZABLE unless they ask for less.

    A SELECT in a transaction then takes a shared lock on each row that it reads, and on the gaps between them, and
    keeps it until the commit. Writers wait for readers, readers for writers, and two transactions that read a row
    before both change it end in a deadlock. Only a SELECT outside of a transaction locks nothing.
    """
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    name = "transaction_isolation" if evidence.has_variable("transaction_isolation") else "tx_isolation"
    if evidence.variable(name) != "SERIALIZABLE":
        return
    waited, deadlocks = row_wait_ms_s(evidence), deadlocks_s(evidence)
    if waited < WAIT_SHARE * ROW_WAIT_MS_S and deadlocks < DEADLOCKS_S:
        return
    yield Match(
        "",
        f"{name} is SERIALIZABLE, so plain reads lock rows: {waited / 1e3:.1f} sessions wait for a row lock at "
        f"any time, and {deadlocks:,.1f} transactions/s end in a deadlock.",
        (
            number(name, "SERIALIZABLE"),
            number("waiting for rows, seconds per second", waited / 1e3, ".2f"),
            number("Innodb_row_lock_waits/s", evidence.status_rate("innodb_row_lock_waits"), ",.1f"),
            number("deadlocks/s", deadlocks, ",.2f"),
        ),
        # No setting: which transactions rely on it only the application's authors know.
        (
            Remedy(
                steps=(
                    "Find the transactions that need it: those that read rows and write others because of what "
                    "they read.",
                    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE in these; then SET GLOBAL "
                    f"{name} = 'REPEATABLE-READ' for new sessions, and in the configuration.",
                )
            ),
        ),
        Severity.LIMIT if waited >= ROW_WAIT_MS_S else None,
    )


def cpu_is_full(evidence: Evidence) -> bool:
    if not evidence.has_host:
        return False
    cpu = evidence.use("cpu")
    return cpu is not None and cpu.utilisation is not None and cpu.utilisation >= FULL


@rule(
    "SESS18",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="MariaDB, Thread Pool in MariaDB; THREAD_POOL_GROUPS: QUEUE_LENGTH; thread_pool_size, "
    "thread_pool_max_threads, thread_pool_stall_limit",
    refute="With the larger pool, requests still queue, or throughput and p99 are equivalent.",
    applies_to={Vendor.MARIADB: Versions(since="10.5")},
)
def requests_wait_for_the_thread_pool(evidence: Evidence) -> Iterator[Match]:
    """Requests wait for a thread of the thread pool although the CPUs have time.

    The pool starts no new thread at its limit, and a group whose threads wait for locks or the disk starts one
    only after thread_pool_stall_limit. Clients that queue there are not in the list of running statements.
    """
    if evidence.variable("thread_handling") != "pool-of-threads":
        return
    queued = evidence.gauge("thread_pool", "queued").mean
    active = evidence.gauge("thread_pool", "active").mean
    threads = evidence.gauge("thread_pool", "threads").high
    groups, most = (int(evidence.number(f"thread_pool_{name}")) for name in ("size", "max_threads"))
    # A queue in front of full CPUs is what a pool is for.
    if queued < max(WAITERS, QUEUED * active) or (threads < most and cpu_is_full(evidence)):
        return
    wanted: dict[str, Value] = {}
    if threads >= most:
        wanted["server.thread_pool_max_threads"] = POOL_THREADS
    if groups < (evidence.cpus or 0):
        wanted["server.thread_pool_size"] = evidence.cpus or groups
    stall_ms = evidence.number("thread_pool_stall_limit")
    is_patient = stall_ms >= LONG_STALL * STALL_MS
    if is_patient:
        wanted["server.thread_pool_stall_limit"] = STALL_MS
    stalls = Remedy(
        steps=(
            "Find what the running requests wait for: until they are faster, a group starts another thread "
            "only after thread_pool_stall_limit.",
        ),
        label="shorter requests",
    )
    yield Match(
        "",
        f"{queued:.1f} requests wait for a thread of the thread pool while {active:.1f} run; it has {threads:.0f} "
        f"threads in {groups} group{'s' if groups > 1 else ''}"
        + (f", and a stalled group gets another only after {stall_ms / 1e3:g} s." if is_patient else "."),
        (
            number("queued requests, mean", queued, ".1f"),
            number("running requests, mean", active, ".1f"),
            number("threads, maximum", threads, ".0f"),
            number("thread_pool_size", groups),
            number("thread_pool_max_threads", most, ","),
            number("thread_pool_stall_limit", f"{stall_ms:,.0f} ms"),
        ),
        (Remedy(wanted, label="larger pool"), stalls) if wanted else (stalls,),
    )
