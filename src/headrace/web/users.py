"""Who may log in: a file of names, roles and argon2 hashes that only its owner can read.

One line per user: ``NAME ROLE HASH``. There is no default user and no default password.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from headrace.base.errors import PlanError, Refused, StoreError
from headrace.base.whole import write_whole

SHORTEST_PASSWORD, LONGEST_PASSWORD = 12, 1024
#: In place of a hash: the user comes through a reverse proxy, and no password opens it.
NO_PASSWORD = "-"
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


class Role(IntEnum):
    """Each role may do what the one before it may."""

    VIEWER = 1  # sees hosts, classes of statements, experiments, changes
    OPERATOR = 2  # also sees statements with their values, and asks servers for plans
    APPROVER = 3  # also approves and ends rollouts

    @classmethod
    def of(cls, word: str) -> Role:
        try:
            return cls[word.upper()]
        except KeyError:
            names = ", ".join(role.name.lower() for role in cls)
            raise PlanError(f"no such role: {word!r}", hint=names) from None

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class User:
    """``generation`` changes with the password: sessions of an older one end."""

    name: str
    role: Role
    generation: str


class Users:
    """The users' file, read again when it changes, so that a removed user is out with the next request."""

    def __init__(self, path: Path, hasher: PasswordHasher | None = None) -> None:
        self.path = path
        self._hasher = hasher or PasswordHasher()
        self._read_at: tuple[int, int] | None = None
        self._lines: dict[str, tuple[Role, str]] = {}
        # Verified for unknown names, so that they take as long as known ones.
        self._nobody = self._hasher.hash(os.urandom(16).hex())

    def all(self) -> Mapping[str, Role]:
        self._refresh()
        return {name: role for name, (role, _) in self._lines.items()}

    def user(self, name: str) -> User | None:
        self._refresh()
        found = self._lines.get(name)
        return User(name, found[0], _generation(found[1])) if found else None

    def verify(self, name: str, password: str) -> User | None:
        """The user, if the password is right. Takes some 50 ms either way."""
        self._refresh()
        role, stored = self._lines.get(name, (Role.VIEWER, self._nobody))
        if stored == NO_PASSWORD:
            name, stored = "", self._nobody
        try:
            self._hasher.verify(stored, password[:LONGEST_PASSWORD])
        except (Argon2Error, InvalidHashError):
            return None
        return User(name, role, _generation(stored)) if name in self._lines else None

    def put(self, name: str, role: Role, password: str | None) -> None:
        """Add a user, or change the role and the password; None: without one."""
        if not _NAME.fullmatch(name):
            raise PlanError("a name has 1 to 64 letters, digits or ._@-", place=name[:80])
        if password is not None and not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
            raise PlanError(f"a password has at least {SHORTEST_PASSWORD} characters", place=name)
        self._refresh()
        stored = NO_PASSWORD if password is None else self._hasher.hash(password)
        self._save({**self._lines, name: (role, stored)})

    def remove(self, name: str) -> None:
        self._refresh()
        if name not in self._lines:
            raise PlanError("no such user", place=name)
        self._save({key: value for key, value in self._lines.items() if key != name})

    def _save(self, lines: Mapping[str, tuple[Role, str]]) -> None:
        text = "".join(f"{name} {role.word} {hashed}\n" for name, (role, hashed) in lines.items())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self.path, text, 0o600)
        except OSError as error:
            raise StoreError(f"cannot be written: {error.strerror}", place=str(self.path)) from error
        self._read_at = None

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._lines, self._read_at = {}, None
            return
        if status.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(status.st_mode) & 0o077:
            raise Refused(
                "others can read or change the users' file",
                place=str(self.path),
                hint=f"chmod 600 {self.path}",
            )
        if self._read_at == (status.st_mtime_ns, status.st_ino):
            return
        lines: dict[str, tuple[Role, str]] = {}
        for number, line in enumerate(self.path.read_text("utf-8", "replace").splitlines(), 1):
            words = line.split()
            if not words or line.startswith("#"):
                continue
            if len(words) != 3:
                raise PlanError("a line is: NAME ROLE HASH", place=f"{self.path}:{number}")
            lines[words[0]] = (Role.of(words[1]), words[2])
        self._lines, self._read_at = lines, (status.st_mtime_ns, status.st_ino)


def _generation(hashed: str) -> str:
    return hashlib.sha256(hashed.encode()).hexdigest()[:16]
