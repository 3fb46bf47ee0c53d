"""Shared by `apply` and `rollback`: the last attempt, and what a start makes of a change."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headrace.base.encode import json_text
from headrace.base.errors import Busy, HeadraceError, NotReady, PlanError, Refused
from headrace.base.model import ServerLogin
from headrace.base.received import parsed
from headrace.change.commands.whose import what

if TYPE_CHECKING:
    from headrace.change.outlook import Outlook
    from headrace.change.persist.news import News
    from headrace.host.agent import Agent, Journal
    from headrace.host.agent.journal import Undone

_FILE = "attempts.json"
#: A user has this many targets, or those of the last time are forgotten.
_MOST = 200
#: A list is written within milliseconds.
_PATIENCE_S = 5.0


@dataclass
class Attempt:
    """What the last `apply` on a target came to. ``id`` is empty where it made no set of changes."""

    target: str
    #: The server that it named; empty without a login.
    server: str
    at_s: float
    id: str = ""
    what: str = "was refused and changed nothing"


@contextlib.contextmanager
def remembered(target: str, login: ServerLogin, *, counts: bool) -> Iterator[Attempt]:
    """The attempt that `apply` makes now, to be filled in: `rollback --last` is about no other without a word."""
    attempt = Attempt(_place(target), _server(login), time.time())
    try:
        yield attempt
    except (Refused, PlanError, NotReady, Busy, typer.BadParameter):
        raise
    except BaseException:
        # Not a word of a change that the host may have made.
        if attempt.what == Attempt.what:
            attempt.what = "failed, and what it changed is not known here"
        raise
    finally:
        if counts:
            attempt.at_s = time.time()
            _note(attempt)


def forget(target: str, login: ServerLogin) -> None:
    """What was made last was undone: the next is what was made before."""
    if noted := _last(target, login):
        _note(noted, is_over=True)


def made_last(target: str, login: ServerLogin) -> str:
    """The owner of what the last `apply` made; empty if it made nothing, or none is known."""
    noted = _last(target, login)
    return f"apply/{noted.id}" if noted and noted.id else ""


def _place(target: str) -> str:
    """A target's journal: this user may name another folder for it."""
    return " ".join(filter(None, (target, os.environ.get("HEADRACE_STATE"))))


def _server(login: ServerLogin) -> str:
    from headrace.change.outlook import server_name

    return server_name(login) if login.is_named else ""


def _last(target: str, login: ServerLogin) -> Attempt | None:
    """The last attempt on a target, of whatever server if none is named."""
    place, server = _place(target), _server(login)
    return next(
        (
            each
            for each in _noted()[::-1]
            if each.target == place and (not server or each.server in ("", server))
        ),
        None,
    )


def _noted() -> list[Attempt]:
    """Oldest first, one of each server."""
    from headrace.base.state import state_path

    try:
        return [
            Attempt(
                str(row["target"]), str(row["server"]), float(row["at_s"]), str(row["id"]), str(row["what"])
            )
            for row in parsed(state_path(_FILE).read_text())
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _note(attempt: Attempt, *, is_over: bool = False) -> None:
    from headrace.base.state import state_path
    from headrace.base.whole import write_whole

    own = (attempt.target, attempt.server)
    path = state_path(_FILE)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path.parent):
            kept = [each for each in _noted() if (each.target, each.server) != own]
            kept += [] if is_over else [attempt]
            write_whole(path, json_text([asdict(each) for each in kept[-_MOST:]]), 0o600)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other command reads and writes the list meanwhile: one of two rows would be lost. By the folder, because
    the list itself is replaced. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # A command that was stopped in these lines must not hold up every other.
                if time.monotonic() > until_s:
                    break
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def must_be_last(
    last: Mapping[str, Any], target: str, login: ServerLogin, kept: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Raises Refused if the set that was kept last is not what the last `apply` of this user made there.

    ``kept``: all sets, to say what became of that one.
    """
    noted = _last(target, login)
    name = str(last["owner"]).removeprefix("apply/")
    if noted is None or noted.id == name:
        return
    said = f"{noted.id} {noted.what}" if noted.id else noted.what
    if any(each["owner"] == f"apply/{noted.id}" for each in kept):
        said = f"{noted.id} is not the newest any more"
    other = f"{name} of {_utc(float(last['t_ns']) / 1e9)} ({what(last['entries'])})"
    raise Refused(
        f"the last apply {said}; what was kept last is another: {other}",
        place=target,
        hint=f"`headrace rollback` undoes what is open; if you mean that one: headrace rollback --id {name}",
    )


def told(last: Mapping[str, Any]) -> str:
    """What `rollback --last` takes back."""
    name = str(last["owner"]).removeprefix("apply/")
    return f"takes back {name} of {_utc(float(last['t_ns']) / 1e9)}: {what(last['entries'])}"


def _utc(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S UTC}"


async def before(journal: Journal) -> list[Mapping[str, Any]]:
    """The entries of a host's journal, open and kept, newest first."""
    kept = [entry for each in await journal.history() for entry in each["entries"]]
    return [*kept, *await journal.entries()][::-1]


async def after(
    agent: Agent, undone: Sequence[Undone], entries: Sequence[Mapping[str, Any]], login: ServerLogin
) -> Outlook:
    """What holds after a rollback: ``entries`` are those of before."""
    from headrace.change import outlook
    from headrace.host.login import usual_login

    usual = partial(usual_login, agent, login if login.is_named else None)
    return await outlook.after(agent, undone, entries, usual)


async def since(
    agent: Agent, entries: Sequence[Mapping[str, Any]], kept: Sequence[Mapping[str, Any]], login: ServerLogin
) -> list[News]:
    """What in our option files a server does not run with; empty without a server that can be asked."""
    from headrace.change.persist.news import files_in, news
    from headrace.host.facts import HostFacts
    from headrace.host.login import usual_login

    files = files_in([*entries, *(entry for each in kept for entry in each["entries"])])
    if not files:
        return []
    with contextlib.suppress(HeadraceError):
        found, _ = await usual_login(agent, login if login.is_named else None)
        if found is not None:
            return await news(agent, files, HostFacts(await agent.facts(found)))
    return []
