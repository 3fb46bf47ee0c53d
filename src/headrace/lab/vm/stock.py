"""Cached roots and kernels, their sizes, and the machines that use them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.base.counted import counted
from headrace.host.target.local import LocalTarget
from headrace.lab.vm import image, kernels, state
from headrace.lab.vm.cache import folder, is_locked

__all__ = ["Item", "items", "remove_unused"]

Kind = Literal["root", "kernel", "unfinished"]


@dataclass(frozen=True)
class Item:
    """A root or a kernel. ``used_by`` names machines; a root of this version of headrace counts as used.

    ``unfinished``: left by a killed build; the next build also removes it.
    """

    kind: Kind
    name: str
    made_of: str
    path: Path
    disk_bytes: int
    used_by: tuple[str, ...]


def items() -> list[Item]:
    records = [status.record for status in state.statuses() if status.record is not None]
    found = []
    for root in image.cached():
        users = [record.spec.name for record in records if record.image == root.key]
        if root.key == image.current().key:
            users.append("the next machine")
        packages = len(json.loads((root.folder / "image.json").read_text())["versions"])
        found.append(
            _item("root", root.key, f"{image.SUITE}, {counted(packages, 'package')}", root.folder, users)
        )
    for kernel in kernels.cached():
        users = [record.spec.name for record in records if record.release == kernel.release]
        found.append(_item("kernel", kernel.release, kernel.source, kernel.folder, users))
    if not is_locked(folder("roots")):
        found += [_unfinished(path) for path in image.leftovers()]
    if not is_locked(folder("kernels")):
        found += [_unfinished(path) for path in kernels.leftovers()]
    return found


async def remove_unused() -> list[Item]:
    """Remove what no machine uses; returns what was removed. Running builds and fetches are kept."""
    host = LocalTarget()
    unused = [item for item in items() if not item.used_by]
    for item in unused:
        await image.remove(host, item.path)
    return unused


def _unfinished(path: Path) -> Item:
    return _item("unfinished", path.name, "a build that was killed", path, [])


def _item(kind: Kind, name: str, made_of: str, path: Path, users: list[str]) -> Item:
    size = sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())
    return Item(kind, name, made_of, path, size, tuple(users))
