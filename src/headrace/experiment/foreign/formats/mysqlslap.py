"""mysqlslap and mariadb-slap: the report for people."""

from __future__ import annotations

import re

from headrace.experiment.foreign.run import OtherVariant, Run, groups

NAME = "mysqlslap"

_WORDS = {"mean_ms": "Average", "min_ms": "Minimum", "max_ms": "Maximum"}
_CSV = re.compile(r"\s*[^,\n]*(?:,[a-z]+)?(?:,\d+\.\d+){3},\d+,\d+\s*$", re.MULTILINE)


def read(text: str) -> list[Run] | None:
    """Each ``Benchmark`` of a file. A run is one pass of the query list."""
    if _CSV.match(text):
        raise OtherVariant(
            "mysqlslap's CSV, which does not say whether statements failed", "mysqlslap without --csv"
        )
    parts = re.split(r"^Benchmark\s*\n", text, flags=re.MULTILINE)
    error = re.search(r"^\S*slap: [^\n]*", text, re.MULTILINE)
    if len(parts) == 1:
        return [Run(problem=f"it failed: {error[0][:120]}")] if error else None
    return [_run(part, error[0][:120] if error else "") for part in parts[1:]]


def _run(part: str, error: str) -> Run:
    found: dict[str, float] = {}
    for name, word in _WORDS.items():
        seconds = re.search(rf"{word} number of seconds to run all queries: ([\d.]+) seconds", part)
        if seconds:
            found[name] = float(seconds[1]) * 1e3
    clients = re.search(r"Number of clients running queries: (\d+)", part)
    queries = re.search(r"Average number of queries per client: (\d+)", part)
    settings = {"clients": clients[1]} if clients else {}
    engine = groups(part, {"engine": r"^\s*Running for engine (\S+)"})
    if queries:
        settings["queries_per_client"] = queries[1]
    if found.get("mean_ms"):
        found["runs_s"] = 1e3 / found["mean_ms"]
    problem = (
        f"it failed: {error}"
        if error
        else ""
        if len(settings) == 2 and len(found) >= 3
        else "its report is cut off"
    )
    return Run(found, settings, problem, about=engine)
