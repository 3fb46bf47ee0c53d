"""Load on Redis and memcached: redis-benchmark (text, ``-q``, ``--csv``), memtier_benchmark (text and JSON)."""

from __future__ import annotations

import csv
import re
from typing import Any

from headrace.experiment.foreign.run import (
    OtherVariant,
    Run,
    closed,
    documents,
    groups,
    known,
    number,
    parsed,
    text_of,
    texts,
    within,
)

NAME = "redis-benchmark or memtier_benchmark"

#: The share of its time that a run must have lasted.
WHOLE = 0.95
_TEST = re.compile(r"^ *====== (.+?) ======$", re.MULTILINE)
_QUIET = re.compile(r"^ *(\S[^:\n]*): ([\d.]+) requests per second(?:, p50=([\d.]+) msec)?\s*$", re.MULTILINE)
_PROGRESS = re.compile(r"^ *(\S[^:\n]*): rps=", re.MULTILINE)
_CSV = '"test","rps"'
_ERROR = re.compile(r"^(?:Could not connect to Redis|Error from server|Error: )[^\n]*", re.MULTILINE)
_SUMMARY = re.compile(r"latency summary \(msec\):\n +([a-z0-9 .]+)\n +([\d. ]+)\n")
_TABLE = re.compile(r"^ALL STATS$", re.MULTILINE)
_OF_MEMTIER = re.compile(r"^\[RUN #\d+|^Connection error: |Maximum reconnection attempts", re.MULTILINE)
_ABOUT = {
    "keep_alive": r"^ +keep alive: (\d+)",
    "save": r"^ +host configuration \"save\": (.+)$",
    "appendonly": r"^ +host configuration \"appendonly\": (\w+)",
}
#: What memtier_benchmark writes of a run, and is no part of it.
_OF_NO_MATTER = frozenset({
    "out_file", "json_out_file", "client_stats", "hdr_prefix", "show_config", "hide_histogram",
    "print_percentiles", "print_all_runs", "debug", "no_expiry", "authenticate", "uri", "cert", "key", "cacert",
})  # fmt: skip
_SEVERAL = "memtier_benchmark's best, worst and average of several runs"
_ONE = "memtier_benchmark --run-count=1, with a file for each run"


def read(text: str) -> list[Run] | None:
    """A run of redis-benchmark is one of its tests: they run one after the other."""
    # Progress is written over itself.
    lines = re.sub(r" *\r", "\n", text)
    if _TABLE.search(lines) or _OF_MEMTIER.search(lines) or re.search(r"^AGGREGATED AVERAGE", lines, re.M):
        parts = closed(re.compile(r"^Totals [^\n]*\n?", re.MULTILINE), lines)
        first, *rest = parts
        # Behind the last table there are its percentiles, unless another run began.
        return [
            _memtier(first),
            *(_memtier(part) for part in rest if _TABLE.search(part) or _OF_MEMTIER.search(part)),
        ]
    if _CSV in lines:
        return _of_csv(lines[lines.index(_CSV) :], _error(lines))
    if runs := _tests(lines):
        return runs
    if problem := _error(lines):
        return [Run(problem=problem)]
    if '"ALL STATS"' in text or '"run information"' in text or '"configuration":{' in text[:40]:
        if len(documents(text)) > 1:
            return None
        content = parsed(text)
        return [_of_json(content) if isinstance(content, dict) else Run(problem="its JSON is cut off")]
    return None


def _error(lines: str) -> str:
    return f"it failed: {error[0][:120]}" if (error := _ERROR.search(lines)) else ""


def _of_csv(lines: str, problem: str) -> list[Run]:
    try:
        header, *rows = csv.reader(lines.splitlines(), strict=True)
    except csv.Error:
        return [Run(problem="its table is cut off")]
    runs = []
    for row in rows:
        if len(row) != len(header):
            runs.append(Run(problem="its table is cut off"))
            continue
        cells = dict(zip(header, row, strict=True))
        found = {}
        for name, text in cells.items():
            ours = "requests_s" if name == "rps" else name.replace("_latency", "").replace("avg_", "mean_")
            if name != "test" and re.fullmatch(r"[\d.]+", text):
                found[ours] = float(text)
        missing = "" if "requests_s" in found else "it has no rate"
        runs.append(Run(found, {"test": cells["test"]}, problem or missing))
    return runs or [Run(problem=problem or "its table has no test: it was interrupted")]


def _tests(lines: str) -> list[Run]:
    problem = _error(lines)
    runs = []
    starts = [*_TEST.finditer(lines)]
    if not starts:
        for test, rate, p50 in _QUIET.findall(lines):
            found = {"requests_s": float(rate)} | ({"p50_ms": float(p50)} if p50 else {})
            runs.append(Run(found, {"test": test}, problem))
    ends = [each.start() for each in starts[1:]] + [len(lines)]
    for start, end in zip(starts, ends, strict=False):
        runs.append(_test(start[1], lines[start.end() : end], problem))
    for test in dict.fromkeys(_PROGRESS.findall(lines)):
        if all(run.settings["test"] != test for run in runs):
            runs.append(Run({}, {"test": test}, problem or "it was interrupted: it has no result"))
    return runs


def _test(name: str, part: str, problem: str) -> Run:
    settings = {"test": name}
    for key, pattern in {
        "requests": r"^ +(\d+) requests completed in",
        "clients": r"^ +(\d+) parallel clients",
        "payload_bytes": r"^ +(\d+) bytes payload",
        "threads": r"^ +threads: (\d+)",
    }.items():
        if match := re.search(pattern, part, re.MULTILINE):
            settings[key] = match[1]
    rate = re.search(r"^ *(?:throughput summary: )?([\d.]+) requests per second\s*$", part, re.MULTILINE)
    found = {"requests_s": float(rate[1])} if rate else {}
    if summary := _SUMMARY.search(part):
        for key, value in zip(summary[1].split(), summary[2].split(), strict=False):
            found[f"{'mean' if key == 'avg' else key}_ms"] = float(value)
    elif "latency summary" in part or "throughput summary" in part:
        problem = problem or "its summary is cut off"
    problem = problem or ("" if rate else "it was interrupted: it has no result")
    return Run(found, settings, problem, about=groups(part, _ABOUT))


def _memtier(text: str) -> Run:
    if re.search(r"^(BEST RUN RESULTS|WORST RUN RESULTS|AGGREGATED AVERAGE RESULTS)", text, re.MULTILINE):
        raise OtherVariant(_SEVERAL, _ONE)
    if stopped := re.search(r"Interrupted by user[^,\n]*", text):
        return Run(problem=f"it was interrupted: {stopped[0]}")
    if error := re.search(
        r"^(?:(?:Connection error|error|Error): |server \S+ handle error response: |connect failed, )[^\n]*",
        text,
        re.MULTILINE,
    ):
        return Run(problem=f"it failed: {error[0][:120]}")
    start = _TABLE.search(text)
    part = text[start.end() :] if start else ""
    header = re.search(r"^Type +(.*)$", part, re.MULTILINE)
    totals = re.search(r"^Totals +(.*)\n", part, re.MULTILINE)
    names = [name.strip() for name in re.split(r"\s{2,}", header[1].strip())] if header else []
    cells = totals[1].split() if totals else []
    if not cells or len(names) != len(cells):
        return Run(problem="it has no table at its end, or a part of it: it was interrupted")
    found = {}
    for name, cell in zip(names, cells, strict=True):
        if (ours := _column(name)) and re.fullmatch(r"[\d.]+", cell):
            found[ours] = float(cell)
    settings = {}
    for key, pattern in {
        "threads": r"^(\d+) +Threads$",
        "connections": r"^(\d+) +Connections per thread$",
        "duration_s": r"^(\d+) +Seconds$",
        "requests": r"^(\d+) +Requests per client$",
    }.items():
        if match := re.search(pattern, text[: start.start()] if start else "", re.MULTILINE):
            settings[key] = match[1]
    return Run(found, settings, "" if "ops_s" in found else "it has no rate")


def _column(name: str) -> str:
    plain = {
        "Ops/sec": "ops_s",
        "Avg. Latency": "mean_ms",
        "Average Latency": "mean_ms",
        "Latency": "mean_ms",
        "Max Latency": "max_ms",
        "KB/sec": "kb_s",
    }
    tail = re.fullmatch(r"p([\d.]+) Latency", name)
    return f"p{float(tail[1]):g}_ms" if tail else plain.get(name, "")


def _of_json(content: dict[str, Any]) -> Run:
    if "AGGREGATED AVERAGE RESULTS" in content or "BEST RUN RESULTS" in content:
        raise OtherVariant(_SEVERAL, _ONE)
    totals = within(content, "ALL STATS", "Totals")
    values = totals if isinstance(totals, dict) else {}
    found = known(**{ours: number(values, name) for name in values if (ours := _column(name))})
    tails = within(values, "Percentile Latencies")
    for name in tails if isinstance(tails, dict) else ():
        if (tail := re.fullmatch(r"p(\d[\d.]*)", name)) and (value := number(tails, name)) is not None:
            found[f"p{float(tail[1]):g}_ms"] = value
    settings = {
        key: text_of(value)
        for key, name in {
            "threads": "Threads",
            "connections": "Connections per thread",
            "requests": "Requests per client",
            "duration_s": "Seconds",
        }.items()
        if (value := number(content, "run information", name)) is not None
    }
    ran, asked = (
        number(content, "ALL STATS", "Runtime", "Total duration"),
        number(content, "run information", "Seconds"),
    )
    told = content.get("configuration")
    about = texts(
        told, [name for name in told if name not in _OF_NO_MATTER] if isinstance(told, dict) else []
    )
    problem = "" if "ops_s" in found else "it has no rate"
    if str(within(content, "ALL STATS", "Runtime", "Interrupted")).lower() == "true":
        problem = "it was interrupted"
    elif lost := number(values, "Connection Errors"):
        problem = f"it lost its connection {lost:,.0f} times"
    elif ran is not None and asked and ran / 1e3 < WHOLE * asked:
        problem = f"it ran for {ran / 1e3:.1f} of {asked:g} s"
    return Run(found, settings, problem, about=about)
