"""A fleet of which a third is broken in every way: each host has its state and reason, and costs no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import commands
from tests.saved_fleet import BROKEN, Saved, name, saved_fleet
from tests.sshd import running_sshd, user

COUNT = 3 * len(BROKEN)
REASONS = {
    "refuses": "cannot connect",
    "hangs": "no login within 4 s",
    "changed key": "the host's key is not the one in",
    "dies in the middle": "the connection was lost",
    "full disk": "no room left",
    "other processor": "the host is aarch64",
    "talks nonsense": "printed what is not JSON",
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saved]:
    planted = {name(1): {"max_connections": "7"}}
    with saved_fleet(tmp_path_factory.mktemp("saved"), COUNT, 1 / 3, planted) as running:
        yield running


def headrace(saved: Saved, state: Path, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = ["fleet", verb, "--fleet", str(saved.fleet), "--timeout", "4s", *arguments]
    env = {"XDG_STATE_HOME": str(state), "COLUMNS": "160", "NO_COLOR": "1"}
    return commands.headrace(*words, env=env)


def test_every_broken_host_has_its_state_and_reason(saved: Saved, tmp_path: Path) -> None:
    run = tmp_path / "run.jsonl"
    done = headrace(saved, tmp_path, "facts", "--json", "--run", str(run))
    assert done.returncode == 6, done.stderr
    assert "Traceback" not in done.stderr
    hosts: dict[str, Any] = json.loads(done.stdout)["hosts"]
    assert list(hosts) == [name(number) for number in range(COUNT)]
    for host, row in hosts.items():
        way = saved.broken.get(host)
        assert row["state"] == (BROKEN[way] if way else "ok"), (host, way, row)
        assert (REASONS[way] in row["reason"]) if way else row["answer"]["hostname"] == host
    # Only these are asked again.
    before = len(run.read_text().splitlines())
    headrace(saved, tmp_path, "facts", "--json", "--run", str(run))
    again = {json.loads(line)["host"] for line in run.read_text().splitlines()[before:]}
    assert again == set(saved.broken)


def test_the_whole_hosts_are_compared_and_equal_answers_are_folded(saved: Saved, tmp_path: Path) -> None:
    done = headrace(saved, tmp_path, "drift")
    assert done.returncode == 6, done.stderr
    assert f"{COUNT} hosts: {COUNT - 7} ok, 3 failed, 4 unreachable" in done.stdout
    assert "max_connections = 7" in done.stdout
    assert "1 of " in done.stdout
    assert f"on 1 of {COUNT - 7} hosts" in done.stdout


def test_a_jump_host_is_not_asked_for_more_logins_than_it_takes(saved: Saved, tmp_path: Path) -> None:
    """sshd refuses a login while so many others have not ended; ten unless it is set."""
    (tmp_path / "gate").mkdir()
    with running_sshd(tmp_path / "gate", "LogLevel DEBUG", "MaxStartups 3") as gate:
        folder = saved.fleet.parent
        public = (folder / "user_key.pub").read_text()
        with (tmp_path / "gate" / "authorized_keys").open("a") as keys:
            keys.write(public)
        known = tmp_path / "known_hosts"
        known.write_text((folder / "known_hosts").read_text() + gate.known_hosts.read_text())
        whole = [name(number) for number in range(COUNT) if name(number) not in saved.broken]
        jump = f"{user()}@127.0.0.1:{gate.port}"
        text = saved.fleet.read_text().replace(f"{folder}/known_hosts", str(known))
        fleet = folder / "behind.toml"
        fleet.write_text(
            text.replace(
                "[fleet]",
                f'[fleet]\nfan_out_jump = 2\njump = "{jump}"\nidentity_file = "{folder}/user_key"',
                1,
            )
        )
        argv = [sys.executable, "-m", "headrace", "fleet", "drift", "--fleet", str(fleet), "--json"]
        env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
        done = subprocess.run(
            [*argv, "--only", ",".join(whole)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert json.loads(done.stdout)["states"]["ok"] == len(whole) == 14
        log = (tmp_path / "gate" / "sshd.log").read_text()
        assert log.count("Accepted publickey") == len(whole)
        assert "beginning MaxStartups throttling" not in log


def test_as_many_files_as_a_process_may_open_limit_how_many_are_asked(saved: Saved, tmp_path: Path) -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))\n"
        f"sys.argv = ['headrace', 'fleet', 'status', '--fleet', {str(saved.fleet)!r}]\n"
        f"sys.argv += ['--only', '{name(1)},{name(2)}', '--fan-out', '64']\n"
        "from headrace.fleet import runner; runner.DESCRIPTORS = 155\n"
        "from headrace.cli import main; main()"
    )
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "hosts at a time: 1 instead of 64" in done.stderr
    assert "2 hosts: 2 " in done.stdout
