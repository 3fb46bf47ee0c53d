"""Logins at an OpenID Connect provider: the whole way by redirects, and everything that must not get in."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey
from starlette.testclient import TestClient

from headrace.base.clocks import Clocks
from headrace.web import app as web
from headrace.web import provider as provider_module
from headrace.web import sessions
from headrace.web.auth import Auth, read
from headrace.web.doors import BEGUN
from headrace.web.site import Site
from headrace.web.users import Role
from tests.below import be, go_below, private_path, session_cookie
from tests.history import PASSWORD, site
from tests.openid import CLIENT_SECRET, OpenId

pytestmark = pytest.mark.usefixtures("quick_disk")

URL = "http://localhost"
BACK = f"{URL}/login/oidc/back"


@pytest.fixture
def provider() -> Iterator[OpenId]:
    found = OpenId(BACK)
    try:
        yield found
    finally:
        found.stop()


def settings(folder: Path, provider: OpenId, more: str = "", roles: str = 'dba = "operator"') -> Auth:
    secret = folder / "oidc.secret"
    secret.write_text(f"{CLIENT_SECRET}\n")
    secret.chmod(0o600)
    path = folder / "auth.toml"
    path.write_text(
        f'[oidc]\nissuer = "{provider.issuer}"\nclient_id = "headrace"\nclient_secret_file = "oidc.secret"\n'
        f'url = "{URL}"\n{more}\n[oidc.roles]\n{roles}\n'
    )
    path.chmod(0o600)
    return read(path)


@pytest.fixture
def found(tmp_path: Path, provider: OpenId) -> Site:
    return site(tmp_path, auth=settings(tmp_path, provider))


@pytest.fixture
def client(found: Site) -> Iterator[TestClient]:
    with browser(found) as client:
        yield client


def browser(found: Site) -> TestClient:
    return TestClient(web.application(found, frozenset({"localhost"})), base_url=URL, follow_redirects=False)


def at_provider(client: TestClient, after: str = "/") -> str:
    """The address to which the provider sends the browser back."""
    answer = client.get("/login/oidc", params={"next": after})
    assert answer.status_code == 303, answer.text
    sent = httpx2.get(answer.headers["location"], trust_env=False)
    assert sent.status_code == 302
    return sent.headers["location"]


def log_in(client: TestClient, after: str = "/") -> httpx2.Response:
    answer = client.get(at_provider(client, after))
    go_below(client)
    return answer


def audit(found: Site) -> list[dict[str, Any]]:
    return [json.loads(line) for line in found.audit.path.read_text().splitlines()]


def is_in(client: TestClient) -> bool:
    return client.get("/").status_code == 200


class TestTheWholeWay:
    def test_a_person_with_a_role_gets_in(self, found: Site, client: TestClient) -> None:
        assert "Log in with 127.0.0.1" in client.get("/login").text
        answer = log_in(client, "/queries?range=24h")
        assert answer.status_code == 303
        assert answer.headers["location"] == f"{private_path(client)}/queries?range=24h"
        page = client.get("/")
        assert "ann (operator)" in page.text
        token = re.search(r'data-token="([^"]+)"', page.text)
        assert token
        # What changes something needs the session's token, as for every user.
        assert client.post("/query/plan").status_code == 403
        assert client.post("/query/plan", headers={"x-csrf-token": token[1]}).status_code != 403
        [line] = [line for line in audit(found) if line["action"] == "login by oidc"]
        assert (line["who"], line["ok"]) == ("ann", True)
        assert "user-1" in line["about"]

    def test_a_login_that_cannot_be_noted_is_none(self, found: Site, client: TestClient) -> None:
        """As when the disk is full."""
        found.audit.path.unlink(missing_ok=True)
        found.audit.path.symlink_to("/dev/full")
        assert log_in(client).status_code == 503
        assert "ann (operator)" not in client.get("/").text
        found.audit.path.unlink()
        assert log_in(client).status_code == 303

    def test_cookies_are_not_for_scripts_and_no_secret_is_in_them(self, client: TestClient) -> None:
        start = client.get("/login/oidc")
        asked = parse_qs(urlsplit(start.headers["location"]).query)
        begun = start.headers["set-cookie"]
        back = client.get(httpx2.get(start.headers["location"], trust_env=False).headers["location"])
        for cookie in (begun, back.headers["set-cookie"]):
            assert "httponly" in cookie.lower()
            assert "samesite=lax" in cookie.lower()
        content = base64.urlsafe_b64decode(begun.split("=", 1)[1].split(".")[0] + "===").decode()
        assert asked["state"][0] in content
        assert asked["nonce"][0] not in content
        assert CLIENT_SECRET not in start.text + back.text + str(start.headers) + str(back.headers)

    def test_under_tls_no_cookie_travels_without_it(self, tmp_path: Path, provider: OpenId) -> None:
        provider.back = BACK.replace("http:", "https:")
        auth = settings(tmp_path, provider)
        assert auth.oidc
        table = auth.oidc.table.model_copy(update={"url": "https://localhost"})
        auth = Auth(oidc=dataclasses.replace(auth.oidc, table=table))
        assert auth.oidc
        assert auth.oidc.is_secure
        app = web.application(site(tmp_path, auth=auth, secure=True))
        with TestClient(app, base_url="https://localhost", follow_redirects=False) as client:
            assert "secure" in client.get("/login/oidc").headers["set-cookie"].lower()
            assert "secure" in log_in(client).headers["set-cookie"].lower()
            assert is_in(client)

    def test_local_users_still_log_in(self, client: TestClient) -> None:
        assert client.post("/login", data={"name": "viewer", "password": PASSWORD}).status_code == 303

    @pytest.mark.parametrize("after", ["//evil.example", "https://evil.example", "/\\evil"])
    def test_a_login_leads_nowhere_else(self, client: TestClient, after: str) -> None:
        assert log_in(client, after).headers["location"] == f"{private_path(client)}/"


class TestRoles:
    @pytest.mark.parametrize(
        ("more", "claims", "role"),
        [
            ("", {"groups": ["dba", "lead"]}, Role.APPROVER),
            ("", {"groups": ["lead", "dba", 7, None]}, Role.APPROVER),
            ("", {"groups": "dba"}, Role.OPERATOR),
            ("", {"groups": ["all"]}, Role.VIEWER),
            ('role_claim = "realm.roles"', {"realm": {"roles": ["dba"]}}, Role.OPERATOR),
            ('role_claim = "https://x.example/roles"', {"https://x.example/roles": ["dba"]}, Role.OPERATOR),
        ],
    )
    def test_the_highest_role_of_the_claim_counts(
        self, tmp_path: Path, provider: OpenId, more: str, claims: dict[str, Any], role: Role
    ) -> None:
        roles = 'all = "viewer"\ndba = "operator"\nlead = "approver"'
        provider.claims = claims
        with browser(site(tmp_path, auth=settings(tmp_path, provider, more, roles))) as client:
            log_in(client)
            assert f"ann ({role.word})" in client.get("/").text

    @pytest.mark.parametrize("groups", [None, [], ["staff"], "DBA", {"dba": 1}, 7, ["dba "], [["dba"]]])
    def test_without_a_role_nobody_gets_in(
        self, found: Site, provider: OpenId, client: TestClient, groups: Any
    ) -> None:
        provider.claims = {"groups": groups}
        answer = log_in(client)
        assert answer.status_code == 403
        assert "ann has no role here" in answer.text
        assert sessions.COOKIE not in client.cookies
        assert not is_in(client)
        assert [(line["who"], line["ok"]) for line in audit(found)] == [("ann", False)]

    @pytest.mark.parametrize("name", [None, "", " ann", "x" * 65, "a\nb", "a\u202eb", 7, ["ann"]])
    def test_a_name_that_cannot_be_shown_is_refused(
        self, provider: OpenId, client: TestClient, name: Any
    ) -> None:
        provider.claims = {"preferred_username": name}
        assert "no name in preferred_username" in log_in(client).text
        assert not is_in(client)

    @pytest.mark.parametrize("name", ["viewer", sessions.KEY_HOLDER])
    def test_nobody_appears_as_a_local_user(self, provider: OpenId, client: TestClient, name: str) -> None:
        provider.claims = {"preferred_username": name}
        assert log_in(client).status_code == 403
        assert not is_in(client)

    def test_a_local_user_who_is_added_later_ends_the_session(self, found: Site, client: TestClient) -> None:
        log_in(client)
        found.sessions.users.put("ann", Role.VIEWER, PASSWORD)
        assert not is_in(client)

    def test_an_address_that_was_not_verified_is_no_name(self, tmp_path: Path, provider: OpenId) -> None:
        with browser(site(tmp_path, auth=settings(tmp_path, provider, 'name_claim = "email"'))) as client:
            for verified in (None, False, "true"):
                provider.claims = {"email": "ann@x.example", "email_verified": verified}
                assert log_in(client).status_code == 403
            provider.claims = {"email": "ann@x.example", "email_verified": True}
            assert log_in(client).status_code == 303


class TestTheAnswer:
    def test_a_wrong_state(self, found: Site, client: TestClient) -> None:
        back = at_provider(client)
        state = parse_qs(urlsplit(back).query)["state"][0]
        for wrong in (back.replace(state, "x" * len(state)), re.sub(r"state=[^&]+", "", back)):
            answer = client.get(wrong)
            assert answer.status_code == 401
            assert not is_in(client)
            at_provider(client)
        assert [line["ok"] for line in audit(found)] == [False, False]

    def test_a_login_that_another_browser_began(self, found: Site, client: TestClient) -> None:
        """Who sends a victim their own answer does not get them logged in as themselves."""
        back = at_provider(client)
        with browser(found) as victim:
            answer = victim.get(back)
            assert answer.status_code == 401
            assert "no login was started in this browser" in answer.text
            at_provider(victim)
            assert victim.get(back).status_code == 401
            assert not is_in(victim)

    def test_the_same_answer_twice(self, client: TestClient) -> None:
        begun = client.get("/login/oidc")
        cookie = begun.cookies[BEGUN]
        back = httpx2.get(begun.headers["location"], trust_env=False).headers["location"]
        assert client.get(back).status_code == 303
        client.cookies.clear()
        client.cookies.set(BEGUN, cookie, domain="localhost.local", path="/login/oidc")
        answer = client.get(back)
        assert answer.status_code == 401
        assert "already used" in answer.text
        assert not is_in(client)

    def test_a_code_of_another_login(self, found: Site, provider: OpenId, client: TestClient) -> None:
        """A code that was seen on its way: it is bound to the verifier of the login that asked for it."""
        with browser(found) as victim:
            stolen = parse_qs(urlsplit(at_provider(victim)).query)["code"][0]
        own = at_provider(client)
        answer = client.get(re.sub(r"code=[^&]+", f"code={stolen}", own))
        assert answer.status_code == 401
        assert "invalid_grant: PKCE" in answer.text
        assert not is_in(client)
        assert provider.asked.count("/token") == 1

    def test_a_login_that_took_too_long(self, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
        back = at_provider(client)
        # A browser that keeps the cookie for longer than it was told to.
        headers = {"cookie": f"{BEGUN}={client.cookies[BEGUN]}"}
        client.cookies.clear()
        later = time.time() + provider_module.LOGIN_S + 5
        monkeypatch.setattr(time, "time", lambda: later)
        assert "within 10 minutes" in client.get(back, headers=headers).text
        monkeypatch.undo()
        assert client.get(back, headers=headers).status_code == 303

    def test_an_answer_of_another_provider(self, provider: OpenId, client: TestClient) -> None:
        provider.answer = {"iss": "https://evil.example"}
        assert "from another provider" in log_in(client).text
        provider.answer = {"iss": provider.issuer}
        assert log_in(client).status_code == 303

    def test_an_answer_that_hides_its_sender(self, provider: OpenId, client: TestClient) -> None:
        provider.metadata = {"authorization_response_iss_parameter_supported": True}
        assert log_in(client).status_code == 401

    def test_what_the_provider_says_is_shown_as_text(self, provider: OpenId, client: TestClient) -> None:
        provider.answer = {"code": "", "error": "access_denied", "error_description": "<script>1</script>"}
        answer = log_in(client)
        assert answer.status_code == 401
        assert "access_denied: &lt;script&gt;1" in answer.text

    @pytest.mark.parametrize("query", ["", "?code=x", "?state=x&code=x", "?error=x"])
    def test_no_login_at_all(self, client: TestClient, query: str) -> None:
        assert client.get(f"/login/oidc/back{query}").status_code == 401

    def test_a_flood_leaves_few_lines_and_locks_nobody_out(self, found: Site, client: TestClient) -> None:
        for _ in range(30):
            client.get("/login/oidc/back?code=x&state=y")
        assert len(audit(found)) <= sessions.FREE_TRIES + 1
        assert log_in(client).status_code == 303


NOW = "now"
#: Claims that make a token worth nothing, and what is said; times are seconds from now.
WORTHLESS: list[tuple[dict[str, Any], str]] = [
    ({"nonce": None}, "nonce"),
    ({"nonce": "of another login"}, "nonce"),
    ({"nonce": ""}, "nonce"),
    ({"aud": "another client"}, "aud"),
    ({"aud": None}, "aud"),
    ({"aud": []}, "aud"),
    ({"aud": ["headrace", "another client"]}, "azp"),
    ({"aud": ["another client"], "azp": "headrace"}, "aud"),
    ({"aud": "headrace", "azp": "another client"}, "azp"),
    ({"iss": "https://evil.example"}, "iss"),
    ({"iss": None}, "iss"),
    ({"exp": (NOW, -70)}, "expired"),
    ({"exp": None}, "exp"),
    ({"exp": "9999999999"}, "exp"),
    ({"iat": (NOW, 600)}, "s after what this machine&#39;s clock says"),
    ({"iat": (NOW, -700)}, "too long ago"),
    ({"iat": None}, "iat"),
    ({"nbf": (NOW, 600)}, "not yet valid"),
    ({"sub": None}, "sub"),
    ({"sub": ""}, "sub"),
    ({"sub": 7}, "sub"),
    ({"at_hash": "of another token"}, "at_hash"),
]


class TestTheToken:
    @pytest.mark.parametrize(("claims", "said"), WORTHLESS, ids=str)
    def test_a_claim_that_is_wrong(
        self, found: Site, provider: OpenId, client: TestClient, claims: dict[str, Any], said: str
    ) -> None:
        now = int(time.time())
        provider.claims = {
            name: now + value[1] if isinstance(value, tuple) else value for name, value in claims.items()
        }
        answer = log_in(client)
        assert answer.status_code == 401, answer.headers
        assert said in answer.text
        assert not is_in(client)
        assert [line["ok"] for line in audit(found)] == [False]

    @pytest.mark.parametrize("claims", [{"exp": -20}, {"iat": 50}, {"nbf": 50}], ids=str)
    def test_clocks_may_differ_by_a_minute(
        self, provider: OpenId, client: TestClient, claims: dict[str, int]
    ) -> None:
        now = int(time.time())
        provider.claims = {name: now + value for name, value in claims.items()}
        assert log_in(client).status_code == 303

    def test_several_audiences_with_this_client_as_the_one_it_was_made_for(
        self, provider: OpenId, client: TestClient
    ) -> None:
        provider.claims = {"aud": ["headrace", "another"], "azp": "headrace"}
        assert log_in(client).status_code == 303

    @pytest.mark.parametrize("way", ["none", "secret", "public key", "other key", "changed", "no token", ""])
    def test_a_signature_that_is_not_the_providers(
        self, provider: OpenId, client: TestClient, way: str
    ) -> None:
        def by_hmac(key: bytes) -> Callable[[dict[str, Any]], str]:
            return lambda claims: jwt.encode(
                {"alg": "HS256", "kid": "first"}, claims, OctKey.import_key(key), algorithms=["HS256"]
            )

        public = provider.key.as_pem(private=False)
        signers: dict[str, Callable[[dict[str, Any]], str]] = {
            "none": lambda claims: f"{encoded({'alg': 'none'})}.{encoded(claims)}.",
            "secret": by_hmac(CLIENT_SECRET.encode()),
            "public key": lambda claims: _hmac_by_hand(claims, public),
            "other key": lambda claims: provider.signed(claims, OpenId.new_key("first")),
            "changed": lambda claims: changed(provider.signed({**claims, "groups": []}), claims),
            "no token": lambda claims: "a.b.c",
            "": lambda claims: "",
        }
        provider.sign = signers[way]
        answer = log_in(client)
        assert answer.status_code == 401, answer.text
        assert "ID token" in answer.text
        assert not is_in(client)

    def test_a_key_that_is_rotated(self, provider: OpenId, client: TestClient) -> None:
        assert log_in(client).status_code == 303
        old = provider.key
        provider.rotate()
        assert log_in(client).status_code == 303
        assert provider.asked.count("/keys") == 2
        # The old one has gone with it.
        provider.sign = lambda claims: provider.signed(claims, old)
        assert log_in(client).status_code == 401

    def test_a_new_key_under_the_old_name(self, provider: OpenId, client: TestClient) -> None:
        assert log_in(client).status_code == 303
        provider.key = OpenId.new_key("first")
        provider.published = [provider.key]
        assert log_in(client).status_code == 303

    def test_a_token_that_does_not_name_its_key(self, provider: OpenId, client: TestClient) -> None:
        provider.published = [OpenId.new_key("another"), provider.key]
        provider.sign = lambda claims: jwt.encode({"alg": "ES256"}, claims, provider.key)
        assert log_in(client).status_code == 303


def encoded(content: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def changed(token: str, claims: dict[str, Any]) -> str:
    header, _, signature = token.split(".")
    return f"{header}.{encoded(claims)}.{signature}"


def _hmac_by_hand(claims: dict[str, Any], key: bytes) -> str:
    """No library signs with a public key as a shared one."""
    import hashlib
    import hmac

    signed = f"{encoded({'alg': 'HS256', 'kid': 'first'})}.{encoded(claims)}"
    made = hmac.new(key, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"


class TestTheProvider:
    def test_it_is_down_and_comes_back(self, found: Site, provider: OpenId, client: TestClient) -> None:
        provider.stop()
        answer = client.get("/login/oidc?next=/queries")
        assert answer.status_code == 503
        assert f"{provider.issuer}/.well-known/openid-configuration: the provider does not answer" in (
            answer.text
        )
        # Users of our own do not depend on it.
        assert client.post("/login", data={"name": "viewer", "password": PASSWORD}).status_code == 303

    def test_it_goes_down_during_a_login(self, found: Site, provider: OpenId, client: TestClient) -> None:
        back = at_provider(client)
        provider.status = 500
        answer = client.get(back)
        assert answer.status_code == 503
        assert "/token: the provider answers with status 500" in answer.text
        provider.status = 200
        assert log_in(client).status_code == 303
        assert [line["ok"] for line in audit(found)] == [False, True]

    def test_it_never_answers(
        self, provider: OpenId, client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(provider_module, "ANSWER_S", 0.1)
        provider.stall_s = 0.5
        answer = client.get("/login/oidc")
        assert answer.status_code == 503
        assert "did not answer in time" in answer.text

    @pytest.mark.parametrize(
        ("headers", "is_packed", "more"),
        [({"content-length": None}, False, 2 << 20), ({"content-encoding": "gzip"}, True, 0)],
    )
    def test_its_answer_is_longer_than_it_says(
        self,
        provider: OpenId,
        client: TestClient,
        headers: dict[str, str | None],
        is_packed: bool,
        more: int,
    ) -> None:
        """Of a packed one nobody knows how long it is."""
        content = json.dumps(provider.about()).encode() + b" " * more
        provider.headers, provider.body = headers, gzip.compress(content) if is_packed else content
        assert client.get("/login/oidc").status_code == 503
        assert provider.asked == ["/.well-known/openid-configuration"]

    @pytest.mark.parametrize(
        ("status", "body"),
        [(404, b""), (302, b""), (200, b"<html>"), (200, b"[1]"), (200, b"[" * 5000), (200, b"\xff")],
    )
    def test_it_is_no_provider(self, provider: OpenId, client: TestClient, status: int, body: bytes) -> None:
        provider.status, provider.body = status, body
        assert client.get("/login/oidc").status_code == 503
        assert provider.asked == ["/.well-known/openid-configuration"]

    @pytest.mark.parametrize(
        ("metadata", "said"),
        [
            ({"issuer": "https://evil.example"}, "calls itself &#39;https://evil.example&#39;"),
            ({"issuer": None}, "calls itself"),
            ({"token_endpoint": None}, "token_endpoint: is missing"),
            ({"token_endpoint": "http://evil.example/token"}, "token_endpoint: needs https"),
            ({"jwks_uri": "file:///etc/passwd"}, "jwks_uri: no address"),
            ({"authorization_endpoint": "javascript:alert(1)"}, "authorization_endpoint: no address"),
            ({"end_session_endpoint": "javascript:alert(1)"}, "end_session_endpoint: no address"),
            ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ],
    )
    def test_what_it_says_about_itself(
        self, provider: OpenId, client: TestClient, metadata: dict[str, Any], said: str
    ) -> None:
        provider.metadata = metadata
        answer = client.get("/login/oidc")
        assert answer.status_code == 503
        assert said in answer.text

    def test_it_has_no_key_that_signs(self, provider: OpenId, client: TestClient) -> None:
        provider.published = [OctKey.import_key(b"x" * 32)]
        assert "no key that signs" in client.get("/login/oidc").text

    def test_a_secret_that_it_does_not_know(
        self, tmp_path: Path, provider: OpenId, client: TestClient
    ) -> None:
        """It is read again with each login."""
        (tmp_path / "oidc.secret").write_text("another secret")
        answer = log_in(client)
        assert answer.status_code == 401
        assert "invalid_client" in answer.text
        (tmp_path / "oidc.secret").chmod(0o644)
        answer = client.get("/login/oidc")
        assert answer.status_code == 503
        assert "oidc.secret" not in answer.text


class TestSessions:
    def test_a_session_that_someone_planted_is_not_that_of_the_login(
        self, found: Site, client: TestClient
    ) -> None:
        client.post("/login", data={"name": "viewer", "password": PASSWORD})
        planted = session_cookie(client), private_path(client)
        client.cookies.set(sessions.COOKIE, planted[0])  # as another port can, for all paths
        log_in(client)
        assert planted[1] != private_path(client)
        page = client.get("/").text
        assert "ann (operator)" in page
        assert planted[1] not in page
        with browser(found) as other:
            other.cookies.set(sessions.COOKIE, planted[0])
            other.base_url = client.base_url
            assert not is_in(other)

    def test_after_a_logout_copies_of_the_cookie_open_nothing(self, found: Site, client: TestClient) -> None:
        log_in(client)
        copy = session_cookie(client)
        token = re.search(r'data-token="([^"]+)"', client.get("/").text)
        assert token
        answer = client.post("/logout", headers={"x-csrf-token": token[1]})
        page = client.get(answer.headers["location"])
        # The provider's own session is the person's to end.
        assert "/logout?client_id=headrace&amp;post_logout_redirect_uri=http%3A%2F%2Flocalhost" in page.text
        client.cookies.clear()
        client.cookies.set(sessions.COOKIE, copy)
        assert not is_in(client)
        assert "logout" in [line["action"] for line in audit(found)]

    def test_a_session_is_shorter_than_a_local_one(
        self, client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log_in(client)
        now = Clocks.now()
        for hours, is_open in ((7.9, True), (8.1, False)):
            later = dataclasses.replace(
                now, wall_s=now.wall_s + hours * 3600, boot_s=now.boot_s + hours * 3600
            )
            with monkeypatch.context() as patch:
                patch.setattr(Clocks, "now", lambda later=later: later)
                assert is_in(client) == is_open, hours

    @pytest.mark.parametrize(
        ("more", "roles"), [("", 'lead = "approver"'), ('role_claim = "roles"', 'dba = "operator"')]
    )
    def test_another_mapping_ends_it(
        self, tmp_path: Path, provider: OpenId, client: TestClient, more: str, roles: str
    ) -> None:
        log_in(client)
        for auth, is_open in (
            (settings(tmp_path, provider), True),
            (settings(tmp_path, provider, more, roles), False),
        ):
            with browser(site(tmp_path, auth=auth)) as later:
                be(later, client)
                assert is_in(later) == is_open

    def test_a_changed_role_counts_at_once(
        self, tmp_path: Path, provider: OpenId, client: TestClient
    ) -> None:
        log_in(client)
        with browser(site(tmp_path, auth=settings(tmp_path, provider, roles='dba = "viewer"'))) as later:
            be(later, client)
            assert "ann (viewer)" in later.get("/").text

    def test_without_the_provider_its_sessions_are_nothing(self, tmp_path: Path, client: TestClient) -> None:
        log_in(client)
        with browser(site(tmp_path)) as later:
            be(later, client)
            assert not is_in(later)
            assert later.get("/login/oidc").status_code in (303, 404)
