"""What many hosts have in common: those with the same cause, as one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.host.ranges import fold
from headrace.hunt.resources import Verdict
from headrace.hunt.rules.rule import RULES, Judgement

#: A resource that is saturated and that no finding explains, in words.
SATURATED = {
    "cpu": "the CPUs are saturated",
    "core": "one core is full while the others have room",
    "memory": "memory is short",
    "block": "a device is saturated",
    "network": "a network interface is full",
    "tcp": "connections are lost or refused",
    "softirq": "one core does the receive work of all",
    "sessions": "sessions wait",
}
NOTHING = "nothing limits them, as far as it is known"


def cause_of(verdict: Verdict, judgement: Judgement) -> dict[str, str]:
    """The cause that a host's verdict names first: ``key`` is equal on hosts with the same, ``words`` says it."""
    titles = {finding.id: finding.rule for finding in judgement.findings}
    if verdict.causes:
        code = verdict.causes[0].partition("@")[0]
        rule = titles.get(verdict.causes[0]) or RULES.get(code)
        title = rule.title if rule is not None else code
        return {"key": code, "words": f"{title[0].lower()}{title[1:]} ({code})"}
    if verdict.limiting is not None:
        kind = verdict.limiting.resource
        return {"key": kind, "words": SATURATED.get(kind, f"{kind} is saturated")}
    if "is unknown" in verdict.sentence.partition(".")[0]:
        return {"key": "unknown", "words": "what limits them is unknown"}
    if "waited for I/O" in verdict.sentence or "blocked in I/O" in verdict.sentence:
        return {"key": "io", "words": "tasks wait for I/O although no device is saturated"}
    if "wait on each other" in verdict.sentence:
        return {"key": "threads", "words": "server threads wait on each other"}
    return {"key": "", "words": NOTHING}


@dataclass(frozen=True)
class Group:
    """Hosts with the same cause. ``total``: hosts in all; ``example``: the verdict on the first of them."""

    words: str
    hosts: tuple[str, ...]
    total: int
    example: str

    @property
    def sentence(self) -> str:
        count = len(self.hosts)
        if count == self.total > 1:
            who = f"All {count} hosts"
        else:
            who = f"{fold(self.hosts)} ({count} of {self.total})" if self.total > 1 else fold(self.hosts)
        first = f" For example {self.hosts[0]}: {self.example}" if self.words != NOTHING else ""
        return f"{who}: {self.words}.{first}"


def groups(causes: Mapping[str, Mapping[str, Any]], verdicts: Mapping[str, str]) -> list[Group]:
    """The largest first; hosts that nothing limits, and those of which nothing is known, last.

    ``causes`` are those of the hosts that have one; answers of an older version have none.
    """
    found: dict[str, list[str]] = {}
    for host, cause in causes.items():
        found.setdefault(str(cause["key"]), []).append(host)
    order = sorted(
        found.items(), key=lambda each: (each[0] == "", each[0] == "unknown", -len(each[1]), each[0])
    )
    return [
        Group(str(causes[hosts[0]]["words"]), tuple(hosts), len(verdicts), verdicts.get(hosts[0], ""))
        for _, hosts in order
    ]


def sentences(causes: Mapping[str, Mapping[str, Any]], verdicts: Mapping[str, str]) -> Iterator[str]:
    for group in groups(causes, verdicts):
        yield group.sentence
