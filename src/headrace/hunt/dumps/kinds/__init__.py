"""One file per kind of text: ``NAME``, and ``read``, the pieces in a text; none for a text of another kind.

A text may be of several kinds. A new one: its file, its name here, and its cases in ``tests/unit/test_dumps.py``.
"""

from __future__ import annotations

from headrace.hunt.dumps.kinds import (
    atop,
    collectl,
    ethtool,
    exporters,
    free,
    innodb,
    kernel_log,
    memcached,
    mext,
    netstat,
    pairs,
    perf,
    proc,
    prometheus,
    refused,
    replicas,
    sadf,
    sar,
    summaries,
    sysstat,
    sysstat_json,
    threads,
    top,
)

KINDS = (
    pairs, mext, innodb, replicas, threads, proc, sadf, sysstat, sysstat_json, sar, top, atop, collectl, free,
    netstat, ethtool, memcached, exporters, prometheus, perf, kernel_log, summaries, refused,
)  # fmt: skip
