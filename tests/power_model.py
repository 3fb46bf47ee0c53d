"""A folder on a modelled disk: after a power cut, what was synced is there, and of the rest any part.

A file is as durable as at its last fsync, a name as at the last fsync of its folder. Of what came later a cut
leaves nothing, all, or any beginning of the changes of each folder and of each file. ``tests/power.py`` cuts real
file systems, which keep more than they promise.
"""

from __future__ import annotations

import contextlib
import os
import random
import stat
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from tests.changes import heard

#: Selects what each cut leaves.
SEED = int(os.environ.get("HEADRACE_SEED", "1"))
State = TypeVar("State")
#: Path below the folder -> content; None: it is a folder.
Left = dict[str, bytes | None]


class Share(Enum):
    """How much of what was not synced a cut leaves."""

    NOTHING = auto()
    ALL = auto()
    PART = auto()


class Node:
    """A file or folder, as long as anything has its name or had it at the last sync.

    It is held open: otherwise its inode's number would be used again.
    """

    def __init__(self, path: str) -> None:
        self._held = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.is_folder = stat.S_ISDIR(os.fstat(self._held).st_mode)
        self._durable = b""
        #: Names and inodes at the last sync, and after each change since.
        self.listings: list[dict[str, int]] = [{}]

    def close(self) -> None:
        os.close(self._held)

    def sync(self) -> None:
        if self.is_folder:
            del self.listings[:-1]
        else:
            self._durable = self._now()

    def _now(self) -> bytes:
        found = os.pread(self._held, os.fstat(self._held).st_size, 0)
        return self._durable if found == self._durable else found

    def listing(self, share: Share, chance: random.Random) -> dict[str, int]:
        if share is Share.PART:
            return chance.choice(self.listings)
        return self.listings[-1 if share is Share.ALL else 0]

    def content(self, share: Share, chance: random.Random) -> bytes:
        old, new = self._durable, self._now()
        if share is not Share.PART or old == new:
            return old if share is Share.NOTHING else new
        if not new.startswith(old):
            return chance.choice((old, new))
        kept = chance.randint(len(old), len(new))
        # In the last, the length was written, the data was not.
        return chance.choice((old, new, new[:kept], new[:kept].ljust(len(new), b"\0")))


class Shadow:
    """What is durable of the folder ``root``, which is as it is when this begins."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._nodes: dict[int, Node] = {}
        self.look()
        for node in self._nodes.values():
            node.sync()

    def close(self) -> None:
        for node in self._nodes.values():
            node.close()

    def look(self) -> None:
        """Note each change of a name since the last look."""
        self._look(str(self._root), self._root.stat().st_ino)

    def _look(self, path: str, inode: int) -> None:
        if inode not in self._nodes:
            self._nodes[inode] = Node(path)
        node = self._nodes[inode]
        if not node.is_folder:
            return
        with os.scandir(path) as found:
            inside = sorted((entry.name, entry.inode()) for entry in found)
        if dict(inside) != node.listings[-1]:
            node.listings.append(dict(inside))
        for name, number in inside:
            self._look(f"{path}/{name}", number)

    def synced(self, descriptor: int) -> None:
        """This file or folder has been synced."""
        self.look()
        if node := self._nodes.get(os.fstat(descriptor).st_ino):
            node.sync()

    def cut(self, chance: random.Random) -> Left:
        """What a power cut now may leave."""
        names, contents = chance.choice(list(Share)), chance.choice(list(Share))
        # A move from folder to folder is two changes here. On a disk it is one: what is moved is never nowhere.
        lasts = set(self._named(Share.NOTHING, chance).values()) & set(
            self._named(Share.ALL, chance).values()
        )
        while not lasts <= set((named := self._named(names, chance)).values()):
            pass
        left: Left = {}
        for path, inode in named.items():
            node = self._nodes[inode]
            left[path] = None if node.is_folder else node.content(contents, chance)
        return left

    def _named(self, share: Share, chance: random.Random) -> dict[str, int]:
        """Path -> inode, a folder before what is in it."""
        found: dict[str, int] = {}

        def walk(place: str, inode: int) -> None:
            for name, number in self._nodes[inode].listing(share, chance).items():
                found[f"{place}{name}"] = number
                if self._nodes[number].is_folder:
                    walk(f"{place}{name}/", number)

        walk("", self._root.stat().st_ino)
        return found


def rebuild(left: Left, folder: Path) -> None:
    """Make it what a cut left."""
    folder.mkdir()
    for path, content in left.items():
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)


class Promised(Generic[State]):
    """Each acknowledged state, what each cut left, and how many states were acknowledged before it."""

    def __init__(self, state: State) -> None:
        self.states = [state]
        self._cuts: list[tuple[Left, int]] = []

    def now(self, state: State) -> None:
        self.states.append(state)

    @contextlib.contextmanager
    def cut(self, folder: Path, times: int, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Cut the power of a folder so often before each change, and at the end."""
        chance = random.Random(SEED)
        with contextlib.closing(Shadow(folder)) as shadow:

            def before(path: str) -> None:
                shadow.look()
                for _ in range(times):
                    self._add(shadow.cut(chance))

            with heard(folder, patch, before, shadow.synced):
                yield
            before("")

    def _add(self, left: Left) -> None:
        # Between two syncs many leave the same.
        if (left, len(self.states)) not in self._cuts[-30:]:
            self._cuts.append((left, len(self.states)))

    def cuts(self, folder: Path) -> Iterator[tuple[str, Path, list[State]]]:
        """What each cut left, below ``folder``, with the last acknowledged state and the next one."""
        for number, (left, count) in enumerate(self._cuts):
            place = folder / f"cut-{number}"
            rebuild(left, place)
            yield f"cut {number} of {len(self._cuts)}", place, self.states[count - 1 : count + 1]
