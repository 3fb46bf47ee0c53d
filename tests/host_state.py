"""Prints everything of a host that can be compared, as JSON: what it is called -> what it is.

It is sent to a guest, where nothing of this project is, and runs in the guest's Python: few modules, because each
costs an emulated CPU a tenth of a second.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator

#: Below these a file is a setting if its owner may read and write it; how many folders deep they are read.
SETTINGS = {
    "/proc/irq": 2,
    "/proc/sys": 9,
    "/sys/block": 4,
    "/sys/class/net": 5,
    "/sys/devices/system/cpu": 4,
    "/sys/kernel/mm": 4,
}
#: Compared whole; a command may leave things behind in all but the first.
PLACES = ("/etc", "/dev/shm", "/root", "/run", "/tmp", "/var/lib", "/var/spool", "/var/tmp")
#: The agent's copy stays on a host.
STAYS = "/root/.cache"
#: Who held the host last is in the lock; the rest of the journal's folder is empty at rest.
JOURNAL, LOCK = "/var/lib/headrace", "/var/lib/headrace/lock"
#: An agent's path, the workload, and what a process of an experiment or a virtual machine has in its environment.
OURS = (b"/headrace/agent-", b"fio", b"HEADRACE_OWNER=", b"HEADRACE_VM=")


def below(folder: str, depth: int, follow: bool) -> Iterator[tuple[str, os.stat_result]]:
    """``follow`` links of the folder itself: the devices in /sys/block and /sys/class are such."""
    try:
        found = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        try:
            about = entry.stat(follow_symlinks=False)
            is_folder = entry.is_dir(follow_symlinks=follow)
        except OSError:
            continue  # it ended between the two calls
        yield entry.path, about
        if depth > 1 and is_folder:
            yield from below(entry.path, depth - 1, False)


def content(path: str) -> bytes | None:
    """None for what cannot be read: some settings have no value at the moment."""
    try:
        with open(path, "rb", 0) as file:
            return file.read()
    except OSError:
        return None


def settings() -> Iterator[tuple[str, object]]:
    for top, depth in SETTINGS.items():
        for path, about in below(top, depth, True):
            # To write an uevent sends one.
            is_setting = stat.S_ISREG(about.st_mode) and about.st_mode & 0o600 == 0o600
            if is_setting and not path.endswith("/uevent") and (text := content(path)) is not None:
                yield path, text.decode(errors="replace").strip()


def files() -> Iterator[tuple[str, object]]:
    for top in PLACES:
        for path, about in below(top, 99, False):
            if path.startswith(STAYS) or (path.startswith(JOURNAL) and (path == LOCK or not about.st_size)):
                continue
            told: list[object] = [stat.filemode(about.st_mode), about.st_uid, about.st_gid]
            if stat.S_ISLNK(about.st_mode):
                told.append(os.readlink(path))
            elif stat.S_ISREG(about.st_mode):
                told.append(hash(content(path)))
            if path != JOURNAL:
                yield path, told


def mounts() -> Iterator[tuple[str, object]]:
    for line in (content("/proc/self/mountinfo") or b"").decode().splitlines():
        # The first two words are numbers that are given out anew for each mount.
        _, _, *words = line.split()
        # Others' network namespaces come and go, also in such a host; one of ours would have its file in /run.
        if not words[2].startswith("/run/netns/"):
            yield f"mount {words[2]}", words


def loops() -> Iterator[tuple[str, object]]:
    for name in os.listdir("/sys/block"):
        if backing := content(f"/sys/block/{name}/loop/backing_file"):
            yield f"loop device {name}", backing.decode(errors="replace").strip()


def processes() -> Iterator[tuple[str, object]]:
    for pid in os.listdir("/proc"):
        if pid.isdigit() and (words := content(f"/proc/{pid}/cmdline")):
            about = words + (content(f"/proc/{pid}/environ") or b"")
            if any(mark in about for mark in OURS):
                yield f"process {pid}", words.decode(errors="replace").split("\0")


def captures() -> Iterator[tuple[str, object]]:
    """Who is given packets by the kernel."""
    for line in (content("/proc/net/packet") or b"").decode().splitlines()[1:]:
        words = line.split()
        yield f"packet socket {words[-1]}", words[3:5]


if __name__ == "__main__":
    parts = (settings(), files(), mounts(), loops(), processes(), captures())
    print(json.dumps({name: value for part in parts for name, value in part}))
