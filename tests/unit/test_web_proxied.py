"""Users whom a reverse proxy names: from which connection a header counts, and what else may not pass for it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from headrace.base.errors import HeadraceError, PlanError, Refused
from headrace.web import app as web
from headrace.web import sessions
from headrace.web.auth import Auth, read
from headrace.web.guard import OPEN, Guard
from headrace.web.private import made
from headrace.web.proxied import NotBelieved
from headrace.web.site import Site
from headrace.web.users import Role, Users
from tests.below import go_below
from tests.history import FAST, PASSWORD, site

pytestmark = pytest.mark.usefixtures("quick_disk")

PROXY, ELSEWHERE = "10.0.0.7", "10.0.1.7"
BY_FILE = 'user_header = "Remote-User"'
BY_GROUP = BY_FILE + '\nrole_header = "Remote-Groups"\nroles = {dba = "operator", lead = "approver"}'


def settings(folder: Path, content: str = BY_FILE, addresses: str = '["10.0.0.0/24"]') -> Auth:
    path = folder / "auth.toml"
    path.write_text(f"[proxy]\naddresses = {addresses}\n{content}\n")
    path.chmod(0o600)
    return read(path)


def connected(found: Site, address: str = PROXY) -> TestClient:
    """A browser whose connection comes from this address."""
    return TestClient(
        web.application(found, frozenset({"localhost"})),
        base_url="http://localhost",
        follow_redirects=False,
        client=(address, 50000),
    )


def audit(found: Site) -> list[dict[str, Any]]:
    path = found.audit.path
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def named(name: str, **more: str) -> Mapping[str, str]:
    return {"remote-user": name, **{key.replace("_", "-"): value for key, value in more.items()}}


class TestANamedProxy:
    def test_its_user_has_the_role_of_the_users_file(self, tmp_path: Path) -> None:
        found = site(tmp_path, auth=settings(tmp_path))
        found.sessions.users.put("ann", Role.OPERATOR, None)
        with connected(found) as client:
            for _ in range(3):
                assert "ann (operator)" in client.get("/", headers=named("ann")).text
            # Its word counts for one request.
            assert client.get("/").status_code == 303
            answer = client.get("/", headers=named("bob"))
            assert answer.status_code == 403
            assert "bob has no role here" in answer.text
            found.sessions.users.remove("ann")
            assert client.get("/", headers=named("ann")).status_code == 403
        assert [(line["who"], line["action"], line["ok"]) for line in audit(found)] == [
            ("ann", "login by proxy", True),
            ("bob", "refused proxy user", False),
            ("ann", "refused proxy user", False),
        ]

    def test_a_login_that_cannot_be_noted_is_none(self, tmp_path: Path) -> None:
        """As when the disk is full."""
        found = site(tmp_path, auth=settings(tmp_path))
        found.sessions.users.put("ann", Role.OPERATOR, None)
        found.audit.path.symlink_to("/dev/full")
        with connected(found) as client:
            for _ in range(2):
                assert client.get("/", headers=named("ann")).status_code == 503
            found.audit.path.unlink()
            assert client.get("/", headers=named("ann")).status_code == 200
        assert [(line["who"], line["ok"]) for line in audit(found)] == [("ann", True)]

    def test_only_the_proxy_can_log_out(self, tmp_path: Path) -> None:
        found = site(tmp_path, auth=settings(tmp_path))
        found.sessions.users.put("ann", Role.OPERATOR, None)
        with connected(found) as client:
            page = client.get("/", headers=named("ann")).text
            assert "Log out" not in page
            token = page.partition('data-token="')[2].partition('"')[0]
            answer = client.post("/logout", headers={**named("ann"), "x-csrf-token": token})
            assert answer.headers["location"] == "/"
            assert "ann (operator)" in client.get("/", headers=named("ann")).text
        assert "logout" not in [line["action"] for line in audit(found)]
        with_url = settings(tmp_path, BY_FILE + '\nlog_out_url = "/oauth2/sign_out"')
        with connected(site(tmp_path, auth=with_url)) as client:
            assert (
                '<a class="button" href="/oauth2/sign_out">Log out</a>'
                in client.get("/", headers=named("ann")).text
            )

    @pytest.mark.parametrize("url", ["//evil.example", "javascript:alert(1)", "http://evil.example", "x"])
    def test_an_address_of_the_logout_is_one(self, tmp_path: Path, url: str) -> None:
        with pytest.raises(PlanError, match="log_out_url"):
            settings(tmp_path, f'{BY_FILE}\nlog_out_url = "{url}"')

    @pytest.mark.parametrize(
        ("groups", "role"), [("dba", "operator"), ("staff, dba ,lead", "approver"), ("lead", "approver")]
    )
    def test_or_of_its_groups(self, tmp_path: Path, groups: str, role: str) -> None:
        with connected(site(tmp_path, auth=settings(tmp_path, BY_GROUP))) as client:
            headers = [(b"remote-user", "Änn".encode()), (b"remote-groups", groups.encode())]
            answer = client.get("/", headers=headers)
            assert f"Änn ({role})" in answer.text

    @pytest.mark.parametrize("groups", ["", "staff", "DBA", "dba;lead", "xdba"])
    def test_without_a_role_nobody_gets_in(self, tmp_path: Path, groups: str) -> None:
        # Not even with one in the users' file: one source says it.
        with connected(site(tmp_path, auth=settings(tmp_path, BY_GROUP))) as client:
            for headers in (named("viewer", remote_groups=groups), named("viewer")):
                answer = client.get("/", headers=headers)
                assert answer.status_code == 403
                assert "no value of remote-groups is in [proxy.roles]" in answer.text

    def test_a_write_needs_the_token(self, tmp_path: Path) -> None:
        with connected(site(tmp_path, auth=settings(tmp_path))) as client:
            headers = named("operator")
            token = re.search(r'data-token="([^"]+)"', client.get("/", headers=headers).text)
            assert token
            assert client.post("/query/plan", headers=headers).status_code == 403
            of_another = client.get("/", headers=named("approver")).text
            assert token[1] not in of_another
            written = client.post("/query/plan", headers={**headers, "x-csrf-token": token[1]})
            assert written.status_code != 403
            across = {**headers, "x-csrf-token": token[1], "origin": "https://evil.example"}
            assert client.post("/query/plan", headers=across).status_code == 403
            assert client.post("/rollouts/approve", headers=named("viewer")).status_code in (403, 404)

    def test_a_cookie_of_someone_else_does_not_count(self, tmp_path: Path) -> None:
        found = site(tmp_path, auth=settings(tmp_path))
        approver = found.sessions.users.user("approver")
        assert approver
        private = made()
        with connected(found) as client:
            client.cookies.set(sessions.COOKIE, found.sessions.start(approver, private=private))
            for path in ("/", f"{private}/"):
                page = client.get(path, headers=named("viewer")).text
                assert "viewer (viewer)" in page
                assert private not in page

    @pytest.mark.parametrize("name", ["", " ", "x" * 65, "a\tb", "a\xe2\x80\xaeb"])
    def test_what_is_no_name(self, tmp_path: Path, name: str) -> None:
        with connected(site(tmp_path, auth=settings(tmp_path, BY_GROUP))) as client:
            answer = client.get(
                "/", headers=[(b"remote-user", name.encode("latin-1")), (b"remote-groups", b"dba")]
            )
            assert answer.status_code == 403
            assert "holds no name" in answer.text

    def test_nor_is_what_is_not_utf_8(self, tmp_path: Path) -> None:
        found = site(tmp_path, auth=settings(tmp_path))
        assert found.proxy
        with pytest.raises(NotBelieved, match="holds no name"):
            found.proxy.user(PROXY, Headers(raw=[(b"remote-user", b"\xff\xfe")]))

    @pytest.mark.parametrize("header", ["remote-user", "remote-groups"])
    def test_a_proxy_that_adds_to_what_clients_send(self, tmp_path: Path, header: str) -> None:
        with connected(site(tmp_path, auth=settings(tmp_path, BY_GROUP))) as client:
            sent = [("remote-user", "ann"), ("remote-groups", "dba"), (header, "lead")]
            answer = client.get("/", headers=sent)
            assert answer.status_code == 403
            assert f"{header} came more than once" in answer.text

    def test_it_is_known_by_a_secret_too(self, tmp_path: Path) -> None:
        secret = tmp_path / "proxy.secret"
        secret.write_text("a long secret\n")
        secret.chmod(0o600)
        auth = settings(tmp_path, BY_FILE + '\nsecret_file = "proxy.secret"', '["127.0.0.1", "::1"]')
        with connected(site(tmp_path, auth=auth), "127.0.0.1") as client:
            for wrong in ({}, {"x-headrace-secret": ""}, {"x-headrace-secret": "a long secre"}):
                answer = client.get("/", headers={**named("approver"), **wrong})
                assert answer.status_code == 403
                assert "without the proxy's secret" in answer.text
                assert "a long secret" not in answer.text
            right = {**named("approver"), "x-headrace-secret": "a long secret"}
            assert client.get("/", headers=right).status_code == 200

    @pytest.mark.parametrize("address", ["10.0.0.7", "::ffff:10.0.0.7", "fd00::1"])
    def test_addresses_of_both_families(self, tmp_path: Path, address: str) -> None:
        auth = settings(tmp_path, addresses='["10.0.0.0/24", "fd00::/64"]')
        with connected(site(tmp_path, auth=auth), address) as client:
            assert client.get("/", headers=named("viewer")).status_code == 200


class TestElsewhere:
    @pytest.mark.parametrize(
        "address", [ELSEWHERE, "127.0.0.1", "::1", "::ffff:10.0.1.7", "::10.0.0.7", "testclient", ""]
    )
    def test_the_header_opens_nothing_and_is_noted(self, tmp_path: Path, address: str) -> None:
        found = site(tmp_path, auth=settings(tmp_path))
        with connected(found, address) as client:
            answer = client.get("/", headers=named("approver"))
            assert answer.status_code == 403
            assert f"came from {address or 'an unknown address'}, which is not a named proxy" in answer.text
            assert not answer.cookies
        [line] = audit(found)
        assert (line["who"], line["from"], line["ok"]) == ("approver", address, False)
        assert line["action"] == "refused proxy user"

    @pytest.mark.parametrize(
        "header", ["x-forwarded-for", "x-real-ip", "forwarded", "x-client-ip", "cf-connecting-ip", "via"]
    )
    def test_what_a_client_writes_about_its_way_is_not_believed(self, tmp_path: Path, header: str) -> None:
        value = f"for={PROXY}" if header == "forwarded" else PROXY
        with connected(site(tmp_path, auth=settings(tmp_path)), ELSEWHERE) as client:
            assert client.get("/", headers={**named("approver"), header: value}).status_code == 403

    def test_no_route_answers_to_it(self, tmp_path: Path) -> None:
        found = site(tmp_path, auth=settings(tmp_path))
        with connected(found, ELSEWHERE) as client:
            for route in web.routes(found):
                for method in route.methods or ():
                    path = route.path.replace("{name}", "web.css")
                    assert client.request(method, path, headers=named("approver")).status_code == 403, path
            assert all(client.get(path, headers=named("approver")).status_code == 403 for path in OPEN)

    def test_not_even_beside_a_session(self, tmp_path: Path) -> None:
        found = site(tmp_path, auth=settings(tmp_path))
        with connected(found, ELSEWHERE) as client:
            assert client.post("/login", data={"name": "viewer", "password": PASSWORD}).status_code == 303
            go_below(client)
            assert client.get("/").status_code == 200
            assert client.get("/", headers=named("approver")).status_code == 403

    def test_a_flood_leaves_few_lines(self, tmp_path: Path) -> None:
        found = site(tmp_path, auth=settings(tmp_path))
        with connected(found, ELSEWHERE) as client:
            for i in range(30):
                assert client.get("/", headers=named(f"approver{i}")).status_code == 403
        assert sessions.FREE_TRIES <= len(audit(found)) <= sessions.FREE_TRIES + 1

    def test_without_a_proxy_in_the_settings_the_header_is_nothing(self, tmp_path: Path) -> None:
        with connected(site(tmp_path)) as client:
            assert client.get("/", headers=named("approver")).status_code == 303


class TestTheKey:
    def test_one_key_for_everyone_is_never_beside_a_proxy(self, tmp_path: Path) -> None:
        with pytest.raises(PlanError, match="exclude each other"):
            site(tmp_path, key="the key", auth=settings(tmp_path))

    def test_the_command_makes_none(self, tmp_path: Path) -> None:
        from headrace.history.archive.files import Archive
        from headrace.web.app import Listen
        from headrace.web.command import ANY_STORAGE, _site

        archive = Archive(tmp_path / "history")
        archive.create()
        for auth, has_key in ((Auth(), True), (settings(tmp_path), False)):
            found = _site(archive, [], Users(tmp_path / "users", FAST), auth, tmp_path, ANY_STORAGE, Listen())
            assert bool(found.sessions.key) == has_key
        with connected(found) as client:
            assert client.get("/enter?key=").status_code == 401
            assert "reverse proxy in front of these pages" in client.get("/login").text


class TestSettings:
    @pytest.mark.parametrize(
        ("content", "addresses", "said"),
        [
            (BY_FILE, "[]", "proxy.addresses: tuple should have at least 1 item"),
            (BY_FILE, '["proxy.example.com"]', "no address or network"),
            (BY_FILE, '["10.0.0.1/24"]', "has host bits set"),
            (BY_FILE, '["0.0.0.0/0"]', "everyone"),
            (BY_FILE, '["::/0"]', "everyone"),
            ("", '["10.0.0.1"]', "proxy.user_header: field required"),
            ('user_header = ""', '["10.0.0.1"]', "no header for this"),
            ('user_header = "X-Forwarded-For"', '["10.0.0.1"]', "no header for this"),
            ('user_header = "Cookie"', '["10.0.0.1"]', "no header for this"),
            (BY_FILE + '\nrole_header = "Groups"', '["10.0.0.1"]', "belong together"),
            (BY_FILE + '\nroles = {a = "viewer"}', '["10.0.0.1"]', "belong together"),
            (BY_GROUP.replace("operator", "root"), '["10.0.0.1"]', "dba: no such role"),
            (BY_GROUP.replace("Groups", "User"), '["10.0.0.1"]', "cannot have two meanings"),
            (BY_FILE + "\nuser = 1", '["10.0.0.1"]', "proxy.user: extra inputs"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, content: str, addresses: str, said: str) -> None:
        with pytest.raises(HeadraceError, match=re.escape(said)) as error:
            settings(tmp_path, content, addresses)
        assert str(tmp_path / "auth.toml") in str(error.value)

    @pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.0/8", "64.0.0.0/2", "::1", "::/64"])
    def test_loopback_alone_is_not_enough(self, tmp_path: Path, address: str) -> None:
        with pytest.raises(Refused, match="every account on this machine"):
            settings(tmp_path, addresses=f'["{address}"]')

    def test_a_file_that_others_can_change(self, tmp_path: Path) -> None:
        settings(tmp_path)
        (tmp_path / "auth.toml").chmod(0o620)
        with pytest.raises(Refused, match="other users can change"):
            read(tmp_path / "auth.toml")

    @pytest.mark.parametrize("content", ["", "[other]", "[proxy", "\xff", "proxy = 1"])
    def test_a_file_that_is_none(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "auth.toml"
        path.write_bytes(content.encode("latin-1"))
        path.chmod(0o600)
        with pytest.raises(PlanError, match=re.escape(str(path))):
            read(path)
        with pytest.raises(PlanError, match="cannot be read"):
            read(tmp_path / "nothing")

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ('client_secret = "do not print"', "hint: client_secret_file"),
            ('issuer = "http://id.example.com"', "issuer: needs https"),
            ('issuer = "https://ann:pw@id.example.com"', "issuer: no address"),
            ('issuer = "https://id.example.com?a=b"', "has a query"),
            ('url = "http://db.example.com"', "url: needs https"),
            ('url = "https://db.example.com/pages"', "at / of a host"),
            ("leeway_s = 301", "leeway_s"),
            ("session_hours = 13", "session_hours"),
            ('scopes = ["profile"]', "without openid"),
            ('client_auth = "private_key_jwt"', "client_auth"),
            ("roles = {}", "oidc.roles"),
            ('roles = {dba = "root"}', "dba: no such role"),
            ('client_secret_file = "loose"', "loose: others can read"),
            ('client_secret_file = "missing"', "missing: cannot be read"),
            ('client_secret_file = "short"', "short: a secret is one line"),
            ('client_secret_file = "lines"', "lines: a secret is one line"),
            ('ca_file = "missing"', "no such file"),
        ],
    )
    def test_settings_of_a_provider(self, tmp_path: Path, line: str, said: str) -> None:
        for name, content, mode in (
            ("tight", "a long secret\n", 0o600), ("loose", "a long secret", 0o640), ("short", "x", 0o600),
            ("lines", "a long\nsecret", 0o600),
        ):  # fmt: skip
            (tmp_path / name).write_text(content)
            (tmp_path / name).chmod(mode)
        given = {
            "issuer": 'issuer = "https://id.example.com"', "client_id": 'client_id = "headrace"',
            "client_secret_file": 'client_secret_file = "tight"', "url": 'url = "https://db.example.com"',
            "roles": 'roles = {dba = "operator"}',
        }  # fmt: skip
        path = tmp_path / "auth.toml"
        path.touch(mode=0o600)
        path.write_text("\n".join(["[oidc]", *given.values()]))
        assert read(path).oidc
        path.write_text("\n".join(["[oidc]", *{**given, line.split(" ")[0]: line}.values()]))
        with pytest.raises(HeadraceError, match=re.escape(said)) as error:
            read(path)
        assert "do not print" not in str(error.value)
        assert "a long" not in str(error.value)


def test_a_user_without_a_password_is_opened_by_none(tmp_path: Path) -> None:
    users = Users(tmp_path / "users", FAST)
    users.put("ann", Role.VIEWER, None)
    assert users.all() == {"ann": Role.VIEWER}
    for password in ("", "-", PASSWORD):
        assert users.verify("ann", password) is None
    users.put("ann", Role.VIEWER, PASSWORD)
    assert users.verify("ann", PASSWORD)


def test_what_lasts_asks_again_who_may_see_it(tmp_path: Path) -> None:
    """A live stream of a proxy's user, who has no cookie: it goes on, and ends when the user is removed."""
    found = site(tmp_path, auth=settings(tmp_path))
    held: list[Any] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        held.append(scope["state"]["session_now"])
        await PlainTextResponse("seen")(scope, receive, send)

    guard = Guard(
        inner, sessions=found.sessions, audit=found.audit, routes=web.routes(found), names=frozenset(),
        is_secure=False, proxy=found.proxy,
    )  # fmt: skip
    answer = TestClient(guard, client=(PROXY, 50000)).get("/live", headers=named("viewer"))
    assert answer.text == "seen"
    [now] = held
    assert now().user.name == "viewer"
    found.sessions.users.remove("viewer")
    assert now() is None
