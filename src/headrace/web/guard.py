"""What stands before every route: who asks, whether they may, and whether they meant it.

A route that nobody thought of is closed: without a session only the login, the key's door and the static files
answer.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.base.errors import HeadraceError, StoreError
from headrace.web.asked import Asked
from headrace.web.auth import BACK, START
from headrace.web.private import APART, Apart, Place, below, cookie_of, made, split
from headrace.web.proxied import NotBelieved, Proxy
from headrace.web.sessions import NOT_NOTED, Audit, Session, Sessions, Tries, cookie_name
from headrace.web.templates import drawn
from headrace.web.users import Role

#: Answered without a session.
OPEN = ("/login", START, BACK, "/enter", "/static/")
READS = ("GET", "HEAD")
MOST_BODY = 64 << 10
#: A form is sent within this time.
BODY_S = 15.0
#: Scripts and styles are files of ours; nothing is loaded from elsewhere. The width of a bar is an attribute.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data:; frame-src 'self'; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+))(?::[0-9]{0,5})?")
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def needs(role: Role, route: Route) -> Route:
    """The route, open to this role and those above it."""
    route.role = role  # type: ignore[attr-defined]
    return route


class Guard:
    """The outermost layer of the application. ``names`` are the hosts that a request may be addressed to."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        sessions: Sessions,
        audit: Audit,
        routes: list[Route],
        names: frozenset[str],
        is_secure: bool,
        proxy: Proxy | None = None,
    ) -> None:
        self.app, self.sessions, self.audit, self.routes = app, sessions, audit, routes
        self.names, self.is_secure, self.proxy = names, is_secure, proxy
        self._tries = Tries()
        self._apart = Apart()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websockets
        place = self._place(scope)
        scope = place.seen_in(scope)
        state: dict[str, Any] = scope.setdefault("state", {})

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._harden(MutableHeaders(scope=message), scope["path"], state.get("private", ""))
            await send(message)

        request = Request(scope)
        answer: ASGIApp = self.app
        try:
            session = self._session(request, place)
            state["session"] = session
            # Where the browser is with its session: links and forms stay there.
            is_below = session is not None and not session.is_proxied and not place.is_apart
            state["private"] = place.private if is_below else ""
            # Without TLS others may still come by the session: they may listen on this port when we do not.
            is_shared = session is not None and not self.is_secure and self.sessions.is_own(session)
            state["asks_again"] = is_shared
            if session is not None and (recognise := state.get("recognise")):
                recognise()  # its connection has a room of its own
            state["session_now"] = lambda: self._session_now(request, place)
            state["log_out_at"] = self.proxy.settings.log_out_url if self.proxy else ""
            refusal, receive = await self._refusal(request, session, receive)
            moved = self._moved(request, place) if state["private"] else None
            answer = refusal or moved or answer
        except NotBelieved as error:
            self._note_refused(error.who, address_of(request), "refused proxy user", error.message)
            answer = PlainTextResponse(str(error), 403)
        except HeadraceError as error:
            # The users' file cannot be trusted: nobody is let in.
            answer = PlainTextResponse(str(error), 503)
        await answer(scope, receive, send_guarded)

    def _place(self, scope: Scope) -> Place:
        cookie = cookie_of(Headers(scope=scope), cookie_name(self.is_secure))
        if self.is_secure:
            return Place(scope["path"], cookie)
        private, path = split(scope["path"])
        return self._apart.at(scope["path"]) or Place(path, cookie, private)

    def _moved(self, request: Request, place: Place) -> Response | None:
        """Scripts of a report learn no private path, neither as its address nor as that which led to it."""
        address = self._apart.moved(place, request.scope.get("query_string", b""))
        return RedirectResponse(address, 303, {"referrer-policy": "no-referrer"}) if address else None

    def _session(self, request: Request, place: Place) -> Session | None:
        """Who asks. Raises NotBelieved. If a proxy names a user, a cookie of another one does not count.

        Whoever has a report's address gets no token that sends forms.
        """
        user = self.proxy.user(address_of(request), request.headers) if self.proxy else None
        if self.proxy is None or user is None:
            if not (self.is_secure or place.private):
                return None  # any program of this host may have received the cookie
            session = self.sessions.read(place.cookie, place.private)
            return replace(session, token=made()) if session and place.is_apart else session
        if self.proxy.is_login(user) and not self.audit.note(
            user.name, address_of(request), "login by proxy", user.role.word
        ):
            self.proxy.forget(user)
            raise StoreError(NOT_NOTED)
        return self.sessions.of_request(user)

    def _session_now(self, request: Request, place: Place) -> Session | None:
        """The session of a request that is still answered; None once it has ended."""
        try:
            return self._session(request, place)
        except HeadraceError:
            return None

    def _harden(self, headers: MutableHeaders, path: str, private: str) -> None:
        if "location" in headers:
            headers["location"] = below(private, headers["location"])
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        headers.setdefault("content-security-policy", POLICY)
        headers.setdefault("cache-control", "max-age=3600" if path.startswith("/static/") else "no-store")
        if self.is_secure:
            headers.setdefault("strict-transport-security", "max-age=31536000")

    async def _refusal(
        self, request: Request, session: Session | None, receive: Receive
    ) -> tuple[Response | None, Receive]:
        """Why it is not answered, or None; and the request's body, which may have been read."""
        host = _host_of(request.headers)
        if (self.names and host not in self.names) or (not host and "host" in request.headers):
            # A page elsewhere may have made its own name point here; or it is none.
            return PlainTextResponse("this name is not served here; see --name", 421), receive
        path = request.url.path
        is_open = path == "/" + path.strip("/") and any(
            path == each or (each.endswith("/") and path.startswith(each)) for each in OPEN
        )
        if session is None and not is_open:
            return self._log_in(request), receive
        if request.method not in READS:
            if not _is_same_site(request.headers):
                return self._refused(request, session, "the request comes from another site"), receive
            try:
                async with asyncio.timeout(BODY_S):
                    body = await _body(receive)
            except TimeoutError:
                return PlainTextResponse("too slow", 408, headers={"Connection": "close"}), receive
            if body is None:
                return PlainTextResponse("too long", 413), receive
            request.scope["state"]["form"] = form = _form(request.headers, body)
            given = request.headers.get("x-csrf-token") or form.get("token", "")
            if session is not None and not hmac.compare_digest(session.token.encode(), given.encode()):
                return self._refused(request, session, "the form is out of date: reload the page"), receive
            receive = _replayed(body)
        wanted = self._role(request.scope)
        if session is not None and wanted is not None and session.user.role < wanted:
            return self._refused(request, session, f"this needs the role {wanted.word}"), receive
        return None, receive

    def _note_refused(self, who: str, address: str, action: str, about: str) -> None:
        """Of somebody without a session: in the audit log, but a flood of them leaves fewer lines."""
        if self._tries.wait_s(address) > 0:
            return
        self._tries.failed(address)
        self.audit.note(who, address, action, about, ok=False)

    def _role(self, scope: Scope) -> Role | None:
        for route in self.routes:
            if route.matches(scope)[0] is Match.FULL:
                return getattr(route, "role", Role.APPROVER)
        return None

    def _log_in(self, request: Request) -> Response:
        if _wants_page(request):
            whole = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            whole = "/" if whole.startswith(APART) else whole  # it was of a session that ended
            return RedirectResponse(f"/login?next={quote(whole, safe='')}", 303)
        if _is_form(request) and _is_same_site(request.headers):
            # Whoever pressed a button gets the login, then the page with the button: nothing is done unseen.
            return RedirectResponse(f"/login?late=1&next={quote(_page_before(request), safe='')}", 303)
        return JSONResponse({"error": "log in first"}, 401)

    def _refused(self, request: Request, session: Session | None, why: str) -> Response:
        about = address_of(request), f"refused {request.method}", request.url.path
        if session is None:
            self._note_refused("", *about)
        else:
            self.audit.note(session.user.name, *about, ok=False)
        if _is_form(request) and session is not None:
            page = drawn(
                "error.html", request, Asked(), "", title="Not done", error=f"Nothing was done: {why}.",
                status=403, back=_page_before(request),
            )  # fmt: skip
            return HTMLResponse(page, 403)
        return JSONResponse({"error": why}, 403) if not _wants_page(request) else PlainTextResponse(why, 403)


def address_of(request: Request) -> str:
    """The peer's address. Headers of proxies are not believed."""
    return request.client.host if request.client else ""


def _wants_page(request: Request) -> bool:
    path = request.url.path
    return request.method in READS and not path.startswith(("/api/", "/live")) and path != "/api"


def _is_form(request: Request) -> bool:
    """A form that a person sent: the answer is shown as a page. Scripts of ours take anything."""
    return request.method == "POST" and "text/html" in request.headers.get("accept", "")


def _page_before(request: Request) -> str:
    """The page that the form is on, if it is one of ours."""
    parts = _split(request.headers.get("referer", ""))
    if parts.netloc.lower() != request.headers.get("host", "").lower():
        return "/"
    path = split(parts.path)[1]
    return local_path(path + (f"?{parts.query}" if parts.query else "")) if path else "/"


def _host_of(headers: Headers) -> str:
    """A name, or an address in brackets, and a port; empty for anything else: a parser of addresses would find one
    of ours in ``x@localhost`` and in ``[::1].example``.
    """
    found = _HOST.fullmatch(headers.get("host", ""))
    return (found[1] or found[2]).lower() if found else ""


def _is_same_site(headers: Headers) -> bool:
    """Browsers say where a request comes from; whatever says nothing is not a browser."""
    if (site := headers.get("sec-fetch-site")) is not None and site not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or _split(origin).netloc.lower() == headers.get("host", "").lower()


def _split(address: str) -> SplitResult:
    """An address that a client sent; what is none has no parts."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


async def _body(receive: Receive) -> bytes | None:
    """All of it; None if it is too long."""
    found = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return found
        found += bytes(message.get("body", b""))
        if len(found) > MOST_BODY:
            return None
        if not message.get("more_body"):
            return found


def _replayed(body: bytes) -> Receive:
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _form(headers: Headers, body: bytes) -> Mapping[str, str]:
    if not headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return {}
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}


def local_path(wanted: str) -> str:
    """Where to go after a login: a path of ours, never another site."""
    parts = _split(wanted)
    is_ours = (
        wanted.startswith("/")
        and not wanted.startswith(("//", "/\\"))
        and not parts.netloc
        and not parts.scheme
    )
    return wanted if is_ours and "\\" not in wanted and not any(ord(c) < 32 for c in wanted) else "/"
