"""collectl -P: one line per interval, below a line that names each column: ``[CPU]User%``, ``[DSK:sda]Reads``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from headrace.hunt.dumps.kinds.sysstat import cpu_numbers
from headrace.hunt.dumps.piece import Piece, Rates, Said, number_of, time_of

NAME = "collectl -P"

_TITLE = re.compile(r"^#(?:Date[ ,;|]Time|UTC)[ ,;|](\[[^\n]+)$", re.MULTILINE)
_COLUMN = re.compile(r"\[([A-Z]{3})(?::([^\]]+))?\](\S+)")
_STATES = {
    "User%": "user", "Nice%": "nice", "Sys%": "system", "Wait%": "iowait", "Irq%": "irq", "Soft%": "softirq",
    "Steal%": "steal", "Idle%": "idle",
}  # fmt: skip
#: Part and column -> sampler, counter, growth per one of it. Times are whole ms, so a device's waits are not used.
_COUNTED: Mapping[tuple[str, str], tuple[str, str, float]] = {
    ("CPU", "Ctx/sec"): ("cpu", "ctxt", 1), ("CPU", "Intrpt/sec"): ("cpu", "intr", 1),
    ("DSK", "Reads"): ("disk", "reads", 1), ("DSK", "RKBytes"): ("disk", "sectors_read", 2),
    ("DSK", "Writes"): ("disk", "writes", 1), ("DSK", "WKBytes"): ("disk", "sectors_written", 2),
    ("DSK", "RMerge"): ("disk", "reads_merged", 1), ("DSK", "WMerge"): ("disk", "writes_merged", 1),
    ("DSK", "Util"): ("disk", "io_ms", 10), ("DSK", "QueLen"): ("disk", "weighted_io_ms", 1000),
    ("NET", "RxPkt"): ("network", "rx_packets", 1), ("NET", "TxPkt"): ("network", "tx_packets", 1),
    ("NET", "RxKB"): ("network", "rx_bytes", 1024), ("NET", "TxKB"): ("network", "tx_bytes", 1024),
    ("NET", "RxDrp"): ("network", "rx_dropped", 1), ("NET", "TxDrp"): ("network", "tx_dropped", 1),
}  # fmt: skip
_GAUGES: Mapping[tuple[str, str], tuple[str, str, float]] = {
    ("CPU", "RunTot"): ("cpu", "procs_running", 1), ("CPU", "BlkTot"): ("cpu", "procs_blocked", 1),
    **{
        ("MEM", column): ("memory", name, 1024)
        for column, name in (
            ("Tot", "MemTotal"), ("Free", "MemFree"), ("Buf", "Buffers"), ("Cached", "Cached"), ("Dirty", "Dirty"),
            ("SwapTot", "SwapTotal"), ("SwapFree", "SwapFree"),
        )
    },
}  # fmt: skip


def read(text: str) -> list[Piece]:
    titles = list(_TITLE.finditer(text))
    pieces: list[Piece] = []
    for number, title in enumerate(titles):
        end = titles[number + 1].start() if number + 1 < len(titles) else len(text)
        pieces += _table(title, text[title.end() : end])
    return pieces


def _table(title: re.Match[str], body: str) -> Iterator[Piece]:
    mark = title[0][title[0].index("[") - 1]
    names = title[1].strip().split(mark)
    columns = [_COLUMN.fullmatch(name) for name in names]
    lines: list[tuple[float, dict[tuple[str, str, str], float]]] = []
    for line in body[: body.rfind("\n") + 1].splitlines():
        words = line.strip().split(mark)
        at = 1 if title[0].startswith("#UTC") else 2
        at_s = _time(words[:at])
        if at_s is None or len(words) != len(names) + at:
            continue
        cells = {
            (column[1], column[2] or "", column[3]): value
            for column, word in zip(columns, words[at:], strict=True)
            if column is not None and (value := number_of(word)) is not None
        }
        lines.append((at_s, cells))
    if len(lines) == 1:
        yield Said("collectl printed one line, whose interval is not known: it is not used; collectl -P -c 3")
    for (before_s, _), (at_s, cells) in itertools.pairwise(lines):
        if at_s > before_s:
            yield from _pieces(cells, at_s - before_s, at_s)


def _time(words: list[str]) -> float | None:
    if len(words) == 1:
        return number_of(words[0])
    match = re.fullmatch(r"(\d{4})-?(\d\d)-?(\d\d) (\d\d:\d\d:\d\d)(?:\.\d+)?", " ".join(words))
    return time_of(f"{match[1]}-{match[2]}-{match[3]}", match[4]) if match else None


def _pieces(cells: Mapping[tuple[str, str, str], float], seconds: float, at_s: float) -> Iterator[Piece]:
    rows: dict[str, dict[str, float]] = {}
    counted: dict[str, dict[str, dict[str, float]]] = {}
    gauges: dict[str, dict[str, dict[str, float]]] = {}
    for (part, label, column), value in cells.items():
        if part == "CPU" and column in _STATES:
            rows.setdefault(label or "all", {})[_STATES[column]] = value
        elif (part, column) in _GAUGES and not label:
            sampler, metric, scale = _GAUGES[part, column]
            gauges.setdefault(sampler, {})[metric] = {"": value * scale}
        elif (part, column) in _COUNTED and (label or part in ("CPU", "MEM")):
            sampler, metric, scale = _COUNTED[part, column]
            counted.setdefault(sampler, {}).setdefault(metric, {})[label] = value * scale
    if rows := {name: row for name, row in rows.items() if "idle" in row}:
        states = cpu_numbers(_with_all(rows))
        counted.setdefault("cpu", {}).update({state: dict(by_cpu) for state, by_cpu in states.items()})
    for sampler in dict.fromkeys((*counted, *gauges)):
        yield Rates(NAME, sampler, counted.get(sampler, {}), gauges.get(sampler, {}), seconds, at_s)


def _with_all(rows: Mapping[str, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    if "all" in rows:
        return dict(rows)
    states = {state for row in rows.values() for state in row}
    mean = {state: sum(row.get(state, 0.0) for row in rows.values()) / len(rows) for state in states}
    return {"all": mean, **rows}
