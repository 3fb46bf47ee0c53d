"""The rules for people: a list, and one explained. scripts/reference.py writes the documentation's pages."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.base.counted import counted
from headrace.hunt.report.words import SEVERITY_STYLE
from headrace.hunt.rules.rule import Rule
from headrace.show.columns import of_columns


def table(rules: list[Rule]) -> RenderableType:
    """All rules in one list."""
    rows = of_columns(*((title, False) for title in ("code", "", "finds", "confidence", "for")))
    for rule in rules:
        style = SEVERITY_STYLE[rule.severity]
        rows.add_row(
            Text(rule.code, style="bold"),
            Text(rule.severity, style=style),
            rule.title,
            rule.confidence,
            scope(rule),
        )
    return Group(
        rows, "", Text(f"{counted(len(rules), 'rule')}. headrace rules show CODE explains one.", style="dim")
    )


def scope(rule: Rule) -> str:
    """Vendors and versions, as ``MariaDB 10.5 to 11.0, MySQL``."""
    parts = []
    for vendor, versions in rule.applies_to.items():
        span = f" from {versions.since}" if versions.since else ""
        span += f" before {versions.until}" if versions.until else ""
        parts.append(f"{vendor}{span}")
    return ", ".join(parts)


def page(rule: Rule) -> RenderableType:
    """One rule, explained."""
    body = Table(box=None, show_header=False, pad_edge=False)
    body.add_column(style="dim", no_wrap=True)
    body.add_column(overflow="fold")
    rows = [
        ("why", rule.why),
        ("severity", str(rule.severity)),
        ("confidence", str(rule.confidence)),
        ("for", scope(rule) or "every host"),
        ("refuted if", rule.refute),
        ("disputed", rule.disputed),
        ("source", rule.source),
    ]
    for label, text in rows:
        if text:
            body.add_row(label, Text(text))
    return Group(Text(f"{rule.code}  {rule.title}", style="bold"), "", body)
