"""What recorders print of hours: text of sar, and Prometheus' answers to range queries.

Whole, cut off, over midnight, across a restart, of old versions, and what cannot be read.
"""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.host.devices import devices
from headrace.host.samples import Samples
from headrace.host.window import Window
from headrace.hunt.dumps.kinds import KINDS, prometheus, sar
from headrace.hunt.dumps.piece import About, Numbered, Piece, Rates, Said, Status, Unread
from headrace.hunt.dumps.series import is_gauge
from headrace.hunt.hunt import examine, saved

BANNER = "Linux 5.14.0-362.el9.x86_64 (db1) \t{date} \t_x86_64_\t(8 CPU)\n\n"
DISK = "tps     rkB/s     wkB/s     dkB/s   areq-sz    aqu-sz     await     %util"


def of_file(*clocks: str, date: str = "11/28/2026") -> str:
    """sar -A -f: every part once, its rows by time, and its average."""
    first, rows = clocks[0], clocks[1:]
    cpu = "".join(
        f"{at}        all     {20 + n}.00      0.00      5.00      {n}.00      1.00     {74 - 2 * n}.00\n"
        for n, at in enumerate(rows)
    )
    disk = "".join(
        f"{at}      nvme0n1   {100 + n}.00   800.00    1600.00      0.00     24.00      0.50      5.00     30.00\n"
        for n, at in enumerate(rows)
    )
    memory = "".join(f"{at}     1048576   8388608   8388608     50.00\n" for at in rows)
    network = "".join(f"{at}         eth0   1000.00   2000.00    100.00    400.00\n" for at in rows)
    pressure = "".join(f"{at}      1.00      1.00      1.00     {40 + n}.00\n" for n, at in enumerate(rows))
    return (
        BANNER.format(date=date)
        + f"{first}        CPU     %user     %nice   %system   %iowait    %steal     %idle\n{cpu}"
        + "Average:        all     21.00      0.00      5.00      1.00      1.00     72.00\n\n"
        + f"{first}          DEV       {DISK}\n{disk}Average:      nvme0n1 1 1 1 1 1 1 1 1\n\n"
        + f"{first}    kbmemfree   kbavail kbmemused  %memused\n{memory}Average:  1 1 1 1\n\n"
        + f"{first}        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s\n{network}Average:  eth0 1 1 1 1\n\n"
        + f"{first}      %sio-10   %sio-60  %sio-300      %sio\n{pressure}Average:  1 1 1 1\n"
    )


def rates(text: str, sampler: str) -> list[Rates]:
    found = [piece for kind in KINDS for piece in kind.read(text)]
    return [piece for piece in found if isinstance(piece, Rates) and piece.sampler == sampler]


def test_parts_of_one_clock_are_one_report() -> None:
    text = of_file("12:00:00", "12:10:00", "12:20:00")
    cpu = rates(text, "cpu")
    assert [each.seconds for each in cpu] == [600.0, 600.0]
    assert cpu[0].source == "sar", "mpstat's reader leaves it to sar's"
    assert cpu[1].per_second["user"]["all"] == pytest.approx(21.0)
    (disk, _) = rates(text, "disk")
    assert disk.per_second["requests"] == {"nvme0n1": 100.0}
    assert "reads" not in disk.per_second, "sar does not tell reads from writes"
    assert rates(text, "network")[0].per_second["tx_bytes"] == {"eth0": 400.0 * 1024}
    assert rates(text, "psi")[1].per_second["some_total_us"] == {"io": 410_000.0}
    memory = rates(text, "memory")[0].gauges
    assert (memory["MemAvailable"][""], memory["MemTotal"][""]) == (8 << 30, 16 << 30)
    assert [piece for kind in KINDS for piece in kind.read(text) if isinstance(piece, About)]


@pytest.mark.parametrize(
    "clocks",
    [
        ("11:50:00 PM", "11:55:00 PM", "12:00:00 AM", "12:05:00 AM"),
        ("23:50:00", "23:55:00", "00:00:00", "00:05:00"),
    ],
)
def test_midnight_is_five_minutes_after_five_to(clocks: tuple[str, ...]) -> None:
    for sampler in ("cpu", "disk", "psi"):
        found = rates(of_file(*clocks), sampler)
        assert [each.seconds for each in found] == [300.0] * 3, sampler
        times = [each.at_s for each in found]
        assert times == sorted(times)  # type: ignore[type-var]


@pytest.mark.parametrize("date", ["11/28/26", "2026-11-28", "31/07/2022", "28.11.2026"])
def test_any_form_of_the_date_will_do(date: str) -> None:
    assert len(rates(of_file("12:00:00", "12:10:00", date=date), "cpu")) == 1


@pytest.mark.parametrize(
    ("date", "day"),
    [
        ("28.11.2026", "2026-11-28"), ("28/11/26", "2026-11-28"), ("2026年11月28日", "2026-11-28"),
        ("01.02.2026", "2026-02-01"), ("02/01/2026", "2026-02-01"),
    ],
)  # fmt: skip
def test_a_banner_is_one_with_the_date_of_any_language(date: str, day: str) -> None:
    text = of_file("12:00:00", "12:10:00", date=date)
    (about,) = [piece for kind in KINDS for piece in kind.read(text) if isinstance(piece, About)]
    assert about.facts["cpu", "online_count"] == 8
    at_s = rates(text, "cpu")[0].at_s
    assert at_s is not None
    assert datetime.fromtimestamp(at_s, UTC).isoformat() == f"{day}T12:10:00+00:00"


@pytest.mark.parametrize(("average", "date"), [("Durchschn.:", "28.11.2026"), ("Moyenne :", "28/11/2026")])
def test_decimal_commas_and_words_of_other_languages_change_nothing(average: str, date: str) -> None:
    english = of_file("12:00:00", "12:10:00", "12:20:00", date=date)
    other = re.sub(r"(?<=\d)\.(?=\d\d\b(?!\d))", ",", english).replace("Average:", average)
    other = other.replace(other.splitlines()[0], english.splitlines()[0])
    assert other != english
    for sampler in ("cpu", "disk", "network", "psi", "memory"):
        assert rates(other, sampler) == rates(english, sampler), sampler
        assert rates(other, sampler), sampler


def test_disks_of_sar_are_no_report_of_iostat() -> None:
    text = of_file("12:00:00", "12:10:00", "12:20:00")
    assert not [piece for kind in KINDS for piece in kind.read(text) if isinstance(piece, Said)]


def test_live_reports_repeat_the_title() -> None:
    text = BANNER.format(date="11/28/2026")
    for start, at in (("23:59:58", "23:59:59"), ("23:59:59", "00:00:00"), ("00:00:00", "00:00:01")):
        text += f"{start}        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s\n"
        text += f"{at}         eth0      1.00      2.00      3.00      4.00\n\n"
    assert [each.seconds for each in rates(text, "network")] == [1.0, 1.0, 1.0]


def test_names_behind_the_numbers_are_names() -> None:
    text = BANNER.format(date="11/28/2026") + (
        f"12:00:00          {DISK} DEV\n"
        "12:00:01       455.00    792.00  33984.00      0.00    103.81      0.32      0.57     12.00 vda\n"
        "12:00:01         0.00      0.00      0.00      0.00      0.00      0.00      0.00      0.00 loop0\n"
    )
    assert rates(text, "disk")[0].per_second["requests"] == {"vda": 455.0, "loop0": 0.0}


def test_old_versions_count_sectors() -> None:
    text = BANNER.format(date="11/28/2026") + (
        "12:00:00 PM       DEV       tps  rd_sec/s  wr_sec/s  avgrq-sz  avgqu-sz     await     svctm     %util\n"
        "12:10:00 PM    dev8-0     40.00      0.00    640.00     16.00      2.00     50.00      1.00     90.00\n"
    )
    (disk,) = rates(text, "disk")
    assert disk.per_second["sectors_written"] == {"dev8-0": 640.0}
    assert disk.per_second["writes"] == {"dev8-0": 40.0}
    assert disk.per_second["weighted_io_ms"] == {"dev8-0": 2000.0}


def test_the_interval_across_a_restart_is_left_out() -> None:
    text = BANNER.format(date="11/28/2026") + (
        "12:00:00        CPU     %user     %nice   %system   %iowait    %steal     %idle\n"
        "12:10:00        all     20.00      0.00      5.00      0.00      0.00     75.00\n\n"
        "12:14:00     LINUX RESTART\t(8 CPU)\n\n"
        "12:20:00        CPU     %user     %nice   %system   %iowait    %steal     %idle\n"
        "12:30:00        all     30.00      0.00      5.00      0.00      0.00     65.00\n"
    )
    assert [each.seconds for each in rates(text, "cpu")] == [600.0, 600.0]
    assert any(isinstance(piece, Said) and "restarted" in piece.text for piece in sar.read(text))


def test_cut_off_or_damaged_it_is_no_traceback_and_no_wrong_number() -> None:
    text = of_file("12:00:00", "12:10:00", "12:20:00")
    whole = {(each.at_s, str(each.per_second)) for each in rates(text, "disk")}
    lines = text.splitlines(keepends=True)
    for count in range(len(lines)):
        assert {(each.at_s, str(each.per_second)) for each in rates("".join(lines[:count]), "disk")} <= whole
    chance = random.Random(7)
    for _ in range(40):
        damaged = list(text)
        for _ in range(chance.randrange(1, 30)):
            at = chance.randrange(len(damaged))
            damaged[at : at + chance.choice((0, 1, 5))] = chance.choice(
                ("", "9" * 30, "-1", "\n", " ", "é", "AM")
            )
        for piece in sar.read("".join(damaged)):
            assert isinstance(piece, Piece)


def test_requests_of_unknown_kind_are_a_device_that_worked() -> None:
    rows = [
        (int(second * 1e9), "disk", metric, "sda", each * second)
        for second in range(4)
        for metric, each in (
            ("requests", 300.0),
            ("request_ms", 900.0),
            ("io_ms", 500.0),
            ("weighted_io_ms", 900.0),
        )
    ]
    (device,) = devices(Window(Samples.of(rows)))
    assert (device.operations, device.main_kind) == (300.0, "request")
    assert device.main_ms == pytest.approx(3.0)


def matrix(*series: tuple[dict[str, str], list[float]], start: float = 1.7e9) -> str:
    result = [
        {"metric": labels, "values": [[start + 15 * n, str(value)] for n, value in enumerate(values)]}
        for labels, values in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def named(name: str, **labels: str) -> dict[str, str]:
    return {"__name__": name, "instance": "db1:9100", "job": "node", **labels}


def test_a_range_of_counters_is_a_series_of_scrapes() -> None:
    text = matrix(
        (named("node_cpu_seconds_total", cpu="0", mode="idle"), [10.0, 20.0, 30.0]),
        (named("node_cpu_seconds_total", cpu="0", mode="user"), [1.0, 6.0, 11.0]),
        (named("node_disk_reads_completed_total", device="sda"), [100.0, 400.0, 700.0]),
        ({**named("mysql_global_status_threads_running"), "instance": "db1:9104"}, [4.0, 5.0, 6.0]),
        ({**named("mysql_global_status_uptime"), "instance": "db1:9104"}, [100.0, 115.0, 130.0]),
    )
    found = prometheus.read(text)
    cpu = [piece for piece in found if isinstance(piece, Numbered) and piece.sampler == "cpu"]
    assert [piece.at_s for piece in cpu] == [1.7e9, 1.7e9 + 15, 1.7e9 + 30]
    assert cpu[1].numbers["user"]["cpu0"] == 600.0
    status = [piece for piece in found if isinstance(piece, Status)]
    assert [piece.values["threads_running"] for piece in status] == [4.0, 5.0, 6.0]
    assert is_gauge("threads_running")


def test_a_directory_of_answers_is_a_hunt(tmp_path: Path) -> None:
    """One query per file, as scripts save them."""
    modes = {"user": 0.95, "system": 0.04, "idle": 0.01}
    cpus = [
        (named("node_cpu_seconds_total", cpu=str(n), mode=mode), [15 * share * k for k in range(8)])
        for n in range(2)
        for mode, share in modes.items()
    ]
    (tmp_path / "cpu.json").write_text(matrix(*cpus))
    waiting = (named("node_pressure_cpu_waiting_seconds_total"), [13.0 * k for k in range(8)])
    (tmp_path / "pressure.json").write_text(matrix(waiting))
    (tmp_path / "run.json").write_text(matrix((named("node_procs_running"), [9.0] * 8)))
    found = examine(saved(tmp_path))
    assert found.verdict.limiting is not None
    assert found.verdict.limiting.resource == "cpu"
    assert "87% of the time" in found.verdict.sentence


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (matrix(({"instance": "db1:9100"}, [1.0, 2.0])), "without names of metrics"),
        (
            matrix(
                (named("node_procs_running"), [1.0]),
                ({**named("node_procs_running"), "instance": "db2:9100"}, [2.0]),
            ),
            "2 hosts in one answer",
        ),
        ('{"status":"success","data":{"resultType":"vector","result":[]}}', "query_range"),
        (matrix((named("node_procs_running"), [1.0]))[:-20], "damaged or cut off"),
    ],
)
def test_what_cannot_be_read_says_what_can(text: str, why: str) -> None:
    (piece,) = prometheus.read(text)
    assert isinstance(piece, Unread)
    assert why in piece.why


def test_odd_answers_are_no_traceback() -> None:
    odd: list[Any] = [
        None,
        3,
        [],
        {"metric": 1},
        {"metric": {"__name__": "node_x"}, "values": [[1], "x", [None, 2]]},
    ]
    for row in odd:
        text = json.dumps({"data": {"resultType": "matrix", "result": [row]}})
        for piece in prometheus.read(text):
            assert isinstance(piece, Piece)


def test_a_sosreport_is_of_the_time_that_its_sar_recorded(tmp_path: Path) -> None:
    """Its one reading of /proc has the uptime as its clock, its vmstat has none, and its sar a calendar's."""
    report = tmp_path / "sosreport-db1-2026-11-28-abcdef"
    files = {
        "proc/uptime": "88000.55 600000.00\n",
        "proc/stat": "cpu  900 0 100 9000 10 0 5 0 0 0\ncpu0 900 0 100 9000 10 0 5 0 0 0\nctxt 5\nbtime 1\n"
        "processes 3\nprocs_running 1\nprocs_blocked 0\n",
        "proc/meminfo": "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n",
        "proc/diskstats": " 259       0 nvme0n1 5 0 9 1 7 0 9 1 0 1 1\n",
        "etc/hostname": "db1\n",
        "sos_commands/kernel/uname_-a": "Linux db1 5.14.0-362.el9.x86_64 #1 SMP x86_64 GNU/Linux\n",
        "sos_commands/memory/free": "Mem: 16777216 8388608 1048576\n",
        "sos_commands/process/vmstat_1_3": "procs -----------memory---------- ---swap-- -----io---- -system-- "
        "------cpu-----\n r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n"
        + " 1  0      0 104857   2000 800000    0    0     5     5  100  200 97  1  2  0  0\n"
        * 3,
        "var/log/sa/sar28": of_file("12:00:00", "12:10:00", "12:20:00", "12:30:00"),
    }
    for name, text in files.items():
        (report / name).parent.mkdir(parents=True, exist_ok=True)
        (report / name).write_text(text)
    snapshot = saved(report)
    assert (snapshot.seconds, snapshot.started_at) == (1800.0, "2026-11-28T12:00:00+00:00")
    found = examine(snapshot)
    assert "nvme0n1 does 101 operations/s" in found.verdict.sentence
    assert "waited for I/O 41% of the time" in found.verdict.sentence
    assert found.evidence.use("memory", "") is not None
    assert {f"{use.level}" for use in found.verdict.uses if use.resource == "memory"} == {"fine"}
