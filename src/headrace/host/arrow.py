"""A trial's tables in Arrow, which ``store`` writes as Parquet. Imported only by code that uses tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.host.samples import Samples

#: One row per second and operation. ``t_s`` counts from the start of the measured window: warm-up is negative.
#: ``duration_s`` is the real length of the row's interval; rates are ``count / duration_s``. ``min_ns``/``max_ns``
#: are exact if the workload has them: percentiles are clamped to them. If a workload has more than one kind of
#: latency, they cover ``response`` and ``failed`` together. ``p99_ns`` is the tool's own value for that second, if
#: it has no histogram per second.
INTERVALS = pa.schema(
    [
        ("t_s", pa.float64()),
        ("duration_s", pa.float64()),
        ("operation", pa.string()),
        ("count", pa.int64()),
        ("errors", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("min_ns", pa.int64()),
        ("max_ns", pa.int64()),
        ("p99_ns", pa.int64()),
    ]
)

#: ``kind`` is ``service`` (from the send) or ``response`` (from the intended start), both of successful
#: operations: the ``count`` of INTERVALS, and in the last second also those that ended after the window.
#: ``failed`` has the response times of failed operations (an error after
#: all retries, a timeout, a lost connection). ``t_s`` is null for a histogram of the whole measured window;
#: otherwise as in INTERVALS.
LATENCY = pa.schema(
    [
        ("t_s", pa.float64()),
        ("operation", pa.string()),
        ("kind", pa.string()),
        ("bucket", pa.int32()),
        ("count", pa.int64()),
    ]
)

#: Raw counters, never rates. Every sampler also writes ``headrace_ok`` (1 or 0) and ``headrace_cost_ns``.
SAMPLES = pa.schema(
    [
        ("t_ns", pa.int64()),
        ("sampler", pa.string()),
        ("metric", pa.string()),
        ("label", pa.string()),
        ("value", pa.float64()),
    ]
)


@dataclass(frozen=True)
class TrialData:
    """The results of a workload and the samplers; tables as in INTERVALS, LATENCY and SAMPLES."""

    intervals: pa.Table
    latency: pa.Table
    samples: pa.Table


def empty_data() -> TrialData:
    return TrialData(INTERVALS.empty_table(), LATENCY.empty_table(), SAMPLES.empty_table())


def read_samples(path: Path) -> pa.Table:
    """The agent's sample stream as SAMPLES, sorted so that Parquet prunes well."""
    return table_of(Samples.read(path))


def table_of(samples: Samples) -> pa.Table:
    """The same as SAMPLES."""
    of_row = np.repeat(np.arange(len(samples.names), dtype=np.int32), samples.ends - samples.starts)
    names = [
        pa.DictionaryArray.from_arrays(pa.array(of_row), pa.array(list(column), pa.string())).cast(
            pa.string()
        )
        for column in zip(*samples.names, strict=True)
    ] or [pa.array([], pa.string())] * 3
    return pa.Table.from_arrays([pa.array(samples.t_ns), *names, pa.array(samples.value)], schema=SAMPLES)


def samples_of(table: pa.Table) -> Samples:
    """The counters of a SAMPLES table sorted as by ``read_samples``.

    Only one row per counter is decoded to text.
    """
    columns = []
    changes = np.zeros(len(table), dtype=bool)
    for name in ("sampler", "metric", "label"):
        column = table[name].combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.string())
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        if len(codes):
            changes[0] = True
            changes[1:] |= codes[1:] != codes[:-1]
        columns.append((codes, encoded.dictionary.to_pylist()))
    starts = np.flatnonzero(changes).astype(np.int64)
    names = [[words[code] for code in codes[starts]] for codes, words in columns]
    t_ns, value = table["t_ns"].to_numpy(), table["value"].to_numpy()
    return Samples(list(zip(*names, strict=True)), starts, t_ns, value)
