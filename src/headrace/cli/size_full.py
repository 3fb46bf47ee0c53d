"""The commands ``size full`` and ``size demand``: when hosts are full, and what calls cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import grouped, seconds_of
from headrace.cli.shell import Json, PageFile, say, write_page
from headrace.cli.size_app import size_app
from headrace.errors import PlanError, StoreError

if TYPE_CHECKING:
    from headrace.facts import HostFacts
    from headrace.size.capacity import Known
    from headrace.size.history import History

#: In place of a host's name: all hosts.
ANY = ""


@dataclass(frozen=True)
class SourceOptions:
    """What was recorded."""

    host: Annotated[
        list[str] | None, typer.Option("--host", metavar="NAME", help="Only this host; repeatable.")
    ] = None
    step: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Length of a step [1m of up to two days, otherwise 1h].", show_default=False
        ),
    ] = ""


@dataclass(frozen=True)
class CapacityOptions:
    """What was measured on the hosts; without HOST= of all of them."""

    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep", metavar="[HOST=]DIR", help="A finished `headrace sweep`: its knee; repeatable."
        ),
    ] = None
    ladder: Annotated[
        list[str] | None,
        typer.Option(
            "--ladder", metavar="[HOST=]FILE", help="Output of `headrace ladder --json`; repeatable."
        ),
    ] = None
    facts: Annotated[
        list[str] | None,
        typer.Option("--facts", metavar="[HOST=]FILE", help="Output of `headrace facts --json`; repeatable."),
    ] = None


Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="[SOURCE]",
        help="History of `headrace serve`, or samples: a file or a directory of them [the history of serve].",
        show_default=False,
    ),
]


@size_app.command(
    epilog="Example: headrace size full; headrace size full samples/ --sweep sweep-oltp --html full.html",
)
@grouped
def full(
    source: Source = None,
    which: SourceOptions = SourceOptions(),
    measured: CapacityOptions = CapacityOptions(),
    page: PageFile = None,
    as_json: Json = False,
) -> None:
    """Show how full hosts are at their peak, of what, and until when.

    Peaks are compared with knees, not averages with limits. Measure the knee with `headrace sweep`; without
    one it is assumed from a queue of as many servers, and said to be so.
    """
    from headrace.report.size.full import page_of
    from headrace.size import full as sizes

    histories = _read(source, which)
    known = _capacities(histories, measured)
    hosts = [sizes.outlook(history, known[history.host]) for history in histories]
    content = page_of(hosts, sizes.together(histories, known))
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

    CPU, device, log and network, from how their use moved with the calls. Classes that always come together
    are named, and only the cost of all of them is stated.
    """
    from headrace.report.size.demand import page_of
    from headrace.size import demand as demands

    histories = _read(source, which)
    content = page_of([demands.costs(history) for history in histories], histories)
    if page is not None:
        write_page(page, content)
    say(content, as_json)


def _read(source: Path | None, which: SourceOptions) -> list[History]:
    from headrace.size.history import read
    from headrace.snapshot import state_path

    step_s = int(seconds_of(which.step) or 0)
    return read(source or state_path("history"), step_s, which.host or ())


def _capacities(histories: Sequence[History], measured: CapacityOptions) -> dict[str, Known]:
    from headrace.size import capacity

    names = [history.host for history in histories]
    sweeps = {h: capacity.of_sweep(path) for h, path in _by_host(measured.sweep, names, "--sweep").items()}
    ladders: dict[str, dict[str, Any]] = {}
    for word in measured.ladder or ():
        # Latencies and packets of one host are two files.
        for h, path in _by_host([word], names, "--ladder").items():
            own, more = ladders.setdefault(h, {"rungs": []}), capacity.read_ladder(path)
            ladders[h] = {**own, **more, "rungs": [*own["rungs"], *more["rungs"]]}
    facts = {h: _facts(path) for h, path in _by_host(measured.facts, names, "--facts").items()}
    return {
        history.host: capacity.known(
            history.host,
            history.limits,
            facts.get(history.host, facts.get(ANY)),
            ladders.get(history.host, ladders.get(ANY)),
            sweeps.get(history.host, sweeps.get(ANY)),
        )
        for history in histories
    }


def _by_host(words: Sequence[str] | None, names: Sequence[str], option: str) -> Mapping[str, Path]:
    """``HOST=PATH`` -> {host: path}; a path alone is of all hosts. A path may contain ``=``."""
    found: dict[str, Path] = {}
    for word in words or ():
        host, is_named, path = word.partition("=")
        if not is_named or Path(word).exists():
            host, path = ANY, word
        elif host not in names:
            raise PlanError(
                f"no host is named {host}", place=option, hint=f"the source has {', '.join(names[:20])}"
            )
        found[host] = Path(path)
    return found


def _facts(path: Path) -> HostFacts:
    from headrace.facts import HostFacts
    from headrace.model import Facts
    from headrace.size.capacity import read_json

    content = read_json(path)
    facts = HostFacts(Facts(str(content.get("hash", "")), content.get("data", content)))
    try:
        _ = facts.cpu_count, facts.memory_bytes
    except (KeyError, TypeError, ValueError, StoreError) as error:
        raise StoreError("this is not the output of `headrace facts --json`", place=str(path)) from error
    return facts
