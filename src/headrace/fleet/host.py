"""A host of a fleet: its name, how it is reached, and how its server is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.base.model import ServerLogin
from headrace.host.target import TargetSpec

#: Limits unless the fleet's file sets others. sshd starts to refuse logins at ten at a time (MaxStartups).
FAN_OUT, FAN_OUT_JUMP = 64, 8
HOST_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Host:
    """``name`` is unique in its fleet. ``why_not``: why it cannot be asked; empty if it can. ``memcached``: the
    ``host:port`` of its memcached server as seen from here; empty if it is not there for one.
    """

    name: str
    spec: TargetSpec
    tags: frozenset[str] = frozenset()
    login: ServerLogin = field(default_factory=ServerLogin)
    why_not: str = ""
    memcached: str = ""

    @property
    def address(self) -> str:
        """What tells two machines apart, as far as that is known here."""
        if self.spec.kind != "ssh":
            return self.spec.path or self.spec.kind
        port = f":{self.spec.port}" if self.spec.port else ""
        return f"{self.spec.host}{port}{f' by {self.spec.jump}' if self.spec.jump else ''}"


@dataclass(frozen=True)
class Inventory:
    """Hosts by name, in the order of their sources. ``follow``: their replicas and sources belong to it, too."""

    hosts: Mapping[str, Host]
    fan_out: int = FAN_OUT
    fan_out_jump: int = FAN_OUT_JUMP
    host_timeout_s: float = HOST_TIMEOUT_S
    follow: bool = False
