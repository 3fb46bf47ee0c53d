"""The identity of a host's boot, and its kernel."""

from __future__ import annotations

import re
from collections.abc import Callable

from headrace.host.target import Target

Tell = Callable[[str], None]


def is_kernel(wanted: str, release: str) -> bool:
    """Whether ``uname -r`` matches the plan: a series (6.1) or a release. A path cannot be compared."""
    if "/" in wanted:
        return True
    return release == wanted or bool(re.match(re.escape(wanted) + r"[.+~-]", release))


async def boot_id(target: Target) -> str:
    """The boot's id: different after every boot."""
    return (await target.read("/proc/sys/kernel/random/boot_id")).decode("ascii", "replace").strip()
