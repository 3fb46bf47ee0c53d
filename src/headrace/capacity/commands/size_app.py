"""The group ``size``: how much hosts carry, when they are full, what to merge, and the proof."""

from __future__ import annotations

import typer

from headrace.cli.shell import app

size_app = typer.Typer(
    no_args_is_help=True,
    help="Capacity: what calls cost, how full hosts are, when they fill up, what to merge, and the proof.",
)
app.add_typer(size_app, name="size")
