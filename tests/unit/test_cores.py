"""Which CPUs driver and server have if they run on one machine."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.base.model import Facts, Treatment
from headrace.experiment import cores, workloads
from headrace.experiment.trial import _Steps
from headrace.host.facts import HostFacts
from tests.unit.test_duet import topology


def test_lists_of_cpus() -> None:
    assert cores.cpu_list("0-3,8\n") == [0, 1, 2, 3, 8]
    assert cores.cpu_list("1") == [1]


def test_four_cores_are_the_least_to_divide() -> None:
    assert cores.of_driver_and_server(topology(1, 3, 2), range(6)) is None
    assert cores.of_driver_and_server(topology(1, 4, 1), range(4)) == ([0], [1, 2, 3])
    assert cores.of_driver_and_server({}, range(2)) is None


def test_threads_of_a_core_are_of_one_program() -> None:
    assert cores.of_driver_and_server(topology(1, 4, 2), range(8)) == ([0, 4], [1, 5, 2, 6, 3, 7])
    driver, server = cores.of_driver_and_server(topology(2, 8, 2), range(32)) or ([], [])
    assert (len(driver), len(server)) == (8, 24)
    assert not set(driver) & set(server)


def test_only_usable_cpus_are_divided() -> None:
    assert cores.of_driver_and_server(topology(1, 16, 1), [3, 5, 7, 9]) == ([3], [5, 7, 9])


class Host:
    """A target of which only the usable CPUs are asked."""

    async def read(self, path: str) -> bytes:
        assert path == "/proc/self/status"
        return b"Name:\tcat\nCpus_allowed_list:\t0-7\n"


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("oltp", {}, ("0,4", "1,5,2,6,3,7")),
        ("oltp", {"separate_cores": False}, ("", "")),
        # Its driver runs elsewhere.
        ("oltp", {"connections": 2, "clients": ["root@10.0.0.9"]}, ("", "")),
        # Each of its threads needs as much CPU as the server's.
        ("sysbench-oltp", {}, ("", "")),
    ],
)
def test_a_trial_divides_them(kind: str, options: dict[str, Any], expected: tuple[str, str]) -> None:
    lab: Any = SimpleNamespace(
        side=None, target=Host(), facts=Facts("f", {"cpu": topology(1, 4, 2)}), clients={}
    )
    nothing: Any = None
    steps = _Steps(lab, Treatment("A", {}, {}), 1, nothing, nothing, nothing)
    asyncio.run(steps._separate(workloads.make_workload(kind, options)))
    assert steps._cpus == expected
    assert set(steps.knobs) == ({"driver.cpus", "server.cpus"} if expected[0] else set())


def test_one_cpu_is_said_as_one() -> None:
    sizes = [HostFacts(Facts("0" * 16, {"cpu": {"online_count": n}})).size for n in (1, 8)]
    assert sizes == ["1 CPU, kernel unknown", "8 CPUs, kernel unknown"]
