"""Every trial of a sweep."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from headrace.base.counted import counted
from headrace.experiment.report import tables, trials
from headrace.experiment.report.sweep.view import SweepView
from headrace.experiment.report.sweep.words import DRIVER_SATURATED
from headrace.experiment.stats.sweep import SEARCH
from headrace.experiment.stats.sweep_result import some
from headrace.experiment.store import TrialRecord
from headrace.show.parts import Cells, Column, Heading, Part, Section, Sentence


def section(view: SweepView) -> Section:
    return trials.section_of(view, _parts, _cautions, _json)


def _json(view: SweepView, record: TrialRecord) -> dict[str, object]:
    found = {name: value for name, value in trials.trial_json(view, record).items() if name != "role"}
    excluded = "the search" if record.block == SEARCH else view.sweep.excluded.get(record.number)
    return found | {"excluded": excluded}


def _parts(view: SweepView) -> Iterator[Part]:
    yield from trials.warnings(tables.warnings(view.records))
    if chart := trials.drift_chart(view):
        search = " Before the first dotted line: the search." if view.has_search_trials else ""
        yield Heading("Did the machine drift?")
        yield Sentence(
            "Each trial relative to the mean of its level. A slope or a step over many trials is drift; the "
            f"random order of the passes keeps it from looking like an effect of load.{search}"
        )
        yield chart
    yield Heading("Order of execution")
    yield trials.order(view, lambda block: "search" if block == SEARCH else f"pass {block}")
    columns = (
        Column("trial", "n"), Column("pass"), Column("level"), Column("state"), Column("operations/s", "n"),
        Column("p99 [ms]", "n"), Column("started (UTC)", "n"), Column("took", "n"),
        Column("why not analysed", "wrap"),
    )  # fmt: skip
    rows: list[Cells] = []
    for record in view.records:
        block = "search" if record.block == SEARCH else str(record.block)
        why = record.reason or view.analysis.excluded.get(record.number, "")
        why = why or ("the search" if record.block == SEARCH else "")
        rows.append([str(record.number), block, record.treatment, *trials.measured(view, record), why])
    yield trials.all_trials(view, columns, rows)


def _cautions(view: SweepView) -> Iterator[str]:
    """Warnings to read before trusting the result."""
    most = trials.MAX_WARNINGS
    if view.sweep.driver_saturated:
        yield DRIVER_SATURATED
    excluded = alike((why, [number]) for number, why in view.sweep.excluded.items())
    yield from (f"not analysed: {line}" for line in some(excluded, most))
    if excluded:
        yield "--retry measures again what is not analysed"
    yield from view.cautions
    warnings = alike(tables.warnings(view.passes))
    yield from warnings[:most]
    if len(warnings) > most:
        yield f"{counted(len(warnings) - most, 'more warning')}: see report.html"


def alike(found: Iterable[tuple[str, Sequence[int]]]) -> list[str]:
    """One line for all warnings that differ only in numbers; the page has each trial's own."""
    kinds: dict[str, list[tuple[str, Sequence[int]]]] = {}
    for words, numbers in found:
        kinds.setdefault(re.sub(r"[\d.,]+", "0", words), []).append((words, numbers))
    lines = []
    for (words, first), *others in kinds.values():
        named = f"trial{'' if len(first) == 1 else 's'} {_listed(first)}"
        rest = _listed([number for _, numbers in others for number in numbers])
        lines.append(f"{words} ({named}{f'; similar in {rest}' if rest else ''})")
    return lines


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
