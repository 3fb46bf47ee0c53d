"""Patterns as the C library matches them; `tests/real/devices/test_boot.py` runs systemd's programs on some."""

from __future__ import annotations

import ctypes
import itertools

import pytest

from headrace.change.persist.patterns import expanded, fits, is_globbed


def of_library(name: str, pattern: str) -> bool:
    library = ctypes.CDLL(None)
    return bool(library.fnmatch(pattern.encode(), name.encode(), 0) == 0)


PARTS = (
    "a",
    "*",
    "?",
    "[ab]",
    "[!a]",
    "[^a]",
    "[a-c]",
    "[]a]",
    "[[:digit:]]",
    "[",
    "\\*",
    "[c-a]",
    "[a-]",
    "-",
)


def test_they_fit_as_fnmatch_says() -> None:
    names = ("", "a", "b", "1", "*", "aa", "a1", "]", "[", "[a", "a-", "-", "ab")
    patterns = ["".join(each) for size in (1, 2) for each in itertools.product(PARTS, repeat=size)]
    wrong = [
        (name, pattern)
        for pattern in patterns
        for name in names
        if fits(name, pattern) != of_library(name, pattern)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("/a/*", "/a/b", True),
        ("/a/*", "/a/b/c", False),
        ("/a?b", "/a/b", False),
        ("/a[/]b", "/a/b", False),
        ("/{a,b}/c", "/b/c", True),
        ("/{a,{b,c}}/d", "/c/d", True),
        ("/a{}b", "/ab", True),
        ("/{a,b/c", "/a/c", False),
    ],
)
def test_files_of_a_glob(pattern: str, path: str, is_match: bool) -> None:
    assert is_globbed(path, pattern) is is_match


def test_braces_that_would_be_a_million_words_are_not() -> None:
    assert len(expanded("{a,b}" * 40)) <= 1000
