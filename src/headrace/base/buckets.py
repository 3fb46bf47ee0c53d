"""Latency buckets, log-linear: 128 sub-buckets per power of two, so a bucket is at most 0.8% wide.

The same formula is in ``crates/base/src/histogram.rs``; ``tests/agent/test_store.py`` compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUB_BUCKETS = 128


def bucket_of(value_ns: NDArray[np.int64] | int) -> NDArray[np.int32]:
    """The bucket of each latency in ns (0 or more). Shape in, shape out."""
    v = np.asarray(value_ns, dtype=np.uint64)
    # frexp rounds above 2**53; the bit length of the two 32-bit halves is exact.
    high = (v >> np.uint64(32)).astype(np.float64)
    low = (v & np.uint64(0xFFFFFFFF)).astype(np.float64)
    bits = np.where(high > 0, np.frexp(high)[1] + 32, np.frexp(low)[1])
    shift = np.maximum(bits - 8, 0).astype(np.uint64)
    bucket: NDArray[np.int32] = (shift * np.uint64(SUB_BUCKETS) + (v >> shift)).astype(np.int32)
    return bucket


#: Of a time that is only known to be longer than some bound: 146 years, longer than any call.
BEYOND = int(bucket_of(2**62 - 1))


def bucket_bounds(bucket: NDArray[np.int32] | int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The smallest and the largest latency in ns that falls into each bucket."""
    b = np.asarray(bucket, dtype=np.int64)
    shift = np.maximum(b // SUB_BUCKETS - 1, 0)
    low = (b - shift * SUB_BUCKETS) << shift
    return low, low + (np.int64(1) << shift) - 1


def bucket_value(bucket: NDArray[np.int32] | int) -> NDArray[np.int64]:
    """The latency in ns that represents each bucket: its middle, at most 0.4% from any value in it."""
    low, high = bucket_bounds(bucket)
    return low + (high - low) // 2
