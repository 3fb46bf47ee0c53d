"""fio: block I/O on files of the volume under test.

Warm-up and window are two runs of fio over the same files, because fio's own ``ramp_time`` is not exact: each
thread resets its counters when it notices that its ramp is over, requests in flight at that time are in the
histogram but not in ``total_ios`` (seen with 3.33), and the warm-up leaves no trace. The window's first request is
therefore the run's first.

``--status-interval=1 --output-format=json+`` prints the running totals and histograms each second: their
differences are exact per second and sum to the final report. fio's logs are not used: they truncate rates to
integers and need one file per thread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import zstandard
from pydantic import AliasChoices, Field

from headrace.base.errors import WorkloadFailed
from headrace.base.model import Tool, Value
from headrace.experiment.workloads import tool
from headrace.experiment.workloads.options import Described, Size
from headrace.experiment.workloads.precondition import Preconditioned, measured
from headrace.experiment.workloads.tables import Phase, Slice, boundaries, percentile_ns, to_histogram
from headrace.experiment.workloads.workload import Context, Measurement
from headrace.host.target import Target, scratch_folder

FIO = Tool("fio", "fio", ("--version",))
MINIMUM = (3, 28)

#: fio counts every latency of 2**34 ns (17 s) or more in this last bin (FIO_IO_U_PLAT_NR - 1 in its stat.h).
_LAST_BIN_NS = ((1 << 34) - (1 << 27)) + (1 << 26)

_FILES = "headrace-fio"


class FioOptions(Preconditioned):
    """Names and meanings are fio's. Defaults are a database's random reads, not fio's own."""

    rw: Literal["read", "write", "rw", "randread", "randwrite", "randrw"] = Field(
        "randread", description="access pattern"
    )
    rwmixread: Annotated[int, Field(ge=0, le=100)] = Field(50, description="per cent of reads in a mix")
    bs: Size = Field(16384, description="bytes of one request")
    size: Size = Field(1 << 30, description="bytes of the file of each job")
    numjobs: Annotated[int, Field(ge=1, le=4096)] = Field(
        1,
        description="jobs (threads), each with its own file; alias: `threads`",
        validation_alias=AliasChoices("numjobs", "threads"),
    )
    iodepth: Annotated[int, Field(ge=1, le=65536)] = Field(1, description="requests in flight per job")
    ioengine: Literal["libaio", "io_uring", "psync", "sync"] = Field("libaio", description="I/O interface")
    direct: bool = Field(True, description="bypass the page cache (O_DIRECT)")
    fsync: Annotated[int, Field(ge=0)] = Field(0, description="fsync after this many writes; 0 is never")
    fdatasync: Annotated[int, Field(ge=0)] = Field(
        0, description="fdatasync after this many writes; 0 is never"
    )
    rate_iops: Annotated[int, Field(ge=0)] = Field(
        0, description="at most this many requests per second, per job and direction; 0: no limit"
    )
    rate_process: Literal["linear", "poisson"] = Field(
        "linear", description="how requests are spread under rate_iops"
    )
    random_distribution: Annotated[
        str,
        Field(pattern=r"^(random|(zipf|pareto|normal):\d+(\.\d+)?)$"),
        Described("random, zipf:THETA, pareto:H or normal:DEVIATION"),
    ] = Field("random", description="which blocks are hit")
    norandommap: bool = Field(
        True, description="choose blocks with replacement, as a database does, instead of each once per pass"
    )


class Fio:
    """Operations are ``read``, ``write`` and ``sync`` (each fsync or fdatasync); ``errors`` is always 0, because
    the first I/O error ends a run. Latency is fio's completion latency: from the submit to the completion.
    """

    kind = "fio"
    needs_server = False
    tools = (FIO,)
    Options = FioOptions

    def __init__(self, options: FioOptions) -> None:
        self._options = options

    def dataset(self) -> Mapping[str, Value] | None:
        return None

    async def version(self, target: Target) -> str:
        return await tool.require_version(target, FIO, MINIMUM)

    async def prepare(self, context: Context) -> None:
        """Write every file completely: reads of a hole or an unwritten extent would not reach the device."""
        await tool.make_folder(context)
        argv = [*self._files(), "--rw=write", "--bs=1M", "--ioengine=psync", "--end_fsync=1"]
        await tool.run_to_end(context, argv, name="fio-prepare", cwd=context.folder)

    async def run(self, context: Context) -> Measurement:
        return await measured(self._options, self._phase, context, what="fio")

    async def cleanup(self, context: Context) -> None:
        argv = ["find", ".", "-maxdepth", "1", "-name", f"{_FILES}.*", "-delete"]
        await tool.run_to_end(context, argv, name="fio-cleanup", cwd=context.folder)

    def arguments(self, seconds: float) -> list[str]:
        """The command line of one run."""
        o = self._options
        argv = [
            *self._files(),
            f"--rw={o.rw}",
            f"--bs={o.bs}",
            f"--iodepth={o.iodepth}",
            f"--ioengine={o.ioengine}",
            f"--direct={int(o.direct)}",
            f"--fsync={o.fsync}",
            f"--fdatasync={o.fdatasync}",
            "--time_based=1",
            f"--runtime={round(seconds * 1000)}ms",
            # Without it, fio would use the same offsets in the warm-up as in the window.
            "--randrepeat=0",
            # Saves two clock reads and two histograms per request; only completion latency is kept.
            "--disable_lat=1",
            "--disable_slat=1",
            "--status-interval=1",
            "--output-format=json+",
            "--eta=never",
        ]
        if o.rw in ("rw", "randrw"):
            argv.append(f"--rwmixread={o.rwmixread}")
        if o.rate_iops:
            argv += [f"--rate_iops={o.rate_iops}", f"--rate_process={o.rate_process}"]
        if o.rw.startswith("rand"):
            argv += [f"--random_distribution={o.random_distribution}", f"--norandommap={int(o.norandommap)}"]
        return argv

    def _files(self) -> list[str]:
        o = self._options
        return [
            "fio",
            f"--name={_FILES}",
            f"--filename_format={_FILES}.$jobnum",
            f"--size={o.size}",
            f"--numjobs={o.numjobs}",
            "--thread=1",
            "--group_reporting=1",
        ]

    async def _phase(self, context: Context, name: str, seconds: float) -> Phase:
        async with scratch_folder(context.target, context.aside) as scratch:
            output = await tool.run_measured(
                context,
                self.arguments(seconds),
                name=f"fio-{name}",
                scratch=scratch,
                cwd=context.folder,
                seconds=seconds,
            )
        return await asyncio.to_thread(_read_and_compress, output.stdout)


@dataclass(frozen=True)
class Totals:
    """One operation from the start of the run. ``bins`` maps fio's representative ns to a count."""

    bins: Mapping[int, int]
    bytes: int | None
    min_ns: int
    max_ns: int

    @property
    def count(self) -> int:
        return sum(self.bins.values())


@dataclass(frozen=True)
class Snapshot:
    """One status report: the time it was printed, the jobs' run time, and the totals per operation."""

    printed_ns: int
    ran_ns: int
    operations: Mapping[str, Totals]


_NOTHING = Totals({}, 0, 0, 0)


def read_snapshots(lines: Iterable[str], place: str) -> Iterator[Snapshot]:
    """Every report in fio's output; notes between them are skipped.

    Read line by line: an hour of reports is 100 MB. Raises WorkloadFailed when the output is cut short.
    """
    report: list[str] = []
    for line in lines:
        if not report and line.rstrip() != "{":
            continue
        report.append(line)
        if line.rstrip() == "}":
            yield _snapshot("".join(report), place)
            report = []
    if report:
        raise WorkloadFailed("fio's output is cut short", place=place)


def phase(snapshots: Iterable[Snapshot], place: str) -> Phase:
    """Per-second differences of the running totals; the last snapshot is the final report."""
    reports = list(snapshots)
    if not reports:
        raise WorkloadFailed("fio printed no report", place=place)
    final = reports[-1]
    # A report may be printed late, never early: the earliest start is the most accurate.
    start_ns = min(r.printed_ns - r.ran_ns for r in reports)
    end_ns = start_ns + final.ran_ns
    kept = [reports[i] for i in boundaries([r.printed_ns for r in reports[:-1]], start_ns, end_ns)]
    ends = [(r.printed_ns, r) for r in kept] + [(end_ns, final)]
    slices = []
    for operation in final.operations:
        previous, since_ns = _NOTHING, start_ns
        for until_ns, report in ends:
            totals = report.operations.get(operation, _NOTHING)
            slices.append(_difference(operation, previous, totals, since_ns, until_ns, final))
            previous, since_ns = totals, until_ns
    return Phase(start_ns, end_ns, slices)


def _snapshot(text: str, place: str) -> Snapshot:
    try:
        report = json.loads(text)
        job = report["jobs"][0]
        operations = {}
        ran_ms = 0
        for operation, latency in (("read", "clat_ns"), ("write", "clat_ns"), ("sync", "lat_ns")):
            part = job[operation]
            ran_ms = max(ran_ms, part.get("runtime", 0))
            if part[latency].get("bins"):
                operations[operation] = _totals(part, part[latency])
        return Snapshot(report["timestamp_ms"] * 10**6, ran_ms * 10**6, operations)
    except (AttributeError, KeyError, IndexError, RecursionError, TypeError, ValueError) as error:
        raise WorkloadFailed(f"fio's report cannot be read: {error!r}", place=place) from error


def _totals(part: Mapping[str, Any], latency: Mapping[str, Any]) -> Totals:
    bins = {int(value): int(count) for value, count in latency["bins"].items()}
    return Totals(bins, part.get("io_bytes"), latency["min"], latency["max"])


def _difference(
    operation: str, before: Totals, after: Totals, start_ns: int, end_ns: int, final: Snapshot
) -> Slice:
    bins = {value: count - before.bins.get(value, 0) for value, count in after.bins.items()}
    histogram = histogram_of(bins, final.operations[operation].max_ns)
    count = sum(bins.values())
    return Slice(
        start_ns=start_ns,
        end_ns=end_ns,
        operation=operation,
        count=count,
        bytes=None if after.bytes is None else after.bytes - (before.bytes or 0),
        # If a running extreme did not change, this second's own extreme is unknown.
        min_ns=after.min_ns if count and (not before.bins or after.min_ns < before.min_ns) else None,
        max_ns=after.max_ns if count and after.max_ns > before.max_ns else None,
        p99_ns=percentile_ns(histogram, 0.99),
        histogram=histogram,
    )


def histogram_of(bins: Mapping[int, int], max_ns: int) -> dict[int, int]:
    """fio's bins (at most 1.6% wide) converted to headrace's buckets by fio's bin middle; the total is preserved.
    fio's last bin is counted at the longest latency of the run, so it is never understated.
    """
    values = [max(value, max_ns) if value >= _LAST_BIN_NS else value for value in bins]
    return to_histogram(values, bins.values())


def _read_and_compress(path: Path) -> Phase:
    with path.open(encoding="utf-8", errors="replace") as lines:
        result = phase(read_snapshots(lines, str(path)), str(path))
    # About 30 KB per second, and very repetitive: stored completely at a thirtieth of the size.
    with path.open("rb") as source, path.with_name(path.name + ".zst").open("wb") as compressed:
        zstandard.ZstdCompressor().copy_stream(source, compressed)
    path.unlink()
    return result
