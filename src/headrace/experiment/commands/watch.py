"""The command ``watch``: changes in a series of results."""

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
    show,
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
