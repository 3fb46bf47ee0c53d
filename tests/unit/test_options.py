"""Options mean the same in every command, and times have units."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import typer
import typer.main
from typer.testing import CliRunner

from headrace import cli
from headrace.cli.options import duration, duration_text
from headrace.cli.shell import app


def parameters(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield from ((name, parameter) for parameter in command.params)
    for child in getattr(command, "commands", {}).values():
        yield from parameters(child, f"{name} {child.name}")


@functools.cache
def options() -> list[tuple[str, Any]]:
    """Each option of each command, with the command's name."""
    cli.load()
    both = parameters(typer.main.get_command(app), "headrace")
    return [(name, option) for name, option in both if option.param_type_name == "option"]


def seconds(text: str) -> float:
    """The value that a command gets from ``--for TEXT``. Raises ValueError with its message."""
    taken: list[float] = []

    def command(
        for_s: Annotated[float, duration("--for", text="", least_s=0.5, most_s=172_800)] = 7.0,
    ) -> None:
        taken.append(for_s)

    one = typer.Typer()
    one.command()(command)
    answer = CliRunner().invoke(one, ["--for", text] if text else [])
    if answer.exit_code:
        raise ValueError(" ".join(re.sub(r"[│╭╰─╯╮]", " ", answer.output).split()))
    return taken[0]


def test_a_time_has_a_unit() -> None:
    given = ["", "30s", "5m", "1.5h", "2d", "500ms", "0.5s"]
    assert [seconds(text) for text in given] == [7, 30, 300, 5400, 172_800, 0.5, 0.5]


@pytest.mark.parametrize("text", ["30", "s", "-1s", "1 s", "1w", "1e3s", "inf", "nan", "499ms", "3d", "٣s"])
def test_a_time_without_a_unit_or_outside_the_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write a number with its unit.* from 500ms to 2d"):
        seconds(text)


@pytest.mark.parametrize("value", [0, 0.25, 1, 20, 90, 3600, 7200, 2_592_000])
def test_a_time_in_a_command_that_is_proposed_is_read_back(value: float) -> None:
    assert (seconds(duration_text(value)) if 0.5 <= value <= 172_800 else value) == value
    assert re.fullmatch(r"[0-9.]+(ms|s|m|h|d)", duration_text(value))


def test_no_option_takes_a_bare_number_of_seconds_or_days() -> None:
    units = re.compile(r"\b(seconds|minutes|hours|days)\b", re.IGNORECASE)
    wrong = [
        f"{name} {option.opts[0]}: {option.help}"
        for name, option in options()
        if option.type_descriptor.parameter_info.parser is None
        and option.type_descriptor.annotation in (int, float)
        and units.search(f"{option.metavar} {option.help}")
        and "same hours of N earlier weeks" not in option.help
    ]
    assert len(options()) > 400
    assert not wrong
