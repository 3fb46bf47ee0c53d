"""Who uses what is short: programs by CPU time, I/O and memory, and threads."""

from __future__ import annotations

import pytest

from headrace.host.samples import Samples
from headrace.host.window import Window
from headrace.hunt import users
from headrace.hunt.resources import Level
from headrace.hunt.rules.evidence import Evidence
from tests.rules.hosts import GIB, unwell
from tests.rules.neighbours_cases import FULL
from tests.unit.test_resources import ALWAYS_BUSY, DEEP_AND_SLOW, DISK, use


def working(**cpus: float) -> dict[str, float]:
    """Processes that use this many CPUs: ``cc1_4711=0.9``."""
    return {
        f"process.utime_ticks.{name.rpartition('_')[2]}/{name.rpartition('_')[0]}": 100 * used
        for name, used in cpus.items()
    }


def test_full_cpus_name_who_fills_them() -> None:
    """Six CPUs of a compiler in two processes, 1.3 of the server."""
    cpu = use(unwell(rates={**FULL, **working(cc1_501=3.0, cc1_502=3.0)}), "cpu")
    assert cpu.users[:2] == ("cc1 (2 processes) 76%", "mysqld (pid 1322) 16%")
    assert "Used by cc1 (2 processes) 76%, mysqld (pid 1322) 16%" in _sentence(FULL, cc1_501=3.0, cc1_502=3.0)


def test_the_servers_part_is_told_apart_by_its_threads() -> None:
    threads = {f"threads.utime_ticks.{tid}/connection": 96.0 for tid in range(1403, 1408)}
    threads["threads.utime_ticks.1402/ib_pg_flush_co"] = 90.0
    cpu = use(unwell(rates={**FULL, **threads, **working(mysqld_1322=6.0)}), "cpu")
    assert cpu.users[0] == "mysqld (pid 1322) 81% (threads: connection 64%, ib_pg_flush_co 11%)"
    # Where the server names none, each has the program's name, which says nothing.
    unnamed = {"threads.utime_ticks.1401/connection": 0.0, "threads.utime_ticks.1402/mysqld": 480.0}
    cpu = use(unwell(rates={**FULL, **unnamed, **working(mysqld_1322=6.0)}), "cpu")
    assert cpu.users[0] == "mysqld (pid 1322) 81%"
    # Of two servers nothing says whose threads they are.
    two = unwell(rates={**FULL, **threads, **working(mysqld_1322=5.0, memcached_1500=1.0)})
    assert use(two, "cpu").users[:2] == ("mysqld (pid 1322) 68%", "memcached (pid 1500) 13%")


def _sentence(rates: dict[str, float], **cpus: float) -> str:
    return unwell(rates={**rates, **working(**cpus)}).verdict.sentence


def test_work_that_no_process_was_seen_to_do_is_said() -> None:
    seen = {**FULL, **working(rcu_preempt_15=0.01)}
    cpu = use(unwell(rates=seen, gauges={"process.rss_bytes.15/rcu_preempt": 0.0}), "cpu")
    assert cpu.users[-1] == "interrupts and processes too short-lived to be seen 83%"


def test_parts_are_no_more_than_the_whole() -> None:
    """Processes were looked at a second later than the CPUs."""
    cpu = use(unwell(rates={**FULL, **working(cc1_501=9.0, mysqld_1322=3.0)}), "cpu")
    assert cpu.users[:2] == ("cc1 (pid 501) 73%", "mysqld (pid 1322) 27%")
    seen = users.programs(unwell(rates={**FULL, **working(cc1_501=9.0, mysqld_1322=3.0)}).window)
    assert sum(each.cpus for each in seen) == pytest.approx(8.0)


def test_a_container_does_not_see_the_work_of_others() -> None:
    """No kernel thread is there: the others may be any processes of the host."""
    cpu = use(unwell(rates=FULL), "cpu")
    assert cpu.users[-1] == (
        "interrupts and processes not seen from here (too short-lived, or outside this container) 84%"
    )


def test_a_process_that_started_in_the_window_counts_whole() -> None:
    """One that is older than the sampler's own process may be looked at late, and counts from then."""
    start_ticks = {"400/headrace-agent": 7_000, "500/cc1": 7_100, "600/java": 90}
    seen = {
        "400/headrace-agent": {0: 0, 5: 1, 10: 2},
        "500/cc1": {5: 300, 10: 700},
        "600/java": {5: 90_000, 10: 90_100},
    }
    rows = [
        (second * 1_000_000_000, "process", "utime_ticks", label, float(ticks))
        for label, values in seen.items()
        for second, ticks in values.items()
    ]
    rows += [(10_000_000_000, "process", "start_ticks", name, float(t)) for name, t in start_ticks.items()]
    found = {program.name: program.cpus for program in users.programs(Window(Samples.of(rows)))}
    assert found == {"cc1": 0.7, "java": 0.1, "headrace-agent": 0.002}


def test_a_healthy_resource_names_nobody() -> None:
    evidence = unwell()
    assert {u.users for u in evidence.verdict.uses} == {()}


def _io(evidence_rates: dict[str, float]) -> Evidence:
    return unwell(rates={**ALWAYS_BUSY, **DEEP_AND_SLOW, **evidence_rates})


def test_a_saturated_device_names_who_reads_and_writes() -> None:
    fio = {"process.utime_ticks.77/fio": 20.0, "process.read_bytes.77/fio": 900e6}
    own = {"process.read_bytes.1322/mysqld": 95e6, "process.write_bytes.1322/mysqld": 5e6}
    device = use(_io({**fio, **own}), "block", DISK)
    assert device.level is Level.SATURATED
    assert device.users == ("fio (pid 77) 900.0 MB/s (90%)", "mysqld (pid 1322) 100.0 MB/s (10%)")


def test_short_memory_names_who_holds_it() -> None:
    evidence = unwell(
        rates={"psi.some_total_us.memory": 200_000.0, **working(java_9=0.1)},
        gauges={"process.rss_bytes.9/java": 30.0 * GIB, "process.rss_bytes.1322/mysqld": 20.0 * GIB},
    )
    assert use(evidence, "memory").users == ("java (pid 9) 30.0 GiB", "mysqld (pid 1322) 20.0 GiB")


def test_one_full_core_names_what_could_fill_it() -> None:
    hot = {"cpu.user.cpu6": 95.0, "cpu.idle.cpu6": 0.0, "cpu.iowait.cpu6": 0.0}
    evidence = unwell(rates={**hot, "threads.utime_ticks.1402/ib_pg_flush": 96.0, **working(gzip_8=0.2)})
    assert use(evidence, "core", "cpu6").users == ("thread ib_pg_flush 1.0 CPUs",)


def test_kernel_threads_are_not_programs() -> None:
    evidence = unwell(
        rates={**FULL, **working(kworker_31=4.0)},
        gauges={"process.rss_bytes.31/kworker": 0.0},
    )
    assert use(evidence, "cpu").users[0] == "kernel threads 51%"


def test_a_control_group_is_known_by_its_service_or_container() -> None:
    container = "0123456789ab" + 52 * "c"
    for path, name in {
        "/": "",
        "": "",
        "/system.slice/backup.service": "backup.service",
        "/system.slice/mariadb.service/worker": "mariadb.service",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/app-ide.scope": "app-ide.scope",
        f"/system.slice/docker-{container}.scope": "docker-0123456789ab.scope",
        f"/kubepods.slice/pod7.slice/cri-containerd-{container}.scope": "cri-containerd-0123456789ab.scope",
        f"/docker/{container}": "docker/0123456789ab",
        "/ci/job": "job",
        f"/sandbox/{32 * 'a'}": "sandbox/aaaaaaaaaaaa",
    }.items():
        assert users.unit(path) == name


def test_full_cpus_name_the_control_groups_of_who_fills_them() -> None:
    groups = {
        "process.in_group.501/system.slice/ci.service": 1.0,
        "process.in_group.502/system.slice/ci.service": 1.0,
        "process.in_group.1322/system.slice/mysql.service": 1.0,
        "process.in_group.77/": 1.0,
    }
    evidence = unwell(rates={**FULL, **working(cc1_501=3.0, cc1_502=3.0, cron_77=0.6)}, gauges=groups)
    assert use(evidence, "cpu").users[:3] == (
        "cc1 (2 processes, in ci.service) 76%",
        "mysqld (pid 1322, in mysql.service) 16%",
        "cron (pid 77) 8%",
    )
    spread = {**groups, "process.in_group.502/system.slice/night.service": 1.0}
    del spread["process.in_group.502/system.slice/ci.service"]
    evidence = unwell(rates={**FULL, **working(cc1_501=3.0, cc1_502=3.0)}, gauges=spread)
    assert use(evidence, "cpu").users[0] == "cc1 (2 processes, 2 control groups) 76%"


def test_a_group_is_the_sum_of_its_programs() -> None:
    groups = {f"process.in_group.{pid}/system.slice/ci.service": 1.0 for pid in (501, 502, 503, 504)}
    seen = {
        **working(cc1_501=0.3, cc1_502=0.5, ld_503=1.0, fio_9=2.0),
        "process.utime_ticks.504/headrace": 70.0,
    }
    evidence = unwell(rates=seen, gauges=groups)
    (found,) = users.groups(evidence.window)
    assert (found.name, found.programs) == ("ci.service", ("ld", "cc1"))
    assert round(found.cpus, 2) == 1.8
    assert not found.has_server
