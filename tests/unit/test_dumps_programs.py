"""What programs print that few send: documents of clients, tables for people, pages of top, stacks of perf.

Each gives the numbers that it has, or says what it is and what to give instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from headrace.base.errors import StoreError
from headrace.host.stacks import parse, profile
from headrace.hunt.dumps.kinds import KINDS
from headrace.hunt.dumps.piece import Piece, Rates, Said, Stacks, Status, Threads, Unread, Variables
from headrace.hunt.dumps.tables import tables
from headrace.hunt.hunt import examine, saved
from headrace.hunt.resources import Level
from tests.commands import headrace

BANNER = "Linux 5.14.0-362.el9.x86_64 (db1) \t11/29/26 \t_x86_64_\t(2 CPU)\n\n"
#: One listing of the status, with names enough to be told from an example in a text.
STATUS = {f"Com_x{n}": str(n) for n in range(40)} | {
    "Uptime": "100",
    "Threads_running": "3",
    "Questions": "70",
}
ROWS = [{"Variable_name": name, "Value": value} for name, value in STATUS.items()]


def read(text: str) -> list[Piece]:
    return [piece for kind in KINDS for piece in kind.read(text)]


def rates(text: str, sampler: str) -> list[Rates]:
    return [piece for piece in read(text) if isinstance(piece, Rates) and piece.sampler == sampler]


def xml(rows: list[Mapping[str, str]]) -> str:
    fields = (
        "".join(f'\t<field name="{name}">{value}</field>\n' for name, value in row.items()) for row in rows
    )
    body = "\n".join(f"  <row>\n{each}  </row>" for each in fields)
    return f'<?xml version="1.0"?>\n\n<resultset statement="SHOW GLOBAL STATUS\n">\n{body}\n</resultset>\n'


def page(rows: list[Mapping[str, str]]) -> str:
    body = "".join(f"<TR><TD>{row['Variable_name']}</TD><TD>{row['Value']}</TD></TR>" for row in rows)
    return f"<TABLE BORDER=1><TR><TH>Variable_name</TH><TH>Value</TH></TR>{body}</TABLE>"


DOCUMENTS: dict[str, Callable[[], str]] = {
    "a list": lambda: json.dumps(ROWS, indent=1),
    "lines": lambda: "\n".join(json.dumps(row) for row in ROWS),
    "objects of mysqlsh": lambda: "\n".join(json.dumps(row, indent=4) for row in ROWS),
    "objects of mysqlsh in a terminal": lambda: (
        "\n".join(json.dumps(row, indent=4) for row in ROWS) + f"\n{len(ROWS)} rows in set (0.0012 sec)\n"
    ),
    "a list below its statement": lambda: json.dumps({"SHOW GLOBAL STATUS": ROWS}),
    "phpMyAdmin": lambda: json.dumps(
        [{"type": "header", "version": "5.2"}, {"type": "table", "name": "t", "data": ROWS}]
    ),
    "names and values": lambda: json.dumps(STATUS),
    "numbers": lambda: json.dumps({name: int(value) for name, value in STATUS.items()}),
    "XML": lambda: xml(list(ROWS)),
    "HTML": lambda: page(list(ROWS)),
}


@pytest.mark.parametrize("form", DOCUMENTS)
def test_a_document_of_a_client_is_the_listing_in_it(form: str) -> None:
    text = DOCUMENTS[form]()
    (status,) = read(text)
    assert isinstance(status, Status)
    assert status.values == {name.lower(): float(value) for name, value in STATUS.items()}
    for end in range(0, len(text) - 20, 97):
        for piece in read(text[:end]):
            assert isinstance(piece, Status | Said)
            assert isinstance(piece, Said) or piece.values.items() <= status.values.items()


def test_a_process_list_in_json_is_one() -> None:
    row = {"Id": 7, "User": "app", "Host": "h:1", "db": None, "Command": "Query", "Time": 3, "State": "Sending",
           "Info": "SELECT '} {'"}  # fmt: skip
    (found,) = read(json.dumps([row, {**row, "Id": 8}]))
    assert isinstance(found, Threads)
    assert [each["id"] for each in found.rows] == ["7", "8"]
    assert found.rows[0]["info"] == row["Info"]
    assert found.rows[0]["db"] == "NULL"


def test_null_in_xml_is_that_of_other_listings() -> None:
    names = ("Id", "User", "Host", "db", "Command", "Time", "State", "Info")
    fields = "".join(
        f'\t<field name="{name}" xsi:nil="true" />\n'
        if name == "db"
        else f'\t<field name="{name}">7</field>\n'
        for name in names
    )
    (found,) = read(
        f'<?xml version="1.0"?>\n<resultset statement="x">\n <row>\n{fields} </row>\n</resultset>\n'
    )
    assert isinstance(found, Threads)
    assert (found.rows[0]["db"], found.rows[0]["id"]) == ("NULL", "7")


def test_a_value_that_ends_in_a_line_break_ends_no_listing() -> None:
    """The public key of caching_sha2_password, in the middle of SHOW GLOBAL STATUS by \\G."""
    stars = "*" * 27
    text = "".join(
        f"{stars} {number}. row {stars}\nVariable_name: {row['Variable_name']}\n        Value: {row['Value']}\n"
        for number, row in enumerate(ROWS, 1)
    ).replace("Value: 9\n", "Value: -----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n\n")
    (table,) = tables(text, lambda columns: "variable_name" in columns)
    assert len(table.rows) == len(ROWS)
    # A blank line before another listing is its end.
    assert len(tables(text + "\n" + text, lambda columns: "variable_name" in columns)) == 2


def test_vmstat_with_active_memory_has_its_columns_where_they_are() -> None:
    text = (
        "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n"
        " r  b   swpd   free  inact active   si   so    bi    bo   in   cs us sy id wa st\n"
        "15  0      0 13013140 5955184 4363600    0    0  2807  9092 1168 4310 54 12 33  1  0\n"
        " 6  0      0 13013140 5955184 4363600    8    4   136 157832 11174 31483 76 20  0  4  0\n"
    )
    (swap,) = rates(text, "vmstat")
    assert swap.per_second == {"pswpin": {"": 2.0}, "pswpout": {"": 1.0}}
    (cpu,) = rates(text, "cpu")
    assert cpu.per_second["user"]["all"] == pytest.approx(76)


@pytest.mark.parametrize(
    ("memory", "stamped"),
    [("frei  Puff  Cache", ""), ("libre tampon  cache", ""), ("libre búf caché", " CET")],
)
def test_columns_of_vmstat_in_another_language_are_in_their_places(memory: str, stamped: str) -> None:
    text = (
        "procs -----------Speicher---------- ---Swap-- -----E/A---- -System-- ------CPU-----\n"
        f" r  b   swpd   {memory}   si   so    bi    bo   in   cs us sy id wa st{stamped}\n"
        + "14  0      0 14391328 163844 8278848    0    0  1334  4833  499 1455 83 11  6  0  0\n"
        * 3
    )
    (swap, _) = rates(text, "vmstat")
    assert swap.per_second == {"pswpin": {"": 0.0}, "pswpout": {"": 0.0}}
    assert rates(text, "cpu")[0].per_second["user"]["all"] == pytest.approx(83)
    assert rates(text, "memory")[0].gauges["MemFree"] == {"": 14391328 * 1024.0}


CPU = "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n"
DEVICES = {
    "-x -h": "     r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz Device\n"
    "  100.00      5.0M     0.00   0.0%    2.00    12.7k vda\n\n"
    "     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz Device\n"
    "   50.00    800.0k     0.00   7.1%    0.27    24.1k vda\n\n"
    "     f/s f_await  aqu-sz  %util Device\n    1.76    0.56    0.50  40.0% vda\n",
    "-x": "Device  r/s  rkB/s  rrqm/s  %rrqm r_await rareq-sz  w/s  wkB/s  w_await  aqu-sz  %util\n"
    "vda  100.00  5120.00  0.00  0.00  2.00  12.70  50.00  800.00  0.27  0.50  40.00\n",
}


@pytest.mark.parametrize("options", DEVICES)
def test_iostat_for_people_has_the_same_numbers(options: str) -> None:
    unit = "%" if "-h" in options else ""
    report = (
        f"{CPU}   60.0{unit} 0.0{unit} 20.0{unit} 5.0{unit} 0.0{unit} 15.0{unit}\n\n{DEVICES[options]}\n\n"
    )
    text = BANNER + 3 * report
    disks, cpus = rates(text, "disk"), rates(text, "cpu")
    assert len(disks) == len(cpus) == 2
    assert disks[0].per_second["sectors_read"]["vda"] == pytest.approx(10_240)
    assert disks[0].per_second["reads"]["vda"] == 100
    assert disks[0].per_second["read_ms"]["vda"] == pytest.approx(200)
    assert disks[0].per_second["writes"]["vda"] == 50
    assert disks[0].per_second["io_ms"]["vda"] == pytest.approx(400)
    assert cpus[1].per_second["user"]["all"] == pytest.approx(60)


def test_short_rows_of_iostat_tell_how_much_and_not_which_way() -> None:
    title = "Device             tps      kB/s    rqm/s   await  areq-sz  aqu-sz  %util\n"
    text = BANNER + 3 * f"{title}sda  500.00  8000.00  4.00  90.00  16.00  45.00  100.00\n\n"
    disks = rates(text, "disk")
    assert disks[0].per_second["sectors"]["sda"] == 16_000
    assert not {"sectors_read", "sectors_written"} & set(disks[0].per_second)


@pytest.mark.parametrize("clock", ["{}:{}:{}", "{}時{}分{}秒", "{}时{}分{}秒", "{}시 {}분 {}초"])
def test_a_clock_may_be_in_words(clock: str) -> None:
    columns = "CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle"
    text = BANNER
    for second in (1, 11, 21):
        before, at = (clock.format("12", "00", f"{each:02d}") for each in (second, second + 10))
        text += f"{before}  {columns}\n{at}  all  5.00 0.00 3.00 0.00 0.00 2.00 0.00 0.00 0.00 90.00\n\n"
    assert rates(text, "cpu")[-1].per_second["user"]["all"] == pytest.approx(5)


def test_iostat_without_x_has_rates_and_no_use() -> None:
    report = f"{CPU}   60.00 0.00 20.00 5.00 0.00 15.00\n\n" + (
        "Device             tps    kB_read/s    kB_wrtn/s    kB_read    kB_wrtn\n"
        "vda            300.00       100.00       200.00        100        200\n\n\n"
    )
    (disk,) = rates(BANNER + 2 * report, "disk")
    assert disk.per_second == {
        "requests": {"vda": 300},
        "sectors_read": {"vda": 200},
        "sectors_written": {"vda": 400},
    }
    assert rates(BANNER + 2 * report, "cpu")


@pytest.mark.parametrize("form", ["text", "JSON"])
def test_requests_whose_time_nobody_printed_leave_the_disk_unknown(tmp_path: Path, form: str) -> None:
    row = {"tps": 300.0, "kB_read/s": 100.0, "kB_wrtn/s": 200.0}
    cells = " ".join(f"{value}" for value in row.values())
    table = f"{CPU}   10.00 0.00 20.00 5.00 0.00 65.00\n\nDevice {' '.join(row)}\nvda {cells}\n\n"
    report = {
        "avg-cpu": {"user": 10.0, "system": 20.0, "idle": 70.0},
        "disk": [{"disk_device": "vda", **row}],
    }
    path = tmp_path / "iostat"
    path.write_text(BANNER + 3 * table if form == "text" else sysstat(report, report, report))
    hunt = examine(saved(path))
    (disk,) = [use for use in hunt.verdict.uses if use.resource == "block"]
    assert (disk.level, disk.instance) == (Level.UNKNOWN, "vda")
    assert "300 requests/s" in disk.load
    assert "iostat -x" in disk.saturation
    assert "block vda" in hunt.verdict.sentence.split("Not known")[1]


def test_mpstat_by_numa_node_has_the_load_of_all_cpus_and_says_that_of_single_ones_is_unknown() -> None:
    title = "    NODE    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle"
    cells = "   70.00    0.00   20.00    0.00    0.00    0.00    0.00    0.00    0.00   10.00"
    report = f"10:00:00{title}\n10:00:01     all{cells}\n10:00:01       0{cells}\n10:00:01       1{cells}\n\n"
    (cpu,) = rates(f"{BANNER}\n{report}", "cpu")
    assert cpu.per_second["idle"] == {"all": pytest.approx(10)}
    assert any(isinstance(each, Said) and "single CPUs is unknown" in each.text for each in read(report))
    # Beside the table of CPUs the one of nodes says nothing new.
    both = f"{BANNER}\n{report}{report.replace('NODE', 'CPU')}"
    (cpu,) = rates(both, "cpu")
    assert set(cpu.per_second["idle"]) == {"all", "cpu0", "cpu1"}


def sysstat(*statistics: Mapping[str, object]) -> str:
    host = {"nodename": "db1", "number-of-cpus": 2, "date": "11/29/26", "statistics": statistics}
    return json.dumps({"sysstat": {"hosts": [host]}})


def test_mpstat_and_iostat_in_json_are_read() -> None:
    def cpu(name: str, idle: float) -> dict[str, object]:
        return {
            "cpu": name,
            "usr": 90 - idle,
            "nice": 0.0,
            "sys": 10.0,
            "iowait": 0.0,
            "irq": 0.0,
            "idle": idle,
        }

    each = [cpu("all", 5.0), cpu("0", 10.0), cpu("1", 0.0)]
    of_cpus = rates(
        sysstat(
            {"timestamp": "23:59:55", "cpu-load": each},
            {"timestamp": "00:00:05", "cpu-load": each},
        ),
        "cpu",
    )
    assert [piece.seconds for piece in of_cpus] == [10, 10]
    assert of_cpus[0].per_second["idle"] == {"all": pytest.approx(10), "cpu0": 10, "cpu1": 0}
    disk = {"disk_device": "vda", "r/s": 100.0, "rkB/s": 5120.0, "r_await": 2.0, "aqu-sz": 0.5, "util": 40.0}
    idle = {"user": 1.0, "nice": 0.0, "system": 1.0, "iowait": 0.0, "steal": 0.0, "idle": 98.0}
    report = {"avg-cpu": idle, "disk": [disk]}
    (of_disk,) = rates(
        sysstat({"timestamp": "11/29/26 12:00:00", **report}, {"timestamp": "11/29/26 12:00:10", **report}),
        "disk",
    )
    assert (of_disk.seconds, of_disk.per_second["io_ms"]["vda"]) == (10, 400)
    assert any(isinstance(piece, Said) for piece in read(sysstat(report)))


TOP = """top - {clock} up 12:00,  0 user,  load average: 3.53, 4.11, 3.94
Tasks: 162 total,   {running} running, 160 sleeping,   0 stopped,   0 zombie
%Cpu(s): {us} us, 10.0 sy,  0.0 ni,{id} id,  0.0 wa,  0.0 hi,  0.0 si,  0.0 st
MiB Mem :  24000.0 total,  12000.0 free,   2276.3 used,   9497.8 buff/cache
MiB Swap:   1024.0 total,   1000.0 free,      0.0 used.  21829.3 avail Mem

  PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND
11899 mysql     39  19 8193.4g 337856  23980 S  81.2   1.4   0:04.27 mariadbd

"""


@pytest.mark.parametrize("point", [".", ","])
def test_pages_of_top_are_cpus_and_memory_and_the_first_is_none(point: str) -> None:
    pages = [TOP.format(clock="23:59:58", running=9, us=" 1.0", id="89.0")]
    pages += [TOP.format(clock=clock, running=4, us="80.0", id="10.0") for clock in ("00:00:03", "00:00:08")]
    text = "".join(pages).replace(".0 ", f"{point}0 ")
    cpu, memory = rates(text, "cpu"), rates(text, "memory")
    assert [piece.seconds for piece in cpu] == [5, 5]
    assert cpu[0].per_second["user"]["all"] == pytest.approx(80)
    assert cpu[0].gauges["procs_running"][""] == 4
    assert memory[0].gauges["MemTotal"][""] == 24_000 * 2**20
    assert memory[0].gauges["MemAvailable"][""] == pytest.approx(21_829.3 * 2**20)
    assert rates(pages[0], "cpu") == []


#: What ``top -b -1`` prints into a window of 200 columns.
BESIDE = """top - {} up 12:00,  0 user,  load average: 3.53, 4.11, 3.94
Tasks: 162 total,   9 running, 160 sleeping,   0 stopped,   0 zombie
%Cpu0  :  0.0 us,100.0 sy,  0.0 ni,  0.0 id,  0.0 wa,  0.0 hi,  0.0 si,  0.0 st   %Cpu1  : 10.0 us,  0.0 sy,  0.0 ni, 90.0 id,  0.0 wa,  0.0 hi,  0.0 si,  0.0 st
MiB Mem :  24105.6 total,  19901.5 free,   1724.4 used,   2797.2 buff/cache       MiB Swap:   1024.0 total,   1000.0 free,      0.0 used.  22381.1 avail Mem

"""  # noqa: E501


@pytest.mark.parametrize("width", [80, 100, 150, 200])
def test_cpus_side_by_side_are_all_of_them_or_none(width: int) -> None:
    pages = "".join(BESIDE.format(f"12:00:0{second}") for second in range(3))
    found = read("".join(f"{line[:width]}\n" for line in pages.splitlines()))
    cpu = [piece for piece in found if isinstance(piece, Rates) and piece.sampler == "cpu"]
    if width < 200:
        assert not cpu
        assert any(isinstance(piece, Said) and "top -b -w 512" in piece.text for piece in found)
        return
    assert cpu[0].per_second["idle"] == {"all": pytest.approx(90), "cpu0": 0, "cpu1": pytest.approx(90)}
    (memory, _) = [piece for piece in found if isinstance(piece, Rates) and piece.sampler == "memory"]
    assert memory.gauges["SwapFree"][""] == 1000 * 2**20
    assert memory.gauges["MemTotal"][""] == pytest.approx(24_105.6 * 2**20)


def test_stacks_of_perf_script_are_a_profile(tmp_path: Path) -> None:
    sample = (
        "mariadbd 11899/12001 [001] 43570.943418:   10101010 cpu-clock:ppp: \n"
        "\t           1812c row_search_mvcc+0x1cc (/usr/sbin/mariadbd)\n"
        "\t           11e12 handler::ha_rnd_next(unsigned char*)+0x182 (/usr/sbin/mariadbd)\n\n"
        "conn thread 1 17706 43570.945107: cycles: \n"
        "\tffffffff8100 copy_user+0x24 ([kernel.kallsyms])\n"
        "\t    7f1c8f66 [unknown] ([unknown])\n\n"
    )
    (piece,) = read(sample)
    assert isinstance(piece, Stacks)
    assert parse(piece.folded) == {
        ("mariadbd", "handler::ha_rnd_next(unsigned char*)", "row_search_mvcc"): 1,
        ("conn thread 1", "[unknown]", "copy_user_[k]"): 1,
    }
    assert profile(parse(piece.folded)).kernel_share == 0.5
    # The last stack lacks its outer frames.
    (cut,) = read(sample[: sample.index("\t    7f1c8f66")])
    assert isinstance(cut, Stacks)
    assert list(parse(cut.folded)) == [
        ("mariadbd", "handler::ha_rnd_next(unsigned char*)", "row_search_mvcc")
    ]
    path = tmp_path / "perf.txt"
    path.write_text(sample)
    snapshot = saved(path)
    assert snapshot.stacks == piece.folded
    assert "unknown" in examine(snapshot).verdict.sentence


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("12:00:01      UID       PID    %usr %system  %CPU   CPU  Command\n", "pidstat"),
        ("# hostname;interval;timestamp;CPU;%user\ndb1;1;2026-11-29 12:00:00 UTC;-1;3\n", "sadf -d"),
        ("db1\t1\t2026-11-29 15:53:59 UTC\tall\t%user\t0.00\n", "sadf -p"),
        ('<?xml version="1.0"?>\n<sysstat xmlns="x">\n', "sadf -x"),
        ("disk- ------------reads------------ ------------writes----------- -----IO------\n", "vmstat -d"),
        ("Disk- ------------Lesen------------ ----------Schreiben---------- ------EA------\n", "vmstat -d"),
        ("disque- ----------lectures---------- ----------écritures---------- -----E/S-----\n", "vmstat -d"),
        ("               total        used        free      shared  buff/cache   available\n", "free"),
        ("EVENT_NAME,COUNT_STAR,SUM_TIMER_WAIT\nwait/io/file/sql,1,2\n", "performance_schema"),
    ],
)
def test_what_is_known_and_not_read_is_named(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(StoreError, match=what):
        saved(path)


def test_process_lists_alone_are_a_verdict_on_sessions(tmp_path: Path) -> None:
    head = "Id\tUser\tHost\tdb\tCommand\tTime\tState\tInfo\n"
    row = "{}\tapp\th:1\tshop\tQuery\t3\tWaiting for table metadata lock\tSELECT 1 FROM t WHERE id = {}\n"
    for number in (1, 2):
        (tmp_path / f"p{number}.txt").write_text(head + "".join(row.format(n, n) for n in range(7, 10)))
    found = examine(saved(tmp_path))
    assert found.verdict.sentence.startswith(
        "3.0 sessions are active on average: 3.0 wait for metadata locks"
    )
    assert "the dump has nothing of its host" in found.verdict.sentence


def test_a_status_of_innodb_alone_says_what_transactions_there_are(tmp_path: Path) -> None:
    title = "2026-11-29 12:00:0{} 0x7f1 INNODB MONITOR OUTPUT\n"
    body = (
        "------------\nTRANSACTIONS\n------------\nTrx id counter 9\nHistory list length 12\n"
        "---TRANSACTION 7, ACTIVE 90 sec\nLOCK WAIT 2 lock struct(s)\n---TRANSACTION 8, ACTIVE 2 sec\n"
        "--------\nFILE I/O\n--------\n"
    )
    for number in (1, 2):
        (tmp_path / f"i{number}.txt").write_text(title.format(number) + body)
    said = examine(saved(tmp_path)).verdict.sentence
    assert "InnoDB has 2.0 transactions open, 1.0 of them wait for row locks" in said
    assert "the oldest was open for 90 s; 12 old row versions wait for purge." in said


def test_one_process_list_was_read_and_is_no_average(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(
        "Id\tUser\tHost\tdb\tCommand\tTime\tState\tInfo\n7\tapp\tweb\tshop\tQuery\t3\tSending data\tselect 1\n"
    )
    hunt = examine(saved(tmp_path))
    assert "1 process list says too little of an average: several tell" in hunt.verdict.sentence
    assert "was not read" not in hunt.verdict.sentence
    assert "only the host was examined" not in headrace("hunt", "--from", str(tmp_path)).stdout


def test_variables_in_json_are_settings() -> None:
    names = {f"innodb_flush_x{n}": "ON" for n in range(40)} | {
        "version": "8.0.39",
        "datadir": "/d/",
        "port": "3306",
    }
    (found,) = read(
        json.dumps([{"VARIABLE_NAME": name, "VARIABLE_VALUE": value} for name, value in names.items()])
    )
    assert isinstance(found, Variables)
    assert found.values["version"] == "8.0.39"


def test_a_document_too_deep_or_of_other_things_is_nothing() -> None:
    for text in ("[" * 90 + "]" * 90, '{"a": [1, 2, {"b": null}]}', "[]", "{", "<TABLE></TABLE>", "<?xml?>"):
        assert tables(text, lambda columns: "variable_name" in columns) == []


CPUS = """avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           1.50    0.00    0.50    3.00    0.00   95.00

"""
DISKS = """Device            r/s     rkB/s     w/s     wkB/s r_await w_await  aqu-sz  %util
sda             20.00    320.00   80.00    640.00    2.00    6.00    0.50  10.00

"""
VMSTAT = """procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----
 r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st
 1  0      0 114731 165880 956628    0    0    88   177 1876 7701 71 16 12  1  0
 2  1      0 114731 165880 956628    0    0   199   146 1284 4162 60 40  0  0  0
"""
SAR = """10:00:01 AM     CPU     %user     %nice   %system   %iowait    %steal     %idle
10:10:01 AM     all     10.00      0.00      5.00      0.00      0.00     85.00
Average:        all     10.00      0.00      5.00      0.00      0.00     85.00

10:00:01 AM     DEV       tps     rkB/s     wkB/s   areq-sz    aqu-sz     await     %util
10:10:01 AM     sda    100.00    320.00    640.00     16.00      0.50      5.00     10.00
Average:        sda    100.00    320.00    640.00     16.00      0.50      5.00     10.00

"""


def of_disks(text: str) -> list[tuple[float, float, float | None]]:
    """Writes per second and their time, and the length of each interval."""
    found = rates(text, "disk")
    return [
        (each.per_second["writes"]["sda"], each.per_second["write_ms"]["sda"], each.seconds) for each in found
    ]


@pytest.mark.parametrize(
    ("stamps", "seconds"),
    [
        (("29.11.2026 23:59:55", "30.11.2026 00:00:05"), 10.0),
        (("11/29/2026 11:59:55 PM", "11/30/2026 12:00:05 AM"), 10.0),
        (("2026年11月29日 10時00分00秒", "2026年11月29日 10時00分10秒"), 10.0),
    ],
)
def test_intervals_of_iostat_in_any_form_of_date(stamps: tuple[str, str], seconds: float) -> None:
    text = BANNER + "".join(f"{stamp}\n{DISKS}" for stamp in stamps)
    assert of_disks(text) == [(80.0, 480.0, seconds)]


def test_sizes_for_people_with_a_comma_are_sizes() -> None:
    table = (CPUS + DISKS).replace("320.00", "1.5M").replace("95.00", "95.0%")
    table = re.sub(r"(?<=\d)\.(?=\d)", ",", table)
    (disks,) = rates(BANNER + table + table, "disk")
    assert disks.per_second["sectors_read"]["sda"] == 2 * 1.5 * 1024
    (cpu,) = rates(BANNER + table + table, "cpu")
    assert cpu.per_second["idle"]["all"] == 95.0


def test_several_runs_in_one_file_begin_with_averages_since_the_boot_each() -> None:
    text = BANNER + DISKS + DISKS + BANNER + DISKS.replace(" 80.00", "999.00") + DISKS
    assert [writes for writes, _, _ in of_disks(text)] == [80.0, 80.0]
    twice = rates(VMSTAT + VMSTAT, "cpu")
    assert [each.per_second["user"]["all"] for each in twice] == [60.0, 60.0]
    # On a screen it repeats its title.
    lines = VMSTAT.splitlines(keepends=True)
    screen = "".join([*lines[:3], *lines[3:] * 20])
    assert len(rates(screen + screen.replace(lines[2], ""), "cpu")) == 40


def test_a_last_number_that_was_cut_off_is_no_number() -> None:
    text = BANNER + DISKS + DISKS + DISKS
    assert len(of_disks(text.rstrip()[:-3])) == 1


@pytest.mark.parametrize("stamp", ["2026-11-29 10:00:0{} ", "[179600000{}] "])
def test_lines_with_their_time_before_them_are_the_lines(stamp: str) -> None:
    lines = (f"{stamp.format(number)}{line}\n" for number, line in enumerate(VMSTAT.splitlines()))
    (cpu,) = rates("".join(lines), "cpu")
    assert (cpu.per_second["user"]["all"], cpu.seconds) == (60.0, 1.0)


@pytest.mark.parametrize("half", ["AM", "am", "a. m.", "a.m.", "a.\xa0m."])
def test_halves_of_the_day_in_any_form(half: str) -> None:
    (cpu,) = rates(BANNER + SAR.replace("AM", half), "cpu")
    assert cpu.seconds == 600.0


def test_disks_of_sar_say_nothing_of_iostat() -> None:
    assert [piece for piece in read(BANNER + SAR) if isinstance(piece, Said)] == []
    found = rates(BANNER + SAR + BANNER.replace("29/26", "30/26") + SAR, "cpu")
    assert [each.seconds for each in found] == [600.0, 600.0]
    assert found[1].at_s is not None
    assert found[0].at_s is not None
    assert found[1].at_s - found[0].at_s == 86_400.0


def test_pages_of_top_in_another_language_are_read() -> None:
    page = """top - 22:29:1{} up  7:55,  0 user,  load average: 15,95, 15,08, 13,29
Tasks: 194 total,   4 running, 187 sleeping,   0 stopped,   3 zombie
%CPU(s): 59,3 us, 33,3 sy,  0,0 ni,  0,0 id,  0,0 wa,  0,0 hi,  7,4 si,  0,0 st
MiB Spch:  24105,6 total,  11289,3 free,   3710,9 used,   9506,0 buff/cache
MiB Swap:    100,0 total,    100,0 free,      0,0 used.  20394,7 avail Spch
"""
    text = page.format(4) + page.format(5)
    (cpu,) = rates(text, "cpu")
    assert cpu.per_second["user"]["all"] == pytest.approx(59.3)
    (memory,) = rates(text, "memory")
    assert memory.gauges["MemTotal"][""] == pytest.approx(24105.6 * (1 << 20))
    assert memory.gauges["MemAvailable"][""] == pytest.approx(20394.7 * (1 << 20))
    assert memory.gauges["SwapFree"][""] == pytest.approx(100 * (1 << 20))


def test_full_cpus_whose_number_is_unknown_have_a_queue_of_what_was_runnable(tmp_path: Path) -> None:
    path = tmp_path / "vmstat"
    path.write_text(VMSTAT + VMSTAT.splitlines()[-1] + "\n")
    sentence = examine(saved(path)).verdict.sentence
    assert "2.0 tasks were runnable, and nproc or /proc/cpuinfo tells on how many CPUs." in sentence


SAMPLE = """mysqld  1322/1401  [003] 1234.567890:   10101010 {}
            55d0c0ffee00 row_search_mvcc+0x10 (/usr/sbin/mysqld)
            7f00deadbeef start_thread+0x30 (/usr/lib/x86_64-linux-gnu/libc.so.6)

"""


@pytest.mark.parametrize(
    "event", ["cpu-clock:pppH:", "cycles:P:", "cycles:", "cpu_core/cycles/:", "task-clock:u:"]
)
def test_stacks_of_cpu_time_are_read(event: str) -> None:
    (stacks,) = read(SAMPLE.format(event))
    assert isinstance(stacks, Stacks)
    assert stacks.folded == "mysqld;start_thread;row_search_mvcc 1\n"


@pytest.mark.parametrize(
    "event", ["sched:sched_switch: prev_comm=mysqld prev_pid=1", "page-faults:u:", "cache-misses:"]
)
def test_stacks_of_other_events_are_no_cpu_time(event: str) -> None:
    (unread,) = read(SAMPLE.format(event))
    assert isinstance(unread, Unread)
    assert "which are not of CPU time; perf record -F 99 -g" in unread.why
    stacks, said = read(SAMPLE.format("cycles:") + SAMPLE.format(event))
    assert isinstance(stacks, Stacks)
    assert isinstance(said, Said)


def test_metrics_that_only_begin_like_those_of_mysqld_exporter_are_another_ones() -> None:
    (unread,) = read('# TYPE mysql_threads gauge\nmysql_threads{kind="running"} 5\n')
    assert isinstance(unread, Unread)
    assert "another exporter" in unread.why
