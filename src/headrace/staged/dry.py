"""A rollout with nothing changed: the same pairs of blocks show how often the judge errs on this fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.analysis.guards import Window, tripped
from headrace.analysis.judge import Pair
from headrace.errors import HeadraceError
from headrace.staged import hands
from headrace.staged.book import Book
from headrace.staged.plan import Member


@dataclass
class Dry:
    """``tripped``: blocks that a fixed limit would have stopped."""

    pairs: list[Pair] = field(default_factory=list)
    blocks: int = 0
    tripped: list[str] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)


async def measure(book: Book, rounds: int, tell: Callable[[str], None]) -> Dry:
    """``rounds`` pairs of blocks on each host that serves, one host of a group at a time."""
    plan, dry = book.plan, Dry()
    names = [name for stage in plan.stages if stage.is_judged for name in stage.hosts]
    groups: dict[str, list[Member]] = {}
    for name in names:
        groups.setdefault(plan.members[name].group, []).append(plan.members[name])

    async def one(members: Sequence[Member]) -> None:
        usual: dict[str, list[Window]] = {}
        for _ in range(rounds):
            for member in members:
                try:
                    await _pair(book, member, usual.setdefault(member.name, []), dry)
                    tell(f"{member.name}: pair {len(dry.pairs)} of {rounds * len(names)}")
                except HeadraceError as error:
                    tell(f"{member.name}: {error}")
                    dry.lost[member.name] = error.message

    await asyncio.gather(*(one(members) for members in groups.values()))
    return dry


async def _pair(book: Book, member: Member, usual: list[Window], dry: Dry) -> None:
    timing, limits = book.plan.rules.timing, book.plan.rules.limits.limits
    windows = []
    async with hands.visit(book, member) as site:
        await site.check()
        for _ in range(2):
            await site.watch(timing.wash_s, [])
            windows.append(await site.watch(timing.block_s, []))
    for window in windows:
        dry.blocks += 1
        why = tripped(window, usual, limits) if usual else ""
        if why:
            dry.tripped.append(f"{member.name}: {why}")
    usual += windows
    dry.pairs.append(Pair(member.name, windows[0].block, windows[1].block))
