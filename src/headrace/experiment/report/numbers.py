"""The numbers of every treatment: with intervals on the page, in one table per condition on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headrace.base.effect import Effect
from headrace.base.intervals import Interval, span
from headrace.base.percentiles import PERCENTILES
from headrace.experiment.report import tables
from headrace.experiment.report.view import View
from headrace.experiment.stats.result import TreatmentSummary
from headrace.show import text
from headrace.show.parts import Cell, Cells, Column, Gap, Heading, Part, Section, Sentence, Table

LATENCIES = (*PERCENTILES, "max")
SHARE_LATENCIES = ("p50", "p90", "p99", "max")

#: Percentiles in a terminal's table of operations.
MAX_OPERATIONS = 6


def section(view: View) -> Section:
    return Section(
        "table",
        "Numbers",
        "The numbers",
        lambda: _parts(view),
        "A verdict is based on the configuration's own interval, adjusted for all comparisons. The noise "
        "floor next to it shows how much two runs of the baseline differ. No ratio is given if a trial had "
        "too few operations for the percentile.",
        list(_brief(view)),
        {"treatments": [_treatment(view, group, row) for group in view.groups for row in group.rows]},
    )


def timed(found: Interval | None) -> Cell:
    """A latency in ms with its interval below."""
    return with_interval(found, text.milliseconds)


def with_interval(found: Interval | None, form: text.Form = text.count, look: str = "") -> Cell:
    """A value with its interval below, if it has one."""
    if found is None:
        return Cell("–", look=look)
    return Cell(form(found.estimate), note="" if found.low is None else text.between(found, form), look=look)


# -- The page ---------------------------------------------------------------------------------------------------


def _parts(view: View) -> Iterator[Part]:
    compared = ["throughput", *(["p99"] if any(e.response == "p99" for e in view.analysis.effects) else [])]
    for group in view.groups:
        yield from _titled(group, _results(group, compared))
    yield Heading("Latency")
    yield Sentence(
        f"In ms ({view.latency_kind} time): exact percentiles of all operations of a treatment's trials, "
        f"with intervals over {_unit(view)}. A dash: too few operations beyond that percentile to state it."
    )
    for group in view.groups:
        yield from _titled(group, _latencies(group))
    if view.shares:
        yield from _kinds(view)
    if view.analysis.effects:
        yield _every_comparison(view)


def _unit(view: View) -> str:
    """What the intervals of a treatment's own numbers are over: see ``compare.of_starts``."""
    return "starts of the server" if view.design.blocks_per_start else "blocks"


def _every_comparison(view: View) -> Table:
    has_conditions = len(view.groups) > 1
    columns = [
        Column("configuration"),
        *([Column("condition")] if has_conditions else []),
        Column("response"),
    ]
    columns += [Column("ratio", "n"), Column("interval", "n"), Column("verdict"), Column("noise floor", "n")]
    columns += [Column("blocks", "n"), Column("blocks needed", "n")]
    rows: list[Cells] = []
    for group in view.groups:
        for row in group.rows:
            for effect in row.effects.values():
                where = [group.condition] if has_conditions else []
                ratio = [text.ratio(effect.ratio.estimate), text.between(effect.ratio)]
                verdict = Cell(str(effect.verdict), text.CHIP[effect.verdict])
                known = [text.plus_minus(group.floor(effect.response)), str(effect.blocks)]
                needed = span(effect.needed) if effect.needed else "–"
                rows.append([row.configuration, *where, effect.response, *ratio, verdict, *known, needed])
    return Table(columns, rows, f"Every comparison ({len(rows)})", is_folded=True)


def _titled(group: tables.Group, table: Table) -> Iterator[Part]:
    if group.condition:
        yield Heading(group.condition, "condition")
    yield table


def _marked(rows: Sequence[tables.ResultRow]) -> frozenset[int]:
    return frozenset(i for i, row in enumerate(rows) if row.is_baseline)


def _results(group: tables.Group, compared: Sequence[str]) -> Table:
    first = text.short(group.baseline_configuration)
    columns = [Column("configuration"), Column("operations/s", "n")]
    for response in compared:
        over = f"{response} against {first}"
        columns += [Column("ratio", "n", over=over), Column("interval", "n", over=over)]
        columns += [Column("verdict", over=over), Column("noise floor", "n", over=over)]
    columns += [Column("errors", "n"), Column("trials", "n")]
    rows = []
    for row in group.rows:
        name = Cell(row.configuration, note="baseline" if row.is_baseline else "")
        summary = row.summary
        if summary is None:
            rows.append([name, Cell(row.missing, look="missing", columns=len(columns) - 1)])
            continue
        cells = [cell for response in compared for cell in _compared(group, row, response)]
        rows.append(
            [name, with_interval(summary.throughput_ops_s, look="wide"), *cells, Cell(text.count(summary.errors)),
             Cell(str(len(summary.trials)))]
        )  # fmt: skip
    return Table(columns, rows, marked=_marked(group.rows), is_stacked=True)


def _compared(group: tables.Group, row: tables.ResultRow, response: str) -> list[Cell]:
    effect = row.effects.get(response)
    if effect:
        needed = f"needs {span(effect.needed)} blocks" if effect.needed else ""
        verdict = Cell(str(effect.verdict), text.CHIP[effect.verdict], needed)
        ratio = Cell(text.ratio(effect.ratio.estimate), look="strong", label=f"{response} ratio")
        return [
            ratio,
            Cell(text.between(effect.ratio)),
            verdict,
            Cell(text.plus_minus(group.floor(response))),
        ]
    noise = group.noise.get(response) if row.is_baseline else None
    if noise:
        ratio = Cell(text.ratio(noise.ratio.estimate), label=f"{response} ratio")
        return [
            ratio,
            Cell(text.between(noise.ratio)),
            Cell("A/A", "same"),
            Cell(text.plus_minus(noise.floor)),
        ]
    return [Cell("–", label=f"{response} ratio"), *[Cell("–")] * 3]


def _latencies(group: tables.Group) -> Table:
    rows = [row for row in group.rows if row.summary]
    cells: list[Cells] = [
        [row.configuration, *(timed(row.summary.latency_ns.get(p)) for p in LATENCIES)]
        for row in rows
        if row.summary
    ]
    columns = [Column("configuration"), *(Column(p, "n") for p in LATENCIES)]
    return Table(columns, cells, marked=_marked(rows), is_stacked=True)


def _kinds(view: View) -> Iterator[Part]:
    figure = tables.FIGURES.get(view.design.workload.kind)
    rates = {name: tables.per_minute(view.design, shares) for name, shares in view.shares.items()}
    has_rate = any(rates.values())
    yield Heading("Each kind of operation")
    yield Sentence(
        "Rate and latency of each kind separately, from the start of an operation to its end, including all "
        "its statements. A dash instead of a rate: in some trial none succeeded."
        + (f" {figure.meaning}" if figure and has_rate else "")
    )
    columns = [Column("configuration"), *([Column(figure.name, "n")] if figure and has_rate else [])]
    columns += [Column("operation"), Column("operations/s", "n")]
    columns += [*(Column(f"{p} [ms]", "n") for p in SHARE_LATENCIES), Column("errors", "n")]
    for group in view.groups:
        rows: list[list[Cell | None]] = []
        marked = set()
        for row in group.rows:
            shares = view.shares[row.treatment] if row.summary else []
            for i, share in enumerate(shares):
                marked |= {len(rows)} if row.is_baseline else set()
                head: list[Cell | None] = [Cell(row.configuration, rows=len(shares)) if i == 0 else None]
                if has_rate:
                    rate = with_interval(rates[row.treatment], look="strong")
                    head.append(
                        Cell(rate.text, note=rate.note, look="strong", rows=len(shares)) if i == 0 else None
                    )
                rows.append([*head, Cell(share.operation), *_share(share.summary)])
        yield from _titled(group, Table(columns, rows, marked=frozenset(marked)))


def _share(summary: TreatmentSummary | None) -> list[Cell]:
    if summary is None:
        return [Cell("–")] * (len(SHARE_LATENCIES) + 2)
    latencies = [timed(summary.latency_ns.get(p)) for p in SHARE_LATENCIES]
    return [with_interval(summary.throughput_ops_s), *latencies, Cell(text.count(summary.errors))]


# -- The terminal -----------------------------------------------------------------------------------------------


def _brief(view: View) -> Iterator[Part]:
    for group in view.groups:
        if group.condition:
            yield Heading(group.condition)
        yield _short(group)
        yield from (
            Sentence(f"{row.configuration}: {row.missing}", "attention")
            for row in group.rows
            if row.summary is None
        )
        yield Gap()
        if 0 < len(view.analysis.operations) <= MAX_OPERATIONS:
            yield _operations(view, group)
            yield Gap()
    yield Sentence(_rests_on(view))
    yield from (Sentence(line) for line in (*view.together, *view.between_machines))


def _rests_on(view: View) -> str:
    if not view.analysis.effects:
        return "No comparison is possible yet: it needs a block with a treatment and its baseline."
    first = min(g.baseline for g in view.groups).partition(" @ ")[0]
    return (
        f"Ratios to {first} within each block; the intervals hold jointly at {view.confidence} and decide the "
        "verdict. The A/A row and floor compare the baseline with itself, for context."
    )


_COLUMNS = (
    Column("configuration"), Column("ops/s", "n"), Column("interval", "n", 6), Column("ratio", "n"),
    Column("interval", "n", 1), Column("verdict"), Column("A/A floor", "n", 2), Column("p50 ms", "n", 4),
    Column("p90 ms", "n", 8), Column("p95 ms", "n", 7), Column("p99 ms", "n", 3), Column("p99.9 ms", "n", 5),
    Column("p99.99 ms", "n", 9), Column("max ms", "n", 9), Column("blocks needed", "n", 10),
)  # fmt: skip


def _short(group: tables.Group) -> Table:
    return Table(_COLUMNS, [_short_row(group, row) for row in group.rows])


def _short_row(group: tables.Group, row: tables.ResultRow) -> list[Cell]:
    effect, summary = row.effects.get(tables.THROUGHPUT), row.summary
    noise = group.noise.get(tables.THROUGHPUT) if row.is_baseline else None
    against = effect or noise
    latencies = summary.latency_ns if summary else {}
    ops_s = summary.throughput_ops_s if summary else None
    return [
        Cell(row.configuration, style="" if row.is_baseline else "bold"),
        Cell(text.count(ops_s.estimate if ops_s else None)),
        Cell(text.between(ops_s, text.count) if ops_s else "–", style="dim"),
        Cell(text.ratio(against.ratio.estimate) if against else "–", style=_style(effect)),
        Cell(text.between(against.ratio) if against else "–", style="" if effect else "dim"),
        Cell(
            str(effect.verdict) if effect else "A/A" if row.is_baseline and group.noise else "–",
            style=_style(effect),
        ),
        Cell(text.plus_minus(group.floor(tables.THROUGHPUT)), style="dim"),
        *(
            Cell(text.milliseconds(found.estimate if (found := latencies.get(p)) else None))
            for p in LATENCIES
        ),
        Cell(span(effect.needed) if effect and effect.needed else "", style="dim"),
    ]


def _style(effect: Effect | None) -> str:
    styles = {"better": "green", "worse": "red", "equivalent": "blue", "unsure": "yellow"}
    return styles[text.CHIP[effect.verdict]] if effect else "dim"


def _operations(view: View, group: tables.Group) -> Table:
    """The workload's customary figure, and how long each kind of operation takes."""
    figure = tables.FIGURES.get(view.design.workload.kind)
    columns = [Column("p90 ms")]
    columns += [Column(figure.name.replace(" ", "\n"), "n")] if figure else []
    columns += [Column(name, "n") for name in view.analysis.operations]
    rows = []
    for row in group.rows:
        shares = tables.shares(view.analysis, row.treatment)
        rate = tables.per_minute(view.design, shares)
        cells = [Cell(text.count(rate.estimate if rate else None))] if figure else []
        for share in shares:
            found = share.summary.latency_ns.get("p90") if share.summary else None
            cells.append(Cell(text.milliseconds(found.estimate if found else None)))
        rows.append([Cell(row.configuration, style="" if row.is_baseline else "bold"), *cells])
    return Table(columns, rows)


# -- JSON -------------------------------------------------------------------------------------------------------


def _treatment(view: View, group: tables.Group, row: tables.ResultRow) -> Mapping[str, object]:
    summary, shares = row.summary, tables.shares(view.analysis, row.treatment)
    rate, figure = tables.per_minute(view.design, shares), tables.FIGURES.get(view.design.workload.kind)
    return {
        "treatment": row.treatment,
        "configuration": row.configuration,
        "condition": group.condition,
        "is_baseline": row.is_baseline,
        "trials": summary.trials if summary else [],
        "latency_kind": summary.latency_kind if summary else None,
        **_numbers(summary),
        "missing": row.missing,
        "shares": [{"operation": s.operation, **_numbers(s.summary)} for s in shares if s.summary],
        "per_minute": {"name": figure.name, "operation": figure.operation, "rate": rate}
        if figure and rate
        else None,
    }


def _numbers(summary: TreatmentSummary | None) -> Mapping[str, object]:
    return {
        "operations": summary.operations if summary else 0,
        "errors": summary.errors if summary else 0,
        "throughput_ops_s": summary.throughput_ops_s if summary else None,
        "latency_ns": summary.latency_ns if summary else {},
    }
