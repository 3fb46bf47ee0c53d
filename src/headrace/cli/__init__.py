"""The command line. Data on standard output, everything else on standard error; heavy imports are lazy."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping

from headrace import __version__

#: Module -> its commands, in the order of ``headrace --help``. Only the module of the command that was given is
#: imported: building all forty takes as long as starting Python and typer.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "changes": ("apply", "confirm", "rollback", "journal", "knobs"),
    "digest": ("digest",),
    "docs": ("docs",),
    "experiments": ("run", "demo", "sweep", "report", "status", "compare", "plan"),
    "hosts": ("doctor", "facts"),
    "hunt": ("hunt", "rules"),
    "imports": ("import",),
    "lab": ("lab",),
    "ladder": ("ladder",),
    "prove": ("prove",),
    "recording": ("record", "recording"),
    "replay": ("replay",),
    "top": ("top",),
    "tune": ("tune",),
    "watch": ("watch", "audit"),
}


def main() -> None:
    """Entry point: see ``shell.main``."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"headrace {__version__}\n")
        return
    load(sys.argv[1] if len(sys.argv) > 1 else "")
    from headrace.cli import shell

    shell.main()


def load(command: str = "") -> None:
    """Adds the commands of the module that has this one to ``shell.app``; all of them where none has."""
    found = [module for module, words in COMMANDS.items() if command in words]
    for module in found or COMMANDS:
        importlib.import_module(f"headrace.cli.{module}")
