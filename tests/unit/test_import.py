"""Results that others measured: tables and outputs in, studies out; bad input named with its place."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from headrace import foreign
from headrace.analysis.factors import studies_of
from headrace.errors import PlanError
from headrace.report.effects import words as effects
from tests.commands import headrace
from tests.published import FOLDER

TABLE = FOLDER / "pinterest-2015-async-rndwr.csv"
FACTORS = ["kernel", "filesystem", "raid_chunk"]


def test_the_published_table_in_plain_sentences() -> None:
    rows = foreign.read_csv(TABLE, FACTORS, ["write_mb_s"])
    (study,) = studies_of(rows, FACTORS, {"write_mb_s": True})
    said = "\n".join(effects.sentences(study))
    assert (
        "The effect of raid_chunk depends on kernel: the best-to-worst ratio is 4.02 at 3.13, 1.14 at 3.18"
        in said
    )
    assert (
        "The effect of raid_chunk depends on filesystem: the best-to-worst ratio is 2.96 at ext4 data=ordered"
        in said
    )
    assert "4 cells collapsed, at 87.0 to 103; 16 have 530 to 661" in said
    assert "4 cells are separate, at 223 to 234" in said
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


FIO = {
    "fio version": "fio-3.33",
    "jobs": [
        {
            "read": {
                "total_ios": 10,
                "iops": 100.0,
                "bw": 2048,
                "clat_ns": {"percentile": {"99.000000": 2e6}},
            },
            "write": {"total_ios": 0},
        },
        {
            "read": {
                "total_ios": 10,
                "iops": 50.0,
                "bw": 1024,
                "clat_ns": {"percentile": {"99.000000": 3e6}},
            },
            "write": {"total_ios": 0},
        },
    ],
}

SYSBENCH = """
SQL statistics:
    transactions:                        5000   (499.50 per sec.)
    queries:                             100000 (9990.00 per sec.)
Latency (ms):
         min:                                    1.00
         avg:                                    2.00
         max:                                   30.00
         95th percentile:                        4.25
"""

BENCHBASE = {
    "Throughput (requests/second)": 123.5,
    "Latency Distribution": {"99th Percentile Latency (microseconds)": 4500},
}

SLAP = """Benchmark
\tAverage number of seconds to run all queries: 0.316 seconds
\tMinimum number of seconds to run all queries: 0.129 seconds
\tMaximum number of seconds to run all queries: 0.684 seconds
\tNumber of clients running queries: 4
"""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (json.dumps(FIO), {"read_iops": 150.0, "read_mib_s": 3.0, "read_p99_ms": 3.0}),
        ("fio: a warning\n" + json.dumps(FIO), {"read_iops": 150.0, "read_mib_s": 3.0, "read_p99_ms": 3.0}),
        (
            SYSBENCH,
            {"transactions_s": 499.5, "queries_s": 9990.0, "mean_ms": 2.0, "max_ms": 30.0, "p95_ms": 4.25},
        ),
        ("Vuser 1:TEST RESULT : System achieved 12 NOPM from 28 MySQL TPM\n", {"nopm": 12.0, "tpm": 28.0}),
        (json.dumps(BENCHBASE), {"requests_s": 123.5, "p99_ms": 4.5}),
        (SLAP, {"runs_s": 1 / 0.316, "mean_ms": 316.0, "min_ms": 129.0, "max_ms": 684.0}),
    ],
)  # fmt: skip
def test_what_a_benchmark_printed(tmp_path: Path, content: str, expected: dict[str, float]) -> None:
    file = tmp_path / "xfs-16.out"
    file.write_text(content)
    (row,) = foreign.read_outputs([file], "{filesystem}-{threads}.out")
    assert row.levels == {"filesystem": "xfs", "threads": "16"}
    assert row.responses == pytest.approx(expected)


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
    (row,) = foreign.read_outputs([file], "{x}.log")
    assert row.responses["reads_s"] > 0
    assert row.responses["read_mib_s"] > 0


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("a,b\n", "the table has no rows"),
        ("a,c\nx,1\n", "no column 'b'; there are: a, c"),
        ("a,b\nx,0\n", "b = '0': must be a positive number"),
        ("a,b\nx,1\ny,nan\n", "b = 'nan'"),
        ("a,b\nx,1,2\n", "2 columns in the header, not in this line"),
        ("a,b\nx,1\nx,2\n", "two levels"),
        ("a,b\n,1\nx,2\n", "no 'a' here"),
    ],
)
def test_bad_tables(tmp_path: Path, table: str, said: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(table)
    done = headrace("import", str(file), "--factor", "a", "--response", "b")
    assert done.returncode == 3
    assert said in done.stderr.replace("\n", " ")


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
