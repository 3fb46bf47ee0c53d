"""What each trial answered: one ``TrialResponse`` a trial, aggregated in SQL over the Parquet tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.analysis.percentiles import Histogram, percentile_ns, resolution_log
from headrace.errors import StoreError
from headrace.model import Role
from headrace.store import ExperimentFolder, TrialRecord

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

THROUGHPUT = "throughput"

#: What treatments are compared in. No ``max`` and no p99.99: one slow operation decides them.
RESPONSES = (THROUGHPUT, "p50", "p90", "p95", "p99", "p99.9")


@dataclass(frozen=True, eq=False)
class TrialResponse:
    """One trial, the unit of replication: everything that is compared is taken from one of these.

    ``operations`` and ``errors`` count the measured window; ``latency`` holds all operations of
    ``latency_kind`` together.
    """

    number: int
    block: int
    treatment: str
    role: Role
    throughput_ops_s: float
    operations: int = 0
    errors: int = 0
    latency: Histogram = field(default_factory=lambda: Histogram.of(_NONE, _NONE.astype(np.int64)))
    latency_kind: str = "service"

    def value(self, response: str) -> float | None:
        """A response by name, in ops/s or ns; None where the trial cannot answer it, or answered 0."""
        found = self.throughput_ops_s if response == THROUGHPUT else percentile_ns(self.latency, response)
        return found if found and found > 0 else None

    def resolution_log(self, response: str) -> float:
        """What this trial's measuring cannot tell apart, in log units: see ``percentiles.resolution_log``."""
        return 0.0 if response == THROUGHPUT else resolution_log(self.latency, response)


_NONE: NDArray[np.int32] = np.zeros(0, dtype=np.int32)

# A row that straddles an edge of the window counts by its share, so that short windows are not off by a row.
# A workload may know an extreme in some rows only (fio: when a new one was seen), but of every operation.
_INTERVALS_SQL = """
    WITH inside AS (
        SELECT *, CASE WHEN duration_s > 0
                       THEN (least(t_s + duration_s, seconds) - greatest(t_s, 0)) / duration_s
                       ELSE (t_s >= 0 AND t_s < seconds)::DOUBLE END AS share
        FROM intervals JOIN windows USING (trial)
    ), by_operation AS (
        SELECT trial, coalesce(sum(count * share), 0) AS count, coalesce(sum(errors * share), 0) AS errors,
               min(min_ns) AS min_ns, max(max_ns) AS max_ns
        FROM inside WHERE share > 0 GROUP BY trial, operation
    )
    SELECT trial, sum(count) AS operations, sum(errors) AS errors,
           CASE WHEN bool_and(count = 0 OR min_ns IS NOT NULL) THEN min(min_ns) END AS min_ns,
           CASE WHEN bool_and(count = 0 OR max_ns IS NOT NULL) THEN max(max_ns) END AS max_ns
    FROM by_operation GROUP BY trial
"""

# A workload may give a histogram of the whole window, or one a second; where it gives both they hold the same
# operations, so only the first is used.
_LATENCY_SQL = """
    SELECT trial, operation, kind, bucket, t_s IS NULL AS whole, sum(count)::BIGINT AS count
    FROM latency JOIN windows USING (trial)
    WHERE t_s IS NULL OR (t_s >= 0 AND t_s < seconds)
    GROUP BY ALL
"""


def trial_responses(folder: ExperimentFolder, records: Sequence[TrialRecord]) -> list[TrialResponse]:
    """One response a record, in the order given. Raises StoreError when a table cannot be read.

    Throughput is the operations of the window by the window's length: a second without a row did no work.
    Latencies of all operations are merged; they are response times where every trial has them, else
    service times, never a mix of the two.
    """
    import duckdb

    try:
        with folder.database() as connection:
            _register_windows(connection, records)
            totals = {int(row[0]): row[1:] for row in connection.execute(_INTERVALS_SQL).fetchall()}
            latency = connection.execute(_LATENCY_SQL).fetchnumpy()
    except duckdb.Error as error:
        raise StoreError(f"a table cannot be read: {error}", place=str(folder.path)) from error
    rows = _rows_by_trial(latency)
    kind = _kind(rows.values())
    responses = []
    for record in records:
        operations, errors, min_ns, max_ns = totals.get(record.number, (0, 0, None, None))
        seconds = window_seconds(record)
        responses.append(
            TrialResponse(
                number=record.number,
                block=record.block,
                treatment=record.treatment,
                role=record.role,
                throughput_ops_s=operations / seconds if seconds > 0 else 0.0,
                operations=round(operations),
                errors=round(errors),
                latency=_histogram(rows.get(record.number), kind, min_ns, max_ns),
                latency_kind=kind,
            )
        )
    return responses


def window_seconds(record: TrialRecord) -> float:
    """The length of the measured window."""
    return (record.window_end_ns - record.window_start_ns) / 1e9


def _register_windows(connection: duckdb.DuckDBPyConnection, records: Sequence[TrialRecord]) -> None:
    connection.execute("CREATE TABLE windows (trial INTEGER, seconds DOUBLE)")
    if records:
        rows = [(record.number, window_seconds(record)) for record in records]
        connection.executemany("INSERT INTO windows VALUES (?, ?)", rows)


_Rows = Mapping[str, Any]


def _rows_by_trial(columns: Mapping[str, Any]) -> dict[int, _Rows]:
    """Split the columns by trial, without the rows a second that a histogram of the whole window repeats."""
    by_trial: dict[int, _Rows] = {}
    # Sorted once and split: a mask a trial would read all rows as often as there are trials.
    order = np.argsort(columns["trial"], kind="stable")
    numbers, starts = np.unique(np.asarray(columns["trial"])[order], return_index=True)
    parts = {name: np.split(np.asarray(column)[order], starts[1:]) for name, column in columns.items()}
    for i, trial in enumerate(numbers):
        own = {name: part[i] for name, part in parts.items()}
        series = np.char.add(np.char.add(own["operation"].astype(str), "\0"), own["kind"].astype(str))
        has_whole = np.isin(series, series[own["whole"].astype(bool)])
        keep = own["whole"].astype(bool) == has_whole
        by_trial[int(trial)] = {name: column[keep] for name, column in own.items()}
    return by_trial


def _kind(trials: Any) -> str:
    kinds = [set(rows["kind"]) for rows in trials]
    return "response" if kinds and all("response" in found for found in kinds) else "service"


def _histogram(rows: _Rows | None, kind: str, min_ns: int | None, max_ns: int | None) -> Histogram:
    if rows is None:
        return Histogram.of(_NONE, _NONE.astype(np.int64))
    wanted = rows["kind"] == kind
    return Histogram.of(rows["bucket"][wanted], rows["count"][wanted], min_ns, max_ns)
