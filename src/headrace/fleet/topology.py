"""The servers that replicate with those of a fleet, followed from server to server in both directions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.fleet.host import Host, Inventory
from headrace.fleet.runner import Outcome, State

#: A topology has no more servers: something is wrong with the names, or one server invents them.
MOST_HOSTS = 2000
#: A tag of hosts that no list has.
FOLLOWED = "followed"
_HERE = frozenset({"", "localhost", "127.0.0.1", "::1"})

#: Asks hosts, and passes each outcome on.
Ask = Callable[[Sequence[Host], Callable[[Outcome], None]], Awaitable[bool]]


def links(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Who a server is, and the names or addresses of those that it replicates with; the answer of one host.

    A replica that did not give its name (``report_host``) is found by the address from which it fetches the log.
    The members of a MySQL group are known by the names that they gave.
    """
    settings = facts.get("server_settings") or {}
    variables = settings.get("variables") or {}
    replicas = settings.get("replicas") or ()
    names = [str(replica.get("host") or "") for replica in replicas]
    if not all(names) or not replicas:
        names = list(settings.get("replica_addresses") or ())
    names += [str(channel.get("source_host") or "") for channel in settings.get("replication") or ()]
    names += [str(each["host"]) for each in (settings.get("group") or {}).get("members") or ()]
    identity = variables.get("server_uuid") or variables.get("server_uid")
    if not identity:
        identity = f"{facts.get('hostname')} {variables.get('server_id')} {variables.get('port')}"
    return {"identity": identity, "links": sorted({name for name in names if name not in _HERE})}


async def follow(inventory: Inventory, ask: Ask) -> Inventory:
    """The fleet with every server that can be reached from it by replication. Its own hosts stay as they are.

    A new host is reached as the one that named it: the same account, key, jump host and login. A server with
    two names is asked once.
    """
    hosts = dict(inventory.hosts)
    known = {host.spec.host for host in hosts.values()} | set(hosts)
    owners: dict[str, str] = {}
    frontier = [host for host in hosts.values() if not host.why_not]
    while frontier and len(hosts) < MOST_HOSTS:
        answers: dict[str, Mapping[str, Any]] = {}

        def keep(outcome: Outcome, answers: dict[str, Mapping[str, Any]] = answers) -> None:
            if outcome.state is State.OK:
                answers[outcome.host] = outcome.answer

        if not await ask(frontier, keep):
            break
        found: list[Host] = []
        for host in frontier:
            if host.name not in answers:
                continue
            answer = answers[host.name]
            first = owners.setdefault(str(answer["identity"]), host.name)
            if first != host.name:
                # A host of the lists stays: two servers may be copies with one identity.
                if FOLLOWED in host.tags:
                    hosts[host.name] = replace(host, why_not=f"already listed as {first}")
                continue
            found += _new(host, answer["links"], known)
        frontier = found[: MOST_HOSTS - len(hosts)]
        hosts.update({host.name: host for host in frontier})
    return replace(inventory, hosts=hosts)


def _new(host: Host, names: Iterable[str], known: set[str]) -> list[Host]:
    found = []
    for name in names:
        if name not in known:
            known.add(name)
            spec = replace(host.spec, host=name)
            found.append(Host(name, spec, frozenset({FOLLOWED}), host.login))
    return found
