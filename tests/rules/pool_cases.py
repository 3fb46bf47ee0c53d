"""Cases of the rules about the buffer pool."""

from __future__ import annotations

from typing import Any

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import GIB, unwell

MIB = 1 << 20
#: Two gigabytes of data.
TWO_GIB: Any = [{"engine": "InnoDB", "tables": 8, "rows": 10**7, "data_bytes": 2 * GIB, "index_bytes": 0}]
#: 128 MB of pool beside them, full, with memory idle: a founding case.
SMALL: dict[str, Any] = {
    "engines": TWO_GIB,
    "variables": {"innodb_buffer_pool_size": str(128 * MIB)},
    "status": {"innodb_buffer_pool_pages_free": 10.0, "innodb_buffer_pool_pages_total": 8192.0},
    "status_rates": {"innodb_buffer_pool_reads": 4_000.0},
    "gauges": {"memory.MemAvailable.": 50.0 * GIB},
    "facts": {"servers.1322.rss_bytes": GIB},
}
FULL = {"innodb_buffer_pool_reads": 5_000.0}
SMALLER = {"innodb_buffer_pool_size": str(30 * GIB)}
DIRTY = {
    "innodb_buffer_pool_pages_dirty": 870.0,
    "innodb_buffer_pool_pages_data": 1000.0,
    "innodb_buffer_pool_pages_free": 0.0,
}
SCANS = {"handler_read_rnd_next": 900_000.0}
SHORT = {"memory.MemAvailable.": 2.0 * GIB}

#: Of a server that was too busy to open its tables.
BY_STATISTICS = {"server_settings.engines": None, "server_settings.innodb_size": TWO_GIB[0]}

CASES = [
    Case(
        "POOL01",
        "a size from InnoDB's statistics",
        lambda: unwell(**{**SMALL, "engines": None, "facts": {**SMALL["facts"], **BY_STATISTICS}}),
        ("",),
        ("the buffer pool is 128 MiB for 2 GiB of data",),
    ),
    Case(
        "POOL01",
        "128 MB beside 2 GB",
        lambda: unwell(**SMALL),
        ("",),
        ("the buffer pool is 128 MiB for 2 GiB of data, 4,000 pages/s", "of memory is idle"),
    ),
    Case(
        "POOL01",
        "the same in MySQL",
        lambda: unwell(vendor="mysql", **SMALL),
        ("",),
        ("128 MiB",),
        # 2.5 GiB, as the server rounds it: to a chunk of 128 MiB in each of 8 instances.
        sets=({"server.innodb_buffer_pool_size": 3 * GIB},),
    ),
    Case(
        "POOL01",
        "the host has memory, the control group has none",
        lambda: unwell(**{**SMALL, "facts": {"servers.1322.rss_bytes": 47 * GIB}}),
    ),
    Case(
        "POOL02",
        "next to another server",
        lambda: unwell(
            variables={"innodb_buffer_pool_size": str(40 * GIB)},
            facts={
                "servers": [
                    {**unwell().rows("servers")[0], "cgroup": None},
                    {"pid": 99, "program": "mysqld", "rss_bytes": 30 * GIB},
                ]
            },
        ),
        ("",),
        ("may grow to 40 GiB, and only 32.7 GiB is available to the server",),
        sets=({"server.innodb_buffer_pool_size": int(24.375 * GIB)},),
    ),
    Case(
        "POOL01",
        "only what the server keeps free",
        lambda: unwell(
            **{**SMALL, "status": {**SMALL["status"], "innodb_buffer_pool_pages_free": 1_500.0}},
        ),
        ("",),
        ("128 MiB",),
    ),
    Case("POOL01", "the pool is not yet full", lambda: unwell(**{**SMALL, "status": {}})),
    Case(
        "POOL01",
        "nobody reads",
        lambda: unwell(**{**SMALL, "status_rates": {"innodb_buffer_pool_reads": 1.0}}),
    ),
    Case(
        "POOL01",
        "a control group that is held up has no room",
        lambda: unwell(
            **{**SMALL, "facts": {**SMALL["facts"], "servers.1322.cgroup.memory_high_bytes": GIB // 8}}
        ),
    ),
    Case("POOL01", "no memory is idle", lambda: unwell(**{**SMALL, "gauges": SHORT})),
    Case("POOL01", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case("POOL01", "memory not sampled", lambda: unwell(without=["memory"]), missing="MemTotal"),
    Case(
        "POOL02",
        "60 of 62.7 GiB",
        lambda: unwell(
            variables={"innodb_buffer_pool_size": str(60 * GIB)},
            facts={"servers.1322.cgroup.memory_max_bytes": "max"},
        ),
        ("",),
        ("60 GiB of the 62.7 GiB", "96%"),
    ),
    Case(
        "POOL02",
        "a control group",
        lambda: unwell(facts={"servers.1322.cgroup.memory_max_bytes": 40 * GIB}),
        ("",),
        ("may grow to 44 GiB, and only 40 GiB is available",),
    ),
    Case(
        "POOL02",
        "a control group that is held up above its limit",
        lambda: unwell(facts={"servers.1322.cgroup.memory_high_bytes": 40 * GIB}),
        ("",),
        ("may grow to 44 GiB, and only 40 GiB is available",),
    ),
    Case("POOL02", "44 GiB", lambda: unwell(facts={"servers.1322.cgroup.memory_max_bytes": "max"})),
    Case("POOL02", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "POOL03",
        "thirty a second",
        lambda: unwell(status_rates={"innodb_buffer_pool_wait_free": 30.0}),
        ("",),
        ("30.0 times per second",),
        severity=Severity.LIMIT,
    ),
    Case(
        "POOL03",
        "the pool is too small for no reason",
        lambda: unwell(
            **{**SMALL, "status_rates": {**SMALL["status_rates"], "innodb_buffer_pool_wait_free": 30.0}}
        ),
    ),
    Case(
        "POOL03",
        "some",
        lambda: unwell(status_rates={"innodb_buffer_pool_wait_free": 2.0}),
        ("",),
        ("2.0 times per second",),
        severity=Severity.COST,
    ),
    Case("POOL03", "one in a minute", lambda: unwell(status_rates={"innodb_buffer_pool_wait_free": 1 / 60})),
    Case("POOL03", "none", lambda: unwell(vendor="mysql")),
    Case("POOL03", "not sampled", lambda: unwell(without=["mysql_status"]), missing="wait_free was not"),
    Case("POOL04", "87%", lambda: unwell(status=DIRTY), ("",), ("87% of the buffer pool's pages are dirty",)),
    Case(
        "POOL04",
        "87% of the few pages with data, and most are free",
        lambda: unwell(status={**DIRTY, "innodb_buffer_pool_pages_free": 7_000.0}),
    ),
    Case(
        "POOL04",
        "a limit of nothing, left over from a shutdown that was prepared",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_max_dirty_pages_pct": "0.000000"},
            status={**DIRTY, "innodb_buffer_pool_pages_dirty": 3.0},
        ),
        ("",),
        ("0.3% of the buffer pool's pages are dirty; flushing turns aggressive at 0%, and 800 pages/s",),
        sets=({"server.innodb_max_dirty_pages_pct": 90},),
    ),
    Case(
        "POOL04",
        "the same, and nothing changes",
        lambda: unwell(
            variables={"innodb_max_dirty_pages_pct": "0.000000"},
            status_rates={"innodb_buffer_pool_pages_flushed": 0.0},
        ),
    ),
    Case("POOL04", "few", unwell),
    Case("POOL04", "not sampled", lambda: unwell(without=["mysql_status"]), missing="pages_dirty was not"),
    Case(
        "POOL05",
        "one part",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_buffer_pool_instances": "1"},
            status={"threads_running": 40.0},
        ),
        ("",),
        ("44 GiB has one instance, with 40 threads running on 8 CPUs",),
    ),
    Case("POOL05", "eight", lambda: unwell(vendor="mysql", status={"threads_running": 40.0})),
    Case(
        "POOL05",
        "few threads",
        lambda: unwell(vendor="mysql", variables={"innodb_buffer_pool_instances": "1"}),
    ),
    Case(
        "POOL05",
        "not sampled",
        lambda: unwell(vendor="mysql", without=["mysql_status"]),
        missing="threads_running was not",
    ),
    Case(
        "POOL06",
        "1,408 chunks",
        lambda: unwell(vendor="mysql", variables={"innodb_buffer_pool_chunk_size": str(32 * MIB)}),
        ("",),
        ("1,408 chunks of 32 MiB",),
    ),
    Case("POOL06", "352", lambda: unwell(vendor="mysql")),
    Case("POOL06", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "POOL07",
        "not loaded",
        lambda: unwell(variables={"innodb_buffer_pool_load_at_startup": "OFF"}),
        ("",),
        ("innodb_buffer_pool_load_at_startup is off, with a buffer pool of 44 GiB",),
    ),
    Case("POOL07", "saved and loaded", unwell),
    Case(
        "POOL07",
        "a small pool",
        lambda: unwell(
            variables={"innodb_buffer_pool_load_at_startup": "OFF", "innodb_buffer_pool_size": str(GIB)}
        ),
    ),
    Case("POOL07", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "POOL08",
        "no room",
        lambda: unwell(variables=SMALLER, status_rates=FULL, gauges=SHORT),
        ("",),
        ("5,000 pages/s are read from files (1.2% of all requests); the buffer pool is 30 GiB for 40 GiB",),
    ),
    Case("POOL08", "all fit", lambda: unwell(status_rates=FULL, gauges=SHORT)),
    Case(
        "POOL08",
        "room to grow",
        lambda: unwell(
            variables={"innodb_buffer_pool_size": str(8 * GIB)},
            status_rates=FULL,
            gauges={"memory.MemAvailable.": 50.0 * GIB},
            facts={"servers.1322.rss_bytes": 9 * GIB},
        ),
    ),
    Case("POOL08", "not sampled", lambda: unwell(without=["mysql_status"]), missing="reads was not"),
    Case(
        "POOL09",
        "no time",
        lambda: unwell(variables={**SMALLER, "innodb_old_blocks_time": "0"}, status_rates=SCANS),
        ("",),
        ("innodb_old_blocks_time is 0 while scans read 900,000 rows/s",),
    ),
    Case("POOL09", "one second", lambda: unwell(variables=SMALLER, status_rates=SCANS)),
    Case("POOL09", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
]
