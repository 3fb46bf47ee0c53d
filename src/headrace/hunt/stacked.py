"""Saturated block devices that are one stack: paths of a volume, members of an array, a mapping and its disk.

Each layer counts the same requests again, so that one full drive looks like several full devices.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.host.facts import HostFacts
from headrace.host.window import Window

#: Names of drives: what has another name is made of others.
DRIVE = re.compile(r"(sd|hd|vd|xvd|dasd)[a-z]+|nvme\d+n\d+|(cciss|ida)!c\d+d\d+|(mmcblk|pmem|rbd|nbd)\d+")
#: A layer's bytes are those of what is below it, but for what was in flight at both ends.
SAME = 0.02
#: Drives that are tried as what is below a layer whose members no fact names, and how many of these at once.
MOST_DRIVES, MOST_TOGETHER = 16, 4


class Use(Protocol):
    @property
    def instance(self) -> str: ...


@dataclass(frozen=True)
class Stack:
    """``named`` is the layer to speak of: the one drive at the bottom, or what is above several. ``above`` and
    ``below`` it are others that are saturated with it; ``beside``: members of the same array."""

    named: str
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.named, *self.above, *self.below, *self.beside)

    @property
    def said(self) -> str:
        """A sentence on the others; empty without any."""
        parts = [
            f"{' and '.join(names)} {where}"
            for names, where in (
                (self.above, "above it"),
                (self.below, "below it"),
                (self.beside, "in the same array"),
            )
            if names
        ]
        several = len(self.above + self.below + self.beside) > 1
        return (
            f" {' and '.join(parts)} {'are' if several else 'is'} saturated with it: one stack."
            if parts
            else ""
        )


def stacks(
    window: Window, facts: HostFacts, full: Sequence[Use], own: Collection[str] | None = None
) -> list[Stack]:
    """Saturated devices by stack, in the order of ``full``: the worst first; ``own`` are the server's."""
    names = sorted((use.instance for use in full), key=lambda name: own is not None and name not in own)
    below = {name: _below(window, facts, name) for name in {*names, *_layers(facts)}}
    listed: list[Stack] = []
    done: set[str] = set()
    for name in names:
        if name not in done:
            group = _group(name, names, below)
            done |= set(group)
            listed.append(_stack(group, below))
    return listed


def _layers(facts: HostFacts) -> Iterator[str]:
    return (str(record["name"]) for record in facts.block_devices if record.get("slaves"))


def _group(name: str, names: Sequence[str], below: Mapping[str, frozenset[str]]) -> list[str]:
    """Those that are above or below it, or share a layer above with it, and so on."""
    group = [name]
    for each in group:
        for other in names:
            is_near = other in below[each] or each in below[other]
            is_near = is_near or any(each in members and other in members for members in below.values())
            if is_near and other not in group:
                group.append(other)
    return sorted(group, key=names.index)


def _stack(group: Sequence[str], below: Mapping[str, frozenset[str]]) -> Stack:
    bottoms = [name for name in group if not any(other in below[name] for other in group)]
    tops = [name for name in group if not any(name in below[other] for other in group)]
    named = bottoms[0] if len(bottoms) == 1 else tops[0]
    others = [name for name in group if name != named]
    above = tuple(name for name in others if named in below[name])
    beneath = tuple(name for name in others if name in below[named])
    return Stack(named, above, beneath, tuple(name for name in others if name not in above + beneath))


def _below(window: Window, facts: HostFacts, name: str) -> frozenset[str]:
    record = facts.block_device(name)
    if record is not None:
        direct = [str(slave) for slave in record.get("slaves") or ()]
        return frozenset(direct).union(
            *({disk} for slave in direct for disk in facts.disks_below(slave)),
            *(_below(window, facts, slave) for slave in direct if facts.block_device(slave) is not None),
        )
    return frozenset() if DRIVE.fullmatch(name) else _same_bytes(window, name)


def _same_bytes(window: Window, name: str) -> frozenset[str]:
    """The drives that together moved a layer's bytes, where only one set of them did: a dump rarely has the links
    between devices. A mirror writes all bytes to each."""
    wanted = _bytes(window, name)
    drives = [each for each in window.labels("disk", "sectors_read") if DRIVE.fullmatch(each)]
    if sum(wanted) <= 0 or len(drives) > MOST_DRIVES:
        return frozenset()
    each = {drive: _bytes(window, drive) for drive in drives if sum(_bytes(window, drive)) > 0}
    fits = []
    for count in range(1, min(len(each), MOST_TOGETHER) + 1):
        for drives_tried in itertools.combinations(each, count):
            read, written = (sum(each[drive][kind] for drive in drives_tried) for kind in (0, 1))
            copies = {1, count}
            is_read = abs(read - wanted[0]) <= SAME * sum(wanted)
            if is_read and any(abs(written - n * wanted[1]) <= n * SAME * sum(wanted) for n in copies):
                fits.append(frozenset(drives_tried))
    return fits[0] if len(fits) == 1 else frozenset()


def _bytes(window: Window, name: str) -> tuple[float, float]:
    read, written = (window.rate("disk", f"sectors_{kind}", name) or 0.0 for kind in ("read", "written"))
    return read, written
