"""Text files are whole or absent, whoever is killed."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.base import door, whole
from headrace.base.errors import Busy, Refused, StoreError
from headrace.base.model import Facts
from headrace.base.whole import make_folder, replace_whole, write_whole
from headrace.change.production import histograms
from headrace.experiment.runner import exclusive
from headrace.fleet.runs import RunFile
from headrace.host.snapshot import NO_SAMPLES, Snapshot, save
from headrace.show.notice import Conclusion, Notice
from headrace.tell import markdown
from headrace.traffic.digests import history, table
from tests.synthetic import Shape, make

NOBODY = 65534
#: Writes until it is told to stop; says so when the draft has been begun.
WRITER = """
import os, sys, time
from pathlib import Path
from headrace.base import whole

def stuck(_):
    print("begun", flush=True)
    time.sleep(60)

os.fsync = stuck
whole.write_whole(Path(sys.argv[1]), "new" * 100_000)
"""


def begun(path: Path) -> subprocess.Popen[str]:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "begun\n"
    return writer


def test_a_killed_writer_leaves_the_old_file_and_the_next_one_removes_its_draft(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    writer = begun(path)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    write_whole(path, "next")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "next"


def test_a_draft_that_is_being_written_is_left_to_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    writer = begun(path)
    try:
        write_whole(path, "mine")
        assert path.read_text() == "mine"
        assert len(list(tmp_path.iterdir())) == 2
    finally:
        writer.kill()
        writer.wait()


def test_an_empty_draft_of_a_killed_writer_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".report.html.0123abcd.part").touch()
    write_whole(tmp_path / "report.html", "next")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_a_writer_whose_draft_is_removed_before_it_is_locked_begins_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock, drafts = tmp_path / "report.html", fcntl.flock, []

    def late(file: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            drafts.append([each.name for each in tmp_path.glob(".*.part")])
            if len(drafts) == 1:
                write_whole(path, "other")
                assert path.read_text() == "other"
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    write_whole(path, "mine")
    assert path.read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    # Its own first one, that of the other, its own second one.
    assert [len(each) for each in drafts] == [1, 1, 1]
    assert len({name for each in drafts for name in each}) == 3


def test_a_link_or_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "page")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page").read_text() == "text"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o640), (0o644, 0o644), (0o600, 0o600)])
def test_the_umask_decides_unless_a_mode_is_asked_for(
    tmp_path: Path, mode: int | None, expected: int
) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", "text", mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == expected


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "file", "\udc80")
    assert list(tmp_path.iterdir()) == []


def planted(folder: Path, name: str = "file") -> Path:
    """A link of another user in a folder where others may write, to a file that only root should write."""
    victim = folder / "victim"
    victim.write_text("of the system\n")
    (folder / name).symlink_to(victim)
    os.chown(folder / name, 65534, 65534, follow_symlinks=False)
    return victim


def appended_summary(path: Path) -> None:
    markdown.opened(str(path))(Notice("run", "shop", Conclusion.BETTER, "faster", id="1"))


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_whole(path, "text"),
        lambda path: histograms.append(path, "line\n"),
        lambda path: RunFile(path, {"verb": "facts"}),
        appended_summary,
    ],
)
def test_a_link_that_another_user_made_is_not_followed(
    tmp_path: Path, write: Callable[[Path], object]
) -> None:
    victim = planted(tmp_path)
    with pytest.raises((OSError, StoreError), match="a link that another user made"):
        write(tmp_path / "file")
    assert victim.read_text() == "of the system\n"
    # Nor over a link of one's own.
    (tmp_path / "own").symlink_to("file")
    with pytest.raises((OSError, StoreError), match="a link that another user made"):
        write(tmp_path / "own")
    assert victim.read_text() == "of the system\n"


@pytest.mark.parametrize("name", [".file.part", ".file.0123abcd.part"])
@pytest.mark.parametrize("write", ["snapshot", "digest", "text"])
def test_a_link_that_is_planted_under_the_name_of_a_draft_leads_nowhere(
    tmp_path: Path, write: str, name: str
) -> None:
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_text("of the system\n")
    (tmp_path / name).symlink_to(victim)
    if write == "snapshot":
        save(Snapshot("db1", "", 1.0, Facts("", {}), NO_SAMPLES), path)
    elif write == "digest":
        table.write(table.TABLE.empty_table(), path)
    else:
        write_whole(path, "text")
    assert path.stat().st_size
    assert victim.read_text() == "of the system\n"


def test_an_experiment_is_not_made_in_the_folder_of_a_planted_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / ".study.part").symlink_to(elsewhere)
    folder = make(tmp_path / "study", Shape()).path
    assert not folder.is_symlink()
    assert (folder / "plan.toml").exists()
    assert list(elsewhere.iterdir()) == []


def test_a_planted_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".file.0123abcd.part")
    write_whole(tmp_path / "file", "text")
    assert (tmp_path / "file").read_text() == "text"


def test_what_a_process_has_open_is_written_to_by_its_name(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        (tmp_path / "link").symlink_to(f"/proc/self/fd/{out.fileno()}")
        write_whole(tmp_path / "link", "text")
    assert (tmp_path / "out").read_text() == "text"
    left, right = os.pipe()
    write_whole(Path(f"/dev/fd/{right}"), "text")
    assert os.read(left, 100) == b"text"
    os.close(left)
    os.close(right)


def test_new_folders_have_the_mode_and_others_keep_theirs(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(0o755)
    umask = os.umask(0)
    try:
        make_folder(tmp_path / "old" / "new" / "last", 0o700)
    finally:
        os.umask(umask)
    names = ("old", "old/new", "old/new/last")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in names] == [0o755, 0o700, 0o700]


def test_the_name_of_a_folder_is_synced_if_its_maker_was_killed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(whole, "sync", lambda path: killed(path) if path == tmp_path else None)
        with pytest.raises(KeyboardInterrupt):
            make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a").is_dir()
    synced: list[Path] = []
    monkeypatch.setattr(whole, "sync", synced.append)
    for _ in range(2):
        make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"], "once"


def test_a_result_replaces_a_link_and_never_follows_it(tmp_path: Path) -> None:
    """Of a colleague's archive: after it is unpacked the link is one's own."""
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "report.html").symlink_to(tmp_path / "mine")
    replace_whole(tmp_path / "report.html", "page")
    assert (tmp_path / "mine").read_text() == "precious"
    assert not (tmp_path / "report.html").is_symlink()
    assert (tmp_path / "report.html").read_text() == "page"


@pytest.mark.parametrize("plant", ["link", "dangling", "chain", "hard link", "pipe", "link to a pipe"])
def test_a_lock_in_a_folder_of_others_is_no_other_file(tmp_path: Path, plant: str) -> None:
    lock, mine = tmp_path / ".lock", tmp_path / "mine"
    mine.write_text("precious")
    if plant == "hard link":
        os.link(mine, lock)
    elif plant == "pipe":
        os.mkfifo(lock)
    elif plant == "chain":
        (tmp_path / "next").symlink_to(mine)
        lock.symlink_to(tmp_path / "next")
    elif plant == "link to a pipe":
        os.mkfifo(tmp_path / "pipe")
        lock.symlink_to(tmp_path / "pipe")
    else:
        lock.symlink_to(mine if plant == "link" else tmp_path / "new")
    for _ in range(2):
        with exclusive(tmp_path):
            assert lock.read_text() == str(os.getpid())
    assert mine.read_text() == "precious"
    assert not (tmp_path / "new").exists()
    with exclusive(tmp_path), pytest.raises(Busy), exclusive(tmp_path):
        pass


def test_what_a_command_adds_to_a_folder_of_others_replaces_links(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("{}")
    (tmp_path / "review.json").symlink_to(mine)
    history.review(tmp_path, "class", history.Review("me", "2026-03-01", "seen"))
    assert set(history.reviews(tmp_path)) == {"class"}
    folder = make(tmp_path / "e", Shape(blocks=1))
    raw = folder.trial_path(1) / "raw"
    raw.mkdir(exist_ok=True)
    (raw / "hardware.json").symlink_to(mine)
    folder.unpack_trial(1, {str((raw / "hardware.json").relative_to(folder.path)): b"new"})
    assert (raw / "hardware.json").read_bytes() == b"new"
    raw.rename(tmp_path / "elsewhere")
    raw.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="link"):
        folder.unpack_trial(1, {str((raw / "other.json").relative_to(folder.path)): b"new"})
    assert not (tmp_path / "elsewhere" / "other.json").exists()
    assert mine.read_text() == "{}"


def test_a_folder_is_ours_alone_if_nobody_else_may_rename_one_above(tmp_path: Path) -> None:
    folder = tmp_path / "above" / "folder"
    folder.mkdir(parents=True)
    assert door.is_ours_alone(folder)
    for mode, is_ours in ((0o777, False), (0o1777, True), (0o775, False), (0o755, True)):
        folder.parent.chmod(mode)
        assert door.is_ours_alone(folder) is is_ours, oct(mode)
    folder.chmod(0o1777)
    assert not door.is_ours_alone(folder), "others may put files into it"
    (tmp_path / "link").symlink_to(tmp_path / "above")
    assert not door.is_ours_alone(tmp_path / "link" / "folder")


@pytest.mark.needs("root")
@pytest.mark.parametrize("name", ["trials", "facts", "set-aside"])
def test_trials_are_not_written_where_a_link_of_others_leads(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/etc")
    os.lchown(tmp_path / name, 65534, 65534)
    with pytest.raises(Refused, match="another user"), exclusive(tmp_path):
        pass


@pytest.mark.needs("root")
def test_a_second_name_of_a_link_of_ours_leads_nowhere(tmp_path: Path) -> None:
    """Whoever may write to a folder can give it a second name there: it is not we who put it there."""
    theirs, secret = tmp_path / "theirs", tmp_path / "secret"
    theirs.mkdir()
    secret.write_text("ours")
    (tmp_path / "link").symlink_to(secret)
    assert door.opened(tmp_path / "link") > 0
    os.link(tmp_path / "link", theirs / "link", follow_symlinks=False)
    os.chown(theirs, NOBODY, NOBODY)
    for use in (door.opened, lambda at: door.opened_to_write(at, os.O_WRONLY | os.O_TRUNC)):
        with pytest.raises(door.Refused, match="another user"):
            use(theirs / "link")
    with pytest.raises(door.Refused, match="another user"), door.held(theirs / "link" / "x"):
        pass
    assert secret.read_text() == "ours"


#: Run as the account: it takes a lease and keeps it until the kernel breaks it (45 s).
LEASE = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
os.setgroups([]), os.setgid(65534), os.setuid(65534)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("leased", flush=True)
time.sleep(60)
"""


@pytest.mark.needs("root")
def test_a_lease_of_another_user_is_not_waited_for(tmp_path: Path) -> None:
    for each in [tmp_path, *tmp_path.parents][:-1]:
        if each.stat().st_uid == 0:
            each.chmod(each.stat().st_mode | 0o011)
    path = tmp_path / "x"
    path.write_text("theirs")
    os.chown(path, NOBODY, NOBODY)
    words = [sys.executable, "-c", LEASE, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"leased\n"
        began = time.monotonic()
        for flags in (os.O_WRONLY | os.O_APPEND, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):
            with pytest.raises(BlockingIOError):
                door.opened_to_write(path, flags)
        assert time.monotonic() - began < 10
        holder.kill()
    assert path.read_text() == "theirs"
