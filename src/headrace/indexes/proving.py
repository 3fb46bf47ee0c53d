"""Proof of a set of candidates on a copy: by switchback for reads, by blocks for writes.

In each block every treatment has one turn, in random order: without any candidate, with all, and with all but one.
Indexes are hidden and shown between turns, which takes no time. The block is the unit; intervals hold together.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.base.counted import counted
from headrace.base.intervals import Interval
from headrace.indexes import trials, verdicts, writes
from headrace.indexes.candidates import Candidate
from headrace.indexes.copies import Built, Copy
from headrace.indexes.schema import Schema
from headrace.indexes.session import StatementFailed
from headrace.indexes.statement import Statement
from headrace.indexes.trials import Trial
from headrace.indexes.verdicts import Effect, Verdict, Worth

#: A turn calls each statement for about this long, and so often at least and at most.
TURN_S, LEAST_CALLS, MOST_CALLS = 0.05, 3, 50
#: More statements, by time, are not run.
MOST_STATEMENTS = 60
#: With fewer blocks the bounds of a cost are too wide for any verdict.
LEAST_WRITE_BLOCKS = 6


@dataclass(frozen=True)
class Effort:
    """``blocks`` of reads and of writes; none but the first two begins after ``minutes`` (half of it for each)."""

    blocks: int = 12
    write_blocks: int = 8
    minutes: float = 20.0
    seed: int = 1


@dataclass(frozen=True)
class ReadClass:
    """A statement's time with all candidates relative to that without, and whether it answered the same."""

    statement: Statement
    effect: Effect
    answers: str = "same"
    is_wrong: bool = False


@dataclass(frozen=True)
class WriteCost:
    """``verb`` on ``table``; ``share``: of the recorded time, what such statements took."""

    table: str
    verb: str
    effect: Effect
    time_ns: int


@dataclass(frozen=True)
class LeftOut:
    """Time of the whole with all but this one relative to all; "slower" means that it is needed."""

    candidate: Candidate
    effect: Effect
    size_bytes: int | None
    build_s: float

    @property
    def is_needed(self) -> bool | None:
        if self.effect.verdict is Verdict.NOT_ENOUGH_DATA:
            return None
        return self.effect.verdict is Verdict.SLOWER


@dataclass(frozen=True)
class Proof:
    reads: tuple[ReadClass, ...]
    whole: Effect
    writes: tuple[WriteCost, ...]
    left_out: tuple[LeftOut, ...]
    worth: Worth
    refused: tuple[tuple[Statement, str], ...]
    #: Share of the recorded time whose statements were run.
    share_run: float
    seed: int

    @property
    def are_answers_same(self) -> bool:
        return not any(each.is_wrong for each in self.reads)

    @property
    def slower(self) -> list[ReadClass]:
        return [each for each in self.reads if each.effect.verdict is Verdict.SLOWER]

    @property
    def proved(self) -> list[Candidate]:
        """The candidates that are worth their cost, each by itself within the set."""
        if not self.are_answers_same or self.worth.pays is not True:
            return []
        return [each.candidate for each in self.left_out if each.is_needed]


def prove(
    copy: Copy,
    candidates: Sequence[Candidate],
    statements: Sequence[Statement],
    schema: Schema,
    total_ns: int,
    effort: Effort,
    tell: Callable[[str], None] = lambda _: None,
) -> Proof:
    """``total_ns`` is the recorded time of all statements. Raises StatementFailed if an index cannot be built."""
    trials.prepare(copy.session)
    dice = random.Random(effort.seed)
    started = time.monotonic()
    builds: dict[Built, float] = {}
    for candidate in candidates:
        tell(f"building {candidate.table.full_name} ({', '.join(candidate.columns)})")
        builds[Built.of(candidate)] = copy.build(candidate)
    sizes = {Built.of(each): copy.size_bytes(each) for each in candidates}
    tables = {each.table.full_name for each in candidates}
    ready, refused = trials.runnable(statements, schema, tables)
    ready.sort(key=lambda trial: -trial.statement.time_ns)
    refused += [(trial.statement, f"not among the {MOST_STATEMENTS} with the most time")
                for trial in ready[MOST_STATEMENTS:]]  # fmt: skip
    reads = _Reads(copy, candidates, ready[:MOST_STATEMENTS])
    refused += reads.compare_answers()
    tell(
        f"switching between {counted(len(reads.treatments), 'treatment')} in {counted(effort.blocks, 'block')}"
    )
    reads.measure(effort.blocks, dice, started + effort.minutes * 30)
    copy.show([])
    tell("measuring writes")
    taken = writes.measured(
        copy, candidates, effort.write_blocks, dice, time.monotonic() + effort.minutes * 30
    )
    # The worst block's share, so that a cost is not understated.
    left = {name: min(math.exp(max(logs.values())), 1.0) for name, logs in reads.logs(1, 0).items() if logs}
    times = writes.written_time(statements, schema, candidates, left)
    return _judged(reads, taken, times, total_ns, builds, sizes, refused, effort.seed)


class _Reads:
    """The statements of a proof, and their times by treatment and block."""

    def __init__(self, copy: Copy, candidates: Sequence[Candidate], ready: Sequence[Trial]) -> None:
        self._copy = copy
        self._ready = list(ready)
        self.candidates = tuple(candidates)
        self.treatments: list[tuple[Candidate, ...]] = [(), self.candidates]
        if len(candidates) > 1:
            self.treatments += [tuple(c for c in candidates if c is not each) for each in candidates]
        self.answers: dict[Statement, tuple[str, bool]] = {}
        self._calls: dict[Statement, int] = {}
        #: Treatment -> statement -> block -> median seconds of a call.
        self.seconds: list[dict[Statement, dict[int, float]]] = [{} for _ in self.treatments]

    def compare_answers(self) -> list[tuple[Statement, str]]:
        """Run each without and with all; leaves out what cannot be run, with the reason."""
        dropped = []
        session, kept = self._copy.session, []
        first = {}
        self._copy.show([])
        for trial in self._ready:
            try:
                once, again = trials.run(session, trial), trials.run(session, trial)
            except StatementFailed as error:
                dropped.append((trial.statement, error.words))
                continue
            if once.is_stopped or again.is_stopped:
                dropped.append(
                    (trial.statement, f"stopped after {trials.MOST_STATEMENT_S} s without the indexes")
                )
                continue
            first[trial.statement] = once, again
            kept.append(trial)
        self._copy.show(self.candidates)
        self._ready = []
        for trial in kept:
            once, again = first[trial.statement]
            try:
                ran = trials.run(session, trial)
            except StatementFailed as error:
                dropped.append((trial.statement, f"fails with the indexes: {error.words}"))
                self.answers[trial.statement] = "it fails with the indexes", True
                continue
            self.answers[trial.statement] = _compared(trial, once, again, ran)
            quicker = max(min(again.seconds, ran.seconds), 1e-6)
            self._calls[trial.statement] = min(max(math.ceil(TURN_S / quicker), LEAST_CALLS), MOST_CALLS)
            self._ready.append(trial)
        return dropped

    def measure(self, blocks: int, dice: random.Random, end_s: float) -> None:
        session = self._copy.session
        for block in range(blocks):
            if block >= 2 and time.monotonic() > end_s:
                break
            for number in dice.sample(range(len(self.treatments)), len(self.treatments)):
                self._copy.show(self.treatments[number])
                for trial in dice.sample(self._ready, len(self._ready)):
                    # The first call after a change opens the table again; it does not count.
                    trials.timed(session, trial, 1)
                    seconds = trials.timed(session, trial, self._calls[trial.statement])
                    self.seconds[number].setdefault(trial.statement, {})[block] = seconds

    def logs(self, over: int, under: int) -> dict[str, dict[int, float]]:
        """Statement -> block -> log of one treatment's time relative to another's."""
        return {
            statement.name: {
                block: math.log(seconds / self.seconds[under][statement][block])
                for block, seconds in blocks.items()
                if block in self.seconds[under].get(statement, {})
            }
            for statement, blocks in self.seconds[over].items()
        }

    @property
    def statements(self) -> list[Statement]:
        return [trial.statement for trial in self._ready]


def _compared(trial: Trial, once: trials.Ran, again: trials.Ran, ran: trials.Ran) -> tuple[str, bool]:
    """What the answers are like, and whether that is wrong."""
    if trial.changes_rows:
        return "it changes rows, and has no answer", False
    if once.answer != again.answer:
        return "it answers differently each time", False
    if once.answer == ran.answer:
        if trial.is_ordered and once.ordered_answer != ran.ordered_answer:
            return "same rows; those that its ORDER BY leaves equal are in another order", False
        return "same", False
    if trial.has_limit:
        return "other rows: its LIMIT leaves open which", False
    return "DIFFERENT", True


def _judged(
    reads: _Reads,
    taken: Mapping[tuple[str, str], Mapping[int, float]],
    times: Mapping[tuple[str, str], int],
    total_ns: int,
    builds: Mapping[Built, float],
    sizes: Mapping[Built, int | None],
    refused: Sequence[tuple[Statement, str]],
    seed: int,
) -> Proof:
    by_class = reads.logs(1, 0)
    weights = {each.name: float(each.time_ns) for each in reads.statements}
    several = len(reads.candidates) > 1
    comparisons = len(by_class) + 1 + len(taken) + (len(reads.candidates) if several else 0)
    whole = verdicts.effect(verdicts.weighted(by_class, weights), comparisons)
    costs = tuple(
        WriteCost(table, verb, verdicts.effect(logs, comparisons), times.get((table, verb), 0))
        for (table, verb), logs in sorted(taken.items())
    )
    left_out = tuple(
        LeftOut(
            candidate,
            verdicts.effect(verdicts.weighted(reads.logs(2 + at, 1), weights), comparisons)
            if several
            else _inverse(whole),
            sizes[Built.of(candidate)],
            builds[Built.of(candidate)],
        )
        for at, candidate in enumerate(reads.candidates)
    )
    run_ns = sum(each.time_ns for each in reads.statements)
    return Proof(
        tuple(
            ReadClass(
                each,
                verdicts.effect(by_class.get(each.name, {}), comparisons),
                *reads.answers[each],
            )
            for each in reads.statements
        ),
        whole,
        costs,
        left_out,
        _worth(whole, run_ns, costs, times, total_ns),
        tuple(refused),
        run_ns / total_ns if total_ns else 0.0,
        seed,
    )


def _inverse(whole: Effect) -> Effect:
    """Of a set of one, what leaving it out does."""
    ratio = whole.ratio
    turned = Interval(
        1 / ratio.estimate,
        1 / ratio.high if ratio.high else None,
        1 / ratio.low if ratio.low else None,
    )
    return Effect(turned, verdicts.verdict(turned), whole.blocks)


def _worth(
    whole: Effect,
    run_ns: int,
    costs: Sequence[WriteCost],
    times: Mapping[tuple[str, str], int],
    total_ns: int,
) -> Worth:
    """As shares of the recorded time. A write that the traffic has, but that was not measured, is unknown."""
    unknown = Interval(math.nan, None, None)
    if not total_ns or whole.ratio.low is None or whole.ratio.high is None:
        return Worth(unknown, unknown)
    share = run_ns / total_ns
    saved = Interval(
        share * (1 - whole.ratio.estimate), share * (1 - whole.ratio.high), share * (1 - whole.ratio.low)
    )
    known = {(each.table, each.verb): each for each in costs}
    ends = [0.0, 0.0, 0.0]
    for key, time_ns in times.items():
        found = known.get(key)
        if found is None or found.effect.ratio.low is None or found.effect.ratio.high is None:
            return Worth(saved, unknown)
        ratio = found.effect.ratio
        for at, value in enumerate((ratio.estimate, ratio.low, ratio.high)):
            ends[at] += time_ns / total_ns * ((value or 1.0) - 1)
    return Worth(saved, Interval(*ends))
