"""Whose changes `apply --confirm` and `rollback` are about: the named server's, and no running rollout's.

What is left is named, with the command that is about it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.base.errors import HeadraceError, Refused
from headrace.base.model import ServerLogin

if TYPE_CHECKING:
    from headrace.host.agent import Agent, Journal
    from headrace.host.agent.journal import Undone

Entry = Mapping[str, Any]
_PREFIX = "apply/"
#: The kernel has no bound for overcommit_ratio, but nobody promises a hundred times the memory.
MOST_PER_CENT = 10_000
#: As ``apply.new_id`` makes them; a rollout puts its own name before.
_OWN = re.compile(r"apply/\d{8}-\d{6}-[0-9a-f]{4}")


@dataclass(frozen=True)
class Named:
    """The server that a command names: its identities if it answers, else the login decides. Without a login the
    command is about every server of the host."""

    login: ServerLogin
    identities: frozenset[str]

    @classmethod
    async def asked(cls, agent: Agent, login: ServerLogin) -> Named:
        from headrace.host.facts import HostFacts

        found: frozenset[str] = frozenset()
        if login.is_named:
            with contextlib.suppress(HeadraceError):
                found = HostFacts(await agent.facts(login)).server_identities
        return cls(login, found)

    def is_other(self, entries: Iterable[Entry]) -> bool:
        """Whether a set of changes is about servers, and not about this one."""
        about = [entry for entry in entries if entry.get("kind") in ("variable", "restart")]
        return self.login.is_named and bool(about) and all(self._is_other(entry) for entry in about)

    def _is_other(self, entry: Entry) -> bool:
        from headrace.change.outlook import login_of, server_name

        server = (entry.get("start") or {}).get("server")
        if self.identities and server:
            return server not in self.identities
        # One of the two is not known: then another login may be another server, and its change is left.
        own = login_of(entry)
        return own is not None and server_name(own) != server_name(self.login)


def what(entries: Iterable[Entry]) -> str:
    """The settings of a set of changes, with their server."""
    names = [name for entry in entries if (name := _name(entry))]
    places = list(dict.fromkeys(place for entry in entries if (place := where(entry))))
    return ", ".join(dict.fromkeys(names)) + (f" of the server at {' and '.join(places)}" if places else "")


def _name(entry: Entry) -> str:
    first = first_set(entry.get("restore") or [{}], str(entry.get("wrote") or ""))
    return str(first.get("name") or first.get("path") or entry.get("path") or entry.get("kind") or "")


def first_set(restore: Sequence[Entry], wrote: str) -> Entry:
    """What an entry set: the first to be restored, but of a coupled pair that may be the other one.

    The journal keeps no more than the order of the way back, so the value decides: no ratio is above 100, and the
    kernel takes no amount below two pages. Where both are possible both are named.
    """
    names = [str(each.get("path") or "").rpartition("/")[2] for each in restore]
    halves = [name.rpartition("_")[2] for name in names]
    if len(restore) != 2 or "ratio" not in halves or not wrote.isdigit():
        return restore[0]
    share, amount = sorted(restore, key=lambda each: not str(each.get("path")).endswith("_ratio"))
    if "bytes" in halves and wrote != "0":
        return share if int(wrote) <= 100 else amount
    is_amount = str(amount.get("value")) != "0" or int(wrote) > MOST_PER_CENT
    if int(wrote) > 100 and "kbytes" in halves and is_amount:
        return amount
    if int(wrote) <= 100 and str(share.get("value")) != "0":
        return share
    return {**share, "path": f"{share.get('path')} or {str(amount.get('path')).rpartition('/')[2]}"}


def where(entry: Entry) -> str:
    """The place of an entry's server; empty for what is the host's."""
    from headrace.change.outlook import login_of, server_name

    own = login_of(entry)
    return server_name(own) if own else ""


def by_owner(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Those of `apply` and of rollouts, newest owner first."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        if str(entry["owner"]).startswith(_PREFIX):
            found.setdefault(str(entry["owner"]), []).append(entry)
    return dict(reversed(found.items()))


def is_rollouts(owner: str) -> bool:
    return owner.startswith(_PREFIX) and _OWN.fullmatch(owner) is None


@dataclass(frozen=True)
class Moment:
    """A host's own time: its boot, and how long ago that was."""

    boot_id: str
    uptime_ns: int

    @classmethod
    async def now(cls, agent: Agent) -> Moment:
        uptime = (await agent.target.read("/proc/uptime")).split()[0]
        boot = await agent.target.read("/proc/sys/kernel/random/boot_id")
        return cls(boot.decode().strip(), round(float(uptime) * 1e9))


def awaits(entry: Entry, now: Moment) -> bool:
    """Whether it still waits for its confirmation: after the deadline, or a boot, anybody may undo it."""
    deadline = entry.get("deadline")
    if deadline is None or entry.get("boot_id", now.boot_id) not in ("", now.boot_id):
        return False
    return int(deadline["uptime_ns"]) > now.uptime_ns


@dataclass(frozen=True)
class Chosen:
    """``owners`` are undone; ``left`` is why others are not, a sentence each."""

    owners: tuple[str, ...]
    left: tuple[str, ...]


def choose(entries: Sequence[Entry], named: Named, now: Moment) -> Chosen:
    """What a `rollback` without a name is about. Raises Refused if that is several servers and none was named."""
    owners, left = [], []
    servers: dict[str, str] = {}
    for owner, own in by_owner(entries).items():
        name = owner.removeprefix(_PREFIX)
        if named.is_other(own):
            left.append(
                f"left: {name} is of another server or login ({what(own)}): headrace rollback --id {name}"
            )
        elif is_rollouts(owner) and any(awaits(entry, now) for entry in own):
            left.append(f"left: {name} is on trial by a rollout ({what(own)}): headrace rollback --id {name}")
        else:
            owners.append(owner)
            servers |= {place: name for entry in own if (place := where(entry))}
    if len(servers) > 1 and not named.login.is_named:
        listed = "; ".join(f"{name} at {place}" for place, name in servers.items())
        raise Refused(
            f"changes of several servers are open: {listed}",
            hint="name the server (--mysql-socket, --mysql-host) or the change (--id), or --everyone for all",
        )
    return Chosen(tuple(owners), tuple(left))


async def roll_back_open(
    agent: Agent, journal: Journal, login: ServerLogin, *, everyone: bool, accept_foreign: bool
) -> tuple[list[Undone], list[str]]:
    """What is open and ours to undo, and what was left. ``everyone``: of every owner, but of the named server."""
    from headrace.host.agent import Journal

    entries = await journal.entries()
    named = await Named.asked(agent, login)
    if everyone:
        whose: dict[str, list[Entry]] = {}
        for entry in entries:
            whose.setdefault(str(entry["owner"]), []).append(entry)
        others = {owner: own for owner, own in whose.items() if named.is_other(own)}
        if not others:
            return await journal.rollback(everyone=True, accept_foreign=accept_foreign), []
        left = [
            f"left: changes of {owner} are of another server ({what(own)})" for owner, own in others.items()
        ]
        owners = [owner for owner in reversed(whose) if owner not in others]
    else:
        chosen = choose(entries, named, await Moment.now(agent))
        left, owners = list(chosen.left), list(chosen.owners)
        if not left:
            return await journal.rollback(accept_foreign=accept_foreign), []
    undone: list[Undone] = []
    for owner in owners:
        # Not as `kept`: what was confirmed meanwhile is not open any more, and stays.
        undone += await Journal(agent, owner).rollback(accept_foreign=accept_foreign)
    return undone, left


async def undo_overdue(
    agent: Agent, journal: Journal, login: ServerLogin, mine: str, *, accept: bool
) -> tuple[list[Undone], list[str], bool]:
    """Undo what no confirmation can keep any more, of whatever server: a killed call's, or past its deadline.

    Also what of it was left, and whether any of it was about the named server and not older than ``mine``: a
    server that hangs keeps nobody from undoing what was done elsewhere, or since. ``accept`` closes ours where
    another program has set the value.
    """
    from headrace.host.agent import Journal

    named = await Named.asked(agent, login)
    overdue = by_owner(await _overdue(agent, journal))
    ours = {owner for owner, own in overdue.items() if not named.is_other(own)}
    undone = await journal.undo_overdue()
    if all(each.done for each in undone):
        return undone, [], bool(ours)
    stuck = by_owner(await _overdue(agent, journal))
    # Their names begin with their time.
    ours -= {owner for owner in ours & stuck.keys() if mine and owner < mine and not accept}
    left = [
        f"left: {name} could not be undone ({what(own)}): headrace rollback --id {name} tries again and says why"
        for owner, own in stuck.items()
        if owner not in ours
        for name in [owner.removeprefix(_PREFIX)]
    ]
    if accept or not ours & stuck.keys():
        undone = [each for each in undone if each.done]
        for owner in ours & stuck.keys():
            undone += await Journal(agent, owner).rollback(accept_foreign=True)
    return undone, left, bool(ours)


async def _overdue(agent: Agent, journal: Journal) -> list[Entry]:
    now = await Moment.now(agent)
    return [entry for entry in await journal.entries() if entry.get("deadline") and not awaits(entry, now)]


async def is_open(journal: Journal, owner: str) -> bool:
    """Whether changes of this owner are open that no deadline undoes: a rollback of kept ones that failed."""
    own = [entry for entry in await journal.entries() if entry["owner"] == owner]
    return bool(own) and not any(entry.get("deadline") for entry in own)


async def is_there(journal: Journal, owner: str) -> bool:
    """Whether changes of this owner are open, or kept."""
    return any(each["owner"] == owner for each in [*await journal.entries(), *await journal.history()])


async def to_confirm(agent: Agent, journal: Journal, login: ServerLogin) -> tuple[list[str], list[str]]:
    """The changes that a `confirm` without a name may be about, and others that wait."""
    entries = [entry for entry in await journal.entries() if entry.get("deadline")]
    named = await Named.asked(agent, login)
    found = by_owner(entries)
    mine = [owner for owner, own in found.items() if not is_rollouts(owner) and not named.is_other(own)]
    others = [
        f"{owner.removeprefix(_PREFIX)} ({what(own)})" for owner, own in found.items() if owner not in mine
    ]
    return [owner.removeprefix(_PREFIX) for owner in mine], others


async def last_kept(agent: Agent, journal: Journal, login: ServerLogin) -> Mapping[str, Any] | None:
    """The set that was kept last. Raises Refused if it is of another server than the named one, or a rollout's."""
    kept = await journal.history()
    if not kept:
        return None
    last = kept[-1]
    name = str(last["owner"]).removeprefix(_PREFIX)
    named = await Named.asked(agent, login)
    if named.is_other(last["entries"]):
        own = [each for each in reversed(kept) if not named.is_other(each["entries"])]
        mine = str(own[0]["owner"]).removeprefix(_PREFIX) if own else ""
        raise Refused(
            f"what was kept last is of another server: {name} ({what(last['entries'])})",
            place=agent.target.name,
            hint=f"the last of this one: headrace rollback --id {mine}" if mine else None,
        )
    if is_rollouts(str(last["owner"])):
        raise Refused(
            f"what was kept last was made by a rollout: {name} ({what(last['entries'])})",
            place=agent.target.name,
            hint=f"headrace rollout undoes it with its log; alone: headrace rollback --id {name}",
        )
    return last


async def release(agent: Agent, journal: Journal, files: Iterable[str]) -> list[str]:
    """Close what keeps our own files: changes whose undo failed because somebody has edited the file since.

    The file stays as it was edited. Other settings could not be made to last otherwise.
    """
    from headrace.host.agent import Journal

    paths = set(files)
    entries = await journal.entries()
    if not paths or not entries:
        return []
    now = await Moment.now(agent)
    told = []
    for owner, own in by_owner(entries).items():
        # With anything else in it nobody has judged whether its value may stay.
        is_ours = all(e.get("kind") == "file" and e.get("path") in paths and e.get("deadline") for e in own)
        if not is_ours or is_rollouts(owner) or any(awaits(entry, now) for entry in own):
            continue
        undone = await Journal(agent, owner).rollback(accept_foreign=True)
        name = owner.removeprefix(_PREFIX)
        told += [f"closed {name}: {each.what}" for each in undone if each.done]
    return told


async def stuck_hint(agent: Agent, journal: Journal, message: str) -> str | None:
    """How to go on where a change that cannot be undone keeps a setting; None if the message is about no such."""
    match = re.search(r"changes of (apply/\S+) that hold it", message)
    if not match:
        return None
    own = [entry for entry in await journal.entries() if entry["owner"] == match[1]]
    now = await Moment.now(agent)
    if not own or any(awaits(entry, now) for entry in own):
        return None
    name = match[1].removeprefix(_PREFIX)
    return (
        f"{name} ({what(own)}) is past its time and could not be undone: headrace rollback --id {name} says why; "
        "if another program has set it since, --accept-foreign keeps that value and closes the entry"
    )
