"""Terminal views other than results: a design, an experiment's state, a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.base.counted import counted
from headrace.base.effect import Effect
from headrace.base.intervals import Interval
from headrace.experiment.frozen import Design
from headrace.experiment.report.progress import duration
from headrace.experiment.stats.headline import TAIL
from headrace.experiment.stats.result import Comparison
from headrace.experiment.stats.trials import THROUGHPUT
from headrace.experiment.store import ExperimentFolder
from headrace.show.columns import of_columns
from headrace.show.notice import Conclusion, Notice, Told
from headrace.show.text import clean, clean_lines


def _table(*columns: str, title: str | None = None) -> Table:
    return of_columns(*((c, False) for c in columns), title=title, title_justify="left")


def design(content: Design, hours: float, load_s: float = 0.0) -> RenderableType:
    """The treatments with their settings, and the size and duration of the study: ``load_s`` of it load data."""
    base = content.base
    baselines = set(content.baselines.values())
    table = _table("treatment", "sets")
    for treatment in content.treatments:
        own = {k: v for k, v in treatment.settings.items() if base.get(k) != v}
        name = treatment.name + (" (baseline)" if treatment.name in baselines else "")
        table.add_row(Text(clean(name)), Text(_settings(own) or "nothing"))
    workload = content.workload
    trials = content.trials
    warmup = f"{workload.warmup_s:g} s warm-up"
    if workload.steady_within_s:
        warmup += f" (before it up to {workload.steady_within_s:g} s until it is steady)"
    each = f"trials of {warmup} and {workload.seconds:g} s measuring"
    if content.blocks_per_start:
        each = (
            f"turns of {workload.seconds:g} s, each after {content.washout_s} s that do not count, and {warmup} "
            f"for every {counted(content.blocks_per_start, 'block')}"
        )
    blocks = "1 block" if content.blocks == 1 else f"{content.blocks} blocks"
    loading = f", {duration(load_s)} of it for loading the data, once" if load_s else ""
    summary = (
        f"{counted(len(content.treatments), 'treatment')}, {blocks}, {len(trials)} {each} ({workload.kind}); "
        f"seed {content.seed}; about {duration(hours * 3600)}{loading}."
    )
    first = clean(", ".join(t.treatment for t in trials if t.block == 1))
    parts: list[RenderableType] = [Text(clean(content.name), style="bold")]
    if content.description:
        parts.append(Text(clean_lines(content.description)))
    if base:
        parts.append(Text(f"every treatment: {_settings(base)}"))
    return Group(*parts, "", table, "", Text(clean(summary)), Text(f"order in block 1: {first}", style="dim"))


def _settings(values: Mapping[str, Any]) -> str:
    return clean(", ".join(f"{k}={_short(v)}" for k, v in values.items()))


def _short(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


def status(folder: ExperimentFolder, journal: list[dict[str, Any]]) -> RenderableType:
    """The experiment's progress, problems of trials, and what is left to restore."""
    records = folder.trials()
    total = len(folder.design.trials)
    counts = Counter(record.state for record in records)
    states = ", ".join(f"{n} {state}" for state, n in counts.items()) or "none yet"
    lines: list[RenderableType] = [
        Text.assemble(
            (clean(folder.design.name), "bold"), f": {len(records)} of {counted(total, 'trial')} ({states})"
        )
    ]
    table = _table("trial", "treatment", "state", "why")
    for record in records:
        if record.reason:
            table.add_row(
                str(record.number),
                Text(clean(record.treatment)),
                record.state,
                Text(clean_lines(record.reason)),
            )
    if table.row_count:
        lines += ["", table]
    if len(records) < total:
        lines.append("`headrace run` with the same plan continues")
    if journal:
        lines.append(
            f"{len(journal)} changes to the host are in its journal: a run is in progress, "
            "or was killed (the next `headrace run` restores them)"
        )
    else:
        lines.append("nothing is left to restore on the host")
    return Group(*lines)


def comparison(found: Comparison) -> RenderableType:
    """Two experiments: each treatment of B relative to the same one of A."""
    table = _table("treatment", "response", "B / A", "interval", "verdict")
    for effect in found.effects:
        table.add_row(
            Text(clean(effect.treatment)),
            effect.response,
            f"{effect.ratio.estimate:.3f}",
            interval(effect.ratio),
            _verdict(effect),
        )
    notes = [Text(clean(note), style="yellow") for note in found.notes]
    return Group(table, "", Text(clean(found.headline)), *notes)


def comparison_notice(found: Comparison) -> Notice:
    conclusion = Conclusion.worst(
        each.verdict for each in found.effects if each.response in (THROUGHPUT, TAIL)
    )
    if found.weaker and conclusion is not Conclusion.WORSE:
        conclusion = Conclusion.NOT_ENOUGH_DATA
    return Notice(
        kind="compare",
        subject=f"{found.b} relative to {found.a}",
        conclusion=conclusion,
        headline=found.headline,
        effects=tuple(Told.of(each) for each in found.effects if each.response in (THROUGHPUT, TAIL)),
    )


def interval(ratio: Interval) -> str:
    if ratio.low is None or ratio.high is None:
        return "none"
    return f"{ratio.low:.3f} to {ratio.high:.3f}"


def _verdict(effect: Effect) -> Text:
    colour = {"better": "green", "worse": "red", "equivalent": "blue"}.get(effect.verdict, "yellow")
    return Text(effect.verdict, style=colour)
