"""The command ``tune``: searches many knobs together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import DAY_S, duration
from headrace.cli.shell import Json, TellOption, app, opened_places
from headrace.experiment.commands.experiments import PlanFile, find_plan
from headrace.experiment.commands.search import search


@app.command(
    epilog="Example: headrace tune tune --budget 30m",
)
def tune(
    plan: PlanFile,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory of the results [experiments/NAME-tune].")
    ] = None,
    budget: Annotated[
        float | None,
        duration(
            "--budget", text="End the search after this time, such as 30m [the plan's].", most_s=30 * DAY_S
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, max=10_000, help="Maximum number of points [the plan's].")
    ] = None,
    advise: Annotated[
        bool, typer.Option(help="Also start from the settings that the rules suggest for the workload.")
    ] = True,
    retry: Annotated[
        bool, typer.Option("--retry", help="Measure disturbed and failed points again.")
    ] = False,
    to: TellOption = None,
    as_json: Json = False,
) -> None:
    """Search the knobs of a plan's [tune] for the best settings, then confirm them in interleaved blocks.

    Failed starts count as bad points; constraints such as p99=10ms hold; durability is never weakened unless the
    plan allows it by name. Run the same command again to continue.
    """
    places = opened_places(to, as_json)
    given = {"budget_s": budget, "trials": trials}
    search(find_plan(plan), output, given, places, advise=advise, retry=retry, as_json=as_json)
