"""The command ``size merge``: which databases share a host, and what that costs."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import grouped, seconds_of
from headrace.cli.shell import (
    Json,
    PageFile,
    TellOption,
    opened_places,
    say,
    stderr,
    tell,
    tell_and_exit,
    write_page,
)
from headrace.cli.size_app import size_app

if TYPE_CHECKING:
    from headrace.size.clock import Clock
    from headrace.size.cost import Growth
    from headrace.size.merge import Solution


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
    ahead: Annotated[
        int, typer.Option(metavar="DAYS", min=1, max=3660, help="How long the plan must last.")
    ] = 30
    growth: Annotated[
        str, typer.Option(metavar="LOW..HIGH", help="Expected growth until then in percent, such as 10..25.")
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


@size_app.command(
    "merge", epilog="Example: headrace size merge demands.csv --catalogue hosts.csv --html plan.html"
)
@grouped
def merge(
    demands: Annotated[
        Path, typer.Argument(help="CSV or Parquet: host, group, time, resource, value.", metavar="DEMANDS")
    ],
    catalogue: Annotated[
        Path,
        typer.Option(
            "--catalogue", "-c", metavar="FILE", help="Hosts: a CSV, or instances.json of ec2instances.info."
        ),
    ],
    which: CatalogueOptions = CatalogueOptions(),
    rules: RuleOptions = RuleOptions(),
    by: Annotated[str, typer.Option("--by", help="What to minimise: price or hosts.")] = "price",
    within: Annotated[str, typer.Option("--within", metavar="TIME", help="Time for the search.")] = "60s",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    page: PageFile = None,
    to: TellOption = None,
    as_json: Json = False,
) -> None:
    """Plan which databases share a host, from their joint peaks: the fewest or cheapest hosts, and the risk.

    Ctrl-C ends the search with the best plan so far. Exits with 13 if the databases do not fit.
    """
    from headrace.report.size.merge import page_of
    from headrace.size import catalogue as catalogues
    from headrace.size import table as tables
    from headrace.size.plan import Asked, plan

    if by not in ("price", "hosts"):
        raise typer.BadParameter(f"--by {by}: price or hosts")
    places = opened_places(to, as_json)
    asked = Asked(
        rules.risk, rules.quantile, rules.ahead, _growth(rules.growth), by, rules.may_fail, rules.one_server,
        seconds_of(within) or 60.0, seed,
    )  # fmt: skip
    table = tables.read(demands)
    found = catalogues.read(catalogue, region=which.region, only=which.only or ())
    if which.watts is not None:
        found = catalogues.with_watts(found, which.watts)
    with _clock(asked.seconds) as clock:
        merged = plan(table, found, asked, clock)
    content = page_of(merged)
    if page is not None:
        write_page(page, content)
    say(content, as_json)
    assert content.notice is not None
    tell_and_exit(content.notice, places)


@contextlib.contextmanager
def _clock(seconds: float) -> Iterator[Clock]:
    """A search with progress, which the first Ctrl-C ends; the second ends the command."""
    from headrace.size.clock import Clock

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with stderr().status("reading peaks ...") as status:

        def listen(found: Solution) -> None:
            placement = found.placement
            status.update(
                f"{found.seconds:.0f} s: {len(placement.used)} hosts, "
                f"at most {100 * max(found.gap, 0):.1f}% above the best plan"
            )

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


def _growth(text: str) -> Growth:
    from headrace.size.cost import Growth

    if not text:
        return Growth()
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)(?:\.\.(-?\d+(?:\.\d+)?))?", text)
    if match is None:
        raise typer.BadParameter(f"--growth {text!r}: write percent, such as 20 or 10..25")
    low, high = float(match[1]), float(match[2] or match[1])
    if not -100 < low <= high <= 10_000:
        raise typer.BadParameter(f"--growth {text!r}: from above -100 to 10000, the lower one first")
    return Growth(1 + low / 100, 1 + high / 100)
