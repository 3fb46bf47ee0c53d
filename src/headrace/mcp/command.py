"""The command ``mcp``: evidence for assistants."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.base import extras
from headrace.cli.shell import app


@app.command(
    epilog="Example: headrace mcp experiments",
)
def mcp(
    root: Annotated[
        Path,
        typer.Argument(help="Only files below this directory can be read.", metavar="[DIRECTORY]"),
    ] = Path("."),
) -> None:
    """Serve saved evidence to assistants: Model Context Protocol on standard input and output; only reads."""
    extras.require("mcp")
    from headrace.mcp.server import build

    build(root).run("stdio")
