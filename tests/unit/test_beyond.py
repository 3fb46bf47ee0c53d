"""A server that sizes itself by the whole machine is refused by name."""

from __future__ import annotations

import pytest

from headrace.base.model import Facts, Value
from headrace.change.beyond import _CHECKS, DEDICATED, _dedicated, _memory
from headrace.host.facts import HostFacts

GIB = 1 << 30


def facts(memory: int, now: str = "OFF") -> HostFacts:
    settings = {"vendor": "mysql", "variables": {"innodb_dedicated_server": now}}
    return HostFacts(Facts("", {"memory": {"total_bytes": memory}, "server_settings": settings}))


@pytest.mark.parametrize(("memory", "pool"), [(24 * GIB, "18.0 GiB"), (2 * GIB, "1.0 GiB")])
@pytest.mark.parametrize("value", ["ON", True, 1])
def test_a_dedicated_server_takes_most_of_the_machine(memory: int, pool: str, value: Value) -> None:
    why = _dedicated({DEDICATED: value}, facts(memory))[DEDICATED]
    assert f"a buffer pool of {pool}" in why
    assert "redo log" in why


def test_one_that_is_dedicated_already_or_shall_not_be_is_not_refused() -> None:
    assert _dedicated({DEDICATED: "ON"}, facts(24 * GIB, "ON")) == {}
    assert _dedicated({DEDICATED: "OFF"}, facts(24 * GIB)) == {}
    assert _dedicated({"server.max_connections": "1"}, facts(24 * GIB)) == {}


@pytest.mark.parametrize(
    ("group", "pages", "says"),
    [
        (
            {"memory_max_bytes": 4 * GIB},
            "OFF",
            "memory.max of its control group is 4.0 GiB: the kernel ends it",
        ),
        (
            {"memory_max_bytes": 9 * GIB, "memory_high_bytes": 5 * GIB},
            "OFF",
            "memory.high of its control group is 5.0",
        ),
        ({"memory_max_bytes": 7 * GIB}, "OFF", ""),
        ({"memory_max_bytes": None}, "OFF", ""),
        ({"memory_max_bytes": 4 * GIB}, "ON", ""),
    ],
)
def test_a_pool_has_to_fit_into_the_control_group(group: dict[str, int], pages: str, says: str) -> None:
    settings = {"vendor": "mysql", "pid": 7, "variables": {"large_pages": pages}}
    server = {"pid": 7, "program": "mysqld", "cgroup": group}
    host = {"memory": {"total_bytes": 24 * GIB}, "server_settings": settings, "servers": [server]}
    name = "server.innodb_buffer_pool_size"
    why = _memory(name, {name: 6 * GIB}, {}, HostFacts(Facts("", host)))
    assert says in why
    assert bool(why) == bool(says)


@pytest.mark.parametrize(
    ("wanted", "has", "says"),
    [
        ({"sort_buffer_size": 4 * GIB}, {}, "sort_buffer_size of 150 connections 600 GiB"),
        ({"join_buffer_size": 256 << 20}, {}, "join_buffer_size of 150 connections 37.5 GiB"),
        ({"sort_buffer_size": 100 << 20}, {}, ""),
        ({"sort_buffer_size": 100 << 20, "max_connections": 500}, {}, "of 500 connections 48.8 GiB"),
        # What `hunt` proposes at most is given to the few sessions that sort at a time.
        ({"sort_buffer_size": 16 << 20, "max_connections": 10_000}, {}, ""),
        ({"sort_buffer_size": 2 * GIB}, {"sort_buffer_size": str(4 * GIB)}, ""),
        ({"tmp_table_size": GIB}, {}, "tmp_table_size of 150 connections 150 GiB"),
        # One limit for all of them.
        (
            {"tmp_table_size": GIB},
            {"internal_tmp_mem_storage_engine": "TempTable", "temptable_max_ram": str(GIB)},
            "",
        ),
        ({"bulk_insert_buffer_size": 30 * GIB}, {}, "bulk_insert_buffer_size of one session 30.0 GiB"),
    ],
)
def test_a_buffer_of_each_session_is_counted_for_all(
    wanted: dict[str, int], has: dict[str, str], says: str
) -> None:
    variables = {"max_connections": "150", "sort_buffer_size": "262144", **has}
    host = {
        "memory": {"total_bytes": 24 * GIB},
        "server_settings": {"vendor": "mysql", "variables": variables},
    }
    asked = {f"server.{name}": size for name, size in wanted.items()}
    why = _memory(next(iter(asked)), asked, {}, HostFacts(Facts("", host)))
    assert says in why
    assert bool(why) == bool(says)


@pytest.mark.parametrize(
    ("name", "number", "why"),
    [
        ("server.max_connections", 100_000, "each connection is an open file, and the server may open 20000"),
        ("server.max_connections", 20_000, ""),
        ("host.net.core.somaxconn", 1, "the server's back_log is 80"),
        ("host.net.core.somaxconn", 80, ""),
        ("host.net.core.somaxconn", 79, "would queue 79 clients"),
        ("host.vm.watermark_scale_factor", 3000, "= 60% of 8.0 GiB are free"),
        ("host.vm.watermark_scale_factor", 200, ""),
    ],
)
def test_limits_below_what_the_server_has(name: str, number: int, why: str) -> None:
    variables = {"open_files_limit": "20000", "back_log": "80"}
    settings = {"vendor": "mariadb", "variables": variables}
    there = HostFacts(Facts("", {"memory": {"total_bytes": 8 * GIB}, "server_settings": settings}))
    said = _CHECKS[name](number, {}, there)
    assert (why in said) if why else not said, said
