"""Changing a live host: what is killed, refused, forgotten or taken away leaves the host as it was."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.host.agent import Agent
from headrace.host.target.ssh import SshTarget
from tests import sshd
from tests.agent.test_journal import OWNER as TRIAL
from tests.agent.test_journal import Host, kill_after
from tests.traces import commands
from tests.waiting import until

OWNER = f"apply/test-{os.getpid()}"
SYSCTL = "/etc/sysctl.d/90-headrace.conf"


class Fake(Host):
    """A host of plain files below a root, with the folders of /etc that hold lasting settings."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for number in range(12):
            self.put(f"/sys/fake/{number}", f"original {number}")
        (self.folder / "etc/sysctl.d").mkdir(parents=True)
        (self.folder / "etc/systemd/system").mkdir(parents=True)

    def put(self, path: str, text: str) -> None:
        file = self.folder / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def text(self, path: str) -> str:
        return (self.folder / path[1:]).read_text().strip()

    def apply(self, *changes: dict[str, Any], within: str = "", code: int = 0, owner: str = OWNER) -> Any:
        options = ["--confirm-within", within] if within else []
        return self.call("apply", "--root", str(self.folder), *options, owner=owner, stdin=changes, code=code)

    def confirm(self, code: int = 0) -> Any:
        return self.call("confirm", "--root", str(self.folder), owner=OWNER, code=code)

    def extend(self, within: str, code: int = 0) -> Any:
        options = ["--root", str(self.folder), "--confirm-within", within]
        return self.call("extend", *options, owner=OWNER, stdin=None, code=code)

    def rollback(self, *options: str, code: int = 0) -> Any:
        return self.call("rollback", "--root", str(self.folder), *options, owner=OWNER, code=code)

    def history(self) -> list[dict[str, Any]]:
        kept: list[dict[str, Any]] = self.call("history", owner=None)
        return kept

    def watchers(self) -> list[int]:
        state = bytes(self.state)
        return [pid for pid, words in commands().items() if b"watch" in words and state in words]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Fake]:
    fake = Fake(tmp_path)
    yield fake
    for pid in fake.watchers():
        os.kill(pid, signal.SIGKILL)


def kernel(number: int, value: str = "changed") -> dict[str, str]:
    return {"path": f"/sys/fake/{number}", "value": value}


def test_what_nobody_confirms_is_undone_on_the_host(host: Fake) -> None:
    host.apply(kernel(1), {"file": SYSCTL, "content": "vm.swappiness = 1\n"}, within="1500ms")
    assert host.text("/sys/fake/1") == "changed"
    assert not (host.folder / SYSCTL[1:]).exists(), "what lasts is written when it is confirmed"
    watcher = host.watchers()
    assert len(watcher) == 1
    # A session of its own: the end of an SSH connection reaches nobody in it.
    assert os.getsid(watcher[0]) == watcher[0] != os.getsid(0)
    until(lambda: host.text("/sys/fake/1") == "original 1")
    until(lambda: host.open_entries() == [] and not host.watchers())
    assert not (host.folder / SYSCTL[1:]).exists()
    assert "nothing to confirm" in host.confirm(code=5)


def test_what_is_confirmed_stays_and_can_still_be_undone(host: Fake) -> None:
    host.apply(kernel(1), within="2s")
    assert [entry["wrote"] for entry in host.open_entries()] == ["changed"]
    host.confirm()
    until(lambda: not host.watchers())
    time.sleep(2)
    assert host.text("/sys/fake/1") == "changed"
    assert host.open_entries() == []
    assert [kept["owner"] for kept in host.history()] == [OWNER]
    host.rollback()
    assert host.text("/sys/fake/1") == "changed", "a rollback without a name undoes nothing that was kept"
    assert [u["done"] for u in host.rollback("--kept", "last")] == [True]
    assert host.text("/sys/fake/1") == "original 1"
    assert host.history() == []


def test_a_deadline_can_be_put_off_but_not_brought_forward(host: Fake) -> None:
    host.apply(kernel(1), kernel(2), within="2s")
    assert host.extend("1h") == 2
    late = host.open_entries()
    assert host.extend("1s") == 2
    assert host.open_entries() == late
    time.sleep(3)
    assert host.text("/sys/fake/1") == "changed"
    assert [undone["done"] for undone in host.rollback()] == [True, True]
    assert "nothing that awaits confirmation" in host.extend("1h", code=5)


def test_a_deadline_that_was_put_off_is_one(host: Fake) -> None:
    host.apply(kernel(1), within="2s")
    host.extend("4s")
    until(lambda: host.text("/sys/fake/1") == "original 1")
    assert "nothing that awaits confirmation" in host.extend("1h", code=5)


def test_a_change_that_is_overdue_cannot_be_put_off(host: Fake) -> None:
    host.apply(kernel(1), within="1s")
    for pid in host.watchers():
        os.kill(pid, signal.SIGKILL)
    time.sleep(1.2)
    assert "nothing that awaits confirmation" in host.extend("1h", code=5)
    assert host.text("/sys/fake/1") == "original 1"


def test_a_watcher_that_cannot_read_for_a_while_undoes_all_the_same(host: Fake) -> None:
    host.apply(kernel(1), within="2s")
    [watcher] = host.watchers()
    limits = resource.prlimit(watcher, resource.RLIMIT_NOFILE)
    resource.prlimit(watcher, resource.RLIMIT_NOFILE, (3, limits[1]))
    # Past the deadline, with no descriptor to open anything.
    time.sleep(4)
    assert host.watchers() == [watcher]
    assert host.text("/sys/fake/1") == "changed"
    resource.prlimit(watcher, resource.RLIMIT_NOFILE, limits)
    until(lambda: host.text("/sys/fake/1") == "original 1")
    until(lambda: host.open_entries() == [] and not host.watchers())


def test_a_watcher_that_was_stopped_undoes_when_it_goes_on(host: Fake) -> None:
    host.apply(kernel(1), within="1500ms")
    [watcher] = host.watchers()
    os.kill(watcher, signal.SIGSTOP)
    time.sleep(2)
    assert host.text("/sys/fake/1") == "changed"
    os.kill(watcher, signal.SIGCONT)
    until(lambda: host.text("/sys/fake/1") == "original 1")
    until(lambda: host.open_entries() == [] and not host.watchers())


MANY = range(400)


def replaced(number: int) -> dict[str, str]:
    """As long as the original: a killed write of a plain file, unlike the kernel's, could leave half of each."""
    return kernel(number, f"replaced {number}")


@contextlib.contextmanager
def at_work(host: Fake, within: str) -> Iterator[subprocess.Popen[bytes]]:
    """An agent that has made the first of many changes."""
    for number in MANY:
        host.put(f"/sys/fake/{number}", f"original {number}")
    options = ("--owner", OWNER, "--root", str(host.folder), "--confirm-within", within)
    pipe = subprocess.PIPE
    with subprocess.Popen(host.argv("apply", *options), stdin=pipe, stdout=pipe) as agent:
        assert agent.stdin
        agent.stdin.write(json.dumps([replaced(number) for number in MANY]).encode())
        agent.stdin.close()
        until(lambda: host.text("/sys/fake/0") == "replaced 0", pause_s=0)
        yield agent


@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGSTOP])
def test_an_agent_that_is_killed_or_stopped_in_mid_change_leaves_nothing(
    host: Fake, with_signal: signal.Signals
) -> None:
    """One that is stopped has the journal locked, and its controller waits for it."""
    with at_work(host, "2s") as agent:
        agent.send_signal(with_signal)
        assert host.text(f"/sys/fake/{MANY[-1]}") == f"original {MANY[-1]}", "it was over before"
        until(lambda: not host.open_entries() and not host.watchers())
        assert agent.wait() == -signal.SIGKILL
    assert all(host.text(f"/sys/fake/{number}") == f"original {number}" for number in MANY)


def test_an_agent_that_was_stopped_for_a_moment_goes_on(host: Fake) -> None:
    with at_work(host, "1h") as agent:
        agent.send_signal(signal.SIGSTOP)
        agent.send_signal(signal.SIGCONT)
        assert agent.wait() == 0
    assert all(host.text(f"/sys/fake/{number}") == f"replaced {number}" for number in MANY)
    assert len(host.open_entries()) == len(MANY)


def test_the_next_undoes_beside_a_watcher_that_was_stopped(host: Fake) -> None:
    host.apply(kernel(1), within="1500ms")
    [watcher] = host.watchers()
    os.kill(watcher, signal.SIGSTOP)
    time.sleep(2)
    host.apply(kernel(2), owner="somebody-else")
    assert (host.text("/sys/fake/1"), host.text("/sys/fake/2")) == ("original 1", "changed")
    os.kill(watcher, signal.SIGCONT)
    until(lambda: not host.watchers())
    assert host.text("/sys/fake/2") == "changed"


def test_a_watcher_is_the_last_that_a_shortage_of_memory_ends(host: Fake) -> None:
    argv = ["choom", "-n", "300", "--", *host.argv("apply", "--owner", OWNER, "--root", str(host.folder))]
    subprocess.run([*argv, "--confirm-within", "1h"], input=json.dumps([kernel(1)]), text=True, check=True)
    [watcher] = host.watchers()
    assert int(Path(f"/proc/{watcher}/oom_score_adj").read_text()) <= 0


def test_with_the_watcher_dead_the_next_who_opens_the_journal_undoes(host: Fake) -> None:
    host.apply(kernel(1), within="1s")
    for pid in host.watchers():
        os.kill(pid, signal.SIGKILL)
    time.sleep(1.2)
    assert host.text("/sys/fake/1") == "changed"
    host.apply(kernel(2), owner="somebody-else")
    assert host.text("/sys/fake/1") == "original 1"
    assert host.text("/sys/fake/2") == "changed"
    assert "nothing to confirm" in host.confirm(code=5)


def test_a_boot_without_confirmation_means_undone(host: Fake) -> None:
    host.apply({"file": SYSCTL, "content": "x\n"}, within="1h")
    for pid in host.watchers():
        os.kill(pid, signal.SIGKILL)
    journal = host.state / "journal.jsonl"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    journal.write_text(journal.read_text().replace(boot, "an-earlier-boot"))
    host.apply(owner="somebody-else")
    assert not (host.folder / SYSCTL[1:]).exists()
    assert host.open_entries() == []


EARLIER_BOOT = "an-earlier-boot"


def boot(host: Fake) -> None:
    """What was journaled or kept was so before the boot of now."""
    now = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for name in ("journal.jsonl", "history.jsonl"):
        file = host.state / name
        if file.exists():
            file.write_text(file.read_text().replace(now, EARLIER_BOOT))


def test_files_that_last_are_written_when_they_are_confirmed(host: Fake) -> None:
    host.put(SYSCTL, "old")
    host.apply(kernel(1), {"file": SYSCTL, "content": "new\n"}, within="1h")
    assert host.text(SYSCTL) == "old", "a boot before the confirmation must not find it"
    host.put(SYSCTL, "theirs")
    assert "neither what was written nor the original" in host.confirm(code=1)
    host.put(SYSCTL, "old")
    host.confirm()
    assert host.text(SYSCTL) == "new"
    host.rollback("--kept", "last")
    assert (host.text(SYSCTL), host.text("/sys/fake/1")) == ("old", "original 1")


def test_after_a_boot_what_a_file_set_again_is_undone_and_nothing_else(host: Fake) -> None:
    for live, expected, code in (
        ("changed", "original 1", 0),
        ("original 1", "original 1", 0),
        ("theirs", "theirs", 1),
    ):
        change = [kernel(1), {"file": SYSCTL, "content": "x\n"}]
        host.call("apply", "--root", str(host.folder), "--keep", owner=OWNER, stdin=change)
        boot(host)
        host.put("/sys/fake/1", live)
        host.rollback("--kept", "last", code=code)
        assert host.text("/sys/fake/1") == expected
        assert not (host.folder / SYSCTL[1:]).exists()
        host.rollback("--accept-foreign")
        host.put("/sys/fake/1", "original 1")
    # Without a file the boot has undone it, and the value of now is somebody else's.
    host.call("apply", "--root", str(host.folder), "--keep", owner=OWNER, stdin=[kernel(1)])
    boot(host)
    [undone] = host.rollback("--kept", "last")
    assert "the host was booted since" in undone["what"]
    assert host.text("/sys/fake/1") == "changed"


def kill_once(happened: Callable[[], bool], argv: list[str], stdin: str) -> None:
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stdin
        process.stdin.write(stdin)
        process.stdin.close()
        while process.poll() is None and not happened():
            pass
        process.kill()


def test_killed_at_any_instant_it_is_undone_at_the_deadline_or_by_the_next(host: Fake) -> None:
    # As long as the originals: of a plain file, unlike the kernel's, a killed write could else leave half of each.
    changes = [kernel(n, f"replaced {n}") for n in range(12)] + [{"file": SYSCTL, "content": "x\n"}]
    originals = {f"/sys/fake/{n}": f"original {n}" for n in range(12)}
    started = time.monotonic()
    host.apply(*changes, within="1h")
    whole_s = time.monotonic() - started
    host.rollback()
    counts: set[int] = set()
    for turn in range(200):
        if turn >= 25 and len(counts) > 2:
            break
        argv = host.argv("apply", "--owner", OWNER, "--root", str(host.folder), "--confirm-within", "1h")
        if turn % 2:
            # On a busy machine it is seldom that a moment by chance falls between two writes.
            last = f"/sys/fake/{random.randrange(11)}"
            kill_once(lambda: host.text(last) != originals[last], argv, json.dumps(changes))  # noqa: B023
        else:
            kill_after(argv, json.dumps(changes), random.uniform(0, 1.2 * whole_s))
        counts.add(sum(host.text(path) != text for path, text in originals.items()))
        kill_after(
            host.argv("rollback", "--owner", OWNER, "--root", str(host.folder)),
            "",
            random.uniform(0, 1.2 * whole_s),
        )
        host.rollback()
        assert {path: host.text(path) for path in originals} == originals
        assert not (host.folder / SYSCTL[1:]).exists()
        assert host.open_entries() == []
    assert len(counts) > 2, "no kill fell between two writes: this tested nothing"


def test_a_killed_call_that_keeps_is_whole_or_undone_by_the_host(host: Fake) -> None:
    changes = [kernel(n) for n in range(12)] + [{"file": SYSCTL, "content": "x\n"}]
    originals = {f"/sys/fake/{n}": f"original {n}" for n in range(12)}
    argv = host.argv("apply", "--owner", OWNER, "--root", str(host.folder), "--keep")
    started = time.monotonic()
    host.call("apply", "--root", str(host.folder), "--keep", owner=OWNER, stdin=changes)
    whole_s = time.monotonic() - started
    assert [kept["owner"] for kept in host.history()] == [OWNER]
    host.rollback("--kept", "last")
    outcomes: set[bool] = set()
    for turn in range(100):
        if turn >= 15 and len(outcomes) == 2:
            break
        kill_after(argv, json.dumps(changes), random.uniform(0, 1.5 * whole_s))
        # Nobody does anything: the host undoes it.
        until(lambda: host.open_entries() == [])
        is_kept = bool(host.history())
        outcomes.add(is_kept)
        found = {path: host.text(path) for path in originals}
        assert found == (dict.fromkeys(originals, "changed") if is_kept else originals)
        assert (host.folder / SYSCTL[1:]).exists() == is_kept
        if is_kept:
            host.rollback("--kept", "last")
    assert outcomes == {True, False}, "all calls came to the same end: this tested nothing"


def left_by_a_killed_call(host: Fake) -> None:
    """An entry as `apply --keep` has it before it confirms, with its watcher dead."""
    host.apply(kernel(1, "half"), within="1h")
    for pid in host.watchers():
        os.kill(pid, signal.SIGKILL)
    journal = host.state / "journal.jsonl"
    journal.write_text(re.sub(r'"uptime_ns":\d+', '"uptime_ns":1', journal.read_text()))


def test_whoever_comes_next_undoes_what_a_killed_call_left(host: Fake) -> None:
    host.apply(kernel(3), owner="apply/earlier")
    host.call("confirm", "--root", str(host.folder), owner="apply/earlier")
    left_by_a_killed_call(host)
    undone = host.rollback("--kept", "last")
    assert host.text("/sys/fake/1") == "original 1"
    assert host.text("/sys/fake/3") == "changed", "what was kept before is another decision"
    assert [u["what"] for u in undone] == ["/sys/fake/1 = original 1"]
    left_by_a_killed_call(host)
    host.apply(kernel(1, "next"), owner="apply/next")
    assert [e["restore"][0]["value"] for e in host.open_entries()] == ["original 1"]


def test_nothing_is_built_on_what_a_killed_experiment_left(host: Fake) -> None:
    host.apply(kernel(1), owner="run-1/volume")
    for message in (
        host.apply(kernel(2), within="1h", code=5),
        host.rollback("--kept", "last", code=5),
    ):
        assert "changes of run-1/volume were left behind" in message
        assert "`headrace rollback --everyone` undoes them" in message
    assert host.text("/sys/fake/2") == "original 2"
    with subprocess.Popen(
        host.argv("hold", "--owner", "run-1"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        host.apply(kernel(2), owner="run-1/server")
        holder.kill()


def test_killed_while_confirming_the_change_is_open_or_kept_never_lost(host: Fake) -> None:
    for _ in range(25):
        host.apply(kernel(1))
        argv = host.argv("confirm", "--owner", OWNER, "--root", str(host.folder))
        kill_after(argv, "", random.uniform(0, 0.03))
        assert host.open_entries() or host.history()
        host.rollback("--kept", OWNER)
        assert host.text("/sys/fake/1") == "original 1"
        assert host.open_entries() == []
        if host.history():  # killed after it was kept, before it was closed
            host.rollback("--kept", OWNER)


def test_a_confirmation_that_was_killed_half_way_is_kept_at_the_deadline(host: Fake) -> None:
    host.apply(kernel(1), within="1s")
    for pid in host.watchers():
        os.kill(pid, signal.SIGKILL)
    # As a confirmation leaves it that was killed between its two writes.
    before = (host.state / "journal.jsonl").read_bytes()
    host.confirm()
    (host.state / "journal.jsonl").write_bytes(before)
    time.sleep(1.1)
    host.apply(kernel(2), owner="apply/next")
    assert host.text("/sys/fake/1") == "changed"
    assert [entry["owner"] for entry in host.open_entries()] == ["apply/next"]
    host.call("rollback", "--root", str(host.folder), "--kept", OWNER, owner="apply")
    assert host.text("/sys/fake/1") == "original 1"


def test_what_another_set_changed_since_is_not_undone_beneath_it(host: Fake) -> None:
    host.apply(kernel(1, "first"))
    host.confirm()
    host.apply(kernel(1, "second"), owner="apply/later")
    host.call("confirm", "--root", str(host.folder), owner="apply/later")
    message = host.rollback("--kept", OWNER, code=5)
    assert "was changed again by apply/later" in message
    host.rollback("--kept", "last")
    assert host.text("/sys/fake/1") == "first"
    host.rollback("--kept", OWNER)
    assert host.text("/sys/fake/1") == "original 1"
    assert "no such changes" in host.rollback("--kept", "apply/none", code=5)


def test_what_somebody_else_set_since_is_left_and_reported(host: Fake) -> None:
    host.apply(kernel(1), kernel(2), {"file": SYSCTL, "content": "vm.swappiness = 1\n"})
    host.put("/sys/fake/1", "theirs")
    host.put(SYSCTL, "vm.swappiness = 33")
    assert "could not be undone" in host.rollback(code=1)
    assert (host.text("/sys/fake/1"), host.text(SYSCTL)) == ("theirs", "vm.swappiness = 33")
    assert host.text("/sys/fake/2") == "original 2", "what is ours is undone all the same"
    assert len(host.open_entries()) == 2
    # Back at ours, it is ours to undo; the other one is given up by name.
    host.put("/sys/fake/1", "changed")
    host.rollback(code=1)
    assert host.text("/sys/fake/1") == "original 1"
    [undone] = host.rollback("--accept-foreign")
    assert undone["done"]
    assert "neither what was written nor the original" in undone["what"]
    assert host.text(SYSCTL) == "vm.swappiness = 33"
    assert host.open_entries() == []


def test_at_the_deadline_too_what_somebody_else_set_is_left(host: Fake) -> None:
    host.apply(kernel(1), within="1s")
    host.put("/sys/fake/1", "theirs")
    for pid in host.watchers():
        os.kill(pid, signal.SIGKILL)
    time.sleep(1.1)
    host.apply(kernel(2))
    assert host.text("/sys/fake/1") == "theirs"
    assert [entry["wrote"] for entry in host.open_entries()] == ["changed", "changed"]


def test_a_key_that_awaits_confirmation_is_not_changed_by_another(host: Fake) -> None:
    host.apply(kernel(1, "first"), {"file": SYSCTL, "content": "a\n"}, within="1h")
    again: tuple[dict[str, str], ...] = (
        kernel(1, "second"),
        kernel(1, "first"),
        {"file": SYSCTL, "content": "b"},
    )
    for change in again:
        message = host.apply(kernel(2), change, owner="apply/later", code=5)
        assert OWNER in message
        assert f"headrace apply --confirm {OWNER.removeprefix('apply/')}" in message
        assert f"headrace rollback --id {OWNER.removeprefix('apply/')}" in message
    assert (host.text("/sys/fake/1"), host.text("/sys/fake/2")) == ("first", "original 2")
    host.apply(kernel(2), owner="apply/later")
    host.rollback()
    assert (host.text("/sys/fake/1"), host.text("/sys/fake/2")) == ("original 1", "changed")


def test_nothing_is_said_to_change_along_that_did_not(host: Fake) -> None:
    for name, value in (("scheduler", "none"), ("nr_requests", "64")):
        host.put(f"/sys/block/d/queue/{name}", value)
    [applied] = host.apply({"path": "/sys/block/d/queue/scheduler", "value": "kyber"})
    assert "also" not in applied


def test_what_is_coupled_with_an_open_change_is_taken_too(host: Fake) -> None:
    for name, value in (("scheduler", "none"), ("nr_requests", "64")):
        host.put(f"/sys/block/d/queue/{name}", value)
    host.apply({"path": "/sys/block/d/queue/scheduler", "value": "kyber"}, within="1h")
    message = host.apply({"path": "/sys/block/d/queue/nr_requests", "value": "8"}, owner="apply/b", code=5)
    assert "nr_requests: changes of" in message
    host.confirm()
    host.apply({"path": "/sys/block/d/queue/nr_requests", "value": "8"}, within="1h", owner="apply/b")
    assert "not confirmed yet" in host.rollback("--kept", OWNER, code=5)
    assert host.text("/sys/block/d/queue/nr_requests") == "8"


def test_what_a_trial_built_cannot_be_kept(host: Fake) -> None:
    host.record({"kind": "remove", "path": str(host.scratch / "x")})
    message = host.call("confirm", owner="test", code=5)
    assert "nothing to confirm" in message
    assert "more than settings" in host.call("confirm", owner=TRIAL, code=5)
    assert [entry["kind"] for entry in host.open_entries()] == ["remove"]


def test_one_bad_change_undoes_all_of_the_call(host: Fake) -> None:
    good = [kernel(1), {"file": SYSCTL, "content": "x\n"}]
    for bad, why in (
        ({"path": "/sys/fake/none", "value": "1"}, "no such setting"),
        ({"file": "/etc/cron.d/headrace.conf", "content": "x"}, "not a file that headrace may write"),
        ({"file": "/etc/sysctl.d/10-network.conf", "content": "x"}, "not a file that headrace may write"),
        ({"path": "/proc/irq/24/smp_affinity_hint", "value": "1"}, "only files of /sys"),
        ({"path": "/sys/block/d/queue/write_cache", "value": "write through"}, "no more flushes"),
        ({"mount": str(host.folder), "options": "noatime"}, "nothing is mounted"),
    ):
        assert why in host.apply(*good, bad, within="1h", code=5), bad
        assert host.text("/sys/fake/1") == "original 1"
        assert not (host.folder / SYSCTL[1:]).exists()
        assert host.open_entries() == []
    assert "contradict" in host.apply(kernel(1), kernel(1, "other"), code=2)
    assert "needs --mysql-socket" in host.apply({"variable": "x", "value": "1"}, code=2)


def test_what_cannot_be_kept_is_undone_before_the_error_is_told(host: Fake) -> None:
    """A file that the host cannot write: the values of now must not outlive the command that failed."""
    changes = [kernel(1), {"file": SYSCTL, "content": "x" * 70_000}]
    said = host.call("apply", "--root", str(host.folder), "--keep", owner=OWNER, stdin=changes, code=2)
    assert "too long" in said
    assert "undone, because it could not be kept" in said
    assert host.text("/sys/fake/1") == "original 1"
    assert not (host.folder / SYSCTL[1:]).exists()
    assert host.open_entries() == []
    assert host.history() == []


def test_a_managed_interrupt_is_refused_and_another_is_moved(host: Fake) -> None:
    for irq, state in (("40", "  IRQD_AFFINITY_MANAGED\n"), ("41", "handler:  handle_edge_irq\n")):
        host.put(f"/proc/irq/{irq}/smp_affinity_list", "0-3")
        host.put(f"/sys/kernel/debug/irq/irqs/{irq}", state)
    change = {"path": "/proc/irq/40/smp_affinity_list", "value": "2"}
    assert "interrupt 40 is managed by the kernel" in host.apply(change, code=5)
    host.apply({"path": "/proc/irq/41/smp_affinity_list", "value": "0,1,2,3"})
    assert host.open_entries() == [], "another spelling of what stands there is no change"
    host.apply({"path": "/proc/irq/41/smp_affinity_list", "value": "2"})
    assert host.text("/proc/irq/41/smp_affinity_list") == "2"
    host.rollback()
    assert host.text("/proc/irq/41/smp_affinity_list") == "0-3"


def test_whole_files_come_back_with_their_content(host: Fake) -> None:
    drop_in = "/etc/systemd/system/mariadb.service.d/headrace.conf"
    host.put(SYSCTL, "vm.swappiness = 10")
    host.apply(
        {"file": SYSCTL, "content": "vm.swappiness = 1\n"}, {"file": drop_in, "content": "[Service]\n"}
    )
    assert host.text(SYSCTL) == "vm.swappiness = 1"
    host.rollback()
    assert host.text(SYSCTL) == "vm.swappiness = 10"
    assert not (host.folder / drop_in[1:]).parent.exists(), "the folder was made for it"


def test_two_controllers_never_change_a_host_at_once(host: Fake) -> None:
    with subprocess.Popen(
        host.argv("hold", "--owner", "run-1"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        assert "holds this host for run-1" in host.apply(kernel(1), within="1s", code=7)
        assert "holds this host for run-1" in host.rollback("--kept", "last", code=7)
        holder.kill()
    assert host.text("/sys/fake/1") == "original 1"
    many = [
        subprocess.Popen(
            host.argv("apply", "--owner", f"apply/{n}", "--root", str(host.folder)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for n in range(6)
    ]
    for n, process in enumerate(many):
        process.communicate(json.dumps([kernel(1, f"by {n}"), kernel(2, f"by {n}")]))
    assert sorted(process.returncode for process in many) == [0, *[5] * 5]
    assert host.text("/sys/fake/1") == host.text("/sys/fake/2") != "original 1"
    host.call("rollback", "--root", str(host.folder), owner=None)
    assert (host.text("/sys/fake/1"), host.text("/sys/fake/2")) == ("original 1", "original 2")


@pytest.mark.needs("root")
def test_a_file_that_became_read_only_stays_open_and_is_restored_later(host: Fake) -> None:
    file = host.folder / "sys/fake/1"
    host.apply(kernel(1))
    subprocess.run(["mount", "--bind", file, file], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", file], check=True)
        assert "Read-only file system" in host.apply(kernel(2), kernel(1, "again"), code=5)
        assert "so nothing was changed" in host.apply(kernel(2), kernel(1, "again"), code=5)
        assert host.text("/sys/fake/2") == "original 2"
        assert "could not be undone" in host.rollback(code=1)
        assert [entry["wrote"] for entry in host.open_entries()] == ["changed"]
    finally:
        subprocess.run(["umount", file], check=True)
    assert [u["done"] for u in host.rollback()] == [True]
    assert host.text("/sys/fake/1") == "original 1"


@pytest.mark.needs("sshd")
def test_a_lost_connection_strands_nobody(host: Fake, tmp_path: Path) -> None:
    async def change(target: SshTarget) -> None:
        await target.connect()
        agent = await Agent.install(target)
        options = ["--owner", OWNER, "--root", str(host.folder), "--confirm-within", "3s"]
        argv = [agent.path, *host.argv("apply", *options)[1:]]
        await target.run(argv, stdin=json.dumps([kernel(1)]).encode())
        await target.close()

    (tmp_path / "sshd").mkdir()
    with sshd.running_sshd(tmp_path / "sshd") as daemon:
        asyncio.run(change(daemon.target()))
    # Daemon and connection are gone.
    assert host.text("/sys/fake/1") == "changed"
    until(lambda: host.text("/sys/fake/1") == "original 1")
