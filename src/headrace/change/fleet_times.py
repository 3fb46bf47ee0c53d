"""Response times of clients around a change: of the slowest host at each moment, and of all hosts.

The numbers are those that `verify` compares: percentiles of blocks of time, with each class's share of the calls
as it was before the change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.counted import counted
from headrace.base.errors import NothingMeasured
from headrace.change.panel import Panel, Window, panel
from headrace.change.production import served
from headrace.change.production.served import Part
from headrace.history.archive.files import HOUR_S, MINUTE_S
from headrace.history.archive.reader import Range
from headrace.history.archive.tables import CLIENTS, SLOW_LOG
from headrace.history.questions import Chart, Line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Points of a line: each needs the calls of a percentile's tail.
MOST_POINTS = 240
#: A host that was timed in less of the range is left out: its coming and going would look like an effect.
LEAST_TIMED = 0.5
#: Label -> the response of ``panel``.
OF_CLIENTS = {"clients p90": "p90", "clients p99": "p99", "clients p99.9": "p99.9"}
OF_SERVERS = {"server p99 (slow log)": "p99"}


@dataclass(frozen=True)
class FleetTimes:
    """Percentiles in s. ``worst``: at each time those of the host that was slowest then, for each line by itself;
    ``average``: the geometric means over the hosts."""

    worst: Chart
    average: Chart
    hosts: tuple[str, ...]
    notes: tuple[str, ...]


def over_time(history: Path, hosts: Sequence[str], at_s: float, span: Range) -> FleetTimes | None:
    """Around a change at ``at_s``; None if no client timed a call of these hosts before it and after it."""
    times = _times(history, hosts, at_s, span, CLIENTS.name)
    if times is None:
        return None
    timed = {name: np.isfinite(times.log(name, "p90")) for name in times.panels}
    points = int(np.any([*timed.values()], axis=0).sum())
    own = {name: int(row.sum()) for name, row in timed.items()}
    used = [name for name in hosts if own.get(name, 0) >= LEAST_TIMED * max(points, 1)]
    if not used:
        return None
    left = [
        f"{name} is left out: it has {own.get(name, 0)} of {counted(points, 'point')}"
        for name in hosts
        if name not in used
    ]
    lines = _lines(times, used, OF_CLIENTS)
    servers = _times(history, used, at_s, span, SLOW_LOG, times.block_s)
    if servers is not None and {*servers.panels} == {*used}:
        lines |= _lines(servers, used, OF_SERVERS)
    t_s = [round(float(t)) for t in times.start_s]
    worst, average = (
        Chart(
            t_s,
            round(times.block_s),
            [Line(label, pair[i], pair[i], pair[i]) for label, pair in lines.items()],
        )
        for i in range(2)
    )
    return FleetTimes(worst, average, tuple(used), (*left, *times.notes))


@dataclass(frozen=True, eq=False)
class _Times:
    """``panels`` has one per host, because hosts may have different bucket bounds."""

    panels: Mapping[str, Panel]
    #: The log of the last bound of each host's source: what is beyond it was longer, and no more is known.
    most: Mapping[str, float]
    start_s: Floats
    block_s: float
    notes: tuple[str, ...]

    def log(self, host: str, response: str) -> Floats:
        """Of each block; NaN where there is no value."""
        log = self.panels[host].cells[response].log[0]
        return np.where(log < self.most[host] - 1e-9, log, np.nan)


def _times(
    history: Path, hosts: Sequence[str], at_s: float, span: Range, source: str, block_s: float = 0.0
) -> _Times | None:
    try:
        observed = served.observe([history], at_s, part=Part(frozenset(hosts), source, span))
    except NothingMeasured:
        return None
    width_s = float(observed.series[0].end_s[0] - observed.series[0].start_s[0])
    block_s = block_s or width_s * max(math.ceil(span.seconds / width_s / MOST_POINTS), 1)
    # Minutes are counted from the change on, to both sides: see ``served``.
    unit_s = width_s if width_s >= HOUR_S else MINUTE_S
    to_s, from_s = math.floor(at_s / unit_s) * unit_s, math.ceil(at_s / unit_s) * unit_s
    window = Window(at_s, to_s, from_s, span.since_s, span.until_s)
    of = {
        name: [each for each in observed.series if each.host == name]
        for name in hosts
        if name in observed.hosts
    }
    panels = {name: panel(own, [name], window, block_s, 1) for name, own in of.items()}
    bounds = {name: max(float(each.edges_ns[-2]) for each in own) for name, own in of.items()}
    # A source whose every call was beyond its last bound has no other bound than 0.
    most = {name: math.log(bound) if bound > 0 else -math.inf for name, bound in bounds.items()}
    start_s = next(iter(panels.values())).start_s
    return _Times(panels, most, start_s, block_s, observed.notes)


def _lines(
    times: _Times, used: Sequence[str], labels: Mapping[str, str]
) -> dict[str, tuple[list[float | None], list[float | None]]]:
    """Label -> (worst, average) in s; a point only where every host has one."""
    lines = {}
    for label, response in labels.items():
        log = np.stack([times.log(name, response) for name in used])
        if np.isfinite(log).all(axis=0).any():
            lines[label] = _seconds(log.max(axis=0)), _seconds(log.mean(axis=0))
    return lines


def _seconds(log_ns: Floats) -> list[float | None]:
    return [float(np.exp(value)) / 1e9 if np.isfinite(value) else None for value in log_ns]
