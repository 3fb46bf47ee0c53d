"""Work grows with a digest's lines and no faster, whatever is in them: their host may not be trusted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.traffic.digests.lines import read_each, read_lines
from headrace.traffic.digests.merge import merge
from tests import digests
from tests.digests import SECOND_NS, START_NS, Event, Shape

#: For twice the input; four times as much may take this squared.
MOST_FOR_TWICE = 2.5
#: CPU seconds of what costs the same however long it is.
SLACK_S = 0.1
#: Neighbours on the machine cost CPU time as well: the best of a few.
TRIES = 5


def cpu_s(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def must_be_linear(size: int, make: Callable[[int], Any], read: Callable[[Any], object]) -> None:
    short, long = make(size), make(4 * size)
    read(short)
    costs = []
    for _ in range(TRIES):
        once, four = cpu_s(lambda: read(short)), cpu_s(lambda: read(long))
        if four <= MOST_FOR_TWICE**2 * once + SLACK_S:
            return
        costs.append((once, four))
    raise AssertionError(costs)


def of(event: Callable[[int], Event]) -> Callable[[int], list[str]]:
    return lambda count: digests.lines(event(number) for number in range(count))


def at(number: int, **changes: Any) -> Event:
    return Event(START_NS + number * SECOND_NS // 100, **changes)


def with_places(count: int) -> list[str]:
    places = [{"source": "slow.log", "at": number, "what": "damaged"} for number in range(count)]
    return digests.lines([at(0)], Shape(coverage={"places": places}))


def one_class_again(count: int) -> list[str]:
    """Lines of one class, which a digest has once, as often as somebody likes."""
    head, totals, heat, line, _ = digests.lines([at(0)])
    return [head, totals, heat, *[line] * count, json.dumps({"type": "end", "classes": count})]


def intervals(count: int) -> list[str]:
    return digests.lines([at(0), at(1, klass=1)]) * count


SHAPES: dict[str, tuple[int, Callable[[int], list[str]]]] = {
    "classes": (400, of(lambda i: at(i, klass=i))),
    "users": (5000, of(lambda i: at(i, user=f"u{i}"))),
    "users of each class": (2000, of(lambda i: at(i, klass=i % 20, user=f"u{i}"))),
    "errors": (2000, of(lambda i: at(i, error=1 + i))),
    "seconds": (3000, of(lambda i: Event(START_NS + i * SECOND_NS))),
    "days": (3000, of(lambda i: Event(START_NS + i * 86_400 * SECOND_NS))),
    "response times": (5000, of(lambda i: at(i, response_ns=1 + i**3))),
    "places": (15_000, with_places),
    "one class again": (1500, one_class_again),
    "intervals": (60, intervals),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_four_times_the_lines_are_four_times_the_work(shape: str) -> None:
    size, make = SHAPES[shape]
    must_be_linear(size, make, lambda lines: read_lines(lines, "hostile"))


def test_four_times_the_parts_are_four_times_the_work() -> None:
    tables = read_each(intervals(2), "part")
    must_be_linear(200, lambda count: tables * count, merge)
