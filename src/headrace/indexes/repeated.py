"""What sessions send again and again where a few statements would do: lookups row by row, commits row by row.

Both are known by counts of each session: how often it sent a class, how many rows came back, how many transactions
it began. A source that leaves out quick statements, or some of all, tells neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from headrace.base.counted import counted
from headrace.indexes.costly import Costly
from headrace.indexes.parsing import Unread, parse_one
from headrace.indexes.schema import Schema
from headrace.indexes.statement import Statement, read

#: Calls of a class in a session, and for each call of the class that led to them, from which on they are many.
LEAST_CALLS, LEAST_EACH = 20, 5
#: How far the calls may be from the rows that led to them, in a session; and the share of calls that must be so.
NEAR, MOST_OF = 0.1, 0.8
#: By chance one session can agree; so many do not.
LEAST_SESSIONS = 3
#: Changes of one row each in a session, and their share of all it sends, from which on they could be put together.
LEAST_CHANGES, SHARE_OF_SESSION = 50, 0.5
#: Calls a second in a session, at its busiest: slower ones come from people, not from a loop.
LEAST_A_SECOND = 20.0
#: The quickest statement of a source that leaves out none takes less.
QUICK_NS = 1_000_000
#: Beginnings and ends of transactions, by the first word of a class.
_BEGINS, _ENDS = ("begin", "start", "xa"), ("commit", "rollback")
_ON = re.compile(r"autocommit\s*:?=\s*'?(?:1|on|true)\b", re.IGNORECASE)
_CHANGES = ("insert", "update", "delete", "replace")


@dataclass(frozen=True)
class Sent:
    """What a session sent of a class. ``rows`` came back, ``changed`` were changed; None without such counts."""

    session: str
    #: Of the class, as the source's reader has it.
    number: str
    statement: Statement
    rows: int | None = None
    changed: int | None = None
    #: Calls in its busiest second.
    most_a_second: float = 0.0

    @property
    def calls(self) -> int:
        return self.statement.calls

    @property
    def verb(self) -> str:
        return (self.statement.name.lower().split() or [""])[0]


@dataclass
class _Session:
    by_class: dict[str, Sent] = field(default_factory=dict)

    @property
    def transactions(self) -> int:
        return max(self._of(_BEGINS), self._of(_ENDS))

    @property
    def calls(self) -> int:
        return sum(each.calls for each in self.by_class.values())

    def _of(self, verbs: Sequence[str]) -> int:
        return sum(each.calls for each in self.by_class.values() if each.verb in verbs)

    @property
    def is_manual(self) -> bool:
        """Whether it may have switched autocommit off, so that its changes are committed together."""
        return any(
            each.verb == "set"
            and "autocommit" in each.statement.name.lower()
            and (each.calls > 1 or not _ON.search(each.statement.text))
            for each in self.by_class.values()
        )


#: The calls of a class whose text is the example's, of all that were compared; None if that cannot be known.
Same = Callable[[Sent], tuple[int, int] | None]


def repeated(sent: Iterable[Sent], schema: Schema, same: Same = lambda _: None) -> list[Costly]:
    """Those with the most time first."""
    sessions: dict[str, _Session] = {}
    for each in sent:
        sessions.setdefault(each.session, _Session()).by_class[each.number] = each
    found = [*_lookups(sessions, schema, same), *_commits(sessions, schema)]
    return sorted(found, key=lambda each: -each.statement.time_ns)


def why_unknown(least_ns: int | None, left_out: int, sessions: int) -> str:
    """Why a source cannot tell; empty if it can. ``left_out``: statements that stand for others not logged."""
    if not sessions:
        return "this source does not tell which session sent a statement"
    if left_out:
        return "its server logged only some of the statements"
    if least_ns is None or least_ns >= QUICK_NS:
        least = "no times" if least_ns is None else f"none below {least_ns / 1e6:,.1f} ms"
        return f"it leaves out quick statements ({least}), and BEGIN and COMMIT with them"
    return ""


def _lookups(sessions: Mapping[str, _Session], schema: Schema, same: Same) -> Iterable[Costly]:
    numbers = dict.fromkeys(number for session in sessions.values() for number in session.by_class)
    for number in numbers:
        own = {
            name: each
            for name, session in sessions.items()
            if (each := session.by_class.get(number)) and each.calls >= LEAST_CALLS
        }
        if not own or not _is_lookup(next(iter(own.values())).statement, schema):
            continue
        why = _by_rows(own, sessions) or _by_transaction(own, sessions)
        if why:
            first = max(own.values(), key=lambda each: each.statement.time_ns)
            whole = _sum([each.statement for each in own.values()], first.statement)
            yield Costly(whole, *_with_keys(why, same(first)))


def _is_lookup(statement: Statement, schema: Schema) -> bool:
    """Whether it reads one table by single values."""
    if not statement.name.lower().startswith("select"):
        return False
    try:
        uses = read(statement, schema).uses
    except Unread:
        return False
    return len(uses) == 1 and bool(set(uses[0].equal) - uses[0].listed) and not uses[0].ranges


def _by_rows(own: Mapping[str, Sent], sessions: Mapping[str, _Session]) -> str:
    """Which class sent as many rows as there are calls, session by session; empty if none did."""
    calls = sum(each.calls for each in own.values())
    parents = dict.fromkeys(number for name in own for number in sessions[name].by_class)
    for parent in parents:
        near: list[tuple[Sent, Sent]] = []
        for name, each in own.items():
            other = sessions[name].by_class.get(parent)
            if other is None or other is each or other.rows is None or other.verb not in ("select", "with"):
                continue
            if abs(each.calls - other.rows) <= NEAR * each.calls and each.calls >= LEAST_EACH * other.calls:
                near.append((each, other))
        agreed = sum(each.calls for each, _ in near)
        is_exact = all(each.calls == other.rows for each, other in near)
        if near and agreed >= MOST_OF * calls and (len(near) >= LEAST_SESSIONS or is_exact):
            rows = sum(other.rows or 0 for _, other in near)
            led = near[0][1].statement.name
            return (
                f"once for each row of another: {counted(agreed, 'call')} in {counted(len(near), 'session')} "
                f"after {counted(rows, 'row')} of {led if len(led) <= 120 else f'{led[:117]}...'}"
            )
    return ""


def _by_transaction(own: Mapping[str, Sent], sessions: Mapping[str, _Session]) -> str:
    many = {
        name: each for name, each in own.items() if 0 < sessions[name].transactions * LEAST_EACH <= each.calls
    }
    calls, transactions = (
        sum(each.calls for each in many.values()),
        sum(sessions[name].transactions for name in many),
    )
    if not many or calls < MOST_OF * sum(each.calls for each in own.values()):
        return ""
    return (
        f"{calls / transactions:,.1f} times in each transaction: {counted(calls, 'call')} in "
        f"{counted(transactions, 'transaction')} of {counted(len(many), 'session')}"
    )


def _with_keys(why: str, same: tuple[int, int] | None) -> tuple[str, str]:
    rather = "ask for all keys at once: a join, or IN (...) with some hundred values"
    if same is None:
        return why, rather
    equal, of = same
    if of and equal > of / 2:
        return (
            f"{why}; {equal:,} of {counted(of, 'call')} of a session have the same values",
            "keep the answer instead of asking again",
        )
    return (
        f"{why}; {of - equal:,} of {counted(of, 'call')} of a session have other values than its slowest",
        rather,
    )


def _commits(sessions: Mapping[str, _Session], schema: Schema) -> Iterable[Costly]:
    alone: dict[str, list[Sent]] = {}
    begun: dict[str, list[Sent]] = {}
    for session in sessions.values():
        changes = [each for each in session.by_class.values() if each.verb in _CHANGES]
        total = sum(each.calls for each in changes)
        statements = session.calls - 2 * session.transactions
        if session.is_manual or total < max(LEAST_CHANGES, SHARE_OF_SESSION * statements):
            continue
        for each in changes:
            if each.calls < LEAST_CHANGES or each.most_a_second < LEAST_A_SECOND or not _is_one(each, schema):
                continue
            if not session.transactions:
                alone.setdefault(each.number, []).append(each)
            elif total <= session.transactions:
                begun.setdefault(each.number, []).append(each)
    rather = "many rows in one statement, or some hundred statements between BEGIN and COMMIT"
    for found, how in ((alone, "committed by itself (autocommit)"), (begun, "in a transaction of its own")):
        for sent in found.values():
            first = max(sent, key=lambda each: each.statement.time_ns)
            whole = _sum([each.statement for each in sent], first.statement)
            fastest = max(each.most_a_second for each in sent)
            yield Costly(
                whole,
                f"one row at a time, each {how}: {counted(whole.calls, 'call')} in {counted(len(sent), 'session')}"
                f", up to {fastest:,.0f}/s in one",
                rather,
            )


def _is_one(sent: Sent, schema: Schema) -> bool:
    """Whether each call changes one row: by its count, or else, as MySQL's log has none, by the example."""
    if sent.changed is not None:
        return 0 < sent.changed <= sent.calls
    try:
        tree = parse_one(sent.statement.text)
        uses = read(sent.statement, schema).uses
    except Unread:
        return False
    if isinstance(tree, exp.Insert):
        return isinstance(tree.expression, exp.Values) and len(tree.expression.expressions) == 1
    key = uses[0].table.primary if len(uses) == 1 else ()
    return bool(key) and set(key) <= set(uses[0].equal) - uses[0].listed


def _sum(parts: Sequence[Statement], example: Statement) -> Statement:
    return replace(
        example, calls=sum(each.calls for each in parts), time_ns=sum(each.time_ns for each in parts)
    )
