"""Cases of the rules about names."""

from __future__ import annotations

from tests.rules.case import Case
from tests.rules.hosts import unwell


def _started(*options: str) -> dict[str, object]:
    return {"servers.1322.command_line": ["/usr/sbin/mysqld", *options]}


CASES = [
    Case(
        "NAME01",
        "MariaDB accepts it silently",
        lambda: unwell(facts=_started("--innodb-buffer-pool-instances=8", "--port=3306")),
        ("innodb_buffer_pool_instances",),
        ("mariadb 10.11.19 no longer has it. Today: nothing: there is one pool",),
    ),
    Case(
        "NAME01",
        "MySQL takes it when loose",
        lambda: unwell(vendor="mysql", facts=_started("--loose-query_cache_size=64M")),
        ("query_cache_size",),
        ("mysql 8.0.31 no longer has it",),
    ),
    Case(
        "NAME01",
        "MySQL 9 has one redo log of one size",
        lambda: unwell(
            vendor="mysql",
            version="9.7.4",
            variables={"innodb_log_file_size": None},
            facts=_started("--loose-innodb-log-file-size=1G"),
        ),
        ("innodb_log_file_size",),
        ("innodb_redo_log_capacity",),
    ),
    Case(
        "NAME01",
        "a calendar version",
        lambda: unwell(
            vendor="mysql",
            version="26.7.0",
            variables={"expire_logs_days": None},
            facts=_started("--loose-expire-logs-days=7"),
        ),
        ("expire_logs_days",),
    ),
    Case(
        "NAME01",
        "MariaDB still has the query cache",
        lambda: unwell(facts=_started("--query-cache-size=0", "--innodb-change-buffering=none")),
    ),
    Case("NAME01", "no options", unwell),
    Case(
        "NAME01",
        "no process",
        lambda: unwell(facts={"servers.1322.command_line": None}),
        missing="command line",
    ),
    Case("NAME01", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
    Case(
        "NAME02",
        "days",
        lambda: unwell(vendor="mysql", variables={"expire_logs_days": "7"}),
        ("expire_logs_days",),
        ("expire_logs_days is 7; it has been deprecated since 8.0.1",),
    ),
    Case(
        "NAME02",
        "MariaDB 11",
        lambda: unwell(version="11.4.5", variables={"innodb_flush_method": "fsync"}),
        ("innodb_flush_method",),
    ),
    Case("NAME02", "MariaDB 10.11", lambda: unwell(variables={"innodb_flush_method": "fsync"})),
    Case("NAME02", "MariaDB keeps days", lambda: unwell(variables={"expire_logs_days": "7.000000"})),
    Case("NAME02", "none", lambda: unwell(vendor="mysql")),
    Case("NAME02", "no server", lambda: unwell(has_server=False), missing="no server was queried"),
]
