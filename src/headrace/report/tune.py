"""What a tuning says: what was confirmed, what mattered, and which points were tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.analysis.result import Verdict
from headrace.analysis.trials import THROUGHPUT, TrialResponse
from headrace.experiment.search import Found, name_of
from headrace.model import TrialState, Value
from headrace.report import tables, text
from headrace.tune import LEAN, Confirmed, Tuned

FORMAT_VERSION = 1

#: Points of the search in a terminal.
SHOWN_POINTS = 10


def headline(tuned: Tuned) -> str:
    """One sentence with the claim, or why there is none."""
    response = tuned.table.objectives[0]
    if tuned.winner is not None:
        ratio = tuned.winner.effects[response].ratio
        confidence = 100 * (1 - tuned.table.alpha)
        return (
            f"{tuned.winner.name} is confirmed: {response} {text.ratio(ratio.estimate)} times what is there "
            f"({confidence:g}%: {text.between(ratio)}), in {tuned.table.blocks} interleaved blocks."
        )
    if tuned.confirmed:
        return "Nothing was confirmed to be better than what is there: keep what you have, or give it more blocks."
    return "The search found nothing that promises more than what is there."


def lean_sentence(tuned: Tuned) -> str:
    """Whether the knobs that hardly mattered can be left alone; empty where that was not tested."""
    lean = next((c for c in tuned.confirmed if c.name == LEAN), None)
    if lean is None or tuned.winner is None:
        return ""
    response = tuned.table.objectives[0]
    own, best = lean.effects.get(response), tuned.winner.effects[response]
    if own is None:
        return ""
    part = own.ratio.estimate / best.ratio.estimate
    if response != THROUGHPUT:
        part = 1 / part
    left = ", ".join(sorted(_knob(k) for k in set(tuned.winner.settings) - set(lean.settings)))
    worse = [name for name, effect in lean.effects.items() if effect.verdict is Verdict.WORSE]
    cost = f" Worse with it than what is there: {', '.join(sorted(worse))}." if worse else ""
    return (
        f"LEAN sets {len(lean.settings)} of its {len(tuned.winner.settings)} knobs and reaches "
        f"{100 * part:.0f}% of it ({own.verdict} against what is there); left alone: {left}.{cost}"
    )


def to_json(tuned: Tuned) -> dict[str, Any]:
    return {
        "format": FORMAT_VERSION,
        "headline": headline(tuned),
        "lean": lean_sentence(tuned),
        "objectives": tuned.table.objectives,
        "constraints": tuned.table.constraints,
        "winner": _confirmed(tuned.winner) if tuned.winner else None,
        "confirmed": [_confirmed(c) for c in tuned.confirmed],
        "importance": dict(tuned.importance),
        "advice": [dict(settings) for settings in tuned.advice],
        "front": [name_of(f.number) for f in tuned.front],
        "points": [_point(f) for f in tuned.found],
        "folder": str(tuned.folder),
    }


def _confirmed(found: Confirmed) -> dict[str, Any]:
    return {
        "name": found.name,
        "settings": dict(found.settings),
        "effects": [asdict(effect) for effect in found.effects.values()],
    }


def _point(found: Found) -> dict[str, Any]:
    response = found.response
    return {
        "name": "AS-IS" if found.number == 1 else name_of(found.number),
        "settings": dict(found.settings),
        "state": found.state,
        "reason": found.reason,
        "is_feasible": bool(found.seen and found.seen.is_feasible),
        "excess": dict(found.seen.excess) if found.seen else {},
        "throughput_ops_s": response.throughput_ops_s if response else None,
        "p99_ns": response.value("p99") if response else None,
    }


def terminal(tuned: Tuned) -> RenderableType:
    parts: list[RenderableType] = [Text(text.clean(headline(tuned)), style="bold")]
    if lean := lean_sentence(tuned):
        parts.append(Text(text.clean(lean)))
    if tuned.winner is not None:
        parts += ["", _settings(tuned.winner.settings)]
    if tuned.confirmed:
        parts += ["", _confirmation(tuned)]
    if tuned.importance:
        parts += ["", _importance(tuned)]
    parts += ["", _points(tuned), "", Text(_caution(tuned), style="dim")]
    return Group(*parts)


def _settings(settings: Mapping[str, Value]) -> Table:
    table = tables.of_columns(("knob", False), ("value", False))
    for knob, value in sorted(settings.items()):
        table.add_row(Text(text.clean(knob)), Text(text.clean(value)))
    return table


def _confirmation(tuned: Tuned) -> Table:
    table = tables.of_columns(
        ("confirmed", False), ("response", False), ("/ AS-IS", True), ("interval", True), ("verdict", False)
    )
    for found in tuned.confirmed:
        for response in dict.fromkeys((*tuned.table.objectives, THROUGHPUT, "p99")):
            effect = found.effects.get(response)
            if effect is not None:
                row = (found.name, response, text.ratio(effect.ratio.estimate), text.between(effect.ratio))
                table.add_row(*row, Text(str(effect.verdict)))
    return table


def _importance(tuned: Tuned) -> Table:
    table = tables.of_columns(("knob", False), ("matters", True), ("", False))
    for name, share in tuned.importance.items():
        bar = "█" * round(30 * share) or "▏"
        knob = _knob(tuned.table.knobs[name].knob)
        table.add_row(Text(text.clean(knob)), f"{100 * share:.0f}%", Text(bar, style="cyan"))
    return table


def _points(tuned: Tuned) -> Table:
    table = tables.of_columns(("point", False), ("ops/s", True), ("p99, ms", True), ("", False))
    front = {f.number for f in tuned.front}
    order = sorted(tuned.found, key=lambda f: -_ops(f.response))
    for found in [*order[:SHOWN_POINTS], *(f for f in order[SHOWN_POINTS:] if f.number == 1)]:
        note = "best" if found.number in front and len(tuned.table.objectives) == 1 else ""
        note = "on the front" if found.number in front and len(tuned.table.objectives) > 1 else note
        if found.seen is not None and not found.seen.is_feasible:
            note = "failed" if found.state is TrialState.FAILED else "breaks a constraint"
        name = "AS-IS" if found.number == 1 else name_of(found.number)
        p99 = found.response.value("p99") if found.response else None
        table.add_row(name, text.count(_ops(found.response) or None), text.milliseconds(p99), note)
    return table


def _ops(response: TrialResponse | None) -> float:
    return response.throughput_ops_s if response else 0.0


def _caution(tuned: Tuned) -> str:
    failed = sum(f.state is TrialState.FAILED for f in tuned.found)
    counted = f"{len(tuned.found)} points were tried" + (f", {failed} failed" if failed else "")
    return (
        f"{counted}. A point's own numbers are one trial each and flatter the best; only what is confirmed is a "
        "claim. What matters is told from the same trials: a hint, not a test."
    )


def _knob(name: str) -> str:
    return name.removeprefix("server.")
