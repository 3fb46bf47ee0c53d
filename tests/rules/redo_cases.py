"""Cases of the rules about the redo log."""

from __future__ import annotations

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import GIB, unwell

MIB = 1 << 20

CASES = [
    Case(
        "REDO01",
        "96 MB for 10 MB a second",
        lambda: unwell(
            variables={"innodb_log_file_size": str(96 * MIB)},
            status_rates={"innodb_os_log_written": 10 * MIB},
        ),
        ("",),
        ("35.2 GiB of redo is written per hour; the log holds 96 MiB, enough for 0.2 minutes",),
        sets=({"server.innodb_log_file_size": 36 * GIB},),
    ),
    Case(
        "REDO02",
        "the size is that of REDO01, not twice the log",
        lambda: unwell(
            variables={"innodb_log_file_size": str(96 * MIB)},
            status={"innodb_checkpoint_age": 80.0 * MIB, "innodb_checkpoint_max_age": 80.0 * MIB},
            status_rates={"innodb_os_log_written": 10 * MIB},
        ),
        ("",),
        sets=(
            {"server.innodb_log_file_size": 36 * GIB},
            {"server.innodb_io_capacity_max": 8_000, "server.innodb_io_capacity": 4_000},
        ),
    ),
    Case(
        "REDO01",
        "MySQL by capacity",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_redo_log_capacity": str(100 * MIB)},
            status={"innodb_redo_log_capacity_resized": 100.0 * MIB},
            status_rates={"innodb_os_log_written": MIB},
        ),
        ("",),
        ("the log holds 100 MiB",),
    ),
    Case(
        "REDO01",
        "the two old variables are in force, and the new one shows its default",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_redo_log_capacity": str(100 * MIB), "innodb_log_file_size": str(4 * GIB)},
            status={"innodb_redo_log_capacity_resized": 8.0 * GIB},
            status_rates={"innodb_os_log_written": MIB},
        ),
    ),
    Case(
        "REDO02",
        "the two old variables are in force",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_redo_log_capacity": str(100 * MIB)},
            status={"innodb_redo_log_logical_size": 1.0 * GIB, "innodb_redo_log_capacity_resized": 8.0 * GIB},
        ),
    ),
    Case(
        "REDO01",
        "MySQL 5.7 by files",
        lambda: unwell(vendor="mysql", version="5.7.44", status_rates={"innodb_os_log_written": MIB}),
        ("",),
        ("the log holds 96 MiB",),
    ),
    Case(
        "REDO01",
        "little load",
        lambda: unwell(
            variables={"innodb_log_file_size": str(96 * MIB)}, status_rates={"innodb_os_log_written": 5e4}
        ),
    ),
    Case(
        "REDO01",
        "half an hour, and nothing presses",
        lambda: unwell(
            variables={"innodb_log_file_size": str(GIB)}, status_rates={"innodb_os_log_written": 0.6 * MIB}
        ),
        ("",),
        ("enough for 28.4 minutes",),
        severity=Severity.HOUSEKEEPING,
    ),
    Case(
        "REDO01",
        "the log decides what is flushed",
        lambda: unwell(
            variables={"innodb_log_file_size": str(GIB)},
            status={"innodb_checkpoint_age": 0.6 * GIB, "innodb_checkpoint_max_age": 0.9 * GIB},
            status_rates={"innodb_os_log_written": 0.6 * MIB},
        ),
        ("",),
        severity=Severity.COST,
    ),
    Case(
        "REDO01",
        "four times the pool, where an hour would be 36 GiB",
        lambda: unwell(
            variables={"innodb_log_file_size": str(96 * MIB), "innodb_buffer_pool_size": str(GIB)},
            status_rates={"innodb_os_log_written": 10 * MIB},
        ),
        ("",),
        sets=({"server.innodb_log_file_size": 4 * GIB},),
    ),
    Case(
        "REDO01",
        "it has four times the pool",
        lambda: unwell(
            variables={"innodb_log_file_size": str(4 * GIB), "innodb_buffer_pool_size": str(GIB)},
            status={"innodb_checkpoint_age": 3.0 * GIB, "innodb_checkpoint_max_age": 3.9 * GIB},
            status_rates={"innodb_os_log_written": 10 * MIB},
        ),
    ),
    Case("REDO01", "an hour fits", unwell),
    Case("REDO01", "not sampled", lambda: unwell(without=["mysql_status"]), missing="log_written was not"),
    Case(
        "REDO02",
        "MariaDB",
        lambda: unwell(
            status={"innodb_checkpoint_age": 7.0 * GIB, "innodb_checkpoint_max_age": 7.2 * GIB},
        ),
        ("",),
        ("the checkpoint age is 7 GiB, 97% of its limit of 7.2 GiB",),
    ),
    Case(
        "REDO02",
        "MySQL",
        lambda: unwell(vendor="mysql", status={"innodb_redo_log_logical_size": 6.5 * GIB}),
        ("",),
        ("96% of its limit of 6.75 GiB",),
    ),
    Case(
        "REDO02",
        "a small log of MySQL is full at three quarters of its size",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_redo_log_capacity": str(8 * MIB)},
            status={
                "innodb_redo_log_capacity_resized": 8.0 * MIB,
                "innodb_redo_log_logical_size": 5.92 * MIB,
            },
        ),
        ("",),
        ("the checkpoint age is 5.92 MiB, 99% of its limit of 5.95 MiB",),
    ),
    Case(
        "REDO02",
        "MySQL flushes ahead from 92% of where statements wait, not before",
        lambda: unwell(vendor="mysql", status={"innodb_redo_log_logical_size": 6.1 * GIB}),
        ("",),
        ("90% of its limit of 6.75 GiB",),
        severity=Severity.ADVICE,
    ),
    Case(
        "REDO02",
        "and so it does there",
        lambda: unwell(vendor="mysql", status={"innodb_redo_log_logical_size": 6.3 * GIB}),
        ("",),
        ("93% of its limit of 6.75 GiB",),
        severity=Severity.LIMIT,
    ),
    Case(
        "REDO02",
        "MariaDB flushes ahead from seven eighths on",
        lambda: unwell(
            status={"innodb_checkpoint_age": 6.4 * GIB, "innodb_checkpoint_max_age": 7.2 * GIB},
        ),
        ("",),
        severity=Severity.LIMIT,
    ),
    Case(
        "REDO02",
        "a little below, it is only close",
        lambda: unwell(
            status={"innodb_checkpoint_age": 6.2 * GIB, "innodb_checkpoint_max_age": 7.2 * GIB},
        ),
        ("",),
        severity=Severity.ADVICE,
    ),
    Case("REDO02", "young", lambda: unwell(vendor="mysql")),
    Case("REDO02", "young in MariaDB", unwell),
    Case(
        "REDO02",
        "not sampled",
        lambda: unwell(without=["mysql_status"]),
        missing="checkpoint age",
    ),
    Case("REDO02", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "REDO03",
        "full",
        lambda: unwell(status_rates={"innodb_log_waits": 12.0}),
        ("",),
        ("the log buffer of 16 MiB is full 12.0 times per second",),
    ),
    Case(
        "REDO03",
        "full for each statement",
        lambda: unwell(status_rates={"innodb_log_waits": 1_600.0}),
        ("",),
        ("2.0 times per statement that writes",),
        severity=Severity.LIMIT,
    ),
    Case("REDO03", "never", unwell),
    Case("REDO03", "not sampled", lambda: unwell(without=["mysql_status"]), missing="log_waits was not"),
    Case(
        "REDO04",
        "4 GB that are not there",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_log_file_size": str(2 * GIB), "innodb_redo_log_capacity": str(100 * MIB)},
            status={"innodb_redo_log_capacity_resized": 100.0 * MIB},
        ),
        ("innodb_log_file_size",),
        ("asks for 4 GiB of redo log, but the server has 100 MiB",),
    ),
    Case(
        "REDO04",
        "4 GB that are in force",
        lambda: unwell(
            vendor="mysql",
            variables={"innodb_log_file_size": str(2 * GIB), "innodb_redo_log_capacity": str(100 * MIB)},
            status={"innodb_redo_log_capacity_resized": 4.0 * GIB},
        ),
    ),
    Case(
        "REDO04",
        "capacity not sampled",
        lambda: unwell(vendor="mysql", without=["mysql_status"]),
        missing="Innodb_redo_log_capacity_resized",
    ),
    Case("REDO04", "by capacity", lambda: unwell(vendor="mysql")),
    Case(
        "REDO04",
        "no server",
        lambda: unwell(has_server=False, vendor="mysql"),
        missing="no server was queried",
    ),
]
