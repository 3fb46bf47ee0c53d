"""Cases of the rules about other programs on the host."""

from __future__ import annotations

from headrace.rules.rule import Severity
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
SHORT = {"psi.some_total_us.memory": 200_000.0, "process.utime_ticks.9/java": 5.0}

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
]
