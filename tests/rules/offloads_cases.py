"""Cases of the rules about offloads and the MTU."""

from __future__ import annotations

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import cores, unwell

NIC = "enp1s0f0np0"
ALL = dict.fromkeys(("rx_checksum", "tx_checksum", "scatter_gather", "tso", "gso", "gro"), True)


def sent(packets: float, size: float, way: str = "tx") -> dict[str, float]:
    return {f"network.{way}_packets.{NIC}": packets, f"network.{way}_bytes.{NIC}": packets * size}


def offloads(*off: str) -> dict[str, object]:
    return {f"network_interfaces.{NIC}.offloads": {**ALL, **dict.fromkeys(off, False)}}


CASES = [
    Case(
        "NET13",
        "no segmentation",
        lambda: unwell(facts=offloads("tso", "gso"), rates=sent(400_000.0, 1_480.0)),
        (NIC,),
        (
            "enp1s0f0np0 sends 400,000 packets/s of 1,480 bytes with tso, gso off: at least 2.5% of the CPUs, and "
            "at most the 6% that the kernel uses; no counter shows the part between.",
        ),
        steps=("ethtool -K enp1s0f0np0 gso on tso on",),
        severity=Severity.COST,
    ),
    Case(
        "NET13",
        "no GRO, and full CPUs",
        lambda: unwell(
            facts=offloads("gro"), rates={**sent(200_000.0, 1_450.0, "rx"), **cores(user=80.0, idle=1.0)}
        ),
        (NIC,),
        ("receives 200,000 packets/s",),
        severity=Severity.LIMIT,
    ),
    Case(
        "NET13",
        "a pair of virtual interfaces",
        lambda: unwell(
            facts={**offloads("gro"), f"network_interfaces.{NIC}.physical": False},
            rates=sent(400_000.0, 1_450.0, "rx"),
        ),
    ),
    Case("NET13", "small answers", lambda: unwell(facts=offloads("tso"), rates=sent(400_000.0, 200.0))),
    Case("NET13", "little data", lambda: unwell(facts=offloads("tso"), rates=sent(20_000.0, 1_480.0))),
    Case("NET13", "all on", lambda: unwell(facts=offloads(), rates=sent(400_000.0, 1_480.0))),
    Case("NET13", "unknown", lambda: unwell(rates=sent(400_000.0, 1_480.0))),
    Case("NET13", "not sampled", lambda: unwell(without=["network"]), missing="interfaces were not sampled"),
    Case(
        "NET14",
        "576 bytes",
        lambda: unwell(facts={f"network_interfaces.{NIC}.mtu_bytes": 576}, rates=sent(300_000.0, 590.0)),
        (NIC,),
        (
            "enp1s0f0np0 has an MTU of 576 bytes and carries 300,000 full packets/s: at least 1.9% of the CPUs, "
            "and at most the 6% that the kernel uses",
        ),
        steps=("ip link set dev enp1s0f0np0 mtu 1500",),
        severity=Severity.COST,
    ),
    Case(
        "NET14",
        "an overlay",
        lambda: unwell(facts={f"network_interfaces.{NIC}.mtu_bytes": 1_400}, rates=sent(300_000.0, 1_410.0)),
    ),
    Case(
        "NET14",
        "a small one without data",
        lambda: unwell(facts={f"network_interfaces.{NIC}.mtu_bytes": 576}),
    ),
    Case("NET14", "not sampled", lambda: unwell(without=["network"]), missing="interfaces were not sampled"),
]
