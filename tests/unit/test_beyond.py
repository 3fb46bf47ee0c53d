"""A server that sizes itself by the whole machine is refused by name."""

from __future__ import annotations

import pytest

from headrace.beyond import DEDICATED, _dedicated
from headrace.facts import HostFacts
from headrace.model import Facts, Value

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
