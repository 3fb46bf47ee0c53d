"""Rules about the optimiser's work: old statistics, and searches for a plan that take longer than the
statement."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.base.model import Value, Vendor
from headrace.hunt.rules import statements
from headrace.hunt.rules.evidence import Evidence, NotEnough, number, share, size
from headrace.hunt.rules.locks import states
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.knobs.knob import Versions

#: Rows that one statement of a class has examined, and threads that execute the class, where only the process
#: list is known.
EXAMINED, THREADS = 1_000.0, 0.5
#: Time of each of a class's joins without an index, and the class's share of the time of all.
JOINED_MS, SHARE = 1.0, 0.1
#: What an index, or an order of tables, may be chosen for.
CHOICES = re.compile(r"\b(where|join)\b|\.\.\.$", re.IGNORECASE)
#: Rows that were inserted or deleted, as a share of a table, below which its changes are updates of columns.
FEW_ROWS = 0.5
#: Of the server's uptime, that its counters must be old to be those of its tables.
NEARLY_ALL = 0.9
#: States of a statement for which a plan is searched, sessions in them on average, and their share of all at work.
PLANNING = ("statistics", "optimizing")
PLANNERS, MOSTLY = 1.0, 0.5
#: Equal values of a column, above which statistics replace a look into the index for each.
DIVES = 200
#: So many are as good as no limit.
MANY_DIVES = 2_000
#: MariaDB has a second heuristic since then, and it is the default.
PRUNES_MORE = Versions(since="10.10")


def _reads(evidence: Evidence, table: str) -> str:
    """The class of statements that reads many rows of a table or of a join with it; empty if none is known."""
    activity = evidence.activity
    if activity is None:
        return ""
    # Rows that are compared in a join buffer are not counted as examined.
    slow = [
        each.digest
        for each in statements.joined(evidence)
        if each.each_ms >= JOINED_MS and each.time_share >= SHARE
    ]
    for digest in (*slow, *statements.examining(evidence)):
        known = activity.digest(digest)
        if known is not None and _chooses(known.text) and _names(known.tables, table):
            return evidence.statement(digest)
    for seen in activity.classes:
        if (
            _chooses(seen.text)
            and _names(seen.tables, table)
            and (seen.rows or 0.0) >= EXAMINED
            and activity.threads(seen) >= THREADS
        ):
            return seen.short
    return ""


def _chooses(text: str) -> bool:
    """Whether there is anything to choose by statistics: a statement that reads all of one table has one plan."""
    return not text or CHOICES.search(text) is not None


def _names(tables: tuple[str, ...], table: str) -> bool:
    """Whether a statement that may not say its database names the table."""
    return any(name.lower() in (table.lower(), table.lower().rpartition(".")[2]) for name in tables)


@rule(
    "STMT07",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="MySQL Reference Manual, Configuring Persistent Optimizer Statistics Parameters; The "
    "INFORMATION_SCHEMA INNODB_TABLESTATS Table, MODIFIED_COUNTER; MariaDB, InnoDB Persistent Statistics",
    refute="After ANALYZE TABLE, EXPLAIN shows the same plans, and throughput and p99 are equivalent.",
)
def statistics_are_stale(evidence: Evidence) -> Iterator[Match]:
    """Index statistics are out of date: half a table or more has changed, and they are not calculated again.

    The optimiser chooses indexes and the order of a join by them. InnoDB calculates them when a tenth of a table
    has changed, unless innodb_stats_auto_recalc is off, or the table was created with STATS_AUTO_RECALC=0. A
    table that was analysed when it was small then gets plans for a small table. The changes are counted since
    the table was opened: after a restart, only a file much larger than its statistics describe shows earlier ones.
    """
    tables = evidence.settings.get("stale_statistics")
    if tables is None:
        raise NotEnough("the server did not report how old InnoDB's statistics are")
    tables = [each for each in tables if not _only_updated(evidence, each)]
    if not tables:
        return
    reads = {str(each["table"]): _reads(evidence, str(each["table"])) for each in tables}
    # A table that a slow statement reads comes first; otherwise the one that changed most.
    worst = max(tables, key=lambda each: (bool(reads[str(each["table"])]), each["changed"]))
    name, statement = str(worst["table"]), reads[str(worst["table"])]
    more = len(tables) - 1
    is_global = not evidence.is_on("innodb_stats_auto_recalc")
    yield Match(
        name,
        _stale(worst)
        + (f"; so have those of {more} other table{'s' if more > 1 else ''}" if more else "")
        + (f"; {statement} reads many rows." if statement else "."),
        (
            number("rows, as the statistics have it" if worst.get("bytes") else "rows", worst["rows"], ","),
            number("changed since", "unknown" if worst.get("bytes") else worst["changed"], ","),
            number("innodb_stats_auto_recalc", evidence.variable("innodb_stats_auto_recalc")),
            number("tables with old statistics", len(tables)),
        ),
        (
            Remedy(
                steps=(
                    f"EXPLAIN the slow statement, ANALYZE TABLE {', '.join(_few(tables))}, and EXPLAIN it again.",
                ),
                label="now",
            ),
            _from_now_on(name, is_global=is_global),
        ),
        None
        if statement
        else Severity.ADVICE
        if statements.mostly_scanned(evidence)
        else Severity.HOUSEKEEPING,
    )


def _only_updated(evidence: Evidence, table: Mapping[str, Any]) -> bool:
    """Whether what changed are columns without an index: InnoDB counts those changes, too, but calculates nothing
    for them, because no statistics depend on them. A counter of visits is changed a thousand times a row."""
    if table.get("bytes") or not evidence.is_on("innodb_stats_auto_recalc"):
        return False
    up_s, flushed_s = (
        evidence.window.last("mysql_status", name) for name in ("uptime", "uptime_since_flush_status")
    )
    written = [evidence.window.last("mysql_status", name) for name in ("handler_write", "handler_delete")]
    # FLUSH STATUS begins to count anew.
    if None in written or up_s is None or flushed_s is None or flushed_s < NEARLY_ALL * up_s:
        return False
    rows = float(table["rows"])
    return sum(each for each in written if each is not None) < FEW_ROWS * rows


def _stale(table: Mapping[str, Any]) -> str:
    if bytes_ := table.get("bytes"):
        return (
            f"the statistics of {table['table']} describe {table['rows']:,} rows in {size(bytes_['described'])}, "
            f"but {size(bytes_['used'])} of its file are in use"
        )
    return (
        f"{table['changed']:,} rows of {table['table']}, which has {table['rows']:,}, have changed since its "
        "statistics were calculated"
    )


def _few(tables: list[Mapping[str, Any]]) -> list[str]:
    return [str(each["table"]) for each in tables[:5]]


def _from_now_on(table: str, *, is_global: bool) -> Remedy:
    if is_global:
        return Remedy({"server.innodb_stats_auto_recalc": True}, label="from now on", is_faster=False)
    return Remedy(
        steps=(
            f"ALTER TABLE {table} STATS_AUTO_RECALC=DEFAULT, or a job that analyses it: SHOW CREATE TABLE shows "
            "whether it was turned off on purpose.",
        ),
        label="from now on",
        is_faster=False,
    )


@rule(
    "STMT08",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="MySQL Reference Manual, Controlling Query Plan Evaluation: optimizer_prune_level; Equality Range "
    "Optimization of Many-Valued Comparisons: eq_range_index_dive_limit; MariaDB, optimizer_prune_level",
    refute="With the default, as many sessions are in state statistics, and throughput and p99 are equivalent.",
)
def plans_take_the_time(evidence: Evidence) -> Iterator[Match]:
    """Statements spend their time in the search for a plan, because that search has no limit.

    Without optimizer_prune_level every order of a join is tried: ten tables have three million. Without
    eq_range_index_dive_limit, each value of a long IN list is looked up in the index to estimate its rows, and
    then again to read them.
    """
    if "processlist" not in evidence.window.samplers():
        evidence.settings  # noqa: B018 - raises NotEnough without a server
        raise NotEnough("the process list was not sampled")
    unlimited = _unlimited(evidence)
    found = states(evidence)
    planning = sum(mean for state, mean in found.items() if state.lower() in PLANNING)
    # The thread that looks is not in the list.
    working = max(sum(mean for state, mean in found.items() if state), planning)
    if not unlimited or planning < max(PLANNERS, MOSTLY * working):
        return
    shown = " and ".join(f"{name} is {evidence.variable(name)}" for name in unlimited)
    yield Match(
        "",
        f"{planning:.1f} of {working:.1f} sessions at work search for a plan at any time, and {shown}.",
        (
            number("searching for a plan, mean", planning, ".1f"),
            number("of the sessions at work", share(planning / working)),
            *(number(name, evidence.variable(name)) for name in unlimited),
        ),
        (Remedy({f"server.{name}": value for name, value in unlimited.items()}),),
    )


def _unlimited(evidence: Evidence) -> dict[str, Value]:
    """Limits of the search that are off or out of reach, and their defaults."""
    found: dict[str, Value] = {}
    if evidence.number("optimizer_prune_level") == 0:
        has_more = evidence.vendor is Vendor.MARIADB and evidence.version in PRUNES_MORE
        found["optimizer_prune_level"] = 2 if has_more else 1
    dives = evidence.number("eq_range_index_dive_limit")
    if dives == 0 or dives >= MANY_DIVES:
        found["eq_range_index_dive_limit"] = DIVES
    return found
