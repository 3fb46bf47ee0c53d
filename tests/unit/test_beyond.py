"""A server that sizes itself by the whole machine is refused by name."""

from __future__ import annotations

import pytest

from headrace.base.model import Facts, Value
from headrace.change.beyond import _CHECKS, DEDICATED, _dedicated, _memory, why_not
from headrace.host.facts import HostFacts
from headrace.host.target import Completed

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
    here = {"answer": "here"}
    settings = {"vendor": "mysql", "pid": 7, "place": here, "variables": {"large_pages": pages}}
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


class _Host:
    """A host that answers the one question that is asked: what it uses now."""

    def __init__(self, lines: str) -> None:
        self.target, self._lines = self, lines

    async def run(self, *_: object, **__: object) -> Completed:
        return Completed((), 0, self._lines.encode(), b"")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"server.innodb_buffer_pool_size": "23G"},
            "22.0 GiB more than now; 18.0 GiB of 24.0 GiB are available",
        ),
        ({"server.innodb_buffer_pool_size": "18G"}, ""),
        ({"server.thread_stack": "1G"}, "thread_stack of 151 connections 151 GiB"),
        ({"server.aria_sort_buffer_size": "50G"}, "aria_sort_buffer_size of one session 50.0 GiB"),
        ({"server.temptable_max_ram": "100G"}, "temptable_max_ram 100 GiB"),
        ({"server.temptable_max_ram": "2G"}, ""),
        # 20 million rows of 4,224 bytes: of the digests themselves nothing is known here.
        (
            {"server.performance_schema_digests_size": "20000000"},
            "performance_schema_digests_size of 20,000,000 rows 78.7 GiB",
        ),
        ({"server.performance_schema_digests_size": "200000"}, ""),
        # Alone neither does anything.
        ({"host.vm.overcommit_ratio": "1"}, ""),
        ({"host.vm.overcommit_memory": "2"}, ""),
        ({"host.vm.overcommit_memory": "2", "host.vm.overcommit_ratio": "1"}, "the limit would be 0.2 GiB"),
        (
            {"host.vm.overcommit_memory": "2", "host.vm.overcommit_kbytes": "1024"},
            "the limit would be 0.0 GiB",
        ),
        ({"host.net.netfilter.nf_conntrack_max": "1000"}, "2 x 500 connections of now + 151"),
        ({"host.net.netfilter.nf_conntrack_max": "5000"}, ""),
    ],
)
async def test_what_would_not_fit_beside_what_runs(settings: dict[str, Value], says: str) -> None:
    lines = (
        "0.1 0.1 0.1 1/300 999 2000 0 99999 128\n"
        "MemAvailable: 18874368 kB\nSwapTotal: 0 kB\nCommitLimit: 12582912 kB\nCommitted_AS: 6291456 kB\n"
        "tracked: 500\n"
    )
    variables = {"innodb_buffer_pool_size": str(GIB), "max_connections": "151"}
    server = {"vendor": "mysql", "version": "9.7.0", "variables": variables}
    host = HostFacts(Facts("", {"memory": {"total_bytes": 24 * GIB}, "server_settings": server}))
    why = await why_not(_Host(lines), settings, host)  # type: ignore[arg-type]
    assert says in "; ".join(why.values())
    assert bool(why) == bool(says)
