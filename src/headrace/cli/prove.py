"""The command that turns findings into proofs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.experiments import find_plan
from headrace.cli.shell import Json, app, print_json, run_until_signal, stderr, stdout


@app.command(
    short_help="Test the remedies of findings on a workload, keep what is proven.",
    epilog="Example: headrace prove --auto --plan stock-to-all; headrace prove POOL01 --plan my.toml --blocks 6",
)
def prove(
    findings: Annotated[
        list[str] | None, typer.Argument(help="Findings, by id or rule code.", metavar="[FINDING]...")
    ] = None,
    plan: Annotated[
        Path, typer.Option("--plan", "-p", help="The workload and machine: a plan file or an example's name.")
    ] = Path("stock-to-all"),
    auto: Annotated[
        bool, typer.Option("--auto", help="Every finding, from the cheapest up; keep what is proven.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where the experiments go [experiments/NAME-proof].")
    ] = None,
    blocks: Annotated[int, typer.Option("--blocks", min=2, max=1000, help="Blocks of each experiment.")] = 4,
    response: Annotated[
        str, typer.Option("--response", help="What must become better: throughput, or p50 to p99.99.")
    ] = "throughput",
    budget: Annotated[
        float | None, typer.Option("--budget", min=1, help="Start no further step after these minutes.")
    ] = None,
    allow_weaker: Annotated[
        list[str] | None, typer.Option("--allow-weaker", metavar="KNOB", help="May weaken durability.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Hunt on a plan's workload, put each finding's remedy to the test against what is there, keep what is proven.

    The workload runs on a private server as in `headrace run`; the machine is left as it was. Each step is an
    experiment of its own, with baseline and remedy interleaved. The same command again continues.
    """
    from headrace import prove as proofs
    from headrace.report import progress, proof

    if not findings and not auto:
        raise typer.BadParameter("name findings, or give --auto for all of them")
    with progress.Watcher(stderr()) as watcher:
        bench = proofs.Bench.open(
            find_plan(plan),
            output,
            watcher.listen,
            blocks=blocks,
            response=response,
            allow_weaker=tuple(allow_weaker or ()),
        )
        found = run_until_signal(
            lambda: proofs.prove_all(
                bench, only=findings or (), budget_s=budget * 60 if budget is not None else None
            )
        )
    if as_json:
        print_json(proof.to_json(found, response))
    else:
        stdout().print(proof.terminal(found, response))
    stderr().print(f"experiments: {bench.folder}", soft_wrap=True, highlight=False)
    if findings and not found.steps:
        stderr().print(
            f"none of {', '.join(findings)} was found under this workload, or none has a remedy to test",
            style="yellow",
        )
        raise typer.Exit(10)
