"""Which knobs can change under a running load, so that what follows the change shows their effect."""

from __future__ import annotations

from headrace.base.model import Vendor
from headrace.knobs.knob import Cost, Knob
from headrace.knobs.servers import lists

#: Settings of the network that the kernel reads while packets flow; of the others, most are a socket's from its
#: beginning.
_FLOWING = frozenset(
    {
        "host.net.core.dev_weight",
        "host.net.core.netdev_budget",
        "host.net.core.netdev_budget_usecs",
        "host.net.core.netdev_max_backlog",
        "host.net.core.rps_sock_flow_entries",
        "host.net.ipv4.tcp_autocorking",
        "host.net.ipv4.tcp_limit_output_bytes",
        "host.net.ipv4.tcp_slow_start_after_idle",
    }
)

#: Decided when a process asks for memory, which a server with a buffer pool did at its start.
_OF_MEMORY = frozenset(
    {
        "host.thp",
        "host.thp_defrag",
        "host.vm.nr_hugepages",
        "host.vm.nr_overcommit_hugepages",
        "host.vm.overcommit_memory",
        "host.vm.overcommit_ratio",
        "host.vm.overcommit_kbytes",
    }
)


def _cheapest(knob: Knob, vendor: Vendor) -> Cost:
    """The cost on the server of this vendor that takes the change best."""
    is_dynamic = vendor in knob.dynamic_in or any(
        knob.cost_on(vendor, own.version) is Cost.DYNAMIC for own in lists() if own.vendor is vendor
    )
    return Cost.DYNAMIC if is_dynamic and knob.name.startswith("server.") else knob.cost


def why_not(knob: Knob, vendor: Vendor, version: str = "") -> str | None:
    """Why a change under load would not show what the knob does; None if it does.

    Without a version, any that takes the change will do.
    """
    area = knob.name.partition(".")[0]
    if knob.never:
        return knob.never
    if area in ("machine", "workload"):
        return "reboot" if area == "machine" else "it changes the workload"
    cost = knob.cost_on(vendor, version) if version else _cheapest(knob, vendor)
    if cost is not Cost.DYNAMIC:
        return str(cost)
    if area == "server":
        return "only new connections have it" if knob.is_of_sessions(vendor, version) else None
    if not knob.location:
        return "no file of a running host"
    if knob.name.startswith("host.net.") and knob.name not in _FLOWING:
        return "only new connections have it"
    return "only memory that is asked for later has it" if knob.name in _OF_MEMORY else None
