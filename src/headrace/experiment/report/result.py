"""Which configuration is faster: throughput, and its ratio to the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from headrace.base.counted import counted
from headrace.base.effect import Effect, NoiseFloor, Verdict
from headrace.base.intervals import TOO_WIDE, Interval
from headrace.experiment.report import tables
from headrace.experiment.report.charts.trials import scaling
from headrace.experiment.report.effects import figures
from headrace.experiment.report.looks import line_styles
from headrace.experiment.report.view import View
from headrace.show import charts, text
from headrace.show.parts import (
    Box,
    Chart,
    Heading,
    Key,
    Legend,
    Marks,
    Note,
    Part,
    Row,
    Section,
    Switch,
    When,
)

#: Responses that a reader can switch the ratio chart to.
RATIO_RESPONSES = ("throughput", "p50", "p95", "p99", "p99.9")

NO_RATIO = "No ratio yet: it needs a block with both the treatment and its baseline."


def section(view: View) -> Section:
    return Section(
        "result",
        "Result",
        "Which configuration is faster?",
        lambda: _parts(view),
        f"Left: throughput, each with a {view.confidence} interval of its own, not adjusted for comparisons: "
        "whether two configurations differ is on the right. Right: the ratio to the baseline, paired by block. "
        "An interval that excludes the dotted line at 1 is a difference; it is adjusted for all comparisons. The "
        "grey band is the noise floor: how much two runs of the baseline differ.",
        data={
            "effects": [_effect(g, e) for g in view.groups for row in g.rows for e in row.effects.values()],
            "noise": view.analysis.noise,
        },
    )


def _effect(group: tables.Group, effect: Effect) -> dict[str, object]:
    shown = (
        "treatment",
        "baseline",
        "condition",
        "response",
        "ratio",
        "verdict",
        "blocks",
        "blocks_least",
        "blocks_needed",
    )
    found: dict[str, object] = {name: getattr(effect, name) for name in (*shown, "comparisons")}
    return found | {"noise_floor": group.floor(effect.response)}


def keys(view: View) -> Iterator[Key]:
    """The key figures; with several conditions, those of the condition with the largest effect."""
    bests = [(g, b) for g in view.groups if (b := tables.best(g.rows))]
    if bests:
        group, row = max(bests, key=lambda x: tables.merit(x[1]))
        where = f" at {group.condition}" if group.condition else ""
        yield _key("Throughput", row, row.effects[tables.THROUGHPUT], where)
        if "p99" in row.effects:
            yield _key("p99 latency", row, row.effects["p99"], where)
        yield _noise_key(group.noise.get(tables.THROUGHPUT))
    states = [r.state.value for r in view.records]
    planned = len(view.design.trials)
    aside = [f"{states.count(s)} {s}" for s in ("invalid", "failed") if s in states]
    aside += [f"{left} not run yet"] if (left := planned - len(states)) else []
    analysed = len({n for s in view.analysis.summaries for n in s.trials})
    note = ", ".join(aside) or "all complete"
    yield Key("Trials analysed", f"{analysed} of {planned}", note, "attention" if aside else "")


def _key(title: str, row: tables.ResultRow, effect: Effect, where: str) -> Key:
    name = f"{title}, {text.short(row.configuration, 60)}{where}"
    between = text.between(effect.ratio)
    if effect.verdict is Verdict.NOT_ENOUGH_DATA:
        # A number in large type is quoted without its interval.
        return Key(
            name, between if between in ("–", TOO_WIDE) else f"{between} ×", str(effect.verdict), "unsure"
        )
    note = f"{between} · {effect.verdict}"
    return Key(name, f"{text.ratio(effect.ratio.estimate)} ×", note, text.CHIP[effect.verdict])


def _noise_key(noise: NoiseFloor | None) -> Key:
    title = "Noise floor (A/A)"
    if noise is None:
        return Key(title, "–", "no block has both baseline trials")
    said = f"baseline against itself: {text.ratio(noise.ratio.estimate)} ({text.between(noise.ratio)})"
    return Key(title, text.plus_minus(noise.floor), said)


def _parts(view: View) -> Iterator[Part]:
    if view.together:
        yield Note(" ".join(view.together))
    yield from (Note(sentence) for sentence in view.between_machines)
    yield from (Note(f"Caution: {caution}.", is_attention=True) for caution in view.cautions)
    factors = [figures.forest(s) for s in view.analysis.studies if s.response == tables.THROUGHPUT]
    yield from (chart for chart in factors if chart)
    present = {e.response for e in view.analysis.effects}
    responses = [r for r in RATIO_RESPONSES if r in present]
    switch: list[Part] = [Switch("response", "Compare by", responses)] if len(responses) > 1 else []
    yield Box("controls", [*switch, Marks(_legend(view))])
    tops = [
        i.high if i.high is not None else i.estimate
        for g in view.groups for r in g.rows if r.summary for i in [r.summary.throughput_ops_s]
    ]  # fmt: skip
    for group in view.groups:
        if group.condition:
            yield Heading(group.condition, "condition")
        bars = [_bar(r) for r in group.rows]
        ratios: list[Part] = [
            When("response", r, [Chart(_ratios(view, group, r))], is_hidden=r != responses[0])
            for r in responses
        ]
        left = Chart(charts.ladder(bars, "throughput [operations/s]", max(tops, default=1.0)))
        yield Row([left, Box("ratios", ratios or [Note(NO_RATIO)])])
    yield from _scaling(view)


def _legend(view: View) -> Legend:
    return [
        ("better", "@{better}", "●"),
        ("worse", "@{worse}", "■"),
        (f"equivalent within {round(100 * view.analysis.equivalence, 1)}%", "@{equivalent}", "◆"),
        ("not enough data", "@{unsure}", "○"),
        ("noise floor", "@{noise}", "band"),
    ]


def _bar(row: tables.ResultRow) -> charts.Row:
    if row.summary is None:
        return charts.Row(f"{row.configuration} (none)", None, "@{muted}")
    effect = row.effects.get(tables.THROUGHPUT)
    colour = "@{muted}" if row.is_baseline or effect is None else charts.verdict_mark(effect)[0]
    found = row.summary.throughput_ops_s
    said = f"{text.between(found, text.count)}, {counted(len(row.summary.trials), 'trial')}"
    hint = charts.hint(row.configuration, f"{text.count(found.estimate)} operations/s", said)
    return charts.Row(row.configuration, found, colour, hint=hint)


def _ratios(view: View, group: tables.Group, response: str) -> dict[str, object]:
    span = charts.ratio_span(
        [r.effects[response].ratio for g in view.groups for r in g.rows if response in r.effects],
        max((g.floor(response) or 0.0 for g in view.groups), default=0.0),
    )
    better = "higher is better" if response == tables.THROUGHPUT else "lower is better"
    title = f"{response} relative to {text.short(group.baseline_configuration)} ({better})"
    rows = [_ratio_row(group, row, response) for row in group.rows]
    return charts.ratios(rows, title, group.floor(response), span)


def _ratio_row(group: tables.Group, row: tables.ResultRow, response: str) -> charts.Row:
    if row.is_baseline and response in group.noise:
        return charts.noise_row(group.noise[response], row.configuration)
    effect = row.effects.get(response)
    if effect is None:
        return charts.Row(row.configuration, None, "@{muted}")
    colour, symbol = charts.verdict_mark(effect)
    ratio = f"{text.ratio(effect.ratio.estimate)} ({text.between(effect.ratio)})"
    hint = charts.hint(row.configuration, ratio, f"{effect.verdict}, {counted(effect.blocks, 'block')}")
    return charts.Row(row.configuration, effect.ratio, colour, symbol, hint)


def _scaling(view: View) -> Iterator[Part]:
    """Throughput over a numeric condition (threads), if the conditions are numeric."""
    named = [g.condition.split("=", 1) for g in view.groups]
    if len(named) < 2 or any(len(p) != 2 or " " in p[1] or not _is_number(p[1]) for p in named):
        return
    if len({p[0] for p in named}) != 1:
        return
    factor, order = named[0][0], sorted(range(len(named)), key=lambda i: float(named[i][1]))
    names = [r.configuration for r in sorted(view.groups[0].rows, key=lambda r: not r.is_baseline)]
    by_place = {(g.condition, r.configuration): r for g in view.groups for r in g.rows}
    styles = line_styles(names, view.groups[0])
    lines: list[tuple[str, str, str, Sequence[Interval | None]]] = []
    for name in names:
        rows = [by_place.get((view.groups[i].condition, name)) for i in order]
        found = [r.summary.throughput_ops_s if r and r.summary else None for r in rows]
        lines.append((name, styles[name].colour, styles[name].dash, found))
    figure = scaling([named[i][1] for i in order], factor, "throughput [operations/s]", lines)
    see = f"If a line bends down, additional {factor} only wait for each other."
    legend = [(n, styles[n].colour, styles[n].dash) for n in names if styles[n].is_telling]
    yield Chart(figure, f"Throughput by {factor}", see, legend)


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False
