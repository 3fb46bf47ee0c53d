"""A knob has one right size on a host, whichever rules ask for it, and none that is not there."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.hunt.rules import all_rules, judge
from tests.rules.hosts import GIB, unwell

MIB = 1 << 20

#: Hosts on which several rules want the same knob.
SICK: dict[str, dict[str, Any]] = {
    "a redo log of 4 MB that is always full": {
        "variables": {"innodb_log_file_size": str(4 * MIB)},
        "status": {"innodb_checkpoint_age": 3.5 * MIB, "innodb_checkpoint_max_age": 3.5 * MIB},
        "status_rates": {"innodb_os_log_written": 3 * MIB},
    },
    "a small capacity, and everything waits for it": {
        "variables": {"innodb_io_capacity": "200", "innodb_io_capacity_max": "400"},
        "status": {
            "innodb_checkpoint_age": 7.0 * GIB,
            "innodb_checkpoint_max_age": 7.2 * GIB,
            "innodb_buffer_pool_pages_dirty": 890.0,
            "innodb_buffer_pool_pages_data": 1_000.0,
            "innodb_buffer_pool_pages_free": 0.0,
        },
        "status_rates": {"innodb_buffer_pool_wait_free": 30.0},
    },
    "a legacy size that the capacity overrides": {
        "vendor": "mysql",
        "variables": {"innodb_log_file_size": str(2 * GIB), "innodb_redo_log_capacity": str(100 * MIB)},
        "status": {
            "innodb_redo_log_capacity_resized": 100.0 * MIB,
            "innodb_redo_log_logical_size": 95.0 * MIB,
        },
        "status_rates": {"innodb_os_log_written": 3 * MIB},
    },
    "a server that thinks it is alone, and sessions that take much": {
        "vendor": "mysql",
        "variables": {
            "innodb_dedicated_server": "ON",
            "sort_buffer_size": str(256 * MIB),
            "innodb_buffer_pool_size": str(20 * GIB),
        },
        "status": {"threads_running": 60.0},
        "status_rates": {"sort_scan": 20.0},
        "facts": {
            "servers": [
                {"pid": 1322, "program": "mysqld", "rss_bytes": 20 * GIB},
                {"pid": 901, "program": "memcached", "rss_bytes": 30 * GIB},
            ]
        },
        "gauges": {"memory.MemAvailable.": 10.0 * GIB},
    },
    "a short queue that is full, and asked to be long": {
        "variables": {"back_log": "10000", "port": "3306"},
        "facts": {"sysctls.net.core.somaxconn": "128"},
        "rates": {"snmp.TcpExt.ListenOverflows.": 20.0, "snmp.TcpExt.TCPReqQFullDoCookies.": 9.0},
        "gauges": {"listen.queue.0.0.0.0:3306": 129.0, "listen.queue_limit.0.0.0.0:3306": 128.0},
    },
    "a pool through the page cache": {
        "vendor": "mysql",
        "variables": {"innodb_flush_method": "fsync", "innodb_buffer_pool_size": str(GIB)},
        "status": {"innodb_buffer_pool_pages_free": 10.0, "innodb_buffer_pool_pages_total": 65_536.0},
        "status_rates": {"innodb_buffer_pool_reads": 4_000.0},
        "gauges": {"memory.MemAvailable.": 50.0 * GIB},
        "facts": {"servers.1322.rss_bytes": 2 * GIB},
    },
}


@pytest.mark.parametrize("name", SICK)
def test_one_number_for_one_knob(name: str) -> None:
    wanted: dict[str, dict[object, set[str]]] = {}
    for finding in judge(unwell(**SICK[name]), all_rules()).findings:
        for remedy in finding.hit.remedies:
            for knob, value in remedy.settings.items():
                wanted.setdefault(knob, {}).setdefault(value, set()).add(finding.id)
    shared = {knob: values for knob, values in wanted.items() if sum(map(len, values.values())) > 1}
    assert shared, "no knob that two rules want"
    assert {knob: values for knob, values in shared.items() if len(values) > 1} == {}
