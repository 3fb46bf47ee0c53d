"""Rollouts as pages: their stages and verdicts; approving a stage, and taking all of it back.

What a person may do here is what the command line does: the same book, the same lock, the same log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headrace.base.errors import Busy, HeadraceError, PlanError, Refused, StoreError
from headrace.host.moved import unlike
from headrace.rollout import approvals
from headrace.rollout import book as books
from headrace.rollout.book import Book
from headrace.rollout.pairs import taken_back
from headrace.rollout.report import expected
from headrace.rollout.report import rollout as report
from headrace.web.asked import Asked
from headrace.web.guard import address_of
from headrace.web.listing import Column, Listing, address
from headrace.web.sessions import NOT_NOTED
from headrace.web.site import Site

log = logging.getLogger("headrace.web")

#: Lines of a log that are shown: the newest.
MOST_EVENTS = 200


async def listing(site: Site, asked: Asked) -> Listing:
    """Rollouts that were planned on this machine, newest first."""
    found = await asyncio.to_thread(books.every)
    rows = [
        {
            "id": book.plan.id,
            "state": _word(book),
            "settings": report.settings(book.plan),
            "hosts": len(book.plan.members),
            "stages": f"{len(book.state.passed)} of {len(book.plan.stages)}",
            "sentence": report.sentence(book.state),
            "lab": expected.sentence(book),
            "last_s": book.events[-1]["t"] if book.events else None,
        }
        for book in reversed(found)
    ]
    columns = (
        Column("id", "Rollout", "code", link=lambda row: address("/rollout", id=row["id"])),
        Column("state", "State", "chip"),
        Column("settings", "Settings", "code"),
        Column("hosts", "Hosts", "n"),
        Column("stages", "Stages passed"),
        Column("sentence", "What happened"),
        Column("lab", "Lab and production"),
        Column("last_s", "Last event", "time"),
    )
    note = " ".join(expected.history_sentences(expected.history(found))) if _names_any(found) else ""
    return Listing(
        columns,
        rows,
        note=note,
        empty="No rollout was planned on this machine. headrace rollout plan makes one.",
    )


def _names_any(found: Sequence[Book]) -> bool:
    return any(book.plan.expected for book in found)


def _word(book: Book) -> str:
    state = book.state
    if state.is_finished and not state.aborting:
        return "finished"
    if state.aborting:
        return "taken back" if state.is_aborted else "restoring"
    return "waits" if state.paused else "running" if state.is_started else "planned"


def opened(identity: str) -> Book:
    """By the whole hash of its plan."""
    try:
        book = Book.open(identity)
    except PlanError:
        raise HTTPException(404, "no such rollout") from None
    if book.plan.id != identity:
        raise HTTPException(404, "no such rollout")
    return book


def shown(book: Book) -> dict[str, Any]:
    """What the page needs."""
    state = book.state
    stages = []
    waiting = ""
    for stage in book.plan.stages:
        word, why, _ = report.standing(book, stage)
        if not waiting and stage.name not in state.passed:
            waiting = stage.name if stage.needs_approval else "-"
        stages.append(
            {
                "stage": stage.name,
                "verdict": word,
                "effect": report.effect(state, stage),
                "why": why,
                "pairs": report.measured(state, stage),
                "hosts": ", ".join(stage.hosts),
                "approved_by": (state.approvals.get(stage.name) or {}).get("by", ""),
            }
        )
    is_open = not state.is_over and not state.aborting
    first = next((each for each in book.plan.stages if each.name not in state.passed), None)
    is_stuck = (
        is_open and first is not None and book.lacks_verdict(first) and not _is_promoted(book, first.name)
    )
    approval = state.approvals.get(waiting)
    return {
        "plan": book.plan,
        "settings": report.settings(book.plan),
        "state": _word(book),
        "sentence": report.sentence(state),
        "stages": Listing(_STAGES, stages),
        "hosts": Listing(_HOSTS, [_host(book, name) for name in book.plan.members]),
        "lab": Listing(
            _LAB,
            [vars(row) for row in expected.stages(book)],
            note=" ".join(expected.plan_sentences(book.plan)),
            empty="No stage has a verdict that compares with it yet.",
        )
        if book.plan.expected
        else None,
        "events": Listing(_EVENTS, [_event(each) for each in reversed(book.events[-MOST_EVENTS:])]),
        "waiting": waiting if is_open and waiting != "-" else "",
        "approval": approval,
        # Only on the command line: what nothing has judged is no button.
        "unjudged": book.unjudged_command(first) if first and is_stuck else "",
        "is_approved": bool(approval and not approvals.why_over(approval)),
        "may_abort": not state.is_aborted and (state.is_started or bool(state.kept or state.open)),
        "is_asked": bool(book.stop_asked()) and not state.is_aborted,
    }


def _is_promoted(book: Book, stage: str) -> bool:
    """Whether a person has promoted it without a verdict, and that still holds."""
    approval = book.state.approvals.get(stage) or {}
    return bool(approval.get("is_unjudged")) and not approvals.why_over(approval)


def _host(book: Book, name: str) -> dict[str, Any]:
    member = book.plan.members[name]
    return {
        "host": name,
        "role": str(member.role),
        "state": book.state.host(name),
        "now": ", ".join(
            f"{knob}={unlike(str(value), str(book.plan.settings.get(knob, '')))[0]}"
            for knob, value in member.now.items()
        ),
        "per_s": member.per_s,
        "note": book.state.why_left(name),
    }


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    about = {
        key: value for key, value in event.items() if key in ("by", "why", "reason", "outcome", "change")
    }
    return {
        "t": event.get("t"),
        "kind": event.get("kind"),
        "stage": event.get("stage", ""),
        "host": event.get("host", ""),
        "about": "; ".join(f"{key}: {value}" for key, value in about.items()),
    }


_STAGES = (
    Column("stage", "Stage"),
    Column("verdict", "Verdict", "chip"),
    Column("effect", "Effect on time"),
    Column("why", "Why"),
    Column(
        "pairs",
        "Pairs",
        "n",
        "pairs of blocks with and without the change; with restarts: blocks of pairs after the restart",
    ),
    Column("hosts", "Hosts"),
    Column("approved_by", "Approved by"),
)
_LAB = (
    Column("stage", "Stage"),
    Column("lab", "Lab"),
    Column("production", "Production"),
    Column("agreement", "Agreement"),
)
_HOSTS = (
    Column("host", "Host"),
    Column("role", "Role"),
    Column("state", "State", "chip"),
    Column("now", "Before", "code", "the settings when the plan was made"),
    Column("per_s", "Queries/s", "n", "when the plan was made"),
    Column("note", "Note"),
)
_EVENTS = (
    Column("t", "When", "time"),
    Column("kind", "Event", "chip"),
    Column("stage", "Stage"),
    Column("host", "Host"),
    Column("about", "About"),
)


async def approve(site: Site, request: Request) -> Response:
    """A stage of exactly the plan that the page showed: its hash is part of the form.

    Without TLS a session may be known to other programs of the host, so the password is asked again.
    """
    form = request.state.form
    identity, stage = str(form.get("plan", ""))[:80], str(form.get("stage", ""))[:200]
    if request.state.asks_again and (why := await _why_not(site, request, str(form.get("password", "")))):
        user = request.state.session.user
        site.audit.note(user.name, address_of(request), "rollout approve", f"{identity} {why}", ok=False)
        return RedirectResponse(address("/rollout", id=identity, said=why), 303)
    # Before anything is done. To abort takes a change back: that never waits for a disk.
    who, about = request.state.session.user.name, f"{identity} {stage}".strip()
    if not site.audit.note(who, address_of(request), "rollout approve asked", about):
        return RedirectResponse(address("/rollout", id=identity, said=NOT_NOTED), 303)
    return await _done(site, request, "approve", identity, stage)


async def _why_not(site: Site, request: Request, password: str) -> str:
    user = request.state.session.user
    # Not the name alone: who has the session elsewhere would keep its owner from approving.
    whose = f"{user.name} at {address_of(request)}"
    if (wait := site.tries.wait_s(whose)) > 0:
        return f"too many wrong passwords: wait {wait:.0f} s"
    # Before it is checked: guesses that come at once count, too.
    site.tries.failed(whose)
    if not await asyncio.to_thread(site.sessions.is_right, user, password):
        return "the password is wrong: nothing was approved"
    site.tries.succeeded(whose)
    return ""


async def abort(site: Site, request: Request) -> Response:
    """Take everything back, or ask the command that carries it out to do so."""
    return await _done(site, request, "abort", str(request.state.form.get("plan", ""))[:80], "")


async def _done(site: Site, request: Request, what: str, identity: str, stage: str) -> Response:
    user = request.state.session.user
    why = ""
    try:
        book = await asyncio.to_thread(opened, identity)
        if what == "approve":
            await asyncio.to_thread(_approve, book, stage, user.name)
        else:
            take_back(site, book, user.name)
    except Busy:
        why = "another command is working on this rollout: approve it when it is waiting"
    except (PlanError, Refused, StoreError) as error:
        why = str(error)
    except HTTPException as error:
        why = error.detail
    site.audit.note(
        user.name, address_of(request), f"rollout {what}", f"{identity} {stage} {why}".strip(), ok=not why
    )
    return RedirectResponse(address("/rollout", id=identity, said=why), 303)


def take_back(site: Site, book: Book, by: str) -> None:
    """Begins it; ``site.restoring`` has the task until it has ended."""
    task = asyncio.create_task(_restore(book, by))
    site.restoring.add(task)
    task.add_done_callback(site.restoring.discard)


def _approve(book: Book, stage: str, by: str) -> None:
    with book.hold():
        book.approve(stage, by)


async def _restore(book: Book, by: str) -> None:
    try:
        await taken_back(book, by, log.info)
    except HeadraceError as error:
        log.warning("rollout %s is not restored yet: %s", book.plan.id, error)
