"""What drivers write, read and merged: against sums done by hand and lines of a real run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.base.buckets import bucket_of, bucket_value
from headrace.base.errors import WorkloadFailed
from headrace.experiment.store import RECONNECT
from headrace.experiment.workloads.drive.lines import KINDS, Source, measurement
from headrace.experiment.workloads.workload import Measurement
from headrace.host.arrow import INTERVALS, LATENCY
from tests.folders import TESTS

CASES = TESTS / "cases" / "workloads"
SECOND = 10**9
START_NS = 1_700_000_000 * SECOND


def histogram(latencies_ns: list[int]) -> dict[str, Any]:
    buckets, counts = np.unique(bucket_of(np.array(latencies_ns, dtype=np.int64)), return_counts=True)
    return {
        "min_ns": min(latencies_ns, default=None),
        "max_ns": max(latencies_ns, default=None),
        "buckets": [[int(b), int(n)] for b, n in zip(buckets, counts, strict=True)],
    }


def row(t_s: float, latencies_ns: list[int], **more: Any) -> dict[str, Any]:
    held = histogram(latencies_ns)
    line = {
        "kind": "interval",
        "t_s": t_s,
        "duration_s": 1.0,
        "operation": "read",
        "count": len(latencies_ns),
    }
    line |= {"errors": 0, "retries": 0, "timeouts": 0, "rows": 3, "bytes": 70}
    return line | {"response": held, "service": held, "failed": histogram([])} | more


def start(*operations: str) -> dict[str, Any]:
    return {"kind": "start", "window_start_ns": START_NS, "operations": list(operations or ["read"])}


def end(**more: Any) -> dict[str, Any]:
    line: dict[str, Any] = {
        "kind": "end",
        "window_start_ns": START_NS,
        "window_end_ns": START_NS + 2 * SECOND,
    }
    return line | {"errors": [], "connections_lost": 0, "unfinished": 0, "invalid": [], "warnings": []} | more


def written(path: Path, *lines: Any) -> Source:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(zstandard.compress(text.encode()))
    return Source(path)


def rows_of(measured: Measurement) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = measured.intervals.to_pylist()
    return rows


def held(measured: Measurement, kind: str) -> int:
    return sum(r["count"] for r in measured.latency.to_pylist() if r["kind"] == kind)


def test_one_driver(tmp_path: Path) -> None:
    failed = row(1.0, [500], failed=histogram([9000, 9001]), errors=2)
    source = written(tmp_path / "l", start(), row(-1.0, [10]), row(0.0, [100, 300]), failed, end())
    measured = measurement([source])
    assert measured.intervals.schema == INTERVALS
    assert measured.latency.schema == LATENCY
    assert (measured.window_start_ns, measured.window_end_ns) == (START_NS, START_NS + 2 * SECOND)
    assert [(r["t_s"], r["count"], r["errors"], r["rows"], r["bytes"]) for r in rows_of(measured)] == [
        (-1.0, 1, 0, 3, 70),
        (0.0, 2, 0, 3, 70),
        (1.0, 1, 2, 3, 70),
    ]
    # The extremes are those of all that ended, well or badly.
    assert [(r["min_ns"], r["max_ns"]) for r in rows_of(measured)] == [(10, 10), (100, 300), (500, 9001)]
    assert {kind: held(measured, kind) for kind in KINDS} == {"response": 3, "service": 3, "failed": 2}
    assert (measured.invalid, measured.warnings) == ((), ())


def test_what_ends_after_the_window_is_in_the_latencies_only(tmp_path: Path) -> None:
    drain = row(2.0, [5000], duration_s=60.0, kind="drain", failed=histogram([60_000]), errors=1)
    source = written(tmp_path / "l", start(), row(0.0, [100]), row(1.0, [100]), drain, end(drain_s=60.0))
    measured = measurement([source])
    assert measured.window_end_ns == START_NS + 2 * SECOND
    assert [(r["t_s"], r["count"], r["errors"], r["max_ns"]) for r in rows_of(measured)] == [
        (0.0, 1, 0, 100),
        (1.0, 1, 1, 60_000),
    ]
    assert {kind: held(measured, kind) for kind in KINDS} == {"response": 3, "service": 3, "failed": 1}
    assert max(r["t_s"] for r in measured.latency.to_pylist()) == 1.0


def test_two_drivers_are_added(tmp_path: Path) -> None:
    first = written(tmp_path / "1", start(), row(-1.0, [1]), row(0.0, [100, 200]), row(1.0, [100]), end())
    second = written(tmp_path / "2", start(), row(-1.0, []), row(0.0, [100, 50]), row(1.0, [900]), end())
    measured = measurement([first, second])
    assert [(r["count"], r["min_ns"], r["max_ns"], r["rows"]) for r in rows_of(measured)] == [
        (1, 1, 1, 6),
        (4, 50, 200, 6),
        (2, 100, 900, 6),
    ]
    buckets = {
        (r["t_s"], r["bucket"]): r["count"] for r in measured.latency.to_pylist() if r["kind"] == "service"
    }
    assert buckets[0.0, int(bucket_of(100))] == 2
    assert sum(buckets.values()) == 6


def test_drivers_that_end_at_different_moments_tile_one_window(tmp_path: Path) -> None:
    """One has its rest joined to its last second, the other a row of its own for it."""
    joined = row(1.0, [100] * 5, duration_s=1.3)
    first = written(tmp_path / "1", start(), row(0.0, [100]), joined, end())
    second = written(
        tmp_path / "2", start(), row(0.0, [7]), row(1.0, [8]), row(2.0, [9, 9], duration_s=0.8), end()
    )
    measured = measurement([first, second])
    assert [(r["t_s"], r["count"]) for r in rows_of(measured)] == [(0.0, 2), (1.0, 8)]
    assert [r["duration_s"] for r in rows_of(measured)] == pytest.approx([1.0, 1.8])
    assert measured.window_end_ns == START_NS + 1_800_000_000 + SECOND
    assert held(measured, "response") == 10


def test_an_operation_that_only_some_have_has_rows_in_every_second(tmp_path: Path) -> None:
    lost = row(1.0, [40], operation=RECONNECT)
    first = written(tmp_path / "1", start(), row(0.0, [1]), row(1.0, [1]), lost, end(connections_lost=1))
    second = written(tmp_path / "2", start(), row(0.0, [1]), row(1.0, [1]), end())
    measured = measurement([first, second])
    reconnects = [
        (r["t_s"], r["count"], r["min_ns"]) for r in rows_of(measured) if r["operation"] == RECONNECT
    ]
    assert reconnects == [(0.0, 0, None), (1.0, 1, 40)]
    assert measured.warnings == ("connections lost and reopened: 1",)


def test_each_drivers_verdict_names_it_and_errors_are_added_up(tmp_path: Path) -> None:
    error = {"operation": "read", "code": 1213, "message": "Deadlock found", "count": 40}
    sources = []
    for name in ("client 1 (local)", "client 2 (root@lg2)"):
        late = end(errors=[error], invalid=["the driver was late"], warnings=["hm"], unfinished=2)
        path = tmp_path / name[:8]
        sources.append(Source(written(path, start(), row(0.0, [1]), late).path, name))
    measured = measurement(sources)
    assert measured.invalid == (
        "client 1 (local): the driver was late",
        "client 2 (root@lg2): the driver was late",
    )
    assert measured.warnings == (
        "read: 80 times error 1213: Deadlock found",
        "operations given up at the end: 4",
        "client 1 (local): hm",
        "client 2 (root@lg2): hm",
    )


def test_many_kinds_of_errors_are_summed_up(tmp_path: Path) -> None:
    errors = [{"operation": "read", "code": 1000 + i, "message": "m", "count": 1 + i} for i in range(9)]
    warnings = measurement([written(tmp_path / "l", start(), row(0.0, [1]), end(errors=errors))]).warnings
    assert warnings[0] == "read: 9 times error 1008: m"
    assert warnings[5:] == ("4 more kinds of errors",)


def test_times_are_brought_to_the_targets_clock(tmp_path: Path) -> None:
    source = written(tmp_path / "l", start(), row(0.0, [1]), row(1.0, [1]), end())
    measured = measurement([Source(source.path, "", 5_000_000)])
    assert measured.window_start_ns == START_NS + 5_000_000
    assert measured.window_end_ns - measured.window_start_ns == 2 * SECOND


def test_no_work_is_no_measurement_and_says_why(tmp_path: Path) -> None:
    error = {"operation": "read", "code": 1146, "message": "Table 'x' doesn't exist", "count": 12}
    nothing = row(0.0, [], failed=histogram([5] * 12), errors=12)
    lines = [start(), row(-1.0, [4]), nothing, row(0.0, [9], operation=RECONNECT), end(errors=[error])]
    with pytest.raises(
        WorkloadFailed, match=r"no operation succeeded .*: read: 12 times error 1146: Table 'x'"
    ):
        measurement([written(tmp_path / "l", *lines)])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "start with `start`"),
        ([row(0.0, [1])], "start with `start`"),
        ([start(), row(0.0, [1])], "cut short"),
        ([start(), end()], "do not start together"),
        ([start(), row(0.5, [1]), end()], "do not start together"),
        ([start(), row(0.0, [1], count=2), end()], "2 operations of read at 0.0 s, but response holds 1"),
        ([start(), row(0.0, [1], service=histogram([1, 1])), end()], "but service holds 2"),
        ([start(), row(0.0, [1], operation="other"), end()], "KeyError: 'other'"),
        ([start(), {"kind": "interval"}, end()], "KeyError"),
        ([start(), {"kind": "noise"}, end()], "unknown kind, 'noise'"),
        ([start(), row(0.0, [1]), {"kind": "end"}], "KeyError"),
        (
            [start(), row(0.0, [1], failed={"min_ns": 1, "max_ns": 1, "buckets": [[-1, 1]]}), end()],
            "no histogram: failed",
        ),
        (
            [start(), row(0.0, [1], failed={"min_ns": 1, "max_ns": 1, "buckets": [[1, 2, 3]]}), end()],
            "cannot be read",
        ),
        ([start(), row(0.0, [1], count="x"), end()], "cannot be read"),
        ([start(), row(0.0, [1], rows=2**80), end()], "cannot be read"),
        ([start(), 7, end()], "cannot be read"),
    ],
)
def test_lines_that_are_wrong_are_an_error(tmp_path: Path, lines: list[Any], message: str) -> None:
    with pytest.raises(WorkloadFailed, match=message):
        measurement([written(tmp_path / "l", *lines)])


def test_a_file_that_is_cut_anywhere_is_an_error(tmp_path: Path) -> None:
    whole = written(tmp_path / "l", start(), row(0.0, [1]), row(1.0, [1]), end()).path.read_bytes()
    for size in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(WorkloadFailed):
            measurement([Source(tmp_path / "cut")])


def test_lines_of_a_real_run(tmp_path: Path) -> None:
    """An open loop over a server that was stopped for a second, with a timeout of half of one."""
    text = (CASES / "drive-stalled.jsonl").read_bytes()
    (tmp_path / "l").write_bytes(zstandard.compress(text))
    lines = [json.loads(line) for line in text.splitlines()]
    measured = measurement([Source(tmp_path / "l")])
    window = [line for line in lines if line["kind"] in ("interval", "drain") and line["t_s"] >= 0]
    for kind, counted in (("response", "count"), ("service", "count")):
        assert held(measured, kind) == sum(line[counted] for line in window) > 100
    assert held(measured, "failed") == sum(n for line in window for _, n in line["failed"]["buckets"]) == 4
    work = [r for r in rows_of(measured) if r["t_s"] >= 0 and r["operation"] != RECONNECT]
    assert sum(r["errors"] for r in work) == lines[-1]["errors"][0]["count"]
    slowest = max(r["max_ns"] for r in work if r["max_ns"])
    buckets = np.array([r["bucket"] for r in measured.latency.to_pylist()], dtype=np.int32)
    assert bucket_value(buckets).max() == pytest.approx(slowest, rel=0.005)
    assert (measured.window_end_ns - measured.window_start_ns) / 1e9 == pytest.approx(
        max(line["t_s"] + line["duration_s"] for line in window if line["kind"] == "interval")
    )


seconds = st.lists(st.lists(st.integers(1, 10**12), max_size=5), min_size=1, max_size=4)


@given(st.lists(seconds, min_size=1, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_merging_loses_nothing(tmp_path: Path, drivers: list[list[list[int]]]) -> None:
    length = min(len(driver) for driver in drivers)
    sources = [
        written(tmp_path / f"{i}", start(), *(row(float(t), own) for t, own in enumerate(driver)), end())
        for i, driver in enumerate(drivers)
    ]
    everything = [ns for driver in drivers for second in driver for ns in second]
    if not everything:
        return
    measured = measurement(sources)
    assert sum(r["count"] for r in rows_of(measured)) == held(measured, "response") == len(everything)
    assert len(rows_of(measured)) == length
    assert max(r["max_ns"] for r in rows_of(measured) if r["max_ns"]) == max(everything)
