"""What a design can detect, before it runs: confounding, hard factors, the smallest effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from headrace.base.intervals import POWER
from headrace.experiment.frozen import Design
from headrace.experiment.report.effects import words as effects
from headrace.experiment.stats import aliasing, power
from headrace.experiment.stats.aliasing import Aliasing
from headrace.experiment.stats.power import Detectable
from headrace.experiment.stats.ways import Way
from headrace.show import text
from headrace.show.columns import of_columns

_ROMAN = {1: "I", 2: "II", 3: "III", 4: "IV", 5: "V"}


@dataclass(frozen=True)
class Outlook:
    """``baseline`` is the smallest ratio to the baseline that can be detected; ``factors`` the same per factor,
    averaged over the others. ``plots`` maps a hard factor to the number of times a block sets it up; ``notes`` are
    sentences.
    """

    sd: float
    origin: str
    baseline: Detectable | None
    factors: tuple[Detectable, ...]
    aliasing: Aliasing | None
    plots: Mapping[str, int]
    notes: tuple[str, ...]


#: The spread between trials where nobody measured it: a quiet machine's.
ASSUMED = 0.02


def outlook(design: Design, sd: float | None = None, origin: str = "--sd") -> Outlook:
    """``sd`` is the spread between trials of one treatment, in log units, ``origin`` its source. None: it
    is assumed.

    With several conditions, the first one represents all: they have the same treatments unless some are excluded.
    An adaptive design has no numbers in advance.
    """
    if sd is None:
        sd, origin = ASSUMED, "an assumption: nothing was measured; --measure does, --sd sets it"
    blocks, alpha = design.blocks, design.alpha
    condition = next(iter(design.baselines), "")
    cells = [t.levels for t in design.treatments if t.condition == condition]
    levels = aliasing.varying(cells)
    hard = [name for name in design.hard if name in levels]
    found = _aliasing(design, cells, levels)
    detectable: list[Detectable] = []
    if len(levels) > 1:
        terms = found.terms if found else aliasing.whole_terms(cells)
        detectable = power.of_factors(cells, terms, hard, blocks, sd, alpha)
    baseline = None
    if len(cells) > 1:
        treatments, baselines = len(design.treatments), len(design.baselines)
        baseline = power.against_baseline(treatments, baselines, blocks, sd, alpha)
    plots = {
        name: len({tuple(cell[h] for h in hard[: i + 1]) for cell in cells}) for i, name in enumerate(hard)
    }
    return Outlook(sd, origin, baseline, tuple(detectable), found, plots, tuple(_notes(hard, blocks)))


def _aliasing(
    design: Design, cells: list[Mapping[str, str]], levels: Mapping[str, tuple[str, ...]]
) -> Aliasing | None:
    if design.kind not in ("screening", "optimal"):
        return None
    named = [(a, b) for a, b in design.interactions if a in levels and b in levels]
    own = [{name: cell[name] for name in levels} for cell in cells]
    return aliasing.structure(own, interactions=named if design.kind == "optimal" else None)


def _notes(hard: list[str], blocks: int) -> list[str]:
    notes = []
    if blocks < 2:
        notes.append("One block: there are no repeats to estimate noise from, so there are no intervals.")
    if hard:
        notes.append(
            "The A/A pair of a block shares its set-up, so it shows the noise of trials but not of set-ups."
        )
    return notes


def to_json(found: Outlook) -> dict[str, Any]:
    """As plain values; ``confounded`` has one line per term."""
    aliases = found.aliasing
    return {
        "sd": found.sd,
        "sd_origin": found.origin,
        "power": POWER,
        "baseline": asdict(found.baseline) if found.baseline else None,
        "factors": [asdict(d) for d in found.factors],
        "hard": dict(found.plots),
        "notes": list(found.notes),
        "aliasing": None
        if aliases is None
        else {
            "runs": aliases.runs,
            "resolution": aliases.resolution or None,
            "is_partial": aliases.is_partial,
            "efficiency": aliases.efficiency,
            "terms": [list(t) for t in aliases.terms],
            "aliases": [asdict(a) for a in aliases.aliases],
            "confounded": effects.alias_lines(aliases),
        },
    }


def terminal(found: Outlook) -> RenderableType:
    """Warnings to read before spending hours on a run."""
    parts: list[RenderableType] = []
    for i, (name, plots) in enumerate(found.plots.items()):
        within = " within the ones before" if i else ""
        parts.append(
            Text(text.clean(f"{name} is hard to change: {plots} set-ups per block, in random order{within}."))
        )
    parts += _detects(found)
    if found.aliasing is not None:
        parts += ["", *_confounding(found.aliasing)]
    parts += [Text(note, style="yellow") for note in found.notes]
    return Group(*parts)


def _detects(found: Outlook) -> list[RenderableType]:
    rows = [d for d in (found.baseline, *found.factors) if d is not None]
    if not any(d.ratio for d in rows):
        return []
    table = of_columns(("effect of", False), ("detectable from", True), ("degrees of freedom", True))
    for row in rows:
        least = " at least" if row.is_least else ""
        name = row.what if row is found.baseline else f"{row.what}, on average"
        table.add_row(Text(text.clean(name)), f"{percent(row.ratio)}{least}", str(row.degrees))
    told = (
        f"Detected in {100 * POWER:g} of 100 experiments, adjusted for all comparisons, if trials of the same "
        f"treatment spread by {100 * found.sd:.3g}% ({found.origin})."
    )
    return ["", table, Text(told, style="dim")]


def ways(found: Sequence[Way], best: Way, effect: float) -> RenderableType:
    """How long each way of measuring takes on this machine."""
    table = of_columns(("measured by", False), ("spread of a block", True), ("blocks", True), ("time", True))
    notes = []
    for way in found:
        if way.why_not:
            notes.append(Text(text.clean(f"{way.name}: not possible: {way.why_not}"), style="dim"))
            continue
        took = "never" if way.hours is None else text.seconds(3600 * way.hours)
        table.add_row(way.name, f"{100 * way.sd:.2g}%", str(way.blocks or "–"), took)
    told = (
        f"Until a change of {100 * effect:g}% (--effect) is found four times out of five: a rough estimate."
    )
    return Group(table, *notes, Text(told, style="dim"), Text(f"soonest: {best.name}", style="bold"))


def percent(ratio: float | None) -> str:
    """How far a ratio exceeds 1."""
    if ratio is None:
        return "–"
    if ratio >= 3:
        return f"{ratio:.3g} times" if ratio < 1000 else "nothing"
    return f"{100 * (ratio - 1):.2g}%"


def _confounding(found: Aliasing) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if found.resolution:
        partly = ", in part" if found.is_partial else ""
        meaning = {
            3: f"main effects are confounded with pairs{partly}",
            4: f"pairs are confounded with pairs{partly}, main effects with none",
            5: "neither main effects nor pairs are confounded with each other",
        }.get(found.resolution, "even main effects are confounded")
        parts.append(Text(f"Resolution {_ROMAN[found.resolution]}: {meaning}."))
    lines = effects.alias_lines(found)
    parts += [Text(text.clean(f"  {line}")) for line in lines]
    if not lines:
        parts.append(Text("No pair of factors is confounded with what is estimated."))
    return parts
