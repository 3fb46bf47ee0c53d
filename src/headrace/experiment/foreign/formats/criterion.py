"""criterion.rs and Rust's own benches: what ``cargo bench`` prints, and criterion's ``new/estimates.json``.

A process's samples are one observation: criterion's interval is about its own process, not about the next one.
"""

from __future__ import annotations

import re
from typing import Any

from headrace.base.received import BadContent, an_object
from headrace.experiment.foreign.run import OtherVariant, Run, known, number, parsed, within

NAME = "criterion or cargo bench"

_SECONDS = {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
_PREFIX = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
_COLOUR = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_VALUES = r"\[([\d.]+) (\S+) ([\d.]+) (\S+) ([\d.]+) (\S+)\]"
_TIME = re.compile(rf"^(\S.*?)?(?: +|^ +)time: +{_VALUES}", re.MULTILINE)
_THROUGHPUT = re.compile(rf"^ +thrpt: +{_VALUES}", re.MULTILINE)
_BEGUN = re.compile(
    r"^Benchmarking (.+?)(?:: (?:Warming up|Collecting|Analyzing|Complete).*)?$", re.MULTILINE
)
_OURS = re.compile(
    r"^Benchmarking .+: (?:Warming up|Collecting)|^test .+ \.\.\. bench: |^test result: .* measured",
    re.MULTILINE,
)
_PLAIN = re.compile(
    r"^test (\S+)\s+\.\.\. bench: +([\d,.]+) ns/iter \(\+/- [\d,.]+\)(?: = ([\d,.]+) MB/s)?", re.MULTILINE
)
_FAILED = re.compile(
    r"^(?:thread '[^']*' (?:\(\d+\) )?panicked at|error: (?:bench|test|process)|test result: FAILED).*$",
    re.MULTILINE,
)
_COMPLETE = '"reason":"benchmark-complete"'


def read(text: str) -> list[Run] | None:
    # On a terminal each line is written over the one before.
    lines = re.sub(r"\r+(?!\n)", "\n", _COLOUR.sub("", text))
    if _COMPLETE in text:
        return _of_messages(lines)
    if _TIME.search(lines) or _OURS.search(lines):
        return _of_text(lines)
    content = parsed(text)
    if not isinstance(content, dict) or within(content, "mean", "confidence_interval") is None:
        return None
    if "std_dev" not in content and "median_abs_dev" not in content:
        raise OtherVariant("criterion's change against another run, a ratio", "new/estimates.json beside it")
    found = known(
        **{
            f"{name}_s": value * 1e-9
            for name in ("mean", "median", "slope")
            if (value := number(content, name, "point_estimate")) is not None
        }
    )
    return [Run(found, {}, "" if "mean_s" in found else "it has no mean")]


def _of_text(lines: str) -> list[Run]:
    wrong = _FAILED.search(lines)
    problem = f"it failed: {wrong[0][:120]}" if wrong else ""
    runs: dict[str, Run] = {}
    for test, ns, rate in _PLAIN.findall(lines):
        found = {"time_s": float(ns.replace(",", "")) * 1e-9}
        if rate:
            found["bytes_s"] = float(rate.replace(",", "")) * 1e6
        runs[test] = Run(found, {"benchmark": test})
    times = [*_TIME.finditer(lines)]
    ends = [*(each.start() for each in times[1:]), len(lines)][: len(times)]
    begun = [(each.start(), each[1]) for each in _BEGUN.finditer(lines)]
    for time, end in zip(times, ends, strict=True):
        # A long name has a line of its own.
        before = lines[: time.start()].rstrip("\n").rpartition("\n")[2].strip()
        name = time[1] or (before if not before.startswith("Benchmarking") else "")
        name = name or next((told for start, told in reversed(begun) if start < time.start()), "")
        part = lines[time.end() : end]
        runs[name] = _result(name, time, _THROUGHPUT.search(part))
    # What was begun and has no time was interrupted, or failed.
    for _, name in begun:
        if name not in runs:
            runs[name] = Run({}, {"benchmark": name}, problem or "it was interrupted: it has no time")
    return list(runs.values()) or [Run(problem=problem or "it ran no benchmark")]


def _result(name: str, time: re.Match[str], throughput: re.Match[str] | None) -> Run:
    unit = _SECONDS.get(time[5])
    found = {"time_s": float(time[4]) * unit} if unit else {}
    if throughput:
        found |= _rate(float(throughput[3]), throughput[4])
    return Run(found, {"benchmark": name}, "" if unit else f"its time is in an unknown unit, {time[5]}")


def _rate(value: float, unit: str) -> dict[str, float]:
    if told := re.fullmatch(r"([kKMGT]?)(i?)B/s", unit):
        return {"bytes_s": value * (1024.0 if told[2] else 1000.0) ** _PREFIX[told[1]]}
    if told := re.fullmatch(r"([kKMGT]?)(elem|b)/s", unit):
        name = "elements_s" if told[2] == "elem" else "bits_s"
        return {name: value * 1000.0 ** _PREFIX[told[1]]}
    return {}


def _of_messages(lines: str) -> list[Run]:
    """What ``cargo criterion --message-format=json`` prints: an object a line."""
    runs = []
    for line in lines.splitlines():
        if _COMPLETE not in line:
            continue
        try:
            told: dict[str, Any] = an_object(line)
        except BadContent:
            runs.append(Run(problem="its JSON is cut off"))
            continue
        unit = _SECONDS.get(str(within(told, "typical", "unit")))
        value = number(told, "typical", "estimate")
        found = {"time_s": value * unit} if unit and value is not None else {}
        problem = "" if found else "it has no time, or one in an unknown unit"
        runs.append(Run(found, {"benchmark": str(told.get("id"))}, problem))
    return runs
