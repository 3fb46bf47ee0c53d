"""The command ``verify``: did a change hold in production?"""

from __future__ import annotations

import fnmatch
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.errors import NothingMeasured, PlanError, Refused
from headrace.cli.options import DAY_S, HOUR_S, Alpha, duration, grouped
from headrace.cli.shell import (
    Json,
    PageFile,
    TargetOption,
    TellOption,
    app,
    on_target,
    opened_places,
    show,
    tell_and_exit,
)

if TYPE_CHECKING:
    from headrace.change.production import Gets, Observed, Series
    from headrace.change.production.prometheus import Question as Asked
    from headrace.change.verify import Question
    from headrace.rollout.changed import Stretch

#: A server is asked about this much time on each side.
WINDOW_S = 24 * 3600.0
SETTLE_S = 300.0


@dataclass(frozen=True)
class ServerOptions:
    """What to ask a Prometheus-compatible server."""

    query: Annotated[
        str,
        typer.Option(
            metavar="SELECTOR", help="A histogram's ..._bucket series, or a counter of calls; without rate()."
        ),
    ] = ""
    host_label: Annotated[str, typer.Option(metavar="LABEL", help="Label that names the host.")] = "instance"
    class_label: Annotated[str, typer.Option(metavar="LABEL", help="Label that names the query class.")] = ""
    unit: Annotated[str, typer.Option(help="Unit of the bounds le: s, ms, us or ns.")] = "s"
    step_s: Annotated[float, duration("--step", text="Time between points.", default="1m")] = 60.0
    timeout_s: Annotated[
        float, duration("--timeout", text="Time to wait for an answer.", most_s=HOUR_S, default="30s")
    ] = 30.0


@dataclass(frozen=True)
class ChangeOptions:
    """Which change, and when it was made."""

    at: Annotated[str, typer.Option(metavar="TIME", help="When the change was made; UTC without a zone.")] = (
        ""
    )
    change: Annotated[
        str,
        typer.Option(
            metavar="ID", help="A change of `headrace apply` on --target, or last: its time and host."
        ),
    ] = ""
    target: TargetOption = "local"


@dataclass(frozen=True)
class PartOptions:
    """What of the sources counts."""

    hosts: Annotated[
        str,
        typer.Option(
            metavar="HOSTS",
            help="Changed hosts: db[1-8], db* [all that are not controls].",
            show_default=False,
        ),
    ] = ""
    control: Annotated[
        str, typer.Option(metavar="HOSTS", help="Hosts without the change, in the same sources.")
    ] = ""
    weeks: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=52,
            help="Compare with the same hours of N earlier weeks, such as 4.",
            show_default=False,
        ),
    ] = 0
    classes: Annotated[
        list[str],
        typer.Option("--class", metavar="PATTERN", help="Only query classes like this; repeatable."),
    ] = field(default_factory=list)
    responses: Annotated[
        list[str],
        typer.Option(
            "--response",
            metavar="NAME",
            help="Only throughput, p50, p90, p99, p99.9 or, of memcached, miss-rate; repeatable. Those that are "
            "compared share alpha: choose before you look.",
        ),
    ] = field(default_factory=list)
    window_s: Annotated[
        float | None,
        duration(
            "--window",
            text="Time to compare on each side [all; 24h for a Prometheus server].",
            most_s=90 * DAY_S,
        ),
    ] = None
    settle_s: Annotated[
        float | None,
        duration("--settle", text="Time to ignore after --at, until caches are warm [5m].", least_s=0),
    ] = None


@app.command(
    epilog="Example: headrace verify --before mon.parquet --after tue.parquet; "
    "headrace verify http://prometheus:9090 --query app_db_seconds_bucket --at 2026-03-01T10:00Z "
    "--control 'db[5-8]'",
)
@grouped
def verify(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="CSV, digests, histories of serve or digest, or the URL of a Prometheus-compatible server.",
            metavar="[SOURCE]...",
        ),
    ] = None,
    before: Annotated[
        list[str] | None, typer.Option("--before", metavar="SOURCE", help="Source from before; repeatable.")
    ] = None,
    after: Annotated[
        list[str] | None, typer.Option("--after", metavar="SOURCE", help="Source from after; repeatable.")
    ] = None,
    which: ChangeOptions = ChangeOptions(),
    parts: PartOptions = PartOptions(),
    server: ServerOptions = ServerOptions(),
    alpha: Alpha = 0.05,
    margin: Annotated[
        float, typer.Option("--margin", min=0.0, max=1.0, help="Smaller changes count as equivalent.")
    ] = 0.03,
    page: PageFile = None,
    to: TellOption = None,
    as_json: Json = False,
) -> None:
    """Compare latencies and throughput before and after a change in production.

    Exits with 13 if it is worse, and with 15 if the data allow no verdict.
    """
    from headrace.change import verify as analysis
    from headrace.change.production import weeks
    from headrace.change.production.gather import gather
    from headrace.change.report.verify import page_of

    places = opened_places(to, as_json)
    at_s, undo = _time(which.at), ""
    if which.change:
        if at_s is not None:
            raise typer.BadParameter("give --at or --change")
        at_s, host, undo = _of_change(which)
        parts = replace(parts, hosts=parts.hosts or host)
    window_s = parts.window_s
    if parts.weeks:
        window_s = _of_weeks(parts, window_s)
    settle_s = parts.settle_s
    if settle_s is None:
        settle_s = SETTLE_S if at_s is not None else 0.0
    given = (sources or [], before or [], after or [])
    if not any(given):
        raise typer.BadParameter("name a SOURCE, or --before and --after")
    ask = (
        _asked(server, at_s, window_s or WINDOW_S, parts.weeks) if server.query and at_s is not None else None
    )
    observed, at_s = gather(*given, at_s, ask, weeks=parts.weeks > 0)
    question = _question(observed, parts, at_s, settle_s, window_s, alpha, margin)
    question, changed = _known_changes(question)
    series = _of_classes(observed, parts.classes)
    gets = _gets(observed, parts)
    if parts.weeks:
        series = [*series, *weeks.earlier(series, question.treated, parts.weeks, at_s)]
        gets = [*gets, *weeks.earlier(gets, question.treated, parts.weeks, at_s)]
    found = analysis.verify(series, question, gets)
    content = page_of(found, [*changed, *observed.notes], alpha=alpha, margin=margin, undo=undo)
    show(content, as_json, page)
    assert content.notice is not None
    tell_and_exit(content.notice, places)


def _of_change(which: ChangeOptions) -> tuple[float, str, str]:
    """When it was made, the name of its host, and how to undo it."""
    from headrace.change import apply as rollout
    from headrace.host.agent import Agent

    async def work(host: Any) -> tuple[rollout.Made, str]:
        agent = await Agent.install(host)
        return await rollout.made(agent, which.change), str((await agent.facts()).data["hostname"])

    found, host = on_target(which.target, work)
    where = "" if which.target == "local" else f" --target {shlex.quote(which.target)}"
    return found.at_s, host, f"headrace rollback --id {found.id}{where}\n"


def _time(text: str) -> float | None:
    from headrace.change.production.table import seconds_of_time

    if not text:
        return None
    try:
        return seconds_of_time(text)
    except ValueError as error:
        raise typer.BadParameter(f"--at {text!r}: write 2026-03-01T10:00Z or Unix seconds") from error


def _of_weeks(parts: PartOptions, window_s: float | None) -> float:
    """The window: at most a week, so that no week overlaps the next."""
    from headrace.change.production.weeks import WEEK_S

    if parts.control:
        raise typer.BadParameter("give --control or --weeks")
    window_s = window_s or WINDOW_S
    if window_s > WEEK_S:
        raise typer.BadParameter("with --weeks, --window is at most 7d")
    return window_s


def _asked(server: ServerOptions, at_s: float, window_s: float, weeks: int) -> Asked:
    from headrace.change.production.prometheus import UNITS_NS, Question
    from headrace.change.production.weeks import WEEK_S

    if server.unit not in UNITS_NS:
        raise typer.BadParameter(f"--unit {server.unit}: one of {', '.join(UNITS_NS)}")
    return Question(
        "", server.query, at_s - window_s - weeks * WEEK_S, min(at_s + window_s, time.time()),
        server.step_s, server.host_label, server.class_label, server.unit, server.timeout_s,
    )  # fmt: skip


def _question(
    observed: Observed,
    parts: PartOptions,
    at_s: float,
    settle_s: float,
    window_s: float | None,
    alpha: float,
    margin: float,
) -> Question:
    from headrace.change.panel import RESPONSES, Window
    from headrace.change.production import weeks
    from headrace.change.verify import Question

    if unknown := set(parts.responses) - set(RESPONSES):
        raise typer.BadParameter(f"--response {min(unknown)}: one of {', '.join(RESPONSES)}")
    responses = tuple(each for each in RESPONSES if not parts.responses or each in parts.responses)
    control = _named(parts.control, observed.hosts, "--control")
    hosts = _named(parts.hosts, observed.hosts, "--hosts") or [h for h in observed.hosts if h not in control]
    if both := set(hosts) & set(control):
        raise PlanError(f"both changed and control: {', '.join(sorted(both))}")
    if not hosts:
        raise NothingMeasured("the sources have no changed host")
    times = [(float(s.start_s.min()), float(s.end_s.max())) for s in observed.series if len(s.start_s)]
    if not times:
        raise NothingMeasured("the sources have no data")
    since, until = min(start for start, _ in times), max(end for _, end in times)
    from_s = at_s + settle_s
    ends = [float(s.end_s[s.end_s <= at_s + 1].max(initial=-1)) for s in observed.series]
    to_s = max((end for end in ends if end >= 0), default=at_s)
    if window_s is not None:
        since, until = max(since, to_s - window_s), min(until, from_s + window_s)
    window = Window(at_s, to_s, from_s, min(since, to_s), max(until, from_s))
    if parts.weeks:
        control = list(weeks.names(hosts, parts.weeks))
    return Question(tuple(hosts), tuple(control), window, alpha, margin, parts.weeks, responses)


def _known_changes(question: Question) -> tuple[Question, list[str]]:
    """The question without controls that a rollout of this controller changed in its window; what was left out,
    and which of the changed hosts were changed at other times, too. Raises Refused if no control is left.
    """
    from headrace.change.production.weeks import WEEK_S
    from headrace.rollout import book, changed

    window = question.window
    known = changed.stretches(book.every())

    def of(host: str, *, is_treated: bool) -> list[changed.Stretch]:
        # Earlier weeks of a changed host are its controls.
        shifts_s = [week * WEEK_S for week in range(question.weeks + 1)]
        own = [
            each
            for each in known
            if each.is_of(host)
            and any(each.is_part_of(window.since_s - by, window.until_s - by) for by in shifts_s)
        ]
        # The change itself is made between the two sides, and stays.
        return [
            each
            for each in own
            if not (
                is_treated
                and window.to_s - 1 <= each.start_s <= window.from_s
                and each.end_s >= window.until_s
            )
        ]

    found = {host: of(host, is_treated=False) for host in question.control}
    notes = [f"{host} is left out of the controls: {_of_rollouts(own)}" for host, own in found.items() if own]
    control = tuple(host for host, own in found.items() if not own)
    if question.control and not control:
        raise Refused(
            "no control is left: rollouts changed all of them in the window",
            place=", ".join(question.control[:20]),
            hint="name others with --control, or a shorter --window",
        )
    for host in question.treated:
        if own := of(host, is_treated=True):
            notes.append(f"{host} differs in more than this change: {_of_rollouts(own)}")
    return replace(question, control=control), notes


def _of_rollouts(found: Sequence[Stretch]) -> str:
    first = {each.rollout: each for each in reversed(found)}
    said = (
        f"rollout {each.rollout} changed it at {datetime.fromtimestamp(each.start_s, UTC):%Y-%m-%d %H:%M:%S} UTC "
        f"({each.settings})"
        for each in first.values()
    )
    return "; ".join(said)


def _named(text: str, known: Sequence[str], option: str) -> list[str]:
    """Hosts of the sources that a range or a pattern names; a port after the name may be left out."""
    from headrace.host.ranges import expand

    found: list[str] = []
    for pattern in expand(text):
        own = [h for h in known if fnmatch.fnmatchcase(h, pattern) or h.rpartition(":")[0] == pattern]
        if not own:
            raise PlanError(
                f"no host matches {pattern}", place=option, hint=f"the sources have {', '.join(known[:20])}"
            )
        found += own
    return list(dict.fromkeys(found))


def _gets(observed: Observed, parts: PartOptions) -> Sequence[Gets]:
    """A cache counts its hits over all keys, so that a class has none."""
    from headrace.change.panel import MISS_RATE

    if MISS_RATE in parts.responses and parts.classes:
        raise typer.BadParameter(f"--response {MISS_RATE} is of all gets: leave out --class")
    if MISS_RATE in parts.responses and not observed.gets:
        raise NothingMeasured(
            "the sources do not say how many gets were misses", place=f"--response {MISS_RATE}",
            hint="the history of headrace serve does, of a host with memcached",
        )  # fmt: skip
    return () if parts.classes else observed.gets


def _of_classes(observed: Observed, patterns: Sequence[str]) -> Sequence[Series]:
    if not patterns:
        return observed.series
    kept = [
        each
        for each in observed.series
        if any(fnmatch.fnmatchcase(each.query_class, pattern) for pattern in patterns)
    ]
    if not kept:
        raise PlanError(f"no query class matches {', '.join(patterns)}", place="--class")
    return kept
