"""A duet: a treatment and its baseline are measured side by side, concurrently, each on half of the machine.

Noise that affects both cancels in their ratio; in sequential trials it would have to be averaged out. Each side
has its own CPUs, server, volume and driver, and both loads start at the same instant. Halves are assigned at
random for each pair and balanced over two blocks, so that a better half has no influence. A pair is a block of the
analysis: only its two trials share their moment.

Source: Bulej, Horký, Tůma, Farquet & Prokopec 2020, Duet benchmarking: improving measurement accuracy in the
cloud, ICPE (arXiv 2001.05811). That pinning makes fewer false alarms than letting both share all CPUs: Japke,
Hamdan, Baumann & Bermbach 2025, Investigating the impact of isolation on synchronized benchmarks, UCC (arXiv
2511.03533).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from headrace.base.errors import PlanError
from headrace.base.model import Role, Treatment, TrialSpec
from headrace.experiment import design as designs
from headrace.experiment import workloads
from headrace.experiment.frozen import Design
from headrace.experiment.kinds.kind import Ask, Kind, missing, require_complete
from headrace.experiment.plan import Plan
from headrace.experiment.store import TrialRecord

#: What may differ between two sides. Everything else is shared by the whole machine, or changes the question.
OWN = ("server.", "volume.")

_REASONS = {
    "host.": "the kernel's settings are shared by both sides",
    "machine.": "both sides run on the same machine and kernel",
    "workload.": "two sides with different loads are two different questions",
}

#: Devices that each side can have its own of; of the others there is only one.
DEVICES = ("directory", "loop", "zram")


def _check_plan(design: Design) -> None:
    workload = workloads.make_workload(design.workload.kind, design.workload.options)
    if workloads.watches(workload) or design.workload.kind == "memcached":
        raise PlanError(
            f"design.duet: with {design.workload.kind} the sides have nothing of their own",
            hint="duet = false: run one after the other, in random order",
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
            f"volume.device = {device!r} in {treatment.name}: two sides need two equal volumes at the same "
            "time",
            hint=f"one of {', '.join(DEVICES)}; otherwise duet = false",
        )


def _trials(design: Design) -> Iterator[TrialSpec]:
    """Pairs in random order in each of the plan's blocks: each treatment with its baseline, and the baseline with
    itself. Sides are random in the first of two blocks and swapped in the second.
    """
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


class Duet(Kind):
    """Pairs in the design's order. If a pair is not complete on disk, both sides are measured again."""

    name = "duet"

    @classmethod
    def is_of(cls, plan: Plan) -> bool:
        return plan.design.duet

    @classmethod
    def build(cls, plan: Plan, *, place: str, is_root: bool = True) -> Design:
        """Two trials of each pair (its ``block``); ``position`` is the half of the machine.

        Raises PlanError for anything that two sides cannot have separately.
        """
        design = designs.build(plan, place=place, is_root=is_root)
        try:
            _check_plan(design)
            for treatment in design.treatments:
                _check(design, treatment)
        except PlanError as error:
            raise PlanError(error.message, place=place, hint=error.hint) from error
        if len(design.treatments) == len(design.baselines):
            raise PlanError("a duet needs a treatment in addition to its baseline", place=place)
        return replace(design, experiment=cls.name, at_once=2, trials=tuple(_trials(design))).frozen()

    def next(self, records: Sequence[TrialRecord]) -> Ask:
        trials = self.design.trials
        left = missing(trials, records)
        # One pair: if disturbed, it is measured again immediately.
        pair = tuple(trial for trial in trials if left and trial.block == left[0].block)
        return Ask([pair] if pair else [], len(trials))

    def check(self, records: Collection[TrialRecord]) -> None:
        require_complete(records, "pair")
