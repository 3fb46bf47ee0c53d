"""Screening: each candidate built hidden on a copy, and the plans and reads of its statements with it and without.

Seconds for each candidate. What the optimiser does not choose, or what reads no fewer rows, is not worth a proof.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from headrace.base.errors import Refused
from headrace.indexes import trials
from headrace.indexes.candidates import Candidate
from headrace.indexes.copies import Copy
from headrace.indexes.names import quoted
from headrace.indexes.schema import Schema
from headrace.indexes.session import StatementFailed
from headrace.indexes.statement import Statement
from headrace.indexes.trials import Ran, Trial

#: Rows read and time with the index, both relative to those without, from which on it is worth no proof.
NO_GAIN = 0.9
#: A row that an index leads to costs several that are read one after the other: only with so few left is that a
#: gain whatever a single run took.
FAR_FEWER = 0.1
#: A run on a busy host varies by as much; the proof tells whether it is faster.
SLOWER = 1.25
#: A statement that is quicker runs twice, and the quicker run counts: the first one may read from the disk.
QUICK_S = 1.0


class Outcome(StrEnum):
    USED = "used"
    NOT_CHOSEN = "the optimiser does not choose it"
    NO_GAIN = "it is chosen, but statements take as long"
    REFUSED = "the server refuses it"
    NOTHING_RUN = "none of its statements could be run"


@dataclass(frozen=True)
class Seen:
    """A statement without a candidate and with it; ``problem`` is why it could not be run."""

    statement: Statement
    is_chosen: bool = False
    before: Ran | None = None
    after: Ran | None = None
    keys_before: tuple[str, ...] = ()
    was_done: bool = False
    problem: str = ""

    @property
    def read_ratio(self) -> float | None:
        """Rows read with the index relative to those without; None if a run was stopped or there is none."""
        if self.before is None or self.after is None or self.after.is_stopped:
            return None
        return max(self.after.rows_read, 1) / max(self.before.rows_read, 1)

    @property
    def gains(self) -> bool:
        """Whether it takes less time, or reads far fewer rows. One run is no proof of the former."""
        if self.before is None or self.after is None or self.after.is_stopped:
            return False
        ratio, least = self.read_ratio, NO_GAIN
        if ratio is not None and ratio < NO_GAIN:
            least = SLOWER if ratio >= FAR_FEWER else math.inf
        return self.before.is_stopped or self.after.seconds < least * self.before.seconds


@dataclass(frozen=True)
class Screened:
    candidate: Candidate
    outcome: Outcome
    seen: tuple[Seen, ...] = ()
    build_s: float | None = None
    size_bytes: int | None = None
    total_s: float = 0.0
    words: str = ""


@dataclass(frozen=True)
class Screening:
    screened: tuple[Screened, ...]
    #: Statements that were not run, with the reason.
    refused: tuple[tuple[Statement, str], ...]

    @property
    def used(self) -> list[Candidate]:
        return [each.candidate for each in self.screened if each.outcome is Outcome.USED]


def screen(
    copy: Copy,
    candidates: Sequence[Candidate],
    statements: Sequence[Statement],
    schema: Schema,
    tell: Callable[[str], None] = lambda _: None,
) -> Screening:
    """Raises TargetError if the copy goes away."""
    session = copy.session
    trials.prepare(session)
    tables = dict.fromkeys(each.table.full_name for each in candidates)
    ready, refused = trials.runnable(statements, schema, tables.keys())
    for table in dict.fromkeys((each.table.database, each.table.name) for each in candidates):
        # The optimiser goes by statistics, which a restored dump may not have.
        session.rows(f"ANALYZE TABLE {quoted(table[0])}.{quoted(table[1])}")
    before: dict[Statement, Seen] = {}
    found = []
    for candidate in candidates:
        tell(f"screening {candidate.table.full_name} ({', '.join(candidate.columns)})")
        own = [trial for trial in ready if candidate.table.full_name in trial.tables]
        found.append(_screened(copy, candidate, own, before))
    return Screening(tuple(found), tuple(refused))


def _screened(
    copy: Copy, candidate: Candidate, own: Sequence[Trial], before: dict[Statement, Seen]
) -> Screened:
    started = time.perf_counter()
    for trial in own:
        if trial.statement not in before:
            before[trial.statement] = _without(copy, trial)
    try:
        build_s = copy.build(candidate)
    except (StatementFailed, Refused) as error:
        words = error.words if isinstance(error, StatementFailed) else str(error)
        return Screened(candidate, Outcome.REFUSED, total_s=time.perf_counter() - started, words=words)
    copy.show([candidate])
    seen = tuple(_with(copy, candidate, trial, before[trial.statement]) for trial in own)
    size = copy.size_bytes(candidate)
    copy.drop(candidate)
    return Screened(candidate, _outcome(seen), seen, build_s, size, time.perf_counter() - started)


def _without(copy: Copy, trial: Trial) -> Seen:
    try:
        plan = trials.plan_of(copy.session, trial)
        ran = _run(copy, trial)
    except StatementFailed as error:
        return Seen(trial.statement, problem=error.words)
    keys = tuple(sorted(plan.keys))
    return Seen(trial.statement, before=ran, keys_before=keys, was_done=plan.is_done)


def _with(copy: Copy, candidate: Candidate, trial: Trial, without: Seen) -> Seen:
    if without.problem:
        return without
    try:
        plan = trials.plan_of(copy.session, trial)
        ran = _run(copy, trial)
    except StatementFailed as error:
        return Seen(trial.statement, problem=error.words)
    chosen = candidate.name in plan.keys or (plan.is_done and not without.was_done)
    return replace(without, is_chosen=chosen, after=ran)


def _outcome(seen: Sequence[Seen]) -> Outcome:
    ran = [each for each in seen if not each.problem]
    if not ran:
        return Outcome.NOTHING_RUN
    chosen = [each for each in ran if each.is_chosen]
    if not chosen:
        return Outcome.NOT_CHOSEN
    return Outcome.USED if any(each.gains for each in chosen) else Outcome.NO_GAIN


def _run(copy: Copy, trial: Trial) -> Ran:
    first = trials.run(copy.session, trial)
    if first.is_stopped or first.seconds > QUICK_S:
        return first
    return min(first, trials.run(copy.session, trial), key=lambda ran: ran.seconds)
