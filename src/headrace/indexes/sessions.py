"""The sessions of sources, for what they send again and again (``repeated``): each source is read once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.base.counted import counted
from headrace.indexes import traffic
from headrace.indexes.costly import Costly
from headrace.indexes.repeated import Sent, repeated, why_unknown
from headrace.indexes.schema import Schema
from headrace.traffic.digests.classes import Digest
from headrace.traffic.digests.table import OTHERS

#: A source and conditions on its statements -> its digest by class and session.
Reader = Callable[[str, Sequence[str]], Digest]
#: Findings of which the values are compared: each takes a look at the whole source.
MOST_COMPARED = 3


@dataclass(frozen=True)
class Habits:
    """``unknown``: what could not be told, with the reason, a line for each source."""

    found: tuple[Costly, ...]
    unknown: tuple[str, ...]


def habits(sources: Sequence[str], schema: Schema, reader: Reader) -> Habits:
    found: list[Costly] = []
    unknown: list[str] = []
    for source in sources:
        digest = reader(source, ())
        sent = traffic.by_session(digest)
        least = digest.all.number("response_ns").least
        if why := why_unknown(least, digest.coverage.get("sampled_events", 0), len(sent)):
            unknown.append(f"what sessions repeat is not known of {source}: {why}")
            continue
        lost = digest.by_name.get(OTHERS)
        if lost is not None and lost.count:
            unknown.append(
                f"{source} has more sessions than are counted: {counted(lost.count, 'call')} left out"
            )
        found += repeated(sent, schema, _Values(source, reader))
    return Habits(tuple(found), tuple(unknown))


class _Values:
    """Counts the calls of a class in a session whose text is that of its slowest one."""

    def __init__(self, source: str, reader: Reader) -> None:
        self._source = source
        self._reader = reader
        self._left = MOST_COMPARED

    def __call__(self, sent: Sent) -> tuple[int, int] | None:
        text = sent.statement.text
        if not text or not sent.number or self._left <= 0:
            return None
        self._left -= 1
        conditions = [f"class={sent.number}", f"session={sent.session}", f"text!={text}"]
        others = self._reader(self._source, conditions).all.count
        return max(sent.calls - others, 0), sent.calls
