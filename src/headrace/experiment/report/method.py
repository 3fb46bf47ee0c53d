"""How it was measured, and how to read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from headrace.base.counted import counted
from headrace.experiment.report import tables
from headrace.experiment.report.view import View
from headrace.experiment.settle import GROWTH, PIECE_S
from headrace.show import text
from headrace.show.parts import Facts, Heading, Part, Section, Span, Words, method


def section(view: View) -> Section:
    return section_of(view, lambda: _parts(view))


def section_of(view: View, parts: Callable[[], Iterable[Part]]) -> Section:
    """The section of any kind of experiment, whose ``parts`` differ."""
    versions = tables.versions(view.records)
    return Section("method", "Method", "How it was measured", parts, data={"versions": versions})


def _parts(view: View) -> Iterator[Part]:
    design = view.design
    what = (
        f"{design.kind}: {counted(len(design.treatments), 'treatment')}, {counted(design.blocks, 'block')}, "
        f"{counted(len(design.trials), 'trial')}, order by seed {design.seed}"
    )
    yield Facts([("design", what), *workload(view), *when(view, "experiment"), *_said(view)])
    yield Heading("How to read it")
    yield method(_lines(view))


def workload(view: View) -> Iterator[tuple[str, Words]]:
    """What was run, with which options."""
    found = view.design.workload
    warmup, seconds = text.seconds(found.warmup_s), text.seconds(found.seconds)
    yield "workload", f"{found.kind}, {warmup} of warm-up dropped, {seconds} measured a trial"
    if within := found.steady_within_s:
        took = [r.settled_s for r in view.records if r.settled_s]
        limit = sum("not steady after" in warning for r in view.records for warning in r.warnings)
        most = f"; it took {min(took):g} to {max(took):g} s" if took else ""
        never = f", and {limit} of {len(took)} trials were not steady by then" if limit else ""
        yield (
            "warm-up",
            f"before that until throughput grew by at most {100 * GROWTH:g}% from {PIECE_S:g} s to the next, "
            f"within {within:g} s{most}{never}",
        )
    if options := view.workload_options:
        yield "options", options


def when(view: View, noun: str) -> Iterator[tuple[str, Words]]:
    if view.period:
        yield "when", view.period
    for program, found in tables.versions(view.records).items():
        changed: list[str | Span] = (
            [" ", Span(f"changed during the {noun}", "chip unsure")] if len(found) > 1 else []
        )
        yield program, [", ".join(found), *changed]


def _said(view: View) -> Iterator[tuple[str, Words]]:
    for skipped in view.design.skipped:
        yield "skipped", f"{skipped.treatment}: {skipped.reason}"
    for note in view.design.notes:
        yield "note", note


def _lines(view: View) -> Iterator[tuple[str, str]]:
    yield (
        "The trial is the unit.",
        "Seconds within a trial are correlated; treating them as independent reports differences that do not "
        "exist. Every interval here is based on how trials differ between blocks.",
    )
    yield (
        "A block",
        "is one pass over all treatments in a new random order. The ratio of a treatment to the baseline is "
        "taken within each block, so that slow drift cancels, and averaged over blocks on the log scale.",
    )
    yield (
        "The interval",
        f"of a ratio covers the true ratio with {view.confidence} confidence, for all comparisons of a "
        "response jointly (Bonferroni). With few blocks it is wide.",
    )
    yield "It holds for", _covers(view)
    yield (
        "The noise floor",
        "is how far the baseline's second trial of a block may differ from its first, which only noise "
        "explains. It is context and decides no verdict: the mean of a treatment over blocks is more certain "
        "than two single runs.",
    )
    yield (
        "Verdicts:",
        "better or worse if the interval excludes 1; equivalent if it is within "
        f"{round(100 * view.analysis.equivalence, 1)}% of 1; otherwise not enough data, with the number of "
        "blocks that would probably settle it.",
    )
    yield (
        "Percentiles",
        "are exact: histograms (buckets 0.8% wide) are merged within and across trials. The ratio of a "
        "percentile is the geometric mean of the blocks' ratios; it may differ from the quotient of the "
        f"merged percentiles. Latency is {view.latency_kind} time: {_counted(view)}",
    )
    yield (
        "Invalid trials",
        "ran on a disturbed host, failed trials did not finish: both are shown, neither is analysed. A gap in "
        "a chart is a missing sample, never a zero.",
    )


def _covers(view: View) -> str:
    """What the trials varied, which is all that an interval can generalise to."""
    design = view.design
    if design.target.addresses:
        return "other hosts as these: each block ran on one of them, so how they differ is in the interval."
    if design.blocks_per_session:
        count = len({design.session_of(r.block) for r in view.records})
        return (
            f"other loadings of the data: each of {counted(count, 'session')} loaded them anew, and "
            "is one observation. All "
            "ran on one host; another one may differ by more."
        )
    return (
        "more trials on this host and these data. Each trial restores the same copy of the data and starts a "
        "server of its own; another loading of the data, another boot or another host may differ by more. "
        "In a plan, [design] sessions = 4 loads the data anew for each quarter of the blocks."
    )


def _counted(view: View) -> str:
    if view.latency_kind != "response":
        return (
            "from when the operation was sent. A closed loop sends nothing while the server stalls, so stalls "
            "count less than users would notice."
        )
    if view.is_open_loop:
        return "from when the operation was due."
    return (
        "in a closed loop: from when a client was ready, which is the end of its previous operation. So a "
        "stall is one long operation per client, no matter how many requests users would have sent meanwhile."
    )
