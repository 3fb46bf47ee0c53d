"""The command ``latencies``: a machine's latencies from CPU cache to commit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.base.model import ServerLogin
from headrace.cli.options import HOUR_S, NO_LOGIN, duration, grouped
from headrace.cli.shell import (
    Json,
    PageFile,
    TargetOption,
    app,
    on_target,
    print_json,
    show,
    stderr,
    stdout,
)


@app.command(
    epilog="Example: headrace latencies --file /var/lib/mysql-files --mysql-defaults-file ~/.my.cnf",
)
@grouped
def latencies(
    target: TargetOption = "local",
    file: Annotated[str, typer.Option(metavar="DIRECTORY", help="Also measure the device below it.")] = "",
    target_address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The other end of a network path.")
    ] = "",
    login: ServerLogin = NO_LOGIN,
    seconds: Annotated[
        float, duration("--duration", text="Total time for all rows.", most_s=HOUR_S, default="20s")
    ] = 20.0,
    packets: Annotated[
        bool,
        typer.Option(
            "--packets", help="Packets per second instead, between two namespaces; keeps a core busy."
        ),
    ] = False,
    rps: Annotated[
        str, typer.Option(metavar="MASK", help="With --packets: also with received packets on these CPUs.")
    ] = "",
    rounds: Annotated[int, typer.Option(min=2, max=100, help="With --packets: how often.")] = 5,
    page: PageFile = None,
    as_json: Json = False,
) -> None:
    """Measure a machine's latencies, show them next to published ones, and report which pairs are out of
    balance."""
    from headrace.hunt.ladder import ladder as ladders
    from headrace.hunt.ladder.report import ladder as report

    if packets:
        _packets(target, rounds, seconds, rps, page, as_json)
        return
    if page is not None:
        raise typer.BadParameter("only --packets has an HTML report", param_hint="--html")
    named = {"--file": file, "--target-address": target_address, "--seconds": str(seconds)}
    options = [word for name, value in named.items() if value for word in (name, value)]

    def work(host: Any) -> Any:
        return ladders.measure(host, [*options, *login.argv], listen)

    with stderr().status("preparing ...") as status:

        def listen(row: Mapping[str, Any]) -> None:
            if row.get("kind") == "round":
                status.update(f"round {row['round']} is done, {row['left_s']:.0f} s left")

        found = on_target(target, work)
    ladders.remember(target, found)
    if as_json:
        print_json(report.to_json(found))
    else:
        stdout().print(report.terminal(found))


def _packets(target: str, rounds: int, seconds: float, rps: str, page: Path | None, as_json: bool) -> None:
    from headrace.hunt.ladder import ladder as ladders
    from headrace.hunt.ladder.report import packets as report

    plays = rounds * (2 if rps else 1) * len(ladders.PAYLOADS) * (len(ladders.SHARES) + 1)
    # A fifth more is the warm-up of each step.
    step_s = max(seconds / (1.2 * plays), 0.05)
    with stderr().status("preparing ...") as status:

        def work(host: Any) -> Any:
            return ladders.packets(host, ladders.PAYLOADS, rounds, step_s, rps, listen)

        def listen(number: int) -> None:
            status.update(f"round {number + 1} of {rounds} is done")

        found = on_target(target, work)
    content = report.page_of(target, found)
    show(content, as_json, page)
