"""Modelled hosts of a rollout: what each has, answers and loses, and a controller that can be killed at a line of
its log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import DiskFull, TargetError
from headrace.rollout import carrier, hands
from headrace.rollout.book import Book
from headrace.rollout.carrier import Carrier
from headrace.rollout.guards import Window
from headrace.rollout.hands import Moved, Site, TrippedLimit
from headrace.rollout.plan import Member, Plan, make
from headrace.rollout.rules import JudgeRule, Rules, StageRule
from tests.unit.test_staged import SETTINGS, topology


class Killed(BaseException):
    """As by SIGKILL: nothing that follows in this process reaches a host or a disk."""


@dataclass
class World:
    """``open`` and ``kept``: what each host's journal knows. ``effect``: of the change on time per query."""

    plan: Plan
    open: dict[str, set[str]] = field(default_factory=dict)
    kept: dict[str, set[str]] = field(default_factory=dict)
    effect: float = 1.0
    trips: str = ""
    stays_slow: bool = False
    has_tripped: bool = False
    dies_with_it: bool = False
    unreachable: set[str] = field(default_factory=set)
    #: Hosts whose SSH answers and whose server does not, and those with a full disk.
    down: set[str] = field(default_factory=set)
    full: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    idle: set[str] = field(default_factory=set)
    #: Whose samples stop after a tenth of a block, as often as it says.
    mute: dict[str, int] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    is_dead: bool = False
    notes: int = 0
    kill_at: int = 0
    kill_before: bool = False
    blocks: int = 0

    def must_live(self) -> None:
        if self.is_dead:
            raise Killed

    def passes(self) -> None:
        """The controller is gone, and every deadline passes."""
        self.open.clear()
        self.is_dead = False
        self.kill_at = 0

    def is_on(self, name: str) -> bool:
        return bool(self.open.get(name) or self.kept.get(name))

    @property
    def on(self) -> set[str]:
        return {name for name in self.plan.members if self.is_on(name)}


@dataclass
class Modelled:
    """Stands for ``hands.Site``."""

    world: World
    book: Book
    member: Member

    async def check(self) -> None:
        self.world.must_live()

    async def watch(self, seconds: float, usual: Sequence[Window], change: str = "") -> Window:
        await asyncio.sleep(0)
        self.world.must_live()
        world, name = self.world, self.member.name
        if change and world.dies_with_it:
            raise TargetError("no sample for 20 s", place=name)
        if change and name == world.trips:
            world.has_tripped = True
            raise TrippedLimit("it trips")
        slow = 10.0 if world.stays_slow and world.has_tripped and name == world.trips else 1.0
        world.blocks += 1
        if world.mute.get(name):
            world.mute[name] -= 1
            return Window(seconds / 10, 0.0, 0.0)
        if name in world.idle:
            return Window(seconds, 0.0, 0.0)
        # No two blocks are alike.
        noise = 1 + 0.01 * (world.blocks * 7 % 5)
        factor = (world.effect if world.is_on(name) else 1.0) * noise * slow
        return Window(seconds, 1000 * seconds, factor * seconds)

    async def warm(self) -> None:
        """Nothing was restarted."""

    async def must_be_ours(self) -> None:
        self.world.must_live()
        if self.member.name in self.world.foreign:
            raise TargetError("changes of apply/other are open there", place=self.member.name)

    async def must_be_the_same(self) -> None:
        if self.member.name in self.world.moved:
            raise Moved("its source was changed", place=self.member.name)

    async def apply(self, *, lasting: str = "") -> str:
        change = f"{self.book.plan.id}-{len(self.book.events)}"
        self.book.note("applying", host=self.member.name, change=change)
        self.world.must_live()
        if self.member.name in self.world.full:
            raise DiskFull("No space left on device", place=self.member.name)
        others = [m.name for m in self.book.plan.members.values() if m.group == self.member.group]
        assert not any(self.world.open.get(name) for name in others), "two of one group at a time"
        self.world.open.setdefault(self.member.name, set()).add(change)
        return change

    async def keep(self, change: str) -> None:
        self.world.must_live()
        self.world.open.pop(self.member.name)
        self.world.kept.setdefault(self.member.name, set()).add(change)
        self.book.note("kept", host=self.member.name, change=change)

    async def undo(self, change: str) -> None:
        self.world.must_live()
        for held in (self.world.open, self.world.kept):
            held.get(self.member.name, set()).discard(change)
            if not held.get(self.member.name):
                held.pop(self.member.name, None)
        self.book.note("undone", host=self.member.name, change=change)


def modelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Hosts in two groups; what a rollout asks and does reaches them instead of real ones."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    rules = Rules(stage=stages(), judge=JudgeRule(looks=(4, 8), margin=0.1))
    world = World(make(SETTINGS, [*topology("a", 3), *topology("b", 2)], rules, 1))
    noted = Book.note

    def note(self: Book, kind: str, **more: Any) -> None:
        world.must_live()
        world.notes += 1
        is_last = world.notes == world.kill_at
        if not (is_last and world.kill_before):
            noted(self, kind, **more)
        if is_last:
            world.is_dead = True
            raise Killed

    @contextlib.asynccontextmanager
    async def visit(book: Book, member: Member, kind: type[Site]) -> AsyncIterator[Modelled]:
        world.must_live()
        if member.name in world.unreachable:
            raise TargetError("no route", place=member.name)
        site = Modelled(world, book, member)
        for change in list(book.state.open.get(member.name, ())):
            await site.undo(change)
        yield site

    async def restore(book: Book, member: Member, changes: Sequence[str], kind: type[Site]) -> None:
        if member.name in world.unreachable:
            raise TargetError("no route", place=member.name)
        for change in reversed(changes):
            await Modelled(world, book, member).undo(change)

    monkeypatch.setattr(Book, "note", note)
    monkeypatch.setattr(hands, "visit", visit)
    monkeypatch.setattr(hands, "restore", restore)
    ask(world, monkeypatch)
    monkeypatch.setattr(carrier, "PAUSE_S", 0.0)
    return world


def ask(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is only asked of hosts."""

    async def behind_there(book: Book, member: Member) -> str:
        if member.name in world.unreachable:
            raise TargetError("no route", place=member.name)
        return ""

    async def must_answer(book: Book, member: Member) -> None:
        if member.name in world.down:
            raise TargetError("its server does not answer", place=member.name)

    async def is_reached(book: Book, member: Member) -> bool:
        return member.name not in world.unreachable

    monkeypatch.setattr(hands, "must_answer", must_answer)
    monkeypatch.setattr(hands, "is_reached", is_reached)
    monkeypatch.setattr(hands, "behind_there", behind_there)


def stages() -> tuple[StageRule, ...]:
    return (StageRule(name="one", take="one"), StageRule(name="replicas", take="replicas"))


def go(book: Book) -> Book:
    with book.hold():
        asyncio.run(Carrier(book).go())
    return Book.open(book.plan.id)


REPLICAS = {"ar1", "ar2", "ar3", "br1", "br2"}


def give_up(book: Book, name: str) -> None:
    with book.hold():
        asyncio.run(Carrier(book).give_up(name, "ann"))


def abort(book: Book) -> None:
    with book.hold():
        asyncio.run(Carrier(book).abort("a person said so"))
