"""Cases of the rules about packets."""

from __future__ import annotations

from tests.rules.case import Case
from tests.rules.hosts import CPUS, unwell

NIC = "enp1s0f1np1"  # it has one receive queue

#: Core 0 does all the receiving for an interface of one queue: memcached on a 4-core Xen guest, 2015.
ONE_HOT_CORE = {
    "cpu.softirq.cpu0": 55.0,
    "cpu.idle.cpu0": 27.5,
    "softirqs.NET_RX.cpu0": 48_000.0,
    f"network.rx_packets.{NIC}": 50_000.0,
    f"network.rx_bytes.{NIC}": 5e6,
    f"network.tx_bytes.{NIC}": 5e6,
}

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
                **{f"softirqs.NET_RX.cpu{n}": 48_000.0 for n in range(CPUS)},
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
    ),
    Case("NET02", "no drops", unwell),
]
