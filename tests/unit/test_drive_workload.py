"""What the driver is asked to do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from headrace.base.model import ServerEndpoint, Vendor
from headrace.experiment.workloads import make_workload
from headrace.experiment.workloads.drive.workload import SEEDS, Driven
from headrace.experiment.workloads.sysbench_oltp import SysbenchOltp
from headrace.experiment.workloads.workload import Context
from headrace.host.target.local import LocalTarget


def test_a_block_has_arrivals_and_keys_of_its_own() -> None:
    context = Context(LocalTarget(), "owner", "/tmp", None, 1.0, 0.0, Path("/tmp"))
    workload = make_workload("oltp", {"rate": 100})
    assert isinstance(workload, Driven)

    def seed(block: int) -> int:
        return int(asyncio.run(workload._spec(replace(context, block=block)))["seed"])

    seeds = [seed(block) for block in range(100)]
    assert len(set(seeds)) == 100
    assert all(0 <= each < SEEDS for each in seeds)
    # The trials of a block, and those of a run that goes on tomorrow.
    assert seed(7) == seeds[7]
    other = make_workload("oltp", {"rate": 100, "seed": 2})
    assert isinstance(other, Driven)
    assert asyncio.run(other._spec(context))["seed"] != seeds[0]


def test_a_seed_of_sysbench_is_another_in_each_block() -> None:
    endpoint = ServerEndpoint(Vendor.MARIADB, "10.11", "/s", 0, "root", "sbtest")
    context = Context(LocalTarget(), "owner", "/tmp", endpoint, 1.0, 0.0, Path("/tmp"))

    def seeds(seed: int) -> list[int]:
        workload = make_workload("sysbench-oltp", {"rand_seed": seed})
        assert isinstance(workload, SysbenchOltp)
        lines = (workload.arguments(replace(context, block=block), 1.0) for block in range(50))
        return [
            int(word.removeprefix("--rand-seed=")) for argv in lines for word in argv if "rand-seed" in word
        ]

    own = seeds(7)
    assert len(set(own)) == 50
    assert all(0 < each < 2**31 for each in own)
    assert own == seeds(7)
    assert own[0] != seeds(8)[0]
    assert set(seeds(0)) == {0}, "the time"


def test_what_a_tool_writes_on_another_machine_is_no_part_of_the_trials_scratch() -> None:
    here, there = LocalTarget(), LocalTarget()
    context = Context(here, "owner", "/tmp", None, 1.0, 0.0, Path("/tmp"), aside="/scratch/vol.aside")
    assert context.on(here).aside == "/scratch/vol.aside"
    # The journal that removes it is this target's: there it would stay.
    assert context.on(there).target is there
    assert context.on(there).aside == ""
