"""A device that is really saturated and one that only looks it, side by side, found on the live host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.hunt import resources
from tests import lab, programs

pytestmark = pytest.mark.needs("qemu-storage-daemon", "FUSE")


def fio(device: str, depth: int) -> list[str]:
    """Random reads with this many in flight, for longer than anybody watches."""
    job = [f"--filename={device}", "--rw=randread", "--bs=4k", "--direct=1", "--time_based", "--runtime=60"]
    return ["fio", "--name=x", "--ioengine=libaio", f"--iodepth={depth}", *job]


def test_a_saturated_device_is_told_from_one_that_never_rests(tmp_path: Path) -> None:
    with (
        lab.exported_device(tmp_path, "slow", iops=1000) as slow,
        lab.exported_device(tmp_path, "quick", iops=4000) as quick,
        # One at a time on a device that could serve many more: it never rests, and nothing waits for it.
        lab.running(fio(slow, 32)),
        lab.running(fio(quick, 1)),
    ):
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "HEADRACE_AGENT": programs.agent_path()}
        headrace = Path(sys.executable).parent / "headrace"
        # Other work that fills a core limits the host, too: such a look is repeated.
        for _ in range(3):
            done = subprocess.run(
                [headrace, "hunt", "--duration", "8s", "--json"],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
                env=environment,
            )
            found = json.loads(done.stdout)
            if str(found["limiting"]).startswith("block "):
                break
    uses = {use["name"]: use for use in found["resources"]}
    saturated, busy = (uses[f"block {device.removeprefix('/dev/')}"] for device in (slow, quick))
    assert saturated["level"] == "saturated", saturated
    assert saturated["numbers"]["queue"] > 16
    assert busy["level"] == "fine", busy
    assert busy["numbers"]["queue"] < 2
    # What it could be on an idle machine is 0.95: one request at a time also waits for a core.
    assert busy["numbers"]["util"] > 0.3
    assert any("%util" in trap for trap in busy["traps"]) == (busy["numbers"]["util"] >= resources.BUSY)
    if found["limiting"] == "cpu":
        # What other guests take comes first where it is that much, and then says so.
        assert "stolen by the hypervisor" in found["verdict"]
    else:
        assert found["limiting"] == f"block {slow.removeprefix('/dev/')}", found["verdict"]
