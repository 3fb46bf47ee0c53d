"""What changed on a host between a hunt and now: a finding says nothing of settings that it did not see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.base.model import Facts

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
#: Characters of a value that are shown.
MOST_VALUE = 80


@dataclass(frozen=True)
class Difference:
    """``said`` is a sentence about the finding; the values are empty if only that they differ is known."""

    what: str
    before: str
    after: str
    said: str


def moved(before: Facts, now: Facts) -> list[str]:
    """Each difference in words; empty if the host and its server are as the hunt saw them.

    Compared are the host's name, the server, its variables, sysctls, queues of block devices and mount options.
    """
    return [each.said for each in differences(before, now)]


def differences(before: Facts, now: Facts) -> list[Difference]:
    """The same, one by one."""
    old, new = before.data, now.data
    return [*_host(old, new), *_server(old, new), *_settings(old, new)]


def _host(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    then, now = old.get("hostname"), new.get("hostname")
    if then != now:
        yield Difference("host name", str(then), str(now), f"this host is {now}, the finding is from {then}")


def _server(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    then, now = old.get("server_settings"), new.get("server_settings")
    if not then:
        return
    if not now:
        said = "the server cannot be asked whether its settings are still the same"
        yield Difference("server", "answers", "cannot be asked", said)
        return
    for name in IDENTITY:
        if then.get(name) != now.get(name):
            said = f"the server's {name} is {now.get(name)}, not {then.get(name)}"
            yield Difference(f"server {name}", str(then.get(name)), str(now.get(name)), said)
    yield from _differences("", _steady(then), _steady(now))


def _steady(settings: Mapping[str, Any]) -> dict[str, Any]:
    variables = settings.get("variables") or {}
    return {name: value for name, value in variables.items() if not name.startswith(VOLATILE)}


def _settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    yield from _differences("", old.get("sysctls") or {}, new.get("sysctls") or {})
    for key, name, part in (
        ("block_devices", "name", "queue"),
        ("file_systems", "mount_point", "super_options"),
    ):
        # Of two mounts on one path only the last is seen there.
        before, now = (
            {str(row.get(name)): row.get(part) for row in facts.get(key) or ()} for facts in (old, new)
        )
        for place, then in before.items():
            if place not in now or then == now[place]:
                continue
            if isinstance(then, Mapping) and isinstance(now[place], Mapping):
                yield from _differences(f"{place} ", then, now[place])
            else:
                what = part.replace("_", " ")
                yield Difference(f"{place} {what}", "", "", f"{place}: {what} differ")


def _differences(place: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted(then.keys() & now.keys()):
        if then[name] != now[name]:
            before, after = (f"{each:.{MOST_VALUE}}" for each in unlike(str(then[name]), str(now[name])))
            said = f"{place}{name} is {after}, the finding saw {before}"
            yield Difference(f"{place}{name}", before, after, said)


def unlike(then: str, now: str) -> tuple[str, str]:
    """Of two lists of switches those that ``now`` names and that differ; of other values both as they are.

    Such a list is long: cut off, it would not show the difference.
    """
    old, new = (dict(each.partition("=")[::2] for each in value.split(",")) for value in (then, now))
    names = [name for name in new if old.get(name) != new[name]]
    if not names or not all((*old.values(), *new.values())):
        return then, now
    return ",".join(f"{n}={old[n]}" for n in names if n in old), ",".join(f"{n}={new[n]}" for n in names)
