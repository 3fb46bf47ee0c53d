"""Google Benchmark: its JSON, its CSV and what it prints.

What one process measured over and over is one observation: its repetitions share the process's memory layout and
the machine's state. Aggregates repeat what the iterations say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from headrace.experiment.foreign.run import (
    Run,
    cells_of,
    groups,
    known,
    number,
    once,
    parsed,
    rows_of,
    texts,
    within,
)

NAME = "Google Benchmark"

_CONTEXT = {
    "build": "library_build_type",
    "num_cpus": "num_cpus",
    "host": "host_name",
    "cpu_scaling": "cpu_scaling_enabled",
}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_AGGREGATE = re.compile(r"(.+)_(?:mean|median|stddev|cv|min|max|BigO|RMS)")
_ALONE = "it has aggregates alone (--benchmark_report_aggregates_only)"
_CSV = "name,iterations,real_time,cpu_time,time_unit"
_HEADER = re.compile(r"^Benchmark +Time +CPU +Iterations.*$", re.MULTILINE)
_RULE = re.compile(r"-{20,}")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_ROW = re.compile(r"(\S.*?) +([\d.e+-]+) (ns|us|ms|s) +([\d.e+-]+) (?:ns|us|ms|s) +(\d+)(?: +(.*))?")
_WRONG = re.compile(r"(\S.*?) +(?:ERROR OCCURRED|SKIPPED): (.*)")
_RATE = re.compile(r"\b(items|bytes)_per_second=([\d.e+-]+)([kKMGTPmun]?)(i?)/s")
_TIMES = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "m": -1, "u": -2, "n": -3}


def read(text: str) -> list[Run] | None:
    runs = _read(text)
    context = within(parsed(text), "context") if runs else None
    about = texts(context, _CONTEXT) | groups(text, {"num_cpus": r"^Run on \((\d+) X "})
    if re.search(r"^\*+WARNING\*+ Library was built as DEBUG", text, re.MULTILINE):
        about["build"] = "debug"
    return [replace(run, about=about) for run in runs] if runs else runs


def _read(text: str) -> list[Run] | None:
    if (start := text.find(_CSV)) >= 0:
        return _of_csv(text[start:])
    plain = _COLOUR.sub("", text)
    if header := _HEADER.search(plain):
        return _of_console(plain[header.end() :])
    benchmarks = rows_of(within(parsed(text), "benchmarks"))
    if not any("real_time" in each for each in benchmarks) or "stats" in benchmarks[0]:
        return None
    own = [each for each in benchmarks if each.get("run_type") != "aggregate"]
    return _once((str(each.get("name")), _run(each)) for each in own)


def _once(told: Iterable[tuple[str, Run]]) -> list[Run]:
    """The runs by their names, without the aggregates: until 1.5, and out of JSON, only their names tell them."""
    runs = list(told)
    names = {name for name, _ in runs}
    bases = {name.partition("/")[0] for name in names} | names
    own = []
    whole = set()
    for name, run in runs:
        aggregate = _AGGREGATE.fullmatch(name)
        alone = aggregate and {f"{aggregate[1]}_mean", f"{aggregate[1]}_stddev"} <= names
        if aggregate and (alone or aggregate[1] in bases):
            whole.add(aggregate[1])
        else:
            own.append((name, run))
    # Aggregates follow a benchmark's repetitions; for a complexity there are some of whole families.
    cut = {name for name, _ in own if name not in whole} if whole & {name for name, _ in own} else set()
    own_runs = [
        Run(
            run.responses, run.settings, run.problem or ("its repetitions are cut off" if name in cut else "")
        )
        for name, run in own
    ]
    return once(own_runs) if own else [Run(problem=_ALONE)]


def _run(result: Mapping[str, Any]) -> Run:
    unit = _SECONDS.get(str(result.get("time_unit")))
    real, cpu = (number(result, name) for name in ("real_time", "cpu_time"))
    found = {}
    if unit is not None:
        found = known(
            real_s=real * unit if real is not None else None, cpu_s=cpu * unit if cpu is not None else None
        )
    found |= known(items_s=number(result, "items_per_second"), bytes_s=number(result, "bytes_per_second"))
    problem = (
        f"it failed: {result.get('error_message') or 'no message'}" if result.get("error_occurred") else ""
    )
    if not problem and "real_s" not in found:
        problem = "it has no time, or one in an unknown unit"
    name = str(result.get("name"))
    settings = {"benchmark": name}
    if (threads := number(result, "threads")) is not None:
        settings["threads"] = f"{threads:.0f}"
    elif match := re.search(r"/threads:(\d+)", name):
        settings["threads"] = match[1]
    return Run(found, settings, problem)


def _of_csv(text: str) -> list[Run]:
    header, *rows = cells_of(text)
    told: list[tuple[str, Run]] = []
    for row in rows:
        # The row of one that failed ends with its message.
        if len(row) != len(header) and "true" not in row[-2:-1]:
            told.append(("", Run(problem="its table is cut off")))
            break
        cells: dict[str, Any] = dict(zip(header, row, strict=False))
        for name in ("real_time", "cpu_time", "items_per_second", "bytes_per_second"):
            cells[name] = _float(cells.get(name, ""))
        told.append((cells["name"], _run(cells)))
    return _once(told) if told else [Run(problem="its table has no benchmark: it was interrupted")]


def _float(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d[\d.]*(?:e[+-]?\d+)?", text) and text.count(".") < 2 else None


def _of_console(text: str) -> list[Run]:
    told = []
    for line in map(str.strip, text.splitlines()):
        if not line or _RULE.fullmatch(line):
            continue
        if wrong := _WRONG.fullmatch(line):
            told.append((wrong[1], Run({}, {"benchmark": wrong[1]}, f"it failed: {wrong[2][:120]}")))
        elif row := _ROW.fullmatch(line):
            name, real, unit, cpu, _, rest = row.groups()
            result = {"name": name, "real_time": _float(real), "cpu_time": _float(cpu), "time_unit": unit}
            told.append((name, _run(result | _rates(rest or ""))))
        elif not _AGGREGATE.fullmatch(line.split()[0]):
            # Whatever follows its table: the output of what called it, or a crash.
            if told and re.search(r"abort|signal|segmentation|terminate|assert|core dumped", line, re.I):
                told.append((line, Run(problem=f"it ended with: {line[:120]}")))
            break
    return _once(told) if told else [Run(problem="its table has no benchmark: it was interrupted")]


def _rates(text: str) -> dict[str, float]:
    """Counters as people read them: ``2.26G/s``; of bytes, G is 1024 to the third, with and without the i."""
    rates = {}
    for what, value, prefix, binary in _RATE.findall(text):
        base = 1024.0 if binary or what == "bytes" else 1000.0
        if (bare := _float(value)) is not None:
            rates[f"{what}_per_second"] = bare * base ** _TIMES[prefix]
    return rates
