"""The command ``digest``: summarises traffic from logs, captures and recordings, locally or on hosts."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.base.errors import PlanError, StoreError
from headrace.base.model import ServerLogin
from headrace.cli.options import NO_LOGIN, CapturePorts, grouped
from headrace.cli.shell import (
    Json,
    PageFile,
    app,
    on_target,
    print_json,
    run_until_signal,
    say,
    stderr,
    stdout,
    write_page,
)
from headrace.traffic.commands import habits
from headrace.traffic.commands.habits import Limit
from headrace.traffic.commands.memcached import memcached

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.traffic.digests.classes import Digest
    from headrace.traffic.report.words import View

#: Between a source and the reason in the agent's error.
_NOT_READ = ": bad input: "
_UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE]...",
        help="Slow, general or binary logs, pcap, recordings (on the target); digests; - for standard input, also "
        "performance_schema's summary.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Question:
    """What the agent counts, and where."""

    target: Annotated[
        list[str],
        typer.Option("--target", "-t", help="Where the sources are: local or user@host[:port]; repeatable."),
    ] = field(default_factory=lambda: ["local"])
    mode: Annotated[
        str,
        typer.Option(
            "--mode", help="Fingerprint style: strict, or pt (same classes and ids as pt-query-digest)."
        ),
    ] = "strict"
    fold_names: Annotated[
        bool,
        typer.Option(
            "--fold-names",
            help="Ignore digits and hashes in generated names: orders_2024_01 is orders_?, alias t0_ is t?_.",
        ),
    ] = False
    group: Annotated[
        str,
        typer.Option(
            "--group",
            help="Group by class, user, host, database, table, session or command; comma-separated.",
        ),
    ] = "class"
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only calls that started at this time (UTC) or later; 1h: an hour ago.",
        ),
    ] = ""
    until: Annotated[
        str, typer.Option("--until", metavar="TIME", help="Only calls that started before this time.")
    ] = ""
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="CONDITION", help="user=app, response>=100ms, error=any ..."),
    ] = None
    kind: Annotated[
        str,
        typer.Option(
            "--type",
            metavar="KIND",
            help="As for pt-query-digest: slowlog, genlog, tcpdump, binlog. Not needed: the content tells.",
        ),
    ] = ""
    port: CapturePorts = None

    @property
    def argv(self) -> list[str]:
        options = [
            ("--mode", self.mode),
            ("--group", self.group),
            ("--since", self.since),
            ("--until", self.until),
            ("--type", self.kind),
        ]
        folded = ["--fold-names"] if self.fold_names else []
        options += [("--filter", each) for each in self.filters or ()]
        options += [("--port", str(each)) for each in self.port or ()]
        return folded + [word for name, value in options if value for word in (name, value)]


@dataclass(frozen=True)
class Shown:
    """What to show, and in which order."""

    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            metavar="TIME",
            help="Show the share of calls within this time, and within 4 times this time: 10ms.",
        ),
    ] = ""
    order: Annotated[
        str,
        typer.Option(
            "--order", help="sum, count, mean, p99, max, rows, sent, changed, bytes, lock or errors."
        ),
    ] = "sum"
    top: Annotated[
        str,
        typer.Option(
            "--top",
            "-n",
            metavar="N",
            help="Classes in the table: 10, or 95%:10 for at most 95% of the order.",
        ),
    ] = "10"
    details: Annotated[int, typer.Option("--details", min=0, help="Classes shown in detail.")] = 3
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Show the plans of the samples that are shown in detail, from the --mysql-* server.",
        ),
    ] = False
    as_json: Json = False

    def view(self) -> View:
        from headrace.traffic.figures import ORDERS
        from headrace.traffic.report.words import View

        if self.order not in ORDERS:
            raise typer.BadParameter(f"--order {self.order!r}: one of {', '.join(ORDERS)}")
        objective_ns = _duration_ns(self.objective) if self.objective else None
        return View(self.order, self.most.most, self.details, objective_ns)

    @property
    def most(self) -> Limit:
        return Limit.parse(self.top)


@dataclass(frozen=True)
class Kept:
    """Where to save the digest and its page."""

    save: Annotated[
        Path | None,
        typer.Option(
            "--save", metavar="FILE", help="Save the digest as Parquet, which can be merged with others."
        ),
    ] = None
    history: Annotated[
        Path | None,
        typer.Option("--add-to", metavar="FOLDER", help="Add the digest to a history by day."),
    ] = None
    page: PageFile = None


@dataclass(frozen=True)
class Listed:
    """How much of a table of two digests, or of many, is shown."""

    top: Annotated[
        int, typer.Option("--top", "-n", min=0, metavar="N", help="Classes in the table.", show_default=True)
    ] = 10
    as_json: Json = False


History = Annotated[Path, typer.Argument(metavar="FOLDER", help="Of `headrace digest --add-to`.")]

digest_app = typer.Typer(cls=habits.Command, rich_markup_mode=None)
app.add_typer(digest_app, name="digest")
digest_app.command("memcached", epilog="Example: headrace digest memcached cache.pcap")(memcached)


@digest_app.callback(
    invoke_without_command=True,
    epilog="Example: headrace digest slow.log --objective 10ms --html digest.html",
)
@grouped
def digest(
    asked: Question,
    shown: Shown,
    kept: Kept,
    sources: Sources = None,
    login: ServerLogin = NO_LOGIN,
) -> None:
    """Summarise traffic by query class: share of time, percentiles, rows, errors, and gaps in the source."""
    if asked.kind:
        note = "--type is not needed: the content tells what a source is"
        stderr().print(note, soft_wrap=True, highlight=False, markup=False)
    _sum_up(sources or [], asked, shown, kept, login)


@digest_app.command("compare", epilog="Example: headrace digest compare monday.log tuesday.log")
@grouped
def compare(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A source, or a digest.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The same, of a later time.")],
    asked: Question,
    shown: Listed,
) -> None:
    """Compare two sources: new, gone and slower classes."""
    from headrace.show import terminal
    from headrace.traffic import figures as traffic
    from headrace.traffic.report import compare as views

    left, right = _both(before, after, asked)
    changes = traffic.compare(left, right)
    if shown.as_json:
        print_json(views.compared_json(left, right, changes))
    else:
        stdout().print(terminal.show(views.compared(left, right, changes, shown.top)))


@digest_app.command("both-ends", epilog="Example: headrace digest both-ends app1.pcap slow.log")
@grouped
def both_ends(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="The capture taken at the client.")],
    server: Annotated[str, typer.Argument(metavar="SERVER", help="The source taken at the server.")],
    asked: Question,
    shown: Listed,
) -> None:
    """Compare a client's times with the server's."""
    from headrace.show import terminal
    from headrace.traffic import figures as traffic
    from headrace.traffic.report import compare as views

    left, right = _both(client, server, asked)
    found = traffic.sides(left, right)
    if shown.as_json:
        print_json(views.beside_json(left, right, found))
    else:
        stdout().print(terminal.show(views.beside(left, right, found, shown.top)))


@digest_app.command("history", epilog="Example: headrace digest history digests/ --class 87c2")
@grouped
def history(
    folder: History,
    query_class: Annotated[
        str,
        typer.Option("--class", metavar="ID", help="One class by day; a prefix of its id is enough."),
    ] = "",
    shown: Listed = Listed(),
) -> None:
    """Show a history: which classes are new, and who reviewed them."""
    _show_history(folder, query_class, shown)


@digest_app.command(
    "review", epilog="Example: headrace digest review digests/ 87c2 --comment 'index on price, 3 May'"
)
@grouped
def review(
    folder: History,
    query_class: Annotated[
        str, typer.Argument(metavar="CLASS", help="The class; a prefix of its id is enough.")
    ],
    by: Annotated[
        str, typer.Option("--by", metavar="NAME", help="Who reviewed it [this account].", show_default=False)
    ] = "",
    comment: Annotated[str, typer.Option("--comment", metavar="TEXT", help="The result.")] = "",
    shown: Listed = Listed(),
) -> None:
    """Record who reviewed a class of a history."""
    from datetime import UTC, datetime

    from headrace.traffic.digests import history as histories

    name = _named(query_class, _names(folder), folder)
    noted = histories.Review(by or getpass.getuser(), f"{datetime.now(UTC):%Y-%m-%d}", comment)
    histories.review(folder, name, noted)
    _show_history(folder, name, shown)


def _sum_up(sources: list[str], asked: Question, shown: Shown, kept: Kept, login: ServerLogin) -> None:
    from headrace.traffic.report.page import page_of

    view = shown.view()
    for place in (kept.save, kept.history):
        _can_be_made(place)
    table = read_sources(sources, asked)
    _keep(table, kept.save, kept.history)
    found = _open(table)
    view = replace(view, limit=shown.most.of(found, shown.order))
    if shown.explain:
        view = _explained(found, view, asked.target[0], login)
    page = page_of(found, view)
    say(page, shown.as_json)
    if kept.page:
        # The page shows sample statements with their original values.
        write_page(kept.page, page, is_private=True)


def _can_be_made(path: Path | None) -> None:
    """Refuse now a file or directory that could not be written after the work, which may take hours."""
    if path is None:
        return
    # What is missing above it is made.
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if existing != path and not existing.is_dir():
        raise typer.BadParameter(f"{path} cannot be written: {existing} is not a directory")
    if not os.access(existing, os.W_OK):
        raise typer.BadParameter(f"{path} cannot be written: permission denied")


def _duration_ns(text: str) -> float:
    for unit, factor in _UNITS.items():
        number = text.strip().removesuffix(unit)
        with contextlib.suppress(ValueError):
            value = float(number) * factor
            if number != text.strip() and 0 < value < 1e15:
                return value
    raise typer.BadParameter(f"--objective {text!r}: write a time such as 10ms, 500us or 2s")


def _keep(table: pa.Table, save: Path | None, history: Path | None) -> None:
    from headrace.traffic.digests import history as histories
    from headrace.traffic.digests import table as tables

    if save:
        tables.write(table, save)
        stderr().print(f"saved: {save}", soft_wrap=True, highlight=False, markup=False)
    if history:
        day = histories.append(history, table)
        stderr().print(f"history: {day}", soft_wrap=True, highlight=False, markup=False)


def _open(table: pa.Table) -> Digest:
    from headrace.traffic.digests.classes import open_digest

    return open_digest(table)


# -- Sources ----------------------------------------------------------------------------------------------------


def read_sources(sources: list[str], asked: Question) -> pa.Table:
    """Merge all sources into one digest: digest files are read here, other sources on their target."""
    from headrace.base.arrow import without_pandas

    without_pandas()
    from headrace.traffic.digests.files import is_digest, load_all
    from headrace.traffic.digests.merge import merge

    if not sources:
        raise typer.BadParameter(
            "name a SOURCE: a log, a capture, a recording, a digest, or - for what a pipe brings, "
            "such as the server's own summary (headrace docs digest)"
        )
    is_here = asked.target == ["local"]
    sources = [_for_agent(source) for source in sources] if is_here else sources
    ready = [source for source in sources if is_here and source != "-" and is_digest(Path(source))]
    raw = [source for source in sources if source not in ready]
    parts = [load_all([Path(source) for source in ready])] if ready else []
    places = ready[:1]
    if ready and (asked.since or asked.until or asked.filters):
        raise PlanError(
            "a digest cannot be filtered",
            place=ready[0],
            hint="filter when you make the digest from its source",
        )
    if raw:
        for address, table in zip(asked.target, _digest_hosts(raw, asked), strict=True):
            parts.append(table)
            places.append(address)
    return merge(parts, places)


def _for_agent(source: str) -> str:
    """An open file of this process, such as a shell's <(...), by a name that leads there from the agent, too."""
    found = re.fullmatch(r"/dev/(?:stdin|fd/(\d+))|/proc/self/fd/(\d+)", source)
    number = found and (found[1] or found[2] or "0")
    return source if number is None else f"/proc/{os.getpid()}/fd/{number}" if number != "0" else "-"


def _digest_hosts(sources: list[str], asked: Question) -> list[pa.Table]:
    from headrace.traffic import traffic

    if "-" in sources and len(asked.target) > 1:
        raise typer.BadParameter("standard input works with one target only")
    try:
        with stderr().status("reading ...") if stderr().is_terminal else contextlib.nullcontext():
            return run_until_signal(lambda: traffic.digest_hosts(asked.target, sources, asked.argv))
    except PlanError as error:
        source, mark, why = error.message.partition(_NOT_READ)
        if not mark or source not in sources:
            raise
        raise PlanError(f"cannot read {source}: {why}", place=error.place, hint=error.hint) from error


# -- Two digests, and many --------------------------------------------------------------------------------------


def _both(left: str, right: str, asked: Question) -> tuple[Digest, Digest]:
    """Two digests whose classes can be compared. Raises StoreError."""
    one, other = (_open(read_sources([source], asked)) for source in (left, right))
    _check_alike(one, other, right)
    return one, other


def _check_alike(one: Digest, other: Digest, place: str) -> None:
    if (one.mode, one.group) != (other.mode, other.group):
        raise StoreError(
            f"{other.mode} classes by {', '.join(other.group)} cannot be compared with "
            f"{one.mode} classes by {', '.join(one.group)}",
            place=place,
            hint="digest both with the same --mode, --fold-names and --group",
        )


def _show_history(folder: Path, query_class: str, shown: Listed) -> None:
    from headrace.show import terminal
    from headrace.traffic import figures as traffic
    from headrace.traffic.digests import history as histories
    from headrace.traffic.report import history as views

    days = {day: _open(table) for day, table in histories.days(folder).items()}
    seen = traffic.seen(days)
    name = _named(query_class, [each.name for each in seen], folder) if query_class else ""
    reviews = histories.reviews(folder)
    listed = [each for each in seen if not name or each.name == name]
    if shown.as_json:
        print_json(views.to_json(days, listed, reviews))
    elif name:
        stdout().print(terminal.show(views.one_class(name, days, reviews.get(name))))
    else:
        stdout().print(terminal.show(views.overview(days, listed, reviews, shown.top)))


def _names(folder: Path) -> list[str]:
    """The classes of a history."""
    from headrace.traffic import figures as traffic
    from headrace.traffic.digests import history as histories

    return [
        each.name for each in traffic.seen({d: _open(table) for d, table in histories.days(folder).items()})
    ]


def _named(query_class: str, names: list[str], folder: Path) -> str:
    found = [name for name in names if name.lower().startswith(query_class.lower())]
    if len(found) != 1:
        which = "no class" if not found else f"{len(found)} classes"
        raise PlanError(f"{which} of this history matched by {query_class!r}", place=str(folder))
    return found[0]


# -- Plans ------------------------------------------------------------------------------------------------------


def _explained(found: Digest, view: View, address: str, login: ServerLogin) -> View:
    """Plans of the classes shown in detail: EXPLAIN of read statements only; nothing is executed."""
    from headrace.traffic import traffic
    from headrace.traffic.figures import ranked

    if not login.is_named:
        raise typer.BadParameter(
            "--explain needs a server: --mysql-socket, --mysql-host or --mysql-defaults-file"
        )
    samples = [(each.name, each.sample) for each in ranked(found, view.order)[: view.details]]

    def work(host: Any) -> Any:
        return traffic.plans(host, samples, login)

    return replace(view, plans=on_target(address, work))
