"""What a workload is, what it gets and what it yields."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headrace.model import ServerEndpoint, Tool, Value
from headrace.target import Target

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Context:
    """What a workload gets.

    ``folder`` is on the volume under test; the workload may write there and makes it when it is missing.
    ``raw`` is a local folder for the tool's own output. ``endpoint.database`` exists already. ``clients`` are the
    machines that ``clients_of`` named, in that order; one may be ``target`` itself.

    ``cpus`` are those that the load may be driven from, as taskset lists them (empty: all). With ``agree`` another
    trial runs at the same moment: whoever knows when its load will begin, in ns since the epoch here, asks for the
    instant at which both do.
    """

    target: Target
    owner: str
    folder: str
    endpoint: ServerEndpoint | None
    seconds: float
    warmup_s: float
    raw: Path
    clients: tuple[Target, ...] = ()
    cpus: str = ""
    agree: Callable[[int], Awaitable[int]] | None = None


@dataclass(frozen=True)
class Measurement:
    """What a workload yields: tables as in arrow.INTERVALS and arrow.LATENCY, and the measured window.

    The window is in ns since the epoch on the target's clock. ``intervals`` also holds the warm-up, with
    negative ``t_s``; ``latency`` holds the window only. For each operation the counts of ``intervals`` and those
    of ``latency`` have the same sum over the window, in each of the kinds ``service`` and ``response`` it has.

    With ``invalid`` it was measured and must not be analysed: the workload itself did not do what was asked.
    ``warnings`` are for whoever reads the numbers.
    """

    intervals: pa.Table
    latency: pa.Table
    window_start_ns: int
    window_end_ns: int
    invalid: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Workload(Protocol):
    """Something that can be prepared, run and cleaned up. ``tests/contracts/workload.py`` is its suite."""

    @property
    def kind(self) -> str: ...

    @property
    def needs_server(self) -> bool: ...

    @property
    def tools(self) -> tuple[Tool, ...]: ...

    def dataset(self) -> Mapping[str, Value] | None:
        """What identifies the data a server must hold: the key of the golden copy. None without a server."""

    async def version(self, target: Target) -> str:
        """The tool's version; raises NotReady when it is missing or too old."""

    async def prepare(self, context: Context) -> None:
        """Make the data: once a data set for a server, once a trial for files.

        Raises DiskFull or WorkloadFailed.
        """

    async def run(self, context: Context) -> Measurement:
        """Warm up, then measure; raises WorkloadFailed. Cancelled, it stops the tool first."""

    async def cleanup(self, context: Context) -> None:
        """Remove what ``prepare`` made."""
