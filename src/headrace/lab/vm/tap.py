"""Starts QEMU with the queues of a tap device in a separate network namespace.

A standalone program that only needs the standard library: ``tap.py NAMESPACE INTERFACE QUEUES qemu ...``. QEMU
itself stays in the original namespace, where its other card forwards ssh; only the open queues belong to the other
one.
"""

import ctypes
import fcntl
import os
import struct
import sys

CLONE_NEWNET = 0x40000000
# linux/if_tun.h
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_MULTI_QUEUE, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x0100, 0x1000, 0x4000
PLACEHOLDER = "@TAP@"


def enter(path: str) -> None:
    """Enter a network namespace; os.setns is new in Python 3.12."""
    descriptor = os.open(path, os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    os.close(descriptor)


def queues(interface: str, number: int) -> list[int]:
    """The open queues of a tap device, which exist while they are held open."""
    request = struct.pack("16sH", interface.encode(), IFF_TAP | IFF_MULTI_QUEUE | IFF_NO_PI | IFF_VNET_HDR)
    found = []
    for _ in range(number):
        descriptor = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(descriptor, TUNSETIFF, request.ljust(40, b"\0"))
        os.set_inheritable(descriptor, True)
        found.append(descriptor)
    return found


def main(namespace: str, interface: str, number: str, *argv: str) -> None:
    """Become QEMU."""
    home = f"/proc/{os.getpid()}/ns/net"
    back = os.open(home, os.O_RDONLY)
    enter(f"/run/netns/{namespace}")
    open_queues = ":".join(map(str, queues(interface, int(number))))
    enter(f"/proc/self/fd/{back}")
    os.close(back)
    words = [word.replace(PLACEHOLDER, open_queues) for word in argv]
    os.execvp(words[0], words)


if __name__ == "__main__":
    main(*sys.argv[1:])
