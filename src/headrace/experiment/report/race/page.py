"""A race's report: the remaining treatments, when and by which the others were eliminated, and trials saved.

``report.json``: format, headrace, experiment, is_over, trials, full_trials and same_trials (all treatments in all
blocks of the plan, and in the blocks that the race ran), seconds, full_seconds, same_seconds, measured_again,
races[] (condition, headline, blocks, is_decided, leader, survivors[] (not proven worse), interchangeable[] (of
those, within the margin of the best with confidence), deviation, standings[]), cautions[], notice and versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace import __version__
from headrace.base.counted import counted
from headrace.experiment.report import tables
from headrace.experiment.report.charts import decisions
from headrace.experiment.report.race.view import View
from headrace.experiment.report.trials import STATE_CHIP
from headrace.experiment.stats.race import Race, RaceStatus
from headrace.experiment.stats.trials import THROUGHPUT
from headrace.experiment.store import ExperimentFolder
from headrace.show import charts, text
from headrace.show.notice import Conclusion, Notice
from headrace.show.parts import (
    Cell,
    Chart,
    Gap,
    Heading,
    Key,
    Note,
    Page,
    Part,
    Section,
    Sentence,
    Span,
    Table,
    method,
)

FORMAT_VERSION = 1

_KEPT = ("name", "description", "kind", "seed", "alpha", "equivalence", "response", "workload", "hash")


def of_folder(folder: ExperimentFolder) -> Page:
    return page_of(View(folder))


def page_of(view: View) -> Page:
    races, design = view.progress.races, view.folder.design
    return Page(
        eyebrow="headrace race",
        title=design.name,
        lead=design.description,
        verdicts=[view.headline(c, race) for c, race in races.items()] or ["No block is complete yet."],
        keys=list(_keys(view)),
        cautions=tables.cautions(view.records),
        sections=[
            *(_standing_section(view, i, c, race) for i, (c, race) in enumerate(races.items())),
            _blocks_section(view),
            _trials_section(view),
            _method_section(view),
        ],
        footer="the numbers are in report.json, the data is next to it as Parquet",
        data={
            "format": FORMAT_VERSION,
            "headrace": __version__,
            "experiment": {key: design.to_json()[key] for key in _KEPT},
            "is_over": view.progress.is_over,
            "trials": len(view.records),
            "full_trials": view.full_trials,
            "same_trials": view.same_trials,
            "seconds": view.seconds,
            "full_seconds": view.full_seconds,
            "same_seconds": view.same_seconds,
            "measured_again": sum(len(r.earlier) for r in view.records),
            "races": [_json(view, condition, race) for condition, race in races.items()],
            "cautions": tables.cautions(view.records),
            "versions": tables.versions(view.records),
        },
        notice=_notice(view),
    )


def _notice(view: View) -> Notice:
    races, more = view.progress.races, view.more
    is_decided = bool(races) and all(race.is_decided and race.survivors for race in races.values())
    return Notice(
        kind="race",
        subject=view.folder.design.name,
        conclusion=Conclusion.DECIDED if is_decided else Conclusion.NOT_ENOUGH_DATA,
        headline=" ".join(view.headline(c, race) for c, race in races.items()) or "No block is complete yet.",
        next=f"{more.command}\n" if more else "",
        link=str(view.folder.path / "report.html"),
    )


def _json(view: View, condition: str, race: Race) -> dict[str, object]:
    shown = ("blocks", "is_decided", "leader", "survivors", "interchangeable", "deviation", "standings")
    found: dict[str, object] = {name: getattr(race, name) for name in shown}
    return {"condition": condition, "headline": view.headline(condition, race), **found}


def outcome(standing: RaceStatus, race: Race) -> str:
    """Why it remains, or when it was eliminated and by which."""
    if standing.is_failed:
        return f"failed in block {standing.dropped_after}"
    if standing.dropped_after is None:
        is_equal = standing.treatment in race.interchangeable
        return "remains: within the margin of the best" if is_equal else "remains: not proven worse"
    return f"eliminated after block {standing.dropped_after} by {standing.dropped_by}"


def ordered(race: Race) -> list[RaceStatus]:
    """The remaining treatments by mean, then the eliminated ones, latest first."""
    place = {name: i for i, name in enumerate(race.survivors)}
    return sorted(race.standings, key=lambda s: (place.get(s.treatment, len(place)), -(s.dropped_after or 0)))


def _keys(view: View) -> Iterator[Key]:
    for condition, race in view.progress.races.items():
        where = f" at {condition}" if condition else ""
        kind = "better" if race.is_decided and race.survivors else ""
        note = "decided" if race.is_decided else "not decided"
        yield Key(
            f"Leader{where}",
            text.short(race.leader or "–"),
            f"{note} after {counted(race.blocks, 'block')}",
            kind,
        )
        started = len(race.standings)
        yield Key(
            f"Remaining{where}",
            f"{len(race.survivors)} of {started}",
            f"{started - len(race.survivors)} eliminated",
        )
        yield Key(
            f"Noise of a trial{where}",
            text.plus_minus(race.deviation or None),
            "within a block, all treatments",
        )
    ran, full = len(view.records), view.full_trials
    part = f"{100 * ran / full:.0f}% of {full}" if full else ""
    yield Key("Trials", str(ran), f"{part}, the full study")
    if view.seconds:
        yield Key("Time", text.seconds(view.seconds), f"instead of about {text.seconds(view.full_seconds)}")


def _standing_section(view: View, i: int, condition: str, race: Race) -> Section:
    where = f" at {condition}" if condition else ""
    alpha, margin = view.folder.design.alpha, view.folder.design.equivalence
    if not race.standings:
        return Section(
            f"race{i}", f"Result{where}", f"Which remain{where}?", [Note("Nothing could be measured.")]
        )
    shown = ordered(race)
    rows = [_row(s, race) for s in shown]
    found = [row.interval for row in rows if row.interval]
    title = f"{view.response} / the leader's (log scale)"
    chart = Chart(
        charts.ratios(rows, title, margin, charts.ratio_span(found, margin)),
        see=(
            "Each relative to the leader, in the blocks that both ran. Eliminated treatments are at their "
            "last measured value; the band is the margin within which differences do not matter."
        ),
        legend=[
            ("leader", "@{accent}", "★"),
            ("remains", "@{unsure}", "◆"),
            ("eliminated: worse with confidence", "@{worse}", "■"),
            (f"margin, {100 * margin:g}%", "@{noise}", "band"),
        ],
    )
    each = 100 * (1 - 2 * alpha / max(len(race.standings) - 1, 1))
    words = (
        f"An elimination of the best has a probability of at most {100 * alpha:g}%, over all treatments and all "
        f"interim looks. An interval compares with the leader of this moment: at {each:.3g}% for a given pair and "
        "all looks, but the leader was selected from the same data, so the table's intervals do not hold jointly."
    )
    table = _table(view, race, shown)
    parts = [chart, table, *(_more(view) if i == 0 else ())]
    brief: list[Part] = [*([Heading(condition)] if condition else []), table, Gap()]
    return Section(f"race{i}", f"Result{where}", f"Which remain{where}?", parts, words, brief)


def _more(view: View) -> list[Part]:
    """The command that may decide it, and how long that takes."""
    if not (more := view.more):
        return []
    took = f" (about {text.seconds(more.seconds)})" if more.seconds else ""
    what = (
        f"To decide it with about {counted(more.blocks, 'more block')}"
        if more.is_enough
        else "To run as many blocks again"
    )
    return [Sentence([f"{what}{took}, with the same promise: ", Span(more.command, "code")])]


def _row(standing: RaceStatus, race: Race) -> charts.Row:
    is_leader = standing.treatment == race.leader
    colour, symbol = "@{unsure}", "diamond"
    if is_leader:
        colour, symbol = "@{accent}", "star"
    elif standing.dropped_after is not None:
        colour, symbol = "@{worse}", "square"
    said = [outcome(standing, race)]
    if standing.to_leader:
        found = standing.to_leader
        said.append(f"{text.ratio(found.estimate)} of the leader's ({text.between(found)})")
    return charts.Row(
        standing.treatment, standing.to_leader, colour, symbol, charts.hint(standing.treatment, *said)
    )


def _table(view: View, race: Race, shown: Sequence[RaceStatus]) -> Table:
    is_latency = view.response != THROUGHPUT
    unit = f"{view.response}, ms" if is_latency else "ops/s"
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
                Cell("leads" if s.treatment == race.leader else outcome(s, race), chip, look="wide"),
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
    return Table(columns, rows, is_stacked=True)


def _blocks_section(view: View) -> Section:
    promise = (
        f"The best is eliminated with probability at most {100 * view.folder.design.alpha:g}%, "
        "whenever the race stops. The leader's mean is optimistically biased, because it was selected: measure it "
        "again against your current settings."
    )
    brief: list[Part] = [*_more(view), Sentence(view.saved()), Sentence(promise)]
    brief += [Sentence(f"Caution: {c}.", "attention") for c in tables.cautions(view.records)]
    if not view.progress.races:
        return Section("blocks", "", "", brief=brief)
    ran = [len(names) for names in view.progress.runners]
    everyone = len(view.folder.design.treatments)
    blocks = view.folder.design.blocks
    left: dict[int, list[str]] = {}
    for race in view.progress.races.values():
        for s in race.standings:
            if s.dropped_after is not None:
                left.setdefault(s.dropped_after, []).append(s.treatment)
    parts = [
        Chart(
            decisions.blocks(ran, everyone, blocks, left),
            legend=[
                ("trials of the block", "@{accent}", "■"),
                ("not run: saved by the race", "@{noise}", "■"),
            ],
        )
    ]
    return Section("blocks", "Blocks", "What did it save?", parts, view.saved(), brief)


def _trials_section(view: View) -> Section:
    rows = []
    for r in tables.executed(view.records):
        seconds = (r.window_end_ns - r.window_start_ns) / 1e9
        why = "; ".join([*([r.reason] if r.reason else []), *r.warnings])
        state = Cell(str(r.state), STATE_CHIP[r.state])
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
        [Table(columns, rows, f"All {counted(len(rows), 'trial')} in the order they ran", True)],
    )


def _method_section(view: View) -> Section:
    design = view.folder.design
    alpha, margin = 100 * design.alpha, 100 * design.equivalence
    return Section(
        "method",
        "Method",
        "How to read it",
        [
            method(
                (
                    (
                        "A race runs block by block,",
                        "each treatment once per block in random order. A treatment that is worse "
                        "than another with confidence is eliminated and costs no more trials.",
                    ),
                    (
                        "The promise:",
                        f"the best is eliminated with probability at most {alpha:g}%, whenever the race "
                        "stops: every interim look spends part of it, and all of them together no more.",
                    ),
                    (
                        "It ends",
                        "when one remains, or when none of those that remain is, with confidence, better than "
                        f"the leader by more than {margin:g}%. Those that remain are not proven worse, which "
                        f"does not make them equal: only of those within {margin:g}% of the best take the "
                        "simplest.",
                    ),
                    (
                        "The leader's mean is optimistically biased",
                        "because it was selected: measure it again against your current "
                        "settings before you promise a number.",
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
