"""Where sessions start and end: a password, the key that was printed, or an OpenID Connect provider."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from headrace.base.errors import HeadraceError
from headrace.web.asked import Asked
from headrace.web.auth import START, LoginRefused, ProviderFailed
from headrace.web.guard import address_of, local_path
from headrace.web.private import made
from headrace.web.sessions import NOT_NOTED, SESSION_S, Tries, cookie_name
from headrace.web.site import Site
from headrace.web.templates import drawn
from headrace.web.users import User

if TYPE_CHECKING:
    from headrace.web.provider import Provider

log = logging.getLogger("headrace.web")

#: argon2 takes 64 MiB and a core: so many logins are checked at a time.
LOGINS_AT_ONCE = 2
#: The cookie of a login that is at the provider.
BEGUN = "headrace-login"
#: A login that leaves no trace is none.


class Doors:
    """How sessions start and end."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._tries = Tries()
        self._room = asyncio.Semaphore(LOGINS_AT_ONCE)

    async def form(self, request: Request) -> Response:
        asked = request.query_params
        after = local_path(asked.get("next", "/"))
        # An address without the private path: this browser may know it, and be logged in.
        return self._form(request, after, led_to=after if "next" in asked and "late" not in asked else "")

    def _form(
        self, request: Request, after: str, error: str = "", status: int = 200, led_to: str = ""
    ) -> Response:
        site = self._site
        content = drawn(
            "login.html", request, Asked(), "", title="Log in", error=error, after=after,
            has_key=bool(site.sessions.key), has_proxy=bool(site.proxy), provider=_shown(site.provider),
            has_users=self._has_users(), led_to=led_to, late="late" in request.query_params,
            log_out=site.provider.log_out_url() if site.provider and "ended" in request.query_params else "",
        )  # fmt: skip
        return HTMLResponse(content, status)

    def _has_users(self) -> bool:
        try:
            return bool(self._site.sessions.users.all())
        except HeadraceError:
            return True  # what is wrong with the file is said to nobody here

    async def log_in(self, request: Request) -> Response:
        form = request.state.form
        name, password = str(form.get("name", ""))[:80], str(form.get("password", ""))
        after, address = local_path(str(form.get("next", "/"))), address_of(request)
        # Not the name alone: whoever guesses elsewhere would keep its owner out.
        whose = (f"address {address}", f"name {name} at {address}")
        async with self._room:
            # Within: guesses that come at once count, too.
            if (wait := self._tries.wait_s(*whose)) > 0:
                answer = self._form(request, after, f"Too many failed logins: wait {wait:.0f} s.", 429)
                answer.headers["retry-after"] = str(max(round(wait), 1))
                return answer
            user = await asyncio.to_thread(self._site.sessions.users.verify, name, password)
            if user is None:
                self._tries.failed(*whose)
        is_noted = self._site.audit.note(name, address, "login", ok=user is not None)
        if user is None:
            return self._form(request, after, "Name or password is wrong.", 401)
        if not is_noted:
            return self._form(request, after, NOT_NOTED, 503)
        self._tries.succeeded(*whose)
        return self._opened(request, user, after)

    async def enter(self, request: Request) -> Response:
        """The key that was printed at the start, as a link."""
        address = address_of(request)
        if self._tries.wait_s(f"key {address}") > 0:
            return PlainTextResponse("too many wrong keys: wait", 429)
        user = self._site.sessions.open_with(request.query_params.get("key", ""))
        is_noted = self._site.audit.note(user.name if user else "", address, "key", ok=user is not None)
        if user is None:
            self._tries.failed(f"key {address}")
            return self._form(
                request, "/", "This key is no longer valid: use the link that headrace serve printed.", 401
            )
        if not is_noted:
            return self._form(request, "/", NOT_NOTED, 503)
        return self._opened(request, user, local_path(request.query_params.get("next", "/")))

    async def to_provider(self, request: Request) -> Response:
        """Send the browser to the OpenID Connect provider."""
        assert self._site.provider
        after = local_path(request.query_params.get("next", "/"))
        try:
            url, begun = await self._site.provider.start(after)
        except HeadraceError as error:
            return self._form(request, after, _said(error), 503)
        answer = RedirectResponse(url, 303)
        answer.set_cookie(
            BEGUN, begun, max_age=600, httponly=True, samesite="lax", secure=self._site.is_secure, path=START
        )
        return answer

    async def from_provider(self, request: Request) -> Response:
        """The browser is back, with a code or an error."""
        provider, address = self._site.provider, address_of(request)
        assert provider
        # There is nothing to guess here, so nobody waits; but a flood leaves fewer lines in the log.
        whose = f"provider {address}"
        is_noted = self._tries.wait_s(whose) <= 0
        try:
            person = await provider.finish(dict(request.query_params), request.cookies.get(BEGUN))
            user = provider.settings.user(person.name, person.group)
            if user is None or self._site.sessions.is_taken(person.name):
                raise LoginRefused(
                    f"a user of this server is also named {person.name}: log in with the password",
                    who=person.name,
                )
        except LoginRefused as error:
            if is_noted:
                self._tries.failed(whose)
                self._site.audit.note(error.who, address, "login by oidc", error.message, ok=False)
            answer = self._form(request, "/", str(error), 403 if error.who else 401)
        except HeadraceError as error:
            self._site.audit.note("", address, "login by oidc", str(error), ok=False)
            answer = self._form(request, "/", _said(error), 503)
        else:
            self._tries.succeeded(whose)
            about = f"{user.role.word} as {person.group}; {provider.issuer} {person.subject}"
            if self._site.audit.note(user.name, address, "login by oidc", about):
                answer = self._opened(request, user, local_path(person.after), person.group)
            else:
                answer = self._form(request, "/", NOT_NOTED, 503)
        answer.delete_cookie(BEGUN, path=START)
        return answer

    def _opened(self, request: Request, user: User, after: str, group: str | None = None) -> Response:
        """A new session. The one that the browser had before, whoever gave it to it, ends."""
        sessions = self._site.sessions
        if request.state.session is not None:
            sessions.end(request.state.session)
        # Without TLS the cookie would go to every port of this host.
        private = "" if self._site.is_secure else made()
        answer = RedirectResponse(f"{private}{after}", 303)
        answer.set_cookie(
            cookie_name(self._site.is_secure), sessions.start(user, group, private), max_age=SESSION_S,
            httponly=True, samesite="lax", secure=self._site.is_secure, path=f"{private}/",
        )  # fmt: skip
        return answer

    async def log_out(self, request: Request) -> Response:
        session = request.state.session
        if session.is_proxied:
            # The next request names the user again: nothing would have ended.
            return RedirectResponse("/", 303)
        self._site.audit.note(session.user.name, address_of(request), "logout")
        self._site.sessions.end(session)
        answer = RedirectResponse("/login?ended=1" if session.is_provided else "/login", 303)
        secure = self._site.is_secure
        answer.delete_cookie(cookie_name(secure), path=f"{request.state.private}/", secure=secure)
        return answer


def _said(error: HeadraceError) -> str:
    """What a browser is told. Files of this machine are nothing for people who are not logged in."""
    log.warning("%s", error)
    if isinstance(error, ProviderFailed):
        return str(error)
    return "The login at the provider is not set up correctly: see what headrace serve printed."


def _shown(provider: Provider | None) -> str:
    """The provider's host."""
    return (urlsplit(provider.issuer).hostname or "") if provider else ""
