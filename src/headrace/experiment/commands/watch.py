"""Commands about results over time and about headrace's own verdicts: watch, audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.base.errors import NothingMeasured
from headrace.cli.options import Alpha
from headrace.cli.shell import (
    Json,
    PageFile,
    TellOption,
    app,
    opened_places,
    print_json,
    show,
    stderr,
    stdout,
    tell,
    tell_and_exit,
)


@app.command(
    epilog="Example: headrace watch nightly/2026-* --response p99; headrace watch history.csv --response tps",
)
def watch(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Experiment directories in order of time, or one CSV with a row per trial.",
            metavar="SOURCE...",
        ),
    ],
    response: Annotated[
        str, typer.Option("--response", help="throughput, p50 to p99.9; or a column of the CSV.")
    ] = "throughput",
    treatment: Annotated[
        str,
        typer.Option("--treatment", help="Treatment whose trials to use [the baseline].", show_default=False),
    ] = "",
    name: Annotated[str, typer.Option("--name", help="CSV column that names the point.")] = "version",
    lower: Annotated[
        bool, typer.Option("--lower-is-better", help="The response column is a latency.")
    ] = False,
    alpha: Alpha = 0.05,
    margin: Annotated[
        float, typer.Option("--margin", min=0.0, max=1.0, help="Ignore smaller changes.")
    ] = 0.03,
    independent: Annotated[
        bool,
        typer.Option(
            "--independent",
            help="The points are independent: measured in random order, or each with its own baseline.",
        ),
    ] = False,
    page: PageFile = None,
    to: TellOption = None,
    as_json: Json = False,
) -> None:
    """Find changes in a series of results and separate them from noise.

    Exits with 13 if the latest change is for the worse, and with 15 if there are too few points, or if trials of
    the latest have no value.
    """
    from headrace.experiment.report.history.page import page_of
    from headrace.experiment.stats import history

    places = opened_places(to, as_json)
    if len(sources) == 1 and sources[0].is_file():
        points, is_higher_better = _table(sources[0], name, response), not lower
    else:
        points, is_higher_better = _experiments(sources, treatment, response), response == "throughput"
    found = history.watch(
        points,
        alpha=alpha,
        margin=margin,
        is_higher_better=is_higher_better,
        is_independent=independent,
    )
    is_time_ns = response != "throughput" and not (len(sources) == 1 and sources[0].is_file())
    content = page_of(found, response, alpha=alpha, margin=margin, is_time_ns=is_time_ns)
    show(content, as_json, page)
    assert content.notice is not None
    tell_and_exit(content.notice, places)


def _table(path: Path, name: str, response: str) -> list[Any]:
    import math

    from headrace.experiment import foreign
    from headrace.experiment.stats.history import Point

    table = foreign.read_csv(path, [name], [response], mixed=None)
    for note in table.notes:
        tell(note)
    rows: dict[str, list[float | None]] = {}
    for row in table.rows:
        rows.setdefault(row.levels[name], []).append(row.responses.get(response))
    latest, values = list(rows.items())[-1]
    if not any(values):
        raise NothingMeasured(f"the latest, {latest}, has no {response}", place=str(path))
    return [
        Point(
            point,
            tuple(math.log(value) for value in values if value),
            tuple(f"no {response}" for value in values if not value),
        )
        for point, values in rows.items()
        if any(values)
    ]


def _experiments(sources: list[Path], treatment: str, response: str) -> list[Any]:
    from headrace.experiment.stats.study import points_of
    from headrace.experiment.store import ExperimentFolder

    return [points_of(ExperimentFolder.open(path), treatment, response) for path in sources]


@app.command(
    epilog="Example: headrace audit; headrace audit experiments/stock-to-all; headrace audit --rollouts",
)
def audit(
    folder: Annotated[
        Path | None, typer.Argument(help="Experiment whose A/A pairs to audit.", metavar="[FOLDER]")
    ] = None,
    studies: Annotated[
        int, typer.Option("--studies", min=100, max=1_000_000, help="Simulated studies of each kind.")
    ] = 2000,
    rollouts: Annotated[
        bool, typer.Option("--rollouts", help="Simulate rollouts over fleets instead.")
    ] = False,
    alpha: Alpha = 0.05,
    seed: Annotated[int, typer.Option("--seed")] = 1,
    as_json: Json = False,
) -> None:
    """Measure the false-alarm rate of compare, race and watch when nothing differs: simulated, or on an
    experiment's trials. `--rollouts`: of the judge of a rollout.

    Exits with 1 if a rate exceeds alpha by more than chance allows.
    """
    from headrace.experiment.report.history import words as report
    from headrace.experiment.stats import audit as audits
    from headrace.rollout import fleets, paired_fleets
    from headrace.show import terminal

    if folder is not None and rollouts:
        raise typer.BadParameter("give a FOLDER or --rollouts")
    if folder is None:
        stderr().print(f"{studies} studies of each kind ...", style="dim")
        kinds = (fleets.simulate, paired_fleets.simulate) if rollouts else (audits.simulate,)
        rates = [rate for simulate in kinds for rate in simulate(studies, alpha=alpha, seed=seed)]
    else:
        rates = _audit_folder(folder, alpha, seed)
    if as_json:
        print_json(report.rates_json(rates))
    else:
        stdout().print(terminal.show(report.rates(rates)))
    if not all(rate.holds for rate in rates):
        raise typer.Exit(1)


def _audit_folder(folder: Path, alpha: float, seed: int) -> list[Any]:
    from headrace.experiment.stats import audit as audits
    from headrace.experiment.stats.study import baseline_trials
    from headrace.experiment.stats.trials import RESPONSES
    from headrace.experiment.store import ExperimentFolder

    trials = baseline_trials(ExperimentFolder.open(folder))
    found = [
        rate
        for own in trials.values()
        for response in RESPONSES
        if (rate := audits.of_pairs(response, own, alpha=alpha, seed=seed))
    ]
    if not found:
        raise NothingMeasured(
            "no two blocks with both trials of the baseline", place=str(folder), hint="headrace run PLAN"
        )
    return found
