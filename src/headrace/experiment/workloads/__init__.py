"""Workloads: headrace's own driver, fio and sysbench, all writing the same tables.

A new workload needs one file and one line in the registry; ``tests/contracts/workload.py`` then covers it.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.base.errors import PlanError
from headrace.base.meant import meant
from headrace.base.model import Option, ServerLogin, Tool
from headrace.base.watched import OF_CACHES
from headrace.experiment.workloads import options as _options
from headrace.experiment.workloads.apply import Apply
from headrace.experiment.workloads.drive.check import Finding
from headrace.experiment.workloads.drive.workload import Driven, ServerDriven
from headrace.experiment.workloads.fio import Fio
from headrace.experiment.workloads.memcached import Memcached
from headrace.experiment.workloads.observe import Observe
from headrace.experiment.workloads.oltp import Oltp
from headrace.experiment.workloads.options import OptionDoc
from headrace.experiment.workloads.power_cut import CUT_S, PowerCut
from headrace.experiment.workloads.probe import Probe, guarded
from headrace.experiment.workloads.replay import Replay
from headrace.experiment.workloads.sql import Sql
from headrace.experiment.workloads.sysbench_fileio import SysbenchFileio
from headrace.experiment.workloads.sysbench_oltp import SysbenchOltp
from headrace.experiment.workloads.tpcc import Tpcc
from headrace.experiment.workloads.workload import Context, Cut, Measurement, Workload

__all__ = [
    "GUARDS",
    "KINDS",
    "Context",
    "Cut",
    "Finding",
    "Measurement",
    "Workload",
    "driven_from",
    "guarded",
    "has_guards",
    "has_preflight",
    "live_login",
    "make_workload",
    "option",
    "option_docs",
    "preflight",
    "seconds_after",
    "tools",
    "watches",
]

#: What a change must not cost, beside the response, where the workload watches it.
GUARDS = OF_CACHES

_Kind = type[
    Oltp
    | Sql
    | Tpcc
    | PowerCut
    | Replay
    | Apply
    | Memcached
    | Fio
    | SysbenchFileio
    | SysbenchOltp
    | Observe
    | Probe
]

_REGISTRY: dict[str, _Kind] = {
    workload.kind: workload
    for workload in (
        Oltp, Sql, Tpcc, PowerCut, Replay, Apply, Memcached, Fio, SysbenchFileio, SysbenchOltp, Observe, Probe,
    )
}  # fmt: skip

#: Allowed values of ``workload.kind``.
KINDS: tuple[str, ...] = tuple(_REGISTRY)


def option(kind: str, options: Mapping[str, Option], name: str) -> object:
    """An option's value as the workload reads it: the same for 8192K and 8388608. Raises PlanError."""
    return getattr(_options.parse(kind, _lookup(kind).Options, options), name)


def make_workload(kind: str, options: Mapping[str, Option]) -> Workload:
    """The workload of this kind; raises PlanError naming the key, its value and what is allowed."""
    workload = _lookup(kind)
    return workload(_options.parse(kind, workload.Options, options))  # type: ignore[arg-type]


def option_docs(kind: str) -> list[OptionDoc]:
    """Every option of this kind: name, type or allowed values, default and meaning."""
    return _options.docs(_lookup(kind).Options)


def tools(kind: str) -> tuple[Tool, ...]:
    """The programs that a workload of this kind needs on the target, regardless of its options."""
    return _lookup(kind).tools


def driven_from(workload: Workload) -> tuple[tuple[str, ...], str]:
    """The addresses of the machines that drive it (none: the target), and where they reach its server (empty: the
    target's host).
    """
    return (workload.clients, workload.server_address) if isinstance(workload, Driven) else ((), "")


def seconds_after(workload: Workload) -> float:
    """How long a trial goes on after its window, about."""
    return CUT_S * workload.options.cuts if isinstance(workload, PowerCut) else 0.0


def live_login(workload: Workload) -> ServerLogin | None:
    """How to reach the live server that a workload watches; None for workloads with their own load."""
    return workload.login if isinstance(workload, Observe) else None


def watches(workload: Workload) -> bool:
    """Whether the load is the host's own, so that treatments change its live settings."""
    return isinstance(workload, Observe | Probe)


def has_guards(workload: Workload) -> bool:
    """Whether what it watches has ``GUARDS``."""
    return isinstance(workload, Probe)


def has_own_cores(workload: Workload) -> bool:
    """Whether its driver should have cores apart from those of the server on the same machine."""
    return isinstance(workload, ServerDriven) and not workload.clients and workload.options.separate_cores


def has_preflight(workload: Workload) -> bool:
    """Whether ``preflight`` checks anything: for workloads of headrace's driver on a server."""
    return isinstance(workload, ServerDriven)


async def preflight(workload: Workload, context: Context) -> list[Finding]:
    """The limits that a workload would hit."""
    return await workload.check(context) if isinstance(workload, ServerDriven) else []


def _lookup(kind: str) -> _Kind:
    try:
        return _REGISTRY[kind]
    except KeyError:
        near = meant(kind, KINDS)
        raise PlanError(
            f"workload.kind = {kind!r}: must be one of {', '.join(KINDS)}",
            hint=f'kind = "{near}"' if near else "`headrace docs workloads` says what each measures",
        ) from None
