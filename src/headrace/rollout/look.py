"""What a plan must know of a host: its role, its load, and what the settings are there now."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.base.encode import json_text
from headrace.base.errors import NotReady, Refused
from headrace.base.model import Facts, ServerLogin, Value
from headrace.change import apply as rollout
from headrace.fleet.host import Host
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts, likeness
from headrace.host.login import usual_login
from headrace.host.memcached.probing import fair
from headrace.host.target import Target
from headrace.knobs.catalogue import Cost
from headrace.rollout.plan import HAS_IT, Role, Seen, seen_of
from headrace.rollout.watch import Follower

#: Queries per second are counted over this.
LOAD_S = 3
#: What takes a restart is written into files, whatever is to last.
LASTING = "files"
NO_LOGIN = ServerLogin()


async def look(
    target: Target,
    host: Host,
    settings: Mapping[str, Value],
    allow_weaker: Sequence[str],
    lasting: str,
    *,
    may_restart: bool = False,
    gets_per_s: float | None = None,
) -> dict[str, Any]:
    """One host's answer, for ``seen``; ``gets_per_s`` is of a probe of memcached.

    Raises PlanError or Refused where the settings cannot be made there.
    """
    agent = await Agent.install(target)
    if host.memcached:
        return await _look_at_cache(agent, host, settings, allow_weaker, lasting, gets_per_s)
    login, why_not = await usual_login(agent, host.login)
    if login is None:
        raise await _without_login(agent, host, why_not)
    prepared = await _prepared(agent, host, settings, login, allow_weaker, lasting, may_restart=may_restart)
    later = [step for step in prepared.steps if not step.changes]
    if boots := [step.name for step in later if step.note != rollout.AFTER[Cost.RESTART]]:
        raise Refused(f"{', '.join(boots)} takes a reboot, which a rollout does not do", place=host.name)
    facts = await agent.facts(login)
    follower = Follower()
    words = ["--interval", "1s", "--duration", f"{LOAD_S}s", "--samplers", "mysql_status"]
    async with agent.samples(*words, *login.argv) as lines:
        await follower.read(lines)
    per_s = follower.since(0).per_s
    if per_s is None:
        raise NotReady(f"its counters cannot be read: {follower.problem}", place=host.name)
    now = {step.name: step.before for step in prepared.steps}
    wanted = {step.name: step.value for step in prepared.steps}
    answer = seen_of(dataclasses.replace(host, login=login), facts.data, per_s, now)
    own = {"restarts": bool(later), "kind": _kind(facts), "files": sorted(prepared.files)}
    return {**answer, "is_so_already": now == wanted, **own}


async def _look_at_cache(
    agent: Agent,
    host: Host,
    settings: Mapping[str, Value],
    allow_weaker: Sequence[str],
    lasting: str,
    gets_per_s: float | None,
) -> dict[str, Any]:
    """The same of a host that is there for memcached. Raises Refused also for what is no setting of a host."""
    if of_mysql := [name for name in settings if name.startswith("server.")]:
        raise Refused(
            f"{of_mysql[0]} is a setting of MySQL, and the host is there for memcached", place=host.name
        )
    prepared = await rollout.prepare(agent, settings, NO_LOGIN, allow_weaker=allow_weaker, lasting=lasting)
    if later := [step.name for step in prepared.steps if not step.changes]:
        raise Refused(f"{', '.join(later)} takes a reboot, which a rollout does not do", place=host.name)
    facts = await agent.facts()
    # Asked from where the probe will run.
    asked = await asyncio.to_thread(fair, host.memcached, gets_per_s)
    now = {step.name: step.before for step in prepared.steps}
    wanted = {step.name: step.value for step in prepared.steps}
    answer = seen_of(dataclasses.replace(host, login=NO_LOGIN), facts.data, asked.looked.requests_per_s, now)
    own = {
        "role": Role.CACHE,
        "identity": f"{answer['hostname']} {host.memcached}",
        "gets_per_s": round(asked.gets_per_s, 3),
        "restarts": False,
        "files": sorted(prepared.files),
    }
    return {**answer, **own, "is_so_already": now == wanted}


async def _without_login(agent: Agent, host: Host, why_not: str) -> NotReady:
    has_cache = any(each["program"] == "memcached" for each in HostFacts(await agent.facts()).servers)
    hint = "to judge it by its memcached: memcached = ':PORT' in the fleet's file" if has_cache else None
    return NotReady(why_not or "no server login", place=host.name, hint=hint)


async def _prepared(
    agent: Agent,
    host: Host,
    settings: Mapping[str, Value],
    login: ServerLogin,
    allow_weaker: Sequence[str],
    lasting: str,
    *,
    may_restart: bool,
) -> rollout.Plan:
    try:
        found = await rollout.prepare(agent, settings, login, allow_weaker=allow_weaker, lasting=lasting)
    except rollout.NeedsRestart as error:
        if not may_restart:
            raise _unsaid(error.place or host.name) from error
        # What holds after a restart must be in a file before it.
        return await rollout.prepare(agent, settings, login, allow_weaker=allow_weaker, lasting=LASTING)
    if not may_restart and any(step.note == rollout.AFTER[Cost.RESTART] for step in found.steps):
        raise _unsaid(host.name)
    return found


def _unsaid(place: str) -> Refused:
    return Refused(
        "takes a restart, and the stages file does not say how",
        place=place,
        hint="its table [restart] needs the commands that drain the server, restart it and return it",
    )


def _kind(facts: Facts) -> str:
    """The same for hosts that are equal: hardware, system, server and its buffer pool."""
    own, known = likeness(facts), HostFacts(facts)
    memory = own.pop("memory", None)
    own["memory"] = round(memory / 2**30) if memory else None
    own["server"] = [known.server_vendor, known.server_version, known.variable("innodb_buffer_pool_size")]
    return hashlib.sha256(json_text(own, sort_keys=True).encode()).hexdigest()[:12]


def seen(host: Host, answer: Mapping[str, Any]) -> Seen:
    """A host with its answer."""
    with_login = dataclasses.replace(host, login=ServerLogin(**answer["login"]))
    return Seen(
        with_login,
        Role(answer["role"]),
        str(answer["identity"]),
        tuple(answer["links"]),
        float(answer["per_s"]),
        dict(answer["now"]),
        str(answer["hostname"]),
        str(answer.get("kind") or ""),
        bool(answer.get("restarts")),
        str(answer.get("server_id") or ""),
        str(answer.get("cluster") or ""),
        int(answer.get("cluster_size") or 0),
        tuple(answer.get("files") or ()),
        float(answer.get("gets_per_s") or 0.0),
    )


def split(hosts: Iterable[tuple[Host, Mapping[str, Any]]]) -> tuple[list[Seen], dict[str, str]]:
    """Those to be changed, and those that have the values already."""
    found, out = [], {}
    for host, answer in hosts:
        if answer["is_so_already"]:
            out[host.name] = HAS_IT
        else:
            found.append(seen(host, answer))
    return found, out
