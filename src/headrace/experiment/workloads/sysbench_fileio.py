"""sysbench's file I/O test, as the Pinterest 2015 study ran it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from headrace.base.errors import WorkloadFailed
from headrace.base.model import Tool, Value
from headrace.experiment.workloads import sysbench, tool
from headrace.experiment.workloads.options import CommaList, Described, Size
from headrace.experiment.workloads.precondition import Preconditioned, measured
from headrace.experiment.workloads.sysbench import SYSBENCH, Report
from headrace.experiment.workloads.tables import Phase, with_bounds
from headrace.experiment.workloads.workload import Context, Measurement
from headrace.host.target import Target, scratch_folder

OPERATION = "io"

_MIB = 1024 * 1024
_SECOND = re.compile(
    r"^\[ (?P<second>\d+)s \] reads: (?P<read>[\d.]+) MiB/s writes: (?P<written>[\d.]+) MiB/s "
    r"fsyncs: (?P<fsyncs>[\d.]+)/s latency \(ms,\d+%\): (?P<latency>[\d.]+)$",
    re.MULTILINE,
)


class FileioOptions(Preconditioned):
    """Names, meanings and defaults are sysbench's, except for the test mode, which sysbench requires."""

    file_test_mode: Literal["seqwr", "seqrewr", "seqrd", "rndrd", "rndwr", "rndrw"] = Field(
        "rndrd", description="access pattern"
    )
    file_io_mode: Literal["sync", "async", "mmap"] = Field(
        "sync", description="I/O interface; async is Linux AIO, whose latency here is that of the submit"
    )
    file_async_backlog: Annotated[int, Field(ge=1, le=65536)] = Field(
        128, description="requests in flight per thread (async)"
    )
    file_num: Annotated[int, Field(ge=1, le=65536)] = Field(128, description="number of files")
    file_total_size: Size = Field(2 << 30, description="bytes of all files together")
    file_block_size: Size = Field(16384, description="bytes of one request")
    file_extra_flags: Annotated[
        CommaList,
        Field(pattern=r"^((sync|dsync|direct)(,(sync|dsync|direct))*)?$"),
        Described("flags among sync, dsync and direct"),
    ] = Field("", description="flags to open the files with: sync, dsync, direct")
    file_fsync_freq: Annotated[int, Field(ge=0)] = Field(
        100, description="fsync after this many requests; 0 is never"
    )
    file_fsync_all: bool = Field(False, description="fsync after each write")
    file_fsync_end: bool = Field(True, description="fsync at the end of the run")
    file_fsync_mode: Literal["fsync", "fdatasync"] = Field("fsync", description="how to synchronise")
    file_rw_ratio: Annotated[float, Field(ge=0)] = Field(1.5, description="reads to writes in rndrw")
    threads: Annotated[int, Field(ge=1, le=4096)] = Field(1, description="worker threads")


class SysbenchFileio:
    """The only operation is ``io``: a sysbench event, which is a read, a write or a periodic fsync. sysbench keeps
    one histogram for all of them, so they are indistinguishable here. The total of events is exact; its
    distribution over the seconds comes from rates printed with two decimals, as do ``bytes``.
    """

    kind = "sysbench-fileio"
    needs_server = False
    tools: tuple[Tool, ...] = (SYSBENCH,)
    Options = FileioOptions

    def __init__(self, options: FileioOptions) -> None:
        self._options = options

    def dataset(self) -> Mapping[str, Value] | None:
        return None

    async def version(self, target: Target) -> str:
        return await tool.require_version(target, SYSBENCH, sysbench.MINIMUM)

    async def prepare(self, context: Context) -> None:
        await tool.make_folder(context)
        # Without the extra flags: 100 GB in synchronous blocks of 16 KiB would take longer than the trial.
        argv = [*self._files(), "prepare"]
        await tool.run_to_end(context, argv, name="sysbench-prepare", cwd=context.folder)

    async def run(self, context: Context) -> Measurement:
        return await measured(self._options, self._phase, context, what="sysbench fileio")

    async def cleanup(self, context: Context) -> None:
        argv = [*self._files(), "cleanup"]
        await tool.run_to_end(context, argv, name="sysbench-cleanup", cwd=context.folder)

    def arguments(self, seconds: float) -> list[str]:
        """The command line of one run."""
        o = self._options
        argv = [
            *self._files(),
            f"--file-test-mode={o.file_test_mode}",
            f"--file-io-mode={o.file_io_mode}",
            f"--file-fsync-freq={o.file_fsync_freq}",
            f"--file-fsync-all={_switch(o.file_fsync_all)}",
            f"--file-fsync-end={_switch(o.file_fsync_end)}",
            f"--file-fsync-mode={o.file_fsync_mode}",
            f"--file-rw-ratio={o.file_rw_ratio}",
            *sysbench.general_arguments(seconds, o.threads),
        ]
        if o.file_io_mode == "async":
            argv.append(f"--file-async-backlog={o.file_async_backlog}")
        if o.file_extra_flags:
            argv.append(f"--file-extra-flags={o.file_extra_flags}")
        return [*argv, "run"]

    def _files(self) -> list[str]:
        o = self._options
        return [
            "sysbench",
            "fileio",
            f"--file-num={o.file_num}",
            f"--file-total-size={o.file_total_size}",
            f"--file-block-size={o.file_block_size}",
        ]

    async def _phase(self, context: Context, name: str, seconds: float) -> Phase:
        async with scratch_folder(context.target, context.aside) as scratch:
            output = await tool.run_measured(
                context,
                self.arguments(seconds),
                name=f"sysbench-{name}",
                scratch=scratch,
                cwd=context.folder,
                seconds=seconds,
            )
        text = output.stdout.read_text("utf-8", "replace")
        return phase(text, self._options, output.last_write_ns, str(output.stdout))


@dataclass(frozen=True)
class Final:
    """The report at the end of a run; rates are per second of ``total_s``."""

    total_s: float
    events: int
    read_mib_s: float
    written_mib_s: float
    min_ms: float
    max_ms: float


def phase(text: str, options: FileioOptions, last_write_ns: int, place: str) -> Phase:
    """What one run printed. It prints its last line some ms after its clock stopped, which dates the run."""
    final = _final(text, place)
    end_ns = last_write_ns
    start_ns = end_ns - round(final.total_s * 1e9)
    # Printed with two decimals, so the bounds are widened by half a unit.
    min_ns = max(0, round((final.min_ms - 0.005) * 1e6))
    max_ns = round((final.max_ms + 0.005) * 1e6)
    total_bytes = round((final.read_mib_s + final.written_mib_s) * _MIB * final.total_s)
    total = Report(end_ns, final.events, 0, total_bytes, None)
    slices = sysbench.slices(OPERATION, _reports(text, options, start_ns), total, start_ns)
    histogram = sysbench.read_histogram(text, max_ns, place)
    return Phase(start_ns, end_ns, with_bounds(slices, min_ns, max_ns), {OPERATION: histogram})


def _reports(text: str, options: FileioOptions, start_ns: int) -> list[Report]:
    reports = []
    seconds = [0, *(int(m["second"]) for m in _SECOND.finditer(text))]
    for (since, until), match in zip(pairwise(seconds), _SECOND.finditer(text), strict=True):
        bytes_done = (float(match["read"]) + float(match["written"])) * _MIB * (until - since)
        # With fsync-all the fsync is part of the write's event.
        fsyncs = 0.0 if options.file_fsync_all else float(match["fsyncs"]) * (until - since)
        reports.append(
            Report(
                end_ns=start_ns + until * 10**9,
                count=round(bytes_done / options.file_block_size + fsyncs),
                errors=0,
                bytes=round(bytes_done),
                p99_ns=round(float(match["latency"]) * 1e6),
            )
        )
    return reports


def _final(text: str, place: str) -> Final:
    def number(label: str) -> float:
        match = re.search(rf"^\s*{re.escape(label)}:\s+([\d.]+)s?$", text, re.MULTILINE)
        if match is None:
            raise WorkloadFailed(f"sysbench's output has no line {label!r}: it is cut short", place=place)
        return float(match[1])

    return Final(
        total_s=number("total time"),
        events=int(number("total number of events")),
        read_mib_s=number("read, MiB/s"),
        written_mib_s=number("written, MiB/s"),
        min_ms=number("min"),
        max_ms=number("max"),
    )


def _switch(value: bool) -> str:
    return "on" if value else "off"
