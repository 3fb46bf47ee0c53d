"""tpcc-mysql and go-tpc: TPC-C's new orders per minute."""

from __future__ import annotations

import re

from headrace.foreign.run import Run, text_of

NAME = "tpcc-mysql or go-tpc"

_SUMMARY = re.compile(
    r"^\[Summary\] (\w+) +- Takes\(s\): ([\d.]+), Count: (\d+), TPM: ([\d.]+), Sum\(ms\): [\d.]+, "
    r"Avg\(ms\): ([\d.]+), 50th\(ms\): ([\d.]+), 90th\(ms\): ([\d.]+), 95th\(ms\): ([\d.]+), 99th\(ms\): ([\d.]+)",
    re.MULTILINE,
)


def read(text: str) -> list[Run] | None:
    if "TPC-C Load Generator" in text or "<TpmC>" in text:
        return [_of_mysql(part) for part in re.split(r"(?<=TpmC)\n(?=\*{5,}\n)", text)]
    if re.search(r"^tpmC: [\d.]+|^\[Summary\] NEW_ORDER", text, re.MULTILINE):
        return [_of_go(text)]
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
    return Run({"tpmc": float(tpmc[1])}, settings, problem)


def _of_go(text: str) -> Run:
    found: dict[str, float] = {}
    settings: dict[str, str] = {}
    failed = 0
    for kind, takes, count, _, mean, p50, p90, p95, p99 in _SUMMARY.findall(text):
        if kind.endswith("_ERR"):
            failed += int(count)
        elif kind == "NEW_ORDER":
            settings["duration_s"] = text_of(round(float(takes)))
            times = {"mean_ms": mean, "p50_ms": p50, "p90_ms": p90, "p95_ms": p95, "p99_ms": p99}
            found |= {name: float(value) for name, value in times.items()}
            done = int(count)
    tpmc = re.search(r"^tpmC: ([\d.]+)", text, re.MULTILINE)
    if tpmc is None or not found:
        return Run(found, settings, "it has no tpmC at its end: it was interrupted")
    problem = f"{failed:,} statements failed" if failed > 0.01 * done else ""
    return Run({"tpmc": float(tpmc[1]), **found}, settings, problem)
