"""The statements of a digest: an example of each class, and what its calls cost."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.indexes.names import parts, places
from headrace.indexes.repeated import Sent
from headrace.indexes.statement import Statement
from headrace.traffic.digests.classes import Digest, QueryClass
from headrace.traffic.digests.table import OTHERS

#: A name with a dot.
_DOTTED = re.compile(r"`[^`]*\.[^`]*`")
#: The server's own databases, whose tables take no index.
_NO_TABLE = ("information_schema", "performance_schema", "mysql", "sys")


def statements(digest: Digest, most: int) -> tuple[list[Statement], list[tuple[Statement, str]]]:
    """The ``most`` classes with the most time that name a table, and those without an example, with the reason."""
    ready, left_out = [], []
    for each in [one for one in digest.classes if one.name != OTHERS and one.tables][:most]:
        statement = _statement(each)
        if why := _unusable(each):
            left_out.append((statement, why))
        else:
            ready.append(statement)
    return ready, left_out


def by_session(digest: Digest) -> list[Sent]:
    """What each session sent, of a digest that was grouped by class and session."""
    found = []
    for each in digest.classes:
        session = each.key.get("session")
        if each.name == OTHERS or not session:
            continue
        counts = each.slices.count
        busiest = float(counts.max()) / (digest.slice_ns / 1e9) if len(counts) else 0.0
        sent, changed = each.number("rows_sent"), each.number("rows_affected")
        found.append(
            Sent(
                session,
                each.key.get("class", ""),
                _statement(each),
                sent.sum if sent.count else None,
                changed.sum if changed.count else None,
                busiest,
            )
        )
    return found


def tables(digest: Digest, most: int) -> list[str]:
    """DATABASE.TABLE of their tables; one that is written without its database may be in any of the class's."""
    names: dict[str, None] = {}
    for each in [one for one in digest.classes if one.name != OTHERS and one.tables][:most]:
        for written in each.tables:
            # Of `a.b` the digest has a.b, which may be a table's name as well as two names.
            is_dotted = _DOTTED.search(str(each.sample.get("text") or "")) is not None
            names |= dict.fromkeys(places(written, _databases(each), may_be_dotted=is_dotted))
    return [name for name in names if parts(name)[0].lower() not in _NO_TABLE]


def _databases(each: QueryClass) -> Iterable[str]:
    known = [label.text for label in each.labels.get("database", ())]
    return dict.fromkeys([*known, str(each.sample.get("database") or "")])


def _statement(each: QueryClass) -> Statement:
    examined, sent, changed = (each.number(f"rows_{word}") for word in ("examined", "sent", "affected"))
    returned = sent.sum + changed.sum if sent.count or changed.count else None
    if each.texts.get("verb", "").upper() != "SELECT" and not changed.count:
        # How many rows a write changes is not in this log, and those that it sends are none.
        returned = None
    return Statement(
        each.texts.get("fingerprint") or each.fingerprint,
        str(each.sample.get("text") or ""),
        str(each.sample.get("database") or ""),
        each.count,
        each.total_ns,
        examined.sum if examined.count else None,
        returned,
        each.number("response_bytes").sum if each.number("response_bytes").count else None,
    )


def _unusable(each: QueryClass) -> str:
    text = str(each.sample.get("text") or "")
    if not text:
        return "the digest has no example of it"
    if each.sample.get("text_bytes", 0) > len(text.encode()):
        return "its example is cut off"
    return "a password was taken out of its example" if each.sample.get("is_redacted") else ""
