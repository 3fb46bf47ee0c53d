"""Cases of the rules about latches that threads spin for."""

from __future__ import annotations

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import unwell

BUSY = {"threads_running": 9.0}
LONG = {"innodb_spin_wait_delay": "6000"}

CASES = [
    Case(
        "LOCK20",
        "a millisecond between two looks",
        lambda: unwell(variables=LONG, status=BUSY),
        ("",),
        (
            "pauses for at least 1,000.0 us between two looks, 30 times before it sleeps, while 8.0 threads run.",
        ),
        sets=({"server.innodb_spin_wait_delay": 4},),
        severity=Severity.LIMIT,
    ),
    Case(
        "LOCK20",
        "MySQL pauses for half of it on average",
        lambda: unwell(vendor="mysql", variables={"innodb_spin_wait_delay": "100"}, status=BUSY),
        ("",),
        ("at least 8.3 us",),
        sets=({"server.innodb_spin_wait_delay": 6},),
        severity=Severity.ADVICE,
    ),
    Case(
        "LOCK20",
        "many looks",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_sync_spin_loops": "200000", "innodb_spin_wait_pause_multiplier": "100"},
            status=BUSY,
        ),
        ("",),
        sets=({"server.innodb_sync_spin_loops": 30, "server.innodb_spin_wait_pause_multiplier": 50},),
        severity=Severity.LIMIT,
    ),
    Case(
        "LOCK20",
        "counted, with the defaults",
        lambda: unwell(
            vendor="mysql",
            rates={
                "innodb_metrics.innodb_rwlock_s_spin_rounds.": 300_000.0,
                "innodb_mutex.spins.LOCK_SYS_PAGE": 200_000.0,
            },
        ),
        ("",),
        ("500,000 pauses/s take 3.1% to 44% of the CPUs.",),
        sets=({"server.innodb_spin_wait_pause_multiplier": 10},),
        severity=Severity.COST,
    ),
    Case(
        "LOCK20",
        "one thread waits for nobody",
        lambda: unwell(variables=LONG, status={"threads_running": 2.0}),
    ),
    Case("LOCK20", "the defaults", lambda: unwell(status=BUSY)),
    Case("LOCK20", "the defaults of MySQL", lambda: unwell(vendor="mysql", status=BUSY)),
    Case(
        "LOCK20",
        "a server that counts nothing any more",
        lambda: unwell(
            vendor="mysql", rates={"innodb_metrics.innodb_rwlock_s_spin_rounds.": 0.0}, status=BUSY
        ),
    ),
]
