"""Changing interfaces and mounts of the kernel: they come back as they were."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_apply import OWNER
from tests.agent.test_journal import Host
from tests.programs import agent_path


@pytest.fixture
def veth() -> Iterator[str]:
    """A pair of interfaces between two namespaces of our own; the name of the one that holds ``hra0``."""
    names = [f"hr{os.getpid()}a", f"hr{os.getpid()}b"]
    for name in names:
        subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        ends = ["hra0", "netns", names[0], "type", "veth", "peer", "name", "hrb0", "netns", names[1]]
        subprocess.run(["ip", "link", "add", *ends], check=True)
        yield names[0]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.needs("root")
def test_packet_steering_of_a_real_interface(veth: str, tmp_path: Path) -> None:
    path = "/sys/class/net/hra0/queues/rx-0/rps_cpus"

    def inside(*argv: str, stdin: Any = None) -> str:
        done = subprocess.run(
            ["ip", "netns", "exec", veth, *argv],
            input=json.dumps(stdin),
            text=True,
            check=True,
            capture_output=True,
        )
        return done.stdout

    def journal(verb: str, *options: str, stdin: Any = None) -> str:
        state = ("--state", str(tmp_path / "state"), "--owner", OWNER)
        return inside(agent_path(), "journal", verb, *state, *options, stdin=stdin)

    before = inside("cat", path)
    journal("apply", "--confirm-within", "1h", stdin=[{"path": path, "value": "1"}])
    assert int(inside("cat", path).replace(",", ""), 16) == 1
    journal("rollback")
    assert inside("cat", path) == before


@pytest.mark.needs("root")
def test_a_mount_is_remounted_and_back(tmp_path: Path) -> None:
    point, host = tmp_path / "m", Host(tmp_path)
    point.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "nosuid,nosymfollow,relatime", "headrace-test", point], check=True
    )

    def options() -> list[str]:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return next(line.split()[5] for line in lines if line.split()[4] == str(point)).split(",")

    try:
        host.call("apply", stdin=[{"mount": str(point), "options": "noatime"}])
        assert "noatime" in options()
        assert {"nosuid", "nosymfollow"} <= set(options()), "what was not named stays"
        assert "mounted again" in host.call(
            "apply", stdin=[{"mount": str(point), "options": "data=journal"}], code=5
        )
        host.call("rollback")
        assert {"relatime", "nosuid", "nosymfollow"} <= set(options())
        assert "noatime" not in options()
    finally:
        subprocess.run(["umount", point], check=True)
