"""Lines of tables that are no runs, numbers and levels as people write them, and runs that are not alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.base.errors import PlanError
from headrace.experiment import foreign
from headrace.experiment.foreign import alike, directions, names

RUNS = [("xfs", 1000.5), ("xfs", 1010.25), ("ext4", 900.5), ("ext4", 905.75)]
CSV = "fs,rep,tps\n" + "".join(f"{fs},{n},{tps}\n" for n, (fs, tps) in enumerate(RUNS))


def read(
    folder: Path, text: str | bytes, response: str = "tps", *, mixed: tuple[str, ...] = ()
) -> foreign.Table:
    path = folder / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return foreign.read_csv(path, ["fs"], [response], mixed=mixed)


def runs(table: foreign.Table) -> list[tuple[str, float]]:
    return sorted((row.levels["fs"], value) for row in table.rows for value in row.responses.values())


@pytest.mark.parametrize(
    "word",
    [
        "Summe", "Gesamtsumme", "Mittelwert", "Mittelw.", "Standardabweichung", "Promedio", "Media", "Moyenne",
        "Écart-type", "Średnia", "Razem", "Keskiarvo", "ortalama", "Medelvärde", "Итого",
        "среднее значение", "合計",
        "平均値", "总计", "Grand Total", "Std. Dev.", "Geo. mean", "Geometric mean", "Mean (xfs)", "xfs Average",
        "Avg of 3", "Diff", "Speedup", "Δ", "p-value", "CV", "Subtotal",
        "Schnitt", "Sub-total", "Std.-Abw.", "Best of 2", "vs xfs", "∅", "all runs",
    ],
)  # fmt: skip
def test_summaries_are_no_runs(tmp_path: Path, word: str) -> None:
    table = read(tmp_path, f"{CSV}{word},,953.2\nxfs,{word},1005\n")
    assert runs(table) == sorted(RUNS)
    assert "2 lines left out, each of which sums up others: 6, 7" in table.notes[0]


def test_a_word_that_most_lines_have_names_no_summary(tmp_path: Path) -> None:
    text = "fs,cpu,tps\n" + "".join(f"{fs},all,{tps}\n" for fs, tps in RUNS)
    assert runs(read(tmp_path, text)) == sorted(RUNS)
    text = "fs,tps\nstock-to-all,1\nstock-to-all,2\nfor-the-max,3\nfor-the-max,4\n"
    assert len(runs(read(tmp_path, text))) == 4


@pytest.mark.parametrize(
    ("column", "bad", "good"),
    [
        ("status", "FAILED", "ok"), ("Status", "killed", "Success"), ("exit status", "1", "0"), ("rc", "-9", "0"),
        ("signal", "9", ""), ("success", "false", "true"), ("valid", "no", "yes"), ("completed", "0", "1"),
        ("aborted", "true", "false"), ("oom", "1", "0"), ("errors", "1203", "0"), ("error", "timeout", ""),
        ("comment", "crashed at 30 s", ""), ("notes", "OOM killed", "no crash"), ("result", "DNF", "ok"),
        ("phase", "warmup", "run"), ("phase", "prepare", "run"), ("Timeouts", "17", "0"), ("failed", "17", "0"),
        ("http_errors", "17", "0"), ("Anzahl Fehler", "17", "0"), ("nb_erreurs", "3", "0"), ("エラー数", "3", "0"),
        ("timeout_count", "3", "0"), ("ошибки", "3", "0"), ("fallos", "3", "0"), ("KO", "3", "0"),
        ("warmup", "yes", "no"), ("stage", "ramp-up", "steady"),
    ],
)  # fmt: skip
def test_runs_that_failed_and_warm_ups_are_left_out_and_counted(
    tmp_path: Path, column: str, bad: str, good: str
) -> None:
    text = f"fs,{column},tps\n" + "".join(f"{fs},{good},{tps}\n" for fs, tps in RUNS) + f"xfs,{bad},12\n"
    table = read(tmp_path, text)
    assert runs(table) == sorted(RUNS)
    assert "1 line left out, because it " in table.notes[0]
    assert table.notes[0].endswith(": line 6")


def test_errors_in_most_runs_are_no_reason(tmp_path: Path) -> None:
    text = "fs,errors,tps\n" + "".join(f"{fs},{n},{tps}\n" for n, (fs, tps) in enumerate(RUNS))
    assert runs(read(tmp_path, text)) == sorted(RUNS)


@pytest.mark.parametrize(
    "cell",
    [
        "n.a.", "#DIV/0!", "#VALUE!", "#WERT!", "nil", "–", "...", "x", "DNF", "failed", "timeout", "timed out",
        "ERR",
        "crashed", "OOM", "TBD", "skipped", "n/d", "k.A.", "нет", ".", "(null)", "\\N", "unknown",
        "did not finish",
    ],
)  # fmt: skip
def test_a_cell_without_a_number_is_named(tmp_path: Path, cell: str) -> None:
    table = read(tmp_path, f"{CSV}xfs,5,{cell}\n")
    assert runs(table) == sorted(RUNS)
    assert "no tps in line 6: left out" in table.notes[0]


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1 000,5", "1 010,25", "900,5", "905,75"], None),
        (["1\u00a0000.5", "1\u00a0010.25", "900.5", "905.75"], None),
        (["1\u202f000,5", "1\u202f010,25", "900,5", "905,75"], None),
        (["1'000.5", "1'010.25", "900.5", "905.75"], None),
        (["1’000.5", "1’010.25", "900.5", "905.75"], None),
        (["1_000.5", "1_010.25", "900.5", "905.75"], None),
        (["12,34,567", "1,00,000", "1,000", "2,500"], [1234567, 100000, 1000, 2500]),
        (["1,234,567", "1,000", "2,000", "3,000"], [1234567, 1000, 2000, 3000]),
        (["~1000.5", "≈1010.25", "900.5*", "905.75 †"], None),
        (["1000.5 (+3%)", "1010.25 (12.3)", "900.5", "905.75"], None),
        (["1000.5 ± 1.2%", "1010.25±3", "900.5 +/- 2", "905.75"], None),
        (["1000.5 tx/s", "1010.25 tx/s", "900.5 tx/s", "905.75 tx/s"], None),
        (["1000.5 1/s", "1010.25 1/s", "900.5 1/s", "905.75 1/s"], None),
        (["1.0005 kIOPS", "1.01025 kIOPS", "0.9005 kIOPS", "905.75 IOPS"], [1.0005, 1.01025, 0.9005, 0.90575]),
        (["0:01:40.5", "1:40", "00:59", "61 s"], [100.5, 100, 59, 61]),
        (["1m40.5s", "1h 2m 3s", "59s", "2 min"], [100.5, 3723, 59, 120]),
    ],
)  # fmt: skip
def test_numbers_as_people_write_them(tmp_path: Path, cells: list[str], values: list[float] | None) -> None:
    text = "fs\ttps\n" + "".join(f"{n}\t{cell}\n" for n, cell in enumerate(cells))
    found = [row.responses["tps"] for row in read(tmp_path, text).rows]
    assert found == pytest.approx(values or [tps for _, tps in RUNS])


@pytest.mark.parametrize("cell", ["<1000", "10 - 12", "inf", "1.2.3"])
def test_what_is_no_number_is_refused(tmp_path: Path, cell: str) -> None:
    with pytest.raises(PlanError, match="must be a positive number") as error:
        read(tmp_path, f"{CSV}xfs,5,{cell}\n")
    assert error.value.hint


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32"])
def test_text_of_any_alphabet_in_any_unicode(tmp_path: Path, encoding: str) -> None:
    text = CSV.replace("xfs", "файловая").encode(encoding)
    assert {fs for fs, _ in runs(read(tmp_path, text))} == {"файловая", "ext4"}


@pytest.mark.parametrize(
    "written",
    [
        ("XFS", "xfs"), ("8", "8.0", "08"), ("ON", "1", "true"), ("no", "off", "0"), ("1G", "1024M", "1GiB"),
        ("16 KiB", "16k", "16384"), ("READ-COMMITTED", "read_committed", "readcommitted"),
        ("1000", "1,000", "1e3"),
        ("mysql-8.0.36", "MySQL 8.0.36"), ("1s", "1000ms"), ("ext4", "EXT-4", "ext 4"), ("RAID-10", "raid10"),
        ("50%", "0.5"), ("50 %", "50"), ("100%", "1"), ("1 000", "1000"),
    ],
)  # fmt: skip
def test_levels_that_are_one(written: tuple[str, ...]) -> None:
    lines = [(f"t:{n}", {"fs": text}) for n, text in enumerate(written)]
    assert "are counted as one level" in " ".join(alike.unified(lines, ["fs"]))
    assert len({cells["fs"] for _, cells in lines}) == 1


@pytest.mark.parametrize(
    "pair", [("ext3", "ext4"), ("1", "2"), ("8.0.36", "8.0.37"), ("0", "1"), ("a-1", "a1")]
)
def test_levels_that_are_two(pair: tuple[str, str]) -> None:
    lines = [(f"t:{n}", {"fs": text}) for n, text in enumerate([*pair * 3, pair[0]])]
    assert alike.unified(lines, ["fs"]) == []
    assert len({cells["fs"] for _, cells in lines}) == 2


@pytest.mark.parametrize("slip", ["inodb", "innobd", "innodbb", "innpdb"])
def test_a_rare_level_one_letter_away_is_named(slip: str) -> None:
    lines = [(f"t:{n}", {"e": text}) for n, text in enumerate(["innodb"] * 4 + [slip, "rocks"])]
    (note,) = alike.unified(lines, ["e"])
    assert f"e: {slip!r} (1 line) is one letter away from 'innodb' (4)" in note


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("threads", ("8", "64")),
        ("duration_s", ("600", "2")),
        ("bs", ("4k", "64k")),
        ("percentile", ("95", "99")),
    ],
)
def test_runs_that_are_not_alike_are_a_question(tmp_path: Path, column: str, values: tuple[str, str]) -> None:
    text = f"fs,{column},tps\n" + "".join(f"{fs},{values[n % 2]},{tps}\n" for n, (fs, tps) in enumerate(RUNS))
    with pytest.raises(PlanError, match=f"the runs differ in {column}: {values[0]} in lines 2, 4") as error:
        read(tmp_path, text)
    assert f"--mixed {column}" in (error.value.hint or "")
    assert runs(read(tmp_path, text, mixed=(column,))) == sorted(RUNS)


SECONDS: dict[str, Callable[[int], object]] = {
    "Elapsed (s)": lambda t: 10 * t,
    "time_ms": lambda t: 1000 * t,
    "datetime": lambda t: f"2026-01-01 10:00:{t:02}",
    "clock": lambda t: f"10:00:{t:02}",
    "tick": lambda t: t,
    "whatever": lambda t: t,
}


@pytest.mark.parametrize("column", SECONDS)
@pytest.mark.parametrize("repeats", [1, 3])
def test_seconds_are_no_runs_whatever_their_column(tmp_path: Path, column: str, repeats: int) -> None:
    text = f"fs,run,{column},tps\n" + "".join(
        f"{fs},{run},{SECONDS[column](t)},{1000 + t % 7}\n"
        for fs in ("xfs", "ext4")
        for run in range(repeats)
        for t in range(40)
    )
    with pytest.raises(PlanError, match=rf"one line per .*\({2 * repeats} runs\)"):
        read(tmp_path, text)


def test_many_lines_that_nothing_tells_apart_are_suspected(tmp_path: Path) -> None:
    text = "fs,tps\n" + "".join(f"{fs},{1000 + t % 7}\n" for fs in ("xfs", "ext4") for t in range(120))
    assert "up to 120 lines have the same levels" in " ".join(read(tmp_path, text).notes)
    numbered = "fs,rep,tps\n" + "".join(f"{fs},{t},{1000 + t}\n" for fs in ("xfs", "ext4") for t in range(70))
    assert len(read(tmp_path, numbered).rows) == 140


def test_a_metric_per_line_may_have_its_unit(tmp_path: Path) -> None:
    text = "fs,metric,run,value,unit\n" + "".join(
        f"{fs},tps,{n},{tps},1/s\n{fs},p99,{n},3,ms\n" for n, (fs, tps) in enumerate(RUNS)
    )
    assert runs(read(tmp_path, text)) == sorted(RUNS)


def test_points_between_thousands_are_never_decimal_points_in_silence(tmp_path: Path) -> None:
    """1.010 beside 900 made the faster file system the worse, at 0.11% of the other."""
    with pytest.raises(PlanError, match=r"tps = '1\.000' could be 1000 or 1\.000"):
        read(tmp_path, "fs;tps\nxfs;1.000\nxfs;1.010\next4;900\next4;905\n")
    sure = read(tmp_path, "fs;tps\nxfs;1.234.567\nxfs;10.000\next4;900\n")
    assert [value for _, value in runs(sure)] == [900, 10_000, 1_234_567]
    # All with three decimals, or small whole numbers beside them.
    for cells in (["1.125", "2.250", "0.905"], ["1.125", "2", "3.375"]):
        text = "fs;tps\n" + "".join(f"{n};{cell}\n" for n, cell in enumerate(cells))
        assert [value for _, value in runs(read(tmp_path, text))] == [float(cell) for cell in cells]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("fs,tps\nxfs,1000,1010\n", "2 columns in the header"),
        # A short line was lost where runs stand side by side, and broke tables of metrics.
        ("fs,run1,run2\nxfs,1000,1010\next4,900\n", "3 columns in the header"),
        ("fs,metric,value\nxfs,tps,1000\next4,tps\n", "3 columns in the header"),
        ("fs,speed\nxfs,1000\n", "no column 'tps'"),
    ],
)
def test_every_refusal_of_a_table_says_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said) as error:
        read(tmp_path, text)
    assert error.value.hint


def test_of_versions_10_10_is_not_10_1_and_of_sizes_it_is() -> None:
    lines = [(str(i), {"mysql_version": text}) for i, text in enumerate(["10.1", "10.10", "8", "8.0"])]
    (note,) = alike.unified(lines, ["mysql_version"])
    assert note.endswith("8 and 8.0 are counted as one level, 8")
    lines = [(str(i), {"share": text}) for i, text in enumerate(["10.1", "10.10"])]
    assert len(alike.unified(lines, ["share"])) == 1


@pytest.mark.parametrize(
    ("factor", "levels"),
    [
        ("mysql", ("9.1", "9.10", "9.2")),
        ("mariadb_build", ("11.1", "11.10")),
        ("what", ("8.0.4", "8.4", "8.40")),
    ],
)
def test_versions_are_known_by_what_has_them_or_by_their_form(
    tmp_path: Path, factor: str, levels: tuple[str, ...]
) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"{factor},tps\n" + "".join(f"{level},{n + 1}\n" for n, level in enumerate(levels * 2)))
    table = foreign.read_tables([path], [factor], ["tps"])
    assert {row.levels[factor] for row in table.rows} == set(levels)


@pytest.mark.parametrize(
    "name",
    ["failed_requests", "aborted_transactions", "miss_rate", "conflicts_s", "retry_rate", "rejected", "Ausfälle",
     "slow_queries", "ctx_switches_per_s", "temp_c", "cv"],
)  # fmt: skip
def test_less_of_what_goes_wrong_is_better(name: str) -> None:
    assert directions.is_more_better(name) is False


@pytest.mark.parametrize(
    "name", ["requests", "memory_reads", "successful_requests", "hit_ratio", "queries_s"]
)
def test_more_of_what_is_done_is_better(name: str) -> None:
    assert directions.is_more_better(name) is not False


def test_a_level_of_zeros_alone_is_named(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("fs,tps\nxfs,0\next4,15\nxfs,0\next4,16\n")
    with pytest.raises(PlanError, match="tps is 0 in every run but those of fs = ext4"):
        foreign.read_tables([path], ["fs"], ["tps"])


@pytest.mark.parametrize(
    ("line", "count"), [("Verbesserung,,0.9\n", 4), ("stdev.s,,4.5\n", 4), ("zfs,,500\n", 5)]
)
def test_a_figure_of_another_measure_at_the_end_is_no_run(tmp_path: Path, line: str, count: int) -> None:
    table = read(tmp_path, CSV + line)
    assert len(table.rows) == count
    assert any("far from all others" in note for note in table.notes) is (count == 4)


def test_a_last_number_that_is_cut_off_is_no_run(tmp_path: Path) -> None:
    assert len(read(tmp_path, f"{CSV}xfs,9,10").rows) == len(read(tmp_path, CSV).rows)


def test_a_duration_is_one_in_other_languages() -> None:
    assert {names.setting(name) for name in ("Laufzeit", "Dauer (s)", "Durée", "durata_s")} == {"duration"}


@pytest.mark.parametrize(
    "pair", [("8", "8 threads"), ("2", "2x"), ("v8.0", "8.0"), ("0", "none"), ("0.5", "1/2"), ("1", "1%")]
)
def test_levels_with_the_same_number_are_named(pair: tuple[str, str]) -> None:
    lines = [(f"t:{n}", {"fs": text}) for n, text in enumerate(pair)]
    (note,) = alike.unified(lines, ["fs"])
    assert "are counted as 2 levels: write them alike if they are one" in note
    assert {cells["fs"] for _, cells in lines} == set(pair)


def tables(folder: Path, *texts: str, response: str = "lat") -> foreign.Table:
    paths = [folder / f"{number}.csv" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return foreign.read_tables(paths, ["fs"], [response])


def test_levels_and_units_are_one_in_all_files(tmp_path: Path) -> None:
    found = tables(tmp_path, "fs,lat\next4,10ms\nxfs,20ms\nxfs,21ms\n", "fs,lat\nEXT-4,0.01s\nXFS,0.02s\n")
    assert [row.levels["fs"] for row in found.rows] == ["ext4", "xfs", "xfs", "ext4", "xfs"]
    assert [row.responses["lat"] for row in found.rows] == pytest.approx([10, 20, 21, 10, 20])
    found = tables(tmp_path, "fs,lat (ms)\na,10\nb,20\nb,22\n", "fs,lat [s]\na,0.01\nb,0.02\n")
    assert [row.responses["lat"] for row in found.rows] == pytest.approx([10, 20, 22, 10, 20])
    with pytest.raises(PlanError, match=r"lat has different units: ms in 0\.csv; GB in 1\.csv"):
        tables(tmp_path, "fs,lat (ms)\na,10\n", "fs,lat (GB)\na,0.01\n")
    (note,) = tables(tmp_path, "fs,lat (ms)\na,10\n", "fs,lat\na,11\n").notes[1:]
    assert note == "lat: its header says ms in 0.csv; no unit in 1.csv: taken as one unit"


def test_settings_that_differ_between_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        PlanError, match=r"differ in threads: 8 in lines 0.csv:2, 0.csv:3; 16 in lines 1.csv:2"
    ):
        tables(tmp_path, *(f"fs,threads,lat\na,{n},1\nb,{n},2\n" for n in (8, 16)))
    found = tables(tmp_path, *["fs,lat\na,1\nb,2\n"] * 2)
    assert "lines 1.csv:2, 1.csv:3 are equal to earlier ones" in found.notes[0]


@pytest.mark.parametrize(
    ("column", "cells", "says"),
    [
        ("retries", "0 0 17 0", "retries is 17 in 1 of 4 lines (line 4): these runs are kept"),
        ("Deadlocks", "1 2 3 9", "Deadlocks is 1 to 9 in 4 of 4 lines: these runs are kept"),
        ("errors", "0 2 3 9", "errors is 2 to 9 in 3 of 4 lines: failed work may be in their values"),
        ("timeout", "30 30 50 50", ""),
        ("std_error", "0 0 1 0", ""),
        ("max_errors", "0 0 100 0", ""),
        ("retry_delay", "0 0 100 0", ""),
    ],
)
def test_counts_of_trouble_are_named(tmp_path: Path, column: str, cells: str, says: str) -> None:
    pairs = zip(RUNS, cells.split(), strict=True)
    text = f"fs,{column},tps\n" + "".join(f"{fs},{cell},{tps}\n" for (fs, tps), cell in pairs)
    table = read(tmp_path, text)
    assert runs(table) == sorted(RUNS)
    assert [note for note in table.notes if "changes with" not in note] == (
        [f"t.csv: {says}"] if says else []
    )


@pytest.mark.parametrize(
    ("column", "cells", "says"),
    [
        ("host", "h1 h1 h2 h2", "host changes with fs (xfs: h1, ext4: h2)"),
        ("host", "h1 h2 h1 h2", ""),
        ("date", "2026-01-01 2026-01-01 2026-01-02 2026-01-02", "date changes with fs"),
        ("started", "2026-01-01T10:00 2026-01-01T11:00 2026-01-02T10:00 2026-01-02T12:00", "by started all runs"),
        ("started", "2026-01-01T10:00 2026-01-02T11:00 2026-01-01T11:00 2026-01-02T12:00", ""),
        ("order", "1 2 3 4", "by order all runs of fs = xfs, then ext4 were made one level after the other"),
        ("rep", "1 2 1 2", ""),
        ("label", "xfs-run xfs-run ext4-run ext4-run", ""),
        ("p99", "3.1 3.2 4.1 4.2", ""),
    ],
)  # fmt: skip
def test_what_changes_with_a_factor_is_named(tmp_path: Path, column: str, cells: str, says: str) -> None:
    pairs = zip(RUNS, cells.split(), strict=True)
    text = f"fs,{column},tps\n" + "".join(f"{fs},{cell},{tps}\n" for (fs, tps), cell in pairs)
    notes = read(tmp_path, text).notes
    assert len(notes) == bool(says)
    assert not says or says in notes[0]


def test_a_host_that_nearly_all_runs_of_a_level_have_is_named(tmp_path: Path) -> None:
    hosts = [("xfs", host) for host in "aaaaab"] + [("ext4", "b")] * 6
    text = "fs,host,tps\n" + "".join(f"{fs},{host},{n}\n" for n, (fs, host) in enumerate(hosts, 1))
    assert "host changes with fs in 11 of 12 lines (xfs: a, ext4: b)" in read(tmp_path, text).notes[0]
    assert "operator changes with fs" in read(tmp_path, "fs,operator,tps\nxfs,ann,1\next4,bob,2\n").notes[0]
    assert read(tmp_path, "fs,p99,tps\nxfs,3,1\next4,4,2\n").notes == ()


def test_a_word_in_the_place_of_a_repeat_number_is_no_run(tmp_path: Path) -> None:
    table = read(tmp_path, f"{CSV}xfs,arvonta,1005\nxfs,3b,1001\n")
    assert ("xfs", 1005.0) not in runs(table)
    assert ("xfs", 1001.0) in runs(table)
    assert any("has a word where others have their number (rep): line 6" in note for note in table.notes)


@pytest.mark.parametrize("told", ["(failed)", "(timeout after 60 s)", "(killed by OOM)"])
def test_a_number_that_says_that_its_run_failed_is_left_out(tmp_path: Path, told: str) -> None:
    table = read(tmp_path, f"{CSV}xfs,9,1005 {told}\n")
    assert runs(table) == sorted(RUNS)
    assert any("says behind its number that it failed: line 6" in note for note in table.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{CSV}xfs,9,1005*\n* throttled\n", "1 number marked (*)"),
        (f"{CSV}#xfs,9,1005\n", "1 comment left out, the first in line 6: '#xfs,9,1005'"),
        (f"{CSV}xfs,9,10", "line 6, the last, left out: tps = 10 has fewer digits than all others"),
        (
            "fs;tps\nxfs;1.010\nxfs;1.001\next4;2.905\next4;2.905\n",
            "points in tps are taken for decimal points",
        ),
    ],
)
def test_what_was_taken_as_it_stands_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert any(said in note for note in read(tmp_path, text).notes)
