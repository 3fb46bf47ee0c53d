"""A proof for people: each step, what was kept, and the end relative to the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from headrace.analysis.result import Effect, Verdict
from headrace.report.text import between, clean, ratio, setting

if TYPE_CHECKING:
    from headrace.prove import Proof, Step

_STYLE = {
    Verdict.BETTER: "green",
    Verdict.WORSE: "red",
    Verdict.EQUIVALENT: "blue",
    Verdict.NOT_ENOUGH_DATA: "yellow",
}


def terminal(proof: Proof, response: str) -> RenderableType:
    """The steps in order, then the claim."""
    parts: list[RenderableType] = [step for each in proof.steps for step in _step(each, response)]
    if not proof.steps:
        parts.append(Text("No finding has a fix that this plan can test.", style="yellow"))
    parts.append("")
    if proof.final is not None:
        parts += [Text(claim(proof.final, response), style="bold"), Text(f"with {_settings(proof.kept)}")]
    elif any(step.kept for step in proof.steps):
        parts.append(Text("Better under this load: `headrace apply` makes it permanent.", style="bold"))
    elif proof.steps:
        parts.append(Text("Nothing is proven better; the configuration stays unchanged.", style="bold"))
    for finding, why in proof.skipped:
        parts.append(Text(f"not tested: {clean(finding)}: {clean(why)}", style="dim"))
    return Group(*parts)


def _step(step: Step, response: str) -> list[RenderableType]:
    """What was tested, its effect, and whether it was kept."""
    effect = step.effect
    style = _STYLE[effect.verdict] if effect else "magenta"
    told = f"{response} {ratio(effect.ratio.estimate)}x ({between(effect.ratio)})" if effect else step.reason
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
    ]


def claim(effect: Effect, response: str) -> str:
    """The conclusion in one sentence, with its interval."""
    times = f"{ratio(effect.ratio.estimate)}x the start ({between(effect.ratio)})"
    told = f"{response} {times}, {effect.blocks} blocks"
    return {
        Verdict.BETTER: f"Proven: {told}.",
        Verdict.WORSE: f"Combined, they are worse than the start: {told}. Apply none of them.",
        Verdict.EQUIVALENT: f"Combined, they are equivalent to the start: {told}.",
        Verdict.NOT_ENOUGH_DATA: f"Combined effect inconclusive: {told}.",
    }[effect.verdict]


def _settings(values: Any) -> str:
    return ", ".join(f"{name} = {setting(value)}" for name, value in values.items())


def to_json(proof: Proof, response: str) -> dict[str, Any]:
    return {
        "response": response,
        "steps": [_step_json(step) for step in proof.steps],
        "kept": dict(proof.kept),
        "final": _effect_json(proof.final),
        "final_folder": str(proof.final_folder) if proof.final_folder else None,
        "skipped": [{"finding": finding, "reason": why} for finding, why in proof.skipped],
    }


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "finding": step.finding,
        "title": step.title,
        "settings": dict(step.settings),
        "effect": _effect_json(step.effect),
        "kept": step.kept,
        "reason": step.reason,
        "folder": str(step.folder),
    }


def _effect_json(effect: Effect | None) -> dict[str, Any] | None:
    if effect is None:
        return None
    interval = effect.ratio
    return {
        "ratio": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "verdict": effect.verdict,
        "blocks": effect.blocks,
        "blocks_needed": effect.blocks_needed,
    }
