"""The page's parts that show trials over time: pace cards, heat maps and the machine's strips."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.model import TrialState
from headrace.report import charts, tables, text
from headrace.report.charts import Line, Panel
from headrace.report.evidence import Evidence, Machine
from headrace.report.series import CPU_SHARES
from headrace.store import TrialRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: More trials than this become one median line over the band.
MAX_TRIAL_LINES = 12

Add = Callable[[charts.Figure], dict[str, Any]]

_CPU_LINES = {
    "busy": "@{ink}", "system": "@{line1}", "softirq": "@{line2}", "iowait": "@{line3}", "steal": "@{line4}",
}  # fmt: skip

#: What the summary table shows of each trial: (name, unit).
SUMMARY_COLUMNS = (
    ("busy", "%"), ("system", "%"), ("softirq", "%"), ("iowait", "%"), ("steal", "%"),
    ("reads", "/s"), ("writes", "/s"), ("read", "MB/s"), ("written", "MB/s"),
    ("read wait", "ms"), ("write wait", "ms"), ("utilisation", "%"), ("in flight", ""),
)  # fmt: skip


class Paces:
    """Throughput and p99 over time, one card a treatment; all cards of a condition share their axes."""

    def __init__(self, evidence: Evidence, groups: Sequence[tables.Group], add: Add) -> None:
        self._evidence = evidence
        self._groups = groups
        self._add = add

    def cards(self) -> list[dict[str, Any]]:
        found = []
        for group in self._groups:
            tops = self._tops(group)
            cards = [card for row in group.rows if (card := self._card(row, tops))]
            if cards:
                found.append({"group": group, "cards": cards})
        return found

    def note(self) -> str:
        """How the lines were made from seconds."""
        width_s = self._evidence.pace_grid.width_s
        if self._evidence.p99_is_exact:
            p99 = "p99 is exact, from the merged histograms"
        elif width_s > 1:
            p99 = "p99 is the highest that the workload's program printed for any report inside a point"
        else:
            p99 = "p99 is what the workload's program printed"
        return f"One point is {text.seconds(width_s)}; {p99}."

    def _records(self, treatment: str) -> list[TrialRecord]:
        return [r for r in self._evidence.of_treatment(treatment) if r.number in self._evidence.paces]

    def _tops(self, group: tables.Group) -> tuple[float, tuple[float, float]]:
        paces = [self._evidence.paces[r.number] for row in group.rows for r in self._records(row.treatment)]
        top = max((_highest(p.fastest) for p in paces), default=1.0)
        p99_ms = np.concatenate([p.p99_ns for p in paces] or [np.empty(0)]) / 1e6
        p99_ms = p99_ms[np.isfinite(p99_ms) & (p99_ms > 0)]
        span = (float(p99_ms.min()) / 1.3, float(p99_ms.max()) * 1.3) if len(p99_ms) else (0.1, 10.0)
        return top, span

    def _card(self, row: tables.ResultRow, tops: tuple[float, tuple[float, float]]) -> dict[str, Any] | None:
        records = self._records(row.treatment)
        if not records:
            return None
        paces = self._evidence.paces
        sound = [r for r in records if r.state is TrialState.COMPLETE]
        disturbed = [r for r in records if r.state is not TrialState.COMPLETE]
        shown = sound if len(sound) <= MAX_TRIAL_LINES else []
        main = self._evidence.representatives.get(row.treatment)
        lines, p99_ms = [], []
        for record in [*shown, *disturbed]:
            style = _trial_style(record, main)
            lines.append(Line(f"trial {record.number}", paces[record.number].mean, *style))
            p99_ms.append(Line(f"trial {record.number}", paces[record.number].p99_ns / 1e6, *style))
        band = None
        if sound:
            low = np.fmin.reduce([paces[r.number].slowest for r in sound])
            high = np.fmax.reduce([paces[r.number].fastest for r in sound])
            band = (low, high)
        if len(sound) > MAX_TRIAL_LINES:
            middle = f"median of {len(sound)} trials"
            lines.insert(0, Line(middle, _median([paces[r.number].mean for r in sound]), "@{accent}", 1.8))
            p99_ms.insert(
                0, Line(middle, _median([paces[r.number].p99_ns for r in sound]) / 1e6, "@{accent}", 1.8)
            )
        if not any(np.isfinite(line.y).any() for line in p99_ms):
            p99_ms = []
        figure = charts.pace(self._evidence.pace_grid, lines, p99_ms, band, tops)
        return {"row": row, "trials": len(sound), "disturbed": len(disturbed), **self._add(figure)}


def _trial_style(record: TrialRecord, main: TrialRecord | None) -> tuple[str, float, str]:
    if record.state is not TrialState.COMPLETE:
        return "@{worse}", 1.2, "dot"
    if main is not None and record.number == main.number:
        return "@{accent}", 1.8, "solid"
    return "@{accent/0.45}", 1.0, "solid"


def _median(arrays: Sequence[Floats]) -> Floats:
    """At each time the lower median of the trials: a value that one of them had, never a mean of percentiles."""
    stacked = np.stack(arrays)
    present = np.isfinite(stacked).any(axis=0)
    middle = np.full(stacked.shape[1], np.nan)
    middle[present] = np.nanquantile(stacked[:, present], 0.5, axis=0, method="lower")
    return middle


def _highest(values: Floats) -> float:
    found = values[np.isfinite(values)]
    return float(found.max()) if len(found) else 0.0


class Machines:
    """Heat maps of all treatments, and the strips (CPU, device, server) of any one of them."""

    def __init__(self, evidence: Evidence, groups: Sequence[tables.Group], add: Add) -> None:
        self._evidence = evidence
        self._groups = groups
        self._add = add
        self.heat_tops = self._heat_tops()

    def _rows(self) -> list[tuple[tables.ResultRow, Machine]]:
        machines = self._evidence.machines
        return [(r, machines[r.treatment]) for g in self._groups for r in g.rows if r.treatment in machines]

    def _heat_tops(self) -> dict[str, int]:
        """The scale's end for each share, in percent: the same for all maps, so that they can be compared."""
        tops = {}
        for share in CPU_SHARES:
            highest = max([_highest(m.heat[share]) for _, m in self._rows() if m.heat], default=0.0)
            nice = () if share == "busy" else (5, 10, 20, 30, 50, 75)
            tops[share] = next((t for t in nice if t >= 100 * highest), 100)
        return tops

    def heat_maps(self) -> list[dict[str, Any]]:
        found = []
        for group in self._groups:
            cards = []
            for row in group.rows:
                machine = self._evidence.machines.get(row.treatment)
                if machine and machine.heat:
                    figure = charts.heat_map(
                        self._evidence.machine_grid, machine.cores, machine.heat, self.heat_tops
                    )
                    cards.append({"row": row, "record": machine.record, **self._add(figure)})
            if cards:
                found.append({"group": group, "cards": cards})
        return found

    def details(self) -> dict[str, Any] | None:
        """Strips for each treatment, and which two stand beside each other first: the baseline and the best."""
        rows = self._rows()
        if not rows:
            return None
        panels = [self._panels(machine) for _, machine in rows]
        tops: dict[str, float] = {}
        for found in panels:
            for panel in found:
                tops[panel.title] = max(tops.get(panel.title, 0.0), panel.top)
        entries = []
        for (row, machine), found in zip(rows, panels, strict=True):
            same = [Panel(p.title, p.lines, tops[p.title]) for p in found]
            figure = self._add(charts.machine(self._evidence.machine_grid, same))
            entries.append({"row": row, "record": machine.record, "device": machine.device, **figure})
        left = next((e for e in entries if e["row"].is_baseline), entries[0])
        group = next(g for g in self._groups if left["row"] in g.rows)
        best = tables.best([e["row"] for e in entries if e["row"] in group.rows])
        right = next((e for e in entries if best and e["row"] is best), entries[-1])
        return {"entries": entries, "sides": [left, right] if right is not left else [left]}

    def _panels(self, machine: Machine) -> list[Panel]:
        panels = []
        if machine.cpu:
            lines = tuple(Line(s, machine.cpu[s] * 100, c, 1.4) for s, c in _CPU_LINES.items())
            panels.append(Panel("CPU [%]", lines, 100.0))
        disk = machine.disk
        for title, parts in _device_parts(disk).items():
            colours = ("@{line1}", "@{line2}", "@{line3}")
            lines = tuple(Line(n, y, c, 1.4) for (n, y), c in zip(parts.items(), colours, strict=False))
            panels.append(_panel(title, lines))
        for title, names in _SERVER_PANELS.items():
            present = [n for n in names if n in machine.server]
            colours = ("@{line1}", "@{line2}", "@{line3}")
            lines = tuple(Line(n, machine.server[n], c, 1.4) for n, c in zip(present, colours, strict=False))
            if lines:
                panels.append(_panel(title, lines))
        return panels

    def summaries(self) -> list[dict[str, Any]]:
        """Means over the measured window of each treatment's representative trial."""
        grid = self._evidence.machine_grid
        found = []
        for row, machine in self._rows():
            values: dict[str, float] = {s: 100 * machine.mean(y, grid) for s, y in machine.cpu.items()}
            means = {name: machine.mean(y, grid) for name, y in machine.disk.items()}
            values |= _device_means(means)
            cells = [(name, unit, values.get(name, math.nan)) for name, unit in SUMMARY_COLUMNS]
            found.append({"row": row, "record": machine.record, "device": machine.device, "cells": cells})
        return found


_SERVER_PANELS: Mapping[str, tuple[str, ...]] = {
    "Rows/s": ("rows read", "rows changed"),
    "Pages read into the buffer pool/s": ("pool reads",),
    "Log and data/s": ("log writes", "log fsyncs", "data fsyncs"),
    "Row lock waits/s": ("lock waits",),
}


def _panel(title: str, lines: tuple[Line, ...]) -> Panel:
    return Panel(title, lines, max((_highest(line.y) for line in lines), default=0.0))


def _device_parts(disk: Mapping[str, Floats]) -> dict[str, dict[str, Floats]]:
    """Panel -> line -> values, from the kernel's counters as rates (documented in its iostats.rst)."""
    if not {"reads", "writes"} <= set(disk):
        return {}
    parts = {"Device requests/s": {n: disk[n] for n in ("reads", "writes", "flushes") if n in disk}}
    if {"sectors_read", "sectors_written"} <= set(disk):
        # A sector is 512 bytes here whatever the device's own block size.
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
    """Per request; NaN where there was none: no request waits 0 ms."""
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
