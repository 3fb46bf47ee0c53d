"""Which configuration to choose, in words, tables and figures; shared by experiments and imported tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from headrace.base.counted import counted
from headrace.base.intervals import Interval, span
from headrace.experiment.report.charts import decisions as decision_charts
from headrace.experiment.stats.decision import Best, Certainty, Decision, Front, Robust
from headrace.show import charts, text
from headrace.show.parts import Cell, Chart, Column, Gap, Heading, Part, Row, Sentences, Table

#: Names that a sentence lists before counting the rest.
MOST_NAMES = 5

#: A leader that may have less than this share of the best is no leader to speak of.
LEAST_SAID = 0.5

#: Rows of a chart or an unfolded table: the first in rank.
MOST_ROWS = 12

#: Questions with their own chart.
MOST_CHARTS = 8


def sentences(decision: Decision) -> list[str]:
    """One for each question, each pair of objectives, and each choice over several questions."""
    found = [*(_robust_words(r, decision.margin) for r in decision.robusts)]
    found += [_best_words(b, decision.margin) for b in decision.bests]
    return found + [_front_words(f) for f in decision.fronts]


def _best_words(best: Best, margin: float) -> str:
    name, what = best.leader.name, best.question.name
    left = best.question.left_out
    out = f" Not enough data to include {_names(left)}." if left else ""
    if best.certainty is Certainty.SURE:
        after = best.candidates[1]
        return f"{name} has the best {what}; {after.name} is next, at {_kept(after.kept)} of it.{out}"
    if best.certainty is Certainty.WITHIN:
        least = _percent(best.leader.kept.low if best.leader.kept else None)
        return (
            f"{name} is within {100 * margin:g}% of the best {what}: it reaches at least {least} of it. "
            f"Indistinguishable from it: {_names(best.rivals)}.{out}"
        )
    if best.leader.may_be_best is None:
        near = sum(c.kept is not None and c.kept.estimate >= 1 / (1 + margin) for c in best.candidates[1:])
        within = (
            f"{near or 'none'} of {counted(len(best.candidates) - 1, 'other')} within {100 * margin:g}% of it"
        )
        return (
            f"Not enough data to say which has the best {what}: {name} is first "
            f"({text.count(best.leader.mean)}), {within}, and without repeats the noise is "
            f"unknown.{out}"
        )
    needed = (
        f" About {span(best.blocks_needed)} blocks in total would settle it." if best.blocks_needed else ""
    )
    unknown = f"Not enough data to say which has the best {what}: {name} leads"
    if best.leader.kept is None or best.leader.kept.low is None:
        return f"{unknown}.{needed}{out}"
    least = f", with at least {_percent(best.leader.kept.low)} of the best"
    if best.leader.kept.low < LEAST_SAID:
        # What may be so much worse is not said to be anything.
        least = ""
    if best.question.is_paired:
        needed = needed or " No plan of this size will tell."
    return f"{unknown}{least}; {_names(best.rivals)} may be better.{needed}{out}"


def _front_words(front: Front) -> str:
    a, b = front.responses
    where = f" at {front.condition}" if front.condition else ""
    points = [
        f"{n} ({text.count(front.points[n][0])}, {text.count(front.points[n][1])})" for n in front.members
    ]
    said = f"Nothing beats {_names(points)} on both {a} and {b}{where}"
    if front.beaten is None:
        return f"{said}; not enough data to say how certain that is."
    unsure = [n for n in front.points if n not in front.members and n not in front.beaten]
    return f"{said}; {_names(unsure)} may match it." if unsure else f"{said}; all others are worse."


def _robust_words(robust: Robust, margin: float) -> str:
    first, what = robust.order[0], "the best" if robust.is_higher_better else "the best latency"
    overall = "The best overall" if robust.is_higher_better else "The best overall in latency"
    said = (
        f"{overall} is {first.name}: across {len(robust.questions)} questions it keeps "
        f"{_kept(first.worst)} of {what} in its worst case ({first.where}), and {_percent(first.mean)} on "
        "average"
    )
    left = f" Not measured for all of them: {_names(robust.left_out)}." if robust.left_out else ""
    if robust.certainty is Certainty.SURE:
        return f"{said}; all others lose more.{left}"
    if robust.certainty is Certainty.WITHIN:
        near = f"within {100 * margin:g}% of the best everywhere"
        return f"{said}: {near}. Indistinguishable: {_names(robust.rivals)}.{left}"
    if first.worst.low is None:
        return f"{said}. Not enough data to say how certain that is.{left}"
    return f"{said}. Not enough data to distinguish it from {_names(robust.rivals)}.{left}"


def _names(found: Sequence[str]) -> str:
    shown = ", ".join(found[:MOST_NAMES])
    more = len(found) - MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown or "none"


def _percent(value: float | None) -> str:
    if value is None:
        return "–"
    percent = 100 * value
    if percent > 99.95:
        return "100%"
    return f"{percent:.1f}%" if percent > 90 else f"{percent:.0f}%" if percent >= 9.5 else f"{percent:.2g}%"


def _kept(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    ends = "" if interval.low is None else f" ({text.between(interval, _percent)})"
    return f"{_percent(interval.estimate)}{ends}"


def to_json(decision: Decision) -> dict[str, Any]:
    return {
        "alpha": decision.alpha,
        "margin": decision.margin,
        "sentences": sentences(decision),
        "best": [
            {
                "response": b.question.response,
                "condition": b.question.condition,
                "is_higher_better": b.question.is_higher_better,
                "certainty": b.certainty.value,
                "leader": b.leader.name,
                "rivals": list(b.rivals),
                "blocks": b.blocks,
                "blocks_needed": b.blocks_needed.most if b.blocks_needed else None,
                "blocks_least": b.blocks_needed.least if b.blocks_needed else None,
                "left_out": list(b.question.left_out),
                "candidates": [asdict(c) for c in b.candidates],
            }
            for b in decision.bests
        ],
        "fronts": [
            {
                "condition": f.condition,
                "responses": list(f.responses),
                "members": list(f.members),
                "beaten": None if f.beaten is None else list(f.beaten),
                "points": {name: list(values) for name, values in f.points.items()},
            }
            for f in decision.fronts
        ],
        "robust": [
            {
                "questions": list(r.questions),
                "is_higher_better": r.is_higher_better,
                "certainty": r.certainty.value,
                "rivals": list(r.rivals),
                "left_out": list(r.left_out),
                "order": [asdict(e) for e in r.order],
            }
            for r in decision.robusts
        ],
    }


def brief(decision: Decision) -> list[Part]:
    """The sentences, and for each choice over several questions how much of the best the first candidates keep."""
    found: list[Part] = [Heading("Which one to choose"), Sentences(sentences(decision))]
    for robust in decision.robusts:
        questions = robust.questions[:6]
        columns = [Column("kept of the best"), Column("least", "n"), Column("mean", "n")]
        rows = [
            [own.name, _percent(own.worst.estimate), _percent(own.mean),
             *(_percent(own.kept[name].estimate) for name in questions)]
            for own in robust.order[:MOST_ROWS]
        ]  # fmt: skip
        found += [Gap(), Table([*columns, *(Column(name, "n") for name in questions)], rows)]
    return found


def parts(decision: Decision) -> list[Part]:
    """The page's parts: a chart for each question that has intervals."""
    found: list[Part] = [Sentences(sentences(decision))]
    known = [b for b in decision.bests if b.leader.kept and b.leader.kept.low is not None]
    if kept := [_kept_chart(b) for b in known[:MOST_CHARTS]]:
        found.append(Row(kept))
    if fronts := [_front_chart(f) for f in decision.fronts[:MOST_CHARTS]]:
        found.append(Row(fronts))
    for robust in decision.robusts:
        found += _robust_tables(robust)
    return found


def _kept_chart(best: Best) -> Chart:
    rows, seen = [], set()
    for i, candidate in enumerate(best.candidates[:MOST_ROWS]):
        look = "leads" if i == 0 else "may be the best" if candidate.may_be_best is not False else "beaten"
        seen.add(look)
        colour, symbol = _LOOKS[look]
        told = f"{text.count(candidate.mean)}, keeps {_kept(candidate.kept)}"
        hint = charts.hint(candidate.name, told)
        rows.append(charts.Row(text.short(candidate.name, 40), candidate.kept, colour, symbol, hint))
    span = charts.ratio_span([row.interval for row in rows if row.interval], None)
    way = "more is better" if best.question.is_higher_better else "less is better"
    more = len(best.candidates) - len(rows)
    return Chart(
        charts.ratios(rows, "share of the best value", None, span),
        f"{best.question.name} ({way})",
        f"The first {len(rows)} of {len(best.candidates)}; report.json has all." if more else "",
        [(look, colour, mark) for look, (colour, mark) in _MARKS.items() if look in seen],
    )


_LOOKS = {
    "leads": ("@{better}", "circle"),
    "may be the best": ("@{unsure}", "circle-open"),
    "beaten": ("@{muted}", "square"),
}
_MARKS = {
    "leads": ("@{better}", "●"),
    "may be the best": ("@{unsure}", "○"),
    "beaten": ("@{muted}", "■"),
}


def _front_chart(front: Front) -> Chart:
    points = []
    for name, (x, y) in front.points.items():
        kind = "front" if name in front.members else "other"
        if kind == "other" and front.beaten is not None and name not in front.beaten:
            kind = "broken"
        points.append((x, y, kind, charts.hint(name, f"{text.count(x)}, {text.count(y)}")))
    ways = zip(front.responses, front.is_higher_better, strict=True)
    way = [f"{response}, {'more' if up else 'less'} is better" for response, up in ways]
    kinds = {kind for _, _, kind, _ in points}
    legend = [
        ("none is better in both", "@{better}", "●"),
        ("may match it", "@{unsure}", "○"),
        ("another is better in both", "@{muted}", "●"),
    ]
    shown = [entry for entry, kind in zip(legend, ("front", "broken", "other"), strict=True) if kind in kinds]
    where = f" at {front.condition}" if front.condition else ""
    return Chart(
        decision_charts.front(points, *way),
        f"{front.responses[0]} against {front.responses[1]}{where}",
        legend=shown,
    )


def _robust_tables(robust: Robust) -> Iterator[Table]:
    rows: list[Sequence[str | Cell]] = []
    for i, own in enumerate(robust.order):
        state = Cell("best overall", "better") if i == 0 else Cell("indistinguishable", "unsure")
        if i and (robust.order[0].worst.low is None or own.name not in robust.rivals):
            state = Cell("") if robust.order[0].worst.low is None else Cell("loses more", "worse")
        each = [_percent(own.kept[name].estimate) for name in robust.questions]
        ends = text.between(own.worst, _percent)
        rows.append((own.name, state, _percent(own.worst.estimate), ends, _percent(own.mean), *each))
    columns = [("configuration", ""), ("", ""), ("least", "n"), ("interval", "n"), ("mean", "n")]
    columns += [(name, "n") for name in robust.questions]
    way = "" if robust.is_higher_better else " latency"
    title = f"Share of the best{way} that each keeps in every condition"
    yield Table(columns, rows[:MOST_ROWS], title, marked=frozenset({0}), is_stacked=True)
    if len(rows) > MOST_ROWS:
        yield Table(columns, rows, f"All {len(rows)}", is_folded=True, marked=frozenset({0}), is_stacked=True)


def first_words(decision: Decision) -> Iterator[tuple[str, str]]:
    """(name, what it keeps) of the best overall: the shortest form."""
    for robust in decision.robusts[:1]:
        first = robust.order[0]
        kept = f"keeps {_percent(first.worst.estimate)} of the best or more"
        yield first.name, f"{kept}, {_percent(first.mean)} on average"
