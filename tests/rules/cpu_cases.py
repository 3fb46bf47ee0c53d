"""Cases of the rules about processors."""

from __future__ import annotations

from typing import Any

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import CPUS, cores, unwell

GROUP = "system.slice/mysql.service"

#: One connection's statement uses all of core 2.
ONE_FULL_THREAD = {
    "cpu.user.cpu2": 96.0,
    "cpu.idle.cpu2": 0.0,
    "threads.utime_ticks.1401/connection": 93.0,
    "threads.stime_ticks.1401/connection": 4.0,
}
ALL_BUSY = cores(user=60.0, idle=33.5)
ALL_FULL = cores(user=92.0, idle=1.5)
STOLEN = cores(steal=6.0, idle=75.5)


def weights(own: int, above: int) -> list[dict[str, Any]]:
    """Of the server's group, and of the slice that it is in."""
    path = "/sys/fs/cgroup/system.slice"
    return [
        {"path": f"{path}/mysql.service", "file": "cpu.weight", "weight": own},
        {"path": path, "file": "cpu.weight", "weight": above},
    ]


def policies(driver: str, governor: str, preference: str | None = None) -> dict[str, Any]:
    one = {
        "driver": driver,
        "governor": governor,
        "energy_performance_preference": preference,
        "min_khz": 800_000,
        "max_khz": 4_800_000,
    }
    return {"cpu.frequency.policies": [{"cpus": [n], **one} for n in range(CPUS)]}


TWO_NODES = {
    "numa_nodes": [{"node": n, "cpus": [], "memory_total_bytes": 1 << 35} for n in (0, 1)],
    "sysctls.kernel.numa_balancing": "1",
}
#: Compilers next to the server, and nobody has a CPU to spare.
CROWDED = {**ALL_FULL, "psi.some_total_us.cpu": 400_000.0, "process.utime_ticks.4711/cc1plus": 300.0}
STOPPED_GROUP = {f"cgroup.nr_throttled.{GROUP}": 3.0, f"cgroup.throttled_us.{GROUP}": 400_000.0}
#: The server's own groups cannot be read, those of another on the same host can.
OTHER = {"pid": 9, "program": "memcached", "cgroup": {"folders": {"cpu": GROUP}}}
TWO_SERVERS = {"servers": [{"pid": 1322, "program": "mysqld", "cgroup": None}, OTHER]}
ROOT_GROUP = {"servers.1322.cgroup.groups": {"": "/"}}
IN_KERNEL = cores(system=9.0)
XEN_CLOCK = {"clock_source": {"selected": "xen", "available": ["xen", "tsc", "hpet"]}}

CASES = [
    Case(
        "CPU01",
        "one statement",
        lambda: unwell(rates=ONE_FULL_THREAD),
        ("connection",),
        ("thread 1401 (connection)", "97% of one core", "the other 7 cores are 18% busy"),
    ),
    Case(
        "CPU01",
        "one page cleaner",
        lambda: unwell(
            vendor="mysql",
            rates={
                "cpu.user.cpu2": 96.0,
                "cpu.idle.cpu2": 0.0,
                "threads.utime_ticks.1399/ib_pg_flush_co": 95.0,
            },
        ),
        ("ib_pg_flush_co",),
        ("writes dirty pages",),
    ),
    Case(
        "CPU01",
        "one applier",
        lambda: unwell(
            vendor="mysql",
            variables={"replica_parallel_workers": "1"},
            rates={
                "cpu.user.cpu2": 96.0,
                "cpu.idle.cpu2": 0.0,
                "threads.utime_ticks.1399/rpl_rca_wkr-0": 95.0,
            },
        ),
        ("rpl_rca_wkr-0",),
        ("applies the source's changes",),
        steps=("SET GLOBAL replica_parallel_workers = 2",),
    ),
    Case("CPU01", "every core is full", lambda: unwell(rates={**ALL_FULL, **ONE_FULL_THREAD})),
    Case("CPU01", "a light load", unwell),
    Case("CPU01", "no threads", lambda: unwell(without=["threads"]), missing="sampler threads"),
    Case("CPU02", "six in a hundred", lambda: unwell(rates=STOLEN), ("",), ("6% of CPU time",)),
    Case("CPU02", "none", unwell),
    Case("CPU02", "little of what is used", lambda: unwell(rates=cores(user=80.0, idle=8.0, steal=3.0))),
    Case("CPU02", "no CPUs", lambda: unwell(without=["cpu"]), missing="CPUs were not sampled"),
    Case(
        "CPU03",
        "a quota of six CPUs",
        lambda: unwell(
            rates={f"cgroup.nr_throttled.{GROUP}": 3.0, f"cgroup.throttled_us.{GROUP}": 400_000.0}
        ),
        (GROUP,),
        ("30% of its periods", "0.40 s of thread time", "a quota of 6 CPUs"),
    ),
    Case(
        "CPU03",
        "another server's quota",
        lambda: unwell(
            facts={"servers.1322.cgroup.folders": {"cpu": "system.slice/other.service"}},
            rates={f"cgroup.nr_throttled.{GROUP}": 3.0, f"cgroup.throttled_us.{GROUP}": 400_000.0},
        ),
    ),
    Case(
        "CPU03",
        "another server's quota, where the server's own groups are not known",
        lambda: unwell(facts=TWO_SERVERS, rates=STOPPED_GROUP),
        missing="which control groups are the server's is unknown",
    ),
    Case(
        "CPU03",
        "the quota of the only server, whose groups are not known",
        lambda: unwell(facts={"servers.1322.cgroup": None}, rates=STOPPED_GROUP),
        (GROUP,),
    ),
    Case(
        "CPU03",
        "a server that was asked and not found here, beside one with a quota",
        lambda: unwell(facts={"server_asked": "127.0.0.1:3307"}, rates=STOPPED_GROUP, has_server=False),
        missing="which control groups are the server's is unknown",
    ),
    Case(
        "CPU03",
        "a server behind a socket that answers nobody",
        lambda: unwell(
            facts={"server_asked": "/run/mysqld/mysqld.sock"}, rates=STOPPED_GROUP, has_server=False
        ),
        (GROUP,),
    ),
    Case(
        "CPU03",
        "the quota of a group above",
        lambda: unwell(
            facts={"servers.1322.cgroup.folders": {"cpu": f"{GROUP}/inner"}},
            rates={f"cgroup.nr_throttled.{GROUP}": 12.0, f"cgroup.throttled_us.{GROUP}": 400_000.0},
        ),
        (GROUP,),
        # A period is counted when it ends.
        ("100% of its periods",),
    ),
    Case(
        "CPU03",
        "a burst now and then",
        lambda: unwell(rates={f"cgroup.nr_throttled.{GROUP}": 0.3, f"cgroup.throttled_us.{GROUP}": 4_000.0}),
        (GROUP,),
        ("3% of its periods",),
        severity=Severity.ADVICE,
    ),
    Case("CPU03", "never stopped", unwell),
    Case(
        "CPU03",
        "no quota",
        lambda: unwell(rates={f"cgroup.nr_periods.{GROUP}": 0.0}),
    ),
    Case("CPU03", "not sampled", lambda: unwell(without=["cgroup"]), missing="sampler cgroup"),
    Case(
        "CPU04",
        "ondemand under load",
        lambda: unwell(rates=ALL_BUSY, facts=policies("acpi-cpufreq", "ondemand")),
        ("",),
        ("governor ondemand", "66% busy"),
        severity=Severity.ADVICE,
    ),
    Case("CPU04", "ondemand at rest", lambda: unwell(facts=policies("acpi-cpufreq", "ondemand"))),
    Case("CPU04", "the processor chooses", lambda: unwell(rates=ALL_BUSY)),
    Case(
        "CPU04", "performance", lambda: unwell(rates=ALL_BUSY, facts=policies("acpi-cpufreq", "performance"))
    ),
    Case(
        "CPU04",
        "a guest without policies",
        lambda: unwell(rates=ALL_BUSY, facts={"cpu.frequency.policies": []}),
    ),
    Case(
        "CPU04",
        "unknown",
        lambda: unwell(rates=ALL_BUSY, facts={"cpu.frequency": None}),
        missing="choose their frequency",
    ),
    Case(
        "CPU05",
        "balanced under load",
        lambda: unwell(rates=ALL_BUSY),
        ("",),
        ("8 CPUs prefer balance_performance", "66% busy"),
    ),
    Case("CPU05", "balanced at rest", unwell),
    Case(
        "CPU05",
        "performance preferred",
        lambda: unwell(rates=ALL_BUSY, facts=policies("intel_pstate", "powersave", "performance")),
    ),
    Case(
        "CPU05",
        "unknown",
        lambda: unwell(rates=ALL_BUSY, facts={"cpu.frequency": None}),
        missing="choose their frequency",
    ),
    Case(
        "CPU06",
        "two deep states",
        lambda: unwell(
            facts={"cpu.idle.states.C2_ACPI.disabled": False, "cpu.idle.states.C3_ACPI.disabled": False}
        ),
        ("",),
        ("C3_ACPI (1048 us)", "4,000 statements/s"),
    ),
    Case("CPU06", "only shallow ones", unwell),
    Case(
        "CPU06",
        "never idle",
        lambda: unwell(rates=ALL_FULL, facts={"cpu.idle.states.C3_ACPI.disabled": False}),
    ),
    Case("CPU06", "a guest", lambda: unwell(facts={"cpu.idle": None}), missing="idle states"),
    Case(
        "CPU06",
        "no server",
        lambda: unwell(has_server=False, facts={"cpu.idle.states.C3_ACPI.disabled": False}),
        missing="no server was queried",
    ),
    Case(
        "CPU07",
        "two nodes",
        lambda: unwell(
            facts=TWO_NODES,
            rates={"vmstat.numa_hint_faults.": 40_000.0, "vmstat.numa_pages_migrated.": 900.0},
        ),
        ("",),
        ("2 nodes", "40,000 page faults/s", "900 pages/s"),
    ),
    Case("CPU07", "one node", lambda: unwell(facts={"sysctls.kernel.numa_balancing": "1"})),
    Case("CPU07", "no faults", lambda: unwell(facts=TWO_NODES, rates={"vmstat.numa_hint_faults.": 3.0})),
    Case(
        "CPU07",
        "a kernel without the counter",
        lambda: unwell(facts=TWO_NODES),
        missing="vmstat.numa_hint_faults",
    ),
    Case(
        "CPU08",
        "a session's server",
        lambda: unwell(
            facts=ROOT_GROUP,
            rates={"psi.some_total_us.cpu": 200_000.0, "process.utime_ticks.4711/cc1plus": 300.0},
        ),
        ("",),
        ("root CPU group", "20% of the time"),
    ),
    Case(
        "CPU08",
        "a session's server that has no rivals",
        lambda: unwell(facts=ROOT_GROUP, rates={"psi.some_total_us.cpu": 200_000.0}),
    ),
    Case("CPU08", "a service", lambda: unwell(rates={"psi.some_total_us.cpu": 200_000.0})),
    Case("CPU08", "nobody waits", lambda: unwell(facts=ROOT_GROUP)),
    Case("CPU08", "no PSI", lambda: unwell(facts=ROOT_GROUP, without=["psi"]), missing="psi.some_total_us"),
    Case("CPU08", "no server", lambda: unwell(facts={"servers": []}), missing="no server process"),
    Case(
        "CPU09",
        "xen",
        lambda: unwell(facts=XEN_CLOCK, rates=IN_KERNEL),
        ("",),
        ("clock source is xen", "the kernel uses 8.7% of the CPUs"),
    ),
    Case("CPU09", "tsc", unwell),
    Case(
        "CPU09",
        "no tsc",
        lambda: unwell(facts={"clock_source": {"selected": "xen", "available": ["xen"]}}, rates=IN_KERNEL),
    ),
    Case(
        "CPU09",
        "tsc was given up",
        lambda: unwell(
            facts={"clock_source": {"selected": "hpet", "available": ["hpet", "acpi_pm"]}}, rates=IN_KERNEL
        ),
        ("",),
        ("clock source is hpet, and the kernel offers none that is faster",),
        steps=("journalctl -k", "tsc=nowatchdog"),
    ),
    Case(
        "CPU09",
        "a guest of KVM",
        lambda: unwell(
            facts={"clock_source": {"selected": "acpi_pm", "available": ["kvm-clock", "acpi_pm"]}},
            rates=IN_KERNEL,
        ),
        ("",),
        ("clock source is acpi_pm, though kvm-clock is available",),
        steps=("echo kvm-clock > ", "echo acpi_pm"),
    ),
    Case(
        "CPU09",
        "seldom in the kernel",
        lambda: unwell(
            facts={"clock_source": {"selected": "hpet", "available": ["hpet"]}}, rates=cores(system=1.0)
        ),
    ),
    Case("CPU09", "unknown", lambda: unwell(facts={"clock_source": None}), missing="clock source"),
    Case(
        "CPU13",
        "nice 19",
        lambda: unwell(facts={"servers.1322.nice": 19}, rates=CROWDED),
        ("",),
        ("mysqld runs with nice 19, behind others that use 3.", "a CPU 40% of the time"),
        steps=("renice -n 0 -p $(ls /proc/1322/task)",),
    ),
    Case(
        "CPU13",
        "a container's small request",
        lambda: unwell(facts={"servers.1322.cgroup.cpu_weights": weights(20, 100)}, rates=CROWDED),
        ("",),
        ("mysqld runs with cpu.weight 20",),
        steps=("CPUWeight=100",),
    ),
    Case(
        "CPU13",
        "an older agent",
        lambda: unwell(
            facts={"servers.1322.cgroup.cpu_weight": 20, "servers.1322.cgroup.cpu_weights": None},
            rates=CROWDED,
        ),
        ("",),
        ("mysqld runs with cpu.weight 20, behind",),
    ),
    Case(
        "CPU13",
        "a slice above that has a small weight",
        lambda: unwell(facts={"servers.1322.cgroup.cpu_weights": weights(100, 10)}, rates=CROWDED),
        ("",),
        ("mysqld runs with cpu.weight 10 (of /system.slice, above its own group), behind others",),
        steps=("set-property --runtime system.slice CPUWeight=100",),
    ),
    Case(
        "CPU13",
        "others in the same slice",
        lambda: unwell(
            facts={"servers.1322.cgroup.cpu_weights": weights(100, 10)},
            rates=CROWDED,
            gauges={"process.in_group.4711/system.slice/ci.service": 1.0},
        ),
    ),
    Case(
        "CPU13",
        "SCHED_IDLE",
        lambda: unwell(facts={"servers.1322.scheduling_policy": "idle"}, rates=CROWDED),
        ("",),
        ("mysqld runs with the policy SCHED_IDLE, behind others",),
        steps=("chrt --all-tasks --other --pid 0 1322",),
    ),
    Case(
        "CPU13",
        "the usual policy",
        lambda: unwell(facts={"servers.1322.scheduling_policy": "other"}, rates=CROWDED),
    ),
    Case("CPU13", "alone", lambda: unwell(facts={"servers.1322.nice": 19}, rates=ALL_FULL)),
    Case(
        "CPU13",
        "CPUs are left",
        lambda: unwell(facts={"servers.1322.nice": 19}, rates={**CROWDED, **ALL_BUSY}),
    ),
    Case("CPU13", "as all others", lambda: unwell(rates=CROWDED)),
    Case("CPU13", "no server", lambda: unwell(facts={"servers": []}), missing="no server process"),
]
