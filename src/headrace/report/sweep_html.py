"""A sweep's ``report.html``: one file, no network request, in the same dress as an experiment's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from headrace import __version__
from headrace.analysis.sweep import SEARCH, Answer, Sweep, round_peak
from headrace.model import TrialState
from headrace.report import html, sweep_charts, tables, text
from headrace.report.evidence import Evidence
from headrace.report.sections import Machines, Paces
from headrace.report.sweep_text import DRIVER_SATURATED, between, gain, latency_words, passes, peak, share
from headrace.store import ExperimentFolder


def render(folder: ExperimentFolder, sweep: Sweep, search_end: str, evidence: Evidence) -> str:
    """The page as text; ``folder`` as ``experiment.sweep.as_decided`` gives it."""
    scripts = [
        html._resource(__package__, "vendored/plotly.min.js"),
        html._resource(__package__, "templates/report.js"),
    ]
    hashes = " ".join(f"'sha256-{html._digest(s)}'" for s in scripts)
    environment = html.environment()
    environment.filters |= _FILTERS
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
    return environment.get_template("sweep.html").render(
        page=SweepPage(folder, sweep, search_end, evidence),
        sweep=sweep,
        csp=f"{policy}; script-src {hashes}",
        css=html._resource(__package__, "templates/report.css"),
        scripts=scripts,
        version=__version__,
    )


#: What the table of levels shows, beside what an objective asks for; report.json has all.
LATENCIES = ("p50", "p95", "p99", "p99.9", "max")


_FILTERS: Mapping[str, Callable[..., str]] = {
    "load": lambda load: f"{load:,.6g}",
    "gain": gain,
    "latency_words": latency_words,
    "passes": passes,
    "between_gain": lambda interval: between(interval, gain),
    "between_count": lambda interval: between(interval, text.count),
    "between_ms": lambda interval: between(interval, text.milliseconds),
}


class SweepPage(html._Page):
    """What the template reads beside the Sweep: the parts that every experiment has, and a sweep's own."""

    def __init__(self, folder: ExperimentFolder, sweep: Sweep, search_end: str, evidence: Evidence) -> None:
        self.design = folder.design
        self.analysis = sweep.as_analysis()
        self.evidence = evidence
        self.figures = html.Figures()
        self.sweep = sweep
        self.search_end = search_end
        self.groups = [_group(sweep)]
        self._folder = folder
        asked = {*LATENCIES, *(answer.objective.percentile for answer in sweep.answers)}
        self.latencies = tuple(p for p in html.LATENCIES if p in asked)
        paces = Paces(evidence, self.groups, self.figures.add)
        self.paces, self.pace_note = paces.cards(), paces.note()
        machines = Machines(evidence, self.groups, self.figures.add)
        self.machines, self.machine_rows = machines.details(), machines.summaries()

    @cached_property
    def keys(self) -> list[dict[str, str]]:
        cards = [_knee_card(self.sweep)]
        cards += [_objective_card(self.sweep, answer) for answer in self.sweep.answers]
        if not self.sweep.is_open:
            cards.append(_law_card(self.sweep))
        return [*cards, self._trials_card()]

    def _trials_card(self) -> dict[str, str]:
        trials = [t for t in self.design.trials if t.block != SEARCH]
        states = [r.state for r in self.evidence.records if r.block != SEARCH]
        aside = [f"{n} {s}" for s in (TrialState.INVALID, TrialState.FAILED) if (n := states.count(s))]
        aside += [f"{left} not run yet"] if (left := len(trials) - len(states)) else []
        analysed = sum(len(summary.trials) for _, summary in self.sweep.measured)
        return {
            "title": "Trials analysed",
            "value": f"{analysed} of {len(trials)}",
            "note": ", ".join(aside) or f"{len(self.sweep.measured)} levels, {self.sweep.passes} passes",
            "kind": "attention" if aside else "",
        }

    @cached_property
    def charts(self) -> list[dict[str, Any]]:
        """The two figures, each with its legend; none without a level that was measured."""
        if not self.sweep.measured:
            return []
        responses = self.evidence.responses
        trials = {
            summary.treatment: [responses[n].throughput_ops_s for n in summary.trials if n in responses]
            for _, summary in self.sweep.measured
        }
        shown = self.percentiles
        latency = [_entry(name, sweep_charts.LATENCY_STYLES[name][0]) for name in shown]
        if self.sweep.answers:
            latency.append(_entry("objective", "@{worse}", "dash"))
        return [
            {
                "title": "Throughput",
                "legend": self._throughput_legend(),
                **self.figures.add(sweep_charts.throughput(self.sweep, trials)),
            },
            {
                "title": "Latency",
                "legend": latency,
                **self.figures.add(sweep_charts.latency(self.sweep, shown)),
            },
        ]

    def _throughput_legend(self) -> list[dict[str, str]]:
        entries = [_entry("mean of the passes", "@{accent}"), _entry("one trial", "@{accent}", mark="–")]
        if self.has_search_trials:
            entries.append(_entry("search, not analysed", "@{muted}", mark="○"))
        if self.sweep.law is not None:
            entries.append(_entry("scalability law", "@{line2}", "dash"))
        if self.sweep.is_open:
            entries.append(_entry("as offered", "@{muted}", "dot"))
        return entries

    @cached_property
    def percentiles(self) -> list[str]:
        """Median and p99, and whatever an objective asks for."""
        wanted = {"p50", "p99", *(a.objective.percentile for a in self.sweep.answers)}
        return [name for name in self.latencies if name in wanted]

    @cached_property
    def cautions(self) -> list[str]:
        own = [DRIVER_SATURATED] if self.sweep.driver_saturated else []
        return own + tables.cautions([r for r in self.evidence.records if r.block != SEARCH])

    @cached_property
    def knee_load(self) -> float | None:
        """None, too, where throughput still grows at the highest level."""
        return self.sweep.knee.load if self.sweep.knee and not self.sweep.knee.is_top else None

    @cached_property
    def has_search_trials(self) -> bool:
        return any(level.search_ops_s is not None for level in self.sweep.levels)

    @cached_property
    def law_rows(self) -> list[tuple[str, str, str, str]]:
        """(name, estimate, interval, meaning) of the law's parameters."""
        law = self.sweep.law
        if law is None:
            return []
        client = self.sweep.at(1)
        return [
            ("λ", text.count(law.lambda_ops_s.estimate), between(law.lambda_ops_s, text.count),
             f"operations/s of {client} alone"),
            ("σ", share(law.sigma.estimate), text.between(law.sigma, share),
             "contention: the share of the work that only one can do at a time"),
            ("κ", share(law.kappa.estimate), text.between(law.kappa, share),
             "crosstalk: what each pair costs to keep in step; only this makes throughput fall"),
            ("N*", peak(law.peak_load.estimate), text.between(law.peak_load, peak),
             f"the peak: sqrt((1 − σ) / κ) {self.sweep.unit}"),
            ("X(N*)", "no limit" if law.peak_ops_s == float("inf") else text.count(law.peak_ops_s), "–",
             "operations/s at the peak"),
        ]  # fmt: skip

    @cached_property
    def worst_residual(self) -> float:
        return max(map(abs, self.sweep.law.residuals.values())) if self.sweep.law else 0.0

    def residual(self, load: float) -> str:
        law = self.sweep.law
        return f"{100 * law.residuals[load]:+.1f}%" if law and load in law.residuals else "–"

    def share_offered(self, load: float, ops_s: float) -> str:
        return f"{100 * ops_s / load:.1f}%"


def _entry(name: str, colour: str, dash: str = "solid", mark: str = "") -> dict[str, str]:
    return {"name": name, "colour": colour, "dash": dash, "mark": mark}


def _group(sweep: Sweep) -> tables.Group:
    rows = [
        tables.ResultRow(level.treatment, level.treatment, False, level.summary, {}, level.missing)
        for level in sweep.levels
    ]
    return tables.Group("", "", tuple(rows), {})


def _card(title: str, value: str, note: str, kind: str = "") -> dict[str, str]:
    return {"title": title, "value": value, "note": note, "kind": kind}


def _knee_card(sweep: Sweep) -> dict[str, str]:
    knee = sweep.knee
    if knee is None:
        return _card("Knee", "–", "no valid trial yet")
    if knee.is_top:
        return _card(
            "Knee",
            f"beyond {knee.load:,.6g}",
            "throughput still grows at the highest level measured",
            "attention",
        )
    if knee.low is None or knee.high is None:
        where = "too few passes for a range"
    elif knee.low == knee.high:
        where = f"with {1 - sweep.alpha:.0%} confidence"
    else:
        where = f"{knee.low:,.6g} to {knee.high:,.6g}{' or beyond' if knee.may_be_top else ''}"
    return _card("Knee", sweep.at(knee.load), f"{text.count(knee.ops_s.estimate)} operations/s · {where}")


def _objective_card(sweep: Sweep, answer: Answer) -> dict[str, str]:
    title = f"{answer.objective}"
    if answer.fails is not None:
        note = f"{answer.fails:,.6g} fails"
    elif answer.open_levels:
        note = f"above: {answer.why}"
    else:
        note = "the highest level measured"
    if answer.holds is None:
        return _card(title, "not shown", note, "attention")
    return _card(title, sweep.at(answer.holds), f"the largest that holds · {note}")


def _law_card(sweep: Sweep) -> dict[str, str]:
    title = "Peak by the scalability law"
    law = sweep.law
    if law is None:
        return _card(title, "no fit", sweep.law_refusal)
    if law.doubt:
        return _card(title, "does not fit", law.doubt, "attention")
    found = law.peak_load
    value = "none" if found.estimate == float("inf") else sweep.at(round_peak(found.estimate))
    where = "too few passes for a range" if found.low is None else text.between(found, peak)
    return _card(
        title,
        value,
        f"{where} · σ {share(law.sigma.estimate)}, κ {share(law.kappa.estimate)}",
    )
