"""Cases of the rules about allocators."""

from __future__ import annotations

from tests.rules.case import Case
from tests.rules.hosts import unwell

SERVER = "1322/mysqld"
BUSY = {f"process.utime_ticks.{SERVER}": 420.0, f"process.stime_ticks.{SERVER}": 60.0}
MANY = {"threads_running": 24.0}

CASES = [
    Case(
        "ALLOC01",
        "many threads",
        lambda: unwell(rates=BUSY, status=MANY),
        (SERVER,),
        ("mysqld uses glibc's allocator with 24 threads running on 4.8 CPUs",),
    ),
    Case("ALLOC01", "few threads", lambda: unwell(rates=BUSY)),
    Case("ALLOC01", "a light load", lambda: unwell(status=MANY)),
    Case(
        "ALLOC01",
        "jemalloc",
        lambda: unwell(rates=BUSY, status=MANY, facts={"servers.1322.allocator.name": "jemalloc"}),
    ),
    Case(
        "ALLOC01",
        "unknown",
        lambda: unwell(facts={"servers.1322.allocator": None}),
        missing="allocator is unknown",
    ),
    Case("ALLOC01", "no server", lambda: unwell(facts={"servers": []}), missing="no server process"),
    Case(
        "ALLOC01",
        "no status",
        lambda: unwell(has_server=False),
        missing="mysql_status.threads_running was not sampled",
    ),
]
