"""What the Python drivers of benches/clients.py share: their statements, and one JSON line per case.

A driver is called as `DRIVER CASE ...` with HR_HOST, HR_PORT, HR_CLIENT (its database, and the first part of its
accounts), HR_TLS (1: every connection is encrypted) and HR_FILE (the file of LOAD DATA LOCAL) in its environment.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

HOST, PORT = os.environ["HR_HOST"], int(os.environ["HR_PORT"])
CLIENT, FILE = os.environ["HR_CLIENT"], os.environ["HR_FILE"]
TLS = os.environ["HR_TLS"] == "1"
PASSWORD = "secret"

MIB = 1 << 20


def _statements() -> dict[str, list[str]]:
    """The same for every language: sections of statements."""
    found = {}
    for section in Path(__file__).with_name("statements.txt").read_text().split("== ")[1:]:
        name, _, text = section.partition("\n")
        found[name] = [part.removesuffix("\n") for part in text.replace("{file}", FILE).split("\n%\n")]
    return found


STATEMENTS = _statements()
MOMENT = datetime.datetime(2024, 2, 29, 23, 59, 58, 123456)
#: A value that can be read is sent ahead of its execution, in pieces.
ROWS: tuple[tuple[object, ...], ...] = (
    (-128, 255, -32768, 8388607, -2147483648, 4294967295, -(2**63), 2**64 - 1, 1.5, -2.25e300,
     decimal.Decimal("-12345678.901234"), 5, datetime.date(1000, 1, 1), MOMENT, MOMENT,
     datetime.timedelta(hours=-838, minutes=-59, seconds=-59), 2155, "žluťoučký", "x" * 70_000, bytes(range(256)),
     '{"a": [1, null]}', "b", "a,c"),
    (None,) * 23,
    (0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, decimal.Decimal("0"), 0, datetime.date(9999, 12, 31),
     datetime.datetime(1970, 1, 2), datetime.datetime(2037, 1, 1), datetime.timedelta(0), 1901, "", "",
     io.BytesIO(bytes(30_000)), "[]", "a", ""),
)  # fmt: skip
#: Sizes of whole requests: of the command's byte and its text.
LARGE = (15 * MIB, (1 << 24) - 1, 17 * MIB, 33 * MIB)


class Absent(Exception):
    """The library cannot do this; the text says why."""


def of_length(length: int) -> str:
    frame = f"SELECT {length} AS size, MD5('')"
    return frame.replace("''", "'" + "x" * (length - 1 - len(frame)) + "'")


def account(case: str) -> str:
    return f"{CLIENT}_{case}"


def run(cases: dict[str, Callable[[], None]]) -> None:
    """Run those that the command line names, each with its line; a case that is not there is one that fails."""
    for name in sys.argv[1:]:
        said: dict[str, object] = {"case": name}
        try:
            cases[name]()
        except Absent as reason:
            said["absent"] = str(reason)
        except Exception as error:
            said["failed"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps(said), flush=True)
