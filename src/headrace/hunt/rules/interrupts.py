"""Rules about hardware interrupts: which cores handle which devices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any

from headrace.hunt.hot_cores import FULL
from headrace.hunt.resources import BUSY
from headrace.hunt.rules.evidence import Evidence, NotEnough, number, share
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: An interrupt with its softirq takes some microseconds: below this many per second one core does not notice.
MANY_INTERRUPTS_S = 5_000.0
#: A line that is worth moving.
BUSY_LINE_S = 500.0
#: Nearly all of them on one core.
ON_ONE_CORE = 0.90
#: A core that spends this share in interrupt handlers keeps its threads waiting: issue 4, founding case 2.
HARD_IRQ_BUSY = 0.30
#: Share of a device's interrupts on other NUMA nodes than its own.
ELSEWHERE = 0.75
#: Older ones reportedly ignore a Xen guest's event channels; irqbalance's own notes do not name a version.
BALANCES_XEN = (1, 0, 6)


def _lines(evidence: Evidence) -> dict[str, Mapping[str, Any]]:
    """Lines of devices by their number."""
    found = (evidence.raw.get("irqs") or {}).get("lines")
    if found is None:
        raise NotEnough("the host does not report its interrupts")
    return {str(line["irq"]): line for line in found}


def is_movable(line: Mapping[str, Any]) -> bool:
    """Whether its affinity can be set. The kernel manages the queues of NVMe itself and refuses."""
    is_nvme_queue = re.fullmatch(r"nvme\d+q\d+", str(line.get("action") or ""))
    return not line.get("managed") and not is_nvme_queue


def _is_of_device(line: Mapping[str, Any]) -> bool:
    """A Xen guest's event channels name their kind (blkif), not their device; those of a CPU are xen-percpu."""
    return bool(line.get("device")) or str(line.get("chip") or "").startswith("xen-dyn")


def _rates(evidence: Evidence) -> dict[tuple[str, str], float]:
    """(Line, CPU) -> interrupts per second."""
    rates = evidence.window.rates("interrupts", "count")
    if not rates:
        raise NotEnough("interrupts were not sampled")
    split = ((label.partition("/"), rate) for label, rate in rates.items())
    return {(irq, cpu): rate for (irq, _, cpu), rate in split}


def _spread(lines: list[str], cpus: list[int]) -> Remedy:
    """One core per line, in turn. The values are lists of CPUs, as smp_affinity_list takes them."""
    pairs = zip(lines, cycle(cpus), strict=False)
    return Remedy({f"host.irq_affinity@{irq}": str(cpu) for irq, cpu in pairs}, label="spread over the cores")


def _concentrated(evidence: Evidence) -> tuple[str, list[str], float, float] | None:
    """The core that handles nearly all movable lines, those lines, their rate there, and their rate in all."""
    lines = _lines(evidence)
    movable = {irq for irq, line in lines.items() if _is_of_device(line) and is_movable(line)}
    rates = {key: rate for key, rate in _rates(evidence).items() if key[0] in movable and rate > 0}
    total = sum(rates.values())
    by_core: dict[str, float] = {}
    for (_, cpu), rate in rates.items():
        by_core[cpu] = by_core.get(cpu, 0.0) + rate
    if total < MANY_INTERRUPTS_S or len(evidence.cores) < 2:
        return None
    core = max(by_core, key=lambda cpu: by_core[cpu])
    busy = sorted((irq for (irq, cpu), rate in rates.items() if cpu == core and rate >= BUSY_LINE_S), key=int)
    if by_core[core] < ON_ONE_CORE * total or len(busy) < 2:
        return None
    return core, busy, by_core[core], total


def _online(evidence: Evidence) -> list[int]:
    return [int(core.name.removeprefix("cpu")) for core in evidence.cores]


def _busy(evidence: Evidence, name: str) -> float:
    return next((core.busy for core in evidence.cores if core.name == name), 0.0)


def _version(text: str | None) -> tuple[int, ...] | None:
    """``1.9.2-3`` -> (1, 9, 2)."""
    match = re.match(r"\d+(\.\d+)*", text or "")
    return tuple(int(part) for part in match[0].split(".")) if match else None


def _is_blind_on_xen(evidence: Evidence) -> bool:
    balancer: Any = evidence.raw.get("irqbalance") or {}
    guest = (evidence.raw.get("virtualization") or {}).get("hypervisor")
    return bool(balancer.get("pid")) and guest == "xen"


@rule(
    "IRQ01",
    severity=Severity.LIMIT,
    confidence=Confidence.HIGH,
    source="Linux Documentation/core-api/irq/irq-affinity.rst; networking/scaling.rst, RSS IRQ Configuration",
    refute="With the lines on several cores, the core's irq and softirq time falls, but throughput is equivalent.",
)
def one_core_answers_all(evidence: Evidence) -> Iterator[Match]:
    """One core handles the interrupts of several devices or queues.

    The work that follows an interrupt runs on the core that took it. With all lines on one core, usually the
    first, that core becomes the bottleneck for network and disks while the others idle.
    """
    found = _concentrated(evidence)
    if found is None or _is_blind_on_xen(evidence):
        return
    core, busy, here, total = found
    running = (evidence.raw.get("irqbalance") or {}).get("pid")
    devices = sorted({str(_lines(evidence)[irq].get("device") or "a Xen device") for irq in busy})
    service = Remedy(
        steps=("Install irqbalance and start it: it spreads lines by load.",), label="irqbalance"
    )
    yield Match(
        core,
        f"{core} handles {share(here / total)} of {total:,.0f} interrupts/s, from {len(busy)} busy lines of "
        f"{', '.join(devices)}; irqbalance is {'running' if running else 'not running'}.",
        (
            number(f"interrupts/s on {core}", here, ",.0f"),
            number("interrupts/s of devices", total, ",.0f"),
            number("busy lines there", " ".join(busy)),
            number("irqbalance", "running" if running else "not running"),
        ),
        (_spread(busy, _online(evidence)), *(() if running else (service,))),
        None if _busy(evidence, core) >= BUSY else Severity.COST,
    )


@rule(
    "IRQ02",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="github.com/Irqbalance/irqbalance, pull requests 8, 81 and 351",
    refute="With a newer irqbalance, /proc/interrupts still counts everything on one core.",
)
def irqbalance_blind_on_xen(evidence: Evidence) -> Iterator[Match]:
    """The irqbalance service runs, but does not move a Xen guest's event channels.

    Old versions did not recognise Xen's interrupts, and later versions stopped recognising them when the kernel
    renamed them in /proc/interrupts. The service runs, yet every line stays on the first core.
    """
    if not _is_blind_on_xen(evidence):
        return
    found = _concentrated(evidence)
    if found is None:
        return
    core, busy, here, total = found
    text = (evidence.raw.get("irqbalance") or {}).get("version")
    version = _version(text)
    is_old = version is not None and version < BALANCES_XEN
    yield Match(
        core,
        f"{core} handles {share(here / total)} of {total:,.0f} interrupts/s although irqbalance "
        f"{text or 'of unknown version'} runs{', which is too old for Xen' if is_old else ''}.",
        (
            number(f"interrupts/s on {core}", here, ",.0f"),
            number("interrupts/s of devices", total, ",.0f"),
            number("irqbalance", text or "version unknown"),
            number("hypervisor", "xen"),
        ),
        (
            Remedy(
                steps=(
                    "Update irqbalance and restart it; check in /proc/interrupts that the interrupts "
                    "spread over the cores.",
                ),
                label="update",
            ),
            _spread(busy, _online(evidence)),
        ),
        Severity.LIMIT if _busy(evidence, core) >= FULL else None,
    )


@rule(
    "IRQ03",
    severity=Severity.LIMIT,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/core-api/irq/irq-affinity.rst; ethtool(8), --coalesce",
    refute="With its busiest line on another core or coalesced, throughput and p99 are equivalent.",
)
def core_full_of_interrupts(evidence: Evidence) -> Iterator[Match]:
    """One core spends much of its time in interrupt handlers.

    A thread scheduled there is interrupted again and again, and the average over all cores hides it.
    """
    cores = evidence.cores
    hot = max(cores, key=lambda core: core.irq)
    if hot.irq < HARD_IRQ_BUSY or len(cores) < 2:
        return
    lines = _lines(evidence)
    here = {irq: rate for (irq, cpu), rate in _rates(evidence).items() if cpu == hot.name and irq in lines}
    if not here:
        return
    busiest = max(here, key=lambda irq: here[irq])
    line = lines[busiest]
    device = line.get("device") or line.get("action")
    steps = Remedy(
        steps=(f"Make {device} coalesce interrupts: ethtool -C DEVICE rx-usecs N.",),
        label="fewer interrupts",
    )
    others = [cpu for cpu in _online(evidence) if f"cpu{cpu}" != hot.name]
    yield Match(
        hot.name,
        f"{hot.name} spends {share(hot.irq)} of its time in interrupt handlers; the busiest is line {busiest} "
        f"({device}) with {here[busiest]:,.0f}/s.",
        (
            number(f"irq on {hot.name}", share(hot.irq)),
            number(f"line {busiest}, interrupts/s", here[busiest], ",.0f"),
            number("interrupts/s there, all lines", sum(here.values()), ",.0f"),
        ),
        (*((_spread([busiest], others),) if is_movable(line) else ()), steps),
    )


@rule(
    "IRQ04",
    severity=Severity.COST,
    confidence=Confidence.MEDIUM,
    source="Linux Documentation/networking/scaling.rst, RSS IRQ Configuration (irqbalance may override settings)",
    refute="With one queue per core, softirq time evens out, but throughput and p99 are equivalent.",
)
def queues_share_a_core(evidence: Evidence) -> Iterator[Match]:
    """Two busy queues of one interface interrupt the same core while others have none.

    Drivers spread their queues, one per core. A later change, made by hand or by irqbalance (which overrides
    manual settings), put two of them on one core.
    """
    lines = _lines(evidence)
    rates = _rates(evidence)
    cores = {core.name for core in evidence.cores}
    for nic in evidence.rows("network_interfaces"):
        own = [i for i, line in lines.items() if line.get("device") == nic["name"] and is_movable(line)]
        busy = [(irq, cpu) for (irq, cpu), rate in rates.items() if irq in own and rate >= BUSY_LINE_S]
        on_core: dict[str, list[str]] = {}
        for irq, cpu in busy:
            on_core.setdefault(cpu, []).append(irq)
        doubled = {cpu: irqs for cpu, irqs in on_core.items() if len(irqs) > 1}
        free = sorted(cores - set(on_core), key=lambda cpu: int(cpu[3:]))
        # All on one core is IRQ01's.
        if not doubled or not free or len(on_core) < 2:
            continue
        to_move = [irq for irqs in doubled.values() for irq in sorted(irqs, key=int)[1:]][: len(free)]
        running = (evidence.raw.get("irqbalance") or {}).get("pid")
        also = ("Keep irqbalance from undoing it: --banirq=N for each of these lines.",) if running else ()
        spread = _spread(to_move, [int(cpu[3:]) for cpu in free])
        worst = max(doubled, key=lambda cpu: len(doubled[cpu]))
        yield Match(
            str(nic["name"]),
            f"{len(doubled[worst])} busy queues of {nic['name']} interrupt {worst}, while "
            f"{', '.join(free)} {'have' if len(free) > 1 else 'has'} none.",
            (
                number("queues on one core", "; ".join(f"{c}: {' '.join(i)}" for c, i in doubled.items())),
                number("cores without a queue", " ".join(free)),
                number("irqbalance", "running" if running else "not running"),
            ),
            (Remedy(spread.settings, also, spread.label),),
        )


@rule(
    "IRQ05",
    severity=Severity.ADVICE,
    confidence=Confidence.LOW,
    source="Linux Documentation/core-api/irq/irq-affinity.rst; Documentation/networking/scaling.rst (RSS IRQ "
    "Configuration: NUMA)",
    refute="With its interrupts on the device's own node, throughput and p99 are equivalent.",
)
def interrupts_cross_nodes(evidence: Evidence) -> Iterator[Match]:
    """A device's interrupts are handled on another NUMA node than the device is attached to.

    The device writes its data into the memory of its own node; a core of another node fetches each line of it over
    the link between the processors. irqbalance honours the node only if the firmware reports it.
    """
    nodes = {
        int(node["node"]): {int(cpu) for cpu in node.get("cpus") or ()}
        for node in evidence.rows("numa_nodes")
    }
    if len([cpus for cpus in nodes.values() if cpus]) < 2:
        return
    lines, rates = _lines(evidence), _rates(evidence)
    for kind in ("network_interfaces", "block_devices"):
        for device in evidence.rows(kind):
            node = device.get("numa_node")
            if node is None or not nodes.get(int(node)):
                continue
            own = {irq for irq, line in lines.items() if line.get("device") == device["name"]}
            mine = {key: rate for key, rate in rates.items() if key[0] in own}
            total = sum(mine.values())
            away = {
                key: rate
                for key, rate in mine.items()
                if int(key[1].removeprefix("cpu")) not in nodes[int(node)]
            }
            if total < MANY_INTERRUPTS_S or sum(away.values()) < ELSEWHERE * total:
                continue
            movable = sorted({irq for irq, _ in away if is_movable(lines[irq])}, key=int)
            yield Match(
                str(device["name"]),
                f"{share(sum(away.values()) / total)} of {total:,.0f} interrupts/s of {device['name']} are "
                f"handled away from its NUMA node {node}.",
                (
                    number("interrupts/s", total, ",.0f"),
                    number("on other nodes", sum(away.values()), ",.0f"),
                    number("CPUs of its node", " ".join(map(str, sorted(nodes[int(node)])))),
                ),
                (_spread(movable, sorted(nodes[int(node)])),)
                if movable
                else (
                    Remedy(
                        steps=("The kernel manages these lines: keep the server's threads on this node.",)
                    ),
                ),
            )
