"""The command line. Data on standard output, everything else on standard error; heavy imports are lazy."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from headrace import __version__
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.store import ExperimentFolder

T = TypeVar("T")

app = typer.Typer(
    name="headrace",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Finds what holds a MySQL-family server back, tests every fix on your own workload, and proves the "
    "result with numbers that can be defended.",
    epilog="Start with `headrace doctor`, then `headrace demo`. Exit codes: docs/exit-codes.md.",
)
plan_app = typer.Typer(no_args_is_help=True, help="Look at plan files without running them.")
app.add_typer(plan_app, name="plan")

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
TargetOption = Annotated[
    str, typer.Option("--target", "-t", help="local, user@host[:port], or a folder with a saved host.")
]
PlanFile = Annotated[Path, typer.Argument(help="A plan file, or the name of an example.", metavar="PLAN")]
Folder = Annotated[Path, typer.Argument(help="An experiment's folder.", metavar="FOLDER")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="The experiment's folder [experiments/NAME].")
]
Objectives = Annotated[
    list[str] | None,
    typer.Option("--objective", help="A latency that a sweep is to hold, such as p99=10ms [the plan's]."),
]


def main() -> None:
    """Entry point: runs the command and turns an error into one clear message and its exit code."""
    try:
        # typer hands back the code of an Exit instead of ending the process.
        sys.exit(app(standalone_mode=False))
    except HeadraceError as error:
        _stderr().print(_error_text(error), soft_wrap=True, highlight=False)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        # click's own usage errors know how to show themselves and their exit code.
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        sys.exit(getattr(error, "exit_code", 2))


def _error_text(error: HeadraceError) -> Any:
    from rich.text import Text

    from headrace.report.text import clean, clean_lines

    # A message may quote what a server or a file said: nothing of it may reach the terminal as a command.
    text = Text.assemble(("headrace: ", "bold red"))
    if error.place:
        text.append(f"{clean(error.place)}: ", style="bold")
    text.append(clean_lines(error.message))
    if error.hint:
        text.append(f"\n  try: {clean(error.hint)}", style="cyan")
    return text


def _stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def _stdout() -> Console:
    from rich.console import Console

    return Console()


def _print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2, sort_keys=False, default=str))


def _run_until_signal(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run, and on Ctrl-C or SIGTERM cancel once and wait until the host is restored.

    Further signals while restoring are ignored: leaving half-way would be worse.
    """

    import asyncio
    import signal

    async def supervised() -> T:
        task = asyncio.ensure_future(work())
        loop = asyncio.get_running_loop()

        def stop() -> None:
            if not task.cancelling():
                _stderr().print("\nstopping: restoring the host first ...", style="yellow")
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        try:
            return await task
        except asyncio.CancelledError:
            console = _stderr()
            # On a terminal the cursor stands at the end of the bar.
            line = "\n" if console.is_terminal else ""
            console.print(f"{line}stopped; the host is restored, finished trials are kept", style="yellow")
            raise typer.Exit(130) from None

    return asyncio.run(supervised())


def _find_plan(path: Path) -> Path:
    """The file itself, or the example of that name."""
    if path.exists() or (path.suffix != ".toml" and len(path.parts) > 1):
        return path
    example = Path(__file__).parent / "examples" / path.with_suffix(".toml").name
    return example if example.exists() and len(path.parts) == 1 else path


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(
    short_help="Is this machine ready? What is missing?",
    epilog="Example: headrace doctor --json | jq '.[] | select(.ok|not)'",
)
def doctor(target: TargetOption = "local", scratch: str = "/var/tmp/headrace", as_json: Json = False) -> None:
    """Is this machine ready? What is missing, and the command that brings it."""
    from headrace.experiment import readiness

    async def work(host: Any) -> list[readiness.Check]:
        return await readiness.examine(host, scratch)

    checks = _on_target(target, work)
    if as_json:
        _print_json([vars(check) for check in checks])
    else:
        _print_checks(checks)
    # Being no root is a limit, not a fault: everything but volumes and kernel settings works.
    if any(not check.ok for check in checks if check.name != "root"):
        raise typer.Exit(4)


def _print_checks(checks: list[Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "check", "found", "what to do"):
        table.add_column(column, overflow="fold")
    for check in checks:
        mark = "[green]ok[/]" if check.ok else "[red]no[/]"
        table.add_row(mark, check.name, check.detail, check.remedy)
    _stdout().print(table)


def _on_target(address: str, work: Callable[[Any], Awaitable[T]], **login: str | None) -> T:
    """Do some work on a target; ``login`` is the identity file and known hosts of an SSH target."""
    from headrace.target import TargetSpec, open_target

    async def connected() -> T:
        target = open_target(TargetSpec.parse(address, **login))
        await target.connect()
        try:
            return await work(target)
        finally:
            await target.close()

    return _run_until_signal(connected)


@app.command(epilog="Example: headrace facts --target root@db1 --json | jq .block_devices")
def facts(target: TargetOption = "local", as_json: Json = False) -> None:
    """How a host and its servers are configured."""
    from headrace.agent import Agent

    async def work(host: Any) -> Any:
        return await (await Agent.install(host)).facts()

    found = _on_target(target, work)
    if as_json:
        _print_json(found.data)
    else:
        from headrace.report import views

        _stdout().print(views.facts(found))


@plan_app.command("list")
def plan_list() -> None:
    """The example plans that come with headrace."""
    from headrace.experiment import plan as plans

    for path in sorted((Path(__file__).parent / "examples").glob("*.toml")):
        typer.echo(f"{path.stem:22} {plans.load(path)[0].description}")


@plan_app.command("show", epilog="Example: headrace plan show stock-to-all")
def plan_show(plan: PlanFile, as_json: Json = False) -> None:
    """The treatments and trials of a plan, and the hours they will take."""
    from headrace.experiment import design as designs
    from headrace.experiment import plan as plans
    from headrace.experiment import sweep as sweeps
    from headrace.experiment.runner import trial_seconds

    path = _find_plan(plan)
    loaded, _ = plans.load(path)
    build = designs.build if loaded.sweep is None else sweeps.build
    design = build(loaded, place=str(path))
    hours = trial_seconds(loaded) * len(design.trials) / 3600
    if as_json:
        _print_json({**design.to_json(), "hours": hours})
    else:
        from headrace.report import views

        _stdout().print(views.design(design.to_json(), hours))


@plan_app.command("options", epilog="Example: headrace plan options fio")
def plan_options(kind: Annotated[str, typer.Argument(help="A workload.", metavar="WORKLOAD")]) -> None:
    """The options of a workload, with defaults."""
    from rich.table import Table

    from headrace import workloads

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("option", "type", "default", "meaning"):
        table.add_column(column, overflow="fold")
    for row in workloads.option_docs(kind):
        table.add_row(*(str(cell) for cell in row))
    _stdout().print(table)


@app.command(
    short_help="Run a plan, or continue it.", epilog="Example: headrace run filesystems -o experiments/fs-2"
)
def run(
    plan: PlanFile,
    output: Output = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Measure disturbed and failed trials again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a plan, or continue it where it stopped, and write the report."""
    _run_plan(_find_plan(plan), output, retry, as_json)


@app.command(short_help="From a stock MariaDB to a proven faster one.")
def demo(output: Output = Path("experiments/stock-to-all"), as_json: Json = False) -> None:
    """From a stock private MariaDB to a proven faster one, in about 8 minutes."""
    _run_plan(_find_plan(Path("stock-to-all")), output, False, as_json)


def _run_plan(plan: Path, output: Path | None, retry: bool, as_json: bool) -> None:
    from headrace.experiment import plan as plans
    from headrace.experiment import runner
    from headrace.report import progress

    if plans.load(plan)[0].sweep is not None:
        _sweep_plan(plan, output, retry, as_json)
        return
    with progress.Watcher(_stderr()) as watcher:
        folder = _run_until_signal(lambda: runner.run_experiment(plan, output, watcher.listen, retry=retry))
    _conclude(folder, as_json)


@app.command(
    short_help="How much load brings more throughput?",
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
    _sweep_plan(_find_plan(plan), output, retry, as_json, objective or (), passes)


def _sweep_plan(
    plan: Path,
    output: Path | None,
    retry: bool,
    as_json: bool,
    objectives: Sequence[str] = (),
    passes: int | None = None,
) -> None:
    from headrace.experiment.sweep import run_sweep
    from headrace.report import progress

    with progress.Watcher(_stderr()) as watcher:
        folder = _run_until_signal(
            lambda: run_sweep(plan, output, watcher.listen, objectives=objectives, passes=passes, retry=retry)
        )
    _conclude(folder, as_json)


def _conclude(folder: ExperimentFolder, as_json: bool) -> None:
    from headrace import report
    from headrace.analysis.study import analyse_experiment
    from headrace.report.sweep import SweepReport, is_sweep

    if is_sweep(folder):
        found = SweepReport(folder)
        page = found.write()
        if as_json:
            _print_json(found.to_json())
        else:
            _stdout().print(found.terminal())
        _stderr().print(f"report: {page}", soft_wrap=True, highlight=False)
        return

    analysis = analyse_experiment(folder)
    page = report.build_report(folder, analysis)
    if as_json:
        _print_json(report.to_json(folder, analysis))
    else:
        _stdout().print(report.terminal.result(folder, analysis))
    _stderr().print(f"report: {page}", soft_wrap=True, highlight=False)


@app.command(
    name="report",
    short_help="Analyse an experiment, write its report.",
    epilog="Example: headrace report experiments/stock-to-all --json | jq .effects",
)
def report_command(folder: Folder, objective: Objectives = None, as_json: Json = False) -> None:
    """Analyse an experiment (finished or not), print the table and write report.html and report.json."""
    from headrace.analysis.sweep import parse_objective
    from headrace.experiment.sweep import asking
    from headrace.store import ExperimentFolder

    found = ExperimentFolder.open(folder)
    if objective:
        found = asking(found, [parse_objective(text, "--objective") for text in objective])
    _conclude(found, as_json)


@app.command(short_help="How far is an experiment?")
def status(folder: Folder, as_json: Json = False) -> None:
    """How far an experiment is, and whether the host is restored."""
    from headrace.agent import Agent, Journal
    from headrace.experiment.sweep import as_decided
    from headrace.report import views
    from headrace.store import ExperimentFolder

    experiment = as_decided(ExperimentFolder.open(folder))

    async def work(host: Any) -> list[dict[str, Any]]:
        return await Journal(await Agent.install(host), "status").entries()

    target = experiment.design["target"]
    entries = _on_target(
        target["address"], work, identity_file=target["identity_file"], known_hosts=target["known_hosts"]
    )
    if as_json:
        states = {t.number: t.state for t in experiment.trials()}
        _print_json({"trials": len(experiment.design["trials"]), "states": states, "journal": entries})
    else:
        _stdout().print(views.status(experiment, entries))


@app.command(
    short_help="Two experiments side by side.",
    epilog="Example: headrace compare experiments/kernel-6.1 experiments/kernel-6.12",
)
def compare(a: Folder, b: Folder, as_json: Json = False) -> None:
    """Two experiments with the same workload: each treatment of B against the same one of A (unpaired)."""
    from dataclasses import asdict

    from headrace.analysis.study import compare_experiments
    from headrace.report import views
    from headrace.store import ExperimentFolder

    comparison = compare_experiments(ExperimentFolder.open(a), ExperimentFolder.open(b))
    if as_json:
        _print_json(asdict(comparison))
    else:
        _stdout().print(views.comparison(comparison))
