"""Shared by all commands: the application, error output, printing, and work on a target."""

from __future__ import annotations

import codecs
import io
import os
import stat
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
import typer.core

from headrace import __version__
from headrace.base import extras
from headrace.base.encode import json_text
from headrace.base.errors import (
    DiskFull,
    HeadraceError,
    StoreError,
    TargetError,
    WrongArguments,
    no_room,
)
from headrace.cli import interrupts
from headrace.cli.commands import COMMANDS, GROUPS

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.host.target import TargetSpec
    from headrace.show.notice import Notice
    from headrace.show.parts import Page
    from headrace.tell.places import Place


T = TypeVar("T")


#: Words that people try, and no command's name is close to -> what they look for.
GUESSES = {
    "advise": "hunt",
    "bench": "run",
    "benchmark": "run",
    "capture": "record",
    "confirm": "apply --confirm",
    "convert": "import",
    "diagnose": "hunt",
    "diff": "compare",
    "dry-run": "plan show",
    "histograms": "record histograms",
    "inventory": "fleet",
    "journal": "rollback --list",
    "notify": "tell",
    "optimise": "tune",
    "optimize": "tune",
    "play": "replay",
    "revert": "rollback",
    "sweep": "run",
    "test": "prove",
    "undo": "rollback",
    "user": "serve user",
}


class _Commands(typer.core.TyperGroup):
    """All commands; those of modules that are not imported have only their summary."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in GUESSES and args[0] not in self.commands:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{GUESSES[args[0]]}'?")
        return super().resolve_command(ctx, args)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {
            name: self.commands.get(name) or typer.core.TyperCommand(name, short_help=summary)
            for words in COMMANDS.values()
            for name, summary in words.items()
        }

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """By what people come for."""
        width = max(map(len, self.commands)) + 2
        for group, names in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), self.summary(name)) for name in names], col_spacing=0)

    def summary(self, name: str) -> str:
        """The one line that says what a command does."""
        return next(words[name] for words in COMMANDS.values() if name in words)


_with_its_type = typer.core.TyperOption.display_type


def _kind(option: typer.core.TyperOption, context: Any) -> str:
    """What an option without a name for its value takes, in a word of the manual instead of Python's types."""
    kind = option.type_descriptor
    if kind.is_choice or kind.is_tuple or kind.is_datetime:
        return _with_its_type(option, context)
    words = {"int": "NUMBER", "float": "NUMBER", "Path": "FILE"}
    return words.get(option.bare_type().removeprefix("list[").removesuffix("]"), "TEXT")


# typer has no setting for it.
setattr(typer.core.TyperOption, "display_type", _kind)  # noqa: B010
setattr(typer.core.TyperArgument, "display_type", lambda *_: "")  # noqa: B010

#: How characters that an output's encoding lacks are written.
PLAINER = "headrace-plainer"
_PLAIN = {
    "–": "-",
    "—": "-",
    "−": "-",
    "×": "x",
    "±": "+-",
    "…": "...",
    "·": "-",
    "≥": ">=",
    "≤": "<=",
    "µ": "u",
}

#: Exit codes if what was measured is worse than before, and if the data allow no verdict.
REGRESSION, INCONCLUSIVE = 13, 15

#: A place that is standard output.
MARKDOWN_HERE = "markdown:-"

app = typer.Typer(
    name="headrace",
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Find what limits a MySQL or MariaDB server, test fixes on your workload, and prove the gain.",
    epilog="Start with `headrace doctor`, then `headrace demo`. Exit codes: `headrace docs exit-codes`.",
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
TellOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tell",
        metavar="KIND:PLACE",
        help="Send the verdict to junit:FILE, markdown:FILE, apprise:FILE ... (`headrace docs tell`); "
        "repeatable.",
        show_default=False,
    ),
]


def writable(path: Path | None) -> Path | None:
    """Refuse now what would fail after the work, which may take hours."""
    if path is not None:
        if path.is_dir():
            raise typer.BadParameter(f"{path} is a directory: name a file in it")
        if not path.parent.is_dir():
            raise typer.BadParameter(f"there is no directory {path.parent}")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise typer.BadParameter(f"{path} cannot be written: permission denied")
    return path


PageFile = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write an HTML report.", callback=writable),
]
TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        help="local, user@host[:port][+sudo], exec:COMMAND (runs sh there), or a directory with a saved host.",
    ),
]


RESTORING = "stopping: restoring the host first ..."
#: Whether this command has printed JSON.
_answers: list[bool] = []


def main() -> None:
    """Entry point: run the command and turn an error into one clear message and its exit code."""
    codecs.register_error(PLAINER, _plainer)
    _answers.clear()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=PLAINER)
    try:
        # With standalone_mode=False, typer returns the code of an Exit instead of ending the process.
        code = app(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except HeadraceError as error:
        _fail(error)
    except ModuleNotFoundError as error:
        absent = extras.missing(error.name or "")
        if absent is None:
            raise
        _fail(absent)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:  # `| head` closed the pipe
        _forget_output()
    except OSError as error:
        if (told := _of_a_file(error)) is None:
            raise
        _fail(told)
    except Exception as error:
        # click's usage errors print themselves and have an exit code.
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        code = int(getattr(error, "exit_code", 2))
        format_message = getattr(error, "format_message", error.__str__)
        _error_json(WrongArguments(format_message()), code)
        sys.exit(code)


def _of_a_file(error: OSError) -> HeadraceError | None:
    """None for what is no file's, which would be a defect of ours."""
    if no_room(error):
        place = error.filename or ("standard output" if _output_is_full() else None)
        _forget_output()
        where = "" if place else " (df -h names the full disk)"
        hint = f"free some space{where}, then run the same command again"
        return DiskFull("no space left", place=None if place is None else str(place), hint=hint)
    if not isinstance(error.filename, str):
        return None
    # A name in a directory of others may become another thing between any two looks at it.
    return StoreError(error.strerror or str(error), place=error.filename)


def _output_is_full() -> bool:
    """Whether standard output leads to a disk without room, or to a device without any."""
    try:
        output = os.fstat(sys.stdout.fileno())
        if stat.S_ISREG(output.st_mode):
            return os.fstatvfs(sys.stdout.fileno()).f_bavail == 0
        is_null = output.st_rdev == Path(os.devnull).stat().st_rdev
        return stat.S_ISCHR(output.st_mode) and not is_null and not sys.stdout.isatty()
    except (OSError, ValueError):
        return True


def _plainer(error: UnicodeError) -> tuple[str, int]:
    """What a terminal without a character gets instead of it: a locale of C is no reason to end."""
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in missing), error.end


def _forget_output() -> None:
    """Python writes what is left at exit, and would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: HeadraceError) -> NoReturn:
    stderr().print(_error_text(error), soft_wrap=True, highlight=False)
    _error_json(error, error.exit_code)
    sys.exit(error.exit_code)


def _error_json(error: HeadraceError, code: int) -> None:
    """With ``--json``, a program that reads standard output gets the error there, too, unless it has its answer:
    two documents would be none to its parser."""
    if "--json" not in sys.argv[1:] or _answers:
        return
    told = {"message": error.message, "place": error.place, "try": error.hint, "exit_code": code}
    print_json({"error": told})


def _error_text(error: HeadraceError) -> Any:
    from rich.text import Text

    from headrace.show.text import clean, clean_lines

    # A message may quote a server or a file: it must not reach the terminal as an escape sequence.
    text = Text.assemble(("headrace: ", "bold red"))
    if error.place:
        text.append(f"{clean(error.place)}: ", style="bold")
    text.append(clean_lines(error.message))
    if error.hint:
        text.append(f"\n  try: {clean(error.hint)}", style="cyan")
    return text


def stderr() -> Console:
    from headrace.cli.screen import Screen

    return Screen(stderr=True)


def stdout() -> Console:
    from headrace.cli.screen import Screen

    return Screen()


def print_json(content: Any) -> None:
    """Everything that ``--json`` prints."""
    typer.echo(json_text(content, indent=2))
    _answers.append(True)


def say(page: Page, as_json: bool) -> None:
    """Print a report: its short form, or its JSON."""
    from headrace.show import jsonform, terminal

    if as_json:
        print_json(jsonform.render(page))
    else:
        stdout().print(terminal.render(page))


def show(content: Page, as_json: bool, page: Path | None) -> None:
    """Print a report, then write its HTML page: a full disk takes only the page."""
    say(content, as_json)
    if page is not None:
        write_page(page, content)


def write_page(path: Path, page: Page, *, is_private: bool = False) -> None:
    """Write an HTML page and print its path; ``is_private``: readable only by the user."""
    from headrace.show import html
    from headrace.tell.files import write_whole

    write_whole(path, html.render(page), 0o600 if is_private else None)
    stderr().print(f"page: {path}", soft_wrap=True, highlight=False, markup=False)


def opened_places(words: Sequence[str] | None, as_json: bool) -> list[Place]:
    """Where to tell the verdict, checked before the work, which may take hours. Raises PlanError."""
    if not words:
        return []
    from headrace.tell.places import places_of

    if as_json and MARKDOWN_HERE in words:
        raise typer.BadParameter(
            f"--json and --tell {MARKDOWN_HERE} would both write to standard output: name a file for one of "
            "them, such as markdown:/dev/stderr"
        )
    return places_of(words)


def tell_and_exit(notice: Notice, places: Sequence[Place], *, must_tell: bool = False) -> None:
    """Tell the verdict, and end with its exit code. A place that fails is reported; only with ``must_tell`` does
    it change the exit code.
    """
    from headrace.show.notice import Conclusion

    is_told = told(notice, places)
    if notice.conclusion is Conclusion.WORSE:
        raise typer.Exit(REGRESSION)
    if must_tell and not is_told:
        raise typer.Exit(TargetError.exit_code)
    if notice.conclusion is Conclusion.NOT_ENOUGH_DATA:
        raise typer.Exit(INCONCLUSIVE)


def told(notice: Notice, places: Sequence[Place]) -> bool:
    """Tell the verdict, and report places that failed; whether all were told."""
    if not places:
        return True
    from headrace.tell.places import tell as tell_all

    failures = tell_all(notice, places)
    for failure in failures:
        tell(f"not sent to {failure.place}: {failure.error.in_line}")
    return not failures


def run_until_signal(
    work: Callable[[], Coroutine[Any, Any, T]],
    *,
    stopping: str = "stopping ...",
    stopped: str = "stopped",
) -> T:
    """Run, and on Ctrl-C or SIGTERM cancel once and wait until the host is as it was.

    Further signals while restoring are ignored: leaving the host half restored would be worse. A dead disk can
    block it for good, so a further signal prints the way out.
    """

    import asyncio
    import os
    import signal

    if sys.modules.get("pyarrow"):
        from headrace.base.arrow import without_pandas

        without_pandas()

    async def supervised() -> T:
        task = asyncio.ensure_future(work())
        loop = asyncio.get_running_loop()
        way_out = f"kill -9 {os.getpid()}"
        if stopping == RESTORING:
            way_out += ", then headrace rollback"

        def stop() -> None:
            if not task.cancelling():
                stderr().print(f"\n{stopping}", style="yellow")
                task.cancel()
            else:
                stderr().print(
                    f"{stopping} if it never ends: {way_out}", style="yellow", soft_wrap=True, highlight=False
                )

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        if interrupts.was_pressed():
            stop()
        try:
            return await task
        except asyncio.CancelledError:
            console = stderr()
            # On a terminal the cursor is at the end of the progress bar.
            line = "\n" if console.is_terminal else ""
            console.print(f"{line}{stopped}", style="yellow")
            raise typer.Exit(130) from None

    return asyncio.run(supervised())


def run_trials(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run resumable trials; a signal stops them."""
    return run_until_signal(
        work, stopping=RESTORING, stopped="stopped; the host is restored, finished trials are kept"
    )


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
    from headrace.cli.log import log_cleanly

    log_cleanly()


def tell(text: str) -> None:
    """Print progress on standard error."""
    from headrace.show.text import clean

    stderr().print(clean(text), style="yellow", soft_wrap=True, highlight=False, markup=False)


def on_target(address: str | TargetSpec, work: Callable[[Any], Awaitable[T]], *, changes: bool = False) -> T:
    """Connect to a target, run ``work`` on it, and close the connection.

    ``changes``: the work undoes what it has changed if it is stopped.
    """
    from headrace.host.target import TargetSpec, open_target

    async def connected() -> T:
        spec = TargetSpec.parse(address) if isinstance(address, str) else address
        target = open_target(spec, tell)
        await target.connect()
        try:
            return await work(target)
        finally:
            await target.close()

    if changes:
        return run_until_signal(connected, stopping=RESTORING, stopped="stopped; the host is restored")
    return run_until_signal(connected)
