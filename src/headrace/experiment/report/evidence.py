"""Everything a report shows in addition to the analysis, read once and bounded in size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.buckets import bucket_value
from headrace.base.errors import StoreError
from headrace.base.percentiles import MIN_BEYOND, merge
from headrace.experiment.report import series
from headrace.experiment.report.series import Grid, Pace
from headrace.experiment.stats.result import Analysis, TreatmentSummary
from headrace.experiment.stats.trials import TrialResponse
from headrace.experiment.store import ExperimentFolder, TrialRecord

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Bytes that series may add to a page, so that every page stays under 4 MB (the chart library is 0.7 MB of it).
PACE_BYTES = 650_000
MACHINE_BYTES = 1_200_000
MAX_POINTS, MIN_POINTS = 400, 60

#: Bytes of a number in JSON, and of a heat map's cell in base64.
NUMBER_BYTES, CELL_BYTES = 6.0, 4 / 3
MACHINE_LINES = 22

#: Quantity in a server panel -> groups of status counters to sum: the first group that the server has is used.
#: MariaDB 10.11 no longer counts InnoDB's rows; its handler counters include those of temporary tables.
SERVER_COUNTERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "rows read": (
        ("innodb_rows_read",),
        ("handler_read_first", "handler_read_key", "handler_read_last", "handler_read_next", "handler_read_prev",
         "handler_read_rnd", "handler_read_rnd_next"),
    ),
    "rows changed": (
        ("innodb_rows_inserted", "innodb_rows_updated", "innodb_rows_deleted"),
        ("handler_write", "handler_update", "handler_delete"),
    ),
    "pool reads": (("innodb_buffer_pool_reads",),),
    "log writes": (("innodb_log_writes",),),
    "log fsyncs": (("innodb_os_log_fsyncs",),),
    "data fsyncs": (("innodb_data_fsyncs",),),
    "lock waits": (("innodb_row_lock_waits",),),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Machine:
    """What the host did in one trial. Shares are 0 to 1, rates per second; arrays on ``Evidence.machine_grid``.

    ``heat`` maps each CPU share to an array (cores, grid). ``device`` is None without disk samples.
    """

    record: TrialRecord
    cpu: Mapping[str, Floats]
    cores: tuple[str, ...]
    heat: Mapping[str, Floats]
    device: str | None
    disk: Mapping[str, Floats]
    server: Mapping[str, Floats]

    def mean(self, values: Floats, grid: Grid) -> float:
        """Mean over the measured window; NaN without samples."""
        inside = values[grid.centers_s() > 0]
        found = inside[np.isfinite(inside)]
        return float(found.mean()) if len(found) else float("nan")


@dataclass(frozen=True, eq=False)
class Evidence:
    """``representatives`` maps a treatment to the trial with its median throughput."""

    records: tuple[TrialRecord, ...]
    responses: Mapping[int, TrialResponse]
    representatives: Mapping[str, TrialRecord]
    pace_grid: Grid
    paces: Mapping[int, Pace]
    p99_is_exact: bool
    machine_grid: Grid
    machines: Mapping[str, Machine]
    latency_kind: str

    def of_treatment(self, treatment: str) -> list[TrialRecord]:
        return [r for r in self.records if r.treatment == treatment]

    def distribution(self, summary: TreatmentSummary) -> tuple[Floats, Floats]:
        """Fractions and the latency in ns at each, from the merged histogram of the treatment's trials.

        Ends when fewer than ``MIN_BEYOND`` operations are beyond: the rest is chance.
        """
        merged = merge([self.responses[n].latency for n in summary.trials if n in self.responses])
        total = merged.total
        if not total:
            return np.empty(0), np.empty(0)
        deepest = max(1 - MIN_BEYOND / total, 0.0)
        nines = np.linspace(0, 6, 121)
        fraction = np.unique(np.concatenate([1 - 10.0**-nines, [deepest]]))
        fraction = fraction[fraction <= deepest]
        rank = np.maximum(np.ceil(fraction * total - 1e-6), 1)
        latency_ns = bucket_value(np.searchsorted(np.cumsum(merged.counts), rank).astype(np.int32)).astype(
            float
        )
        if merged.min_ns is not None:
            latency_ns = np.maximum(latency_ns, merged.min_ns)
        return fraction, latency_ns if merged.max_ns is None else np.minimum(latency_ns, merged.max_ns)


def gather(folder: ExperimentFolder, analysis: Analysis, responses: Mapping[int, TrialResponse]) -> Evidence:
    """Read what the page needs; raises StoreError when a table cannot be read.

    ``responses``: of every trial that ran.
    """
    import duckdb

    records = folder.trials()
    representatives = _representatives(analysis, records, responses)
    try:
        with folder.database() as connection:
            return _read(connection, folder, analysis, records, responses, representatives)
    except duckdb.Error as error:
        raise StoreError(f"a table cannot be read: {error}", place=str(folder.path)) from error


def _read(
    connection: duckdb.DuckDBPyConnection,
    folder: ExperimentFolder,
    analysis: Analysis,
    records: Sequence[TrialRecord],
    responses: Mapping[int, TrialResponse],
    representatives: Mapping[str, TrialRecord],
) -> Evidence:
    warmup_s = folder.design.workload.warmup_s
    seconds = max(
        [(r.window_end_ns - r.window_start_ns) / 1e9 for r in records if r.window_end_ns],
        default=folder.design.workload.seconds,
    )
    kind = analysis.summaries[0].latency_kind if analysis.summaries else "service"
    step_s = series.step_seconds(connection)

    def grid(budget_bytes: float, point_bytes: float) -> Grid:
        points = min(MAX_POINTS, max(MIN_POINTS, int(budget_bytes / max(1.0, point_bytes))))
        return Grid.spanning(warmup_s, seconds, points, step_s)

    # Per trial a line of throughput and one of p99; per treatment the outline of a band (x and y, both ways).
    pace_grid = grid(PACE_BYTES, NUMBER_BYTES * (2 * len(responses) + 4 * len(representatives)))
    cells = len(series.CPU_SHARES) * max([r.cpus for r in representatives.values()], default=1)
    machine_grid = grid(
        MACHINE_BYTES, len(representatives) * (CELL_BYTES * cells + NUMBER_BYTES * MACHINE_LINES)
    )
    machines = {t: _machine(connection, record, machine_grid) for t, record in representatives.items()}
    return Evidence(
        records=tuple(records),
        responses=responses,
        representatives=representatives,
        pace_grid=pace_grid,
        paces=series.paces(connection, pace_grid, step_s, folder.latency_rows, kind),
        p99_is_exact=series.has_histogram_per_second(connection, kind),
        machine_grid=machine_grid,
        machines={t: m for t, m in machines.items() if m is not None},
        latency_kind=kind,
    )


def _representatives(
    analysis: Analysis, records: Sequence[TrialRecord], responses: Mapping[int, TrialResponse]
) -> dict[str, TrialRecord]:
    by_number = {r.number: r for r in records}
    found = {}
    for summary in analysis.summaries:
        numbers = sorted(
            (n for n in summary.trials if n in responses),
            key=lambda n: (responses[n].throughput_ops_s, n),
        )
        if numbers:
            found[summary.treatment] = by_number[numbers[(len(numbers) - 1) // 2]]
    return found


def _machine(connection: duckdb.DuckDBPyConnection, record: TrialRecord, grid: Grid) -> Machine | None:
    shares = series.cpu(connection, record, grid)
    cores = sorted((c for c in shares if c != "all"), key=_core_number)
    device = series.device(connection, record)
    disk = series.rates(connection, record, grid, "disk", device, series.DEVICE_METRICS) if device else {}
    counters = [name for groups in SERVER_COUNTERS.values() for names in groups for name in names]
    status = series.rates(connection, record, grid, "mysql_status", "", counters)
    if not (shares or disk or status):
        return None
    return Machine(
        record=record,
        cpu=shares.get("all", {}),
        cores=tuple(cores),
        heat={share: np.stack([shares[c][share] for c in cores]) for share in series.CPU_SHARES}
        if cores
        else {},
        device=device,
        disk=disk,
        server=_server(status),
    )


def _server(status: Mapping[str, Floats]) -> dict[str, Floats]:
    found = {}
    for shown, groups in SERVER_COUNTERS.items():
        present = next(
            ([status[n] for n in names if n in status] for names in groups if set(names) & set(status)), []
        )
        if present:
            found[shown] = np.sum(present, axis=0)
    return found


def _core_number(core: str) -> int:
    digits = core.removeprefix("cpu")
    return int(digits) if digits.isdigit() else 0
