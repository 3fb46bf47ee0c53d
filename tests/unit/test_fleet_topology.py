"""A topology followed from one server, in both vendors' words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.fleet.host import Host
from headrace.fleet.inventory import load
from headrace.fleet.runner import Outcome, State
from headrace.fleet.topology import MOST_HOSTS, follow, links


def facts(name: str, replicas: Sequence[str] = (), source: str = "", **variables: str) -> dict[str, Any]:
    """A server that knows its replicas by name, and where it replicates from."""
    return {
        "hostname": name,
        "server_settings": {
            "variables": {"server_uuid": name, **variables},
            "replicas": [{"server_id": 1, "host": replica} for replica in replicas],
            "replica_addresses": ["10.0.0.9"] if replicas else [],
            "replication": [{"source_host": source}] if source else [],
        },
    }


class World:
    """Servers by the name under which they are reached; one that is missing is unreachable."""

    def __init__(self, servers: dict[str, Any]) -> None:
        self.servers = servers
        self.asked: list[str] = []

    async def ask(self, hosts: Sequence[Host], keep: Callable[[Outcome], None]) -> bool:
        for host in hosts:
            self.asked.append(host.spec.host)
            if host.spec.host in self.servers:
                keep(Outcome(host.name, State.OK, answer=links(self.servers[host.spec.host])))
            else:
                keep(Outcome(host.name, State.UNREACHABLE, "no answer"))
        return True


async def test_replicas_of_replicas_and_the_source_are_found_from_any_of_them() -> None:
    world = World(
        {
            "db1": facts("db1", ["db2", "db3"]),
            "db2": facts("db2", ["db4"], source="db1"),
            "db3": facts("db3", source="db1"),
            "db4": facts("db4", source="db2"),
        }
    )
    for start in ("db1", "db4", "root@db3:2222"):
        found = await follow(load(start), world.ask)
        assert {name.partition(":")[0] for name in found.hosts} == {"db1", "db2", "db3", "db4"}
    spec = found.hosts["db1"].spec
    assert (spec.user, spec.port) == ("root", 2222), "reached as the one that named it"


async def test_a_server_that_invents_replicas_does_not_make_us_ask_them_all() -> None:
    world = World({"db1": facts("db1", [f"made-up-{n}" for n in range(10 * MOST_HOSTS)])})
    found = await follow(load("db1"), world.ask)
    assert len(found.hosts) == MOST_HOSTS
    assert len(world.asked) <= MOST_HOSTS


async def test_one_server_under_two_names_is_asked_once_and_a_circle_ends() -> None:
    world = World(
        {
            "db1": facts("db1", ["db2"], source="10.0.0.2"),
            "db2": facts("db2", ["db1.example"], source="db1.example"),
            "10.0.0.2": facts("db2", ["db1.example"], source="db1.example"),
            "db1.example": facts("db1", ["db2"]),
        }
    )
    found = (await follow(load("db1"), world.ask)).hosts
    twins = {name for name, host in found.items() if "already listed as" in host.why_not}
    assert len(found) - len(twins) == 2
    assert len(world.asked) == len(set(world.asked))


async def test_an_unreachable_server_ends_its_branch_only() -> None:
    world = World({"db1": facts("db1", ["db2", "db3"]), "db3": facts("db3", ["db5"], source="db1")})
    found = (await follow(load("db1"), world.ask)).hosts
    assert set(found) == {"db1", "db2", "db3", "db5"}
    assert not found["db2"].why_not, "it is asked again, and listed as unreachable"


def test_a_replica_without_a_name_is_found_by_its_address() -> None:
    one = facts("db1", ["", "db3"])
    assert links(one)["links"] == ["10.0.0.9"]
    assert links(facts("db1", source="127.0.0.1"))["links"] == []
    assert links({"hostname": "x", "server_settings": None}) == {"identity": "x None None", "links": []}


async def test_the_members_of_a_mysql_group_are_found_from_any_of_them() -> None:
    members = [{"host": name, "id": name, "role": "SECONDARY", "state": "ONLINE"} for name in ("a", "b", "c")]
    servers = {name: facts(name) for name in ("a", "b", "c")}
    for name, own in servers.items():
        own["server_settings"]["group"] = {
            "members": [{**each, "is_own": each["id"] == name} for each in members]
        }
    world = World(servers)
    found = await follow(load("b"), world.ask)
    assert set(found.hosts) == {"a", "b", "c"}
    assert not any(host.why_not for host in found.hosts.values())
