"""One file per benchmark, or per family of them: ``NAME``, and ``read``, its runs or None for another's output.

A new one: its file, its name here, and its cases in ``tests/outputs.py``.
"""

from __future__ import annotations

from headrace.experiment.foreign.formats import (
    benchbase,
    benchmarksql,
    criterion,
    files,
    fio,
    google,
    hammerdb,
    http,
    jmh,
    keys,
    load,
    micro,
    mysqlslap,
    network,
    pgbench,
    stress,
    sysbench,
    system,
    tpcc,
    vdbench,
    ycsb,
)

FORMATS = (
    sysbench,
    fio,
    hammerdb,
    benchbase,
    benchmarksql,
    mysqlslap,
    pgbench,
    ycsb,
    tpcc,
    micro,
    google,
    jmh,
    criterion,
    http,
    load,
    keys,
    network,
    stress,
    vdbench,
    files,
    system,
)
