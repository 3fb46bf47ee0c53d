"""Which report belongs to which kind of experiment."""

from __future__ import annotations

from headrace.report.parts import Page
from headrace.store import ExperimentFolder


def page_of(folder: ExperimentFolder) -> Page:
    """The report of a folder. Raises StoreError when its tables cannot be read."""
    from headrace.experiment import race, sweep

    kind = folder.design.experiment
    if kind == race.KIND:
        from headrace.report.race import page as races
        from headrace.report.race.view import View as RaceView

        return races.page_of(RaceView(folder))
    if kind == sweep.KIND:
        from headrace.report.sweep import page as sweeps
        from headrace.report.sweep.view import SweepView

        return sweeps.page_of(SweepView(folder))
    from headrace.report.experiment import page
    from headrace.report.experiment.view import opened

    return page.page_of(opened(folder))
