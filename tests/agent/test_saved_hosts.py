"""Directories with proc/ and sys/: what commands do with them, and the script that makes one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from headrace.base.errors import StoreError
from headrace.hunt import hunt as hunts
from tests.commands import headrace
from tests.folders import ROOT
from tests.waiting import until

SCRIPT = ROOT / "src" / "headrace" / "hunt" / "dumps" / "collect.sh"
READ = ("stat", "meminfo", "diskstats", "vmstat", "uptime", "net/dev")
HOST = ROOT / "tests" / "hosts" / "xen-16core-md"


def reading(folder: Path) -> None:
    for name in READ:
        (folder / "proc" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "proc" / name).write_text(Path("/proc", name).read_text())


@pytest.mark.parametrize("names", [("1764346233", "1764346234"), ("a", "b")])
def test_two_readings_are_a_hunt(tmp_path: Path, names: tuple[str, str]) -> None:
    """Their time is the uptime in them: a second's name is too coarse."""
    for name in names:
        reading(tmp_path / name)
        time.sleep(0.3)
    found = hunts.examine(hunts.saved(tmp_path))
    assert 0.2 < found.evidence.window.seconds < 5
    assert found.evidence.cores
    assert found.snapshot.origin is not None
    assert not any("disks" in text or "CPUs" in text for text in found.snapshot.origin.missing)


def test_one_reading_says_that_it_is_one(tmp_path: Path) -> None:
    reading(tmp_path)
    done = headrace("hunt", "--target", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "one reading, and no time between two" in " ".join(done.stdout.split())
    assert "/proc/stat twice" in " ".join(done.stdout.split())


def test_some_of_the_processes_say_nothing_about_the_others(tmp_path: Path) -> None:
    for name in ("1764346233", "1764346234"):
        reading(tmp_path / name)
        own = tmp_path / name / "proc" / "4711"
        own.mkdir()
        shutil.copyfile("/proc/self/stat", own / "stat")
        time.sleep(0.05)
    assert "process" not in {sampler for sampler, _, _ in hunts.saved(tmp_path).samples.names}


def test_the_hosts_of_two_reports_are_not_one(tmp_path: Path) -> None:
    for name in ("db1", "db2"):
        reading(tmp_path / name)
        (tmp_path / name / "etc").mkdir()
        (tmp_path / name / "etc" / "hostname").write_text(f"{name}.example.com\n")
    with pytest.raises(StoreError, match="2 hosts: db1, db2"):
        hunts.saved(tmp_path)


def test_every_command_takes_a_saved_host_or_says_which_do() -> None:
    for words in (("hunt",), ("facts",), ("knobs",)):
        done = headrace(*words, "--json", "--target", str(HOST))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
    for live in (("doctor",), ("top", "--once"), ("rollback", "--list"), ("latencies",)):
        done = headrace(*live, "--target", str(HOST))
        assert done.returncode != 0
        assert "saved host" in done.stderr
        assert "sh -c" not in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.count(str(HOST)) == 1


def test_knobs_of_a_saved_host_are_those_in_its_files() -> None:
    knobs = {
        each["name"]: each["value"]
        for each in json.loads(headrace("knobs", "--json", "--target", str(HOST)).stdout)
    }
    swappiness = HOST / "proc" / "sys" / "vm" / "swappiness"
    assert knobs["host.vm.swappiness"] == int(swappiness.read_text())


def test_the_script_is_printed() -> None:
    assert headrace("collect").stdout == SCRIPT.read_text()


def test_the_script_without_a_client_reads_the_host(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("awk", "cat", "date", "head", "mkdir", "rm", "sed", "sleep", "tee", "tr", "uname"):
        (programs / name).symlink_to(shutil.which(name) or "/")
    # Its own PATH has more: a client there would be found.
    card = programs / "ethtool"
    card.write_text("#!/bin/sh\necho NIC statistics:\necho '     pps_allowance_exceeded: 7'\n")
    card.chmod(0o755)
    text = SCRIPT.read_text().replace("PATH=$PATH:/usr/bin:/bin:/usr/sbin:/sbin", f"PATH={programs}")
    done = subprocess.run(
        ["sh", "-s", "--", "-s", "2", "-o", "saved"],
        input=text,
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the server is not asked" in done.stderr
    found = hunts.examine(hunts.saved(tmp_path / "saved"))
    assert found.evidence.cores
    assert found.evidence.programs
    assert found.snapshot.facts.data["hostname"] == os.uname().nodename
    assert "server" in found.snapshot.errors
    if cards := {path.parent.name for path in Path("/sys/class/net").glob("*/device")}:
        assert set(found.evidence.window.labels("allowance", "pps_allowance_exceeded")) == cards


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_an_interrupted_script_leaves_nothing(tmp_path: Path, name: str) -> None:
    script = subprocess.Popen(
        ["sh", SCRIPT, "-s", "60", "-o", "saved"], cwd=tmp_path, start_new_session=True, stderr=-3
    )
    try:
        until(lambda: list((tmp_path / "saved" / "samples").glob("*/proc/stat")))
        os.kill(script.pid, signal.Signals[f"SIG{name}"])
        assert script.wait(20) == 130
        assert list(tmp_path.iterdir()) == []
        until(
            lambda: (
                subprocess.run(["pgrep", "-g", str(script.pid)], check=False, capture_output=True).returncode
                == 1
            )
        )
    finally:
        if script.poll() is None:
            os.killpg(script.pid, signal.SIGKILL)
            script.wait()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-s", "0"), "usage"),
        (("-s", "1e9"), "usage"),
        (("-s",), "usage"),
        (("--password=hunter2",), "seen by everybody"),
        (("-o", "/proc/no"), "/proc/no"),
    ],
)
def test_wrong_arguments_of_the_script_are_errors(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = subprocess.run(["sh", SCRIPT, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []
