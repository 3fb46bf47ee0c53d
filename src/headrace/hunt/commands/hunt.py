"""Commands that examine a live or saved host: hunt, rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headrace.base.errors import StoreError
from headrace.base.model import ServerLogin
from headrace.cli.options import NO_LOGIN, Thorough, WatchTime, grouped
from headrace.cli.shell import (
    Json,
    PageFile,
    TargetOption,
    app,
    on_target,
    print_json,
    say,
    stderr,
    stdout,
    write_page,
)

if TYPE_CHECKING:
    from headrace.host.snapshot import Snapshot
    from headrace.hunt.hunt import Hunt, SqlOnly

T = TypeVar("T")
#: With this many saved hosts or more, a process per core pays off.
MANY_FILES = 16


@dataclass(frozen=True)
class ServerAlone:
    """A server of which only SQL is used: a managed one, or one on another host than the target.

    With ``--from`` a saved host is judged as if only SQL were known.
    """

    sql_only: Annotated[
        bool,
        typer.Option("--sql-only", help="Examine the server by SQL alone; the target need not be its host."),
    ] = False
    cpus: Annotated[
        int | None,
        typer.Option("--cpus", min=1, max=65_536, help="CPUs of the server's host, with --sql-only."),
    ] = None
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Its memory, such as 64G, with --sql-only.")
    ] = ""

    def checked(self, *, profile: bool, host_only: bool) -> SqlOnly | None:
        """None without ``--sql-only``. Raises BadParameter for options that contradict each other."""
        from headrace.hunt.hunt import SqlOnly
        from headrace.knobs.knob import size_bytes

        if not self.sql_only:
            if self.cpus or self.memory:
                raise typer.BadParameter("--cpus and --memory need --sql-only: a host is counted")
            return None
        if profile or host_only:
            other = "--profile" if profile else "--host-only"
            raise typer.BadParameter(f"{other} examines a host, --sql-only none: choose one")
        try:
            memory = size_bytes(self.memory) if self.memory else None
        except ValueError:
            memory = 0
        if memory is not None and memory < 1 << 20:
            raise typer.BadParameter(f"--memory {self.memory!r}: write a size such as 64G or 512M")
        return SqlOnly(cpus=self.cpus, memory_bytes=memory)


NOT_ALONE = ServerAlone()
rules_app = typer.Typer(no_args_is_help=False, help="List the rules that hunt evaluates, and explain one.")
app.add_typer(rules_app, name="rules")


@app.command(
    epilog="Example: headrace hunt --target root@db1 --duration 2m --save db1.hunt",
)
@grouped
def hunt(
    target: TargetOption = "local",
    seconds: WatchTime = 60.0,
    save: Annotated[
        Path | None, typer.Option("--save", help="Save everything in one file that others can open.")
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            help="Evaluate a saved file, a directory of them, a trial, or a dump (SHOW GLOBAL STATUS, pt-stalk, "
            "a sosreport, ...): a file, a directory or a tar.",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            help="A device's measured limit, such as nvme0n1=85000 (operations/s), or the time per request "
            "without load: nvme0n1=0.1ms.",
        ),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Also record where the server's CPU time goes (perf).")
    ] = False,
    thorough: Thorough = False,
    page: PageFile = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show healthy resources and all missing data.")
    ] = False,
    brief: Annotated[bool, typer.Option("--brief", help="One line per host.")] = False,
    host_only: Annotated[
        bool, typer.Option("--host-only", help="Examine the host alone, and log in to no server.")
    ] = False,
    server: ServerAlone = NOT_ALONE,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Watch a host and report what limits it, with a testable fix per finding. Changes nothing."""
    from headrace.host.snapshot import last_path
    from headrace.host.snapshot import save as write
    from headrace.hunt import hunt as hunts
    from headrace.hunt.report import words as views
    from headrace.hunt.report.page import page_of
    from headrace.show import html, terminal

    alone = server.checked(profile=profile, host_only=host_only)
    limits = replace(Measured.of(limit or []), sql_only=alone)
    source = source or saved_host(target)
    if source:
        paths = _files(source)
        _print_saved(paths, limits, as_json=as_json, brief=brief, everything=everything)
        found = examined(paths[0], limits) if save or page else None
    else:
        from headrace.hunt.ladder.ladder import remembered

        limits = replace(limits, alone_ms={**remembered(target), **limits.alone_ms})
        found = hunts.examine(watched(target, seconds, login, limits, profile, thorough, host_only, alone))
        where = () if target == "local" else ("--target", target)
        found = replace(found, target=where, login=tuple(login.argv))
        # `headrace apply` and `headrace prove` resolve finding ids against this.
        write(found.snapshot, last_path())
        if brief and not as_json:
            stdout().print(terminal.show(views.alone(found)))
        else:
            say(page_of(found, everything=everything), as_json)
    content = page_of(found, _flame_graph(found)) if found and (save or page) else None
    if save and found and content:
        write(found.snapshot, save, html.render(content))
        stderr().print(f"saved: {save}", soft_wrap=True, highlight=False)
    if page and content:
        write_page(page, content)
    if found and not source and login != NO_LOGIN:
        _demand_server(found, target)


def _demand_server(found: Hunt, target: str) -> None:
    """Raises TargetError if a server that was named was not examined."""
    from headrace.hunt import admission
    from headrace.hunt import hunt as hunts

    if why := hunts.refusal(found.snapshot):
        raise admission.refused(why, target)


def _when_refused(why: str, target: str) -> None:
    """Before the watch: ends it, unless the server may let us in while it is watched."""
    from headrace.hunt import admission

    if not admission.may_pass(why):
        raise admission.refused(why, target)
    text = f"the server was not examined yet: {why.rstrip('.')}. It is asked again each second."
    stderr().print(text, style="bold red", soft_wrap=True, highlight=False, markup=False)


def saved_host(target: str) -> list[Path]:
    """A target that is a directory, as what it is: nothing there can be watched."""
    return [Path(target)] if target != "local" and Path(target).is_dir() else []


def _flame_graph(hunt: Hunt) -> str:
    """The profile as a flame graph drawn by the agent; empty without a profile."""
    from headrace.host.agent import Agent

    if not hunt.snapshot.stacks:
        return ""

    async def work(host: Any) -> str:
        agent = await Agent.install(host)
        return await agent.text("flamegraph", "--title", "Where the CPU time goes", stdin=stacks)

    stacks = hunt.snapshot.stacks.encode()
    return on_target("local", work)


def _files(sources: list[Path]) -> list[Path]:
    """Replace a directory with the saved files in it, unless it belongs to a trial."""
    found: list[Path] = []
    for path in sources:
        inside = sorted(path.glob("*.hunt")) if path.is_dir() else []
        found += inside or [path]
    return found


def _print_saved(
    paths: list[Path], limits: Measured, *, as_json: bool, brief: bool, everything: bool
) -> None:
    from headrace.hunt.report import words as views
    from headrace.hunt.report.page import page_of
    from headrace.show import terminal

    if as_json:
        print_json(_judge_all(paths, limits, _content))
        return
    if brief or len(paths) > 1:
        told = _judge_all(paths, limits, _line_and_cause)
        common = _common(paths, [each for _, each in told]) if len(told) > 1 else []
        lines = [views.brief([line for line, _ in told])] if brief else []
        stdout().print(terminal.show([*common, *lines]))
    if not brief:
        for number, path in enumerate(paths):
            if number:
                stdout().rule()
            say(page_of(examined(path, limits), everything=everything), as_json=False)


def _line_and_cause(hunt: Hunt) -> tuple[Any, tuple[str, dict[str, str], str]]:
    from headrace.fleet.causes import cause_of
    from headrace.hunt.report import words as views

    line = views.line(hunt)
    return line, (line.host, cause_of(hunt.verdict, hunt.judgement), hunt.verdict.sentence)


def _common(paths: list[Path], told: list[tuple[str, dict[str, str], str]]) -> list[Any]:
    """What hosts have in common, one sentence per group with the same cause."""
    from headrace.fleet.causes import sentences
    from headrace.show.parts import Gap, Heading, Sentences

    # Saved hunts of one host at several times are several, and their files tell them apart.
    hosts = Counter(host for host, _, _ in told)
    named = [host if hosts[host] == 1 else path.name for path, (host, _, _) in zip(paths, told, strict=True)]
    causes = {name: cause for name, (_, cause, _) in zip(named, told, strict=True)}
    verdicts = {name: sentence for name, (_, _, sentence) in zip(named, told, strict=True)}
    return [Heading("What limits them"), Sentences(list(sentences(causes, verdicts))), Gap()]


def _content(hunt: Hunt) -> dict[str, Any]:
    from headrace.hunt.report.page import page_of
    from headrace.show import jsonform

    return jsonform.render(page_of(hunt))


def _judge_all(paths: list[Path], limits: Measured, tell: Callable[[Hunt], T]) -> list[T]:
    """``tell`` of each host. Nothing else is kept, because hundreds do not fit into memory."""
    from concurrent.futures import ProcessPoolExecutor

    judge = partial(_judge, limits=limits, tell=tell)
    if len(paths) < MANY_FILES:
        return [judge(path) for path in paths]
    with ProcessPoolExecutor() as processes:
        return list(processes.map(judge, paths, chunksize=4))


def _judge(path: Path, limits: Measured, tell: Callable[[Hunt], T]) -> T:
    return tell(examined(path, limits))


def examined(path: Path, limits: Measured) -> Hunt:
    """A saved host; ``limits`` override the saved ones."""
    from headrace.hunt import hunt as hunts

    snapshot = hunts.saved(path)
    if limits.sql_only is not None:
        if not snapshot.facts.data.get("server_settings"):
            raise StoreError("no server was examined in it, so SQL says nothing", place=str(path))
        snapshot = replace(snapshot, facts=limits.sql_only.facts(snapshot.facts))
    return hunts.examine(
        replace(
            snapshot,
            limits={**snapshot.limits, **limits.limits},
            alone_ms={**snapshot.alone_ms, **limits.alone_ms},
        )
    )


def watched(
    target: str,
    seconds: float,
    login: ServerLogin,
    limits: Measured,
    profile: bool,
    thorough: bool,
    host_only: bool,
    sql_only: SqlOnly | None,
) -> Snapshot:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from headrace.hunt import hunt as hunts
    from headrace.hunt.commands import lacking

    console = stderr()
    columns = (TextColumn("watching"), BarColumn(bar_width=24), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("watching", total=seconds)

        async def work(host: Any) -> Snapshot:
            seen = await hunts.watch(
                host,
                seconds,
                login,
                limits=limits.limits,
                alone_ms=limits.alone_ms,
                profile=profile,
                thorough=thorough,
                host_only=host_only,
                sql_only=sql_only,
                must_choose=True,
                listen=lambda done, _: progress.update(task, completed=done),
                when_refused=lambda why: _when_refused(why, target),
            )
            return seen if host_only else await lacking.named(host, login, seen)

        return on_target(target, work)


@dataclass(frozen=True)
class Measured:
    """What the user measured: device -> operations per second, and -> ms of a request without load."""

    limits: dict[str, float]
    alone_ms: dict[str, float]
    #: Of a server that is to be judged by SQL alone.
    sql_only: SqlOnly | None = None

    @classmethod
    def of(cls, texts: list[str]) -> Measured:
        limits: dict[str, float] = {}
        alone_ms: dict[str, float] = {}
        for text in texts:
            device, _, number = text.partition("=")
            found = alone_ms if number.endswith("ms") else limits
            try:
                found[device.removeprefix("/dev/")] = float(number.removesuffix("ms").replace(",", ""))
            except ValueError:
                raise typer.BadParameter(
                    f"{text!r}: write DEVICE=OPERATIONS_PER_SECOND or DEVICE=MILLISECONDSms"
                ) from None
        return cls(limits, alone_ms)


@rules_app.callback(invoke_without_command=True)
def rules_list(
    context: typer.Context,
    as_json: Json = False,
) -> None:
    """List the rules that hunt evaluates."""
    from headrace.hunt.report import rules as views
    from headrace.hunt.rules import all_rules

    if context.invoked_subcommand:
        return
    found = all_rules()
    if as_json:
        print_json([_rule_json(rule) for rule in found])
    else:
        stdout().print(views.table(found))


@rules_app.command("show", epilog="Example: headrace rules show NET01")
def rules_show(code: Annotated[str, typer.Argument(metavar="CODE")], as_json: Json = False) -> None:
    """Explain one rule. Shows what it finds, why that matters, its source, and what would refute it."""
    from headrace.base.errors import PlanError
    from headrace.hunt.report import rules as views
    from headrace.hunt.rules import all_rules

    rules = {rule.code: rule for rule in all_rules()}
    found = rules.get(code.partition("@")[0].upper())
    if found is None:
        raise PlanError("no such rule", place=code, hint="headrace rules lists them")
    if as_json:
        print_json(_rule_json(found))
    else:
        stdout().print(views.page(found))


def _rule_json(rule: Any) -> dict[str, Any]:
    from headrace.hunt.report import rules as views

    return {
        "code": rule.code,
        "title": rule.title,
        "severity": rule.severity,
        "confidence": rule.confidence,
        "why": rule.why,
        "applies_to": views.scope(rule),
        "refute": rule.refute,
        "disputed": rule.disputed,
        "source": rule.source,
    }
