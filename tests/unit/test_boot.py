"""The matrix {setting of a host x who else sets it}: what was promised is what a boot gives, or it was refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.base.errors import NotReady, Refused
from headrace.base.model import Vendor
from headrace.change.persist import SYSCTL, TMPFILES, UDEV
from headrace.change.persist.environment import of_file
from headrace.change.persist.line import Line
from headrace.change.persist.options import must_not_be_overridden
from headrace.change.persist.units import names_of, options_of, unit_file
from headrace.change.persist.wrapper import added
from headrace.host.target.local import LocalTarget
from headrace.lab.server.next_start import Answer, NextStart
from headrace.lab.server.option_files import Start, reading
from headrace.lab.server.sources import Process
from tests.boot_replay import QUEUE, RPS, THP, VM, replay
from tests.unit.test_persist import HEADER, LIMIT, PRELOAD, copies, files, lasting

SETTINGS = {
    "swappiness": (lasting("host.vm.swappiness", "7"), f"{VM}/swappiness"),
    "ratio": (lasting("host.vm.dirty_ratio", "22"), f"{VM}/dirty_ratio"),
    "bytes": (lasting("host.vm.dirty_background_bytes", "67108864"), f"{VM}/dirty_background_bytes"),
    "overcommit": (lasting("host.vm.overcommit_ratio", "80"), f"{VM}/overcommit_ratio"),
    "scheduler": (lasting("volume.scheduler", "none", "sda", f"{QUEUE}/scheduler"), f"{QUEUE}/scheduler"),
    "requests": (lasting("volume.nr_requests", "96", "sda", f"{QUEUE}/nr_requests"), f"{QUEUE}/nr_requests"),
    "readahead": (
        lasting("volume.read_ahead_kb", "64", "sda", f"{QUEUE}/read_ahead_kb"),
        f"{QUEUE}/read_ahead_kb",
    ),
    "thp": (lasting("host.thp", "never"), THP),
    "rps": (lasting("host.rps_cpus", "f", "eth0", RPS), RPS),
}
D, R, T = "/etc/sysctl.d", "/etc/udev/rules.d", "/etc/tmpfiles.d"
LATER = f"{R}/99-zzz.rules"
EARLIER = "/usr/lib/udev/rules.d/60-site.rules"
ACTIVE = {"/etc/tuned/active_profile": "db\n"}
BASE, DB = "/usr/lib/tuned/base/tuned.conf", "/etc/tuned/db/tuned.conf"
#: Setting, the files that are there, and whether ours decides.
CELLS: list[tuple[str, dict[str, str], bool]] = [
    # -- sysctl
    ("swappiness", {}, True),
    ("swappiness", {f"{D}/10-a.conf": "vm.swappiness = 33"}, True),
    ("swappiness", {f"{D}/99-zzz.conf": "vm.swappiness = 33"}, False),
    ("swappiness", {f"{D}/99-zzz.conf": "vm.swappiness = 7"}, True),
    ("swappiness", {f"{D}/99-zzz.conf": "vm/swappiness=33"}, False),
    ("swappiness", {f"{D}/99-zzz.conf": "vm.swappiness = 07"}, True),
    ("swappiness", {f"{D}/99-zzz.conf": "vm.swappiness = 0x7"}, True),
    ("swappiness", {f"{D}/99-zzz.conf": "vm.swappiness = 011"}, False),
    ("requests", {LATER: 'KERNEL!="sdb", GOTO="end"\nATTR{queue/nr_requests}="8"\nLABEL="end"'}, True),
    ("requests", {LATER: 'KERNEL!="sd[ab]", GOTO="end"\nATTR{queue/nr_requests}="8"\nLABEL="end"'}, False),
    ("requests", {LATER: 'ACTION!="add|change", GOTO="end"\nATTR{queue/nr_requests}="8"\nLABEL="end"'}, False),
    ("requests", {LATER: 'KERNEL=="sda", GOTO="out"\nATTR{queue/nr_requests}="8"\nLABEL="end"'}, False),
    ("requests", {LATER: 'GOTO="a"\nATTR{queue/nr_requests}="8"\nLABEL="a"\nATTR{queue/nr_requests}="9"'}, False),
    ("requests", {LATER: 'GOTO="a"\nATTR{queue/nr_requests}="8"\nLABEL="a" # c'}, False),
    ("requests", {LATER: 'GOTO="a" # c\nATTR{queue/nr_requests}="8"\nLABEL="a"'}, False),
    ("requests", {EARLIER: 'ATTR{./queue/nr_requests}="8"'}, True),
    ("requests", {LATER: 'ATTR{./queue/./nr_requests}="8"'}, False),
    ("scheduler", {**ACTIVE, DB: "[disk]\ndevices=sdb\nelevator=kyber\n"}, True),
    ("scheduler", {**ACTIVE, DB: "[disk]\ndevices=sda,sdb\nelevator=kyber\n"}, False),
    ("scheduler", {**ACTIVE, DB: "[disk]\ndevices=!sda\nelevator=kyber\n"}, True),
    ("scheduler", {**ACTIVE, DB: "[disk]\ndevices=!sdb\nelevator=kyber\n"}, False),
    ("swappiness", {f"{D}/99-zzz.conf": "/vm//swappiness=33"}, False),
    ("swappiness", {f"{D}/99-zzz.conf": "vm..swappiness=33"}, False),
    ("swappiness", {f"{D}/99-zzz.conf": "vm/./swappiness=33"}, False),
    ("swappiness", {f"{D}/99-zzz.conf": "-vm.swappiness = 33"}, False),
    ("swappiness", {f"{D}/99-zzz.conf": "-vm.swappiness"}, False),
    ("swappiness", {f"{D}/99-zzz.conf": "vm.swappi* = 33"}, True),
    ("swappiness", {f"{D}/99-zzz.conf": "vm.swappiness"}, True),
    ("ratio", {f"{D}/99-zzz.conf": "vm/{dirty_bytes,x}*=5000000"}, False),
    ("ratio", {f"{D}/99-zzz.conf": "vm/{dirty_bytes,x}=5000000"}, True),
    ("ratio", {f"{D}/99-zzz.conf": "vm.[^a]irty_bytes=5000000"}, False),
    ("ratio", {f"{D}/99-zzz.conf": "vm.[[:alpha:]]irty_bytes=5000000"}, False),
    ("ratio", {f"{D}/99-zzz.conf": "vm.dirty\\_byt*=5000000"}, False),
    ("ratio", {f"{D}/99-zzz.conf": "v*=5000000"}, True),
    ("swappiness", {f"{D}/99-zzz.conf": "# vm.swappiness = 33\n;vm.swappiness=3"}, True),
    ("swappiness", {f"{D}/99-zzz.conf": "vm.swappiness = 33\nvm.swappiness = 7"}, True),
    ("swappiness", {"/run/sysctl.d/99-zzz.conf": "vm.swappiness = 33"}, False),
    ("swappiness", {"/usr/local/lib/sysctl.d/99-zzz.conf": "vm.swappiness = 33"}, False),
    ("swappiness", {"/usr/lib/sysctl.d/99-zzz.conf": "vm.swappiness = 33"}, False),
    ("swappiness", {"/usr/lib/sysctl.d/99-z.conf": "vm.swappiness = 33", f"{D}/99-z.conf": ""}, True),
    ("swappiness", {"/usr/lib/sysctl.d/99-z.conf": "", f"{D}/99-z.conf": "vm.swappiness=33"}, True),
    ("swappiness", {"/run/credentials/@system/sysctl.extra": "vm.swappiness = 33"}, False),
    ("swappiness", {f"{T}/a.conf": f"w {VM}/swappiness - - - - 33"}, False),
    ("swappiness", {f"{T}/a.conf": f"w {VM}/swap* - - - - 33"}, False),
    ("swappiness", {LATER: 'SUBSYSTEM=="block", SYSCTL{vm.swappiness}="33"'}, False),
    ("swappiness", {"/etc/rc.local": f"echo 33 > {VM}/swappiness"}, False),
    ("swappiness", {"/etc/rc.local": "sysctl -w vm.swappiness=33"}, False),
    ("swappiness", {"/etc/rc.local": "# sysctl -w vm.swappiness=33"}, True),
    ("ratio", {f"{D}/10-a.conf": "vm.dirty_bytes = 500000000"}, True),
    ("ratio", {f"{D}/10-a.conf": "vm.dirty_ratio = 22", f"{D}/50-b.conf": "vm.dirty_bytes = 5000000"}, False),
    ("ratio", {f"{D}/10-a.conf": "vm.dirty_ratio = 21", f"{D}/50-b.conf": "vm.dirty_bytes = 5000000"}, True),
    ("ratio", {f"{D}/99-zzz.conf": "vm.dirty_bytes = 500000000"}, False),
    ("ratio", {f"{D}/99-zzz.conf": "vm.dirty_b?tes = 500000000"}, False),
    ("ratio", {f"{D}/99-zzz.conf": "vm.dirty_bytes = 500000000\nvm.dirty_ratio = 22"}, False),
    ("bytes", {f"{D}/99-zzz.conf": "vm.dirty_background_ratio = 5"}, False),
    ("overcommit", {f"{D}/99-zzz.conf": "vm.overcommit_kbytes = 5"}, False),
    ("overcommit", {f"{D}/50-a.conf": "vm.overcommit_kbytes = 5"}, True),
    # -- udev
    ("scheduler", {EARLIER: 'SUBSYSTEM=="block", ATTR{queue/scheduler}="bfq"'}, True),
    ("scheduler", {LATER: 'SUBSYSTEM=="block", ATTR{queue/scheduler}="bfq"'}, False),
    ("scheduler", {LATER: 'SUBSYSTEM=="block", ATTR{queue/scheduler}="none"'}, True),
    ("scheduler", {LATER: 'KERNEL=="sd?", ATTR{queue/scheduler}:="bfq"'}, False),
    ("scheduler", {LATER: 'KERNEL=="sd?", ATTR{queue/scheduler} += "bfq"'}, False),
    ("scheduler", {LATER: 'KERNEL=="nvme*|vd*", \\\n  ATTR{queue/scheduler}="bfq"'}, True),
    ("scheduler", {LATER: 'KERNEL=="vd*|sd*", \\\n  ATTR{queue/scheduler}="bfq"'}, False),
    ("scheduler", {LATER: 'KERNEL!="sda", ATTR{queue/scheduler}="bfq"'}, True),
    ("scheduler", {LATER: 'ACTION=="remove", ATTR{queue/scheduler}="bfq"'}, True),
    ("scheduler", {LATER: 'SUBSYSTEM=="net", ATTR{queue/scheduler}="bfq"'}, True),
    ("scheduler", {EARLIER: 'KERNEL=="sd?1", ATTR{../queue/scheduler}="bfq"'}, False),
    ("scheduler", {LATER: 'KERNEL=="sda", ATTR{../sda/queue/scheduler}="bfq"'}, False),
    ("scheduler", {LATER: 'KERNEL=="sda", ATTR{queue//scheduler}="bfq"'}, False),
    ("scheduler", {LATER: 'KERNEL=="sda" ATTR{queue/scheduler}=e"bfq"'}, False),
    ("scheduler", {EARLIER: 'KERNEL=="sda1", ATTR{[block/sda]queue/scheduler}="bfq"'}, False),
    ("scheduler", {EARLIER: "KERNEL==\"sda\", RUN+=\"/bin/sh -c 'echo bfq > /sys/block/%k/queue/scheduler'\""},
     False),
    ("scheduler", {EARLIER: "KERNEL==\"vda\", RUN+=\"/bin/sh -c 'echo bfq > /sys/block/%k/queue/scheduler'\""},
     True),
    ("scheduler", {"/usr/local/lib/udev/rules.d/99-zzz.rules": 'KERNEL=="sda", ATTR{queue/scheduler}="bfq"'},
     False),
    ("scheduler", {f"{R}/99-z.rules": "", "/usr/lib/udev/rules.d/99-z.rules": 'ATTR{queue/scheduler}="bfq"'},
     True),
    ("scheduler", {f"{T}/a.conf": f"w {QUEUE}/scheduler - - - - bfq"}, False),
    ("scheduler", {f"{T}/a.conf": "w /sys/block/sd*/queue/scheduler - - - - bfq"}, False),
    ("scheduler", {f"{T}/a.conf": "w /sys/block/vd*/queue/scheduler - - - - bfq"}, True),
    ("scheduler", {"/etc/rc.local": "echo bfq > /sys/block/*/queue/scheduler"}, False),
    ("requests", {LATER: 'KERNEL=="sda", ATTR{queue/scheduler}="bfq"'}, False),
    ("requests", {EARLIER: 'KERNEL=="sda", ATTR{queue/scheduler}="bfq"'}, True),
    ("readahead", {EARLIER: 'SUBSYSTEM=="bdi", ATTR{read_ahead_kb}="4096"'}, False),
    ("readahead", {LATER: 'KERNEL=="sda", ATTR{bdi/read_ahead_kb}="4096"'}, False),
    ("rps", {EARLIER: 'SUBSYSTEM=="queues", KERNEL=="rx-*", ATTR{rps_cpus}="3"'}, False),
    ("rps", {LATER: 'KERNEL=="eth1", ATTR{queues/rx-0/rps_cpus}="3"'}, True),
    # -- tmpfiles
    ("thp", {f"{T}/a.conf": f"w {THP} - - - - always"}, False),
    ("thp", {f"{T}/zz.conf": f"w {THP} - - - - always"}, True),
    ("thp", {f"{T}/zz.conf": f"w+ {THP} - - - - always"}, True),
    ("thp", {f"{T}/a.conf": f"w+ {THP} - - - - always"}, False),
    ("thp", {f"{T}/zz.conf": "w /sys/kernel/mm/transparent_hugepage/enable? - - - - always"}, False),
    ("thp", {f"{T}/a.conf": "w /sys/kernel/mm/transparent_hugepage/enable? - - - - always"}, True),
    ("thp", {"/usr/local/lib/tmpfiles.d/a.conf": f"w! {THP} - - - - always"}, False),
    ("thp", {"/etc/rc.local": f"echo always > {THP}"}, False),
    ("thp", {f"{T}/zz.conf": "w /sys/kernel/mm/{ksm,transparent_hugepage}/enabled - - - - always"}, False),
    ("thp", {f"{T}/zz.conf": "w /sys/kernel/mm/{ksm,x}/enabled - - - - always"}, True),
    # -- TuneD, over our files
    ("thp", {**ACTIVE, DB: "[vm]\ntransparent_hugepages=always"}, False),
    ("thp", {**ACTIVE, DB: "[vm]\ntransparent_hugepages=never"}, True),
    ("thp", {**ACTIVE, DB: "[vm.big]\ntype=vm\ntransparent_hugepage = always # x"}, False),
    ("thp", {**ACTIVE, DB: "[vm]\nenabled=0\ntransparent_hugepages=always"}, True),
    ("thp", {**ACTIVE, DB: "[main]\ninclude=base", BASE: "[vm]\ntransparent_hugepages=always"}, False),
    ("thp", {**ACTIVE, DB: "[main]\ninclude=base\n[vm]\ntransparent_hugepages=never",
             BASE: "[vm]\ntransparent_hugepages=always"}, True),
    ("thp", {**ACTIVE, DB: "[main]\ninclude=db", "/usr/lib/tuned/db/tuned.conf": f"[sysfs]\n{THP}=always"},
     False),
    ("thp", {"/etc/tuned/post_loaded_profile": "base", BASE: "[vm]\ntransparent_hugepages=always"}, False),
    ("requests", {**ACTIVE, DB: "[disk]\nelevator=bfq"}, False),
    ("readahead", {**ACTIVE, DB: "[disk]\nreadahead=>4096"}, False),
    ("swappiness", {**ACTIVE, DB: "[sysctl]\nvm.swappiness=10"}, True),
    ("swappiness", {**ACTIVE, DB: "[sysctl]\nvm.swappiness=10",
                    "/etc/tuned/tuned-main.conf": "reapply_sysctl = 0"}, False),
    ("swappiness", {**ACTIVE, DB: "[sysctl]\nvm.dirty_ratio=10", "/etc/sysctl.conf": "vm.swappiness = 60",
                    f"{D}/99-sysctl.conf": "vm.swappiness = 60"}, False),
    ("ratio", {**ACTIVE, DB: "[vm]\ndirty_bytes=500000000"}, False),
]  # fmt: skip
OURS = "/etc/tuned/headrace-mysql/tuned.conf"
#: The same with our profile: it includes the active one, and becomes it.
PROFILES: list[tuple[str, dict[str, str], bool]] = [
    ("swappiness", {**ACTIVE, DB: "[sysctl]\nvm.swappiness=10"}, True),
    ("swappiness", {**ACTIVE, DB: "", f"{D}/10-a.conf": "vm.swappiness = 33"}, False),
    ("swappiness", {**ACTIVE, DB: "", "/etc/sysctl.conf": "vm.swappiness = 33"}, False),
    ("swappiness", {**ACTIVE, DB: "", "/usr/lib/sysctl.d/10-a.conf": "vm.swappiness = 33"}, True),
    ("swappiness", {**ACTIVE, DB: "", f"{D}/10-a.conf": "vm.swappiness = 33",
                    "/etc/tuned/tuned-main.conf": "reapply_sysctl = 0"}, True),
    ("ratio", {**ACTIVE, DB: "[sysctl]\nvm.dirty_ratio=10\nvm.dirty_bytes=500000000"}, False),
    ("ratio", {**ACTIVE, DB: "[sysctl]\nvm.dirty_bytes=500000000"}, True),
    ("thp", {**ACTIVE, DB: "[vm]\ntransparent_hugepages=always"}, True),
    ("thp", {**ACTIVE, DB: "[sysfs]\n/sys/x=1\n[vm]\ntransparent_hugepages=always"}, False),
    ("scheduler", {**ACTIVE, DB: "[disk]\nelevator=bfq"}, True),
    ("scheduler", {**ACTIVE, DB: "[sysfs]\n/sys/x=1\n[disk]\nelevator=bfq"}, False),
    ("requests", {**ACTIVE, DB: "[sysfs]\n/sys/x=1\n[disk]\nelevator=bfq"}, False),
    ("thp", {**ACTIVE, DB: "", "/etc/tuned/post_loaded_profile": "base",
             BASE: "[vm]\ntransparent_hugepages=always"}, False),
]  # fmt: skip


def promised(name: str, there: dict[str, str], **more: Any) -> bool:
    """Whether it was; then the boot gives it."""
    setting, path = SETTINGS[name]
    try:
        written = files(there, setting, **more)
    except Refused as refused:
        return "decides it at boot" not in str(refused)
    active = {"/etc/tuned/active_profile": "headrace-mysql"} if OURS in written else {}
    kernel = replay({**there, **written, **active})
    assert kernel[path] == setting.value, (
        f"promised {setting.value}, the boot gives {kernel[path]}: {written}"
    )
    return True


@pytest.mark.parametrize("cell", range(len(CELLS)))
def test_what_was_promised_is_what_a_boot_gives(cell: int) -> None:
    name, there, is_ours = CELLS[cell]
    assert promised(name, there) == is_ours, there


@pytest.mark.parametrize("cell", range(len(PROFILES)))
def test_a_profile_of_ours_is_what_tuned_makes_of_it(cell: int) -> None:
    name, there, is_ours = PROFILES[cell]
    assert promised(name, there, tuned=True) == is_ours, there


def test_the_replay_itself_tells_a_promise_that_fails() -> None:
    """Else the matrix could not fail: the same files with ours among them, and no refusal before."""
    ours = {
        SYSCTL: f"{HEADER}vm.swappiness = 7\nvm.dirty_ratio = 22\nvm.dirty_background_bytes = 67108864\n"
        "vm.overcommit_ratio = 80\n",
        UDEV: f'{HEADER}KERNEL=="sda", ATTR{{queue/scheduler}}="none"\nKERNEL=="sda", '
        'ATTR{queue/nr_requests}="96"\nKERNEL=="sda", ATTR{queue/read_ahead_kb}="64"\n'
        'KERNEL=="eth0", ATTR{queues/rx-0/rps_cpus}="f"\n',
        TMPFILES: f"{HEADER}w {THP} - - - - never\n",
    }
    wrong = []
    for name, there, is_ours in CELLS:
        setting, path = SETTINGS[name]
        if (replay({**there, **ours})[path] == setting.value) != is_ours:
            wrong.append((name, there))
    assert wrong == []


def test_devices_that_a_variable_names_may_be_ours() -> None:
    there = {**ACTIVE, DB: "[variables]\nd=sda\n[disk]\ndevices=${d}\nelevator=kyber\n"}
    with pytest.raises(Refused, match=r"/etc/tuned/db/tuned\.conf:5 decides it"):
        files(there, SETTINGS["scheduler"][0])


@pytest.mark.parametrize("script", ["s.sh", "${i:PROFILE_DIR}/s.sh", "/etc/tuned/db/s.sh"])
def test_a_script_of_the_profile_is_read(script: str) -> None:
    there = {**ACTIVE, DB: f"[script]\nscript={script}\n", "/etc/tuned/db/s.sh": f"echo always > {THP}\n"}
    with pytest.raises(Refused, match=r"/etc/tuned/db/s\.sh:1 decides it"):
        files(there, SETTINGS["thp"][0])


@pytest.mark.parametrize(("file", "wins"), [(LATER, True), (EARLIER, False)])
def test_a_program_that_a_rule_asks_runs_where_it_stands(file: str, wins: bool) -> None:
    rule = 'KERNEL=="sda", PROGRAM="/bin/sh -c \'echo bfq > /sys/block/sda/queue/scheduler\'"'
    if not wins:
        assert files({file: rule}, SETTINGS["scheduler"][0])
        return
    with pytest.raises(Refused, match=r"99-zzz\.rules:1 decides it"):
        files({file: rule}, SETTINGS["scheduler"][0])


SET = "sysctl -w vm.swappiness=33"
SERVICE = "/etc/systemd/system/t.service"


@pytest.mark.parametrize(
    ("name", "there", "place"),
    [
        ("swappiness", {"/etc/cron.d/t": f"@reboot root {SET}\n"}, "/etc/cron.d/t:1"),
        ("swappiness", {"/etc/crontab": f"A=1\n@reboot root {SET}\n"}, "/etc/crontab:2"),
        ("swappiness", {"/var/spool/cron/crontabs/root": f"@reboot {SET}\n"}, "crontabs/root:1"),
        ("swappiness", {"/etc/cron.d/t": f"# @reboot root {SET}\n5 4 * * * root {SET}\n"}, ""),
        ("swappiness", {f"{SERVICE}.d/x.conf": f"[Service]\nExecStartPre=/sbin/{SET}\n"}, "x.conf:2"),
        ("swappiness", {"/usr/lib/systemd/system/t.service": f"ExecStart=/sbin/{SET}\n"}, "t.service:1"),
        (
            "swappiness",
            {SERVICE: "ExecStart=-/opt/t.sh -x\n", "/opt/t.sh": f"#!/bin/sh\n{SET}\n"},
            "/opt/t.sh:2",
        ),
        ("swappiness", {SERVICE: "ExecStart=/opt/t.sh\n", "/opt/t.sh": f"#!/bin/sh\n# {SET}\n"}, ""),
        ("swappiness", {SERVICE: "Documentation=file:/opt/t.sh\n", "/opt/t.sh": f"{SET}\n"}, ""),
        ("swappiness", {"/etc/rc.local": "/usr/local/bin/t\n", "/usr/local/bin/t": f"{SET}\n"}, "bin/t:1"),
        ("swappiness", {"/etc/init.d/t": f"  {SET}\n"}, "/etc/init.d/t:1"),
        ("readahead", {"/etc/hdparm.conf": "/dev/sda {\n\tread_ahead_sect = 1024\n}\n"}, "hdparm.conf:2"),
        ("thp", {f"{T}/a.conf": f"f+ {THP} - - - - always"}, "a.conf:1"),
        ("thp", {f"{T}/a.conf": f"F! {THP} - - - - always"}, "a.conf:1"),
        ("thp", {f"{T}/a.conf": f"f {THP} - - - - always"}, ""),
    ],
)
def test_a_command_at_boot_is_named(name: str, there: dict[str, str], place: str) -> None:
    if not place:
        assert files(there, SETTINGS[name][0])
        return
    with pytest.raises(Refused, match=f"{place} decides it"):
        files(there, SETTINGS[name][0])


def test_a_profile_that_only_tuned_can_resolve_is_no_promise() -> None:
    there = {**ACTIVE, DB: "[main]\ninclude=${f:virt_check:a:b}\n"}
    with pytest.raises(NotReady, match="only TuneD can resolve"):
        files(there, SETTINGS["thp"][0])


UNIT = "mariadb@one.service"
E = "/etc/systemd/system"
UNITS: list[tuple[str, dict[str, str], dict[str, str], tuple[str, ...], str]] = [
    (UNIT, {f"{E}/mariadb@.service.d/zzz.conf": "[Service]\nLimitNOFILE=1"}, LIMIT, (), "zzz.conf:2"),
    (UNIT, {f"{E}/mariadb@.service.d/a.conf": "[Service]\nLimitNOFILE=1"}, LIMIT, (), ""),
    ("mysql-db-1.service", {f"{E}/mysql-db-.service.d/zzz.conf": "LimitNOFILE=1"}, LIMIT, (), "zzz.conf:1"),
    ("mysql-db-1.service", {f"{E}/mysql-.service.d/zzz.conf": "LimitNOFILE=1"}, LIMIT, (), "zzz.conf:1"),
    (UNIT, {f"{E}/mysql.service.d/zzz.conf": "LimitNOFILE=1"}, LIMIT, ("mysql.service",), "zzz.conf:1"),
    (UNIT, {f"{E}/mysql.service.d/zzz.conf": "LimitNOFILE=1"}, LIMIT, (), ""),
    (UNIT, {f"/run/systemd/system.control/{UNIT}.d/zzz.conf": "LimitNOFILE = 1"}, LIMIT, (), "zzz.conf:1"),
    (UNIT, {f"/etc/systemd/system.control/{UNIT}.d/zz-headrace.conf": "x"}, LIMIT, (), "zz-headrace.conf:1"),
    (UNIT, {f"{E}/{UNIT}.d/a.conf": "ExecStart=\nExecStart=/bin/sh -c 'ulimit -n 9; x'"}, LIMIT, (), "a.conf:2"),
    (UNIT, {f"{E}/{UNIT}.d/zzz.conf": "[Service]\nEnvironment="}, PRELOAD, (), "zzz.conf:2"),
    (UNIT, {f"{E}/{UNIT}.d/a.conf": "[Service]\nEnvironment="}, PRELOAD, (), ""),
    (UNIT, {f"{E}/{UNIT}.d/zzz.conf": 'Environment=A=1 \\\n  "LD_PRELOAD=/x.so"'}, PRELOAD, (), "zzz.conf:1"),
    (UNIT, {f"{E}/{UNIT}.d/zzz.conf": "Environment=MY_LD_PRELOAD=/x"}, PRELOAD, (), ""),
    (UNIT, {f"{E}/{UNIT}.d/a.conf": "EnvironmentFile=-/etc/default/maria*", "/etc/default/mariadb":
            "LD_PRELOAD=/x"}, PRELOAD, (), "/etc/default/mariadb:1"),
    (UNIT, {f"{E}/{UNIT}.d/a.conf": "EnvironmentFile=-/etc/default/%p-%i", "/etc/default/mariadb-one":
            "LD_PRELOAD=/x"}, PRELOAD, (), "/etc/default/mariadb-one:1"),
    (UNIT, {f"{E}/{UNIT}.d/a.conf": "EnvironmentFile=/x/%H"}, PRELOAD, (), "a.conf:1"),
    (UNIT, {f"{E}/{UNIT}": "EnvironmentFile=/etc/x", "/etc/x": "LD_PRELOAD=/x", f"{E}/{UNIT}.d/a.conf":
            "EnvironmentFile="}, PRELOAD, (), ""),
    (UNIT, {f"{E}/{UNIT}": "EnvironmentFile=", "/etc/x": "LD_PRELOAD=/x", f"{E}/{UNIT}.d/a.conf":
            "EnvironmentFile=/etc/x"}, PRELOAD, (), "/etc/x:1"),
    (UNIT, {f"{E}/{UNIT}": "ExecStart=/usr/bin/env LD_PRELOAD=/x.so /usr/sbin/mariadbd"}, PRELOAD, (), ":1"),
    (UNIT, {f"{E}/{UNIT}": "ExecStart=/usr/bin/env -i /usr/sbin/mariadbd"}, PRELOAD, (), ":1"),
    (UNIT, {f"{E}/{UNIT}": "ExecStart=/usr/bin/env A=1 -u LD_PRELOAD /usr/sbin/mariadbd"}, PRELOAD, (), ":1"),
    (UNIT, {f"{E}/{UNIT}": "ExecStart=/usr/bin/env A=-i /usr/sbin/mariadbd"}, PRELOAD, (), ""),
    (UNIT, {f"{E}/{UNIT}": "ExecStart=/usr/bin/mysqld_safe --malloc-lib=/x.so"}, PRELOAD, (), ":1"),
    (UNIT, {f"{E}/{UNIT}": "ExecStart=/usr/bin/mysqld_safe --open-files-limit=9"}, LIMIT, (), ":1"),
]  # fmt: skip


@pytest.mark.parametrize("cell", range(len(UNITS)))
def test_what_wins_over_our_drop_in_is_named(cell: int) -> None:
    unit, there, lines, others, wins = UNITS[cell]
    if not wins:
        assert unit_file(copies(there), unit, lines, others)
        return
    with pytest.raises(Refused, match=f"{wins} decides"):
        unit_file(copies(there), unit, lines, others)


def test_the_names_of_a_units_folders() -> None:
    assert names_of("mariadb.service") == ["mariadb.service", "service"]
    assert names_of("a-b-c@x.service") == [
        "a-b-c@x.service", "a-b-c@.service", "a-b-.service", "a-.service", "service"
    ]  # fmt: skip


CAPACITY = "innodb_io_capacity"
LINES = [Line(f"server.{CAPACITY}", CAPACITY, CAPACITY, f"{CAPACITY} = 700", "700")]


def running(
    arguments: tuple[str, ...],
    environment: dict[str, str],
    there: dict[str, str] | None = None,
    parent: str = "",
) -> NextStart:
    started = Start(Vendor.MARIADB, "10.11.6", arguments, environment)
    process = Process(1, True, "/usr/sbin/mariadbd", started.arguments, environment, 0, 0, parent=parent)
    options = frozenset({CAPACITY, f"{CAPACITY}_max"})
    files = copies(there or {})
    read = reading(files, started)
    return NextStart(LocalTarget(), process, started, files, read, Answer({}), options)


MULTI = "Environment='MULTI=--defaults-group-suffix=.%I'\nExecStart=/usr/sbin/mariadbd $MULTI"


@pytest.mark.parametrize(
    ("text", "arguments", "environment", "why"),
    [
        (MULTI, ("--defaults-group-suffix=.one",), {}, ""),
        (MULTI, ("--defaults-group-suffix=.two",), {}, "--defaults-group-suffix=.one from now on"),
        (MULTI, (), {}, "--defaults-group-suffix=.one from now on"),
        (
            "ExecStart=/usr/sbin/mysqld --defaults-file=/etc/b.cnf",
            ("--defaults-file=/etc/a.cnf",),
            {},
            "b.cnf from",
        ),
        ("ExecStart=/usr/sbin/mysqld --defaults-file /etc/a.cnf", ("--defaults-file", "/etc/a.cnf"), {}, ""),
        ("ExecStart=/usr/sbin/mysqld --no-defaults", (), {}, "--no-defaults from now on"),
        ("Environment=MYSQL_HOME=/srv\nExecStart=/usr/sbin/mysqld", (), {}, "MYSQL_HOME=/srv from now on"),
        ("Environment=MYSQL_HOME=/srv\nExecStart=/usr/sbin/mysqld", (), {"MYSQL_HOME": "/srv"}, ""),
        ("Environment=TZ=UTC\nExecStart=/usr/sbin/mysqld", (), {}, ""),
    ],
)
def test_other_option_files_from_now_on_are_named(
    text: str, arguments: tuple[str, ...], environment: dict[str, str], why: str
) -> None:
    start = running(arguments, environment)
    words = options_of(copies({f"{E}/mariadb@.service": text}), UNIT)
    if not why:
        must_not_be_overridden(start, "/etc/my.cnf.d/zz-headrace.cnf", LINES, words)
        return
    with pytest.raises(Refused, match=why):
        must_not_be_overridden(start, "/etc/my.cnf.d/zz-headrace.cnf", LINES, words)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ExecStart=/usr/sbin/mysqld -a", {"sql_mode": "ANSI", "transaction_isolation": "SERIALIZABLE"}),
        ("ExecStart=/usr/sbin/mariadbd -W3 -u mysql", {"log_warnings": "3", "user": "mysql"}),
        ("ExecStart=/usr/sbin/mysqld -sP 3307", {"symbolic_links": None, "port": "3307"}),
        ("ExecStart=/bin/sh -c 'ulimit -n 9; exec /usr/sbin/mysqld -P3307'", {"port": "3307"}),
        ("ExecStart=/usr/bin/taskset -a 1 /usr/sbin/mysqld --port=1", {"port": "1"}),
        (
            "ExecStart=/usr/sbin/mariadbd $MYSQLD_OPTS $_WSREP_NEW_CLUSTER",
            {"wsrep_new_cluster": None, "port": "9"},
        ),
        ("ExecStart=/usr/sbin/mysqld $MYSQLD_OPTS\nEnvironment=MYSQLD_OPTS=-P8", {"port": "8"}),
        ("ExecStart=/usr/bin/env -- /usr/sbin/mysqld --port 8 $OTHER", {"port": "8"}),
        ('ExecStart=/usr/sbin/mysqld --po"rt"="8"', {"port": "8"}),
        ("ExecStart=/usr/sbin/mysqld --p\\x6frt=8", {"port": "8"}),
        ("ExecStart=/usr/sbin/mysqld $O\nEnvironment=O=--x\\s--port=8", {"x": None, "port": "8"}),
        ("[Service]\nExecStart=/usr/sbin/mysqld -P8\n[Install]\nExecStart=", {"port": "8"}),
        (
            "ExecStart=/usr/sbin/mysqld $MYSQLD_OPTS\nEnvironment=MYSQLD_OPTS=--port=1\n"
            "Environment=MYSQLD_OPTS=--x",
            {"x": None},
        ),
    ],
)  # fmt: skip
def test_what_a_unit_starts_the_server_with(text: str, found: dict[str, str | None]) -> None:
    manager = {"MYSQLD_OPTS": ("m", 1, "--port=9"), "_WSREP_NEW_CLUSTER": ("m", 2, "--wsrep-new-cluster")}
    words = options_of(copies({f"{E}/{UNIT}": text}), UNIT, (), manager)
    assert {word.option: word.value for word in words} == found


#: What an EnvironmentFile holds, and the value of A in it, None without one.
OF_FILES: list[tuple[bytes, str | None]] = [
    (b"A=--x=1 --y=2", "--x=1 --y=2"),
    (b"A=--x \\\n  --y=2\n", "--x   --y=2"),
    (b"A=--innodb-io-\\\ncapacity=444\n", "--innodb-io-capacity=444"),
    (b'A="--x\n--y=2"\n', "--x\n--y=2"),
    (b"A='--x\n--y=2'\n", "--x\n--y=2"),
    (b"A='--x \\\n--y=2'\n", "--x \\\n--y=2"),
    (b'A="--x \\\n--y=2"\n', "--x --y=2"),
    (b"B=1\rA=--y=2\r", "--y=2"),
    (b"A=--y\\-z=2 \n", "--y-z=2"),
    (b'B="x\nA=--y=2\n', None),
    (b"B=it's\nA=--y=2\n", "--y=2"),
    (b'A="--x" "--y"\n', "--x--y"),
    (b'A="\\"\\a"\n', '"\\a'),
    (b"B=c:\\dir\\\nA=--y=2\n", None),
    (b"  A = --y=2 # x\r\n", "--y=2 # x"),
    (b"#A=1\n;A=2\nnot one\n", None),
    (b"A=1\nA=2\n", "2"),
]


@pytest.mark.parametrize(("content", "value"), OF_FILES)
def test_variables_of_a_file_as_systemd_reads_them(content: bytes, value: str | None) -> None:
    assert {name: text for _, name, text in of_file(content)}.get("A") == value


FRAGMENT = "/usr/lib/systemd/system/mariadb@.service"
STARTED = f"{FRAGMENT}:2"
OPTS = "[Service]\nExecStart=/usr/sbin/mariadbd $MYSQLD_OPTS"


@pytest.mark.parametrize(
    ("there", "place"),
    [
        ({FRAGMENT: "[Service]\nExecStart=/usr/sbin/mariadbd --innodb-io-capacity=444"}, STARTED),
        ({FRAGMENT: "[Service]\nExecStart=/usr/sbin/mariadbd \\\n  --loose-innodb_io-capacity=444"}, STARTED),
        ({FRAGMENT: "[Service]\nExecStart=/usr/sbin/mariadbd --innodb-io-capacity 444"}, STARTED),
        ({FRAGMENT: "[Service]\nExecStart=/usr/sbin/mariadbd --Innodb-Io-Capacity=444"}, STARTED),
        ({FRAGMENT: "[Service]\nExecStart=/usr/sbin/mariadbd --innodb-io-capacity=700"}, ""),
        ({FRAGMENT: "[Service]\nExecStart=/usr/sbin/mariadbd --innodb-io-capacity=300"}, ""),
        ({FRAGMENT: "[Service]\nExecStart=/usr/sbin/mariadbd --innodb-io-capacity-max=9000"}, ""),
        ({FRAGMENT: "[Service]\nExecStartPre=/bin/x --innodb-io-capacity=444"}, ""),
        ({FRAGMENT: "[Service]\nExecStart=/usr/sbin/mariadbd --innodb-io-capacity=444",
          f"{E}/{UNIT}.d/a.conf": "[Service]\nExecStart=\nExecStart=/usr/sbin/mariadbd"}, ""),
        ({FRAGMENT: OPTS, f"{E}/mariadb@.service.d/a.conf":
          'Environment="MYSQLD_OPTS=--innodb-io-capacity=444 --x"'}, "a.conf:1"),
        ({FRAGMENT: OPTS, f"{E}/{UNIT}.d/a.conf": 'Environment="OTHER=--innodb-io-capacity=444"'}, ""),
        ({FRAGMENT: OPTS, f"{E}/{UNIT}.d/a.conf": 'Environment="MYSQLD_OPTS=--innodb-io-capacity=444"',
          f"{E}/{UNIT}.d/b.conf": "Environment="}, ""),
        ({FRAGMENT: f"{OPTS}\nEnvironmentFile=-/etc/default/%p", "/etc/default/mariadb":
          "# x\nMYSQLD_OPTS='--innodb_io_capacity=444'"}, "/etc/default/mariadb:2"),
        ({FRAGMENT: f"{OPTS}\nEnvironmentFile=-/etc/default/%p", "/etc/default/mariadb":
          "B=1\n\nMYSQLD_OPTS='--x\n--innodb_io_capacity=444'"}, "/etc/default/mariadb:3"),
    ],
)  # fmt: skip
def test_an_option_that_the_unit_got_after_the_start_is_named(there: dict[str, str], place: str) -> None:
    """The running server was started with 300, and the next start is the unit's."""
    start, lines = running(("--innodb-io-capacity=300",), {}), LINES
    words = options_of(copies(there), UNIT)
    if not place:
        must_not_be_overridden(start, "/etc/my.cnf.d/zz-headrace.cnf", lines, words)
        return
    with pytest.raises(Refused, match=f"{place} starts the server with --"):
        must_not_be_overridden(start, "/etc/my.cnf.d/zz-headrace.cnf", lines, words)


SAFE = "/bin/sh /usr/bin/mariadbd-safe --datadir=/d "


@pytest.mark.parametrize(
    ("group", "parent", "found"),
    [
        ("[mysqld_safe]\nopen-files-limit = 5000", SAFE, ["open_files_limit"]),
        ("[mariadbd-safe]\nport=3310\nnice=5\nmalloc-lib=x", SAFE, ["port"]),
        ("[safe_mysqld]\nlog-error=/a\n[mysqld]\nport=1", "/usr/bin/mysqld_safe", ["log_error"]),
        ("[mysqld_safe]\nport=3310", "/usr/bin/supervise mysql", []),
        ("[mysqld_safe]\nport=3310", "", []),
        ("[mysqld_safe2]\nport=3310", SAFE, []),
    ],
)
def test_what_mysqld_safe_adds_to_the_next_start(group: str, parent: str, found: list[str]) -> None:
    start = running((), {}, {"/etc/my.cnf": group}, parent)
    assert [word.option for word in asyncio.run(added(start))] == found


@pytest.mark.parametrize("line", ["mysqld=mariadbd-other", "ledir=/opt/none"])
def test_another_program_that_mysqld_safe_will_start_is_named(line: str) -> None:
    start = running((), {}, {"/etc/my.cnf": f"[mysqld_safe]\n{line}"}, SAFE)
    with pytest.raises(NotReady, match=r"/etc/my\.cnf:2 has mysqld_safe start another program"):
        asyncio.run(added(start))
