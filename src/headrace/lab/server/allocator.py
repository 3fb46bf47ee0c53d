"""The memory allocator under a server: preloaded, then looked up in what the process really mapped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.base.errors import NotReady
from headrace.base.model import Tool
from headrace.host.target import Target

#: Sonames in order of preference, and the Debian package of the first. The minimal tcmalloc has no heap
#: profiler and so costs nothing beside the allocator itself.
_LIBRARIES: Mapping[str, tuple[tuple[str, ...], Tool]] = {
    "jemalloc": (("libjemalloc.so.2", "libjemalloc.so.1"), Tool("libjemalloc.so.2", "libjemalloc2")),
    "tcmalloc": (
        ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"),
        Tool("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    ),
}
_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
)
_LINKED = re.compile(r"^\s*lib(jemalloc|tcmalloc)\S*\.so", re.MULTILINE)
_MAPPED = re.compile(r"(/\S*?/lib(jemalloc|tcmalloc)[^/\s]*\.so[^/\s]*)$", re.MULTILINE)


@dataclass(frozen=True)
class AllocatorLibrary:
    """``path`` is empty for the server's own: the C library's, or one that it is linked with, as Debian's MySQL
    9.7 is with tcmalloc. ``version`` is the package's, else empty."""

    kind: str
    path: str
    version: str

    def __str__(self) -> str:
        return " ".join(part for part in (self.kind, self.version, self.path) if part)


SYSTEM = AllocatorLibrary("system", "", "")


async def find_allocator(target: Target, kind: str) -> AllocatorLibrary:
    """The library of an allocator on the target; raises NotReady with the package that brings it."""
    if kind == "system":
        return SYSTEM
    sonames, tool = _LIBRARIES[kind]
    # The dynamic linker's cache knows every folder of this host; the list helps where it is stale.
    cache = await target.run(["ldconfig", "-p"], check=False)
    for soname in sonames:
        cached = re.findall(rf"^\s*{re.escape(soname)} .*=> (/\S+)$", cache.text, re.MULTILINE)
        for path in [*cached, *(f"{folder}/{soname}" for folder in _FOLDERS)]:
            if await target.exists(path):
                return await _describe(target, kind, path)
    raise NotReady(
        f"{kind} is not installed: no {' or '.join(sonames)}",
        place=target.name,
        hint=f"apt-get install -y {tool.package}",
    )


async def _describe(target: Target, kind: str, path: str) -> AllocatorLibrary:
    real = (await target.run(["readlink", "-f", path])).text.strip()
    script = (
        'package=$(dpkg-query -S "$0" 2>/dev/null | head -1 | cut -d: -f1) && [ -n "$package" ] '
        "&& dpkg-query -W -f '${Version}' \"$package\" || rpm -qf --qf '%{VERSION}-%{RELEASE}' \"$0\" 2>/dev/null"
    )
    version = await target.run(["sh", "-c", script, real], check=False)
    return AllocatorLibrary(kind, real, version.text.strip() if version.exit_code == 0 else "")


def mapped_allocators(maps: str) -> dict[str, str]:
    """Kind -> library, of the allocators in the text of ``/proc/PID/maps``; empty for the C library's own."""
    return {kind: path for path, kind in _MAPPED.findall(maps)}


async def linked_allocators(target: Target, server: Sequence[str]) -> set[str]:
    """The allocators that a server's program is linked with. ``server`` is the command that starts it."""
    *prefix, program = server
    # The dynamic linker lists what it would load, and starts nothing (ld.so(8)); a static program ignores it.
    listing = ["env", "-u", "LD_PRELOAD", "LD_TRACE_LOADED_OBJECTS=1", program, "--version"]
    found = await target.run([*prefix, *listing], check=False)
    return set(_LINKED.findall(found.text))
