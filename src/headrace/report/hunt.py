"""A hunt as people read it: on the terminal, as JSON, and as a page without a script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headrace.analysis.resources import Level, ResourceUsage
from headrace.analysis.stacks import parse, profile
from headrace.analysis.waits import events, kernel_waits
from headrace.report import tables
from headrace.report.text import clean, setting
from headrace.rules.rule import Finding, Remedy, Severity

if TYPE_CHECKING:
    from headrace.hunt import Hunt

LEVEL_STYLE = {
    Level.SATURATED: "bold red",
    Level.BUSY: "yellow",
    Level.UNKNOWN: "magenta",
    Level.FINE: "green",
}
SEVERITY_STYLE = {
    Severity.LIMIT: "bold red",
    Severity.RISK: "red",
    Severity.COST: "yellow",
    Severity.ADVICE: "cyan",
}
#: What is fine is shown up to here; the rest is a number.
MOST_FINE = 6
#: Functions of a profile that are shown.
MOST_FUNCTIONS = 12
#: Rules that could not look are named up to here without ``--all``.
MOST_BLIND = 5
MOST_CODES = 8


def heading(hunt: Hunt, *, is_named: bool = True) -> str:
    """The host, its server, when and for how long. Without its name where that stands above."""
    facts = hunt.evidence.facts
    parts = [facts.hostname or hunt.snapshot.target] if is_named else []
    parts += [f"{facts.cpu_count} CPUs, kernel {facts.kernel_release}"]
    if hunt.evidence.has_server:
        settings = hunt.evidence.settings
        parts.append(f"{settings['vendor']} {settings['version']}")
    parts.append(f"{hunt.snapshot.seconds:.0f} s from {hunt.snapshot.started_at}")
    return clean(" · ".join(parts))


def terminal(hunt: Hunt, *, everything: bool = False) -> RenderableType:
    """The verdict, the resources, the findings, and what nobody could see."""
    parts: list[RenderableType] = [Text(heading(hunt), style="dim"), ""]
    parts += [Text(clean(hunt.verdict.sentence), style="bold"), "", _resources(hunt, everything), ""]
    findings = hunt.judgement.findings
    if findings:
        counts = Counter(finding.severity for finding in findings)
        told = ", ".join(f"{counts[s]} {s}" for s in Severity if counts[s])
        parts += [Text(f"{len(findings)} finding{'s' if len(findings) > 1 else ''} ({told})", style="bold")]
        for finding in findings:
            parts += ["", _finding(finding)]
    else:
        parts.append(Text("No rule found anything.", style="green"))
    return Group(*parts, "", *_waits(hunt, everything), *_hot_functions(hunt), *_coverage(hunt, everything))


@dataclass(frozen=True)
class Line:
    """One host of many."""

    host: str
    findings: str
    sentence: str
    is_limited: bool


def line(hunt: Hunt) -> Line:
    counts = Counter(finding.severity for finding in hunt.judgement.findings)
    return Line(
        hunt.evidence.facts.hostname or hunt.snapshot.target,
        ", ".join(f"{counts[s]} {s}" for s in Severity if counts[s]) or "none",
        hunt.verdict.sentence,
        hunt.verdict.limiting is not None,
    )


def brief(lines: Iterable[Line]) -> RenderableType:
    """A line for each host: those that something limits first."""
    table = tables.of_columns(("host", False), ("findings", False), ("verdict", False))
    for each in sorted(lines, key=lambda each: not each.is_limited):
        style = "bold red" if each.is_limited else ""
        host = Text(clean(each.host), style="bold")
        table.add_row(host, each.findings, Text(clean(each.sentence), style=style))
    return table


def _waits(hunt: Hunt, everything: bool) -> list[RenderableType]:
    """What the server's threads wait for, where hardware is not what limits them, or on request."""
    if hunt.verdict.limiting is not None and not everything:
        return []
    parts: list[RenderableType] = []
    if found := events(hunt.evidence.window):
        table = tables.of_columns(
            ("of waited time", True), ("waits/s", True), ("mean us", True), ("server waits", False)
        )
        for event in found:
            numbers = (f"{event.share:.0%}", f"{event.rate:,.0f}", f"{event.mean_us:,.1f}")
            table.add_row(*numbers, Text(clean(event.name)))
        parts += [table, ""]
    if waiting := kernel_waits(hunt.evidence.window):
        table = tables.of_columns(("threads", True), ("of", False), ("kernel waits", False))
        for wait in waiting:
            style = "dim" if wait.is_idle else ""
            function = f"{wait.function} (resting)" if wait.is_idle else wait.function
            table.add_row(f"{wait.threads:.1f}", Text(clean(wait.thread)), Text(clean(function), style=style))
        parts += [table, ""]
    return parts


def _hot_functions(hunt: Hunt) -> list[RenderableType]:
    """Where the server's CPU time went, where somebody profiled it."""
    if not hunt.snapshot.stacks:
        return []
    found = profile(parse(hunt.snapshot.stacks), MOST_FUNCTIONS)
    table = tables.of_columns(("own", True), ("with callees", True), ("function", False))
    for function in found.functions:
        table.add_row(
            f"{function.self_samples / found.samples:.1%}",
            f"{function.total_samples / found.samples:.1%}",
            Text(clean(function.name), style="cyan" if function.is_kernel else ""),
        )
    shares = f"{found.samples} stacks on the CPUs"
    if found.kernel_share is not None and found.named_share is not None:
        shares += f", {found.kernel_share:.0%} in the kernel, {found.named_share:.0%} with a name"
    return [Text(shares, style="bold"), table, ""]


def _resources(hunt: Hunt, everything: bool) -> RenderableType:
    table = tables.of_columns(
        ("", False), ("resource", False), ("used", True), ("load", False), ("waiting, errors", False)
    )
    fine = 0
    for use in hunt.verdict.uses:
        fine += use.level is Level.FINE
        if use.level is Level.FINE and fine > MOST_FINE and not everything:
            continue
        table.add_row(
            Text(use.level, style=LEVEL_STYLE[use.level]),
            Text(clean(use.name)),
            "" if use.utilisation is None else f"{100 * use.utilisation:.0f}%",
            Text(clean(use.load)),
            Text(clean(waits(use))),
        )
        for trap in use.traps:
            table.add_row("", "", "", Text(clean(trap), style="dim"), "")
    if fine > MOST_FINE and not everything:
        return Group(table, Text(f"and {fine - MOST_FINE} more that are fine: --all", style="dim"))
    return table


def waits(use: ResourceUsage) -> str:
    """What waits, what went wrong and what is known of the limit."""
    return "; ".join(part for part in (use.errors, use.saturation, use.limit) if part)


def _finding(finding: Finding) -> RenderableType:
    title = Text.assemble(
        (f"{finding.severity} ", SEVERITY_STYLE[finding.severity]),
        (clean(finding.id), "bold"),
        f"  {finding.rule.title}",
    )
    body = Table(box=None, show_header=False, pad_edge=False)
    body.add_column(style="dim", no_wrap=True)
    body.add_column(overflow="fold")
    for label, text in _rows(finding):
        body.add_row(label, Text(clean(text)))
    summary = Padding(Text(clean(finding.hit.summary)), (0, 0, 0, 2))
    return Group(title, summary, Padding(body, (0, 0, 0, 2)))


def _rows(finding: Finding) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for remedy in finding.hit.remedies:
        rows.append(("or" if rows else "remedy", remedy_text(remedy)))
    if finding.rule.disputed:
        rows.append(("disputed", finding.rule.disputed))
    if any(remedy.settings and remedy.is_faster for remedy in finding.hit.remedies):
        rows.append(("prove", f"headrace prove {finding.id}"))
    rows.append(("refuted", finding.rule.refute))
    return rows


def remedy_text(remedy: Remedy) -> str:
    """Settings, steps, cost and what it would weaken, on one line."""
    settings, notes = settings_text(remedy), notes_text(remedy)
    parts = [f"{settings}." if settings and remedy.steps else settings, *remedy.steps]
    text = " ".join(part for part in parts if part)
    return f"{text} ({notes})" if notes else text


def settings_text(remedy: Remedy) -> str:
    return ", ".join(f"{name} = {setting(value)}" for name, value in remedy.settings.items())


def notes_text(remedy: Remedy) -> str:
    """Which of several it is, what it takes to set it, and what it would weaken."""
    notes = [remedy.label] if remedy.label else []
    if remedy.settings:
        notes.append(str(remedy.cost))
    return "; ".join([*notes, *(f"WEAKENS: {reason}" for reason in remedy.weakens)])


def _coverage(hunt: Hunt, everything: bool) -> list[RenderableType]:
    judgement = hunt.judgement
    parts: list[RenderableType] = []
    if judgement.blind:
        why: dict[str, list[str]] = {}
        for blind in judgement.blind:
            why.setdefault(blind.missing, []).append(blind.rule.code)
        parts.append(Text(f"{len(judgement.blind)} rules could not look:", style="magenta"))
        shown = sorted(why.items(), key=lambda pair: -len(pair[1]))
        for missing, codes in shown if everything else shown[:MOST_BLIND]:
            rest = (
                f" and {len(codes) - MOST_CODES} more" if len(codes) > MOST_CODES and not everything else ""
            )
            named = ", ".join(codes if everything else codes[:MOST_CODES])
            parts.append(Text(f"  {clean(missing)}: {named}{rest}", style="dim"))
        if len(shown) > MOST_BLIND and not everything:
            parts.append(Text(f"  and {len(shown) - MOST_BLIND} more reasons: --all", style="dim"))
    quiet = f"{len(judgement.silent)} rules looked and found nothing"
    others = f", {len(judgement.skipped)} are for other servers or versions" if judgement.skipped else ""
    parts.append(Text(f"{quiet}{others}.", style="dim"))
    return parts


def to_json(hunt: Hunt) -> dict[str, Any]:
    """Everything, for programs; the keys are those of the classes."""
    return {
        "host": hunt.evidence.facts.hostname,
        "target": hunt.snapshot.target,
        "started_at": hunt.snapshot.started_at,
        "seconds": hunt.snapshot.seconds,
        "verdict": hunt.verdict.sentence,
        "limiting": hunt.verdict.limiting.name if hunt.verdict.limiting else None,
        "resources": [
            {
                "name": use.name,
                "level": use.level,
                "utilisation": use.utilisation,
                "load": use.load,
                "saturation": use.saturation,
                "errors": use.errors,
                "limit": use.limit,
                "traps": use.traps,
                "numbers": {k: v for k, v in use.numbers.items() if v == v},
            }
            for use in hunt.verdict.uses
        ],
        "findings": [finding_json(finding) for finding in hunt.judgement.findings],
        "blind": [{"rule": blind.rule.code, "missing": blind.missing} for blind in hunt.judgement.blind],
        "silent": [rule.code for rule in hunt.judgement.silent],
        "skipped": [rule.code for rule in hunt.judgement.skipped],
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "title": finding.rule.title,
        "severity": finding.severity,
        "confidence": finding.rule.confidence,
        "summary": finding.hit.summary,
        "evidence": {number.what: number.value for number in finding.hit.evidence},
        "remedies": [
            {
                "label": remedy.label,
                "settings": dict(remedy.settings),
                "steps": remedy.steps,
                "cost": remedy.cost,
                "weakens": remedy.weakens,
            }
            for remedy in finding.hit.remedies
        ],
        "why": finding.rule.why,
        "refute": finding.rule.refute,
        "disputed": finding.rule.disputed,
        "source": finding.rule.source,
    }
