"""What is kept between machines: roots and kernels, what they take, and who uses them."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.vm import image, kernels, state
from headrace.vm.cache import folder, is_locked

__all__ = ["Item", "items", "remove"]


@dataclass(frozen=True)
class Item:
    """A root or a kernel. ``used_by`` names machines; a root of this version of headrace counts as used."""

    kind: Literal["root", "kernel"]
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
        found.append(_item("root", root.key, f"{image.SUITE}, {packages} packages", root.folder, users))
    for kernel in kernels.cached():
        users = [record.spec.name for record in records if record.release == kernel.release]
        found.append(_item("kernel", kernel.release, kernel.source, kernel.folder, users))
    return found


def remove(item: Item) -> bool:
    """Remove it unless somebody builds or fetches just now."""
    if is_locked(folder("roots" if item.kind == "root" else "kernels")):
        return False
    shutil.rmtree(item.path)
    return True


def _item(kind: Literal["root", "kernel"], name: str, made_of: str, path: Path, users: list[str]) -> Item:
    size = sum(file.stat().st_blocks * 512 for file in path.iterdir())
    return Item(kind, name, made_of, path, size, tuple(users))
