"""Names of block devices in /proc/diskstats, as /sys has them; and the paths of an NVMe drive as the one drive.

A name with a slash, such as ``cciss/c0d0``, is ``cciss!c0d0`` in /sys, where facts, queues and settings are.

With native multipathing the kernel shows the drive, ``nvme1n1``, and hides its paths, ``nvme1c0n1`` and
``nvme1c1n1``. Which of them /proc/diskstats counts depends on the version and on the I/O policy: only the paths,
or both. File systems, queues and facts name the drive alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.host.samples import Name, Samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A path: the drive's number, the controller's, the namespace's.
PATH = re.compile(r"nvme(\d+)c\d+n(\d+)")
#: Counters that say whether a drive did anything.
DONE = ("reads", "writes", "flushes", "discards")


def drive_of(name: str) -> str | None:
    """``nvme1c0n1`` -> ``nvme1n1``; None for anything but a path."""
    found = PATH.fullmatch(name)
    return f"nvme{found[1]}n{found[2]}" if found else None


def joined(samples: Samples) -> Samples:
    """The samples with paths counted as their drive: left out if the drive itself was counted, else added up.

    What each path did is kept as the sampler ``path``.
    """
    if any("/" in label for sampler, _, label in samples.names if sampler == "disk"):
        samples = _as_in_sys(samples)
    paths: dict[tuple[str, str], list[int]] = {}
    for number, (sampler, metric, label) in enumerate(samples.names):
        if sampler == "disk" and (drive := drive_of(label)):
            paths.setdefault((drive, metric), []).append(number)
    if not paths:
        return samples
    counted = {drive for drive, _ in paths if _is_counted(samples, drive)}
    dropped = {number for numbers in paths.values() for number in numbers}
    sums = {key: numbers for key, numbers in paths.items() if key[0] not in counted}
    replaced = {("disk", metric, drive) for drive, metric in sums}
    parts = {
        name: (samples.t_ns[start:end], samples.value[start:end])
        for number, (name, start, end) in enumerate(
            zip(samples.names, samples.starts, samples.ends, strict=True)
        )
        if number not in dropped and name not in replaced
    }
    for number in dropped:
        _, metric, label = samples.names[number]
        part = slice(samples.starts[number], samples.ends[number])
        parts["path", metric, label] = samples.t_ns[part], samples.value[part]
    for (drive, metric), numbers in sums.items():
        parts["disk", metric, drive] = _sum(samples, numbers)
    return _of(samples, parts)


def _as_in_sys(samples: Samples) -> Samples:
    parts = {}
    for (sampler, metric, label), start, end in zip(samples.names, samples.starts, samples.ends, strict=True):
        own = label.replace("/", "!") if sampler == "disk" else label
        parts[sampler, metric, own] = (samples.t_ns[start:end], samples.value[start:end])
    return _of(samples, parts)


def _of(samples: Samples, parts: Mapping[Name, tuple[NDArray[np.int64], NDArray[np.float64]]]) -> Samples:
    names = sorted(parts)
    lengths = [len(parts[name][0]) for name in names]
    return replace(
        samples,
        names=names,
        starts=np.cumsum([0, *lengths[:-1]], dtype=np.int64),
        t_ns=np.concatenate([parts[name][0] for name in names]),
        value=np.concatenate([parts[name][1] for name in names]),
    )


def _is_counted(samples: Samples, drive: str) -> bool:
    """Whether the drive itself did anything."""
    parts = zip(samples.names, samples.starts, samples.ends, strict=True)
    return any(
        samples.value[end - 1] != samples.value[start]
        for (sampler, metric, label), start, end in parts
        if sampler == "disk" and label == drive and metric in DONE and end > start
    )


def _sum(samples: Samples, numbers: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Over the times at which every path was counted: one that appears later would look like a jump."""
    parts = [slice(samples.starts[number], samples.ends[number]) for number in numbers]
    times = samples.t_ns[parts[0]]
    for part in parts[1:]:
        times = np.intersect1d(times, samples.t_ns[part], assume_unique=True)
    values = [samples.value[part][np.isin(samples.t_ns[part], times)] for part in parts]
    return times, np.sum(values, axis=0)
