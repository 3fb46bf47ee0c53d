"""A tuning's ``report.html``: what was confirmed, what mattered, and how the search went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.analysis.result import Effect, Verdict
from headrace.analysis.trials import THROUGHPUT
from headrace.experiment.search import Found, name_of
from headrace.model import TrialState, Value
from headrace.report import charts, decision_charts, text, tune
from headrace.report.page import Cell, Chart, Key, Method, Note, Page, Part, Row, Section, Table, render
from headrace.tune import Tuned

_CHIP = {Verdict.BETTER: "better", Verdict.WORSE: "worse", Verdict.EQUIVALENT: "equivalent"}


def page_of(tuned: Tuned, title: str) -> str:
    """The page as text."""
    sections = [
        Section(
            "confirmed",
            "Confirmed",
            "Is it better than what is there?",
            list(_confirmation(tuned)),
            see="Only this is a claim: the best points beside what is there, interleaved in blocks.",
        ),
        *([_importance(tuned)] if tuned.importance else []),
        Section(
            "search",
            "Search",
            "How the search went",
            list(_search(tuned)),
            see="One trial a point. These numbers only chose what was worth confirming.",
        ),
        Section("points", "Points", "All points", [_points(tuned)]),
        _method(tuned),
    ]
    verdicts = [tune.headline(tuned)]
    if lean := tune.lean_sentence(tuned):
        verdicts.append(lean)
    return render(
        Page(
            eyebrow="headrace tune",
            title=title,
            verdicts=verdicts,
            keys=list(_keys(tuned)),
            sections=sections,
            footer="the numbers are in report.json, the trials in search and confirm",
        )
    )


def is_latency(objective: str) -> bool:
    return objective != THROUGHPUT


def unit(objective: str) -> str:
    return f"{objective} [ms]" if is_latency(objective) else "operations/s"


def value(found: Found, objective: str) -> float | None:
    """In the unit above; None where the trial does not tell."""
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
                yield Key(name, f"{text.ratio(effect.ratio.estimate)} ×", note, _chip(effect))
    failed = sum(f.state is TrialState.FAILED for f in tuned.found)
    yield Key("Points tried", str(len(tuned.found)), f"{failed} failed" if failed else "all of them ran")
    if tuned.importance:
        name, share = max(tuned.importance.items(), key=lambda item: item[1])
        knob = tuned.table.knobs[name].knob.removeprefix("server.")
        yield Key("What matters most", f"{100 * share:.0f}%", f"{knob}; a hint")


def _chip(effect: Effect) -> str:
    return _CHIP.get(effect.verdict, "unsure")


def _confirmation(tuned: Tuned) -> Iterator[Part]:
    if not tuned.confirmed:
        yield Note("No point of the search promised more than what is there: nothing was left to confirm.")
        return
    shown = []
    rows: list[Sequence[str | Cell]] = []
    for response in dict.fromkeys((*tuned.table.objectives, THROUGHPUT, "p99")):
        found = [(c, e) for c in tuned.confirmed if (e := c.effects.get(response)) is not None]
        if not found:
            continue
        lines = [_ratio_row(c.name, e) for c, e in found]
        span = charts.ratio_span([e.ratio for _, e in found], None)
        way = "less is better" if is_latency(response) else "more is better"
        figure = charts.ratios(lines, f"{response} / AS-IS ({way}, log scale)", None, span)
        shown.append(Chart(figure, response))
        for c, e in found:
            interval = text.between(e.ratio)
            verdict = Cell(str(e.verdict), _chip(e))
            rows.append((c.name, response, text.ratio(e.ratio.estimate), interval, str(e.blocks), verdict))
    yield Row(shown)
    columns = (
        ("point", ""),
        ("response", ""),
        ("/ AS-IS", "n"),
        ("interval", "n"),
        ("blocks", "n"),
        ("verdict", ""),
    )
    yield Table(columns, rows)
    yield _settings(tuned)


def _ratio_row(name: str, effect: Effect) -> charts.Row:
    colour, symbol = charts.verdict_mark(effect)
    hint = (
        f"<b>{charts.label(name)}</b>: {text.ratio(effect.ratio.estimate)} ({text.between(effect.ratio)}), "
    )
    return charts.Row(name, effect.ratio, colour, symbol, hint + str(effect.verdict))


def _settings(tuned: Tuned) -> Table:
    """What each candidate sets, a knob a row."""
    names = [c.name for c in tuned.confirmed]
    every = sorted({knob for c in tuned.confirmed for knob in c.settings})
    rows = [
        (knob, *(_setting(c.settings[knob]) if knob in c.settings else "as it is" for c in tuned.confirmed))
        for knob in every
    ]
    return Table([("knob", ""), *((name, "") for name in names)], rows, "What they set")


def _setting(found: Value) -> str:
    return text.setting(found)


def _importance(tuned: Tuned) -> Section:
    order = sorted(tuned.importance.items(), key=lambda item: -item[1])
    rows = []
    for name, share in order:
        knob = tuned.table.knobs[name].knob.removeprefix("server.")
        hint = f"<b>{charts.label(knob)}</b>: {100 * share:.1f}%"
        rows.append((knob, 100 * share, f"{100 * share:.0f}%", "@{accent}", hint))
    see = "How far each knob alone moves the response, told from the same trials: a hint, not a test."
    chart = Chart(decision_charts.bars(rows, "share [%]"))
    return Section("matters", "What matters", "What matters, what could be left alone?", [chart], see=see)


def _kind(found: Found) -> str:
    if found.number == 1:
        return "base"
    if found.state is TrialState.FAILED:
        return "failed"
    return "good" if found.seen is not None and found.seen.is_feasible else "broken"


_LEGEND = {
    "base": ("what is there", "@{ink}", "◆"),
    "good": ("a point", "@{accent}", "●"),
    "broken": ("breaks a constraint, or cannot be judged", "@{unsure}", "○"),
    "failed": ("failed", "@{worse}", "✕"),
}


def _search(tuned: Tuned) -> Iterator[Part]:
    if not tuned.found:
        yield Note("No point was tried yet.")
        return
    shown = []
    for objective in tuned.table.objectives:
        points = [(f.number, value(f, objective), _kind(f), _hint(f, objective)) for f in tuned.found]
        # What could not be measured has no height: only a failed start is drawn, at the bottom.
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
    """(trial, value) of every point that was the best so far."""
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
    shown = (
        f"{text.count(own)} {unit(objective)}"
        if own is not None
        else charts.label(text.short(found.reason, 80))
    )
    return f"<b>{point_name(found)}</b>: {shown}"


def _front(tuned: Tuned) -> Part:
    first, second = tuned.table.objectives[:2]
    on = {f.number for f in tuned.front}
    points = []
    for found in tuned.found:
        x, y = value(found, first), value(found, second)
        if x is None or y is None:
            continue
        kind = "front" if found.number in on else _kind(found)
        hint = f"<b>{point_name(found)}</b>: {text.count(x)} {unit(first)}, {text.count(y)} {unit(second)}"
        points.append((x, y, "other" if kind == "good" else kind, hint))
    if not points:
        return Note("No point told both objectives.")
    return Chart(
        decision_charts.front(points, unit(first), unit(second)),
        "The trade",
        "No other point is better in both than those on the front: choosing among them is choosing what to pay.",
        [
            ("on the front", "@{better}", "●"),
            ("another point", "@{muted}", "●"),
            _LEGEND["base"],
            _LEGEND["broken"],
        ],
    )


def _points(tuned: Tuned) -> Table:
    on = {f.number for f in tuned.front}
    objectives = list(dict.fromkeys((*tuned.table.objectives, THROUGHPUT, "p99")))
    rows: list[Sequence[str | Cell]] = []
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
    return Table(columns, rows, f"{len(rows)} points in the order they were tried", True, frozenset(marked))


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
            "proposes each point from all that were seen before. Its numbers are one trial each, the best "
            "of many is flattered, and what drifts while it goes on is part of every value: it makes no claim.",
        ),
        (
            "The confirmation",
            f"measures the best points beside what is there in {tuned.table.blocks} interleaved "
            f"blocks. Its intervals are simultaneous, at {100 * (1 - tuned.table.alpha):g}%.",
        ),
        ("A failed start", "is an observation, too: the search learns to stay away from it."),
        (
            "Constraints:",
            f"{constraints}. A point that breaks one is never confirmed."
            if constraints
            else "none were set.",
        ),
        (
            "LEAN",
            "is the best point without the knobs that hardly mattered. What it reaches says whether they can be "
            "left alone: fewer settings are fewer surprises.",
        ),
        (
            "Sources:",
            "Bergstra et al. 2011, NIPS 24, and Falkner, Klein and Hutter 2018, ICML (the search); Hoerl "
            "and Kennard 1970, Technometrics 12 (ridge regression: what matters).",
        ),
    )
    return Section("method", "Method", "How to read it", [Method(lines)])
