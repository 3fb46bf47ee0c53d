"""Equal answers of many hosts, kept once: each value with the hosts that gave it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.host.ranges import fold


@dataclass
class Folded:
    """``add`` host by host. The names of the hosts are shared by all values, so a thousand hosts stay small."""

    _hosts: list[str] = field(default_factory=list)
    _values: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    _number: int = -1

    def host(self, name: str) -> None:
        """What is added from here on is of this host."""
        self._hosts.append(name)
        self._number += 1

    def add(self, key: str, value: str) -> None:
        self._values.setdefault(key, {}).setdefault(value, []).append(self._number)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def size(self) -> int:
        """How many hosts have answered."""
        return len(self._hosts)

    @property
    def keys(self) -> list[str]:
        return list(self._values)

    def groups(self, key: str) -> list[tuple[str, tuple[str, ...]]]:
        """The values of a key with their hosts, the most frequent value first."""
        found = [
            (value, tuple(self._hosts[number] for number in numbers))
            for value, numbers in self._values.get(key, {}).items()
        ]
        return sorted(found, key=lambda group: (-len(group[1]), group[0]))

    def rows(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """(key, value, hosts), in the order in which the keys came."""
        for key in self._values:
            for value, hosts in self.groups(key):
                yield key, value, hosts


def named(hosts: tuple[str, ...], total: int) -> str:
    """The hosts on one line; ``all`` if they are, and there are several."""
    return f"all {total}" if len(hosts) == total > 1 else fold(hosts)
