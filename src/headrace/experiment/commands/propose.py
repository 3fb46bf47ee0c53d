"""The command ``propose``: a whole configuration, with a reason for each line, and the plan that tests it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.errors import NotReady
from headrace.base.model import ServerLogin, Value
from headrace.cli.options import NO_LOGIN, WatchTime, grouped
from headrace.cli.shell import Json, TargetOption, app, print_json, stderr, stdout
from headrace.experiment.commands.experiments import find_plan

if TYPE_CHECKING:
    from headrace.hunt.hunt import Hunt
    from headrace.hunt.proposal import Line, Proposal
    from headrace.show.parts import Part

#: A plan whose workload tests the proposal, where none is named.
EXAMPLE = "stock-to-all"


@app.command(
    epilog="Example: headrace propose --duration 5m; headrace propose --from db1.hunt --plan my.toml -o new.toml",
)
@grouped
def propose(
    target: TargetOption = "local",
    seconds: WatchTime = 60.0,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="A saved hunt, a trial, or a dump, instead of watching."),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", "-p", help=f"With -o: workload and machine of the test [{EXAMPLE}]."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write a plan that tests it: all lines, and all but each."),
    ] = None,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Propose a whole configuration for a server, from its machine, its load and what hunt finds. Changes nothing.

    Each line has its reason. Nothing in it weakens durability, and all of it fits into memory.
    """
    from headrace.hunt.proposal import propose as made
    from headrace.show import terminal

    hunt = _examined(target, seconds, source, login)
    proposal = made(hunt.evidence, hunt.judgement)
    test, out = _plan(proposal, plan, output) if output or plan else ("", {})
    if as_json:
        print_json(_content(proposal, test, out))
        return
    stdout().print(terminal.show(list(_parts(proposal, target, test, out))))


def _examined(target: str, seconds: float, source: Path | None, login: ServerLogin) -> Hunt:
    from headrace.hunt import hunt as hunts
    from headrace.hunt.commands.hunt import Measured, examined, saved_host, watched

    nothing = Measured.of([])
    if saved := [source] if source else saved_host(target):
        hunt = examined(saved[0], nothing)
    else:
        hunt = hunts.examine(watched(target, seconds, login, nothing, False, False, False, None))
    if not hunt.evidence.has_server:
        why = hunts.why_no_server(hunt.snapshot) or "no server was examined"
        raise NotReady(
            why, place=str(source or target), hint="a proposal needs the server's settings and counters"
        )
    return hunt


def _plan(proposal: Proposal, plan: Path | None, output: Path | None) -> tuple[str, dict[str, str]]:
    """The path of the plan that was written, and what is not in it."""
    from headrace.base.whole import replace_whole
    from headrace.experiment import plan as plans
    from headrace.experiment.proposed import plan_of, why_not

    if output is None:
        raise typer.BadParameter("--plan needs -o: the file for the plan")
    if output.exists():
        raise NotReady(
            "exists already, and may be a plan of yours", place=str(output), hint="-o another file"
        )
    out = {
        line.knob: why
        for line in proposal.lines
        if (
            why := why_not(line.knob)
            if line.is_speed
            else "keeps data or the server safe: throughput cannot show it"
        )
    }
    groups: dict[str, dict[str, Value]] = {}
    for line in proposal.lines:
        if line.knob not in out:
            groups.setdefault(line.group, {})[line.knob] = line.value
    if not groups:
        raise NotReady("nothing is proposed that a plan could test", place=str(output))
    base = plans.load(find_plan(plan or Path(EXAMPLE))).plan
    text = plan_of(base, [*groups.values()], {line.knob: line.now for line in proposal.lines})
    replace_whole(output, text)
    plans.load(output)
    stderr().print(f"written: {output}", soft_wrap=True, highlight=False)
    return str(output), out


def _content(proposal: Proposal, test: str, out: dict[str, str]) -> dict[str, Any]:
    return {
        "lines": [
            {
                "knob": line.knob,
                "now": _typed(line.now),
                "value": line.value,
                "why": line.why,
                "basis": line.basis,
                "cost": str(line.cost),
                "is_speed": line.is_speed,
                "way": line.way or None,
            }
            for line in proposal.lines
        ],
        "left": [{"what": what, "why": why} for what, why in proposal.left],
        "durable": {name: _typed(value) for name, value in proposal.durable.items()},
        "plan": test or None,
        "not_in_plan": out,
    }


def _typed(text: str) -> int | str | None:
    """A setting's value as programs read it."""
    return int(text) if text.isdigit() else text or None


def _parts(proposal: Proposal, target: str, test: str, out: dict[str, str]) -> Iterator[Part]:
    from headrace.base.counted import counted
    from headrace.show.parts import Gap, Sentence, Sentences

    unknown = [what for what, why in proposal.left if why.startswith("unknown: ")]
    if unknown and not proposal.lines:
        yield Sentence(f"Nothing is proposed, and too little is known of {', '.join(unknown)}.", "attention")
    elif not proposal.lines:
        yield Sentence("Nothing is proposed: no finding and no measurement asks for another setting.", "good")
    else:
        yield Sentence(f"{counted(len(proposal.lines), 'setting')} proposed, each a hypothesis", "strong")
        yield _table(proposal.lines)
    if proposal.durable:
        kept = ", ".join(f"{name} = {value}" for name, value in proposal.durable.items())
        yield Sentence(f"Durability stays as it is: {kept}.")
    if proposal.left:
        yield Gap()
        yield Sentence("Not proposed", "strong")
        yield Sentences([f"{what}: {why}" for what, why in proposal.left])
    if proposal.lines:
        yield Gap()
        yield Sentence("Next", "strong")
        yield Sentences(list(_next(proposal, target, test, out)))


def _table(lines: tuple[Line, ...]) -> Part:
    from headrace.show.parts import Column, Table

    heads = [
        ("setting", "code"),
        ("now", "n"),
        ("proposed", "n"),
        ("takes", ""),
        ("basis", ""),
        ("why", "wrap"),
    ]
    rows = [
        [line.knob, _shown(line, line.now), _shown(line, line.value), str(line.cost), line.basis, line.why]
        for line in lines
    ]
    return Table([Column(*head) for head in heads], rows, is_below=True, is_stacked=True)


def _shown(line: Line, value: Value) -> str:
    """A value as people read it: sizes in their unit."""
    from headrace.hunt.rules.evidence import size
    from headrace.knobs.catalogue import find
    from headrace.show.text import setting

    text = str(value)
    if find(line.knob.partition("@")[0]).is_memory and text.isdigit():
        return size(float(text))
    return setting(value) if text else "unknown"


def _next(proposal: Proposal, target: str, test: str, out: dict[str, str]) -> Iterator[str]:
    from headrace.knobs.catalogue import Cost

    where = "" if target == "local" or Path(target).is_dir() else f" -t {shlex.quote(target)}"
    # What a provider manages no apply changes, and no test on the host.
    lines = [line for line in proposal.lines if not line.way]
    live = [shlex.quote(line.words) for line in lines if line.cost is Cost.DYNAMIC and line.is_speed]
    if test:
        yield f"test all, and all but each, on a private server: headrace run {shlex.quote(test)}"
        yield from (f"not in that plan: {name} ({why})" for name, why in out.items())
    else:
        yield "test all, and all but each, on a private server: add -o FILE, then headrace run FILE"
    if live:
        command = f"headrace prove{where} --live {' '.join(live)}"
        yield f"test what needs no restart on the host, under its own load: {command}"
    if proposal.way:
        yield proposal.way
    if lines:
        every = " ".join(shlex.quote(line.words) for line in lines)
        yield f"see what it would change: headrace apply{where} --dry-run {every}"
