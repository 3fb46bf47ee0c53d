"""How many blocks would settle the comparisons without a verdict, and how long they would take."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from headrace.analysis.result import Effect, Verdict
from headrace.design import Design
from headrace.experiment.kinds import of_design
from headrace.report import text
from headrace.report.experiment.view import View
from headrace.report.parts import Cell, Cells, Column, Part, Section, Sentence, Span, Table

#: Comparisons that are not folded.
MOST_SHOWN = 12

SEE = (
    "Each comparison without a verdict, the total number of blocks that would probably settle it, and how "
    "long a study of that size would take at this pace."
)


def section(view: View) -> Section:
    """Empty if every comparison has a verdict."""
    return Section("settle", "Open comparisons", "What would settle the rest?", lambda: _parts(view), SEE)


def _parts(view: View) -> Iterator[Part]:
    open_ones = [e for e in view.analysis.effects if e.verdict is Verdict.NOT_ENOUGH_DATA]
    if not open_ones:
        return
    block_s = _block_seconds(view)
    rows: list[Cells] = []
    for effect in sorted(open_ones, key=lambda e: e.blocks_needed or 10**9):
        ratio = f"{text.ratio(effect.ratio.estimate)} ({text.between(effect.ratio)})"
        needed = str(effect.blocks_needed) if effect.blocks_needed else "–"
        rows.append(
            [effect.treatment, effect.response, ratio, str(effect.blocks), needed, _time(effect, block_s)]
        )
    columns = (
        Column("treatment"), Column("response"), Column("ratio", "n"), Column("blocks", "n"),
        Column("blocks needed", "n"), Column("would take", "n"),
    )  # fmt: skip
    yield Table(columns, rows[:MOST_SHOWN], is_stacked=True)
    if left := rows[MOST_SHOWN:]:
        yield Table(columns, left, f"{len(left)} more", is_folded=True, is_stacked=True)
    yield from _command(view, max(e.blocks_needed or 0 for e in open_ones), block_s)
    if any(effect.blocks_needed is None for effect in open_ones):
        yield Sentence("A dash: too few blocks for an estimate.", "aside")


def _command(view: View, needed: int, block_s: float | None) -> Iterator[Part]:
    """What brings the data, and how long that takes."""
    design = view.design
    more = needed - _blocks(design)
    can_extend = of_design(design).extends and not design.target.addresses and 0 < more <= MOST_MORE
    if not (can_extend or design.until_decided):
        return
    took = f" (about {text.seconds(more * block_s)})" if block_s and more > 0 else ""
    command = longer(view.folder.path, 0 if design.until_decided else more)
    yield Sentence([f"To measure them{took}: ", Span(command, "code")])


def longer(folder: Path, more: int) -> str:
    """The command that adds blocks to the experiment in a folder; 0: until it is decided."""
    run = shlex.join(["headrace", "run", f"{folder}/plan.toml", "-o", str(folder)])
    return f"{run} --blocks +{more}" if more else f"{run} --until-decided"


#: More blocks than this are no advice.
MOST_MORE = 200


def _blocks(design: Design) -> int:
    """The plan's blocks; a duet numbers its pairs instead. Of one that runs until it is decided, those begun."""
    return design.trials[-1].block if design.until_decided else design.blocks


def _block_seconds(view: View) -> float | None:
    """How long a block takes if its trials take as long as these; None before the first trial ends."""
    lengths = [r.duration_s for r in view.records if r.duration_s is not None]
    if not lengths:
        return None
    trials_a_block = len(view.design.trials) / _blocks(view.design)
    return trials_a_block * sum(lengths) / len(lengths) / view.design.at_once


def _time(effect: Effect, block_s: float | None) -> Cell:
    if not effect.blocks_needed or block_s is None:
        return Cell("–")
    return Cell(text.seconds(effect.blocks_needed * block_s))
