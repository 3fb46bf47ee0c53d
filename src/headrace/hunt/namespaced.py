"""A server with a network namespace of its own: what the kernel counts and sets for each one is not the host's."""

from __future__ import annotations

import re

from headrace.host.facts import HostFacts

#: Samplers of the namespace that the agent is in.
SAMPLERS = ("snmp", "sockstat", "listen")
#: Settings that each namespace has: network_namespaces(7), Linux Documentation/admin-guide/sysctl/net.rst.
_SETTING = re.compile(r"net\.(ipv4|ipv6)\..*|net\.core\.(somaxconn|optmem_max)")


def is_of_namespace(sysctl: str) -> bool:
    return _SETTING.fullmatch(sysctl) is not None


def why_not_of_server(facts: HostFacts) -> str:
    """Why the agent's network namespace tells nothing of the server's; empty if it is the server's, too."""
    process = None if facts.only_sql else facts.server_process
    if process is None or "net" not in (process.get("namespaces") or ()):
        return ""
    pid = process.get("pid")
    return (
        f"the server (pid {pid}) has a network namespace of its own, and these are the host's; "
        f"--target 'exec:nsenter --target {pid} --net' reads the server's"
    )
