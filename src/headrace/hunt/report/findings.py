"""The findings: each a hypothesis with its numbers, its fixes and what would refute it."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.hunt.hunt import Hunt
from headrace.hunt.report.words import SEVERITY_STYLE, counted, notes_text, remedy_text, settings_text
from headrace.hunt.rules.rule import Finding, Remedy, Severity
from headrace.show.parts import Card, Facts, Gap, Note, Part, Section, Sentence, Sentences, Span, Words


def section(hunt: Hunt) -> Section:
    return Section(
        "findings",
        "Findings",
        "Findings",
        lambda: _parts(hunt),
        "Each is a hypothesis about this host: what the numbers show, what to change, and what would "
        "refute it. Worst first.",
        list(_brief(hunt)),
        {"findings": [to_json(hunt, finding) for finding in hunt.judgement.findings]},
    )


TO_TIDY = "Housekeeping: no measured effect on this host."


def _first_to_tidy(hunt: Hunt) -> Finding | None:
    return next((f for f in hunt.judgement.findings if f.severity is Severity.HOUSEKEEPING), None)


def _parts(hunt: Hunt) -> Iterator[Part]:
    for finding in hunt.judgement.findings:
        if finding is _first_to_tidy(hunt):
            yield Note(TO_TIDY)
        about = f"{finding.id} · {finding.severity} · confidence {finding.rule.confidence}"
        numbers = [(f"{n.what} ", Span(str(n.value), "strong")) for n in finding.hit.evidence]
        yield Card(
            (f"{finding.rule.title} ", Span(about, "aside")),
            [
                Sentence(finding.hit.summary, "summary"),
                Sentences(numbers, "numbers"),
                Sentence(finding.rule.why, "why"),
                Facts(list(_rows(hunt, finding))),
            ],
            f"finding {finding.severity}",
        )
    if not hunt.judgement.findings:
        yield Note("No findings.")


def _rows(hunt: Hunt, finding: Finding) -> Iterator[tuple[str, Words]]:
    for i, remedy in enumerate(finding.hit.remedies):
        yield "or" if i else "fix", _remedy(remedy)
    if finding.rule.disputed:
        yield "disputed", finding.rule.disputed
    yield "refuted if", finding.rule.refute
    yield "source", finding.rule.source
    yield "next", Span(hunt.next_command(finding), "code")


def _remedy(remedy: Remedy) -> Words:
    found = [Span(settings_text(remedy), "code")] if remedy.settings else []
    found += [Span(step, "step") for step in remedy.steps]
    return [*found, *([Span(notes, "aside")] if (notes := notes_text(remedy)) else [])]


def _brief(hunt: Hunt) -> Iterator[Part]:
    findings = hunt.judgement.findings
    if not findings:
        yield Sentence("No findings.", "good")
    else:
        yield Sentence(
            f"{len(findings)} finding{'s' if len(findings) > 1 else ''} ({counted(hunt)})", "strong"
        )
    for finding in findings:
        if finding is _first_to_tidy(hunt):
            yield Gap()
            yield Sentence(TO_TIDY, "strong")
        severity = Span(f"{finding.severity} ", style=SEVERITY_STYLE[finding.severity])
        title = (severity, Span(finding.id, "strong"), f"  {finding.rule.title}")
        yield Gap()
        yield Card(title, [Sentence(finding.hit.summary), Facts(_short(hunt, finding))])
    yield Gap()


def _short(hunt: Hunt, finding: Finding) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for remedy in finding.hit.remedies:
        rows.append(("or" if rows else "fix", remedy_text(remedy)))
    if finding.rule.disputed:
        rows.append(("disputed", finding.rule.disputed))
    return [*rows, ("refuted if", finding.rule.refute), ("next", hunt.next_command(finding))]


def to_json(hunt: Hunt, finding: Finding) -> dict[str, object]:
    rule, hit = finding.rule, finding.hit
    return {
        "id": finding.id,
        "title": rule.title,
        "severity": finding.severity,
        "confidence": rule.confidence,
        "summary": hit.summary,
        "evidence": {
            number.what: number.value if number.exact is None else number.exact for number in hit.evidence
        },
        "remedies": [
            {
                "label": remedy.label,
                "settings": remedy.settings,
                "steps": remedy.steps,
                "cost": remedy.cost,
                "weakens": remedy.weakens,
                "way": remedy.way,
            }
            for remedy in hit.remedies
        ],
        "why": rule.why,
        "refute": rule.refute,
        "disputed": rule.disputed,
        "source": rule.source,
        "next": hunt.next_command(finding),
    }
