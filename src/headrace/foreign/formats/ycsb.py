"""YCSB: the measurements at its end, as text and JSON; go-ycsb is named."""

from __future__ import annotations

import re

from headrace.foreign.run import OtherVariant, Run, pieces, text_of
from headrace.received import BadContent, an_object

NAME = "YCSB"

_START = re.compile(r"^\[OVERALL\], RunTime\(ms\)", re.MULTILINE)
_LINE = re.compile(r"^\[([^\]]+)\], ([^,]+), ([-\d.Ee+]+|NaN)\s*$", re.MULTILINE)
#: A name of YCSB -> ours.
_LATENCIES = {
    "AverageLatency(us)": "mean_ms",
    "50thPercentileLatency(us)": "p50_ms",
    "95thPercentileLatency(us)": "p95_ms",
    "99thPercentileLatency(us)": "p99_ms",
    "MaxLatency(us)": "max_ms",
}
#: Share of a kind of operation that may fail.
FEW_ERRORS = 0.01


_OURS = re.compile(r"^YCSB Client \d|site\.ycsb\.Client", re.MULTILINE)
#: A measurement in JSON, in an array or alone.
_OBJECT = re.compile(r"\{[^{}]*\"metric\"[^{}]*\"measurement\"[^{}]*\}")


def read(text: str) -> list[Run] | None:
    if re.search(r"^(READ|UPDATE|INSERT|TOTAL) +- Takes\(s\): ", text, re.MULTILINE):
        raise OtherVariant("the report of go-ycsb", "make a table of it, with a line per run")
    settings = {}
    if threads := re.search(r"^Command line: .*-threads (\d+)", text, re.MULTILINE):
        settings["threads"] = threads[1]
    if objects := _OBJECT.findall(text):
        # The array's end is that of the run; objects one after the other have none.
        end = "" if not re.search(r"^\[ *\{", text, re.MULTILINE) or text.rstrip().endswith("]") else "cut"
        text = "\n".join([*map(_line, objects), end])
    parts = pieces(_START, text)
    if not parts:
        return [Run({}, settings, "it has no results: it was interrupted")] if _OURS.search(text) else None
    runs = [_run(part) for part in parts]
    return [Run(run.responses, settings | dict(run.settings), run.problem) for run in runs]


def _line(measurement: str) -> str:
    """``{"metric": "READ", "measurement": "Operations", "value": 9}`` as the text has it."""
    try:
        told = an_object(measurement)
    except BadContent:
        return ""
    return f"[{told.get('metric')}], {told.get('measurement')}, {told.get('value')}"


def _run(part: str) -> Run:
    found: dict[str, float] = {}
    settings: dict[str, str] = {}
    done: dict[str, float] = {}
    failed: dict[str, float] = {}
    for kind, what, text in _LINE.findall(part):
        value = float(text)
        if value != value:
            continue
        if (kind, what) == ("OVERALL", "Throughput(ops/sec)"):
            found["ops_s"] = value
        elif (kind, what) == ("OVERALL", "RunTime(ms)"):
            settings["duration_s"] = text_of(round(value / 1e3, 1))
        elif what in _LATENCIES and kind not in ("CLEANUP", "OVERALL"):
            found[f"{kind.lower()}_{_LATENCIES[what]}"] = value / 1e3
        elif what == "Operations":
            done[kind] = value
        if what.startswith("Return=") and what not in ("Return=OK", "Return=BATCHED_OK"):
            failed[kind] = failed.get(kind, 0.0) + value
        elif what == "Operations" and kind.endswith("-FAILED"):
            failed[kind.removesuffix("-FAILED")] = value
    return Run(found, settings, _problem(found, done, failed, part))


def _problem(found: dict[str, float], done: dict[str, float], failed: dict[str, float], part: str) -> str:
    last = part.rstrip().splitlines()[-1] if part.strip() else ""
    if "ops_s" not in found or not done or not re.match(r"\[[^\]]+\], (Return=|>?\d+, )", last):
        return "its results are cut off"
    for kind, count in failed.items():
        if count > FEW_ERRORS * max(done.get(kind, 0.0), 1.0):
            return f"{count:,.0f} of {done.get(kind, 0.0):,.0f} operations {kind} failed"
    return ""
