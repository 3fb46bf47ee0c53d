"""Hosts that boot another kernel and come back, on a host of rules: killed before every single command, too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import NotReady, Refused, StoreError, TargetError, TreatmentFailed
from headrace.experiment import loaders, reboot
from headrace.experiment.boot import Boot
from headrace.experiment.plan import MachineTable
from headrace.host.target import TargetSpec
from tests.rebooting import ENVIRONMENT, Killed, RebootingHost

OLD, NEW = "6.1.0-18-amd64", "6.12.9+bpo-amd64"
LOADERS = ("grub", "systemd-boot")


def machine_of(host: RebootingHost, boot_timeout_s: float = 10) -> reboot.RebootedHost:
    table = MachineTable(allow_reboot=True, hosts=["db1"], boot_timeout_s=boot_timeout_s)
    spec = TargetSpec("ssh", host="db1", user="root")
    found: Any = host
    return reboot.RebootedHost(spec, table, reach=lambda _: found, between_looks_s=0)


def experiment(host: RebootingHost, *kernels: str) -> None:
    """What a run does to the machine; what it measures between is of no matter here."""

    async def work() -> None:
        machine = machine_of(host)
        for kernel in kernels:
            await machine.ready(Boot(kernel), lambda _: None)
            assert host.running.startswith(kernel)
        await machine.release(lambda _: None)

    asyncio.run(work())


@pytest.mark.parametrize("loader", LOADERS)
def test_it_boots_each_kernel_and_leaves_the_host_as_it_was(loader: str) -> None:
    host = RebootingHost(OLD, offered=[NEW], loader=loader)
    before = host.state()
    experiment(host, "6.12", "6.1", "6.12")
    assert host.boots == [OLD, NEW, OLD, NEW, OLD]
    assert host.state() == before


@pytest.mark.parametrize("loader", LOADERS)
def test_an_installed_kernel_is_not_installed_again_and_stays(loader: str) -> None:
    host = RebootingHost(OLD, NEW, loader=loader)
    host.running = OLD
    host.efi["default"] = f"abc-{OLD}.conf"
    experiment(host, "6.12")
    assert host.running == OLD
    assert sorted(host.installed) == sorted([OLD, NEW])


@pytest.mark.parametrize("lists_an_array", [False, True])
def test_the_entries_of_systemd_boot_are_read_as_its_version_prints_them(lists_an_array: bool) -> None:
    """systemd 252 prints one object after the other, later versions one array; some entries have no file."""
    host = RebootingHost(OLD, NEW, loader="systemd-boot", lists_an_array=lists_an_array)
    host.running = OLD
    host.efi["default"] = f"abc-{OLD}.conf"
    before = host.state()
    experiment(host, "6.12")
    assert host.boots[-2:] == [NEW, OLD]
    assert host.state() == before
    assert loaders.boot_entries("") == []
    assert loaders.boot_entries('{"id": "a"}') == [{"id": "a"}]


def test_an_entry_of_systemd_boot_is_what_it_was_to_the_byte() -> None:
    host = RebootingHost(OLD, NEW, loader="systemd-boot")
    host.running = OLD
    host.efi["default"] = f"abc-{OLD}.conf"
    host.files[f"/boot/loader/entries/abc-{NEW}.conf"] = b"title D\xe9bian\r\noptions ro\n"
    before = host.state()
    experiment(host, "6.12")
    assert host.state() == before


def test_a_unified_image_that_would_not_reboot_after_a_panic_is_refused() -> None:
    host = RebootingHost(OLD, NEW, loader="systemd-boot", images=[NEW])
    host.running = OLD
    host.efi["default"] = f"abc-{OLD}.conf"
    before = host.state()
    with pytest.raises(Refused, match="unified image"):
        experiment(host, "6.12")
    assert host.boots == [NEW]
    asyncio.run(machine_of(host).release(lambda _: None))
    assert host.state() == before


@pytest.mark.parametrize("there", [None, ENVIRONMENT, b"# padded\nnext_entry=mine\n"])
def test_the_environment_of_grub_is_what_it_was_to_the_byte(there: bytes | None) -> None:
    """GRUB keeps the line of an entry that it has booted, and with GRUB_SAVEDEFAULT writes every boot's."""
    host = RebootingHost(OLD, NEW, saves_default=True)
    host.running = OLD
    if there is not None:
        host.files[loaders.GRUB_ENVIRONMENT] = there
    before = host.state()
    experiment(host, "6.12", "6.1")
    assert host.boots[-2:] == [NEW, OLD]
    assert host.state() == before


#: Made before the last change of its settings, or from another system, as an installer does.
STALE = b"set timeout=30\n"


def test_a_configuration_of_grub_that_it_would_not_make_today_is_what_it_was_to_the_byte() -> None:
    host = RebootingHost(OLD, NEW)
    host.running = OLD
    host.files[loaders.GRUB_CONFIG] = STALE + host.files[loaders.GRUB_CONFIG]
    before = host.state()
    experiment(host, "6.12", "6.1")
    assert host.boots[-2:] == [NEW, OLD]
    assert host.state() == before


def test_a_configuration_of_grub_that_lacks_what_was_installed_meanwhile_does_not_come_back() -> None:
    host = RebootingHost(OLD, NEW)
    host.running = OLD
    host.files[loaders.GRUB_CONFIG] = STALE + host.files[loaders.GRUB_CONFIG]

    async def work() -> None:
        machine = machine_of(host)
        await machine.ready(Boot("6.12"), lambda _: None)
        host.installed.append("6.1.0-19-amd64")
        await machine.release(lambda _: None)

    asyncio.run(work())
    assert b"vmlinuz-6.1.0-19-amd64" in host.files[loaders.GRUB_CONFIG]
    assert STALE not in host.files[loaders.GRUB_CONFIG]


@pytest.mark.parametrize(
    ("said", "expected"),
    [("", loaders.Grub), ("GRUB 2.12", loaders.Grub), ("systemd-boot 255", loaders.SystemdBoot)],
)
def test_the_loader_is_the_one_that_booted_not_one_that_is_installed(said: str, expected: type) -> None:
    """An ESP may hold both; bootctl calls systemd-boot installed when the firmware starts GRUB."""
    host = RebootingHost(OLD, NEW)
    host.booted_by = said
    host.connected = True
    found: Any = host
    assert isinstance(asyncio.run(loaders.find_loader(found)), expected)


def test_a_host_may_need_minutes_for_what_systemd_and_apt_do() -> None:
    host = RebootingHost(OLD, offered=[NEW], slow_s=200)
    before = host.state()
    experiment(host, "6.12")
    assert host.boots == [OLD, NEW, OLD]
    assert host.state() == before


def test_the_kernel_that_runs_costs_no_boot() -> None:
    host = RebootingHost(OLD)
    before = host.state()
    experiment(host, "6.1")
    assert host.boots == [OLD]
    assert host.state() == before


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("how", ["panics", "mute"])
def test_a_kernel_that_does_not_come_up_falls_back_and_is_a_failed_treatment(how: str, loader: str) -> None:
    panics, mute = ([NEW], []) if how == "panics" else ([], [NEW])
    host = RebootingHost(OLD, offered=[NEW], loader=loader, panics=panics, mute=mute)
    before = host.state()
    machine = machine_of(host)
    with pytest.raises(TreatmentFailed, match=f"returned with {OLD}"):
        asyncio.run(machine.ready(Boot("6.12"), lambda _: None))
    assert host.running == OLD
    asyncio.run(machine.release(lambda _: None))
    assert host.state() == before


@pytest.mark.parametrize("loader", LOADERS)
def test_a_run_killed_before_any_of_its_commands_is_put_right_by_the_next(loader: str) -> None:
    host = RebootingHost(OLD, offered=[NEW], loader=loader)
    experiment(host, "6.12", "6.1")
    commands = host.commands
    assert commands > 40
    for at in range(1, commands + 1):
        host = RebootingHost(OLD, offered=[NEW], loader=loader)
        before = host.state()
        host.kill_at = at
        with pytest.raises(Killed):
            experiment(host, "6.12", "6.1")
        assert host.kill_at is None
        # A power cut on top of it: whatever runs now, the host boots what it did.
        host._boot()
        host._boot()
        assert host.running == OLD, f"killed before command {at}"
        experiment(host, "6.12", "6.1")
        assert host.state() == before, f"killed before command {at}"


def test_a_run_that_only_ends_puts_right_what_a_killed_one_left() -> None:
    """Every trial is on disk already: nothing boots but what the way back needs."""
    host = RebootingHost(OLD, offered=[NEW])
    before = host.state()
    asyncio.run(machine_of(host).ready(Boot("6.12"), lambda _: None))
    assert host.running == NEW
    asyncio.run(machine_of(host).release(lambda _: None))
    assert host.state() == before


@pytest.mark.parametrize("place", ["ext4 /dev/mapper/vg-root", "btrfs /dev/vda1", ""])
def test_a_boot_that_grub_could_not_forget_is_refused(place: str) -> None:
    host = RebootingHost(OLD, offered=[NEW], grub_on=place)
    before = host.state()
    with pytest.raises(Refused, match="again and again"):
        experiment(host, "6.12")
    assert host.state() == before


def test_a_package_that_would_upgrade_others_is_refused() -> None:
    host = RebootingHost(OLD, offered=[NEW], upgrades=["libc6"])
    before = host.state()
    machine = machine_of(host)
    with pytest.raises(Refused, match="libc6"):
        asyncio.run(machine.ready(Boot("6.12"), lambda _: None))
    asyncio.run(machine.release(lambda _: None))
    assert host.state() == before


def test_a_kernel_that_nobody_offers_is_said() -> None:
    with pytest.raises(NotReady, match=r"no kernel 3\.2 is installed"):
        experiment(RebootingHost(OLD, offered=[NEW]), "3.2")


def test_without_root_nothing_is_done() -> None:
    host = RebootingHost(OLD, offered=[NEW])
    host.is_root = False
    with pytest.raises(NotReady, match="only root"):
        experiment(host, "6.12")


def test_the_machine_that_headrace_runs_on_is_never_rebooted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where its address does not look like it: the boot tells."""
    host = RebootingHost(OLD, offered=[NEW])
    monkeypatch.setattr(Path, "read_text", lambda _: "boot-1\n")
    with pytest.raises(Refused, match="runs on"):
        experiment(host, "6.12")


def test_a_host_that_does_not_come_back_is_told_with_the_way_out() -> None:
    host = RebootingHost(OLD, offered=[NEW])
    machine = machine_of(host)
    # No table allows so little patience; the host needs more than this.
    machine._table = machine._table.model_copy(update={"boot_timeout_s": 0.01})
    asyncio.run(machine.ready(Boot("6.1"), lambda _: None))

    async def never() -> None:
        raise TargetError("no route to host")

    async def work() -> None:
        async with machine._connected() as target:
            host.connect = never  # type: ignore[method-assign]
            await machine._boot(target, lambda _: None)

    with pytest.raises(TargetError, match="was not reachable"):
        asyncio.run(work())


def test_a_journal_that_cannot_be_read_is_not_ignored() -> None:
    host = RebootingHost(OLD, offered=[NEW])
    host.files[reboot.JOURNAL] = b'{"format": 2}'
    with pytest.raises(StoreError, match="cannot be read"):
        experiment(host, "6.12")


def test_the_entry_of_a_kernel_is_the_innermost_and_never_recovery() -> None:
    host = RebootingHost(OLD, NEW)
    config = host.files[loaders.GRUB_CONFIG].decode()
    for release in (OLD, NEW):
        expected = f"gnulinux-advanced-1f2e3d4c>gnulinux-{release}-advanced-1f2e3d4c"
        assert loaders.grub_entry(config, release) == expected
    assert loaders.grub_entry(config, "6.1.0-1-amd64") is None


def test_the_newest_of_a_series_and_of_what_apt_would_do() -> None:
    releases = ["6.1.0-9-amd64", "6.1.0-18-amd64", "6.12.9+bpo-amd64"]
    assert reboot.newest("6.1", releases) == "6.1.0-18-amd64"
    assert reboot.newest("6.12", releases) == "6.12.9+bpo-amd64"
    assert reboot.newest("5.10", releases) is None
    assert reboot.newest("6.1.0-9-amd64", [*releases, "6.1.0-9-amd64-unsigned"]) == "6.1.0-9-amd64"
    said = "Inst linux-image-a (1 Debian [amd64])\nInst libc6 [2.36] (2.37)\nRemv old [1]\nConf libc6\n"
    assert reboot.planned(said) == (["linux-image-a"], ["libc6", "old"])


CLOUD, PLAIN = "6.12.117+deb12-cloud-amd64", "6.12.116+deb12-amd64"


@pytest.mark.parametrize(
    ("running", "wanted", "expected"),
    [
        ("6.1.0-56-cloud-amd64", "6.12", CLOUD),
        ("6.1.0-56-amd64", "6.12", PLAIN),
        ("6.1.0-56-amd64", CLOUD, CLOUD),
        ("6.1.0-56-rt-amd64", "6.12", PLAIN),
    ],
)
def test_a_version_means_the_flavour_that_the_host_runs(running: str, wanted: str, expected: str) -> None:
    """Packages offered, and kernels installed already."""
    host = RebootingHost(running, offered=[CLOUD, PLAIN, f"{CLOUD}-unsigned", f"{PLAIN}-dbg"])
    experiment(host, wanted)
    assert host.boots == [running, expected, running]
    host = RebootingHost(running, CLOUD, PLAIN)
    host.running = running
    experiment(host, wanted)
    assert host.boots[1:] == [expected, running]


def test_an_entry_of_systemd_boot_gets_its_panic_once() -> None:
    entry = "title Debian\noptions root=/dev/vda1 ro\nlinux /x\n"
    once = loaders.with_panic(entry)
    assert "options root=/dev/vda1 ro panic=30\n" in once
    assert loaders.with_panic(once) == once
    assert loaders.with_panic("linux /x\n") == "linux /x\noptions panic=30\n"
