"""A hunt in words: its heading, its line among many hosts, and what a fix sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.hunt.report import caches
from headrace.hunt.resources import ResourceUsage
from headrace.hunt.rules.rule import Remedy, Severity
from headrace.knobs.provider import managed_by
from headrace.show.parts import Cell, Cells, Part, Sentence, Table
from headrace.show.text import setting

if TYPE_CHECKING:
    from headrace.hunt.hunt import Hunt

SEVERITY_STYLE = {
    Severity.LIMIT: "bold red",
    Severity.RISK: "red",
    Severity.COST: "yellow",
    Severity.ADVICE: "cyan",
    Severity.HOUSEKEEPING: "dim",
}


def heading(hunt: Hunt, *, is_named: bool = True) -> str:
    """The host, its server, the time and the duration; without the host's name if that appears above."""
    facts = hunt.evidence.facts
    parts = [facts.hostname or hunt.snapshot.target] if is_named else []
    parts.append(f"SQL only, asked from {hunt.snapshot.target}" if facts.only_sql else facts.size)
    if hunt.evidence.has_server:
        settings = hunt.evidence.settings
        parts.append(f"{settings['vendor']} {settings['version'] or 'of an unknown version'}")
    if examined := caches.summary(hunt):
        parts.append(examined)
    if (found := managed_by(facts.variables, facts.server_asked)) is not None:
        parts.append(f"managed by {found.provider.name} ({found.sign})")
    if hunt.snapshot.seconds > 0 or hunt.snapshot.origin is None:
        parts.append(f"{hunt.snapshot.seconds:.0f} s from {hunt.snapshot.started_at}")
    else:
        parts.append("one reading, and no time between two")
    return " · ".join(parts)


def unexamined(hunt: Hunt) -> str:
    """That a server was asked and not examined, with the reason; empty if it was, or if none was asked."""
    from headrace.hunt.hunt import refusal

    return not_examined(refusal(hunt.snapshot))


def not_examined(why: str) -> str:
    """The sentence of a server that was asked and not examined; empty without a reason."""
    return f"The server was not examined: {why.rstrip('.')}. This is about the host alone." if why else ""


@dataclass(frozen=True)
class Line:
    """One host of many."""

    host: str
    findings: str
    sentence: str
    is_limited: bool


def line(hunt: Hunt) -> Line:
    refused = unexamined(hunt)
    return Line(
        hunt.evidence.facts.hostname or hunt.snapshot.target,
        counted(hunt) or "none",
        " ".join(text for text in (refused, hunt.verdict.sentence) if text),
        bool(refused) or hunt.verdict.limiting is not None or bool(hunt.verdict.causes),
    )


def counted(hunt: Hunt) -> str:
    """How many findings of each severity."""
    counts = Counter(finding.severity for finding in hunt.judgement.findings)
    return ", ".join(f"{counts[s]} {s}" for s in Severity if counts[s])


def brief(lines: Iterable[Line]) -> Table:
    """A line per host: those with a bottleneck first."""
    rows: list[Cells] = [
        [
            Cell(each.host, style="bold"),
            each.findings,
            Cell(each.sentence, style="bold red" if each.is_limited else ""),
        ]
        for each in sorted(lines, key=lambda each: not each.is_limited)
    ]
    return Table((("host", ""), ("findings", ""), ("verdict", "")), rows)


def alone(hunt: Hunt) -> list[Part]:
    """The line of one host; first, if it is so, that its server was not examined."""
    refused = unexamined(hunt)
    return [*([Sentence(refused, "error")] if refused else []), brief([line(hunt)])]


def waits(use: ResourceUsage) -> str:
    """Waiting work, errors, what is known about the limit, and who uses it."""
    used = f"used by {', '.join(use.users)}" if use.users else ""
    return "; ".join(part for part in (use.errors, use.saturation, use.limit, used) if part)


def remedy_text(remedy: Remedy) -> str:
    """Settings, steps, cost and effect on durability, on one line."""
    settings, notes = settings_text(remedy), notes_text(remedy)
    parts = [f"{settings}." if settings and remedy.steps else settings, *remedy.steps]
    text = " ".join(part for part in parts if part)
    return f"{text} ({notes})" if notes else text


def settings_text(remedy: Remedy) -> str:
    return ", ".join(f"{name} = {setting(value)}" for name, value in remedy.settings.items())


def notes_text(remedy: Remedy) -> str:
    """The fix's number among several, what setting it requires, and how it reduces durability."""
    notes = [remedy.label] if remedy.label else []
    if remedy.settings and not remedy.way:
        notes.append(str(remedy.cost))
    if remedy.way:
        notes.append(remedy.way)
    return "; ".join([*notes, *(f"REDUCES DURABILITY: {reason}" for reason in remedy.weakens)])
