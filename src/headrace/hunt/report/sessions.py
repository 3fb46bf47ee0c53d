"""What the server's sessions do and wait for, on average: by wait, and each sort of session."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.counted import counted
from headrace.host.activity import cut
from headrace.hunt.hunt import Hunt
from headrace.hunt.sessions import Load, as_json
from headrace.show.parts import Cell, Column, Gap, Note, Part, Section, Sentence, Table

#: Sorts of sessions listed; in a terminal fewer.
MOST, MOST_BRIEF = 25, 8
#: Sessions on average, below which a sort is not listed.
LEAST = 0.05


def section(hunt: Hunt) -> Section:
    load = hunt.evidence.load
    return Section(
        "sessions",
        "Sessions",
        "What do sessions do and wait for?",
        lambda: list(_parts(hunt, load, MOST)),
        "Average active sessions: so many were at it at any moment.",
        list(_brief(hunt, load)),
        {"sessions": as_json(load) if load is not None and not _is_blind(hunt) else None},
    )


def _is_blind(hunt: Hunt) -> bool:
    return "PROCESS" in hunt.evidence.facts.privileges_missing


def _brief(hunt: Hunt, load: Load | None) -> Iterator[Part]:
    """Only where they are what is known, or what is waited for."""
    if load is None or (hunt.evidence.has_host and (load.worst is None or hunt.verdict.limiting is not None)):
        return
    yield from _parts(hunt, load, MOST_BRIEF)
    yield Gap()


def _parts(hunt: Hunt, load: Load | None, most: int) -> Iterator[Part]:
    if load is None or _is_blind(hunt):
        yield Note("Not known: the list of threads was not read, or shows only the sessions of this account.")
        return
    rows: list[tuple[str | Cell, ...]] = [
        (
            f"{mean:.1f}",
            wait or "executes",
            group.state,
            f"{group.user}@{group.host}" if group.user else "",
            group.table,
            Cell(f"{cut(group.text, 100)}{' (prepared)' if group.command == 'Execute' else ''}", look="wide"),
        )
        for group, wait, mean in load.groups
        if mean >= LEAST
    ]
    if not rows:
        rows = [(f"{share.sessions:.1f}", share.name, "", "", "", "") for share in load.waits]
        rows += [(f"{load.executing:.1f}", "executes", "", "", "", "")] if load.executing else []
    columns = (
        Column("sessions", "n"), Column("wait for"), Column("state"), Column("user and host"), Column("table"),
        Column("statement", "wrap"),
    )  # fmt: skip
    if rows:
        yield Table(columns, rows[:most], named=-1, is_stacked=True)
    if len(rows) > most:
        yield Sentence(f"and {counted(len(rows) - most, 'more sort')} of sessions", "aside")
    yield Sentence(
        f"{load.active:.1f} active on average, over {counted(load.looks, 'look')} at the list of threads.",
        "aside",
    )
