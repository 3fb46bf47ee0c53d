"""No device: an ordinary folder, for work without root. It measures the file system below it."""

from __future__ import annotations

from headrace.lab.volumes.device import Site


async def make(site: Site) -> str:
    """Create the folder; returns its path."""
    path = f"{site.folder}/{site.name}"
    await site.record({"kind": "remove", "path": path})
    await site.run(["mkdir", path])
    return path
