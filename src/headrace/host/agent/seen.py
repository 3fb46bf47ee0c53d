"""Files of a target as the agent's verb ``file`` shows them: opened by what they are, not by their name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.base.errors import CommandFailed, Refused

#: Paths in one call: an argument list has room for far more.
AT_ONCE = 200


@dataclass(frozen=True)
class Seen:
    """What is at a path: the ``content`` of a plain file, or the ``names`` in a folder; neither if there is
    nothing, or why it is ``refused``. ``owner`` is a user's number there, ``mode`` the permission bits.
    """

    path: str
    content: bytes | None = None
    names: tuple[str, ...] | None = None
    refused: str = ""
    owner: int = -1
    mode: int = 0

    def plain(self, place: str) -> bytes:
        """The content. Raises FileNotFoundError, IsADirectoryError; Refused for what it is instead of a file."""
        if self.content is not None:
            return self.content
        if self.refused:
            raise Refused(self.refused, place=f"{place}:{self.path}", hint="only plain files are read there")
        if self.names is not None:
            raise IsADirectoryError(21, f"a directory on {place}", self.path)
        raise FileNotFoundError(2, f"no such file on {place}", self.path)


def seen(answer: Any, paths: tuple[str, ...], place: str) -> dict[str, Seen]:
    """The agent's answer by path. Raises CommandFailed if it is not about these paths."""
    files = answer.get("files") if isinstance(answer, dict) else None
    try:
        found = {str(each["path"]): _one(each) for each in files or ()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CommandFailed(f"headrace-agent file: refused: {error!r:.200}", place=place) from error
    if set(found) != set(paths):
        raise CommandFailed("headrace-agent file: refused: not what was asked for", place=place)
    return found


def _one(each: dict[str, Any]) -> Seen:
    content, names = each.get("content"), each.get("names")
    return Seen(
        str(each["path"]),
        None if content is None else content.encode(),
        None if names is None else tuple(str(name) for name in names),
        str(each.get("refused") or ""),
        int(each.get("owner", -1)),
        int(each.get("mode", 0)),
    )
