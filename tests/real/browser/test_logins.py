"""Logins in a real browser: behind nginx, at an OpenID Connect provider, with a password; sessions that end."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from headrace.rollout.book import Book
from headrace.rollout.plan import make
from headrace.rollout.rules import Rules, StageRule
from headrace.web import app, sessions
from headrace.web.auth import Auth, read
from headrace.web.site import Site
from tests import browser
from tests.history import PASSWORD, site
from tests.openid import CLIENT_SECRET, OpenId
from tests.served import on_loopback
from tests.servers import free_port
from tests.unit.test_staged import SETTINGS, topology
from tests.waiting import until

#: A page comes within this time, also on a busy machine.
LIMIT_S = 60.0
PROXY_SECRET = "only nginx and headrace know it"
NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    map $remote_user $groups {{ default ""; olga "staff,dba"; anna "dba-leads"; }}
    server {{
        listen 127.0.0.1:{port};
        auth_basic "team"; auth_basic_user_file {folder}/passwords;
        location / {{
            proxy_pass {url};
            proxy_set_header Host $http_host;
            proxy_set_header Remote-User $remote_user;
            proxy_set_header Remote-Groups $groups;
            proxy_set_header X-Headrace-Secret "{secret}";
        }}
    }}
}}
"""
ROLES = 'roles = {dba = "operator", dba-leads = "approver"}\n'
APPROVE = "document.querySelector('#approve button')"


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Book:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    stages = (StageRule(name="replicas", take="replicas", approval=True),)
    return Book.make(make(SETTINGS, topology("a", 2), Rules(stage=stages), 1))


@pytest.fixture
def tab() -> Iterator[browser.Page]:
    with browser.page() as page:
        yield page


def settings(folder: Path, content: str, secret: str) -> Auth:
    for name, text in (("secret", secret), ("auth.toml", content)):
        (folder / name).write_text(f"{text}\n")
        (folder / name).chmod(0o600)
    return read(folder / "auth.toml")


def approvals(book: Book) -> dict[str, str]:
    return {stage: each["by"] for stage, each in Book.open(book.plan.id).state.approvals.items()}


def audit(found: Site) -> list[tuple[str, str, bool]]:
    lines: list[dict[str, Any]] = [json.loads(line) for line in found.audit.path.read_text().splitlines()]
    return [(line["who"], line["action"], line["ok"]) for line in lines]


def text(tab: browser.Page) -> str:
    return str(tab.evaluate("document.body.innerText"))


def press(tab: browser.Page, element: str, shows: str) -> None:
    """Click, and wait for the page that shows this."""
    tab.evaluate(f"window.isOld = true; {element}.click()")
    try:
        until(lambda: shows in after(tab), limit_s=LIMIT_S)
    except AssertionError:
        raise AssertionError(f"{shows} is not in: {text(tab)}") from None


def after(tab: browser.Page) -> str:
    """The next page's text; empty while it is on its way, also in pieces."""
    with contextlib.suppress(RuntimeError):
        is_there = "!window.isOld && document.readyState == 'complete'"
        return str(tab.evaluate(f"{is_there} ? document.body.innerText : ''"))
    return ""


def at_provider(tab: browser.Page, name: str, shows: str) -> None:
    """Log in there, from the login page."""
    press(tab, "document.querySelector('main a.button')", "at the provider")
    tab.evaluate(f"document.forms[0].user.value = '{name}'")
    press(tab, "document.querySelector('button')", shows)


def private(tab: browser.Page) -> str:
    """The path of the session, without a slash at its end; empty outside of it."""
    return str(tab.evaluate("document.body.dataset.private || ''"))


def address(tab: browser.Page) -> str:
    """Where the tab is, as an address that may be shared."""
    return str(tab.evaluate("location.href")).replace(private(tab) or "/~", "", 1)


def end_session(tab: browser.Page, url: str) -> None:
    """As the browser does when the cookie's time is over."""
    tab.call("Network.deleteCookies", name=sessions.COOKIE, url=f"{url}{private(tab)}/")


def is_refused_by_policy(tab: browser.Page) -> bool:
    return any("Content Security Policy" in each for each in tab.seen.errors)


def test_a_login_at_a_provider(tmp_path: Path, book: Book, tab: browser.Page) -> None:
    port = free_port()
    # Another site than the provider's, as in earnest: it decides which cookies come along.
    url = f"http://localhost:{port}"
    groups = {"vera": ["staff"], "olga": ["staff", "dba"], "anna": ["dba-leads"]}
    people = {name: {"groups": each, "sub": name} for name, each in groups.items()}
    provider = OpenId(f"{url}/login/oidc/back", people)
    content = (
        f'[oidc]\nissuer = "{provider.issuer}"\nclient_id = "headrace"\nclient_secret_file = "secret"\n'
        f'url = "{url}"\n{ROLES}'
    )
    found = site(tmp_path, auth=settings(tmp_path, content, CLIENT_SECRET))
    page = f"{url}/rollout?id={book.plan.id}"
    try:
        with on_loopback(app.application(found, frozenset({"localhost"})), port):
            tab.open(page)
            at_provider(tab, "vera", "no value of groups is in [oidc.roles]")
            tab.open(page)
            at_provider(tab, "olga", "Stage replicas needs the approval")
            assert address(tab) == page
            assert "olga (operator)" in text(tab)
            assert not tab.evaluate(f"!!{APPROVE}")
            press(tab, "document.querySelector('.who button')", "You are logged out here")
            press(tab, "document.querySelector('main .note a')", "Log in with 127.0.0.1")
            assert "/logout" in provider.asked
            tab.open(page)
            at_provider(tab, "anna", "anna (approver)")
            end_session(tab, url)
            press(tab, APPROVE, "Your session had expired, so nothing was done")
            assert not approvals(book)
            at_provider(tab, "anna", "Approve stage replicas")
            assert address(tab) == page
            press(tab, APPROVE, "is approved by anna")
            assert approvals(book) == {"replicas": "anna"}
    finally:
        provider.stop()
    assert not is_refused_by_policy(tab)
    assert [line for line in audit(found) if line[1] != "logout"] == [
        ("vera", "login by oidc", False),
        ("olga", "login by oidc", True),
        ("anna", "login by oidc", True),
        ("anna", "login by oidc", True),
        ("anna", "rollout approve asked", True),
        ("anna", "rollout approve", True),
    ]


@pytest.mark.needs("nginx")
def test_users_of_nginx(tmp_path: Path, book: Book, tab: browser.Page) -> None:
    content = (
        '[proxy]\naddresses = ["127.0.0.1"]\nuser_header = "Remote-User"\nrole_header = "Remote-Groups"\n'
        f'secret_file = "secret"\n{ROLES}'
    )
    found = site(tmp_path, auth=settings(tmp_path, content, PROXY_SECRET))
    with (
        on_loopback(app.application(found, frozenset({"127.0.0.1"}))) as (url, _),
        nginx(tmp_path, url, "vera", "olga", "anna") as port,
    ):
        front = f"http://127.0.0.1:{port}"
        page = f"/rollout?id={book.plan.id}"
        assert httpx2.get(front, trust_env=False).status_code == 401
        forged = {"Remote-User": "anna", "Remote-Groups": "dba-leads"}
        behind = httpx2.get(front, headers=forged, auth=("olga", "x"), trust_env=False)
        assert "olga (operator)" in behind.text
        assert httpx2.get(url, headers=forged, trust_env=False).status_code == 403
        for name, shows in (("vera", "vera has no role here"), ("olga", "Stage replicas needs the approval")):
            tab.open(f"http://{name}:x@127.0.0.1:{port}{page}")
            assert shows in text(tab)
        # A password that the browser sends by itself cannot be taken back here.
        assert "Log out" not in text(tab)
        assert tab.evaluate("getComputedStyle(document.body).fontFamily").startswith("system-ui")
        tab.open(f"http://anna:x@127.0.0.1:{port}{page}")
        press(tab, APPROVE, "is approved by anna")
        assert approvals(book) == {"replicas": "anna"}
    assert not is_refused_by_policy(tab)


@contextlib.contextmanager
def nginx(folder: Path, url: str, *names: str) -> Iterator[int]:
    """With the password x for each name; its port."""
    port = free_port()
    (folder / "passwords").write_text("".join(f"{name}:{{PLAIN}}x\n" for name in names))
    conf = folder / "nginx.conf"
    conf.write_text(NGINX.format(folder=folder, port=port, url=url, secret=PROXY_SECRET))
    folder.chmod(0o755)
    argv = ["/usr/sbin/nginx", "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(conf)]
    process = subprocess.Popen(argv)
    try:

        def answers() -> bool:
            with contextlib.suppress(httpx2.HTTPError):
                return httpx2.get(f"http://127.0.0.1:{port}", trust_env=False).status_code == 401
            return False

        until(answers, pause_s=0.05)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def test_a_password_and_a_session_that_ends_before_an_approval(
    tmp_path: Path, book: Book, tab: browser.Page
) -> None:
    found = site(tmp_path)

    def log_in(name: str, password: str, shows: str) -> None:
        tab.evaluate(f"document.querySelector('[name=name]').value = '{name}'")
        tab.evaluate(f"document.querySelector('[name=password]').value = '{password}'")
        press(tab, "document.querySelector('.login button')", shows)

    with on_loopback(app.application(found)) as (url, _):
        page = f"{url}/rollout?id={book.plan.id}"
        tab.open(page)
        log_in("approver", "wrong", "Name or password is wrong")
        log_in("approver", PASSWORD, "approver (approver)")
        assert address(tab) == page
        # Whoever is logged in may log in as somebody else.
        tab.open(f"{url}/login")
        log_in("viewer", PASSWORD, "viewer (viewer)")
        tab.open(f"{url}/login")
        log_in("approver", PASSWORD, "approver (approver)")
        tab.open(page)
        end_session(tab, url)
        tab.evaluate(f"{APPROVE}.form.password.value = '{PASSWORD}'")
        press(tab, APPROVE, "Your session had expired, so nothing was done")
        log_in("operator", PASSWORD, "Stage replicas needs the approval")
        # What an old page still sends is refused in words, on a page with a way back.
        tab.evaluate(f"document.querySelector('.who').action = '{private(tab)}/rollout/approve'")
        press(tab, "document.querySelector('.who button')", "Nothing was done: this needs the role approver")
        press(tab, "document.querySelector('main p a')", "Stage replicas needs the approval")
    assert not approvals(book)
    assert not is_refused_by_policy(tab)
