"""An account that changes what the names in its own folder mean, as fast as it can, beside work of root there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

NOBODY = 65534
SECRET = "root:$6$secret$hash:1:0:9:7:::"

#: As the account: exchanges a pair of names and puts them back, then the next, from where it starts, until
#: it is ended. It works in spells: without a pause, with short and with long ones, and not at all. What takes a
#: moment then meets another thing in some rounds and none in others, and so does what takes a second.
FLIP = """
import ctypes, itertools, os, random, sys, time
libc = ctypes.CDLL(None, use_errno=True)
os.setgroups([]), os.setgid(65534), os.setuid(65534)
pairs = [each.split(":") for each in sys.argv[1:]]
# A name inside the folder that changes places is reached by what it is.
held = {a: os.open(os.path.dirname(a) or ".", os.O_PATH) for a, _ in pairs}
print("flipping", flush=True)
turns = itertools.cycle(pairs)
while True:
    pause = random.choice((0, 0, 3e-4, 3e-3, 1))
    end = time.monotonic() + random.random() / (20 if pause == 1 else 10)
    if pause == 1:
        time.sleep(end - time.monotonic())
    while time.monotonic() < end:
        a, b = next(turns)
        names = held[a], os.path.basename(a).encode(), held[a], os.path.basename(b).encode(), 2
        libc.renameat2(*names)
        if pause and random.random() < .5:
            time.sleep(random.random() * pause)
        libc.renameat2(*names)
        if pause:
            time.sleep(random.random() * pause)
"""


@contextlib.contextmanager
def flipping(folder: Path, *pairs: str) -> Iterator[None]:
    # The account may not be able to run this Python: it becomes the account once it is running.
    words = [sys.executable, "-c", FLIP, *pairs]
    flip = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert flip.stdout is not None
    assert flip.stdout.readline() == "flipping\n"
    try:
        yield
        assert flip.poll() is None
    finally:
        flip.kill()
        flip.wait()


class Hosts:
    """``theirs`` is the account's, ``victim`` is root's and has the same names."""

    def __init__(self, base: Path, make_there: Callable[[Path], object], name: str) -> None:
        self.theirs, self.victim, self.name = base / "theirs", base / "victim", name
        base.chmod(0o711)
        for folder in (self.theirs / "place", self.victim):
            folder.mkdir(parents=True)
            make_there(folder)
            if folder == self.victim and (folder / name).is_file():
                (folder / name).write_text(SECRET)
        for each in (self.theirs, self.theirs / "place"):
            os.chown(each, NOBODY, NOBODY)
        place = self.theirs / "place"
        if (place / name).is_file():
            os.chown(place / name, NOBODY, NOBODY)
        for folder in (self.theirs, place):
            (folder / ".link").symlink_to(self.victim if folder == self.theirs else self.victim / name)
            os.mkfifo(folder / ".pipe")
            (folder / ".other").mkdir()
            (folder / ".zero").symlink_to("/dev/zero")
            for planted in (".link", ".pipe", ".other", ".zero"):
                os.chown(folder / planted, NOBODY, NOBODY, follow_symlinks=False)
        if (self.victim / name).is_file():
            os.link(self.victim / name, place / ".second")

    def pairs(self) -> list[str]:
        """The folder itself, and what is below it, change what they mean."""
        others = (".link", ".pipe", ".other", ".zero", ".second")
        return [pair for other in others for pair in (f"place:{other}", f"place/{self.name}:place/{other}")]

    def state(self) -> dict[str, tuple[int, int, int, bytes | str]]:
        found: dict[str, tuple[int, int, int, bytes | str]] = {}
        for path in sorted([self.victim, *self.victim.rglob("*")]):
            status = path.lstat()
            content: bytes | str = path.read_bytes() if path.is_file() else ""
            found[str(path)] = status.st_mode, status.st_uid, status.st_mtime_ns, content
        return found
