"""The same four runs as people and their programs write them: encodings, forms, remarks, what is no run."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from headrace.base.errors import PlanError
from headrace.experiment import foreign

RUNS = [("xfs", 1200.5), ("ext4", 900.25), ("xfs", 1210.5), ("ext4", 905.0)]
CSV = "fs,tps\n" + "".join(f"{fs},{tps}\n" for fs, tps in RUNS)


def written(head: str, line: str, foot: str = "") -> str:
    return head + "".join(line.format(fs=fs, tps=tps, n=n) for n, (fs, tps) in enumerate(RUNS, 1)) + foot


def read(folder: Path, text: str | bytes, factor: str = "fs") -> foreign.Table:
    path = folder / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return foreign.read_csv(path, [factor], ["tps"])


@pytest.mark.parametrize(
    ("encoding", "factor", "levels"),
    [
        ("cp1251", "диск", ("быстрый", "медленный")),
        ("koi8-r", "диск", ("быстрый", "медленный")),
        ("shift_jis", "ディスク", ("高速", "低速")),
        ("euc_jp", "ディスク", ("高速", "低速")),
        ("gb18030", "磁盘", ("快速", "慢速")),
        ("big5", "磁碟", ("快速", "慢速")),
        ("euc_kr", "디스크", ("빠름", "느림")),
        ("cp1252", "système", ("été", "août")),
        ("cp1253", "δίσκος", ("γρήγορος", "αργός")),
        ("cp1250", "úložiště", ("rychlé", "pomalé")),
    ],
)
def test_the_encoding_is_the_one_in_which_words_are_words(
    tmp_path: Path, encoding: str, factor: str, levels: tuple[str, str]
) -> None:
    text = f"{factor};tps\n{levels[0]};1200,5\n{levels[1]};900,25\n{levels[0]};1210,5\n"
    table = read(tmp_path, text.encode(encoding), factor)
    assert [(row.levels[factor], row.responses["tps"]) for row in table.rows] == [
        (levels[0], 1200.5),
        (levels[1], 900.25),
        (levels[0], 1210.5),
    ]
    assert "not UTF-8: read as " in table.notes[0]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", CSV + "Итого,4216.25\n"),
        ("shift_jis", CSV.replace("\n", ",測定\n") + "合計,4216.25,\n"),
        ("gb18030", CSV.replace("\n", ",测量\n") + "平均值,1054.06,\n"),
    ],
)
def test_a_total_is_known_whatever_the_encoding(tmp_path: Path, encoding: str, text: str) -> None:
    assert len(read(tmp_path, text.encode(encoding)).rows) == 4


@pytest.mark.parametrize(
    "text",
    [
        written("'fs','tps'\n", "'{fs}','{tps}'\n"),
        written("     fs      tps\n", "{n}  {fs:>5}  {tps:8.2f}\n"),
        written("# A tibble: 4 × 2\n  fs      tps\n  <chr> <dbl>\n", "{n} {fs:<5} {tps}\n"),
        written("│ fs   ┆ tps │\n│ ---  ┆ --- │\n│ str  ┆ f64 │\n╞══════╪═════╡\n", "│ {fs} ┆ {tps} │\n"),
        written("┌──┬──┐\n│ fs │ tps │\n│ varchar │ double │\n├──┼──┤\n", "│ {fs} │ {tps} │\n", "└──┴──┘\n"),
        written("", "    fs = {fs}\n   tps = {tps}\n\n"),
        written("", "-[ RECORD {n} ]\nfs  | {fs}\ntps | {tps}\n"),
        written("", "- fs: {fs}\n  tps: {tps}\n"),
        written("", '[[run]]\nfs = "{fs}"\ntps = {tps}\n'),
        written("", "[run{n}]\nfs={fs}\ntps={tps}\n"),
        written("FS    TPS\n----- -------\n", "{fs:5} {tps}\n", "\n4 rows selected.\n"),
        written('{{| class="wikitable"\n! fs !! tps\n'.replace("{{", "{"), "|-\n| {fs} || {tps}\n", "|}\n"),
        written("fs|tps\n", "{fs}|**{tps}**\n"),
        "// results\n[" + ",".join(f'{{"fs": "{fs}", "tps": {tps}}}' for fs, tps in RUNS) + "]",
        CSV + "\nSource: lab 3, 2024\nNote: disks are old, and slow\n# done, ok\n",
        "fs,first,second\nxfs,1200.5,1210.5\next4,900.25,905\n".replace("first", "tps first run").replace(
            "second", "tps second run"
        ),
        "fs,Lauf 1,Lauf 2\nxfs,1200.5,1210.5\next4,900.25,905\n",
        "fs,1回目,2回目\nxfs,1200.5,1210.5\next4,900.25,905\n",
        '{"xfs":{"runs":[{"tps":1200.5},{"tps":1210.5}]},"ext4":{"runs":[{"tps":900.25},{"tps":905}]}}',
        "fs,xfs,ext4,xfs,ext4\ntps,1200.5,900.25,1210.5,905\n",
        "fs,tps\nstring,float\n" + CSV.partition("\n")[2],
        "fs,tps\n[-],[1/s]\n" + CSV.partition("\n")[2],
        *(
            CSV + f'"{word}",4216.25\n'
            for word in ("Tổng", "میانگین", "ค่าเฉลี่ย", "Priemer", "I alt", "∑", "p95", "95% CI", "Best")
        ),
        *(
            f"fs,tps,{column}\n{CSV.partition(chr(10))[2]}".replace("\n", f",{good}\n").replace(
                f"{column},{good}", column
            )
            + f"xfs,12,{bad}\n"
            for column, good, bad in (
                ("статус", "ок", "ошибка"),
                ("Status", "ok", "abgebrochen"),
                ("状态", "成功", "失败"),
                ("run_status", "completed", "did not complete"),
                ("status", "✅", "❌"),
                ("process_exit_code", "0", "143"),
                ("was_killed", "False", "True"),
                ("error_rate", "0", "0.9"),
                ("last_error", "None", "Lost connection to MySQL server"),
                ("success_rate", "100%", "20%"),
                ("include", "TRUE", "FALSE"),
                ("rc", "rc=0", "rc=137"),
                ("is_warmup", "0", "1"),
                ("iteration", "1", "warmup 1"),
                ("Phase", "замер", "прогрев"),
                ("stage", "measure", "ramp"),
            )
        ),
    ],
)
def test_the_same_runs(tmp_path: Path, text: str) -> None:
    table = read(tmp_path, text)
    assert sorted((row.levels["fs"], row.responses["tps"]) for row in table.rows) == sorted(RUNS)


@pytest.mark.parametrize(
    "levels",
    [
        ("xfs", "xfs\u00a0", "XFS\u200b"),
        ("read-committed", "read\u2013committed", "READ COMMITTED"),
        ("xfs", "хfs", "XFS"),
        ("16k", "１６ｋ", "16K"),
    ],
)
def test_levels_that_look_alike_are_one(tmp_path: Path, levels: tuple[str, ...]) -> None:
    table = read(
        tmp_path, "fs,tps\n" + "".join(f"{each},{n}\n" for n, each in enumerate(levels, 900)) + "z,5\n"
    )
    assert len({row.levels["fs"] for row in table.rows}) == 2


@pytest.mark.parametrize(
    ("column", "usual", "other"),
    [
        ("n_threads", "8", "16"),
        ("num_clients", "8", "16"),
        ("io_size", "4k", "64k"),
        ("run_time", "600", "20"),
        ("elapsed_s", "600.1", "20"),
    ],
)
def test_runs_that_differ_in_a_setting_of_any_name_are_refused(
    tmp_path: Path, column: str, usual: str, other: str
) -> None:
    lines = "".join(f"{fs},{tps + n},{usual}\n" for n in range(2) for fs, tps in RUNS)
    text = f"fs,tps,{column}\n{lines}xfs,7,{other}\next4,8,{other}\n"
    with pytest.raises(PlanError, match=f"the runs differ in {column}"):
        read(tmp_path, text)


def test_other_circumstances_that_differ_are_named(tmp_path: Path) -> None:
    text = written("fs,tps,mysql_version\n", "{fs},{tps},8.0\n") + written("", "{fs},{tps},8.4\n")
    assert any("mysql_version differs between runs" in note for note in read(tmp_path, text).notes)


def test_lines_that_sum_up_runs(tmp_path: Path) -> None:
    table = read(tmp_path, "fs,tps,cv%,n\nxfs,100,2,5\next4,90,3,5\n")
    assert len(table.rows) == 10
    table = read(tmp_path, "fs,tps,min,max,n\nxfs,100,90,110,5\next4,90,80,100,5\n")
    assert any("each line sums up several runs" in note for note in table.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<?xml version='1.0'?><runs/>", "XML: not read"),
        ("INSERT INTO r (fs, tps) VALUES ('xfs', 1);", "mysql --batch"),
        ('tps{fs="xfs"} 1200\n', "Prometheus"),
        ('# TYPE tps gauge\ntps{fs="xfs"} 1200\n', "Prometheus"),
        ('{"cells": [{"outputs": ["<table><tr><td>xfs</td></tr></table>"]}], "nbformat": 4}', "to_csv"),
        ("bench,fs=xfs tps=1200 1700000000\n", "InfluxDB"),
        ("@relation r\n@data\nxfs,1\n", "ARFF"),
    ],
)
def test_other_forms_are_named_with_what_makes_a_table_of_them(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        read(tmp_path, text)


def test_a_line_of_names_and_values_is_a_run(tmp_path: Path) -> None:
    for text in (
        "fs: {fs}, run: 1, tps: {tps}\n",
        "fs: {fs}; tps: {tps}\n",
        "level=info fs={fs} tps={tps}\n",
    ):
        rows = read(tmp_path, written("", text)).rows
        assert [(row.levels["fs"], row.responses["tps"]) for row in rows] == RUNS
    with pytest.raises(PlanError):
        read(tmp_path, written("", "tps of {fs}: {tps}, at 12:30:10\n"))


def test_approximate_numbers_are_counted(tmp_path: Path) -> None:
    table = read(tmp_path, CSV + "xfs,~1200\n")
    assert any("1 number marked as approximate" in note for note in table.notes)


def test_columns_of_an_unknown_word_are_a_question(tmp_path: Path) -> None:
    """Two servers were two runs of one treatment."""
    with pytest.raises(PlanError, match="columns server 1, server 2 may be levels, or runs of tps"):
        read(tmp_path, "fs,server 1,server 2\nxfs,1,2\next4,3,4\n")


def test_a_level_may_be_called_as_a_summary_is(tmp_path: Path) -> None:
    """``all`` beside ``none`` was left out as the sum of the others."""
    table = read(tmp_path, "fs,tps\nall,1\nnone,2\nall,3\nnone,4\nall,3\nnone,4\n")
    assert len(table.rows) == 6
    assert len(read(tmp_path, CSV + "all,4216.25\n").rows) == 4


@pytest.mark.parametrize("clock", ["[{}s]", "{}-9"])
def test_intervals_are_seconds_of_a_run(tmp_path: Path, clock: str) -> None:
    lines = "".join(f"{fs},{clock.format(s)},{900 + s % 7}\n" for fs in ("xfs", "ext4") for s in range(40))
    with pytest.raises(PlanError, match="one line per"):
        read(tmp_path, "fs,interval,tps\n" + lines)


@pytest.mark.parametrize("cell", ["OOM-killed after 30s", "pending", "#ЗНАЧ!", "нет данных"])
def test_cells_without_a_value(tmp_path: Path, cell: str) -> None:
    table = read(tmp_path, f"{CSV}xfs,{cell}\n")
    assert [len(row.responses) for row in table.rows] == [1, 1, 1, 1, 0]


@pytest.mark.parametrize(
    "text",
    [
        written("# A tibble: 4 × 3\n  fs      run   tps\n  <chr> <dbl> <dbl>\n", "{n} {fs:5} {n:5} {tps:7}\n"),
        written("runs:\n", "  - fs: {fs}\n    run: {n}\n    tps: {tps}\n"),
        written("fs,run,tps\n", '{fs},{n},"{tps} [890.5, 1220]"\n'),
        written(
            "┌──────┬────────┐\n│ fs   ┆ tps    │\n│ ---  ┆ ---    │\n│ str  ┆ f64    │\n╞══════╪════════╡\n",
            "│ {fs:4} ┆ {tps:6} │\n",
            "└──────┴────────┘\n",
        ),
    ],
    ids=["a tibble", "YAML below a key", "an interval behind each", "polars"],
)  # fmt: skip
def test_what_is_around_a_table_is_not_in_the_way(tmp_path: Path, text: str) -> None:
    table = read(tmp_path, text)
    assert [(row.levels["fs"], row.responses["tps"]) for row in table.rows] == RUNS
    assert not any("read as one" in note for note in table.notes)


def test_a_table_of_more_lines_than_anybody_has_runs_is_refused(tmp_path: Path) -> None:
    """A file of 50 kB unpacks to two million lines, which would take minutes."""
    packed = gzip.compress(b"fs,tps\n" + b"xfs,1000\n" * 2_000_000)
    with pytest.raises(PlanError, match="a line for each run"):
        read(tmp_path, packed)
