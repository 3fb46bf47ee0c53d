"""stress-ng: the metrics of its log (``--metrics`` or ``--metrics-brief``)."""

from __future__ import annotations

import re

from headrace.foreign.run import Run, pieces

NAME = "stress-ng (--metrics)"

_START = re.compile(r"^stress-ng: info: .*\b(?:setting to a|defaulting to a)\b.*$", re.MULTILINE)
_LINE = re.compile(
    r"^stress-ng: (?:metrc|info): +\[\d+\] (\S+) +(\d+) +([\d.]+) +[\d.]+ +[\d.]+ +([\d.]+) +([\d.]+)",
    re.MULTILINE,
)
_SECONDS = {"second": 1, "minute": 60, "min": 60, "hour": 3600, "day": 86_400, "sec": 1}
#: The share of its time that a run must have lasted.
WHOLE = 0.95


def read(text: str) -> list[Run] | None:
    """A run per stressor: those of one start ran together."""
    if not re.search(r"^stress-ng: ", text, re.MULTILINE):
        return None
    return [run for part in pieces(_START, text) or [text] for run in _runs(part)]


def _runs(part: str) -> list[Run]:
    problem = ""
    if wrong := re.search(r"^stress-ng: (?:error|fail): *\[\d+\] ([^\n]*)", part, re.MULTILINE):
        problem = f"it failed: {wrong[1][:120]}"
    elif not re.search(r"successful run completed", part):
        problem = "it does not say that its run was successful: it was interrupted"
    asked = re.search(r"(?:setting|defaulting) to a (\d+(?:\.\d+)?) (\w+?)s?\b", part)
    runs = []
    for stressor, _, seconds, real, cpu in _LINE.findall(part):
        settings = {"stressor": stressor, "duration_s": f"{float(seconds):.3g}"}
        whole = float(asked[1]) * _SECONDS.get(asked[2], 0) if asked else 0.0
        short = f"it ran for {seconds} of {whole:g} s" if float(seconds) < WHOLE * whole else ""
        runs.append(
            Run({"bogo_ops_s": float(real), "bogo_ops_cpu_s": float(cpu)}, settings, problem or short)
        )
    return runs or [Run(problem=problem or "it has no metrics: --metrics prints them")]
