"""Counts that cannot be are unknown: below 0 as unsigned numbers, longer than what passed, requests without time.

And names of devices that the kernel spells in two ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.hunt.rules import all_rules, judge
from headrace.hunt.rules.cause import conclude
from headrace.hunt.rules.evidence import Evidence
from tests.rules.hosts import GIB, unwell

U64, U32 = 2.0**64, 2.0**32 - 1
IDLE = "Nothing limits this host: the CPUs are 82% idle"


def waits(share: float) -> dict[str, float]:
    return {"psi.some_total_us.io": 1e6 * share, "psi.full_total_us.io": 1e6 * share}


def device(name: str, reads: float, read_ms: float, **more: float) -> dict[str, float]:
    in_flight = reads * read_ms / 1e3
    counters = {
        "reads": reads, "writes": 0.0, "reads_merged": 0.0, "writes_merged": 0.0, "sectors_read": 32 * reads,
        "sectors_written": 0.0, "read_ms": 1e3 * in_flight, "write_ms": 0.0, "io_ms": 1e3 * min(in_flight, 1.0),
        "weighted_io_ms": 1e3 * in_flight, "flushes": 0.0, "flush_ms": 0.0, **more,
    }  # fmt: skip
    return {f"disk.{metric}.{name}": rate for metric, rate in counters.items()}


def disk(name: str, driver: str, **more: Any) -> dict[str, Any]:
    """A record with what a hunt uses; of the queue nothing is known."""
    return {
        "name": name, "kind": "disk", "driver": driver, "size_bytes": 10**12, "rotational": False, "queue": {},
        "partitions": [], "slaves": [], "holders": [], "stable_ids": [], **more,
    }  # fmt: skip


def data_on(*records: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """The server's data are on the first of them."""
    return {
        "block_devices": list(records),
        "file_systems./var/lib/mysql.block_device": name or records[0]["name"],
    }


SMART_ARRAY = disk(
    "cciss!c0d0", "cciss", rotational=True, partitions=[{"name": "cciss!c0d0p2", "stable_ids": [], "holders": []}]
)  # fmt: skip
#: Host, the findings, part of the sentence.
CASES: dict[str, tuple[Evidence, set[str], str]] = {
    "threads": (unwell(status={"threads_running": U64}), set(), IDLE),
    "sessions that wait for rows": (unwell(status={"innodb_row_lock_current_waits": U64}), set(), IDLE),
    "the same on 32 bits": (unwell(status={"innodb_row_lock_current_waits": U32}), set(), IDLE),
    "old row versions": (unwell(status={"innodb_history_list_length": U64 - 4096}), set(), IDLE),
    # Without its lower limit nobody knows what the cache gives back.
    "a cache of ZFS": (
        unwell(
            gauges={"zfs.size.": 20 * GIB, "memory.MemAvailable.": GIB},
            facts={"file_systems./var/lib/mysql.kind": "zfs"},
        ),
        set(), "Not known: how busy memory is",
    ),
    "tasks": (unwell(gauges={"cpu.procs_blocked.": U32}, without=["psi"]), set(), IDLE),
    "waits for I/O": (unwell(rates=waits(3.0)), set(), IDLE),
    "a thread of four CPUs": (
        unwell(rates={"threads.utime_ticks.1330/ib_log_writer": 400.0}, without=["process"]), set(), IDLE,
    ),
    "a program of more CPUs than there are": (
        unwell(rates={"process.utime_ticks.1322/mysqld": 1_100.0}), set(), IDLE,
    ),
    "connections above a limit that was lowered": (
        unwell(status={"max_used_connections": 900.0}), {"SESS08"}, IDLE,
    ),
    "requests without time": (
        unwell(rates={**device("vda", 2_900, 0.0), **waits(0.6)}, facts=data_on(disk("vda", "virtio_blk"))), set(),
        "Not known: how busy block vda is",
    ),
    "few requests without time": (
        unwell(rates=device("vda", 3, 0.0), facts=data_on(disk("vda", "virtio_blk"))), set(), IDLE,
    ),
    # The kernel's file has cciss/c0d0, and a line for the partition.
    "a name with a slash": (
        unwell(
            rates={**device("cciss/c0d0", 900, 60.0), **device("cciss/c0d0p2", 900, 60.0)},
            facts=data_on(SMART_ARRAY, name="cciss!c0d0p2"),
        ),
        {"BLK12@cciss!c0d0", "FS08@cciss!c0d0"},
        "The device cciss!c0d0 limits this host",
    ),
    "flushes that nothing else explains": (
        unwell(
            rates={**device("sda", 10, 0.2, flushes=120.0, flush_ms=900.0), **waits(0.6)},
            facts=data_on(disk("sda", "sd")),
        ),
        {"BLK06@sda"},
        "sda does 10 operations/s, and 120 flushes/s of 7.5 ms each",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_is_unknown(name: str) -> None:
    evidence, found, says = CASES[name]
    judgement = judge(evidence, all_rules())
    assert {finding.id for finding in judgement.findings} == found
    assert says in conclude(evidence, judgement).sentence
