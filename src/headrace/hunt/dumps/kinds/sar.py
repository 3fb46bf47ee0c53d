"""What sar prints as text: tables of the same clock, one for each part, in any order.

sar -A of a day prints each part's title once and its rows below it, by time; sar with an interval repeats the
title. The clock of a title is the start of the first row's interval. The averages at the end say nothing new.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date as Date
from datetime import timedelta
from typing import Any

from headrace.hunt.dumps.kinds.sadf import parts
from headrace.hunt.dumps.kinds.sysstat import amount, date_of, is_sar, with_points
from headrace.hunt.dumps.piece import Numbers, Piece, Rates, Said, Unread, number_of, time_of

NAME = "sar"

_LINE = re.compile(r"^(\d\d):(\d\d):(\d\d)(?: ([AP]M))?\s+(\S.*)$")
#: First column of a title -> the part of a report as sadf names it; those with a name in each row.
_NAMED = {"CPU": "cpu-load", "DEV": "disk", "IFACE": "network"}
#: Column of a part without names -> part, and its name there.
_PLAIN: Mapping[str, tuple[str, str]] = {
    "runq-sz": ("queue", "runq-sz"), "blocked": ("queue", "blocked"),
    "pswpin/s": ("swap-pages", "pswpin"), "pswpout/s": ("swap-pages", "pswpout"),
    "%memused": ("memory", "memused-percent"),
    **{
        f"kb{name}": ("memory", name)
        for name in (
            "memfree", "avail", "memused", "buffers", "cached", "dirty", "slab", "swpfree", "commit", "anonpg",
            "pgtbl",
        )
    },
}  # fmt: skip
#: Column -> sampler, metric, label, growth per one of it. Shares of the time are of the whole interval.
_COUNTED: Mapping[str, tuple[str, str, str, float]] = {
    "cswch/s": ("cpu", "ctxt", "", 1), "proc/s": ("cpu", "processes", "", 1),
    "majflt/s": ("vmstat", "pgmajfault", "", 1), "fault/s": ("vmstat", "pgfault", "", 1),
    "pgscand/s": ("vmstat", "pgscan_direct", "", 1), "pgscank/s": ("vmstat", "pgscan_kswapd", "", 1),
    "%scpu": ("psi", "some_total_us", "cpu", 1e4), "%sio": ("psi", "some_total_us", "io", 1e4),
    "%fio": ("psi", "full_total_us", "io", 1e4), "%smem": ("psi", "some_total_us", "memory", 1e4),
    "%fmem": ("psi", "full_total_us", "memory", 1e4), "active/s": ("snmp", "Tcp.ActiveOpens", "", 1),
    "passive/s": ("snmp", "Tcp.PassiveOpens", "", 1), "iseg/s": ("snmp", "Tcp.InSegs", "", 1),
    "oseg/s": ("snmp", "Tcp.OutSegs", "", 1), "retrans/s": ("snmp", "Tcp.RetransSegs", "", 1),
}  # fmt: skip
#: Names of columns in old versions: sectors of 512 bytes.
_OLD = {
    "rd_sec/s": ("rkB", 0.5),
    "wr_sec/s": ("wkB", 0.5),
    "avgqu-sz": ("aqu-sz", 1.0),
    "%util": ("util-percent", 1.0),
}
#: Options of sar whose tables rules use.
READ_PARTS = "sar -u ALL, -P ALL, -d, -n DEV, -n TCP, -q, -r, -B, -W and -w"


@dataclass
class _Report:
    """What was printed for one moment."""

    seconds: float
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    plain: dict[str, dict[str, float]] = field(default_factory=dict)
    counted: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    def add(self, columns: list[str], words: list[str]) -> None:
        part = _NAMED.get(columns[0])
        # For people (-h) sizes have units, and shares their sign.
        cells = {name: amount(name, word) for name, word in zip(columns, words, strict=True)}
        if part is not None:
            row: dict[str, Any] = {_NAME_OF[part]: words[0]}
            for name, value in cells.items():
                known, scale = _OLD.get(name, (name.removesuffix("/s").removeprefix("%"), 1.0))
                if value is not None and name != columns[0]:
                    row[known] = value * scale
            self.rows.setdefault(part, []).append(row)
            return
        for name, value in cells.items():
            if value is None:
                continue
            if name in _PLAIN:
                to, known = _PLAIN[name]
                self.plain.setdefault(to, {})[known] = value
            elif name in _COUNTED:
                sampler, metric, label, scale = _COUNTED[name]
                self.counted.setdefault(sampler, {}).setdefault(metric, {})[label] = value * scale

    def statistics(self) -> dict[str, Any]:
        """The form that sadf -j gives it."""
        rows = self.rows.get("network", [])
        return {
            **self.plain,
            "cpu-load": self.rows.get("cpu-load", []),
            "disk": self.rows.get("disk", []),
            "network": {"net-dev": rows, "net-edev": rows},
        }


_NAME_OF = {"cpu-load": "cpu", "disk": "disk-device", "network": "iface"}


def read(text: str) -> list[Piece]:
    text = with_points(text)
    if not is_sar(text):
        return []
    reports, restarts = _reports(text)
    found: list[Piece] = []
    for at_s in sorted(reports):
        found += _rates(at_s, reports[at_s])
    if not found:
        what = f" {' '.join(names)}" if (names := _columns(text)) else ""
        found.append(
            Unread(f"a part of sar that no rule uses{what}: {READ_PARTS} are read, or sadf -j FILE -- -A")
        )
    if restarts:
        found.append(Said("the host was restarted while sar recorded: the interval across it is left out"))
    return found


def _columns(text: str) -> list[str]:
    """Of the first title, some: by them people know which part they gave."""
    titles = (match[5].split() for line in text.splitlines() if (match := _LINE.match(line.strip())))
    first = next((words for words in titles if not any(number_of(word) is not None for word in words)), [])
    return [f"({', '.join(first[:3])})"] if first else []


@dataclass
class _Clock:
    """The clock of lines, over midnight, from the first day on."""

    day: Date
    current: Date
    start_s: float | None = None
    before_s: float | None = None

    def at(self, match: re.Match[str]) -> float | None:
        at_s = time_of(self.current.isoformat(), _clock(match))
        if at_s is not None and self.before_s is not None and at_s < self.before_s - 43_200:
            self.current += timedelta(days=1)
            at_s += 86_400
        return at_s

    def again(self) -> None:
        """The next part of the same days begins."""
        self.current, self.start_s, self.before_s = self.day, None, None


def _reports(text: str) -> tuple[dict[float, _Report], int]:
    found: dict[float, _Report] = {}
    columns: list[str] = []
    are_names_last, restarts = False, 0
    clock = _Clock(_day(text), _day(text))
    for line in text.splitlines():
        if line.startswith("Linux ") and "CPU)" in line:
            # Of several days in one file each has its own.
            clock = _Clock(_day(line), _day(line))
        match = _LINE.match(line.strip())
        if match is None:
            # A blank line ends a table; averages, which have no clock, end a part.
            columns = [] if not line.strip() else columns
            if re.match(r"\S+\s*:\s", line):
                clock.again()
            continue
        words = match[5].split()
        if "RESTART" in words:
            columns, clock.start_s, clock.before_s, restarts = [], None, None, restarts + 1
            continue
        is_title = not any(number_of(word) is not None for word in words)
        if is_title:
            # sar -p has the names behind the numbers.
            are_names_last = words[0] not in _NAMED and words[-1] in _NAMED
        if are_names_last:
            words = [words[-1], *words[:-1]]
        at_s = clock.at(match)
        if at_s is None:
            continue
        if is_title:
            columns, clock.start_s, clock.before_s = words, at_s, at_s
            continue
        if at_s != clock.before_s:
            clock.start_s, clock.before_s = clock.before_s, at_s
        is_row = columns and len(words) == len(columns)
        if is_row and clock.start_s is not None and at_s > clock.start_s:
            found.setdefault(at_s, _Report(at_s - clock.start_s)).add(columns, words)
    return found, restarts


def _day(text: str) -> Date:
    """Of the banner; of one whose order of day and month is another, any: only differences matter."""
    try:
        return Date.fromisoformat(date_of(text))
    except ValueError:
        return Date(1970, 1, 1)


def _clock(match: re.Match[str]) -> str:
    hour = int(match[1])
    if match[4]:
        hour = hour % 12 + (12 if match[4] == "PM" else 0)
    return f"{hour:02d}:{match[2]}:{match[3]}"


def _rates(at_s: float, report: _Report) -> Iterator[Piece]:
    found: dict[str, tuple[dict[str, Any], Numbers]] = {
        sampler: (dict(numbers), gauges) for sampler, (numbers, gauges) in parts(report.statistics()).items()
    }
    for sampler, counted in report.counted.items():
        numbers, gauges = found.get(sampler, ({}, {}))
        found[sampler] = ({**numbers, **counted}, gauges)
    for sampler, (numbers, gauges) in found.items():
        if any(numbers.values()) or any(gauges.values()):
            yield Rates(NAME, sampler, numbers, gauges, report.seconds, at_s)
