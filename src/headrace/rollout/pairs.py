"""Carries out a plan whose change takes a restart, by pairs of equal hosts of which one is changed."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Sequence
from dataclasses import asdict
from functools import partial

from headrace.base.counted import counted
from headrace.base.errors import HeadraceError, Held, TargetError
from headrace.rollout import hands
from headrace.rollout.book import Book
from headrace.rollout.caches import CacheSite
from headrace.rollout.carrier import ASK_S, Carrier, Paused, Tell, at_any_rate
from headrace.rollout.guards import Window, tripped
from headrace.rollout.hands import Moved, Site
from headrace.rollout.judge import TIME, Outcome
from headrace.rollout.plan import Member, Plan, Stage
from headrace.rollout.service import RestartSite

#: Blocks before a restart that are tried for each that must have data.
MOST_TRIES = 4


class PairCarrier(Carrier):
    """The hosts of a group are restarted one after the other, also when all is taken back."""

    site = RestartSite
    #: Why a block of a pair had no data, the last one.
    _unmeasured = ""

    def _side_by_side(self, names: Sequence[str]) -> list[list[str]]:
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(self.plan.members[name].group, []).append(name)
        return list(groups.values())

    def _may_be_away(self, peer: Member) -> bool:
        # One that cannot be asked may be down, and then this one must not leave, too.
        return False

    async def _applied(self, site: Site) -> str:
        """Immediately before it leaves: the checks are as old as the blocks before."""
        name, group = site.member.name, site.member.group
        self._peers.clear()
        await self._peers_must_not_lag(site.member)
        for other in sorted(self.book.state.out - {name}):
            if self.plan.members[other].group == group:
                raise HeadraceError(f"{other} of the same group is out of service", place=name)
        await site.check()
        try:
            return await super()._applied(site)
        except HeadraceError as error:
            if name in self.book.state.out:
                raise Paused(
                    f"{name} is out of service, and may still be changed: {error.message}"
                ) from error
            raise

    async def _try_group(self, stage: Stage, members: Sequence[Member]) -> None:
        """Its pair, if it has one: the hosts of the others are changed once the stage has passed."""
        partners = dict(stage.pairs)
        for member in members:
            while member.name in partners and self._next(stage, [member]):
                partner = self.plan.members[partners[member.name]]
                await self._attempt(member, partial(self._compare, stage, partner))

    async def _compare(self, stage: Stage, partner: Member, site: Site) -> None:
        async with hands.visit(self.book, partner, self.site) as other:
            await other.check()
            await self._side_before(stage, site, other)
            # These blocks take hours: by now the approval may have expired, or the other pairs have decided.
            if self._next(stage, [site.member]) is None:
                return
            change = await self._applied(site)
            is_kept = False
            try:
                async with self._on_trial(site, change):
                    while self._next(stage, [site.member]):
                        await site.leased([change], self._still_fit(site, other))
                        await self._moment(stage, site, other, change)
                    if self.judged(stage).outcome is Outcome.PASS:
                        await self._soak(site, change)
                        is_kept = True
            finally:
                if not is_kept:
                    await at_any_rate(site, change)

    async def _still_fit(self, site: Site, other: Site) -> None:
        """These blocks take hours, in which either may be promoted or replaced."""
        await site.as_planned()
        try:
            other.values_must_fit(await other.as_planned())
        except Moved as error:
            raise Moved(
                f"its partner {other.member.name}: {error.message}", place=site.member.name
            ) from error
        await self._peers_must_not_lag(site.member)

    async def _side_before(self, stage: Stage, site: Site, other: Site) -> None:
        rule = self.plan.restart
        assert rule is not None
        await site.warm()
        tries = 0
        while (count := self._before_count(stage, site)) < rule.before:
            # No server is restarted for a comparison that cannot come about.
            if tries >= MOST_TRIES * rule.before:
                raise Moved(
                    f"only {count} of {counted(tries, 'block')} before the restart had data: {self._unmeasured}",
                    place=site.member.name,
                )
            tries += 1
            await self._moment(stage, site, other)

    def _before_count(self, stage: Stage, site: Site) -> int:
        """Blocks before its restart that can be compared."""
        moments = self.book.state.moments.get(stage.name, ())
        return sum(
            each.host == site.member.name and not each.is_after and each.gaps[TIME] is not None
            for each in moments
        )

    async def _moment(self, stage: Stage, site: Site, other: Site, change: str = "") -> None:
        """One block of both hosts; troubles of the partner, or before the change, are not the change's."""
        names, limits = (site.member.name, other.member.name), self.plan.rules.limits
        first, second = await both(
            self._measured(site, self.plan.block_s, self._usual(site), change),
            self._measured(other, self.plan.block_s),
        )
        if why := tripped(second, self._usual(other), limits):
            raise Moved(f"its partner {names[1]} has problems of its own: {why}", place=names[0])
        if not change and (why := tripped(first, self._usual(site), limits)):
            raise Moved(f"{why}, before anything was changed", place=names[0])
        for name, window in zip(names, (first, second), strict=True):
            if not change and (why := self._why_idle(window)):
                # Without times before there is nothing to compare with: no server is restarted for that.
                raise Moved(f"{name} is {why}", place=names[0])
        self.book.note(
            "moment",
            stage=stage.name,
            host=names[0],
            partner=names[1],
            changed=asdict(first),
            partner_did=asdict(second),
            is_after=bool(change),
        )
        for name, window in zip(names, (first, second), strict=True):
            if why := window.why_unmeasured:
                self._unmeasured = f"{name}: {why}"
        self.tell(f"{names[0]} and {names[1]}: {self._so_far(stage, site, change)}")

    def _so_far(self, stage: Stage, site: Site, change: str) -> str:
        rule = self.plan.restart
        assert rule is not None
        return (
            self.judged(stage).reason
            if change
            else f"{self._before_count(stage, site)} of {counted(rule.before, 'block')} before"
        )

    def _aside(self, member: Member, why: str) -> None:
        super()._aside(member, why)
        self.book.note("discarded", host=member.name)


async def both(one: Awaitable[Window], other: Awaitable[Window]) -> tuple[Window, Window]:
    """The first that fails ends the other."""
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    try:
        return await tasks[0], await tasks[1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def taken_back(book: Book, by: str, tell: Tell, wait_s: float = math.inf) -> None:
    """Restore every host. A command that holds this rollout is asked to; if it ends without having done so, or is
    killed, it is done here.

    Raises Busy if another rollout works on one of the hosts, NotRestored if the command that was asked has not
    ended within ``wait_s``. Restoring itself has no limit here: each of its steps has one.
    """
    book.ask_to_stop(by)
    words = "another command works on this rollout: it was asked to restore the hosts; waiting for it"
    end = time.monotonic() + wait_s
    while True:
        try:
            with book.hold():
                await carrier_of(book, tell).abort(f"aborted by {by}")
                return
        except Held as error:
            if time.monotonic() >= end:
                # Its log goes on while it is held.
                raise not_restored(
                    Book(book.folder, book.plan),
                    f"after {wait_s:g} s another command still works on this rollout",
                ) from error
            if words:
                tell(words)
            words = ""
        await asyncio.sleep(min(ASK_S, max(end - time.monotonic(), 0.0)))


class NotRestored(TargetError):
    """Hosts of a rollout that is taken back are changed, or may be."""


def not_restored(book: Book, why: str) -> NotRestored:
    """The error that names them, with the command that continues."""
    state = book.state
    names = [name for name in book.plan.members if name in {*state.open, *state.kept, *state.out}]
    left = ", ".join(f"{name} ({state.host(name)})" for name in names)
    return NotRestored(
        f"{why}; not restored: {left}" if left else f"{why}; its log names no host that is changed",
        place=book.plan.id,
        hint=f"headrace rollout abort {book.plan.id} continues; without a host that is lost for good: "
        f"headrace rollout give-up {book.plan.id} {names[0] if len(names) == 1 else 'HOST'}",
    )


class CacheCarrier(Carrier):
    """Of hosts that are there for memcached."""

    site = CacheSite


def carrier_of(book: Book, tell: Tell) -> Carrier:
    return _kind(book.plan)(book, tell)


def site_of(plan: Plan) -> type[Site]:
    return _kind(plan).site


def _kind(plan: Plan) -> type[Carrier]:
    return PairCarrier if plan.restart else CacheCarrier if plan.of_caches else Carrier
