"""A workload that only watches a memcached server: latency from a probe of ours, load from its own counters.

The load is its clients'. The probe runs where headrace runs, so its gets come over the network as theirs do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from headrace.base import received
from headrace.base.errors import HeadraceError, WorkloadFailed
from headrace.base.model import Tool, Value
from headrace.base.whole import read_plain
from headrace.experiment.workloads import tables
from headrace.experiment.workloads.options import Options
from headrace.experiment.workloads.workload import Context, Measurement
from headrace.host.memcached.probe import EVERY_S, LEAST_PER_S
from headrace.host.memcached.probed import Gets, Reading, Reset, argv, between, costs, parsed
from headrace.host.memcached.probing import IDLE_PER_S
from headrace.host.target import Target, to_the_end
from headrace.host.target.clock import read_clock
from headrace.host.target.local import LocalTarget

if TYPE_CHECKING:
    import pyarrow as pa

#: After its time the probe waits for its last answers.
ENDING_S = 20.0
#: The window begins with a second of gets, which may come a little after the warm-up.
TAIL_S = 0.5
#: What others asked of the server, and what the probe did.
CLIENTS, PROBE = "clients", "probe"
LINES = "probe-window.jsonl"
#: A second begins so much late, or early.
JITTER_NS = 100_000_000
#: Of the time between two readings.
HALF_NS = round(EVERY_S * 1e9) // 2


class ProbeOptions(Options):
    """The server, and how often it is asked."""

    address: Annotated[str, Field(pattern=r"^(/.+|.+:[0-9]+)$")] = Field(
        description="`host:port` of the memcached server as seen from where headrace runs, or its socket"
    )
    gets_per_s: Annotated[float, Field(ge=LEAST_PER_S, le=1000)] = Field(
        10.0, description="gets a second, each of a key that does not exist"
    )


class Probe:
    """The operations are ``clients``, whose latency nobody sees, and ``probe``, with its response times."""

    kind = "probe"
    needs_server = False
    tools: tuple[Tool, ...] = ()
    Options = ProbeOptions

    def __init__(self, options: ProbeOptions) -> None:
        self._options = options

    def dataset(self) -> Mapping[str, Value] | None:
        return None

    async def version(self, target: Target) -> str:
        from headrace import __version__

        return __version__

    async def prepare(self, context: Context) -> None:
        """Nothing to do: the load is the host's own."""

    async def run(self, context: Context) -> Measurement:
        """Gets during warm-up and window. Raises WorkloadFailed with why the server is not asked."""
        total_s = context.warmup_s + context.seconds + TAIL_S
        path, said = context.raw / LINES, context.raw / "probe.stderr"
        clock = await read_clock(context.target)
        process = await LocalTarget().spawn(
            argv(self._options.address, self._options.gets_per_s, total_s),
            stdout_path=str(path),
            stderr_path=str(said),
        )
        try:
            code = await process.wait(total_s + ENDING_S)
        except TimeoutError as error:
            raise WorkloadFailed(f"the probe did not end after {total_s:g} s", place="probe") from error
        finally:
            with contextlib.suppress(HeadraceError):
                await to_the_end(process.signal("TERM"))
        if code != 0:
            words = said.read_text(errors="replace").strip().splitlines()[-1:]
            raise WorkloadFailed(
                f"the probe of {self._options.address} ended: {' '.join(words)}", place="probe"
            )
        return measured(list(lines_of(path)), context, clock.offset_ns)

    async def cleanup(self, context: Context) -> None:
        """Nothing to remove."""


def lines_of(path: Path) -> Iterator[Gets | Reading]:
    """What a probe wrote, without the readings that failed. Raises WorkloadFailed for what no probe writes."""
    for line in received.lines(read_plain(path).decode("utf-8", "replace")):
        try:
            found = parsed(line)
        except (received.BadContent, KeyError, TypeError) as error:
            raise WorkloadFailed(f"a line of the probe: {error}", place=str(path)) from error
        if isinstance(found, Gets | Reading):
            yield found


def measured(lines: Sequence[Gets | Reading], context: Context, offset_ns: int = 0) -> Measurement:
    """From the probe's lines to the tables. ``offset_ns``: by how much the target's clock is ahead of ours.

    The window begins with a second of gets. Raises WorkloadFailed if the server was not read twice in it, or no
    get was answered.
    """
    readings = [each for each in lines if isinstance(each, Reading)]
    seconds = _seconds([each for each in lines if isinstance(each, Gets)])
    warm_ns = round(context.warmup_s * 1e9)
    start_ns = next((at for at, _ in seconds if at >= seconds[0][0] + warm_ns - JITTER_NS), None)
    if start_ns is None:
        raise WorkloadFailed("the probe stopped before its window", place="probe")
    end_ns = start_ns + round(context.seconds * 1e9)
    inside = [(at, gets) for at, gets in seconds if start_ns <= at < end_ns - JITTER_NS]
    if not any(gets.answered_ns for _, gets in inside):
        raise WorkloadFailed("no get of the probe was answered in the window", place="probe")
    # Each reading has its own time, so that one beside the window serves as well.
    read = [each for each in readings if start_ns - HALF_NS <= each.t_ns <= end_ns + HALF_NS]
    if len(read) < 2:
        raise WorkloadFailed("the server's counters were not read in the window", place="probe")
    try:
        between(readings)
        rate = _rate(read)
        words = f"its clients asked for {rate:.1f} keys/s (idle below {IDLE_PER_S:g})"
        invalid: tuple[str, ...] = (words,) if rate < IDLE_PER_S else ()
    except Reset as error:
        invalid = (str(error),)
    rows = [
        *_of_clients(readings, start_ns),
        *_of_gets([each for each in seconds if each[0] < end_ns], start_ns),
    ]
    return Measurement(
        _table(rows), _latency(inside, start_ns), start_ns + offset_ns, end_ns + offset_ns, invalid
    )


def guarded(trial: Path, warmup_s: float) -> dict[str, float | None]:
    """What a change must not cost, of a trial after its warm-up: by name, as far as it is known."""
    try:
        lines = list(lines_of(trial / "raw" / LINES))
    except OSError:
        return {}
    readings = [each for each in lines if isinstance(each, Reading)]
    seconds = _seconds([each for each in lines if isinstance(each, Gets)])
    begin_ns = (seconds[0][0] if seconds else 0) + round(warmup_s * 1e9) - JITTER_NS
    failed = sum(len(gets.failed_ns) for at, gets in seconds if at >= begin_ns)
    asked = failed + sum(len(gets.answered_ns) for at, gets in seconds if at >= begin_ns)
    own = [each for each in readings if each.t_ns >= begin_ns]
    with contextlib.suppress(Reset):
        if len(own) > 1:
            return costs(between(own), failed, asked)
    return costs(None, failed, asked)


def _rate(readings: Sequence[Reading]) -> float:
    counts = between(readings)
    return counts.requests / counts.seconds


def _seconds(asked: Sequence[Gets]) -> list[tuple[int, Gets]]:
    """Each with its begin, which is the end of the one before."""
    begins = [asked[0].t_ns - round(EVERY_S * 1e9), *(each.t_ns for each in asked)] if asked else []
    return list(zip(begins, asked, strict=False))


def _of_clients(readings: Sequence[Reading], start_ns: int) -> Iterator[dict[str, Any]]:
    for one, other in pairwise(readings):
        try:
            counts = between((one, other))
        except Reset:
            continue
        yield {
            "t_s": (one.t_ns - start_ns) / 1e9,
            "duration_s": counts.seconds,
            "operation": CLIENTS,
            "count": round(counts.requests),
            "errors": round(counts.refused),
            "rows": round(counts.hits),
        }


def _of_gets(seconds: Sequence[tuple[int, Gets]], start_ns: int) -> Iterator[dict[str, Any]]:
    for begin_ns, gets in seconds:
        all_ns = gets.answered_ns + gets.failed_ns
        yield {
            "t_s": (begin_ns - start_ns) / 1e9,
            "duration_s": (gets.t_ns - begin_ns) / 1e9,
            "operation": PROBE,
            "count": len(gets.answered_ns),
            "errors": len(gets.failed_ns),
            "min_ns": min(all_ns, default=None),
            "max_ns": max(all_ns, default=None),
        }


def _table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    import pyarrow as pa

    from headrace.host.arrow import INTERVALS

    columns = {name: [row.get(name) for row in rows] for name in INTERVALS.names}
    return pa.table(columns, INTERVALS)


def _latency(seconds: Sequence[tuple[int, Gets]], start_ns: int) -> pa.Table:
    import pyarrow as pa

    from headrace.host.arrow import LATENCY

    rows = [
        ((begin_ns - start_ns) / 1e9, PROBE, kind, bucket, count)
        for begin_ns, gets in seconds
        for kind, values in (("response", gets.answered_ns), ("failed", gets.failed_ns))
        for bucket, count in sorted(tables.to_histogram(values, [1] * len(values)).items())
    ]
    return pa.table(dict(zip(LATENCY.names, zip(*rows, strict=True), strict=True)), LATENCY)
