"""The two figures of a sweep: throughput and latency against load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from headrace.base.intervals import Interval
from headrace.experiment.report.sweep.words import between
from headrace.experiment.stats.sweep_result import Level, Sweep
from headrace.experiment.stats.sweep_words import is_telling
from headrace.show import charts, text
from headrace.show.parts import Figure

HEIGHT_PX = 400

#: From this ratio of the highest to the lowest level, the axis is logarithmic.
LOG_FROM = 10.0

LATENCY_STYLES: Mapping[str, tuple[str, str]] = {
    "p50": ("@{line3}", "circle"),
    "p90": ("@{line5}", "diamond"),
    "p95": ("@{line4}", "diamond"),
    "p99": ("@{line1}", "square"),
    "p99.9": ("@{line6}", "triangle-up"),
    "p99.99": ("@{line7}", "triangle-down"),
}


def throughput(sweep: Sweep, trials: Mapping[str, Sequence[float]]) -> Figure:
    """Every level's throughput with its interval, the law through it, the knee, and each trial as a faint dot.

    ``trials`` maps a level's treatment to the throughputs of its analysed trials.
    """
    dots = [(level.load, ops_s) for level in sweep.levels for ops_s in trials.get(level.treatment, ())]
    searched = [(level.load, level.search_ops_s) for level in sweep.levels if level.search_ops_s is not None]
    measured = [(level, summary.throughput_ops_s) for level, summary in sweep.measured]
    data: list[dict[str, Any]] = []
    if sweep.is_open:
        loads = [level.load for level in sweep.levels]
        data.append(_curve(loads, loads, "as offered", "@{muted}", "dot"))
    law = sweep.law
    if law is not None:
        grid = _grid(sweep)
        curve = [law.throughput_ops_s(load) for load in grid]
        data.append(_curve(grid, curve, "scalability law", "@{line2}", "dash"))
    data += [
        _marks(searched, "search, not analysed", "@{muted/0.8}", "circle-open", "%{y:,.0f} operations/s"),
        _marks(dots, "one trial", "@{accent}", "line-ew-open", "%{y:,.0f} operations/s"),
    ]
    hints = [
        charts.hint(
            sweep.at(level.load), f"{text.count(found.estimate)} operations/s", between(found, text.count)
        )
        for level, found in measured
    ]
    data.append(
        _line([level for level, _ in measured], [i for _, i in measured], "@{accent}", "circle", hints)
    )
    tops = [found.high or found.estimate for _, found in measured] + [ops_s for _, ops_s in dots + searched]
    layout = _layout(sweep, "throughput [operations/s]")
    # An interval from few passes may exceed everything measured; the axis covers only what was measured.
    highest = max([ops_s for _, ops_s in dots + searched], default=1.0)
    layout["yaxis"] |= {
        "range": [0, min(max(tops, default=1.0), 1.4 * highest) * 1.08],
        "tickformat": "~s" if highest >= 1000 else "",
    }
    layout["shapes"] = _knee(sweep)
    return {"data": [trace for trace in data if trace["x"]], "layout": layout}


def latency(sweep: Sweep, percentiles: Sequence[str]) -> Figure:
    """Percentiles against load on a log axis, in ms, with the limit of each objective as a line across."""
    data: list[dict[str, Any]] = []
    values: list[float] = []
    for name in percentiles:
        colour, symbol = LATENCY_STYLES[name]
        found = [(level, s.latency_ns[name]) for level, s in sweep.measured if name in s.latency_ns]
        if not found:
            continue
        shown = [_in_ms(interval) for _, interval in found]
        hints = [
            charts.hint(
                f"{name} at {sweep.at(level.load)}",
                f"{text.milliseconds(interval.estimate)} ms",
                between(interval, text.milliseconds),
            )
            for level, interval in found
        ]
        data.append(_line([level for level, _ in found], shown, colour, symbol, hints))
        values += [interval.estimate for interval in shown]
        values += [end for i in shown for end in (i.low, i.high) if end and _is_near(end, i.estimate)]
    limits = [answer.objective.limit_ns / 1e6 for answer in sweep.answers]
    values += limits
    low, high = (min(values) * 0.75, max(values) * 1.35) if values else (0.1, 10.0)
    layout = _layout(sweep, "latency [ms], log scale")
    layout["yaxis"] |= {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        **charts.ticks_ms(low, high, most=9),
    }
    layout["shapes"] = [*_knee(sweep), *(_limit(limit) for limit in limits)]
    layout["annotations"] = [
        _limit_name(str(a.objective), limit, is_left=_room(data, limit, 0) >= _room(data, limit, 1))
        for a, limit in zip(sweep.answers, limits, strict=True)
    ]
    return {"data": data, "layout": layout}


def _is_near(end: float, estimate: float) -> bool:
    """An interval from few passes may span decades: it may exceed the axis, its estimate may not."""
    return 1 / 4 < end / estimate < 4


def _in_ms(interval: Interval) -> Interval:
    low, high = (None if end is None else end / 1e6 for end in (interval.low, interval.high))
    return Interval(interval.estimate / 1e6, low, high)


def _grid(sweep: Sweep) -> list[float]:
    first, last = sweep.levels[0].load, sweep.levels[-1].load
    spaced = np.geomspace if _is_log(sweep) else np.linspace
    return [float(load) for load in spaced(first, last, 80)]


def _is_log(sweep: Sweep) -> bool:
    return sweep.levels[-1].load / sweep.levels[0].load >= LOG_FROM


def _layout(sweep: Sweep, y_title: str) -> dict[str, Any]:
    loads = [level.load for level in sweep.levels]
    is_log = _is_log(sweep)
    first, last = loads[0], loads[-1]
    reach = (last / first) ** 0.04 if is_log else (last - first) * 0.04
    ends = [math.log10(first / reach), math.log10(last * reach)] if is_log else [first - reach, last + reach]
    ticks = _ticks(loads, is_log)
    title = "offered rate [operations/s]" if sweep.is_open else sweep.unit
    return {
        "height": HEIGHT_PX,
        "showlegend": False,
        "hovermode": "closest",
        "margin": {"l": 58, "r": 14, "t": 10, "b": 46},
        "xaxis": {
            "title": {"text": title + (", log scale" if is_log else "")},
            "type": "log" if is_log else "linear",
            "range": ends,
            "tickvals": ticks,
            "ticktext": [_short(load) for load in ticks],
            "tickangle": 0,
            "fixedrange": True,
            "zeroline": False,
        },
        "yaxis": {"title": {"text": y_title}, "fixedrange": True, "zeroline": False},
    }


def _ticks(loads: Sequence[float], is_log: bool, most: int = 9) -> list[float]:
    """Levels labelled on the axis: from the top down, each at least a label's width from the previous one."""
    place = [math.log(load) if is_log else load for load in loads]
    width = (place[-1] - place[0]) / most
    kept = [len(loads) - 1]
    for i in range(len(loads) - 2, -1, -1):
        if place[kept[-1]] - place[i] >= width * 0.999:
            kept.append(i)
    return [loads[i] for i in reversed(kept)]


def _short(load: float) -> str:
    return f"{load / 1000:g}k" if load >= 10_000 and load % 100 == 0 else f"{load:,.6g}"


def _curve(x: Sequence[float], y: Sequence[float], name: str, colour: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": charts.numbers(x), "y": charts.numbers(y),
        "line": {"color": colour, "width": 1.8, "dash": dash}, "hoverinfo": "skip",
    }  # fmt: skip


def _marks(
    points: Sequence[tuple[float, float]], name: str, colour: str, symbol: str, hint: str
) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "name": name,
        "x": charts.numbers(x for x, _ in points), "y": charts.numbers(y for _, y in points),
        "marker": {"color": colour, "symbol": symbol, "size": 6},
        "hovertemplate": Markup("{}: {}<extra></extra>").format(name, hint),
    }  # fmt: skip


def _line(
    levels: Sequence[Level], found: Sequence[Interval], colour: str, symbol: str, hints: Sequence[str]
) -> dict[str, Any]:
    # A bar over orders of magnitude would be one more line across the chart without information.
    telling = [i if is_telling(i) else Interval(i.estimate, None, None) for i in found]
    return {
        "type": "scatter", "mode": "lines+markers",
        "x": charts.numbers(level.load for level in levels), "y": charts.numbers(i.estimate for i in found),
        "line": {"color": colour.replace("}", "/0.5}"), "width": 1.4},
        "marker": {"color": colour, "symbol": symbol, "size": 8},
        "error_y": charts.errors(telling, colour, 1.3),
        "customdata": list(hints), "hovertemplate": charts.HOVER,
    }  # fmt: skip


def _knee(sweep: Sweep) -> list[dict[str, Any]]:
    """The range of the knee as a band, its estimate as a line."""
    knee = sweep.knee
    if knee is None or knee.is_top:
        return []
    line = {"type": "line", "x0": knee.load, "x1": knee.load, "y0": 0, "y1": 1, "yref": "paper",
            "line": {"color": "@{muted}", "width": 1.2, "dash": "dot"}}  # fmt: skip
    if knee.low is None or knee.high is None or knee.low == knee.high:
        return [line]
    band = {"type": "rect", "x0": knee.low, "x1": knee.high, "y0": 0, "y1": 1, "yref": "paper",
            "fillcolor": "@{noise/0.2}", "line": {"width": 0}, "layer": "below"}  # fmt: skip
    return [band, line]


def _limit(limit_ms: float) -> dict[str, Any]:
    return {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": limit_ms, "y1": limit_ms,
            "line": {"color": "@{worse}", "width": 1.4, "dash": "dash"}}  # fmt: skip


def _room(traces: Sequence[Mapping[str, Any]], limit_ms: float, side: int) -> float:
    """How far every curve is from a limit's line over the outer third of a side, as a log ratio.

    ``side`` is 0 for left, 1 for right.
    """
    found = []
    for trace in traces:
        values = trace["y"]
        third = math.ceil(len(values) / 3)
        found += values[-third:] if side else values[:third]
    return min((abs(math.log(value / limit_ms)) for value in found), default=0.0)


def _limit_name(objective: str, limit_ms: float, *, is_left: bool) -> dict[str, Any]:
    return {
        "text": objective, "x": 0 if is_left else 1, "xref": "paper",
        "xanchor": "left" if is_left else "right",
        "y": math.log10(limit_ms), "yanchor": "bottom", "showarrow": False,
        "font": {"size": 11.5, "color": "@{worse}"},
    }  # fmt: skip
