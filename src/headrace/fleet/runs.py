"""What a fleet answered, on disk: a run's file, which a later run continues, and each host's last known answer.

A run's file is JSON lines: the question first, then one outcome per host in the order in which they came. The last
line of a host counts; a line that was cut off by a crash is dropped.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from headrace.base.door import opened_to_write
from headrace.base.encode import json_text
from headrace.base.errors import Busy, StoreError, write_error
from headrace.base.state import state_path
from headrace.base.whole import make_folder
from headrace.fleet.host import Host
from headrace.fleet.runner import Outcome, State

FORMAT = 1


class RunFile:
    """Outcomes by host. Readable only by its user: facts name addresses and accounts."""

    def __init__(self, path: Path, question: Mapping[str, Any]) -> None:
        """Continue the file if it has the same question; raises StoreError if it has another one."""
        self.path = path
        self._places: dict[str, tuple[int, State, str]] = {}
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = opened_to_write(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._file: BinaryIO = os.fdopen(descriptor, "r+b")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise Busy("another run writes to this file", place=str(path)) from None
        self._question = {"format": FORMAT, **question}
        try:
            self._end = self._read()
            if self._end == 0:
                self._write(self._question)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def states(self) -> dict[str, State]:
        return {host: state for host, (_, state, _) in self._places.items()}

    def has_answered(self, host: Host) -> bool:
        """Whether it need not be asked again. A machine that has the name of an earlier one has not answered."""
        _, state, address = self._places.get(host.name, (0, State.SKIPPED, ""))
        return state is State.OK and address == host.address

    def keep(self, outcome: Outcome) -> None:
        self._places[outcome.host] = (self._end, outcome.state, outcome.address)
        self._write(asdict(outcome))

    def outcomes(self, hosts: Iterable[str]) -> Iterator[Outcome]:
        """The latest of each of these hosts that has one, in this order; read one by one."""
        for host in hosts:
            if host not in self._places:
                continue
            self._file.seek(self._places[host][0])
            yield _outcome(json.loads(self._file.readline()))

    def _read(self) -> int:
        """Where the last whole line ends; the file is cut there."""
        end = 0
        for number, line in enumerate(self._file):
            if not line.endswith(b"\n"):
                # A killed writer's last line. Where it is the first, the file may be somebody else's.
                if number == 0 and not _line(self._question).startswith(line):
                    raise StoreError("is not a file of a fleet's answers", place=str(self.path))
                break
            try:
                content = json.loads(line)
                if number == 0:
                    self._check(content)
                else:
                    self._places[content["host"]] = (end, State(content["state"]), str(content["address"]))
            except (ValueError, KeyError, TypeError) as error:
                raise StoreError(
                    f"line {number + 1} is not a fleet's answer: {error}", place=str(self.path)
                ) from error
            end += len(line)
        self._file.truncate(end)
        return end

    def _check(self, found: Any) -> None:
        if found == self._question:
            return
        known = found if isinstance(found, dict) else {}
        verb = known.get("verb", "something else")
        unlike = sorted(key for key in {*known, *self._question} if known.get(key) != self._question.get(key))
        raise StoreError(
            f"this file has answers to another question ({verb}; it differs in {', '.join(unlike)})",
            place=str(self.path),
            hint="name another file with --run, or the same options",
        )

    def _write(self, content: Mapping[str, Any]) -> None:
        line = _line(content)
        with self._errors():
            self._file.seek(self._end)
            self._file.write(line)
            self._file.flush()
        self._end += len(line)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = "free some space, then run the same command again: it asks only the missing hosts"
            raise write_error(error, self.path, hint=hint) from error


def _line(content: Mapping[str, Any]) -> bytes:
    return json_text(content, separators=(",", ":")).encode() + b"\n"


def _outcome(content: Mapping[str, Any]) -> Outcome:
    return Outcome(**{**content, "state": State(content["state"])})


def _last_path(verb: str, host: str) -> Path:
    # A name may hold anything, such as a slash or two dots.
    return state_path("fleet") / verb / f"{urllib.parse.quote(host, safe='')}.json.zst"


def remember(verb: str, outcome: Outcome) -> None:
    """Keep the answer for when the host is unreachable. A failure to do so does not lose the answer itself."""
    path = _last_path(verb, outcome.host)
    content = zstandard.compress(json_text(outcome).encode())
    with contextlib.suppress(OSError):
        make_folder(path.parent, 0o700)
        draft = path.with_name(f".{path.name}.{os.getpid()}.part")
        draft.write_bytes(content)
        draft.chmod(0o600)
        draft.replace(path)


def last_answers(verb: str) -> Iterator[Outcome]:
    """The last answer of every host that this user has asked, by name."""
    for path in sorted((state_path("fleet") / verb).glob("*.json.zst")):
        if (found := _last(path)) is not None and found.answer is not None:
            yield found


def last_known(verb: str, outcome: Outcome, address: str) -> Outcome | None:
    """The last answer of a host that did not answer now. None without one, or of another machine of that name."""
    found = _last(_last_path(verb, outcome.host))
    if found is None or found.address != address:
        return None
    return replace(found, state=outcome.state, reason=outcome.reason, hint=outcome.hint)


def _last(path: Path) -> Outcome | None:
    """None if it cannot be read: it only helps when a host is away."""
    try:
        return _outcome(json.loads(zstandard.decompress(path.read_bytes(), max_output_size=1 << 28)))
    except (OSError, ValueError, KeyError, TypeError, zstandard.ZstdError):
        return None
