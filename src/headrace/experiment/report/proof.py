"""A proof for people: each step, what was kept, and the end relative to the start."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from headrace.base.counted import counted
from headrace.base.effect import Effect, Verdict
from headrace.base.encode import plain
from headrace.base.intervals import span
from headrace.experiment.stats.guards import Holds
from headrace.show.notice import Conclusion, Notice, Told
from headrace.show.text import between, clean, ratio, setting

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.base.model import Value
    from headrace.experiment.prove import Proof, Step
    from headrace.experiment.stats.guards import Guard

_STYLE = {
    Verdict.BETTER: "green",
    Verdict.WORSE: "red",
    Verdict.EQUIVALENT: "blue",
    Verdict.NOT_ENOUGH_DATA: "yellow",
}


def terminal(proof: Proof, response: str, command: str = "") -> RenderableType:
    """The steps in order, then the claim. ``command`` repeats the proof, for steps that need more blocks."""
    parts: list[RenderableType] = [step for each in proof.steps for step in _step(each, response)]
    parts += ["", Text(headline(proof, response), style="bold" if proof.steps else "yellow")]
    if proof.final is not None:
        parts.append(Text(f"with {_settings(proof.kept)}"))
    if open_ones := unsettled(proof):
        most = max(open_ones.values())
        parts.append(Text(f"{counted(most, 'block')} would probably settle {', '.join(open_ones)}:"))
        parts.append(Text(f"  {more_blocks(command, open_ones)}", style="bold"))
    parts += [Text(f"caution: {clean(words)}", style="yellow") for words in proof.cautions]
    for finding, why in proof.skipped:
        parts.append(Text(f"not tested: {clean(finding)}: {clean(why)}", style="dim"))
    return Group(*parts)


def _step(step: Step, response: str) -> list[RenderableType]:
    """What was tested, its effect, and whether it was kept."""
    effect = step.effect
    style = _STYLE[effect.verdict] if effect else "magenta"
    told = f"{response} {_times(effect)}{_other(step)}" if effect else ""
    told = "; ".join(filter(None, [told, step.reason]))
    line = Text.assemble(
        ("kept  " if step.kept else "      ", "bold green"),
        (clean(step.finding), "bold"),
        f"  {clean(step.title)}",
    )
    verdict = Text.assemble((f"{step.verdict}: ", style), clean(told))
    return [
        line,
        Padding(Text(_settings(step.settings), style="dim"), (0, 0, 0, 6)),
        Padding(verdict, (0, 0, 0, 6)),
        *(Padding(_guard(each), (0, 0, 0, 6)) for each in step.guards),
        *_needed(step),
    ]


def _times(effect: Effect) -> str:
    return f"{ratio(effect.ratio.estimate)}x ({between(effect.ratio)})"


def _other(step: Step) -> str:
    other = step.other
    return f"; {other.response} {_times(other)}, {other.verdict}" if other else ""


def _guard(guard: Guard) -> Text:
    """``hit rate 94.2 points, -0.1 (-0.3 to +0.1): holds, limit -1``."""
    watched, difference = guard.watched, guard.difference
    limit = f"limit {watched.worse * watched.limit:+g} {watched.unit}"
    if difference is None or guard.usual is None:
        return Text(f"{watched.name}: {guard.holds}; {limit}", style="yellow")
    ends = (
        f" ({difference.low:+.3g} to {difference.high:+.3g})"
        if difference.low is not None and difference.high is not None
        else ""
    )
    style = {Holds.YES: "dim", Holds.NO: "red", Holds.UNKNOWN: "yellow"}[guard.holds]
    text = f"{watched.name} {guard.usual:.4g}, {difference.estimate:+.3g}{ends}: {guard.holds}; {limit}"
    return Text(text, style=style)


def _guard_json(guard: Guard) -> dict[str, Any]:
    difference = guard.difference
    return {
        "name": guard.watched.name,
        "unit": guard.watched.unit,
        "usual": guard.usual,
        "difference": difference.estimate if difference else None,
        "low": difference.low if difference else None,
        "high": difference.high if difference else None,
        "limit": guard.watched.worse * guard.watched.limit,
        "holds": guard.holds,
        "blocks": guard.blocks,
    }


def _needed(step: Step) -> list[RenderableType]:
    effect = step.effect
    if effect is None or effect.verdict is not Verdict.NOT_ENOUGH_DATA:
        return []
    high = effect.ratio.high
    excluded = f"; more than {ratio(high)}x is excluded" if high and effect.ratio.low else ""
    needed = (
        f"about {span(effect.needed)} blocks would settle it"
        if effect.needed
        else f"no number of blocks that a plan has is sure to settle it{excluded}"
    )
    return [Padding(Text(f"{counted(effect.blocks, 'block')}; {needed}", style="dim"), (0, 0, 0, 6))]


def unsettled(proof: Proof) -> dict[str, int]:
    """Finding -> blocks that would probably settle it, of the steps without a verdict."""
    return {
        step.finding: step.effect.blocks_needed
        for step in proof.steps
        if step.effect is not None
        and step.effect.verdict is Verdict.NOT_ENOUGH_DATA
        and step.effect.blocks_needed is not None
    }


def more_blocks(command: str, open_ones: Mapping[str, int]) -> str:
    """The command that tests these again with enough blocks, in a directory of its own."""
    return f"{command} {' '.join(map(shlex.quote, open_ones))} --blocks {max(open_ones.values())}".strip()


def claim(effect: Effect, response: str, other: Effect | None = None) -> str:
    """The conclusion with its interval, and whether the other response got worse."""
    times = f"{ratio(effect.ratio.estimate)}x the start ({between(effect.ratio)})"
    but = (
        f" But {other.response} is worse: {_times(other)}."
        if other and other.verdict is Verdict.WORSE
        else ""
    )
    told = f"{response} {times}, {counted(effect.blocks, 'block')}"
    return {
        Verdict.BETTER: f"Proven: {told}.{but}",
        Verdict.WORSE: f"Combined, they are worse than the start: {told}. Apply none of them.",
        Verdict.EQUIVALENT: f"Combined, they are equivalent to the start: {told}.{but}",
        Verdict.NOT_ENOUGH_DATA: f"Combined effect inconclusive: {told}.{but}",
    }[effect.verdict]


def notice(proof: Proof, subject: str, response: str, command: str, folder: Path) -> Notice:
    """The verdict as it is told. ``next`` applies what was kept, or brings the missing blocks."""
    effects = [
        Told(step.finding, response, step.effect.ratio, step.effect.verdict, _note(step))
        for step in proof.steps
        if step.effect is not None
    ]
    if proof.final is not None:
        final = proof.final
        effects.append(Told("all that were kept", response, final.ratio, final.verdict))
    open_ones = unsettled(proof)
    next_ = f"{more_blocks(command, open_ones)}\n" if open_ones and command else ""
    if proof.kept and conclusion(proof) is Conclusion.BETTER:
        words = [f"{name}={_written(value)}" for name, value in proof.kept.items()]
        next_ = f"{shlex.join(['headrace', 'apply', *words])}\n"
    return Notice(
        kind="prove",
        subject=subject,
        conclusion=conclusion(proof),
        headline=headline(proof, response),
        effects=tuple(effects),
        next=next_,
        link=str(folder),
    )


def conclusion(proof: Proof) -> Conclusion:
    """That of the end relative to the start, or of the steps if nothing was kept."""
    # Trials of the end that did not fail are its good ones.
    if proof.failed or (proof.final is None and proof.final_folder is not None):
        return Conclusion.NOT_ENOUGH_DATA
    if proof.final is not None:
        return Conclusion(proof.final.verdict)
    if any(step.kept for step in proof.steps):
        return Conclusion.BETTER
    verdicts = {step.effect.verdict for step in proof.steps if step.effect is not None}
    return Conclusion.NOT_ENOUGH_DATA if Verdict.NOT_ENOUGH_DATA in verdicts else Conclusion.NOTHING_FOUND


def headline(proof: Proof, response: str) -> str:
    """The claim in one sentence, or why there is none."""
    if proof.failed:
        return f"Not proven: all fixes together {proof.failed}. Apply none of them."
    if proof.final is not None:
        return claim(proof.final, response, proof.other)
    if proof.final_folder is not None:
        return f"Combined effect not measured: {proof.final_folder} says why."
    if any(step.kept for step in proof.steps):
        return "Better under this load: `headrace apply` makes it permanent."
    if proof.steps:
        return "Nothing is proven better; the configuration stays unchanged."
    return "No finding has a fix that this plan can test."


def _note(step: Step) -> str:
    return "kept" if step.kept else ""


def _written(value: Value) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _settings(values: Any) -> str:
    return ", ".join(f"{name} = {setting(value)}" for name, value in values.items())


def to_json(proof: Proof, response: str, command: str = "", notice: Notice | None = None) -> dict[str, Any]:
    open_ones = unsettled(proof)
    return {
        "response": response,
        "steps": [_step_json(step) for step in proof.steps],
        "kept": dict(proof.kept),
        "final": _effect_json(proof.final),
        "other": _effect_json(proof.other),
        "failed": proof.failed,
        "cautions": list(proof.cautions),
        "final_folder": str(proof.final_folder) if proof.final_folder else None,
        "settle": more_blocks(command, open_ones) if open_ones else None,
        "skipped": [{"finding": finding, "reason": why} for finding, why in proof.skipped],
        "notice": plain(notice),
    }


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "finding": step.finding,
        "title": step.title,
        "settings": dict(step.settings),
        "effect": _effect_json(step.effect),
        "other": _effect_json(step.other),
        "guards": [_guard_json(each) for each in step.guards],
        "kept": step.kept,
        "reason": step.reason,
        "folder": str(step.folder),
        "report": str(step.folder / "report.html"),
    }


def _effect_json(effect: Effect | None) -> dict[str, Any] | None:
    if effect is None:
        return None
    interval = effect.ratio
    return {
        "response": effect.response,
        "ratio": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "verdict": effect.verdict,
        "blocks": effect.blocks,
        "blocks_least": effect.blocks_least,
        "blocks_needed": effect.blocks_needed,
    }
