"""Every trial: warnings, drift, the order in which they ran, and one line each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from headrace.base.counted import counted
from headrace.base.model import TrialState
from headrace.experiment.report import tables
from headrace.experiment.report.charts.trials import drift
from headrace.experiment.report.view import View
from headrace.experiment.store import TrialRecord
from headrace.show import text
from headrace.show.parts import (
    Cell,
    Cells,
    Chart,
    Column,
    Details,
    Heading,
    Part,
    Runs,
    Section,
    Sentence,
    Sentences,
    Span,
    Table,
    Words,
)

#: More warnings than this would push a terminal's table off the screen, and a page's trials.
MAX_WARNINGS, PAGE_WARNINGS = 5, 8

#: Tables of trials longer than this are folded.
MAX_OPEN = 100

#: The view of a kind of experiment.
V = TypeVar("V", bound=View)

STATE_CHIP = {TrialState.COMPLETE: "same", TrialState.INVALID: "unsure", TrialState.FAILED: "worse"}


def section(view: View) -> Section:
    return section_of(view, _parts, _cautions, trial_json)


def section_of(
    view: V,
    parts: Callable[[V], Iterator[Part]],
    cautions: Callable[[V], Iterator[str]],
    row: Callable[[V, TrialRecord], Mapping[str, object]],
) -> Section:
    """The section of all trials, for any kind of experiment."""
    return Section(
        "trials",
        "Trials",
        "Every trial",
        lambda: parts(view),
        brief=[Sentence(line, "attention") for line in cautions(view)],
        data={
            "trials": [row(view, record) for record in view.records],
            "cautions": view.cautions,
            "planned_trials": len(view.design.trials),
        },
    )


def _parts(view: View) -> Iterator[Part]:
    yield from warnings(tables.warnings(view.records))
    if chart := drift_chart(view):
        yield Heading("Did the machine drift?")
        yield Sentence(
            (
                "Each trial relative to the mean of its treatment. A slope or a step over many trials is "
                "drift; pairing by block removes drift that affects a whole block. ",
                Span("✕", "mark worse"),
                " is an invalid trial.",
            )
        )
        yield chart
    yield Heading("Order of execution")
    yield Sentence(
        "Each block in the order in which it actually ran: random, with repeated trials at its end."
    )
    yield order(view, lambda block: f"block {block}")
    columns = (
        Column("trial", "n"), Column("block", "n"), Column("position", "n"), Column("treatment"), Column("role"),
        Column("state"), Column("operations/s", "n"), Column("p99 [ms]", "n"), Column("started (UTC)", "n"),
        Column("took", "n"), Column("why not analysed", "wrap"),
    )  # fmt: skip
    rows: list[Cells] = []
    for record in view.records:
        why = view.analysis.excluded.get(record.number, record.reason)
        where = [str(record.number), str(record.block), str(record.position), record.treatment]
        rows.append([*where, str(record.role), *measured(view, record), why])
    yield all_trials(view, columns, rows)


def warnings(found: Sequence[tuple[str, Sequence[int]]]) -> Iterator[Part]:
    """Each warning once, with its trials; all but the first are folded."""
    lines = [_warning(words, trials) for words, trials in found]
    if lines:
        yield Heading("Warnings")
        yield Sentences(lines[:PAGE_WARNINGS], "warnings")
    if len(lines) > PAGE_WARNINGS:
        yield Details(f"{len(lines) - PAGE_WARNINGS} more", [Sentences(lines[PAGE_WARNINGS:], "warnings")])


def _warning(words: str, trials: Sequence[int]) -> Words:
    numbers = ", ".join(map(str, trials))
    return (f"{words} ", Span(f"trial{'' if len(trials) == 1 else 's'} {numbers}", "aside"))


def drift_chart(view: View) -> Chart | None:
    """Each trial relative to the mean of its treatment, in order of execution; None without a valid trial."""
    means = {s.treatment: s.throughput_ops_s.estimate for s in view.analysis.summaries}
    points: dict[str, tuple[list[int], list[float], list[str]]] = {
        "complete": ([], [], []),
        "invalid": ([], [], []),
    }
    executed = tables.executed(view.records)
    firsts = [
        place + 0.5
        for place, (one, other) in enumerate(itertools.pairwise(executed), start=1)
        if one.block != other.block
    ]
    for place, record in enumerate(executed, start=1):
        response = view.responses.get(record.number)
        mean = means.get(record.treatment)
        if response and mean and response.throughput_ops_s > 0:
            places, percent, hints = points[record.state.value]
            places.append(place)
            percent.append(100 * math.expm1(math.log(response.throughput_ops_s / mean)))
            hints.append(f"trial {record.number}, block {record.block}, {record.treatment}")
    return Chart(drift(points, firsts)) if points["complete"][0] else None


def order(view: View, name: Callable[[int], str]) -> Runs:
    """Blocks as lines, each in the order in which its trials actually ran; then the pending ones."""
    ran = {r.number: r for r in tables.executed(view.records)}
    planned = {spec.number: spec for spec in view.design.trials}
    blocks: dict[int, list[tuple[str, str, str]]] = {
        block: [] for block in sorted({spec.block for spec in view.design.trials})
    }
    for number in [*(n for n in ran if n in planned), *(n for n in planned if n not in ran)]:
        spec = planned[number]
        state = ran[number].state.value if number in ran else "planned"
        look = state + (" baseline" if spec.role != "candidate" else "")
        blocks[spec.block].append((spec.treatment, look, f"trial {number}, {state}"))
    return Runs([(name(block), cells) for block, cells in blocks.items()])


def measured(view: View, record: TrialRecord) -> list[Cell]:
    """A trial's state, throughput, p99, start and length."""
    response, started = view.responses.get(record.number), tables.started_ns(record)
    took = "–" if record.duration_s is None else text.seconds(record.duration_s)
    begun = f"{datetime.fromtimestamp(started / 1e9, UTC):%m-%d %H:%M:%S}" if started else "–"
    ops_s, p99_ns = (response.throughput_ops_s, response.value("p99")) if response else (None, None)
    state = Cell(record.state.value, STATE_CHIP[record.state])
    return [state, Cell(text.count(ops_s)), Cell(text.milliseconds(p99_ns)), Cell(begun), Cell(took)]


def all_trials(view: View, columns: Sequence[Column], rows: Sequence[Cells]) -> Details:
    looks = {i: record.state.value for i, record in enumerate(view.records)}
    title = f"All {counted(len(rows), 'trial')}"
    named = next(i for i, column in enumerate(columns) if column.name in ("treatment", "level"))
    return Details(title, [Table(columns, rows, looks=looks, named=named)], is_open=len(rows) <= MAX_OPEN)


def trial_json(view: View, record: TrialRecord) -> Mapping[str, object]:
    response = view.responses.get(record.number)
    return {
        "number": record.number,
        "block": record.block,
        "position": record.position,
        "treatment": record.treatment,
        "role": record.role,
        "state": record.state,
        "reason": record.reason,
        "excluded": view.analysis.excluded.get(record.number),
        "throughput_ops_s": response.throughput_ops_s if response else None,
        "p99_ns": response.value("p99") if response else None,
        "started_ns": record.times_ns.get("started"),
        "finished_ns": record.times_ns.get("finished"),
        "facts_hash": record.facts_hash,
        "warnings": record.warnings,
    }


def _cautions(view: View) -> Iterator[str]:
    """Warnings to read before trusting the result."""
    for state in (TrialState.INVALID, TrialState.FAILED):
        found = [r for r in view.records if r.state is state]
        if found:
            reasons = "; ".join(dict.fromkeys(r.reason for r in found))
            numbers = ", ".join(str(r.number) for r in found)
            yield (
                f"{len(found)} {state} (trial{'s' if len(found) > 1 else ''} {numbers}), not analysed: "
                f"{reasons}"
            )
    yield from view.cautions
    planned = len(view.design.trials)
    if left := planned - len(view.records):
        yield f"{left} of {planned} trials have not run yet"
    for noise in view.analysis.noise:
        low, high = noise.ratio.low, noise.ratio.high
        is_sure = low is not None and high is not None and not low <= 1 <= high
        if noise.response == tables.THROUGHPUT and is_sure:
            where = f" at {noise.condition}" if noise.condition else ""
            yield (
                f"the two baseline runs of a block differ{where} ({text.between(noise.ratio)}): "
                "by chance, or something drifts within blocks"
            )
    found_warnings = tables.warnings(view.records)
    for warning, trials in found_warnings[:MAX_WARNINGS]:
        yield f"{warning} (trial{'s' if len(trials) > 1 else ''} {', '.join(map(str, trials))})"
    if len(found_warnings) > MAX_WARNINGS:
        yield f"{len(found_warnings) - MAX_WARNINGS} more warnings: see report.html"
