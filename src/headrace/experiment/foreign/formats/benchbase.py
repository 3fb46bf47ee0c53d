"""BenchBase: summary.json."""

from __future__ import annotations

import re
from typing import Any

from headrace.experiment.foreign.run import OtherVariant, Run, known, number, parsed, text_of, texts

NAME = "BenchBase (summary.json)"

_LATENCY = re.compile(
    r"(Average|Minimum|Maximum|Median|([\d.]+)(?:st|nd|rd|th) Percentile) Latency \(microseconds\)"
)
_NAMES = {"Average": "mean_ms", "Minimum": "min_ms", "Median": "p50_ms", "Maximum": "max_ms"}
_SILENT = "that it ended well and no request failed: a summary without state and goodput does not say so"
#: The share of its requests that a run must have completed: aborted ones count in the throughput.
GOOD = 0.9


def read(text: str) -> list[Run] | None:
    if re.match(r"Time \(seconds\), ?Throughput \(requests/second\)", text):
        raise OtherVariant("BenchBase's results by the second", "the run's summary.json")
    content = parsed(text)
    if not isinstance(content, dict) or not {"Throughput (requests/second)", "Benchmark Type"} & set(content):
        return None
    latency = content.get("Latency Distribution")
    found = {}
    for key in latency if isinstance(latency, dict) else ():
        if told := _LATENCY.fullmatch(key):
            ours = f"p{float(told[2]):g}_ms" if told[2] else _NAMES[told[1]]
            found[ours] = number(latency, key)
    responses = known(
        requests_s=number(content, "Throughput (requests/second)"),
        goodput_s=number(content, "Goodput (requests/second)"),
        **{name: value / 1e3 if value is not None else None for name, value in found.items()},
    )
    elapsed = number(content, "Elapsed Time (nanoseconds)")
    settings = {"duration_s": text_of(round(elapsed / 1e9, 1))} if elapsed is not None else {}
    for name, key in {"benchmark": "Benchmark Type", "threads": "terminals", "scale": "scalefactor"}.items():
        if isinstance(content.get(key), str | int):
            settings[name] = str(content[key])
    about = texts(content, {"dbms": "DBMS Type", "dbms_version": "DBMS Version", "isolation": "isolation"})
    ended = "" if content.get("Final State") or "goodput_s" in responses else _SILENT
    return [Run(responses, settings, _problem(content, responses), ended, about)]


def _problem(content: dict[str, Any], responses: dict[str, float]) -> str:
    state = content.get("Final State")
    if state is not None and str(state).upper() not in ("EXIT", "DONE"):
        return f"its final state is {str(state)[:40]!r}"
    requests = responses.get("requests_s")
    if requests is None:
        return "it has no throughput"
    if any(value < 0 for value in responses.values()):
        return "a latency or a rate is below zero"
    goodput = responses.get("goodput_s", requests)
    if goodput < GOOD * requests:
        return f"only {goodput:,.1f} of {requests:,.1f} requests/s succeeded"
    return ""
