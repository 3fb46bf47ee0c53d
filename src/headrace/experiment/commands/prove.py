"""The command ``prove``: tests the fixes of findings."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.model import ServerLogin, Value
from headrace.change.commands import index_changes
from headrace.change.commands.judge import (
    NO_PROBE,
    Allowed,
    JudgeOptions,
    ProbeOptions,
    check_probe,
    judged,
    watched,
)
from headrace.cli.options import DAY_S, HOUR_S, NO_LOGIN, duration, duration_text, grouped
from headrace.cli.shell import (
    Json,
    TargetOption,
    TellOption,
    app,
    on_target,
    opened_places,
    print_json,
    run_trials,
    stderr,
    stdout,
    tell,
    told,
)
from headrace.experiment.commands.experiments import find_plan

if TYPE_CHECKING:
    from headrace.experiment.plan import Plan
    from headrace.experiment.prove import Bench, Proof
    from headrace.experiment.store import ExperimentFolder
    from headrace.hunt.hunt import Hunt
    from headrace.tell.places import Place

#: Differences to name.
MOST_MOVED = 5


Findings = Annotated[
    list[str] | None,
    typer.Argument(
        help="Findings, by id or rule code; with --live also a setting or an index.",
        metavar="FINDING|KNOB=VALUE|index:DATABASE.TABLE(COLUMN,...)",
    ),
]
PlanOption = Annotated[
    Path | None, typer.Option("--plan", "-p", help="Workload and machine: a plan file or an example's name.")
]
Auto = Annotated[
    bool, typer.Option("--auto", help="Test every finding, cheapest first; keep what is proven.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Directory of the experiments [experiments/NAME-proof].")
]
Blocks = Annotated[int, typer.Option("--blocks", min=2, max=1000, help="Blocks per experiment.")]
Response = Annotated[
    str,
    typer.Option(
        "--response",
        help="What must improve: throughput, or p50 to p99.9 [throughput; with --memcached the highest of p99, "
        "p90 and p50 for which a trial has data].",
        show_default=False,
    ),
]
Budget = Annotated[
    float | None,
    duration(
        "--budget",
        text="Start no step after this time, such as 30m; an undecided step may take a quarter of it, with --live "
        "all of it.",
        least_s=0,
        most_s=30 * DAY_S,
    ),
]
Live = Annotated[
    bool, typer.Option("--live", help="Test on the running host under its own load; needs no plan.")
]
Source = Annotated[
    Path | None, typer.Option("--from", help="With --live: the hunt with the finding [the latest].")
]
Duration = Annotated[
    float, duration("--duration", text="With --live: length of a trial.", least_s=2, default="20s")
]
Warmup = Annotated[
    float,
    duration(
        "--warmup", text="With --live: warm-up before each trial.", least_s=0, most_s=HOUR_S, default="3s"
    ),
]
Counter = Annotated[
    str, typer.Option("--counter", help="With --live: the metric of throughput: sampler.metric[/label].")
]
Weaker = Annotated[
    list[str] | None,
    typer.Option("--allow-weaker", metavar="KNOB", help="Allow fixes that reduce durability."),
]


@dataclass(frozen=True)
class End:
    """How the proof is shown, and where it is told."""

    places: Sequence[Place]
    as_json: bool


@app.command(
    epilog="Example: headrace prove --auto --plan stock-to-all; headrace prove POOL01 --plan my.toml --blocks 6",
)
@grouped
def prove(
    findings: Findings = None,
    plan: PlanOption = None,
    auto: Auto = False,
    output: Output = None,
    blocks: Blocks = 4,
    response: Response = "",
    budget_s: Budget = None,
    live: Live = False,
    source: Source = None,
    target: TargetOption = "local",
    duration_s: Duration = 20.0,
    warmup_s: Warmup = 3.0,
    counter: Counter = "mysql_status.questions",
    probe: ProbeOptions = NO_PROBE,
    login: ServerLogin = NO_LOGIN,
    allow_weaker: Weaker = None,
    watch: index_changes.LagOptions = index_changes.NO_LAG,
    to: TellOption = None,
    as_json: Json = False,
) -> None:
    """Hunt on a plan's workload, test each finding's fix against the current settings, keep what is proven.

    The workload runs on a private server as in `headrace run`; the machine is restored afterwards. Each step is
    its own experiment, with baseline and fix interleaved. Run the same command again to continue.
    """
    from headrace.experiment import live as watching

    findings = _with_index(findings or [], source) if live else findings
    judges = live and not index_changes.is_index(findings or [])
    check_probe(probe, judges=judges, how="--live and a KNOB=VALUE", response=response, budget_s=budget_s)
    if index_changes.is_index(findings or []):
        turns = JudgeOptions(True, duration_s, warmup_s, blocks)
        index_changes.prove_index(findings or [], target, login, turns, watch, is_live=live, as_json=as_json)
        return
    if watch.replica:
        raise typer.BadParameter("--replica watches an index that is built: with --live and index:")
    weaker = tuple(allow_weaker or ())
    _check(
        [each for each in findings or [] if not (live and "=" in each)], source, is_planned=plan is not None
    )
    end = End(opened_places(to, as_json), as_json)
    if not live:
        if not findings and not auto:
            raise typer.BadParameter("name findings, or use --auto for all")
        if source or target != "local":
            raise typer.BadParameter("--target and --from: only with --live; a plan names its machine")
        if plan is None:
            raise typer.BadParameter(
                "on which workload? --live tests on the running host, --plan FILE on a private server with a "
                "plan's workload (`headrace plan list`: stock-to-all and other examples)"
            )
        _prove_plan(findings or [], find_plan(plan), output, blocks, response, budget_s, weaker, end)
        return
    if not findings or len(findings) != 1:
        raise typer.BadParameter("--live tests one finding at a time")
    if response not in ("", "throughput") and not probe.memcached:
        raise typer.BadParameter(
            f"--live counts with --counter and sees no latency: --response {response} needs a --plan, or "
            "--memcached"
        )
    if "=" in findings[0]:
        _judge_live(
            findings[0],
            target,
            login,
            JudgeOptions(True, duration_s, warmup_s, blocks, counter, output),
            weaker,
            end,
            probe,
            response,
        )
        return
    watch_of_it, decides = watched(login, counter, probe, duration_s, response)
    plan_of_it = watching.live_plan(target, watch_of_it, seconds=duration_s, settle_s=warmup_s)
    _prove_live(findings[0], source, plan_of_it, login, output, blocks, budget_s, weaker, end, decides)


def _check(findings: Sequence[str], source: Path | None, *, is_planned: bool) -> None:
    """Says at once where nothing can be proved. Raises PlanError for what is not a rule's code, and Refused for a
    rule whose fixes nobody can test, with the fix of the hunt, or else of the latest, if it has the finding."""
    from headrace.base.errors import PlanError, StoreError
    from headrace.host.snapshot import last_path, load
    from headrace.hunt import hunt as hunts
    from headrace.hunt.rules import all_rules

    named = [wanted for wanted in findings if "=" not in wanted]
    codes = {rule.code for rule in all_rules()}
    for wanted in named:
        if (code := wanted.partition("@")[0]) not in codes:
            hint = "headrace hunt lists findings, headrace rules the rules"
            raise PlanError(f"no rule is called {code}", place=wanted, hint=hint)
    # A plan's own survey says what it has.
    if named and not is_planned:
        with contextlib.suppress(StoreError):
            _refuse_by_hand(hunts.examine(load(source or last_path())), named)
    for wanted in named:
        _refuse_rule(wanted)


def _with_index(findings: list[str], source: Path | None) -> list[str]:
    """The findings, with the index that one lacks in its place, if the hunt named one."""
    from headrace.base.errors import StoreError
    from headrace.host.snapshot import last_path, load
    from headrace.hunt import hunt as hunts

    if all("=" in each or index_changes.is_index([each]) for each in findings):
        return findings
    try:
        known = hunts.examine(load(source or last_path()))
    except StoreError:
        return findings  # whoever needs the hunt says why it cannot be read
    named = []
    for wanted in findings:
        finding = known.finding(wanted)
        place = finding.index if finding is not None else ""
        if place:
            tell(f"{wanted} lacks an index on {place}: that is tested")
        named.append(f"{index_changes.MARK}{place}" if place else wanted)
    return named


def _refuse_rule(wanted: str) -> None:
    """Raises Refused for a finding of a rule whose fixes no experiment can test."""
    from headrace.base.errors import Refused
    from headrace.hunt.rules.by_hand import BY_HAND, NOT_FOR_SPEED

    code = wanted.partition("@")[0]
    if code in BY_HAND:
        raise Refused(
            "nothing to prove: the fix of this rule is work by hand, not a setting",
            place=wanted,
            hint=f"headrace hunt shows what to do where it finds it, headrace rules show {code} the reason",
        )
    if code in NOT_FOR_SPEED:
        raise Refused(
            "nothing to prove: the fix keeps data or the server safe, or shows more; throughput can tell neither",
            place=wanted,
            hint=f"headrace apply {wanted} --dry-run",
        )


def _refuse_by_hand(known: Hunt, findings: Sequence[str]) -> None:
    """Raises Refused for a finding of that hunt that no setting mends, with what to do."""
    from headrace.base.errors import Refused

    for finding in filter(None, map(known.finding, findings)):
        if not any(remedy.settings for remedy in finding.hit.remedies):
            steps = " ".join(step for remedy in finding.hit.remedies for step in remedy.steps)
            raise Refused(
                f"nothing to prove: its fix is work by hand, not a setting. {steps}".rstrip(),
                place=finding.id,
                hint="do that, then run headrace hunt again",
            )


def _prove_plan(
    findings: list[str],
    plan: Path,
    output: Path | None,
    blocks: int,
    response: str,
    budget_s: float | None,
    allow_weaker: tuple[str, ...],
    end: End,
) -> None:
    from headrace.experiment import prove as proofs
    from headrace.experiment.report import progress

    response = response or "throughput"
    with progress.Watcher(stderr()) as watcher:
        bench = proofs.Bench.open(
            plan,
            output,
            watcher.listen,
            blocks=blocks,
            minutes=budget_s / 60 * proofs.STEP_SHARE if budget_s else None,
            response=response,
            allow_weaker=allow_weaker,
            report=_write_report,
        )
        found = run_trials(lambda: proofs.prove_all(bench, only=findings, budget_s=budget_s))
    again = ["headrace", "prove", "--plan", str(plan), "--output", f"{bench.folder}-more"]
    again += ["--response", response] if response != "throughput" else []
    again += _weaker(allow_weaker)
    _show(found, bench, f"{plan.stem}: {response}", shlex.join(again), end)
    if findings and not found.steps:
        named = ", ".join(findings)
        stderr().print(
            f"none of {named} was found under this workload, or none has a fix to test", style="yellow"
        )
        raise typer.Exit(10)


def _weaker(knobs: tuple[str, ...]) -> list[str]:
    return [word for knob in knobs for word in ("--allow-weaker", knob)]


def _show(found: Proof, bench: Bench, subject: str, again: str, end: End) -> None:
    from headrace.experiment.report import proof

    notice = proof.notice(found, subject, bench.response, again, bench.folder)
    if end.as_json:
        print_json(proof.to_json(found, bench.response, again, notice))
    else:
        stdout().print(proof.terminal(found, bench.response, again))
    stderr().print(f"experiments: {bench.folder}", soft_wrap=True, highlight=False)
    for step in found.steps:
        if (step.folder / "report.html").exists():
            stderr().print(f"report: {step.folder / 'report.html'}", soft_wrap=True, highlight=False)
    told(notice, end.places)


def _write_report(folder: ExperimentFolder) -> None:
    """The report of one experiment; that it cannot be written does not end the proof."""
    from headrace.base.errors import HeadraceError
    from headrace.experiment import report

    try:
        report.write(report.of(folder), folder)
    except HeadraceError as error:
        tell(f"no report of {folder.path}: {error}")


def _refuse_if_moved(hunt: Hunt, target: str, login: ServerLogin, finding: str) -> None:
    """Raises Refused if the host is not what the finding saw: the baseline would be another."""
    from headrace.base.errors import Refused
    from headrace.host.agent import Agent
    from headrace.host.login import usual_login
    from headrace.host.moved import moved

    async def facts(host: Any) -> Any:
        agent = await Agent.install(host)
        own: ServerLogin | None = login
        if hunt.evidence.has_server:
            own, _ = await usual_login(agent, login)
        return await agent.facts(own)

    found = moved(hunt.snapshot.facts, on_target(target, facts))
    if found:
        more = f"; and {len(found) - MOST_MOVED} more" if len(found) > MOST_MOVED else ""
        raise Refused(
            f"the host has changed since the finding: {'; '.join(found[:MOST_MOVED])}{more}",
            place=finding,
            hint="run headrace hunt again",
        )


async def _cautions(host: Any, login: ServerLogin, options: Sequence[Mapping[str, Value]]) -> list[str]:
    from headrace.experiment.prove import cautions_of
    from headrace.host.agent import Agent
    from headrace.host.facts import HostFacts

    if not login.is_named:
        return []
    agent = await Agent.install(host)
    facts = HostFacts(await agent.facts(login))
    found = [await cautions_of(agent, login, settings, facts) for settings in options]
    return list(dict.fromkeys(words for some in found for words in some))


def _judge_live(
    setting: str,
    target: str,
    login: ServerLogin,
    options: JudgeOptions,
    weaker: tuple[str, ...],
    end: End,
    probe: ProbeOptions,
    response: str,
) -> None:
    """Any setting on the running host; nothing is kept: that is `apply --judge`."""
    from headrace.change.apply import settings_of

    settings = settings_of([setting], lambda text: None)
    found, bench = judged(settings, target, login, options, Allowed(weaker), probe, response)
    again = ["headrace", "prove", "--live", setting, "--target", target, "--output", f"{bench.folder}-more"]
    again += _probed(bench)
    _show(found, bench, f"{setting} on {target}", shlex.join([*again, *login.argv, *_weaker(weaker)]), end)


def _probed(bench: Bench) -> list[str]:
    """The options of its probe, the same again; empty without one."""
    options = bench.plan.workload.options
    if bench.plan.workload.kind != "probe":
        return []
    own = ["--memcached", str(options["address"]), "--gets", str(options["gets_per_s"])]
    return [*own, "--response", bench.response]


def _prove_live(
    wanted: str,
    source: Path | None,
    plan: Plan,
    login: ServerLogin,
    output: Path | None,
    blocks: int,
    budget_s: float | None,
    allow_weaker: tuple[str, ...],
    end: End,
    response: str,
) -> None:
    """Test one finding of a hunt on the host where it was found."""
    from headrace.base.errors import PlanError
    from headrace.experiment import prove as proofs
    from headrace.experiment.report import progress
    from headrace.host.snapshot import last_path, load
    from headrace.hunt import hunt as hunts

    hunt = hunts.examine(load(source or last_path()))
    finding = hunt.finding(wanted)
    if finding is None:
        known = ", ".join(each.id for each in hunt.judgement.findings) or "none"
        raise PlanError("no such finding in that hunt", place=wanted, hint=f"it has: {known}")
    options = proofs.live_options(finding, hunt.evidence.facts, allow_weaker)
    _refuse_if_moved(hunt, plan.target.address, login, finding.id)
    cautions = on_target(plan.target.address, lambda host: _cautions(host, login, options))
    folder = output or Path("experiments") / f"live-{finding.rule.code}"
    with progress.Watcher(stderr()) as watcher:
        bench = proofs.Bench(
            plan,
            "the live host",
            folder,
            watcher.listen,
            blocks=blocks,
            # There is one step: it may take all of it.
            minutes=budget_s / 60 if budget_s else None,
            response=response,
            allow_weaker=allow_weaker,
            report=_write_report,
        )
        found = run_trials(lambda: proofs.prove_live(bench, finding, options, cautions))
    again = ["headrace", "prove", "--live", "--target", plan.target.address, "--output", f"{folder}-more"]
    again += ["--from", str(source)] if source else []
    table = plan.workload
    again += ["--duration", duration_text(table.seconds), "--warmup", duration_text(table.warmup_s)]
    again += _probed(bench) or ["--counter", str(table.options["counter"])]
    again += login.argv
    again += _weaker(allow_weaker)
    _show(found, bench, f"{finding.id} on {plan.target.address}", shlex.join(again), end)
