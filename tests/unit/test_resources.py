"""The verdict: what is saturated, what only looks it, and what cannot be known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.base.model import Facts
from headrace.host.samples import Samples
from headrace.host.window import Window
from headrace.hunt.resources import Level, ResourceUsage
from headrace.hunt.rules import all_rules, judge
from headrace.hunt.rules.evidence import Evidence
from tests.rules.hosts import GIB, SECONDS, STEP_S, cores, healthy, unwell

DISK = "nvme1n1"
NIC = "enp1s0f0np0"
STEPS = SECONDS // STEP_S


def disk(**rates: float) -> dict[str, float]:
    return {f"disk.{metric}.{DISK}": rate for metric, rate in rates.items()}


#: Never at rest: what iostat calls 100% utilised.
ALWAYS_BUSY = disk(io_ms=1_000.0)
#: 24 requests in flight, 10 ms each.
DEEP_AND_SLOW = disk(io_ms=1_000.0, weighted_io_ms=24_000.0, read_ms=9_000.0, write_ms=15_000.0)
SPINDLE: dict[str, Any] = {f"block_devices.{DISK}.driver": "sd", f"block_devices.{DISK}.rotational": True}
ONE_HOT_CORE = {"cpu.user.cpu6": 95.0, "cpu.idle.cpu6": 0.0, "cpu.iowait.cpu6": 0.0}


def use(evidence: Evidence, resource: str, instance: str = "") -> ResourceUsage:
    found = evidence.use(resource, instance)
    assert found is not None, f"nothing is said of {resource} {instance}"
    return found


def limiting(evidence: Evidence) -> str | None:
    return evidence.verdict.limiting.name if evidence.verdict.limiting else None


@pytest.mark.parametrize("vendor", ["mariadb", "mysql"])
def test_nothing_limits_a_healthy_host(vendor: str) -> None:
    verdict = healthy(vendor).verdict
    assert verdict.limiting is None
    assert {u.level for u in verdict.uses} == {Level.FINE}
    assert verdict.sentence == "Nothing limits this host: the CPUs are 82% idle, mysqld uses 1.3 of 8."


def test_one_hot_core_is_not_hidden_by_the_average() -> None:
    evidence = unwell(rates=ONE_HOT_CORE)
    assert limiting(evidence) == "core cpu6"
    hot = use(evidence, "core", "cpu6")
    assert hot.level is Level.SATURATED
    assert hot.traps == ("the average over all cores, 28%, hides it",)
    assert "the other 7 are 18% busy on average" in evidence.verdict.sentence
    assert use(evidence, "cpu").level is Level.FINE


GZIP = {**ONE_HOT_CORE, "process.utime_ticks.77/gzip": 98.0}


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({}, None),
        ({"threads.runqueue_ns.1401/connection": 5e8}, "core cpu6"),
        ({"threads.utime_ticks.1401/connection": 80.0}, "core cpu6"),
        ({"cpu.softirq.cpu6": 90.0, "cpu.user.cpu6": 5.0}, "core cpu6"),
    ],
    ids=["nothing of it", "its threads wait for a CPU", "its thread may be there, too", "packets"],
)
def test_a_core_that_is_full_of_another_program_limits_that_one(
    rates: dict[str, float], expected: str | None
) -> None:
    evidence = unwell(rates={**GZIP, **rates})
    assert limiting(evidence) == expected
    assert use(evidence, "core", "cpu6").level is Level.SATURATED
    if expected is None:
        assert evidence.verdict.sentence == (
            "Nothing that the server uses is saturated: the CPUs are 72% idle, mysqld uses 1.3 of 8. cpu6 is full "
            "of other work (100% busy: 94% user, 5.0% system, 1.0% softirq), and no thread of the server waits "
            "for it: used by gzip (pid 77) 1.0 CPUs."
        )


def full(*numbers: int, **rates: float) -> dict[str, float]:
    """So many full cores of user time, or of what ``rates`` say."""
    of_each = {"user": 95.0, "idle": 0.0, "iowait": 0.0, **rates}
    return {f"cpu.{state}.cpu{number}": rate for number in numbers for state, rate in of_each.items()}


PACKETS = {"user": 3.0, "softirq": 92.0}
LARGE = {"process.utime_ticks.1322/mysqld": 500.0}
ONE_FULL_THREAD = {"threads.utime_ticks.1401/connection": 89.0}


@pytest.mark.parametrize(
    ("rates", "facts", "said"),
    [
        (
            {**full(0, 1, **PACKETS), **full(6), **ONE_FULL_THREAD},
            {},
            [
                "3 cores limit this host, the other 5 are 18% busy on average: ",
                "interrupts and packets fill cpu0 (100% busy: 3.0% user, 5.0% system, 92% softirq) and cpu1 (",
                "; single threads (thread 1401 connection 0.97 CPUs) fill cpu6 (100% busy: 94% user",
            ],
        ),
        (
            {**full(0, **PACKETS), **full(2, 3), **LARGE},
            {"servers.1322.cpus_allowed_list": "2-3"},
            ["interrupts and packets fill cpu0 (", "mysqld, which may use only CPUs 2-3, fills cpu2 (", "cpu3 ("],
        ),
        (
            {**full(0, 1, 2, 3, 4), **LARGE},
            {"servers.1322.cpus_allowed_list": "0-4"},
            ["5 cores limit this host, the other 3 are 18% busy", "may use only CPUs 0-4, fills cpu0 ("],
        ),
        ({**full(0, irq=50.0, softirq=40.0, user=5.0), **full(6)}, {},
         ["packets fill cpu0 (", "; other work fills cpu6 ("]),
        ({**full(2, 3), "process.utime_ticks.77/gzip": 98.0, **ONE_FULL_THREAD}, {},
         ["single threads (gzip (pid 77) 0.98 CPUs, thread 1401 connection 0.97 CPUs) fill cpu2 ("]),
        ({**full(2, 3, 4), **ONE_FULL_THREAD}, {},
         ["other work (of single threads: thread 1401 connection 0.97 CPUs) fills cpu2 ("]),
        ({**full(2, 3), **ONE_FULL_THREAD}, {"servers.1322.cpus_allowed_list": "not a list"}, ["other work"]),
        ({**full(2, 3), "process.utime_ticks.77/gzip": 98.0}, {}, ["2 cores limit this host"]),
        (
            {**full(2, 3), "process.utime_ticks.77/gzip": 98.0, "process.utime_ticks.78/gzip": 98.0},
            {},
            [
                "Nothing that the server uses is saturated",
                "cpu2 is full of other work",
                "cpu3 is full of other work (100% busy: 94% user, 5.0% system, 1.0% softirq), and no thread of "
                "the server waits for it: used by gzip (2 processes) 2.0 CPUs.",
            ],
        ),
    ],
)  # fmt: skip
def test_all_full_cores_are_named_by_what_fills_them(
    rates: dict[str, float], facts: dict[str, Any], said: list[str]
) -> None:
    sentence = unwell(rates=rates, facts=facts).verdict.sentence
    for part in said:
        assert part in sentence


def test_what_a_server_uses_is_not_zero_where_its_process_is_not_seen() -> None:
    hidden = ["process", "threads"]
    sentence = unwell(without=hidden, status={"threads_running": 64.0}).verdict.sentence
    assert "64 active server threads use at most 1.4 CPUs: they wait on each other" in sentence
    busy = unwell(without=hidden, status={"threads_running": 7.0}, rates=cores(user=55.0, idle=38.5))
    assert busy.verdict.sentence == "Nothing limits this host: the CPUs are 39% idle."


def test_a_full_link_says_how_much_of_it_is_the_servers() -> None:
    sentence = unwell(rates={f"network.tx_bytes.{NIC}": 3.05e9}).verdict.sentence
    assert sentence.endswith("; the server's clients have 0.3% of it.")


def test_when_all_cores_are_full_none_is_named_alone() -> None:
    evidence = unwell(
        rates={
            **cores(user=93.0, idle=0.5),
            "psi.some_total_us.cpu": 800_000.0,
        },
        gauges={"cpu.procs_running.": 30.0},
    )
    assert limiting(evidence) == "cpu"
    assert not [u for u in evidence.verdict.uses if u.resource == "core"]
    assert "80% of the time" in use(evidence, "cpu").saturation
    assert "30.0 tasks were runnable on 8 CPUs" in use(evidence, "cpu").saturation


def test_full_cores_that_nobody_waits_for_are_busy_not_saturated() -> None:
    evidence = unwell(rates=cores(user=93.0, idle=0.5))
    assert limiting(evidence) is None
    assert use(evidence, "cpu").level is Level.BUSY
    assert (
        "The CPUs are 99% busy, and hardly any task waits for one yet: more work would."
        in evidence.verdict.sentence
    )


def test_iowait_is_idle_time() -> None:
    evidence = unwell(rates=cores(iowait=60.0, idle=22.0))
    cpu = use(evidence, "cpu")
    assert (cpu.level, limiting(evidence)) == (Level.FINE, None)
    assert cpu.utilisation == pytest.approx(0.18)
    assert cpu.traps == ("60% iowait is idle time: the CPUs had room",)


@pytest.mark.parametrize(("stolen", "level"), [(1.0, Level.FINE), (5.0, Level.FINE), (15.0, Level.SATURATED)])
def test_stolen_time_is_not_ours(stolen: float, level: Level) -> None:
    evidence = unwell(rates=cores(steal=stolen, idle=81.5 - stolen))
    cpu = use(evidence, "cpu")
    assert cpu.level is level
    assert cpu.utilisation == pytest.approx(0.18)
    assert ("stolen by the hypervisor" in cpu.saturation) == (stolen >= 2)
    assert cpu.numbers["idle"] == pytest.approx(0.82 - stolen / 100)


def test_a_quota_that_holds_the_server_back_is_said() -> None:
    evidence = unwell(rates={"cgroup.throttled_us.system.slice/mysql.service": 300_000.0})
    assert limiting(evidence) == "cpu"
    assert "the cgroup's quota throttled it for 18.0 s of 60" in use(evidence, "cpu").saturation


def test_a_quota_is_counted_on_every_cpu_and_little_of_it_holds_nothing_back() -> None:
    much = unwell(rates={"cgroup.throttled_us.system.slice/mysql.service": 5e6})
    assert "the cgroup's quota throttled it for 300.0 s of CPU time in 60" in use(much, "cpu").saturation
    of_many = {
        "cgroup.throttled_us.system.slice/mysql.service": 150_000.0,
        "process.utime_ticks.1322/mysqld": 600.0,
    }
    assert limiting(unwell(rates=of_many)) is None


def test_a_quota_of_another_server_is_not_this_ones() -> None:
    evidence = unwell(
        rates={"cgroup.throttled_us.system.slice/mysql.service": 300_000.0},
        facts={"servers.1322.cgroup.folders": {"cpu": "system.slice/other.service"}},
    )
    assert limiting(evidence) is None
    assert "quota" not in use(evidence, "cpu").saturation


def test_a_kernel_without_pressure_says_so_and_the_queue_tells() -> None:
    full = cores(user=93.0, idle=0.5)
    calm = unwell(without=["psi"])
    assert any("no pressure counters" in trap for trap in use(calm, "cpu").traps)
    assert any("only swapping shows waits for memory" in trap for trap in use(calm, "memory").traps)
    assert limiting(unwell(without=["psi"], rates=full)) is None
    assert limiting(unwell(without=["psi"], rates=full, gauges={"cpu.procs_running.": 20.0})) == "cpu"


def test_a_parallel_device_that_never_rests_is_not_saturated() -> None:
    evidence = unwell(rates=ALWAYS_BUSY)
    device = use(evidence, "block", DISK)
    assert (device.level, limiting(evidence)) == (Level.FINE, None)
    assert device.utilisation is None
    assert device.traps == (
        "%util 100 only means that it was rarely idle: it serves many requests concurrently",
    )


def test_a_spindle_that_never_rests_is() -> None:
    one_at_a_time = unwell(facts=SPINDLE, rates=disk(io_ms=990.0, weighted_io_ms=1_200.0))
    assert use(one_at_a_time, "block", DISK).level is Level.BUSY
    queued = unwell(facts=SPINDLE, rates=disk(io_ms=990.0, weighted_io_ms=6_000.0))
    device = use(queued, "block", DISK)
    assert device.level is Level.SATURATED
    assert device.utilisation == pytest.approx(0.99)
    assert device.traps == ()
    assert limiting(queued) == f"block {DISK}"


@pytest.mark.parametrize(
    "changes",
    [
        {f"block_devices.{DISK}.driver": "virtio_blk", f"block_devices.{DISK}.rotational": True},
        {f"block_devices.{DISK}.rotational": True, f"block_devices.{DISK}.slaves": ["sda", "sdb"]},
        {f"block_devices.{DISK}.driver": "loop", f"block_devices.{DISK}.rotational": True},
        {**SPINDLE, f"block_devices.{DISK}.controller_driver": "virtio_scsi"},
        {**SPINDLE, f"block_devices.{DISK}.controller_driver": "vmw_pvscsi"},
        {**SPINDLE, f"block_devices.{DISK}.controller_driver": "megaraid_sas"},
        {**SPINDLE, f"block_devices.{DISK}.model": "LOGICAL VOLUME"},
    ],
    ids=["virtio calls itself rotational", "an array", "loop", "virtio_scsi", "pvscsi", "RAID", "a volume"],
)
def test_virtual_and_stacked_devices_are_no_spindles(changes: dict[str, Any]) -> None:
    evidence = unwell(facts=changes, rates=disk(io_ms=990.0, weighted_io_ms=6_000.0))
    assert use(evidence, "block", DISK).level is Level.FINE


def test_slow_requests_behind_a_deep_queue_are_saturation() -> None:
    evidence = unwell(rates=DEEP_AND_SLOW)
    device = use(evidence, "block", DISK)
    assert limiting(evidence) == f"block {DISK}"
    assert "24.0 requests in flight" in device.saturation
    assert device.limit == "about 2,300 operations/s with this mix: requests queue in it"


def reading(in_flight: float, each_ms: float, **more: Any) -> Evidence:
    """Reads of 64 KiB, as many as these numbers allow."""
    reads = 1e3 * in_flight / each_ms
    rates = disk(
        io_ms=1_000.0,
        weighted_io_ms=1e3 * in_flight,
        reads=reads,
        read_ms=1e3 * in_flight,
        sectors_read=128 * reads,
        writes=0.0,
        write_ms=0.0,
    )
    return unwell(rates=rates, **more)


VIRTUAL = {f"block_devices.{DISK}.driver": "virtio_blk"}


@pytest.mark.parametrize(
    ("in_flight", "each_ms", "facts", "alone_ms", "against"),
    [
        (62, 3.47, {}, {}, "against 0.18 ms usual for an NVMe drive"),
        (62, 3.47, VIRTUAL, {}, "against 1.13 ms usual for a virtual disk"),
        (12, 0.9, VIRTUAL, {DISK: 0.1}, "against 0.10 ms measured without load"),
        (62, 3.47, {}, {DISK: 3.0}, ""),
        (62, 0.40, {}, {}, ""),
        (12, 3.47, VIRTUAL, {}, ""),
    ],
    ids=["NVMe", "virtual", "measured", "it is as slow alone", "many at once are served", "a slow volume"],
)
def test_a_queue_is_judged_against_one_request_alone(
    in_flight: float, each_ms: float, facts: dict[str, Any], alone_ms: dict[str, float], against: str
) -> None:
    device = use(reading(in_flight, each_ms, facts=facts, alone_ms=alone_ms), "block", DISK)
    assert (device.level is Level.SATURATED) == bool(against)
    assert device.saturation.endswith(against) if against else "against" not in device.saturation


def test_quiet_seconds_of_the_window_say_what_a_request_takes_alone() -> None:
    """A volume of 0.1 ms, which its class would let take 1: loaded for the last two thirds of the window."""
    quiet = [step < STEPS // 3 for step in range(STEPS)]
    evidence = unwell(
        facts=VIRTUAL,
        rates=disk(io_ms=1_000.0, writes=0.0, write_ms=0.0),
        series={
            f"disk.reads.{DISK}": [500.0 if q else 16_000.0 for q in quiet],
            f"disk.read_ms.{DISK}": [50.0 if q else 24_000.0 for q in quiet],
            f"disk.weighted_io_ms.{DISK}": [50.0 if q else 24_000.0 for q in quiet],
        },
    )
    device = use(evidence, "block", DISK)
    assert device.level is Level.SATURATED
    assert device.saturation.endswith("against 0.10 ms in its quiet seconds")


def growing_queue(last_writes: float) -> Evidence:
    """Fast requests; the queue grows from 10 to 40 over the window, the writes from 20,000 to ``last_writes``."""
    share = [step / (STEPS - 1) for step in range(STEPS)]
    return unwell(
        rates=disk(io_ms=1_000.0, reads=0.0, read_ms=0.0, write_ms=30_000.0),
        series={
            f"disk.weighted_io_ms.{DISK}": [10_000.0 + 30_000.0 * s for s in share],
            f"disk.writes.{DISK}": [20_000.0 + (last_writes - 20_000.0) * s for s in share],
        },
    )


def test_flat_throughput_over_a_growing_queue_is_saturation() -> None:
    evidence = growing_queue(20_400.0)
    assert limiting(evidence) == f"block {DISK}"
    assert "more requests in flight brought no more throughput" in use(evidence, "block", DISK).limit


def test_throughput_that_grows_with_the_queue_is_room() -> None:
    evidence = growing_queue(70_000.0)
    assert limiting(evidence) is None


@pytest.mark.parametrize(
    ("limit", "level"), [(2_400.0, Level.SATURATED), (3_000.0, Level.BUSY), (50_000.0, Level.FINE)]
)
def test_a_measured_limit_stands_beside_the_load(limit: float, level: Level) -> None:
    device = use(unwell(rates=ALWAYS_BUSY, limits={DISK: limit}), "block", DISK)
    assert device.level is level
    assert device.utilisation == pytest.approx(2_300 / limit)
    assert device.limit == f"{limit:,.0f} operations/s, measured"


def test_what_waits_now_weighs_more_than_a_limit_of_another_mix() -> None:
    evidence = unwell(rates=DEEP_AND_SLOW, limits={DISK: 100_000.0})
    device = use(evidence, "block", DISK)
    assert device.level is Level.SATURATED
    assert any("far below the measured limit" in trap for trap in device.traps)


def test_what_was_not_sampled_is_unknown_never_fine() -> None:
    evidence = unwell(without=["disk", "network"])
    assert use(evidence, "block").level is Level.UNKNOWN
    assert use(evidence, "network").level is Level.UNKNOWN
    assert "Not known: how busy block, network are." in evidence.verdict.sentence
    assert unwell(without=["cpu"]).verdict.sentence == (
        "The bottleneck of this host is unknown: its CPUs were not sampled."
    )
    uncounted = unwell(facts={"block_devices.nvme0n1.queue.iostats": False})
    assert use(uncounted, "block", "nvme0n1").level is Level.UNKNOWN


def test_an_interface_without_a_speed_is_unknown_never_fine() -> None:
    evidence = unwell(facts={f"network_interfaces.{NIC}.speed_mbit_s": None})
    nic = use(evidence, "network", NIC)
    assert (nic.level, nic.utilisation) == (Level.UNKNOWN, None)
    assert nic.traps == ("the interface does not report its speed",)
    assert f"Not known: how busy network {NIC} is." in evidence.verdict.sentence


def test_an_interface_without_numbers_is_named_and_costs_no_other() -> None:
    evidence = unwell(gauges={"network.unread.eth7": 1.0, f"network.unread.{NIC}:1": 1.0})
    assert use(evidence, "network", "eth7").level is Level.UNKNOWN
    assert use(evidence, "network", f"{NIC}:1").level is Level.FINE
    assert use(evidence, "network", NIC).level is Level.FINE
    assert "Not known: how busy network eth7 is." in evidence.verdict.sentence


def test_an_interface_that_came_after_the_facts_is_unknown() -> None:
    rates = {f"network.{way}_{what}.eth9": 1e6 for way in ("rx", "tx") for what in ("bytes", "packets")}
    assert use(unwell(rates=rates), "network", "eth9").level is Level.UNKNOWN


@pytest.mark.parametrize("speed", [0, -1, 65_535, 2_147_483_647, 4_294_967_295, True, "Unknown!", 10.0])
def test_an_unknown_speed_is_unknown_however_it_is_written(speed: object) -> None:
    evidence = unwell(facts={f"network_interfaces.{NIC}.speed_mbit_s": speed})
    assert use(evidence, "network", NIC).level is Level.UNKNOWN
    assert "Mbit/s" not in use(evidence, "network", NIC).limit
    assert evidence.verdict.sentence.startswith(
        "Nothing that could be measured limits this host: the CPUs are 82%"
    )


@pytest.mark.parametrize("speed", [1, 10])
def test_an_interface_that_carries_more_than_its_speed_has_another(speed: int) -> None:
    """TUN reports 10 Mbit/s whatever it carries; here 64."""
    evidence = unwell(facts={f"network_interfaces.{NIC}.speed_mbit_s": speed})
    nic = use(evidence, "network", NIC)
    assert (nic.level, nic.utilisation) == (Level.UNKNOWN, None)
    assert nic.traps == (f"it reports {speed} Mbit/s and carried more: its speed is not known",)


WAITED = {"psi.some_total_us.io": 900_000.0}


def test_a_device_that_explains_the_waits_is_named_whatever_its_queue() -> None:
    slow = disk(reads=100.0, writes=400.0, read_ms=10.0, write_ms=3_600.0, weighted_io_ms=3_610.0)
    assert "90% of the time: nvme1n1 does 500 operations/s, 3.6 in flight, 7.22 ms each" in (
        unwell(rates={**WAITED, **slow}).verdict.sentence
    )


def test_a_device_that_cannot_explain_the_waits_is_not_blamed() -> None:
    """The data's own device is one that the kernel does not count."""
    fast = disk(reads=100.0, writes=400.0, read_ms=10.0, write_ms=20.0, weighted_io_ms=30.0)
    silent = {
        "name": "drbd0",
        "kind": "virtual",
        "size_bytes": GIB,
        "queue": {},
        "slaves": [],
        "partitions": [],
    }
    facts = {
        "block_devices": [*healthy().raw["block_devices"], silent],
        "file_systems./var/lib/mysql.block_device": "drbd0",
    }
    sentence = unwell(facts=facts, rates={**WAITED, **fast}).verdict.sentence
    assert "no counted device explains it: nvme1n1 does 500 operations/s, 0.03 in flight" in sentence
    assert "drbd0 is not counted" in sentence
    assert "one request at a time" not in sentence


def test_a_few_bytes_fit_any_interface() -> None:
    quiet = {f"network.{way}_bytes.{NIC}": 200.0 for way in ("rx", "tx")}
    evidence = unwell(facts={f"network_interfaces.{NIC}.speed_mbit_s": None}, rates=quiet)
    assert use(evidence, "network", NIC).level is Level.FINE
    assert evidence.verdict.sentence.startswith("Nothing limits this host")


def test_the_cache_of_zfs_is_available_memory() -> None:
    on_zfs = {"file_systems./var/lib/mysql.kind": "zfs", "file_systems./var/lib/mysql.block_device": None}
    little = {"memory.MemAvailable.": 2.0 * GIB}
    unsampled = use(unwell(facts=on_zfs, gauges=little), "memory")
    assert (unsampled.level, unsampled.utilisation) == (Level.UNKNOWN, None)
    cache = {"zfs.size.": 40.0 * GIB, "zfs.c_min.": 2.0 * GIB}
    sampled = use(unwell(facts=on_zfs, gauges={**little, **cache}), "memory")
    assert sampled.level is Level.FINE
    assert sampled.numbers["available_bytes"] == 40 * GIB


def test_loopback_and_bridges_have_no_speed_to_know() -> None:
    rates = {f"network.{way}_{what}.lo": 1e5 for way in ("rx", "tx") for what in ("bytes", "packets")}
    assert use(unwell(rates=rates), "network", "lo").level is Level.FINE


@pytest.mark.parametrize(
    ("bits_s", "level"), [(24e9, Level.SATURATED), (19e9, Level.BUSY), (5e9, Level.FINE)]
)
def test_a_link_by_its_speed(bits_s: float, level: Level) -> None:
    nic = use(unwell(rates={f"network.tx_bytes.{NIC}": bits_s / 8}), "network", NIC)
    assert nic.level is level
    assert nic.limit == "25,000 Mbit/s, as the interface reports"


@pytest.mark.parametrize(
    "rates",
    [
        {"psi.some_total_us.memory": 90_000.0},
        {"vmstat.pswpin.": 2_000.0},
        {"vmstat.oom_kill.": 1 / SECONDS, "vmstat.allocstall_normal.": 20.0},
    ],
    ids=["pressure", "swap", "killed"],
)
def test_waiting_for_memory_is_saturation(rates: dict[str, float]) -> None:
    evidence = unwell(rates=rates)
    assert limiting(evidence) == "memory"
    assert evidence.verdict.sentence.startswith("Memory limits this host")


#: The kernel looked for no memory of the host's in the background.
AT_REST = {"vmstat.pgscan_kswapd.": 0.0}
OWN_LIMIT = "cgroup.memory_high.system.slice/mysql.service"


@pytest.mark.parametrize(
    ("rates", "limits"),
    [
        ({"psi.some_total_us.memory": 400_000.0}, None),
        ({"vmstat.pswpin.": 2_000.0, "vmstat.pswpout.": 2_000.0}, None),
        ({"psi.some_total_us.memory": 400_000.0, OWN_LIMIT: 0.0}, None),
        ({"psi.some_total_us.memory": 400_000.0, OWN_LIMIT: 5.0}, "memory"),
        ({"psi.some_total_us.memory": 400_000.0, "vmstat.pgscan_kswapd.": 9_000.0}, "memory"),
        ({"psi.some_total_us.memory": 400_000.0, "vmstat.allocstall_normal.": 2.0}, "memory"),
    ],
)
def test_waits_for_memory_at_others_limits_are_not_the_hosts(
    rates: dict[str, float], limits: str | None
) -> None:
    evidence = unwell(rates={**AT_REST, **rates})
    assert limiting(evidence) == limits
    found = {finding.rule.code for finding in judge(evidence, all_rules()).findings}
    assert bool(found & {"MEM01", "MEM11", "MEM18", "HOST03"}) is (limits is not None)
    others = "at the limits of other control groups: the host had enough"
    assert (others in use(evidence, "memory").saturation) is (limits is None)


def test_a_process_that_reached_the_limit_of_its_own_control_group_says_nothing_of_the_hosts_memory() -> None:
    """The kernel counts such kills as its own, but no allocation of the host had stalled."""
    evidence = unwell(rates={"vmstat.oom_kill.": 3 / SECONDS})
    assert (use(evidence, "memory").level, limiting(evidence)) == (Level.BUSY, None)
    assert use(evidence, "memory").errors == (
        "3 processes killed for lack of memory, in control groups of their own: the host had enough"
    )
    unknown = unwell(rates={"vmstat.oom_kill.": 3 / SECONDS}, gauges={"memory.MemAvailable.": 0.3 * GIB})
    assert limiting(unknown) == "memory"


LISTED = {"processlist.serving.": 1.0, "processlist.threads.Query": 1.0}


@pytest.mark.parametrize(
    ("vendor", "background"),
    [
        ("mysql", {"Binlog Dump GTID": 12.0}),
        ("mariadb", {"Binlog Dump": 12.0}),
        ("mariadb", {"Slave_worker": 10.0, "Slave_SQL": 1.0, "Slave_IO": 1.0}),
        ("mariadb", {"Daemon": 12.0}),
    ],
    ids=["a source by GTID", "a source", "a replica with idle workers", "tasks of the server"],
)
def test_threads_that_serve_no_client_do_not_wait_for_each_other(
    vendor: str, background: dict[str, float]
) -> None:
    gauges = LISTED | {f"processlist.threads.{name}": count for name, count in background.items()}
    evidence = unwell(vendor=vendor, status={"threads_running": 14.0}, gauges=gauges)
    assert evidence.verdict.sentence.startswith("Nothing limits this host")
    assert evidence.running == pytest.approx(2.0)
    clients = unwell(vendor=vendor, status={"threads_running": 14.0}, gauges=LISTED)
    assert "but 14 active server threads use only 1.3 CPUs" in clients.verdict.sentence


def full_disk(name: str) -> dict[str, float]:
    rates = {"reads": 0.0, "writes": 150.0, "write_ms": 4_500.0, "io_ms": 1_000.0, "weighted_io_ms": 4_500.0}
    return {f"disk.{metric}.{name}": rate for metric, rate in rates.items()}


BACKUPS = {
    "name": "sdb", "kind": "disk", "driver": "sd", "rotational": True, "queue": {}, "slaves": [], "partitions": [],
}  # fmt: skip


def test_a_full_device_without_the_servers_files_limits_others() -> None:
    facts = {"block_devices": [*healthy().raw["block_devices"], BACKUPS]}
    evidence = unwell(facts=facts, rates=full_disk("sdb"))
    assert limiting(evidence) is None
    assert use(evidence, "block", "sdb").level is Level.SATURATED
    assert evidence.verdict.sentence == (
        "Nothing that the server uses is saturated: the CPUs are 82% idle, mysqld uses 1.3 of 8. sdb is saturated "
        "(0 reads/s, 150 writes/s, 0.0 MB/s; 4.5 requests in flight, 30.00 ms per write), but nothing "
        "that the server waits for is known to be on it."
    )
    assert limiting(unwell(facts=facts, rates={**full_disk("sdb"), "vmstat.pswpout.": 50.0})) == "block sdb"
    assert limiting(unwell(facts=facts, rates=full_disk("sdb"), has_server=False)) == "block sdb"
    temporary = {**facts, "file_systems./srv/scratch/volume.block_device": "sdb"}
    files = {"tmpdir": "/tmp:/srv/scratch/volume/tmp"}
    assert limiting(unwell(facts=temporary, rates=full_disk("sdb"), variables=files)) == "block sdb"


@pytest.mark.parametrize(("physical", "level"), [(True, Level.FINE), (False, Level.UNKNOWN)])
def test_the_speed_of_a_virtual_interface_is_a_name(physical: bool, level: Level) -> None:
    """veth reports 10,000 Mbit/s, and carries what the CPUs copy; inside a container nothing else is seen."""
    veth = {"name": "veth0", "physical": False, "driver": None, "speed_mbit_s": 10_000, "lower": []}
    others = healthy().raw["network_interfaces"] if physical else []
    rates = {f"network.{way}_bytes.veth0": 1.2e9 for way in ("rx", "tx")}
    evidence = unwell(facts={"network_interfaces": [*others, veth]}, rates=rates)
    assert (use(evidence, "network", "veth0").level, use(evidence, "network", "veth0").limit) == (level, "")


def test_one_sample_says_how_often_the_cpus_were_sampled() -> None:
    evidence = unwell()
    samples = evidence.window.samples
    keep = samples.starts
    once = Samples(samples.names, np.arange(len(keep)), samples.t_ns[keep], samples.value[keep])
    verdict = Evidence(Facts("0" * 16, dict(evidence.raw)), Window(once)).verdict
    assert verdict.sentence.startswith("The bottleneck of this host is unknown: its CPUs were sampled once")


def test_little_memory_that_nobody_waits_for_is_busy() -> None:
    evidence = unwell(gauges={"memory.MemAvailable.": 2.0 * GIB})
    assert use(evidence, "memory").level is Level.BUSY
    assert limiting(evidence) is None


def test_lost_segments_and_refused_connections_are_said() -> None:
    lost = unwell(rates={"snmp.Tcp.RetransSegs.": 270.0})
    assert limiting(lost) == "tcp"
    assert use(lost, "tcp").errors == "3.0% of the segments lost and retransmitted"
    refused = unwell(rates={"snmp.TcpExt.ListenOverflows.": 2.0})
    assert "2.0 connections/s refused" in refused.verdict.sentence


def test_dropped_packets_name_the_core() -> None:
    evidence = unwell(rates={"softnet.dropped.cpu4": 8.0})
    assert limiting(evidence) == "softirq cpu4"
    assert "Packet receive work on cpu4 limits this host" in evidence.verdict.sentence


def test_many_threads_at_work_on_few_cpus_are_a_software_bottleneck() -> None:
    sentence = unwell(status={"threads_running": 41.0}).verdict.sentence
    assert sentence.startswith(
        "No hardware is saturated: the CPUs are 82% idle, but 41 active server threads"
    )
    assert "use only 1.3 CPUs: they wait on each other (locks or hot code paths)." in sentence


def test_threads_at_work_on_as_many_cpus_are_not() -> None:
    busy = {"process.utime_ticks.1322/mysqld": 480.0, "process.stime_ticks.1322/mysqld": 60.0}
    assert "Nothing limits" in unwell(status={"threads_running": 7.0}, rates=busy).verdict.sentence


def test_the_worst_comes_first() -> None:
    evidence = unwell(rates={**ONE_HOT_CORE, **DEEP_AND_SLOW, f"network.tx_bytes.{NIC}": 19e9 / 8})
    levels = [u.level for u in evidence.verdict.uses]
    assert levels == sorted(levels, key=list(Level).index)
    assert evidence.verdict.uses[0].level is Level.SATURATED
