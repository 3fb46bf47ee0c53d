"""One answer a trial, from the tables: against sums done by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.base.buckets import bucket_of
from headrace.base.errors import StoreError
from headrace.base.model import Role, TrialState
from headrace.experiment.stats.trials import TrialResponse, read_tables, trial_responses
from headrace.experiment.store import RECONNECT, ExperimentFolder, TrialRecord
from headrace.host.arrow import INTERVALS, LATENCY, SAMPLES, TrialData
from tests import synthetic

START_NS = 1_700_000_000_000_000_000


def row(t_s: float, count: int, **more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {field.name: None for field in INTERVALS}
    return empty | {"t_s": t_s, "duration_s": 1.0, "operation": "read", "count": count, "errors": 0} | more


def bar(t_s: float | None, latency_ns: int, count: int, **more: Any) -> dict[str, Any]:
    bucket = int(bucket_of(latency_ns))
    return {"t_s": t_s, "operation": "read", "kind": "service", "bucket": bucket, "count": count} | more


def respond(
    tmp_path: Path, rows: list[dict[str, Any]], bars: list[dict[str, Any]], seconds: float = 3.0
) -> TrialResponse:
    folder = ExperimentFolder.create(tmp_path / "x", "", synthetic.bare_design())
    record = write(folder, 1, rows, bars, seconds)
    (response,) = trial_responses(folder, [record])
    return response


def write(
    folder: ExperimentFolder,
    number: int,
    rows: list[dict[str, Any]],
    bars: list[dict[str, Any]],
    seconds: float,
) -> TrialRecord:
    end_ns = START_NS + round(seconds * 1e9)
    record = TrialRecord(
        number,
        1,
        number,
        "STOCK",
        Role.BASELINE,
        TrialState.COMPLETE,
        window_start_ns=START_NS,
        window_end_ns=end_ns,
    )
    tables = (pa.Table.from_pylist(rows, INTERVALS), pa.Table.from_pylist(bars, LATENCY))
    folder.begin_trial(number).commit(record, TrialData(*tables, SAMPLES.empty_table()))
    return record


def test_throughput_counts_the_window_and_no_warm_up(tmp_path: Path) -> None:
    rows = [row(t, 100, errors=1) for t in (-2.0, -1.0, 0.0, 1.0, 2.0, 3.0)]
    found = respond(tmp_path, rows, [])
    assert (found.operations, found.errors, found.throughput_ops_s) == (300, 3, 100.0)


def test_all_operations_count(tmp_path: Path) -> None:
    rows = [row(t, n, operation=o) for t in (0.0, 1.0, 2.0) for o, n in (("read", 70), ("write", 30))]
    assert respond(tmp_path, rows, []).throughput_ops_s == 100.0


def test_a_stalled_second_without_a_row_lowers_throughput(tmp_path: Path) -> None:
    assert respond(tmp_path, [row(0.0, 150), row(2.0, 150)], []).throughput_ops_s == 100.0


def test_a_row_across_an_edge_counts_by_its_share(tmp_path: Path) -> None:
    rows = [row(-0.5, 100), row(0.5, 100), row(1.5, 100), row(2.5, 100)]
    assert respond(tmp_path, rows, []).operations == 300
    assert respond(tmp_path / "b", [row(0.0, 90, duration_s=6.0)], []).operations == 45


def test_histograms_a_second_merge_within_the_window(tmp_path: Path) -> None:
    bars = [bar(t, 1000 * (1 + round(t)), 5) for t in (-1.0, 0.0, 1.0, 2.0, 3.0)]
    found = respond(tmp_path, [row(0.0, 15)], bars)
    assert found.latency.total == 15
    assert found.latency.counts[int(bucket_of(2000))] == 5


def test_a_histogram_of_the_whole_window_is_not_counted_with_its_seconds(tmp_path: Path) -> None:
    bars = [
        bar(None, 1000, 15),
        *(bar(t, 1000, 5) for t in (0.0, 1.0, 2.0)),
        bar(0.0, 5000, 2, operation="fsync"),
    ]
    found = respond(tmp_path, [row(0.0, 17)], bars)
    assert found.latency.counts[int(bucket_of(1000))] == 15
    assert found.latency.counts[int(bucket_of(5000))] == 2


def test_extremes_are_those_of_the_window_and_known_for_every_operation(tmp_path: Path) -> None:
    rows = [row(-1.0, 9, min_ns=1, max_ns=10**9), row(0.0, 9, min_ns=900, max_ns=9000), row(1.0, 9)]
    found = respond(tmp_path, rows, [bar(None, 1000, 18)])
    assert (found.latency.min_ns, found.latency.max_ns) == (900, 9000)
    unknown = [*rows, row(0.0, 5, operation="fsync")]
    found = respond(tmp_path / "b", unknown, [bar(None, 1000, 23)])
    assert (found.latency.min_ns, found.latency.max_ns) == (None, None)


def test_response_times_are_used_only_where_every_trial_has_them(tmp_path: Path) -> None:
    folder = ExperimentFolder.create(tmp_path / "x", "", synthetic.bare_design())
    both = [bar(None, 1000, 40), bar(None, 9000, 40, kind="response")]
    first = write(folder, 1, [row(0.0, 40)], both, 3.0)
    second = write(folder, 2, [row(0.0, 40)], both, 3.0)
    assert [r.latency_kind for r in trial_responses(folder, [first, second])] == ["response"] * 2
    assert trial_responses(folder, [first])[0].value("p50") == pytest.approx(9000, rel=0.004)
    third = write(folder, 3, [row(0.0, 40)], both[:1], 3.0)
    mixed = trial_responses(folder, [first, second, third])
    assert {r.latency_kind for r in mixed} == {"service"}
    assert all(r.value("p50") == pytest.approx(1000, rel=0.004) for r in mixed)


def test_what_ended_badly_belongs_to_the_response_times_and_to_no_throughput(tmp_path: Path) -> None:
    rows = [row(0.0, 98, errors=2, min_ns=1000, max_ns=60_000_000)]
    bars = [
        bar(0.0, 1000, 98, kind="response"),
        bar(0.0, 900, 98),
        bar(0.0, 60_000_000, 2, kind="failed"),
        # Of the warm-up.
        bar(-1.0, 60_000_000, 50, kind="failed"),
    ]
    found = respond(tmp_path, rows, bars, 1.0)
    assert (found.operations, found.throughput_ops_s, found.latency_kind) == (98, 98.0, "response")
    # Without them the slowest operation took 1 us: what is never answered would make a server look quick.
    assert (found.latency.total, found.latency.max_ns) == (100, 60_000_000)
    assert found.latency.counts[int(bucket_of(60_000_000))] == 2
    only_failures = [row(0.0, 0, errors=2, min_ns=5, max_ns=9)], [bar(0.0, 9, 2, kind="failed")]
    found = respond(tmp_path / "b", *only_failures)
    assert (found.latency_kind, found.latency.total, found.throughput_ops_s) == ("response", 2, 0.0)


def test_a_connection_made_anew_is_no_operation(tmp_path: Path) -> None:
    rows = [row(0.0, 30), row(0.0, 7, operation=RECONNECT, errors=3)]
    found = respond(tmp_path, rows, [bar(0.0, 1000, 30), bar(0.0, 10**9, 7, operation=RECONNECT)])
    assert (found.operations, found.errors, found.latency.total) == (30, 0, 30)
    assert list(found.parts) == ["read"]


def test_each_kind_of_operation_has_its_own_answer(tmp_path: Path) -> None:
    rows = [
        row(0.0, 60, min_ns=900, max_ns=2000),
        row(0.0, 30, operation="write", errors=1, min_ns=8000, max_ns=9500),
    ]
    bars = [bar(0.0, 1000, 60), bar(0.0, 9000, 30, operation="write")]
    found = respond(tmp_path, rows, bars)
    assert (found.operations, found.errors, found.latency.total) == (90, 1, 90)
    assert (found.latency.min_ns, found.latency.max_ns) == (900, 9500)
    read, write = found.parts["read"], found.parts["write"]
    assert (read.operations, read.errors, read.throughput_ops_s) == (60, 0, 20.0)
    assert (write.operations, write.errors, write.throughput_ops_s) == (30, 1, 10.0)
    assert (write.latency.total, write.latency.min_ns, write.latency.max_ns) == (30, 8000, 9500)
    assert write.value("p50") == pytest.approx(9000, rel=0.004)
    assert (read.block, read.treatment, read.role) == (found.block, found.treatment, found.role)


def test_a_trial_without_rows_did_nothing(tmp_path: Path) -> None:
    found = respond(tmp_path, [], [])
    assert (found.operations, found.throughput_ops_s, found.latency.total) == (0, 0.0, 0)
    assert found.value("throughput") is None
    assert found.value("p50") is None


def test_each_trial_gets_its_own_rows(tmp_path: Path) -> None:
    """Trials whose numbers do not follow the order of the files."""
    folder = ExperimentFolder.create(tmp_path / "x", "", synthetic.bare_design())
    records = [write(folder, n, [row(0.0, n)], [bar(None, 1000 * n, n)], 3.0) for n in (12, 3, 7)]
    found = trial_responses(folder, records)
    assert [r.number for r in found] == [12, 3, 7]
    assert [r.latency.total for r in found] == [12, 3, 7]
    assert all(r.latency.counts[int(bucket_of(1000 * r.number))] == r.number for r in found)


def test_no_records_no_responses(tmp_path: Path) -> None:
    assert trial_responses(ExperimentFolder.create(tmp_path / "x", "", synthetic.bare_design()), []) == []


def test_a_damaged_table_is_said_to_be_damaged(tmp_path: Path) -> None:
    folder = ExperimentFolder.create(tmp_path / "x", "", synthetic.bare_design())
    record = write(folder, 1, [row(0.0, 9)], [], 3.0)
    (folder.trial_path(1) / "latency.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(StoreError, match="cannot be read"):
        trial_responses(folder, [record])


def test_tables_that_were_read_once_answer_for_any_of_their_trials(tmp_path: Path) -> None:
    shape = synthetic.Shape(effects={"A": 1.0, "B": 1.2}, blocks=2, seconds=10, sampled=False)
    folder = synthetic.make(tmp_path / "e", shape)
    records = folder.trials()
    tables = read_tables(folder, records)
    for part in (records, records[1:3]):
        anew, again = trial_responses(folder, part), trial_responses(folder, part, tables)
        assert [r.number for r in again] == [r.number for r in part]
        for a, b in zip(anew, again, strict=True):
            assert (a.throughput_ops_s, a.operations, a.errors) == (
                b.throughput_ops_s,
                b.operations,
                b.errors,
            )
            assert (a.latency.counts == b.latency.counts).all()
