"""A search, which `headrace tune` and `headrace run` start: from its plan to its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.encode import json_text
from headrace.base.errors import write_error
from headrace.base.whole import replace_whole
from headrace.cli.shell import run_trials, say, stderr, told

if TYPE_CHECKING:
    from headrace.tell.places import Place


def search(
    path: Path,
    output: Path | None,
    given: Mapping[str, float | None],
    places: Sequence[Place],
    *,
    advise: bool,
    retry: bool,
    as_json: bool,
) -> None:
    """Run the search of a plan; ``given``: ``budget_s`` and ``trials`` instead of the plan's."""
    from headrace.experiment import tune as tuning
    from headrace.experiment.kinds.search import table_of
    from headrace.experiment.prove import Bench
    from headrace.experiment.report import progress
    from headrace.experiment.report.tune.page import page_of
    from headrace.show import html, jsonform

    with progress.Watcher(stderr()) as watcher:
        bench = Bench.open(path, output, watcher.listen, suffix="tune")
        table = table_of(bench.plan, str(path))
        budget_s = given.get("budget_s")
        limits = {"minutes": budget_s / 60 if budget_s else None, "trials": given.get("trials")}
        table = table.model_copy(update={k: v for k, v in limits.items() if v is not None})
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
