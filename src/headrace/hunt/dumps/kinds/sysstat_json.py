"""mpstat -o JSON and iostat -o JSON, with and without -x."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.base.received import BadContent, parsed
from headrace.hunt.dumps.kinds.sadf import MOST
from headrace.hunt.dumps.kinds.sysstat import cpu_numbers, disk_numbers, stamp_of, states_of
from headrace.hunt.dumps.piece import Numbers, Piece, Rates, Said, time_of

NAME = "mpstat and iostat, as JSON"
#: Columns that iostat calls otherwise in JSON.
_SHORT = {"util": "%util"}


def read(text: str) -> list[Piece]:
    if '"sysstat"' not in text[:4096]:
        return []
    try:
        hosts = parsed(text, MOST)["sysstat"]["hosts"]
        found: list[Piece] = []
        for host in hosts:
            statistics = [each for each in host["statistics"] if isinstance(each, dict)]
            # In sadf's the time of a report is an object.
            if not any(isinstance(each.get("timestamp"), dict) for each in statistics):
                found += _mpstat(statistics, str(host.get("date", "")))
                found += _iostat(statistics)
    except (BadContent, KeyError, TypeError, IndexError, AttributeError, ValueError):
        return []  # sadf's reader says what is wrong with it
    return found


def _mpstat(statistics: Sequence[Mapping[str, Any]], date: str) -> Iterator[Piece]:
    reports = [(each, _time(each, date)) for each in statistics if isinstance(each.get("cpu-load"), list)]
    times = [at_s for _, at_s in reports]
    for number, (each, at_s) in enumerate(reports):
        # The first report has its end only; it is as long as the next one.
        before = number - 1 if number else number
        ends = times[before : before + 2]
        seconds = (
            None if len(ends) < 2 or None in ends else (float(ends[1] or 0) - float(ends[0] or 0)) % 86_400
        )
        rows = {str(row["cpu"]): states_of(row) for row in each["cpu-load"]}
        rows = {("all" if name == "-1" else name): row for name, row in rows.items() if "idle" in row}
        if rows:
            yield Rates("mpstat", "cpu", cpu_numbers(rows), {}, seconds or None, at_s)


def _time(report: Mapping[str, Any], date: str) -> float | None:
    clock = str(report.get("timestamp", ""))
    return stamp_of(f"{date} {clock}") or time_of("1970-01-01", clock)


def _iostat(statistics: Sequence[Mapping[str, Any]]) -> Iterator[Piece]:
    reports = [each for each in statistics if isinstance(each.get("disk"), list)]
    if len(reports) == 1:
        yield Said(
            "iostat printed one report, which without -y is of averages since the boot: it is not used; "
            "iostat -x 1 10 prints more"
        )
    for before, each in itertools.pairwise(reports):
        at_s, start_s = (stamp_of(str(report.get("timestamp", ""))) for report in (each, before))
        seconds = at_s - start_s if at_s is not None and start_s is not None and at_s > start_s else None
        cpu = states_of(each["avg-cpu"]) if isinstance(each.get("avg-cpu"), dict) else {}
        if cpu:
            yield Rates("iostat", "cpu", cpu_numbers({"all": cpu}), {}, seconds, at_s)
        if devices := _devices(each["disk"]):
            yield Rates("iostat", "disk", devices, {}, seconds, at_s)


def _devices(rows: list[Mapping[str, Any]]) -> Numbers:
    found = {}
    for row in rows:
        cells = {_SHORT.get(name, name): value for name, value in row.items()}
        numbers = {name: float(value) for name, value in cells.items() if isinstance(value, int | float)}
        if "%util" in numbers or "tps" in numbers:
            found[str(row.get("disk_device", ""))] = numbers
    return disk_numbers(found)
