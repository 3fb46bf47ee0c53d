"""The nouns of headrace, frozen. Terms and units: see docs/project/glossary.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

#: A value of a knob in a plan. Lists accumulate over factors and bundles (mount options).
Value = str | int | float | bool | list[str]

#: A value of a workload's option in a plan, including tables and lists of them.
Option = str | int | float | bool | Sequence["Option"] | Mapping[str, "Option"]

#: Every process started for a trial has this variable, so that orphans can be found and stopped.
OWNER_VARIABLE = "HEADRACE_OWNER"


class Vendor(StrEnum):
    MARIADB = "mariadb"
    MYSQL = "mysql"
    PERCONA = "percona"


class Role(StrEnum):
    """A trial's role in its block. The baseline runs twice: the pair is the A/A comparison."""

    BASELINE = "baseline"
    REPEAT = "repeat"
    CANDIDATE = "candidate"


class TrialState(StrEnum):
    COMPLETE = "complete"
    INVALID = "invalid"  # it ran, but the host was disturbed: shown, never analysed
    FAILED = "failed"  # the treatment itself failed (a server that does not start): an observation


@dataclass(frozen=True)
class Treatment:
    """One level for every factor.

    ``levels`` maps factor to the level's name; ``settings`` maps knob to value. ``condition`` names the levels of
    the workload's factors (threads, read/write mix): treatments are compared only within one condition, because a
    ratio between two different questions is meaningless.
    """

    name: str
    levels: Mapping[str, str]
    settings: Mapping[str, Value]
    condition: str = ""

    @property
    def configuration(self) -> str:
        """The treatment's name without its condition, as tables show it."""
        return self.name.removesuffix(f" @ {self.condition}") if self.condition else self.name


@dataclass(frozen=True)
class TrialSpec:
    """One planned trial. ``number`` starts at 1 in order of execution; ``block`` and ``position`` at 1."""

    number: int
    block: int
    position: int
    treatment: str
    role: Role


@dataclass(frozen=True)
class NetworkLogin:
    """How a client on another machine reaches a private server; its password is never printed."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class ServerEndpoint:
    """How a client on the target reaches the server.

    No password: a private server's socket folder is 0700. ``network`` is None if no client on another machine is
    expected.
    """

    vendor: Vendor
    version: str
    socket: str
    port: int
    user: str
    database: str
    network: NetworkLogin | None = None


@dataclass(frozen=True)
class ServerLogin:
    """How the agent on a target reaches a server there. Never a password, only the name of a file with it."""

    socket: str = ""
    host: str = ""
    port: int | None = None
    user: str = ""
    password_file: str = ""
    defaults_file: str = ""
    tls: str = ""
    tls_ca: str = ""

    @property
    def argv(self) -> list[str]:
        """The agent's own options."""
        options = {
            "--mysql-socket": self.socket,
            "--mysql-host": self.host,
            "--mysql-port": self.port,
            "--mysql-user": self.user,
            "--mysql-password-file": self.password_file,
            "--mysql-defaults-file": self.defaults_file,
            "--mysql-tls": self.tls,
            "--mysql-tls-ca": self.tls_ca,
        }
        return [text for name, value in options.items() if value for text in (name, str(value))]

    @property
    def is_named(self) -> bool:
        return bool(self.socket or self.host or self.defaults_file)


@dataclass(frozen=True)
class Tool:
    """A program needed on a target, its Debian package, and the arguments with which it prints its version."""

    program: str
    package: str
    version_options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """The output of ``headrace-agent facts``, with a content hash. The keys are the agent's."""

    hash: str
    data: Mapping[str, Any] = field(repr=False)
