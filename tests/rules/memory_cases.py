"""Cases of the rules about memory."""

from __future__ import annotations

from tests.rules.case import Case
from tests.rules.hosts import GIB, unwell

ON_ZFS = {"file_systems./var/lib/mysql.kind": "zfs", "file_systems./var/lib/mysql.block_device": None}

SWAPS: dict[str, float] = {"memory.SwapTotal.": 4.0 * GIB, "memory.SwapFree.": 3.0 * GIB}
BY_RATIO = {
    "sysctls.vm.dirty_background_bytes": "0",
    "sysctls.vm.dirty_background_ratio": "10",
    "sysctls.vm.dirty_ratio": "20",
}
BUSY_SWAP = {"vmstat.pswpin.": 500.0, "vmstat.pswpout.": 300.0}
SWAP_ON_DATA = {"memory.swaps": [{"path": "/dev/nvme1n1", "used_bytes": GIB}]}
#: Much is free, and next to nothing available.
KEPT = {"memory.MemFree.": 9.0 * GIB, "memory.MemAvailable.": 2.0 * GIB}

CASES = [
    Case(
        "MEM01",
        "five hundred pages",
        lambda: unwell(rates=BUSY_SWAP),
        ("",),
        ("500 pages/s (2.0 MB/s)", "300 written"),
    ),
    Case("MEM01", "one now and then", lambda: unwell(rates={"vmstat.pswpin.": 0.3})),
    Case("MEM01", "not sampled", lambda: unwell(without=["vmstat"]), missing="vmstat.pswpin"),
    Case(
        "MEM02",
        "sixty",
        lambda: unwell(gauges=SWAPS, facts={"sysctls.vm.swappiness": "60"}),
        ("",),
        ("vm.swappiness is 60, and 1 GiB is in swap",),
    ),
    Case(
        "MEM02",
        "swap in memory",
        lambda: unwell(
            gauges=SWAPS,
            facts={
                "sysctls.vm.swappiness": "180",
                "memory.swaps": [{"path": "/dev/zram0", "kind": "partition"}],
            },
        ),
    ),
    Case("MEM02", "nothing swapped", lambda: unwell(facts={"sysctls.vm.swappiness": "60"})),
    Case("MEM02", "one", lambda: unwell(gauges=SWAPS)),
    Case("MEM02", "not sampled", lambda: unwell(without=["memory"]), missing="memory"),
    Case(
        "MEM03",
        "four gigabytes",
        lambda: unwell(facts=BY_RATIO, gauges={"memory.Dirty.": 4.0 * GIB}),
        ("",),
        ("up to 4 GiB is dirty; write-back starts at 10% of 62.7 GiB",),
    ),
    Case("MEM03", "by bytes", lambda: unwell(gauges={"memory.Dirty.": 4.0 * GIB})),
    Case("MEM03", "little", lambda: unwell(facts=BY_RATIO)),
    Case("MEM03", "not sampled", lambda: unwell(without=["memory"]), missing="memory.Dirty"),
    Case(
        "MEM07",
        "one gigabyte",
        lambda: unwell(gauges={"memory.MemAvailable.": 1.0 * GIB}),
        ("",),
        ("available memory fell to 1 GiB of 62.7 GiB (1.6%)",),
    ),
    Case("MEM07", "enough", unwell),
    Case(
        "MEM07",
        "ZFS's cache gives memory back",
        lambda: unwell(
            facts=ON_ZFS,
            gauges={"memory.MemAvailable.": 1.0 * GIB, "zfs.size.": 40.0 * GIB, "zfs.c_min.": 2.0 * GIB},
        ),
    ),
    Case(
        "MEM07",
        "ZFS's cache was not sampled",
        lambda: unwell(facts=ON_ZFS, gauges={"memory.MemAvailable.": 1.0 * GIB}),
        missing="ZFS's cache counts as used memory",
    ),
    Case("MEM07", "not sampled", lambda: unwell(without=["memory"]), missing="how much memory it has"),
    Case(
        "MEM08",
        "two",
        lambda: unwell(rates={"vmstat.oom_kill.": 2.0 / 60}),
        ("",),
        ("2 processes were killed for lack of memory in 60 s, at the limit of a control group",),
    ),
    Case(
        "MEM08",
        "in the server's own group and in the one above, which counts it too",
        lambda: unwell(
            rates={
                "vmstat.oom_kill.": 1.0 / 60,
                "cgroup.memory_oom_kill.db.slice": 1.0 / 60,
                "cgroup.memory_oom_kill.db.slice/mysql.service": 1.0 / 60,
            }
        ),
        ("",),
        ("1 process was killed for lack of memory in 60 s.",),
    ),
    Case("MEM08", "none", unwell),
    Case("MEM08", "not sampled", lambda: unwell(without=["vmstat"]), missing="vmstat.oom_kill"),
    Case(
        "MEM10",
        "stalls",
        lambda: unwell(rates={"vmstat.allocstall_normal.": 25.0}),
        ("",),
        ("25.0 times per second", "14 GiB available"),
        sets=({"host.vm.watermark_scale_factor": 100},),
    ),
    Case(
        "MEM10",
        "stalls although much is kept free",
        lambda: unwell(
            rates={"vmstat.allocstall_normal.": 25.0}, facts={"sysctls.vm.watermark_scale_factor": "400"}
        ),
        ("",),
        # 1,000 would make kswapd keep 12 GiB free, which only the pool has.
        sets=({},),
    ),
    Case(
        "MEM10",
        "memory is short",
        lambda: unwell(rates={"vmstat.allocstall_normal.": 25.0}, gauges={"memory.MemAvailable.": 1.0 * GIB}),
    ),
    Case("MEM10", "none", unwell),
    Case("MEM10", "not sampled", lambda: unwell(without=["vmstat"]), missing="vmstat.allocstall"),
    Case(
        "MEM11",
        "a fifth of the time",
        lambda: unwell(rates={"psi.some_total_us.memory": 200_000.0, "psi.full_total_us.memory": 50_000.0}),
        ("",),
        ("waited for memory 20% of the time, all tasks at once 5%",),
    ),
    Case("MEM11", "none", unwell),
    Case("MEM11", "no PSI", lambda: unwell(without=["psi"]), missing="psi.some_total_us"),
    Case(
        "MEM12",
        "never overcommit",
        lambda: unwell(
            facts={"sysctls.vm.overcommit_memory": "2"},
            gauges={"memory.Committed_AS.": 34.0 * GIB, "memory.CommitLimit.": 36.0 * GIB},
        ),
        ("",),
        ("34 GiB of 36 GiB is committed",),
        sets=({"host.vm.overcommit_ratio": 68}, {"host.vm.overcommit_memory": 0}),
    ),
    Case(
        "MEM12",
        "a ratio that is as high as it may be",
        lambda: unwell(
            facts={"sysctls.vm.overcommit_memory": "2", "sysctls.vm.overcommit_ratio": "95"},
            gauges={"memory.Committed_AS.": 58.0 * GIB, "memory.CommitLimit.": 59.0 * GIB},
        ),
        ("",),
        sets=({"host.vm.overcommit_memory": 0},),
    ),
    Case(
        "MEM12",
        "by an amount, beside which a ratio says nothing",
        lambda: unwell(
            facts={
                "sysctls.vm.overcommit_memory": "2",
                "sysctls.vm.overcommit_ratio": "0",
                "sysctls.vm.overcommit_kbytes": str(36 * GIB >> 10),
            },
            gauges={"memory.Committed_AS.": 34.0 * GIB, "memory.CommitLimit.": 36.0 * GIB},
        ),
        ("",),
        sets=({"host.vm.overcommit_kbytes": int(42.5 * GIB) >> 10}, {"host.vm.overcommit_memory": 0}),
    ),
    Case("MEM12", "the kernel estimates", unwell),
    Case(
        "MEM12",
        "room to promise",
        lambda: unwell(
            facts={"sysctls.vm.overcommit_memory": "2"},
            gauges={"memory.Committed_AS.": 20.0 * GIB, "memory.CommitLimit.": 36.0 * GIB},
        ),
    ),
    Case(
        "MEM12",
        "not sampled",
        lambda: unwell(facts={"sysctls.vm.overcommit_memory": "2"}, without=["memory"]),
        missing="memory.CommitLimit",
    ),
    Case(
        "MEM13",
        "on the data's device",
        lambda: unwell(rates=BUSY_SWAP, facts=SWAP_ON_DATA),
        ("nvme1n1",),
        ("800 pages/s go to and from /dev/nvme1n1",),
        # While it swaps, swapoff needs memory that is not there.
        steps=("less memory", "swapon", "swapoff /dev/nvme1n1"),
    ),
    Case("MEM13", "on another", lambda: unwell(rates=BUSY_SWAP)),
    Case("MEM13", "unused", lambda: unwell(facts=SWAP_ON_DATA)),
    Case("MEM13", "unknown", lambda: unwell(facts={"memory.swaps": None}), missing="its swaps"),
    Case(
        "MEM22",
        "8 GiB",
        lambda: unwell(facts={"sysctls.vm.min_free_kbytes": str(8 << 20)}, gauges=KEPT),
        ("",),
        ("until 12 GiB of 62.7 GiB is free (19%); 9 GiB is free, and 2 GiB available",),
        sets=({"host.vm.min_free_kbytes": 67_584},),
    ),
    Case(
        "MEM22",
        "for kswapd",
        lambda: unwell(facts={"sysctls.vm.watermark_scale_factor": "1000"}, gauges=KEPT),
        ("",),
        sets=({"host.vm.watermark_scale_factor": 10},),
    ),
    Case("MEM22", "enough is available", lambda: unwell(facts={"sysctls.vm.min_free_kbytes": str(8 << 20)})),
    Case("MEM22", "as the kernel set it", lambda: unwell(gauges=KEPT)),
    Case(
        "MEM22",
        "no sysctl",
        lambda: unwell(facts={"sysctls.vm.min_free_kbytes": None}),
        missing="vm.min_free_kbytes",
    ),
]
