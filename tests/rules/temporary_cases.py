"""Cases of the rules about the memory that MySQL's temporary tables share."""

from __future__ import annotations

from collections.abc import Callable

from headrace.hunt.rules.evidence import Evidence
from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import unwell

MIB, GIB = 1 << 20, 1 << 30
MAPPED = {"temptable.bytes_taken.disk": 60.0 * MIB, "temptable.bytes_taken.ram": 20.0 * MIB}
UNMAPPED = {"temptable.bytes_taken.disk": 0.0, "temptable.bytes_taken.ram": 20.0 * MIB}
FULL = {"temptable.bytes.ram": 900.0 * MIB, "temptable.bytes.disk": 200.0 * MIB}
ROOM = {"temptable.bytes.ram": 30.0 * MIB, "temptable.bytes.disk": 0.0}
TO_DISK = {"created_tmp_disk_tables": 40.0, "created_tmp_tables": 90.0}


def mysql(**changes: object) -> Callable[[], Evidence]:
    return lambda: unwell(vendor="mysql", **changes)  # type: ignore[arg-type]


CASES = [
    Case(
        "SESS21",
        "mapped files, which no status variable counts",
        mysql(rates=MAPPED, gauges=FULL),
        ("",),
        ("used up temptable_max_ram (1 GiB): 60 MiB/s go to mapped files in /tmp.",),
        sets=({"server.temptable_max_ram": 1792 * MIB}, {}),
        severity=Severity.ADVICE,
    ),
    Case(
        "SESS21",
        "to InnoDB, as the memory in use shows",
        mysql(rates=UNMAPPED, gauges=FULL, status_rates=TO_DISK),
        ("",),
        ("40.0 tables/s go to InnoDB.",),
        severity=Severity.COST,
    ),
    Case(
        "SESS21",
        "to InnoDB, as newer versions count",
        mysql(
            version="9.7.4",
            rates=UNMAPPED,
            gauges=ROOM,
            status={"temptable_count_hit_max_ram": 100.0},
            status_rates=TO_DISK | {"temptable_count_hit_max_ram": 35.0},
            variables={"temptable_max_ram": str(2 * MIB), "temptable_use_mmap": None},
        ),
        ("",),
        ("used up temptable_max_ram (2 MiB): 35.0 tables/s go to InnoDB.",),
        sets=({"server.temptable_max_ram": GIB}, {}),
        severity=Severity.COST,
    ),
    Case(
        "SESS21",
        "few and large ones",
        mysql(
            rates=UNMAPPED,
            gauges=FULL,
            status_rates={"created_tmp_disk_tables": 2.0, "created_tmp_tables": 3.0},
        ),
        ("",),
        ("2.0 tables/s go to InnoDB.",),
        severity=Severity.COST,
    ),
    Case(
        "SESS21",
        "each for its own limit",
        mysql(rates=UNMAPPED, gauges=ROOM, status_rates=TO_DISK),
    ),
    Case("SESS21", "an odd statement", mysql(rates={"temptable.bytes_taken.disk": 1000.0}, gauges=ROOM)),
    Case(
        "SESS21",
        "another engine",
        mysql(rates=MAPPED, variables={"internal_tmp_mem_storage_engine": "MEMORY"}),
    ),
    Case("SESS21", "not sampled", mysql(), missing="temptable.bytes_taken was not sampled"),
    Case("SESS03", "SESS21 has them", mysql(rates=UNMAPPED, gauges=FULL, status_rates=TO_DISK)),
    Case("SESS03", "their own limit", mysql(rates=UNMAPPED, gauges=ROOM, status_rates=TO_DISK), ("",)),
]
