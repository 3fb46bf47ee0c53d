"""A host is afterwards as it was before: all settings, files, mounts, loop devices, processes and variables of a
virtual machine are compared around every command, commands killed at random moments among them, and around a reset
of the machine.

``HEADRACE_KILLS`` says how many commands are killed, ``HEADRACE_SEED`` where chance begins. With 20 kills or more,
those commands run to their end, too, that take an emulated CPU minutes.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace import vm
from headrace.errors import Refused
from tests.guest import KERNEL, LOGIN, Guest, changed

KILLS = int(os.environ.get("HEADRACE_KILLS", "2"))
SEED = int(os.environ.get("HEADRACE_SEED", "0"))
IS_LONG = KILLS >= 20
LONG = pytest.mark.skipif(not IS_LONG, reason="an emulated CPU takes minutes: make torture")
MACHINE = f"test-conformance-{os.getpid()}"
#: What the kernel counts there.
COUNTERS = re.compile(
    r"ns_last_pid|random/|dentry|inode|file-nr|stat_refresh|/run/sshd\.log|byte_queue_limits/limit$"
)
#: Depends on the memory that is free at boot, or is given out anew at each: names of disks, processes, interrupts.
BOOT = re.compile(
    r"_mem$|_reserve_kbytes$|file-max$|threads-max$|min_free_kbytes$|max_\w+_namespaces$|"
    r"/proc/irq/|/sys/block/nvme|/usr/lib/modules$|sshd\.pid$|^mount /$"
)
SYSCTLS = {
    "host.vm.swappiness": "/proc/sys/vm/swappiness",
    "host.net.core.somaxconn": "/proc/sys/net/core/somaxconn",
    "host.vm.dirty_ratio": "/proc/sys/vm/dirty_ratio",
}
#: What a file makes last.
LASTING = ("host.vm.swappiness=7", "host.net.core.somaxconn=2048", "volume.scheduler@vda=mq-deadline")
LASTS = ("--persist", "files")
SOME = (
    *LASTING,
    "host.vm.dirty_ratio=11",
    "host.rps_cpus@eth0=1",
    "host.thp=never",
    "volume.mount_options@/data=noatime",
)
OF_SERVER = ("server.max_connections=321", "server.innodb_io_capacity=300")
FILES = ("/etc/sysctl.d/99-zz-headrace.conf", "/etc/udev/rules.d/99-zz-headrace.rules")
#: In the guest: what works there for a command, and how it is killed once it does.
AGENT = "/headrace/agent-[0-9a-f]{16} "
AT_WORK = f"{AGENT}journal (apply|confirm|rollback|record)"
KILL_AGENTS = f"""
end=$(($(date +%%s) + %d))
until pgrep -f '{AT_WORK}' >/dev/null || [ $(date +%%s) -gt $end ]; do usleep 10000; done
usleep %d
pkill -KILL -f '{AGENT}' || :
"""
#: A command begins its work in the guest within this time, or was killed before that.
AT_WORK_S = 8
#: Once no agent works on the journal, whether it has anything to undo.
SETTLE = f"""
while pgrep -f '{AT_WORK}' >/dev/null; do usleep 50000; done
if [ -s /var/lib/headrace/journal.jsonl ]; then echo open; fi
"""
HISTORY = "if [ -s /var/lib/headrace/history.jsonl ]; then echo kept; fi"
SLOW_LOG = """cat >/srv/slow.log <<'END'
# Time: 231114 22:13:20
# User@Host: app[app] @ localhost []
# Query_time: 0.000123  Lock_time: 0.000001  Rows_sent: 1  Rows_examined: 1
SET timestamp=1700000000;
SELECT c FROM t WHERE id = 1;
END
"""
PLAN = """
name = "conformance"
[target]
address = "root@guest"
[design]
kind = "factorial"
baseline = "stock"
blocks = 1
[workload]
kind = "fio"
seconds = 0.5
rw = "randwrite"
size = "1M"
ioengine = "psync"
iodepth = 1
[volume]
device = "loop"
size = "40M"
[base]
"volume.filesystem" = "ext4"
"host.vm.dirty_ratio" = 12
[factors.kernel.levels]
stock = { "host.vm.swappiness" = 50 }
other = { "volume.scheduler" = "mq-deadline", "volume.nr_requests" = 32, "host.vm.swappiness" = 11 }
"""


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    disk = vm.DiskSpec(512 << 20)
    spec = vm.VmSpec(MACHINE, KERNEL, memory_bytes=768 << 20, disks=(disk,))
    machine = asyncio.run(vm.up(spec, print))
    found = Guest(machine, tmp_path_factory.mktemp("guest"))
    try:
        found.inside(SLOW_LOG)
        found.serve()
        yield found
    finally:
        found.hang_up()
        asyncio.run(vm.down(MACHINE))


class Comparison:
    """The guest as it was, without what changes by itself between two looks at it."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        first, self.before = guest.look(), guest.look()
        self.left_out = set(changed(first, self.before))
        print(f"{len(self.before)} things are compared, but for {sorted(self.left_out)}")
        assert len(self.before) > 1500
        assert all(COUNTERS.search(name) for name in self.left_out), self.left_out

    def difference(self) -> dict[str, Any]:
        found = changed(self.before, self.guest.look())
        return {
            name: values
            for name, values in found.items()
            if name not in self.left_out and not COUNTERS.search(name)
        }

    def check(self, *story: object) -> None:
        assert self.difference() == {}, story


@pytest.fixture(scope="module")
def host(guest: Guest) -> Comparison:
    return Comparison(guest)


@pytest.fixture(scope="module")
def plan(guest: Guest) -> Path:
    path = guest.folder / "plan.toml"
    path.write_text(PLAN)
    return path


def test_what_only_looks_changes_nothing(guest: Guest, host: Comparison) -> None:
    commands = [
        ("facts",),
        ("doctor",),
        ("hunt", "--seconds", "2"),
        ("ladder", "--seconds", "1", *(["--file", "/data"] if IS_LONG else [])),
        ("digest", "/srv/slow.log"),
    ]
    if IS_LONG:
        commands += [("knobs", "host"), ("journal",)]
    for command in commands:
        said = guest.done(*command)
        assert said.strip(), command
        if IS_LONG:
            host.check(command)
    host.check(commands)


def test_what_is_applied_is_rolled_back_whole(guest: Guest, host: Comparison) -> None:
    guest.done("apply", *SOME, *OF_SERVER, *LOGIN, "--confirm-within", "10m")
    found = host.difference()
    assert {SYSCTLS[name] for name in SYSCTLS} < set(found), found
    assert {"mount /data", "@@max_connections", "@@innodb_io_capacity"} < set(found), found
    assert not [name for name in found if name.startswith("/etc/")], found
    guest.done("rollback")
    host.check("applied and rolled back")


@LONG
def test_what_is_kept_is_rolled_back_with_its_files(guest: Guest, host: Comparison) -> None:
    guest.done("apply", *LASTING, *LASTS, "--confirm-within", "10m")
    guest.done("confirm")
    assert set(FILES) < set(host.difference())
    guest.done("rollback", "--last")
    host.check("kept and rolled back")


@LONG
def test_an_experiment_changes_nothing(guest: Guest, host: Comparison, plan: Path) -> None:
    guest.done("run", str(plan), "--output", str(guest.folder / "whole"))
    host.check("run")


class Kills:
    """Commands are killed, and nothing is left of them after what the documentation says to do."""

    def __init__(self, guest: Guest, host: Comparison, plan: Path) -> None:
        self.guest, self.host, self.plan = guest, host, plan
        self.found: Counter[str] = Counter()

    def round(self, seed: int, kind: str) -> None:
        chance = random.Random(seed)
        story: list[object] = [f"HEADRACE_SEED={seed}", kind]
        kinds: dict[str, Callable[[random.Random], list[str]]] = {
            "deadline": lambda chance: self.applying(chance, "--confirm-within", "10m"),
            "keep": self.applying,
            "confirm": self.confirming,
            "rollback": self.undoing,
            "rollback --last": self.undoing_what_is_kept,
            "run": self.running,
        }
        words = kinds[kind](chance)
        victims = chance.choice((("command",), ("agent",), ("command", "agent")))
        story += [words, victims, *self.fire(words, victims, chance)]
        is_open = self.shell(SETTLE) == "open"
        self.guest.done("rollback", *(["--everyone"] if kind == "run" else []))
        while self.shell(HISTORY):
            self.guest.done("rollback", "--last")
        self.host.check(*story, "open" if is_open else "closed")
        self.found.update({"kills": 1, kind: 1, "left something to undo": is_open})
        print(dict(self.found), story, flush=True)

    def settings(self, chance: random.Random) -> list[str]:
        settings = [one for one in (*SOME, *OF_SERVER) if chance.random() < 0.6] or [*SOME]
        login = LOGIN if any(one in settings for one in OF_SERVER) else ()
        return ["apply", *settings, *login]

    def applying(self, chance: random.Random, *options: str) -> list[str]:
        if chance.random() < 0.4:
            return ["apply", *LASTING, *LASTS, *options]
        return [*self.settings(chance), *options]

    def confirming(self, chance: random.Random) -> list[str]:
        self.guest.done(*self.applying(chance, "--confirm-within", "10m"))
        return ["confirm"]

    def undoing(self, chance: random.Random) -> list[str]:
        self.guest.done(*self.applying(chance, "--confirm-within", "10m"))
        return ["rollback"]

    def undoing_what_is_kept(self, chance: random.Random) -> list[str]:
        self.guest.done(*self.applying(chance))
        return ["rollback", "--last"]

    def running(self, _: random.Random) -> list[str]:
        return ["run", str(self.plan), "--output", str(self.guest.folder / f"run{self.found['kills']}")]

    def fire(self, words: list[str], victims: tuple[str, ...], chance: random.Random) -> list[object]:
        """Start a command and kill it, its agents in the guest, or both. What became of it."""
        took_s = self.guest.took_s
        guess_s = took_s["apply"] * (5 if words[0] == "run" else 1)
        moment_s = chance.uniform(0, took_s.get(words[0], guess_s))
        process = self.guest.start(*words)
        agents = threading.Thread(
            target=self.kill_agents, args=(moment_s, words[0] == "run", chance.random())
        )
        if "agent" in victims:
            agents.start()
        try:
            if "command" in victims:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(moment_s)
                self.found["command was running"] += process.poll() is None
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            out, error = process.communicate(timeout=900)
        finally:
            process.kill()
            if "agent" in victims:
                agents.join()
        return [f"after {moment_s:.2f} s", process.returncode, out[-300:], error[-600:]]

    def kill_agents(self, moment_s: float, is_run: bool, part: float) -> None:
        """Those that change the guest, somewhere in their work; those of an experiment at any moment."""
        if is_run:
            time.sleep(moment_s)
        self.shell(KILL_AGENTS % (AT_WORK_S, int(part * 400_000)))

    def shell(self, script: str) -> str:
        """From standard input: its own words are in no command line that it looks for. Busybox starts nothing."""
        return self.guest.inside("busybox sh -s", script).strip()


KINDS = ("keep", "run", "rollback --last", "deadline", "confirm", "rollback")


def test_killed_at_any_moment_nothing_is_left(guest: Guest, host: Comparison, plan: Path) -> None:
    if "apply" not in guest.took_s:
        guest.done("apply", *SOME, "--confirm-within", "10m")
        guest.done("rollback")
    kills = Kills(guest, host, plan)
    for number in range(KILLS):
        kills.round(SEED + number, KINDS[(SEED + number) % len(KINDS)])
    assert KILLS < 50 or kills.found["left something to undo"] > KILLS / 10, "this tested nothing"


def test_a_reset_before_the_confirmation_leaves_nothing(guest: Guest) -> None:
    """The kernel's own values are back, and what was asked for is not made again; one that is confirmed lasts."""
    before = comparable(guest)
    said = guest.done("apply", *LASTING, *LASTS, "--confirm-within", "10m")
    guest.done("apply", "volume.mount_options@/data=noatime", "host.thp=never", "--confirm-within", "10m")
    guest.cut_power()
    assert set(changed(before, comparable(guest))) == {"/var/lib/headrace/journal.jsonl"}
    code, said = guest.run("confirm", identity(said))
    assert code == Refused.exit_code, said
    print("confirm:", said)
    assert "undone" in said
    assert changed(before, comparable(guest)) == {}

    guest.done("apply", *LASTING, *LASTS, "--confirm-within", "10m")
    guest.done("confirm")
    guest.cut_power()
    found = changed(before, comparable(guest))
    print("kept:", found)
    assert {name: found[path][1] for name, path in SYSCTLS.items() if path in found} == {
        "host.vm.swappiness": "7",
        "host.net.core.somaxconn": "2048",
    }
    assert set(FILES) < set(found)
    guest.done("rollback", "--last")
    assert changed(before, comparable(guest)) == {}


def identity(said: str) -> str:
    """Of the changes that ``apply`` made."""
    found = re.search(r"^id (\S+)$", said, re.MULTILINE)
    assert found, said
    return found[1]


def comparable(guest: Guest) -> dict[str, Any]:
    """What is the same at each boot."""
    return {
        name: value
        for name, value in guest.look().items()
        if not COUNTERS.search(name) and not BOOT.search(name) and not name.startswith("@@")
    }
