"""A rollout with nothing changed: the same pairs show how often the judge errs on this fleet.

Pairs of blocks of one host; of a plan that takes a restart, pairs of hosts in the same blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.base.errors import HeadraceError, Refused
from headrace.fleet.runner import Turns
from headrace.rollout import hands
from headrace.rollout.book import Book
from headrace.rollout.guards import Window, tripped
from headrace.rollout.judge import Pair
from headrace.rollout.paired import Moment
from headrace.rollout.pairs import both, site_of
from headrace.rollout.plan import Member


@dataclass
class Dry:
    """``tripped``: blocks that a fixed limit would have stopped. ``moments``: of pairs of hosts."""

    pairs: list[Pair] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
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

    turns = Turns(*plan.fan_out)

    async def one(members: Sequence[Member]) -> None:
        async with turns.of(*(member.host.spec for member in members)):
            await in_turn(members)

    async def in_turn(members: Sequence[Member]) -> None:
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
    timing, limits = book.plan.rules.timing, book.plan.rules.limits
    windows = []
    async with hands.visit(book, member, site_of(book.plan)) as site:
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


async def measure_pairs(book: Book, rounds: int, tell: Callable[[str], None]) -> Dry:
    """So many blocks of each pair of hosts after as many as the plan has before a restart; nothing is restarted.

    One pair of a replication group at a time. Raises Refused while a host of the plan is changed.
    """
    plan, state, dry = book.plan, book.state, Dry()
    assert plan.restart is not None
    if busy := sorted({*state.open, *state.out}):
        raise Refused(
            f"{', '.join(busy)}: changed, or out of service",
            place=plan.id,
            hint=f"headrace rollout abort {plan.id} restores all hosts",
        )
    groups: dict[str, list[tuple[str, str]]] = {}
    for pair in dict.fromkeys(pair for stage in plan.stages for pair in stage.pairs):
        groups.setdefault(plan.members[pair[0]].group, []).append(pair)
    blocks = plan.restart.before + rounds

    turns = Turns(*plan.fan_out)

    async def one(pairs: Sequence[tuple[str, str]]) -> None:
        async with turns.of(*(plan.members[name].host.spec for pair in pairs for name in pair)):
            for pair in pairs:
                try:
                    await _moments(book, pair, blocks, dry, tell)
                except HeadraceError as error:
                    tell(f"{pair[0]} and {pair[1]}: {error}")
                    dry.lost[pair[0]] = error.message

    await asyncio.gather(*(one(pairs) for pairs in groups.values()))
    return dry


async def _moments(
    book: Book, pair: tuple[str, str], blocks: int, dry: Dry, tell: Callable[[str], None]
) -> None:
    plan = book.plan
    usual: tuple[list[Window], list[Window]] = ([], [])
    first, second = (plan.members[name] for name in pair)
    async with hands.visit(book, first) as site, hands.visit(book, second) as other:
        await site.check()
        await other.check()
        for number in range(1, blocks + 1):
            windows = await both(site.watch(plan.block_s, []), other.watch(plan.block_s, []))
            for name, window, past in zip(pair, windows, usual, strict=True):
                why = tripped(window, past, plan.rules.limits) if past else ""
                dry.tripped += [f"{name}: {why}"] if why else []
                past.append(window)
            dry.blocks += 1
            dry.moments.append(Moment(pair[0], windows[0].block, windows[1].block, is_after=False))
            tell(f"{pair[0]} and {pair[1]}: block {number} of {blocks}")
