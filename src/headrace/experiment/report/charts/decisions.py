"""Figures of races, effects, searches and series; see ``charts`` for what they share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from headrace.base.counted import counted
from headrace.show import text
from headrace.show.charts.rows import HOVER, Row, hint, line_x, numbers, rows_layout
from headrace.show.parts import Figure

#: From this ratio of largest to smallest, values are on a log axis.
LOG_FROM = 4.0

HEIGHT_PX = 340


def blocks(ran: Sequence[int], everyone: int, most: int, left: Mapping[int, Sequence[str]]) -> Figure:
    """Trials of each block of a race against those of a full study; ``left`` names the treatments eliminated after
    it.
    """
    x = list(range(1, most + 1))
    counts = [*ran, *[0] * (most - len(ran))][:most]
    gone = {b: ", ".join(text.short(n, 40) for n in names[:6]) for b, names in left.items()}
    told = [
        Markup("block {}: {} trials").format(b, n)
        + (Markup("<br>left: {}").format(gone[b]) if b in gone else "")
        for b, n in enumerate(counts, 1)
    ]
    spared = [everyone - n for n in counts]
    saved = [f"block {b}: {counted(n, 'trial')} not run" for b, n in enumerate(spared, 1)]
    data = [
        {
            "type": "bar",
            "x": x,
            "y": y,
            "marker": {"color": colour},
            "customdata": hints,
            "hovertemplate": HOVER,
        }
        for y, colour, hints in ((counts, "@{accent/0.75}", told), (spared, "@{noise/0.25}", saved))
    ]
    layout = _layout("block", "trials", height=280)
    layout |= {"barmode": "stack", "bargap": 0.15}
    layout["xaxis"] |= {"range": [0.4, most + 0.6], "dtick": max(1, math.ceil(most / 12)), "tick0": 1}
    layout["yaxis"] |= {"range": [0, everyone * 1.06], "nticks": 6}
    return {"data": data, "layout": layout}


def bars(rows: Sequence[tuple[str, float, str, str, str]], x_title: str, top: float | None = None) -> Figure:
    """One (name, value, label, colour, hint) per row; bars start at 0."""
    shown = [Row(name, None, colour) for name, _, _, colour, _ in rows]
    top = top or max((value for _, value, _, _, _ in rows), default=1.0) or 1.0
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": list(range(len(rows))),
            "x": numbers(v for _, v, _, _, _ in rows),
            "width": 0.62,
            "marker": {"color": [c.replace("}", "/0.6}") for _, _, _, c, _ in rows]},
            "customdata": [hint for *_, hint in rows],
            "hovertemplate": HOVER,
        },
        {
            "type": "scatter",
            "mode": "text",
            "y": list(range(len(rows))),
            "x": numbers(v for _, v, _, _, _ in rows),
            "text": [f"  {beside}" for _, _, beside, _, _ in rows],
            "textposition": "middle right",
            "textfont": {"color": "@{ink}"},
            "hoverinfo": "skip",
            "cliponaxis": False,
        },
    ]
    layout = rows_layout(shown, x_title)
    layout["xaxis"] |= {"range": [0, top * 1.22], "nticks": 6}
    return {"data": data, "layout": layout}


def lines(
    steps: Sequence[str],
    x_title: str,
    y_title: str,
    found: Sequence[tuple[str, str, Sequence[float]]],
    axis: Mapping[str, Any],
) -> Figure:
    """One (name, colour, values) per line over named steps, all plots of a page on one ``axis``: lines that are
    not parallel show an interaction.
    """
    symbols = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": list(range(len(steps))),
            "y": numbers(values),
            "line": {"color": colour, "width": 2},
            "marker": {"color": colour, "size": 8, "symbol": symbols[i % 7]},
            "customdata": [f"{name}, {step}: {text.count(v)}" for step, v in zip(steps, values, strict=True)],
            "hovertemplate": HOVER,
        }
        for i, (name, colour, values) in enumerate(found)
    ]
    layout = _layout(x_title, y_title, height=270)
    layout["margin"] |= {"l": 62 if y_title else 44}
    layout["xaxis"] |= {
        "tickvals": list(range(len(steps))),
        "ticktext": [text.short(s, max(5, 44 // len(steps))) for s in steps],
        "range": [-0.35, len(steps) - 0.65],
        "tickangle": 0,
    }
    layout["yaxis"] |= axis
    return {"data": data, "layout": layout}


def half_normal(points: Sequence[tuple[float, float, str, bool, str]], margin: float) -> Figure:
    """One (expected from noise, size, label, is significant, hint) per point, both as multiples of the noise: the
    noise line has slope 1. Points beyond ``margin`` are significant.
    """
    right = max(x for x, *_ in points) * 1.06
    top = max([margin, *(y for _, y, *_ in points)]) * 1.08
    end = min(right, top)
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": numbers([0, end]),
            "y": numbers([0, end]),
            "line": {"color": "@{soft}", "width": 1.6},
            "hoverinfo": "skip",
        }
    ]
    for is_beyond, colour, symbol in ((False, "@{muted}", "circle-open"), (True, "@{accent}", "circle")):
        own = [(x, y, said) for x, y, _, beyond, said in points if beyond is is_beyond]
        if own:
            data.append(_points(own, colour, symbol, 8))
    named = [(x, y, name) for x, y, name, *_ in points if name]
    data.append(
        {
            "type": "scatter",
            "mode": "text",
            "x": numbers(x for x, _, _ in named),
            "y": numbers(y for _, y, _ in named),
            "text": [f"{text.short(name, 44)}  " for *_, name in named],
            "textposition": "middle left",
            "textfont": {"color": "@{ink}"},
            "hoverinfo": "skip",
        }
    )
    layout = _layout(
        "expected from noise only [multiples of the noise]", "size of the effect [multiples of the noise]"
    )
    layout["xaxis"] |= {"range": [0, right], "nticks": 7}
    layout["yaxis"] |= {"range": [0, top], "nticks": 7}
    dashed = {"color": "@{worse}", "width": 1.2, "dash": "dash"}
    layout["shapes"] = [
        {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": margin, "y1": margin, "line": dashed}
    ]
    return {"data": data, "layout": layout}


def search(
    points: Sequence[tuple[int, float | None, str, str]],
    best: Sequence[tuple[int, float]],
    y_title: str,
    *,
    is_lower_better: bool = False,
) -> Figure:
    """One (trial, value, kind, hint) per point; ``best`` is the best value so far as (trial, value).

    Kinds: ``good``, ``broken`` (a constraint), ``failed`` (drawn at the worse end), ``base``.
    """
    looks = {
        "good": ("@{accent/0.8}", "circle", 7),
        "broken": ("@{unsure}", "circle-open", 8),
        "failed": ("@{worse}", "x", 8),
        "base": ("@{ink}", "diamond", 11),
    }
    values = [v for _, v, _, _ in points if v is not None]
    axis = value_axis(values)
    worst = (max if is_lower_better else min)(values, default=1.0)
    data: list[dict[str, Any]] = []
    if best:
        last = max(n for n, *_ in points)
        steps = [*best, (last, best[-1][1])]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [n for n, _ in steps],
                "y": numbers(v for _, v in steps),
                "line": {"color": "@{better}", "width": 2, "shape": "hv"},
                "hoverinfo": "skip",
            }
        )
    for kind, (colour, symbol, size) in looks.items():
        own = [(n, worst if v is None else v, hint) for n, v, k, hint in points if k == kind]
        if own:
            data.append(_points(own, colour, symbol, size))
    layout = _layout("trial of the search", y_title)
    layout["yaxis"] |= axis
    return {"data": data, "layout": layout}


def front(points: Sequence[tuple[float, float, str, str]], x_title: str, y_title: str) -> Figure:
    """One (first objective, second, kind, hint) per point; ``front`` points are joined."""
    looks = {
        "other": ("@{muted}", "circle", 7),
        "broken": ("@{unsure}", "circle-open", 8),
        "base": ("@{ink}", "diamond", 11),
        "front": ("@{better}", "circle", 10),
    }
    data: list[dict[str, Any]] = []
    on = sorted((x, y) for x, y, kind, _ in points if kind == "front")
    if len(on) > 1:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": numbers(x for x, _ in on),
                "y": numbers(y for _, y in on),
                "line": {"color": "@{better/0.6}", "width": 1.6},
                "hoverinfo": "skip",
            }
        )
    for kind, (colour, symbol, size) in looks.items():
        own = [(x, y, hint) for x, y, k, hint in points if k == kind]
        if own:
            data.append(_points(own, colour, symbol, size))
    layout = _layout(x_title, y_title)
    layout["xaxis"] |= value_axis([x for x, *_ in points])
    layout["yaxis"] |= value_axis([y for _, y, *_ in points])
    return {"data": data, "layout": layout}


def series(
    names: Sequence[str],
    trials: Sequence[Sequence[float]],
    means: Sequence[float],
    levels: Sequence[tuple[int, int, float]],
    changes: Sequence[tuple[int, str, str]],
    y_title: str,
) -> Figure:
    """Points of a series with their trials, the level of each stretch as (first, end, value), and each change as
    (first point of the new level, its ratio, colour).
    """
    dots = [
        (i, v, f"{names[i]}: {text.count(v)}") for i, own in enumerate(trials) for v in own if len(own) > 1
    ]
    data = [_points(dots, "@{muted/0.7}", "circle", 4)] if dots else []
    hints = [(i, v, hint(names[i], text.count(v))) for i, v in enumerate(means)]
    data.append(_points(hints, "@{accent}", "circle", 7))
    for start, end, value in levels:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [start - 0.5, end - 0.5],
                "y": numbers([value, value]),
                "line": {"color": "@{soft}", "width": 2.4},
                "hoverinfo": "skip",
            }
        )
    layout = _layout("", y_title, height=380)
    every = max(1, math.ceil(len(names) / 16))
    ticks = list(range(0, len(names), every))
    layout["xaxis"] |= {
        "tickvals": ticks,
        "ticktext": [text.short(names[i], 16) for i in ticks],
        "range": [-0.7, len(names) - 0.3],
        "automargin": True,
    }
    layout["yaxis"] |= value_axis([*means, *(v for own in trials for v in own)])
    layout["margin"] |= {"t": 26}
    layout["shapes"] = [line_x(at - 0.5, colour, "dash") for at, _, colour in changes]
    layout["annotations"] = [
        {
            "text": words,
            "x": at - 0.5,
            "y": 1,
            "yref": "paper",
            "yanchor": "bottom",
            "showarrow": False,
            "font": {"size": 11.5, "color": colour},
        }
        for at, words, colour in changes
    ]
    return {"data": data, "layout": layout}


def value_axis(values: Sequence[float]) -> dict[str, Any]:
    """The range and ticks of an axis of measured values: linear from 0, or log if they span much."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low <= 0 or high / low < LOG_FROM:
        if low > 0 and high / low < 1.5:
            # If values are close, bars from 0 would hide the differences; points do not have this problem.
            reach = (high - low) * 0.12 or high * 0.02
            return {"range": [low - reach, high + reach], "nticks": 6}
        return {"range": [min(0.0, low), high * 1.08], "nticks": 6}
    each = (1, 1.5, 2, 3, 5, 7) if high / low < 12 else (1, 2, 5) if high / low < 300 else (1,)
    rounds = [m * 10.0**e for e in range(-9, 13) for m in each]
    ticks = [r for r in rounds if low / 1.3 <= r <= high * 1.3]
    return {
        "type": "log",
        "range": [math.log10(low) - 0.08, math.log10(high) + 0.08],
        "tickvals": ticks,
        "ticktext": [f"{t:,.6g}" for t in ticks],
    }


def _points(found: Sequence[tuple[float, float, str]], colour: str, symbol: str, size: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(x for x, _, _ in found),
        "y": numbers(y for _, y, _ in found),
        "marker": {
            "color": colour,
            "symbol": symbol,
            "size": size,
            "line": {"width": 2 if "open" in symbol else 0, "color": colour},
        },
        "customdata": [hint for *_, hint in found],
        "hovertemplate": HOVER,
    }


def _layout(x_title: str, y_title: str, height: int = HEIGHT_PX) -> dict[str, Any]:
    return {
        "height": height,
        "showlegend": False,
        "hovermode": "closest",
        "margin": {"l": 62, "r": 14, "t": 10, "b": 46},
        "xaxis": {"title": {"text": x_title}, "fixedrange": True, "zeroline": False},
        "yaxis": {"title": {"text": y_title}, "fixedrange": True, "zeroline": False},
    }
