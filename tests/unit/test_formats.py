# ruff: noqa: E501 - what programs print
"""The contract of every reader of output: a run that ended well, one that failed, one cut at any line."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace import foreign
from headrace.errors import PlanError
from headrace.foreign.formats import FORMATS

SYSBENCH = """sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

Running the test with following options:
Number of threads: 4
Report intermediate results every 1 second(s)
Initializing random number generator from current time


Initializing worker threads...

Threads started!

[ 1s ] thds: 4 tps: 500.10 qps: 9990.00 (r/w/o: 1/2/3) lat (ms,95%): 4.25 err/s: 0.00 reconn/s: 0.00
SQL statistics:
    queries performed:
        read:                            70000
        total:                           100000
    transactions:                        5000   (499.50 per sec.)
    queries:                             100000 (9990.00 per sec.)
    ignored errors:                      0      (0.00 per sec.)
    reconnects:                          0      (0.00 per sec.)

General statistics:
    total time:                          10.0053s
    total number of events:              5000

Latency (ms):
         min:                                    1.00
         avg:                                    2.00
         max:                                   30.00
         95th percentile:                        4.25
         sum:                                39900.00

Threads fairness:
    events (avg/stddev):           1250.0000/10.00
    execution time (avg/stddev):   9.9900/0.00

"""
CLAT = {"percentile": {"50.000000": 1_000_000, "99.000000": 2_000_000, "99.500000": 2_500_000}}
READS = {"total_ios": 10, "iops": 75.0, "bw": 1536, "runtime": 60_000, "drop_ios": 0, "clat_ns": CLAT}
JOB = {
    "groupid": 0,
    "error": 0,
    "job options": {"rw": "randread", "bs": "4k"},
    "read": READS,
    "write": {"total_ios": 0},
}
FIO = {"fio version": "fio-3.33", "global options": {}, "jobs": [JOB, JOB]}
HAMMERDB = """HammerDB CLI v4.9
Vuser 1:TEST RESULT : System achieved 12 NOPM from 28 MySQL TPM
Vuser 1:FINISHED SUCCESS
ALL VIRTUAL USERS COMPLETE
"""
BENCHBASE = {
    "Benchmark Type": "tpcc",
    "Final State": "EXIT",
    "Elapsed Time (nanoseconds)": 60e9,
    "Throughput (requests/second)": 123.5,
    "Goodput (requests/second)": 123.0,
    "Latency Distribution": {"99th Percentile Latency (microseconds)": 4500},
}
SLAP = """Benchmark
\tAverage number of seconds to run all queries: 0.316 seconds
\tMinimum number of seconds to run all queries: 0.129 seconds
\tMaximum number of seconds to run all queries: 0.684 seconds
\tNumber of clients running queries: 4
\tAverage number of queries per client: 25
"""
PGBENCH = """pgbench (16.1)
transaction type: <builtin: TPC-B (sort of)>
scaling factor: 10
query mode: simple
number of clients: 4
duration: 60 s
number of transactions actually processed: 60000
number of failed transactions: 0 (0.000%)
latency average = 3.980 ms
initial connection time = 4.1 ms
tps = 1005.000000 (without initial connection time)
"""
YCSB = """[OVERALL], RunTime(ms), 10110
[OVERALL], Throughput(ops/sec), 99.3945
[READ], Operations, 491
[READ], AverageLatency(us), 3980.10
[READ], 99thPercentileLatency(us), 9000
[READ], Return=OK, 491
"""
TPCC = """***************************************
*** ###easy### TPC-C Load Generator ***
***************************************
<Parameters>
     [warehouse]: 10
    [connection]: 4
       [measure]: 60 (sec.)
MEASURING START.

  10, trx: 12920, 95%: 9.483, 99%: 18.738, max_rt: 213.169, 12919|98.778, 1292|101.096, 1293|443.955, 1293|670.842
<Raw Results>
  [0] sc:0 lt:12920  rt:0  fl:0 avg_rt: 3.5 (5)

<TpmC>
                 77907.600 TpmC
"""
GO_TPC = """Finished
[Summary] NEW_ORDER - Takes(s): 59.9, Count: 1200, TPM: 1202.0, Sum(ms): 9000.0, Avg(ms): 7.5, 50th(ms): 7.1, 90th(ms): 9.4, 95th(ms): 11.0, 99th(ms): 20.0, 99.9th(ms): 30.0, Max(ms): 40.0
tpmC: 1202.0, tpmTotal: 2671.1, efficiency: 9.3%
"""
HYPERFINE = {
    "results": [{"command": "q", "mean": 1.2, "median": 1.1, "min": 1.0, "max": 1.5, "exit_codes": [0, 0]}]
}
PYTEST = {
    "benchmarks": [
        {"name": "t", "fullname": "a.py::t", "stats": {"mean": 0.01, "median": 0.01, "ops": 100.0}}
    ]
}
GOOGLE = {
    "context": {},
    "benchmarks": [
        {"name": "BM_x", "run_type": "iteration", "real_time": 12.0, "cpu_time": 11.0, "time_unit": "us"},
        {
            "name": "BM_x_mean",
            "run_type": "aggregate",
            "real_time": 12.0,
            "cpu_time": 11.0,
            "time_unit": "us",
        },
    ],
}
JMH = [
    {
        "jmhVersion": "1.37",
        "benchmark": "x.q",
        "mode": "thrpt",
        "primaryMetric": {"score": 5.5, "scoreUnit": "ops/s"},
    }
]
GO = "goos: linux\nBenchmarkScan-8 \t 1000\t 1234.5 ns/op\nPASS\nok  \tx\t1.2s\n"
K6 = {"metrics": {"http_reqs": {"count": 10, "rate": 100.5}, "http_req_duration": {"avg": 9.5, "p(95)": 25}}}
WRK = """Running 30s test @ http://127.0.0.1:8080/
  2 threads and 10 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   635.91us    0.89ms  12.92ms   93.69%
    Req/Sec    56.20k     8.07k   62.00k    86.54%
  Latency Distribution
     50%  250.00us
     99%    2.50ms
  22464657 requests in 30.00s, 17.76GB read
Requests/sec: 748868.53
Transfer/sec:    606.33MB
"""
AB = """This is ApacheBench, Version 2.3 <$Revision: 1903618 $>
Concurrency Level:      10
Time taken for tests:   0.104 seconds
Complete requests:      1000
Failed requests:        0
Requests per second:    9588.68 [#/sec] (mean)
Time per request:       1.043 [ms] (mean)
Time per request:       0.104 [ms] (mean, across all concurrent requests)
Percentage of the requests served within a certain time (ms)
  50%      1
  99%      3
 100%      4 (longest request)
"""
MEMTIER = """ALL STATS
============================================================================================================================
Type         Ops/sec     Hits/sec   Misses/sec    Avg. Latency     p50 Latency     p99 Latency   p99.9 Latency       KB/sec
----------------------------------------------------------------------------------------------------------------------------
Sets         9090.49          ---          ---         0.40226         0.39100         0.80700         1.87900       700.09
Totals      99994.03     12345.00     78558.00         0.40117         0.39100         0.79900         1.83100      4242.40
"""
SYSBENCH_04 = """sysbench 0.4.12:  multi-threaded system evaluation benchmark

Running the test with following options:
Number of threads: 8

Doing OLTP test.
Threads started!
Done.

OLTP test statistics:
    queries performed:
        read:                            140014
        total:                           200020
    transactions:                        10000  (999.50 per sec.)
    deadlocks:                           1      (0.10 per sec.)
    read/write requests:                 190019 (18991.40 per sec.)
    other operations:                    20001  (1999.00 per sec.)

Test execution summary:
    total time:                          10.0050s
    total number of events:              10000
    total time taken by event execution: 79.9000
    per-request statistics:
         min:                                  2.10ms
         avg:                                  7.99ms
         max:                                 60.10ms
         approx.  95 percentile:              12.34ms

Threads fairness:
    events (avg/stddev):           1250.0000/3.00
    execution time (avg/stddev):   9.9875/0.00

"""
SYSBENCH_CPU = """sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

Running the test with following options:
Number of threads: 1
Threads started!

CPU speed:
    events per second:  1970.48

General statistics:
    total time:                          2.0019s
    total number of events:              3948

Latency (ms):
         min:                                    0.31
         avg:                                    0.51
         max:                                    8.42
         percentile stats:               disabled
         sum:                                 2000.74

Threads fairness:
    events (avg/stddev):           3948.0000/0.00
    execution time (avg/stddev):   2.0007/0.00

"""
STRESS = """stress-ng: info:  [18606] setting to a 2 second run per stressor
stress-ng: info:  [18606] dispatching hogs: 1 cpu
stress-ng: metrc: [18606] stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo ops/s
stress-ng: metrc: [18606]                           (secs)    (secs)    (secs)   (real time) (usr+sys time)
stress-ng: metrc: [18606] cpu                1910      2.00      0.92      0.01       954.78        2049.08
stress-ng: info:  [18606] successful run completed in 2.01s
"""
IPERF = {
    "start": {"test_start": {"num_streams": 1}},
    "intervals": [],
    "end": {"sum_received": {"bits_per_second": 9.4e9, "seconds": 10.0}, "sum_sent": {"retransmits": 3}},
}


@dataclass(frozen=True)
class Good:
    """``text`` of a run that ended well, ``has`` some of its responses, ``bad``: what to replace, so that it failed."""

    name: str
    text: str
    has: Mapping[str, float]
    bad: Mapping[str, str] = field(default_factory=dict)


GOODS = [
    Good("sysbench", SYSBENCH, {"transactions_s": 499.5, "queries_s": 9990, "p95_ms": 4.25, "mean_ms": 2.0}, {
        "Threads started!": "Threads started!\nFATAL: mysql_drv_query() returned error 1205",
        "ignored errors:                      0": "ignored errors:                      300000",
        "reconnects:                          0": "reconnects:                          7",
        "tps: 500.10": "tps: 0.00",
    }),
    Good("sysbench 0.4", SYSBENCH_04, {"transactions_s": 999.5, "mean_ms": 7.99, "p95_ms": 12.34}, {
        "Done.": "FATAL: failed to connect to database server!",
    }),
    Good("sysbench cpu without percentile", SYSBENCH_CPU, {"events_s": 1970.48, "max_ms": 8.42}, {
        "CPU speed": SYSBENCH_CPU[SYSBENCH_CPU.index("CPU speed"):] + "CPU speed",
    }),
    Good("stress-ng", STRESS, {"bogo_ops_s": 954.78, "bogo_ops_cpu_s": 2049.08}, {
        "successful run": "unsuccessful",
        "2 second run": "9 second run",
        "dispatching": "x\nstress-ng: error: [18606] cannot allocate\nx",
    }),
    Good("fio", json.dumps(FIO), {"read_iops": 150.0, "read_mib_s": 3.0, "read_p99_ms": 2.0, "read_p99.5_ms": 2.5}, {
        '"error": 0': '"error": 28',
        '"error": 0, ': "",
        '{"fio version"': 'fio: terminating on signal 2\n{"fio version"',
        '"global options": {}': '"global options": {"time_based": "1", "runtime": "600"}',
    }),
    Good("fio behind a warning", "fio: a warning\n" + json.dumps(FIO), {"read_iops": 150.0}),
    Good("fio 2", json.dumps(FIO).replace("clat_ns", "clat"), {"read_p99_ms": 2000.0}),
    Good("HammerDB", HAMMERDB, {"nopm": 12, "tpm": 28}, {"FINISHED SUCCESS": "FINISHED FAILED"}),
    Good("BenchBase", json.dumps(BENCHBASE), {"requests_s": 123.5, "p99_ms": 4.5}, {
        '"EXIT"': '"ERROR"',
        '(requests/second)": 123.0': '(requests/second)": 12.0',
        ": 4500": ": -4500",
    }),
    Good("mysqlslap", SLAP, {"runs_s": 1 / 0.316, "mean_ms": 316, "max_ms": 684}, {
        "Benchmark": "mariadb-slap: Cannot run query SELECT bad ERROR : Table 't.x' doesn't exist\nBenchmark",
    }),
    Good("pgbench", PGBENCH, {"tps": 1005, "mean_ms": 3.98}, {
        "initial": "pgbench: error: client 2 aborted in command 5\ninitial",
        "failed transactions: 0": "failed transactions: 9000",
        "processed: 60000": "processed: 400/60000",
    }),
    Good("YCSB", YCSB, {"ops_s": 99.3945, "read_mean_ms": 3.9801}, {"Return=OK, 491": "Return=ERROR, 91"}),
    Good("tpcc-mysql", TPCC, {"tpmc": 77907.6}, {"fl:0": "fl:12"}),
    Good("go-tpc", GO_TPC, {"tpmc": 1202.0, "p99_ms": 20.0}),
    Good("hyperfine", json.dumps(HYPERFINE), {"mean_s": 1.2}, {"[0, 0]": "[0, 1]"}),
    Good("pytest-benchmark", json.dumps(PYTEST), {"mean_s": 0.01, "ops_s": 100}),
    Good("Google Benchmark", json.dumps(GOOGLE), {"real_s": 12e-6}, {
        '"iteration", ': '"iteration", "error_occurred": true, ',
    }),
    Good("JMH", json.dumps(JMH), {"ops_s": 5.5}),
    Good("go test -bench", GO, {"mean_ns": 1234.5}, {"PASS\nok ": "--- FAIL: TestX\nFAIL"}),
    Good("k6", json.dumps(K6), {"requests_s": 100.5, "p95_ms": 25}, {
        '"http_reqs"': '"http_req_failed": {"value": 0.4}, "http_reqs"',
    }),
    Good("wrk", WRK, {"requests_s": 748868.53, "mean_ms": 0.63591, "p99_ms": 2.5}, {
        "requests in 30.00s": "requests in 4.10s",
        "Requests/sec": "  Socket errors: connect 0, read 0, write 0, timeout 900000\nRequests/sec",
    }),
    Good("ab", AB, {"requests_s": 9588.68, "mean_ms": 1.043, "p99_ms": 3}, {"Failed requests:        0": "Failed requests: 900"}),
    Good("memtier_benchmark", MEMTIER, {"ops_s": 99994.03, "p99_ms": 0.799}),
    Good("iperf3", json.dumps(IPERF), {"received_mbit_s": 9400.0}, {'"intervals"': '"error": "refused", "intervals"'}),
]  # fmt: skip


def written(folder: Path, *texts: str) -> list[Path]:
    paths = [folder / f"x-{number}.out" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


def read(folder: Path, *texts: str, responses: tuple[str, ...] = ()) -> foreign.Table:
    return foreign.read_outputs(written(folder, *texts), "{a}-{run}.out", responses, ["a", "run"])


@pytest.mark.parametrize("good", GOODS, ids=lambda good: good.name)
def test_a_run_that_ended_well(tmp_path: Path, good: Good) -> None:
    (row,) = read(tmp_path, good.text).rows
    assert {name: row.responses[name] for name in good.has} == pytest.approx(dict(good.has))


@pytest.mark.parametrize(
    ("good", "bad"),
    [(good, bad) for good in GOODS for bad in good.bad],
    ids=lambda v: getattr(v, "name", "failed"),
)
def test_a_run_that_failed_is_left_out_and_counted(tmp_path: Path, good: Good, bad: str) -> None:
    assert bad in good.text
    failed = good.text.replace(bad, good.bad[bad])
    table = read(tmp_path, good.text, failed)
    assert len(table.rows) == 1
    assert "1 of 2 runs left out" in table.notes[0]


@pytest.mark.parametrize("good", GOODS, ids=lambda good: good.name)
def test_a_log_cut_at_any_line_has_no_value_that_the_whole_has_not(tmp_path: Path, good: Good) -> None:
    lines = good.text.splitlines(keepends=True)
    if len(lines) == 1:
        cuts = [good.text[: len(good.text) * n // 40] for n in range(1, 40)]
    else:
        cuts = ["".join(lines[:n]) for n in range(1, len(lines))]
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
        ("[ ID] Interval           Transfer     Bitrate\n", "iperf's report for people"),
        ("1795900205 2 30775 497708513 11912 18863 0 0 0\n", "pgbench's log"),
        ("Time (seconds),Throughput (requests/second),Average\n0,1,2\n", "results by the second"),
        ("0 1 5000 0 1700000000 12\n" * 4, "log of transactions"),
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
    texts = [json.loads(good.text) for good in GOODS if good.text.startswith(("{", "[{"))]
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
