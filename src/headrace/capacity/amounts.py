"""Amounts as people write them, in options and in catalogues: 3000, 10k, 1.5e6, 64G, 256GiB."""

from __future__ import annotations

import math
import re

from headrace.capacity.model import Resource

#: Of these G is 2^30, as in my.cnf and as memory is sold; of everything else it is 10^9.
STORED = (Resource.MEMORY, Resource.SPACE)
_NUMBER = re.compile(r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s*(?:([kmgt])(i?))?b?", re.IGNORECASE)


def unit_of(column: str) -> int:
    """What K multiplies by, in the unit of a resource or of a column such as ``memory_low``."""
    return 1024 if column.partition("_")[0] in STORED else 1000


def amount(text: str, unit: int) -> float | None:
    """A number of at least 0 with K, M, G, T (powers of ``unit``) or Ki, Mi, Gi, Ti; None for anything else."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    number, prefix, is_binary = match.groups()
    value = float(number)
    if prefix:
        value *= float(1024 if is_binary else unit) ** (1 + "kmgt".index(prefix.lower()))
    return value if math.isfinite(value) else None
