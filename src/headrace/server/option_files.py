"""Which option files a server reads, and in which order: the last to name a variable decides."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

#: Built into the packages of both vendors, in this order. What a user has in a home folder is not a server's.
MAIN_FILES = ("/etc/my.cnf", "/etc/mysql/my.cnf")
#: The groups that a server reads; those of one version have its number (mysqld-8.0, mariadb-10.11).
GROUPS = re.compile(r"(mysqld|server|mariadb|mariadbd)(-\d+(\.\d+)?)?|galera|mariadb-server")
MOST_DEPTH = 8


class Files(Protocol):
    """A target, or copies of its files."""

    async def read(self, path: str) -> bytes: ...


@dataclass(frozen=True)
class Read:
    """One thing a server comes across: a ``folder`` whose files it reads, or a ``variable`` that ``file`` sets, to
    ``value``; None without one, as in ``skip-name-resolve``."""

    file: str
    folder: str = ""
    variable: str = ""
    value: str | None = None


async def reading_order(target: Files, arguments: Sequence[str] = ()) -> list[Read]:
    """What the main files name, in the server's order; ``arguments`` are those of its process."""
    named = [word.partition("=")[2] for word in arguments if word.startswith("--defaults-file=")]
    extra = [word.partition("=")[2] for word in arguments if word.startswith("--defaults-extra-file=")]
    if "--no-defaults" in arguments:
        return []
    found: list[Read] = []
    for path in named or (*MAIN_FILES, *extra):
        found += await of_file(target, path)
    return found


async def of_file(target: Files, path: str, depth: int = MOST_DEPTH) -> list[Read]:
    """What one file names; empty if there is no such file."""
    try:
        text = (await target.read(path)).decode("utf-8", "replace")
    except (FileNotFoundError, IsADirectoryError):
        return []
    found: list[Read] = []
    group = ""
    for line in text.splitlines():
        line = line.strip()
        if match := re.match(r"!(includedir|include)\s+(\S+)", line):
            if match[1] == "includedir":
                found.append(Read(path, folder=match[2].rstrip("/")))
            elif depth > 0:
                found += await of_file(target, match[2], depth - 1)
        elif match := re.match(r"\[([^\]]+)\]", line):
            group = match[1].strip()
        elif GROUPS.fullmatch(group) and (match := re.match(r"([A-Za-z][\w.-]*)\s*(=?)(.*)", line)):
            value = _value(match[3]) if match[2] else None
            found.append(Read(path, variable=plain(match[1]), value=value))
    return found


def _value(text: str) -> str:
    """Without its quotes; a comment may follow the value."""
    text = text.strip()
    if text[:1] in ("'", '"') and (end := text.find(text[0], 1)) > 0:
        return text[1:end]
    return text.partition("#")[0].rstrip()


def plain(option: str) -> str:
    """``loose-innodb-io-capacity`` -> ``innodb_io_capacity``."""
    return option.lower().replace("-", "_").removeprefix("loose_")


def last_folder(order: Sequence[Read], known: Sequence[str]) -> str | None:
    """The folder of these whose files the server reads last; None if it reads none of them."""
    folders = [read.folder for read in order if read.folder in known]
    return folders[-1] if folders else None


def set_after(order: Sequence[Read], folder: str, variable: str) -> str | None:
    """The main file that sets a variable after the files of a folder were read, and so decides."""
    last = max(number for number, read in enumerate(order) if read.folder == folder)
    return next((read.file for read in order[last:] if read.variable == variable), None)


async def is_persisted(target: Files, data_directory: str, variable: str) -> bool:
    """Whether SET PERSIST holds a variable: MySQL reads mysqld-auto.cnf after every option file."""
    try:
        content = json.loads(await target.read(f"{data_directory.rstrip('/')}/mysqld-auto.cnf"))
    except (OSError, ValueError):
        return False
    return _has_key(content, variable)


def _has_key(content: object, key: str) -> bool:
    if not isinstance(content, dict):
        return False
    return key in content or any(_has_key(value, key) for value in content.values())
