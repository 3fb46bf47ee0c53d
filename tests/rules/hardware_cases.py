"""Cases of the rules about hardware that is full, slowed down, or kept from the server."""

from __future__ import annotations

from typing import Any

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import CPUS, GIB, cores, unwell
from tests.rules.queues_cases import BCACHE, served

FULL = {
    **cores(user=90.0, idle=2.0),
    "process.utime_ticks.1322/mysqld": 700.0,
}
DIGESTS = {f"statements.time_ns.{n}bcdef0123456789": 2e9 for n in range(4)}
BOUND = {
    "cpu.user.cpu0": 90.0,
    "cpu.idle.cpu0": 2.0,
    "cpu.user.cpu1": 90.0,
    "cpu.idle.cpu1": 2.0,
}
TWO = {"servers.1322.cpus_allowed_list": "0-1"}
HOT = {"thermal.core_throttle_count.cpu3": 12.0, "thermal.core_throttle_count.cpu0": 0.0}
HALF_BUSY = cores(user=50.0, idle=40.0)
NODES = {
    "numa_nodes": [
        {"node": 0, "cpus": [0], "memory_total_bytes": 32 * GIB, "memory_free_bytes": GIB // 4},
        {"node": 1, "cpus": [1], "memory_total_bytes": 32 * GIB, "memory_free_bytes": 20 * GIB},
    ]
}
DISTANT = {"block_devices.nvme1n1.queue.write_cache": "write through"}
SLOW = {"disk.write_ms.nvme1n1": 6_000.0}
MYISAM = [{"engine": "MyISAM", "tables": 9, "rows": 10**7, "data_bytes": 9 * GIB, "index_bytes": 2 * GIB}]
KEYS = {"key_reads": 2_000.0, "key_read_requests": 10_000.0}


def capped(most_khz: int, first: int = 4_800_000) -> dict[str, Any]:
    """Policies that allow this much; ``first``: what the first core could do."""
    return {
        "cpu.frequency.policies": [
            {
                "cpus": [n],
                "driver": "intel_pstate",
                "governor": "performance",
                "max_khz": most_khz,
                "hardware_max_khz": 4_800_000 if n else first,
            }
            for n in range(CPUS)
        ]
    }


CASES = [
    Case(
        "CPU10",
        "four classes",
        lambda: unwell(rates={**FULL, **DIGESTS}),
        ("",),
        ("mysqld uses 7.4 of 8 CPUs", "digest 0bcdef0123456789 (25%); digest 1bcdef"),
    ),
    Case(
        "CPU10",
        "one class",
        lambda: unwell(rates={**FULL, "statements.time_ns.abcdef0123456789": 7e9}),
    ),
    Case(
        "CPU10",
        "user and system together are more than there is",
        lambda: unwell(rates={**FULL, **DIGESTS, "process.stime_ticks.1322/mysqld": 350.0}),
        ("",),
        ("mysqld uses 7.8 of 8 CPUs, which are 97% busy",),
    ),
    Case("CPU10", "nobody counts", lambda: unwell(rates=FULL), ("",), ("threads running.",)),
    Case("CPU10", "another", lambda: unwell(rates={**FULL, "process.utime_ticks.1322/mysqld": 50.0})),
    Case("CPU10", "idle", unwell),
    Case("CPU10", "not sampled", lambda: unwell(without=["process"]), missing="sampler process"),
    Case(
        "CPU11",
        "hot",
        lambda: unwell(rates={**HOT, **HALF_BUSY}),
        ("",),
        ("1 CPU throttles for heat, cpu3 12.0 times per second, while the CPUs are",),
    ),
    Case("CPU11", "cool", lambda: unwell(rates={"thermal.core_throttle_count.cpu3": 0.0, **HALF_BUSY})),
    Case("CPU11", "no such counter", unwell, missing="sampler thermal"),
    Case(
        "CPU12",
        "two of eight",
        lambda: unwell(facts=TWO, rates=BOUND),
        ("",),
        ("mysqld may use 2 of 8 CPUs (0-1)", "room for 4.9 CPUs more."),
        severity=Severity.LIMIT,
    ),
    Case(
        "CPU12",
        "by its cpuset, which taskset cannot exceed",
        lambda: unwell(facts=TWO | {"servers.1322.cgroup.cpuset_cpus": "0-1"}, rates=BOUND),
        ("",),
        steps=("Its cpuset allows 0-1, and taskset cannot exceed that",),
    ),
    Case(
        "CPU12",
        "the other threads of its cores",
        lambda: unwell(
            facts=TWO
            | {
                "cpu.topology": [
                    {
                        "cpu": n,
                        "socket": 0,
                        "core": n % 2,
                        "siblings": [m for m in range(8) if m % 2 == n % 2],
                    }
                    for n in range(8)
                ]
            },
            rates=BOUND,
        ),
        ("",),
        ("room for 4.9 CPUs more, 4.9 of them on cores that it has already.",),
        severity=Severity.COST,
    ),
    Case(
        "CPU12",
        "the others are hardly less busy",
        lambda: unwell(
            facts={"servers.1322.cpus_allowed_list": "0-5"},
            rates={f"cpu.user.cpu{n}": 90.0 for n in range(6)}
            | {f"cpu.idle.cpu{n}": 2.0 for n in range(6)}
            | {f"cpu.user.cpu{n}": 70.0 for n in (6, 7)}
            | {f"cpu.idle.cpu{n}": 22.0 for n in (6, 7)},
        ),
    ),
    Case(
        "CPU12",
        "another program fills them",
        lambda: unwell(
            facts=TWO,
            rates=BOUND | {"process.utime_ticks.1322/mysqld": 5.0, "process.stime_ticks.1322/mysqld": 1.0},
        ),
    ),
    Case(
        "CPU12",
        "another program fills them, and the server waits",
        lambda: unwell(
            facts=TWO,
            rates=BOUND
            | {
                "process.utime_ticks.1322/mysqld": 5.0,
                "process.stime_ticks.1322/mysqld": 1.0,
                "threads.runqueue_ns.1401/connection": 1.4e9,
            },
        ),
        ("",),
    ),
    Case(
        "CPU12",
        "the others are isolated",
        lambda: unwell(facts=TWO | {"cpu.isolated": [2, 3, 4, 5, 6, 7]}, rates=BOUND),
    ),
    Case("CPU12", "room on both", lambda: unwell(facts=TWO)),
    Case("CPU12", "all", lambda: unwell(rates=BOUND)),
    Case("CPU12", "no process", lambda: unwell(facts={"servers": []}), missing="no server process"),
    Case(
        "MEM20",
        "node 0",
        lambda: unwell(facts=NODES, rates={"vmstat.numa_foreign.": 30_000.0}),
        ("",),
        ("30,000 pages/s (123 MB/s) meant for one node come from another",),
    ),
    Case("MEM20", "none", lambda: unwell(facts=NODES, rates={"vmstat.numa_foreign.": 3.0})),
    Case("MEM20", "one node", unwell),
    Case("MEM20", "not sampled", lambda: unwell(facts=NODES), missing="numa_foreign was not"),
    Case(
        "REDO05",
        "four milliseconds",
        lambda: unwell(facts=DISTANT, rates=SLOW),
        ("nvme1n1",),
        ("a write to nvme1n1 takes 4.0 ms, and the log is synced 300 times per second",),
    ),
    Case("REDO05", "fast", lambda: unwell(facts=DISTANT)),
    Case(
        "REDO05",
        "the slow device of a cache in writeback: nobody waits for what is copied there later",
        lambda: unwell(
            facts={**BCACHE, "block_devices.sdz.queue.write_cache": "write through", **DISTANT},
            rates={
                **served("bcache0", 400.0, 0.2),
                **served("nvme1n1", 450.0, 0.15),
                **served("sdz", 150.0, 40.0),
            },
        ),
    ),
    Case(
        "REDO05",
        "a volatile cache",
        lambda: unwell(facts={"block_devices.nvme1n1.queue.write_cache": "write back"}, rates=SLOW),
    ),
    Case("REDO05", "not sampled", lambda: unwell(without=["disk"]), missing="devices were not sampled"),
    Case(
        "POOL10",
        "one in five",
        lambda: unwell(status_rates=KEYS, engines=MYISAM),
        ("",),
        ("2,000 of 10,000 index blocks/s are read from files", "for 2 GiB of indexes"),
    ),
    Case("POOL10", "none", unwell),
    Case("POOL10", "not sampled", lambda: unwell(without=["mysql_status"]), missing="key_reads was not"),
    Case(
        "CPU14",
        "a cap",
        lambda: unwell(facts=capped(2_000_000), rates=HALF_BUSY),
        ("",),
        ("8 of 8 frequency policies allow at most 2,000 of 4,800 MHz while the CPUs are 5",),
        sets=({"host.cpu_max_khz": 4_800_000},),
        severity=Severity.COST,
    ),
    Case(
        "CPU14",
        "all CPUs are full",
        lambda: unwell(facts=capped(2_000_000), rates=FULL),
        ("",),
        severity=Severity.LIMIT,
    ),
    Case(
        "CPU14",
        "cores of two kinds",
        lambda: unwell(facts=capped(2_000_000, first=3_600_000), rates=HALF_BUSY),
        ("",),
        sets=(
            {
                "host.cpu_max_khz@policy0": 3_600_000,
                **{f"host.cpu_max_khz@policy{n}": 4_800_000 for n in range(1, 8)},
            },
        ),
    ),
    Case("CPU14", "idle", lambda: unwell(facts=capped(2_000_000))),
    Case("CPU14", "no cap", lambda: unwell(rates=HALF_BUSY)),
    Case(
        "CPU14",
        "not reported",
        lambda: unwell(facts={"cpu.frequency": None}),
        missing="does not report how its CPUs choose",
    ),
    Case(
        "CPU15",
        "eight were added",
        lambda: unwell(facts={"cpu.smt": "notsupported"}, rates=FULL),
        ("",),
        ("8 CPUs are 9", "and 8 others are offline"),
        steps=("for n in 8 9 10 11 12 13 14 15; do echo 1",),
    ),
    Case("CPU15", "hyperthreads that are off", lambda: unwell(rates=FULL)),
    Case("CPU15", "nobody needs them", lambda: unwell(facts={"cpu.smt": "notsupported"})),
    Case(
        "CPU15",
        "not reported",
        lambda: unwell(facts={"cpu.offline": None}),
        missing="which CPUs are offline",
    ),
]
