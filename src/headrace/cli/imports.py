"""The command ``import``: reads results measured elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import Alpha
from headrace.cli.shell import Json, PageFile, app, show
from headrace.errors import PlanError

EXAMPLE = "Example: headrace import table.csv --factor kernel --factor filesystem --response write_mb_s"


@app.command(
    "import",
    epilog=f"{EXAMPLE}, or: headrace import out/*.json --names 'fio-{{filesystem}}-{{chunk}}.json' "
    "--response write_iops",
)
def import_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="A CSV table, or output of sysbench, fio, HammerDB, BenchBase or mysqlslap.",
            metavar="FILE...",
        ),
    ],
    factor: Annotated[
        list[str] | None, typer.Option("--factor", help="Column of a factor; repeatable.")
    ] = None,
    response: Annotated[
        list[str] | None, typer.Option("--response", help="Column of a measurement where more is better.")
    ] = None,
    latency: Annotated[
        list[str] | None, typer.Option("--latency", help="Column of a measurement where less is better.")
    ] = None,
    names: Annotated[
        str,
        typer.Option(
            "--names", help="Pattern of file names that gives the levels: 'fio-{filesystem}-{chunk}.json'."
        ),
    ] = "",
    block: Annotated[
        str, typer.Option("--block", help="Column that identifies repeats measured together.")
    ] = "",
    condition: Annotated[
        str,
        typer.Option("--condition", help="Column of the workload; its values are never compared."),
    ] = "",
    alpha: Alpha = 0.05,
    margin: Annotated[
        float, typer.Option("--margin", min=0.0, max=1.0, help="Ignore smaller differences.")
    ] = 0.03,
    page: PageFile = None,
    as_json: Json = False,
) -> None:
    """Find which factors matter in results measured elsewhere, and what one observation per cell can prove."""
    from headrace import foreign
    from headrace.analysis.decision import decide
    from headrace.analysis.factors import questions_of, studies_of
    from headrace.report.effects.page import page_of

    responses = {**dict.fromkeys(response or (), True), **dict.fromkeys(latency or (), False)}
    if not responses:
        raise PlanError("nothing to analyse", hint=f"name the measured columns: {EXAMPLE}")
    notes: list[str] = []
    if names:
        rows = foreign.read_outputs(files, names)
        factors = factor or list(rows[0].levels)
    else:
        if not factor:
            raise PlanError("no factor is named", hint=EXAMPLE)
        factors = factor
        tables = [foreign.read_csv(path, factors, list(responses)) for path in files]
        rows = [row for table in tables for row in table.rows]
        notes = [note for table in tables for note in table.notes]
    kept = [name for name in factors if name != condition]
    studies = studies_of(rows, kept, responses, block=block, condition=condition, alpha=alpha, margin=margin)
    decision = decide(questions_of(studies), alpha=alpha, margin=margin)
    content = page_of(studies, files, decision, notes)
    show(content, as_json, page)
