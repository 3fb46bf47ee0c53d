"""Names of databases, tables and their parts as people write them: between backticks unless they are plain."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[\w$-]+")
_NAME = r"\s*(?:`(?:[^`]|``)+`|[^`.,()\s][^`.,()]*)\s*"
_DOTTED = re.compile(rf"{_NAME}(?:\.{_NAME})*")
_INDEX = re.compile(rf"({_NAME}\.{_NAME})\(({_NAME}(?:,{_NAME})*)\)\s*")
_EACH = re.compile(_NAME)


def written(*names: str) -> str:
    """``shop.orders``, and ``shop.`a.b` `` for what would be read as something else."""
    return ".".join(name if _PLAIN.fullmatch(name) else quoted(name) for name in names)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def parts(text: str) -> tuple[str, ...]:
    """The names of a dotted one; none if it is not written so."""
    return _each(text) if _DOTTED.fullmatch(text) else ()


def index_parts(text: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Database with table, and columns, of ``DATABASE.TABLE(COLUMN, ...)``."""
    found = _INDEX.fullmatch(text)
    place, columns = (_each(found[1]), _each(found[2])) if found else ((), ())
    return (place, columns) if found else None


def _each(text: str) -> tuple[str, ...]:
    names = (name.strip() for name in _EACH.findall(text))
    return tuple(name[1:-1].replace("``", "`") if name.startswith("`") else name for name in names)
