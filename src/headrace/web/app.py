"""The application: routes, the guard in front of them, the collector behind them; and the server that runs it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.base.errors import Busy, HeadraceError, PlanError
from headrace.web import api, live, pages
from headrace.web.asked import Asked, BadAddress, UnknownHost
from headrace.web.auth import BACK, START
from headrace.web.doors import Doors
from headrace.web.entrance import Entrance, listening_at
from headrace.web.guard import Guard, needs
from headrace.web.room import Room, few_words, raise_descriptors
from headrace.web.site import Site, one_host
from headrace.web.templates import drawn
from headrace.web.users import Role
from headrace.web.warm import keep_warm

#: Files that pages load: name -> package, path, media type.
STATIC = {
    "report.css": ("headrace.show", "page/page.css", "text/css"),
    "web.css": ("headrace.web", "static/web.css", "text/css"),
    "web.js": ("headrace.web", "static/web.js", "text/javascript"),
    "uplot.css": ("headrace.web", "static/vendored/uPlot.min.css", "text/css"),
    "uplot.js": ("headrace.web", "static/vendored/uPlot.iife.min.js", "text/javascript"),
}
#: A browser that does not read an event in this time is let go.
SEND_TIMEOUT_S = 20
#: A connection that has sent no whole request in this time is closed.
HEADERS_S = 15.0
PING_S = 15


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
            return JSONResponse({"error": "too many browsers are following hosts"}, 503)

        async def events() -> AsyncIterator[dict[str, str]]:
            async for content in self._streams.follow(watched):
                if request.state.session_now() is None:
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
        *_provider_routes(site, doors),
        *pages.routes(site),
        *api.routes(site),
    ]


def _provider_routes(site: Site, doors: Doors) -> list[Route]:
    if site.provider is None:
        return []
    return [
        needs(Role.VIEWER, Route(START, doors.to_provider, methods=["GET"])),
        needs(Role.VIEWER, Route(BACK, doors.from_provider, methods=["GET"])),
    ]


def application(site: Site, names: frozenset[str] = frozenset()) -> ASGIApp:
    """Everything but the socket. ``names``: the hosts that requests may be addressed to; empty: any."""
    found = routes(site)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        works = [site.collector.run(), keep_warm(site), *([site.looking.run()] if site.looking else [])]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    errors = {
        BadAddress: _bad_address,
        UnknownHost: _bad_address,
        HeadraceError: _failed,
        HTTPException: _http,
    }
    app = Starlette(routes=found, lifespan=lifespan, exception_handlers=errors)  # type: ignore[arg-type]
    app.state.navigation = pages.NAVIGATION
    return Guard(
        app, sessions=site.sessions, audit=site.audit, routes=found, names=names,
        is_secure=site.is_secure, proxy=site.proxy,
    )  # fmt: skip


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
    """Run until cancelled. ``ready`` hears the address when it answers. Raises Busy if it cannot listen there."""
    descriptors, context = raise_descriptors(), _tls(listen)
    room, waiting = Room(descriptors), Room.of_waiting(descriptors)
    config = uvicorn.Config(
        app,
        http=_Connection,
        # A header that any client can send says nothing about where it comes from.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_level="warning",
        # Without handlers of its own: what it says is cleaned as every other record is.
        log_config=None,
        timeout_graceful_shutdown=3,
        timeout_keep_alive=15,
    )
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(few_words())
    try:
        listening = listening_at(listen.address, listen.port)
    except OSError as error:
        raise Busy(
            f"cannot listen on this address: {error.strerror or error}",
            place=f"{listen.address}:{listen.port}",
            hint="--listen 127.0.0.1:PORT",
        ) from error
    port = listening[0].getsockname()[1]
    server = _Server(config)
    with contextlib.ExitStack() as closed:
        for each in listening:
            closed.callback(each.close)
        # It accepts nothing itself.
        task = asyncio.create_task(server.serve(sockets=[]))
        try:
            # uvicorn has no event for it.
            while not server.started and not task.done():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            if server.started:
                newcomers = _Newcomers(loop, room, context, server)
                entrance = Entrance(
                    listening, waiting, newcomers.take, HEADERS_S, is_opaque=context is not None
                )
                closed.callback(entrance.close)
                server.servers.append(entrance)  # type: ignore[arg-type]
                ready(
                    f"{urlsplit(listen.url).scheme}://{urlsplit(listen.url).netloc.rpartition(':')[0]}:{port}"
                )
            await asyncio.shield(task)
        finally:
            server.should_exit = True
            await asyncio.wait([task], timeout=20)


class _Newcomers:
    """Makes connections of HTTP of those that have asked for something; under TLS after a handshake, which may
    never end, so that they have entered the room before it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, room: Room, context: ssl.SSLContext | None, server: _Server
    ) -> None:
        self._loop, self._room = loop, room
        self._context = context
        self._made = partial(
            _Connection, room, config=server.config, server_state=server.server_state,
            app_state=server.lifespan.state,
        )  # fmt: skip

    def take(self, own: socket.socket, address: str, head: bytes) -> None:
        visitor = _Newcomer(self._loop.create_task(self._connect(own, head)))
        visitor.task.add_done_callback(lambda _: self._room.forget(visitor, address))
        self._room.enter(visitor, address)

    async def _connect(self, own: socket.socket, head: bytes) -> None:
        try:
            await self._loop.connect_accepted_socket(
                partial(self._made, head=head), own, ssl=self._context,
                ssl_handshake_timeout=HEADERS_S if self._context else None,
            )  # fmt: skip
        except Exception:
            own.close()  # it has gone, or speaks no TLS
        except asyncio.CancelledError:
            own.close()
            raise


@dataclass(frozen=True, eq=False)
class _Newcomer:
    task: asyncio.Task[None]
    is_idle = True

    def leave(self) -> None:
        self.task.cancel()


def _tls(listen: Listen) -> ssl.SSLContext | None:
    """Raises PlanError."""
    if not listen.certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(listen.certificate, listen.key or None)
    except (OSError, ssl.SSLError) as error:
        raise PlanError(f"not a certificate and its key: {error}", place=listen.certificate) from error
    return context


class _Connection(H11Protocol):
    """Closed if it has asked for nothing in ``HEADERS_S``: silent ones would take all room, without a login."""

    _seen: object = None

    def __init__(self, room: Room, *args: Any, head: bytes = b"", **named: Any) -> None:
        """``head``: what it has sent so far."""
        super().__init__(*args, **named)
        self._room, self._head = room, head
        self._address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        self.app_state = {**self.app_state, "recognise": lambda: self._room.recognise(self, self._address)}
        self._room.enter(self, self._address)
        if transport.is_closing():
            return
        self.loop.call_later(HEADERS_S, self._look)
        if self._head:
            self.data_received(self._head)
            self._head = b""

    def connection_lost(self, exc: Exception | None) -> None:
        self._room.forget(self, self._address)
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def leave(self) -> None:
        self.transport.abort()

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._seen is self.cycle:
            self.transport.close()
            return
        # Between two requests it may be silent for as long again.
        self._seen = self.cycle if is_idle else self
        self.loop.call_later(HEADERS_S, self._look)


class _Server(uvicorn.Server):
    """Signals belong to the command line."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield
