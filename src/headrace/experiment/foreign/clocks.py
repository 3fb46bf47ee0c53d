"""Tables with one line per second of a run: their lines are no runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from datetime import datetime

from headrace.base.counted import counted
from headrace.base.errors import PlanError
from headrace.experiment.foreign import names
from headrace.experiment.foreign.alike import Line
from headrace.experiment.foreign.shapes import REPEATS
from headrace.experiment.foreign.units import parts

# fmt: off
#: Columns of a time within a run, without their unit.
TIMES = frozenset({
    "second", "seconds", "sec", "secs", "s", "t", "time", "elapsed", "interval", "timestamp", "ts",
    "datetime", "date_time", "clock", "tick", "ticks", "uptime", "minute", "minutes", "elapsed_time",
    "offset", "epoch", "at", "sample_time", "time_stamp", "zeit", "sekunde", "temps", "tiempo",
    "uhrzeit", "heure", "hora", "ora", "tijd", "czas", "время", "時刻", "时间", "時間", "시간",
})
# fmt: on
#: Lines of one cell from which on equally spaced times are seconds of a run; in a column of another name.
MANY, MANY_UNNAMED = 10, 30
#: Runs are not this short: dates that are nearer are of one run.
NEAR_S = 60
#: Clocks that programs read now and then are off by so much of a step.
UNEVEN = 0.35
#: Lines of one cell from which on it is asked whether they are runs.
SUSPECT = 60


def check_times(
    lines: Sequence[Line], factors: Sequence[str], responses: Collection[str], others: Collection[str]
) -> str:
    """The column of times within a run; empty if each line is a run.

    Seconds of a run are not independent: each looks like a repeat, and none is one.
    """
    used = {*factors, *responses, *others}
    columns = [name for name in (lines[0][1] if lines else ()) if name not in used]
    runs = [name for name in columns if names.plain(name) in REPEATS]
    for name in columns:
        bare = re.sub(r"_(ns|us|ms|s|sec|seconds|min)$", "", names.plain(name))
        is_named = bare in TIMES
        # A date is a repeat's, unless it says the second.
        is_second = re.search(r"\d:\d\d:\d\d", lines[0][1][name])
        if not is_named and names.plain(name) in REPEATS and not is_second:
            continue
        cells: dict[tuple[str, ...], list[float]] = {}
        for _, line in lines:
            value = _loose(line[name]) if is_named else seconds(line[name])
            if value is None:
                break
            key = tuple(line[each] for each in (*factors, *runs) if each != name)
            cells.setdefault(key, []).append(value)
        else:
            many = MANY if is_named else MANY_UNNAMED
            is_date = not is_number(lines[0][1][name])
            if any(_is_clock(values, many, is_date=is_date) for values in cells.values()):
                return name
    return ""


#: Columns that number lines of any kind: repeats, or seconds.
_COUNTERS = frozenset({"iteration", "iter", "no", "nr", "id", "n", "index", "number", "order"})


def is_number(text: str) -> bool:
    """With a unit of letters at most: no clock and no date."""
    return parts(text) is not None and not re.search(r"\d\s*[-/:T]", text)


def seconds(text: str) -> float | None:
    """A time as a number: seconds, any other unit, a clock's or a date's; None for other text."""
    # ``[3s]`` and ``3-4`` are the interval that ends, or begins, there.
    bare = re.sub(
        r"^(\d+(?:\.\d+)?)\s*(?:-|–|\.\.)\s*\d+(?:\.\d+)?\s*s?$", r"\1", text.strip().strip("[]() ")
    )
    if is_number(bare):
        return (parts(bare) or (0.0, ""))[0]
    if clock := re.fullmatch(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)", bare):
        return 3600 * int(clock[1] or 0) + 60 * int(clock[2]) + float(clock[3])
    try:
        return datetime.fromisoformat(bare.replace("/", "-")).timestamp()
    except (ValueError, OverflowError, OSError):
        return _time_of_day(bare)


def _loose(text: str) -> float | None:
    """The number, or the hours, minutes and seconds, of a time in any form: ``T+5``, ``20.12.05``."""
    is_clock = re.fullmatch(r"\d{1,2}([.h时時-])\d{2}([.m分-])\d{2}\D*", text.strip())
    if not is_clock and (known := seconds(text)) is not None:
        return known
    groups = [float(each) for each in re.findall(r"\d+", text)]
    if len(groups) == 1:
        return groups[0]
    return 3600 * groups[0] + 60 * groups[1] + groups[2] if len(groups) == 3 else None


def _time_of_day(text: str) -> float | None:
    """Of a date in any other form: ``01/Jan/2026:10:00:05 +0000``, ``Jan 1 10:00:05 PM``."""
    found = re.search(
        r"(?<!\d)(\d{1,2}):(\d{2}):(\d{2}(?:\.\d+)?)(?!\d)(?:\s*(am|pm)\b)?", text, re.IGNORECASE
    )
    if found is None:
        return None
    hour = int(found[1]) % 12 + 12 * (found[4].lower() == "pm") if found[4] else int(found[1])
    return 3600 * hour + 60 * int(found[2]) + float(found[3])


def _is_clock(values: Sequence[float], many: int, *, is_date: bool) -> bool:
    """Whether times rise, or fall, by steps of about one length."""
    if len(values) < many:
        return False
    steps = [late - early for early, late in itertools.pairwise(values)]
    if sorted(steps)[len(steps) // 2] < 0:
        steps = [-step for step in steps]
    usual = sorted(steps)[len(steps) // 2]
    # Seconds since 1970, or thousands or millions of them, are dates, too.
    unit = next((each for each in (1e18, 1e15, 1e12, 1e9) if min(values) >= each), 0.0)
    is_near = (not is_date and not unit) or usual <= NEAR_S * max(unit / 1e9, 1.0)
    return (
        is_near
        and usual > 0
        and sum(abs(step - usual) <= UNEVEN * usual for step in steps) >= 0.8 * len(steps)
    )


def suspicion(lines: Sequence[Line], factors: Sequence[str], others: Collection[str]) -> list[str]:
    """A note if very many lines have the same levels, and nothing tells them apart."""
    if any(names.plain(name) in REPEATS - _COUNTERS or name in others for name in lines[0][1]):
        return []
    cells: dict[tuple[str, ...], int] = {}
    for _, line in lines:
        key = tuple(line[name] for name in factors)
        cells[key] = cells.get(key, 0) + 1
    most = max(cells.values())
    if most < SUSPECT:
        return []
    return [
        f"up to {most} lines have the same levels, and no column tells runs apart: if they are seconds of one "
        "run, they prove nothing; write one line per run"
    ]


def one_row_each(column: str, runs: int) -> PlanError:
    return PlanError(
        f"the table has one line per {column}, not one per run: lines of the same run are not independent, and as "
        f"repeats they would prove differences that do not exist ({counted(runs, 'run')})",
        hint="--per-run mean takes each run's mean (warm-up removed by you), or write one line per run",
    )
