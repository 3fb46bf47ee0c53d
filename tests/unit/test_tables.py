"""Tables as people keep them: other shapes, other spellings, and lines that are no runs."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from headrace.base.errors import PlanError
from headrace.experiment import foreign

RUNS = [("xfs", 1000.0), ("xfs", 1010.0), ("ext4", 900.0), ("ext4", 905.0)]
CSV = "fs,rep,tps\nxfs,1,1000\nxfs,2,1010\next4,1,900\next4,2,905\n"


def read(folder: Path, text: str | bytes, response: str = "tps", *, per_run: bool = False) -> foreign.Table:
    path = folder / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return foreign.read_csv(path, ["fs"], [response], per_run=per_run)


def runs(table: foreign.Table, response: str = "tps") -> list[tuple[str, float]]:
    return [(row.levels["fs"], row.responses[response]) for row in table.rows]


@pytest.mark.parametrize(
    "text",
    [
        CSV,
        "sep=;\n" + CSV.replace(",", ";"),
        "Results of March,,\n,,\n" + CSV,
        "# sysbench, 8 threads\n" + CSV,
        CSV.encode("utf-16-le"),
        CSV.encode("utf-16"),
        CSV.replace("\n", "\r"),
        CSV.replace(",", "\t"),
        "| fs | rep | tps |\n|----|----:|----:|\n" + "".join(f"| {fs} | 1 | {v:g} |\n" for fs, v in RUNS),
        "+------+------+\n| fs   | tps  |\n+------+------+\n"
        + "".join(f"| {fs} | {v:g} |\n" for fs, v in RUNS)
        + "+------+------+\n4 rows in set\n",
        "".join(f'{{"fs": "{fs}", "tps": {v}}}\n' for fs, v in RUNS),
        "[" + ", ".join(f'{{"fs": "{fs}", "tps": {v}}}' for fs, v in RUNS) + "]",
        "fs,rep,metric,value\n"
        + "".join(f"{fs},{n},tps,{v}\n{fs},{n},p99,5\n" for n, (fs, v) in enumerate(RUNS)),
        "fs,run1,run2\nxfs,1000,1010\next4,900,905\n",
        "fs,tps_1,tps_2\nxfs,1000,1010\next4,900,905\n",
        CSV + "fs,rep,tps\n",
        CSV + "Average,,953.75\n",
        CSV + "Durchschnitt,,953.75\n",
        CSV + "Total,,3815\n",
        CSV.replace("fs,rep,tps\n", "fs,rep,tps\n,,1/s\n"),
        CSV.replace("1000", "1000 ± 12"),
        CSV.replace("xfs,2", "XFS ,2"),
        "fs,rep,tps,status\n" + "".join(f"{fs},1,{v},ok\n" for fs, v in RUNS) + "xfs,3,12,FAILED\n",
        "fs,rep,tps,exit_code\n" + "".join(f"{fs},1,{v},0\n" for fs, v in RUNS) + "xfs,3,12,137\n",
    ],
)
def test_the_same_runs_however_they_are_written(tmp_path: Path, text: str | bytes) -> None:
    assert sorted(runs(read(tmp_path, text))) == sorted(RUNS)


def drawn(pattern: str, head: str = "", foot: str = "") -> str:
    """A table with a line of this pattern for each run, between other lines."""
    return head + "".join(pattern.format(fs=fs, rep=n, tps=tps) for n, (fs, tps) in enumerate(RUNS)) + foot


@pytest.mark.parametrize(
    "text",
    [
        # Names of columns, and lines around the table.
        CSV.replace("fs,rep,tps", " FS ,Rep,TPS (1/s)"),
        CSV.replace("fs,rep,tps", 'fs,rep,"tps\n[tx/s]"'),
        "Setup,,Result\n" + CSV,
        CSV + "Source: lab 3\n",
        "fs,rep,tps,\n" + drawn("{fs},{rep},{tps},\n"),
        # A merged cell is exported as its text and empty cells.
        "fs,rep,tps\nxfs,1,1000\n,2,1010\next4,1,900\n,2,905\n",
        # Drawings.
        drawn("{fs} | {tps}\n", "fs | tps\n---|---\n"),
        drawn("| `{fs}` | **{tps}** |\n", "# Run\n\n| **fs** | tps |\n|:--|--:|\n", "\nDone.\n"),
        drawn(" {fs:4} | {tps:6}\n", "  fs  |  tps\n------+------\n", "(4 rows)\n"),
        drawn("║ {fs} ║ {tps} ║\n", "╔═══╦═══╗\n║ fs ║ tps ║\n╠═══╬═══╣\n", "╚═══╩═══╝\n"),
        drawn("│ {fs} │ {tps} │\n", "┏━━┳━━┓\n┃ fs ┃ tps ┃\n┡━━╇━━┩\n", "└──┴──┘\n"),
        drawn("|{fs}|{tps}|\n", "||fs||tps||\n"),
        drawn("{fs:6}  {tps:6}\n", "======  ======\nfs      tps\n======  ======\n", "======  ======\n"),
        drawn("{fs:6}  {tps:6}\n", "fs      tps\n------  ------\n"),
        drawn("{fs:>6}{tps:>9}\n", "    fs      tps\n"),
        drawn("{fs} {rep} {tps}\n", "fs rep tps\n"),
        drawn("{fs}|{rep}|{tps}\n", "fs|rep|tps\n"),
        drawn(
            "{fs} & {tps} \\\\\n", "\\begin{{tabular}}{{lr}}\nfs & tps \\\\\n\\hline\n", "\\end{{tabular}}\n"
        ),
        drawn("******* {rep}. row *******\n fs: {fs}\ntps: {tps}\n"),
        drawn("fs={fs} rep={rep} tps={tps}\n"),
        drawn("<tr><td>{fs}<td>{tps}</tr>", "<p>a | b</p><table><tr><th>fs<th>tps</tr>", "</table>"),
        "<table><tr><th>fs</th><th>tps</th></tr><tr><td rowspan=2>xfs</td><td>1000</td></tr><tr><td>1010</td></tr>"
        "<tr><td rowspan=2>ext4</td><td>900</td></tr><tr><td>905</td></tr></table>",
        # JSON.
        '{"results": [' + ", ".join(f'{{"fs": "{fs}", "tps": {v}}}' for fs, v in RUNS) + '], "host": "a"}',
        "[" + ", ".join(f'{{"set": {{"fs": "{fs}"}}, "out": {{"tps": {v}}}}}' for fs, v in RUNS) + "]",
        '{"fs": ["xfs", "xfs", "ext4", "ext4"], "tps": [1000, 1010, 900, 905]}',
        '{"fs": {"0": "xfs", "1": "xfs", "2": "ext4", "3": "ext4"}, '
        '"tps": {"0": 1000, "1": 1010, "2": 900, "3": 905}}',
        '[["fs", "tps"], ["xfs", 1000], ["xfs", 1010], ["ext4", 900], ["ext4", 905]]',
        '{"columns": ["fs", "tps"], "data": [["xfs", 1000], ["xfs", 1010], ["ext4", 900], ["ext4", 905]]}',
        '[{"fs": "xfs", "tags": ["a"], "tps": [1000, 1010]}, {"fs": "ext4", "tags": [], "tps": [900, 905]}]',
        '{"xfs": [1000, 1010], "ext4": [900, 905]}',
        '{"xfs": {"tps": [1000, 1010]}, "ext4": {"tps": [900, 905]}}',
        drawn('{{\n "fs": "{fs}",\n "tps": {tps}\n}}\n'),
        drawn('{{"fs": "{fs}", "tps": {tps}}}\n', foot='{"fs": "xf'),
        # Runs, levels and metrics side by side or below each other.
        "fs,tps (run 1),tps (run 2),average\nxfs,1000,1010,1005\next4,900,905,902.5\n",
        "fs,1st,2nd\nxfs,1000,1010\next4,900,905\n",
        "fs,tps,tps\nxfs,1000,1010\next4,900,905\n",
        "fs,tps,\nxfs,1000,1010\next4,900,905\n",
        "rep,xfs,ext4\n1,1000,900\n2,1010,905\n",
        "threads,xfs,ext4\n8,1000,900\n8,1010,905\n",
        drawn("{fs},{rep},tps,{tps}\n{fs},{rep},p99,5\n", "fs,rep,Metric Name,Metric Value\n"),
    ],
)
def test_the_same_runs_however_they_are_drawn(tmp_path: Path, text: str) -> None:
    assert sorted(runs(read(tmp_path, text))) == sorted(RUNS)


def test_columns_of_numbers_may_be_levels_or_runs(tmp_path: Path) -> None:
    """Threads 1, 2, 4 and 8 were four runs of one treatment."""
    with pytest.raises(PlanError, match="columns 1, 2, 4, 8 may be levels, or runs of tps"):
        read(tmp_path, "fs,1,2,4,8\nxfs,100,200,400,800\next4,90,190,380,760\n")
    path = tmp_path / "t.csv"
    rows = foreign.read_csv(path, ["fs", "threads"], ["tps"]).rows
    assert [row.levels["threads"] for row in rows[:4]] == ["1", "2", "4", "8"]


def test_an_empty_cell_beside_repeated_levels_is_no_merged_one(tmp_path: Path) -> None:
    table = read(tmp_path, "fs,rep,tps\nxfs,1,1000\nxfs,2,1010\n,1,900\n,2,905\n")
    assert [fs for fs, _ in runs(table)] == ["xfs", "xfs", "", ""]


def test_json_that_is_cut_off_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="its JSON is cut off"):
        read(tmp_path, '[{"fs": "xfs", "tps": 1000}, {"fs": "ext4", "tp')


@pytest.mark.parametrize(
    ("text", "spread"),
    [
        ("fs,tps,stddev,runs\nxfs,1000,12,5\next4,900,10,4\n", 12),
        ("fs,avg(tps),stddev(tps),count\nxfs,1000,12,5\next4,900,10,4\n", 12),
        ("fs,mean,se,n\nxfs,1000,12,4\next4,900,10,4\n", 24),
        ("fs,tps,ci95,n\nxfs,1000,12,4\next4,900,10,4\n", 12 * 2 / 3.18245),
    ],
)
def test_means_with_any_spread(tmp_path: Path, text: str, spread: float) -> None:
    own = [value for fs, value in runs(read(tmp_path, text)) if fs == "xfs"]
    assert (statistics.mean(own), statistics.stdev(own)) == pytest.approx((1000, spread), rel=1e-4)


def test_means_of_an_unknown_number_of_runs_are_a_question(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="mean and sd without the number of runs") as error:
        read(tmp_path, "fs,mean,sd\nxfs,1000,12\next4,900,10\n")
    assert "--response 'mean'" in (error.value.hint or "")


def test_what_is_left_out_and_assumed_is_said(tmp_path: Path) -> None:
    said = " ".join(read(tmp_path, CSV + "Average,,953.75\nXFS,3,1005\n").notes)
    assert "1 line left out, because it sums up others: line 6" in said
    assert "xfs and XFS are counted as one level, xfs" in said


def test_a_level_may_be_called_as_a_summary_is(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("fs,mode,tps\nxfs,all,1\next4,all,2\nxfs,one,3\next4,one,4\n")
    assert len(foreign.read_csv(path, ["fs", "mode"], ["tps"]).rows) == 4


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1.2GiB/s", "1.2GiB/s", "900MiB/s", "900MiB/s"], [1.2, 1.2, 900 / 1024, 900 / 1024]),
        (["1.2 ms", "900us", "900us", "2ms"], [1.2, 0.9, 0.9, 2.0]),
        (["12.3k", "12.3k", "9.1k", "9.2k"], [12.3, 12.3, 9.1, 9.2]),
        (["95%", "94%", "90%", "91%"], [95, 94, 90, 91]),
    ],
)
def test_numbers_with_units(tmp_path: Path, cells: list[str], expected: list[float]) -> None:
    text = "fs,bw\n" + "".join(f"{fs},{cell}\n" for (fs, _), cell in zip(RUNS, cells, strict=True))
    assert [value for _, value in runs(read(tmp_path, text, "bw"), "bw")] == pytest.approx(expected)


def test_units_of_different_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="bw = '3 ms'"):
        read(tmp_path, "fs,bw\nxfs,3 ms\nxfs,4 MiB\next4,1 MiB\n", "bw")


def test_a_number_between_thousands_or_decimals_is_a_question(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"could be 1234 or 1\.234"):
        read(tmp_path, 'fs,tps\nxfs,"1,234"\next4,900\n')


def test_means_of_runs_keep_their_spread(tmp_path: Path) -> None:
    table = read(tmp_path, "fs,n,tps_mean,tps_sd\nxfs,5,1000,12\next4,4,900,10\n")
    own = [value for fs, value in runs(table) if fs == "xfs"]
    assert (len(own), len(table.rows)) == (5, 9)
    assert (statistics.mean(own), statistics.stdev(own)) == pytest.approx((1000, 12))


SECONDS = "fs,second,tps\n" + "".join(
    f"{fs},{s},{1000 + s % 7}\n" for fs in ("xfs", "ext4") for s in range(60)
)


def test_one_line_per_second_is_no_table_of_runs(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"one line per second, not one per run.*\(2 runs\)"):
        read(tmp_path, SECONDS)
    table = read(tmp_path, SECONDS, per_run=True)
    assert [fs for fs, _ in runs(table)] == ["xfs", "ext4"]
    # The time at which each run began is no clock within a run.
    days = "time,fs,tps\n" + "".join(
        f"2026-01-{n + 1:02}T10:00:00Z,{fs},{v}\n" for n, (fs, v) in enumerate(RUNS)
    )
    assert sorted(runs(read(tmp_path, days))) == sorted(RUNS)


def test_a_result_of_zero_is_named(tmp_path: Path) -> None:
    table = read(tmp_path, CSV + "btrfs,1,0\n")
    assert "1 response is 0" in " ".join(table.notes)
    with pytest.raises(PlanError, match="must be a positive number"):
        read(tmp_path, CSV + "btrfs,1,-3\n")


@pytest.mark.parametrize(
    ("content", "said", "hint"),
    [
        (b"PK\x03\x04[Content_Types].xml", "a spreadsheet", "--convert-to csv"),
        (b"PK\x03\x04run.csv", "a ZIP archive", "unzip"),
        (b"%PDF-1.7", "a PDF", "pdftotext"),
        (b"PAR1rest", "a Parquet file", "duckdb"),
        (b"hello world\n", "no column 'fs'", "save it as CSV"),
    ],
)
def test_what_is_no_table_says_how_to_get_one(tmp_path: Path, content: bytes, said: str, hint: str) -> None:
    with pytest.raises(PlanError, match=said) as error:
        read(tmp_path, content)
    assert hint in (error.value.hint or "")
