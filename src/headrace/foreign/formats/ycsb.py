"""YCSB: the measurements at its end, as text."""

from __future__ import annotations

import re

from headrace.foreign.run import Run, pieces, text_of

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


def read(text: str) -> list[Run] | None:
    parts = pieces(_START, text)
    if not parts:
        return [Run(problem="it has no results: it was interrupted")] if "site.ycsb.Client" in text else None
    return [_run(part) for part in parts]


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
