"""Layers of one stack that are all full are one bottleneck, wherever the links between them are known from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.base.model import Facts
from headrace.host.facts import HostFacts
from headrace.host.samples import Samples
from headrace.host.window import Window
from headrace.hunt.hunt import Hunt, examine, saved
from headrace.hunt.stacked import Stack, stacks

BANNER = "Linux 5.14.0 (db1) \t11/29/26 \t_x86_64_\t(4 CPU)\n\n"
TITLE = "Device  r/s  rkB/s  r_await  w/s  wkB/s  w_await  aqu-sz  %util\n"


def iostat(path: Path, rows: dict[str, tuple[float, float, float, float]]) -> Hunt:
    """Each row: reads, kB read, writes, kB written per second; every device has a long queue."""
    table = "".join(
        f"{name} {reads:.2f} {read:.2f} 40.00 {writes:.2f} {written:.2f} 40.00 60.00 100.00\n"
        for name, (reads, read, writes, written) in rows.items()
    )
    cpu = "avg-cpu:  %user %nice %system %iowait %steal %idle\n  5.00 0.00 5.00 60.00 0.00 30.00\n\n"
    path.write_text(BANNER + 5 * f"{cpu}{TITLE}{table}\n\n")
    return examine(saved(path))


MULTIPATH = {
    "sda": (600.0, 9_600.0, 50.0, 400.0),
    "sdb": (610.0, 9_700.0, 52.0, 410.0),
    "dm-0": (1_210.0, 19_300.0, 102.0, 810.0),
}
MIRROR = {"sda": (300.0, 4_800.0, 80.0, 900.0), "sdb": (320.0, 5_000.0, 80.0, 900.0)} | {
    "md0": (620.0, 9_800.0, 80.0, 900.0)
}
CRYPT = {"sda": (900.0, 9_600.0, 50.0, 400.0), "dm-3": (1_400.0, 9_600.0, 70.0, 400.0)}
APART = {"sda": (900.0, 9_600.0, 50.0, 400.0), "sdb": (500.0, 3_600.0, 90.0, 1_400.0)}
TWINS = dict.fromkeys(("sda", "sdb", "dm-0"), CRYPT["sda"])


@pytest.mark.parametrize(
    ("rows", "named", "says"),
    [
        (MULTIPATH, {"dm-0"}, "sda and sdb below it are saturated with it: one stack"),
        (MIRROR, {"md0"}, "sda and sdb below it are saturated with it: one stack"),
        (CRYPT, {"sda"}, "dm-3 above it is saturated with it: one stack"),
        (APART, {"sda", "sdb"}, ""),
        # Either of the two may be what is below.
        (TWINS, {"sda", "sdb", "dm-0"}, ""),
    ],
)
def test_layers_that_moved_the_same_bytes_are_one_finding(
    tmp_path: Path, rows: dict[str, tuple[float, float, float, float]], named: set[str], says: str
) -> None:
    found = iostat(tmp_path / "iostat.txt", rows)
    full = [finding for finding in found.judgement.findings if finding.rule.code == "BLK12"]
    assert {finding.id.partition("@")[2] for finding in full} == named
    assert says in full[0].hit.summary
    assert found.verdict.limiting is not None
    assert found.verdict.limiting.instance in named


@dataclass(frozen=True)
class Full:
    instance: str


#: Two drives as an array, with two volumes on it; and one drive with an encrypted volume.
RECORDS = [
    {"name": "nvme0n1", "kind": "disk"}, {"name": "nvme1n1", "kind": "disk"}, {"name": "sda", "kind": "disk"},
    {"name": "md0", "kind": "raid", "slaves": ["nvme0n1", "nvme1n1"]},
    {"name": "dm-0", "kind": "mapping", "slaves": ["md0"]}, {"name": "dm-1", "kind": "mapping", "slaves": ["md0"]},
    {"name": "dm-2", "kind": "mapping", "slaves": ["sda"]},
]  # fmt: skip


@pytest.mark.parametrize(
    ("full", "expected"),
    [
        ("nvme0n1 nvme1n1", [Stack("nvme0n1", beside=("nvme1n1",))]),
        ("nvme0n1 md0 nvme1n1", [Stack("md0", below=("nvme0n1", "nvme1n1"))]),
        ("dm-2 sda nvme1n1", [Stack("sda", above=("dm-2",)), Stack("nvme1n1")]),
        ("dm-0 nvme0n1", [Stack("nvme0n1", above=("dm-0",))]),
        # The server's own volume is the one that is spoken of.
        ("dm-0 dm-1 nvme0n1 nvme1n1", [Stack("dm-1", below=("nvme0n1", "nvme1n1"), beside=("dm-0",))]),
    ],
)
def test_layers_that_facts_name_are_one_stack(full: str, expected: list[Stack]) -> None:
    window = Window(Samples.of([]))
    facts = HostFacts(Facts("", {"block_devices": RECORDS}))
    own = {"dm-1", "md0", "nvme0n1", "nvme1n1"} if "dm-1" in full else None
    assert stacks(window, facts, [Full(name) for name in full.split()], own) == expected
