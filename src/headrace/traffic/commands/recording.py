"""The commands ``record`` and ``recording``: record production traffic and work with the files."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.base.counted import counted
from headrace.base.errors import HeadraceError, Refused, StoreError
from headrace.base.model import ServerLogin
from headrace.cli.groups import WithCommands
from headrace.cli.options import NO_LOGIN, CapturePorts, grouped, size_option
from headrace.cli.shell import Json, TargetOption, app, on_target, print_json, stderr, stdout, writable
from headrace.traffic.commands.histograms import histograms

#: How long ``--estimate`` records into its temporary file.
ESTIMATE_S = 5
#: Of which pseudonyms can keep their order.
ORDERED = ("dates", "numbers")
Literals = Annotated[
    bool,
    typer.Option(
        "--with-literals", help="Keep literal values, which a replay needs. Passwords are always removed."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing FILE.")]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The new recording.")]
Recording = Annotated[Path, typer.Argument(metavar="FILE", show_default=False)]


record_app = typer.Typer(cls=WithCommands, rich_markup_mode=None)
app.add_typer(record_app, name="record")
record_app.command(
    "histograms",
    epilog="Example: headrace record histograms -t root@db1 --append db1.histograms --every 5m --duration 2d",
)(histograms)


@record_app.callback(
    invoke_without_command=True,
    epilog="Example: headrace record -t root@db1 /var/log/mysql/slow.log --follow --duration 10m -o db1.rec",
)
@grouped
def record(
    output: Output,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            help="A capture, slow log, general log or recording on the target.",
            show_default=False,
        ),
    ] = None,
    target: TargetOption = "local",
    interface: Annotated[
        str,
        typer.Option(metavar="NAME", help="Capture packets on this interface of the target; any: all."),
    ] = "",
    follow: Annotated[bool, typer.Option(help="Follow the file, through rotation, until stopped.")] = False,
    duration: Annotated[str, typer.Option(metavar="TIME", help="Stop after this time: 10m.")] = "",
    max_size: Annotated[
        int, size_option("--max-size", text="Stop at this size, such as 500M.", least=1 << 20)
    ] = 0,
    port: CapturePorts = None,
    with_literals: Literals = False,
    force: Force = False,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help=f"Record {ESTIMATE_S} s, discard it, and report the cost per hour."),
    ] = False,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Record on a target and copy the file here. Ctrl-C stops the recorder and copies what it has.

    With --interface and --mysql-*, the server is asked at the beginning where its binary log stands, whose the
    open connections are, and what they have prepared.
    """
    if login != NO_LOGIN and not interface:
        raise typer.BadParameter("--mysql-* asks the server how it stands now: that needs --interface")
    if bool(sources) == bool(interface):
        raise typer.BadParameter("name a SOURCE on the target, or an --interface")
    options = [word for each in port or [] for word in ("--port", str(each))]
    options += ["--interface", interface, *login.argv] if interface else []
    options += ["--follow"] if follow else []
    options += ["--with-literals"] if with_literals else []
    if not estimate:
        writable(output)
    if output.exists() and not force and not estimate:
        raise Refused("exists already", place=str(output), hint="choose another name, or use --force")
    if estimate:
        options += ["--duration", f"{ESTIMATE_S}s"]
    else:
        options += ["--duration", duration] if duration else []
        options += ["--size", str(max_size >> 20)] if max_size else []

    summary, error = _record([*options, "--", *(sources or [])], target, None if estimate else output)
    if estimate:
        summary = _an_hour(summary)
    if as_json:
        print_json(summary)
    else:
        if not estimate:
            _warn(lacks(summary["totals"]["coverage"], summary["totals"]["events"]))
        stdout().print(_table(_rows_of_estimate(summary) if estimate else _rows_of_record(summary, output)))
    if error:
        raise error


def _record(
    arguments: list[str], target: str, output: Path | None
) -> tuple[dict[str, Any], HeadraceError | None]:
    """The recorder's summary, and why it ended early."""
    from headrace.traffic import traffic

    def work(host: Any) -> Any:
        return traffic.record(host, arguments, output, listen)

    with stderr().status("recording ...") if stderr().is_terminal else contextlib.nullcontext() as status:

        def listen(line: Mapping[str, Any]) -> None:
            if status:
                rate, mib = line["events_per_s"], line["bytes"] / (1 << 20)
                status.update(
                    f"{counted(line['events'], 'event')}, {rate:,.0f}/s, {mib:,.1f} MiB; Ctrl-C stops"
                )

        found: tuple[dict[str, Any], HeadraceError | None] = on_target(target, work)
    return found


def _an_hour(summary: dict[str, Any]) -> dict[str, Any]:
    seconds = max(float(summary["duration_s"]), 0.001)
    events, size = summary["totals"]["events"], summary["bytes"]
    return {
        "seconds": seconds,
        "events_per_s": round(events / seconds, 1),
        "bytes_per_event": summary["bytes_per_event"],
        "mib_per_hour": round(size / seconds * 3600 / (1 << 20), 1),
        "cpu_percent": round(100 * float(summary["cpu_s"]) / seconds, 2),
    }


def _rows_of_estimate(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("recorded for", f"{found['seconds']:.1f} s"),
        ("events", f"{found['events_per_s']:,}/s"),
        ("per hour", f"{found['mib_per_hour']:,} MiB"),
        ("CPU", f"{found['cpu_percent']}% of one core"),
    ]


def _rows_of_record(found: dict[str, Any], output: Path) -> list[tuple[str, str]]:
    totals, coverage = found["totals"], found["totals"]["coverage"]
    rows = [
        ("recording", str(output)),
        ("events", f"{totals['events']:,} in {found['duration_s']} s"),
        ("size", _size(found)),
        ("literals", "kept" if found["with_literals"] else "not kept: a replay needs --with-literals"),
        ("passwords removed", f"{totals['redacted_events']:,}"),
        *_rows_of_position(found.get("position")),
    ]
    return rows + _missed(coverage)


def _rows_of_position(position: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    from headrace.traffic.report.words import position_in_words

    return [("binary log at its beginning", position_in_words(position))] if position else []


def _size(found: dict[str, Any]) -> str:
    # Unknown for a recording without events.
    an_event = found["bytes_per_event"]
    return f"{found['bytes']:,} bytes" + (f", {an_event} per event" if an_event is not None else "")


#: What a source had instead of events; each has its own row.
EXPLAIN_NOTHING = (
    "tls_sessions",
    "foreign_sessions",
    "one_sided_sessions",
    "tunnels",
    "damaged",
    "throttled_events",
)
NOTHING = (
    "Nothing was recorded. If this was a capture: no interface sees clients of the server's Unix socket, and "
    "a server may listen on another port than 3306 (--port). If it was a slow log: slow_query_log may be OFF, or "
    "no statement took long_query_time."
)


def lacks(coverage: Mapping[str, Any], events: int) -> list[str]:
    """What a digest and a replay of this recording will lack, each with what gives it. It is said first."""
    said = []

    def of_all(number: int) -> str:
        return f"{number:,} of {counted(events, 'event')} ({number / max(events, 1):.0%})"

    if not events and not any(coverage.get(name) for name in EXPLAIN_NOTHING):
        said.append(NOTHING)
    if unknown := int(coverage.get("unknown_statements") or 0):
        said.append(
            f"{of_all(unknown)} execute statements that were prepared before the recording began. Their text is "
            "not known: a digest cannot name them, and a replay leaves them out. Record again with --interface "
            "and --mysql-*: a server with performance_schema tells what its connections have prepared. Or let the "
            "application's pool open new connections meanwhile, or record the slow log with long_query_time = 0, "
            "which has them as text with their values."
        )
    if unbound := int(coverage.get("unbound_executions") or 0):
        said.append(
            f"{of_all(unbound)} execute statements that were prepared before the recording began, and their "
            "drivers sent the types of the values only then. A digest has them; a replay leaves them out. Let the "
            "application's pool open new connections while you record."
        )
    if midstream := int(coverage.get("midstream_sessions") or 0):
        sessions = f"{counted(midstream, 'session')} {'was' if midstream == 1 else 'were'}"
        said.append(
            f"{sessions} open before the recording began, so user and database are not known: give a replay "
            "--mysql-database, or record again with --interface and --mysql-*: the server knows them."
        )
    return said


def _warn(said: list[str]) -> None:
    for line in said:
        stdout().print(line, style="bold yellow", highlight=False, markup=False)


def _missed(coverage: dict[str, Any]) -> list[tuple[str, str]]:
    """What the source could not see, and what it found around its sessions; empty if it saw nothing but these."""
    from headrace.traffic.report.words import listed

    names = {
        "damaged": "damaged places",
        "lost_events": "events lost there, at least",
        "sampled_events": "events of a log with log_slow_rate_limit",
        "throttled_events": "statements that the server left out of its log",
        "unread_times": "times that could not be read",
        "unread_accounts": "accounts that could not be read",
        "unknown_databases": "events of an unknown database",
        "repeated_events": "events that another file has, too",
        "tls_sessions": "sessions with TLS",
        "midstream_sessions": "sessions already open at the start",
        "joined_sessions": "sessions already open, named by the server",
        "one_sided_sessions": "sessions of which one direction was captured",
        "dropped_packets": "packets dropped",
        "cut_packets": "packets truncated",
        "gaps": "gaps in streams",
        "unknown_statements": "executions of unknown statements",
        "unbound_executions": "executions without their values",
        "unanswered": "requests without a response",
    }
    missed = [(name, f"{coverage[key]:,}") for key, name in names.items() if coverage.get(key)]
    named = {
        "proxied_sessions": "sessions announced by a balancer",
        "foreign_sessions": "sessions of other protocols",
        "tunnels": "packets in tunnels",
        "other_kinds": "packets not of the servers",
    }
    for key, name in named.items():
        if counts := coverage.get(key):
            missed.append((name, listed(dict(sorted(counts.items(), key=lambda each: (-each[1], each[0]))))))
    return missed


def _table(rows: list[tuple[str, str]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from headrace.show.text import clean

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(clean(value)))
    return table


# -- recording ... ----------------------------------------------------------------------------------------------

recordings = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Inspect, cut, merge, filter and anonymise recordings."
)
app.add_typer(recordings, name="recording")


def _agent(arguments: list[str], *, even_if_damaged: bool = False) -> dict[str, Any]:
    from headrace.traffic import traffic

    def work(host: Any) -> Any:
        return traffic.recording(host, arguments, even_if_damaged=even_if_damaged)

    found: dict[str, Any] = on_target("local", work)
    return found


def _made(arguments: list[str], output: Path, force: bool, as_json: bool) -> None:
    command, *rest = arguments
    found = _agent([command, "--output", str(output), *(["--force"] if force else []), *rest])
    if as_json:
        print_json(found)
        return
    rows = [
        ("recording", str(output)),
        ("events", f"{found['events']:,} of {found['events_read']:,}"),
        ("to restore sessions", f"{found['state_events']:,}"),
        ("size", f"{found['bytes']:,} bytes"),
    ]
    rows += [("events not kept to restore sessions", f"{found['state_events_forgotten']:,}")] * bool(
        found["state_events_forgotten"]
    )
    rows += [("damaged places", f"{found['damaged']:,}")] * bool(found["damaged"])
    stdout().print(_table(rows))
    if found["events_read"] and not found["events"]:
        stderr().print(f"no event matches: all {found['events_read']:,} were left out")


@recordings.command(short_help="Show what a recording contains.")
def info(
    file: Recording,
    quick: Annotated[bool, typer.Option("--quick", help="Read only the headers and the index.")] = False,
    as_json: Json = False,
) -> None:
    """Show events, sessions, commands, users, hosts, databases, and what the sources could not see."""
    found = _agent(["info", *(["--quick"] if quick else []), "--", str(file)])
    if as_json:
        print_json(found)
    else:
        _warn(lacks(found["coverage"], found["events"]))
        stdout().print(_table(_rows_of_info(found)))


def _rows_of_info(found: dict[str, Any]) -> list[tuple[str, str]]:
    from headrace.traffic.report.words import clock

    first, last = found["first_start_ns"], found["last_start_ns"]
    segments, blocks = found["segments"], found["blocks"]
    literals = {True: "kept", False: "not kept"}[bool(segments and segments[0]["with_literals"])]
    anonymised = ", pseudonyms" if segments and segments[0]["is_anonymised"] else ""
    rows = [
        ("recording", found["file"]),
        ("recorded on", ", ".join(sorted({each["host"] for each in segments}))),
        ("sources", "; ".join(source for each in segments for source in each["sources"])),
        (
            "time",
            "-"
            if first is None
            else f"{clock(first)} UTC to {clock(last)} UTC, {(last - first) / 1e9:,.1f} s",
        ),
        *_rows_of_position(segments[0].get("position") if segments else None),
        ("events", f"{found['events']:,}"),
        ("literals", literals + anonymised),
        ("size", _size(found)),
        ("blocks", f"{blocks['events']:,}, index {'present' if blocks['has_index'] else 'missing'}"),
    ]
    if "sessions" in found:
        more = " or more" if found["has_more_sessions"] else ""
        rows.append(("sessions", f"{found['sessions']:,}{more}"))
        rows.append(("errors, unanswered", f"{found['errors']:,}, {found['unanswered']:,}"))
        rows.append(("commands", _counts(found["commands"].items())))
        for kind in ("users", "hosts", "databases"):
            names = [(each["name"] or "(none)", each["events"]) for each in found[kind]["names"]]
            rows.append((kind, _counts(names)))
    unfinished = sum(each["totals"] is None for each in segments)
    rows += [("killed recorders", str(unfinished))] * bool(unfinished)
    return rows + _missed(found["coverage"])


def _counts(items: Any, most: int = 8) -> str:
    ranked = sorted(items, key=lambda item: -item[1])
    text = ", ".join(f"{name} {count:,}" for name, count in ranked[:most])
    return f"{text}, and {len(ranked) - most} more" if len(ranked) > most else text or "-"


@recordings.command(short_help="Check that a recording is readable throughout.")
def verify(file: Recording, as_json: Json = False) -> None:
    """Read every byte; exits with 9 if anything is damaged or missing."""
    found = _agent(["verify", "--", str(file)], even_if_damaged=True)
    if as_json:
        print_json(found)
    else:
        places = [f"at byte {each['offset']:,}: {each['reason']}" for each in found["damage"]["places"]]
        rows = [("events", f"{found['events']:,}"), ("events lost", f"{found['events_lost']:,}")]
        if found["unfinished_segments"]:
            rows.append(("end", "missing: how many events came after these is not known"))
        stdout().print(_table([*rows, ("damage", "\n".join(places) or "none")]))
    if not found["is_whole"]:
        raise StoreError("is damaged", place=str(file), hint="`headrace recording cut` keeps the intact part")


@recordings.command(short_help="Cut out a period of time.")
def cut(
    file: Recording,
    output: Output,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Start: UTC, or +30s after the first event.")
    ] = "+0s",
    until: Annotated[str, typer.Option(metavar="TIME", help="End, exclusive; same format as --since.")] = "",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Keep the events that start within a period, and what their sessions need for replay."""
    bounds = ["--since", since, *(["--until", until] if until else [])]
    _made(["cut", *bounds, "--", str(file)], output, force, as_json)


@recordings.command("filter", short_help="Keep events that match all conditions.")
def filter_recording(
    file: Recording,
    conditions: Annotated[
        list[str], typer.Argument(metavar="CONDITION...", help="user=app, response>=100ms, read_only=yes ...")
    ],
    output: Output,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Keep the events that match all conditions, and what their sessions need for replay."""
    _made(["filter", "--", str(file), *conditions], output, force, as_json)


@recordings.command(short_help="Merge several recordings into one.")
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", show_default=False)],
    output: Output,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Merge recordings of several hosts, in order of start time; sessions stay separate."""
    _made(["merge", "--", *map(str, files)], output, force, as_json)


@recordings.command(short_help="Replace values, users and hosts by pseudonyms.")
def anonymise(
    file: Recording,
    output: Output,
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File of 32 bytes; the same key gives the same pseudonyms [a random key]."
        ),
    ] = None,
    keep_order: Annotated[
        str,
        typer.Option(
            "--keep-order",
            metavar="KINDS",
            help="dates, numbers or dates,numbers: their pseudonyms keep the order, so ranges select what they "
            "did. Shows more of the values.",
        ),
    ] = "",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Replace values, users and hosts by pseudonyms of the same type and length; table names are kept."""
    kinds = [kind.strip() for kind in keep_order.split(",") if kind.strip()]
    unknown = [kind for kind in kinds if kind not in ORDERED]
    if unknown:
        raise typer.BadParameter(
            f"--keep-order {unknown[0]}: write {', '.join(ORDERED)} or both with a comma"
        )
    options = ["--key-file", str(key_file)] if key_file else []
    options += ["--keep-order", ",".join(kinds)] if kinds else []
    _made(["anonymise", *options, "--", str(file)], output, force, as_json)
