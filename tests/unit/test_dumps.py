"""The contract of every reader of dumps (whole, cut at any line, damaged, garbage), and dumps end to end.

``tests/data/dumps.tar.xz`` is what programs printed beside a MariaDB 10.11 with six clients: ``stalk`` has what
pt-stalk wrote, ``texts`` a file of each kind.
"""

from __future__ import annotations

import io
import json
import random
import re
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.base.errors import StoreError
from headrace.host.snapshot import load, save
from headrace.hunt import hunt as hunts
from headrace.hunt.dumps import archives
from headrace.hunt.dumps.kinds import KINDS
from headrace.hunt.dumps.piece import (
    About,
    Kernel,
    Numbered,
    Piece,
    Rates,
    Said,
    Status,
    Threads,
    Unread,
    Variables,
)
from headrace.hunt.dumps.series import is_gauge
from tests.commands import headrace
from tests.folders import ROOT

ARCHIVE = ROOT / "tests" / "data" / "dumps.tar.xz"


def files_of(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        members = [member for member in opened if member.isreg()]
        return {each.name: opened.extractfile(each).read().decode() for each in members}  # type: ignore[union-attr]


FILES = files_of(ARCHIVE)
TEXTS = {name.removeprefix("texts/"): text for name, text in FILES.items() if name.startswith("texts/")}


def read(text: str) -> list[Piece]:
    return [piece for kind in KINDS for piece in kind.read(text)]


def some(name: str, *starts: str) -> str:
    """The lines of a listing whose names start so, and its header: short enough to cut at each."""
    kept = []
    for line in TEXTS[name].splitlines(keepends=True):
        word = line.lstrip("| ").split()[:1]
        if word == ["Variable_name"] or line.startswith("+") or (word and word[0].startswith(starts)):
            kept.append(line)
    return "".join(kept)


STATUS = some("status.tab", "Aborted", "Bytes", "Com_select", "Innodb_page", "Questions", "Threads", "Uptime")
BOXED = some(
    "status.boxed", "Aborted", "Bytes", "Com_select", "Innodb_page", "Questions", "Threads", "Uptime"
)
NODE = """# HELP node_cpu_seconds_total Seconds the CPUs spent in each mode.
node_cpu_seconds_total{cpu="0",mode="idle"} 100.5
node_cpu_seconds_total{cpu="0",mode="user"} 20
node_disk_reads_completed_total{device="sda"} 1234
node_memory_MemAvailable_bytes 4.5e+09
node_memory_MemTotal_bytes 8e+09
node_pressure_io_waiting_seconds_total 3.25
node_netstat_Tcp_RetransSegs 17
node_uname_info{machine="x86_64",nodename="db1",release="6.1.0-18-amd64",sysname="Linux"} 1
node_time_seconds 1.7e+09
mysql_global_status_threads_running 4
mysql_global_status_commands_total{command="select"} 77
mysql_global_status_uptime 1000
mysql_global_variables_max_connections 151
mysql_version_info{innodb_version="8.0.36",version="8.0.36",version_comment="MySQL Community Server - GPL"} 1
"""
ETHTOOL = """TS 1764346233.5
ethtool -S ens5
NIC statistics:
     tx_timeout: 0
     bw_in_allowance_exceeded: 10
     bw_out_allowance_exceeded: 2000
     conntrack_allowance_available: 136812

$ sudo ethtool -S eth1
     rx0_hw_ratelimit_packets: 7
     tx0_hw_ratelimit_packets: 5

"""
SLOW = "Count: 12  Time=0.10s (1s)  Lock=0.00s (0s)  Rows=1.0 (12), app[app]@localhost\n  SELECT N\n"


@dataclass(frozen=True)
class Case:
    """``is_part``: every piece of a text that is cut off is one of the whole, or a part of one of it."""

    text: str
    kinds: tuple[type, ...]
    is_part: Callable[[Piece, list[Piece]], bool]


def values(piece: Piece, whole: list[Piece]) -> bool:
    assert isinstance(piece, Status | Variables)
    own = piece.values.items()
    return any(isinstance(each, type(piece)) and own <= each.values.items() for each in whole)


def numbers(piece: Piece, whole: list[Piece]) -> bool:
    assert isinstance(piece, Numbered)
    return any(
        isinstance(each, Numbered)
        and each.sampler == piece.sampler
        and piece.numbers.items() <= each.numbers.items()
        for each in whole
    )


def rows(piece: Piece, whole: list[Piece]) -> bool:
    assert isinstance(piece, Threads)
    return any(
        isinstance(each, Threads)
        and all(any(row.items() <= r.items() for r in each.rows) for row in piece.rows)
        for each in whole
    )


def rates(piece: Piece, whole: list[Piece]) -> bool:
    """Of one interval, with some of its devices or CPUs; the sum of the CPUs grows with their number."""
    assert isinstance(piece, Rates)
    own = {(m, label): v for m, by in piece.per_second.items() for label, v in by.items() if label != "all"}
    return any(
        isinstance(each, Rates)
        and (each.sampler, each.seconds, each.at_s) == (piece.sampler, piece.seconds, piece.at_s)
        and own.items()
        <= {(m, label): v for m, by in each.per_second.items() for label, v in by.items()}.items()
        for each in whole
    )


def begun(piece: Piece, whole: list[Piece]) -> bool:
    assert isinstance(piece, Kernel)
    return any(
        isinstance(e, Kernel) and e.path == piece.path and e.text.startswith(piece.text) for e in whole
    )


CASES = {
    "status, tabbed": Case(STATUS, (Status,), values),
    "status, boxed": Case(BOXED, (Status,), values),
    "status, vertical": Case(TEXTS["status.vertical"][:4000], (Status,), values),
    "status, csv": Case(STATUS.replace("\t", ","), (Status,), values),
    "status, quoted csv": Case(
        "".join('"{}","{}"\n'.format(*line.split("\t")) for line in STATUS.splitlines()), (Status,), values
    ),
    "status, without a header": Case(STATUS.partition("\n")[2], (Status,), values),
    "mext": Case(
        some("mext.txt", "Aborted", "Bytes", "Com_sel", "Innodb_page", "Thr", "Up"), (Status, Status), values
    ),
    "innodb, vertical": Case(TEXTS["innodb.vertical"], (Numbered,), numbers),
    "innodb, boxed": Case(TEXTS["innodb.boxed"], (Numbered,), numbers),
    "processlist, vertical": Case(TEXTS["pl.vert"], (Threads,), rows),
    "processlist, tabbed": Case(TEXTS["pl.tab"], (Threads,), rows),
    "processlist, boxed": Case(TEXTS["pl.boxed"], (Threads,), rows),
    "iostat": Case(TEXTS["iostat.txt"], (Rates,) * 4, rates),
    "iostat, with times and MB": Case(TEXTS["iostatm.txt"], (Rates,) * 2, rates),
    "mpstat": Case(TEXTS["mpstat.txt"], (Rates,) * 3, rates),
    "vmstat": Case(TEXTS["vmstat.txt"], (Rates,) * 9, rates),
    "vmstat, with times": Case(TEXTS["vmstatw.txt"], (Rates,) * 6, rates),
    "diskstats": Case(FILES["stalk/2026_11_28_16_10_31-diskstats"], (Kernel,) * 6, begun),
    "ethtool": Case(ETHTOOL, (Numbered,) * 2, numbers),
    "stat": Case(FILES["stalk/2026_11_28_16_10_31-procstat"], (Kernel,) * 6, begun),
}


def of(kinds: tuple[type, ...], pieces: list[Piece]) -> list[Piece]:
    return [piece for piece in pieces if isinstance(piece, kinds)]


@pytest.mark.parametrize("name", CASES)
def test_a_text_is_read_whole_and_cut_off_without_a_wrong_number(name: str) -> None:
    case = CASES[name]
    whole = read(case.text)
    assert [type(piece) for piece in whole if not isinstance(piece, About | Said)] == list(case.kinds)
    lines = case.text.splitlines(keepends=True)
    for count in range(len(lines)):
        cut = of(case.kinds, read("".join(lines[:count])))
        assert all(case.is_part(piece, whole) for piece in cut), (count, lines[count - 1])


@pytest.mark.parametrize("name", [*CASES, "sadf", "exporters", "summary"])
def test_damage_is_no_traceback(name: str) -> None:
    texts = {
        "sadf": TEXTS["sadf0.json"],
        "exporters": NODE,
        "summary": TEXTS["ptsum.txt"] + TEXTS["ptmysql.txt"][:3000],
    }
    text = texts[name] if name in texts else CASES[name].text
    chance = random.Random(name)
    for _ in range(25):
        damaged = list(text)
        for _ in range(chance.randrange(1, 30)):
            at = chance.randrange(len(damaged))
            damaged[at : at + chance.choice((0, 1, 5))] = chance.choice(
                ("", "9" * 30, "-1", "nan", "\n", "\t", "|", "é", "e999", "{", '"', "TS 1\n")
            )
        for piece in read("".join(damaged)):
            assert piece is not None
    assert read("".join(map(chr, chance.choices(range(9, 300), k=5000)))) == []


def test_iostat_is_read_as_counters_that_grow_by_what_it_printed() -> None:
    (first, *_) = [p for p in read(TEXTS["iostat.txt"]) if isinstance(p, Rates) and p.sampler == "disk"]
    # vda 143.00 7372.00 82.00 36.44 0.52 51.55 24.00 86744.00 0.00 0.00 15.79 ... 0.46 4.80, in the second report
    assert first.per_second["reads"]["vda"] == 143
    assert first.per_second["sectors_written"]["vda"] == 2 * 86_744
    assert first.per_second["read_ms"]["vda"] == pytest.approx(143 * 0.52)
    assert first.per_second["io_ms"]["vda"] == pytest.approx(48)


def test_pages_of_exporters_are_the_counters_of_kernel_and_server() -> None:
    pieces = read(NODE)
    samplers = {piece.sampler: piece for piece in pieces if isinstance(piece, Numbered)}
    assert samplers["cpu"].numbers["idle"] == {"cpu0": 10_050, "all": 10_050}
    assert samplers["cpu"].at_s == 1.7e9
    assert samplers["psi"].numbers["some_total_us"] == {"io": 3.25e6}
    assert samplers["snmp"].numbers["Tcp.RetransSegs"] == {"": 17}
    (status,) = of((Status,), pieces)
    assert status.values["com_select"] == 77  # type: ignore[union-attr]
    (about,) = of((About,), pieces)
    assert about.facts["hostname",] == "db1"  # type: ignore[union-attr]


def test_differences_are_summed_up_and_a_restart_is_not_taken_for_one() -> None:
    first, second = (piece for piece in read(TEXTS["mext.txt"]) if isinstance(piece, Status))
    assert (first.values["uptime"], second.values["uptime"]) == (26, 27)
    later = STATUS.replace("Uptime\t21", "Uptime\t3").replace("Questions\t", "Questions\t0")
    again = [piece for piece in read(STATUS + "\n" + later) if isinstance(piece, Status)]
    assert [piece.values["uptime"] for piece in again] == [21, 3]


def test_what_mysqldumpslow_prints_is_named_and_not_read() -> None:
    (unread,) = read(SLOW)
    assert isinstance(unread, Unread)
    assert "mysqldumpslow" in unread.why


def test_values_that_stand_for_now_have_no_growth_since_the_start() -> None:
    for name in (
        "threads_running",
        "innodb_buffer_pool_pages_free",
        "wsrep_local_state",
        "innodb_row_lock_time_max",
    ):
        assert is_gauge(name), name
    for name in (
        "com_select",
        "innodb_buffer_pool_reads",
        "innodb_row_lock_time",
        "wsrep_flow_control_paused_ns",
    ):
        assert not is_gauge(name), name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dump").mkdir()
    return tmp_path / "dump"


def put(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name.replace("/", "-")).write_text(FILES.get(name) or TEXTS[name])
    return folder


def test_a_directory_of_pt_stalk_is_a_hunt(tmp_path: Path) -> None:
    (tmp_path / "stalk").mkdir()
    with tarfile.open(ARCHIVE) as archive:
        for each in archive:
            # Not extractall: Debian 12's Python knows no filter.
            if each.name.startswith("stalk") and (file := archive.extractfile(each)):
                (tmp_path / each.name).write_bytes(file.read())
    found = hunts.examine(hunts.saved(tmp_path / "stalk"))
    assert found.verdict.limiting is not None
    assert found.verdict.limiting.name == "cpu"
    assert {"SESS12"} <= {finding.rule.code for finding in found.judgement.findings}
    origin = found.snapshot.origin
    assert origin is not None
    assert any("network" in text for text in origin.missing)
    assert not any("counters" in text for text in origin.missing)
    assert found.snapshot.facts.data["hostname"] == "db1"
    # Statements have no values, and a saved hunt says where it is from.
    save(found.snapshot, tmp_path / "again.hunt")
    assert load(tmp_path / "again.hunt").origin == origin
    assert found.snapshot.activity is not None
    assert found.snapshot.activity.classes[0].text == "select count(*) from d.t where c like ?"


def test_an_archive_is_the_same_as_its_directory(tmp_path: Path) -> None:
    found = headrace("hunt", "--json", "--from", str(ARCHIVE))
    (page,) = json.loads(found.stdout)
    assert "CPU time limits this host" in page["verdict"]


def test_two_statuses_of_any_form_make_rates(folder: Path) -> None:
    found = hunts.examine(hunts.saved(put(folder, "status.boxed", "status.tab", "vars.tab")))
    assert found.evidence.window.seconds == 3
    assert found.evidence.status_rate("com_select") > 10
    assert found.verdict.limiting is None
    assert "unknown" in found.verdict.sentence
    # Nothing is claimed for the host.
    assert not any(
        f.rule.code.startswith(("CPU", "BLK", "NET", "FS", "MEM")) for f in found.judgement.findings
    )


def test_one_status_is_since_the_start_and_says_so(folder: Path) -> None:
    found = hunts.examine(hunts.saved(put(folder, "status.tab", "vars.tab")))
    origin = found.snapshot.origin
    assert origin is not None
    assert any("since the server's start, 21 seconds ago" in text for text in origin.cautions)
    window = found.evidence.window
    assert window.rate("mysql_status", "questions") == pytest.approx(found.evidence.status("questions") / 21)
    assert window.rate("mysql_status", "threads_running") is None


@pytest.mark.parametrize(("name", "is_here"), [("db1", True), ("rds-1", False), ("", False)])
def test_host_and_server_explain_each_other_only_if_they_are_one_machine(
    folder: Path, name: str, is_here: bool
) -> None:
    put(folder, "status.boxed", "status.tab", "mpstat.txt")
    (folder / "variables").write_text(TEXTS["vars.tab"].replace("\nhostname\tdb1\n", f"\nhostname\t{name}\n"))
    found = hunts.examine(hunts.saved(folder))
    place = found.evidence.facts.server_place
    assert place is not None
    assert place.is_on_host is is_here
    assert ("CPU" in found.verdict.sentence.partition(".")[0]) is is_here
    assert ("None" in found.verdict.sentence) is False
    if not is_here:
        assert "not known to run on this host" in found.verdict.sentence
        assert "newer agent" not in found.verdict.sentence


def test_one_status_beside_a_watched_host_makes_no_rate(folder: Path) -> None:
    found = hunts.examine(hunts.saved(put(folder, "status.tab", "vars.tab", "mpstat.txt")))
    assert found.evidence.window.rate("mysql_status", "questions") is None
    assert found.snapshot.origin is not None
    assert any("only its gauges are used" in text for text in found.snapshot.origin.cautions)


def test_statuses_of_two_servers_are_not_one_series(folder: Path) -> None:
    put(folder, "status.tab")
    other = TEXTS["status.tab"].replace("Uptime\t21", "Uptime\t2100")
    other = re.sub(r"^Connections\t\d+$", "Connections\t1", other, flags=re.MULTILINE)
    (folder / "other").write_text(other)
    with pytest.raises(StoreError, match="different servers: Connections"):
        hunts.saved(folder)


def test_a_zip_is_a_dump_too_and_leads_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "dump.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("db1/status", STATUS)
        archive.writestr("../outside", STATUS)
        archive.writestr("db1/zeros", bytes(1 << 20))
    found = hunts.saved(path)
    assert "mysql_status" in {sampler for sampler, _, _ in found.samples.names}
    assert not (tmp_path.parent / "outside").exists()
    (tmp_path / "unpacked").mkdir()
    assert "leads out" in archives.unzip(path, tmp_path / "unpacked")["../outside"]


@pytest.mark.parametrize("coding", ["utf-16", "utf-8-sig"])
def test_texts_of_windows_are_read(folder: Path, coding: str) -> None:
    (folder / "status").write_bytes(STATUS.replace("\n", "\r\n").encode(coding))
    assert "mysql_status" in {sampler for sampler, _, _ in hunts.saved(folder).samples.names}


def test_other_spellings_are_the_same() -> None:
    """A decimal comma, a box without its upper border, the date of MySQL 5.5."""
    for name in ("iostat.txt", "mpstat.txt"):
        comma = re.sub(r"(\d)\.(\d\d)\b", r"\1,\2", TEXTS[name])
        assert of((Rates,), read(comma)) == of((Rates,), read(TEXTS[name]))
    assert of((Status,), read(BOXED.partition("\n")[2])) == of((Status,), read(BOXED))
    whole = TEXTS["innodb.vertical"]
    old = re.sub(r"^20(\d\d)-(\d\d)-(\d\d) (\S+) 0x\w+ INNODB", r"\1\2\3 \4 INNODB", whole, flags=re.M)
    assert old != whole
    assert of((Numbered,), read(old)) == of((Numbered,), read(whole))


def test_a_status_that_is_cut_off_before_its_uptime_is_not_used(folder: Path) -> None:
    (folder / "status").write_text(STATUS.partition("Uptime")[0])
    (folder / "variables").write_text(TEXTS["vars.tab"])
    found = hunts.saved(folder)
    assert found.origin is not None
    assert any("no Uptime" in text for text in found.origin.cautions)
    assert "mysql_status" not in {sampler for sampler, _, _ in found.samples.names}


def test_without_a_number_of_cpus_none_is_invented(folder: Path) -> None:
    found = hunts.examine(hunts.saved(put(folder, "vmstat.txt")))
    assert "of all CPUs" in found.verdict.uses[0].load
    assert "runnable on" not in found.verdict.sentence


def test_secrets_among_variables_are_removed(folder: Path) -> None:
    secrets = "wsrep_sst_auth\troot:hunter2\nwsrep_provider_options\tsocket.ssl=yes;socket.password=hunter2\n"
    (folder / "variables").write_text(TEXTS["vars.tab"] + secrets)
    assert "hunter2" not in json.dumps(hunts.saved(folder).facts.data)


def test_what_is_nothing_is_an_error_that_says_what_is_read(folder: Path) -> None:
    (folder / "notes.txt").write_text("buy milk\n")
    (folder / "slow.txt").write_text(SLOW)
    with pytest.raises(StoreError, match="mysqldumpslow") as error:
        hunts.saved(folder)
    assert "pt-stalk" in str(error.value.hint)


def test_hostile_archives_lead_nowhere_and_cost_little(tmp_path: Path) -> None:
    path = tmp_path / "bad.tar"
    with tarfile.open(path, "w") as archive:
        for name, kind, link in (
            ("../outside", tarfile.REGTYPE, ""),
            ("proc/stat", tarfile.SYMTYPE, "/dev/zero"),
            ("proc/meminfo", tarfile.SYMTYPE, "/proc/meminfo"),
            ("pipe", tarfile.FIFOTYPE, ""),
            ("zero", tarfile.CHRTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            archive.addfile(member, io.BytesIO())
        content = STATUS.encode()
        member = tarfile.TarInfo("status")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    found = hunts.saved(path)
    assert not (tmp_path.parent / "outside").exists()
    assert {sampler for sampler, _, _ in found.samples.names} == {"mysql_status"}
    assert found.facts.data["memory"]["total_bytes"] is None


def test_a_line_without_an_end_is_read_to_its_start(tmp_path: Path) -> None:
    path = tmp_path / "status.tab"
    path.write_text(STATUS + "a" * (8 << 20) + "\n" + STATUS.replace("Uptime\t", "Up_time\t"))
    found = hunts.saved(path)
    assert {sampler for sampler, _, _ in found.samples.names} == {"mysql_status"}
    assert found.origin is not None
    assert any("1 line of status.tab longer than 64 KiB" in caution for caution in found.origin.cautions)


def test_a_pipe_a_link_and_a_directory_of_nothing_are_errors(folder: Path) -> None:
    (folder / "link").symlink_to("/proc/self/environ")
    with pytest.raises(StoreError):
        hunts.saved(folder)


def test_the_report_names_what_was_read_and_what_is_missing(folder: Path) -> None:
    put(folder, "status.boxed", "status.tab", "vars.tab")
    found = headrace("hunt", "--from", str(folder))
    assert found.returncode == 0
    text = " ".join(found.stdout.split())
    assert "SHOW GLOBAL STATUS status.boxed, status.tab" in text
    assert "the disks: /proc/diskstats twice, or iostat -x 1 10" in text
    assert "\x1b" not in found.stdout


def test_what_a_cloud_holds_back_is_read_from_a_cards_statistics(tmp_path: Path) -> None:
    later = ETHTOOL.replace("1764346233.5", "1764346243.5").replace("2000", "52000")
    (tmp_path / "ethtool.txt").write_text(ETHTOOL + later)
    found = hunts.examine(hunts.saved(tmp_path))
    assert found.evidence.window.rates("allowance", "bw_out_allowance_exceeded") == {"ens5": 5_000.0}
    assert found.evidence.window.rates("allowance", "ratelimit_packets") == {"eth1": 0.0}
    held = next(each for each in found.judgement.findings if each.id == "NET15@ens5")
    assert (
        "5,000 packets/s of ens5: the instance has reached the limit of its bandwidth out" in held.hit.summary
    )


def test_statistics_of_a_card_without_a_name_are_said_to_be() -> None:
    pieces = read(ETHTOOL.replace("ethtool -S ens5\n", ""))
    assert any(isinstance(piece, Said) and "of which interface" in piece.text for piece in pieces)
