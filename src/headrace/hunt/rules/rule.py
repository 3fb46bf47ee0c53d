"""A rule: one function that looks at the evidence and yields findings, each a hypothesis with a test.

A rule's docstring is its documentation: the first line says what it finds, the rest why that matters. A rule never
guesses: if a number that it needs is missing, the evidence raises ``NotEnough`` and the rule reports what is
missing.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.base.errors import TargetError
from headrace.base.model import Value, Vendor
from headrace.base.received import read_as_sent
from headrace.hunt.rules.evidence import Evidence, NotEnough, Number, number
from headrace.knobs.catalogue import Cost, find, weakens_durability
from headrace.knobs.knob import Versions, value_text
from headrace.knobs.provider import Provider, managed_by


class Severity(StrEnum):
    """How a finding bears on the host, worst first."""

    LIMIT = "bottleneck"  # something waits for it now
    RISK = "risk"  # data, or the server itself, is in danger
    COST = "cost"  # it works, at a price that can be measured
    ADVICE = "suggestion"  # sources say that another value may be better: only the experiment decides
    HOUSEKEEPING = "housekeeping"  # nothing on this host was seen to wait for it: to be tidied up some day


class Confidence(StrEnum):
    """How sure the rule is that its remedy helps when it fires."""

    HIGH = "high"  # the mechanism is documented, and the evidence shows it at work
    MEDIUM = "medium"  # the mechanism is documented; that it costs something here is likely
    LOW = "low"  # sources disagree, or it depends on the workload


@dataclass(frozen=True)
class Remedy:
    """What to change. ``settings`` maps knobs (``NAME`` or ``NAME@INSTANCE``) to values; ``steps`` are for a
    person, if no knob can do it. ``label`` distinguishes several remedies of one finding. ``is_faster``: whether
    it promises a faster server; a remedy that only shows more, or keeps data safe, is not for an experiment.
    ``server``: vendor and version that its cost depends on, which ``judge`` fills in."""

    settings: Mapping[str, Value] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    label: str = ""
    is_faster: bool = True
    server: tuple[Vendor, str] | None = None
    #: How its settings are changed on a managed server; ``judge`` fills it in.
    way: str = ""
    #: An index to try, as ``DATABASE.TABLE(COLUMN,...)``.
    index: str = ""

    @property
    def cost(self) -> Cost:
        """The highest of its settings; a step by hand counts as a rebuild if there is no setting."""
        order = list(Cost)
        vendor, version = self.server or (None, "")
        costs = [
            find(name.partition("@")[0]).cost_on(vendor, version, value)
            for name, value in self.settings.items()
        ]
        return max(costs, key=order.index) if costs else Cost.REBUILD

    @property
    def weakens(self) -> tuple[str, ...]:
        """How it would reduce durability; empty if it would not, as far as is known."""
        found = (weakens_durability(name.partition("@")[0], value) for name, value in self.settings.items())
        return tuple(dict.fromkeys(reason for reason in found if reason))


@dataclass(frozen=True)
class Match:
    """What a rule's function yields: one subject (a device, a core, a variable) for which its condition holds.

    ``summary`` is one sentence with numbers. ``severity`` overrides the rule's own. ``look`` is a command that
    shows more of just this, if there is one.
    """

    subject: str
    summary: str
    evidence: tuple[Number, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    severity: Severity | None = None
    look: str = ""


@dataclass(frozen=True)
class Rule:
    """``applies_to``: vendor -> versions, empty if the rule does not look at a server. ``refute`` says which
    outcome of which experiment would show the rule wrong here. ``disputed``: sources contradict each other, so the
    remedy is only ever offered as an experiment."""

    code: str
    title: str
    severity: Severity
    confidence: Confidence
    source: str
    refute: str
    check: Callable[[Evidence], Iterable[Match]]
    applies_to: Mapping[Vendor, Versions] = field(default_factory=dict)
    disputed: str = ""

    @property
    def why(self) -> str:
        return inspect.cleandoc(self.check.__doc__ or "").partition("\n\n")[2].replace("\n", " ")

    @property
    def area(self) -> str:
        """The letters of its code: which file it is in."""
        return self.code.rstrip("0123456789")


#: A rule's code, or its area -> the command that shows more of what it is about, where its fix is work by hand.
#: Statements, sessions and who waits for whom; the stacks of what fills the CPUs; the latencies of a device.
LOOK_AT = {
    **dict.fromkeys(("LOCK", "STMT", "SESS", "REPL", "WAIT01", "WAIT02"), "headrace top"),
    **dict.fromkeys(("CPU10", "LOCK01", "LOCK14"), "headrace hunt --profile"),
    **dict.fromkeys(("BLK06", "BLK07", "BLK12", "BLK17", "BLK19", "BLK21", "REDO05"), "headrace latencies"),
    "STAT09": "headrace hunt --profile",
}


@dataclass(frozen=True)
class Finding:
    """A hypothesis about this host. ``id`` names it on the command line: ``NET01@eth0``."""

    rule: Rule
    hit: Match

    @property
    def id(self) -> str:
        return f"{self.rule.code}@{self.hit.subject}" if self.hit.subject else self.rule.code

    @property
    def severity(self) -> Severity:
        return self.hit.severity or self.rule.severity

    @property
    def proof(self) -> str:
        """The command that tests its remedy; empty if no experiment can."""
        costs = {each.cost for each in self.hit.remedies if each.settings and self.promises_speed(each)}
        if not costs:
            return ""
        way = "--live" if costs & {Cost.DYNAMIC, Cost.REMOUNT} else "--plan PLAN"
        return f"headrace prove {shlex.quote(self.id)} {way}"

    @property
    def index(self) -> str:
        """The index that a remedy names, to be tried; empty if none does."""
        return next((each.index for each in self.hit.remedies if each.index), "")

    @property
    def next_command(self) -> str:
        """What to execute next: the test of its remedy, or else what the remedy would set, or, where it is work by
        hand, what shows more of it."""
        if self.proof:
            return self.proof
        if self.index:
            return f"headrace prove {shlex.quote(f'index:{self.index}')} --live"
        if any(each.settings for each in self.hit.remedies):
            return f"headrace apply {shlex.quote(self.id)} --dry-run"
        return self.hit.look or LOOK_AT.get(
            self.rule.code, LOOK_AT.get(self.rule.area, f"headrace rules show {self.rule.code}")
        )

    def promises_speed(self, remedy: Remedy) -> bool:
        """Whether an experiment could show it. A risk's remedy keeps data or the server safe, at some price."""
        return remedy.is_faster and self.severity is not Severity.RISK


def at(command: str, target: Sequence[str], login: Sequence[str]) -> str:
    """A finding's next command, ready to paste: with the host and the login of its server.

    ``target`` and ``login`` are options. A plan has its own hosts and servers, and rules are the same everywhere.
    """
    words = shlex.split(command)
    name = words[1]
    if name == "rules" or "--plan" in words:
        return command
    return " ".join(filter(None, (command, shlex.join([*target, *(() if name == "latencies" else login)]))))


@dataclass(frozen=True)
class NotEvaluated:
    """A rule that could not be evaluated, and what it lacks."""

    rule: Rule
    missing: str


@dataclass(frozen=True)
class Judgement:
    """The results of all rules: ``findings``, worst first; ``blind``: rules that lack data; ``silent``: rules with
    no finding; ``skipped``: rules for another vendor or version."""

    findings: tuple[Finding, ...]
    blind: tuple[NotEvaluated, ...]
    silent: tuple[Rule, ...]
    skipped: tuple[Rule, ...]


RULES: dict[str, Rule] = {}


def rule(
    code: str,
    *,
    severity: Severity,
    confidence: Confidence,
    source: str,
    refute: str,
    applies_to: Mapping[Vendor, Versions] | None = None,
    disputed: str = "",
) -> Callable[[Callable[[Evidence], Iterator[Match]]], Callable[[Evidence], Iterator[Match]]]:
    """Registers a function as a rule. The title is the first line of its docstring."""

    def register(check: Callable[[Evidence], Iterator[Match]]) -> Callable[[Evidence], Iterator[Match]]:
        if code in RULES:
            raise ValueError(f"two rules have the code {code}")
        title = inspect.cleandoc(check.__doc__ or "").partition("\n")[0].rstrip(".")
        RULES[code] = Rule(
            code, title, severity, confidence, source, refute, check, applies_to or {}, disputed
        )
        return check

    return register


def judge(evidence: Evidence, rules: Iterable[Rule]) -> Judgement:
    """Evaluates every rule. One that lacks data never stops the others."""
    findings: list[Finding] = []
    blind: list[NotEvaluated] = []
    silent: list[Rule] = []
    skipped: list[Rule] = []
    for each in rules:
        if not evidence.is_for(each.applies_to):
            skipped.append(each)
            continue
        try:
            with read_as_sent(f"what the host answers ({each.code})"):
                hits = list(each.check(evidence))
        except (NotEnough, TargetError) as error:  # of facts that it cannot do without
            blind.append(NotEvaluated(each, str(error)))
            continue
        findings += [Finding(each, _on_this_server(hit, evidence)) for hit in hits]
        if not hits:
            silent.append(each)
    severities, confidences = list(Severity), list(Confidence)
    findings.sort(key=lambda f: (severities.index(f.severity), confidences.index(f.rule.confidence), f.id))
    return Judgement(tuple(findings), tuple(blind), tuple(silent), tuple(skipped))


def _on_this_server(hit: Match, evidence: Evidence) -> Match:
    """With the server that its remedies are for (some versions take a value without a restart), and with the
    namespace of a mount that only the server has."""
    own = (evidence.process or {}).get("file_systems") or () if evidence.has_host else ()
    mounts = [mount for mount in own if mount["mount_point"] == hit.subject]
    if mounts and not evidence.facts.is_mount_of_host(mounts[-1]):
        view = evidence.facts.server_view
        where = number("seen", f"{view}: {evidence.facts.path_on_host(hit.subject)} on this host")
        hit = replace(hit, summary=f"{hit.summary.rstrip('.')}, {view}.", evidence=(*hit.evidence, where))
    if not evidence.has_server:
        return hit
    server = (evidence.vendor, evidence.version)
    found = managed_by(evidence.facts.variables, evidence.facts.server_asked)
    provider = found.provider if found is not None else None
    return replace(
        hit,
        remedies=tuple(
            replace(each, server=server, way=_way(each, provider, *server)) for each in hit.remedies
        ),
    )


def _way(remedy: Remedy, provider: Provider | None, vendor: Vendor, version: str) -> str:
    """How a provider lets these settings be changed; empty without one."""
    variables = {
        find(name).variable_on(vendor, version): ",".join(value)
        if isinstance(value, list)
        else value_text(value)
        for name, value in remedy.settings.items()
        if name.startswith("server.")
    }
    return provider.how_all(variables) if provider is not None and variables else ""
