"""JSON as a table: objects in an array, one a line, within others, or columns."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from typing import Any

from headrace.experiment.foreign.grid import Grid

#: The column of the keys of an object whose values are the rows.
KEY = "(key)"
#: Deeper values stay text.
MOST_DEEP = 8


def of_json(text: str, needed: Sequence[str]) -> Grid | None:
    """The table of a file that begins as JSON; None if it is none. Raises csv.Error if it is cut off."""
    contents, notes = _contents(text)
    if not contents:
        if re.match(r"[\[{]\s*[\[{\"]", text):
            raise csv.Error("its JSON is cut off, or not valid")
        return None
    rows = _rows(contents[0][1] if len(contents) == 1 else [each for _, each in contents], notes)
    if not rows:
        return None
    numbers = [line for line, _ in contents] if len(contents) == len(rows) else range(1, len(rows) + 1)
    records = [
        (number, record)
        for number, row in zip(numbers, rows, strict=True)
        for record in _repeats(_flat(row), needed)
    ]
    header = list(dict.fromkeys(name for _, each in records for name in each))
    lines = [(number, [_cell(each.get(name)) for name in header]) for number, each in records]
    return Grid(header, lines, ",", notes)


def _contents(text: str) -> tuple[list[tuple[int, Any]], list[str]]:
    """Each JSON value of the text with its line, and a note if the last is cut off."""
    decoder, place = json.JSONDecoder(), 0
    found: list[tuple[int, Any]] = []
    while place < len(text):
        if text[place] in " \t\r\n,\x1e":
            place += 1
            continue
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            line = text.count("\n", 0, place) + 1
            return found, [f"line {line} is cut off or no JSON, and what follows it is left out"]
        found.append((text.count("\n", 0, place) + 1, value))
        place = end
    return found, []


def _rows(content: Any, notes: list[str]) -> list[dict[str, Any]]:
    """The objects that are rows; empty if nothing looks like a table."""
    if isinstance(content, list):
        if content and all(isinstance(each, dict) for each in content):
            return content
        lists = [each for each in content if isinstance(each, list)]
        if len(lists) == len(content) > 1 and all(isinstance(name, str) for name in lists[0]):
            return [dict(zip(lists[0], row, strict=False)) for row in lists[1:]]
        return []
    if not isinstance(content, dict) or not content:
        return []
    if isinstance(content.get("columns"), list) and isinstance(content.get("data"), list):
        return _rows([content["columns"], *content["data"]], notes)
    values = list(content.values())
    if all(isinstance(each, list) and not any(isinstance(x, dict | list) for x in each) for each in values):
        height = max(len(each) for each in values)
        return [{k: v[i] for k, v in content.items() if i < len(v)} for i in range(height)]
    tables = [name for name, each in content.items() if isinstance(each, list) and _rows(each, [])]
    if len(tables) == 1:
        notes.append(f"the rows are those of {tables[0]!r}")
        return _rows(content[tables[0]], notes)
    if all(isinstance(each, dict) for each in values):
        if len(values) == 1:
            return _rows(values[0], notes)
        if all(key.isdigit() for each in values for key in each):
            keys = dict.fromkeys(key for each in values for key in each)
            return [{name: each.get(key) for name, each in content.items()} for key in keys]
        inner = {name: [each[k] for k in each if _rows(each[k], [])] for name, each in content.items()}
        if all(len(each) == 1 and isinstance(each[0], list) for each in inner.values()):
            return [{KEY: name, **row} for name, each in inner.items() for row in _rows(each[0], [])]
        return [{KEY: name, **each} for name, each in content.items()]
    return [content]


def _flat(record: dict[str, Any], before: str = "", deep: int = 0) -> dict[str, Any]:
    """``{"config": {"fs": ...}}`` as ``config.fs``."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict) and value and deep < MOST_DEEP:
            found |= _flat(value, f"{before}{name}.", deep + 1)
        else:
            found[f"{before}{name}"] = value
    return found


def _repeats(record: dict[str, Any], needed: Sequence[str]) -> list[dict[str, Any]]:
    """A record for each number of a needed column that is a list of them."""
    lists = {
        name: value
        for name, value in record.items()
        if isinstance(value, list)
        and name.rpartition(".")[2] in needed
        and all(isinstance(each, int | float) or each is None for each in value)
    }
    if not lists:
        return [record]
    return [
        {**record, **{name: value[i] if i < len(value) else None for name, value in lists.items()}}
        for i in range(max(len(value) for value in lists.values()))
    ]


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)
