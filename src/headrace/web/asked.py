"""What an address asks for: hosts, a range of time, a source of classes. Checked once, for pages and ``/api``."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from headrace.base.errors import PlanError
from headrace.history.archive.reader import Range

if TYPE_CHECKING:
    from starlette.requests import Request

#: Word -> seconds.
RANGES: Mapping[str, int] = {
    "15m": 900,
    "1h": 3600,
    "6h": 6 * 3600,
    "24h": 86400,
    "7d": 7 * 86400,
    "30d": 30 * 86400,
    "90d": 90 * 86400,
}
DEFAULT_RANGE = "1h"
#: The last minute is written when it is over.
SETTLE_S = 1
MOST_WORDS = 200


class BadAddress(PlanError):
    """An address that asks for what cannot be."""


class UnknownHost(BadAddress):
    """A host that is neither watched nor in the history."""


@dataclass(frozen=True)
class Asked:
    """``until`` is empty for now; ``host`` is empty for all hosts. ``since`` and ``till`` are a part of the range
    that was selected, empty for all of it."""

    host: str = ""
    range: str = DEFAULT_RANGE
    until: str = ""
    source: str = ""
    words: str = ""
    sort: str = ""
    descending: bool = True
    #: Also classes that only look at the server: headrace's own, and other monitors'.
    with_own: bool = False
    since: str = ""
    till: str = ""

    @staticmethod
    def of(request: Request) -> Asked:
        query = request.query_params
        chosen = query.get("range", DEFAULT_RANGE)
        if chosen not in RANGES:
            raise BadAddress(f"no such range: {chosen[:20]!r}", hint=", ".join(RANGES))
        asked = Asked(
            query.get("host", "")[:MOST_WORDS], chosen, query.get("until", "")[:40], query.get("source", "")[:40],
            query.get("q", "")[:MOST_WORDS], query.get("sort", "")[:40], query.get("order", "desc") != "asc",
            query.get("own", "") == "1", query.get("from", "")[:40], query.get("to", "")[:40],
        )  # fmt: skip
        asked.span()
        return asked

    def span(self) -> Range:
        """What is asked for: the part that was selected, or the whole range."""
        whole = self.whole()
        if not (self.since or self.till):
            return whole
        since = seconds_of(self.since) if self.since else whole.since_s
        till = seconds_of(self.till) if self.till else whole.until_s
        if till <= since:
            raise BadAddress("the selected time ends before it begins", hint="from must be earlier than to")
        if till - since > max(RANGES.values()):
            raise BadAddress("the selected time is too long", hint=f"at most {list(RANGES)[-1]}")
        return Range(since, till).aligned()

    def whole(self) -> Range:
        """The range, whatever part of it was selected."""
        seconds = RANGES[self.range]
        until = seconds_of(self.until) if self.until else time.time() + SETTLE_S
        return Range(until - seconds, until).aligned()

    def address(self, path: str, /, **other: str) -> str:
        """The address of a page that keeps host, range and time."""
        values = {
            "host": self.host, "range": self.range, "until": self.until, "source": self.source, "q": self.words,
            "sort": self.sort, "order": "" if self.descending else "asc", "own": "1" if self.with_own else "",
            "from": self.since, "to": self.till,
        }  # fmt: skip
        kept = {key: value for key, value in {**values, **other}.items() if value}
        return f"{path}?{urlencode(kept)}" if kept else path


def seconds_of(text: str) -> float:
    """``1795390680`` or ``2026-11-22T23:40`` (UTC unless it says otherwise)."""
    try:
        found = float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else _iso(text)
    except (ValueError, OverflowError):
        raise BadAddress(f"not a time: {text!r}", hint="2026-11-22T23:40Z, or seconds since 1970") from None
    if not 0 < found < 4e9:
        raise BadAddress(f"no such time: {text!r}")
    return found


def _iso(text: str) -> float:
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else datetime.fromisoformat(f"{text}+00:00")).timestamp()
