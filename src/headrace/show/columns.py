"""A terminal's table without borders, for commands that print nothing else."""

from __future__ import annotations

from typing import Any

from rich.table import Table


def of_columns(*columns: tuple[str, bool], **looks: Any) -> Table:
    """One (title, is a number) per column. ``looks`` are rich's."""
    table = Table(box=None, pad_edge=False, header_style="bold", **looks)
    for title, is_number in columns:
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    return table
