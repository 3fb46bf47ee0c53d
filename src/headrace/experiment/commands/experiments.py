"""Commands about plans and experiments: plan, run, demo, report, status, compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.encode import plain
from headrace.base.errors import PlanError, TargetError
from headrace.cli.options import DAY_S, duration, grouped
from headrace.cli.shell import (
    Json,
    TellOption,
    app,
    on_target,
    opened_places,
    print_json,
    run_trials,
    say,
    stderr,
    stdout,
    tell,
    tell_and_exit,
    told,
)
from headrace.experiment.commands.search import search
from headrace.experiment.commands.self_check import SelfCheck, check

if TYPE_CHECKING:
    from headrace.experiment.frozen import Design
    from headrace.experiment.plan import PlanFile as PlanFileRead
    from headrace.experiment.store import ExperimentFolder
    from headrace.tell.places import Place

NO_CHECK = SelfCheck()
plan_app = typer.Typer(no_args_is_help=True, help="Inspect plan files without running them.")
app.add_typer(plan_app, name="plan")


PlanFile = Annotated[Path, typer.Argument(help="A plan file, or the name of an example.", metavar="PLAN")]
Folder = Annotated[Path, typer.Argument(help="An experiment's directory.", metavar="FOLDER")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="The experiment's directory [experiments/NAME].")
]
Retry = Annotated[bool, typer.Option("--retry", help="Measure disturbed and failed trials again.")]
Objectives = Annotated[
    list[str] | None,
    typer.Option("--objective", help="Latency objective of a sweep, such as p99=10ms [the plan's]."),
]


def find_plan(path: Path) -> Path:
    """The file, or the example plan of that name."""
    if path.is_file() or (path.suffix != ".toml" and len(path.parts) > 1):
        return path
    example = Path(__file__).parents[2] / "examples" / path.with_suffix(".toml").name
    return example if example.exists() and len(path.parts) == 1 else path


@plan_app.command("list")
def plan_list() -> None:
    """The example plans that come with headrace."""
    from headrace.experiment import plan as plans

    for path in sorted((Path(__file__).parents[2] / "examples").glob("*.toml")):
        typer.echo(f"{path.stem:22} {plans.load(path).plan.description}")


@plan_app.command("show", epilog="Example: headrace plan show stock-to-all")
def plan_show(
    plan: PlanFile,
    sd: Annotated[
        float | None,
        typer.Option(
            "--sd",
            min=1e-4,
            max=2.0,
            help="Spread between trials, 0.02 is 2%. Default: as measured, if PLAN is that of an experiment.",
            show_default=False,
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Run the baseline for a minute, and show which way of measuring gives a verdict soonest.",
        ),
    ] = False,
    effect: Annotated[
        float,
        typer.Option("--effect", min=0.001, max=10, help="With --measure: the effect to detect, 0.05 is 5%."),
    ] = 0.05,
    as_json: Json = False,
) -> None:
    """Show a plan's treatments, trials and duration. Also which effects they can detect."""
    from headrace.experiment import cautions, kinds
    from headrace.experiment import plan as plans
    from headrace.experiment.report import designs
    from headrace.experiment.runner import boot_seconds, load_seconds, planned_seconds

    path = find_plan(plan)
    file = plans.load(path)
    if measure:
        _measure_noise(file, effect, as_json)
        return
    is_open = file.plan.design.kind == plans.AUTO
    design = _possible(file) if is_open else kinds.build(file.plan, place=str(path))
    seconds = planned_seconds(design) + boot_seconds(design)
    load_s = load_seconds(design)
    hours = (seconds * design.share_of_one_machine + load_s) / 3600
    warnings = cautions.of(design, _memory_bytes(design))
    measured = None if sd or design.adaptive else _measured_spread(path)
    origin = f"measured in {path.parent}" if measured else "--sd"
    outlook = None if design.adaptive else designs.outlook(design, sd or measured, origin)
    if as_json:
        found = outlook and designs.to_json(outlook)
        print_json({**design.to_json(), "hours": hours, "outlook": found, "cautions": warnings})
    else:
        from headrace.experiment.report import views

        stdout().print(views.design(design, hours, load_s))
        for text in warnings:
            stdout().print(f"caution: {text}", style="yellow", highlight=False, markup=False)
        if outlook:
            stdout().print(designs.terminal(outlook))


def _memory_bytes(design: Design) -> int | None:
    """Of the machine that the trials run on, if it is this one."""
    import os

    if design.target.machines != ["local"]:
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@plan_app.command("print", epilog="Example: headrace plan print duet > mine.toml")
def plan_print(plan: PlanFile) -> None:
    """Print an example plan's TOML, to edit it."""
    from headrace.experiment import plan as plans

    typer.echo(plans.load(find_plan(plan)).text, nl=False)


def _measured_spread(path: Path) -> float | None:
    """That of the trials beside a plan, if it is that of an experiment which has any."""
    from headrace.experiment.stats.study import spread_of
    from headrace.experiment.store import ExperimentFolder

    if not (path.parent / "design.json").exists():
        return None
    return spread_of(ExperimentFolder.open(path.parent))


def _possible(file: PlanFileRead) -> Design:
    """Says in which ways a plan of kind auto can be measured; returns its design by restarts."""
    from headrace.experiment import auto
    from headrace.experiment.frozen import Design
    from headrace.experiment.stats.ways import RESTART

    ways = auto.ways_of(file.plan, file.place)
    for name, found in ways.items():
        answer = f"not possible: {found}" if isinstance(found, str) else "possible"
        stderr().print(f"{name}: {answer}", soft_wrap=True, highlight=False, markup=False)
    stderr().print(
        "headrace run measures the noise and chooses. With restarts, the design is:", highlight=False
    )
    design = ways[RESTART]
    assert isinstance(design, Design)  # otherwise ``ways_of`` raised
    return design


def _measure_noise(file: PlanFileRead, effect: float, as_json: bool) -> None:
    """The ways to measure a plan, with their hours on this machine."""
    from dataclasses import asdict

    from headrace.experiment import auto
    from headrace.experiment.report import designs, progress

    if file.plan.design.kind not in ("auto", "factorial", "cumulative", "switchback"):
        raise PlanError(
            "--measure: for plans of kind auto, factorial, cumulative and switchback", place=file.place
        )
    folder = Path("experiments") / f"{file.plan.name}-noise"
    with progress.Watcher(stderr()) as watcher:
        choice = run_trials(lambda: auto.measure(file, folder, watcher.listen, effect))
    if as_json:
        print_json({"effect": effect, "best": choice.best.name, "ways": [asdict(way) for way in choice.ways]})
    else:
        stdout().print(designs.ways(choice.ways, choice.best, effect))


@plan_app.command("options", epilog="Example: headrace plan options fio")
def plan_options(kind: Annotated[str, typer.Argument(help="A workload.", metavar="WORKLOAD")]) -> None:
    """List a workload's options and defaults."""
    from rich.table import Table

    from headrace.experiment import workloads

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("option", "type", "default", "meaning"):
        table.add_column(column, overflow="fold")
    for row in workloads.option_docs(kind):
        table.add_row(*(str(cell) for cell in row))
    stdout().print(table)


@app.command(
    epilog="Example: headrace run filesystems -o experiments/fs-2; "
    "headrace run stock-to-all --until-decided --budget 30m; headrace run sweep --objective p99=10ms; "
    "headrace run my.toml --soak 12h",
)
def run(
    plan: PlanFile,
    output: Output = None,
    retry: Retry = False,
    on: Annotated[
        str,
        typer.Option(
            "--executor",
            metavar="WHERE",
            help="Executor for several machines: here, ray, or ray://HOST:PORT.",
        ),
    ] = "here",
    until_decided: Annotated[
        bool,
        typer.Option(
            "--until-decided", help="Add blocks until each comparison has a verdict; not for races."
        ),
    ] = False,
    budget: Annotated[
        float | None,
        duration(
            "--budget",
            text="With --until-decided, or of a search: at most this long, such as 4h.",
            most_s=30 * DAY_S,
        ),
    ] = None,
    soak: Annotated[
        float | None,
        duration(
            "--soak", text="Run the baseline alone for so long, and test what grew: 12h.", most_s=7 * DAY_S
        ),
    ] = None,
    blocks: Annotated[
        str, typer.Option("--blocks", help="Add blocks to the experiment in --output, such as +5.")
    ] = "",
    objective: Objectives = None,
    passes: Annotated[
        int | None, typer.Option("--passes", min=1, max=1000, help="Passes of a sweep [the plan's].")
    ] = None,
    to: TellOption = None,
    as_json: Json = False,
) -> None:
    """Run a plan of any kind, or continue it where it stopped, and write the report."""
    from headrace.experiment import kinds
    from headrace.experiment import plan as plans
    from headrace.experiment.kinds.search import Search
    from headrace.experiment.kinds.soak import soaked
    from headrace.experiment.kinds.sweep import asked

    places = opened_places(to, as_json)
    path = find_plan(plan)
    file = plans.load(path)
    if soak:
        if until_decided or blocks or objective or passes:
            raise PlanError("--soak: without --until-decided, --blocks, --objective and --passes")
        file = replace(file, plan=soaked(file.plan, soak, file.place))
    if kinds.of_plan(file.plan) is Search:
        if on != "here" or until_decided or blocks or objective or passes:
            raise PlanError(
                "a search has no --executor, --until-decided, --blocks, --objective and --passes",
                place=file.place,
            )
        search(path, output, {"budget_s": budget}, places, advise=True, retry=retry, as_json=as_json)
        return
    if objective or passes:
        file = replace(file, plan=asked(file.plan, objective or (), passes, file.place))
    if until_decided or budget:
        if not (until_decided or file.plan.design.until_decided):
            raise PlanError("--budget: only with --until-decided")
        file = _decided(file, budget)
    file = _resolved(file, output)
    if blocks:
        from headrace.experiment.extend import extend

        extend(file, output or Path("experiments") / file.plan.name, _more(blocks))
    _run_file(file, output, retry, as_json, on, places)


def _resolved(file: PlanFileRead, output: Path | None) -> PlanFileRead:
    """A plan of kind auto as the way that decides soonest."""
    if file.plan.design.kind != "auto":
        return file
    from headrace.experiment import auto
    from headrace.experiment.report import progress

    folder = output or Path("experiments") / file.plan.name
    with progress.Watcher(stderr()) as watcher:
        return run_trials(lambda: auto.resolved(file, folder, watcher.listen))


def _more(text: str) -> int:
    if not (text.startswith("+") and text[1:].isdecimal() and 0 < int(text[1:]) <= 1000):
        raise PlanError(f"--blocks {text}: how many more, such as +5")
    return int(text[1:])


def _decided(
    file: PlanFileRead, seconds: float | None, asked: Sequence[str] = (), first: int | None = None
) -> PlanFileRead:
    """The file with a plan that runs until it is decided; ``first``: blocks before the first look [the plan's]."""
    from pydantic import ValidationError

    from headrace.experiment.plan import DesignTable, describe

    own = file.plan.design
    minutes = own.minutes if seconds is None else seconds / 60
    table = {**own.model_dump(exclude_unset=True), "until_decided": True, "minutes": minutes}
    table |= {"asked": list(asked)} if asked else {}
    table |= {"blocks": first} if first is not None else {}
    try:
        design = DesignTable.model_validate(table)
    except ValidationError as error:
        reason = describe(error).removeprefix(": must be ")
        raise PlanError(f"--until-decided: {reason}", place=file.place) from error
    return replace(file, plan=file.plan.model_copy(update={"design": design}))


class Demo(StrEnum):
    STOCK = "stock"
    INDEXES = "indexes"


@app.command(epilog="Example: headrace demo; headrace demo indexes")
def demo(
    what: Annotated[
        Demo, typer.Argument(help="`stock`: tune a stock MariaDB. `indexes`: find, prove and apply indexes.")
    ] = Demo.STOCK,
    output: Output = Path("experiments/stock-to-all"),
    rows: Annotated[
        int, typer.Option("--rows", min=20_000, max=5_000_000, help="With `indexes`: orders of the shop.")
    ] = 100_000,
    blocks: Annotated[
        int, typer.Option("--blocks", min=2, max=200, help="With `indexes`: blocks of the proof.")
    ] = 10,
    as_json: Json = False,
) -> None:
    """Tune a private stock MariaDB and prove the gain. Takes about 6 minutes, at most 15 on a noisy machine.

    `demo indexes` finds indexes that are missing in a slow log's traffic, proves them on a copy, applies them and
    takes them back. It leaves nothing.
    """
    if what is Demo.INDEXES:
        from headrace.indexes.commands.index_demo import demo_indexes

        demo_indexes(rows, blocks, as_json)
        return
    from headrace.experiment import plan as plans

    file = plans.load(find_plan(Path("stock-to-all")))
    _run_file(_decided(file, 900.0, asked=["ALL"], first=3), output, False, as_json)


def _run_file(
    file: PlanFileRead,
    output: Path | None,
    retry: bool,
    as_json: bool,
    on: str = "here",
    places: Sequence[Place] = (),
) -> None:
    from headrace.experiment.report import progress
    from headrace.experiment.run import run as run_plan

    with progress.Watcher(stderr()) as watcher:
        folder = run_trials(lambda: run_plan(file, output, watcher.listen, retry=retry, on=on))
    _conclude(folder, as_json, places)


def _conclude(folder: ExperimentFolder, as_json: bool, places: Sequence[Place] = ()) -> None:
    from headrace.experiment import report

    page = report.of(folder)
    path = report.write(page, folder)
    say(page, as_json)
    stderr().print(f"report: {path}", soft_wrap=True, highlight=False)
    if page.notice is not None:
        told(page.notice, places)


@app.command(
    name="report",
    epilog="Example: headrace report experiments/stock-to-all --json | jq .effects; headrace report --self-check",
)
@grouped
def report_command(
    folder: Annotated[
        Path | None, typer.Argument(help="An experiment's directory.", metavar="FOLDER", show_default=False)
    ] = None,
    objective: Objectives = None,
    self_check: SelfCheck = NO_CHECK,
    as_json: Json = False,
) -> None:
    """Analyse an experiment (finished or not), print the table and write report.html and report.json.

    `--self-check` exits with 1 if a rate of false alarms exceeds alpha by more than chance allows.
    """
    if self_check.self_check:
        check(folder, self_check, as_json=as_json)
        return
    if folder is None:
        raise typer.BadParameter("name an experiment's directory, or --self-check")
    from headrace.base.arrow import without_pandas

    without_pandas()
    from headrace.experiment.kinds.sweep import asking
    from headrace.experiment.store import ExperimentFolder

    found = ExperimentFolder.open(folder)
    if objective:
        found = asking(found, objective, "--objective")
    _conclude(found, as_json)


@app.command()
def status(folder: Folder, as_json: Json = False) -> None:
    """Show an experiment's progress, and whether the host is restored."""
    from headrace.experiment.kinds import as_decided
    from headrace.experiment.machine import reached
    from headrace.experiment.pool import reached_all
    from headrace.experiment.report import views
    from headrace.experiment.store import ExperimentFolder
    from headrace.host.agent import Agent, Journal

    experiment = as_decided(ExperimentFolder.open(folder))

    async def work(host: Any) -> list[dict[str, Any]]:
        return await Journal(await Agent.install(host), "status").entries()

    machine = reached(experiment)
    several = reached_all(experiment)
    # A virtual machine that is down has nothing left to restore.
    entries = on_target(machine, work) if machine and not several else []
    for one in several:
        try:
            entries += on_target(one, work)
        except TargetError as error:
            tell(f"{error.place}: {error.message}")
    if as_json:
        states = {t.number: t.state for t in experiment.trials()}
        print_json({"trials": len(experiment.design.trials), "states": states, "journal": entries})
    else:
        stdout().print(views.status(experiment, entries))


@app.command(
    epilog="Example: headrace compare experiments/kernel-6.1 experiments/kernel-6.12",
)
def compare(a: Folder, b: Folder, to: TellOption = None, as_json: Json = False) -> None:
    """Compare two experiments with the same workload: each treatment of B relative to A's (unpaired).

    Exits with 13 if any treatment is worse, and with 15 if the data allow no verdict, or if one failed in B.
    """

    from headrace.experiment.report import views
    from headrace.experiment.stats.study import compare_experiments
    from headrace.experiment.store import ExperimentFolder

    places = opened_places(to, as_json)
    comparison = compare_experiments(ExperimentFolder.open(a), ExperimentFolder.open(b))
    notice = views.comparison_notice(comparison)
    if as_json:
        print_json({**plain(comparison), "notice": notice})
    else:
        stdout().print(views.comparison(comparison))
    tell_and_exit(notice, places)
