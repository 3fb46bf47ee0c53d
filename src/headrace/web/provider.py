"""Logins at an OpenID Connect provider: the authorization code flow with PKCE, by Authlib.

A login leaves nothing here until it succeeds. The browser holds a signed cookie with the login's state, and the
nonce and the PKCE verifier are derived from that state with the secret that signs sessions. So a code counts only
in the browser that asked for it, within ``LOGIN_S``, and once.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import ssl
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from itsdangerous import BadData, URLSafeTimedSerializer
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key

from headrace.base.errors import HeadraceError
from headrace.web.auth import (
    BACK,
    LoginRefused,
    ProviderFailed,
    ProviderSettings,
    clean_name,
    is_loopback,
    why_no_url,
)

#: A person has this long to log in at the provider.
LOGIN_S = 600
#: An ID token that was issued longer ago was not made for this login.
MOST_AGE_S = 600
#: What a provider says about itself is asked for again after this time; keys also if none fits.
METADATA_S = 3600.0
ANSWER_S, MOST_ANSWER, ASKED_AT_ONCE = 10.0, 1 << 20, 8
MOST_REMEMBERED, LONGEST = 10_000, 4096
#: Signatures that only the provider can make. With HMAC whoever knows the client's secret could, too.
ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
METADATA = "/.well-known/openid-configuration"


@dataclass(frozen=True)
class Person:
    """Who logged in. ``subject`` is the provider's own name for them, ``group`` the value that gave the role."""

    name: str
    subject: str
    group: str
    after: str


@dataclass(frozen=True)
class _Known:
    """What the provider says about itself, as long as it is believed."""

    metadata: Mapping[str, Any]
    keys: Sequence[Key]
    until_s: float


class Provider:
    """One provider. ``secret`` signs the cookies of logins that have not ended."""

    def __init__(self, settings: ProviderSettings, secret: bytes) -> None:
        self.settings, self._secret = settings, secret
        self._signer = URLSafeTimedSerializer(secret, salt="headrace-oidc")
        self._known: _Known | None = None
        self._used: OrderedDict[str, None] = OrderedDict()
        self._room = asyncio.Semaphore(ASKED_AT_ONCE)
        self._tls: ssl.SSLContext | None = None

    @property
    def issuer(self) -> str:
        return self.settings.table.issuer

    @property
    def back(self) -> str:
        """Where the provider sends the browser: as configured, never from a request's Host."""
        return self.settings.table.url.rstrip("/") + BACK

    async def start(self, after: str) -> tuple[str, str]:
        """The provider's address for a login, and the cookie that belongs to it. Raises ProviderFailed."""
        metadata = (await self._ask_known()).metadata
        state = secrets.token_urlsafe(32)
        async with self._client(metadata) as client:
            url, _ = client.create_authorization_url(
                metadata["authorization_endpoint"],
                state=state,
                nonce=self._derived("nonce", state),
                code_verifier=self._derived("verifier", state),
            )
        return url, self._signer.dumps({"state": state, "after": after if len(after) < 1500 else "/"})

    async def finish(self, answer: Mapping[str, str], cookie: str | None) -> Person:
        """Who came back from the provider. Raises LoginRefused, or ProviderFailed."""
        state, after = self._begun(answer, cookie)
        if (sender := answer.get("iss")) is not None and sender != self.issuer:
            raise LoginRefused(f"the answer is from another provider: {sender[:200]}", hint=_AGAIN)
        if error := answer.get("error"):
            said = f"{error}: {answer['error_description']}" if answer.get("error_description") else error
            raise LoginRefused(f"the provider refused the login: {said[:500]}", place=self.issuer)
        code = answer.get("code", "")
        if not 0 < len(code) <= LONGEST:
            raise LoginRefused("the answer of the provider holds no code", place=self.issuer)
        known = await self._ask_known()
        if sender is None and known.metadata.get("authorization_response_iss_parameter_supported") is True:
            raise LoginRefused("the answer does not say which provider it is from", hint=_AGAIN)
        token = await self._exchange(known.metadata, code, self._derived("verifier", state))
        header, claims = await self._verified(token["id_token"])
        self._check(header, claims, token, self._derived("nonce", state))
        return self._person(claims, after)

    def log_out_url(self) -> str:
        """Where the provider ends its own session; empty if it did not say, or was not asked yet."""
        found = self._known.metadata.get("end_session_endpoint") if self._known else None
        if not isinstance(found, str):
            return ""
        table = self.settings.table
        back = {"client_id": table.client_id, "post_logout_redirect_uri": f"{table.url.rstrip('/')}/login"}
        return f"{found}{'&' if urlsplit(found).query else '?'}{urlencode(back)}"

    def _begun(self, answer: Mapping[str, str], cookie: str | None) -> tuple[str, str]:
        """The state and the goal of a login that this browser began; it ends by that."""
        try:
            held = self._signer.loads((cookie or "")[:LONGEST], max_age=LOGIN_S)
            state, after = str(held["state"]), str(held["after"])
        except (BadData, KeyError, TypeError):
            raise LoginRefused(
                f"no login was started in this browser within {LOGIN_S // 60} minutes", hint=_AGAIN
            ) from None
        if not hmac.compare_digest(state.encode(), answer.get("state", "").encode()):
            raise LoginRefused("the answer belongs to another login (state)", hint=_AGAIN)
        if state in self._used:
            raise LoginRefused("this login was already used", hint=_AGAIN)
        self._used[state] = None
        while len(self._used) > MOST_REMEMBERED:
            self._used.popitem(last=False)
        return state, after

    def _derived(self, purpose: str, state: str) -> str:
        """43 characters that only this server can compute."""
        made = hmac.new(self._secret, f"headrace-oidc-{purpose}\n{state}".encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(made.digest()).rstrip(b"=").decode()

    @asynccontextmanager
    async def _client(self, metadata: Mapping[str, Any]) -> AsyncIterator[Any]:
        """Authlib's client, which follows no redirects and waits no longer than ``ANSWER_S``."""
        table = self.settings.table
        secret = self.settings.secret()
        way = table.client_auth if secret else "none"
        client = AsyncOAuth2Client(
            client_id=table.client_id,
            client_secret=secret or None,
            token_endpoint_auth_method=way or _auth_of(metadata),
            scope=" ".join(table.scopes),
            redirect_uri=self.back,
            code_challenge_method="S256",
            timeout=ANSWER_S,
            follow_redirects=False,
            verify=self._context(),
            # A proxy of the environment is the way out, not to this machine.
            trust_env=not is_loopback(urlsplit(self.issuer).hostname or ""),
            event_hooks={"response": [_bound]},
            headers={"Accept-Encoding": "identity"},
        )
        async with client:
            yield client

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=self.settings.ca_file)
        return self._tls

    async def _exchange(self, metadata: Mapping[str, Any], code: str, verifier: str) -> Mapping[str, Any]:
        """The token of a code."""
        url = metadata["token_endpoint"]

        async def ask(client: Any) -> Mapping[str, Any]:
            return dict(
                await client.fetch_token(
                    url, grant_type="authorization_code", code=code, code_verifier=verifier
                )
            )

        token = await self._asked(url, metadata, ask)
        if not isinstance(token.get("id_token"), str):
            raise ProviderFailed("the token holds no ID token", place=url, hint="scopes in [oidc]: openid")
        return token

    async def _json(self, url: str) -> Mapping[str, Any]:
        async def ask(client: Any) -> Mapping[str, Any]:
            answer = await client.request("GET", url, withhold_token=True)
            answer.raise_for_status()
            found = answer.json()
            if answer.status_code != 200 or not isinstance(found, dict):
                raise ValueError("no JSON object")
            return found

        return await self._asked(url, {}, ask)

    async def _asked(
        self, url: str, metadata: Mapping[str, Any], ask: Callable[[Any], Awaitable[Mapping[str, Any]]]
    ) -> Mapping[str, Any]:
        """The provider's answer. Every way in which there is none becomes one error, which says where."""
        try:
            async with self._room, asyncio.timeout(ANSWER_S * 1.5), self._client(metadata) as client:
                return await ask(client)
        except HeadraceError:
            raise
        except AuthlibBaseError as error:
            # Of the provider: a code that is used or too old, a client that it does not know.
            said = f"{error.error}: {error.description}" if error.description else str(error.error)
            raise LoginRefused(f"the provider refused the login: {said[:500]}", place=url) from error
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise ProviderFailed("the provider did not answer in time", place=url) from error
        except httpx2.HTTPStatusError as error:
            raise ProviderFailed(
                f"the provider answers with status {error.response.status_code}", place=url
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise ProviderFailed(f"the provider does not answer: {error}", place=url) from error
        except (ValueError, RecursionError) as error:
            raise ProviderFailed("the provider's answer cannot be read as JSON", place=url) from error

    async def _ask_known(self, *, again: bool = False) -> _Known:
        """The provider's addresses and keys."""
        known = self._known
        if known is None or again or time.monotonic() > known.until_s:
            url = self.issuer.rstrip("/") + METADATA
            metadata = await self._json(url)
            _check_metadata(metadata, self.issuer, url)
            keys = _keys_of(await self._json(metadata["jwks_uri"]), metadata["jwks_uri"])
            self._known = known = _Known(metadata, keys, time.monotonic() + METADATA_S)
        return known

    async def _verified(self, id_token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Header and claims of a token that the provider signed, perhaps with keys that are new."""
        found = _opened(id_token, (await self._ask_known()).keys)
        found = found or _opened(id_token, (await self._ask_known(again=True)).keys)
        if found is None:
            raise LoginRefused("the ID token is not signed by a key of the provider", place=self.issuer)
        return found

    def _check(
        self, header: Mapping[str, Any], claims: Mapping[str, Any], token: Mapping[str, Any], nonce: str
    ) -> None:
        """Issuer, audience, times and nonce, after the signature (OpenID Connect Core 1.0, section 3.1.3.7)."""
        table, now = self.settings.table, int(time.time())
        one = {"iss": {"essential": True, "value": self.issuer}}
        many = {"aud": {"essential": True, "values": [table.client_id]}}
        checked = CodeIDToken(
            dict(claims), dict(header), {**one, **many},
            {"nonce": nonce, "client_id": table.client_id, "access_token": token.get("access_token")},
        )  # fmt: skip
        try:
            checked.validate(now=now, leeway=table.leeway_s)
        except (JoseError, ValueError, TypeError) as error:
            said = getattr(error, "description", "") or str(error)
            raise LoginRefused(
                f"the ID token is not accepted: {said}", place=self.issuer, hint=_hint(claims, now)
            ) from error
        if not isinstance(claims["iss"], str) or not isinstance(claims["sub"], str) or not claims["sub"]:
            raise LoginRefused("the ID token is not accepted: iss and sub must be text", place=self.issuer)
        if claims["iat"] < now - MOST_AGE_S - table.leeway_s:
            raise LoginRefused(
                "the ID token is not accepted: it was issued too long ago", place=self.issuer,
                hint=_hint(claims, now),
            )  # fmt: skip

    def _person(self, claims: Mapping[str, Any], after: str) -> Person:
        table = self.settings.table
        found = _claim(claims, table.name_claim)
        name = clean_name(found) if isinstance(found, str) else None
        if name is None:
            raise LoginRefused(
                f"the ID token has no name in {table.name_claim}", who=claims["sub"], place=self.issuer,
                hint="scopes and name_claim in [oidc]",
            )  # fmt: skip
        if table.name_claim == "email" and claims.get("email_verified") is not True:
            raise LoginRefused("the provider did not verify this e-mail address", who=name, place=self.issuer)
        values = _claim(claims, table.role_claim)
        listed = [values] if isinstance(values, str) else values if isinstance(values, list) else []
        best = self.settings.roles.best(value for value in listed if isinstance(value, str))
        if best is None:
            why = f"no value of {table.role_claim} is in [oidc.roles]" if listed else f"no {table.role_claim}"
            raise LoginRefused(f"{name} has no role here: {why}", who=name, place=self.issuer)
        return Person(name, claims["sub"], best[0], after)


_AGAIN = "start again at /login"


async def _bound(answer: Any) -> None:
    """Before an answer is read: no more of it is than ``MOST_ANSWER``, whatever it says of its length."""
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise ValueError("the answer is compressed, which was not asked for")
    answer.stream = _Bounded(answer.stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MOST_ANSWER:
                raise ValueError("the answer is too long")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def _auth_of(metadata: Mapping[str, Any]) -> str:
    """How the client shows its secret: Basic, unless the provider says otherwise (Discovery 1.0, section 3)."""
    known = metadata.get("token_endpoint_auth_methods_supported")
    listed = known if isinstance(known, list) else []
    is_post = "client_secret_post" in listed and "client_secret_basic" not in listed
    return "client_secret_post" if is_post else "client_secret_basic"


def _check_metadata(metadata: Mapping[str, Any], issuer: str, url: str) -> None:
    if metadata.get("issuer") != issuer:
        raise ProviderFailed(
            f"the provider calls itself {str(metadata.get('issuer'))[:200]!r}", place=url,
            hint="issuer in [oidc], exactly so",
        )  # fmt: skip
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        found = metadata.get(name)
        why = why_no_url(found) if isinstance(found, str) else "is missing"
        if why:
            raise ProviderFailed(f"{name}: {why}", place=url)
    if (found := metadata.get("end_session_endpoint")) is not None and (
        not isinstance(found, str) or why_no_url(found)
    ):
        raise ProviderFailed("end_session_endpoint: no address, or needs https", place=url)
    ways = metadata.get("code_challenge_methods_supported")
    if isinstance(ways, list) and "S256" not in ways:
        raise ProviderFailed("the provider does not support PKCE with S256", place=url)


def _keys_of(found: Mapping[str, Any], url: str) -> Sequence[Key]:
    """Public keys that sign. One of a kind that is not known here costs only itself."""
    keys: list[Key] = []
    listed = found.get("keys")
    for data in listed if isinstance(listed, list) else []:
        if not isinstance(data, dict) or data.get("kty") == "oct" or data.get("use", "sig") != "sig":
            continue
        try:
            keys.append(JWKRegistry.import_key(data))
        except (JoseError, ValueError, TypeError, KeyError):
            continue
    if not keys:
        raise ProviderFailed("the provider has no key that signs", place=url)
    return keys


def _opened(id_token: str, keys: Sequence[Key]) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Header and claims, if one of the keys signed them. Raises LoginRefused for what no key can sign."""
    registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    try:
        header = jws.extract_compact(id_token.encode(), registry=registry).headers()
    except (JoseError, ValueError, TypeError) as error:
        raise LoginRefused("the ID token is not a signed token") from error
    if (algorithm := header.get("alg")) not in ALGORITHMS:
        raise LoginRefused(f"the ID token is signed with {str(algorithm)[:40]!r}, which is not accepted")
    kid = header.get("kid")
    for key in keys:
        if kid is not None and key.kid is not None and key.kid != kid:
            continue
        try:
            token = jwt.decode(id_token, key, registry=registry)
        except (JoseError, ValueError, TypeError):
            continue
        return token.header, token.claims
    return None


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, or by its path, as in ``realm_access.roles``."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _hint(claims: Mapping[str, Any], now: int) -> str | None:
    """How far the clocks differ, if they do."""
    issued = claims.get("iat")
    if isinstance(issued, bool) or not isinstance(issued, int | float) or abs(issued - now) <= 30:
        return None
    way = "after" if issued > now else "before"
    return f"it was issued {abs(issued - now):.0f} s {way} what this machine's clock says"
