"""Follows every host and writes its minutes.

A host has one stream of samples however many look at it: the pages' live figures and the history come from it.
Time on the host is never trusted for the order of minutes. Nor is the clock of this machine trusted for more than
the name of a minute: a minute that is in the history already is not written again, and this is said; what is of a
time that cannot be yet is set aside; nothing is deleted by the clock alone (``headrace.history.archive.elapsed``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.base.counted import counted
from headrace.base.errors import DiskFull, HeadraceError, placed
from headrace.base.received import BadContent
from headrace.change.apply import OWNER
from headrace.fleet.host import Host
from headrace.history.archive.elapsed import Elapsed
from headrace.history.archive.files import DAY_S, HOUR_S, MINUTE_S, Archive
from headrace.history.archive.rollup import WEEKS_FOR_S, Keep, roll_up, trim, weekly
from headrace.history.archive.tables import STATES, TABLES
from headrace.history.collect import bounds, minute, plans, slow_log
from headrace.history.collect.clients import Clients
from headrace.history.collect.sources import Source
from headrace.history.collect.watched import Watched, watched
from headrace.host.activity import Looks
from headrace.host.agent import Agent, Journal
from headrace.host.facts import HostFacts
from headrace.host.moved import differences
from headrace.hunt.live import Link, rows_of
from headrace.hunt.rules import Evidence, all_rules, judge
from headrace.hunt.rules.cause import causes_first, conclude

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.history.archive.mirror import Mirror

log = logging.getLogger("headrace.web")

#: The process list is looked at this often, and rarer where that costs the server more than 1% of its time.
LOOK_EVERY_S = 2
WINDOW_S = 60.5
MOST_STATEMENTS = 1000
#: Hours are rolled up this long after they ended, when all their minutes are written.
SETTLED_S = 90
#: How often the history is rolled up and trimmed.
KEEP_HOUSE_EVERY_S = 600.0
#: The share of all files that their age may delete at a time.
SHARE = 0.05
#: How often what is new is copied to the object store, if there is one.
COPY_EVERY_S = 60.0
NO_SERVER = "no server to query: set one with --mysql-socket or --mysql-host"
#: Rows that are of a moment, not of the minute that they are written with.
OF_A_MOMENT = {"changes", "plans"}
#: Hosts whose problem the pages say.
MOST_SAID = 3
#: How often the server's settings are read, and whether its slow log is still the one that is followed.
SETTINGS_EVERY_S, LOG_CHECKED_S = 45.0, 2.0
#: How often a host's journal of changes is read.
JOURNAL_EVERY_S = 60.0


async def journal_rows(agent: Agent) -> dict[str, minute.Row]:
    """The journal's open and kept changes by a unique key, at most as many as a host can have."""
    journal = Journal(agent, OWNER)
    found: dict[str, minute.Row] = {}
    for entry in (await journal.entries())[: bounds.MOST_ROWS]:
        row = _change(entry, str(entry.get("owner", "")), "applied", float(entry.get("t_ns") or 0) / 1e9)
        found[f"open {row['who']} {row['what']} {row['after']}"] = row
    for kept in await journal.history():
        for entry in kept["entries"][: bounds.MOST_ROWS - len(found)]:
            row = _change(entry, str(kept["owner"]), "confirmed", kept["t_ns"] / 1e9)
            found[f"kept {kept['t_ns']} {row['what']}"] = row
    return found


def _change(entry: Mapping[str, Any], owner: str, kind: str, at_s: float) -> minute.Row:
    restore = (entry.get("restore") or [{}])[0]
    name = (
        restore.get("path")
        or restore.get("name")
        or entry.get("path")
        or entry.get("backing")
        or entry["kind"]
    )
    texts = {"what": name, "before": restore.get("value"), "after": entry.get("wrote"), "who": owner}
    cut = {key: text if text is None else str(text)[: bounds.MOST_NAME] for key, text in texts.items()}
    return {"kind": kind, **cut, "at_s": at_s or time.time()}


def journal_changes(before: Mapping[str, minute.Row], now: Mapping[str, minute.Row]) -> list[minute.Row]:
    """What was applied, confirmed or rolled back between two looks at a journal."""
    new = [row for key, row in now.items() if key not in before]
    confirmed = {(row["what"], row["after"]) for row in new if row["kind"] == "confirmed"}
    gone = [row for key, row in before.items() if key not in now and row["kind"] == "applied"]
    return new + [undone_row(row) for row in gone if (row["what"], row["after"]) not in confirmed]


def undone_row(row: minute.Row) -> minute.Row:
    """An open change that is in the journal no more and was not confirmed."""
    return {**row, "kind": "rolled back", "before": row["after"], "after": row["before"], "at_s": time.time()}


class Collector:
    """Collects hosts into an archive until it is cancelled."""

    def __init__(
        self,
        archive: Archive,
        hosts: Sequence[Host],
        keep: Keep | None = None,
        *,
        slow_log: str = "auto",
        with_examples: bool = False,
        with_plans: bool = False,
        mirror: Mirror | None = None,
        clients: Sequence[Source] = (),
    ) -> None:
        """``slow_log``: a path on the hosts, ``auto`` for the one that the server writes, or ``off``."""
        self.archive = archive
        self.slow_log = slow_log
        self.with_examples = with_examples
        self.with_plans = with_plans
        self.keep = keep or Keep()
        self.hosts: Mapping[str, Watched] = {host.name: watched(host) for host in hosts}
        self.clients = Clients(archive, clients, self.hosts) if clients else None
        #: Why nothing is collected now; empty while all is well.
        self.problem = ""
        #: What of the history could not be rolled up or trimmed, and of which hosts.
        self.house_problem = ""
        #: Why the history is not copied now.
        self.mirror_problem = ""
        #: What is wrong with the clock of this machine.
        self.clock_problem = ""
        #: When something was written last, by the clock that nobody sets.
        self.last_write = 0.0
        self._house_at = 0.0
        self._mirror = mirror
        self._ahead = 0
        self._newest_s = dict.fromkeys(self.hosts, 0)
        self.elapsed = Elapsed(
            archive.root, max((file.end_s for file in archive.files(STATES.name)), default=0)
        )

    @property
    def attention(self) -> str:
        """What a reader of any page has to know; empty if all is well."""
        said = [f"{self.problem}. Pages show what was collected before."] if self.problem else []
        flooded = [f"{each.name} ({each.left_out})" for each in self.hosts.values() if each.left_out]
        if flooded:
            said.append(f"More rows a minute than a host can have are left out: {_listed(flooded)}.")
        wrong = [f"{each.name} ({each.refused})" for each in self.hosts.values() if each.refused]
        if wrong:
            said.append(f"Rows with numbers that cannot be are refused: {_listed(wrong)}.")
        said += [f"{self.clients.problem}."] if self.clients and self.clients.problem else []
        said += [f"{self.clock_problem}."] if self.clock_problem else []
        said += [f"{self.house_problem}."] if self.house_problem else []
        return " ".join([*said, *([f"{self.mirror_problem}."] if self.mirror_problem else [])])

    async def run(self) -> None:
        """Follow all hosts, and write each minute."""
        self.archive.clear_drafts()
        asked = [each for each in self.hosts.values() if not each.host.why_not]
        loops: list[Callable[[Watched], Coroutine[Any, Any, None]]] = [
            self._follow,
            self._look,
            self._journal,
        ]
        loops += [self._log, self._settings] if self.slow_log != "off" else []
        loops += [plans.follow] if self.with_plans else []
        tasks = [asyncio.create_task(loop(each)) for each in asked for loop in loops]
        tasks += [asyncio.create_task(self._copy(self._mirror))] if self._mirror else []
        tasks += [asyncio.create_task(self.clients.run())] if self.clients else []
        try:
            while True:
                end_s = (time.time() // MINUTE_S + 1) * MINUTE_S
                # Until the clock is there, or was set back: its seconds may be longer than those of a sleep.
                while end_s - 2 * MINUTE_S < time.time() < end_s:  # noqa: ASYNC110 - a clock has no event
                    await asyncio.sleep(end_s - time.time() + 0.05)
                await self.write((int(time.time()) // MINUTE_S - 1) * MINUTE_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _copy(self, mirror: Mirror) -> None:
        """Beside the collection: a store may be slow, or away."""
        while True:
            await asyncio.sleep(COPY_EVERY_S)
            try:
                await asyncio.to_thread(mirror.copy, self.elapsed.at_s)
                self.mirror_problem = mirror.waiting
            except HeadraceError as error:
                self.mirror_problem = f"the history is not copied: {error}"
                log.warning("%s", self.mirror_problem)
            except Exception as error:
                self.mirror_problem = f"the history is not copied: {type(error).__name__}: {error}"
                log.exception("the copy of the history")

    async def _follow(self, each: Watched) -> None:
        while True:
            try:
                await each.feed.run()
            except HeadraceError as error:
                # No agent, or a wrong address: it may be mended while we run.
                each.feed.link, each.feed.problem = Link.LOST, error.message
            except Exception as error:
                log.exception("%s", each.name)
                each.feed.link, each.feed.problem = Link.LOST, f"{type(error).__name__}: {error}"
            await asyncio.sleep(15)

    async def _look(self, each: Watched) -> None:
        """The process list, in one run of the agent per minute: its last line has the texts of the digests."""
        while True:
            try:
                await self._look_for_a_minute(each)
            except (HeadraceError, OSError, TimeoutError) as error:
                each.listed_problem = str(error)
                await asyncio.sleep(5)
            except Exception as error:
                log.exception("the process list of %s", each.name)
                each.listed_problem = f"{type(error).__name__}: {error}"
                await asyncio.sleep(5)

    async def _look_for_a_minute(self, each: Watched) -> None:
        agent, login = each.feed.agent, each.feed.login
        if agent is None or login is None or not login.is_named:
            each.listed_problem = each.feed.no_login or NO_SERVER
            await asyncio.sleep(1)
            return
        looks = Looks()
        left = max(MINUTE_S - time.time() % MINUTE_S - 1, 4)
        options = [
            "--every",
            f"{LOOK_EVERY_S}s",
            "--duration",
            f"{left:.0f}s",
            "--limit",
            str(MOST_STATEMENTS),
        ]
        async with agent.lines("statements", *options, *login.argv) as lines:
            async for line in lines:
                try:
                    each.listed, each.listed_problem = rows_of(line), str(line.get("error") or "")
                except BadContent as error:
                    each.listed, each.listed_problem = [], str(error)
                    continue
                looks.add(line)
                each.listed_at_s = time.time()
                each.feed.looked(line.get("statements", []))
        each.activity = looks.activity()

    async def _journal(self, each: Watched) -> None:
        """What headrace changed on the host, from its journal there."""
        known: dict[str, minute.Row] = {}
        while True:
            agent = each.feed.agent
            if agent is None:
                await asyncio.sleep(2)
                continue
            try:
                found = await journal_rows(agent)
            except Exception as error:
                # Whatever the host answered: the next look may be right.
                log.debug("the journal of %s: %s: %s", each.name, type(error).__name__, error)
            else:
                bounds.add(each.pending, "changes", minute.change_rows(journal_changes(known, found)))
                known = found
            await asyncio.sleep(JOURNAL_EVERY_S)

    async def _log(self, each: Watched) -> None:
        """The server's slow log, as long as it writes one: another file, once the server writes another."""
        while True:
            path = self._log_of(each)
            agent = each.feed.agent
            if agent is None or not path:
                await asyncio.sleep(2)
                continue
            following = asyncio.ensure_future(
                slow_log.follow(agent, path, each.pending, with_examples=self.with_examples)
            )
            try:
                while not following.done() and self._log_of(each) == path:
                    _, waits = await asyncio.wait([following], timeout=LOG_CHECKED_S)
                    each.log_problem = "" if waits else each.log_problem
                if following.done():
                    following.result()
                else:
                    each.log_problem = ""
                    log.info("the slow log of %s is no longer %s", each.name, path)
                    continue
            except Exception as error:
                each.log_problem = error.message if isinstance(error, HeadraceError) else str(error)
                log.debug("the slow log of %s: %s: %s", each.name, type(error).__name__, error)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            await asyncio.sleep(5)

    def _log_of(self, each: Watched) -> str:
        return self.slow_log if self.slow_log != "auto" else slow_log.path_of(each.feed.facts)

    async def _settings(self, each: Watched) -> None:
        """The server's settings, so often that a page says nothing of a source that was changed a minute ago."""
        while True:
            await asyncio.sleep(SETTINGS_EVERY_S)
            agent, login = each.feed.agent, each.feed.login
            if agent is None or login is None or not login.is_named or each.feed.facts is None:
                continue
            try:
                each.feed.facts = await agent.facts(login)
            except Exception as error:
                log.debug("the settings of %s: %s: %s", each.name, type(error).__name__, error)

    async def write(self, t_s: int) -> None:
        """Write the minute that starts at ``t_s`` for every host. A full disk stops this, and no page."""
        problems: list[str] = []
        known: list[str] = []
        try:
            self.elapsed.now_s()
            for each in self.hosts.values():
                if each.host.why_not:
                    continue
                if await asyncio.to_thread(self._is_known, each, t_s):
                    # The clock went back: drop counts that would inflate the next minute.
                    for name in each.pending.keys() - OF_A_MOMENT:
                        del each.pending[name]
                    known.append(each.name)
                    continue
                if why := await self._write_host(each, t_s):
                    problems.append(placed(each.name, why))
                else:
                    self.last_write = time.monotonic()
            if time.monotonic() - self._house_at > KEEP_HOUSE_EVERY_S:
                self._house_at = time.monotonic()
                await asyncio.to_thread(self._keep_house, t_s)
            self.problem = _said(problems)
            self.clock_problem = "; ".join(self._about_the_clock(t_s, known))
        except DiskFull as error:
            full = f"nothing is collected: {error.message}"
            # Once, not each minute: a log on the same disk has no room either.
            if full != self.problem:
                log.warning("%s", full)
            self.problem = full
            with contextlib.suppress(HeadraceError):
                await asyncio.to_thread(trim, self.archive, self.elapsed.now_s(), self.keep, SHARE)
        except HeadraceError as error:
            self.problem = f"nothing is collected: {error}"
            log.warning("%s", self.problem)
        except Exception as error:
            # The pages stay up, and say so; the next minute is tried again.
            self.problem = f"nothing is collected: {type(error).__name__}: {error}"
            log.exception("the minute of %s", t_s)

    async def _write_host(self, each: Watched, t_s: int) -> str:
        """Why a host's minute is not written; empty if it is. Raises DiskFull, which stops all of them.

        Whatever else is wrong with one host, the others keep their minute.
        """
        pending = {name: each.pending.pop(name) for name in list(each.pending)}
        try:
            found = await asyncio.to_thread(self._rows, each, t_s, pending)
            rows, each.left_out = bounds.bounded(found, each.feed.ring.taken_left_out())
            tables, each.refused = await asyncio.to_thread(bounds.possible, rows, t_s)
            if each.left_out or each.refused:
                what = {"left out": each.left_out, "refused": each.refused}
                said = "; ".join(f"{how}: {rows_of}" for how, rows_of in what.items() if rows_of)
                log.warning("the minute %s of %s: %s", t_s, each.name, said)
            await asyncio.to_thread(self._write, each.name, t_s, tables)
        except DiskFull:
            raise
        except HeadraceError as error:
            log.warning("the minute %s of %s: %s", t_s, each.name, error)
            return str(error)
        except Exception as error:
            log.exception("the minute %s of %s", t_s, each.name)
            return f"{type(error).__name__}: {error}"
        each.written_s = t_s
        self._newest_s[each.name] = max(self._newest_s[each.name], t_s)
        return ""

    def _is_known(self, each: Watched, t_s: int) -> bool:
        """Whether the history has this minute of a host, from before the clock was set back."""
        if not self._newest_s[each.name]:
            self._newest_s[each.name] = self.archive.last_minute_s(each.name)
        return t_s <= self._newest_s[each.name] and self.archive.has_minute(each.name, t_s)

    def _about_the_clock(self, t_s: int, known: Sequence[str]) -> Iterator[str]:
        if known:
            yield (
                f"the minute {_time(t_s)} of {_listed(known)} is not collected: the history has it already, "
                "because the clock of this machine was set back"
            )
        if self.elapsed.ahead_s:
            yield (
                f"the clock of this machine is {self.elapsed.ahead_s / DAY_S:,.1f} days ahead of what passed for "
                "the history, so nothing is deleted for its age yet: if the clock is right, restart headrace "
                "serve with --clock-is-right"
            )
        if self.elapsed.behind_s:
            yield (
                f"the clock of this machine is {self.elapsed.behind_s / DAY_S:,.1f} days behind what passed for "
                "the history: minutes are kept under its times, which have passed already; set it right"
            )
        if self._ahead:
            yield f"set aside as *.ahead: {counted(self._ahead, 'file')} of times that cannot be yet"

    def _trim(self) -> None:
        now_s = self.elapsed.now_s()
        # What a clock that was ahead wrote: neither that clock nor the history's own time is there yet.
        self._ahead += self.archive.set_aside_from(max(time.time(), self.elapsed.at_s) + HOUR_S)
        self.elapsed.keep()
        trim(self.archive, now_s, self.keep, SHARE)

    def _keep_house(self, t_s: int) -> None:
        """Trim first, by the names of files only: no limit may depend on what a host wrote. Then roll up each
        host: what is wrong with one costs only that one.
        """
        wrong: list[str] = []

        def attempt(what: str, work: Callable[[], object]) -> None:
            try:
                work()
            except DiskFull:
                raise
            except Exception as error:
                known = isinstance(error, HeadraceError)
                log.warning("%s: %s", what, error, exc_info=not known)
                wrong.append(f"{what}: {error if known else f'{type(error).__name__}: {error}'}"[:300])

        attempt("limits of the history", self._trim)
        # Include hosts no longer watched: their last hours are rolled up like all others.
        for name in self.archive.hosts():
            attempt(name, partial(roll_up, self.archive, name, t_s - SETTLED_S))
        until_s = time.monotonic() + WEEKS_FOR_S
        for name in self.archive.hosts():
            left_s = until_s - time.monotonic()
            attempt(name, partial(weekly, self.archive, t_s - SETTLED_S, left_s, [name]))
        self.house_problem = f"the history is not kept as it should be: {_listed(wrong)}" if wrong else ""

    def _rows(
        self, each: Watched, t_s: int, pending: Mapping[str, list[minute.Row]]
    ) -> dict[str, list[minute.Row]]:
        """The rows of a minute, by table."""
        found = {name: list(rows) for name, rows in pending.items()}
        known = each.feed.known
        if not each.is_fresh or known is None:
            found["states"] = [minute.lost_row(each.problem or each.feed.facts_problem or "no samples")]
            return found
        window = each.feed.ring.window(WINDOW_S)
        # Taken: what was seen in one minute is not seen again in the next.
        activity, each.activity = each.activity, None
        evidence = Evidence(known, window, activity=activity)
        judgement = judge(evidence, all_rules())
        verdict = conclude(evidence, judgement)
        each.judgement = causes_first(judgement, verdict)
        each.verdict = verdict
        counted = each.counted.rows(window, t_s)
        each.busiest = plans.busiest([*counted, *found.get("classes", [])], found.get("examples", []))
        seen, texts = minute.seen_rows(activity)
        texts += minute.digest_texts(activity) + minute.session_texts(activity)
        found["sessions"] = minute.session_rows(evidence.load)
        found["changes"] = found.get("changes", []) + self._changes(each)
        found["resources"] = minute.resource_rows(verdict)
        found["metrics"] = minute.metric_rows(window, HostFacts(known))
        found["classes"] = found.get("classes", []) + counted + seen
        found["texts"] = self._new_texts(each, found.get("texts", []) + texts, t_s)
        if len(judgement.findings) > minute.MOST_FINDINGS:
            left = {"table": "findings", "rows": len(judgement.findings) - minute.MOST_FINDINGS}
            found[bounds.LEFT_OUT] = [*found.get(bounds.LEFT_OUT, []), left]
        # The last one: its row says that the minute is there.
        found["states"] = [minute.state_row(verdict, each.judgement, min(window.seconds, 60.0))]
        return found

    def _new_texts(self, each: Watched, rows: list[minute.Row], t_s: int) -> list[minute.Row]:
        """Texts not yet written today, as far as is remembered."""
        day = t_s // DAY_S
        if len(each.texts) > minute.MOST_REMEMBERED:
            each.texts.clear()
        new = {(row["source"], row["class"]): row for row in rows}
        new = {key: row for key, row in new.items() if each.texts.get(key) != day}
        each.texts |= dict.fromkeys(new, day)
        return list(new.values())

    def _changes(self, each: Watched) -> list[minute.Row]:
        """What differs from the facts that were seen last."""
        now = each.feed.facts
        before, each.facts = each.facts, now
        if before is None or now is None or before.hash == now.hash:
            return []
        return minute.change_rows(
            [
                {"kind": "settings", "what": each.what, "before": each.before, "after": each.after}
                | {"at_s": time.time()}
                for each in differences(before, now)
            ]
        )

    def _write(self, host: str, t_s: int, tables: Mapping[str, pa.Table]) -> None:
        # The states last: that row says that the minute is there.
        for name in sorted(tables, key=lambda each: each == STATES.name):
            self.archive.write(TABLES[name], host, "m", t_s, tables[name])


def _said(problems: Sequence[str]) -> str:
    """Why nothing of some hosts was written."""
    return f"nothing is collected of {_listed(problems)}" if problems else ""


def _time(t_s: float) -> str:
    return f"{datetime.fromtimestamp(t_s, UTC):%Y-%m-%d %H:%M} UTC"


def _listed(said: Sequence[str]) -> str:
    more = f"; and {len(said) - MOST_SAID} more" if len(said) > MOST_SAID else ""
    return f"{'; '.join(said[:MOST_SAID])}{more}"
