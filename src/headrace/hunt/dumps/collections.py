"""Collections of pt-stalk: a prefix of date and time for all files of one trigger."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: ``2026_11_28_16_10_31-diskstats``
_PREFIX = re.compile(r"(?:^|/)(\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d)-[a-z]")
#: Prefixes in one sentence.
MOST_NAMED = 4


def latest(texts: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The texts without those of earlier collections, and a caution that names them: an average over the hours
    between two triggers would be that of neither."""
    prefixes = sorted({match[1] for name in texts if (match := _PREFIX.search(name))})
    if len(prefixes) < 2:
        return dict(texts), []
    last = prefixes[-1]
    kept = {name: text for name, text in texts.items() if not (m := _PREFIX.search(name)) or m[1] == last}
    others = ", ".join(prefixes[:-1][-MOST_NAMED:])
    return kept, [
        f"{len(prefixes)} collections of pt-stalk: the last, {last}, is evaluated; to evaluate another, such as "
        f"{others}, put its files into a directory of their own"
    ]
