"""Each trial's responses: one ``TrialResponse`` per trial, aggregated in SQL over the Parquet tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.base.errors import StoreError
from headrace.base.model import Role, TrialState
from headrace.base.percentiles import Histogram, percentile_ns, resolution_log
from headrace.experiment.store import RECONNECT, ExperimentFolder, TrialRecord

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

THROUGHPUT = "throughput"

#: Responses in which treatments are compared. Not ``max`` and p99.99, which depend on single operations.
RESPONSES = (THROUGHPUT, "p50", "p90", "p95", "p99", "p99.9")

#: Of a trial without any: why it is invalid, or not analysed.
NO_OPERATION = "no operation completed"

#: Caution for emulated CPUs, on which the cost of instructions is unrealistic.
EMULATED = (
    "measured on an emulated machine (no KVM): "
    "only the direction of a difference can be trusted, never its size"
)


def is_emulated(records: Iterable[TrialRecord]) -> bool:
    """Whether any trial ran on emulated CPUs."""
    return any(record.accel == "tcg" for record in records)


def did_no_work(record: TrialRecord) -> bool:
    """Whether it failed or completed no operation: among the trials that are left out, one that may be slow."""
    return record.state is TrialState.FAILED or NO_OPERATION in record.reason


@dataclass(frozen=True, eq=False)
class TrialResponse:
    """One trial, the unit of replication: all comparisons are based on these.

    ``operations`` (successful ones) and ``errors`` count the measured window. ``latency`` covers all operations of
    ``latency_kind``; if that is ``response``, including failed ones. ``parts`` is the same for each kind of
    operation separately, by name. ``lost`` and ``lost_device`` are the shares of CPU time and of a device's time
    that others took during the window. ``is_of_session``: its block is a session, which is one observation.
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
    parts: Mapping[str, TrialResponse] = field(default_factory=dict)
    lost: float = 0.0
    lost_device: float = 0.0
    is_of_session: bool = False

    def value(self, response: str) -> float | None:
        """A response by name, in ops/s or ns; None if the trial has no value, or 0."""
        found = self.throughput_ops_s if response == THROUGHPUT else percentile_ns(self.latency, response)
        return found if found and found > 0 else None

    def resolution_log(self, response: str) -> float:
        """The precision of this trial's measurement, in log units: see ``percentiles.resolution_log``."""
        return 0.0 if response == THROUGHPUT else resolution_log(self.latency, response)


#: The kinds of rows that make up a kind of latency. Response times include successful and failed operations.
KINDS = {"response": ("response", "failed"), "service": ("service",)}

_NONE: NDArray[np.int32] = np.zeros(0, dtype=np.int32)

# A row that straddles an edge of the window counts in proportion, so that short windows are not off by a row. A
# workload may report an extreme only in some rows (fio: when a new one was seen), but it covers every operation.
_INTERVALS_SQL = """
    WITH inside AS (
        SELECT *, CASE WHEN duration_s > 0
                       THEN (least(t_s + duration_s, seconds) - greatest(t_s, 0)) / duration_s
                       ELSE (t_s >= 0 AND t_s < seconds)::DOUBLE END AS share
        FROM intervals JOIN windows USING (trial)
    )
    SELECT trial, operation, coalesce(sum(count * share), 0) AS operations,
           coalesce(sum(errors * share), 0) AS errors, min(min_ns) AS min_ns, max(max_ns) AS max_ns
    FROM inside WHERE share > 0 AND operation <> $reconnect GROUP BY trial, operation
"""

# A workload may provide a histogram of the whole window, or one per second; if it provides both, they cover the
# same operations, so only the first is used.
_LATENCY_SQL = """
    SELECT trial, operation, kind, bucket, t_s IS NULL AS whole, sum(count)::BIGINT AS count
    FROM latency JOIN windows USING (trial)
    WHERE (t_s IS NULL OR (t_s >= 0 AND t_s < seconds)) AND operation <> $reconnect
    GROUP BY ALL
"""


@dataclass(frozen=True, eq=False)
class Tables:
    """The contents of trials' tables, by trial number, so that a large study is read only once."""

    totals: Mapping[int, Mapping[str, _Total]]
    rows: Mapping[int, _Rows]


def trial_responses(
    folder: ExperimentFolder, records: Sequence[TrialRecord], tables: Tables | None = None
) -> list[TrialResponse]:
    """One response per record, in the given order.

    ``tables`` are read from the folder unless given. Raises StoreError when a table cannot be read.

    Throughput is the successful operations of the window divided by its length: a second without a row did no
    work. Latencies of all operations are merged; they are response times if every trial has them, else service
    times, never a mix. Response times include failed operations, because requests that a server never answered
    must not vanish from its tail.
    """
    found = tables or read_tables(folder, records)
    rows = {r.number: found.rows[r.number] for r in records if r.number in found.rows}
    kind = _kind(rows.values())
    return [_response(r, found.totals.get(r.number, {}), rows.get(r.number), kind) for r in records]


def read_tables(folder: ExperimentFolder, records: Sequence[TrialRecord]) -> Tables:
    """One pass over the tables of these trials. Raises StoreError when one cannot be read."""
    import duckdb

    try:
        with folder.database() as connection:
            _register_windows(connection, records)
            where = {"reconnect": RECONNECT}
            counted = connection.execute(_INTERVALS_SQL, where).fetchall()
            latency = connection.execute(_LATENCY_SQL, where).fetchnumpy()
    except duckdb.Error as error:
        raise StoreError(f"a table cannot be read: {error}", place=str(folder.path)) from error
    totals: dict[int, dict[str, _Total]] = {}
    for trial, operation, *numbers in counted:
        totals.setdefault(int(trial), {})[str(operation)] = _Total(*numbers)
    return Tables(totals, _rows_by_trial(latency))


class _Total(NamedTuple):
    """The intervals of one operation, or of several, summed over a window."""

    operations: float = 0.0
    errors: float = 0.0
    min_ns: int | None = None
    max_ns: int | None = None

    @staticmethod
    def of_all(parts: Collection[_Total]) -> _Total:
        """An extreme of all is known only if it is known for each one that did any work."""

        def known(name: str) -> list[int]:
            found = [
                getattr(part, name) for part in parts if part.operations or getattr(part, name) is not None
            ]
            return [] if None in found else found

        return _Total(
            sum(part.operations for part in parts),
            sum(part.errors for part in parts),
            min(known("min_ns"), default=None),
            max(known("max_ns"), default=None),
        )


def _response(
    record: TrialRecord, totals: Mapping[str, _Total], rows: _Rows | None, kind: str
) -> TrialResponse:
    seconds = window_seconds(record)

    def of(total: _Total, latency: _Rows | None) -> TrialResponse:
        return TrialResponse(
            number=record.number,
            block=record.block,
            treatment=record.treatment,
            role=record.role,
            throughput_ops_s=total.operations / seconds if seconds > 0 else 0.0,
            operations=round(total.operations),
            errors=round(total.errors),
            latency=_histogram(latency, kind, total.min_ns, total.max_ns),
            latency_kind=kind,
            lost=record.lost_share,
            lost_device=record.lost_device_share,
        )

    whole = of(_Total.of_all(totals.values()), rows)
    parts = {name: of(total, _only(rows, name)) for name, total in sorted(totals.items())}
    return replace(whole, parts=parts)


def _only(rows: _Rows | None, operation: str) -> _Rows | None:
    if rows is None:
        return None
    own = rows["operation"] == operation
    return {name: column[own] for name, column in rows.items()}


def window_seconds(record: TrialRecord) -> float:
    """The length of the measured window."""
    return (record.window_end_ns - record.window_start_ns) / 1e9


def _register_windows(connection: duckdb.DuckDBPyConnection, records: Sequence[TrialRecord]) -> None:
    connection.execute("CREATE TEMP TABLE windows (trial INTEGER, seconds DOUBLE)")
    if records:
        rows = [(record.number, window_seconds(record)) for record in records]
        connection.executemany("INSERT INTO windows VALUES (?, ?)", rows)


_Rows = Mapping[str, Any]


def _rows_by_trial(columns: Mapping[str, Any]) -> dict[int, _Rows]:
    """Split the columns by trial, without the per-second rows if there is a histogram of the whole window."""
    by_trial: dict[int, _Rows] = {}
    # Sort once and split, because a mask per trial would read all rows for every trial.
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
    return (
        "response" if kinds and all(found.intersection(KINDS["response"]) for found in kinds) else "service"
    )


def _histogram(rows: _Rows | None, kind: str, min_ns: int | None, max_ns: int | None) -> Histogram:
    if rows is None:
        return Histogram.of(_NONE, _NONE.astype(np.int64))
    wanted = np.isin(rows["kind"], KINDS[kind])
    return Histogram.of(rows["bucket"][wanted], rows["count"][wanted], min_ns, max_ns)
