"""Who may have a connection: strangers have a budget per address, those who are logged in another one.

Whoever can reach the port can open connections and be silent. These must cost neither the collection, which needs
descriptors, nor those who are logged in. So a new connection always gets in, and where there is no room the oldest
one that has asked for nothing, of the address that has most of them, goes for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

#: Connections without a login of one address, and of all.
MOST_OF_ADDRESS, MOST = 64, 256
#: Of those who are logged in.
MOST_KNOWN = 512
#: Those that have asked for nothing yet, which cost only a descriptor. At a thousand new ones a second of one
#: address each still has seconds for its request.
MOST_WAITING = 4096
#: The share of all descriptors that each kind of connections may take, and that those may which have asked for
#: nothing: hosts, files and the store have the rest.
SHARE, SHARE_WAITING = 4, 8
#: What is asked of the kernel if its own limit allows it.
DESCRIPTORS = 65536
#: The same fault is logged this often.
LOGGED_EVERY_S = 60.0

log = logging.getLogger("headrace.web")


class Visitor(Protocol):
    """A connection. ``is_idle``: nothing that it asked for is being answered."""

    @property
    def is_idle(self) -> bool: ...

    def leave(self) -> None:
        """Close it now."""


class Room:
    """The connections of one server, by address, the oldest first. Used only in the server's loop."""

    @staticmethod
    def of_waiting(descriptors: int) -> Room:
        """For connections that have asked for nothing yet."""
        room = Room(descriptors)
        room.most = min(MOST_WAITING, descriptors // SHARE_WAITING) if descriptors else MOST
        room.most_of_address = max(room.most * 3 // 4, 1)
        return room

    def __init__(self, descriptors: int = 0) -> None:
        """``descriptors``: how many this process may have; 0: unknown."""
        most = descriptors // SHARE if descriptors else MOST
        self.most, self.most_known = min(MOST, most), min(MOST_KNOWN, most)
        self.most_of_address = min(MOST_OF_ADDRESS, max(self.most // 2, 1))
        self._strangers: dict[str, OrderedDict[Visitor, None]] = {}
        self._known: OrderedDict[Visitor, None] = OrderedDict()
        self.turned_away = 0

    @property
    def strangers(self) -> int:
        return sum(map(len, self._strangers.values()))

    def enter(self, visitor: Visitor, address: str) -> None:
        self._strangers.setdefault(address, OrderedDict())[visitor] = None
        if len(self._strangers[address]) > self.most_of_address:
            self._turn_away(address)
        elif self.strangers > self.most:
            self._turn_away(max(self._strangers, key=lambda each: len(self._strangers[each])))

    def recognise(self, visitor: Visitor, address: str) -> None:
        """It has shown a session. Those of one person may be many, so they have a limit as well."""
        if visitor in self._known:
            self._known.move_to_end(visitor)
            return
        self.forget(visitor, address)
        self._known[visitor] = None
        if len(self._known) > self.most_known:
            self._close(self._known, next(iter(self._known)))

    def forget(self, visitor: Visitor, address: str) -> None:
        self._known.pop(visitor, None)
        if (of_address := self._strangers.get(address)) is not None:
            of_address.pop(visitor, None)
            if not of_address:
                del self._strangers[address]

    def _turn_away(self, address: str) -> None:
        of_address = self._strangers[address]
        # One that is being answered only if there are no others.
        self._close(of_address, next((each for each in of_address if each.is_idle), next(iter(of_address))))
        if not of_address:
            del self._strangers[address]

    def _close(self, among: OrderedDict[Visitor, None], visitor: Visitor) -> None:
        del among[visitor]
        self.turned_away += 1
        visitor.leave()


def raise_descriptors() -> int:
    """Ask for more descriptors than systemd's default of 1024; how many there may be now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def few_words(
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """A handler of a loop's errors that logs the same one once per ``LOGGED_EVERY_S``: whoever causes one can
    cause a million, and fill the disk."""
    told: dict[str, tuple[float, int]] = {}

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        what = f"{context.get('message', '')}: {type(error).__name__}"
        at, more = told.get(what, (-LOGGED_EVERY_S, 0))
        if clock() - at < LOGGED_EVERY_S:
            told[what] = at, more + 1
            return
        if len(told) > 100:
            told.clear()
        told[what] = clock(), 0
        log.error("%s%s", what, f" ({more:,} more since the last line)" if more else "", exc_info=error)

    return handle
