"""What the commands of ``size`` read: a source that was measured, and amounts by host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.base.errors import PlanError, StoreError
from headrace.cli.options import duration
from headrace.cli.shell import tell

if TYPE_CHECKING:
    from headrace.capacity.history import History
    from headrace.capacity.model import Resource

#: In place of a host's name: all hosts.
ANY = ""


@dataclass(frozen=True)
class SourceOptions:
    """What was recorded."""

    host: Annotated[
        list[str] | None, typer.Option("--host", metavar="NAME", help="Only this host; repeatable.")
    ] = None
    step_s: Annotated[
        float | None,
        duration("--step", text="Length of a step [1m of up to two days, otherwise 1h]."),
    ] = None


#: Of a command.
Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="SOURCE",
        help="History of `headrace serve`, or samples: a file or a directory of them [the history of serve].",
        show_default=False,
    ),
]


def place_of(source: Path | None) -> str:
    """What a source is called between commands."""
    from headrace.base.state import state_path

    return str((source or state_path("history")).resolve())


def keep(work: Callable[[], None]) -> None:
    """Keep predictions; a report does not fail for them."""
    try:
        work()
    except StoreError as error:
        tell(f"predictions are not kept: {error}")


def read(
    source: Path | None, which: SourceOptions, *, with_calls: bool = True
) -> tuple[list[History], list[str]]:
    """The hosts, and which files were left out. ``with_calls``: also calls of query classes, most of a history."""
    from headrace.base.state import state_path
    from headrace.capacity import history

    path, step_s = source or state_path("history"), int(which.step_s or 0)
    if which.host:
        names = history.names(path)
        for host in which.host:
            named(host, names, "--host")
    left_out: list[str] = []
    found = history.read(path, step_s, which.host or (), left_out.append, with_calls=with_calls)
    return found, left_out


def number_of(text: str, unit: int, word: str, option: str, example: str) -> float:
    """``unit``: what K multiplies by."""
    from headrace.capacity.amounts import amount

    value = amount(text, unit)
    if not value:
        raise PlanError(f"{word}: not an amount", place=option, hint=example)
    return value


def named(host: str, names: Sequence[str], option: str) -> str:
    if host not in names:
        raise PlanError(
            f"no host is named {host}", place=option, hint=f"the source has {', '.join(names[:20])}"
        )
    return host


def amounts(
    words: Sequence[str] | None, names: Sequence[str], option: str
) -> dict[str, dict[Resource, float]]:
    """``[HOST=]RESOURCE=N`` -> {host: {resource: n}} of every host; one of its own replaces that of all hosts."""
    from headrace.capacity.amounts import unit_of
    from headrace.capacity.model import Resource

    found: dict[str, dict[Resource, float]] = {name: {} for name in names}
    for word in sorted(words or (), key=lambda word: word.count("=")):
        start, _, number = word.rpartition("=")
        host, is_named, resource = start.rpartition("=")
        if resource not in list(Resource):
            raise PlanError(
                f"{word}: not a resource and its amount", place=option,
                hint=f"reads=3000, memory=64G; resources: {', '.join(Resource)}",
            )  # fmt: skip
        value = number_of(number, unit_of(resource), word, option, f"{resource}=3000")
        for name in [named(host, names, option)] if is_named else names:
            found[name][Resource(resource)] = value
    return found
