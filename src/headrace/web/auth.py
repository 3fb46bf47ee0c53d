"""People whom others know: users of a reverse proxy, or of an OpenID Connect provider. ``--auth FILE``, in TOML.

The file says whose word counts and which of their groups has which role. A person without a role is not let in.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headrace.base import toml
from headrace.base.errors import PlanError, Refused, TargetError
from headrace.base.whole import plain_file
from headrace.web.users import Role, User

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Where a login at a provider starts here, and where the provider sends the browser back to.
START, BACK = "/login/oidc", "/login/oidc/back"
#: A clock that differs by more is to be set, not to be tolerated.
LEEWAY_S, MOST_LEEWAY_S = 60, 300
#: A provider cannot end a session here, so it lasts no longer.
HOURS, MOST_HOURS = 8.0, 12.0
LONGEST_NAME, MOST_SECRET = 64, 4096
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
#: Headers that mean something else to a server or a browser.
_NOT_A_USER = frozenset({"host", "cookie", "origin", "forwarded", "x-forwarded-for", "x-real-ip"})


class ProviderFailed(TargetError):
    """The provider does not answer, or not as OpenID Connect says."""


class LoginRefused(Refused):
    """A login at a provider does not count here. ``who``: the name, once the provider's signature was checked."""

    def __init__(self, message: str, *, who: str = "", place: str | None = None, hint: str | None = None):
        super().__init__(message, place=place, hint=hint)
        self.who = who


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ProxyTable(_Table):
    """``[proxy]``."""

    addresses: tuple[str, ...] = Field(min_length=1)
    user_header: str
    role_header: str = ""
    role_separator: str = Field(default=",", min_length=1, max_length=1)
    roles: dict[str, str] = {}
    secret_file: str = ""
    secret_header: str = "X-Headrace-Secret"
    log_out_url: str = ""


class ProviderTable(_Table):
    """``[oidc]``."""

    issuer: str
    client_id: str = Field(min_length=1, max_length=500)
    client_secret_file: str = ""
    client_auth: Literal["", "client_secret_basic", "client_secret_post"] = ""
    #: The address of the pages as browsers know it.
    url: str
    scopes: tuple[str, ...] = ("openid", "profile")
    name_claim: str = "preferred_username"
    role_claim: str = "groups"
    roles: dict[str, str] = Field(min_length=1)
    leeway_s: int = Field(default=LEEWAY_S, ge=0, le=MOST_LEEWAY_S)
    session_hours: float = Field(default=HOURS, gt=0, le=MOST_HOURS)
    ca_file: str = ""


class _Tables(_Table):
    proxy: ProxyTable | None = None
    oidc: ProviderTable | None = None


@dataclass(frozen=True)
class Roles:
    """Group -> role: what a value of a header or a claim is worth."""

    by_value: Mapping[str, Role]

    def best(self, values: Iterable[str]) -> tuple[str, Role] | None:
        """The value with the highest role, and that role; None if no value has one."""
        known = [(value, self.by_value[value]) for value in values if value in self.by_value]
        return max(known, key=lambda pair: pair[1], default=None)


@dataclass(frozen=True)
class ProxySettings:
    """A reverse proxy that names the user. Without ``role_header`` roles come from the users' file."""

    networks: tuple[Network, ...]
    user_header: str
    role_header: str
    role_separator: str
    roles: Roles
    #: Sent by the proxy in ``secret_header``; empty: the address is enough.
    secret: str
    secret_header: str
    #: Where the proxy logs people out; empty: nowhere, as with passwords that the browser sends by itself.
    log_out_url: str


@dataclass(frozen=True)
class ProviderSettings:
    """An OpenID Connect provider, and what its claims are worth."""

    table: ProviderTable
    roles: Roles
    secret_file: Path | None
    ca_file: Path | None

    @property
    def session_s(self) -> float:
        return self.table.session_hours * 3600

    @property
    def is_secure(self) -> bool:
        """Browsers reach the pages by TLS, ours or a proxy's."""
        return urlsplit(self.table.url).scheme == "https"

    @property
    def host(self) -> str:
        """The pages' name."""
        return urlsplit(self.table.url).hostname or ""

    def secret(self) -> str:
        """Read with each login, so that it can be changed. Raises PlanError, Refused."""
        return read_secret(self.secret_file) if self.secret_file else ""

    def user(self, name: str, value: str) -> User | None:
        """Who logged in with this value of the role's claim; None once the value has no role any more."""
        role = self.roles.by_value.get(value)
        table = self.table
        made_of = "\n".join((table.issuer, table.client_id, table.name_claim, table.role_claim, value))
        generation = hashlib.sha256(made_of.encode()).hexdigest()[:16]
        return User(name, role, generation) if role else None


@dataclass(frozen=True)
class Auth:
    proxy: ProxySettings | None = None
    oidc: ProviderSettings | None = None

    def __bool__(self) -> bool:
        return bool(self.proxy or self.oidc)


def read(path: Path) -> Auth:
    """The file, and the secrets that it names. Raises PlanError, Refused; neither holds a value of the file."""
    try:
        _check_owner(path, 0o022, "other users can change who may log in")
        content = toml.parse(toml.read(path))
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror}", place=str(path)) from error
    except ValueError as error:
        raise PlanError(f"not TOML: {error}", place=str(path)) from error
    try:
        tables = _Tables(**content)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        hint = "client_secret_file = FILE" if key == "oidc.client_secret" else None
        raise PlanError(f"{key}: {first['msg'].lower()}", place=str(path), hint=hint) from None
    if not tables.proxy and not tables.oidc:
        raise PlanError("has neither [proxy] nor [oidc]", place=str(path))
    return Auth(
        _proxy(tables.proxy, path) if tables.proxy else None,
        _provider(tables.oidc, path) if tables.oidc else None,
    )


def _proxy(table: ProxyTable, path: Path) -> ProxySettings:
    headers = [table.user_header, table.secret_header, *([table.role_header] if table.role_header else [])]
    for name in headers:
        if not _HEADER.fullmatch(name) or name.lower() in _NOT_A_USER:
            raise PlanError(f"no header for this: {name[:80]!r}", place=f"{path}: proxy")
    if len({name.lower() for name in headers}) < len(headers):
        raise PlanError("one header cannot have two meanings", place=f"{path}: proxy")
    if bool(table.role_header) != bool(table.roles):
        raise PlanError(
            "role_header and [proxy.roles] belong together", place=f"{path}: proxy",
            hint="without both, roles come from the users' file",
        )  # fmt: skip
    networks = tuple(_network(text, path) for text in table.addresses)
    if not table.secret_file and any(_is_of_this_machine(network) for network in networks):
        raise Refused(
            "every account on this machine can connect from loopback, so such a proxy needs a secret",
            place=f"{path}: proxy.addresses",
            hint="secret_file = FILE, and let the proxy send its content as X-Headrace-Secret",
        )
    return ProxySettings(
        networks,
        table.user_header.lower(),
        table.role_header.lower(),
        table.role_separator,
        _roles(table.roles, f"{path}: proxy.roles"),
        read_secret(_beside(path, table.secret_file)) if table.secret_file else "",
        table.secret_header.lower(),
        _log_out_url(table.log_out_url, path),
    )


def _log_out_url(url: str, path: Path) -> str:
    """A path of the proxy, or an address."""
    is_path = url.startswith("/") and not url.startswith(("//", "/\\"))
    if url and not is_path and (why := why_no_url(url)):
        raise PlanError(f"log_out_url: {why}", place=f"{path}: proxy", hint="a path such as /oauth2/sign_out")
    return url


def _network(text: str, path: Path) -> Network:
    place = f"{path}: proxy.addresses"
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise PlanError(f"no address or network: {error}", place=place) from None
    if network.prefixlen == 0:
        raise Refused("this would match everyone", place=place, hint="the address of the proxy")
    return network


def _is_of_this_machine(network: Network) -> bool:
    loopback = ("127.0.0.0/8", "::1/128", "::ffff:127.0.0.0/104")
    return any(
        network.version == other.version and network.overlaps(other)
        for other in map(ipaddress.ip_network, loopback)
    )


def _provider(table: ProviderTable, path: Path) -> ProviderSettings:
    place = f"{path}: oidc"
    for name, url in (("issuer", table.issuer), ("url", table.url)):
        if (why := why_no_url(url)) or urlsplit(url).query or urlsplit(url).fragment:
            raise PlanError(f"{name}: {why or 'has a query or a fragment'}", place=place)
    if urlsplit(table.url).path not in ("", "/"):
        raise PlanError("url: the pages are at / of a host", place=place, hint="https://db.example.com:8306")
    if "openid" not in table.scopes:
        raise PlanError("scopes: without openid there is no ID token", place=place)
    found = ProviderSettings(
        table,
        _roles(table.roles, f"{path}: oidc.roles"),
        _beside(path, table.client_secret_file) if table.client_secret_file else None,
        _beside(path, table.ca_file) if table.ca_file else None,
    )
    if found.ca_file and not found.ca_file.is_file():
        raise PlanError("no such file", place=str(found.ca_file))
    found.secret()
    return found


def _roles(words: Mapping[str, str], place: str) -> Roles:
    found = {}
    for value, word in words.items():
        try:
            found[value] = Role.of(word)
        except PlanError as error:
            raise PlanError(f"{value}: {error.message}", place=place, hint=error.hint) from None
        if not value or len(value) > 200:
            raise PlanError("a group has 1 to 200 characters", place=place)
    return Roles(found)


def why_no_url(url: str) -> str:
    """Why this address is not asked or opened: without TLS only this machine's; empty if it is."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "no address"
    if not host or parts.scheme not in ("http", "https") or "@" in parts.netloc:
        return "no address"
    return "" if parts.scheme == "https" or is_loopback(host) else "needs https"


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def read_secret(path: Path) -> str:
    """A file with one line that only its owner can read. Raises PlanError, Refused."""
    try:
        _check_owner(path, 0o077, "others can read or change this secret")
        with plain_file(path, may_be_pipe=True) as file:
            content = file.read(MOST_SECRET + 1)
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror}", place=str(path)) from error
    secret = content.decode("ascii", "replace").strip()
    if not 8 <= len(secret) <= MOST_SECRET or not secret.isascii() or not secret.isprintable():
        raise PlanError("a secret is one line of at least 8 printable ASCII characters", place=str(path))
    return secret


def _check_owner(path: Path, forbidden: int, why: str) -> None:
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(status.st_mode) & forbidden:
        raise Refused(why, place=str(path), hint=f"chmod 600 {path}")


def _beside(path: Path, name: str) -> Path:
    """A file that the file names is looked for beside it."""
    return path.parent / Path(name).expanduser()


def clean_name(name: str) -> str | None:
    """A name that others gave, if it can be shown and written to a log; None otherwise."""
    is_fine = 0 < len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip()
    return name if is_fine else None
