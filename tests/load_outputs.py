"""What vegeta, oha and hey print of a run that ended well."""

from __future__ import annotations

import json

from tests.outputs import Good

VEGETA = """Requests      [total, rate, throughput]         3000, 100.03, 99.95
Duration      [total, attack, wait]             30.014s, 29.99s, 23.98ms
Latencies     [min, mean, 50, 90, 95, 99, max]  840.2µs, 3.4ms, 3.1ms, 5.5ms, 6.6ms, 9.9ms, 1.055s
Bytes In      [total, mean]                     300000, 100.00
Bytes Out     [total, mean]                     0, 0.00
Success       [ratio]                           100.00%
Status Codes  [code:count]                      200:3000
Error Set:
"""
VEGETA_JSON = {
    "latencies": {"total": 10200000000, "mean": 3400000, "50th": 3100000, "99th": 9900000, "max": 55100000},
    "duration": 29990000000,
    "requests": 3000,
    "rate": 100.03,
    "throughput": 99.95,
    "success": 1,
    "status_codes": {"200": 3000},
    "errors": [],
}
OHA = """Summary:
  Success rate:\t100.00%
  Total:\t30.0021 secs
  Slowest:\t55.1000 ms
  Fastest:\t1.2000 ms
  Average:\t3.4000 ms
  Requests/sec:\t14523.2213

  Total data:\t5.21 MiB
  Size/request:\t12 B

Response time histogram:
  1.200 ms [1]     |
  6.590 ms [42000] |■■■■■■■

Response time distribution:
  50.00% in 3.1000 ms
  99.00% in 9.9000 ms

Details (average, fastest, slowest):
  DNS+dialup:\t0.8000 ms, 0.3000 ms, 1.2000 ms

Status code distribution:
  [200] 435713 responses
"""
HEY = """
Summary:
  Total:\t10.0021 secs
  Slowest:\t0.0551 secs
  Fastest:\t0.0012 secs
  Average:\t0.0034 secs
  Requests/sec:\t14523.2213

Latency distribution:
  50%% in 0.0031 secs
  99%% in 0.0099 secs

Details (average, fastest, slowest):
  resp wait:\t0.0001 secs, 0.0000 secs, 0.0051 secs

Status code distribution:
  [200]\t145000 responses
"""
OHA_JSON = {
    "summary": {
        "successRate": 1.0,
        "total": 30.0,
        "slowest": 0.0551,
        "average": 0.0034,
        "requestsPerSec": 14523.2,
    },
    "latencyPercentiles": {"p50": 0.0031, "p99": 0.0099, "p99.9": None},
    "statusCodeDistribution": {"200": 435713},
    "errorDistribution": {},
}

LOADS = [
    Good("vegeta", VEGETA, {"requests_s": 99.95, "mean_ms": 3.4, "p99_ms": 9.9, "min_ms": 0.8402, "max_ms": 1055,
    }, {
        "100.00%": "12.00%", "Error Set:": "",
    }),
    Good("vegeta in JSON", json.dumps(VEGETA_JSON), {"requests_s": 99.95, "p50_ms": 3.1, "max_ms": 55.1}, {
        '"success": 1': '"success": 0.12', '"success": 1,': '"success": null,',
    }),
    Good("oha", OHA, {"requests_s": 14523.2213, "mean_ms": 3.4, "p99_ms": 9.9}, {
        "[200] 435713": "[503] 435000 responses\n  [200] 713",
        "Status code distribution:\n  [200] 435713 responses": "Error distribution:\n  [12] connection refused",
        "100.00%": "31.00%",
    }),
    Good("hey", HEY, {"requests_s": 14523.2213, "p50_ms": 3.1, "max_ms": 55.1}, {
        "[200]\t145000": "[500]\t145000",
    }),
    Good("oha in JSON", json.dumps(OHA_JSON), {"requests_s": 14523.2, "p99_ms": 9.9, "max_ms": 55.1}, {
        '"successRate": 1.0': '"successRate": 0.5', '{"200": 435713}': '{"200": 713, "503": 435000}',
    }),
]  # fmt: skip
