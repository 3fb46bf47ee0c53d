"""An analysis of effects in sentences: which factors matter, the ranks, and what cannot be claimed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from headrace.base.counted import counted
from headrace.experiment.stats import choice, matters
from headrace.experiment.stats.aliasing import Aliasing
from headrace.experiment.stats.claims import WITH, WITHOUT
from headrace.experiment.stats.effects import Conditional, Effects, Term
from headrace.experiment.stats.factors import Study
from headrace.show import text
from headrace.show.parts import Cell, Cells, Column, Gap, Part, Sentence, Sentences, Table

#: A term that explains less of the variation gets no sentence.
MIN_SHARE = 0.05

#: An interaction is reported if a factor's spread differs between the levels of another by more than this ratio.
MIN_DIFFERENCE = 1.25

#: Maximum pairs named in one line about confounding.
MAX_ALIASES = 4

#: Maximum runs named that do not fit the others.
MAX_MISFITS = 4

#: A weight this close to 1 counts as 1: the two are the same column.
WHOLE = 1e-6

#: Ranks shown in a terminal before the rest is summarised.
SHOWN_RANKS = 12


def sentences(study: Study) -> list[str]:
    """What matters, what depends on what, which cells collapsed, and which levels are safe to choose."""
    # Where an effect is proven to depend on another factor, its average is of no level that is there.
    depends = any(
        len(each.term) > 1 and each.p_holm is not None and each.p_holm < study.alpha
        for each in study.effects.terms
    )
    first = [*_dependences(study), *_main(study)] if depends else [*_main(study), *_dependences(study)]
    found = [*_excluded(study), *first, *_groups(study), *_levels(study)]
    return [
        *(found or [f"No factor makes a notable difference to {study.response}."]),
        *_misfits(study),
        *_unknown(study),
        *aliased(study),
    ]


def _misfits(study: Study) -> Iterator[str]:
    """Runs that do not fit: where they are, so that somebody can look at what happened."""
    if not study.misfits:
        return
    of = counted(study.runs, "run")
    those = [
        f"{place} ({ratio:.2g} times the middle of its repeats)" for place, ratio in study.misfits.items()
    ]
    rest = f" and {len(those) - MAX_MISFITS} more" if len(those) > MAX_MISFITS else ""
    verb = "does not fit the others and decides" if len(those) == 1 else "do not fit the others and decide"
    yield f"{len(those)} of {of} {verb} nothing: {', '.join(those[:MAX_MISFITS])}{rest}."


def _excluded(study: Study) -> Iterator[str]:
    """Where nothing is proven: how large an effect can be at most."""
    effects = study.effects
    if not effects.terms or any(t.p_holm is None or t.p_holm < study.alpha for t in effects.terms):
        return
    most: dict[str, float] = {}
    for each in effects.levels:
        low, high = each.ratio.low, each.ratio.high
        if low is not None and high is not None and low > 0:
            most[each.factor] = max(most.get(each.factor, 1.0), high, 1 / low)
    sizes = [
        f"{100 * (ratio - 1):.2g}% by {factor}" if ratio < 2 else f"{ratio:.2g} times by {factor}"
        for factor, ratio in most.items()
        if ratio > 1
    ]
    excluded = f": a difference of more than {' or '.join(sizes)} is excluded" if sizes else ""
    yield f"No factor is proven to matter for {study.response}{excluded}."


def _unknown(study: Study) -> Iterator[str]:
    names = [f"{factor} {level}" for factor, level in study.effects.unknown]
    if names:
        yield f"Never varied independently of other factors, so not compared: {', '.join(names)}."


def aliased(study: Study) -> list[str]:
    """What the cells of a table cannot tell apart, and what the reader can do about it."""
    found = []
    for one in study.effects.same:
        others = " or ".join(_name(term) for term in one.others)
        if len(one.term) == 1:
            found.append(
                f"{_name(one.term)} goes with {others} in every row: what is said of {others} may be due to "
                f"{_name(one.term)}. Leave out --factor {others} to see it under the other name."
            )
        else:
            found.append(
                f"{_name(one.term)} cannot be told apart from {others}: what is said of {others} may be due to it."
            )
    return found


def confounded(study: Study, *, is_sure: bool = False) -> list[str]:
    """What each effect of a screening may really be; with ``is_sure`` only the significant ones."""
    if study.aliasing is None:
        return []
    sure = {t.term for t in study.effects.terms if t.p_holm is not None and t.p_holm < study.alpha}
    return alias_lines(study.aliasing, sure if is_sure else None)


def alias_lines(found: Aliasing, only: Collection[Term] | None = None) -> list[str]:
    """A line for each term that is confounded with a pair, in the order of the model, with its heaviest pairs."""
    lines = []
    for term in (t for t in found.terms if only is None or t in only):
        own = [a for a in found.aliases if a.term == term]
        if not own:
            continue
        shown = ", ".join(f"{_signed(a.weight)}{_name(a.other)}" for a in own[:MAX_ALIASES])
        more = f" and {len(own) - MAX_ALIASES} more pairs" if len(own) > MAX_ALIASES else ""
        lines.append(f"{_name(term)} is confounded with {shown}{more}")
    return lines


def _signed(weight: float) -> str:
    """How much of the other effect is in this one; empty if all of it is."""
    if abs(abs(weight) - 1) < WHOLE:
        return "" if weight > 0 else "-"
    return f"{weight:.2g} "


def _name(term: Term) -> str:
    return " x ".join(term)


def limits(study: Study) -> tuple[float, ...]:
    """The ratio beyond which a contrast is significant in a design without repeats (Lenth); else None."""
    effects = study.effects
    is_whole = len(effects.contrasts) == len(effects.terms)
    if effects.error != "none" or effects.strata or not is_whole:
        return ()
    margin = matters.lenth_margin([math.log(c.ratio.estimate) for c in effects.contrasts], study.alpha)
    return () if margin is None else (math.exp(margin),)


def error_words(effects: Effects) -> str:
    """What the intervals rest on."""
    if effects.has_own_variances:
        return (
            f"Repeats vary by {100 * (effects.deviation or 0):.2g}% on average. What varies more or does not fit "
            "tells less."
        )
    once = (
        "Each cell was measured once" if effects.is_single else "The repeats of a cell do not differ at all"
    )
    if effects.error == "repeats":
        return (
            f"The error is the spread of repeats within their cells: {100 * (effects.deviation or 0):.2g}%, "
            f"{effects.error_degrees} degrees of freedom."
        )
    if effects.error == "residual":
        return (
            "Each treatment was measured once, so the model's residuals are used as the error "
            f"({100 * (effects.deviation or 0):.2g}%, {effects.error_degrees} degrees of freedom). "
            "It includes interactions that are not in the model, which make it larger."
        )
    if effects.error == "interactions":
        return (
            f"{once}, so the error is unknown. Interactions of three or more factors replace it "
            f"({100 * (effects.deviation or 0):.2g}%, {effects.error_degrees} degrees of freedom): "
            "p values and intervals assume that there are none. If there are, a real effect can look like "
            "chance."
        )
    return f"{once}, so the error is unknown: these estimates have no intervals and no verdict."


def strata_words(effects: Effects) -> list[str]:
    """How the factors that are hard to change were tested."""
    found = []
    for stratum in effects.strata:
        factors = " and ".join(stratum.factors)
        if stratum.deviation is None:
            found.append(
                f"{factors} was set up once per level, so the variation between set-ups is unknown: its "
                "effects are estimates without intervals and without a verdict."
            )
        else:
            found.append(
                f"{factors} is hard to change: its effects are tested by how set-ups differ "
                f"({100 * stratum.deviation:.2g}%; degrees of freedom: {stratum.degrees}), not by how "
                "trials do."
            )
    return found


def _main(study: Study) -> Iterator[str]:
    for term in sorted(study.effects.terms, key=lambda t: -t.share):
        levels = [e for e in study.effects.levels if e.factor == term.term[0]]
        if len(term.term) > 1 or len(levels) < 2:
            continue
        # The ratios that are tested, where they are not those of the means.
        sizes = [e.ratio.estimate if study.effects.has_own_variances else e.mean for e in levels]
        ratio = max(sizes) / min(sizes)
        is_proven = term.p_holm is not None and term.p_holm < study.alpha
        # One run that does not fit can be most of the variation.
        if term.share < MIN_SHARE and not (is_proven and ratio > 1 + study.margin):
            continue
        much = f"{100 * term.share:.0f}%" if term.share >= MIN_SHARE else "little"
        order = sorted(range(len(levels)), key=lambda i: -sizes[i] if study.is_higher_better else sizes[i])
        best, worst = levels[order[0]], levels[order[-1]]
        yield (
            f"{term.name} explains {much} of the variation of {study.response}: "
            f"{_it(best.level)} is {ratio:.2f} times as good as {_it(worst.level)} "
            f"on average{_certainty(study, term.p_holm)}."
        )


#: The levels of a ladder's parts.
_PARTS = (WITH, WITHOUT)


def _it(level: str) -> str:
    return f"{level} it" if level in _PARTS else level


def _cell(study: Study, factors: Sequence[str], cell: choice.Cell) -> str:
    """The name of a cell of ``factors``, which may lack one of the study's."""
    if not any(level in _PARTS for level in cell):
        return study.name(cell)
    pairs = zip(factors, cell, strict=True)
    return " ".join(f"{level} {name}" if level in _PARTS else level for name, level in pairs)


def _certainty(study: Study, p: float | None) -> str:
    if p is None:
        return ""
    if p < study.alpha:
        return f" (p = {p:.2g})" if p else " (p < 1e-300)"
    return f" (not significant: p = {p:.2g})"


def _dependences(study: Study) -> Iterator[str]:
    """A factor that matters at one level of another factor but not at the next, which a main effect hides."""
    pairs: dict[tuple[str, str], list[Conditional]] = {}
    for conditional in study.effects.conditionals:
        pairs.setdefault((conditional.factor, conditional.by), []).append(conditional)
    shares = {frozenset(t.term): t for t in study.effects.terms if len(t.term) == 2}
    for (factor, by), own in sorted(pairs.items(), key=lambda item: -_difference(item[1])):
        term = shares[frozenset((factor, by))]
        if _difference(own) < MIN_DIFFERENCE or term.share < MIN_SHARE:
            continue
        high, low = max(own, key=lambda c: c.spread), min(own, key=lambda c: c.spread)
        yield (
            f"The effect of {factor} on {study.response} depends on {by}: the best-to-worst ratio is "
            f"{high.spread:.2f} at {high.at}, {low.spread:.2f} at {low.at}{_certainty(study, term.p_holm)}."
        )


def _difference(own: Sequence[Conditional]) -> float:
    spreads = [c.spread for c in own]
    return max(spreads) / min(spreads)


def _groups(study: Study) -> Iterator[str]:
    found = choice.groups(study.cells, is_higher_better=study.is_higher_better)
    usual = max(found, key=lambda group: len(group.cells))
    if len(usual.cells) == 1:
        return  # each is by itself: none is apart from the rest
    for group in found:
        if group is usual:
            continue
        names = ", ".join(study.name(c) for c in group.cells[:6])
        more = f" and {len(group.cells) - 6} more" if len(group.cells) > 6 else ""
        cells = f"{len(group.cells)} cells" if len(group.cells) > 1 else "A cell"
        what = (
            "collapsed" if group.is_collapsed else "are separate" if len(group.cells) > 1 else "is separate"
        )
        which = "Collapsed" if group.is_collapsed else "Separate"
        yield (
            f"{cells} {what}, at {_range(group)}; {len(usual.cells)} have {_range(usual)}. "
            f"{which}: {names}{more}."
        )


def _range(group: choice.Group) -> str:
    low, high = sorted((group.best, group.worst))
    return text.count(low) if low == high else f"{text.count(low)} to {text.count(high)}"


def _levels(study: Study) -> Iterator[str]:
    """For factors with two levels: is the second at least as good as the first everywhere, and if not, where?"""
    for factor, levels in study.effects.factors.items():
        if len(levels) != 2:
            continue
        found = choice.level_pair(
            study.cells,
            study.factors,
            factor,
            levels[1],
            levels[0],
            margin=study.margin,
            is_higher_better=study.is_higher_better,
        )
        margin = f"{100 * study.margin:g}%"
        if not found.ratios:
            continue
        others = [name for name in study.factors if name != factor]
        if not others:  # the ratio of its two cells is said already
            continue
        what = f"{levels[1]} {factor} it" if levels[1] in _PARTS else f"{factor} {levels[1]}"
        what = what[0].upper() + what[1:] if levels[1] in _PARTS else what
        if found.is_at_least_as_good:
            yield f"{what} measured at least as good as {levels[0]} in every cell, within {margin}."
        else:
            where = ", ".join(f"{_cell(study, others, c)} ({found.ratios[c]:.2f})" for c in found.behind)
            yield (
                f"{what} measured at least as good as {levels[0]} (within {margin}) in "
                f"{len(found.ratios) - len(found.behind)} of {counted(len(found.ratios), 'cell')}, "
                f"but not in: {where}."
            )


def to_json(study: Study) -> dict[str, Any]:
    """One study as plain values; a cell is an object that maps factors to levels."""
    effects = study.effects
    return {
        "response": study.response,
        "condition": study.condition,
        "is_higher_better": study.is_higher_better,
        "alpha": study.alpha,
        "margin": study.margin,
        "sentences": sentences(study),
        "error": {
            "kind": effects.error,
            "degrees": effects.error_degrees,
            "deviation": effects.deviation,
            "meaning": error_words(effects),
        },
        "strata": [asdict(s) for s in effects.strata],
        "contrasts": [asdict(c) for c in effects.contrasts],
        "chance_ratio": next(iter(limits(study)), None),
        "unknown": [list(pair) for pair in effects.unknown],
        "confounded": [*aliased(study), *confounded(study)],
        "observations": effects.observations,
        "terms": [{**asdict(t), "term": list(t.term)} for t in effects.terms],
        "misfits": dict(study.misfits),
        "levels": [asdict(level) for level in effects.levels],
        "conditionals": [{**asdict(c), "spread": c.spread} for c in effects.conditionals],
        "missing": [dict(cell) for cell in effects.missing],
        "ranks": [
            {"levels": dict(zip(study.factors, cell, strict=True)), "value": value}
            for cell, value in choice.ranked(study.cells, is_higher_better=study.is_higher_better)
        ],
    }


def brief(study: Study) -> list[Part]:
    """The sentences, the terms, and the first ranks."""
    effects = study.effects
    way = "more is better" if study.is_higher_better else "less is better"
    order = choice.ranked(study.cells, is_higher_better=study.is_higher_better)
    columns = [Column("rank", "n"), *(Column(f) for f in study.factors), Column(study.response, "n")]
    ranks = [
        [str(i), *cell, text.count(value)] for i, (cell, value) in enumerate(order[:SHOWN_RANKS], start=1)
    ]
    parts: list[Part] = [
        Sentence(f"{study.title} ({way}; {counted(effects.observations, 'observation')})", "strong"),
        Sentences(sentences(study)),
        Gap(),
        terms_table(effects),
        Gap(),
        Table(columns, ranks),
    ]
    if len(order) > SHOWN_RANKS:
        parts.append(Sentence(f"and {len(order) - SHOWN_RANKS} more; --json has all", "aside"))
    if effects.missing:
        parts.append(Sentence(f"{len(effects.missing)} cells were not measured", "attention"))
    said = (error_words(effects), *strata_words(effects))
    return [*parts, Gap(), *(Sentence(words, "aside") for words in said)]


def terms_table(effects: Effects) -> Table:
    """Every term with its share, largest first."""
    rows: list[Cells] = [
        [
            term.name,
            f"{100 * term.share:.1f}%",
            Cell("█" * round(30 * term.share) or "▏", style="cyan"),
            "–" if term.p_holm is None else f"{term.p_holm:.2g}",
        ]
        for term in sorted(effects.terms, key=lambda t: -t.share)
    ]
    return Table((("term", ""), ("of variation", "n"), ("", ""), ("p (adjusted)", "n")), rows)
