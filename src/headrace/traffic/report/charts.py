"""A digest's figures: three for plotly.js, and small SVG pictures that need no script."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from headrace.show.charts import LINE_COLOURS, coloured, numbers, panel_words
from headrace.show.parts import Figure
from headrace.show.text import short
from headrace.traffic import figures as traffic
from headrace.traffic.digests.classes import QueryClass, Slices
from headrace.traffic.digests.table import ALL
from headrace.traffic.report.words import duration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.traffic.digests.classes import Buckets, Digest
    from headrace.traffic.figures import Course

#: Classes shown separately in the chart of load.
MOST_LINES = 6
#: A cell's colour is one byte; this one is a gap.
_GAP = 255
_ROWS_A_DECADE = 8
_PERCENTILES = (("p50", "@{line3}", "dot"), ("p95", "@{line1}", "solid"), ("p99", "@{line2}", "solid"))


def _time(**more: Any) -> dict[str, Any]:
    return {"type": "date", "showgrid": False, "zeroline": False, "nticks": 6, "tickangle": 0, **more}


def over_time(digest: Digest) -> Figure:
    """Calls per second above, percentiles of each slice below, over one time axis."""
    assert digest.first_ns is not None
    assert digest.last_ns is not None
    whole = _whole_course(digest)
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": _mode(len(whole.count)), "name": "calls/s", "x0": _middle_ms(whole),
            "dx": whole.width_ns / 1e6,
            "y": numbers(rates(whole, digest)), "line": {"color": "@{accent}", "width": 1.6, "shape": "hvh"},
            "fill": "tozeroy", "fillcolor": "@{accent/0.14}", "hovertemplate": "%{y:,.4~g}/s",
        }
    ]  # fmt: skip
    width, found = traffic.percentile_course(digest)
    shown: list[float] = []
    for name, colour, dash in _PERCENTILES:
        points = found.get(name, [])
        if not points:
            continue
        shown += [value / 1e6 for _, value in points]
        data.append(
            {
                "type": "scatter", "mode": _mode(len(points)), "name": name,
                "yaxis": "y2", "x": [(at + width / 2) / 1e6 for at, _ in points],
                "y": numbers(value / 1e6 for _, value in points),
                "line": {"color": colour, "width": 1.6, "dash": dash}, "marker": {"size": 4, "color": colour},
                "hovertemplate": "%{y:.3~g} ms",
            }
        )  # fmt: skip
    layout: dict[str, Any] = {
        "height": 380 if shown else 230, "showlegend": False, "hovermode": "x",
        "margin": {"l": 58, "r": 12, "t": 24, "b": 38},
        "xaxis": _time(anchor="y2" if shown else "y"),
        "yaxis": {"domain": [0.58, 1] if shown else [0, 1], "rangemode": "tozero", "nticks": 5,
                  "tickformat": "~s"},
        "annotations": [_title(panel_words("calls a second", ()), 1.0)],
    }  # fmt: skip
    if shown:
        parts = [coloured(name, colour) for name, colour, _ in _PERCENTILES if found.get(name)]
        layout["yaxis2"] = {"domain": [0, 0.44], "type": "log", **_log_ticks(shown)}
        layout["annotations"].append(_title(panel_words("response time [ms]", parts), 0.44))
    return {"data": data, "layout": layout}


def _whole_course(digest: Digest) -> Course:
    """All classes over time: the sum over classes, because the totals have no slices."""
    parts = [each.slices for each in digest.classes if len(each.slices.start_ns)]
    starts = np.concatenate([part.start_ns for part in parts]) if parts else np.empty(0, np.int64)
    order, where = np.unique(starts, return_inverse=True)
    count, total, top = np.zeros(len(order), np.int64), np.zeros(len(order)), np.full(len(order), np.nan)
    if parts:
        np.add.at(count, where, np.concatenate([part.count for part in parts]))
        np.add.at(total, where, np.nan_to_num(np.concatenate([part.sum_ns for part in parts])))
        np.fmax.at(top, where, np.concatenate([part.most_ns for part in parts]))
    assert digest.first_ns is not None
    assert digest.last_ns is not None
    every = QueryClass(ALL, slices=Slices(order, count, total, top))
    return traffic.course(every, digest.first_ns, digest.last_ns, digest.slice_ns)


def _mode(points: int) -> str:
    """A single point between gaps makes no line, so it needs a marker."""
    return "lines+markers" if points < 40 else "lines"


def rates(found: Course, digest: Digest) -> NDArray[np.float64]:
    """Calls per second of each slice; NaN if the capture covers little of it, because it would look quiet."""
    assert digest.span_ns is not None
    first_ns, end_ns = digest.span_ns
    starts = found.start_ns + found.width_ns * np.arange(len(found.count), dtype=np.int64)
    covered = np.minimum(starts + found.width_ns, end_ns) - np.maximum(starts, first_ns)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(covered >= found.width_ns / 4, found.count / (covered / 1e9), np.nan)


def _middle_ms(found: Course) -> float:
    return (found.start_ns + found.width_ns / 2) / 1e6


def _title(text: str, y: float) -> dict[str, Any]:
    return {"text": text, "x": 0, "xref": "paper", "xanchor": "left", "y": y, "yref": "paper", "yanchor": "bottom",
            "showarrow": False, "font": {"size": 12}}  # fmt: skip


def _log_ticks(values: Sequence[float]) -> dict[str, Any]:
    """Powers of ten of ms (and 2, 5 within two decades), and a range with a little room."""
    low, high = min(values) * 0.8, max(values) * 1.25
    steps = (1, 2, 5) if high / low < 200 else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [m * 10.0**e for e in range(first, last + 1) for m in steps if low <= m * 10.0**e <= high]
    return {
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{t:g}" for t in ticks],
    }


def load(digest: Digest, shown: Sequence[QueryClass]) -> Figure:
    """Response time per second, stacked: the classes with the most of it, and the rest."""
    assert digest.first_ns is not None
    assert digest.last_ns is not None
    whole = _whole_course(digest)
    rest = np.nan_to_num(whole.mean_ns) * whole.count
    data: list[dict[str, Any]] = []
    for rank, each in enumerate(shown[:MOST_LINES], 1):
        found = traffic.course(each, digest.first_ns, digest.last_ns, digest.slice_ns)
        took = np.nan_to_num(found.mean_ns) * found.count
        rest = rest - took
        data.append(_area(f"{rank} {short(each.fingerprint, 60)}", LINE_COLOURS[rank - 1], found, took))
    if len(digest.classes) > len(data):
        data.append(_area("all others", "@{muted}", whole, np.maximum(rest, 0)))
    layout = {
        "height": 280, "showlegend": False, "hovermode": "x", "margin": {"l": 58, "r": 12, "t": 10, "b": 38},
        "xaxis": _time(),
        "yaxis": {"title": {"text": "concurrent calls"}, "rangemode": "tozero", "nticks": 6},
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _area(name: str, colour: str, found: Course, took_ns: NDArray[np.float64]) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": name, "stackgroup": "load",
        "x0": _middle_ms(found), "dx": found.width_ns / 1e6, "y": numbers(took_ns / found.width_ns),
        "line": {"width": 0.6, "color": colour}, "fillcolor": colour.replace("}", "/0.6}"),
        "hovertemplate": "%{y:.3~g}",
    }  # fmt: skip


def heat_map(digest: Digest) -> Figure:
    """Time x response time (log): calls per cell, coloured by their logarithm."""
    start_ns, width_ns, edges, cells = traffic.heat_rows(digest, _ROWS_A_DECADE)
    top = int(cells.max())
    scaled = np.where(cells > 0, 40 + 214 * np.log1p(cells) / math.log1p(top), _GAP).astype(np.uint8)
    decades = [
        n for n, edge in enumerate(edges.tolist()) if abs(math.log10(edge) - round(math.log10(edge))) < 1e-9
    ]
    trace = {
        "type": "heatmap", "x0": (start_ns + width_ns / 2) / 1e6, "dx": width_ns / 1e6, "y0": 0.5, "dy": 1,
        "cells": {"busy": base64.b64encode(scaled.tobytes()).decode()}, "tops": {"busy": 254},
        "shape": list(cells.shape), "customdata": cells.tolist(), "showscale": False,
        "zmin": 0, "zsmooth": False, "hoverongaps": False,
        "hovertemplate": Markup("%{x|%H:%M:%S}: %{customdata:,} calls<extra></extra>"),
    }  # fmt: skip
    layout = {
        "height": 110 + min(420, max(120, 9 * len(cells))), "margin": {"l": 62, "r": 12, "t": 8, "b": 38},
        "xaxis": _time(),
        "yaxis": {"range": [0, len(cells)], "tickvals": decades, "zeroline": False, "showgrid": False,
                  "ticktext": [duration(float(edges[n])) for n in decades]},
    }  # fmt: skip
    return {"data": [trace], "layout": layout}


# -- Pictures without a script ----------------------------------------------------------------------------------


def share_bar(share: float) -> Markup:
    """A thin bar below a percentage."""
    return Markup('<span class="track"><span style="width:{}%"></span></span>').format(f"{100 * share:.1f}")


def sparkline(values: NDArray[np.float64] | NDArray[np.int64], width: int = 110, height: int = 22) -> Markup:
    """A sparkline from 0 to its own maximum; gaps stay open. Colours come from the page's style."""
    found = np.asarray(values, dtype=np.float64)
    if len(found) < 2 or not np.isfinite(found).any():
        return Markup("")
    found = _thinned(found, width // 2)
    top = float(np.nanmax(found)) or 1.0
    step = width / (len(found) - 1) if len(found) > 1 else 0.0
    paths, pen = [], "M"
    for n, value in enumerate(found.tolist()):
        if not math.isfinite(value):
            pen = "M"
            continue
        paths.append(f"{pen}{n * step:.0f} {height - 1 - (height - 2) * value / top:.1f}")
        pen = "L"
    return Markup(
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'preserveAspectRatio="none" aria-hidden="true">'
        f'<path d="{"".join(paths)}"/></svg>'
    )


def _thinned(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """The maximum of each of ``most`` groups of neighbours, so that no peak is lost."""
    if len(values) <= most:
        return values
    groups = np.array_split(values, most)
    return np.array([np.nanmax(group) if np.isfinite(group).any() else np.nan for group in groups])


def distribution(found: Buckets, marks: Mapping[str, float | None]) -> Markup:
    """Calls by response time as bars on a log axis, with percentiles as lines. ``marks``: name -> ns."""
    bars = traffic.distribution(found, 10)
    if not bars:
        return Markup("")
    low, high = math.log10(bars[0].low_ns), math.log10(bars[-1].high_ns)
    # At least a decade, so that one value does not look like a wide spread.
    spread = max(high - low, 1.0)
    low -= (spread - (high - low)) / 2
    width, height = 420, 92
    top = max(bar.count for bar in bars)

    def x(value_ns: float) -> float:
        return (math.log10(value_ns) - low) / spread * width

    drawn = []
    for bar in bars:
        if bar.count:
            tall = max(1.0, 74 * bar.count / top)
            left, right = x(bar.low_ns), x(bar.high_ns)
            drawn.append(
                f'<rect x="{left:.1f}" y="{76 - tall:.1f}" width="{max(right - left - 0.8, 0.8):.1f}" '
                f'height="{tall:.1f}">'
                f"<title>{duration(bar.low_ns)} to {duration(bar.high_ns)}: {bar.count:,}</title></rect>"
            )
    axis = []
    for power in range(math.ceil(low - 1e-9), math.floor(low + spread + 1e-9) + 1):
        at = x(10.0**power)
        anchor = "start" if at < 20 else "end" if at > width - 20 else "middle"
        axis.append(
            f'<path d="M{at:.1f} 76V79"/>'
            f'<text x="{at:.1f}" y="90" text-anchor="{anchor}">{duration(10.0**power)}</text>'
        )
    lines = [
        f'<path class="{name}" d="M{x(value):.1f} 0V76"><title>{name} {duration(value)}</title></path>'
        for name, value in marks.items()
        if value
    ]
    return Markup(
        f'<svg class="spread" viewBox="0 0 {width} {height}" role="img" aria-label="calls by response time">'
        f'<g class="bars">{"".join(drawn)}</g><g class="axis"><path d="M0 76H{width}"/>{"".join(axis)}</g>'
        f'<g class="marks">{"".join(lines)}</g></svg>'
    )
