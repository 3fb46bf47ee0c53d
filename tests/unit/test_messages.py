"""Messages in numbers and names: one thing has no plural, and a place is named once."""

from __future__ import annotations

import re

import pytest

from headrace.counted import counted
from headrace.errors import HeadraceError, placed
from tests.folders import ROOT


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (1, ("host",), "1 host"), (0, ("host",), "0 hosts"), (2, ("class", "classes"), "2 classes"),
        (1, ("class", "classes"), "1 class"), (12_345, ("row",), "12,345 rows"),
    ],
)  # fmt: skip
def test_numbers_of_things(number: int, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text


@pytest.mark.parametrize(
    ("place", "message", "text"),
    [
        ("db1", "no route", "db1: no route"),
        ("127.0.0.11", "127.0.0.11: connection refused", "127.0.0.11: connection refused"),
        ("db1", "db1 does not answer", "db1 does not answer"),
        ("db1", "db10: no route", "db1: db10: no route"),
        ("db1", "db1", "db1"),
        (None, "no route", "no route"),
        ("", "no route", "no route"),
    ],
)
def test_a_place_is_named_once(place: str | None, message: str, text: str) -> None:
    assert placed(place, message) == text
    assert str(HeadraceError(message, place=place)) == text


ONE = re.compile(
    r"(?:^|[\"'( ])1 (?:more )?(?:hosts|trials|classes|statements|points|blocks|sessions|connections|levels|cells|"
    r"servers|pairs|files|devices|processes|threads|predictions|times|warnings)\b(?! (?:\+|=))"
)
#: What the agent says, and what tells of a text of before.
LEFT = {"tests/unit/test_digests.py", "tests/unit/test_import.py", "tests/unit/test_messages.py"}


def test_no_expected_text_has_one_of_several() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for folder in ("tests/unit", "tests/rules", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md") and str(path.relative_to(ROOT)) not in LEFT
        for line in path.read_text().splitlines()
        for match in ONE.finditer(line)
    ]
    assert not found
