"""Assigns blocks to machines.

It has no I/O and no clock, so that every order of failures can be tested. A block belongs to one machine, because
trials of different machines cannot be paired. So a block that a machine started waits for that machine while there
is other work; only then another machine runs the whole block, and its earlier trials are set aside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

#: A trial in which this many machines were lost is not repeated: it may be the cause.
MOST_LOSSES = 2


@dataclass(frozen=True)
class Assignment:
    """The trials of a block that a machine has to run.

    Trials in ``aside`` were measured on another machine and are moved away first. ``hopeless`` ones are not run
    but recorded as invalid, with the errors of the machines lost in them.
    """

    block: int
    numbers: tuple[int, ...]
    aside: tuple[int, ...] = ()
    hopeless: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


class Ledger:
    """``blocks`` maps each block to its trials, in order; ``done`` maps trials on disk to their machine.

    Trials in ``again`` are on disk and have to be repeated.
    """

    def __init__(
        self, blocks: Mapping[int, Sequence[int]], done: Mapping[int, str], again: Collection[int] = ()
    ):
        self._trials = {block: tuple(numbers) for block, numbers in blocks.items()}
        self._block_of = {number: block for block, numbers in blocks.items() for number in numbers}
        self._on_disk: dict[int, set[int]] = {block: set() for block in blocks}
        self._left: dict[int, set[int]] = {block: set(numbers) for block, numbers in blocks.items()}
        self._owner: dict[int, str] = {}
        self._running: dict[str, int] = {}
        self._present: set[str] = set()
        self._losses: dict[int, list[str]] = {}
        for number, machine in done.items():
            block = self._block_of[number]
            # A block with trials of two machines (folders were moved by hand) belongs to none and is run again.
            other = self._owner.setdefault(block, machine) != machine
            self._owner[block] = "" if other else machine
            self._on_disk[block].add(number)
            if number not in again:
                self._left[block].discard(number)
        for block, owner in self._owner.items():
            if not owner:
                self._left[block] = set(self._trials[block])

    @property
    def left(self) -> int:
        """How many trials are not measured yet."""
        return sum(map(len, self._left.values()))

    @property
    def is_over(self) -> bool:
        return not self.left

    @property
    def present(self) -> int:
        """The number of reachable machines."""
        return len(self._present)

    def back(self, machine: str) -> None:
        """The machine is reachable (again)."""
        self._present.add(machine)

    def lost(self, machine: str, number: int | None = None, why: str = "") -> None:
        """The machine is lost and gives up its block; ``number`` is the trial in which it was lost."""
        self._present.discard(machine)
        self._running.pop(machine, None)
        if number is not None:
            self._losses.setdefault(number, []).append(f"{machine}: {why}")

    def take(self, machine: str) -> Assignment | None:
        """The machine's next assignment; None while others run all remaining blocks."""
        assert machine in self._present
        assert machine not in self._running
        block = self._next(machine)
        if block is None:
            return None
        aside: tuple[int, ...] = ()
        if self._owner.get(block, machine) != machine:
            aside = tuple(sorted(self._on_disk[block]))
            self._on_disk[block].clear()
            self._left[block] = set(self._trials[block])
        self._owner[block] = machine
        self._running[machine] = block
        lost = {n: tuple(self._losses.get(n, ())) for n in self._trials[block] if n in self._left[block]}
        hopeless = {n: words for n, words in lost.items() if len(words) >= MOST_LOSSES}
        return Assignment(block, tuple(n for n in lost if n not in hopeless), aside, hopeless)

    def _next(self, machine: str) -> int | None:
        busy = set(self._running.values())
        open_blocks = [block for block, left in self._left.items() if left and block not in busy]
        own = [b for b in open_blocks if self._owner.get(b) == machine]
        fresh = [b for b in open_blocks if not self._on_disk[b]]
        # Of the blocks started by lost machines, the cheapest to run again.
        begun = sorted(
            (b for b in open_blocks if self._owner.get(b) not in self._present),
            key=lambda b: len(self._on_disk[b]),
        )
        begun_here = [b for b in own if self._on_disk[b]]
        return next(iter([*begun_here, *fresh, *begun]), None)

    def measured(self, machine: str, number: int) -> None:
        """A trial of the machine's block is on disk."""
        block = self._block_of[number]
        if self._running.get(machine) != block:
            raise ValueError(f"trial {number} belongs to block {block}, which {machine} is not running")
        self._on_disk[block].add(number)
        self._left[block].discard(number)

    def ended(self, machine: str) -> None:
        """The machine has finished its assignment, or part of it."""
        self._running.pop(machine, None)
