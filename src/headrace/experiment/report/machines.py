"""Notes on the machines of an experiment that ran on several."""

from __future__ import annotations

from typing import Any

from headrace.base.counted import counted
from headrace.base.errors import StoreError
from headrace.experiment.stats.machines import Spread
from headrace.experiment.stats.result import Analysis
from headrace.experiment.store import ExperimentFolder, TrialRecord
from headrace.host.facts import differences
from headrace.show import text


def sentences(folder: ExperimentFolder, analysis: Analysis, records: list[TrialRecord]) -> list[str]:
    """The notes; empty for an experiment on one machine."""
    found = [_spread(analysis.machines)] if analysis.machines else []
    found += unlike(folder, records)
    if aside := folder.set_aside_count():
        found.append(
            f"in set-aside/ and not analysed: {counted(aside, 'trial')}, because their machine was lost during "
            "the block, and another machine ran the whole block again."
        )
    return found


def _spread(spread: Spread) -> str:
    machines = ", ".join(
        f"{one.machine} {text.ratio(one.ratio)} ({one.blocks} block{'s' if one.blocks > 1 else ''})"
        for one in spread.machines
    )
    within = ""
    if spread.within_sd_log is not None:
        within = f"; baseline trials of one machine vary by {100 * spread.within_sd_log:.1f}% (sd)"
    return (
        f"{counted(len(spread.machines), 'machine')}, each block on one of them: their baselines differ by up to "
        f"{100 * (spread.between - 1):.1f}%, which does not affect any ratio{within}. Relative to their mean: "
        f"{machines}."
    )


def unlike(folder: ExperimentFolder, records: list[TrialRecord]) -> list[str]:
    """How the machines differ, by their facts."""
    hashes = {record.machine: record.facts_hash for record in records if record.machine and record.facts_hash}
    found = []
    try:
        facts = {machine: folder.facts(name) for machine, name in sorted(hashes.items())}
    except StoreError:
        return []
    first = next(iter(facts), "")
    for machine, own in facts.items():
        if words := differences(facts[first], own):
            found.append(f"{first} and {machine} differ: {'; '.join(words)}.")
    return found


def to_json(folder: ExperimentFolder, analysis: Analysis) -> dict[str, Any] | None:
    """``machines`` of ``report.json``; null for an experiment on one."""
    spread = analysis.machines
    if spread is None:
        return None
    return {
        "between": spread.between,
        "within_sd_log": spread.within_sd_log,
        "set_aside": folder.set_aside_count(),
        "machines": [
            {"machine": one.machine, "blocks": one.blocks, "ratio": one.ratio} for one in spread.machines
        ],
    }
