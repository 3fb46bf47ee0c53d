"""What matters in an experiment of several factors, beside its table of treatments: terminal, JSON, page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from headrace.analysis.factors import Study
from headrace.analysis.result import Analysis
from headrace.analysis.trials import THROUGHPUT
from headrace.report import effect_parts, effects, text
from headrace.report.effects import error_words, sentences, strata_words
from headrace.report.parts import Note, Part, Row, Sentences, Table


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
        parts += ["", Text(text.clean(f"What matters for {study.title}"), style="bold underline")]
        parts += [Text(f"- {text.clean(line)}") for line in sentences(study)]
        if study.response == THROUGHPUT:
            parts += ["", effects.terms_table(study.effects)]
            said = (*notes(study), *effects.confounded(study, is_sure=True))
            parts += [Text(text.clean(line), style="dim") for line in said]
    parts += [Text(text.clean(line), style="dim") for line in unanswered(analysis)]
    return [*parts, ""] if parts else []


def to_json(analysis: Analysis) -> list[dict[str, Any]]:
    """The analysis of each condition and response: as ``headrace import --json``, with its condition."""
    return [{**effects.to_json(study), "notes": notes(study)} for study in analysis.studies]


def cards(analysis: Analysis) -> list[dict[str, Any]]:
    """What the page shows, a card a study: its title and its parts."""
    return [
        {
            "title": study.title,
            "parts": list(_parts(study, unanswered(analysis) if i == 0 else [])),
        }
        for i, study in enumerate(analysis.studies)
    ]


def _parts(study: Study, more: Sequence[str]) -> Iterator[Part]:
    yield Sentences(sentences(study))
    figures = [effect_parts.shares(study)]
    if study.aliasing and study.effects.contrasts:
        figures.append(effect_parts.pareto(study))
    if noise := effect_parts.noise(study):
        figures.append(noise)
    # Two in a line are wide enough to be read.
    for i in range(0, len(figures), 2):
        yield Row(figures[i : i + 2])
    if pairs := list(effect_parts.interactions(study)):
        yield Row(pairs)
    for line in (*notes(study), *more):
        yield Note(line)
    if confounded := effects.confounded(study):
        yield Table(
            (("what is confounded with what", "wrap"),), [(line,) for line in confounded], "Confounded", True
        )
    yield effect_parts.terms(study)
