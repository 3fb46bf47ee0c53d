"""One driver or several, on one target or several, that start at one instant.

Each driver connects, prints ``{"kind":"ready"}``, and reads ``{"start_at_ns": N}`` from its standard input: the
instant, on its own machine's clock. Clocks are not assumed to agree: the offset of each to the controller's is
measured, a machine gets the instant in its own time, and its results are dated in the target's. A lost driver
makes the trial invalid: the others' measurements are kept, but never presented as complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from headrace.base.errors import HeadraceError, NotReady, TargetError, WorkloadFailed
from headrace.experiment.workloads import tool
from headrace.experiment.workloads.drive.lines import Source, measurement
from headrace.experiment.workloads.workload import Context, Measurement
from headrace.host.agent import Agent
from headrace.host.target import Process, Target, scratch_folder, to_the_end
from headrace.host.target.clock import Clock, read_clock

T = TypeVar("T")

#: Time from all drivers being ready to the start: enough to notify each, on a busy machine and over a slow
#: network.
LEAD_S = 0.5
ROUND_TRIPS_OF_LEAD = 10

#: If connecting takes longer, the driver hangs.
READY_LIMIT_S = 300.0

#: After its last operation has ended or timed out, it only has to write its last lines.
END_GRACE_S = 60.0

#: A clock that cannot be read more precisely than this does not allow an agreed start.
MAX_CLOCK_ERROR_NS = 20_000_000

WHAT = "headrace-agent drive run"


@dataclass(frozen=True)
class Seat:
    """Where a driver runs, and its server login; the password is in a separate file there."""

    target: Target
    arguments: tuple[str, ...]
    password: str = ""

    async def argv(self, verb: str, spec: Mapping[str, Any], path: str) -> list[str]:
        """The command for one of the driver's verbs, with the SPEC and the password in files whose names start
        with ``path``.
        """
        agent = await Agent.install(self.target)
        await self.target.write(f"{path}.spec", json.dumps(spec).encode(), mode=0o600)
        argv = [agent.path, "drive", verb, f"{path}.spec", *self.arguments]
        if self.password:
            await self.target.write(f"{path}.password", self.password.encode(), mode=0o600)
            argv += ["--mysql-password-file", f"{path}.password"]
        return argv


async def drive(context: Context, spec: Mapping[str, Any], seats: Sequence[Seat]) -> Measurement:
    """Run a driver on each seat, each with its share of the SPEC, and merge what they measured.

    Raises WorkloadFailed with a driver's message if one cannot start or none is left, NotReady for a clock that
    cannot be read. Losing one later makes the measurement invalid.
    """
    clocks = await _read_clocks([context.target, *(seat.target for seat in seats)])
    slowest_s = max(clock.error_ns for clock in clocks.values()) / 1e9
    async with contextlib.AsyncExitStack() as stack:
        drivers = []
        for index, seat in enumerate(seats):
            own = {**spec, "waits_for_start": True, "share": {"index": index, "of": len(seats)}}
            driver = _Driver(context, seat, own, f"-{index + 1}" if len(seats) > 1 else "")
            await stack.enter_async_context(driver.begun())
            drivers.append(driver)
        await _all(driver.ready() for driver in drivers)
        at_ns = time.time_ns() + round((LEAD_S + ROUND_TRIPS_OF_LEAD * slowest_s) * 1e9)
        if context.agree is not None:
            at_ns = await context.agree(at_ns)
        await _all(driver.start(at_ns + clocks[driver.target].offset_ns) for driver in drivers)
        limit_s = spec["warmup_s"] + spec["seconds"] + spec["operation_timeout_s"] + END_GRACE_S
        lost = await _wait_for_all(drivers, limit_s)
        sources = []
        for driver in drivers:
            path = await driver.fetch(is_needed=driver not in lost)
            if path is not None and driver not in lost:
                shift_ns = clocks[context.target].offset_ns - clocks[driver.target].offset_ns
                sources.append(Source(path, driver.name, shift_ns))
    if not sources:
        error = next(iter(lost.values()))
        # An unreachable client machine takes its load with it; the target itself is fine.
        raise WorkloadFailed(error.message, place=error.place) if isinstance(error, TargetError) else error
    measured = measurement(sources)
    reasons = tuple(f"a client was lost: {driver.name}: {error.message}" for driver, error in lost.items())
    return replace(measured, invalid=(*reasons, *measured.invalid))


class _Driver:
    """One driver process, from its SPEC to its lines."""

    def __init__(self, context: Context, seat: Seat, spec: Mapping[str, Any], suffix: str) -> None:
        self.target = seat.target
        self._is_elsewhere = seat.target is not context.target
        #: Name for messages, if there are several.
        self.name = f"client {suffix[1:]} ({seat.target.name})" if suffix else ""
        self._context = context.on(seat.target)
        self._seat = seat
        self._spec = spec
        self._file = f"drive-window{suffix}"
        self._scratch = ""
        self._process: Process | None = None
        self._is_over = False

    @contextlib.asynccontextmanager
    async def begun(self) -> AsyncIterator[None]:
        """Start it, so that it connects; always stopped and cleaned up at the end."""
        async with scratch_folder(self._context.target, self._context.aside) as self._scratch:
            argv = await self._seat.argv("run", self._spec, f"{self._scratch}/{self._file}")
            argv += ["--output", self._path("jsonl.zst")]
            (self._context.raw / f"{self._file}.command").write_text(shlex.join(argv) + "\n")
            (self._context.raw / f"{self._file}.json").write_text(json.dumps(self._spec, indent=1) + "\n")
            argv = tool.pinned(self._context, argv)
            self._process = await self.target.spawn(argv, env=tool.environment(self._context))
            try:
                yield
            finally:
                if not self._is_over:
                    await to_the_end(self._stop())

    async def ready(self) -> None:
        """Wait until all its connections are established."""
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            line = await asyncio.wait_for(anext(self._process.lines(), ""), READY_LIMIT_S)
            if not line:
                raise await self._fate(await self._process.wait())
            if line != '{"kind":"ready"}':
                raise WorkloadFailed(f"{WHAT} said {line[:200]!r} instead of `ready`", place=self.target.name)
            if self._seat.password:
                # It has read the password, so remove the file.
                await self.target.run(["rm", "-f", "--", self._path("password")])
            return
        raise WorkloadFailed(
            f"{WHAT} had not established its connections after {READY_LIMIT_S:g} s", place=self.target.name
        )

    async def start(self, at_ns: int) -> None:
        """Send it the start time, on its own clock."""
        assert self._process is not None
        await self._process.write(json.dumps({"start_at_ns": at_ns}).encode() + b"\n")

    async def end(self, limit_s: float) -> HeadraceError | None:
        """Wait for its end; returns why it is lost, or None."""
        assert self._process is not None
        try:
            exit_code = await self._process.wait(limit_s)
        except TimeoutError:
            return WorkloadFailed(
                f"{WHAT} did not end within {limit_s:.0f} s and was stopped", place=self.target.name
            )
        except TargetError as error:
            if not self._is_elsewhere:
                raise
            return error
        self._is_over = True
        return None if exit_code == 0 else await self._fate(exit_code)

    async def interrupt(self) -> None:
        """Ask it to stop now."""
        assert self._process is not None
        with contextlib.suppress(TargetError):
            await self._process.signal("TERM")

    async def fetch(self, *, is_needed: bool) -> Path | None:
        """Copy its lines to the raw folder; those of a lost driver if they are available."""
        path = self._context.raw / f"{self._file}.jsonl.zst"
        try:
            await self.target.get(self._path("jsonl.zst"), path)
        except (TargetError, FileNotFoundError):
            if is_needed:
                raise
            return None
        return path

    def _path(self, ending: str) -> str:
        return f"{self._scratch}/{self._file}.{ending}"

    async def _fate(self, exit_code: int) -> HeadraceError:
        assert self._process is not None
        self._is_over = True
        words = await self._process.error_text()
        (self._context.raw / f"{self._file}.stderr").write_text(words)
        return tool.agent_failed(WHAT, exit_code, tool.last_lines(words), self.target.name)

    async def _stop(self) -> None:
        assert self._process is not None
        with contextlib.suppress(TargetError):
            await tool.stop(self._process)


async def _wait_for_all(drivers: Sequence[_Driver], limit_s: float) -> dict[_Driver, HeadraceError]:
    """The lost drivers, and why. When the first is lost, the others are stopped."""
    tasks = {asyncio.create_task(driver.end(limit_s)): driver for driver in drivers}
    lost: dict[_Driver, HeadraceError] = {}
    try:
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            before = len(lost)
            lost |= {tasks[task]: reason for task in done if (reason := task.result())}
            if lost and not before:
                await _all(tasks[task].interrupt() for task in pending)
    finally:
        for task in tasks:
            task.cancel()
    return lost


async def _read_clocks(targets: Iterable[Target]) -> dict[Target, Clock]:
    distinct = list(dict.fromkeys(targets))
    clocks = dict(zip(distinct, await _all(read_clock(target) for target in distinct), strict=True))
    for target, clock in clocks.items():
        # A single machine always agrees with itself.
        if len(clocks) > 1 and clock.error_ns > MAX_CLOCK_ERROR_NS:
            raise NotReady(
                f"its clock cannot be read more precisely than {clock.error_ns / 1e6:.0f} ms "
                f"(limit {MAX_CLOCK_ERROR_NS / 1e6:.0f} ms): clients cannot agree on a start",
                place=target.name,
                hint="use clients that are closer or less busy",
            )
    return clocks


async def _all(work: Iterable[Awaitable[T]]) -> list[T]:
    """Every result; if some fail, raises the first error once all have ended."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
