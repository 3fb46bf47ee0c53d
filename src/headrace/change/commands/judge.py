"""``apply --judge`` and ``prove --live KNOB=VALUE``: any change on one running host, in turns, judged."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.model import ServerLogin, Value
from headrace.cli.options import HOUR_S, duration
from headrace.cli.shell import on_target, print_json, run_trials, stderr, stdout, tell

if TYPE_CHECKING:
    from headrace.change.apply import Rollout
    from headrace.experiment.live import Watch
    from headrace.experiment.prove import Bench, Proof
    from headrace.host.agent import Agent

#: `rollout` and `verify` end with these, too.
WORSE, NOT_BETTER = 13, 15


@dataclasses.dataclass(frozen=True)
class JudgeOptions:
    """How a change is judged."""

    judge: Annotated[
        bool,
        typer.Option(
            "--judge", help="Try it in turns under the host's own load; keep it only if it is proven better."
        ),
    ] = False
    duration_s: Annotated[
        float, duration("--duration", text="With --judge: length of a turn.", least_s=2, default="20s")
    ] = 20.0
    warmup_s: Annotated[
        float,
        duration(
            "--warmup",
            text="With --judge: time after each change that does not count.",
            least_s=0,
            most_s=HOUR_S,
            default="3s",
        ),
    ] = 3.0
    blocks: Annotated[
        int, typer.Option("--blocks", min=2, max=1000, help="With --judge: blocks of turns.")
    ] = 4
    counter: Annotated[
        str,
        typer.Option("--counter", help="With --judge: the metric that must grow: sampler.metric[/label]."),
    ] = "mysql_status.questions"
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="With --judge: directory of the experiment.")
    ] = None


@dataclasses.dataclass(frozen=True)
class ProbeOptions:
    """The memcached server by which a change of its host is judged."""

    memcached: Annotated[
        str,
        typer.Option(
            "--memcached",
            metavar="HOST:PORT",
            help="Judge by the latency of this memcached server, as seen from here, and by its hit rate, "
            "evictions and refused connections.",
        ),
    ] = ""
    gets_per_s: Annotated[
        float | None,
        typer.Option(
            "--gets",
            min=1,
            max=1000,
            help="With --memcached: gets a second of the probe [0.1% of the server's requests, 100 at most].",
        ),
    ] = None


NO_PROBE = ProbeOptions()


def check_probe(
    probe: ProbeOptions, *, judges: bool, how: str, response: str = "", budget_s: float | None = None
) -> None:
    """Raises BadParameter for options that nothing would read. ``how``: which option makes it judge."""
    if probe != NO_PROBE and not judges:
        raise typer.BadParameter(f"--memcached and --gets say how a change is judged: with {how}")
    if probe.gets_per_s is not None and not probe.memcached:
        raise typer.BadParameter("--gets is of the probe: with --memcached HOST:PORT")
    if probe.memcached and budget_s:
        raise typer.BadParameter("--budget is for throughput: with --memcached, --blocks says how long")
    if probe.memcached and response:
        from headrace.experiment.stats.trials import RESPONSES

        if response not in RESPONSES:
            raise typer.BadParameter(f"--response {response}: must be {', '.join(RESPONSES)}")


@dataclasses.dataclass(frozen=True)
class Allowed:
    """The knobs that may do what is refused otherwise."""

    weaker: Sequence[str] = ()
    loss: Sequence[str] = ()
    beyond: Sequence[str] = ()


def watched(
    login: ServerLogin, counter: str, probe: ProbeOptions, turn_s: float, response: str = ""
) -> tuple[Watch, str]:
    """How the host is watched, and which response decides; a probe's cost is told. ``response``: what was asked
    for. Raises as ``live.probing`` does."""
    from headrace.experiment import live
    from headrace.experiment.stats.trials import THROUGHPUT

    if not probe.memcached:
        return live.Watch(login, counter), THROUGHPUT
    probing = live.probing(probe.memcached, turn_s, probe.gets_per_s, response)
    tell(probing.said)
    return probing.watch, probing.response


def judged(
    settings: Mapping[str, Value],
    target: str,
    login: ServerLogin,
    options: JudgeOptions,
    allowed: Allowed,
    probe: ProbeOptions = NO_PROBE,
    response: str = "",
) -> tuple[Proof, Bench]:
    """Try settings in turns on the running host, which has its own again afterwards.

    Raises Refused as ``apply`` does, also for what takes a restart.
    """
    from headrace.experiment import live
    from headrace.experiment import prove as proofs
    from headrace.experiment.report import progress

    is_probed = bool(probe.memcached)
    own, cautions = on_target(
        target, lambda host: _checked(host, settings, login, allowed, is_probed=is_probed)
    )
    # Counters are read each whole second.
    seconds = math.ceil(options.duration_s)
    watch, response = watched(own, options.counter, probe, seconds, response)
    plan = live.live_plan(target, watch, seconds=seconds, settle_s=math.ceil(options.warmup_s))
    words = "-".join(name.partition(".")[2].partition("@")[0] for name in settings)[:60]
    folder = options.output or Path("experiments") / f"judge-{words}"
    with progress.Watcher(stderr()) as watcher:
        bench = proofs.Bench(
            plan, "the live host", folder, watcher.listen, blocks=options.blocks,
            response=response, allow_weaker=tuple(allowed.weaker), report=_report,
        )  # fmt: skip
        found = run_trials(lambda: proofs.judge_settings(bench, settings, cautions))
    return found, bench


def apply_judged(
    settings: Mapping[str, Value],
    target: str,
    login: ServerLogin,
    options: JudgeOptions,
    allowed: Allowed,
    probe: ProbeOptions = NO_PROBE,
    *,
    as_json: bool,
) -> str:
    """The whole of ``apply --judge``: tried, then kept if it was proven better. The id of what was kept."""
    from headrace.base.effect import Verdict
    from headrace.experiment.report import proof
    from headrace.experiment.stats.guards import Holds

    found, bench = judged(settings, target, login, options, allowed, probe)
    (step,) = found.steps
    done = (
        on_target(
            target,
            lambda host: _keep(host, settings, login, allowed, is_probed=bool(probe.memcached)),
            changes=True,
        )
        if step.kept
        else None
    )
    if as_json:
        shown = proof.to_json(found, bench.response)
        print_json({**shown, "id": done.id if done else None})
    else:
        stdout().print(proof.terminal(found, bench.response, shlex.join(["headrace", "apply", "--judge"])))
        stdout().print(
            f"kept: id {done.id}" if done else "not kept: the host has its own settings", highlight=False
        )
    stderr().print(f"experiment: {bench.folder}", soft_wrap=True, highlight=False)
    if done is None:
        is_worse = step.effect is not None and step.effect.verdict is Verdict.WORSE
        is_worse = is_worse or any(each.holds is Holds.NO for each in step.guards)
        raise typer.Exit(WORSE if is_worse else NOT_BETTER)
    return done.id


async def _checked(
    host: Any, settings: Mapping[str, Value], login: ServerLogin, allowed: Allowed, *, is_probed: bool
) -> tuple[ServerLogin, list[str]]:
    """The login of the host's server, and what the judgement will not see."""
    from headrace.change import apply as rollout
    from headrace.experiment import prove as proofs
    from headrace.host.agent import Agent
    from headrace.host.facts import HostFacts

    agent = await Agent.install(host)
    own = await _login(agent, login, is_probed=is_probed)
    await rollout.prepare(
        agent, settings, own,
        allow_weaker=allowed.weaker, allow_loss=allowed.loss, allow_beyond=allowed.beyond,
    )  # fmt: skip
    if own is None:
        return login, []
    return own, await proofs.cautions_of(agent, own, settings, HostFacts(await agent.facts(own)))


async def _login(agent: Agent, login: ServerLogin, *, is_probed: bool) -> ServerLogin | None:
    """Of the MySQL server; None where memcached is watched instead, whose host need not have one."""
    from headrace.base.errors import NotReady
    from headrace.host.facts import HostFacts
    from headrace.host.login import usual_login

    if is_probed:
        return login if login.is_named else None
    own, why = await usual_login(agent, login)
    if own is not None:
        return own
    has_cache = any(each["program"] == "memcached" for each in HostFacts(await agent.facts()).servers)
    hint = "to judge by its memcached: --memcached HOST:PORT, as seen from here" if has_cache else None
    raise NotReady(why or "no server login", place=agent.target.name, hint=hint)


async def _keep(
    host: Any, settings: Mapping[str, Value], login: ServerLogin, allowed: Allowed, *, is_probed: bool
) -> Rollout:
    from headrace.change import apply as rollout
    from headrace.host.agent import Agent

    agent = await Agent.install(host)
    own = await _login(agent, login, is_probed=is_probed)
    plan = await rollout.prepare(
        agent, settings, own,
        allow_weaker=allowed.weaker, allow_loss=allowed.loss, allow_beyond=allowed.beyond,
    )  # fmt: skip
    return await rollout.carry_out(agent, plan, own)


def _report(folder: Any) -> None:
    """The report of the experiment; that it cannot be written does not end the judgement."""
    from headrace.base.errors import HeadraceError
    from headrace.experiment import report

    try:
        report.write(report.of(folder), folder)
    except HeadraceError as error:
        tell(f"no report of {folder.path}: {error}")
