"""A client whose session is below a private path, as without TLS."""

from __future__ import annotations

from starlette.testclient import TestClient

from headrace.web import sessions
from tests import browser


def private_path(client: TestClient) -> str:
    """The path of the newest session, without a slash at its end; empty without one, or with TLS."""
    return _newest(client)[0]


def session_cookie(client: TestClient) -> str:
    """The value of the newest session's."""
    return _newest(client)[1]


def go_below(client: TestClient) -> None:
    """From now on the client asks below it, as a browser does by following links."""
    client.base_url = client.base_url.copy_with(path=f"{private_path(client)}/")


def within(tab: browser.Page, link: str) -> str:
    """Open a link in a browser; the address below which the session is then, without a slash at its end."""
    tab.open(link)
    return str(tab.evaluate("location.origin + (document.body.dataset.private || '')"))


def be(client: TestClient, other: TestClient) -> None:
    """The client is where the other one is, with its cookie."""
    client.cookies.clear()
    client.cookies.set(sessions.COOKIE, session_cookie(other))
    client.base_url = other.base_url


def _newest(client: TestClient) -> tuple[str, str]:
    found = [each for each in client.cookies.jar if each.name == sessions.COOKIE and each.path != "/"]
    return (found[-1].path.removesuffix("/"), found[-1].value or "") if found else ("", "")
