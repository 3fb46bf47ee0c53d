"""Figures of an analysis of effects: shares, interactions, what stands out from the noise.

Shared by the pages of experiments and of imported tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from headrace.experiment.report.charts import decisions as decision_charts
from headrace.experiment.report.effects import words as effects
from headrace.experiment.stats.claims import PARTS, excludes_1
from headrace.experiment.stats.effects import Effects
from headrace.experiment.stats.factors import Study
from headrace.experiment.stats.halfnormal import HalfNormal, half_normal
from headrace.show import charts, text
from headrace.show.parts import Chart, Table

#: Maximum terms with a bar, and pairs of factors with a plot.
MOST_TERMS, MOST_PAIRS = 20, 6

#: Maximum labelled points of a half-normal plot: one per term.
LEAST_NAMES, MOST_NAMES = 3, 8


def forest(study: Study) -> Chart | None:
    """Each level relative to the first of its factor, over all treatments; None if no level has an interval."""
    rows = []
    for effect in study.effects.levels:
        first = study.effects.factors[effect.factor][0]
        if effect.level == first or effect.ratio.low is None:
            continue
        name = (
            effect.factor if {effect.level, first} == PARTS else f"{effect.factor} {effect.level} / {first}"
        )
        depends = any(c.factor == effect.factor and c.by for c in study.claims)
        is_better = (effect.ratio.estimate > 1) == study.is_higher_better
        if not excludes_1(effect.ratio):
            colour, symbol, said = "@{unsure}", "circle-open", "not decided"
        elif depends:
            colour, symbol, said = "@{muted}", "diamond-open", "an average: it depends on another factor"
        else:
            colour, symbol = ("@{better}", "circle") if is_better else ("@{worse}", "square")
            said = "better" if is_better else "worse"
        ratio = f"{text.ratio(effect.ratio.estimate)} ({text.between(effect.ratio)})"
        rows.append(charts.Row(name, effect.ratio, colour, symbol, charts.hint(name, ratio, said)))
    if not rows:
        return None
    span = charts.ratio_span([row.interval for row in rows if row.interval], None)
    way = "more is better" if study.is_higher_better else "less is better"
    return Chart(
        charts.ratios(rows, f"{study.response} relative to the first level ({way})", None, span),
        f"What each factor does to {study.title}",
        "Over all treatments: each trial speaks for each factor, so these are known best. Intervals hold jointly.",
    )


def shares(study: Study) -> Chart:
    """How much of the variation each term explains."""
    rows = []
    for term in sorted(study.effects.terms, key=lambda t: -t.share)[:MOST_TERMS]:
        is_sure = term.p_holm is not None and term.p_holm < study.alpha
        said = [f"{100 * term.share:.1f}% of the variation"]
        if term.p_holm is not None:
            said.append(f"p = {term.p_holm:.2g} (adjusted), {term.degrees} degrees of freedom")
        hint = charts.hint(term.name, *said)
        colour = "@{accent}" if is_sure else "@{muted}"
        rows.append((term.name, 100 * term.share, f"{100 * term.share:.1f}%", colour, hint))
    legend = [("significant", "@{accent}", "■"), ("not significant", "@{muted}", "■")]
    has_test = any(t.p_holm is not None for t in study.effects.terms)
    return Chart(
        decision_charts.bars(rows, "share of the variation [%]"),
        "Shares of the variation",
        legend=legend if has_test else [("no test is possible", "@{muted}", "■")],
    )


def terms(study: Study) -> Table:
    rows = [
        (
            term.name,
            f"{100 * term.share:.1f}%",
            str(term.degrees),
            str(term.error_degrees or "–"),
            "–" if term.p_holm is None else f"{term.p_holm:.2g}",
        )
        for term in sorted(study.effects.terms, key=lambda t: -t.share)
    ]
    columns = (
        ("term", ""),
        ("of variation", "n"),
        ("degrees", "n"),
        ("of the error", "n"),
        ("p (adjusted)", "n"),
    )
    return Table(columns, rows, "All terms", is_folded=True)


def noise(study: Study) -> Chart | None:
    """The half-normal plot, or bars if there are few effects; None if the noise is unknown, if each treatment has
    its own, or if the cells are so unbalanced that its points, each beyond those before it, would contradict the
    shares.
    """
    found = None if study.effects.has_own_variances else half_normal(study.effects, study.alpha)
    if found is None or not _agrees(study.effects):
        return None
    source = {
        "repeats": "The line is the noise of the repeats",
        "interactions": "The line is the noise, taken from the interactions of three and more factors",
        "residual": "The line is the noise, taken from the residuals of the model",
        "small effects": "The line is the noise, taken from the small effects (most are assumed to be zero)",
    }[found.source]
    if not found.has_line:
        return _pareto_of(found, source)
    seen: set[str] = set()
    named: set[int] = set()
    for i in reversed(range(len(found.points))):
        point = found.points[i]
        # If nothing exceeds the margin, label the largest.
        is_told = point.is_beyond or len(named) < LEAST_NAMES
        if is_told and point.name and point.name not in seen and len(named) < MOST_NAMES:
            seen.add(point.name)
            named.add(i)
    rows = [
        (p.expected, p.size, p.name if i in named else "", p.is_beyond, _hint(p.name, p.size))
        for i, p in enumerate(found.points)
    ]
    see = (
        f"{source}: effects of chance follow the line. Beyond the dashed line an effect is significant, for "
        "all points jointly. A factor with several levels has several points."
    )
    figure = decision_charts.half_normal(rows, found.margin)
    return Chart(figure, "What stands out from the noise?", see, _NOISE_LEGEND)


#: Points and shares agree to rounding errors in a balanced table; if a few trials are missing, to a few percent.
MOST_DISAGREEMENT = 0.05


def _agrees(found: Effects) -> bool:
    """Whether each term has the same part of the points' squares as of the shares."""
    squares = {t.term: math.fsum(s.size**2 for s in found.singles if s.term == t.term) for t in found.terms}
    shares = {t.term: t.share for t in found.terms if squares[t.term]}
    whole, total = math.fsum(squares.values()), math.fsum(shares.values())
    if not whole or not total:
        return True
    return all(abs(squares[t] / whole - share / total) <= MOST_DISAGREEMENT for t, share in shares.items())


_NOISE_LEGEND = (
    ("significant", "@{accent}", "●"),
    ("may be chance", "@{muted}", "○"),
    ("noise", "@{soft}", ""),
    ("95% of chance effects stay below", "@{worse}", "dash"),
)


def _hint(name: str, size: float) -> str:
    return charts.hint(name or "residual", f"{size:.2f}x the noise")


def _pareto_of(found: HalfNormal, source: str) -> Chart:
    rows = [
        (
            point.name or "left over",
            point.size,
            f"{point.size:.1f}",
            "@{accent}" if point.is_beyond else "@{muted}",
            _hint(point.name, point.size),
        )
        for point in reversed(found.points)
    ]
    top = max([found.margin * 1.1, *(p.size for p in found.points)])
    figure = decision_charts.bars(rows, "size of the effect [times the noise]", top)
    figure["layout"]["shapes"] = [
        charts.line_x(1.0, "@{soft}", "solid"),
        charts.line_x(found.margin, "@{worse}", "dash"),
    ]
    legend = [(name, colour, "■" if mark in "●○" and mark else mark) for name, colour, mark in _NOISE_LEGEND]
    return Chart(
        figure,
        "What stands out from the noise?",
        f"{source} (1). Beyond the dashed line an effect is significant, for all bars jointly.",
        legend,
    )


def pareto(study: Study) -> Chart:
    """The contrasts of a screening, largest first, with their intervals or Lenth's margin: effects that stand out
    are worth another experiment.
    """
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
        hint = charts.hint(name, f"{text.ratio(ratio.estimate)} ({text.between(ratio)})")
        rows.append(charts.Row(name, ratio, colour, "circle" if is_sure else "circle-open", hint))
    floor = limit - 1 if limit else None
    span = charts.ratio_span([row.interval for row in rows if row.interval], floor)
    way = "higher is better" if study.is_higher_better else "lower is better"
    return Chart(
        charts.ratios(rows, f"second level relative to the first ({way})", floor, span),
        "Contrasts, largest first",
    )


def interactions(study: Study) -> Iterator[Chart]:
    """The largest interactions: the factor with more levels along the axis, the other as lines."""
    found = study.effects
    axis = decision_charts.value_axis([v for c in found.conditionals for v in c.means.values()])
    pairs = sorted((t for t in found.terms if len(t.term) == 2), key=lambda t: -t.share)
    for term in pairs[:MOST_PAIRS]:
        first, second = term.term
        is_longer = len(found.factors[first]) >= len(found.factors[second])
        along, by = (first, second) if is_longer else (second, first)
        own = [c for c in found.conditionals if (c.factor, c.by) == (along, by)]
        if not own:
            continue
        steps = list(found.factors[along])
        colours: Sequence[str] = [*charts.LINE_COLOURS, *["@{muted}"] * len(own)]
        lines = [
            (f"{by} {c.at}", colours[i], [c.means.get(step, math.nan) for step in steps])
            for i, c in enumerate(own)
        ]
        p = "" if term.p_holm is None else f", p = {term.p_holm:.2g}"
        yield Chart(
            decision_charts.lines(steps, along, study.response, lines, axis),
            f"{along} by {by}",
            f"{100 * term.share:.1f}% of the variation{p}",
            [(name, colour, "") for name, colour, _ in lines],
        )
