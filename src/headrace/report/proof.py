"""A proof as people read it: each step, what was kept, and the end against the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
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
    """The steps as a table, then the claim."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("finding", "tried", response, "between", "verdict", ""):
        table.add_column(column, overflow="fold", justify="right" if column == response else "left")
    for step in proof.steps:
        effect = step.effect
        table.add_row(
            Text(clean(step.finding), style="bold"),
            Text(_settings(step.settings)),
            ratio(effect.ratio.estimate) if effect else "–",
            between(effect.ratio) if effect else "–",
            Text(step.verdict, style=_STYLE[effect.verdict] if effect else "magenta"),
            Text("kept", style="bold green") if step.kept else Text(clean(step.reason), style="dim"),
        )
    parts: list[RenderableType] = [table, ""]
    if not proof.steps:
        parts = [Text("No finding has a remedy that this plan can test.", style="yellow"), ""]
    if proof.final is not None:
        parts += [Text(claim(proof.final, response), style="bold"), Text(f"with {_settings(proof.kept)}")]
    elif any(step.kept for step in proof.steps):
        parts.append(Text("Better under this load: `headrace apply` makes it stay.", style="bold"))
    elif proof.steps:
        parts.append(Text("Nothing was proven better; the configuration stays as it is.", style="bold"))
    for finding, why in proof.skipped:
        parts.append(Text(f"not tested: {clean(finding)}: {clean(why)}", style="dim"))
    return Group(*parts)


def claim(effect: Effect, response: str) -> str:
    """One sentence that can be defended, with its interval."""
    times = f"{ratio(effect.ratio.estimate)} times the start's ({between(effect.ratio)})"
    told = f"{response} {times}, {effect.blocks} blocks"
    return {
        Verdict.BETTER: f"Proven: {told}.",
        Verdict.WORSE: f"Together they are worse than the start: {told}. Apply none of them.",
        Verdict.EQUIVALENT: f"Together they are equivalent to the start: {told}.",
        Verdict.NOT_ENOUGH_DATA: f"Together they could not be told from the start: {told}.",
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
