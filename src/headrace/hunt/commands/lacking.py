"""The indexes that the costliest classes of a watch lack: by their texts, their tables and their plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.base import extras, received
from headrace.base.errors import HeadraceError
from headrace.base.model import ServerLogin
from headrace.host.activity import Digest, Lacking
from headrace.host.window import Window

if TYPE_CHECKING:
    from headrace.host.agent.door import Agent
    from headrace.host.snapshot import Snapshot
    from headrace.host.target import Target
    from headrace.indexes.candidates import Candidate
    from headrace.indexes.schema import Schema

#: Classes asked about, by time and by rows examined.
MOST_EACH = 3
#: Tables that the agent describes at a time.
MOST_TABLES = 50
ASK_S = 15.0
#: Of a plan, in a sentence.
MOST_LINES = 4


async def named(host: Target, login: ServerLogin | None, snapshot: Snapshot) -> Snapshot:
    """The snapshot with what its costliest classes lack; as it is if the server counted no classes.

    Only reads the descriptions of their tables, and asks for plans.
    """
    from headrace.host.agent.door import Agent
    from headrace.host.login import usual_login

    activity = snapshot.activity
    asked = _costliest(snapshot)
    if activity is None or not asked:
        return snapshot
    if extras.is_missing("sqlglot"):
        why = "which index it lacks is not known without sqlglot: pip install 'headrace[indexes]'"
        lacking = [Lacking(known.digest, why=why) for known, _ in asked]
    else:
        try:
            agent = await Agent.install(host)
            used, _ = await usual_login(agent, login)
            if used is None:
                return snapshot
            lacking = [await _of(agent, used, *each, await _schema(agent, used, each[0])) for each in asked]
        except HeadraceError as error:
            lacking = [
                Lacking(known.digest, why=f"its tables could not be read: {error.message}")
                for known, _ in asked
            ]
    return replace(snapshot, activity=replace(activity, lacking=tuple(lacking)))


def _costliest(snapshot: Snapshot) -> list[tuple[Digest, Mapping[str, int]]]:
    """Their texts and tables, with what they did in the watch."""
    window = Window(snapshot.samples, snapshot.errors)
    names = ("time_ns", "rows_examined", "count", "rows_sent", "rows_affected")
    rates = {name: window.rates("statements", name) for name in names}
    found: dict[str, None] = {}
    for by in names[:2]:
        found |= dict.fromkeys(sorted(rates[by], key=lambda digest: -rates[by][digest])[:MOST_EACH])
    asked: list[tuple[Digest, Mapping[str, int]]] = []
    for digest in found:
        known = snapshot.activity.digest(digest) if snapshot.activity is not None else None
        if known is not None and known.text and known.tables:
            did = {name: round(rates[name].get(digest, 0.0) * window.seconds) for name in names}
            asked.append((known, did))
    return asked


async def _schema(agent: Agent, login: ServerLogin, known: Digest) -> Schema:
    from headrace.indexes.names import places
    from headrace.indexes.schema import read

    names = [name for table in known.tables for name in places(table, [known.schema])]
    answer = await agent.text("tables", *login.argv, "--", *names[:MOST_TABLES], timeout_s=ASK_S)
    return read(agent.document("tables", line) for line in received.lines(answer))


async def _of(
    agent: Agent, login: ServerLogin, known: Digest, did: Mapping[str, int], schema: Schema
) -> Lacking:
    from headrace.indexes.candidates import candidates
    from headrace.indexes.parsing import of_digest
    from headrace.indexes.statement import Statement

    if not schema.tables:
        return Lacking(known.digest, why="the server has no such table, or this account may not see it")
    sent = did["rows_sent"] + did["rows_affected"]
    statement = Statement(
        known.text,
        of_digest(known.text),
        known.schema,
        did["count"],
        did["time_ns"],
        did["rows_examined"],
        sent,
    )
    advice = candidates([statement], schema)
    if not advice.candidates:
        whys = [
            *(f"no index serves {each.predicate}: {each.why}" for _, each in advice.hindrances),
            *(f"it was not read: {why}" for _, why in advice.unread),
            *(f"unknown: {what}" for _, what in advice.unknown),
            *(why for _, why in advice.content),
        ]
        return Lacking(known.digest, why=whys[0] if whys else "no predicate of it asks for one")
    plan = await _plan(agent, login, known.digest)
    return Lacking(
        known.digest,
        tuple(each.place for each in advice.candidates),
        tuple(each.use for each in advice.candidates),
        plan,
        notes=tuple("; ".join(_notes(each)) for each in advice.candidates),
    )


def _notes(candidate: Candidate) -> Iterator[str]:
    from headrace.lab.volumes.device import size_text

    if candidate.size_bytes is not None:
        yield f"about {size_text(candidate.size_bytes)} on disk"
    if candidate.extends:
        yield f"it begins with all columns of {candidate.extends}, which it replaces"
    yield from candidate.cautions


async def _plan(agent: Agent, login: ServerLogin, digest: str) -> str:
    """In a few words; empty where the server kept no whole statement of the class."""
    from headrace.hunt.top.plan import tree

    try:
        answer: Any = await agent.answer("explain", "--digest", digest, *login.argv)
    except HeadraceError:
        return ""
    lines = [line.strip() for line in tree(answer)]
    return "; ".join(lines[:MOST_LINES])
