"""Figures as plotly.js reads them: plain dictionaries, so that no chart library is loaded to write a page.

Colours are tokens (``@{better}``, ``@{better/0.2}``) that the page resolves to the reader's light or dark scheme.
Every text is escaped by ``html.dump``, unless it is ``Markup``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from headrace.base.effect import Effect, NoiseFloor, Verdict
from headrace.base.intervals import Interval
from headrace.show import text
from headrace.show.parts import Figure

#: Colours of distinguishable lines. If there are more lines, only the important ones are coloured and the rest are
#: grey.
LINE_COLOURS = tuple(f"@{{line{i}}}" for i in range(1, 8))
DASHES = ("solid", "solid", "solid", "solid", "dash", "dash", "dash")

_VERDICT_MARK = {
    Verdict.BETTER: ("@{better}", "circle"),
    Verdict.WORSE: ("@{worse}", "square"),
    Verdict.EQUIVALENT: ("@{equivalent}", "diamond"),
    Verdict.NOT_ENOUGH_DATA: ("@{unsure}", "circle-open"),
}

ROW_PX = 30

#: A trace's hover text if each point has its own.
HOVER = Markup("%{customdata}<extra></extra>")


def numbers(values: Iterable[float]) -> list[float | None]:
    """Four significant digits; None (a gap) for NaN and infinities."""
    return [float(f"{v:.4g}") if math.isfinite(v) else None for v in map(float, values)]


def hint(name: str, *said: str) -> Markup:
    """The hover text of a point: its name, and lines about it."""
    return Markup("<b>{}</b>: {}").format(name, Markup("<br>").join(said))


@dataclass(frozen=True)
class Row:
    """One row of the chart. ``interval`` is in the chart's unit; None if nothing was measured."""

    name: str
    interval: Interval | None
    colour: str
    symbol: str = "circle"
    hint: str = ""


def rows_layout(rows: Sequence[Row], x_title: str) -> dict[str, Any]:
    names = [r.name for r in rows]
    return {
        "height": 64 + ROW_PX * len(rows),
        "margin": {"l": 10, "r": 24, "t": 8, "b": 46},
        "showlegend": False,
        "yaxis": {
            "tickvals": list(range(len(rows))),
            "ticktext": names,
            "range": [len(rows) - 0.5, -0.5],
            "automargin": True,
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
        "xaxis": {"title": {"text": x_title}, "fixedrange": True},
        "meta": {"rows": names},
    }


def ladder(rows: Sequence[Row], x_title: str, top: float) -> Figure:
    """Throughput of every configuration of one condition: bars from 0, each with its interval."""
    positions = [i for i, r in enumerate(rows) if r.interval]
    found = [r.interval for r in rows if r.interval]
    # A very wide interval is clipped, so that it does not squeeze the measured values.
    top = min(top, 2.5 * max((i.estimate for i in found), default=top))
    ends = [min(i.high if i.high is not None else i.estimate, top) for i in found]
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": positions,
        "x": numbers(i.estimate for i in found),
        "width": 0.62,
        "marker": {"color": [rows[p].colour.replace("}", "/0.55}") for p in positions]},
        "error_x": errors(found),
        "customdata": [rows[p].hint for p in positions],
        "hovertemplate": HOVER,
    }  # fmt: skip
    values = {
        "type": "scatter",
        "mode": "text",
        "y": positions,
        "x": numbers(ends),
        "text": [f"  {text.count(i.estimate)}" for i in found],
        # Beside the interval; above its line, if that goes on.
        "textposition": ["top center" if i.high and i.high > top else "middle right" for i in found],
        "textfont": {"color": "@{ink}"},
        "hoverinfo": "skip",
        "cliponaxis": False,
    }
    layout = rows_layout(rows, x_title)
    layout["xaxis"] |= {"range": [0, top * 1.22], "nticks": 6, "tickformat": "~s" if top >= 1000 else ""}
    return {"data": [bars, values], "layout": layout}


def errors(
    found: Sequence[Interval], colour: str = "@{ink}", thickness: float = 1.4, width: float = 4
) -> Figure:
    """The intervals as error bars."""
    low = numbers(math.nan if i.low is None else i.estimate - i.low for i in found)
    high = numbers(math.nan if i.high is None else i.high - i.estimate for i in found)
    return {
        "type": "data", "symmetric": False, "array": high, "arrayminus": low,
        "color": colour, "thickness": thickness, "width": width,
    }  # fmt: skip


def ratios(rows: Sequence[Row], x_title: str, floor: float | None, span: tuple[float, float]) -> Figure:
    """Ratios to the baseline with intervals on a log axis; the band of the noise floor is shaded around 1."""
    positions = [i for i, r in enumerate(rows) if r.interval]
    found = [r.interval for r in rows if r.interval]
    points = {
        "type": "scatter",
        "mode": "markers",
        "y": positions,
        "x": numbers(i.estimate for i in found),
        "marker": {
            "size": 10,
            "color": [rows[p].colour for p in positions],
            "symbol": [rows[p].symbol for p in positions],
            "line": {"width": 2, "color": [rows[p].colour for p in positions]},
        },
        "error_x": errors(found),
        "customdata": [rows[p].hint for p in positions],
        "hovertemplate": HOVER,
    }  # fmt: skip
    layout = rows_layout(rows, x_title)
    ticks = ratio_ticks(*span)
    layout["xaxis"] |= {
        "type": "log",
        "range": [math.log10(span[0]), math.log10(span[1])],
        "tickvals": ticks,
        "ticktext": [f"{t:g}×" for t in ticks],
    }
    layout["shapes"] = [line_x(1.0, "@{muted}", "dot")]
    if floor:
        left = max(1 - floor, span[0] / 10)  # a log axis cannot show 0
        band = {"type": "rect", "x0": left, "x1": 1 + floor, "y0": 0, "y1": 1, "yref": "paper",
                "line": {"width": 0}, "fillcolor": "@{noise/0.28}", "layer": "below"}  # fmt: skip
        layout["shapes"].insert(0, band)
    return {"data": [points], "layout": layout}


def line_x(x: float, colour: str, dash: str) -> dict[str, Any]:
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper",
            "line": {"color": colour, "width": 1.2, "dash": dash}}  # fmt: skip


def ratio_span(intervals: Sequence[Interval], floor: float | None) -> tuple[float, float]:
    """The axis range for ratios. An interval from very few blocks may exceed the axis; estimates never do."""
    estimates = [i.estimate for i in intervals if i.estimate > 0] or [1.0]
    lowest, highest = min([*estimates, 1.0]), max([*estimates, 1.0])
    lows = [i.low for i in intervals if i.low and i.low >= lowest / 3]
    highs = [i.high for i in intervals if i.high and i.high <= highest * 3]
    band = min(floor or 0.0, 0.5)
    low = min([lowest, 1 - band, *lows])
    high = max([highest, 1 + band, *highs])
    reach = max(math.log(high / low) * 0.07, 0.004)
    return low * math.exp(-reach), high * math.exp(reach)


def ratio_ticks(low: float, high: float) -> list[float]:
    """About seven round ratios at most on a log axis, including 1."""
    for step in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1):
        first, last = max(1, math.ceil(low / step)), math.floor(high / step)
        # Equal steps crowd at the right of a log axis: use them only if the last two labels do not overlap.
        if 2 <= last - first < 7 and step / high > 0.09 * math.log(high / low):
            return [round(k * step, 6) for k in range(first, last + 1)]
    rounds = [m * 10.0**e for e in range(-6, 7) for m in ((1, 2, 5) if high / low < 200 else (1,))]
    return [float(f"{r:g}") for r in rounds if low <= r <= high]


def verdict_mark(effect: Effect) -> tuple[str, str]:
    """Colour and symbol, so that verdicts are distinguishable without colour."""
    return _VERDICT_MARK[effect.verdict]


def noise_row(noise: NoiseFloor, baseline: str) -> Row:
    said = (
        f"A/A: the second {baseline} of each block relative to the first: {text.ratio(noise.ratio.estimate)}"
    )
    return Row(f"{baseline} (A/A)", noise.ratio, "@{muted}", "x-thin", said)


def ticks_ms(low: float, high: float, most: int = 4) -> dict[str, Any]:
    """Round values on a log axis: as many as fit."""
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [m * 10.0**e for e in range(-5, 8) for m in steps if low <= m * 10.0**e <= high]
        if len(ticks) <= most:
            break
    return {"tickvals": ticks, "ticktext": [f"{t:,g}" if t < 1000 else f"{t:,.0f}" for t in ticks]}


def coloured(name: str, colour: str) -> Markup:
    """A line's name in its colour: a legend inside a figure."""
    return Markup('<span style="color:{}">{}</span>').format(colour, name)


def panel_words(title: str, parts: Sequence[Markup]) -> Markup:
    """A panel's title with its legend."""
    return Markup("<b>{}</b>   {}").format(title, Markup("   ").join(parts))
