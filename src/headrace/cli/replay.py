"""The command ``replay``: recorded traffic is sent to a server again, and the answers are compared."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.shell import (
    NO_LOGIN,
    Json,
    TargetOption,
    app,
    on_target,
    print_json,
    stderr,
    stdout,
    takes_login,
)
from headrace.errors import CommandFailed, PlanError, Refused, WorkloadFailed
from headrace.model import ServerLogin

if TYPE_CHECKING:
    from headrace.report.replay import Replayed

#: How the agent ends when it is given nonsense.
_AGENT_BAD_INPUT = 2


Recording = Annotated[str, typer.Argument(metavar="RECORDING", help="Made with literals; on the target.")]
SpeedOption = Annotated[
    str, typer.Option(metavar="FACTOR", help="So many times as fast, or max: as fast as it is answered.")
]
SkipIdleOption = Annotated[
    str, typer.Option(metavar="TIME", help="Shorten stretches in which nothing was at work to this: 5s.")
]
SessionsOption = Annotated[str, typer.Option(metavar="xN", help="Play each session so often at once: x4.")]
ScaleWritesOption = Annotated[bool, typer.Option("--scale-writes", help="These copies may write.")]
ReadOnlyOption = Annotated[bool, typer.Option("--read-only", help="Leave out what does more than read.")]
CommitOrderOption = Annotated[
    bool, typer.Option("--commit-order", help="Writes wait for those that had ended before they began.")
]
SinceOption = Annotated[str, typer.Option(metavar="TIME", help="Begin there: +30s after the beginning.")]
UntilOption = Annotated[str, typer.Option(metavar="TIME", help="End there.")]
DurationOption = Annotated[str, typer.Option(metavar="TIME", help="End after so long: 60s.")]
CheckOption = Annotated[bool, typer.Option("--check", help="Compare the answers with the recorded ones.")]
MemoryOption = Annotated[str, typer.Option(metavar="SIZE", help="The most memory to take [200MB].")]
MaxLagOption = Annotated[
    str, typer.Option(metavar="TIME", help="Invalid where 1% is sent later than this: 10ms.")
]
DatabaseMapOption = Annotated[
    list[str] | None, typer.Option(metavar="A=B", help="Play in B what was sent to A; several.")
]
UserMapOption = Annotated[
    str, typer.Option(metavar="FILE", help="Accounts by recorded user, on the target, mode 0600.")
]
FoundRowsOption = Annotated[
    bool, typer.Option("--found-rows", help="The recorded clients counted found rows, as JDBC does.")
]


@app.command(
    short_help="Play recorded traffic on a server: how fast is it there, and are the answers the same?",
    epilog="Example: headrace replay shop.rec --mysql-socket /run/copy.sock --check",
)
@takes_login
def replay(
    recording: Recording,
    target: TargetOption = "local",
    speed: SpeedOption = "1",
    skip_idle: SkipIdleOption = "",
    sessions: SessionsOption = "",
    scale_writes: ScaleWritesOption = False,
    read_only: ReadOnlyOption = False,
    commit_order: CommitOrderOption = False,
    since: SinceOption = "",
    until: UntilOption = "",
    duration: DurationOption = "",
    check: CheckOption = False,
    memory: MemoryOption = "",
    max_lag: MaxLagOption = "",
    database_map: DatabaseMapOption = None,
    user_map: UserMapOption = "",
    found_rows: FoundRowsOption = False,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Send what a recording holds to a server again: same sessions, same moments; then say how it went.

    Exits with 12 where --check finds answers that differ.
    """
    from headrace.report import replay as report

    values = [
        ("--speed", speed),
        ("--skip-idle", skip_idle),
        ("--sessions", sessions),
        ("--since", since),
        ("--until", until),
        ("--duration", duration),
        ("--memory", memory),
        ("--max-lag", max_lag),
        ("--user-map", user_map),
        *(("--database-map", pair) for pair in database_map or ()),
    ]
    flags = {
        "--scale-writes": scale_writes,
        "--read-only": read_only,
        "--commit-order": commit_order,
        "--check": check,
        "--found-rows": found_rows,
    }
    argv = [recording, *login.argv, *(word for pair in values if pair[1] for word in pair)]
    argv += [flag for flag, is_set in flags.items() if is_set]

    async def work(host: Any) -> Replayed:
        return await _play(host, argv)

    replayed = on_target(target, work)
    if as_json:
        print_json(report.to_json(replayed))
    else:
        stdout().print(report.terminal(replayed))
    if replayed.end.get("comparison", {}).get("different"):
        raise typer.Exit(WorkloadFailed.exit_code)


async def _play(host: Any, argv: list[str]) -> Replayed:
    """The agent's lines as they come, with progress on standard error. Cancelled, it ends the agent, too."""
    from headrace.agent import Agent
    from headrace.report.replay import Replayed

    process = await host.spawn([(await Agent.install(host)).path, "replay", *argv])
    replayed = Replayed()
    try:
        with stderr().status("reading ...") as status:
            async for line in process.lines():
                replayed.add(json.loads(line))
                status.update(replayed.progress())
        code = await process.wait(10)
    except BaseException:
        await process.signal("TERM")
        raise
    if code or not replayed.end:
        message = (await process.error_text()).strip().removeprefix("headrace-agent: ")
        kinds = {Refused.exit_code: Refused, _AGENT_BAD_INPUT: PlanError}
        error = kinds.get(code, CommandFailed)
        raise error(message.removeprefix("refused: ").removeprefix("bad input: "), place=host.name)
    return replayed
