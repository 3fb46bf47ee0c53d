"""What is saturated, why, and a test for every fix: watching a live host, and evaluating the data.

Watching changes nothing on the host: the agent reads /proc, /sys and the server's own tables. Evaluation has no
side effects, so a saved snapshot gives the same result on any machine, and a newer headrace may find more in an
old one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from headrace import __version__
from headrace.base.errors import HeadraceError, NothingMeasured, NotReady, TargetError
from headrace.base.model import Facts, ServerLogin
from headrace.base.received import read_as_sent
from headrace.host import memcached
from headrace.host.activity import Looks
from headrace.host.agent import Agent, stop
from headrace.host.facts import HostFacts
from headrace.host.login import SEVERAL, usual_login
from headrace.host.samples import Samples, lines_of
from headrace.host.snapshot import Snapshot, is_saved, load
from headrace.host.target import FOLDER_VARIABLE, Target, leased_folder, to_the_end
from headrace.host.window import SERVER_SAMPLERS, Window
from headrace.hunt import admission
from headrace.hunt.resources import Verdict
from headrace.hunt.rules import Evidence, Finding, Judgement, all_rules, judge
from headrace.hunt.rules.cause import causes_first, conclude, is_full
from headrace.hunt.rules.rule import at

DEFAULT_SECONDS = 60.0
INTERVAL_S = 1.0
#: How long the sampler may take to exit after its last sample.
ENDING_S = 20.0
#: A profile of this many seconds has some hundred stacks of a busy server.
PROFILE_S = 10.0
#: Time for perf to resolve symbols after the recording.
PROFILE_LIMIT_S = 120.0
#: Times that a server is asked for its settings.
FACTS_TRIES = 3
#: Running statements in one look at the process list.
MOST_STATEMENTS = 1000

Listener = Callable[[float, float], None]
#: Looks at the list of sessions where nothing but SQL is known.
LOOK_S = 0.5
#: The agent pauses where answers are slow. Those of a distant server are, whatever they cost it.
UNPAUSED_LOOKS, UNPAUSED_SAMPLES = "--thorough", "--every-tick"


@dataclass(frozen=True)
class SqlOnly:
    """A server of which only SQL is to be used, ``why``, and what whoever asks knows of its host."""

    why: str = "only SQL was asked"
    cpus: int | None = None
    memory_bytes: int | None = None

    def facts(self, found: Facts, asked: str = "") -> Facts:
        """The server's part of facts that were collected from another host, marked as such; ``asked``: the name by
        which the server was reached."""
        settings = found.data.get("server_settings")
        data: dict[str, Any] = {
            "only_sql": self.why,
            "server_asked": found.data.get("server_asked") or asked,
            "given": {"cpus": self.cpus, "memory_bytes": self.memory_bytes},
            "server_settings": {**settings, "pid": None, "place": None} if settings else None,
            "errors": [each for each in found.data.get("errors") or () if not _is_path(each)],
        }
        return Facts(found.hash, data)


def _is_path(error: Mapping[str, Any]) -> bool:
    """Whether an error of facts is of the asking host's files, not of the server."""
    return str(error.get("path") or "").startswith(("/proc/", "/sys/", "/etc/"))


@dataclass(frozen=True)
class Hunt:
    """A snapshot and the conclusions from it; ``target`` and ``login`` are the options that it was made with."""

    snapshot: Snapshot
    evidence: Evidence
    judgement: Judgement
    target: tuple[str, ...] = ()
    login: tuple[str, ...] = ()

    def next_command(self, finding: Finding) -> str:
        """What to execute next, on the same host and server."""
        return at(finding.next_command, self.target, self.login)

    @cached_property
    def verdict(self) -> Verdict:
        """The resources' verdict with the causes that findings show."""
        return conclude(self.evidence, self.judgement)

    def finding(self, wanted: str) -> Finding | None:
        """A finding by its id (``NET01@eth0``), or by its code if that is unique."""
        found = [f for f in self.judgement.findings if wanted in (f.id, f.rule.code)]
        exact = [f for f in found if f.id == wanted]
        return exact[0] if exact else found[0] if len(found) == 1 else None


@read_as_sent("what the host answers")
def examine(snapshot: Snapshot) -> Hunt:
    """Evaluates every rule on a snapshot."""
    evidence = Evidence.of(snapshot)
    judgement = judge(evidence, all_rules())
    return Hunt(snapshot, evidence, causes_first(judgement, conclude(evidence, judgement)))


def saved(path: Path) -> Snapshot:
    """A saved hunt, a trial of an experiment, or what people have of a host and its server (``dumps``).

    Raises StoreError if it is none of these.
    """
    if is_saved(path):
        return load(path)
    from headrace.hunt import dumps

    return dumps.load(path)


def why_no_server(snapshot: Snapshot) -> str:
    """Why nothing is known of the host's server; empty if its settings are."""
    if snapshot.facts.data.get("server_settings"):
        return ""
    errors = snapshot.errors
    return errors.get("server") or errors.get("mysql_status") or "the server did not answer"


def refusal(snapshot: Snapshot) -> str:
    """Why a server that was asked was not examined; empty if it was, or if none was asked."""
    is_examined = bool(snapshot.facts.data.get("server_settings"))
    return "" if is_examined else refused(snapshot.errors)


def refused(errors: Mapping[str, str]) -> str:
    """Why the server did not let the sampler in, without what the sampler does next; empty if it did."""
    return admission.plain(errors.get("mysql_status", ""))


async def watch(
    target: Target,
    seconds: float = DEFAULT_SECONDS,
    login: ServerLogin | None = None,
    *,
    limits: Mapping[str, float] | None = None,
    alone_ms: Mapping[str, float] | None = None,
    profile: bool = False,
    thorough: bool = False,
    host_only: bool = False,
    sql_only: SqlOnly | None = None,
    must_choose: bool = False,
    listen: Listener = lambda done_s, total_s: None,
    when_refused: Callable[[str], None] = lambda why: None,
) -> Snapshot:
    """Samples a live host, or with ``sql_only`` a server alone, as the target reaches it.

    ``listen`` gets the progress in seconds; ``when_refused``, before anything is sampled, why the server that
    ``login`` names does not let us in. With ``profile`` the stacks of its busiest server are also recorded
    for some seconds, which costs the host more than all samplers together. ``thorough`` lifts the agent's limits
    on what it may cost the server. Without a ``login`` the host's only server is tried over its socket, unless
    ``host_only``. Raises NothingMeasured if no counter has two samples, TargetError if a server that is all there
    is to examine does not let us in; with ``must_choose`` also NotReady, before anything is sampled, if several
    servers run there and none is named.
    """
    agent = await Agent.install(target)
    is_wanted = login not in (None, ServerLogin()) and not host_only and not sql_only
    login, why_not = (None, "as asked (--host-only)") if host_only else await usual_login(agent, login)
    if must_choose and SEVERAL in why_not:
        raise NotReady(why_not, place=target.name, hint="--host-only, to examine the host alone")
    if is_wanted and (why := why_not or (await admission.why_not(agent, login) if login else "")):
        when_refused(why)
    # A server that is all there is to examine is asked first whether it lets us in.
    known = await _of_server(sql_only, agent, login, thorough, why_not) if sql_only else None
    caches = await memcached.begin(agent) if not sql_only else None
    started = datetime.now(UTC).isoformat(timespec="seconds")
    async with leased_folder(target) as folder:
        more = ["--thorough"] if thorough else []
        looks, every_s = ([UNPAUSED_LOOKS], LOOK_S) if sql_only else (more, INTERVAL_S)
        looking = asyncio.create_task(_look(agent, seconds, login, looks, every_s))
        if sql_only:
            more = [*more, UNPAUSED_SAMPLES, "--samplers", ",".join(SERVER_SAMPLERS)]
        try:
            samples = await _sample(agent, f"{folder}/samples.jsonl.zst", seconds, login, listen, more)
        except BaseException:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            raise
        seen = await caches.end() if caches else memcached.NOTHING
        seen_sessions = await looking
        # Not into a file here: a kill would leave it.
        stream = await target.read(samples)
        found = await asyncio.to_thread(Samples.read, stream, seen.records)
        errors = await asyncio.to_thread(sampler_errors, stream)
    facts = known or seen.added_to(await _facts(agent, login, thorough))
    if why_not:
        errors["server"] = why_not
    stacks = await _profile(agent, facts, min(seconds, PROFILE_S), errors) if profile else ""
    window = Window(found)
    if window.seconds <= 0:
        raise NothingMeasured(
            "the host was not sampled twice", place=target.name, hint="watch longer: --duration 10s"
        )
    return Snapshot(
        target.name,
        started,
        window.seconds,
        facts,
        found,
        errors,
        dict(limits or {}),
        stacks,
        __version__,
        dict(alone_ms or {}),
        seen_sessions.activity(set(window.values("processlist", "own"))) if seen_sessions else None,
    )


async def _of_server(
    sql_only: SqlOnly, agent: Agent, login: ServerLogin | None, thorough: bool, why_not: str
) -> Facts:
    """The facts of a server alone. Raises TargetError if it does not let us in."""
    facts = await agent.facts(login, thorough=thorough)
    if not facts.data.get("server_settings") and login and any(map(is_full, _refusals(facts))):
        facts = await _facts(agent, login, thorough)
    if facts.data.get("server_settings"):
        return sql_only.facts(facts, login.host if login else "")
    why = why_not or next(iter(_refusals(facts)), "the server did not answer")
    hint = "name the server and its account: --mysql-host, --mysql-user, --mysql-password-file"
    if is_full(why):
        hint = (
            "log in by a way that is kept free: the port of extra_port (MariaDB) or admin_port (MySQL), or an "
            "account with CONNECTION ADMIN (SUPER)"
        )
    raise TargetError(f"the server was not examined: {why}", place=agent.target.name, hint=hint)


def _refusals(facts: Facts) -> list[str]:
    return [str(each.get("error")) for each in facts.data.get("errors") or () if not _is_path(each)]


async def _sample(
    agent: Agent,
    output: str,
    seconds: float,
    login: ServerLogin | None,
    listen: Listener,
    more: Sequence[str] = (),
) -> str:
    """Runs the sampler for this long. On cancellation it is stopped, and waited for."""
    options = ["--interval", f"{round(INTERVAL_S * 1000)}ms", "--duration", f"{max(round(seconds), 2)}s"]
    options += more
    process = await agent.spawn(
        *("sample", *options, "--output", output, *(login.argv if login else ())),
        env={FOLDER_VARIABLE: output.rpartition("/")[0]},
    )
    start = time.monotonic()
    try:
        while True:
            done = time.monotonic() - start
            listen(min(done, seconds), seconds)
            if done > seconds + ENDING_S:
                await process.signal("TERM")
            with contextlib.suppress(TimeoutError):
                code = await process.wait(min(1.0, max(seconds - done, 0.1)))
                break
    except BaseException:
        await to_the_end(stop(process))
        raise
    await agent.ended(process, code)
    return output


async def _facts(agent: Agent, login: ServerLogin | None, thorough: bool) -> Facts:
    """The facts of the host and its server; a server that is too busy to let us in is asked again."""
    for _ in range(FACTS_TRIES - 1):
        facts = await agent.facts(login, thorough=thorough)
        if login is None or not login.is_named or facts.data.get("server_settings"):
            return facts
        await asyncio.sleep(INTERVAL_S)
    return await agent.facts(login, thorough=thorough)


async def _look(
    agent: Agent,
    seconds: float,
    login: ServerLogin | None,
    more: Sequence[str],
    every_s: float,
) -> Looks | None:
    """What the server executed and who waited for whose lock; None without a server."""
    if login is None or not login.is_named:
        return None
    looks = Looks()
    # Of a server whose connections are all taken there may be one left for an administrator: it is the sampler's.
    await asyncio.sleep(INTERVAL_S)
    seconds -= INTERVAL_S
    options = ["--every", f"{round(every_s * 1000)}ms", "--duration", f"{max(round(seconds), 2)}s"]
    options += more
    try:
        async with asyncio.timeout(seconds + ENDING_S):
            async with agent.lines(
                "statements", *options, "--limit", str(MOST_STATEMENTS), *login.argv
            ) as lines:
                async for line in lines:
                    looks.add(line)
    except (HeadraceError, TimeoutError) as error:
        looks.add({"error": str(error) or "the server did not answer"})
    return looks


async def _profile(agent: Agent, facts: Facts, seconds: float, errors: dict[str, str]) -> str:
    """Folded stacks of the server's CPU time; if they are missing, ``errors`` says why."""
    servers = HostFacts(facts).servers
    asked = (facts.data.get("server_settings") or {}).get("pid")
    pids = [server["pid"] for server in servers if asked in (None, server["pid"])]
    if len(pids) != 1:
        errors["stacks"] = f"{len(pids)} servers to choose from: select one with --mysql-socket"
        return ""
    options = ["--pid", str(pids[0]), "--seconds", str(max(round(seconds), 1))]
    try:
        return await agent.text("stacks", *options, timeout_s=seconds + PROFILE_LIMIT_S)
    except HeadraceError as error:
        errors["stacks"] = error.message
        return ""


def sampler_errors(stream: Path | bytes) -> dict[str, str]:
    """Sampler -> why it has no values, for those that never succeeded."""
    failed: dict[str, str] = {}
    succeeded: set[str] = set()
    for line in lines_of(stream):
        # Parse only failures: a successful sampler's line may be 100 KB.
        head = line[:200]
        if '"ok":false' in head:
            record = json.loads(line)
            failed[record["sampler"]] = record["error"]
        elif '"sampler":"' in head:
            succeeded.add(head.partition('"sampler":"')[2].partition('"')[0])
    return {sampler: error for sampler, error in failed.items() if sampler not in succeeded}
