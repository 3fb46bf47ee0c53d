"""The one reader of TOML: what no person writes is refused before the parser, and everything else is not."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.base import toml
from headrace.base.errors import PlanError
from headrace.experiment import plan
from headrace.fleet import inventory
from headrace.tell import files
from tests.folders import ROOT

MOST = toml.MOST_PARTS
BY_HAND = '"a.b" .\t\'c."d\' . e-1'


def key(parts: int) -> str:
    return ".".join("a" * parts)


@pytest.mark.parametrize(
    "text",
    [
        f"{key(MOST)} = 1",
        f"[{key(MOST)}]\n{key(MOST)} = 1",
        f"{BY_HAND} = 1",
        # Dots, quotes and hashes in texts are no keys.
        f"a = \"{key(99)}\"\nb = '{key(99)}'",
        f'a = """"\n{key(99)} = 1\n""""" # {key(99)} = "\nb = 1',
        f"a = '''\n''{key(99)} = 1\n''''' # {key(99)} = '\nb = 1",
        f'a = "\\"{key(99)}\\\\" # {key(99)}\nb = "#"',
    ],
)
def test_what_people_write_is_read_as_by_the_parser(text: str) -> None:
    assert toml.parse(text) == tomllib.loads(text)


def test_every_example_is_within_the_limits() -> None:
    for path in sorted((ROOT / "examples").glob("*.toml")):
        assert toml.parse(toml.read(path)) == tomllib.loads(path.read_text())


@pytest.mark.parametrize(
    "line",
    [
        f"{key(MOST + 1)} = 1",
        f"[{key(MOST + 1)}]",
        f"[[{key(MOST + 1)}]]",
        f"a = {{ b = [ {{ {key(MOST + 1)} = 1 }} ] }}",
        f"{BY_HAND} . {key(MOST)} = 1",
        f"{key(MOST)}.'a' = 1",
        f'"" .{key(MOST)} = 1',
    ],
)
@pytest.mark.parametrize(
    "before",
    ["", 'text = "\\"" # "', "text = '\\' # '", 'text = """"""', 'text = """\\""""""""', "text = ''''a'''''"],
)
def test_a_key_of_too_many_parts_is_named_by_its_line(before: str, line: str) -> None:
    with pytest.raises(toml.LimitError, match=rf"line 2: a key with more than {MOST} parts"):
        toml.parse(f"{before}\n{line}")


def test_a_file_is_read_up_to_the_limit_only(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text("#" * toml.MOST_CHARACTERS)
    assert toml.parse(toml.read(path)) == {}
    with path.open("a") as file:
        file.truncate(1 << 40)  # a file with holes: it would not fit into the memory
    with pytest.raises(toml.LimitError, match="longer than 1,048,576 characters"):
        toml.read(path)


READERS: dict[str, Callable[[Path], Any]] = {
    "plan": plan.load,
    "fleet": lambda path: inventory.load(str(path)),
    "settings": files.settings,
}


@pytest.mark.parametrize("load", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{key(30_000)} = 1", "line 1: a key with more than"),
        ("#" * (toml.MOST_CHARACTERS + 1), "longer than"),
        ("a = " + "[" * 100_000, "too deeply nested"),
        ("a = " + "9" * 10_000, "not "),
    ],
    ids=["key", "file", "brackets", "digits"],
)
def test_every_reader_refuses_with_an_error_for_a_person(
    load: Callable[[Path], Any], text: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "hostile.toml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(PlanError, match=said) as error:
        load(path)
    assert "hostile.toml" in str(error.value)
    # Milliseconds: the parser takes minutes.
    assert time.process_time() - began < 30


@pytest.mark.parametrize(
    "text",
    ['a = "' + '\\"' * 400_000, '"' * 900_000, "'''" + "''a" * 300_000, "a" * 900_000, "a" + " " * 900_000],
    ids=["escapes", "quotes", "open", "word", "blanks"],
)
def test_the_time_of_the_check_is_linear(text: str) -> None:
    began = time.process_time()
    with pytest.raises(tomllib.TOMLDecodeError):
        toml.parse(text)
    # Tenths of a second: a scan that starts again at each character takes hours.
    assert time.process_time() - began < 60
