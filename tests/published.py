"""The published tables of the founding study, as numbers: MB/s by (kernel, file system, RAID chunk)."""

from __future__ import annotations

import csv
from pathlib import Path

FOLDER = Path(__file__).parent / "published"

#: Kernel, file system with its mount option, chunk.
Cell = tuple[str, ...]


def table(name: str, column: str) -> dict[Cell, float]:
    with (FOLDER / f"{name}.csv").open() as file:
        return {
            (row["kernel"], row["filesystem"], row["raid_chunk"]): float(row[column])
            for row in csv.DictReader(file)
        }


def random_reads() -> dict[Cell, float]:
    return table("pinterest-2015-async-rndrd", "read_mb_s")


def random_writes() -> dict[Cell, float]:
    return table("pinterest-2015-async-rndwr", "write_mb_s")
