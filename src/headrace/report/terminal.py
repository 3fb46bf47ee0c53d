"""The result table for a terminal. Columns are dropped, least important first, until it fits the width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headrace.analysis.result import Analysis, Verdict
from headrace.analysis.trials import trial_responses
from headrace.model import TrialState
from headrace.report import choices, duet, machines, matters, tables, text
from headrace.store import ExperimentFolder, TrialRecord

_STYLE = {
    Verdict.BETTER: "green",
    Verdict.WORSE: "red",
    Verdict.EQUIVALENT: "blue",
    Verdict.NOT_ENOUGH_DATA: "yellow",
}


#: More warnings than this would push the table off the screen.
MAX_WARNINGS = 5

#: The table of operations has a column each.
MAX_OPERATIONS = 6

#: A longer name is folded, before it costs the table its intervals.
MAX_NAME_WIDTH = 32


@dataclass(frozen=True)
class _Column:
    """``keep`` orders what goes first when the terminal is narrow: 0 always stays."""

    title: str
    keep: int
    cell: Callable[[tables.Group, tables.ResultRow], Text]
    right: bool = True


def result(folder: ExperimentFolder, analysis: Analysis) -> RenderableType:
    """The verdict, a table for each condition, and what to know before believing it."""
    records = folder.trials()
    groups = tables.groups(folder.design, analysis, records)
    parts: list[RenderableType] = [Text(text.clean(analysis.headline), style="bold"), ""]
    for group in groups:
        if group.condition:
            parts.append(Text(text.clean(group.condition), style="bold underline"))
        parts += [_Result(group), ""]
        if 0 < len(analysis.operations) <= MAX_OPERATIONS:
            parts += [_operations(folder, analysis, group), ""]
    parts += [Text(line) for line in _legend(groups, analysis)]
    if duet.is_duet(folder):
        sound = [r for r in records if r.state is TrialState.COMPLETE]
        responses = {r.number: r for r in trial_responses(folder, sound)}
        parts += [Text(text.clean(line)) for line in duet.sentences(folder, records, responses)]
    parts += [Text(text.clean(line)) for line in machines.sentences(folder, analysis, records)]
    if analysis.decision:
        parts += ["", *choices.terminal(analysis.decision)]
    parts += matters.terminal(analysis)
    if any(s.latency_kind == "response" for s in analysis.summaries) and not tables.is_open_loop(
        folder.design
    ):
        parts.append(Text("A closed loop asks nothing while the server stalls: users would see a worse p99."))
    parts += [Text(line, style="yellow") for line in _cautions(folder, analysis, records)]
    return Group(*parts)


class _Result:
    """Measures itself against the console that prints it."""

    def __init__(self, group: tables.Group) -> None:
        self._group = group

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for keep in range(max(c.keep for c in _COLUMNS), -1, -1):
            table = self._table([c for c in _COLUMNS if c.keep <= keep])
            wanted = Measurement.get(console, options.update(max_width=10_000), table).maximum
            if wanted <= options.max_width or keep == 0:
                yield table
                return

    def _table(self, columns: list[_Column]) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for column in columns:
            table.add_column(
                column.title,
                justify="right" if column.right else "left",
                no_wrap=column.keep > 0,
                overflow="fold",
                max_width=None if column.right else MAX_NAME_WIDTH,
            )
        for row in self._group.rows:
            table.add_row(*(column.cell(self._group, row) for column in columns))
        missing = [row for row in self._group.rows if row.summary is None]
        if missing:
            table.caption = Text("\n").join(
                Text(text.clean(f"{row.configuration}: {row.missing}"), style="yellow") for row in missing
            )
            table.caption_justify = "left"
        return table


def _operations(folder: ExperimentFolder, analysis: Analysis, group: tables.Group) -> Table:
    """The figure by which the workload is known, and how long each kind of operation takes."""
    figure = tables.FIGURES.get(folder.design.workload.kind)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("p90 ms", overflow="fold", max_width=MAX_NAME_WIDTH)
    for name in [
        *([figure.name.replace(" ", "\n")] if figure else []),
        *map(text.clean, analysis.operations),
    ]:
        table.add_column(name, justify="right", vertical="bottom", overflow="fold")
    for row in group.rows:
        shares = tables.shares(analysis, row.treatment)
        rate = tables.per_minute(folder.design, shares)
        cells = [text.count(rate.estimate if rate else None)] if figure else []
        for share in shares:
            found = share.summary.latency_ns.get("p90") if share.summary else None
            cells.append(text.milliseconds(found.estimate if found else None))
        table.add_row(_name(group, row), *cells)
    return table


def _name(group: tables.Group, row: tables.ResultRow) -> Text:
    return Text(text.clean(row.configuration), style="bold" if not row.is_baseline else "")


def _throughput(group: tables.Group, row: tables.ResultRow) -> Text:
    return Text(text.count(row.summary.throughput_ops_s.estimate) if row.summary else "–")


def _throughput_interval(group: tables.Group, row: tables.ResultRow) -> Text:
    return Text(text.between(row.summary.throughput_ops_s, text.count) if row.summary else "–", style="dim")


def _ratio(group: tables.Group, row: tables.ResultRow, response: str = tables.THROUGHPUT) -> Text:
    effect = row.effects.get(response)
    if effect:
        return Text(text.ratio(effect.ratio.estimate), style=_STYLE[effect.verdict])
    noise = group.noise.get(response) if row.is_baseline else None
    return Text(text.ratio(noise.ratio.estimate), style="dim") if noise else Text("–")


def _interval(group: tables.Group, row: tables.ResultRow) -> Text:
    effect = row.effects.get(tables.THROUGHPUT)
    if effect:
        return Text(text.between(effect.ratio))
    noise = group.noise.get(tables.THROUGHPUT) if row.is_baseline else None
    return Text(text.between(noise.ratio), style="dim") if noise else Text("–")


def _verdict(group: tables.Group, row: tables.ResultRow) -> Text:
    effect = row.effects.get(tables.THROUGHPUT)
    if effect is None:
        return Text("A/A" if row.is_baseline and group.noise else "–", style="dim")
    return Text(effect.verdict, style=_STYLE[effect.verdict])


def _floor(group: tables.Group, row: tables.ResultRow) -> Text:
    return Text(text.plus_minus(group.floor(tables.THROUGHPUT)), style="dim")


def _needed(group: tables.Group, row: tables.ResultRow) -> Text:
    effect = row.effects.get(tables.THROUGHPUT)
    return Text(str(effect.blocks_needed) if effect and effect.blocks_needed else "", style="dim")


def _latency(name: str) -> Callable[[tables.Group, tables.ResultRow], Text]:
    def cell(group: tables.Group, row: tables.ResultRow) -> Text:
        found = row.summary.latency_ns.get(name) if row.summary else None
        return Text(text.milliseconds(found.estimate if found else None))

    return cell


_COLUMNS = (
    _Column("configuration", 0, _name, right=False),
    _Column("ops/s", 0, _throughput),
    _Column("interval", 6, _throughput_interval),
    _Column("ratio", 0, _ratio),
    _Column("interval", 1, _interval),
    _Column("verdict", 0, _verdict, right=False),
    _Column("A/A floor", 2, _floor),
    _Column("p50 ms", 4, _latency("p50")),
    _Column("p90 ms", 8, _latency("p90")),
    _Column("p95 ms", 7, _latency("p95")),
    _Column("p99 ms", 3, _latency("p99")),
    _Column("p99.9 ms", 5, _latency("p99.9")),
    _Column("p99.99 ms", 9, _latency("p99.99")),
    _Column("max ms", 9, _latency("max")),
    _Column("blocks needed", 10, _needed),
)


def _legend(groups: list[tables.Group], analysis: Analysis) -> list[str]:
    confidence = f"{100 * (1 - analysis.alpha):g}%"
    if not analysis.effects:
        return ["No comparison is possible yet: it needs a block with a treatment and its baseline."]
    names = sorted({g.baseline for g in groups})
    first = text.clean(names[0].partition(" @ ")[0])
    return [
        f"Ratio to {first} in the same block, {confidence} interval for all comparisons together: the verdict "
        "rests on it alone. The A/A row and floor, the baseline against itself, are its context."
    ]


def _cautions(folder: ExperimentFolder, analysis: Analysis, records: list[TrialRecord]) -> list[str]:
    cautions = []
    for state in (TrialState.INVALID, TrialState.FAILED):
        found = [r for r in records if r.state is state]
        if found:
            reasons = "; ".join(dict.fromkeys(r.reason for r in found))
            numbers = ", ".join(str(r.number) for r in found)
            cautions.append(text.clean(f"{len(found)} {state} (trial {numbers}), not analysed: {reasons}"))
    cautions += [text.clean(caution) for caution in tables.cautions(records)]
    left = len(folder.design.trials) - len(records)
    if left:
        cautions.append(f"{left} of {len(folder.design.trials)} trials are not run yet")
    for noise in analysis.noise:
        low, high = noise.ratio.low, noise.ratio.high
        if (
            noise.response == tables.THROUGHPUT
            and low is not None
            and high is not None
            and not low <= 1 <= high
        ):
            where = f" at {text.clean(noise.condition)}" if noise.condition else ""
            cautions.append(
                f"the baseline differs from itself{where} ({text.between(noise.ratio)}): "
                "by chance, or something drifts within blocks"
            )
    warnings = tables.warnings(records)
    for warning, trials in warnings[:MAX_WARNINGS]:
        cautions.append(text.clean(f"{warning} (trial {', '.join(map(str, trials))})"))
    if len(warnings) > MAX_WARNINGS:
        cautions.append(f"{len(warnings) - MAX_WARNINGS} more warnings: see report.html")
    return cautions
