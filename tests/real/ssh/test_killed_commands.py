"""Commands towards a host of its own on this machine, killed at random moments: nothing of them is left.

The rounds are those of ``test_conformance.py``, which compares all of a virtual machine, but emulates it: here a
thousand of them take an hour. ``HEADRACE_KILLS`` says how many, ``HEADRACE_SEED`` which is the first.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import SLOW_LOG, Comparison, Kills, Kind, Settings
from tests.namespaced_host import (
    AGENT,
    LOGIN,
    NAME,
    PROGRAMS,
    SOCKET,
    TARGET,
    NamespacedHost,
    namespaced_host,
)
from tests.waiting import until

ROUNDS = int(os.environ.get("HEADRACE_KILLS", "2"))
SEED = int(os.environ.get("HEADRACE_SEED", "0"))
HAS_QEMU = bool(shutil.which("qemu-system-x86_64"))
LONG = pytest.mark.skipif(ROUNDS < 20, reason="takes minutes: make torture")
#: In the host's own network; the exit code after Ctrl-C.
PORT, INTERRUPTED = 8306, 130
#: What the kernel counts there.
COUNTERS = re.compile(r"dentry|inode|byte_queue_limits/limit$")
PLAN = f"""
name = "killed"
[target]
address = "{TARGET}"
scratch = "SCRATCH"
[design]
kind = "factorial"
baseline = "stock"
blocks = 1
[workload]
kind = "fio"
seconds = 0.2
rw = "randwrite"
size = "1M"
ioengine = "psync"
iodepth = 1
[volume]
device = "loop"
size = "40M"
[base]
"volume.filesystem" = "ext4"
"host.net.ipv4.tcp_fin_timeout" = 34
[factors.kernel.levels]
stock = {{ "host.net.core.somaxconn" = 2001 }}
other = {{ "volume.scheduler" = "mq-deadline", "volume.nr_requests" = 32, "host.net.core.somaxconn" = 2002 }}
"""
FLEET = f"""
[fleet]
hosts = ["{NAME}"]
user = "root"
[fleet.mysql]
socket = "{SOCKET}"
user = "root"
"""
STAGES = """
[timing]
block_s = 1
wash_s = 0.2
soak_s = 1
lease_s = 5
sample_s = 0.1
[judge]
looks = [2, 4, 6, 8]
margin = 1.0
[limits]
times = 1000
fewer = 1000
[[stage]]
name = "all"
hosts = "own"
approval = true
"""

pytestmark = pytest.mark.needs("root", *PROGRAMS)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespacedHost]:
    with namespaced_host(tmp_path_factory.mktemp("host")) as found:
        yield found


@pytest.fixture(scope="module")
def settings(host: NamespacedHost) -> Settings:
    lasting = ("host.net.core.somaxconn=2048", "host.net.ipv4.tcp_fin_timeout=33")
    some = (
        *lasting,
        "host.net.ipv4.tcp_keepalive_time=3600",
        "host.rps_cpus@eth0=1",
        f"volume.scheduler@{host.loop}=mq-deadline",
        "volume.mount_options@/srv/data=noatime",
    )
    return Settings(lasting, some, ("server.max_connections=321", "server.innodb_io_capacity=300"), LOGIN)


@pytest.fixture(scope="module")
def comparison(host: NamespacedHost, settings: Settings) -> Comparison:
    host.done("apply", *settings.some, *settings.of_server, *LOGIN, "--confirm-within", "10m")
    host.done("rollback")
    return Comparison(host, COUNTERS.search, 700)


class Commands:
    """Those that only this host can do in little time."""

    def __init__(self, host: NamespacedHost) -> None:
        self.host, self.folder = host, host.folder
        self._numbers = itertools.count()
        idle = STAGES.replace("[judge]", "[judge]\nidle_per_s = 1e6")
        texts = {
            "plan": PLAN.replace("SCRATCH", host.scratch),
            "fleet": FLEET,
            "stages": STAGES,
            "idle": idle,
        }
        for name, text in texts.items():
            (self.folder / f"{name}.toml").write_text(text)
        (host.root / "srv/slow.log").write_text(SLOW_LOG)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def new(self, name: str) -> str:
        return self.path(f"{name}{next(self._numbers)}")

    def run(self) -> list[str]:
        return ["run", self.path("plan.toml"), "--output", self.new("run")]

    def record(self, *source: str, seconds: float = 45.0) -> list[str]:
        """A killed one may not go on for so long."""
        return ["record", "--duration", f"{seconds:g}s", *source, "--output", self.new("recording")]

    def prove(self) -> list[str]:
        self.host.done("hunt", "--duration", "2s", *LOGIN)
        words = ["prove", "TCP01", "--live", "--duration", "2s", "--warmup", "0s", "--blocks", "2"]
        return [*words, *LOGIN, "--output", self.new("proof")]

    def rollout(self, stages: str = "stages") -> list[str]:
        settings = ("host.net.core.somaxconn=2048", "host.net.ipv4.tcp_fin_timeout=33")
        files = ("--fleet", self.path("fleet.toml"), "--stages", self.path(f"{stages}.toml"))
        code, out, error = self.host.answer("rollout", "plan", *settings, *files, "--json")
        assert code == 0, (out, error)
        plan = str(json.loads(out)["id"])
        self.host.done("rollout", "approve", plan, "--stage", "all", "--by", "Ann Lee")
        return ["rollout", "go", plan]

    def serve(self) -> list[str]:
        options = ("--fleet", self.path("fleet.toml"), "--experiments", self.path("none"))
        return ["serve", *options, "--data", self.new("history"), "--listen", f"127.0.0.1:{PORT}"]

    def lab(self, queues: int) -> list[str]:
        size = ("--memory", "512M", "--disks", "1", "--disk-size", "64M", "--nic-queues", str(queues))
        return ["lab", "up", self.new("vm").rpartition("/")[2], *size]

    def kinds(self) -> dict[str, Kind]:
        any_time: Mapping[str, Any] = {"on_journal": False}
        alone = {"undo": lambda _: [], **any_time}
        packets, log = ("--interface", "lo"), ("--follow", "/srv/slow.log")
        everyone = {"undo": lambda _: [["rollback", "--everyone"]], **any_time}
        abort = {"undo": lambda words: [["rollout", "abort", words[-1]]], **any_time}
        down = {"undo": lambda words: [["lab", "down", words[2]]], **any_time}
        kinds = {
            "run": Kind(lambda _: self.run(), lasts=5.0, **everyone),
            "hunt": Kind(lambda _: ["hunt", "--duration", "2s", *LOGIN], lasts=4.0, **alone),
            "record packets": Kind(lambda _: self.record(*packets), lasts=4.0, **alone),
            "record a log": Kind(lambda _: self.record(*log), lasts=4.0, **alone),
            "serve": Kind(lambda _: self.serve(), lasts=4.0, endless=True, **alone),
            "rollout": Kind(lambda _: self.rollout(), lasts=12.0, **abort),
            "prove --live": Kind(lambda _: self.prove(), lasts=12.0, **everyone),
        }
        if HAS_QEMU:
            kinds["lab"] = Kind(
                lambda chance: self.lab(chance.choice((1, 2))), lasts=12.0, victims=[("command",)], **down
            )
        return kinds


@pytest.fixture(scope="module")
def made(host: NamespacedHost) -> Commands:
    return Commands(host)


@contextlib.contextmanager
def load(host: NamespacedHost) -> Iterator[None]:
    """Some queries a second, so that its server is not idle."""
    ends = threading.Event()

    def ask() -> None:
        with contextlib.closing(host.connect()) as connection, connection.cursor() as cursor:
            while not ends.wait(0.01):
                cursor.execute("SELECT SLEEP(0.005)")

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def test_what_only_looks_changes_nothing(
    host: NamespacedHost, made: Commands, comparison: Comparison
) -> None:
    for command in (
        ("facts",),
        ("doctor",),
        ("hunt", "--duration", "2s", *LOGIN),
        ("latencies", "--duration", "1s"),
        ("digest", "/srv/slow.log"),
        ("knobs", "host"),
        ("rollback", "--list"),
    ):
        assert host.done(*command).strip(), command
        comparison.check(command)


def test_what_records_and_watches_leaves_nothing(
    host: NamespacedHost, made: Commands, comparison: Comparison
) -> None:
    host.done(*made.record("--interface", "lo", seconds=1.0))
    host.done(*made.record("--follow", "/srv/slow.log", seconds=1.0))
    comparison.check("record")
    process = host.start(*made.serve())
    until(lambda: len(host.running(AGENT)) == 2, pause_s=0.01, what="serve did not sample")
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() == INTERRUPTED, process.communicate()
    comparison.check("serve")


def test_a_run_killed_while_its_host_is_sampled_leaves_nothing(
    host: NamespacedHost, made: Commands, comparison: Comparison
) -> None:
    process = host.start(*made.run())
    samples = "var/tmp/**/samples.jsonl.zst"
    until(lambda: list(host.root.glob(samples)), pause_s=0.01, what="the host is not sampled")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    host.done("rollback", "--everyone")
    comparison.check("a run that was sampled")


def test_a_hunt_makes_no_temporary_files_of_the_controller(host: NamespacedHost) -> None:
    """A kill would leave them."""
    process, seen = host.start("hunt", "--duration", "2s", *LOGIN), set[Path]()
    while process.poll() is None:
        seen |= set((host.folder / "temporary").iterdir())
    assert process.wait() == 0, process.communicate()
    assert not seen


@LONG
def test_what_changes_and_measures_leaves_nothing(
    host: NamespacedHost, made: Commands, comparison: Comparison
) -> None:
    host.done(*made.prove())
    comparison.check("prove")
    words = made.rollout("idle")
    host.done(*words)  # there is nothing to judge
    assert "/proc/sys/net/core/somaxconn" in comparison.difference()
    host.done("rollout", "abort", words[-1])
    comparison.check("rollout")
    if not HAS_QEMU:
        return
    words = made.lab(2)
    host.done(*words)
    assert any(name.startswith("controller process") for name in comparison.difference())
    host.done("lab", "down", words[2])
    comparison.check("lab")


def test_killed_at_any_moment_nothing_is_left(
    host: NamespacedHost, made: Commands, settings: Settings, comparison: Comparison
) -> None:
    kills = Kills(host, comparison, settings, made.kinds())
    with load(host):
        for seed in range(SEED, SEED + ROUNDS):
            kills.round(seed)
    assert ROUNDS < 50 or kills.found["left something to undo"] > ROUNDS / 10, "this tested nothing"
