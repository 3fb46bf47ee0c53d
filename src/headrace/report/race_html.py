"""A race's ``report.html``: who stands, who left when and by whom, and what it saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.analysis.race import Race, Standing
from headrace.analysis.trials import THROUGHPUT
from headrace.model import TrialState
from headrace.report import charts, decision_charts, tables, text
from headrace.report.page import Cell, Chart, Key, Method, Note, Page, Section, Table, render

if TYPE_CHECKING:
    from headrace.report.race import RaceReport

_STATE_CHIP = {TrialState.COMPLETE: "", TrialState.INVALID: "unsure", TrialState.FAILED: "worse"}


def page_of(report: RaceReport) -> str:
    """The page as text."""
    races = report.progress.races
    sections = [
        *(_standing_section(report, i, c, race) for i, (c, race) in enumerate(races.items())),
        *([_blocks_section(report)] if races else []),
        _trials_section(report),
        _method_section(report),
    ]
    design = report.folder.design
    return render(
        Page(
            eyebrow="headrace race",
            title=design.name,
            lead=design.description,
            verdicts=[report.headline(c, race) for c, race in races.items()] or ["No block is complete yet."],
            keys=list(_keys(report)),
            cautions=tables.cautions(report.records),
            sections=sections,
            footer="the numbers are in report.json, the data beside it as Parquet",
        )
    )


def fate(standing: Standing) -> str:
    """Whether it stands, or when it left and who beat it."""
    if standing.is_failed:
        return f"failed in block {standing.dropped_after}"
    if standing.dropped_after is None:
        return "stands"
    return f"left after block {standing.dropped_after}, beaten by {standing.dropped_by}"


def ordered(race: Race) -> list[Standing]:
    """Those that stand by their mean, then those that left, the last to leave first."""
    place = {name: i for i, name in enumerate(race.survivors)}
    return sorted(race.standings, key=lambda s: (place.get(s.treatment, len(place)), -(s.dropped_after or 0)))


def _keys(report: RaceReport) -> Iterator[Key]:
    for condition, race in report.progress.races.items():
        where = f" at {condition}" if condition else ""
        kind = "better" if race.is_decided and race.survivors else ""
        note = "decided" if race.is_decided else "not decided"
        yield Key(
            f"Leader{where}", text.short(race.leader or "–", 40), f"{note} after {race.blocks} blocks", kind
        )
        started = len(race.standings)
        yield Key(
            f"Stand{where}", f"{len(race.survivors)} of {started}", f"{started - len(race.survivors)} left"
        )
        yield Key(
            f"Noise of a trial{where}",
            text.plus_minus(race.deviation or None),
            "within a block, all together",
        )
    ran, full = len(report.records), report.full_trials
    part = f"{100 * ran / full:.0f}% of {full}" if full else ""
    yield Key("Trials", str(ran), f"{part}, which all in all blocks would be")
    if report.seconds:
        yield Key(
            "Time", text.seconds(report.seconds), f"in place of about {text.seconds(report.full_seconds)}"
        )


def _standing_section(report: RaceReport, i: int, condition: str, race: Race) -> Section:
    where = f" at {condition}" if condition else ""
    alpha, margin = report.folder.design.alpha, report.folder.design.equivalence
    if not race.standings:
        return Section(
            f"race{i}", f"Result{where}", f"Who stands{where}?", [Note("Nothing could be measured.")]
        )
    shown = ordered(race)
    rows = [_row(s, race) for s in shown]
    found = [row.interval for row in rows if row.interval]
    title = f"{report.response} / the leader's (log scale)"
    chart = Chart(
        charts.ratios(rows, title, margin, charts.ratio_span(found, margin)),
        see="Each against the leader, in the blocks that both ran. What left lies where it stood when it was last "
        "measured; the band is the margin within which differences do not matter.",
        legend=[
            ("leader", "@{accent}", "★"),
            ("stands", "@{unsure}", "◆"),
            ("left: worse with confidence", "@{worse}", "■"),
            (f"margin, {100 * margin:g}%", "@{noise}", "band"),
        ],
    )
    words = f"The intervals hold for all treatments and all looks together, at {100 * (1 - alpha):g}%."
    return Section(
        f"race{i}", f"Result{where}", f"Who stands{where}?", [chart, _table(report, race, shown)], see=words
    )


def _row(standing: Standing, race: Race) -> charts.Row:
    is_leader = standing.treatment == race.leader
    colour, symbol = "@{unsure}", "diamond"
    if is_leader:
        colour, symbol = "@{accent}", "star"
    elif standing.dropped_after is not None:
        colour, symbol = "@{worse}", "square"
    hint = f"<b>{charts.label(standing.treatment)}</b>: {charts.label(fate(standing))}"
    if standing.to_leader:
        found = standing.to_leader
        hint += f"<br>{text.ratio(found.estimate)} of the leader's ({text.between(found)})"
    return charts.Row(standing.treatment, standing.to_leader, colour, symbol, hint)


def _table(report: RaceReport, race: Race, shown: Sequence[Standing]) -> Table:
    is_latency = report.response != THROUGHPUT
    unit = f"{report.response}, ms" if is_latency else "operations/s"
    rows = []
    for s in shown:
        chip = "better" if s.treatment == race.leader else "unsure" if s.dropped_after is None else "worse"
        interval = (
            "leader" if s.treatment == race.leader else text.between(s.to_leader) if s.to_leader else "–"
        )
        rows.append(
            (
                s.treatment,
                str(s.blocks),
                text.milliseconds(s.mean) if is_latency else text.count(s.mean),
                text.ratio(s.to_leader.estimate if s.to_leader else None),
                interval,
                Cell("leads" if s.treatment == race.leader else fate(s), chip),
            )
        )
    columns = (
        ("treatment", ""),
        ("blocks", "n"),
        (unit, "n"),
        ("/ leader", "n"),
        ("interval", "n"),
        ("", ""),
    )
    return Table(columns, rows)


def _blocks_section(report: RaceReport) -> Section:
    ran = [len(names) for names in report.progress.runners]
    everyone = len(report.folder.design.treatments)
    blocks = report.folder.design.blocks
    left: dict[int, list[str]] = {}
    for race in report.progress.races.values():
        for s in race.standings:
            if s.dropped_after is not None:
                left.setdefault(s.dropped_after, []).append(s.treatment)
    parts = [
        Chart(
            decision_charts.blocks(ran, everyone, blocks, left),
            legend=[
                ("trials of the block", "@{accent}", "■"),
                ("not run: the race saved them", "@{noise}", "■"),
            ],
        )
    ]
    return Section("blocks", "Blocks", "What did it save?", parts, see=report.saved())


def _trials_section(report: RaceReport) -> Section:
    rows = []
    for r in tables.executed(report.records):
        seconds = (r.window_end_ns - r.window_start_ns) / 1e9
        why = "; ".join([*([r.reason] if r.reason else []), *r.warnings])
        state = Cell(str(r.state), _STATE_CHIP.get(r.state, ""))
        rows.append(
            (str(r.number), str(r.block), r.treatment, state, text.seconds(seconds) if seconds else "–", why)
        )
    columns = (
        ("trial", ""),
        ("block", "n"),
        ("treatment", ""),
        ("state", ""),
        ("measured", "n"),
        ("notes", "wrap"),
    )
    return Section(
        "trials",
        "Trials",
        "Trials",
        [Table(columns, rows, f"All {len(rows)} trials in the order they ran", True)],
    )


def _method_section(report: RaceReport) -> Section:
    design = report.folder.design
    alpha, margin = 100 * design.alpha, 100 * design.equivalence
    return Section(
        "method",
        "Method",
        "How to read it",
        [
            Method(
                (
                    (
                        "A race runs block by block,",
                        "each treatment once a block in a random order. Whoever is worse "
                        "than another with confidence leaves and costs no more trials.",
                    ),
                    (
                        "The promise:",
                        f"the best is dropped with probability {alpha:g}% at most, whenever the race "
                        "stops: every look spends its own part of that, and all looks together no more.",
                    ),
                    (
                        "It ends",
                        "when one is left, or when with confidence none of those that stand is better than the "
                        f"leader by more than {margin:g}%. These are not told apart: take whichever is simplest.",
                    ),
                    (
                        "The leader's mean is flattered",
                        "by having been chosen: measure it once more beside what you "
                        "have before you promise a number to anybody.",
                    ),
                    (
                        "Sources:",
                        "Even-Dar, Mannor and Mansour 2006, JMLR 7 (successive elimination); Smyth 2004, "
                        "Stat. Appl. Genet. Mol. Biol. 3 (the moderated t test).",
                    ),
                )
            )
        ],
    )
