"""The watcher of a deadline under a real systemd, which is process 1 of a copy of this machine.

The copy is an overlay in namespaces of its own: systemd sees the machine's files and changes none of them. Of its
units nothing is started, or it would empty /tmp as at a boot.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.programs import agent_path
from tests.waiting import until

SYSTEMD = Path("/lib/systemd/systemd")
pytestmark = [
    pytest.mark.needs("root", "unshare", "nsenter"),
    pytest.mark.skipif(not SYSTEMD.exists(), reason="needs systemd"),
]
OWNER = "apply/1"
STATE = "/var/lib/headrace"
BACKLOG = "/proc/sys/net/core/somaxconn"
BOX = """
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
for each in tmp run dev var/lib; do mount -t tmpfs tmpfs $each; done
for each in null zero urandom; do touch dev/$each; mount --bind /dev/$each dev/$each; done
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
cp "$2" run/headrace-agent
mkdir -p run/systemd/system
for each in only sysinit basic shutdown; do
    printf '[Unit]\\nDefaultDependencies=no\\n' > run/systemd/system/$each.target
done
pivot_root . mnt
umount -l /mnt
export container=test
exec "$3" --system --unit=only.target --log-target=null --show-status=0
"""

Inside = Callable[..., str]


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    """Runs a command where systemd is process 1; what it printed."""
    argv = ["unshare", "--fork", "--kill-child", *["--pid", "--mount", "--cgroup", "--uts", "--net", "--ipc"]]
    argv += ["sh", "-c", BOX, "sh", str(tmp_path), agent_path(), str(SYSTEMD)]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def run(*words: str, text: str = "") -> str:
        into = [
            "nsenter",
            "-t",
            children.read_text().strip(),
            "--mount",
            "--pid",
            "--cgroup",
            "--net",
            "--root",
            "--wd",
        ]
        done = subprocess.run(
            [*into, *words], input=text, capture_output=True, text=True, timeout=30, check=True
        )
        return done.stdout.strip()

    def is_up() -> bool:
        try:
            return run("systemctl", "is-active", "only.target") == "active"
        except (OSError, subprocess.CalledProcessError):
            assert process.poll() is None, "systemd did not start"
            return False

    try:
        until(is_up, what="systemd")
        yield run
    finally:
        process.kill()
        process.wait()


def shown(inside: Inside, name: str) -> str:
    return inside("systemctl", "show", "headrace-watch-*", f"--property={name}", "--value")


CHANGES = json.dumps([{"path": BACKLOG, "value": "4000"}])


def argv(within: str) -> list[str]:
    words = ["/run/headrace-agent", "journal", "apply", "--owner", OWNER, "--state", STATE]
    return [*words, "--confirm-within", within]


def apply(inside: Inside, within: str) -> None:
    inside(*argv(within), text=CHANGES)
    assert inside("cat", BACKLOG) == "4000"


def test_a_watcher_that_is_killed_is_started_again_and_undoes(inside: Inside) -> None:
    before = inside("cat", BACKLOG)
    apply(inside, "12s")
    for number, kill in enumerate(("-KILL", "-TERM"), 1):
        pid = shown(inside, "MainPID")
        inside("kill", kill, pid)
        until(lambda: shown(inside, "MainPID") not in ("", "0", pid), what=kill)  # noqa: B023 - it ends here
        assert shown(inside, "NRestarts") == str(number)
    # It is in its unit, by which systemd knows it.
    assert "/headrace-watch-" in inside("cat", f"/proc/{shown(inside, 'MainPID')}/cgroup")
    assert inside("cat", BACKLOG) == "4000"
    until(lambda: inside("cat", BACKLOG) == before, what="the deadline")
    until(lambda: not shown(inside, "MainPID"), what="the end of its unit")


def test_a_unit_ends_when_its_change_is_confirmed(inside: Inside) -> None:
    apply(inside, "1h")
    assert shown(inside, "MainPID") not in ("", "0")
    inside("/run/headrace-agent", "journal", "confirm", "--owner", OWNER, "--state", STATE)
    until(lambda: not shown(inside, "MainPID"), what="the end of its unit")
    assert inside("cat", BACKLOG) == "4000"


@pytest.mark.parametrize("watcher", ["unit", "process"])
@pytest.mark.parametrize("ending", [("kill", "--signal=KILL"), ("stop",)], ids=["killed", "stopped"])
def test_the_end_of_the_unit_that_applied_does_not_reach_the_watcher(
    inside: Inside, watcher: str, ending: tuple[str, ...]
) -> None:
    """As of cron, or of a login session that is closed: all of its control group ends."""
    before = inside("cat", BACKLOG)
    inside("cp", "/usr/bin/systemd-run", "/run/start")
    if watcher == "process":
        inside("mount", "--bind", "/bin/false", "/usr/bin/systemd-run")
    script = f"echo '{CHANGES}' | {' '.join(argv('8s'))}; exec sleep 1000"
    inside("/run/start", "--unit=caller", "--property=DefaultDependencies=no", "sh", "-c", script)
    until(lambda: inside("cat", BACKLOG) == "4000", what="the change")
    until(lambda: "sleep" in inside("ps", "-o", "args=", "-p", main_of(inside, "caller")), what="its end")
    inside("systemctl", *ending, "caller.service")
    until(lambda: main_of(inside, "caller") == "0", what="the end of the unit")
    assert (shown(inside, "MainPID") not in ("", "0")) == (watcher == "unit")
    until(lambda: inside("cat", BACKLOG) == before, what="the deadline")


def main_of(inside: Inside, unit: str) -> str:
    return inside("systemctl", "show", unit, "--property=MainPID", "--value")


def test_without_an_answer_of_systemd_a_process_watches(inside: Inside) -> None:
    inside("mount", "--bind", "/bin/false", "/usr/bin/systemd-run")
    before = inside("cat", BACKLOG)
    apply(inside, "2s")
    assert not shown(inside, "MainPID")
    until(lambda: inside("cat", BACKLOG) == before, what="the deadline")
