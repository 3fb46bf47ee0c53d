"""The sentences of a tuning's report."""

from __future__ import annotations

from headrace.base.effect import Effect, Verdict
from headrace.base.intervals import Interval
from headrace.base.model import TrialState
from headrace.experiment.stats.trials import THROUGHPUT
from headrace.experiment.tune import LEAN, Tuned
from headrace.show import text


def headline(tuned: Tuned) -> str:
    """One sentence with the claim, or why there is none."""
    response = tuned.table.objectives[0]
    if tuned.winner is not None:
        effect = tuned.winner.effects[response]
        confidence = 100 * (1 - tuned.table.alpha)
        said = (
            f"{tuned.winner.name} is confirmed: {response} {text.ratio(effect.ratio.estimate)}x the current "
            f"settings ({confidence:g}%: {text.between(effect.ratio)}), in {effect.blocks} interleaved blocks."
        )
        worse = [
            f" But its {each} is worse: {_times(other)}."
            for each in dict.fromkeys((*tuned.table.objectives, THROUGHPUT, "p99"))
            if (other := tuned.winner.effects.get(each)) and other.verdict is Verdict.WORSE
        ]
        return said + "".join(worse)
    better = [each for each in tuned.confirmed if each.is_better(response)]
    if any(each.broken for each in better):
        return "No point is confirmed better within the constraints: keep the current settings."
    if better:
        return "No point that starts each time is confirmed better: keep the current settings."
    if tuned.confirmed:
        return _none_better(tuned)
    return "The search found nothing that looked better than the current settings."


def _none_better(tuned: Tuned) -> str:
    """The other objective may be better, and more blocks decide only what is open."""
    response, *rest = tuned.table.objectives
    effects = [each.effects[response] for each in tuned.confirmed if response in each.effects]
    others = [
        f" But {each.name} has a better {name}: {_times(each.effects[name])}."
        for name in rest
        for each in tuned.confirmed
        if each.is_better(name) and not each.broken and not each.failed
    ]
    is_open = len(effects) < len(tuned.confirmed) or any(
        effect.verdict is Verdict.NOT_ENOUGH_DATA for effect in effects
    )
    what = "No point is confirmed better than the current settings"
    what += f" in {response}" if others else ""
    return f"{what}: keep them{', or add blocks' if is_open else ''}.{''.join(others)}"


def _times(effect: Effect) -> str:
    return f"{text.ratio(effect.ratio.estimate)}x ({text.between(effect.ratio)})"


def lean_sentence(tuned: Tuned) -> str:
    """Whether the less important knobs can be left unchanged; empty if not tested."""
    lean = next((c for c in tuned.confirmed if c.name == LEAN), None)
    if lean is None or tuned.winner in (None, lean):
        return ""
    if not lean.settings.items() <= tuned.winner.settings.items():
        return ""
    response = tuned.table.objectives[0]
    own, best = lean.effects.get(response), tuned.winner.effects[response]
    if own is None:
        return ""
    part = _part(own.ratio, best.ratio) if response == THROUGHPUT else _part(best.ratio, own.ratio)
    sure = "no interval"
    if part.low is not None and part.high is not None:
        sure = f"{100 * part.low:.0f}% to {100 * part.high:.0f}%"
    left = ", ".join(sorted(knob(k) for k in set(tuned.winner.settings) - set(lean.settings)))
    worse = [name for name, effect in lean.effects.items() if effect.verdict is Verdict.WORSE]
    cost = f" Worse than the current settings: {', '.join(sorted(worse))}." if worse else ""
    return (
        f"LEAN sets {len(lean.settings)} of its {len(tuned.winner.settings)} knobs and reaches "
        f"{100 * part.estimate:.0f}% of it ({sure}; {own.verdict} against the current settings); "
        f"unchanged: {left}.{cost}"
    )


def _part(own: Interval, other: Interval) -> Interval:
    """A quotient of two effects. Their intervals hold jointly, so it lies between their extremes."""
    low = own.low / other.high if own.low is not None and other.high else None
    high = own.high / other.low if own.high is not None and other.low else None
    return Interval(own.estimate / other.estimate, low, high)


def broken(tuned: Tuned) -> list[str]:
    """The candidates that break a constraint where they were confirmed, or fail, and so are not the result."""
    return [
        f"{each.name} breaks {', '.join(each.broken)}, on average over its trials in the confirmation."
        for each in tuned.confirmed
        if each.broken
    ] + [
        f"{each.name} failed in {each.failed[0]} of {each.failed[1]} trials of the confirmation."
        for each in tuned.confirmed
        if each.failed
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
