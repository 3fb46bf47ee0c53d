"""Cases of the rules about properties of ZFS datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import GIB, cores, healthy, unwell

DATASET = "tank/mysql"
GOOD = {
    "recordsize": "16384",
    "logbias": "latency",
    "sync": "standard",
    "primarycache": "metadata",
    "compression": "lz4",
    "dedup": "off",
    "direct": "disabled",
}
PAGES = {"innodb_pages_written": 400.0}
SYNCS = {"innodb_os_log_fsyncs": 300.0}


def on_zfs(
    unknown: str | None = None, below: Mapping[str, Mapping[str, str]] | None = None, **more: Any
) -> Evidence:
    """The data on a dataset; properties by their names, everything else as ``unwell`` takes it.

    ``below``: directories of the data that are datasets of their own, with properties that differ from the good.
    """
    found = GOOD | {name: more.pop(name) for name in list(more) if name in GOOD}
    below = below or {}
    mounts = [
        {**mount, "kind": "zfs", "source": DATASET, "block_device": None}
        if mount["mount_point"] == "/var/lib/mysql"
        else mount
        for mount in healthy().raw["file_systems"]
    ]
    data = next(mount for mount in mounts if mount["mount_point"] == "/var/lib/mysql")
    mounts += [
        {**data, "mount_point": f"/var/lib/mysql/{name}", "source": f"{DATASET}/{name}"} for name in below
    ]
    properties = {DATASET: found, **{f"{DATASET}/{name}": {**GOOD, **each} for name, each in below.items()}}
    facts = {
        "file_systems": mounts,
        "zfs": {"properties": {} if unknown else properties, "unknown": unknown},
        **more.pop("facts", {}),
    }
    return unwell(facts=facts, **more)


def on_btrfs(*options: str, **more: Any) -> Evidence:
    """The data on a btrfs that is mounted with these options."""
    mounts = {
        "file_systems./var/lib/mysql.kind": "btrfs",
        "file_systems./var/lib/mysql.super_options": ["rw", "space_cache=v2", *options],
    }
    return unwell(facts=mounts, **more)


CASES = [
    Case(
        "FS16",
        "records of 128 KiB",
        lambda: on_zfs(recordsize="131072", status_rates=PAGES),
        (DATASET,),
        (
            "tank/mysql has records of 128 KiB, and InnoDB pages of 16 KiB: 400 pages/s written",
            "up to 8 times",
        ),
        steps=("zfs set recordsize=16K tank/mysql", "new files only"),
        severity=Severity.COST,
    ),
    Case(
        "FS16",
        "large records at rest",
        lambda: on_zfs(
            recordsize="131072", status_rates={"innodb_pages_written": 0.0, "innodb_buffer_pool_reads": 0.0}
        ),
        (DATASET,),
        severity=Severity.ADVICE,
    ),
    Case(
        "FS16",
        "a database in a dataset of its own, beside one that is right",
        lambda: on_zfs(below={"shop": {"recordsize": "131072"}}, status_rates=PAGES),
        ("tank/mysql/shop",),
        ("400 pages/s written and 40 read in all 2 datasets with tables cost up to 8 times",),
        steps=("zfs set recordsize=16K tank/mysql/shop",),
        severity=Severity.ADVICE,
    ),
    Case(
        "FS16",
        "logs in datasets with large records",
        lambda: on_zfs(
            below={"redo": {"recordsize": "131072"}, "#binlog": {"recordsize": "1048576"}},
            variables={"innodb_log_group_home_dir": "./redo"},
            status_rates=PAGES,
        ),
    ),
    Case("FS16", "records are pages", lambda: on_zfs(status_rates=PAGES)),
    Case("FS16", "another file system", unwell),
    Case(
        "FS16",
        "no program to ask",
        lambda: on_zfs(unknown="the program zfs cannot be run"),
        missing="tank/mysql are unknown: the program zfs cannot be run; zfs get -Hp all tank/mysql",
    ),
    Case(
        "FS17",
        "no syncs",
        lambda: on_zfs(sync="disabled"),
        (DATASET,),
        ("tank/mysql, with the redo log and the binary log, has sync=disabled",),
        steps=("zfs set sync=standard tank/mysql", "SLOG"),
        severity=Severity.RISK,
    ),
    Case("FS17", "as usual", on_zfs),
    Case(
        "FS17",
        "the redo log of MySQL in a dataset of its own",
        lambda: on_zfs(vendor="mysql", below={"#innodb_redo": {"sync": "disabled"}}),
        ("tank/mysql/#innodb_redo",),
        ("tank/mysql/#innodb_redo, with the redo log, has sync=disabled",),
        steps=("zfs set sync=standard 'tank/mysql/#innodb_redo'",),
    ),
    Case(
        "FS17",
        "a redo log in a directory that is named from the data",
        lambda: on_zfs(below={"redo": {"sync": "disabled"}}, variables={"innodb_log_group_home_dir": "redo"}),
        ("tank/mysql/redo",),
        ("with the redo log, has sync=disabled",),
    ),
    Case(
        "FS17",
        "tables without syncs beside a log with them",
        lambda: on_zfs(below={"shop": {"sync": "disabled"}}),
        ("tank/mysql/shop",),
        ("tank/mysql/shop, with tables, has sync=disabled, and tank/mysql, with the redo log, has not",),
        steps=("zfs set sync=standard tank/mysql/shop",),
        severity=Severity.RISK,
    ),
    Case("FS17", "another file system", unwell),
    Case(
        "FS18",
        "cached twice",
        lambda: on_zfs(primarycache="all", gauges={"zfs.size.": 20.0 * GIB}),
        (DATASET,),
        ("primarycache=all: ZFS caches 20 GiB beside a buffer pool of 44 GiB",),
        steps=("zfs set primarycache=metadata tank/mysql", "zfs_arc_max"),
        severity=Severity.ADVICE,
    ),
    Case(
        "FS18",
        "no cache at all",
        lambda: on_zfs(primarycache="none"),
        (DATASET,),
        ("primarycache=none: every read of a page also reads metadata",),
        severity=Severity.COST,
    ),
    Case(
        "FS18",
        "a database whose dataset has no cache at all",
        lambda: on_zfs(below={"shop": {"primarycache": "none"}}),
        ("tank/mysql/shop",),
        ("tank/mysql/shop has primarycache=none",),
        severity=Severity.COST,
    ),
    Case(
        "FS18",
        "pages that go past it",
        lambda: on_zfs(
            primarycache="all",
            direct="standard",
            variables={"innodb_flush_method": "O_DIRECT"},
            gauges={"zfs.size.": 20.0 * GIB},
        ),
    ),
    Case(
        "FS18",
        "pages that are a part of a record do not",
        lambda: on_zfs(
            primarycache="all",
            direct="standard",
            recordsize="131072",
            variables={"innodb_flush_method": "O_DIRECT"},
            gauges={"zfs.size.": 20.0 * GIB},
        ),
        (DATASET,),
        severity=Severity.ADVICE,
    ),
    Case("FS18", "a small cache", lambda: on_zfs(primarycache="all", gauges={"zfs.size.": 1.0 * GIB})),
    Case("FS18", "metadata only", lambda: on_zfs(gauges={"zfs.size.": 20.0 * GIB})),
    Case(
        "FS19",
        "logs for throughput, and every write waits",
        lambda: on_zfs(logbias="throughput", sync="always", status_rates=SYNCS),
        (DATASET,),
        ("has logbias=throughput and sync=always, at 300 syncs/s of the log",),
        steps=("zfs set logbias=latency tank/mysql", "zfs set sync=standard tank/mysql"),
        severity=Severity.COST,
    ),
    Case("FS19", "as usual", lambda: on_zfs(status_rates=SYNCS)),
    Case("FS19", "another file system", unwell),
    Case(
        "FS20",
        "gzip and deduplication",
        lambda: on_zfs(
            compression="gzip-9",
            dedup="on",
            status_rates=PAGES,
            rates=cores(system=30.0, user=10.0, idle=58.0),
        ),
        (DATASET,),
        ("tank/mysql has compression=gzip-9 and dedup=on: 400 pages/s are written",),
        steps=("zfs set compression=lz4 tank/mysql", "zfs set dedup=off tank/mysql"),
        severity=Severity.COST,
    ),
    Case(
        "FS20",
        "a database whose dataset deduplicates",
        lambda: on_zfs(below={"shop": {"dedup": "on"}}, status_rates=PAGES),
        ("tank/mysql/shop",),
        ("tank/mysql/shop has dedup=on",),
    ),
    Case("FS20", "a fast level of zstd", lambda: on_zfs(compression="zstd-3", status_rates=PAGES)),
    Case("FS20", "another file system", unwell),
    Case(
        "FS21",
        "pages that are copied",
        lambda: on_btrfs("compress=zstd:3", status_rates=PAGES, rates={"psi.some_total_us.io": 400_000.0}),
        ("/var/lib/mysql",),
        (
            "no nodatacow, at 400 pages/s written: unless its files have chattr +C",
            "wait for I/O 40% of the time",
        ),
        steps=("lsattr -d /var/lib/mysql", "chattr +C"),
        severity=Severity.COST,
    ),
    Case(
        "FS21",
        "at rest, on a kernel that counts no waits",
        lambda: on_btrfs(without=["psi"]),
        ("/var/lib/mysql",),
        ("how much tasks wait for I/O is unknown",),
        severity=Severity.ADVICE,
    ),
    Case("FS21", "changed in place", lambda: on_btrfs("nodatacow", status_rates=PAGES)),
    Case("FS21", "another file system", unwell),
    Case("FS21", "no server", lambda: on_btrfs(has_server=False), missing="no server was queried"),
    Case(
        "FLUSH09",
        "records smaller than a page",
        lambda: on_zfs(recordsize="8192", variables={"innodb_doublewrite": "OFF"}),
        ("",),
        ("innodb_doublewrite is OFF",),
    ),
    Case(
        "FLUSH09",
        "records of one database smaller than a page",
        lambda: on_zfs(below={"shop": {"recordsize": "4096"}}, variables={"innodb_doublewrite": "OFF"}),
        ("",),
        ("innodb_doublewrite is OFF",),
    ),
    Case(
        "MEM07",
        "a container that sees the cache of its host",
        lambda: on_zfs(
            gauges={
                "memory.MemAvailable.": 0.5 * GIB,
                "zfs.size.": 40.0 * GIB,
                "zfs.c_min.": 8.0 * GIB,
                "zfs.c_max.": 126.0 * GIB,
            }
        ),
        ("",),
        ("available memory fell to 512 MiB",),
    ),
    Case(
        "MEM07",
        "a cache that gives back what is needed",
        lambda: on_zfs(
            gauges={
                "memory.MemAvailable.": 0.5 * GIB,
                "zfs.size.": 20.0 * GIB,
                "zfs.c_min.": 2.0 * GIB,
                "zfs.c_max.": 31.0 * GIB,
            }
        ),
    ),
    Case("FLUSH09", "a page is a record", lambda: on_zfs(variables={"innodb_doublewrite": "OFF"})),
]
