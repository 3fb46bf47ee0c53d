"""Rules about statements, by class: which take the time, and what they spend it on. Never a value in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from headrace.base.counted import counted
from headrace.host.activity import Lacking
from headrace.hunt.rules.evidence import Evidence, NotEnough, Number, number, share
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.sessions import COMMIT

#: Share of all statement time: a class that takes this much is where to start.
MOST = 0.50
#: Seconds of statements per second above which the server is busy with them.
BUSY_S = 0.5
#: Looks at the process list from which on shares mean something.
ENOUGH_LOOKS = 5
#: Threads that execute statements on average, above which the server is at work though nothing is saturated.
RUNNING = 4.0
_SLEEPS = re.compile(r"\bsleep\s*\(", re.IGNORECASE)
#: A statement of an application that takes this long is waited for.
SLOW_S = 1.0
#: Rows examined per row sent, and per second.
EXAMINED_FOR_SENT, EXAMINED_S = 1_000.0, 100_000.0
#: Share of a class's time spent waiting for table locks ...
LOCKED = 0.30
#: ... and of each call. MariaDB counts all before the locks, too: parsing and opening, tens of microseconds, and
#: several times that where threads wait for a CPU.
LOCKED_NS = 500_000.0
#: Scans dominate above this many rows per second and this share of all rows read.
SCANNED_S, SCANNED = 200_000.0, 0.90
#: Switches of the optimiser that are on by default in all supported versions that have them. Off, each takes away
#: a way to read few rows: tables are scanned, more of an index is read, or a subquery runs again and again.
SWITCHES = (
    "index_merge",
    "index_merge_union",
    "index_merge_sort_union",
    "index_merge_intersection",
    "index_condition_pushdown",
    "rowid_filter",
    "extended_keys",
    "use_index_extensions",
    "skip_scan",
    "materialization",
    "semijoin",
    "firstmatch",
    "loosescan",
    "duplicateweedout",
    "in_to_exists",
    "exists_to_in",
    "subquery_cache",
    "derived_merge",
    "derived_with_keys",
    "condition_pushdown_for_derived",
    "derived_condition_pushdown",
    "split_materialized",
    "block_nested_loop",
    "outer_join_with_cache",
    "semijoin_with_cache",
)
#: Rows read through an index per second above which what is read in vain matters.
BY_INDEX_S = 500_000.0
#: Conditions of a join that are shown.
MOST_COMPARED = 3
#: Temporary tables on disk per second, of one class.
DISK_TABLES_S = 5.0
#: Share of the active sessions in a commit above which statements take the time that their commits take.
COMMITTING = 0.5
#: Statements that no index makes faster.
COMMITS = ("COMMIT", "COMMIT WORK")

_DIGESTS = "MySQL Reference Manual, Performance Schema Statement Digests; Statement Summary Tables"


def _rates(evidence: Evidence, metric: str) -> dict[str, float]:
    """Digest -> growth per second. Raises NotEnough if statements were not sampled."""
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    found = evidence.window.rates("statements", metric)
    if not found:
        why = evidence.window.errors.get("statements")
        raise NotEnough("statements were not sampled by digest" + (f": {why}" if why else ""))
    return found


def _total_s(evidence: Evidence) -> float:
    return sum(_rates(evidence, "time_ns").values()) / 1e9


@dataclass(frozen=True)
class Joined:
    """A class of statements whose joins use no index, and its digest: what they compare, as far as the text
    tells, how often per second they join, the time of each, and their share of the time of all statements."""

    digest: str
    text: str
    condition: str
    joins_s: float
    each_ms: float
    time_share: float
    numbers: tuple[Number, ...]


def joined(evidence: Evidence) -> list[Joined]:
    """By time; empty where the server or an older agent does not count them by class.

    Rows say little: MariaDB does not count those that it compares in its join buffer as examined.
    """
    counts = {name: evidence.window.rates("statements", name) for name in ("full_joins", "range_joins")}
    calls, times = (evidence.window.rates("statements", name) for name in ("count", "time_ns"))
    total = sum(times.values())
    found = []
    for digest, time in sorted(times.items(), key=lambda pair: -pair[1]):
        joins = sum(rates.get(digest, 0.0) for rates in counts.values())
        if joins <= 0 or time <= 0:
            continue
        # Executions of prepared statements are not calls in MariaDB.
        each_ms = time / max(calls.get(digest, 0.0), joins) / 1e6
        known = evidence.activity.digest(digest) if evidence.activity is not None else None
        condition = " and ".join(compared(known.text)) if known is not None else ""
        found.append(
            Joined(
                digest,
                evidence.statement(digest),
                condition,
                joins,
                each_ms,
                time / total,
                (*_of(evidence, digest), number("mean time", f"{each_ms:,.2f} ms")),
            )
        )
    return found


def compared(text: str) -> list[str]:
    """The pairs of columns of two tables that a statement's text compares: ``a.customer = b.id``."""
    plain = re.sub(r"\s*\.\s*", ".", text.replace("`", ""))
    pairs = re.findall(r"(\w+(?:\.\w+)?\.\w+) (<=|>=|<=>|=|<|>) (\w+(?:\.\w+)?\.\w+)", plain)
    of = [(left, sign, right) for left, sign, right in pairs if _table(left) != _table(right)]
    return list(dict.fromkeys(f"{left} {sign} {right}" for left, sign, right in of))[:MOST_COMPARED]


def _table(column: str) -> str:
    return column.rpartition(".")[0]


def _explain(evidence: Evidence, digest: str) -> Remedy:
    known = evidence.activity.digest(digest) if evidence.activity is not None else None
    if known is not None and known.text.strip(" ;").upper() in COMMITS:
        return Remedy(
            steps=(
                "A commit waits for its log to be synced, and on a busy host for a CPU: see what the device takes "
                "for a flush or a write (ladder, BLK06, REDO05).",
                "Change more rows in each transaction, or let more transactions commit together.",
            )
        )
    lacks = evidence.activity.lacks(digest) if evidence.activity is not None else None
    read = (
        "Read it: SELECT DIGEST_TEXT, QUERY_SAMPLE_TEXT FROM performance_schema."
        f"events_statements_summary_by_digest WHERE DIGEST LIKE '{digest}%'."
    )
    return Remedy(
        steps=(
            *(() if known is not None and known.text else (read,)),
            *_index_steps(evidence, lacks),
        ),
        index=next(iter(lacks.indexes), "") if lacks is not None else "",
    )


def _index_steps(evidence: Evidence, lacks: Lacking | None) -> tuple[str, ...]:
    """The index that the class lacks, by its text and its tables, and how to test it; else how to find it."""
    if lacks is None or not lacks.indexes:
        step = "EXPLAIN it; add the missing index, or read fewer rows."
        if lacks is not None and lacks.why:
            step = f"No index to add is known: {lacks.why}. EXPLAIN it, and read fewer rows."
        return step, candidates_step(evidence)
    steps = [
        f"Candidate: an index on {place}, to {use}{f' ({notes})' if notes else ''}."
        for place, use, notes in zip_longest(lacks.indexes, lacks.uses, lacks.notes, fillvalue="")
    ]
    if lacks.plan:
        steps.append(f"Its plan now: {lacks.plan}.")
    word = shlex.quote(f"index:{lacks.indexes[0]}")
    steps.append(
        f"A hypothesis until it is tried: `headrace prove {word} --live`, with the login of this server, "
        "builds it, judges it by this load in turns, and drops it."
    )
    return (*steps, candidates_step(evidence, "tries it on a copy: add --prove --on-copy"))


def candidates_step(
    evidence: Evidence, does: str = "names the index that it lacks; `--prove --on-copy` tries it on a copy"
) -> str:
    """The command that names the missing index, with this server's slow log where it says that it writes one."""
    path, is_written = _slow_log(evidence)
    say = f"`headrace indexes {path or 'SLOW_LOG'}`, with the login of this server, {does}."
    if is_written:
        return say
    switch = "SET GLOBAL long_query_time = 0, slow_query_log = 1"
    return f"Have it in the slow log for some minutes ({switch}); then {say}"


def candidates_command(evidence: Evidence) -> str:
    """The same as a command; empty where the server writes no slow log now."""
    path, is_written = _slow_log(evidence)
    return f"headrace indexes {shlex.quote(path)}" if path and is_written else ""


def _slow_log(evidence: Evidence) -> tuple[str, bool]:
    """Where the server's slow log is, and whether it is written there now."""
    settings = evidence.settings.get("variables", {})
    name, file = "slow_query_log", "slow_query_log_file"
    if name not in settings:
        name, file = "log_slow_query", "log_slow_query_file"
    path = str(settings.get(file) or "")
    if path and not path.startswith("/"):
        path = f"{str(settings.get('datadir') or 'DATADIR').rstrip('/')}/{path}"
    is_on = str(settings.get(name, "")).upper() in ("ON", "1")
    return path, is_on and "FILE" in str(settings.get("log_output", "FILE")).upper()


def _of(evidence: Evidence, digest: str) -> Iterator[Number]:
    """The statement, its tables, its calls, and the rows that it examines for each that it sends."""
    known = evidence.activity.digest(digest) if evidence.activity is not None else None
    if known is not None:
        yield number("statement", known.text or digest)
        yield number("tables", ", ".join(known.tables) or "none")
    yield number("digest", digest)
    yield number("calls/s", _rates(evidence, "count").get(digest, 0.0), ",.1f")
    examined, sent = (_rates(evidence, name).get(digest, 0.0) for name in ("rows_examined", "rows_sent"))
    yield number(
        "rows examined per row sent", examined / sent if sent else f"{examined:,.0f}/s, none sent", ",.1f"
    )


@rule(
    "STMT01",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=_DIGESTS,
    refute="With that class of statements faster, throughput and p99 of the workload are equivalent.",
)
def one_class_takes_the_time(evidence: Evidence) -> Iterator[Match]:
    """One class of statements takes most of the server's time.

    Nothing else matters much until that class runs faster, less often or on another server.
    """
    times = _rates(evidence, "time_ns")
    total = _total_s(evidence)
    worst = max(times, key=lambda digest: times[digest])
    seconds = times[worst] / 1e9
    others = len([digest for digest, time in times.items() if time > 0])
    if total < BUSY_S or others < 2 or seconds < MOST * total:
        return
    count = _rates(evidence, "count").get(worst, 0.0)
    yield Match(
        worst,
        f"{evidence.statement(worst)} takes {share(seconds / total)} of the time of "
        f"{counted(others, 'class', 'classes')}: "
        f"{count:,.0f} per second, {1e3 * seconds / max(count, 1e-9):,.2f} ms each.",
        (
            *_of(evidence, worst),
            number("seconds per second", f"{seconds:.2f} of {total:.2f}"),
            number("statements/s", count, ",.1f"),
            number("mean time", f"{1e3 * seconds / max(count, 1e-9):,.3f} ms"),
        ),
        (_explain(evidence, worst),),
    )


def examining(evidence: Evidence) -> dict[str, tuple[float, float]]:
    """Of the three classes that examine most rows those that do so in vain: digest -> rows per second that each
    examines, and that it sends or changes. Empty without digests."""
    names = ("rows_examined", "rows_sent", "rows_affected")
    # Older agents did not count the rows that an UPDATE or DELETE changes: without them it seems to do nothing.
    examined, sent, changed = (evidence.window.rates("statements", name) for name in names)
    found = {}
    for digest, rows in sorted(examined.items(), key=lambda pair: -pair[1])[:3]:
        useful = sent.get(digest, 0.0) + changed.get(digest, 0.0)
        if rows >= EXAMINED_S and rows >= EXAMINED_FOR_SENT * max(useful, 1.0):
            found[digest] = (rows, useful)
    return found


@rule(
    "STMT02",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=f"{_DIGESTS}: SUM_ROWS_EXAMINED, SUM_ROWS_SENT, SUM_ROWS_AFFECTED",
    refute="With a matching index, throughput and p99 are equivalent.",
)
def looks_at_many_rows(evidence: Evidence) -> Iterator[Match]:
    """A class of statements examines thousands of rows for each that it sends or changes.

    Aggregates over many rows are legitimate; anything else lacks an index.
    """
    sent, changed = _rates(evidence, "rows_sent"), _rates(evidence, "rows_affected")
    without = _rates(evidence, "no_index_used")
    for digest, (rows, useful) in examining(evidence).items():
        yield Match(
            digest,
            f"{evidence.statement(digest)} examines {rows:,.0f} rows/s to send or change {useful:,.1f}"
            + (
                f"; {unindexed:,.1f} per second use no index."
                if (unindexed := without.get(digest, 0.0))
                else "."
            ),
            (
                *_of(evidence, digest),
                number("rows examined/s", rows, ",.0f"),
                number("rows sent/s", sent.get(digest, 0.0), ",.1f"),
                number("rows changed/s", changed.get(digest, 0.0), ",.1f"),
                number("without an index/s", without.get(digest, 0.0), ",.1f"),
            ),
            (_explain(evidence, digest),),
        )


@rule(
    "STMT03",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source=f"{_DIGESTS}: SUM_CREATED_TMP_DISK_TABLES",
    refute="Without temporary tables on disk, throughput and p99 are equivalent.",
)
def class_makes_tables_on_disk(evidence: Evidence) -> Iterator[Match]:
    """A class of statements creates temporary tables on disk.

    They outgrow their memory limit, or hold columns that in-memory tables cannot.
    """
    for digest, rate in sorted(_rates(evidence, "tmp_disk_tables").items(), key=lambda pair: -pair[1])[:3]:
        if rate < DISK_TABLES_S:
            continue
        yield Match(
            digest,
            f"{evidence.statement(digest)} creates {rate:,.1f} temporary tables on disk per second.",
            (*_of(evidence, digest), number("temporary tables on disk/s", rate, ",.1f")),
            (_explain(evidence, digest),),
        )


@rule(
    "STMT04",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source=f"{_DIGESTS}: SUM_LOCK_TIME",
    refute="With no other session using its rows or tables, the class takes the same time.",
)
def class_waits_for_locks(evidence: Evidence) -> Iterator[Match]:
    """A class of statements spends much of its time waiting for locks.

    Making the statement itself faster does not help; shortening the transactions that hold the locks does.
    """
    times, locks, calls = (_rates(evidence, metric) for metric in ("time_ns", "lock_ns", "count"))
    total = _total_s(evidence)
    for digest, time in times.items():
        locked = locks.get(digest, 0.0)
        if time / 1e9 < max(BUSY_S, 0.1 * total):
            continue
        if locked < max(LOCKED * time, LOCKED_NS * calls.get(digest, 0.0)):
            continue
        yield Match(
            digest,
            f"{evidence.statement(digest)} waits for locks {share(locked / time)} of its {time / 1e9:.2f} s per "
            "second.",
            (
                *_of(evidence, digest),
                number("waiting for locks, seconds per second", locked / 1e9, ".2f"),
                number("time, seconds per second", time / 1e9, ".2f"),
            ),
            (_explain(evidence, digest),),
        )


@rule(
    "STMT05",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Accessing the Process List; MariaDB, Information Schema PROCESSLIST Table",
    refute="With that class of statements faster, throughput and p99 of the workload are equivalent.",
)
def one_class_is_seen_most(evidence: Evidence) -> Iterator[Match]:
    """One class of statements is what the server executes most of the time.

    The server does not count statements, so this comes from samples of its process list, one per second: a class's
    share of the samples is its share of the time. Start with this class.
    """
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    if evidence.window.rates("statements", "count"):
        return
    activity = evidence.activity
    if activity is None or not activity.looks:
        error = activity.error if activity else ""
        raise NotEnough("the process list was not sampled" + (f": {error}" if error else ""))
    if activity.looks < ENOUGH_LOOKS:
        raise NotEnough(f"the process list was sampled {activity.looks} times, and {ENOUGH_LOOKS} are needed")
    total = sum(each.sightings for each in activity.classes)
    if not activity.classes:
        return
    worst = activity.classes[0]
    if _SLEEPS.search(worst.text) and not worst.tables:
        return  # it asks for the time that it takes
    # Where no host is known, a statement that takes seconds, one after the other, is slow by any measure.
    is_slow = not evidence.has_host and worst.longest_s >= SLOW_S and total >= activity.looks
    if not is_slow and evidence.verdict.limiting is None and total < RUNNING * activity.looks:
        return
    threads = activity.threads(worst)
    load = evidence.load
    if load is not None and load.waiting(COMMIT) >= COMMITTING * load.active > 0:
        return  # they wait for their commits, which WAIT01 has, and no index makes faster
    if threads < BUSY_S or worst.sightings < MOST * total:
        return
    yield Match(
        ", ".join(worst.tables[:2]),
        f"{worst.short} is executed by {threads:.1f} threads on average: {share(worst.sightings / total)} of "
        "all statements that were seen.",
        (
            number("statement", worst.text),
            number("tables", ", ".join(worst.tables) or "none"),
            number("threads executing it, mean", f"{threads:.2f} of {total / activity.looks:.2f}"),
            number("accounts", ", ".join(worst.users)),
            number(
                "rows examined per statement, maximum",
                "unknown" if worst.rows is None else worst.rows,
                ",.0f",
            ),
            number("looks", activity.looks),
        ),
        (
            Remedy(
                steps=(
                    "EXPLAIN it; add the missing index, or read fewer rows.",
                    candidates_step(evidence),
                    "For calls and rows by class: performance_schema=ON, and a restart.",
                )
            ),
        ),
    )


def rows_read(evidence: Evidence) -> tuple[float, float]:
    """Rows per second read by scans, and by an index."""
    names = ("handler_read_key", "handler_read_next", "handler_read_rnd", "handler_read_first")
    return evidence.status_rate("handler_read_rnd_next"), sum(evidence.status_rate(name) for name in names)


def mostly_scanned(evidence: Evidence) -> tuple[float, float] | None:
    """The same if scans read many and nearly all; else None."""
    scanned, others = rows_read(evidence)
    is_most = scanned >= SCANNED_S and scanned >= SCANNED * (scanned + others)
    return (scanned, others) if is_most else None


@rule(
    "STMT06",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Switchable Optimizations; Index Merge Optimization; MariaDB, optimizer_switch",
    refute="With the switches on, throughput and p99 are equivalent.",
)
def optimiser_is_held_back(evidence: Evidence) -> Iterator[Match]:
    """Optimiser switches are off, and nearly all rows are read by table scans, or very many through indexes.

    Without index merge, for example, a condition on two columns joined by OR reads the whole table, although
    each column has an index. Without index condition pushdown, each entry of a range of an index is looked up in
    the table before the condition drops it. Such a switch is often turned off because of one statement and then
    applies to all. A connection copies the switches when it is opened, so only new connections see a change.
    """
    switches = dict(each.partition("=")[::2] for each in evidence.variable("optimizer_switch").split(","))
    scanned, others = rows_read(evidence)
    # A whole index that holds all columns is read in place of the table, and counts as read through an index.
    without = evidence.window.rates("statements", "no_index_used")
    is_scanned = mostly_scanned(evidence) is not None or any(
        without.get(name) for name in examining(evidence)
    )
    off = [name for name in SWITCHES if switches.get(name) == "off"]
    if not off or not (is_scanned or others >= BY_INDEX_S):
        return
    yield Match(
        "",
        f"{', '.join(off)} {'is' if len(off) == 1 else 'are'} off in optimizer_switch, and scans read "
        f"{scanned:,.0f} rows/s, an index {others:,.0f}.",
        (
            *(number(name, "off") for name in off),
            number("Handler_read_rnd_next/s", scanned, ",.0f"),
            number("by an index/s", others, ",.0f"),
        ),
        (Remedy({"server.optimizer_switch": ",".join(f"{name}=on" for name in off)}),),
        # What an index is read for in vain only the experiment shows.
        None if is_scanned else Severity.ADVICE,
    )
