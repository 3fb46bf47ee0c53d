"""Who is let in: every route without a login, with a wrong role, with a forged token; and what text may do."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headrace.base.clocks import Clocks
from headrace.base.errors import PlanError, Refused
from headrace.history.archive.files import MINUTE_S
from headrace.web import app as web
from headrace.web import sessions
from headrace.web.guard import OPEN, local_path
from headrace.web.private import made
from headrace.web.site import Site
from headrace.web.users import Role, Users
from tests.below import go_below, private_path
from tests.history import FAST, PASSWORD, SECRET, fill, query, site, state, write

pytestmark = pytest.mark.usefixtures("quick_disk")

HOST = "localhost"
XSS = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}\x1b[31m\u202e</textarea></pre>"


@pytest.fixture
def found(tmp_path: Path) -> Site:
    return site(tmp_path)


@pytest.fixture
def client(found: Site) -> Iterator[TestClient]:
    with browser(found) as client:
        yield client


def browser(found: Site) -> TestClient:
    names = frozenset({HOST})
    return TestClient(web.application(found, names), base_url=f"http://{HOST}", follow_redirects=False)


def log_in(client: TestClient, role: Role) -> str:
    """The token of the session."""
    answer = client.post("/login", data={"name": role.word, "password": PASSWORD})
    assert answer.status_code == 303, answer.text
    go_below(client)
    token = re.search(r'data-token="([^"]+)"', client.get("/").text)
    assert token
    return token[1]


def every_route(found: Site) -> list[tuple[str, str, Role | None]]:
    return [
        (route.path.replace("{name}", "web.css"), method, getattr(route, "role", None))
        for route in web.routes(found)
        for method in sorted(route.methods or ())
    ]


def test_every_route_says_which_role_it_needs(found: Site) -> None:
    assert all(role is not None for _, _, role in every_route(found))
    assert len(every_route(found)) > 40


def test_no_route_answers_without_a_login(found: Site, client: TestClient) -> None:
    for path, method, _ in every_route(found):
        if any(path == each or (each.endswith("/") and path.startswith(each)) for each in OPEN):
            continue
        answer = client.request(method, path)
        assert answer.status_code in (303, 401), (method, path, answer.status_code)
        if answer.status_code == 303:
            assert answer.headers["location"].startswith("/login?next=")
            assert not answer.content


@pytest.mark.parametrize("cookie", ["", "x", "a.b.c", "x" * 5000, "eyJuYW1lIjoiYXBwcm92ZXIifQ.aaa.bbb"])
def test_no_route_answers_to_a_forged_session(found: Site, client: TestClient, cookie: str) -> None:
    for path, method, _ in every_route(found):
        if not path.startswith(OPEN):
            answer = client.request(method, path, headers={"cookie": f"{sessions.COOKIE}={cookie}"})
            assert answer.status_code in (303, 401), (method, path)


def test_a_session_that_another_secret_signed_is_refused(found: Site, client: TestClient) -> None:
    user = found.sessions.users.user("approver")
    assert user
    private = made()
    client.base_url = client.base_url.copy_with(path=f"{private}/")
    ours = sessions.Sessions(found.sessions.users, SECRET, of_start=SECRET).start(user, private=private)
    theirs = sessions.Sessions(found.sessions.users, b"t" * 48, of_start=SECRET).start(user, private=private)
    assert client.get("/", headers={"cookie": f"{sessions.COOKIE}={ours}"}).status_code == 200
    client.cookies.clear()
    assert client.get("/", headers={"cookie": f"{sessions.COOKIE}={theirs}"}).status_code == 303
    # Nor does a changed byte pass.
    changed = ours[:10] + ("A" if ours[10] != "A" else "B") + ours[11:]
    client.cookies.clear()
    assert client.get("/", headers={"cookie": f"{sessions.COOKIE}={changed}"}).status_code == 303


@pytest.mark.parametrize(
    ("boot", "passed_s", "set_by_s", "holds"),
    [
        ("same", 3600, 0, True),
        ("same", 3600, 10 * 365 * 86400, True),
        ("same", 3600, -10 * 365 * 86400, True),
        ("same", 13 * 3600, 0, False),
        ("same", 13 * 3600, -5 * 3600, False),
        ("next", 3600, 0, True),
        ("next", 13 * 3600, 0, False),
        ("next", 3600, -5 * 3600, False),
        ("", 3600, 0, True),
    ],
)
def test_a_session_ends_by_what_has_passed_and_not_by_the_clock(
    found: Site, monkeypatch: pytest.MonkeyPatch, boot: str, passed_s: float, set_by_s: float, holds: bool
) -> None:
    user = found.sessions.users.user("approver")
    assert user
    cookie = found.sessions.start(user)
    start = Clocks.now()
    boot_s = start.boot_s + passed_s if boot == "same" else 40.0
    later = Clocks(start.wall_s + passed_s + set_by_s, boot_s, start.boot if boot == "same" else boot)
    monkeypatch.setattr(Clocks, "now", lambda: later)
    assert (found.sessions.read(cookie) is not None) is holds


@pytest.mark.parametrize("role", list(Role))
def test_a_role_opens_what_is_its_own_and_nothing_above(found: Site, role: Role) -> None:
    with browser(found) as client:
        token = log_in(client, role)
        for path, method, needed in every_route(found):
            if path in ("/login", "/logout", "/enter"):
                continue
            answer = client.request(method, path, headers={"x-csrf-token": token})
            assert needed is not None
            assert (answer.status_code == 403) == (role < needed), (method, path, answer.status_code)


def test_every_write_needs_the_token(found: Site, client: TestClient) -> None:
    token = log_in(client, Role.APPROVER)
    writes = [
        path for path, method, _ in every_route(found) if method not in ("GET", "HEAD") and path != "/login"
    ]
    assert writes
    for path in writes:
        for headers in ({}, {"x-csrf-token": ""}, {"x-csrf-token": "wrong"}):
            assert client.post(path, headers=headers).status_code == 403, path
        elsewhere = {"x-csrf-token": token, "origin": "https://evil.example"}
        assert client.post(path, headers=elsewhere).status_code == 403, path
        across = {"x-csrf-token": token, "sec-fetch-site": "cross-site"}
        assert client.post(path, headers=across).status_code == 403, path
    assert client.post("/login", data={}, headers={"origin": "https://evil.example"}).status_code == 403


def test_another_name_that_points_here_is_refused(found: Site) -> None:
    with TestClient(web.application(found, frozenset({HOST})), base_url="http://evil.example") as client:
        assert client.get("/login").status_code == 421


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((each, 200) for each in ("127.0.0.1", "127.0.0.1:8080", "LOCALHOST:1", "[::1]", "[::1]:8080")),
        *((each, 421) for each in ("[::1].evil.example", "x@127.0.0.1", "127.0.0.1:80@evil.example")),
        *((each, 421) for each in ("127.0.0.1/evil", "127.0.0.1 evil", "[::1]evil:80", "::1", "localhost.")),
    ],
)
def test_a_name_is_all_of_the_header(found: Site, host: str, status: int) -> None:
    names = frozenset({"localhost", "127.0.0.1", "::1"})
    with TestClient(web.application(found, names), base_url="http://localhost") as client:
        assert client.get("/login", headers={"host": host}).status_code == status


@pytest.mark.parametrize("broken", ["http://[", "//[::1", "http://a\u2100b", "http://[x]/"])
def test_an_address_that_is_none_is_refused_and_breaks_nothing(
    found: Site, client: TestClient, broken: str
) -> None:
    assert client.get("/login", params={"next": broken}).status_code == 200
    told = broken.encode("ascii", "ignore").decode()
    token = log_in(client, Role.VIEWER)
    for headers, status in (
        ({"origin": told}, 403),
        ({"referer": told, "accept": "text/html"}, 403),
        ({"host": told.removeprefix("http:")}, 421),
    ):
        sent = {"x-csrf-token": token, **headers}
        assert client.post("/query/plan", headers=sent).status_code == status, headers
    anywhere = TestClient(web.application(found), base_url="https://x")
    assert anywhere.get("/login", headers={"host": "[::1"}).status_code == 421


def test_a_flood_without_a_session_leaves_few_lines_in_the_audit_log(found: Site, client: TestClient) -> None:
    for _ in range(50):
        assert client.post("/login", headers={"origin": "https://evil.example"}).status_code == 403
    assert 1 <= len(found.audit.path.read_text().splitlines()) <= 2 * sessions.FREE_TRIES


def test_a_removed_user_and_a_changed_password_end_sessions(found: Site, client: TestClient) -> None:
    log_in(client, Role.OPERATOR)
    users = found.sessions.users
    users.put("operator", Role.VIEWER, PASSWORD)
    assert client.get("/").status_code == 303
    log_in_name = client.post("/login", data={"name": "operator", "password": PASSWORD})
    assert log_in_name.status_code == 303
    go_below(client)
    assert client.post("/query/plan", headers={"x-csrf-token": "x"}).status_code == 403
    users.remove("operator")
    assert client.get("/").status_code == 303


def test_a_session_ends(found: Site, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    log_in(client, Role.VIEWER)
    later = time.time() + sessions.SESSION_S + 5
    monkeypatch.setattr(time, "time", lambda: later)
    assert client.get("/").status_code == 303
    assert client.get("/api/hosts.json").status_code == 401


def test_guessing_has_to_wait(found: Site, client: TestClient) -> None:
    answers = [
        client.post("/login", data={"name": "viewer", "password": f"wrong {i}"}).status_code for i in range(8)
    ]
    assert answers[: sessions.FREE_TRIES] == [401] * sessions.FREE_TRIES
    assert 429 in answers[sessions.FREE_TRIES :]
    right = client.post("/login", data={"name": "viewer", "password": PASSWORD})
    assert right.status_code == 429
    assert int(right.headers["retry-after"]) >= 1


def test_guesses_from_elsewhere_keep_nobody_out(found: Site) -> None:
    page = web.application(found, frozenset())
    with (
        TestClient(page, base_url="http://localhost", client=("192.0.2.1", 1)) as guesser,
        TestClient(page, base_url="http://localhost", client=("192.0.2.2", 1)) as owner,
    ):
        for i in range(sessions.FREE_TRIES + 2):
            last = guesser.post("/login", data={"name": "viewer", "password": f"wrong {i}"})
        assert last.status_code == 429
        right = owner.post("/login", data={"name": "viewer", "password": PASSWORD}, follow_redirects=False)
        assert right.status_code == 303


def test_a_login_that_cannot_be_noted_is_none(found: Site, client: TestClient) -> None:
    """As when the disk is full."""
    found.audit.path.unlink(missing_ok=True)
    found.audit.path.symlink_to("/dev/full")
    answer = client.post("/login", data={"name": "viewer", "password": PASSWORD}, follow_redirects=False)
    assert answer.status_code == 503
    assert "set-cookie" not in answer.headers
    found.audit.path.unlink()
    assert client.post("/login", data={"name": "viewer", "password": PASSWORD}).status_code == 303


def test_a_question_to_a_server_that_cannot_be_noted_is_not_asked(found: Site, client: TestClient) -> None:
    """As when the disk is full."""
    token = log_in(client, Role.OPERATOR)
    found.audit.path.unlink()
    found.audit.path.symlink_to("/dev/full")
    for path in ("/query/plan", "/query/tables"):
        asked = client.post(path, headers={"x-csrf-token": token}, data={"host": "db1"})
        assert (asked.status_code, "audit log" in asked.text) == (503, True), path


def test_logins_and_refusals_are_in_the_audit_log(found: Site, client: TestClient) -> None:
    client.post("/login", data={"name": f"nobody{XSS}\n{{}}", "password": "x"})
    token = log_in(client, Role.VIEWER)
    client.post("/query/plan", headers={"x-csrf-token": token})
    lines = [json.loads(line) for line in found.audit.path.read_text().splitlines()]
    assert [(line["action"], line["ok"]) for line in lines] == [
        ("login", False), ("login", True), ("refused POST", False),
    ]  # fmt: skip
    assert PASSWORD not in found.audit.path.read_text()
    assert found.audit.path.stat().st_mode & 0o077 == 0


def test_the_key_opens_and_nothing_else_does(tmp_path: Path) -> None:
    with browser(site(tmp_path, key="the key")) as client:
        assert client.get("/enter?key=").status_code == 401
        assert client.get("/enter?key=wrong").status_code == 401
        assert client.get("/").status_code == 303
        # There are no users, so no name and no password open it.
        assert client.post("/login", data={"name": "local", "password": ""}).status_code == 401
        answer = client.get("/enter?key=the key&next=//evil.example")
        assert (answer.status_code, answer.headers["location"]) == (303, f"{private_path(client)}/")
        assert client.get("/").status_code == 303
        go_below(client)
        assert client.get("/").status_code == 200


def test_headers(found: Site, client: TestClient) -> None:
    for path in ("/login", "/nothing", "/static/web.js", "/api/hosts.json"):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "server" not in answer.headers
    cookie = (
        client.post("/login", data={"name": "viewer", "password": PASSWORD}).headers["set-cookie"].lower()
    )
    assert "httponly" in cookie
    assert "samesite=lax" in cookie


def test_under_tls_the_cookie_never_travels_without_it(tmp_path: Path) -> None:
    app = web.application(site(tmp_path, secure=True))
    with TestClient(app, base_url="https://x", follow_redirects=False) as client:
        answer = client.post("/login", data={"name": "viewer", "password": PASSWORD})
    assert "secure" in answer.headers["set-cookie"].lower()
    assert "strict-transport-security" in answer.headers


@pytest.mark.parametrize(
    "place", ["//evil", "https://evil", "/\\evil", "\\\\evil", "javascript:alert(1)", "", "/\nx", "evil"]
)
def test_a_login_leads_nowhere_else(place: str) -> None:
    assert local_path(place) == "/"


def test_a_body_has_a_limit(client: TestClient) -> None:
    assert client.post("/login", content=b"x" * 100_000).status_code == 413
    many = "&".join(f"a{i}=1" for i in range(5000))
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/login", content=many, headers=form).status_code == 401


class TestUsers:
    def test_the_file_is_its_owners_alone(self, tmp_path: Path) -> None:
        users = Users(tmp_path / "users", FAST)
        assert not users.all()
        users.put("ann", Role.OPERATOR, PASSWORD)
        assert users.path.stat().st_mode & 0o777 == 0o600
        assert PASSWORD not in users.path.read_text()
        assert "argon2id" in users.path.read_text()
        assert users.verify("ann", PASSWORD)
        assert not users.verify("ann", PASSWORD + " ")
        assert not users.verify("bob", PASSWORD)
        users.path.chmod(0o640)
        with pytest.raises(Refused, match="others can read"):
            users.all()

    @pytest.mark.parametrize("name", ["", "a b", "a\nb", "x" * 65, "a/b", "ü"])
    def test_names(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(PlanError):
            Users(tmp_path / "users", FAST).put(name, Role.VIEWER, PASSWORD)

    def test_a_short_password_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(PlanError, match="at least 12"):
            Users(tmp_path / "users", FAST).put("ann", Role.VIEWER, "short")

    def test_a_file_that_others_can_read_lets_nobody_in(self, found: Site, client: TestClient) -> None:
        log_in(client, Role.VIEWER)
        found.sessions.users.path.chmod(0o644)
        assert client.get("/").status_code == 503


class Seen(HTMLParser):
    """The elements and attributes that a browser would make of a page."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.handlers: set[str] = set()
        self.scripts: list[str | None] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.handlers |= {name for name, _ in attrs if name.startswith("on")}
        if tag == "script":
            self.scripts.append(dict(attrs).get("src"))


def hostile(tmp_path: Path) -> Site:
    """A site in which every captured field holds a script."""
    found = site(tmp_path, hosts=(XSS,))
    archive = found.reader.archive
    now = int(time.time()) // MINUTE_S * MINUTE_S
    fill(archive, XSS, now - 5 * MINUTE_S, 4, XSS)
    write(archive, "states", XSS, now - MINUTE_S, [state(XSS, XSS, problem=XSS, findings=json.dumps(
        [{"id": XSS, "title": XSS, "severity": XSS, "summary": XSS}]))])  # fmt: skip
    write(archive, "classes", XSS, now - MINUTE_S, [query(XSS, 5, 1e6, database=XSS)])
    watched = found.collector.hosts[XSS]
    text = dict.fromkeys(
        ("user", "host", "db", "command", "state", "class", "lock", "table", "holder_user"), XSS
    )
    watched.listed = [
        {"id": 1, "time_s": 3, "examined_rows": None, **text},
        {"waiter": 2, "holder": 1, "waiter_class": XSS, "holder_class": XSS, "holder_open_s": 1, **text},
    ]
    watched.listed[1].pop("host")
    watched.listed_at_s = time.time()
    watched.listed_problem = XSS
    folder = found.experiments / "a<b"
    (folder / "trials").mkdir(parents=True)
    (folder / "design.json").write_text(json.dumps({"format": XSS}))
    (folder / "report.html").write_text("<script>1</script>")
    found.collector.problem = XSS
    return found


PAGES: tuple[tuple[str, dict[str, str]], ...] = (
    ("/", {}),
    ("/", {"host": XSS, "sort": XSS}),
    ("/host", {"host": XSS}),
    ("/queries", {"host": XSS, "q": "script"}),
    ("/queries", {"q": XSS, "source": XSS}),
    ("/query", {"host": XSS, "class": "a", "source": "slow log"}),
    ("/query", {"host": XSS, "class": XSS, "source": "slow log"}),
    ("/now", {"host": XSS}),
    ("/compare", {"host": XSS, "with_host": XSS}),
    ("/changes", {"host": XSS}),
    ("/experiments", {}),
    ("/experiment", {"id": "a<b"}),
)


def test_captured_text_is_text_everywhere(tmp_path: Path) -> None:
    found = hostile(tmp_path)
    with browser(found) as client:
        log_in(client, Role.APPROVER)
        for path, parameters in PAGES:
            answer = client.get(path, params=parameters)
            assert answer.status_code == 200, (path, parameters, answer.text[-500:])
            seen = Seen(answer.text)
            assert not seen.handlers, (path, seen.handlers)
            assert not seen.tags & {"img", "object", "embed", "base"}, path
            assert all(source and source.startswith("/static/") for source in seen.scripts), path
            assert "\x1b" not in answer.text
            assert "\u202e" not in answer.text
            assert "alert(1)" in answer.text or path in ("/experiments", "/experiment"), (
                f"{path} shows nothing of it"
            )
        for address in (
            "/host?host=",
            "/queries?host=",
            "/api/chart.json?metric=<script>&host=",
            "/?until=",
            "/?range=",
        ):
            answer = client.get(address + "<script>alert(1)</script>")
            assert answer.status_code in (400, 404), address
            assert "<script>alert" not in answer.text or answer.headers["content-type"] == "application/json"


def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    found = site(tmp_path)
    now = int(time.time()) // MINUTE_S * MINUTE_S
    fill(found.reader.archive, "db1", now - 3 * MINUTE_S, 2, "=cmd|' /C calc'!A0")
    with browser(found) as client:
        log_in(client, Role.VIEWER)
        for name in ("classes", "changes"):
            answer = client.get(f"/api/{name}.csv")
            assert answer.headers["content-type"].startswith("text/csv")
            cells = [cell for row in csv.reader(io.StringIO(answer.text)) for cell in row]
            assert any("cmd|" in cell for cell in cells), name
            assert not any(cell.startswith("=") for cell in cells)


def test_values_are_shown_only_to_those_who_may(tmp_path: Path) -> None:
    found = site(tmp_path)
    now = int(time.time()) // MINUTE_S * MINUTE_S
    fill(found.reader.archive, "db1", now - 3 * MINUTE_S, 2)
    secret = "SELECT 'a secret value'"
    row = {"source": "slow log", "class": "a", "text": secret, "database": "", "took_ns": 1}
    write(found.reader.archive, "examples", "db1", now - MINUTE_S, [row])
    shown: dict[Role, bool] = {}
    for role in Role:
        with browser(found) as client:
            log_in(client, role)
            pages: list[Any] = [client.get("/query", params={"class": "a", "source": "slow log"})]
            pages += [client.get(f"/api/{name}.json") for name in ("classes", "changes", "hosts")]
            assert all(page.status_code == 200 for page in pages)
            shown[role] = any("a secret value" in page.text for page in pages)
    assert shown == {Role.VIEWER: False, Role.OPERATOR: True, Role.APPROVER: True}


def test_a_report_runs_in_a_sandbox_without_an_origin(tmp_path: Path) -> None:
    with browser(hostile(tmp_path)) as client:
        log_in(client, Role.VIEWER)
        client.follow_redirects = True
        answer = client.get("/experiment/report", params={"id": "a<b"})
        assert answer.status_code == 200
        assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts")
        assert "allow-same-origin" not in answer.headers["content-security-policy"]
        folder = tmp_path / "experiments" / "a<b"
        (folder / "report.html").unlink()
        (tmp_path / "elsewhere").write_text("the secret that signs sessions")
        (folder / "report.html").symlink_to(tmp_path / "elsewhere")
        assert client.get("/experiment/report", params={"id": "a<b"}).status_code == 404
        assert "/experiment/report" not in client.get("/experiment", params={"id": "a<b"}).text
        for place in ("..", "../history", "/etc", "a<b/../..", ""):
            assert client.get("/experiment/report", params={"id": place}).status_code == 404
