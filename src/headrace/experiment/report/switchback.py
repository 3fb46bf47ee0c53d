"""Notes on turns that followed each other under one load, and whether one shows in the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from headrace.experiment.stats import carryover
from headrace.experiment.stats.carryover import Carryover
from headrace.experiment.store import ExperimentFolder, TrialRecord


def is_switchback(folder: ExperimentFolder) -> bool:
    return folder.design.experiment == "switchback"


def sentences(folder: ExperimentFolder, records: Sequence[TrialRecord]) -> list[str]:
    """The notes; empty if the experiment is no switchback or has no turn yet."""
    if not is_switchback(folder) or not records:
        return []
    design = folder.design
    times = carryover.stretch(folder, records)
    begun = len({design.start_of(r.block) for r in records})
    starts = "one start" if begun == 1 else f"{begun} starts"
    said = [
        f"Settings were switched under a running load, in turns of {times * design.workload.seconds:g} s, "
        f"each after {times * design.washout_s} s that are not counted, in random order within each block: "
        f"{len(records)} turns after {starts} of the server."
    ]
    found = carryover.of_folder(folder, records)
    if found is None:
        said.append("There are too few turns to test whether one affects the next.")
        return said
    longer = (
        f" Turns were made {times} times as long as planned because there was carry-over at first."
        if times > 1
        else ""
    )
    if not found.shows:
        said.append(f"Carry-over: {found.text}.{longer}")
    elif times < carryover.MOST_STRETCH:
        said.append(f"Carry-over: {found.text}. Run it again: it continues with longer turns.{longer}")
    else:
        said.append(
            f"Carry-over: {found.text}, even in turns {times} times as long as planned, so ratios are nearer "
            "to 1 than they are in a server that keeps its settings. A design that restarts the server for "
            "each trial has no carry-over."
        )
    return said


def to_json(folder: ExperimentFolder, records: Sequence[TrialRecord]) -> dict[str, Any] | None:
    """The part of ``report.json``; None if the experiment is no switchback."""
    if not is_switchback(folder):
        return None
    found: Carryover | None = carryover.of_folder(folder, records)
    return {
        "blocks_per_start": folder.design.blocks_per_start,
        "washout_s": folder.design.washout_s,
        "stretch": carryover.stretch(folder, records),
        "carryover": {**asdict(found), "shows": found.shows} if found else None,
        "notes": sentences(folder, records),
    }
