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
    effects = view.analysis.effects
    return Notice(
        kind="experiment",
        subject=view.analysis.name,
        conclusion=conclusion(effects),
        headline=view.analysis.headline,
        effects=tuple(Told.of(each) for each in effects if each.response in (THROUGHPUT, TAIL)),
        next=adopt.commands(view) or f"headrace report {shlex.quote(str(view.folder.path))}\n",
        link=str(view.folder.path / "report.html"),
    )


def conclusion(effects: Iterable[Effect]) -> Conclusion:
    """Better if any treatment is, in throughput or the tail and worse in neither; else worse if any is."""
    own: dict[tuple[str, str], list[Verdict]] = {}
    for each in effects:
        if each.response in (THROUGHPUT, TAIL):
            own.setdefault((each.treatment, each.condition), []).append(each.verdict)
    found = {Conclusion.worst(verdicts) for verdicts in own.values()}
    order = (Conclusion.BETTER, Conclusion.WORSE, Conclusion.NOT_ENOUGH_DATA, Conclusion.EQUIVALENT)
    return next((each for each in order if each in found), Conclusion.NOT_ENOUGH_DATA)
