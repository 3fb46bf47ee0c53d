"""The command that reads what others measured: import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.shell import Json, PageFile, app, print_json, stdout, write_page
from headrace.errors import PlanError

EXAMPLE = "Example: headrace import table.csv --factor kernel --factor filesystem --response write_mb_s"


@app.command(
    "import",
    short_help="Analyse results that others measured: tables, outputs of benchmarks.",
    epilog=f"{EXAMPLE}, or: headrace import out/*.json --names 'fio-{{filesystem}}-{{chunk}}.json' "
    "--response write_iops",
)
def import_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="A CSV table, or outputs of sysbench, fio, HammerDB, BenchBase or mysqlslap.",
            metavar="FILE...",
        ),
    ],
    factor: Annotated[
        list[str] | None, typer.Option("--factor", help="A column that was varied; again for each.")
    ] = None,
    response: Annotated[
        list[str] | None, typer.Option("--response", help="A column that was measured, more is better.")
    ] = None,
    latency: Annotated[
        list[str] | None, typer.Option("--latency", help="A column that was measured, less is better.")
    ] = None,
    names: Annotated[
        str,
        typer.Option("--names", help="How a file's name tells its levels: 'fio-{filesystem}-{chunk}.json'."),
    ] = "",
    block: Annotated[
        str, typer.Option("--block", help="The column that tells repeats measured together.")
    ] = "",
    condition: Annotated[
        str,
        typer.Option(
            "--condition", help="The column that tells the workload: its values are never compared."
        ),
    ] = "",
    alpha: Annotated[float, typer.Option("--alpha", min=0.0001, max=0.5)] = 0.05,
    margin: Annotated[
        float, typer.Option("--margin", min=0.0, max=1.0, help="Smaller differences do not matter.")
    ] = 0.03,
    page: PageFile = None,
    as_json: Json = False,
) -> None:
    """Find what matters in results measured elsewhere, and what can be claimed from one observation per cell."""
    from headrace import foreign
    from headrace.analysis.decision import decide
    from headrace.analysis.factors import questions_of, studies_of

    responses = {**dict.fromkeys(response or (), True), **dict.fromkeys(latency or (), False)}
    if not responses:
        raise PlanError("nothing to analyse", hint=f"name what was measured: {EXAMPLE}")
    if names:
        rows = foreign.read_outputs(files, names)
        factors = factor or list(rows[0].levels)
    else:
        if not factor:
            raise PlanError("no factor is named", hint=EXAMPLE)
        factors = factor
        rows = [row for path in files for row in foreign.read_csv(path, factors, list(responses))]
    kept = [name for name in factors if name != condition]
    studies = studies_of(rows, kept, responses, block=block, condition=condition, alpha=alpha, margin=margin)
    decision = decide(questions_of(studies), alpha=alpha, margin=margin)
    if page is not None:
        from headrace.report import effects_html

        write_page(page, effects_html.page_of(studies, files, decision))
    _show(studies, decision, as_json)


def _show(studies: Any, decision: Any, as_json: bool) -> None:
    from headrace.report import choices, effects

    if as_json:
        content = [effects.to_json(study) for study in studies]
        print_json({"studies": content, "choice": choices.to_json(decision)})
        return
    for study in studies:
        stdout().print(effects.terminal(study))
        stdout().print()
    for part in choices.terminal(decision):
        stdout().print(part)
