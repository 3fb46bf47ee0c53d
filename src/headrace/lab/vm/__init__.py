"""Virtual machines: Debian under QEMU with a chosen kernel, CPUs, memory, disks and network queues.

``up`` gives a machine that answers over ssh; it outlives the process that started it, until ``down``. KVM is used
if available, otherwise software emulation: then only the direction of a result can be trusted, never its size.
"""

from headrace.lab.vm.cache import Tell
from headrace.lab.vm.machine import Vm, down, find, running, up
from headrace.lab.vm.spec import DiskSpec, VmSpec
from headrace.lab.vm.state import Status, statuses

__all__ = [
    "DiskSpec",
    "Status",
    "Tell",
    "Vm",
    "VmSpec",
    "down",
    "find",
    "running",
    "statuses",
    "up",
]
