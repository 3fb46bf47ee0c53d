"""What a tuning says in sentences."""

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
    left = ", ".join(sorted(knob(k) for k in set(tuned.winner.settings) - set(lean.settings)))
    worse = [name for name, effect in lean.effects.items() if effect.verdict is Verdict.WORSE]
    cost = f" Worse with it than what is there: {', '.join(sorted(worse))}." if worse else ""
    return (
        f"LEAN sets {len(lean.settings)} of its {len(tuned.winner.settings)} knobs and reaches "
        f"{100 * part:.0f}% of it ({own.verdict} against what is there); left alone: {left}.{cost}"
    )


def caution(tuned: Tuned) -> str:
    failed = sum(f.state is TrialState.FAILED for f in tuned.found)
    counted = f"{len(tuned.found)} points were tried" + (f", {failed} failed" if failed else "")
    return (
        f"{counted}. A point's own numbers are one trial each and flatter the best; only what is confirmed "
        "is a claim. What matters is told from the same trials: a hint, not a test."
    )


def knob(name: str) -> str:
    return name.removeprefix("server.")
