"""Dumps that look like what is read and mean something else: each is read as what it is, or said not to be."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.base.errors import StoreError
from headrace.hunt.dumps.files import Opened
from headrace.hunt.dumps.kinds import KINDS
from headrace.hunt.dumps.piece import Numbered, Piece, Rates, Said, Status
from headrace.hunt.hunt import Hunt, examine, saved
from headrace.hunt.resources import Level
from tests.folders import ROOT

BANNER = "Linux 6.1.0 ({}) \t11/29/26 \t_x86_64_\t(4 CPU)\n\n"
COLUMNS = "    CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle\n"
STATUS = {f"Com_x{n}": str(n) for n in range(30)} | {
    "Uptime": "1000",
    "Questions": "5000",
    "Threads_running": "3",
}


def read(text: str) -> list[Piece]:
    return [piece for kind in KINDS for piece in kind.read(text)]


def mpstat(*counts: int, busy: float | Sequence[float] = 99.0) -> str:
    reports = []
    each = busy if isinstance(busy, Sequence) else [busy] * len(counts)
    for number, (count, used) in enumerate(zip(counts, each, strict=True)):
        start, end = f"12:00:{10 * number:02d}", f"12:00:{10 * number + 10:02d}"
        rows = "".join(
            f"{end} {name:>6} {used:.2f} 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00 {100 - used:.2f}\n"
            for name in ("all", *map(str, range(count)))
        )
        reports.append(f"{start} {COLUMNS}{rows}\n")
    return "".join(reports)


def listing(values: dict[str, str]) -> str:
    return "Variable_name;Value\n" + "".join(f"{name};{value}\n" for name, value in values.items())


def hunt(path: Path) -> Hunt:
    return examine(saved(path))


def test_cpus_that_are_full_are_not_called_short_or_enough_without_a_queue(tmp_path: Path) -> None:
    path = tmp_path / "mpstat.txt"
    path.write_text(BANNER.format("db1") + mpstat(4, 4, 4))
    found = hunt(path).verdict
    assert found.sentence.startswith("The CPUs are 99% busy; whether tasks wait for a CPU is unknown")
    path.write_text(BANNER.format("db1") + mpstat(4, 4, 4, busy=80.0))
    assert hunt(path).verdict.sentence.startswith("Nothing is saturated; the CPUs are 80% busy")


def test_cpus_that_went_offline_leave_their_intervals() -> None:
    found = read(BANNER.format("db1") + mpstat(4, 2, 2, 2))
    assert len([piece for piece in found if isinstance(piece, Rates)]) == 4
    assert any(isinstance(piece, Said) and "2 to 4 CPUs" in piece.text for piece in found)
    # The last report may be cut off instead, where no blank line ends it.
    cut = read(BANNER.format("db1") + mpstat(4, 4, 2).rstrip("\n"))
    assert len([piece for piece in cut if isinstance(piece, Rates)]) == 2
    assert not any(isinstance(piece, Said) for piece in cut)


@pytest.mark.parametrize(
    ("counts", "busy", "says", "changed"),
    [
        ((4, 2, 2), (50, 99, 99), "The CPUs are 99% busy", "2 of 4 CPUs went offline after 10 s"),
        ((2, 2, 4, 4), (99, 99, 50, 50), "the CPUs are 50% idle", "2 CPUs came online after 20 s"),
        ((4, 4, 2), (20, 20, 99), "The CPUs are 99% busy", "2 of 4 CPUs went offline after 20 s"),
        ((4, 2, 4), (60, 60, 60), "the CPUs are 40% idle", "CPUs were offline, the last one until 20 s"),
    ],
)
def test_cpus_are_judged_by_the_time_with_those_that_are_there_now(
    tmp_path: Path, counts: tuple[int, ...], busy: tuple[float, ...], says: str, changed: str
) -> None:
    path = tmp_path / "mpstat.txt"
    path.write_text(BANNER.format("db1") + mpstat(*counts, busy=busy))
    sentence = hunt(path).verdict.sentence
    assert says in sentence
    assert changed in sentence
    assert f"since, in which {counts[-1]} CPUs were there" in sentence


def test_a_kernel_s_sum_with_time_of_a_cpu_that_went_is_left_out(tmp_path: Path) -> None:
    """The interval in which a CPU goes has work of it in the line of all."""
    spent, total = [[0, 0] for _ in range(4)], [0, 0]
    for number, (count, busy) in enumerate([(4, 50), (4, 50), (2, 100), (2, 100), (2, 100)]):
        for cpu in range(4 if number == 2 else count):
            for at, ticks in enumerate((10 * busy, 1000 - 10 * busy)):
                spent[cpu][at] += ticks
                total[at] += ticks
        lines = [f"cpu{cpu} {used} 0 0 {idle} 0 0 0" for cpu, (used, idle) in enumerate(spent[:count])]
        file = tmp_path / f"{1764346200 + 10 * number}/proc/stat"
        file.parent.mkdir(parents=True)
        file.write_text("\n".join((f"cpu  {total[0]} 0 0 {total[1]} 0 0 0", *lines, "procs_running 6\n")))
    sentence = hunt(tmp_path).verdict.sentence
    assert sentence.startswith("CPU time limits this host: 100% of 2 CPUs"), sentence
    assert "2 of 4 CPUs went offline after 20 s: the CPUs are judged by the 20 s since" in sentence


@pytest.mark.parametrize("mark", [".", ",", "'", " ", "\u00a0"])
def test_marks_between_thousands_are_no_points(mark: str) -> None:
    def grouped(value: str) -> str:
        return f"{int(value):,}".replace(",", mark)

    counts = {**STATUS, "Bytes_sent": "1234567"}
    text = listing({name: grouped(value) for name, value in counts.items()} | {"Last_query_cost": "0.500000"})
    found = read(text)
    (status,) = [piece for piece in found if isinstance(piece, Status)]
    assert status.values == {name.lower(): float(value) for name, value in counts.items()} | {
        "last_query_cost": 0.5
    }
    assert any(isinstance(piece, Said) and "thousands" in piece.text for piece in found)


def test_a_fraction_with_three_digits_is_one() -> None:
    (status,) = read(listing({**STATUS, "wsrep_avg": "1.234", "Last_query_cost": "12.345"}))
    assert isinstance(status, Status)
    assert (status.values["wsrep_avg"], status.values["last_query_cost"]) == (1.234, 12.345)


def test_a_gzip_of_several_is_read_whole_and_one_that_is_cut_off_is_named(tmp_path: Path) -> None:
    first, second = (gzip.compress(text.encode()) for text in (f"{'a b c' * 99}\n", "second\n"))
    path = tmp_path / "x.gz"
    for content, has_second, is_whole in (
        (first + second, True, True),
        (first + second + bytes(512), True, True),
        (first + second[:-9], True, False),
        (first[:-4], False, False),
        (first + b"no gzip", False, False),
    ):
        path.write_bytes(content)
        found = Opened()
        found.add("x.gz", path)
        assert found.texts["x.gz"].startswith("a b c")
        assert found.texts["x.gz"].endswith("second\n") or not (has_second and is_whole)
        assert ("the end of x.gz" in found.skipped) is not is_whole


@pytest.mark.parametrize(("name", "place"), [("localhost.localdomain", "unknown"), ("db1", "here")])
def test_localhost_on_both_sides_is_no_evidence_of_one_machine(tmp_path: Path, name: str, place: str) -> None:
    variables = {f"innodb_x{n}": "1" for n in range(9)} | {
        "version": "8.0.39",
        "hostname": name,
        "datadir": "/d/",
    }
    (tmp_path / "v.txt").write_text(listing(variables))
    (tmp_path / "s.txt").write_text(listing(STATUS) + "\n" + listing({**STATUS, "Uptime": "1020"}))
    (tmp_path / "m.txt").write_text(BANNER.format(name) + mpstat(4, 4, 4))
    found = hunt(tmp_path)
    settings = found.snapshot.facts.data["server_settings"]
    assert settings["place"]["answer"] == place
    (cpu,) = [use for use in found.verdict.uses if use.resource == "cpu"]
    assert (cpu.level is Level.UNKNOWN) is (place == "unknown")
    assert ("not known to run on this host" in found.verdict.sentence) is (place == "unknown")


INNODB = """=====================================
2026-11-29 12:00:01 0x7f1 INNODB MONITOR OUTPUT
=====================================
------------
TRANSACTIONS
------------
Trx id counter 9
History list length 120
---TRANSACTION 7, ACTIVE 900 sec
--------
FILE I/O
--------
"""


@pytest.mark.parametrize("bar", ["|", "│", ""])
def test_a_status_of_innodb_with_bars_around_each_line_is_the_same(bar: str) -> None:
    text = "".join(f"{bar} {line:<60} {bar}\n" if bar else f"{line}\n" for line in INNODB.splitlines())
    (found,) = read(text)
    assert isinstance(found, Numbered)
    assert found.numbers["history_list_length"] == {"": 120}
    assert found.numbers["oldest_transaction_s"] == {"": 900}
    # MySQL's text lacks the transactions that only read.
    assert "oldest_read_view_s" not in found.numbers


def test_the_oldest_read_view_is_that_of_the_transaction_that_has_one() -> None:
    path = ROOT / "crates/host/src/server/texts/innodb-status-mariadb-10.11.txt"
    (found,) = read(path.read_text())
    assert isinstance(found, Numbered)
    assert (found.numbers["oldest_transaction_s"], found.numbers["oldest_read_view_s"]) == ({"": 2}, {"": 0})


@pytest.mark.parametrize("path", ["sys/fs/cgroup/cpu.stat", "sys/fs/cgroup/cpu,cpuacct/cpu.stat"])
def test_a_quota_that_throttled_the_saved_group_is_said(tmp_path: Path, path: str) -> None:
    for number in range(2):
        tree = tmp_path / f"{1764346200 + 10 * number}"
        for name, text in {
            "proc/stat": f"cpu  {100 * number} 0 0 {900 * number} 0 0 0 0 0 0\n"
            f"cpu0 {100 * number} 0 0 {900 * number} 0 0 0 0 0 0\n",
            path: f"nr_periods {1000 + 100 * number}\nnr_throttled {90 * number}\n"
            + (f"throttled_usec {7_000_000 * number}\n" if path.endswith("cgroup/cpu.stat") else "")
            + f"throttled_time {7_000_000_000 * number}\n",
        }.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
    found = hunt(tmp_path)
    assert found.snapshot.origin is not None
    (said,) = [each for each in found.snapshot.origin.cautions if "quota" in each]
    assert "throttled it in 90% of its periods: whether the server is in it is unknown" in said
    assert found.verdict.sentence == (
        "The CPU quota stopped the saved control group, whether the server is in it or not, in 90% of its "
        "periods: 0.70 s of thread time lost per second (CPU03@/sys/fs/cgroup). Also, the CPU quota of the saved "
        "control group limits what runs in it, and whether the server does is unknown (the machine: 10% of 1 CPU: "
        "10% user; the CPU quota of the saved control group throttled it for 7.0 s of 10)."
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("ATOP - db1             2026/11/29  12:00:00             10s elapsed\n", "atop"),
        ("#<--------CPU--------><----------Disks----------->\n#cpu sys inter  ctxsw KBRead\n", "collectl"),
        ("                           node0           node1\nnuma_hit   3  9\n", "numastat"),
        ("Filesystem     1K-blocks     Used Available Use% Mounted on\n", "output of df"),
        ("CONTAINER ID   NAME  CPU %     MEM USAGE / LIMIT   MEM %\n", "docker stats"),
    ],
)
def test_programs_that_are_not_read_are_named(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(StoreError, match=what):
        saved(path)
