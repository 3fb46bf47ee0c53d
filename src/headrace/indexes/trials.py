"""Statements of the traffic, run on a copy: plans, rows read, times and answers.

What changes rows runs in a transaction that is rolled back. What reads them runs in one that may only read, its
EXPLAIN, too: a server calls a stored function while it plans, and a function may write.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import statistics
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlglot import exp

from headrace.base.received import BadContent, parsed
from headrace.indexes.names import quoted
from headrace.indexes.parsing import Unread, makes_table, parse_one
from headrace.indexes.schema import Schema, Table
from headrace.indexes.session import TIME_LIMITS, Rows, Session, StatementFailed
from headrace.indexes.statement import Statement, read

#: A statement that takes longer is stopped.
MOST_STATEMENT_S = 30
#: It waits, locks, or reads and writes files of the server: not run, whatever the index. Wherever the word stands,
#: in a literal, too: the text is somebody else's, and a comment can stand between any two words.
_NOT_RUN = re.compile(
    r"\b(?:outfile|dumpfile|load_file|sleep|benchmark|get_lock|release_lock|release_all_locks|sys_exec|sys_eval"
    r"|(?:master|source)_(?:pos|gtid)_wait|wait_for_executed_gtid_set)\b|/\*M?!",
    re.IGNORECASE,
)
_WORDS = re.compile(r"\w+")
#: What both vendors say of a table that they need not read when the statement runs.
_LOOKED_UP = "select tables optimized away"


@dataclass(frozen=True)
class Trial:
    """A statement that can be run on a copy, with the tables that it uses."""

    statement: Statement
    tables: frozenset[str]
    #: Its own last ORDER BY fixes the order of the answer; a LIMIT may leave open which rows are in it.
    is_ordered: bool = False
    has_limit: bool = False
    changes_rows: bool = False
    #: As `FOR UPDATE` does, which no transaction that may only read can.
    locks_rows: bool = False


@dataclass(frozen=True)
class Plan:
    """``keys``: the indexes that the optimiser chose. ``is_done``: it looked up a least or greatest value while it
    planned, and does not say in which index."""

    keys: frozenset[str]
    is_done: bool = False


@dataclass(frozen=True)
class Ran:
    """``rows_read`` is what the server counts as reads of rows in this session; ``answer`` is for comparison."""

    seconds: float
    rows_read: int
    answer: str = ""
    ordered_answer: str = ""
    is_stopped: bool = False


def runnable(
    statements: Sequence[Statement], schema: Schema, tables: Collection[str]
) -> tuple[list[Trial], list[tuple[Statement, str]]]:
    """Those that use one of these tables (DATABASE.TABLE), and those that are not run, with the reason."""
    trials: list[Trial] = []
    refused: list[tuple[Statement, str]] = []
    for statement in statements:
        try:
            reading = read(statement, schema)
        except Unread:
            continue  # named with its reason where candidates are sought
        used = {use.table.full_name: use.table for use in reading.uses}
        if not used.keys() & set(tables):
            continue
        tree = parse_one(statement.text)
        changes = isinstance(tree, exp.Update | exp.Delete | exp.Insert)
        if why := _why_not(statement, list(used.values()), changes):
            refused.append((statement, why))
            continue
        trials.append(
            Trial(
                statement,
                frozenset(used),
                tree.args.get("order") is not None,
                any(True for _ in tree.find_all(exp.Limit)),
                changes,
                any(True for _ in tree.find_all(exp.Lock)),
            )
        )
    return trials, refused


def _why_not(statement: Statement, tables: Sequence[Table], changes: bool) -> str:
    if found := _NOT_RUN.search(statement.text):
        return f"not run, for it has {found[0]}"
    if makes_table(statement.text):
        return "not run, for it makes a table"
    other = [table for table in tables if table.engine and table.engine.lower() != "innodb"]
    if changes and other:
        return f"not run, for a change of {other[0].full_name} ({other[0].engine}) cannot be rolled back"
    return ""


def prepare(session: Session) -> None:
    """Limits of this session, so that no statement runs for ever, and nothing of it in the slow log."""
    session.set_if_known("long_query_time", "3600")
    if session.is_mariadb:
        session.set_if_known("max_statement_time", str(MOST_STATEMENT_S))
    else:
        session.set_if_known("max_execution_time", str(MOST_STATEMENT_S * 1000))
        # One form of plans for all versions.
        session.set_if_known("explain_json_format_version", "1")


def enter(session: Session, database: str) -> None:
    if database:
        session.rows(f"USE {quoted(database)}")


def plan_of(session: Session, trial: Trial) -> Plan:
    """Raises StatementFailed if the server does not explain it."""
    enter(session, trial.statement.database)
    with _rolled_back(session, trial):
        answer = session.value(f"EXPLAIN FORMAT=JSON {trial.statement.text}")
    try:
        document = parsed(str(answer))
    except BadContent as error:
        raise StatementFailed(0, f"its plan cannot be read: {error}", session.name) from error
    return Plan(frozenset(_keys(document)), _LOOKED_UP in str(answer).lower())


@contextlib.contextmanager
def _rolled_back(session: Session, trial: Trial) -> Iterator[None]:
    """What is done here is undone, or refused by the server: whatever functions a statement calls."""
    is_plain = not trial.changes_rows and not trial.locks_rows
    session.rows(f"START TRANSACTION{' READ ONLY' if is_plain else ''}")
    try:
        yield
    finally:
        session.rows("ROLLBACK")


def _keys(node: Any) -> Iterator[str]:
    """Names of indexes in a plan; of an index merge they stand together, as in `union(a,b)`."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("key", "index_name") and isinstance(value, str):
                yield from _WORDS.findall(value)
                yield value
            else:
                yield from _keys(value)
    elif isinstance(node, list):
        for each in node:
            yield from _keys(each)


def run(session: Session, trial: Trial) -> Ran:
    """Once. Raises StatementFailed, but not for the time limit."""
    enter(session, trial.statement.database)
    rows: Rows = ()
    is_stopped = False
    before = _rows_read(session)
    with _rolled_back(session, trial):
        started = time.perf_counter()
        try:
            rows = session.rows(trial.statement.text)
        except StatementFailed as error:
            if error.code not in TIME_LIMITS:
                raise
            is_stopped = True
        seconds = time.perf_counter() - started
    return Ran(
        seconds,
        _rows_read(session) - before - _own_reads(session),
        digest_of(sorted(map(shown, rows))),
        digest_of(map(shown, rows)),
        is_stopped,
    )


def timed(session: Session, trial: Trial, calls: int) -> float:
    """The median seconds of a call: another program that took the CPU for some of them does not count.

    Raises StatementFailed.
    """
    enter(session, trial.statement.database)
    seconds = []
    for _ in range(calls):
        with _rolled_back(session, trial):
            started = time.perf_counter()
            session.rows(trial.statement.text)
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _rows_read(session: Session) -> int:
    return sum(int(value) for _, value in session.rows("SHOW SESSION STATUS LIKE 'Handler_read%'"))


def _own_reads(session: Session) -> int:
    """What asking for the counts adds to them: MySQL reads them from a table."""
    if session.own_reads is None:
        first = _rows_read(session)
        session.own_reads = _rows_read(session) - first
    return session.own_reads


def shown(row: tuple[Any, ...]) -> str:
    """A row as text. Sums of floating-point numbers depend on their order, so the last digits do not count."""
    return "\x1f".join(f"{each:.10g}" if isinstance(each, float) else _plain(each) for each in row)


def _plain(value: Any) -> str:
    return "\0" if value is None else str(value.normalize() if isinstance(value, Decimal) else value)


def digest_of(rows: Iterator[str] | list[str] | map[str]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(row.encode("utf-8", "surrogatepass"))
        digest.update(b"\x1e")
    return digest.hexdigest()
