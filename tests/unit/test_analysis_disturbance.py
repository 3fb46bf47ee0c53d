"""Every reason to doubt a trial: one case where it fires, one just below where it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.base.model import Role, TrialState
from headrace.experiment.frozen import Design
from headrace.experiment.plan import TargetTable, WorkloadTable
from headrace.experiment.stats.disturbance import Disturbance, _work, find_disturbance
from headrace.experiment.store import TrialRecord
from headrace.host.arrow import INTERVALS, LATENCY, SAMPLES, TrialData
from tests.synthetic import bare_design

START_NS = 1_700_000_000_000_000_000
SECONDS = 60


def planned(seconds: float, **more: Any) -> Design:
    """A design of trials of so many seconds."""
    return bare_design(workload=WorkloadTable(kind=more.pop("kind", "fio"), seconds=seconds), **more)


DESIGN = planned(SECONDS)
RECORD = TrialRecord(
    number=1,
    block=1,
    position=1,
    treatment="STOCK",
    role=Role.BASELINE,
    state=TrialState.COMPLETE,
    window_start_ns=START_NS,
    window_end_ns=START_NS + SECONDS * 10**9,
    cpus=2,
)
Series = dict[tuple[str, str, str], list[float]]

#: Ticks from 10 s before the window to 5 s after it, in the middle of each second.
TICKS = range(-10, SECONDS + 5)


def growing(total: float, *, start: float = 5000.0) -> list[float]:
    """A counter that grows by ``total`` from the first tick of the window to its last, and outside as well."""
    return [start + total * tick / (SECONDS - 1) for tick in TICKS]


def series_of_steal(share: float) -> Series:
    """Steal of this share of a quiet host's time."""
    return {("cpu", "steal", "all"): growing(12_000 * share / (1 - share))}


def quiet() -> Series:
    """A host on which nothing happens beside the workload."""
    series: Series = {(s, "headrace_ok", ""): [1.0] * len(TICKS) for s in ("cpu", "vmstat", "process", "md")}
    for state, ticks in {"user": 6000, "idle": 5000, "iowait": 1000, "steal": 0}.items():
        series["cpu", state, "all"] = growing(ticks)
    series["vmstat", "oom_kill", ""] = growing(0)
    series["vmstat", "pswpin", ""] = growing(0)
    series["md", "sync_active", "md0"] = [0.0] * len(TICKS)
    series["thermal", "core_throttle_count", "cpu0"] = growing(0)
    return series | process("100/fio", cores=1.8) | process("7/kworker/0:1", cores=0.9, rss_bytes=0)


def process(label: str, *, cores: float, rss_bytes: float = 1e7) -> Series:
    return {
        ("process", "utime_ticks", label): growing(cores * 0.75 * SECONDS * 100),
        ("process", "stime_ticks", label): growing(cores * 0.25 * SECONDS * 100),
        ("process", "rss_bytes", label): [rss_bytes] * len(TICKS),
    }


def samples(series: Series) -> pa.Table:
    rows = [
        (START_NS + tick * 10**9 + 500_000_000, *key, value)
        for key, values in series.items()
        for tick, value in zip(TICKS, values, strict=True)
        if not np.isnan(value)
    ]
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=SAMPLES)


def intervals(*, count: int = 1000, errors: int = 0, seconds: int = SECONDS) -> pa.Table:
    n = seconds + 10
    return pa.Table.from_pydict(
        {f.name: [None] * n for f in INTERVALS}
        | {
            "t_s": [float(t - 10) for t in range(n)],
            "duration_s": [1.0] * n,
            "operation": ["read"] * n,
            "count": [count] * n,
            "errors": [errors] * n,
        },
        schema=INTERVALS,
    )


def judge(
    more: Series | None = None,
    *,
    record: TrialRecord = RECORD,
    work: pa.Table | None = None,
    is_duet: bool = False,
    disturbed: str = "invalid",
    adaptive: bool = True,
) -> Disturbance:
    """Of a design that does not account for what others took, unless ``adaptive`` is False."""
    table = samples(quiet() | (more or {}))
    data = TrialData(intervals() if work is None else work, LATENCY.empty_table(), table)
    target = TargetTable.model_validate({"disturbed": disturbed})
    return find_disturbance(
        record, data, planned(SECONDS, at_once=2 if is_duet else 1, target=target, adaptive=adaptive)
    )


def test_a_quiet_trial_is_undisturbed() -> None:
    assert judge() == Disturbance()


def test_an_array_that_resyncs_makes_it_invalid() -> None:
    active = [1.0 if 20 <= tick < 30 else 0.0 for tick in TICKS]
    assert judge({("md", "sync_active", "md0"): active}).invalid == (
        "the array md0 was resyncing in 10 of 60 samples",
    )


def test_an_array_that_resynced_only_before_the_window_is_no_matter() -> None:
    assert judge({("md", "sync_active", "md0"): [float(tick < 0) for tick in TICKS]}) == Disturbance()


def test_an_oom_kill_makes_it_invalid() -> None:
    kills = [3.0 if tick < 30 else 5.0 for tick in TICKS]
    found = judge({("vmstat", "oom_kill", ""): kills})
    assert found.invalid == ("the kernel killed 2 process(es) for lack of memory",)


def test_an_oops_makes_it_invalid_and_those_after_it_suspect() -> None:
    flags = ("taint", "tainted", "")
    assert judge({flags: [0.0 if t < 2 else 128.0 for t in TICKS]}).invalid == (
        "the kernel had an Oops: see the trial's raw/kernel.log",
    )
    after = judge({flags: [129.0 for _ in TICKS]})
    assert not after.invalid
    assert "has had an Oops since it booted" in after.warnings[0]
    # A module from outside the tree, and a warning.
    assert judge({flags: [4096.0 + 512.0 for _ in TICKS]}) == Disturbance()


def test_an_oom_kill_before_the_window_is_no_matter() -> None:
    assert judge({("vmstat", "oom_kill", ""): [3.0 if t < 0 else 4.0 for t in TICKS]}) == Disturbance()


def test_throttling_makes_it_invalid() -> None:
    events = [10.0 if tick < 30 else 17.0 for tick in TICKS]
    found = judge({("thermal", "core_throttle_count", "cpu0"): events})
    assert found.invalid == ("the CPU was throttled by heat: 7 events",)


def test_throttling_long_ago_is_no_matter() -> None:
    assert judge({("thermal", "core_throttle_count", "cpu0"): [999.0] * len(TICKS)}) == Disturbance()


@pytest.mark.parametrize(
    ("steal_ticks", "invalid", "warnings"),
    [
        (100, 0, 0),  # 0.8%
        (400, 0, 1),  # 3.2%
        (700, 1, 0),  # 5.5%
    ],
)
def test_stolen_cpu_time(steal_ticks: float, invalid: int, warnings: int) -> None:
    found = judge({("cpu", "steal", "all"): growing(steal_ticks)})
    assert (len(found.invalid), len(found.warnings)) == (invalid, warnings)
    assert all("hypervisor took" in text for text in (*found.invalid, *found.warnings))


@pytest.mark.parametrize(("burst", "is_named"), [(40, True), (15, False)])
def test_a_stolen_second_is_seen_where_the_mean_shows_nothing(burst: float, is_named: bool) -> None:
    """Nothing of it is in the throughput of a minute, and all of it may be in the p99."""
    at_once = {("cpu", "steal", "all"): [5000.0 + burst * 2 * (tick >= 30) for tick in TICKS]}
    found = judge(at_once)
    assert found.invalid == ()
    assert found.lost_share == 0
    expected = ["the hypervisor took 28% of CPU time within 1 s (0.7% of the window)"]
    assert list(found.warnings) == (expected if is_named else [])
    (reason,) = judge({("cpu", "steal", "all"): [5000.0 + 900 * (tick >= 30) for tick in TICKS]}).invalid
    assert reason == "the hypervisor took 7.0% of CPU time (limit 5%), up to 82% within 1 s"
    before = {("cpu", "steal", "all"): [5000.0 + 900 * (tick >= -3) for tick in TICKS]}
    assert judge(before).warnings == ()


def test_where_nothing_is_ever_quiet_a_plan_may_keep_such_trials() -> None:
    hog = process("9/backup", cores=1.5)
    disturbed: Series = {("cpu", "steal", "all"): growing(3000), **hog}
    assert len(judge(disturbed).invalid) == 2
    kept = judge(disturbed, disturbed="keep")
    assert kept.invalid == ()
    assert [text.split()[0] for text in kept.warnings] == ["the", "another"]
    resync: Series = {("md", "sync_active", "md0"): [1.0] * len(TICKS)}
    assert len(judge(resync, disturbed="keep").invalid) == 1, "that takes the disks, for long"


def test_an_iowait_that_steps_back_does_not_count_all_it_ever_was_as_time() -> None:
    """The kernel moves time from iowait to idle; taken for a reset, it would hide the steal behind 5000 ticks."""
    back = [5000.0 - (tick >= 30) for tick in TICKS]
    with_steal = {("cpu", "steal", "all"): growing(620), ("cpu", "iowait", "all"): back}
    (reason,) = judge(with_steal).invalid
    assert reason.startswith("the hypervisor took 5.3% of CPU time")


@pytest.mark.parametrize(("pages_s", "warnings"), [(250, 0), (300, 1)])
def test_swapping_is_a_warning_because_the_treatment_may_be_its_cause(pages_s: float, warnings: int) -> None:
    found = judge({("vmstat", "pswpin", ""): growing(pages_s * SECONDS)})
    assert found.invalid == ()
    assert len(found.warnings) == warnings
    assert all(text.startswith("swapping: 300 pages/s") for text in found.warnings)


@pytest.mark.parametrize(("lost", "warnings"), [(6, 0), (7, 1)])
def test_gaps_of_a_sampler(lost: int, warnings: int) -> None:
    """Two of the kinds of gap: ticks that never came, and ticks on which the sampler failed."""
    absent = [float("nan") if 20 <= tick < 20 + lost else 1.0 for tick in TICKS]
    failed = [0.0 if 20 <= tick < 20 + lost else 1.0 for tick in TICKS]
    for ok in (absent, failed):
        found = judge({("cpu", "headrace_ok", ""): ok})
        assert found.invalid == ()
        assert len(found.warnings) == warnings
        assert all("the sampler cpu missed 7 of 60 ticks" in text for text in found.warnings)


def test_a_trial_without_samples_says_that_it_cannot_tell() -> None:
    data = TrialData(intervals(), LATENCY.empty_table(), SAMPLES.empty_table())
    (warning,) = find_disturbance(RECORD, data, DESIGN).warnings
    assert "host not sampled (0 of 60 samples)" in warning


def test_a_short_window_that_misses_one_tick_by_its_phase_has_no_gap() -> None:
    record = replace(RECORD, window_end_ns=START_NS + 5 * 10**9)
    ok = {("cpu", "headrace_ok", ""): [float("nan") if tick == 2 else 1.0 for tick in TICKS]}
    data = TrialData(intervals(seconds=5), LATENCY.empty_table(), samples(quiet() | ok))
    assert find_disturbance(record, data, planned(5)) == Disturbance()


@pytest.mark.parametrize(("seconds", "invalid", "warnings"), [(50, 1, 0), (55, 0, 0), (65, 0, 0), (70, 0, 1)])
def test_a_window_of_another_length_than_planned(seconds: int, invalid: int, warnings: int) -> None:
    """Too short, less was measured; too long, work was in flight at its end, which is the treatment's doing."""
    found = judge(record=replace(RECORD, window_end_ns=START_NS + seconds * 10**9))
    for texts, wanted in ((found.invalid, invalid), (found.warnings, warnings)):
        assert len([text for text in texts if "instead of the planned 60 s" in text]) == wanted


@pytest.mark.parametrize(
    ("count", "errors", "warning"),
    [
        (10_000, 9, None),
        (10_000, 20, "client errors: 1,200, 0.20% of operations (limit 0.1%)"),
        (1000, 500, "client errors: 30,000, 33.33% of operations (limit 0.1%)"),
    ],
)
def test_client_errors_are_a_warning_because_deadlocks_are_the_treatments(
    count: int, errors: int, warning: str | None
) -> None:
    found = judge(work=intervals(count=count, errors=errors))
    assert found == Disturbance(warnings=(warning,) if warning else ())


def test_a_window_without_work_is_invalid() -> None:
    assert judge(work=intervals(count=0)).invalid == ("no operation completed in the window",)


@pytest.mark.parametrize(
    ("cores", "cpus", "invalid", "warnings"),
    [
        (0.08, 2, 0, 0),
        (0.3, 2, 0, 1),
        (0.7, 2, 1, 0),
        (0.7, 64, 0, 1),  # one percent of such a machine
        (6.0, 64, 1, 0),
    ],
)
def test_somebody_elses_process(cores: float, cpus: int, invalid: int, warnings: int) -> None:
    found = judge(process("4242/cc1plus", cores=cores), record=replace(RECORD, cpus=cpus))
    assert (len(found.invalid), len(found.warnings)) == (invalid, warnings)
    assert all("cc1plus, used" in text for text in (*found.invalid, *found.warnings))


def test_what_others_took_is_measured_where_the_verdicts_account_for_it() -> None:
    stolen = series_of_steal(0.25)
    busy = process("4242/cc1plus", cores=0.2)
    found = judge(stolen | busy, record=replace(RECORD, cpus=2), adaptive=False)
    assert found.invalid == ()
    assert len(found.warnings) == 2
    assert found.lost_share == pytest.approx(0.25 + 0.1, abs=0.01)
    # With half of the machine gone too little of it was measured.
    lost = judge(series_of_steal(0.55), record=replace(RECORD, cpus=2), adaptive=False)
    assert len(lost.invalid) == 1
    # An array's resync takes something else: no slope is known.
    resync: Series = {("md", "sync_active", "md0"): [1.0] * len(TICKS)}
    assert len(judge(resync, adaptive=False).invalid) == 1
    # Elsewhere nothing is accounted for.
    assert judge(stolen).lost_share == 0
    assert len(judge(stolen).invalid) == 1


MB = 1e6


def disk(name: str, *, busy: float, read_mb: float, written_mb: float = 0.0) -> Series:
    return {
        ("disk", "io_ms", name): growing(busy * SECONDS * 1e3),
        ("disk", "sectors_read", name): growing(read_mb * MB / 512),
        ("disk", "sectors_written", name): growing(written_mb * MB / 512),
    }


def reader(label: str, *, read_mb: float, written_mb: float = 0.0, rss_bytes: float = 1e7) -> Series:
    return process(label, cores=0.05, rss_bytes=rss_bytes) | {
        ("process", "read_bytes", label): growing(read_mb * MB),
        ("process", "write_bytes", label): growing(written_mb * MB),
    }


SERVER = process("50/mariadbd", cores=0.9) | reader("50/mariadbd", read_mb=600, written_mb=400)


@pytest.mark.parametrize("parent", ["70/sshd", "70/sshd-session", "70/sudo", "70/headrace"])
def test_what_a_child_did_before_the_window_is_nobodys(parent: str) -> None:
    """The warm-up has just ended: its bytes are its parent's now, 600 MB of each."""
    # A file system's own writes are 200 MB more than those of processes.
    warmed = (
        SERVER
        | reader(parent, read_mb=600, written_mb=600)
        | disk("sda", busy=0.8, read_mb=600, written_mb=600)
    )
    assert judge(warmed, adaptive=False).lost_device_share == 0
    # Neither does it hide what others do.
    others = warmed | reader("60/tar", read_mb=900, written_mb=100)
    busy = others | disk("sda", busy=0.8, read_mb=1500, written_mb=500)
    assert judge(busy, adaptive=False).lost_device_share == pytest.approx(0.39, abs=0.01)


def test_a_backup_takes_the_device_and_hardly_a_cpu() -> None:
    backup = SERVER | reader("60/tar", read_mb=900, written_mb=100)
    busy = backup | disk("sda", busy=0.8, read_mb=1500, written_mb=500)
    (reason,) = judge(busy).invalid
    assert reason == "other programs (tar) took 39% of the time of sda (limit 25%)"
    found = judge(busy, adaptive=False)
    assert (found.invalid, found.lost_share) == ((), 0.0)
    assert found.lost_device_share == pytest.approx(0.39, abs=0.01)
    assert judge(busy, adaptive=False, is_duet=True).lost_device_share == 0
    full = backup | disk("sda", busy=1.0, read_mb=900, written_mb=100)
    assert judge(full, adaptive=False).invalid == ()  # all of it may be the server's
    alone = (
        reader("50/mariadbd", read_mb=1) | process("50/mariadbd", cores=0.9) | reader("60/dd", read_mb=4000)
    )
    assert judge(alone | disk("sda", busy=1.0, read_mb=4001), adaptive=False).invalid


def test_what_others_read_elsewhere_is_no_matter() -> None:
    """The server's own device carries just what the server read and wrote: the backup is on another."""
    found = judge(
        SERVER
        | reader("60/tar", read_mb=900, written_mb=100)
        | disk("nvme0n1", busy=0.9, read_mb=600, written_mb=400)
        | disk("sdb", busy=0.03, read_mb=900, written_mb=100)
    )
    assert found == Disturbance()
    # Kernel threads write for others, and headrace's own programs belong to the trial.
    quiet_ones = SERVER | reader("9/kworker/u8:1", read_mb=0, written_mb=900, rss_bytes=0)
    quiet_ones |= reader("100/fio", read_mb=900)
    assert judge(quiet_ones | disk("sda", busy=0.9, read_mb=1500, written_mb=1300)) == Disturbance()


def test_whose_reads_cannot_be_seen_are_not_judged() -> None:
    """Without root only the own processes' files in /proc can be read."""
    unseen = reader("60/tar", read_mb=900) | disk("sda", busy=0.9, read_mb=900)
    assert judge(unseen) == Disturbance()


def test_many_processes_of_one_program_count_together() -> None:
    build: Series = {}
    for pid in range(5000, 5010):
        build |= process(f"{pid}/cc1plus", cores=0.08)
    (reason,) = judge(build).invalid
    assert reason.startswith("another program, cc1plus, used 0.80 cores")


def test_a_process_that_idled_before_the_window_is_counted_from_there() -> None:
    """The agent lists a process only when it used CPU time: its last row may be long ago."""
    rows = [100.0 if tick == -9 else 5000.0 if tick == 40 else float("nan") for tick in TICKS]
    (reason,) = judge({("process", "utime_ticks", "9/updatedb"): rows}).invalid
    assert "updatedb, used 0.80 cores" in reason


def test_a_source_that_the_host_lacks_is_no_gap() -> None:
    tried = [0.0 if tick == 17 else float("nan") for tick in TICKS]
    assert judge({("thermal", "headrace_ok", ""): tried}) == Disturbance()
    failing = judge({("psi", "headrace_ok", ""): [0.0] * len(TICKS)})
    assert failing.warnings == ("the sampler psi missed 60 of 60 ticks (limit 10%)",)


def test_a_second_server_is_foreign_and_the_one_under_test_is_not() -> None:
    servers = process("50/mariadbd", cores=1.5) | process("60/mariadbd", cores=0.6)
    assert judge(process("50/mariadbd", cores=1.5)) == Disturbance()
    (reason,) = judge(servers).invalid
    assert "mariadbd, used 0.60 cores" in reason


def test_in_a_duet_both_servers_are_ours_and_what_comes_from_outside_is_a_warning() -> None:
    servers = process("50/mariadbd", cores=0.9) | process("60/mariadbd", cores=0.6)
    assert judge(servers, is_duet=True) == Disturbance()
    found = judge(servers | process("70/mariadbd", cores=0.55) | process("80/tar", cores=0.8), is_duet=True)
    assert found.invalid == ()
    assert [text.split(", used")[0] for text in found.warnings] == [
        "another program, mariadbd",
        "another program, tar",
    ]
    # What hits one side alone still counts: one of the two was killed.
    assert judge({("vmstat", "oom_kill", ""): growing(1)}, is_duet=True).invalid


def test_a_process_that_restarted_is_not_counted_backwards() -> None:
    fell = [9000.0 if tick < 30 else 100.0 for tick in TICKS]
    assert judge({("process", "utime_ticks", "9/cron"): fell}) == Disturbance()


def test_a_series_that_has_not_settled_is_a_warning() -> None:
    seconds = 600
    record = replace(RECORD, window_end_ns=START_NS + seconds * 10**9)
    work = intervals(seconds=seconds)
    counts = [600 if t < 200 else 1000 for t in range(-10, seconds)]
    work = work.set_column(work.schema.get_field_index("count"), "count", pa.array(counts, pa.int64()))
    data = TrialData(work, LATENCY.empty_table(), SAMPLES.empty_table())
    found = find_disturbance(record, data, planned(600))
    assert any(text.startswith("not steady") for text in found.warnings)
    assert not any(
        text.startswith("not steady")
        for text in find_disturbance(
            record,
            replace(data, intervals=intervals(seconds=seconds)),
            planned(600),
        ).warnings
    )


def test_a_report_that_came_late_does_not_switch_the_steady_check_off() -> None:
    """One row of 2 s among 600: still seconds, and neither a stall nor a burst."""
    seconds = 600
    rows = [t for t in range(seconds) if t != 301]
    count = [(600 if t < 200 else 1000) * (2 if t == 300 else 1) for t in rows]
    work = pa.Table.from_pydict(
        {f.name: [None] * len(rows) for f in INTERVALS}
        | {
            "t_s": [float(t) for t in rows],
            "duration_s": [2.0 if t == 300 else 1.0 for t in rows],
            "operation": ["read"] * len(rows),
            "count": count,
            "errors": [0] * len(rows),
        },
        schema=INTERVALS,
    )
    record = replace(RECORD, window_end_ns=START_NS + seconds * 10**9)
    data = TrialData(work, LATENCY.empty_table(), SAMPLES.empty_table())
    found = find_disturbance(record, data, planned(600))
    assert any(text.startswith("not steady") for text in found.warnings)
    _, _, per_second = _work(work, seconds)
    assert per_second is not None
    assert per_second.tolist() == [600.0] * 200 + [1000.0] * 400


def test_rows_that_drift_against_the_seconds_lose_nothing() -> None:
    n = 20
    t_s = np.arange(n) + np.where(np.arange(n) % 2, 0.03, -0.02)
    work = pa.Table.from_pydict(
        {f.name: [None] * n for f in INTERVALS}
        | {"t_s": t_s, "duration_s": [1.0] * n, "operation": ["read"] * n, "count": [100] * n},
        schema=INTERVALS,
    )
    _, _, per_second = _work(work, n)
    assert per_second is not None
    assert per_second == pytest.approx(np.full(n, 100.0), abs=6)
    assert per_second.sum() == pytest.approx(100 * n, abs=6)


def test_rows_of_ten_seconds_are_no_series_of_seconds() -> None:
    work = intervals().set_column(1, "duration_s", pa.array([10.0] * (SECONDS + 10)))
    assert _work(work, SECONDS)[2] is None
