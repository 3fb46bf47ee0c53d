"""A hunt's report: its sections in order.

A new section needs its own file and a line here. The page has no script.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.counted import counted
from headrace.base.received import read_as_sent
from headrace.host.spared import OPTION, left_out
from headrace.host.stacks import parse, profile
from headrace.hunt.hunt import Hunt, refusal
from headrace.hunt.report import caches, findings, origin, resources, sessions, words
from headrace.hunt.report.words import heading
from headrace.hunt.waits import events, kernel_waits
from headrace.show.parts import Cell, Facts, Gap, Image, Note, Page, Part, Section, Sentence, Table

#: Maximum functions of a profile.
MOST_FUNCTIONS = 12

#: Reasons why rules were not evaluated, and rules per reason, shown without ``--all``.
MOST_BLIND, MOST_CODES = 5, 8


@read_as_sent("what the host answers")
def page_of(hunt: Hunt, flame_graph: str = "", *, everything: bool = False) -> Page:
    """``flame_graph`` is an SVG; ``everything``: a terminal also shows healthy resources and every gap."""
    facts = hunt.evidence.facts
    verdict = hunt.verdict.sentence
    cautions = _cautions(hunt)
    first: list[Part] = [Sentence(heading(hunt), "aside"), Gap(), Sentence(verdict, "verdict"), Gap()]
    if refused := words.unexamined(hunt):
        first = [Sentence(refused, "error"), Gap(), *first]
    first += [part for text in cautions for part in (Note(f"Caution: {text}.", is_attention=True), Gap())]
    return Page(
        eyebrow="headrace hunt",
        title=facts.hostname or hunt.snapshot.target,
        lead=heading(hunt, is_named=False),
        verdicts=[text for text in (refused, verdict) if text],
        is_verdict_brief=False,
        cautions=cautions,
        sections=[
            Section("heading", "", "", brief=first),
            resources.section(hunt, everything=everything),
            sessions.section(hunt),
            caches.section(hunt),
            findings.section(hunt),
            Section("waits", "", "", brief=list(_waits(hunt, everything))),
            _stacks(hunt, flame_graph),
            _gaps(hunt, everything),
            *origin.sections(hunt),
            Section("host", "Host", "Host", lambda: [Facts(list(facts.digest()))]),
        ],
        footer=origin.footer(hunt),
        data={
            "host": facts.hostname,
            "target": hunt.snapshot.target,
            "started_at": hunt.snapshot.started_at,
            "seconds": hunt.snapshot.seconds,
            "verdict": verdict,
            "why_no_server": refusal(hunt.snapshot) or None,
            "limiting": hunt.verdict.limiting.name if hunt.verdict.limiting else None,
            "causes": list(hunt.verdict.causes),
        },
    )


def _cautions(hunt: Hunt) -> list[str]:
    """Warnings if no server was examined, and about what a dump is."""
    why = hunt.snapshot.errors.get("server")
    also = " and memcached were" if caches.summary(hunt) else " was"
    examined = f"only the host{also} examined: " if hunt.evidence.has_host else ""
    own = [f"{examined}{why}"] if why else []
    return own + list(hunt.snapshot.origin.cautions if hunt.snapshot.origin else ())


def _waits(hunt: Hunt, everything: bool) -> Iterator[Part]:
    """What the server's threads wait for, if hardware does not limit them or on request."""
    if hunt.verdict.limiting is not None and not everything:
        return
    if found := events(hunt.evidence.window):
        columns = (("of waited time", "n"), ("waits/s", "n"), ("mean us", "n"), ("server waits", ""))
        yield Table(
            columns, [(f"{e.share:.0%}", f"{e.rate:,.0f}", f"{e.mean_us:,.1f}", e.name) for e in found]
        )
        yield Gap()
    if hunt.evidence.has_host and (waiting := kernel_waits(hunt.evidence.window)):
        rows = [
            (
                f"{wait.threads:.1f}",
                wait.thread,
                Cell(f"{wait.function} (resting)", style="dim") if wait.is_idle else wait.function,
            )
            for wait in waiting
        ]
        yield Table((("threads", "n"), ("of", ""), ("kernel waits", "")), rows)
        yield Gap()


def _stacks(hunt: Hunt, flame_graph: str) -> Section:
    """Where the server's CPU time went, if it was profiled."""
    picture = [Image(flame_graph, "Flame graph of the stacks on the CPUs")] if flame_graph else []
    return Section("stacks", "Stacks", "Where the CPU time went", picture, brief=list(_hot_functions(hunt)))


def _hot_functions(hunt: Hunt) -> Iterator[Part]:
    if not hunt.snapshot.stacks:
        return
    found = profile(parse(hunt.snapshot.stacks), MOST_FUNCTIONS)
    shares = f"{counted(found.samples, 'stack')} on the CPUs"
    if found.kernel_share is not None and found.named_share is not None:
        shares += f", {found.kernel_share:.0%} in the kernel, {found.named_share:.0%} with a name"
    rows = [
        (
            f"{function.self_samples / found.samples:.1%}",
            f"{function.total_samples / found.samples:.1%}",
            Cell(function.name, style="cyan" if function.is_kernel else ""),
        )
        for function in found.functions
    ]
    yield Sentence(shares, "strong")
    yield Table((("own", "n"), ("with callees", "n"), ("function", "")), rows)
    yield Gap()


def _gaps(hunt: Hunt, everything: bool) -> Section:
    judgement = hunt.judgement
    snapshot = hunt.snapshot
    spared = left_out(hunt.evidence.window, snapshot.facts, snapshot.errors, snapshot.activity)
    why: dict[str, list[str]] = {}
    for blind in judgement.blind:
        why.setdefault(blind.missing, []).append(blind.rule.code)
    missing = sorted(why.items(), key=lambda pair: -len(pair[1]))
    quiet, others = len(judgement.silent), len(judgement.skipped)
    looked = f"{counted(quiet, 'rule')} had no finding; {others} are for other servers or versions."
    said = (
        "These rules lack data; the problems they look for may still exist."
        if missing
        else "Every rule had the data it needs."
    )
    columns = (("missing", "wrap"), ("rules", "wrap"))
    table = (
        [
            Table(
                columns,
                [(Cell(name, look="wide"), Cell(", ".join(codes), look="wide")) for name, codes in missing],
                named=-1,
                is_stacked=True,
            )
        ]
        if missing
        else []
    )
    brief = list(_blind(missing, len(judgement.blind), everything))
    skipped = f", {others} are for other servers or versions" if others else ""
    brief.append(Sentence(f"{counted(quiet, 'rule')} had no finding{skipped}.", "aside"))
    brief += _spared(spared)
    return Section(
        "gaps",
        "Not evaluated",
        "Not evaluated",
        [*table, Sentence(looked), *_spared(spared)],
        said,
        brief,
        {
            "blind": [{"rule": blind.rule.code, "missing": blind.missing} for blind in judgement.blind],
            "silent": [rule.code for rule in judgement.silent],
            "skipped": [rule.code for rule in judgement.skipped],
            "spared": list(spared),
        },
    )


def _spared(lines: tuple[str, ...]) -> Iterator[Part]:
    if lines:
        yield Sentence(
            f"Left out to limit the load on the host and its server; headrace hunt {OPTION} collects all of "
            "it:",
            "alert",
        )
    for line in lines:
        yield Sentence(f"  {line}", "aside")


def _blind(missing: list[tuple[str, list[str]]], count: int, everything: bool) -> Iterator[Part]:
    if not missing:
        return
    yield Sentence(f"{counted(count, 'rule')} not evaluated (missing data):", "alert")
    for name, codes in missing if everything else missing[:MOST_BLIND]:
        shown = codes if everything else codes[:MOST_CODES]
        rest = f" and {len(codes) - len(shown)} more" if len(codes) > len(shown) else ""
        yield Sentence(f"  {name}: {', '.join(shown)}{rest}", "aside")
    if len(missing) > MOST_BLIND and not everything:
        yield Sentence(f"  and {len(missing) - MOST_BLIND} more reasons: --all", "aside")
