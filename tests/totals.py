"""What no sentence may say: a total below its part, a share above all, a count below zero."""

from __future__ import annotations

import re
from collections.abc import Iterator

_UNITS = {"bytes": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
_UNITS |= {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_NUMBER = rf"(\d+(?:,\d{{3}})*(?:\.\d+)?)(?: ({'|'.join(_UNITS)})\b)?"
_OF = re.compile(rf"(?<![\w.,:]){_NUMBER} of (?:the |its |all |about |these )?{_NUMBER}")
_SHARE = re.compile(r"(?<![\w.])(\d+(?:,\d{3})*(?:\.\d+)?)%")
_BELOW_ZERO = re.compile(r"(?<![\w.\]/:@+-])-\d[^\s]*")
#: Of rounding.
_MORE = 1.005


def faults(text: str) -> Iterator[str]:
    for match in _OF.finditer(text):
        part, unit, total, of_total = match.groups()
        if (unit is None) == (of_total is None):
            sizes = [
                float(n.replace(",", "")) * _UNITS.get(u, 1.0) for n, u in ((part, unit), (total, of_total))
            ]
            if sizes[0] > _MORE * sizes[1]:
                yield match[0]
    yield from (match[0] for match in _SHARE.finditer(text) if float(match[1].replace(",", "")) > 100 * _MORE)
    yield from (match[0] for match in _BELOW_ZERO.finditer(text))
