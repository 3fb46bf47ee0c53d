"""Where paths lie: on which mount, and where a server's are behind the link that its data directory may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def lies_below(path: str, mount_point: str) -> bool:
    return mount_point == "/" or path == mount_point or path.startswith(f"{mount_point}/")


def mount_of(path: str, mounts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    below = [fs for fs in mounts if lies_below(path, str(fs["mount_point"]))]
    return max(reversed(below), key=lambda fs: len(fs["mount_point"]), default=None)


#: Their subvolumes have device numbers of their own, which no list of mounts has.
_MANY_NUMBERS = ("btrfs", "bcachefs", "overlay")


def mount_of_server(
    path: str, mounts: Sequence[Mapping[str, Any]], process: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """The mount of a path as a running server sees it: it stays in the directory that it works in.

    What was mounted over that directory since its start, or taken away beneath it, is not where its files are: it
    is the mount with the number of that directory, None if that is gone.
    """
    found, number = mount_of(path, mounts), process.get("working_device_number")
    working = str(process.get("working_directory") or "")
    if found is None or not number or found.get("kind") in _MANY_NUMBERS or not found.get("device_number"):
        return found
    same = [each for each in mounts if each.get("device_number") == number]
    if working == "/":
        # It has not yet begun to work in its data, or the kernel calls it so because that was unmounted.
        return found if same else None
    is_of_data = lies_below(path, working) and found == mount_of(working, mounts)
    if not is_of_data or found["device_number"] == number:
        return found
    return mount_of(path, same) or (same[0] if same else None)


def real_path(path: str, data: object, working: object) -> str:
    """One of a server's paths, where its data directory is a symbolic link: ``/var/lib/mysql`` to ``/data/mysql``.

    A server works in its data directory, and the kernel names that directory without links.
    """
    linked = str(data or "").rstrip("/")
    real = str(working or "").rstrip("/")
    if not linked.startswith("/") or not real.startswith("/") or real.endswith(" (deleted)"):
        return path
    return real + path[len(linked) :] if lies_below(path.rstrip("/"), linked) else path


def below_overlay(
    mount: Mapping[str, Any] | None, mounts: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """The mount that takes what is written to an overlay: that of its ``upperdir``, as the host names it.

    None where the root is an overlay, too: then these are a container's own mounts, and the host's paths mean
    nothing in them.
    """
    options = (mount or {}).get("super_options") or ()
    upper = next((str(each).partition("=")[2] for each in options if str(each).startswith("upperdir=/")), "")
    if not upper or (mount_of("/", mounts) or {}).get("kind") == "overlay":
        return None
    found = mount_of(upper, mounts)
    return found if found is not None and found.get("kind") != "overlay" else None
