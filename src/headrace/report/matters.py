"""What matters in an experiment of several factors, beside its table of treatments: terminal, JSON, page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from headrace.analysis.factors import Study
from headrace.analysis.result import Analysis
from headrace.analysis.trials import THROUGHPUT
from headrace.report import charts, decision_charts, effects, text
from headrace.report.effects import error_words, sentences, strata_words

#: Terms that have a bar, and pairs that have a plot: the largest.
MOST_TERMS, MOST_PAIRS = 20, 4

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")

Add = Callable[[charts.Figure], dict[str, Any]]


def title(study: Study) -> str:
    """The response, and the condition it was measured in."""
    return f"{study.response} @ {study.condition}" if study.condition else study.response


def unanswered(analysis: Analysis) -> list[str]:
    """Studies that there could not be, in words."""
    there = {(s.condition, s.response) for s in analysis.studies}
    return [
        f"No effects on p99{f' at {condition}' if condition else ''}: a trial had too few operations to state it."
        for condition, response in sorted(there)
        if response == THROUGHPUT and (condition, "p99_ms") not in there
    ]


def notes(study: Study) -> list[str]:
    """What its intervals rest on, and what is left to know."""
    found = [error_words(study.effects), *strata_words(study.effects)]
    found += [
        f"An effect beyond {100 * (limit - 1):.2g}% either way is told from chance (Lenth's simultaneous margin)."
        for limit in effects.limits(study)
    ]
    if study.effects.missing and study.aliasing:
        found.append("With treatments missing, more is confounded than the design says.")
    if study.effects.missing:
        names = ", ".join(
            study.names.get(tuple(c.values()), " ".join(c.values())) for c in study.effects.missing[:6]
        )
        found.append(
            f"{len(study.effects.missing)} treatments have no trial yet, or none that counts: {names}."
        )
    return found


def terminal(analysis: Analysis) -> list[RenderableType]:
    """Sentences and terms of throughput; the other responses in sentences."""
    parts: list[RenderableType] = []
    for study in analysis.studies:
        parts += ["", Text(text.clean(f"What matters for {title(study)}"), style="bold underline")]
        parts += [Text(f"- {text.clean(line)}") for line in sentences(study)]
        if study.response == THROUGHPUT:
            parts += ["", effects.terms_table(study.effects)]
            said = (*notes(study), *effects.confounded(study, is_sure=True))
            parts += [Text(text.clean(line), style="dim") for line in said]
    parts += [Text(text.clean(line), style="dim") for line in unanswered(analysis)]
    return [*parts, ""] if parts else []


def to_json(analysis: Analysis) -> list[dict[str, Any]]:
    """The analysis of each condition and response: as ``headrace import --json``, with its condition."""
    return [
        {"condition": study.condition, **effects.to_json(study), "notes": notes(study)}
        for study in analysis.studies
    ]


def cards(analysis: Analysis, add: Add) -> list[dict[str, Any]]:
    """What the page shows, a card a study. ``add`` takes a figure and gives what refers to it."""
    return [
        {
            "title": title(study),
            "sentences": sentences(study),
            "shares": add(_shares(study)),
            "pareto": add(pareto(study)) if study.aliasing and study.effects.contrasts else None,
            "pairs": list(_pairs(study, add)),
            "notes": [*notes(study), *(unanswered(analysis) if i == 0 else [])],
            "confounded": effects.confounded(study),
            "terms": list(_terms(study)),
        }
        for i, study in enumerate(analysis.studies)
    ]


def _terms(study: Study) -> Iterator[dict[str, Any]]:
    for term in sorted(study.effects.terms, key=lambda t: -t.share):
        yield {
            "name": term.name,
            "share": f"{100 * term.share:.1f}%",
            "degrees": term.degrees,
            "error_degrees": term.error_degrees or "–",
            "p": "–" if term.p_holm is None else f"{term.p_holm:.2g}",
        }


def _shares(study: Study) -> charts.Figure:
    rows = []
    for term in sorted(study.effects.terms, key=lambda t: -t.share)[:MOST_TERMS]:
        is_sure = term.p_holm is not None and term.p_holm < study.alpha
        p = "" if term.p_holm is None else f"<br>p = {term.p_holm:.2g} (Holm)"
        hint = f"<b>{charts.label(term.name)}</b>: {100 * term.share:.1f}% of the variation{p}"
        colour = "@{accent}" if is_sure else "@{muted}"
        rows.append((term.name, 100 * term.share, f"{100 * term.share:.1f}%", colour, hint))
    return decision_charts.bars(rows, "share of the variation [%]")


def pareto(study: Study) -> charts.Figure:
    """The contrasts of a screening, the largest first, with their intervals or beside Lenth's margin: what sticks
    out is worth another experiment."""
    order = sorted(study.effects.contrasts, key=lambda c: -abs(math.log(c.ratio.estimate)))[:MOST_TERMS]
    limit = next(iter(effects.limits(study)), None)
    rows = []
    for contrast in order:
        ratio = contrast.ratio
        is_sure = (ratio.low is not None and ratio.high is not None and not ratio.low <= 1 <= ratio.high) or (
            limit is not None and abs(math.log(ratio.estimate)) > math.log(limit)
        )
        name = " x ".join(contrast.term)
        if len(contrast.term) == 1:
            first, second = study.effects.factors[name]
            name = f"{name}: {second} / {first}"
        colour = "@{accent}" if is_sure else "@{muted}"
        hint = f"<b>{charts.label(name)}</b>: {text.ratio(ratio.estimate)} ({text.between(ratio)})"
        rows.append(charts.Row(name, ratio, colour, "circle" if is_sure else "circle-open", hint))
    floor = limit - 1 if limit else None
    span = charts.ratio_span([row.interval for row in rows if row.interval], floor)
    way = "higher is better" if study.is_higher_better else "lower is better"
    return charts.ratios(rows, f"second level over the first ({way})", floor, span)


def interaction(
    steps: Sequence[str],
    x_title: str,
    y_title: str,
    lines: Sequence[tuple[str, str, Sequence[float]]],
    axis: Mapping[str, Any],
) -> charts.Figure:
    """(name, colour, values) a line over the levels of the other factor; all plots of a card share ``axis``."""
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": list(range(len(steps))),
            "y": charts.numbers(values),
            "line": {"color": colour, "width": 2},
            "marker": {"color": colour, "size": 8, "symbol": _SYMBOLS[i % len(_SYMBOLS)]},
            "customdata": [
                f"{charts.label(name)}, {charts.label(step)}: {text.count(value)}"
                for step, value in zip(steps, values, strict=True)
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
        for i, (name, colour, values) in enumerate(lines)
    ]
    x_axis = {
        "title": {"text": charts.label(x_title)},
        "tickvals": list(range(len(steps))),
        "ticktext": [charts.label(text.short(step, max(5, 44 // len(steps)))) for step in steps],
        "range": [-0.25, len(steps) - 0.75],
        "fixedrange": True,
        "zeroline": False,
    }
    title = {"text": charts.label(y_title)}
    layout = {
        "height": 270,
        "showlegend": False,
        "hovermode": "closest",
        "margin": {"l": 62, "r": 14, "t": 10, "b": 46},
        "xaxis": x_axis,
        "yaxis": {"title": title, "fixedrange": True, "zeroline": False, **axis},
    }
    return {"data": data, "layout": layout}


def _pairs(study: Study, add: Add) -> Iterator[dict[str, Any]]:
    """The largest interactions: the factor with more levels along the axis, the other as lines."""
    found = study.effects
    axis = decision_charts.value_axis([v for c in found.conditionals for v in c.means.values()])
    largest = sorted((t for t in found.terms if len(t.term) == 2), key=lambda t: -t.share)
    for term in largest[:MOST_PAIRS]:
        first, second = term.term
        along, by = (
            (first, second) if len(found.factors[first]) >= len(found.factors[second]) else (second, first)
        )
        own = [c for c in found.conditionals if (c.factor, c.by) == (along, by)]
        steps = list(found.factors[along])
        colours: Sequence[str] = [*charts.LINE_COLOURS, *["@{muted}"] * len(own)]
        lines = [(f"{by} {c.at}", colours[i], [c.means[s] for s in steps]) for i, c in enumerate(own)]
        if not lines:
            continue
        p = "" if term.p_holm is None else f", p = {term.p_holm:.2g}"
        yield {
            "title": f"{along} by {by}: {100 * term.share:.1f}% of the variation{p}",
            "legend": [{"name": name, "colour": colour, "dash": "solid"} for name, colour, _ in lines],
            **add(interaction(steps, along, study.response, lines, axis)),
        }
