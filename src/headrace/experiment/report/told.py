"""An experiment's verdict as a notice."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from headrace.base.effect import Effect, Verdict
from headrace.experiment.report import adopt
from headrace.experiment.report.view import View
from headrace.experiment.stats.headline import TAIL
from headrace.experiment.stats.trials import THROUGHPUT
from headrace.show.notice import Conclusion, Notice, Told


def notice(view: View) -> Notice:
    effects = () if view.design.cuts_power else view.analysis.effects
    return Notice(
        kind="experiment",
        subject=view.analysis.name,
        conclusion=_of_cuts(view) if view.design.cuts_power else conclusion(effects),
        headline=view.analysis.headline,
        effects=tuple(Told.of(each) for each in effects if each.response in (THROUGHPUT, TAIL)),
        next=adopt.commands(view) or f"headrace report {shlex.quote(str(view.folder.path))}\n",
        link=str(view.folder.path / "report.html"),
    )


def _of_cuts(view: View) -> Conclusion:
    """Worse where any of the configurations lost what it had acknowledged."""
    taken = view.lost
    if not taken:
        return Conclusion.NOT_ENOUGH_DATA
    return Conclusion.WORSE if any(each.cuts_that_lost for each in taken) else Conclusion.EQUIVALENT


def conclusion(effects: Iterable[Effect]) -> Conclusion:
    """Better if any treatment is, in throughput or the tail and worse in neither; else worse if any is."""
    own: dict[tuple[str, str], list[Verdict]] = {}
    for each in effects:
        if each.response in (THROUGHPUT, TAIL):
            own.setdefault((each.treatment, each.condition), []).append(each.verdict)
    found = {Conclusion.worst(verdicts) for verdicts in own.values()}
    order = (Conclusion.BETTER, Conclusion.WORSE, Conclusion.NOT_ENOUGH_DATA, Conclusion.EQUIVALENT)
    return next((each for each in order if each in found), Conclusion.NOT_ENOUGH_DATA)
