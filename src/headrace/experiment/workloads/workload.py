"""The interface of a workload: its input and its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headrace.base.model import ServerEndpoint, Tool, Value
from headrace.host.target import Target

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Context:
    """The input of a workload.

    ``folder`` is on the volume under test; the workload may write there and creates it if missing. ``raw`` is a
    local folder for the tool's own output. ``endpoint.database`` exists already. ``clients`` are the machines of
    ``clients_of``, in that order; one may be ``target`` itself. ``cpus`` are those of the load's driver, as
    taskset lists them (empty: all). Randomness comes from the workload's seed and ``block``: trials of one block
    are asked the same, those of another block something else. With ``agree`` another trial runs concurrently: the
    workload passes the time when its load can start, in ns since the epoch on the controller, and gets the common
    start time. ``aside`` is a folder of the target for what the tool writes about its work; it is made if missing,
    and removed by the trial, also after a crash. Empty: the default for temporary files.
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
    block: int = 0
    agree: Callable[[int], Awaitable[int]] | None = None
    aside: str = ""

    def on(self, target: Target) -> Context:
        """The same for a tool on another machine. ``aside`` is the trial's on its own target only."""
        return self if target is self.target else replace(self, target=target, aside="")


@dataclass(frozen=True)
class Cut:
    """What a power cut after the window took.

    ``acknowledged`` transactions had been answered when it came, ``lost`` of them were gone; none was missing
    ``lost_s`` seconds before it (0: none was missing). ``state`` is empty where the server came up with whole
    tables after ``recovery_s``, else what became of it.
    """

    acknowledged: int
    lost: int = 0
    lost_s: float = 0.0
    recovery_s: float = 0.0
    state: str = ""


@dataclass(frozen=True)
class Measurement:
    """The result of a workload: tables as in arrow.INTERVALS and arrow.LATENCY, and the measured window.

    The window is in ns since the epoch on the target's clock. ``intervals`` also holds the warm-up, with negative
    ``t_s``; ``latency`` holds the window only. For each operation the counts of ``intervals`` and those of
    ``latency`` have the same sum over the window, for each of the kinds ``service`` and ``response`` it has. With
    ``invalid`` it was measured but must not be analysed, because the workload did not run as requested.
    ``warnings`` are for the report.
    """

    intervals: pa.Table
    latency: pa.Table
    window_start_ns: int
    window_end_ns: int
    invalid: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    cuts: tuple[Cut, ...] = ()


class Workload(Protocol):
    """Something that can be prepared, run and cleaned up. ``tests/contracts/workload.py`` is its suite."""

    @property
    def kind(self) -> str: ...

    @property
    def needs_server(self) -> bool: ...

    @property
    def tools(self) -> tuple[Tool, ...]: ...

    def dataset(self) -> Mapping[str, Value] | None:
        """The identity of the server's data: the key of the golden copy. None without a server."""

    async def version(self, target: Target) -> str:
        """The tool's version; raises NotReady if it is missing or too old."""

    async def prepare(self, context: Context) -> None:
        """Create the data: once per data set for a server, once per trial for files.

        Raises DiskFull or WorkloadFailed.
        """

    async def run(self, context: Context) -> Measurement:
        """Warm up, then measure; raises WorkloadFailed. On cancellation it stops the tool first."""

    async def cleanup(self, context: Context) -> None:
        """Remove what ``prepare`` created."""
