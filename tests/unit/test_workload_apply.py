"""The workload `apply`: counting GTIDs, and making a window from the client's output."""

from __future__ import annotations

import pytest

from headrace.base.errors import PlanError, WorkloadFailed
from headrace.experiment.workloads import apply, make_workload

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("gtids", "count"),
    [
        ("", 0),
        (f"{UUID}:1-5", 5),
        (f"{UUID}:7", 1),
        (rf"{UUID}:1-3:11:47-49,\n{UUID[::-1]}:2", 8),
        (f"{UUID}:nightly:1-4:daily:2", 5),
        ("0-1-366", 366),
        ("0-1-366,7-12-10", 376),
    ],
)
def test_transactions_of_a_gtid_set(gtids: str, count: int) -> None:
    assert apply.transactions(gtids) == count


def printed(applied: list[int], *, read_at: int | None = None, rows: str = "1", error: str = "") -> str:
    lines = []
    for second, number in enumerate(applied):
        state = "Slave has read all relay log; waiting for more updates" if second == read_at else "Commit"
        lines += [
            "tick\tUNIX_TIMESTAMP(SYSDATE(6))\t@@GLOBAL.gtid_slave_pos\trows",
            f"tick\t{1_700_000_000 + second}.5\t0-1-{number}\t{rows}",
            f"      Slave_SQL_Running_State: {state}",
            f"               Last_SQL_Error: {error}",
        ]
        if read_at is not None and second > read_at:
            lines[-2] = lines[-2].replace("Commit", "Slave has read all relay log")
    return "\n".join(lines)


def test_a_window_of_ticks_is_counted_by_what_was_committed_between_them() -> None:
    measured = apply.measured(printed([0, 100, 250, 450, 700, 1000, 1400], rows="NULL"), warmup_s=2)
    rows = measured.intervals.to_pylist()
    assert [(row["t_s"], row["count"]) for row in rows] == [
        (-2, 100),
        (-1, 150),
        (0, 200),
        (1, 250),
        (2, 300),
    ]
    assert {row["rows"] for row in rows} == {None}
    assert measured.window_end_ns - measured.window_start_ns == 3 * 10**9
    assert measured.warnings == ()
    assert measured.latency.num_rows == 0


def test_the_time_with_nothing_left_to_apply_is_not_measured() -> None:
    measured = apply.measured(printed([0, 10, 20, 30, 40, 50, 55, 55, 55], read_at=6), warmup_s=1)
    assert [row["count"] for row in measured.intervals.to_pylist()] == [10] * 5
    assert measured.warnings == ("the logs ended after 4 of 6 s",)


def test_a_coordinator_that_has_read_all_leaves_its_appliers_at_work() -> None:
    measured = apply.measured(printed([0, 10, 20, 30, 40, 50, 60], read_at=2), warmup_s=1)
    assert [row["count"] for row in measured.intervals.to_pylist()] == [10] * 5
    assert measured.warnings == ()


def test_an_applier_that_waits_is_slow_and_not_at_its_end() -> None:
    measured = apply.measured(printed([0, 10, 10, 10, 10, 10, 10]), warmup_s=1)
    assert sum(row["count"] for row in measured.intervals.to_pylist()) == 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (printed([0, 900, 1000, 1000, 1000], read_at=2), r"1,000 transactions were applied in 2 s"),
        (printed([0, 0, 0, 0], read_at=0), "committed nothing"),
        (printed([0, 5, 5, 5, 5], error="Duplicate entry '7'"), "the applier stopped: Duplicate entry '7'"),
        (
            printed([0, 5, 5], error="Worker 1 failed")
            + "\nworker\tLAST_ERROR_MESSAGE\nworker\tUnknown database 'shop'\n",
            "the applier stopped: Unknown database 'shop'",
        ),
        ("", "committed nothing"),
    ],
)
def test_no_rate_comes_of_less(text: str, said: str) -> None:
    with pytest.raises(WorkloadFailed, match=said):
        apply.measured(text, warmup_s=1)


@pytest.mark.parametrize("options", [{}, {"binlogs": []}, {"binlogs": ["binlog.000001"]}])
def test_logs_are_named_by_absolute_paths(options: dict[str, list[str]]) -> None:
    with pytest.raises(PlanError, match="binlogs"):
        make_workload("apply", options)
