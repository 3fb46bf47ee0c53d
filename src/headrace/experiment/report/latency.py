"""The latency distribution."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.experiment.report.charts.trials import percentiles
from headrace.experiment.report.looks import line_styles
from headrace.experiment.report.view import View
from headrace.show.parts import Chart, Heading, Part, Section, Sentence

SEE = (
    "Read upward at 99%: one operation in a hundred takes longer. A lower line is faster; lines that diverge "
    "only at the right differ only in their slowest operations. Each line ends when fewer than 10 operations "
    "are beyond."
)


def section(view: View) -> Section:
    brief = []
    is_response = any(s.latency_kind == "response" for s in view.analysis.summaries)
    if is_response and not view.is_open_loop:
        brief.append(
            Sentence("A closed loop sends nothing while the server stalls, so users would see a worse p99.")
        )
    title = "How is latency distributed?"
    return Section("latency", "Latency", title, lambda: _parts(view), SEE, brief)


def _parts(view: View) -> Iterator[Part]:
    for group in view.groups:
        measured = [(r.configuration, r.summary) for r in group.rows if r.summary]
        styles = line_styles([name for name, _ in measured], group)
        lines = []
        # Coloured lines come last, so that they are drawn over the grey ones.
        for name, summary in sorted(measured, key=lambda each: styles[each[0]].width):
            look = styles[name]
            lines.append((name, look.colour, look.dash, look.width, *view.evidence.distribution(summary)))
        drawn = {line[0] for line in lines if len(line[4])}
        if not drawn:
            continue
        shown = [name for name, _ in measured if name in drawn and styles[name].is_telling]
        if group.condition:
            yield Heading(group.condition, "condition")
        others = len(drawn) - len(shown)
        if others:
            yield Sentence(f"{others} more in grey: hover over a line for its name.", "aside")
        legend = [(name, styles[name].colour, styles[name].dash) for name in shown]
        yield Chart(percentiles(lines), legend=legend)
