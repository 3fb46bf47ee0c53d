"""A tuning's ``report.html``: what was confirmed, which knobs mattered, and how the search went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.base.counted import counted
from headrace.base.effect import Effect, Verdict
from headrace.base.model import TrialState, Value
from headrace.experiment.kinds.search import Found, name_of
from headrace.experiment.report.charts import decisions as decision_charts
from headrace.experiment.report.tune import words
from headrace.experiment.stats.trials import THROUGHPUT
from headrace.experiment.tune import Confirmed, Tuned
from headrace.show import charts, text
from headrace.show.notice import Conclusion, Notice, Told
from headrace.show.parts import (
    Cell,
    Cells,
    Chart,
    Gap,
    Key,
    Note,
    Page,
    Part,
    Row,
    Section,
    Sentence,
    Table,
    method,
)

FORMAT_VERSION = 1

#: Maximum points of the search in a terminal.
SHOWN_POINTS = 10


def page_of(tuned: Tuned, title: str) -> Page:
    verdicts = [words.headline(tuned)]
    if lean := words.lean_sentence(tuned):
        verdicts.append(lean)
    return Page(
        eyebrow="headrace tune",
        title=title,
        verdicts=verdicts,
        keys=list(_keys(tuned)),
        sections=[_confirmed(tuned), _importance(tuned), _search(tuned), _points(tuned), _method(tuned)],
        footer="the numbers are in report.json, the trials in search and confirm",
        data={
            "format": FORMAT_VERSION,
            "headline": words.headline(tuned),
            "lean": words.lean_sentence(tuned),
            "objectives": tuned.table.objectives,
            "constraints": tuned.table.constraints,
            "advice": tuned.advice,
            "folder": tuned.folder,
        },
        notice=_notice(tuned, title),
    )


def _notice(tuned: Tuned, title: str) -> Notice:
    effects = [each for one in tuned.confirmed for each in one.effects.values()]
    open_ones = any(each.verdict is Verdict.NOT_ENOUGH_DATA for each in effects)
    # A candidate that is worse is no regression: nothing was changed.
    none_better = Conclusion.NOT_ENOUGH_DATA if open_ones else Conclusion.NOTHING_FOUND
    return Notice(
        kind="tune",
        subject=title,
        conclusion=Conclusion.BETTER if tuned.winner else none_better,
        headline=words.headline(tuned),
        effects=tuple(Told.of(each) for each in effects),
        link=str(tuned.folder / "report.html"),
    )


def is_latency(objective: str) -> bool:
    return objective != THROUGHPUT


def unit(objective: str) -> str:
    return f"{objective} [ms]" if is_latency(objective) else "operations/s"


def value(found: Found, objective: str) -> float | None:
    """The value in the unit above; None if the trial does not have it."""
    raw = found.response.value(objective) if found.response else None
    return raw / 1e6 if raw and is_latency(objective) else raw


def point_name(found: Found) -> str:
    return "AS-IS" if found.number == 1 else name_of(found.number)


def _keys(tuned: Tuned) -> Iterator[Key]:
    if tuned.winner is not None:
        for objective in tuned.table.objectives:
            effect = tuned.winner.effects.get(objective)
            if effect is not None:
                note = f"{text.between(effect.ratio)} · {effect.verdict}"
                name = f"{objective}, {tuned.winner.name}"
                yield Key(name, f"{text.ratio(effect.ratio.estimate)} ×", note, text.CHIP[effect.verdict])
    failed = sum(f.state is TrialState.FAILED for f in tuned.found)
    yield Key("Points tried", str(len(tuned.found)), f"{failed} failed" if failed else "none failed")
    if tuned.importance:
        name, share = max(tuned.importance.items(), key=lambda item: item[1])
        knob = tuned.table.knobs[name].knob.removeprefix("server.")
        yield Key("What matters most", f"{100 * share:.0f}%", f"{knob}; a hint")


def _confirmed(tuned: Tuned) -> Section:
    brief: list[Part] = []
    if tuned.winner is not None:
        rows = [(knob, _setting(value)) for knob, value in sorted(tuned.winner.settings.items())]
        brief += [Table((("knob", ""), ("value", "")), rows), Gap()]
    if tuned.confirmed:
        brief += [_effects(tuned), Gap(), *(Sentence(line, "attention") for line in words.broken(tuned))]
    return Section(
        "confirmed",
        "Confirmed",
        "Is it better than the current settings?",
        lambda: _confirmation(tuned),
        "Only this is a claim: the best points against the current settings, interleaved in blocks.",
        brief,
        {
            "winner": _json(tuned.winner) if tuned.winner else None,
            "confirmed": [_json(each) for each in tuned.confirmed],
        },
    )


def _json(found: Confirmed) -> dict[str, object]:
    return {
        "name": found.name,
        "settings": found.settings,
        "effects": list(found.effects.values()),
        "broken": found.broken,
        "failed": found.failed[0] if found.failed else 0,
    }


def _responses(tuned: Tuned) -> Iterator[tuple[str, list[tuple[Confirmed, Effect]]]]:
    """Each response with its confirmed candidates."""
    for response in dict.fromkeys((*tuned.table.objectives, THROUGHPUT, "p99")):
        if found := [(c, e) for c in tuned.confirmed if (e := c.effects.get(response)) is not None]:
            yield response, found


def _effects(tuned: Tuned) -> Table:
    rows: list[Cells] = []
    for response, found in _responses(tuned):
        for c, e in found:
            ratio, verdict = text.ratio(e.ratio.estimate), Cell(str(e.verdict), text.CHIP[e.verdict])
            rows.append((c.name, response, ratio, text.between(e.ratio), str(e.blocks), verdict))
    columns = (
        ("point", ""),
        ("response", ""),
        ("/ AS-IS", "n"),
        ("interval", "n"),
        ("blocks", "n"),
        ("verdict", ""),
    )
    return Table(columns, rows)


def _confirmation(tuned: Tuned) -> Iterator[Part]:
    if not tuned.confirmed:
        yield Note(
            "No point of the search looked better than the current settings: there was nothing to confirm."
        )
        return
    shown = []
    for response, found in _responses(tuned):
        lines = [_ratio_row(c.name, e) for c, e in found]
        span = charts.ratio_span([e.ratio for _, e in found], None)
        way = "less is better" if is_latency(response) else "more is better"
        figure = charts.ratios(lines, f"{response} / AS-IS ({way}, log scale)", None, span)
        shown.append(Chart(figure, response))
    yield Row(shown)
    yield from (Note(line, is_attention=True) for line in words.broken(tuned))
    yield _effects(tuned)
    yield _settings(tuned)


def _ratio_row(name: str, effect: Effect) -> charts.Row:
    colour, symbol = charts.verdict_mark(effect)
    said = f"{text.ratio(effect.ratio.estimate)} ({text.between(effect.ratio)}), {effect.verdict}"
    return charts.Row(name, effect.ratio, colour, symbol, charts.hint(name, said))


def _settings(tuned: Tuned) -> Table:
    """What each candidate sets, one knob per row."""
    names = [c.name for c in tuned.confirmed]
    every = sorted({knob for c in tuned.confirmed for knob in c.settings})
    rows = [
        (knob, *(_setting(c.settings[knob]) if knob in c.settings else "unchanged" for c in tuned.confirmed))
        for knob in every
    ]
    return Table([("knob", ""), *((name, "") for name in names)], rows, "What they set")


def _setting(found: Value) -> str:
    return text.setting(found)


def _importance(tuned: Tuned) -> Section:
    order = sorted(tuned.importance.items(), key=lambda item: -item[1])
    named = [(words.knob(tuned.table.knobs[name].knob), share) for name, share in order]
    data = {"importance": tuned.importance}
    if not named:
        return Section("matters", "", "", data=data)
    rows = [
        (knob, 100 * share, f"{100 * share:.0f}%", "@{accent}", charts.hint(knob, f"{100 * share:.1f}%"))
        for knob, share in named
    ]
    see = "How far each knob moves the response, estimated from the same trials: a hint, not a test."
    chart = Chart(decision_charts.bars(rows, "share [%]"))
    bars = [
        (knob, f"{100 * share:.0f}%", Cell("█" * round(30 * share) or "▏", style="cyan"))
        for knob, share in named
    ]
    brief: list[Part] = [Table((("knob", ""), ("matters", "n"), ("", "")), bars), Gap()]
    title = "Which knobs matter, and which could stay unchanged?"
    return Section("matters", "What matters", title, [chart], see, brief, data)


def _kind(found: Found) -> str:
    if found.number == 1:
        return "base"
    if found.state is TrialState.FAILED:
        return "failed"
    return "good" if found.seen is not None and found.seen.is_feasible else "broken"


_LEGEND = {
    "base": ("the current settings", "@{ink}", "◆"),
    "good": ("a point", "@{accent}", "●"),
    "broken": ("breaks a constraint, or was not evaluated", "@{unsure}", "○"),
    "failed": ("failed", "@{worse}", "✕"),
}


def _search(tuned: Tuned) -> Section:
    see = "One trial per point. These numbers only selected what was worth confirming."
    return Section(
        "search",
        "Search",
        "How the search went",
        lambda: _course(tuned),
        see,
        data={"front": [name_of(f.number) for f in tuned.front]},
    )


def _course(tuned: Tuned) -> Iterator[Part]:
    if not tuned.found:
        yield Note("No point was tried yet.")
        return
    shown = []
    for objective in tuned.table.objectives:
        points = [(f.number, value(f, objective), _kind(f), _hint(f, objective)) for f in tuned.found]
        # Points without a value are not drawn, except failed starts, at the bottom.
        points = [p for p in points if p[1] is not None or p[2] == "failed"]
        if not points:
            continue
        kinds = [_LEGEND[kind] for kind in _LEGEND if any(p[2] == kind for p in points)]
        figure = decision_charts.search(
            points, _best(tuned.found, objective), unit(objective), is_lower_better=is_latency(objective)
        )
        shown.append(Chart(figure, objective, legend=[*kinds, ("best so far", "@{better}", "")]))
    if shown:
        yield Row(shown)
    if len(tuned.table.objectives) > 1:
        yield _front(tuned)


def _best(found: Sequence[Found], objective: str) -> list[tuple[int, float]]:
    """(trial, value) of every point that was the best when it was measured."""
    steps: list[tuple[int, float]] = []
    for each in found:
        own = value(each, objective)
        if own is None or each.seen is None or not each.seen.is_feasible:
            continue
        if not steps or (own < steps[-1][1] if is_latency(objective) else own > steps[-1][1]):
            steps.append((each.number, own))
    return steps


def _hint(found: Found, objective: str) -> str:
    own = value(found, objective)
    shown = f"{text.count(own)} {unit(objective)}" if own is not None else text.short(found.reason, 80)
    return charts.hint(point_name(found), shown)


def _front(tuned: Tuned) -> Part:
    first, second = tuned.table.objectives[:2]
    on = {f.number for f in tuned.front}
    points = []
    for found in tuned.found:
        x, y = value(found, first), value(found, second)
        if x is None or y is None:
            continue
        kind = "front" if found.number in on else _kind(found)
        said = f"{text.count(x)} {unit(first)}, {text.count(y)} {unit(second)}"
        hint = charts.hint(point_name(found), said)
        points.append((x, y, "other" if kind == "good" else kind, hint))
    if not points:
        return Note("No point has both objectives.")
    return Chart(
        decision_charts.front(points, unit(first), unit(second)),
        "The trade",
        "No other point is better in both than those on the front: choosing among them means choosing which "
        "objective to give up.",
        [
            ("on the front", "@{better}", "●"),
            ("another point", "@{muted}", "●"),
            _LEGEND["base"],
            _LEGEND["broken"],
        ],
    )


def _points(tuned: Tuned) -> Section:
    brief: list[Part] = [_best_points(tuned), Gap(), Sentence(words.caution(tuned), "aside")]
    data = {"points": [_point_json(found) for found in tuned.found]}
    return Section("points", "Points", "All points", [_all(tuned)], brief=brief, data=data)


def _point_json(found: Found) -> dict[str, object]:
    response = found.response
    return {
        "name": point_name(found),
        "settings": found.settings,
        "state": found.state,
        "reason": found.reason,
        "is_feasible": bool(found.seen and found.seen.is_feasible),
        "excess": found.seen.excess if found.seen else {},
        "throughput_ops_s": response.throughput_ops_s if response else None,
        "p99_ns": response.value("p99") if response else None,
    }


def _best_points(tuned: Tuned) -> Table:
    """The first few, and the current settings."""
    order = sorted(tuned.found, key=lambda f: -(value(f, THROUGHPUT) or 0.0))
    on, has_front = {f.number for f in tuned.front}, len(tuned.table.objectives) > 1
    rows: list[Cells] = []
    for found in [*order[:SHOWN_POINTS], *(f for f in order[SHOWN_POINTS:] if f.number == 1)]:
        state = _state(found, found.number in on, has_front)
        shown = (text.count(value(found, THROUGHPUT) or None), text.count(value(found, "p99")))
        rows.append((point_name(found), *shown, Cell(state.text, state.chip)))
    return Table((("point", ""), ("ops/s", "n"), ("p99, ms", "n"), ("", "")), rows)


def _all(tuned: Tuned) -> Table:
    on = {f.number for f in tuned.front}
    objectives = list(dict.fromkeys((*tuned.table.objectives, THROUGHPUT, "p99")))
    rows: list[Cells] = []
    marked = set()
    for i, found in enumerate(tuned.found):
        if found.number == 1:
            marked.add(i)
        settings = ", ".join(
            f"{k.removeprefix('server.')}={_setting(v)}" for k, v in sorted(found.settings.items())
        )
        rows.append(
            (
                point_name(found),
                *(text.count(value(found, objective)) for objective in objectives),
                _state(found, found.number in on, len(tuned.table.objectives) > 1),
                settings or "–",
            )
        )
    columns = [("point", ""), *((unit(o), "n") for o in objectives), ("", ""), ("what it sets", "wrap")]
    return Table(
        columns, rows, f"{counted(len(rows), 'point')} in the order they were tried", True, frozenset(marked)
    )


def _state(found: Found, is_on_front: bool, has_front: bool) -> Cell:
    if found.state is TrialState.FAILED:
        return Cell("failed", "worse", text.short(found.reason, 160))
    if found.state is TrialState.INVALID:
        return Cell("invalid", "unsure", text.short(found.reason, 160))
    if found.seen is not None and not found.seen.is_feasible:
        broken = ", ".join(name for name, excess in found.seen.excess.items() if excess > 0)
        return Cell("breaks a constraint", "unsure", broken)
    if is_on_front:
        return Cell("on the front" if has_front else "best", "better")
    return Cell("")


def _method(tuned: Tuned) -> Section:
    constraints = ", ".join(tuned.table.constraints)
    lines = (
        (
            "The search",
            "proposes each point from all points measured before. Each number is one trial, the best of many "
            "is optimistically biased, and drift during the search is part of every value: it makes no claim.",
        ),
        (
            "The confirmation",
            f"measures the best points against the current settings in {tuned.table.blocks} interleaved "
            f"blocks. Its intervals are simultaneous, at {100 * (1 - tuned.table.alpha):g}%.",
        ),
        ("A failed start", "is also an observation: the search learns to avoid it."),
        (
            "Constraints:",
            f"{constraints}. A point that breaks one, in the search or in the confirmation, is never the result."
            if constraints
            else "none were set.",
        ),
        (
            "LEAN",
            "is the best point without the knobs that mattered little. Its result shows whether they "
            "can stay unchanged: fewer settings, fewer surprises.",
        ),
        (
            "ADVICE",
            "sets only what the rules suggest for the workload. It is always confirmed, regardless of what "
            "the search found: the difference is the gain of the search.",
        ),
        (
            "Sources:",
            "Bergstra et al. 2011, NIPS 24, and Falkner, Klein and Hutter 2018, ICML (the search); Hoerl "
            "and Kennard 1970, Technometrics 12 (ridge regression: what matters).",
        ),
    )
    return Section("method", "Method", "How to read it", [method(lines)])
