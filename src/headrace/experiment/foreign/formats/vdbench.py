"""vdbench: what it prints, ``logfile.html`` and ``summary.html``; each run definition (RD) is a run."""

from __future__ import annotations

import re

from headrace.experiment.foreign.run import OtherVariant, Run, pieces

NAME = "vdbench"

_CLOCK = r"\d\d:\d\d:\d\d\.\d{3}"
_START = re.compile(rf"^(?:{_CLOCK} +)?Starting RD=([^;\s]+).*$", re.MULTILINE)
_OURS = re.compile(r"^Vdbench distribution:|^(?:\d\d:\d\d:\d\d\.\d{3} )?Vdbench execution ", re.MULTILINE)
_MEAN = re.compile(rf"^{_CLOCK} *avg_(\d+)-(\d+) +(.*)$", re.MULTILINE)
_ROW = re.compile(r"^(\d\d):(\d\d):(\d\d)\.\d{3} +(\d+) +[\d.]+ .*$", re.MULTILINE)
_HEADER = re.compile(r"^.*\binterval +(i/o .*)\n +(rate .*)$", re.MULTILINE)
_FILES = re.compile(r"^.*\.Interval\. +\.ReqstdOps.*\n +(rate .*)$", re.MULTILINE)
_ERROR = re.compile(
    r"^.*(?:RuntimeException|java\.lang\.|Data Validation error|terminating due to|marked in error"
    r"|Vdbench is terminating|Slave .* (?:aborting|terminated)|error: E[A-Z]+).*$",
    re.MULTILINE,
)
_TAGS = re.compile(r"<[^>\n]*>")
_WHOLE = "Vdbench execution completed successfully"
#: The share of its time that a run must have lasted.
WHOLE = 0.95
_NAMES = {
    "i/o rate": "iops",
    "mb/sec 1024**2": "mib_s",
    "mb/sec 1000**2": "mb_s",
    "resp time": "mean_ms",
    "read resp": "read_mean_ms",
    "write resp": "write_mean_ms",
    "read max": "read_max_ms",
    "write max": "write_max_ms",
    "resp max": "max_ms",
}
#: Of a file system's table, whose two headers do not stand above each other: the first columns.
_OF_FILES = ("iops", "mean_ms", "", "", "", "read_iops", "read_mean_ms", "write_iops", "write_mean_ms")
_RATES_OF_FILES = ("read_mib_s", "write_mib_s", "mib_s")


def read(text: str) -> list[Run] | None:
    if re.search(r"^ *tod +timestamp +Run +Interval ", text, re.MULTILINE):
        raise OtherVariant("vdbench's flatfile", "summary.html or logfile.html of the same folder")
    lines = _TAGS.sub("", text)
    parts = pieces(_START, lines)
    if not parts:
        return [Run(problem=_failed(lines) or "it started no run")] if _OURS.search(lines) else None
    # What went wrong is said at any place, and ends all; what is before the first start belongs to that one.
    ended = _WHOLE in lines
    runs = []
    for number, part in enumerate(parts, 1):
        last = number == len(parts)
        # A format makes the files of the run that follows it.
        if re.search(r"Starting RD=format_for_", part) and not last:
            continue
        header = _HEADER.search(part) or _HEADER.search(lines)
        runs.append(_run(part, header, "" if ended or not last else "it does not say that it completed"))
    return runs


def _failed(part: str) -> str:
    return f"it failed: {wrong[0].strip()[:160]}" if (wrong := _ERROR.search(part)) else ""


def _run(part: str, header: re.Match[str] | None, problem: str) -> Run:
    start = _START.search(part)
    settings = {"rd": start[1]} if start else {}
    title = start[0] if start else ""
    if rate := re.search(r"I/O rate: ([^;]+);", title):
        settings["rate"] = rate[1].removeprefix("Uncontrolled ").lower()
    loops = re.search(r"For loops: (.+)$", title)
    for name, value in re.findall(r"(\w+)=(\S+)", loops[1]) if loops else ():
        settings[name] = value
    problem = _failed(part) or problem
    means = [*_MEAN.finditer(part)]
    if not means:
        return Run({}, settings, problem or "it has no averages: it was interrupted")
    mean = means[-1]
    cells = mean[3].split()
    files = _FILES.search(part)
    if files:
        names = [*_OF_FILES, *_RATES_OF_FILES]
        wrong = len(cells) < len(names)
    else:
        first, second = (header[1].split(), header[2].split()) if header else ([], [])
        names = [f"{a} {b}".lower() for a, b in zip(first, second, strict=False)]
        names = [_NAMES.get(name, "") for name in names]
        wrong = not names or len(first) != len(second) or len(cells) != len(names)
    if wrong:
        return Run({}, settings, problem or "its averages are cut off, or have other columns than its header")
    found = {}
    for name, cell in zip(names, cells, strict=False):
        # Without reads or writes their response time is printed as 0.
        if name and re.fullmatch(r"\d+(?:\.\d+)?", cell) and (not name.endswith("_ms") or float(cell) > 0):
            found[name] = float(cell)
    asked = re.search(r"elapsed=(\d+)", title)
    ran = _lasted(part, int(mean[2]))
    if ran is not None:
        settings["duration_s"] = f"{ran:g}"
    if asked and ran is not None and ran < WHOLE * float(asked[1]):
        problem = problem or f"it ran for {ran:g} of {asked[1]} s"
    return Run(found, settings, problem or ("" if "iops" in found else "it has no rate"))


def _lasted(part: str, intervals: int) -> float | None:
    """Seconds of so many intervals, by the clock of the first two; None without two."""
    clocks = [int(h) * 3600 + int(m) * 60 + int(s) for h, m, s, _ in _ROW.findall(part)]
    # Each row is printed a moment after its interval's end: over all of them that does not add up.
    if len(clocks) < 2:
        return None
    step = round((clocks[-1] - clocks[0]) % 86_400 / (len(clocks) - 1))
    return float(step * intervals) if step else None
