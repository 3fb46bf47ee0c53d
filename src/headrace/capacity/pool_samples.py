"""Reads per call at several sizes of the buffer pool, from samples that were taken at each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headrace.base.errors import NothingMeasured, PlanError, StoreError
from headrace.base.intervals import Interval, arithmetic
from headrace.capacity.pool import Curve, Point, Pool
from headrace.capacity.used import OverTime
from headrace.host.samples import Samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Parts of the samples: their spread is the error.
PARTS, LEAST_PARTS = 10, 3
#: Data in the pool that grow by so much while they are sampled: reads that fill it are none that it misses.
FILLING = 1.25
_HINT = "headrace-agent sample --duration 60s --mysql-socket ... --output pool-4g.jsonl.zst"


def read(paths: Sequence[Path], data_bytes: float = math.inf) -> Pool:
    """Of one host; the first is of today's size. ``data_bytes``: all data and indexes that are used, or more.

    Raises StoreError, NothingMeasured and PlanError.
    """
    found = [_measured(path) for path in paths]
    by_size = sorted(found, key=lambda each: each.size_bytes)
    sizes = [each.size_bytes for each in by_size]
    if any(b < 1.01 * a for a, b in itertools.pairwise(sizes)) or len(sizes) < 2:
        told = ", ".join(f"{size / 2**20:,.0f} MiB" for size in sizes)
        raise PlanError(
            f"the pool was {told}",
            place="--pool",
            hint="samples at two sizes or more, one file each: SET GLOBAL innodb_buffer_pool_size, wait until it "
            "is full again, sample",
        )
    for small, large in itertools.pairwise(by_size):
        if (large.point.reads.low or 0.0) > (small.point.reads.high or small.point.reads.estimate):
            raise PlanError(
                f"a pool of {large.size_bytes / 2**20:,.0f} MiB read more per call than a smaller one: the "
                "calls were different, or it was not full yet",
                place="--pool",
                hint="sample both under the same load, when reads per second are steady",
            )
    points, accesses = [each.point for each in by_size], max(each.accesses for each in found)
    data_pages = data_bytes / found[0].page_bytes
    if data_pages <= points[-1].pages:
        most = points[-1].pages * found[0].page_bytes
        raise PlanError(
            f"a pool with {most / 2**20:,.0f} MiB of data still read from the device: there is more than "
            f"{data_bytes / 2**20:,.0f} MiB",
            place="--data-size",
        )
    return Pool(found[0].size_bytes, sizes, Curve(points, data_pages, accesses))


@dataclass(frozen=True)
class _Measured:
    """``accesses``: to pages, per call."""

    size_bytes: float
    page_bytes: float
    point: Point
    accesses: float


def _measured(path: Path) -> _Measured:
    try:
        samples = Samples.read(path)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StoreError(f"these are not samples: {error!r}", place=str(path)) from error
    if not len(samples):
        raise NothingMeasured("no samples", place=str(path), hint=_HINT)
    first, last = (float(t) / 1e9 for t in (samples.t_ns.min(), samples.t_ns.max()))
    over = OverTime(samples, np.linspace(first, last, PARTS + 1))

    def rate(name: str) -> Floats:
        return _known(over.rate("mysql_status", name), name, path)

    def gauge(name: str) -> Floats:
        return _known(over.gauge("mysql_status", name), name, path)

    calls = rate("questions")
    reads, accesses = rate("innodb_buffer_pool_reads"), rate("innodb_buffer_pool_read_requests")
    whole = np.isfinite(calls) & np.isfinite(reads) & np.isfinite(accesses) & (calls > 0)
    if whole.sum() < LEAST_PARTS:
        raise NothingMeasured("no calls, or too short a time", place=str(path), hint=_HINT)
    found = arithmetic((reads[whole] / calls[whole]).tolist())
    if found.estimate <= 0:
        raise NothingMeasured(
            "no reads from the device: all data is in the pool",
            place=str(path),
            hint="samples of a smaller pool",
        )
    page = float(np.nanmean(gauge("innodb_page_size")))
    size = page * float(np.nanmean(gauge("innodb_buffer_pool_pages_total")))
    data = gauge("innodb_buffer_pool_pages_data")
    third = len(data) // 3
    if np.nanmean(data[-third:]) > FILLING * np.nanmean(data[:third]):
        raise NothingMeasured("the pool was still filling", place=str(path), hint="wait, then sample again")
    pages = float(np.nanmean(data))
    low = max(found.low or 0.0, 1e-3 * found.estimate)
    point = Point(pages, Interval(found.estimate, low, found.high))
    return _Measured(size, page, point, float(np.sum(accesses[whole]) / np.sum(calls[whole])))


def _known(values: Floats | None, name: str, path: Path) -> Floats:
    if values is None or not np.isfinite(values).any():
        raise NothingMeasured(f"no {name} of the server was sampled", place=str(path), hint=_HINT)
    return values
