"""What changed on a host between a hunt and now: a finding says nothing of settings that it did not see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.model import Facts

#: Variables that a server changes itself.
VOLATILE = (
    "gtid_",
    "timestamp",
    "last_",
    "rand_seed",
    "pseudo_",
    "innodb_buffer_pool_dump",
    "innodb_redo_log_arch",
)
#: Of the server that was asked.
IDENTITY = ("vendor", "version")


def moved(before: Facts, now: Facts) -> list[str]:
    """Each difference in words; empty if the host and its server are as the hunt saw them.

    Compared are the host's name, the server, its variables, sysctls, queues of block devices and mount options.
    """
    old, new = before.data, now.data
    return [*_host(old, new), *_server(old, new), *_settings(old, new)]


def _host(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if old.get("hostname") != new.get("hostname"):
        yield f"this host is {new.get('hostname')}, the finding is of {old.get('hostname')}"


def _server(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    then, now = old.get("server_settings"), new.get("server_settings")
    if not then:
        return
    if not now:
        yield "the server cannot be asked whether its settings are still the same"
        return
    for name in IDENTITY:
        if then.get(name) != now.get(name):
            yield f"the server's {name} is {now.get(name)}, not {then.get(name)}"
    yield from _differences("", _steady(then), _steady(now))


def _steady(settings: Mapping[str, Any]) -> dict[str, Any]:
    variables = settings.get("variables") or {}
    return {name: value for name, value in variables.items() if not name.startswith(VOLATILE)}


def _settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    yield from _differences("", old.get("sysctls") or {}, new.get("sysctls") or {})
    for key, name, part in (
        ("block_devices", "name", "queue"),
        ("file_systems", "mount_point", "super_options"),
    ):
        now = {row.get(name): row.get(part) for row in new.get(key) or ()}
        for row in old.get(key) or ():
            then, place = row.get(part), str(row.get(name))
            if place not in now or then == now[place]:
                continue
            if isinstance(then, Mapping) and isinstance(now[place], Mapping):
                yield from _differences(f"{place} ", then, now[place])
            else:
                yield f"{place}: {part.replace('_', ' ')} differ"


def _differences(place: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(then.keys() & now.keys()):
        if then[name] != now[name]:
            yield f"{place}{name} is {now[name]!s:.80}, the finding saw {then[name]!s:.80}"
