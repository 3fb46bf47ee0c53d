"""Knobs of the machine itself. A new value needs a boot, so such a factor is always hard to change."""

from __future__ import annotations

from headrace.knobs.knob import Cost, Kind, Knob

KNOBS = (
    Knob(
        "machine.kernel",
        Kind.TEXT,
        Cost.REBOOT,
        "The kernel: a series of Debian's packages (6.1, 6.12), a release as `uname -r` prints it, or a path. "
        "Needs a machine that may reboot: see kernels.md.",
        "headrace: Kernels as a factor",
    ),
    Knob(
        "machine.arguments",
        Kind.TEXT,
        Cost.REBOOT,
        "Arguments of the kernel's command line, separated by blanks: mitigations=off, preempt=full, "
        "transparent_hugepage=never. Only in a virtual machine; a kernel that does not know one fails its trials.",
        "kernel: admin-guide/kernel-parameters.rst",
    ),
)
