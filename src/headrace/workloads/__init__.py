"""Workloads: fio, sysbench fileio and sysbench OLTP, all writing the same tables.

A new workload is one file and one line of the registry; ``tests/contracts/workload.py`` then covers it.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import PlanError
from headrace.model import Value
from headrace.workloads import options as _options
from headrace.workloads.fio import Fio
from headrace.workloads.options import OptionDoc
from headrace.workloads.sysbench_fileio import SysbenchFileio
from headrace.workloads.sysbench_oltp import SysbenchOltp
from headrace.workloads.workload import Context, Measurement, Workload

__all__ = [
    "KINDS",
    "Context",
    "Measurement",
    "OptionDoc",
    "Workload",
    "make_workload",
    "option_docs",
]

_REGISTRY: dict[str, type[Fio | SysbenchFileio | SysbenchOltp]] = {
    workload.kind: workload for workload in (Fio, SysbenchFileio, SysbenchOltp)
}

#: The names a plan may give as ``workload.kind``.
KINDS: tuple[str, ...] = tuple(_REGISTRY)


def make_workload(kind: str, options: Mapping[str, Value]) -> Workload:
    """The workload of this kind; raises PlanError naming the key, its value and what is allowed."""
    workload = _lookup(kind)
    return workload(_options.parse(kind, workload.Options, options))  # type: ignore[arg-type]


def option_docs(kind: str) -> list[OptionDoc]:
    """Every option of this kind: name, type or allowed values, default and meaning."""
    return _options.docs(_lookup(kind).Options)


def _lookup(kind: str) -> type[Fio | SysbenchFileio | SysbenchOltp]:
    try:
        return _REGISTRY[kind]
    except KeyError:
        raise PlanError(f"workload.kind = {kind!r}: allowed are {', '.join(KINDS)}") from None
