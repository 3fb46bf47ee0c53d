"""What was done to indexes of live servers: a file for each server and kind of change, written before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.base.encode import json_text
from headrace.base.errors import StoreError
from headrace.base.received import BadContent, parsed
from headrace.base.state import state_path
from headrace.base.whole import write_whole
from headrace.indexes.copies import alone
from headrace.indexes.session import Session

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)
else:
    T = TypeVar("T")


class Journal(Generic[T]):
    """``kind`` begins the names of its files, ``read_one`` makes an entry of a row, and entries with the same
    ``key`` are about the same index."""

    def __init__(
        self, kind: str, read_one: Callable[[Mapping[str, Any]], T], key: Callable[[T], object]
    ) -> None:
        self._kind, self._read_one, self._key = kind, read_one, key

    def alone(self, session: Session) -> AbstractContextManager[None]:
        """Raises Busy while another command changes this server's indexes."""
        return alone(self._path(session).with_suffix(".lock"), session.name)

    def entries(self, session: Session) -> list[T]:
        """Raises StoreError."""
        return self._read(self._path(session))

    def note(self, session: Session, entry: T) -> None:
        """Write down an entry, in the place of one about the same index."""
        self._save(session, [*self._others(session, self._key(entry)), entry])

    def forget(self, session: Session, key: object) -> None:
        self._save(session, self._others(session, key))

    def everywhere(self) -> list[T]:
        """Of all servers to which commands of this user did something."""
        paths = sorted(state_path("indexes").glob(f"{self._kind}-*.json"))
        return [entry for path in paths for entry in self._read(path)]

    def _others(self, session: Session, key: object) -> Iterable[T]:
        return [entry for entry in self.entries(session) if self._key(entry) != key]

    def _path(self, session: Session) -> Path:
        path = state_path(f"indexes/{self._kind}-{session.identity}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _save(self, session: Session, entries: Iterable[T]) -> None:
        write_whole(self._path(session), json_text([asdict(entry) for entry in entries]), 0o600)

    def _read(self, path: Path) -> list[T]:
        if not path.exists():
            return []
        try:
            return [self._read_one(each) for each in parsed(path.read_bytes())]
        except (BadContent, KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"the journal of indexes cannot be read ({type(error).__name__}: {error})", place=str(path)
            ) from error
