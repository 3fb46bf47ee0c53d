"""The contract of every reader of output: a run that ended well, one that failed, one cut at any line."""

from __future__ import annotations

import bz2
import copy
import gzip
import json
import lzma
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.base.errors import PlanError
from headrace.experiment import foreign
from headrace.experiment.foreign import directions
from headrace.experiment.foreign.formats import (
    FORMATS,
    criterion,
    google,
    jmh,
    micro,
    pgbench,
    stress,
    vdbench,
)
from headrace.experiment.foreign.packed import MOST_BYTES
from tests.commands import headrace
from tests.load_outputs import LOADS
from tests.outputs import (
    FIO,
    GOODS,
    GOOGLE_CSV,
    HAMMERDB,
    JMH_CSV,
    MEMTIER,
    REDIS,
    STRESS,
    STRESS_YAML,
    SYSBENCH,
    VDBENCH,
    Good,
)

ALL = [*GOODS, *LOADS]


def written(folder: Path, *texts: str) -> list[Path]:
    paths = [folder / f"x-{number}.out" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


def read(folder: Path, *texts: str, responses: tuple[str, ...] = ()) -> foreign.Table:
    return foreign.read_outputs(written(folder, *texts), "{a}-{run}.out", responses, ["a", "run"])


PGBENCH_9 = (
    "transaction type: TPC-B (sort of)\nnumber of transactions actually processed: 100\n"
    "latency average: 2.500 ms\ntps = 400.0 (including connections establishing)\n"
    "tps = 410.0 (excluding connections establishing)\n"
)


@pytest.mark.parametrize("good", ALL, ids=lambda good: good.name)
def test_a_run_that_ended_well(tmp_path: Path, good: Good) -> None:
    (row,) = read(tmp_path, good.text).rows
    assert {name: row.responses[name] for name in good.has} == pytest.approx(dict(good.has))


@pytest.mark.parametrize(
    ("good", "bad"),
    [(good, bad) for good in ALL for bad in good.bad],
    ids=lambda v: getattr(v, "name", "failed"),
)
def test_a_run_that_failed_is_left_out_and_counted(tmp_path: Path, good: Good, bad: str) -> None:
    assert bad in good.text
    failed = good.text.replace(bad, good.bad[bad])
    table = read(tmp_path, good.text, failed)
    assert len(table.rows) == 1
    assert "1 of 2 runs left out" in table.notes[0]


@pytest.mark.parametrize("good", ALL, ids=lambda good: good.name)
def test_a_log_cut_at_any_line_has_no_value_that_the_whole_has_not(tmp_path: Path, good: Good) -> None:
    lines = good.text.splitlines(keepends=True)
    if len(lines) == 1:
        cuts = [good.text[: len(good.text) * n // 40] for n in range(1, 40)]
    else:
        cuts = ["".join(lines[:n]) for n in range(1, len(lines))]
        # A file on a full disk ends in the middle of a number.
        cuts += [good.text[: len(good.text) - n] for n in range(2, min(120, len(good.text)), 3)]
    (whole,) = read(tmp_path, good.text).rows
    for cut in cuts:
        try:
            rows = read(tmp_path, cut).rows
        except PlanError:
            continue
        # What follows the last number may be missing: white space, further percentiles, other kinds of operations.
        assert all(row.responses.items() <= whole.responses.items() for row in rows), cut
        assert cut.rstrip() == good.text.rstrip() or len(lines) - len(cut.splitlines()) <= 2, cut


def test_every_run_of_a_file_is_read_and_runs_that_differ_are_a_question(tmp_path: Path) -> None:
    assert len(read(tmp_path, SYSBENCH + SYSBENCH).rows) == 2
    short = SYSBENCH.replace("total time:                          10.0053s", "total time:  2.0s")
    short = short.replace("events:              5000", "events:              999")
    with pytest.raises(PlanError, match=r"the runs differ in duration_s: 10 in .*; 2 in") as error:
        read(tmp_path, SYSBENCH + short)
    assert "--mixed duration_s" in str(error.value)
    (path,) = written(tmp_path, SYSBENCH + short)
    assert len(foreign.read_outputs([path], "{a}-0.out", [], ["a"], ["duration_s"]).rows) == 2


def test_a_setting_that_the_file_name_says_is_no_difference(tmp_path: Path) -> None:
    paths = []
    for size in ("4k", "16k"):
        paths.append(tmp_path / f"{size}.json")
        paths[-1].write_text(json.dumps(FIO).replace('"bs": "4k"', f'"bs": "{size}"'))
    assert len(foreign.read_outputs(paths, "{chunk}.json", [], ["chunk"]).rows) == 2


def test_a_result_of_zero_is_a_result(tmp_path: Path) -> None:
    nothing = json.dumps(FIO).replace('"total_ios": 10', '"total_ios": 0')
    table = read(tmp_path, json.dumps(FIO), nothing, responses=("read_iops",))
    assert len(table.rows) == 1
    assert "read_iops is 0 in 1 of 2 runs" in table.notes[0]


def test_a_response_that_some_runs_lack_is_named(tmp_path: Path) -> None:
    other = SYSBENCH.replace("95th percentile", "99th percentile")
    with pytest.raises(PlanError, match=r"1 of 2 runs have no p95_ms; they have .*p99_ms"):
        read(tmp_path, SYSBENCH, other, responses=("p95_ms",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3;fio-3.33;j0;0;0;240000;4000\n", "terse"),
        (json.dumps(FIO) + json.dumps(FIO), "--status-interval"),
        ("mixed,0.995,0.9,1.1,10,10\n", "mysqlslap's CSV"),
        ("\n,mixed,0.019,0.019,0.019,2,50\n", "mysqlslap's CSV"),
        ("Benchmark 1: sleep 0.05\n  Time (mean ± σ):  51.5 ms ± 2.8 ms\n", "hyperfine's report for people"),
        (
            "command,mean,stddev,median,user,system,min,max\nx,1,0,1,0,0,1,1\n",
            "hyperfine's report for people",
        ),
        ("[ ID] Interval           Transfer     Bitrate\n", "the report of iperf 2"),
        ("\nfio: terminating on signal 2\n3;fio-3.33;a;0;0;4;17\n", "terse"),
        ("# JMH version: 1.37\n# Run progress: 0.00% complete, ETA 00:00:06\n", "-rf json"),
        ("READ   - Takes(s): 9.9, Count: 1000, OPS: 100.1, Avg(us): 500\n", "go-ycsb"),
        (MEMTIER.replace("ALL STATS", "AGGREGATED AVERAGE RESULTS (3 runs)"), "--run-count=1"),
        ("     http_reqs......................: 1200   39.9/s\n", "--summary-export"),
        ("1795900205 2 30775 497708513 11912 18863 0 0 0\n", "pgbench's log"),
        ("Time (seconds),Throughput (requests/second),Average\n0,1,2\n", "results by the second"),
        ("0 1 5000 0 1700000000 12\n" * 4, "log of transactions"),
        ('{"mean": {"confidence_interval": {}, "point_estimate": 0.1}}', "criterion's change"),
        (" tod timestamp Run Interval reqrate rate MB/sec\n", "vdbench's flatfile"),
        ("--- benchmark: 1 tests ---\nName (time in us)  Min\n", "--benchmark-json"),
        ("hello\n", "not the output of"),
    ],
)
def test_another_variant_of_a_known_tool_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said) as error:
        read(tmp_path, text)
    assert error.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("sysbench 1.0.20 (x)\n\nCreating table 'sbtest1'...\n", "prepared or removed data"),
        ("sysbench 1.0.20 (x)\n\ninvalid option: --warmup-time=1\n", "invalid option"),
        ("dropping old tables...\nvacuuming...\ncreating primary keys...\ndone in 0.30 s\n", "prepared data"),
        ("unable to connect to 127.0.0.1:5319 Connection refused\n", "unable to connect"),
        ("iperf3: error - unable to connect to server: Connection refused\n", "unable to connect"),
        ("fio: failed to parse option xyz\n", "failed to parse"),
        (
            '{"results": [{"command": "x", "mean": 1.0, "exit_codes": [0, null]}]}',
            "killed by a signal 1 time",
        ),
        (
            '{"metrics": {"http_reqs": {"rate": 9.0}, "checks": {"value": 0.25}}}',
            "75.0% of its checks failed",
        ),
        (
            "Vuser 2:Error in Virtual User 2: Deadlock found\nVuser 1:TEST RESULT : System achieved 10 NOPM from "
            "20 MySQL TPM\nALL VIRTUAL USERS COMPLETE\n",
            "Error in Virtual User 2",
        ),
        (PGBENCH_9 + "client 3 aborted in state 5: ERROR: deadlock\n", "client 3 aborted"),
        (PGBENCH_9 + "number of transactions skipped: 50 (50.0 %)\n", "50 transactions were skipped"),
    ],
)
def test_what_measured_nothing_is_left_out_beside_what_did(tmp_path: Path, text: str, said: str) -> None:
    table = read(tmp_path, SYSBENCH, text)
    assert len(table.rows) == 1
    assert "1 of 2 runs left out" in table.notes[0]
    assert said in table.notes[0]


def test_reports_cut_out_of_logs_are_a_run_each(tmp_path: Path) -> None:
    report = SYSBENCH[SYSBENCH.index("SQL statistics") : SYSBENCH.index("Threads fairness")]
    assert len(read(tmp_path, report + report).rows) == 2


def test_fio_s_json_beside_its_report_for_people_is_read(tmp_path: Path) -> None:
    text = "fio-3.33\nStarting 1 process\n  read: IOPS=6340\n" + json.dumps(FIO)
    assert read(tmp_path, text).rows[0].responses["read_iops"] == pytest.approx(150)


ODD: list[Any] = [None, [], {}, "x", True, -1, 1e308, [[]], {"a": {}}, 10**400]


def test_json_of_another_shape_is_never_a_traceback() -> None:
    chance = random.Random(5)
    texts = [json.loads(good.text.splitlines()[0]) for good in ALL if good.text.startswith(("{", "[{"))]
    for _ in range(1_500):
        content = json.loads(json.dumps(chance.choice(texts)))
        for _ in range(chance.randint(1, 3)):
            place: Any = content
            while isinstance(place, dict | list) and place:
                key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
                if chance.random() < 0.4 or not isinstance(place[key], dict | list):
                    place[key] = copy.deepcopy(chance.choice(ODD))
                    break
                place = place[key]
        text = json.dumps(content)
        for tool in FORMATS:
            for run in tool.read(text) or ():
                assert run.problem or all(value == value for value in run.responses.values())


@pytest.mark.parametrize(
    "text",
    [
        "SET: rps=7579.4 (overall: 7581.0) avg_msec=5.054 (overall: 5.019)\r",
        "Could not connect to Redis at 127.0.0.1:16399: Connection refused\n",
        "[RUN #1] Launching threads now...\n[RUN #1 33%,   0 secs]  2 threads  5 conns:\n",
        "Command line: -db x -threads 4\nYCSB Client 0.17.0\n\nLoading workload...\n",
        "iperf3: error - unable to connect to server: Connection refused\n",
        "sysbench 1.0.20 (x)\n\n9 files, 11MiB each\nFATAL: Cannot open file 'test_file.4'\n",
    ],
)
def test_a_run_that_was_killed_is_one_and_its_tool_is_known(tmp_path: Path, text: str) -> None:
    table = read(tmp_path, SYSBENCH, text)
    assert len(table.rows) == 1
    assert "1 of 2 runs left out: it " in table.notes[0]


def test_each_test_of_redis_benchmark_is_a_run_and_the_one_that_was_killed_is_left_out(
    tmp_path: Path,
) -> None:
    killed = REDIS + "GET: rps=18125.0 (overall: 16439.7) avg_msec=1.955 (overall: 2.104)\r"
    table = read(tmp_path, killed)
    assert [row.levels["test"] for row in table.rows] == ["SET"]
    assert "1 of 2 runs left out: it was interrupted" in table.notes[0]


def test_a_log_from_which_people_took_lines_needs_no_end(tmp_path: Path) -> None:
    short = SYSBENCH.replace("Initializing worker threads...\n", "").partition("Threads fairness")[0]
    (row,) = read(tmp_path, short).rows
    assert row.responses["p95_ms"] == 4.25
    table = read(tmp_path, short, SYSBENCH.partition("Threads fairness")[0])
    assert "1 of 2 runs left out: its report is cut off" in table.notes[0]


def test_an_old_pgbench_has_its_latency_and_go_its_threads() -> None:
    (old,) = pgbench.read(PGBENCH_9) or []
    assert (old.problem, old.responses) == ("", {"tps": 410.0, "mean_ms": 2.5})
    runs = micro.read("BenchmarkA \t 100 \t 9.5 ns/op\nBenchmarkA-4 \t 100 \t 3.5 ns/op\nPASS\n") or ()
    assert [run.settings["cpus"] for run in runs] == ["1", "4"]


def test_what_one_process_repeats_is_one_run_and_its_aggregates_are_none() -> None:
    told = [
        {"name": name, "real_time": time, "time_unit": "s"}
        for name, time in (("A", 1), ("A", 3), ("A_mean", 2))
    ]
    (run,) = google.read(json.dumps({"benchmarks": told})) or []
    assert (run.settings["benchmark"], run.responses) == ("A", {"real_s": 2.0})
    (run,) = micro.read("BenchmarkA-4 \t 9 \t 2 ns/op\nBenchmarkA-4 \t 9 \t 4e+00 ns/op\nPASS\n") or []
    assert run.responses == {"mean_ns": 3.0}
    (run,) = google.read(json.dumps({"benchmarks": [told[2] | {"run_type": "aggregate"}]})) or []
    assert "aggregates alone" in run.problem


def test_levels_of_file_names_are_one_however_they_are_written(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.out" for name in ("ext4-1", "EXT4-2", "xfs-3")]
    for path in paths:
        path.write_text(SYSBENCH)
    table = foreign.read_outputs(paths, "{fs}-{run}.out", (), ["fs"])
    assert [row.levels["fs"] for row in table.rows] == ["ext4", "ext4", "xfs"]
    assert "fs: ext4 and EXT4 are counted as one level, ext4" in table.notes


def test_benchmarks_of_one_file_are_runs_of_their_own_and_what_was_begun_alone_is_left_out() -> None:
    begun = "Benchmarking a/1\nBenchmarking a/1: Analyzing\na/1   time:   [1.0 ns 2.0 ns 3.0 ns]\n"
    long = "Benchmarking a/a_very_long_name_of_a_benchmark\na/a_very_long_name_of_a_benchmark\n"
    long += "                        time:   [1.0 ms 2.0 ms 3.0 ms]\n                 change:\n"
    long += "                        time:   [-2.1% -1.0% +0.02%] (p = 0.06 > 0.05)\n"
    runs = criterion.read(begun + long + "Benchmarking b/1: Collecting 100 samples\n") or []
    assert [(run.settings["benchmark"], run.responses.get("time_s"), bool(run.problem)) for run in runs] == [
        ("a/1", pytest.approx(2e-9), False),
        ("a/a_very_long_name_of_a_benchmark", pytest.approx(2e-3), False),
        ("b/1", None, True),
    ]
    run = VDBENCH.replace("rd1", "rd0").replace("Vdbench execution completed successfully.", "")
    runs = vdbench.read(run + VDBENCH) or []
    assert [(run.settings["rd"], run.settings["threads"], run.problem) for run in runs] == [
        ("rd0", "8", ""),
        ("rd1", "8", ""),
    ]
    header, *rows = JMH_CSV.splitlines(keepends=True)
    runs = jmh.read(header + "".join(rows) + "".join(rows).replace(",100", ",200")) or []
    assert [run.settings["size"] for run in runs] == ["100", "200"]


def test_a_benchmark_without_the_aggregates_of_the_others_was_cut_off() -> None:
    header, *rows = GOOGLE_CSV.splitlines(keepends=True)[1:]
    (whole, cut) = google.read(header + "".join(rows) + rows[0].replace("/64", "/8")) or []
    assert (whole.problem, cut.problem) == ("", "its repetitions are cut off")


def test_what_a_file_cannot_say_is_said_to_be_taken_for_granted(tmp_path: Path) -> None:
    assert any("does not say whether a run failed" in note for note in read(tmp_path, STRESS_YAML).notes)


def test_a_run_without_a_time_of_its_own_ends_with_its_operations() -> None:
    text = STRESS.replace("setting to a 2 second run", "defaulting to a 1 day, 0 secs run")
    assert [run.problem for run in stress.read(text) or ()] == [""]


#: Endings of a time; other names that end in ``_s`` are rates.
TIMES = (
    "mean_s",
    "median_s",
    "min_s",
    "max_s",
    "time_s",
    "real_s",
    "elapsed_s",
    "user_s",
    "sys_s",
    "slope_s",
)


@pytest.mark.parametrize("good", ALL, ids=lambda good: good.name)
def test_no_rate_of_a_reader_is_taken_for_a_time(tmp_path: Path, good: Good) -> None:
    (row,) = read(tmp_path, good.text).rows
    for name in row.responses:
        if name.endswith("_s") and name != "cpu_s":
            assert directions.is_more_better(name) is not name.endswith(TIMES), name


def prefixed(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.rstrip("\n").split("\n"))


def numbered(text: str) -> str:
    return "".join(f"{n:6}\t{line}\n" for n, line in enumerate(text.rstrip("\n").split("\n"), 1))


WRAPPED: dict[str, Callable[[str], str]] = {
    "a pod": lambda text: prefixed("[pod/bench-1/main] 2026-01-01T10:00:00.123Z ", text),
    "a workflow": lambda text: prefixed(
        "2026-01-01T10:00:00.1234567Z ", "##[group]Run bench\nshell: bash -e {0}\n##[endgroup]\n" + text
    ),
    "a job and its step": lambda text: prefixed("bench\tRun bench\t2026-01-01T10:00:00.1234567Z ", text),
    "a job's streams": lambda text: prefixed("2026-01-01T10:00:00.123456Z 01O ", text),
    "seconds since 1970": lambda text: prefixed("1790000000.123456 ", text),
    "a kernel's log": lambda text: prefixed("[   12.345678] ", text),
    "days without a host": lambda text: prefixed("Jan 01 10:00:00 ", text),
    "file names": lambda text: prefixed("out/run-1.log:", text),
    "numbers": numbered,
    "a recorded terminal": lambda text: "$ bench\r\n\x1b[?2004l\r" + text.replace("\n", " \r\r\n"),
    "a wiki": lambda text: "{code}\n" + text.rstrip("\n") + "\n{code}\n",
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "colours": lambda text: "\x1b[32m" + text.replace("\n", "\x1b[0m\n", 3),
    "time stamps": lambda text: prefixed("2026-01-01T10:00:00.123Z ", text),
    "a container": lambda text: prefixed("bench-1  | ", text),
    "a journal": lambda text: prefixed("Jan 01 10:00:00 db1 bench[812]: ", text),
    "a title": lambda text: "# Our second run\n\n" + prefixed("    ", text),
    "notes": lambda text: "Our second run:\n```\n" + text.rstrip("\n") + "\n```\nThat is all.\n",
    "warnings above": lambda text: "WARNING: something\n" * 3 + text,
}


@pytest.mark.parametrize("around", WRAPPED)
@pytest.mark.parametrize("good", ALL, ids=lambda good: good.name)
def test_what_terminals_and_containers_add_changes_no_value(tmp_path: Path, good: Good, around: str) -> None:
    if around == "a title" and good.name in ("Google Benchmark, CSV", "stress-ng, YAML"):
        pytest.skip("a file for programs, which nobody indents")
    (row,) = read(tmp_path, WRAPPED[around](good.text)).rows
    assert {name: row.responses[name] for name in good.has} == pytest.approx(dict(good.has))


def test_a_run_that_was_left_out_is_named_where_too_few_are_left(tmp_path: Path) -> None:
    (tmp_path / "x-a.out").write_text(HAMMERDB)
    (tmp_path / "x-b.out").write_text(HAMMERDB.replace("FINISHED SUCCESS", "FINISHED FAILED"))
    paths = [str(path) for path in sorted(tmp_path.glob("*.out"))]
    said = headrace("import", *paths, "--names", "x-{server}.out", "--response", "nopm").stderr
    assert "two levels; 1 of 2 runs left out: " in said
    assert "x-b.out" in said


def test_a_run_of_reads_alone_ends_with_the_cleanup(tmp_path: Path) -> None:
    cleanup = [
        f"[CLEANUP], {line}"
        for line in ("Operations, 1", "AverageLatency(us), 2", "99thPercentileLatency(us), 2")
    ]
    reads = [
        "[READ], Operations, 1005",
        "[READ], AverageLatency(us), 3980.1",
        "[READ], 99thPercentileLatency(us), 9000",
    ]
    start = ["[OVERALL], RunTime(ms), 10110", "[OVERALL], Throughput(ops/sec), 99.3945"]
    whole = [*start, *reads, "[READ], Return=OK, 1005", *cleanup]
    assert (
        read(tmp_path, "\n".join([start[1], start[0], *whole[2:], ""])).rows[0].responses["ops_s"] == 99.3945
    )
    # With a kind of operation that is not there any more, the cleanup is no end.
    fewer = [line.replace("1005", "505") for line in whole]
    with pytest.raises(PlanError, match="cut off"):
        read(tmp_path, "\n".join([*fewer, ""]))


ENDS = (
    "Killed", "Segmentation fault (core dumped)", "command terminated with exit code 137",
    "./run.sh: line 3:  4312 Killed                  sysbench run", "Command exited with non-zero status 1",
    "Connection to db1 closed by remote host.", "make: *** [Makefile:3: bench] Error 1", "rc=1", "+ exit 1",
    "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-02T10:00:00 DUE TO TIME LIMIT ***", "OOMKilled",
    "bench.service: Main process exited, code=killed, status=9/KILL", "bench-1 exited with code 137",
    "##[error]Process completed with exit code 1.", "[1]+  Killed                  sysbench run",
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(ALL)), ids=lambda number: ALL[number].name)
def test_a_run_whose_shell_tells_of_a_bad_end_is_left_out(tmp_path: Path, number: int) -> None:
    good, end = ALL[number], ENDS[number % len(ENDS)]
    table = read(tmp_path, good.text, good.text.rstrip("\n") + f"\n{end}\n")
    assert len(table.rows) == 1
    assert "left out" in table.notes[0]


#: Of these a file is one run, and repeats in it are its mean.
JSONS = ("YCSB, JSON", "go-ycsb, JSON")
MEANS = ("go test -bench", "go test -json", "Google Benchmark, console", "criterion", "Rust's own benches")


@pytest.mark.parametrize("good", ALL, ids=lambda good: good.name)
def test_of_two_runs_in_a_file_none_is_lost_without_a_word(tmp_path: Path, good: Good) -> None:
    text = good.text.rstrip("\n") + "\n" + good.text
    if good.text.lstrip().startswith(("{", "[{", "fio: ")) and good.name not in (
        "siege",
        "cargo criterion",
        "go test -json",
        "iperf3, a line for each interval",
        *JSONS,
    ):
        with pytest.raises(PlanError, match=r"in one file|reports of one fio"):
            read(tmp_path, text)
        return
    table = read(tmp_path, text)
    assert len(table.rows) == 2 or table.notes or good.name in MEANS
    for row in table.rows:
        assert {name: row.responses[name] for name in good.has} == pytest.approx(dict(good.has))


def zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, codec="zstd", asbytes=True))


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}


@pytest.mark.parametrize("end", PACKINGS)
def test_a_packed_log_is_read_within_a_bound(tmp_path: Path, end: str) -> None:
    def packed(content: bytes) -> foreign.Table:
        path = tmp_path / f"x-0.out.{end}"
        path.write_bytes(content)
        return foreign.read_outputs([path], f"{{a}}-{{run}}.out.{end}", (), ["a"])

    pack = PACKINGS[end]
    assert packed(pack(SYSBENCH.encode())).rows[0].responses["transactions_s"] == 499.5
    with pytest.raises(PlanError, match=r"cut off or damaged|no run is left"):
        packed(pack(SYSBENCH.encode())[:-20])
    with pytest.raises(PlanError, match="when it is unpacked"):
        packed(pack(bytes(MOST_BYTES + 1)))
    with pytest.raises(PlanError, match="packed more than once"):
        packed(pack(gzip.compress(SYSBENCH.encode())))
    if end == "gz":
        with pytest.raises(PlanError, match="more than 1000 files"):
            packed(pack(b"") * 100_000)


def test_archives_say_how_their_files_are_had(tmp_path: Path) -> None:
    path = tmp_path / "x-0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(written(tmp_path, SYSBENCH)[0], "out/x-0.out")
    with pytest.raises(PlanError, match="a tar archive") as error:
        foreign.read_outputs([path], "{a}-{run}.tar.gz", (), ["a"])
    assert "tar -xf " in str(error.value.hint)


def test_two_runs_of_tpcc_with_a_blank_line_between_are_two(tmp_path: Path) -> None:
    text = next(good.text for good in GOODS if good.name == "tpcc-mysql")
    assert len(read(tmp_path, f"{text}\n{text}").rows) == 2


def test_what_a_cut_off_list_of_operations_lacks_is_said(tmp_path: Path) -> None:
    text = next(good.text for good in GOODS if good.name == "YCSB")
    assert "491 of 1,005" in read(tmp_path, text).notes[-1]
