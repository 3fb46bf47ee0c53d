"""No device at all: an ordinary folder, for work without root. It measures whatever it happens to lie on."""

from __future__ import annotations

from headrace.volumes.device import Site


async def make(site: Site) -> str:
    """Make the folder; its path."""
    path = f"{site.folder}/{site.name}"
    await site.record({"kind": "remove", "path": path})
    await site.run(["mkdir", path])
    return path
