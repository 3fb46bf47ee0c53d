"""Cases of the rules about block devices."""

from __future__ import annotations

from typing import Any

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import CPUS, unwell

DISK = "nvme1n1"
QUEUE = f"block_devices.{DISK}.queue"

#: A busy SATA disk in the place of the data's NVMe one.
SATA: dict[str, Any] = {f"block_devices.{DISK}.driver": "sd"}
SPINDLE: dict[str, Any] = {
    **SATA,
    f"block_devices.{DISK}.rotational": True,
    f"block_devices.{DISK}.model": "ST4000NM0035",
    f"block_devices.{DISK}.controller_driver": "ahci",
}
BUSY = {f"disk.io_ms.{DISK}": 800.0}
VERY_FAST = {f"disk.reads.{DISK}": 40_000.0, f"disk.read_ms.{DISK}": 4_000.0}
COMPLETES = {
    **{f"softirqs.BLOCK.cpu{n}": 100.0 for n in range(CPUS)},
    "softirqs.BLOCK.cpu5": 30_000.0,
    "cpu.softirq.cpu5": 25.0,
    "cpu.idle.cpu5": 57.5,
}
VOLATILE: dict[str, Any] = {f"{QUEUE}.write_cache": "write back"}
FLUSHES = {f"disk.flushes.{DISK}": 300.0, f"disk.flush_ms.{DISK}": 900.0}
BUFFERED = {"innodb_flush_method": "fsync", "innodb_data_file_buffering": None}
SLOW_WRITES = {f"disk.write_ms.{DISK}": 12_000.0}
WAITS = {"psi.some_total_us.io": 400_000.0}
SATURATED = {
    f"disk.io_ms.{DISK}": 1_000.0,
    f"disk.weighted_io_ms.{DISK}": 24_000.0,
    f"disk.read_ms.{DISK}": 9_000.0,
    f"disk.write_ms.{DISK}": 15_000.0,
}

CASES = [
    Case(
        "BLK01",
        "mq-deadline",
        lambda: unwell(facts={f"{QUEUE}.scheduler": "mq-deadline"}),
        (DISK,),
        ("nvme1n1 uses the scheduler mq-deadline at 2,300 requests/s",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "BLK01",
        "so many requests that it costs a core",
        lambda: unwell(facts={f"{QUEUE}.scheduler": "mq-deadline"}, rates={f"disk.reads.{DISK}": 60_000.0}),
        (DISK,),
        severity=Severity.COST,
    ),
    Case("BLK01", "none", unwell),
    Case(
        "BLK01",
        "hardly used",
        lambda: unwell(
            facts={f"{QUEUE}.scheduler": "mq-deadline"},
            rates={f"disk.reads.{DISK}": 10.0, f"disk.writes.{DISK}": 10.0},
        ),
    ),
    Case("BLK01", "not sampled", lambda: unwell(without=["disk"]), missing="block devices were not"),
    Case(
        "BLK02",
        "none on SATA",
        lambda: unwell(facts=SATA, rates=BUSY),
        (DISK,),
        ("uses the scheduler none at 2,300 requests/s and 0.06 ms per request",),
        sets=({f"volume.scheduler@{DISK}": "mq-deadline"},),
    ),
    Case(
        "BLK02",
        "bfq on a virtual disk that says it rotates",
        lambda: unwell(
            facts={
                f"block_devices.{DISK}.driver": "virtio_blk",
                f"block_devices.{DISK}.rotational": True,
                f"{QUEUE}.scheduler": "bfq",
                f"{QUEUE}.schedulers": ["none", "mq-deadline", "bfq"],
            },
            rates=BUSY,
        ),
        (DISK,),
        ("uses the scheduler bfq",),
        sets=({f"volume.scheduler@{DISK}": "none"}, {f"volume.scheduler@{DISK}": "mq-deadline"}),
    ),
    Case(
        "BLK02",
        "a spindle that nobody sorts for",
        lambda: unwell(facts=SPINDLE, rates={**BUSY, f"disk.weighted_io_ms.{DISK}": 9_000.0}),
        (DISK,),
        sets=({f"volume.scheduler@{DISK}": "mq-deadline"},),
    ),
    Case("BLK02", "NVMe", lambda: unwell(rates=BUSY)),
    Case("BLK02", "a light load", lambda: unwell(facts=SATA)),
    Case(
        "BLK02",
        "a spindle with a scheduler",
        lambda: unwell(
            facts={**SPINDLE, f"{QUEUE}.scheduler": "mq-deadline"},
            rates={**BUSY, f"disk.weighted_io_ms.{DISK}": 9_000.0},
        ),
    ),
    Case("BLK02", "a spindle with one request at a time", lambda: unwell(facts=SPINDLE, rates=BUSY)),
    Case("BLK02", "not sampled", lambda: unwell(without=["disk"]), missing="block devices were not"),
    Case(
        "BLK03",
        "core 5 completes",
        lambda: unwell(rates={**VERY_FAST, **COMPLETES}),
        (DISK,),
        ("cpu5 completes 98% of the requests and spends 25% of its time",),
    ),
    Case("BLK03", "few requests", lambda: unwell(rates=COMPLETES)),
    Case(
        "BLK03",
        "spread",
        lambda: unwell(rates={**VERY_FAST, **{f"softirqs.BLOCK.cpu{n}": 5_000.0 for n in range(CPUS)}}),
    ),
    Case(
        "BLK03",
        "not sampled",
        lambda: unwell(rates=VERY_FAST, without=["softirqs"]),
        missing="software interrupts",
    ),
    Case(
        "BLK04",
        "off",
        lambda: unwell(facts={f"{QUEUE}.nomerges": 2}),
        (DISK,),
        ("nomerges of nvme1n1 is 2; the mean request is 16 KiB",),
    ),
    Case("BLK04", "on", unwell),
    Case("BLK04", "not sampled", lambda: unwell(without=["disk"]), missing="block devices were not"),
    Case(
        "BLK05",
        "buffered writes",
        lambda: unwell(variables=BUFFERED, rates=SLOW_WRITES),
        (DISK,),
        ("writes to nvme1n1 take 8.0 ms; throttling targets reads of 2 ms",),
    ),
    Case("BLK05", "direct writes", lambda: unwell(rates=SLOW_WRITES)),
    Case("BLK05", "fast writes", lambda: unwell(variables=BUFFERED)),
    Case(
        "BLK05",
        "no server",
        lambda: unwell(rates=SLOW_WRITES, has_server=False),
        missing="no server was queried",
    ),
    Case(
        "BLK06",
        "three milliseconds",
        lambda: unwell(facts=VOLATILE, rates=FLUSHES),
        (DISK,),
        ("nvme1n1 has a volatile cache: 300 flushes/s of 3.0 ms each",),
    ),
    Case(
        "BLK06",
        "a device that holds nothing of the server",
        lambda: unwell(
            facts={**VOLATILE, "file_systems./var/lib/mysql.block_device": "nvme0n1"}, rates=FLUSHES
        ),
    ),
    Case(
        "BLK06",
        "a device of the redo log alone",
        lambda: unwell(
            facts={
                **VOLATILE,
                "file_systems./var/lib/mysql.block_device": "nvme0n1",
                "file_systems./var/lib/mysql.mount_point": "/srv",
                "file_systems./.block_device": DISK,
            },
            variables={"datadir": "/srv/", "innodb_log_group_home_dir": "/redo"},
            rates=FLUSHES,
        ),
        (DISK,),
    ),
    Case(
        "BLK06",
        "no server",
        lambda: unwell(
            has_server=False,
            facts={**VOLATILE, "file_systems./var/lib/mysql.block_device": "nvme0n1"},
            rates=FLUSHES,
        ),
        (DISK,),
    ),
    Case("BLK06", "a protected cache", lambda: unwell(rates=FLUSHES)),
    Case(
        "BLK06",
        "an array has no cache of its own",
        lambda: unwell(facts={**VOLATILE, f"block_devices.{DISK}.slaves": ["sda"]}, rates=FLUSHES),
    ),
    Case("BLK06", "few flushes", lambda: unwell(facts=VOLATILE)),
    Case("BLK06", "not sampled", lambda: unwell(without=["disk"]), missing="block devices were not"),
    Case(
        "BLK07",
        "SATA without FUA",
        lambda: unwell(facts={**VOLATILE, **SATA}, rates=FLUSHES),
        (DISK,),
        ("no FUA: 300 flushes/s of 3.0 ms",),
    ),
    Case(
        "BLK07",
        "SATA with FUA",
        lambda: unwell(facts={**VOLATILE, **SATA, f"{QUEUE}.fua": True}, rates=FLUSHES),
    ),
    Case("BLK07", "NVMe", lambda: unwell(facts=VOLATILE, rates=FLUSHES)),
    Case("BLK07", "not sampled", lambda: unwell(without=["disk"]), missing="block devices were not"),
    Case(
        "BLK08",
        "off",
        lambda: unwell(facts={f"{QUEUE}.iostats": False}),
        (DISK,),
        ("iostats of nvme1n1 (1.75 TiB) is off",),
    ),
    Case("BLK08", "on", unwell),
    Case(
        "BLK08",
        "an array",
        lambda: unwell(facts={f"{QUEUE}.iostats": False, f"block_devices.{DISK}.slaves": ["sda", "sdb"]}),
    ),
    Case(
        "BLK09",
        "on at 40,000",
        lambda: unwell(facts={f"{QUEUE}.add_random": True}, rates=VERY_FAST),
        (DISK,),
        ("add_random of nvme1n1 is on at 41,500 requests/s",),
    ),
    Case("BLK09", "off", lambda: unwell(rates=VERY_FAST)),
    Case("BLK09", "few requests", lambda: unwell(facts={f"{QUEUE}.add_random": True})),
    Case("BLK09", "not sampled", lambda: unwell(without=["disk"]), missing="block devices were not"),
    Case(
        "BLK10",
        "a table was dropped",
        lambda: unwell(rates={f"disk.discards.{DISK}": 2.0, f"disk.discard_ms.{DISK}": 400.0, **SLOW_WRITES}),
        (DISK,),
        ("2.0 discards/s of up to 2 TiB", "a request takes 5.3 ms"),
    ),
    Case("BLK10", "fast meanwhile", lambda: unwell(rates={f"disk.discards.{DISK}": 2.0})),
    Case(
        "BLK10",
        "slow, and not for a few small discards",
        lambda: unwell(rates={f"disk.discards.{DISK}": 2.0, f"disk.discard_ms.{DISK}": 1.0, **SLOW_WRITES}),
    ),
    Case("BLK10", "no discards", lambda: unwell(rates=SLOW_WRITES)),
    Case("BLK10", "not sampled", lambda: unwell(without=["disk"]), missing="block devices were not"),
    Case(
        "BLK12",
        "a queue of 24",
        lambda: unwell(rates=SATURATED),
        (DISK,),
        ("24.0 requests in flight",),
    ),
    Case("BLK12", "busy without a queue", lambda: unwell(rates={f"disk.io_ms.{DISK}": 1_000.0})),
    Case("BLK12", "not sampled", lambda: unwell(without=["disk"]), missing="block devices were not"),
    Case(
        "BLK13",
        "2,300 of 100,000",
        lambda: unwell(rates=WAITS, limits={DISK: 100_000.0}),
        (DISK,),
        ("wait for I/O 40% of the time, yet nvme1n1 does 2,300 of the 100,000 requests/s",),
    ),
    Case("BLK13", "nobody waits", lambda: unwell(limits={DISK: 100_000.0})),
    Case("BLK13", "near its limit", lambda: unwell(rates=WAITS, limits={DISK: 3_000.0})),
    Case("BLK13", "never measured", lambda: unwell(rates=WAITS), missing="headrace latencies"),
    Case(
        "BLK14",
        "noop",
        lambda: unwell(facts={"kernel.command_line": "ro quiet elevator=noop"}),
        ("",),
        ("elevator=noop is on the command line", "noop is called none now"),
    ),
    Case("BLK14", "nothing set", unwell),
    Case(
        "BLK14",
        "a kernel that obeys",
        lambda: unwell(facts={"kernel.command_line": "elevator=noop", "kernel.release": "4.4.0-210-generic"}),
    ),
]
