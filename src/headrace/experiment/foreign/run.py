"""One run of a benchmark by its own output: what it measured, how it ran, and whether it can be believed."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

#: What an object begins with, or an array of objects.
JSON_START = re.compile(r"\{\s*[\"}]|\[\s*[\[{\]]")


@dataclass(frozen=True)
class Run:
    """What a run measured and how it ran.

    ``responses``: name with its unit -> value, also zero. ``settings``: ``duration_s``, ``threads`` and others, as
    text. ``problem``: why it failed or is incomplete; empty for a run that ended as it should. ``assumed``: what
    the file cannot say and was taken for granted. ``about``: whatever else it says of how, on what and with which
    version it was made: a factor may bring it along, runs of the same levels may not differ in it. ``work``: how
    much was done, for runs that end with it and not with their time.
    """

    responses: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    assumed: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    work: float | None = None


class OtherVariant(Exception):
    """The output of a known tool in a form that is not read. ``hint`` says how to get one that is."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


def parsed(text: str) -> Any:
    """The JSON of a file, also between a tool's warnings and a shell's; None if there is none, or several."""
    found = documents(text)
    return found[0] if len(found) == 1 else None


def documents(text: str) -> list[Any]:
    """The objects, and arrays of them, of a text, up to the second."""
    decoder = json.JSONDecoder()
    contents: list[Any] = []
    end = 0
    # Shells print ``{0}``, ``[1]`` and ``[group]``.
    for start in JSON_START.finditer(text):
        if start.start() < end:
            continue
        try:
            content, end = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            if contents or text[start.start()] == "{":
                break
            continue
        if content or not contents:
            contents.append(content)
        if len(contents) > 1:
            break
    return contents


def within(content: Any, *path: str) -> Any:
    """The value at a path of keys; None where there is none, whatever is there instead."""
    for key in path:
        content = content.get(key) if isinstance(content, dict) else None
    return content


def rows_of(content: Any) -> list[dict[str, Any]]:
    """The objects of a list; empty for anything else."""
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []


def number(content: Any, *path: str) -> float | None:
    """The number at a path; None for anything but a finite one."""
    found = within(content, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        value = float(found)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def pieces(pattern: re.Pattern[str], text: str) -> list[str]:
    """The parts of a text that begin with ``pattern``; what is before the first is left out."""
    starts = [match.start() for match in pattern.finditer(text)]
    return [text[start:end] for start, end in itertools.pairwise([*starts, len(text)])]


def closed(pattern: re.Pattern[str], text: str) -> list[str]:
    """The parts of a text that end with ``pattern``, and what follows the last if it is more than white space."""
    ends = [0, *(match.end() for match in pattern.finditer(text)), len(text)]
    parts = [text[start:end] for start, end in itertools.pairwise(ends)]
    return [part for part in parts if part.strip()]


def once(runs: Sequence[Run]) -> list[Run]:
    """One run of the repetitions that a process made of the same benchmark: their mean, or a failed one."""
    alike: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for run in runs:
        alike.setdefault(tuple(sorted(run.settings.items())), []).append(run)
    found = []
    for same in alike.values():
        problem = next((run.problem for run in same if run.problem), "")
        shared = [name for name in same[0].responses if all(name in run.responses for run in same)]
        means = {name: math.fsum(run.responses[name] / len(same) for run in same) for name in shared}
        found.append(replace(same[0], responses=means, problem=problem))
    return found


def cells_of(text: str, separator: str = ",") -> list[list[str]]:
    """The rows of a table of separated values; none after one that cannot be read."""
    rows: list[list[str]] = []
    try:
        rows.extend(csv.reader(text.splitlines(), delimiter=separator, strict=True))
    except csv.Error:
        rows.append([])
    return rows


def groups(text: str, patterns: Mapping[str, str]) -> dict[str, str]:
    """What the first group of each pattern finds, by its name; those that find nothing are left out."""
    matches = {name: re.search(pattern, text, re.MULTILINE) for name, pattern in patterns.items()}
    return {name: match[1].strip() for name, match in matches.items() if match}


def stalls(text: str, pattern: re.Pattern[str]) -> str:
    """The problem of a run that stood still: what ``pattern`` finds are its intervals' ends and what they did."""
    still = [end for end, did in pattern.findall(text) if not float(did)]
    return f"{len(still)} of its intervals did nothing, the first ending at {still[0]} s" if still else ""


def texts(content: Any, names: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """The settings in an object of JSON, as text; those that are not there, or empty, are left out."""
    keys = names if isinstance(names, Mapping) else {name: name for name in names}
    settings = {}
    for ours, key in keys.items():
        value = within(content, *key.split("."))
        if isinstance(value, list):
            value = " ".join(map(str, value))
        if isinstance(value, str | int | float) and value != "":
            settings[ours] = text_of(value) if isinstance(value, float) else str(value)
    return settings


def text_of(value: float) -> str:
    """A setting's number without needless digits: ``60``, ``0.5``."""
    return f"{value:.6g}"


def known(**values: float | None) -> dict[str, float]:
    """Those that are known."""
    return {name: value for name, value in values.items() if value is not None}
