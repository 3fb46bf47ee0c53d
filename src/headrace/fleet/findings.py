"""The findings of many hosts: how many have each one, how bad it is there, and who is unlike the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.fleet.causes import cause_of
from headrace.hunt.resources import Verdict
from headrace.hunt.rules.rule import Judgement, Severity

#: A finding is odd if so few hosts have it, or lack it, in a fleet of at least so many.
ODD_SHARE, ODD_FLEET = 0.1, 4
#: Summaries kept of each finding.
MOST_EXAMPLES = 3


def to_json(judgement: Judgement, verdict: Verdict, no_server: str = "") -> dict[str, Any]:
    """One host's answer: its verdict, its findings, the rules that could not be evaluated. ``no_server``: why its
    server was not asked.
    """
    return {
        "verdict": verdict.sentence,
        "cause": cause_of(verdict, judgement),
        "no_server": no_server,
        "not_evaluated": sorted({each.rule.code for each in judgement.blind}),
        "findings": [
            {
                "id": finding.id,
                "code": finding.rule.code,
                "title": finding.rule.title,
                "severity": str(finding.severity),
                "confidence": str(finding.rule.confidence),
                "summary": finding.hit.summary,
                "settings": [dict(remedy.settings) for remedy in finding.hit.remedies],
                "index": finding.index,
            }
            for finding in judgement.findings
        ],
    }


@dataclass
class Common:
    """One rule's finding on all hosts that have it. ``worst`` is the worst severity, on ``worst_on`` hosts."""

    code: str
    title: str
    hosts: dict[str, Severity] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    #: By host, the indexes to try, as ``DATABASE.TABLE(COLUMN,...)``.
    indexes: dict[str, list[str]] = field(default_factory=dict)

    @property
    def worst(self) -> Severity:
        return min(self.hosts.values(), key=list(Severity).index)

    @property
    def worst_on(self) -> int:
        return sum(severity is self.worst for severity in self.hosts.values())


@dataclass
class Findings:
    """``add`` host by host."""

    by_code: dict[str, Common] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    #: By host, what ``cause_of`` says.
    causes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    #: By rule, the hosts of which it could not be said whether they have it.
    unknown: dict[str, set[str]] = field(default_factory=dict)
    #: Hosts whose server was not asked, and why.
    no_server: dict[str, str] = field(default_factory=dict)

    def add(self, host: str, answer: Mapping[str, Any]) -> None:
        self.verdicts[host] = str(answer["verdict"])
        if isinstance(cause := answer.get("cause"), Mapping):
            self.causes[host] = cause
        order = list(Severity)
        # A run file may be of a time when this was not in it.
        for code in answer.get("not_evaluated", ()):
            self.unknown.setdefault(code, set()).add(host)
        if why := answer.get("no_server"):
            self.no_server[host] = str(why)
        for row in answer["findings"]:
            common = self.by_code.setdefault(row["code"], Common(row["code"], row["title"]))
            severity = Severity(row["severity"])
            known = common.hosts.get(host, severity)
            common.hosts[host] = min(severity, known, key=order.index)
            if len(common.examples) < MOST_EXAMPLES:
                common.examples.setdefault(host, row["summary"])
            if index := row.get("index"):
                common.indexes.setdefault(host, []).append(str(index))

    def ranked(self) -> list[Common]:
        """By what they cost, the worst severity first, then by how many hosts pay for it."""
        order = list(Severity)
        return sorted(
            self.by_code.values(),
            key=lambda each: (order.index(each.worst), -each.worst_on, -len(each.hosts), each.code),
        )

    def odd(self) -> list[tuple[Common, bool, tuple[str, ...]]]:
        """(finding, whether few have it or few lack it, these few). Hosts that could not be asked lack nothing."""
        total = len(self.verdicts)
        few = max(1, int(ODD_SHARE * total))
        if total < ODD_FLEET:
            return []
        found: list[tuple[Common, bool, tuple[str, ...]]] = []
        for common in self.ranked():
            unknown = self.unknown.get(common.code, ())
            lacking = tuple(
                host for host in self.verdicts if host not in common.hosts and host not in unknown
            )
            if len(common.hosts) <= few:
                found.append((common, True, tuple(common.hosts)))
            elif 0 < len(lacking) <= few:
                found.append((common, False, lacking))
        return found


def severities(common: Common) -> Sequence[tuple[Severity, int]]:
    """How many hosts have it with each severity, worst first."""
    counts = [(severity, sum(own is severity for own in common.hosts.values())) for severity in Severity]
    return [(severity, count) for severity, count in counts if count]
