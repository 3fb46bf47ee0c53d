"""Names of databases, tables and their parts as people write them: between backticks unless they are plain."""

from __future__ import annotations

import re
from collections.abc import Iterable

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


def places(table: str, databases: Iterable[str], *, may_be_dotted: bool = False) -> list[str]:
    """``DATABASE.TABLE``, written, of all that a class's table may be: one without a database is in any of these.

    A digest writes names without backticks, so of three words with dots between them one name has a dot.
    """
    if "`" in table:
        found = parts(table)
        pairs = (
            [(found[0], found[1])] if len(found) == 2 else [(each, found[0]) for each in databases if found]
        )
    else:
        words = table.split(".")
        pairs = [(".".join(words[:i]), ".".join(words[i:])) for i in range(1, len(words))]
        if len(words) != 2 or may_be_dotted:
            pairs += [(each, table) for each in databases]
    return [written(database, name) for database, name in pairs if database and name]


def index_parts(text: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Database with table, and columns, of ``DATABASE.TABLE(COLUMN, ...)``."""
    found = _INDEX.fullmatch(text)
    place, columns = (_each(found[1]), _each(found[2])) if found else ((), ())
    return (place, columns) if found else None


def _each(text: str) -> tuple[str, ...]:
    names = (name.strip() for name in _EACH.findall(text))
    return tuple(name[1:-1].replace("``", "`") if name.startswith("`") else name for name in names)
