"""The command ``replay``: sends recorded traffic to a server and compares the answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace as changed
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.errors import CommandFailed, NotAsAsked, PlanError, TargetError, WorkloadFailed
from headrace.base.model import ServerLogin
from headrace.cli.options import NO_LOGIN, grouped
from headrace.cli.shell import (
    Json,
    TargetOption,
    app,
    on_target,
    print_json,
    stderr,
    stdout,
)

if TYPE_CHECKING:
    from headrace.traffic.replayed import Replayed

Recording = Annotated[
    str, typer.Argument(metavar="RECORDING", help="A recording with literals, on the target.")
]
SpeedOption = Annotated[
    str, typer.Option(metavar="FACTOR", help="Speed factor, or max: as fast as the server answers.")
]
SkipIdleOption = Annotated[str, typer.Option(metavar="TIME", help="Shorten idle periods to this: 5s.")]
SessionsOption = Annotated[
    str, typer.Option(metavar="xN", help="Replay this many concurrent copies of each session: x4.")
]
ScaleWritesOption = Annotated[bool, typer.Option("--scale-writes", help="Let the copies write.")]
ReadOnlyOption = Annotated[bool, typer.Option("--read-only", help="Replay only statements that only read.")]
CommitOrderOption = Annotated[
    bool,
    typer.Option(
        "--commit-order", help="Each write waits for the writes that had finished before it started."
    ),
]
SinceOption = Annotated[
    str, typer.Option(metavar="TIME", help="Start at this point: +30s after the beginning.")
]
UntilOption = Annotated[str, typer.Option(metavar="TIME", help="End there.")]
DurationOption = Annotated[str, typer.Option(metavar="TIME", help="Stop after this time: 60s.")]
CheckOption = Annotated[bool, typer.Option("--check", help="Compare the answers with the recorded ones.")]
CompareWithOption = Annotated[
    str,
    typer.Option(
        metavar="SERVER",
        help="Also replay on this server and compare the two: its socket, or host[:port]; same account.",
    ),
]
MemoryOption = Annotated[str, typer.Option(metavar="SIZE", help="Memory limit [200MB].")]
MaxLagOption = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="The replay is invalid if 1% of statements are sent later than this: 10ms."
    ),
]
DatabaseMapOption = Annotated[
    list[str] | None, typer.Option(metavar="A=B", help="Replay in database B what was sent to A; repeatable.")
]
DatabaseOption = Annotated[
    str,
    typer.Option(metavar="NAME", help="Database of sessions whose own is not in the recording."),
]
UserMapOption = Annotated[
    str, typer.Option(metavar="FILE", help="File on the target, mode 0600: accounts by recorded user.")
]
FoundRowsOption = Annotated[
    bool, typer.Option("--found-rows", help="The recorded clients used found_rows, as JDBC does.")
]


@app.command(
    epilog="Example: headrace replay shop.rec --mysql-socket /run/copy.sock --check",
)
@grouped
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
    compare_with: CompareWithOption = "",
    memory: MemoryOption = "",
    max_lag: MaxLagOption = "",
    database_map: DatabaseMapOption = None,
    mysql_database: DatabaseOption = "",
    user_map: UserMapOption = "",
    found_rows: FoundRowsOption = False,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Send a recording to a server again, with the same sessions at the same times, and report the result.

    Exits with 6 if the server refuses a login or a database, with 12 if --check or --compare-with finds different
    answers, and with 14 if the replay is invalid: lost connections, or statements sent too late.
    """
    from headrace.traffic.report import replay as report

    if check and compare_with:
        raise PlanError(
            "--check and --compare-with: compare with either the recording or another server",
            hint="run two replays, one with each",
        )
    other = _other_server(login, compare_with) if compare_with else None

    values = [
        ("--speed", speed),
        ("--skip-idle", skip_idle),
        ("--sessions", sessions),
        ("--since", since),
        ("--until", until),
        ("--duration", duration),
        ("--memory", memory),
        ("--max-lag", max_lag),
        ("--mysql-database", mysql_database),
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
    argv = [recording, *(word for pair in values if pair[1] for word in pair)]
    argv += [flag for flag, is_set in flags.items() if is_set]

    first, replayed = _play(target, argv, login, other)
    if as_json:
        found = report.to_json(replayed)
        print_json({"first": report.to_json(first), "second": found} if other else found)
    else:
        # Refused by the first server, it never came to the second.
        is_one = not other or first.end.get("refused")
        stdout().print(report.terminal(first) if is_one else report.both(first, replayed))
    _judge(first, replayed, as_json)


def _judge(first: Replayed, replayed: Replayed, as_json: bool) -> None:
    """The exit code; beside JSON, the server's words for people."""
    from headrace.traffic.report import replay as report

    for each in (first, replayed):
        if each.end.get("refused"):
            if as_json:
                stderr().print(*report.first_lines(each))
            raise typer.Exit(TargetError.exit_code)
    if any(each.end.get("invalid") for each in (first, replayed)):
        raise typer.Exit(NotAsAsked.exit_code)
    if replayed.end.get("comparison", {}).get("different"):
        raise typer.Exit(WorkloadFailed.exit_code)


def _other_server(login: ServerLogin, address: str) -> ServerLogin:
    """The same account on another server."""
    if address.startswith("/"):
        return changed(login, socket=address, host="", port=None)
    # An IPv6 address needs brackets before a port.
    match = re.fullmatch(r"\[(?P<v6>[^]]+)\](:(?P<v6port>\d+))?|(?P<host>[^:]+)(:(?P<port>\d+))?", address)
    if not match:
        raise PlanError(f"--compare-with {address!r}: must be the path of a socket, or host[:port]")
    port = match["port"] or match["v6port"]
    return changed(login, socket="", host=match["host"] or match["v6"], port=int(port) if port else None)


def _style(needs: Mapping[str, Any]) -> str:
    return "" if needs["is_enough"] else "yellow"


def _play(
    target: str, argv: list[str], login: ServerLogin, other: ServerLogin | None
) -> tuple[Replayed, Replayed]:
    """The first and the last replay; the same one without another server."""
    from headrace.show.text import clean
    from headrace.traffic import traffic
    from headrace.traffic.replayed import Replayed
    from headrace.traffic.report.replay import progress

    first = Replayed()
    last = Replayed() if other else first

    def shown(replayed: Replayed) -> Callable[[Mapping[str, Any]], None]:
        def listen(line: Mapping[str, Any]) -> None:
            replayed.add(line)
            if line["kind"] == "start":
                if replayed.needs:
                    sentence = clean(replayed.needs["sentence"])
                    stderr().print(sentence, style=_style(replayed.needs), markup=False)
                for doubt in replayed.doubts:
                    stderr().print(clean(doubt), style="yellow", markup=False)
            status.update(progress(replayed))

        return listen

    def work(host: Any) -> Any:
        if other is None:
            return traffic.play(host, [*argv, *login.argv], shown(first))
        return traffic.play_on_both(host, argv, (login, other), (shown(first), shown(last)))

    with stderr().status("reading ...") as status:
        try:
            on_target(target, work)
        except CommandFailed:
            # Its lines have the server's words, and what was sent until then.
            if not (first.end.get("refused") or last.end.get("refused")):
                raise
    return first, last
