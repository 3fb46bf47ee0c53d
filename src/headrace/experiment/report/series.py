"""Plot-ready series: raw counters become rates, and every series is bounded, in SQL over the Parquet tables.

A rate is the difference of two consecutive samples of one (sampler, metric, label). If a counter went back (a
restart) or a sample is missing, there is no rate: the series has NaN and the chart a gap, never a zero. All series
of a page share one ``Grid`` of equal time buckets. A difference that spans two buckets counts in each in
proportion, so that samples that drift relative to the grid leave no false gaps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.base.buckets import bucket_value
from headrace.experiment.stats.trials import KINDS
from headrace.experiment.store import RECONNECT, TrialRecord

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

Floats = NDArray[np.float64]

#: A difference over more than this many sampling intervals is a gap: its mean would hide what happened.
GAP_INTERVALS = 2.5

#: A bucket covered less than this by differences is a gap.
MIN_COVERED = 0.25

#: Ten operations beyond it, as for every stated percentile (``percentiles.MIN_BEYOND``).
MIN_OPERATIONS_FOR_P99 = 1000

CPU_SHARES = ("busy", "system", "softirq", "iowait", "steal")

#: Device counters used by the charts.
DEVICE_METRICS = (
    "reads", "writes", "flushes", "sectors_read", "sectors_written", "read_ms", "write_ms", "io_ms",
    "weighted_io_ms",
)  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """Time buckets of ``width_s`` from ``start_s``, relative to the measured window; 0 is a bucket edge."""

    start_s: float
    width_s: float
    size: int

    @staticmethod
    def spanning(warmup_s: float, seconds: float, points: int, step_s: float = 1.0) -> Grid:
        """At most ``points`` (plus one at each end) buckets, none shorter than the data's own step."""
        width = max(step_s, _round_up((warmup_s + seconds) / points))
        before = math.ceil(warmup_s / width - 1e-9)
        # A window that is a few ms too long must not end in an empty bucket.
        after = max(1, math.ceil(seconds / width - 0.1))
        return Grid(-before * width, width, before + after)

    def centers_s(self) -> Floats:
        return self.start_s + self.width_s * (np.arange(self.size, dtype=np.float64) + 0.5)

    def empty(self) -> Floats:
        return np.full(self.size, np.nan)


def _round_up(width_s: float) -> float:
    """A round width: 1, 2, 5, 10, 15, 30, 60 s, then whole minutes."""
    for nice in (0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 60):
        if width_s <= nice:
            return nice
    return 60.0 * math.ceil(width_s / 60)


@dataclass(frozen=True, eq=False)
class Pace:
    """One trial over time, arrays of the grid's size: ops/s (mean, slowest and fastest second), p99 in ns."""

    mean: Floats
    slowest: Floats
    fastest: Floats
    p99_ns: Floats


def step_seconds(connection: duckdb.DuckDBPyConnection) -> float:
    """The interval of the workload's own reports, rounded to 0.1 s because it varies by a few ms."""
    row = connection.execute("SELECT median(duration_s) FROM intervals WHERE duration_s > 0").fetchone()
    return max(0.1, round(float(row[0]), 1)) if row and row[0] is not None else 1.0


# Operations of one second (reads and writes, say) are added first, regardless of their exact timestamps.
_PACE_SQL = """
    WITH parts AS (
        SELECT trial, operation, floor((t_s + duration_s / 2) / $step) AS slot,
               sum(count) / sum(duration_s) AS rate, max(p99_ns) AS p99_ns
        FROM intervals WHERE duration_s > 0 AND operation <> $reconnect GROUP BY ALL
    ), seconds AS (
        SELECT trial, slot, sum(rate) AS rate, max(p99_ns) AS p99_ns FROM parts GROUP BY ALL
    )
    SELECT trial, floor(((slot + 0.5) * $step - $start) / $width)::INTEGER AS bucket,
           avg(rate) AS mean, min(rate) AS slowest, max(rate) AS fastest, max(p99_ns)::DOUBLE AS p99_ns
    FROM seconds GROUP BY ALL
"""


def paces(
    connection: duckdb.DuckDBPyConnection,
    grid: Grid,
    step_s: float,
    latency_rows: Callable[[int], pa.Table],
    kind: str,
) -> dict[int, Pace]:
    """Every trial that has intervals. p99 is exact (merged histograms) if the workload provides a histogram per
    second; otherwise the highest value that the tool printed for any second of the bucket, because a mean of p99s
    is not a p99.
    """
    where = {"start": grid.start_s, "width": grid.width_s, "step": step_s, "reconnect": RECONNECT}
    rows = connection.execute(_PACE_SQL, where).fetchnumpy()
    found: dict[int, Pace] = {}
    for trial, own in _by(rows, "trial").items():
        columns = {n: _on_grid(grid, own["bucket"], own[n]) for n in ("mean", "slowest", "fastest", "p99_ns")}
        found[int(trial)] = Pace(**columns)

    def exact(trial: int) -> tuple[int, Floats]:
        return trial, p99_ns(latency_rows(trial), grid, step_s, kind)

    # Two threads: decoding and counting release the GIL, and each holds one trial in memory.
    with ThreadPoolExecutor(2) as pool:
        for trial, own_p99 in pool.map(exact, found):
            if np.isfinite(own_p99).any():
                found[trial] = replace(found[trial], p99_ns=own_p99)
    return found


def p99_ns(rows: pa.Table, grid: Grid, step_s: float, kind: str) -> Floats:
    """The exact p99 of each bucket of the grid, from LATENCY's rows by second; NaN with too few operations."""
    slot = np.floor((_column(rows, "t_s") + step_s / 2 - grid.start_s) / grid.width_s)
    # A row for the whole window has no time, so it compares as false.
    keep = (slot >= 0) & (slot < grid.size)
    keep &= _is_in(rows, "kind", KINDS[kind]) & ~_is_in(rows, "operation", (RECONNECT,))
    found = grid.empty()
    if not keep.any():
        return found
    latency = _column(rows, "bucket")[keep]
    low, span = int(latency.min()), int(latency.max() - latency.min()) + 1
    place = slot[keep].astype(np.int64) * span + (latency - low)
    counts = np.bincount(place, weights=_column(rows, "count")[keep], minlength=grid.size * span)
    upto = counts.reshape(grid.size, span).cumsum(axis=1)
    enough = upto[:, -1] >= MIN_OPERATIONS_FOR_P99
    at = (upto * 100 >= upto[:, -1:] * 99).argmax(axis=1)
    found[enough] = bucket_value((at[enough] + low).astype(np.int32))
    return found


def _column(rows: pa.Table, name: str) -> NDArray[Any]:
    return np.asarray(rows.column(name).to_numpy())


def _is_in(rows: pa.Table, name: str, words: Sequence[str]) -> NDArray[np.bool_]:
    """Which rows of a dictionary column hold one of these words."""
    column = rows.column(name).combine_chunks()
    is_one = np.array([word in words for word in column.dictionary.to_pylist()], dtype=bool)
    if is_one.all() or not is_one.any():
        return np.full(len(column), bool(len(is_one)) and bool(is_one.all()))
    return np.asarray(is_one[column.indices.to_numpy()])


def has_histogram_per_second(connection: duckdb.DuckDBPyConnection, kind: str) -> bool:
    sql = "SELECT 1 FROM latency WHERE t_s IS NOT NULL AND kind = $kind LIMIT 1"
    return connection.execute(sql, {"kind": kind}).fetchone() is not None


# From steps (key columns, t_ns, dt_ns, differences) to buckets; {keys} and {sums} come from this file, never from
# captured text.
_SPREAD_SQL = """
    , sound AS (
        SELECT *, (t_ns - dt_ns - $origin) / 1e9 AS begin_s, (t_ns - $origin) / 1e9 AS end_s
        FROM steps
        WHERE dt_ns > 0 AND dt_ns <= $gap * (SELECT median(dt_ns) FROM steps WHERE dt_ns > 0) AND {sound}
    ), spread AS (
        SELECT *, unnest(range(floor((begin_s - $start) / $width)::BIGINT,
                               ceil((end_s - $start) / $width)::BIGINT)) AS bucket
        FROM sound
    ), shares AS (
        SELECT *, least(end_s, $start + (bucket + 1) * $width)
                  - greatest(begin_s, $start + bucket * $width) AS lap_s
        FROM spread
    )
    SELECT {keys}, bucket, {sums} FROM shares WHERE lap_s > 0
    GROUP BY {keys}, bucket HAVING sum(lap_s) >= $covered * $width
"""

_RATES_SQL = """
    WITH steps AS (
        SELECT metric, t_ns, t_ns - lag(t_ns) OVER series AS dt_ns, value - lag(value) OVER series AS dv
        FROM samples
        WHERE trial = {trial} AND sampler = $sampler AND label = $label AND list_contains($metrics, metric)
        WINDOW series AS (PARTITION BY metric ORDER BY t_ns)
    )
""" + _SPREAD_SQL.replace("{keys}", "metric").replace("{sound}", "dv >= 0").replace(
    "{sums}", "sum(dv * lap_s / dt_ns * 1e9) / sum(lap_s) AS rate"
)  # fmt: skip

# The kernel moves time between idle and iowait, so either may step back a little (proc_stat(5)): only their sum is
# the unused time, and a decrease of it counts as 0 rather than as a reset. guest is not added because user
# includes it.
_CPU_SQL = """
    WITH ticks AS (
        SELECT label, t_ns, sum(value) FILTER (metric NOT IN ('idle', 'iowait')) AS busy,
               sum(value) FILTER (metric IN ('idle', 'iowait')) AS unused,
               sum(value) FILTER (metric = 'iowait') AS iowait,
               sum(value) FILTER (metric = 'system') AS system, sum(value) FILTER (metric = 'softirq') AS softirq,
               sum(value) FILTER (metric = 'steal') AS steal
        FROM samples
        WHERE trial = {trial} AND sampler = 'cpu'
          AND metric IN ('user', 'nice', 'system', 'idle', 'iowait', 'irq', 'softirq', 'steal')
        GROUP BY label, t_ns
    ), grown AS (
        SELECT label, t_ns, t_ns - lag(t_ns) OVER core AS dt_ns, busy - lag(busy) OVER core AS busy,
               greatest(unused - lag(unused) OVER core, 0) AS unused,
               greatest(iowait - lag(iowait) OVER core, 0) AS iowait,
               system - lag(system) OVER core AS system, softirq - lag(softirq) OVER core AS softirq,
               coalesce(steal - lag(steal) OVER core, 0) AS steal
        FROM ticks WINDOW core AS (PARTITION BY label ORDER BY t_ns)
    ), steps AS (
        SELECT * REPLACE (least(iowait, unused) AS iowait), busy + unused AS total FROM grown
    )
""" + _SPREAD_SQL.replace("{keys}", "label").replace(
    "{sound}", "total > 0 AND busy >= 0 AND system >= 0 AND softirq >= 0 AND steal >= 0"
).replace(
    "{sums}",
    ", ".join(f"least(sum(lap_s / dt_ns * {m}) / sum(lap_s / dt_ns * total), 1) AS {m}" for m in CPU_SHARES),
)  # fmt: skip


def rates(
    connection: duckdb.DuckDBPyConnection,
    record: TrialRecord,
    grid: Grid,
    sampler: str,
    label: str,
    metrics: Sequence[str],
) -> dict[str, Floats]:
    """Metric -> its counter's rate per second on the grid, NaN in gaps. Metrics without samples are absent."""
    sql = _RATES_SQL.replace("{trial}", str(int(record.number)))
    where = {**_where(record, grid), "sampler": sampler, "label": label, "metrics": list(metrics)}
    rows = connection.execute(sql, where).fetchnumpy()
    return {str(m): _on_grid(grid, own["bucket"], own["rate"]) for m, own in _by(rows, "metric").items()}


def cpu(
    connection: duckdb.DuckDBPyConnection, record: TrialRecord, grid: Grid
) -> dict[str, dict[str, Floats]]:
    """Label (``cpu0`` ..., ``all``) -> share (CPU_SHARES) -> 0 to 1 on the grid; NaN in gaps.

    ``busy`` is all time but idle and iowait; ``softirq``, ``system`` and ``steal`` are parts of it.
    """
    sql = _CPU_SQL.replace("{trial}", str(int(record.number)))
    rows = connection.execute(sql, _where(record, grid)).fetchnumpy()
    return {
        str(label): {share: _on_grid(grid, own["bucket"], own[share]) for share in CPU_SHARES}
        for label, own in _by(rows, "label").items()
    }


def device(connection: duckdb.DuckDBPyConnection, record: TrialRecord) -> str | None:
    """The device under test: the one the trial recorded, else the busiest one; None without samples."""
    recorded = (record.knobs.get("volume.device") or {}).get("after")
    rows = connection.execute(
        f"""SELECT label, sum(last - first) AS moved FROM (
                SELECT label, metric, max(value) AS last, min(value) AS first FROM samples
                WHERE trial = {int(record.number)} AND sampler = 'disk'
                  AND metric IN ('sectors_read', 'sectors_written') GROUP BY ALL)
            GROUP BY label ORDER BY moved DESC, label"""
    ).fetchall()
    labels = [str(row[0]) for row in rows]
    name = str(recorded).rpartition("/")[2] if recorded else ""
    return name if name in labels else next(iter(labels), None)


def _where(record: TrialRecord, grid: Grid) -> dict[str, Any]:
    return {
        "origin": record.window_start_ns,
        "start": grid.start_s,
        "width": grid.width_s,
        "gap": GAP_INTERVALS,
        "covered": MIN_COVERED,
    }


def _by(rows: Mapping[str, Any], key: str) -> dict[Any, dict[str, Any]]:
    """Split columns by the values of one of them."""
    columns = {name: np.ma.filled(column, np.nan) if np.ma.isMaskedArray(column) else column
               for name, column in rows.items()}  # fmt: skip
    values = np.asarray(columns[key])
    if not len(values):
        return {}
    order = np.argsort(values, kind="stable")
    names, starts = np.unique(values[order], return_index=True)
    parts = {name: np.split(np.asarray(column)[order], starts[1:]) for name, column in columns.items()}
    return {value: {name: parts[name][i] for name in parts} for i, value in enumerate(names)}


def _on_grid(grid: Grid, bucket: NDArray[np.int32], values: Floats) -> Floats:
    dense = grid.empty()
    inside = (bucket >= 0) & (bucket < grid.size)
    dense[bucket[inside]] = values[inside]
    return dense


def highest(values: Floats) -> float:
    """The largest finite value; 0 without one."""
    found = values[np.isfinite(values)]
    return float(found.max()) if len(found) else 0.0
