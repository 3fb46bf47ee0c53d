"""One host of a rollout: apply the change, put off its deadline while all is well, undo it, or keep it.

A change that is tried has a short deadline, which only we put off: when the way to the host is cut, or this
process is killed, the host takes it back by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.base.errors import HeadraceError, NotReady, TargetError
from headrace.base.model import Facts, ServerLogin
from headrace.change import apply as rollout
from headrace.host.agent import Agent, is_of_another_server
from headrace.host.agent.journal import Undone
from headrace.host.facts import HostFacts
from headrace.host.login import usual_login
from headrace.host.memcached.probing import fair
from headrace.host.target import open_target, to_the_end
from headrace.knobs.values import means_the_same
from headrace.rollout.book import Book
from headrace.rollout.guards import Window, tripped
from headrace.rollout.look import LASTING, NO_LOGIN
from headrace.rollout.plan import GALERA, Member, Plan, Role, identity_of, role_of
from headrace.rollout.standing import members_away, sources_of, why_behind
from headrace.rollout.watch import Follower, Restarted, follow

#: From the login to the first sample.
READY_S = 60.0
CLOSE_S = 10.0
#: A limit counts over so long a stretch, at most: then a slow second stops nothing.
GUARD_S = 15.0
LEAST_READINGS = 3
GLANCE_S = 0.2


class TrippedLimit(Exception):
    """A fixed limit was passed while the change stood there."""


class Moved(TargetError):
    """The host is not what the plan is about any more."""


@dataclass
class Site:
    """A host that is connected and followed."""

    book: Book
    member: Member
    agent: Agent
    login: ServerLogin
    follower: Follower
    #: Whom it replicated from when it was checked.
    sources: frozenset[tuple[str, str]] | None = None

    @property
    def sample_s(self) -> float:
        return self.book.plan.rules.timing.sample_s

    @staticmethod
    def followed(
        plan: Plan, member: Member, agent: Agent, login: ServerLogin
    ) -> contextlib.AbstractAsyncContextManager[Follower]:
        return follow(agent, login, plan.rules.timing.sample_s, is_node=_is_node(member))

    async def watch(self, seconds: float, usual: Sequence[Window], change: str = "") -> Window:
        """Watch the server for this long; renew the lease of ``change`` while the limits hold.

        Raises TrippedLimit, or TargetError where the samples stop.
        """
        timing, sample_s = self.book.plan.rules.timing, self.sample_s
        # With the last reading before: a restart between two of them must not be missed.
        start_ns = self.follower.last_ns
        stretch_s = max(min(GUARD_S, self.book.plan.block_s / 2), LEAST_READINGS * sample_s)
        silence_s = max(timing.lease_s / 3, 3 * sample_s)
        end = time.monotonic() + seconds
        # At once: many watches that are shorter than a part of the lease would never put it off.
        renewed = -math.inf
        while True:
            await asyncio.sleep(GLANCE_S)
            if change and self.follower.is_refused:
                raise TrippedLimit(f"the server does not answer: {self.follower.problem}")
            if self.follower.silent_s > silence_s:
                why = self.follower.problem or "the samples stopped"
                raise TargetError(
                    f"no sample for {self.follower.silent_s:.0f} s: {why}", place=self.member.name
                )
            if self.follower.is_donor:
                # Another node joins, or a backup runs: neither says anything of the change.
                raise TargetError(
                    "its node is a donor of its cluster, or desynchronised", place=self.member.name
                )
            if change:
                recent = max(start_ns, self.follower.last_ns - round(stretch_s * 1e9))
                if reason := self._tripped(recent, stretch_s, usual):
                    raise TrippedLimit(reason)
                if time.monotonic() - renewed > timing.lease_s / 3:
                    renewed = time.monotonic()
                    await self.renew(change)
            if time.monotonic() >= end:
                return self.follower.since(start_ns)

    def _tripped(self, since_ns: int, stretch_s: float, usual: Sequence[Window]) -> str:
        try:
            window = self.follower.since(since_ns, through_resets=True)
        except Restarted as error:
            return error.message
        if window.seconds < 0.9 * stretch_s:
            return ""
        return tripped(window, usual, self.book.plan.rules.limits)

    async def apply(self, *, lasting: str = "") -> str:
        """Apply the change with the lease as its deadline; return its id, which is logged first."""
        plan = self.book.plan
        change = self._new_change()
        self.book.note("applying", host=self.member.name, change=change)
        prepared = await rollout.prepare(
            self.agent, plan.settings, self.login, allow_weaker=plan.allow_weaker, lasting=lasting
        )
        within_s = plan.rules.timing.lease_s
        done = await rollout.carry_out(
            self.agent, prepared, self.login, confirm_within_s=within_s, rollout_id=change
        )
        if done.confirmed:
            self.book.note("undone", host=self.member.name, change=change)
            if any(each.after is not None and each.before != each.after for each in done.results):
                raise TargetError(
                    f"it was not heard from for {within_s:g} s and has taken the change back",
                    place=self.member.name,
                )
            raise Moved("another program or person has set these values meanwhile", place=self.member.name)
        return change

    def _new_change(self) -> str:
        return f"{self.book.plan.id}-{rollout.new_id()}"

    async def renew(self, change: str) -> None:
        """Renew the lease."""
        await rollout.journal_of(self.agent, change).extend(self.book.plan.rules.timing.lease_s)

    async def leased(self, changes: Sequence[str], work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` while renewing these leases; stop it if the host has undone a change."""
        doing = asyncio.ensure_future(work)
        renewing = asyncio.ensure_future(self._renewing(changes))
        try:
            await asyncio.wait([doing, renewing], return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                renewing.result()
            await doing
        finally:
            doing.cancel()
            renewing.cancel()
            await to_the_end(asyncio.wait([doing, renewing]))

    async def _renewing(self, changes: Sequence[str]) -> None:
        while changes:
            await asyncio.sleep(self.book.plan.rules.timing.lease_s / 3)
            for change in changes:
                await self.renew(change)
        await asyncio.Event().wait()

    async def warm(self, change: str = "") -> None:
        """Wait until the host can be measured again: at once unless its server was restarted."""

    async def keep(self, change: str) -> None:
        await rollout.journal_of(self.agent, change).confirm()
        self.book.note("kept", host=self.member.name, change=change)

    async def undo(self, change: str) -> None:
        if not await self._take_back(change):
            await self._must_not_be_kept(change)
        self.book.note("undone", host=self.member.name, change=change)

    async def _take_back(self, change: str, restart_within_s: float | None = None) -> bool:
        """Undo the change, open or kept; return False if the journal has neither."""
        journal = rollout.journal_of(self.agent, change)
        if any(entry["owner"] == journal.owner for entry in await journal.entries()):
            undone = await journal.rollback(restart_within_s=restart_within_s)
        elif any(kept["owner"] == journal.owner for kept in await journal.history()):
            undone = await journal.rollback(kept=journal.owner)
        else:
            return False
        all_undone(self.member.name, undone)
        return True

    async def _must_not_be_kept(self, change: str) -> None:
        """A journal that does not know a kept change has undone nothing: what counts is what the host has now.
        Raises TargetError if a setting still has the new value, or cannot be read.
        """
        plan, name = self.book.plan, self.member.name
        if self.book.state.kept.get(name) != change:
            return  # one on trial was never made, or undone by the host itself
        lasting = plan.lasting or (LASTING if plan.restart else "")
        prepared = await rollout.prepare(
            self.agent, plan.settings, self.login, allow_weaker=plan.allow_weaker, lasting=lasting
        )
        variables = HostFacts(await self.agent.facts(self.login)).variables
        still = [
            f"{step.name} = {step.before or 'unknown'}"
            for step in prepared.steps
            if step.name.startswith("volume.mount_options")
            or (
                step.before != self.member.now.get(step.name)
                and means_the_same(step.name.removeprefix("server."), step.before, step.value, variables)
            )
        ]
        if still:
            raise TargetError(
                f"its journal does not know the change {change}, so nothing was undone: {', '.join(still)}",
                place=name,
                hint="was HEADRACE_STATE another one when the change was made? Otherwise set the values by hand",
            )

    async def undo_all(self, changes: Sequence[str]) -> None:
        for change in reversed(changes):
            await self.undo(change)

    async def undo_open(self) -> None:
        for change in list(self.book.state.open.get(self.member.name, ())):
            await self.undo(change)

    async def must_be_the_same(self) -> None:
        """Raises Moved if it is not what the plan says, or replicates from another server than at the check."""
        facts = await self.as_planned()
        self.values_must_fit(facts)
        await self.host_must_fit()
        sources = sources_of(facts)
        if self.sources is not None and sources != self.sources:
            now = ", ".join(sorted(host for host, _ in sources)) or "nobody"
            raise Moved(f"its source was changed: it replicates from {now} now", place=self.member.name)

    async def as_planned(self) -> Facts:
        """Raises Moved if it is another server, or has another role, than the plan says."""
        facts = await self.same_server()
        self.role_must_fit(facts)
        return facts

    async def same_server(self) -> Facts:
        """Raises Moved if it is another server than the plan says."""
        facts = await self.agent.facts(self.login)
        if not facts.data.get("server_settings"):
            raise TargetError("its server does not answer", place=self.member.name)
        identity = identity_of(facts.data)
        if self.member.identity and identity != self.member.identity:
            raise Moved(
                f"another server answers there: it was {self.member.identity} and is {identity}",
                place=self.member.name,
            )
        return facts

    def values_must_fit(self, facts: Facts) -> None:
        """Raises Moved if a setting is not as it was when the plan was made: somebody has changed it for good, and
        would be overruled; blocks without the change would not be comparable either.
        """
        own = HostFacts(facts)
        for name, before in self.member.now.items():
            variable = name.removeprefix("server.")
            value = own.variable(variable) if variable != name else None
            if value is not None and before and not means_the_same(variable, value, before, own.variables):
                raise Moved(
                    f"somebody has changed {variable}: it is {value}, and was {before} when the plan was made; "
                    "make the plan again, or set it back",
                    place=self.member.name,
                )

    async def host_must_fit(self) -> None:
        """The same of settings of the host, which are read anew. Raises Moved."""
        plan = self.book.plan
        own = {name: value for name, value in plan.settings.items() if name.startswith("host.")}
        if not own:
            return
        prepared = await rollout.prepare(self.agent, own, self.login, allow_weaker=plan.allow_weaker)
        for step in prepared.steps:
            before = self.member.now.get(step.name)
            if before is not None and step.before != before:
                raise Moved(
                    f"somebody has changed {step.name}: it is {step.before}, and was {before} when the plan was "
                    "made; make the plan again, or set it back",
                    place=self.member.name,
                )

    def role_must_fit(self, facts: Facts) -> None:
        """Raises Moved if it has another one than the plan says."""
        role = role_of(facts.data)
        # A source whose replicas are all away for a moment is still one.
        if role is not self.member.role and not (self.member.role is Role.SOURCE and role is Role.ALONE):
            raise Moved(f"it was a {self.member.role} and is a {role} now", place=self.member.name)

    async def must_be_ours(self) -> None:
        """Raises TargetError if another command has changes open on the host or on this server of it."""
        entries = await rollout.journal_of(self.agent, self.book.plan.id).entries()
        own = f"{rollout.OWNER}/{self.book.plan.id}-"
        identities = HostFacts(await self.agent.facts(self.login)).server_identities if entries else ()
        others = sorted(
            {
                entry["owner"]
                for entry in entries
                if not entry["owner"].startswith(own) and not is_of_another_server(entry, identities)
            }
        )
        if others:
            raise TargetError(f"changes of {others[0]} are open there", place=self.member.name)

    async def check(self) -> None:
        """Raises Moved if it is not what the plan says, TargetError if it lags or others change it."""
        await self.must_be_ours()
        facts = await self.as_planned()
        self.values_must_fit(facts)
        await self.host_must_fit()
        self.sources = sources_of(facts)
        if why := why_behind(facts, self.book.plan.rules.limits.lag_s):
            raise TargetError(f"it {why}", place=self.member.name)
        if away := self.others_away(facts):
            # Without this one the group might have no majority.
            raise TargetError(f"of its group {away}", place=self.member.name)

    def others_away(self, facts: Facts) -> str:
        """Who of its group or cluster is away; one that a person gave up is not waited for."""
        plan, own = self.book.plan, self.member
        gone = sum(
            name != own.name and plan.members[name].cluster == own.cluster for name in self.book.state.gone
        )
        return ", ".join(members_away(facts, own.cluster_size - gone))


def all_undone(name: str, undone: Sequence[Undone]) -> None:
    """Raises TargetError if one is not."""
    failed = [f"{each.what}: {each.error}" for each in undone if not each.done]
    if failed:
        raise TargetError(f"not undone: {'; '.join(failed)}", place=name)


@contextlib.asynccontextmanager
async def visit(book: Book, member: Member, kind: type[Site] = Site) -> AsyncIterator[Site]:
    """A connected host, with a first sample of its server. Nothing of ours is left open there."""
    async with (
        _connected(book, member) as (agent, login),
        kind.followed(book.plan, member, agent, login) as follower,
    ):
        site = kind(book, member, agent, login, follower)
        await site.undo_open()
        end = time.monotonic() + READY_S
        while not follower.readings:
            if time.monotonic() > end or follower.has_ended:
                why = follower.problem or "no sample of the server came"
                raise TargetError(why, place=member.name)
            await asyncio.sleep(GLANCE_S)
        yield site


@contextlib.asynccontextmanager
async def _connected(book: Book, member: Member) -> AsyncIterator[tuple[Agent, ServerLogin]]:
    host = member.host
    # A lost connection is ours to know about: the host takes the change back meanwhile.
    target = open_target(replace(host.spec, reconnect_s=0.0))
    try:
        try:
            async with book.logins.of(host.spec), asyncio.timeout(READY_S):
                await target.connect()
                agent = await Agent.install(target)
                login, why_not = await _login(agent, member)
        except TimeoutError:
            raise TargetError(f"no login within {READY_S:g} s", place=member.name) from None
        if login is None:
            raise NotReady(why_not or "no server login", place=member.name)
        yield agent, login
    finally:
        closing = asyncio.ensure_future(to_the_end(target.close()))
        await asyncio.wait({closing}, timeout=CLOSE_S)


async def _login(agent: Agent, member: Member) -> tuple[ServerLogin | None, str]:
    """Nobody logs in to a host that is there for memcached."""
    return (NO_LOGIN, "") if member.memcached else await usual_login(agent, member.host.login)


def _is_node(member: Member) -> bool:
    return member.cluster.startswith(GALERA)


async def restore(book: Book, member: Member, changes: Sequence[str], kind: type[Site] = Site) -> None:
    """Undo these changes, the latest first, and what a killed controller has left."""
    async with (
        _connected(book, member) as (agent, login),
        kind.followed(book.plan, member, agent, login) as follower,
    ):
        site = kind(book, member, agent, login, follower)
        await site.undo_all(changes)
        await site.undo_open()


async def must_answer(book: Book, member: Member) -> None:
    """Raises TargetError if its server does not."""
    if member.memcached:
        await asyncio.to_thread(fair, member.memcached)
        return
    async with _connected(book, member) as (agent, login):
        if not (await agent.facts(login)).data.get("server_settings"):
            raise TargetError("its server does not answer", place=member.name)


async def is_reached(book: Book, member: Member) -> bool:
    """Whether its SSH answers, whatever its server does."""
    target = open_target(replace(member.host.spec, reconnect_s=0.0))
    try:
        async with book.logins.of(member.host.spec), asyncio.timeout(READY_S):
            await target.connect()
    except (TimeoutError, HeadraceError):
        return False
    finally:
        await asyncio.wait({asyncio.ensure_future(to_the_end(target.close()))}, timeout=CLOSE_S)
    return True


async def behind_there(book: Book, member: Member) -> str:
    """Why this host does not keep up; empty if it does."""
    async with _connected(book, member) as (agent, login):
        facts = await agent.facts(login)
        if member.cluster and not facts.data.get("server_settings"):
            raise TargetError("its server does not answer", place=member.name)
        return why_behind(facts, book.plan.rules.limits.lag_s)
