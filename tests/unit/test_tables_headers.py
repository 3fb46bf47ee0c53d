"""Tables with two header lines, and files with several tables: read as they are meant, or a note says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.base.errors import PlanError
from headrace.experiment import foreign
from headrace.experiment.stats.factors import studies_of


def read(folder: Path, text: str, *factors: str, response: str = "tps") -> foreign.Table:
    path = folder / "t.csv"
    path.write_text(text)
    return foreign.read_csv(path, list(factors or ("fs",)), [response])


def values(table: foreign.Table) -> list[tuple[tuple[str, ...], float]]:
    return sorted(
        (tuple(row.levels.values()), value) for row in table.rows for value in row.responses.values()
    )


XFS, EXT4 = ("xfs",), ("ext4",)
RUNS = [(EXT4, 90.0), (EXT4, 91.0), (XFS, 100.0), (XFS, 101.0)]


@pytest.mark.parametrize(
    "text",
    [
        ",tps,,p99,\nfs,run1,run2,run1,run2\nxfs,100,101,5,5.1\next4,90,91,6,6.1\n",
        ",p99,,tps,\nfs,1,2,1,2\nxfs,5,5.1,100,101\next4,6,6.1,90,91\n",
        "fs,tps,\n,run 1,run 2\nxfs,100,101\next4,90,91\n",
    ],
)
def test_repeats_below_one_name(tmp_path: Path, text: str) -> None:
    table = read(tmp_path, text)
    assert values(table) == RUNS
    assert any("2 repeats" in note for note in table.notes), table.notes


def test_levels_below_one_name(tmp_path: Path) -> None:
    text = ",tps,,p99,\nthreads,xfs,ext4,xfs,ext4\n8,100,90,5,6\n16,150,130,7,8\n"
    table = read(tmp_path, text, "threads", "fs")
    assert values(table) == [
        (("16", "ext4"), 130),
        (("16", "xfs"), 150),
        (("8", "ext4"), 90),
        (("8", "xfs"), 100),
    ]
    assert any("stand xfs, ext4" in note for note in table.notes), table.notes


FIRST, SECOND = (
    "fs,tps\nxfs,100\nxfs,101\next4,90\next4,91\n",
    "fs,p99_ms\nxfs,5\nxfs,5.1\next4,6\next4,6.1\n",
)


@pytest.mark.parametrize("between", ["", "\n", "\nlatency,\n", "\nTable 2: latency\n"])
def test_another_table_below_is_left_out_and_named(tmp_path: Path, between: str) -> None:
    table = read(tmp_path, FIRST + between + SECOND)
    assert values(table) == RUNS
    assert any("another table begins there (fs, p99_ms)" in note for note in table.notes), table.notes
    assert values(read(tmp_path, FIRST + between + SECOND, response="p99_ms"))[-1] == (XFS, 5.1)


def test_a_header_that_comes_again_begins_no_other_table(tmp_path: Path) -> None:
    assert values(read(tmp_path, FIRST + FIRST)) == sorted(RUNS * 2)


def test_an_empty_cell_that_may_be_any_level_is_no_guess(tmp_path: Path) -> None:
    text = "fs,load,tps\nxfs,ro,100\n,rw,50\nxfs,ro,101\n,rw,51\next4,ro,90\n,rw,40\n"
    table = read(tmp_path, text)
    with pytest.raises(PlanError, match="the cell of 'fs' is empty"):
        studies_of(table.rows, ["fs"], {"tps": True})
