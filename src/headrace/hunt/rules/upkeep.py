"""Rules about statements that are not the application's own work: flushes, changes of tables, and those that are
aborted."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.base.model import Vendor
from headrace.host.activity import StatementClass
from headrace.hunt.rules.evidence import Evidence, NotEnough, Number, number
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.rules.session import OPENED_S

#: FLUSH statements per second: more than rotating logs or a nightly backup makes.
FLUSHES_S = 0.2
#: ... and of those that close no table, which cost less.
OTHER_FLUSHES_S = 1.0
#: Part of the tables opened that flushes explain, if each closes all that were open.
EXPLAINED = 0.5
#: Statements that rebuild, index or check whole tables, as a class of statements begins.
UPKEEP = re.compile(
    r"(alter\s+(online\s+|ignore\s+)*table|create\s+(or\s+replace\s+)?((unique|fulltext|spatial|vector)\s+)?index"
    r"|(optimize|analyze|check|repair)\s+((local|no_write_to_binlog)\s+)?tables?)\b",
    re.IGNORECASE,
)
#: Threads that execute such statements on average: half a thread all the time.
WORKING = 0.5
#: The same as a part of the host's CPUs, where these are full.
OF_THE_CPUS = 0.1
#: Such statements completed per second, above which a program repeats them.
REPEATED_S = 0.1
#: Statements aborted per second because they took too long; each was work for nothing.
ABORTED_S = 0.1
#: Seconds per second in statements that are aborted: as much as a session that never does anything else.
IN_VAIN = 1.0

_STATUS = "MySQL Reference Manual, Server Status Variables"


@rule(
    "SESS20",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, FLUSH Statement: closes all open tables; "
    "Server Status Variables: Com_flush, Opened_tables; MariaDB, FLUSH",
    refute="Without the FLUSH statements as many tables are opened, or throughput and p99 are equivalent.",
)
def tables_are_flushed(evidence: Evidence) -> Iterator[Match]:
    """A program flushes the tables again and again.

    FLUSH TABLES closes every open table, waits for the statements that use one, and makes each session open its
    tables again. A larger table cache does not help: it is emptied each time. The usual sources are scripts of
    backups, monitoring and deployments; none of them needs it more than once.
    """
    flushes, opened = evidence.status_rate("com_flush"), evidence.status_rate("opened_tables")
    open_tables = evidence.gauge("mysql_status", "open_tables").high
    # Tables that are closed to make room for others are opened again, too: SESS06.
    crowded_out = evidence.window.rate("mysql_status", "table_open_cache_overflows") or 0.0
    is_reopening = (
        flushes >= FLUSHES_S
        and opened >= OPENED_S
        and flushes * open_tables >= EXPLAINED * opened
        and crowded_out < EXPLAINED * opened
    )
    if not is_reopening and flushes < OTHER_FLUSHES_S:
        return
    what = (
        f"{opened:,.0f} tables/s are opened again because of them."
        if is_reopening
        else f"hardly any table is opened again ({opened:,.1f}/s): they flush logs, privileges or status."
    )
    yield Match(
        "",
        f"{flushes:,.1f} FLUSH statements/s are executed, and {what}",
        (
            number("Com_flush/s", flushes, ",.2f"),
            number("Opened_tables/s", opened, ",.1f"),
            number("Open_tables, maximum", open_tables, ",.0f"),
            *_seen(evidence, "flush"),
        ),
        (
            Remedy(
                steps=(
                    "Find the program: performance_schema.events_statements_summary_by_account_by_event_name, "
                    "EVENT_NAME statement/sql/flush; or the general log for some seconds.",
                    "Take FLUSH out of it: GRANT and CREATE USER need no FLUSH PRIVILEGES, and an InnoDB backup "
                    "no FLUSH TABLES.",
                )
            ),
        ),
        None if is_reopening else Severity.HOUSEKEEPING,
    )


def _seen(evidence: Evidence, start: str) -> Iterator[Number]:
    """Who was seen executing statements that start so."""
    for each in evidence.activity.classes if evidence.activity is not None else ():
        if each.text.lower().startswith(start):
            yield number("seen", f"{each.short} of {', '.join(each.users)}")
            return


def _upkeep(evidence: Evidence) -> list[StatementClass]:
    """Classes of such statements that were seen running, the most frequent first. Raises NotEnough."""
    evidence.settings  # noqa: B018 - raises NotEnough without a server
    activity = evidence.activity
    if activity is None or not activity.looks:
        error = activity.error if activity else ""
        raise NotEnough("the process list was not sampled" + (f": {error}" if error else ""))
    return [each for each in activity.classes if UPKEEP.match(each.text.strip())]


@rule(
    "STMT09",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Online DDL Operations; ANALYZE TABLE, CHECK TABLE, OPTIMIZE TABLE; MariaDB, "
    "InnoDB Online DDL Overview; Optimizing Tables",
    refute="When it has ended, throughput and p99 of the workload are equivalent.",
)
def tables_are_rebuilt(evidence: Evidence) -> Iterator[Match]:
    """A table is rebuilt, indexed or checked while the application works.

    Such a statement reads the whole table, and most write it again: from one thread or several as fast as CPU and
    device let them, without a limit. Their work counts as the server's, so a host may look too small that was not.
    It is a bottleneck only as long as it runs; a job that repeats it has no end.
    """
    activity, found = evidence.activity, _upkeep(evidence)
    if activity is None or not found:
        return
    threads = sum(activity.threads(each) for each in found)
    if threads < WORKING:
        return
    done = sum(
        evidence.window.rate("mysql_status", f"com_{name}") or 0.0
        for name in ("alter_table", "create_index", "optimize", "analyze", "check", "repair")
    )
    is_repeated = done >= REPEATED_S
    worst = found[0]
    yield Match(
        ", ".join(worst.tables[:1]),
        f"{worst.short} "
        + (f"and the like run again and again ({done:,.1f}/s)" if is_repeated else "runs beside the load")
        + f": {threads:.1f} threads on average.",
        (
            number("statement", worst.text),
            number("accounts", ", ".join(worst.users)),
            number("threads executing such statements, mean", threads, ".2f"),
            number("running for, maximum", f"{worst.longest_s:,.0f} s"),
            number("such statements completed/s", done, ",.2f"),
        ),
        (_less_often() if is_repeated else _let_it_end(),),
        None if _takes_what_is_scarce(evidence, threads) else Severity.HOUSEKEEPING,
    )


def _takes_what_is_scarce(evidence: Evidence, threads: float) -> bool:
    limiting = evidence.verdict.limiting
    if limiting is None:
        return False
    if limiting.resource == "cpu":
        return threads >= OF_THE_CPUS * (evidence.cpus or 1)
    return limiting.resource in ("block", "core")


def _let_it_end() -> Remedy:
    return Remedy(
        steps=(
            "Let it end, or KILL it if it must not run now: undoing it is quick, but all its work is lost.",
            "Run the next one when there is little load, ask for ALGORITHM=INSTANT first, or use a tool that "
            "pauses under load: pt-online-schema-change, gh-ost.",
        )
    )


def _less_often() -> Remedy:
    return Remedy(
        steps=(
            "Find the job that repeats it (the accounts above; events, cron), and stop it or run it at night.",
            "InnoDB recalculates statistics when a tenth of a table has changed, reuses free space, and verifies "
            "each page that it reads: few tables need more.",
        )
    )


@rule(
    "STMT10",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source=f"{_STATUS}, Max_execution_time_exceeded; MariaDB, Aborting Statements that Exceed a Certain Time to "
    "Execute; Max_statement_time_exceeded",
    refute="With the statements faster or their limit higher, none is aborted, but throughput and p99 are "
    "equivalent.",
)
def statements_are_aborted(evidence: Evidence) -> Iterator[Match]:
    """Statements are aborted because they exceed their time limit.

    Each has used CPU, device and locks until then, and the application gets an error, after which it often tries
    again. The limit protects the server from a few runaways; if it is reached all the time, the statements need an
    index, or they wait for something, which the other findings name.
    """
    is_mariadb = evidence.vendor is Vendor.MARIADB
    name, scale = ("max_statement_time", 1.0) if is_mariadb else ("max_execution_time", 1e-3)
    aborted = evidence.status_rate(f"{name}_exceeded")
    if aborted < ABORTED_S:
        return
    limit_s = evidence.number(name) * scale
    in_vain = aborted * limit_s
    failing = evidence.window.rates("statements", "errors")
    worst = max(failing, key=lambda digest: failing[digest], default="")
    says = (
        f"; most are {evidence.statement(worst)}"
        if worst and EXPLAINED * aborted <= failing[worst] <= aborted / EXPLAINED
        else ""
    )
    yield Match(
        "",
        f"{aborted:,.1f} statements/s are aborted by "
        + (f"{name}, which is {limit_s:g} s" if limit_s else f"the {name} of their session")
        + f"{says}.",
        (
            number(f"{name.capitalize()}_exceeded/s", aborted, ",.2f"),
            number(name, f"{limit_s:g} s" if limit_s else "0, set by sessions or statements"),
            number("in statements that are aborted", f"{in_vain:.1f} s per second" if limit_s else "unknown"),
        ),
        (
            Remedy(
                steps=(
                    "Find them: performance_schema.events_statements_summary_by_digest by SUM_ERRORS, or the "
                    "application's log (error 1969 of MariaDB, 3024 of MySQL).",
                    "EXPLAIN them; add the missing index, or read fewer rows. A higher limit only lets them use "
                    "more.",
                )
            ),
        ),
        Severity.LIMIT if in_vain >= IN_VAIN else None,
    )
