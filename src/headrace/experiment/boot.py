"""What a host boots, and the identity of a boot."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from headrace.base.errors import TreatmentFailed
from headrace.host.target import Target

Tell = Callable[[str], None]

#: How kernels since 5.14 name arguments of which they read none (``print_unknown_bootoptions`` in init/main.c).
UNKNOWN = re.compile(r'Unknown kernel command line parameters "(.*)", will be passed to user space')


@dataclass(frozen=True)
class Boot:
    """A kernel as a plan names it, and arguments of its command line."""

    kernel: str
    arguments: str = ""

    def __str__(self) -> str:
        return f"{self.kernel} with {self.arguments}" if self.arguments else self.kernel


def is_kernel(wanted: str, release: str) -> bool:
    """Whether ``uname -r`` matches the plan: a series (6.1) or a release. A path cannot be compared."""
    if "/" in wanted:
        return True
    return release == wanted or bool(re.match(re.escape(wanted) + r"[.+~-]", release))


async def check_arguments_of(target: Target, boot: Boot, tell: Tell) -> None:
    """Raise TreatmentFailed for an argument that this kernel does not know: it boots with anything.

    Arguments of modules have a dot. One that no loaded module shows is told: it may have no effect.
    """
    asked = boot.arguments.split()
    if not asked:
        return
    given = (await target.read("/proc/cmdline")).decode("utf-8", "replace").split()
    log = await target.run(["dmesg"], check=False)
    match = UNKNOWN.search(log.stdout.decode("utf-8", "replace"))
    unknown = set(match[1].split()) if match else set()
    if lost := [word for word in asked if word not in given or word in unknown]:
        raise TreatmentFailed(f"kernel {boot.kernel} does not know {', '.join(lost)}", place=target.name)
    for word in asked:
        module, dot, name = word.partition("=")[0].partition(".")
        shown = f"/sys/module/{module.replace('-', '_')}/parameters/{name.replace('-', '_')}"
        if dot and (await target.run(["sh", "-c", f"[ -e {shlex.quote(shown)} ]"], check=False)).exit_code:
            tell(f"{word}: {shown} is not there, so it may have had no effect")


async def boot_id(target: Target) -> str:
    """The boot's id: different after every boot."""
    return (await target.read("/proc/sys/kernel/random/boot_id")).decode("ascii", "replace").strip()
