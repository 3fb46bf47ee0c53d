"""Sessions, the limit on logins, and the audit log.

A session is a signed cookie. It holds a name, the generation of the password and a token against forged requests;
the role is looked up with every request. For a user of an OpenID Connect provider it also holds the group that
gave the role. Without users there is one key, printed at the start, for whoever started it.

Without TLS it counts only below its private path, and until this program ends: whoever listens on the port
afterwards receives all that an open page still sends.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

from itsdangerous import BadData, URLSafeTimedSerializer

from headrace.base.clocks import SET_BACK_S, Clocks
from headrace.base.errors import StoreError
from headrace.web.auth import ProviderSettings
from headrace.web.users import Role, User, Users

log = logging.getLogger("headrace.web")

COOKIE = "headrace"
#: A session ends after this time, regardless of its use.
SESSION_S = 12 * 3600
#: Failed logins in ``FORGET_S`` after which an address, or a name, has to wait.
FREE_TRIES, FORGET_S = 5, 300.0
MOST_REMEMBERED = 10_000
#: The name of whoever has the key.
KEY_HOLDER = "local"


def cookie_name(is_secure: bool) -> str:
    """With TLS the browser itself binds it to this host and to TLS: no other name, path or plain port sets it."""
    return f"__Host-{COOKIE}" if is_secure else COOKIE


@dataclass(frozen=True)
class Session:
    user: User
    #: Every form and every request that changes something carries it.
    token: str
    #: An OpenID Connect provider knows the user.
    is_provided: bool = False
    #: A reverse proxy names the user with each request: only the proxy can log out.
    is_proxied: bool = False


class Sessions:
    """Signs and checks sessions. ``key`` lets in without users; empty: users log in."""

    def __init__(
        self,
        users: Users,
        secret: bytes,
        key: str = "",
        provider: ProviderSettings | None = None,
        of_start: bytes = b"",
    ) -> None:
        """``of_start``: a secret of this run of the program [random]."""
        self.users = users
        self.key = key
        self.secret = secret
        self._provider = provider
        self._of_start = of_start or secrets.token_bytes(32)
        self._signer = URLSafeTimedSerializer(secret, salt="headrace-session")
        #: Tokens of sessions that ended before their time, oldest first.
        self._ended: OrderedDict[str, None] = OrderedDict()

    def start(self, user: User, group: str | None = None, private: str = "") -> str:
        """A cookie's value. ``group``: why a provider's user has this role. ``private``: the path below which it
        counts; empty: the browser binds it to this host, by TLS.
        """
        now = Clocks.now()
        held = {
            "name": user.name,
            "generation": user.generation,
            "token": secrets.token_urlsafe(24),
            "boot_s": round(now.boot_s, 3),
            "boot": _named(now.boot),
        }
        if private:
            held["below"] = self._sealed(private)
        return self._signer.dumps(held if group is None else {**held, "group": group})

    def _sealed(self, private: str) -> str:
        """The cookie can be read by whoever receives it, and must not say the path."""
        return hmac.new(self._of_start, private.encode(), hashlib.sha256).hexdigest()

    def end(self, session: Session) -> None:
        """Revoke the cookie and its copies until a restart."""
        self._ended[session.token] = None
        while len(self._ended) > MOST_REMEMBERED:
            self._ended.popitem(last=False)

    def of_request(self, user: User) -> Session:
        """The session of a user whom each request names. Its token stays the same."""
        said = f"{user.name}\n{user.generation}".encode()
        token = hmac.new(self.secret, b"headrace-token\n" + said, hashlib.sha256).hexdigest()
        return Session(user, token, is_proxied=True)

    def read(self, cookie: str | None, private: str = "") -> Session | None:
        """The session of a cookie; None if it is forged, expired, of another path, or its user is gone or has
        another password.
        """
        if not cookie or len(cookie) > 2000:
            return None
        try:
            held, started = self._signer.loads(cookie, return_timestamp=True)
            name, generation, token = held["name"], held["generation"], held["token"]
            group, sealed = held.get("group"), held.get("below", "")
            age_s = _age_s(Clocks(started.timestamp(), float(held["boot_s"]), held["boot"]))
        except (BadData, KeyError, TypeError, ValueError):
            return None
        if not -SET_BACK_S <= age_s <= SESSION_S:
            return None
        if not hmac.compare_digest(sealed, self._sealed(private) if private else ""):
            return None
        if group is not None:
            user = self._provided(name, group, age_s)
        else:
            user = self.holder() if self.key and name == KEY_HOLDER else self.users.user(name)
        if user is None or not hmac.compare_digest(user.generation, generation) or token in self._ended:
            return None
        return Session(user, token, group is not None)

    def _provided(self, name: str, group: str, age_s: float) -> User | None:
        provider = self._provider
        if provider is None or age_s > provider.session_s or self.is_taken(name):
            return None
        return provider.user(name, group)

    def is_taken(self, name: str) -> bool:
        """Whether a local user has this name; a provider's user may not use it."""
        return name == KEY_HOLDER or self.users.user(name) is not None

    def holder(self) -> User:
        return User(KEY_HOLDER, Role.APPROVER, hashlib.sha256(self.key.encode()).hexdigest()[:16])

    def open_with(self, key: str) -> User | None:
        """Whoever has the key."""
        is_right = bool(self.key) and hmac.compare_digest(self.key.encode(), key.encode())
        return self.holder() if is_right else None

    def is_own(self, session: Session) -> bool:
        """Whether a password, or the key, was what opened it here."""
        return not (session.is_provided or session.is_proxied)

    def is_right(self, user: User, password: str) -> bool:
        """Whether this is the user's password, or the key. Takes some 50 ms."""
        if self.key and user.name == KEY_HOLDER:
            return self.open_with(password) is not None
        return self.users.verify(user.name, password) is not None


def _named(boot: str) -> str:
    """A cookie tells boots apart, and names none."""
    return hashlib.sha256(boot.encode()).hexdigest()[:16] if boot else ""


def _age_s(start: Clocks) -> float:
    """By what has passed since; across a boot only the clock tells."""
    now = Clocks.now()
    passed_s = replace(now, boot=_named(now.boot)).since(start)
    return now.wall_s - start.wall_s if passed_s is None else passed_s


class Tries:
    """Failed logins by address and by name: wrong guesses cost time, and end no session."""

    def __init__(self) -> None:
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait_s(self, *whose: str) -> float:
        """How long these have to wait before the next try; 0: not at all."""
        now, wait = time.monotonic(), 0.0
        for each in whose:
            count, last = self._failed.get(each, (0, 0.0))
            if count >= FREE_TRIES and now - last < FORGET_S:
                wait = max(wait, min(2.0 ** (count - FREE_TRIES), FORGET_S) - (now - last))
        return max(wait, 0.0)

    def failed(self, *whose: str) -> None:
        now = time.monotonic()
        for each in whose:
            count, last = self._failed.pop(each, (0, now))
            self._failed[each] = (1 if now - last > FORGET_S else count + 1, now)
        while len(self._failed) > MOST_REMEMBERED:
            self._failed.popitem(last=False)

    def succeeded(self, *whose: str) -> None:
        for each in whose:
            self._failed.pop(each, None)


#: What those hear whose login or request would leave no line.
NOT_NOTED = "The audit log cannot be written: nobody is let in, and nothing is done. Is the disk full?"


class Audit:
    """One JSON line for each login, refusal and request that asks a server or changes something."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, who: str, address: str, action: str, about: str = "", *, ok: bool = True) -> bool:
        """Whether it is in the log."""
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "who": who[:80], "from": address,
            "action": action, "about": about[:300], "ok": ok,
        }  # fmt: skip
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            log.error("the audit log cannot be written: %s: %s", error.strerror, line)
            return False
        return True


def secret_of(path: Path) -> bytes:
    """The secret that signs sessions, made once, so that those with TLS outlive a restart."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if len(secret := path.read_bytes()) >= 32:
                return secret
            path.unlink()  # a kill left it empty
            return secret_of(path)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secret := secrets.token_bytes(48))
            file.flush()
            os.fsync(file.fileno())
        return secret
    except OSError as error:
        raise StoreError(f"cannot be read or written: {error.strerror}", place=str(path)) from error
