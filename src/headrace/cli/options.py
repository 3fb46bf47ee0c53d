"""Groups of options, declared once for all commands, because typer has no option groups.

A group is a frozen dataclass whose fields are annotated as typer's parameters are. A command that is ``grouped``
takes it as one parameter; its fields are the options.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from headrace.base.model import ServerLogin

AllowWeaker = Annotated[
    list[str] | None,
    typer.Option("--allow-weaker", metavar="KNOB", help="Allow this knob to reduce durability."),
]

AllowLoss = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-loss", metavar="KNOB", help="Allow this knob to destroy what no rollback restores."
    ),
]

AllowBeyond = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-beyond", metavar="KNOB", help="Allow this knob more than the machine seems to have."
    ),
]

Alpha = Annotated[float, typer.Option("--alpha", min=0.0001, max=0.5)]
CapturePorts = Annotated[
    list[int] | None,
    typer.Option(
        "--port",
        help="Server port in a capture [3306, or the first on which a server greets].",
        show_default=False,
    ),
]


Thorough = Annotated[
    bool,
    typer.Option(
        "--thorough",
        help="Query everything whenever it is due, whatever it costs a big server; by default, expensive queries "
        "run less often, or are skipped and listed.",
    ),
]


@dataclasses.dataclass(frozen=True)
class LoginOptions:
    """How the agent on the target reaches a server there.

    A password in the arguments would be readable by others.
    """

    mysql_socket: Annotated[
        str, typer.Option("--mysql-socket", metavar="PATH", help="Unix socket of the server on the target.")
    ] = ""
    mysql_host: Annotated[
        str, typer.Option("--mysql-host", metavar="HOST", help="Host of the server, as seen from the target.")
    ] = ""
    #: 0: the agent chooses.
    mysql_port: Annotated[
        int, typer.Option("--mysql-port", metavar="PORT", help="Its port [3306].", show_default=False)
    ] = 0
    mysql_user: Annotated[str, typer.Option("--mysql-user", metavar="USER", help="User to log in as.")] = ""
    mysql_password_file: Annotated[
        str,
        typer.Option("--mysql-password-file", metavar="FILE", help="File on the target with the password."),
    ] = ""
    mysql_defaults_file: Annotated[
        str,
        typer.Option(
            "--mysql-defaults-file", metavar="FILE", help="Option file on the target, such as ~/.my.cnf."
        ),
    ] = ""
    mysql_tls: Annotated[
        str, typer.Option("--mysql-tls", metavar="MODE", help="Same as --ssl-mode of the mysql client.")
    ] = ""
    mysql_tls_ca: Annotated[
        str,
        typer.Option("--mysql-tls-ca", metavar="FILE", help="CA file on the target (PEM)."),
    ] = ""

    def login(self) -> ServerLogin:
        named = {name.removeprefix("mysql_"): value for name, value in vars(self).items()}
        return ServerLogin(**{**named, "port": self.mysql_port or None})


NO_LOGIN = ServerLogin()


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the option groups of a command with their fields; ``LoginOptions`` become a ``ServerLogin``."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for name, found in inspect.signature(command).parameters.items():
        group = LoginOptions if hints[name] is ServerLogin else hints[name]
        if not dataclasses.is_dataclass(group) or not isinstance(group, type):
            parameters.append(found.replace(annotation=hints[name]))
            continue
        groups[name] = group
        annotations = get_type_hints(group, include_extras=True)
        for field in dataclasses.fields(group):
            made = field.default_factory
            default = field.default if made is dataclasses.MISSING else made()
            parameters.append(
                found.replace(name=field.name, annotation=annotations[field.name], default=default)
            )

    @functools.wraps(command)
    def with_groups(**given: Any) -> None:
        for name, group in groups.items():
            value = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
            given[name] = value.login() if isinstance(value, LoginOptions) else value
        command(**given)

    with_groups.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_groups


#: Units of a duration on the command line, in seconds.
UNITS = {"us": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
HOUR_S, DAY_S = 3600, 86_400
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h|d)")


def duration(*names: str, text: str, least_s: float = 1, most_s: float = DAY_S, default: str = "") -> Any:
    """An option for a time such as 30s or 5m, as seconds; ``default`` is how the help writes the default."""

    def parsed(value: str | float) -> float:
        if not isinstance(value, str):
            return value
        written = _DURATION.fullmatch(value)
        seconds = float(written[1]) * UNITS[written[2]] if written else math.nan
        if not least_s <= seconds <= most_s:
            raise typer.BadParameter(
                f"{value!r}: write a number with its unit (ms, s, m, h or d), from {duration_text(least_s)} to "
                f"{duration_text(most_s)}"
            )
        return seconds

    return typer.Option(*names, metavar="TIME", help=_told(text, default), parser=parsed, show_default=False)


def size_option(*names: str, text: str, least: int = 0, default: str = "") -> Any:
    """An option for a size such as 500M or 20G, as bytes; 0 is none."""

    def parsed(value: str | int) -> int:
        from headrace.knobs.knob import size_bytes

        if not isinstance(value, str):
            return value
        if not re.fullmatch(r"[0-9]+[KMGT]?", value) or 0 < size_bytes(value) < least:
            raise typer.BadParameter(f"{value!r}: write a size such as 500M or 20G")
        return size_bytes(value)

    return typer.Option(*names, metavar="SIZE", help=_told(text, default), parser=parsed, show_default=False)


def _told(text: str, default: str) -> str:
    """A help text with the default as it is written on the command line: Typer would put it in parentheses."""
    return f"{text.removesuffix('.')} [{default}]." if default else text


def duration_text(seconds: float) -> str:
    """A duration as options take it, in the largest unit that leaves a whole number: 90s, 2h."""
    for unit, size in reversed(UNITS.items()):
        count = round(seconds / size, 9)
        if count >= 1 and count.is_integer():
            return f"{count:.0f}{unit}"
    return f"{seconds:g}s"


WatchTime = Annotated[float, duration("--duration", "-d", text="How long to watch.", least_s=2, default="1m")]
