"""The rules as people read them: a list, one explained, and the page of the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.report import tables
from headrace.report.hunt import SEVERITY_STYLE
from headrace.rules.rule import Rule


def table(rules: list[Rule]) -> RenderableType:
    """All rules in one list."""
    rows = tables.of_columns(*((title, False) for title in ("code", "", "finds", "confidence", "for")))
    for rule in rules:
        style = SEVERITY_STYLE[rule.severity]
        rows.add_row(
            Text(rule.code, style="bold"),
            Text(rule.severity, style=style),
            rule.title,
            rule.confidence,
            scope(rule),
        )
    return Group(rows, "", Text(f"{len(rules)} rules. headrace rules show CODE explains one.", style="dim"))


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


def markdown(rules: Sequence[Rule]) -> str:
    """docs/rules.md: every rule, by area."""
    lines = [
        "# Rules",
        "",
        "What `headrace hunt` looks for. Each finding is a hypothesis: `headrace prove` puts its remedy to the "
        "test, and *refuted if* says which outcome would show the rule wrong on your host. A rule that lacks a "
        "number says so; it never guesses. This page is written by `headrace rules --markdown`.",
    ]
    area = ""
    for rule in rules:
        if rule.area != area:
            area = rule.area
            lines += ["", f"## {area}"]
        lines += ["", f"### {rule.code}: {rule.title}", "", rule.why, ""]
        lines.append(f"- *{rule.severity}*, confidence {rule.confidence}, for {scope(rule) or 'every host'}")
        lines.append(f"- refuted if: {rule.refute}")
        if rule.disputed:
            lines.append(f"- disputed: {rule.disputed}")
        lines.append(f"- source: {rule.source}")
    return "\n".join(lines) + "\n"
