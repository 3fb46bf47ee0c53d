"""Targets: machines that headrace runs commands on.

``local``, ``ssh`` and a fixture folder share one interface. Code above this package never opens a host's file or
starts a program on it in another way, so trials on local and remote machines run the same code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.base.errors import PlanError
from headrace.host.target.interface import Completed, Process, Target, scratch_folder, to_the_end
from headrace.host.target.leased import FOLDER_VARIABLE, leased_folder

__all__ = [
    "FOLDER_VARIABLE",
    "Completed",
    "Process",
    "Target",
    "TargetSpec",
    "leased_folder",
    "open_target",
    "scratch_folder",
    "to_the_end",
]


#: The address of a command that runs ``sh`` over there.
EXEC = "exec:"


@dataclass(frozen=True)
class TargetSpec:
    """A machine's address and connection options.

    ``user`` and ``port`` None: as in ``~/.ssh/config``. ``sudo``: become root there; ``jump``: jump hosts
    (``user@host[:port],...``, nearest first); ``forward_agent``: commands there may use the local ssh-agent. A
    broken connection is retried for ``reconnect_s``, by default 10 minutes.
    """

    kind: Literal["local", "ssh", "exec", "fixture"]
    host: str = ""
    port: int | None = None
    user: str | None = None
    identity_file: str | None = None
    known_hosts: str | None = None
    path: str = ""
    sudo: bool = False
    jump: str = ""
    forward_agent: bool = False
    reconnect_s: float | None = None

    @property
    def address(self) -> str:
        """As ``parse`` takes it. ``USER`` is for a person to fill in: without one ``~/.ssh/config`` names it."""
        if self.kind != "ssh":
            return self.path or self.kind
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port else ""
        options = ("+sudo" if self.sudo else "") + ("+agent" if self.forward_agent else "")
        return f"{self.user or 'USER'}@{host}{port}{options}{f'+jump={self.jump}' if self.jump else ''}"

    @staticmethod
    def parse(
        address: str,
        *,
        identity_file: str | None = None,
        known_hosts: str | None = None,
        sudo: bool = False,
        jump: str = "",
        forward_agent: bool = False,
        reconnect_s: float | None = None,
    ) -> TargetSpec:
        """``local``, ``user@host[:port]`` (IPv6 as ``user@[::1]:22``), ``exec:COMMAND`` that runs ``sh`` there, or
        a folder with a saved host.

        An SSH address may be followed by ``+sudo``, ``+agent`` (forwarded) and ``+jump=user@host[:port],...``, in
        addition to the options for all.
        """
        if address == "local":
            return TargetSpec("local")
        if address.startswith(EXEC):
            return TargetSpec("exec", path=address)
        remote = re.fullmatch(
            r"(?P<user>[^@/\s]+)@(?P<host>\[[^]\s]+\]|[^:/\s\[+]+)(:(?P<port>\d+))?"
            r"(?P<options>(\+(sudo|agent|jump=[^+\s]+))*)",
            address,
        )
        if remote:
            port = int(remote["port"]) if remote["port"] else None
            if port is not None and not 0 < port < 65536:
                raise PlanError(f"target {address!r}: the port must be 1 to 65535")
            options = remote["options"].split("+")[1:]
            own_jump = [option.removeprefix("jump=") for option in options if option.startswith("jump=")]
            return TargetSpec(
                "ssh",
                host=remote["host"].strip("[]"),
                port=port,
                user=remote["user"],
                identity_file=identity_file,
                known_hosts=known_hosts,
                sudo=sudo or "sudo" in options,
                jump=",".join(own_jump) or jump,
                forward_agent=forward_agent or "agent" in options,
                reconnect_s=reconnect_s,
            )
        if address and os.path.isdir(address):
            return TargetSpec("fixture", path=address)
        raise PlanError(
            f"target {address!r}: must be local, user@host[:port][+sudo], exec:COMMAND, or an existing directory "
            "with a saved host"
        )


def open_target(spec: TargetSpec, tell: Callable[[str], None] = lambda _: None) -> Target:
    """The target of a spec, not yet connected. ``tell`` hears when the connection is lost and restored."""
    # Imported here because asyncssh takes longer than everything else that `headrace --help` needs.
    match spec.kind:
        case "local":
            from headrace.host.target.local import LocalTarget

            return LocalTarget()
        case "fixture":
            from headrace.host.target.fixture import FixtureTarget

            return FixtureTarget(Path(spec.path))
        case "exec":
            from headrace.host.target.execute import ExecTarget

            return ExecTarget(spec.path)
        case "ssh":
            from headrace.host.target.ssh import SshTarget

            return SshTarget(
                spec.host,
                port=spec.port,
                user=spec.user,
                keys=[spec.identity_file] if spec.identity_file else None,
                known_hosts=spec.known_hosts,
                jump=spec.jump,
                sudo=spec.sudo,
                forward_agent=spec.forward_agent,
                reconnect_s=spec.reconnect_s,
                tell=tell,
            )
