"""What a file of ours says, and whether it would have the last word: in files, units, profiles, rules."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import NotReady, Refused, TargetError
from headrace.base.model import Facts, Vendor
from headrace.base.received import BadContent
from headrace.change import persist
from headrace.change.commands import whose
from headrace.change.commands.changes import _what
from headrace.change.persist.boot import boot_files
from headrace.change.persist.derived import derived
from headrace.change.persist.last_word import sysctl_value
from headrace.change.persist.line import Line
from headrace.change.persist.news import _by_default, _computed
from headrace.change.persist.options import _is_so
from headrace.change.persist.units import starter, unit_file, unit_of
from headrace.host.facts import HostFacts
from headrace.host.target.local import LocalTarget
from headrace.knobs import catalogue as knobs
from headrace.lab.server.next_start import Answer
from headrace.lab.server.option_files import Copies, Word, after_start, has_sealed, persisted
from headrace.lab.server.sources import _may_have_raised

QUEUE = "/sys/block/sda/queue/scheduler"
REQUESTS = "/sys/block/sda/queue/nr_requests"
RPS = "/sys/class/net/eth0/queues/rx-0/rps_cpus"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
HEADER = persist.HEADER


def host(**more: Any) -> HostFacts:
    return HostFacts(Facts("0" * 16, {"server_settings": None, "servers": [], **more}))


def copies(files: Mapping[str, str]) -> Copies:
    return Copies({path: text.encode() for path, text in files.items()})


def lasting(name: str, text: str, instance: str = "", *paths: str) -> persist.Lasting:
    knob = knobs.find(name)
    return persist.Lasting(
        f"{name}@{instance}" if instance else name,
        text,
        knobs.Instance(knob, instance, paths or (knob.location,)),
    )


def files(
    there: Mapping[str, str], *settings: persist.Lasting, facts: HostFacts | None = None, tuned: bool = False
) -> dict[str, str]:
    return boot_files(copies(there), settings, facts or host(), tuned=tuned)


def test_what_lasts_is_in_files_of_our_own() -> None:
    etc = {
        persist.SYSCTL: f"{HEADER}# comment\nvm.swappiness = 60\nvm.overcommit_memory = 2\n",
        "/etc/tuned/active_profile": "throughput-performance\n",
        "/usr/lib/tuned/throughput-performance/tuned.conf": "",
    }
    settings = [
        lasting("host.vm.swappiness", "1"),
        lasting("host.thp", "never"),
        lasting("volume.scheduler", "none", "sda", QUEUE),
        lasting("host.rps_cpus", "f", "eth0", RPS),
    ]
    found = files(etc, *settings)
    assert found[persist.SYSCTL].endswith("vm.overcommit_memory = 2\nvm.swappiness = 1\n")
    assert found[persist.TMPFILES].endswith(f"w {THP} - - - - never\n")
    assert 'SUBSYSTEM=="block", KERNEL=="sda", ATTR{queue/scheduler}="none"' in found[persist.UDEV]
    assert 'SUBSYSTEM=="net", KERNEL=="eth0", ATTR{queues/rx-0/rps_cpus}="f"' in found[persist.UDEV]
    assert files({**etc, **found}, *settings) == found

    with pytest.raises(Refused, match=r"99-zz-headrace\.conf:3 decides it at boot"):
        files(etc, settings[0], tuned=True)
    del etc[persist.SYSCTL]
    [(path, text)] = files(etc, *settings[:3], tuned=True).items()
    assert path == "/etc/tuned/headrace-mysql/tuned.conf"
    assert "\ninclude=throughput-performance\n" in text
    assert "[sysctl]\nvm.swappiness=1\n" in text
    assert f"{QUEUE}=none\n" in text
    again = files(
        {**etc, path: text, "/etc/tuned/active_profile": "headrace-mysql\n"}, settings[1], tuned=True
    )
    assert "\ninclude=throughput-performance\n" in again[path]
    assert f"{QUEUE}=none\n" in again[path]
    irq = lasting("host.irq_affinity", "0", "24", "/proc/irq/24/smp_affinity_list")
    with pytest.raises(Refused, match="interrupt numbers change with a boot"):
        files(etc, irq)
    with pytest.raises(NotReady, match="TuneD is not installed"):
        files({}, settings[0], tuned=True)


def test_our_sysctls_are_applied_after_those_of_the_administrator() -> None:
    """systemd-sysctl and procps go by the file's name; 99-sysctl.conf is a link to /etc/sysctl.conf."""
    names = ["10-network.conf", "99-sysctl.conf", persist.SYSCTL.rpartition("/")[2]]
    assert sorted(names)[-1] == names[-1]


LINK = {"/etc/sysctl.d/99-sysctl.conf": "vm.swappiness = 60\n", "/etc/sysctl.conf": "vm.swappiness = 60\n"}


@pytest.mark.parametrize(
    ("there", "wins"),
    [
        ({"/etc/sysctl.d/10-a.conf": "vm.swappiness = 33\n"}, ""),
        ({"/etc/sysctl.d/99-zzz-site.conf": "# x\nvm/swappiness=33\n"}, "/etc/sysctl.d/99-zzz-site.conf:2"),
        ({"/usr/lib/sysctl.d/99-zzz.conf": "-vm.swappiness = 33\n"}, "/usr/lib/sysctl.d/99-zzz.conf:1"),
        ({"/usr/lib/sysctl.d/99-zzz.conf": "vm.swappiness = 33\n", "/etc/sysctl.d/99-zzz.conf": "\n"}, ""),
        ({"/etc/sysctl.conf": "vm.swappiness = 60\n"}, "/etc/sysctl.conf:1"),
        (LINK, ""),
        ({"/etc/sysctl.d/99-zzz-site.conf": "vm.dirty_bytes = 33\n"}, ""),
    ],
)
def test_a_later_sysctl_file_is_named(there: dict[str, str], wins: str) -> None:
    setting = lasting("host.vm.swappiness", "7")
    if not wins:
        assert "vm.swappiness = 7\n" in files(there, setting)[persist.SYSCTL]
        return
    with pytest.raises(Refused, match=f"{wins} decides it at boot") as refused:
        files(there, setting)
    assert "change or remove that line" in str(refused.value.hint)


def test_one_of_a_pair_takes_the_other_out_of_the_file() -> None:
    there: dict[str, str] = {}
    for name, value in (("dirty_ratio", "21"), ("dirty_bytes", "500000000"), ("dirty_ratio", "22")):
        there |= files(there, lasting(f"host.vm.{name}", value))
    assert there[persist.SYSCTL] == f"{HEADER}vm.dirty_ratio = 22\n"
    with pytest.raises(Refused, match=r"99-zzz\.conf:1 decides it"):
        files({"/etc/sysctl.d/99-zzz.conf": "vm.dirty_bytes = 1\n"}, lasting("host.vm.dirty_ratio", "9"))


def test_the_scheduler_stands_before_the_number_of_its_requests() -> None:
    there: dict[str, str] = {}
    for name, value, path in (
        ("nr_requests", "64", REQUESTS),
        ("scheduler", "kyber", QUEUE),
        ("nr_requests", "96", REQUESTS),
    ):
        there |= files(there, lasting(f"volume.{name}", value, "sda", path))
    rules = [line.rpartition("ATTR")[2] for line in there[persist.UDEV].splitlines()[1:]]
    assert rules == ['{queue/scheduler}="kyber"', '{queue/nr_requests}="96"']
    both = [
        lasting("volume.nr_requests", "8", "sda", REQUESTS),
        lasting("volume.scheduler", "none", "sda", QUEUE),
    ]
    rules = [line.rpartition("ATTR")[2] for line in files(there, *both)[persist.UDEV].splitlines()[1:]]
    assert rules == ['{queue/scheduler}="none"', '{queue/nr_requests}="8"']
    alone = files(there, lasting("volume.scheduler", "bfq", "sda", QUEUE))[persist.UDEV]
    assert "nr_requests" not in alone, "the running one is the new scheduler's own"


@pytest.mark.parametrize(
    ("rule", "wins"),
    [
        ('ACTION=="add", SUBSYSTEM=="block", KERNEL=="sd[a-z]", ATTR{queue/scheduler}="bfq"\n', True),
        ('SUBSYSTEM=="block", ATTR{queue/scheduler} = "bfq"\n', True),
        ('SUBSYSTEM=="block", KERNEL=="nvme*", ATTR{queue/scheduler}="bfq"\n', False),
        ('SUBSYSTEM=="block", ATTR{queue/scheduler}=="bfq", RUN+="x"\n', False),
        ('# ATTR{queue/scheduler}="bfq"\n', False),
    ],
)
def test_a_later_rule_is_named(rule: str, wins: bool) -> None:
    setting = lasting("volume.scheduler", "none", "sda", QUEUE)
    files({"/usr/lib/udev/rules.d/60-block.rules": rule}, setting)
    later = {"/etc/udev/rules.d/99-zzz.rules": rule}
    if not wins:
        files(later, setting)
        return
    with pytest.raises(Refused, match=r"99-zzz\.rules:1 decides it"):
        files(later, setting)


def test_what_tuned_sets_after_the_boot_is_named() -> None:
    profile = {
        "/etc/tuned/active_profile": "db\n",
        "/etc/tuned/db/tuned.conf": "[main]\ninclude=base\n",
        "/usr/lib/tuned/base/tuned.conf": "[disk]\nelevator=bfq\n[vm]\ntransparent_hugepages=always\n"
        "[sysctl]\nvm.swappiness=10\n",
    }
    for setting, line in (
        (lasting("volume.scheduler", "none", "sda", QUEUE), 2),
        (lasting("host.thp", "never"), 4),
    ):
        with pytest.raises(Refused, match=f"/usr/lib/tuned/base/tuned.conf:{line} decides it"):
            files(profile, setting)
        assert files(profile, setting, tuned=True)
    swappiness = lasting("host.vm.swappiness", "1")
    assert files(profile, swappiness), "TuneD sets the system's sysctls again after its own"
    with pytest.raises(Refused, match=r"base/tuned\.conf:6 decides it"):
        files({**profile, "/etc/tuned/tuned-main.conf": "reapply_sysctl = 0\n"}, swappiness)


def test_of_two_tmpfiles_lines_the_first_counts() -> None:
    setting = lasting("host.thp", "never")
    for name, wins in (("a.conf", True), ("zz.conf", False)):
        there = {f"/etc/tmpfiles.d/{name}": f"w {THP} - - - - always\n"}
        if wins:
            with pytest.raises(Refused, match=r"a\.conf:1 decides it"):
                files(there, setting)
        else:
            assert files(there, setting)


def test_a_device_is_known_by_what_stays_after_a_boot() -> None:
    facts = host(
        block_devices=[{"name": "sda", "stable_ids": ["ata-ST4000_Z1", "wwn-0x5000c500a"]}],
        network_interfaces=[{"name": "eth0", "pci_address": "0000:3b:00.0"}],
    )
    settings = [lasting("volume.scheduler", "none", "sda", QUEUE), lasting("host.rps_cpus", "f", "eth0", RPS)]
    found = files({}, *settings, facts=facts)[persist.UDEV]
    assert 'SYMLINK=="disk/by-id/wwn-0x5000c500a", ATTR{queue/scheduler}="none"' in found
    assert 'KERNELS=="0000:3b:00.0", ATTR{queues/rx-0/rps_cpus}="f"' in found
    assert "KERNEL==" not in found
    again = lasting("volume.scheduler", "mq-deadline", "sda", QUEUE)
    after = files({persist.UDEV: found}, again, facts=facts)[persist.UDEV]
    assert after.count("queue/scheduler") == 1
    assert 'ATTR{queue/scheduler}="mq-deadline"' in after
    assert "rps_cpus" in after


UNIT = "mariadb.service"
FOLDER = f"/etc/systemd/system/{UNIT}.d"
LIMIT = {"LimitNOFILE": "LimitNOFILE=40000"}
PRELOAD = {"LD_PRELOAD": 'Environment="LD_PRELOAD=/l.so"'}


@pytest.mark.parametrize(
    ("there", "lines", "wins"),
    [
        ({f"{FOLDER}/override.conf": "[Service]\nLimitNOFILE=16384\n"}, LIMIT, ""),
        ({f"{FOLDER}/zzz.conf": "[Service]\n# x\nLimitNOFILE=16384\n"}, LIMIT, f"{FOLDER}/zzz.conf:3"),
        ({"/run/systemd/system/mariadb.service.d/zzz.conf": "LimitNOFILE=1\n"}, LIMIT, "zzz.conf:1"),
        ({"/etc/systemd/system/service.d/zzz.conf": "[Service]\nLimitNOFILE=1\n"}, LIMIT, "zzz.conf:2"),
        ({f"{FOLDER}/override.conf": "[Service]\nEnvironment=LD_PRELOAD=/x.so\n"}, PRELOAD, ""),
        (
            {
                f"{FOLDER}/override.conf": "[Service]\nEnvironmentFile=-/etc/default/mariadb\n",
                "/etc/default/mariadb": "A=1\nLD_PRELOAD=/x.so\n",
            },
            PRELOAD,
            "/etc/default/mariadb:2",
        ),
        ({f"/lib/systemd/system/{UNIT}": "[Service]\nUnsetEnvironment=LD_PRELOAD\n"}, PRELOAD, f"{UNIT}:2"),
    ],
)
def test_our_drop_in_is_the_last_word_of_a_unit(
    there: dict[str, str], lines: dict[str, str], wins: str
) -> None:
    if wins:
        with pytest.raises(Refused, match=f"{wins} decides"):
            unit_file(copies(there), UNIT, lines)
        return
    path, content = unit_file(copies(there), UNIT, lines)
    assert path == f"{FOLDER}/zz-headrace.conf"
    assert content == f"{HEADER}[Service]\n{next(iter(lines.values()))}\n"
    more = unit_file(copies({**there, path: content}), UNIT, {"LimitNOFILE": "LimitNOFILE=5"})[1]
    assert more.count("\n") == (3 if "LimitNOFILE" in lines else 4)


def test_a_unit_of_another_program_says_nothing_of_its_servers_limit() -> None:
    def program(*lines: str) -> str:
        return starter(copies({f"/lib/systemd/system/{UNIT}": "\n".join(["[Service]", *lines])}), UNIT)

    assert program("ExecStart=/usr/bin/supervisord -n") == "/usr/bin/supervisord"
    assert program("ExecStart=@/usr/bin/dockerd dockerd") == "/usr/bin/dockerd"
    assert program("ExecStart=/usr/sbin/mariadbd $OPTS") == ""
    assert program("ExecStart=/bin/sh -c 'exec /opt/mysql/bin/mysqld_safe'") == ""
    assert program("ExecStart=/usr/bin/supervisord", "ExecStart=", "ExecStart=/usr/sbin/mysqld") == ""
    assert program() == ""


@pytest.mark.parametrize(
    ("folder", "unit"),
    [
        ("/system.slice/mariadb.service", "mariadb.service"),
        ("/system.slice/system-mariadb.slice/mariadb@two.service", "mariadb@two.service"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/db.service", None),
        ("/", None),
    ],
)
def test_the_unit_of_a_server_is_that_of_its_control_group(folder: str, unit: str | None) -> None:
    server = {"pid": 7, "program": "mysqld", "cgroup": {"folders": {"0": folder}}}
    assert unit_of(host(servers=[server])) == unit


@pytest.mark.parametrize(
    ("began", "has", "is_so"),
    [
        (("1024", "20000"), ("8161", "8161"), True),
        (("20000", "20000"), ("5000", "5000"), False),
        (("1024", "20000"), ("1024", "20000"), False),
        (("1024", "4096"), ("8161", "8161"), False),
        (("", ""), ("8161", "8161"), False),
    ],
)
def test_whether_a_server_raised_its_own_limit(
    began: tuple[str, str], has: tuple[str, str], is_so: bool
) -> None:
    assert _may_have_raised(began, has) == is_so


@pytest.mark.parametrize(
    ("names", "values", "wrote", "is_about"),
    [
        (("dirty_ratio", "dirty_bytes"), ("20", "0"), "500000000", "dirty_bytes"),
        (("dirty_ratio", "dirty_bytes"), ("20", "0"), "7", "dirty_ratio"),
        (("overcommit_ratio", "overcommit_kbytes"), ("50", "0"), "40000000", "overcommit_kbytes"),
        (("overcommit_ratio", "overcommit_kbytes"), ("50", "0"), "80", "overcommit_ratio"),
        (
            ("overcommit_ratio", "overcommit_kbytes"),
            ("50", "0"),
            "150",
            "overcommit_ratio or overcommit_kbytes",
        ),
    ],
)
def test_what_was_set_of_a_pair_is_named_wherever_it_is_told(
    names: tuple[str, str], values: tuple[str, str], wrote: str, is_about: str
) -> None:
    pairs = zip(names, values, strict=True)
    restore = [{"path": f"/proc/sys/vm/{name}", "value": value} for name, value in pairs]
    entry = {"owner": "apply/x", "kind": "setting", "wrote": wrote, "restore": restore}
    assert whose.what([entry]) == f"/proc/sys/vm/{is_about}"
    assert _what(entry).startswith(f"/proc/sys/vm/{is_about}: ")


@pytest.mark.parametrize(
    ("capacity", "default", "then"),
    [("200", "4294967295", "2000"), ("3000", "4294967295", "6000"), ("200", "5000", "5000")],
)
def test_a_default_that_stands_for_no_number_is_computed_as_a_start_does(
    capacity: str, default: str, then: str
) -> None:
    assert _computed("innodb_io_capacity_max", default, {"innodb_io_capacity": capacity}) == then


@pytest.mark.parametrize(
    ("version", "variable", "printed", "then"),
    [
        ("10.11.6", "slave_parallel_mode", "conservative", "optimistic"),
        ("10.11.6", "time_zone", "", "SYSTEM"),
        ("10.11.6", "max_connections", "151", "151"),
        ("10.11.6", "innodb_log_file_mmap", "ON", None),  # it depends on the machine
        ("8.0.31", "log_error_verbosity", "1", "2"),
        ("8.4.2", "log_error_verbosity", "1", None),  # no list of this series: never the nearest
        ("8.4.2", "max_connections", "151", "151"),
    ],
)
def test_a_default_that_only_a_start_shows(
    version: str, variable: str, printed: str, then: str | None
) -> None:
    vendor = "mariadb" if version.startswith("10") else "mysql"
    facts = host(server_settings={"vendor": vendor, "version": version})
    assert _by_default(variable, printed, {}, facts) == then


SHADOW = "root:$6$salt$hash:19000:0:99999:7:::\nmysql:!:19000::::::\n"


@pytest.mark.parametrize("content", [SHADOW, "# comment\nvm.x = 1\n", "\n\0"])
def test_nothing_of_a_file_that_we_did_not_write_is_copied(content: str) -> None:
    """Its lines fit, and the server's account may have put any file under our name."""
    with pytest.raises(Refused, match="headrace did not write it"):
        files({persist.SYSCTL: content}, lasting("host.vm.swappiness", "1"))


def test_a_pipe_or_a_device_is_refused_at_once(tmp_path: Path) -> None:
    """As a server's account may put one in the place of its mysqld-auto.cnf."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name, what in (("pipe", "a pipe"), ("zero", "a device")):
        with pytest.raises(TargetError, match=what):
            asyncio.run(LocalTarget().read(str(tmp_path / name)))


async def test_a_folder_that_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/var")
    await persist.must_be_writable(LocalTarget(), [f"{tmp_path}/new.d/headrace.conf"])
    with pytest.raises(Refused, match="is a link to /var"):
        await persist.must_be_writable(LocalTarget(), [f"{tmp_path}/link/headrace.conf"])
    with pytest.raises(Refused, match="cannot be written"):
        await persist.must_be_writable(LocalTarget(), ["/proc/sys/headrace.conf"])
    (tmp_path / "headrace.conf").mkdir()
    with pytest.raises(Refused, match="is a folder"):
        await persist.must_be_writable(LocalTarget(), [f"{tmp_path}/a", f"{tmp_path}/headrace.conf"])


def test_a_file_that_is_immutable_is_known_before(tmp_path: Path) -> None:
    fixed = tmp_path / "fixed.conf"
    fixed.touch(0o400)
    if (
        os.geteuid() == 0
        and subprocess.run(["chattr", "+i", fixed], check=False, capture_output=True).returncode
    ):
        pytest.skip("this file system has no immutable files")
    try:
        with pytest.raises(Refused, match="immutable, or read-only"):
            asyncio.run(persist.must_be_writable(LocalTarget(), [f"{tmp_path}/a", str(fixed)]))
    finally:
        subprocess.run(["chattr", "-i", fixed], check=False, capture_output=True)


@pytest.mark.parametrize(
    "content", ["[" * 5000, "{", '[{"a": 1}]', '{"a": NaN}', "[" + "[]," * 3_000_000 + "[]]", "\0"]
)
def test_a_persisted_file_that_cannot_be_read_is_not_taken_for_an_empty_one(content: str) -> None:
    with pytest.raises(BadContent):
        persisted(content.encode())


def test_what_set_persist_holds_is_read_in_each_form() -> None:
    old = {"Version": 1, "mysql_server": {"max_connections": {"Value": "9"}, "sort_buffer_size": "7"}}
    new = {
        "Version": 2,
        "mysql_static_variables": {"back_log": {"Value": "80", "Metadata": {"Timestamp": 1}}},
    }
    assert persisted(json.dumps(old).encode()) == {"max_connections": "9", "sort_buffer_size": "7"}
    assert persisted(json.dumps(new).encode()) == {"back_log": "80"}
    # Written by hand: capitals are the same letters to the server.
    assert persisted(b'{"Version": 2, "x": {"BACK_LOG": {"Value": "81"}}}') == {"back_log": "81"}
    secret = {"master_key_id": "mk_1", "mysql_sensitive_variables_blob": "ab"}
    assert persisted(json.dumps({**new, "mysql_sensitive_variables": secret}).encode()) == {"back_log": "80"}


def test_a_backup_that_is_whole_takes_the_place_of_the_persisted_file() -> None:
    """As MySQL's read_persist_file: it renames it."""
    main, backup = (
        b'{"Version": 2, "mysql_server": {"a": "1"}}',
        b'{"Version": 2, "mysql_server": {"a": "2"}}',
    )
    assert persisted(after_start(main, backup)) == {"a": "2"}
    for broken in (None, b"", b'{"Version": 2,'):
        assert persisted(after_start(main, broken)) == {"a": "1"}


def test_sensitive_variables_are_known_to_be_there() -> None:
    sealed = {"mysql_sensitive_variables": {"mysql_sensitive_variables_blob": "ab", "file_key": "1"}}
    assert has_sealed(json.dumps({"Version": 2, **sealed}).encode())
    empty = {"mysql_sensitive_variables": {"mysql_sensitive_variables_blob": ""}}
    assert not has_sealed(json.dumps({"Version": 2, **empty}).encode())
    assert not has_sealed(b'{"Version": 1}')


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("07", "7", True), ("010", "8", True), ("010", "10", False), ("0x10", "16", True), ("-01", "-1", True),
        ("4096\t87380", "4096 87380", True), ("08", "8", False), ("bbr", "cubic", False),
    ],
)  # fmt: skip
def test_a_number_of_sysctl_is_what_the_kernel_takes(one: str, other: str, same: bool) -> None:
    assert (sysctl_value(one) == sysctl_value(other)) is same


VM = "/proc/sys/vm"


@pytest.mark.parametrize(
    ("pair", "values", "wrote", "shown"),
    [
        (("dirty_ratio", "dirty_bytes"), ("21", "0"), "500000000", "dirty_bytes: 0 -> 500000000"),
        (("dirty_ratio", "dirty_bytes"), ("20", "0"), "21", "dirty_ratio: 20 -> 21"),
        (("dirty_bytes", "dirty_ratio"), ("500000000", "0"), "22", "dirty_ratio: 0 -> 22"),
        (("overcommit_ratio", "overcommit_kbytes"), ("50", "0"), "80", "overcommit_ratio: 50 -> 80"),
        (("overcommit_ratio", "overcommit_kbytes"), ("50", "0"), "4096", "overcommit_kbytes: 50 -> 4096"),
    ],
)
def test_of_a_coupled_pair_the_journal_names_the_one_that_was_set(
    pair: tuple[str, str], values: tuple[str, str], wrote: str, shown: str
) -> None:
    restore = [{"path": f"{VM}/{name}", "value": value} for name, value in zip(pair, values, strict=True)]
    said = _what({"kind": "setting", "wrote": wrote, "restore": restore})
    name, _, rest = shown.partition(":")
    if name == "overcommit_kbytes":
        # Both are possible, so both are named.
        assert said == f"{VM}/overcommit_ratio or overcommit_kbytes: 50 -> 4096"
    else:
        assert said == f"{VM}/{name}:{rest}"


@pytest.mark.parametrize(
    ("variable", "wanted", "values", "says"),
    [
        ("lower_case_table_names", "1", {}, "when the data directory is made"),
        ("gtid_mode", "ON", {"enforce_gtid_consistency": "OFF"}, "needs enforce_gtid_consistency"),
        ("gtid_mode", "ON", {"enforce_gtid_consistency": "ON"}, ""),
        ("innodb_buffer_pool_instances", "8", {"innodb_buffer_pool_size": "134217728"}, "makes it 1"),
        ("innodb_buffer_pool_instances", "8", {"innodb_buffer_pool_size": "2147483648"}, ""),
        ("innodb_page_cleaners", "8", {"innodb_buffer_pool_size": "134217728"}, "makes it 1"),
        (
            "innodb_page_cleaners",
            "8",
            {"innodb_buffer_pool_size": "2147483648", "innodb_buffer_pool_instances": "8"},
            "",
        ),
        ("innodb_open_files", "9", {"open_files_limit": "5000"}, "less than 10"),
        ("innodb_open_files", "5001", {"open_files_limit": "5000"}, "may open (5000)"),
        ("innodb_open_files", "5000", {"open_files_limit": "5000"}, ""),
        ("innodb_open_files", "6K", {"open_files_limit": "5000"}, "may open (5000)"),
        ("innodb_buffer_pool_chunk_size", "268435456", {"innodb_buffer_pool_size": "134217728"}, "134217728"),
        ("log_bin_index", "x.index", {"log_bin": ""}, "while the binary log is off"),
        ("log_bin_index", "x.idx", {"log_bin": "binlog"}, "the ending .index"),
        ("log_bin_index", "x.index", {"log_bin": "binlog"}, ""),
        ("replica_skip_errors", "abc", {}, "no number of an error"),
        ("replica_skip_errors", "1062, 1032", {}, ""),
        ("replica_skip_errors", "OFF", {}, ""),
        ("performance_schema_digests_size", "-1", {}, "that the start computes"),
        ("innodb_undo_tablespaces", "5", {}, "CREATE UNDO TABLESPACE"),
    ],
)
def test_what_a_start_makes_of_it_where_the_binary_cannot_know(
    variable: str, wanted: str, values: dict[str, str], says: str
) -> None:
    said = derived(variable, wanted, values, Vendor.MYSQL, ())
    assert says in said
    assert bool(said) == bool(says)


def test_what_a_start_of_mysql_lowers_to_another_option_is_named() -> None:
    words = [Word("/d/mysqld-auto.cnf", 1, "innodb_max_dirty_pages_pct", most, "it") for most in ("90", "20")]
    asked = "innodb_max_dirty_pages_pct_lwm"
    assert "makes it 20" in derived(asked, "70", {}, Vendor.MYSQL, words)
    assert not derived(asked, "70", {}, Vendor.MYSQL, words[:1])
    assert not derived(asked, "70", {}, Vendor.MYSQL, ())


@pytest.mark.parametrize(
    ("option", "got", "wanted", "is_so"),
    [
        ("sort_buffer_size", "2097152", "2M", True),
        ("sort_buffer_size", "1048576", "2M", False),
        ("innodb_sort_buffer_size", "1048576", "1048577", True),
        ("slow_query_log", "ON", "1", True),
        ("slow_query_log", "OFF", "yes", False),
        ("slow_query_log", "OFF", "", False),
        ("max_connections", "100000", "+200000", False),
        ("binlog_format", "MIXED", "2", False),
        ("sql_mode", "NO_ZERO_DATE,STRICT_ALL_TABLES", "STRICT_ALL_TABLES,NO_ZERO_DATE", True),
        ("init_slave", "SET GLOBAL a=1", "SET GLOBAL b=1", False),
        ("optimizer_switch", "mrr=off,x=on", "mrr=on", False),
    ],
)
def test_what_the_binary_says_is_what_was_asked(option: str, got: str, wanted: str, is_so: bool) -> None:
    line = Line(f"server.{option}", option, option, f"{option} = {wanted}", wanted)
    assert _is_so(line, Answer({option: got}), host()) is is_so
