"""The sentences of a tuning's report."""

from __future__ import annotations

from headrace.analysis.result import Verdict
from headrace.analysis.trials import THROUGHPUT
from headrace.model import TrialState
from headrace.report import text
from headrace.tune import LEAN, Tuned


def headline(tuned: Tuned) -> str:
    """One sentence with the claim, or why there is none."""
    response = tuned.table.objectives[0]
    if tuned.winner is not None:
        ratio = tuned.winner.effects[response].ratio
        confidence = 100 * (1 - tuned.table.alpha)
        return (
            f"{tuned.winner.name} is confirmed: {response} {text.ratio(ratio.estimate)}x the current settings "
            f"({confidence:g}%: {text.between(ratio)}), in {tuned.table.blocks} interleaved blocks."
        )
    if any(each.broken and each.is_better(response) for each in tuned.confirmed):
        return "No point is confirmed better within the constraints: keep the current settings."
    if tuned.confirmed:
        return "No point is confirmed better than the current settings: keep them, or add blocks."
    return "The search found nothing that looked better than the current settings."


def lean_sentence(tuned: Tuned) -> str:
    """Whether the less important knobs can be left unchanged; empty if not tested."""
    lean = next((c for c in tuned.confirmed if c.name == LEAN), None)
    if lean is None or tuned.winner is None or not lean.settings.items() <= tuned.winner.settings.items():
        return ""
    response = tuned.table.objectives[0]
    own, best = lean.effects.get(response), tuned.winner.effects[response]
    if own is None:
        return ""
    part = own.ratio.estimate / best.ratio.estimate
    if response != THROUGHPUT:
        part = 1 / part
    left = ", ".join(sorted(knob(k) for k in set(tuned.winner.settings) - set(lean.settings)))
    worse = [name for name, effect in lean.effects.items() if effect.verdict is Verdict.WORSE]
    cost = f" Worse than the current settings: {', '.join(sorted(worse))}." if worse else ""
    return (
        f"LEAN sets {len(lean.settings)} of its {len(tuned.winner.settings)} knobs and reaches "
        f"{100 * part:.0f}% of it ({own.verdict} against the current settings); unchanged: {left}.{cost}"
    )


def broken(tuned: Tuned) -> list[str]:
    """The candidates that break a constraint where they were confirmed, and so are not the result."""
    return [
        f"{each.name} breaks {', '.join(each.broken)}, on average over its trials in the confirmation."
        for each in tuned.confirmed
        if each.broken
    ]


def caution(tuned: Tuned) -> str:
    failed = sum(f.state is TrialState.FAILED for f in tuned.found)
    counted = f"{len(tuned.found)} points were tried" + (f", {failed} failed" if failed else "")
    return (
        f"{counted}. A point's numbers come from one trial and favour the best by luck; only a confirmed result "
        "is a claim. Which knobs matter is estimated from the same trials: a hint, not a test."
    )


def knob(name: str) -> str:
    return name.removeprefix("server.")
