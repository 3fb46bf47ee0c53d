"""The page of `headrace indexes`: which indexes the traffic lacks, and which the schema has too many of.

``--json``: format, headline, candidates[] (table, columns[], ddl, extends, share_of_time, size_bytes, cautions[],
statements[] (statement, calls, time_s, rows_examined_per_call, finds_by[], sorts_by[])), hindrances[] (table,
column, predicate, why, rewrite, statement, share_of_time), redundant[] (table, index, kept, why, cautions[],
hide[]), needed[] (table, index, why), unread[] (statement, why, share_of_time), unknown[] (statement, what),
content[] (statement, why), costly[] (statement, what, rather, share_of_time), layouts[] (table, what, rather),
unknown_of_sessions[] (why what sessions repeat is not known of a source).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.base.counted import counted
from headrace.indexes.candidates import Advice, Candidate, Reason
from headrace.indexes.costly import Costly, Layout
from headrace.indexes.existing import Redundant, Surplus
from headrace.indexes.names import written
from headrace.indexes.statement import Statement
from headrace.lab.volumes.device import size_text
from headrace.show import text
from headrace.show.parts import Cell, Cells, Column, Page, Part, Section, Sentences, Table, method

#: Parts shown on a terminal: three candidates, each a table and its notes.
BRIEF = 6
WIDTH = 70


def page_of(
    advice: Advice,
    existing: Surplus,
    total_ns: int,
    left_out: Sequence[tuple[Statement, str]],
    written_so: Sequence[Costly] = (),
    layouts: Sequence[Layout] = (),
    unknown_of_sessions: Sequence[str] = (),
) -> Page:
    """``total_ns`` is the time of all statements; ``left_out`` had no example to read."""
    unread = [*advice.unread, *left_out]
    missing = list(_candidates(advice, total_ns))
    written = [*_hindrances(advice, total_ns), *_costly(written_so, layouts, total_ns)]
    redundant = existing.redundant
    surplus = [*_redundant(redundant), *_needed(existing)]
    return Page(
        eyebrow="headrace indexes",
        title="Indexes",
        verdicts=[_headline(advice, redundant, total_ns)],
        lead="Candidates are hypotheses: what one saves and costs is known when it was tried on a copy.",
        cautions=[*_cautions(advice, unread, total_ns), *unknown_of_sessions],
        sections=[
            Section(
                "missing", "Missing", "Which indexes does the traffic lack?", missing, brief=missing[:BRIEF]
            ),
            Section("written", "Statements", "Which predicates can no index serve?", written, brief=written),
            Section("surplus", "Surplus", "Which indexes does another one replace?", surplus, brief=surplus),
            Section("unread", "Not read", "What was not read?", _unread(unread, advice)),
            _method(),
        ],
        footer="headrace indexes --json has every statement and reason",
        data=_data(advice, existing, total_ns, unread)
        | _costly_data(written_so, layouts, total_ns)
        | {"unknown_of_sessions": list(unknown_of_sessions)},
    )


def _headline(advice: Advice, redundant: Sequence[Redundant], total_ns: int) -> str:
    if advice.candidates:
        first = advice.candidates[0]
        count = len(first.reasons)
        words = (
            "1 statement that could use it takes"
            if count == 1
            else f"{count} statements that could use it take"
        )
        return (
            f"An index on {first.table.full_name} ({', '.join(first.columns)}) is worth a try: "
            f"{words} {_share(first.time_ns, total_ns)} of the time."
        )
    if advice.hindrances:
        return "No index is missing, but some statements are written so that none can serve them."
    if redundant:
        return "No index is missing. Some are replaced by another one of the same table."
    return "No index is missing for the statements that were read."


def _share(part_ns: int, total_ns: int) -> str:
    return f"{part_ns / total_ns:.0%}" if total_ns else "an unknown share"


def _cautions(advice: Advice, unread: Sequence[tuple[Statement, str]], total_ns: int) -> list[str]:
    lost_ns = sum(statement.time_ns for statement, _ in unread)
    lines = []
    if unread:
        verb = "class was" if len(unread) == 1 else "classes were"
        lines.append(f"{len(unread)} {verb} not read, with {_share(lost_ns, total_ns)} of the time")
    blind = {statement.name for each in advice.candidates for statement in _without_rows(each.reasons)}
    if blind:
        lines.append(
            f"this source does not say how many rows {len(blind)} of the statements examine: a slow log does"
        )
    return lines


def _without_rows(reasons: Sequence[Reason]) -> Iterator[Statement]:
    return (reason.statement for reason in reasons if reason.statement.examined is None)


def _candidates(advice: Advice, total_ns: int) -> Iterator[Part]:
    for each in advice.candidates:
        rows: list[Cells] = [
            [
                text.short(reason.statement.name, WIDTH),
                _share(reason.statement.time_ns, total_ns),
                text.count(reason.statement.calls),
                _examined(reason.statement),
                reason.use,
            ]
            for reason in each.reasons
        ]
        columns = (
            Column("statement", "wrap"), Column("time", "n"), Column("calls", "n", 2),
            Column("rows examined a call", "n", 1), Column("uses it to", "wrap"),
        )  # fmt: skip
        yield Table(columns, rows, f"{each.table.full_name} ({_columns(each)})")
        yield Sentences([f"{each.ddl};", *_notes(each)])


def _columns(candidate: Candidate) -> str:
    return ", ".join(candidate.columns)


def _examined(statement: Statement) -> str:
    if statement.examined is None or not statement.calls:
        return "unknown"
    return text.count(statement.examined / statement.calls)


def _notes(candidate: Candidate) -> Iterator[str]:
    if candidate.extends:
        yield f"It begins with all columns of {candidate.extends}, which it replaces."
    if candidate.size_bytes is not None:
        known = candidate.table.rows
        rows = "an unknown number of rows" if known is None else counted(known, "row")
        yield f"About {size_text(candidate.size_bytes)} on disk, by the server's estimate of {rows}."
    for each in candidate.cautions:
        yield f"Caution: {each}."


def _hindrances(advice: Advice, total_ns: int) -> list[Part]:
    rows: list[Cells] = [
        [
            f"{each.table}.{each.column}",
            Cell(each.predicate, look="code"),
            each.why,
            each.rewrite,
            _share(statement.time_ns, total_ns),
        ]
        for statement, each in advice.hindrances
    ]
    columns = (
        Column("column"), Column("predicate", "wrap"), Column("why", "wrap"), Column("rather", "wrap", 1),
        Column("time", "n"),
    )  # fmt: skip
    return (
        [Table(columns, rows, "No index serves these as they are written", is_stacked=True)] if rows else []
    )


def _costly(found: Sequence[Costly], layouts: Sequence[Layout], total_ns: int) -> list[Part]:
    rows: list[Cells] = [
        [
            text.short(each.statement.name, WIDTH),
            each.what,
            each.rather,
            _share(each.statement.time_ns, total_ns),
        ]
        for each in found
    ]
    columns = (
        Column("statement", "wrap"), Column("what", "wrap"), Column("rather", "wrap", 1), Column("time", "n"),
    )  # fmt: skip
    parts: list[Part] = (
        [Table(columns, rows, "Costly whatever the indexes are", is_stacked=True)] if rows else []
    )
    tables: list[Cells] = [[each.table.full_name, each.what, each.rather] for each in layouts]
    about = (Column("table"), Column("what", "wrap"), Column("rather", "wrap", 1))
    return [*parts, *([Table(about, tables, "Primary keys", is_stacked=True)] if tables else [])]


def _costly_data(found: Sequence[Costly], layouts: Sequence[Layout], total_ns: int) -> dict[str, Any]:
    return {
        "costly": [
            {
                "statement": each.statement.name, "what": each.what, "rather": each.rather,
                "share_of_time": each.statement.time_ns / total_ns if total_ns else None,
            }
            for each in found
        ],
        "layouts": [
            {"table": each.table.full_name, "what": each.what, "rather": each.rather} for each in layouts
        ],
    }  # fmt: skip


def _drops(redundant: Sequence[Redundant]) -> Iterator[str]:
    for each in redundant:
        named = written(each.table.database, each.table.name, each.index.name)
        yield f"headrace apply 'drop-index:{named}' --hidden-for 720h"


def _redundant(redundant: Sequence[Redundant]) -> list[Part]:
    rows: list[Cells] = [
        [each.table.full_name, each.index.name, each.kept, each.why, "; ".join(each.cautions)]
        for each in redundant
    ]
    columns = (
        Column("table"), Column("index"), Column("replaced by"), Column("why", "wrap"),
        Column("before you hide it", "wrap", 1),
    )  # fmt: skip
    hint = "To hide one, and drop it with the same command when it was not missed for that time:"
    table = Table(columns, rows, "Another index does what these do", is_stacked=True)
    return [table, Sentences([hint, *_drops(redundant)])] if rows else []


def _needed(existing: Surplus) -> list[Part]:
    rows: list[Cells] = [[each.table.full_name, each.index.name, each.why] for each in existing.needed]
    columns = (Column("table"), Column("index"), Column("why it must stay", "wrap"))
    return [Table(columns, rows, "These only look surplus", is_stacked=True)] if rows else []


def _unread(unread: Sequence[tuple[Statement, str]], advice: Advice) -> list[Part]:
    rows: list[Cells] = [[text.short(statement.name, WIDTH), why] for statement, why in unread]
    rows += [[text.short(statement.name, WIDTH), f"unknown: {what}"] for statement, what in advice.unknown]
    return [Table((Column("statement", "wrap"), Column("why", "wrap")), rows)] if rows else []


def _method() -> Section:
    return Section(
        "method", "Method", "How candidates are made",
        [
            method(
                [
                    ("Columns", "Those compared with values come first, then one range or the order. One "
                     "candidate serves all statements that its beginning serves."),
                    ("Not offered", "Tables of fewer than 1,000 rows, statements that examine at most 10 rows for "
                     "each that they send or change, and what an existing index serves."),
                    ("Time", "What the statements took in all: no index can save more on reads. Each write of "
                     "the table pays for the index."),
                    ("Proof", "Name a copy of the server, and run this command with `--prove --on-copy`."),
                ]
            )
        ],
    )  # fmt: skip


def _data(
    advice: Advice, existing: Surplus, total_ns: int, unread: Sequence[tuple[Statement, str]]
) -> dict[str, Any]:
    def share(statement: Statement) -> float | None:
        return statement.time_ns / total_ns if total_ns else None

    return {
        "format": 1,
        "headline": _headline(advice, existing.redundant, total_ns),
        "candidates": [
            {
                "table": each.table.full_name,
                "columns": list(each.columns),
                "ddl": each.ddl,
                "extends": each.extends or None,
                "share_of_time": each.time_ns / total_ns if total_ns else None,
                "size_bytes": each.size_bytes,
                "cautions": list(each.cautions),
                "statements": [
                    {
                        "statement": reason.statement.name,
                        "calls": reason.statement.calls,
                        "time_s": reason.statement.time_ns / 1e9,
                        "rows_examined_per_call": (
                            reason.statement.examined / reason.statement.calls
                            if reason.statement.examined is not None and reason.statement.calls
                            else None
                        ),
                        "finds_by": list(reason.found_by),
                        "sorts_by": list(reason.sorted_by),
                    }
                    for reason in each.reasons
                ],
            }
            for each in advice.candidates
        ],
        "hindrances": [
            {
                "table": each.table, "column": each.column, "predicate": each.predicate, "why": each.why,
                "rewrite": each.rewrite, "statement": statement.name, "share_of_time": share(statement),
            }
            for statement, each in advice.hindrances
        ],
        "redundant": [
            {
                "table": each.table.full_name, "index": each.index.name, "kept": each.kept, "why": each.why,
                "cautions": list(each.cautions), "hide": list(each.hide_ddl),
            }
            for each in existing.redundant
        ],
        "needed": [
            {"table": each.table.full_name, "index": each.index.name, "why": each.why} for each in existing.needed
        ],
        "unread": [
            {"statement": statement.name, "why": why, "share_of_time": share(statement)}
            for statement, why in unread
        ],
        "unknown": [{"statement": statement.name, "what": what} for statement, what in advice.unknown],
        "content": [{"statement": statement.name, "why": why} for statement, why in advice.content],
    }  # fmt: skip
