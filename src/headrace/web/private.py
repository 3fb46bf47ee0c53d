"""Where a session without TLS is: below a path that only its browser knows.

A browser sends a cookie to every port of a host, so programs of others on the same machine receive what is meant
for these pages. It sends it only below the cookie's own path, though. So a login makes a path that nobody can
guess: the pages of the session are below it, the cookie goes nowhere else, and it opens nothing elsewhere.

A report may be from others and has scripts of its own, which can read the address that they are at, and lead the
browser to another port with it. So reports are outside that path, each at an address of its own.
"""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Scope

_PRIVATE = re.compile(r"(/~[A-Za-z0-9_-]{22})(/.*)?", re.DOTALL)
#: What a page of ours loads, asks and leads to. Captured text has no quotation marks of its own there. The files
#: of the pages hold nothing that is private, and an address that is to be shared leads to anybody's own session.
_LED_TO = re.compile(
    r'(?<!rel="bookmark" )\b((?:href|src|action|data-live|data-chart|data-heat|data-load)=")/(?![/~]|static/)'
)
#: For whoever is not logged in.
_FOR_ALL = ("/login", "//", "/~")
#: Reports, and where each is shown.
_REPORTS, APART = "/report", "/report/"
MOST_APART = 1000


@dataclass(frozen=True)
class Place:
    """Where a request is: its address without what is private, and the cookie that opens it there."""

    path: str
    cookie: str | None
    #: Without a slash at its end; empty outside of any.
    private: str = ""
    #: That of a report that is shown outside its session's path.
    query: bytes | None = None

    @property
    def is_apart(self) -> bool:
        return self.query is not None

    def seen_in(self, scope: Scope) -> Scope:
        """The request as if it had been sent to the address itself."""
        if self.path == scope["path"]:
            return scope
        query = scope.get("query_string", b"") if self.query is None else self.query
        return {**scope, "path": self.path, "raw_path": self.path.encode(), "query_string": query}


class Apart:
    """Reports that are shown outside their session's path, the newest ``MOST_APART``."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, Place] = OrderedDict()

    def moved(self, place: Place, query: bytes) -> str | None:
        """Where it is shown instead, if it is a report below a private path."""
        if not (place.private and not place.is_apart and place.path.endswith(_REPORTS)):
            return None
        address = f"{APART}{secrets.token_urlsafe(16)}"
        self._places[address] = Place(place.path, place.cookie, place.private, query)
        while len(self._places) > MOST_APART:
            self._places.popitem(last=False)
        return address

    def at(self, path: str) -> Place | None:
        return self._places.get(path)


def made() -> str:
    """A new path, without a slash at its end."""
    return f"/~{secrets.token_urlsafe(16)}"


def split(path: str) -> tuple[str, str]:
    """The private path that an address begins with, or nothing; and the rest of it."""
    found = _PRIVATE.fullmatch(path)
    return (found[1], found[2] or "/") if found else ("", path)


def cookie_of(headers: Headers, name: str) -> str | None:
    """The first cookie of this name: browsers send that of the longest path first. Programs on other ports can set
    one of the same name, but not below a path that they do not know.
    """
    for header in headers.getlist("cookie"):
        for part in header.split(";"):
            key, _, value = part.partition("=")
            if key.strip() == name:
                return value.strip()
    return None


def page_below(private: str, page: str) -> str:
    """The page, with its links and forms below this path."""
    return _LED_TO.sub(rf"\1{private}/", page) if private else page


def below(private: str, location: str) -> str:
    """Where an answer leads to, if it is a page of the session."""
    is_own = private and location.startswith("/") and not location.startswith((*_FOR_ALL, APART))
    return f"{private}{location}" if is_own else location
