"""Files that verdicts are written to, and those that secrets and settings are read from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from headrace.base import toml, whole
from headrace.base.errors import PlanError, write_error

T = TypeVar("T", bound=BaseModel)

#: A token or a secret is not longer.
MOST_BYTES = 65536


def write_whole(path: Path, content: str, mode: int | None = 0o644) -> None:
    """Replace the file in one step. Raises StoreError or DiskFull."""
    try:
        whole.write_whole(path, content, mode)
    except OSError as error:
        raise write_error(error, path) from error


def folder_of(path: Path) -> None:
    """Refuse a file in a folder that does not exist. Raises PlanError."""
    if not path.parent.is_dir():
        raise PlanError("no such directory", place=str(path.parent))
    if path.is_dir():
        raise PlanError("this is a directory, not a file", place=str(path))


def secret(path: Path) -> str:
    """The only line of a file. Raises PlanError; nothing of the content is in the message."""
    try:
        with whole.plain_file(path, may_be_pipe=True) as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8").strip()
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror or error}", place=str(path)) from error
    except UnicodeDecodeError:
        raise PlanError("not UTF-8", place=str(path)) from None
    if not text or len(content) > MOST_BYTES or len(text.splitlines()) > 1:
        raise PlanError("not a file with one line: the secret", place=str(path))
    return text


def settings(path: Path) -> tuple[Mapping[str, Any], Path]:
    """The content of a TOML file, and its folder: other files are named relative to it. Raises PlanError."""
    try:
        content = toml.parse(toml.read(path))
    except OSError as error:
        raise PlanError(f"cannot be read: {error.strerror or error}", place=str(path)) from error
    except toml.LimitError as error:
        raise PlanError(str(error), place=str(path)) from None
    except ValueError:
        # The parser's message may quote the line.
        raise PlanError("not TOML", place=str(path), hint="headrace docs tell") from None
    return content, path.parent


def checked(table: type[T], content: Mapping[str, Any], path: Path) -> T:
    """The settings as ``table``. Raises PlanError with the key, never with its value."""
    try:
        return table.model_validate(dict(content))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise PlanError(f"{key}: {first['msg']}", place=str(path), hint="headrace docs tell") from None
