"""The history of hosts: minutes in Parquet, rolled up to hours and days, by day and host.

``tables`` says what is kept and how rows add up; ``files`` names, writes and lists; ``rollup`` turns minutes into
hours and days and deletes by age and size; ``reader`` answers questions. Any engine can read the files.
"""

from pathlib import Path


def is_archive(path: Path) -> bool:
    """Whether `headrace serve` keeps its history there. Here, where asking imports no Arrow."""
    return (path / "states").is_dir()
