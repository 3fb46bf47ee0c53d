"""A second copy of the history in an object store, in case this machine is lost, and for other engines.

Pages read the directory: its small files open in a millisecond, and those of an object store in a round trip each.
Days and weeks are copied once they are written, an hour until its day is. Values of statements stay here. What is
deleted here is deleted there, after what replaces it was copied. What nothing replaces is deleted there a day
later, and never more than a share of all in a day: whatever emptied the directory here must not empty the copy,
too. An empty directory is filled from the copy before anything is collected.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from headrace.base import parquet
from headrace.base.counted import counted
from headrace.base.errors import PlanError, Refused, StoreError, write_error
from headrace.base.whole import write_whole
from headrace.history.archive.files import DAY_S, Archive, File, days_of, week_of, write_bytes
from headrace.history.archive.rollup import set_aside
from headrace.history.archive.tables import TABLES

#: Only objects that this history would name so are restored: a store cannot choose paths on this machine.
_OBJECT = re.compile(
    r"(?P<table>[a-z]+)/[a-z]+=[0-9-]{4,10}/host=(?P<host>[A-Za-z0-9_.~%-]+)/(?P<kind>[hdDw])-(?P<t_s>[0-9]{1,10})"
    r"\.parquet"
)
#: Parts of an address that would be a secret.
_SECRET = re.compile(
    r"(^|[?&])([^=&]*(secret|password|token|signature|access_key|account_key)[^=&]*|sig)=", re.I
)
#: An object is brought back in pieces, however large it is.
PIECE_BYTES = 1 << 20
MOST_OWNER = 100
SCHEMES = ("s3", "gs", "abfs", "abfss", "file")
#: The object that says whose copy this is.
OWNER = "owner"
#: An object that nothing replaces is kept for so long after its file is gone, by the history's own time; of all
#: objects this share may go in such a time, but at least a few.
KEPT_ON_S, SHARE, FEWEST_DELETED = float(DAY_S), 0.1, 20
#: Progress is saved after this many objects, so that a killed copy repeats little.
NOTED_EVERY = 500


def _check(path: Path) -> None:
    """An object that would fill the memory, or is damaged, is set aside before anything reads its rows."""
    try:
        with parquet.opened(path):
            pass
    except (pa.ArrowException, ValueError, OSError) as error:
        set_aside(path, error)


class Mirror:
    """The copy of one archive, at an address such as ``s3://bucket/prefix``. Only one thread may work with it."""

    def __init__(self, archive: Archive, address: str) -> None:
        self._archive, self.address = archive, address
        self._store, self._root = _opened(address)
        self._note = archive.root / "mirror.json"
        #: Why many objects are not deleted yet; empty if few are to go.
        self.waiting = ""

    def restore(self) -> int:
        """Fill a directory that has no history yet; the number of files. Continues after a kill.

        Raises StoreError, DiskFull.
        """
        note = self._noted()
        has_history = any(self._archive.files(table) for table in TABLES)
        if note.get("objects") is not None or (not note and has_history):
            return 0
        owner = str(note.get("owner") or secrets.token_hex(8))
        done: dict[str, list[int]] = {}
        with _told(self.address):
            found = [name for name in self._objects() if self._is_wanted(name)]
            if not found:
                self._check_bucket()
                return 0
            self._write_note(owner, None)
            for name in found:
                path = self._archive.root / name
                if not path.exists():
                    write_bytes(self._pieces(name), path)
                    _check(path)
                if path.exists():
                    done[name] = _identity(path)
            # From now on this directory is the one that is copied.
            self._write(OWNER, f"{owner}\n".encode())
        self._write_note(owner, done)
        return len(found)

    def copy(self, at_s: float | None = None) -> int:
        """Copy what is new and delete what is gone; the number of objects written.

        ``at_s``: the history's own time (``elapsed``); without it only what was replaced is deleted. Raises
        Refused, StoreError.
        """
        note = self._noted()
        done: dict[str, list[int]] = dict(note.get("objects") or {})
        wanted = dict(self._files())
        with _told(self.address):
            owner = str(note.get("owner") or secrets.token_hex(8))
            there = self._owner()
            if there and there != owner:
                # Two histories in one place would delete each other's objects.
                raise Refused(
                    "the history of another directory is kept there",
                    place=self.address,
                    hint="another prefix; or an empty --data directory, which continues that history",
                )
            if not note:
                self._write_note(owner, done)
            if not there:
                self._write(OWNER, f"{owner}\n".encode())
            new = [name for name, identity in wanted.items() if done.get(name) != identity]
            for count, name in enumerate(new, 1):
                if self._put(name):
                    done[name] = wanted[name]
                if count % NOTED_EVERY == 0:
                    self._write_note(owner, done)
            missing = [name for name in done if name not in wanted]
            lost = {name for name in missing if not any(each in done for each in self._replacing(name))}
            due, brake = self._due(note, lost, len(done), at_s)
            gone = [*(name for name in missing if name not in lost), *due]
            for name in gone:
                self._delete(name)
                del done[name]
        if new or gone or brake != note.get("brake", {}):
            self._write_note(owner, done, brake)
        return len(new)

    def _replacing(self, name: str) -> Iterator[str]:
        """Objects that hold the rows of this one."""
        if (found := _OBJECT.fullmatch(name)) is None:
            return
        table, host, kind, t_s = found["table"], unquote(found["host"]), found["kind"], int(found["t_s"])
        coarser = {"h": (("d", t_s - t_s % DAY_S), ("D", week_of(t_s))), "d": (("D", week_of(t_s)),)}
        for other, start_s in coarser.get(kind, ()):
            yield str(self._archive.path(table, host, other, start_s).relative_to(self._archive.root))

    def _due(
        self, note: Mapping[str, Any], lost: set[str], count: int, at_s: float | None
    ) -> tuple[list[str], dict[str, Any]]:
        """Which of the lost objects may go now, and what the next copy has to know of it.

        ``brake``: since: object -> when its file was missed first; from_s, deleted: of this day.
        """
        before: Mapping[str, Any] = note.get("brake") or {}
        since = {name: before.get("since", {}).get(name, at_s) for name in sorted(lost)}
        from_s, deleted = before.get("from_s"), int(before.get("deleted", 0))
        if at_s is None or not lost:
            self.waiting = ""
            return [], {**before, "since": since} if lost else {}
        if from_s is None or not from_s <= at_s < from_s + KEPT_ON_S:
            from_s, deleted = at_s, 0
        most = max(round(SHARE * count), FEWEST_DELETED)
        due = [name for name, first_s in since.items() if first_s is not None and at_s - first_s >= KEPT_ON_S]
        due = due[: max(most - deleted, 0)]
        left = {name: at_s if since[name] is None else since[name] for name in since if name not in due}
        self.waiting = ""
        if len(left) > most:
            self.waiting = (
                f"{len(left):,} of {counted(count, 'object')} in {self.address} have no file here "
                "any more: they are "
                f"deleted a day later, and at most {most:,} in a day; to bring them back, start headrace serve "
                "with an empty --data"
            )
        return due, {"since": left, "from_s": from_s, "deleted": deleted + len(due)}

    def _files(self) -> Iterator[tuple[str, list[int]]]:
        for table in TABLES.values():
            if table.is_private:
                continue
            by_host: dict[str, list[File]] = defaultdict(list)
            for file in self._archive.files(table.name):
                by_host[file.path.parent.name].append(file)
            for files in by_host.values():
                days = days_of(files)
                for file in files:
                    if file.kind in "dDw" or (file.kind == "h" and file.t_s - file.t_s % DAY_S not in days):
                        with contextlib.suppress(FileNotFoundError):  # rolled up meanwhile
                            yield str(file.path.relative_to(self._archive.root)), _identity(file.path)

    def _put(self, name: str) -> bool:
        """False if the file was rolled up meanwhile."""
        try:
            content = (self._archive.root / name).read_bytes()
        except FileNotFoundError:
            return False
        self._write(name, content)
        return True

    def _delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._store.delete_file(f"{self._root}/{name}")

    def _objects(self) -> list[str]:
        found = self._store.get_file_info(fs.FileSelector(self._root, allow_not_found=True, recursive=True))
        return sorted(each.path.removeprefix(f"{self._root}/") for each in found if each.is_file)

    def _check_bucket(self) -> None:
        """Raises StoreError: a wrong name must not look like a store without a history."""
        bucket = self._root.partition("/")[0]
        if isinstance(self._store, fs.S3FileSystem) and not self._store.get_file_info(bucket).type:
            raise StoreError("there is no such bucket", place=self.address)

    def _owner(self) -> str:
        try:
            with self._store.open_input_stream(f"{self._root}/{OWNER}") as source:
                return bytes(source.read(MOST_OWNER)).decode("ascii", "replace").strip()
        except FileNotFoundError:
            return ""

    def _is_wanted(self, name: str) -> bool:
        found = _OBJECT.fullmatch(name)
        if found is None or found["table"] not in TABLES or TABLES[found["table"]].is_private:
            return False
        t_s = int(found["t_s"])
        own = self._archive.path(found["table"], unquote(found["host"]), found["kind"], t_s)
        # A file dated in the future would be the newest minute and block collection until that time.
        return str(own.relative_to(self._archive.root)) == name and t_s <= time.time() + DAY_S

    def _pieces(self, name: str) -> Iterator[bytes]:
        with self._store.open_input_stream(f"{self._root}/{name}") as source:
            while True:
                # Wrap only the read: write errors are handled elsewhere.
                with _told(self.address):
                    piece = bytes(source.read(PIECE_BYTES))
                if not piece:
                    return
                yield piece

    def _write(self, name: str, content: bytes) -> None:
        target = f"{self._root}/{name}"
        if isinstance(self._store, fs.LocalFileSystem):
            self._store.create_dir(str(PurePosixPath(target).parent), recursive=True)
        with self._store.open_output_stream(target) as out:
            out.write(content)

    def _noted(self) -> dict[str, Any]:
        try:
            found = json.loads(self._note.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise StoreError(
                f"not readable: {error}", place=str(self._note), hint="delete it: all is then copied again"
            ) from error
        return found if isinstance(found, dict) else {}

    def _write_note(
        self, owner: str, done: Mapping[str, list[int]] | None, brake: Mapping[str, Any] | None = None
    ) -> None:
        """``done``: None until all was brought back. ``brake``: what ``_due`` returns; None: as it is."""
        if brake is None:
            brake = self._noted().get("brake") or {}
        content = {"owner": owner, "objects": done, **({"brake": brake} if brake else {})}
        try:
            write_whole(self._note, json.dumps(content), 0o600)
        except OSError as error:
            raise write_error(error, self._note) from error


def _identity(path: Path) -> list[int]:
    """What tells a file from the one that it replaced."""
    found = path.stat()
    return [found.st_ino, found.st_mtime_ns]


def _opened(address: str) -> tuple[fs.FileSystem, str]:
    """The store, and the path in it. Raises PlanError."""
    parts = urlsplit(address)
    # Of Azure the container is written as a user is. A key with a slash ends before its @.
    has_user = bool(parts.username) and not parts.scheme.startswith("abfs")
    if has_user or parts.password or re.search(r":(?![0-9]+$)", parts.netloc) or _SECRET.search(parts.query):
        raise PlanError(
            "every user of this machine can read the credentials in an address",
            place=f"{parts.scheme}://...",
            hint="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or a role of the machine",
        )
    if parts.scheme not in SCHEMES:
        raise PlanError(
            "not the address of an object store",
            place=address,
            hint="s3://bucket/prefix?region=eu-central-1, gs://, abfs://, or file:///directory",
        )
    try:
        store, root = _file_system(address, is_s3=parts.scheme == "s3", has_query=bool(parts.query))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise PlanError(f"cannot be used: {error}", place=address) from error
    if not (root := root.rstrip("/")):
        raise PlanError("names no bucket or directory", place=address)
    return store, root


def _file_system(address: str, *, is_s3: bool, has_query: bool) -> tuple[fs.FileSystem, str]:
    """On S3 upload in one request, not three: a killed multipart upload is billed until it is aborted."""
    found: tuple[fs.FileSystem, str]
    if is_s3:
        # PyArrow before 21 does not know this.
        with contextlib.suppress(pa.ArrowInvalid):
            found = fs.FileSystem.from_uri(f"{address}{'&' if has_query else '?'}allow_delayed_open=true")
            return found
    found = fs.FileSystem.from_uri(address)
    return found


@contextlib.contextmanager
def _told(address: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"the copy of the history failed: {error}", place=address) from error
