"""Figures of trials: throughput over a condition, the course of a trial, its host's cores, its latencies."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from headrace.base.intervals import Interval
from headrace.experiment.report.series import Grid
from headrace.show.charts.rows import coloured, errors, line_x, numbers, panel_words, ticks_ms
from headrace.show.parts import Figure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def scaling(
    steps: Sequence[str],
    x_title: str,
    y_title: str,
    lines: Sequence[tuple[str, str, str, Sequence[Interval | None]]],
) -> Figure:
    """Throughput over the levels of one numeric condition; one (name, colour, dash, intervals) per
    configuration.
    """
    data = []
    for name, colour, dash, found in lines:
        present = [i or Interval(math.nan, None, None) for i in found]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": list(range(len(steps))),
                "y": numbers(i.estimate for i in present),
                "line": {"color": colour, "width": 2, "dash": dash},
                "marker": {"color": colour, "size": 6},
                "error_y": errors(present, colour, 1.2, 3),
                "hovertemplate": "%{y:,.0f}",
            }
        )
    layout = {
        "height": 380,
        "showlegend": False,
        "hovermode": "x unified",
        "margin": {"l": 60, "r": 16, "t": 8, "b": 46},
        "xaxis": {"title": {"text": x_title}, "tickvals": list(range(len(steps))),
                  "ticktext": list(steps), "fixedrange": True},
        "yaxis": {"title": {"text": y_title}, "rangemode": "tozero", "fixedrange": True},
    }  # fmt: skip
    return {"data": data, "layout": layout}


@dataclass(frozen=True, eq=False)
class Line:
    """A series on the grid."""

    name: str
    y: Floats
    colour: str
    width: float = 1.0
    dash: str = "solid"


def _on(grid: Grid, line: Line, axis: str = "", hover: str = "%{y:,.4~g}") -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": line.name,
        "x0": grid.start_s + grid.width_s / 2,
        "dx": grid.width_s,
        "y": numbers(line.y),
        "yaxis": f"y{axis}",
        "connectgaps": False,
        "line": {"color": line.colour, "width": line.width, "dash": line.dash},
        "hovertemplate": hover,
    }


def _band(grid: Grid, low: Floats, high: Floats, colour: str) -> dict[str, Any]:
    """The area between two series; one closed outline per stretch without a gap."""
    x: list[float | None] = []
    y: list[float | None] = []
    centers = grid.centers_s()
    whole = np.isfinite(low) & np.isfinite(high)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], whole, [False]]).astype(int)))
    for begin, end in edges.reshape(-1, 2):
        part = slice(begin, end)
        x += [*numbers(centers[part]), *numbers(centers[part][::-1]), None]
        y += [*numbers(high[part]), *numbers(low[part][::-1]), None]
    return {
        "type": "scatter", "mode": "lines", "x": x, "y": y, "fill": "toself", "fillcolor": colour,
        "line": {"width": 0, "color": colour}, "hoverinfo": "skip",
    }  # fmt: skip


def _warm_up(grid: Grid, strips: int) -> list[dict[str, Any]]:
    """Shade the warm-up in each strip, but not the titles between them."""
    if grid.start_s >= 0:
        return []
    shapes: list[dict[str, Any]] = []
    for axis in range(1, strips + 1):
        inside = {"yref": f"y{axis if axis > 1 else ''} domain"}
        area = {"type": "rect", "x0": grid.start_s, "x1": 0, "y0": 0, "y1": 1,
                "fillcolor": "@{warmup/0.5}", "line": {"width": 0}, "layer": "below"}  # fmt: skip
        shapes += [area | inside, line_x(0, "@{muted}", "dot") | inside]
    return shapes


def pace(
    grid: Grid,
    lines: Sequence[Line],
    p99_ms: Sequence[Line],
    band: tuple[Floats, Floats] | None,
    tops: tuple[float, tuple[float, float]],
) -> Figure:
    """Throughput above, p99 below, over one treatment's trials; the same axes for all of a condition."""
    top, (p99_low, p99_high) = tops
    data = [_on(grid, line) for line in lines]
    if band is not None:
        data.insert(0, _band(grid, *band, "@{accent/0.16}"))
    data += [_on(grid, line, "2", "%{y:.3~g} ms") for line in p99_ms]
    layout: dict[str, Any] = {
        "height": 270,
        "showlegend": False,
        "hovermode": "x",
        "margin": {"l": 52, "r": 10, "t": 18, "b": 38},
        "xaxis": _time_axis(grid, "y2" if p99_ms else "y"),
        "yaxis": {
            "domain": [0.5, 1] if p99_ms else [0, 1],
            "range": [0, top * 1.05],
            "nticks": 4,
            "tickformat": "~s",
        },
        "shapes": _warm_up(grid, 2 if p99_ms else 1),
        "annotations": [_panel_title("ops/s", 1.0)],
    }
    if p99_ms:
        layout["yaxis2"] = {
            "domain": [0, 0.38],
            "type": "log",
            "range": [math.log10(p99_low), math.log10(p99_high)],
            **ticks_ms(p99_low, p99_high),
        }
        layout["annotations"].append(_panel_title("p99 [ms], log scale", 0.38))
    return {"data": data, "layout": layout}


def _time_axis(grid: Grid, anchor: str) -> dict[str, Any]:
    end_s = grid.start_s + grid.width_s * grid.size
    long = end_s > 600
    step = next(
        (s for s in (60, 120, 300, 600, 900, 1800, 3600) if end_s / s <= 7), 3600 * math.ceil(end_s / 25200)
    )
    marks = [k * step for k in range(int(end_s // step) + 1)]
    ticks = {"tickvals": marks, "ticktext": [f"{mark / 60:g}" for mark in marks]} if long else {}
    return {
        "range": [grid.start_s, end_s],
        "title": {"text": f"time in the measured window [{'min' if long else 's'}]", "standoff": 4},
        "anchor": anchor,
        "nticks": 7,
        **ticks,
    }


def _panel_title(words: str, y: float) -> dict[str, Any]:
    return {
        "text": words, "x": 0, "xref": "paper", "xanchor": "left", "y": y, "yref": "paper", "yanchor": "bottom",
        "showarrow": False, "font": {"size": 11.5, "color": "@{soft}"}, "align": "left",
    }  # fmt: skip


def percentiles(lines: Sequence[tuple[str, str, str, float, Floats, Floats]]) -> Figure:
    """Latency by percentile; a line is (name, colour, dash, width, fraction, latency in ns)."""
    data = []
    low, high, deepest = math.inf, 0.0, 1.0
    for name, colour, dash, width, fraction, latency_ns in lines:
        if not len(fraction):
            continue
        ms = latency_ns / 1e6
        low, high = min(low, float(ms.min())), max(high, float(ms.max()))
        x = -np.log10(1 - fraction)
        deepest = max(deepest, float(x.max()))
        shown_name = name.replace("{", "(")  # a brace would start a field of the template
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": numbers(x),
                "y": numbers(ms),
                "customdata": [f"{100 * f:.6g}" for f in fraction],
                "line": {"color": colour, "width": width, "dash": dash},
                "hovertemplate": Markup("{}<br>%{{customdata}}% within %{{y:.4~g}} ms<extra></extra>").format(
                    shown_name
                ),
            }
        )
    marks = [(0.5, "50%"), (0.9, "90%"), (0.99, "99%"), (0.999, "99.9%"), (0.9999, "99.99%"),
             (0.99999, "99.999%"), (0.999999, "99.9999%")]  # fmt: skip
    shown = [(-math.log10(1 - q), name) for q, name in marks if -math.log10(1 - q) <= deepest + 0.3]
    low, high = (low * 0.8, high * 1.25) if data else (0.1, 10.0)
    layout = {
        "height": 400,
        "showlegend": False,
        "hovermode": "closest",
        "margin": {"l": 58, "r": 16, "t": 8, "b": 46},
        "xaxis": {"title": {"text": "share of operations that were at least this fast"},
                  "range": [0, deepest + 0.05], "zeroline": False, "tickangle": 0,
                  "tickvals": [x for x, _ in shown], "ticktext": [n for _, n in shown]},
        "yaxis": {"title": {"text": "latency [ms], log scale"}, "type": "log",
                  "range": [math.log10(low), math.log10(high)], **ticks_ms(low, high, most=10)},
    }  # fmt: skip
    return {"data": data, "layout": layout}


def heat_map(
    grid: Grid, cores: Sequence[str], shares: Mapping[str, Floats], tops: Mapping[str, int]
) -> Figure:
    """Core x time; ``shares`` maps a share's name to an array (cores, grid) from 0 to 1, NaN in gaps.

    ``tops`` maps each share to the end of its scale in percent. Cells are one byte each (percent; 255 is a gap),
    because a page may hold a million.
    """
    cells = {}
    for share, values in shares.items():
        percent = np.where(np.isfinite(values), np.clip(np.nan_to_num(values) * 100, 0, 100).round(), 255)
        cells[share] = base64.b64encode(percent.astype(np.uint8).tobytes()).decode()
    every = max(1, math.ceil(len(cores) / 8))
    trace = {
        "type": "heatmap",
        "x0": grid.start_s + grid.width_s / 2,
        "dx": grid.width_s,
        "y0": 0,
        "dy": 1,
        "cells": cells,
        "tops": dict(tops),
        "shape": [len(cores), grid.size],
        "showscale": False,
        "zmin": 0,
        "xgap": 0,
        "ygap": 1 if len(cores) <= 24 else 0,
        "zsmooth": False,
        "hoverongaps": False,
        "hovertemplate": Markup("core %{y}, %{x:.0f} s: %{z}%<extra></extra>"),
    }
    layout = {
        "height": 74 + min(360, max(70, 16 * len(cores))),
        "margin": {"l": 34, "r": 10, "t": 6, "b": 38},
        "xaxis": {**_time_axis(grid, "y"), "showgrid": False, "zeroline": False},
        "yaxis": {"range": [len(cores) - 0.5, -0.5], "tickvals": list(range(0, len(cores), every)),
                  "ticktext": [c.removeprefix("cpu") for c in cores[::every]],
                  "showgrid": False, "zeroline": False},
        "shapes": [line_x(0, "@{ink}", "dot")] if grid.start_s < 0 else [],
        "plot_bgcolor": "@{gap}",
    }  # fmt: skip
    return {"data": [trace], "layout": layout}


@dataclass(frozen=True, eq=False)
class Panel:
    """One strip of a machine's chart. ``top`` is the axis' end, the same for all treatments compared."""

    title: str
    lines: tuple[Line, ...]
    top: float


def machine(grid: Grid, panels: Sequence[Panel]) -> Figure:
    """Strips, one below the other, over one time axis."""
    data: list[dict[str, Any]] = []
    height_px = 104
    total_px = height_px * len(panels)
    layout: dict[str, Any] = {
        "height": total_px + 60,
        "showlegend": False,
        "hovermode": "x",
        "margin": {"l": 50, "r": 10, "t": 10, "b": 44},
        "xaxis": _time_axis(grid, "y" if len(panels) == 1 else f"y{len(panels)}"),
        "shapes": _warm_up(grid, len(panels)),
        "annotations": [],
    }
    for i, panel in enumerate(panels):
        upper = 1 - i / len(panels)
        axis = "" if i == 0 else str(i + 1)
        # 26 px between strips hold the next one's title.
        top = upper - 22 / total_px
        layout[f"yaxis{axis}"] = {
            "domain": [1 - (i + 1) / len(panels) + 8 / total_px, top],
            "range": [0, panel.top * 1.12 or 1],
            "nticks": 4,
            "tickformat": "~s" if panel.top >= 1000 else "",
        }
        parts = [coloured(line.name, line.colour) for line in panel.lines]
        layout["annotations"].append(_panel_title(panel_words(panel.title, parts), top + 2 / total_px))
        data += [_on(grid, line, axis) for line in panel.lines]
    return {"data": data, "layout": layout}


def drift(
    groups: Mapping[str, tuple[Sequence[int], Sequence[float], Sequence[str]]], blocks: Sequence[float]
) -> Figure:
    """Each trial's throughput relative to its treatment's mean, in order of execution, with a line between
    blocks.

    ``groups`` maps a state to (trial numbers, percent from the mean, hints).
    """
    looks = {"complete": ("@{accent}", "circle"), "invalid": ("@{worse}", "x")}
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": state,
            "x": list(trials),
            "y": numbers(percent),
            "marker": {"color": looks[state][0], "symbol": looks[state][1], "size": 8},
            "customdata": list(hints),
            "hovertemplate": Markup("%{customdata}: %{y:+.1f}%<extra></extra>"),
        }
        for state, (trials, percent, hints) in groups.items()
        if trials
    ]
    last = max(n for trials, _, _ in groups.values() for n in trials)
    reach = (
        max([2.0, *(abs(v) for _, percent, _ in groups.values() for v in percent if math.isfinite(v))]) * 1.15
    )
    layout = {
        "height": 250,
        "showlegend": False,
        "margin": {"l": 58, "r": 16, "t": 8, "b": 46},
        "hovermode": "closest",
        "xaxis": {
            "title": {"text": "trial, in order of execution (dotted: a new block)"},
            "showgrid": False,
            "range": [0.3, last + 0.7],
            "zeroline": False,
        },
        "yaxis": {"title": {"text": "from its mean [%]"}, "range": [-reach, reach], "zeroline": True},
        "shapes": [line_x(x, "@{muted}", "dot") for x in blocks],
    }
    return {"data": data, "layout": layout}
