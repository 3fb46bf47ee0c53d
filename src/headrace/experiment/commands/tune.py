"""The command ``tune``: searches many knobs together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headrace.base.encode import json_text
from headrace.base.errors import write_error
from headrace.base.whole import replace_whole
from headrace.cli.shell import Json, TellOption, app, opened_places, run_trials, say, stderr, told
from headrace.experiment.commands.experiments import PlanFile, find_plan


@app.command(
    epilog="Example: headrace tune tune --minutes 30",
)
def tune(
    plan: PlanFile,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory of the results [experiments/NAME-tune].")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", min=0.1, help="End the search after this many minutes [the plan's]."),
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
    from headrace.experiment import tune as tuning
    from headrace.experiment.kinds.search import table_of
    from headrace.experiment.prove import Bench
    from headrace.experiment.report import progress
    from headrace.experiment.report.tune.page import page_of
    from headrace.show import html, jsonform

    places = opened_places(to, as_json)
    path = find_plan(plan)
    with progress.Watcher(stderr()) as watcher:
        bench = Bench.open(path, output, watcher.listen, suffix="tune")
        table = table_of(bench.plan, str(path))
        given = {"minutes": minutes, "trials": trials}
        table = table.model_copy(update={k: v for k, v in given.items() if v is not None})
        bench = replace(
            bench, plan=bench.plan.model_copy(update={"tune": table}), response=table.objectives[0]
        )
        tuned = run_trials(lambda: tuning.tune(bench, advise=advise, retry=retry))
    page = page_of(tuned, bench.plan.name)
    try:
        replace_whole(tuned.folder / "report.json", json_text(jsonform.render(page), indent=2) + "\n")
        path = tuned.folder / "report.html"
        replace_whole(path, html.render(page))
    except OSError as error:
        raise write_error(error, tuned.folder) from error
    say(page, as_json)
    stderr().print(f"report: {path}", soft_wrap=True, highlight=False)
    if page.notice is not None:
        told(page.notice, places)
