"""The report of a saturation sweep: its sections in order. A new section needs its own file and a line here.

``report.json`` of a sweep:

    format                1; a change that could break a reader raises it
    headrace              the version that wrote it
    experiment            name, description, kind ("sweep"), seed, alpha, workload, target, hash
    headline              the conclusions in plain sentences
    sweep                 knob, unit, is_open (a rate: latency is response time), gain, passes, latency_kind,
                          search_end (why the search ended, "" while it has not)
    levels[]              treatment, load, throughput_ops_s, step (the ratio to the best smaller level, paired by
                          pass), latency_ns {p50 ... max}, trials[], operations, errors, failed_share (of the
                          operations, those that ended badly) with failed_share_low and failed_share_high,
                          search_ops_s, law_residual (measured by the law, less 1), is_driver_saturated (so not
                          the server), missing (why there are no numbers, or "")
    knee                  load, low, high (levels), ops_s, is_top, may_be_top; null without a trial
    objectives[]          percentile, limit_ns, holds, fails, open_levels[], estimate, why
    law                   lambda_ops_s, sigma, kappa, peak_load, peak_is_bounded (whether an interval bounds it
                          from above), peak_ops_s, p_value, doubt; null where law_refusal says why
    law_refusal           why there is no law, or ""
    growth[]              of trials of ten minutes and more, as for an experiment
    trials[]              number, block (0 is the search), position, treatment, state, reason, excluded (why it is
                          not analysed, or null), throughput_ops_s, p99_ns, started_ns, finished_ns, facts_hash,
                          warnings[]
    cautions[]            what makes pairing by pass doubtful: trials of a pass far apart, or on a changed host
    planned_trials        how many there are to be, as far as the search has decided
    versions              program -> every version that trials ran
    notice                the verdict as it is told: see docs/howto/tell.md

An estimate is ``{"estimate", "low", "high"}``; ``low`` and ``high`` are null where no interval is possible.
Numbers that do not exist, or are infinite, are null.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace import __version__
from headrace.experiment.report import growth, host
from headrace.experiment.report.page import about
from headrace.experiment.report.sweep import law, levels, method, result, series, trials
from headrace.experiment.report.sweep.view import SweepView
from headrace.experiment.store import ExperimentFolder
from headrace.show.notice import Conclusion, Notice
from headrace.show.parts import Page, Section

FORMAT_VERSION = 1

SECTIONS: tuple[Callable[[SweepView], Section], ...] = (
    result.section,
    levels.section,
    law.section,
    series.pace_section,
    growth.section,
    series.machine_section,
    host.section,
    trials.section,
    method.section,
)

_KEPT = ("name", "description", "kind", "seed", "alpha", "workload", "target", "hash")


def of_folder(folder: ExperimentFolder) -> Page:
    return page_of(SweepView(folder))


def page_of(view: SweepView) -> Page:
    sweep = view.sweep
    return Page(
        eyebrow="headrace sweep",
        title=sweep.name,
        lead=view.design.description,
        verdicts=[sweep.headline],
        keys=list(result.keys(view)),
        sections=[section(view) for section in SECTIONS],
        footer="the numbers are in report.json, the data is next to it as Parquet",
        data={
            "format": FORMAT_VERSION,
            "headrace": __version__,
            "experiment": about(view.design, _KEPT),
            "headline": sweep.headline,
            "sweep": {
                "knob": sweep.knob,
                "unit": sweep.unit,
                "is_open": sweep.is_open,
                "gain": sweep.gain,
                "passes": sweep.passes,
                "latency_kind": sweep.latency_kind,
                "search_end": view.search.end,
            },
        },
        notice=Notice(
            kind="sweep",
            subject=sweep.name,
            conclusion=Conclusion.NOT_ENOUGH_DATA if sweep.knee is None else Conclusion.DECIDED,
            headline=sweep.headline,
            link=str(view.folder.path / "report.html"),
        ),
    )
