"""What the machine did: means, cores over time, and strips (CPU, device, server) of any two trials."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from headrace.experiment.report import tables
from headrace.experiment.report.charts import trials as charts
from headrace.experiment.report.charts.trials import Line, Panel
from headrace.experiment.report.evidence import Evidence, Machine
from headrace.experiment.report.series import CPU_SHARES, Floats, highest
from headrace.experiment.report.view import View
from headrace.show import text
from headrace.show.parts import (
    Box,
    Cell,
    Cells,
    Chart,
    Column,
    Compare,
    Heading,
    Part,
    Row,
    Scale,
    Section,
    Sentence,
    Span,
    Switch,
    Table,
    When,
)

_CPU_LINES = {
    "busy": "@{ink}", "system": "@{line1}", "softirq": "@{line2}", "iowait": "@{line3}", "steal": "@{line4}",
}  # fmt: skip

_CPU, _DEVICE = "CPU, all cores", "device under test"

#: Columns of the table of means: (name, unit, source).
SUMMARY_COLUMNS = (
    ("busy", "%", _CPU), ("system", "%", _CPU), ("softirq", "%", _CPU), ("iowait", "%", _CPU),
    ("steal", "%", _CPU), ("reads", "/s", _DEVICE), ("writes", "/s", _DEVICE), ("read", "MB/s", _DEVICE),
    ("written", "MB/s", _DEVICE), ("read wait", "ms", _DEVICE), ("write wait", "ms", _DEVICE),
    ("utilisation", "%", _DEVICE), ("in flight", "", _DEVICE),
)  # fmt: skip

Rows = Sequence[tuple[tables.ResultRow, Machine]]


def section(view: View) -> Section:
    see = (
        "Means over the measured window of each treatment's median trial. Utilisation near 100% means that "
        "the device was never idle, not that it was saturated: many devices serve requests in parallel."
    )
    return Section("machine", "Machine", "What did the machine do?", lambda: _parts(view), see)


def _parts(view: View) -> Iterator[Part]:
    rows = rows_of(view)
    if not rows:
        return
    yield means(view.evidence, rows, "treatment")
    yield from _heat_maps(view, rows)
    yield from strips(view, rows)


def rows_of(view: View) -> Rows:
    """The treatments with samples."""
    machines = view.evidence.machines
    return [(r, machines[r.treatment]) for g in view.groups for r in g.rows if r.treatment in machines]


def means(evidence: Evidence, rows: Rows, noun: str) -> Table:
    """Means over the measured window of each treatment's representative trial."""
    columns = [Column(noun), Column("trial", "n")]
    columns += [Column(name, "n", over=over, small=unit) for name, unit, over in SUMMARY_COLUMNS]
    cells: list[Cells] = []
    for row, machine in rows:
        grid = evidence.machine_grid
        values: dict[str, float] = {s: 100 * machine.mean(y, grid) for s, y in machine.cpu.items()}
        values |= _device_means({name: machine.mean(y, grid) for name, y in machine.disk.items()})
        shown = [text.count(values.get(name, math.nan)) for name, _, _ in SUMMARY_COLUMNS]
        cells.append([row.treatment, str(machine.record.number), *map(Cell, shown)])
    marked = frozenset(i for i, (row, _) in enumerate(rows) if row.is_baseline)
    return Table(columns, cells, marked=marked)


def heat_tops(machines: Sequence[Machine]) -> dict[str, int]:
    """The end of each share's scale in percent: the same for all maps, so that they are comparable."""
    tops = {}
    for share in CPU_SHARES:
        top = max([highest(m.heat[share]) for m in machines if m.heat], default=0.0)
        nice = () if share == "busy" else (5, 10, 20, 30, 50, 75)
        tops[share] = next((t for t in nice if t >= 100 * top), 100)
    return tops


def _heat_maps(view: View, rows: Rows) -> Iterator[Part]:
    shown = [(row, machine) for row, machine in rows if machine.heat]
    if not shown:
        return
    tops = heat_tops([machine for _, machine in shown])
    yield Heading("Is one core the bottleneck?")
    yield Sentence(
        "One row is one core. A single strong row among faint ones is work that only one core does; check "
        "softirq next."
    )
    scales = [When("share", s, [Scale(top)], is_hidden=i > 0) for i, (s, top) in enumerate(tops.items())]
    yield Box("controls", [Switch("share", "Share of time", list(tops)), *scales])
    for group in view.groups:
        cards = [
            Chart(
                charts.heat_map(view.evidence.machine_grid, machine.cores, machine.heat, tops),
                head=[Span(row.configuration, "strong"), Span(f"trial {machine.record.number}", "aside")],
                uses="share",
            )
            for row, machine in shown
            if row in group.rows
        ]
        if group.condition and cards:
            yield Heading(group.condition, "condition")
        if cards:
            yield Row(cards, is_cards=True)


def strips(view: View, rows: Rows, noun: str = "trials") -> Iterator[Part]:
    """Strips for each treatment; the baseline and the best come first, next to each other."""
    panels = [_panels(machine) for _, machine in rows]
    tops: dict[str, float] = {}
    for found in panels:
        for panel in found:
            tops[panel.title] = max(tops.get(panel.title, 0.0), panel.top)
    choices = []
    for (row, machine), found in zip(rows, panels, strict=True):
        same = [Panel(p.title, p.lines, tops[p.title]) for p in found]
        device = f", {machine.device}" if machine.device else ""
        name = f"{row.treatment} (trial {machine.record.number}{device})"
        choices.append((name, charts.machine(view.evidence.machine_grid, same)))
    left = next((i for i, (row, _) in enumerate(rows) if row.is_baseline), 0)
    group = next(g for g in view.groups if rows[left][0] in g.rows)
    best = tables.best([row for row, _ in rows if row in group.rows])
    right = next((i for i, (row, _) in enumerate(rows) if best and row is best), len(rows) - 1)
    yield Heading("CPU, device and server over time")
    breaks = " Breaks in a line are missing samples or counter resets." if noun == "trials" else ""
    yield Sentence(f"Two {noun} on the same axes: choose any two.{breaks}")
    yield Compare(choices, [left, right] if right != left else [left])


def _panels(machine: Machine) -> list[Panel]:
    panels = []
    if machine.cpu:
        lines = tuple(Line(s, machine.cpu[s] * 100, c, 1.4) for s, c in _CPU_LINES.items())
        panels.append(Panel("CPU [%]", lines, 100.0))
    named = _device_parts(machine.disk)
    for title, names in _SERVER_PANELS.items():
        if present := {n: machine.server[n] for n in names if n in machine.server}:
            named[title] = present
    colours = ("@{line1}", "@{line2}", "@{line3}")
    for title, parts in named.items():
        lines = tuple(Line(n, y, c, 1.4) for (n, y), c in zip(parts.items(), colours, strict=False))
        panels.append(Panel(title, lines, max((highest(line.y) for line in lines), default=0.0)))
    return panels


_SERVER_PANELS: Mapping[str, tuple[str, ...]] = {
    "Rows/s": ("rows read", "rows changed"),
    "Pages read into the buffer pool/s": ("pool reads",),
    "Log and data/s": ("log writes", "log fsyncs", "data fsyncs"),
    "Row lock waits/s": ("lock waits",),
}


def _device_parts(disk: Mapping[str, Floats]) -> dict[str, dict[str, Floats]]:
    """Panel -> line -> values, from the kernel's counters as rates (documented in its iostats.rst)."""
    if not {"reads", "writes"} <= set(disk):
        return {}
    parts = {"Device requests/s": {n: disk[n] for n in ("reads", "writes", "flushes") if n in disk}}
    if {"sectors_read", "sectors_written"} <= set(disk):
        # A sector is 512 bytes here, regardless of the device's block size.
        parts["Device MB/s"] = {
            "read": disk["sectors_read"] * 512e-6,
            "written": disk["sectors_written"] * 512e-6,
        }
    if {"read_ms", "write_ms"} <= set(disk):
        waits = {
            "read": _each(disk["read_ms"], disk["reads"]),
            "write": _each(disk["write_ms"], disk["writes"]),
        }
        parts["Wait per request [ms]"] = waits
    if "io_ms" in disk:
        parts["Device utilisation [%]"] = {
            "time with a request in flight": np.minimum(disk["io_ms"] / 10, 100)
        }
    if "weighted_io_ms" in disk:
        parts["Requests in flight"] = {"mean": disk["weighted_io_ms"] / 1000}
    return parts


def _each(total: Floats, requests: Floats) -> Floats:
    """Per request; NaN without requests, because that is not a wait of 0 ms."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(requests > 0.05, total / requests, np.nan)


def _device_means(means: Mapping[str, float]) -> dict[str, float]:
    found = {n: means[n] for n in ("reads", "writes") if n in means}
    if "sectors_read" in means:
        found |= {
            "read": means["sectors_read"] * 512e-6,
            "written": means.get("sectors_written", math.nan) * 512e-6,
        }
    for shown, total, requests in (("read wait", "read_ms", "reads"), ("write wait", "write_ms", "writes")):
        if means.get(requests, 0.0) > 0.05 and total in means:
            found[shown] = means[total] / means[requests]
    if "io_ms" in means:
        found["utilisation"] = min(means["io_ms"] / 10, 100.0)
    if "weighted_io_ms" in means:
        found["in flight"] = means["weighted_io_ms"] / 1000
    return found
