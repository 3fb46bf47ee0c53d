"""JMH: its JSON (``-rf json``) and its tables (``-rf csv``, ``-rf scsv``), which it writes when all has ended."""

from __future__ import annotations

import re
from typing import Any

from headrace.experiment.foreign.run import (
    OtherVariant,
    Run,
    cells_of,
    known,
    number,
    parsed,
    rows_of,
    texts,
    within,
)

NAME = "JMH"

_ABOUT = (
    "jmhVersion", "jdkVersion", "vmName", "jvmArgs", "forks", "warmupIterations", "warmupTime",
    "measurementIterations", "measurementTime", "measurementBatchSize",
)  # fmt: skip
_PEOPLE = re.compile(
    r"^# (JMH version|Run complete|Run progress|VM version): |^Benchmark +Mode +Cnt +Score", re.MULTILINE
)
_TABLE = re.compile(r'^"Benchmark"([,;])"Mode"[,;]"Threads"[,;]"Samples"[,;]"Score"', re.MULTILINE)
_TAIL = re.compile(r"(?:.*\W)?p(\d[\d.]*)")


def read(text: str) -> list[Run] | None:
    if table := _TABLE.search(text):
        return _of_table(text[table.start() :], table[1])
    if _PEOPLE.search(text):
        raise OtherVariant("JMH's report for people", "java -jar benchmarks.jar -rf json -rff FILE")
    runs = rows_of(parsed(text))
    return [_of_json(each) for each in runs] if runs and "jmhVersion" in runs[0] else None


def _name(unit: str) -> str:
    """``ops/s`` -> ops_s, ``us/op`` -> us_op: never converted, the unit is in the name."""
    return re.sub(r"\W+", "_", unit).strip("_")


def _of_json(result: dict[str, Any]) -> Run:
    score, unit = number(result, "primaryMetric", "score"), str(within(result, "primaryMetric", "scoreUnit"))
    found = known(**{_name(unit): score})
    settings: dict[str, str] = {}
    for name in ("benchmark", "mode", "threads"):
        if name in result:
            settings[name] = str(result[name])
    parameters = result.get("params")
    settings |= {str(k): str(v) for k, v in parameters.items()} if isinstance(parameters, dict) else {}
    return Run(found, settings, "" if found else "it has no score", about=texts(result, _ABOUT))


def _of_table(text: str, separator: str) -> list[Run]:
    header, *rows = cells_of(text, separator)
    runs: list[Run] = []
    scored = set()
    found: dict[tuple[str, ...], tuple[dict[str, str], dict[str, float]]] = {}
    for row in rows:
        if len(row) != len(header):
            if separator == "," and len(row) > len(header):
                return [Run(problem="its numbers have decimal commas, as its columns (-rf json has none)")]
            runs.append(Run(problem="its table is cut off"))
            continue
        cells = dict(zip(header, row, strict=True))
        # What a profiler or a percentile adds has the name of its benchmark before the colon.
        benchmark, _, part = cells["Benchmark"].partition(":")
        settings = {"benchmark": benchmark, "mode": cells["Mode"], "threads": cells["Threads"]}
        settings |= {
            name.removeprefix("Param: "): value for name, value in cells.items() if name.startswith("Param: ")
        }
        _, responses = found.setdefault(tuple(settings.values()), (settings, {}))
        score = cells["Score"].replace(",", ".") if separator == ";" else cells["Score"]
        if re.fullmatch(r"\d+(?:\.\d+)?(?:E[+-]?\d+)?", score):
            tail = _TAIL.fullmatch(part) if part else None
            named = f"p{100 * float(tail[1]):g}_" if tail else f"{_name(part)}_" if part else ""
            if not part:
                scored.add(benchmark)
            responses[named + _name(cells.get("Unit", ""))] = float(score)
    for settings, responses in found.values():
        runs.append(Run(responses, settings, "" if settings["benchmark"] in scored else "it has no score"))
    return runs or [Run(problem="its table has no benchmark: it was interrupted")]
