"""Load on HTTP by programs of one command: vegeta, oha and hey."""

from __future__ import annotations

import re
from typing import Any

from headrace.experiment.foreign.run import Run, known, number, parsed, pieces, text_of, within

NAME = "vegeta, oha or hey"

#: Share of the requests that may fail.
FEW_ERRORS = 0.01
_MS = {
    "ns": 1e-6,
    "us": 1e-3,
    "µs": 1e-3,
    "μs": 1e-3,
    "ms": 1.0,
    "s": 1e3,
    "sec": 1e3,
    "secs": 1e3,
    "m": 60e3,
    "h": 3600e3,
}
_VEGETA = re.compile(r"^Requests +\[total, rate(?:, throughput)?\] +", re.MULTILINE)
_SUMMARY = re.compile(r"^Summary:\n(?=(?:  [A-Z][^\n]*\n)*  Requests/sec:)", re.MULTILINE)
_CUT = "its report is cut off"
_NAMES = {"Average": "mean_ms", "Slowest": "max_ms", "Fastest": "min_ms"}


def read(text: str) -> list[Run] | None:
    if parts := pieces(_VEGETA, text):
        return [_vegeta(part) for part in parts]
    if parts := pieces(_SUMMARY, text):
        return [_summary(part) for part in parts]
    content = parsed(text)
    if number(content, "latencies", "mean") is not None and "success" in content:
        return [_vegeta_json(content)]
    if number(content, "summary", "requestsPerSec") is not None:
        return [_oha_json(content)]
    return None


def _ms(text: str) -> float:
    """``1m2.5s`` and ``340.1µs`` as Go writes them."""
    measured = re.findall(r"([\d.]+)(ns|us|µs|μs|ms|s|m|h)", text)
    return float(sum(float(value) * _MS[unit] for value, unit in measured))


def _failed(share: float) -> str:
    return f"{share:.1%} of its requests failed" if share > FEW_ERRORS else ""


def _vegeta(part: str) -> Run:
    rows = {
        match[1]: dict(zip(match[2].split(", "), match[3].strip().split(", "), strict=False))
        for match in re.finditer(r"^(\w[\w ]*\w) +\[([^\]\n]*)\] +(\S[^\n]*)$", part, re.MULTILINE)
    }
    asked, lasted, took = (rows.get(name, {}) for name in ("Requests", "Duration", "Latencies"))
    success = rows.get("Success", {}).get("ratio", "")
    if not success.endswith("%") or "Error Set:" not in part:
        return Run(problem=_CUT)
    # Before version 12 there is no throughput.
    measured = {"requests_s": float(asked.get("throughput") or asked["rate"])}
    for name, value in took.items():
        measured[f"p{name}_ms" if name.isdecimal() else f"{name}_ms"] = _ms(value)
    settings = {"rate_s": asked["rate"]}
    if attack := lasted.get("attack"):
        settings["duration_s"] = text_of(round(_ms(attack) / 1e3, 1))
    return Run(measured, settings, _failed(1 - float(success.rstrip("%")) / 100))


def _vegeta_json(content: dict[str, Any]) -> Run:
    measured = known(requests_s=number(content, "throughput"))
    for name in content["latencies"]:
        value = number(content, "latencies", name)
        if value is not None and name != "total":
            measured[f"p{name.removesuffix('th')}_ms" if name[0].isdecimal() else f"{name}_ms"] = value / 1e6
    success = number(content, "success")
    problem = _failed(1 - success) if success is not None else "it does not say how many requests succeeded"
    settings = {}
    for name, key, scale in (("duration_s", "duration", 1e9), ("rate_s", "rate", 1.0)):
        if (value := number(content, key)) is not None:
            settings[name] = text_of(round(value / scale, 1))
    return Run(measured, settings, problem if "requests_s" in measured else "it has no throughput")


def _summary(part: str) -> Run:
    """oha's and hey's report for people."""
    rows = dict(re.findall(r"^  ([A-Z][\w /]*):\t? *([^\n]+)$", part, re.MULTILINE))
    measured = {"requests_s": float(rows["Requests/sec"])}
    for name, ours in _NAMES.items():
        if (value := _with_unit(rows.get(name, ""))) is not None:
            measured[ours] = value
    for share, text in re.findall(r"^ +(\d+(?:\.\d+)?)%+ in ([\d.]+ \w+)", part, re.MULTILINE):
        if (value := _with_unit(text)) is not None:
            measured[f"p{float(share):g}_ms"] = value
    settings = {}
    if (total := _with_unit(rows.get("Total", ""))) is not None:
        settings["duration_s"] = text_of(round(total / 1e3, 1))
    counts = [
        (code, int(count))
        for code, count in re.findall(r"^  \[(\d+)\]\s+(\d+) responses", part, re.MULTILINE)
    ]
    _, mark, errors = part.partition("Error distribution:")
    lost = sum(int(count) for count in re.findall(r"^  \[(\d+)\]", errors, re.MULTILINE)) if mark else 0
    if not counts and not lost:
        return Run(measured, settings, _CUT)
    bad = lost + sum(count for code, count in counts if code[0] not in "123")
    share = bad / max(lost + sum(count for _, count in counts), 1)
    # oha's own word, which counts requests that got no answer, whatever is left of the lists below.
    if success := re.fullmatch(r"([\d.]+)%", rows.get("Success rate", "")):
        share = max(share, 1 - float(success[1]) / 100)
    return Run(measured, settings, _failed(share))


def _with_unit(text: str) -> float | None:
    match = re.fullmatch(r"([\d.]+) (\w+)", text.strip())
    return float(match[1]) * _MS[match[2]] if match and match[2] in _MS else None


def _oha_json(content: dict[str, Any]) -> Run:
    summary = content["summary"]
    measured = known(
        requests_s=number(summary, "requestsPerSec"),
        **{
            ours: value * 1e3 if (value := number(summary, name.lower())) is not None else None
            for name, ours in _NAMES.items()
        },
    )
    tails = within(content, "latencyPercentiles")
    for name in tails if isinstance(tails, dict) else ():
        value = number(tails, name)
        if value is not None and re.fullmatch(r"p\d+(\.\d+)?", name):
            measured[f"{name}_ms"] = value * 1e3
    settings = {}
    if (total := number(summary, "total")) is not None:
        settings["duration_s"] = text_of(round(total, 1))
    codes = within(content, "statusCodeDistribution")
    counts = {code: number(codes, code) or 0.0 for code in codes} if isinstance(codes, dict) else {}
    bad = sum(count for code, count in counts.items() if code[:1] not in ("1", "2", "3"))
    success = number(summary, "successRate")
    if success is None:
        return Run(measured, settings, "it does not say how many requests succeeded")
    return Run(measured, settings, _failed(max(1 - success, bad / max(sum(counts.values()), 1.0))))
