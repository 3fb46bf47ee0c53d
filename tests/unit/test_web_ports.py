"""Cookies go to every port of a host. Another program there gets none of a session, and nothing by it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from itsdangerous import URLSafeTimedSerializer
from starlette.datastructures import Headers

from headrace.web import app, sessions
from headrace.web.guard import OPEN
from headrace.web.private import APART, MOST_APART, Apart, Place, cookie_of, made
from headrace.web.site import Site
from headrace.web.users import Role
from tests.history import PASSWORD, site
from tests.ports import stranger
from tests.served import on_loopback

pytestmark = pytest.mark.usefixtures("quick_disk")

#: Where another program may wait for the browser.
TRAPS = (
    "/",
    "/queries",
    "/login",
    "/login/oidc",
    "/enter",
    "/static/web.css",
    "/~",
    "/~/",
    "/report",
    "/live",
)


@pytest.fixture
def found(tmp_path: Path) -> Site:
    made_site = site(tmp_path)
    folder = made_site.experiments / "from others"
    (folder / "trials").mkdir(parents=True)
    (folder / "design.json").write_text("{}")
    (folder / "report.html").write_text("<script>steal()</script>")
    return made_site


@pytest.fixture
def url(found: Site) -> Iterator[str]:
    with on_loopback(app.application(found, frozenset({"127.0.0.1"}))) as (at, _):
        yield at


@pytest.fixture
def person() -> Iterator[httpx2.Client]:
    """A browser: its jar heeds hosts and paths, and no ports."""
    with httpx2.Client(trust_env=False, timeout=30) as client:
        yield client


def log_in(person: httpx2.Client, url: str, role: Role = Role.APPROVER) -> str:
    """The address below which the session is."""
    answer = person.post(f"{url}/login", data={"name": role.word, "password": PASSWORD})
    path = urlsplit(answer.headers["location"]).path
    assert re.fullmatch(r"/~[\w-]{22}/", path)
    below = url + path.removesuffix("/")
    assert f"{role.word} ({role.word})" in person.get(f"{below}/").text
    return below


def session_cookie(person: httpx2.Client) -> str:
    return next(each.value or "" for each in person.cookies.jar if each.name == sessions.COOKIE)


def is_kept_out(answer: httpx2.Response) -> bool:
    """Without a word to whom the session belongs, or where it is."""
    if answer.status_code == 303:
        return answer.headers["location"].startswith("/login?")
    is_login = answer.status_code == 200 and urlsplit(str(answer.url)).path.endswith("/login")
    return (is_login and "data-token" not in answer.text) or answer.status_code in (401, 403, 404, 405)


def test_the_browser_sends_nothing_to_another_port(url: str, person: httpx2.Client) -> None:
    below = log_in(person, url)
    with stranger() as one, stranger() as other:
        one.cookies = ("control=1; Path=/",)
        for port in (one, other):
            for path in TRAPS:
                person.get(port.url + path)
        # The jar heeds no ports: what the one gave goes to the other.
        assert all("control=1" in cookies for _, cookies in other.received)
        given = [cookies for port in (one, other) for _, cookies in port.received]
    assert len(given) == 2 * len(TRAPS)
    assert not any(sessions.COOKIE in cookies for cookies in given)
    # At its own port it is sent below the path only.
    assert (
        "cookie" not in person.get(f"{url}/static/web.css").request.headers
        or sessions.COOKIE not in (person.get(f"{url}/static/web.css").request.headers["cookie"])
    )
    assert person.get(f"{below}/queries").status_code == 200


def test_a_cookie_alone_opens_nothing_in_any_way(found: Site, url: str, person: httpx2.Client) -> None:
    """As if another program had it from a backup of the browser's files."""
    log_in(person, url)
    stolen = session_cookie(person)
    with httpx2.Client(trust_env=False, timeout=30) as thief:
        own = urlsplit(log_in(thief, url, Role.VIEWER)).path
        thief.cookies.clear()
        names = (sessions.COOKIE, f"__Host-{sessions.COOKIE}", "headrace-login")
        ways = [{"cookie": f"{name}={stolen}"} for name in names]
        ways += [{"authorization": f"Bearer {stolen}"}, {"x-csrf-token": stolen}, {"referer": f"{url}{own}/"}]
        for below in ("", own, made(), "/~" + "A" * 22):
            for headers in ways:
                for path in ("/", "/queries", "/api/hosts.json", "/login", "/live?host=db1", "/rollouts"):
                    answer = thief.get(f"{url}{below}{path}", headers=headers)
                    assert is_kept_out(answer), (below, headers, path)
                    assert "approver" not in answer.text
        for route in app.routes(found):
            for method in route.methods or ():
                if route.path.startswith(OPEN):
                    continue
                answer = thief.request(method, url + own + route.path, headers=ways[0])
                assert is_kept_out(answer), (method, route.path)


def test_what_the_cookie_says_is_not_where_it_counts(url: str, person: httpx2.Client) -> None:
    path = urlsplit(log_in(person, url)).path
    value = session_cookie(person)
    assert path.strip("/~") not in value
    said = URLSafeTimedSerializer(b"").load_payload(value.encode().rsplit(b".", 2)[0])
    assert path.strip("/~") not in json.dumps(said)


def test_a_cookie_that_another_port_sets_neither_opens_nor_ends_a_session(
    url: str, person: httpx2.Client
) -> None:
    below = log_in(person, url)
    with stranger() as one, httpx2.Client(trust_env=False, timeout=30) as thief:
        log_in(thief, url, Role.VIEWER)
        one.cookies = (f"{sessions.COOKIE}={session_cookie(thief)}; Path=/", f"{sessions.COOKIE}-x=1; Path=/")
        person.get(one.url)
    answer = person.get(f"{below}/")
    assert answer.request.headers["cookie"].count(f"{sessions.COOKIE}=") == 2
    assert "approver (approver)" in answer.text
    assert is_kept_out(person.get(f"{url}/"))


def test_whoever_gets_the_port_afterwards_opens_nothing_with_all_that_a_page_still_sends(
    tmp_path: Path, person: httpx2.Client
) -> None:
    def serving() -> Site:
        """The same history, and the same secret on disk; what belongs to one start is new."""
        found = site(tmp_path)
        found.sessions = sessions.Sessions(found.sessions.users, found.sessions.secret)
        return found

    with on_loopback(app.application(serving())) as (url, _):
        below = log_in(person, url)
    port = urlsplit(url).port
    assert port
    with stranger(port) as afterwards:
        person.get(f"{below}/live?host=db1")
        [(path, cookie)] = afterwards.received
    assert urlsplit(below).path in path
    assert cookie.startswith(f"{sessions.COOKIE}=")
    with on_loopback(app.application(serving()), port) as (again, _), httpx2.Client(trust_env=False) as thief:
        assert again == url
        for address in (f"{url}/", f"{below}/", f"{below}/api/hosts.json"):
            assert is_kept_out(thief.get(address, headers={"cookie": cookie}))


def test_scripts_of_a_report_learn_nothing_that_opens_a_session(url: str, person: httpx2.Client) -> None:
    """They may read their own address and what led to it, and lead the browser anywhere with it."""
    below = log_in(person, url)
    private = urlsplit(below).path
    page = person.get(f"{below}/experiment?id=from+others").text
    [shown] = re.findall(r'<iframe [^>]*src="([^"]+)"', page)
    moved = person.get(f"{url}{shown}")
    assert moved.status_code == 303
    # Browsers would name the page that led here otherwise, with its path.
    assert moved.headers["referrer-policy"] == "no-referrer"
    address = moved.headers["location"]
    assert address.startswith(APART)
    assert private not in address
    with httpx2.Client(trust_env=False) as thief:
        report = thief.get(url + address)
        assert "steal()" in report.text
        assert report.headers["content-security-policy"].startswith("sandbox")
        sent = [
            thief.request(method, url + address, headers={"accept": "text/html"})
            for method in ("POST", "PUT", "DELETE")
        ]
        answers = [report, *sent]
        answers += [thief.get(url + address + more) for more in ("/", "/..", "/../../", "x", "/queries")]
        for answer in answers:
            assert private not in answer.text + str(answer.headers)
            assert answer is report or is_kept_out(answer), answer.url
        token = re.search(r'data-token="([^"]+)"', page)
        assert token
        assert not any(token[1] in answer.text for answer in answers)
        # It ends with its session.
        person.post(f"{below}/logout", headers={"x-csrf-token": token[1]})
        assert is_kept_out(thief.get(url + address))


def test_few_reports_are_remembered() -> None:
    apart = Apart()
    place = Place("/capacity/report", "c", made())
    addresses = [apart.moved(place, b"") or "" for _ in range(MOST_APART + 1)]
    assert apart.at(addresses[0]) is None
    assert apart.at(addresses[-1]) == Place(place.path, "c", place.private, b"")
    assert len(set(addresses)) == len(addresses)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("a=1; headrace=long; headrace=short", "long"),
        ("headrace-login=x; headrace=y", "y"),
        (" headrace = z ", "z"),
        ("headrace=", ""),
        ("xheadrace=1", None),
        ("", None),
    ],
)
def test_the_first_cookie_of_a_name_counts(sent: str, read: str | None) -> None:
    """Browsers send that of the longest path first: nobody else can set one for it."""
    assert cookie_of(Headers({"cookie": sent}), sessions.COOKIE) == read


def test_no_log_has_the_path(
    url: str, found: Site, person: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    below = log_in(person, url)
    for path in ("/", "/nothing", "/query?source=x", "/experiment?id=none", "/api/chart.json"):
        person.get(below + path)
    person.post(f"{below}/rollout/approve")
    person.get(f"{below}%0d%0a")
    secret = urlsplit(below).path.strip("/~")
    assert found.audit.path.read_text().count("\n") >= 2
    assert secret not in found.audit.path.read_text() + caplog.text


def test_no_page_of_a_session_is_named_to_another_port(url: str, person: httpx2.Client) -> None:
    below = log_in(person, url)
    for path in ("/", "/queries", "/experiments", "/nothing"):
        assert person.get(below + path).headers["referrer-policy"] == "same-origin"
