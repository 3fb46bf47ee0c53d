"""The command line. Data on standard output, everything else on standard error; heavy imports are lazy."""

from __future__ import annotations

import importlib
import os
import sys

from headrace import __version__
from headrace.cli import interrupts
from headrace.cli.commands import COMMANDS


def main() -> None:
    """Entry point: see ``shell.main``."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"headrace {__version__}\n")
        return
    interrupts.remember()
    names = {name for words in COMMANDS.values() for name in words}
    # Shell completion needs the options of every command.
    completes = "_HEADRACE_COMPLETE" in os.environ
    load(None if completes else next((word for word in sys.argv[1:] if word in names), ""))
    from headrace.cli import shell

    shell.main()


def load(command: str | None = None) -> None:
    """Register the commands of the module that defines ``command``; None registers all."""
    for module, words in COMMANDS.items():
        if command is None or command in words:
            importlib.import_module(f"headrace.{module}")
