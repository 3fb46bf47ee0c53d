"""The command ``digest``: what traffic consists of, from logs, captures and recordings, here or on hosts."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.shell import (
    NO_LOGIN,
    Json,
    app,
    on_target,
    print_json,
    run_until_signal,
    stderr,
    stdout,
    takes_login,
)
from headrace.errors import CommandFailed, DiskFull, HeadraceError, PlanError, Refused, StoreError
from headrace.model import ServerLogin

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.digests.classes import Digest
    from headrace.report.digest import View

#: How many hosts digest at once: each takes a connection here and its own CPU there.
MOST_AT_ONCE = 32
_UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE]...",
        help="Slow or general logs, pcap, recordings (on the target), - for standard input; or digests.",
        show_default=False,
    ),
]
Targets = Annotated[
    list[str], typer.Option("--target", "-t", help="Where the sources are: local, user@host[:port]; several.")
]
ModeOption = Annotated[
    str, typer.Option("--mode", help="Whose fingerprints: strict, or pt (pt-query-digest's and its ids).")
]
GroupOption = Annotated[
    str,
    typer.Option(
        "--group", help="By class, user, host, database, table, session, command; several with a comma."
    ),
]
SinceOption = Annotated[
    str, typer.Option("--since", metavar="TIME", help="Only calls that began then or later.")
]
UntilOption = Annotated[
    str, typer.Option("--until", metavar="TIME", help="Only calls that began before then.")
]
FilterOption = Annotated[
    list[str] | None,
    typer.Option("--filter", metavar="CONDITION", help="user=app, response>=100ms, error=any ..."),
]
PortOption = Annotated[
    list[int] | None,
    typer.Option("--port", help="Port of the servers in a capture [3306].", show_default=False),
]
ObjectiveOption = Annotated[
    str,
    typer.Option("--objective", metavar="TIME", help="Share of calls within it, and within 4 of it: 10ms."),
]
OrderOption = Annotated[
    str, typer.Option("--order", help="sum, count, mean, p99, max, rows, sent, bytes, lock or errors.")
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=0, help="Classes in the table.")]
DetailsOption = Annotated[int, typer.Option("--details", min=0, help="Classes shown in detail.")]
SaveOption = Annotated[
    Path | None,
    typer.Option("--save", metavar="FILE", help="Keep the digest as Parquet: it merges with others."),
]
PageOption = Annotated[Path | None, typer.Option("--page", metavar="FILE", help="Write an HTML page.")]
CompareOption = Annotated[
    bool,
    typer.Option("--compare", help="Compare two sources: before, after. New, gone, slower, more frequent."),
]
ClientOption = Annotated[
    str, typer.Option("--client", metavar="SOURCE", help="What was captured at the client, beside --server.")
]
ServerOption = Annotated[
    str, typer.Option("--server", metavar="SOURCE", help="What was captured at the server.")
]
HistoryOption = Annotated[
    Path | None,
    typer.Option("--history", metavar="FOLDER", help="Add to a history by day; show it without SOURCE."),
]
ClassOption = Annotated[
    str, typer.Option("--class", metavar="ID", help="With --history: one class by day; first digits suffice.")
]
ReviewedByOption = Annotated[
    str,
    typer.Option(
        "--reviewed-by", metavar="NAME", help="With --history and --class: note that it was reviewed."
    ),
]
CommentOption = Annotated[str, typer.Option("--comment", metavar="TEXT", help="With --reviewed-by.")]
ExplainOption = Annotated[
    bool, typer.Option("--explain", help="Plans of the samples shown in detail, from the --mysql-* server.")
]


@dataclass(frozen=True)
class _Asked:
    """What the agent is asked to count, and where."""

    targets: tuple[str, ...]
    mode: str
    group: str
    since: str
    until: str
    filters: tuple[str, ...]
    ports: tuple[int, ...]

    @property
    def argv(self) -> list[str]:
        options = [
            ("--mode", self.mode),
            ("--group", self.group),
            ("--since", self.since),
            ("--until", self.until),
        ]
        options += [("--filter", each) for each in self.filters]
        options += [("--port", str(each)) for each in self.ports]
        return [word for name, value in options if value for word in (name, value)]


@app.command(
    short_help="What does this traffic consist of: which queries, how often, how slow?",
    epilog="Example: headrace digest slow.log --objective 10ms --page digest.html",
)
@takes_login
def digest(
    sources: Sources = None,
    target: Targets = ["local"],  # noqa: B006
    mode: ModeOption = "strict",
    group: GroupOption = "class",
    since: SinceOption = "",
    until: UntilOption = "",
    filters: FilterOption = None,
    port: PortOption = None,
    objective: ObjectiveOption = "",
    order: OrderOption = "sum",
    limit: LimitOption = 10,
    details: DetailsOption = 3,
    save: SaveOption = None,
    page: PageOption = None,
    compare: CompareOption = False,
    client: ClientOption = "",
    server: ServerOption = "",
    history: HistoryOption = None,
    query_class: ClassOption = "",
    reviewed_by: ReviewedByOption = "",
    comment: CommentOption = "",
    explain: ExplainOption = False,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Sum up traffic by query class: share of time, percentiles, rows, errors, and what nobody could see."""
    asked = _Asked(tuple(target), mode, group, since, until, tuple(filters or ()), tuple(port or ()))
    view = _view(order, limit, details, objective)
    if compare:
        _compare(sources or [], asked, limit, as_json)
    elif client or server:
        _beside(client, server, asked, limit, as_json)
    elif history is not None and not sources:
        _show_history(history, query_class, reviewed_by, comment, limit, as_json)
    else:
        table = _read(sources or [], asked)
        _keep(table, save, history)
        found = _open(table)
        if explain:
            view = _explained(found, view, asked.targets[0], login)
        _show(found, view, page, as_json)


def _view(order: str, limit: int, details: int, objective: str) -> View:
    from headrace.analysis.traffic import ORDERS
    from headrace.report.digest import View

    if order not in ORDERS:
        raise typer.BadParameter(f"--order {order!r}: one of {', '.join(ORDERS)}")
    return View(order, limit, details, _duration_ns(objective) if objective else None)


def _duration_ns(text: str) -> float:
    for unit, factor in _UNITS.items():
        number = text.strip().removesuffix(unit)
        with contextlib.suppress(ValueError):
            value = float(number) * factor
            if number != text.strip() and 0 < value < 1e15:
                return value
    raise typer.BadParameter(f"--objective {text!r}: write a time such as 10ms, 500us or 2s")


def _show(found: Digest, view: View, page: Path | None, as_json: bool) -> None:
    from headrace.report import digest as views
    from headrace.report.digest_json import to_json

    if as_json:
        print_json(to_json(found, view))
    else:
        stdout().print(views.terminal(found, view))
    if page:
        from headrace.report import digest_html

        _write(page, digest_html.render(found, view))


def _write(path: Path, text: str) -> None:
    try:
        # It shows samples: statements with the values that somebody sent.
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot be written: {error.strerror or error}", place=str(path)) from error
    stderr().print(f"page: {path}", soft_wrap=True, highlight=False, markup=False)


def _keep(table: pa.Table, save: Path | None, history: Path | None) -> None:
    from headrace.digests import history as histories
    from headrace.digests import table as tables

    if save:
        tables.write(table, save)
        stderr().print(f"saved: {save}", soft_wrap=True, highlight=False, markup=False)
    if history:
        day = histories.append(history, table)
        stderr().print(f"history: {day}", soft_wrap=True, highlight=False, markup=False)


def _open(table: pa.Table) -> Digest:
    from headrace.digests.classes import open_digest

    return open_digest(table)


# -- Sources ----------------------------------------------------------------------------------------------------


def _read(sources: list[str], asked: _Asked) -> pa.Table:
    """One digest of all sources: those that are digests are read here, the rest where it is."""
    from headrace.digests.files import is_digest, load_all
    from headrace.digests.merge import merge

    if not sources:
        raise typer.BadParameter(
            "name a SOURCE: a log, a capture, a recording, a digest, or - for standard input"
        )
    is_here = asked.targets == ("local",)
    ready = [source for source in sources if is_here and source != "-" and is_digest(Path(source))]
    raw = [source for source in sources if source not in ready]
    parts = [load_all([Path(source) for source in ready])] if ready else []
    places = ready[:1]
    if ready and (asked.since or asked.until or asked.filters):
        raise PlanError(
            "a digest cannot be filtered any more",
            place=ready[0],
            hint="filter when it is made of its source",
        )
    if raw:
        for address, table in zip(asked.targets, _digest_on_hosts(raw, asked), strict=True):
            parts.append(table)
            places.append(address)
    return merge(parts, places)


def _digest_on_hosts(sources: list[str], asked: _Asked) -> list[pa.Table]:
    """Every host digests its own files and sends the small result."""
    import asyncio

    from headrace.target import TargetSpec, open_target

    if "-" in sources and len(asked.targets) > 1:
        raise typer.BadParameter("standard input goes to one target only")
    specs = [TargetSpec.parse(address) for address in asked.targets]

    async def one(spec: TargetSpec, room: asyncio.Semaphore) -> pa.Table:
        async with room:
            host = open_target(spec)
            await host.connect()
            try:
                return await _digest(host, sources, asked.argv)
            finally:
                await host.close()

    async def every() -> list[pa.Table]:
        room = asyncio.Semaphore(MOST_AT_ONCE)
        return await asyncio.gather(*(one(spec, room) for spec in specs))

    with stderr().status("reading ...") if stderr().is_terminal else contextlib.nullcontext():
        return run_until_signal(every)


async def _digest(host: Any, sources: list[str], options: list[str]) -> pa.Table:
    import asyncio

    from headrace.agent import Agent
    from headrace.digests.lines import read_lines

    path = (await Agent.install(host)).path
    process = await host.spawn([path, "digest", *options, "--", *sources])
    try:
        feeding = asyncio.ensure_future(_feed(process, "-" in sources))
        lines = [line async for line in process.lines()]
        code = await process.wait(60)
        feeding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feeding
    except BaseException:
        await process.signal("TERM")
        raise
    if code:
        _raise_for(code, await process.error_text(), host.name)
    return await asyncio.to_thread(read_lines, lines, host.name)


async def _feed(process: Any, has_stdin: bool) -> None:
    import asyncio
    import os
    import sys

    while has_stdin and (piece := await asyncio.to_thread(os.read, sys.stdin.fileno(), 1 << 20)):
        await process.write(piece)
    await process.close_stdin()


def _raise_for(code: int, said: str, place: str) -> None:
    """The agent's exit codes are ours: docs/reference/exit-codes.md."""
    from headrace.report.text import clean_lines

    message = (
        clean_lines(said.strip().removeprefix("headrace-agent: ")) or f"the agent ended with code {code}"
    )
    known: dict[int, type[HeadraceError]] = {2: PlanError, 5: Refused, 8: DiskFull}
    for mark in ("refused: ", "bad input: "):
        message = message.removeprefix(mark)
    raise known.get(code, CommandFailed)(message, place=place)


# -- Two digests, and many --------------------------------------------------------------------------------------


def _compare(sources: list[str], asked: _Asked, limit: int, as_json: bool) -> None:
    from headrace.analysis import traffic
    from headrace.report import digest_compare as views

    if len(sources) != 2:
        raise typer.BadParameter("--compare needs two sources: before and after")
    before, after = (_open(_read([source], asked)) for source in sources)
    _check_alike(before, after, sources[1])
    changes = traffic.compare(before, after)
    if as_json:
        print_json(views.compared_json(before, after, changes))
    else:
        stdout().print(views.compared(before, after, changes, limit))


def _check_alike(one: Digest, other: Digest, place: str) -> None:
    if (one.mode, one.group) != (other.mode, other.group):
        raise StoreError(
            f"{other.mode} classes by {', '.join(other.group)} cannot be held against "
            f"{one.mode} classes by {', '.join(one.group)}",
            place=place,
            hint="digest both with the same --mode and --group",
        )


def _beside(client: str, server: str, asked: _Asked, limit: int, as_json: bool) -> None:
    from headrace.analysis import traffic
    from headrace.report import digest_compare as views

    if not client or not server:
        raise typer.BadParameter("--client and --server go together")
    left, right = (_open(_read([source], asked)) for source in (client, server))
    _check_alike(left, right, server)
    found = traffic.sides(left, right)
    if as_json:
        print_json(views.beside_json(left, right, found))
    else:
        stdout().print(views.beside(left, right, found, limit))


def _show_history(
    folder: Path, query_class: str, reviewed_by: str, comment: str, limit: int, as_json: bool
) -> None:
    from datetime import UTC, datetime

    from headrace.analysis import traffic
    from headrace.digests import history as histories
    from headrace.report import digest_history as views

    days = {day: _open(table) for day, table in histories.days(folder).items()}
    seen = traffic.seen(days)
    name = _named(query_class, [each.name for each in seen], folder) if query_class else ""
    if reviewed_by:
        if not name:
            raise typer.BadParameter("--reviewed-by needs --class")
        noted = histories.Review(reviewed_by, f"{datetime.now(UTC):%Y-%m-%d}", comment)
        histories.review(folder, name, noted)
    reviews = histories.reviews(folder)
    shown = [each for each in seen if not name or each.name == name]
    if as_json:
        print_json(views.to_json(days, shown, reviews))
    elif name:
        stdout().print(views.one_class(name, days, reviews.get(name)))
    else:
        stdout().print(views.overview(days, shown, reviews, limit))


def _named(query_class: str, names: list[str], folder: Path) -> str:
    found = [name for name in names if name.lower().startswith(query_class.lower())]
    if len(found) != 1:
        told = "no class" if not found else f"{len(found)} classes"
        raise PlanError(f"{told} of this history begin with {query_class!r}", place=str(folder))
    return found[0]


# -- Plans ------------------------------------------------------------------------------------------------------


def _explained(found: Digest, view: View, address: str, login: ServerLogin) -> View:
    """Plans of the classes that are shown in detail; nothing is executed, and nothing but reads is asked about."""
    from dataclasses import replace

    from headrace.agent import Agent
    from headrace.analysis.traffic import ranked

    if not login.is_named:
        raise typer.BadParameter(
            "--explain needs a server: --mysql-socket, --mysql-host or --mysql-defaults-file"
        )
    shown = ranked(found, view.order)[: view.details]

    async def work(host: Any) -> dict[str, str]:
        agent = await Agent.install(host)
        plans = {}
        for each in shown:
            sample = each.sample
            text = str(sample.get("text") or "")
            if not text:
                plans[each.name] = "no sample"
            elif sample.get("text_bytes", 0) > len(text.encode()) or sample.get("is_redacted"):
                plans[each.name] = "its sample is not whole"
            else:
                plans[each.name] = await agent.explain(text, str(sample.get("database") or ""), login)
        return plans

    return replace(view, plans=on_target(address, work))
