"""Names of many hosts on one line, and back."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headrace.base.errors import PlanError
from headrace.host.ranges import expand, fold


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("db1", ["db1"]),
        ("db[1-3,7]", ["db1", "db2", "db3", "db7"]),
        ("db[08-11].eu, web1", ["db08.eu", "db09.eu", "db10.eu", "db11.eu", "web1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("db[0-10/5]", ["db0", "db5", "db10"]),
        ("root@[::1]:22 db1", ["root@[::1]:22", "db1"]),
        ("", []),
    ],
)
def test_a_range_is_its_names(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "db[1-",
        "db1]",
        "db[[1]]",
        "db[a-b]",
        "db[3-1]",
        "db[1-999999999]",
        "a[1-9999]b[1-9999]",
        "db[]",
        f"db[{'1' * 5000}]",
    ],
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        expand(text)


def test_a_bracket_of_many_ranges_is_not_written_out() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PlanError, match="more than"):
            expand(f"db[{','.join(['1-99999'] * 20)}]")
        # 2,000,000 numbers as text take 100 MB.
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([f"db{n}" for n in (*range(1, 13), 14)], "db[1-12,14]"),
        (["db08", "db09", "db10"], "db[08-10]"),
        (["db2", "db10", "db1"], "db[1-2,10]"),
        (["r1n1", "r1n2", "r2n1", "r2n2"], "r[1-2]n[1-2]"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.[1-2]"),
        (["web", "db1"], "db1,web"),
        ([], ""),
    ],
)
def test_names_are_folded(names: list[str], text: str) -> None:
    assert fold(names) == text


@given(some.sets(some.from_regex(r"[a-c]{0,2}[0-9]{0,3}(-[0-9]{1,2})?(\.x)?", fullmatch=True).filter(bool)))
def test_folded_names_are_the_same_names(names: set[str]) -> None:
    assert sorted(expand(fold(names))) == sorted(names)
