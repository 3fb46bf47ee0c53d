"""What a private server is to be, and its option file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.base.errors import PlanError
from headrace.base.model import Value, Vendor

ALLOCATORS = ("system", "jemalloc", "tcmalloc")

#: What headrace sets itself, so that a private server never meets another one.
OWN_OPTIONS = frozenset(
    {
        "basedir",
        "bind_address",
        "bootstrap",
        "chroot",
        "daemonize",
        "datadir",
        "help",
        "initialize",
        "initialize_insecure",
        "install_server",
        "log_error",
        "mysqlx",
        "no_defaults",
        "pid_file",
        "port",
        "print_defaults",
        "skip_networking",
        "socket",
        "user",
        "verbose",
        "version",
    }
)

#: Decided when the data are made. A treatment with another value needs data of its own.
#: Paths outside the private server's folders are accepted for these: it only reads there, or cleans up itself.
OUTSIDE_PATHS = frozenset(
    {"character_sets_dir", "init_connect", "lc_messages_dir", "plugin_dir", "secure_file_priv", "tmpdir"}
)

LAYOUT_VARIABLES = frozenset({"innodb_data_file_path", "innodb_page_size", "lower_case_table_names"})

# The servers read option files in pieces of 4,096 bytes: the rest of a longer line would count as a line of
# its own (mysys/my_default.c).
MAX_VALUE_BYTES = 2000


@dataclass(frozen=True)
class ServerSpec:
    """A private server. ``variables`` maps name to value as a plan writes it: ``innodb_io_capacity``, 2000.

    ``binary`` is the path of ``mariadbd`` or ``mysqld`` on the target, the installed one when None. With
    ``port`` 0 the server has no network; otherwise it listens on 127.0.0.1. ``cpus`` are those it may run on, as
    taskset lists them; empty: all. Raises PlanError.
    """

    vendor: Vendor
    binary: str | None = None
    variables: Mapping[str, Value] = field(default_factory=dict)
    allocator: str = "system"
    port: int = 0
    cpus: str = ""

    def __post_init__(self) -> None:
        if self.allocator not in ALLOCATORS:
            raise PlanError(f"server.allocator = {self.allocator!r}; allowed: {', '.join(ALLOCATORS)}")
        if not 0 <= self.port <= 65535:
            raise PlanError(f"server.port = {self.port}; allowed: 0 (no network) to 65535")
        if self.binary is not None and not self.binary.startswith("/"):
            raise PlanError(f"server.binary = {self.binary!r}: must be an absolute path on the target")
        for name, value in self.variables.items():
            _check_name(name)
            option_text(name, value)

    @property
    def options(self) -> dict[str, str]:
        """The variables as the server is told them."""
        return {name: option_text(name, value) for name, value in self.variables.items()}

    @property
    def layout(self) -> dict[str, str]:
        """The variables that the data themselves depend on."""
        return {n: v for n, v in self.options.items() if n in LAYOUT_VARIABLES}


def _check_name(name: str) -> None:
    place = f"server.{name}"
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise PlanError("a server variable's name has only a-z, 0-9 and _", place=place)
    if name in OWN_OPTIONS:
        raise PlanError("headrace sets this itself for its private server", place=place)
    if name.startswith("loose_"):
        raise PlanError(
            "with loose_ the server would ignore an unknown variable, and nothing would be tested",
            place=place,
            hint=f"name it server.{name.removeprefix('loose_')}",
        )


def option_text(name: str, value: Value) -> str:
    """A value as text: true is ``ON``, a list is joined by commas. Raises PlanError."""
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    text = ",".join(value) if isinstance(value, list) else str(value)
    if not text.isprintable():
        raise PlanError(f"{text!r}: control characters are not allowed", place=f"server.{name}")
    # Beside temporary files and the server's own plug-ins, its files stay in its own folders: elsewhere they
    # could be another server's, and nobody would put them back.
    if name not in OUTSIDE_PATHS and re.search(r"(^|[;,:=])\s*(/|\.\./)|/\.\./", text):
        raise PlanError(
            f"{text!r}: the files of a private server stay in its own directories", place=f"server.{name}"
        )
    if len(text.encode()) > MAX_VALUE_BYTES:
        raise PlanError(f"longer than {MAX_VALUE_BYTES} bytes", place=f"server.{name}")
    return text


def render_options(options: Mapping[str, str], own: Mapping[str, str]) -> str:
    """The option file. ``own`` stands last and so wins, even over an abbreviated name in ``options``.

    Values are quoted, so that neither ``#`` nor a leading ``[`` means anything (MySQL Reference Manual,
    "Using Option Files").
    """
    lines = ["# Written by headrace for one start of its private server.", "[mysqld]"]
    for name, text in [*options.items(), *own.items()]:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'{name} = "{escaped}"')
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Change:
    """One setting of the server: its compiled default, what was asked for, and what the server then said.

    ``before`` is None where the default is not known, ``after`` where the server has no such variable
    (some options are not variables).
    """

    before: str | None
    asked: str
    after: str | None

    @property
    def honoured(self) -> bool:
        """Whether the server has what was asked for; a server may round or clamp."""
        return self.after is None or _canonical(self.asked) == _canonical(self.after)


_SUFFIXES = "kmgtpe"
_WORDS = {"on": "1", "true": "1", "yes": "1", "off": "0", "false": "0", "no": "0"}


def _canonical(text: str) -> object:
    """Equal for values that a server takes as the same: ``1G`` and 1073741824, ``ON`` and 1."""
    lowered = text.strip().lower()
    lowered = _WORDS.get(lowered, lowered)
    if match := re.fullmatch(rf"(-?\d+)([{_SUFFIXES}]?)", lowered):
        return float(int(match[1]) * 1024 ** (_SUFFIXES.find(match[2]) + 1 if match[2] else 0))
    try:
        return float(lowered)
    except ValueError:
        return frozenset(part.strip() for part in lowered.split(","))
