"""Shared by sysbench's file I/O and OLTP tests: the version, the histogram, the two runs of a trial.

Warm-up and window are two runs. sysbench 1.0 has no warm-up, and ``--report-checkpoints`` resets the counters, the
histogram and the timers one after the other while events continue: a histogram after a checkpoint has other events
than the counters next to it (source: report_cumulative in sysbench.c, sb_histogram.c). A separate run has exactly
its own events in both.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.errors import WorkloadFailed
from headrace.base.model import Tool
from headrace.experiment.workloads.tables import Slice, boundaries, to_histogram

SYSBENCH = Tool("sysbench", "sysbench", ("--version",))
MINIMUM = (1, 0, 20)

#: The percentile in the per-second reports.
PERCENTILE = 99

_BINS = 1024
_LOWEST_MS = 1e-3
_HIGHEST_MS = 1e5
_HEADER = "Latency histogram (values are in milliseconds)"
_BIN_LINE = re.compile(r"^\s*(\d+\.\d{3}) \|\**\s*(\d+)$")


def whole_seconds(seconds: float) -> int:
    """sysbench's ``--time`` takes whole seconds."""
    return max(1, math.ceil(seconds))


def general_arguments(seconds: float, threads: int) -> list[str]:
    return [
        f"--threads={threads}",
        f"--time={whole_seconds(seconds)}",
        "--events=0",
        "--report-interval=1",
        f"--percentile={PERCENTILE}",
        "--histogram=on",
    ]


def bin_value_ns(index: int) -> float:
    """The middle of a bin of sysbench's histogram: 1024 bins, 1.8% wide, from 1 us to 100 s."""
    return _bin_ms(index) * 1e6


def _bin_ms(index: int) -> float:
    ratio = math.log(_HIGHEST_MS / _LOWEST_MS) / (_BINS - 1)
    return math.exp(index * ratio + math.log(_LOWEST_MS))


def _by_printed_value() -> dict[str, list[int]]:
    printed = defaultdict(list)
    for index in range(_BINS):
        printed[f"{_bin_ms(index):.3f}"].append(index)
    return printed


def read_histogram(output: str, max_ns: int, place: str) -> dict[int, int]:
    """The histogram of a run in the store's buckets, the total preserved.

    sysbench prints a bin's middle in ms with three decimals. From 0.06 ms, a value identifies one bin, and the
    bin's middle is used; below, several bins print the same value, and the lines are assigned to them in order.
    Everything of 100 s or more is in the last bin: it is counted at ``max_ns``, so it is never understated.
    """
    bins = _bins(output, place)
    known = _by_printed_value()
    values: list[float] = []
    for text, counts in bins.items():
        indices = known.get(text)
        if indices is None or len(counts) > len(indices):
            raise WorkloadFailed(f"sysbench's histogram has an invalid value: {text}", place=place)
        for nth in range(len(counts)):
            index = indices[(2 * nth + 1) * len(indices) // (2 * len(counts))]
            middle = bin_value_ns(index)
            values.append(max(middle, max_ns) if index == _BINS - 1 else middle)
    return to_histogram(values, [count for counts in bins.values() for count in counts])


def _bins(output: str, place: str) -> dict[str, list[int]]:
    # Partition instead of splitting lines: the reporting thread may be stopped in mid-line, and the header then
    # follows directly.
    _, header, rest = output.partition(_HEADER)
    if not header:
        return {}
    bins: dict[str, list[int]] = defaultdict(list)
    for line in rest.splitlines()[2:]:
        match = _BIN_LINE.match(line)
        if match is None:
            if line.strip():
                raise WorkloadFailed(
                    f"sysbench's histogram has a line that cannot be read: {line!r}", place=place
                )
            return dict(bins)
        bins[match[1]].append(int(match[2]))
    raise WorkloadFailed("sysbench's output is cut short", place=place)


@dataclass(frozen=True)
class Report:
    """One report of a run. ``end_ns`` is on the target's clock; the counts are of the report's interval."""

    end_ns: int
    count: int
    errors: int
    bytes: int | None
    p99_ns: int | None


def slices(operation: str, reports: Sequence[Report], total: Report, start_ns: int) -> list[Slice]:
    """The run from ``start_ns`` to ``total.end_ns``; events after the last report are added to its slice.

    The sums of count, errors and bytes equal ``total``, which is exact even if reports are rounded.
    """
    kept = boundaries([r.end_ns for r in reports], start_ns, total.end_ns)
    result = []
    done, since_ns, begin = Report(start_ns, 0, 0, 0, None), start_ns, 0
    for index in [*kept, len(reports)]:
        inside = reports[begin : index + 1]
        if index == len(reports):
            upto = total
        else:
            upto = Report(
                reports[index].end_ns,
                min(done.count + sum(r.count for r in inside), total.count),
                min(done.errors + sum(r.errors for r in inside), total.errors),
                None
                if total.bytes is None
                else min((done.bytes or 0) + sum(r.bytes or 0 for r in inside), total.bytes),
                None,
            )
        count = upto.count - done.count
        result.append(
            Slice(
                start_ns=since_ns,
                end_ns=upto.end_ns,
                operation=operation,
                count=count,
                errors=upto.errors - done.errors,
                bytes=None if upto.bytes is None else upto.bytes - (done.bytes or 0),
                # Percentiles of several reports cannot be merged; a stalled second has none.
                p99_ns=inside[0].p99_ns if count and len(inside) == 1 else None,
            )
        )
        done, since_ns, begin = upto, upto.end_ns, index + 1
    return result
