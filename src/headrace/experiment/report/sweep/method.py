"""How a sweep was measured, and how to read it."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.counted import counted
from headrace.experiment.report import method as experiment
from headrace.experiment.report.sweep.view import SweepView
from headrace.experiment.report.sweep.words import latency_words
from headrace.show.parts import Facts, Heading, Part, Section, Span, Words, method


def section(view: SweepView) -> Section:
    return experiment.section_of(view, lambda: _parts(view))


def _parts(view: SweepView) -> Iterator[Part]:
    sweep, searched = view.sweep, " found by a search" if view.has_search_trials else ""
    levels = f"{counted(len(sweep.levels), 'level')}{searched}, {counted(sweep.passes, 'pass', 'passes')}"
    what = f"{sweep.knob}: {levels}, order by seed {view.design.seed}"
    rows: list[tuple[str, Words]] = [("design", what), *experiment.workload(view)]
    if base := view.design.base:
        rows.append(("settings", [Span(f"{name}={value}", "code") for name, value in base.items()]))
    rows += [*experiment.when(view, "sweep"), *(("note", note) for note in view.design.notes)]
    yield Facts(rows)
    yield Heading("How to read it")
    yield method(_lines(view))


def _lines(view: SweepView) -> Iterator[tuple[str, str]]:
    sweep = view.sweep
    yield (
        "The trial is the unit.",
        "Each level is measured once per pass, on a fresh copy of the data; every interval is based on how "
        "passes differ, never on seconds.",
    )
    if view.has_search_trials:
        yield (
            "The search is not analysed.",
            "It went up in order, so drift over time is mixed with load, and it ended when levels happened to "
            "be slow. The passes repeat its levels in random order.",
        )
    yield (
        "The knee",
        f"is the last level with {100 * sweep.gain:g}% more throughput than the best smaller one. Its range "
        "extends upward while each gain is certain, and downward from the top while certainly none is, each "
        "relative to the nearest smaller level.",
    )
    if sweep.answers:
        yield (
            "An objective holds",
            f"at a level if the upper ends of its {view.confidence} interval and of every smaller level's are "
            "within the limit; it fails if the lower ends of its own and of every larger level's exceed the "
            "limit. The share of failed operations has the same say: it must be within what the percentile "
            "leaves. In between, more passes decide.",
        )
    if sweep.law:
        yield (
            "The law's intervals",
            "leave one pass out at a time (jackknife). They assume that the law holds, which the test for "
            "lack of fit checks.",
        )
    stall = ""
    if not sweep.is_open:
        stall = " A closed loop sends nothing while the server stalls, so its p99 is optimistic."
    elif sweep.latency_kind == "response":
        stall = " A stall counts for every operation that was due meanwhile."
    yield "Latency", f"is {latency_words(sweep)}.{stall}"
    yield (
        "Invalid trials",
        "ran on a disturbed host, or with a driver that could not keep up; failed trials did not finish. Both "
        "are shown, neither is analysed.",
    )
    if not view.design.workload.options.get("clients"):
        yield (
            "The load is driven from the same machine:",
            "the driver takes CPU from the server, so the knee is that of both together.",
        )
