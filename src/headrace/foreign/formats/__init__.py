"""One file per benchmark, or per family of them: ``NAME``, and ``read``, its runs or None for another's output.

A new one: its file, its name here, and its cases in ``tests/unit/test_formats.py``.
"""

from __future__ import annotations

from headrace.foreign.formats import (
    benchbase,
    fio,
    hammerdb,
    http,
    micro,
    mysqlslap,
    pgbench,
    stress,
    sysbench,
    tpcc,
    ycsb,
)

FORMATS = (sysbench, fio, hammerdb, benchbase, mysqlslap, pgbench, ycsb, tpcc, micro, http, stress)
