"""The commands ``size full`` and ``size demand``: when hosts are full, and what calls cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.base.errors import PlanError, StoreError
from headrace.capacity.commands.size_app import size_app
from headrace.capacity.commands.size_source import (
    ANY,
    Source,
    SourceOptions,
    amounts,
    keep,
    named,
    number_of,
    place_of,
    read,
)
from headrace.cli.options import grouped
from headrace.cli.shell import Json, PageFile, say, write_page

if TYPE_CHECKING:
    from headrace.capacity.capacity import Known
    from headrace.capacity.history import History
    from headrace.capacity.model import Resource
    from headrace.capacity.pool import Pool
    from headrace.host.facts import HostFacts


@dataclass(frozen=True)
class CapacityOptions:
    """What was measured on the hosts; without HOST= of all of them."""

    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep", metavar="[HOST=]DIR", help="The directory of a finished sweep: its knee; repeatable."
        ),
    ] = None
    ladder: Annotated[
        list[str] | None,
        typer.Option(
            "--latencies", metavar="[HOST=]FILE", help="Output of `headrace latencies --json`; repeatable."
        ),
    ] = None
    facts: Annotated[
        list[str] | None,
        typer.Option("--facts", metavar="[HOST=]FILE", help="Output of `headrace facts --json`; repeatable."),
    ] = None
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit", metavar="[HOST=]RESOURCE=N", help="A limit that you know: reads=3000; repeatable."
        ),
    ] = None


@dataclass(frozen=True)
class BuyOptions:
    """What you think of buying; without HOST= for all hosts."""

    instead: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="[HOST=]RESOURCE=N",
            help="Another limit, to see its effect: reads=6000, memory=64G (the pool); repeatable.",
        ),
    ] = None
    pool: Annotated[
        list[str] | None,
        typer.Option(
            "--pool",
            metavar="[HOST=]FILE",
            help="Samples at one size of the buffer pool, today's first; twice or more.",
        ),
    ] = None
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data-size", metavar="[HOST=]SIZE", help="Data and indexes in use, for --pool: 40G; repeatable."
        ),
    ] = None


@size_app.command(
    epilog="Example: headrace size full; headrace size full samples/ --sweep sweep-oltp --html full.html",
)
@grouped
def full(
    source: Source = None,
    which: SourceOptions = SourceOptions(),
    measured: CapacityOptions = CapacityOptions(),
    buying: BuyOptions = BuyOptions(),
    page: PageFile = None,
    as_json: Json = False,
) -> None:
    """Show how full each host is at its peak, and when it is full. Names the resource that fills first.

    Peaks are compared with knees, not averages with limits. `headrace run sweep` measures the knee of the resource
    that it fills; all others are assumed from a queueing model with that many servers, and marked as assumed.
    """
    from headrace.capacity import foretold
    from headrace.capacity import full as sizes
    from headrace.capacity.report.full import page_of

    histories, left_out = read(source, which, with_calls=False)
    known = _capacities(histories, measured)
    histories = [sizes.summed(history, known[history.host]) for history in histories]
    pools, instead = (
        _pools(histories, buying),
        amounts(buying.instead, [each.host for each in histories], "--what-if"),
    )
    hosts = []
    for history in histories:
        own, pool = instead[history.host], pools.get(history.host)
        _check(own, history, known[history.host], pool)
        hosts.append(sizes.outlook(history, known[history.host], pool, own))
    keep(lambda: foretold.of_full(hosts, histories, place_of(source)))
    content = page_of(hosts, sizes.together(histories, known), left_out)
    if page is not None:
        write_page(page, content)
    say(content, as_json)


@size_app.command(
    epilog="Example: headrace size demand --host db1; headrace size demand db1.jsonl.zst --json",
)
@grouped
def demand(
    source: Source = None,
    which: SourceOptions = SourceOptions(),
    page: PageFile = None,
    as_json: Json = False,
) -> None:
    """Estimate what one call of each query class costs.

    The use of CPU, device, log and network is compared with the calls over time. Classes that always occur
    together are named, and only their combined cost is given.
    """
    from headrace.capacity import demand as demands
    from headrace.capacity.report.demand import page_of

    histories, left_out = read(source, which)
    content = page_of([demands.costs(history) for history in histories], histories, left_out)
    if page is not None:
        write_page(page, content)
    say(content, as_json)


def _capacities(histories: Sequence[History], measured: CapacityOptions) -> dict[str, Known]:
    from headrace.capacity import capacity

    names = [history.host for history in histories]
    sweeps = {h: capacity.of_sweep(path) for h, path in _by_host(measured.sweep, names, "--sweep").items()}
    # Latencies and packets of one host are two files, and one of them may be of all hosts.
    files = _files(measured.ladder, names, "--latencies")
    ladders = {h: [capacity.read_ladder(path) for path in paths] for h, paths in files.items()}
    given = amounts(measured.limit, names, "--limit")
    facts = {h: _facts(path) for h, path in _by_host(measured.facts, names, "--facts").items()}
    return {
        history.host: capacity.known(
            history.host,
            history.limits,
            facts.get(history.host, facts.get(ANY)),
            capacity.laid_over([*ladders.get(ANY, ()), *ladders.get(history.host, ())]),
            sweeps.get(history.host, sweeps.get(ANY)),
            given[history.host],
        )
        for history in histories
    }


def _pools(histories: Sequence[History], buying: BuyOptions) -> dict[str, Pool]:
    from headrace.capacity.pool_samples import read

    names = [history.host for history in histories]
    files, sizes = _files(buying.pool, names, "--pool"), _sizes(buying.data, names)
    found: dict[tuple[tuple[Path, ...], float], Pool] = {}
    pools = {}
    for host in names:
        # A curve is of one host: its own files replace those of all. Its data may be its own with either.
        paths, size = tuple(files.get(host, files.get(ANY, ()))), sizes.get(host, sizes.get(ANY, math.inf))
        if paths:
            if (paths, size) not in found:
                found[paths, size] = read(paths, size)
            pools[host] = found[paths, size]
    return pools


def _files(words: Sequence[str] | None, names: Sequence[str], option: str) -> dict[str, list[Path]]:
    """As ``_by_host``, of an option that is given several times for one host."""
    files: dict[str, list[Path]] = {}
    for word in words or ():
        for host, path in _by_host([word], names, option).items():
            files.setdefault(host, []).append(path)
    return files


def _sizes(words: Sequence[str] | None, names: Sequence[str]) -> dict[str, float]:
    """``[HOST=]SIZE`` -> {host: bytes}."""
    found = {}
    for word in words or ():
        host, _, number = word.rpartition("=")
        found[named(host, names, "--data-size") if host else ANY] = number_of(
            number, 1024, word, "--data-size", "40G"
        )
    return found


def _check(instead: Mapping[Resource, float], history: History, known: Known, pool: Pool | None) -> None:
    """What has no limit now, nobody can compare with another one."""
    from headrace.capacity.capacity import STOCKS
    from headrace.capacity.model import Resource

    for resource in instead:
        if resource in STOCKS and resource is not Resource.MEMORY:
            raise PlanError(
                f"{resource} fills by itself, not with each call: no load fits because of it",
                place="--what-if",
                hint=f"when another size is full: --limit {history.host}={resource}=N",
            )
        if resource is Resource.MEMORY and pool is None:
            raise PlanError(
                "it is unknown how many reads a larger pool saves", place="--what-if",
                hint="give --pool twice: samples at two sizes",
            )  # fmt: skip
        full = Resource.READS if resource is Resource.MEMORY else resource
        is_used = full in history.demand.used
        if is_used and known.is_at_least(full):
            raise PlanError(
                f"{history.host}: of the limit of {full} only a lower bound is known", place="--what-if",
                hint=f"give today's limit: --limit {history.host}={full}=N",
            )  # fmt: skip
        if not is_used or known.full_at(full) is None:
            raise PlanError(
                f"{history.host}: the use or the limit of {full} is unknown", place="--what-if",
                hint="give today's limit as well: --limit reads=3000",
            )  # fmt: skip


def _by_host(words: Sequence[str] | None, names: Sequence[str], option: str) -> Mapping[str, Path]:
    """``HOST=PATH`` -> {host: path}; a path alone is of all hosts. A path may contain ``=``."""
    found: dict[str, Path] = {}
    for word in words or ():
        host, is_named, path = word.partition("=")
        if not is_named or Path(word).exists():
            host, path = ANY, word
        else:
            named(host, names, option)
        found[host] = Path(path)
    return found


def _facts(path: Path) -> HostFacts:
    from headrace.base.model import Facts
    from headrace.capacity.capacity import read_json
    from headrace.host.facts import HostFacts

    content = read_json(path)
    facts = HostFacts(Facts(str(content.get("hash", "")), content.get("data", content)))
    try:
        _ = facts.cpu_count, facts.memory_bytes
    except (KeyError, TypeError, ValueError, StoreError) as error:
        raise StoreError("this is not the output of `headrace facts --json`", place=str(path)) from error
    return facts
