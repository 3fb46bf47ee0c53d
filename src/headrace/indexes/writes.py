"""What an index costs the writes of its table: rows deleted, inserted and changed with it and without, in blocks.

A hidden index is maintained as any other, so it has to be gone for the turns without it. Each turn changes rows of
the table in a transaction that is rolled back; what a rollback and the purge cost is not measured.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence

from sqlglot import exp

from headrace.indexes.candidates import Candidate
from headrace.indexes.copies import Copy
from headrace.indexes.names import quoted
from headrace.indexes.parsing import Unread, parse_one
from headrace.indexes.schema import Schema, Table
from headrace.indexes.session import Session, StatementFailed
from headrace.indexes.statement import Statement

#: Rows of a turn, and how often a turn changes them after a first time that does not count.
ROWS, REPEATS = 300, 9
_ROWS_TABLE = "`hr_rows`"


def written_time(
    statements: Sequence[Statement],
    schema: Schema,
    candidates: Sequence[Candidate],
    left: Mapping[str, float],
) -> dict[tuple[str, str], int]:
    """(DATABASE.TABLE, verb) -> ns of statements which change what an index of a candidate holds.

    ``left``: the share of a statement's time that the candidates leave; without them it went into finding rows.
    """
    columns: dict[str, set[str]] = {}
    for candidate in candidates:
        columns.setdefault(candidate.table.full_name, set()).update(candidate.columns)
    found: dict[tuple[str, str], int] = {}
    for statement in statements:
        try:
            tree = parse_one(statement.text)
        except Unread:
            continue
        verb, node, changed = _change(tree)
        table = schema.table(node.db or statement.database, node.name) if node is not None else None
        if table is None or table.full_name not in columns:
            continue
        if verb == "UPDATE" and not changed & columns[table.full_name]:
            continue
        key = table.full_name, verb
        found[key] = found.get(key, 0) + int(statement.time_ns * left.get(statement.name, 1.0))
    return found


def _change(tree: exp.Expr) -> tuple[str, exp.Table | None, set[str]]:
    if isinstance(tree, exp.Insert):
        target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        return "INSERT", target if isinstance(target, exp.Table) else None, set()
    if isinstance(tree, exp.Update | exp.Delete):
        node = tree.this if isinstance(tree.this, exp.Table) else tree.find(exp.Table)
        changed = {
            each.this.name.lower() for each in tree.args.get("expressions") or () if isinstance(each, exp.EQ)
        }
        return ("UPDATE" if isinstance(tree, exp.Update) else "DELETE"), node, changed
    return "", None, set()


def measured(
    copy: Copy, candidates: Sequence[Candidate], blocks: int, dice: random.Random, end_s: float
) -> dict[tuple[str, str], dict[int, float]]:
    """(DATABASE.TABLE, verb) -> block -> log of the time with all candidates relative to that without.

    The candidates are built at the beginning, and may be gone at the end. No block begins after ``end_s``
    (``time.monotonic``) but the first two.
    """
    session = copy.session
    session.set_if_known("foreign_key_checks", "0")
    tables = {each.table.full_name: each.table for each in candidates}
    found: dict[tuple[str, str], dict[int, float]] = {}
    are_built = True
    for block in range(blocks):
        if block >= 2 and time.monotonic() > end_s:
            break
        turns: dict[bool, Mapping[tuple[str, str], float]] = {}
        seeds = {name: dice.random() for name in tables}
        for wanted in dice.sample([True, False], 2):
            if wanted != are_built:
                for candidate in candidates:
                    if wanted:
                        copy.build(candidate)
                    else:
                        copy.drop(candidate)
                are_built = wanted
            turns[wanted] = {
                (name, verb): seconds
                for name, table in tables.items()
                for verb, seconds in _turn(session, table, candidates, seeds[name]).items()
            }
        for key in turns[True].keys() & turns[False].keys():
            found.setdefault(key, {})[block] = math.log(turns[True][key] / turns[False][key])
    return found


def _turn(session: Session, table: Table, candidates: Sequence[Candidate], at: float) -> dict[str, float]:
    """Verb -> seconds for ``ROWS`` rows; verbs that this table does not allow are missing."""
    place = f"{quoted(table.database)}.{quoted(table.name)}"
    if not table.primary or (table.engine or "").lower() != "innodb":
        return {}
    each_key = [quoted(table.columns[name].name) for name in table.primary if name in table.columns]
    keys = ", ".join(each_key)
    plain = _plain_columns(session, table)
    offset = int(at * max((table.rows or ROWS) - ROWS, 0))
    session.rows(f"DROP TEMPORARY TABLE IF EXISTS {quoted(table.database)}.{_ROWS_TABLE}")
    rows = f"{quoted(table.database)}.{_ROWS_TABLE}"
    session.rows(
        f"CREATE TEMPORARY TABLE {rows} AS SELECT {plain} FROM {place} ORDER BY {keys} LIMIT {offset}, {ROWS}"
    )
    same = " AND ".join(f"t.{key} = r.{key}" for key in each_key)
    own = [each for each in candidates if each.table.full_name == table.full_name]
    times: dict[str, list[float]] = {}
    for number in range(REPEATS + 1):
        once = {
            "DELETE": f"DELETE t FROM {place} t JOIN {rows} r ON {same}",
            "INSERT": f"INSERT INTO {place} ({plain}) SELECT {plain} FROM {rows}",
        }
        session.rows("START TRANSACTION")
        try:
            for verb, statement in once.items():
                _time(session, statement, verb, times, counts=number > 0)
        finally:
            session.rows("ROLLBACK")
        if change := _new_value(table, own):
            session.rows("START TRANSACTION")
            try:
                statement = f"UPDATE {place} t JOIN {rows} r ON {same} SET {change}"
                _time(session, statement, "UPDATE", times, counts=number > 0)
            finally:
                session.rows("ROLLBACK")
    session.rows(f"DROP TEMPORARY TABLE {rows}")
    # The same rows each time, so what is above the least is other programs, checkpoints and purge.
    return {verb: min(each) for verb, each in times.items() if each}


def _time(
    session: Session, statement: str, verb: str, times: dict[str, list[float]], *, counts: bool
) -> None:
    started = time.perf_counter()
    try:
        session.rows(statement)
    except StatementFailed:
        times.pop(verb, None)  # a trigger, or a value that the column does not take: not measured
        return
    if counts:
        times.setdefault(verb, []).append(time.perf_counter() - started)


def _plain_columns(session: Session, table: Table) -> str:
    """Those that are no expression: a generated column takes no value."""
    rows = session.rows(f"SHOW COLUMNS FROM {quoted(table.database)}.{quoted(table.name)}")
    return ", ".join(
        quoted(str(row[0]))
        for row in rows
        if "GENERATED" not in str(row[5]).upper().replace("DEFAULT_GENERATED", "")
    )


def _new_value(table: Table, candidates: Sequence[Candidate]) -> str:
    """An assignment that moves a row within the candidate's index; empty if its columns' types allow none."""
    for candidate in candidates:
        for name in candidate.columns:
            column = table.columns[name]
            kind, written = column.kind.lower(), f"t.{quoted(column.name)}"
            if name in table.primary or any(
                name in index.columns and index.is_unique for index in table.indexes
            ):
                continue
            if kind.startswith(("int", "bigint", "mediumint", "decimal", "double", "float")):
                return f"{written} = {written} + 1"
            if kind.startswith(("datetime", "timestamp", "date")):
                return f"{written} = {written} + INTERVAL 1 DAY"
            if kind.startswith(("varchar", "char")):
                return f"{written} = REVERSE({written})"
    return ""
