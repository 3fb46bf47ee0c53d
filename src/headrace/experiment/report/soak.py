"""The report of a soak: what grew, then what every experiment's report has and one configuration can have.

``report.json`` has ``format``, ``headrace``, ``experiment``, ``headline``, ``growth[]``, ``treatments[]``,
``trials[]``, ``cautions[]``, ``planned_trials``, ``versions`` and ``notice``, as for an experiment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace import __version__
from headrace.experiment.report import configuration, growth, host, latency, machine, numbers, pace, trials
from headrace.experiment.report.page import about
from headrace.experiment.report.view import View, opened
from headrace.experiment.store import ExperimentFolder
from headrace.show.notice import Conclusion, Notice
from headrace.show.parts import Page, Section

FORMAT_VERSION = 1


def _growth(rows: list[growth.Grown]) -> Section:
    """A terminal has the whole table: it is the answer. Its sentence is the headline already."""
    section = growth.section_of(rows)
    parts = section.parts() if callable(section.parts) else section.parts
    return replace(section, brief=list(parts)[1:])


def _numbers(view: View) -> Section:
    """Without the terminal's table of comparisons: there is nothing to compare."""
    return replace(numbers.section(view), brief=())


#: Behind what grew.
SECTIONS: tuple[Callable[[View], Section], ...] = (
    _numbers,
    pace.section,
    latency.section,
    machine.section,
    configuration.section,
    host.section,
    trials.section,
)

_KEPT = ("name", "description", "kind", "seed", "alpha", "workload", "target", "hash")


def of_folder(folder: ExperimentFolder) -> Page:
    view = opened(folder)
    rows = growth.rows_of(view)
    headline = growth.headline(rows)
    return Page(
        eyebrow="headrace soak",
        title=view.design.name,
        lead=view.design.description,
        verdicts=[headline],
        keys=[],
        sections=[_growth(rows), *(section(view) for section in SECTIONS)],
        footer="the numbers are in report.json, the data is next to it as Parquet",
        data={
            "format": FORMAT_VERSION,
            "headrace": __version__,
            "experiment": about(view.design, _KEPT),
            "headline": headline,
        },
        notice=Notice(
            kind="soak",
            subject=view.design.name,
            conclusion=Conclusion.DECIDED if rows else Conclusion.NOT_ENOUGH_DATA,
            headline=headline,
            link=str(view.folder.path / "report.html"),
        ),
    )
