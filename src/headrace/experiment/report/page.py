"""The report of an experiment: its sections in order.

A new section needs its own file and a line here. ``report.json``: the page's content for programs.

    format                1; a change that could break a reader raises it
    headrace              the version that wrote it
    experiment            name, description, kind, seed, blocks, alpha, equivalence, workload, target, hash
    headline              the verdict in one sentence
    treatments[]          treatment, configuration, condition, is_baseline, trials[], latency_kind, operations,
                          errors, throughput_ops_s, latency_ns {p50 ... max}, missing (why there are no
                          numbers, or ""), shares[] (each kind of operation, if there are several: operation,
                          operations, errors, throughput_ops_s, latency_ns; omitted if none succeeded in some
                          trial), per_minute (the workload's customary figure, or null: name, operation, rate)
    effects[]             treatment, baseline, condition, response, ratio, verdict, blocks, blocks_least,
                          blocks_needed, comparisons, noise_floor (of the same condition and response)
    factors[]             factor effects by condition and response: see docs/explanation/effects.md
    choice                which one to choose, or null with fewer than three treatments: alpha, margin,
                          sentences[], best[], fronts[], robust[]; see docs/explanation/effects.md
    noise[]               condition, response, ratio, floor, blocks
    growth[]              of trials of ten minutes and more: trial, treatment, measure, mean, change (over the
                          window), shows (whether its interval excludes 0)
    power_cuts[]          of the workload power-cut: treatment, trials, trials_that_lost, cuts, cuts_that_lost,
                          lost_per_cut (acknowledged transactions, an estimate), most_lost, most_lost_s,
                          acknowledged (of all cuts), recovery_s (median), after (what became of a server that did
                          not come up, or not with whole tables: text -> cuts), at_most_of_trials (null where any
                          was lost)
    trials[]              number, block, position, treatment, role, state, reason, excluded (why it is not
                          analysed, or null), throughput_ops_s, p99_ns, started_ns, finished_ns, facts_hash,
                          warnings[]
    duet                  null, or for trials that ran side by side: cpus[] of the two halves, is_half_a_machine
                          (true: so are the absolute numbers), sides (pairs, bias of the second half over the
                          first, alone and together: how much a trial varied on its own and relative to the
                          other of its pair), notes[]
    switchback            null, or for settings switched under a running load: blocks_per_start, washout_s, stretch
                          (how many times as long as planned its turns became), carryover (null, or turns, p,
                          size, stretch, shows: whether a turn shows in the next), notes[]
    machines              null, or for an experiment on several: between (largest ratio of two baselines),
                          within_sd_log (of baseline trials of one), set_aside (trials not used),
                          machines[] (machine, blocks, ratio to the mean of all)
    adopt[]               for each condition what is proven best: treatment, settings, command
    cautions[]            why pairing by block may be unreliable: trials of a block far apart, or on a changed host
    planned_trials        trials in the design
    versions              program -> every version that trials ran
    notice                the verdict as it is told: see docs/howto/tell.md

An estimate is ``{"estimate", "low", "high"}``; ``low`` and ``high`` are null if no interval is possible.
Numbers that do not exist are null, never NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace import __version__
from headrace.experiment.frozen import Design
from headrace.experiment.report import (
    adopt,
    choice,
    configuration,
    cuts,
    duet,
    growth,
    host,
    latency,
    machine,
    machines,
    matters,
    method,
    numbers,
    pace,
    result,
    settle,
    switchback,
    told,
    trials,
)
from headrace.experiment.report.view import View, opened
from headrace.experiment.store import ExperimentFolder
from headrace.show.parts import Page, Section

FORMAT_VERSION = 1

SECTIONS: tuple[Callable[[View], Section], ...] = (
    cuts.section,
    result.section,
    numbers.section,
    settle.section,
    choice.section,
    matters.section,
    pace.section,
    growth.section,
    latency.section,
    machine.section,
    configuration.section,
    host.section,
    trials.section,
    adopt.section,
    method.section,
)

_KEPT = (
    "name",
    "description",
    "kind",
    "seed",
    "blocks",
    "alpha",
    "equivalence",
    "workload",
    "target",
    "hash",
)


def about(design: Design, keys: Sequence[str]) -> dict[str, object]:
    """The design as the report repeats it."""
    table = design.to_json()
    return {key: table[key] for key in keys}


def of_folder(folder: ExperimentFolder) -> Page:
    return page_of(opened(folder))


def page_of(view: View) -> Page:
    """Raises StoreError when the folder's tables cannot be read."""
    return Page(
        eyebrow="headrace experiment",
        title=view.analysis.name,
        lead=view.design.description,
        verdicts=[view.analysis.headline],
        keys=list(cuts.keys(view) or result.keys(view)),
        sections=[section(view) for section in SECTIONS],
        footer="the numbers are in report.json, the data is next to it as Parquet",
        data={
            "format": FORMAT_VERSION,
            "headrace": __version__,
            "experiment": about(view.design, _KEPT),
            "headline": view.analysis.headline,
            "duet": duet.to_json(view.folder, view.records, view.responses)
            if duet.is_duet(view.folder)
            else None,
            "switchback": switchback.to_json(view.folder, view.records),
            "machines": machines.to_json(view.folder, view.analysis),
        },
        notice=told.notice(view),
    )
