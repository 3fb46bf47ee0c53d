"""Cases of the rules about file systems."""

from __future__ import annotations

from typing import Any

from headrace.hunt.rules.rule import Severity
from tests.rules.block_cases import DISK, SATURATED, VOLATILE, WAITS
from tests.rules.case import Case
from tests.rules.hosts import GIB, unwell

MOUNT = "/var/lib/mysql"
AT = f"file_systems.{MOUNT}"


def mounted(kind: str, *options: str) -> dict[str, Any]:
    return {f"{AT}.kind": kind, f"{AT}.options": ["rw", "noatime"], f"{AT}.super_options": ["rw", *options]}


NOWHERE: dict[str, Any] = {"file_systems": []}
FULL = {f"file_systems.available_bytes.{MOUNT}": 40.0 * GIB}

CASES = [
    Case(
        "FS05",
        "unknown options",
        lambda: unwell(facts={"file_systems./var/lib/mysql.options": None}),
        missing="options of the mount",
    ),
    Case(
        "FS01",
        "ext4 with data=journal",
        lambda: unwell(facts=mounted("ext4", "nodioread_nolock", "nodelalloc", "data=journal")),
        (MOUNT,),
        ("/var/lib/mysql, with the server's data, is ext4 with data=journal at 1,500 writes/s",),
    ),
    Case(
        "FS01",
        "seen from the process alone",
        lambda: unwell(facts=mounted("ext4", "data=journal"), has_server=False),
        (MOUNT,),
    ),
    Case("FS01", "ordered", lambda: unwell(facts=mounted("ext4", "data=ordered"))),
    Case("FS01", "XFS", unwell),
    Case("FS01", "no file systems", lambda: unwell(facts=NOWHERE), missing="no file system is known"),
    Case(
        "FS01",
        "no server at all",
        lambda: unwell(facts={"servers": []}, has_server=False),
        missing="no server was queried",
    ),
    Case(
        "FS02",
        "on a volatile cache",
        lambda: unwell(facts={**mounted("ext4", "nobarrier"), **VOLATILE}),
        (MOUNT,),
        ("mounted without barriers on nvme1n1",),
    ),
    Case("FS02", "on a protected cache", lambda: unwell(facts=mounted("ext4", "nobarrier"))),
    Case("FS02", "with barriers", lambda: unwell(facts={**mounted("ext4"), **VOLATILE})),
    Case("FS02", "no file systems", lambda: unwell(facts=NOWHERE), missing="no file system is known"),
    Case(
        "FS03",
        "discard",
        lambda: unwell(facts=mounted("xfs", "discard", "logbsize=256k")),
        (MOUNT,),
        ("mounted with discard",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "FS03",
        "a few discards that nobody feels",
        lambda: unwell(
            facts=mounted("xfs", "discard", "logbsize=256k"),
            rates={f"disk.discards.{DISK}": 3.0, f"disk.discard_ms.{DISK}": 2.0},
        ),
        (MOUNT,),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "FS03",
        "a fifth of the time",
        lambda: unwell(
            facts=mounted("xfs", "discard", "logbsize=256k"),
            rates={f"disk.discards.{DISK}": 300.0, f"disk.discard_ms.{DISK}": 200.0},
        ),
        (MOUNT,),
        severity=Severity.COST,
    ),
    Case(
        "FS03",
        "those of a neighbour, beside a server that does nothing",
        lambda: unwell(
            facts=mounted("xfs", "discard", "logbsize=256k"),
            rates={f"disk.discards.{DISK}": 300.0, f"disk.discard_ms.{DISK}": 200.0},
            status_rates=dict.fromkeys(("innodb_data_fsyncs", "innodb_os_log_fsyncs"), 0.5),
        ),
        (MOUNT,),
        severity=Severity.HOUSEKEEPING,
    ),
    Case("FS03", "without", unwell),
    Case("FS03", "no file systems", lambda: unwell(facts=NOWHERE), missing="no file system is known"),
    Case(
        "FS04",
        "32k",
        lambda: unwell(facts=mounted("xfs", "logbsize=32k")),
        (MOUNT,),
        ("log buffers of 32k at 1,500 writes/s",),
    ),
    Case("FS04", "256k", unwell),
    Case(
        "FS04",
        "few writes",
        lambda: unwell(facts=mounted("xfs", "logbsize=32k"), rates={f"disk.writes.{DISK}": 9.0}),
    ),
    Case(
        "FS04",
        "not sampled",
        lambda: unwell(facts=mounted("xfs", "logbsize=32k"), without=["disk"]),
        missing="block devices were not",
    ),
    Case(
        "FS05",
        "strictatime",
        lambda: unwell(facts={f"{AT}.options": ["rw"]}),
        (MOUNT,),
        ("mounted with strictatime",),
    ),
    Case(
        "FS05",
        "relatime on a host that waits",
        lambda: unwell(facts={f"{AT}.options": ["rw", "relatime"]}, rates=WAITS),
        (MOUNT,),
        ("mounted with relatime",),
    ),
    Case("FS05", "relatime", lambda: unwell(facts={f"{AT}.options": ["rw", "relatime"]})),
    Case("FS05", "noatime", lambda: unwell(rates=WAITS)),
    Case(
        "FS05",
        "no PSI",
        lambda: unwell(facts={f"{AT}.options": ["rw", "relatime"]}, without=["psi"]),
        missing="psi.some_total_us",
    ),
    Case(
        "FS06",
        "2% left",
        lambda: unwell(gauges=FULL),
        (MOUNT,),
        ("/var/lib/mysql (data, redo log) is 98% full: 40 GiB of 1.76 TiB is left",),
        steps=("a replica", "oldest backup"),
    ),
    Case(
        "FS06",
        "from the facts",
        lambda: unwell(
            without=["file_systems_sampler"],
            facts={f"{AT}.size_bytes": 100 * GIB, f"{AT}.available_bytes": 2 * GIB},
            gauges={f"file_systems.size_bytes.{MOUNT}": 0.0},
        ),
        (MOUNT,),
        ("98% full: 2 GiB of 100 GiB",),
    ),
    Case(
        "FS06",
        "the last tenth is much",
        lambda: unwell(gauges={f"file_systems.available_bytes.{MOUNT}": 120.0 * GIB}),
    ),
    Case("FS06", "half full", unwell),
    Case(
        "FS06",
        "not sampled",
        lambda: unwell(gauges={f"file_systems.size_bytes.{MOUNT}": 0.0, "file_systems.size_bytes./": 0.0}),
        missing="sampler file_systems",
    ),
    Case(
        "FS07",
        "ext4 that is waited for",
        lambda: unwell(facts=mounted("ext4"), rates=WAITS),
        (MOUNT,),
        ("tasks wait for I/O 40% of the time, and /var/lib/mysql (ext4) takes 1,500 writes/s",),
    ),
    Case("FS07", "the journal first", lambda: unwell(facts=mounted("ext4", "data=journal"), rates=WAITS)),
    Case("FS07", "nobody waits", lambda: unwell(facts=mounted("ext4"))),
    Case(
        "FS07",
        "for reads",
        lambda: unwell(facts=mounted("ext4"), rates={**WAITS, f"disk.reads.{DISK}": 9_000.0}),
    ),
    Case(
        "FS07",
        "no PSI",
        lambda: unwell(facts=mounted("ext4"), without=["psi"]),
        missing="psi.some_total_us",
    ),
    Case(
        "FS08",
        "one saturated device for all",
        lambda: unwell(rates=SATURATED),
        (DISK,),
        ("nvme1n1 is saturated and holds the data, the redo log; 1.0 MB/s of redo",),
    ),
    Case(
        "FS08",
        "the redo log elsewhere",
        lambda: unwell(rates=SATURATED, variables={"innodb_log_group_home_dir": "/srv/redo"}),
    ),
    Case("FS08", "not saturated", unwell),
    Case("FS08", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "FS09",
        "nobarrier on 3.13",
        lambda: unwell(
            facts={**mounted("xfs", "nobarrier", "delaylog"), "kernel.release": "3.13.0-74-generic"}
        ),
        (MOUNT,),
        ("is mounted with nobarrier, delaylog, which Linux 4.0 refuses",),
    ),
    Case(
        "FS09",
        "ext4 still knows it",
        lambda: unwell(facts={**mounted("ext4", "nobarrier"), "kernel.release": "3.13.0-74-generic"}),
    ),
    Case("FS09", "nothing old", unwell),
    Case(
        "FS10",
        "a container without a volume",
        lambda: unwell(facts={f"{AT}.kind": "overlay", f"{AT}.block_device": None}),
        (MOUNT,),
        ("/var/lib/mysql is on overlay: it copies a whole file",),
    ),
    Case(
        "FS10",
        "a file system in user space",
        lambda: unwell(facts=mounted("fuse.glusterfs")),
        (MOUNT,),
        ("is on fuse.glusterfs: every request passes through another program",),
    ),
    Case("FS10", "XFS", unwell),
    Case("FS10", "no file systems", lambda: unwell(facts=NOWHERE), missing="no file system is known"),
    Case(
        "FS14",
        "sync",
        lambda: unwell(facts=mounted("xfs", "sync")),
        (MOUNT,),
        ("/var/lib/mysql (data, redo log) is mounted with sync, at 1,500 writes/s",),
        sets=({f"volume.mount_options@{MOUNT}": ["async"]},),
        severity=Severity.COST,
    ),
    Case(
        "FS14",
        "tasks wait for it",
        lambda: unwell(facts=mounted("ext4", "sync"), rates=WAITS),
        (MOUNT,),
        severity=Severity.LIMIT,
    ),
    Case("FS14", "names alone", lambda: unwell(facts=mounted("ext4", "dirsync", "journal_async_commit"))),
    Case(
        "FS14",
        "no server at all",
        lambda: unwell(facts={"servers": []}, has_server=False),
        missing="no server was queried",
    ),
]
