"""Programs that time one command or function: hyperfine, pytest-benchmark, Google Benchmark, JMH, go test -bench.

What one process measured over and over is one observation: its repeats share the process's memory layout and the
machine's state.
"""

from __future__ import annotations

import math
import re
from typing import Any

from headrace.counted import counted
from headrace.foreign.run import OtherVariant, Run, known, number, parsed, rows_of, within

NAME = "hyperfine, pytest-benchmark, Google Benchmark, JMH or go test -bench"

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_AGGREGATE = re.compile(r"(.+)_(?:mean|median|stddev|cv|min|max)")
_GO = re.compile(r"^(Benchmark\S+?)(?:-(\d+))?\s+(\d+)\s+([\d.]+(?:e[+-]?\d+)?) ns/op", re.MULTILINE)


def read(text: str) -> list[Run] | None:
    if _GO.search(text):
        return _go(text)
    if re.search(r"^Benchmark (#?\d+|1): |^command,mean,stddev,|^\| Command \| Mean \[", text, re.MULTILINE):
        raise OtherVariant("hyperfine's report for people, CSV or Markdown", "hyperfine --export-json FILE")
    if re.search(
        r"^# (JMH version|Run complete|Run progress|VM version): |^Benchmark +Mode +Cnt +Score",
        text,
        re.MULTILINE,
    ):
        raise OtherVariant("JMH's report for people", "java -jar benchmarks.jar -rf json -rff FILE")
    content = parsed(text)
    if isinstance(content, list):
        runs = rows_of(content)
        return [_jmh(each) for each in runs] if runs and "jmhVersion" in runs[0] else None
    if rows_of(within(content, "results")) and "command" in rows_of(content["results"])[0]:
        return [_hyperfine(each) for each in rows_of(content["results"])]
    benchmarks = rows_of(within(content, "benchmarks"))
    if benchmarks and "stats" in benchmarks[0]:
        return [_pytest(each) for each in benchmarks]
    if benchmarks and "real_time" in benchmarks[0] | {key: 1 for each in benchmarks for key in each}:
        # Aggregates repeat what the iterations say; until 1.5 only their names tell them.
        names = {str(each.get("name")) for each in benchmarks}
        own = [
            each
            for each in benchmarks
            if each.get("run_type") != "aggregate"
            and not ((told := _AGGREGATE.fullmatch(str(each.get("name")))) and told[1] in names)
        ]
        if not own:
            return [Run(problem="it has aggregates alone (--benchmark_report_aggregates_only)")]
        return _once([_google(each) for each in own])
    return None


def _once(runs: list[Run]) -> list[Run]:
    """One run of the repetitions that a process made of the same benchmark: their mean, or a failed one."""
    alike: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for run in runs:
        alike.setdefault(tuple(sorted(run.settings.items())), []).append(run)
    found = []
    for same in alike.values():
        problem = next((run.problem for run in same if run.problem), "")
        shared = [name for name in same[0].responses if all(name in run.responses for run in same)]
        means = {name: math.fsum(run.responses[name] / len(same) for run in same) for name in shared}
        found.append(Run(means, same[0].settings, problem))
    return found


def _hyperfine(result: dict[str, Any]) -> Run:
    times = {f"{name}_s": number(result, name) for name in ("mean", "median", "min", "max")}
    told = result.get("exit_codes")
    codes = [code for code in told if code != 0] if isinstance(told, list) else []
    problem = f"it ended with exit code {codes[0]} {counted(len(codes), 'time')}" if codes else ""
    # A command that a signal ended has no exit code.
    if None in codes:
        problem = f"it was killed by a signal {counted(codes.count(None), 'time')}"
    if not problem and times["mean_s"] is None:
        problem = "it has no mean"
    return Run(known(**times), {"command": str(result.get("command"))}, problem)


def _pytest(result: dict[str, Any]) -> Run:
    stats = result.get("stats")
    times = {f"{name}_s": number(stats, name) for name in ("mean", "median", "min", "max")}
    found = known(**times, ops_s=number(stats, "ops"))
    name = str(result.get("fullname") or result.get("name"))
    return Run(found, {"test": name}, "" if "mean_s" in found else "it has no mean")


def _google(result: dict[str, Any]) -> Run:
    unit = _SECONDS.get(str(result.get("time_unit")))
    real, cpu = (number(result, name) for name in ("real_time", "cpu_time"))
    found = {}
    if unit is not None:
        found = known(
            real_s=real * unit if real is not None else None, cpu_s=cpu * unit if cpu is not None else None
        )
    found |= known(items_s=number(result, "items_per_second"), bytes_s=number(result, "bytes_per_second"))
    problem = str(result.get("error_message") or "it failed") if result.get("error_occurred") else ""
    if not problem and "real_s" not in found:
        problem = "it has no time, or one in an unknown unit"
    settings = {"benchmark": str(result.get("name"))}
    if (threads := number(result, "threads")) is not None:
        settings["threads"] = f"{threads:.0f}"
    return Run(found, settings, problem)


def _jmh(result: dict[str, Any]) -> Run:
    score, unit = number(result, "primaryMetric", "score"), str(within(result, "primaryMetric", "scoreUnit"))
    # ``ops/s`` -> ops_s, ``us/op`` -> us_op: never converted, the unit is in the name.
    found = known(**{re.sub(r"\W+", "_", unit): score})
    settings: dict[str, str] = {}
    for name in ("benchmark", "mode", "threads"):
        if name in result:
            settings[name] = str(result[name])
    parameters = result.get("params")
    settings |= {str(k): str(v) for k, v in parameters.items()} if isinstance(parameters, dict) else {}
    return Run(found, settings, "" if found else "it has no score")


def _go(text: str) -> list[Run]:
    failed = re.search(r"^(--- FAIL|FAIL\b|panic: )[^\n]*", text, re.MULTILINE)
    ended = re.search(r"^(PASS|ok\s)", text, re.MULTILINE)
    problem = f"it failed: {failed[0][:80]}" if failed else "" if ended else "it does not end with PASS"
    # -cpu 1,4 runs each benchmark with as many threads; one has no suffix.
    runs = [
        Run({"mean_ns": float(ns)}, {"benchmark": name, "cpus": cpus or "1"}, problem)
        for name, cpus, _, ns in _GO.findall(text)
    ]
    return _once(runs)
