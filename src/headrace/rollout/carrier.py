"""Carries a plan out, stage after stage; every step is in the book before and after it is done.

A stage whose hosts serve is tried in pairs of blocks until the judge decides. Then each of its hosts gets the
change, is watched, and keeps it. At most one host of a replication group is changed at a time. Harm takes
everything back, on all hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial

from headrace.base.counted import counted
from headrace.base.errors import DiskFull, HeadraceError, PlanError, Refused
from headrace.fleet.runner import Turns, within_descriptors
from headrace.host.target import to_the_end
from headrace.rollout import approvals, hands
from headrace.rollout.book import Book
from headrace.rollout.guards import LEAST_QUERIES, Window, tripped
from headrace.rollout.hands import Moved, Site, TrippedLimit
from headrace.rollout.judge import Judgement, Outcome
from headrace.rollout.plan import Member, Plan, Role, Stage
from headrace.rollout.rules import frozen

#: A host that failed so often in a row is left aside.
MOST_FAILURES = 3
#: A host that was lost so often while it had the change ends the attempt on all of them.
MOST_LOST = 2
PAUSE_S = 2.0
#: How often it is looked whether somebody asked to take everything back.
ASK_S = 1.0
#: How long the other servers of a group are taken to lag as little as they did.
PEERS_S = 60.0
#: Connections that a group has open at a time: to its host, its equal, and to those that are only asked.
OPEN = 3

Tell = Callable[[str], None]


class Harmful(Exception):
    """The change does harm: everything is taken back."""


class Paused(Exception):
    """It cannot go on now; the same command continues later."""


class Proven(Exception):
    """The judge has proven harm: nobody goes on with the change."""


async def _ended(work: asyncio.Future[None]) -> None:
    await asyncio.wait([work])


class Carrier:
    """One ``go``. Use it under ``book.hold``. ``site``: what changes a host."""

    site: type[Site] = Site

    def __init__(self, book: Book, tell: Tell = lambda text: None) -> None:
        self.book = book
        self.plan: Plan = book.plan
        self.tell = tell
        most, jump = self.plan.fan_out
        hosts = [member.host for member in self.plan.members.values()]
        possible, note = within_descriptors(OPEN * most, hosts * OPEN)
        if note:
            tell(note)
        #: Groups at a time. What they ask of other hosts meanwhile is limited by logins.
        self.turns = Turns(max(possible // OPEN, 1), jump)
        self._peers: dict[str, float] = {}
        self._lost: dict[str, int] = {}

    async def go(self) -> None:
        """Until it is finished, taken back, or has to wait; the book's state says which."""
        if self.book.state.is_over:
            return
        if self.book.state.aborting:
            await self.take_back()
            return
        work = asyncio.ensure_future(self._go())
        try:
            while not work.done():
                await asyncio.wait([work], timeout=ASK_S)
                if (who := self.book.stop_asked()) and not self.book.state.is_over:
                    work.cancel()
                    # What it was at is undone first.
                    await asyncio.wait([work])
                    await self.abort(f"aborted by {who}")
                    return
            await work
        finally:
            work.cancel()
            await to_the_end(_ended(work))

    async def _go(self) -> None:
        self.book.note("go")
        try:
            await self._reconcile()
            for stage in self.plan.stages:
                if stage.name not in self.book.state.passed:
                    await self._stage(stage)
            self.book.note("finished")
        except Harmful as harm:
            self.tell(f"harm: {harm}; all hosts are restored")
            self.book.note("aborting", why=str(harm), is_harmful=True)
            await self.take_back()
        except Paused as pause:
            self.book.note("paused", why=str(pause))

    async def abort(self, why: str) -> None:
        """Take everything back, whatever was decided."""
        if self.book.state.is_aborted:
            return
        self.book.note("aborting", why=why)
        await self.take_back()

    async def give_up(self, name: str, by: str, *, force: bool = False) -> None:
        """Go on without a host that does not come back: one on which that fails which `go` or `abort` would do.
        ``force``: also one whose SSH answers. Raises Refused for others.
        """
        if name not in self.plan.members:
            raise PlanError("no such host in this rollout", place=name)
        state, changes, member = self.book.state, self._changes(name), self.plan.members[name]
        undone = changes if state.aborting else state.open.get(name, ())
        # At the same time: if the host is away, each attempt takes the whole limit of a connection.
        reached = asyncio.ensure_future(hands.is_reached(self.book, member))
        try:
            await hands.restore(self.book, member, list(undone), self.site)
            await hands.must_answer(self.book, member)
        except HeadraceError as error:
            if not force and await reached:
                raise self._is_there(name, error) from error
            self.book.note("given_up", host=name, by=by, why=error.message, changes=changes)
            if changes:
                self.tell(
                    f"{name}: may still have {', '.join(changes)}: if it returns, "
                    f"headrace rollback --list -t {name}"
                )
            if state.aborting and not (state.open or state.kept or state.out):
                self.book.note("aborted")
        else:
            raise Refused(
                "it answers, so it is not given up",
                place=name,
                hint=f"headrace rollout status {self.plan.id}",
            )
        finally:
            reached.cancel()
            await asyncio.wait([reached])

    def _is_there(self, name: str, error: HeadraceError) -> Refused:
        """Its server may be back in a minute, and its journal can be asked: it is not lost for good."""
        own, verb = self.plan.id, "abort" if self.book.state.aborting else "go"
        return Refused(
            f"its SSH answers, so it is not given up; what fails there: {error.message}",
            place=name,
            hint=f"fix that, then: headrace rollout {verb} {own}; if its server does not come back: "
            f"headrace rollout give-up {own} {name} --force",
        )

    def _changes(self, name: str) -> list[str]:
        """What stands on a host, or may, the oldest first."""
        state = self.book.state
        return [*([state.kept[name]] if name in state.kept else []), *state.open.get(name, ())]

    async def take_back(self) -> None:
        """Restore every host that was or may be changed; the book says so once all are."""
        state = self.book.state
        names = [
            name
            for name in self.plan.members
            if name in state.open or name in state.kept or name in state.out
        ]

        async def one(name: str) -> None:
            changes = self._changes(name)
            member = self.plan.members[name]
            async with self.turns.of(member.host.spec):
                try:
                    await hands.restore(self.book, member, changes, self.site)
                    self.tell(f"{name}: restored")
                except HeadraceError as error:
                    self.tell(f"{name}: not restored: {error}")

        async def in_turn(own: Sequence[str]) -> None:
            for name in own:
                await one(name)
                if name in state.out:
                    break  # the others of its group must not leave, too

        await asyncio.gather(*(in_turn(own) for own in self._side_by_side(names)))
        if not state.open and not state.kept and not state.out:
            self.book.note("aborted")

    def _side_by_side(self, names: Sequence[str]) -> list[list[str]]:
        """Hosts that are restored one after the other, in lists that are not."""
        return [[name] for name in names]

    async def _reconcile(self) -> None:
        """What a killed controller left open is taken back before anything else is done."""
        state = self.book.state
        # First what is out of service: nothing else of its group may leave before it is back.
        for name in [*state.out, *(name for name in list(state.open) if name not in state.out)]:
            try:
                await hands.restore(
                    self.book, self.plan.members[name], list(state.open.get(name, ())), self.site
                )
            except HeadraceError as error:
                why = f"{name} may still be changed, and cannot be asked: {error.message}"
                command = f"headrace rollout give-up {self.plan.id} {name}"
                raise Paused(f"{why}; if it does not come back: {command}") from error

    async def _stage(self, stage: Stage) -> None:
        state = self.book.state
        unjudged_by = state.unjudged_by(stage.name)
        if stage.needs_approval or unjudged_by:
            self._must_be_approved(stage)
        self._must_not_be_frozen()
        self.tell(f"stage {stage.name}: {counted(len(stage.hosts), 'host')}")
        if stage.is_judged and stage.name not in state.verdicts:
            judged = self.judged(stage) if unjudged_by else await self._try(stage)
            if not unjudged_by or judged.outcome is Outcome.FAIL:
                self._note_verdict(stage, judged)
        verdict = state.verdicts.get(stage.name)
        if verdict and verdict["outcome"] == Outcome.FAIL:
            raise Harmful(f"stage {stage.name}: {verdict['reason']}")
        if verdict and verdict["outcome"] == Outcome.INCONCLUSIVE and not unjudged_by:
            why = f"stage {stage.name} is inconclusive: {verdict['reason']}; nothing is promoted"
            raise Paused(f"{why}; {self._without_a_verdict(stage)}")
        if unjudged_by:
            self.tell(f"stage {stage.name}: promoted by {unjudged_by} without a verdict")
        await self._by_group(stage, self._settle_group)
        left = [name for name in stage.hosts if name not in state.kept and name not in state.gone]
        if left:
            why = "; ".join(f"{name}: {state.why_left(name) or 'not changed'}" for name in left)
            raise Paused(f"stage {stage.name}: {why}")
        self.book.note("passed", stage=stage.name)

    def _note_verdict(self, stage: Stage, judged: Judgement) -> None:
        bounds = {
            metric: asdict(bound)
            for metric, bound in (judged.bounds or {}).items()
            if math.isfinite(bound.low) and math.isfinite(bound.high)
        }
        idle = [name for name in stage.hosts if name in self.book.state.idle]
        reason = f"{judged.reason}; idle, only watched: {', '.join(idle)}" if idle else judged.reason
        if self.plan.of_sessions and not self.plan.restart and judged.outcome is not Outcome.FAIL:
            reason = f"{reason}; of new connections only: {', '.join(self.plan.of_sessions)}"
        self.tell(f"stage {stage.name}: {judged.outcome}: {reason}")
        self.book.note(
            "verdict",
            stage=stage.name,
            outcome=str(judged.outcome),
            reason=reason,
            is_win=judged.is_win,
            pairs=judged.pairs,
            bounds=bounds,
        )

    def _without_a_verdict(self, stage: Stage) -> str:
        command = self.book.unjudged_command(stage)
        return f"to change its hosts without a verdict, only watched: {command}"

    def _must_be_approved(self, stage: Stage) -> None:
        approval = self.book.state.approvals.get(stage.name)
        command = f"headrace rollout approve {self.plan.id} --stage '{stage.name}'"
        if approval is None:
            raise Paused(f"stage {stage.name} needs an approval: {command}")
        if why := approvals.why_over(approval):
            raise Paused(f"the approval of stage {stage.name} by {approval['by']} {why}: {command}")

    def _must_not_be_frozen(self) -> None:
        for window in self.plan.rules.freeze:
            if frozen(window, datetime.now(UTC)):
                raise Paused(f"nothing is changed now: freeze {window}")

    def judged(self, stage: Stage) -> Judgement:
        return self.book.judged(stage)

    async def _try(self, stage: Stage) -> Judgement:
        with contextlib.suppress(Proven):
            await self._by_group(stage, self._try_group)
        judged = self.judged(stage)
        if judged.outcome is Outcome.CONTINUE:
            state, idle = self.book.state, self.book.state.idle
            left = {name: state.why_left(name) or idle.get(name, "") for name in stage.hosts}
            why = "; ".join(f"{name}: {said}" for name, said in left.items() if said)
            words = f"stage {stage.name}: {judged.reason}, and no host is left to try it on ({why})"
            is_idle = any(name in idle for name in stage.hosts)
            raise Paused(f"{words}; {self._without_a_verdict(stage)}" if is_idle else words)
        return judged

    async def _by_group(
        self, stage: Stage, work: Callable[[Stage, Sequence[Member]], Awaitable[None]]
    ) -> None:
        """As many groups at a time as may be; the first that fails ends the others, which undo what they did."""
        groups: dict[str, list[Member]] = {}
        for name in stage.hosts:
            member = self.plan.members[name]
            groups.setdefault(member.group, []).append(member)

        async def in_turn(members: Sequence[Member]) -> None:
            async with self.turns.of(*(member.host.spec for member in members)):
                await work(stage, members)

        tasks = [asyncio.ensure_future(in_turn(members)) for members in groups.values()]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _try_group(self, stage: Stage, members: Sequence[Member]) -> None:
        while member := self._next(stage, members):
            await self._attempt(member, lambda site: self._pairs(stage, members, site))

    async def _pairs(self, stage: Stage, members: Sequence[Member], site: Site) -> None:
        """As long as it is this host's turn."""
        await self._pair(stage, site)
        while self._next(stage, members) is site.member:
            await self._peers_must_not_lag(site.member)
            await site.check()
            await self._pair(stage, site)

    def _next(self, stage: Stage, members: Sequence[Member]) -> Member | None:
        """Whose turn it is; None once the stage is decided, or no host of the group is left.

        Raises Proven: the other groups must neither end their blocks with the change first, nor begin one.
        """
        outcome = self.judged(stage).outcome
        if outcome is Outcome.FAIL:
            raise Proven
        if outcome is not Outcome.CONTINUE:
            return None
        self._must_not_be_frozen()
        if stage.needs_approval:
            self._must_be_approved(stage)
        state = self.book.state
        there = [m for m in members if not state.why_left(m.name) and m.name not in state.idle]
        return min(there, key=lambda each: state.attempts.get((stage.name, each.name), 0), default=None)

    async def _settle_group(self, stage: Stage, members: Sequence[Member]) -> None:
        for member in members:
            while member.name not in self.book.state.kept and not self.book.state.why_left(member.name):
                self._must_not_be_frozen()
                await self._attempt(member, partial(self._settle, stage))

    async def _attempt(self, member: Member, work: Callable[[Site], Awaitable[None]]) -> None:
        """Once; a host that fails again and again, or is another one now, is left aside."""
        for failure in range(1, MOST_FAILURES + 1):
            try:
                self._peers_must_be_as_before(member)
                await self._peers_must_not_lag(member)
                async with hands.visit(self.book, member, self.site) as site:
                    await site.check()
                    await work(site)
                return
            except Moved as error:
                self._aside(member, error.message)
                return
            except DiskFull as error:
                # It stays full until somebody has made room.
                self._aside(member, error.message)
                return
            except HeadraceError as error:
                self.tell(f"{member.name}: {error}")
                self.book.note("lost", host=member.name, why=error.message)
                if failure == MOST_FAILURES:
                    self._aside(member, error.message)
                    return
                await asyncio.sleep(PAUSE_S)

    def _aside(self, member: Member, why: str) -> None:
        self.tell(f"{member.name}: set aside: {why}")
        self.book.note("aside", host=member.name, why=why)

    def _peers_must_be_as_before(self, member: Member) -> None:
        """One that was lost with the change has it until its deadline, or until it is restored."""
        for name in self.book.state.open:
            if name != member.name and self.plan.members[name].group == member.group:
                raise HeadraceError(f"{name} of the same group may still be changed", place=member.name)

    async def _peers_must_not_lag(self, member: Member) -> None:
        peers = [
            each
            for each in self.plan.members.values()
            if each.group == member.group
            and each.name != member.name
            and (each.role is Role.REPLICA or each.cluster)
            and each.name not in self.book.state.gone
        ]

        async def one(peer: Member) -> None:
            asked = self._peers.get(peer.name)
            if asked is not None and time.monotonic() - asked < PEERS_S:
                return
            try:
                why = await hands.behind_there(self.book, peer)
            except HeadraceError as error:
                why = "" if self._may_be_away(peer) else f"cannot be asked: {error.message}"
            if why:
                raise HeadraceError(f"{peer.name} of the same group {why}", place=member.name)
            self._peers[peer.name] = time.monotonic()

        await asyncio.gather(*(one(peer) for peer in peers))

    def _may_be_away(self, peer: Member) -> bool:
        """A replica that is away serves nobody, and lags for reasons of its own. A cluster may need each of its
        members for a majority.
        """
        return not peer.cluster

    def _usual(self, site: Site) -> list[Window]:
        return self.book.state.usual.setdefault(site.member.name, [])

    async def _before(self, site: Site) -> None:
        """The limits need a past of this host."""
        window = await self._measured(site, self.plan.block_s)
        self.book.note("before", host=site.member.name, off=asdict(window))

    async def _measured(
        self, site: Site, seconds: float, usual: Sequence[Window] = (), change: str = ""
    ) -> Window:
        """A block, or a soak. Raises HeadraceError if samples of less than half of it came: what a server did that
        was not seen is neither idle nor well.
        """
        window = await site.watch(seconds, usual, change)
        if window.seconds < seconds / 2:
            raise HeadraceError(
                f"too few samples: of {window.seconds:.3g} s in {seconds:.3g} s", place=site.member.name
            )
        return window

    def _why_idle(self, window: Window) -> str:
        """Why there is nothing to compare, by a block without the change; empty if there is."""
        limit = max(self.plan.rules.judge.idle_per_s * window.seconds, LEAST_QUERIES)
        return "" if window.queries >= limit else f"idle, {window.per_s or 0:.3g} {self.plan.load_unit}"

    def _serves(self, name: str) -> bool:
        """Whether it did in its last block without the change. If not it is changed after the others' verdict, and
        only watched: blocks without queries are no evidence, and a stage of them would never end.
        """
        why = self._why_idle(self.book.state.usual[name][-1])
        if why:
            self.tell(f"{name}: {why}: not judged")
            self.book.note("idle", host=name, why=why)
        return not why

    async def _pair(self, stage: Stage, site: Site) -> None:
        timing, name = self.plan.rules.timing, site.member.name
        usual = self._usual(site)
        if not usual or self._why_idle(usual[-1]):
            await self._before(site)
            if not self._serves(name):
                return
        attempt = self.book.state.attempts.get((stage.name, name), 0)
        self.book.note("attempt", stage=stage.name, host=name)
        is_on_first = self.plan.is_on_first(stage.name, name, attempt)
        found: dict[bool, Window] = {}
        for is_on in (is_on_first, not is_on_first):
            if is_on:
                found[True] = await self._block_with(site)
            else:
                await site.watch(timing.wash_s, [])
                found[False] = await self._measured(site, timing.block_s)
        # A change that another command made in a block, or a failover, is not what is compared.
        await site.must_be_ours()
        await site.must_be_the_same()
        self.book.note("pair", stage=stage.name, host=name, on=asdict(found[True]), off=asdict(found[False]))
        self.tell(f"{name}: pair {len(self.book.state.pairs[stage.name])}: {self.judged(stage).reason}")
        self._serves(name)

    async def _block_with(self, site: Site) -> Window:
        timing = self.plan.rules.timing
        # Since it was this host's turn a block may have passed.
        self._must_not_be_frozen()
        change = await _made(site)
        try:
            async with self._on_trial(site, change):
                await site.watch(timing.wash_s, self._usual(site), change)
                window = await self._measured(site, timing.block_s, self._usual(site), change)
            # One that is not undone must not be measured as the block without it.
            await site.undo(change)
        finally:
            await at_any_rate(site, change)
        return window

    @contextlib.asynccontextmanager
    async def _on_trial(self, site: Site, change: str) -> AsyncIterator[None]:
        """While the change stands there: a limit that is passed, or a host that is lost, may be its fault."""
        try:
            yield
        except TrippedLimit as limit:
            await self._whose_fault(site, change, str(limit))
            raise
        except HeadraceError as error:
            self._lost_with_it(site.member, error)
            raise

    def _lost_with_it(self, member: Member, error: HeadraceError) -> None:
        """A connection may break; a host that is lost again with the change may be lost by the change."""
        count = self._lost.get(member.name, 0) + 1
        self._lost[member.name] = count
        if count >= MOST_LOST:
            why = f"{member.name} was lost {count} times while it had the change"
            raise Paused(f"{why} ({error.message}): nothing more is tried") from error

    async def _settle(self, stage: Stage, site: Site) -> None:
        if not self._usual(site) or not stage.is_judged:
            await self._before(site)
            self._must_still_be_idle(stage, site, self._usual(site)[-1])
        change = await self._applied(site)
        is_kept = False
        try:
            async with self._on_trial(site, change):
                await self._soak(site, change, stage)
                is_kept = True
        finally:
            if not is_kept:
                await at_any_rate(site, change)

    def _must_still_be_idle(self, stage: Stage, site: Site, window: Window) -> None:
        """The plan judges nothing on hosts that were idle when it was made. Raises Paused where one serves now."""
        if stage.is_judged or self.book.state.unjudged_by(stage.name):
            return
        if self.plan.restart and site.member.per_s >= self.plan.rules.judge.idle_per_s:
            return  # it served when the plan was made, which says that no equal host is left to judge it by
        if self._why_idle(window):
            return
        name = site.member.name
        self.book.note("serving", stage=stage.name, host=name, per_s=window.per_s)
        load = f"{window.per_s or 0:.3g} {self.plan.load_unit}"
        why = f"{name} serves {load}, and was idle when the plan was made: nothing is judged"
        raise Paused(f"stage {stage.name}: {why}; make the plan again; or {self._without_a_verdict(stage)}")

    async def _applied(self, site: Site) -> str:
        self._must_not_be_frozen()
        try:
            return await _made(site, self.plan.lasting)
        except TrippedLimit as limit:
            raise Harmful(f"{site.member.name}: {limit}; without it the server is back") from limit

    async def _soak(self, site: Site, change: str, stage: Stage | None = None) -> None:
        """Watch it with the change, and keep that. In a ``stage`` that judges nothing only while it stays idle."""
        window = await self._measured(site, self.plan.rules.timing.soak_s, self._usual(site), change)
        if stage is not None:
            self._must_still_be_idle(stage, site, window)
        await site.keep(change)
        self.tell(f"{site.member.name}: kept")

    async def _whose_fault(self, site: Site, change: str, why: str) -> None:
        """The change is taken back at once; the same time without it decides. Raises Harmful, or HeadraceError if
        the host has troubles of its own."""
        self.tell(f"{site.member.name}: {why}: taken back")
        timing, limits = self.plan.rules.timing, self.plan.rules.limits
        self.book.note("tripped", host=site.member.name, why=why)
        try:
            await site.undo(change)
            await site.warm()
            await site.watch(timing.wash_s, [])
            after = await self._measured(site, self.plan.block_s)
            # A failover stops replication for a moment, and moves queries, which is not the change's doing.
            await site.must_be_the_same()
        except Moved:
            raise
        except HeadraceError as error:
            # Nobody knows whose fault it was, so it is tried nowhere until a person has looked.
            raise Paused(f"{site.member.name}: {why}; then {error.message}: nothing more is tried") from error
        still = tripped(after, self._usual(site), limits)
        if still:
            raise Moved(
                f"{why}; also without the change ({still}): the host has problems of its own",
                place=site.member.name,
            )
        raise Harmful(f"{site.member.name}: {why}; without the change it recovered")


async def _made(site: Site, lasting: str = "") -> str:
    """The change, made; or taken back at once if making it is broken off, rather than at its deadline."""
    was_open = set(site.book.state.open.get(site.member.name, ()))
    try:
        return await site.apply(lasting=lasting)
    except BaseException:
        for change in set(site.book.state.open.get(site.member.name, ())) - was_open:
            await at_any_rate(site, change)
        raise


async def at_any_rate(site: Site, change: str) -> None:
    """Undo it also while we are cancelled; a host that cannot be reached does it at its deadline."""
    if change in site.book.state.open.get(site.member.name, ()):
        with contextlib.suppress(HeadraceError):
            await to_the_end(site.undo(change))
