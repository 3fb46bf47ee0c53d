"""Rules about processors: what uses their time, and what takes it away from the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.hunt.hot_cores import FULL, OTHERS_IDLE
from headrace.hunt.resources import QUOTA_COSTS, STEAL_HIGH, STEAL_SEEN
from headrace.hunt.rules.evidence import Evidence, NotEnough, number, share
from headrace.hunt.rules.replication import RESTART_APPLIER
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule
from headrace.hunt.users import TICKS_PER_SECOND

#: Share of the CPU time that was wanted, below which what was stolen is within the noise of a shared host.
STEAL_COSTS = 0.05
#: A thread that uses this much of one CPU can do no more: FULL, less the error of clock ticks.
THREAD_FULL = 0.85
#: Share of quota periods in which the group was stopped: below it a burst, not a limit.
THROTTLED_PERIODS = 0.01
#: Below this the CPUs are mostly idle, and their frequency affects latency only.
WORTH_ITS_FREQUENCY = 0.30
#: A core that takes this long to wake costs as much as a read from a fast device.
DEEP_SLEEP_US = 100
#: The CPUs are often idle between statements if they are less busy than this ...
OFTEN_IDLE = 0.50
#: ... and wake often if the server answers this many statements per second.
MANY_STATEMENTS_S = 1_000.0
#: A fault takes about a microsecond: below this rate balancing takes less than 0.1% of one core.
HINT_FAULTS_S = 1_000.0
#: The share of time in the kernel above which the cost of reading the clock can show.
SYSTEM_SEEN = 0.05
#: CPU pressure (PSI) above which threads wait for other groups.
WAITED_FOR = 0.05

#: Drivers that choose the frequency themselves; there "powersave" is a hint, not the lowest frequency.
OWN_POLICY = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")

#: Part of a thread's name -> the variable that gives its work to more threads, and what it does.
POOLS = (
    ("pg_flush", "innodb_page_cleaners", "writes dirty pages"),
    ("purge", "innodb_purge_threads", "removes old row versions"),
    ("srv_wkr", "innodb_purge_threads", "removes old row versions"),
    ("rpl_rca_sql", "replica_parallel_workers", "applies the source's changes"),
    ("rpl_rca_wkr", "replica_parallel_workers", "applies the source's changes"),
    ("slave_sql", "slave_parallel_threads", "applies the source's changes"),
)
#: Share of the CPUs that other processes must use before the shares of sessions matter.
OTHERS_NOTICED = 0.10
#: What a control group has to whom nobody gave another weight: version 2, and version 1.
USUAL_WEIGHT, USUAL_SHARES = 100, 1024
#: Policies that get CPU time after the usual one, or are slower to get it back.
BEHIND = ("batch", "idle")
#: Clocks that a thread reads in the kernel, and those that it reads without it (vDSO), the cheapest first.
SLOW_CLOCKS = ("xen", "hpet", "acpi_pm")
FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page")


@rule(
    "CPU01",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux proc_pid_task(5) and proc_pid_stat(5), utime and stime of a thread",
    refute="With the thread's work spread over several, or its statement made cheaper, throughput is equivalent.",
)
def one_thread_is_the_limit(evidence: Evidence) -> Iterator[Match]:
    """One thread of the server uses a whole core while the others idle.

    A statement, an applier or a page cleaner runs on one core at a time, however many there are. The average over
    all cores looks idle, and more or faster disks change nothing: give that thread less work, or spread the work
    over more threads.
    """
    cores = evidence.cores
    used = _threads(evidence)
    rest = sorted(core.busy for core in cores)[:-1]
    if not rest or sum(rest) / len(rest) >= OTHERS_IDLE:
        return
    busiest = max(cores, key=lambda core: core.busy)
    for label, share_of_one in used.items():
        if share_of_one < THREAD_FULL:
            continue
        tid, _, name = label.partition("/")
        what, remedy = _spread(evidence, tid, name)
        yield Match(
            name or tid,
            f"thread {tid} ({name}), which {what}, uses {share(share_of_one)} of one core; "
            f"the other {len(rest)} cores are {share(sum(rest) / len(rest))} busy.",
            (
                number(f"CPU time of thread {tid}", share(share_of_one)),
                number("the busiest core", f"{busiest.name}, {share(busiest.busy)}"),
                number("the other cores, mean", share(sum(rest) / len(rest))),
            ),
            (remedy,),
        )


def _threads(evidence: Evidence) -> dict[str, float]:
    """CPUs used by each thread of the servers, by ``tid/name``."""
    user = evidence.window.rates("threads", "utime_ticks")
    if not user:
        raise NotEnough("the server's threads were not sampled (sampler threads)")
    system = evidence.window.rates("threads", "stime_ticks")
    return {label: (rate + system.get(label, 0.0)) / TICKS_PER_SECOND for label, rate in user.items()}


def _spread(evidence: Evidence, tid: str, name: str) -> tuple[str, Remedy]:
    for part, variable, what in POOLS:
        if part in name and evidence.has_variable(variable):
            threads = max(2, 2 * int(evidence.number(variable)))
            if "parallel" in variable:
                # The server takes it only while it applies nothing.
                return what, Remedy(steps=(f"{RESTART_APPLIER.format(variable, threads)}.",))
            return what, Remedy({f"server.{variable}": threads})
    return (
        "runs a statement or a task of the server",
        Remedy(
            steps=(
                "Find its statement: SELECT * FROM performance_schema.threads WHERE THREAD_OS_ID = "
                f"{tid} (MariaDB: SHOW PROCESSLIST, the statement with the longest time).",
                "Check its plan with EXPLAIN, and its functions with a stack profile.",
            )
        ),
    )


@rule(
    "CPU02",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux proc_stat(5), steal: time spent in other operating systems in a virtual environment",
    refute="On a dedicated host, or at a time with less steal, throughput and p99 are equivalent.",
)
def stolen(evidence: Evidence) -> Iterator[Match]:
    """The hypervisor gave this host's CPU time to other guests.

    A stopped guest does not notice: its statements just take longer, and its locks stay held. No setting inside
    the guest brings the time back.
    """
    cores = evidence.cores
    mean = sum(core.steal for core in cores) / len(cores)
    busy = sum(core.busy for core in cores) / len(cores)
    if mean < STEAL_SEEN or mean < STEAL_COSTS * (busy + mean):
        return
    worst = max(cores, key=lambda core: core.steal)
    yield Match(
        "",
        f"the hypervisor gave {share(mean)} of CPU time to other guests; {worst.name} lost "
        f"{share(worst.steal)}.",
        (number("steal, mean", share(mean)), number(f"steal on {worst.name}", share(worst.steal))),
        (
            Remedy(
                steps=(
                    "Give the guest dedicated processors, or move it to a host that is not overcommitted.",
                    "On an instance with CPU credits: check the remaining credits.",
                )
            ),
        ),
        Severity.LIMIT if mean >= STEAL_HIGH else None,
    )


@rule(
    "CPU03",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux Documentation/admin-guide/cgroup-v2.rst, cpu.max and cpu.stat; scheduler/sched-bwc.rst",
    refute="With twice the quota, nr_throttled stops growing, but throughput and p99 are equivalent.",
)
def quota_throttles(evidence: Evidence) -> Iterator[Match]:
    """A CPU quota stops the server while the host's cores idle.

    All threads of a control group that has used up its quota wait for the next period, up to 100 ms, and those
    that hold a lock make others wait too. The cores look idle while the server is slow.
    """
    if "cgroup" not in evidence.window.samplers():
        raise NotEnough("control groups were not sampled (sampler cgroup)")
    periods = evidence.window.rates("cgroup", "nr_periods")
    if not periods and not evidence.facts.knows_groups:
        raise NotEnough("which control groups are the server's is unknown")
    for label, total in periods.items():
        # Each period is counted when it ends, and its throttling at once.
        throttled = min(evidence.window.rate("cgroup", "nr_throttled", label) or 0.0, total)
        if total <= 0 or throttled / total < THROTTLED_PERIODS:
            continue
        lost = (evidence.window.rate("cgroup", "throttled_us", label) or 0.0) / 1e6
        quota = _quota(evidence)
        used = evidence.server_cpus
        group = "the group"
        if evidence.window.labels("cgroup", "members_unknown"):
            group = "the saved control group, whether the server is in it or not,"
        yield Match(
            label,
            f"the CPU quota stopped {group} in {share(throttled / total)} of its periods: {lost:.2f} s of "
            f"thread time lost per second{f', with a quota of {quota:g} CPUs' if quota else ''}.",
            (
                number("periods/s", total, ",.1f"),
                number("throttled/s", throttled, ",.1f"),
                number("time lost", f"{lost:.2f} s/s"),
                number("quota, CPUs", f"{quota:g}" if quota else "unknown"),
            ),
            (
                Remedy(
                    steps=(
                        "Raise or remove the quota: systemctl set-property --runtime UNIT CPUQuota=N% "
                        "(in a container platform, the CPU limit).",
                        "Or share by weight, which lets the group use idle cores: CPUWeight=.",
                    )
                ),
            ),
            Severity.ADVICE if lost < QUOTA_COSTS * (lost + used) else None,
        )


def _quota(evidence: Evidence) -> float | None:
    group: Any = (evidence.process or {}).get("cgroup") or {}
    quota, period = group.get("cpu_quota_us"), group.get("cpu_period_us")
    return quota / period if isinstance(quota, int | float) and period else None


def _frequency_policies(evidence: Evidence) -> list[dict[str, Any]]:
    policies = ((evidence.raw.get("cpu") or {}).get("frequency") or {}).get("policies")
    if policies is None:
        raise NotEnough("the host does not report how its CPUs choose their frequency")
    return list(policies)


def _busy(evidence: Evidence) -> float:
    cores = evidence.cores
    return sum(core.busy for core in cores) / len(cores)


@rule(
    "CPU04",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/admin-guide/pm/cpufreq.rst, Generic Scaling Governors",
    refute="With the governor performance, throughput and p99 are equivalent to before.",
)
def governor_saves_power(evidence: Evidence) -> Iterator[Match]:
    """The frequency governor saves power while the CPUs are busy.

    A generic governor raises a core's frequency only after it has seen load, or never (powersave). A database's
    load comes in bursts shorter than that reaction, so much of it runs on a slow core.
    """
    slow = [
        policy
        for policy in _frequency_policies(evidence)
        if policy.get("governor") not in (None, "performance", "userspace")
        and policy.get("driver") not in OWN_POLICY
    ]
    busy = _busy(evidence)
    if not slow or busy < WORTH_ITS_FREQUENCY:
        return
    governor = slow[0]["governor"]
    yield Match(
        "",
        f"{len(slow)} frequency policies use the governor {governor} while the CPUs are {share(busy)} busy.",
        (
            number("governor", governor),
            number("driver", slow[0].get("driver")),
            number("CPUs busy, mean", share(busy)),
            number("lowest and highest MHz", _range(slow[0])),
        ),
        (Remedy({"host.cpu_governor": "performance"}),),
    )


def _range(policy: dict[str, Any]) -> str:
    low, high = policy.get("min_khz"), policy.get("max_khz")
    return f"{low / 1000:,.0f} to {high / 1000:,.0f}" if low and high else "unknown"


@rule(
    "CPU05",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Linux Documentation/admin-guide/pm/intel_pstate.rst, Energy vs Performance Hints",
    refute="With the preference performance, throughput and p99 are equivalent to before.",
)
def processor_prefers_energy(evidence: Evidence) -> Iterator[Match]:
    """The processor balances energy against performance while it is busy.

    If the processor chooses its own frequency, this preference decides how readily it speeds up. The gain depends
    on the model and the load; within the thermal limit it can be zero.
    """
    hinted = [
        policy
        for policy in _frequency_policies(evidence)
        if policy.get("driver") in OWN_POLICY
        and policy.get("governor") == "powersave"
        and policy.get("energy_performance_preference") not in (None, "performance")
    ]
    busy = _busy(evidence)
    if not hinted or busy < WORTH_ITS_FREQUENCY:
        return
    preference = hinted[0]["energy_performance_preference"]
    yield Match(
        "",
        f"{len(hinted)} CPUs prefer {preference} while the CPUs are {share(busy)} busy.",
        (
            number("energy_performance_preference", preference),
            number("driver", hinted[0]["driver"]),
            number("CPUs busy, mean", share(busy)),
        ),
        (Remedy({"host.cpu_governor": "performance"}),),
    )


@rule(
    "CPU06",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Linux Documentation/admin-guide/pm/cpuidle.rst, Idle States Representation",
    refute="With the deep states disabled, p50 and p99 of single statements are equivalent to before.",
    disputed="Shallow states wake faster, but leave neighbouring cores less power to boost: with few busy "
    "cores the deep ones can be faster.",
)
def deep_sleep(evidence: Evidence) -> Iterator[Match]:
    """Cores enter deep idle states between the statements of a latency-bound load.

    Waking takes the exit latency of the state. A load that waits for one packet or one read at a time pays it
    again and again, while the CPUs look idle.
    """
    idle: Any = (evidence.raw.get("cpu") or {}).get("idle") or {}
    states = idle.get("states")
    if states is None:
        raise NotEnough("the host does not report its idle states")
    deep = [
        s for s in states if s.get("disabled") is False and (s.get("exit_latency_us") or 0) >= DEEP_SLEEP_US
    ]
    if not deep or _busy(evidence) >= OFTEN_IDLE or evidence.status_rate("questions") < MANY_STATEMENTS_S:
        return
    names = ", ".join(f"{s['name']} ({s['exit_latency_us']} us)" for s in deep)
    statements = evidence.status_rate("questions")
    yield Match(
        "",
        f"the cores may enter {names} while {statements:,.0f} statements/s come in and the CPUs are "
        f"{share(_busy(evidence))} busy.",
        (
            number("deep states", names),
            number("statements/s", statements, ",.0f"),
            number("CPUs busy, mean", share(_busy(evidence))),
        ),
        (
            Remedy(
                steps=(
                    f"Disable idle states slower than {DEEP_SLEEP_US} us while you measure: "
                    f"cpupower idle-set -D {DEEP_SLEEP_US - 1}; cpupower idle-set -E enables them again.",
                )
            ),
        ),
    )


@rule(
    "CPU07",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Linux Documentation/admin-guide/sysctl/kernel.rst, numa_balancing",
    refute="With numa_balancing 0, throughput and p99 are equivalent or worse.",
    disputed="The kernel turns it on and promises no gain; TuneD's profiles for Oracle and SQL Server turn "
    "it off.",
)
def numa_balancing(evidence: Evidence) -> Iterator[Match]:
    """Automatic NUMA balancing moves pages of a server that uses all nodes.

    The kernel unmaps pages to see which node uses them, and every first touch afterwards is a fault. All threads
    on all nodes use the buffer pool, so moving its pages gains little.
    """
    nodes = evidence.rows("numa_nodes")
    if len(nodes) < 2 or evidence.sysctl("kernel.numa_balancing") == "0":
        return
    faults = evidence.rate("vmstat", "numa_hint_faults")
    if faults < HINT_FAULTS_S:
        return
    moved = evidence.window.rate("vmstat", "numa_pages_migrated") or 0.0
    yield Match(
        "",
        f"balancing over {len(nodes)} nodes costs {faults:,.0f} page faults/s and moves {moved:,.0f} pages/s.",
        (
            number("hint faults/s", faults, ",.0f"),
            number("pages moved/s", moved, ",.0f"),
            number("nodes", len(nodes)),
        ),
        (Remedy({"host.kernel.numa_balancing": 0}),),
    )


@rule(
    "CPU08",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.LOW,
    source="Linux sched(7), The autogroup feature",
    refute="With kernel.sched_autogroup_enabled 0, throughput and p99 are equivalent to before.",
)
def autogroup(evidence: Evidence) -> Iterator[Match]:
    """Autogroup scheduling gives the server one session's share of the CPU.

    With autogroups, CPU time is shared between sessions, not between threads: a server with hundreds of threads
    gets no more than a single-threaded job in another session. Processes in their own CPU control group, such as
    systemd services with CPU accounting, are not affected.
    """
    process = evidence.server_process
    groups = (process.get("cgroup") or {}).get("groups") or {}
    if evidence.sysctl("kernel.sched_autogroup_enabled") != "1" or not groups:
        return
    own = groups.get("cpu", groups.get("cpu,cpuacct", groups.get("", "/")))
    waited = evidence.rate("psi", "some_total_us", "cpu") / 1e6
    if (
        own != "/"
        or waited < WAITED_FOR
        or _others_cpus(evidence, process) < OTHERS_NOTICED * len(evidence.cores)
    ):
        return
    yield Match(
        "",
        f"{process['program']} runs in the root CPU group with autogroups on, and tasks waited for a CPU "
        f"{share(waited)} of the time.",
        (
            number("kernel.sched_autogroup_enabled", 1),
            number("CPU group", own),
            number("waited for a CPU", share(waited)),
        ),
        (Remedy({"host.kernel.sched_autogroup_enabled": 0}),),
    )


@rule(
    "CPU13",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux sched(7), The nice value, SCHED_BATCH, SCHED_IDLE; Documentation/admin-guide/cgroup-v2.rst, "
    "cpu.weight; systemd.resource-control(5), CPUWeight=",
    refute="With normal priority, throughput and p99 are equivalent while the other processes run.",
)
def behind_others(evidence: Evidence) -> Iterator[Match]:
    """The server runs at a low CPU priority, so other processes get CPU time first.

    When the CPUs are full, a process at nice 19 gets 1.5% of the CPU time of one at nice 0, one of SCHED_IDLE
    0.3%, and control groups share by weight: a group shares what the group above it gets. Typical causes: the
    server was restarted from a reniced shell or a maintenance script, its container has a small CPU request, or
    the slice that it is in has a small weight.
    """
    process = evidence.server_process
    nice, policy = process.get("nice"), process.get("scheduling_policy")
    weight = _lowest_weight(process.get("cgroup") or {})
    low = {
        "the policy": f"SCHED_{policy.upper()}" if policy in BEHIND else None,
        "nice": nice if isinstance(nice, int) and nice > 0 else None,
        weight.file if weight else "": weight.shown if weight else None,
    }
    shown = " and ".join(f"{name} {value}" for name, value in low.items() if value is not None)
    if not shown:
        return
    waited = evidence.rate("psi", "some_total_us", "cpu") / 1e6
    # Those in the same low group are behind, too.
    is_only_weight = low["the policy"] is None and low["nice"] is None
    beside = _within(evidence, weight.group) if weight is not None and is_only_weight else frozenset()
    others = _others_cpus(evidence, process, beside)
    is_full = others >= OTHERS_NOTICED * len(evidence.cores) and _busy(evidence) >= FULL
    if waited < WAITED_FOR or not is_full or not evidence.is_server_held_up:
        return
    steps = []
    pid = process.get("pid")
    if low["the policy"] is not None:
        steps.append(
            f"chrt --all-tasks --other --pid 0 {pid}; permanently: remove CPUSchedulingPolicy= from the unit, or "
            "start the server without chrt."
        )
    if low["nice"] is not None:
        steps.append(
            f"renice -n 0 -p $(ls /proc/{pid}/task); permanently: set Nice=0 in the unit, or start the "
            "server without nice."
        )
    if weight is not None:
        steps.append(
            f"systemctl set-property --runtime {weight.unit} CPUWeight=100 (for a container: raise its CPU "
            "request or shares)."
        )
    yield Match(
        "",
        f"{process['program']} runs with {shown}, behind others that use {others:.1f} of "
        f"{len(evidence.cores)} CPUs; tasks waited for a CPU {share(waited)} of the time.",
        (
            *(number(name, value) for name, value in low.items() if value is not None),
            number("CPUs of other processes", others, ".1f"),
            number("waited for a CPU", share(waited)),
        ),
        (Remedy(steps=tuple(steps)),),
    )


@dataclass(frozen=True)
class _Weight:
    """A group's weight: ``group`` is the path of the server's own group, or of one above it."""

    file: str
    weight: int
    group: str
    is_own: bool

    @property
    def shown(self) -> str:
        return f"{self.weight}" if self.is_own else f"{self.weight} (of {self.group}, above its own group)"

    @property
    def unit(self) -> str:
        name = self.group.rpartition("/")[2]
        return name if name.endswith((".service", ".scope", ".slice")) else "UNIT"


def _lowest_weight(limits: Mapping[str, Any]) -> _Weight | None:
    """The smallest weight below the usual one, of the server's group and those above it."""
    usual = {"cpu.weight": USUAL_WEIGHT, "cpu.shares": USUAL_SHARES}
    groups = limits.get("groups") or {}
    own = str(groups.get("cpu") or groups.get("") or "/")
    rows = limits.get("cpu_weights")
    if rows is None:  # an older agent, which reads only that of the group itself
        values = {"cpu.weight": limits.get("cpu_weight"), "cpu.shares": limits.get("cpu_shares")}
        rows = [{"file": f, "weight": w, "path": own} for f, w in values.items() if isinstance(w, int)]
    low = [r for r in rows if isinstance(r["weight"], int) and r["weight"] < usual.get(r["file"], 0)]
    if not low:
        return None
    row = min(low, key=lambda row: row["weight"] / usual[row["file"]])
    # The folder is a mount point and the group's path, which in a container may be cut at the front.
    parts = own.split("/")
    above = ["/".join(parts[:length]) for length in range(len(parts), 1, -1)]
    group = next((path for path in above if path and str(row["path"]).endswith(path)), own)
    return _Weight(row["file"], row["weight"], group, group == own)


def _within(evidence: Evidence, group: str) -> frozenset[str]:
    """Ids of the processes in a control group and those below it."""
    labels = evidence.window.labels("process", "in_group")
    found = (label.partition("/") for label in labels)
    return frozenset(pid for pid, _, path in found if f"/{path.lstrip('/')}/".startswith(f"{group}/"))


def _others_cpus(
    evidence: Evidence, process: Mapping[str, Any], beside: frozenset[str] = frozenset()
) -> float:
    """CPUs that other processes use: without rivals there is nothing to share fairly."""
    ticks = [evidence.window.rates("process", f"{kind}_ticks") for kind in ("utime", "stime")]
    out = beside | {str(process.get("pid"))}
    return (
        sum(rate for one in ticks for label, rate in one.items() if label.partition("/")[0] not in out)
        / TICKS_PER_SECOND
    )


@rule(
    "CPU09",
    severity=Severity.COST,
    confidence=Confidence.LOW,
    source="B. Gregg, Performance Tuning Linux Instances on EC2 (2014), Clocksource; Linux vdso(7); "
    "Documentation/admin-guide/kernel-parameters.txt, tsc=; arch/x86/xen/time.c, xen_setup_vsyscall_time_info",
    refute="With a clock source that is read without the kernel, system time and throughput are equivalent to "
    "before.",
)
def slow_clock(evidence: Evidence) -> Iterator[Match]:
    """The clock is read by a system call.

    A server reads the clock several times per statement. With tsc, kvm-clock or Hyper-V's page that takes tens of
    nanoseconds without entering the kernel; with hpet or acpi_pm it is a system call that also reads a device.
    With xen it is a system call, too, unless the hypervisor vouches for a stable TSC. The kernel gives tsc up, and
    stops offering it, if it seems to drift.
    """
    clock: Any = evidence.raw.get("clock_source") or {}
    selected, available = clock.get("selected"), clock.get("available")
    if selected is None or available is None:
        raise NotEnough("the host does not report its clock source")
    system = sum(core.system for core in evidence.cores) / len(evidence.cores)
    if selected not in SLOW_CLOCKS or system < SYSTEM_SEEN:
        return
    better = next((name for name in FAST_CLOCKS if name in available), None)
    if better is None and selected == "xen":
        return  # Xen offers nothing else to guests that may be moved
    state = f"though {better} is available" if better else "and the kernel offers none that is faster"
    yield Match(
        "",
        f"the clock source is {selected}, {state}; the kernel uses {share(system)} of the CPUs.",
        (
            number("clock source", selected),
            number("available", " ".join(available)),
            number("system time, mean", share(system)),
        ),
        (Remedy(steps=_faster_clock(selected, better)),),
    )


def _faster_clock(selected: str, better: str | None) -> tuple[str, ...]:
    if better is None:
        return (
            "See why tsc was given up: journalctl -k -g 'tsc|clocksource'. Update the firmware or the hypervisor.",
            "If the kernel only suspected it (the watchdog, on a busy host with several sockets), and the CPU has "
            "constant_tsc and nonstop_tsc: boot with tsc=nowatchdog. A clock that does drift harms more than a "
            "slow one.",
        )
    return (
        f"echo {better} > /sys/devices/system/clocksource/clocksource0/current_clocksource (to revert: "
        f"echo {selected}); watch the kernel log for messages that it is unstable.",
    )
