"""The workload power-cut: a disk that keeps only what was flushed, and a server that flushes or does not."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.base.model import OWNER_VARIABLE
from tests.bench import Bench
from tests.traces import read_each
from tests.waiting import until

pytestmark = pytest.mark.needs("root", "qemu-storage-daemon", "FUSE", "mkfs.xfs", "mariadbd")

PLAN = """
name = "cuts"
[target]
scratch = "{scratch}"
disturbed = "keep"
[design]
kind = "factorial"
baseline = "synced"
blocks = 1
allow_weaker_durability = ["server.innodb_flush_method"]
[workload]
kind = "power-cut"
seconds = 2
connections = 8
cuts = 3
[volume]
device = "logged"
size = "400M"
[base]
"volume.filesystem" = "xfs"
"server.innodb_buffer_pool_size" = "32M"
"server.innodb_log_file_size" = "16M"
[factors.method]
levels.synced = { "server.innodb_flush_method" = "fsync" }
levels.unsynced = { "server.innodb_flush_method" = "nosync" }
"""


def test_a_server_that_syncs_loses_nothing_and_one_that_does_not_loses_some(
    bench: Callable[[str], Bench],
) -> None:
    lab = bench(PLAN)
    code, out, err = lab.finish("--json")
    assert code == 0, err
    taken = {each["treatment"]: each for each in json.loads(out)["power_cuts"]}
    synced, unsynced = taken["synced"], taken["unsynced"]
    assert (synced["trials"], synced["cuts"], synced["cuts_that_lost"]) == (2, 6, 0)
    assert synced["acknowledged"] > 100
    assert synced["after"] == {}
    assert unsynced["cuts_that_lost"] > 0
    assert json.loads(out)["headline"].startswith("With unsynced a power cut takes ")
    assert lab.traces() == []


def booted(lab: Bench) -> bool:
    """Whether a second server runs: the first is not below ``unshare``."""
    mark = f"{OWNER_VARIABLE}=".encode()
    return any(
        mark in text and b"\0STATEMENTS=" in text and bytes(lab.scratch) in text
        for _, text in read_each("proc/[0-9]*/environ")
    )


@pytest.mark.thorough
def test_killed_while_a_server_boots_after_a_cut_nothing_stays(bench: Callable[[str], Bench]) -> None:
    lab = bench(PLAN)
    process = lab.start()
    until(lambda: booted(lab), process, limit_s=60, pause_s=0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    until(
        lambda: not lab.traces() and not list(Path(lab.scratch).glob("volume*")),
        limit_s=30,
        what="something of the experiment stays",
    )
