"""top -b: the CPUs and the memory of each of its pages, and what programs used in between.

The first page is of averages since the boot, or of no time at all, by the version: its gauges are used alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.hunt.dumps.kinds.sysstat import cpu_numbers
from headrace.hunt.dumps.piece import Piece, Rates, Said, number_of, time_of

NAME = "top -b"
ONE_PAGE = "top printed one page, whose CPU time is of no known interval: it is not used; top -b -n 3"

_PAGE = re.compile(r"^top - (\d\d:\d\d:\d\d) up ", re.MULTILINE)
#: busybox's pages have no clock.
_BUSYBOX = re.compile(
    r"^Mem: (\d+)K used, (\d+)K free, \d+K shrd, (\d+)K buff, (\d+)K cached\n(CPU: +\d[^\n]*)\n"
    r"Load average: [\d. ]+? (\d+)/\d+ \d+$",
    re.MULTILINE,
)
_OF_BUSYBOX = {
    "usr": "user", "sys": "system", "nic": "nice", "idle": "idle", "io": "iowait", "irq": "irq", "sirq": "softirq",
}  # fmt: skip
#: With `1` or -1 several CPUs are on one line, as many as the window was wide.
_CPUS = re.compile(r"%?Cpu(?:\(s\)|(\d+) *):([^\n]*?)(?=%?Cpu\d|$)", re.MULTILINE | re.IGNORECASE)
_STATE = re.compile(r"([\d.]+)[ %]*(us|sy|ni|id|wa|hi|si|st)\b")
_STATES = {
    "us": "user", "sy": "system", "ni": "nice", "id": "idle", "wa": "iowait", "hi": "irq", "si": "softirq",
    "st": "steal",
}  # fmt: skip
_MEMORY = re.compile(r"\b([KMGT])iB (\w+) ?:([^\n]*?)(?=[KMGT]iB Swap|$)|^()(Mem|Swap): *(.*)$", re.MULTILINE)
#: Of other languages the memory has another name, twice: `Spch`.
_AMOUNT = re.compile(r"([\d.]+)[+k]?\s+(total|free|used|buff/cache|avail)\b")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "": 1 << 10}
_RUNNING = re.compile(r"^(?:Tasks|Threads):.*?\b(\d+) running", re.MULTILINE)


def read(text: str) -> list[Piece]:
    starts = list(_PAGE.finditer(text))
    if not starts:
        return list(_of_busybox(text))
    # Of most languages the decimal point is a comma: `12,5 us`.
    ends = [*(match.start() for match in starts[1:]), len(text)]
    pages = [(match[1], _points(text[match.start() : end])) for match, end in zip(starts, ends, strict=True)]
    return list(_pieces(pages))


def _of_busybox(text: str) -> Iterator[Piece]:
    pages = list(_BUSYBOX.finditer(text))
    if len(pages) == 1:
        yield Said(ONE_PAGE)
    for number, page in enumerate(pages):
        states = {
            _OF_BUSYBOX[name]: number_of(share)
            for share, name in re.findall(r"([\d.]+)% (\w+)", page[5])
            if name in _OF_BUSYBOX
        }
        row = {state: share for state, share in states.items() if share is not None}
        if number and "idle" in row:
            running = {"procs_running": {"": float(page[6])}}
            yield Rates("top", "cpu", cpu_numbers({"all": row}), running)
        if number or len(pages) == 1:
            used, free, buffers, cached = (1024.0 * int(page[at]) for at in range(1, 5))
            gauges = {"MemTotal": used + free, "MemFree": free, "Buffers": buffers, "Cached": cached}
            yield Rates("top", "memory", {}, {name: {"": value} for name, value in gauges.items()})


def _points(text: str) -> str:
    return re.sub(r"(?<=\d),(?=\d\b)", ".", text)


def _pieces(pages: list[tuple[str, str]]) -> Iterator[Piece]:
    if len(pages) == 1:
        yield Said(ONE_PAGE)
    yield Said("of top its totals are read, not its lists of processes")
    if any(is_cut(page) for _, page in pages):
        yield Said(
            "top was cut off at the width of its window, and CPUs with it: they are not used; top -b -w 512"
        )
    times = [time_of("1970-01-01", clock) for clock, _ in pages]
    # Its clock has no date: the last page is at the end of the dump.
    for number, (_, page) in enumerate(pages):
        at_s, before = times[number], times[number - 1] if number else None
        seconds = (at_s - before) % 86_400 if at_s is not None and before is not None else None
        if number and not is_cut(page):
            yield from _cpu(page, seconds or None)
        if (number or len(pages) == 1) and (memory := _memory(page)):
            gauges = {name: {"": value} for name, value in memory.items()}
            yield Rates("top", "memory", {}, gauges, seconds or None)


def is_cut(page: str) -> bool:
    """Whether CPUs beside others are lost: swap, which then stands beside the memory, is lost with them."""
    each = [match[2] for match in _CPUS.finditer(page) if match[1]]
    return bool(each) and (
        not re.search(r"\bSwap ?:", page) or not all(re.search(r"\bst\b", one) for one in each)
    )


def _cpu(page: str, seconds: float | None) -> Iterator[Piece]:
    rows = {}
    for match in _CPUS.finditer(page):
        shares = {_STATES[name]: number_of(share) for share, name in _STATE.findall(match[2])}
        states = {name: share for name, share in shares.items() if share is not None}
        if "idle" in states:
            rows[match[1] or "all"] = states
    if rows and "all" not in rows:
        count = len(rows)
        rows["all"] = {
            state: sum(row.get(state, 0.0) for row in rows.values()) / count for state in _STATES.values()
        }
    if rows:
        running = _RUNNING.search(page)
        gauges = {"procs_running": {"": float(running[1])}} if running else {}
        yield Rates("top", "cpu", cpu_numbers(rows), gauges, seconds)


def _memory(page: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for match in _MEMORY.finditer(page):
        unit = _UNITS[match[1] or match[4] or ""]
        kind, amounts = (match[2] or match[5]), (match[3] or match[6])
        for amount, name in _AMOUNT.findall(amounts):
            value = number_of(amount)
            known = {
                ("Mem", "total"): "MemTotal",
                ("Mem", "free"): "MemFree",
                ("Mem", "buff/cache"): "Cached",
                ("Swap", "total"): "SwapTotal",
                ("Swap", "free"): "SwapFree",
            }.get(("Swap" if kind == "Swap" else "Mem", name), "MemAvailable" if name == "avail" else "")
            if value is not None and known:
                found[known] = value * unit
    return found
