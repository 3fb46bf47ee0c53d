"""Files that others may write, opened as root beside a process that changes what their names mean; leases."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.test_journal import Host
from tests.programs import agent_path
from tests.waiting import until

NOBODY = 65534
SECRET = "root:$6$secret$hash:1:0:9:7:::\n"
#: Rounds of each attack; `make torture` makes more.
ROUNDS = int(os.environ.get("HEADRACE_TRUST", "25"))

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root gives folders to another account")


def read(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [agent_path(), "file", str(path)], capture_output=True, text=True, check=False, timeout=20
    )


def only(path: Path) -> dict[str, object]:
    done = read(path)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["files"]
    return dict(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The server's account owns it."""
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o600)
    found = tmp_path / "conf.d"
    found.mkdir()
    os.chown(found, NOBODY, NOBODY)
    for each in [tmp_path, *tmp_path.parents]:
        if each.stat().st_uid == os.geteuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o011)
    return found


def plant(make: Callable[[Path], object], at: Path) -> None:
    """As the account would; what it makes is its own."""
    make(at)
    os.chown(at, NOBODY, NOBODY, follow_symlinks=False)


PLANTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link to a file of root": (lambda at: at.symlink_to(at.parent.parent / "secret"), "link"),
    "a link to a device that never ends": (lambda at: at.symlink_to("/dev/zero"), "link"),
    "a link to a terminal": (lambda at: at.symlink_to("/dev/tty"), "link"),
    "a link through its own folder": (lambda at: at.symlink_to("../secret"), "link"),
    "a link to /proc": (lambda at: at.symlink_to("/proc/self/environ"), "link"),
    "a link to itself": (lambda at: at.symlink_to(at), "link"),
    "a pipe": (os.mkfifo, "pipe"),
    "a device": (lambda at: os.mknod(at, 0o600 | stat.S_IFCHR, os.makedev(1, 5)), "device"),
    "a file larger than any of ours": (lambda at: at.write_bytes(b"x" * (2 << 20)), "1 mib"),
}


@as_root
@pytest.mark.parametrize("name", PLANTS)
def test_what_is_no_plain_file_is_refused_at_once_as_what_it_is(folder: Path, name: str) -> None:
    make, why = PLANTS[name]
    plant(make, folder / "zz-headrace.cnf")
    done = read(folder / "zz-headrace.cnf")
    assert done.returncode == 5, done.stderr
    assert why in done.stderr.lower()
    assert "secret" not in done.stdout


@pytest.mark.parametrize(
    "name", ["/proc/kmsg", "/proc/self/mem", "/proc/version", "/sys/kernel/uevent_seqnum"]
)
def test_a_file_of_the_kernel_is_none_of_a_disk(name: str) -> None:
    """Of an option file's `!include`: to read the kernel's messages takes them from whoever logs them."""
    done = read(Path(name))
    assert done.returncode == 5
    assert json.loads(done.stdout)["files"][0]["refused"] == "is a file of the kernel, not one of a disk"


@as_root
def test_a_second_name_of_a_file_of_root_is_refused(folder: Path) -> None:
    os.link(folder.parent / "secret", folder / "zz-headrace.cnf")
    assert read(folder / "zz-headrace.cnf").returncode == 5
    # A whole folder that is a link.
    plant(lambda at: at.symlink_to(folder.parent), folder / "inner")
    assert read(folder / "inner" / "secret").returncode == 5


@as_root
def test_its_own_files_and_those_of_root_are_read(folder: Path) -> None:
    (folder / "mine.cnf").write_text("[mysqld]\n")
    os.chown(folder / "mine.cnf", NOBODY, NOBODY)
    assert only(folder / "mine.cnf")["content"] == "[mysqld]\n"
    assert only(folder / "mine.cnf")["owner"] == NOBODY
    assert only(folder.parent / "secret")["content"] == SECRET
    assert only(folder / "nothing")["missing"] is True
    assert only(folder)["names"] == ["mine.cnf"]
    (folder.parent / "link").symlink_to("conf.d/mine.cnf")
    assert only(folder.parent / "link")["content"] == "[mysqld]\n"
    (folder / "of-root").write_text("kept from the account\n")
    (folder / "of-root").chmod(0o600)
    assert read(folder / "of-root").returncode == 5


@as_root
def test_below_a_root_a_link_leads_nowhere_else(folder: Path) -> None:
    """As in a container: its links begin at its own root."""
    root = folder.parent / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "inner").write_text("inside\n")
    (root / "etc" / "my.cnf").symlink_to("/etc/inner")
    (root / "etc" / "up.cnf").symlink_to("../../../../../../../../etc/inner")
    (root / "etc" / "out.cnf").symlink_to(folder.parent / "secret")
    paths = ["/etc/my.cnf", "/etc/up.cnf", "/etc/out.cnf", "/../secret", "/etc"]
    argv = [agent_path(), "file", "--root", str(root), *paths]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=20)
    my, up, out, above, etc = json.loads(done.stdout)["files"]
    assert my["content"] == up["content"] == "inside\n"
    assert out["missing"] is True
    assert above["missing"] is True
    assert etc["names"] == ["inner", "my.cnf", "out.cnf", "up.cnf"]


def exchange(one: Path, other: Path) -> None:
    """Two names change places in one step: neither is ever missing."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, bytes(one), -100, bytes(other), 2):
        raise OSError(ctypes.get_errno(), "cannot exchange", str(one))


@contextlib.contextmanager
def flipping(name: Path, *others: Path) -> Iterator[None]:
    """What is under a name changes as fast as one can."""
    ended = threading.Event()
    failed: list[OSError] = []

    def flip() -> None:
        try:
            while not ended.is_set():
                for other in others:
                    exchange(name, other)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert not failed


@as_root
def test_a_name_that_changes_between_any_two_calls_shows_nothing_of_root(folder: Path) -> None:
    name = folder / "zz-headrace.cnf"
    plant(lambda at: at.write_text("# harmless\n"), name)
    plant(lambda at: at.symlink_to(folder.parent / "secret"), folder / ".link")
    plant(os.mkfifo, folder / ".pipe")
    plant(os.mkdir, folder / ".folder")
    os.link(folder.parent / "secret", folder / ".second")
    others = [folder / each for each in (".link", ".pipe", ".second", ".folder")]
    seen = {"read": 0, "refused": 0}
    with flipping(name, *others):
        for _ in range(ROUNDS):
            done = read(name)
            assert "$6$" not in done.stdout + done.stderr
            assert done.returncode in (0, 5), done.stderr
            seen["read" if done.returncode == 0 else "refused"] += 1
    assert sum(seen.values()) == ROUNDS
    assert seen["refused"]


@as_root
def test_a_file_is_written_only_into_the_folder_that_was_checked(tmp_path: Path) -> None:
    """The folder changes places with a link to one of the system."""
    root = tmp_path / "root"
    parent = root / "etc/mysql"
    (parent / "conf.d").mkdir(parents=True)
    (root / "etc/cron.d").mkdir()
    (parent / "aside").symlink_to("../cron.d")
    os.chown(parent, NOBODY, NOBODY)
    change = [{"file": "/etc/mysql/conf.d/zz-headrace.cnf", "content": "[mysqld]\n"}]
    host, codes = Host(tmp_path), set()
    with flipping(parent / "conf.d", parent / "aside"):
        for number in range(ROUNDS):
            for verb in ("apply", "rollback"):
                argv = host.argv(verb, "--owner", f"apply/{number}", "--root", str(root))
                done = subprocess.run(
                    argv, input=json.dumps(change), capture_output=True, text=True, check=False, timeout=60
                )
                codes.add(done.returncode)
            assert not list((root / "etc/cron.d").iterdir())
    assert 0 in codes


def test_a_leased_program_and_all_that_it_started_end_with_its_controller(tmp_path: Path) -> None:
    """Killed, as the machine's shortage of memory would: nothing is told to end."""
    script = f"sleep 1000 & echo $! >{tmp_path}/inner; trap '' TERM; sleep 1000"
    controller = (
        "import subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE);"
        "p.stdin.write(b'x'); p.stdin.flush(); print(p.pid, flush=True); p.wait()"
    )
    with subprocess.Popen(
        ["python3", "-c", controller, agent_path(), "leased", "--lease", "60s", "--", "sh", "-c", script],
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        leased = int(process.stdout.readline())
        until(lambda: (tmp_path / "inner").exists() and (tmp_path / "inner").read_text().strip() != "")
        inner = int((tmp_path / "inner").read_text())
        os.kill(process.pid, signal.SIGKILL)
    until(lambda: not is_alive(leased) and not is_alive(inner))


def test_a_lease_that_nobody_renews_ends(tmp_path: Path) -> None:
    began = time.monotonic()
    with subprocess.Popen(
        [agent_path(), "leased", "--lease", "1s", "--", "sleep", "1000"], stdin=subprocess.PIPE
    ) as process:
        assert process.wait(60) != 0
    assert time.monotonic() - began >= 1
    done = subprocess.run(
        [agent_path(), "leased", "--lease", "9s", "--", "sh", "-c", "exit 7"],
        stdin=subprocess.PIPE,
        check=False,
    )
    assert done.returncode in (1, 7)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
