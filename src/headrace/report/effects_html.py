"""The page of an analysis of effects: what matters in sentences, and each of its numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.analysis import choice
from headrace.analysis.factors import Study
from headrace.report import charts, decision_charts, effects, text
from headrace.report.page import (
    Cell,
    Chart,
    Key,
    Method,
    Note,
    Page,
    Part,
    Row,
    Section,
    Sentences,
    Table,
    render,
)

#: Pairs of factors that have a plot: the largest interactions.
MOST_PAIRS = 6

#: Cells in the chart of ranks; the table has more.
MOST_RANKS = 40


def page_of(studies: Sequence[Study], sources: Sequence[Path]) -> str:
    """The page of one table's responses, as text."""
    names = ", ".join(path.name for path in sources[:3])
    more = f" and {len(sources) - 3} more" if len(sources) > 3 else ""
    sections = [s for i, study in enumerate(studies) for s in _sections(study, i, len(studies) > 1)]
    return render(
        Page(
            eyebrow="headrace import",
            title=names + more,
            lead="Results that were measured elsewhere: what matters in them, and how sure one can be.",
            verdicts=[effects.sentences(study)[0] for study in studies],
            keys=list(_keys(studies)),
            cautions=[
                f"{len(study.effects.missing)} cells of {study.response} were not measured"
                for study in studies
                if study.effects.missing
            ],
            sections=[*sections, _method()],
            footer="headrace import --json prints the numbers",
        )
    )


def _keys(studies: Sequence[Study]) -> Iterator[Key]:
    for study in studies[:4]:
        (cell, value), *_ = choice.ranked(study.cells, is_higher_better=study.is_higher_better)
        best = max(study.effects.terms, key=lambda t: t.share)
        yield Key(f"Best {study.response}", text.count(value), text.short(study.name(cell), 60), "better")
        yield Key(
            f"What matters most for {study.response}",
            text.short(best.name, 40),
            f"{100 * best.share:.0f}% of the variation",
        )


def _sections(study: Study, i: int, is_many: bool) -> Iterator[Section]:
    way = "more is better" if study.is_higher_better else "less is better"
    kind = study.effects.error
    said: list[Part] = [
        Sentences(effects.sentences(study)),
        Note(effects.error_words(study.effects), is_attention=kind != "repeats"),
        _shares(study),
        _terms(study),
    ]
    yield Section(
        f"matters{i}",
        f"{study.response}" if is_many else "What matters",
        f"What matters for {study.response}?",
        said,
        see=f"{study.effects.observations} observations; {way}.",
    )
    if plots := list(_plots(study)):
        see = (
            "Each line is a level of the second factor. Where lines run parallel, the two factors do not care "
            "about each other; where they cross or part, the right level of one depends on the other."
        )
        yield Section(f"depends{i}", "Interactions", "What depends on what?", [Row(plots)], see=see)
    yield Section(f"ranks{i}", "Ranks", f"Which is best for {study.response}?", list(_ranks(study)))
    yield Section(f"levels{i}", "Levels", "Levels of each factor", [_levels(study)], see=_LEVELS)


_LEVELS = (
    "A level's mean gives every combination of the other factors the same weight, measured or not; the ratio is "
    "to the factor's first level. Where an interaction is large, such a mean is no cell's truth."
)


def _shares(study: Study) -> Chart:
    terms = sorted(study.effects.terms, key=lambda t: -t.share)[:20]
    rows = []
    for term in terms:
        is_sure = term.p_holm is not None and term.p_holm < study.alpha
        colour = "@{accent}" if is_sure else "@{muted}"
        p = (
            ""
            if term.p_holm is None
            else f"<br>p = {term.p_holm:.2g} (Holm), {term.degrees} degrees of freedom"
        )
        hint = f"<b>{charts.label(term.name)}</b>: {100 * term.share:.1f}% of the variation{p}"
        rows.append((term.name, 100 * term.share, f"{100 * term.share:.1f}%", colour, hint))
    legend = [("told from chance", "@{accent}", "■"), ("not told from chance", "@{muted}", "■")]
    return Chart(
        decision_charts.bars(rows, "share of the variation [%]"),
        "Shares of the variation",
        legend=legend if study.effects.error != "none" else [("no test is possible", "@{muted}", "■")],
    )


def _terms(study: Study) -> Table:
    rows = []
    for term in sorted(study.effects.terms, key=lambda t: -t.share):
        p = "–" if term.p_holm is None else f"{term.p_holm:.2g}"
        verdict = Cell("–")
        if term.p_holm is not None:
            is_sure = term.p_holm < study.alpha
            verdict = Cell("matters", "better") if is_sure else Cell("not told from chance", "unsure")
        rows.append((term.name, f"{100 * term.share:.1f}%", str(term.degrees), p, verdict))
    columns = (("term", ""), ("of variation", "n"), ("degrees", "n"), ("p (Holm)", "n"), ("", ""))
    return Table(columns, rows, "All terms", is_folded=True)


def _plots(study: Study) -> Iterator[Chart]:
    found = study.effects
    pairs = [t for t in found.terms if len(t.term) == 2]
    axis = decision_charts.value_axis([v for c in found.conditionals for v in c.means.values()])
    for term in sorted(pairs, key=lambda t: -t.share)[:MOST_PAIRS]:
        first, second = term.term
        # The factor with more levels along the axis, the other as lines.
        along, by = (
            (first, second) if len(found.factors[first]) >= len(found.factors[second]) else (second, first)
        )
        own = [c for c in found.conditionals if (c.factor, c.by) == (along, by)]
        if not own:
            continue
        steps = list(found.factors[along])
        colours = [*charts.LINE_COLOURS, *["@{muted}"] * len(own)]
        shown = [
            (f"{by} {c.at}", colours[i], [c.means.get(step, float("nan")) for step in steps])
            for i, c in enumerate(own)
        ]
        p = "" if term.p_holm is None else f", p = {term.p_holm:.2g}"
        yield Chart(
            decision_charts.lines(steps, along, "", shown, axis),
            f"{along} by {by}",
            f"{100 * term.share:.1f}% of the variation{p}",
            [(name, colour, "") for name, colour, _ in shown],
        )


def _ranks(study: Study) -> Iterator[Part]:
    order = choice.ranked(study.cells, is_higher_better=study.is_higher_better)
    groups = choice.groups(study.cells, is_higher_better=study.is_higher_better)
    usual = max(groups, key=lambda group: len(group.cells))
    place = {cell: i for i, group in enumerate(groups) for cell in group.cells}
    rows = []
    for cell, value in order[:MOST_RANKS]:
        group = groups[place[cell]]
        colour = "@{worse}" if group.is_collapsed else "@{accent}" if group is usual else "@{line6}"
        hint = f"<b>{charts.label(study.name(cell))}</b>: {text.count(value)}"
        rows.append((study.name(cell), value, text.count(value), colour, hint))
    legend = [("the largest group", "@{accent}", "■")]
    legend += (
        [("lies apart", "@{line6}", "■")]
        if any(g is not usual and not g.is_collapsed for g in groups)
        else []
    )
    legend += [("collapsed", "@{worse}", "■")] if any(g.is_collapsed for g in groups) else []
    see = "A rank can be luck: measure the first few again in blocks before you decide. A race does."
    yield Chart(decision_charts.bars(rows, study.response), see=see, legend=legend)
    listed: list[Sequence[str | Cell]] = [
        (
            str(i),
            *cell,
            text.count(value),
            Cell(_group_name(groups, place[cell], usual), _group_chip(groups, place[cell])),
        )
        for i, (cell, value) in enumerate(order, start=1)
    ]
    columns = [("rank", "n"), *((f, "") for f in study.factors), (study.response, "n"), ("group", "")]
    yield Table(columns, listed, f"All {len(order)} cells", is_folded=True)
    if len(groups) > 1:
        yield _group_table(study, groups, usual)


def _group_name(groups: Sequence[choice.Group], i: int, usual: choice.Group) -> str:
    if groups[i].is_collapsed:
        return "collapsed"
    return "most" if groups[i] is usual else "apart"


def _group_chip(groups: Sequence[choice.Group], i: int) -> str:
    return "worse" if groups[i].is_collapsed else "equivalent"


def _group_table(study: Study, groups: Sequence[choice.Group], usual: choice.Group) -> Table:
    rows = []
    for i, group in enumerate(groups):
        names = ", ".join(study.name(c) for c in group.cells[:12])
        more = f" and {len(group.cells) - 12} more" if len(group.cells) > 12 else ""
        low, high = sorted((group.best, group.worst))
        spread = text.count(low) if low == high else f"{text.count(low)} to {text.count(high)}"
        state = Cell(_group_name(groups, i, usual), _group_chip(groups, i))
        rows.append((state, str(len(group.cells)), spread, names + more))
    columns = (("group", ""), ("cells", "n"), (study.response, "n"), ("which", "wrap"))
    return Table(columns, rows, "Groups that lie apart")


def _levels(study: Study) -> Table:
    rows: list[Sequence[str | Cell]] = []
    marked = set()
    for factor, own in itertools.groupby(study.effects.levels, key=lambda level: level.factor):
        for i, level in enumerate(own):
            if i == 0:
                marked.add(len(rows))
            rows.append(
                (
                    factor,
                    level.level,
                    text.count(level.mean),
                    text.ratio(level.ratio.estimate),
                    text.between(level.ratio) if i else "first level",
                )
            )
    columns = (("factor", ""), ("level", ""), (study.response, "n"), ("/ first", "n"), ("interval", "n"))
    return Table(columns, rows, marked=frozenset(marked))


def _method() -> Section:
    lines = (
        (
            "A share",
            "says how much of what varies in the table goes with a factor, or with two of them together "
            "beyond what each does alone. It says nothing of other levels than those that were tried.",
        ),
        (
            "p (Holm)",
            "is how often chance alone would show as much, were there nothing, adjusted for the number of "
            "terms that were looked at. It rests on the error named above, and is as good as that is.",
        ),
        (
            "One number a cell",
            "shows no noise. Interactions of three and more factors then stand in for it, if there "
            "are any: who doubts that measures some cells again.",
        ),
        (
            "A group lies apart",
            f"where two neighbours in rank differ by more than {choice.GAP:g} times. A group below "
            f"{100 * choice.COLLAPSED:.0f}% of the largest one has collapsed: it broke down.",
        ),
        (
            "Sources:",
            "Box, Hunter and Hunter 2005, Statistics for Experimenters, ch. 5 and 6; Langsrud 2003, Statistics "
            "and Computing 13; Holm 1979, Scand. J. Statist. 6.",
        ),
    )
    return Section("method", "Method", "How to read it", [Method(lines)])
