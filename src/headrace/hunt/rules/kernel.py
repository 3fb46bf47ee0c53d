"""Rules about too many kernel objects, and about the cost of entering the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.hunt.rules.evidence import Evidence, NotEnough, number, share
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: Control groups that were removed and still exist, from which on walks through them show; and groups at all.
DYING, GROUPS = 5_000.0, 20_000.0
#: Mounts from which on programs that read the table spend their time on it.
MOUNTS = 2_000.0
#: Share of one core that the kernel, or a program that watches mounts, uses then.
KERNEL_CORE, WATCHER_CORE = 0.5, 0.10
#: Programs that read the whole table of mounts after each change of it.
WATCHERS = (
    "systemd",
    "kubelet",
    "containerd",
    "dockerd",
    "udisksd",
    "gvfsd",
    "crio",
    "snapd",
    "node_exporter",
)
#: Share of all CPUs that the kernel uses, and switches per second and CPU, from which on its entry may matter.
SYSTEM, SWITCHES_S = 0.20, 5_000.0
#: How the kernel guards itself -> the start of what costs at each entry, and what newer processors have instead.
COSTLY = {
    "meltdown": ("Mitigation: PTI", "page tables are switched at each system call"),
    "retbleed": ("Mitigation: IBRS", "branch prediction is restricted at each system call"),
    "spec_rstack_overflow": ("Mitigation: IBPB", "branch prediction is flushed at each system call"),
}


@rule(
    "MEM23",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/admin-guide/cgroup-v2.rst, cgroup.stat: nr_dying_descendants; "
    "Documentation/admin-guide/cgroup-v1/memcg_test.rst",
    refute="With the caches of the removed groups dropped, the kernel's CPU time is equivalent.",
)
def dying_groups(evidence: Evidence) -> Iterator[Match]:
    """The kernel keeps many control groups that were removed long ago, and walks through all of them.

    A group stays while a page or an inode is charged to it. Each reclaim and each reading of memory statistics
    visits them all: a core may be busy with that alone. Jobs that start a group each (cron, systemd-run, short
    containers) leave them behind.
    """
    window = evidence.window
    if "objects" not in window.samplers():
        raise NotEnough("control groups were not counted (sampler objects)")
    dying = window.last("objects", "dying_memory_groups") or window.last("objects", "dying_groups")
    memory = window.last("objects", "groups_by_controller", "memory")
    if dying is None and memory is None:
        return  # no control groups
    of_version_2 = (window.last("objects", "groups") or 0.0) + (dying or 0.0)
    if memory is not None and memory > of_version_2 + 1:
        # They are of version 1, where nobody counts the removed ones, even if systemd keeps its own in version 2.
        dying = None
    if (dying or 0.0) < DYING and (dying is not None or (memory or 0.0) < GROUPS):
        return
    core = max(evidence.cores, key=lambda each: each.system, default=None)
    busiest = core.system if core is not None else 0.0
    what = (
        f"{dying:,.0f} control groups were removed and still exist"
        if dying is not None
        else f"the kernel has {memory:,.0f} memory control groups, of which most were probably removed"
    )
    yield Match(
        "",
        f"{what}; the kernel uses {share(busiest)} of its busiest core.",
        (
            *(() if dying is None else (number("dying groups", dying, ",.0f"),)),
            *(() if memory is None else (number("memory control groups", memory, ",.0f"),)),
            number("system time of the busiest core", share(busiest)),
        ),
        (
            Remedy(
                steps=(
                    "See what starts them: systemd-cgtop; systemctl list-timers; how many sessions logind keeps.",
                    "At a quiet hour, once: echo 2 > /proc/sys/vm/drop_caches frees what is charged to them. The "
                    "next reads of directories and inodes go to the disks. Kernels from 6.1 keep fewer.",
                )
            ),
        ),
        Severity.COST if busiest >= KERNEL_CORE else None,
    )


@rule(
    "FS15",
    severity=Severity.HOUSEKEEPING,
    confidence=Confidence.MEDIUM,
    source="Linux proc_pid_mountinfo(5); systemd 'NEWS', v243 and v246 (rate limit of mount events)",
    refute="With the mounts gone, CPU time of the programs that watch them is equivalent.",
)
def many_mounts(evidence: Evidence) -> Iterator[Match]:
    """The host has thousands of mounts, and programs read the whole table after each change.

    systemd, container runtimes and monitors parse /proc/self/mountinfo from its start whenever one mount comes or
    goes. The work grows with the square of the mounts, and holds a lock that every path look-up needs.
    """
    if "objects" not in evidence.window.samplers():
        raise NotEnough("mounts were not counted (sampler objects)")
    mounts = evidence.window.last("objects", "mounts") or 0.0
    if mounts < MOUNTS:
        return
    watching = [each for each in evidence.programs if each.name in WATCHERS]
    used = sum(each.cpus for each in watching)
    names = ", ".join(sorted({each.name for each in watching if each.cpus >= 0.01}))
    by = f"; {names} use {used:.1f} CPUs" if names else ""
    yield Match(
        "",
        f"the host has {mounts:,.0f} mounts{by}.",
        (number("mounts", mounts, ",.0f"), number("CPUs of programs that watch them", used, ".2f")),
        (
            Remedy(
                steps=(
                    "See which they are: awk '{print $9}' /proc/self/mountinfo | sort | uniq -c | sort -n | tail; "
                    "mounts that were made twice: findmnt --list | awk '{print $1}' | sort | uniq -d.",
                    "Unmount what is left of containers and snapshots, and mend what leaves it.",
                )
            ),
        ),
        Severity.COST if used >= WATCHER_CORE else None,
    )


@rule(
    "CPU16",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Linux Documentation/admin-guide/hw-vuln; Documentation/arch/x86/pti.rst",
    refute="On a processor that needs no such guard, CPU time per statement is equivalent.",
)
def guarded_entries(evidence: Evidence) -> Iterator[Match]:
    """Each entry into the kernel is expensive on this processor, and the server enters it often.

    The kernel guards itself against what this processor may leak, and newer processors do so at less cost. The
    guards belong where they are: what helps is fewer entries, or another processor.
    """
    guards = evidence.raw.get("mitigations") or {}
    found = {
        name: why for name, (start, why) in COSTLY.items() if str(guards.get(name) or "").startswith(start)
    }
    if not found:
        return
    cores = evidence.cores
    system = sum(core.system for core in cores) / len(cores)
    switches = evidence.rate("cpu", "ctxt") / len(cores)
    if system < SYSTEM or switches < SWITCHES_S:
        return
    yield Match(
        "",
        f"the kernel uses {share(system)} of the CPUs at {switches:,.0f} switches/s and CPU, and "
        f"{', '.join(found.values())} ({', '.join(found)}).",
        (
            number("system time", share(system)),
            number("switches/s and CPU", switches, ",.0f"),
            *(number(name, str(guards[name])) for name in found),
        ),
        (
            Remedy(
                steps=(
                    "Enter the kernel less often: fewer and larger statements, connections that stay open, a "
                    "thread pool, group commit. Leave the guards on.",
                    "Compare on a processor whose /sys/devices/system/cpu/vulnerabilities says Not affected.",
                )
            ),
        ),
    )
