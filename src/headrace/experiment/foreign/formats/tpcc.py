"""tpcc-mysql and go-tpc: TPC-C's new orders per minute."""

from __future__ import annotations

import re

from headrace.base.counted import counted
from headrace.experiment.foreign.run import Run, closed, groups, pieces, stalls, text_of

NAME = "tpcc-mysql or go-tpc"

_SUMMARY = re.compile(
    r"^\[Summary\] (\w+) +- Takes\(s\): ([\d.]+), Count: (\d+), TPM: ([\d.]+), Sum\(ms\): [\d.]+, "
    r"Avg\(ms\): ([\d.]+), (50th\(ms\): [\d.]+, 90th\(ms\): [\d.]+, 95th\(ms\): [\d.]+, 99th\(ms\): [\d.]+[^\n]*)",
    re.MULTILINE,
)


#: What a report of tpcc-mysql begins and ends with; people cut the title off.
_TITLE = re.compile(r"^\*{5,}\n\*\*\* ###easy### TPC-C Load Generator", re.MULTILINE)
_TPMC = re.compile(r"^ +[\d.]+ TpmC[^\n]*\n?", re.MULTILINE)
_OURS = re.compile(r"TPC-C Load Generator|<TpmC>|<Raw Results>|^MEASURING START", re.MULTILINE)
#: An interval of tpcc-mysql, with the new orders of it; in its older form behind the time alone.
_INTERVAL = re.compile(r"^ *(\d+), (?:trx: )?(\d+)(?:,|\(\d+\):)", re.MULTILINE)
_CURRENT = re.compile(r"^\[Current\] NEW_ORDER - Takes\(s\): ([\d.]+), Count: (\d+)(?=, )", re.MULTILINE)


def read(text: str) -> list[Run] | None:
    if "TPC-C Load Generator" in text or "<TpmC>" in text:
        parts = pieces(_TITLE, text) or [part for part in closed(_TPMC, text) if _OURS.search(part)]
        return [_of_mysql(part) for part in parts or [text]]
    if re.search(r"^tpmC: [\d.]+|^\[Summary\] NEW_ORDER", text, re.MULTILINE):
        parts = closed(re.compile(r"^tpmC: [^\n]*\n?", re.MULTILINE), text)
        # What a shell said behind the last is no run.
        return [_of_go(part) for part in parts if "tpmC: " in part or "NEW_ORDER" in part]
    return None


def _of_mysql(part: str) -> Run:
    tpmc = re.search(r"^ +([\d.]+) TpmC", part, re.MULTILINE)
    failures = sum(
        int(count) for count in re.findall(r"^ +\[\d\] sc:\d+ +lt:\d+ +rt:\d+ +fl:(\d+)", part, re.MULTILINE)
    )
    settings = {}
    for name, pattern in {
        "warehouses": r"\[warehouse\]: (\d+)",
        "connections": r"\[connection\]: (\d+)",
        "duration_s": r"\[measure\]: (\d+)",
    }.items():
        if match := re.search(pattern, part):
            settings[name] = match[1]
    if tpmc is None:
        return Run({}, settings, "it has no TpmC at its end: it was interrupted")
    problem = f"{failures} transactions failed" if failures else ""
    if lost := re.search(r"^2\d{3}, \w{5}, [^\n]*", part, re.MULTILINE):
        problem = problem or f"it lost its connection: {lost[0][:80]}"
    if float(tpmc[1]) > 0:
        problem = problem or stalls(part, _INTERVAL)
    about = groups(part, {"rampup_s": r"\[rampup\]: (\d+)"})
    return Run({"tpmc": float(tpmc[1])}, settings, problem, about=about)


def _of_go(text: str) -> Run:
    found: dict[str, float] = {}
    settings: dict[str, str] = {}
    failed = 0
    for kind, takes, count, _, mean, tails in _SUMMARY.findall(text):
        if kind.endswith("_ERR"):
            failed += int(count)
        elif kind == "NEW_ORDER":
            settings["duration_s"] = text_of(round(float(takes)))
            found["mean_ms"] = float(mean)
            for tail, value in re.findall(r"([\d.]+)th\(ms\): (\d+(?:\.\d+)?)(?=[,\s]|$)", tails):
                found[f"p{float(tail):g}_ms"] = float(value)
            if most := re.search(r"Max\(ms\): (\d+(?:\.\d+)?)(?=[,\s]|$)", tails):
                found["max_ms"] = float(most[1])
            done = int(count)
    tpmc = re.search(r"^tpmC: ([\d.]+)(?=[,\n])", text, re.MULTILINE)
    if tpmc is None or not found:
        return Run(found, settings, "it has no tpmC at its end: it was interrupted")
    unwell = len(re.findall(r"\bexecute run failed, err\b", text))
    problem = (
        f"{counted(max(failed, unwell), 'statement')} failed" if max(failed, unwell) > 0.01 * done else ""
    )
    if stopped := re.search(r"^Got signal \[[^\]\n]*\] to exit", text, re.MULTILINE):
        problem = f"it was interrupted: {stopped[0]}"
    if done:
        problem = problem or stalls(text, _CURRENT)
    return Run({"tpmc": float(tpmc[1]), **found}, settings, problem)
