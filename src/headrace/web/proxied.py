"""Users whom a reverse proxy names in a header.

The header counts only in a connection that comes from a named address. Which addresses the request went through
before (X-Forwarded-For) is not looked at: any client can write that.
"""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections import OrderedDict

from starlette.datastructures import Headers

from headrace.base.errors import Refused
from headrace.web.auth import ProxySettings, clean_name
from headrace.web.users import User, Users

#: A user's first request in this time is a login in the audit log.
LOGIN_S = 12 * 3600.0
MOST_REMEMBERED = 10_000


class NotBelieved(Refused):
    """The request names a user, and is not answered. ``who``: the name it brought."""

    def __init__(self, message: str, who: str, *, place: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, place=place, hint=hint)
        self.who = who


class Proxy:
    """Reads the user of a request. The proxy's word counts for one request, so only the proxy can log out."""

    def __init__(self, settings: ProxySettings, users: Users) -> None:
        self.settings, self._users = settings, users
        self._seen: OrderedDict[str, float] = OrderedDict()

    def user(self, address: str, headers: Headers) -> User | None:
        """The user that the header names; None without the header. Raises NotBelieved."""
        settings = self.settings
        named = headers.getlist(settings.user_header)
        if not named:
            return None
        who = _decoded(named[0]) or ""
        if not self._is_named(address):
            raise NotBelieved(
                f"the header {settings.user_header} came from {address or 'an unknown address'}, "
                "which is not a named proxy", who, hint="addresses in [proxy] of --auth",
            )  # fmt: skip
        if settings.secret and not _is_right(settings.secret, headers.getlist(settings.secret_header)):
            raise NotBelieved(
                f"the header {settings.user_header} came without the proxy's secret", who,
                hint=f"the proxy sends the content of secret_file as {settings.secret_header}",
            )  # fmt: skip
        for header in filter(None, (settings.user_header, settings.role_header)):
            if len(headers.getlist(header)) > 1:
                raise NotBelieved(
                    f"the header {header} came more than once", who,
                    hint="the proxy must replace what a client sends, not add to it",
                )  # fmt: skip
        name = clean_name(who)
        if name is None:
            raise NotBelieved(f"the header {settings.user_header} holds no name", who)
        return self._with_role(name, headers)

    def _with_role(self, name: str, headers: Headers) -> User:
        settings = self.settings
        if not settings.role_header:
            if (user := self._users.user(name)) is None:
                raise NotBelieved(
                    f"{name} has no role here", name,
                    hint="headrace serve user add NAME --role viewer --no-password",
                )  # fmt: skip
            return user
        listed = _decoded(headers.get(settings.role_header, "")) or ""
        best = settings.roles.best(value.strip() for value in listed.split(settings.role_separator))
        if best is None:
            raise NotBelieved(
                f"{name} has no role here: no value of {settings.role_header} is in [proxy.roles]", name
            )
        return User(name, best[1], f"proxy {best[1].word}")

    def is_login(self, user: User) -> bool:
        """Whether the user was not seen for a while, or has another role now."""
        now, key = time.monotonic(), f"{user.role.word} {user.name}"
        last = self._seen.get(key)
        if last is not None and now - last < LOGIN_S:
            return False
        self._seen[key] = now
        self._seen.move_to_end(key)
        while len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)
        return True

    def forget(self, user: User) -> None:
        """The next request is a login again."""
        self._seen.pop(f"{user.role.word} {user.name}", None)

    def _is_named(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        # A socket for both families shows IPv4 so.
        if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped:
            peer = peer.ipv4_mapped
        return any(peer in network for network in self.settings.networks)


def _decoded(value: str) -> str | None:
    """Headers arrive as Latin-1; proxies send UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return None


def _is_right(secret: str, given: list[str]) -> bool:
    return len(given) == 1 and hmac.compare_digest(secret.encode(), given[0].encode())
