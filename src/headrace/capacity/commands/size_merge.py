"""The command ``size merge``: which databases share a host, and what that costs."""

from __future__ import annotations

import contextlib
import math
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.base.counted import counted
from headrace.capacity.commands.size_app import size_app
from headrace.capacity.commands.size_source import SourceOptions, amounts, keep, named, place_of, read
from headrace.cli.options import DAY_S, duration, grouped
from headrace.cli.shell import (
    Json,
    PageFile,
    TellOption,
    opened_places,
    show,
    stderr,
    tell,
    tell_and_exit,
)

if TYPE_CHECKING:
    from headrace.capacity.clock import Clock
    from headrace.capacity.cost import Growth
    from headrace.capacity.merge import Solution
    from headrace.capacity.table import Table


@dataclass(frozen=True)
class CatalogueOptions:
    """Which hosts can be had."""

    region: Annotated[
        str, typer.Option(metavar="REGION", help="Region of the prices, in instances.json.")
    ] = "us-east-1"
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PATTERN", help="Only hosts like r7i.*; repeatable.")
    ] = None
    watts: Annotated[
        Path | None, typer.Option("--watts", metavar="FILE", help="A CSV with name and watts of hosts.")
    ] = None


@dataclass(frozen=True)
class RuleOptions:
    """What a plan must keep."""

    risk: Annotated[
        float,
        typer.Option(
            min=0.001, max=0.5, help="Highest acceptable chance that a host is too full at its peak."
        ),
    ] = 0.05
    quantile: Annotated[
        float, typer.Option(min=0.5, max=1, help="Share of each day that the peak must cover.")
    ] = 0.99
    ahead_s: Annotated[
        float,
        duration(
            "--ahead", text="How long the plan must last.", least_s=DAY_S, most_s=3660 * DAY_S, default="30d"
        ),
    ] = 30.0 * DAY_S
    growth: Annotated[
        str,
        typer.Option(
            metavar="LOW..HIGH",
            help="Expected growth in percent, such as 10..25 [that of the history].",
        ),
    ] = ""
    may_fail: Annotated[
        bool,
        typer.Option(
            "--one-may-fail/--none-may-fail",
            help="Plan for replicas to carry the load of any one failed host.",
        ),
    ] = True
    one_server: Annotated[
        bool,
        typer.Option("--one-server", help="The databases of a host share one server and its buffer pool."),
    ] = False


@dataclass(frozen=True)
class MeasuredOptions:
    """What a history does not tell; a table has columns for it."""

    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group", metavar="HOST,HOST", help="A replication group: no two share a host; repeatable."
        ),
    ] = None
    type: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="[HOST=]NAME",
            help="Type of a host today, in the catalogue, to compare with; repeatable.",
        ),
    ] = None
    need: Annotated[
        list[str] | None,
        typer.Option(
            "--need",
            metavar="[HOST=]RESOURCE=N",
            help="What its databases need instead of what is in use: db1=memory=8G (8 GiB; of rates, G is 10^9). "
            "A value with HOST= replaces one without; repeatable.",
        ),
    ] = None


@size_app.command(
    "merge",
    epilog="Example: headrace size merge --catalogue hosts.csv --group db1,db2; "
    "headrace size merge demands.csv --catalogue hosts.csv --html plan.html",
)
@grouped
def merge(
    demands: Annotated[
        Path | None,
        typer.Argument(
            metavar="SOURCE",
            help="History of `headrace serve`, samples, or a CSV or Parquet with the columns host, group, time, "
            "resource, value [the history of serve].",
            show_default=False,
        ),
    ] = None,
    *,
    catalogue: Annotated[
        Path,
        typer.Option(
            "--catalogue", "-c", metavar="FILE", help="Hosts: a CSV, or instances.json of ec2instances.info."
        ),
    ],
    offered: CatalogueOptions = CatalogueOptions(),
    which: SourceOptions = SourceOptions(),
    measured: MeasuredOptions = MeasuredOptions(),
    rules: RuleOptions = RuleOptions(),
    by: Annotated[str, typer.Option("--by", help="What to minimise: price, watts or hosts.")] = "price",
    budget_s: Annotated[float, duration("--budget", text="Time for the search.", default="1m")] = 60.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    page: PageFile = None,
    to: TellOption = None,
    as_json: Json = False,
) -> None:
    """Plan which databases share a host. Finds the fewest or cheapest hosts for their joint peaks, and the risk.

    Ctrl-C ends the search with the best plan so far. Exits with 13 if the databases do not fit.
    """
    from headrace.capacity import catalogue as catalogues
    from headrace.capacity import foretold
    from headrace.capacity.plan import Asked, plan
    from headrace.capacity.report.merge import page_of

    if by not in ("price", "watts", "hosts"):
        raise typer.BadParameter(f"--by {by}: price, watts or hosts")
    places = opened_places(to, as_json)
    asked = Asked(
        rules.risk, rules.quantile, math.ceil(rules.ahead_s / DAY_S), _growth(rules.growth), by, rules.may_fail,
        rules.one_server, budget_s, seed,
    )  # fmt: skip
    table = _table(demands, which, measured)
    found = catalogues.read(catalogue, region=offered.region, only=offered.only or ())
    if offered.watts is not None:
        found = catalogues.with_watts(found, offered.watts)
    with _clock(asked.seconds) as clock:
        merged = plan(table, found, asked, clock)
    keep(lambda: foretold.of_merge(merged, table, place_of(demands)))
    content = page_of(merged)
    show(content, as_json, page)
    assert content.notice is not None
    tell_and_exit(content.notice, places)


def _table(source: Path | None, which: SourceOptions, measured: MeasuredOptions) -> Table:
    from headrace.capacity import table as tables
    from headrace.capacity.history import SAMPLES_SUFFIX
    from headrace.capacity.measured import table_of

    if source is not None and not source.is_dir() and not source.name.endswith(SAMPLES_SUFFIX):
        given = {
            "--group": measured.group, "--type": measured.type, "--need": measured.need,
            "--host": which.host, "--step": which.step_s,
        }  # fmt: skip
        for option, value in given.items():
            if value:
                raise typer.BadParameter(f"{option} is for measured hosts; a table has its own columns")
        return tables.read(source)
    histories, left_out = read(source, which, with_calls=False)
    names = [each.host for each in histories]
    groups = [[named(host, names, "--group") for host in word.split(",")] for word in measured.group or ()]
    found = table_of(histories, groups, _types(measured.type, names), amounts(measured.need, names, "--need"))
    return replace(found, notes=(*left_out, *found.notes))


def _types(words: Sequence[str] | None, names: Sequence[str]) -> dict[str, str]:
    """``[HOST=]NAME`` -> {host: type}; of all hosts first, so that one of its own replaces it."""
    found: dict[str, str] = {}
    for word in sorted(words or (), key=lambda word: "=" in word):
        host, _, kind = word.rpartition("=")
        for name in [named(host, names, "--type")] if host else names:
            found[name] = kind
    return found


@contextlib.contextmanager
def _clock(seconds: float) -> Iterator[Clock]:
    """A search with progress, which the first Ctrl-C ends; the second ends the command."""
    from headrace.capacity.clock import Clock

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with stderr().status("reading peaks ...") as status:

        def listen(found: Solution) -> None:
            above = (
                "" if found.gap is None else f", at most {100 * max(found.gap, 0):.1f}% above the best plan"
            )
            status.update(f"{found.seconds:.0f} s: {counted(len(found.placement.used), 'host')}{above}")

        clock = Clock(seconds, listen)

        def stop(number: int, frame: object) -> None:
            for each, handler in before.items():
                signal.signal(each, handler)
            tell("stopping: the best plan so far is checked ...")
            clock.stop()

        for number in before:
            signal.signal(number, stop)
        try:
            yield clock
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _growth(text: str) -> Growth | None:
    from headrace.capacity.cost import Growth

    if not text:
        return None
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)(?:\.\.(-?\d+(?:\.\d+)?))?", text)
    if match is None:
        raise typer.BadParameter(f"--growth {text!r}: write percent, such as 20 or 10..25")
    low, high = float(match[1]), float(match[2] or match[1])
    if not -100 < low <= high <= 10_000:
        raise typer.BadParameter(f"--growth {text!r}: from above -100 to 10000, the lower one first")
    return Growth(1 + low / 100, 1 + high / 100)
