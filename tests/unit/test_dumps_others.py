"""Programs that few have installed, as they really printed: atop, collectl, busybox's top, free, netstat."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.base.errors import StoreError
from headrace.hunt.dumps.kinds import KINDS
from headrace.hunt.dumps.piece import Numbered, Piece, Rates, Said, Unread
from headrace.hunt.hunt import examine, saved


def read(text: str) -> list[Piece]:
    return [piece for kind in KINDS for piece in kind.read(text)]


def rates(text: str, sampler: str) -> list[Rates]:
    return [piece for piece in read(text) if isinstance(piece, Rates) and piece.sampler == sampler]


#: Of atop 2.8.1 -P; its first sample is since the boot.
ATOP = """RESET
CPU db1 1795985597 2026/11/29 20:53:17 2922 100 2 60933 276440 199801 44239 718 0 946 603 0 4598 100 0 0
DSK db1 1795985597 2026/11/29 20:53:17 2922 vda 108080 664582 23743572 416507 44572944 123047 57185624 0 8.09
SEP
CPU db1 1795985599 2026/11/29 20:53:19 2 100 2 64 233 103 0 0 0 1 0 0 4598 100 0 0
cpu db1 1795985599 2026/11/29 20:53:19 2 100 0 11 151 39 0 0 0 0 0 0 2299 100 0 0
cpu db1 1795985599 2026/11/29 20:53:19 2 100 1 53 83 64 0 0 0 1 0 0 2299 100 0 0
CPL db1 1795985599 2026/11/29 20:53:19 2 2 13.14 13.75 11.82 6918 1844
MEM db1 1795985599 2026/11/29 20:53:19 2 4096 6171023 3562213 1395252 20855 142705 5490 127707 0 3477 0 0 2097152 0 0
SWP db1 1795985599 2026/11/29 20:53:19 2 4096 1000 900 0 3027172 3085511 0 0 0
PAG db1 1795985599 2026/11/29 20:53:19 2 4096 0 0 0 16 4 0 0 0 0 8 1
PSI db1 1795985599 2026/11/29 20:53:19 2 y 98.2 98.1 97.5 2003827 0.0 0.0 0.0 0 0.0 0.0 0.0 0 0.9 3.0 4.2 4501 0.0 0.0 0.0 7
DSK db1 1795985599 2026/11/29 20:53:19 2 vda 16 7 64 25 8 1 8 0 1.06
NET db1 1795985599 2026/11/29 20:53:19 2 upper 129 133 0 0 129 130 129 0 0 0 1 2 2 3 0 0
NET db1 1795985599 2026/11/29 20:53:19 2 eth0 46 14558 22 2261 0 0
SEP
"""  # noqa: E501


def test_atop_prints_what_each_interval_counted() -> None:
    (cpu,) = rates(ATOP, "cpu")
    assert (cpu.seconds, cpu.at_s) == (2, 1_795_985_599)
    assert cpu.per_second["user"] == {"all": 116.5, "cpu0": 75.5, "cpu1": 41.5}
    assert cpu.per_second["nice"]["cpu1"] == 32
    assert cpu.per_second["ctxt"] == {"": 3459}
    (disk,) = rates(ATOP, "disk")
    assert disk.per_second == {
        "io_ms": {"vda": 8},
        "reads": {"vda": 3.5},
        "sectors_read": {"vda": 32},
        "writes": {"vda": 12.5},
        "sectors_written": {"vda": 4},
        "weighted_io_ms": {"vda": pytest.approx(8.48)},
    }
    assert rates(ATOP, "psi")[0].per_second["some_total_us"] == {
        "cpu": 1_001_913.5,
        "memory": 0,
        "io": 2250.5,
    }
    assert rates(ATOP, "psi")[0].per_second["full_total_us"]["io"] == 3.5
    assert rates(ATOP, "vmstat")[0].per_second == {"pswpin": {"": 8}, "pswpout": {"": 2}}
    assert rates(ATOP, "snmp")[0].per_second["Tcp.RetransSegs"] == {"": 1.5}
    assert rates(ATOP, "network")[0].per_second["tx_bytes"] == {"eth0": 1130.5}
    memory = rates(ATOP, "memory")[0].gauges
    assert (memory["MemTotal"][""], memory["SwapFree"][""]) == (6_171_023 * 4096, 900 * 4096)


def test_what_atop_counted_since_the_boot_is_not_used() -> None:
    first = ATOP[: ATOP.index("SEP\n") + 4]
    found = read(first)
    assert not [piece for piece in found if isinstance(piece, Rates)]
    assert any(isinstance(piece, Said) and "since the boot" in piece.text for piece in found)
    # Cut off anywhere, a line's number is whole or left out.
    for end in range(len(first), len(ATOP), 37):
        for piece in rates(ATOP[:end], "disk"):
            assert piece.per_second == rates(ATOP, "disk")[0].per_second


def test_a_disk_whose_queue_alone_is_known_has_the_time_of_requests_by_it(tmp_path: Path) -> None:
    path = tmp_path / "atop.txt"
    path.write_text(ATOP)
    uses = {use.name: use for use in examine(saved(path)).verdict.uses}
    assert uses["block vda"].saturation == "0.0 requests in flight, 0.53 ms per request"
    assert uses["memory"].saturation == "8 pages/s swapped in, 2 out; available memory was not reported"


#: Of collectl 4.3.1 -P -scCDN, shortened.
COLLECTL = """waiting for 2 second sample...
#Date Time [CPU]User% [CPU]Nice% [CPU]Sys% [CPU]Wait% [CPU]Irq% [CPU]Soft% [CPU]Steal% [CPU]Idle% [CPU]Totl% \
[CPU]Ctx/sec [CPU]RunTot [CPU]BlkTot [MEM]Tot [MEM]Free [CPU:0]User% [CPU:0]Sys% [CPU:0]Idle% [DSK]ReadTot \
[DSK:vda]Name [DSK:vda]Reads [DSK:vda]RKBytes [DSK:vda]WaitR [DSK:vda]Writes [DSK:vda]WKBytes [DSK:vda]QueLen \
[DSK:vda]Util [NET:eth0]Name [NET:eth0]RxPkt [NET:eth0]RxKB
20261129 23:59:58 1 1 1 0 0 0 0 97 3 9 1 0 1000 500 1 1 98 3 vda 1 1 0 1 1 0 1 eth0 1 1
20261130 00:00:00 53 22 25 0 0 0 0 0 100 4502 10 2 1000 400 60 40 0 34 vda 34 270 0 610 2262 4 47 eth0 12 18
20261130 00:00:02 53 22 25 0 0 0 0 0 100 4502 10 2 1000 400 60 40 0 34 vda 34 270 0 610 2262 4 47 eth0 12 18
"""


@pytest.mark.parametrize("mark", [" ", ",", ";"])
def test_collectl_names_its_columns(mark: str) -> None:
    text = "\n".join(
        line if line.startswith("waiting") else line.replace(" ", mark) for line in COLLECTL.splitlines()
    )
    cpu, disk = rates(f"{text}\n", "cpu"), rates(f"{text}\n", "disk")
    assert [piece.seconds for piece in cpu] == [2, 2]
    assert cpu[0].per_second["nice"]["all"] == 22
    assert cpu[0].per_second["system"]["cpu0"] == 40
    assert cpu[0].gauges["procs_running"] == {"": 10}
    assert disk[0].per_second == {
        "reads": {"vda": 34}, "sectors_read": {"vda": 540}, "writes": {"vda": 610},
        "sectors_written": {"vda": 4524}, "weighted_io_ms": {"vda": 4000}, "io_ms": {"vda": 470},
    }  # fmt: skip
    assert rates(f"{text}\n", "memory")[0].gauges["MemTotal"] == {"": 1000 * 1024}
    assert rates(f"{text}\n", "network")[0].per_second["rx_bytes"] == {"eth0": 18 * 1024}


BUSYBOX = """Mem: 10395652K used, 14288440K free, 13908K shrd, 81324K buff, 5566360K cached
CPU:  54% usr  22% sys  12% nic  10% idle   1% io   0% irq   1% sirq
Load average: 13.14 13.75 11.82 9/318 19564
  PID  PPID USER     STAT   VSZ %VSZ %CPU COMMAND
19507 19506 root     R    36108   0%  14% /usr/sbin/mysqld
"""


def test_pages_of_busybox_s_top_have_the_cpus_and_tasks() -> None:
    cpu = rates(3 * BUSYBOX, "cpu")
    assert len(cpu) == 2
    assert cpu[0].per_second["idle"] == {"all": 10}
    assert cpu[0].gauges["procs_running"] == {"": 9}
    assert rates(BUSYBOX, "cpu") == []
    (memory,) = rates(BUSYBOX, "memory")
    assert memory.gauges["MemTotal"] == {"": 1024.0 * (10_395_652 + 14_288_440)}


FREE = {
    "KiB": "Mem:        24684092     4607760    14206652       13908     6224104    20076332\nSwap: 10 0 10\n",
    "for people": "Mem:            23Gi       4.4Gi        13Gi    13Mi    5.9Gi     19Gi\nSwap: 1Gi 0B 1Gi\n",
    "MiB": "Mem:           24105        4499       13873          13        6078       19605\nSwap: 0 0 0\n",
}
TITLE = "               total        used        free      shared  buff/cache   available\n"


def test_free_is_read_where_its_unit_is_known(tmp_path: Path) -> None:
    (kib,), (people,), (mib,) = (read(TITLE + FREE[name]) for name in ("KiB", "for people", "MiB"))
    assert isinstance(kib, Numbered)
    assert isinstance(people, Numbered)
    assert kib.numbers["MemAvailable"] == {"": 20_076_332 * 1024}
    assert people.numbers["MemAvailable"] == {"": 19 * 2**30}
    assert people.numbers["SwapTotal"] == {"": 2**30}
    assert isinstance(mib, Unread)
    path = tmp_path / "free.txt"
    path.write_text(TITLE + FREE["KiB"])
    (use,) = [use for use in examine(saved(path)).verdict.uses if use.resource == "memory"]
    assert use.load == "at least 19.1 GiB of 23.5 GiB available"


NETSTAT = """Ip:
    Forwarding: 2
Tcp:
    {opened} active connection openings
    8019 passive connection openings
    {received} segments received
    {sent} segments sent out
    {again} segments retransmitted
    0 bad segments received
TcpExt:
    1269 delayed acks sent
    {overflows} times the listen queue of a socket overflowed
    TCPTimeouts: {again}
IpExt:
    InOctets: 9
"""


def test_netstat_with_times_has_the_counters_of_tcp(tmp_path: Path) -> None:
    pages = [
        NETSTAT.format(
            opened=9000 + n, received=10**6, sent=10**6 + 40_000 * n, again=100 + 4_000 * n, overflows=50 * n
        )
        for n in range(3)
    ]
    path = tmp_path / "netstat_s"
    path.write_text("".join(f"TS {1764346200 + 10 * n} 2026\n{page}" for n, page in enumerate(pages)))
    (use,) = [use for use in examine(saved(path)).verdict.uses if use.resource == "tcp"]
    assert use.load == "4,000 segments/s sent"
    assert use.errors == (
        "10% of the segments lost and retransmitted; 5.0 connections/s refused: an accept queue was full"
    )
    path.write_text(pages[0])
    with pytest.raises(StoreError, match="netstat -s without its times"):
        saved(path)
    # Without its end the last section may lack what it has.
    (cut,) = read(f"TS 1764346200 x\n{pages[1][: pages[1].index('IpExt')]}")
    assert isinstance(cut, Numbered)
    assert "TcpExt.ListenOverflows" not in cut.numbers


def test_differences_of_nstat_are_no_counters() -> None:
    page = "TS {} x\n#kernel\nTcpOutSegs   {}   0.0\nTcpExtListenOverflows   {}   0.0\n"
    grown = read(page.format(1764346200, 100, 5) + page.format(1764346210, 900, 9))
    assert [piece.numbers["TcpExt.ListenOverflows"] for piece in grown if isinstance(piece, Numbered)] == [
        {"": 5},
        {"": 9},
    ]
    (said,) = read(page.format(1764346200, 100, 5) + page.format(1764346210, 90, 9))
    assert isinstance(said, Unread)
    assert "with differences" in said.why


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (" 12:00:01 up 3 days,  2:11,  1 user,  load average: 1.00, 2.00, 3.00\n", "uptime"),
        ("USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\n", "ps"),
        ("UID          PID    PPID  C STIME TTY          TIME CMD\n", "ps"),
        ("Total: 184\nTCP:   12 (estab 4, closed 3, orphaned 0, timewait 3)\n", "ss -s"),
        ("State  Recv-Q Send-Q Local Address:Port  Peer Address:Port\n", "ss"),
        ("#kernel\nTcpOutSegs    1099539     0.0\n", "nstat without its times"),
    ],
)
def test_what_rules_cannot_use_is_named(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(StoreError, match=what):
        saved(path)
