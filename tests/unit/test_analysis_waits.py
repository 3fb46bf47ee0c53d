"""What a server's threads wait for, from the samplers' names and numbers."""

from __future__ import annotations

from headrace.hunt.waits import events, kernel_waits
from tests.rules.hosts import unwell

WAITING = {
    "threads.waiting.connection/futex_wait_queue": 12.0,
    "threads.waiting.connection/do_sys_poll.constprop.0": 40.0,
    "threads.waiting.ib_io/rd-0/io_schedule": 1.5,
}


def test_threads_that_rest_come_last() -> None:
    found = kernel_waits(unwell(gauges=WAITING).window)
    assert [(wait.thread, wait.function, wait.threads, wait.is_idle) for wait in found] == [
        ("connection", "futex_wait_queue", 12.0, False),
        ("ib_io/rd-0", "io_schedule", 1.5, False),
        ("connection", "do_sys_poll", 40.0, True),
    ]


def test_events_are_shares_of_what_was_waited() -> None:
    rates = {
        "mysql_waits.time_ns.wait/synch/mutex/innodb/log_sys_mutex": 3e9,
        "mysql_waits.count.wait/synch/mutex/innodb/log_sys_mutex": 1e6,
        "mysql_waits.time_ns.wait/io/file/innodb/innodb_data_file": 1e9,
        "mysql_waits.count.wait/io/file/innodb/innodb_data_file": 1e4,
        "mysql_waits.time_ns.wait/io/socket/sql/client_connection": 9e9,
        "mysql_waits.count.wait/io/socket/sql/client_connection": 10.0,
    }
    first, second = events(unwell(rates=rates).window)
    assert (first.name, round(first.share, 6), round(first.rate), round(first.mean_us)) == (
        "wait/synch/mutex/innodb/log_sys_mutex",
        0.75,
        1_000_000,
        3,
    )
    assert (second.share, round(second.mean_us)) == (0.25, 100)


def test_without_samplers_there_are_none() -> None:
    without = unwell(without=("threads", "mysql_waits")).window
    assert kernel_waits(without) == []
    assert events(without) == []
