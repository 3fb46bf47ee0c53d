# ruff: noqa: E501 - what programs print
"""What benchmarks print: a run of each that ended well, and what to replace in it so that it failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

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
BENCHMARKSQL = """11:36:09,102 [main] INFO   jTPCC : Term-00, warehouses=100
11:36:09,102 [main] INFO   jTPCC : Term-00, terminals=64
Term-00, Running Average tpmTOTAL: 98607.17    Current tpmTOTAL: 1306284    Memory Usage: 66MB / 1550MB
11:38:09,554 [Thread-7] INFO   jTPCC : Term-00, Measured tpmC (NewOrders) = 44511.25
11:38:09,554 [Thread-7] INFO   jTPCC : Term-00, Measured tpmTOTAL = 98585.38
11:38:09,554 [Thread-7] INFO   jTPCC : Term-00, Session Start     = 2025-03-18 11:36:09
11:38:09,554 [Thread-7] INFO   jTPCC : Term-00, Session End       = 2025-03-18 11:38:09
11:38:09,554 [Thread-7] INFO   jTPCC : Term-00, Transaction Count = 197224
"""
YCSB = """[OVERALL], RunTime(ms), 10110
[OVERALL], Throughput(ops/sec), 99.3945
[READ], Operations, 491
[READ], AverageLatency(us), 3980.10
[READ], 99thPercentileLatency(us), 9000
[READ], 99.9PercentileLatency(us), 12000
[READ], MinLatency(us), 500
[READ], Return=OK, 491
"""
#: Its means are in microseconds, its percentiles in milliseconds, and 0 is what went well.
YCSB_01 = """YCSB Client 0.1
[OVERALL],RunTime(ms), 10110.0
[OVERALL],Throughput(ops/sec), 98.9
[UPDATE], Operations, 1000
[UPDATE], AverageLatency(us), 55.0
[UPDATE], 95thPercentileLatency(ms), 2
[UPDATE], Return=0, 1000
[UPDATE], 0, 973
[UPDATE], 1, 27
"""
GO_YCSB = """***************** properties *****************
"threadcount"="8"
**********************************************
READ   - Takes(s): 10.0, Count: 5000, OPS: 500.1, Avg(us): 900, Min(us): 90, Max(us): 9000, 50th(us): 800, 90th(us): 1500, 95th(us): 2000, 99th(us): 4000, 99.9th(us): 8000, 99.99th(us): 9000
UPDATE - Takes(s): 10.0, Count: 5000, OPS: 500.1, Avg(us): 990, Min(us): 99, Max(us): 9900, 50th(us): 900, 90th(us): 1600, 95th(us): 2100, 99th(us): 4100, 99.9th(us): 8200, 99.99th(us): 9800
Run finished, takes 20.1s
READ   - Takes(s): 20.1, Count: 10000, OPS: 497.5, Avg(us): 910, Min(us): 90, Max(us): 9500, 50th(us): 800, 90th(us): 1500, 95th(us): 2000, 99th(us): 4000, 99.9th(us): 8100, 99.99th(us): 9400
UPDATE - Takes(s): 20.1, Count: 10000, OPS: 502.5, Avg(us): 990, Min(us): 99, Max(us): 9900, 50th(us): 900, 90th(us): 1600, 95th(us): 2100, 99th(us): 4100, 99.9th(us): 8200, 99.99th(us): 9800
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
Initializing worker threads...

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

IPERF_STREAM = "".join(
    json.dumps({"event": event, "data": data}) + "\n"
    for event, data in (
        ("start", IPERF["start"]), ("interval", {"sum": {"seconds": 1.0, "bits_per_second": 9.3e9}}), ("end", IPERF["end"]),
    )
)  # fmt: skip
GO_EVENTS = "".join(
    json.dumps(
        {"Time": "2026-01-01T10:00:00Z", "Action": "output", "Package": "x", "Output": told},
        separators=(",", ":"),
    )
    + "\n"
    for told in ("goos: linux\n", "BenchmarkScan-8 \t", " 1000\t 1234.5 ns/op\n", "PASS\n")
)
IPERF_TEXT = """Connecting to host 127.0.0.1, port 15201
[  5] local 127.0.0.1 port 54478 connected to 127.0.0.1 port 15201
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.01   sec   482 MBytes  4.01 Gbits/sec    2   3.25 MBytes
[  7]   0.00-1.01   sec   482 MBytes  4.01 Gbits/sec    2   3.25 MBytes
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-3.00   sec  1.01 GBytes  2.90 Gbits/sec    0             sender
[  5]   0.00-3.00   sec  1.01 GBytes  2.89 Gbits/sec                  receiver
[  7]   0.00-3.00   sec  1.01 GBytes  2.88 Gbits/sec    2             sender
[  7]   0.00-3.00   sec  1.01 GBytes  2.88 Gbits/sec                  receiver
[SUM]   0.00-3.00   sec  2.02 GBytes  5.78 Gbits/sec    2             sender
[SUM]   0.00-3.00   sec  2.02 GBytes  5.77 Gbits/sec                  receiver

iperf Done.
"""
IPERF_UDP = """Connecting to host 127.0.0.1, port 15201
[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams
[  5]   0.00-1.01   sec  5.94 MBytes  49.5 Mbits/sec  0.000 ms  0/190 (0%)  sender
[  5]   0.00-1.01   sec  5.94 MBytes  49.5 Mbits/sec  0.210 ms  19/190 (10%)  receiver

iperf Done.
"""
REDIS = """ \rSET: rps=0.0 (overall: 0.0) avg_msec=-nan (overall: -nan)\r          \r====== SET ======
  200000 requests completed in 17.00 seconds
  50 parallel clients
  3 bytes payload
  keep alive: 1
  multi-thread: no

Latency by percentile distribution:
0.000% <= 0.143 milliseconds (cumulative count 1)
100.000% <= 60.127 milliseconds (cumulative count 200000)

Summary:
  throughput summary: 11764.71 requests per second
  latency summary (msec):
          avg       min       p50       p95       p99       max
        3.139     0.136     2.103     8.983    14.439    60.127
"""
REDIS_QUIET = "SET: rps=5230.5 (overall: 6047.9) avg_msec=9.468 (overall: 6.705)\r      \rSET: 6041.20 requests per second, p50=4.943 msec\n"
REDIS_CSV = """"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"SET","3409.13","12.614","0.144","7.879","39.839","65.471","143.999"
"""
MEMTIER_JSON = {
    "configuration": {"server": "localhost"},
    "run information": {"Threads": 1, "Connections per thread": 5, "Seconds": 2},
    "ALL STATS": {
        "Runtime": {"Total duration": 2002, "Interrupted": "false"},
        "Totals": {
            "Ops/sec": 2390.1,
            "Average Latency": 2.0,
            "Percentile Latencies": {"p50.00": 0.18, "p99.90": 120.3},
        },
    },
}
YCSB_JSON = [
    {"metric": "OVERALL", "measurement": "RunTime(ms)", "value": 3100},
    {"metric": "OVERALL", "measurement": "Throughput(ops/sec)", "value": 23102.5},
    {"metric": "READ", "measurement": "Operations", "value": 69125},
    {"metric": "READ", "measurement": "AverageLatency(us)", "value": 500.0},
    {"metric": "READ", "measurement": "Return=OK", "value": 69125},
]
GO_YCSB_TABLE = """Run finished, takes 9.9s
+-----------+----------+-------+---------+---------+---------+---------+----------+------------+-------------+
| OPERATION | TAKES(S) | COUNT |   OPS   | AVG(US) | MIN(US) | MAX(US) | 99TH(US) | 99.9TH(US) | 99.99TH(US) |
+-----------+----------+-------+---------+---------+---------+---------+----------+------------+-------------+
| READ      |      9.9 |  4967 |   501.7 |     410 |      90 |    9000 |     2000 |       4000 |        9000 |
+-----------+----------+-------+---------+---------+---------+---------+----------+------------+-------------+
"""
GO_YCSB_JSON = """Run finished, takes 9.9s
[{"99.9th(us)":"4000","99th(us)":"2000","Avg(us)":"410","Count":"4967","Max(us)":"9000","Min(us)":"90","OPS":"501.7","Operation":"READ","Takes(s)":"9.9"}]
"""
GOOGLE_CSV = """2026-11-29T12:02:03+00:00
name,iterations,real_time,cpu_time,time_unit,bytes_per_second,items_per_second,label,error_occurred,error_message,"foo"
"BM_x/64",1236613,24.0,22.6,ns,,2.84891e+09,,,,1.5
"BM_x/64_mean",2,24.0,22.6,ns,,2.84891e+09,,,,1.5
"BM_x/64_cv",2,1.16014e+07,4.45011e+06,ns,,0.0132959,,,,0
"""
GOOGLE_TEXT = """Running ./x
Run on (2 X 2596.14 MHz CPU s)
***WARNING*** CPU scaling is enabled, the benchmark real time measurements may be noisy.
---------------------------------------------------------------------------------------
Benchmark                             Time             CPU   Iterations UserCounters...
---------------------------------------------------------------------------------------
BM_x/8/real_time/threads:2         25.4 ns         25.2 ns       897998 foo=1.5 bytes_per_second=2G/s items_per_second=2.5G/s
BM_x/8/real_time/threads:2_mean    25.4 ns         25.2 ns            1 foo=1.5 bytes_per_second=2G/s items_per_second=2.5G/s
BM_x/8/real_time/threads:2_cv      2.89 %          2.93 %             1 foo=0.00% items_per_second=2.90%
"""
JMH_CSV = """"Benchmark","Mode","Threads","Samples","Score","Score Error (99.9%)","Unit","Param: size"
"a.Q.get","sample",4,40,1.250000,0.066521,"us/op",100
"a.Q.get:get·p0.99","sample",4,1,9.500000,NaN,"us/op",100
"a.Q.get:·gc.alloc.rate","sample",4,2,0.002467,NaN,"MB/sec",100
"""
CRITERION = """   Compiling x v0.1.0 (/x)
    Finished bench [optimized] target(s) in 2.50s
     Running benches/x.rs (target/release/deps/x-0123456789abcdef)
Gnuplot not found, using plotters backend
Benchmarking scan/4096
Benchmarking scan/4096: Warming up for 3.0000 s
Benchmarking scan/4096: Collecting 100 samples in estimated 5.0702 s (192k iterations)
Benchmarking scan/4096: Analyzing
scan/4096               time:   [26.029 µs 26.250 µs 26.505 µs]
                        thrpt:  [147.38 MiB/s 148.50 MiB/s 150.07 MiB/s]
"""
ESTIMATE = {
    "confidence_interval": {"confidence_level": 0.95},
    "point_estimate": 26250.0,
    "standard_error": 9.0,
}
ESTIMATES = {
    "mean": ESTIMATE,
    "median": ESTIMATE,
    "median_abs_dev": ESTIMATE,
    "slope": None,
    "std_dev": ESTIMATE,
}
CARGO_CRITERION = """{"reason":"benchmark-complete","id":"scan/4096","iteration_count":[1],"measured_values":[2.0],"unit":"ns","throughput":[],"typical":{"estimate":26250.0,"lower_bound":2.0,"upper_bound":3.0,"unit":"ns"}}
{"reason":"group-complete","group_name":"scan","benchmarks":["scan/4096"]}
"""
RUST_BENCH = """     Running benches/x.rs (target/release/deps/x-0123456789abcdef)

running 1 test
test tests::scan ... bench:      26,250.50 ns/iter (+/- 1,234.10) = 155 MB/s

test result: ok. 0 passed; 0 failed; 0 ignored; 1 measured; 0 filtered out; finished in 1.02s
"""
VDBENCH = """Copyright (c) 2000, 2018, Oracle and/or its affiliates. All rights reserved.
Vdbench distribution: vdbench50407 Tue June 05  9:49:29 MDT 2018
For documentation, see 'vdbench.pdf'.

16:24:31.018 Starting RD=rd1; I/O rate: 100; elapsed=5; For loops: threads=8

Sep 20, 2018    interval        i/o   MB/sec   bytes   read     resp     read    write     read    write     resp  queue  cpu%  cpu%
                               rate  1024**2     i/o    pct     time     resp     resp      max      max   stddev  depth sys+u   sys
16:24:32.018           1       84.0     0.08    1024  53.57    0.013    0.010    0.015     0.03     0.05    0.006    0.0  19.2   1.5
16:24:33.011           2      103.0     0.10    1024  52.43    0.012    0.010    0.014     0.05     0.02    0.005    0.0   5.0   0.5
16:24:36.013           5      106.0     0.10    1024  48.11    0.012    0.011    0.013     0.04     0.02    0.005    0.0   5.5   1.0
16:24:36.053     avg_2-5      104.5     0.10    1024  50.72    0.012    0.010    0.015     0.05     0.12    0.007    0.0   4.6   0.9
16:24:37.008 Vdbench execution completed successfully. Output directory: /home/me/vdbench50407/output
"""
VDBENCH_FILES = """Vdbench distribution: vdbench50407 Tue June 05  9:49:29 MDT 2018
13:29:04.009 Starting RD=format_for_rd1
13:29:05.050 Starting RD=rd1; elapsed=4; fwdrate=max. For loops: None

Nov 13, 2018 .Interval. .ReqstdOps... ...cpu%...  read ....read..... ....write.... ..mb/sec... mb/sec .xfer.. ...mkdir....
                          rate  resp total  sys   pct   rate  resp   rate  resp  read write  total    size  rate  resp
13:29:06.050         1  9943.0 1.553   5.6 3.07  50.0 4970.0 0.800 4973.0 2.306  4.85  4.86   9.71    1024   0.0 0.000
13:29:07.050         2  9945.0 1.553   5.6 3.07  50.0 4970.0 0.800 4973.0 2.306  4.85  4.86   9.71    1024   0.0 0.000
13:29:08.050         3  9945.0 1.553   5.6 3.07  50.0 4970.0 0.800 4973.0 2.306  4.85  4.86   9.71    1024   0.0 0.000
13:29:09.050         4  9945.0 1.553   5.6 3.07  50.0 4970.0 0.800 4973.0 2.306  4.85  4.86   9.71    1024   0.0 0.000
13:29:09.060avg_2-4  9945.0 1.553   5.6 3.07  50.0 4970.0 0.800 4973.0 2.306  4.85  4.86   9.71    1024   0.0 0.000
13:29:10.500 Vdbench execution completed successfully. Output directory: /root/output
"""
STRESS_YAML = """---
system-info:
      stress-ng-version: 0.15.06
      hostname: vm
      cpus: 2

metrics:
    - stressor: cpu
      bogo-ops: 3248
      bogo-ops-per-second-usr-sys-time: 1743.962844
      bogo-ops-per-second-real-time: 1622.253129
      wall-clock-time: 2.002154
      user-time: 1.862425

...
"""
FIO_MIXED = {**FIO, "jobs": [{"groupid": 0, "error": 0, "job options": {"rw": "rw"}, "mixed": READS}]}
SYSBENCH_FILES = """sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

Running the test with following options:
Number of threads: 1

4 files, 16MiB each
Block size 16KiB
Doing random write test
Initializing worker threads...

Threads started!

[ 1s ] reads: 0.00 MiB/s writes: 51.32 MiB/s fsyncs: 127.40/s latency (ms,99%): 8.581

File operations:
    reads/s:                      0.00
    writes/s:                     3339.59
    fsyncs/s:                     134.58

Throughput:
    read, MiB/s:                  0.00
    written, MiB/s:               52.18

General statistics:
    total time:                          3.0009s
    total number of events:              10426

Latency (ms):
         min:                                    0.00
         avg:                                    0.28
         max:                                   53.26
         99th percentile:                        8.43
         sum:                                 2966.25

Threads fairness:
    events (avg/stddev):           10426.0000/0.00
    execution time (avg/stddev):   2.9663/0.00

"""

SIEGE = """
{	"transactions":			        2128,
	"availability":			      100.00,
	"elapsed_time":			        2.09,
	"data_transferred":		        0.01,
	"response_time":		        0.00,
	"transaction_rate":		     1018.18,
	"throughput":			        0.01,
	"concurrency":			        3.96,
	"successful_transactions":	        2128,
	"failed_transactions":		           0,
	"longest_transaction":		        0.03,
	"shortest_transaction":		        0.00
}
"""
DBENCH = """dbench version 4.00 - Copyright Andrew Tridgell 1999-2004

Running for 3 seconds with load '/usr/share/dbench/client.txt' and minimum warmup 0 secs
failed to create barrier semaphore
0 of 2 processes prepared for launch   0 sec
2 of 2 processes prepared for launch   0 sec
releasing clients
   2     21998   269.21 MB/sec  execute   1 sec  latency 25.895 ms
   2     68738   382.01 MB/sec  execute   2 sec  latency 25.288 ms
   2  cleanup   3 sec
   0  cleanup   3 sec

 Operation      Count    AvgLat    MaxLat
 ----------------------------------------
 NTCreateX      26868     0.013    24.096
 WriteX         13987     0.014    20.212
 ReadX          41797     0.003     7.016
 Flush           1881     2.013    30.553

Throughput 382.006 MB/sec  2 clients  2 procs  max_latency=25.895 ms
"""
BONNIE = """Version 2.00a       ------Sequential Output------ --Sequential Input- --Random-
                    -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--
Name:Size etc        /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP
vm            1500M            122m  31  875m  26            2.4g  44  9944  35
Latency                         120ms   28113us             12582us   76044us
1.98,2.00a,vm,1,1796006643,1500M,,8192,5,,,124698,31,896086,26,,,2479358,44,9944,35,16,,,,,12981,31,+++++,+++,+++++,+++,+++++,+++,+++++,+++,+++++,+++,,120ms,28113us,,12582us,76044us,32106us,8078us,33828us,20189us,6450us,20067us
"""
PERF = """
 Performance counter stats for 'sleep 0.2':

              1.04 msec task-clock                       #    0.005 CPUs utilized
                 1      context-switches                 #  961.443 /sec
                 0      cpu-migrations                   #    0.000 /sec
                75      page-faults                      #   72.108 K/sec
   <not supported>      cycles

       0.201881108 seconds time elapsed

       0.001801000 seconds user
       0.000000000 seconds sys
"""
OPENSSL = """Doing sha256 for 1s on 1024 size blocks: 374445 sha256's in 0.33s
version: 3.0.19
options: bn(64,64)
The 'numbers' are in 1000s of bytes per second processed.
type           1024 bytes
sha256         1161914.18k
"""
OPENSSL_SIGNS = """Doing 256 bits sign ecdsa's for 1s: 16609 256 bits ECDSA signs in 0.42s
Doing 256 bits verify ecdsa's for 1s: 5084 256 bits ECDSA verify in 0.38s
version: 3.0.19
options: bn(64,64)
                              sign    verify    sign/s verify/s
 256 bits ecdsa (nistp256)   0.0000s   0.0001s  39545.2  13378.9
"""
DD = """64+0 records in
64+0 records out
67108864 bytes (67 MB, 64 MiB) copied, 0.0583701 s, 1.1 GB/s
"""


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
        "successful run": "unsuccessful run",
        "successful": "metrics untrustworthy: 1: cpu (1)\nstress-ng: info:  [18606] successful",
        "2 second run": "9 second run",
        "dispatching": "x\nstress-ng: error: [18606] cannot allocate\nx",
    }),
    Good("fio", json.dumps(FIO), {"read_iops": 150.0, "read_mib_s": 3.0, "read_p99_ms": 2.0, "read_p99.5_ms": 2.5}, {
        '"error": 0': '"error": 28',
        '"error": 0, ': "",
        '"error"': '"total_err": 3, "error"',
        '"total_ios": 10, ': '"total_ios": 10, "short_ios": 9, ',
        '"bs": "4k"}, "read": {': '"bs": "4k", "size": "1G", "runtime": "600"}, "read": {"io_bytes": 9, ',
        '{"fio version"': 'fio: terminating on signal 2\n{"fio version"',
        '"global options": {}': '"global options": {"time_based": "1", "runtime": "600"}',
    }),
    Good("fio behind a warning", "fio: a warning\n" + json.dumps(FIO), {"read_iops": 150.0}),
    Good("fio 2", json.dumps(FIO).replace("clat_ns", "clat"), {"read_p99_ms": 2000.0}),
    Good("HammerDB", HAMMERDB, {"nopm": 12, "tpm": 28}, {
        "FINISHED SUCCESS": "FINISHED FAILED",
        "Vuser 1:TEST": "Vuser 1:Rampup complete, Taking start Transaction Count.\n0 MySQL tpm\n"
            "Vuser 1:Test complete, Taking end Transaction Count.\nVuser 1:TEST",
    }),
    Good("HammerDB 3", HAMMERDB.replace("12 NOPM from 28 MySQL TPM", "28 MySQL TPM at 12 NOPM"), {"nopm": 12, "tpm": 28}, {
        "FINISHED SUCCESS": "FINISHED FAILED",
    }),
    Good("HammerDB, TPROC-H", HAMMERDB.replace(
        "TEST RESULT : System achieved 12 NOPM from 28 MySQL TPM",
        'Geometric mean of query times returning rows (22) is "5.43452"',
    ), {"geomean_s": 5.43452}, {"FINISHED SUCCESS": "FINISHED FAILED"}),
    Good("BenchBase", json.dumps(BENCHBASE), {"requests_s": 123.5, "p99_ms": 4.5}, {
        '"EXIT"': '"ERROR"',
        '(requests/second)": 123.0': '(requests/second)": 12.0',
        ": 4500": ": -4500",
    }),
    Good("BenchmarkSQL", BENCHMARKSQL, {"tpmc": 44511.25, "tpm": 98585.38}, {
        "Transaction Count": "Transactions",
        "Measured tpmC": "java.sql.SQLException: Unexpected SQLException in PAYMENT\n" * 2000 + "Term-00, Measured tpmC",
    }),
    Good("mysqlslap", SLAP, {"runs_s": 1 / 0.316, "mean_ms": 316, "max_ms": 684}, {
        "Benchmark": "mariadb-slap: Cannot run query SELECT bad ERROR : Table 't.x' doesn't exist\nBenchmark",
    }),
    Good("pgbench", PGBENCH, {"tps": 1005, "mean_ms": 3.98}, {
        "transaction type": "progress: 5.0 s, 0.0 tps, lat 0.000 ms stddev 0.000\ntransaction type",
        "latency": "WARNING:  terminating connection because of crash of another server process\nlatency",
        "initial": "pgbench: error: client 2 aborted in command 5\ninitial",
        "failed transactions: 0": "failed transactions: 9000",
        "processed: 60000": "processed: 400/60000",
    }),
    Good("YCSB", YCSB, {"ops_s": 99.3945, "read_mean_ms": 3.9801, "read_p99.9_ms": 12, "read_min_ms": 0.5}, {
        "Return=OK, 491": "Return=ERROR, 91",
        "[OVERALL], RunTime": "20 sec: 500 operations; 0 current ops/sec; est completion\n[OVERALL], RunTime",
    }),
    Good("YCSB 0.1", YCSB_01, {"ops_s": 98.9, "update_mean_ms": 0.055, "update_p95_ms": 2.0}, {"Return=0": "Return=-1"}),
    Good("tpcc-mysql", TPCC, {"tpmc": 77907.6}, {
        "fl:0": "fl:12",
        "<Raw": "  20, trx: 0, 95%: 0.000, 99%: 0.000, max_rt: 0.000, 0|0.000, 0|0.000\n<Raw",
        "MEASURING": "2013, HY000, Lost connection to MySQL server during query\nMEASURING",
    }),
    Good("go-tpc", GO_TPC, {"tpmc": 1202.0, "p99_ms": 20.0}, {
        "Finished": "Got signal [interrupt] to exit.\nFinished",
        "Finished\n": "[2026-01-02] execute run failed, err Error 1205 (HY000): Lock wait timeout\n" * 90,
        "Finished\n[": "[Current] NEW_ORDER - Takes(s): 10.0, Count: 0, TPM: 0.0, Sum(ms): 0.0\n[",
    }),
    Good("hyperfine", json.dumps(HYPERFINE), {"mean_s": 1.2}, {"[0, 0]": "[0, 1]"}),
    Good("pytest-benchmark", json.dumps(PYTEST), {"mean_s": 0.01, "ops_s": 100}),
    Good("Google Benchmark", json.dumps(GOOGLE), {"real_s": 12e-6}, {
        '"iteration", ': '"iteration", "error_occurred": true, ',
    }),
    Good("JMH", json.dumps(JMH), {"ops_s": 5.5}),
    Good("go test -bench", GO, {"mean_ns": 1234.5}, {"PASS\nok ": "--- FAIL: TestX\nFAIL"}),
    Good("go test -json", GO_EVENTS, {"mean_ns": 1234.5}, {"PASS": "FAIL"}),
    Good("k6", json.dumps(K6), {"requests_s": 100.5, "p95_ms": 25}, {
        '"http_reqs"': '"http_req_failed": {"value": 0.4}, "http_reqs"',
        '{"metrics": {': '{"metrics": {"checks": {"passes": 10, "fails": 90}, ',
        '"metrics": {': '"metrics": {"dropped_iterations": {"count": 5}, "iterations": {"count": 10}, ',
    }),
    Good("wrk", WRK, {"requests_s": 748868.53, "mean_ms": 0.63591, "p99_ms": 2.5}, {
        "requests in 30.00s": "requests in 4.10s",
        "Requests/sec": "  Socket errors: connect 0, read 0, write 0, timeout 900000\nRequests/sec",
    }),
    Good("ab", AB, {"requests_s": 9588.68, "mean_ms": 1.043, "p99_ms": 3}, {
        "Failed requests:        0": "Failed requests: 900",
        "Concurrency": "Completed 100 requests\nConcurrency",
    }),
    Good("memtier_benchmark", MEMTIER, {"ops_s": 99994.03, "p99_ms": 0.799}, {
        "ALL": "server 127.0.0.1:6379 handle error response: -OOM command not allowed\nALL",
        "ALL STATS": "[RUN #1] Interrupted by user (Ctrl+C) after 1.4 secs, stopping threads...\nALL STATS",
    }),
    Good("memtier_benchmark, JSON", json.dumps(MEMTIER_JSON), {"ops_s": 2390.1, "mean_ms": 2.0, "p99.9_ms": 120.3}, {
        '"false"': '"true"',
        '"Ops/sec"': '"Connection Errors": 5, "Ops/sec"',
        "2002": "802",
    }),
    Good("redis-benchmark", REDIS, {"requests_s": 11764.71, "mean_ms": 3.139, "p99_ms": 14.439}, {
        "====== SET": "Error from server: OOM command not allowed\n====== SET",
    }),
    Good("redis-benchmark -q", REDIS_QUIET, {"requests_s": 6041.2, "p50_ms": 4.943}, {
        "SET: 6041.20 requests per second, p50=4.943 msec\n": "",
    }),
    Good("redis-benchmark --csv", REDIS_CSV, {"requests_s": 3409.13, "mean_ms": 12.614, "p99_ms": 65.471}, {
        ',"143.999"\n': "",
    }),
    Good("iperf3, a line for each interval", IPERF_STREAM, {"received_mbit_s": 9400.0, "retransmits": 3}, {
        '"event": "end"': '"event": "end of it"',
        '{"event": "end"': '{"event": "error", "data": "the server has terminated"}\n{"event": "end"',
    }),
    Good("iperf3, text", IPERF_TEXT, {"received_mbit_s": 5770, "retransmits": 2}, {
        "Connecting": "iperf3: interrupt - the client has terminated\nConnecting",
        "iperf Done.": "",
    }),
    Good("iperf3, UDP", IPERF_UDP, {"received_mbit_s": 49.5, "lost_percent": 10, "jitter_ms": 0.21}),
    Good(
        "go-ycsb",
        GO_YCSB,
        {"ops_s": 1000, "read_mean_ms": 0.91, "read_p99.9_ms": 8.1, "update_max_ms": 9.9},
        {"Run finished": "Run stopped", "UPDATE - Takes": "READ_ERROR - Takes"},
    ),
    Good("YCSB, JSON", json.dumps(YCSB_JSON), {"ops_s": 23102.5, "read_mean_ms": 0.5}, {"Return=OK": "Return=ERROR"}),
    Good("go-ycsb, table", GO_YCSB_TABLE, {"ops_s": 501.7, "read_p99.9_ms": 4.0}, {"Run finished": "Run stopped"}),
    Good("go-ycsb, JSON", GO_YCSB_JSON, {"ops_s": 501.7, "read_mean_ms": 0.41, "read_min_ms": 0.09}, {
        "Run finished": "Run stopped",
        '"Takes(s)":"9.9"}]': '"Takes(s)":"9.9"}',
    }),
    Good("Google Benchmark, CSV", GOOGLE_CSV, {"real_s": 24e-9, "items_s": 2.84891e9}, {
        '24.0,22.6,ns,,2.84891e+09,,,,1.5\n': '24.0,22.6,ns\n',
        '"BM_x/64",1236613,24.0,22.6,ns,,2.84891e+09,,,,1.5': '"BM_x/64",,,,,,,,true,"no, ""such"" file"',
    }),
    Good("Google Benchmark, console", GOOGLE_TEXT, {"real_s": 25.4e-9, "items_s": 2.5e9, "bytes_s": 2 * 1024**3}, {
        "25.4 ns         25.2 ns       897998 foo=1.5 bytes_per_second=2G/s items_per_second=2.5G/s":
            "ERROR OCCURRED: 'no such file'",
    }),
    Good("JMH, CSV", JMH_CSV, {"us_op": 1.25, "p99_us_op": 9.5, "gc_alloc_rate_MB_sec": 0.002467}, {
        "1.250000,0.066521": "1,250000,0,066521",
    }),
    Good("JMH, CSV with semicolons", JMH_CSV.replace(",", ";").replace("1.25", "1,25"), {"us_op": 1.25}),
    Good("criterion", CRITERION, {"time_s": 26.25e-6, "bytes_s": 148.5 * 1024**2}, {
        CRITERION[CRITERION.index("scan/4096               time"):]: "thread 'main' panicked at benches/x.rs:7:5:\n",
        CRITERION[CRITERION.index("Benchmarking scan/4096: Analyzing"):]: "",
    }),
    Good("criterion, estimates.json", json.dumps(ESTIMATES), {"mean_s": 26.25e-6, "median_s": 26.25e-6}),
    Good("cargo criterion", CARGO_CRITERION, {"time_s": 26.25e-6}, {'"unit":"ns"}}': '"unit":"ns"'}),
    Good("Rust's own benches", RUST_BENCH, {"time_s": 26.2505e-6, "bytes_s": 155e6}, {
        "test tests::scan ... bench:      26,250.50 ns/iter (+/- 1,234.10) = 155 MB/s": "test tests::scan ... FAILED",
    }),
    Good("vdbench", VDBENCH, {"iops": 104.5, "mib_s": 0.1, "mean_ms": 0.012, "read_max_ms": 0.05}, {
        "completed successfully": "terminating due to Data Validation errors",
        "elapsed=5": "elapsed=50",
        "Sep 20": "java.lang.RuntimeException: no dismount/mount requested\nSep 20",
        "     avg_2-5 ": "",
    }),
    Good("vdbench, files", VDBENCH_FILES, {"iops": 9945, "read_mean_ms": 0.8, "mib_s": 9.71, "write_iops": 4973}, {
        "Vdbench execution": "Vdbench",
        "elapsed=4": "elapsed=40",
    }),
    Good("stress-ng, YAML", STRESS_YAML, {"bogo_ops_s": 1622.253129, "bogo_ops_cpu_s": 1743.962844}, {
        "\n...\n": "\n",
        "      bogo-ops-per-second-real-time: 1622.253129\n": "",
    }),
    Good("fio, all kinds of requests as one", json.dumps(FIO_MIXED), {"mixed_iops": 75.0, "mixed_p99_ms": 2.0}),
    Good("sysbench fileio that only writes", SYSBENCH_FILES, {"writes_s": 3339.59, "p99_ms": 8.43}, {
        "Initializing worker": "FATAL: Cannot open file 'test_file.4' errno = 2\nInitializing worker",
        "writes: 51.32": "writes: 0.00",
    }),
    Good("siege", SIEGE, {"transactions_s": 1018.18, "max_ms": 30.0}, {
        '"failed_transactions":\t\t           0': '"failed_transactions":\t\t           900',
        "100.00": "41.00",
    }),
    Good("dbench", DBENCH, {"mb_s": 382.006, "max_ms": 25.895, "flush_mean_ms": 2.013}, {
        "releasing clients": "[1234] write failed on handle 10007 (No space left on device)\nreleasing clients",
        "Throughput": "x",
    }),
    Good("bonnie++", BONNIE, {"write_kib_s": 124698, "read_kib_s": 2479358, "seeks_s": 9944}, {",120ms,28113us": ""}),
    Good("perf stat", PERF, {"elapsed_s": 0.201881108, "task_clock_ms": 1.04, "page_faults": 75}, {
        "seconds time elapsed": "x", "seconds sys": "x",
    }),
    Good("openssl speed", OPENSSL, {"block_1024_mb_s": 1161.91418}, {"sha256         1161914.18k": ""}),
    Good("openssl speed, signatures", OPENSSL_SIGNS, {"signs_s": 39545.2, "verifications_s": 13378.9}, {" 13378.9": ""}),
    Good("dd", DD, {"mb_s": 1149.713, "elapsed_s": 0.0583701}, {
        "64+0 records in": "dd: error writing 'x': No space left on device\n64+0 records in",
    }),
    Good("iperf3", json.dumps(IPERF), {"received_mbit_s": 9400.0}, {
        '"intervals"': '"error": "refused", "intervals"',
        '"intervals": []': '"intervals": [{"sum": {"bits_per_second": 0, "seconds": 1.0}}]',
    }),
]  # fmt: skip
