"""An OpenID Connect provider on loopback: discovery, authorize, token, keys, logout. It is a strict one.

A test changes what it says: the claims, the key, how a token is signed, or whether it answers at all.
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.jwk import ECKey

CLIENT, CLIENT_SECRET = "headrace", "a secret of the client/+:%"


_FORM = (
    b'<!doctype html><form method="post"><input name="user"><button>Log in at the provider</button></form>'
)


class OpenId:
    """``claims`` replace those of a token, None removes one. ``metadata`` replaces what it says about itself.

    With ``people``, by name, a person logs in with a form, which a browser sends; the claims are theirs.
    """

    def __init__(self, back: str, people: Mapping[str, dict[str, Any]] | None = None) -> None:
        self.back, self.people = back, people
        self.claims: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.answer: dict[str, str] = {}
        self.key = self.new_key("first")
        self.published: list[Any] = [self.key]
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        self.status, self.body = 200, b""
        #: Headers of every answer, in place of its own; None removes one.
        self.headers: dict[str, str | None] = {}
        self.stall_s = 0.0
        #: Path of each request.
        self.asked: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._claims: dict[str, dict[str, Any]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.issuer = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @staticmethod
    def new_key(kid: str) -> ECKey:
        return ECKey.generate_key("P-256", {"kid": kid, "use": "sig", "alg": "ES256"})

    def rotate(self) -> None:
        self.key = self.new_key(secrets.token_hex(4))
        self.published = [self.key]

    def signed(self, claims: dict[str, Any], key: ECKey | None = None, **header: Any) -> str:
        key = key or self.key
        return jwt.encode({"alg": "ES256", "kid": key.kid, **header}, claims, key)

    def about(self) -> dict[str, Any]:
        known = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "end_session_endpoint": f"{self.issuer}/logout",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "code_challenge_methods_supported": ["S256"],
            **self.metadata,
        }
        return {name: value for name, value in known.items() if value is not None}

    def keys(self) -> dict[str, Any]:
        return {"keys": [key.as_dict(private=False) for key in self.published]}

    def answered(
        self, path: str, query: dict[str, str], form: dict[str, str], authorization: str
    ) -> tuple[int, bytes, str, str]:
        """Status, body, location and media type."""
        status, body, location, media = 200, b"", "", "application/json"
        if path == "/authorize" and self.people and not form:
            body, media = _FORM, "text/html"
        elif path == "/authorize":
            status, location = 302, self.authorize(query, form.get("user", ""))
        elif path == "/logout":
            status, location = 302, query["post_logout_redirect_uri"]
        elif path == "/token":
            status, content = self.token(form, authorization)
            body = json.dumps(content).encode()
        else:
            known = {"/.well-known/openid-configuration": self.about, "/keys": self.keys}
            status, body = (200, json.dumps(known[path]()).encode()) if path in known else (404, b"")
        return status, body, location, media

    def authorize(self, asked: dict[str, str], user: str = "") -> str:
        """The address that the browser is sent back to, after the person has logged in."""
        assert asked["client_id"] == CLIENT
        assert asked["redirect_uri"] == self.back
        assert asked["response_type"] == "code"
        assert "openid" in asked["scope"].split()
        assert asked["code_challenge_method"] == "S256"
        assert len(asked["code_challenge"]) == 43
        assert len(asked["nonce"]) >= 20
        assert len(asked["state"]) >= 20
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        self._claims[code] = {"preferred_username": user, **self.people[user]} if self.people else {}
        answer = {"code": code, "state": asked["state"], **self.answer}
        return f"{self.back}?{urlencode({name: value for name, value in answer.items() if value})}"

    def token(self, asked: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        expected = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
        if authorization != f"Basic {expected}":
            return 401, {"error": "invalid_client"}
        # A code counts once.
        begun = self._codes.pop(asked.get("code", ""), None)
        if begun is None or asked.get("redirect_uri") != begun["redirect_uri"]:
            return 400, {"error": "invalid_grant", "error_description": "no such code"}
        if create_s256_code_challenge(asked.get("code_verifier", "")) != begun["code_challenge"]:
            return 400, {"error": "invalid_grant", "error_description": "PKCE"}
        now = int(time.time())
        claims = {
            "iss": self.issuer, "sub": "user-1", "aud": CLIENT, "iat": now, "exp": now + 300,
            "nonce": begun["nonce"], "preferred_username": "ann", "groups": ["staff", "dba"],
            **self.claims, **self._claims[asked["code"]],
        }  # fmt: skip
        token = self.sign({name: value for name, value in claims.items() if value is not None})
        return 200, {"access_token": "an access token", "token_type": "Bearer", "id_token": token}


def _handler(provider: OpenId) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            self._answer({name: values[0] for name, values in parse_qs(body).items()})

        def _answer(self, form: dict[str, str]) -> None:
            parts = urlsplit(self.path)
            provider.asked.append(parts.path)
            if provider.stall_s:
                time.sleep(provider.stall_s)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if provider.status != 200 or provider.body:
                self._send(provider.status, provider.body, location="/elsewhere")
            else:
                self._send(*provider.answered(parts.path, query, form, self.headers.get("authorization", "")))

        def _send(
            self, status: int, body: bytes, location: str = "", media: str = "application/json"
        ) -> None:
            self.send_response(status)
            if location:
                self.send_header("location", location)
            headers = {"content-type": media, "content-length": str(len(body)), **provider.headers}
            for name, value in headers.items():
                if value is not None:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
