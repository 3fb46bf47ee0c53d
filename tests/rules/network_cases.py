"""Cases of the rules about packets."""

from __future__ import annotations

from typing import Any

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import CPUS, unwell

NIC = "enp1s0f1np1"  # it has one receive queue
BUSY_NIC = "enp1s0f0np0"  # it has eight

#: Core 0 does all the receiving for an interface of one queue: memcached on a 4-core Xen guest, 2015.
ONE_HOT_CORE = {
    "cpu.softirq.cpu0": 55.0,
    "cpu.idle.cpu0": 27.5,
    "softirqs.NET_RX.cpu0": 48_000.0,
    f"network.rx_packets.{NIC}": 50_000.0,
    f"network.rx_bytes.{NIC}": 5e6,
    f"network.tx_bytes.{NIC}": 5e6,
}
#: Few packets that cost much fill the core: eight namespaces behind one bridge, a long chain of rules of tc. The
#: replies pass another core nearly for nothing, so that counts alone show nothing.
DEAR_PACKETS = {
    **ONE_HOT_CORE,
    "cpu.softirq.cpu0": 90.0,
    "cpu.system.cpu0": 9.0,
    "cpu.user.cpu0": 0.0,
    "cpu.idle.cpu0": 1.0,
    "softirqs.NET_RX.cpu0": 22_000.0,
    "softirqs.NET_RX.cpu1": 9_000.0,
    "softnet.processed.cpu0": 25_000.0,
    "softnet.processed.cpu1": 18_000.0,
    f"network.rx_packets.{NIC}": 1_900.0,
    f"network.rx_packets.{BUSY_NIC}": 100.0,
}
#: The time of a round on the saved host.
USECS = 8_000


def link(speed_mbit_s: int, duplex: str) -> dict[str, Any]:
    """What the busy interface has agreed upon."""
    nic = f"network_interfaces.{BUSY_NIC}"
    return {f"{nic}.speed_mbit_s": speed_mbit_s, f"{nic}.duplex": duplex}


CASES = [
    Case(
        "NET01",
        "one queue, one core",
        lambda: unwell(rates=ONE_HOT_CORE),
        (NIC,),
        ("cpu0 spends 55% of its time", "1 receive queue for 8 cores"),
    ),
    Case(
        "NET01",
        "a full core that also receives",
        lambda: unwell(
            rates={**ONE_HOT_CORE, "cpu.softirq.cpu0": 12.0, "cpu.user.cpu0": 78.0, "cpu.idle.cpu0": 4.5}
        ),
        (NIC,),
        ("cpu0 spends 12% of its time",),
    ),
    Case(
        "NET01",
        "packet steering is on",
        lambda: unwell(rates=ONE_HOT_CORE, facts={f"network_interfaces.{NIC}.rx_queues.0.rps_cpus": "fe"}),
    ),
    Case(
        "NET01",
        "every core receives",
        lambda: unwell(
            rates={
                **ONE_HOT_CORE,
                **{f"cpu.softirq.cpu{n}": 45.0 for n in range(CPUS)},
                **{f"cpu.idle.cpu{n}": 30.0 for n in range(CPUS)},
                **{f"softirqs.NET_RX.cpu{n}": 48_000.0 for n in range(CPUS)},
            }
        ),
    ),
    Case(
        "NET01",
        "few packets that cost much",
        lambda: unwell(rates=DEAR_PACKETS),
        (NIC,),
        ("cpu0 spends 90% of its time", "25,000 packets/s, 36 us each, of which enp1s0f1np1 brings 1,900"),
        severity=Severity.LIMIT,
    ),
    Case(
        "NET01",
        "few packets that cost much, and all cores are full",
        lambda: unwell(
            rates={
                **DEAR_PACKETS,
                **{f"cpu.user.cpu{n}": 90.0 for n in range(1, CPUS)},
                **{f"cpu.idle.cpu{n}": 3.5 for n in range(1, CPUS)},
            }
        ),
        (NIC,),
        severity=Severity.COST,
    ),
    Case(
        "NET01",
        "steering to the full core alone",
        lambda: unwell(
            rates=DEAR_PACKETS, facts={f"network_interfaces.{NIC}.rx_queues.0.rps_cpus": "00000001"}
        ),
        (NIC,),
        ("packet steering hands all of them to cpu0",),
    ),
    Case(
        "NET01",
        "steering of one flow",
        lambda: unwell(rates=DEAR_PACKETS, facts={f"network_interfaces.{NIC}.rx_queues.0.rps_cpus": "fe"}),
        ("cpu0",),
        ("packet steering of enp1s0f1np1 does not spread them",),
    ),
    Case(
        "NET01",
        "packets of other namespaces",
        lambda: unwell(
            rates={**DEAR_PACKETS, f"network.rx_packets.{NIC}": 3.0, f"network.rx_packets.{BUSY_NIC}": 9.0}
        ),
        ("cpu0",),
        ("no interface that is seen here brings them",),
        steps=("perf record", "rps_cpus"),
    ),
    Case(
        "NET01",
        "a core full of what disks complete",
        lambda: unwell(rates={**DEAR_PACKETS, "softirqs.BLOCK.cpu0": 90_000.0}),
    ),
    Case(
        "NET01",
        "too few packets for the time that is spent",
        lambda: unwell(
            rates={
                **DEAR_PACKETS,
                **{f"softirqs.NET_RX.cpu{n}": 90.0 for n in range(CPUS)},
                **{f"softnet.processed.cpu{n}": 120.0 for n in range(CPUS)},
            }
        ),
    ),
    Case("NET01", "no softirqs", lambda: unwell(without=["softirqs"]), missing="software interrupts"),
    Case(
        "NET02",
        "drops",
        lambda: unwell(rates={"softnet.dropped.cpu3": 12.5}),
        ("",),
        ("12.5 packets/s", "cpu3"),
        sets=({"host.net.core.netdev_max_backlog": 4_000},),
    ),
    Case(
        "NET02",
        "drops on a core that has no time",
        lambda: unwell(
            rates={
                "softnet.dropped.cpu3": 12.5,
                "cpu.softirq.cpu3": 96.0,
                "cpu.idle.cpu3": 0.0,
                "cpu.user.cpu3": 4.0,
            }
        ),
        ("",),
        # A longer queue would only make its packets later.
        sets=({},),
    ),
    Case(
        "NET02",
        "drops from a backlog that is long",
        lambda: unwell(
            rates={"softnet.dropped.cpu3": 12.5}, facts={"sysctls.net.core.netdev_max_backlog": "100000"}
        ),
        ("",),
        sets=({},),
    ),
    Case("NET02", "no drops", unwell),
    Case("NET02", "not sampled", lambda: unwell(without=["softnet"]), missing="softnet_stat was not"),
    Case(
        "NET03",
        "cut off",
        lambda: unwell(rates={"softnet.time_squeeze.cpu2": 40.0}),
        ("",),
        ("40 rounds/s", "cpu2"),
        sets=({"host.net.core.netdev_budget": 600, "host.net.core.netdev_budget_usecs": 2 * USECS},),
        severity=Severity.COST,
    ),
    Case(
        "NET03",
        "three of four rounds cut off: four times the budget empties the queue",
        lambda: unwell(rates={"softnet.time_squeeze.cpu2": 675.0}),
        ("",),
        sets=({"host.net.core.netdev_budget": 1_200, "host.net.core.netdev_budget_usecs": 4 * USECS},),
        severity=Severity.COST,
    ),
    Case(
        "NET03",
        "a core without time",
        lambda: unwell(
            rates={"softnet.time_squeeze.cpu2": 675.0, "cpu.idle.cpu2": 0.0, "cpu.user.cpu2": 94.0}
        ),
        ("",),
        sets=({},),
        steps=("spread its packets",),
    ),
    Case(
        "NET03",
        "one round of hundreds",
        lambda: unwell(rates={"softnet.time_squeeze.cpu2": 2.0}),
        ("",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "NET03",
        "cut off on a kernel without a time budget",
        lambda: unwell(
            rates={"softnet.time_squeeze.cpu2": 40.0}, facts={"sysctls.net.core.netdev_budget_usecs": None}
        ),
        ("",),
    ),
    Case("NET03", "never", unwell),
    Case("NET03", "not sampled", lambda: unwell(without=["softnet"]), missing="softnet_stat was not"),
    Case(
        "NET04",
        "one queue of a card",
        lambda: unwell(rates=ONE_HOT_CORE),
        (NIC,),
        ("over 1 queue on a host of 8 cores", "cpu0 spends 55%"),
    ),
    Case(
        "NET04",
        "a virtual interface has no queues to add",
        lambda: unwell(rates=ONE_HOT_CORE, facts={f"network_interfaces.{NIC}.physical": False}),
    ),
    Case("NET04", "a light load", unwell),
    Case("NET04", "no CPUs", lambda: unwell(without=["cpu"]), missing="CPUs were not sampled"),
    Case(
        "NET05",
        "steered by hash",
        lambda: unwell(rates=ONE_HOT_CORE, facts={f"network_interfaces.{NIC}.rx_queues.0.rps_cpus": "fe"}),
        (NIC,),
        ("0 per queue: flow steering is off",),
    ),
    Case(
        "NET05",
        "steered by flow",
        lambda: unwell(
            rates=ONE_HOT_CORE,
            facts={
                f"network_interfaces.{NIC}.rx_queues.0.rps_cpus": "fe",
                f"network_interfaces.{NIC}.rx_queues.0.rps_flow_cnt": 32768,
            },
        ),
    ),
    Case("NET05", "not steered", lambda: unwell(rates=ONE_HOT_CORE)),
    Case(
        "NET05",
        "the kernel does not report it",
        lambda: unwell(
            rates=ONE_HOT_CORE,
            facts={
                f"network_interfaces.{NIC}.rx_queues.0.rps_cpus": "fe",
                "sysctls.net.core.rps_sock_flow_entries": None,
            },
        ),
        missing="net.core.rps_sock_flow_entries",
    ),
    Case(
        "NET06",
        "the ring overflows",
        lambda: unwell(rates={f"network.rx_fifo.{BUSY_NIC}": 30.0}),
        (BUSY_NIC,),
        ("drops 30.0 of 7,000 packets/s",),
    ),
    Case(
        "NET06",
        "the card has no buffer",
        lambda: unwell(rates={f"network.rx_missed.{BUSY_NIC}": 30.0, f"network.rx_dropped.{BUSY_NIC}": 30.0}),
        (BUSY_NIC,),
        ("drops 30.0 of 7,000 packets/s",),
    ),
    Case(
        "NET06",
        "frames that the kernel does not want",
        lambda: unwell(rates={f"network.rx_missed.{BUSY_NIC}": 0.0, f"network.rx_dropped.{BUSY_NIC}": 30.0}),
    ),
    Case("NET06", "a few strange frames", lambda: unwell(rates={f"network.rx_dropped.{BUSY_NIC}": 0.1})),
    Case("NET06", "none", unwell),
    Case("NET06", "not sampled", lambda: unwell(without=["network"]), missing="interfaces were not"),
    Case(
        "NET07",
        "23.8 of 25 Gbit/s out",
        lambda: unwell(rates={f"network.tx_bytes.{BUSY_NIC}": 23.8e9 / 8}),
        (BUSY_NIC,),
        ("carries 95% of its 25,000 Mbit/s",),
    ),
    Case("NET07", "little", unwell),
    Case(
        "NET07",
        "an interface without a speed",
        lambda: unwell(
            rates={f"network.tx_bytes.{BUSY_NIC}": 3e9},
            facts={f"network_interfaces.{BUSY_NIC}.speed_mbit_s": None},
        ),
    ),
    Case("NET07", "not sampled", lambda: unwell(without=["network"]), missing="interfaces were not"),
    Case(
        "NET08",
        "both",
        lambda: unwell(facts={f"network_interfaces.{BUSY_NIC}.rx_queues.3.rps_cpus": "ff"}),
        (BUSY_NIC,),
        ("8 receive queues for 8 CPUs, and 1 of them",),
    ),
    Case("NET08", "queues only", unwell),
    Case("NET08", "no CPUs", lambda: unwell(without=["cpu"]), missing="CPUs were not sampled"),
    Case(
        "NET10",
        "a bad cable",
        lambda: unwell(rates={f"network.rx_errors.{BUSY_NIC}": 9.0, f"network.rx_frame.{BUSY_NIC}": 9.0}),
        (BUSY_NIC,),
        ("enp1s0f0np0 damages 9.0 of 14,000 frames/s (0.064%)",),
        severity=Severity.COST,
    ),
    Case(
        "NET10",
        "collisions",
        lambda: unwell(rates={f"network.tx_collisions.{BUSY_NIC}": 300.0}),
        (BUSY_NIC,),
        ("damages 300.0 of 14,000 frames/s",),
    ),
    Case(
        "NET10",
        "a full ring that the driver counts as errors",
        lambda: unwell(
            rates={
                f"network.{name}.{BUSY_NIC}": 9.0
                for name in ("rx_errors", "rx_frame", "rx_missed", "rx_fifo")
            }
        ),
    ),
    Case(
        "NET10",
        "one a minute",
        lambda: unwell(rates={f"network.rx_errors.{BUSY_NIC}": 0.02, f"network.rx_frame.{BUSY_NIC}": 0.02}),
    ),
    Case("NET10", "none", unwell),
    Case("NET10", "not sampled", lambda: unwell(without=["network"]), missing="interfaces were not sampled"),
    Case(
        "NET11",
        "half duplex",
        lambda: unwell(facts=link(100, "half")),
        (BUSY_NIC,),
        ("enp1s0f0np0 runs at 100 Mbit/s, half duplex, and carries 80.0 Mbit/s",),
        severity=Severity.LIMIT,
    ),
    Case(
        "NET11",
        "one pair of the cable",
        lambda: unwell(facts=link(100, "full"), rates={f"network.tx_bytes.{BUSY_NIC}": 1e6}),
        (BUSY_NIC,),
        steps=("ethtool -s enp1s0f0np0 autoneg on", "four pairs"),
        severity=Severity.COST,
    ),
    Case("NET11", "a driver that does not know its duplex", lambda: unwell(facts=link(100_000, "half"))),
    Case(
        "NET11",
        "an emulated card",
        lambda: unwell(facts={**link(100, "half"), "virtualization.hypervisor_flag": True}),
    ),
    Case("NET11", "full speed", unwell),
    Case("NET11", "not sampled", lambda: unwell(without=["network"]), missing="interfaces were not sampled"),
    Case(
        "NET12",
        "a shaper of a container runtime",
        lambda: unwell(
            gauges={f"qdisc.waiting.{BUSY_NIC}/tbf/8001": 40.0},
            rates={
                f"qdisc.packets.{BUSY_NIC}/tbf/8001": 2_000.0,
                f"qdisc.bytes.{BUSY_NIC}/tbf/8001": 2.5e6,
                f"qdisc.overlimits.{BUSY_NIC}/tbf/8001": 900.0,
            },
        ),
        (BUSY_NIC,),
        ("tbf holds packets of enp1s0f0np0 back for 20 ms on average: 40 wait, and 20.0 Mbit/s pass",),
        steps=("tc qdisc del dev enp1s0f0np0 root",),
        severity=Severity.LIMIT,
    ),
    Case(
        "NET12",
        "nothing passes",
        lambda: unwell(
            gauges={f"qdisc.waiting.{BUSY_NIC}/netem/1": 7.0},
            rates={f"qdisc.packets.{BUSY_NIC}/netem/1": 0.0},
        ),
        (BUSY_NIC,),
        ("netem holds packets of enp1s0f0np0 back and lets none pass: 7 wait",),
    ),
    Case(
        "NET12",
        "a shaper with room",
        lambda: unwell(
            gauges={f"qdisc.waiting.{BUSY_NIC}/htb/1": 2.0},
            rates={f"qdisc.packets.{BUSY_NIC}/htb/1": 9_000.0},
        ),
    ),
    Case(
        "NET12",
        "a queue for the link",
        lambda: unwell(
            gauges={f"qdisc.waiting.{BUSY_NIC}/fq_codel/0": 40.0},
            rates={f"qdisc.packets.{BUSY_NIC}/fq_codel/0": 2_000.0},
        ),
    ),
    Case("NET12", "none", unwell),
    Case(
        "NET12",
        "not sampled",
        lambda: unwell(without=["qdisc"]),
        missing="queueing disciplines were not sampled",
    ),
]
