"""Results that others measured: tables and outputs in, studies out; bad input named with its place."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import PlanError
from headrace.experiment import foreign
from headrace.experiment.commands import imports
from headrace.experiment.report.effects import words as effects
from headrace.experiment.stats.factors import studies_of
from tests import outputs as outputs_of
from tests.commands import headrace
from tests.published import FOLDER

TABLE = FOLDER / "pinterest-2015-async-rndwr.csv"
FACTORS = ["kernel", "filesystem", "raid_chunk"]


def test_the_published_table_in_plain_sentences() -> None:
    rows = foreign.read_csv(TABLE, FACTORS, ["write_mb_s"]).rows
    (study,) = studies_of(rows, FACTORS, {"write_mb_s": True})
    said = "\n".join(effects.sentences(study))
    assert (
        "The effect of raid_chunk on write_mb_s depends on kernel: the best-to-worst ratio is 4.02 at 3.13, "
        "1.14 at 3.18" in said
    )
    assert (
        "The effect of raid_chunk on write_mb_s depends on filesystem: the best-to-worst ratio is 2.96 at "
        "ext4 data=ordered" in said
    )
    assert "4 cells collapsed, at 87.0 to 103; 16 have 530 to 661" in said
    assert "4 cells are separate, at 223 to 234; 16 have 530 to 661. Separate: " in said
    assert "8 of 12 cells, but not in: ext4 data=journal 256K (0.36)" in said
    assert "assume that there are none" in effects.error_words(study.effects)


def test_the_command_prints_a_table_and_json() -> None:
    argv = ["import", str(TABLE), "--response", "write_mb_s", "--latency", "p99_ms"]
    argv += [part for name in FACTORS for part in ("--factor", name)]
    shown = headrace(*argv)
    assert shown.returncode == 0, shown.stderr
    assert "rank  kernel  filesystem" in shown.stdout
    content = json.loads(headrace(*argv, "--json").stdout)
    writes, latency = content["studies"]
    assert writes["ranks"][0]["levels"] == {"kernel": "3.18", "filesystem": "xfs", "raid_chunk": "256K"}
    assert writes["ranks"][0]["value"] == pytest.approx(661.27)
    assert latency["is_higher_better"] is False
    assert latency["ranks"][0]["value"] == pytest.approx(0.14)


def test_without_a_measurement_those_that_every_run_has_are_named(tmp_path: Path) -> None:
    table = headrace("import", str(TABLE), "--factor", "kernel")
    assert "every run has p99_ms, raid_chunk, write_mb_s try: --response write_mb_s" in " ".join(
        table.stderr.split()
    )
    for level in ("a", "b"):
        (tmp_path / f"ab-{level}.txt").write_text(outputs_of.AB)
    paths = [str(path) for path in sorted(tmp_path.glob("ab-*"))]
    outputs = headrace("import", *paths, "--names", "ab-{server}.txt")
    assert (outputs.returncode, "mean_ms" in outputs.stderr, "requests_s" in outputs.stderr) == (
        3,
        True,
        True,
    )
    assert "try: --response requests_s" in outputs.stderr


def test_real_outputs_of_fio_and_sysbench(tmp_path: Path) -> None:
    for size in ("4k", "16k"):
        for engine in ("psync", "sync"):
            argv = ["fio", "--name=j", f"--filename={tmp_path}/data", "--size=4m", "--rw=randread"]
            argv += [f"--bs={size}", f"--ioengine={engine}", "--runtime=1"]
            argv += [f"--output-format={'json' if engine == 'sync' else 'json+'}"]
            done = subprocess.run(argv, capture_output=True, text=True, check=True)
            (tmp_path / f"{engine}-{size}.json").write_text(done.stdout)
    done = headrace(
        "import", *map(str, sorted(tmp_path.glob("*.json"))), "--names", "{engine}-{bs}.json",
        "--response", "read_iops",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "no verdict" in " ".join(done.stdout.split())
    argv = [
        "sysbench",
        "fileio",
        "--file-total-size=8M",
        "--file-num=2",
        "--file-test-mode=rndrd",
        "--time=1",
    ]
    for step in ("prepare", "run"):
        done = subprocess.run([*argv, step], cwd=tmp_path, capture_output=True, text=True, check=True)
    file = tmp_path / "a.log"
    file.write_text(done.stdout)
    (row,) = foreign.read_outputs([file], "{x}.log").rows
    assert row.responses["reads_s"] > 0
    assert row.responses["read_mib_s"] > 0


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("a,b\n", "the table has no rows"),
        ("a,c\nx,1\n", "no column 'b'; there are: a, c"),
        ("a,b\nx,-1\n", "b = '-1': must be a positive number"),
        ("a,b\nx,1\ny,inf\n", "b = 'inf'"),
        ("a,b\nx,1,2\n", "2 columns in the header, not in this line"),
        ("a,b\nx,1\nx,2\n", "two levels"),
        ("a,b\n,1\nx,2\n", "the cell of 'a' is empty"),
    ],
)
def test_bad_tables(tmp_path: Path, table: str, said: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(table)
    done = headrace("import", str(file), "--factor", "a", "--response", "b")
    assert done.returncode == 3
    assert said in done.stderr.replace("\n", " ")


def test_one_factor_is_not_compared_in_cells_of_nothing(tmp_path: Path) -> None:
    """It said "in 0 of 1 cells, but not in:  (0.90)"."""
    table = write(tmp_path / "t.csv", "fs,tps\nxfs,1000\nxfs,1010\next4,900\next4,905\n")
    said = imported(table, "fs")["studies"][0]["sentences"]
    assert "xfs is 1.11 times as good as ext4" in said[0]
    assert not any("cells" in sentence for sentence in said)


def test_what_depends_on_another_factor_is_said_before_its_average(tmp_path: Path) -> None:
    lines = [
        f"{a},{b},{(2000 if (a, b) == ('y', 'q') else 1000) + 7 * rep + len(a + b)}"
        for rep in range(4)
        for a in "xy"
        for b in "pq"
    ]
    table = write(tmp_path / "t.csv", "\n".join(["a,b,tps", *lines]) + "\n")
    said = imported(table, "a", "b")["studies"][0]["sentences"]
    assert said[0].startswith("The effect of ")
    assert any("on average" in sentence for sentence in said[1:])


def test_bad_names(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text("hello")
    with pytest.raises(PlanError, match="does not fit"):
        foreign.read_outputs([file], "{a}-{b}.log")
    with pytest.raises(PlanError, match="no factor in braces"):
        foreign.read_outputs([file], "x.log")
    with pytest.raises(PlanError, match="appears twice"):
        foreign.read_outputs([file], "{a}{a}.log")
    with pytest.raises(PlanError, match="not the output of sysbench, fio"):
        foreign.read_outputs([file], "{a}.log")


def test_a_condition_tells_workloads_apart_and_what_to_take_over_both() -> None:
    files = [str(FOLDER / f"pinterest-2015-async-{test}.csv") for test in ("rndwr", "rndrd")]
    argv = ["import", *files, "--condition", "test", "--response", "write_mb_s", "--response", "read_mb_s"]
    argv += ["--latency", "p99_ms", *(part for name in FACTORS for part in ("--factor", name))]
    shown = headrace(*argv)
    assert shown.returncode == 0, shown.stderr
    said = " ".join(shown.stdout.split())
    assert "The best overall is 3.18 xfs 256K: across 2 questions it keeps 99.6% of the best" in said
    assert (
        "Not enough data to say which has the best write_mb_s @ test=rndwr: 3.18 xfs 256K is first (661)"
        in said
    )
    content = json.loads(headrace(*argv, "--json").stdout)
    # Both tables have a p99: in one study they would pass for repeats.
    assert [(s["response"], s["condition"]) for s in content["studies"]] == [
        ("write_mb_s", "test=rndwr"),
        ("p99_ms", "test=rndwr"),
        ("read_mb_s", "test=rndrd"),
        ("p99_ms", "test=rndrd"),
    ]
    assert all(s["observations"] == 24 for s in content["studies"])
    robust = content["choice"]["robust"][0]
    assert robust["order"][0]["name"] == "3.18 xfs 256K"
    assert robust["order"][0]["worst"]["low"] is None


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def imported(path: Path, *factors: str) -> dict[str, Any]:
    argv = ["import", str(path), "--response", "tps", "--json"]
    done = headrace(*argv, *(part for name in factors for part in ("--factor", name)))
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def raid_table() -> str:
    """xfs is 1.3 times as good as ext4, and 4T 0.7 times as good as other sizes; each size has one RAID level."""
    lines = ["filesystem,raid,size,options,tps"]
    rng = random.Random(3)
    for filesystem, size, option in itertools.product(("ext4", "xfs"), ("1T", "2T", "4T"), ("a", "b", "c")):
        level = 1000 * (1.3 if filesystem == "xfs" else 1) * (0.7 if size == "4T" else 1)
        raid = "RAID-5" if size == "4T" else "RAID-10"
        lines.append(f"{filesystem},{raid},{size},{option},{level * math.exp(rng.gauss(0, 0.03)):.0f}")
    return "\n".join(lines) + "\n"


def test_a_factor_that_another_determines_is_named_and_left_out(tmp_path: Path) -> None:
    """It used to compare a level with itself, and to deny that the file systems had met."""
    table = write(tmp_path / "raid.csv", raid_table())
    (study,) = imported(table, "filesystem", "raid", "size", "options")["studies"]
    said = " ".join(study["sentences"])
    assert "raid goes with size in every row" in said
    assert any("raid goes with size" in line for line in study["confounded"])
    assert "Never varied" not in said
    xfs = next(level for level in study["levels"] if level["level"] == "xfs")
    assert xfs["ratio"]["low"] < 1.3 < xfs["ratio"]["high"]
    assert not any("1.00 times as good" in line for line in study["sentences"])
    assert {tuple(term["term"]) for term in study["terms"]} == {
        ("filesystem",), ("size",), ("options",),
        ("filesystem", "size"), ("filesystem", "options"), ("size", "options"),
    }  # fmt: skip
    (by_raid,) = imported(table, "filesystem", "raid", "options")["studies"]
    assert "raid explains" in " ".join(by_raid["sentences"])


def test_where_nothing_is_proven_the_first_sentence_says_what_is_excluded(tmp_path: Path) -> None:
    rng = random.Random(3)
    lines = ["fs,disk,tps"]
    for fs, disk, _ in itertools.product(("xfs", "ext4"), ("a", "b"), range(4)):
        lines.append(f"{fs},{disk},{1000 * math.exp(rng.gauss(0, 0.05)):.1f}")
    (study,) = imported(write(tmp_path / "noise.csv", "\n".join(lines)), "fs", "disk")["studies"]
    first = study["sentences"][0]
    match = re.fullmatch(
        r"No factor is proven to matter for tps: a difference of more than ([\d.]+)% by fs or ([\d.]+)% by disk "
        r"is excluded\.",
        first,
    )
    assert match, first
    ratios = {each["factor"]: each["ratio"] for each in study["levels"] if each["level"] in ("ext4", "b")}
    for name, said in zip(("fs", "disk"), match.groups(), strict=True):
        most = max(ratios[name]["high"], 1 / ratios[name]["low"])
        assert float(said) == pytest.approx(100 * (most - 1), rel=0.05)


def test_one_run_that_does_not_fit_is_named_and_hides_nothing(tmp_path: Path) -> None:
    rng = random.Random(3)
    runs = [
        (name, middle * rng.gauss(1, 0.02))
        for _ in range(8)
        for name, middle in (("xfs", 1300), ("ext4", 1000))
    ]
    runs[6] = ("xfs", runs[6][1] * 0.3)
    content = []
    for order in (runs, runs[::-1]):
        table = tmp_path / "runs.csv"
        table.write_text("fs,tps\n" + "".join(f"{name},{value:.1f}\n" for name, value in order))
        content.append(
            json.loads(headrace("import", str(table), "--factor", "fs", "--response", "tps", "--json").stdout)
        )
    (study,), (turned,) = (own["studies"] for own in content)
    assert study["terms"][0]["p_holm"] < 1e-6
    assert study["terms"][0]["p_holm"] == pytest.approx(turned["terms"][0]["p_holm"])
    assert (list(study["misfits"]), list(turned["misfits"])) == ([f"{table}:8"], [f"{table}:11"])
    assert "fs explains 99% of the variation of tps: xfs is 1.30 times as good" in study["sentences"][0]
    assert "1 of 16 runs does not fit the others" in study["sentences"][1]
    # The choice is of the same runs.
    (best,) = content[0]["choice"]["best"]
    assert (best["certainty"], best["leader"]) == ("sure", "xfs")
    assert best["candidates"][0]["mean"] == pytest.approx(1300, rel=0.02)


def test_a_run_of_four_that_does_not_fit_is_told_from_a_noisy_treatment(tmp_path: Path) -> None:
    rng = random.Random(5)
    runs = {
        "ext4": [1000 * rng.gauss(1, 0.02) for _ in range(4)],
        "xfs": [1300 * rng.gauss(1, 0.02) for _ in range(4)],
    }
    for spoiled, is_off in (([*runs["xfs"][:3], 400.0], True), ([700.0, 1900.0, 1300.0, 1000.0], False)):
        lines = ["fs,tps", *(f"ext4,{v:.1f}" for v in runs["ext4"]), *(f"xfs,{v:.1f}" for v in spoiled)]
        (study,) = imported(write(tmp_path / "runs.csv", "\n".join(lines)), "fs")["studies"]
        assert [place.rsplit(":", 1)[1] for place in study["misfits"]] == (["9"] if is_off else [])
        assert (study["terms"][0]["p_holm"] < 0.05) is is_off


def test_pairs_that_are_one_column_are_named(tmp_path: Path) -> None:
    """Half of a 2^4 factorial: each pair is another pair."""
    lines = ["a,b,c,d,tps"]
    for a, b, c in itertools.product((0, 1), repeat=3):
        lines.append(f"{a},{b},{c},{(a + b + c) % 2},{100 + 20 * a + 7 * b + 3 * c + 5 * a * b}")
    (study,) = imported(write(tmp_path / "half.csv", "\n".join(lines)), "a", "b", "c", "d")["studies"]
    assert [line for line in study["confounded"] if line.startswith("c x d")] == [
        "c x d cannot be told apart from a x b: what is said of a x b may be due to it."
    ]
    assert all(term["p"] is None for term in study["terms"])


def test_an_unmeasured_interaction_is_no_noise(tmp_path: Path) -> None:
    """A pair with a missing combination is not in the model. It used to count as the error of the others."""
    lines = ["a,b,c,tps"]
    for a, b, c in itertools.product("12", "12", "12"):
        if (a, b) != ("2", "2"):
            lines.append(f"{a},{b},{c},{100 + 9 * int(a) + int(b) * int(c) * 3}")
    (study,) = imported(write(tmp_path / "gap.csv", "\n".join(lines)), "a", "b", "c")["studies"]
    assert study["error"]["kind"] == "none"


def test_tables_as_spreadsheets_write_them(tmp_path: Path) -> None:
    text = "größe;mode;tps\nklein;a;12,5\ngroß;a;13,5\nklein;b;14,25\ngroß;b;15\ngroß;b;15\ngroß;b;\n"
    content = imported(write(tmp_path / "t.csv", text, "latin-1"), "größe", "mode")
    notes = " ".join(content["notes"])
    assert "read as Windows-1252" in notes
    assert "decimal commas" in notes
    assert "no tps in line 7: left out" in notes
    assert "line 6 is equal to an earlier one" in notes
    (study,) = content["studies"]
    assert [row["value"] for row in study["ranks"]] == pytest.approx([15.0, 14.25, 13.5, 12.5])
    assert all(term["p"] is None for term in study["terms"])
    shown = headrace("import", str(tmp_path / "t.csv"), "--response", "tps", "--factor", "mode")
    assert "decimal commas" in shown.stdout
    wide = write(tmp_path / "u.csv", text.replace(";", "\t"), "utf-16")
    assert imported(wide, "größe", "mode")["studies"][0]["observations"] == 5


@pytest.mark.parametrize(
    ("cells", "values", "note"),
    [
        # As a spreadsheet of an English locale writes them: these were 1.2345 and 999.5.
        (("1,234.5", "999.5", "12,345", "1,000,000.25"), (1234.5, 999.5, 12345, 1_000_000.25), "are between"),
        # As one of a German locale does; 12.345 was 12.345.
        (("1.234,5", "999,5", "12.345", "1.000.000,25"), (1234.5, 999.5, 12345, 1_000_000.25), "are decimal"),
        (("0,123", "1,234", "0.5", "2"), (0.123, 1.234, 0.5, 2), "are decimal"),
        (("0,123", "0,456", "0,789", "0,5"), (0.123, 0.456, 0.789, 0.5), "are decimal"),
    ],
)
def test_thousands_are_told_from_decimals(
    tmp_path: Path, cells: tuple[str, ...], values: tuple[float, ...], note: str
) -> None:
    text = "a\ttps\n" + "".join(f"{i}\t{cell}\n" for i, cell in enumerate(cells))
    found = foreign.read_csv(write(tmp_path / "t.csv", text), ["a"], ["tps"])
    assert [row.responses["tps"] for row in found.rows] == pytest.approx(list(values))
    assert f"commas in tps {note}" in found.notes[0]


@pytest.mark.parametrize("block", ["", "day"])
def test_copies_of_the_same_lines_are_no_repeats(tmp_path: Path, block: str) -> None:
    """Their spread is 0, and the first in rank was called the best for sure."""
    rows = [f"{a},{b},{100 + 3 * a + b}" for a in (1, 2) for b in (1, 2)]
    lines = ["a,b,tps,day", *(f"{row},{day}" for day in (1, 2) for row in rows)]
    table = write(tmp_path / "twice.csv", "\n".join(lines))
    argv = ["import", str(table), "--factor", "a", "--factor", "b", "--response", "tps", "--json"]
    done = headrace(*argv, *(["--block", block] if block else []))
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert all(term["p"] is None for term in content["studies"][0]["terms"])
    (best,) = content["choice"]["best"]
    assert (best["leader"], best["certainty"]) == ("2 2", "not enough data")
    assert {candidate["may_be_best"] for candidate in best["candidates"]} == {None}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a;tps\n1;1,234\n2;2,345\n", "'1,234' could be 1234 or 1.234"),
        ("a;tps\n1;1.234\n2;12,5\n", "'1.234' could be 1234 or 1.234"),
        ("a;tps\n1;1,234.5\n2;1.234,5\n", "'1.234,5': must be a positive number"),
        (
            "a,tps\n" + "".join(f"h{i},{i + 1}\n" for i in range(3000)),
            "a has 3,000 levels, and 200 is the most",
        ),
    ],
)
def test_tables_that_cannot_be_read_one_way(tmp_path: Path, text: str, words: str) -> None:
    done = headrace("import", str(write(tmp_path / "t.csv", text)), "--factor", "a", "--response", "tps")
    assert (done.returncode, words in " ".join(done.stderr.split())) == (3, True)


@pytest.mark.parametrize(
    "name",
    [
        "events_s", "runs_s", "goodput_s", "bytes_s", "bogo_ops_cpu_s", "elements_s", "bits_s", "tps (1/s)",
        "requests_per_sec", "inserts_per_sec", "kb_per_s", "MB/s", "tx/s", "ops_per_ms", "rows/sec",
    ],
)  # fmt: skip
def test_rates_are_not_taken_for_seconds(name: str) -> None:
    assert imports._directions([name], [])[0] == {name: True}


@pytest.mark.parametrize("name", ["p99.9 (ms)", "lat [us]", "ms/op", "us_op", "misses", "cpu_s", "mean_s"])
def test_times_are_known_by_their_unit(name: str) -> None:
    assert imports._directions([name], [])[0] == {name: False}


@pytest.mark.parametrize(
    ("name", "is_more"),
    [
        ("Antwortzeit", False), ("usd", False), ("cpu_pct", False), ("durée", False), ("latencia", False),
        ("平均延迟", False), ("memory_mb", False), ("write_amplification", False), ("usd_per_tx", False),
        ("tps_per_usd", True), ("tps/€", True), ("Durchsatz", True), ("hit_rate", True), ("speedup", True),
        ("score", None), ("value", None), ("latency_improvement", None), ("cpu_idle", None), ("mean", None),
        ("errors_per_sec", False), ("page_faults/s", False), ("price_per_hour", False), ("seconds_per_run", False),
        ("cost_per_1k_tps", False), ("time (lower is better)", False), ("score (higher is better)", True),
        ("tps_stddev", False), ("widgets_per_s", None),
    ],
)  # fmt: skip
def test_the_direction_of_a_column_is_known_by_its_name_or_said_to_be_unknown(
    name: str, is_more: bool | None
) -> None:
    found, notes = imports._directions([name], [])
    assert found == {name: is_more is not False}
    says = {True: "", False: "less is better", None: "does not say whether more or less is better"}[is_more]
    assert len(notes) == bool(says)
    assert not says or says in notes[0]
