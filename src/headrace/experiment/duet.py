"""A duet: a treatment and its baseline are measured side by side, at the same moment, each on half of the machine.

What a noisy machine does to both at once cancels in their ratio, where in trials one after the other it would have
to be averaged away. Each side has its own CPUs, server, volume and driver, and both loads begin at one instant.
Which side has which half is drawn anew for each pair, and comes out even over two blocks, so that a better half
decides nothing. A pair is a block of the analysis: two trials that share their moment, and nothing else does.

Source: Bulej, Horký, Tůma, Farquet & Prokopec 2020, Duet benchmarking: improving measurement accuracy in the
cloud, ICPE (arXiv 2001.05811). That pinning makes fewer false alarms than letting both share all CPUs: Japke,
Hamdan, Baumann & Bermbach 2025, Investigating the impact of isolation on synchronized benchmarks, UCC
(arXiv 2511.03533).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from headrace import plan as plans
from headrace import workloads
from headrace.analysis.disturbance import find_disturbance
from headrace.design import Design
from headrace.errors import PlanError
from headrace.experiment import design as designs
from headrace.experiment.again import Again
from headrace.experiment.laboratory import Measured
from headrace.experiment.runner import (
    Listener,
    Note,
    Run,
    Step,
    TrialEnded,
    TrialStarted,
    as_repeated,
    judge,
    observed_ops_s,
    require_complete,
    run_design,
    stop_when_hopeless,
)
from headrace.model import Role, Treatment, TrialSpec, TrialState
from headrace.store import ExperimentFolder, TrialData, TrialRecord

KIND = "duet"

#: What may differ between two sides. Everything else is one for the whole machine, or another question.
OWN = ("server.", "volume.")

_REASONS = {
    "host.": "the kernel's settings are shared by both sides",
    "machine.": "both sides run on the same machine and kernel",
    "workload.": "two sides with different loads are two different questions",
}

#: A volume of each side's own; of the others there is only one.
DEVICES = ("directory", "loop", "zram")

#: Two windows that share less than this are no pair.
MIN_OVERLAP = 0.95

Pair = tuple[TrialSpec, TrialSpec]


def as_duet(design: Design, place: str) -> Design:
    """The design of a plan with ``duet = true``: two trials of each pair (its ``block``), ``position`` is the half
    of the machine. Raises PlanError for what two sides cannot each have."""
    try:
        _check_plan(design)
        for treatment in design.treatments:
            _check(design, treatment)
    except PlanError as error:
        raise PlanError(error.message, place=place, hint=error.hint) from error
    if len(design.treatments) == len(design.baselines):
        raise PlanError("a duet needs a treatment beside its baseline", place=place)
    return replace(design, experiment=KIND, at_once=2, trials=tuple(_trials(design))).frozen()


def _check_plan(design: Design) -> None:
    workload = workloads.make_workload(design.workload.kind, design.workload.options)
    if workloads.watches(workload) or design.workload.kind == "memcached":
        raise PlanError(
            f"design.duet: with {design.workload.kind} there is nothing that each side has for itself",
            hint="duet = false: one after the other, in random order",
        )
    if workloads.driven_from(workload)[0] or design.server.port:
        raise PlanError(
            "design.duet: each side drives its own server over its own socket",
            hint="leave server.port and workload.clients out",
        )


def _check(design: Design, treatment: Treatment) -> None:
    baseline = design.treatment(design.baselines[treatment.condition])
    for knob in {**treatment.settings, **baseline.settings}:
        if knob.startswith(OWN) or treatment.settings.get(knob) == baseline.settings.get(knob):
            continue
        reason = next((r for area, r in _REASONS.items() if knob.startswith(area)), "both sides share it")
        raise PlanError(
            f"{knob} in {treatment.name}: not in a duet: {reason}",
            hint=f"in a duet {' and '.join(area + '*' for area in OWN)} may differ; otherwise duet = false",
        )
    device = str(treatment.settings.get("volume.device", design.volume.device))
    if device not in DEVICES:
        raise PlanError(
            f"volume.device = {device!r} in {treatment.name}: two sides need two volumes alike at once",
            hint=f"one of {', '.join(DEVICES)}; otherwise duet = false",
        )


def _trials(design: Design) -> Iterator[TrialSpec]:
    """Pairs in a random order in each of the plan's blocks: each treatment with its baseline, and the baseline
    with itself. The sides are drawn in the first of two blocks and swapped in the second."""
    generator = random.Random(design.seed)
    swapped: dict[str, bool] = {}
    number = pair = 0
    for block in range(design.blocks):
        names = [t.name for t in design.treatments]
        for name in names:
            swapped[name] = generator.random() < 0.5 if block % 2 == 0 else not swapped[name]
        generator.shuffle(names)
        for name in names:
            baseline = design.baselines[design.treatment(name).condition]
            second = (name, Role.REPEAT if name == baseline else Role.CANDIDATE)
            sides = [(baseline, Role.BASELINE), second]
            pair += 1
            for position, (treatment, role) in enumerate(sides[::-1] if swapped[name] else sides, start=1):
                number += 1
                yield TrialSpec(number, pair, position, treatment, role)


async def run_duet(
    plan_path: Path, folder_path: Path | None, listen: Listener, *, retry: bool = False
) -> ExperimentFolder:
    """Run or continue the duet of a plan file: as ``runner.run_experiment``."""
    plan, text = plans.load(plan_path)

    def build(is_root: bool) -> Design:
        return as_duet(designs.build(plan, place=str(plan_path), is_root=is_root), str(plan_path))

    return await run_design(plan, text, build, _DuetRun, folder_path, listen, retry=retry)


class _DuetRun(Run):
    """The loop over the pairs. A pair is whole on disk or measured again, both sides of it."""

    async def all_trials(self) -> None:
        pairs = _pairs(self._design.trials)
        again = self._again()
        on_disk = {r.number: r for r in self._folder.trials() if r.number not in again}
        left = [pair for pair in pairs if any(spec.number not in on_disk for spec in pair)]
        total = len(self._design.trials)
        if left and len(left) < len(pairs):
            self._listen(Note(f"continuing: {len(pairs) - len(left)} of {len(pairs)} pairs are done"))
        repeats = Again(on_disk.values(), total, lambda text: self._listen(Note(text)))
        if left:
            first, second = await self._lab.halves()
            self._listen(Note(f"side by side, on CPUs {first} and {second}"))
        for pair in left:
            done = total - 2 * (len(left) - left.index(pair))
            records = await self._pair(pair, done, total)
            while disturbed := _disturbed(records, repeats):
                repeats.begin(disturbed)
                records = await self._pair(pair, done, total)
            on_disk |= {r.number: r for r in records}
            for record in records:
                stop_when_hopeless(self._folder, record)
        require_complete(on_disk.values(), "pair")

    async def _pair(self, pair: Pair, done: int, total: int) -> list[TrialRecord]:
        first, second = pair
        both = replace(first, treatment=f"{first.treatment} | {second.treatment}")
        self._listen(TrialStarted(both, done, total, self._left_s(total - done)))
        began = time.monotonic()
        drafts = [self._folder.begin_trial(spec.number) for spec in pair]
        try:
            measured = await self._lab.measure_pair(
                self._design, pair, drafts, lambda text: self._listen(Step(text))
            )
            measured = [(self._judged(record, data), data) for record, data in measured]
            measured = [(record, data) for record, (_, data) in zip(_paired(measured), measured, strict=True)]
            old = [self._folder.trial(spec.number) for spec in pair]
            for spec in pair:
                self._folder.remove_trial(spec.number)
            records = []
            for (record, data), before, draft in zip(measured, old, drafts, strict=True):
                records.append(as_repeated(record, before))
                draft.commit(records[-1], data)
        except BaseException:
            for draft in drafts:
                draft.discard()
            raise
        self._durations_s += [(time.monotonic() - began) / 2] * 2
        for i, (record, data) in enumerate(measured, start=1):
            left_s = self._left_s(total - done - i)
            self._listen(TrialEnded(record, observed_ops_s(record, data), done + i, total, left_s))
        return records

    def _judged(self, record: TrialRecord, data: TrialData) -> TrialRecord:
        if record.state is TrialState.FAILED or record.window_end_ns == 0:
            return record
        return judge(record, find_disturbance(record, data, self._folder.design))


def _pairs(trials: Sequence[TrialSpec]) -> list[Pair]:
    by_block: dict[int, list[TrialSpec]] = {}
    for spec in trials:
        by_block.setdefault(spec.block, []).append(spec)
    return [(first, second) for first, second in by_block.values()]


def _paired(measured: Sequence[Measured]) -> list[TrialRecord]:
    """The records of a pair: one side alone is no measurement, however well it went."""
    first, second = (record for record, _ in measured)
    if first.state is second.state is TrialState.COMPLETE:
        start = max(first.window_start_ns, second.window_start_ns)
        end = min(first.window_end_ns, second.window_end_ns)
        longest = max(r.window_end_ns - r.window_start_ns for r in (first, second))
        share = (end - start) / longest if longest else 0.0
        if share >= MIN_OVERLAP:
            return [first, second]
        why = f"the two windows share only {max(share, 0):.0%} of their time"
        return [replace(r, state=TrialState.INVALID, reason=why) for r in (first, second)]
    return [_beside(first, second), _beside(second, first)]


def _disturbed(records: Sequence[TrialRecord], repeats: Again) -> TrialRecord | None:
    """The side for which the pair is measured again; none where a side failed, which it would do again."""
    if any(r.state is TrialState.FAILED for r in records):
        return None
    return next((r for r in records if repeats.wants(r)), None)


def _beside(record: TrialRecord, other: TrialRecord) -> TrialRecord:
    if record.state is not TrialState.COMPLETE:
        return record
    why = f"the other side of its pair ({other.treatment}) is {other.state}: {other.reason}"
    return replace(record, state=TrialState.INVALID, reason=why)
