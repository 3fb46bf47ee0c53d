"""stress-ng: the metrics of its log (``--metrics`` or ``--metrics-brief``), or of its YAML (``--yaml``)."""

from __future__ import annotations

import re

from headrace.experiment.foreign.run import Run, groups, pieces

NAME = "stress-ng (--metrics)"

_YAML = re.compile(r"^ +stress-ng-version: ", re.MULTILINE)
_STRESSOR = re.compile(r"^ *- stressor: +(\S+) *$", re.MULTILINE)
_SILENT = "stress-ng's YAML does not say whether a run failed or was interrupted; its log does"

_START = re.compile(r"^stress-ng: info: .*\b(?:setting to a|defaulting to a)\b.*$", re.MULTILINE)
_LINE = re.compile(
    r"^stress-ng: (?:metrc|info): +\[\d+\] (\S+) +(\d+) +([\d.]+) +[\d.]+ +[\d.]+ +([\d.]+) +([\d.]+)(?=\s)",
    re.MULTILINE,
)
_SECONDS = {"second": 1, "minute": 60, "min": 60, "hour": 3600, "day": 86_400, "sec": 1}
#: The share of its time that a run must have lasted.
WHOLE = 0.95


def read(text: str) -> list[Run] | None:
    """A run per stressor: those of one start ran together."""
    if _YAML.search(text):
        return _of_yaml(text)
    if not re.search(r"^stress-ng: ", text, re.MULTILINE):
        return None
    return [run for part in pieces(_START, text) or [text] for run in _runs(part)]


def _runs(part: str) -> list[Run]:
    problem = ""
    if wrong := re.search(r"^stress-ng: (?:error|fail): *\[\d+\] ([^\n]*)", part, re.MULTILINE):
        problem = f"it failed: {wrong[1][:120]}"
    elif doubtful := re.search(r"\bmetrics untrustworthy: [1-9][^\n]*", part):
        problem = f"it says so itself: {doubtful[0][:80]}"
    elif not re.search(r"\bsuccessful run completed", part):
        problem = "it does not say that its run was successful: it was interrupted"
    # Without a time of its own it is a day at most, and ends with --cpu-ops and its like.
    asked = re.search(r"setting to a (\d+(?:\.\d+)?) (\w+?)s?\b", part)
    runs = []
    for stressor, _, seconds, real, cpu in _LINE.findall(part):
        settings = {"stressor": stressor, "duration_s": f"{float(seconds):.3g}"}
        settings |= groups(
            part, {"instances": rf"dispatching hogs: (?:[^\n]* )?(\d+) {re.escape(stressor)}\b"}
        )
        whole = float(asked[1]) * _SECONDS.get(asked[2], 0) if asked else 0.0
        short = f"it ran for {seconds} of {whole:g} s" if float(seconds) < WHOLE * whole else ""
        runs.append(
            Run({"bogo_ops_s": float(real), "bogo_ops_cpu_s": float(cpu)}, settings, problem or short)
        )
    return runs or [Run(problem=problem or "it has no metrics: --metrics prints them")]


def _of_yaml(text: str) -> list[Run]:
    runs = []
    parts = pieces(_STRESSOR, text)
    for index, part in enumerate(parts):
        said = {
            key: float(value)
            for key, value in re.findall(r"^ +([\w-]+): (\d+(?:\.\d+)?) *$", part, re.MULTILINE)
        }
        names = {
            "bogo_ops_s": "bogo-ops-per-second-real-time",
            "bogo_ops_cpu_s": "bogo-ops-per-second-usr-sys-time",
        }
        found = {ours: said[name] for ours, name in names.items() if name in said}
        settings = {"stressor": part.split(":", 1)[1].split()[0]}
        if "wall-clock-time" in said:
            settings["duration_s"] = f"{said['wall-clock-time']:.3g}"
        # The file ends with three dots; a number may be cut before them.
        last = index == len(parts) - 1
        whole = "bogo_ops_s" in found and (not last or re.search(r"^\.\.\.", part, re.MULTILINE))
        runs.append(Run(found, settings, "" if whole else "its YAML is cut off", _SILENT))
    return runs or [Run(problem="it has no metrics: --metrics writes them")]
