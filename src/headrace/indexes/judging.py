"""An index of a live server, judged by the server's own load: shown and hidden in turns.

What counts is the time of the classes of performance_schema whose text names the table. Each block has a turn with
the index and one without, in random order; the block is the unit, and the mix of classes within it is held fixed.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.base.errors import NotReady
from headrace.indexes import verdicts
from headrace.indexes.copies import Built, text
from headrace.indexes.session import Session, StatementFailed
from headrace.indexes.verdicts import Effect

#: Classes shown with their own verdict.
MOST_CLASSES = 10
#: Between two looks while a turn passes.
LOOK_S = 1.0


@dataclass(frozen=True)
class Turns:
    """Seconds that count per turn, seconds after each change that do not, and blocks of two turns."""

    seconds: float = 20.0
    settle_s: float = 3.0
    blocks: int = 4
    seed: int = 1

    @property
    def total_s(self) -> float:
        return 2 * self.blocks * (self.seconds + self.settle_s)


@dataclass(frozen=True)
class Class:
    """``time_s``: what its calls took in all turns."""

    text: str
    time_s: float
    effect: Effect


@dataclass(frozen=True)
class Judged:
    """``whole``: the time of all classes of the table with the index relative to that without, in one mix."""

    whole: Effect
    classes: tuple[Class, ...]


Counts = Mapping[str, tuple[int, int]]


def judge(
    session: Session,
    index: Built,
    turns: Turns,
    switch: Callable[[bool], None],
    tell: Callable[[str], None],
    look: Callable[[], None] = lambda: None,
) -> Judged:
    """``switch`` shows or hides the index; ``look`` raises what ends the turns, and is called all the while.

    Raises NotReady if the server does not count its statements.
    """
    must_count(session)
    dice = random.Random(turns.seed)
    blocks: list[dict[bool, Counts]] = []
    for number in range(turns.blocks):
        tell(f"block {number + 1} of {turns.blocks}, two turns of {turns.seconds:g} s")
        taken: dict[bool, Counts] = {}
        for is_shown in dice.sample([True, False], 2):
            switch(is_shown)
            _pass(turns.settle_s, look)
            before = counts(session, index)
            _pass(turns.seconds, look)
            taken[is_shown] = grown(before, counts(session, index))
        blocks.append(taken)
    return judged(blocks, texts(session, index))


def _pass(seconds: float, look: Callable[[], None]) -> None:
    end = time.monotonic() + seconds
    while True:
        look()
        left_s = end - time.monotonic()
        if left_s <= 0:
            return
        time.sleep(min(left_s, LOOK_S))


def must_count(session: Session) -> None:
    """Raises NotReady."""
    if not int(session.value("SELECT @@performance_schema") or 0):
        raise NotReady(
            "performance_schema is off, so the server does not count its statements",
            place=session.name,
            hint="apply the index without --judge, or start the server with performance_schema = ON",
        )


def counts(session: Session, index: Built) -> Counts:
    """Digest -> calls and picoseconds of the classes that name the table. Raises NotReady."""
    try:
        rows = session.rows(
            f"SELECT digest, SUM(count_star), SUM(sum_timer_wait) {_of(index)} GROUP BY digest"
        )
    except StatementFailed as error:
        raise NotReady(
            f"the counts of statements cannot be read: {error.words}", place=session.name
        ) from error
    return {str(digest): (int(calls), int(time_ps)) for digest, calls, time_ps in rows if digest is not None}


def texts(session: Session, index: Built) -> dict[str, str]:
    return {
        str(digest): str(words) for digest, words in session.rows(f"SELECT digest, digest_text {_of(index)}")
    }


def _of(index: Built) -> str:
    name = "%`" + index.table.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_") + "`%"
    return (
        "FROM performance_schema.events_statements_summary_by_digest"
        f" WHERE schema_name = {text(index.database)} AND digest_text LIKE {text(name)}"
        " AND digest_text NOT LIKE 'ALTER %' AND digest_text NOT LIKE 'EXPLAIN %'"
    )


def grown(before: Counts, after: Counts) -> Counts:
    """What a turn added; a class whose counts fell, because they were reset, is left out."""
    found = {}
    for digest, (calls, time_ps) in after.items():
        first = before.get(digest, (0, 0))
        if calls > first[0] and time_ps >= first[1]:
            found[digest] = (calls - first[0], time_ps - first[1])
    return found


def judged(blocks: list[dict[bool, Counts]], names: Mapping[str, str]) -> Judged:
    """Only classes that ran in both turns of a block count in it."""
    whole: dict[int, float] = {}
    by_class: dict[str, dict[int, float]] = {}
    total: dict[str, int] = {}
    for number, taken in enumerate(blocks):
        with_it, without = taken[True], taken[False]
        sums = [0.0, 0.0]
        for digest in with_it.keys() & without.keys():
            means = [max(time_ps, 1) / calls for calls, time_ps in (with_it[digest], without[digest])]
            weight = with_it[digest][0] + without[digest][0]
            sums = [each + weight * mean for each, mean in zip(sums, means, strict=True)]
            by_class.setdefault(digest, {})[number] = math.log(means[0] / means[1])
            total[digest] = total.get(digest, 0) + with_it[digest][1] + without[digest][1]
        if all(sums):
            whole[number] = math.log(sums[0] / sums[1])
    first = sorted(by_class, key=lambda digest: -total[digest])[:MOST_CLASSES]
    return Judged(
        verdicts.effect(whole, 1),
        tuple(
            Class(
                names.get(digest, digest), total[digest] / 1e12, verdicts.effect(by_class[digest], len(first))
            )
            for digest in first
        ),
    )
