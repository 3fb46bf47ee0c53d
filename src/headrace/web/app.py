"""The application: routes, the guard in front of them, the collector behind them; and the server that runs it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib import resources
from urllib.parse import urlsplit

import uvicorn
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headrace.errors import HeadraceError
from headrace.web import api, live, pages
from headrace.web.asked import Asked, BadAddress, UnknownHost
from headrace.web.guard import Guard, address_of, local_path, needs
from headrace.web.sessions import COOKIE, SESSION_S, Tries
from headrace.web.site import Site
from headrace.web.tables import one_host
from headrace.web.templates import drawn
from headrace.web.users import Role, User

#: Files that pages load: name -> package, path, media type.
STATIC = {
    "report.css": ("headrace.report", "page/page.css", "text/css"),
    "web.css": ("headrace.web", "static/web.css", "text/css"),
    "web.js": ("headrace.web", "static/web.js", "text/javascript"),
    "uplot.css": ("headrace.web", "static/vendored/uPlot.min.css", "text/css"),
    "uplot.js": ("headrace.web", "static/vendored/uPlot.iife.min.js", "text/javascript"),
}
#: A browser that does not read an event in this time is let go.
SEND_TIMEOUT_S = 20
PING_S = 15
#: argon2 takes 64 MiB and a core: so many logins are checked at a time.
LOGINS_AT_ONCE = 2


class Doors:
    """How sessions start and end."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._tries = Tries()
        self._room = asyncio.Semaphore(LOGINS_AT_ONCE)

    async def form(self, request: Request) -> Response:
        return self._form(request, local_path(request.query_params.get("next", "/")))

    def _form(self, request: Request, after: str, error: str = "", status: int = 200) -> Response:
        has_key = bool(self._site.sessions.key)
        content = drawn(
            "login.html", request, Asked(), "", title="Log in", error=error, after=after, has_key=has_key
        )
        return HTMLResponse(content, status)

    async def log_in(self, request: Request) -> Response:
        form = request.state.form
        name, password = str(form.get("name", ""))[:80], str(form.get("password", ""))
        after, address = local_path(str(form.get("next", "/"))), address_of(request)
        whose = (f"address {address}", f"name {name}")
        async with self._room:
            # Within: guesses that come at once count, too.
            if (wait := self._tries.wait_s(*whose)) > 0:
                answer = self._form(request, after, f"Too many failed logins: wait {wait:.0f} s.", 429)
                answer.headers["retry-after"] = str(max(round(wait), 1))
                return answer
            user = await asyncio.to_thread(self._site.sessions.users.verify, name, password)
            if user is None:
                self._tries.failed(*whose)
        self._site.audit.note(name, address, "login", ok=user is not None)
        if user is None:
            return self._form(request, after, "Name or password is wrong.", 401)
        self._tries.succeeded(*whose)
        return self._opened(user, after)

    async def enter(self, request: Request) -> Response:
        """The key that was printed at the start, as a link."""
        address = address_of(request)
        if self._tries.wait_s(f"key {address}") > 0:
            return PlainTextResponse("too many wrong keys: wait", 429)
        user = self._site.sessions.open_with(request.query_params.get("key", ""))
        self._site.audit.note(user.name if user else "", address, "key", ok=user is not None)
        if user is None:
            self._tries.failed(f"key {address}")
            return self._form(
                request, "/", "This key is not valid any more: see what headrace serve printed.", 401
            )
        return self._opened(user, local_path(request.query_params.get("next", "/")))

    def _opened(self, user: User, after: str) -> Response:
        answer = RedirectResponse(after, 303)
        answer.set_cookie(
            COOKIE, self._site.sessions.start(user), max_age=SESSION_S, httponly=True, samesite="lax",
            secure=self._site.is_secure, path="/",
        )  # fmt: skip
        return answer

    async def log_out(self, request: Request) -> Response:
        self._site.audit.note(request.state.session.user.name, address_of(request), "logout")
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE, path="/")
        return answer


class Events:
    """``/live``: a host's figures, once a second."""

    def __init__(self, site: Site, streams: live.Streams) -> None:
        self._site, self._streams = site, streams

    async def answer(self, request: Request) -> Response:
        [name] = one_host(self._site, Asked.of(request))
        watched = self._site.watched(name)
        if watched is None:
            return JSONResponse({"error": "this host is not watched now"}, 404)
        try:
            self._streams.check_room()
        except live.TooMany:
            return JSONResponse({"error": "too many browsers follow hosts"}, 503)
        cookie = request.cookies.get(COOKIE)

        async def events() -> AsyncIterator[dict[str, str]]:
            async for content in self._streams.follow(watched):
                if self._site.sessions.read(cookie) is None:
                    return  # logged out, expired, or removed
                yield {"data": content}

        return EventSourceResponse(events(), ping=PING_S, send_timeout=SEND_TIMEOUT_S)


async def _static(request: Request) -> Response:
    found = STATIC.get(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    package, path, media = found
    content = resources.files(package).joinpath(path).read_bytes()
    return Response(content, media_type=media)


def routes(site: Site) -> list[Route]:
    doors, events = Doors(site), Events(site, live.Streams())
    return [
        needs(Role.VIEWER, Route("/login", doors.form, methods=["GET"])),
        needs(Role.VIEWER, Route("/login", doors.log_in, methods=["POST"])),
        needs(Role.VIEWER, Route("/enter", doors.enter)),
        needs(Role.VIEWER, Route("/logout", doors.log_out, methods=["POST"])),
        needs(Role.VIEWER, Route("/static/{name}", _static)),
        needs(Role.VIEWER, Route("/live", events.answer)),
        *pages.routes(site),
        *api.routes(site),
    ]


def application(site: Site, names: frozenset[str] = frozenset()) -> ASGIApp:
    """Everything but the socket. ``names``: the hosts that requests may be addressed to; empty: any."""
    found = routes(site)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        collecting = asyncio.create_task(site.collector.run())
        try:
            yield
        finally:
            collecting.cancel()
            await asyncio.gather(collecting, return_exceptions=True)

    errors = {
        BadAddress: _bad_address,
        UnknownHost: _bad_address,
        HeadraceError: _failed,
        HTTPException: _http,
    }
    app = Starlette(routes=found, lifespan=lifespan, exception_handlers=errors)  # type: ignore[arg-type]
    return Guard(
        app, sessions=site.sessions, audit=site.audit, routes=found, names=names, is_secure=site.is_secure
    )


def _said(request: Request, error: str, status: int) -> Response:
    if request.url.path.startswith(("/api", "/live")) or request.method != "GET":
        return JSONResponse({"error": error}, status)
    return HTMLResponse(
        drawn("error.html", request, Asked(), "", title="Not shown", error=error, status=status), status
    )


async def _bad_address(request: Request, error: HeadraceError) -> Response:
    return _said(request, str(error), 404 if isinstance(error, UnknownHost) else 400)


async def _failed(request: Request, error: HeadraceError) -> Response:
    return _said(request, str(error), 500)


async def _http(request: Request, error: HTTPException) -> Response:
    return _said(request, error.detail, error.status_code)


@dataclass(frozen=True)
class Listen:
    """Where it listens. Without TLS only on this machine."""

    address: str = "127.0.0.1"
    port: int = 8306
    certificate: str = ""
    key: str = ""

    @property
    def url(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"


async def serve(app: ASGIApp, listen: Listen, ready: Callable[[str], None]) -> None:
    """Run until cancelled. ``ready`` hears the address when it answers."""
    config = uvicorn.Config(
        app,
        host=listen.address,
        port=listen.port,
        ssl_certfile=listen.certificate or None,
        ssl_keyfile=listen.key or None,
        # A header that any client can send says nothing about where it comes from.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_level="warning",
        limit_concurrency=600,
        timeout_graceful_shutdown=3,
        timeout_keep_alive=15,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve())
    try:
        # uvicorn has no event for it.
        while not server.started and not task.done():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        if server.started:
            port = server.servers[0].sockets[0].getsockname()[1]
            ready(f"{urlsplit(listen.url).scheme}://{urlsplit(listen.url).netloc.rpartition(':')[0]}:{port}")
        await asyncio.shield(task)
    finally:
        server.should_exit = True
        await asyncio.wait([task], timeout=20)


class _Server(uvicorn.Server):
    """Signals belong to the command line."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield
