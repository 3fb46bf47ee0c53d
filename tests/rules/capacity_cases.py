"""Cases of the rules about what runs out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.hunt.rules.evidence import Evidence
from tests.rules.case import Case
from tests.rules.hosts import GIB, unwell

DATA = "/var/lib/mysql"
GROUP = "/sys/fs/cgroup/system.slice/mysql.service"


def counters(*rows: Mapping[str, Any]) -> Evidence:
    return unwell(facts={"server_settings.auto_increment": list(rows)})


ORDERS = {"column": "shop.orders.id", "column_type": "int", "next": 2_000_000_000, "limit": 2_147_483_647}
TASKS = {f"cgroup.tasks.{GROUP}": 460.0, f"cgroup.tasks_limit.{GROUP}": 512.0}
HIGH = {f"cgroup.memory_high.{GROUP}": 35.0}
TRACKED = {
    "sysctls.net.netfilter.nf_conntrack_max": "65536",
    "sysctls.net.netfilter.nf_conntrack_count": "61000",
}

CASES = [
    Case(
        "FS11",
        "ten hours",
        lambda: unwell(
            series={f"file_systems.available_bytes.{DATA}": [-1e6] * 12},
            starts={f"file_systems.available_bytes.{DATA}": 36e9},
        ),
        (DATA,),
        ("/var/lib/mysql (data, redo log", "fills up by 977 KiB/s: the remaining 33.5 GiB last 10.0 hours"),
    ),
    Case("FS11", "years", unwell),
    Case("FS11", "not sampled", lambda: unwell(without=["file_systems"]), missing="sampler file_systems"),
    Case(
        "FS12",
        "one percent",
        lambda: unwell(gauges={f"file_systems.available_inodes.{DATA}": 8e6}),
        (DATA,),
        ("has 8,000,000 of 900,000,000 inodes left.",),
    ),
    Case("FS12", "many", unwell),
    Case("FS12", "not sampled", lambda: unwell(without=["file_systems"]), missing="sampler file_systems"),
    Case(
        "FS13",
        "after an error",
        lambda: unwell(facts={f"file_systems.{DATA}.super_options": ["ro", "errors=remount-ro"]}),
        (DATA,),
        ("is mounted read-only",),
    ),
    Case(
        "FS13",
        "on purpose",
        lambda: unwell(facts={f"file_systems.{DATA}.options": ["ro"]}, variables={"innodb_read_only": "ON"}),
    ),
    Case("FS13", "writable", unwell),
    Case(
        "LIM06",
        "93 percent",
        lambda: counters(ORDERS),
        ("shop.orders.id",),
        ("shop.orders.id (int) has used 93% of its numbers: the next is 2,000,000,000 of 2,147,483,647",),
    ),
    Case("LIM06", "half", lambda: counters({**ORDERS, "next": 1_100_000_000})),
    Case(
        "LIM06",
        "unknown",
        lambda: unwell(facts={"server_settings.auto_increment": None}),
        missing="did not report its AUTO_INCREMENT",
    ),
    Case(
        "LIM07",
        "held back",
        lambda: unwell(rates=HIGH, facts={"servers.1322.cgroup.memory_high_bytes": 40 * GIB}),
        (GROUP,),
        ("went above memory.high 35.0 times per second, which is 40 GiB",),
    ),
    Case("LIM07", "not once", lambda: unwell(rates={f"cgroup.memory_high.{GROUP}": 0.0})),
    Case("LIM07", "not sampled", lambda: unwell(without=["cgroup"]), missing="sampler cgroup"),
    Case(
        "LIM08",
        "refused",
        lambda: unwell(
            gauges={**TASKS, f"cgroup.tasks.{GROUP}": 300.0}, rates={f"cgroup.tasks_refused.{GROUP}": 1.0}
        ),
        (GROUP,),
        ("was refused 60 tasks during the window; it has 300 of 512",),
    ),
    Case("LIM08", "near", lambda: unwell(gauges=TASKS, rates={f"cgroup.tasks_refused.{GROUP}": 0.0})),
    Case("LIM08", "not sampled", lambda: unwell(without=["cgroup"]), missing="sampler cgroup"),
    Case(
        "LIM09",
        "a third of the disk",
        lambda: unwell(facts={"server_settings.temporary_tablespace_bytes": 400 * GIB}),
        ("",),
        ("ibtmp1 has 400 GiB, and 900 GiB is left on /var/lib/mysql",),
    ),
    Case(
        "LIM09",
        "with a maximum",
        lambda: unwell(
            facts={"server_settings.temporary_tablespace_bytes": 400 * GIB},
            variables={"innodb_temp_data_file_path": "ibtmp1:12M:autoextend:max:500G"},
        ),
    ),
    Case("LIM09", "small", unwell),
    Case(
        "LIM09",
        "unknown",
        lambda: unwell(facts={"server_settings.temporary_tablespace_bytes": None}),
        missing="size of its temporary tablespace",
    ),
    Case("NET09", "nearly full", lambda: unwell(facts=TRACKED), ("",), ("61,000 of 65,536 connections",)),
    Case(
        "NET09",
        "room",
        lambda: unwell(facts={**TRACKED, "sysctls.net.netfilter.nf_conntrack_count": "900"}),
    ),
    Case("NET09", "no tracking", unwell),
]
