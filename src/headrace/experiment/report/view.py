"""The data that sections of an experiment's report read, each loaded once and on demand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property

from headrace.base.counted import counted
from headrace.base.model import TrialState
from headrace.experiment.kinds.decided import Decided
from headrace.experiment.report import duet, evidence, machines, switchback, tables
from headrace.experiment.report.evidence import Evidence
from headrace.experiment.stats import cuts, sequential
from headrace.experiment.stats.result import Analysis
from headrace.experiment.stats.study import analyse_experiment
from headrace.experiment.stats.trials import Tables, TrialResponse, read_tables, trial_responses
from headrace.experiment.store import ExperimentFolder
from headrace.show import text
from headrace.show.parts import Span


class View:
    """``read``: the folder's tables, if the caller has them; ``responses``: each trial's response.

    Raises StoreError when a table cannot be read.
    """

    def __init__(
        self,
        folder: ExperimentFolder,
        analysis: Analysis,
        read: Tables | None = None,
        responses: Mapping[int, TrialResponse] | None = None,
    ) -> None:
        self.folder, self.analysis, self.design = folder, analysis, folder.design
        self.records = folder.trials()
        self._read, self._responses = read, responses

    @cached_property
    def responses(self) -> Mapping[int, TrialResponse]:
        """The response of every trial that ran."""
        if self._responses is not None:
            return self._responses
        ran = [r for r in self.records if r.state is not TrialState.FAILED]
        return {r.number: r for r in trial_responses(self.folder, ran, self._read)}

    @cached_property
    def evidence(self) -> Evidence:
        """The series of every trial, which take time to read."""
        return evidence.gather(self.folder, self.analysis, self.responses)

    @cached_property
    def lost(self) -> list[cuts.Lost]:
        """What power cuts took; empty where none was cut."""
        return cuts.lost(self.records, self.design.by_name, self.design.alpha)

    @cached_property
    def groups(self) -> list[tables.Group]:
        return tables.groups(self.design, self.analysis, self.records)

    @property
    def latency_kind(self) -> str:
        """response or service."""
        summaries = self.analysis.summaries
        return summaries[0].latency_kind if summaries else "service"

    @property
    def confidence(self) -> str:
        return f"{100 * (1 - self.analysis.alpha):g}%"

    @cached_property
    def is_open_loop(self) -> bool:
        return self.design.is_open_loop

    @cached_property
    def shares(self) -> dict[str, list[tables.Share]]:
        """Treatment -> each kind of operation; empty where there is only one."""
        found = {r.treatment: tables.shares(self.analysis, r.treatment) for g in self.groups for r in g.rows}
        return found if any(found.values()) else {}

    @cached_property
    def together(self) -> list[str]:
        """Of trials that share their moment or their server."""
        if duet.is_duet(self.folder):
            return duet.sentences(self.folder, self.records, self.responses)
        return switchback.sentences(self.folder, self.records)

    @cached_property
    def between_machines(self) -> list[str]:
        return machines.sentences(self.folder, self.analysis, self.records)

    @cached_property
    def cautions(self) -> list[str]:
        return [*tables.cautions(self.records), *self._extended()]

    def _extended(self) -> list[str]:
        """What looking before the end costs."""
        design = self.design
        if not design.extended:
            return []
        rate = sequential.rate_when_extended(design.alpha, [*design.extended, design.blocks])
        return [
            f"extended from {design.extended[0]} to {counted(design.blocks, 'block')} after its "
            "result could be seen: where "
            f"nothing differs, up to {100 * rate:.0f}% of comparisons, not {100 * design.alpha:g}%, are called a "
            "difference at some point"
        ]

    @property
    def period(self) -> str:
        times = [t for r in self.records for t in r.times_ns.values()]
        if not times:
            return ""
        first, last = (datetime.fromtimestamp(t / 1e9, UTC) for t in (min(times), max(times)))
        length = text.seconds((max(times) - min(times)) / 1e9)
        return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC ({length})"

    @property
    def workload_options(self) -> list[Span]:
        options = self.design.workload.options.items()
        return [Span(f"{k}={text.setting(v)}", "code") for k, v in options]


def opened(folder: ExperimentFolder) -> View:
    """An experiment, analysed.

    Its tables are read only once, because that dominates the time for a large study.
    """
    folder = Decided.as_decided(folder)
    read = read_tables(folder, [r for r in folder.trials() if r.state is not TrialState.FAILED])
    return View(folder, analyse_experiment(folder, read), read)
