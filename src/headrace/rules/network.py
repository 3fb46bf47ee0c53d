"""Rules about packets: where receive work is done, and what is lost on the way."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.rules.evidence import Evidence, number, share
from headrace.rules.rule import Confidence, Hit, NotEnough, Remedy, Severity, rule

#: A core that spends this share of its time on software interrupts has no room for the server's threads there.
SOFTIRQ_BUSY = 0.30
#: ... and one core counts as alone when it does this many times what the others do on average.
TIMES_OTHERS = 4.0
#: Receive work below this many packets a second costs no core anything worth spreading.
FEW_PACKETS_S = 5_000


def cpu_mask(cpus: list[int]) -> str:
    """CPUs as rps_cpus takes them: hexadecimal, in groups of 32 bits. ``[1, 33]`` -> ``2,00000002``."""
    bits = sum(1 << cpu for cpu in cpus)
    groups: list[str] = []
    while bits or not groups:
        groups.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    groups[-1] = groups[-1].lstrip("0") or "0"
    return ",".join(reversed(groups))


@rule(
    "NET01",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux Documentation/networking/scaling.rst, RPS: Receive Packet Steering",
    refute="With rps_cpus set, NET_RX in /proc/softirqs spreads, but throughput and p99 are equivalent to before.",
)
def one_core_receives(evidence: Evidence) -> Iterator[Hit]:
    """One core does nearly all receive work while the others idle.

    An interface with fewer receive queues than cores interrupts few cores. Protocol work for every packet is then
    done where the interrupt was, and that core is the limit while the average over all cores looks idle. Receive
    packet steering hands packets to other cores by a hash of their addresses and ports.
    """
    cores = evidence.cores
    if len(cores) < 2:
        return
    received = evidence.window.rates("softirqs", "NET_RX")
    if not received:
        raise NotEnough("software interrupts were not sampled")
    hot = max(cores, key=lambda core: core.softirq)
    others = [core for core in cores if core is not hot]
    others_softirq = sum(core.softirq for core in others) / len(others)
    others_received = sum(received.get(core.name, 0.0) for core in others) / len(others)
    if hot.softirq < SOFTIRQ_BUSY or hot.softirq < TIMES_OTHERS * others_softirq:
        return
    if received.get(hot.name, 0.0) < TIMES_OTHERS * max(others_received, 1.0):
        return
    number_of_hot = int(hot.name.removeprefix("cpu"))
    online = [int(core.name.removeprefix("cpu")) for core in cores]
    for nic in evidence.rows("network_interfaces"):
        queues = nic.get("rx_queues") or []
        packets = evidence.window.rate("network", "rx_packets", nic["name"]) or 0.0
        steered = any(int(str(q.get("rps_cpus") or "0").replace(",", ""), 16) for q in queues)
        if nic["name"] == "lo" or packets < FEW_PACKETS_S or steered or not 0 < len(queues) < len(cores):
            continue
        yield Hit(
            str(nic["name"]),
            f"{hot.name} spends {share(hot.softirq)} of its time receiving packets of {nic['name']}, "
            f"the other {len(others)} cores {share(others_softirq)}: it has {len(queues)} receive "
            f"queue{'s' if len(queues) > 1 else ''} for {len(cores)} cores, and packet steering is off.",
            (
                number(f"softirq on {hot.name}", share(hot.softirq)),
                number("softirq on the others, mean", share(others_softirq)),
                number(f"NET_RX/s on {hot.name}", f"{received.get(hot.name, 0.0):,.0f}"),
                number("NET_RX/s on the others, mean", f"{others_received:,.0f}"),
                number(f"packets/s into {nic['name']}", f"{packets:,.0f}"),
                number("receive queues", len(queues)),
            ),
            (
                Remedy(
                    {f"host.rps_cpus@{nic['name']}": cpu_mask([c for c in online if c != number_of_hot])},
                    label="all cores but the one that is interrupted",
                ),
                Remedy({f"host.rps_cpus@{nic['name']}": cpu_mask(online)}, label="all cores"),
            ),
        )


@rule(
    "NET02",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Linux Documentation/admin-guide/sysctl/net.rst, netdev_max_backlog",
    refute="With a backlog four times as long, drops in /proc/net/softnet_stat go on at the same rate.",
)
def backlog_full(evidence: Evidence) -> Iterator[Hit]:
    """Packets are dropped because a core's receive backlog is full.

    Every drop is a retransmission, and a retransmission costs the client at least a round trip, at worst 200 ms.
    The backlog is a queue: a longer one helps against bursts, not against a core that is always too slow.
    """
    dropped = evidence.window.rates("softnet", "dropped")
    if not dropped:
        raise NotEnough("/proc/net/softnet_stat was not sampled")
    total = sum(dropped.values())
    if total <= 0:
        return
    backlog = int(evidence.sysctl("net.core.netdev_max_backlog"))
    worst = max(dropped, key=lambda cpu: dropped[cpu])
    yield Hit(
        "",
        f"{total:,.1f} packets/s are dropped before the protocol sees them, most on {worst}; "
        f"the backlog is {backlog:,} packets.",
        (
            number("dropped/s", f"{total:,.1f}"),
            number("worst", worst),
            number("net.core.netdev_max_backlog", backlog),
        ),
        (Remedy({"host.net.core.netdev_max_backlog": backlog * 4}),),
    )
