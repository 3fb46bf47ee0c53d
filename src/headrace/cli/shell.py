"""What all commands share: the application, its errors, output, and work on a target."""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar, get_type_hints

import typer

from headrace import __version__, extras
from headrace.errors import HeadraceError
from headrace.model import ServerLogin

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.target import TargetSpec


T = TypeVar("T")

app = typer.Typer(
    name="headrace",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Finds what holds a MySQL-family server back, tests every fix on your own workload, and proves the "
    "result with numbers that can be defended.",
    epilog="Start with `headrace doctor`, then `headrace demo`. Exit codes: `headrace docs exit-codes`.",
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
PageFile = Annotated[Path | None, typer.Option("--page", metavar="FILE", help="Write an HTML page.")]
TargetOption = Annotated[
    str, typer.Option("--target", "-t", help="local, user@host[:port][+sudo], or a folder with a saved host.")
]

#: How the agent on the target reaches a server there. A password is never an argument: others could read it.
MysqlSocket = Annotated[
    str, typer.Option("--mysql-socket", metavar="PATH", help="Unix socket of the server on the target.")
]
MysqlHost = Annotated[
    str, typer.Option("--mysql-host", metavar="HOST", help="Its host, seen from the target.")
]
MysqlPort = Annotated[
    int, typer.Option("--mysql-port", metavar="PORT", help="Its port [3306].", show_default=False)
]
MysqlUser = Annotated[str, typer.Option("--mysql-user", metavar="USER", help="User to log in as.")]
MysqlPasswordFile = Annotated[
    str, typer.Option("--mysql-password-file", metavar="FILE", help="File on the target with the password.")
]
MysqlDefaultsFile = Annotated[
    str, typer.Option("--mysql-defaults-file", metavar="FILE", help="File on the target such as ~/.my.cnf.")
]
MysqlTls = Annotated[
    str, typer.Option("--mysql-tls", metavar="MODE", help="As --ssl-mode of the mysql client.")
]


NO_LOGIN = ServerLogin()

_LOGIN_OPTIONS: Mapping[str, tuple[Any, str | int]] = {
    "socket": (MysqlSocket, ""),
    "host": (MysqlHost, ""),
    "port": (MysqlPort, 0),
    "user": (MysqlUser, ""),
    "password_file": (MysqlPasswordFile, ""),
    "defaults_file": (MysqlDefaultsFile, ""),
    "tls": (MysqlTls, ""),
}


def takes_login(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options above in place of its parameter ``login``: typer has no groups of options."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for name, found in inspect.signature(command).parameters.items():
        if name != "login":
            parameters.append(found.replace(annotation=hints[name]))
            continue
        for option, (annotation, default) in _LOGIN_OPTIONS.items():
            parameters.append(found.replace(name=f"mysql_{option}", annotation=annotation, default=default))

    @functools.wraps(command)
    def with_login(**given: Any) -> None:
        values = {option: given.pop(f"mysql_{option}") for option in _LOGIN_OPTIONS}
        # A port of 0 leaves the choice to the agent.
        command(login=ServerLogin(**{**values, "port": values["port"] or None}), **given)

    with_login.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_login.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_login


def main() -> None:
    """Entry point: runs the command and turns an error into one clear message and its exit code."""
    try:
        # typer hands back the code of an Exit instead of ending the process.
        sys.exit(app(standalone_mode=False))
    except HeadraceError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        absent = extras.missing(error.name or "")
        if absent is None:
            raise
        _fail(absent)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        # click's own usage errors know how to show themselves and their exit code.
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        sys.exit(getattr(error, "exit_code", 2))


def _fail(error: HeadraceError) -> NoReturn:
    stderr().print(_error_text(error), soft_wrap=True, highlight=False)
    sys.exit(error.exit_code)


def _error_text(error: HeadraceError) -> Any:
    from rich.text import Text

    from headrace.report.text import clean, clean_lines

    # A message may quote what a server or a file said: nothing of it may reach the terminal as a command.
    text = Text.assemble(("headrace: ", "bold red"))
    if error.place:
        text.append(f"{clean(error.place)}: ", style="bold")
    text.append(clean_lines(error.message))
    if error.hint:
        text.append(f"\n  try: {clean(error.hint)}", style="cyan")
    return text


def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def stdout() -> Console:
    from rich.console import Console

    return Console()


def print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2, sort_keys=False, default=str))


def write_page(path: Path, content: str) -> None:
    """Write an HTML page and say where it is."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise HeadraceError(f"cannot be written: {error.strerror}", place=str(path)) from error
    stderr().print(f"page: {path}", soft_wrap=True, highlight=False, markup=False)


def run_until_signal(
    work: Callable[[], Coroutine[Any, Any, T]],
    *,
    stopping: str = "stopping: restoring the host first ...",
    stopped: str = "stopped; the host is restored, finished trials are kept",
) -> T:
    """Run, and on Ctrl-C or SIGTERM cancel once and wait until the host is restored.

    Further signals while restoring are ignored: leaving half-way would be worse.
    """

    import asyncio
    import signal

    async def supervised() -> T:
        task = asyncio.ensure_future(work())
        loop = asyncio.get_running_loop()

        def stop() -> None:
            if not task.cancelling():
                stderr().print(f"\n{stopping}", style="yellow")
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        try:
            return await task
        except asyncio.CancelledError:
            console = stderr()
            # On a terminal the cursor stands at the end of the bar.
            line = "\n" if console.is_terminal else ""
            console.print(f"{line}{stopped}", style="yellow")
            raise typer.Exit(130) from None

    return asyncio.run(supervised())


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def tell(text: str) -> None:
    """What somebody who waits wants to know."""
    from headrace.report.text import clean

    stderr().print(clean(text), style="yellow", soft_wrap=True, highlight=False, markup=False)


def on_target(address: str | TargetSpec, work: Callable[[Any], Awaitable[T]]) -> T:
    """Do some work on a target."""
    from headrace.target import TargetSpec, open_target

    async def connected() -> T:
        spec = TargetSpec.parse(address) if isinstance(address, str) else address
        target = open_target(spec, tell)
        await target.connect()
        try:
            return await work(target)
        finally:
            await target.close()

    return run_until_signal(connected)
