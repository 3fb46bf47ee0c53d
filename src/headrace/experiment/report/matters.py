"""Which factors matter in an experiment with several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.experiment.report.effects import figures
from headrace.experiment.report.effects import words as effects
from headrace.experiment.report.effects.words import error_words, sentences, strata_words
from headrace.experiment.report.view import View
from headrace.experiment.stats.factors import Study
from headrace.experiment.stats.result import Analysis
from headrace.experiment.stats.trials import THROUGHPUT
from headrace.show.parts import (
    Box,
    Gap,
    Heading,
    Note,
    Part,
    Row,
    Section,
    Sentence,
    Sentences,
    Switch,
    Table,
    When,
)

#: Missing treatments named in a line.
MOST_NAMED = 6

SEE = (
    "Each factor separately and in pairs, averaged over all treatments of a condition: an effect is a ratio "
    "that uses every trial. The bars show how much of the variation a factor explains; if the lines of two "
    "factors are not parallel, the right level of one depends on the other."
)


def section(view: View) -> Section:
    """Empty for an experiment with one factor."""
    studies = view.analysis.studies
    return Section(
        "matters",
        "What matters",
        "What matters?",
        lambda: _parts(view.analysis),
        SEE,
        list(_brief(view.analysis)),
        # Same format as ``headrace import --json``, plus the condition.
        {"factors": [{**effects.to_json(study), "notes": notes(study)} for study in studies]},
    )


def unanswered(analysis: Analysis) -> list[str]:
    """Why some studies were not possible."""
    there = {(s.condition, s.response) for s in analysis.studies}
    return [
        f"No effects on p99{f' at {condition}' if condition else ''}: a trial had too few operations to "
        "state it."
        for condition, response in sorted(there)
        if response == THROUGHPUT and (condition, "p99_ms") not in there
    ]


def notes(study: Study) -> list[str]:
    """What the intervals are based on, and what is missing."""
    found = [error_words(study.effects), *strata_words(study.effects)]
    found += [
        f"An effect beyond {100 * (limit - 1):.2g}% either way is significant (Lenth's simultaneous margin)."
        for limit in effects.limits(study)
    ]
    if study.effects.missing and study.aliasing:
        found.append("Because treatments are missing, more is confounded than the design states.")
    if missing := [study.names.get(tuple(c.values()), " ".join(c.values())) for c in study.effects.missing]:
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        have = "treatment has" if len(missing) == 1 else "treatments have"
        found.append(f"{len(missing)} {have} no valid trial yet: {', '.join(missing[:MOST_NAMED])}{more}.")
    return found


def _brief(analysis: Analysis) -> Iterator[Part]:
    """Sentences and terms for throughput; only sentences for other responses."""
    for study in analysis.studies:
        yield Gap()
        yield Heading(f"What matters for {study.title}")
        yield Sentences(sentences(study))
        if study.response == THROUGHPUT:
            yield Gap()
            yield effects.terms_table(study.effects)
            said = (*notes(study), *effects.confounded(study, is_sure=True))
            yield from (Sentence(line, "aside") for line in said)
    yield from (Sentence(line, "aside") for line in unanswered(analysis))
    if analysis.studies:
        yield Gap()


def _parts(analysis: Analysis) -> Iterator[Part]:
    """One study at a time, chosen by its title."""
    titles = [study.title for study in analysis.studies]
    if len(titles) > 1:
        yield Box("controls", [Switch("matters", "Show", titles)])
    for i, study in enumerate(analysis.studies):
        shown = list(_study(study, unanswered(analysis) if i == 0 else []))
        yield When("matters", study.title, shown, is_hidden=i > 0)


def _study(study: Study, more: Sequence[str]) -> Iterator[Part]:
    yield Sentences(sentences(study))
    charts = [figures.shares(study)]
    if study.aliasing and study.effects.contrasts:
        charts.append(figures.pareto(study))
    if noise := figures.noise(study):
        charts.append(noise)
    pairs = list(figures.interactions(study))
    if len(charts) == len(pairs) == 1:
        charts, pairs = [*charts, *pairs], []
    # Two per row are wide enough to read.
    for i in range(0, len(charts), 2):
        yield Row(charts[i : i + 2])
    if pairs:
        yield Row(pairs)
    yield from (Note(line) for line in (*notes(study), *more))
    if confounded := effects.confounded(study):
        lines = [(line,) for line in confounded]
        yield Table((("confounding", "wrap"),), lines, "Confounded", is_folded=True)
    yield figures.terms(study)
