"""Programs that time one command or function: hyperfine, pytest-benchmark, go test -bench.

What one process measured over and over is one observation: its repeats share the process's memory layout and the
machine's state.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from headrace.base.counted import counted
from headrace.base.received import BadContent, an_object
from headrace.experiment.foreign.run import (
    OtherVariant,
    Run,
    groups,
    known,
    number,
    once,
    parsed,
    rows_of,
    texts,
    within,
)

NAME = "hyperfine, pytest-benchmark or go test -bench"

_NO_JSON = re.compile(
    r"^Benchmark (#?\d+|1): |^command,mean,stddev,|^\| Command +\| +Mean \[|^\| Mean \[", re.MULTILINE
)
_MACHINE = {"python_version": "python_version", "host": "node", "cpu": "cpu.brand_raw", "system": "release"}
_TABLE = re.compile(r"^-+ benchmark(?: [^\n]*)?: \d+ tests? -+$", re.MULTILINE)
#: ``go test -json``: an event a line.
_EVENT = re.compile(r'^\{("Time":"[^"]*",)?"Action":"', re.MULTILINE)
_GO = re.compile(r"^(Benchmark\S+?)(?:-(\d+))?\s+(\d+)\s+([\d.]+(?:e[+-]?\d+)?) ns/op", re.MULTILINE)


def read(text: str) -> list[Run] | None:
    if _EVENT.search(text):
        text = _printed(text)
    if _GO.search(text):
        return _go(text)
    if _NO_JSON.search(text):
        raise OtherVariant(
            "hyperfine's report for people, CSV, Markdown, AsciiDoc or Org", "hyperfine --export-json FILE"
        )
    if _TABLE.search(text):
        raise OtherVariant("pytest-benchmark's tables for people", "pytest --benchmark-json=FILE")
    content = parsed(text)
    if rows_of(within(content, "results")) and "command" in rows_of(content["results"])[0]:
        return [_hyperfine(each) for each in rows_of(content["results"])]
    benchmarks = rows_of(within(content, "benchmarks"))
    if benchmarks and "stats" in benchmarks[0]:
        about = texts(within(content, "machine_info"), _MACHINE)
        return [replace(_pytest(each), about=about) for each in benchmarks]
    return None


def _printed(text: str) -> str:
    """What the tests of ``go test -json`` printed; a line of it may come in pieces."""
    lines = [line for line in text.splitlines() if line.startswith('{"')]
    told = []
    for line in lines:
        try:
            told.append(an_object(line))
        except BadContent:
            break
    return "".join(
        str(each["Output"]) for each in told if each.get("Action") == "output" and "Output" in each
    )


def _hyperfine(result: dict[str, Any]) -> Run:
    times = {f"{name}_s": number(result, name) for name in ("mean", "median", "min", "max")}
    ended = result.get("exit_codes")
    codes = [code for code in ended if code != 0] if isinstance(ended, list) else []
    problem = f"it ended with exit code {codes[0]} {counted(len(codes), 'time')}" if codes else ""
    # A command that a signal ended has no exit code.
    if None in codes:
        problem = f"it was killed by a signal {counted(codes.count(None), 'time')}"
    if not problem and times["mean_s"] is None:
        problem = "it has no mean"
    command = str(result.get("command"))
    given = result.get("parameters")
    about = {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}
    for name, value in about.items():
        # The command is one, whatever the parameter's value.
        command = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", f"{{{name}}}", command) if value else command
    return Run(known(**times), {"command": command}, problem, about=about)


def _pytest(result: dict[str, Any]) -> Run:
    stats = result.get("stats")
    times = {f"{name}_s": number(stats, name) for name in ("mean", "median", "min", "max")}
    found = known(**times, ops_s=number(stats, "ops"))
    name = str(result.get("fullname") or result.get("name"))
    return Run(found, {"test": name}, "" if "mean_s" in found else "it has no mean")


def _go(text: str) -> list[Run]:
    failed = re.search(r"^(--- FAIL|FAIL\b|panic: )[^\n]*", text, re.MULTILINE)
    ended = re.search(r"^(PASS|ok\s)", text, re.MULTILINE)
    problem = f"it failed: {failed[0][:80]}" if failed else "" if ended else "it does not end with PASS"
    about = groups(text, {"goos": r"^goos: (\w+)", "goarch": r"^goarch: (\w+)", "cpu": r"^cpu: (.+)$"})
    # -cpu 1,4 runs each benchmark with as many threads; one has no suffix.
    runs = [
        Run({"mean_ns": float(ns)}, {"benchmark": name, "cpus": cpus or "1"}, problem, about=about)
        for name, cpus, _, ns in _GO.findall(text)
    ]
    return once(runs)
