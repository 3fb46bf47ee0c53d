"""Profiles as TuneD merges and applies them: what each case gives was compared with its own loader and merger."""

from __future__ import annotations

import pytest

from headrace.base.errors import NotReady, Refused
from tests.boot_replay import QUEUE, THP
from tests.unit.test_boot import ACTIVE, BASE, DB, SETTINGS, D
from tests.unit.test_persist import files

MAIN = "/etc/tuned/tuned-main.conf"
WITH = "[main]\ninclude=base\n"
ALWAYS, NEVER = "transparent_hugepages=always\n", "transparent_hugepages=never\n"
RATIOS = {f"{D}/10-a.conf": "vm.dirty_ratio = 5", f"{D}/50-b.conf": "vm.dirty_bytes = 5"}
#: Setting, files, whether ours decides.
CASES: list[tuple[str, dict[str, str], bool]] = [
    # No other word than 1, true and True is yes.
    ("thp", {DB: f"{WITH}[x]\ntype=vm\nenabled=yes\n{NEVER}", BASE: f"[vm]\n{ALWAYS}"}, False),
    ("thp", {DB: f"[vm]\nenabled=on\n{ALWAYS}"}, True),
    ("thp", {DB: f"{WITH}[vm]\nreplace=yes\n", BASE: f"[vm]\n{ALWAYS}"}, False),
    ("thp", {DB: f"{WITH}[vm]\nreplace=1\n", BASE: f"[vm]\n{ALWAYS}"}, True),
    ("thp", {DB: f"{WITH}[vm]\ndrop=transparent_hugepages x\n", BASE: f"[vm]\n{ALWAYS}"}, False),
    ("thp", {DB: f"{WITH}[vm]\ndrop=x, transparent_hugepages\n", BASE: f"[vm]\n{ALWAYS}"}, True),
    # Devices are those of the last section, and each device is of the first unit that names it.
    ("scheduler", {DB: f"{WITH}[disk]\nelevator=kyber\n", BASE: "[disk]\ndevices=sdb\n"}, False),
    ("scheduler", {DB: "[a]\ntype=disk\nelevator=kyber\n[b]\ntype=disk\nelevator=none\n"}, False),
    ("scheduler", {DB: "[a]\ntype=disk\nelevator=none\n[b]\ntype=disk\nelevator=kyber\n"}, True),
    ("scheduler", {DB: "[a]\ntype=disk\nx=1\n[b]\ntype=disk\nelevator=kyber\n"}, True),
    ("scheduler", {DB: "[a]\ntype=disk\ndevices=sdb\nx=1\n[b]\ntype=disk\nelevator=kyber\n"}, False),
    ("scheduler", {DB: "[a]\ntype=disk\ndevices_udev_regex=x\nx=1\n[b]\ntype=disk\nelevator=kyber\n"}, False),
    ("scheduler", {DB: "[a]\ntype=disk\ndevices=${d}\nelevator=kyber\n[b]\ntype=disk\nelevator=none\n"}, False),
    ("scheduler", {DB: f"[sysfs]\ndevices=sdb\n{QUEUE}/scheduler=kyber\n"}, False),
    # A unit for some machines alone may be left out.
    ("thp", {DB: f"[a]\ntype=vm\n{ALWAYS}[b]\ntype=vm\nuname_regex=x\n{NEVER}"}, False),
    ("thp", {DB: f"[a]\ntype=vm\n{NEVER}[b]\ntype=vm\ncpuinfo_regex=x\n{ALWAYS}"}, False),
    ("thp", {DB: f"[sysfs]\n{THP.replace('/mm/', '/mm/x/../')}=always\n"}, False),
    # [DEFAULT] is of every section, and a line that is set in goes on with the one before.
    ("thp", {DB: f"[DEFAULT]\n{ALWAYS}[vm]\nx=1\n"}, False),
    ("thp", {DB: "[vm]\nx=1\n transparent_hugepages=always\n"}, True),
    # The system's sysctls again, but for what is left to the profile.
    ("swappiness", {DB: "[sysctl]\nvm.swappiness=10\n", MAIN: "reapply_sysctl_exclude = a,vm.swap*"}, False),
    ("swappiness", {DB: "[sysctl]\nvm.swappiness=10\n", MAIN: "reapply_sysctl_exclude = vm.dirty*"}, True),
    ("swappiness", {DB: "[sysctl]\nuname_regex=x\nvm.swappiness=10\n"}, True),
    ("ratio", {DB: "[sysctl]\nx=1\n", **RATIOS}, False),
    ("ratio", {DB: "[vm]\n", **RATIOS}, True),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CASES)))
def test_what_tuned_makes_of_profiles(case: int) -> None:
    name, there, is_ours = CASES[case]
    setting, _ = SETTINGS[name]
    if is_ours:
        assert files({**ACTIVE, **there}, setting)
        return
    with pytest.raises(Refused, match=r"/\S+:\d+ decides it at boot"):
        files({**ACTIVE, **there}, setting)


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ({DB: "[main]\ninclude=gone\n"}, "no profile gone is there"),
        ({DB: "[main]\ninclude=base gone\n", BASE: ""}, "no profile base gone is there"),
        ({DB: "[vm]\nwithout a value\n"}, "TuneD cannot read it"),
        ({DB: f"[vm]\nuname_regex=x\n{NEVER}"}, ""),
    ],
)
def test_a_profile_of_ours_that_tuned_would_not_load_is_not_promised(there: dict[str, str], why: str) -> None:
    setting, _ = SETTINGS["thp"]
    if not why:
        assert files({**ACTIVE, **there}, setting, tuned=True)
        return
    with pytest.raises(NotReady, match=why):
        files({**ACTIVE, **there}, setting, tuned=True)


def test_a_condition_of_the_active_profile_is_none_of_ours() -> None:
    there = {**ACTIVE, DB: "[sysctl]\nuname_regex=x\nvm.swappiness=10\n"}
    with pytest.raises(Refused, match=r"/etc/tuned/db/tuned\.conf:2 decides it at boot"):
        files(there, SETTINGS["swappiness"][0], tuned=True)


def test_a_profile_that_is_loaded_later_takes_ours_away() -> None:
    later = {"/etc/tuned/post_loaded_profile": "base", BASE: "[sysctl]\nx=1\nenabled=yes\n"}
    with pytest.raises(Refused, match=r"/usr/lib/tuned/base/tuned\.conf:3 decides it at boot"):
        files({**ACTIVE, DB: "", **later}, SETTINGS["swappiness"][0], tuned=True)


def test_a_profile_that_the_one_for_files_includes_may_be_gone() -> None:
    """TuneD then sets nothing, and our file holds."""
    assert files({**ACTIVE, DB: f"[main]\ninclude=gone\n[vm]\n{NEVER}"}, SETTINGS["thp"][0])
