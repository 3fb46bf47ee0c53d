"""Cases of the rules about limits."""

from __future__ import annotations

from tests.rules.case import Case
from tests.rules.hosts import GIB, unwell

SERVER = "1322/mysqld"
DATA_LIMITED = {
    "servers.1322.cgroup.io": [
        {"path": "/sys/fs/cgroup/db", "device_number": "259:4", "write_ios_s": 1600, "read_ios_s": "max"}
    ]
}

STILL = {f"disk.{metric}.nvme0n1": 0.0 for metric in ("reads", "sectors_read", "sectors_written")}

CASES = [
    Case(
        "LIM01",
        "nine of ten",
        lambda: unwell(gauges={f"server_process.open_files.{SERVER}": 9_000.0}),
        (SERVER,),
        ("mysqld has 9,000 files open of 10,000",),
        # Half as many again as were open: more than 10 + 500 connections + 2 x 4,000 tables.
        sets=({"server.open_files_limit": 14_000},),
        steps=("LimitNOFILE=14000",),
    ),
    Case(
        "LIM01",
        "a table cache that is to grow, too",
        lambda: unwell(
            gauges={f"server_process.open_files.{SERVER}": 9_000.0},
            status={"open_tables": 4_000.0, "max_used_connections": 140.0},
        ),
        (SERVER,),
        sets=({"server.open_files_limit": 34_000},),
    ),
    Case(
        "LIM01",
        "a server that was not asked",
        lambda: unwell(gauges={f"server_process.open_files.{SERVER}": 9_000.0}, has_server=False),
        (SERVER,),
        sets=({},),
        steps=("LimitNOFILE=at least 14000",),
    ),
    Case("LIM01", "few", unwell),
    Case(
        "LIM01", "not sampled", lambda: unwell(without=["server_process"]), missing="sampler server_process"
    ),
    Case("LIM01", "no server", lambda: unwell(facts={"servers": []}), missing="no server process"),
    Case(
        "LIM02",
        "many threads",
        lambda: unwell(
            variables={"innodb_read_io_threads": "64", "innodb_write_io_threads": "64"},
            facts={"sysctls.fs.aio-max-nr": "32768"},
        ),
        ("",),
        ("1 server with 128 I/O threads ask for 32,768 requests; fs.aio-max-nr is 32,768",),
    ),
    Case("LIM02", "few threads", lambda: unwell(facts={"sysctls.fs.aio-max-nr": "32768"})),
    Case(
        "LIM02",
        "simulated",
        lambda: unwell(
            variables={"innodb_use_native_aio": "OFF"},
            facts={"sysctls.fs.aio-max-nr": "100"},
        ),
    ),
    Case("LIM02", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "LIM03",
        "nearly all",
        lambda: unwell(facts={"servers.1322.threads": 30_000, "sysctls.kernel.pid_max": "32768"}),
        (SERVER,),
        ("mysqld has 30,000 threads; kernel.pid_max is 32,768",),
    ),
    Case(
        "LIM03",
        "nearly all of its control group",
        lambda: unwell(facts={"servers.1322.threads": 4_500, "servers.1322.cgroup.pids_max": 4_915}),
        (SERVER,),
        ("mysqld has 4,500 threads; pids.max is 4,915",),
        sets=({}, {}),
        steps=("TasksMax=19660",),
    ),
    Case("LIM03", "few", unwell),
    Case(
        "LIM03", "unknown", lambda: unwell(facts={"servers.1322.threads": None}), missing="how many threads"
    ),
    Case(
        "LIM04",
        "48 of 48 GiB",
        lambda: unwell(facts={"servers.1322.rss_bytes": int(47.5 * GIB)}),
        (SERVER,),
        ("mysqld uses 47.5 GiB of its control group's limit of 48 GiB (99%)",),
    ),
    Case("LIM04", "room", unwell),
    Case("LIM04", "no limit", lambda: unwell(facts={"servers.1322.cgroup.memory_max_bytes": "max"})),
    Case("LIM04", "no server", lambda: unwell(facts={"servers": []}), missing="no server process"),
    Case(
        "LIM05",
        "1,600 writes",
        lambda: unwell(facts=DATA_LIMITED),
        ("nvme1n1",),
        ("nvme1n1 does 1,500 write ios/s; the server's control group is limited to 1,600",),
    ),
    Case(
        "LIM05",
        "1,600 writes of its own",
        lambda: unwell(facts=DATA_LIMITED, rates={"cgroup.write_ios./sys/fs/cgroup/db 259:4": 1_590.0}),
        ("nvme1n1",),
        ("the server's control group on nvme1n1 does 1,590 write ios/s; it is limited to 1,600",),
    ),
    Case(
        "LIM05",
        "others write",
        lambda: unwell(facts=DATA_LIMITED, rates={"cgroup.write_ios./sys/fs/cgroup/db 259:4": 20.0}),
    ),
    Case(
        "LIM05",
        "others write, to a device without the server's files",
        lambda: unwell(rates={**STILL, "disk.writes.nvme0n1": 3_000.0}),
    ),
    Case(
        "LIM05",
        "far from it",
        lambda: unwell(facts=DATA_LIMITED, rates={"disk.writes.nvme1n1": 300.0}),
    ),
    Case(
        "LIM05",
        "not sampled",
        lambda: unwell(facts=DATA_LIMITED, without=["disk"]),
        missing="disk.reads was not sampled",
    ),
]
