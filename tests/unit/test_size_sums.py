"""Limits of reads and writes together: counted once, and moved without the writes when a host fails."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headrace.capacity import catalogue, rows, sums, table
from headrace.capacity.model import SUMS, Demand, Resource
from headrace.capacity.plan import Asked, Merged, plan
from headrace.capacity.together import together
from tests.commands import headrace

START_S, STEP_S, STEPS = 1_772_409_600, 1800, 8 * 48
FAST = Asked(seconds=1.0, exact=False)


def demands(folder: Path, *hosts: tuple[str, str, dict[str, list[float]]]) -> table.Table:
    """(host, group, resource -> its values of each half of a day)."""
    lines = [
        f"{host},{group},{START_S + n * STEP_S},{resource},{values[n // 24 % len(values)]}"
        for host, group, used in hosts
        for resource, values in used.items()
        for n in range(STEPS)
    ]
    path = folder / "demands.csv"
    path.write_text("\n".join(["host,group,time,resource,value", *lines]) + "\n")
    return table.read(path)


def instances(folder: Path, **more: object) -> catalogue.Catalogue:
    pricing = {"us-east-1": {"linux": {"ondemand": "0.1"}}}
    path = folder / "instances.json"
    path.write_text(
        json.dumps([{"instance_type": "m.4x", "vCPU": 16, "memory": 64, "pricing": pricing, **more}])
    )
    return catalogue.read(path)


def hosts(folder: Path, text: str) -> catalogue.Catalogue:
    path = folder / "hosts.csv"
    path.write_text(text)
    return catalogue.read(path)


def planned(table_: table.Table, offered: catalogue.Catalogue) -> Merged:
    return plan(table_, offered, FAST)


@pytest.mark.parametrize(
    ("reads", "writes", "limits", "fits"),
    [
        ("reads", "writes", {"ebs_baseline_iops": 20_000, "ebs_iops": 20_000}, False),
        ("read_bytes", "write_bytes", {"ebs_baseline_throughput": 0.02, "ebs_throughput": 0.02}, False),
        ("reads", "writes", {"ebs_baseline_iops": 40_000, "ebs_iops": 40_000}, True),
    ],
)
def test_reads_and_writes_share_a_limit(
    tmp_path: Path, reads: str, writes: str, limits: dict[str, float], fits: bool
) -> None:
    """11,000 of each are below 60% of 20,000, together they are above all of it."""
    found = planned(
        demands(tmp_path, ("db1", "", {reads: [11_000], writes: [11_000]})), instances(tmp_path, **limits)
    )
    assert found.fits is fits
    assert not any("assumed never to run out" in note for note in found.notes)


def test_what_is_never_at_the_same_time_is_not_added(tmp_path: Path) -> None:
    found = planned(
        demands(tmp_path, ("db1", "", {"reads": [11_000, 100], "writes": [100, 11_000]})),
        instances(tmp_path, ebs_baseline_iops=20_000),
    )
    assert found.fits
    assert found.hosts[0].uses[0].peak.estimate == pytest.approx(11_100)


def test_a_replica_takes_over_reads_but_has_the_writes_already(tmp_path: Path) -> None:
    """10,000 of its own and 4,000 reads of the failed one, of 20,000."""
    used = {"reads": [4000.0], "writes": [6000.0]}
    found = planned(
        demands(tmp_path, ("db1", "a", used), ("db2", "a", used)),
        hosts(tmp_path, "name,device_requests,device_requests_knee\nbig,20000,1\n"),
    )
    assert [host.after_failure for host in found.hosts] == pytest.approx([0.7, 0.7])


def test_a_sum_of_which_nobody_knows_the_writes_moves_as_a_whole() -> None:
    """Otherwise its reads at each step; in a gap, which counts as the largest, the largest share."""

    def moving(**used: list[float]) -> list[float]:
        demand = Demand("db1", 0, 60, {Resource(r): np.array(v, dtype=float) for r, v in used.items()})
        found = sums.moving([demand], fleet := together([demand]))
        assert set(found) == {fleet.resources.index(r) for r in SUMS if r in fleet.resources}
        return [] if not found else list(next(iter(found.values()))[0])

    assert moving(device_requests=[5, 5]) == [5, 5]
    assert moving(device_requests=[10, 20, np.nan], writes=[6, 18, 3]) == pytest.approx([4, 2, 0.4 * 20])
    assert moving(device_requests=[10, 0], writes=[10, 0]) == [0, 0]
    assert moving(cpu=[1, 1]) == []
    assert moving(reads=[1, 1]) == []


@pytest.mark.parametrize("most", [STEPS, 336])
def test_what_moves_of_a_sum_is_exact_at_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Reads by day and writes by night: 10,000 reads move by day, nothing by night. By the largest share, all of
    the 18,000 writes would move. Also if the rows of the plan are not all of its steps."""
    monkeypatch.setattr(rows, "MOST_TIMES", most)
    used = {"reads": [10_000.0, 0.0], "writes": [0.0, 18_000.0]}
    offered = hosts(tmp_path, "name,device_requests,device_requests_knee\nbig,20000,1\n")
    path = demands(tmp_path, ("db1", "a", used), ("db2", "a", used))
    found = planned(path, offered)
    assert not found.unplaced
    assert [host.after_failure for host in found.hosts] == pytest.approx([1.0, 1.0])
    assert not found.solution.placement.violations()
    less = planned(path, hosts(tmp_path, "name,device_requests,device_requests_knee\nbig,19999,1\n"))
    assert less.unplaced


def test_what_a_sum_lacks_is_said_and_one_that_is_given_is_kept(tmp_path: Path) -> None:
    one = Demand("db1", 0, 60, {Resource.WRITES: np.array([1.0, np.nan])})
    two = Demand(
        "db2", 0, 60, {Resource.READS: np.array([1.0, 2.0]), Resource.WRITES: np.array([5.0, np.nan])}
    )
    three = Demand("db3", 0, 60, {Resource.READS: np.ones(2), Resource.DEVICE_REQUESTS: np.array([7.0, 7.0])})
    found, notes = sums.added([one, two, three], {Resource.DEVICE_REQUESTS})
    assert notes == ["no reads of db1: device_requests counts only writes"]
    np.testing.assert_array_equal(found[0].used[Resource.DEVICE_REQUESTS], [1, np.nan])
    np.testing.assert_array_equal(found[1].used[Resource.DEVICE_REQUESTS], [6, np.nan])
    np.testing.assert_array_equal(found[2].used[Resource.DEVICE_REQUESTS], [7, 7])
    assert sums.added([one, two, three], {Resource.WRITES}) == ([one, two, three], [])


def test_a_catalogue_may_limit_them_together_or_each(tmp_path: Path) -> None:
    text = "name,reads,writes,device_requests,price\ncloud,,,20000,100\nown,20000,20000,,900\n"
    offered = hosts(tmp_path, text)
    assert not any(note.startswith(("reads", "writes", "device_requests")) for note in offered.notes)
    half = hosts(tmp_path, "name,reads,writes,device_requests\ncloud,,,20000\nhalf,20000,,\n")
    assert "device_requests unknown for half: it does not limit them" in half.notes
    assert "writes unknown for half: it does not limit them" in half.notes
    found = planned(demands(tmp_path, ("db1", "", {"reads": [11_000], "writes": [11_000]})), offered)
    assert found.fits
    assert [host.capacity.name for host in found.hosts] == ["own"]


def test_what_a_type_has_for_a_while_only_is_in_the_json(tmp_path: Path) -> None:
    demands(tmp_path, ("db1", "", {"cpu": [0.1], "reads": [100]}))
    instances(tmp_path, base_performance=6.4, ebs_baseline_iops=4000, ebs_iops=20_000)
    files = (str(tmp_path / "demands.csv"), "-c", str(tmp_path / "instances.json"))
    answer = headrace("size", "merge", *files, "--budget", "1s", "--json")
    assert answer.returncode == 0, answer.stderr
    [host] = json.loads(answer.stdout)["hosts"]
    assert host["burst"] == {"cpu": 16, "device_requests": 20_000}
