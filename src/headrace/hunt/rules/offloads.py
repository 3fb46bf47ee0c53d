"""Rules about packets that are smaller than they need be: what a card does for the kernel, and the MTU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.hunt.hot_cores import FULL
from headrace.hunt.rules.evidence import Evidence, NotEnough, Number, number, share
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: CPU time of the kernel for one packet, a low estimate, and the share of all CPUs for them that is a cost: over a
#: veth pair without segmentation, the sender alone took 1.0 us more for each packet. No counter has this time:
#: where two CPUs did all the work of both ends, throughput halved at a bound of 1%.
PACKET_US, PACKETS_OF_CPUS = 0.5, 0.01
#: Frames that are this full, as a share of the MTU, are parts of something larger.
FULL_FRAME = 0.6
#: The smallest MTU of IPv6; tunnels and overlays leave more.
SMALL_MTU = 1280
#: What combines the data of several frames, on the way out and in, with what it needs.
OUT, IN = ("tso", "gso", "scatter_gather", "tx_checksum"), ("gro", "rx_checksum")


def _packets(evidence: Evidence, name: str, way: str) -> tuple[float, float]:
    """Packets per second, and their mean size in bytes."""
    packets = evidence.window.rate("network", f"{way}_packets", name) or 0.0
    size = (evidence.window.rate("network", f"{way}_bytes", name) or 0.0) / packets if packets else 0.0
    return packets, size


def _of_cpus(evidence: Evidence, packets_s: float) -> float:
    return packets_s * PACKET_US / 1e6 / len(evidence.cores)


def _severity(evidence: Evidence) -> Severity | None:
    """A bottleneck where CPU time is short, of all or of one that handles packets."""
    cores = evidence.cores
    is_full = sum(core.busy for core in cores) >= FULL * len(cores)
    return (
        Severity.LIMIT
        if is_full or any(core.busy >= FULL and core.softirq >= FULL / 2 for core in cores)
        else None
    )


def _interfaces(evidence: Evidence) -> Iterator[tuple[str, float, Mapping[str, Any]]]:
    """Each with its MTU and its record; without bridges and bonds, whose members have the packets, too."""
    if "network" not in evidence.window.samplers():
        raise NotEnough("network interfaces were not sampled")
    for record in evidence.rows("network_interfaces"):
        if record.get("mtu_bytes") and not record.get("lower"):
            yield str(record["name"]), float(record["mtu_bytes"]), record


@rule(
    "NET13",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/networking/segmentation-offloads.rst; ethtool(8), -K",
    refute="With the offloads on, packets per second and softirq time fall, but throughput is equivalent.",
)
def offloads_are_off(evidence: Evidence) -> Iterator[Match]:
    """The kernel handles each frame of large answers by itself: segmentation or GRO of a network card is off.

    With them the kernel handles up to 64 KiB at a time, and the card, or the driver just before it, cuts them into
    frames. Somebody turned them off because of a bug of an old driver, for a packet capture or a router.
    """
    for name, mtu, record in _interfaces(evidence):
        offloads = record.get("offloads")
        if offloads is None:
            continue
        for way, features, what in (("tx", OUT, "sends"), ("rx", IN, "receives")):
            off = [feature for feature in features if offloads.get(feature) is False]
            packets, size = _packets(evidence, name, way)
            part = _of_cpus(evidence, packets)
            # Pairs of virtual interfaces have no GRO by default: what they receive is combined already.
            is_usual = way == "rx" and not record.get("physical")
            is_cut = features[0] in off and not is_usual and FULL_FRAME * mtu <= size <= 1.1 * mtu
            if not is_cut or part < PACKETS_OF_CPUS:
                continue
            yield Match(
                name,
                f"{name} {what} {packets:,.0f} packets/s of {size:,.0f} bytes with {', '.join(off)} off: "
                f"{_cost(evidence, part)}.",
                (
                    number("packets/s", packets, ",.0f"),
                    number("bytes per packet", size, ",.0f"),
                    number("off", " ".join(off)),
                    *_of_kernel(evidence, packets),
                ),
                (
                    Remedy(
                        steps=(
                            f"ethtool -K {name} {_on(off)}; what ethtool -k {name} calls fixed, the driver or the "
                            "hypervisor does not offer.",
                        )
                    ),
                ),
                _severity(evidence),
            )
            break


def _on(features: list[str]) -> str:
    """As ethtool takes them, what is needed for others first."""
    short = {"scatter_gather": "sg", "tx_checksum": "tx", "rx_checksum": "rx"}
    return " ".join(f"{short.get(feature, feature)} on" for feature in reversed(features))


def _mean(evidence: Evidence) -> tuple[float, float]:
    """Shares of all CPUs for softirqs, and for the kernel as a whole."""
    cores = evidence.cores
    softirq = sum(core.softirq for core in cores) / len(cores)
    return softirq, softirq + sum(core.system + core.irq for core in cores) / len(cores)


def _cost(evidence: Evidence, part: float) -> str:
    """Packets cost something between a bound for each and all of the kernel's time: nothing counts it."""
    _, kernel = _mean(evidence)
    least = f"at least {share(min(part, kernel) if kernel else part)} of the CPUs"
    return f"{least}, and at most the {share(kernel)} that the kernel uses; no counter shows the part between"


def _of_kernel(evidence: Evidence, packets: float) -> tuple[Number, ...]:
    """Time per packet is at most this: other interrupts, timers and other interfaces are in it."""
    softirq, kernel = _mean(evidence)
    each_us = softirq * len(evidence.cores) / packets * 1e6
    return (
        number("softirq, mean", share(softirq)),
        number("kernel, mean", share(kernel)),
        number("softirq time for each packet, at most", f"{each_us:,.2f} us"),
    )


@rule(
    "NET14",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux ip-link(8), mtu; RFC 8200, section 5 (1280 bytes); RFC 894 (1500 bytes)",
    refute="With an MTU of 1500, packets per second and softirq time fall, but throughput is equivalent.",
)
def small_mtu(evidence: Evidence) -> Iterator[Match]:
    """An interface that carries much data has an MTU below 1,280 bytes.

    Every packet costs the kernel the same, so small ones cost more for the same answer, on both hosts. An Ethernet
    carries 1,500 bytes, tunnels somewhat less. A test of path MTU discovery or a wrong template leaves such
    values.
    """
    for name, mtu, _ in _interfaces(evidence):
        if mtu >= SMALL_MTU:
            continue
        ways = {way: _packets(evidence, name, way) for way in ("tx", "rx")}
        full = {way: found for way, found in ways.items() if FULL_FRAME * mtu <= found[1] <= 1.1 * mtu}
        packets = sum(found[0] for found in full.values())
        part = _of_cpus(evidence, packets)
        if part < PACKETS_OF_CPUS:
            continue
        yield Match(
            name,
            f"{name} has an MTU of {mtu:,.0f} bytes and carries {packets:,.0f} full packets/s: "
            f"{_cost(evidence, part)}.",
            (
                number("MTU", f"{mtu:,.0f} bytes"),
                number("full packets/s", packets, ",.0f"),
                *_of_kernel(evidence, packets),
            ),
            (
                Remedy(
                    steps=(
                        f"ip link set dev {name} mtu 1500, if all hosts and switches of its network carry as much "
                        "(ping -M do -s 1472 HOST); permanently in the network's configuration.",
                    )
                ),
            ),
            _severity(evidence),
        )
