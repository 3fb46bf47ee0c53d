"""Names of columns as people write them: ``TPS``, ``tps (1/s)``, ``**tps**``, ``result.tps``."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

_UNIT = re.compile(r"(?<=[^\s(\[])\s*[(\[][^)\]]*[)\]]\s*$")


@functools.lru_cache(4096)
def plain(name: str) -> str:
    """A name without its unit, case, spaces and marks: equal for names that mean the same column."""
    return words(_UNIT.sub("", name.replace("*", "").replace("`", "").strip()))


def words(text: str) -> str:
    """Words in lower case, joined by underscores."""
    return re.sub(r"[\W_]+", "_", text.casefold()).strip("_")


def columns(header: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    """Name -> its only column; those that are not there, or could be several, are left out."""
    found = {}
    for name in wanted:
        if name in header:
            found[name] = header.index(name)
            continue
        alike = [i for i, own in enumerate(header) if own not in wanted and plain(own) == plain(name)]
        # A value within another of JSON.
        inner = [i for i, own in enumerate(header) if own.rpartition(".")[2] == name and own not in wanted]
        for places in (alike, inner):
            if len(places) == 1:
                found[name] = places[0]
                break
    return found
