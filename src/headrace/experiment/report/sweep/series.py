"""Throughput over time at each level, and what the machine did."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.experiment.report import machine, pace
from headrace.experiment.report.sweep.view import SweepView
from headrace.show.parts import Part, Section


def pace_section(view: SweepView) -> Section:
    return Section("time", "Over time", "Was each level's throughput steady?", lambda: pace.parts(view))


def machine_section(view: SweepView) -> Section:
    see = (
        "Means over the measured window of each level's median trial. What stays saturated from the knee "
        "upward limits the server: CPU busy near 100%, or a device with queued requests."
    )
    return Section("machine", "Machine", "What did the machine do?", lambda: _machine(view), see)


def _machine(view: SweepView) -> Iterator[Part]:
    rows = machine.rows_of(view)
    if rows:
        yield machine.means(view.evidence, rows, "level")
        yield from machine.strips(view, rows, "levels")
