"""What tables once gave a wrong value for without a word: it is right, or said, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.base.errors import PlanError
from headrace.experiment import foreign
from headrace.experiment.foreign import alike

RUNS = [
    ("xfs", 1234.5),
    ("ext4", 1001.25),
    ("xfs", 1250.5),
    ("ext4", 998.75),
    ("xfs", 1241.0),
    ("ext4", 1003.5),
]
CSV = "fs,tps\n" + "".join(f"{fs},{tps}\n" for fs, tps in RUNS)


def read(folder: Path, text: str, response: str = "tps") -> foreign.Table:
    path = folder / "t.csv"
    path.write_text(text)
    return foreign.read_csv(path, ["fs"], [response])


def values(table: foreign.Table) -> list[tuple[str, float]]:
    return sorted((row.levels["fs"], value) for row in table.rows for value in row.responses.values())


def with_column(name: str, usual: str, other: str) -> str:
    lines = "".join(f"{fs},{tps},{usual}\n" for fs, tps in RUNS)
    return f"fs,tps,{name}\n{lines}xfs,12,{other}\n"


@pytest.mark.parametrize(
    ("column", "usual", "other"),
    [
        ("completion", "full", "partial"), ("Status", "Done", "Lost connection"),
        ("state", "COMPLETED", "EVICTED"),
        ("job_state", "COMPLETED", "NODE_FAIL"), ("status", "ok", "-"), ("status", "ok (3 warnings)", "degraded"),
        ("status", "Completed in 60 s", "completed 43%"), ("state", "Finished", "exited (137)"),
        ("run ok?", "Y", "N"), ("% complete", "100", "43"), ("progress", "100%", "61%"),
        ("finished_at", "2026-01-01 10:00", ""), ("PASS/FAIL", "PASS", "FAIL"),
    ],
)  # fmt: skip
def test_a_run_that_does_not_say_that_it_ended_well_is_left_out(
    tmp_path: Path, column: str, usual: str, other: str
) -> None:
    table = read(tmp_path, with_column(column, usual, other))
    assert values(table) == sorted(RUNS)
    assert "line 8" in table.notes[0]


@pytest.mark.parametrize(
    ("column", "usual", "other"),
    [
        ("comment", "", "server restarted in the middle"), ("flag", "", "RETRY"), ("core_dumped", "no", "yes"),
        ("http status", "200", "500"), ("completed_requests", "100000", "1200"), ("outcome", "1/1", "0/1"),
        ("warnings", "", "disk full"),
    ],
)  # fmt: skip
def test_what_one_run_has_and_the_others_have_not_is_named(
    tmp_path: Path, column: str, usual: str, other: str
) -> None:
    table = read(tmp_path, with_column(column, usual, other))
    assert len(table.rows) == 7
    assert any(f"{column} is {other!r} in line 8, and {usual or 'empty'}" in note for note in table.notes)


@pytest.mark.parametrize(
    ("column", "usual", "other"),
    [
        ("rows", "10M", "1M"), ("distribution", "uniform", "zipf"), ("buffer_pool", "8G", "1G"),
        ("think_time", "0", "1"), ("time", "600", "30"), ("test", "oltp_read_only", "oltp_write_only"),
    ],
)  # fmt: skip
def test_a_setting_of_any_name_that_differs_within_a_level_is_named(
    tmp_path: Path, column: str, usual: str, other: str
) -> None:
    lines = "".join(f"{fs},{other if n < 2 else usual},{tps}\n" for n, (fs, tps) in enumerate(RUNS))
    table = read(tmp_path, f"fs,{column},tps\n{lines}")
    assert any(f"{column} differs between runs of the same levels" in note for note in table.notes)


@pytest.mark.parametrize("column", ["p99_ms", "rep", "round", "cpu_pct", "tag"])
def test_measurements_and_repeats_are_no_settings(tmp_path: Path, column: str) -> None:
    lines = "".join(f"{fs},{n // 2},{tps}\n" for n, (fs, tps) in enumerate(RUNS))
    assert read(tmp_path, f"fs,{column},tps\n{lines}").notes == ()


@pytest.mark.parametrize(
    "column",
    ["nproc", "depth", "Anzahl Threads", "concurrency level", "config.threads", "потоки", "test length (s)"],
)
def test_threads_depth_and_length_are_known_by_other_names(tmp_path: Path, column: str) -> None:
    lines = "".join(f"{fs},{64 if n < 2 else 8},{tps}\n" for n, (fs, tps) in enumerate(RUNS))
    with pytest.raises(PlanError, match="the runs differ in"):
        read(tmp_path, f"fs,{column},tps\n{lines}")


@pytest.mark.parametrize(
    "line",
    [
        "Speed-up,1.24", "xfs/ext4,1.241", "xfs vs. ext4,1.241", "AVERAGE(xfs),1242", "μ(xfs),1242", "RMS,1120",
        "skewness,0.2", "Varianz,12", "95% confidence,12", "hmean,1100", "t-stat,3.1", "p=0.001,3", "n=6,6",
        "FS,TPS",
    ],
)  # fmt: skip
def test_figures_about_the_runs_are_no_runs(tmp_path: Path, line: str) -> None:
    assert values(read(tmp_path, f"{CSV}{line}\n")) == sorted(RUNS)


def test_a_level_that_stands_once_among_repeats_is_named(tmp_path: Path) -> None:
    assert any(
        "fs = 'btrfs' stands once, in line 8" in note for note in read(tmp_path, CSV + "btrfs,1130\n").notes
    )
    assert read(tmp_path, CSV + "btrfs,1130\nbtrfs,1131\n").notes == ()


@pytest.mark.parametrize(
    "pair",
    [
        ("10k", "10000"), ("300s", "00:05:00"), ("16 threads", "16 thread"), ("8 cores", "8-core"),
        ("wal=on", "wal=1"), ("1,5", "1.5"), ("sched=none", "sched: none"), ("(none)", "none"), ("xfs.", "xfs"),
        ("xfs", "XFS (default)"), ("8t", "8 threads"), ("v8.0.36", "8.0.36"), ("zstd-3", "zstd-03"),
    ],
)  # fmt: skip
def test_levels_that_marks_alone_tell_apart_are_named(pair: tuple[str, str]) -> None:
    lines = [(f"t:{n}", {"x": text}) for n, text in enumerate(pair * 2)]
    (note,) = alike.unified(lines, ["x"])
    assert "are counted as 2 levels: write them alike if they are one" in note


@pytest.mark.parametrize(
    "pair", [("10.1", "10.10"), ("v1.2", "v12"), ("1-2", "12"), ("a-1", "a1"), ("8", "16")]
)
def test_marks_between_digits_tell_levels_apart(pair: tuple[str, str]) -> None:
    lines = [(f"t:{n}", {"version": text}) for n, text in enumerate(pair * 2)]
    assert alike.unified(lines, ["version"]) == []


@pytest.mark.parametrize(
    "clock",
    [
        "Jan 01 10:00:{:02}", "10:00:{:02} AM", "01/Jan/2026:10:00:{:02} +0000", "01.01.2026 10:00:{:02}",
        "17672256{:02}", "17672256{:02}000",
    ],
)  # fmt: skip
def test_seconds_are_known_by_any_date(tmp_path: Path, clock: str) -> None:
    lines = "".join(f"{fs},{clock.format(t)},{1000 + t % 7}\n" for fs in ("xfs", "ext4") for t in range(40))
    with pytest.raises(PlanError, match="one line per when"):
        read(tmp_path, f"fs,when,tps\n{lines}")


@pytest.mark.parametrize(
    ("column", "clock"),
    [
        ("Date", "Sun Nov 29 20:12:{:02} UTC 2026"), ("T+", "T+{}"), ("Uhrzeit", "20.12.{:02}"),
        ("ts_ns", "17672256{:02}000000000"),
    ],
)  # fmt: skip
def test_seconds_are_known_by_the_column_in_any_form(tmp_path: Path, column: str, clock: str) -> None:
    lines = "".join(f"{fs},{clock.format(t)},{1000 + t % 7}\n" for fs in ("xfs", "ext4") for t in range(40))
    with pytest.raises(PlanError, match="one line per"):
        read(tmp_path, f"fs,{column},tps\n{lines}")


def test_times_that_fall_are_seconds_and_starts_of_runs_are_none(tmp_path: Path) -> None:
    falling = "".join(f"{fs},{40 - t},{1000 + t % 7}\n" for fs in ("xfs", "ext4") for t in range(40))
    with pytest.raises(PlanError, match="one line per second"):
        read(tmp_path, f"fs,second,tps\n{falling}")
    starts = "".join(f"{('xfs', 'ext4')[n % 2]},{1767225600 + 65 * n},{1000 + n % 7}\n" for n in range(40))
    assert len(read(tmp_path, f"fs,timestamp,tps\n{starts}").rows) == 40


@pytest.mark.parametrize(
    "text",
    [
        "fs,tps,tps.1,tps.2\nxfs,1234.5,1250.5,1241\next4,1001.25,998.75,1003.5\n",
        "rep,xfs_tps,ext4_tps\n1,1234.5,1001.25\n2,1250.5,998.75\n3,1241,1003.5\n",
        "rep,tps[xfs],tps[ext4]\n1,1234.5,1001.25\n2,1250.5,998.75\n3,1241,1003.5\n",
        "fs,rep,type,value\n" + "".join(f"{fs},{n},tps,{v}\n{fs},{n},p99,3\n" for n, (fs, v) in enumerate(RUNS)),
        "".join(f'\x1e{{"fs": "{fs}", "tps": {tps}}}\n' for fs, tps in RUNS),
        "".join(f"fs={fs}, tps={tps}\n" for fs, tps in RUNS),
        "| fs | tps |\n|--|--|\n" + "".join(f"| [{fs}](http://x/{fs})<br> | {tps} |\n" for fs, tps in RUNS),
    ],
)  # fmt: skip
def test_all_six_runs_of_other_shapes(tmp_path: Path, text: str) -> None:
    assert values(read(tmp_path, text)) == sorted(RUNS)


@pytest.mark.parametrize("column", ["Einheit", "uom", "lat_unit", "единица", "单位"])
def test_a_column_of_units_is_known_by_other_names(tmp_path: Path, column: str) -> None:
    table = read(tmp_path, f"fs,lat,{column}\nxfs,1.2,ms\nxfs,1300,us\next4,1.5,ms\n", "lat")
    assert [value for _, value in values(table)] == pytest.approx([1.5, 1.2, 1.3])


@pytest.mark.parametrize(
    ("header", "cells", "said"),
    [
        (
            "fs,tps,ci_low,ci_high,n",
            ("1242,1230,1254,3", "1001,995,1007,3"),
            "each line sums up several runs (n)",
        ),
        (
            "fs,tps,lower,upper",
            ("1242,1230,1254", "1001,995,1007"),
            "each line sums up several runs or values",
        ),
        (
            "fs,tps_min,tps,tps_max",
            ("1230,1242,1254", "995,1001,1007"),
            "each line sums up several runs or values",
        ),
        ("fs,tps,n", ("1242 ± 8,3", "1001 ± 2.4,3"), "what stands after ± is not used"),
        ("fs,tps,n", ("1242 (8),3", "1001 (2.4),3"), "what stands in brackets behind a number is not used"),
        ("fs,tps_mean,tps_var,n", ("1242,64,3", "1001,5.8,3"), "each line is n runs: rebuilt"),
    ],
)
def test_what_sums_up_runs_is_said(tmp_path: Path, header: str, cells: tuple[str, str], said: str) -> None:
    table = read(tmp_path, f"{header}\nxfs,{cells[0]}\next4,{cells[1]}\n")
    assert any(said in note for note in table.notes)


@pytest.mark.parametrize("column", ["Total", "diff %", "xfs/ext4", "mean"])
def test_a_column_about_the_levels_beside_it_is_no_level(tmp_path: Path, column: str) -> None:
    table = read(tmp_path, f"rep,xfs,ext4,{column}\n1,1000,900,1900\n2,1010,905,1915\n")
    assert {row.levels["fs"] for row in table.rows} == {"xfs", "ext4"}
    assert any(f"{column} are not" in note for note in table.notes)


def test_a_tick_that_a_run_lacks_is_named(tmp_path: Path) -> None:
    lines = CSV.strip().split("\n")
    text = "\n".join([f"{lines[0]},done", *(f"{line},x" for line in lines[1:]), f"{lines[-1]},"])
    assert any("done is empty in line" in note for note in read(tmp_path, text).notes)


@pytest.mark.parametrize("mark", ["〃", "''", "ditto", "-//-", "同上"])
def test_a_ditto_mark_is_the_level_above(tmp_path: Path, mark: str) -> None:
    kept = sorted(RUNS)
    text = "fs,tps\n" + "".join(
        f"{mark if n and kept[n - 1][0] == fs else fs},{tps}\n" for n, (fs, tps) in enumerate(kept)
    )
    table = read(tmp_path, text)
    assert values(table) == kept
    assert "fs: 4 cells with a ditto mark hold the level above" in table.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"> {line}\n" for line in CSV.splitlines()) + "regards\n",
        CSV.replace("fs,tps", "\x1b[1mfs,tps\x1b[0m").replace("xfs,", "\x1b[32mxfs\x1b[0m,"),
        "run,xfs tps,ext4 tps\n1,1234.5,1001.25\n2,1250.5,998.75\n3,1241.0,1003.5\n",
    ],
)
def test_marks_around_a_table_are_no_part_of_its_levels(tmp_path: Path, text: str) -> None:
    assert values(read(tmp_path, text)) == sorted(RUNS)


@pytest.mark.parametrize(
    "last",
    ["ERROR 2013 (HY000): Lost connection to MySQL server during query", "Killed", "^C", "bash: Broken pipe"],
)
def test_what_broke_off_the_table_is_named(tmp_path: Path, last: str) -> None:
    assert any("lines may be missing" in note for note in read(tmp_path, f"{CSV}{last}\n").notes)


def test_a_diff_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="a diff: not read"):
        read(tmp_path, f"--- a/t.csv\n+++ b/t.csv\n@@ -1,2 +1,7 @@\n {CSV}-xfs,9\n+xfs,1200\n")


def test_a_file_that_was_joined_with_itself_has_each_run_once(tmp_path: Path) -> None:
    numbered = "fs,tps,run\n" + "".join(f"{fs},{tps},{n}\n" for n, (fs, tps) in enumerate(RUNS))
    for text in (CSV * 2, numbered * 2, numbered + numbered.splitlines()[3] + "\n"):
        table = read(tmp_path, text)
        assert values(table) == sorted(RUNS)
        assert any(": left out as " in note for note in table.notes)


def test_equal_values_of_coarse_runs_are_repeats(tmp_path: Path) -> None:
    text = "fs,tps\n" + "xfs,3\next4,2\nxfs,3\nxfs,4\next4,2\nxfs,3\next4,2\n"
    assert len(read(tmp_path, text).rows) == 7
    assert len(read(tmp_path, text.replace("\n", ",1\n").replace("tps,1", "tps,run")).rows) == 7


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_quote_as_a_ditto_mark_takes_no_lines(tmp_path: Path, separator: str) -> None:
    """Of two such cells, the first would open a text that ends in the second."""
    rows = [("xfs", 1234.5), ('"', 1250.5), ('"', 1241.0), ("ext4", 1001.25), ('"', 998.75), ('"', 1003.5)]
    for kept in (rows, [*rows[:4], ("ext4", 998.75), rows[5]]):
        text = "".join(f"{level}{separator}{tps}\n" for level, tps in [("fs", "tps"), *kept])
        table = read(tmp_path, text)
        assert values(table) == sorted(RUNS)
        assert any("with a ditto mark hold the level above" in note for note in table.notes)


def test_a_quote_that_is_not_closed_takes_no_lines(tmp_path: Path) -> None:
    table = read(tmp_path, CSV.replace("ext4,1001.25", '"ext4,1001.25'))
    assert (values(table), table.notes) == (
        sorted(RUNS),
        ("t.csv: a quote in line 3 is not closed, and left out",),
    )
    # A remark may go on in the next line.
    text = "".join(f'{fs},{tps},"one,\ntwo"\n' for fs, tps in RUNS)
    assert values(read(tmp_path, f"fs,tps,remark\n{text}")) == sorted(RUNS)


@pytest.mark.parametrize("cell", ["#NV", "#N/D", "#Н/Д", "######", "#¡DIV/0!", "#BEZUG!"])
def test_what_a_spreadsheet_could_not_work_out_is_no_number(tmp_path: Path, cell: str) -> None:
    table = read(tmp_path, f"{CSV}xfs,{cell}\n")
    assert values(table) == sorted(RUNS)
    assert "no tps in line 8: left out" in table.notes[0]


@pytest.mark.parametrize(
    ("levels", "is_said"),
    [
        (["2026-01-02", "8-16", "4-32"], True), (["1/8", "Jan 16", "1/64"], True), (["02. Jan", "04. Jan"], True),
        (["2026-01-02", "2026-03-04"], False), (["Jan", "Feb"], False), (["1-8", "1-16"], False),
        (["may", "off"], False),
    ],
)  # fmt: skip
def test_levels_of_which_a_spreadsheet_made_days_are_named(levels: list[str], is_said: bool) -> None:
    lines = [(f"t:{n}", {"x": text}) for n, text in enumerate(levels * 2)]
    said = any("may be what a spreadsheet made of" in note for note in alike.unified(lines, ["x"]))
    assert said is is_said
