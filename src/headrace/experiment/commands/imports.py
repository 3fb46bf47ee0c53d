"""The command ``import``: reads results measured elsewhere."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headrace.base.errors import PlanError
from headrace.cli.options import Alpha
from headrace.cli.shell import Json, PageFile, app, show

if TYPE_CHECKING:
    from headrace.experiment.foreign import Table

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
            help="A table, or output of sysbench, fio, HammerDB, BenchBase, mysqlslap, pgbench, YCSB and others.",
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
    mixed: Annotated[
        list[str] | None,
        typer.Option("--mixed", help="Compare runs that differ in this, such as duration_s; repeatable."),
    ] = None,
    per_run: Annotated[
        Literal["mean"] | None,
        typer.Option("--per-run", help="For a table with a line per second: one value per run."),
    ] = None,
    alpha: Alpha = 0.05,
    margin: Annotated[
        float, typer.Option("--margin", min=0.0, max=1.0, help="Ignore smaller differences.")
    ] = 0.03,
    page: PageFile = None,
    as_json: Json = False,
) -> None:
    """Find which factors matter in results measured elsewhere, and what one observation per cell can prove."""
    from headrace.experiment.report.effects.page import page_of
    from headrace.experiment.stats.decision import decide
    from headrace.experiment.stats.factors import comparing, questions_of, studies_of

    responses, notes = _directions(response or (), latency or ())
    if not responses:
        raise _unnamed(_measured(files, names, factor or [], mixed or []))
    others = [name for name in (block, condition) if name]
    factors, table = _read(
        files, names, factor or [], responses, others, mixed or [], per_run=per_run == "mean"
    )
    rows, notes = list(table.rows), [*notes, *table.notes]
    kept = [name for name in factors if name != condition]
    block = comparing(rows, kept, block, notes)
    try:
        studies = studies_of(
            rows, kept, responses, block=block, condition=condition, alpha=alpha, margin=margin
        )
    except PlanError as error:
        # What is left may not be enough because of what was left out.
        lost = [note for note in notes if " left out" in note]
        raise PlanError("; ".join([error.message, *lost]), place=error.place, hint=error.hint) from error
    decision = decide(questions_of(studies), alpha=alpha, margin=margin)
    content = page_of(studies, files, decision, notes)
    show(content, as_json, page)


def _measured(files: Sequence[Path], names: str, factors: Sequence[str], mixed: Sequence[str]) -> list[str]:
    """The measurements that every run has, whatever kind of file it is in."""
    from headrace.experiment import foreign

    if names:
        own = re.findall(r"\{(\w+)\}", names)
        runs = foreign.read_outputs(files, names, (), factors or own, [*own, *mixed]).rows
        columns = [set(run.responses) for run in runs]
    else:
        columns = [foreign.number_columns(path) for path in files]
    return sorted(set.intersection(*columns) - set(factors))


def _unnamed(measured: Sequence[str]) -> PlanError:
    from headrace.experiment.foreign.directions import is_more_better

    if not measured:
        return PlanError("no measurement is named, and all runs have none in common", hint=EXAMPLE)
    # A rate is what most people compare, and else a mean.
    middle = next((name for name in measured if name.startswith(("mean", "median"))), measured[0])
    first = next((name for name in measured if is_more_better(name)), middle)
    option = "--latency" if is_more_better(first) is False else "--response"
    return PlanError(
        f"no measurement is named; every run has {', '.join(measured)[:600]}", hint=f"{option} {first}"
    )


def _read(
    files: Sequence[Path],
    names: str,
    factors: list[str],
    responses: Collection[str],
    others: Sequence[str],
    mixed: Sequence[str],
    *,
    per_run: bool,
) -> tuple[list[str], Table]:
    """The factors, and the rows of all files with what was assumed."""
    from headrace.experiment import foreign

    if names:
        own = re.findall(r"\{(\w+)\}", names)
        found = foreign.read_outputs(files, names, list(responses), factors or own, [*own, *mixed])
        return factors or own, found
    if not factors:
        raise PlanError("no factor is named", hint=EXAMPLE)
    return factors, foreign.read_tables(
        files, factors, list(responses), others=others, mixed=mixed, per_run=per_run
    )


def _directions(response: Sequence[str], latency: Sequence[str]) -> tuple[dict[str, bool], list[str]]:
    """Response -> whether more is better, and what was taken from a name. Raises PlanError for a contradiction."""
    from headrace.experiment.foreign.directions import is_more_better

    notes = []
    found: dict[str, bool] = {}
    for name in response:
        known = is_more_better(name)
        found[name] = known is not False
        if known is False:
            notes.append(f"{name}: less is better, by its name (--latency says the same)")
        elif known is None:
            notes.append(
                f"{name}: its name does not say whether more or less is better; more is, as --response says "
                f"(if less is: --latency {name})"
            )
    for name in latency:
        if is_more_better(name):
            raise PlanError(f"--latency {name}: more is better, by its name", hint=f"--response {name}")
        found[name] = False
    return found, notes
