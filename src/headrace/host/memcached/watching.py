"""Finds the memcached servers of a host, and asks them twice, or as long as the host is followed."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from headrace.base.encode import json_text
from headrace.base.errors import HeadraceError
from headrace.base.model import Facts
from headrace.base.received import ANY, MOST_NUMBER, BadContent, parsed
from headrace.host.agent import Agent
from headrace.host.facts import HostFacts
from headrace.host.memcached.options import started
from headrace.host.target import Target

PROGRAM = "memcached"
#: Beside memcached's own numbers: how long it took to answer ``stats``, asked from its own host, in seconds.
ANSWER = "headrace answer_s"
#: Stores of the same kind that are recognised, and not examined.
NOT_COVERED = ("dragonfly", "keydb-server", "redis-server", "valkey-server")
#: A host may take this long for all of its servers; each of them has its own limit, in ``ask``.
ANSWER_S = 15.0
#: How often a host that is followed is asked which servers run there, and how long a restart is told.
FIND_EVERY_S, RESTARTED_S = 60.0, 75.0
#: Their Python, where it is not in the PATH: Red Hat's own tools use this one.
PYTHONS = ("python3", "/usr/libexec/platform-python")
#: Prints nothing where there are none. A process may end meanwhile.
_FIND = "cd /proc && grep -Hsx {names} [0-9]*/comm || :"
#: Isolated, so that no module of the directory that it starts in is taken for one of Python's own.
_RUN = (
    'script=$1; shift; for each in "$@"; do command -v "$each" >/dev/null 2>&1 && exec "$each" -I -c "$script"; '
    "done; exit 127"
)
NO_PYTHON = "this host has no python3, by which it is read"


@dataclass(frozen=True)
class Seen:
    """What was seen in a window: ``records`` are lines as the sampler's, ``facts`` what the host's facts have as
    ``memcached``."""

    records: tuple[Mapping[str, Any], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def added_to(self, facts: Facts) -> Facts:
        """The host's facts with these; their hash stays that of the host's configuration."""
        return Facts(facts.hash, {**facts.data, PROGRAM: dict(self.facts)}) if self.facts else facts


NOTHING = Seen()


@dataclass
class Watch:
    """Servers that were asked once. ``end`` asks them again."""

    agent: Agent
    servers: Sequence[Mapping[str, Any]]
    not_covered: Sequence[Mapping[str, Any]]
    first: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    async def end(self) -> Seen:
        """Raises nothing: what went wrong is why a server was not read."""
        last = await _ask(self.agent.target, self.servers, self.first, is_last=True)
        both = seen(self.first, last)
        return Seen(both.records, {**both.facts, "not_covered": list(self.not_covered)})


def seen(first: Mapping[int, Mapping[str, Any]], last: Mapping[int, Mapping[str, Any]]) -> Seen:
    """What servers said at two times, by process id: ``address``, and ``replies`` or ``error``."""
    records: list[Mapping[str, Any]] = []
    rows: list[dict[str, Any]] = []
    names = _names([{**first.get(pid, {}), **last[pid]} for pid in last])
    for pid, newest in last.items():
        name = names[pid]
        was, now = first.get(pid, {}).get("replies"), newest.get("replies")
        is_anew = bool(was and now and _uptime(now) < _uptime(was))
        for replies in (None if is_anew else was, now):
            records += _records(name, replies) if replies else ()
        rows.append(_row(pid, name, newest, now or was or {}, is_anew=is_anew))
    return Seen(tuple(records), {"instances": rows})


@dataclass
class Rounds:
    """The servers of a host that is followed: ``ask`` them again and again.

    Which servers there are is looked for at first, every minute, and once one of them stops to answer.
    """

    agent: Agent
    _watch: Watch | None = None
    _find_at_s: float = 0.0
    _answers: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    #: Name -> its uptime when it answered last, and when that was seen to fall.
    _uptimes: dict[str, float] = field(default_factory=dict)
    _restarts_s: dict[str, float] = field(default_factory=dict)

    async def ask(self) -> Seen:
        """One look at each of them. Raises HeadraceError if the host does not say which servers there are."""
        now_s, before = time.monotonic(), self._answers
        if now_s >= self._find_at_s:
            self._watch, self._find_at_s = await begin(self.agent), now_s + FIND_EVERY_S
            self._answers = self._watch.first if self._watch else {}
        elif self._watch:
            self._answers = await _ask(self.agent.target, self._watch.servers, before)
        if self._watch is None:
            return NOTHING
        if any(before.get(pid, {}).get("replies") and "error" in each for pid, each in self._answers.items()):
            self._find_at_s = 0.0
        records: list[Mapping[str, Any]] = []
        rows: list[dict[str, Any]] = []
        names = _names(list(self._answers.values()))
        for pid, answer in self._answers.items():
            name, replies = names[pid], answer.get("replies") or {}
            if replies:
                records += _records(name, replies)
                if _uptime(replies) < self._uptimes.get(name, 0.0):
                    self._restarts_s[name] = now_s
                self._uptimes[name] = _uptime(replies)
            is_anew = now_s - self._restarts_s.get(name, -RESTARTED_S) < RESTARTED_S
            rows.append(_row(pid, name, answer, replies, is_anew=is_anew))
        return Seen(_at_once(records), {"instances": rows, "not_covered": list(self._watch.not_covered)})


def _at_once(records: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """One line a sampler, as the agent writes for all of its labels. Of the times the first: one server that is
    slow to answer does not move those of the others."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        known = found.setdefault(record["sampler"], {**record, "values": {}})
        known["t_ns"] = min(known["t_ns"], record["t_ns"])
        for metric, labels in record["values"].items():
            known["values"].setdefault(metric, {}).update(labels)
    return tuple(found.values())


def _row(
    pid: int, name: str, newest: Mapping[str, Any], replies: Mapping[str, Any], *, is_anew: bool
) -> dict[str, Any]:
    """A server as the facts have it."""
    return {
        "pid": pid,
        "name": name,
        "why": newest.get("error") or None,
        "version": replies.get("stats", {}).get("version"),
        "settings": replies.get("settings") or {},
        "is_restarted": is_anew,
        "connections": replies.get("connections"),
    }


async def begin(agent: Agent) -> Watch | None:
    """Asks the memcached servers of the agent's host once; None if there is none, nor one of its kind."""
    found = await _find(agent.target)
    if not found:
        return None
    not_covered = [{"program": program, "pid": pid} for program, pid in found if program != PROGRAM]
    servers: list[Mapping[str, Any]] = []
    if any(program == PROGRAM for program, _ in found):
        servers = [each for each in HostFacts(await agent.facts()).servers if each["program"] == PROGRAM]
    return Watch(agent, servers, not_covered, await _ask(agent.target, servers, {}))


async def once(agent: Agent) -> Seen:
    """How the servers of the agent's host are configured, from one look at each."""
    return await Rounds(agent).ask()


async def _find(target: Target) -> list[tuple[str, int]]:
    """Program and process id of what runs there, by the names that the kernel knows; empty where it cannot be
    looked."""
    names = " ".join(f"-e {name}" for name in (PROGRAM, *NOT_COVERED))
    try:
        done = await target.run(["sh", "-c", _FIND.format(names=names)], check=False, repeatable=True)
    except HeadraceError:
        return []
    rows = (line.partition("/comm:") for line in done.text.splitlines())
    return sorted((name, int(pid)) for pid, _, name in rows if pid.isdecimal())


async def _ask(
    target: Target,
    servers: Sequence[Mapping[str, Any]],
    before: Mapping[int, Mapping[str, Any]],
    *,
    is_last: bool = False,
) -> dict[int, Mapping[str, Any]]:
    """Process id -> ``address`` and ``replies``, or ``error``."""
    answers: dict[int, Mapping[str, Any]] = {}
    groups: dict[int | None, list[dict[str, Any]]] = {}
    for server in servers:
        pid = server["pid"]
        known = before.get(pid, {}).get("address")
        begun = started([str(word) for word in server.get("command_line") or ()])
        if begun.locked:
            where = next(iter((*map(str, server.get("sockets") or ()), *begun.addresses)), None)
            answers[pid] = {"pid": pid, "address": where, "error": begun.locked}
            continue
        addresses = [known] if known else [*map(str, server.get("sockets") or ()), *begun.addresses]
        # Another process's network is reached from within it alone.
        place = pid if "net" in (server.get("namespaces") or ()) else None
        groups.setdefault(place, []).append(
            {"pid": pid, "addresses": addresses, "is_known": bool(known), "with_connections": is_last}
        )
    for found in await asyncio.gather(*(_ask_in(target, place, asked) for place, asked in groups.items())):
        answers |= found
    return {server["pid"]: answers[server["pid"]] for server in servers}


async def _ask_in(
    target: Target, place: int | None, asked: Sequence[Mapping[str, Any]]
) -> dict[int, Mapping[str, Any]]:
    script = (files("headrace.host.memcached") / "ask.py").read_text()
    enter = ["nsenter", "-t", str(place), "-n", "--"] if place is not None else []
    # Here the program that runs headrace is there in any case.
    pythons = [*PYTHONS, *([sys.executable] if target.name == "local" else [])]
    why = ""
    try:
        content = json_text(list(asked)).encode()
        argv = [*enter, "sh", "-c", _RUN, "sh", script, *pythons]
        done = await target.run(argv, stdin=content, timeout_s=ANSWER_S, check=False, repeatable=True)
        if done.exit_code == 0:
            return {int(each["pid"]): each for each in parsed(done.stdout, ANY)}
        words = done.error_text.strip().splitlines()[-1:] or ["it did not run"]
        why = NO_PYTHON if done.exit_code == 127 else f"asking it failed: {words[0][:200]}"
        if place is not None and done.exit_code != 127:
            why = f"it has a network of its own, which only root may enter: {words[0][:200]}"
    except (HeadraceError, BadContent, KeyError, TypeError, ValueError) as error:
        why = f"asking it failed: {error}"
    return {int(each["pid"]): {"pid": each["pid"], "error": why} for each in asked}


def _names(answers: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Each by its address; by its process id too where another one has the same, or it has none."""
    addresses = [str(each.get("address") or "") for each in answers]
    return {
        int(each["pid"]): address
        if address and addresses.count(address) == 1
        else f"{address or PROGRAM} (pid {each['pid']})"
        for each, address in zip(answers, addresses, strict=True)
    }


def _uptime(replies: Mapping[str, Any]) -> float:
    return _number(replies["stats"].get("uptime", "")) or 0.0


def _number(text: str) -> float | None:
    """None if it is none, or one that no counter has."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= MOST_NUMBER else None


def _records(name: str, replies: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Two lines as the sampler writes them: of the server, and of its slab classes."""
    of_server = {what: {name: value} for what, value in _numbers(replies["stats"])}
    if "answer_ns" in replies:
        of_server[ANSWER] = {name: replies["answer_ns"] / 1e9}
    of_classes: dict[str, dict[str, float]] = {}
    for what, value in (*_numbers(replies.get("slabs") or {}), *_numbers(replies.get("items") or {})):
        words = what.removeprefix("items:").split(":")
        if len(words) == 2 and words[0].isdecimal():
            of_classes.setdefault(words[1], {})[f"{name}#{words[0]}"] = value
    for sampler, values in (("memcached", of_server), ("memcached_slabs", of_classes)):
        yield {"t_ns": replies["t_ns"], "sampler": sampler, "ok": True, "cost_ns": 0, "values": values}


def _numbers(rows: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for what, text in rows.items():
        if (value := _number(text)) is not None:
            yield what, value
