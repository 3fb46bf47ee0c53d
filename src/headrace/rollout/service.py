"""One host of a rollout whose change takes a restart: out of service, new option file, restart, back, warm.

Out of service and back are the user's commands; their exit codes count. The file has a deadline in the host's
journal, which only we put off. A host that we leave alone takes the file back, and restarts its server only if the
plan says that it may (``host_restarts``): a server may only be restarted while it is out of service, and its host
cannot know. One that fails on the way stays out of service, which is safe, until ``go`` or ``abort`` has restored
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from headrace.base.errors import Busy, CommandFailed, HeadraceError, TargetError
from headrace.change import apply as rollout
from headrace.host.agent import state_folder
from headrace.host.facts import HostFacts
from headrace.host.target import Target, to_the_end
from headrace.host.target.local import LocalTarget
from headrace.knobs import catalogue as knobs
from headrace.knobs.change import text_of
from headrace.knobs.values import means_the_same
from headrace.rollout.book import lock_of
from headrace.rollout.hands import GLANCE_S, READY_S, Moved, Site, TrippedLimit, all_undone
from headrace.rollout.look import LASTING
from headrace.rollout.own_command import run_alone
from headrace.rollout.plan import Role, role_of
from headrace.rollout.rules import RestartRule
from headrace.rollout.standing import why_behind
from headrace.rollout.watch import CountersReset

#: How long a server must be idle, or its pool warm.
STRETCH_S = 5.0
ASK_AGAIN_S = 1.0
TOO_LATE = "the host takes the change back by now"

T = TypeVar("T")


class NotUp(TargetError):
    """The server did not come up, or is not what it should be, after a restart."""


class RestartSite(Site):
    """Here a change is open from before its file is written until the old server is back in service."""

    @property
    def rule(self) -> RestartRule:
        rule = self.book.plan.restart
        assert rule is not None
        return rule

    async def apply(self, *, lasting: str = "") -> str:
        """The change is in effect, in service and warm when this returns. Raises TrippedLimit where the server
        does not come up with it, and did without it; whatever is raised, the host was restored if it could be.
        """
        change = self._new_change()
        try:
            await self._leave()
            self.book.note("applying", host=self.member.name, change=change)
            await self._write(change)
            await self.leased([change], self._through(change))
        except BaseException as error:
            await to_the_end(self._restored_after(error))
            if isinstance(error, NotUp):
                raise TrippedLimit(f"with the change {error.message}") from error
            raise
        return change

    async def _restored_after(self, error: BaseException) -> None:
        try:
            await self.undo_open()
        except HeadraceError as failure:
            if isinstance(error, NotUp):
                raise TargetError(
                    f"{error.message}; and it is not restored: {failure.message}", place=self.member.name
                ) from failure

    async def _write(self, change: str) -> None:
        plan = self.book.plan
        lasting = plan.lasting or LASTING
        prepared = await rollout.prepare(
            self.agent, plan.settings, self.login, allow_weaker=plan.allow_weaker, lasting=lasting
        )
        await rollout.write_ahead(
            self.agent,
            prepared,
            self.login,
            confirm_within_s=plan.rules.timing.lease_s,
            commands=self._commands() if self.rule.host_restarts else None,
            rollout_id=change,
        )

    def _commands(self) -> dict[str, Any]:
        """What the host runs if it must restart its server without us."""
        rule, rules = self.rule, self.book.plan.rules
        return {
            "drain": rule.drain,
            "restart": rule.restart,
            "return": rule.put_back,
            "environment": self._environment(),
            "within_s": rule.within_s,
            "start_s": rule.start_s,
            "idle_per_s": rules.judge.idle_per_s,
            "lag_s": rules.limits.lag_s,
        }

    async def _through(self, change: str) -> None:
        await self._restart(change)
        await self._enter()
        await self.warm(change)

    async def undo(self, change: str) -> None:
        await self._restore([change])

    async def undo_all(self, changes: Sequence[str]) -> None:
        await self._restore(changes)

    async def undo_open(self) -> None:
        state, name = self.book.state, self.member.name
        if name in state.out or state.open.get(name):
            await self._restore(list(state.open.get(name, ())))

    async def _restore(self, changes: Sequence[str]) -> None:
        """The old option files, the old server and back in service, from wherever it stopped."""
        lease_s = self.book.plan.rules.timing.lease_s
        # Restore files first, even if draining fails later: any restart then gets the old settings.
        found = [
            change
            for change in reversed(changes)
            if await self._when_free(partial(self._take_back, change, lease_s))
        ]
        state = self.book.state
        for change in found:
            if state.kept.get(self.member.name) == change:
                # The host forgets it with that. A restart that has to wait is for the next command.
                self.book.note("file_restored", host=self.member.name, change=change)
        for change in set(changes) - state.files_restored - set(found):
            # Fail here rather than after a drain.
            await self._must_not_be_kept(change)
        restarted = [change for change in changes if change in state.restarted]
        # What the host's journal does not know any more, the host has undone, with its server.
        is_left = any(change in found for change in restarted) or (
            bool(restarted) and not await self._is_old()
        )
        open_there = await self._open_there(found)
        await self.leased(open_there, self._old_and_in_service(needs_restart=is_left))
        for change in open_there:
            # Close the entry of the restart: we restarted the server and checked its values.
            journal = rollout.journal_of(self.agent, change)
            all_undone(
                self.member.name, await self._when_free(partial(journal.rollback, accept_foreign=True))
            )
        for change in reversed(changes):
            self.book.note("undone", host=self.member.name, change=change)

    async def _open_there(self, changes: Sequence[str]) -> list[str]:
        journal = rollout.journal_of(self.agent, self.book.plan.id)
        owners = {entry["owner"] for entry in await journal.entries()}
        return [change for change in changes if rollout.journal_of(self.agent, change).owner in owners]

    async def _when_free(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry while the host is restarting its own server."""
        rule = self.rule
        wait_s = 2 * rule.within_s + rule.start_s if rule.host_restarts else 0.0
        end = time.monotonic() + wait_s
        while True:
            try:
                return await ask()
            except Busy:
                if time.monotonic() >= end:
                    raise
            await asyncio.sleep(ASK_AGAIN_S)

    async def _is_old(self) -> bool:
        try:
            facts = HostFacts(await self.agent.facts(self.login))
        except HeadraceError:
            return False
        return bool(facts.variables) and not self._still_new(facts)

    async def _old_and_in_service(self, *, needs_restart: bool) -> None:
        state, name = self.book.state, self.member.name
        if needs_restart:
            if name not in state.out:
                await self._must_have_its_role()
                await self._others_must_be_there()
                await self._leave()
            await self._restart_with_the_old()
        if name in state.out:
            await self._enter()

    async def _must_have_its_role(self) -> None:
        """A server that somebody has promoted meanwhile takes writes: it is not drained and restarted unasked. The
        primary of a group has become a secondary by its own restart, which may be restarted again.
        """
        try:
            facts = await self.same_server()
            if role_of(facts.data) is not Role.REPLICA:
                self.role_must_fit(facts)
        except Moved as error:
            raise TargetError(
                f"{error.message}: its option file is restored, but its server is not restarted",
                place=self.member.name,
                hint="restart it, or give it back its role; then the same command continues",
            ) from error
        except HeadraceError:
            pass  # it is down, and serves nobody

    async def _others_must_be_there(self) -> None:
        """Wait until all others of the group are online; one may be recovering from its restart."""
        away = ""

        async def are_there() -> bool | None:
            nonlocal away
            try:
                away = self.others_away(await self.agent.facts(self.login))
            except HeadraceError:
                away = ""  # it is down itself
            return not away or None

        if not await _until(are_there, self.rule.start_s):
            raise TargetError(
                f"of its group {away}: its option file is restored, but its server is not restarted",
                place=self.member.name,
                hint="the same command continues once they are there",
            )

    # -- the steps ----------------------------------------------------------------------------------------------

    async def _leave(self) -> None:
        """Drain the server until it is idle; return it to service on failure."""
        name = self.member.name
        pages, misses = self.follower.pool(self.book.plan.block_s)
        self.book.note("out", host=name, pages=pages, misses=misses or 0.0)
        try:
            await self._command("drain", self.rule.drain)
            await self._must_be_idle()
        except BaseException:
            with contextlib.suppress(HeadraceError):
                await to_the_end(self._put_back())
            raise

    async def _must_be_idle(self) -> None:
        """Do not trust the exit code of the command: a restart would cut off running queries."""
        most = self.book.plan.rules.judge.idle_per_s
        per_s: float | None = None
        end = time.monotonic() + self.rule.within_s
        while time.monotonic() < end:
            start_ns = self.follower.last_ns
            await asyncio.sleep(min(STRETCH_S, self.book.plan.block_s))
            if self.follower.problem or not self.follower.readings:
                return  # it does not answer: nobody is served
            # Samples that begin with another server say nothing yet.
            with contextlib.suppress(CountersReset):
                per_s = self.follower.since(start_ns).per_s
                if per_s is not None and per_s < most:
                    return
        raise TargetError(
            f"drained, but after {self.rule.within_s:g} s it has {per_s or 0:.0f} queries/s (limit {most:g})",
            place=self.member.name,
        )

    async def _restart(self, change: str) -> HostFacts:
        """With what the option files say now. ``change`` is empty for the old settings."""
        before = await self._server_pid()
        self.book.note("restarting", host=self.member.name, change=change)
        command = await self._unless_late(change) if change else self.rule.restart
        try:
            await to_the_end(self._command("restart", command, within_s=self.rule.start_s))
        except CommandFailed as error:
            if TOO_LATE in error.message:
                raise TargetError(error.message, place=self.member.name) from error
            raise NotUp(error.message, place=self.member.name) from error
        facts = await self._up(before)
        if change:
            self._must_differ(facts)
            self._must_be_as_asked(facts)
        return facts

    async def _unless_late(self, change: str) -> str:
        """The restart command, for as long as the host has not taken the change back: then the server may be in
        service again, and a command that was held up on its way there must not restart it.
        """
        await self.renew(change)
        journal = rollout.journal_of(self.agent, change)
        own = [entry for entry in await journal.entries() if entry["owner"] == journal.owner]
        until_s = min(entry["deadline"]["uptime_ns"] for entry in own) // 10**9 if own else 0
        late = f"read -r up _ </proc/uptime; [ ${{up%.*}} -lt {until_s} ] || {{ echo '{TOO_LATE}'; exit 1; }}"
        return f"{late}\n{self.rule.restart}"

    async def _restart_with_the_old(self) -> None:
        """Twice if need be: a restart that somebody began before the file was restored may end after ours.
        Raises TargetError if the server still has a new value; it stays out of service then.
        """
        for _ in range(2):
            facts = await self._restart("")
            still = self._still_new(facts)
            if not still:
                if other := self._unlike_before(facts):
                    why = f"it has {'; '.join(other)}: something else sets it"
                    self.book.note("other", host=self.member.name, why=why)
                return
        raise TargetError(
            f"restarted with the old option file, but the server still has {', '.join(still)}: something else "
            "sets it, and it stays out of service",
            place=self.member.name,
        )

    def _still_new(self, facts: HostFacts) -> list[str]:
        """The settings that have their new value, which was not the one they had before."""
        still = []
        for name, wanted in self.book.plan.settings.items():
            knob = knobs.find(name)
            variable = name.removeprefix("server.")
            value = _told(facts, name)
            if value is None or value == self.member.now.get(name):
                continue
            if means_the_same(variable, value, text_of(knob, wanted), facts.variables):
                still.append(f"{variable} = {value}")
        return still

    def _unlike_before(self, facts: HostFacts) -> list[str]:
        """The settings that have neither their new value nor the one that they had: a file, what starts the server
        or the limits that it gets were changed since the plan was made.
        """
        found = []
        for name, before in self.member.now.items():
            variable, value = name.removeprefix("server."), _told(facts, name)
            if value is not None and before and not means_the_same(variable, value, before, facts.variables):
                found.append(f"{variable} = {value}, and had {before} before")
        return found

    def _must_differ(self, facts: HostFacts) -> None:
        """Raises Moved if none of the values is another one."""
        now = {name: _told(facts, name) for name in self.member.now}
        # If no value is reported, having restarted is enough.
        told = [name for name, value in now.items() if value is not None]
        if told and all(now[name] == self.member.now[name] for name in told):
            raise Moved(
                "after the restart the server has the old values: something else sets them",
                place=self.member.name,
            )

    def _must_be_as_asked(self, facts: HostFacts) -> None:
        """Raises NotUp if the start made another value of one: what is judged then is not what was asked."""
        if other := self._unlike_asked(facts):
            raise NotUp(f"the server has {'; '.join(other)}: its start changed it", place=self.member.name)

    def _unlike_asked(self, facts: HostFacts) -> list[str]:
        other = []
        for name, wanted in self.book.plan.settings.items():
            variable, value = name.removeprefix("server."), _told(facts, name)
            asked = text_of(knobs.find(name), wanted)
            if value is not None and not means_the_same(variable, value, asked, facts.variables):
                other.append(f"{variable} = {value}, not {asked}")
        return other

    async def keep(self, change: str) -> None:
        """Raises Moved if the server has other values by now: somebody has set them, or restarted it once more."""
        if other := self._unlike_asked(HostFacts(await self.same_server())):
            raise Moved(
                f"since its restart the server got other values: {'; '.join(other)}", place=self.member.name
            )
        await super().keep(change)

    async def _enter(self) -> None:
        await self._up()
        await self._heard()
        await self._put_back()

    async def _heard(self) -> None:
        """The sampler lost the old server, and asks for the new one only now and then."""
        asked_ns = self.follower.last_ns

        async def is_heard() -> bool | None:
            return (self.follower.last_ns > asked_ns and not self.follower.problem) or None

        if not await _until(is_heard, READY_S):
            why = self.follower.problem or "no sample"
            raise TargetError(f"the server is up, but is not sampled: {why}", place=self.member.name)

    async def _put_back(self) -> None:
        await self._command("return", self.rule.put_back)
        self.book.note("in", host=self.member.name)

    async def _server_pid(self) -> int | None:
        try:
            return HostFacts(await self.agent.facts(self.login)).server_pid
        except HeadraceError:
            return None

    async def _up(self, before: int | None = None) -> HostFacts:
        """The server, once it answers and its replication has caught up; another process than ``before``."""
        limit = self.book.plan.rules.limits.lag_s
        why, is_old = "", False

        async def facts() -> HostFacts | None:
            nonlocal why, is_old
            try:
                found = await self.agent.facts(self.login)
            except HeadraceError as error:
                why = error.message
                return None
            if not HostFacts(found).variables:
                why = "no answer"
                return None
            is_old = before is not None and HostFacts(found).server_pid == before
            if is_old:
                return None
            why = f"it {behind}" if (behind := why_behind(found, limit)) else ""
            return None if why else HostFacts(found)

        found = await _until(facts, self.rule.start_s)
        if found is None and is_old:
            raise TargetError(
                f"the restart command succeeded, but the server is still process {before}",
                place=self.member.name,
            )
        if found is None:
            raise NotUp(f"the server is not up after {self.rule.start_s:g} s: {why}", place=self.member.name)
        return found

    async def warm(self, change: str = "") -> None:
        """Until its buffer pool is as warm as before its first restart. Raises Moved past the limit."""
        if self.member.name not in self.book.state.warmth:
            return
        pages, misses = self.book.state.warmth[self.member.name]
        share = self.rule.warm
        now: tuple[float, float | None] = (0.0, None)

        async def is_warm() -> bool | None:
            nonlocal now
            if change and self.follower.is_refused:
                raise NotUp(f"the server does not answer: {self.follower.problem}", place=self.member.name)
            now = self.follower.pool(STRETCH_S)
            is_full = now[0] >= share * pages
            is_hitting = now[1] is not None and now[1] * share <= misses
            return (is_full or is_hitting) or None

        # The samples of the new server, not those of the old one.
        await asyncio.sleep(min(STRETCH_S, self.book.plan.block_s))
        if not await _until(is_warm, self.rule.warm_s):
            found = "no queries" if now[1] is None else f"{now[1]:.3g} misses per query ({misses:.3g})"
            raise Moved(
                f"not as warm as before after {self.rule.warm_s:g} s: {now[0]:.0f} pages ({pages:.0f} before), "
                f"{found}",
                place=self.member.name,
            )

    def _environment(self) -> dict[str, str]:
        return {"HEADRACE_HOST": self.member.name, "HEADRACE_ADDRESS": self.member.host.spec.host}

    async def _command(self, verb: str, command: str, within_s: float | None = None) -> None:
        name = self.member.name
        is_here = self.rule.at == "controller" and verb != "restart"
        target: Target = LocalTarget() if is_here else self.agent.target
        lock = (
            str(lock_of(f"commands of {self.member.address}"))
            if is_here
            else f"{await state_folder(target)}/commands.lock"
        )
        env = {**self._environment(), "HEADRACE_VERB": verb}
        self.book.note("command", host=name, verb=verb)
        await run_alone(
            target,
            command,
            verb=verb,
            lock=lock,
            env=env,
            within_s=within_s or self.rule.within_s,
            place=name,
        )


def _told(facts: HostFacts, name: str) -> str | None:
    """What the server has of a setting. An allocator is no variable, but its process shows it."""
    if name == "server.allocator":
        return facts.server_allocator
    return facts.variable(name.removeprefix("server."))


async def _until(ask: Callable[[], Awaitable[T | None]], within_s: float) -> T | None:
    end = time.monotonic() + within_s
    while True:
        found = await ask()
        if found is not None or time.monotonic() > end:
            return found
        await asyncio.sleep(min(ASK_AGAIN_S, max(within_s / 10, GLANCE_S)))
