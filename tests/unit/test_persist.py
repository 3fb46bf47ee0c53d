"""What a setting's file says, and whether the host and its server would still read it last."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace import knobs, persist
from headrace.errors import NotReady, Refused
from headrace.facts import HostFacts
from headrace.model import Facts

INCLUDES = {
    "/etc/mysql/my.cnf": "[client-server]\n"
    "!includedir /etc/mysql/conf.d/\n!includedir /etc/mysql/mariadb.conf.d/\n",
    "/etc/mysql/conf.d/mysql.cnf": "",
    "/etc/mysql/mariadb.conf.d/50-server.cnf": "",
}
CNF = "/etc/mysql/mariadb.conf.d/zz-headrace.cnf"
QUEUE = "/sys/block/sda/queue/scheduler"
RPS = "/sys/class/net/eth0/queues/rx-0/rps_cpus"


class Etc:
    """A target of which only some files exist."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    async def exists(self, path: str) -> bool:
        return any(name == path or name.startswith(f"{path}/") for name in self.files)

    async def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path].encode()


def host(vendor: str | None = "mariadb", *arguments: str, **more: Any) -> HostFacts:
    server = {"vendor": vendor, "version": "8.0.31", "pid": 7, "variables": {"datadir": "/var/lib/mysql/"}}
    return HostFacts(
        Facts(
            "0" * 16,
            {
                "server_settings": server if vendor else None,
                "servers": [{"pid": 7, "program": "mysqld", "command_line": ["mysqld", *arguments]}],
                **more,
            },
        )
    )


def lasting(name: str, text: str, instance: str = "", *paths: str) -> persist.Lasting:
    knob = knobs.find(name)
    found = knobs.Instance(knob, instance, paths or (knob.location,)) if knob.location else None
    return persist.Lasting(f"{name}@{instance}" if instance else name, text, found)


def files(
    etc: Etc, settings: list[persist.Lasting], facts: HostFacts, *, tuned: bool = False
) -> dict[str, str]:
    return asyncio.run(persist.files(etc, settings, facts, tuned=tuned))  # type: ignore[arg-type]


def test_what_lasts_is_in_files_of_our_own() -> None:
    etc = Etc(
        {
            **INCLUDES,
            persist.SYSCTL: "# comment\nvm.swappiness = 60\nvm.dirty_ratio = 5\n",
            "/lib/systemd/system/mariadb.service": "",
            "/etc/tuned/active_profile": "",
        }
    )
    settings = [
        lasting("host.vm.swappiness", "1"),
        lasting("host.thp", "never"),
        lasting("volume.scheduler", "none", "sda", QUEUE),
        lasting("host.rps_cpus", "f", "eth0", RPS),
        lasting("server.innodb_purge_threads", "8"),
        lasting("server.open_files_limit", "65535"),
    ]
    found = files(etc, settings, host())
    assert "vm.swappiness = 1\nvm.dirty_ratio = 5\n" in found[persist.SYSCTL]
    assert found[persist.TMPFILES].endswith("w /sys/kernel/mm/transparent_hugepage/enabled - - - - never\n")
    assert 'SUBSYSTEM=="block", KERNEL=="sda", ATTR{queue/scheduler}="none"' in found[persist.UDEV]
    assert 'SUBSYSTEM=="net", KERNEL=="eth0", ATTR{queues/rx-0/rps_cpus}="f"' in found[persist.UDEV]
    assert found[CNF].endswith("[mysqld]\ninnodb_purge_threads = 8\nopen_files_limit = 65535\n")
    assert found["/etc/systemd/system/mariadb.service.d/headrace.conf"].endswith(
        "[Service]\nLimitNOFILE=65535\n"
    )
    assert files(Etc({**etc.files, **found}), settings, host()) == found

    [(path, text)] = files(etc, settings[:3], host(None), tuned=True).items()
    assert path == "/etc/tuned/headrace-mysql/tuned.conf"
    assert "[sysctl]\nvm.swappiness=1\n" in text
    assert f"{QUEUE}=none\n" in text
    irq = lasting("host.irq_affinity", "0", "24", "/proc/irq/24/smp_affinity_list")
    with pytest.raises(Refused, match="interrupt numbers change with a boot"):
        files(etc, [irq], host(None))


def test_our_sysctls_are_applied_after_those_of_the_administrator() -> None:
    """systemd-sysctl and procps go by the file's name; 99-sysctl.conf is a link to /etc/sysctl.conf."""
    names = ["10-network.conf", "99-sysctl.conf", persist.SYSCTL.rpartition("/")[2]]
    assert sorted(names)[-1] == names[-1]


def test_a_device_is_known_by_what_stays_after_a_boot() -> None:
    facts = host(
        block_devices=[{"name": "sda", "stable_ids": ["ata-ST4000_Z1", "wwn-0x5000c500a"]}],
        network_interfaces=[{"name": "eth0", "pci_address": "0000:3b:00.0"}],
    )
    settings = [
        lasting("volume.scheduler", "none", "sda", QUEUE),
        lasting("host.rps_cpus", "f", "eth0", RPS),
    ]
    found = files(Etc({}), settings, facts)[persist.UDEV]
    assert 'SYMLINK=="disk/by-id/wwn-0x5000c500a", ATTR{queue/scheduler}="none"' in found
    assert 'KERNELS=="0000:3b:00.0", ATTR{queues/rx-0/rps_cpus}="f"' in found
    assert "KERNEL==" not in found
    again = [lasting("volume.scheduler", "mq-deadline", "sda", QUEUE)]
    after = files(Etc({persist.UDEV: found}), again, facts)[persist.UDEV]
    assert after.count("queue/scheduler") == 1
    assert 'ATTR{queue/scheduler}="mq-deadline"' in after
    assert "rps_cpus" in after


SETTING = [lasting("server.innodb_io_capacity", "2000")]


def test_a_folder_that_no_option_file_includes_is_not_read() -> None:
    bare = {name: text for name, text in INCLUDES.items() if name != "/etc/mysql/my.cnf"}
    with pytest.raises(NotReady, match="option files include none of"):
        files(Etc({**bare, "/etc/my.cnf": "[mysqld]\nport = 3306\n"}), SETTING, host())
    for argument in ("--no-defaults", "--defaults-file=/srv/my.cnf"):
        with pytest.raises(NotReady, match="option files include none of"):
            files(Etc({**INCLUDES, "/srv/my.cnf": "[mysqld]\n"}), SETTING, host("mariadb", argument))
    included = {
        **INCLUDES,
        "/srv/my.cnf": "!include /srv/more.cnf\n",
        "/srv/more.cnf": "!includedir /etc/mysql/conf.d",
    }
    found = files(Etc(included), SETTING, host("mariadb", "--defaults-file=/srv/my.cnf"))
    assert list(found) == ["/etc/mysql/conf.d/zz-headrace.cnf"]


def test_a_variable_that_a_later_line_sets_is_refused() -> None:
    main = INCLUDES["/etc/mysql/my.cnf"]
    for group, is_refused in (("mysqld", True), ("mariadb-10.11", True), ("client", False)):
        etc = Etc({**INCLUDES, "/etc/mysql/my.cnf": f"{main}[{group}]\nloose-innodb-io-capacity = 200\n"})
        if is_refused:
            with pytest.raises(Refused, match="cnf sets it after"):
                files(etc, SETTING, host())
        else:
            assert list(files(etc, SETTING, host())) == [CNF]
    earlier = Etc({**INCLUDES, "/etc/mysql/my.cnf": f"[mysqld]\ninnodb_io_capacity = 200\n{main}"})
    assert list(files(earlier, SETTING, host())) == [CNF]


def test_a_variable_that_set_persist_holds_is_refused() -> None:
    kept = {"Version": 2, "mysql_dynamic_variables": {"innodb_io_capacity": {"Value": "300"}}}
    etc = Etc(
        {
            "/etc/mysql/my.cnf": "!includedir /etc/mysql/conf.d/\n",
            "/etc/mysql/conf.d/a.cnf": "",
            "/var/lib/mysql/mysqld-auto.cnf": json.dumps(kept),
        }
    )
    with pytest.raises(Refused, match="SET PERSIST holds it") as refused:
        files(etc, SETTING, host("mysql"))
    assert refused.value.hint == "RESET PERSIST innodb_io_capacity"
    other = [lasting("server.innodb_io_capacity_max", "4000")]
    assert list(files(etc, other, host("mysql"))) == ["/etc/mysql/conf.d/zz-headrace.cnf"]
