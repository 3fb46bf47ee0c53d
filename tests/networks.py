"""Network namespaces of our own on one bridge: a host in each, reached by us and by the others. As root only.

    we (.1) ── bridge ── host (.11), host (.12), ...

All is gone when the block ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.lab import check

NETWORK = "10.214.90"
BRIDGE = "hrbr90"
OURS = f"{NETWORK}.1"


@dataclass(frozen=True)
class Namespace:
    """Where one host is: its address, and what goes before its commands."""

    name: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """No packet gets from us to the host or back, and nobody is told. The other hosts still reach it."""
        check(*self.prefix, "ip", "route", "add", "blackhole", f"{OURS}/32")

    def join(self) -> None:
        """Undoes ``cut``; nothing if there was none."""
        argv = [*self.prefix, "ip", "route", "del", "blackhole", f"{OURS}/32"]
        subprocess.run(argv, capture_output=True, check=False)


@contextlib.contextmanager
def networks(names: Sequence[str]) -> Iterator[Mapping[str, Namespace]]:
    """A namespace for each name."""
    with contextlib.ExitStack() as stack:
        # Names and addresses are there once on a machine.
        turn = stack.enter_context(open("/tmp/headrace-test-networks.lock", "w"))
        fcntl.flock(turn, fcntl.LOCK_EX)
        stack.callback(_delete, "link", BRIDGE)
        _delete("link", BRIDGE)
        check("ip", "link", "add", BRIDGE, "type", "bridge")
        check("ip", "addr", "add", f"{OURS}/24", "dev", BRIDGE)
        check("ip", "link", "set", BRIDGE, "up")
        found = {}
        for number, name in enumerate(names):
            place = Namespace(f"hr90-{name}", f"{NETWORK}.{11 + number}")
            # The pair goes with its namespace, but not at once.
            stack.callback(_delete, "link", f"hr90v{number}")
            stack.callback(_delete, "netns", place.name)
            _join(place, f"hr90v{number}")
            found[name] = place
        yield found


def _join(place: Namespace, interface: str) -> None:
    _delete("netns", place.name)
    _delete("link", interface)
    check("ip", "netns", "add", place.name)
    peer = ("peer", "name", "eth0", "netns", place.name)
    check("ip", "link", "add", interface, "type", "veth", *peer)
    check("ip", "link", "set", interface, "master", BRIDGE, "up")
    check(*place.prefix, "ip", "link", "set", "lo", "up")
    check(*place.prefix, "ip", "addr", "add", f"{place.address}/24", "dev", "eth0")
    check(*place.prefix, "ip", "link", "set", "eth0", "up")
    # A packet from an address to which there is no way is dropped: a cut holds in both directions.
    check(*place.prefix, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter")


def _delete(kind: str, name: str) -> None:
    subprocess.run(["ip", kind, "del", name], capture_output=True, check=False)
