"""Cases of the rules about other programs on the host."""

from __future__ import annotations

from headrace.host.activity import Activity
from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import GIB, cores, unwell

FULL = {
    **cores(user=93.0, idle=0.5),
    "psi.some_total_us.cpu": 900_000.0,
}
COMPILER = {f"process.utime_ticks.{pid}/cc1plus": 300.0 for pid in (501, 502)}
SLOW_DISK = {
    f"disk.{metric}.nvme1n1": rate
    for metric, rate in {
        "io_ms": 1_000.0,
        "weighted_io_ms": 62_000.0,
        "reads": 18_000.0,
        "read_ms": 62_000.0,
    }.items()
}
IN_UNIT = {f"process.in_group.{pid}/system.slice/ci.service": 1.0 for pid in (501, 502)}
#: Eight programs, none of which uses a fifth of the CPUs.
CROWD = {f"process.utime_ticks.{601 + n}/tool{n}": 80.0 for n in range(8)}
OF_THE_CROWD = {f"process.in_group.{601 + n}/system.slice/ci.service": 1.0 for n in range(8)}
WAITED = {"psi.some_total_us.io": 600_000.0}
FIO = {"process.utime_ticks.77/fio": 20.0, "process.read_bytes.77/fio": 1_100e6}
OWN_READS = {"process.read_bytes.1322/mysqld": 100e6}
INSTANCE = {"process.utime_ticks.4711/mysqld": 600.0, "process.stime_ticks.4711/mysqld": 5.0}
SYNCED = {**WAITED, "disk.flushes.nvme1n1": 5_000.0, "disk.flush_ms.nvme1n1": 600.0}
LOGGER = {
    "process.utime_ticks.88/logger": 2.0,
    "process.write_bytes.88/logger": 4e6,
    "process.voluntary_switches.88/logger": 3_000.0,
}
BUFFERED = {"innodb_flush_method": "fsync", "innodb_data_file_buffering": None}
SHORT = {"psi.some_total_us.memory": 200_000.0, "process.utime_ticks.9/java": 5.0}

TWO_SERVERS = [{"pid": pid, "program": "mysqld"} for pid in (1322, 1400)]

CASES = [
    Case(
        "HOST01",
        "a compiler",
        lambda: unwell(rates={**FULL, **COMPILER}),
        ("cc1plus",),
        ("cc1plus uses 76% of the busy CPU time, the server 16%",),
        steps=("another host", "set-property UNIT CPUWeight"),
    ),
    Case(
        "HOST01",
        "another instance",
        lambda: unwell(rates={**FULL, **INSTANCE}),
        ("other mysqld",),
        ("other mysqld uses 76% of the busy CPU time, the server 16%",),
    ),
    Case(
        "HOST01",
        "two instances, of which nobody knows which was asked",
        lambda: unwell(facts={"servers": []}, rates={**FULL, **INSTANCE}, has_server=False),
    ),
    Case(
        "HOST01",
        "a compiler in a unit",
        lambda: unwell(rates={**FULL, **COMPILER}, gauges=IN_UNIT),
        ("cc1plus",),
        steps=("another host", "set-property ci.service CPUWeight"),
    ),
    Case(
        "HOST01",
        "many small programs of one unit",
        lambda: unwell(rates={**FULL, **CROWD}, gauges=OF_THE_CROWD),
        ("ci.service",),
        ("ci.service (tool0, tool1, tool2 and 5 more) uses 81% of the busy CPU time, the server 16%",),
        steps=("Move ci.service", "set-property ci.service CPUWeight"),
    ),
    Case("HOST01", "as many, of nobody's unit", lambda: unwell(rates={**FULL, **CROWD})),
    Case(
        "HOST01",
        "as many, in the server's own group",
        lambda: unwell(
            rates={**FULL, **CROWD},
            gauges={**OF_THE_CROWD, "process.in_group.1322/system.slice/ci.service": 1.0},
        ),
    ),
    Case(
        "HOST01",
        "a unit whose name is a command",
        lambda: unwell(
            rates={**FULL, **COMPILER},
            gauges={f"process.in_group.{pid}/$(reboot).service": 1.0 for pid in (501, 502)},
        ),
        ("cc1plus",),
        steps=("another host", "set-property UNIT CPUWeight"),
    ),
    Case("HOST01", "room for both", lambda: unwell(rates=COMPILER)),
    Case(
        "HOST01",
        "a server at rest, of which only our questions waited",
        lambda: unwell(
            rates={
                **FULL,
                **COMPILER,
                **dict.fromkeys(("process.utime_ticks.1322/mysqld", "process.stime_ticks.1322/mysqld"), 0.0),
                "threads.runqueue_ns.1401/connection": 1e9,
            },
            activity=Activity(5),
        ),
    ),
    Case(
        "HOST01",
        "a server that never waited",
        lambda: unwell(rates={**FULL, **COMPILER, "threads.runqueue_ns.1401/connection": 1e6}),
    ),
    Case(
        "HOST01",
        "a server without work",
        lambda: unwell(
            rates={
                **FULL,
                **COMPILER,
                "process.utime_ticks.1322/mysqld": 0.3,
                "process.stime_ticks.1322/mysqld": 0.1,
            }
        ),
    ),
    Case("HOST01", "only the server", lambda: unwell(rates=FULL)),
    Case("HOST01", "not sampled", lambda: unwell(without=["process"]), missing="processes were not sampled"),
    Case(
        "HOST02",
        "fio",
        lambda: unwell(rates={**SLOW_DISK, **FIO, **OWN_READS}),
        ("fio",),
        ("fio reads and writes 1,100.0 MB/s, the server 100.0, while nvme1n1 is saturated",),
    ),
    Case("HOST02", "a device with room", lambda: unwell(rates={**FIO, **OWN_READS})),
    Case(
        "HOST02",
        "a device with room, and tasks that wait",
        lambda: unwell(rates={**FIO, **OWN_READS, **WAITED}),
        ("fio",),
        ("fio reads and writes 1,100.0 MB/s, the server 100.0, while tasks wait for I/O 60% of the time",),
        severity=Severity.ADVICE,
    ),
    Case(
        "HOST02",
        "tasks that wait, and little of it another's",
        lambda: unwell(rates={**FIO, "process.read_bytes.1322/mysqld": 2_000e6, **WAITED}),
    ),
    Case("HOST02", "only the server", lambda: unwell(rates={**SLOW_DISK, **OWN_READS})),
    Case("HOST02", "not sampled", lambda: unwell(without=["process"]), missing="processes were not sampled"),
    Case(
        "HOST03",
        "a heap",
        lambda: unwell(rates=SHORT, gauges={"process.rss_bytes.9/java": 30.0 * GIB}),
        ("java",),
        ("java holds 30 GiB of 62.7 GiB",),
    ),
    Case("HOST03", "enough", lambda: unwell(gauges={"process.rss_bytes.9/java": 30.0 * GIB})),
    Case("HOST03", "a small one", lambda: unwell(rates=SHORT, gauges={"process.rss_bytes.9/java": GIB})),
    Case(
        "HOST04",
        "strace",
        lambda: unwell(
            facts={"servers.1322.tracer_pid": 4711, "servers.1322.tracer": "strace"},
            rates={"process.utime_ticks.4711/strace": 30.0, "process.stime_ticks.4711/strace": 40.0},
        ),
        ("strace",),
        ("strace (process 4711) traces mysqld with ptrace, and uses 0.70 CPUs for it",),
        steps=("kill 4711",),
        severity=Severity.LIMIT,
    ),
    Case(
        "HOST04",
        "a debugger that waits",
        lambda: unwell(
            facts={"servers.1322.tracer_pid": 4711, "servers.1322.tracer": "gdb"},
            rates={"process.utime_ticks.4711/gdb": 0.0},
        ),
        ("gdb",),
        severity=Severity.COST,
    ),
    Case("HOST04", "nobody", unwell),
    Case(
        "HOST04",
        "an older agent",
        lambda: unwell(facts={"servers.1322.tracer_pid": None}),
        missing="whether the server is traced",
    ),
    Case("HOST04", "no server", lambda: unwell(facts={"servers": []}), missing="no server process"),
    Case(
        "HOST04",
        "strace on one thread",
        lambda: unwell(
            facts={
                "servers.1322.tracer_pid": 4711,
                "servers.1322.tracer": "strace",
                "servers.1322.traced_threads": 1,
            },
            rates={"process.utime_ticks.4711/strace": 30.0, "process.stime_ticks.4711/strace": 40.0},
        ),
        ("strace",),
        ("strace (process 4711) traces 1 of 96 threads of mysqld with ptrace, and uses 0.70 CPUs",),
        severity=Severity.LIMIT,
    ),
    Case(
        "HOST05",
        "cpulimit",
        lambda: unwell(gauges={"threads.states.T": 32.0}, rates={"process.utime_ticks.4711/cpulimit": 1.0}),
        ("cpulimit",),
        (
            "threads of mysqld were stopped by a signal in 25% of the readings, and cpulimit runs (process 4711)",
        ),
        steps=("End cpulimit",),
        severity=Severity.LIMIT,
    ),
    Case(
        "HOST05",
        "a frozen container",
        lambda: unwell(gauges={"threads.waiting.mysqld/do_freezer_trap": 90.0}),
        ("",),
        ("threads of mysqld were frozen with their control group in 94% of the readings.",),
        steps=("docker pause",),
    ),
    Case(
        "HOST05",
        "one of two servers, and nobody knows which",
        lambda: unwell(facts={"servers": TWO_SERVERS}, gauges={"threads.states.T": 32.0}),
        ("",),
        ("threads of one of the 2 servers on this host were stopped by a signal in 25% of the readings.",),
        severity=Severity.RISK,
    ),
    Case("HOST05", "a server that runs", unwell),
    Case("HOST05", "not sampled", lambda: unwell(without=["threads"]), missing="threads were not sampled"),
    Case(
        "HOST06",
        "a script, under a server without O_DIRECT",
        lambda: unwell(rates={"vmstat.drop_pagecache.": 0.5}, variables=BUFFERED),
        ("",),
        (
            "the kernel's caches were dropped 30 times in 60 s; the server reads its data through them, at 800",
        ),
        steps=("drop_caches",),
        severity=Severity.COST,
    ),
    Case(
        "HOST06",
        "and everybody waits for reads",
        lambda: unwell(rates={"vmstat.drop_pagecache.": 0.5, **WAITED}, variables=BUFFERED),
        ("",),
        severity=Severity.LIMIT,
    ),
    Case(
        "HOST06",
        "a server with O_DIRECT",
        lambda: unwell(rates={"vmstat.drop_pagecache.": 0.5}),
        ("",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "HOST06",
        "every hour",
        lambda: unwell(
            facts={"uptime_s": 864_000.0}, starts={"vmstat.drop_pagecache.": 240.0}, variables=BUFFERED
        ),
        ("",),
        ("dropped 240 times since the boot, 1.0 per hour",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case("HOST06", "once, before a test", lambda: unwell(starts={"vmstat.drop_pagecache.": 3.0})),
    Case("HOST06", "not sampled", lambda: unwell(without=["vmstat"]), missing="was not sampled"),
    Case(
        "HOST07",
        "the tracer of functions",
        lambda: unwell(facts={"tracing.top.tracer": "function"}, rates={"tracing.events.top": 20e6}),
        ("top",),
        ("the kernel records 20,000,000 events/s for the tracer function: at least 25% of the CPUs",),
        steps=("echo nop > /sys/kernel/tracing/current_tracer",),
        severity=Severity.LIMIT,
    ),
    Case(
        "HOST07",
        "events of a monitoring agent",
        lambda: unwell(
            facts={
                "tracing": [
                    {
                        "name": "agent",
                        "tracer": "nop",
                        "is_on": True,
                        "events": 2,
                        "first_events": ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"],
                    }
                ]
            },
            rates={"tracing.events.agent": 1.2e6},
        ),
        ("agent",),
        ("the kernel records 1,200,000 events/s for 2 enabled events: at least 1.5% of the CPUs",),
        steps=("/sys/kernel/tracing/instances/agent/set_event",),
        severity=Severity.COST,
    ),
    Case("HOST07", "rare events", lambda: unwell(rates={"tracing.events.top": 5_000.0})),
    Case("HOST07", "not sampled", lambda: unwell(without=["tracing"]), missing="was not sampled"),
    Case(
        "HOST08",
        "a rule about every write",
        lambda: unwell(
            rates={
                "process.stime_ticks.41/kauditd": 20.0,
                "process.utime_ticks.41/kauditd": 0.0,
                "process.utime_ticks.600/auditd": 15.0,
            }
        ),
        ("",),
        ("the kernel's audit of system calls uses 0.35 CPUs (kauditd 0.20, auditd 0.15).",),
        steps=("auditctl -l",),
        severity=Severity.COST,
    ),
    Case(
        "HOST08",
        "threads wait for the queue",
        lambda: unwell(gauges={"threads.waiting.connection/audit_log_start": 6.0}),
        ("",),
        ("6.0 threads of the server wait for room in its queue",),
        severity=Severity.LIMIT,
    ),
    Case(
        "HOST08",
        "logins only",
        lambda: unwell(rates={"process.stime_ticks.41/kauditd": 0.1, "process.utime_ticks.600/auditd": 0.2}),
    ),
    Case("HOST08", "not sampled", lambda: unwell(without=["process"]), missing="processes were not sampled"),
    Case(
        "HOST09",
        "a logger that syncs each line",
        lambda: unwell(rates={**SYNCED, **LOGGER}),
        ("logger",),
        (
            "nvme1n1 is flushed 5,000 times per second, and the server syncs 650 times: others sync there. Those "
            "that write and wait: logger (3,000 waits/s)",
        ),
        steps=("-p 88", "Move the files of logger"),
        severity=Severity.LIMIT,
    ),
    Case(
        "HOST09",
        "nobody waits for I/O, but the device flushes",
        lambda: unwell(rates={**SYNCED, **LOGGER, "psi.some_total_us.io": 4_000.0}),
        ("logger",),
        severity=Severity.COST,
    ),
    Case(
        "HOST09",
        "the server's own syncs",
        lambda: unwell(rates={**SYNCED, **LOGGER, "disk.flushes.nvme1n1": 1_800.0}),
    ),
    Case(
        "HOST09",
        "a server that reads",
        lambda: unwell(
            rates={**SYNCED, **LOGGER},
            status_rates=dict.fromkeys(("innodb_data_fsyncs", "innodb_os_log_fsyncs"), 1.0),
        ),
    ),
    Case(
        "HOST09",
        "flushes that take no time",
        lambda: unwell(rates={**SYNCED, **LOGGER, "disk.flush_ms.nvme1n1": 60.0}),
    ),
    Case("HOST09", "nobody else waits", lambda: unwell(rates=SYNCED)),
    Case("HOST09", "no flushes", unwell),
    Case("HOST09", "not sampled", lambda: unwell(without=["process"]), missing="processes were not sampled"),
]
