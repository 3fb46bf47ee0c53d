"""Cases of the rules about read-ahead."""

from __future__ import annotations

from tests.rules.case import Case
from tests.rules.hosts import unwell

IN_VAIN = {"innodb_buffer_pool_read_ahead": 1_000.0, "innodb_buffer_pool_read_ahead_evicted": 400.0}

CASES = [
    Case(
        "READ01",
        "two in five",
        lambda: unwell(status_rates=IN_VAIN),
        ("",),
        ("40% of 1,000 pages/s read ahead are evicted unused; the threshold is 56",),
    ),
    Case(
        "READ01",
        "as strict as can be",
        lambda: unwell(status_rates=IN_VAIN, variables={"innodb_read_ahead_threshold": "64"}),
        ("",),
        ("the threshold is 64",),
    ),
    Case(
        "READ01",
        "at random",
        lambda: unwell(
            variables={"innodb_random_read_ahead": "ON"},
            status_rates={
                "innodb_buffer_pool_read_ahead_rnd": 3_000.0,
                "innodb_buffer_pool_read_ahead_evicted": 1_500.0,
            },
        ),
        ("",),
        ("50% of 3,000 pages/s read ahead are evicted unused",),
        sets=({"server.innodb_random_read_ahead": False},),
    ),
    Case(
        "READ01",
        "used",
        lambda: unwell(status_rates={**IN_VAIN, "innodb_buffer_pool_read_ahead_evicted": 9.0}),
    ),
    Case("READ01", "none", lambda: unwell(vendor="mysql")),
    Case("READ01", "not sampled", lambda: unwell(without=["mysql_status"]), missing="read_ahead was not"),
]
