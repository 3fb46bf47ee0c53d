"""Rules about packets: where receive work is done, and where packets are lost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.base.counted import counted
from headrace.base.model import Value
from headrace.host.cores import cores as all_cores
from headrace.host.facts import link_speed_mbit_s
from headrace.hunt.hot_cores import FULL, OTHERS_IDLE
from headrace.hunt.resources import BUSY, LOST
from headrace.hunt.rules.evidence import Evidence, NotEnough, number, share
from headrace.hunt.rules.receiving import (
    FEW_PACKETS_S,
    SOFTIRQ_BUSY,
    SOME_PACKETS_S,
    TIMES_OTHERS,
    Receiver,
    bringing,
    packets_s,
    receiver,
    steered_to,
)
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: An interface that brings this share of a core's packets brings nearly all of them.
MOSTLY = 0.8
#: A round cut off once a second is scheduler noise; more is a queue that is not emptied.
SQUEEZED_S = 1.0
#: ... and below this share of a core's rounds, packets hardly ever wait for the next one.
OF_THE_ROUNDS = 0.01
#: A round that is longer by more than this keeps the server's threads from the core for tens of milliseconds.
LONGEST_ROUNDS = 8
#: The table's size that worked fairly well on a moderately loaded server: scaling.rst.
FLOW_ENTRIES = 32_768
#: A backlog of this many packets is a tenth of a second of work for a core: longer only delays them.
LONGEST_BACKLOG = 65_536
#: Below this share of all packets, drops are not a loss that anybody notices.
DROPPED_SHARE = 1e-4
#: What cards agree on with a damaged cable, or with a switch that does not negotiate. No faster link is half
#: duplex, but drivers that leave the field unset report it.
SLOW_MBIT, HALF_MBIT = 100, 1_000
#: Share of the link's speed, both ways together, from which on frames wait or collide.
SHARED = 0.4
#: Queueing disciplines that hold packets back although the link is free, and how long it is worth a word.
SHAPERS = ("cake", "cbq", "hfsc", "htb", "netem", "tbf")
HELD_S = 0.001


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
def one_core_receives(evidence: Evidence) -> Iterator[Match]:
    """One core does nearly all receive work while the others idle.

    An interface with fewer receive queues than cores interrupts few cores. Protocol work for every packet is then
    done on the interrupted core, and that core is the limit while the average over all cores looks idle. Receive
    packet steering hands packets to other cores by a hash of their addresses and ports.
    """
    hot = receiver(evidence)
    if hot is None:
        return
    name, cpus = hot.core.name, len(evidence.cores)
    is_limit = hot.core.busy >= BUSY and hot.others_busy < OTHERS_IDLE
    severity = None if is_limit else Severity.COST
    nics, spread, is_named = bringing(evidence, hot), False, False
    for nic in nics:
        queues, steered = nic.get("rx_queues") or [], steered_to(nic)
        # Steering to that core alone is what fills it.
        if steered - {hot.number}:
            spread = True
            continue
        if not queues or (len(queues) >= cpus and not (hot.is_full and hot.is_kept_busy)):
            continue
        is_named = True
        why = (
            f"and packet steering hands all of them to {name}"
            if steered
            else "and packet steering is off"
            if len(queues) < cpus
            else "of which one gets nearly all packets, and packet steering is off"
        )
        yield Match(
            str(nic["name"]),
            f"{name} spends {share(hot.core.softirq)} of its time receiving packets of {nic['name']}, "
            f"{_beside(hot)}: it has {counted(len(queues), 'receive queue')} for {cpus} cores, {why}."
            + _few(evidence, hot, nic),
            (
                *hot.numbers(),
                number(f"packets/s into {nic['name']}", packets_s(evidence, nic), ",.0f"),
                number("receive queues", len(queues)),
            ),
            _steering(evidence, hot, str(nic["name"])),
            severity,
        )
    if not is_named and hot.is_full and hot.is_kept_busy:
        yield _of_nobody(hot, nics if spread else [])


def _beside(hot: Receiver) -> str:
    others = len(hot.others)
    return f"the other {f'{others} cores' if others > 1 else 'core'} {share(hot.others_softirq)}"


def _few(evidence: Evidence, hot: Receiver, nic: Mapping[str, Any]) -> str:
    """Where few packets keep a core busy: what each costs, and that an interface brings a part of them only."""
    own = packets_s(evidence, nic)
    if own >= FEW_PACKETS_S or not hot.packets_s:
        return ""
    part = f", of which {nic['name']} brings {own:,.0f}" if own < hot.packets_s * MOSTLY else ""
    return f" The core takes {hot.cost}{part}."


def _steering(evidence: Evidence, hot: Receiver, nic: str) -> tuple[Remedy, ...]:
    online = [int(core.name.removeprefix("cpu")) for core in evidence.cores]
    but_hot = cpu_mask([cpu for cpu in online if cpu != hot.number])
    key = f"host.rps_cpus@{nic}"
    return (
        Remedy({key: but_hot}, label="all cores but the interrupted one"),
        Remedy({key: cpu_mask(online)}, label="all cores"),
    )


def _of_nobody(hot: Receiver, steered: list[Mapping[str, Any]]) -> Match:
    """A core full of packets that no interface here can be steered away from."""
    name = hot.core.name
    why = (
        f"packet steering of {', '.join(str(nic['name']) for nic in steered)} does not spread them, as with one "
        "flow (a tunnel, one busy connection)"
        if steered
        else "no interface that is seen here brings them: those of other network namespaces may"
    )
    return Match(
        name,
        f"{name} spends {share(hot.core.softirq)} of its time receiving packets, {_beside(hot)}; {why}.",
        hot.numbers(),
        (
            Remedy(
                steps=(
                    f"See what a packet costs there: perf record -a -g -C {hot.number} (a long chain of iptables "
                    "or tc, bridges, tunnels), and make that shorter.",
                    "Set rps_cpus of the interfaces in other namespaces (ip netns, containers): it spreads the "
                    "packets of several flows.",
                )
            ),
        ),
    )


@rule(
    "NET02",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Linux Documentation/admin-guide/sysctl/net.rst, netdev_max_backlog",
    refute="With a backlog four times as long, drops in /proc/net/softnet_stat continue at the same rate.",
)
def backlog_full(evidence: Evidence) -> Iterator[Match]:
    """Packets are dropped because a core's receive backlog is full.

    Every drop causes a retransmission, which costs the client at least a round trip; 200 ms or more if it takes a
    timeout. The backlog is a queue: a longer one helps against bursts, not against a core that is always too slow.
    """
    dropped = evidence.window.rates("softnet", "dropped")
    if not dropped:
        raise NotEnough("/proc/net/softnet_stat was not sampled")
    total = sum(dropped.values())
    if total <= LOST * sum(evidence.window.rates("softnet", "processed").values()):
        return
    backlog = evidence.sysctl_number("net.core.netdev_max_backlog")
    worst = max(dropped, key=lambda cpu: dropped[cpu])
    # Without the CPUs' times nothing speaks against a burst.
    is_late = any(core.name == worst and core.busy >= BUSY for core in all_cores(evidence.window)[1:])
    longer = min(4 * backlog, LONGEST_BACKLOG)
    spread = Remedy(
        steps=(
            f"{worst} cannot keep up, and a longer queue only delays its packets: spread them over more cores "
            "(NET01, NET04).",
        )
    )
    yield Match(
        "",
        f"{total:,.1f} packets/s are dropped before the protocol sees them, most on {worst}; "
        f"the backlog is {backlog:,} packets.",
        (
            number("dropped/s", total, ",.1f"),
            number("worst", worst),
            number("net.core.netdev_max_backlog", backlog),
        ),
        (spread if is_late or longer <= backlog else Remedy({"host.net.core.netdev_max_backlog": longer}),),
    )


@rule(
    "NET03",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/admin-guide/sysctl/net.rst, netdev_budget and netdev_budget_usecs",
    refute="With twice the budget, time_squeeze stops growing, but throughput and p99 are equivalent.",
)
def receive_budget_used_up(evidence: Evidence) -> Iterator[Match]:
    """Receive rounds are cut off with packets left in the queue.

    A round of receive work ends when its budget of packets or of time is used up; the rest waits for the next
    round, behind the core's other work.
    """
    squeezed = evidence.window.rates("softnet", "time_squeeze")
    if not squeezed:
        raise NotEnough("/proc/net/softnet_stat was not sampled")
    total = sum(squeezed.values())
    if total < SQUEEZED_S:
        return
    worst = max(squeezed, key=lambda cpu: squeezed[cpu])
    rounds = evidence.window.rate("softirqs", "NET_RX", worst) or 0.0
    cores = {core.name: core.softirq for core in all_cores(evidence.window)}
    is_felt = 0 < rounds <= squeezed[worst] / OF_THE_ROUNDS or cores.get(worst, 0.0) >= SOFTIRQ_BUSY
    times = _rounds_in_a_row(squeezed[worst], rounds)
    settings: dict[str, Value] = {
        "host.net.core.netdev_budget": times * evidence.sysctl_number("net.core.netdev_budget")
    }
    micros = evidence.facts.sysctl("net.core.netdev_budget_usecs")
    if micros is not None:
        # Either limit ends a round, so they go together.
        settings["host.net.core.netdev_budget_usecs"] = times * evidence.sysctl_number(
            "net.core.netdev_budget_usecs"
        )
    busy = next((core.busy for core in all_cores(evidence.window) if core.name == worst), 0.0)
    yield Match(
        "",
        f"{total:,.0f} rounds/s of receive work end with packets left, most on {worst}.",
        (
            number("time_squeeze/s", total, ",.1f"),
            number("worst", f"{worst}, {squeezed[worst]:,.1f}/s"),
            number("net.core.netdev_budget", evidence.sysctl("net.core.netdev_budget")),
            number("net.core.netdev_budget_usecs", micros or "not in this kernel"),
            number(f"rounds/s on {worst}", rounds or "unknown", ",.0f"),
        ),
        (
            # Longer rounds on a core without time only keep the server's threads off it.
            Remedy(steps=(f"{worst} cannot keep up: spread its packets over more cores (NET01, NET04).",))
            if busy >= FULL
            else Remedy(settings),
        ),
        None if is_felt else Severity.HOUSEKEEPING,
    )


def _rounds_in_a_row(cut_s: float, rounds_s: float) -> int:
    """How many rounds it takes on average until the queue is empty: two if half of all rounds are cut off.

    It is a factor for the budget of one: at least 2, and no more than a core may be kept from others."""
    if rounds_s <= 0:
        return 2
    whole = max(1.0 - cut_s / rounds_s, 1.0 / LONGEST_ROUNDS)
    return min(max(math.ceil(1.0 / whole), 2), LONGEST_ROUNDS)


@rule(
    "NET04",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/networking/scaling.rst, RSS Suggested Configuration; ethtool(8), --set-channels",
    refute="With a queue per core, softirq time spreads, but throughput and p99 are equivalent.",
)
def fewer_queues_than_cores(evidence: Evidence) -> Iterator[Match]:
    """A network card uses fewer receive queues than the host has cores, and its packets keep one core busy.

    More queues spread the interrupts as well as the protocol work, which software steering cannot do. One queue
    per physical core is enough: hyperthreads of one core gain nothing from separate queues.
    """
    logical = evidence.cores
    hot = max(logical, key=lambda core: core.softirq)
    others = [core.softirq for core in logical if core is not hot]
    if not others or hot.softirq < SOFTIRQ_BUSY or hot.softirq < TIMES_OTHERS * sum(others) / len(others):
        return
    cores = (evidence.raw.get("cpu") or {}).get("cores") or len(logical)
    for nic in evidence.rows("network_interfaces"):
        queues = len(nic.get("rx_queues") or ())
        packets = evidence.window.rate("network", "rx_packets", nic["name"]) or 0.0
        if not nic.get("physical") or packets < FEW_PACKETS_S or not 0 < queues < cores:
            continue
        name = nic["name"]
        yield Match(
            str(name),
            f"{name} receives {packets:,.0f} packets/s over {queues} queue{'s' if queues > 1 else ''} on a host "
            f"of {cores} cores, and {hot.name} spends {share(hot.softirq)} of its time on softirqs.",
            (
                number("receive queues", queues),
                number("cores", cores),
                number("driver", nic.get("driver")),
                number(f"softirq on {hot.name}", share(hot.softirq)),
                number("packets/s", packets, ",.0f"),
            ),
            (
                Remedy(
                    steps=(
                        f"Check how many the card supports: ethtool -l {name}.",
                        f"Use one per core, up to that: ethtool -L {name} combined {cores} (the link may "
                        "drop briefly). On a cloud instance, the instance size decides the number.",
                    )
                ),
            ),
            None if hot.busy >= BUSY else Severity.COST,
        )


@rule(
    "NET05",
    severity=Severity.ADVICE,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/networking/scaling.rst, RFS: Receive Flow Steering",
    refute="With flow steering on, CPU time per statement and p99 are equivalent to before.",
)
def steering_without_flows(evidence: Evidence) -> Iterator[Match]:
    """Packets are steered to cores by hash, not to the core of their thread.

    Packet steering picks any core of its mask. Flow steering picks the one where the receiving thread ran last, so
    the packet is in that core's cache. It needs a table and a size per queue; both are 0 by default.
    """
    for nic in evidence.rows("network_interfaces"):
        queues = nic.get("rx_queues") or []
        packets = evidence.window.rate("network", "rx_packets", nic["name"]) or 0.0
        if not steered_to(nic) or packets < FEW_PACKETS_S:
            continue
        table = evidence.sysctl_number("net.core.rps_sock_flow_entries")
        flows = min(int(queue.get("rps_flow_cnt") or 0) for queue in queues)
        if table > 0 and flows > 0:
            continue
        yield Match(
            str(nic["name"]),
            f"{nic['name']} steers {packets:,.0f} packets/s over {counted(len(queues), 'queue')}, "
            f"with a table of {table:,} "
            f"flows and {flows:,} per queue: flow steering is off.",
            (
                number("packets/s", packets, ",.0f"),
                number("net.core.rps_sock_flow_entries", table),
                number("rps_flow_cnt, minimum", flows),
            ),
            (
                Remedy(
                    {
                        "host.net.core.rps_sock_flow_entries": FLOW_ENTRIES,
                        f"host.rps_flow_cnt@{nic['name']}": FLOW_ENTRIES // len(queues),
                    }
                ),
            ),
        )


@rule(
    "NET06",
    severity=Severity.RISK,
    confidence=Confidence.HIGH,
    source="Linux include/uapi/linux/if_link.h: rx_missed_errors (no buffer) and rx_dropped (not wanted, or no "
    "resources); ethtool(8) -G",
    refute="With the largest ring, the interface drops at the same rate.",
)
def ring_full(evidence: Evidence) -> Iterator[Match]:
    """The network card drops packets because its ring is full.

    The card had nowhere to put a packet: the core that empties the ring was late. A larger ring helps against
    bursts; against a core that is always late, only more queues or steering help.
    """
    if "network" not in evidence.window.samplers():
        raise NotEnough("interfaces were not sampled")
    for nic in evidence.rows("network_interfaces"):
        name = str(nic["name"])
        rate = {
            metric: evidence.window.rate("network", metric, name) or 0.0
            for metric in ("rx_packets", "rx_dropped", "rx_missed", "rx_fifo")
        }
        # Not rx_dropped: the kernel counts there what it did not want, and a driver may count a packet in both of
        # the others.
        dropped = max(rate["rx_missed"], rate["rx_fifo"])
        if not nic.get("physical") or dropped <= 0 or dropped < DROPPED_SHARE * rate["rx_packets"]:
            continue
        yield Match(
            name,
            f"{name} drops {dropped:,.1f} of {rate['rx_packets']:,.0f} packets/s before they reach the "
            "kernel.",
            (
                number("rx_missed/s", rate["rx_missed"], ",.1f"),
                number("rx_fifo/s", rate["rx_fifo"], ",.1f"),
                number("all drops, wanted or not/s", rate["rx_dropped"], ",.1f"),
                number("packets/s", rate["rx_packets"], ",.0f"),
            ),
            (
                Remedy(
                    steps=(
                        f"Check the ring's size and its maximum: ethtool -g {name}; "
                        f"and the driver's counters: ethtool -S {name}.",
                        f"Enlarge it: ethtool -G {name} rx N (the link may drop briefly).",
                    )
                ),
            ),
        )


@rule(
    "NET07",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="B. Gregg, Thinking Methodically about Performance, ACM Queue 10.12 (2012)",
    refute="On a faster link, or with less to send, throughput is equivalent.",
)
def interface_full(evidence: Evidence) -> Iterator[Match]:
    """A network interface has reached the speed of its link.

    Everything that uses it then waits for the network, and more cores or disks change nothing.
    """
    if "network" not in evidence.window.samplers():
        raise NotEnough("interfaces were not sampled")
    for use in evidence.verdict.uses:
        if use.resource != "network" or use.utilisation is None or use.utilisation < FULL:
            continue
        yield Match(
            use.instance,
            f"{use.instance} carries {share(use.utilisation)} of its {use.limit.partition(' ')[0]} Mbit/s.",
            (number("load", use.load), number("limit", use.limit)),
            (
                Remedy(
                    steps=(
                        "Find what is sent: SELECT * of wide rows, dumps, clones and replicas started together.",
                        "Compress the protocol if the path is slow (protocol_compression_algorithms, "
                        "replica_compressed_protocol), or use a faster link.",
                    )
                ),
            ),
        )


@rule(
    "NET08",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Linux Documentation/networking/scaling.rst, RPS Suggested Configuration: probably redundant",
    refute="With packet steering off, throughput is lower or p99 higher.",
)
def steering_beside_queues(evidence: Evidence) -> Iterator[Match]:
    """Packets are steered in software although the card has a queue for every core.

    The card's own hash has already spread them. Steering them again costs an inter-core interrupt per packet or
    batch, and helps only if the card spreads badly.
    """
    count = len(evidence.cores)
    for nic in evidence.rows("network_interfaces"):
        queues = nic.get("rx_queues") or []
        packets = evidence.window.rate("network", "rx_packets", nic["name"]) or 0.0
        steered = [queue for queue in queues if steered_to({"rx_queues": [queue]})]
        if not steered or len(queues) < count or packets < FEW_PACKETS_S:
            continue
        yield Match(
            str(nic["name"]),
            f"{nic['name']} has {counted(len(queues), 'receive queue')} for {count} CPUs, and "
            f"{len(steered)} of them are "
            f"steered in software as well.",
            (
                number("receive queues", len(queues)),
                number("CPUs", count),
                number("packets/s", packets, ",.0f"),
            ),
            (Remedy({f"host.rps_cpus@{nic['name']}": "0"}),),
        )


@rule(
    "NET10",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="Linux include/uapi/linux/if_link.h: rx_crc_errors, rx_frame_errors, tx_carrier_errors, collisions",
    refute="With another cable, transceiver and switch port, the interface counts as many errors.",
)
def frames_are_damaged(evidence: Evidence) -> Iterator[Match]:
    """A network interface receives damaged frames, or cannot send them.

    A damaged frame is thrown away, and TCP sends it again after a round trip, or 200 ms later. The cause is
    physical: a cable, a transceiver, a dirty fibre, or two ends that do not agree about duplex.
    """
    if "network" not in evidence.window.samplers():
        raise NotEnough("interfaces were not sampled")
    for nic in evidence.rows("network_interfaces"):
        name = str(nic["name"])
        rate = {
            metric: evidence.window.rate("network", metric, name) or 0.0
            for metric in (
                *("rx_packets", "rx_errors", "rx_frame", "rx_missed", "rx_fifo"),
                *("tx_packets", "tx_carrier", "tx_collisions"),
            )
        }
        packets = rate["rx_packets"] + rate["tx_packets"]
        # Some drivers count a packet for which the ring had no room as an error of the frame: NET06 has these.
        damaged = min(rate["rx_errors"], rate["rx_frame"]) - max(rate["rx_missed"], rate["rx_fifo"])
        bad = max(damaged, 0.0) + rate["tx_carrier"] + rate["tx_collisions"]
        if not nic.get("physical") or packets < SOME_PACKETS_S or bad < DROPPED_SHARE * packets:
            continue
        yield Match(
            name,
            f"{name} damages {bad:,.1f} of {packets:,.0f} frames/s ({share(bad / packets)}).",
            (
                number("received damaged/s", max(damaged, 0.0), ",.2f"),
                number("lost carrier/s", rate["tx_carrier"], ",.2f"),
                number("collisions/s", rate["tx_collisions"], ",.2f"),
                number(
                    "link", f"{link_speed_mbit_s(nic) or 'unknown'} Mbit/s, {nic.get('duplex') or 'unknown'}"
                ),
            ),
            (
                Remedy(
                    steps=(
                        f"See which error it is: ethtool -S {name}; and that both ends negotiate: ethtool {name}, "
                        "and the switch's port.",
                        "Replace the cable or the transceiver, then the port; count again under load.",
                    )
                ),
            ),
        )


@rule(
    "NET11",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="Linux Documentation/networking/ethtool-netlink.rst, LINKMODES_SET; IEEE 802.3, clause 28 "
    "(without negotiation at the other end: half duplex)",
    refute="With the link at its full speed and duplex, throughput and p99 are equivalent.",
)
def link_is_slower_than_the_card(evidence: Evidence) -> Iterator[Match]:
    """A network card runs at half duplex, or at 100 Mbit/s or less.

    A card falls back to 100 Mbit/s if one pair of the cable is broken, and to half duplex if the other end has its
    speed set by hand. Then both ways share the link, and a burst collides with its own acknowledgements.
    """
    guest = evidence.raw.get("virtualization") or {}
    if guest.get("hypervisor_flag") or guest.get("hypervisor"):
        return  # emulated cards report the link of the hardware that they imitate
    if "network" not in evidence.window.samplers():
        raise NotEnough("interfaces were not sampled")
    for nic in evidence.rows("network_interfaces"):
        name = str(nic["name"])
        packets = sum(evidence.window.rate("network", f"{way}_packets", name) or 0.0 for way in ("rx", "tx"))
        ways = [8e-6 * (evidence.window.rate("network", f"{way}_bytes", name) or 0.0) for way in ("rx", "tx")]
        speed, sent = link_speed_mbit_s(nic, max(ways)), sum(ways)
        if not nic.get("physical") or not speed or packets < SOME_PACKETS_S:
            continue
        is_half = nic.get("duplex") == "half" and speed <= HALF_MBIT
        if not is_half and speed > SLOW_MBIT:
            continue
        yield Match(
            name,
            f"{name} runs at {speed:,} Mbit/s, {nic.get('duplex') or 'unknown'} duplex, and carries "
            f"{sent:,.1f} Mbit/s.",
            (
                number("speed", f"{speed:,} Mbit/s"),
                number("duplex", nic.get("duplex") or "unknown"),
                number("both ways, Mbit/s", sent, ",.1f"),
                number("packets/s", packets, ",.0f"),
            ),
            (
                Remedy(
                    steps=(
                        f"See what each end supports and advertises: ethtool {name}. Let both ends negotiate "
                        f"(ethtool -s {name} autoneg on; the same at the switch), or set both alike.",
                        "If it stays slow, replace the cable: gigabit needs all four pairs.",
                    )
                ),
            ),
            Severity.LIMIT if sent >= SHARED * speed else None,
        )


@rule(
    "NET12",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux tc(8), tc-tbf(8), tc-htb(8), tc-netem(8); include/uapi/linux/gen_stats.h; J. Little, A Proof "
    "for the Queuing Formula, Operations Research 9 (1961)",
    refute="With twice the rate, or without the discipline, throughput and p99 are equivalent.",
)
def packets_are_held_back(evidence: Evidence) -> Iterator[Match]:
    """A queueing discipline holds packets back, to keep a rate or to imitate a slow path.

    The link has room, and no counter of the interface shows it. Limits of cloud images and of containers
    (Kubernetes' bandwidth annotations) are made so, and what was left of a test with netem looks the same.
    """
    if "qdisc" not in evidence.window.samplers():
        raise NotEnough("queueing disciplines were not sampled")
    for label in evidence.window.labels("qdisc", "waiting"):
        nic, kind, handle = label.split("/")
        waiting = evidence.gauge("qdisc", "waiting", label).mean
        packets = evidence.window.rate("qdisc", "packets", label) or 0.0
        if kind not in SHAPERS or waiting < 1 or waiting < HELD_S * packets:
            continue
        sent = 8e-6 * (evidence.window.rate("qdisc", "bytes", label) or 0.0)
        # Little's law: mean queue by throughput. Where nothing passed there is no mean.
        held = f"for {1e3 * waiting / packets:,.0f} ms on average" if packets else "and lets none pass"
        yield Match(
            nic,
            f"{kind} holds packets of {nic} back {held}: {waiting:,.0f} wait, and {sent:,.1f} Mbit/s pass.",
            (
                number("packets waiting, mean", waiting, ",.1f"),
                number("packets/s", packets, ",.0f"),
                number("Mbit/s", sent, ",.1f"),
                number("overlimits/s", evidence.window.rate("qdisc", "overlimits", label) or 0.0, ",.1f"),
                number("dropped/s", evidence.window.rate("qdisc", "drops", label) or 0.0, ",.1f"),
                number("handle", f"{handle}:"),
            ),
            (
                Remedy(
                    steps=(
                        f"See its limits: tc -s qdisc show dev {nic}; tc -s class show dev {nic}. Find out who "
                        "set them: an image, a container runtime, a test.",
                        "Raise its rate above what the server sends at its peak, or remove it: "
                        f"tc qdisc del dev {nic} root.",
                    )
                ),
            ),
        )
