"""Rounds until a device is in steady state: the definition, its cap, and real rounds on a real device."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from headrace.base.model import Option
from headrace.experiment import plan as plans
from headrace.experiment.runner import trial_seconds
from headrace.experiment.workloads import make_workload
from headrace.experiment.workloads.fio import FioOptions
from headrace.experiment.workloads.precondition import FILE, is_steady, precondition
from headrace.experiment.workloads.tables import Phase, Slice
from headrace.host.agent import Agent, Journal
from headrace.host.target.local import LocalTarget
from headrace.lab.volumes import DeviceSpec, VolumeSpec, mounted
from tests.contracts.workload import make_context
from tests.real.server.test_workloads import needs_fio, needs_sysbench

SECOND = 10**9


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([100, 100, 100, 100], False),
        ([100, 100, 100, 100, 100], True),
        ([90, 110, 90, 110, 100], True),  # a range of 20% of the mean, no slope to speak of
        ([89, 111, 89, 111, 100], False),  # a range of 22%
        ([95, 97.5, 100, 102.5, 105], True),  # a slope of 10% over the five
        ([94, 97, 100, 103, 106], False),  # 12%, though the range is within 20%
        ([900, 500, 100, 101, 99, 100, 100], True),  # only the last five count
        ([900, 100, 101, 99, 100], False),
        ([0, 0, 0, 0, 0], False),
    ],
)
def test_the_definition(rounds: Sequence[float], expected: bool) -> None:
    assert is_steady(rounds) is expected
    assert is_steady([1e6 * value for value in rounds]) is expected


class Device:
    """Answers each round with the next of some rates."""

    def __init__(self, rates: Sequence[int]) -> None:
        self.rates = list(rates)
        self.rounds: list[tuple[str, float]] = []

    async def run_round(self, name: str, seconds: float) -> Phase:
        self.rounds.append((name, seconds))
        rate = self.rates.pop(0)
        part = Slice(
            0, 2 * SECOND, "write", rate, bytes=None, min_ns=None, max_ns=None, p99_ns=None, histogram={}
        )
        return Phase(0, 2 * SECOND, [part, part])


async def test_a_fresh_device_is_worn_until_it_is_steady(tmp_path: Path) -> None:
    device = Device([900, 700, 500, 300, 200, 201, 199, 200, 202, 1])
    options = FioOptions.model_validate({"precondition": True, "precondition_round_s": 2})
    assert await precondition(options, device.run_round, tmp_path) == ()
    assert [name for name, _ in device.rounds] == [f"round{i:02d}" for i in range(1, 10)]
    assert {seconds for _, seconds in device.rounds} == {2}
    written = json.loads((tmp_path / FILE).read_text())
    assert written == {
        "round_s": 2,
        "ops_s": [900, 700, 500, 300, 200, 201, 199, 200, 202],
        "is_steady": True,
    }


async def test_a_device_that_is_never_steady_is_said_to_be_so(tmp_path: Path) -> None:
    device = Device([100, 200] * 20)
    options = FioOptions.model_validate({"precondition": True, "precondition_rounds": 7})
    (warning,) = await precondition(options, device.run_round, tmp_path)
    assert "not in steady state after 7 rounds of 60 s (the last: 100, 200, 100, 200, 100" in warning
    assert json.loads((tmp_path / FILE).read_text())["is_steady"] is False


async def test_nothing_is_done_unasked(tmp_path: Path) -> None:
    device = Device([])
    assert await precondition(FioOptions.model_validate({}), device.run_round, tmp_path) == ()
    assert not (tmp_path / FILE).exists()


PLAN = """
name = "p"
[design]
kind = "factorial"
baseline = {}
[workload]
kind = "fio"
seconds = 10
"""


def test_a_plan_counts_the_rounds() -> None:
    plain = plans.parse(PLAN, "p.toml")
    asked = plans.parse(PLAN + "precondition = true\nprecondition_round_s = 30\n", "p.toml")
    assert trial_seconds(asked.workload) == trial_seconds(plain.workload) + 150


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param("fio", {"rw": "randwrite", "size": "32M"}, marks=needs_fio),
        pytest.param(
            "sysbench-fileio",
            {
                "file_test_mode": "rndwr",
                "file_num": 2,
                "file_total_size": "32M",
                "file_extra_flags": "direct",
            },
            marks=needs_sysbench,
        ),
    ],
)
async def test_real_rounds_on_a_loop_device(tmp_path: Path, kind: str, options: Mapping[str, Option]) -> None:
    target = LocalTarget()
    await target.connect()
    journal = Journal(await Agent.install(target), f"precondition-{os.getpid()}", str(tmp_path / "state"))
    spec = VolumeSpec(DeviceSpec("loop", 512 * 2**20, ""), "ext4", (), (), {})
    asked = {**options, "precondition": True, "precondition_round_s": 1, "precondition_rounds": 8}
    async with mounted(target, journal, spec, str(tmp_path / "scratch"), "vol") as volume:
        context = dataclasses.replace(make_context(tmp_path), folder=f"{volume.path}/files")
        workload = make_workload(kind, asked)
        await workload.prepare(context)
        measured = await workload.run(context)
    await target.close()
    written = json.loads((context.raw / FILE).read_text())
    assert 5 <= len(written["ops_s"]) <= 8
    assert all(value > 0 for value in written["ops_s"])
    assert written["is_steady"] is is_steady(written["ops_s"])
    assert bool(measured.warnings) is not written["is_steady"]
    assert measured.intervals.num_rows > 0
