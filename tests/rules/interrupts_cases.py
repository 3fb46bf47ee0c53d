"""Cases of the rules about hardware interrupts."""

from __future__ import annotations

from typing import Any

from tests.rules.case import Case
from tests.rules.hosts import CPUS, unwell

#: Every queue of the interface interrupts core 0.
ALL_ON_ONE = {
    **{f"interrupts.count.{150 + n}/cpu{n}": 0.0 for n in range(CPUS)},
    **{f"interrupts.count.{150 + n}/cpu0": 2_000.0 for n in range(CPUS)},
}
NO_BALANCER = {"irqbalance": {"pid": None, "version": None}}
XEN: dict[str, Any] = {"virtualization.hypervisor": "xen", "irqbalance": {"pid": 701, "version": "1.0.4-6"}}
#: Lines 150 and 151 on core 0: core 1 has none.
DOUBLED = {"interrupts.count.151/cpu1": 0.0, "interrupts.count.151/cpu0": 800.0}
MANAGED = {f"irqs.lines.{150 + n}.managed": True for n in range(CPUS)}

#: Four busy queues, on the cores of node 0.
FAST = {
    **{f"interrupts.count.{150 + n}/cpu{n}": 4_000.0 for n in range(4)},
    **{f"interrupts.count.{154 + n}/cpu{4 + n}": 0.0 for n in range(4)},
}


def on_node(node: int | None) -> dict[str, Any]:
    """A host of two nodes, and the one that the card is attached to."""
    nodes = [{"node": n, "cpus": list(range(4 * n, 4 * n + 4))} for n in range(2)]
    return {"numa_nodes": nodes, "network_interfaces.enp1s0f0np0.numa_node": node}


CASES = [
    Case(
        "IRQ01",
        "nobody balances",
        lambda: unwell(rates=ALL_ON_ONE, facts=NO_BALANCER),
        ("cpu0",),
        ("cpu0 handles 100% of 16,000 interrupts/s", "8 busy lines of enp1s0f0np0", "not running"),
    ),
    Case("IRQ01", "one queue a core", lambda: unwell(facts=NO_BALANCER)),
    Case(
        "IRQ01",
        "the kernel manages them",
        lambda: unwell(rates=ALL_ON_ONE, facts={**NO_BALANCER, **MANAGED}),
    ),
    Case(
        "IRQ01",
        "queues of NVMe are the kernel's",
        lambda: unwell(
            facts=NO_BALANCER, rates={f"interrupts.count.{140 + n}/cpu0": 9_000.0 for n in range(CPUS)}
        ),
    ),
    Case("IRQ01", "not sampled", lambda: unwell(without=["interrupts"]), missing="interrupts were not"),
    Case("IRQ01", "no lines", lambda: unwell(facts={"irqs": None}), missing="does not report its interrupts"),
    Case(
        "IRQ02",
        "too old for Xen",
        lambda: unwell(rates=ALL_ON_ONE, facts=XEN),
        ("cpu0",),
        ("irqbalance 1.0.4-6 runs, which is too old for Xen",),
    ),
    Case(
        "IRQ02",
        "new and still blind",
        lambda: unwell(rates=ALL_ON_ONE, facts={**XEN, "irqbalance.version": "1.9.2-3"}),
        ("cpu0",),
        ("although irqbalance 1.9.2-3 runs.",),
    ),
    Case("IRQ02", "spread", lambda: unwell(facts=XEN)),
    Case("IRQ02", "bare metal", lambda: unwell(rates=ALL_ON_ONE)),
    Case(
        "IRQ02", "not sampled", lambda: unwell(facts=XEN, without=["interrupts"]), missing="interrupts were"
    ),
    Case(
        "IRQ03",
        "a third of a core",
        lambda: unwell(
            rates={"cpu.irq.cpu3": 35.0, "cpu.idle.cpu3": 46.5, "interrupts.count.153/cpu3": 90_000.0}
        ),
        ("cpu3",),
        ("cpu3 spends 35% of its time", "line 153 (enp1s0f0np0) with 90,000/s"),
    ),
    Case("IRQ03", "little", unwell),
    Case(
        "IRQ03",
        "not sampled",
        lambda: unwell(rates={"cpu.irq.cpu3": 35.0, "cpu.idle.cpu3": 46.5}, without=["interrupts"]),
        missing="interrupts were not",
    ),
    Case(
        "IRQ04",
        "two on core 0",
        lambda: unwell(rates=DOUBLED),
        ("enp1s0f0np0",),
        ("2 busy queues of enp1s0f0np0 interrupt cpu0, while cpu1 has none",),
    ),
    Case("IRQ04", "one a core", unwell),
    Case("IRQ04", "managed", lambda: unwell(rates=DOUBLED, facts=MANAGED)),
    Case("IRQ04", "not sampled", lambda: unwell(without=["interrupts"]), missing="interrupts were not"),
    Case(
        "IRQ05",
        "a card of the other node",
        lambda: unwell(facts=on_node(1), rates=FAST),
        ("enp1s0f0np0",),
        ("100% of 16,000 interrupts/s of enp1s0f0np0 are handled away from its NUMA node 1",),
        sets=({f"host.irq_affinity@{150 + n}": str(4 + n % 4) for n in range(4)},),
    ),
    Case("IRQ05", "its own node", lambda: unwell(facts=on_node(0), rates=FAST)),
    Case("IRQ05", "few interrupts", lambda: unwell(facts=on_node(1))),
    Case("IRQ05", "the firmware does not say", lambda: unwell(facts=on_node(None), rates=FAST)),
    Case("IRQ05", "one node", lambda: unwell(rates=FAST)),
    Case(
        "IRQ05",
        "not sampled",
        lambda: unwell(facts=on_node(1), without=["interrupts"]),
        missing="interrupts were not",
    ),
]
