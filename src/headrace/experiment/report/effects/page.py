"""The page of an analysis of effects: conclusions in sentences, and every number behind them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.base.counted import counted
from headrace.experiment.report.charts import decisions as decision_charts
from headrace.experiment.report.effects import choices
from headrace.experiment.report.effects import figures as effect_parts
from headrace.experiment.report.effects import words as effects
from headrace.experiment.stats import choice
from headrace.experiment.stats.decision import Decision
from headrace.experiment.stats.factors import Study
from headrace.show import charts, text
from headrace.show.parts import (
    Cell,
    Chart,
    Gap,
    Key,
    Note,
    Page,
    Part,
    Row,
    Section,
    Sentence,
    Sentences,
    Table,
    method,
)

#: Maximum cells in the chart of ranks; the table has more.
MOST_RANKS = 40


def page_of(
    studies: Sequence[Study], sources: Sequence[Path], decision: Decision, notes: Sequence[str] = ()
) -> Page:
    """The report of one table's responses; ``notes`` are what its reader assumed or left out."""
    names = ", ".join(path.name for path in sources[:3])
    more = f" and {len(sources) - 3} more" if len(sources) > 3 else ""
    sections = [s for i, study in enumerate(studies) for s in _sections(study, i, len(studies) > 1)]
    return Page(
        eyebrow="headrace import",
        title=names + more,
        lead="Results measured elsewhere: which factors matter, and how certain that is.",
        verdicts=_verdicts(studies, decision),
        keys=list(_keys(studies, decision)),
        cautions=[
            *notes,
            *(
                f"{counted(len(study.effects.missing), 'cell')} of {study.title} were not measured"
                for study in studies
                if study.effects.missing
            ),
        ],
        sections=[
            _choice(decision),
            *sections,
            _method(),
            Section(
                "brief",
                "",
                "",
                brief=[*(Sentence(note, "attention") for note in notes), *choices.brief(decision)],
            ),
        ],
        is_verdict_brief=False,
        footer="headrace import --json prints the numbers",
        data={
            "notes": list(notes),
            "studies": [effects.to_json(study) for study in studies],
            "choice": choices.to_json(decision),
        },
    )


def _verdicts(studies: Sequence[Study], decision: Decision) -> list[str]:
    """Which one to choose, and what matters most for the first responses."""
    said = [effects.sentences(study)[0] for study in studies]
    return [*choices.sentences(decision)[:1], *said[:2]] if decision.bests else said[:3]


def _choice(decision: Decision) -> Section:
    see = (
        "The best for each response, the ones not beaten in two responses together, and the one that loses "
        "least in its worst case."
    )
    parts = choices.parts(decision)
    return Section("choice", "Choice", "Which one should you choose?", parts, see)


def _keys(studies: Sequence[Study], decision: Decision) -> Iterator[Key]:
    for name, kept in choices.first_words(decision):
        yield Key("Best overall", text.short(name), kept, "better")
    for study in studies[:4]:
        (cell, value), *_ = choice.ranked(study.cells, is_higher_better=study.is_higher_better)
        best = max(study.effects.terms, key=lambda t: t.share)
        yield Key(f"Best {study.title}", text.count(value), text.short(study.name(cell), 60), "better")
        yield Key(
            f"What matters most for {study.title}",
            text.short(best.name),
            f"{100 * best.share:.0f}% of the variation",
        )


def _sections(study: Study, i: int, is_many: bool) -> Iterator[Section]:
    way = "more is better" if study.is_higher_better else "less is better"
    kind = study.effects.error
    noise = effect_parts.noise(study)
    said: list[Part] = [
        Sentences(effects.sentences(study)),
        Note(effects.error_words(study.effects), is_attention=kind != "repeats"),
        Row([effect_parts.shares(study), *([noise] if noise else [])]),
        effect_parts.terms(study),
    ]
    yield Section(
        f"matters{i}",
        study.title if is_many else "What matters",
        f"What matters for {study.title}?",
        said,
        see=f"{counted(study.effects.observations, 'observation')}; {way}.",
        brief=[*effects.brief(study), Gap()],
    )
    if plots := list(effect_parts.interactions(study)):
        see = (
            "Each line is a level of the second factor. If lines are parallel, the factors are independent; "
            "if they cross or diverge, the right level of one depends on the other."
        )
        yield Section(
            f"depends{i}", "" if is_many else "Interactions", "What depends on what?", [Row(plots)], see=see
        )
    yield Section(
        f"ranks{i}", "" if is_many else "Ranks", f"Which is best for {study.title}?", list(_ranks(study))
    )
    yield Section(
        f"levels{i}", "" if is_many else "Levels", "Levels of each factor", [_levels(study)], see=_LEVELS
    )


_LEVELS = (
    "A level's mean gives every combination of the other factors the same weight, measured or not; the ratio "
    "is to the factor's first level. If an interaction is large, such a mean may describe no real cell."
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
        hint = charts.hint(study.name(cell), text.count(value))
        rows.append((study.name(cell), value, text.count(value), colour, hint))
    legend = [("the largest group", "@{accent}", "■")]
    legend += (
        [("separate group", "@{line6}", "■")]
        if any(g is not usual and not g.is_collapsed for g in groups)
        else []
    )
    legend += [("collapsed", "@{worse}", "■")] if any(g.is_collapsed for g in groups) else []
    see = (
        "A rank can be luck: measure the first few again in blocks, for example in a race, before you decide."
    )
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
    yield Table(columns, listed, f"All {counted(len(order), 'cell')}", is_folded=True)
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
    return Table(columns, rows, "Separate groups")


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
            "is how much of the variation in the table a factor explains, or two factors together beyond "
            "their separate effects. It says nothing about levels that were not tried.",
        ),
        (
            "p (adjusted)",
            "is how often chance would show at least as much if there were no effect, adjusted for the number "
            "of terms. It is only as good as the error estimate named above.",
        ),
        (
            "One number per cell",
            "shows no noise. Interactions of three or more factors then replace it, if there are any. If you "
            "doubt that, measure some cells again.",
        ),
        (
            "A group is separate",
            f"if two neighbours in rank differ by more than {choice.GAP:g} times. A group below "
            f"{100 * choice.COLLAPSED:.0f}% of the largest one has collapsed.",
        ),
        (
            "Sources:",
            "Box, Hunter and Hunter 2005, Statistics for Experimenters, ch. 5 and 6; Langsrud 2003, "
            "Statistics and Computing 13; Holm 1979, Scand. J. Statist. 6.",
        ),
    )
    return Section("method", "Method", "How to read it", [method(lines)])
