"""Control groups of a collected server: which folders the script finds, and what the rules make of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headrace.hunt import hunt as hunts
from tests.folders import ROOT

SCRIPT = ROOT / "src" / "headrace" / "hunt" / "dumps" / "collect.sh"
V2 = "31 23 0:28 {} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "32 31 0:29 {0} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 {0} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
SERVICE = "/system.slice/system-mysqld\\x2dtest.slice/mysqld@1.service"


def folders(tmp_path: Path, own: str, process: str, groups: str) -> list[str]:
    """What the script's function prints for a process with these files, and these own mounts."""
    for name, text in (("self", own), ("7/mountinfo", process), ("7/cgroup", groups)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    script = SCRIPT.read_text()
    function = script[script.index("groups() {") : script.index("\nin_groups()")]
    function = function.replace("/proc/self/mountinfo", str(tmp_path / "self"))
    words = ["sh", "-c", f'{function}\ngroups "$1"', "sh", str(tmp_path / "7")]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def test_the_folders_of_both_versions_of_control_groups(tmp_path: Path) -> None:
    top = "/sys/fs/cgroup"
    found = folders(tmp_path, V2.format("/"), "", f"0::{SERVICE}\n")
    steps = SERVICE.split("/")[1:]
    assert found == sorted([top, *(f"{top}/{'/'.join(steps[:number])}" for number in (1, 2, 3))])
    found = folders(
        tmp_path, V1.format("/"), "", "4:memory:/a/b\n1:cpu,cpuacct:/db\n0::/x\n2:name=systemd:/y\n"
    )
    assert found == [
        f"{top}/cpu,cpuacct", f"{top}/cpu,cpuacct/db", f"{top}/memory", f"{top}/memory/a", f"{top}/memory/a/b",
    ]  # fmt: skip
    # A container without a namespace of control groups sees its own part of the tree.
    assert folders(tmp_path, V1.format("/docker/ab"), "", "4:memory:/docker/ab/c\n1:cpu:/docker/abc\n") == [
        f"{top}/memory", f"{top}/memory/c",
    ]  # fmt: skip


def test_a_group_beside_the_readers_is_only_what_its_own_mounts_show(tmp_path: Path) -> None:
    assert folders(tmp_path, V2.format("/"), V2.format("/../db"), "0::/../db\n") == [
        f"{tmp_path}/7/root/sys/fs/cgroup"
    ]
    assert folders(tmp_path, V2.format("/"), "", "0::/../db\n") == []


def collected(
    top: Path, counters: str, limit: tuple[str, str], mounts: str, groups: str, folder: str
) -> None:
    """A directory as the script leaves it: the server's limits once, the counters each second."""
    once = {
        "proc/self/mountinfo": mounts, "proc/41/comm": "mariadbd\n", "proc/41/cgroup": groups,
        "proc/41/cmdline": "/usr/sbin/mariadbd\0", "proc/stat": "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\n",
        f"{folder}/{limit[0]}": limit[1], "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        f"{folder}/cpu.cfs_period_us": "100000\n",
    }  # fmt: skip
    for name, text in once.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    for number in range(11):
        sample = top / f"samples/{1764346233 + number}"
        busy = 20 * number
        files = {
            "proc/stat": f"cpu  {busy} 0 0 {80 * number} 0 0 0 0\ncpu0 {busy} 0 0 {80 * number} 0 0 0 0\n",
            "proc/processes": f"41 (mariadbd) S 1 41 41 0 -1 0 0 0 0 0 {busy} 0 0 0 20 0 9 0 100 0 0\n",
            f"{folder}/cpu.stat": counters.format(
                periods=10 * number, throttled=9 * number, us=700_000 * number, ns=700_000_000 * number
            ),
        }
        for name, text in files.items():
            (sample / name).parent.mkdir(parents=True, exist_ok=True)
            (sample / name).write_text(text)


@pytest.mark.parametrize("version", [1, 2])
def test_a_throttled_server_is_found_in_what_was_collected(tmp_path: Path, version: int) -> None:
    if version == 2:
        counters = "usage_usec 9\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {us}\n"
        folder = f"sys/fs/cgroup{SERVICE}"
        collected(
            tmp_path, counters, ("cpu.max", "20000 100000\n"), V2.format("/"), f"0::{SERVICE}\n", folder
        )
    else:
        counters = "nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time {ns}\n"
        folder = "sys/fs/cgroup/cpu,cpuacct/db"
        limit = ("cpu.cfs_quota_us", "20000\n")
        collected(tmp_path, counters, limit, V1.format("/"), "1:cpu,cpuacct:/db\n", folder)
    snapshot = hunts.saved(tmp_path)
    found = hunts.examine(snapshot)
    assert found.evidence.server_process["cgroup"]["cpu_quota_us"] == 20_000
    assert found.verdict.sentence.startswith(
        "The CPU quota stopped the group in 90% of its periods: 0.70 s of thread time lost per second, with a "
        f"quota of 0.2 CPUs (CPU03@/{folder})."
    )
    assert snapshot.origin is not None
    assert not any("saved control group" in said for said in snapshot.origin.cautions)
