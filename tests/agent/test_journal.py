"""The agent's journal against a real kernel: whatever is killed, a rollback leaves the host as it was."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.programs import agent_path
from tests.traces import loops_below, processes_of

OWNER = f"test-{os.getpid()}"
OVERCOMMIT = ("overcommit_ratio", "overcommit_kbytes")


class Host:
    """A state folder, a scratch folder and the commands of ``headrace-agent journal`` on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.state = self.folder / "state"
        self.scratch = self.folder / "scratch"
        self.scratch.mkdir()
        self.scratch_entry = {"kind": "scratch", "path": str(self.scratch)}

    def argv(self, verb: str, *arguments: str) -> list[str]:
        return [agent_path(), "journal", verb, "--state", str(self.state), *arguments]

    def call(
        self, verb: str, *arguments: str, owner: str | None = OWNER, stdin: Any = None, code: int = 0
    ) -> Any:
        """What the command printed; its standard error where it fails as expected."""
        who = ["--owner", owner] if owner else []
        done = subprocess.run(
            self.argv(verb, *who, *arguments),
            input=json.dumps(stdin),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout) if code == 0 and done.stdout else done.stderr

    def record(self, *entries: dict[str, str]) -> None:
        self.call("record", stdin=[self.scratch_entry, *entries])

    def open_entries(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.call("show", owner=None)
        return entries


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def fake_settings(root: Path, count: int) -> dict[str, str]:
    """Plain files below ``root``/sys and what they hold."""
    (root / "sys/fake").mkdir(parents=True)
    for number in range(count):
        (root / f"sys/fake/{number}").write_text(f"original {number}\n")
    return {f"/sys/fake/{number}": f"original {number}\n" for number in range(count)}


def kill_after(argv: list[str], stdin: str, delay_s: float) -> None:
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin
        process.stdin.write(stdin)
        process.stdin.close()
        time.sleep(delay_s)
        process.kill()


def test_killed_at_any_instant_the_originals_come_back(host: Host) -> None:
    originals = fake_settings(host.folder, 20)
    root = ("--root", str(host.folder))
    # As long as the originals: of a plain file, unlike the kernel's, a killed write could else leave half of each.
    changes = json.dumps(
        [
            {"path": path, "value": text.strip().replace("original", "replaced")}
            for path, text in originals.items()
        ]
    )
    started = time.monotonic()
    host.call("apply", *root, stdin=json.loads(changes))
    whole_s = time.monotonic() - started
    host.call("rollback", *root)

    changed_counts = set()
    for kills in itertools.count(1):
        apply = host.argv("apply", "--owner", OWNER, *root)
        kill_after(apply, changes, random.uniform(0, 1.2 * whole_s))
        now = {path: (host.folder / path[1:]).read_text() for path in originals}
        changed_counts.add(sum(now[path] != originals[path] for path in originals))
        # The rollback, too, is killed before one is left to end.
        kill_after(host.argv("rollback", "--owner", OWNER, *root), "", random.uniform(0, 1.2 * whole_s))
        host.call("rollback", *root)
        assert {path: (host.folder / path[1:]).read_text() for path in originals} == originals
        assert host.open_entries() == []
        # On a busy machine the first apply takes longer than the next, and most kills come too late.
        if kills >= 40 and len(changed_counts) > 2:
            break
        assert kills < 400, "no kill fell between two writes: this tested nothing"


def test_one_controller_holds_the_host_until_it_lets_go_or_dies(host: Host) -> None:
    for end in ("close", "kill"):
        with subprocess.Popen(
            host.argv("hold", "--owner", OWNER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdin
            assert holder.stdout
            assert holder.stdout.readline() == "held\n"
            for verb, stdin in (("hold", None), ("record", []), ("apply", []), ("rollback", None)):
                message = host.call(verb, owner="other", stdin=stdin, code=7)
                assert f"process {holder.pid} holds this host for {OWNER} since 20" in message
            host.call("rollback", owner=None, code=7)
            host.call("hold", code=7)
            host.call("rollback", owner=f"{OWNER}2", code=7)
            host.call("record", owner=OWNER, stdin=[])
            host.call("record", owner=f"{OWNER}/part", stdin=[])
            host.call("rollback", "--everyone")
            if end == "close":
                holder.stdin.close()
                assert holder.wait(timeout=5) == 0
            else:
                holder.kill()
        host.call("rollback", owner=None)
        host.call("record", owner="other", stdin=[])


@pytest.mark.parametrize("how", ["free", "gone"])
def test_what_a_controller_leaves_ends_unless_it_lets_go(host: Host, how: str) -> None:
    """One that was killed says no word: its processes end, and the host is as before, unasked."""
    originals = fake_settings(host.folder, 1)
    root = ("--root", str(host.folder))
    mark = {**os.environ, "HEADRACE_OWNER": f"{OWNER}/server"}
    script = ["sh", "-c", "trap '' TERM; sleep 1000 & wait; wait"]
    program = subprocess.Popen(script, env=mark, start_new_session=True)
    argv = host.argv("hold", "--owner", OWNER, *root)
    try:
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdin
            assert holder.stdout
            assert holder.stdout.readline() == "held\n"
            change = {"path": "/sys/fake/0", "value": "replaced 0"}
            host.call("apply", *root, owner=f"{OWNER}/part", stdin=[change])
            if how == "free":
                holder.stdin.write("free\n")
            holder.stdin.close()
            assert holder.wait(timeout=60) == 0
        path, text = next(iter(originals.items()))
        if how == "free":
            assert program.poll() is None
            assert (host.folder / path[1:]).read_text() == "replaced 0\n"
        else:
            assert program.wait(timeout=60) == -signal.SIGKILL
            assert (host.folder / path[1:]).read_text() == text
            assert host.open_entries() == []
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


def test_everyone_means_the_changes_of_all_owners(host: Host) -> None:
    host.record({"kind": "remove", "path": str(host.scratch / "mine")})
    other = {"kind": "remove", "path": str(host.scratch / "other")}
    host.call("record", owner="other", stdin=[host.scratch_entry, other])
    assert [u["kind"] for u in host.call("rollback")] == ["remove"]
    assert [e["owner"] for e in host.open_entries()] == ["other"]
    assert [u["done"] for u in host.call("rollback", "--everyone")] == [True]


def test_asking_leaves_nothing_behind(host: Host) -> None:
    assert host.call("rollback", owner=None) == []
    assert host.open_entries() == []
    assert not host.state.exists()


def test_wrong_input_is_told_apart_from_failure(host: Host) -> None:
    assert "expected" in host.call("record", stdin={"kind": "mount"}, code=2)
    assert "unknown variant" in host.call("record", stdin=[{"kind": "hammer"}], code=2)
    assert "letters" in host.call("record", owner="a b", stdin=[], code=2)
    assert "only files of /sys" in host.call("apply", stdin=[{"path": "/etc/hostname", "value": "x"}], code=5)


def mounts_below(folder: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4] for line in lines if line.split()[4].startswith(str(folder))]


@pytest.fixture
def clean_host(host: Host) -> Iterator[Host]:
    """Afterwards nothing of the test may be left; what is left is removed, so that one failure stays one."""
    yield host
    left = (loops_below(host.folder), mounts_below(host.folder), processes_of(OWNER))
    for pid in left[2]:
        os.kill(pid, signal.SIGKILL)
    for point in left[1]:
        subprocess.run(["umount", "--lazy", point], check=True)
    for name in left[0]:
        subprocess.run(["losetup", "-d", f"/dev/{name}"], check=True)
    assert left == ([], [], [])


#: A controller that journals and does one thing after the other, and is killed after step STOP.
CONTROLLER = """
import json, os, signal, subprocess, sys
argv, scratch, owner, stop = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
image, mount = f"{scratch}/d.img", f"{scratch}/m"
count = 0
def step():
    global count
    count += 1
    if count == stop:
        os.kill(os.getpid(), signal.SIGKILL)
def journal(verb, value):
    argv[2] = verb
    subprocess.run([*argv, "--owner", owner], input=json.dumps(value), text=True, check=True, stdout=-3)
    step()
def act(*command):
    out = subprocess.run(command, text=True, check=True, stdout=subprocess.PIPE).stdout.strip()
    step()
    return out
journal("record", [{"kind": "scratch", "path": scratch}, {"kind": "process", "mark": owner}])
journal("record", [{"kind": "remove", "path": image}, {"kind": "loop", "backing": image}])
act("truncate", "-s", "64M", image)
loop = act("losetup", "--find", "--show", image)
queue = f"/sys/block/{loop[5:]}/queue"
journal("apply", [{"path": f"{queue}/scheduler", "value": "mq-deadline"},
                  {"path": f"{queue}/nr_requests", "value": "32"}])
act("mkfs.ext4", "-q", loop)
journal("record", [{"kind": "remove", "path": mount}, {"kind": "mount", "path": mount}])
act("mkdir", mount)
act("mount", loop, mount)
subprocess.Popen(["sh", "-c", "trap '' TERM; cd $0; while :; do sleep 0.2; done", mount] if stop == 11 else
                 ["sleep", "600"], cwd=mount, env={**os.environ, "HEADRACE_OWNER": owner},
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
step()
step()
"""


@pytest.mark.needs("root")
@pytest.mark.parametrize("stop", range(1, 12))
def test_a_controller_killed_after_any_step_leaves_no_trace(clean_host: Host, stop: int) -> None:
    host = clean_host
    argv = json.dumps(host.argv("record"))
    queues = {str(q): q.read_text() for q in Path("/sys/block").glob("loop*/queue/*") if _is_setting(q)}
    done = subprocess.run(
        [sys.executable, "-c", CONTROLLER, argv, str(host.scratch), OWNER, str(stop)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert host.open_entries()

    undone = host.call("rollback", owner=None)
    assert all(u["done"] and u["error"] is None for u in undone)
    assert undone[0]["kind"] == "process"
    assert host.open_entries() == []
    assert list(host.scratch.iterdir()) == []
    # Of the loop devices that were free and are: others may come and go.
    now = {path: Path(path).read_text() for path in queues if _is_setting(Path(path))}
    assert now == {path: queues[path] for path in now}
    assert host.call("rollback", owner=None) == []


def _is_setting(path: Path) -> bool:
    """Of a free loop device; not what the kernel itself sets anew whenever one is attached."""
    return (
        path.name in ("scheduler", "nr_requests", "wbt_lat_usec") and not (path.parents[1] / "loop").exists()
    )


@pytest.fixture
def loop(clean_host: Host) -> Iterator[str]:
    """A loop device that is not in the journal."""
    image = clean_host.folder / "theirs.img"
    with image.open("wb") as file:
        file.truncate(64 * 2**20)
    path = _output("losetup", "--find", "--show", str(image))
    yield path
    subprocess.run(["losetup", "-d", path], check=True)


def _output(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.needs("root")
def test_what_the_kernel_refuses_undoes_the_whole_call(clean_host: Host, loop: str) -> None:
    queue = Path(f"/sys/block/{loop[5:]}/queue")
    before = {name: (queue / name).read_text() for name in ("scheduler", "nr_requests", "read_ahead_kb")}

    def apply(*changes: tuple[str, str]) -> str:
        settings = [{"path": f"{queue}/{name}", "value": value} for name, value in changes]
        message: str = clean_host.call("apply", stdin=settings, code=5)
        assert {name: (queue / name).read_text() for name in before} == before
        assert clean_host.open_entries() == []
        return message

    message = apply(("nr_requests", "64"), ("scheduler", "cfq"))
    assert f'{queue}/scheduler: cannot be set to "cfq": Invalid argument (os error 22)' in message
    assert "accepted: none mq-deadline" in message
    assert "Invalid argument" in apply(("scheduler", "mq-deadline"), ("nr_requests", "99999999"))
    assert "Permission denied" in apply(("scheduler", "mq-deadline"), ("hw_sector_size", "4096"))
    assert "no such setting" in apply(("scheduler", "mq-deadline"), ("nr_wishes", "3"))
    # A page is 4 KiB: the kernel takes 5 and makes it 4.
    assert 'wrote "5", but the kernel made it "4"' in apply(("read_ahead_kb", "5"))
    assert "a later setting" in apply(("nr_requests", "64"), ("scheduler", "mq-deadline"))


@pytest.mark.needs("root")
@pytest.mark.parametrize("names", [("dirty_background_ratio", "dirty_background_bytes"), OVERCOMMIT])
def test_coupled_kernel_settings_come_back_as_a_pair(host: Host, names: tuple[str, str]) -> None:
    pair = [Path(f"/proc/sys/vm/{name}") for name in names]
    before = [path.read_text() for path in pair]
    if names == OVERCOMMIT and Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2":
        pytest.skip("this host's limit of committed memory is in force")
    for path, value in ((pair[1], "16777216"), (pair[0], "7"), (pair[1], "33554432")):
        host.call("apply", stdin=[{"path": str(path), "value": value}])
        assert path.read_text().strip() == value
    assert [path.read_text() for path in pair] != before
    host.call("rollback")
    assert [path.read_text() for path in pair] == before


@pytest.mark.needs("root")
def test_a_mount_in_use_by_a_stranger_is_taken_away_lazily_and_told(clean_host: Host) -> None:
    host = clean_host
    point = host.scratch / "m"
    host.record({"kind": "remove", "path": str(point)}, {"kind": "mount", "path": str(point)})
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "stranger", point], check=True)
    with subprocess.Popen(["sleep", "60"], cwd=point) as stranger:
        undone = host.call("rollback")
        stranger.kill()
    assert undone[0]["what"] == f"unmount {point} (lazily: {stranger.pid} sleep still uses it)"
    assert not point.exists()


@pytest.mark.needs("root")
def test_removing_stops_at_another_file_system(clean_host: Host) -> None:
    host = clean_host
    tree = host.scratch / "tree"
    host.record({"kind": "remove", "path": str(tree)})
    (tree / "inner").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "theirs", tree / "inner"], check=True)
    (tree / "inner/precious").write_text("x")
    assert "1 of 1 changes could not be undone" in host.call("rollback", code=1)
    assert (tree / "inner/precious").read_text() == "x"
    assert [e["kind"] for e in host.open_entries()] == ["remove"]
    subprocess.run(["umount", tree / "inner"], check=True)
    assert host.call("rollback")[0]["done"]
    assert not tree.exists()


@pytest.mark.needs("root")
def test_only_an_empty_device_is_taken_and_only_our_signature_is_wiped(clean_host: Host, loop: str) -> None:
    host = clean_host
    ours, theirs = str(uuid.uuid4()), str(uuid.uuid4())
    entry = {"kind": "wipe", "device": loop, "uuid": ours}

    descriptor = os.open(loop, os.O_RDONLY | os.O_EXCL)
    assert "is in use" in host.call("record", stdin=[entry], code=5)
    os.close(descriptor)
    # As InnoDB opens a raw device: no O_EXCL, and no signature on it.
    descriptor = os.open(loop, os.O_RDWR)
    message = host.call("record", stdin=[entry], code=5)
    assert f"is open for writing by process {os.getpid()}" in message
    os.close(descriptor)
    _output("mkfs.ext4", "-q", "-U", theirs, loop)
    assert f"carries ext4 {theirs}" in host.call("record", stdin=[entry], code=5)
    _output("wipefs", "--all", loop)

    host.call("record", stdin=[entry])
    _output("mkfs.ext4", "-q", "-F", "-U", theirs, loop)
    host.call("rollback", code=1)
    assert theirs in _output("wipefs", "--no-act", loop)
    _output("mkfs.ext4", "-q", "-F", "-U", ours, loop)
    assert host.call("rollback")[0]["done"]
    assert _output("wipefs", "--no-act", loop) == ""


@pytest.mark.needs("root")
def test_a_removed_backing_file_still_names_its_loop_device(clean_host: Host) -> None:
    host = clean_host
    image = host.scratch / "d.img"
    host.record({"kind": "loop", "backing": str(image)})
    with image.open("wb") as file:
        file.truncate(2**20)
    for _ in range(2):
        _output("losetup", "--find", str(image))
    image.unlink()
    assert len(loops_below(host.folder)) == 2
    assert host.call("rollback")[0]["done"]
    assert loops_below(host.folder) == []
