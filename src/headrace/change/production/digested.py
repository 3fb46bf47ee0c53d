"""headrace's own digests: files of ``headrace digest --save``, lines of ``--every``, directories of ``--history``.

A digest has one histogram per class for all of its time, and one of all classes per slice. So a digest on one side
of the change is one stretch with classes; one that contains the change is only known by slices, without classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.buckets import bucket_bounds
from headrace.base.errors import StoreError
from headrace.change.production.series import ALL, OTHERS, Observed, Series
from headrace.traffic.digests import history
from headrace.traffic.digests.classes import Buckets, Digest, open_digest
from headrace.traffic.digests.files import load_each

if TYPE_CHECKING:
    from headrace.change.production.series import Floats

#: Classes with a histogram of their own, the most frequent ones; all others are one class.
MOST_CLASSES = 40

#: The host and its digest.
Dated = tuple[str, Digest]


def load(paths: Iterable[Path]) -> list[Dated]:
    """The digests of these files and histories, with their hosts. Raises StoreError."""
    return [found for path in paths for found in _dated(path)]


def observe(digests: Sequence[Dated], at_s: float) -> Observed:
    """The series of these digests; ``at_s`` is when the change was made."""
    if not digests:
        return Observed(())
    edges, offset = _lattice(digests)
    is_split = any(_contains(each, at_s) for _, each in digests)
    if is_split:
        note = "a digest contains the change: its time slices have no query classes, so the mix is not held fixed"
        rows = (row for host, each in digests for row in _slices(host, each))
        return Observed(_series(rows, edges, offset), (note,))
    frequent: Counter[str] = Counter()
    for _, each in digests:
        frequent.update({one.name: one.response.total for one in each.classes if one.name != OTHERS})
    kept = {name for name, _ in frequent.most_common(MOST_CLASSES)}
    rows = (row for host, each in digests for row in _classes(host, each, kept))
    notes = (f"{len(frequent) - len(kept)} rarer classes are one class",) if len(frequent) > len(kept) else ()
    return Observed(_series(rows, edges, offset), notes)


def _dated(path: Path) -> Iterator[Dated]:
    tables = list(history.days(path).values()) if path.is_dir() else load_each(path)
    for table in tables:
        yield from _one(path, table)


def _one(path: Path, table: pa.Table) -> Iterator[Dated]:
    digest = open_digest(table)
    hosts = sorted({host for _, host in digest.sources})
    if len(hosts) > 1:
        raise StoreError(
            f"it is a digest of {len(hosts)} hosts, which cannot be told apart any more",
            place=str(path),
            hint="save one digest per host",
        )
    if digest.first_ns is None or digest.last_ns is None:
        if digest.all.count:
            raise StoreError("none of its events has a time", place=str(path))
        return
    yield (hosts[0] if hosts and hosts[0] else path.stem), digest


def _contains(digest: Digest, at_s: float) -> bool:
    assert digest.first_ns is not None
    assert digest.last_ns is not None
    return digest.first_ns / 1e9 < at_s < digest.last_ns / 1e9


_Row = tuple[str, str, float, float, Buckets]


def _classes(host: str, digest: Digest, kept: set[str]) -> Iterator[_Row]:
    assert digest.first_ns is not None
    assert digest.last_ns is not None
    start, end = digest.first_ns / 1e9, max(digest.last_ns / 1e9, digest.first_ns / 1e9 + 1)
    for each in digest.classes:
        yield host, each.fingerprint if each.name in kept else OTHERS, start, end, each.response


def _slices(host: str, digest: Digest) -> Iterator[_Row]:
    width = digest.heat_slice_ns / 1e9
    # The first and the last slice are cut by the digest's own ends.
    for start_ns, buckets in sorted(digest.heat.items())[1:-1]:
        yield host, ALL, start_ns / 1e9, start_ns / 1e9 + width, buckets


def _lattice(digests: Iterable[Dated]) -> tuple[Floats, int]:
    """The edges of all buckets that any digest uses, and the first bucket: the same for all series."""
    filled = [each.all.response.buckets for _, each in digests if each.all.response.total]
    if not filled:
        raise StoreError("none of the digests has a response time")
    # Bucket 0, of less than a nanosecond, belongs to the first bin.
    first, last = max(min(int(each[0]) for each in filled), 1), max(int(each[-1]) for each in filled)
    lower, _ = bucket_bounds(np.arange(first, last + 2, dtype=np.int32))
    return np.concatenate(([0.0], lower.astype(np.float64), [np.inf])), first


def _series(rows: Iterable[_Row], edges: Floats, first: int) -> tuple[Series, ...]:
    groups: dict[tuple[str, str], dict[tuple[float, float], Floats]] = {}
    for host, query_class, start, end, buckets in rows:
        own = groups.setdefault((host, query_class), {})
        counts = own.setdefault((start, end), np.zeros(len(edges) - 1))
        np.add.at(counts, buckets.buckets - first + 1, buckets.counts)
    found = []
    for (host, query_class), own in groups.items():
        times = sorted(own)
        starts, ends = np.array(times).T
        found.append(Series(host, query_class, starts, ends, edges, np.stack([own[time] for time in times])))
    return tuple(found)
