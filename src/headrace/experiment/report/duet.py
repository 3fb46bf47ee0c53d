"""Notes on trials that ran side by side, and what that means for the report's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from headrace.base.model import TrialState
from headrace.experiment.stats.duet import Sides, sides
from headrace.experiment.stats.trials import TrialResponse
from headrace.experiment.store import ExperimentFolder, TrialRecord
from headrace.show import text


def is_duet(folder: ExperimentFolder) -> bool:
    return folder.design.experiment == "duet"


def of_responses(
    folder: ExperimentFolder, records: Sequence[TrialRecord], responses: Mapping[int, TrialResponse]
) -> Sides | None:
    """The result of the valid pairs; None if the experiment is not a duet or has no complete pair yet."""
    if not is_duet(folder):
        return None
    sound = [r for r in records if r.state is TrialState.COMPLETE and r.number in responses]
    positions = {r.number: r.position for r in sound}
    return sides([responses[r.number] for r in sound], positions, folder.design.alpha)


def cpus(records: Iterable[TrialRecord]) -> tuple[str, str]:
    """The CPUs of either half, as recorded by its trials."""
    found = {r.position: str(r.knobs["duet.cpus"]["after"]) for r in records if "duet.cpus" in r.knobs}
    return found.get(1, ""), found.get(2, "")


def sentences(
    folder: ExperimentFolder, records: Sequence[TrialRecord], responses: Mapping[int, TrialResponse]
) -> list[str]:
    """The notes; empty if the experiment is not a duet."""
    if not is_duet(folder):
        return []
    first, second = cpus(records)
    where = f" (CPUs {first} | {second})" if first else ""
    said = [
        f"Side by side: each treatment and its baseline ran concurrently, each on half of the machine{where}. "
        "The ratios are the result; operations/s and latencies are those of half a machine with a neighbour."
    ]
    found = of_responses(folder, records, responses)
    if found and found.bias:
        said.append(
            f"The second half had {text.ratio(found.bias.estimate)} of the first's throughput "
            f"({text.between(found.bias)}). Sides are assigned at random and swapped, so this does not "
            "affect the verdicts."
        )
    if found and found.alone is not None and found.together is not None:
        gain = f", {found.gain:.1f} times less" if found.gain and found.gain >= 1.05 else ""
        said.append(
            f"Trials vary by {100 * found.alone:.1f}% between pairs, and by {100 * found.together:.1f}% within"
            f"{gain}: the rest affects both halves of a pair and cancels."
        )
    return said


def to_json(
    folder: ExperimentFolder, records: Sequence[TrialRecord], responses: Mapping[int, TrialResponse]
) -> dict[str, Any] | None:
    """The part of ``report.json``; None if the experiment is not a duet."""
    if not is_duet(folder):
        return None
    found = of_responses(folder, records, responses)
    return {
        "cpus": list(cpus(records)),
        "is_half_a_machine": True,
        "sides": asdict(found) if found else None,
        "notes": sentences(folder, records, responses),
    }
