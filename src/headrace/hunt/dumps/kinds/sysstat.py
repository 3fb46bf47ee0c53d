"""What mpstat, iostat and vmstat print, as growth per second: their banner, their tables, their clock.

Of their first report after the start, iostat and vmstat print averages since the boot: that one is left out.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headrace.hunt.dumps.piece import About, Numbers, Piece, Rates, Said, number_of, stamped, time_of

NAME = "vmstat, iostat -x, mpstat"

_BANNER = re.compile(
    r"^Linux (\S+) \(([^)\s]{1,64})\)\s+(\d[\d./年月日-]{5,12})\s+_(\w+)_\s+\((\d+) CPU\)",
    re.MULTILINE,
)
_CLOCK = re.compile(r"(\d\d:\d\d:\d\d)(?: ([AP]M))?\s+")
_WORDS_IN_CLOCK = re.compile(r"(?<!\d)(\d\d)[時时시] ?(\d\d)[分분] ?(\d\d)[秒초]")
#: `am`, `p. m.`: AM and PM.
_HALF_OF_DAY = re.compile(r"(?<=:)(\d\d)[ \xa0\u202f]([AaPp])\.?[ \xa0\u202f]?[Mm]\b\.?")
#: What `ts` and loops of a shell write before each line.
_STAMP = re.compile(
    r"\[?(?:(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|(\d{10})(?:\.\d+)?|"
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)\]?:? "
)
#: vmstat repeats its title on a screen after so many lines at least; earlier it is another run.
_SCREEN = 15
#: Two numbers side by side with decimals, and no point in their line; for people (-h), with a unit.
_DECIMALS = r"\d+,\d\d?[kMGT%]?"
_COMMA = re.compile(rf"^[^\n.]* {_DECIMALS} +{_DECIMALS}(?= |$)[^\n.]*$", re.MULTILINE)
_TICKS_S = 100.0
#: Column -> state of a CPU.
_CPU = {
    "%usr": "user", "%user": "user", "%nice": "nice", "%sys": "system", "%system": "system",
    "%iowait": "iowait", "%irq": "irq", "%soft": "softirq", "%steal": "steal", "%idle": "idle",
}  # fmt: skip
_VMSTAT_CPU = {"us": "user", "sy": "system", "id": "idle", "wa": "iowait", "st": "steal"}
#: Column of iostat -x -> counter, and what one of it counts.
_DISK = {
    "r/s": ("reads", 1.0), "w/s": ("writes", 1.0), "rkB/s": ("sectors_read", 2.0),
    "wkB/s": ("sectors_written", 2.0), "rMB/s": ("sectors_read", 2048.0), "wMB/s": ("sectors_written", 2048.0),
    "rsec/s": ("sectors_read", 1.0), "wsec/s": ("sectors_written", 1.0), "rrqm/s": ("reads_merged", 1.0),
    "wrqm/s": ("writes_merged", 1.0), "d/s": ("discards", 1.0), "f/s": ("flushes", 1.0), "%util": ("io_ms", 10.0),
    "aqu-sz": ("weighted_io_ms", 1000.0), "avgqu-sz": ("weighted_io_ms", 1000.0), "tps": ("requests", 1.0),
    "kB_read/s": ("sectors_read", 2.0), "kB_wrtn/s": ("sectors_written", 2.0),
    "MB_read/s": ("sectors_read", 2048.0), "MB_wrtn/s": ("sectors_written", 2048.0),
    "Blk_read/s": ("sectors_read", 1.0), "Blk_wrtn/s": ("sectors_written", 1.0),
    "kB/s": ("sectors", 2.0), "MB/s": ("sectors", 2048.0),
}  # fmt: skip
#: Of sizes for people (-h), in kB.
_UNITS = {"k": 1.0, "M": 1024.0, "G": 1024.0**2, "T": 1024.0**3}
#: Time per request in ms -> its counter, and the column of the requests.
_WAITS = {
    "r_await": ("read_ms", "r/s"), "w_await": ("write_ms", "w/s"), "d_await": ("discard_ms", "d/s"),
    "f_await": ("flush_ms", "f/s"),
}  # fmt: skip


def with_points(text: str) -> str:
    """As in English: most languages of Europe have a comma for the point, and others words in a clock."""
    text = _WORDS_IN_CLOCK.sub(r"\1:\2:\3", text)
    text = _HALF_OF_DAY.sub(lambda match: f"{match[1]} {match[2].upper()}M", text)
    return re.sub(r"(?<=\d),(?=\d\d?(?!\d))", ".", text) if _COMMA.search(text) else text


def read(text: str) -> list[Piece]:
    found: list[Piece] = []
    for _, printed in stamped(_without_stamps(text)):
        part = with_points(printed)
        about = _about(part)
        pieces = [
            *(_mpstat(part) if "%idle" in part and _OF_MPSTAT.search(part) and not is_sar(part) else ()),
            *(_iostat(part) if re.search(_OF_IOSTAT, part, re.MULTILINE) else ()),
            *(_vmstat(part) if "swpd" in part else ()),
        ]
        found += [*about, *pieces] if pieces or (about and _is_banner_first(part)) else []
    return found


def _without_stamps(text: str) -> str:
    """Lines without the time before each, if all have one; vmstat's as -t prints it, behind the numbers."""
    lines = text.splitlines()
    matches = [_STAMP.match(f"{line} ") for line in lines if line.strip()]
    if len(matches) < 3 or None in matches:
        return text
    bare = []
    for line in lines:
        match = _STAMP.match(f"{line} ")
        rest = line[match.end() :] if match else line
        at = f"{match[1]} {match[2]}" if match and match[1] else ""
        if match and match[3]:
            at = datetime.fromtimestamp(int(match[3]), UTC).strftime("%Y-%m-%d %H:%M:%S")
        words = rest.split()
        is_vmstat = len(words) > 12 and all(word.isdecimal() for word in words)
        bare.append(f"{rest} {at}" if is_vmstat else rest)
    return "".join(f"{line}\n" for line in bare)


_OF_MPSTAT = re.compile(r"\bCPU\b|\bNODE\b")
#: Its titles; sar's disks have the clock before theirs, and their averages a word.
_OF_IOSTAT = r"^(?!\d\d:|\S+ +DEV\s)\S.*%util|^avg-cpu:|kB_read/s"

#: Titles that only sar prints: of CPUs in its own order or words, and of everything else.
_SAR = re.compile(
    r"^\d\d:\d\d:\d\d(?: [AP]M)?\s+(?:CPU\s+%user\s+%nice\s+%system|CPU\s+%usr.*%steal\s+%irq|DEV\s+tps|"
    r"IFACE\s+rx|proc/s\s|pswpin/s|pgpgin/s|kbmemfree|kbswpfree|runq-sz|tps\s+r|rxpck/s|rxerr/s|active/s|%scpu-10|%sio-10)",
    re.MULTILINE,
)


def is_sar(text: str) -> bool:
    return _SAR.search(text) is not None


def _is_banner_first(text: str) -> bool:
    match = _BANNER.search(text)
    return match is not None and not text[: match.start()].strip()


def _about(text: str) -> list[Piece]:
    match = _BANNER.search(text)
    if match is None:
        return []
    facts = {
        ("kernel", "release"): match[1],
        ("hostname",): match[2],
        ("cpu", "online_count"): int(match[5]),
    }
    return [About(facts)]


def date_of(text: str) -> str:
    match = _BANNER.search(text)
    return "1970-01-01" if match is None else _date_of(match[3])


def _clock_s(text: str, date: str) -> float | None:
    match = _CLOCK.match(text)
    if match is None:
        return None
    hour = int(match[1][:2])
    if match[2]:
        hour = hour % 12 + (12 if match[2] == "PM" else 0)
    return time_of(date, f"{hour:02d}{match[1][2:]}")


def _label(name: str) -> str:
    return name if name == "all" else f"cpu{name}"


@dataclass
class _Report:
    """One report: its clock, the clock of the line above it, and its rows."""

    start_s: float | None
    at_s: float | None
    rows: dict[str, Mapping[str, float]]


def _mpstat(text: str) -> Iterator[Piece]:
    date = date_of(text)
    reports: list[_Report] = []
    columns: list[str] = []
    is_ended = False
    # With -N alone: the sum is that of all CPUs, and the others are nodes.
    by_node = re.search(r"^\S+(?: [AP]M)? +CPU +.*%idle", text, re.MULTILINE) is None
    for line in text.splitlines():
        body = _CLOCK.sub("", line, count=1) if _CLOCK.match(line) else ""
        words = body.split()
        if words[:1] in (["CPU"], ["NODE"]) and "%idle" in words and (words[0] == "CPU" or by_node):
            columns = words
            reports.append(_Report(_clock_s(line, date), None, {}))
            is_ended = False
        elif not words:
            columns, is_ended = [], bool(reports)
        elif (
            columns
            and len(words) == len(columns)
            and (words[0] == "all" or (words[0].isdecimal() and not by_node))
        ):
            cells = dict(zip(columns, (number_of(word) for word in words), strict=True))
            states = {_CPU[name]: cells[name] for name in columns if name in _CPU}
            if None not in states.values():
                reports[-1].at_s = _clock_s(line, date)
                reports[-1].rows[words[0]] = {name: value or 0.0 for name, value in states.items()}
    reports = [each for each in reports if each.rows]
    if len(reports) > 1 and len(reports[-1].rows) < len(reports[-2].rows) and not is_ended:
        reports.pop()  # cut off: only the last one can be
    if reports and by_node:
        yield Said(
            "mpstat -N prints NUMA nodes: the load of single CPUs is unknown; mpstat -P ALL 1 10 prints it"
        )
    counts = {len(each.rows.keys() - {"all"}) for each in reports}
    if len(counts) > 1:
        yield Said(
            f"mpstat shows {min(counts)} to {max(counts)} CPUs: some went offline or came back meanwhile"
        )
    for each in reports:
        seconds = None if each.at_s is None or each.start_s is None else (each.at_s - each.start_s) % 86_400
        if not seconds:
            yield Said("mpstat printed averages since the boot: without an interval they are not used")
            continue
        yield Rates("mpstat", "cpu", cpu_numbers(each.rows), {}, seconds, each.at_s)


def cpu_numbers(rows: Mapping[str, Mapping[str, float]]) -> Numbers:
    """Ticks of each CPU, and of all together as /proc/stat adds them up."""
    each = max(len([name for name in rows if name != "all"]), 1)
    found: dict[str, dict[str, float]] = {}
    for name, states in rows.items():
        for state, percent in states.items():
            scale = each if name == "all" else 1
            found.setdefault(state, {})[_label(name)] = percent / 100 * _TICKS_S * scale
    return found


#: Its time, its CPUs and its devices.
_OfIostat = tuple[float | None, dict[str, float], dict[str, dict[str, float]]]


def _iostat(text: str) -> Iterator[Piece]:
    # Of several runs each begins with averages since the boot.
    for run in re.split(r"^(?=Linux \S+ \()", text, flags=re.MULTILINE):
        yield from _disk_rates(_reports_of_iostat(run))


def _reports_of_iostat(text: str) -> list[_OfIostat]:
    """Reports of iostat -x, with the CPUs that it prints above them."""
    reports: list[_OfIostat] = []
    columns: list[str] = []
    at_s: float | None = None
    cpu: dict[str, float] = {}
    is_below_cpu = are_names_last = False
    for line in _whole_lines(text):
        words = line.split()
        if are_names_last and words and not is_below_cpu and words[-1] != "Device" and words[0] != "avg-cpu:":
            words = [words[-1], *words[:-1]]
        if (stamp := stamp_of(line)) is not None:
            at_s = stamp
        elif words[:1] == ["avg-cpu:"]:
            columns, is_below_cpu = words[1:], True
        elif is_below_cpu and len(words) == len(columns):
            cpu = {
                _CPU[name]: number_of(word.rstrip("%")) or 0.0
                for name, word in zip(columns, words, strict=True)
                if name in _CPU
            }
            is_below_cpu = False
        elif _is_title_of_disks(words):
            columns = ["Device", *(word.rstrip(":") for word in words[1:])]
            reports.append((at_s, cpu, {}))
            cpu, at_s = {}, None
        elif words[-1:] == ["Device"]:
            # -h: the names behind the numbers, and several tables in one report.
            if cpu or not reports:
                reports.append((at_s, cpu, {}))
                cpu, at_s = {}, None
            columns = ["Device", *words[:-1]]
            are_names_last = True
        elif reports and columns and len(words) == len(columns) and not is_below_cpu:
            numbers = {name: amount(name, word) for name, word in zip(columns[1:], words[1:], strict=True)}
            if None not in numbers.values():
                known = reports[-1][2].setdefault(words[0], {})
                known |= {name: value or 0.0 for name, value in numbers.items()}
        elif not words:
            columns = [] if not is_below_cpu else columns
    return reports


def _whole_lines(text: str) -> list[str]:
    """Without a last one that was cut off within a number: all of a line have as many decimals."""
    lines = text.splitlines()
    decimals = [word.partition(".")[2] for word in lines[-1].split()[-2:]] if lines else []
    is_cut = not text.endswith("\n") and len(decimals) == 2 and len(decimals[0]) > len(decimals[1])
    return lines[:-1] if is_cut else lines


def _is_title_of_disks(words: Sequence[str]) -> bool:
    """``Device r/s rkB/s ...``, whose first word is another one in other languages."""
    # sar has the clock there.
    if not words or words[0][0].isdigit() or words[-1] == "Device" or words[1:2] == ["DEV"]:
        return False
    return words[0].rstrip(":") == "Device" or (
        "%util" in words[1:] and bool({"r/s", "tps"} & set(words[1:]))
    )


def amount(column: str, word: str) -> float | None:
    """A number, for people too: ``5.2M`` in a column of kB is 5,324.8."""
    unit = word[-1:] if word[-1:] in _UNITS else ""
    value = number_of(word.rstrip("%").removesuffix(unit))
    if value is None or not unit:
        return value
    return value * _UNITS[unit] / (_UNITS["M"] if column.startswith(("rMB", "wMB")) else 1.0)


def _date_of(text: str) -> str:
    """``11/28/26``, ``28.11.2026``, ``2026-11-28``; of two numbers up to 12 with slashes, the month is first."""
    numbers = re.findall(r"\d+", text)
    if len(numbers) != 3:
        return "1970-01-01"
    year, month, day = numbers
    if len(year) != 4:
        is_day_first = "." in text or int(numbers[0]) > 12
        day, month, year = numbers if is_day_first else (numbers[1], numbers[0], numbers[2])
    return f"{year if len(year) == 4 else f'20{year}'}-{month:0>2}-{day:0>2}"


def _disk_rates(reports: Sequence[_OfIostat]) -> Iterator[Piece]:
    if not reports:
        return
    _, *others = reports
    if not others:
        yield Said(
            "iostat printed one report, which without -y is of averages since the boot: it is not used; "
            "iostat -x 1 10 prints more"
        )
        return
    times = [at_s for at_s, _, _ in reports]
    for number, (at_s, cpu, devices) in enumerate(others, 1):
        before = times[number - 1]
        seconds = at_s - before if at_s is not None and before is not None and at_s > before else None
        if devices:
            yield Rates("iostat", "disk", disk_numbers(devices), {}, seconds, at_s)
        if cpu:
            yield Rates("iostat", "cpu", cpu_numbers({"all": cpu}), {}, seconds, at_s)


def disk_numbers(devices: Mapping[str, Mapping[str, float]]) -> Numbers:
    found: dict[str, dict[str, float]] = {}
    for device, row in devices.items():
        for column, value in row.items():
            if column in _DISK:
                counter, scale = _DISK[column]
                found.setdefault(counter, {})[device] = value * scale
            elif column in _WAITS:
                counter, requests = _WAITS[column]
                found.setdefault(counter, {})[device] = value * row.get(requests, 0.0)
            elif column == "await" and "r_await" not in row:
                for counter, requests in (("read_ms", "r/s"), ("write_ms", "w/s")):
                    found.setdefault(counter, {})[device] = value * row.get(requests, 0.0)
                found.setdefault("request_ms", {})[device] = value * row.get("tps", 0.0)
    return found


def states_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The states of a CPU by their names in JSON, in per cent."""
    return {
        _CPU[f"%{name}"]: float(value)
        for name, value in row.items()
        if f"%{name}" in _CPU and isinstance(value, int | float)
    }


_DATE = r"\d\d[/.]\d\d[/.]\d{2,4}|\d{4}-\d\d-\d\d|\d{4}年\d\d月\d\d日"


def stamp_of(text: str) -> float | None:
    """``11/29/26 15:53:56``, ``29.11.2026 15:53:56``, ``2026-11-29T15:53:56+0100``; None without a date that is
    known."""
    match = re.match(rf"({_DATE})[T ](\d\d:\d\d:\d\d)(?: ([AP]M))?", text.strip())
    return _clock_s(f"{match[2]}{f' {match[3]}' if match[3] else ''} ", _date_of(match[1])) if match else None


def _vmstat(text: str) -> Iterator[Piece]:
    runs: list[list[tuple[dict[str, float], float | None]]] = [[]]
    columns: list[str] = []
    below = 0
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["r", "b"] and "swpd" in words:
            columns = _vmstat_columns(words)
            if runs[-1] and below < _SCREEN:
                runs.append([])
            below = 0
        elif (
            columns and len(words) >= len(columns) and all(word.isdecimal() for word in words[: len(columns)])
        ):
            cells = {name: float(word) for name, word in zip(columns, words, strict=False)}
            stamp = re.search(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)\s*$", line)
            runs[-1].append((cells, time_of(stamp[1], stamp[2]) if stamp else None))
            below += 1
    if any(len(lines) == 1 for lines in runs):
        yield Said(
            "vmstat printed one line, of averages since the boot: it is not used; vmstat 1 10 prints more"
        )
    for (_, before), (cells, at) in itertools.chain.from_iterable(map(itertools.pairwise, runs)):
        seconds = at - before if at is not None and before is not None and at > before else None
        yield from _vmstat_rates(cells, seconds, at)


def _vmstat_columns(words: Sequence[str]) -> list[str]:
    """In other languages the columns of memory have other names, and the same places."""
    last = max((place for place, word in enumerate(words) if word in ("id", "wa", "st", "gu")), default=-1)
    columns = list(words[: last + 1])
    # A title that was cut off, or has its words elsewhere.
    at = columns.index("swpd") + 1 if "swpd" in columns else len(columns)
    if columns[at + 3 : at + 4] == ["si"] and not {"inact", "active"} & set(columns):
        columns[at : at + 3] = ["free", "buff", "cache"]
    return columns


def _vmstat_rates(cells: Mapping[str, float], seconds: float | None, at_s: float | None) -> Iterator[Piece]:
    cpu = {state: cells[name] for name, state in _VMSTAT_CPU.items() if name in cells}
    if "idle" in cpu:
        running = {"procs_running": {"": cells["r"]}, "procs_blocked": {"": cells["b"]}}
        numbers = {
            **cpu_numbers({"all": cpu}),
            "ctxt": {"": cells.get("cs", 0.0)},
            "intr": {"": cells.get("in", 0.0)},
        }
        yield Rates("vmstat", "cpu", numbers, running, seconds, at_s)
    if {"free", "buff", "cache"} <= set(cells):
        memory = {"MemFree": "free", "Buffers": "buff", "Cached": "cache"}
        gauges = {name: {"": 1024 * cells[column]} for name, column in memory.items()}
        yield Rates("vmstat", "memory", {}, gauges, seconds, at_s)
    if {"si", "so"} <= set(cells):
        # Kibibytes, of pages of 4 KiB as everywhere that runs MySQL but for some arm64 and ppc64.
        pages = {"pswpin": {"": cells["si"] / 4}, "pswpout": {"": cells["so"] / 4}}
        yield Rates("vmstat", "vmstat", pages, {}, seconds, at_s)
