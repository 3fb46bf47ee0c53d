"""Results measured elsewhere: a table, or a benchmark's output, as rows of factor levels and responses.

Each row is one run. Values are used as they are: the length of a run, its warm-up and the order of runs are
unknown, and the analysis says so.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import PlanError

#: A larger file is not a benchmark's result.
MAX_BYTES = 256 << 20


@dataclass(frozen=True)
class Row:
    """One run: its levels (including ones that are not factors of the analysis), numbers, and place for errors."""

    place: str
    levels: Mapping[str, str]
    responses: Mapping[str, float]


@dataclass(frozen=True)
class Table:
    """The rows of a file, and what its reader had to guess or leave out, as sentences."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def read_csv(path: Path, factors: Sequence[str], responses: Sequence[str]) -> Table:
    """The rows of a table with a header, separated by commas, semicolons or tabs.

    An empty response cell omits the response from its row. In a table without commas between its columns, a comma
    in a number is a decimal comma, or between thousands if a number of the column has a point after one. Raises
    PlanError with line and column for a missing column, a number that could be read in two ways, or a response
    that is not a positive number: effects are ratios, and zero has none.
    """
    lines, notes = cells_of(path, (*factors, *responses), responses)
    notes += _odd_lines(lines, responses)
    rows = []
    for place, cells in lines:
        numbers = {name: _number(cells[name], name, place) for name in responses if cells[name].strip()}
        levels = {name: value.strip() for name, value in cells.items() if name not in responses}
        rows.append(Row(place, levels, numbers))
    return Table(tuple(rows), tuple(f"{path.name}: {note}" for note in notes))


def cells_of(
    path: Path, needed: Sequence[str], numbers: Collection[str]
) -> tuple[list[tuple[str, dict[str, str]]], list[str]]:
    """(place for errors, cells by column) of each line, and what was assumed; for every table of ours and others'.

    ``needed`` are columns that must be there; in those of ``numbers`` only decimal points are left.
    """
    text, notes = _decoded(path)
    delimiter = _delimiter(text.partition("\n")[0])
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter)
    lines: list[tuple[str, dict[str, str]]] = []
    try:
        there = [name.strip() for name in reader.fieldnames or []]
        reader.fieldnames = there
        for name in needed:
            if name not in there:
                raise PlanError(
                    f"no column {name!r}; there are: {', '.join(there) or 'none'}", place=str(path)
                )
        for name in there:
            # Python would take the last of them.
            if there.count(name) > 1 and (name in needed or name in numbers):
                raise PlanError(f"column {name!r} is there {there.count(name)} times", place=str(path))
        for cells in reader:
            place = f"{path}:{reader.line_num}"
            if None in cells or None in cells.values():
                raise PlanError(f"{len(there)} columns in the header, not in this line", place=place)
            lines.append((place, cells))
    except csv.Error as error:
        raise PlanError(f"not a table: {error}", place=f"{path}:{reader.line_num}") from error
    if not lines:
        raise PlanError("the table has no rows", place=str(path))
    if delimiter != ",":
        notes += _with_points(lines, [name for name in there if name in numbers])
    return lines, notes


def _delimiter(header: str) -> str:
    """The separator that the header has most of."""
    return max(",;\t", key=header.count)


def _with_points(lines: Sequence[tuple[str, dict[str, str]]], responses: Sequence[str]) -> list[str]:
    """Rewrites the numbers with commas of ``lines`` with a decimal point alone, in place; what was assumed."""
    decimal, thousands = [], []
    for name in responses:
        own = [(place, cells) for place, cells in lines if "," in cells[name]]
        if not own:
            continue
        # The last separator of a number with both is the decimal one, and the other is between thousands.
        both = [cells[name] for _, cells in own if "." in cells[name]]
        if any(text.rfind(".") > text.rfind(",") for text in both):
            for _, cells in own:
                if _COMMAS.match(cells[name].strip()):
                    cells[name] = cells[name].replace(",", "")
            thousands.append(name)
            continue
        if all(_COMMAS.match(cells[name].strip()) for _, cells in own):
            place, cells = own[0]
            raise _ambiguous(name, cells[name].strip(), place)
        for place, cells in lines:
            text = cells[name].strip()
            if "," in text and ("." not in text or _POINTS.match(text)):
                cells[name] = text.replace(".", "").replace(",", ".")
            elif _POINTS.match(text):
                if not both:
                    raise _ambiguous(name, text, place)
                cells[name] = text.replace(".", "")
        decimal.append(name)
    notes = [f"commas in {', '.join(decimal)} are decimal commas"] if decimal else []
    return notes + ([f"commas in {', '.join(thousands)} are between thousands"] if thousands else [])


#: Numbers with commas, or points, between thousands. Others keep their text, and are refused by whoever reads it.
_COMMAS = re.compile(r"[1-9]\d{0,2}(,\d{3})+(\.\d*)?$")
_POINTS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+(,\d*)?$")


def _ambiguous(name: str, number: str, place: str) -> PlanError:
    either = f"{re.sub('[,.]', '', number)} or {number.replace(',', '.')}"
    return PlanError(
        f"{name} = {number!r} could be {either}",
        place=place,
        hint="write numbers with a decimal point, and nothing between thousands",
    )


def _odd_lines(lines: Sequence[tuple[str, dict[str, str]]], responses: Sequence[str]) -> list[str]:
    """Empty cells and repeated lines, which are often mistakes of whoever made the table."""
    notes = []
    for name in responses:
        empty = [place.rpartition(":")[2] for place, cells in lines if not cells[name].strip()]
        if empty:
            notes.append(f"no {name} in {_lines_named(empty)}: left out")
    seen: dict[tuple[str, ...], str] = {}
    again = []
    for place, cells in lines:
        if seen.setdefault(tuple(cells.values()), place) != place:
            again.append(place.rpartition(":")[2])
    if again:
        notes.append(
            f"{_lines_named(again)} {'is' if len(again) == 1 else 'are'} equal to an earlier one in every "
            "column, and counted as repeats: remove copies, which are not measurements"
        )
    return notes


#: Most lines named in a note.
MOST_LINES = 5


def _lines_named(numbers: Sequence[str]) -> str:
    more = f" and {len(numbers) - MOST_LINES} more" if len(numbers) > MOST_LINES else ""
    return f"line{'s' if len(numbers) > 1 else ''} {', '.join(numbers[:MOST_LINES])}{more}"


def read_outputs(paths: Sequence[Path], names: str) -> list[Row]:
    """One row per file, for any known benchmark; ``names`` takes levels from the file's path, as in
    ``results/{kernel}/{filesystem}-{threads}.json``: braces match the text in between. Raises PlanError for a name
    that does not match, or the file of an unknown benchmark.
    """
    pattern = _pattern(names)
    found = []
    for path in paths:
        match = pattern.search(str(path))
        if match is None:
            raise PlanError(f"the name does not fit {names!r}", place=str(path), hint="see --names")
        found.append(Row(str(path), match.groupdict(), _responses(path)))
    return found


def _pattern(names: str) -> re.Pattern[str]:
    parts = re.split(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", names)
    if len(parts) == 1:
        raise PlanError(
            f"--names {names!r} has no factor in braces", hint="such as 'fio-{filesystem}-{chunk}.json'"
        )
    try:
        return re.compile(
            "".join(re.escape(part) if i % 2 == 0 else f"(?P<{part}>[^/]+?)" for i, part in enumerate(parts))
            + "$"
        )
    except re.error as error:
        raise PlanError(f"--names {names!r}: a factor appears twice") from error


def _responses(path: Path) -> dict[str, float]:
    text, _ = _decoded(path)
    for reader in _READERS.values():
        found = reader(text)
        if found:
            return {name: value for name, value in found.items() if value > 0 and math.isfinite(value)}
    raise PlanError(
        f"not the output of {', '.join(_READERS)}",
        place=str(path),
    )


#: Readers of benchmark output, by name. A reader returns None for another benchmark's output.
_READERS: dict[str, Callable[[str], dict[str, float]]] = {}


def _reads(name: str) -> Callable[[Callable[[str], dict[str, float]]], Callable[[str], dict[str, float]]]:
    """Adds the reader of a benchmark's output."""

    def added(reader: Callable[[str], dict[str, float]]) -> Callable[[str], dict[str, float]]:
        _READERS[name] = reader
        return reader

    return added


@_reads("sysbench")
def _sysbench(text: str) -> dict[str, float]:
    """The final summary of sysbench 1.0."""
    found = {}
    for name, pattern in {
        "transactions_s": r"^\s*transactions:\s+\d+\s+\(([\d.]+) per sec",
        "queries_s": r"^\s*queries:\s+\d+\s+\(([\d.]+) per sec",
        "reads_s": r"^\s*reads/s:\s+([\d.]+)",
        "writes_s": r"^\s*writes/s:\s+([\d.]+)",
        "read_mib_s": r"^\s*read, MiB/s:\s+([\d.]+)",
        "written_mib_s": r"^\s*written, MiB/s:\s+([\d.]+)",
        "mean_ms": r"^\s*avg:\s+([\d.]+)",
        "max_ms": r"^\s*max:\s+([\d.]+)",
    }.items():
        match = re.search(pattern, text, re.MULTILINE)
        if match:
            found[name] = float(match[1])
    match = re.search(r"^\s*(\d+)th percentile:\s+([\d.]+)", text, re.MULTILINE)
    if match:
        found[f"p{match[1]}_ms"] = float(match[2])
    return found if {"transactions_s", "reads_s", "writes_s"} & set(found) else {}


@_reads("fio (--output-format=json or json+)")
def _fio(text: str) -> dict[str, float]:
    """fio's JSON; jobs are summed, and the worst job's percentile is used, because percentiles cannot be
    averaged.
    """
    content = _json(text)
    jobs = content.get("jobs") if isinstance(content, dict) and "fio version" in content else None
    if not isinstance(jobs, list):
        return {}
    found: dict[str, float] = {}
    for job in jobs:
        for side in ("read", "write"):
            part = job.get(side, {}) if isinstance(job, dict) else {}
            if not part.get("total_ios"):
                continue
            found[f"{side}_iops"] = found.get(f"{side}_iops", 0.0) + float(part.get("iops", 0))
            # fio counts KiB.
            found[f"{side}_mib_s"] = found.get(f"{side}_mib_s", 0.0) + float(part.get("bw", 0)) / 1024
            percentiles = part.get("clat_ns", {}).get("percentile", {})
            for key, name in (("50.000000", "p50"), ("99.000000", "p99"), ("99.900000", "p99.9")):
                if key in percentiles:
                    worst = max(found.get(f"{side}_{name}_ms", 0.0), percentiles[key] / 1e6)
                    found[f"{side}_{name}_ms"] = worst
    return found


@_reads("HammerDB")
def _hammerdb(text: str) -> dict[str, float]:
    """``System achieved 12345 NOPM from 28456 MySQL TPM``; the last one of several."""
    matches = re.findall(r"System achieved (\d+) NOPM from (\d+) \S+ TPM", text)
    return {"nopm": float(matches[-1][0]), "tpm": float(matches[-1][1])} if matches else {}


@_reads("BenchBase (summary.json)")
def _benchbase(text: str) -> dict[str, float]:
    """BenchBase's summary.json: requests per second, and its latencies in microseconds."""
    content = _json(text)
    if not isinstance(content, dict) or "Throughput (requests/second)" not in content:
        return {}
    found = {"requests_s": float(content["Throughput (requests/second)"])}
    if "Goodput (requests/second)" in content:
        found["goodput_s"] = float(content["Goodput (requests/second)"])
    latencies = content.get("Latency Distribution", {})
    for key, name in {
        "Average Latency (microseconds)": "mean_ms",
        "Median Latency (microseconds)": "p50_ms",
        "90th Percentile Latency (microseconds)": "p90_ms",
        "95th Percentile Latency (microseconds)": "p95_ms",
        "99th Percentile Latency (microseconds)": "p99_ms",
        "Maximum Latency (microseconds)": "max_ms",
    }.items():
        if key in latencies:
            found[name] = float(latencies[key]) / 1e3
    return found


@_reads("mysqlslap")
def _mysqlslap(text: str) -> dict[str, float]:
    """The report of mysqlslap or mariadb-slap, the last of several. A run is one pass of the query list."""
    found = {}
    for name, word in {"mean_ms": "Average", "min_ms": "Minimum", "max_ms": "Maximum"}.items():
        seconds = re.findall(rf"{word} number of seconds to run all queries: ([\d.]+) seconds", text)
        if seconds:
            found[name] = float(seconds[-1]) * 1e3
    return {"runs_s": 1e3 / found["mean_ms"], **found} if found.get("mean_ms") else {}


def _json(text: str) -> Any:
    # fio may print warnings before its object.
    start = text.find("{")
    try:
        return json.loads(text[start:]) if start >= 0 else None
    except ValueError:
        return None


def _number(text: str, name: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise PlanError(f"{name} = {text!r}: must be a positive number", place=place)
    return value


def _decoded(path: Path) -> tuple[str, list[str]]:
    """The file's text, and what was assumed about its encoding."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PlanError(f"larger than {MAX_BYTES >> 20} MiB: this is not a result", place=str(path))
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise PlanError("no such file", place=str(path)) from error
    except OSError as error:
        raise PlanError(f"cannot be read: {error}", place=str(path)) from error
    try:
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return content.decode("utf-16"), []
        return content.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace"), ["not UTF-8: read as Windows-1252"]
