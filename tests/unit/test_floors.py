"""Limits too small to run the machine or its server are refused, with what would fail."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from headrace.base.model import Facts, Value
from headrace.change.beyond import why_not
from headrace.change.floors import NAMES
from headrace.host.facts import HostFacts
from headrace.host.target import Completed
from headrace.knobs.host import sysctl_path

NOW = {
    "net.ipv4.tcp_mem": "287901\t383868\t575802",
    "net.ipv4.tcp_rmem": "4096\t131072\t33554432",
    "net.ipv4.ip_local_port_range": "32768\t60999",
    "net.ipv4.ip_local_reserved_ports": "",
    "fs.inotify.max_user_instances": "128",
    "net.ipv4.tcp_max_orphans": "131072",
    "kernel.pty.max": "32",
}
VARIABLES = {
    "innodb_ft_total_cache_size": "640000000",
    "max_connections": "151",
    "max_join_size": "18446744073709551615",
    "max_user_connections": "0",
    "sql_select_limit": "18446744073709551615",
    "wait_timeout": "3",
}


class _Host:
    """A host that answers what is asked of it by reading files."""

    def __init__(self) -> None:
        self.target = self

    async def run(self, words: list[str], **_: object) -> Completed:
        if not any("sockstat" in word for word in words):
            return Completed(
                (), 0, b"0.1 0.1 0.1 1/300 999 2000 0 99999 128\nMemAvailable: 18874368 kB\n", b""
            )
        lines = ["TCP: inuse 35 orphan 0 tw 0 alloc 35 mem 900", "UDP: inuse 0 mem 0"]
        lines += [f"{sysctl_path(name)}={text}" for name, text in NOW.items() if sysctl_path(name) in words]
        return Completed((), 0, "\n".join(lines).encode(), b"")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"host.net.ipv4.tcp_mem": "1 1 1"}, "1 pages for all of TCP; 900 are used now"),
        ({"host.net.ipv4.tcp_mem": "2102 2102 2102"}, ""),
        ({"host.net.ipv4.tcp_mem": "2101 2101 2101"}, "below 2102"),
        ({"host.net.ipv4.tcp_mem": "9000 8000 7000"}, "pressure begins above"),
        ({"host.net.ipv4.tcp_mem": "9000 9000 99999999"}, "more than the machine's"),
        ({"host.net.ipv4.udp_mem": "1 1 1"}, "for all of UDP"),
        ({"host.net.ipv4.tcp_rmem": "1 1 1"}, "a receive buffer of more than 1 bytes"),
        ({"host.net.ipv4.tcp_rmem": "4096 65536 1048576"}, ""),
        ({"host.net.ipv4.ip_local_port_range": "50000 50010"}, "11 ports would be left"),
        ({"host.net.ipv4.ip_local_port_range": "10000 65535"}, ""),
        ({"host.net.ipv4.ip_local_reserved_ports": "1-60990"}, "9 ports would be left"),
        ({"host.net.ipv4.ip_local_reserved_ports": "3306,33060"}, ""),
        (
            {
                "host.net.ipv4.ip_local_port_range": "30000 32000",
                "host.net.ipv4.ip_local_reserved_ports": "30000-31500",
            },
            "500 ports would be left",
        ),
        ({"host.fs.inotify.max_user_instances": "1"}, "systemd, udev"),
        ({"host.fs.inotify.max_user_instances": "8192"}, ""),
        ({"host.net.ipv4.tcp_max_orphans": 1}, "1 is below 1024"),
        # It is not made smaller.
        ({"host.kernel.pty.max": "40"}, ""),
        ({"server.wait_timeout": "4"}, ""),
        ({"server.wait_timeout": "1"}, "clients that pause"),
        ({"server.sql_select_limit": "1"}, "silently lose rows"),
        ({"server.max_join_size": "1"}, "joins"),
        ({"server.max_user_connections": "1"}, "further clients"),
        ({"server.max_user_connections": "0"}, ""),
        ({"server.max_allowed_packet": "1K"}, "1K is below 1048576: larger rows"),
        ({"server.max_allowed_packet": "64M"}, ""),
        ({"server.max_statement_time": "0.001"}, "longer statements"),
        ({"server.max_statement_time": "0"}, ""),
        ({"server.innodb_ft_cache_size": "1G"}, "all of them together 0.6 GiB"),
        ({"server.innodb_ft_cache_size": "8M"}, ""),
        ({"server.mhnsw_max_cache_size": "100G"}, "100 GiB"),
        ({"host.net.netfilter.nf_conntrack_buckets": 1 << 30}, "take 8.0 GiB"),
        ({"host.vm.swappiness": "1"}, ""),
    ],
)
async def test_what_is_too_small_is_refused(settings: dict[str, Value], says: str) -> None:
    server = {"vendor": "mariadb", "version": "11.8.3", "variables": VARIABLES}
    host = HostFacts(Facts("", {"memory": {"total_bytes": 24 << 30}, "server_settings": server}))
    why = await why_not(_Host(), settings, host)  # type: ignore[arg-type]
    assert says in "; ".join(why.values())
    assert bool(why) == bool(says)


@pytest.mark.parametrize("name", sorted(NAMES))
async def test_the_smallest_of_all_is_too_small(name: str) -> None:
    value = {"host.net.ipv4.ip_local_reserved_ports": "1-65535", "host.net.ipv4.ip_local_port_range": "9 9"}
    three = "1 1 1" if name.endswith("mem") and "ipv4" in name else "0.01"
    host = HostFacts(Facts("", {"memory": {"total_bytes": 24 << 30}}))
    assert await why_not(_Host(), {name: value.get(name, three)}, host)  # type: ignore[arg-type]


async def test_what_this_kernel_has_is_read_whole() -> None:
    """A shell that reads a byte at a time gets the first digit alone."""

    class _Here:
        def __init__(self) -> None:
            self.target = self

        async def run(self, words: list[str], **_: object) -> Completed:
            done = await asyncio.to_thread(subprocess.run, words, capture_output=True, check=False)
            return Completed((), done.returncode, done.stdout, done.stderr)

    name = "net.ipv4.tcp_max_orphans"
    has = Path(sysctl_path(name)).read_text().strip()
    host = HostFacts(Facts("", {"memory": {"total_bytes": 24 << 30}}))
    why = await why_not(_Here(), {f"host.{name}": "0"}, host)  # type: ignore[arg-type]
    assert f"(it is {has} now)" in why[f"host.{name}"]
