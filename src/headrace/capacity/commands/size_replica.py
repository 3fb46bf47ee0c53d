"""The command ``size replica``: how fast a replica applies, and when it has caught up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.base.model import ServerLogin
from headrace.capacity.commands.size_app import size_app
from headrace.cli.options import NO_LOGIN, duration, grouped
from headrace.cli.shell import Json, TargetOption, on_target, print_json, stdout

#: No channel of it has a pace that is known.
UNKNOWN = 6


@size_app.command(epilog="Example: headrace size replica -t root@db2 --duration 5m")
@grouped
def replica(
    target: TargetOption = "local",
    seconds: Annotated[
        float, duration("--duration", text="How long to watch.", least_s=30, most_s=3600, default="60s")
    ] = 60.0,
    saved: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="A saved hunt of the replica in place of watching it."),
    ] = None,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Measure how fast a replica applies its source's writes. Tells when one that is behind has caught up.

    Changes nothing. Exits with 6 if the pace of no channel is known; the reason says how to learn it.
    """
    from headrace.base.errors import NotReady
    from headrace.capacity import replica as replicas
    from headrace.capacity.report import replica as report
    from headrace.hunt import hunt
    from headrace.hunt.rules.evidence import Evidence
    from headrace.show import terminal

    snapshot = (
        hunt.saved(saved)
        if saved
        else on_target(target, lambda host: hunt.watch(host, seconds, None if login == NO_LOGIN else login))
    )
    if why := hunt.why_no_server(snapshot):
        raise NotReady(why, place=snapshot.target, hint="name the replica's server: --mysql-socket")
    evidence = Evidence.of(snapshot)
    found = replicas.channels(evidence.window)
    if not found:
        why = snapshot.errors.get("replication") or "its server replicates from no other"
        raise NotReady(why, place=snapshot.target, hint="SHOW REPLICA STATUS has to show a channel there")
    settings = {
        name: value for name in report.SETTINGS if (value := evidence.facts.variable(name)) is not None
    }
    if as_json:
        print_json(report.to_json(found, settings))
    else:
        stdout().print(terminal.show(list(report.parts(found, settings))))
    if not any(channel.pace or channel.keeps_up for channel in found):
        raise typer.Exit(UNKNOWN)
