"""A switchback: settings change under one running load, in short blocks of random order.

The server is started and warmed up once for many blocks. In each block every treatment has its turn, the baseline
two, in random order; the seconds after each change (the wash-out) do not count. Each turn is a trial of its own in
the folder, cut from the load's seconds, so that everything else reads it as any other trial.

Noise of neighbouring seconds is alike. That widens nothing and biases nothing, because the order within a block is
random: a block's differences have no direction unless a treatment has (Fisher's argument). What a treatment leaves
behind for its successor would be a bias, so it is tested for (``stats.carryover``) after each start, and where
it shows, everything is measured again with turns and wash-outs twice as long.

Sources: Cochran & Cox 1957, Experimental Designs, 2nd ed., sec. 4.6a (change-over designs); Bojinov, Simchi-Levi &
Zhao 2023, Design and analysis of switchback experiments, Management Science 69(7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.base.errors import PlanError
from headrace.base.model import TrialSpec
from headrace.experiment import design as designs
from headrace.experiment import workloads
from headrace.experiment.frozen import Design
from headrace.experiment.kinds.kind import Ask, Kind
from headrace.experiment.plan import BLOCKS_PER_START, WASHOUT_S, Plan
from headrace.experiment.stats import carryover
from headrace.experiment.store import TrialRecord
from headrace.experiment.workloads import has_preflight, make_workload
from headrace.knobs import catalogue as knobs
from headrace.knobs import switching

#: A turn shorter than this says nothing about what is left over from the one before.
LEAST_S = 2

HINT = 'kind = "{kind}" starts the server anew for each trial'


def _check_plan(design: Design, kind: str) -> None:
    hint = HINT.format(kind=kind)
    workload = make_workload(design.workload.kind, design.workload.options)
    if workloads.watches(workload):
        raise PlanError(
            f"workload.kind = {design.workload.kind!r}: a switchback switches a private server of its own, and "
            "observe watches a live one",
            hint=f'kind = "{kind}" changes the live settings for each trial, without a restart',
        )
    if not has_preflight(workload):
        raise PlanError(
            f"workload.kind = {design.workload.kind!r}: a switchback needs headrace's driver on a private server",
            hint=f"workload.kind = oltp, sql or tpcc; {hint}",
        )
    if workloads.driven_from(workload)[0]:
        raise PlanError("workload.clients: a switchback is driven from the server's own machine", hint=hint)
    seconds = design.workload.seconds
    if seconds != int(seconds) or seconds < LEAST_S:
        raise PlanError(
            f"workload.seconds = {seconds:g}: a turn is a whole number of seconds from {LEAST_S} on"
        )
    if len(design.baselines) > 1:
        raise PlanError("factors: a switchback cannot vary the workload", hint=hint)
    if len(design.treatments) < 2:
        raise PlanError("a switchback needs a treatment in addition to its baseline")
    stuck = {
        name: reason
        for name in sorted(differing(design))
        if (reason := switching.why_not(knobs.find(name.partition("@")[0]), design.server.vendor))
    }
    if stuck:
        named = ", ".join(f"{name} ({reason})" for name, reason in stuck.items())
        raise PlanError(f"cannot be switched while the server runs: {named}", hint=hint)


def differing(design: Design) -> set[str]:
    """The knobs that not all treatments have with the same value."""
    every = [treatment.settings for treatment in design.treatments]
    names = {name for settings in every for name in settings}
    return {name for name in names if any(s.get(name) != every[0].get(name) for s in every)}


def starts(design: Design) -> list[tuple[TrialSpec, ...]]:
    """The turns after each start of the server, in order."""
    found: dict[int, list[TrialSpec]] = {}
    for trial in design.trials:
        found.setdefault(design.start_of(trial.block), []).append(trial)
    return [tuple(trials) for trials in found.values()]


class Switchback(Kind):
    """Start after start; all turns of one are measured together."""

    name = "switchback"
    extends = True
    # A disturbed turn is one of many: repeating it would take a whole start.
    repeats = False

    @classmethod
    def is_of(cls, plan: Plan) -> bool:
        return plan.design.kind == cls.name

    @classmethod
    def build(cls, plan: Plan, *, place: str, is_root: bool = True) -> Design:
        """Raises PlanError, naming the knobs, for what cannot change under a running load."""
        table = plan.design
        chosen = "cumulative" if table.rungs else "factorial"
        own = plan.model_copy(update={"design": table.model_copy(update={"kind": chosen})})
        design = designs.build(own, place=place, is_root=is_root)
        design = replace(
            design,
            experiment=cls.name,
            blocks_per_start=table.blocks_per_start or BLOCKS_PER_START,
            washout_s=table.washout_s or WASHOUT_S,
        )
        try:
            _check_plan(design, chosen)
        except PlanError as error:
            raise PlanError(error.message, place=place, hint=error.hint) from error
        return design.frozen()

    def next(self, records: Sequence[TrialRecord]) -> Ask:
        design = self.design
        stretch, notes = carryover.stretch(self.folder, records), []
        there = {r.number for r in records if carryover.stretch_of(design, r) in (0, stretch)}
        moments = [turns for turns in starts(design) if any(t.number not in there for t in turns)]
        done = [turns for turns in starts(design) if all(t.number in there for t in turns)]
        if done and stretch < carryover.MOST_STRETCH:
            found = carryover.of_folder(self.folder, records)
            if found and found.shows:
                stretch *= 2
                moments = starts(design)
                seconds = stretch * design.workload.seconds
                notes = [
                    f"{found.text}: everything is measured again, with turns of {seconds:g} s "
                    f"after {stretch * design.washout_s} s that do not count"
                ]
        return Ask(moments, len(design.trials), notes, stretch=stretch)
