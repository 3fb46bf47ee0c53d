"""One core that receives for all: what shows it, and which interfaces' packets can be handed to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.host.cores import Core
from headrace.hunt.hot_cores import FULL, OTHERS_IDLE
from headrace.hunt.rules.evidence import Evidence, NotEnough, Number, number, share

#: A core that spends this share of its time on software interrupts has no room for the server's threads there.
SOFTIRQ_BUSY = 0.30
#: ... and on a core that is full anyway, this much is already worth moving to others.
SOFTIRQ_ON_FULL = 0.05
#: One core carries the load alone if it does this many times the others' average.
TIMES_OTHERS = 4.0
#: Below this many packets per second, receive work is not worth spreading, unless it keeps a core busy.
FEW_PACKETS_S = 5_000.0
#: Below this many packets per second a share of them means nothing.
SOME_PACKETS_S = 100.0
#: An interface that brings less of what all interfaces receive is not what keeps a core busy.
OF_ALL_PACKETS = 0.1
#: The most that a packet costs: thousands of rules of a firewall, several namespaces.
DEAREST_PACKET_S = 1e-3
#: Software interrupts of devices and drivers that are no packets.
OTHER_KINDS = ("BLOCK", "IRQ_POLL", "TASKLET", "HI")


@dataclass(frozen=True)
class Receiver:
    """The core with the most softirq time, and the others. Packets are None where softnet_stat is unknown."""

    core: Core
    others: Sequence[Core]
    rounds_s: float
    others_rounds_s: float
    packets_s: float | None
    others_packets_s: float | None

    @property
    def others_softirq(self) -> float:
        return sum(core.softirq for core in self.others) / len(self.others)

    @property
    def others_busy(self) -> float:
        return sum(core.busy for core in self.others) / len(self.others)

    @property
    def is_full(self) -> bool:
        return self.core.busy >= FULL and self.others_busy < OTHERS_IDLE

    @property
    def number(self) -> int:
        return int(self.core.name.removeprefix("cpu"))

    @property
    def is_kept_busy(self) -> bool:
        """Packets alone take so much of the core that their number does not matter."""
        return self.core.softirq >= SOFTIRQ_BUSY

    @property
    def cost(self) -> str:
        """``1,900 packets/s, 470 us each``, as far as it is known."""
        if not self.packets_s:
            return ""
        each_us = 1e6 * self.core.softirq / self.packets_s
        return f"{self.packets_s:,.0f} packets/s, {each_us:,.{0 if each_us >= 10 else 1}f} us each"

    def numbers(self) -> tuple[Number, ...]:
        name = self.core.name
        packets = (
            (
                number(f"packets/s on {name} (softnet_stat)", self.packets_s, ",.0f"),
                number("packets/s on the others, mean", self.others_packets_s, ",.0f"),
            )
            if self.packets_s is not None
            else ()
        )
        return (
            number(f"{name} busy", share(self.core.busy)),
            number("the others busy, mean", share(self.others_busy)),
            number(f"softirq on {name}", share(self.core.softirq)),
            number("softirq on the others, mean", share(self.others_softirq)),
            number(f"NET_RX/s on {name}", self.rounds_s, ",.0f"),
            number("NET_RX/s on the others, mean", self.others_rounds_s, ",.0f"),
            *packets,
        )


def receiver(evidence: Evidence) -> Receiver | None:
    """The core that receives nearly all packets while the others do not, and has little time left for it."""
    cores = evidence.cores
    if len(cores) < 2:
        return None
    rounds = evidence.window.rates("softirqs", "NET_RX")
    if not rounds:
        raise NotEnough("software interrupts were not sampled")
    hot = max(cores, key=lambda core: core.softirq)
    others = [core for core in cores if core is not hot]
    packets = evidence.window.rates("softnet", "processed")

    def of_others(rates: Mapping[str, float]) -> float:
        return sum(rates.get(core.name, 0.0) for core in others) / len(others)

    receives = Receiver(
        hot,
        others,
        rounds.get(hot.name, 0.0),
        of_others(rounds),
        packets.get(hot.name),
        of_others(packets) if packets else None,
    )
    if not receives.is_kept_busy and not (receives.is_full and hot.softirq >= SOFTIRQ_ON_FULL):
        return None
    if hot.softirq < TIMES_OTHERS * receives.others_softirq:
        return None
    # Where a packet costs much the number of them shows nothing: a reply passes another core's queue for nearly
    # nothing. The time does, if packets can have taken it.
    is_alone = receives.rounds_s >= TIMES_OTHERS * max(receives.others_rounds_s, 1.0)
    if receives.is_kept_busy and receives.packets_s is not None:
        is_alone = is_alone or hot.softirq <= DEAREST_PACKET_S * receives.packets_s
    return receives if is_alone and not _does_other_work(evidence, receives) else None


def _does_other_work(evidence: Evidence, receives: Receiver) -> bool:
    """Whether disks and drivers, not packets, are what its software interrupts are for."""
    other = sum(evidence.window.rate("softirqs", kind, receives.core.name) or 0.0 for kind in OTHER_KINDS)
    return other > max(receives.rounds_s, receives.packets_s or 0.0)


def packets_s(evidence: Evidence, nic: Mapping[str, Any]) -> float:
    return evidence.window.rate("network", "rx_packets", str(nic["name"])) or 0.0


def bringing(evidence: Evidence, receives: Receiver) -> list[Mapping[str, Any]]:
    """The interfaces whose packets are worth spreading."""
    every = sum(evidence.window.rates("network", "rx_packets").values())
    some = min(max(SOME_PACKETS_S, OF_ALL_PACKETS * every), FEW_PACKETS_S)
    least = some if receives.is_kept_busy else FEW_PACKETS_S
    return [
        nic
        for nic in evidence.rows("network_interfaces")
        if nic["name"] != "lo" and packets_s(evidence, nic) >= least
    ]


def steered_to(nic: Mapping[str, Any]) -> set[int]:
    """The CPUs that packet steering hands an interface's packets to; rps_cpus is a mask in hexadecimal digits."""
    cpus: set[int] = set()
    for queue in nic.get("rx_queues") or ():
        mask = int(str(queue.get("rps_cpus") or "0").replace(",", "").removeprefix("0x") or "0", 16)
        cpus |= {bit for bit in range(mask.bit_length()) if mask >> bit & 1}
    return cpus
