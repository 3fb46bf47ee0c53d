"""The command ``ladder``: a machine's latencies from a cache to a commit."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from headrace.cli.shell import Json, TargetOption, app, on_target, print_json, stderr, stdout
from headrace.errors import CommandFailed, Refused


@app.command(
    short_help="How long does everything take here, from a cache to a commit?",
    epilog="Example: headrace ladder --file /var/lib/mysql-files --mysql-defaults-file ~/.my.cnf",
)
def ladder(
    target: TargetOption = "local",
    file: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Measure the device below this folder [not measured]."),
    ] = None,
    target_address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The other end of a network path.")
    ] = None,
    mysql_socket: Annotated[str | None, typer.Option(metavar="PATH", help="Socket of a server.")] = None,
    mysql_host: Annotated[str | None, typer.Option(metavar="HOST", help="Host of a server.")] = None,
    mysql_port: Annotated[int | None, typer.Option(metavar="PORT", help="Its port.")] = None,
    mysql_user: Annotated[str | None, typer.Option(metavar="USER", help="User to log in as.")] = None,
    mysql_defaults_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="As my.cnf, with user and password.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="Time for all rungs.")] = 20.0,
    as_json: Json = False,
) -> None:
    """Measure the latency ladder of a machine, beside the published one; which pairs are out of balance?"""
    from headrace.analysis import ladder as ladders
    from headrace.report import ladder as report

    named = {
        "--file": file,
        "--target-address": target_address,
        "--mysql-socket": mysql_socket,
        "--mysql-host": mysql_host,
        "--mysql-port": mysql_port,
        "--mysql-user": mysql_user,
        "--mysql-defaults-file": mysql_defaults_file,
    }
    options = [word for name, value in named.items() if value is not None for word in (name, str(value))]

    async def work(host: Any) -> list[str]:
        return await _measure(host, [*options, "--seconds", str(seconds)])

    found = ladders.parse(on_target(target, work))
    if as_json:
        print_json(report.to_json(found))
    else:
        stdout().print(report.terminal(found))


async def _measure(host: Any, options: list[str]) -> list[str]:
    """The agent's lines, with progress on standard error. Cancelled, it ends the agent, too."""
    from headrace.agent import Agent

    process = await host.spawn([(await Agent.install(host)).path, "ladder", *options])
    lines: list[str] = []
    try:
        with stderr().status("preparing ...") as status:
            async for line in process.lines():
                lines.append(line)
                row = json.loads(line)
                if row.get("kind") == "round":
                    status.update(f"round {row['round']} is done, {row['left_s']:.0f} s left")
        code = await process.wait(10)
    except BaseException:
        await process.signal("TERM")
        raise
    if code:
        message = (await process.error_text()).strip().removeprefix("headrace-agent: ")
        error = Refused if code == Refused.exit_code else CommandFailed
        raise error(message.removeprefix("refused: "), place=host.name)
    return lines
