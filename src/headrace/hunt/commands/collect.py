"""``headrace collect``: the script for hosts where nothing may be installed."""

from __future__ import annotations

import sys
from importlib.resources import files

from headrace.cli.shell import app


@app.command(
    epilog="Example: headrace collect > collect.sh, there sh collect.sh -s 30, here headrace hunt --from DIRECTORY"
)
def collect() -> None:
    """Print a shell script that writes what a hunt needs into a directory, where nothing may be installed."""
    sys.stdout.write((files("headrace.hunt.dumps") / "collect.sh").read_text())
