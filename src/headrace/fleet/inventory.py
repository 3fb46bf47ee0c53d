"""A fleet from ``[fleet]`` of a TOML file, any list that ``sources`` reads, or a range of names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headrace.base import toml
from headrace.base.errors import PlanError
from headrace.base.model import ServerLogin
from headrace.fleet.host import FAN_OUT, FAN_OUT_JUMP, HOST_TIMEOUT_S, Host, Inventory
from headrace.fleet.sources import Entry, read
from headrace.host.ranges import expand
from headrace.host.target import EXEC, TargetSpec

#: A host that is lost in mid-work is asked again by the next run, so it is not waited for long.
RECONNECT_S = 20.0


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Login(_Table):
    """How the agent there reaches the server: ``--mysql-*`` of the command line."""

    socket: str = ""
    host: str = ""
    port: int | None = Field(default=None, ge=1, le=65535)
    user: str = ""
    password_file: str = ""
    defaults_file: str = ""
    tls: str = ""
    tls_ca: str = ""


class Values(_Table):
    """What a fleet, or a group of it, says about its hosts."""

    user: str = ""
    port: int | None = Field(default=None, ge=1, le=65535)
    identity_file: str = ""
    known_hosts: str = ""
    jump: str = ""
    sudo: bool | None = None
    tags: tuple[str, ...] = ()
    mysql: Login | None = None
    memcached: str = Field(default="", pattern=r"^$|:[0-9]{1,5}$")


class Group(Values):
    """Hosts that have something in common."""

    hosts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class FleetTable(Group):
    """``[fleet]``; ``[[fleet.groups]]`` override its values."""

    fan_out: int = Field(default=FAN_OUT, ge=1, le=1000)
    fan_out_jump: int = Field(default=FAN_OUT_JUMP, ge=1, le=1000)
    host_timeout_s: float = Field(default=HOST_TIMEOUT_S, gt=0)
    follow: bool = False
    groups: tuple[Group, ...] = ()


def load(text: str, defaults: Mapping[str, Any] | None = None) -> Inventory:
    """A fleet's file, a list of hosts, or a range of names. Raises PlanError.

    ``defaults`` are values for all hosts, as in ``[fleet]``, which the file overrides.
    """
    path = Path(text)
    if not os.path.exists(path) or path.is_dir():
        if re.search(r"\.(toml|json|ya?ml|txt)$", text) or not text.strip():
            raise PlanError("no such file", place=text or "--fleet", hint="a file, or names: db[1-40]")
        return _inventory(FleetTable(hosts=tuple(expand(text)), **(defaults or {})), Path(), text)
    if path.suffix == ".toml":
        return _inventory(_checked(path, defaults or {}), path.parent, text)
    return _inventory(FleetTable(files=(path.name,), **(defaults or {})), path.parent, text)


def _checked(path: Path, defaults: Mapping[str, Any]) -> FleetTable:
    try:
        content = toml.parse(toml.read(path))
    except (OSError, ValueError) as error:
        raise PlanError(f"not TOML: {error}", place=str(path)) from error
    if not isinstance(content.get("fleet"), dict):
        raise PlanError("has no [fleet]", place=str(path))
    try:
        return FleetTable(**{**defaults, **content["fleet"]})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(["fleet", *map(str, first["loc"])])
        raise PlanError(f"{key}: {first['msg'].lower()}", place=str(path)) from error


def _inventory(table: FleetTable, folder: Path, place: str) -> Inventory:
    hosts: dict[str, Host] = {}
    said: dict[str, Entry] = {}
    general = ServerLogin(**(table.mysql or Login()).model_dump())
    for group in (table, *table.groups):
        for entry in _entries(group, folder):
            host = _host(entry, table, group)
            known = hosts.get(host.name)
            if known is None or entry.values:
                said[host.name] = entry
            elif entry.name == host.name and not entry.why_not:
                # Only its name: the host is where another list says it is, not where this name leads.
                host = _host(replace(said[host.name], tags=entry.tags), table, group)
            if known is None:
                hosts[host.name] = host
            elif _differ(known, host) and general not in (known.login, host.login):
                raise PlanError(
                    f"two hosts are named {host.name}, with different servers",
                    place=place,
                    hint="name each: orders=db1, users=db1",
                )
            elif known.spec == host.spec or entry.values == {}:
                # The same host in several lists: it has the tags of all.
                merged = known if group is table else host
                hosts[host.name] = replace(merged, tags=known.tags | host.tags)
            else:
                raise PlanError(f"two hosts are named {host.name}, at different addresses", place=place)
    if not hosts:
        raise PlanError("the fleet has no hosts", place=place)
    return Inventory(
        {host.name: host for host in _without_twins(hosts.values())},
        fan_out=table.fan_out,
        fan_out_jump=table.fan_out_jump,
        host_timeout_s=table.host_timeout_s,
        follow=table.follow,
    )


def _entries(group: Group, folder: Path) -> Iterator[Entry]:
    for text in group.hosts:
        yield from map(_named, expand(text))
    for name in group.files:
        yield from read(folder / Path(name).expanduser())


def _named(text: str) -> Entry:
    """``NAME=ADDRESS``: one of several servers on a machine needs a name of its own."""
    name, equals, address = text.partition("=")
    if not equals or text.startswith(EXEC):
        return Entry(text)
    if not name.strip() or not address.strip():
        raise PlanError("not a host: write ADDRESS, or NAME=ADDRESS", place=text[:200])
    return Entry(name.strip(), {"host": address.strip()})


def _host(entry: Entry, table: FleetTable, group: Group) -> Host:
    """The most specific value counts: of the entry itself, its group, the fleet."""

    def value(key: str) -> Any:
        for found in (entry.values.get(key), getattr(group, key), getattr(table, key)):
            if found not in ("", None):
                return found
        return None

    tags = entry.tags | frozenset(group.tags) | frozenset(table.tags)
    login = ServerLogin(**(group.mysql or table.mysql or Login()).model_dump())
    if entry.why_not:
        return Host(entry.name, TargetSpec("ssh", host=entry.name), tags, login, entry.why_not)
    address = str(entry.values.get("host") or entry.name)
    cache = group.memcached or table.memcached
    if address == "local" or address.startswith(EXEC) or ("/" in address and os.path.isdir(address)):
        own = TargetSpec.parse(address)
        return Host(entry.name, own, tags, login, memcached=_cache(cache, own, entry.name))
    user = None if "@" in address else value("user")
    bare = f"[{address}]" if address.count(":") > 1 and "[" not in address else address
    spec = TargetSpec.parse(
        bare if "@" in bare else f"{user or 'nobody'}@{bare}",
        identity_file=value("identity_file"),
        known_hosts=value("known_hosts"),
        sudo=bool(value("sudo")),
        jump=value("jump") or "",
        reconnect_s=RECONNECT_S,
    )
    if "@" not in address:
        # None: as in ~/.ssh/config.
        spec = replace(spec, user=user)
    if spec.port is None:
        spec = replace(spec, port=value("port"))
    name = entry.name.partition("+")[0].rpartition("@")[2] if entry.name == address else entry.name
    return Host(name, spec, tags, login, memcached=_cache(cache, spec, name))


def _cache(text: str, spec: TargetSpec, name: str) -> str:
    """``:PORT`` is at the host's own address. Raises PlanError for a host that has none."""
    if not text.startswith(":"):
        return text
    own = "127.0.0.1" if spec.kind == "local" else spec.host
    if not own:
        raise PlanError(
            f"{name} has no address of its own", place="memcached", hint="memcached = 'HOST:PORT'"
        )
    return f"[{own}]{text}" if ":" in own else f"{own}{text}"


def _without_twins(hosts: Iterable[Host]) -> Iterator[Host]:
    """A machine that is listed under two names is asked once: the second would disturb the first. Not so if the
    logins of both name a server, and not the same one.
    """
    seen: dict[str, list[Host]] = {}
    for host in hosts:
        first = next((known for known in seen.get(host.address, ()) if not _differ(known, host)), None)
        seen.setdefault(host.address, []).append(host)
        if first is not None and not host.why_not:
            yield replace(host, why_not=f"already listed as {first.name}")
        else:
            yield host


def _differ(one: Host, other: Host) -> bool:
    """Whether two names of a machine are two of its servers."""
    places = [
        (each.login.socket, each.login.host, each.login.port, each.login.defaults_file, each.memcached)
        for each in (one, other)
    ]
    return places[0] != places[1] and all(map(any, places))


def only(inventory: Inventory, names: str = "", tags: Sequence[str] = ()) -> Inventory:
    """The hosts of these names, and with every tag; ``!TAG``: without it. Raises PlanError if none is left."""
    wanted = set(expand(names))
    if unknown := wanted - set(inventory.hosts):
        raise PlanError(f"not in the fleet: {', '.join(sorted(unknown)[:5])}", place="--only")
    kept = {
        name: host
        for name, host in inventory.hosts.items()
        if (not wanted or name in wanted)
        and all((tag.removeprefix("!") in host.tags) != tag.startswith("!") for tag in tags)
    }
    if not kept:
        known = sorted({tag for host in inventory.hosts.values() for tag in host.tags})
        raise PlanError(
            "no host of the fleet has these tags",
            place=" ".join(tags),
            hint=f"its tags: {', '.join(known[:20])}" if known else "its hosts have no tags",
        )
    return replace(inventory, hosts=kept)
