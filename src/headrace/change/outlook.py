"""What holds after a rollback: now, and at the next start of the server or the next boot of the host.

A rollback restores what ran. Whoever has run SET PERSIST, edited a file or restarted the server since has decided
what comes next, and that is not "undone".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.base.errors import HeadraceError, NotReady
from headrace.base.model import ServerLogin
from headrace.change.persist.boot import collect, other_at_boot
from headrace.change.persist.news import Ahead, ahead, variables_in
from headrace.change.persist.options import FILE
from headrace.host.agent import Agent
from headrace.host.agent.journal import Undone
from headrace.host.facts import HostFacts
from headrace.knobs.values import means_the_same

Entry = Mapping[str, Any]
#: The login of the host's own server, or None and why not.
Usual = Callable[[], Awaitable[tuple[ServerLogin | None, str]]]


@dataclass(frozen=True)
class Outlook:
    """``notes``: of each change that was undone what a person must know of it, empty if nothing. ``unknown`` says
    what could not be found out."""

    notes: tuple[str, ...]
    unknown: tuple[str, ...] = ()


def login_of(entry: Entry) -> ServerLogin | None:
    """How an entry's server was reached; None for what is about no server."""
    found = entry.get("login") or {}
    port = found.get("mysql_port")
    login = ServerLogin(
        socket=str(found.get("mysql_socket") or ""),
        host=str(found.get("mysql_host") or ""),
        port=int(port) if port else None,
        user=str(found.get("mysql_user") or ""),
        password_file=str(found.get("mysql_password_file") or ""),
        defaults_file=str(found.get("mysql_defaults_file") or ""),
        tls=str(found.get("mysql_tls") or ""),
        tls_ca=str(found.get("mysql_tls_ca") or ""),
    )
    return login if login.is_named else None


def server_name(login: ServerLogin) -> str:
    """A server as people know it, by its place."""
    return login.socket or (f"{login.host}:{login.port or 3306}" if login.host else login.defaults_file)


async def after(agent: Agent, undone: Sequence[Undone], entries: Sequence[Entry], usual: Usual) -> Outlook:
    """``entries`` are those of the journal before, newest first; ``usual`` is for what names no server itself."""
    theirs = _matched(undone, entries)
    notes, unknown = [""] * len(undone), []
    for server, rows in _by_server(undone, theirs).items():
        try:
            facts, found, sealed = await _asked(agent, undone, theirs, rows, server or await _found(usual))
        except HeadraceError as error:
            names = dict.fromkeys(_names(undone[row], theirs[row]) for row in rows)
            unknown.append(
                f"what the next start of the server makes of {', '.join(names)} is not known: {error.message}"
            )
            continue
        unknown += sealed
        own = {_variable(theirs[row]) for row in rows}
        for row in rows:
            notes[row] = _note(undone[row], theirs[row], found, facts, own)
    await _at_boot(agent, undone, theirs, notes, unknown)
    return Outlook(tuple(notes), tuple(unknown))


def _matched(undone: Sequence[Undone], entries: Sequence[Entry]) -> list[Entry]:
    left = list(entries)
    found: list[Entry] = []
    for each in undone:
        own = next(
            (entry for entry in left if entry["kind"] == each.kind and _is_about(each.what, entry)), {}
        )
        if own:
            left.remove(own)
        found.append(own)
    return found


def _is_about(what: str, entry: Entry) -> bool:
    if entry["kind"] == "file":
        subject = f"{'remove' if entry.get('content') is None else 'restore'} {entry.get('path')}"
    else:
        name, value = _first(entry)
        subject = f"{name} = {'NULL' if value is None else value}"
    # Nothing, or a note in brackets, follows.
    return what == subject or what.startswith(f"{subject} (")


def _first(entry: Entry) -> tuple[str, str | None]:
    first: Entry = next(iter(entry.get("restore") or ()), {})
    value = first.get("value")
    return str(first.get("name") or first.get("path") or ""), None if value is None else str(value)


def _variable(entry: Entry) -> str:
    return _first(entry)[0] if entry.get("kind") == "variable" else ""


async def _found(usual: Usual) -> ServerLogin:
    login, why_not = await usual()
    if login is None:
        raise NotReady(why_not)
    return login


def _by_server(undone: Sequence[Undone], theirs: Sequence[Entry]) -> dict[ServerLogin | None, list[int]]:
    """The rows about a server's options, by the server; a file is its neighbours' in the same set."""
    of_owner = {entry["owner"]: own for entry in theirs if entry and (own := login_of(entry))}
    found: dict[ServerLogin | None, list[int]] = {}
    for row, (each, entry) in enumerate(zip(undone, theirs, strict=True)):
        is_file = each.kind == "file" and str(entry.get("path") or "").endswith(f"/{FILE}")
        if entry and (each.kind == "variable" or is_file):
            server = login_of(entry) or of_owner.get(entry["owner"])
            found.setdefault(server, []).append(row)
    return found


async def _asked(
    agent: Agent,
    undone: Sequence[Undone],
    theirs: Sequence[Entry],
    rows: Iterable[int],
    server: ServerLogin,
) -> tuple[HostFacts, dict[str, Ahead], list[str]]:
    facts = HostFacts(await agent.facts(server))
    names: list[str] = []
    for row in rows:
        entry = theirs[row]
        names += [_variable(entry)] if undone[row].kind == "variable" else _options(entry, facts)
    found, unknown = await ahead(agent, names, facts)
    return facts, found, unknown


def _options(entry: Entry, facts: HostFacts) -> list[str]:
    """The variables that our file set and the one before it did not, or otherwise."""
    path, wrote, before = str(entry["path"]), str(entry.get("wrote") or ""), str(entry.get("content") or "")
    kept = set(before.splitlines())
    new = "\n".join(line for line in wrote.splitlines() if line not in kept or line.startswith("["))
    return variables_in(path, new, facts)


def _names(each: Undone, entry: Entry) -> str:
    return _variable(entry) or each.what


def _note(each: Undone, entry: Entry, found: Mapping[str, Ahead], facts: HostFacts, own: set[str]) -> str:
    if each.kind == "file":
        # What a variable's own row says is not said again.
        others = [found[name] for name in _options(entry, facts) if name in found and name not in own]
        return "; ".join(_of_file(other, facts) for other in others if _is_other(other, facts))
    name, original = _first(entry)
    if (seen := found.get(name)) is None:
        return ""
    return of_variable(each, original or "", seen, facts.variables)


def _is_other(seen: Ahead, facts: HostFacts) -> bool:
    return seen.next is None or not means_the_same(seen.variable, seen.running, seen.next, facts.variables)


def _of_file(seen: Ahead, facts: HostFacts) -> str:
    if seen.next is None:
        return f"{seen.variable} is {seen.running} now; what the next start makes of it is not known"
    return f"{seen.variable} is {seen.running} until the next start, and then {seen.next}: {seen.by} says so"


def of_variable(each: Undone, original: str, seen: Ahead, variables: Mapping[str, str]) -> str:
    """What is not as before of a variable that was set back, or was not; empty if all is."""
    is_now = means_the_same(seen.variable, seen.running, original, variables)
    is_then = seen.next is not None and means_the_same(seen.variable, original, seen.next, variables)
    then = f"the next start makes it {seen.next}: {seen.by} says so"
    if seen.next is None:
        then = "what the next start makes of it is not known"
    if not each.done:
        return "" if is_then else then
    if is_now and seen.next is None:
        return f"set back, and {then}"
    if is_now:
        return "" if is_then else f"set back for now only: {then}"
    return f"the server has {seen.running}, and {'the next start brings it back' if is_then else then}"


async def _at_boot(
    agent: Agent, undone: Sequence[Undone], theirs: Sequence[Entry], notes: list[str], unknown: list[str]
) -> None:
    rows = [row for row, each in enumerate(undone) if each.kind == "setting" and theirs[row]]
    rows = [row for row in rows if _first(theirs[row])[0].startswith(("/proc/sys/", "/sys/"))]
    if not rows:
        return
    try:
        found = await collect(agent.target)
    except HeadraceError as error:
        unknown.append(f"what the next boot makes of it is not known: {error.message}")
        return
    for row in rows:
        path, value = _first(theirs[row])
        if value is not None and (said := other_at_boot(found, path, value)):
            then = f"the next boot decides otherwise: {said[0]} ({said[1].strip()})"
            notes[row] = f"set back for now only: {then}" if undone[row].done else then
