"""The section on which configuration to choose."""

from __future__ import annotations

from headrace.experiment.report.effects import choices
from headrace.experiment.report.view import View
from headrace.show.parts import Gap, Section

SEE = (
    "The best for each objective with everything indistinguishable from it, the ones not beaten in both "
    "throughput and p99, and the one that loses least in its worst condition."
)


def section(view: View) -> Section:
    """Empty with fewer than three treatments."""
    decision = view.analysis.decision
    if not decision:
        return Section("choice", "", "", data={"choice": None})
    return Section(
        "choice",
        "Choice",
        "Which one should you choose?",
        lambda: choices.parts(decision),
        SEE,
        [Gap(), *choices.brief(decision)],
        {"choice": choices.to_json(decision)},
    )
