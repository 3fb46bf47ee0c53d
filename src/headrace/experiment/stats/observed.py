"""Which trials a comparison may use, and how the estimator takes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from headrace.experiment.stats.estimate import Seen
from headrace.experiment.stats.trials import THROUGHPUT, TrialResponse


def answered(
    response: str, trials: Mapping[str, Sequence[TrialResponse]], baseline: str
) -> dict[str, list[TrialResponse]]:
    """The trials that can be compared with the baseline, by treatment, in the given order."""
    common = blocks_of(trials.get(baseline, ()))
    silent = {t.block for t in trials.get(baseline, ()) if is_unanswered(t, response)}
    found = {}
    for name, own in trials.items():
        theirs = {t.block for t in own if is_unanswered(t, response)}
        blocks = blocks_of(own)
        if name == baseline:
            kept = blocks - silent
        elif theirs & common or blocks & silent or not blocks & common:
            continue
        else:
            # Whole blocks, never the good trials of one.
            kept = blocks - theirs
        if usable := [t for t in own if t.block in kept and t.value(response) is not None]:
            found[name] = usable
    return found


def seen_of(response: str, trials: Iterable[TrialResponse]) -> list[Seen]:
    """Trials with a value, as the estimator takes them; those of a treatment in a session are one."""
    found, numbers = [], set()
    sessions: dict[tuple[str, int], list[Seen]] = {}
    for trial in trials:
        if trial.number in numbers:
            raise ValueError(f"trial {trial.number} is given twice: a trial is one observation")
        numbers.add(trial.number)
        value = trial.value(response)
        if value is not None:
            one = Seen(trial.treatment, trial.block, math.log(value), trial.lost, trial.lost_device)
            if trial.is_of_session:
                sessions.setdefault((trial.treatment, trial.block), []).append(one)
            else:
                found.append(one)
    return found + [_mean(own) for own in sessions.values()]


def _mean(own: Sequence[Seen]) -> Seen:
    def of(values: Iterable[float]) -> float:
        return math.fsum(values) / len(own)

    logs, lost, device = (s.log for s in own), (s.lost for s in own), (s.lost_device for s in own)
    return Seen(own[0].treatment, own[0].block, of(logs), of(lost), of(device))


def blocks_of(trials: Iterable[TrialResponse]) -> set[int]:
    """The blocks in which a trial did any work."""
    return {t.block for t in trials if t.value(THROUGHPUT) is not None}


def is_unanswered(trial: TrialResponse, response: str) -> bool:
    """Whether a trial did work but has no value for the response."""
    return trial.value(THROUGHPUT) is not None and trial.value(response) is None
