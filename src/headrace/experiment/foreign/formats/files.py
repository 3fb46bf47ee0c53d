"""Load on file systems: ``dbench`` (its report) and ``bonnie++`` (the line of CSV at its end)."""

from __future__ import annotations

import csv
import re

from headrace.experiment.foreign.run import OtherVariant, Run, pieces, text_of

NAME = "dbench or bonnie++"

_DBENCH = re.compile(r"^dbench version [^\n]*$", re.MULTILINE)
_THROUGHPUT = re.compile(
    r"^Throughput ([\d.]+) MB/sec(  \([^)]*\))* +(\d+) clients +(\d+) procs(?: +max_latency=([\d.]+) ms)?\s*$",
    re.MULTILINE,
)
_OPERATION = re.compile(r"^ ([A-Z]\w+) +\d+ +([\d.]+) +([\d.]+)\s*$", re.MULTILINE)
#: ``1.98,2.00a,vm,1,1796006643,1500M,,8192,5,...``: the versions of the format and the program, the machine.
_LINE = re.compile(r"^1\.9[678],[12]\.\d+\w*,.*$", re.MULTILINE)
#: Places in that line; a program that took less than half a second prints plus signs.
_PLACES = {
    "write_chars_kib_s": 9,
    "write_kib_s": 11,
    "rewrite_kib_s": 13,
    "read_chars_kib_s": 15,
    "read_kib_s": 17,
    "seeks_s": 19,
    "seq_creates_s": 26,
    "seq_stats_s": 28,
    "seq_deletes_s": 30,
    "random_creates_s": 32,
    "random_stats_s": 34,
    "random_deletes_s": 36,
}
_SETTINGS = {"concurrency": 3, "file_size": 5, "chunk_size": 6, "seek_processes": 8, "files": 21}
_LENGTH = 50


def read(text: str) -> list[Run] | None:
    if parts := pieces(_DBENCH, text):
        return [_dbench(part) for part in parts]
    if lines := _LINE.findall(text):
        return [_bonnie(line) for line in lines]
    if re.search(r"^Version +[12]\.\S+ +-+Sequential Output-+", text, re.MULTILINE):
        raise OtherVariant(
            "bonnie++'s tables without the line of CSV below them", "bonnie++ -q, which prints it"
        )
    if re.search(r"^(Writing (intelligently|a byte at a time)|Using uid:\d+, gid:\d+\.)", text, re.MULTILINE):
        return [Run(problem="it has no result at its end: it was interrupted")]
    return None


def _dbench(part: str) -> Run:
    settings = {}
    if asked := re.search(r"^Running for (\d+) seconds with load '([^']*)'", part, re.MULTILINE):
        settings = {"duration_s": text_of(float(asked[1])), "load": asked[2].rpartition("/")[2]}
    result = _THROUGHPUT.search(part)
    if result is None:
        return Run({}, settings, "it has no throughput at its end: it was interrupted")
    settings |= {"clients": result[3], "processes": result[4]}
    if result[2]:
        settings["mode"] = result[2].strip(" ()")
    measured = {"mb_s": float(result[1])} | ({"max_ms": float(result[5])} if result[5] else {})
    for name, mean, most in _OPERATION.findall(part):
        measured |= {f"{name.lower()}_mean_ms": float(mean), f"{name.lower()}_max_ms": float(most)}
    error = re.search(
        r"^\[\d+\] [^\n]*(?:failed|No space left|error)[^\n]*|^Child failed[^\n]*", part, re.MULTILINE
    )
    return Run(measured, settings, f"it failed: {error[0][:120]}" if error else "")


def _bonnie(line: str) -> Run:
    cells = next(csv.reader([line]))
    settings = {name: cells[at] for name, at in _SETTINGS.items() if at < len(cells) and cells[at]}
    if len(cells) < _LENGTH:
        return Run({}, settings, "its line of CSV is cut off")
    measured = {
        name: float(cells[at]) for name, at in _PLACES.items() if re.fullmatch(r"\d+(\.\d+)?", cells[at])
    }
    return Run(
        measured, settings, "" if measured else "each of its tests took too little time to be measured"
    )
