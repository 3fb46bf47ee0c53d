"""The page of one finding: how it reads, when it stood, the statement that it names, and the rule that gave it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starlette.exceptions import HTTPException

from headrace.history import questions
from headrace.hunt.report.rules import scope
from headrace.hunt.rules import all_rules
from headrace.hunt.rules.rule import Rule
from headrace.web import tables
from headrace.web.asked import Asked
from headrace.web.listing import Listing, Row
from headrace.web.site import Site, loaded, one_host

#: Classes that hold the statement's text, the one with the most time first.
MOST_CLASSES = 3


async def page(site: Site, asked: Asked, identity: str, may: bool) -> dict[str, Any]:
    """Values of the template. Raises HTTPException if the finding did not stand in the range and does not now."""
    [host] = one_host(site, asked)
    now = await tables.findings(site, asked)
    watched = site.watched(host)
    is_judged = watched is not None and watched.judgement is not None
    row = next((each for each in now.rows if each["id"] == identity), None) if is_judged else None
    stood = await site.ask(questions.stood, site.reader, host, identity, asked.span())
    rows = (each for each in loaded(stood.findings) if isinstance(each, dict))
    kept = next((each for each in rows if each.get("id") == identity), None)
    if row is None and kept is None:
        raise HTTPException(404, "this finding did not stand in this range; choose a longer one")
    shown = row or {**tables.UNKEPT, **(kept or {})}
    # A moment's look may lack the statement that one before it saw.
    statement = str(shown.get("statement") or (kept or {}).get("statement") or "")
    classes = await _classes(site, asked, statement) if statement else None
    return {
        "card": Listing((), [shown]),
        "stands": row is not None,
        "is_judged": is_judged,
        "stood": stood,
        "statement": statement,
        "classes": classes,
        "work": await _work(site, asked, classes, may) if classes and classes.rows else None,
        "rule": _about(identity),
        "changes": await tables.changes(site, asked),
        "in_minutes": asked.span().rows_s == 60,
        "may": may,
    }


async def _classes(site: Site, asked: Asked, statement: str) -> Listing:
    """Those whose text holds the statement's, of the first source that has it: the one shown, then others."""
    named = replace(asked, words=statement, with_own=True, sort="")
    first = found = await tables.classes(site, named, MOST_CLASSES)
    for source in first.extra["sources"]:
        if found.rows:
            break
        if source != first.extra["source"]:
            found = await tables.classes(site, replace(named, source=source), MOST_CLASSES)
    return found if found.rows else first


async def _work(site: Site, asked: Asked, classes: Listing, may: bool) -> dict[str, Any]:
    """What the first of the classes has: plans, and one call if this user may see values."""
    row, source = classes.rows[0], classes.extra["source"]
    span, names = asked.span(), [asked.host]
    ask, reader = site.ask, site.reader
    return {
        "row": row,
        "source": source,
        "plans": await ask(questions.plans, reader, names, source, row["class"], span.until_s),
        "example": await ask(questions.example, reader, names, span, source, row["class"]) if may else None,
    }


def _about(identity: str) -> Row:
    """The rule in words; only its code if this version has no such rule."""
    code = identity.partition("@")[0]
    rule = next((each for each in all_rules() if each.code == code), None)
    return {"code": code, "rows": [] if rule is None else _rows(rule)}


def _rows(rule: Rule) -> list[tuple[str, str]]:
    rows = [
        ("why it matters", rule.why),
        ("confidence", str(rule.confidence)),
        ("for", scope(rule) or "every host"),
        ("refuted if", rule.refute),
        ("disputed", rule.disputed),
        ("source", rule.source),
    ]
    return [(name, text) for name, text in rows if text]
