"""The levels: throughput, gain, latency and objectives of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from headrace.base.intervals import Interval
from headrace.experiment.report.sweep.view import SweepView
from headrace.experiment.report.sweep.words import between, gain, latency_words, passes
from headrace.experiment.stats.sweep_result import Answer, Level, Sweep
from headrace.experiment.stats.usl import Law
from headrace.show import text
from headrace.show.parts import Cell, Column, Gap, Part, Section, Sentence, Table

#: Width of a throughput bar in a terminal, in characters.
BAR_WIDTH = 16


def section(view: SweepView) -> Section:
    sweep = view.sweep
    return Section(
        "table",
        "Levels",
        "The levels",
        lambda: _parts(view),
        "Throughput is the mean over passes; its gain is relative to the best smaller level, paired by pass. "
        f"Latency in ms is {latency_words(sweep)}: exact percentiles of all operations of the passes, with "
        "intervals over passes. A dash: too few operations beyond that percentile to state it.",
        list(_brief(sweep)),
        {"levels": [_json(level, sweep.law) for level in sweep.levels]},
    )


# -- The page ---------------------------------------------------------------------------------------------------


def _parts(view: SweepView) -> Iterator[Part]:
    sweep, law = view.sweep, view.sweep.law
    columns = [Column("offered" if sweep.is_open else sweep.unit), Column("operations/s", "n")]
    columns += [Column("of offered", "n")] if sweep.is_open else []
    columns += [Column("gain", "n"), *([Column("relative to the law", "n")] if law else [])]
    columns += [*(Column(p, "n") for p in view.latencies), *(Column(str(a.objective)) for a in sweep.answers)]
    columns += [Column("errors", "n"), Column("passes", "n")]
    rows, marked = [], set()
    for i, level in enumerate(sweep.levels):
        is_knee = level.load == view.knee_load
        marked |= {i} if is_knee else set()
        name = Cell(f"{level.load:,.6g}", note="knee" if is_knee else "")
        summary = level.summary
        if summary is None:
            rows.append([name, Cell(level.missing, look="missing", columns=len(columns) - 1)])
            continue
        ops_s = summary.throughput_ops_s
        cells = [_with(ops_s, text.count, "strong")]
        cells += [Cell(f"{100 * ops_s.estimate / level.load:.1f}%")] if sweep.is_open else []
        cells += [_with(level.step, gain), *([Cell(_residual(level, law))] if law else [])]
        cells += [_with(summary.latency_ns.get(p), text.milliseconds) for p in view.latencies]
        cells += [_answer(answer, level) for answer in sweep.answers]
        rows.append([name, *cells, Cell(text.count(summary.errors)), Cell(passes(level, sweep))])
    yield Table(columns, rows, marked=frozenset(marked))
    if end := view.search.end:
        because = "The search ended because" if view.has_search_trials else "Levels:"
        yield Sentence(f"{because} {end}.", "aside")


def _with(found: Interval | None, form: text.Form, look: str = "") -> Cell:
    """A value with its interval below."""
    if found is None:
        return Cell("–", look=look)
    return Cell(form(found.estimate), note="" if found.low is None else between(found, form), look=look)


def _residual(level: Level, law: Law | None) -> str:
    return f"{100 * law.residuals[level.load]:+.1f}%" if law and level.load in law.residuals else "–"


def _answer(answer: Answer, level: Level) -> Cell:
    if answer.holds is not None and level.load <= answer.holds:
        return Cell("holds", "better")
    if answer.fails is not None and level.load >= answer.fails:
        # One above without an interval was passed over.
        is_shown = level.meets(answer.objective, "low") is False
        return Cell("fails", "worse") if is_shown else Cell("–")
    return Cell(answer.why, "unsure") if level.load in answer.open_levels else Cell("–")


# -- The terminal -----------------------------------------------------------------------------------------------

_Shown = tuple[Column, Callable[[Level], Cell]]


def _brief(sweep: Sweep) -> Iterator[Part]:
    shown = list(_columns(sweep))
    rows = [[cell(level) for _, cell in shown] for level in sweep.levels]
    yield Table([column for column, _ in shown], rows)
    yield Gap()
    yield Sentence(f"Latency in ms is {latency_words(sweep)}.")
    yield Sentence(f"Intervals are over passes, {1 - sweep.alpha:.0%}. The highlighted level is the knee.")
    if not sweep.is_open:
        yield Sentence("A closed loop sends nothing while the server stalls, so users would see a worse p99.")


def _columns(sweep: Sweep) -> Iterator[_Shown]:
    knee = sweep.knee.load if sweep.knee else None
    name = "offered" if sweep.is_open else sweep.unit
    yield (
        Column(name, "n"),
        lambda level: Cell(f"{level.load:,.6g}", style="bold reverse" if level.load == knee else "bold"),
    )
    yield Column("ops/s", "n"), lambda level: _ops_s(level, lambda i: text.count(i.estimate))
    yield Column("interval", "n", 4), lambda level: _ops_s(level, lambda i: between(i, text.count), "dim")
    yield (
        Column("gain", "n", 1),
        lambda level: Cell(gain(level.step.estimate) if level.step else "–", style="dim"),
    )
    yield Column("", "", 2), _bar(sweep)
    if sweep.law is not None:
        yield Column("vs. law", "n", 6), lambda level: Cell(_residual(level, sweep.law), style="dim")
    objectives = {a.objective.percentile for a in sweep.answers}
    asked = dict.fromkeys(("p50", "p99", *(a.objective.percentile for a in sweep.answers)))
    for percentile in asked:
        is_asked = percentile in objectives
        yield Column(f"{percentile} ms", "n", 0 if is_asked else 5), _latency(percentile)
        yield Column("interval", "n", 3 if is_asked else 7), _latency(percentile, is_interval=True)
    for answer in sweep.answers:
        yield Column(f"≤ {answer.objective.limit}", "n"), _holds(answer)
    if any(len(level.trials) < sweep.passes for level in sweep.levels):
        yield Column("passes", "n", 1), lambda level: _passes(level, sweep)


def _ops_s(level: Level, form: Callable[[Interval], str], style: str = "") -> Cell:
    return Cell(form(level.summary.throughput_ops_s) if level.summary else "–", style=style)


def _bar(sweep: Sweep) -> Callable[[Level], Cell]:
    top = max((summary.throughput_ops_s.estimate for _, summary in sweep.measured), default=1.0)

    def cell(level: Level) -> Cell:
        ops_s = level.summary.throughput_ops_s.estimate if level.summary else 0.0
        whole, rest = divmod(round(8 * BAR_WIDTH * ops_s / top), 8)
        return Cell("█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else ""), style="blue")

    return cell


def _latency(name: str, *, is_interval: bool = False) -> Callable[[Level], Cell]:
    def cell(level: Level) -> Cell:
        found = level.summary.latency_ns.get(name) if level.summary else None
        if found is None:
            return Cell("–", style="dim")
        if is_interval:
            return Cell(between(found, text.milliseconds), style="dim")
        return Cell(text.milliseconds(found.estimate))

    return cell


def _holds(answer: Answer) -> Callable[[Level], Cell]:
    def cell(level: Level) -> Cell:
        if level.summary is None:
            return Cell("–", style="dim")
        found = _answer(answer, level)
        styles = {"better": "green", "worse": "red"}
        return Cell("?" if found.chip == "unsure" else found.text, style=styles.get(found.chip, "yellow"))

    return cell


def _passes(level: Level, sweep: Sweep) -> Cell:
    return Cell(passes(level, sweep), style="dim" if len(level.trials) == sweep.passes else "yellow")


def _json(level: Level, law: Law | None) -> Mapping[str, object]:
    summary = level.summary
    return {
        "treatment": level.treatment,
        "load": level.load,
        "throughput_ops_s": summary.throughput_ops_s if summary else None,
        "step": level.step,
        "latency_ns": summary.latency_ns if summary else {},
        "trials": summary.trials if summary else [],
        "operations": summary.operations if summary else 0,
        "errors": summary.errors if summary else 0,
        "failed_share": level.failed_share.estimate,
        "failed_share_low": level.failed_share.low,
        "failed_share_high": level.failed_share.high,
        "search_ops_s": level.search_ops_s,
        "law_residual": law.residuals.get(level.load) if law else None,
        "is_driver_saturated": level.is_driver_saturated,
        "missing": level.missing,
    }
