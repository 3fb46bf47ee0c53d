"""How much load still raises throughput: throughput and latency over the levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from headrace.base.counted import counted
from headrace.base.model import TrialState
from headrace.experiment.report.sweep import charts
from headrace.experiment.report.sweep.view import SweepView
from headrace.experiment.report.sweep.words import DRIVER_SATURATED, peak, share
from headrace.experiment.stats.sweep import SEARCH
from headrace.experiment.stats.sweep_result import Answer, Sweep
from headrace.experiment.stats.sweep_words import round_peak
from headrace.show import text
from headrace.show.parts import Chart, Key, Legend, Note, Part, Row, Section


def section(view: SweepView) -> Section:
    knee = view.sweep.knee
    return Section(
        "result",
        "Result",
        "How much load still raises throughput?",
        lambda: _parts(view),
        _see(view),
        data={
            "knee": None if knee is None else {**asdict(knee), "ops_s": knee.ops_s},
            "objectives": [_answer(answer) for answer in view.sweep.answers],
        },
    )


def _answer(answer: Answer) -> dict[str, object]:
    shown = ("holds", "fails", "open_levels", "estimate", "why")
    found: dict[str, object] = {name: getattr(answer, name) for name in shown}
    return {"percentile": answer.objective.percentile, "limit_ns": answer.objective.limit_ns, **found}


def _see(view: SweepView) -> str:
    sweep, said = view.sweep, ""
    if view.knee_load and sweep.knee:
        said = (
            f"The dotted line is the knee: the last level that brought {100 * sweep.gain:g}% more "
            "throughput than any smaller one. "
        )
        if sweep.knee.low is not None and sweep.knee.low != sweep.knee.high:
            said += f"The grey band is the range that contains it with {view.confidence} confidence. "
    return f"{said}Bars are {view.confidence} intervals over passes."


def _parts(view: SweepView) -> Iterator[Part]:
    sweep = view.sweep
    for caution in [*([DRIVER_SATURATED] if sweep.driver_saturated else []), *view.cautions]:
        yield Note(f"Caution: {caution}.", is_attention=True)
    if not sweep.is_open:
        yield Note(
            "This is a closed loop: a waiting connection sends nothing. While the server stalls, waiting "
            f"{sweep.unit} count as one slow operation each, so p99 is better here than users who keep "
            'coming would see it. To test an objective for users, sweep the rate: knob = "workload.rate".'
        )
    elif sweep.latency_kind != "response":
        yield Note(
            "This workload reports only service times, from the send: the time that an operation was queued "
            "is missing, so the objective's answer is optimistic.",
            is_attention=True,
        )
    if not sweep.measured:
        yield Note("No pass has a valid trial yet.")
        return
    responses = view.responses
    trials = {
        summary.treatment: [responses[n].throughput_ops_s for n in summary.trials if n in responses]
        for _, summary in sweep.measured
    }
    # Median and p99, and the percentiles of the objectives.
    wanted = {"p50", "p99", *(a.objective.percentile for a in sweep.answers)}
    shown = [name for name in view.latencies if name in wanted]
    latency: list[tuple[str, str, str]] = [(name, charts.LATENCY_STYLES[name][0], "") for name in shown]
    latency += [("objective", "@{worse}", "dash")] if sweep.answers else []
    yield Row(
        [
            Chart(charts.throughput(sweep, trials), "Throughput", legend=_legend(view)),
            Chart(charts.latency(sweep, shown), "Latency", legend=latency),
        ]
    )


def _legend(view: SweepView) -> Legend:
    entries = [("mean of the passes", "@{accent}", ""), ("one trial", "@{accent}", "–")]
    if view.has_search_trials:
        entries.append(("search, not analysed", "@{muted}", "○"))
    if view.sweep.law is not None:
        entries.append(("scalability law", "@{line2}", "dash"))
    if view.sweep.is_open:
        entries.append(("as offered", "@{muted}", "dot"))
    return entries


# -- The figures to take away -----------------------------------------------------------------------------------


def keys(view: SweepView) -> Iterator[Key]:
    yield _knee(view.sweep)
    yield from (_objective(view.sweep, answer) for answer in view.sweep.answers)
    if not view.sweep.is_open:
        yield _law(view.sweep)
    planned = [t for t in view.design.trials if t.block != SEARCH]
    states = [r.state for r in view.passes]
    aside = [f"{n} {s}" for s in (TrialState.INVALID, TrialState.FAILED) if (n := states.count(s))]
    aside += [f"{left} not run yet"] if (left := len(planned) - len(states)) else []
    analysed = sum(len(summary.trials) for _, summary in view.sweep.measured)
    note = (
        ", ".join(aside)
        or f"{counted(len(view.sweep.measured), 'level')}, {counted(view.sweep.passes, 'pass', 'passes')}"
    )
    yield Key("Trials analysed", f"{analysed} of {len(planned)}", note, "attention" if aside else "")


def _knee(sweep: Sweep) -> Key:
    knee = sweep.knee
    if knee is None:
        return Key("Knee", "–", "no valid trial yet")
    if knee.is_top:
        return Key(
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
    return Key("Knee", sweep.at(knee.load), f"{text.count(knee.ops_s.estimate)} operations/s · {where}")


def _objective(sweep: Sweep, answer: Answer) -> Key:
    title = f"{answer.objective}"
    if answer.fails is not None:
        note = f"{answer.fails:,.6g} fails"
    elif answer.open_levels:
        note = f"above: {answer.why}"
    else:
        note = "the highest level measured"
    if answer.holds is None:
        return Key(title, "not shown", note, "attention")
    return Key(title, sweep.at(answer.holds), f"the largest that holds · {note}")


def _law(sweep: Sweep) -> Key:
    title = "Peak by the scalability law"
    law = sweep.law
    if law is None:
        return Key(title, "no fit", sweep.law_refusal)
    if law.doubt:
        return Key(title, "does not fit", law.doubt, "attention")
    found = law.peak_load
    value = "none" if found.estimate == float("inf") else sweep.at(round_peak(found.estimate))
    where = "too few passes for a range" if found.low is None else text.between(found, peak)
    return Key(
        title,
        value,
        f"{where} · σ {share(law.sigma.estimate)}, κ {share(law.kappa.estimate)}",
    )
