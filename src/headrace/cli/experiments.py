"""Commands about plans and experiments: plan, run, sweep, demo, report, status, compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.shell import Json, app, on_target, print_json, run_until_signal, say, stderr, stdout
from headrace.errors import PlanError, TargetError

if TYPE_CHECKING:
    from headrace.plan import PlanFile as PlanFileRead
    from headrace.store import ExperimentFolder

plan_app = typer.Typer(no_args_is_help=True, help="Inspect plan files without running them.")
app.add_typer(plan_app, name="plan")


PlanFile = Annotated[Path, typer.Argument(help="A plan file, or the name of an example.", metavar="PLAN")]
Folder = Annotated[Path, typer.Argument(help="An experiment's directory.", metavar="FOLDER")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="The experiment's directory [experiments/NAME].")
]
Objectives = Annotated[
    list[str] | None,
    typer.Option("--objective", help="Latency objective of a sweep, such as p99=10ms [the plan's]."),
]


def find_plan(path: Path) -> Path:
    """The file, or the example plan of that name."""
    if path.is_file() or (path.suffix != ".toml" and len(path.parts) > 1):
        return path
    example = Path(__file__).parent.parent / "examples" / path.with_suffix(".toml").name
    return example if example.exists() and len(path.parts) == 1 else path


@plan_app.command("list")
def plan_list() -> None:
    """The example plans that come with headrace."""
    from headrace import plan as plans

    for path in sorted((Path(__file__).parent.parent / "examples").glob("*.toml")):
        typer.echo(f"{path.stem:22} {plans.load(path).plan.description}")


@plan_app.command("show", epilog="Example: headrace plan show stock-to-all")
def plan_show(
    plan: PlanFile,
    sd: Annotated[
        float, typer.Option("--sd", min=1e-4, max=2.0, help="Spread between trials, 0.02 is 2%.")
    ] = 0.02,
    as_json: Json = False,
) -> None:
    """Show a plan's treatments and trials, how long they take, and which effects they can detect."""
    from headrace import plan as plans
    from headrace.experiment import kinds
    from headrace.experiment.runner import boot_seconds, trial_seconds
    from headrace.report import designs

    path = find_plan(plan)
    design = kinds.build(plans.load(path).plan, place=str(path))
    seconds = trial_seconds(design.workload) * len(design.trials) / design.at_once + boot_seconds(design)
    hours = seconds * design.share_of_one_machine / 3600
    outlook = None if design.adaptive else designs.outlook(design, sd)
    if as_json:
        print_json({**design.to_json(), "hours": hours, "outlook": outlook and designs.to_json(outlook)})
    else:
        from headrace.report import views

        stdout().print(views.design(design, hours))
        if outlook:
            stdout().print(designs.terminal(outlook))


@plan_app.command("options", epilog="Example: headrace plan options fio")
def plan_options(kind: Annotated[str, typer.Argument(help="A workload.", metavar="WORKLOAD")]) -> None:
    """List a workload's options and defaults."""
    from rich.table import Table

    from headrace import workloads

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("option", "type", "default", "meaning"):
        table.add_column(column, overflow="fold")
    for row in workloads.option_docs(kind):
        table.add_row(*(str(cell) for cell in row))
    stdout().print(table)


@app.command(epilog="Example: headrace run filesystems -o experiments/fs-2")
def run(
    plan: PlanFile,
    output: Output = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Measure disturbed and failed trials again.")
    ] = False,
    on: Annotated[
        str,
        typer.Option(
            "--on", metavar="WHERE", help="Executor for several machines: here, ray, or ray://HOST:PORT."
        ),
    ] = "here",
    as_json: Json = False,
) -> None:
    """Run a plan, or continue it where it stopped, and write the report."""
    _run_plan(find_plan(plan), output, retry, as_json, on)


@app.command()
def demo(output: Output = Path("experiments/stock-to-all"), as_json: Json = False) -> None:
    """Tune a private stock MariaDB and prove the gain, in about 8 minutes."""
    _run_plan(find_plan(Path("stock-to-all")), output, False, as_json)


def _run_plan(plan: Path, output: Path | None, retry: bool, as_json: bool, on: str = "here") -> None:
    from headrace import plan as plans
    from headrace.experiment import kinds

    file = plans.load(plan)
    kind = kinds.of_plan(file.plan)
    if kind.command != "run":
        raise PlanError(
            f"a {kind.name} has its own command", place=file.place, hint=f"headrace {kind.command} PLAN"
        )
    _run_file(file, output, retry, as_json, on)


def _run_file(file: PlanFileRead, output: Path | None, retry: bool, as_json: bool, on: str = "here") -> None:
    from headrace.experiment.run import run as run_plan
    from headrace.report import progress

    with progress.Watcher(stderr()) as watcher:
        folder = run_until_signal(lambda: run_plan(file, output, watcher.listen, retry=retry, on=on))
    _conclude(folder, as_json)


@app.command(
    epilog="Example: headrace sweep sweep --objective p99=10ms --objective p50=1ms",
)
def sweep(
    plan: PlanFile,
    output: Output = None,
    objective: Objectives = None,
    passes: Annotated[
        int | None, typer.Option("--passes", min=1, max=1000, help="Passes over the levels [the plan's].")
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Measure disturbed and failed trials again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Raise connections (or the rate) until throughput stops growing: knee, scalability law, objectives."""
    from dataclasses import replace

    from headrace import plan as plans
    from headrace.experiment.kinds.sweep import asked

    file = plans.load(find_plan(plan))
    file = replace(file, plan=asked(file.plan, objective or (), passes, file.place))
    _run_file(file, output, retry, as_json)


def _conclude(folder: ExperimentFolder, as_json: bool) -> None:
    from headrace import report

    page = report.of(folder)
    path = report.write(page, folder)
    say(page, as_json)
    stderr().print(f"report: {path}", soft_wrap=True, highlight=False)


@app.command(
    name="report",
    epilog="Example: headrace report experiments/stock-to-all --json | jq .effects",
)
def report_command(folder: Folder, objective: Objectives = None, as_json: Json = False) -> None:
    """Analyse an experiment (finished or not), print the table and write report.html and report.json."""
    from headrace.experiment.kinds.sweep import asking
    from headrace.store import ExperimentFolder

    found = ExperimentFolder.open(folder)
    if objective:
        found = asking(found, objective, "--objective")
    _conclude(found, as_json)


@app.command()
def status(folder: Folder, as_json: Json = False) -> None:
    """Show an experiment's progress, and whether the host is restored."""
    from headrace.agent import Agent, Journal
    from headrace.experiment.kinds import as_decided
    from headrace.experiment.machine import reached
    from headrace.experiment.pool import reached_all
    from headrace.report import views
    from headrace.store import ExperimentFolder

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
            stderr().print(f"{error.place}: {error.message}", soft_wrap=True, highlight=False, markup=False)
    if as_json:
        states = {t.number: t.state for t in experiment.trials()}
        print_json({"trials": len(experiment.design.trials), "states": states, "journal": entries})
    else:
        stdout().print(views.status(experiment, entries))


@app.command(
    epilog="Example: headrace compare experiments/kernel-6.1 experiments/kernel-6.12",
)
def compare(a: Folder, b: Folder, as_json: Json = False) -> None:
    """Compare two experiments with the same workload: each treatment of B relative to A's (unpaired)."""
    from dataclasses import asdict

    from headrace.analysis.study import compare_experiments
    from headrace.report import views
    from headrace.store import ExperimentFolder

    comparison = compare_experiments(ExperimentFolder.open(a), ExperimentFolder.open(b))
    if as_json:
        print_json(asdict(comparison))
    else:
        stdout().print(views.comparison(comparison))
