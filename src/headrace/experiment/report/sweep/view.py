"""The data that sections of a sweep's report read: as for an experiment, with levels instead of treatments."""

from __future__ import annotations

from functools import cached_property

from headrace.experiment.kinds import sweep as sweeps
from headrace.experiment.report import tables
from headrace.experiment.report.numbers import LATENCIES
from headrace.experiment.report.view import View
from headrace.experiment.stats.sweep import SEARCH, analyse_sweep
from headrace.experiment.stats.sweep_result import Sweep
from headrace.experiment.store import ExperimentFolder

#: Percentiles in the table of levels in addition to those of objectives; report.json has all.
SHOWN_LATENCIES = ("p50", "p95", "p99", "p99.9", "max")


class SweepView(View):
    """``folder`` as it was planned. Raises StoreError when its tables cannot be read."""

    def __init__(self, folder: ExperimentFolder) -> None:
        records = folder.trials()
        self.search = sweeps.search(folder.design, records, sweeps.throughput_of(folder, records))
        decided = sweeps.with_trials(folder, records, self.search)
        self.sweep: Sweep = analyse_sweep(decided)
        super().__init__(decided, self.sweep.as_analysis())
        self.passes = [r for r in self.records if r.block != SEARCH]

    @cached_property
    def groups(self) -> list[tables.Group]:
        rows = [
            tables.ResultRow(level.treatment, level.treatment, False, level.summary, {}, level.missing)
            for level in self.sweep.levels
        ]
        return [tables.Group("", "", tuple(rows), {})]

    @cached_property
    def cautions(self) -> list[str]:
        return tables.cautions(self.passes)

    @property
    def latencies(self) -> tuple[str, ...]:
        asked = {*SHOWN_LATENCIES, *(answer.objective.percentile for answer in self.sweep.answers)}
        return tuple(p for p in LATENCIES if p in asked)

    @property
    def knee_load(self) -> float | None:
        """None also if throughput still grows at the highest level."""
        return self.sweep.knee.load if self.sweep.knee and not self.sweep.knee.is_top else None

    @property
    def has_search_trials(self) -> bool:
        return any(level.search_ops_s is not None for level in self.sweep.levels)
