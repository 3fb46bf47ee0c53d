"""How many blocks would settle the comparisons without a verdict, and how long they would take."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from headrace.base.effect import Effect, Verdict
from headrace.base.intervals import MOST_ADVISED, TOO_WIDE, USELESS, span
from headrace.experiment.kinds import of_design
from headrace.experiment.report.view import View
from headrace.experiment.stats.headline import TAIL
from headrace.experiment.stats.study import block_seconds, blocks_of
from headrace.experiment.stats.trials import THROUGHPUT
from headrace.show import text
from headrace.show.parts import Cell, Cells, Column, Part, Section, Sentence, Span, Table

#: Comparisons with a row.
MOST_SHOWN = 8

SEE = (
    "Comparisons without a verdict: how many blocks in total would settle them, from the lucky end of what the "
    "trials allow to the other, and how long that takes at this pace. Where no number would be a promise, it says "
    "what is excluded already."
)


def section(view: View) -> Section:
    """Empty if every comparison has a verdict."""
    return Section("settle", "Open comparisons", "What would settle the rest?", lambda: _parts(view), SEE)


def _parts(view: View) -> Iterator[Part]:
    everything = [e for e in view.analysis.effects if e.verdict is Verdict.NOT_ENOUGH_DATA]
    # Other percentiles follow these, and nobody decides by them.
    open_ones = [e for e in everything if e.response in (THROUGHPUT, TAIL)]
    if not open_ones:
        return
    block_s = block_seconds(view.design, view.records)
    rows: list[Cells] = [
        [effect.treatment, effect.response, text.between(effect.ratio), str(effect.blocks), _outlook(effect),
         _time(effect, block_s)]
        for effect in sorted(open_ones, key=_rank)[:MOST_SHOWN]
    ]  # fmt: skip
    columns = (
        Column("treatment"), Column("response"), Column("interval", "n"), Column("blocks", "n"),
        Column("would settle it", "wrap"), Column("would take", "n"),
    )  # fmt: skip
    yield Table(columns, rows, is_stacked=True)
    if more := len(everything) - len(rows):
        yield Sentence(f"{more} more comparisons are open: report.json has all.", "aside")
    yield from _command(view, max(e.blocks_needed or 0 for e in open_ones), block_s)


def _rank(effect: Effect) -> tuple[bool, int, bool]:
    """What can be settled first, soonest first; then throughput."""
    return (effect.needed is None, effect.blocks_needed or 0, effect.response != THROUGHPUT)


def _command(view: View, needed: int, block_s: float | None) -> Iterator[Part]:
    """What brings the data, and how long that takes."""
    design = view.design
    more = needed - blocks_of(design)
    can_extend = of_design(design).extends and not design.target.addresses and 0 < more <= MOST_MORE
    if not (can_extend or design.until_decided):
        show = shlex.join(["headrace", "plan", "show", f"{view.folder.path}/plan.toml"])
        yield Sentence(["To see what a plan can detect here: ", Span(show, "code")])
        return
    took = f" (about {text.seconds(more * block_s)})" if block_s and more > 0 else ""
    command = longer(view.folder.path, 0 if design.until_decided else more)
    yield Sentence([f"To measure them{took}: ", Span(command, "code")])


def longer(folder: Path, more: int) -> str:
    """The command that adds blocks to the experiment in a folder; 0: until it is decided."""
    run = shlex.join(["headrace", "run", f"{folder}/plan.toml", "-o", str(folder)])
    return f"{run} --blocks +{more}" if more else f"{run} --until-decided"


#: More blocks than this are no advice.
MOST_MORE = MOST_ADVISED


def _outlook(effect: Effect) -> str:
    """What more blocks would do: how many, or what is excluded already."""
    if effect.needed:
        return f"{span(effect.needed)} blocks"
    low, high = effect.ratio.low, effect.ratio.high
    if not low or not high or high > USELESS * low:
        return TOO_WIDE
    gain = high if effect.response == THROUGHPUT else 1 / low
    return f"no plan of this size will tell; a gain above {gain:.2f}x is excluded"


def _time(effect: Effect, block_s: float | None) -> Cell:
    if not effect.needed or block_s is None:
        return Cell("–")
    least, most = (text.seconds(end * block_s) for end in effect.needed)
    return Cell(least if least == most else f"{least} to {most}")
