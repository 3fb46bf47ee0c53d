"""The form of a case of `benches/indexes.py`, and a table of numbers from which the others are made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: A table `n` with the numbers from 0 to 399,999.
_DIGITS = " UNION ALL ".join(f"SELECT {digit}" for digit in range(10))
NUMBERS = (
    "CREATE TABLE n (n INT PRIMARY KEY) "
    "SELECT a.d + 10*b.d + 100*c.d + 1000*e.d + 10000*f.d + 100000*g.d AS n FROM "
    + ", ".join(f"(SELECT 0 AS d UNION ALL {_DIGITS.partition(' UNION ALL ')[2]}) {name}" for name in "abcef")
    + ", (SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) g"
)


@dataclass(frozen=True)
class Case:
    """``lacks``: the indexes that are right, any of them, as `table(column, column)`; none for a decoy.

    ``says``: a pattern of what has to be said of the statement; ``on``: how the names of the servers begin that
    know its words.
    """

    name: str
    statements: tuple[tuple[str, int], ...]
    lacks: tuple[str, ...] = ()
    says: str = ""
    on: str = ""

    @property
    def right(self) -> frozenset[tuple[str, tuple[str, ...]]]:
        found = (re.match(r"(\w+)\((.*)\)", each) for each in self.lacks)
        return frozenset((each[1], tuple(each[2].split(","))) for each in found if each)


@dataclass(frozen=True)
class Plant:
    """A database and its cases; ``redundant``: the indexes of it that another one replaces."""

    database: str
    schema: Sequence[str]
    cases: Sequence[Case]
    redundant: frozenset[str]


def case(name: str, text: str, *lacks: str, on: str = "") -> Case:
    return Case(name, ((text, 1),), lacks, on=on)
