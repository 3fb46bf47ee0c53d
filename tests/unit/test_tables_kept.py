"""Tables as people and their programs keep them: the same four runs, and what is none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.base.errors import PlanError
from headrace.experiment import foreign

RUNS = [("xfs", 1234.5), ("ext4", 1001.25), ("xfs", 1250.5), ("ext4", 998.75)]
CSV = "fs,tps\n" + "".join(f"{fs},{tps}\n" for fs, tps in RUNS)
MARKDOWN = "| fs | tps |\n|---|---|\n" + "".join(f"| {fs} | {tps} |\n" for fs, tps in RUNS)


def read(folder: Path, text: str, factor: str = "fs", response: str = "tps") -> foreign.Table:
    path = folder / "t.csv"
    path.write_text(text)
    return foreign.read_csv(path, [factor], [response])


@pytest.mark.parametrize(
    "text",
    [
        CSV + "NULL,1121.25\n",
        CSV + "(all),4485\n",
        CSV + "各組,1121.25\n",
        CSV + ",1121.25\n",
        CSV + "Desv. estándar,140.1\n",
        CSV.replace("\n", ",\n")
        .replace(",tps,", ",tps,備考")
        .replace("998.75,", "998.75,\next4,12,測定失敗"),
        CSV.replace("\n", ",\n").replace("tps,", "tps,comment") + 'xfs,12,"backup was running, ignore"\n',
        "".join(f"> {line}\n" for line in MARKDOWN.splitlines()),
        MARKDOWN + "| ~~xfs~~ | ~~12~~ |\n",
        '{| class="wikitable"\n! fs !! tps\n'
        + "".join(f"|-\n| {fs} || {{{{good|{tps}}}}}\n" for fs, tps in RUNS)
        + "|}\n",
        "fs & tps \\\\\n" + "".join(f"{fs} & \\textbf{{{tps}}} \\\\\n" for fs, tps in RUNS),
        "      fs     tps\n1    xfs 1234.50\n2   ext4 1001.25\n3    xfs 1250.50\n4   ext4  998.75\n",
    ],
)
def test_the_four_runs_and_nothing_else(tmp_path: Path, text: str) -> None:
    table = read(tmp_path, text)
    assert [(row.levels["fs"], row.responses["tps"]) for row in table.rows] == RUNS


def test_a_level_that_stands_once_is_a_level_unless_it_sums_up_the_others(tmp_path: Path) -> None:
    assert len(read(tmp_path, CSV + "btrfs,1130.5\n").rows) == 5
    assert len(read(tmp_path, CSV + "none,1121.25\nnone,1000\n").rows) == 6


@pytest.mark.parametrize(
    ("levels", "count"),
    [
        (("1m", "60s", "1min"), 1),
        (("1m30s", "90 sec", "1.5 minutes"), 1),
        (("2h", "120 Minuten", "2 heures"), 1),
        (("1 мин", "60 с", "60 сек"), 1),
        (("1d", "24h", "1 day"), 1),
        (("1m", "16k", "1M"), 2),
        (("ja", "1", "Ja"), 1),
        (("oui", "non", "on"), 2),
    ],
)
def test_levels_that_mean_the_same_are_one(tmp_path: Path, levels: tuple[str, ...], count: int) -> None:
    text = "fs,tps\n" + "".join(f"{level},{tps}\n" for level in levels * 2 for tps in (1, 2))
    assert len({row.levels["fs"] for row in read(tmp_path, text).rows}) == count


@pytest.mark.parametrize(
    ("one", "other"), [("2025-01-02", "02.01.2025"), ("2/1/25", "2025-01-02"), ("16.384", "16384")]
)
def test_levels_that_may_be_the_same_are_named(tmp_path: Path, one: str, other: str) -> None:
    table = read(tmp_path, f"fs,tps\n{one},1\n{other},2\n{one},1.5\n{other},2.5\n")
    assert f"fs: {one!r} and {other!r} are counted as 2 levels: write them alike if they are one" in [
        note.removeprefix("t.csv: ") for note in table.notes
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CSV.replace("1234.5", "1m").replace("998.75", "900us"), "could be 1 ms or 1 min"),
        ("     fs     tps\n0   xfs  1234.5\n..  ...     ...\n39 ext4   998.7\n", "the dots stand for rows"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said) as error:
        read(tmp_path, text)
    assert error.value.hint


def test_what_stands_between_two_tables_is_named(tmp_path: Path) -> None:
    table = read(tmp_path, f"{MARKDOWN}\nafter the reboot:\n\n{MARKDOWN}")
    assert any("2 tables are read as one" in note and "after the reboot" in note for note in table.notes)


def test_an_empty_level_is_named(tmp_path: Path) -> None:
    assert any(
        "fs is empty in line 6: counted as a level" in note for note in read(tmp_path, CSV + ",700\n").notes
    )
