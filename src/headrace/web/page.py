"""What a page of ``serve`` declares: its address, who may see it, its template, its place in the menu, its tables.

A file in ``pages/`` has ``PAGES``, and where it needs them ``ACTIONS`` and ``TABLES``. It is found by being there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from headrace.base.errors import HeadraceError
from headrace.web.asked import MOST_WORDS, Asked
from headrace.web.guard import needs
from headrace.web.listing import Listing
from headrace.web.site import Site, one_host
from headrace.web.templates import drawn
from headrace.web.users import Role

#: A page that takes longer is sent in two pieces: meanwhile a browser shows the frame and loads styles.
FRAME_AFTER_S = 0.03
#: nginx would keep the first piece back.
UNBUFFERED = {"x-accel-buffering": "no"}
#: In the templates, where the first piece ends.
FRAME_END = "<!--frame-->"
#: A report's own scripts are allowed by their hashes in it. Without an origin it can reach nothing here.
REPORT_POLICY = (
    "sandbox allow-scripts allow-popups; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data: blob:; font-src data:; frame-ancestors 'self'"
)


@dataclass(frozen=True)
class Opened:
    """One request for a page. ``subject`` is what it is about: a host, a class, a rollout."""

    site: Site
    request: Request
    asked: Asked
    subject: Any = None

    def word(self, name: str, most: int = MOST_WORDS) -> str:
        return self.request.query_params.get(name, "")[:most]

    @property
    def may_operate(self) -> bool:
        return bool(self.request.state.session.user.role >= Role.OPERATOR)


@dataclass(frozen=True)
class Menu:
    """An entry of the menu, at its ``place`` from the left."""

    place: int
    title: str


async def any_hosts(opened: Opened) -> Any:
    """A page of all hosts, or of the one that is asked for. Raises UnknownHost."""
    opened.site.names(opened.asked)


async def one_of_them(opened: Opened) -> Any:
    """A page of one host. Raises BadAddress without one, and UnknownHost."""
    return one_host(opened.site, opened.asked)[0]


@dataclass(frozen=True)
class Page:
    """``shows`` gives the values of the template. ``about`` gives the subject before anything is sent, so that
    what is not there is a 404; ``title`` may be made of it."""

    path: str
    template: str
    title: str | Callable[[Any], str]
    shows: Callable[[Opened], Awaitable[dict[str, Any]]]
    about: Callable[[Opened], Awaitable[Any]] = any_hosts
    role: Role = Role.VIEWER
    menu: Menu | None = None


@dataclass(frozen=True)
class Action:
    """What an address does, or gives, that is no page of its own."""

    path: str
    answer: Callable[[Site, Request], Awaitable[Response]]
    role: Role
    methods: Sequence[str] = ("POST",)


@dataclass(frozen=True)
class Table:
    """A table of the pages and of ``/api``. ``takes`` are the parameters of its address that it uses."""

    name: str
    title: str
    about: str
    read: Callable[[Site, Asked], Awaitable[Listing]]
    takes: Sequence[str] = ("host", "range", "until", "from", "to")
    role: Role = Role.VIEWER


def page_route(site: Site, page: Page) -> Route:
    async def answer(request: Request) -> Response:
        opened = Opened(site, request, Asked.of(request))
        opened = Opened(site, request, opened.asked, await page.about(opened))
        title = page.title if isinstance(page.title, str) else page.title(opened.subject)
        return await _sent(opened, page.template, title, page.shows(opened))

    return needs(page.role, Route(page.path, answer))


def action_route(site: Site, action: Action) -> Route:
    async def answer(request: Request) -> Response:
        return await action.answer(site, request)

    return needs(action.role, Route(action.path, answer, methods=[*action.methods]))


async def _sent(opened: Opened, template: str, title: str, work: Awaitable[dict[str, Any]]) -> Response:
    """The page; if the history takes its time, the frame now, and the rest when it is read."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=FRAME_AFTER_S)
    if task.done():
        return HTMLResponse(_drawn(opened, template, title, await task))
    return StreamingResponse(
        _in_pieces(opened, template, title, task), media_type="text/html", headers=UNBUFFERED
    )


def _drawn(opened: Opened, template: str, title: str, values: dict[str, Any]) -> str:
    asked = values.pop("asked", opened.asked)
    return drawn(template, opened.request, asked, opened.site.collector.attention, title=title, **values)


async def _in_pieces(
    opened: Opened, template: str, title: str, task: asyncio.Future[dict[str, Any]]
) -> AsyncIterator[str]:
    try:
        frame = drawn("frame.html", opened.request, opened.asked, "", title=title)
        yield frame + '<p class="loading">Reading …</p>'
        try:
            whole = _drawn(opened, template, title, await task)
        except (HeadraceError, HTTPException) as error:
            said = error.detail if isinstance(error, HTTPException) else str(error)
            whole = drawn("error.html", opened.request, opened.asked, "", title=title, error=said, status=0)
        yield whole.partition(FRAME_END)[2]
    finally:
        task.cancel()


def report(content: str) -> Response:
    """A page that was made elsewhere, with scripts of its own."""
    return HTMLResponse(
        content, headers={"content-security-policy": REPORT_POLICY, "x-frame-options": "SAMEORIGIN"}
    )
