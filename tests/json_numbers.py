"""Numbers in JSON that are written as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_NUMBER = re.compile(r"-?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?([eE][+-]?\d+)?")
#: How Python writes what JSON has its own words for.
_WORDS = ("True", "False", "None", "nan", "inf", "-inf", "NaN", "Infinity", "-Infinity")


def is_number(text: str) -> bool:
    """Whether a text is nothing but a number, a boolean or a missing value."""
    return text in _WORDS or _NUMBER.fullmatch(text) is not None


def numbers_as_text(content: Any, path: str = "") -> Iterator[str]:
    """The places of parsed JSON where a program finds the text of a number, each with the text."""
    if isinstance(content, str) and is_number(content):
        yield f"{path}: {content!r}"
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from numbers_as_text(value, f"{path}.{key}")
    elif isinstance(content, list):
        for value in content:
            yield from numbers_as_text(value, f"{path}[]")
