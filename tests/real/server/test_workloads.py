"""Workloads: the contract suite on the real programs, and the parsers on what those really printed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.buckets import bucket_value
from headrace.base.errors import DiskFull, NotReady, WorkloadFailed
from headrace.base.model import Option, ServerEndpoint, Tool, Value, Vendor
from headrace.experiment.workloads import (
    Context,
    Measurement,
    fio,
    make_workload,
    sysbench,
    sysbench_fileio,
    sysbench_oltp,
)
from headrace.experiment.workloads.tables import (
    Phase,
    Slice,
    boundaries,
    measurement,
    percentile_ns,
    to_histogram,
)
from headrace.experiment.workloads.tool import last_lines, require_version
from headrace.host.target.local import LocalTarget
from tests import servers
from tests.contracts.workload import WorkloadContract, make_context, window_rows
from tests.folders import TESTS

CASES = TESTS / "cases" / "workloads"
SECOND = 10**9

needs_sysbench = pytest.mark.needs("sysbench")
needs_fio = pytest.mark.needs("fio")


def case(name: str) -> str:
    return (CASES / name).read_text()


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return make_context(tmp_path)


# --- the contract, on the real programs -------------------------------------------------------------


class FileWorkload(WorkloadContract):
    async def leftovers(self, context: Context) -> list[str]:
        return [path.name for path in Path(context.folder).iterdir()]


@needs_fio
class TestFio(FileWorkload):
    kind = "fio"
    options: ClassVar[dict[str, Option]] = {"rw": "randrw", "size": "16M", "threads": 2, "ioengine": "psync"}
    concurrency = 2
    bad_option: ClassVar[tuple[str, Option]] = ("rw", "sideways")
    impossible: ClassVar[dict[str, Option]] = {"bs": 1000}  # unaligned: the kernel refuses it with O_DIRECT


@needs_fio
class TestFioAsynchronous(FileWorkload):
    kind = "fio"
    options: ClassVar[dict[str, Option]] = {
        "rw": "randwrite",
        "size": "16M",
        "iodepth": 8,
        "ioengine": "libaio",
    }
    concurrency = 8
    bad_option: ClassVar[tuple[str, Option]] = ("bs", "4X")
    impossible: ClassVar[dict[str, Option]] = {"bs": 1000}


@needs_sysbench
class TestSysbenchFileio(FileWorkload):
    kind = "sysbench-fileio"
    options: ClassVar[dict[str, Option]] = {
        "file_test_mode": "rndrw",
        "file_num": 4,
        "file_total_size": "16M",
        "file_extra_flags": ["direct"],
        "threads": 2,
    }
    concurrency = 2
    bad_option: ClassVar[tuple[str, Option]] = ("file_test_mode", "backwards")
    impossible: ClassVar[dict[str, Option]] = {"file_total_size": "32M"}


@pytest.fixture(scope="module")
def mariadb(folder: Path) -> Iterator[ServerEndpoint]:
    """A throwaway server with an empty database."""
    with servers.mariadb(folder / "m") as server:
        server.sql("CREATE DATABASE sbtest")
        yield ServerEndpoint(Vendor.MARIADB, "", server.socket, 0, "root", "sbtest")


def query(endpoint: ServerEndpoint, statement: str) -> list[str]:
    client = ["mariadb", "--no-defaults", f"--socket={endpoint.socket}", "-uroot", "-N", "-e", statement]
    done = subprocess.run([*client, endpoint.database], check=True, capture_output=True, text=True)
    return done.stdout.split()


class OltpWorkload(WorkloadContract):
    kind = "sysbench-oltp"
    concurrency = 2
    bad_option: ClassVar[tuple[str, Option]] = ("rand_type", "lucky")
    impossible: ClassVar[dict[str, Option]] = {"tables": 3}

    @pytest.fixture
    def context(self, tmp_path: Path, mariadb: ServerEndpoint) -> Iterator[Context]:
        yield make_context(tmp_path, mariadb)
        for table in query(mariadb, "SHOW TABLES"):
            query(mariadb, f"DROP TABLE {table}")

    async def leftovers(self, context: Context) -> list[str]:
        assert context.endpoint is not None
        return query(context.endpoint, "SHOW TABLES")


@needs_sysbench
class TestStudyMix(OltpWorkload):
    options: ClassVar[dict[str, Option]] = {
        "script": "study",
        "tables": 2,
        "table_size": 1000,
        "threads": 2,
        "rand_type": "pareto",
        "reconnect": 50,
    }

    async def test_each_event_is_an_insert_a_select_and_an_update(self, context: Context) -> None:
        workload = make_workload(self.kind, {**self.options, "reconnect": 100})
        await workload.prepare(context)
        assert context.endpoint is not None
        before = _status(context.endpoint)
        measured = await workload.run(context)
        after = _status(context.endpoint)
        rows = query(
            context.endpoint, "SELECT (SELECT COUNT(*) FROM sbtest1) + (SELECT COUNT(*) FROM sbtest2)"
        )
        events = sum(r["count"] for r in measured.intervals.to_pylist())
        assert int(rows[0]) - 2000 == events
        # The warm-up and the window are in both; nothing else talks to this server.
        assert after["Com_insert"] - before["Com_insert"] == events
        assert after["Com_select"] - before["Com_select"] == events
        assert after["Com_update"] - before["Com_update"] == events
        assert after["Com_begin"] == before["Com_begin"]
        assert after["Connections"] - before["Connections"] > events / 100


@needs_sysbench
class TestReadWrite(OltpWorkload):
    options: ClassVar[dict[str, Option]] = {"tables": 2, "table_size": 1000, "threads": 2, "skip_trx": True}
    bad_option: ClassVar[tuple[str, Option]] = ("threads", 0)

    @pytest.mark.parametrize(
        "script",
        [
            "oltp_read_only",
            "oltp_write_only",
            "oltp_point_select",
            "oltp_update_index",
            "oltp_update_non_index",
            "oltp_insert",
            "oltp_delete",
        ],
    )
    async def test_every_script_runs(self, script: str, tmp_path: Path, mariadb: ServerEndpoint) -> None:
        context = replace(make_context(tmp_path, mariadb), seconds=1, warmup_s=0)
        workload = make_workload(self.kind, {**self.options, "script": script})
        await workload.prepare(context)
        try:
            measured = await workload.run(context)
        finally:
            await workload.cleanup(context)
        assert sum(r["count"] for r in window_rows(measured)) > 0

    async def test_an_error_that_is_ignored_is_counted(self, context: Context) -> None:
        """Eight threads delete and insert the same two rows: they run into each other's locks and keys."""
        options = {
            **self.options,
            "script": "oltp_write_only",
            "table_size": 2,
            "tables": 1,
            "skip_trx": False,
        }
        workload = make_workload(self.kind, {**options, "threads": 8, "mysql_ignore_errors": "all"})
        await workload.prepare(context)
        measured = await workload.run(context)
        assert sum(r["errors"] for r in window_rows(measured)) > 0


def _status(endpoint: ServerEndpoint) -> dict[str, int]:
    names = "'Com_insert', 'Com_stmt_execute', 'Com_select', 'Com_update', 'Com_begin', 'Connections'"
    words = query(endpoint, f"SHOW GLOBAL STATUS WHERE Variable_name IN ({names})")
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}


def test_the_data_set_is_what_changes_the_bytes() -> None:
    def dataset(**options: Value) -> Mapping[str, Value] | None:
        return make_workload("sysbench-oltp", options).dataset()

    assert dataset() == dataset(threads=64, rand_type="pareto", script="study", skip_trx=True)
    assert dataset() != dataset(tables=2)
    assert dataset() != dataset(table_size=5)
    assert dataset() != dataset(create_secondary=False)
    assert make_workload("fio", {}).dataset() is None


# --- fio --------------------------------------------------------------------------------------------


def fio_phase(text: str) -> Phase:
    return fio.phase(fio.read_snapshots(text.splitlines(keepends=True), "case"), "case")


def final_report(text: str) -> dict[str, Any]:
    """fio's last report, read without the code under test."""
    report: dict[str, Any] = json.loads(text[text.rindex("\n{\n") :])
    job: dict[str, Any] = report["jobs"][0]
    return job


def merged(phase: Phase, operation: str) -> dict[int, int]:
    total: dict[int, int] = {}
    for s in phase.slices:
        if s.operation == operation:
            for bucket, count in (s.histogram or {}).items():
                total[bucket] = total.get(bucket, 0) + count
    return total


def test_fio_differences_sum_to_the_final_report() -> None:
    text = case("fio-randrw.stdout")
    job, phase = final_report(text), fio_phase(text)
    for operation, latency in (("read", "clat_ns"), ("write", "clat_ns"), ("sync", "lat_ns")):
        slices = [s for s in phase.slices if s.operation == operation]
        assert len(slices) >= 2
        assert sum(s.count for s in slices) == job[operation][latency]["N"] > 100
        assert sum(merged(phase, operation).values()) == job[operation][latency]["N"]
        assert min(s.min_ns for s in slices if s.min_ns) == job[operation][latency]["min"]
        assert max(s.max_ns for s in slices if s.max_ns) == job[operation][latency]["max"]
        if operation != "sync":
            assert sum(s.count for s in slices) == job[operation]["total_ios"]
            assert sum(s.bytes or 0 for s in slices) == job[operation]["io_bytes"]
    assert phase.end_ns - phase.start_ns == max(job[o]["runtime"] for o in ("read", "write")) * 10**6


def agrees_with_fio(histogram: dict[int, int], latency: Mapping[str, Any]) -> None:
    """Our percentiles and mean against those that fio printed: its bins are 1.6% wide, ours 0.8%."""
    for name, value in latency["percentile"].items():
        ours = percentile_ns(histogram, float(name) / 100)
        assert ours == pytest.approx(value, rel=0.024), name
    values = bucket_value(np.array(list(histogram), dtype=np.int32))
    mean = np.average(values, weights=list(histogram.values()))
    assert mean == pytest.approx(latency["mean"], rel=0.02)


def test_fio_percentiles_are_fios_own() -> None:
    text = case("fio-randrw.stdout")
    job, phase = final_report(text), fio_phase(text)
    agrees_with_fio(merged(phase, "read"), job["read"]["clat_ns"])
    agrees_with_fio(merged(phase, "write"), job["write"]["clat_ns"])
    agrees_with_fio(merged(phase, "sync"), job["sync"]["lat_ns"])


@needs_fio
async def test_a_real_run_has_fios_own_totals_and_percentiles(context: Context) -> None:
    workload = make_workload(
        "fio", {"rw": "randrw", "size": "16M", "numjobs": 2, "iodepth": 4, "rwmixread": 70}
    )
    await workload.prepare(context)
    measured = await workload.run(context)
    raw = (
        zstandard.ZstdDecompressor().stream_reader((context.raw / "fio-window.stdout.zst").open("rb")).read()
    )
    job = final_report("\n" + raw.decode())
    assert fio_counts(measured) == {op: job[op]["total_ios"] for op in ("read", "write")}
    for operation in ("read", "write"):
        rows = [r for r in measured.latency.to_pylist() if r["operation"] == operation]
        histogram: dict[int, int] = {}
        for row in rows:
            histogram[row["bucket"]] = histogram.get(row["bucket"], 0) + row["count"]
        agrees_with_fio(histogram, job[operation]["clat_ns"])
        counted = sum(r["bytes"] for r in window_rows(measured) if r["operation"] == operation)
        assert counted == job[operation]["io_bytes"]


def fio_counts(measured: Measurement) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in window_rows(measured):
        counts[row["operation"]] = counts.get(row["operation"], 0) + row["count"]
    return counts


def test_fio_output_that_is_cut_is_never_a_short_run() -> None:
    text = case("fio-randrw.stdout")
    for cut in range(0, len(text) - 2, 997):
        with pytest.raises(WorkloadFailed, match=r"cut short|no report|stopped after"):
            measurement(fio_phase(text[:cut]), None, seconds=2.2, what="fio")


def test_fio_files_what_took_too_long_under_the_longest() -> None:
    beyond = 2**34 - 2**26  # the value fio prints for its last bin
    histogram = fio.histogram_of({1000: 5, beyond: 1}, 40 * SECOND)
    assert percentile_ns(histogram, 1.0) == pytest.approx(40 * SECOND, rel=0.005)
    assert sum(histogram.values()) == 6


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    volume = tmp_path / "small"
    volume.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "none", str(volume)], check=True)
    yield volume
    subprocess.run(["umount", str(volume)], check=True)


@needs_fio
@needs_sysbench
@pytest.mark.needs("root")
@pytest.mark.parametrize(("kind", "size"), [("fio", "size"), ("sysbench-fileio", "file_total_size")])
async def test_a_full_disk_is_said_in_one_line(
    kind: str, size: str, context: Context, small_volume: Path
) -> None:
    context = replace(context, folder=f"{small_volume}/files")
    workload = make_workload(kind, {size: "16M"})
    with pytest.raises(DiskFull, match=r"no room left.*No space left on device"):
        await workload.prepare(context)
    await workload.cleanup(context)
    assert os.listdir(context.folder) == []


# --- sysbench ---------------------------------------------------------------------------------------


def printed(text: str, label: str) -> float:
    line = next(line for line in text.splitlines() if line.strip().startswith(f"{label}:"))
    return float(line.split(":")[1].strip().rstrip("s"))


def fileio_phase(text: str) -> Phase:
    return sysbench_fileio.phase(text, sysbench_fileio.FileioOptions.model_validate({}), 10 * SECOND, "case")


def test_fileio_sums_to_the_final_report() -> None:
    text = case("fileio-rndrw.stdout")
    phase = fileio_phase(text)
    events = int(printed(text, "total number of events"))
    assert sum(s.count for s in phase.slices) == events == sum(phase.histograms["io"].values())
    assert phase.end_ns == 10 * SECOND
    assert phase.end_ns - phase.start_ns == round(printed(text, "total time") * 1e9)
    bytes_done = (printed(text, "read, MiB/s") + printed(text, "written, MiB/s")) * 1024**2
    assert sum(s.bytes or 0 for s in phase.slices) == pytest.approx(bytes_done * printed(text, "total time"))
    first = next(line for line in text.splitlines() if line.startswith("[ 1s ]")).split()
    rate = (float(first[4]) + float(first[7])) * 64 + float(first[10].rstrip("/s"))
    assert phase.slices[0].count == pytest.approx(rate, rel=0.01)


def test_fileio_latency_is_the_tools_own() -> None:
    text = case("fileio-rndrw.stdout")
    histogram = fileio_phase(text).histograms["io"]
    values = bucket_value(np.array(list(histogram), dtype=np.int32))
    total_ms = float((values * np.array(list(histogram.values()))).sum()) / 1e6
    assert total_ms == pytest.approx(printed(text, "sum"), rel=0.02)
    assert percentile_ns(histogram, 0.99) == pytest.approx(printed(text, "99th percentile") * 1e6, rel=0.02)


def test_oltp_counts_are_exact_through_a_stall() -> None:
    """The server was stopped for 2.4 s: one whole second has no transaction, and no latency either."""
    text = case("oltp-stalled.stdout")
    phase = sysbench_oltp.phase(text, "case")
    counts = [s.count for s in phase.slices]
    assert counts == [2077, 566, 0, 753, 5688 - 2077 - 566 - 753]
    assert sum(phase.histograms["transaction"].values()) == 5688
    stalled = phase.slices[2]
    assert (stalled.p99_ns, stalled.min_ns, stalled.max_ns) == (None, None, None)
    assert phase.slices[1].max_ns == 2_405_276_176
    histogram = phase.histograms["transaction"]
    assert percentile_ns(histogram, 1.0) == pytest.approx(2_405_276_176, rel=0.01)
    values = bucket_value(np.array(list(histogram), dtype=np.int32))
    assert np.average(values, weights=list(histogram.values())) == pytest.approx(1_756_405, rel=0.02)


def test_oltp_window_is_dated_by_the_reports() -> None:
    phase = sysbench_oltp.phase(case("oltp-stalled.stdout"), "case")
    assert phase.end_ns - phase.start_ns == 5_002_569_060
    first_report_ns = 1795229551487723077
    assert 0 <= first_report_ns - phase.start_ns - 1_000_146_305 < 2_000_000


@pytest.mark.parametrize("name", ["oltp-stalled.stdout", "fileio-rndrw.stdout"])
def test_sysbench_output_that_is_cut_is_an_error(name: str) -> None:
    text = case(name)
    read = sysbench_oltp.phase if name.startswith("oltp") else lambda text, _: fileio_phase(text)
    end = text.rindex("headrace:") if name.startswith("oltp") else text.index("total number of events")
    for cut in range(0, end, 97):
        with pytest.raises(WorkloadFailed):
            measurement(read(text[:cut], "case"), None, seconds=1, what="sysbench")


def test_a_report_cut_in_mid_line_is_made_good_by_the_final() -> None:
    """sysbench may end its reporting thread while that prints; the histogram's header then follows on the line."""
    text = case("oltp-stalled.stdout")
    lines = text.splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if '"report":"interval"' in line)
    lines[last] = lines[last][:60]
    phase = sysbench_oltp.phase("".join(lines), "case")
    assert [s.count for s in phase.slices] == [2077, 566, 0, 5688 - 2077 - 566]


def test_fatal_errors_are_quoted() -> None:
    assert "Table 'sbtest.sbtest2' doesn't exist" in last_lines(case("oltp-no-table.stdout"))
    assert "Cannot open file 'test_file.0'" in last_lines(case("fileio-no-files.stdout"))


def test_sysbench_bins_are_read_back_exactly() -> None:
    """Each bin by itself, as sysbench prints it: our value is the bin's middle, not its three decimals."""
    for index in range(1023):
        line = f"{sysbench.bin_value_ns(index) / 1e6:12.3f} |{'*' * 40} 7"
        text = f"Latency histogram (values are in milliseconds)\n       value  ---\n{line}\n \n"
        histogram = sysbench.read_histogram(text, 0, "case")
        assert sum(histogram.values()) == 7
        (value,) = bucket_value(np.array(list(histogram), dtype=np.int32))
        middle = sysbench.bin_value_ns(index)
        # Below 0.06 ms several bins print alike: there the print's step of 1 us is the limit.
        assert value == pytest.approx(middle, rel=0.005, abs=1000 if middle < 60_000 else 0)


def test_sysbench_files_100_s_and_more_under_the_longest() -> None:
    text = "Latency histogram (values are in milliseconds)\nvalue\n  100000.000 |*** 3\n \n"
    assert percentile_ns(sysbench.read_histogram(text, 250 * SECOND, "case"), 0.5) == pytest.approx(
        250 * SECOND, rel=0.005
    )


def test_a_histogram_of_another_run_is_refused() -> None:
    whole = Slice(0, SECOND, "transaction", 10)
    phase = Phase(0, SECOND, [whole], {"transaction": {5: 9}})
    with pytest.raises(
        WorkloadFailed, match="counted 10 operations of transaction but its histogram holds 9"
    ):
        measurement(phase, None, seconds=1, what="sysbench")


def test_nothing_done_is_no_measurement() -> None:
    with pytest.raises(WorkloadFailed, match="completed no operation"):
        measurement(Phase(0, SECOND, [Slice(0, SECOND, "io", 0)]), None, seconds=1, what="sysbench")


def test_a_short_run_is_no_measurement() -> None:
    with pytest.raises(WorkloadFailed, match=r"stopped after 1\.0 s of 3"):
        measurement(Phase(0, SECOND, [Slice(0, SECOND, "io", 1)]), None, seconds=3, what="fio")


# --- tables and tools -------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 20 * SECOND), max_size=30).map(sorted), st.integers(1, 20 * SECOND))
def test_slices_are_never_shorter_than_half_a_second(reports: list[int], end: int) -> None:
    kept = [reports[i] for i in boundaries(reports, 0, end)]
    edges = [0, *kept, end]
    if kept:
        assert min(b - a for a, b in pairwise(edges)) >= SECOND // 2


@given(st.dictionaries(st.integers(0, 200 * SECOND), st.integers(0, 10**6), max_size=50))
def test_converting_bins_preserves_the_total(bins: dict[int, int]) -> None:
    histogram = to_histogram(bins, bins.values())
    assert sum(histogram.values()) == sum(bins.values())
    largest = max((value for value, count in bins.items() if count), default=None)
    if largest is None:
        assert percentile_ns(histogram, 1.0) is None
    else:
        assert percentile_ns(histogram, 1.0) == pytest.approx(largest, rel=0.004, abs=1)


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=20),
    st.integers(0, 20000),
)
def test_rounded_reports_never_change_the_total(counts: list[int], total: int) -> None:
    reports = [sysbench.Report((i + 1) * SECOND, count, 0, count * 10, 1) for i, count in enumerate(counts)]
    end = sysbench.Report(len(counts) * SECOND + 3_000_000, total, 2, total * 10, None)
    slices = sysbench.slices("io", reports, end, 0)
    assert sum(s.count for s in slices) == total
    assert sum(s.bytes or 0 for s in slices) == total * 10
    assert sum(s.errors for s in slices) == 2
    assert min(s.count for s in slices) >= 0


async def test_an_old_or_missing_tool_is_not_ready(tmp_path: Path) -> None:
    target = LocalTarget()
    with pytest.raises(NotReady, match="is missing") as missing:
        await require_version(target, Tool("no-such-fio", "fio", ("--version",)), (3, 28))
    assert missing.value.hint == "apt-get install -y fio"
    for answer, message in (("fio-3.1", "3.28 or newer is needed"), ("fio", "printed no version")):
        program = tmp_path / answer
        program.write_text(f"#!/bin/sh\necho {answer}\n")
        program.chmod(0o755)
        with pytest.raises(NotReady, match=message):
            await require_version(target, Tool(str(program), "fio", ("--version",)), (3, 28))
